package health

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// bench judges a node whose metrics page a test writes, with its own clock.
type bench struct {
	*Judge
	t    *testing.T
	now  time.Time
	page map[string]prometheus.Metric
}

func newBench(t *testing.T) *bench {
	b := &bench{t: t, now: time.Unix(1_700_000_000, 0).UTC(), page: map[string]prometheus.Metric{}}
	b.Judge = New(Options{ProcFS: t.TempDir(), Read: func(ch chan<- prometheus.Metric) {
		for _, m := range b.page {
			ch <- m
		}
	}})
	b.set(metrics.GPUInfo, 1, "GPU-a", "0", "NVIDIA H100", "0000:10:00.0", "0", "1", "hopper", "9.0", "96")
	b.set(metrics.GPUUp, 1, "GPU-a", "0", "")
	return b
}

// set puts a series on the metrics page.
func (b *bench) set(f *metrics.Family, value float64, labels ...string) {
	key := labels
	if f == metrics.GPUUp {
		key = labels[:2]
	}
	b.page[f.Name+strings.Join(key, ",")] = f.Const(value, labels...)
}

// drop takes all series of a family from the metrics page.
func (b *bench) drop(f *metrics.Family) {
	for key := range b.page {
		if strings.HasPrefix(key, f.Name) {
			delete(b.page, key)
		}
	}
}

// pass lets time pass, and returns the verdict on the first GPU with its conditions.
func (b *bench) pass(d time.Duration) string {
	b.t.Helper()
	for end := b.now.Add(d); b.now.Before(end); {
		b.now = b.now.Add(Interval)
		b.Look(b.now)
	}
	n, ok := b.Node()
	if !ok || len(n.GPUs) == 0 {
		return "nothing"
	}
	text := n.GPUs[0].Verdict.String()
	for _, f := range n.GPUs[0].Findings {
		text += " " + f.Condition
	}
	return text
}

func (b *bench) want(d time.Duration, want string) {
	b.t.Helper()
	if got := b.pass(d); got != want {
		b.t.Errorf("after %s: %s, not %s", d, got, want)
	}
}

func (b *bench) xid(code int, severity metrics.XIDSeverity, n float64) {
	b.set(metrics.GPUXIDErrors, n, "GPU-a", "0", "0000:10:00.0", "", strconv.Itoa(code), string(severity), "kmsg")
}

// A GPU for which the driver requests a reset gets that verdict within ten seconds. It is healthy half a minute after
// the driver has withdrawn the request, and the XID that led to the request no longer counts.
func TestSetByTheDriverAndLiftedByIt(t *testing.T) {
	b := newBench(t)
	b.set(metrics.GPURecoveryAction, 0, "GPU-a", "0")
	b.want(time.Minute, "healthy")
	b.set(metrics.GPURecoveryAction, 1, "GPU-a", "0")
	b.xid(119, metrics.XIDPage, 1)
	b.want(10*time.Second, "reset recovery_reset xid_119")
	b.want(10*time.Hour, "reset recovery_reset xid_119")
	b.set(metrics.GPURecoveryAction, 0, "GPU-a", "0")
	b.want(10*time.Second, "reset recovery_reset")
	b.want(15*time.Second, "healthy")
}

// A node without any reading has no verdict at first. Its later verdict, which is never healthy, gives the reason.
func TestNothingReadIsNoVerdict(t *testing.T) {
	b := newBench(t)
	clear(b.page)
	b.set(metrics.GPUNVMLUp, 0, "lib_rm_version_mismatch")
	b.set(metrics.GPUExpected, 8)
	b.pass(time.Minute)
	if n, ok := b.Node(); ok {
		t.Errorf("%+v", n)
	}
	b.pass(10 * time.Minute)
	if n, ok := b.Node(); !ok || !n.Blind() || len(n.Findings) != 1 || n.Findings[0].Condition != "driver_unusable" {
		t.Errorf("%+v, %t", n, ok)
	}
}

