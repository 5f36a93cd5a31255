package incident

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// mixed returns a model behind six different engines. Each objective counts only the engines that report its signal.
func mixed() world.Fleet {
	f := chat()
	f.Runtimes = []metrics.Runtime{metrics.VLLM, metrics.SGLang, metrics.TensorRTLLM, metrics.TGI, metrics.LlamaCpp, metrics.Dynamo}
	f.Replicas = len(f.Runtimes)
	f.Objectives = countedOn(map[slo.Signal][]metrics.Runtime{
		slo.TTFT:         {metrics.VLLM, metrics.SGLang, metrics.TensorRTLLM, metrics.Dynamo},
		slo.ITL:          {metrics.VLLM, metrics.SGLang, metrics.Dynamo},
		slo.Availability: {metrics.VLLM, metrics.TGI, metrics.TensorRTLLM, metrics.Dynamo},
	})
	return f
}

// countedOn returns the default objectives, each limited to the runtimes listed for its signal.
func countedOn(runtimes map[slo.Signal][]metrics.Runtime) []slo.Objective {
	objectives := slo.Defaults()
	for i, o := range objectives {
		objectives[i].Select.Runtime = runtimes[o.Signal]
	}
	return objectives
}

// edge returns the profile of a replica on an L40S, with short chats, and with a large batch limit that favours
// throughput.
func edge() drill.Profile {
	p := drill.NewProfile("llama-3.1-8b-edge")
	p.GPU, p.Weights, p.MaxBatch, p.Budget = drill.L40S, drill.Llama8BFP8, 512, 640
	p.Arrivals, p.Swing, p.PromptTokens, p.OutputTokens = 4, 0, 300, 250
	return p
}

// decoding returns the decode side of a model. Other engines compute the prompts. The fleet gets four times the
// requests of chat, which computes its own prompts. KV caches arrive over 200 Gbit/s.
func decoding() world.Fleet {
	f := chat()
	f.Profile.Release, f.Profile.Prefilled, f.Profile.Fetching = "0.26.0", true, 25e9
	f.Profile.Arrivals *= 4
	return f
}

// offloading returns replicas whose KV cache does not fit into GPU memory. They store the rest in 32 GB of host memory,
// which they reach over PCIe.
func offloading() world.Fleet {
	f := chat()
	f.Profile.Release, f.Profile.Host, f.Profile.HostHits = "0.26.0", 32e9, 0.5
	f.Profile.Fetching, f.Profile.Storing = 50e9, 50e9
	return f
}

// rollout restarts a replica and the exporter at the same time.
func rollout(replica int, at time.Duration) []Fault {
	return []Fault{
		fault(at, func(w *world.World) {
			w.ExporterDown = true
			w.Replicas[replica].Restart(90 * time.Second)
		}),
		fault(at+minute, func(w *world.World) { w.ExporterDown = false }),
	}
}

// crashes restarts a replica repeatedly.
func crashes(replica int, every, loading time.Duration, times int) (faults []Fault) {
	for i := range times {
		faults = append(faults, fault(time.Duration(i)*every, one(replica, func(r *world.Replica) { r.Restart(loading) })))
	}
	return faults
}

// onDemand returns Ollama with one model under little load. Ollama counts nothing, so the only objective is about the
// answers to probes.
func onDemand() world.Fleet {
	return with(chat(), func(f *world.Fleet) {
		f.Replicas, f.Runtimes, f.Probes = 1, []metrics.Runtime{metrics.Ollama}, true
		f.Objectives = []slo.Objective{slo.Objective{
			Name: "probes", Signal: slo.ProbeAvailability,
			Target: slo.Defaults()[2].Target,
		}.WithDefaults()}
		f.Profile.Release, f.Profile.Arrivals, f.Profile.MaxBatch = "0.12.6", 0.02, 4
	})
}

// newPod returns the lever that replaces the pod of an engine that hangs.
func newPod(page string) Lever {
	return Lever{
		page,
		[]string{"Levers"},
		"the pod is deleted, and its successor loads for 90 s",
		fault(8*minute, one(1, func(r *world.Replica) {
			r.Engine.Wedged = false
			r.Restart(90 * time.Second)
		})),
	}
}
