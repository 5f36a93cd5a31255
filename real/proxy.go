package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"regexp"
	"sync"
	"sync/atomic"
	"time"
)

// Way simulates the network between a gateway and an engine. It is a proxy that can delay, fail, shorten, hold back or
// cut off answers, or forward requests to another address.
type Way struct {
	listener net.Listener
	delay    atomic.Int64 // delay in each direction, in nanoseconds
	fails    atomic.Bool  // answers 500 itself
	shortens atomic.Bool  // requests one token, whatever the client requested
	holds    atomic.Bool  // forwards an answer only when it is complete
	cuts     atomic.Int64 // age at which a connection ends, in nanoseconds
	mu       sync.Mutex
	to       string
	open     map[net.Conn]bool
}

// NewWay starts a proxy that listens on an address and forwards to another.
func NewWay(listen, to string) (*Way, error) {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return nil, err
	}
	w := &Way{listener: l, to: to, open: map[net.Conn]bool{}}
	go w.accept()
	return w, nil
}

// accept serves connections until the listener is closed.
func (w *Way) accept() {
	for {
		c, err := w.listener.Accept()
		if err != nil {
			return
		}
		go w.serve(c)
	}
}

// serve forwards one connection.
func (w *Way) serve(client net.Conn) {
	defer w.keep(client)()
	if w.fails.Load() {
		_, _ = client.Read(make([]byte, 64<<10))
		_, _ = io.WriteString(client, "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\n"+
			"Connection: close\r\nContent-Length: 33\r\n\r\n"+`{"error":{"message":"no memory"}}`)
		return
	}
	w.mu.Lock()
	to := w.to
	w.mu.Unlock()
	server, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer w.keep(server)()
	if cuts := time.Duration(w.cuts.Load()); cuts > 0 {
		defer time.AfterFunc(cuts, func() { server.Close() }).Stop()
	}
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		go func() {
			w.copy(way[1], way[0], way[0] == server)
			done <- struct{}{}
		}()
	}
	<-done
}

// keep adds an open connection to the list, and returns a function that closes the connection.
func (w *Way) keep(c net.Conn) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.open[c] = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		delete(w.open, c)
		c.Close()
	}
}

// copy forwards the bytes of one side in order, after the delay. It can hold back answers that are streams.
func (w *Way) copy(to io.Writer, from io.Reader, answers bool) {
	type piece struct {
		data []byte
		due  time.Time
	}
	pieces := make(chan piece, 10_000)
	go func() {
		defer close(pieces)
		for {
			buffer := make([]byte, 16<<10)
			n, err := from.Read(buffer)
			if n > 0 {
				pieces <- piece{buffer[:n], time.Now().Add(time.Duration(w.delay.Load()))}
			}
			if err != nil {
				return
			}
		}
	}()
	var held []byte
	for p := range pieces {
		time.Sleep(time.Until(p.due))
		if w.shortens.Load() {
			p.data = limits.ReplaceAllFunc(p.data, func(limit []byte) []byte {
				name, _, _ := bytes.Cut(limit, []byte(":"))
				return fmt.Appendf(nil, "%s:%*d", name, len(limit)-len(name)-1, 1)
			})
		}
		if answers && w.holds.Load() {
			held = append(held, p.data...)
			if bytes.Contains(held, []byte("text/event-stream")) && !bytes.Contains(held, []byte("[DONE]")) {
				continue
			}
			p.data, held = held, nil
		}
		if _, err := to.Write(p.data); err != nil {
			return
		}
	}
}

// limits matches the field of a request that limits the number of tokens in the answer.
var limits = regexp.MustCompile(`"max_tokens": ?\d+`)

// Fail sets whether the proxy itself answers each request with 500. It closes open connections.
func (w *Way) Fail(fails bool) {
	w.fails.Store(fails)
	w.end()
}

// Lead makes the proxy forward to another address. It closes open connections.
func (w *Way) Lead(to string) {
	w.mu.Lock()
	w.to = to
	w.mu.Unlock()
	w.end()
}

// end closes the open connections.
func (w *Way) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for c := range w.open {
		c.Close()
	}
}

// Close stops the proxy.
func (w *Way) Close() {
	w.listener.Close()
	w.Fail(true)
}
