package main

import (
	"compress/gzip"
	"context"
	"flag"
	"fmt"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

var (
	chaos     = flag.Duration("chaos", 15*time.Second, "how long TestChaos breaks things")
	chaosSeed = flag.Uint64("chaos-seed", 1, "what it breaks, and when")
)

// moody is an engine that serves changing numbers until a test makes it misbehave.
type moody struct {
	*httptest.Server
	requests atomic.Int64
	mood     atomic.Pointer[http.HandlerFunc] // nil: healthy
}

// page writes the metrics of the healthy engine.
func (m *moody) page(w io.Writer) {
	fmt.Fprintf(w, `# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="m"} 3
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop",model_name="m"} %d
# TYPE vllm:generation_tokens_total counter
vllm:generation_tokens_total{engine="0",model_name="m"} %d
`, m.requests.Load(), 100*m.requests.Load())
}

func newMoody(t *testing.T) *moody {
	m := &moody{}
	m.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m.requests.Add(1)
		switch mood := m.mood.Load(); {
		case mood != nil:
			(*mood)(w, r)
		case r.URL.Path == "/metrics":
			m.page(w)
		default:
			http.NotFound(w, r)
		}
	}))
	t.Cleanup(m.Close)
	return m
}

// moods are the ways in which an engine misbehaves.
var moods = map[string]func(m *moody) http.HandlerFunc{
	"hangs": func(*moody) http.HandlerFunc {
		return func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	},
	"dies": func(*moody) http.HandlerFunc {
		return func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	},
	"restarts": func(m *moody) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { m.requests.Store(0); m.page(w) }
	},
	"drips": func(*moody) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil {
				io.WriteString(w, "#")
				w.(http.Flusher).Flush()
				time.Sleep(20 * time.Millisecond)
			}
		}
	},
	"floods": func(*moody) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			for line := strings.Repeat("vllm:x 1\n", 1<<12); r.Context().Err() == nil; {
				if _, err := io.WriteString(w, line); err != nil {
					return
				}
			}
		}
	},
	"sends a bomb": func(*moody) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Encoding", "gzip")
			z := gzip.NewWriter(w)
			for range 20 {
				z.Write(make([]byte, 1<<20))
			}
			z.Close()
		}
	},
	"changes types": func(m *moody) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			var page strings.Builder
			m.page(&page)
			io.WriteString(w, strings.NewReplacer("gauge", "counter", "counter", "gauge").Replace(page.String()))
		}
	},
	"explodes": func(*moody) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "# TYPE vllm:num_requests_running gauge\n")
			for i := range 60_000 {
				fmt.Fprintf(w, "vllm:num_requests_running{engine=\"%d\",model_name=\"m%d\"} 1\n", i, i)
			}
		}
	},
	"is a web page": func(*moody) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) {
			io.WriteString(w, "<!doctype html><title>Sign in</title>")
		}
	},
	"redirects": func(*moody) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "http://127.0.0.1:1/metrics", http.StatusFound)
		}
	},
	"fails": func(*moody) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) }
	},
}

