package drill

import (
	"fmt"
	"net/http"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Dialect simulates the HTTP server of one kind of engine. It observes events, and reports them in that engine's
// metrics.
type Dialect interface {
	Observer
	http.Handler
	// Connections returns the number of connections at the server's port, as the kernel shows it.
	Connections() int
}

// NewDialect returns the simulated HTTP server of a runtime. It panics for a runtime that the drill does not simulate.
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
