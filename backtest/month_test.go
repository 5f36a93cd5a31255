package backtest_test

import (
	"flag"
	"fmt"
	"math"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/backtest"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
)

var month = flag.Int("month", 0, "time a backtest over 30 days of so many models on vLLM, scraped every 30 seconds")

// TestMonth measures how long 30 days of 20 models take (-month 20), each on one engine with an incident a week.
// Other programs share the processors, so the limit applies to the processor time of server and client.
func TestMonth(t *testing.T) {
	days, models := 2, 2
	if *month > 0 {
		days, models = 30, *month
	}
	store, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	const interval = 30 * time.Second
	type series struct {
		labels labels.Labels
		share  float64 // of requests below the bound during an incident; otherwise all are below ten seconds
		value  float64
		model  int
	}
	var all []*series
	for m := range models {
		add := func(name string, share float64, more ...string) {
			l := labels.NewBuilder(labels.FromStrings(append(more, "__name__", name, "model_name", fmt.Sprintf("model-%d", m), "engine", "0",
				"instance", fmt.Sprintf("10.0.0.%d:8000", m), "job", "vllm", "namespace", "prod", "pod", fmt.Sprintf("model-%d-0", m))...)).Labels()
			all = append(all, &series{labels: l, share: share, model: m})
		}
		for _, h := range []string{"vllm:time_to_first_token_seconds", "vllm:inter_token_latency_seconds"} {
			add(h+"_count", 1)
			add(h+"_sum", 1)
			for _, b := range []struct {
				le    string
				share float64
			}{
				{"0.01", .2},
				{"0.025", .4},
				{"0.05", .5},
				{"0.075", .55},
				{"0.1", .6},
				{"0.25", .65},
				{"0.5", .7},
				{"0.75", .8},
				{"1.0", .9},
				{"2.5", .95},
				{"5.0", .99},
				{"7.5", 1},
				{"10.0", 1},
				{"20.0", 1},
				{"40.0", 1},
				{"+Inf", 1},
			} {
				add(h+"_bucket", b.share, "le", b.le)
			}
		}
		for _, reason := range []string{"stop", "length", "abort", "error"} {
			add("vllm:request_success_total", 1, "finished_reason", reason)
		}
	}
	began := time.Now()
	end := rulesim.Epoch.Add(time.Duration(days) * 24 * time.Hour)
	for at := rulesim.Epoch; !at.After(end); at = at.Add(interval) {
		if err := store.Append(at, func(emit rulesim.Emit) {
			for _, s := range all {
				since := at.Sub(rulesim.Epoch) - time.Duration(s.model)*time.Hour
				share := math.Min(1, s.share+.5)
				if since > 12*time.Hour && since%(7*24*time.Hour) < 13*time.Hour && since%(7*24*time.Hour) > 12*time.Hour {
					share = s.share
				}
				s.value += math.Round(150 * share)
				emit(s.labels, s.value)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d samples stored in %s", len(all)*int(end.Sub(rulesim.Epoch)/interval), time.Since(began))
	began = time.Now()
	used := processorTime(t)
	r, err := ask(t, store, func(b *backtest.Backtest) { b.From, b.To, b.Neighbours = rulesim.Epoch, end, 2 })
	if err != nil {
		t.Fatal(err)
	}
	used = processorTime(t) - used
	pages := 0
	for _, row := range r.Rows {
		pages += len(row.Pages)
	}
	t.Logf("%d objectives, %d pages in %s, %s of processor time; notes %v", len(r.Rows), pages, time.Since(began), used, r.Notes)
	if pages == 0 {
		t.Error("no page in all those incidents")
	}
	if used > time.Minute {
		t.Errorf("takes %s of processor time", used)
	}
}

// processorTime returns the processor time that the process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
