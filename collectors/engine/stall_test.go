package engine

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// played is a captured metrics page whose numbers a test moves on, read by the real collector in the test's own time.
type played struct {
	*fakeEngine
	t         testing.TB
	collector *Collector
	now       time.Time
	values    map[string]float64 // by series, as the metrics page writes them
	order     []string
	last      samples
	// connections is the number of connections that the kernel counts at the server's port, if it shows them.
	connections float64
	shown       bool
}

func play(t testing.TB, name string) *played {
	p := &played{fakeEngine: serve(t, readPage(t, name)), t: t, now: time.Unix(1795403200, 0), values: map[string]float64{}}
	p.order = strings.SplitAfter(p.page, "\n")
	p.collector = collectorWith(t, Config{
		Targets: []TargetConfig{{URL: p.URL}}, Now: func() time.Time { return p.now }, Log: discard,
		Connections: func(string) (int, bool) { return int(p.connections), p.shown },
	})
	return p
}

// set gives the series with this prefix a value; add increases it.
func (p *played) set(prefix string, value float64) {
	p.edit(prefix, func(float64) float64 { return value })
}

func (p *played) add(prefix string, n float64) {
	p.edit(prefix, func(v float64) float64 { return v + n })
}

func (p *played) edit(prefix string, to func(float64) float64) {
	p.t.Helper()
	p.mu.Lock()
	defer p.mu.Unlock()
	if prefix == ofKernel {
		p.connections, p.shown = to(p.connections), true
		return
	}
	found := false
	for i, line := range p.order {
		if series, number, ok := strings.Cut(line, " "); ok && strings.HasPrefix(line, prefix) {
			var v float64
			fmt.Sscan(number, &v)
			p.order[i], found = fmt.Sprintf("%s %v\n", series, to(v)), true
		}
	}
	if !found {
		p.t.Fatalf("no %s on the page", prefix)
	}
	p.page = strings.Join(p.order, "")
}

// pass reads the metrics page at an interval for some time, and changes it before each reading.
func (p *played) pass(long, every time.Duration, move func()) {
	for end := p.now.Add(long); p.now.Before(end); {
		p.now = p.now.Add(every)
		if move != nil {
			move()
		}
		p.last = parse(p.t, exposition(p.t, p.collector))
	}
}

const tick = 15 * time.Second

// ofKernel stands for the connections of the server in place of a series.
const ofKernel = "the kernel's connections"

// serves changes vLLM's metrics page by the answers of an interval.
func (p *played) serves(answers float64) {
	p.add(`vllm:request_success_total{engine="0",finished_reason="stop"`, answers)
	p.add(`http_requests_total{handler="/v1/completions",method="POST",status="2xx"}`, answers)
	p.add(`vllm:request_params_n_count`, answers)
	p.add(`vllm:time_to_first_token_seconds_count`, answers)
	p.add(`vllm:generation_tokens_total`, 50*answers)
	p.add(`vllm:iteration_tokens_total_count`, 20*answers)
}

// shows sets the running requests, and the other open files.
func (p *played) shows(running, files float64) {
	p.set("vllm:num_requests_running", running)
	p.set("process_open_fds", files)
}

const givesUp = `http_requests_total{handler="/v1/completions",method="POST",status="2xx"}`

func (p *played) wants(stalled, inFlight float64) {
	p.t.Helper()
	p.last.want(p.t, metrics.EngineStalled.Name, stalled)
	p.last.want(p.t, metrics.RequestsInFlight.Name, inFlight)
}

