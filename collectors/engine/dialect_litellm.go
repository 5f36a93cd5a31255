package engine

import (
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// litellm reads LiteLLM's proxy. Its configuration chooses the labels, so any label may be missing. Unknown values are
// the string None. Names without a unit are in seconds. The families litellm_deployment_* count attempts, not requests.
var litellm = Dialect{
	Runtime:   metrics.LiteLLM,
	Source:    "litellm types/integrations/prometheus.py, LiteLLM's monitoring documentation",
	Recognise: prefix("litellm_"),
	Labels: []metrics.Carry{
		{From: "model", To: metrics.LabelModel, Map: without("None")}, // provider's name, if the client's name is unknown
		{From: "requested_model", To: metrics.LabelModel, Map: without("None")},
	},
	Role: metrics.GatewayRole,
	Serves: []Shown{{Family: "litellm_deployment_total_requests_total", Label: "requested_model", // if a deployment was chosen
		Where: matching(labels.MatchNotRegexp, "model_id", "|None")}},
	Rows:    litellmRows,
	Missing: others(noSource, litellmRows),
}

var (
	litellmTeam  = metrics.Carry{From: "team", To: metrics.LabelTenant, Map: without("None")}
	litellmRoute = metrics.Carry{From: "route", To: metrics.LabelRoute, Map: without("None")}
)

var litellmRows = slices.Concat(
	[]Row{
		{
			To: metrics.TimeToFirstToken, From: "litellm_llm_api_time_to_first_token_metric", Is: scrape.Histogram,
			Absent: noStream, Quality: metrics.Approximate, Why: "from the call to the provider, without the proxy's own time",
		},
		{To: metrics.RequestDuration, From: "litellm_request_total_latency_metric", Is: scrape.Histogram, Absent: noFinish},
		{
			To: metrics.QueueTime, From: "litellm_request_queue_time_seconds", Is: scrape.Histogram,
			Absent: "not in early releases, or no request has finished yet",
		},
		{
			To: metrics.RequestsRunning, From: "litellm_in_flight_requests", Is: scrape.Gauge,
			Absent: "not in early releases", Quality: metrics.Approximate, Why: "HTTP requests of all models, including those for the proxy itself",
		},
		{To: metrics.RequestsWaiting, From: "litellm_admission_queued_requests", Is: scrape.Gauge, Absent: litellmAdmission},
		{To: metrics.PromptTokens, From: "litellm_input_tokens_metric_total", Is: scrape.Counter, Absent: noFinish},
		{
			To: metrics.GenerationTokens, From: "litellm_output_tokens_metric_total", Is: scrape.Counter, Counted: metrics.CountedEnd,
			Absent: noFinish,
		},
	},
	litellmEnds(),
	[]Row{
		{
			To: metrics.GatewayWorkers, From: litellmState, Is: scrape.Gauge, Fold: litellmDeployments(false), Absent: litellmUntried,
			Quality: metrics.Approximate, Why: litellmLast,
		},
		{
			To: metrics.GatewayWorkers, From: litellmState, Is: scrape.Gauge, Fold: litellmDeployments(true), Set: waitsFor(metrics.Cooldown),
			Plus:   true,
			Absent: litellmUntried, Quality: metrics.Approximate, Why: litellmLast,
		},
		engineFailures(Row{
			From: litellmTotal, Where: asks("route"), Absent: noFinish, Quality: metrics.Approximate,
			Why: "refused connections count, too",
		}, Count{
			From: litellmFailed, Is: scrape.Counter, Optional: true, Where: slices.Concat(asks("route"),
				matching(labels.MatchRegexp, "exception_status", "5.."), matching(labels.MatchNotRegexp, "model_id", "|None"),
				matching(labels.MatchNotRegexp, "exception_class", ".*(Connection|Timeout).*")),
		}),
		{
			To: metrics.GatewayRetries, From: "litellm_deployment_successful_fallbacks_total", Is: scrape.Counter,
			Carry:  []metrics.Carry{litellmTeam},
			Absent: "no request has fallen back", Quality: metrics.Approximate, Why: "fallbacks to another model, not retries of the same one",
		},
		{
			To: metrics.GatewayRetries, From: "litellm_deployment_failed_fallbacks_total", Is: scrape.Counter,
			Carry: []metrics.Carry{litellmTeam}, Plus: true,
			Absent: "no fallback has failed", Quality: metrics.Approximate, Why: "fallbacks to another model, not retries of the same one",
		},
		{
			To: metrics.GatewayRejections, From: "litellm_admission_rejected_requests_total", Is: scrape.Counter, Absent: litellmAdmission,
			Carry: []metrics.Carry{{From: "reason", To: metrics.LabelReason, Map: values(map[string]string{
				"queue_full":    string(metrics.RejectedCapacity),
				"queue_timeout": string(metrics.RejectedTimeout),
			}, string(metrics.RejectedOther))}},
		},
		{
			To: metrics.GatewayRejections, From: litellmTotal, Is: scrape.Counter, Where: append(asks("route"), is("status_code", "429")...),
			Plus: true,
			Set:  rejected(metrics.RateLimited), Carry: []metrics.Carry{litellmRoute, litellmTeam},
			Absent: noFinish, Quality: metrics.Approximate, Why: "answers 429, those of a provider included",
		},
		{
			To: metrics.GatewayRejections, From: litellmFailed, Is: scrape.Counter,
			Where: append(asks("route"), is("exception_class", litellmCooldown...)...), Plus: true,
			Set: rejected(metrics.NoEndpoint), Carry: []metrics.Carry{litellmRoute, litellmTeam}, Absent: "no request has failed",
		},
	},
)

// litellmEnds returns the rows about the ends of requests. LiteLLM writes None as the status of some failed requests,
// so the exception distinguishes them. While all deployments cool down, clients get 429. A client without a key gets
// 401 or, from a proxy without a database, 500.
func litellmEnds() []Row {
	rows := byStatus(Row{
		From: litellmTotal, Where: asks("route"), Upstream: "model_id", Quality: metrics.Approximate,
		Why: "a request that its client cancels counts as 200; a stream that breaks counts as 500 although the client got 200",
	},
		"status_code", timeoutIsOurs, litellmRoute, litellmTeam)
	rows[0].Where = append(asks("route"), matching(labels.MatchNotEqual, "status_code", "None")...)
	hidden := litellmNone(litellmTotal, "status_code", metrics.OutcomeUnknown, nil)
	hidden.On = func(p *scrape.Page) bool { return !p.Has(litellmFailed) }
	return append(rows, hidden,
		litellmNone(litellmFailed, "exception_status", metrics.OutcomeRejected, is("exception_class", litellmCooldown...)),
		litellmNone(litellmFailed, "exception_status", metrics.OutcomeUnknown, is("exception_class", "Exception", "")),
		litellmNone(litellmFailed, "exception_status", metrics.OutcomeError,
			matching(labels.MatchNotRegexp, "exception_class", strings.Join(litellmCooldown, "|")+"|Exception|")))
}

func litellmNone(from, status string, o metrics.Outcome, where []*labels.Matcher) Row {
	return Row{
		To: metrics.Requests, From: from, Is: scrape.Counter, Where: slices.Concat(asks("route"), is(status, "None"), where),
		Plus: true, Set: outcome(o),
		Failures: SinceAnswer, Absent: "no request has failed without a status", Quality: metrics.Approximate,
		Why: "by the exception: there is no status",
	}
}

// litellmCooldown lists the exceptions of a router that has no deployment left (litellm/types/router.py).
var litellmCooldown = []string{"RouterRateLimitError", "RouterRateLimitErrorBasic"}

const (
	litellmTotal  = "litellm_proxy_total_requests_metric_total"
	litellmFailed = "litellm_proxy_failed_requests_metric_total"
)

// litellmDeployments returns a Fold that counts the deployments that cool down or, without cool, all other deployments.
// A deployment has a series for each requested name. If one of its series shows a cooldown, the deployment cools down.
func litellmDeployments(cool bool) func([]Member) (float64, bool) {
	return func(in []Member) (n float64, ok bool) {
		worst := map[string]float64{}
		for _, m := range in {
			id := m.Labels.Get("model_id") + "\xff" + m.Labels.Get("api_base")
			worst[id] = max(worst[id], m.Value)
		}
		for _, state := range worst {
			n += metrics.Bool((state == 2) == cool)
		}
		return n, true
	}
}

const (
	litellmState   = "litellm_deployment_state"
	litellmUntried = "no deployment has been tried yet"
	litellmLast    = "as of the last attempt: a deployment stays in cooldown until a request to it succeeds"
)

const litellmAdmission = "admission control is off"
