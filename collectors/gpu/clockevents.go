//go:build linux && cgo

package gpu

import (
	"fmt"
	"math/bits"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// clockEvents lists the reasons for which the driver lowers the clocks. fields holds two counters in nanoseconds: that
// of current drivers, and that of older drivers. If there is no counter, or the driver is too old, the time is
// integrated from samples.
var clockEvents = []struct {
	bit    uint64
	reason string
	fields []uint32
}{
	{nvml.ClocksEventReasonGpuIdle, "gpu_idle", nil},
	{nvml.ClocksEventReasonApplicationsClocksSetting, "applications_clocks_setting", nil},
	{nvml.ClocksEventReasonSwPowerCap, "sw_power_cap", []uint32{nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP}},
	{nvml.ClocksThrottleReasonHwSlowdown, "hw_slowdown", nil},
	{nvml.ClocksEventReasonSyncBoost, "sync_boost", []uint32{nvml.FI_DEV_CLOCKS_EVENT_REASON_SYNC_BOOST}},
	{nvml.ClocksEventReasonSwThermalSlowdown, "sw_thermal_slowdown", []uint32{
		nvml.FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN,
		nvml.FI_DEV_PERF_POLICY_THERMAL,
	}},
	{nvml.ClocksThrottleReasonHwThermalSlowdown, "hw_thermal_slowdown", []uint32{nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN}},
	{
		nvml.ClocksThrottleReasonHwPowerBrakeSlowdown, "hw_power_brake_slowdown",
		[]uint32{nvml.FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN},
	},
	{nvml.ClocksEventReasonDisplayClockSetting, "display_clock_setting", nil},
	{nvml.ClocksEventReasonBoardLimit, "board_limit", []uint32{nvml.FI_DEV_PERF_POLICY_BOARD_LIMIT}},
	{nvml.ClocksEventReasonReliability, "reliability", []uint32{nvml.FI_DEV_PERF_POLICY_RELIABILITY}},
}

// commonClockEvents holds the reasons that every recent driver has. It is used for GPUs that do not list their
// supported reasons, such as a vGPU.
const commonClockEvents = 0x1ff

// clockEventState is the state between two samples.
type clockEventState struct {
	supported uint64
	asked     bool
	active    uint64
	seconds   [64]float64 // from samples, by bit
}

// readClockEvents exports the current reasons. For reasons that the driver does not time, it also exports how long they
// applied.
func readClockEvents(d *nvmlDevice, s *sheet) error {
	active, err := either(d, "clock_events",
		func() (uint64, error) {
			return ask(d, "nvmlDeviceGetCurrentClocksEventReasons", d.handle.GetCurrentClocksEventReasons)
		},
		func() (uint64, error) {
			return ask(d, "nvmlDeviceGetCurrentClocksThrottleReasons", d.handle.GetCurrentClocksThrottleReasons)
		})
	if err != nil {
		return err
	}
	c := &d.clockEvents
	if !c.asked {
		c.asked = true
		c.supported = d.supportedClockEvents()
		c.active = active
	}
	c.supported |= active
	var elapsed time.Duration
	if !d.last.IsZero() {
		elapsed = d.now.Sub(d.last)
	}
	if elapsed > 3*max(s.every, d.lib.options.Interval) {
		elapsed = 0 // the last sample is too old
	}
	for rest := c.supported; rest != 0; rest &= rest - 1 {
		i := bits.TrailingZeros64(rest)
		bit := uint64(1) << i
		reason, driverTimes := d.clockEvent(bit)
		s.add(metrics.GPUClockEventActive, metrics.Bool(active&bit != 0), reason)
		// If a reason applies at two successive samples, the whole time between the samples counts. If it applies at only one
		// of them, half of the time counts.
		c.seconds[i] += elapsed.Seconds() * (metrics.Bool(c.active&bit != 0) + metrics.Bool(active&bit != 0)) / 2
		if !driverTimes {
			s.add(metrics.GPUClockEventSeconds, c.seconds[i], reason, "sampled")
		}
	}
	c.active = active
	return nil
}

// supportedClockEvents returns the mask of the reasons that the GPU can report.
func (d *nvmlDevice) supportedClockEvents() uint64 {
	mask, err := either(d, "clock_events_supported",
		func() (uint64, error) {
			return ask(d, "nvmlDeviceGetSupportedClocksEventReasons", d.handle.GetSupportedClocksEventReasons)
		},
		func() (uint64, error) {
			return ask(d, "nvmlDeviceGetSupportedClocksThrottleReasons", d.handle.GetSupportedClocksThrottleReasons)
		})
	if err != nil {
		return commonClockEvents
	}
	return mask
}

// clockEvent returns the name of a reason, and whether the driver times it.
func (d *nvmlDevice) clockEvent(bit uint64) (reason string, driverTimes bool) {
	for _, e := range clockEvents {
		if e.bit == bit {
			return e.reason, slices.ContainsFunc(e.fields, func(f uint32) bool { return !d.refused(fieldID{id: f}) })
		}
	}
	return fmt.Sprintf("unknown_0x%x", bit), false
}
