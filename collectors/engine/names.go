package engine

import (
	_ "embed" // for the table of names
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
)

//go:embed testdata/names.tsv
var namesTable string

// ignored holds the reasons why names are not read. The list is short, because an important name could get lost among
// many exceptions.
var ignored = map[string]string{
	"runtime":    "metrics of the process, its language or its web server",
	"repeats":    "a metric that is read has the same number",
	"average":    "a mean, a rate or the last value: it cannot be added up over replicas",
	"setting":    "configuration, which does not change while the server runs",
	"inner":      "a step or a part within the server, whose time and work are in metrics that are read",
	"tier":       "a detail of a cache tier beyond lookups, hits, transfers, failures and fill",
	"modality":   "pictures, speech, embeddings and diffusion",
	"feature":    "how often a feature of the interface is used: tools, grammars, sessions, parameters, new weights",
	"control":    "how a gateway or a cluster manages its own parts",
	"copy":       "a gateway's copy of the engine's metrics",
	"money":      "costs, budgets and limits of tenants",
	"gpu":        "GPUs and the host, which are read at their source",
	"ambiguous":  "its values cannot be distinguished, or the source never changes it",
	"other page": "metrics of another server at the same endpoint",
}

// Ignored explains why the exporter does not read a family, and names the family's engine. Both are empty if the
// exporter reads the family, or if the table lacks it.
func Ignored(name string) (runtime, why string) {
	for line := range strings.Lines(namesTable) {
		c := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		if strings.HasPrefix(line, "#") || len(c) != 5 || c[0] == "*" {
			continue
		}
		prefix, all := strings.CutSuffix(c[3], "*")
		if all && strings.HasPrefix(name, prefix) || scrape.FamilyKey(c[3]) == scrape.FamilyKey(name) {
			if reason, ok := strings.CutPrefix(c[4], "ignored: "); ok {
				return c[0], ignored[reason]
			}
		}
	}
	return "", ""
}