// TestChaos breaks engines, GPUs, the configuration and the port at random, and checks that each scrape is answered in
// time and can be parsed. Healthy parts have complete and correct metrics, and none of their counters falls. No
// resource leaks. For an hour:
//
//	go test ./cmd/exporter -run Chaos -chaos 1h -chaos-seed 7 -timeout 2h -v
func TestChaos(t *testing.T) {
	const gpus, healthyGPUs = 4, 2
	var calm, victims []*moody
	var config strings.Builder
	config.WriteString("targets:\n")
	for i := range 6 {
		m := newMoody(t)
		fmt.Fprintf(&config, "  - {url: %q, timeout: 2s}\n", m.URL)
		if i < 2 {
			calm = append(calm, m)
		} else {
			victims = append(victims, m)
		}
	}
	file := filepath.Join(t.TempDir(), "exporter.yml")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Error(err)
		}
	}
	write(config.String())
	n := startOnGPUs(t, gpus, nil, "--config.file="+file, "--log.level=error")
	n.until(t, `llm_gpu_up{gpu="3"`)
	for _, m := range calm {
		n.until(t, `llm_engine_requests_running{runtime="vllm",model_name="m",server="`+strings.TrimPrefix(m.URL, "http://"))
	}
	healthy := func(l model.Metric) bool {
		if gpu := string(l["gpu"]); gpu != "" {
			return gpu < strconv.Itoa(healthyGPUs)
		}
		return string(l["server"]) == strings.TrimPrefix(calm[0].URL, "http://") || string(l["server"]) == strings.TrimPrefix(calm[1].URL,
			"http://")
	}
	first := scrapeAll(t, n, 5*time.Second)
	want := map[model.Fingerprint]model.Metric{}
	for _, s := range first {
		if healthy(s.Metric) && s.Metric["reason"] == "" { // reasons come and go
			want[s.Metric.Fingerprint()] = s.Metric
		}
	}
	if len(want) < 100 {
		t.Fatalf("only %d healthy series", len(want))
	}
	t.Logf("%d series, %d of them healthy; -chaos-seed %d", len(first), len(want), *chaosSeed)

	ctx, cancel := context.WithTimeout(t.Context(), *chaos)
	defer cancel()
	var all sync.WaitGroup
	scrapes, slowest := map[time.Duration]int{}, map[time.Duration]time.Duration{}
	var mu sync.Mutex
	for _, timeout := range []time.Duration{time.Second, 4 * time.Second} { // an impatient scraper beside a patient scraper
		all.Go(func() {
			last := map[model.Fingerprint]float64{}
			for ctx.Err() == nil {
				began := time.Now()
				page := scrapeAll(t, n, timeout)
				mu.Lock()
				scrapes[timeout]++
				slowest[timeout] = max(slowest[timeout], time.Since(began))
				mu.Unlock()
				missing := maps.Clone(want)
				for _, s := range page {
					id := s.Metric.Fingerprint()
					if _, ok := want[id]; !ok {
						continue
					}
					delete(missing, id)
					name, value := string(s.Metric[model.MetricNameLabel]), float64(s.Value)
					switch {
					case name == "llm_engine_requests_running" && value != 3, name == "llm_engine_up" && value != 1, name == "llm_gpu_up" && value != 1:
						t.Errorf("%s is %v", s.Metric, value)
					case strings.HasSuffix(name, "_total") && value < last[id]:
						t.Errorf("%s fell from %v to %v", s.Metric, last[id], value)
					}
					last[id] = value
				}
				for _, s := range missing {
					t.Errorf("a page lacks %s", s)
				}
				time.Sleep(50 * time.Millisecond)
			}
		})
	}
	broken := breakThings(ctx, t, n, rand.New(rand.NewPCG(*chaosSeed, 0)), victims, healthyGPUs, gpus, write, config.String())
	all.Wait()
	t.Logf("broken: %v; scrapes: %v; slowest: %v", broken, scrapes, slowest)

	// Everything is healthy again: all series are back, and no resource has leaked.
	for _, m := range victims {
		n.until(t, `llm_engine_requests_running{runtime="vllm",model_name="m",server="`+strings.TrimPrefix(m.URL, "http://"))
	}
	n.until(t, `llm_gpu_up{gpu="3"`)
	before := processOf(first)
	var after map[string]float64
	settled := func() bool {
		http.DefaultClient.CloseIdleConnections()
		after = processOf(scrapeAll(t, n, 5*time.Second))
		return after["process_open_fds"] <= before["process_open_fds"]+8 && after["go_goroutines"] <= before["go_goroutines"]+16 &&
			after["go_threads"] <= before["go_threads"]+8
	}
	for deadline := time.Now().Add(30 * time.Second); !settled(); time.Sleep(time.Second) {
		if time.Now().After(deadline) {
			t.Errorf("before %v, after %v", before, after)
			break
		}
	}
	t.Logf("before %v, after %v", before, after)
	if err := n.process.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := <-n.done; err != nil {
		t.Errorf("the exporter ended with %v", err)
	}
}

// halves are connections with half a request each.
type halves []net.Conn

