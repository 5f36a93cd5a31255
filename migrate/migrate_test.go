package migrate

import (
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestEveryName rewrites each name that is on a metrics page of the world and has an equal: our series has the
// page's value, or a note describes the difference.
func TestEveryName(t *testing.T) {
	w := newWorld(t)
	names := map[string]bool{}
	found, err := w.sim.Query(`count by (__name__) ({job=~"`+oldJob+`.+"})`, rulesim.Epoch.Add((steps-1)*15e9))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range found {
		names[s.Metric.Get(model.MetricNameLabel)] = true
	}
	count := map[verdict]int{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if len(table()[name]) == 0 {
			continue
		}
		e := table()[name][0]
		aggregate := "sum"
		if e.to.Aggregate != metrics.Sum {
			aggregate = "max"
		}
		for _, f := range []string{name, "rate(" + name + "[2m])"} {
			after, err := Rewrite(aggregate+" by (instance) ("+f+")", Options{})
			if err != nil {
				continue
			}
			notes := slices.DeleteFunc(after.Notes, func(n string) bool { return strings.HasPrefix(n, "series that differ only in") })
			// a number that is repeated counts once
			before := aggregate + " by (instance) (max without (" + strings.Join(e.repeats, ",") + ") (" + f + "))"
			if v := w.judge(t, Finding{Place: name, From: before, To: after.Text, Notes: notes}); v == right || v == differs || v == renewed {
				count[v]++
			} else {
				t.Errorf("%s: %d\n  %s\n  %v", before, v, after.Text, notes)
			}
		}
	}
	t.Logf("%d right, %d with a note, %d renewed", count[right], count[differs], count[renewed])
	if count[right] < 500 {
		t.Errorf("only %d expressions say the same", count[right])
	}
}

func TestRewrite(t *testing.T) {
	for _, c := range []struct{ from, to, err string }{
		{
			"DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)",
			"(llm_gpu_memory_used_bytes / 1048576) / ((llm_gpu_memory_used_bytes / 1048576) + (llm_gpu_memory_free_bytes / 1048576))", "",
		},
		{
			"DCGM_FI_DEV_POWER_USAGE / DCGM_FI_DEV_ENFORCED_POWER_LIMIT",
			`llm_gpu_power_watts{scope="gpu_average"} / ignoring (kind, scope) llm_gpu_power_limit_watts{kind="enforced"}`, "",
		},
		{"DCGM_FI_DEV_SM_CLOCK * 1000000", `llm_gpu_clock_hertz{domain="sm"}`, ""},
		{
			"sum by (Hostname, modelName) (DCGM_FI_DEV_GPU_UTIL)",
			"sum by (instance, name) ((llm_gpu_utilization_ratio * on (gpu_uuid) group_left (name) llm_gpu_info) * 100)", "",
		},
		{
			`DCGM_FI_DEV_GPU_TEMP{UUID="GPU-1",modelName=~"NVIDIA.*",device="nvidia3"}`,
			`llm_gpu_temperature_celsius{gpu="3",gpu_uuid="GPU-1",sensor="gpu"} and on (gpu_uuid) llm_gpu_info{name=~"NVIDIA.*"}`, "",
		},
		{
			`DCGM_FI_DEV_GPU_TEMP{exported_pod="a"}`,
			`llm_gpu_temperature_celsius{sensor="gpu"} and on (gpu_uuid) llm_gpu_allocation_info{pod="a"}`, "",
		},
		{
			"increase(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL[5m])",
			`sum without (location) (increase(llm_gpu_ecc_errors_total{lifetime="volatile",severity="uncorrected"}[5m]))`, "",
		},
		{"rate(DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION[5m]) / 1000", "rate(llm_gpu_energy_joules_total[5m])", ""},
		{"avg_over_time(DCGM_FI_PROF_PCIE_TX_BYTES[5m])", "rate(llm_gpu_pcie_transmit_bytes_total[5m])", ""},
		{"rate(DCGM_FI_PROF_PCIE_TX_BYTES[5m])", "", "needs the rate at each moment"},
		{"DCGM_FI_DEV_XID_ERRORS", "", "code of the last error"},
		{"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "", "mask of bits"},
		{"DCGM_FI_DEV_GPU_TEMP{namespace=\"a\"}", "", "--label=namespace="},
		{"DCGM_FI_DEV_NO_SUCH", "", "no metric of the exporter has"},
		{"{__name__=~\"DCGM_FI_DEV_.*\"}", "", "pattern of names"},
		{"stdvar_over_time(DCGM_FI_DEV_GPU_UTIL[5m])", "", "the unit inside stdvar_over_time cannot be converted"},
		{"changes(DCGM_FI_DEV_GPU_UTIL[5m])", "changes(llm_gpu_utilization_ratio[5m])", ""},
		{
			`nvidia_smi_temperature_gpu{uuid="0-1"} * on (uuid) group_left (name) nvidia_smi_gpu_info`,
			`llm_gpu_temperature_celsius{gpu_uuid="GPU-0-1",sensor="gpu"} * on (gpu_uuid) group_left (name) llm_gpu_info`, "",
		},
		{
			"histogram_quantile($q, sum by (le, instance) (rate(vllm:inter_token_latency_seconds_bucket{model_name=\"$m\"}[$__rate_interval])))",
			`histogram_quantile($q, sum by (le, server) (rate(llm_engine_inter_token_latency_seconds_bucket{model_name="$m",runtime="vllm"}[$__rate_interval])))`, "",
		},
		{
			`sum(rate(vllm:request_success_total{finished_reason="length"}[1m]))`,
			`sum(rate(llm_engine_requests_total{outcome="length",runtime="vllm"}[1m]))`, "",
		},
		{`vllm:request_success_total{finished_reason="$why"}`, "", "a variable cannot be translated"},
		{
			`histogram_quantile(0.9, rate(tgi_batch_inference_duration_bucket{method="decode"}[1m]))`,
			`histogram_quantile(0.9, rate(llm_engine_inter_token_latency_seconds_bucket{runtime="tgi"}[1m]))`, "",
		},
		{`rate(tgi_batch_inference_duration_sum[1m])`, "", `has an equivalent only where`},
		{
			`histogram_quantile(0.5, sum by (le) (rate(sglang:kv_transfer_latency_ms_bucket[5m])))`,
			`histogram_quantile(0.5, sum by (le) (rate(llm_engine_kv_transfer_time_seconds_bucket{runtime="sglang"}[5m]))) * 1000`, "",
		},
		{
			`label_replace(DCGM_FI_DEV_GPU_TEMP, "g", "$1", "UUID", "(.*)")`,
			`label_replace(llm_gpu_temperature_celsius{sensor="gpu"}, "g", "$1", "gpu_uuid", "(.*)")`, "",
		},
		{"node_load1", "node_load1", ""},
		{"sum(", "", "not valid PromQL"},
	} {
		e, err := Rewrite(c.from, Options{})
		switch {
		case c.err == "" && err != nil:
			t.Errorf("%s: %v", c.from, err)
		case c.err == "" && e.Text != c.to:
			t.Errorf("%s\n  is   %s\n  want %s", c.from, e.Text, c.to)
		case c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)):
			t.Errorf("%s: %q, %v: want an error with %q", c.from, e.Text, err, c.err)
		}
	}
}

