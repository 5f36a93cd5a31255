package page

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// maxGPUs limits the number of GPUs that are remembered from a metrics page. The largest nodes have 16 GPUs.
const maxGPUs = 128

// parsed holds a metrics page and the GPUs that its labels name.
type parsed struct {
	*Source
	series
	prefix     string
	redefines  bool
	gpus       map[string]gpu.Identity
	infos      map[string][]string // values of llm_gpu_info after those of the GPU, by UUID
	drivers    map[[2]string]bool  // versions of the driver and of NVML
	partitions map[ofGPU][2]string // UUIDs and profiles of MIG instances
	owners     map[gpu.Owner]bool
	blanks     map[dropped]float64
}

// parse recognises a metrics page and finds its GPUs.
func parse(p *scrape.Page, limits scrape.Limits) (*parsed, error) {
	s := series{}
	for l, v := range p.Series() {
		name := l.Get(model.MetricNameLabel)
		s[name] = append(s[name], sample{l, v})
	}
	for _, source := range sources {
		if prefix, ok := source.Recognise(s); ok {
			out := &parsed{
				Source: source, series: s, prefix: prefix, gpus: map[string]gpu.Identity{}, infos: map[string][]string{},
				drivers: map[[2]string]bool{}, partitions: map[ofGPU][2]string{}, owners: map[gpu.Owner]bool{}, blanks: map[dropped]float64{},
			}
			out.redefines = source.Redefines == nil || source.Redefines(s)
			return out, out.identify(limits)
		}
	}
	return nil, scrape.Errorf(reasonNoGPUs, "no known GPU exporter has these metrics (%s)", p.Names())
}

// of translates labels of the metrics page: it returns the value of a label of the vocabulary.
func (p *parsed) of(l labels.Labels, name string) string { return first(l, p.Labels[name]...) }

// identify collects the GPUs that the labels of all rows name.
func (p *parsed) identify(limits scrape.Limits) error {
	relayed := false
	for _, samples := range p.series {
		for _, s := range samples {
			relayed = relayed || s.labels.Has("exported_pod") || s.labels.Has(metrics.LabelInstance)
		}
	}
	for name, samples := range p.series {
		for _, s := range samples {
			uuid := p.UUID(s.labels)
			if uuid == "" {
				continue // a row of a CPU, a switch or a link
			}
			if err := short(name, s.labels, limits); err != nil {
				return err
			}
			p.gpu(uuid, s.labels)
			if len(p.gpus) > maxGPUs {
				return scrape.Errorf(scrape.LimitExceeded, "more than %d GPUs: no node has so many", maxGPUs)
			}
			p.workload(p.gpus[uuid], s.labels, relayed)
		}
	}
	if nameless := p.nameless(); len(p.gpus) == 0 && nameless != "" {
		return scrape.Errorf(reasonNoUUID, "the series of %s lack the label that identifies the GPU", nameless)
	}
	return nil
}

// nameless returns the name of a metric about a GPU that no label identifies, or an empty string if there is none.
func (p *parsed) nameless() string {
	for _, name := range slices.Sorted(maps.Keys(p.series)) {
		if slices.ContainsFunc(p.Rows, func(r Row) bool { return name == p.prefix+r.From.name || name == p.prefix+r.From.renamed }) {
			return name
		}
	}
	return ""
}

// short refuses labels that are longer than the limit for engines' labels.
func short(name string, l labels.Labels, limits scrape.Limits) (err error) {
	l.Range(func(l labels.Label) {
		if len(l.Value) > limits.LabelValueBytes {
			err = scrape.Errorf(scrape.LimitExceeded, "label %s of %s has %d bytes, more than %d", l.Name, name, len(l.Value),
				limits.LabelValueBytes)
		}
	})
	return err
}

// gpu records the identity of a GPU. The partition with the lowest index represents its GPU.
func (p *parsed) gpu(uuid string, l labels.Labels) {
	index := p.of(l, metrics.LabelGPU)
	if known, ok := p.gpus[uuid]; !ok || lower(index, known.Index) {
		id := gpu.Identity{UUID: uuid, Index: index}
		id.PCI, _ = gpu.CanonicalPCI(p.of(l, metrics.LabelPCIBusID))
		p.gpus[uuid] = id
		p.infos[uuid] = []string{
			p.of(l, metrics.LabelGPUName), id.PCI, "", p.of(l, metrics.LabelSerial), "", "",
			p.of(l, metrics.LabelVBIOSVersion),
		}
	}
	if driver := p.of(l, metrics.LabelDriverVersion); driver != "" {
		p.drivers[[2]string{driver, p.of(l, metrics.LabelNVMLVersion)}] = true
	}
	if instance := p.of(l, metrics.LabelGPUInstance); instance != "" {
		p.partitions[ofGPU{uuid, instance}] = [2]string{p.of(l, metrics.LabelMIGUUID), p.of(l, metrics.LabelProfile)}
	}
}