// TestHangOfVLLM checks a hang that begins idle: gauges are written after a step, so they stay at 0 for ever. The
// figures are from the captured engine: 34 files at rest, 46 with 12 idle connections, 60 with 26 requests that
// hang.
func TestHangOfVLLM(t *testing.T) {
	hour := func(answers float64) *played {
		p := play(t, "vllm/v0.32.0-healthy.prom")
		p.pass(30*time.Minute, tick, func() { p.serves(answers); p.shows(0, 34); p.pass(0, tick, nil) })
		p.wants(0, 0)
		return p
	}
	t.Run("begins idle", func(*testing.T) {
		p := hour(15) // one a second
		p.pass(time.Minute, tick, func() { p.add("process_open_fds", 15) })
		p.wants(0, 60)
		p.pass(time.Minute, tick, func() { p.add("process_open_fds", 15) })
		p.wants(105, 120) // since it was first seen
		p.pass(10*time.Minute, tick, nil)
		p.wants(705, 120)
		p.pass(tick, tick, func() { p.serves(1); p.shows(8, 150) })
		p.wants(0, 8)
	})
	t.Run("begins busy, three minutes after the exporter", func(*testing.T) { // a play on a real engine: 15 answers a minute
		p := play(t, "vllm/v0.32.0-healthy.prom")
		p.pass(3*time.Minute, tick, func() { p.serves(15. / 4); p.shows(2, 36) })
		p.pass(75*time.Second, tick, nil)
		p.wants(0, 2)
		p.pass(tick, tick, nil)
		p.wants(90, 2)
	})
	t.Run("begins idle, 16 answers a minute", func(*testing.T) { // a play on a real engine
		p := hour(4)
		p.pass(time.Minute, tick, func() { p.add("process_open_fds", 4) })
		p.wants(0, 16)
		p.pass(time.Minute, tick, func() { p.add("process_open_fds", 4) })
		p.wants(105, 32)
	})
	t.Run("begins idle, little traffic", func(t *testing.T) {
		p := hour(0.5)
		p.pass(8*time.Minute, tick, func() { p.add("process_open_fds", 0.5) })
		if v := p.last.get(t, metrics.EngineStalled.Name); len(v) != 1 || v[0] < 300 {
			t.Errorf("stalled for %v", v)
		}
	})
	t.Run("begins idle, just after a queue", func(*testing.T) {
		p := hour(15)
		p.pass(tick, tick, func() { p.serves(15); p.shows(351, 388) }) // captured
		p.pass(tick, tick, func() { p.shows(0, 37) })
		p.pass(5*time.Minute, tick, func() { p.add("process_open_fds", 15) })
		p.wants(285, 300)
	})
	t.Run("begins busy", func(*testing.T) {
		p := hour(15)
		p.pass(tick, tick, func() { p.serves(15); p.shows(8, 42) })
		p.pass(time.Minute, tick, nil)
		p.wants(60, 8)
	})
	t.Run("clients give up on an engine that was idle for long", func(t *testing.T) {
		p := hour(0.5)
		p.pass(2*time.Hour, tick, nil)
		p.pass(3*time.Minute, tick, func() { p.set("process_open_fds", 37); p.add(givesUp, 1) })
		p.last.want(t, metrics.EngineStalled.Name, 165)
		p.pass(6*time.Minute, tick, func() { p.set("process_open_fds", 34) }) // they are gone
		p.wants(0, 0)
	})
	t.Run("captured", func(t *testing.T) { // 107 hang, one of them shown; 685 have given up
		p := play(t, "vllm/v0.32.0-wedge.prom")
		p.shows(1, 42)
		p.pass(time.Minute, tick, nil)
		p.pass(10*time.Minute, tick, func() { p.set("process_open_fds", 142); p.add(givesUp, 3) })
		if v := p.last.get(t, metrics.EngineStalled.Name); len(v) != 1 || v[0] < 300 {
			t.Errorf("stalled for %v", v)
		}
		golden.Compare(t, filepath.Join("testdata", "stalled.prom"), keep(text(t, p.collector.Scrape(t.Context())),
			metrics.RequestsInFlight, metrics.EngineLastProgress, metrics.EngineStalled, metrics.EngineWithoutProgress,
			metrics.EngineStandstill))
	})
}

// keep returns only the lines of these families.
func keep(page string, families ...*metrics.Family) string {
	var kept strings.Builder
	for line := range strings.Lines(page) {
		for _, f := range families {
			if strings.Contains(line, f.Name) && !strings.HasPrefix(line, metrics.MetricSourceInfo.Name) {
				kept.WriteString(line)
			}
		}
	}
	return kept.String()
}

