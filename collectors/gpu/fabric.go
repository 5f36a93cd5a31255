//go:build linux && cgo

package gpu

import (
	"fmt"
	"strconv"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// fabricChecks lists the bit fields of the fabric health mask. The value 0 means that the check is not supported. The
// value bad means that the check fails.
var fabricChecks = []struct {
	name         string
	shift, width uint32
	bad          func(uint32) bool
}{
	{"degraded_bandwidth", nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_DEGRADED_BW, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_DEGRADED_BW, isOne},
	{"route_recovery", nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_RECOVERY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_RECOVERY, isOne},
	{"route_unhealthy", nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ROUTE_UNHEALTHY, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ROUTE_UNHEALTHY, isOne},
	{
		"access_timeout_recovery", nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_ACCESS_TIMEOUT_RECOVERY,
		nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_ACCESS_TIMEOUT_RECOVERY, isOne,
	},
	{
		"incorrect_configuration", nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_INCORRECT_CONFIGURATION,
		nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_INCORRECT_CONFIGURATION, isMoreThanOne,
	},
	{"manager_disconnected", nvml.GPU_FABRIC_HEALTH_MASK_SHIFT_GFM_STATE, nvml.GPU_FABRIC_HEALTH_MASK_WIDTH_GFM_STATE, isMoreThanOne},
}

func isOne(v uint32) bool         { return v == 1 }
func isMoreThanOne(v uint32) bool { return v > 1 }

var fabricStates = []string{
	nvml.GPU_FABRIC_STATE_NOT_STARTED: "not_started",
	nvml.GPU_FABRIC_STATE_IN_PROGRESS: "in_progress",
	nvml.GPU_FABRIC_STATE_COMPLETED:   "completed",
}

// uuid formats the bytes of a UUID as NVIDIA's tools do.
func uuid(b [16]byte) string {
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// readFabric exports the registration with the NVSwitch fabric, its result, and its health. Version 3 of the call adds
// a summary. Drivers before 13.0 have only version 2.
func readFabric(d *nvmlDevice, s *sheet) error {
	const name = "nvmlDeviceGetGpuFabricInfoV"
	info, err := either(d, "fabric",
		func() (nvml.GpuFabricInfo_v3, error) {
			return ask(d, name, func() (nvml.GpuFabricInfo_v3, nvml.Return) { return d.handle.GetGpuFabricInfoV().V3() })
		},
		func() (nvml.GpuFabricInfo_v3, error) {
			old, err := ask(d, name, func() (nvml.GpuFabricInfo_v2, nvml.Return) { return d.handle.GetGpuFabricInfoV().V2() })
			return nvml.GpuFabricInfo_v3{
				ClusterUuid: old.ClusterUuid, Status: old.Status, CliqueId: old.CliqueId, State: old.State,
				HealthMask: old.HealthMask,
			}, err
		})
	if err == nil && (info.State == nvml.GPU_FABRIC_STATE_NOT_SUPPORTED || int(info.State) >= len(fabricStates)) {
		err = &callError{name, codeNotSupported}
	}
	if err != nil {
		return err
	}
	s.add(metrics.GPUFabricState, 1, fabricStates[info.State])
	// If GPUs reach only GPUs of their own node, the UUID is zero on every node, and identifies no cluster.
	if info.State == nvml.GPU_FABRIC_STATE_COMPLETED && nvml.Return(info.Status) == nvml.SUCCESS && info.ClusterUuid != [16]uint8{} {
		s.add(metrics.GPUFabricInfo, 1, uuid(info.ClusterUuid), strconv.Itoa(int(info.CliqueId)))
	}
	for _, c := range fabricChecks {
		if v := info.HealthMask >> c.shift & c.width; v != 0 {
			s.add(metrics.GPUFabricHealth, metrics.Bool(c.bad(v)), c.name)
		}
	}
	switch info.HealthSummary {
	case nvml.GPU_FABRIC_HEALTH_SUMMARY_HEALTHY:
		s.add(metrics.GPUFabricHealth, 0, "summary")
	case nvml.GPU_FABRIC_HEALTH_SUMMARY_UNHEALTHY, nvml.GPU_FABRIC_HEALTH_SUMMARY_LIMITED_CAPACITY:
		s.add(metrics.GPUFabricHealth, 1, "summary")
	}
	return nil
}
