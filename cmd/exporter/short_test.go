package main

import (
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

func TestMain(m *testing.M) {
	e2e.Main(m, "Chaos|Soak|Image|VerdictOnGPUs|Acting|Picture|TwoAddresses|AgainstSMI|DriverUpgrade|PodsOnGPUs|OfGPUProcess|DetachAndSignals|NobodyDeclared|NVMLWins|VerdictIsShared|WithoutItsPrometheus|OfGPUs|GPUsAndEngines|VerdictSchema$|TestTriage|WithoutAnExporter|LooksByItself|TestProbes|TestPlays")
}
