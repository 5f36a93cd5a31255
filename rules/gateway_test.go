package rules_test

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// TestNothingSumsGatewaysWithEngines checks that every selector of engine metrics excludes gateways, unless it reads only
// gateways or its result keeps the role.
func TestNothingSumsGatewaysWithEngines(t *testing.T) {
	read := 0
	check := func(of string, e promql.Expr) {
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
			v, ok := n.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			f := promql.Lookup(v.Name)
			if f == nil || !f.OfEngines() || !f.HasLabel(metrics.LabelRole) {
				return nil
			}
			read++
			for _, m := range v.LabelMatchers {
				if m.Name == metrics.LabelRole && (!m.Matches(metrics.GatewayRole) || m.Type == labels.MatchEqual ||
					of == metrics.RecordedRequestsPerEvent.Name || of == metrics.ShardRequests.Name) {
					return nil
				}
			}
			t.Errorf("%s reads gateways, too: %s", of, v)
			return nil
		})
	}
	for _, tier := range []rules.Tier{rules.Single, rules.Shard, rules.Global} {
		groups := rules.Groups(rules.Options{Tier: tier})
		for _, g := range groups {
			for _, r := range g.Records {
				check(r.Name.Name, r.Expr)
			}
		}
		for _, a := range rules.Alerts(groups) {
			check(a.Name, a.Condition())
			for _, q := range a.Asks() {
				check(a.Name, q)
			}
		}
	}
	if read < 200 {
		t.Errorf("only %d selectors were read", read)
	}
}

