package scrape

import (
	"net"
	"net/url"
	"path"
	"slices"
	"strings"
)

// An Address is the address of a server, split into parts. For example, https://host:8443/team-a/metrics?model=gemma has the base
// https://host:8443/team-a, the metrics page /metrics and a query. The server's other paths are below the base.
type Address struct {
	Base  *url.URL
	Page  string // empty if it is not known yet
	Query string // sent with every request, because a router may need it to choose the engine
}

// PlainPath is the usual path of metrics pages.
const PlainPath = "/metrics"

// newAddress splits an address into parts. known lists the paths at which servers of this kind serve their metrics pages.
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
		a.Page = "" // the address names only the host, and /metrics may be a list that reading empties: see Drains
	}
	return a
}

// Server returns the value of the server label. It has host and port, and other parts if they distinguish the engines
// at this address.
func (a Address) Server() string {
	s := a.Base.Host + a.Base.Path
	if a.Query != "" {
		s += "?" + a.Query
	}
	return s
}

// SameServer reports whether two values of the server label name the same engine. The names of this host's loopback
// count as equal.
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
