package engine

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// probe returns the results of a probe: ten answers with a first token after 0.1 s, one after 20 s, one timeout.
func probe(server, model string) *Probed {
	p := &Probed{Server: server, Model: model}
	for i := range 11 {
		p.Ended(metrics.ProbeOK, true)
		p.Took(slo.ProbeTTFT, []float64{0.1, 20}[i/10])
		p.Took(slo.ProbeITL, 0.02)
	}
	p.Ended(metrics.ProbeTimeout, true)
	p.Ended(metrics.ProbeRateLimited, true) // no event
	return p
}

func host(e *fakeEngine) string { return strings.TrimPrefix(e.URL, "http://") }

// probing reads metrics pages next to probes, with objectives.
func probing(t *testing.T, objectives []slo.Objective, probes []*Probed, engines ...*fakeEngine) samples {
	t.Helper()
	var targets []TargetConfig
	for _, e := range engines {
		targets = append(targets, TargetConfig{URL: e.URL, Labels: map[string]string{metrics.LabelModel: "m"}})
	}
	return parse(t, exposition(t, collectorWith(t, Config{
		Targets: targets, Objectives: objectives,
		Probed: func() []*Probed { return probes },
	})))
}

func TestDefaultObjectivesCountProbesWhereTheEngineCannot(t *testing.T) {
	silent, speaking := serve(t, readPage(t, "llamacpp/b10450-loaded.prom")), serve(t, readPage(t, "vllm/v0.19.0-dp2-spec.prom"))
	s := probing(t, slo.Defaults(), []*Probed{probe(host(silent), "m"), probe(host(speaking), "m")}, silent, speaking)
	for name, events := range map[string][2]float64{
		"ttft": {11, 1}, "ttft_severe": {11, 1}, "itl": {11, 0}, "itl_severe": {11, 0},
		"availability": {12, 1},
	} {
		s.want(t, `llm_slo_events_total{runtime="llamacpp",slo="`+name+`"}`, events[0])
		s.want(t, `llm_slo_bad_events_total{runtime="llamacpp",slo="`+name+`"}`, events[1])
		s.want(t, `llm_slo_counted{runtime="llamacpp",slo="`+name+`"}`, 1)
	}
	s.want(t, `llm_slo_counted{runtime="llamacpp",reason="probe"}`, 1, 1, 1, 1, 1)
	s.want(t, `llm_slo_events_total{runtime="llamacpp",slo="ttft",server="engine-0:80",threshold="0.5"}`, 11)
	s.want(t, `llm_slo_threshold_seconds{runtime="llamacpp",slo="ttft",kind="effective"}`, 0.5)
	// Probes do not count again the events that an engine counts itself.
	s.want(t, `llm_slo_counted{runtime="vllm",reason="probe"}`)
	s.want(t, `llm_slo_events_total{runtime="vllm",slo="ttft"}`, s.get(t, `llm_engine_time_to_first_token_seconds_count{runtime="vllm"}`)...)

	declared := slo.Defaults()
	for i := range declared {
		declared[i].Default = false
	}
	s = probing(t, declared, []*Probed{probe(host(silent), "m")}, silent)
	s.want(t, `llm_slo_events_total`) // probes do not count for an objective on users' requests
	s.want(t, `llm_slo_counted{slo="ttft"}`, 0)
}

// TestProbesThatGiveUpWereLate checks a client that waited ten seconds for a first token: its request is late for an
// objective of half a second and of ten seconds. It is unknown whether that request would also be late after a minute.
func TestProbesThatGiveUpWereLate(t *testing.T) {
	silent := serve(t, readPage(t, "llamacpp/b10450-loaded.prom"))
	objectives := slo.Defaults()
	patient := objectives[slices.IndexFunc(objectives, func(o slo.Objective) bool { return o.Name == "ttft" })]
	patient.Name, patient.Threshold = "patient", slo.Duration(time.Minute)
	gaveUp := &Probed{Server: host(silent), Model: "m"}
	for range 3 {
		gaveUp.Ended(metrics.ProbeTimeout, true)
		gaveUp.Waited(slo.ProbeTTFT, 10)
	}
	gaveUp.Took(slo.ProbeTTFT, 0.1)
	s := probing(t, append(objectives, patient), []*Probed{gaveUp}, silent)
	for name, events := range map[string][2]float64{"ttft": {4, 3}, "ttft_severe": {4, 3}, "patient": {1, 0}, "itl": {0, 0}} {
		s.want(t, `llm_slo_events_total{runtime="llamacpp",slo="`+name+`"}`, events[0])
		s.want(t, `llm_slo_bad_events_total{runtime="llamacpp",slo="`+name+`"}`, events[1])
	}
}

