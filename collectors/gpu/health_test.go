//go:build linux && cgo

package gpu

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// TestDeadGPU checks that a GPU that no longer answers is not up, whatever its error code, and comes back.
// Meanwhile its identity and the driver's requested action stay on the metrics page.
func TestDeadGPU(t *testing.T) {
	t.Parallel()
	has := func(page, family string) bool {
		return slices.ContainsFunc(seriesOf(page, 1), func(line string) bool { return strings.HasPrefix(line, family+"{") })
	}
	n := newNode(t, 2, fakeLibrary(t), fakenvml.H100).start()
	for code, reason := range map[int]string{
		2: "invalid_argument", 3: "not_supported", 4: "no_permission", 14: "corrupted_inforom", 16: "reset_required", 17: "operating_system",
		20: "memory", 21: "no_data", 27: "not_ready", 28: "gpu_not_found", 29: "invalid_state", 77: "nvml_error_77", 999: "unknown",
	} {
		n.await(upLine(0, ""), upLine(1, ""), `llm_gpu_missing{pci_bus_id="0000:11:00.0"} 0`)
		n.must(n.Fail(1, code))
		page := n.await(upLine(0, ""), upLine(1, reason), `llm_gpu_missing{pci_bus_id="0000:11:00.0"} 1`,
			`llm_gpu_missing{pci_bus_id="0000:10:00.0"} 0`)
		for _, family := range []string{"llm_gpu_info", "llm_gpu_recovery_action", "llm_gpu_recovery_action_info"} {
			if !has(page, family) {
				t.Errorf("code %d: no %s while the GPU is dead", code, family)
			}
		}
		if has(page, "llm_gpu_temperature_celsius") {
			t.Errorf("code %d: a dead GPU has a temperature", code)
		}
		n.must(n.Unset("1", "lost"))
	}
	n.await(upLine(1, ""))
	n.stop()
}

// TestPlaceOfLostGPU checks that the position of a GPU stays on the metrics page while it is lost, for the person who
// has to remove it.
func TestPlaceOfLostGPU(t *testing.T) {
	const place = `llm_gpu_platform_info{chassis_serial_number="1821025190042",gpu="0",`
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100, fakenvml.GB200).start()
	n.await(upLine(0, ""), place)
	n.must(n.Lose(0))
	if page := n.await(upLine(0, "gpu_is_lost")); !strings.Contains(page, place) || strings.Contains(page, "llm_gpu_fabric_info{") {
		t.Errorf("want the place of the lost GPU, and not its cluster, on\n%s", page)
	}
	n.stop()
}

// TestNotPermitted checks that a value that the driver does not permit has no series, gives the reason, and affects
// nothing else.
func TestNotPermitted(t *testing.T) {
	n := newNode(t, 2, fakeLibrary(t), fakenvml.H100, fakenvml.GB200)
	for _, key := range []string{
		"platform", "gsp_firmware", "gsp_mode", "encoder", "decoder", "jpeg", "ofa", "bar1", "c2c_mode",
		"sram_threshold", "process_utilization",
		"field.170", "field.220", "field.220.1", "field.222", "field.222.1", "field.293", "field.293.1", "fabric", "gpm",
	} {
		n.must(n.Set("0", key, "!4"))
	}
	for bin := range fecBins {
		n.must(n.Set("0", fmt.Sprintf("field.%d", 235+bin), "!4", fmt.Sprintf("field.%d.1", 235+bin), "!4"))
	}
	n.start()
	page := n.await(upLine(0, ""), upLine(1, ""), `llm_gpu_sm_cycles_total{gpu="1"`)
	families := func(gpu int) map[string]bool {
		found := make(map[string]bool)
		for _, line := range seriesOf(page, gpu) {
			name, _, _ := strings.Cut(line, "{")
			found[name] = true
		}
		return found
	}
	denied, permitted := families(0), families(1)
	for _, family := range []string{
		"platform_info", "gsp_firmware_info", "gsp_firmware_mode", "media_utilization_ratio",
		"bar1_total_bytes", "bar1_used_bytes", "c2c_mode",
		"c2c_links", "c2c_link_up", "c2c_link_max_bandwidth_bytes_per_second", "c2c_errors_total", "sram_uncorrected_errors_total",
		"sram_unit_uncorrected_errors_total",
		"nvlink_bit_error_ratio", "nvlink_fec_history_total", "fabric_info", "cache_hit_ratio", "sm_cycles_total", "sm_active_cycles_total",
		"tensor_active_cycles_total", "pipe_active_cycles_total",
	} {
		if family = "llm_gpu_" + family; denied[family] || !permitted[family] {
			t.Errorf("%s: GPU 0 has it %t, want false; GPU 1 has it %t, want true", family, denied[family], permitted[family])
		}
	}
	for _, family := range []string{"llm_gpu_power_watts", "llm_gpu_nvlink_errors_total", "llm_gpu_processes"} {
		if !denied[family] {
			t.Errorf("%s is permitted, and absent", family)
		}
	}
	for _, feature := range []string{
		"platform", "gsp_firmware", "decoder_utilization", "bar1", "c2c_links", "process_utilization",
		"nvlink_bit_errors", "cycles",
	} {
		if line := fmt.Sprintf("llm_gpu_feature_supported{feature=%q,gpu=\"0\",gpu_uuid=\"GPU-00000000-0000-4000-8000-000000000000\",reason=\"no_permission\"} 0", feature); !strings.Contains(page, line) {
			t.Errorf("no %s", line)
		}
	}
	n.stop()
}