// Without an answer no condition is lifted, because a lost GPU has no series that could show that it works.
func TestAbsenceLiftsNothing(t *testing.T) {
	b := newBench(t)
	b.set(metrics.GPURowRemapFailure, 1, "GPU-a", "0")
	b.want(5*time.Second, "replace row_remap_failure")
	b.drop(metrics.GPURowRemapFailure)
	b.set(metrics.GPUUp, 0, "GPU-a", "0", "gpu_is_lost")
	b.want(time.Hour, "replace row_remap_failure lost")
	b.set(metrics.GPUUp, 1, "GPU-a", "0", "")
	b.set(metrics.GPURowRemapFailure, 0, "GPU-a", "0")
	b.want(30*time.Second, "healthy")
}

// A GPU that another exporter no longer lists counts as gone after a minute: a starting exporter lists no GPU for 30 s.
func TestVanished(t *testing.T) {
	b := newBench(t)
	b.want(time.Minute, "healthy")
	b.set(metrics.GPUUp, 0, "GPU-a", "0", "not_on_page")
	b.want(50*time.Second, "healthy")
	b.want(15*time.Second, "reset vanished")
	b.set(metrics.GPUUp, 1, "GPU-a", "0", "")
	b.want(30*time.Second, "healthy")
}

// Faults of applications, and states that pass while a node starts, do not count as faults of a GPU.
func TestHarmless(t *testing.T) {
	b := newBench(t)
	b.set(metrics.GPUUp, 0, "GPU-a", "0", "unknown")
	b.set(metrics.GPUMissing, 1, "0000:10:00.0")
	b.set(metrics.GPUFabricState, 1, "GPU-a", "0", "in_progress")
	b.set(metrics.GPUFabricManagerUp, 0)
	b.set(metrics.GPUSwitches, 4)
	b.want(2*time.Minute, "healthy")
	b.set(metrics.GPUUp, 1, "GPU-a", "0", "")
	b.set(metrics.GPUMissing, 0, "0000:10:00.0")
	b.drop(metrics.GPUFabricState)
	b.set(metrics.GPUFabricState, 1, "GPU-a", "0", "completed")
	b.set(metrics.GPUFabricManagerUp, 1)
	b.want(time.Minute, "healthy")
	harmless := 0
	for _, x := range metrics.XIDs {
		if x.Severity == metrics.XIDApp || x.Severity == metrics.XIDInfo {
			b.xid(x.Code, x.Severity, 3000)
			harmless++
		}
	}
	if harmless < 20 {
		t.Errorf("only %d harmless XIDs", harmless)
	}
	b.want(10*time.Minute, "healthy")
	if n, _ := b.Node(); n.Verdict != metrics.Healthy {
		t.Errorf("the node is %s: %v", n.Verdict, n.Findings)
	}
}

// XIDs count for as long as the driver may be wrong about them. A reset ends that, and an XID that the kernel log
// calls nonfatal takes no GPU out of service.
func TestXIDs(t *testing.T) {
	b := newBench(t)
	b.set(metrics.GPUEnergy, 5000, "GPU-a", "0")
	b.want(10*time.Second, "healthy")
	b.xid(149, metrics.XIDTicket, 1)
	b.want(5*time.Second, "degraded xid_149")
	b.xid(149, metrics.XIDPage, 1)
	b.want(5*time.Second, "reset xid_149")
	b.xid(9999, "", 1)
	b.want(20*time.Hour, "reset xid_149") // the unlisted XID expired after six hours
	b.set(metrics.GPUEnergy, 10, "GPU-a", "0")
	b.want(5*time.Second, "healthy")
	b.xid(79, metrics.XIDPage, 1)
	b.want(23*time.Hour, "reset xid_79")
	b.want(2*time.Hour, "healthy")
}

