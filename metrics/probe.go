package metrics

import "slices"

// These labels are on the series of synthetic requests.
const (
	LabelProbe = "probe" // name of a probe; by default, the API that it uses
	LabelPhase = "phase" // phase of a connection (resolve, connect or tls) or of a cost (prompt or generation)
)

// ProbeLabels identify one probe. server is the probed address. If this is an engine's own address, the engine's series have the same
// label.
var ProbeLabels = []string{LabelProbe, LabelModel, LabelServer}

// ProbedLabels are the labels of a probe's series. If the engine was found on the node, they also name its pod.
var ProbedLabels = slices.Concat(ProbeLabels, with(LabelNamespace, LabelPod, LabelContainer))

// ProbeOutcome is how a synthetic request ended, in the outcome label of probes.
type ProbeOutcome string

// The outcomes of probes.
const (
	ProbeOK          ProbeOutcome = "ok"           // a whole answer
	ProbeWrongAnswer ProbeOutcome = "wrong_answer" // a complete answer that differs from the first answer of this release
	ProbeEmpty       ProbeOutcome = "empty"        // a complete answer without a token
	// There is no connection, because nobody listens, the name does not resolve, or TLS fails. Or the connection closed without an answer.
	ProbeRefused       ProbeOutcome = "refused"
	ProbeTimeout       ProbeOutcome = "timeout"         // the answer was not complete in time
	ProbeRateLimited   ProbeOutcome = "rate_limited"    // 429
	ProbeClientError   ProbeOutcome = "http_4xx"        // another 4xx: the probe's configuration is wrong, or the model does not exist
	ProbeServerError   ProbeOutcome = "http_5xx"        // 5xx
	ProbeInStreamError ProbeOutcome = "in_stream_error" // status 200, then an error among the messages
	ProbeTruncated     ProbeOutcome = "truncated"       // the answer ended without its end marker
	// The answer is not an answer of this API, redirects elsewhere, or is longer than requested.
	ProbeInvalid ProbeOutcome = "invalid"
)

// ProbeOutcomes lists all outcomes of probes.
var ProbeOutcomes = []ProbeOutcome{
	ProbeOK, ProbeWrongAnswer, ProbeEmpty, ProbeRefused, ProbeTimeout, ProbeRateLimited, ProbeClientError,
	ProbeServerError, ProbeInStreamError, ProbeTruncated, ProbeInvalid,
}

// These are the measurements of a synthetic client. Times count from the opening of the connection, to separate the
// model's time from the network's time.
var (
	ProbeTimeToFirstByte = Probe.histogram("llm_probe_time_to_first_byte_seconds",
		"Time from an open connection to the first byte of the answer. The first byte may belong to headers, which an engine may send long "+
			"before a token.",
		ProbedLabels).experimental()
	ProbeTimeToFirstToken = Probe.histogram("llm_probe_time_to_first_token_seconds",
		"Time from an open connection to the first message with text, reasoning or a tool call. Absent for answers that were not streamed, "+
			"or that a buffer held back.", ProbedLabels).experimental()
	ProbeTimeToFirstVisibleToken = Probe.histogram("llm_probe_time_to_first_visible_token_seconds",
		"Time from an open connection to the first message with anything but reasoning.", ProbedLabels).experimental()
	ProbeInterTokenLatency = Probe.histogram("llm_probe_inter_token_latency_seconds",
		"Time between messages with tokens, divided by the number of tokens in the message, with one observation per message. The number "+
			"comes from the message's usage or, without it, from the mean of the answer. Absent for answers without usage.",
		ProbedLabels).experimental()
	ProbeRequestDuration = Probe.histogram("llm_probe_request_duration_seconds",
		"Time from an open connection to the end of a complete answer.", ProbedLabels).experimental()
	ProbeConnection = Probe.histogram("llm_probe_connection_seconds",
		"Time of a phase of the connection: resolve, connect or tls. Every synthetic request opens its own connection.", ProbedLabels,
		with(LabelPhase)).experimental()
	ProbeRecentFirstToken = Probe.gauge(Max, "llm_probe_recent_time_to_first_token_seconds",
		"Mean time to the first token of the complete answers in the last five minutes.", ProbedLabels).experimental()
	ProbeQueueing = Probe.gauge(Max, "llm_probe_queueing_seconds",
		"Mean time to the first token in the last five minutes, if it is five times the mean of the hour before, although later tokens take less "+
			"than twice as long as then: the requests waited for their turn. Otherwise 0. Absent until probes of an earlier time are known.",
		ProbedLabels).experimental()
	ProbeRequests = Probe.counter("llm_probe_requests_total",
		"Synthetic requests that ended, by outcome: ok, wrong_answer, empty, refused, timeout, rate_limited, http_4xx, http_5xx, "+
			"in_stream_error, truncated or invalid.",
		ProbedLabels, with(LabelOutcome)).experimental()
	ProbeFailures = Probe.gauge(Max, "llm_probe_failures_in_a_row",
		"Synthetic requests in a row that failed: empty, refused, timeout, http_5xx, in_stream_error or truncated. 0 after any other "+
			"outcome, after a request that was not sent because the model sleeps or is not loaded, and while the metrics endpoint of the "+
			"probed engine does not answer.",
		ProbedLabels).experimental()
	ProbeSkipped = Probe.counter("llm_probe_skipped_total",
		"Synthetic requests that were not sent, by reason: asleep (a request would wake the model), not_loaded (a request would load the "+
			"model), unused (only synthetic requests would keep the model loaded), down (the metrics endpoint of a discovered engine does not "+
			"answer), budget (a request would cost more than the hour's budget) or exporter_exhausted (the exporter has no file descriptor or "+
			"port left).",
		ProbedLabels, with(LabelReason)).experimental()
	ProbeBuffered = Probe.counter("llm_probe_buffered_total",
		"Complete answers that arrived at once although a stream was requested: a server on the way buffers them, or does not stream.",
		ProbedLabels).experimental()
	ProbeTokens = Probe.counter("llm_probe_tokens_total",
		"Tokens that synthetic requests cost, by kind: prompt and completion come from the answer's usage; assumed is the most that a request "+
			"without usage can have cost.",
		ProbedLabels, with(LabelKind)).experimental()
	ProbeBudget = Probe.gauge(Sum, "llm_probe_budget_tokens",
		"Tokens that a probe may cost in an hour. Probes that share a budget have equal parts of it.", ProbedLabels).experimental()
	ProbeAnswerMatches = Probe.gauge(Never, "llm_probe_answer_matches",
		"Whether the last complete answer equals the first from this release with this configuration (1). Absent for prompts with a nonce. "+
			"version is the release, if the exporter also reads the engine at this address.",
		ProbedLabels, with(LabelVersion)).experimental()
	ProbeHealth = Probe.gauge(Max, "llm_probe_health",
		"Whether the health endpoint answered with a status of 2xx before the last request (1), for probes with `health`. The health "+
			"endpoint of a hanging engine often answers.",
		ProbedLabels).experimental()
	ProbeEngineAsked = Probe.gauge(Never, "llm_probe_engine_asked",
		"With `engines: true`, whether a model of the node's engines is probed (1). When 0, reason is gateway, role (the engine only prefills "+
			"or only decodes), no_endpoint (the port of the metrics serves no API), no_model (the engine names none), clear (a credential would "+
			"be sent without TLS), or http_4xx or invalid (the engine has refused all requests, and is probed again after an hour).",
		ProbedLabels, with(LabelReason)).experimental()
)
