package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	common "github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// TestPastGoesOn joins a past to the metrics page of a live exporter: counters neither fall nor jump, and an engine
// that restarts begins at 0.
func TestPastGoesOn(t *testing.T) {
	shape := `# TYPE llm_engine_requests_total counter
llm_engine_requests_total{outcome="stop"} %d
# TYPE llm_engine_requests_running gauge
llm_engine_requests_running %[3]d
# TYPE llm_engine_start_time_seconds gauge
llm_engine_start_time_seconds %[2]d
# TYPE llm_engine_cold gauge
llm_engine_cold{model_name="tiny"} 1
# TYPE llm_engine_queue_time_seconds histogram
llm_engine_queue_time_seconds_bucket{le="+Inf"} %[1]d
`
	at := func(count, start, running int) page { return parsePage(fmt.Sprintf(shape, count, start, running)) }
	h := NewPast("", at(220, 1000, 2), time.Now())
	h.Learn([]page{at(100, 1000, 0), at(160, 1000, 1)}, 2*time.Minute)
	const key = `llm_engine_requests_total{outcome="stop"}`
	day := past.Seconds()
	if got := h.at(key, day); got != day {
		t.Errorf("after a day of one request per second: %v", got)
	}
	if got := h.at("llm_engine_requests_running", 60); got != 1 {
		t.Errorf("0, 1 and 2 requests ran, and in the past %v", got)
	}
	for _, want := range []struct {
		count, start      int
		total, began, run float64
	}{
		{220, 1000, day, 1000 - day, 2},
		{250, 1000, day + 30, 1000 - day, 2},
		{7, 5000, 7, 5000, 2}, // started again
		{300, 5000, 300, 5000, 2},
	} {
		got := parsePage(h.Since(fmt.Sprintf(shape, want.count, want.start, 2))).values
		if got[key] != want.total || got["llm_engine_start_time_seconds"] != want.began || got["llm_engine_requests_running"] != want.run {
			t.Errorf("%+v: %v", want, got)
		}
		if cold := got[`llm_engine_cold{model_name="tiny"}`] == 1; cold != (want.start == 5000) { // an engine that is a day old is not cold
			t.Errorf("%+v: cold %v", want, cold)
		}
		if bucket := got[`llm_engine_queue_time_seconds_bucket{le="+Inf"}`]; bucket != want.total {
			t.Errorf("%+v: bucket %v", want, bucket)
		}
	}
}

// TestPastRecordsPeriod checks how often the past has the records of a period: once an hour its beginning, as a time,
// and once in five minutes the events of five minutes. With more records, a day would seem full of events, and no page
// would be due.
func TestPastRecordsPeriod(t *testing.T) {
	of := func(f *metrics.Family) constant {
		return constant{labels.FromStrings(common.MetricNameLabel, f.Name), 3}
	}
	written := func(c constant) (n int, last float64) {
		for second := 0.0; second < past.Seconds(); second += 60 {
			if v, is := c.at(second, 1e9+second); is {
				n, last = n+1, v
			}
		}
		return n, last
	}
	if n, last := written(of(metrics.RecordedPeriodEvents5m)); n != int(past/(5*time.Minute)) || last != 3 {
		t.Errorf("events of five minutes: %d times, at last %v", n, last)
	}
	if n, last := written(of(metrics.RecordedPeriodSince)); n != int(past/time.Hour) || last != 1e9+(past-time.Hour).Seconds() {
		t.Errorf("the beginning: %d times, at last %v", n, last)
	}
}

