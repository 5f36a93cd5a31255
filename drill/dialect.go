package drill

import (
	"fmt"
	"net/http"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Dialect simulates an engine's HTTP side. It observes events, and reports them in the form of that engine.
type Dialect interface {
	Observer
	http.Handler
	// Connections returns the number of connections at the server's port, for engines that do not report connections.
	Connections() int
}

// NewDialect returns the HTTP side of a runtime. It panics for a runtime that the drill does not simulate.
func NewDialect(r metrics.Runtime, p Profile) Dialect {
	switch r {
	case metrics.VLLM:
		return NewVLLM(p)
	case metrics.SGLang:
		return NewSGLang(p)
	case metrics.TGI:
		return NewTGI(p)
	case metrics.TensorRTLLM:
		return NewTRTLLM(p)
	case metrics.LlamaCpp:
		return NewLlamaCpp(p)
	case metrics.Dynamo:
		return NewDynamo(p)
	case metrics.Ollama:
		return NewOllama(p)
	default:
		panic(fmt.Sprintf("the drill does not speak %s", r))
	}
}
