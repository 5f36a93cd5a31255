//go:build linux && cgo

package gpu

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// call describes a reading that needs its own driver calls, because no field has the value.
type call struct {
	feature string // as in llm_gpu_feature_supported; empty if read records the feature itself
	row
	read func(*nvmlDevice, *sheet) error

	restUntil time.Time
}

var mayBeSlow = row{mayBeSlow: true}

// newCalls returns the calls of one GPU in the order of their execution. Calls that need the fields or GPM come after
// the fields and GPM.
func newCalls() []call {
	return []call{
		{feature: "clock_max", row: at(rare), read: readMaxClocks},
		{feature: "clock_events", read: readClockEvents},
		{feature: "platform", row: at(rare), read: readPlatform},
		{feature: "gsp_firmware", row: at(rare), read: readGSPFirmware},
		{feature: "gsp_firmware_mode", row: at(rare), read: readGSPMode},
		{feature: "vgpu_licence", row: at(slow), read: readLicence},
		{feature: "performance_state", row: mayBeSlow, read: readPerformanceState},
		{feature: "persistence_mode", row: at(slow), read: readPersistenceMode},
		{feature: "utilization", row: mayBeSlow, read: readUtilization},
		mediaUnit("encoder", "nvmlDeviceGetEncoderUtilization", nvml.Device.GetEncoderUtilization),
		mediaUnit("decoder", "nvmlDeviceGetDecoderUtilization", nvml.Device.GetDecoderUtilization),
		mediaUnit("jpeg", "nvmlDeviceGetJpgUtilization", nvml.Device.GetJpgUtilization),
		mediaUnit("ofa", "nvmlDeviceGetOfaUtilization", nvml.Device.GetOfaUtilization),
		{feature: "memory", row: mayBeSlow, read: readDeviceMemory},
		{feature: "bar1", row: at(slow), read: readBAR1},
		{feature: "memory_bandwidth_peak", row: at(rare), read: readPeakBandwidth},
		{feature: "temperature", row: mayBeSlow, read: readTemperature},
		{feature: "temperature_margin", row: mayBeSlow, read: readTemperatureMargin},
		{feature: "power", row: mayBeSlow, read: readPower},
		{feature: "fan_speed", row: at(slow), read: readFans},
		{feature: "ecc_errors", row: at(slow), read: readECC},
		{feature: "sram_ecc_threshold", row: at(slow), read: readSRAM},
		{feature: "row_remap_banks", row: at(slow), read: readRowRemapBanks},
		{feature: "repair_pending", row: at(slow), read: readRepair},
		{feature: "memory_unrepairable", row: at(slow), read: readUnrepairable},
		{feature: "pcie_link", row: at(slow), read: readPCIeLink},
		{row: at(slow), read: readNVLinks},
		{feature: "nvlink_fec", row: at(slow), read: readFEC},
		{feature: "c2c_mode", row: at(rare), read: readC2CMode},
		{feature: "fabric", row: at(slow), read: readFabric},
		{read: readRecoveryAction},
		{feature: "mig", row: at(slow), read: readMIG},
		{read: readGPM},
		{feature: "pcie_traffic", read: readPCIeTraffic},
		{feature: "nvlink_traffic", read: readNVLinkTraffic},
		{feature: "process_utilization", row: at(slow), read: readProcessUtilization},
		{feature: "processes", row: at(slow), read: readProcesses},
		{feature: "xid_events", read: readXIDEvents},
	}
}

// anyOf collects the outcomes of several calls. At least one of these calls must succeed.
type anyOf struct {
	ok    bool
	first error
}

// add records an outcome and reports whether the call succeeded.
func (a *anyOf) add(err error) bool {
	switch {
	case err == nil:
		a.ok = true
	case a.first == nil:
		a.first = err
	}
	return err == nil
}

func (a *anyOf) err() error {
	if a.ok {
		return nil
	}
	return a.first
}

type clockDomain struct {
	clock nvml.ClockType
	name  string
}

