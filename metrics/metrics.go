// Package metrics declares the vocabulary. Every metric that this project exports or records appears here once.
// Collectors, rules, dashboards and documentation refer to these Go identifiers. A misspelt metric thus breaks the
// build, and leaves no silent gap in a dashboard.
//
// A number that is not declared here is not exported.
package metrics

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"
)

// Owner is the reporter of a family's numbers.
type Owner string

// The owners.
const (
	Engine     Owner = "engine"     // an engine, on its metrics page
	Target     Owner = "target"     // the exporter, about an engine and the engine's metrics page
	Gateway    Owner = "gateway"    // a gateway in front of engines, on its metrics page
	GPU        Owner = "gpu"        // a GPU, or the exporter about its readings of the GPU
	Allocation Owner = "allocation" // the exporter, about the containers that use a GPU
	Judgement  Owner = "judgement"  // the exporter, about a GPU's fitness for use
	SLO        Owner = "slo"        // the exporter, about objectives
	Probe      Owner = "probe"      // a synthetic client
	Exporter   Owner = "exporter"   // the exporter, about itself
	Rules      Owner = "rules"      // recording rules
	Others     Owner = "others"     // other software, such as Prometheus
)

// Kind describes the values of a family, and decides the family's Prometheus type.
type Kind uint8

// These are the kinds of families. Summaries are never exported, because their quantiles cannot be aggregated.
const (
	Counter Kind = iota + 1
	Gauge
	Info // a gauge that is always 1; its labels carry the information
	Histogram
)

// String returns the Prometheus type, as written on a # TYPE line.
func (k Kind) String() string {
	return [...]string{Counter: "counter", Gauge: "gauge", Info: "gauge", Histogram: "histogram"}[k]
}

// Aggregate describes how two series of a family become one when a label is dropped. Collectors, recording rules and
// panels all use it, so that no code adds up the usage ratios of eight ranks.
type Aggregate uint8

// The ways to aggregate a family.
const (
	Never Aggregate = iota // identity, state or an extremum, which cannot be aggregated
	Sum                    // counts and histograms
	Max                    // ratios, and states of which the worst matters
)

// String names the aggregation for the generated reference.
func (a Aggregate) String() string { return [...]string{"never", "sum", "max"}[a] }

// These are label names. They are constants, so that no rule matches on a label that no collector sets.
const (
	LabelRuntime   = "runtime"    // engine kind, one of the Runtime values
	LabelModel     = "model_name" // first served name of the model
	LabelNamespace = "namespace"  // Kubernetes namespace of the engine
	LabelPod       = "pod"        // Kubernetes pod of the engine
	LabelContainer = "container"  // Kubernetes container of the engine
	LabelServer    = "server"     // host:port of the engine's metrics endpoint, with its prefix or query if they distinguish engines
	LabelDPRank    = "dp_rank"    // data-parallel rank, when the engine names it
	// LabelRole is prefill, decode or frontend. It is kv_cache for a KV cache service, and gateway for a server in front
	// of engines. It is absent if the engine does everything.
	LabelRole      = "role"
	LabelReplica   = "replica"   // one of several engines that share a metrics page (Ray)
	LabelOutcome   = "outcome"   // how a request ended, one of the Outcome values
	LabelLora      = "lora"      // name of a LoRA adapter
	LabelTier      = "tier"      // place below the GPU where KV cache is stored, one of the Tier values
	LabelOperation = "operation" // direction of a transfer, one of the Operation values
	LabelReason    = "reason"    // reason from a fixed set, documented with the family
	LabelMetric    = "metric"    // name of a metric in this vocabulary
	LabelSource    = "source"    // where a number comes from
	LabelQuality   = "quality"   // how reliable a number is, one of the Quality values
	LabelCounted   = "counted"   // when the parts of a request are counted, one of the Counted values
	LabelStage     = "stage"     // stage of a request: see llm_engine_stage_seconds_total
	LabelBatch     = "batch"     // number of requests that run at once, from a fixed scale
	LabelSetting   = "setting"   // setting with which an engine runs, one of the Setting values
	LabelValue     = "value"     // value of a setting
	LabelOld       = "old"       // value of a setting before it changed
	LabelNew       = "new"       // value of a setting since the change
	LabelVersion   = "version"   // release, or the range of releases that a metrics page can come from
	LabelCollector = "collector" // part of this exporter
	LabelInstance  = "instance"  // the node, identified by its exporter; set by the scraper
)

