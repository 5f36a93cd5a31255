package probe

import (
	"bufio"
	"compress/gzip"
	"encoding/pem"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

func status(code int) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(code) }
}

func typed(kind string, steps ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", kind)
		script(steps...)(w, r)
	}
}

func TestOutcomes(t *testing.T) {
	for _, c := range []struct {
		name    string
		answer  http.Handler
		outcome metrics.ProbeOutcome
		api     string
	}{
		{"whole", script(role, word("one"), finish, usage("9", "1"), done), metrics.ProbeOK, "chat"},
		{"carriage returns", script(strings.ReplaceAll(join(word("one"), finish, done), "\n", "\r\n")), metrics.ProbeOK, "chat"},
		{"no space behind the colon", script(strings.ReplaceAll(join(word("one"), finish, done), "data: ", "data:")), metrics.ProbeOK, "chat"},
		{"ends without [DONE]", script(word("one"), finish), metrics.ProbeOK, "chat"},
		{"[DONE], and the connection stays open", script(word("one"), finish, done, hold), metrics.ProbeOK, "chat"},
		{"[DONE] without a reason to finish", script(word("one"), done), metrics.ProbeTruncated, "chat"},
		{"ends without a reason to finish", script(word("one")), metrics.ProbeTruncated, "chat"},
		{"ends before any message", script(role), metrics.ProbeTruncated, "chat"},
		{"ends at once", script(), metrics.ProbeTruncated, "chat"},
		{"cut between messages", script(word("one"), cut), metrics.ProbeTruncated, "chat"},
		{"cut within a message", script(word("one"), `data: {"choices":[{"fini`, cut), metrics.ProbeTruncated, "chat"},
		{"cut in the last line feed", script(word("one"), strings.TrimSuffix(finish, "\n")), metrics.ProbeTruncated, "chat"},
		{"no token", script(role, finish, done), metrics.ProbeEmpty, "chat"},
		{
			"error in the stream", script(role, "data: {\"error\":{\"message\":\"boom\",\"code\":500}}\n\n", done), metrics.ProbeInStreamError,
			"chat",
		},
		{
			"error after tokens", script(word("one"), wait, "data: {\"object\":\"error\",\"message\":\"boom\"}\n\n", done),
			metrics.ProbeInStreamError, "chat",
		},
		{"aborted by the engine", script(word("one"), strings.Replace(finish, "length", "abort", 1), done), metrics.ProbeInStreamError, "chat"},
		{
			"error: null is none", script(strings.Replace(word("one"), `"object"`, `"error":null,"object"`, 1), finish, done), metrics.ProbeOK,
			"chat",
		},
		{"error in place of a stream", typed("application/json", `{"error":{"message":"boom"}}`), metrics.ProbeInStreamError, "chat"},
		{"silence", script(hold), metrics.ProbeTimeout, "chat"},
		{"silence behind a token", script(word("one"), hold), metrics.ProbeTimeout, "chat"},
		{"silence behind the last token", script(word("one"), finish, hold), metrics.ProbeTimeout, "chat"},
		{"rate limit", status(429), metrics.ProbeRateLimited, "chat"},
		{"no such model", status(404), metrics.ProbeClientError, "chat"},
		{"credentials", status(401), metrics.ProbeClientError, "chat"},
		{"overload", status(503), metrics.ProbeServerError, "chat"},
		{"elsewhere", http.RedirectHandler("http://192.0.2.1/", http.StatusTemporaryRedirect), metrics.ProbeInvalid, "chat"},
		{"no content", status(204), metrics.ProbeInvalid, "chat"},
		{"a web page", typed("text/html", "<html>log in</html>"), metrics.ProbeInvalid, "chat"},
		{"another document", typed("application/json", `{"status":"ok"}`), metrics.ProbeInvalid, "chat"},
		{"messages that are no JSON", script("data: hello\n\n", done), metrics.ProbeInvalid, "chat"},
		{"closed without an answer", script(cut), metrics.ProbeRefused, "chat"},

		{"completions", script(`data: {"choices":[{"text":"one","finish_reason":""}]}`+"\n\n",
			`data: {"choices":[{"text":" two","finish_reason":"stop"}]}`+"\n\n", done), metrics.ProbeOK, "completions"},
		{"TGI", script(`data:{"index":1,"token":{"id":7,"text":"one","special":false},"generated_text":null}`+"\n\n",
			`data:{"index":2,"token":{"id":2,"text":"</s>","special":true},"generated_text":"one"}`+"\n\n"), metrics.ProbeOK, "tgi"},
		{
			"TGI, cut", script(`data:{"index":1,"token":{"id":7,"text":"one","special":false},"generated_text":null}` + "\n\n"),
			metrics.ProbeTruncated, "tgi",
		},
		{
			"TGI, nothing but the end", script(`data:{"index":1,"token":{"id":2,"text":"</s>","special":true},"generated_text":""}` + "\n\n"),
			metrics.ProbeEmpty, "tgi",
		},
		{"TGI, error", script(`data:{"error":"Model is overloaded","error_type":"overloaded"}` + "\n\n"), metrics.ProbeInStreamError, "tgi"},
		{
			"Triton", script(`data: {"model_name":"m","text_output":"one"}`+"\n\n", `data: {"model_name":"m","text_output":""}`+"\n\n"),
			metrics.ProbeOK, "triton",
		},
		{"Triton, cut", script(`data: {"model_name":"m","text_output":"one"}`+"\n\n", cut), metrics.ProbeTruncated, "triton"},
		{"Triton, error", script(`data: {"error":"boom"}` + "\n\n"), metrics.ProbeInStreamError, "triton"},
		{"Ollama", typed("application/x-ndjson", `{"message":{"role":"assistant","content":"one"},"done":false}`+"\n",
			`{"message":{"content":""},"done":true,"prompt_eval_count":9,"eval_count":2}`+"\n"), metrics.ProbeOK, "ollama"},
		{
			"Ollama, cut", typed("application/x-ndjson", `{"message":{"content":"one"},"done":false}`+"\n", `{"message":{"con`, cut),
			metrics.ProbeTruncated, "ollama",
		},
		{"Ollama, ends in the middle of a line", typed("application/x-ndjson", `{"message":{"content":"one"},"done":false}`+"\n",
			`{"message":{"con`), metrics.ProbeTruncated, "ollama"},
		{"Ollama, error", typed("application/x-ndjson", `{"error":"out of memory"}`+"\n"), metrics.ProbeInStreamError, "ollama"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			limit := 20 * time.Second
			if c.outcome == metrics.ProbeTimeout {
				limit = 500 * time.Millisecond
			}
			begin := time.Now()
			r := asked(t, c.answer, through(c.api), within(limit))
			if r.outcome != c.outcome {
				t.Errorf("outcome %s, want %s", r.outcome, c.outcome)
			}
			if took := time.Since(begin); took > limit/2+500*time.Millisecond {
				t.Errorf("it took %s", took)
			}
		})
	}
	t.Run("nobody listens", func(t *testing.T) {
		s := httptest.NewServer(nil)
		s.Close()
		if r, err := probing(t, s.URL).ask(t.Context(), time.Now()); r.outcome != metrics.ProbeRefused || r.connected != 0 || err == nil {
			t.Errorf("%+v %v", r, err)
		}
	})
}