var clockDomains = []clockDomain{
	{nvml.CLOCK_GRAPHICS, "graphics"}, {nvml.CLOCK_SM, "sm"}, {nvml.CLOCK_MEM, "memory"}, {nvml.CLOCK_VIDEO, "video"},
}

func readClocks(d *nvmlDevice, s *sheet) error {
	var out anyOf
	for _, c := range clockDomains {
		mhz, err := ask(d, "nvmlDeviceGetClockInfo", func() (uint32, nvml.Return) { return d.handle.GetClockInfo(c.clock) })
		if out.add(err) {
			s.add(metrics.GPUClock, float64(mhz)*mega, c.name)
		}
	}
	return out.err()
}

func readMaxClocks(d *nvmlDevice, s *sheet) error {
	var out anyOf
	for _, c := range clockDomains {
		mhz, err := ask(d, "nvmlDeviceGetMaxClockInfo", func() (uint32, nvml.Return) { return d.handle.GetMaxClockInfo(c.clock) })
		if out.add(err) {
			s.add(metrics.GPUClockMax, float64(mhz)*mega, c.name)
		}
	}
	return out.err()
}

// readPeakBandwidth computes the theoretical bandwidth of double data rate memory.
func readPeakBandwidth(d *nvmlDevice, s *sheet) error {
	mhz, err := ask(d, "nvmlDeviceGetMaxClockInfo", func() (uint32, nvml.Return) { return d.handle.GetMaxClockInfo(nvml.CLOCK_MEM) })
	if err != nil {
		return err
	}
	width, err := ask(d, "nvmlDeviceGetMemoryBusWidth", d.handle.GetMemoryBusWidth)
	if err != nil {
		return err
	}
	if mhz == 0 || width == 0 {
		return &callError{"nvmlDeviceGetMemoryBusWidth", codeNotSupported} // the GPU has no memory of its own
	}
	s.add(metrics.GPUMemoryBandwidthPeak, 2*float64(mhz)*mega*float64(width)/8)
	return nil
}

func readPerformanceState(d *nvmlDevice, s *sheet) error {
	state, err := ask(d, "nvmlDeviceGetPerformanceState", d.handle.GetPerformanceState)
	if err == nil && state == nvml.PSTATE_UNKNOWN {
		err = &callError{"nvmlDeviceGetPerformanceState", codeNotSupported}
	}
	if err == nil {
		s.add(metrics.GPUPerformanceState, float64(state))
	}
	return err
}

func readPersistenceMode(d *nvmlDevice, s *sheet) error {
	mode, err := ask(d, "nvmlDeviceGetPersistenceMode", d.handle.GetPersistenceMode)
	if err == nil {
		s.add(metrics.GPUPersistenceMode, metrics.Bool(mode == nvml.FEATURE_ENABLED))
	}
	return err
}

func readUtilization(d *nvmlDevice, s *sheet) error {
	percent, err := ask(d, "nvmlDeviceGetUtilizationRates", d.handle.GetUtilizationRates)
	if err == nil {
		s.add(metrics.GPUUtilization, float64(percent.Gpu)/100)
		s.add(metrics.GPUMemoryBusy, float64(percent.Memory)/100)
	}
	return err
}

// mediaUnit returns the row of a unit beside the SMs.
func mediaUnit(kind, name string, get func(nvml.Device) (percent, periodMicros uint32, ret nvml.Return)) call {
	return call{feature: kind + "_utilization", row: at(slow), read: func(d *nvmlDevice, s *sheet) error {
		percent, err := ask(d, name, func() (uint32, nvml.Return) {
			percent, _, ret := get(d.handle)
			return percent, ret
		})
		if err == nil {
			s.add(metrics.GPUMediaUtilization, float64(percent)/100, kind)
		}
		return err
	}}
}

func readBAR1(d *nvmlDevice, s *sheet) error {
	m, err := ask(d, "nvmlDeviceGetBAR1MemoryInfo", d.handle.GetBAR1MemoryInfo)
	if err == nil && m.Bar1Total == 0 {
		err = &callError{"nvmlDeviceGetBAR1MemoryInfo", codeNotSupported}
	}
	if err == nil {
		s.add(metrics.GPUBAR1Total, float64(m.Bar1Total))
		s.add(metrics.GPUBAR1Used, float64(m.Bar1Used))
	}
	return err
}

