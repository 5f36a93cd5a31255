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
	// rankLabels identify a unit behind a metrics endpoint that computes independently. It is a data-parallel rank, or one
	// of several engines.
	rankLabels = append([]string{metrics.LabelDPRank, metrics.LabelReplica}, metrics.ReplicaLabels...)
)

// theEngine is a template that names an engine in a summary. If the engine has no pod, it also names the node.
const theEngine = "{{ with $labels.pod }}{{ . }}{{ else }}{{ or $labels.server \"without a name\" }}{{ with $labels.instance }} on {{ " +
	". }}{{ end }}{{ end }}"

// These templates name an alert's model, GPU and node. The title of a notification begins with the model, so other
// alerts' summaries do not repeat it.
const (
	theModel = `{{ or $labels.model_name "a model without a name" }}`
	// The UUID is in the address of the runbook.
	theGPU   = `GPU{{ with or $labels.gpu $labels.gpu_uuid }} {{ reReplaceAll "^(GPU|MIG)-(\\w{8})-.+$" "$2" . }}{{ end }}`
	atServer = "{{ with $labels.server }} at {{ . }}{{ end }}"
	atNode   = "{{ with $labels.instance }} on {{ . }}{{ end }}"
)

// foundEngine is theEngine for a query result, which is the dot.
const foundEngine = "{{ with .Labels.pod }}{{ . }}{{ else }}{{ .Labels.server }}{{ with .Labels.instance }} on {{ . }}{{ end }}{{ end }}"

// home is a label that distinguishes engines by their node, if their addresses are equal.
const home = "home"

// once reduces e to one series per engine and detail, for sums over engines. If the exporters of two nodes read an engine, the engine
// counts once. Loopback addresses do not identify an engine, so such engines have their instance as home.
func once(f *metrics.Family, e promql.Expr) promql.Expr {
	at := promql.Call("label_join", e, promql.Str(home), promql.Str(";"), promql.Str(metrics.LabelServer), promql.Str(metrics.LabelInstance))
	here := promql.Call("label_replace", at, promql.Str(home), promql.Str("$1"), promql.Str(home),
		promql.Str("(?:"+metrics.Loopback+");(.+)|.*"))
	return promql.Max(slices.Concat([]string{metrics.LabelCluster}, f.Labels, []string{home}), here)
}
