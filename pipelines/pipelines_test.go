package pipelines

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/prompb"
	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
)

// The counted series: a counter, and the observations of a histogram.
const (
	counter   = "llm_engine_generation_tokens_total"
	histogram = "llm_engine_time_to_first_token_seconds"
)

// interval replaces the interval of the examples: half an hour of a pipeline in two minutes.
const interval = 2 * time.Second

// engine serves its own counts as vLLM does.
type engine struct {
	mu      sync.Mutex
	counted int // since the engine started
	total   int // since the test began
}

func (e *engine) add(n int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counted, e.total = e.counted+n, e.total+n
}

func (e *engine) restart() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.counted = 0
}

func (e *engine) now() (counted, total int) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.counted, e.total
}

func (e *engine) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/metrics" {
		http.NotFound(w, r)
		return
	}
	n, _ := e.now()
	w.Header().Set("Content-Type", "text/plain; version=0.0.4")
	const l = `{model_name="tiny",engine="0"}`
	fmt.Fprintf(w, "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running%s 1\n", l)
	fmt.Fprintf(w, "# TYPE vllm:generation_tokens counter\nvllm:generation_tokens_total%s %d\n", l, n)
	fmt.Fprintf(w, "# TYPE vllm:time_to_first_token_seconds histogram\n")
	for _, le := range []string{"0.1", "1", "+Inf"} {
		fmt.Fprintf(w, "vllm:time_to_first_token_seconds_bucket{model_name=\"tiny\",engine=\"0\",le=%q} %d\n", le, n)
	}
	fmt.Fprintf(w, "vllm:time_to_first_token_seconds_sum%s %g\nvllm:time_to_first_token_seconds_count%s %d\n", l, float64(n)/20, l, n)
}

// A received series is a series that one pipeline has delivered.
type received struct {
	last  float64
	rose  float64 // increases from one point to the next; a smaller number means a restart
	sum   float64 // of deltas
	count int
	fresh bool    // the next point is the first after a restart
	gap   float64 // increase from the last point before a restart to the first point after it
	anew  float64 // events counted from restarts to the first points after them
}

func (r *received) point(v float64) {
	if r.count > 0 {
		step := v - r.last
		if step < 0 {
			step = v
			r.anew += v
		}
		r.rose += step
		if r.fresh {
			r.gap += step
		}
	}
	r.last, r.fresh = v, false
	r.count++
}

// sink receives the samples of pipelines.
type sink struct {
	*httptest.Server
	mu  sync.Mutex
	got map[string]*received // by pipeline and name
}

func (s *sink) of(pipeline, name string) *received {
	key := pipeline + " " + name
	if s.got[key] == nil {
		s.got[key] = &received{}
	}
	return s.got[key]
}

func (s *sink) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err == nil && r.Header.Get("Content-Encoding") == "gzip" {
		var z *gzip.Reader
		if z, err = gzip.NewReader(bytes.NewReader(body)); err == nil {
			body, err = io.ReadAll(z)
		}
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	pipeline := strings.Split(strings.Trim(r.URL.Path, "/"), "/")[0]
	if pipeline == "vmagent" {
		err = s.remoteWrite(body)
	} else {
		err = s.otlp(pipeline, body)
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
	}
}

func (s *sink) remoteWrite(body []byte) error {
	raw, err := snappy.Decode(nil, body)
	if err != nil {
		return err
	}
	var request prompb.WriteRequest
	if err := request.Unmarshal(raw); err != nil {
		return err
	}
	for _, series := range request.Timeseries {
		for _, l := range series.Labels {
			if l.Name != "__name__" {
				continue
			}
			name := l.Value
			if name != counter && name != histogram+"_count" {
				continue
			}
			for _, p := range series.Samples {
				if p.Value == p.Value { // a stale marker is not a number
					s.of("vmagent", strings.TrimSuffix(name, "_count")).point(p.Value)
				}
			}
		}
	}
	return nil
}