func (all *halves) close() {
	for _, c := range *all {
		c.Close()
	}
	*all = nil
}

// breakThings breaks one thing after the other until ctx ends, then heals everything. It returns how often it broke
// each.
func breakThings(ctx context.Context, t *testing.T, n *gpuNode, random *rand.Rand, victims []*moody, firstGPU, gpus int,
	write func(string), config string,
) map[string]int {
	names := make([]string, 0, len(moods))
	for name := range moods {
		names = append(names, name)
	}
	broken := map[string]int{}
	var flood halves
	defer func() { flood.close() }()
	must := func(err error) {
		if err != nil {
			t.Error(err)
		}
	}
	reload := func() { must(n.process.Process.Signal(syscall.SIGHUP)) }
	for ctx.Err() == nil {
		m, gpu := victims[random.IntN(len(victims))], firstGPU+random.IntN(gpus-firstGPU)
		what := []string{"engine", "engine", "engine", "gpu hangs", "gpu lost", "gpu well", "half a configuration", "connections"}[random.IntN(8)]
		switch what {
		case "engine":
			what = names[random.IntN(len(names))]
			mood := moods[what](m)
			m.mood.Store(&mood)
		case "gpu hangs":
			must(n.Hang(gpu, time.Minute))
		case "gpu lost":
			must(n.Lose(gpu))
		case "gpu well":
			must(n.Unhang(gpu))
			must(n.Unset(strconv.Itoa(gpu), "lost"))
		case "half a configuration":
			write(config[:random.IntN(len(config))] + "{")
			reload()
		case "connections":
			flood.close() // the last one
			for range 50 {
				conn, err := net.Dial("tcp", strings.TrimPrefix(n.url, "http://"))
				if err != nil {
					break
				}
				flood = append(flood, conn)
				io.WriteString(conn, "GET /metrics HTTP/1.1\r\nX-Slow: ")
			}
		}
		broken[what]++
		if random.IntN(3) == 0 {
			victims[random.IntN(len(victims))].mood.Store(nil)
		}
		select {
		case <-ctx.Done():
		case <-time.After(time.Duration(random.IntN(400)) * time.Millisecond):
		}
	}
	for _, m := range victims {
		m.mood.Store(nil)
	}
	for gpu := firstGPU; gpu < gpus; gpu++ {
		must(n.Unhang(gpu))
		must(n.Unset(strconv.Itoa(gpu), "lost"))
	}
	write(config)
	reload()
	return broken
}

// scrapeAll scrapes like a Prometheus server with this timeout, and returns all series.
func scrapeAll(t *testing.T, n *gpuNode, timeout time.Duration) model.Vector {
	ctx, cancel := context.WithTimeout(t.Context(), timeout+10*time.Second) // the machine may be slow, but the exporter may not
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, n.url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", strconv.FormatFloat(timeout.Seconds(), 'f', -1, 64))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return nil
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Errorf("%s: %v", resp.Status, err)
		return nil
	}
	var all model.Vector
	seen := map[model.Fingerprint]bool{}
	for _, f := range families {
		samples, err := expfmt.ExtractSamples(&expfmt.DecodeOptions{Timestamp: model.Now()}, f)
		if err != nil {
			t.Error(err)
		}
		for _, s := range samples {
			if id := s.Metric.Fingerprint(); seen[id] {
				t.Errorf("%s is on the page twice", s.Metric)
			} else if seen[id] = true; math.IsNaN(float64(s.Value)) && strings.HasSuffix(string(s.Metric[model.MetricNameLabel]), "_total") {
				t.Errorf("%s is not a number", s.Metric)
			}
		}
		all = append(all, samples...)
	}
	return all
}

// processOf returns the exporter's metrics of its own process.
func processOf(page model.Vector) map[string]float64 {
	own := map[string]float64{}
	for _, s := range page {
		switch name := string(s.Metric[model.MetricNameLabel]); name {
		case "process_open_fds", "go_goroutines", "go_threads", "process_resident_memory_bytes":
			own[name] = float64(s.Value)
		}
	}
	return own
}
