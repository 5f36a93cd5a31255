package e2e

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// TestUntilOutlivesAWebPage waits for a condition while a link is followed to another web page. The browser then ends the evaluation
// that is under way, with an error.
func TestUntilOutlivesAWebPage(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = w.Write([]byte("<!doctype html><title>A page</title>"))
	}))
	defer server.Close()
	b := NewBrowser(t)
	b.Open(server.URL)
	hosts := []string{"localhost", "127.0.0.1"}
	for i := range 20 {
		there := hosts[i%2]
		b.Eval(`void (location.href = "` + strings.Replace(server.URL, "127.0.0.1", there, 1) + `")`)
		b.Until("the other web page is there", `(() => {
			for (const end = Date.now() + 100; Date.now() < end; );
			return location.hostname == "`+there+`";
		})()`)
	}
}
