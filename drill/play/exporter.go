package play

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	gpupage "github.com/llm-node-exporter/llm-node-exporter/collectors/gpu/page"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/health"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/probe"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Instance is the instance label of the simulated node's exporter.
const Instance = "gpu-node-1:9844"

// otherTarget is another target of Prometheus on the simulated node.
const otherTarget = "gpu-node-1:9100"

// exporter is the exporter of the simulated node. The collectors for engines and probes are the real ones. GPU.Emit
// writes the series of the GPUs.
type exporter struct {
	world  *world.World
	engine *engine.Collector
	probes *probe.Collector
	health *health.Judge
	judged []prometheus.Metric // input of the judge
	parser parser.Parser
	known  map[string]labels.Labels
	text   bytes.Buffer
	// dcgm is the node's dcgm-exporter if its metrics page is the source of the GPUs. It is nil if the source is NVML.
	dcgm http.RoundTripper
	page *gpupage.Collector

	// also has lines of a real exporter's metrics page, for GPU series that the world lacks. It is nil in purely virtual
	// time.
	also []string

	// mismatched means that the driver's library was updated before the exporter loaded the library.
	mismatched  bool
	withoutGPUs bool
	relabel     func(labels.Labels) labels.Labels
}

// newExporter starts the exporter of a world.
func newExporter(w *world.World, o Options) (*exporter, error) {
	e := &exporter{
		world: w, parser: parser.NewParser(parser.Options{}), known: map[string]labels.Labels{}, withoutGPUs: o.WithoutGPUs,
		relabel: o.Relabel,
	}
	if o.DCGM != nil {
		e.dcgm = &world.DCGM{World: w, Asked: o.DCGM}
	}
	return e, e.start()
}

// start starts the exporter's process, which remembers nothing of a previous process.
func (e *exporter) start() (err error) {
	e.mismatched = e.world.Mismatched
	stopped := func(w health.Workload) bool {
		return slices.ContainsFunc(e.engine.Engines(), func(of engine.Engine) bool { return of.Server == w.Server && of.Gone() })
	}
	e.health = health.New(health.Options{Stopped: stopped, Read: func(ch chan<- prometheus.Metric) {
		for _, m := range e.judged {
			ch <- m
		}
	}})
	if e.dcgm != nil {
		e.page, err = gpupage.New(gpupage.Options{
			Logger: slog.New(slog.DiscardHandler), Interval: ScrapeInterval,
			Targets: []gpupage.Target{{URL: "http://localhost:9400", Transport: e.dcgm}},
		})
		if err != nil {
			return err
		}
	}
	e.probes = probe.New(nil, slog.New(slog.DiscardHandler))
	if err := e.world.Probe(e.probes); err != nil {
		return err
	}
	e.engine, err = engine.New(engine.Config{
		Objectives: e.world.Fleet.Configured(), Probed: e.probes.Probed, Connections: e.connections, Computing: e.computing,
		Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return e.world.At(e.world.Now()) },
	})
	return err
}

// connections returns the number of connections at an engine's port.
func (e *exporter) connections(server string) (n int, known bool) {
	for _, r := range e.world.Replicas {
		if r.Host == server && r.Target() {
			return r.Connections()
		}
	}
	return 0, false
}

// computing returns how much of the time an engine computes on its GPU.
func (e *exporter) computing(server string) (share float64, known bool) {
	for _, r := range e.world.Replicas {
		if r.Host == server && r.Target() && e.page == nil && e.world.Fleet.SeesProcesses {
			return r.GPU.Busy(), true
		}
	}
	return 0, false
}

// discover replaces the exporter's targets by the pods that exist now.
func (e *exporter) discover() (err error) {
	var found []engine.TargetConfig
	for _, r := range e.world.Replicas {
		if r.Target() {
			found = append(found, engine.TargetConfig{
				URL: "http://" + r.Host, Transport: r,
				Labels: r.Labels(), Image: r.Profile.Image,
			})
		}
	}
	if e.world.Fleet.ReadsGateway {
		found = append(found, engine.TargetConfig{
			URL: "http://" + world.Gateway, Transport: e.world,
			Labels: map[string]string{metrics.LabelNamespace: world.Namespace},
		})
	}
	if e.engine, err = e.engine.With(found); err != nil {
		return err
	}
	for _, r := range e.world.Replicas {
		if line := r.Command(); r.Target() && line != nil {
			e.engine.Commanded(r.Host, [][]string{line})
		}
	}
	return nil
}

// scrape passes all series to Prometheus, as a scrape of the exporter would.
func (e *exporter) scrape(emit rulesim.Emit) error {
	up := labels.FromStrings(model.MetricNameLabel, "up", "instance", Instance, "job", rules.DefaultJob)
	emit(labels.FromStrings(model.MetricNameLabel, "up", "instance", otherTarget, "job", "node-exporter"), metrics.Bool(!e.world.NodeDown))
	if e.world.ExporterDown {
		emit(up, 0)
		return e.start()
	}
	if err := e.discover(); err != nil {
		return err
	}
	emit(up, 1)
	if e.relabel != nil {
		store := emit
		emit = func(l labels.Labels, v float64) {
			if l = e.relabel(l); !l.IsEmpty() {
				store(l, v)
			}
		}
	}
	e.text.Reset()
	if _, err := e.engine.Scrape(context.Background()).WriteTo(&e.text); err != nil {
		return err
	}
	if err := e.probed(); err != nil {
		return err
	}
	for line := range strings.Lines(e.text.String()) {
		if line[0] == '#' {
			continue
		}
		if err := e.sample(strings.TrimSpace(line), emit); err != nil {
			return err
		}
	}
	if e.withoutGPUs {
		return nil
	}
	has := map[uint64]bool{}
	store := emit
	emit = func(l labels.Labels, v float64) {
		has[l.Hash()] = true
		store(l, v)
	}
	if err := e.gpus(emit); err != nil {
		return err
	}
	for _, line := range e.also {
		if err := e.sample(line, func(l labels.Labels, v float64) {
			if !has[l.Hash()] {
				store(l, v)
			}
		}); err != nil {
			return err
		}
	}
	return nil
}

