package engine

import (
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
)

// address holds the parts of an engine's address: https://host:8443/team-a/metrics?model=gemma has the base
// https://host:8443/team-a, below which the engine's own paths are, the page /metrics and a query.
type address struct {
	base  *url.URL
	page  string // empty if it still has to be found
	query string // sent with every request: a router may need it to know which engine is meant
}

// plainPath is where most engines serve their pages.
const plainPath = "/metrics"

// pagePaths lists the paths at which engines serve their pages, without a slash at the end. plainPath is tried last:
// see locate.
var pagePaths = func() (all []string) {
	for _, d := range builtin {
		for _, path := range d.Paths {
			if path = strings.TrimSuffix(path, "/"); path != plainPath && !slices.Contains(all, path) {
				all = append(all, path)
			}
		}
	}
	return append(all, plainPath)
}()

func newAddress(u *url.URL) address {
	a := address{base: &url.URL{Scheme: u.Scheme, Host: u.Host}, query: u.RawQuery}
	given := strings.TrimSuffix(u.Path, "/")
	if given == "" {
		return a
	}
	prefix, file := path.Split(given)
	a.page = "/" + file
	for _, known := range pagePaths {
		if before, ok := strings.CutSuffix(given, known); ok {
			prefix, a.page = before, known
			break
		}
	}
	a.base.Path = strings.TrimSuffix(prefix, "/")
	if a.base.Path == "" && a.page == plainPath && a.query == "" {
		a.page = "" // no more specific than the host, and /metrics may be no page: see Drains
	}
	return a
}

// server returns the value of the server label: host and port, and whatever else distinguishes the engines behind
// them.
func (a address) server() string {
	s := a.base.Host + a.base.Path
	if a.query != "" {
		s += "?" + a.query
	}
	return s
}

// sameServer reports whether two values of the server label name the same engine: this host's loopback has several
// names.
func sameServer(a, b string) bool { return a == b || withoutLoopback(a) == withoutLoopback(b) }

func withoutLoopback(server string) string {
	host, rest := server, ""
	if i := strings.IndexAny(server, "/?"); i >= 0 {
		host, rest = server[:i], server[i:]
	}
	if name, port, err := net.SplitHostPort(host); err == nil && (name == "localhost" || net.ParseIP(name).IsLoopback()) {
		return ":" + port + rest
	}
	return server
}
