package rules

import (
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// capacityGroup records the requests of each model as a share of the highest load that meets the model's objectives.
// Exporters learn the capacity of engines.
func capacityGroup() Group {
	return Group{Name: "llm-capacity", Interval: Interval, Records: []Record{
		{Name: metrics.RecordedCapacity, Expr: modelCapacity()},
		{Name: metrics.RecordedUtilisation, Expr: utilisation()},
		{Name: metrics.RecordedDesired, Expr: desiredReplicas()},
		{Name: metrics.RecordedEnergyPerToken, Expr: energyPerToken()},
	}}
}

// modelCapacity returns the requests per second that each model can serve before an objective breaks. If an engine's
// capacity is unknown, the engine counts with the mean of the known engines of its role. Each request needs an engine
// of each role, so the role that can serve the fewest requests is the limit.
func modelCapacity() promql.Expr {
	more := []string{metrics.LabelSLO, metrics.LabelKind}
	perReplica := promql.Sum(slices.Concat(inRole(replicaLabels), more), promql.Vector(metrics.EngineCapacity))
	return promql.Min(slices.Concat(modelLabels, more), promql.Mul(promql.Avg(slices.Concat(inRole(modelLabels), more), perReplica),
		replicasInRole(), promql.On(inRole(modelLabels)...).ManyToOne()))
}

// replicasInRole returns the number of replicas of each model and role that exporters read.
func replicasInRole() promql.Expr {
	return promql.CountBy(inRole(modelLabels), promql.CountBy(inRole(replicaLabels), promql.Vector(metrics.RequestsRunning)))
}

// utilisation returns the arriving requests as a share of the capacity. It is absent for a capacity of zero.
func utilisation() promql.Expr {
	return promql.Div(now("arrivals"), above(promql.Vector(metrics.RecordedCapacity), 0), promql.On(modelLabels...).OneToMany())
}

// desiredReplicas returns how many replicas are needed to meet every objective at the low end of the estimated
// capacity. It also returns the objective that needs the most replicas, and its bottleneck. Without requests, one
// replica is needed. If the capacity is unknown, there is no result.
func desiredReplicas() promql.Expr {
	most := promql.TopK(1, modelLabels, utilised("low"))
	all := promql.Sum(modelLabels, promql.Or(replicasInRole(), labelled(hidden(), metrics.LabelReason, "hidden")))
	needed := promql.Call("clamp_min", promql.Call("ceil", promql.Mul(most, all, promql.On(modelLabels...).ManyToOne())), promql.Num(1))
	return promql.Mul(needed, bottleneck(), promql.On(objectiveLabels()...).ManyToOne(metrics.LabelLimit))
}

// objectiveLabels name an objective of a model.
func objectiveLabels() []string { return append(slices.Clone(modelLabels), metrics.LabelSLO) }

// bottleneck returns 1 for each objective of a model, with the limit of most engines as the label limit, if known.
func bottleneck() promql.Expr {
	limits := promql.CountBy(append(objectiveLabels(), metrics.LabelLimit), promql.Vector(metrics.EngineCapacityLimit))
	unknown := promql.Add(utilised("low"), promql.Num(1))
	return promql.Call("clamp_max", promql.OrOn(promql.TopK(1, objectiveLabels(), limits), unknown, promql.On(objectiveLabels()...)),
		promql.Num(1))
}

// hidden counts the replicas of each model that are not read because their exporter cannot be scraped. Each is assumed
// to serve as many requests as the other replicas.
func hidden() promql.Expr {
	gone := promql.Equal(promql.Min(asker, promql.Vector(metrics.Up)), promql.Num(0))
	return promql.CountBy(modelLabels, promql.Unless(promql.And(promql.Vector(metrics.RecordedExpected), gone, promql.On(asker...)),
		promql.Vector(metrics.EngineInfo), promql.On(replicaLabels...)))
}

func utilised(kind string, m ...*promql.Matcher) promql.Expr {
	return promql.Vector(metrics.RecordedUtilisation, append(m, promql.Eq(metrics.LabelKind, kind))...)
}

// energyPerToken returns the joules of each model's GPUs per token that it generates. Models that share a GPU share its energy.
func energyPerToken() promql.Expr {
	return promql.Div(promql.Sum(modelLabels, partOf(promql.Max(onGPULabels(), promql.Rate(promql.Vector(metrics.GPUEnergy), pageWindow)))),
		above(promql.Vector(metrics.RecordedGenerationTokens), 0), promql.On(modelLabels...))
}

// overloaded returns each utilisation above one, by objective of the alert's model. If the requests or the engines have
// changed, it returns nothing. The page then shows the change, and has no room for more.
func overloaded() promql.Expr {
	return promql.Unless(above(utilised("expected", sameModel()...), 1), promql.Vector(metrics.RecordedPrinted, sameModel()...), promql.On())
}