func lower(a, b string) bool {
	x, errX := strconv.Atoi(a)
	y, errY := strconv.Atoi(b)
	return errX == nil && (errY != nil || x < y)
}

// workload records the container of a row. If a Prometheus relays the metrics page, the plain labels describe the
// exporter that wrote the page.
func (p *parsed) workload(id gpu.Identity, l labels.Labels, relayed bool) {
	o := gpu.Owner{GPU: id, InstanceID: p.of(l, metrics.LabelGPUInstance)}
	if relayed {
		o.Namespace, o.Pod, o.Container = l.Get("exported_namespace"), l.Get("exported_pod"), l.Get("exported_container")
	} else {
		o.Namespace, o.Pod, o.Container = first(l, "namespace", "pod_namespace"), first(l, "pod", "pod_name"),
			first(l, "container", "container_name")
	}
	if o.Pod != "" {
		p.owners[o] = true
	}
}

// find returns the samples of a field, under the name whose unit is certain.
func (p *parsed) find(f field) (samples []sample, name string, unit metrics.Scale) {
	if newer := p.series[p.prefix+f.renamed]; f.renamed != "" && len(newer) > 0 && (!f.redefined || p.redefines) {
		if f.redefined {
			return newer, f.renamed, plain
		}
		return newer, f.renamed, f.unit
	}
	return p.series[p.prefix+f.name], f.name, f.unit
}

// read returns the numbers of a row, the GPUs that have the row's source, and the source's name.
func (p *parsed) read(r *Row) (readings []reading, present map[string]bool, name string) {
	samples, name, unit := p.find(r.From)
	if r.Only != nil {
		samples = slices.DeleteFunc(slices.Clone(samples), func(s sample) bool { return !r.Only(s.labels) })
	}
	present = map[string]bool{}
	for _, s := range samples {
		if uuid := p.numbered(s); uuid != "" {
			present[uuid] = true
		}
	}
	sources := []map[reading]float64{p.numbers(r, samples, unit)}
	for _, f := range r.With {
		samples, _, unit := p.find(f)
		sources = append(sources, p.numbers(r, samples, unit))
	}
	for at := range sources[0] {
		var v []float64
		for _, s := range sources {
			if x, ok := s[at]; ok {
				v = append(v, x)
			}
		}
		if len(v) < len(sources) {
			delete(present, at.uuid)
			continue
		}
		at.value = v[0]
		if r.Is == share {
			at.all = v[1]
		}
		if r.Fold != nil {
			var ok bool
			if at.value, ok = r.Fold(v); !ok {
				continue
			}
		}
		if r.Split == nil {
			readings = append(readings, at)
			continue
		}
		for label, part := range r.Split(at.value) {
			readings = append(readings, reading{ofGPU: at.ofGPU, label: label, value: part})
		}
	}
	return readings, present, name
}

// numbered returns the UUID of a sample's GPU. It returns an empty string if the value of the sample is not a number.
func (p *parsed) numbered(s sample) string {
	if math.IsNaN(s.value) || math.IsInf(s.value, 0) {
		return ""
	}
	return p.UUID(s.labels)
}

// numbers returns the numbers of one source of a row. If a number is repeated, the highest value counts. Values that
// stand for unknown are dropped, and the drops are counted.
func (p *parsed) numbers(r *Row, samples []sample, unit metrics.Scale) map[reading]float64 {
	values := map[reading]float64{}
	for _, s := range samples {
		at := reading{ofGPU: ofGPU{uuid: p.numbered(s)}}
		if at.uuid == "" {
			continue
		}
		if r.Carry.From != "" {
			if at.label = s.labels.Get(r.Carry.From); at.label != "" && r.Carry.Map != nil {
				at.label = r.Carry.Map(at.label)
			}
			if at.label == "" {
				continue
			}
		}
		if r.To.HasLabel(metrics.LabelGPUInstance) && !r.Whole {
			at.instance = p.of(s.labels, metrics.LabelGPUInstance)
		}
		if blank(s.value) {
			p.blanks[dropped{at.uuid, r.To.Name, "blank"}]++
			continue
		}
		v := unit.Apply(s.value)
		if old, ok := values[at]; !ok || v > old {
			values[at] = v
		}
	}
	return values
}