func readGSPFirmware(d *nvmlDevice, s *sheet) error {
	version, err := ask(d, "nvmlDeviceGetGspFirmwareVersion", d.handle.GetGspFirmwareVersion)
	if err == nil {
		s.add(metrics.GPUGSPFirmwareInfo, 1, version)
	}
	return err
}

func readGSPMode(d *nvmlDevice, s *sheet) error {
	var enabled, byDefault bool
	err := d.call("nvmlDeviceGetGspFirmwareMode", func() (ret nvml.Return) {
		enabled, byDefault, ret = d.handle.GetGspFirmwareMode()
		return ret
	})
	if err == nil {
		s.add(metrics.GPUGSPFirmwareMode, metrics.Bool(enabled), "current")
		s.add(metrics.GPUGSPFirmwareMode, metrics.Bool(byDefault), "default")
	}
	return err
}

// readLicence exports whether a virtual GPU has any licence. Physical GPUs are left out. The driver lists licensable
// features for them, too, but they compute without a licence.
func readLicence(d *nvmlDevice, s *sheet) error {
	mode, err := ask(d, "nvmlDeviceGetVirtualizationMode", d.handle.GetVirtualizationMode)
	if err != nil {
		return err
	}
	if mode != nvml.GPU_VIRTUALIZATION_MODE_VGPU {
		return &callError{"nvmlDeviceGetVirtualizationMode", codeNotSupported}
	}
	features, err := ask(d, "nvmlDeviceGetGridLicensableFeatures", d.handle.GetGridLicensableFeatures)
	if err == nil && features.IsGridLicenseSupported == 0 {
		err = &callError{"nvmlDeviceGetGridLicensableFeatures", codeNotSupported}
	}
	if err != nil {
		return err
	}
	listed := features.GridLicensableFeatures[:min(int(features.LicensableFeaturesCount), len(features.GridLicensableFeatures))]
	licensed := slices.ContainsFunc(listed, func(f nvml.GridLicensableFeature) bool { return f.FeatureState != 0 })
	s.add(metrics.GPUVGPULicensed, metrics.Bool(licensed))
	return nil
}

// readPlatform exports the position of a GPU in its rack. go-nvml requests version 1 of the call. Compared with version
// 2, some fields have other names but the same places.
func readPlatform(d *nvmlDevice, s *sheet) error {
	p, err := ask(d, "nvmlDeviceGetPlatformInfo", d.handle.GetPlatformInfo)
	if err == nil {
		serial, _, _ := strings.Cut(string(p.ChassisSerialNumber[:]), "\x00")
		s.add(metrics.GPUPlatformInfo, 1, serial, strconv.Itoa(int(p.SlotNumber)), strconv.Itoa(int(p.TrayIndex)),
			strconv.Itoa(int(p.HostId)), strconv.Itoa(int(p.PeerType)), strconv.Itoa(int(p.ModuleId)))
	}
	return err
}

func readC2CMode(d *nvmlDevice, s *sheet) error {
	mode, err := ask(d, "nvmlDeviceGetC2cModeInfoV", func() (nvml.C2cModeInfo_v1, nvml.Return) { return d.handle.GetC2cModeInfoV().V1() })
	if err == nil {
		s.add(metrics.GPUC2CMode, metrics.Bool(mode.IsC2cEnabled != 0))
	}
	return err
}

func readDeviceMemory(d *nvmlDevice, s *sheet) error { return d.readMemory(s, d.handle, "") }