func TestFiles(t *testing.T) {
	for _, name := range []string{"board.json", "rules.yaml"} {
		body, err := os.ReadFile("testdata/" + name)
		if err != nil {
			t.Fatal(err)
		}
		file, err := rewriteFile(name, body, Options{})
		if err != nil {
			t.Fatal(err)
		}
		golden.Compare(t, "testdata/migrated-"+name, string(file.Text))
		var left []string
		for _, f := range file.Findings {
			if f.Left != "" {
				left = append(left, f.Place)
			}
		}
		want := map[string]string{"board.json": "panel Memory", "rules.yaml": "alert GPUXID"}[name]
		if strings.Join(left, ", ") != want {
			t.Errorf("%s: %q stay, want %q", name, left, want)
		}
		again, err := rewriteFile(name, file.Text, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if string(again.Text) != string(file.Text) {
			t.Errorf("%s: what is migrated changes when it is migrated again", name)
		}
	}
}

// TestNewSchema checks Grafana's schema v2, which keeps panels as elements.
func TestNewSchema(t *testing.T) {
	file, err := Dashboard([]byte(`{"spec": {"title": "board", "elements": {"panel-1": {"kind": "Panel", "spec": {"title": "Hot", "data": {"kind": "QueryGroup", "spec": {"queries": [
		{"kind": "PanelQuery", "spec": {"query": {"kind": "DataQuery", "spec": {"expr": "DCGM_FI_DEV_GPU_TEMP", "legendFormat": "{{Hostname}}"}}}}]}}}}}}}`), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if len(file.Findings) != 1 || file.Findings[0].Place != "panel Hot" || !strings.Contains(string(file.Text),
		`"expr": "llm_gpu_temperature_celsius{sensor=\"gpu\"}", "legendFormat": "{{instance}}"`) {
		t.Errorf("%+v\n%s", file.Findings, file.Text)
	}
}

func TestBadFiles(t *testing.T) {
	for body, want := range map[string]string{
		"{":                          "not JSON",
		`{"panels": []}`:             "no panel has a PromQL expression",
		`{"expr": "up"} more`:        "follows the end",
		`{"title": "x", "panels": 3`: "not JSON",
	} {
		if _, err := Dashboard([]byte(body), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", body, err, want)
		}
	}
	for body, want := range map[string]string{"groups: [": "not YAML", "groups: []": "no rule has"} {
		if _, err := Rules([]byte(body), Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error with %q", body, err, want)
		}
	}
}
