package rules_test

import (
	"context"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	promtemplate "github.com/prometheus/prometheus/template"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

var (
	labelUsed = regexp.MustCompile(`\$labels\.(\w+)`)
	reasonIs  = regexp.MustCompile(`eq \$labels\.(?:reason|clue|role) "(\w+)"`)
	// leftOver matches the rest of a sentence whose noun is missing.
	leftOver = regexp.MustCompile(`^[\s,.:;/]|\s$|\s\s|\s[,.:;/)]|\(\s|\(\)|[:,]\s*[:,.]|/:|\b(of|at|by|from|the|than|Rank|Objective|Probe|Engine|Gateway)([,.:;]|$)|\bon([,:;]|$)|\bof (make|makes|loses|accepts|run|is|computed|restarted|does)\b|\bEngine (of|does)\b|\bof have\b`)
)

// answers is a Prometheus that has recorded the series that a title queries.
func answers(context.Context, string, time.Time) (promql.Vector, error) {
	return promql.Vector{{F: 20, Metric: labels.FromStrings(metrics.LabelBad, "requests fail")}}, nil
}

// TestTextsWithoutALabel checks that the text of an alert consists of sentences even if a label is empty. An engine
// that has been down since the exporter started has not reported its model. Outside Kubernetes no series has a
// namespace or a pod.
func TestTextsWithoutALabel(t *testing.T) {
	groups := rules.Groups(rules.Options{})
	file := rules.NewFile(groups, rules.Style{})
	for _, a := range rules.Alerts(groups) {
		texts := []string{a.Summary, a.Description}
		for _, g := range file.Groups {
			for _, r := range g.Rules {
				if r.Alert == a.Name {
					texts = append(texts, r.Annotations.Summary)
				}
			}
		}
		for _, text := range texts {
			used := []string{metrics.LabelNamespace, metrics.LabelModel, metrics.LabelPod}
			empty := [][]string{nil, used}
			for _, m := range labelUsed.FindAllStringSubmatch(text, -1) {
				if m[1] != metrics.LabelReason && !slices.Contains(used, m[1]) {
					used = append(used, m[1])
				}
			}
			for _, label := range used {
				empty = append(empty, []string{label})
			}
			reasons := []string{"other"}
			for _, m := range reasonIs.FindAllStringSubmatch(text, -1) {
				reasons = append(reasons, m[1])
			}
			for _, without := range empty {
				for _, reason := range reasons {
					for _, value := range []float64{-1, 0, 0.5, 1, 20} {
						of := map[string]string{metrics.LabelReason: reason}
						for _, label := range used {
							of[label] = "x"
							if slices.Contains(reasons[1:], reason) && (label == "clue" || label == metrics.LabelRole) {
								of[label] = reason
							}
						}
						for _, label := range without {
							delete(of, label)
						}
						data := promtemplate.AlertTemplateData(of, nil, "", promql.Sample{F: value})
						says, err := promtemplate.NewTemplateExpander(t.Context(),
							"{{$labels := .Labels}}{{$externalLabels := .ExternalLabels}}{{$externalURL := .ExternalURL}}{{$value := .Value}}"+text, a.Name,
							data, 0, answers, nil, nil).Expand()
						if err != nil {
							t.Fatalf("%s: %v", a.Name, err)
						}
						if left := leftOver.FindString(says); left != "" {
							t.Errorf("%s without %v (%s, %v): %q in %q", a.Name, without, reason, value, left, says)
						}
					}
				}
			}
		}
	}
}
