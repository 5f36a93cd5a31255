package rules

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// ReleaseRegression fires for a model that became slower after its engines changed.
var ReleaseRegression = &Alert{
	Name:     "LLMReleaseRegression",
	Branch:   Release,
	Expr:     promql.And(slower(), changed(), promql.On(modelLabels...)),
	Severity: slo.Ticket,
	For:      10 * minute,
	Scope:    []string{metrics.LabelModel},
	Explains: []*Alert{FastBurn, SlowBurn},
	Summary:  "The model is {{ $value | humanize }} times as slow as yesterday, after a change in the last 6 hours",
	Description: "The slowdown began with a change or a restart of all engines, not with more load. If no change is listed, check flags, " +
		"image and node.",
	Split: []Evidence{
		{
			"Changed within 6h: roll back first", changedWithin(6*hour, sameModel()...),
			`{{ .Labels.setting }} {{ .Labels.old }} → {{ .Labels.new }}`,
		},
	},
	Dashboard: IncidentDashboard,
}

var releaseAlerts = []*Alert{ReleaseRegression}

// slower returns how long tokens of each model take, as a multiple of the day before, if the multiple is above 1.5.
// With many requests, but hardly more than on the day before, 1.2 is sufficient.
func slower() promql.Expr {
	least := func(limit float64, where promql.Expr) promql.Expr {
		return promql.Add(promql.Num(limit), times(0, where))
	}
	limit := promql.Or(
		least(1.2, promql.And(atLeast(500, 30*minute), atMost(1.1), promql.On(modelLabels...))),
		least(1.5, atLeast(20, 30*minute)))
	return promql.Gt(promql.Max(modelLabels, promql.Vector(metrics.RecordedSlower)), limit)
}

// slowerThanYesterday records how long first and next tokens take, as a multiple of the day before.
func slowerThanYesterday() Record {
	took := func(window, ago time.Duration) promql.Expr {
		return ratio(promql.Vector(metrics.StageTime, paced()), promql.Vector(metrics.Stages, paced()), perStage(modelLabels), window, ago)
	}
	return Record{Name: metrics.RecordedSlower, Expr: promql.Div(took(30*minute, 0), took(day, 6*hour))}
}

// changed returns each model that changed within six hours. A version appeared, a setting changed, or all engines
// started. In the last case, the engines must be warm, and get less than 1.5 times as many requests as on the day
// before, because a higher load alone slows engines down. A start of only some replicas does not count, because it only
// adds capacity.
func changed() promql.Expr {
	restarted := promql.Unless(below(oldest(), (6*hour).Seconds()), cold())
	return promql.Or(promql.CountBy(modelLabels, changedWithin(6*hour)), promql.And(restarted, atMost(1.5)))
}

// atMost returns the models whose replicas get at most a given multiple of their requests on the day before.
func atMost(multiple float64) promql.Expr {
	return promql.Le(promql.Vector(metrics.RecordedLoad), promql.Num(multiple))
}

// load returns the requests per replica of each model as a multiple of the day before.
func load() promql.Expr {
	perReplica := func(window, ago time.Duration) promql.Expr {
		mean := func(f *metrics.Family) promql.Expr {
			return promql.Sum(modelLabels, promql.Over("avg_over_time", promql.Offset(promql.Vector(f), ago), window))
		}
		return promql.Div(mean(metrics.RecordedRequests), mean(metrics.RecordedReplicas))
	}
	return promql.Div(perReplica(30*minute, 0), perReplica(day, 6*hour))
}

// oldestStart returns the start time of each model's longest-running engine. oldest returns the age of this engine in
// seconds.
func oldestStart() promql.Expr {
	started := promql.Mul(promql.Max(replicaLabels, promql.Vector(metrics.EngineInfo)),
		promql.Max(pageLabels, promql.Vector(metrics.EngineStartTime)), promql.On(pageLabels...).ManyToOne())
	return promql.Min(modelLabels, started)
}

func oldest() promql.Expr {
	return promql.Sub(promql.Call("time"), promql.Vector(metrics.RecordedOldestStart))
}

// cold returns each model whose engines all started within 45 minutes. Their caches were empty and their kernels were
// being compiled, so their values of the last half hour prove nothing.
func cold() promql.Expr { return below(oldest(), (45 * minute).Seconds()) }