// TestClocksRefused checks that a GPU that reports no clocks, as some do, is up as long as it reports its identity.
func TestClocksRefused(t *testing.T) {
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	for _, domain := range []string{"graphics", "sm", "memory", "video"} {
		n.must(n.Set("0", "clock."+domain, "!3"))
	}
	n.start()
	n.await(upLine(0, ""), `llm_gpu_feature_supported{feature="clock",gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000",reason="not_supported"} 0`)
	n.stop()
}

// TestLateGPU checks that a GPU that the driver reports later is read without a restart, and that the others are
// not disturbed.
func TestLateGPU(t *testing.T) {
	n := newNode(t, 3, fakeLibrary(t), fakenvml.H100)
	n.must(n.Set(fakenvml.System, "gpus", 1))
	n.start()
	n.await(upLine(0, ""), "llm_gpu_visible_gpus 1", `llm_gpu_missing{pci_bus_id="0000:11:00.0"} 1`)
	for gpus := 2; gpus <= 3; gpus++ {
		n.must(n.Set(fakenvml.System, "gpus", gpus))
		n.await(upLine(0, ""), upLine(gpus-1, ""), fmt.Sprintf("llm_gpu_visible_gpus %d", gpus),
			fmt.Sprintf(`llm_gpu_missing{pci_bus_id="0000:%x:00.0"} 0`, 0x10+gpus-1))
	}
	if said := strings.Count(n.stderr.String(), "gpu=0"); said != 1 {
		t.Errorf("GPU 0 was opened %d times\n%s", said, n.stderr)
	}
	n.stop()
}

// TestOneGPUBlamesTheLibrary checks that the library counts as broken only if every GPU that answers reports this.
func TestOneGPUBlamesTheLibrary(t *testing.T) {
	t.Parallel()
	n := newNode(t, 3, fakeLibrary(t), fakenvml.H100)
	n.config.Deadline = time.Second
	n.start()
	n.await(upLine(0, ""), upLine(1, ""), upLine(2, ""))
	n.must(n.Hang(2, 10*time.Minute))
	n.await(upLine(2, "stuck"))
	n.must(n.Fail(1, 18))
	n.await(`llm_gpu_nvml_up{reason=""} 1`, upLine(0, ""), upLine(1, "lib_rm_version_mismatch"), upLine(2, "stuck"))
	n.must(n.Unset("1", "lost"))
	n.await(upLine(0, ""), upLine(1, ""), upLine(2, "stuck"))
	n.must(n.Unhang(2))
	n.await(upLine(2, ""))
	n.stop()
}

