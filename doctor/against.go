package doctor

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Outcome is the result of comparing a value of nvidia-smi with a value of the exporter.
type Outcome string

// These are the outcomes.
const (
	Right      Outcome = "right"
	Wrong      Outcome = "wrong"
	Absent     Outcome = "missing"        // nvidia-smi has a value, but the exporter has none
	Uncompared Outcome = "not_comparable" // one of the two lacks the value, or read it at another time
)

// Compared is one value of a GPU, or of the node, and its comparison with nvidia-smi.
type Compared struct {
	GPU     string  `json:"gpu"`               // index in the exporter's series; empty for the node
	Element string  `json:"element,omitempty"` // of nvidia-smi -q -x, under <gpu>
	Series  string  `json:"series,omitempty"`  // of the exporter, without the labels of the GPU
	Outcome Outcome `json:"outcome"`
	SMI     string  `json:"nvidia_smi,omitempty"`
	Own     string  `json:"exporter,omitempty"` // both values if the readings before and after differ
	Why     string  `json:"why,omitempty"`
}

// Comparison has all values of a node.
type Comparison struct {
	Values []Compared `json:"values"`
	names  map[string]string
}

// Status returns the exit status: 0 if nothing differs, 1 if the exporter lacks values, 2 if values are wrong.
func (c Comparison) Status() int {
	switch {
	case c.count("", Wrong) > 0:
		return 2
	case c.count("", Absent) > 0:
		return 1
	}
	return 0
}

// count returns how many values of a GPU have an outcome. If gpu is empty, it counts the values of all GPUs.
func (c Comparison) count(gpu string, o Outcome) (n int) {
	for _, v := range c.Values {
		if v.Outcome == o && (gpu == "" || v.GPU == gpu) {
			n++
		}
	}
	return n
}

// fresh is the age up to which a document's changing values are compared.
const fresh = time.Minute

// UntilReadAgain returns how long the exporter takes to read all changing values of a GPU again.
func (r *Reading) UntilReadAgain() (longest time.Duration) {
	for _, s := range r.of(metrics.GPUReadInterval) {
		if s.labels[metrics.LabelKind] != "rare" {
			longest = max(longest, time.Duration(s.value*float64(time.Second)))
		}
	}
	return longest.Round(100*time.Millisecond) + time.Second
}

// AgainstSMI compares readings of an exporter with the output of nvidia-smi -q -x. If there are readings from before
// and after the document, a value may be between the two. sameTime means that the document is as old as the readings.
// Otherwise, AgainstSMI computes its age from its timestamp.
func AgainstSMI(document []byte, sameTime bool, readings ...*Reading) (Comparison, error) {
	log, err := readSMI(bytes.NewReader(document))
	if err != nil {
		return Comparison{}, err
	}
	if !sameTime {
		at, err := time.ParseInLocation(time.ANSIC, log.node["timestamp"], time.Local)
		sameTime = err == nil && time.Since(at).Abs() < fresh
	}
	c := comparing{readings: readings, sameTime: sameTime, Comparison: Comparison{names: map[string]string{}}}
	c.node(log)
	for _, g := range log.gpus {
		c.gpu(g)
	}
	return c.Comparison, nil
}

// comparing holds the state of a comparison.
type comparing struct {
	Comparison
	readings []*Reading
	sameTime bool
}

// subjectOf describes the compared object: the node, a GPU, or a MIG device.
type subjectOf struct {
	gpu, prefix string            // index of the GPU, and the prefix of the paths
	values      map[string]string // of nvidia-smi
	where       []string          // labels of the exporter's series
	used        map[string]bool   // elements and series that were compared
}

func (c *comparing) add(v Compared) { c.Values = append(c.Values, v) }

// node compares the values that occur only once in the document.
func (c *comparing) node(log smiLog) {
	s := subjectOf{values: log.node, used: map[string]bool{}}
	s.values["attached_gpus"] = cmp.Or(s.values["attached_gpus"], strconv.Itoa(len(log.gpus)))
	c.row(s, smiInfo("driver_version", metrics.GPUDriverInfo, metrics.LabelDriverVersion, nil))
	c.row(s, smiInfo("cuda_version", metrics.GPUDriverInfo, metrics.LabelCUDAVersion, nil))
	c.row(s, smiRow{paths: []string{"attached_gpus"}, to: metrics.GPUVisible})
}

// find returns the exporter's labels of a GPU. It finds the GPU by its UUID or, if the document has no UUID, by its PCI
// address.
func (c *comparing) find(g smiGPU) (labels map[string]string) {
	for _, s := range c.readings[0].of(metrics.GPUInfo) {
		if uuid := g.values["uuid"]; s.labels[metrics.LabelGPUUUID] == uuid || smiSilent(uuid) &&
			s.labels[metrics.LabelPCIBusID] == pciAddress(g.values["pci/pci_bus_id"]) {
			return s.labels
		}
	}
	return nil
}

