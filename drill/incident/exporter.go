package incident

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	gpupage "github.com/llm-node-exporter/llm-node-exporter/collectors/gpu/page"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Instance is the instance label of the simulated node's exporter.
const Instance = "gpu-node-1:9844"

const namespace = "prod"

// exporter runs the exporter of the simulated node: its engine collector is the real one, and GPU.emit writes the GPU
// series.
type exporter struct {
	world  *World
	engine *engine.Collector
	parser parser.Parser
	known  map[string]labels.Labels
	text   bytes.Buffer
	// dcgm is the node's dcgm-exporter, where GPUs are read from its page; nil where NVML is read.
	dcgm http.RoundTripper
	page *gpupage.Collector
	// withoutGPUs means that the node cannot simulate GPUs.
	withoutGPUs bool

	tamper func(labels.Labels) (labels.Labels, bool) // for tests: what Prometheus sees of a series, if anything
}

func newExporter(w *World) (*exporter, error) {
	e := &exporter{world: w, parser: parser.NewParser(parser.Options{}), known: map[string]labels.Labels{}}
	return e, e.start()
}

// start starts the process, which remembers nothing.
func (e *exporter) start() (err error) {
	if e.dcgm != nil {
		e.page, err = gpupage.New(gpupage.Options{Logger: slog.New(slog.DiscardHandler), Interval: ScrapeInterval, Targets: []engine.TargetConfig{{URL: "http://localhost:9400", Transport: e.dcgm}}})
		if err != nil {
			return err
		}
	}
	e.engine, err = engine.New(engine.Config{Limits: engine.DefaultLimits, Objectives: e.world.Fleet.objectives(), Log: slog.New(slog.DiscardHandler)})
	return err
}

// discover sets the exporter's targets to the existing pods.
func (e *exporter) discover() (err error) {
	var found []engine.TargetConfig
	for _, r := range e.world.Replicas {
		if !r.Gone {
			found = append(found, engine.TargetConfig{
				URL: "http://" + r.host, Transport: r,
				Labels: r.labels(),
			})
		}
	}
	e.engine, err = e.engine.With(found)
	return err
}

// labels returns the labels that discovery sets for the replica.
func (r *Replica) labels() map[string]string {
	return map[string]string{metrics.LabelNamespace: namespace, metrics.LabelPod: r.pod}
}

// RoundTrip implements http.RoundTripper: the engine answers without a network.
func (r *Replica) RoundTrip(req *http.Request) (*http.Response, error) {
	if r.Down {
		return nil, fmt.Errorf("dial tcp %s: %w", r.host, syscall.ECONNREFUSED)
	}
	a := &answer{header: http.Header{}, status: http.StatusOK}
	r.page.ServeHTTP(a, req)
	return &http.Response{StatusCode: a.status, Header: a.header, Body: io.NopCloser(&a.body), Request: req}, nil
}

// answer implements http.ResponseWriter and keeps what is written.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// scrape passes all series to Prometheus, as its scrape of the exporter would.
func (e *exporter) scrape(emit rulesim.Emit) error {
	up := labels.FromStrings(model.MetricNameLabel, "up", "instance", Instance, "job", rules.DefaultJob)
	if e.world.ExporterDown {
		emit(up, 0)
		return e.start()
	}
	if err := e.discover(); err != nil {
		return err
	}
	emit(up, 1)
	if tamper := e.tamper; tamper != nil {
		untouched := emit
		emit = func(l labels.Labels, v float64) {
			if l, seen := tamper(l); seen {
				untouched(l, v)
			}
		}
	}
	e.text.Reset()
	if _, err := e.engine.Scrape(context.Background()).WriteTo(&e.text); err != nil {
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
	return e.gpus(emit)
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
		if bound, err := strconv.ParseFloat(parsed.Get(model.BucketLabel), 64); err == nil { // as a scrape of Prometheus 3 writes it
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

// gpus writes the GPU series, and which engine runs on which GPU.
func (e *exporter) gpus(emit rulesim.Emit) error {
	put := func(f *metrics.Family, value float64, values ...string) {
		emit(labelled(f, values, "instance", Instance, "job", rules.DefaultJob), value)
	}
	if e.page != nil {
		e.page.Read(context.Background(), at(e.world.now))
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
		put(metrics.EngineGPUInfo, 1, string(r.runtime), namespace, r.pod, "", r.host, e.world.Fleet.Profile.Model, r.GPU.uuid, strconv.Itoa(r.GPU.index), "", "config")
	}
	return nil
}

// nvml writes what the exporter serves about the GPUs that NVML reports.
func (e *exporter) nvml(put put) {
	n := float64(len(e.world.Replicas))
	put(metrics.GPUNVMLUp, 1)
	put(metrics.GPUExpected, n)
	put(metrics.GPUVisible, n)
	for _, x := range metrics.XIDs {
		put(metrics.GPUXIDInfo, 1, strconv.Itoa(x.Code), string(x.Severity), x.Meaning, x.Action)
	}
	for _, r := range e.world.Replicas {
		r.GPU.emit(put)
	}
}

// served writes what a collector serves.
func served(c prometheus.Collector, put put) error {
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

// labelled returns the labels of a vocabulary series, without the empty ones. pairs are labels of the scrape.
func labelled(f *metrics.Family, values []string, pairs ...string) labels.Labels {
	pairs = append(pairs, model.MetricNameLabel, f.Name)
	for i, v := range values {
		if v != "" {
			pairs = append(pairs, f.Labels[i], v)
		}
	}
	return labels.FromStrings(pairs...)
}

// at converts a time of the simulation to Prometheus' time.
func at(t time.Duration) time.Time { return rulesim.Epoch.Add(t) }