// TestNoHangOfVLLM checks states that look like work but are not.
func TestNoHangOfVLLM(t *testing.T) {
	hour := func(answers float64) *played {
		p := play(t, "vllm/v0.32.0-healthy.prom")
		p.pass(30*time.Minute, tick, func() { p.serves(answers); p.shows(0, 34) })
		return p
	}
	never := func(p *played, long, every time.Duration, move func()) {
		p.t.Helper()
		for end := p.now.Add(long); p.now.Before(end); {
			p.pass(every, every, move)
			for _, v := range p.last.get(p.t, metrics.EngineStalled.Name) {
				if v != 0 {
					p.t.Fatalf("stalled for %v s at %s", v, p.now)
				}
			}
		}
	}
	t.Run("a pool of idle connections that grows", func(*testing.T) {
		p := hour(15)
		never(p, 20*time.Minute, tick, nil)
		never(p, 40*time.Minute, tick, func() { p.add("process_open_fds", 1) })
	})
	t.Run("the pool of the last requests", func(*testing.T) {
		p := hour(15)
		never(p, tick, tick, func() { p.serves(12); p.shows(0, 46) })
		never(p, 20*time.Minute, tick, nil)
	})
	t.Run("a pool on an engine that never served", func(t *testing.T) {
		p := play(t, "vllm/v0.32.0-healthy.prom")
		p.shows(0, 34)
		never(p, 2*time.Hour, tick, func() { p.add("process_open_fds", 0.25) })
	})
	t.Run("clients cancel all that runs, and its gauge stays", func(t *testing.T) {
		p := hour(15)
		p.pass(5*time.Minute, tick, func() { p.serves(15); p.shows(8, 42) })
		never(p, 30*time.Minute, tick, func() { p.set("process_open_fds", 34) })
		p.last.want(t, metrics.RequestsInFlight.Name, 0) // the gauge still shows 8
	})
	t.Run("a step of four minutes", func(*testing.T) {
		p := hour(0.2)
		never(p, 4*time.Minute, tick, func() { p.shows(1, 40) })
		never(p, tick, tick, func() { p.serves(1) })
	})
	t.Run("scrapers in a burst", func(*testing.T) {
		p := hour(15)
		never(p, time.Second, 20*time.Millisecond, func() { p.add("process_open_fds", 1) })
		never(p, 5*time.Second, 100*time.Millisecond, func() { p.set("process_open_fds", 34) })
	})
	t.Run("answers that leave after the last token, and a pool of another client", func(*testing.T) {
		p := hour(15)
		never(p, 2*time.Second, 2*time.Second, func() { p.add(givesUp, 8) })
		never(p, 20*time.Minute, tick, nil)
		never(p, 20*time.Minute, tick, func() { p.set("process_open_fds", 39) })
	})
	t.Run("scrapers and a log file more after the last request", func(*testing.T) {
		p := hour(15)
		never(p, 20*time.Minute, tick, func() { p.set("process_open_fds", 37) })
	})
}

// TestMemoryOfProgress checks restarts, failed readings and several scrapers.
func TestMemoryOfProgress(t *testing.T) {
	at := func(p *played) float64 {
		v := p.last.get(t, metrics.EngineLastProgress.Name)
		if len(v) != 1 {
			t.Fatalf("last progress is %v", v)
		}
		return v[0]
	}
	p := play(t, "vllm/v0.32.0-healthy.prom")
	p.pass(tick, tick, nil)
	p.last.want(t, metrics.EngineLastProgress.Name) // one reading proves nothing
	p.last.want(t, metrics.EngineStalled.Name)
	first := p.now
	p.pass(tick, tick, nil)
	if at(p) != float64(first.Unix()) {
		t.Errorf("without a change it is %v, first read at %d", at(p), first.Unix())
	}
	p.pass(30*time.Minute, tick, func() { p.serves(15); p.shows(8, 42) })
	moved := at(p)
	if moved != float64(p.now.Unix()) {
		t.Errorf("it is %v at %d", moved, p.now.Unix())
	}
	p.pass(2*time.Minute, tick, nil)
	p.wants(120, 8)

	p.status = http.StatusInternalServerError // a reading that fails changes nothing
	p.pass(time.Minute, tick, nil)
	p.last.want(t, metrics.EngineStalled.Name)
	p.status = http.StatusOK
	p.pass(tick, tick, nil)
	p.wants(195, 8)

	var all sync.WaitGroup // many scrapers at once
	for range 8 {
		all.Go(func() { parse(t, exposition(t, p.collector)).want(t, metrics.EngineStalled.Name, 195) })
	}
	all.Wait()
	for range 4 { // one every 15 s, one every 20 s
		p.pass(tick, tick, nil)
		p.pass(5*time.Second, 5*time.Second, nil)
	}
	p.wants(275, 8)
	if at(p) != moved {
		t.Errorf("last progress is %v, and was %v", at(p), moved)
	}

	p.add("process_start_time_seconds", 3600) // restarted
	p.set("vllm:", 0)
	p.set("process_open_fds", 34)
	p.pass(tick, tick, nil)
	p.last.want(t, metrics.EngineStalled.Name)
	p.pass(time.Hour, tick, nil)
	p.wants(0, 0)
}

