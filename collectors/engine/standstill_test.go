package engine

import (
	"maps"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/value"
	"github.com/prometheus/prometheus/promql/parser"
	"go.yaml.in/yaml/v3"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// standstill is a case of testdata/standstill.yaml.
type standstill struct {
	Name    string            `yaml:"name"`
	Counted metrics.Counted   `yaml:"counted"` // of the tokens
	Gone    []time.Duration   `yaml:"gone"`
	Series  map[string]string `yaml:"series"`
	Moves   []time.Duration   `yaml:"moves"` // progress, or too early to tell
	Idle    []time.Duration   `yaml:"idle"`  // no progress, and no certain work
	Stalled []time.Duration   `yaml:"stalled"`
}

// readings compiles the series of a case and returns the values that each minute reads.
func (c *standstill) readings(t *testing.T) (*target, [][]parser.SequenceValue) {
	build := &compiler{target: &labelling{}, plan: &plan{}, page: &scrape.Page{}}
	var values [][]parser.SequenceValue
	for _, series := range slices.Sorted(maps.Keys(c.Series)) {
		of, is, err := parser.NewParser(parser.Options{}).ParseSeriesDesc("llm_engine_" + series + " " + c.Series[series])
		if err != nil {
			t.Fatal(err)
		}
		name, at := of.Get("__name__"), term{len(values)}
		values = append(values, is)
		var out [outLabels]string
		for _, label := range []string{metrics.LabelDPRank, metrics.LabelOutcome} {
			out[outIndex(label)] = of.Get(label)
		}
		one := line{terms: []term{at}, recipe: plain}
		switch one.family = metrics.Lookup(name); {
		case name == "llm_engine_request_duration_seconds_sum":
			build.lasts(metrics.RequestDuration, out, line{terms: []term{{at[0] - 1}}, recipe: plain}, one)
		case name == "llm_engine_request_duration_seconds_count":
		case one.family == nil:
			t.Fatalf("%s is no metric", name)
		case one.family == metrics.EngineStartTime:
			build.plan.start = at
		case one.family == metrics.Sleeping:
			build.plan.lines = append(build.plan.lines, one)
		case one.family == metrics.GenerationTokens:
			build.works(one.family, out, c.Counted, one)
		default:
			build.works(one.family, out, "", one)
		}
	}
	build.plan.units = build.units(&Dialect{})
	return &target{plan: build.plan}, values
}

// TestStandstill checks decisions that need no GPU and no witness beside the engine's own numbers. The rules define
// the consequences.
func TestStandstill(t *testing.T) {
	text, err := os.ReadFile("testdata/standstill.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cases []standstill
	if err := yaml.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	for _, c := range cases {
		t.Run(c.Name, func(t *testing.T) {
			engine, values := c.readings(t)
			var now time.Time
			engine.config = &settings{Config: Config{Now: func() time.Time { return now }}}
			for minute := range values[0] {
				after := time.Duration(minute) * time.Minute
				now = time.Unix(0, 0).Add(after)
				engine.values = nil
				for _, of := range values {
					if minute < len(of) && !of[minute].Omitted && !value.IsStaleNaN(of[minute].Value) {
						engine.values = append(engine.values, of[minute].Value)
					}
				}
				if len(engine.values) != len(values) {
					engine.gone = engine.gone || slices.Contains(c.Gone, after)
					continue
				}
				var page snapshot
				engine.observe(&page)
				stalled, without := false, false
				for _, of := range page.blocks {
					stands := slices.ContainsFunc(page.lines[of.start:of.end], func(l valued) bool { return l.value > 0 })
					stalled, without = stalled || stands && of.family == metrics.EngineStalled, without || stands &&
						of.family == metrics.EngineWithoutProgress
				}
				for _, want := range []struct {
					at               []time.Duration
					stalled, without bool
				}{{c.Moves, false, false}, {c.Idle, false, true}, {c.Stalled, true, true}} {
					if slices.Contains(want.at, after) && (stalled != want.stalled || without != want.without) {
						t.Errorf("after %s: stalled %t, without progress %t", after, stalled, without)
					}
				}
			}
		})
	}
}
