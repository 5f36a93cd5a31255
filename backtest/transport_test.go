package backtest_test

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/backtest"
	"github.com/llm-node-exporter/llm-node-exporter/drill/live"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promapi"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// stored returns two hours of one engine. In the second hour, half of its first tokens are late.
func stored(t *testing.T) *rulesim.Sim {
	t.Helper()
	store, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	late := 0.
	for n := range 241 {
		if n > 120 {
			late += 50
		}
		if err := store.Append(rulesim.Epoch.Add(time.Duration(n)*30*time.Second), func(emit rulesim.Emit) {
			of := func(name string, more ...string) labels.Labels {
				return labels.FromStrings(append(more, "__name__", "vllm:time_to_first_token_seconds_"+name, "model_name", "m", "job", "j",
					"instance", "i")...)
			}
			all := float64(100 * n)
			emit(of("count"), all)
			emit(of("bucket", "le", "0.25"), all-late*1.2)
			emit(of("bucket", "le", "0.5"), all-late)
			emit(of("bucket", "le", "1.0"), all)
			emit(of("bucket", "le", "+Inf"), all)
		}); err != nil {
			t.Fatal(err)
		}
	}
	return store
}

// over runs a backtest of these two hours through a handler.
func over(t *testing.T, handler http.Handler, cache string) (*backtest.Report, string, error) {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	var progress bytes.Buffer
	b := &backtest.Backtest{
		URL: server.URL, Source: backtest.Auto, Pairs: slo.DefaultWindowPairs(), MaxSamples: 500_000, Neighbours: 2,
		PagesPerMonth: 30, Progress: &progress,
		Objectives: complete(slo.Defaults()), From: rulesim.Epoch, To: rulesim.Epoch.Add(2 * time.Hour),
	}
	var err error
	if b.API, err = promapi.Connect(server.URL, "", backtest.Transport(0, cache, &progress)); err != nil {
		t.Fatal(err)
	}
	r, err := b.Run(context.Background())
	return r, progress.String(), err
}

// TestOtherTargetsAndThresholds uses an hour in which half of the first tokens are late, between 500 ms and one second.
func TestOtherTargetsAndThresholds(t *testing.T) {
	r, _, err := over(t, live.Serve(stored(t)), "")
	if err != nil {
		t.Fatal(err)
	}
	row := r.Rows[0]
	if row.Model != "m" || row.Objective != "ttft" || len(row.Pages) != 1 || row.Threshold != "0.5" || row.Bad != 6000 || row.Events != 24000 {
		t.Errorf("%+v", row)
	}
	if got, want := fmt.Sprint(row.Bounds), "[{0.25 1} {1 0}]"; got != want {
		t.Errorf("thresholds %s, want %s", got, want)
	}
	// A quarter of all events is bad. The six-hour pair pages above 6 times the budget: 6 times 3% is less than a
	// quarter, 6 times 5% is more.
	if got := fmt.Sprint(row.Targets[3:5]); got != "[{95% 0} {97% 1}]" {
		t.Errorf("targets %s", got)
	}
	if row.Best != "95%" { // at 30 pages a month, two hours allow less than one page
		t.Errorf("recommends %q", row.Best)
	}
	for _, format := range []string{"text", "html", "json"} {
		var out bytes.Buffer
		if err := r.Write(&out, format); err != nil || !strings.Contains(out.String(), "ttft") || !strings.Contains(out.String(), "50%") {
			t.Errorf("%s: %v\n%s", format, err, out.String())
		}
		if strings.Contains(out.String(), "http://") || strings.Contains(out.String(), "https://") {
			t.Errorf("%s refers to something elsewhere", format)
		}
	}
}

// TestBusyServer checks that requests to a busy server are repeated only when the server allows this.
func TestBusyServer(t *testing.T) {
	api, refused := live.Serve(stored(t)), 0
	var at time.Time
	_, progress, err := over(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if refused == 0 {
			refused++
			at = time.Now()
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
			return
		}
		if refused == 1 {
			refused++
			if early := time.Second - time.Since(at); early > 0 {
				t.Errorf("asked again %s too early", early)
			}
		}
		api.ServeHTTP(w, r)
	}), "")
	if err != nil || refused != 2 || !strings.Contains(progress, "asking again in 1s") {
		t.Errorf("%v after %d refusals: %s", err, refused, progress)
	}
}

// TestInterrupted checks that a backtest continues from the cache.
func TestInterrupted(t *testing.T) {
	api, cache := live.Serve(stored(t)), t.TempDir()
	asked, limit := 0, 4
	handler := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/query" {
			if asked++; asked > limit {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
		}
		api.ServeHTTP(w, r)
	})
	server := httptest.NewServer(handler)
	defer server.Close()
	again := func() (*backtest.Report, error) {
		b := &backtest.Backtest{
			URL: server.URL, Source: backtest.Auto, Pairs: slo.DefaultWindowPairs(), MaxSamples: 1000,
			Progress:   new(bytes.Buffer),
			Objectives: complete(slo.Defaults()), From: rulesim.Epoch, To: rulesim.Epoch.Add(2 * time.Hour),
		}
		var err error
		if b.API, err = promapi.Connect(server.URL, "", backtest.Transport(0, cache, b.Progress)); err != nil {
			t.Fatal(err)
		}
		return b.Run(context.Background())
	}
	if _, err := again(); err == nil {
		t.Fatal("no error from a server that fails")
	}
	whole := asked
	limit = 1000
	if _, err := again(); err != nil {
		t.Fatal(err)
	}
	first := asked - whole
	if _, err := again(); err != nil {
		t.Fatal(err)
	}
	t.Logf("asked %d, then %d, then %d times", whole, first, asked-whole-first)
	if third := asked - whole - first; third >= first || first == 0 {
		t.Errorf("asked %d times after the interruption and %d times when all was there", first, third)
	}
}

// TestRefusals checks that errors name the mistake and the remedy.
func TestRefusals(t *testing.T) {
	api := live.Serve(stored(t))
	empty, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer empty.Close()
	for want, handler := range map[string]http.Handler{
		"give the address before /api/v1":                http.NotFoundHandler(),
		"vllm[:_]time_to_first_token_seconds_(bucket|co": live.Serve(empty),
		"may be incomplete (a store did not answer)": http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != "/api/v1/query" {
				api.ServeHTTP(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/json")
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"matrix","result":[]},"warnings":["a store did not answer"]}`)
		}),
	} {
		if _, _, err := over(t, handler, ""); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	b := &backtest.Backtest{URL: "http://127.0.0.1:1", Source: backtest.Auto, From: rulesim.Epoch, To: rulesim.Epoch.Add(time.Hour)}
	if b.API, err = promapi.Connect(b.URL, "", nil); err != nil {
		t.Fatal(err)
	}
	if _, err := b.Run(context.Background()); err == nil || !strings.Contains(err.Error(), "cannot reach http://127.0.0.1:1") {
		t.Error(err)
	}
}

// TestShortHistory checks that the report names the time at which data begin.
func TestShortHistory(t *testing.T) {
	store := stored(t)
	r, err := ask(t, store, func(b *backtest.Backtest) {
		b.From, b.To = rulesim.Epoch.Add(-72*time.Hour), rulesim.Epoch.Add(2*time.Hour)
	})
	if err != nil || !strings.Contains(strings.Join(r.Notes, "\n"), "the history begins at 2026-01-05 00:0") {
		t.Errorf("%v %+v", err, r)
	}
}