// memory holds state between two metrics pages.
type memory struct {
	at     time.Time               // time of the last metrics page
	gpus   map[string]gpu.Identity // GPUs of all metrics pages so far
	sums   map[string]float64      // integrals of rates, by series
	latest map[string]float64      // last code of each GPU, or unread
	ticks  map[string][2]float64   // ticks of a share, by series: ticks in which the reason applied, then all ticks
	coming map[string]int          // codes that appeared where there was no code before; the next metrics page counts them
	drops  map[dropped]float64     // readings that were dropped
	counts map[string]map[int]float64
}

func newMemory() *memory {
	return &memory{
		gpus: map[string]gpu.Identity{}, sums: map[string]float64{}, ticks: map[string][2]float64{},
		latest: map[string]float64{}, coming: map[string]int{}, drops: map[dropped]float64{}, counts: map[string]map[int]float64{},
	}
}

// dropped identifies readings of a metric of a GPU that were dropped for a reason.
type dropped struct{ uuid, metric, reason string }

// blank reports whether a number stands for an unknown value. DCGM writes one of four codes for each type of field.
// Drivers of NVIDIA and AMD set all bits, signed or unsigned. Source: dcgm_structs.h.
func blank(v float64) bool {
	return 0x7ffffff0 <= v && v <= 0x7fffffff || v == math.MaxUint32 || v == math.MaxUint16 || v >= 1<<63-1 || 1<<47 <= v && v <= 1<<47+3
}

// writer builds the series of one metrics page.
type writer struct {
	*parsed
	*memory
	elapsed time.Duration // time since the last metrics page; 0 after a long pause
	out     Snapshot
	written map[string]bool // series written so far, whatever their source
	said    map[*metrics.Family]bool
}

// write builds the series of a metrics page that was read at a given time.
func (m *memory) write(p *parsed, now time.Time, longest time.Duration) Snapshot {
	w := &writer{parsed: p, memory: m, elapsed: now.Sub(m.at), written: map[string]bool{}, said: map[*metrics.Family]bool{}}
	if m.at.IsZero() || w.elapsed > longest {
		w.elapsed = 0
	}
	if len(m.gpus) > maxGPUs { // there were too many different GPUs over time
		*m = *newMemory()
	}
	w.out.counts = !slices.ContainsFunc(slices.Collect(maps.Values(p.gpus)), func(id gpu.Identity) bool { return id.PCI == "" })
	w.identities()
	counted := map[string]bool{} // GPUs whose XIDs have been counted
	for i := range p.Rows {
		w.row(&p.Rows[i], counted)
	}
	for at, n := range p.blanks {
		m.drops[at] += n
	}
	for at, n := range m.drops {
		if id, here := p.gpus[at.uuid]; here {
			w.put(metrics.GPUReadingsDropped, n, at.uuid, id.Index, at.metric, at.reason)
		}
	}
	w.explain()
	w.explainLog()
	m.at = now
	maps.Copy(m.gpus, p.gpus)
	return w.out
}

// hasXIDs reports whether the GPUs of a metrics page are NVIDIA's.
func (p *parsed) hasXIDs() bool { return p.Says[metrics.GPUXIDInfo] != "" }

// fromLog lists the families that the kernel log provides.
var fromLog = []*metrics.Family{
	metrics.GPUXIDErrors, metrics.GPUXIDLastTimestamp, metrics.GPUSXIDErrors, metrics.GPUSXIDLastTimestamp,
	metrics.GPUXIDSourceUp,
}

// logged reports whether a family comes from the kernel log while the log is read. The log names a GPU by its PCI
// address, but alerts need the GPU's name. If the metrics page lacks the address, XIDs still come from the metrics
// page.
func (w *writer) logged(f *metrics.Family) bool {
	return slices.Contains(fromLog, f) && (w.out.counts || f != metrics.GPUXIDErrors)
}

func (w *writer) put(f *metrics.Family, v float64, values ...string) {
	w.said[f] = true
	w.add(f.Const(v, values...), w.logged(f) || f == metrics.GPUXIDInfo) // the log's XIDs include the catalogue
}

// add serves a series always or, if unread is set, only while the kernel log is not read.
func (w *writer) add(m prometheus.Metric, unread bool) {
	if unread {
		w.out.unread = append(w.out.unread, m)
	} else {
		w.out.series = append(w.out.series, m)
	}
}