// TestCold checks that an engine is cold while requests wait after its start, until it has given ten answers and
// then no request has waited for a minute.
func TestCold(t *testing.T) {
	p := play(t, "vllm/v0.32.0-healthy.prom")
	wants := func(cold float64) { t.Helper(); p.last.want(t, metrics.EngineCold.Name, cold) }
	const answers, waits = `vllm:request_success_total{engine="0",finished_reason="stop"`, `vllm:num_requests_waiting{`
	p.set("process_start_time_seconds", float64(p.now.Add(-time.Hour).Unix()))
	p.set(waits, 400)
	p.pass(time.Minute, tick, func() { p.serves(3) })
	wants(0) // the engine started long ago
	restarts := func() {
		p.set("process_start_time_seconds", float64(p.now.Unix()))
		p.set("vllm:", 0)
	}
	restarts()
	p.pass(3*time.Minute, tick, nil)
	wants(0) // nobody waits
	p.set(answers, 9)
	p.set(waits, 4)
	p.pass(tick, tick, nil)
	wants(1)
	p.set(waits, 0)
	p.pass(4*time.Minute, tick, nil)
	wants(1) // users still notice the wait
	p.pass(time.Minute+tick, tick, nil)
	wants(0) // too few answers prove nothing, but no request waits any more
	p.set(waits, 4)
	p.pass(tick, tick, nil)
	wants(1)
	p.set(waits, 0)
	p.add(answers, 1)
	p.pass(time.Minute+tick, tick, func() { p.serves(3) })
	p.set(waits, 400)
	p.pass(4*time.Minute, tick, func() { p.serves(3) })
	wants(0) // the engine was warm before these requests came
	restarts()
	p.set(answers, 9)
	p.pass(tick, tick, nil)
	p.add(`vllm:request_queue_time_seconds_count`, 10)
	p.add(`vllm:request_queue_time_seconds_sum`, 4)
	p.pass(tick, tick, nil)
	wants(0) // a wait of 400 ms does not count
	p.add(`vllm:request_queue_time_seconds_count`, 10)
	p.add(`vllm:request_queue_time_seconds_sum`, 6)
	p.pass(tick, tick, nil)
	wants(1) // a queue came and went between two readings
}

// TestQueueGrows checks that requests that arrive and wait while none runs prove a standstill, however few are due, and
// that requests whose clients have left do not.
func TestQueueGrows(t *testing.T) {
	const running, waiting = "tgi_batch_current_size", "tgi_queue_size"
	stalled := func(p *played) float64 {
		t.Helper()
		if v := p.last.get(t, metrics.EngineStalled.Name); len(v) == 1 {
			return v[0]
		}
		t.Fatal("it does not say whether it stands still")
		return 0
	}
	queue := func(runs float64, sizes ...float64) *played {
		p := play(t, "tgi/v3.3.7-loaded.prom")
		p.set(running, 0)
		p.set(waiting, 0)
		p.pass(time.Minute, tick, nil)
		for _, n := range sizes {
			p.set(running, runs)
			p.set(waiting, n)
			p.pass(time.Minute, tick, nil)
		}
		return p
	}
	if v := stalled(queue(0, 1, 1, 2, 2, 3, 4, 4, 5)); v < 300 || v > 480 {
		t.Errorf("a queue that grows for eight minutes while nothing runs: stalled for %g s", v)
	}
	p := queue(0, 1, 1, 2, 2, 3, 4, 4, 5)
	p.set(waiting, 0)
	p.pass(time.Minute, tick, nil)
	if v := stalled(p); v < 300 {
		t.Errorf("for a minute there is no client: stalled for %g s", v)
	}
	if p.pass(10*time.Minute, tick, nil); stalled(p) != 0 {
		t.Error("nobody has come for ten minutes, and it is said to stand still")
	}
	if v := stalled(queue(0, 1, 1, 2, 2)); v != 0 {
		t.Errorf("for four minutes: stalled for %g s", v)
	}
	if v := stalled(queue(0, 2, 2, 2, 2, 2, 2, 2, 2)); v != 0 {
		t.Errorf("two requests whose clients may have left: stalled for %g s", v)
	}
	if v := stalled(queue(1, 1, 1, 2, 2, 3, 4, 4, 5)); v != 0 {
		t.Errorf("behind a request that runs, and may be long: stalled for %g s", v)
	}
	if v := stalled(queue(0, 1, 2, 3, 0, 0, 1, 2, 0)); v != 0 {
		t.Errorf("the clients leave each time: stalled for %g s", v)
	}
}

