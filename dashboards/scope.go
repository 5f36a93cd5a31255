package dashboards

import (
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// AllValue is the value of a variable for "All". It is .* because .+ would hide series without the label: engines
// outside Kubernetes have no namespace, and a single Prometheus sets no cluster.
const AllValue = ".*"

// variable describes a filter of a dashboard.
type variable struct {
	// name is the variable's name, title is its name for people, and label is the label by which it filters.
	name, title, label string
	// from is the family whose label values are the choices. It should have few series.
	from *metrics.Family
}

// These are the filters. The links of alerts set some of them by name: see rules.Style.
var (
	byCluster   = variable{metrics.LabelCluster, "Cluster", metrics.LabelCluster, metrics.EngineInfo}
	byNamespace = variable{metrics.LabelNamespace, "Namespace", metrics.LabelNamespace, metrics.EngineInfo}
	byModel     = variable{metrics.LabelModel, "Model", metrics.LabelModel, metrics.EngineInfo}
	byRuntime   = variable{metrics.LabelRuntime, "Runtime", metrics.LabelRuntime, metrics.EngineInfo}
	byNode      = variable{"node", "Node", metrics.LabelInstance, metrics.EngineInfo}
	bySLO       = variable{metrics.LabelSLO, "Objective", metrics.LabelSLO, metrics.SLOObjective}
	byServedGPU = variable{metrics.LabelGPUUUID, "GPU", metrics.LabelGPUUUID, metrics.EngineGPUInfo}

	byGPUCluster = variable{metrics.LabelCluster, "Cluster", metrics.LabelCluster, metrics.GPUInfo}
	byGPUNode    = variable{"node", "Node", metrics.LabelInstance, metrics.GPUInfo}
	byGPU        = variable{metrics.LabelGPUUUID, "GPU", metrics.LabelGPUUUID, metrics.GPUInfo}

	byExporterCluster = variable{metrics.LabelCluster, "Cluster", metrics.LabelCluster, metrics.ConfigReloadSuccess}
	byExporterNode    = variable{"node", "Node", metrics.LabelInstance, metrics.ConfigReloadSuccess}
)

// scope holds the filters of a dashboard. Its methods build selectors that apply every filter whose label the series
// have, so no panel can forget a filter.
type scope []variable

// where returns the matchers of all filters that apply to a family, followed by the given matchers.
func (s scope) where(f *metrics.Family, more ...*promql.Matcher) []*promql.Matcher {
	return append(s.until(f, ""), more...)
}

// until returns the matchers of the filters before the named filter, because a filter offers only values that remain
// after the filters before it.
func (s scope) until(f *metrics.Family, name string) []*promql.Matcher {
	var m []*promql.Matcher
	for _, v := range s {
		if v.name == name {
			break
		}
		if !has(f, v.label) {
			continue
		}
		values := "$" + v.name
		if f == metrics.Alerts || f == metrics.AlertsForState || f == metrics.RecordedVerdict || f == metrics.RecordedEvidence ||
			f.Owner == metrics.Probe {
			values += "|" // series without the label concern more than the selection, so they are included, too
		}
		m = append(m, promql.Re(v.label, values))
	}
	return m
}

// has reports whether series of a family can have a label, including labels that a scrape adds. Recorded series do not
// have the instance of a scrape.
func has(f *metrics.Family, label string) bool {
	return slices.Contains(f.Labels, label) || label == metrics.LabelCluster || label == metrics.LabelInstance && f.Exported()
}

// of selects the series of a gauge or a counter that pass the filters.
func (s scope) of(f *metrics.Family, more ...*promql.Matcher) promql.Expr {
	return promql.Vector(f, s.where(f, more...)...)
}

// rate returns the per-second rate of a counter, summed by labels.
func (s scope) rate(by []string, f *metrics.Family, more ...*promql.Matcher) promql.Expr {
	return promql.Sum(by, promql.Rate(s.of(f, more...), rateInterval))
}

// bounded lists the labels by which the bounds of buckets differ.
var bounded = []string{metrics.LabelRuntime, metrics.LabelVersion}

// buckets returns the observations per second up to each bound (le), as replicas report them, with the version of each
// replica.
func (s scope) buckets(h *metrics.Family, more ...*promql.Matcher) promql.Expr {
	return promql.Mul(promql.Rate(promql.BucketsOf(h, s.where(h, more...)...), rateInterval), s.of(metrics.RecordedVersion),
		promql.On(replicas...).ManyToOne(metrics.LabelVersion))
}

// quantile returns a quantile of a histogram. The buckets of two runtimes or versions may have different bounds and
// cannot be summed. Therefore, it computes one quantile for each runtime and version, and returns the highest.
func (s scope) quantile(q float64, by []string, h *metrics.Family) promql.Expr {
	return worstOf(q, by, s.buckets(h))
}

func worstOf(q float64, by []string, buckets promql.Expr) promql.Expr {
	return promql.Max(by, promql.Call("histogram_quantile", promql.Num(q), promql.Sum(slices.Concat([]string{"le"}, bounded, by), buckets)))
}

// distribution returns the buckets of a histogram, of the runtime and version with the most observations. The buckets
// are recorded per model or, if a node or runtime is chosen, reported by replicas.
func (s scope) distribution(recorded, h *metrics.Family) promql.Expr {
	ofMost := func(buckets, count promql.Expr) promql.Expr {
		most := promql.TopK(1, nil, promql.Sum(bounded, count))
		return promql.Sum([]string{"le"}, promql.And(buckets, most, promql.On(bounded...)))
	}
	infinite := promql.Eq("le", "+Inf")
	return s.perModel(ofMost(s.of(recorded), s.of(recorded, infinite)), ofMost(s.buckets(h), s.buckets(h, infinite)))
}

// quantiles returns the three quantiles that people compare, of a histogram whose buckets are recorded.
func (s scope) quantiles(recorded, h *metrics.Family) []Query {
	of := func(q float64) promql.Expr {
		return s.perModel(s.recordedQuantile(q, recorded), s.quantile(q, models, h))
	}
	legend := " " + modelLegend
	return []Query{{of(0.5), "p50" + legend}, {of(0.95), "p95" + legend}, {of(0.99), "p99" + legend}}
}

// spent returns the sum of a histogram of durations per second.
func (s scope) spent(by []string, h *metrics.Family) promql.Expr {
	return promql.Sum(by, promql.Rate(promql.SumOf(h, s.where(h)...), rateInterval))
}

// count returns a histogram's observations per second.
func (s scope) count(by []string, h *metrics.Family) promql.Expr {
	return promql.Sum(by, promql.Rate(promql.CountOf(h, s.where(h)...), rateInterval))
}

// mean returns the mean of a histogram's observations.
func (s scope) mean(by []string, h *metrics.Family) promql.Expr {
	return over(s.spent(by, h), s.count(by, h))
}

// perModel returns recorded, the series per model or, if the reader has chosen a node or a runtime, exported, because
// recorded series lack these labels. Prometheus reads only one of the two: a chosen value, unlike "All", does not match
// the empty value of the label chosen, which no series has.
func (s scope) perModel(recorded, exported promql.Expr) promql.Expr {
	var chosen strings.Builder
	for _, v := range s {
		if v.label == metrics.LabelInstance || v.label == metrics.LabelRuntime {
			chosen.WriteString("$" + v.name)
		}
	}
	return promql.Or(promql.Where(recorded, promql.Re(metrics.LabelChosen, chosen.String())),
		promql.Where(exported, promql.NotRe(metrics.LabelChosen, chosen.String())))
}

// recordedQuantile returns a quantile per model from recorded buckets, for long ranges and for questions that are not
// about replicas.
func (s scope) recordedQuantile(q float64, buckets *metrics.Family) promql.Expr {
	return worstOf(q, models, s.of(buckets))
}
