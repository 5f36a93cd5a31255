//go:build linux && cgo

package gpu

import (
	"math"
	"slices"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// GPM (GPU performance monitoring, Hopper and newer) compares two samples of the hardware counters. Samples are taken
// once per cycle, and not per scrape. Therefore, all scrapers see the same window.
const (
	gpmMinWindow = 100 * time.Millisecond // the driver refreshes its samples at this interval
	gpmMaxWindow = 10 * time.Minute       // an older sample no longer describes the present
)

// gpmMetric describes one GPM metric. It is a ratio, which GPM reports in percent, or a count since the node booted.
type gpmMetric struct {
	id      nvml.GpmMetricId
	to      *metrics.Family
	labels  []string // label values after the GPU instance
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

// gpmRates lists the GPM metrics in MiB/s. They are used if the driver does not count bytes itself.
var gpmRates = []nvml.GpmMetricId{
	nvml.GPM_METRIC_PCIE_TX_PER_SEC, nvml.GPM_METRIC_PCIE_RX_PER_SEC,
	nvml.GPM_METRIC_NVLINK_TOTAL_TX_PER_SEC, nvml.GPM_METRIC_NVLINK_TOTAL_RX_PER_SEC,
}

// gpmState holds the GPM state of one GPU. The request takes 19 kB and is reused for all instances of the GPU.
type gpmState struct {
	isOpen  bool
	whole   [slow + 1]gpmWindow
	rows    []row // of gpmMetrics; only metrics that have had an answer can become slow
	settled bool
	request nvml.GpmMetricsGetType
	rates   map[nvml.GpmMetricId]gpmRate // rates of the whole GPU in the window that this cycle closed
}

// gpmRate holds a rate in MiB/s, or the reason for a missing rate.
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
	g.rows = make([]row, len(gpmMetrics))
}

// get reads metrics of a window.
func (g *gpmState) get(d *nvmlDevice, w *gpmWindow, ids ...nvml.GpmMetricId) error {
	g.request.Sample1, g.request.Sample2, g.request.NumMetrics = w.older, w.newer, uint32(len(ids))
	for i, id := range ids {
		g.request.Metrics[i] = nvml.GpmMetric{MetricId: uint32(id), Value: math.NaN()}
	}
	return d.call("nvmlGpmMetricsGet", func() nvml.Return { return d.lib.api.GpmMetricsGet(&g.request) })
}

// settle finds the metrics for which the driver needs a long time. It reads each metric alone, twice.
func (g *gpmState) settle(d *nvmlDevice, s *sheet) {
	if g.whole[fast].window == 0 || g.settled && s.due < rare || d.lib.options.Budget == 1 {
		return
	}
	g.settled = true
	d.begin(s, rare)
	for i := range g.rows {
		for range 2 {
			if g.rows[i].mayBeSlow {
				before := *d.driver
				_ = g.get(d, &g.whole[fast], gpmMetrics[i].id)
				g.rows[i].took(*d.driver - before)
			}
		}
		s.settled = g.rows[i].settle(&d.lib.options) || s.settled
	}
	d.begin(s, fast)
}

func (g *gpmState) free(l *library) { freeWindows(l, &g.whole) }

// of returns the indices of those metrics that belong to a tier, among the first n.
func (g *gpmState) of(t tier, n int) (found []int) {
	for i, r := range g.rows[:n] {
		if r.tier == t {
			found = append(found, i)
		}
	}
	return found
}

// gpmWindow spans two samples of a GPU, or of one of its MIG instances.
type gpmWindow struct {
	older, newer nvml.GpmSample // the next sample overwrites the older one
	taken        time.Time      // time of newer; zero means never
	window       time.Duration  // time between the two samples; 0 means that there is only one sample
}

// sample closes the window that the last sample opened. It reports whether there is a new window.
func (w *gpmWindow) sample(d *nvmlDevice, name string, take func(nvml.GpmSample) nvml.Return) (bool, error) {
	if !w.taken.IsZero() && time.Since(w.taken) < gpmMinWindow {
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
	w.taken = time.Now() // the time after the call, because the driver may have delayed the call
	if last.IsZero() || w.taken.Sub(last) > gpmMaxWindow {
		return false, nil
	}
	w.window = w.taken.Sub(last)
	return true, nil
}

func freeWindows(l *library, windows *[slow + 1]gpmWindow) {
	for _, w := range windows {
		for _, sample := range []nvml.GpmSample{w.older, w.newer} {
			if sample != nil {
				_ = l.call("nvmlGpmSampleFree", sample.Free)
			}
		}
	}
	*windows = [slow + 1]gpmWindow{}
}

// readGPM samples the GPU and its MIG instances. Metrics for which the driver needs a long time are read with the slow
// readings, over the window between two slow readings.
func readGPM(d *nvmlDevice, s *sheet) error {
	if !d.gpm.isOpen {
		return nil
	}
	clear(d.gpm.rates)
	for t := range min(s.due, slow) + 1 {
		d.begin(s, t)
		err := d.gpm.whole[t].read(d, s, t, "", "nvmlGpmSampleGet", d.handle.GpmSampleGet)
		for _, m := range d.mig {
			err := m.gpm[t].read(d, s, t, m.instance, "nvmlGpmMigSampleGet", func(sample nvml.GpmSample) nvml.Return {
				return d.handle.GpmMigSampleGet(m.id, sample)
			})
			d.note("mig_activity", err)
		}
		if err != nil {
			d.noteAll(gpmMetrics, err)
		}
	}
	return nil
}

// noteAll records why GPM does not report some metrics.
func (d *nvmlDevice) noteAll(rows []gpmMetric, err error) {
	for _, r := range rows {
		d.note(r.feature, err)
	}
}

// read adds the metrics of a tier over a window to the sheet. Fast metrics of the whole GPU come with the rates.
func (w *gpmWindow) read(d *nvmlDevice, s *sheet, t tier, instance, name string, take func(nvml.GpmSample) nvml.Return) error {
	g := &d.gpm
	if len(g.of(t, len(gpmMetrics))) == 0 {
		return nil
	}
	fresh, err := w.sample(d, name, take)
	if err != nil || !fresh {
		return err
	}
	var rates []nvml.GpmMetricId
	if t == fast && instance == "" {
		rates = gpmRates
	}
	var answered []int
	get := func(first int) (string, error) {
		answered = g.of(t, first)
		ids := slices.Clone(rates)
		for _, i := range answered {
			ids = append(ids, gpmMetrics[i].id)
		}
		return "", g.get(d, w, ids...)
	}
	key := "gpm " + instance + tierNames[t]
	_, err = either(d, key,
		func() (string, error) {
			_, err := get(len(gpmMetrics))
			if err != nil { // an older driver may refuse all metrics if it lacks some of them
				d.noteAll(gpmLater, err)
			}
			return "", err
		},
		func() (string, error) { return get(len(gpmFirst)) })
	if err != nil {
		return err
	}
	later, refused := 0, 0
	for n, i := range answered {
		r := gpmMetrics[i]
		value, err := gpmValue(g.request.Metrics[len(rates)+n])
		if i >= len(gpmFirst) {
			later++
			if reachOf(err) == forGood {
				refused++
			}
		}
		d.note(r.feature, err)
		g.rows[i].mayBeSlow = err == nil
		if err == nil {
			s.add(r.to, value/r.per, append([]string{instance}, r.labels...)...)
		}
	}
	if later > 0 && refused == later {
		d.rest[key] = d.now.Add(restFor)
	}
	for i, id := range rates {
		value, err := gpmValue(g.request.Metrics[i])
		g.rates[id] = gpmRate{value, err}
	}
	return nil
}

// gpmValue returns the value of a GPM metric. Each metric has its own return code. NaN means that the window has no
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
