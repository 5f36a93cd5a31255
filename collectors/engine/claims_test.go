package engine

import (
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestClaimsEqualSeries compares llm_engine_metric_source_info with the series of the same scrape: a quantity with
// a source has a series, and a missing quantity has none.
func TestClaimsEqualSeries(t *testing.T) {
	for _, name := range pages(t) {
		checkClaims(t, name, page(t, name))
	}
	for _, name := range golden.Recordings(t, "*/*.prom") {
		body, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		checkClaims(t, name, parse(t, mapped(t, string(body))))
	}
}

// TestTokensSayWhenTheyAreCounted checks that a rule can decide whether a constant counter means that no token is
// generated.
func TestTokensSayWhenTheyAreCounted(t *testing.T) {
	for _, d := range builtin {
		for i := range d.Rows {
			if r := &d.Rows[i]; r.Counted == "" && r.To == metrics.GenerationTokens {
				t.Errorf("collectors/engine, Dialect with Runtime %s: the row from %s has no Counted: write when the engine counts a token, "+
					"CountedStep, CountedFirst or CountedEnd of package metrics", d.Runtime, r.From)
			}
		}
	}
	for name, counted := range map[string]metrics.Counted{
		"vllm/v0.11.2.prom":      metrics.CountedStep,
		"tgi/v3.3.7-loaded.prom": metrics.CountedEnd,
	} {
		page(t, name).want(t, `llm_engine_metric_source_info{metric="llm_engine_generation_tokens_total",counted="`+string(counted)+`"}`, 1)
	}
}

func checkClaims(t *testing.T, name string, s samples) {
	there := map[string]bool{}
	for _, sample := range s {
		family := sample.labels.Get(model.MetricNameLabel)
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			if base := strings.TrimSuffix(family, suffix); metrics.Lookup(base) != nil {
				family = base
			}
		}
		there[sample.labels.Get(metrics.LabelRuntime)+" "+family+" "] = true
		there[sample.labels.Get(metrics.LabelRuntime)+" "+family+" "+sample.labels.Get(metrics.LabelOutcome)] = true
	}
	for _, up := range s {
		if up.labels.Get(model.MetricNameLabel) != metrics.EngineUp.Name || up.value == 0 {
			continue
		}
		runtime := metrics.Runtime(up.labels.Get(metrics.LabelRuntime))
		var speak []*Dialect // a frontend and its workers have the same runtime
		for _, d := range builtin {
			if d.Runtime == runtime {
				speak = append(speak, d)
			}
		}
		for _, f := range metrics.All() {
			concerned := speak == nil && f.Owner == metrics.Engine || speak != nil &&
				!slices.ContainsFunc(speak, func(d *Dialect) bool { return !d.Concerns(f) })
			if concerned && s.get(t, metrics.MetricSourceInfo.Name+`{metric="`+f.Name+`",runtime="`+up.labels.Get(metrics.LabelRuntime)+
				`"}`) == nil {
				t.Errorf("%s: nothing is said of %s", name, f.Name)
			}
		}
	}
	for _, sample := range s {
		if sample.labels.Get(model.MetricNameLabel) != metrics.MetricSourceInfo.Name {
			continue
		}
		claimed := sample.labels.Get(metrics.LabelQuality) != string(metrics.Missing)
		if !claimed && sample.labels.Get(metrics.LabelReason) == "" {
			t.Errorf("%s: no reason: %s", name, sample.labels)
		}
		part := "" // an outcome that is missing alone
		if _, ended, ok := strings.Cut(sample.labels.Get(metrics.LabelSource), `{finished_reason="`); ok {
			part = string(finishReasons[strings.TrimSuffix(ended, `"}`)])
		}
		if got := there[sample.labels.Get(metrics.LabelRuntime)+" "+sample.labels.Get(metrics.LabelMetric)+" "+part]; got != claimed {
			t.Errorf("%s: there is %t, said to be %t: %s", name, got, claimed, sample.labels)
		}
	}
}

// TestNoQuantityIsClaimedTwice joins the metrics pages of every two engines, with one model, and requires each
// quantity from only one of them.
func TestNoQuantityIsClaimedTwice(t *testing.T) {
	named := regexp.MustCompile(`\b(model|model_name)="[^"]*"`)
	first := map[metrics.Runtime]string{} // a metrics page of each engine, the largest
	for _, name := range pages(t) {
		if body, err := engineFormat.Sanitise([]byte(readPage(t, name)), name, "text/plain"); err == nil {
			if p, err := engineFormat.Parse(body, "text/plain", scrape.DefaultLimits); err == nil {
				for _, d := range recognised(t, p) {
					if len(body) > len(first[d.Runtime]) {
						first[d.Runtime] = named.ReplaceAllString(string(body), `$1="m"`)
					}
				}
			}
		}
	}
	if len(first) < len(builtin)-2 {
		t.Fatalf("only %d engines have pages", len(first))
	}
	runtimes := slices.Sorted(maps.Keys(first))
	for i, a := range runtimes {
		for _, b := range runtimes[i+1:] {
			s := requestsOf(t, nil, joined(first[a], first[b]))
			if len(s.get(t, `llm_engine_up`)) != 1 || s.get(t, `llm_engine_up`)[0] != 1 {
				t.Errorf("%s and %s: the page cannot be used", a, b)
			}
			said := map[string]string{}
			for _, sample := range s {
				family := metrics.Lookup(strings.TrimSuffix(sample.labels.Get(model.MetricNameLabel), "_count"))
				if family == nil || !IsQuantity(family) {
					continue
				}
				runtime := sample.labels.Get(metrics.LabelRuntime)
				key := fmt.Sprintf("%s of %q", family.Name, sample.labels.Get(metrics.LabelModel))
				if before := said[key]; before != "" && before != runtime {
					t.Errorf("%s and %s: %s is said by %s and %s", a, b, key, before, runtime)
				}
				said[key] = runtime
			}
		}
	}
}