// identities writes the series that come from labels. If a GPU has disappeared from the metrics page, it counts as down.
func (w *writer) identities() {
	for _, uuid := range slices.Sorted(maps.Keys(w.gpus())) {
		id, here := w.parsed.gpus[uuid]
		if !here {
			w.put(metrics.GPUUp, 0, uuid, w.memory.gpus[uuid].Index, reasonGone)
			continue
		}
		reason := ""
		if w.unhealthy(uuid) {
			reason = reasonUnhealthy
		}
		w.put(metrics.GPUUp, metrics.Bool(reason == ""), uuid, id.Index, reason)
		w.put(metrics.GPUInfo, 1, append([]string{uuid, id.Index}, w.infos[uuid]...)...)
	}
	w.put(metrics.GPUVisible, float64(len(w.parsed.gpus)))
	for v := range w.drivers {
		w.put(metrics.GPUDriverInfo, 1, v[0], v[1], "")
	}
	for at, v := range w.partitions {
		w.put(metrics.GPUMIGInfo, 1, at.uuid, w.parsed.gpus[at.uuid].Index, at.instance, "", v[0], v[1])
	}
	for _, x := range metrics.XIDs {
		if w.hasXIDs() {
			w.put(metrics.GPUXIDInfo, 1, strconv.Itoa(x.Code), string(x.Severity), x.Meaning, x.Action)
		}
	}
	w.said[metrics.GPUAllocationInfo] = len(w.owners) > 0 // collectors/ownership writes them
}

// unhealthy reports whether a GPU is unhealthy according to the metrics page.
func (w *writer) unhealthy(uuid string) bool {
	return slices.ContainsFunc(w.series[w.prefix+w.Health], func(s sample) bool { return w.UUID(s.labels) == uuid && s.value == 0 })
}

// gpus returns the GPUs of this metrics page and of earlier metrics pages.
func (w *writer) gpus() map[string]gpu.Identity {
	all := maps.Clone(w.memory.gpus)
	maps.Copy(all, w.parsed.gpus)
	return all
}

// row writes the series of a row that no earlier row has written.
func (w *writer) row(r *Row, counted map[string]bool) {
	readings, present, name := w.read(r)
	if r.Is == latest {
		w.settle()
		for uuid := range w.parsed.gpus {
			switch {
			case present[uuid]:
			case len(present) > 0: // the field is configured, so this GPU has had no event
				readings = append(readings, reading{ofGPU: ofGPU{uuid: uuid}})
				present[uuid] = true
			default: // the field may not be read, so a new code counts as new, and there is no zero
				w.latest[uuid] = unread
			}
		}
	}
	wrote := false
	for _, at := range readings {
		if r.Is == latest {
			w.event(at)
		} else {
			wrote = w.number(r, at) || wrote
		}
	}
	for uuid := range present {
		if r.To == metrics.GPUXIDErrors && !counted[uuid] {
			counted[uuid], wrote = true, true
			w.xids(r, uuid)
		}
	}
	if wrote {
		w.info(r.To, w.prefix+name, cmp.Or(r.Quality, metrics.Native), r.Why)
	}
}

// number writes one number, unless an earlier row has written its series.
func (w *writer) number(r *Row, at reading) bool {
	extra := map[string]string{metrics.LabelSource: w.Name, r.Carry.To: at.label, r.By: at.label}
	if r.To == metrics.GPUXIDErrors {
		code, err := strconv.Atoi(at.label)
		if err != nil || code <= 0 {
			return false
		}
		extra[metrics.LabelSeverity] = severity(code)
	}
	for _, l := range r.Set {
		extra[l.Name] = l.Value
	}
	values := w.labels(r.To, at.ofGPU, extra)
	delete(extra, metrics.LabelSource)
	key := r.To.Name + "," + strings.Join(w.labels(r.To, at.ofGPU, extra), ",")
	if w.written[key] {
		return false
	}
	w.written[key] = true
	v := at.value
	if r.Is == rate {
		w.sums[key] += v * w.elapsed.Seconds()
		v = w.sums[key]
	}
	if r.Is == share {
		before, known := w.ticks[key]
		w.ticks[key] = [2]float64{v, at.all}
		if held, all := v-before[0], at.all-before[1]; known && held >= 0 && all > 0 { // a smaller value means that the driver has restarted
			w.sums[key] += w.elapsed.Seconds() * min(held/all, 1)
		}
		v = w.sums[key]
	}
	if !r.To.Plausible(v) {
		w.blanks[dropped{at.uuid, r.To.Name, "implausible"}]++
		return false
	}
	w.put(r.To, v, values...)
	return true
}

// labels returns the label values of the series for a number, in the order of the family's labels.
func (w *writer) labels(f *metrics.Family, at ofGPU, extra map[string]string) []string {
	id := w.parsed.gpus[at.uuid]
	values := make([]string, 0, len(f.Labels))
	for _, l := range f.Labels {
		switch l {
		case metrics.LabelGPUUUID:
			values = append(values, id.UUID)
		case metrics.LabelGPU:
			values = append(values, id.Index)
		case metrics.LabelGPUInstance:
			values = append(values, at.instance)
		case metrics.LabelPCIBusID:
			values = append(values, id.PCI)
		default:
			values = append(values, extra[l])
		}
	}
	return values
}

