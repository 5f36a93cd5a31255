package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// modelGroup records the series that dashboards read over weeks. They are per model, so there are far fewer of them
// than the exporters' series per replica. The group also records restarts.
func modelGroup() Group {
	g := Group{Name: "llm-model", Interval: Interval}
	record := func(f *metrics.Family, e promql.Expr) { g.Records = append(g.Records, Record{Name: f, Expr: e}) }
	rate := func(f *metrics.Family) promql.Expr {
		buckets := ofWorkers(func(role *promql.Matcher) promql.Expr {
			return promql.Rate(promql.BucketsOf(f, role), RateWindow.Std())
		})
		return promql.Sum(append([]string{"le", metrics.LabelRuntime, metrics.LabelVersion}, modelLabels...),
			promql.Mul(buckets, promql.Vector(metrics.RecordedVersion), promql.On(replicaLabels...).ManyToOne(metrics.LabelVersion)))
	}
	counted := func(f *metrics.Family, more ...string) promql.Expr {
		return ofWorkers(func(role *promql.Matcher) promql.Expr {
			return promql.Sum(append(more, modelLabels...), once(f, promql.Rate(promql.Vector(f, role), RateWindow.Std())))
		})
	}
	running := func(role *promql.Matcher) promql.Expr {
		return once(metrics.RequestsRunning, promql.Vector(metrics.RequestsRunning, role))
	}
	record(metrics.RecordedVersion, versions())
	record(metrics.RecordedTimeToFirstToken, rate(metrics.TimeToFirstToken))
	record(metrics.RecordedInterTokenLatency, rate(metrics.InterTokenLatency))
	record(metrics.RecordedRequestDuration, rate(metrics.RequestDuration))
	record(metrics.RecordedPromptTokens, counted(metrics.PromptTokens))
	record(metrics.RecordedGenerationTokens, counted(metrics.GenerationTokens))
	record(metrics.RecordedRequests, counted(metrics.Requests, metrics.LabelOutcome))
	record(metrics.RecordedProbes, probes(RateWindow.Std()))
	for _, window := range usersWindows[1:] {
		record(usersServed(window), servedIn(window))
	}
	record(metrics.RecordedRunning, ofWorkers(func(role *promql.Matcher) promql.Expr { return promql.Sum(modelLabels, running(role)) }))
	record(metrics.RecordedWaiting, promql.Sum(modelLabels, once(metrics.RequestsWaiting, promql.Vector(metrics.RequestsWaiting))))
	record(metrics.RecordedReplicas, ofWorkers(func(role *promql.Matcher) promql.Expr {
		return promql.CountBy(modelLabels, promql.CountBy(append([]string{metrics.LabelPod, metrics.LabelServer, home}, modelLabels...),
			running(role)))
	}))
	record(metrics.RecordedKVCacheUsage, promql.Max(modelLabels, promql.Vector(metrics.KVCacheUsage)))
	record(metrics.RecordedGPUShare, shareOfGPU())
	record(metrics.RecordedSlowedGPU, slowed())
	record(metrics.RecordedModelGPUs, promql.CountBy(modelLabels, promql.Vector(metrics.RecordedGPUShare)))
	record(metrics.RecordedServedGPU, promql.Max(append([]string{metrics.LabelRuntime, metrics.LabelGPUUUID}, modelLabels...),
		promql.Over("last_over_time", promql.Vector(metrics.EngineGPUInfo), hour)))
	record(metrics.RecordedThrottledGPUs, throttledShare())
	record(metrics.RecordedStarted, started())
	record(metrics.RecordedCPUWait, promql.Sum(replicaLabels, promql.Rate(promql.Vector(metrics.EngineCPUWait), recentWindow)))
	return g
}

// ofWorkers aggregates the values that engines report, per model. A frontend counts the requests of the workers behind
// it again, so its values are used only if no worker reports the quantity.
func ofWorkers(fold func(role *promql.Matcher) promql.Expr) promql.Expr {
	return promql.OrOn(
		fold(promql.NotRe(metrics.LabelRole, metrics.FrontendRole+"|"+metrics.GatewayRole)),
		fold(promql.Eq(metrics.LabelRole, metrics.FrontendRole)), promql.On(modelLabels...))
}

// shareOfGPU returns the part of each GPU that counts for each model on it: models share a GPU equally.
func shareOfGPU() promql.Expr {
	runs := promql.Max(append([]string{metrics.LabelGPUUUID}, modelLabels...), promql.Vector(metrics.EngineGPUInfo))
	return promql.Div(runs, promql.CountBy(onGPULabels(), runs), promql.On(onGPULabels()...).ManyToOne())
}

// partOf divides a value of each GPU among the models on it.
func partOf(ofGPU promql.Expr) promql.Expr {
	return promql.Mul(promql.Vector(metrics.RecordedGPUShare), ofGPU, promql.On(onGPULabels()...).ManyToOne())
}

// throttledShare returns the share of a model's GPUs that are throttled. It is 0 if no GPU is throttled, and absent if
// no GPU reports throttling. A GPU that does not report throttling counts as not throttled.
func throttledShare() promql.Expr {
	count := func(e promql.Expr) promql.Expr {
		return promql.CountBy(modelLabels, partOf(promql.Max(onGPULabels(), e)))
	}
	return promql.Div(promql.Or(count(above(promql.Vector(metrics.RecordedSlowedGPU), 0.05)),
		times(0, count(promql.Vector(metrics.RecordedSlowedGPU)))), promql.Vector(metrics.RecordedModelGPUs))
}

// before returns the value of a series five minutes ago or, if it was absent then, its last value in the fifteen
// minutes before.
func before(f *metrics.Family, m ...*promql.Matcher) promql.Expr {
	return promql.Over("last_over_time", promql.Offset(promql.Vector(f, m...), 5*minute), 15*minute)
}

// deployed returns each version of a model that did not run five minutes ago, if another version did. If an engine does
// not report its version, the exporter infers bounds such as ">=0.9.2". A change of these bounds is not a deployment,
// because they narrow as the engine reveals more metrics.
func deployed() promql.Expr {
	version, exact := append([]string{metrics.LabelVersion}, modelLabels...), promql.NotRe(metrics.LabelVersion, "|[<>]=.*")
	ran := promql.Max(version, before(metrics.EngineInfo, exact))
	return promql.And(promql.Unless(promql.Max(version, promql.Vector(metrics.EngineInfo, exact)), ran), ran, promql.On(modelLabels...))
}

// started returns each engine whose start time is less than an hour ago and was not the same five minutes ago. The hour
// is enough for loading, after which an engine first reports its start time, and leaves out engines that have run for
// days when they are first read.
func started() promql.Expr {
	now := promql.Max(pageLabels, promql.Vector(metrics.EngineStartTime))
	changed := promql.Unless(now, promql.Equal(now, promql.Max(pageLabels, before(metrics.EngineStartTime))))
	return promql.And(promql.Max(replicaLabels, promql.Vector(metrics.EngineInfo)), promql.And(changed, younger(hour),
		promql.On(pageLabels...)), promql.On(pageLabels...))
}
