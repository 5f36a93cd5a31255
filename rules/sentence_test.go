package rules_test

import (
	"testing"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestSentences checks that a suspect's text has its numbers and names, in the units that people read, and that a
// missing name leaves no gap.
func TestSentences(t *testing.T) {
	t.Parallel()
	onNode := []string{metrics.LabelServer, "127.0.0.1:8000", metrics.LabelInstance, "gpu-node-1"}
	for _, c := range []struct {
		says     string
		unit     rules.Unit
		strength float64
		place    []string
		want     string
	}{
		{"{value} times", rules.Decimal, 1.2345, nil, "1.2 times"},
		{"{value} times", rules.Decimal, 0.0543, nil, "0.05 times"},
		{"Prompts are {value} times as long as usual", rules.Decimal, 1.04, nil, "Prompts are as long as usual"},
		{"Prompts are {value} times as long as usual", rules.Decimal, 11, nil, "Prompts are 11 times as long as usual"},
		{"Prompts are {value} times as long as usual", rules.Decimal, 2.1, nil, "Prompts are 2.1 times as long as usual"},
		{"{value} wait", rules.Count, 1234.4, nil, "1234 wait"},
		{"fails {value} of its requests", rules.Share, 0.2561, nil, "fails 26% of its requests"},
		{"fails {value} of its requests", rules.Share, 0.0049, nil, "fails 0.49% of its requests"},
		{"slowed down {value} of the time", rules.Share, 1.0234, nil, "slowed down 100% of the time"},
		{"after {value}", rules.Seconds, 0.0452, nil, "after 45ms"},
		{"after {value}", rules.Seconds, 67.4, nil, "after 67s"},
		{"for {value}, and clients give up", rules.Seconds, 3630, nil, "for 3630s, and clients give up"},
		{"{engine} alone is slow", rules.Bare, 1, []string{
			metrics.LabelPod, "llama-0", metrics.LabelServer, "10.0.0.1:8000",
			metrics.LabelInstance, "exporter",
		}, "llama-0 alone is slow"},
		{"{engine} alone is slow", rules.Bare, 1, onNode, "127.0.0.1:8000 on gpu-node-1 alone is slow"},
		{"{engine} alone is slow", rules.Bare, 1, onNode[:2], "127.0.0.1:8000 alone is slow"},
		{"{engine} alone is slow", rules.Bare, 1, nil, "one engine alone is slow"},
		{"GPU {gpu} on {instance} must leave service ({reason})", rules.Bare, 1, []string{
			metrics.LabelGPU, "3", metrics.LabelReason,
			"fell off",
		}, "GPU 3 must leave service (fell off)"},
		{"Setting {setting} changed from {old} to {new}", rules.Count, 2, []string{
			metrics.LabelSetting, "dtype", metrics.LabelOld, "fp16",
			metrics.LabelNew, "$1 fp8",
		}, "Setting dtype changed from fp16 to $1 fp8"},
	} {
		sim, err := rulesim.New()
		if err != nil {
			t.Fatal(err)
		}
		defer sim.Close()
		if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
			emit(labels.FromStrings(append([]string{"__name__", metrics.RecordedAgainst.Name, metrics.LabelModel, "m"}, c.place...)...), c.strength)
		}); err != nil {
			t.Fatal(err)
		}
		of := map[string]string{metrics.LabelUnit: string(c.unit), metrics.LabelSays: c.says}
		got, err := sim.Query(rules.Worded(promql.Vector(metrics.RecordedAgainst), of).String(), rulesim.Epoch)
		if err != nil || len(got) != 1 || got[0].Metric.Get(metrics.LabelSays) != c.want || got[0].F != 1 {
			t.Errorf("%q with %g: %v, %v, want %q", c.says, c.strength, got, err, c.want)
		}
	}
}
