package main

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/prometheus/exporter-toolkit/web"
)

// TestOtherSitesChangeNothing checks that requests that a browser sends for another site change nothing. If the exporter
// listens only on loopback, that site cannot read anything, either.
func TestOtherSitesChangeNothing(t *testing.T) {
	for _, c := range []struct {
		listen, method, host, origin string
		want                         int
	}{
		{":9844", "POST", "node:9844", "", 200},
		{":9844", "POST", "node:9844", "http://node:9844", 200},
		{":9844", "POST", "node:9844", "http://evil.example", 403},
		{":9844", "POST", "node:9844", "null", 403},
		{":9844", "GET", "node:9844", "http://evil.example", 200},
		{"127.0.0.1:9844", "GET", "localhost:9844", "", 200},
		{"[::1]:9844", "GET", "[::1]:9844", "", 200},
		{"localhost:9844", "GET", "127.0.0.1:9844", "", 200},
		{"127.0.0.1:9844", "GET", "evil.example:9844", "", 403},
		{"127.0.0.1:9844", "POST", "evil.example:9844", "http://evil.example:9844", 403},
		{"127.0.0.1:9844", "POST", "localhost:9844", "http://evil.example", 403},
	} {
		changed := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})
		r := httptest.NewRequest(c.method, "http://"+c.host+"/-/detach?ttl=10m", nil)
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		w := httptest.NewRecorder()
		ownOrigin(&web.FlagConfig{WebListenAddresses: &[]string{c.listen}}, changed).ServeHTTP(w, r)
		if w.Code != c.want {
			t.Errorf("%+v: %d", c, w.Code)
		}
	}
	e := start(t, "--web.enable-lifecycle")
	for _, path := range []string{"/-/reload", "/-/detach"} {
		if status, body, _ := e.request(t, http.MethodPost, path, "Origin", "http://evil.example"); status != http.StatusForbidden {
			t.Errorf("%s: %d %s", path, status, body)
		}
	}
}