// After a restart of the exporter, an XID in the kernel log still counts, unless the driver can report that no recovery
// is needed.
func TestXIDsFromBefore(t *testing.T) {
	for action, want := range map[float64]string{-1: "reset xid_79", 0: "healthy", 2: "reset recovery_reset xid_79"} {
		t.Run(fmt.Sprint(action), func(t *testing.T) {
			b := newBench(t)
			b.set(metrics.GPUXIDLastTimestamp, float64(b.now.Add(-2*time.Hour).Unix()), "GPU-a", "0", "0000:10:00.0", "79")
			if action >= 0 {
				b.set(metrics.GPURecoveryAction, action, "GPU-a", "0")
			}
			b.want(10*time.Second, want)
		})
	}
}

// Another exporter's counters may have counted for weeks before.
func TestXIDsOfAnotherExporter(t *testing.T) {
	b := newBench(t)
	count := func(n float64) {
		b.set(metrics.GPUXIDErrors, n, "GPU-a", "0", "0000:10:00.0", "", "79", "page", "dcgm")
	}
	count(3)
	b.want(10*time.Second, "healthy")
	count(4)
	b.want(5*time.Second, "reset xid_79")
}

// Counters set a condition by their growth and are quiet for a while before it is lifted; a reset lifts it.
func TestCounters(t *testing.T) {
	b := newBench(t)
	b.set(metrics.GPUEnergy, 5000, "GPU-a", "0")
	ecc := func(n float64) { b.set(metrics.GPUECCErrors, n, "GPU-a", "0", "uncorrected", "dram", "volatile") }
	ecc(2)
	b.want(time.Minute, "degraded uncorrected_errors_before")
	ecc(3)
	b.want(5*time.Second, "drain uncorrected_errors uncorrected_errors_before")
	b.want(65*time.Minute, "drain uncorrected_errors uncorrected_errors_before")
	b.want(10*time.Minute, "degraded uncorrected_errors_before")
	ecc(4)
	b.want(5*time.Second, "drain uncorrected_errors uncorrected_errors_before")
	ecc(0)
	b.set(metrics.GPUEnergy, 1, "GPU-a", "0")
	b.want(30*time.Second, "healthy")
	heat := 0.0
	for range 40 { // three seconds of five: 60%
		heat += 3
		b.set(metrics.GPUClockEventSeconds, heat, "GPU-a", "0", "hw_thermal_slowdown", "driver")
		b.pass(5 * time.Second)
	}
	b.want(5*time.Second, "degraded thermal_slowdown")
	b.want(20*time.Minute, "healthy")
	brake, capped := 0.0, 0.0
	for range 60 { // a permanent power cap is not a fault; a brake for 3 of 60 seconds is
		capped += 5
		b.set(metrics.GPUClockEventSeconds, capped, "GPU-a", "0", "sw_power_cap", "driver")
		b.pass(5 * time.Second)
	}
	b.want(5*time.Second, "healthy")
	for range 60 {
		brake += 0.25
		b.set(metrics.GPUClockEventSeconds, brake, "GPU-a", "0", "hw_power_brake_slowdown", "driver")
		b.pass(5 * time.Second)
	}
	b.want(5*time.Second, "degraded power_brake")
}

