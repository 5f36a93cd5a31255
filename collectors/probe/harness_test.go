package probe

import (
	"compress/gzip"
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
)

// Steps of a script that are not text to send.
const (
	wait = "wait" // a while in which nothing is sent
	cut  = "cut"  // the connection breaks
	hold = "hold" // no more data comes, and the connection stays open
)

// pause is the duration of wait. A busy machine may read half of it late.
const pause = 300 * time.Millisecond

// say is a message with a delta of a chat.
func say(delta string) string {
	return `data: {"object":"chat.completion.chunk","choices":[{"index":0,"delta":` + delta + `,"finish_reason":null}]}` + "\n\n"
}

// word is a message with a token.
func word(s string) string { return say(`{"content":"` + s + `"}`) }

const (
	role   = `data: {"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null}]}` + "\n\n"
	finish = `data: {"choices":[{"index":0,"delta":{},"finish_reason":"length"}]}` + "\n\n"
	done   = "data: [DONE]\n\n"
)

func usage(prompt, completion string) string {
	return `data: {"choices":[],"usage":{"prompt_tokens":` + prompt + `,"completion_tokens":` + completion + `}}` + "\n\n"
}

// script sends its steps, each at once.
func script(steps ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if w.Header().Get("Content-Type") == "" {
			w.Header().Set("Content-Type", "text/event-stream")
		}
		play(w, r, w, steps...)
	}
}

func play(to io.Writer, r *http.Request, w http.ResponseWriter, steps ...string) {
	for _, step := range steps {
		switch step {
		case wait:
			time.Sleep(pause)
		case cut:
			panic(http.ErrAbortHandler)
		case hold:
			<-r.Context().Done()
		default:
			_, _ = io.WriteString(to, step)
			if z, zipped := to.(*gzip.Writer); zipped {
				_ = z.Flush()
			}
			w.(http.Flusher).Flush()
		}
	}
}

// answering is a server of one handler.
func answering(t *testing.T, h http.Handler) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(h)
	t.Cleanup(s.Close)
	return s
}

// probing is a probe of a server.
func probing(t testing.TB, url string, change ...func(*Config)) *Probe {
	t.Helper()
	cfg := Config{URL: url, Model: "m"}
	for _, c := range change {
		c(&cfg)
	}
	p, err := Compile([]Config{cfg}, time.Minute, "test")
	if err != nil {
		t.Fatal(err)
	}
	return p[0]
}

// asked returns the result of one request to a script.
func asked(t *testing.T, h http.Handler, change ...func(*Config)) result {
	t.Helper()
	r, _ := probing(t, answering(t, h).URL, change...).ask(t.Context(), time.Now())
	return r
}

func within(timeout time.Duration) func(*Config) {
	return func(c *Config) { _ = c.Timeout.Set(timeout.String()) }
}

func through(api string) func(*Config) { return func(c *Config) { c.API = api } }

// blind finds no engine.
func blind(context.Context, engine.Offer) (engine.Engine, bool) { return engine.Engine{}, false }

func collecting() *Collector { return New(blind, slog.New(slog.DiscardHandler)) }

func join(parts ...string) string { return strings.Join(parts, "") }
