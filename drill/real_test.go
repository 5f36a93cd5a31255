package drill

import (
	"bytes"
	"math"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// series holds the samples of a metrics page, by family.
type series map[string]*dto.MetricFamily

// read parses a metrics page.
func read(t *testing.T, text []byte) series {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return families
}

// captured returns the metrics page of a real program (testdata/real/README.md).
func captured(t *testing.T, name string) series {
	t.Helper()
	text, err := os.ReadFile("testdata/real/" + name + ".prom")
	if err != nil {
		t.Fatal(err)
	}
	return read(t, text)
}

// simulated returns the present metrics page, with histograms reduced to their counts, as on captured pages.
func simulated(t *testing.T, page http.Handler) series {
	t.Helper()
	answer := httptest.NewRecorder()
	page.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	families := read(t, answer.Body.Bytes())
	for name, f := range families {
		if f.GetType() != dto.MetricType_HISTOGRAM {
			continue
		}
		count := &dto.MetricFamily{}
		for _, m := range f.Metric {
			n := float64(m.Histogram.GetSampleCount())
			count.Metric = append(count.Metric, &dto.Metric{Label: m.Label, Untyped: &dto.Untyped{Value: &n}})
		}
		delete(families, name)
		families[name+"_count"] = count
	}
	return families
}

// sum adds up the samples of a family whose labels have these values, in pairs.
func (s series) sum(name string, labels ...string) (sum float64) {
	for _, m := range s[name].GetMetric() {
		matches := true
		for i := 0; i < len(labels); i += 2 {
			matches = matches && value(m, labels[i]) == labels[i+1]
		}
		if matches {
			sum += m.GetUntyped().GetValue() + m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

func value(m *dto.Metric, label string) string {
	for _, l := range m.Label {
		if l.GetName() == label {
			return l.GetValue()
		}
	}
	return ""
}

// values returns the different values of a label, sorted.
func (s series) values(name, label string) (all []string) {
	for _, m := range s[name].GetMetric() {
		all = append(all, value(m, label))
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// impatient is a load whose clients leave before and after their first tokens.
func impatient() Profile {
	p := NewProfile("m")
	p.Arrivals, p.Swing, p.Failures, p.Patience, p.Leaves = 60, 0, 0, 5*time.Second, 0.1
	p.OutputTokens, p.Blocks = 400, 2000
	return p
}

// playOn serves a load for a minute and a half, and returns the engine, its ledger and its HTTP side.
func playOn(runtime metrics.Runtime, p Profile) (*Engine, *ledger, Dialect) {
	page := NewDialect(runtime, p)
	l := &ledger{Observer: page}
	e, traffic := NewEngine(p.Serving, 7, l), NewTraffic(p.Load, 7)
	for now := time.Second; now <= 90*time.Second; now += time.Second {
		for _, r := range traffic.Until(now) {
			e.Offer(r)
		}
		e.Advance(now)
	}
	return e, l, page
}

// ended returns the answers of the handlers that generate.
func ended(s series) float64 {
	return s.sum("http_requests_total", "method", http.MethodPost, "status", "2xx")
}

// vLLM counts a client that leaves only in the answers of its server, with or without a token.
func TestVLLMCountsNoClientThatLeaves(t *testing.T) {
	before, after := captured(t, "vllm-v032-fail0"), captured(t, "vllm-v032-fail1")
	since := func(name string, labels ...string) float64 {
		return after.sum(name, labels...) - before.sum(name, labels...)
	}
	aborts := []string{"finished_reason", "abort"}
	gone := ended(after) - ended(before) - since("vllm:request_params_n_count")
	if gone != 4 || since("vllm:request_success_total", aborts...) != 0 {
		t.Fatalf("%v clients left the real engine, want 4", gone)
	}
	_, l, handler := playOn(metrics.VLLM, impatient())
	page := simulated(t, handler)
	if l.aborted <= l.left.requests || l.left.requests == 0 {
		t.Fatalf("%v clients left, %v after a token: the load does not show both", l.aborted, l.left.requests)
	}
	if gone = ended(page) - page.sum("vllm:request_params_n_count"); gone != l.aborted {
		t.Errorf("%v answers have no request that finished, %v clients left", gone, l.aborted)
	}
	if n := page.sum("vllm:request_success_total", aborts...); n != 0 {
		t.Errorf("%v aborts on the page, the engine counts none", n)
	}
	for _, name := range []string{
		"e2e_request_latency_seconds", "request_queue_time_seconds", "request_prefill_time_seconds", "request_decode_time_seconds",
		"request_prompt_tokens", "request_generation_tokens",
	} {
		got, actual := page.sum("vllm:"+name+"_count"), after["vllm:"+name+"_count"]
		if finished := after.sum("vllm:request_success_total"); actual != nil && after.sum("vllm:"+name+"_count") != finished {
			t.Fatalf("%s does not count the %v requests that finished on the real page", name, finished)
		}
		if got != l.finished.requests {
			t.Errorf("%s counts %v, %v requests finished", name, got, l.finished.requests)
		}
	}
	if first := page.sum("vllm:time_to_first_token_seconds_count"); first != l.started.requests {
		t.Errorf("%v first tokens on the page, %v came", first, l.started.requests)
	}
	if got := page.sum("vllm:generation_tokens_total"); got != l.started.requests+l.tokens {
		t.Errorf("%v tokens on the page, %v were given", got, l.started.requests+l.tokens)
	}
}

// Refusals at admission are counted once, and most of these refusals are answers 2xx with an error event.
func TestVLLMAdmission(t *testing.T) {
	before, after := captured(t, "vllm-v032-admission-idle"), captured(t, "vllm-v032-admission-loaded")
	since := func(name string, labels ...string) float64 {
		return after.sum(name, labels...) - before.sum(name, labels...)
	}
	streams := []string{"method", http.MethodPost}
	refused, served := since("vllm:admission_rejections_total"), since("vllm:request_params_n_count")
	silent := since("http_requests_total", append(streams, "status", "2xx")...) - served
	if refused != 28 || served != 12 || silent != 20 || since("http_requests_total", append(streams, "status", "5xx")...) != 8 {
		t.Fatalf("the real engine refused %v and served %v; %v refusals are answers 2xx", refused, served, silent)
	}
	p := NewProfile("m")
	p.Arrivals, p.Swing, p.Failures, p.Patience, p.Leaves = 60, 0, 0, 0, 0
	p.OutputTokens, p.Blocks, p.MaxQueue = 400, 2000, 10
	_, l, handler := playOn(metrics.VLLM, p)
	page := simulated(t, handler)
	if l.rejected < 100 {
		t.Fatalf("%v requests were refused: the load does not show them", l.rejected)
	}
	if n := page.sum("vllm:admission_rejections_total"); n != l.rejected {
		t.Errorf("%v refusals are counted, %v were refused", n, l.rejected)
	}
	if want, got := after.values("vllm:admission_rejections_total", "reason"), page.values("vllm:admission_rejections_total",
		"reason"); !slices.Equal(got, want) {
		t.Errorf("reasons %q, the real engine has %q", got, want)
	}
	share := (ended(page) - page.sum("vllm:request_params_n_count")) / l.rejected
	if want := silent / refused; math.Abs(share-want) > 0.01 {
		t.Errorf("%.2f of the refusals are answers 2xx, %.2f of the real engine's", share, want)
	}
	if n := page.sum("http_requests_total", append(streams, "status", "5xx")...); math.Abs(n/l.rejected-8./28) > 0.01 {
		t.Errorf("%v of %v refusals are answers 5xx", n, l.rejected)
	}
}

// Each combination of adapters that ran has a series, whose two labels are equal. No batch has more adapters than
// slots, even while requests wait for other adapters.
func TestVLLMAdapters(t *testing.T) {
	const name = "vllm:lora_requests_info"
	actual := captured(t, "../../../collectors/engine/testdata/pages/vllm/v0.32.0-adapters")
	p := NewProfile("m")
	p.Adapters, p.Named, p.Arrivals, p.Release = 2, 8, 6, "0.32.0"
	_, _, handler := playOn(metrics.VLLM, p)
	for slots, page := range map[string]series{"1": actual, "2": simulated(t, handler)} {
		running := 0
		for _, m := range page[name].GetMetric() {
			listed := value(m, "running_lora_adapters")
			running = max(running, len(strings.FieldsFunc(listed, func(r rune) bool { return r == ',' })))
			if waiting := value(m, "waiting_lora_adapters"); waiting != listed {
				t.Errorf("%q run, %q wait", listed, waiting)
			}
		}
		deferred := page.sum("vllm:num_requests_waiting_by_reason", "reason", "deferred")
		if of := page.values(name, "max_lora"); !slices.Equal(of, []string{slots}) || strconv.Itoa(running) != slots || deferred == 0 {
			t.Errorf("%v slots, at most %d adapters ran, and %v requests waited for one", of, running, deferred)
		}
	}
}

// Before the first request, the simulated engine has all of the real engine's series that it simulates, and all are
// unchanged.
func TestVLLMBeforeTheFirstRequest(t *testing.T) {
	actual, page := captured(t, "vllm-v032-idle"), simulated(t, NewVLLM(NewProfile("m")))
	reasons := func(s series) []string { return s.values("vllm:request_success_total", "finished_reason") }
	if want, got := reasons(actual), reasons(page); !slices.Equal(got, want) {
		t.Errorf("reasons %q, on the real page %q", got, want)
	}
	for name := range actual {
		if page[name] != nil && name != "process_open_fds" && page.sum(name) != actual.sum(name) {
			t.Errorf("%s is %v before the first request, on the real page %v", name, page.sum(name), actual.sum(name))
		}
	}
	if fds := page.sum("process_open_fds"); fds != actual.sum("process_open_fds") {
		t.Errorf("%v descriptors at rest, on the real page %v", fds, actual.sum("process_open_fds"))
	}
}

// Requests that arrive while the core hangs are in no gauge: gauges stay idle if the hang began at rest, and freeze
// otherwise. The descriptors follow the connections. When clients give up, only the counter of answers increases.
func TestVLLMHang(t *testing.T) {
	for name, open := range map[string]float64{"overload": 351, "wedge": 107} {
		if base := captured(t, "vllm-v032-"+name).sum("process_open_fds") - open; base < 31 || base > 38 {
			t.Errorf("%s: the real server has %v descriptors beyond its connections", name, base)
		}
	}
	p := impatient()
	p.Arrivals, p.Leaves, p.Descriptors, p.Patience = 5, 0, 35, time.Minute
	for name, busy := range map[string]bool{"idle": false, "busy": true} {
		t.Run(name, func(t *testing.T) {
			page := NewVLLM(p)
			l := &ledger{Observer: page}
			e := NewEngine(p.Serving, 7, l)
			if busy {
				for range 30 {
					e.Offer((&Request{Prompt: 100, Output: 4000}).For(time.Minute))
				}
			}
			e.Advance(5 * time.Second)
			e.Wedged = true
			before := simulated(t, page)
			for range 40 {
				e.Offer((&Request{Arrival: 6 * time.Second, Prompt: 100, Output: 10}).For(time.Minute))
			}
			e.Advance(10 * time.Second)
			hanging := simulated(t, page)
			if fds, want := hanging.sum("process_open_fds"), 35+40+before.sum("vllm:num_requests_running"); fds != want {
				t.Errorf("%v descriptors, want %v", fds, want)
			}
			e.Advance(5 * time.Minute)
			left := simulated(t, page)
			if n := ended(left) - ended(before); n != 40+before.sum("vllm:num_requests_running") || l.aborted != n {
				t.Errorf("%v answers ended, %v clients gave up", n, l.aborted)
			}
			if busy != (before.sum("vllm:num_requests_running") > 0) {
				t.Errorf("%v run as it begins", before.sum("vllm:num_requests_running"))
			}
			for name := range before {
				if name != "http_requests_total" && name != "process_open_fds" && left.sum(name) != before.sum(name) {
					t.Errorf("%s went from %v to %v in a hang", name, before.sum(name), left.sum(name))
				}
			}
			if fds := left.sum("process_open_fds"); fds >= hanging.sum("process_open_fds") {
				t.Errorf("%v descriptors when all have given up", fds)
			}
			if e.Holds() != 0 {
				t.Errorf("a router still counts %d requests", e.Holds())
			}
			e.Wedged = false
			e.Advance(6 * time.Minute)
			if e.used != 0 || simulated(t, page).sum("vllm:num_requests_running") != 0 {
				t.Errorf("%d blocks are held by requests that are gone", e.used)
			}
		})
	}
}

// A killed process counts nothing, and its clients' answers are cut off.
func TestKilled(t *testing.T) {
	e, l, handler := playOn(metrics.VLLM, impatient())
	before, failed, held := simulated(t, handler), l.failed, float64(len(e.held()))
	e.Kill(91 * time.Second)
	after := simulated(t, handler)
	for name := range before {
		if before.sum(name) != after.sum(name) {
			t.Errorf("%s went from %v to %v", name, before.sum(name), after.sum(name))
		}
	}
	if l.failed-failed != held || held == 0 {
		t.Errorf("%v requests failed, %v were under way", l.failed-failed, held)
	}
}

// SGLang also counts a running request that was aborted as processed, and answers 400 to a request that never ran. Its
// server counts requests that hang.
func TestSGLangAborts(t *testing.T) {
	actual, hang := captured(t, "sglang-0.5.23-loaded"), captured(t, "sglang-0.5.23-hang")
	aborts := func(s series) float64 { return s.sum("sglang:num_aborted_requests_total") }
	bad := func(s series) float64 { return s.sum("sglang:http_responses_total", "status_code", "400") }
	if n := actual.sum("sglang:num_requests_total", "is_streaming", "true"); n != 28+4 || aborts(actual) != 4 {
		t.Fatalf("the real engine counts %v", n)
	}
	if gave := aborts(hang) - aborts(actual); gave != 8 || bad(hang)-bad(actual) != gave {
		t.Fatalf("%v clients gave up on the real engine", gave)
	}
	e, l, handler := playOn(metrics.SGLang, impatient())
	page := simulated(t, handler)
	if n := page.sum("sglang:num_requests_total"); n != l.finished.requests+l.left.requests || aborts(page) != l.aborted {
		t.Errorf("%v requests and %v aborts on the page; %v finished, %v left", n, aborts(page), l.finished.requests, l.aborted)
	}
	whole := func(s series) float64 { return s.sum("sglang:request_time_per_output_token_seconds_count") }
	if n := whole(page); whole(actual) != 1+28 || n > l.finished.requests || n < 0.98*l.finished.requests { // one token has no pause
		t.Errorf("%v whole answers, %v finished", n, l.finished.requests)
	}
	if n := bad(page); n != l.aborted-l.left.requests {
		t.Errorf("%v answers 400, %v never ran", n, l.aborted-l.left.requests)
	}
	earlier := l.aborted
	e.Wedged, e.ShowsIdle = true, true
	e.Offer((&Request{Arrival: 91 * time.Second, Prompt: 100, Output: 10}).For(time.Minute))
	e.Advance(92 * time.Second)
	page = simulated(t, handler)
	waits := float64(e.Holds())
	if active := page.sum("sglang:http_requests_active"); active != waits || active == 0 || page.sum("sglang:num_running_reqs") != 0 {
		t.Errorf("%v active, %v wait; %v run", active, waits, page.sum("sglang:num_running_reqs"))
	}
	e.Advance(5 * time.Minute)
	page = simulated(t, handler)
	if active := page.sum("sglang:http_requests_active"); active != 0 || aborts(page) != l.aborted || l.aborted == earlier {
		t.Errorf("%v active and %v aborts after all have left", active, aborts(page))
	}
}

// TestDynamoWithoutWorkers removes a frontend's last worker. The frontend's first failures count as failed requests.
// Failures of the next seconds appear only among the failures, and answers with 404 are not counted at all. The model
// is not ready. The other gauges stay.
func TestDynamoWithoutWorkers(t *testing.T) {
	load, gone := captured(t, "dynamo-1.6.0-frontend-load"), captured(t, "dynamo-1.6.0-frontend-allkilled")
	failed := func(s series) float64 { return s.sum("dynamo_frontend_requests_total", "error_type", "unavailable") }
	told := func(s series) float64 { return s.sum("dynamo_frontend_failures_total", "class", "Unavailable") }
	check := func(what string, ready, gone series, requests float64) {
		is, stays := "dynamo_frontend_model_ready", "dynamo_frontend_model_context_length"
		if ready[is] == nil || gone[is] != nil || gone[stays] == nil {
			t.Errorf("%s: ready %v, then %v", what, ready[is], gone[is])
		}
		if failed(gone) == 0 || told(gone) <= failed(gone) || told(gone) >= requests {
			t.Errorf("%s: of %v requests that failed %v count, %v are among the failures", what, requests, failed(gone), told(gone))
		}
		if gone.sum("dynamo_frontend_requests_total", "model", "unknown_model", "error_type", "not_found") == 0 {
			t.Errorf("%s: no request for a model that does not exist", what)
		}
	}
	check("real", load, gone, 38)
	d := NewDynamo(NewProfile("m"))
	e := NewEngine(NewProfile("m").Serving, 1, d)
	d.Mistype(4)
	ready := simulated(t, d)
	e.Broken = true
	d.LoseWorker(0)
	for i := range 38 {
		e.Offer(&Request{Arrival: time.Duration(i) * 200 * time.Millisecond, Prompt: 10, Output: 10})
	}
	e.Advance(10 * time.Second)
	check("simulated", ready, simulated(t, d), 38)
}

// LiteLLM lets a failing engine cool down. Its clients then get 429. Its metrics have None for the code and the
// deployment, but keep the model.
func TestLiteLLMCoolsDown(t *testing.T) {
	before, after := captured(t, "litellm-1.106.2-llama"), captured(t, "litellm-1.106.2-refused")
	const answers = "litellm_proxy_total_requests_metric_total"
	none := func(s series, model string) float64 {
		return s.sum(answers, "status_code", "None", "model_id", "None", "api_provider", "None", "route", chatRoute, "requested_model", model)
	}
	if n := none(after, "solo") - none(before, "solo"); n != 5 {
		t.Fatalf("%v answers None by the real proxy, five clients got 429", n)
	}
	l := NewLiteLLM("m", []string{"a:1"})
	var got []int
	for range 8 {
		if l.Tries("a:1", time.Second) {
			got = append(got, l.Refused("a:1", time.Second))
		} else {
			got = append(got, l.NoneLeft())
		}
	}
	if want := []int{500, 500, 500, 429, 429, 429, 429, 429}; !slices.Equal(got, want) {
		t.Errorf("clients got %v, want %v", got, want)
	}
	page := simulated(t, l)
	if n := none(page, "m"); n != 5 || page.sum(answers, "status_code", "500", "model_id", "a:1") != 3 {
		t.Errorf("%v answers None, %v answers 500", n, page.sum(answers, "status_code", "500"))
	}
	if page.sum("litellm_deployment_state", "model_id", "a:1") != 2 || page.sum("litellm_deployment_cooled_down_total") != 1 {
		t.Errorf("the page does not say that the deployment is out: %v", page["litellm_deployment_state"])
	}
	if !l.Tries("a:1", time.Second+litellmCooldown) {
		t.Error("it is out for longer than it cools down")
	}
	for _, name := range []string{answers, "litellm_deployment_state", "litellm_deployment_cooled_down_total"} {
		for _, label := range page[name].Metric[0].Label {
			if len(after.values(name, label.GetName())) == 1 && after.values(name, label.GetName())[0] == "" {
				t.Errorf("%s: the real page has no label %s", name, label.GetName())
			}
		}
	}
	l.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/version", nil))
	lookUps := func(s series) float64 { return s.sum(answers, "requested_model", "", "status_code", "None") }
	if n := lookUps(simulated(t, l)); n != 1 || lookUps(after) == 0 {
		t.Errorf("a look-up without a key counts %v times", n)
	}
}

// LiteLLM counts an answer that is cut off as 500, and an answer that its client cancels as 200.
func TestLiteLLMCutAndCancelled(t *testing.T) {
	l := NewLiteLLM("m", []string{"a:1"})
	o := l.Before(&census{}, "a:1")
	o.Finished(&Request{Cut: true, Failed: true})
	o.Finished(&Request{Aborted: true})
	page := simulated(t, l)
	answers := func(code string) float64 {
		return page.sum("litellm_proxy_total_requests_metric_total", "status_code", code)
	}
	if cut, cancelled := answers("500"), answers("200"); cut != 1 || cancelled != 1 {
		t.Errorf("%v answers 500, %v answers 200", cut, cancelled)
	}
}

// The router counts each request when it arrives. Only the answers show how it ended, and only answers that begin
// well have a duration.
func TestRouterCountsArrivals(t *testing.T) {
	check := func(what string, s series, requests, routed, failed float64) {
		if n := s.sum("smg_router_requests_total"); n != routed {
			t.Errorf("%s: %v requests on arrival, %v came", what, n, routed)
		}
		all, good := s.sum("smg_http_responses_total"), s.sum("smg_http_responses_total", "status_code", "200")
		if bad := all - good; bad != failed || all != requests {
			t.Errorf("%s: %v answers are not 200, %v requests failed", what, bad, failed)
		}
		if n := s.sum("smg_router_request_duration_seconds_count"); n != requests-failed {
			t.Errorf("%s: %v durations of %v requests that were served", what, n, requests-failed)
		}
	}
	check("real", captured(t, "sglang-router-0.3.2-all500"), 80, 78, 15) // two requests were not even routed
	s := NewSGLangRouter("m", []string{"a:1"})
	o := s.Before(&census{}, "a:1")
	for i := range 10 {
		s.Arrived()
		if i%2 == 0 {
			s.NoneLeft()
			continue
		}
		r := &Request{FirstToken: time.Second, Done: 2 * time.Second}
		o.FirstToken(r)
		o.Finished(r)
	}
	check("simulated", simulated(t, s), 10, 10, 5)
}

// The router passes on an engine's error status without an error code. An error of the router itself has a code.
func TestRouterPassesFailuresOn(t *testing.T) {
	s := NewSGLangRouter("m", []string{"a:1"})
	s.Before(&census{}, "a:1").Finished(&Request{Failed: true, Done: time.Second})
	s.Answered(http.StatusInternalServerError)
	for code, state := range map[string]string{"": "all500", "call_upstream_request_error": "hang"} {
		for what, page := range map[string]series{"real": captured(t, "sglang-router-0.3.2-"+state), "simulated": simulated(t, s)} {
			if page.sum("smg_router_upstream_responses_total", "status_code", "500", "error_code", code) == 0 {
				t.Errorf("%s: no answer 500 with the code %q", what, code)
			}
		}
	}
}