// joined returns one metrics page with the series of both, without the series that the second repeats.
func joined(a, b string) string {
	have := map[string]bool{}
	series := func(line string) string {
		if strings.HasPrefix(line, "# TYPE ") || strings.HasPrefix(line, "# HELP ") {
			return strings.Join(strings.Fields(line)[:3], " ")
		}
		return line[:strings.LastIndexByte(line, ' ')+1]
	}
	var out strings.Builder
	for _, page := range []string{a, b} {
		for line := range strings.Lines(page) {
			if key := series(line); !have[key] {
				have[key] = true
				out.WriteString(line)
			}
		}
	}
	return out.String()
}

// TestIBMsTGISIsOneEngine checks a vLLM that repeats its numbers under TGI's names.
func TestIBMsTGISIsOneEngine(t *testing.T) {
	vllm := page(t, "vllm/v0.9.1.prom")
	both := parse(t, mapped(t, joined(readPage(t, "vllm/v0.9.1.prom"), readPage(t, "tgi/v3.3.7-loaded.prom"))))
	both.want(t, `{runtime="tgi"}`)
	for _, name := range []string{"llm_engine_requests_total", "llm_engine_requests_running", "llm_engine_request_duration_seconds_count"} {
		both.want(t, name, vllm.get(t, name)...)
	}
}

// TestIdleEngineLacksNothing checks that families that appear with traffic count as missing only after traffic.
func TestIdleEngineLacksNothing(t *testing.T) {
	const idle = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\"} 0\n" +
		"# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"m\"} 0\n" +
		"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{model_name=\"m\"} 0\n" +
		"# TYPE vllm:request_success_total counter\nvllm:request_success_total{model_name=\"m\",finished_reason=\"stop\"} "
	e := serve(t, idle+"0\n")
	e.documents["/version"] = `{"version": "0.19.0"}`
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	s := parse(t, exposition(t, c))
	s.want(t, `llm_engine_source_missing_total`)
	s.want(t, `llm_engine_metric_source_info{metric="llm_engine_time_to_first_token_seconds",quality="missing",reason="not on the page yet: the engine has served nothing"}`, 1)
	checkClaims(t, "idle", s)
	e.page = idle + "1\n" // the same metrics page except for one number
	s = parse(t, exposition(t, c))
	s.want(t, `llm_engine_source_missing_total{metric="llm_engine_time_to_first_token_seconds"}`, 1)
	s.want(t, `llm_engine_metric_source_info{metric="llm_engine_time_to_first_token_seconds",reason="expected in this version, not on the page"}`, 1)
}

// TestNumbersThatCannotBe checks that impossible numbers are dropped with a reason, and affect nothing else.
func TestNumbersThatCannotBe(t *testing.T) {
	for _, number := range []string{"-34", "+Inf", "-Inf"} {
		s := parse(t, mapped(t, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\",engine=\"0\"} "+number+
			"\n# TYPE vllm:num_requests_waiting gauge\nvllm:num_requests_waiting{model_name=\"m\",engine=\"0\"} 3\n"))
		s.want(t, `llm_engine_requests_running`)
		s.want(t, `llm_engine_requests_waiting`, 3)
		s.want(t, `llm_engine_metric_source_info{metric="llm_engine_requests_running",quality="missing",reason="its number is negative or infinite"}`, 1)
		s.want(t, `llm_engine_source_missing_total{metric="llm_engine_requests_running"}`, 1)
	}
	// An endpoint's number is also checked, because it is as untrusted as the metrics page.
	e := serve(t, readPage(t, "llamacpp/b10450-loaded.prom"))
	e.documents["/props"] = `{"build_info": "b10450", "total_slots": 1e200, "default_generation_settings": {"n_ctx": 1e200}}`
	endpoint := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))
	endpoint.want(t, `llm_engine_kv_cache_capacity_tokens`)
	endpoint.want(t, `llm_engine_metric_source_info{metric="llm_engine_kv_cache_capacity_tokens",quality="missing",reason="its number is negative or infinite"}`, 1)
	// If one rank of two has an impossible number, the other rank's number stays, and the fault is counted.
	s := parse(t, mapped(t, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{model_name=\"m\",engine=\"0\"} "+
		"-1\nvllm:num_requests_running{model_name=\"m\",engine=\"1\"} 5\n"))
	s.want(t, `llm_engine_requests_running`, 5)
	s.want(t, `llm_engine_source_missing_total{metric="llm_engine_requests_running"}`, 1)
	checkClaims(t, "one rank of two", s)
}
