package engine

import (
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
)

// A bystander describes a server that has a known metrics page but is not an engine. It is in front of engines, beside
// engines, or on their machine.
type bystander struct {
	name, kind string
	reason     string // reason label of llm_engine_up
	on         func(p *scrape.Page) bool
	// front marks servers whose metrics page only copies families with engines' names. Such a copy would count every
	// request twice, so these servers are recognised before any engine. On the metrics pages of all other bystanders, an
	// engine's families come from the engine itself.
	front bool
	// instead names the server that should be the target.
	instead string
}

const (
	engineBehind = "make the engines behind it the targets"
	engineBeside = "make the engine beside it the target"
	noTarget     = "remove it from the targets"
)

// bystanders lists the bystanders that any engine may have, in order of precedence. Sidecars come last, because they
// join the metrics pages of other servers.
var bystanders = []bystander{
	{"agentgateway", "a gateway", reasonRouter, prefix("agentgateway_"), true, engineBehind},
	{
		"AIBrix's gateway", "a gateway", reasonRouter, anyOf("gateway_request_model_success_total", "gateway_request_model_fail_total"),
		true, engineBehind,
	},
	{"NVIDIA Cloud Functions' request router", "a router", reasonRouter, anyOf("llm_request_router_requests_total",
		"stargate_requests_total"), true, engineBehind},
	{"Kong", "a gateway", reasonRouter, prefix("kong_"), true, engineBehind},
	{"Knative's activator", "a gateway", reasonRouter, anyOf("activator_request_count"), true, engineBehind},
	{
		"a Pushgateway", "a store of pushed metrics", reasonNotEngine, anyOf("push_time_seconds"), true,
		"make the engines that push to it the targets",
	},

	{"a server with OpenTelemetry's GenAI metrics", "a gateway", reasonRouter, starts("gen_ai_"), false, engineBehind},
	{
		"Ray Serve", "a router", reasonRouter, starts("ray_serve_"), false,
		"make the engines in its replicas the targets, or let them write their metrics to Ray",
	},
	{
		"Ray's metrics agent", "an exporter", reasonNotEngine, prefix("ray_"), false,
		"let the engines write their metrics to Ray, or make them the targets",
	},
	{
		"KServe's Python server", "a model server", reasonNotEngine, anyOf("request_predict_seconds", "request_preprocess_seconds"), false,
		"it serves no engine's metrics; remove it from the targets",
	},
	{
		"Knative's queue-proxy", "a sidecar", reasonNotEngine, queueProxy, false,
		"make the engine's own port the target, or the port on which KServe joins both pages (9088)",
	},

	{"dcgm-exporter", "an exporter", reasonNotEngine, starts("DCGM_FI_"), false, noTarget},
	{"an exporter of nvidia-smi", "an exporter", reasonNotEngine, starts("nvidia_smi_"), false, noTarget},
	{
		"node_exporter", "an exporter", reasonNotEngine, anyOf("node_load1", "node_cpu_seconds_total", "node_exporter_build_info"), false,
		noTarget,
	},
	{"kube-state-metrics", "an exporter", reasonNotEngine, anyOf("kube_pod_info", "kube_node_info"), false, noTarget},
	{"cAdvisor", "an exporter", reasonNotEngine, anyOf("cadvisor_version_info", "container_cpu_usage_seconds_total"), false, noTarget},
	{"llm-node-exporter", "this exporter", reasonNotEngine, anyOf("llm_engine_up"), false, noTarget},
	{"Prometheus", "a time series database", reasonNotEngine, starts("prometheus_tsdb_"), false, noTarget},
	{"Istio's proxy", "a sidecar", reasonNotEngine, prefix("istio_"), false, engineBeside},
	{"Envoy", "a proxy", reasonNotEngine, prefix("envoy_"), false, "make the engine behind or beside it the target"},
}

// bystanderOf returns the bystander that wrote a metrics page. If front is set, the bystander is in front of engines,
// otherwise beside them. Bystanders of a single engine take precedence.
func bystanderOf(p *scrape.Page, front bool) *bystander {
	var all []bystander
	for _, d := range builtin {
		all = append(all, d.Bystanders...)
	}
	for _, b := range append(all, bystanders...) {
		if b.front == front && b.on(p) {
			return &b
		}
	}
	return nil
}

func (b *bystander) err() error {
	return scrape.Errorf(b.reason, "this is %s, %s: %s", b.name, b.kind, b.instead)
}

// prefix recognises a metrics page by the prefix of a name. The prefix ends at the first underscore or colon.
func prefix(of string) func(*scrape.Page) bool {
	return func(p *scrape.Page) bool { return p.HasPrefix(of) }
}

// starts recognises a metrics page by a longer prefix of a name.
func starts(with string) func(*scrape.Page) bool {
	return func(p *scrape.Page) bool {
		for key := range p.Families {
			if strings.HasPrefix(key, with) {
				return true
			}
		}
		return false
	}
}

func anyOf(of ...string) func(*scrape.Page) bool {
	return func(p *scrape.Page) bool {
		return slices.ContainsFunc(of, p.Has)
	}
}

func envoyAI(p *scrape.Page) bool {
	for scope := range p.LabelValues("gen_ai_server_request_duration_seconds", "otel_scope_name") {
		if strings.Contains(scope, "ai-gateway") {
			return true
		}
	}
	return false
}

// queueProxy recognises Knative's queue-proxy on both of its ports. Port 9091 has requests, written by OpenCensus or,
// since 1.19, by OpenTelemetry. Port 9090 has the numbers that the autoscaler reads.
var queueProxy = anyOf("revision_app_request_count", "revision_request_count", "revision_queue_depth",
	"kn_serving_invocation_duration_seconds", "kn_serving_queue_depth", "kn_queueproxy_app_duration_seconds", "kn_queueproxy_depth",
	"queue_requests_per_second", "queue_average_concurrent_requests")

// containers keeps only the series of the engine's own process, where KServe's qpext joins the metrics pages of the
// engine and of queue-proxy. qpext marks the container's series with the revision.
func containers(p *scrape.Page, of []scrape.Sample) (own []scrape.Sample) {
	if !queueProxy(p) {
		return of
	}
	for _, s := range of {
		if s.Labels.Get("revision_name") != "" {
			own = append(own, s)
		}
	}
	return own
}
