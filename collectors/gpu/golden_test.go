//go:build linux && cgo

package gpu

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
)

// oldDriver lists the functions that a driver of 2022 lacks.
var oldDriver = []string{
	"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature",
	"nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetSupportedClocksEventReasons",
	"nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetGpuFabricInfoV", "nvmlDeviceGetRepairStatus",
	"nvmlDeviceGetUnrepairableMemoryFlag_v1", "nvmlGpmQueryDeviceSupport", "nvmlGpmSampleAlloc",
	"nvmlGpmSampleFree", "nvmlGpmSampleGet", "nvmlGpmMigSampleGet", "nvmlGpmMetricsGet",
	"nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v3",
	"nvmlDeviceGetJpgUtilization", "nvmlDeviceGetOfaUtilization", "nvmlDeviceGetPlatformInfo", "nvmlDeviceGetC2cModeInfoV",
}

// TestPages compares the whole metrics page of every kind of node with its golden in testdata.
func TestPages(t *testing.T) {
	const nothing = "llm_gpu_nvml_up{reason=\"\"} 1"
	scenarios := []struct {
		name    string
		gpus    int
		from    []string
		without []string
		prepare func(*node) // before the collector starts
		running []string    // lines to wait for before change
		change  func(*node) // after that
		want    []string    // lines that show that the metrics page is complete
	}{
		{
			name: "hopper", gpus: 2, from: []string{fakenvml.H100},
			running: []string{`llm_gpu_xid_errors_total{gpu="1"`},
			change:  func(n *node) { n.must(n.XID(1, 94)) },
			want:    []string{`llm_gpu_sm_active_ratio{gpu="0"`, `llm_gpu_sm_active_ratio{gpu="1"`, `llm_gpu_xid_last_timestamp_seconds{gpu="1"`},
		},
		{name: "blackwell", gpus: 1, from: []string{fakenvml.H100, fakenvml.GB200}, want: []string{`llm_gpu_sm_active_ratio{gpu="0"`}},
		{name: "unified_memory", gpus: 1, from: []string{fakenvml.H100, fakenvml.GB10}, want: []string{`llm_gpu_up{gpu="0"`}},
		{
			name: "nvswitch", gpus: 1, from: []string{fakenvml.H100},
			prepare: func(n *node) {
				n.config.Kmsg = filepath.Join(n.t.TempDir(), "kmsg")
				n.config.ProcFS = hostProcs(n.t, "systemd-journal", "nv-fabricmanage")
				for _, address := range []string{"0000:c0:00.0", "0000:c1:00.0", "0000:c2:00.0", "0000:c3:00.0"} {
					put(n.t, filepath.Join(n.config.ProcFS, nvSwitches, address, "information"), "")
				}
				n.kmsg("3,1,1000000,-;nvidia-nvswitch0: SXid (PCI:0000:c0:00.0): 20034, Fatal, Link 30 LTSSM Fault Up")
			},
			running: []string{`llm_gpu_nvswitch_sxid_errors_total{`, `llm_gpu_sm_active_ratio{gpu="0"`},
			change: func(n *node) {
				n.kmsg("3,2,2000000,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Non-fatal, Link 46 MC TS crumbstore MCTO (First)",
					"3,3,2000001,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Severity 0 Engine instance 46 Sub-engine instance 00",
					"3,4,2000002,-;nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006, Data {0x00000001, 0x00000001}")
			},
			want: []string{`severity="nonfatal",sxid="28006"} 1`, `llm_gpu_sm_active_ratio{gpu="0"`},
		},
		{name: "volta", gpus: 1, from: []string{fakenvml.A100, fakenvml.V100}, want: []string{`llm_gpu_up{gpu="0"`}},
		{name: "ampere", gpus: 1, from: []string{fakenvml.A100}, want: []string{`llm_gpu_up{gpu="0"`}},
		{name: "mig", gpus: 1, from: []string{fakenvml.H100, fakenvml.MIG}, want: []string{
			`llm_gpu_sm_active_ratio{gpu="0",gpu_instance_id="1"`, `llm_gpu_sm_active_ratio{gpu="0",gpu_instance_id="2"`,
		}},
		{name: "old_driver", gpus: 1, from: []string{fakenvml.A100}, without: oldDriver, prepare: func(n *node) {
			n.must(n.Unset(fakenvml.All, "field.186", "field.189", "field.190", "ecc.7.0.0", "ecc.7.0.1", "ecc.7.1.0", "ecc.7.1.1"))
			n.must(n.Set(fakenvml.All, "power", 250000))
		}, want: []string{`llm_gpu_up{gpu="0"`}},
		{name: "fallbacks", gpus: 1, from: []string{fakenvml.H100}, prepare: func(n *node) {
			// Differences of other GPUs and drivers: NVLink bytes only per link (NVLink 5), a clock event without a
			// name, no list of supported ones, fabric version 2, totals of ECC errors only, GPM without counts, an
			// unknown recovery action, fans, a GPU that waits for repair, and is virtual, with a licence.
			n.must(n.Unset(fakenvml.All, "field.138.4294967295", "field.139.4294967295", "clock_events_supported",
				"ecc.7.0.0", "ecc.7.0.1", "ecc.7.1.0", "ecc.7.1.1", "ecc.2.0.0", "ecc.2.0.1", "ecc.2.1.0", "ecc.2.1.1"))
			n.must(n.Set(fakenvml.All, "field.202", 100, "field.202.1", 11, "field.204", 1000, "field.204.1", 7,
				"clock_events", 0x1040, "gpm_newest", 97, "fabric", "2 0x1196", "fabric_v2_only", 1, "field.230", "u32 9",
				"fans", 2, "fan.0", 30, "fan.1", 45, "repair", "1 0", "unrepairable", 1, "field.165.1", "u32 0",
				"field.29", 1, "field.30", 2, "field.31", 1, "virtualization", 2, "licence", 1))
		}, want: []string{`llm_gpu_sm_active_ratio{gpu="0"`}},
		{name: "no_gpus", gpus: 0, from: []string{fakenvml.H100}, want: []string{nothing}},
		{
			name: "gpu_lost", gpus: 2, from: []string{fakenvml.H100},
			running: []string{
				`llm_gpu_up{gpu="1",gpu_uuid="GPU-00000000-0000-4000-8000-000000000001",reason=""} 1`,
				`llm_gpu_sm_active_ratio{gpu="0"`,
			},
			change: func(n *node) { n.must(n.Lose(1)) },
			want:   []string{`llm_gpu_up{gpu="1",gpu_uuid="GPU-00000000-0000-4000-8000-000000000001",reason="gpu_is_lost"} 0`},
		},
		{
			name: "driver_not_loaded", gpus: 1, prepare: func(n *node) { n.must(n.Set(fakenvml.System, "init", "!9")) },
			want: []string{`reason="driver_not_loaded"`},
		},
		{
			name: "library_not_found", gpus: 1, prepare: func(n *node) { n.config.Library += ".missing" },
			want: []string{`reason="library_not_found"`},
		},
		{
			name: "version_mismatch", gpus: 1, prepare: func(n *node) { n.must(n.Set(fakenvml.System, "init", "!18")) },
			want: []string{`reason="lib_rm_version_mismatch"`},
		},
		{
			name: "unknown_error", gpus: 1, prepare: func(n *node) { n.must(n.Set(fakenvml.System, "init", "!999")) },
			want: []string{`reason="unknown"`},
		},
	}
	golden.All(t, "testdata/*.prom", len(scenarios))
	for _, scenario := range scenarios {
		t.Run(scenario.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, scenario.gpus, fakeLibrary(t, scenario.without...), scenario.from...)
			if scenario.prepare != nil {
				scenario.prepare(n)
			}
			n.start()
			if scenario.change != nil {
				n.await(scenario.running...)
				scenario.change(n)
			}
			file := filepath.Join("testdata", scenario.name+".prom")
			n.await(append(scenario.want, "llm_gpu_expected_gpus ")...)
			page := n.whole(file)
			n.stop()

			problems, err := promlint.New(strings.NewReader(page)).Lint()
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range problems {
				t.Errorf("lint: %s: %s", p.Metric, p.Text)
			}
			golden.Compare(t, file, steady(page))
		})
	}
}

// whole is a metrics page that has every series of a golden, or the metrics page of ten seconds later: GPUs, their links and their events
// come one after another.
func (n *node) whole(file string) string {
	content, _ := os.ReadFile(file) // a new golden has none yet
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		page := n.page()
		missing := func(line string) bool { return !strings.Contains(page, line[:strings.LastIndexByte(line, ' ')+1]) }
		if !slices.ContainsFunc(slices.Collect(strings.Lines(string(content))), missing) || time.Now().After(deadline) {
			return page
		}
	}
}

// moving are the series whose values differ from run to run.
// Bytes over PCIe are integrated on GPUs with GPM.
const moving = `llm_gpu_driver_calls_total|llm_gpu_driver_call_seconds_total|llm_gpu_snapshot_age_seconds|llm_gpu_collect_duration_seconds|llm_gpu_xid_last_timestamp_seconds|llm_gpu_nvswitch_sxid_last_timestamp_seconds|llm_gpu_pcie_(transmit|receive)_bytes_total|` +
	`llm_gpu_clock_event_seconds_total\{.*source="sampled"\}`

// steady writes 0 for the values that differ from run to run.
func steady(page string) string { return golden.Still(page, moving) }