// TestHurt compares the client's arithmetic with the theory of burn rates: an outage after a healthy hour.
func TestHurt(t *testing.T) {
	o := slo.Objective{Name: "availability", Signal: slo.Availability, Target: slo.Defaults()[2].Target}.WithDefaults()
	var records []Record
	for i := range 600 { // two requests a second; from the 200th second on, one of ten fails
		r := Record{Sent: float64(i) / 2, First: float64(i)/2 + 0.1, End: float64(i)/2 + 0.2, Status: 200}
		if i >= 400 && i%10 == 0 {
			r.Status = 500
		}
		left := Record{Sent: r.Sent, End: r.End, Status: 200, Cancelled: true}
		invalid := Record{Sent: r.Sent, End: r.End, Status: 400, Invalid: true}
		records = append(records, r, left, invalid)
	}
	h := hurt(records, o, 200, 300)
	theory, _ := slo.Detection(slo.DefaultWindowPairs(), slo.Page, o, slo.Load{BadShare: 0.1, RequestsPerSecond: 2})
	if h.Before != 0 || math.Abs(h.During-0.1) > 0.01 || h.First > 1 || theory <= 0 {
		t.Errorf("%+v, theory %s", h, theory)
	}
	if h.Due >= 0 != (theory.Seconds() < 100) {
		t.Errorf("due at %v, in theory at %s", h.Due, theory)
	}
	if burned := suffering(records, 200); burned != nil {
		t.Errorf("before the fault: %v", burned)
	}
	if burned := suffering(records, 300); len(burned) != 1 || !strings.HasPrefix(burned[0], "availability") {
		t.Errorf("until the end: %v", burned)
	}
	for i := range records {
		if records[i].Sent >= 200 && !records[i].Invalid && !records[i].Cancelled {
			records[i].First, records[i].End, records[i].Status = 0, 0, 200 // nothing comes
		}
	}
	severe := slo.Defaults()[3] // within 10 s
	theory, _ = slo.Detection(slo.DefaultWindowPairs(), slo.Page, severe, slo.Load{BadShare: 1, RequestsPerSecond: 2})
	if h := hurt(records, severe, 200, 300); h.First != 10 || h.During < 0.8 || math.Abs(h.Due-10-theory.Seconds()) > 2 {
		t.Errorf("nobody gets a first token: %+v, theory %s after ten seconds", h, theory)
	}
}

// TestClient reads streams as engines write them: whole, ended by an error event, cut, and refused.
func TestClient(t *testing.T) {
	const token = "data: " + `{"choices":[{"text":" w1"}]}` + "\n\n"
	const usage = "data: " + `{"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":2}}` + "\n\n"
	answers := map[string]Record{
		token + token + usage + "data: [DONE]\n\n":      {Status: 200, Tokens: 2, Prompt: 9},
		token + `data: {"error":{"code":500}}` + "\n\n": {Status: 200, Error: `error event: {"error":{"code":500}}`},
		token: {Status: 200, Error: "the stream was cut"},
		"":    {Status: 429, Error: "busy"},
	}
	for answer, want := range answers {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if answer == "" {
				http.Error(w, "busy", http.StatusTooManyRequests)
			}
			_, _ = io.WriteString(w, answer)
		}))
		c := NewClient(server.URL, "", 1)
		r := &Record{}
		c.send(nil, r, 0, 0)
		server.Close()
		if (r.First > 0) != (answer != "") {
			t.Errorf("%q: first token at %v", answer, r.First)
		}
		got := Record{Status: r.Status, Tokens: r.Tokens, Prompt: r.Prompt, Error: strings.TrimSpace(r.Error)}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v", answer, r)
		}
	}
}

// TestWay checks that a Way delays bytes, in order, and answers 500 on request.
func TestWay(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "yes") }))
	defer server.Close()
	w, err := NewWay("127.0.0.1:0", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	get := func() (int, time.Duration) {
		begin := time.Now()
		c, err := net.Dial("tcp", w.listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		req, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://way/", nil)
		if err := req.Write(c); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(bufio.NewReader(c), req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode, time.Since(begin)
	}
	if status, _ := get(); status != http.StatusOK {
		t.Errorf("%d", status)
	}
	w.delay.Store(int64(100 * time.Millisecond))
	if status, took := get(); status != http.StatusOK || took < 200*time.Millisecond {
		t.Errorf("%d after %s", status, took)
	}
	w.Fail(true)
	if status, _ := get(); status != http.StatusInternalServerError {
		t.Errorf("%d", status)
	}
}

// TestWayLeads checks that a Way sends connections elsewhere, and requests one token in a request whose length still
// matches its header.
func TestWayLeads(t *testing.T) {
	var servers []string
	for _, name := range []string{"a", "b"} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				t.Error(err)
			}
			var asked struct {
				Tokens int `json:"max_tokens"`
			}
			if err := json.Unmarshal(body, &asked); err != nil {
				t.Errorf("%s: %v", body, err)
			}
			fmt.Fprint(w, name, asked.Tokens)
		}))
		defer server.Close()
		servers = append(servers, server.Listener.Addr().String())
	}
	w, err := NewWay("127.0.0.1:0", servers[0])
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	ask := func() string {
		c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
		resp, err := c.Post("http://"+w.listener.Addr().String(), "application/json", strings.NewReader(`{"prompt":"w1","max_tokens": 120}`))
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		answer, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(answer)
	}
	if got := ask(); got != "a120" {
		t.Errorf("first: %s", got)
	}
	w.Lead(servers[1])
	if got := ask(); got != "b120" {
		t.Errorf("led to the second: %s", got)
	}
	w.shortens.Store(true)
	w.Lead(servers[0])
	if got := ask(); got != "a1" {
		t.Errorf("shortened: %s", got)
	}
}