// perVersion returns the rate of a counter per version of a model, and per value of the labels in more.
func perVersion(counter promql.Expr, more ...string) promql.Expr {
	rates := promql.Sum(append(more, replicaLabels...), promql.Rate(counter, pageWindow))
	return promql.Sum(slices.Concat([]string{metrics.LabelVersion}, more, modelLabels),
		promql.Mul(rates, promql.Vector(metrics.RecordedVersion), promql.On(replicaLabels...).ManyToOne(metrics.LabelVersion)))
}

// versions returns one version of each replica.
func versions() promql.Expr { return oneVersion(promql.Vector(metrics.EngineInfo)) }

func oneVersion(info promql.Expr) promql.Expr {
	return promql.TopK(1, replicaLabels, promql.Max(append([]string{metrics.LabelVersion}, replicaLabels...), info))
}

// p95ByVersion returns the 95th percentile of a histogram per version. It has no result without observations.
func p95ByVersion(h *metrics.Family) promql.Expr {
	// The result is per runtime, because the bounds of runtimes differ.
	perEngine := promql.Call("histogram_quantile", promql.Num(0.95), perVersion(promql.BucketsOf(h), "le", metrics.LabelRuntime))
	return promql.Ge(promql.Max(append([]string{metrics.LabelVersion}, modelLabels...), perEngine), promql.Num(0))
}

// failedByVersion returns the share of requests that failed or were refused, per version.
func failedByVersion() promql.Expr {
	of := func(m *promql.Matcher) promql.Expr { return perVersion(promql.Vector(metrics.Requests, m)) }
	all := above(of(promql.NotRe(metrics.LabelOutcome, slo.UncountedOutcomes)), 0)
	return promql.Div(promql.Or(of(promql.Re(metrics.LabelOutcome, slo.FailedOutcomes)), times(0, all)), all)
}

// restartedWorse returns the share of each model's engines that restarted within the hour. The share is at least a
// half, no more requests arrive than usual, and no KV cache is full. A cold start alone must not explain the burn.
// Therefore, either a quarter of an hour has passed since the start, or one of three things happens while the hit ratio
// does not show a prefix cache that is filling again: far more tokens are computed, tokens take longer although the
// batch is not large, or the queue grows although tokens take no longer.
func restartedWorse() promql.Expr {
	slower := promql.And(above(against("token_time"), 1.3), below(against("running"), 3))
	behind := both(above(promql.Sum(modelLabels, promql.Over("delta", promql.Vector(metrics.RequestsWaiting), recentWindow)), 0),
		atLeast(10, recentWindow), below(against("token_time"), 1.3))
	wasteful := above(against("computed"), 2)
	fills := below(above(against("prefix_hits"), 0.1), 0.9)
	return promql.Unless(
		both(promql.Call("clamp_max", promql.Ge(restartedShare(hour), promql.Num(0.5)), promql.Num(1)), below(against("arrivals"), 1.3)),
		promql.Or(promql.Unless(promql.Vector(metrics.RecordedYoung), promql.Unless(promql.Or(promql.Or(slower, behind), wasteful), fills)),
			promql.Vector(metrics.RecordedFullCache)))
}

// restartedShare returns the number of each model's engines that started within a window, as a share of the engines
// that run now. It may be above 1, because some of the engines that started may have ended.
func restartedShare(window time.Duration) promql.Expr {
	return promql.Div(promql.CountBy(modelLabels, promql.Max(replicaLabels,
		promql.Over("last_over_time", promql.Vector(metrics.RecordedStarted), window))),
		promql.CountBy(modelLabels, promql.Max(replicaLabels, promql.Vector(metrics.EngineInfo))))
}

// freshlyStarted returns the share of each model's engines that started within coldFor, so that their caches are empty
// and their kernels are being compiled.
func freshlyStarted() promql.Expr {
	engines := promql.Max(replicaLabels, promql.Vector(metrics.EngineInfo))
	return promql.Div(promql.CountBy(modelLabels, promql.And(engines, younger(coldFor), promql.On(pageLabels...))),
		promql.CountBy(modelLabels, engines))
}