// gpu compares a GPU.
func (c *comparing) gpu(g smiGPU) {
	id := c.find(g)
	if id == nil {
		c.add(Compared{
			Element: "gpu", Outcome: Absent, SMI: cmp.Or(g.values["uuid"], g.values["pci/pci_bus_id"]),
			Why: "the exporter has no such GPU",
		})
		return
	}
	s := subjectOf{gpu: id[metrics.LabelGPU], values: g.values, where: []string{
		metrics.LabelGPUUUID, id[metrics.LabelGPUUUID],
		metrics.LabelGPUInstance, "",
	}, used: map[string]bool{}}
	c.names[s.gpu] = g.values["product_name"]
	for _, row := range smiRows {
		c.row(s, row)
	}
	if g.values["processes"] = strconv.Itoa(g.procs); len(g.mig) == 0 { // with MIG, processes belong to instances, so they are not compared
		c.row(s, smiRow{paths: []string{"processes"}, to: metrics.GPUProcesses, slack: states})
	}
	for _, path := range g.order {
		if text := g.values[path]; !s.used[path] && !smiSilent(text) {
			c.add(Compared{GPU: s.gpu, Element: path, Outcome: Uncompared, SMI: text, Why: "the exporter does not have it"})
		}
	}
	for _, device := range g.mig {
		m := subjectOf{
			gpu: s.gpu, prefix: "mig_device " + device["gpu_instance_id"] + " ", values: device, used: s.used,
			where: []string{metrics.LabelGPUUUID, id[metrics.LabelGPUUUID], metrics.LabelGPUInstance, device["gpu_instance_id"]},
		}
		for path, f := range map[string]*metrics.Family{
			"total": metrics.GPUMemoryTotal, "reserved": metrics.GPUMemoryReserved,
			"used": metrics.GPUMemoryUsed, "free": metrics.GPUMemoryFree,
		} {
			c.row(m, smiRow{paths: []string{"fb_memory_usage/" + path}, to: f, slack: memory})
		}
	}
	c.rest(s)
}

// rest adds the series of a GPU that have no counterpart in nvidia-smi -q, such as series of NVLinks. They are not
// compared.
func (c *comparing) rest(s subjectOf) {
	for _, f := range metrics.All() {
		if f.Owner != metrics.GPU || !f.HasLabel(metrics.LabelGPUUUID) {
			continue
		}
		for _, one := range c.readings[0].of(f, s.where[:2]...) {
			if name := seriesName(f, one.labels); !s.used[name] {
				c.add(Compared{GPU: s.gpu, Series: name, Outcome: Uncompared, Own: number(one.value), Why: "nvidia-smi -q does not have it"})
			}
		}
	}
}

// element returns the first element of paths that has a value. If none has a value, it returns the first element that
// exists. If none exists, path is empty.
func (s subjectOf) element(paths []string) (path, text string) {
	for _, p := range paths {
		if t, ok := s.values[p]; ok {
			s.used[p] = true
			if path == "" || smiSilent(text) {
				path, text = p, t
			}
		}
	}
	return path, text
}

// row compares one value. If the document has none of the value's elements, nothing is compared.
func (c *comparing) row(s subjectOf, row smiRow) {
	path, text := s.element(row.paths)
	if path == "" {
		return
	}
	v := Compared{GPU: s.gpu, Element: s.prefix + path, SMI: text}
	silent := smiSilent(text) || row.needs != "" && smiSilent(s.values[row.needs])
	if row.minus != "" {
		s.used[row.minus] = true
		v.Element, v.SMI = v.Element+" - "+row.minus, text+" - "+s.values[row.minus]
		silent = silent || smiSilent(s.values[row.minus])
	}
	own := c.own(s, row)
	if len(own) > 0 {
		v.Series = seriesName(row.to, own[0].labels)
		s.used[v.Series] = true
		v.Own = shown(own, row.text)
	} else {
		v.Series = row.to.Name
	}
	switch {
	case silent && row.offers && v.Own == "0":
		v.Outcome = Right
	case silent && (len(own) == 0 || v.Own == ""):
		v.Outcome, v.Why = Right, "neither has it"
	case silent:
		v.Outcome, v.Why = Uncompared, "nvidia-smi does not report it"
	case len(own) == 0:
		v.Outcome = Absent
	case row.slack.moving && !c.sameTime:
		v.Outcome, v.Why = Uncompared, "it changes, and was read at another time"
	default:
		v.Outcome, v.Why = row.compare(text, s.values[row.minus], own)
	}
	c.add(v)
}

