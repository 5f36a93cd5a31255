package scrape

import (
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
)

// An Address is the address of a server, taken apart: https://host:8443/team-a/metrics?model=gemma has the base
// https://host:8443/team-a, below which the server's own paths are, the metrics page /metrics and a query.
type Address struct {
	Base  *url.URL
	Page  string // empty if it still has to be found
	Query string // sent with every request: a router may need it to choose the engine
}

// PlainPath is where most servers serve their metrics pages.
const PlainPath = "/metrics"

// newAddress takes an address apart. known lists the paths at which servers of this kind serve their metrics pages.
func newAddress(u *url.URL, known []string) Address {
	a := Address{Base: &url.URL{Scheme: u.Scheme, Host: u.Host}, Query: u.RawQuery}
	given := strings.TrimSuffix(u.Path, "/")
	if given == "" {
		return a
	}
	prefix, file := path.Split(given)
	a.Page = "/" + file
	for _, at := range slices.Concat(known, []string{PlainPath}) {
		if before, ok := strings.CutSuffix(given, at); ok {
			prefix, a.Page = before, at
			break
		}
	}
	a.Base.Path = strings.TrimSuffix(prefix, "/")
	if a.Base.Path == "" && a.Page == PlainPath && a.Query == "" {
		a.Page = "" // the address names only the host, and /metrics may not be a metrics page: see Drains
	}
	return a
}

// Server returns the value of the server label: host and port, and whatever else distinguishes the engines behind
// them.
func (a Address) Server() string {
	s := a.Base.Host + a.Base.Path
	if a.Query != "" {
		s += "?" + a.Query
	}
	return s
}

// SameServer reports whether two values of the server label name the same engine: this host's loopback has several
// names.
func SameServer(a, b string) bool { return a == b || withoutLoopback(a) == withoutLoopback(b) }

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
