package engine

import (
	"slices"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Proxies and sidecars report routes and statuses, but no models. They join the metrics pages of other servers. If the
// joined page has the families of an engine, the exporter reads the engine.

// rayServe reads Ray Serve's proxies on the metrics page of a node's Ray agent. The assumption is that one application
// serves one model, which is only a convention. The default buckets end at five seconds.
var rayServe = Dialect{
	Runtime:   metrics.RayServe,
	Source:    "Ray Serve's monitoring documentation, python/ray/serve/_private/proxy.py",
	Recognise: anyOf("ray_serve_num_http_requests_total", "ray_serve_num_ongoing_http_requests"),
	Labels:    []metrics.Carry{{From: "application", To: metrics.LabelModel}},
	Role:      metrics.GatewayRole,
	Sidecar:   true,
	Rows:      rayServeRows,
	Missing:   others(noSource, rayServeRows),
}

var rayServeRows = slices.Concat(
	[]Row{
		{
			To: metrics.RequestDuration, From: "ray_serve_http_request_latency_ms", Is: scrape.Histogram, Where: rayApplications,
			Scale: metrics.Millis, NoSum: true, Absent: noFinish,
			Quality: metrics.Approximate,
			Why:     "of an application, which is a model only by convention; Ray sums the midpoints of buckets, so there is no exact sum",
		},
		{
			To: metrics.RequestsRunning, From: "ray_serve_num_ongoing_http_requests", Is: scrape.Gauge, Absent: noRequest,
			Quality: metrics.Approximate, Why: "HTTP requests of all applications, including those that wait",
		},
		{
			To: metrics.RequestsWaiting, From: "ray_serve_deployment_queued_queries", Is: scrape.Gauge, Absent: noRequest,
			Quality: metrics.Approximate, Why: "calls to all deployments of an application",
		},
	},
	byStatus(Row{
		From: "ray_serve_num_http_requests_total", Where: rayApplications, Quality: metrics.Approximate,
		Why: "of an application, which is a model only by convention; a broken stream counts by its status",
	},
		"status_code", timeoutIsOurs, metrics.Carry{From: "route", To: metrics.LabelRoute}),
)

// rayApplications leaves out requests without a route to an application: Ray's own paths, and 404.
var rayApplications = matching(labels.MatchNotEqual, "application", "")

// knative reads Knative's queue-proxy, as under KServe. Metrics come through OpenCensus up to 1.18, and through
// OpenTelemetry in later versions. Status 503 means that the proxy's queue is full.
var knative = Dialect{
	Runtime:   metrics.Knative,
	Source:    "Knative's documentation of service metrics, 1.18 and 1.20",
	Recognise: anyOf("revision_request_count", "revision_app_request_count", "kn_serving_invocation_duration_seconds"),
	Role:      metrics.GatewayRole,
	Sidecar:   true,
	Rows:      knativeRows,
	Missing:   others(noSource, knativeRows),
}

var knativeRevision = metrics.Carry{From: "revision_name", To: metrics.LabelRoute}

var knativeRows = slices.Concat(
	[]Row{
		{
			To: metrics.RequestDuration, From: "revision_request_latencies", Is: scrape.Histogram, Scale: metrics.Millis, Until: "1.18.x",
			Absent: noFinish,
		},
		{
			To: metrics.RequestDuration, From: "revision_app_request_latencies", Is: scrape.Histogram, Scale: metrics.Millis, Until: "1.18.x",
			Absent:  noFinish,
			Quality: metrics.Approximate, Why: "without the wait in the proxy",
		},
		{
			To: metrics.RequestDuration, From: "kn_serving_invocation_duration_seconds", Is: scrape.Histogram, Since: "1.19", Absent: noFinish,
			Quality: metrics.Approximate, Why: "without the wait in the proxy",
		},
		{
			To: metrics.RequestsRunning, From: "revision_queue_depth", Is: scrape.Gauge, Until: "1.18.x", Absent: "concurrency is not limited",
			Quality: metrics.Approximate, Why: "including those that wait",
		},
		{
			To: metrics.RequestsRunning, From: "kn_serving_queue_depth", Is: scrape.Gauge, Since: "1.19", Absent: "concurrency is not limited",
			Quality: metrics.Approximate, Why: "including those that wait",
		},
	},
	byStatus(Row{From: "revision_request_count", Until: "1.18.x"}, "response_code", codeOutcome, knativeRevision),
	byStatus(Row{
		From: "revision_app_request_count", Until: "1.18.x", Quality: metrics.Approximate,
		Why: "without those that the proxy refused",
	},
		"response_code", codeOutcome, knativeRevision),
	byStatus(Row{
		From: "kn_serving_invocation_duration_seconds", Is: scrape.Histogram, Since: "1.19", Part: partCount,
		Quality: metrics.Approximate, Why: "count of the histogram, without those that the proxy refused",
	}, "http_response_status_code",
		codeOutcome),
)

// istio reads an Istio proxy. A request between two proxies is on the metrics pages of both, and one metrics page may have both sides. Sent
// requests take precedence over received requests, because they include requests that never arrived.
var istio = Dialect{
	Runtime:   metrics.Istio,
	Source:    "Istio's standard metrics",
	Recognise: anyOf("istio_requests_total"),
	Role:      metrics.GatewayRole,
	Sidecar:   true,
	Rows:      istioRows,
	Missing:   reasons(higressLacks, others(noSource, istioRows)),
}

var istioRows = slices.Concat(istioSide("source"), istioSide("destination"), higressRows)

func istioSide(reporter string) []Row {
	service := metrics.Carry{From: "destination_service_name", To: metrics.LabelRoute}
	side := is("reporter", reporter)
	requests := Row{From: "istio_requests_total", Where: side, Quality: metrics.Approximate, Why: allRoutes}
	return slices.Concat(
		[]Row{{
			To: metrics.RequestDuration, From: "istio_request_duration_milliseconds", Is: scrape.Histogram, Scale: metrics.Millis,
			Where: side, Absent: noFinish,
			Quality: metrics.Approximate, Why: allRoutes,
		}},
		byStatus(requests, "response_code", proxyOutcome, service),
		[]Row{engineFailures(Row{From: "istio_requests_total", Where: side, Quality: metrics.Approximate, Why: allRoutes}, Count{
			From: "istio_requests_total", Is: scrape.Counter, Optional: true,
			Where: slices.Concat(side, matching(labels.MatchRegexp, "response_code", "5.."), is("response_flags", "-")),
		}), {
			To: metrics.GatewayRejections, From: "istio_requests_total", Is: scrape.Counter, Absent: "no request was refused",
			Where: slices.Concat(side, matching(labels.MatchRegexp, "response_flags", "RL|RLSE|UO|UH|NR")),
			Carry: []metrics.Carry{service, {From: "response_flags", To: metrics.LabelReason, Map: values(map[string]string{
				"RL":   string(metrics.RateLimited),
				"RLSE": string(metrics.RateLimited),
				"UO":   string(metrics.RejectedCapacity),
				"UH":   string(metrics.NoEndpoint),
				"NR":   string(metrics.NoEndpoint),
			}, string(metrics.RejectedOther))}},
		}},
	)
}

// allRoutes is the reason why a proxy's numbers are not about a model.
const allRoutes = "of all services behind the proxy, whatever they serve"

// envoy reads an Envoy. Its clusters count as routes, except the clusters from which Envoy gets its configuration.
var envoy = Dialect{
	Runtime:   metrics.Envoy,
	Source:    "Envoy's documentation of cluster statistics",
	Recognise: anyOf("envoy_cluster_upstream_rq_total", "envoy_cluster_upstream_rq", "envoy_cluster_upstream_rq_completed"),
	Role:      metrics.GatewayRole,
	Sidecar:   true,
	Rows:      envoyRows,
	Missing:   reasons(higressLacks, others(noSource, envoyRows)),
}

var (
	envoyCluster = metrics.Carry{From: "envoy_cluster_name", To: metrics.LabelRoute}
	envoyRoutes  = matching(labels.MatchNotRegexp, "envoy_cluster_name", "xds[-_](grpc|cluster)|sds-grpc|prometheus_stats|agent|zipkin")
)

var envoyRows = slices.Concat(
	[]Row{
		{
			To: metrics.RequestDuration, From: "envoy_cluster_upstream_rq_time", Is: scrape.Histogram, Scale: metrics.Millis,
			Where: envoyRoutes, Absent: noFinish,
			Quality: metrics.Approximate, Why: allRoutes,
		},
		{
			To: metrics.RequestsRunning, From: "envoy_cluster_upstream_rq_active", Is: scrape.Gauge, Where: envoyRoutes, Absent: noRequest,
			Quality: metrics.Approximate, Why: allRoutes,
		},
		{
			To: metrics.RequestsWaiting, From: "envoy_cluster_upstream_rq_pending_active", Is: scrape.Gauge, Where: envoyRoutes, Absent: noRequest,
			Quality: metrics.Approximate, Why: "wait for a connection, not for the engine",
		},
		{
			To: metrics.GatewayWorkers, From: "envoy_cluster_membership_healthy", Is: scrape.Gauge, Where: envoyRoutes,
			Carry: []metrics.Carry{envoyCluster}, Absent: "Istio omits it by default",
			Quality: metrics.Approximate, Why: allRoutes,
		},
	},
	byStatus(Row{From: "envoy_cluster_upstream_rq", Where: envoyRoutes, Quality: metrics.Approximate, Why: allRoutes},
		"envoy_response_code", proxyOutcome, envoyCluster),
	[]Row{
		{
			To: metrics.GatewayRetries, From: "envoy_cluster_upstream_rq_retry", Is: scrape.Counter, Where: envoyRoutes,
			Carry: []metrics.Carry{envoyCluster}, Absent: noRequest,
		},
		{
			To: metrics.GatewayRejections, From: "envoy_cluster_upstream_rq_pending_overflow", Is: scrape.Counter, Where: envoyRoutes,
			Set:   rejected(metrics.RejectedCapacity),
			Carry: []metrics.Carry{envoyCluster}, Absent: noRequest,
		},
		{
			To: metrics.GatewayRejections, From: "envoy_http_local_rate_limit_rate_limited", Is: scrape.Counter,
			Set: rejected(metrics.RateLimited), Plus: true, Absent: "no local rate limit",
		},
		{
			To: metrics.GatewayRejections, From: "envoy_cluster_ratelimit_over_limit", Is: scrape.Counter, Set: rejected(metrics.RateLimited),
			Carry: []metrics.Carry{envoyCluster}, Plus: true,
			Absent: "no global rate limit",
		},
	},
	higressRows,
)

// higressRows hold the metrics of the ai-statistics plugin of Higress. Higress is an Envoy, and the plugin adds to
// Envoy's metrics page. Its durations are only sums and counts, so they have no quantiles.
var higressRows = []Row{
	{To: metrics.PromptTokens, From: higressPrefix + "input_token", Is: scrape.Counter, Carry: higressLabels, Absent: noHigress},
	{
		To: metrics.GenerationTokens, From: higressPrefix + "output_token", Is: scrape.Counter, Counted: metrics.CountedEnd,
		Carry: higressLabels, Absent: noHigress,
	},
}

const (
	higressPrefix = "route_upstream_model_consumer_metric_"
	noHigress     = "only Higress counts tokens, by its ai-statistics plugin"
)

var higressLabels = []metrics.Carry{{From: "ai_model", To: metrics.LabelModel, Map: without("unknown")}}

// higressLacks explains why Higress has no time to first token.
var higressLacks = lacks("Higress sums milliseconds, which gives no quantile; other Envoys do not count tokens",
	[]*metrics.Family{metrics.TimeToFirstToken})