// Label sets shared by many families.
var (
	// TargetLabels identify the metrics endpoint of one engine.
	TargetLabels = []string{LabelRuntime, LabelNamespace, LabelPod, LabelContainer, LabelServer}
	// EngineLabels identify one engine behind a metrics page: a model, or one rank of it.
	EngineLabels = []string{
		LabelRuntime, LabelModel, LabelNamespace, LabelPod, LabelContainer, LabelServer, LabelDPRank, LabelRole,
		LabelReplica,
	}
	// PageLabels identify an engine's metrics endpoint in a fleet. ReplicaLabels identify one replica of a model behind
	// it, with all data-parallel ranks. Without instance, which identifies the node, engines at 127.0.0.1:8000 of two
	// nodes would look like one. The runtime is left out, because it is unknown while an engine does not answer.
	PageLabels    = []string{LabelCluster, LabelInstance, LabelNamespace, LabelPod, LabelServer}
	ReplicaLabels = append([]string{LabelModel}, PageLabels...)
	// DetailLabels split the numbers of one engine.
	DetailLabels = []string{LabelOutcome, LabelTier, LabelOperation, LabelReason, LabelCode, LabelRoute, LabelTenant, LabelPriority, LabelLora}
)

// Loopback matches values of the server label that occur on every node.
const Loopback = `localhost(?::.+)?|127\..+|\[::1\].*`

// Family declares one metric.
type Family struct {
	// Name is the full name, including the unit suffix.
	Name string
	// Help explains in one sentence what the number means. If useful, it also states what the number does not mean.
	Help string
	// Kind is the kind of the values.
	Kind Kind
	// Labels lists the variable labels, in the order in which values are passed to Desc.
	Labels []string
	// Aggregate describes how several series become one.
	Aggregate Aggregate
	// Owner reports the numbers.
	Owner Owner
	// Experimental means that name, type, labels and meaning may still change in a minor version. All other exported
	// families are stable, and testdata/stable.txt lists them.
	Experimental bool
	// SinceRead means that a counter counts from the exporter's first reading of an engine. The counter does not show
	// earlier events of the engine.
	SinceRead bool
	// Index is the position in All. It is stable within one build.
	Index int

	desc *prometheus.Desc
}

// Desc returns the client_golang descriptor of the family.
func (f *Family) Desc() *prometheus.Desc { return f.desc }

// Exported reports whether the exporter exposes the family.
func (f *Family) Exported() bool { return f.Owner != Rules && f.Owner != Others }

// OfEngines reports whether the series of a family belong to single engines. A gateway may also report the same
// quantity for its engines.
func (f *Family) OfEngines() bool { return f.Owner == Engine || f.Owner == Target }

// HasLabel reports whether name is one of the family's labels. A histogram also has "le".
func (f *Family) HasLabel(name string) bool {
	return slices.Contains(f.Labels, name) || f.Kind == Histogram && name == "le"
}

var all []*Family

// All returns every declared family in order of declaration. Callers must not change the slice.
func All() []*Family { return all }

// Lookup finds a family by its full name. It returns nil if the vocabulary has no such name.
func Lookup(name string) *Family {
	for _, f := range all {
		if f.Name == name {
			return f
		}
	}
	return nil
}

// IsLabel reports whether any exported, recorded or foreign family has a label of that name.
func IsLabel(name string) bool {
	return slices.ContainsFunc(slices.Concat(all, allRecorded, allForeign), func(f *Family) bool {
		return f.HasLabel(name)
	})
}

// declare registers a family. It runs while package variables are initialised, so a wrong declaration stops every test
// and every binary at start.
func declare(owner Owner, kind Kind, agg Aggregate, name, help string, labels ...[]string) *Family {
	f := &Family{Name: name, Help: help, Owner: owner, Kind: kind, Aggregate: agg, Labels: slices.Concat(labels...), Index: len(all)}
	f.desc = prometheus.NewDesc(name, help, f.Labels, nil)
	if Lookup(name) != nil {
		panic("metrics: declared twice: " + name)
	}
	all = append(all, f)
	return f
}

// experimental marks a family that may still change.
func (f *Family) experimental() *Family {
	f.Experimental = true
	return f
}

// sinceRead marks a counter that begins at the exporter's first reading of an engine.
func (f *Family) sinceRead() *Family {
	f.SinceRead = true
	return f
}

func (o Owner) histogram(name, help string, labels ...[]string) *Family {
	return declare(o, Histogram, Sum, name, help, labels...)
}

func (o Owner) counter(name, help string, labels ...[]string) *Family {
	return declare(o, Counter, Sum, name, help, labels...)
}

func (o Owner) gauge(agg Aggregate, name, help string, labels ...[]string) *Family {
	return declare(o, Gauge, agg, name, help, labels...)
}

func (o Owner) info(name, help string, labels ...[]string) *Family {
	return declare(o, Info, Never, name, help, labels...)
}

// Bool returns 1 if a condition is true, and otherwise 0.
func Bool(holds bool) float64 {
	if holds {
		return 1
	}
	return 0
}

func with(names ...string) []string { return names }