// probed adds the series of probes to the text of the scrape.
func (e *exporter) probed() error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(e.probes); err != nil {
		return err
	}
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		if _, err := expfmt.MetricFamilyToText(&e.text, f); err != nil {
			return err
		}
	}
	return nil
}

// sample parses one line of the exposition: a series, a space, a value.
func (e *exporter) sample(line string, emit rulesim.Emit) error {
	i := strings.LastIndexByte(line, ' ')
	if i < 0 {
		return errors.New("not a sample: " + line)
	}
	series, ok := e.known[line[:i]]
	if !ok {
		parsed, err := e.parser.ParseMetric(line[:i])
		if err != nil {
			return err
		}
		b := labels.NewBuilder(parsed)
		b.Set("instance", Instance).Set("job", rules.DefaultJob)
		if bound, err := strconv.ParseFloat(parsed.Get(model.BucketLabel), 64); err == nil { // in the form of a scrape of Prometheus 3
			b.Set(model.BucketLabel, labels.FormatOpenMetricsFloat(bound))
		}
		series = b.Labels()
		e.known[line[:i]] = series
	}
	value, err := strconv.ParseFloat(line[i+1:], 64)
	if err != nil {
		return err
	}
	emit(series, value)
	return nil
}

// gpus writes the GPU series, and the series that show which engine runs on which GPU.
func (e *exporter) gpus(emit rulesim.Emit) error {
	show := func(f *metrics.Family, value float64, values ...string) {
		emit(labelled(f, values, "instance", Instance, "job", rules.DefaultJob), value)
	}
	show(metrics.GPUHourPrice, world.GPUHourPrice, "*")
	e.judged = nil
	put := func(f *metrics.Family, value float64, values ...string) {
		e.judged = append(e.judged, f.Const(value, values...))
		show(f, value, values...)
	}
	if e.page != nil {
		e.page.Read(context.Background(), e.world.At(e.world.Now()))
		if err := served(e.page, put); err != nil {
			return err
		}
	} else {
		e.nvml(put)
	}
	for _, r := range e.world.Replicas {
		if r.Gone {
			continue
		}
		at := []string{string(r.Runtime), world.Namespace, r.Pod, "", r.Host, r.Profile.Model, r.GPU.UUID, strconv.Itoa(r.GPU.Index), ""}
		put(metrics.EngineGPUInfo, 1, append(at, "config")...)
		if e.page == nil && e.world.Fleet.SeesProcesses {
			put(metrics.EngineGPUOthers, r.GPU.Others, at...)
			put(metrics.EngineCPUWait, r.Engine.CPUWait.Seconds(), at[:6]...)
		}
	}
	e.health.Look(e.world.At(e.world.Now()))
	return served(e.health, show)
}

// nvml writes the exporter's series about the GPUs that NVML reports.
func (e *exporter) nvml(put world.Put) {
	n := float64(len(e.world.Replicas))
	put(metrics.GPUExpected, n)
	if e.world.Fleet.SeesProcesses {
		put(metrics.GPUSwitches, 4)
		put(metrics.GPUFabricManagerUp, metrics.Bool(!e.world.ManagerDead))
	}
	if e.mismatched {
		put(metrics.GPUNVMLUp, 0, "lib_rm_version_mismatch")
		return
	}
	put(metrics.GPUNVMLUp, 1)
	put(metrics.GPUVisible, n)
	for _, x := range metrics.XIDs {
		put(metrics.GPUXIDInfo, 1, strconv.Itoa(x.Code), string(x.Severity), x.Meaning, x.Action)
	}
	for _, r := range e.world.Replicas {
		r.GPU.Emit(put)
		if e.also != nil {
			r.GPU.EmitLoad(put)
		}
	}
}

// served gathers the series of a collector, and writes each with put.
func served(c prometheus.Collector, put world.Put) error {
	registry := prometheus.NewRegistry()
	if err := registry.Register(c); err != nil {
		return err
	}
	families, err := registry.Gather()
	if err != nil {
		return err
	}
	for _, f := range families {
		to := metrics.Lookup(f.GetName())
		for _, m := range f.Metric {
			values := make([]string, len(to.Labels))
			for _, l := range m.Label {
				values[slices.Index(to.Labels, l.GetName())] = l.GetValue()
			}
			put(to, m.GetGauge().GetValue()+m.GetCounter().GetValue(), values...)
		}
	}
	return nil
}

// labelled returns the labels of a series, for the given label values of a family. It leaves out empty labels. pairs
// are the labels that the scrape adds.
func labelled(f *metrics.Family, values []string, pairs ...string) labels.Labels {
	pairs = append(pairs, model.MetricNameLabel, f.Name)
	for i, v := range values {
		if v != "" {
			pairs = append(pairs, f.Labels[i], v)
		}
	}
	return labels.FromStrings(pairs...)
}