// unread replaces the latest code of a GPU while nothing shows that the other exporter reads codes. A later code is
// then a new event.
const unread = -1

// event counts the code of a GPU if the code has changed since the last metrics page. A code on the first metrics page
// may be old.
func (w *writer) event(at reading) {
	before, known := w.latest[at.uuid]
	w.latest[at.uuid] = at.value
	switch code := int(at.value); {
	case !known || at.value == before || at.value <= 0 || at.value >= 999:
	case w.counts[at.uuid] == nil && before == unread: // serve zero first, because otherwise increase() would see no increase
		w.coming[at.uuid] = code
	default:
		w.count(at.uuid, code)
	}
}

func (w *writer) count(uuid string, code int) {
	if w.counts[uuid] == nil {
		w.counts[uuid] = map[int]float64{}
	}
	w.counts[uuid][code]++
}

// settle counts the events that were held back until their series had been served as zero.
func (w *writer) settle() {
	for uuid, code := range w.coming {
		w.count(uuid, code)
	}
	clear(w.coming)
}

// xids writes the XIDs of a GPU that were counted from the metrics page. For codes that page or open a ticket, it also
// writes zeros, so that increase() sees the first event.
func (w *writer) xids(r *Row, uuid string) {
	counts := maps.Clone(w.counts[uuid])
	if counts == nil || r.Is != latest {
		counts = map[int]float64{}
	}
	for _, x := range metrics.XIDs {
		if x.Asks() {
			counts[x.Code] += 0
		}
	}
	for code, n := range counts {
		w.number(&Row{To: r.To, Carry: metrics.Carry{To: metrics.LabelXID}}, reading{
			ofGPU: ofGPU{uuid: uuid}, label: strconv.Itoa(code),
			value: n,
		})
	}
}

// severity returns the severity that the catalogue assigns to an XID.
func severity(code int) string {
	for _, x := range metrics.XIDs {
		if x.Code == code {
			return string(x.Severity)
		}
	}
	return ""
}

func (w *writer) info(f *metrics.Family, source string, quality metrics.Quality, why string) {
	key := metrics.GPUMetricSourceInfo.Name + f.Name + source
	if !w.written[key] {
		w.written[key] = true
		w.add(metrics.GPUMetricSourceInfo.Const(1, f.Name, source, string(quality), why), w.logged(f))
	}
}

// explain reports the sources of the families that no row has written. For missing families, it reports the reason.
func (w *writer) explain() {
	own := []*metrics.Family{metrics.GPUSourceUp, metrics.GPUMetricSourceInfo, metrics.GPUReadingsDropped}
	for _, f := range metrics.All() {
		how, says := w.Says[f]
		i := slices.IndexFunc(w.Rows, func(r Row) bool { return r.To == f })
		switch {
		case f.Owner != metrics.GPU && f.Owner != metrics.Allocation || slices.Contains(own, f):
		case says && w.said[f]:
			w.info(f, how, metrics.Derived, "from the labels of the page, or their absence")
		case says:
			w.info(f, "", metrics.Missing, "not among the labels of the page: "+how)
		case w.said[f]:
		case w.Missing[f] != "":
			w.info(f, "", metrics.Missing, w.Missing[f])
		case i < 0:
			w.info(f, "", metrics.Missing, w.Otherwise)
		case w.Rows[i].Absent != "":
			w.info(f, "", metrics.Missing, w.Rows[i].Absent)
		case slices.ContainsFunc(slices.Collect(maps.Keys(w.blanks)), func(d dropped) bool { return d.metric == f.Name }):
			w.info(f, w.prefix+w.Rows[i].From.name, metrics.Missing, "its numbers on the page are blank, or none that a GPU can have")
		default:
			w.info(f, "", metrics.Missing, w.prefix+w.Rows[i].From.name+
				" is not on the page: the GPU does not support it, or the exporter's configuration does not ask for it")
		}
	}
}

// explainLog writes the series that are valid only while the kernel log is read.
func (w *writer) explainLog() {
	for _, f := range fromLog {
		if w.logged(f) {
			w.out.read = append(w.out.read, metrics.GPUMetricSourceInfo.Const(1, f.Name, "kernel log", string(metrics.Native), ""))
		}
	}
	w.out.read = append(w.out.read, metrics.GPUXIDSourceUp.Const(1, "kmsg", ""))
}