// A busy GPU at idle clocks or idle power is held back after a quarter of an hour. An idle GPU is not, nor is a GPU
// with a small model, with locked clocks or, like an H200, with a power cap at full load.
func TestHeldBack(t *testing.T) {
	for _, c := range []struct {
		what                string
		busy, clock, power  float64 // share, MHz of 1980, W of 700
		after20, afterPause string
	}{
		{"busy at idle power", 1, 1980, 110, "degraded held_back", "healthy"},
		{"idle clocks under load", 1, 345, 180, "degraded held_back", "healthy"},
		{"a small model on a large GPU", 1, 1980, 200, "healthy", "healthy"},
		{"idle", 0, 345, 80, "healthy", "healthy"},
		{"clocks locked at two thirds", 1, 1320, 400, "healthy", "healthy"},
		{"at its power limit", 1, 1440, 692, "healthy", "healthy"},
	} {
		b := newBench(t)
		b.set(metrics.GPUUtilization, c.busy, "GPU-a", "0")
		b.set(metrics.GPUClock, c.clock*1e6, "GPU-a", "0", "sm")
		b.set(metrics.GPUClockMax, 1980e6, "GPU-a", "0", "sm")
		b.set(metrics.GPUPower, c.power, "GPU-a", "0", "gpu")
		b.set(metrics.GPUPowerLimit, 700, "GPU-a", "0", "enforced")
		t.Log(c.what)
		b.want(14*time.Minute, "healthy")
		b.want(6*time.Minute, c.after20)
		b.set(metrics.GPUUtilization, 0, "GPU-a", "0")
		b.want(6*time.Minute, c.afterPause)
	}
	b := newBench(t) // busy for ten minutes at a time
	b.set(metrics.GPUClock, 345e6, "GPU-a", "0", "sm")
	b.set(metrics.GPUClockMax, 1980e6, "GPU-a", "0", "sm")
	for i := range 6 {
		b.set(metrics.GPUUtilization, float64((i+1)%2), "GPU-a", "0")
		b.want(10*time.Minute, "healthy")
	}
}

// A virtual GPU that starts gets its licence within minutes; without one, it is degraded until it gets one.
func TestUnlicensed(t *testing.T) {
	b := newBench(t)
	b.set(metrics.GPUVGPULicensed, 0, "GPU-a", "0")
	b.want(2*time.Minute, "healthy")
	b.want(2*time.Minute, "degraded vgpu_unlicensed")
	b.set(metrics.GPUVGPULicensed, 1, "GPU-a", "0")
	b.want(time.Minute, "healthy")
}

// A link that was never up is not a fault; a link that goes down is a fault. PCIe is judged only at work.
func TestLinks(t *testing.T) {
	b := newBench(t)
	link := func(n string, up float64) { b.set(metrics.GPUNVLinkUp, up, "GPU-a", "0", n) }
	link("0", 1)
	link("1", 0)
	b.set(metrics.GPUPCIeLinkGeneration, 1, "GPU-a", "0", "current")
	b.set(metrics.GPUPCIeLinkGeneration, 5, "GPU-a", "0", "max")
	b.set(metrics.GPUPCIeLinkWidth, 16, "GPU-a", "0", "current")
	b.set(metrics.GPUPCIeLinkWidth, 16, "GPU-a", "0", "max")
	b.set(metrics.GPUUtilization, 0, "GPU-a", "0")
	b.want(time.Hour, "healthy")
	link("0", 0)
	b.set(metrics.GPUUtilization, 1, "GPU-a", "0")
	b.want(6*time.Minute, "degraded pcie_narrow nvlink_down")
	link("0", 1)
	b.set(metrics.GPUPCIeLinkGeneration, 5, "GPU-a", "0", "current")
	b.want(6*time.Minute, "healthy")
}

// A GPU with fewer links than its neighbours lost some before the exporter started. Cards without a bridge, beside
// others that have one, and cards with one bridge but room for two have lost none.
func TestFewerLinks(t *testing.T) {
	for up, want := range map[[3]string]string{ // of three GPUs with two links each
		{"10", "11", "11"}: "degraded nvlink_fewer", {"00", "11", "11"}: "healthy", {"10", "10", "00"}: "healthy", {"11", "11", "00"}: "healthy",
	} {
		b := newBench(t)
		for gpu, links := range up {
			for n, link := range strings.Split(links, "") {
				value, _ := strconv.ParseFloat(link, 64)
				b.set(metrics.GPUNVLinkUp, value, "GPU-"+string(rune('a'+gpu)), strconv.Itoa(gpu), strconv.Itoa(n))
			}
		}
		if got := b.pass(4 * time.Minute); got != want {
			t.Errorf("%v: %s, not %s", up, got, want)
		}
	}
}

