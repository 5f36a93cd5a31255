package engine

import (
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

func TestMain(m *testing.M) {
	e2e.Main(m, "EveryRequestArrives|ComparePages|OfVLLM|ClaimedTwice|Fuzz|Witnesses")
}