// TestDriverBudget checks that a GPU whose getters are slow is read as rarely as the budget requires, that the
// metrics page shows the interval and the age of its values, and that its neighbour is read as often as before.
// When the getters are fast again, so are the readings.
func TestDriverBudget(t *testing.T) {
	n := newNode(t, 2, fakeLibrary(t), fakenvml.H100)
	n.config.Budget = 0.2
	n.start()
	of := func(page, metric string, gpu int) float64 {
		line := regexp.MustCompile(fmt.Sprintf(`(?m)^%s\{gpu="%d",gpu_uuid="[^"]*"(?:,kind="fast")?\} (\S+)$`, metric, gpu)).
			FindStringSubmatch(page)
		if line == nil {
			return math.NaN()
		}
		v, _ := strconv.ParseFloat(line[1], 64)
		return v
	}
	const interval = "llm_gpu_read_interval_seconds"
	usual := n.config.Interval.Seconds()
	n.awaitThat("both GPUs at the usual interval", func(page string) bool {
		return of(page, interval, 0) == usual &&
			of(page, interval, 1) == usual
	})
	n.must(n.Hang(1, 5*time.Millisecond)) // each call
	page := n.awaitThat("GPU 1 at a longer interval", func(page string) bool { return of(page, interval, 1) > 2.5*usual })
	if got := of(page, interval, 0); got > 2*usual {
		t.Errorf("the neighbour is read every %g s", got)
	}
	spent := func(page string) (sum float64) {
		for _, line := range regexp.MustCompile(`(?m)^llm_gpu_driver_call_seconds_total\{call="(\w+)"\} (\S+)$`).FindAllStringSubmatch(page, -1) {
			if v, _ := strconv.ParseFloat(line[2], 64); line[1] != callWait {
				sum += v
			}
		}
		return sum
	}
	began, oldest := time.Now(), 0.0
	before := spent(page)
	for time.Since(began) < 12*time.Second {
		page = n.page()
		age, most := of(page, "llm_gpu_snapshot_age_seconds", 1), of(page, interval, 1)+of(page, "llm_gpu_collect_duration_seconds", 1)
		if oldest = max(oldest, age); !(age < 2*most+1) {
			t.Fatalf("values are %g s old, and the page says %g s at most", age, most)
		}
		time.Sleep(50 * time.Millisecond)
	}
	if share := (spent(page) - before) / time.Since(began).Seconds(); share > 2*n.config.Budget || oldest < 2*usual {
		t.Errorf("in the driver for %.0f%% of the time, both GPUs together, and values %g s old at most", 100*share, oldest)
	}
	n.must(n.Unhang(1))
	n.awaitThat("the usual interval again", func(page string) bool { return of(page, interval, 1) == usual })
	n.stop()
}

// TestLeftOutOfABatch checks a driver that leaves fields out of a batch in which it refuses one, and reports that
// all went well. An H200 with driver 580.159 refuses field 170, and so had limits of 0 W and a margin to the
// shutdown without its 8 degrees.
func TestLeftOutOfABatch(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.must(n.Set(fakenvml.All, "leaves_out.170", "187 188 189 190 192 193 194 195 196 270 271"))
	n.start()
	const of = `gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000",`
	page := n.await(`llm_gpu_power_limit_watts{`+of+`kind="enforced"} 700`, `llm_gpu_power_limit_watts{`+of+`kind="min"} 200`,
		`llm_gpu_clock_event_seconds_total{`+of+`reason="hw_thermal_slowdown",source="driver"} 1.5`)
	value := func(limit string) float64 {
		line := regexp.MustCompile(`llm_gpu_temperature_margin_celsius\{` + of + `limit="` + limit + `"\} (\S+)`).FindStringSubmatch(page)
		v, _ := strconv.ParseFloat(append(line, "", "")[1], 64)
		return v
	}
	if value("shutdown")-value("gpu_max") != 8 || value("slowdown")-value("gpu_max") != 2 {
		t.Errorf("margins: slowdown %g, shutdown %g, at most %g", value("slowdown"), value("shutdown"), value("gpu_max"))
	}
	n.stop()
}

// TestDearFieldIsSlow checks a field that takes more than a tenth of the budget by itself: it is read with the slow
// readings, and stays on the metrics page. Reading the energy of an H200 takes 3 to 9 ms, which stretched the interval
// of all readings to 22 s.
func TestDearFieldIsSlow(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.config.Budget = 0.9
	n.config.Slow = time.Second
	n.must(n.Set(fakenvml.All, "latency.83", 20000))
	n.must(n.Set(fakenvml.System, "record_all", 1))
	n.start()
	asked := func(key string) int {
		calls, _ := os.ReadFile(filepath.Join(filepath.Dir(n.config.Library), "calls")) // there is none yet
		return strings.Count(string(calls), key+"\n")
	}
	const power, energy = "field.186", "field.83"
	e2e.Until(t, "three rounds", func() bool { return asked(power) >= 3 })
	e2e.Until(t, "energy read more seldom than power", func() bool { return asked(power) > 3*asked(energy) && asked(energy) > 3 })
	n.await(`llm_gpu_energy_joules_total{gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000"} `)
	n.stop()
}

