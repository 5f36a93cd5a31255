package world

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// DCGM simulates a dcgm-exporter 4.8 on the node. It reports the GPUs of the world under the names, units and labels of
// dcgm-exporter. It refreshes its metrics page every 30 seconds, so values are as old as on a real metrics page.
type DCGM struct {
	World *World
	// Asked lists the fields that the configuration of dcgm-exporter adds to the default list.
	Asked []string
	last  []byte
}

// ThrottleFields lists fields of examples/dcgm-exporter/counters.csv. Alerts about lowered clocks and memory errors
// need these fields in the configuration.
var ThrottleFields = []string{
	"DCGM_FI_DEV_CLOCK_THROTTLE_REASONS", "DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP_NS",
	"DCGM_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN_NS",
	"DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN_NS", "DCGM_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN_NS",
	"DCGM_FI_DEV_MAX_SM_CLOCK", "DCGM_FI_DEV_SLOWDOWN_TEMP", "DCGM_FI_DEV_ROW_REMAP_PENDING", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL",
	"DCGM_FI_DEV_THRESHOLD_SRM",
}

// nanoseconds maps reasons to the fields in which the driver counts their nanoseconds.
var nanoseconds = map[string]string{
	"sw_power_cap": "SW_POWER_CAP", "sw_thermal_slowdown": "SW_THERM_SLOWDOWN", "hw_thermal_slowdown": "HW_THERM_SLOWDOWN",
	"hw_power_brake_slowdown": "HW_POWER_BRAKE_SLOWDOWN",
}

// RoundTrip implements http.RoundTripper.
func (d *DCGM) RoundTrip(req *http.Request) (*http.Response, error) {
	now := d.page()
	if d.last == nil {
		d.last = now
	}
	served := d.last
	d.last = now
	return &http.Response{
		StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"text/plain; charset=utf-8"}},
		ContentLength: int64(len(served)),
		Body:          io.NopCloser(bytes.NewReader(served)), Request: req,
	}, nil
}

// page writes the metrics page. It leaves out a lost GPU.
func (d *DCGM) page() []byte {
	rows := map[string][]string{}
	for _, r := range d.World.Replicas {
		if r.GPU.Lost {
			continue
		}
		labels := fmt.Sprintf(`gpu="%d",UUID="%s",pci_bus_id="0000%s",device="nvidia%d",modelName="%s",hostname="gpu-node-1",container="engine",namespace="%s",pod="%s"`,
			r.GPU.Index, r.GPU.UUID, strings.ToUpper(PCI(r.GPU.Index)), r.GPU.Index, "NVIDIA H100 80GB HBM3", Namespace, r.Pod)
		for name, value := range r.GPU.dcgm() {
			rows[name] = append(rows[name], fmt.Sprintf("%s{%s} %s\n", name, labels, value))
		}
	}
	var page bytes.Buffer
	for _, name := range slices.Sorted(maps.Keys(rows)) {
		if slices.Contains(ThrottleFields, name) && !slices.Contains(d.Asked, name) {
			continue
		}
		fmt.Fprintf(&page, "# HELP %s of the drill\n# TYPE %s gauge\n%s", name, name, strings.Join(rows[name], ""))
	}
	return page.Bytes()
}

// dcgm returns the fields of a GPU. Doubles have six decimals.
func (g *GPU) dcgm() map[string]string {
	integer := func(v float64) string { return fmt.Sprintf("%d", int64(math.Round(v))) }
	fields := map[string]string{
		"DCGM_FI_DEV_SM_CLOCK": integer(1980 * g.clock), "DCGM_FI_DEV_MAX_SM_CLOCK": "1980",
		"DCGM_FI_DEV_GPU_TEMP": integer(g.celsius), "DCGM_FI_DEV_SLOWDOWN_TEMP": "90",
		"DCGM_FI_DEV_POWER_USAGE": fmt.Sprintf("%f", g.watts()),
		"DCGM_FI_DEV_GPU_UTIL":    integer(100 * g.busy), "DCGM_FI_PROF_DRAM_ACTIVE": fmt.Sprintf("%f", g.busy*busyBandwidth/100),
		"DCGM_FI_DEV_ROW_REMAP_PENDING": integer(metrics.Bool(g.RemapPending)),
		"DCGM_FI_DEV_ROW_REMAP_FAILURE": integer(metrics.Bool(g.RemapFailed)),
		"DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": integer(g.ECC), "DCGM_FI_DEV_THRESHOLD_SRM": "0",
	}
	mask := uint64(0)
	for _, r := range reasons {
		if r.name == g.active {
			mask |= r.bit
		}
		if name := nanoseconds[r.name]; name != "" {
			fields["DCGM_FI_DEV_CLOCKS_EVENT_REASON_"+name+"_NS"] = integer(g.seconds[r.name] * 1e9)
		}
	}
	fields["DCGM_FI_DEV_CLOCK_THROTTLE_REASONS"] = integer(float64(mask))
	return fields
}