// TestFirstToken checks that no data before the first token stops a clock, except the clock of the first byte.
func TestFirstToken(t *testing.T) {
	for name, before := range map[string]string{
		"role with an empty text": role,
		"role without text":       say(`{"role":"assistant"}`),
		"role with null":          say(`{"role":"assistant","content":null}`),
		"keep-alive":              ": keep-alive\n\n",
		"bare keep-alive":         ":\n\n",
		"event without data":      "event: ping\n\n",
		"progress of the prompt":  `data: {"choices":[{"delta":{}}],"prompt_progress":{"total":9,"processed":3}}` + "\n\n",
		"empty list of calls":     say(`{"tool_calls":[],"content":""}`),
		"usage":                   usage("9", "0"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := asked(t, script(before, wait, word("one"), wait, word("two"), finish, done))
			if r.token-r.firstByte < pause/2 || r.visible != r.token || r.end-r.token < pause/2 || r.connected == 0 || r.firstByte < r.connected {
				t.Errorf("connection %s, first byte %s, first token %s, visible %s, end %s", r.connected, r.firstByte, r.token, r.visible, r.end)
			}
		})
	}
}

func TestReasoningComesFirst(t *testing.T) {
	for _, field := range []string{"reasoning", "reasoning_content"} {
		r := asked(t, script(role, wait, say(`{"`+field+`":"hm"}`), wait, word("one"), finish, done))
		if r.token-r.firstByte < pause/2 || r.visible-r.token < pause/2 {
			t.Errorf("%s: first byte %s, first token %s, visible %s", field, r.firstByte, r.token, r.visible)
		}
	}
	r := asked(t, typed("application/x-ndjson", `{"message":{"thinking":"hm"}}`+"\n", wait, `{"message":{"content":"one"}}`+"\n",
		`{"done":true}`+"\n"), through("ollama"))
	if r.token == 0 || r.visible-r.token < pause/2 {
		t.Errorf("Ollama: first token %s, visible %s", r.token, r.visible)
	}
}