// TestRestartWhileStuck checks that a GPU that hangs does not keep the process from ending when only a new process can
// continue, whether the driver was replaced or the node's devices were removed.
func TestRestartWhileStuck(t *testing.T) {
	for code, reason := range map[int]string{18: "lib_rm_version_mismatch", 17: "operating_system"} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 2, fakeLibrary(t), fakenvml.H100)
			n.config.Deadline, n.config.RestartAfterTime = time.Second, 2*time.Second
			n.start()
			n.await(upLine(0, ""), upLine(1, ""))
			n.must(n.Hang(1, 10*time.Minute))
			n.await(upLine(1, "stuck"))
			n.must(n.Set(fakenvml.System, "init", fmt.Sprint("!", code)))
			n.must(n.Fail(0, code))
			n.ends(reason)
		})
	}
}

// TestCountHangs checks that a driver that hangs while it counts the GPUs is reported as stuck, and delays neither
// the end nor the readings of GPUs.
func TestCountHangs(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.config.Deadline = time.Second
	n.must(n.Set(fakenvml.System, "hang", "nvmlDeviceGetCount_v2 600000"))
	n.start()
	n.await(`llm_gpu_nvml_up{reason="stuck"} 0`)
	n.must(n.Unset(fakenvml.System, "hang"))
	n.await(upLine(0, ""))
	n.must(n.Set(fakenvml.System, "hang", "nvmlDeviceGetCount_v2 600000"))
	time.Sleep(2 * n.config.Deadline)
	n.must(n.Set("0", "temperature", 33))
	n.await(upLine(0, ""), `sensor="gpu"} 33`)
	n.stop()
}

// TestNVLinkWithoutPeer checks that a link that is inactive and leads nowhere does not count. A link counts as down if
// it was up before, if the driver names its far end, or if another link of the GPU leads to a switch.
func TestNVLinkWithoutPeer(t *testing.T) {
	const labels = `llm_gpu_nvlink_up{gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000",link=`
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.must(n.Unset(fakenvml.All, "nvlink_remote.0", "nvlink_remote.1", "nvlink_remote_type.0", "nvlink_remote_type.1"))
	n.must(n.Set("0", "field.165", "u32 0", "field.165.1", "u32 0"))
	n.start()
	if page := n.await(upLine(0, ""),
		`llm_gpu_feature_supported{feature="nvlink_state",gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000",reason=""} 1`); strings.Contains(page, labels) {
		t.Error("a card without a bridge has links that are down")
	}
	n.must(n.Set("0", "field.165", "u32 1", "nvlink_remote_type.0", 0))
	if page := n.await(labels + `"0"} 1`); strings.Contains(page, labels+`"1"`) {
		t.Error("a link beside a bridge is down")
	}
	n.must(n.Set("0", "field.165", "u32 0"))
	n.await(labels + `"0"} 0`)
	n.must(n.Set("0", "nvlink_remote.1", "00000000:C1:00.0"))
	n.await(labels+`"0"} 0`, labels+`"1"} 0`)
	n.stop() // a link beside a link to a switch: metrics page "fallbacks"
}

// TestLegacyThermal checks that the old counter counts if the driver has no current counter for a thermal slowdown.
func TestLegacyThermal(t *testing.T) {
	n := newNode(t, 1, fakeLibrary(t), fakenvml.A100)
	n.must(n.Set("0", "field.75", 7_000_000_000))
	n.start()
	const labels = `llm_gpu_clock_event_seconds_total{gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-0000000000a0",reason=`
	page := n.await(labels + `"sw_thermal_slowdown",source="driver"} 7`)
	if !strings.Contains(page, labels+`"hw_thermal_slowdown",source="sampled"}`) ||
		strings.Contains(page, labels+`"sw_thermal_slowdown",source="sampled"}`) {
		t.Errorf("want the thermal slowdown of the hardware sampled, and that of the software only counted, on\n%s", page)
	}
	n.stop()
}

