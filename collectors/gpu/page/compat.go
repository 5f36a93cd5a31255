package page

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// served lists the metrics that dcgm-exporter serves by default, with their types. The source is
// etc/default-counters.csv of d5e5f51. Rates of PCIe and the sum of all NVLinks are left out, because this exporter
// lacks these numbers.
var served = []struct {
	name string
	is   dto.MetricType
}{
	{dev + "SM_CLOCK", dto.MetricType_GAUGE},
	{dev + "MEM_CLOCK", dto.MetricType_GAUGE},
	{dev + "MEMORY_TEMP", dto.MetricType_GAUGE},
	{dev + "GPU_TEMP", dto.MetricType_GAUGE},
	{dev + "POWER_USAGE", dto.MetricType_GAUGE},
	{dev + "TOTAL_ENERGY_CONSUMPTION", dto.MetricType_COUNTER},
	{dev + "PCIE_REPLAY_COUNTER", dto.MetricType_COUNTER},
	{dev + "GPU_UTIL", dto.MetricType_GAUGE},
	{dev + "MEM_COPY_UTIL", dto.MetricType_GAUGE},
	{dev + "ENC_UTIL", dto.MetricType_GAUGE},
	{dev + "DEC_UTIL", dto.MetricType_GAUGE},
	{dev + "XID_ERRORS", dto.MetricType_GAUGE},
	{dev + "VGPU_LICENSE_STATUS", dto.MetricType_GAUGE},
	{dev + "FB_FREE", dto.MetricType_GAUGE},
	{dev + "FB_USED", dto.MetricType_GAUGE},
	{dev + "FB_RESERVED", dto.MetricType_GAUGE},
	{dev + "UNCORRECTABLE_REMAPPED_ROWS", dto.MetricType_COUNTER},
	{dev + "CORRECTABLE_REMAPPED_ROWS", dto.MetricType_COUNTER},
	{dev + "ROW_REMAP_FAILURE", dto.MetricType_GAUGE},
	{profiling + "GR_ENGINE_ACTIVE", dto.MetricType_GAUGE},
	{profiling + "PIPE_TENSOR_ACTIVE", dto.MetricType_GAUGE},
	{profiling + "DRAM_ACTIVE", dto.MetricType_GAUGE},
}

// DCGM writes a metrics page, followed by its GPU metrics with the names, units and labels of dcgm-exporter. It uses
// the table of dcgm-exporter in reverse. Metrics that the metrics page lacks stay absent.
type DCGM struct {
	io.WriterTo
	// Hostname is the name of the node.
	Hostname string
}

// WriteTo implements io.WriterTo. If writing the metrics page fails, WriteTo also fails.
func (d DCGM) WriteTo(w io.Writer) (int64, error) {
	var page bytes.Buffer
	n, err := d.WriterTo.WriteTo(io.MultiWriter(w, &page))
	if err != nil {
		return n, err
	}
	c, err := readCompat(page.Bytes(), d.Hostname)
	if err != nil {
		return n, err
	}
	out := expfmt.NewEncoder(w, expfmt.NewFormat(expfmt.TypeTextPlain))
	for _, s := range served {
		if f := c.family(s.name, s.is); len(f.Metric) > 0 {
			if err := out.Encode(f); err != nil {
				return n, err
			}
		}
	}
	return n, nil
}

// compat holds the series about GPUs on the metrics page.
type compat struct {
	series
	hostname, driver string
	infos            map[string]labels.Labels // llm_gpu_info, by UUID
	profiles         map[ofGPU]string
	owners           map[ofGPU][]labels.Labels // llm_gpu_allocation_info
}

// readCompat reads the series of GPUs on a metrics page.
func readCompat(page []byte, hostname string) (*compat, error) {
	c := &compat{
		series: series{}, hostname: hostname, infos: map[string]labels.Labels{}, profiles: map[ofGPU]string{},
		owners: map[ofGPU][]labels.Labels{},
	}
	var gpus bytes.Buffer
	for line := range bytes.Lines(page) {
		if bytes.HasPrefix(line, []byte("llm_gpu_")) {
			gpus.Write(line)
		}
	}
	parser := textparse.NewPromParser(gpus.Bytes(), labels.NewSymbolTable(), false)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			return c, nil
		}
		if err != nil {
			return nil, err
		}
		if entry != textparse.EntrySeries {
			continue
		}
		var l labels.Labels
		parser.Labels(&l)
		_, _, v := parser.Series()
		at := ofGPU{l.Get(metrics.LabelGPUUUID), l.Get(metrics.LabelGPUInstance)}
		switch name := l.Get(model.MetricNameLabel); name {
		case metrics.GPUInfo.Name:
			c.infos[at.uuid] = l
		case metrics.GPUMIGInfo.Name:
			if _, whole, ok := strings.Cut(l.Get(metrics.LabelProfile), "c."); ok { // profile of a compute instance, such as 1c.3g.40gb
				c.profiles[at] = whole
			} else {
				c.profiles[at] = l.Get(metrics.LabelProfile)
			}
		case metrics.GPUAllocationInfo.Name:
			c.owners[at] = append(c.owners[at], l)
		case metrics.GPUDriverInfo.Name:
			c.driver = l.Get(metrics.LabelDriverVersion)
		default:
			c.series[name] = append(c.series[name], sample{l, v})
		}
	}
}

