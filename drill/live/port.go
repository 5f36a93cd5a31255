package live

import (
	"net"
	"net/http"
	"time"
)

// port is the TCP port of an engine. It is open only while the engine answers.
type port struct {
	address string
	page    func() http.Handler // nil while the engine is down
	server  *http.Server        // nil while the port is closed
}

func newPort(l net.Listener, page func() http.Handler) *port {
	p := &port{address: l.Addr().String(), page: page}
	p.serve(l)
	return p
}

func (p *port) serve(l net.Listener) {
	p.server = &http.Server{ReadHeaderTimeout: time.Second, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page := p.page()
		if page == nil {
			panic(http.ErrAbortHandler) // the engine has just stopped, so break the connection
		}
		page.ServeHTTP(w, r)
	})}
	go func(s *http.Server) { _ = s.Serve(l) }(p.server) // ends with Close
}

// follow opens the port when the engine answers, and closes it when the engine stops.
func (p *port) follow() error {
	switch up := p.page() != nil; {
	case up && p.server == nil:
		l, err := net.Listen("tcp", p.address)
		if err != nil {
			return err
		}
		p.serve(l)
	case !up:
		p.close()
	}
	return nil
}

func (p *port) close() {
	if p.server != nil {
		_ = p.server.Close() // break off open connections
		p.server = nil
	}
}