// TestSecondPage distinguishes a page of a second fault from a page that repeats or ends the first.
func TestSecondPage(t *testing.T) {
	page := func(at float64, alerts ...Alert) Notification {
		return Notification{At: at, Receiver: "llm-critical", Alerts: alerts}
	}
	old, ended := Alert{Status: "firing", Began: 60}, Alert{Status: "resolved", Began: 130}
	told := []Notification{page(70, old), page(120, old, ended), page(150, old, Alert{Status: "firing", Began: 140}), page(200, old)}
	if got := first(told, 10); got == nil || got.At != 70 {
		t.Errorf("after the first fault: %+v", got)
	}
	if got := first(told, 100); got == nil || got.At != 150 || len(got.news(100)) != 1 {
		t.Errorf("after the second fault: %+v", got)
	}
	if got := first(told, 145); got != nil {
		t.Errorf("after both: %+v", got)
	}
}

// TestAdapters checks that requests use adapters in turn.
func TestAdapters(t *testing.T) {
	c, asked := NewClient("", "", 1), []string{}
	for range 3 {
		body, _ := c.request(Load{Adapters: 2, Output: 4}, 0)
		var request struct{ Model string }
		if err := json.Unmarshal(body, &request); err != nil {
			t.Fatal(err)
		}
		asked = append(asked, request.Model)
	}
	if want := []string{"adapter-0", "adapter-1", "adapter-0"}; !reflect.DeepEqual(asked, want) {
		t.Errorf("%q", asked)
	}
}

// TestFirstLine finds the first sentence of a page and of a triage.
func TestFirstLine(t *testing.T) {
	const failing = "a: FAILING\nLook first at: prefill. 90% of the time is prefill. (high\n  confidence)\n  Objective ttft"
	for text, want := range map[string]string{
		failing: "Look first at: prefill. 90% of the time is prefill. (high confidence)",
		"Look first at: memory. Requests are preempted.\nAlso: queueing.": "Look first at: memory. Requests are preempted.",
		"tiny: UNKNOWN\nNo evidence points at a branch.":                  "tiny: UNKNOWN",
	} {
		if got := firstLine(text); got != want {
			t.Errorf("%q", got)
		}
	}
}

// TestBucket checks in which bucket of the exporter's histogram a client's quantile lies, and that an exporter that counted
// nothing never agrees.
func TestBucket(t *testing.T) {
	read := func(one, two, all int) triage.Reading {
		page := fmt.Appendf(nil, "w_bucket{le=\"1\"} %d\nw_bucket{le=\"2\"} %d\nw_bucket{le=\"+Inf\"} %d\n", one, two, all)
		r, err := triage.Parse(page, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	grew, idle := growth{read(5, 5, 5), read(6, 15, 15)}, growth{read(5, 5, 5), read(5, 5, 5)}
	for value, want := range map[float64]int{0.5: 1, 1.5: 0, 9: 1} {
		if low, high, apart := grew.bucket("w", 0.5, value); low != 1 || high != 2 || apart != want {
			t.Errorf("%g: %g to %g, %d apart, want %d", value, low, high, apart, want)
		}
	}
	if _, _, apart := idle.bucket("w", 0.5, 0.5); apart == 0 {
		t.Error("a histogram without observations agrees")
	}
}

// TestWrong checks which plays make the command fail.
func TestWrong(t *testing.T) {
	branch := []rules.Branch{rules.Engine}
	for name, c := range map[string]struct {
		Outcome
		want bool
	}{
		"the right cause":              {Outcome{Due: 60, Paged: 90, PageRight: true, Right: branch}, false},
		"another cause":                {Outcome{Due: 60, Paged: 90, Right: branch}, true},
		"nobody, although one was due": {Outcome{Due: 60, Paged: -1, Right: branch}, true},
		"nobody, and none was due":     {Outcome{Due: -1, Paged: -1, Right: branch}, false},
		"a page about nothing":         {Outcome{Due: -1, Paged: 90}, true},
		"void":                         {Outcome{Due: 60, Paged: 90, Right: branch, Void: []string{"paged before the fault"}}, false},
	} {
		if got := c.wrong(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
