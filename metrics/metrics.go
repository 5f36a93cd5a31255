// Package metrics declares the vocabulary: every metric that this project exports or records appears here once.
// Collectors, rules, dashboards and documentation refer to these Go identifiers, so a misspelt metric breaks the
// build instead of leaving a silent gap in a dashboard.
//
// A number that is not declared here does not exist.
package metrics

import (
	"fmt"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
)

// Kind is the Prometheus type of a family.
type Kind uint8

// The kinds a family can have. Summaries are never exported: their quantiles cannot be aggregated.
const (
	Counter Kind = iota + 1
	Gauge
	Histogram
)

// String returns the kind as written on a # TYPE line.
func (k Kind) String() string {
	return [...]string{Counter: "counter", Gauge: "gauge", Histogram: "histogram"}[k]
}

// Aggregate tells how two series of a family may be folded into one when a label is dropped. It guards collectors,
// recording rules and panels alike: nobody sums the usage ratios of eight ranks.
type Aggregate uint8

// The ways to aggregate a family.
const (
	Never Aggregate = iota // identity, state or an extremum: folding has no meaning
	Sum                    // counts and histograms
	Max                    // ratios, and states where the worst one matters
)

// String names the aggregation as in the generated reference.
func (a Aggregate) String() string { return [...]string{"never", "sum", "max"}[a] }

// Label names. They are constants so that no rule matches on a label that no collector sets.
const (
	LabelRuntime   = "runtime"    // engine kind, one of the Runtime values
	LabelModel     = "model_name" // first served name of the model
	LabelNamespace = "namespace"  // Kubernetes namespace of the engine
	LabelPod       = "pod"        // Kubernetes pod of the engine
	LabelContainer = "container"  // Kubernetes container of the engine
	LabelServer    = "server"     // host:port of the engine's page, with the path before it or the query where they tell engines apart
	LabelDPRank    = "dp_rank"    // data-parallel rank, when the engine names it
	LabelRole      = "role"       // prefill, decode or frontend; kv_cache for a KV cache service, gateway for what stands in front of engines; absent when the engine does everything
	LabelReplica   = "replica"    // one of several engines that share a page (Ray)
	LabelOutcome   = "outcome"    // how a request ended, one of the Outcome values
	LabelTier      = "tier"       // where KV cache below the GPU is kept, one of the Tier values
	LabelOperation = "operation"  // direction of a transfer, one of the Operation values
	LabelReason    = "reason"     // reason from a closed set, documented with the family
	LabelMetric    = "metric"     // name of a metric in this vocabulary
	LabelSource    = "source"     // where a number comes from
	LabelQuality   = "quality"    // how far to trust a number, one of the Quality values
	LabelCounted   = "counted"    // when a token is counted, one of the Counted values
	LabelVersion   = "version"    // release, or the range of releases that a page can come from
	LabelCollector = "collector"  // part of this exporter
	LabelInstance  = "instance"   // the node, named after its exporter; set by the scraper
)

// Label sets shared by many families.
var (
	// TargetLabels identify one engine page.
	TargetLabels = []string{LabelRuntime, LabelNamespace, LabelPod, LabelContainer, LabelServer}
	// EngineLabels identify one engine: a model, or one rank of it, behind a page.
	EngineLabels = []string{LabelRuntime, LabelModel, LabelNamespace, LabelPod, LabelContainer, LabelServer, LabelDPRank, LabelRole, LabelReplica}
	// PageLabels identify an engine page in a fleet; ReplicaLabels identify one replica of a model behind it, with
	// its data-parallel ranks folded. Without the node, engines at 127.0.0.1:8000 of two nodes would be one. runtime
	// is left out: it is unknown while an engine does not answer.
	PageLabels    = []string{LabelCluster, LabelInstance, LabelNamespace, LabelPod, LabelServer}
	ReplicaLabels = append([]string{LabelModel}, PageLabels...)
	// DetailLabels split the numbers of one engine.
	DetailLabels = []string{LabelOutcome, LabelTier, LabelOperation, LabelReason, LabelCode, LabelRoute, LabelTenant, LabelPriority}
)

// Loopback matches values of the server label that occur on every node.
const Loopback = `localhost(:.+)?|127\..+|\[::1\].*`

// Family declares one metric.
type Family struct {
	// Name is the full name, unit suffix included.
	Name string
	// Help explains in one sentence what the number means and, where it matters, what it does not mean.
	Help string
	// Kind is the Prometheus type.
	Kind Kind
	// Labels are the variable labels, in the order in which values are passed to Desc.
	Labels []string
	// Aggregate tells how series may be folded.
	Aggregate Aggregate
	// Group is the prefix under which the metric is documented: engine, gateway, gpu, slo, probe or exporter.
	Group string
	// Index is the position in All, stable within one build.
	Index int

	desc *prometheus.Desc
}

// Desc returns the client_golang descriptor of the family.
func (f *Family) Desc() *prometheus.Desc { return f.desc }

// Const builds a client_golang sample of a counter or gauge. Label values follow f.Labels. A wrong number of values
// is a programming error of the caller: it yields an invalid metric, which the registry reports, and never a panic.
func (f *Family) Const(value float64, labelValues ...string) prometheus.Metric {
	kind := prometheus.GaugeValue
	if f.Kind == Counter {
		kind = prometheus.CounterValue
	}
	m, err := prometheus.NewConstMetric(f.desc, kind, value, labelValues...)
	if err != nil {
		return prometheus.NewInvalidMetric(f.desc, fmt.Errorf("%s: %w", f.Name, err))
	}
	return m
}

// HasLabel reports whether name is one of the family's labels. A histogram also has "le".
func (f *Family) HasLabel(name string) bool {
	return slices.Contains(f.Labels, name) || f.Kind == Histogram && name == "le"
}

var all []*Family

// All returns every declared family in order of declaration. Callers must not change the slice.
func All() []*Family { return all }

// Lookup finds a family by its full name; it returns nil if the vocabulary has no such name.
func Lookup(name string) *Family {
	for _, f := range all {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// IsLabel reports whether any family has a label of that name: exported, recorded or foreign.
func IsLabel(name string) bool {
	return slices.ContainsFunc(slices.Concat(all, allRecorded, allForeign), func(f *Family) bool {
		return f.HasLabel(name)
	})
}

// declare registers a family. It runs while package variables are initialised, so a mistake in a
// declaration stops every test and every binary at once.
func declare(kind Kind, agg Aggregate, name, help string, labels ...[]string) *Family {
	f := &Family{Name: name, Help: help, Kind: kind, Aggregate: agg, Labels: slices.Concat(labels...), Index: len(all)}
	f.Group, _, _ = strings.Cut(strings.TrimPrefix(name, "llm_"), "_")
	f.desc = prometheus.NewDesc(name, help, f.Labels, nil)
	if Lookup(name) != nil {
		panic("metrics: declared twice: " + name)
	}
	all = append(all, f)
	return f
}

func histogram(name, help string, labels ...[]string) *Family {
	return declare(Histogram, Sum, name, help, labels...)
}

func counter(name, help string, labels ...[]string) *Family {
	return declare(Counter, Sum, name, help, labels...)
}

func gauge(agg Aggregate, name, help string, labels ...[]string) *Family {
	return declare(Gauge, agg, name, help, labels...)
}

func with(names ...string) []string { return names }