// family returns the metric family of that name in dcgm-exporter's form. It is nil if the metrics page lacks the
// family's source.
func (c *compat) family(name string, is dto.MetricType) *dto.MetricFamily {
	help := "As of dcgm-exporter, from "
	values := map[ofGPU]float64{}
	for i := range dcgm.Rows {
		r := &dcgm.Rows[i]
		if r.From.name != name || len(values) > 0 {
			continue
		}
		switch {
		case r.Is == latest:
			values = c.latest()
			help += metrics.GPUXIDLastTimestamp.Name
		case r.Is == value && r.not() == "":
			values = c.backwards(r)
			help += r.To.Name
		}
	}
	f := &dto.MetricFamily{Name: &name, Help: &help, Type: &is}
	for _, at := range slices.SortedFunc(maps.Keys(values), func(a, b ofGPU) int {
		return cmp.Or(cmp.Compare(a.uuid, b.uuid), cmp.Compare(a.instance, b.instance))
	}) {
		v := values[at]
		m := &dto.Metric{Label: c.labels(at), Gauge: &dto.Gauge{Value: &v}}
		if is == dto.MetricType_COUNTER {
			m.Gauge, m.Counter = nil, &dto.Counter{Value: &v}
		}
		f.Metric = append(f.Metric, m)
	}
	return f
}

// backwards reads the series of a row's family from the metrics page, and converts them back to the unit of the row's
// source.
func (c *compat) backwards(r *Row) map[ofGPU]float64 {
	values := map[ofGPU]float64{}
	for _, s := range c.series[r.To.Name] {
		if slices.ContainsFunc(r.Set, func(l metrics.Label) bool { return s.labels.Get(l.Name) != l.Value }) {
			continue
		}
		v := s.value
		if mul := r.From.unit.Mul; mul != 0 {
			v /= mul
		}
		if div := r.From.unit.Div; div != 0 {
			v *= div
		}
		const exact = 1e6 // rounds, so that a ratio of 0.29 gives 29 %, not 28.999999999999996
		if math.Abs(v) < 1<<53/exact {
			v = math.Round(v*exact) / exact
		}
		values[ofGPU{s.labels.Get(metrics.LabelGPUUUID), s.labels.Get(metrics.LabelGPUInstance)}] = v
	}
	for at := range values {
		if at.instance != "" { // dcgm-exporter reports instances instead of their GPU
			delete(values, ofGPU{uuid: at.uuid})
		}
	}
	return values
}

// latest returns the newest XID of each GPU. If XIDs are read but none has occurred, the value is 0.
func (c *compat) latest() map[ofGPU]float64 {
	values, newest := map[ofGPU]float64{}, map[string]float64{}
	if slices.ContainsFunc(c.series[metrics.GPUXIDSourceUp.Name], func(s sample) bool { return s.value == 1 }) {
		for uuid := range c.infos {
			values[ofGPU{uuid: uuid}] = 0
		}
	}
	for _, s := range c.series[metrics.GPUXIDLastTimestamp.Name] {
		uuid := s.labels.Get(metrics.LabelGPUUUID)
		if at, seen := newest[uuid]; uuid == "" || seen && at >= s.value {
			continue
		}
		if code, err := strconv.ParseFloat(s.labels.Get(metrics.LabelXID), 64); err == nil {
			newest[uuid], values[ofGPU{uuid: uuid}] = s.value, code
		}
	}
	return values
}

// labels returns the labels of dcgm-exporter. Releases before 4.8 write Hostname, later releases write hostname.
func (c *compat) labels(at ofGPU) (out []*dto.LabelPair) {
	add := func(name, value string) {
		if value != "" {
			out = append(out, &dto.LabelPair{Name: &name, Value: &value})
		}
	}
	info := c.infos[at.uuid]
	index := info.Get(metrics.LabelGPU)
	add("gpu", index)
	add("UUID", at.uuid)
	add("pci_bus_id", fullPCI(info.Get(metrics.LabelPCIBusID)))
	if index != "" {
		add("device", "nvidia"+index)
	}
	add("modelName", info.Get(metrics.LabelGPUName))
	add("GPU_I_PROFILE", c.profiles[at])
	add("GPU_I_ID", at.instance)
	add("Hostname", c.hostname)
	add("hostname", c.hostname)
	add("DCGM_FI_DRIVER_VERSION", c.driver)
	if owners := c.owners[at]; len(owners) == 1 {
		for _, l := range []string{metrics.LabelContainer, metrics.LabelNamespace, metrics.LabelPod} {
			add(l, owners[0].Get(l))
		}
	}
	return out
}

// fullPCI writes an address as NVML does: with a domain of eight digits, in capitals.
func fullPCI(address string) string {
	domain, rest, ok := strings.Cut(address, ":")
	if !ok || len(domain) > 8 {
		return address
	}
	return strings.ToUpper(strings.Repeat("0", 8-len(domain)) + domain + ":" + rest)
}