// TestIdleConnections checks that connections that a gateway keeps open do not count as requests: a vLLM that refused
// all requests had three.
func TestIdleConnections(t *testing.T) {
	p := play(t, "vllm/v0.32.0-healthy.prom")
	p.shows(0, 35)
	p.pass(10*time.Minute, tick, func() { p.serves(3) })
	p.shows(0, 38)
	p.pass(2*time.Minute, tick, nil)
	p.wants(0, 0)
	p.shows(0, 40)
	p.pass(2*time.Minute, tick, nil)
	p.wants(0, 5)
}

// TestArrivals checks that each request counts once, at its arrival, for any end.
func TestArrivals(t *testing.T) {
	const ended, running, waits = `vllm:request_success_total{engine="0",finished_reason=`, "vllm:num_requests_running", `vllm:num_requests_waiting{`
	p := play(t, "vllm/v0.32.0-healthy.prom")
	want := func(n float64) { t.Helper(); p.last.want(t, metrics.RequestsArrived.Name, n) }
	p.set(running, 2)
	p.set(waits, 0)
	p.pass(tick, tick, nil)
	want(0) // the time of their arrival is unknown
	p.set(running, 4)
	p.set(waits, 5)
	p.pass(2*tick, tick, nil)
	want(7)
	p.set(waits, 0)
	p.add(ended+`"stop"`, 5)
	p.pass(tick, tick, nil)
	want(7) // the same requests ended
	p.set(running, 3)
	p.pass(tick, tick, nil)
	p.add(ended+`"length"`, 3)
	p.pass(tick, tick, nil)
	want(9) // one of the three had left the gauge before
	p.add("process_start_time_seconds", 3600)
	p.set("vllm:", 0)
	p.set(ended+`"stop"`, 6)
	p.pass(tick, tick, nil)
	want(15)
	// llama.cpp counts neither ends nor first tokens. Slow steps alone also make a queue grow.
	p = play(t, "llamacpp/b10450-loaded.prom")
	p.pass(2*tick, tick, nil)
	p.last.want(t, metrics.RequestsArrived.Name)
}

// TestBursts checks that requests that arrive together are told from more requests, and from a standstill that hides
// arrivals.
func TestBursts(t *testing.T) {
	const running = "vllm:num_requests_running"
	p := play(t, "vllm/v0.32.0-healthy.prom")
	random := rand.New(rand.NewPCG(1, 2))
	independent := func(mean float64) (n float64) { // the number of arrivals in a tick
		for at := random.ExpFloat64(); at < mean; at += random.ExpFloat64() {
			n++
		}
		return n
	}
	between := func(what string, low, high float64) {
		t.Helper()
		if v := p.last.get(t, metrics.RequestBurst.Name); len(v) != 1 || v[0] < low || v[0] > high {
			t.Errorf("%s: %v requests arrive together, want %g to %g", what, v, low, high)
		}
	}
	p.set(running, 0)
	p.pass(2*time.Minute, tick, func() { p.serves(independent(10)) })
	p.last.want(t, metrics.RequestBurst.Name) // not yet known
	p.pass(10*time.Minute, tick, func() { p.serves(independent(10)) })
	between("each on its own", 1, 2.5)
	p.pass(5*time.Minute, tick, func() { p.serves(independent(50)) })
	between("five times as many, each on its own", 1, 2.5)
	p.pass(10*time.Minute, tick, func() { p.serves(12 * independent(10./12)) })
	between("twelve at a time", 6, 20)
	golden.Compare(t, "testdata/bursts.prom", keep(text(t, p.collector.Scrape(t.Context())), metrics.RequestBurst))
	p.pass(10*time.Minute, tick, func() { p.set(running, 8); p.serves(12 * independent(10./12)) })
	between("twelve at a time, and always eight more", 1, 1)
	p.set(running, 0)
	p.pass(10*time.Minute, tick, func() { p.serves(150 + 12*independent(10./12)) })
	between("twelve at a time, of 300 in half a minute", 1, 1)
	p.pass(10*time.Minute, 2*tick, func() { p.serves(independent(20)) })
	between("each on its own again", 1, 2.5)
	p.pass(10*time.Minute, time.Minute, func() { p.serves(12 * independent(40./12)) })
	between("twelve at a time, read once a minute", 4, 25)
	p.pass(10*time.Minute, tick, func() { p.serves(independent(10)) })
	p.set(running, 5)
	p.pass(90*time.Second, tick, nil)
	p.serves(6 * 10)
	p.set(running, 0)
	p.pass(3*time.Minute, tick, func() { p.serves(independent(10)) })
	between("after a standstill", 1, 2.5)
}

