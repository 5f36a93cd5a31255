package triage_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// TestWhatChanged checks that the record has the settings of the replicas, and each change of a setting with its
// time and its number of replicas: some, all, and back.
func TestWhatChanged(t *testing.T) {
	at := t0.Add(-9 * time.Minute)
	fleet := func(values ...string) string {
		var more strings.Builder
		for i, v := range values {
			l := fmt.Sprintf(`runtime="vllm",namespace="prod",pod="p-%d",server="10.0.0.%d:8000",model_name="m"`, i, i+1)
			value, old, _ := strings.Cut(v, "<")
			fmt.Fprintf(&more, "llm_engine_config_info{%s,setting=\"quantization\",value=%q,source=\"command line "+
				"--quantization\",quality=\"native\"} 1\n", l, value)
			fmt.Fprintf(&more, "llm_engine_config_info{%s,setting=\"dtype\",value=\"bfloat16\",source=\"command line "+
				"--dtype\",quality=\"native\"} 1\n", l)
			if old != "" {
				fmt.Fprintf(&more, "llm_engine_config_changed_timestamp_seconds{%s,setting=\"quantization\",old=%q,new=%q} %d\n", l, old, value,
					at.Add(time.Duration(i)*time.Minute).Unix())
			}
		}
		more.WriteString("llm_engine_config_info{runtime=\"vllm\",namespace=\"prod\",pod=\"p-0\",server=\"10.0.0.1:8000\",setting=\"template\",quality=\"missing\",reason=\"the engine does not report it\"} 1\n")
		return more.String()
	}
	for _, c := range []struct {
		name    string
		values  []string
		changed string
		says    string
	}{
		{"nothing", []string{"none", "none"}, "", "quantization none"},
		{
			"some",
			[]string{"fp8<none", "none", "none", "none"},
			"quantization none -> fp8 at 2026-01-05T02:51:00Z on 1 of 4 replicas",
			"quantization fp8 on 1 of 4",
		},
		{"all", []string{"fp8<none", "fp8<none"}, "quantization none -> fp8 at 2026-01-05T02:51:00Z on 2 of 2 replicas", "quantization fp8"},
		{"back", []string{"none<fp8", "none<fp8"}, "quantization fp8 -> none at 2026-01-05T02:51:00Z on 2 of 2 replicas", "quantization none"},
	} {
		t.Run(c.name, func(t *testing.T) {
			n := node{model: "m", requests: 100, running: 1, ttft: 10, tokens: 10, prompts: 1000, more: fleet(c.values...)}
			later := n
			later.requests, later.ttft = 110, 11
			v := judge(t, n.page(), later.page(), nil)
			if len(v) != 1 {
				t.Fatalf("%d verdicts", len(v))
			}
			if got := strings.Join(v[0].Record.Changed, ", "); got != c.changed {
				t.Errorf("changed: %q, want %q", got, c.changed)
			}
			if !slices.Contains(v[0].Record.Settings, c.says) || !slices.Contains(v[0].Record.Settings, "dtype bfloat16") ||
				len(v[0].Record.Settings) > 3 {
				t.Errorf("settings: %q, want %q among them", v[0].Record.Settings, c.says)
			}
			var text strings.Builder
			if err := (triage.Text{}).Write(&text, v); err != nil {
				t.Fatal(err)
			}
			if flat := strings.Join(strings.Fields(text.String()), " "); !strings.Contains(flat, "settings: ") || c.changed != "" &&
				!strings.Contains(flat, "changed: "+c.changed) {
				t.Errorf("the text does not say it:\n%s", text.String())
			}
		})
	}
}