// TestReasoningOnly checks that an answer that never gets beyond reasoning has a first token and no visible one.
func TestReasoningOnly(t *testing.T) {
	r := asked(t, script(role, wait, say(`{"reasoning":"hm"}`), finish, done))
	if r.outcome != metrics.ProbeOK || r.token == 0 || r.visible != 0 {
		t.Errorf("%s: first token %s, visible %s", r.outcome, r.token, r.visible)
	}
}

func TestToolCallIsAToken(t *testing.T) {
	r := asked(t, script(role, wait, say(`{"tool_calls":[{"index":0,"function":{"name":"f"}}]}`), finish, done))
	if r.outcome != metrics.ProbeOK || r.token-r.firstByte < pause/2 || r.visible != r.token {
		t.Errorf("%s: first byte %s, first token %s, visible %s", r.outcome, r.firstByte, r.token, r.visible)
	}
}

// TestMessageOverSeveralReads checks that a message arrives with its last byte.
func TestMessageOverSeveralReads(t *testing.T) {
	one := word("one")
	r := asked(t, script(role, one[:20], wait, one[20:len(one)-1], wait, one[len(one)-1:], finish, done))
	if r.outcome != metrics.ProbeOK || r.token-r.firstByte < 3*pause/2 {
		t.Errorf("%s: first byte %s, first token %s", r.outcome, r.firstByte, r.token)
	}
}

// TestDataOverSeveralLines checks that lines of one message belong together.
func TestDataOverSeveralLines(t *testing.T) {
	r := asked(t, script("event: x\ndata: {\"choices\":\ndata: [{\"delta\":{\"content\":\"one\"}}]}\n\n", finish, done))
	if r.outcome != metrics.ProbeOK || r.token == 0 {
		t.Errorf("%s, first token %s", r.outcome, r.token)
	}
	m := newMessages(strings.NewReader("data: a\ndata: b\n\n"), false, func() time.Duration { return 0 })
	if data, err := m.next(); string(data) != "a\nb" || err != nil {
		t.Errorf("%q %v", data, err)
	}
}

// TestOwnConnection checks that phases are measured for each request, even if the server would keep the connection.
func TestOwnConnection(t *testing.T) {
	p := probing(t, answering(t, script(word("one"), finish)).URL)
	for range 2 {
		if r, _ := p.ask(t.Context(), time.Now()); r.outcome != metrics.ProbeOK || r.phases["connect"] == 0 {
			t.Errorf("%s, phases %v", r.outcome, r.phases)
		}
	}
}

// TestResolve checks that a name takes a lookup, and an address none.
func TestResolve(t *testing.T) {
	url := answering(t, script(word("one"), finish)).URL
	for _, c := range []struct {
		url  string
		want bool
	}{{url, false}, {strings.Replace(url, "127.0.0.1", "localhost", 1), true}} {
		r, err := probing(t, c.url).ask(t.Context(), time.Now())
		if took := r.phases["resolve"]; r.outcome != metrics.ProbeOK || took > 0 != c.want || took > r.connected {
			t.Errorf("%s: %s %v, phases %v", c.url, r.outcome, err, r.phases)
		}
	}
}

// TestAddressesSideBySide checks that a phase begins with the first address that is tried, and ends with the first
// that works.
func TestAddressesSideBySide(t *testing.T) {
	var now time.Duration
	tr := &trace{now: func() time.Duration { return now }, began: map[string]time.Duration{}, took: map[string]time.Duration{}}
	h := tr.hooks()
	h.ConnectStart("tcp", "[::1]:1")
	now = time.Second
	h.ConnectStart("tcp", "127.0.0.1:1")
	h.ConnectDone("tcp", "[::1]:1", io.EOF)
	now = 2 * time.Second
	h.ConnectDone("tcp", "127.0.0.1:1", nil)
	if tr.took["connect"] != 2*time.Second {
		t.Errorf("took %s", tr.took["connect"])
	}
}

// TestFirstByteOfARefusal checks that the time of an error does not count as the time of an answer.
func TestFirstByteOfARefusal(t *testing.T) {
	c, p := collecting(), probing(t, answering(t, status(503)).URL)
	if c.once(t.Context(), p, time.Now()); strings.Contains(series(t, c), "first_byte") {
		t.Error("it counts as a first byte")
	}
}

