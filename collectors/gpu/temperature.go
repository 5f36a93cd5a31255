//go:build linux && cgo

package gpu

import (
	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

func readTemperature(d *nvmlDevice, s *sheet) error {
	celsius, err := either(d, "temperature",
		func() (float64, error) {
			t, err := ask(d, "nvmlDeviceGetTemperatureV", func() (nvml.Temperature, nvml.Return) { return d.handle.GetTemperatureV().V1() })
			return float64(t.Temperature), err
		},
		d.readSensor)
	if err == nil {
		s.add(metrics.GPUTemperature, celsius, "gpu")
	}
	return err
}

// readSensor returns the temperature of the GPU through the call that every driver has.
func (d *nvmlDevice) readSensor() (float64, error) {
	celsius, err := ask(d, "nvmlDeviceGetTemperature", func() (uint32, nvml.Return) { return d.handle.GetTemperature(nvml.TEMPERATURE_GPU) })
	return float64(celsius), err
}

// temperatureLimits lists the limits of a GPU. On Ada and newer, they are T.Limit fields, on the scale of
// nvmlDeviceGetMarginTemperature. On older GPUs, they are thresholds in degrees.
var temperatureLimits = []struct {
	name      string
	field     uint32
	threshold nvml.TemperatureThresholds
}{
	{"slowdown", nvml.FI_DEV_TEMPERATURE_SLOWDOWN_TLIMIT, nvml.TEMPERATURE_THRESHOLD_SLOWDOWN},
	{"shutdown", nvml.FI_DEV_TEMPERATURE_SHUTDOWN_TLIMIT, nvml.TEMPERATURE_THRESHOLD_SHUTDOWN},
	{"memory_max", 0, nvml.TEMPERATURE_THRESHOLD_MEM_MAX},
	{"gpu_max", nvml.FI_DEV_TEMPERATURE_GPU_MAX_TLIMIT, nvml.TEMPERATURE_THRESHOLD_GPU_MAX},
}

// readTemperatureMargin exports the distance to each limit. The driver reports only the margin of the GPU, not the
// distance of the memory from its limit.
func readTemperatureMargin(d *nvmlDevice, s *sheet) error {
	_, err := either(d, "temperature_margin",
		func() (string, error) {
			margin, err := ask(d, "nvmlDeviceGetMarginTemperature", d.handle.GetMarginTemperature)
			if err != nil {
				return "", err
			}
			err = &callError{"nvmlDeviceGetFieldValues, T.Limit", codeNotSupported}
			for _, l := range temperatureLimits {
				if limit, ok := d.field(l.field); ok {
					s.add(metrics.GPUTemperatureMargin, float64(margin.MarginTemperature)-limit, l.name)
					err = nil
				}
			}
			return "", err
		},
		func() (string, error) { return "", d.readThresholdMargin(s) })
	return err
}

// readThresholdMargin computes the margins of GPUs whose limits are in degrees. The limits do not change, so it reads
// them once.
func (d *nvmlDevice) readThresholdMargin(s *sheet) error {
	var out anyOf
	if d.limits == nil {
		d.limits = make(map[string]float64)
		for _, l := range temperatureLimits {
			celsius, err := ask(d, "nvmlDeviceGetTemperatureThreshold",
				func() (uint32, nvml.Return) { return d.handle.GetTemperatureThreshold(l.threshold) })
			if out.add(err) && celsius > 0 {
				d.limits[l.name] = float64(celsius)
			}
		}
	}
	gpu, gpuErr := d.readSensor()
	memory, hasMemory := d.field(nvml.FI_DEV_MEMORY_TEMP)
	for name, limit := range d.limits {
		switch {
		case name != "memory_max" && out.add(gpuErr):
			s.add(metrics.GPUTemperatureMargin, limit-gpu, name)
		case name == "memory_max" && hasMemory:
			s.add(metrics.GPUTemperatureMargin, limit-memory, name)
		}
	}
	return out.err()
}
