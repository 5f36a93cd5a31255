// Package metrics is the vocabulary: every metric that this project exports or records is declared
// here, once. Collectors, rules, dashboards and documentation refer to these Go identifiers, so a
// misspelt metric is a build error and not a silent gap in a dashboard.
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

// Aggregate says how two series of a family may be folded into one when a label has to go. It
// guards collectors, recording rules and panels alike: usage ratios of eight ranks are not summed.
type Aggregate uint8

// How a family may be aggregated.
const (
	Never Aggregate = iota // identity, state or an extremum: folding has no meaning
	Sum                    // counts and histograms
	Max                    // ratios and states where the worst one matters
)

// String names the aggregation as in the generated reference.
func (a Aggregate) String() string { return [...]string{"never", "sum", "max"}[a] }

// Label names. They are constants so that a rule cannot match on a label that no collector sets.
const (
	LabelRuntime   = "runtime"    // engine kind, one of the Runtime values
	LabelModel     = "model_name" // first served name of the model
	LabelNamespace = "namespace"  // Kubernetes namespace of the engine
	LabelPod       = "pod"        // Kubernetes pod of the engine
	LabelContainer = "container"  // Kubernetes container of the engine
	LabelServer    = "server"     // host:port of the engine's page, and the path before it or the query where they tell engines apart
	LabelDPRank    = "dp_rank"    // data-parallel rank, when the engine names it
	LabelRole      = "role"       // prefill, decode or frontend; kv_cache for what is no engine; absent when the engine does everything
	LabelReplica   = "replica"    // one of several engines that share a page (Ray)
	LabelOutcome   = "outcome"    // how a request ended, one of the Outcome values
	LabelTier      = "tier"       // where a KV cache below the GPU's is, one of the Tier values
	LabelOperation = "operation"  // which way a transfer went, one of the Operation values
	LabelReason    = "reason"     // why, from a closed set documented with the family
	LabelMetric    = "metric"     // a name of this vocabulary
	LabelSource    = "source"     // where a number was read
	LabelQuality   = "quality"    // how far to trust it, one of the Quality values
	LabelCounted   = "counted"    // when a token is counted, one of the Counted values
	LabelVersion   = "version"    // release, or the bracket of releases a page can be from
	LabelCollector = "collector"  // a part of this exporter
	LabelInstance  = "instance"   // the node, by the exporter on it: set by the scraper
)

// Label sets shared by many families.
var (
	// TargetLabels identify one engine page.
	TargetLabels = []string{LabelRuntime, LabelNamespace, LabelPod, LabelContainer, LabelServer}
	// EngineLabels identify one engine: a model (and a rank of it) behind a page.
	EngineLabels = []string{LabelRuntime, LabelModel, LabelNamespace, LabelPod, LabelContainer, LabelServer, LabelDPRank, LabelRole, LabelReplica}
	// PageLabels identify an engine page in a fleet, ReplicaLabels one replica of a model behind it, its
	// data-parallel ranks folded. Without the node, engines at 127.0.0.1:8000 of two nodes would be one.
	// runtime is not among them: it is unknown while an engine does not answer.
	PageLabels    = []string{LabelCluster, LabelInstance, LabelNamespace, LabelPod, LabelServer}
	ReplicaLabels = append([]string{LabelModel}, PageLabels...)
	// DetailLabels split what one engine says.
	DetailLabels = []string{LabelOutcome, LabelTier, LabelOperation, LabelReason}
)

// Loopback matches values of the server label that every node has.
const Loopback = `localhost(:.+)?|127\..+|\[::1\].*`

// Family declares one metric.
type Family struct {
	// Name is the full name, unit suffix included.
	Name string
	// Help says in one sentence what the number means and, where it matters, what it does not mean.
	Help string
	// Kind is the Prometheus type.
	Kind Kind
	// Labels are the variable labels, in the order in which values are passed to Desc.
	Labels []string
	// Aggregate says how series may be folded.
	Aggregate Aggregate
	// Group is the prefix family the metric is documented under: engine, gpu, slo, probe or exporter.
	Group string
	// Index is the position in All, stable for one build.
	Index int

	desc *prometheus.Desc
}

// Desc is the client_golang descriptor of the family.
func (f *Family) Desc() *prometheus.Desc { return f.desc }

// Const builds a client_golang sample of a counter or gauge. Label values follow f.Labels. A wrong
// number of values is a programming error of the caller and comes back as an invalid metric, which
// the registry reports; it never panics.
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

// HasLabel reports whether name is one of the family's labels. For histograms "le" is one.
func (f *Family) HasLabel(name string) bool {
	return slices.Contains(f.Labels, name) || f.Kind == Histogram && name == "le"
}

var all []*Family

// All returns every declared family, ordered by declaration. The slice must not be changed.
func All() []*Family { return all }

// Lookup finds a family by its full name; nil when the vocabulary has no such name.
func Lookup(name string) *Family {
	for _, f := range all {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// IsLabel reports whether some family has a label of that name: exported, recorded, or of others.
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
