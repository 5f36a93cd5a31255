package world

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// These are the power and bandwidth of an H100, and its traffic over PCIe in MiB/s. They are assumptions. The power is
// within the GPU's limit of 700 W. The bandwidth agrees with the share that the simulated engine reaches. An engine of
// one GPU uses no NVLink.
const (
	idleWatts, busyWatts   = 110, 520
	limitWatts             = 700
	busyBandwidth          = 75
	busySent, busyReceived = 100, 200
)

// NewNVML returns a fake NVML with the GPUs of the drill. They are H100s under a driver that reports unrepairable
// memory. The driver that internal/fakenvml describes by default is older.
func NewNVML(library string, gpus int) (*fakenvml.State, error) {
	s, err := fakenvml.NewState(library, gpus, fakenvml.H100)
	if err != nil {
		return nil, err
	}
	return s, s.Set(fakenvml.All, "unrepairable", 0)
}

// Tell copies the GPU's state to a fake NVML. The numbers are the same as in Emit, in the driver's units. It
// returns the XIDs that are not in the kernel log yet.
func (g *GPU) Tell(s *fakenvml.State) (xids []XID, err error) {
	for x, n := range g.xids {
		for range int(n - g.told[x]) {
			xids = append(xids, x)
		}
		g.told[x] = n
	}
	if g.Lost {
		if g.lost {
			return xids, nil
		}
		g.lost = true
		return xids, s.Lose(g.Index)
	}
	if g.lost { // another GPU has taken the lost GPU's place
		g.lost = false
		return xids, s.Unset(strconv.Itoa(g.Index), "lost")
	}
	if g.Stuck != g.stuck {
		g.stuck = g.Stuck
		if !g.stuck {
			return xids, s.Unhang(g.Index)
		}
		return xids, s.Hang(g.Index, time.Hour)
	}
	events := uint64(0)
	percent := math.Round(100 * g.busy)
	mhz := math.Round(1980 * g.clock)
	milliwatts := 1000 * g.watts()
	values := []any{
		"utilization", strconv.Itoa(int(percent)) + " " + strconv.Itoa(int(percent/2)), "gpm.10", busyBandwidth * g.busy,
		"gpm.20", busySent * g.busy, "gpm.21", busyReceived * g.busy, "gpm.60", 0, "gpm.61", 0,
		"temperature", int(g.celsius), "temperature_margin", 88 - int(g.celsius), // the slowdown is 2 degrees further: h100.state
		"clock.sm", mhz, "clock.graphics", mhz,
		"field.185", "u32 " + strconv.Itoa(int(milliwatts)), "field.186", "u32 " + strconv.Itoa(int(milliwatts)),
		"field.144", metrics.Bool(g.RemapPending), "field.145", metrics.Bool(g.RemapFailed),
		"pcie.generation", int(g.generation()), "ecc.2.1.0", g.ECC, "field.4", g.ECC, "ecc.2.0.0", int(g.corrected), "field.3", int(g.corrected),
		"repair", fmt.Sprintf("%.0f 0", metrics.Bool(g.RepairPending)), "unrepairable", metrics.Bool(g.Unrepairable), "persistence_mode",
		metrics.Bool(!g.Forgets), "field.83", int(1000 * g.joules),
		"virtualization", 2 * metrics.Bool(g.Virtual), "licence", metrics.Bool(!g.Unlicensed), "field.161", int(g.replayed), "field.162",
		g.Recoveries, "fabric", fmt.Sprintf("%d 0x51aa 1", g.fabric().number),
		"field.230", fmt.Sprintf("u32 %d", g.asks().number),
	}
	for _, r := range reasons {
		if r.name == g.active {
			events |= r.bit
		}
		if r.field > 0 {
			values = append(values, "field."+strconv.Itoa(r.field), strconv.FormatInt(int64(g.seconds[r.name]*1e9), 10))
		}
	}
	return xids, s.Set(strconv.Itoa(g.Index), append(values, "clock_events", events)...)
}

// EmitLoad writes the metrics of the load that Emit leaves out. Tell copies their values to NVML.
func (g *GPU) EmitLoad(put Put) {
	id := []string{g.UUID, strconv.Itoa(g.Index)}
	put(metrics.GPUMemoryBusy, math.Round(50*g.busy)/100, id...)
	put(metrics.GPUMemoryBandwidthUtilization, busyBandwidth*g.busy/100, append(id, "")...)
	put(metrics.GPUPCIeTransmit, busySent*(1<<20)*g.worked, id...)
	put(metrics.GPUPCIeReceive, busyReceived*(1<<20)*g.worked, id...)
	for _, scope := range []string{"gpu", "gpu_average"} {
		put(metrics.GPUPower, g.watts(), append(id, scope)...)
	}
}
