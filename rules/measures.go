package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Measure is a quantity by which a release of a model's engines is compared with the release before.
type Measure struct {
	Name, Says string
	Unit       Unit
	// More means that a higher value is better.
	More bool
	// Share and Least limit how much worse the measure may become, as a share of the former value and as an amount. The
	// measure is worse only if its loss exceeds both. A measure without Share is only shown, and never judged.
	Share, Least float64
	// Loaded means that the measure depends on the load. If the load differs, the measure proves nothing about a release.
	Loaded bool
	// Query returns the measure over a window, per model, on the engines that m matches.
	Query func(window time.Duration, m ...*promql.Matcher) promql.Expr
}

// worseBy is the Share of some measures. It is the same as in ReleaseRegression for models with many requests.
const worseBy = 0.2

// Measures returns the measures of a release in the order of people's questions. Effects on users come first, then the
// output of the engines, then explanations.
func Measures() []Measure {
	p95 := func(h *metrics.Family) func(time.Duration, ...*promql.Matcher) promql.Expr {
		return func(window time.Duration, m ...*promql.Matcher) promql.Expr {
			ran := promql.Over("last_over_time", promql.Vector(metrics.EngineInfo, m...), window) // includes former replicas
			buckets := promql.Mul(promql.Rate(promql.BucketsOf(h, m...), window), oneVersion(ran),
				promql.On(replicaLabels...).ManyToOne(metrics.LabelVersion))
			perEngine := promql.Call("histogram_quantile", promql.Num(0.95),
				// The result is per runtime, because the bounds of runtimes differ.
				promql.Sum(append([]string{"le", metrics.LabelRuntime, metrics.LabelVersion}, modelLabels...), buckets))
			return promql.Ge(promql.Max(modelLabels, perEngine), promql.Num(0))
		}
	}
	return []Measure{
		{"ttft", "TTFT, mean", Seconds, false, worseBy, 0.02, true, func(w time.Duration, m ...*promql.Matcher) promql.Expr {
			return mean(metrics.TimeToFirstToken, modelLabels, w, m...)
		}},
		{"ttft_p95", "TTFT p95", Seconds, false, 0, 0, true, p95(metrics.TimeToFirstToken)},
		{"itl", "Time between tokens, mean", Seconds, false, worseBy, 0.001, true, func(w time.Duration, m ...*promql.Matcher) promql.Expr {
			return mean(metrics.InterTokenLatency, modelLabels, w, m...)
		}},
		{"itl_p95", "Time between tokens, p95", Seconds, false, 0, 0, true, p95(metrics.InterTokenLatency)},
		{"failed", "Requests failed", Share, false, worseBy, 0.01, true, func(w time.Duration, m ...*promql.Matcher) promql.Expr {
			return promql.Or(failing(modelLabels, w, m...), times(0, above(ended(modelLabels, w, m...), 0)))
		}},
		{"tokens", "Tokens per second and replica", Count, true, worseBy, 1, true, func(w time.Duration, m ...*promql.Matcher) promql.Expr {
			return promql.Div(promql.Sum(modelLabels, promql.Rate(promql.Vector(metrics.GenerationTokens, m...), w)), replicasOf(m...))
		}},
		{"preemptions", "Preemptions per request", Decimal, false, worseBy, 0.05, true, func(w time.Duration, m ...*promql.Matcher) promql.Expr {
			return ratio(promql.Vector(metrics.Preemptions, m...), promql.CountOf(metrics.TimeToFirstToken, m...), modelLabels, w, 0)
		}},
		{"accepted", "Draft tokens accepted", Share, true, worseBy, 0.05, false, func(w time.Duration, m ...*promql.Matcher) promql.Expr {
			return accepted(modelLabels, w, 0, m...)
		}},
		{"prefix_hits", "Prefix cache hits", Share, true, worseBy, 0.05, false, func(w time.Duration, m ...*promql.Matcher) promql.Expr {
			return hitRatio(modelLabels, w, 0, m...)
		}},
		{
			"kv_per_request", "KV cache tokens per running request", Count, false, 0, 0, true,
			func(w time.Duration, m ...*promql.Matcher) promql.Expr {
				perReplica := func(f *metrics.Family) promql.Expr {
					return promql.Max(replicaLabels, promql.Over("avg_over_time", promql.Vector(f, m...), w))
				}
				used := promql.Sum(modelLabels, promql.Mul(perReplica(metrics.KVCacheUsage),
					promql.Sum(replicaLabels, promql.Vector(metrics.KVCacheCapacity, m...))))
				return promql.Div(used, above(promql.Sum(modelLabels, perReplica(metrics.RequestsRunning)), 0))
			},
		},
	}
}

// RequestRate returns the requests per second and replica that ended on the matching engines. This rate is the load of
// the engines. If requests are not counted, first tokens count instead.
func RequestRate(window time.Duration, m ...*promql.Matcher) promql.Expr {
	return promql.Div(promql.Or(above(ended(modelLabels, window, m...), 0),
		promql.Sum(modelLabels, promql.Rate(promql.CountOf(metrics.TimeToFirstToken, m...), window))), replicasOf(m...))
}

// replicasOf returns the number of matching replicas of each model that run at the time of the query.
func replicasOf(m ...*promql.Matcher) promql.Expr {
	return promql.CountBy(modelLabels, promql.Max(replicaLabels, promql.Vector(metrics.EngineInfo, m...)))
}

// Worse reports whether the measure has become so much worse that a release must stop.
func (m Measure) Worse(before, after float64) bool {
	loss := after - before
	if m.More {
		loss = -loss
	}
	return loss > m.Least && loss > m.Share*before
}
