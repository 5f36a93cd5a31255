package rules

import (
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// capacityGroup records the capacity of each model, which is the highest load at which the model meets its objectives,
// and what follows from it. Exporters learn the capacity of engines.
func capacityGroup() Group {
	return Group{Name: "llm-capacity", Interval: Interval, Records: []Record{
		{Name: metrics.RecordedCapacity, Expr: modelCapacity()},
		{Name: metrics.RecordedUtilisation, Expr: utilisation()},
		{Name: metrics.RecordedDesired, Expr: desiredReplicas()},
		{Name: metrics.RecordedEnergyPerToken, Expr: energyPerToken()},
	}}
}

// modelCapacity returns the requests per second that each model can serve before an objective breaks. An engine whose
// capacity is unknown counts with the mean capacity of the other engines in its role. Each request needs an engine of
// each role, so the role that can serve the fewest requests is the limit.
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

// utilisation returns the arriving requests as a share of the capacity. It has no result for a capacity of zero.
func utilisation() promql.Expr {
	return promql.Div(now("arrivals"), above(promql.Vector(metrics.RecordedCapacity), 0), promql.On(modelLabels...).OneToMany())
}

// desiredReplicas returns how many replicas are needed to meet every objective at the low end of the estimated
// capacity. The labels name the objective that needs the most replicas, and the bottleneck. Without requests, one
// replica is needed. If the capacity is unknown, there is no result.
func desiredReplicas() promql.Expr {
	most := promql.TopK(1, modelLabels, utilised("low"))
	all := promql.Sum(modelLabels, promql.Or(replicasInRole(), labelled(hidden(), metrics.LabelReason, "hidden")))
	needed := promql.Call("clamp_min", promql.Call("ceil", promql.Mul(most, all, promql.On(modelLabels...).ManyToOne())), promql.Num(1))
	return promql.Mul(needed, bottleneck(), promql.On(objectiveLabels()...).ManyToOne(metrics.LabelLimit))
}

// objectiveLabels returns the labels that identify an objective of a model.
func objectiveLabels() []string { return append(slices.Clone(modelLabels), metrics.LabelSLO) }

// bottleneck returns 1 for each objective of a model. The label limit is what limits the capacity of most engines, if
// known.
func bottleneck() promql.Expr {
	limits := promql.CountBy(append(objectiveLabels(), metrics.LabelLimit), promql.Vector(metrics.EngineCapacityLimit))
	unknown := promql.Add(utilised("low"), promql.Num(1))
	return promql.Call("clamp_max", promql.OrOn(promql.TopK(1, objectiveLabels(), limits), unknown, promql.On(objectiveLabels()...)),
		promql.Num(1))
}

// hidden counts the replicas of each model that are not read because their exporter cannot be scraped. They are assumed
// to be needed as much as the others.
func hidden() promql.Expr {
	gone := promql.Equal(promql.Min(asker, promql.Vector(metrics.Up)), promql.Num(0))
	return promql.CountBy(modelLabels, promql.Unless(promql.And(promql.Vector(metrics.RecordedExpected), gone, promql.On(asker...)),
		promql.Vector(metrics.EngineInfo), promql.On(replicaLabels...)))
}

func utilised(kind string, m ...*promql.Matcher) promql.Expr {
	return promql.Vector(metrics.RecordedUtilisation, append(m, promql.Eq(metrics.LabelKind, kind))...)
}

// energyPerToken returns the joules that each model's GPUs use per generated token. The energy of a GPU that several
// models use is divided among them.
func energyPerToken() promql.Expr {
	return promql.Div(promql.Sum(modelLabels, partOf(promql.Max(onGPULabels(), promql.Rate(promql.Vector(metrics.GPUEnergy), pageWindow)))),
		above(promql.Vector(metrics.RecordedGenerationTokens), 0), promql.On(modelLabels...))
}

// overloaded returns the utilisation of the alert's model by objective, where it is above one. If the page shows
// changes of the requests or engines, there is no result, because the page has no room for more.
func overloaded() promql.Expr {
	return promql.Unless(above(utilised("expected", sameModel()...), 1), promql.Vector(metrics.RecordedPrinted, sameModel()...), promql.On())
}