func (s *sink) otlp(pipeline string, body []byte) error {
	request := pmetricotlp.NewExportRequest()
	if err := request.UnmarshalProto(body); err != nil {
		return err
	}
	for _, resource := range request.Metrics().ResourceMetrics().All() {
		for _, scope := range resource.ScopeMetrics().All() {
			for _, m := range scope.Metrics().All() {
				switch {
				case m.Name() == counter && m.Type() == pmetric.MetricTypeSum:
					delta := m.Sum().AggregationTemporality() == pmetric.AggregationTemporalityDelta
					for _, p := range m.Sum().DataPoints().All() {
						if !p.Flags().NoRecordedValue() {
							s.value(pipeline, m.Name(), p.DoubleValue(), delta)
						}
					}
				case m.Name() == histogram && m.Type() == pmetric.MetricTypeHistogram:
					delta := m.Histogram().AggregationTemporality() == pmetric.AggregationTemporalityDelta
					for _, p := range m.Histogram().DataPoints().All() {
						if !p.Flags().NoRecordedValue() {
							s.value(pipeline, m.Name(), float64(p.Count()), delta)
						}
					}
				}
			}
		}
	}
	return nil
}

func (s *sink) value(pipeline, name string, v float64, delta bool) {
	r := s.of(pipeline, name)
	if !delta {
		r.point(v)
		return
	}
	r.sum += v
	r.count++
}

// program is a process of the pipeline.
type program struct {
	t       *testing.T
	command []string
	env     []string
	running *exec.Cmd
	log     *os.File
}

func (p *program) start() {
	p.running = exec.Command(p.command[0], p.command[1:]...)
	p.running.Env = append(os.Environ(), p.env...)
	p.running.Stdout, p.running.Stderr = p.log, p.log
	if err := p.running.Start(); err != nil {
		p.t.Fatal(err)
	}
}

func (p *program) stop(how syscall.Signal) {
	_ = p.running.Process.Signal(how)
	_ = p.running.Wait()
}

func newProgram(t *testing.T, command ...string) *program {
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	if err != nil {
		t.Fatal(err)
	}
	p := &program{t: t, command: command, log: log}
	t.Cleanup(func() {
		p.stop(syscall.SIGKILL)
		if t.Failed() {
			if text, err := os.ReadFile(log.Name()); err == nil {
				t.Logf("%s:\n%s", filepath.Base(command[0]), text[max(0, len(text)-3000):])
			}
		}
	})
	p.start()
	return p
}

// build builds a program, unless a variable names one.
func build(t *testing.T, variable, dir, pkg string) string {
	if file := os.Getenv(variable); file != "" {
		return file
	}
	file := filepath.Join(t.TempDir(), strings.ToLower(variable))
	build := exec.Command("go", "build", "-tags", "remove_all_sd", "-o", file, pkg) // addresses are fixed: no service discovery is needed
	build.Dir = dir
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", pkg, err, out)
	}
	return file
}

