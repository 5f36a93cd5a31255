//go:build linux && cgo

package gpu

import (
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// GPM (GPU performance monitoring, Hopper and newer) compares two samples of the hardware counters.
// Samples are taken once per cycle, not per scrape, so that any number of scrapers see the same
// window.
const (
	gpmMinWindow = 100 * time.Millisecond // the driver refreshes its samples no faster
	gpmMaxWindow = 10 * time.Minute       // an older sample says nothing about now
)

// gpmMetric describes one GPM metric: a ratio, which GPM reports in percent, or a count since the node booted.
type gpmMetric struct {
	id      nvml.GpmMetricId
	to      *metrics.Family
	labels  []string // after the GPU instance
	feature string   // as in llm_gpu_feature_supported
	per     float64  // units of the driver per base unit
}

// gpmFirst lists the metrics that GPM has had from the start.
var gpmFirst = []gpmMetric{
	{nvml.GPM_METRIC_GRAPHICS_UTIL, metrics.GPUGraphicsActive, nil, "graphics_active", percent},
	{nvml.GPM_METRIC_SM_UTIL, metrics.GPUSMActive, nil, "sm_active", percent},
	{nvml.GPM_METRIC_SM_OCCUPANCY, metrics.GPUSMOccupancy, nil, "sm_occupancy", percent},
	{nvml.GPM_METRIC_ANY_TENSOR_UTIL, metrics.GPUTensorActive, nil, "tensor_active", percent},
	{nvml.GPM_METRIC_DRAM_BW_UTIL, metrics.GPUMemoryBandwidthUtilization, nil, "memory_bandwidth_utilization", percent},
	{nvml.GPM_METRIC_INTEGER_UTIL, metrics.GPUPipeActive, []string{"integer"}, "pipe_active", percent},
	{nvml.GPM_METRIC_FP64_UTIL, metrics.GPUPipeActive, []string{"fp64"}, "pipe_active", percent},
	{nvml.GPM_METRIC_FP32_UTIL, metrics.GPUPipeActive, []string{"fp32"}, "pipe_active", percent},
	{nvml.GPM_METRIC_FP16_UTIL, metrics.GPUPipeActive, []string{"fp16"}, "pipe_active", percent},
	{nvml.GPM_METRIC_DFMA_TENSOR_UTIL, metrics.GPUPipeActive, []string{"tensor_dfma"}, "pipe_active", percent},
	{nvml.GPM_METRIC_HMMA_TENSOR_UTIL, metrics.GPUPipeActive, []string{"tensor_hmma"}, "pipe_active", percent},
	{nvml.GPM_METRIC_DMMA_TENSOR_UTIL, metrics.GPUPipeActive, []string{"tensor_dmma"}, "pipe_active", percent},
	{nvml.GPM_METRIC_IMMA_TENSOR_UTIL, metrics.GPUPipeActive, []string{"tensor_imma"}, "pipe_active", percent},
}

// gpmLater lists the metrics that later drivers added.
var gpmLater = []gpmMetric{
	{nvml.GPM_METRIC_DRAM_CACHE_HIT, metrics.GPUCacheHit, []string{"dram"}, "cache_hit", percent},
	{nvml.GPM_METRIC_HOSTMEM_CACHE_HIT, metrics.GPUCacheHit, []string{"host"}, "cache_hit", percent},
	{nvml.GPM_METRIC_PEERMEM_CACHE_HIT, metrics.GPUCacheHit, []string{"peer"}, "cache_hit", percent},
	{nvml.GPM_METRIC_SM_CYCLES_ELAPSED, metrics.GPUSMCycles, nil, "cycles", 1},
	{nvml.GPM_METRIC_SM_CYCLES_ACTIVE, metrics.GPUSMActiveCycles, nil, "cycles", 1},
	{nvml.GPM_METRIC_MMA_CYCLES_ACTIVE, metrics.GPUTensorActiveCycles, nil, "cycles", 1},
	{nvml.GPM_METRIC_INTEGER_CYCLES_ACTIVE, metrics.GPUPipeActiveCycles, []string{"integer"}, "cycles", 1},
	{nvml.GPM_METRIC_FP64_CYCLES_ACTIVE, metrics.GPUPipeActiveCycles, []string{"fp64"}, "cycles", 1},
	{nvml.GPM_METRIC_FP32_CYCLES_ACTIVE, metrics.GPUPipeActiveCycles, []string{"fp32"}, "cycles", 1},
	{nvml.GPM_METRIC_FP16_CYCLES_ACTIVE, metrics.GPUPipeActiveCycles, []string{"fp16"}, "cycles", 1},
	{nvml.GPM_METRIC_DFMA_CYCLES_ACTIVE, metrics.GPUPipeActiveCycles, []string{"tensor_dfma"}, "cycles", 1},
	{nvml.GPM_METRIC_HMMA_CYCLES_ACTIVE, metrics.GPUPipeActiveCycles, []string{"tensor_hmma"}, "cycles", 1},
	{nvml.GPM_METRIC_DMMA_CYCLES_ACTIVE, metrics.GPUPipeActiveCycles, []string{"tensor_dmma"}, "cycles", 1},
	{nvml.GPM_METRIC_IMMA_CYCLES_ACTIVE, metrics.GPUPipeActiveCycles, []string{"tensor_imma"}, "cycles", 1},
}

var gpmMetrics = slices.Concat(gpmFirst, gpmLater)

// gpmRates lists the GPM metrics in MiB/s, needed where the driver does not count bytes itself.
var gpmRates = []nvml.GpmMetricId{
	nvml.GPM_METRIC_PCIE_TX_PER_SEC, nvml.GPM_METRIC_PCIE_RX_PER_SEC,
	nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
}

// gpmState holds the GPM state of one GPU. The request takes 19 kB and is reused for all its instances.
type gpmState struct {
	isOpen  bool
	whole   gpmWindow
	request nvml.GpmMetricsGetType
	rates   map[nvml.GpmMetricId]gpmRate // of the window that this cycle closed for the whole GPU
}

// gpmRate holds a rate in MiB/s, or the reason why there is none.
type gpmRate struct {
	value float64
	err   error
}

// open checks whether the GPU has GPM.
func (g *gpmState) open(d *nvmlDevice) {
	support, err := ask(d, "nvmlGpmQueryDeviceSupport", d.handle.GpmQueryDeviceSupport)
	if err == nil && support.IsSupportedDevice == 0 {
		err = &callError{"nvmlGpmQueryDeviceSupport", codeNotSupported}
	}
	if err != nil {
		d.noteAll(gpmMetrics, err)
		return
	}
	g.isOpen, g.rates = true, make(map[nvml.GpmMetricId]gpmRate)
	for i, id := range gpmRates {
		g.request.Metrics[i].MetricId = uint32(id)
	}
	for i, r := range gpmMetrics {
		g.request.Metrics[len(gpmRates)+i].MetricId = uint32(r.id)
	}
}

func (g *gpmState) free(l *library) { g.whole.free(l) }

// gpmWindow spans two samples of a GPU, or of one of its MIG instances.
type gpmWindow struct {
	older, newer nvml.GpmSample // the next sample overwrites the older one
	taken        time.Time      // when newer was taken; zero: never
	window       time.Duration  // between the two; 0: there is only one sample
}

// sample closes the window that the last sample opened. It reports whether there is a new window.
func (w *gpmWindow) sample(d *nvmlDevice, name string, take func(nvml.GpmSample) nvml.Return) (bool, error) {
	now := time.Now()
	if !w.taken.IsZero() && now.Sub(w.taken) < gpmMinWindow {
		return false, nil
	}
	for _, sample := range []*nvml.GpmSample{&w.older, &w.newer} {
		if *sample == nil {
			fresh, err := ask(d, "nvmlGpmSampleAlloc", d.lib.api.GpmSampleAlloc)
			if err != nil {
				return false, err
			}
			*sample = fresh
		}
	}
	w.older, w.newer = w.newer, w.older
	last := w.taken
	w.taken, w.window = time.Time{}, 0
	if err := d.call(name, func() nvml.Return { return take(w.newer) }); err != nil {
		return false, err
	}
	w.taken = now
	if last.IsZero() || now.Sub(last) > gpmMaxWindow {
		return false, nil
	}
	w.window = now.Sub(last)
	return true, nil
}

func (w *gpmWindow) free(l *library) {
	for _, sample := range []nvml.GpmSample{w.older, w.newer} {
		if sample != nil {
			_ = l.call("nvmlGpmSampleFree", sample.Free)
		}
	}
	*w = gpmWindow{}
}

// readGPM samples the GPU and its MIG instances.
func readGPM(d *nvmlDevice, s *sheet) error {
	if !d.gpm.isOpen {
		return nil
	}
	clear(d.gpm.rates)
	err := d.gpm.whole.read(d, s, "", "nvmlGpmSampleGet", d.handle.GpmSampleGet, d.gpm.rates)
	for _, m := range d.mig {
		err := m.gpm.read(d, s, m.instance, "nvmlGpmMigSampleGet", func(sample nvml.GpmSample) nvml.Return {
			return d.handle.GpmMigSampleGet(m.id, sample)
		}, nil)
		d.note("mig_activity", err)
	}
	if err != nil {
		d.noteAll(gpmMetrics, err)
	}
	return nil
}

// noteAll records why GPM does not report some metrics.
func (d *nvmlDevice) noteAll(rows []gpmMetric, err error) {
	for _, r := range rows {
		d.note(r.feature, err)
	}
}

// read puts the metrics of a window on the sheet, and the rates into rates if that is not nil.
func (w *gpmWindow) read(d *nvmlDevice, s *sheet, instance, name string, take func(nvml.GpmSample) nvml.Return, rates map[nvml.GpmMetricId]gpmRate) error {
	fresh, err := w.sample(d, name, take)
	if err != nil || !fresh {
		return err
	}
	request := &d.gpm.request
	request.Sample1, request.Sample2 = w.older, w.newer
	key, answered := "gpm "+instance, gpmMetrics
	get := func() (string, error) {
		request.NumMetrics = uint32(len(gpmRates) + len(answered))
		return "", d.call("nvmlGpmMetricsGet", func() nvml.Return { return d.lib.api.GpmMetricsGet(request) })
	}
	_, err = either(d, key,
		func() (string, error) {
			_, err := get()
			if err != nil { // an older driver may refuse all metrics because of those that it does not know
				d.noteAll(gpmLater, err)
			}
			return "", err
		},
		func() (string, error) {
			answered = gpmFirst
			return get()
		})
	if err != nil {
		return err
	}
	refused := 0
	for i, r := range answered {
		value, err := gpmValue(request.Metrics[len(gpmRates)+i])
		if i >= len(gpmFirst) && reachOf(err) == forGood {
			refused++
		}
		d.note(r.feature, err)
		if err == nil {
			s.add(r.to, value/r.per, append([]string{instance}, r.labels...)...)
		}
	}
	if refused == len(gpmLater) {
		d.rest[key] = d.now.Add(restFor)
	}
	if rates == nil {
		return nil
	}
	for i, id := range gpmRates {
		value, err := gpmValue(request.Metrics[i])
		rates[id] = gpmRate{value, err}
	}
	return nil
}

// gpmValue returns the value of a GPM metric. Each metric has its own return code; NaN means that the window has no
// value.
func gpmValue(m nvml.GpmMetric) (float64, error) {
	if m.NvmlReturn != 0 {
		return 0, &callError{"nvmlGpmMetricsGet", code(m.NvmlReturn)}
	}
	if math.IsNaN(m.Value) || math.IsInf(m.Value, 0) {
		return 0, &callError{"nvmlGpmMetricsGet", codeTimeout}
	}
	return m.Value, nil
}
