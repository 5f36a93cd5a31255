package rules

import (
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// capacityGroup records how much of what holds the objectives each model is asked for. What an engine can do, its exporter has learnt.
func capacityGroup() Group {
	return Group{Name: "llm-capacity", Interval: Interval, Records: []Record{
		{Name: metrics.RecordedCapacity, Expr: modelCapacity()},
		{Name: metrics.RecordedUtilisation, Expr: utilisation()},
		{Name: metrics.RecordedDesired, Expr: desiredReplicas()},
		{Name: metrics.RecordedEnergyPerToken, Expr: energyPerToken()},
	}}
}

// modelCapacity returns what each model serves per second before an objective breaks. An engine that nobody knows enough of counts
// as the mean of those that are known.
func modelCapacity() promql.Expr {
	more := []string{metrics.LabelSLO, metrics.LabelKind}
	perReplica := promql.Sum(slices.Concat(replicaLabels, more), promql.Vector(metrics.EngineCapacity))
	return promql.Mul(promql.Avg(slices.Concat(modelLabels, more), perReplica), promql.Vector(metrics.RecordedReplicas), promql.On(modelLabels...).ManyToOne())
}

// utilisation returns the requests that arrive as a share of it. A capacity of nothing has none.
func utilisation() promql.Expr {
	return promql.Div(now("arrivals"), above(promql.Vector(metrics.RecordedCapacity), 0), promql.On(modelLabels...).OneToMany())
}

// desiredReplicas returns how many replicas hold every objective where the capacity is as low as it may be, and the objective that
// asks for them.
func desiredReplicas() promql.Expr {
	most := promql.TopK(1, modelLabels, utilised("low"))
	return promql.Call("clamp_min", promql.Call("ceil", promql.Mul(most, promql.Vector(metrics.RecordedReplicas), promql.On(modelLabels...).ManyToOne())), promql.Num(1))
}

func utilised(kind string, m ...*promql.Matcher) promql.Expr {
	return promql.Vector(metrics.RecordedUtilisation, append(m, promql.Eq(metrics.LabelKind, kind))...)
}

// energyPerToken returns the joules of each model's GPUs per token that it generates. Models that share a GPU share its energy.
func energyPerToken() promql.Expr {
	share := promql.Div(promql.Max(onGPULabels(), promql.Rate(promql.Vector(metrics.GPUEnergy), pageWindow)), promql.Vector(metrics.RecordedGPUModels), promql.On(onGPULabels()...))
	return promql.Div(promql.Sum(modelLabels, promql.Mul(promql.Vector(metrics.RecordedServedGPU), share, promql.On(onGPULabels()...).ManyToOne())),
		above(promql.Vector(metrics.RecordedGenerationTokens), 0), promql.On(modelLabels...))
}

// overloaded returns the share of each objective of the alert's model that more requests arrive for than hold it. Where the
// requests have changed, or the engines, a page says that, and has no room for more.
func overloaded() promql.Expr {
	return promql.Unless(above(utilised("expected", sameModel()...), 1), promql.Vector(metrics.RecordedPrinted, sameModel()...), promql.On())
}
