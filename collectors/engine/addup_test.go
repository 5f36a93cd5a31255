package engine

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// TestEveryRequestArrives raises each series that counts requests, on every metrics page. Exactly one outcome must
// rise by as much, and the availability objective must count it: labels that map to one outcome split a number, so
// they add up. Only the labels that a dialect lists as replicas repeat a number.
func TestEveryRequestArrives(t *testing.T) {
	const more = 1 << 20
	objectives := []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")}
	raised := 0
	for _, name := range pages(t) {
		body, err := engineFormat.Sanitise([]byte(readPage(t, name)), name, "text/plain")
		if err != nil {
			continue
		}
		before := requestsOf(t, objectives, string(body))
		page, err := engineFormat.Parse(body, "text/plain", scrape.DefaultLimits)
		if err != nil {
			continue
		}
		for _, d := range recognised(t, page) {
			for from, rows := range requestSources(d) {
				if before.get(t, `llm_engine_metric_source_info{metric="llm_engine_requests_total",source="`+from+`"}`) == nil {
					continue // another source exists
				}
				for _, s := range page.Find(from, scrape.Counter).Samples {
					if s.Suffix == "bucket" || s.Suffix == "sum" {
						continue // the count of a histogram is the counter
					}
					if d.Models != nil && d.Models(page, Identity{})(s.Labels.Get("model")) == "" {
						continue // a step of an ensemble
					}
					if !slices.ContainsFunc(rows, func(r *Row) bool {
						return matches(s.Labels, r.Where) && (r.On == nil || r.On(page)) && r.Tally.on(page)
					}) {
						continue
					}
					before, after := interval(t, objectives, string(body), raise(string(body), s.Index, more))
					raised++
					what := fmt.Sprintf("%s: %s", name, s.Labels)
					outcomes := difference(before, after, metrics.Requests.Name)
					if len(outcomes) != 1 || outcomes[0].by != more {
						t.Errorf("%s rises by %d, and the outcomes by %v", what, more, outcomes)
						continue
					}
					if before.get(t, `llm_slo_counted`)[0] == 0 {
						continue
					}
					isEvent, isBad := slo.Judge(metrics.Outcome(outcomes[0].labels.Get(metrics.LabelOutcome)))
					if got := difference(before, after, metrics.SLOEvents.Name); isEvent != (len(got) == 1 && got[0].by == more) {
						t.Errorf("%s rises by %d, and the objective's events by %v", what, more, got)
					}
					if got := difference(before, after, metrics.SLOBadEvents.Name); isBad != (len(got) == 1 && got[0].by == more) {
						t.Errorf("%s rises by %d, and the objective's bad events by %v", what, more, got)
					}
				}
			}
		}
	}
	if raised < 150 {
		t.Errorf("only %d series were raised", raised)
	}
}

// recognised returns the dialects that read requests from a metrics page, as a target finds them.
func recognised(t *testing.T, p *scrape.Page) []*Dialect {
	found, _ := (&target{dialects: builtin, log: discard}).recognise(t.Context(), "", p)
	return found
}

func requestSources(d *Dialect) map[string][]*Row {
	sources := map[string][]*Row{}
	for i := range d.Rows {
		if r := &d.Rows[i]; r.To == metrics.Requests {
			sources[r.From] = append(sources[r.From], r)
		}
	}
	return sources
}

func requestsOf(t *testing.T, objectives []slo.Objective, page string) samples {
	cfg := Config{Targets: []TargetConfig{{URL: serve(t, page).URL}}, Objectives: objectives, Log: discard}
	return parse(t, exposition(t, collectorWith(t, cfg)))
}

// on reports whether the metrics page has everything that the tally needs.
func (t *Tally) on(p *scrape.Page) bool {
	return t == nil || !slices.ContainsFunc(t.Of, func(c Count) bool { return !c.Optional && !p.Has(c.From) })
}

// interval reads a metrics page until no debt is left, and then another page of the same engine.
func interval(t *testing.T, objectives []slo.Objective, page, next string) (before, after samples) {
	e := serve(t, page)
	defer e.Close()
	c := collectorWith(t, Config{Targets: []TargetConfig{{URL: e.URL}}, Objectives: objectives, Log: discard})
	before = parse(t, exposition(t, c))
	for range map[bool]int{true: debtLasts + 1}[strings.Contains(page, "vllm:") || strings.Contains(page, "sglang:")] { // has tallies
		before = parse(t, exposition(t, c))
	}
	e.show(next)
	return before, parse(t, exposition(t, c))
}

// raise adds n to the series at a place of a metrics page.
func raise(page string, index int, n float64) string {
	var out strings.Builder
	for line := range strings.Lines(page) {
		if !strings.HasPrefix(line, "#") && strings.TrimSpace(line) != "" {
			if index == 0 {
				i := strings.LastIndexByte(line, ' ')
				value, _ := strconv.ParseFloat(strings.TrimSpace(line[i+1:]), 64)
				line = fmt.Sprintf("%s %v\n", line[:i], value+n)
			}
			index--
		}
		out.WriteString(line)
	}
	return out.String()
}

type rise struct {
	labels labels.Labels
	by     float64
}

func (r rise) String() string { return fmt.Sprintf("%s +%v", r.labels, r.by) }

// difference lists the series of a family that rose or are new.
func difference(before, after samples, family string) (rises []rise) {
	old := map[uint64]float64{}
	for _, s := range before {
		old[s.labels.Hash()] = s.value
	}
	for _, s := range after {
		if by := s.value - old[s.labels.Hash()]; s.labels.Get(model.MetricNameLabel) == family && by != 0 {
			rises = append(rises, rise{s.labels, by})
		}
	}
	return rises
}

// TestFoldedOutcomesAddUp checks metrics pages on which two causes have one outcome.
func TestFoldedOutcomesAddUp(t *testing.T) {
	for _, c := range []struct {
		page string
		want float64
	}{
		{"# TYPE tgi_request_failure counter\ntgi_request_failure{err=\"incomplete\"} 4\ntgi_request_failure{err=\"generation\"} 6\n", 10},
		{"# TYPE trtllm_request_error_total counter\ntrtllm_request_error_total{model_name=\"m\",http_code=\"500\",pid=\"1\"} " +
			"4\ntrtllm_request_error_total{model_name=\"m\",http_code=\"502\",pid=\"1\"} " +
			"3\ntrtllm_request_error_total{model_name=\"m\",http_code=\"502\",pid=\"2\"} 2\n", 7},
		{"# TYPE nv_inference_request_success counter\nnv_inference_request_success{model=\"m\"} 9\n# TYPE nv_inference_request_failure " +
			"counter\nnv_inference_request_failure{model=\"m\",reason=\"BACKEND\"} " +
			"4\nnv_inference_request_failure{model=\"m\",reason=\"OTHER\"} 3\n", 7},
		{"# TYPE dynamo_frontend_requests_total " +
			"counter\ndynamo_frontend_requests_total{model=\"m\",status=\"error\",error_type=\"internal\"} " +
			"3\ndynamo_frontend_requests_total{model=\"m\",status=\"error\",error_type=\"response_timeout\"} 11\n", 14},
	} {
		parse(t, mapped(t, c.page)).want(t, `llm_engine_requests_total{outcome="error"}`, c.want)
	}
}
