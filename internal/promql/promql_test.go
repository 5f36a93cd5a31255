package promql_test

import (
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// An expression that is printed and parsed again is the same tree.
func TestPrinting(t *testing.T) {
	a, b := promql.Vector(metrics.RequestsWaiting), promql.Vector(metrics.RequestsRunning)
	by := []string{metrics.LabelModel}
	for want, e := range map[string]promql.Expr{
		`(llm_engine_requests_waiting{role!="gateway"} + llm_engine_requests_running{role!="gateway"}) * 3`:                         promql.Mul(promql.Add(a, b), promql.Num(3)),
		`llm_engine_requests_waiting{role!="gateway"} - (llm_engine_requests_running{role!="gateway"} - 1)`:                         promql.Sub(a, promql.Sub(b, promql.Num(1))),
		`llm_engine_requests_waiting{role!="gateway"} or llm_engine_requests_running{role!="gateway"} or vector(1)`:                 promql.Or(a, b, promql.Call("vector", promql.Num(1))),
		`llm_engine_requests_waiting{role!="gateway"} > on (model_name) group_left () llm_engine_requests_running{role!="gateway"}`: promql.Gt(a, b, promql.On(by...).ManyToOne()),
		`sum by (model_name) (rate(llm_engine_preemptions_total{pod="p",role!="gateway"}[5m] offset 1h))`: promql.Sum(by,
			promql.Rate(promql.Offset(promql.Vector(metrics.Preemptions, promql.Eq("pod", "p")), time.Hour), 5*time.Minute)),
		`topk by (model_name) (2, llm_engine_requests_waiting{role!="gateway"})`: promql.TopK(2, by, a),
		`llm_engine_stage_seconds_total{role!="gateway",stage="first_token"} / llm_engine_stages_total{role!="gateway",stage="first_token"}`: promql.Div(
			promql.SumOf(metrics.TimeToFirstToken), promql.CountOf(metrics.TimeToFirstToken)),
		`llm_probe_connection_seconds_sum / ignoring (phase) llm_probe_connection_seconds_count`: promql.Div(
			promql.SumOf(metrics.ProbeConnection), promql.CountOf(metrics.ProbeConnection), promql.Ignoring(metrics.LabelPhase)),
		`llm_engine_requests_waiting{role!="gateway"} unless on (model_name) llm_engine_requests_running{role!="gateway"}`: promql.Unless(a,
			b, promql.On(by...)),
		`llm_engine_requests_running{role=~".*"}`: promql.Vector(metrics.RequestsRunning, promql.Re(metrics.LabelRole, ".*")),
		"llm_engine_up": promql.Vector(metrics.EngineUp),
		`0.0144 * llm_engine_requests_waiting{role!="gateway"}`: promql.Mul(promql.Num(0.0144), a),
	} {
		if got := e.String(); got != want {
			t.Errorf("printed %s, want %s", got, want)
		}
		again, err := promql.Parser.ParseExpr(e.String())
		if err != nil || again.String() != e.String() {
			t.Errorf("%s: parsed again as %v, %v", e, again, err)
		}
	}
}

func TestVerify(t *testing.T) {
	for query, want := range map[string]string{
		`sum by (model_name) (rate(llm_engine_preemptions_total{pod="x"}[5m]))`:                           "",
		`histogram_quantile(0.99, sum by (le) (rate(llm_engine_time_to_first_token_seconds_bucket[5m])))`: "",
		`model:llm_slo_burn:rate1h{slo="ttft"} > 1`:                                                       "",
		`up{job="x"} == 0`:                                                  "",
		`llm_engine_preemption_total`:                                       "no such metric",
		`llm_engine_time_to_first_token_seconds`:                            "no such metric", // a histogram has parts
		`histogram_count(rate(llm_engine_time_to_first_token_seconds[5m]))`: "no such metric",
		`histogram_count(rate(llm_engine_time_to_first_token_seconds[5m])) or rate(llm_engine_time_to_first_token_seconds_count[5m])`: "",
		`model:llm_slo_burn:rateX`:                                                                 "no such metric",
		`llm_engine_requests_waiting{model="x"}`:                                                   `no label "model"`,
		`llm_engine_requests_waiting{le="1"}`:                                                      `no label "le"`,
		`sum by (model) (llm_engine_requests_waiting)`:                                             `groups by "model"`,
		`sum by (le) (llm_engine_time_to_first_token_seconds_count)`:                               `groups by "le"`,
		`sum by (model_name) (llm_engine_requests_waiting) * on (pod) llm_engine_requests_running`: `matches on "pod"`,
		`llm_engine_requests_waiting and on (gpu_uuid) llm_gpu_up`:                                 `matches on "gpu_uuid"`,
		`sum(rate(llm_engine_preemptions_total[5m])`:                                               "unclosed left parenthesis",
	} {
		err := promql.Verify(query)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", query, err, want)
		}
	}
}

// Renaming reaches matchers, groups and matching, and does not change the original.
func TestRename(t *testing.T) {
	cluster := promql.Str(metrics.LabelCluster)
	e := promql.And(promql.Sum([]string{metrics.LabelCluster}, promql.Vector(metrics.RequestsWaiting, promql.Eq(metrics.LabelCluster, "a"))),
		promql.CountValues(metrics.LabelCluster, nil, promql.Call("label_replace",
			promql.Call("label_join", promql.Vector(metrics.RequestsRunning), cluster, promql.Str("-"), cluster),
			cluster, promql.Str("$1"), cluster, promql.Str("(.*)"))), promql.On(metrics.LabelCluster))
	before := e.String()
	got := promql.Rename(e, map[string]string{metrics.LabelCluster: "k8s"}).String()
	if want := strings.ReplaceAll(before, "cluster", "k8s"); got != want {
		t.Errorf("renamed to %s, want %s", got, want)
	}
	if e.String() != before {
		t.Errorf("the original became %s", e)
	}
}

// Functions with another meaning in MetricsQL are replaced everywhere. The original is not changed.
func TestMetricsQL(t *testing.T) {
	counter := promql.Vector(metrics.Preemptions)
	e := promql.Div(promql.Sum(nil, promql.Rate(counter, time.Hour)), promql.Max(nil, promql.Over("max_over_time", counter, time.Hour)))
	before := e.String()
	if got, want := promql.MetricsQL(e).String(), strings.Replace(before, "rate(", "rate_prometheus(", 1); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if e.String() != before {
		t.Errorf("the original became %s", e)
	}
}

// A long expression breaks at operators and parentheses, reads like a list, and is the same after it is parsed again.
func TestPretty(t *testing.T) {
	const want = `count by (cluster,namespace,model_name) (
 15 * count_over_time((
  max by (cluster,namespace,model_name) (llm_engine_requests_waiting{role!="gateway"})
   > on (cluster,namespace) group_left () max by (cluster,namespace) (llm_engine_requests_running{role!="gateway"})
 )[1m:15s]) > 1
 unless on (cluster,namespace) (llm_engine_up or llm_engine_requests_waiting{role="gateway",server="10.0.0.1:8000"})
) or llm_engine_up`
	e, err := promql.Parser.ParseExpr(want)
	if err != nil {
		t.Fatal(err)
	}
	if got := promql.Pretty(e); got != want {
		t.Errorf("printed\n%s\nwant\n%s", got, want)
	}
}