// TestBesideItsEngines checks that a gateway or a frontend changes no record of the model: neither requests, latencies
// nor replicas. A frontend represents workers that are not read. A gateway does not.
func TestBesideItsEngines(t *testing.T) {
	recorded := func(inFront string, engines bool) map[string]float64 {
		sim := newSim(t, group(t, rules.Options{}, "llm-model"))
		err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(15*time.Minute), scrapeEvery, func(now time.Time, emit rulesim.Emit) {
			served := 10 * now.Sub(rulesim.Epoch).Seconds()
			page := func(server string, factor float64, outcome string, more ...string) {
				show := func(name string, v float64, pairs ...string) {
					emit(series(name, append(append(pairs, metrics.LabelModel, "m", metrics.LabelServer, server), more...)...), v)
				}
				show(metrics.EngineInfo.Name, 1)
				show(metrics.RequestsRunning.Name, 3*factor)
				if len(more) == 0 || more[1] != metrics.FrontendRole { // requests that its router holds back do not wait anywhere else
					show(metrics.RequestsWaiting.Name, 2*factor)
				}
				show(metrics.Requests.Name, served*factor, metrics.LabelOutcome, outcome)
				show(metrics.PromptTokens.Name, 900*served*factor)
				show(metrics.GenerationTokens.Name, 200*served*factor)
				for _, le := range []string{"0.5", "+Inf"} {
					show(metrics.TimeToFirstToken.Name+"_bucket", served*factor, "le", le)
				}
			}
			if engines {
				page("10.0.0.1:8000", 1, "stop")
				page("10.0.0.2:8000", 1, "stop", metrics.LabelRole, "decode")
			}
			if inFront != "" {
				page("10.0.0.9:4000", 2, "success", metrics.LabelRole, inFront)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		all, err := sim.Query(`{__name__=~"model:.+"}`, rulesim.Epoch.Add(15*time.Minute))
		if err != nil {
			t.Fatal(err)
		}
		values := map[string]float64{}
		for _, s := range all {
			values[s.Metric.String()] = s.F
		}
		return values
	}
	engines := recorded("", true)
	if len(engines) < 7 {
		t.Fatalf("only %v are recorded", engines)
	}
	for _, inFront := range []string{metrics.GatewayRole, metrics.FrontendRole} {
		for name, v := range recorded(inFront, true) {
			if was, ok := engines[name]; !ok || was != v {
				t.Errorf("%s = %v with a %s, %v without", name, v, inFront, was)
			}
		}
	}
	if alone := recorded(metrics.FrontendRole, false); len(alone) != len(engines)-1 { // without waiting requests
		t.Errorf("a frontend alone records %v", alone)
	}
	if alone := recorded(metrics.GatewayRole, false); len(alone) != 0 {
		t.Errorf("a gateway alone records %v", alone)
	}
}

// TestClientsLeaveTheirGateway checks that a gateway represents its engines only while it counts their requests.
func TestClientsLeaveTheirGateway(t *testing.T) {
	g := group(t, rules.Options{}, "llm-slo-objective")
	g.Records = slices.DeleteFunc(g.Records, func(r rules.Record) bool { return r.Name != metrics.RecordedBehindGateway })
	for name, c := range map[string]struct {
		hour, now [2]float64 // events in the last hour and per second, of the engines and of the gateway
		behind    int
	}{
		"all use it":              {[2]float64{3600, 3600}, [2]float64{1, 1}, 1},
		"few requests":            {[2]float64{12, 12}, [2]float64{0.01, 0}, 1},
		"it retries":              {[2]float64{3600, 3600}, [2]float64{4, 1}, 1},
		"half of them use it":     {[2]float64{3600, 1500}, [2]float64{1, 0.4}, 0},
		"they have left it":       {[2]float64{3600, 3400}, [2]float64{1, 0.02}, 0},
		"it counts none any more": {[2]float64{3600, 3400}, [2]float64{1, 0}, 0},
	} {
		sim := newSim(t, g)
		if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(time.Minute), time.Minute, func(_ time.Time, emit rulesim.Emit) {
			for i, role := range []string{"", metrics.GatewayRole} {
				of := []string{metrics.LabelModel, "m", metrics.LabelSLO, "availability", metrics.LabelRole, role}
				emit(series(metrics.Window(metrics.RecordedEvents, "1h").Name, of...), c.hour[i])
				emit(series(metrics.RecordedEventRate.Name, of...), c.now[i])
				emit(series(metrics.RecordedInfo.Name, append(of, metrics.LabelSignal, string(slo.Availability))...), 1)
			}
		}); err != nil {
			t.Fatal(err)
		}
		behind, err := sim.Query(metrics.RecordedBehindGateway.Name, rulesim.Epoch)
		if err != nil || len(behind) != c.behind {
			t.Errorf("%s: %v, %v", name, behind, err)
		}
	}
}

// TestTicketsForUncountedObjectives checks that a ticket asks for a signal only where users' requests go uncounted.
func TestTicketsForUncountedObjectives(t *testing.T) {
	for name, c := range map[string]struct {
		runtime string    // of an engine that lacks the signal; empty: no engine is read
		tokens  []float64 // generated per second, if the engine reports them
		ticket  bool
	}{
		"no server counts it":                     {ticket: true},
		"an engine that generates tokens":         {runtime: "llamacpp", tokens: []float64{50}, ticket: true},
		"an engine that reports no tokens":        {runtime: "ollama", ticket: true},
		"an engine whose users have not come yet": {runtime: "sglang", tokens: []float64{0}},
	} {
		sim := newSim(t)
		if err := sim.Run(rulesim.Epoch, rulesim.Epoch.Add(time.Minute), time.Minute, func(_ time.Time, emit rulesim.Emit) {
			emit(series(metrics.SLOObjective.Name, metrics.LabelSLO, "itl"), 0.99)
			emit(series(metrics.SLOInfo.Name, metrics.LabelSLO, "itl", metrics.LabelOrigin, "config"), 1)
			if c.runtime != "" {
				emit(series(metrics.SLOCounted.Name, metrics.LabelRuntime, c.runtime, metrics.LabelModel, "m", metrics.LabelSLO, "itl",
					metrics.LabelReason, "signal_missing"), 0)
			}
			for _, rate := range c.tokens {
				emit(series(metrics.RecordedGenerationTokens.Name, metrics.LabelModel, "m"), rate)
			}
		}); err != nil {
			t.Fatal(err)
		}
		got, err := sim.Query(rules.ObjectiveWithoutEvents.Condition().String(), rulesim.Epoch)
		if err != nil || len(got) != int(metrics.Bool(c.ticket)) {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}