func free(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// example writes an example of the repository with the addresses and the interval of the test.
func example(t *testing.T, name string, replace ...string) string {
	body, err := os.ReadFile("../examples/pipelines/" + name)
	if err != nil {
		t.Fatal(err)
	}
	replace = append(replace, "30s", interval.String())
	for i := 0; i < len(replace); i += 2 {
		if !strings.Contains(string(body), replace[i]) {
			t.Fatalf("%s lacks %q", name, replace[i])
		}
	}
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(strings.NewReplacer(replace...).Replace(string(body))), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// TestPipelines checks that an OpenTelemetry collector and vmagent pass on the exporter's counts. Nothing is lost
// or counted twice while the engine, the exporter and the pipelines are restarted. Deltas lack events from a time
// without a collector, and events of a restarted engine before its first reading: the processor drops both.
func TestPipelines(t *testing.T) {
	if os.Getenv("PIPELINES") == "" {
		t.Skip("PIPELINES=1 builds a collector and vmagent, which takes minutes")
	}
	e, s := &engine{}, &sink{got: map[string]*received{}}
	e.add(1000) // counted before the first reading
	served := httptest.NewServer(e)
	t.Cleanup(served.Close)
	s.Server = httptest.NewServer(s)
	t.Cleanup(s.Close)
	address := free(t)
	exporter := newProgram(t, build(t, "EXPORTER", "..", "./cmd/exporter"), "--engine.target="+served.URL, "--web.listen-address="+
		address, "--no-collector.gpu", "--discovery=none")
	otel := newProgram(t, build(t, "OTELCOL", ".", "./otelcol"), "--config="+example(t, "otel-collector.yaml",
		"127.0.0.1:9844", address, "http://127.0.0.1:4318", s.URL+"/cumulative", "http://127.0.0.1:4319", s.URL+"/delta", "service:\n",
		"service:\n  telemetry: {metrics: {level: none}}\n"))
	vmagent := newProgram(t, build(t, "VMAGENT", ".", "github.com/VictoriaMetrics/VictoriaMetrics/app/vmagent"), "-promscrape.config="+
		example(t, "vmagent.yaml", "127.0.0.1:9844", address),
		"-remoteWrite.url="+s.URL+"/vmagent", "-remoteWrite.tmpDataPath="+t.TempDir(), "-httpListenAddr="+free(t),
		"-remoteWrite.flushInterval=1s")

	begin := 1000
	caught := func(why string) {
		t.Helper()
		counted, _ := e.now()
		for until := time.Now().Add(60 * time.Second); ; time.Sleep(100 * time.Millisecond) {
			s.mu.Lock()
			late := ""
			for _, pipeline := range []string{"cumulative", "vmagent"} {
				for _, name := range []string{counter, histogram} {
					if r := s.of(pipeline, name); r.count < 2 || r.last != float64(counted) {
						late = fmt.Sprintf("%s %s has %v after %d points, the engine %d", pipeline, name, r.last, r.count, counted)
					}
				}
			}
			s.mu.Unlock()
			if late == "" {
				time.Sleep(2 * interval) // the deltas, too
				return
			}
			if time.Now().After(until) {
				t.Fatalf("%s: %s", why, late)
			}
		}
	}
	count := func(times int) {
		for range times {
			e.add(7)
			time.Sleep(interval / 4)
		}
	}
	restarted := func(pipelines ...string) {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, p := range pipelines {
			for _, name := range []string{counter, histogram} {
				s.of(p, name).fresh = true
			}
		}
	}
	caught("at the start")
	count(12)
	caught("before the engine restarts") // events that it counts after the last reading are lost with it, whoever reads
	e.restart()
	count(12)
	exporter.stop(syscall.SIGKILL)
	count(8)
	exporter.start()
	count(12)
	caught("after the exporter's restart")
	otel.stop(syscall.SIGTERM)
	restarted("cumulative")
	vmagent.stop(syscall.SIGTERM)
	count(8)
	otel.start()
	vmagent.start()
	count(12)
	caught("after the pipelines' restart")

	_, total := e.now()
	want := float64(total - begin)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range []string{counter, histogram} {
		cumulative, delta, agent := s.of("cumulative", name), s.of("delta", name), s.of("vmagent", name)
		t.Logf("%s: %v counted; cumulative %v in %d points, vmagent %v in %d, deltas %v in %d, %v while no collector ran, %v before the "+
			"first reading of a restarted engine",
			name, want, cumulative.rose, cumulative.count, agent.rose, agent.count, delta.sum, delta.count, cumulative.gap, cumulative.anew)
		if cumulative.rose != want {
			t.Errorf("%s: cumulative sums rose by %v, %v were counted", name, cumulative.rose, want)
		}
		if agent.rose != want {
			t.Errorf("%s: vmagent's rose by %v, %v were counted", name, agent.rose, want)
		}
		if cumulative.gap == 0 {
			t.Errorf("%s: nothing was counted while no collector ran, so that the test shows less than it should", name)
		}
		if expected := want - cumulative.gap - cumulative.anew; delta.sum != expected {
			t.Errorf("%s: deltas add up to %v, want %v", name, delta.sum, expected)
		}
	}
}
