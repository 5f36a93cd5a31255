package rules

import (
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// These labels identify one engine in a fleet: see metrics.PageLabels.
var (
	pageLabels    = metrics.PageLabels
	replicaLabels = metrics.ReplicaLabels
	// rankLabels identify a unit that computes independently behind a metrics endpoint: a data-parallel rank, or one of
	// several engines.
	rankLabels = append([]string{metrics.LabelDPRank, metrics.LabelReplica}, metrics.ReplicaLabels...)
)

// theEngine is a template that names an alert's engine in a summary: its pod or, without one, its address and node.
const theEngine = "{{ with $labels.pod }}{{ . }}{{ else }}{{ or $labels.server \"without a name\" }}{{ with $labels.instance }} on {{ " +
	". }}{{ end }}{{ end }}"

// These templates name an alert's model, GPU and node. Most summaries do not name the model, because the title of a
// notification begins with it.
const (
	theModel = `{{ or $labels.model_name "a model without a name" }}`
	// The UUID is shortened, because the address of the runbook has it in full.
	theGPU   = `GPU{{ with or $labels.gpu $labels.gpu_uuid }} {{ reReplaceAll "^(GPU|MIG)-(\\w{8})-.+$" "$2" . }}{{ end }}`
	atServer = "{{ with $labels.server }} at {{ . }}{{ end }}"
	atNode   = "{{ with $labels.instance }} on {{ . }}{{ end }}"
)

// foundEngine is like theEngine, but names the engine of a query result, which is the dot.
const foundEngine = "{{ with .Labels.pod }}{{ . }}{{ else }}{{ .Labels.server }}{{ with .Labels.instance }} on {{ . }}{{ end }}{{ end }}"

// home is a label that distinguishes engines with the same loopback address on different nodes.
const home = "home"

// once reduces e to one series per engine and set of f's labels, so that an engine that the exporters of two nodes read
// counts only once in a sum. Engines with a loopback address, which does not identify them, have their instance as
// home.
func once(f *metrics.Family, e promql.Expr) promql.Expr {
	at := promql.Call("label_join", e, promql.Str(home), promql.Str(";"), promql.Str(metrics.LabelServer), promql.Str(metrics.LabelInstance))
	here := promql.Call("label_replace", at, promql.Str(home), promql.Str("$1"), promql.Str(home),
		promql.Str("(?:"+metrics.Loopback+");(.+)|.*"))
	return promql.Max(slices.Concat([]string{metrics.LabelCluster}, f.Labels, []string{home}), here)
}