// TestBetweenTokens requires the time of a token, however many tokens a message or a read has.
func TestBetweenTokens(t *testing.T) {
	counted := func(s, n string) string { // as with continuous_usage_stats
		return strings.Replace(word(s), `"object"`, `"usage":{"prompt_tokens":9,"completion_tokens":`+n+`},"object"`, 1)
	}
	for _, c := range []struct {
		name string
		h    http.Handler
		want []float64 // tokens of each message behind the first
	}{
		{"a token a message", script(word("a"), wait, word("b"), wait, word("c"), finish, usage("9", "3"), done), []float64{1, 1}},
		{"two tokens a message", script(word("ab"), wait, word("cd"), wait, word("ef"), finish, usage("9", "6"), done), []float64{2, 2}},
		{"two messages a read", script(word("a"), wait, word("b")+word("c"), wait, word("d"), finish, usage("9", "4"), done), []float64{2, 1}},
		{"usage in each message", script(counted("a", "1"), wait, counted("bcd", "4"), wait, counted("e", "5"), finish, done), []float64{3, 1}},
		{"no usage", script(word("a"), wait, word("b"), finish, done), nil},
		{"one message", script(word("a"), wait, finish, usage("9", "1"), done), nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			r := asked(t, c.h)
			got := r.gaps()
			if len(got) != len(c.want) {
				t.Fatalf("%v, want %v", got, c.want)
			}
			for i, want := range c.want {
				took := r.arrivals[i+1].at - r.arrivals[i].at
				if tokens := took.Seconds() / got[i]; took < pause/2 || math.Abs(tokens-want) > 1e-9 {
					t.Errorf("%v tokens in %s, want %v", tokens, took, want)
				}
			}
		})
	}
}

// TestHeldBack checks that an answer that comes in one piece has no time to first token.
func TestHeldBack(t *testing.T) {
	whole := join(role, word("one"), word("two"), word("three"), finish, usage("9", "3"), done)
	for _, c := range []struct {
		name    string
		h       http.Handler
		outcome metrics.ProbeOutcome
		held    bool
	}{
		{"all in one read", script(wait, whole), metrics.ProbeOK, true},
		{
			"not streamed", typed("application/json",
				`{"choices":[{"message":{"content":"one"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":1}}`),
			metrics.ProbeOK, true,
		},
		{
			"not streamed, empty", typed("application/json", `{"choices":[{"message":{"content":""},"finish_reason":"stop"}]}`),
			metrics.ProbeEmpty, true,
		},
		{
			"more than fits into one read", script(wait, join(strings.Repeat(": "+strings.Repeat("x", 1000)+"\n\n", 9), whole)),
			metrics.ProbeOK, true,
		},
		{"one message is no buffer", script(role, word("one"), finish, done), metrics.ProbeOK, false},
		{"role and first token at once", script(role+word("one"), wait, word("two")+finish+done), metrics.ProbeOK, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := asked(t, c.h)
			if r.outcome != c.outcome || r.held != c.held || r.end == 0 {
				t.Errorf("%s, held %v, end %s", r.outcome, r.held, r.end)
			}
			col, p := collecting(), probing(t, "http://engine:1")
			col.observe(p, &r, true, false, time.Now())
			if page := series(t, col); strings.Contains(page, "llm_probe_time_to_first_token_seconds_count") == c.held ||
				strings.Contains(page, "llm_probe_inter_token") && c.held {
				t.Errorf("held %v, and the page says\n%s", c.held, page)
			}
		})
	}
}

func TestHTTP2(t *testing.T) {
	var major atomic.Int32
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		major.Store(int32(r.ProtoMajor))
		script(role, wait, word("one"), wait, word("two"), finish, done, hold)(w, r)
	}))
	s.EnableHTTP2 = true
	s.StartTLS()
	t.Cleanup(s.Close)
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the second one connects anew, too
		r, err := probing(t, s.URL, func(c *Config) { c.HTTP.EnableHTTP2, c.HTTP.TLSConfig.CAFile = true, ca }).ask(t.Context(), time.Now())
		if r.outcome != metrics.ProbeOK || major.Load() != 2 || r.token-r.firstByte < pause/2 || r.held {
			t.Errorf("HTTP/%d %s %v: first byte %s, first token %s", major.Load(), r.outcome, err, r.firstByte, r.token)
		}
		if r.phases["tls"] == 0 || r.phases["connect"] == 0 || r.phases["tls"] > r.connected {
			t.Errorf("phases %v of %s", r.phases, r.connected)
		}
	}
	if r, _ := probing(t, s.URL).ask(t.Context(), time.Now()); r.outcome != metrics.ProbeRefused {
		t.Errorf("a certificate of nobody: %s", r.outcome)
	}
}