// readMemory exports the memory of the GPU or of a MIG device. Only the newer call separates reserved memory. The older
// call counts it as used memory.
func (d *nvmlDevice) readMemory(s *sheet, h nvml.Device, instance string) error {
	m, err := either(d, "memory "+instance,
		func() (nvml.Memory, error) {
			m, err := ask(d, "nvmlDeviceGetMemoryInfo_v2", h.GetMemoryInfo_v2)
			if err == nil && m.Total > 0 {
				s.add(metrics.GPUMemoryReserved, float64(m.Reserved), instance)
			}
			return nvml.Memory{Total: m.Total, Used: m.Used, Free: m.Free}, err
		},
		func() (nvml.Memory, error) { return ask(d, "nvmlDeviceGetMemoryInfo", h.GetMemoryInfo) })
	if err == nil && m.Total == 0 {
		err = &callError{"nvmlDeviceGetMemoryInfo", codeNotSupported} // the GPU shares the memory of the CPU
	}
	if err != nil {
		return err
	}
	s.add(metrics.GPUMemoryTotal, float64(m.Total), instance)
	s.add(metrics.GPUMemoryUsed, float64(m.Used), instance)
	s.add(metrics.GPUMemoryFree, float64(m.Free), instance)
	return nil
}

// readPower reads the power on drivers that lack the power fields.
func readPower(d *nvmlDevice, s *sheet) error {
	instant := fieldID{id: nvml.FI_DEV_POWER_INSTANT}
	if _, ok := d.values[instant]; ok {
		return nil
	}
	milliwatts, err := ask(d, "nvmlDeviceGetPowerUsage", d.handle.GetPowerUsage)
	if err == nil {
		s.add(metrics.GPUPower, float64(milliwatts)/milli, "gpu")
	}
	return err
}

func readFans(d *nvmlDevice, s *sheet) error {
	fans, err := ask(d, "nvmlDeviceGetNumFans", d.handle.GetNumFans)
	if err == nil && fans == 0 {
		err = &callError{"nvmlDeviceGetNumFans", codeNotSupported}
	}
	for fan := range fans {
		percent, err := ask(d, "nvmlDeviceGetFanSpeed_v2", func() (uint32, nvml.Return) { return d.handle.GetFanSpeed_v2(fan) })
		if err != nil {
			return err
		}
		s.add(metrics.GPUFanSpeed, float64(percent)/100, strconv.Itoa(fan))
	}
	return err
}

func readPCIeLink(d *nvmlDevice, s *sheet) error {
	var out anyOf
	most := make(map[*metrics.Family]int) // the loop reads the maximum last
	for _, q := range []struct {
		to   *metrics.Family
		name string
		get  func() (int, nvml.Return)
		what string
	}{
		{metrics.GPUPCIeLinkGeneration, "nvmlDeviceGetCurrPcieLinkGeneration", d.handle.GetCurrPcieLinkGeneration, "current"},
		{metrics.GPUPCIeLinkGeneration, "nvmlDeviceGetMaxPcieLinkGeneration", d.handle.GetMaxPcieLinkGeneration, "max"},
		{metrics.GPUPCIeLinkWidth, "nvmlDeviceGetCurrPcieLinkWidth", d.handle.GetCurrPcieLinkWidth, "current"},
		{metrics.GPUPCIeLinkWidth, "nvmlDeviceGetMaxPcieLinkWidth", d.handle.GetMaxPcieLinkWidth, "max"},
	} {
		value, err := ask(d, q.name, q.get)
		if out.add(err) {
			s.add(q.to, float64(value), q.what)
			most[q.to] = value
		}
	}
	if generation, width := most[metrics.GPUPCIeLinkGeneration], most[metrics.GPUPCIeLinkWidth]; generation < len(pcieTransfers) && width > 0 {
		d.pcieSpeed = pcieTransfers[generation] / 8 * float64(width)
	}
	return out.err()
}

// pcieTransfers holds the bits per second of a lane in one direction, by generation. These are the rates of the PCI
// Express specifications, before encoding overhead.
var pcieTransfers = []float64{math.Inf(1), 2.5e9, 5e9, 8e9, 16e9, 32e9, 64e9}

// readRecoveryAction exports the name of the recovery action. A field has the number of this action.
func readRecoveryAction(d *nvmlDevice, s *sheet) error {
	if action, ok := d.field(nvml.FI_DEV_GET_GPU_RECOVERY_ACTION); ok {
		s.add(metrics.GPURecoveryActionInfo, 1, metrics.RecoveryAction(int(action)))
	}
	return nil
}