// TestOneProbeStandsForAllReplicas checks that a gateway's probe counts once, however many engines it represents.
func TestOneProbeStandsForAllReplicas(t *testing.T) {
	one, two := serve(t, readPage(t, "tgi/v3.3.7-loaded.prom")), serve(t, readPage(t, "tgi/v3.3.7-loaded.prom"))
	const model = "m"
	gateway := probe("gateway:80/team", model)
	s := probing(t, slo.Defaults(), []*Probed{gateway, probe("gateway:80", "another")}, one, two)
	s.want(t, `llm_slo_events_total{slo="ttft"}`, 11)
	s.want(t, `llm_slo_events_total{slo="ttft",runtime="tgi",server="gateway:80/team"}`, 11)
	s.want(t, `llm_slo_counted{slo="ttft",reason="probe"}`, 1, 1)
	s.want(t, `llm_slo_counted{slo="ttft",reason="queue_time"}`)
	// A probe of the replica itself comes first.
	s = probing(t, slo.Defaults(), []*Probed{gateway, probe(host(one), "alias")}, one)
	s.want(t, `llm_slo_events_total{slo="ttft"}`, 11)
	s.want(t, `llm_slo_events_total{slo="ttft",server="engine-0:80"}`, 11)
}

// TestProbesOfEnginesAreNotOfTheGateway checks that a probe at an engine proves nothing about the gateway in front of
// it. A probe at an address that is not a target does prove something about the gateway.
func TestProbesOfEnginesAreNotOfTheGateway(t *testing.T) {
	engine, gateway := serve(t, readPage(t, "tgi/v3.3.7-loaded.prom")), serve(t, readPage(t, "smg/sglang-router-v0.3.2-load.prom"))
	s := probing(t, slo.Defaults(), []*Probed{probe(host(engine), "m")}, engine, gateway)
	s.want(t, `llm_slo_events_total{slo="ttft",role=""}`, 11)
	s.want(t, `llm_slo_events_total{slo="ttft",role="gateway"}`)
	s = probing(t, slo.Defaults(), []*Probed{probe("ingress:443", "m")}, gateway)
	s.want(t, `llm_slo_events_total{slo="ttft",role="gateway",server="ingress:443"}`, 11)
}

// TestProbesCountWhileThePageIsDown checks that default objectives leave out the requests that the engine's own
// metrics page explains.
func TestProbesCountWhileThePageIsDown(t *testing.T) {
	e := serve(t, readPage(t, "llamacpp/b10450-loaded.prom"))
	p := probe(host(e), "m")
	own := objective(t, "own", slo.ProbeAvailability, "", "99%")
	c := collectorWith(t, Config{
		Targets: []TargetConfig{{URL: e.URL}}, Objectives: append(slo.Defaults(), own),
		Probed: func() []*Probed { return []*Probed{p} },
	})
	exposition(t, c)
	e.Close()
	p.Ended(metrics.ProbeRefused, false)
	s := parse(t, exposition(t, c))
	s.want(t, `llm_engine_up`, 0)
	s.want(t, `llm_slo_events_total{slo="availability",runtime="llamacpp"}`, 12)
	s.want(t, `llm_slo_events_total{slo="own",runtime="llamacpp"}`, 13)
	s.want(t, `llm_slo_bad_events_total{slo="own",runtime="llamacpp"}`, 2)
}

func TestObjectivesOnProbes(t *testing.T) {
	of := func(model string, o slo.Objective) slo.Objective {
		o.Select.Model = []string{model}
		return o
	}
	s := probing(t, []slo.Objective{
		objective(t, "first", slo.ProbeTTFT, "600ms", "99%"),
		of("b", objective(t, "pace", slo.ProbeITL, "10ms", "99%")),
		objective(t, "strict", slo.ProbeITL, "1ms", "99%"),
	}, []*Probed{
		probe("gateway:80", "a"), probe("gateway:80", "b"),
		probe("gateway:80", "b"),
	})
	s.want(t, `llm_slo_events_total{slo="first",server="gateway:80",model_name="a",threshold="0.5"}`, 11)
	s.want(t, `llm_slo_bad_events_total{slo="first",model_name="a"}`, 1)
	s.want(t, `llm_slo_events_total{slo="first",model_name="b"}`, 22) // two probes of one model
	s.want(t, `llm_slo_bad_events_total{slo="pace"}`, 22)
	s.want(t, `llm_slo_counted{slo="pace"}`, 1)
	s.want(t, `llm_slo_counted{slo="strict",reason="below_grid"}`, 0, 0)
	s.want(t, `llm_slo_events_total{slo="strict"}`)
	s.want(t, `llm_slo_threshold_seconds{slo="first",kind="effective"}`, 0.5)
}

// TestProbesOfSeveralModels checks a metrics page with several models: each model counts its own requests, and the
// engine as a whole counts all requests.
func TestProbesOfSeveralModels(t *testing.T) {
	e := serveOllama(t, readPage(t, "ollama/0.12.6-two-on-cpu.json"))
	first, second := probe(host(e), "gemma3:27b"), probe(host(e), "nomic-embed-text:latest")
	second.Ended(metrics.ProbeTimeout, true)
	objectives := append(slo.Defaults(), objective(t, "own", slo.ProbeAvailability, "", "99%"))
	c := collectorWith(t, Config{
		Targets: []TargetConfig{{URL: e.URL}}, Objectives: objectives,
		Probed: func() []*Probed { return []*Probed{first, second} },
	})
	exposition(t, c)
	s := parse(t, exposition(t, c))
	s.want(t, `llm_slo_events_total{model_name="gemma3:27b",slo="own"}`, 12)
	s.want(t, `llm_slo_events_total{model_name="nomic-embed-text:latest",slo="own"}`, 13)
	s.want(t, `llm_slo_events_total{slo="availability"}`, 25)
}
