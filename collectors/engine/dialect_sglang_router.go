package engine

import (
	"math"
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// smg reads SGLang's model gateway. The families smg_engine_* are copies of engines' metrics. If the gateway joins its
// metrics page with its workers' pages, the workers' families are copies, too.
var smg = Dialect{
	Runtime:   metrics.SMG,
	Source:    "lightseekorg/smg model_gateway/src/observability/metrics.rs",
	Recognise: prefix("smg_"),
	Labels:    []metrics.Carry{{From: "model", To: metrics.LabelModel}},
	Role:      metrics.GatewayRole,
	Serves:    []Shown{{Family: "smg_worker_pool_size", Label: "model", All: true}, {Family: "smg_worker_requests_total", Label: "model"}},
	Rows:      smgRows,
	Missing:   routerLacks(smgRows),
}

var smgRows = append(workerRows("smg_worker_health", "smg_worker_cb_state", "", ""), []Row{
	{
		To: metrics.TimeToFirstToken, From: "smg_router_ttft_seconds", Is: scrape.Histogram, Since: "1.6.0", Absent: smgSummaries,
		Quality: metrics.Approximate, Why: "for gRPC workers; for HTTP workers, the first chunk of the answer's body",
	},
	{To: metrics.TimePerOutputToken, From: "smg_router_tpot_seconds", Is: scrape.Histogram, Since: "1.6.0", Absent: smgSummaries},
	{
		To: metrics.RequestsRunning, From: "smg_worker_requests_active", Is: scrape.Gauge, Absent: noRequest,
		Quality: metrics.Approximate, Why: "requests at all workers, including those that wait there",
	},
	{To: metrics.RequestsWaiting, From: "smg_scheduler_queue_depth", Is: scrape.Gauge, Absent: smgScheduler},
	{
		To: metrics.PromptTokens, From: "smg_router_tokens_total", Is: scrape.Counter, Where: is("token_type", "input"), Absent: smgGRPC,
		Quality: metrics.Approximate, Why: smgGRPC,
	},
	{
		To: metrics.GenerationTokens, From: "smg_router_tokens_total", Is: scrape.Counter, Where: is("token_type", "output"),
		Counted: metrics.CountedEnd, Absent: smgGRPC,
		Quality: metrics.Approximate, Why: smgGRPC,
	},
	{
		To: metrics.Requests, From: "smg_http_responses_total", Is: scrape.Counter,
		Where: append(asks("path"), matching(labels.MatchNotEqual, "path", "")...), Failures: SinceAnswer, Absent: noFinish,
		Carry: smgStatus, Quality: metrics.Approximate, Why: smgStreams,
	},
	{
		To: metrics.Requests, From: "smg_router_request_duration_seconds", Is: scrape.Histogram, Part: partCount, On: smgPathless,
		Set: outcome(metrics.OutcomeSuccess), Absent: noFinish,
		Carry: []metrics.Carry{{From: "model", To: metrics.LabelModel, Map: dropped}}, Quality: metrics.Approximate,
		Why: "count of the histogram of answers 2xx, " + smgStreams,
	},
	{
		To: metrics.Requests, From: "smg_http_responses_total", Is: scrape.Counter, On: smgPathless, Where: matching(labels.MatchRegexp,
			"status_code", "[45].."), Failures: SinceAnswer, Plus: true,
		Absent: noFinish, Carry: smgStatus, Quality: metrics.Approximate, Why: "without paths, so failed readiness checks are included",
	},
	{
		To: metrics.GatewayResponses, From: "smg_http_responses_total", Is: scrape.Counter, Where: asks("path"), Absent: noFinish,
		Carry: []metrics.Carry{{From: "status_code", To: metrics.LabelCode, Map: statusCode}, {From: "path", To: metrics.LabelRoute}},
	},
	engineFailures(Row{From: smgUpstream, Absent: noFinish}, Count{
		From: smgUpstream, Is: scrape.Counter, Optional: true,
		Where: slices.Concat(matching(labels.MatchRegexp, "status_code", "5.."), is("error_code", "")),
	}),
	{
		To: metrics.GatewayRetries, From: "smg_worker_retries_total", Is: scrape.Counter, Absent: "no request was retried",
		Carry: []metrics.Carry{{From: "endpoint", To: metrics.LabelRoute}},
	},
	{
		To: metrics.GatewayRejections, From: "smg_http_rate_limit_total", Is: scrape.Counter, Where: is("result", "rejected"),
		Set: rejected(metrics.RateLimited), Absent: "no request was refused",
	},
	{
		To: metrics.GatewayRejections, From: "smg_http_responses_total", Is: scrape.Counter,
		Where: append(asks("path"), is("error_code", "no_available_workers")...), Plus: true,
		Set: rejected(metrics.NoEndpoint), Absent: "no request was refused", Carry: []metrics.Carry{{From: "path", To: metrics.LabelRoute}},
	},
	{
		To: metrics.GatewayRejections, From: "smg_scheduler_admit_total", Is: scrape.Counter, Where: is("outcome", "rejected_queue_full"),
		Plus: true,
		Set:  rejected(metrics.RejectedCapacity), Absent: smgScheduler, Carry: []metrics.Carry{{From: "class", To: metrics.LabelPriority}},
	},
	{
		To: metrics.GatewayRejections, From: "smg_scheduler_admit_total", Is: scrape.Counter, Where: is("outcome", "rejected_queue_timeout"),
		Plus: true,
		Set:  rejected(metrics.RejectedTimeout), Absent: smgScheduler, Carry: []metrics.Carry{{From: "class", To: metrics.LabelPriority}},
	},
}...)

const (
	smgUpstream  = "smg_router_upstream_responses_total"
	smgSummaries = "a summary before 1.6, or no request has finished yet"
	smgScheduler = "the scheduler of priorities is off, or not in this release"
	smgGRPC      = "only streams whose workers use gRPC"
	smgStreams   = "by the response header: streams that break later count as successful, and up to 0.3 also those that clients leave; " +
		"failures name no model, so requests of several models are counted together, without a name"
)

var smgStatus = []metrics.Carry{{From: "status_code", To: metrics.LabelOutcome, Map: proxyOutcome}}

// smgPathless recognises SMG up to 1.5, and its predecessor, SGLang's router 0.3. Their answers have no path, so
// look-ups look like requests. However, their durations cover only requests that were answered 2xx.
func smgPathless(p *scrape.Page) bool { return p.LabelValues("smg_http_responses_total", "path")[""] }

// sglangRouter reads the router that SGLang's model gateway replaced.
var sglangRouter = Dialect{
	Runtime:   metrics.SGLangRouter,
	Source:    "sglang sgl-router/src/metrics.rs",
	Recognise: prefix("sgl_"),
	Labels:    []metrics.Carry{{From: "model_id", To: metrics.LabelModel}},
	Role:      metrics.GatewayRole,
	Rows:      sglangRouterRows,
	Missing:   routerLacks(sglangRouterRows),
}

var sglangRouterRows = slices.Concat(routerRows("sgl_router_"),
	workerRows("sgl_router_worker_health", "", "",
		"by its health checks: workers that have left count as unhealthy, and circuit breakers are not reported"),
	[]Row{{
		To: metrics.RequestsRunning, From: "sgl_router_running_requests", Is: scrape.Gauge, Absent: noRequest,
		Quality: metrics.Approximate, Why: "requests at all workers, including those that wait there",
	}})

// vllmRouter reads the router of the vLLM project, which names no models. It has a circuit breaker for each worker.
var vllmRouter = Dialect{
	Runtime:   metrics.VLLMRouter,
	Source:    "vllm-project/router src/metrics.rs, vllm-router 0.1.17",
	Recognise: starts("vllm_router_"),
	Role:      metrics.GatewayRole,
	Rows:      vllmRouterRows,
	Missing:   routerLacks(vllmRouterRows),
}

var vllmRouterRows = slices.Concat(vllmRouterEnds(), workerRows("vllm_router_worker_health", "vllm_router_cb_state",
	"vllm_router_active_workers", ""))

// vllmRouterEnds returns the rows of requests. It distinguishes requests that workers refused from failed requests,
// although the router's counters have no status. The router's circuit breakers count a worker's 429 as a success, like
// 4xx and 2xx. Such a success was a refusal if it belongs to no request that ended with 2xx or 4xx.
func vllmRouterEnds() []Row {
	rows := routerRows("vllm_router_")
	i := slices.IndexFunc(rows, func(r Row) bool { return r.From == "vllm_router_retries_exhausted_total" })
	count := func(from string, where []*labels.Matcher) Count {
		return Count{From: "vllm_router_" + from, Is: scrape.Counter, Where: where, Optional: true}
	}
	of := []Count{
		count("cb_outcomes_total", is("outcome", "success")),
		count("requests_total", nil),
		count("request_errors_total", is("error_type", "non_retryable_error")),
		count("retries_total", nil),
	}
	failed, refused := rows[i], rows[i]
	refused.Set = outcome(metrics.OutcomeRejected)
	failed.Tally = &Tally{Of: of, Splits: true, Step: func(rose []float64) float64 { return rose[0] - refusedByWorkers(rose) }}
	refused.Tally = &Tally{Of: of, Splits: true, Step: refusedByWorkers}
	refused.Why = "derived from attempts that circuit breakers count as successes but that end no request"
	failed.Why = "minus requests that workers refused; without requests that gave up waiting in the router (408)"
	return slices.Replace(rows, i, i+1, failed, refused)
}

// refusedByWorkers returns the number of refused requests among requests whose last attempt has failed. Its arguments
// are these exhausted requests, successes of circuit breakers, answered requests, invalid requests, and retries.
func refusedByWorkers(rose []float64) float64 {
	exhausted, attempts := rose[0], rose[1]-rose[2]-rose[3]
	if exhausted <= 0 || attempts <= 0 {
		return 0
	}
	return min(exhausted, math.Ceil(attempts/(1+rose[4]/exhausted)))
}

// routerRows returns the rows of SGLang's first router and of the vLLM project's fork. Both routers count a request
// when its answer begins with 2xx. Other requests count when the last attempt has failed, or at once if a retry is
// pointless. Each attempt without a worker also counts as an error.
func routerRows(prefix string) []Row {
	requests := Row{To: metrics.Requests, Is: scrape.Counter, Where: asks("route"), Quality: metrics.Approximate}
	began, failed, wrong := requests, requests, requests
	began.From, began.Set, began.Absent = prefix+"requests_total", outcome(metrics.OutcomeSuccess), noRequest
	began.Why = "answers that began well, including streams that break later or whose clients leave"
	failed.From, failed.Set, failed.Absent = prefix+"retries_exhausted_total", outcome(metrics.OutcomeError), "no request has failed"
	failed.Plus, failed.Failures, failed.Why = true, SinceFailure,
		"includes refusals of engines; without requests that gave up waiting in the router (408)"
	wrong.From, wrong.Set, wrong.Absent = prefix+"request_errors_total", outcome(metrics.OutcomeInvalid), "no request was wrong"
	wrong.Plus, wrong.Failures, wrong.Why = true, SinceFailure, "answers that the router does not retry, including a few 5xx"
	wrong.Where = append(asks("route"), is("error_type", "non_retryable_error")...)
	return []Row{
		began, failed, wrong,
		{
			To: metrics.GatewayRetries, From: prefix + "retries_total", Is: scrape.Counter, Absent: "no request was retried",
			Carry: []metrics.Carry{{From: "route", To: metrics.LabelRoute}},
		},
	}
}

// routerLacks explains why routers lack quantities. Their durations end before a stream begins.
func routerLacks(rows []Row) map[*metrics.Family]string {
	return reasons(lacks("its durations end with the header of an answer", []*metrics.Family{metrics.RequestDuration}), others(noSource, rows))
}

// workerRows returns the rows of a router's workers, from the gauges of their health and of their circuit breakers. A
// half-open breaker lets requests through. all counts the workers. breaker and all are empty if the metrics page lacks
// these gauges.
func workerRows(health, breaker, all, why string) (rows []Row) {
	row := Row{To: metrics.GatewayWorkers, From: health, Is: scrape.Gauge, Absent: "no worker has been registered yet, or not in this release"}
	if row.Why = why; why != "" {
		row.Quality = metrics.Approximate
	}
	for _, name := range []string{breaker, all} {
		if name != "" {
			row.With = append(row.With, name)
			row.NoValue = "workers have left, and their last states stay on the page"
		}
	}
	for _, reason := range []string{"", metrics.CircuitOpen, metrics.UnhealthyWorker} {
		if reason == metrics.CircuitOpen && breaker == "" {
			continue
		}
		row.Set, row.Fold = waitsFor(reason), workersThat(health, breaker, all, reason)
		rows = append(rows, row)
		row.Plus = true
	}
	return rows
}

// workersThat returns a Fold that counts the workers that get no requests for a given reason. If a router has more
// series than workers, some of the series belong to former workers.
func workersThat(health, breaker, all, reason string) func([]Member) (float64, bool) {
	return func(in []Member) (n float64, ok bool) {
		open, total := map[string]bool{}, -1.
		for _, m := range in {
			switch m.Family {
			case breaker:
				open[m.Labels.Get("worker")] = m.Value == 1
			case all:
				total = max(total, 0) + m.Value
			}
		}
		shown := 0.
		for _, m := range in {
			if m.Family != health || m.Value < 0 { // -1 stands for a worker that has left
				continue
			}
			shown++
			is := ""
			if m.Value == 0 {
				is = metrics.UnhealthyWorker
			} else if open[m.Labels.Get("worker")] {
				is = metrics.CircuitOpen
			}
			n += metrics.Bool(is == reason)
		}
		return n, total < 0 || shown <= total
	}
}
