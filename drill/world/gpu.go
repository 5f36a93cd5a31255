package world

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// GPU simulates a GPU. The exporter's GPU collector cannot serve virtual time, because a process can load only one NVML
// library, and because the collector follows the machine's clock. Therefore, Emit writes the series itself. A test
// compares their names with the collector's names.
type GPU struct {
	Index int
	UUID  string
	// Throttle lowers the clock, unless it is nil.
	Throttle *Throttle
	// Lost means that the GPU has fallen off the bus. Stuck means that driver calls for the GPU do not return.
	Lost, Stuck bool
	// ECC counts uncorrectable errors. RemapPending and RemapFailed are the state of the memory rows.
	ECC                       float64
	RemapPending, RemapFailed bool
	// RepairPending means that the next reset repairs a memory channel. Unrepairable means that no reset can repair the
	// memory.
	RepairPending, Unrepairable bool
	// Corrected is the rate of memory errors that ECC corrects, per second.
	Corrected float64
	// Replays is the rate of packets that the first NVLink sends again, per hour. Recoveries counts how often the link
	// was lost and came back.
	Replays, Recoveries float64
	// Unregistered means that registration with the NVSwitch fabric never completes.
	Unregistered bool
	// SlowLink means that the PCIe link stays at generation 2 of 5, even under load.
	SlowLink bool
	// Drain means that the driver requests to drain and reset the GPU.
	Drain bool
	// Forgets means that persistence mode is off.
	Forgets bool
	// Others is the share of time in which programs other than the engine compute on the GPU.
	Others float64
	// Virtual means that the GPU is virtual. Unlicensed means that it has no licence.
	Virtual, Unlicensed bool

	clock   float64 // share of the maximum
	readyAt time.Duration
	seconds map[string]float64 // time with lowered clocks, by reason
	xids    map[XID]float64
	told    map[XID]float64 // XIDs that are already in the kernel log
	lost    bool            // the loss was already reported to NVML
	stuck   bool            // the hang was already reported to NVML
	hung    bool            // the engine's kernel never ends
	active  string          // current reason
	busy    float64
	celsius float64

	joules, corrected, replayed float64 // since the driver initialised the GPU
	worked                      float64 // seconds of computing since then
}

// Throttle lowers a GPU's clock to a share, in the first part of each period.
type Throttle struct {
	Reason       string
	Clock        float64
	Part, Period time.Duration // zero means all the time
}

// reasons lists the clock event reasons that current GPUs support (NVML's clocksEventReasons). Each has the bit that is
// set while the reason applies. It also has the field in which the driver counts the reason's nanoseconds (nvml.h), or
// 0.
var reasons = []reason{
	{"gpu_idle", 0x1, 0},
	{"sw_power_cap", 0x4, 74},
	{"hw_slowdown", 0x8, 0},
	{"sw_thermal_slowdown", 0x20, 269},
	{"hw_thermal_slowdown", 0x40, 270},
	{"hw_power_brake_slowdown", 0x80, 271},
}

// reason is one of NVML's reasons for a lower clock.
type reason struct {
	name  string
	bit   uint64
	field int
}

// source returns how the exporter measures the time for which the reason applied: from the driver, or by sampling.
func (r reason) source() string {
	if r.field == 0 {
		return "sampled"
	}
	return "driver"
}

// newGPU returns a healthy GPU.
func newGPU(index int) *GPU {
	return &GPU{
		Index: index, UUID: "GPU-00000000-0000-4000-8000-00000000000" + strconv.Itoa(index), clock: 1, celsius: 50,
		seconds: map[string]float64{}, xids: map[XID]float64{}, told: map[XID]float64{},
	}
}

// PCI returns the PCI address that internal/fakenvml assigns to a GPU.
func PCI(index int) string { return fmt.Sprintf("0000:%02x:00.0", 0x10+index) }

// XID is an error of the driver. The kernel log calls some of NVLink's XIDs nonfatal.
type XID struct {
	Code     int
	Nonfatal bool
}

// String returns the XID as the kernel log writes it.
func (x XID) String() string {
	severity := "Fatal"
	if x.Nonfatal {
		severity = "Nonfatal"
	}
	return fmt.Sprintf("%d, DRILL %s (invented)", x.Code, severity)
}

// Report counts one XID for each of the codes.
func (g *GPU) Report(codes ...int) {
	for _, code := range codes {
		g.xids[XID{Code: code}]++
	}
}

// ReportNonfatal counts an XID that the kernel log calls nonfatal.
func (g *GPU) ReportNonfatal(code int) { g.xids[XID{code, true}]++ }

// throttle sets the clock for the slice that begins now.
func (g *GPU) throttle(now time.Duration) {
	g.clock, g.active = 1, ""
	if t := g.Throttle; t != nil && (t.Period == 0 || now%t.Period < t.Part) {
		g.clock, g.active = t.Clock, t.Reason
	}
}

// Busy returns the share of time in which the engine's kernels run.
func (g *GPU) Busy() float64 { return g.busy }

// advance advances the GPU by the time d, during which the engine computes for the time busy.
func (g *GPU) advance(d, busy time.Duration, e *drill.Engine) {
	g.busy = math.Min(1, busy.Seconds()/d.Seconds())
	if g.hung = e.Stuck(); g.hung {
		g.busy = 1 // a kernel that never ends
	}
	if g.active != "" {
		g.seconds[g.active] += d.Seconds()
	}
	target := 40 + 35*g.busy
	if g.active == "hw_thermal_slowdown" || g.active == "sw_thermal_slowdown" {
		target = 88
	}
	g.celsius += (target - g.celsius) * (1 - math.Exp(-d.Seconds()/60))
	g.joules += g.watts() * d.Seconds()
	g.worked += g.busy * d.Seconds()
	g.corrected += g.Corrected * d.Seconds()
	g.replayed += g.Replays * d.Hours()
}

