package drill

import (
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Gateway simulates a gateway between the clients and the engines of one model.
type Gateway interface {
	http.Handler
	// Arrived counts a request that arrives.
	Arrived()
	// Answered counts a request that the gateway answers itself.
	Answered(status int)
	// Limited counts a request that the gateway refuses with 429, before it picks an engine, because too many requests are
	// open.
	Limited()
	// Before returns an observer in front of the engine at a host. The observer counts the engine's answers, and passes
	// all events on to o.
	Before(o Observer, host string) Observer
	// Tries reports whether the gateway would now send a request to the engine at a host. If it tries no engine, NoneLeft
	// returns the gateway's answer.
	Tries(host string, now time.Duration) bool
	NoneLeft() (status int)
	// Refused records that the engine at a host does not listen. It returns the status for the client, or zero if the
	// gateway tries another engine.
	Refused(host string, now time.Duration) (status int)
	// Unanswered records that a request was sent to the engine at a host, and that no answer came before the gateway's
	// timeout.
	Unanswered(host string, now time.Duration)
}

// NewGateway returns the gateway of a runtime, in front of one model and its engines at the given hosts.
func NewGateway(r metrics.Runtime, model string, hosts []string) Gateway {
	if r == metrics.SMG {
		return NewSGLangRouter(model, hosts)
	}
	return NewLiteLLM(model, hosts)
}

// LiteLLM simulates the metrics of LiteLLM's proxy (litellm/types/integrations/prometheus.py), as measured on 1.106.2.
// They count the answers by status, and show the state of each deployment.
type LiteLLM struct {
	*page
	model                     string
	answers, failures, cooled *prometheus.CounterVec
	state                     *prometheus.GaugeVec
	deployments               map[string]*deployment
}

// deployment is an upstream of LiteLLM.
type deployment struct {
	failed []time.Duration
	until  time.Duration // end of its cooldown
}

// These are LiteLLM's defaults. A deployment that fails this often within a minute cools down.
const (
	litellmAllowedFails = 3
	litellmCooldown     = 5 * time.Second
)

var (
	litellmAnswer     = []string{"requested_model", "route", "model_id", "api_provider", "status_code"}
	litellmFailure    = []string{"requested_model", "route", "model_id", "api_provider", "exception_status", "exception_class"}
	litellmDeployment = []string{"litellm_model_name", "model_id", "api_base", "api_provider"}
)

// litellmNone is LiteLLM's text for an unknown value.
const litellmNone = "None"

const chatRoute = "/v1/chat/completions"

// NewLiteLLM builds the metrics of a gateway in front of one model. Except at /metrics, the gateway counts a GET
// request without a key as a failed request without a model.
func NewLiteLLM(model string, hosts []string) *LiteLLM {
	p := newPage(prometheus.Labels{"team": litellmNone, "team_alias": litellmNone, "end_user": litellmNone}, "/metrics")
	l := &LiteLLM{page: p, model: model, deployments: map[string]*deployment{}}
	l.answers = p.counters("litellm_proxy_total_requests_metric_total", litellmAnswer...)
	l.failures = p.counters("litellm_proxy_failed_requests_metric_total", litellmFailure...)
	bare := &page{registry: p.registry}
	l.cooled = bare.counters("litellm_deployment_cooled_down_total", append([]string{"exception_status"}, litellmDeployment...)...)
	l.state = register(bare, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "litellm_deployment_state"}, litellmDeployment))
	for _, host := range hosts {
		l.deployments[host] = &deployment{}
	}
	p.mux.HandleFunc("GET /", func(w http.ResponseWriter, r *http.Request) {
		l.answers.WithLabelValues("", r.URL.Path, litellmNone, litellmNone, litellmNone).Inc()
		l.failures.WithLabelValues("", r.URL.Path, litellmNone, litellmNone, litellmNone, "Exception").Inc()
		w.WriteHeader(http.StatusUnauthorized)
	})
	return l
}

// Arrived implements Gateway. The proxy counts only its answers.
func (l *LiteLLM) Arrived() {}

// Answered implements Gateway.
func (l *LiteLLM) Answered(status int) { l.answer(litellmNone, strconv.Itoa(status)) }

// Limited implements Gateway.
func (l *LiteLLM) Limited() { l.Answered(http.StatusTooManyRequests) }

// answer counts an answer of a deployment.
func (l *LiteLLM) answer(host, status string) {
	provider := "openai"
	if host == litellmNone {
		provider = litellmNone
	}
	l.answers.WithLabelValues(l.model, chatRoute, host, provider, status).Inc()
	if status[0] != '2' {
		l.failures.WithLabelValues(l.model, chatRoute, host, provider, status, litellmException(status)).Inc()
	}
}

// litellmException returns the name of the exception that LiteLLM counts for a failure. If no deployment is left, this
// is an exception of LiteLLM's router.
func litellmException(status string) string {
	switch status {
	case litellmNone:
		return "RouterRateLimitError"
	case "408":
		return "Openai.Timeout"
	case "429":
		return "Openai.RateLimitError"
	case "500":
		return "Openai.InternalServerError"
	}
	return "Openai.APIError"
}

// Tries implements Gateway.
func (l *LiteLLM) Tries(host string, now time.Duration) bool { return now >= l.deployments[host].until }

// NoneLeft implements Gateway. The metrics do not show the status that the client gets.
func (l *LiteLLM) NoneLeft() int {
	l.answer(litellmNone, litellmNone)
	return http.StatusTooManyRequests
}

// Refused implements Gateway.
func (l *LiteLLM) Refused(host string, now time.Duration) int {
	l.fail(host, http.StatusInternalServerError, now)
	return http.StatusInternalServerError
}

// Unanswered implements Gateway.
func (l *LiteLLM) Unanswered(host string, now time.Duration) {
	l.fail(host, http.StatusRequestTimeout, now)
}

// fail counts a failed answer of a deployment. The deployment may then cool down.
func (l *LiteLLM) fail(host string, status int, now time.Duration) {
	l.answer(host, strconv.Itoa(status))
	d := l.deployments[host]
	if d == nil {
		return
	}
	d.failed = append(d.failed, now)
	for len(d.failed) > 0 && d.failed[0] < now-time.Minute {
		d.failed = d.failed[1:]
	}
	if len(d.failed) >= litellmAllowedFails {
		d.until = now + litellmCooldown
		l.cooled.WithLabelValues(strconv.Itoa(status), l.model, host, "http://"+host, "openai").Inc()
		l.state.WithLabelValues(l.model, host, "http://"+host, "openai").Set(2)
	}
}

// Before implements Gateway.
func (l *LiteLLM) Before(o Observer, host string) Observer { return behindLiteLLM{o, l, host} }

// behindLiteLLM implements Observer for one deployment.
type behindLiteLLM struct {
	Observer
	gateway *LiteLLM
	host    string
}

// Finished implements Observer. If a client cancels, LiteLLM counts the request as answered. If an answer is cut off,
// LiteLLM counts it as failed.
func (b behindLiteLLM) Finished(r *Request) {
	switch {
	case r.Rejected:
		b.gateway.fail(b.host, http.StatusServiceUnavailable, r.Done)
	case r.Failed:
		b.gateway.fail(b.host, http.StatusInternalServerError, r.Done)
	default:
		b.gateway.answer(b.host, strconv.Itoa(http.StatusOK))
		b.gateway.state.WithLabelValues(b.gateway.model, b.host, "http://"+b.host, "openai").Set(0)
	}
	b.Observer.Finished(r)
}