// TestLicence checks that a virtual GPU has a licence or lacks it. A physical GPU needs no licence, whatever its
// driver lists.
func TestLicence(t *testing.T) {
	n := newNode(t, 3, fakeLibrary(t), fakenvml.H100)
	n.must(n.Set("0", "virtualization", 2, "licence", 0))
	n.must(n.Set("1", "virtualization", 2, "licence", 1))
	n.must(n.Set("2", "virtualization", 1, "licence", 0))
	n.start()
	page := n.await(`llm_gpu_vgpu_licensed{gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000"} 0`,
		`llm_gpu_vgpu_licensed{gpu="1",gpu_uuid="GPU-00000000-0000-4000-8000-000000000001"} 1`,
		`llm_gpu_feature_supported{feature="vgpu_licence",gpu="2"`)
	if strings.Contains(page, `llm_gpu_vgpu_licensed{gpu="2"`) {
		t.Error("a physical GPU has no licence")
	}
	n.stop()
}

// TestSampleThatTookLong checks that the driver measures GPM's windows between the samples it took, however long it
// was busy before the first. Two samples that are too close would be refused, and the metrics that older drivers
// refuse would rest for hours.
func TestSampleThatTookLong(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.must(n.Set("0", "hang", "nvmlGpmSampleGet 60000"))
	n.start()
	e2e.Until(t, "the first sample of GPM", func() bool {
		calls, _ := os.ReadFile(filepath.Join(filepath.Dir(n.config.Library), "calls")) // there is none yet
		return strings.Contains(string(calls), "nvmlGpmSampleGet\n")
	})
	time.Sleep(3 * gpmMinWindow)
	n.must(n.Unset("0", "hang"))
	page := n.await(`llm_gpu_feature_supported{feature="cycles",`, `llm_gpu_sm_active_ratio{gpu="0"`)
	if strings.Contains(page, `reason="invalid_argument"`) {
		t.Errorf("want no window that the driver refuses, on\n%s", page)
	}
	n.stop()
}

// TestAsksOnlyWhatItNeeds checks two calls that need not be repeated in every round: for a value that the driver has
// refused and another call offers, and for the bytes of each link if their total is known.
func TestAsksOnlyWhatItNeeds(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.must(n.Set("0", "memory_v1_only", 1, "field.202", 100, "field.202.1", 11))
	n.must(n.Unset(fakenvml.All, "ecc.7.0.0", "ecc.7.0.1", "ecc.7.1.0", "ecc.7.1.1", "ecc.2.0.0", "ecc.2.0.1", "ecc.2.1.0", "ecc.2.1.1"))
	n.must(n.Set(fakenvml.System, "record_all", 1))
	n.start()
	asked := func() map[string]int {
		calls, _ := os.ReadFile(filepath.Join(filepath.Dir(n.config.Library), "calls")) // there is none yet
		count := make(map[string]int)
		for call := range strings.FieldsSeq(string(calls)) {
			count[call]++
		}
		return count
	}
	e2e.Until(t, "ten rounds", func() bool { return asked()["nvmlDeviceGetMemoryInfo"] >= 10 })
	got := asked()
	if got["nvmlDeviceGetMemoryInfo_v2"] != 1 {
		t.Errorf("a refused call was made %d times", got["nvmlDeviceGetMemoryInfo_v2"])
	}
	for _, refused := range []string{
		"nvmlDeviceGetPlatformInfo", "nvmlDeviceGetC2cModeInfoV", "field.186.2", "field.220", "field.221",
		"field.235", "field.250.1", "field.293", "gpm.160", "gpm.248",
	} {
		if got[refused] != 1 {
			t.Errorf("%s was refused and asked for %d times", refused, got[refused])
		}
	}
	if got["gpm.10"] < 2 {
		t.Errorf("what GPM tells was asked for %d times", got["gpm.10"])
	}
	if made, most := got["nvmlDeviceGetMemoryErrorCounter"], 4+4*len(eccLocations[1]); made > most {
		t.Errorf("ECC errors by location were asked for %d times, want %d", made, most)
	}
	if most := max(got["field.202"], got["field.204"], got["field.202.1"], got["field.204.1"]); most > 1 {
		t.Errorf("the bytes of each link were asked for %d times", most)
	}
	n.must(n.Unset(fakenvml.All, "field.138.4294967295"))
	n.await(`llm_gpu_nvlink_transmit_bytes_total{gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000"} 111`)
	n.stop()
}
