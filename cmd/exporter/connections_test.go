package main

import (
	"bufio"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// A client that opens many connections and sends half a request on each one loses these connections, and a scrape
// is answered.
func TestFloodOfConnections(t *testing.T) {
	const flood = maxConnections + 100
	e := start(t, "--discovery=none")
	conns := make([]net.Conn, flood)
	for i := range conns {
		conn, err := net.Dial("tcp", strings.TrimPrefix(e.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		io.WriteString(conn, "GET /metrics HTTP/1.1\r\nHost: exporter\r\nX-Slow: ")
		conns[i] = conn
	}
	if status, _, _ := e.request(t, http.MethodGet, "/metrics"); status != http.StatusOK {
		t.Errorf("a scrape got %d", status)
	}
	for i, conn := range conns {
		conn.SetReadDeadline(time.Now().Add(5 * time.Second))
		if i < flood-maxConnections {
			if _, err := conn.Read(make([]byte, 1)); isTimeout(err) {
				t.Fatalf("connection %d of %d is still open", i, flood)
			}
		}
	}
}

func isTimeout(err error) bool {
	var network net.Error
	return errors.As(err, &network) && network.Timeout()
}

// pipes listens for connections within the process, whose deadlines follow the clock of the test.
type pipes chan net.Conn

func (p pipes) Accept() (net.Conn, error) {
	conn, open := <-p
	if !open {
		return nil, http.ErrServerClosed
	}
	return conn, nil
}

func (p pipes) Close() error   { close(p); return nil }
func (p pipes) Addr() net.Addr { return &net.UnixAddr{} }

// Clients that send their request slowly, read no answer, or send no further request are disconnected, each within its
// time.
func TestSlowClients(t *testing.T) {
	for _, c := range []struct {
		name, sends string
		reads       bool
		within      time.Duration
	}{
		{"sends nothing", "", false, 10 * time.Second},
		{"sends half a header", "GET / HTTP/1.1\r\nHost: e\r\nX-Slow: ", false, 10 * time.Second},
		{"sends half a body", "GET / HTTP/1.1\r\nHost: e\r\nContent-Length: 10\r\n\r\n1", false, 2 * time.Minute},
		{"reads no answer", "GET / HTTP/1.1\r\nHost: e\r\n\r\n", false, 2 * time.Minute},
		{"asks nothing more", "GET / HTTP/1.1\r\nHost: e\r\n\r\n", true, 5 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := make(pipes)
				server := httpServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(make([]byte, 1<<20)) }))
				go server.Serve(listener)
				defer server.Close()
				client, accepted := net.Pipe()
				defer client.Close()
				listener <- accepted
				go io.WriteString(client, c.sends)
				if c.reads {
					resp, err := http.ReadResponse(bufio.NewReader(client), nil)
					if err != nil {
						t.Fatal(err)
					}
					io.Copy(io.Discard, resp.Body)
					resp.Body.Close()
				}
				time.Sleep(c.within + time.Second)
				if _, err := client.Write([]byte("x")); err == nil {
					t.Errorf("the connection is open after %s", c.within)
				}
			})
		})
	}
}