// A GPU at half load may have a link that is narrow all the time, or one that widens for each request.
func TestNarrowUnderLoad(t *testing.T) {
	for _, widens := range []bool{false, true} {
		b := newBench(t)
		b.set(metrics.GPUPCIeLinkWidth, 16, "GPU-a", "0", "max")
		for look := range 120 {
			narrow := !widens || look%3 > 0
			b.set(metrics.GPUPCIeLinkWidth, 16-8*metrics.Bool(narrow), "GPU-a", "0", "current")
			b.set(metrics.GPUUtilization, 1-0.7*metrics.Bool(look%3 == 0), "GPU-a", "0") // idle for seconds
			b.pass(Interval)
		}
		if got, want := b.pass(Interval), map[bool]string{false: "degraded pcie_narrow", true: "healthy"}[widens]; got != want {
			t.Errorf("widens: %t: %s, not %s", widens, got, want)
		}
	}
}

// node returns the verdict on the shared parts of a node's GPUs, after a time.
func (b *bench) node(d time.Duration) string {
	b.t.Helper()
	b.pass(d)
	n, _ := b.Node()
	text := n.Verdict.String()
	for _, f := range n.Findings {
		text += " " + f.Condition
	}
	return text
}

// A fabric manager that ran is missed even if the switches are not visible. A fabric manager that never ran is missed
// only if the switches are visible.
func TestFabricManager(t *testing.T) {
	for name, c := range map[string]struct {
		switches, before float64
		want             string
	}{"ran": {0, 1, "drain fabric_manager_gone"}, "never, without switches": {0, 0, "healthy"}, "never, with switches": {
		4, 0,
		"drain fabric_manager_gone",
	}} {
		b := newBench(t)
		b.set(metrics.GPUSwitches, c.switches)
		b.set(metrics.GPUFabricManagerUp, c.before)
		b.pass(time.Minute)
		b.set(metrics.GPUFabricManagerUp, 0)
		if got := b.node(4 * time.Minute); got != c.want {
			t.Errorf("%s: %s, not %s", name, got, c.want)
		}
		b.set(metrics.GPUFabricManagerUp, 1)
		if got := b.node(time.Minute); got != "healthy" {
			t.Errorf("%s, and started: %s", name, got)
		}
	}
}

// If another exporter's metrics page is read in place of NVML, one usable page is enough.
func TestUnusablePage(t *testing.T) {
	b := newBench(t)
	b.set(metrics.GPUSourceUp, 0, "", "localhost:9400", "unreachable")
	b.set(metrics.GPUSourceUp, 1, "amd", "localhost:5000", "")
	if got := b.node(10 * time.Minute); got != "healthy" {
		t.Error(got)
	}
	b.set(metrics.GPUSourceUp, 0, "amd", "localhost:5000", "")
	if got := b.node(10 * time.Minute); got != "degraded driver_unusable" {
		t.Error(got)
	}
}

// An XID that needs a person, but is not the GPU's fault, has an alert and no worse verdict.
func TestTicketsWithoutAVerdict(t *testing.T) {
	b := newBench(t)
	for _, x := range metrics.XIDs {
		if x.Severity == metrics.XIDTicket && x.Verdict == metrics.Healthy {
			b.xid(x.Code, x.Severity, 1)
		}
	}
	if got := b.pass(Interval); !strings.HasPrefix(got, "healthy xid_") {
		t.Error(got)
	}
	n, _ := b.Node()
	for _, f := range n.GPUs[0].Findings {
		if f.Alert != metrics.AnswerService {
			t.Errorf("%s is answered by %q", f.Condition, f.Alert)
		}
	}
	b.want(7*time.Hour, "healthy")
}

