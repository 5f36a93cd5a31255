package openslo_test

import (
	"maps"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
	"github.com/llm-node-exporter/llm-node-exporter/slo/openslo"
)

const sli = `
apiVersion: openslo/v1
kind: SLI
metadata: {name: ttft-fast}
spec:
  ratioMetric:
    counter: true
    good: {metricSource: {type: Prometheus, spec: {query: 'sum(rate(llm_engine_time_to_first_token_seconds_bucket{le="0.5",model_name=~"a|b"}[5m]))'}}}
    total: {metricSource: {type: Prometheus, spec: {query: 'sum(rate(llm_engine_time_to_first_token_seconds_count{model_name=~"a|b"}[5m]))'}}}
---
`

const object = `
apiVersion: openslo/v1
kind: SLO
metadata: {name: Chat-TTFT}
spec:
  service: chat
  indicatorRef: ttft-fast
  budgetingMethod: Occurrences
  timeWindow: [{duration: 28d, isRolling: true}]
  objectives: [{target: 0.99}]
`

func TestLatency(t *testing.T) {
	got, err := openslo.Import([]byte(sli + object))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 {
		t.Fatalf("%d objectives, want one", len(got))
	}
	o := got[0]
	if o.Name != "chat-ttft" || o.Signal != slo.TTFT || o.Threshold.Seconds() != "0.5" || o.Target.Percent() != "99%" ||
		o.Period != 28*slo.Day || strings.Join(o.Select.Model, ",") != "a,b" {
		t.Errorf("imported as %+v", o)
	}
}

func TestInlineIndicatorOfCounters(t *testing.T) {
	got, err := openslo.Import([]byte(`
apiVersion: openslo/v1
kind: SLO
metadata: {name: finished}
spec:
  indicator:
    metadata: {name: inline}
    spec:
      ratioMetric:
        counter: true
        bad: {metricSource: {type: prometheus, spec: {query: 'llm_engine_requests_total{outcome=~"error|rejected"}'}}}
        total: {metricSource: {type: prometheus, spec: {query: 'increase(llm_engine_requests_total[5m])'}}}
  budgetingMethod: Occurrences
  timeWindow: [{duration: 4w, isRolling: true}]
  objectives: [{targetPercent: 99.9}, {targetPercent: 99.5}]
`))
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != 2 || got[1].Name != "finished-2" || got[0].Target.Percent() != "99.9%" {
		t.Fatalf("imported as %+v", got)
	}
	label := func(v string) func(string) string { return func(string) string { return v } }
	if b := got[0].Bad; b == nil || !b.Selects(metrics.Requests, label("rejected")) || b.Selects(metrics.Requests, label("stop")) {
		t.Errorf("bad is %+v", b)
	}
}

// The owner and the severity of an objective are imported, except labels that Prometheus or our rules would misinterpret.
func TestOwnership(t *testing.T) {
	const policies = `
apiVersion: openslo/v1
kind: AlertPolicy
metadata: {name: by-mail}
spec: {conditions: [{conditionRef: burns}]}
---
apiVersion: openslo/v1
kind: AlertCondition
metadata: {name: burns}
spec: {severity: ticket, condition: {kind: burnrate, op: gt, threshold: 2}}
---
`
	const inline = "{kind: AlertPolicy, metadata: {name: x}, spec: {conditions: [{kind: AlertCondition, metadata: {name: y}, spec: " +
		"{severity: page}}]}}"
	for written, want := range map[string]slo.Severity{
		"":                         0, // OpenSLO leaves alerting to others, so the default applies
		"alertPolicies: [by-mail]": slo.Ticket,
		"alertPolicies: [{alertPolicyRef: by-mail}]":                        slo.Ticket,
		"alertPolicies: [{alertPolicyRef: by-mail}, " + inline + "]":        slo.Page,
		"alertPolicies: [{alertPolicyRef: kept elsewhere}]":                 0,
		"alertPolicies: [" + strings.Replace(inline, "page", "p7", 1) + "]": 0, // an unnecessary page is better than none
	} {
		text := strings.Replace(object, "metadata: {name: Chat-TTFT}",
			"metadata: {name: Chat-TTFT, labels: {team: [search, chat], product: x, model_name: y, k8s.io/part: z}}", 1)
		text = strings.Replace(text, "  service: chat", "  service: chat\n  "+written, 1)
		got, err := openslo.Import([]byte(sli + policies + text))
		if err != nil || len(got) != 1 {
			t.Errorf("%q: %v, %d objectives", written, err, len(got))
			continue
		}
		if got[0].Severity != want {
			t.Errorf("%q: severity %s, want %s", written, got[0].Severity, want)
		}
		if l := got[0].Labels; !maps.Equal(l, map[string]string{"team": "search,chat", "product": "x"}) {
			t.Errorf("labels %v", l)
		}
	}
}

// An objective that cannot be counted as written is refused with the reason, and does not prevent the import of others.
func TestRefusals(t *testing.T) {
	for want, change := range map[string][2]string{
		"counts slices of time":         {"Occurrences", "Timeslices"},
		"instead of a calendar":         {"isRolling: true", "isRolling: false"},
		"not among the documents":       {"indicatorRef: ttft-fast", "indicatorRef: other"},
		"only openslo/v1":               {"apiVersion: openslo/v1\nkind: SLO", "apiVersion: openslo/v2alpha\nkind: SLO"},
		"choose one of 7d":              {"28d", "31d"},
		"no error budget":               {"0.99", "1.0"},
		"only counters can be added up": {"counter: true", "counter: false"},
		"judges a number over time":     {"ratioMetric:", "thresholdMetric: {x: 1}\n  ratioMetric:"},
		"select different engines":      {`_count{model_name=~"a|b"}`, `_count{model_name="a"}`},
		"is not in the vocabulary":      {"llm_engine_time_to_first_token_seconds_count", "vllm:time_to_first_token_seconds_count"},
		"only a selector inside sum": {
			"sum(rate(llm_engine_time_to_first_token_seconds_count",
			"1 - sum(rate(llm_engine_time_to_first_token_seconds_count",
		},
		"only equal values":                {`_count{model_name=~"a|b"}`, `_count{model_name=~"a.*"}`},
		"different histograms":             {"llm_engine_time_to_first_token_seconds_count", "llm_engine_queue_time_seconds_count"},
		"needs good = llm_engine_time_to_": {`le="0.5",`, ""},
		"only Prometheus queries": {
			"{type: Prometheus, spec: {query: 'sum(rate(llm_engine_time_to_first_token_seconds_count",
			"{type: Datadog, spec: {query: 'sum(rate(llm_engine_time_to_first_token_seconds_count",
		},
	} {
		text := strings.Replace(sli+object, change[0], change[1], 1)
		if text == sli+object {
			t.Fatalf("%s: nothing changed", want)
		}
		got, err := openslo.Import([]byte(text + "\n---\n" + strings.Replace(object, "Chat-TTFT", "fine", 1)))
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), `"Chat-TTFT"`) {
			t.Errorf("%v, want %q", err, want)
		}
		for _, o := range got {
			if o.Name != "fine" {
				t.Errorf("%s: imported %+v all the same", want, o)
			}
		}
	}
}
