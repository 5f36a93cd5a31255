package drill

import (
	"net/http"
	"strconv"

	"github.com/prometheus/client_golang/prometheus"
)

// LiteLLM simulates the page of LiteLLM's proxy (litellm/types/integrations/prometheus.py): what it answered, by status.
type LiteLLM struct {
	*page
	answers *prometheus.CounterVec
}

// NewLiteLLM builds the page of a gateway before one model.
func NewLiteLLM(model string) *LiteLLM {
	p := newPage(prometheus.Labels{"requested_model": model, "route": "/v1/chat/completions"}, "/metrics")
	return &LiteLLM{page: p, answers: p.counters("litellm_proxy_total_requests_metric_total", "status_code")}
}

// Answered counts an answer.
func (l *LiteLLM) Answered(status int) { l.answers.WithLabelValues(strconv.Itoa(status)).Inc() }

// Before returns an observer that counts the answers of an engine behind the gateway, and passes everything on.
func (l *LiteLLM) Before(o Observer) Observer { return passedOn{o, l} }

// passedOn implements Observer for one engine.
type passedOn struct {
	Observer
	gateway *LiteLLM
}

// Finished implements Observer.
func (p passedOn) Finished(r *Request) {
	switch {
	case r.Aborted:
		p.gateway.Answered(499)
	case r.Rejected:
		p.gateway.Answered(http.StatusServiceUnavailable)
	case r.Failed:
		p.gateway.Answered(http.StatusInternalServerError)
	default:
		p.gateway.Answered(http.StatusOK)
	}
	p.Observer.Finished(r)
}