// TestWithoutToken checks that a request counts if it ended without a first token, and not while it may still get one.
func TestWithoutToken(t *testing.T) {
	const running = "vllm:num_requests_running"
	p := play(t, "vllm/v0.32.0-healthy.prom")
	want := func(n float64) { t.Helper(); p.last.want(t, metrics.RequestsWithoutToken.Name, n) }
	p.set(running, 0)
	p.pass(2*time.Minute, tick, func() { p.serves(3) })
	want(0)
	p.set(running, 8) // prompts are computed
	p.pass(2*tick, tick, nil)
	p.add("vllm:time_to_first_token_seconds_count", 8)
	p.pass(tick, tick, nil)
	p.set(running, 0)
	p.add(`vllm:request_success_total{engine="0",finished_reason="stop"`, 8)
	p.add(`vllm:request_params_n_count`, 8)
	p.add(givesUp, 8)
	p.pass(2*time.Minute, tick, nil)
	want(0)
	p.add(givesUp, 7) // without a token, and vLLM counts no end of them
	p.pass(2*time.Minute, tick, func() { p.serves(3) })
	want(7)
	p.add("process_start_time_seconds", 3600)
	p.set("vllm:", 0)
	p.set(givesUp, 0)
	p.pass(2*time.Minute, tick, func() { p.serves(3) })
	want(7)
}

// TestPrefillComputed checks that each prompt token counts once unless a cache held it, whether the engine counts
// prompts or cached tokens first.
func TestPrefillComputed(t *testing.T) {
	grows := func(page string, want float64, by map[string]float64) *played {
		t.Helper()
		p := play(t, page)
		p.pass(2*tick, tick, nil)
		p.last.want(t, metrics.PrefillComputedTokens.Name, 0)
		for series, n := range by {
			p.add(series, n)
		}
		p.pass(tick, tick, nil)
		p.last.want(t, metrics.PrefillComputedTokens.Name, want)
		return p
	}
	p := grows("vllm/v0.32.0-healthy.prom", 600, map[string]float64{
		"vllm:prompt_tokens_total": 1000, "vllm:prefix_cache_hits_total": 300, "vllm:external_prefix_cache_hits_total": 100,
	})
	p.add("vllm:prefix_cache_hits_total", 500) // when a prompt is scheduled
	p.pass(tick, tick, nil)
	p.last.want(t, metrics.PrefillComputedTokens.Name, 600)
	p.add("vllm:prompt_tokens_total", 800) // with its first token
	p.pass(tick, tick, nil)
	p.last.want(t, metrics.PrefillComputedTokens.Name, 900)
	p.add("process_start_time_seconds", 3600)
	p.set("vllm:", 0)
	p.set("vllm:prompt_tokens_total", 50)
	p.pass(tick, tick, nil)
	p.last.want(t, metrics.PrefillComputedTokens.Name, 950)

	// the hits of these engines include those of their tiers
	const cached = `sglang:cached_tokens_total{cache_source=`
	grows("sglang/v0.5.10-all-schedulers.prom", 700, map[string]float64{
		"sglang:prompt_tokens_total": 1000, cached + `"device"`: 200, cached + `"host"`: 100,
	})
	grows("trtllm/v1.4-host-cache.prom", 700, map[string]float64{
		"trtllm_prompt_tokens_total": 1000, "trtllm_prompt_cached_tokens_total": 300, `trtllm_prompt_cache_hit_tokens_total{cache_level="1"`: 100,
	})
	grows("llamacpp/b10450-loaded.prom", 700, map[string]float64{
		"llamacpp:prompt_tokens_total": 700, "llamacpp:prompt_tokens_cached_total": 300,
	})
	grows("tgi/v3.3.7-loaded.prom", 1000, map[string]float64{"tgi_request_input_length_sum": 1000})
}