// own returns the exporter's series for a row, from all readings.
func (c *comparing) own(s subjectOf, row smiRow) (own []series) {
	where := append(slices.Clone(s.where), row.labels...)
	for _, r := range c.readings {
		own = append(own, r.of(row.to, where...)...)
	}
	if row.counted != nil && len(own) > 0 && c.grew(row.counted, where) {
		own = append(own, series{labels: own[0].labels, value: 1})
	}
	return own
}

// grew reports whether the last reading of a counter is higher than the first.
func (c *comparing) grew(counter *metrics.Family, where []string) bool {
	total := func(r *Reading) (sum float64) {
		for _, s := range r.of(counter, where...) {
			sum += s.value
		}
		return sum
	}
	return len(c.readings) > 0 && total(c.readings[len(c.readings)-1]) > total(c.readings[0])
}

// compare compares a value of nvidia-smi, as text, with the same series of each reading. minus is subtracted from the
// value.
func (row smiRow) compare(text, minus string, own []series) (Outcome, string) {
	if row.read != nil {
		text = row.read(text)
	}
	if row.text != "" {
		for _, s := range own {
			if s.labels[row.text] == text {
				return Right, ""
			}
		}
		return Wrong, ""
	}
	value, unit, ok := smiNumber(text)
	if ok && row.minus != "" {
		var less float64
		less, _, ok = smiNumber(minus)
		value -= less
	}
	if !ok {
		return Uncompared, "its unit or text is not known: " + strconv.Quote(cmp.Or(unit, text))
	}
	low, high := math.Inf(1), math.Inf(-1)
	for _, s := range own {
		low, high = min(low, s.value), max(high, s.value)
	}
	slack := max(row.slack.absolute, row.slack.relative*math.Abs(value))
	if value < low-slack || value > high+slack {
		return Wrong, ""
	}
	return Right, ""
}

// seriesName returns a series as text, without the labels of its GPU.
func seriesName(f *metrics.Family, labels map[string]string) string {
	var all []string
	for _, name := range f.Labels {
		if v := labels[name]; v != "" && name != metrics.LabelGPUUUID && name != metrics.LabelGPU {
			all = append(all, name+"="+strconv.Quote(v))
		}
	}
	if len(all) == 0 || f.Kind == metrics.Info {
		return f.Name
	}
	return f.Name + "{" + strings.Join(all, ",") + "}"
}

// shown returns the distinct values of the readings as text.
func shown(own []series, text string) string {
	var all []string
	for _, s := range own {
		one := number(s.value)
		if text != "" {
			one = s.labels[text]
		}
		if !slices.Contains(all, one) {
			all = append(all, one)
		}
	}
	return strings.Join(all, " to ")
}

func number(v float64) string { return strconv.FormatFloat(v, 'g', 12, 64) }

// Text returns the differences, and the number of equal values, as text for people.
func (c Comparison) Text() string {
	var b strings.Builder
	for _, v := range c.Values {
		if v.Outcome == Wrong || v.Outcome == Absent {
			says := "has no " + v.Series
			if v.Outcome == Wrong {
				says = "reports " + v.Series + " = " + v.Own
			}
			fmt.Fprintf(&b, "%-8s %s: nvidia-smi reports %s = %s, the exporter %s\n", v.Outcome, subjectName(v.GPU), v.Element,
				printable(v.SMI), printable(cmp.Or(v.Why, says)))
		}
	}
	for _, gpu := range c.gpus() {
		both := 0
		for _, v := range c.Values {
			if v.GPU == gpu && v.Outcome == Right && v.Why != "" {
				both++
			}
		}
		of := c.of(gpu)
		fmt.Fprintf(&b, "%s: %d values: %d right (%d of them absent in both), %d wrong, %d missing; not comparable: %d that only the "+
			"exporter has, %d others\n", strings.TrimSpace(subjectName(gpu)+" "+printable(c.names[gpu])),
			len(of.Values), of.count(gpu, Right), both, of.count(gpu, Wrong), of.count(gpu, Absent), of.has(false), of.has(true))
	}
	return b.String()
}

func subjectName(gpu string) string {
	if gpu == "" {
		return "node"
	}
	return "GPU " + gpu
}

// gpus lists the GPUs. An empty name stands for the node.
func (c Comparison) gpus() (all []string) {
	for _, v := range c.Values {
		if !slices.Contains(all, v.GPU) {
			all = append(all, v.GPU)
		}
	}
	return all
}

// of returns the values of one GPU.
func (c Comparison) of(gpu string) (one Comparison) {
	for _, v := range c.Values {
		if v.GPU == gpu {
			one.Values = append(one.Values, v)
		}
	}
	return one
}

// has counts the values that were not compared. With smi, it counts values of nvidia-smi, otherwise values that only
// the exporter has.
func (c Comparison) has(smi bool) (n int) {
	for _, v := range c.Values {
		if v.Outcome == Uncompared && (v.Element != "") == smi {
			n++
		}
	}
	return n
}
