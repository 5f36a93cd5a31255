package main

import (
	"net"
	"net/http"
	"slices"
	"sync"
	"time"
)

// maxConnections limits the connections to the exporter's port. A few scrapers, probes and browsers need far fewer
// connections.
const maxConnections = 200

// httpServer returns a server that clients cannot block. Each part of a request and its answer has a time limit, and
// the number of connections is limited.
func httpServer(h http.Handler) *http.Server {
	return &http.Server{
		Handler:           h,
		ReadHeaderTimeout: 10 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      2 * time.Minute, // longer than a profile takes
		IdleTimeout:       5 * time.Minute, // longer than the time between two scrapes
		MaxHeaderBytes:    64 << 10,
		ConnState:         (&connections{}).changed,
	}
}

// connections limits the open connections. Above the limit, the server closes the connection that has waited longest
// for a request. A client that floods the port thus loses connections. A scraper keeps its connection, because it sends
// its request at once.
type connections struct {
	mu      sync.Mutex
	open    int
	waiting []net.Conn // connections without a complete request, the oldest first
}

// changed is the server's ConnState hook.
func (c *connections) changed(conn net.Conn, to http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = slices.DeleteFunc(c.waiting, func(w net.Conn) bool { return w == conn })
	switch to {
	case http.StateNew:
		c.open++
		c.waiting = append(c.waiting, conn)
	case http.StateIdle:
		c.waiting = append(c.waiting, conn)
	case http.StateActive: // has a request now
	case http.StateClosed, http.StateHijacked:
		c.open--
	}
	if to == http.StateNew && c.open > maxConnections {
		go c.waiting[0].Close() // a TLS connection may take a moment to close
		c.waiting = c.waiting[1:]
	}
}