// TestStandstillThatEnds checks that a standstill is reported once it has ended if first tokens have waited longer than the gauges
// explain. It has lasted from the last progress to the last reading without progress. An engine that admits no request does
// not stand still.
func TestStandstillThatEnds(t *testing.T) {
	const still = 6 * tick
	for name, c := range map[string]struct {
		running, waiting, waited, want float64
		young                          bool
	}{
		"hidden requests":              {waited: 60, want: still.Seconds()},
		"requests since the last look": {waited: tick.Seconds()},
		"it runs them":                 {running: 3, waited: still.Seconds()},
		"more than run":                {running: 1, waited: still.Seconds(), want: still.Seconds()},
		"kernels compile":              {waited: 60, young: true},
		"none is admitted":             {waiting: 3, waited: 2 * still.Seconds()},
		"one is admitted":              {running: 1, waiting: 2, waited: 2 * still.Seconds(), want: still.Seconds()},
	} {
		t.Run(name, func(t *testing.T) {
			p := play(t, "vllm/v0.32.0-healthy.prom")
			started := p.now.Add(-time.Hour)
			if c.young {
				started = p.now
			}
			p.set("process_start_time_seconds", float64(started.Unix()))
			p.set("vllm:num_requests_running", c.running)
			p.set("vllm:num_requests_waiting{", c.waiting)
			answers := func(n, seconds float64) {
				p.add("vllm:generation_tokens_total", n)
				p.add("vllm:time_to_first_token_seconds_count", n)
				p.add("vllm:time_to_first_token_seconds_sum", n*seconds)
			}
			wants := func(seconds float64) { t.Helper(); p.last.want(t, metrics.EngineStandstill.Name, seconds) }
			p.pass(youth, tick, func() { answers(1, 0.1) })
			if c.young {
				p.set("process_start_time_seconds", float64(p.now.Unix()))
				p.pass(2*tick, tick, func() { answers(1, 0.1) })
			}
			p.pass(still, tick, func() {})
			wants(0)
			answers(3, c.waited)
			p.pass(tick, tick, func() {})
			wants(c.want)
			p.pass(remembered+tick, tick, func() { answers(1, 0.1) })
			wants(0)
		})
	}
}

// TestUnscheduled checks that time to the first token is outside the scheduler only if neither its gauges nor its times explain it.
func TestUnscheduled(t *testing.T) {
	p := play(t, "vllm/v0.32.0-healthy.prom")
	const running, waits = "vllm:num_requests_running", `vllm:num_requests_waiting{`
	p.set(running, 0)
	p.set(waits, 0)
	later := func(firsts, seconds, queued float64) func() {
		return func() {
			p.add("vllm:time_to_first_token_seconds_count", firsts)
			p.add("vllm:time_to_first_token_seconds_sum", firsts*seconds)
			for name, each := range map[string]float64{"queue": queued, "prefill": 0.25} {
				p.add("vllm:request_"+name+"_time_seconds_count", firsts)
				p.add("vllm:request_"+name+"_time_seconds_sum", firsts*each)
			}
		}
	}
	wants := func(seconds ...float64) { t.Helper(); p.last.want(t, metrics.EngineUnscheduled.Name, seconds...) }
	p.pass(compared, tick, later(3, 2, 0.25))
	wants() // two minutes need one more reading
	p.pass(tick, tick, later(3, 2, 0.25))
	wants(1.5) // the core pauses
	golden.Compare(t, "testdata/unscheduled.prom", anyPort.ReplaceAllString(keep(text(t, p.collector.Scrape(t.Context())),
		metrics.EngineUnscheduled), "127.0.0.1:8000"))
	p.pass(compared, tick, later(3, 2, 1.75))
	wants(0) // a queue came and went between readings
	p.set(waits, 7)
	p.pass(compared, tick, later(3, 30, 0))
	wants(0) // the queue's time is counted when requests end
	p.set(waits, 0)
	p.pass(compared+tick, tick, later(1, 2, 0.25))
	wants() // too few first tokens
}

