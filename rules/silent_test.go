package rules_test

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestTrafficThatIsGone checks a model whose requests never paused for a day, and then stop at every replica at once,
// without a gateway that is read, and with probes that are still answered. The page comes within ten minutes, including
// two minutes for real rates to fall, and lasts until requests return. A silence that is usual, that chance explains,
// or that has another reason does not page.
func TestTrafficThatIsGone(t *testing.T) {
	t.Parallel()
	const gone = day + 2*time.Hour
	since := func(at, from time.Duration) bool { return at >= from }
	for name, c := range map[string]struct {
		perMinute float64
		begins    time.Duration
		asks      func(at time.Duration, replica int) bool
		with      func(at time.Duration, perReplica func(f *metrics.Family, v float64, labels ...string))
		beside    func(at time.Duration) float64 // requests per minute of another model of the namespace
		pages     bool
	}{
		"at every replica": {perMinute: 20, pages: true},
		"ten a second":     {perMinute: 600, pages: true},
		"beside a model that goes on": {
			perMinute: 20, pages: true, beside: func(time.Duration) float64 { return 300 },
		},
		"the probes are answered": {
			perMinute: 20, pages: true,
			with: func(at time.Duration, emit func(f *metrics.Family, v float64, labels ...string)) {
				emit(metrics.ProbeRequests, math.Floor(at.Minutes()), metrics.LabelOutcome, string(metrics.ProbeOK))
			},
		},
		"at one of two replicas": {
			perMinute: 20, asks: func(at time.Duration, replica int) bool { return replica > 0 || !since(at, gone) },
		},
		"after two hours":                    {perMinute: 20, asks: func(at time.Duration, _ int) bool { return at > gone-2*time.Hour && !since(at, gone) }},
		"at a model that is three hours old": {perMinute: 20, begins: gone - 3*time.Hour},
		"as each night": {
			perMinute: 20, asks: func(at time.Duration, _ int) bool { return (at+day-gone)%day > 40*time.Minute },
		},
		"one a minute":                  {perMinute: 1},
		"it moves to another model":     {perMinute: 20, beside: func(at time.Duration) float64 { return 300 + 200*metrics.Bool(since(at, gone)) }},
		"it moves to a model not known": {perMinute: 20, beside: func(at time.Duration) float64 { return 20 * metrics.Bool(since(at, gone)) }},
		"requests run and get no token": {
			perMinute: 20, with: func(at time.Duration, emit func(f *metrics.Family, v float64, labels ...string)) {
				emit(metrics.RequestsRunning, 3*metrics.Bool(since(at, gone)))
			},
		},
		"requests are refused": {
			perMinute: 20, with: func(at time.Duration, emit func(f *metrics.Family, v float64, labels ...string)) {
				emit(metrics.Requests, 10*max(0, (at-gone).Minutes()), metrics.LabelOutcome, string(metrics.OutcomeRejected))
			},
		},
		"requests fail": {
			perMinute: 20, with: func(at time.Duration, emit func(f *metrics.Family, v float64, labels ...string)) {
				emit(metrics.Requests, 10*max(0, (at-gone).Minutes()), metrics.LabelOutcome, string(metrics.OutcomeError))
			},
		},
		"clients give up on an engine that shows no requests": { // a play on a real engine
			perMinute: 20, with: func(at time.Duration, emit func(f *metrics.Family, v float64, labels ...string)) {
				emit(metrics.Requests, 10*max(0, (at-gone).Minutes()), metrics.LabelOutcome, string(metrics.OutcomeAbort))
			},
		},
		"all engines restart": {
			perMinute: 20, asks: func(at time.Duration, _ int) bool { return at < gone || at > gone+24*time.Minute },
			with: func(at time.Duration, emit func(f *metrics.Family, v float64, labels ...string)) {
				emit(metrics.EngineUp, metrics.Bool(at < gone || at > gone+20*time.Minute))
			},
		},
		"declared": {
			perMinute: 20, with: func(at time.Duration, emit func(f *metrics.Family, v float64, labels ...string)) {
				emit(metrics.EngineMaintenanceEnd, float64(rulesim.Epoch.Add(gone+time.Hour).Unix())*metrics.Bool(since(at, gone-time.Minute)))
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var alert *rules.Alert
			var in rules.Group
			for _, g := range rules.Groups(rules.Options{}) {
				for _, a := range g.Alerts {
					if a.Name == rules.ModelUnreached.Name {
						alert, in = a, g
					}
				}
			}
			in.Alerts = []*rules.Alert{alert}
			w := &world{}
			random := rand.New(rand.NewPCG(*seed, 34))
			totals := map[string]float64{}
			count := func(emit rulesim.Emit, asked bool, mean float64, page ...string) {
				l := series(metrics.Stages.Name, append(page, metrics.LabelStage, metrics.StageFirstToken)...)
				for p := random.ExpFloat64(); asked && p < mean; p += random.ExpFloat64() {
					totals[l.String()]++
				}
				emit(l, totals[l.String()])
			}
			w.extra = func(at time.Duration, emit rulesim.Emit) {
				if at < c.begins {
					return
				}
				for i, pod := range []string{"p1", "p2"} {
					page := []string{metrics.LabelNamespace, "prod", metrics.LabelPod, pod, metrics.LabelServer, pod + ":8000"}
					of := append([]string{metrics.LabelModel, "m"}, page...)
					all := map[*metrics.Family]float64{metrics.EngineUp: 1, metrics.RequestsRunning: 0}
					if c.with != nil {
						c.with(at, func(f *metrics.Family, v float64, labels ...string) {
							if all[f] = v; len(labels) > 0 {
								emit(series(f.Name, append(of, labels...)...), v)
								delete(all, f)
							}
						})
					}
					for f, v := range all {
						if f == metrics.EngineUp {
							emit(series(f.Name, page...), v)
						} else if f != metrics.EngineMaintenanceEnd || v > 0 {
							emit(series(f.Name, of...), v)
						}
					}
					if all[metrics.EngineUp] == 0 {
						continue
					}
					emit(series(metrics.EngineInfo.Name, of...), 1)
					asked := at < gone
					if c.asks != nil {
						asked = c.asks(at, i)
					}
					count(emit, asked, c.perMinute/2*scrapeEvery.Minutes(), of...)
				}
				if c.beside != nil {
					count(emit, true, c.beside(at)*scrapeEvery.Minutes(), metrics.LabelModel, "other", metrics.LabelNamespace, "prod",
						metrics.LabelPod, "p3", metrics.LabelServer, "p3:8000")
				}
			}
			const end = gone + 3*time.Hour
			fired, _ := w.run(t, end, reading(rules.Options{}, in, alert.Condition())...)
			at := fired[subject{alert.Name, "m", ""}]
			switch {
			case !c.pages && len(at) > 0:
				t.Errorf("a page after %s", at[0]-gone)
			case c.pages && (len(at) == 0 || at[0] < gone || at[0]+alert.For+2*time.Minute > gone+10*time.Minute):
				t.Errorf("fires %v after it began, want it sent within ten minutes", at)
			case c.pages && at[len(at)-1] < end-time.Minute:
				t.Errorf("the page ends after %s, and nobody is served", at[len(at)-1]-gone)
			}
		})
	}
}
