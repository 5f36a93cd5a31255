package incident

import (
	"math"
	"strconv"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// What a busy H100 draws and uses: assumptions, within its 700 W and beside the share of the bandwidth
// that the engine's model reaches.
const (
	idleWatts, busyWatts = 110, 520
	busyBandwidth        = 75
)

// tell has a fake NVML say what the GPU is like. Its numbers are those of emit, in the units of the
// driver. It returns the XIDs that the kernel log has not been told of.
func (g *GPU) tell(s *fakenvml.State) (xids []int, err error) {
	for code, n := range g.xids {
		for range int(n - g.told[code]) {
			xids = append(xids, code)
		}
		g.told[code] = n
	}
	if g.Lost {
		if g.lost {
			return xids, nil
		}
		g.lost = true
		return xids, s.Lose(g.index)
	}
	events := uint64(0)
	percent := math.Round(100 * g.busy)
	mhz := math.Round(1980 * g.clock)
	milliwatts := 1000 * (idleWatts + busyWatts*g.busy)
	values := []any{
		"utilization", strconv.Itoa(int(percent)) + " " + strconv.Itoa(int(percent/2)), "gpm.10", busyBandwidth * g.busy,
		"temperature", int(g.celsius), "temperature_margin", 88 - int(g.celsius), // and 2 more to the slowdown: h100.state
		"clock.sm", mhz, "clock.graphics", mhz,
		"field.185", "u32 " + strconv.Itoa(int(milliwatts)), "field.186", "u32 " + strconv.Itoa(int(milliwatts)),
		"field.144", boolean(g.RemapPending), "field.145", boolean(g.RemapFailed),
		"ecc.2.1.0", g.ECC, "field.4", g.ECC,
	}
	for _, r := range reasons {
		if r.name == g.active {
			events |= r.bit
		}
		if r.field > 0 {
			values = append(values, "field."+strconv.Itoa(r.field), strconv.FormatInt(int64(g.seconds[r.name]*1e9), 10))
		}
	}
	return xids, s.Set(strconv.Itoa(g.index), append(values, "clock_events", events)...)
}