// TestHangOfSGLang checks that the server reports its requests while the scheduler's gauges show none.
func TestHangOfSGLang(t *testing.T) {
	active := `sglang:http_requests_active{endpoint="/v1/completions",method="POST"}`
	hang := play(t, "sglang/v0.5.23-hang.prom")
	hang.set(active, 0)
	hang.pass(time.Minute, tick, nil)
	hang.wants(0, 0)
	hang.pass(4*time.Minute, tick, func() { hang.set(active, 8) })
	hang.wants(0, 8)
	hang.pass(2*time.Minute, tick, nil)
	hang.wants(345, 8)
	hang.pass(tick, tick, func() { hang.add(`sglang:num_aborted_requests_total`, 8); hang.set(active, 0) }) // they give up
	hang.wants(360, 0)
	hang.pass(6*time.Minute, tick, nil) // and no client comes back
	hang.wants(0, 0)

	one := play(t, "sglang/v0.5.23-hang.prom") // a client comes every 45 s, and gives up after 30 s
	one.set(active, 0)
	one.pass(time.Minute, tick, nil)
	for range 7 {
		one.pass(30*time.Second, tick, func() { one.set(active, 1) })
		one.pass(tick, tick, func() { one.set(active, 0) })
	}
	if v := one.last.get(t, metrics.EngineStalled.Name); len(v) != 1 || v[0] < 240 {
		t.Errorf("stalled for %v", v)
	}

	refused := play(t, "sglang/v0.5.23-hang.prom") // requests that it refuses within milliseconds are sometimes visible at one reading
	refused.set(active, 0)
	refused.pass(time.Minute, tick, nil)
	for range 10 {
		refused.pass(tick, tick, func() { refused.set(active, 1) })
		refused.pass(tick, tick, func() { refused.set(active, 0) })
		refused.wants(0, 0)
		refused.pass(time.Hour, time.Minute, nil)
	}

	paused := play(t, "sglang/v0.5.23-hang.prom") // the clients cancel their requests, and do not come back
	paused.set(active, 0)
	paused.pass(time.Minute, tick, nil)
	paused.pass(time.Minute, tick, func() { paused.set(active, 8) })
	paused.pass(time.Hour, tick, func() { paused.set(active, 0) })
	paused.wants(0, 0)

	forgotten := play(t, "sglang/v0.5.23-hang.prom") // one request that the server failed to remove from its gauge
	forgotten.set(active, 0)
	forgotten.pass(time.Minute, tick, nil)
	forgotten.pass(time.Hour, tick, func() { forgotten.set(active, 1) })
	forgotten.wants(0, 1)
}

// TestLearnsWhileHitsLead checks that the curve of steps is learnt from computed prompt tokens whose count never falls,
// although a cache counts the hits of a long prompt before the engine counts the prompt. If the count fell, the learner
// would see a restart and drop its readings.
func TestLearnsWhileHitsLead(t *testing.T) {
	p := play(t, "vllm/v0.32.0-healthy.prom")
	p.collector = collectorWith(t, Config{
		Targets: []TargetConfig{{URL: p.URL}}, Now: func() time.Time { return p.now }, Log: discard,
		Objectives: []slo.Objective{objective(t, "ttft", slo.TTFT, "1s", "99%")},
	})
	engine, computed := p.collector.targets[0], 0.0
	for i := range 20 {
		p.pass(tick, tick, func() {
			p.add("vllm:prefix_cache_hits_total", 1900)
			if i%2 == 1 {
				p.add("vllm:prompt_tokens_total", 4000)
			}
		})
		last := computed
		if computed = engine.reading(&engine.plan.sizings[0]).PromptTokens; computed < last {
			t.Errorf("%v prompt tokens were computed, and %v before", computed, last)
		}
	}
	if computed != 10*4000-19*1900 {
		t.Errorf("%v prompt tokens were computed", computed)
	}
}
