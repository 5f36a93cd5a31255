package world

import (
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// For a constant incident, the truth's detection equals the calculation of package slo.
func TestTruthIsDetection(t *testing.T) {
	for _, o := range slo.Defaults() {
		for _, share := range []float64{0.05, 0.08, 0.1, 0.2, 0.5, 1} {
			tr := newTruth([]slo.Objective{o})
			const perSlice, history = 50, 7 * time.Hour
			for at := time.Duration(0); at < history+5*time.Hour; at += slice {
				tr.now[0].events = perSlice
				if at >= history {
					tr.now[0].bad = perSlice * share
				}
				tr.tick()
			}
			want, fires := slo.Detection(slo.DefaultWindowPairs(), slo.Page, o,
				slo.Load{BadShare: share, RequestsPerSecond: perSlice / slice.Seconds()})
			got, name, due := tr.burn(history, 0)
			if due != fires || due && (name != o.Name || got < want-slice || got > want+2*slice) {
				t.Errorf("%s, %v bad: due %v after %s, slo says %v, %s", o.Name, share, due, got, fires, want)
			}
		}
	}
	quiet := newTruth(slo.Defaults()[:1])
	for range 1000 {
		quiet.now[0] = count{events: 50, bad: 0.4}
		quiet.tick()
	}
	if _, _, due := quiet.burn(0, 0); due {
		t.Error("a page is due within the objective")
	}
}

// fleet returns one replica under little load.
func fleet(r metrics.Runtime) Fleet {
	p := drill.NewProfile("m")
	p.Swing, p.Failures = 0, 0
	return Fleet{Profile: p, Replicas: 1, Runtimes: []metrics.Runtime{r}}
}

// during counts the outcomes of the requests until a time.
func during(w *World, until time.Duration) (all count) {
	for i, o := range w.truth.objectives {
		if o.Signal != slo.Availability {
			continue
		}
		before := len(w.truth.slices[i])
		w.Advance(until)
		for _, c := range w.truth.slices[i][before:] {
			all.events, all.bad = all.events+c.events, all.bad+c.bad
		}
	}
	return all
}

// TestLostRequestsAreSuffered checks that an unanswered request is as bad as a failed request, although no metric
// counts it.
func TestLostRequestsAreSuffered(t *testing.T) {
	for name, c := range map[string]struct {
		fault func(w *World)
		lost  float64 // share of the requests
	}{
		"nothing":           {func(*World) {}, 0},
		"nobody asks":       {func(w *World) { w.Idle = true }, 0},
		"no engine":         {func(w *World) { w.Replicas[0].Down = true }, 1},
		"no gateway":        {func(w *World) { w.GatewayDead = true }, 1},
		"a core that hangs": {func(w *World) { w.Replicas[0].Engine.Wedged = true }, 1},
	} {
		w := New(fleet(metrics.VLLM), time.Unix(0, 0), 1)
		w.Advance(10 * time.Minute)
		usual, _ := w.Suffered("availability", 0, 10*time.Minute)
		c.fault(w)
		w.Advance(22 * time.Minute)
		_, bad := w.Suffered("availability", 12*time.Minute, 22*time.Minute) // when the first clients have lost patience
		if want := c.lost * usual; bad < 0.9*want || bad > 1.1*want {
			t.Errorf("%s: %v requests are lost in ten minutes, not %v", name, bad, want)
		}
		if _, _, due := w.Due(10 * time.Minute); due && name != "no engine" { // the fault cuts off some answers
			t.Errorf("%s: a page is due for requests that nothing counts", name)
		}
	}
}

// Users see a gateway's answers for engines that are gone, failures that a frontend without workers does not count, and
// answers that are cut off. A client that leaves has no failure.
func TestTruthOfUsers(t *testing.T) {
	behind := fleet(metrics.VLLM)
	behind.ReadsGateway = true
	for name, c := range map[string]struct {
		fleet Fleet
		fault func(w *World)
		bad   float64 // share of the events that end in the next minute
	}{
		"nothing":              {fleet(metrics.VLLM), func(*World) {}, 0},
		"cooldown":             {behind, func(w *World) { w.Replicas[0].Down = true }, 1},
		"the last worker dies": {fleet(metrics.Dynamo), func(w *World) { w.Replicas[0].LoseWorker() }, 1},
		"a core hangs":         {fleet(metrics.VLLM), func(w *World) { w.Replicas[0].Engine.Wedged = true }, 0},
	} {
		w := New(c.fleet, time.Unix(0, 0), 1)
		if before := during(w, 10*time.Minute); before.events < 3000 || before.bad > 0 {
			t.Fatalf("%s: %+v before", name, before)
		}
		c.fault(w)
		after := during(w, 11*time.Minute)
		if want := c.bad * after.events; after.bad != want || c.bad > 0 && after.events < 250 {
			t.Errorf("%s: %+v after, want %v bad", name, after, want)
		}
		if name != "nothing" {
			continue
		}
		w.Replicas[0].Engine.Kill(w.Now())
		if cut := during(w, 11*time.Minute+slice); cut.bad == 0 {
			t.Errorf("%+v when the process is killed: no answer was cut", cut)
		}
	}
}

// Each request goes to a prefill engine and, from there, to a decode engine. A user waits for both, and gets nothing
// without a decode engine.
func TestPrefillEngines(t *testing.T) {
	p := drill.NewProfile("m")
	p.Prefilled, p.Fetching, p.Failures, p.Leaves = true, 25e9, 0, 0
	w := New(Fleet{Profile: p, Runtimes: []metrics.Runtime{metrics.VLLM}, Replicas: 3, Prefills: 1}, time.Unix(0, 0).UTC(), 1)
	answers := func(n int) (all float64) {
		served := httptest.NewRecorder()
		w.Replicas[n].page.ServeHTTP(served, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		for _, of := range regexp.MustCompile(`(?m)^vllm:request_success_total{.*} (.*)$`).FindAllStringSubmatch(served.Body.String(), -1) {
			v, err := strconv.ParseFloat(of[1], 64)
			if err != nil {
				t.Fatal(err)
			}
			all += v
		}
		return all
	}
	w.Replicas[0].Engine.Slow = 10
	w.Advance(5 * time.Minute)
	if events, bad := w.Suffered("availability", 0, 5*time.Minute); events == 0 || bad > 0 || answers(1) == 0 || answers(2) == 0 ||
		events != answers(1)+answers(2) || answers(0) < events {
		t.Errorf("%v answers to users, %v bad: %v by the prefill engine, %v and %v by the others", events, bad, answers(0), answers(1),
			answers(2))
	}
	if _, late := w.Suffered("ttft", 0, 5*time.Minute); late == 0 {
		t.Error("no first token is late, although the prefill engine is slow")
	}
	w.Replicas[1].Restart(time.Hour)
	w.Replicas[2].Restart(time.Hour)
	before := answers(0)
	w.Advance(6 * time.Minute)
	if events, bad := w.Suffered("availability", 5*time.Minute+slice, 6*time.Minute); bad != events || answers(0) == before {
		t.Errorf("without a decode engine, %v of %v answers are bad; the prefill engine gave %v", bad, events, answers(0)-before)
	}
}
