package drill

import (
	"fmt"
	"net/http"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Dialect is a simulated engine's HTTP side: it is told what happens, and says it as that engine would.
type Dialect interface {
	Observer
	http.Handler
}

// NewDialect returns the page of a runtime. There are runtimes that the drill does not speak: these end the program.
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
	}
	panic(fmt.Sprintf("the drill does not speak %s", r))
}
