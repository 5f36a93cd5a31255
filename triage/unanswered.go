package triage

import (
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
)

// NoAnswer is the clue of Unanswered.
const NoAnswer = "no_answer"

// Unanswered returns the verdict about an exporter that does not return metrics, perhaps because its node is lost.
// exporter is its address. why explains the failure. Both may be empty.
func Unanswered(exporter, why string) Verdict {
	v := Verdict{
		Health: Unknown, Branch: rules.Hardware, Clue: NoAnswer, Says: "No metrics come from the exporter, so its node may be lost",
		Confidence: "low", Or: "The cause may be exporter instead: then `kubectl get nodes` lists the node as ready",
		Symptoms: []string{}, Also: []Suspect{}, Evidence: []Evidence{}, RuledOut: []RuledOut{},
		NotSeen: []RuledOut{{rules.Engine, "no engine was read"}}, Levers: []string{},
		Record: Record{
			Model: "the models of this node", Runtimes: []string{}, Versions: []string{}, Engines: []string{}, Started: []string{},
			Settings: []string{}, Changed: []string{}, GPUs: []string{}, Drivers: []string{},
		},
	}
	if why != "" {
		v.Symptoms = append(v.Symptoms, why+".")
	}
	v.Lever = "at once: list the nodes, and the pods of this one"
	v.Levers = []string{
		"At once: list the nodes, and the pods of this one. If the node is not ready, move its models.",
		"$ kubectl get nodes", "$ kubectl get pods -A -o wide",
	}
	v.Runbook = runbooks.Address(rules.ExporterDown.Name, map[string]string{metrics.LabelInstance: exporter})
	return v
}
