package engine

import (
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// witness is an engine's metrics page on which a server's own numbers show work that the engine's gauges do not.
type witness struct {
	name, page string
	without    string   // lines of the metrics page that the test leaves out, because they belong to its other models
	moves      []string // series that an answer changes
	load       []string // gauges that do not show the hang, and whether the metrics page comes from a sleeping engine
	shows      string   // kind of the server's numbers
	rest       float64
	files      bool
	within     time.Duration // in which a hang is certain at one answer a second, and no sooner
}

var witnesses = []witness{
	{
		name: "Dynamo's frontend", page: "dynamo/frontend-v1.6.0-killed.prom", moves: []string{
			`dynamo_frontend_requests_total{endpoint="chat_completions",error_type="",`, `dynamo_frontend_output_tokens_total`,
		},
		shows: `dynamo_frontend_inflight_requests{model="Tiny/Mock"}`, within: 10 * time.Minute,
	},
	{
		name: "Dynamo's worker", page: "dynamo/worker-vllm.prom", moves: []string{
			"vllm:request_success_total",
			"vllm:generation_tokens_total", "vllm:iteration_tokens_total_count",
		},
		load:  []string{"vllm:num_requests_running", "vllm:num_requests_waiting", "dynamo_engine_request", "dynamo_request_queue"},
		shows: `dynamo_component_inflight_requests`, within: time.Minute,
	},
	{
		name: "Modular MAX", page: "modular_max/04c9bae-loaded.prom",
		moves: []string{`maxserve_request_count_total{code="200",path="/v1/chat/completions"}`, "maxserve_num_output_tokens_total"},
		load:  []string{"maxserve_num_requests_queued", "maxserve_num_requests_awaiting_admission"}, shows: "maxserve_num_requests_running",
		within: 5 * time.Minute,
	},
	{
		name: "Xinference", page: "xinference/worker-2026.prom", without: `replica_index="1"|bge-m3`,
		moves: []string{"xinference:output_tokens_total_counter"},
		shows: "xinference:model_serve_count", within: 30 * time.Minute,
	},
	{
		name: "NIM", page: "nim/1.x.prom", moves: []string{`request_finish_total{finished_reason="stop"`, "generation_tokens_total"},
		load:  []string{"num_requests_running", "num_requests_waiting"},
		shows: "process_open_fds", rest: 40, files: true, within: 5 * time.Minute,
	},
	{
		name: "LMDeploy", page: "lmdeploy/v0.9.2.prom", moves: []string{
			`lmdeploy:request_success_total`, "lmdeploy:generation_tokens_total",
			"lmdeploy:iteration_tokens_total_count",
		},
		load: []string{"lmdeploy:num_requests_running", "lmdeploy:num_requests_waiting"}, shows: "process_open_fds", rest: 40, files: true,
		within: time.Minute,
	},
	{
		name: "TensorRT-LLM", page: "trtllm/v1.3.0-full.prom",
		moves: []string{`trtllm_request_success_total{engine_type="trtllm",finished_reason="stop"`, "trtllm_generation_tokens_total"},
		load:  []string{"trtllm_num_requests_running", "trtllm_num_requests_waiting"}, shows: ofKernel, rest: 2, files: true,
		within: 5 * time.Minute,
	},
	{
		name: "Aphrodite", page: "vllm/aphrodite-v0.20.prom",
		moves: []string{
			`aphrodite:request_success_total{engine="0",finished_reason="stop"`, "aphrodite:generation_tokens_total",
			"aphrodite:iteration_tokens_total_count",
		},
		load: []string{"aphrodite:engine_sleep_state"}, shows: "process_open_fds", rest: 40, files: true, within: time.Minute,
	},
	{
		name: "KServe's Hugging Face server", page: "kserve/huggingface-vllm.prom",
		moves: []string{
			`vllm:request_success_total{engine="0",finished_reason="stop"`, "vllm:generation_tokens_total",
			"vllm:iteration_tokens_total_count",
		},
		load: []string{"vllm:engine_sleep_state"}, shows: "process_open_fds", rest: 40, files: true, within: time.Minute,
	},
}

// served plays half an hour in which the engine answers one request a second, and is at rest at each reading.
func (w witness) served(t *testing.T) *played {
	p := play(t, w.page)
	if w.without != "" {
		var kept []string
		for _, line := range p.order {
			out := false
			for of := range strings.SplitSeq(w.without, "|") {
				out = out || strings.Contains(line, of)
			}
			if !out {
				kept = append(kept, line)
			}
		}
		p.order = kept
	}
	for _, gauge := range append(w.load, w.shows) {
		p.set(gauge, 0)
	}
	p.set(w.shows, w.rest)
	p.pass(30*time.Minute, tick, func() {
		for _, m := range w.moves {
			p.add(m, 15)
		}
	})
	return p
}

// TestWitnesses checks a hang that begins idle: the engine's own gauges stay at 0, and only the server shows the hang.
func TestWitnesses(t *testing.T) {
	for _, w := range witnesses {
		t.Run(w.name, func(t *testing.T) {
			p := w.served(t)
			p.wants(0, 0)
			p.pass(w.within, tick, func() { p.add(w.shows, 15) })
			p.last.want(t, metrics.EngineStalled.Name, 0) // not yet certain
			p.pass(time.Minute, tick, nil)
			if v := p.last.get(t, metrics.EngineStalled.Name); len(v) != 1 || v[0] < w.within.Seconds() {
				t.Errorf("stalled for %v", v)
			}
			p.last.want(t, metrics.RequestsInFlight.Name, 15*w.within.Seconds()/tick.Seconds())

			p = w.served(t) // not work: no request comes
			p.pass(2*time.Hour, tick, nil)
			p.wants(0, 0)
			p = w.served(t) // or a health check is there at some readings
			for range 10 {
				p.pass(tick, tick, func() { p.add(w.shows, 1) })
				p.pass(tick, tick, func() { p.set(w.shows, w.rest) })
				p.last.want(t, metrics.EngineStalled.Name, 0)
				p.pass(10*time.Minute, time.Minute, nil)
			}
			p = w.served(t) // or an answer takes long
			p.pass(w.within, tick, func() { p.set(w.shows, w.rest+1) })
			p.last.want(t, metrics.EngineStalled.Name, 0)
		})
	}
}

// TestEveryEngineSaysWhatItsServerHolds requires each engine's metric of the requests in its server, or the reason
// why there is none.
func TestEveryEngineSaysWhatItsServerHolds(t *testing.T) {
	for _, d := range builtin {
		s := d.Server
		if d.Role == metrics.GatewayRole || d.Role == metrics.KVCacheRole {
			if s != nil {
				t.Errorf("%s: nobody asks whether it stands still", d.Runtime)
			}
			continue
		}
		if s == nil {
			t.Errorf("%s: does its page show what its server holds? Say it, or why not", d.Runtime)
			continue
		}
		if shows := s.Active.Name != "" || s.Files.Name != "" || s.Answered.Name != ""; shows == (s.Lacks != "") {
			t.Errorf("%s: either its page shows what its server holds, or there is a reason: %+v", d.Runtime, *s)
		}
	}
}

// TestTyposAreNoEngine checks that names that clients made up do not turn a frontend's metrics page into one of
// several models, which shows nothing about the requests in its server.
func TestTyposAreNoEngine(t *testing.T) {
	s := page(t, "dynamo/frontend-v1.6.0-badreq.prom") // two typos
	s.want(t, metrics.RequestsInFlight.Name, 0)
	s.want(t, metrics.RequestsInFlight.Name+`{model_name="Tiny/Mock"}`, 0)
	page(t, "dynamo/worker-v1.6.0-mocker.prom").want(t, metrics.RequestsInFlight.Name, 3)
}

// TestServerOfSeveralModels checks that the requests that a frontend holds for one of its models are a witness for
// that model only. The metrics pages are of a Dynamo of two models before and while a worker was stopped.
func TestServerOfSeveralModels(t *testing.T) {
	p := play(t, "dynamo/frontend-v1.6.0-two.prom")
	ends := func(model string) string {
		return `dynamo_frontend_requests_total{endpoint="completions",error_type="",model="Tiny/` + model + `"`
	}
	p.pass(30*time.Minute, tick, func() {
		p.add(ends("A"), 15)
		p.add(ends("B"), 15)
	})
	hang := play(t, "dynamo/frontend-v1.6.0-two-hang.prom")
	p.pass(20*time.Minute, tick, func() {
		for _, model := range []string{"A", "B"} {
			name := `dynamo_frontend_inflight_requests{model="Tiny/` + model + `"}`
			hang.edit(name, func(v float64) float64 { p.set(name, v); return v })
		}
		p.add(ends("B"), 15)
	})
	p.last.want(t, metrics.RequestsInFlight.Name+`{model_name="Tiny/A"}`, 14)
	p.last.want(t, metrics.RequestsInFlight.Name+`{model_name="Tiny/B"}`, 0)
	p.last.want(t, metrics.EngineStalled.Name+`{model_name="Tiny/B"}`, 0)
	if v := p.last.get(t, metrics.EngineStalled.Name+`{model_name="Tiny/A"}`); len(v) != 1 || v[0] < 600 {
		t.Errorf("stalled for %v", v)
	}
}