// watts returns the GPU's power draw. A kernel that never ends counts as busy but computes nothing. Public reports show
// 13 to 27 W at 96%, while a working GPU of this kind draws 36 to 90 W.
func (g *GPU) watts() float64 {
	if g.hung {
		return idleWatts
	}
	return idleWatts + busyWatts*g.busy
}

// letGo resets the counters that the driver loses when its last client ends, if persistence mode is off.
func (g *GPU) letGo() {
	if g.Forgets {
		g.joules, g.corrected, g.replayed, g.ECC, g.Recoveries = 0, 0, 0, 0, 0
		clear(g.seconds)
	}
}

// Put writes one series of the vocabulary.
type Put func(f *metrics.Family, value float64, labels ...string)

// Emit writes the exporter's series about the GPU.
func (g *GPU) Emit(put Put) {
	id := []string{g.UUID, strconv.Itoa(g.Index)}
	with := func(more ...string) []string { return append(append([]string{}, id...), more...) }
	put(metrics.GPUInfo, 1, with("NVIDIA H100 80GB HBM3", PCI(g.Index), strconv.Itoa(g.Index), fmt.Sprint("165000000000", g.Index),
		"hopper", "9.0", "96.00.74.00.01")...)
	for _, x := range metrics.XIDs {
		count := func(n float64, severity metrics.XIDSeverity) {
			put(metrics.GPUXIDErrors, n, with(PCI(g.Index), "", strconv.Itoa(x.Code), string(severity), "kmsg")...)
		}
		if n := g.xids[XID{Code: x.Code}]; n > 0 || x.Asks() { // the collector starts these counters at zero
			count(n, x.Severity)
		}
		if n := g.xids[XID{x.Code, true}]; n > 0 {
			count(n, metrics.XIDTicket)
		}
	}
	if g.Lost {
		put(metrics.GPUUp, 0, with("gpu_is_lost")...)
		return
	}
	if g.Stuck {
		put(metrics.GPUUp, 0, with("stuck")...)
		put(metrics.GPUCollectStuck, 1, id...)
		return
	}
	put(metrics.GPUUp, 1, with("")...)
	put(metrics.GPUUtilization, g.busy, id...)
	put(metrics.GPUTemperature, g.celsius, with("gpu")...)
	put(metrics.GPUTemperatureMargin, 90-g.celsius, with("slowdown")...)
	put(metrics.GPUClock, 1980e6*g.clock, with("sm")...)
	put(metrics.GPUClockMax, 1980e6, with("sm")...)
	for _, r := range reasons {
		put(metrics.GPUClockEventActive, metrics.Bool(r.name == g.active), with(r.name)...)
		put(metrics.GPUClockEventSeconds, g.seconds[r.name], with(r.name, r.source())...)
	}
	put(metrics.GPURowRemapPending, metrics.Bool(g.RemapPending), id...)
	put(metrics.GPURowRemapFailure, metrics.Bool(g.RemapFailed), id...)
	put(metrics.GPUSRAMThreshold, 0, id...)
	put(metrics.GPUECCErrors, g.ECC, with("uncorrected", "dram", "volatile")...)
	put(metrics.GPUECCErrors, math.Floor(g.corrected), with("corrected", "dram", "volatile")...)
	put(metrics.GPURepairPending, metrics.Bool(g.RepairPending), with("channel")...)
	put(metrics.GPUMemoryUnrepairable, metrics.Bool(g.Unrepairable), id...)
	put(metrics.GPUPersistenceMode, metrics.Bool(!g.Forgets), id...)
	if g.Virtual {
		put(metrics.GPUVGPULicensed, metrics.Bool(!g.Unlicensed), id...)
	}
	put(metrics.GPUEnergy, g.joules, id...)
	put(metrics.GPUPower, g.watts(), with("gpu")...)
	put(metrics.GPUPowerLimit, limitWatts, with("enforced")...)
	put(metrics.GPUNVLinkErrors, math.Floor(g.replayed), with(FirstLink, "replay")...)
	put(metrics.GPUNVLinkErrors, g.Recoveries, with(FirstLink, "recovery")...)
	put(metrics.GPUPCIeLinkGeneration, g.generation(), with("current")...)
	put(metrics.GPUPCIeLinkGeneration, 5, with("max")...)
	put(metrics.GPUFabricState, 1, with(g.fabric().name)...)
	put(metrics.GPURecoveryAction, float64(g.asks().number), id...)
	put(metrics.GPURecoveryActionInfo, 1, with(g.asks().name)...)
}

// FirstLink is the NVLink that wears out.
const FirstLink = "0"

// GPUHourPrice is the price of an hour of each GPU.
const GPUHourPrice = 2.5

// state is NVML's number for a state (nvml.h), with the state's name in the vocabulary.
type state struct {
	number int
	name   string
}

// fabric returns the state of registration with the NVSwitch fabric.
func (g *GPU) fabric() state {
	if g.Unregistered {
		return state{2, "in_progress"}
	}
	return state{3, "completed"}
}

// generation returns the generation of the PCIe link. An idle H100 does not switch to a lower generation.
func (g *GPU) generation() float64 {
	if g.SlowLink {
		return 2
	}
	return 5
}

// asks returns the recovery action that the driver recommends for the GPU.
func (g *GPU) asks() state {
	if g.Drain {
		return state{4, "drain_and_reset"}
	}
	return state{0, "none"}
}