func TestGzip(t *testing.T) {
	zipped := func(w http.ResponseWriter, r *http.Request) {
		if got := r.Header.Get("Accept-Encoding"); got != "identity" {
			t.Errorf("Accept-Encoding %q asks for a compressor", got)
		}
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		play(z, r, w, role, wait, word("one"), wait, word("two"), finish, done)
		_ = z.Close()
	}
	if r := asked(t, http.HandlerFunc(zipped)); r.outcome != metrics.ProbeOK || r.token-r.firstByte < pause/2 || r.held {
		t.Errorf("%s: first byte %s, first token %s", r.outcome, r.firstByte, r.token)
	}
	bomb := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/event-stream")
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		for range 1 << 16 {
			_, _ = io.WriteString(z, ": "+strings.Repeat("x", 1<<10)+"\n")
		}
		_ = z.Close()
	}
	if r := asked(t, http.HandlerFunc(bomb)); r.outcome != metrics.ProbeInvalid {
		t.Errorf("a bomb: %s", r.outcome)
	}
	no := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = io.WriteString(w, word("one")+finish+done)
	}
	if r := asked(t, http.HandlerFunc(no)); r.outcome != metrics.ProbeInvalid {
		t.Errorf("no gzip: %s", r.outcome)
	}
}

// TestBounds checks that every answer ends soon.
func TestBounds(t *testing.T) {
	var sent atomic.Int64
	endless := func(part string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			sent.Store(0)
			for to := bufio.NewWriter(w); ; {
				n, err := to.WriteString(part)
				if err != nil {
					return
				}
				sent.Add(int64(n))
			}
		}
	}
	for name, part := range map[string]string{
		"a line": "data: xxxxxxxxxxxx", "lines of a message": "data: xxxxxxxxxxxxxxxxxx\n", "comments": ": xxxxxxxxxx\n\n", "tokens": word("one"),
		"messages without tokens": role,
	} {
		if r := asked(t, endless(part), within(10*time.Second)); r.outcome != metrics.ProbeInvalid || r.whole() {
			t.Errorf("%s: %s after %d bytes", name, r.outcome, sent.Load())
		}
	}
	many := append(slices.Repeat([]string{word("one")}, 3*defaultTokens+1), finish, done)
	if r := asked(t, script(many...)); r.outcome != metrics.ProbeInvalid {
		t.Errorf("three times the tokens asked for: %s", r.outcome)
	}
	drip := func(w http.ResponseWriter, r *http.Request) {
		for r.Context().Err() == nil {
			play(w, r, w, ":\n\n", wait)
		}
	}
	begin := time.Now()
	if r := asked(t, http.HandlerFunc(drip), within(300*time.Millisecond)); r.outcome != metrics.ProbeTimeout ||
		time.Since(begin) > 5*time.Second {
		t.Errorf("a drip: %s after %s", r.outcome, time.Since(begin))
	}
}

// TestAbsurdUsage checks that numbers that no request can cost are ignored.
func TestAbsurdUsage(t *testing.T) {
	r := asked(t, script(word("one"), finish, usage("-9", "1000000000000"), done))
	if r.outcome != metrics.ProbeOK || r.prompt != 0 || r.completion != 0 {
		t.Errorf("%s: prompt %d, completion %d", r.outcome, r.prompt, r.completion)
	}
	if r := asked(t, script(word("one"), finish, usage("1e300", "1"), done)); r.outcome != metrics.ProbeInvalid {
		t.Errorf("%s", r.outcome)
	}
}

// TestWallClockStep sets the clock of the node while an answer comes. The wall time of the start is an hour wrong,
// as it is after such a step; its monotonic time is right.
func TestWallClockStep(t *testing.T) {
	start := time.Now()
	before := start.Round(0)
	wall := (*uint64)(unsafe.Pointer(&start)) // one bit for the monotonic time, 33 of seconds, 30 of nanoseconds
	*wall -= 3600 << 30
	if step := before.Sub(start.Round(0)); step != time.Hour {
		t.Fatalf("the clock was set by %s, not by an hour", step)
	}
	r, _ := probing(t, answering(t, script(role, wait, word("one"), wait, word("two"), finish, usage("9", "2"), done)).URL).
		ask(t.Context(), start)
	for name, d := range map[string]time.Duration{"first byte": r.firstByte, "first token": r.token, "end": r.end, "connection": r.connected} {
		if d <= 0 || d > time.Minute {
			t.Errorf("%s at %s", name, d)
		}
	}
	if gaps := r.gaps(); len(gaps) != 1 || math.Abs(gaps[0]) > 60 {
		t.Errorf("gaps %v", gaps)
	}
}
