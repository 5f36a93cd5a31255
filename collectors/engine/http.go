package engine

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Some engines have an HTTP server that counts its own answers. The server's failures are requests that never reached
// the engine, or requests that the engine gave up before it counted them. The server's successes are already on the
// metrics page as finished requests.

// answered returns a row that adds the failed requests among a server's answers, by status and by handler. The argument
// of is a regular expression for the status.
func answered(from, status, of, handler, since, why string) Row {
	return Row{
		To: metrics.Requests, From: from, Is: scrape.Counter, Since: since, Failures: SinceAnswer, Plus: true,
		Absent: "no HTTP request has failed",
		Where: slices.Concat(matching(labels.MatchRegexp, status, of), matching(labels.MatchRegexp, "method", "POST|"),
			matching(labels.MatchNotRegexp, handler, administration)),
		Carry:   []metrics.Carry{{From: status, To: metrics.LabelOutcome, Map: httpOutcome}},
		Quality: metrics.Approximate, Why: why,
	}
}

// administration matches engine paths that accept a POST and serve no user's request.
const administration = "/health.*|/tokenize|/detokenize|/(v1/)?(un)?load_lora_adapter|/sleep|/wake_up|/pause|/resume|" +
	"/reset_.*|/flush_cache|/(start|stop)_profile|/(v1/)?loads?|/collective_rpc|/scale_elastic_ep|/is_scaling.*|.*weights.*|/(release|resume)_memory_occupation|" +
	"/abort_request|/configure_logging|/open_session|/close_session|/(get|set)_.*|/server_info|/model_info"

// httpOutcome maps the status code of a failed request. Some engines group the codes, so httpOutcome also maps classes
// of codes. It returns an empty string for a request that did not fail.
func httpOutcome(code string) string {
	switch {
	case code == "429" || code == "503" || code == "529": // 529 means overload, in Dynamo since version 1.3
		return string(metrics.OutcomeRejected)
	case code == "499":
		return string(metrics.OutcomeAbort)
	case len(code) == 3 && code[0] == '4':
		return string(metrics.OutcomeInvalid)
	case len(code) == 3 && code[0] == '5':
		return string(metrics.OutcomeError)
	}
	return ""
}
