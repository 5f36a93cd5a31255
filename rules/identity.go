package rules

import (
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Labels of one engine in a fleet: see metrics.PageLabels.
var (
	pageLabels    = metrics.PageLabels
	replicaLabels = metrics.ReplicaLabels
)

// theEngine names an engine in a summary.
const theEngine = "{{ with $labels.pod }}{{ . }} {{ end }}{{ $labels.server }}{{ with $labels.instance }} on {{ . }}{{ end }}"

// fold is an aggregation by labels.
type fold func(by []string, e promql.Expr) promql.Expr

// told folds e by labels that tell engines apart: by its address, and where that is a loopback's by the
// node as well.
func told(f fold, by []string, e promql.Expr) promql.Expr {
	address := slices.DeleteFunc(slices.Clone(by), func(l string) bool { return l == metrics.LabelInstance })
	return promql.Or(
		f(address, promql.Where(e, promql.NotRe(metrics.LabelServer, metrics.Loopback))),
		f(by, promql.Where(e, promql.Re(metrics.LabelServer, metrics.Loopback))))
}

// once is e with one series per engine and detail, however many exporters read the engine.
func once(f *metrics.Family, e promql.Expr) promql.Expr {
	return told(promql.Max, slices.Concat([]string{metrics.LabelCluster, metrics.LabelInstance}, f.Labels), e)
}

// largest is the largest value of e by labels of pages or replicas.
func largest(by []string, e promql.Expr) promql.Expr { return told(promql.Max, by, e) }

// sum adds e up by labels. Where they are those of replicas, an engine that two exporters read counts once.
func sum(by []string, e promql.Expr) promql.Expr {
	if !slices.Contains(by, metrics.LabelServer) {
		return promql.Sum(by, e)
	}
	engines := slices.Concat([]string{metrics.LabelCluster, metrics.LabelInstance}, metrics.EngineLabels)
	for _, l := range by {
		if !slices.Contains(engines, l) {
			engines = append(engines, l)
		}
	}
	return promql.Sum(by, told(promql.Max, engines, e))
}

// replicas counts the replicas of models that have e.
func replicas(by []string, e promql.Expr) promql.Expr {
	return promql.CountBy(by, largest(replicaLabels, e))
}