// A GPU that NVML has never seen is known by its address, and gets its identity when it answers.
func TestGPUWithoutAName(t *testing.T) {
	b := newBench(t)
	clear(b.page)
	b.set(metrics.GPUMissing, 1, "0000:10:00.0")
	b.want(4*time.Minute, "reset missing")
	b.set(metrics.GPUMissing, 0, "0000:10:00.0")
	b.set(metrics.GPUInfo, 1, "GPU-a", "0", "NVIDIA H100", "0000:10:00.0", "0", "1", "hopper", "9.0", "96")
	b.set(metrics.GPUUp, 1, "GPU-a", "0", "")
	b.want(time.Minute, "healthy")
	if n, _ := b.Node(); len(n.GPUs) != 1 || n.GPUs[0].UUID != "GPU-a" || n.GPUs[0].PCI != "0000:10:00.0" {
		t.Errorf("%+v", n.GPUs)
	}
}

// The metrics page of a node with a GPU to replace, whose switch failed.
func TestGolden(t *testing.T) {
	b := newBench(t)
	b.want(10*time.Second, "healthy")
	b.set(metrics.GPUSXIDLastTimestamp, float64(b.now.Unix()), "0000:c1:00.0", "20034", "fatal")
	b.set(metrics.GPUSRAMThreshold, 1, "GPU-a", "0")
	b.set(metrics.EngineGPUInfo, 1, "vllm", "prod", "chat-0", "vllm", "10.0.0.1:8000", "chat", "GPU-a", "0", "", "pod_resources")
	b.set(metrics.GPUAllocationInfo, 1, "GPU-a", "0", "", "prod", "chat-0", "vllm", "nvidia.com/gpu")
	b.set(metrics.GPUAllocationInfo, 1, "GPU-a", "0", "", "lab", "notebook", "main", "nvidia.com/gpu")
	b.want(5*time.Second, "replace sram_threshold")
	n, _ := b.Node()
	if runs := n.GPUs[0].Runs; len(runs) != 2 || runs[0].Model != "chat" || runs[1].Pod != "notebook" {
		t.Errorf("%+v runs there", runs)
	}
	golden.Compare(t, filepath.Join("testdata", "node.prom"), golden.Page(t, b.Judge))
}

// The table in the documentation names every condition, and each is judged by metrics that exist.
func TestConditions(t *testing.T) {
	text, err := os.ReadFile("../../docs/conditions.csv")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range Conditions {
		if c.Verdict == metrics.Healthy || c.Meaning == "" || c.Action == "" || len(c.Reads) == 0 || c.test.value == nil || c.Quiet == 0 {
			t.Errorf("%s is incomplete", c.Name)
		}
		if !bytes.Contains(text, []byte("\n"+c.Name+",")) {
			t.Errorf("docs/conditions.csv lacks %s: make generate", c.Name)
		}
	}
}

// TestEngineDiedWithItsGPU checks that a GPU that is off the metrics page counts at once if the engine on it has
// stopped, too. A driver that does not answer may be freeing the engine's memory.
func TestEngineDiedWithItsGPU(t *testing.T) {
	for reason, want := range map[string]string{"not_on_page": "reset vanished", "unknown": "healthy"} {
		b := newBench(t)
		var down string
		b.stopped = func(w Workload) bool { return w.Server == down }
		b.set(metrics.EngineGPUInfo, 1, "vllm", "prod", "p-0", "", "10.0.0.1:8000", "m", "GPU-a", "0", "", "kubelet")
		b.want(time.Minute, "healthy")
		b.drop(metrics.EngineGPUInfo) // the metrics page has lost the GPU and its owner
		b.set(metrics.GPUUp, 0, "GPU-a", "0", reason)
		down = "10.0.0.2:8000"
		b.want(20*time.Second, "healthy") // another engine has stopped
		down = "10.0.0.1:8000"
		b.want(10*time.Second, want)
	}
}
