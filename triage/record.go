package triage

import (
	"math"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// keep returns the values for the incident's record.
func (j *judge) keep(m subject) (Record, error) {
	title, err := j.title(m)
	if err != nil {
		return Record{}, err
	}
	r := Record{Model: title, Route: "see the gateway's log, because no metric shows the route", From: j.before.At.UTC().
		Format(time.RFC3339), To: j.at.UTC().Format(time.RFC3339)}
	own := m.matchers()
	lately := func(f *metrics.Family, own ...*promql.Matcher) promql.Expr {
		return promql.Over("last_over_time", promql.Vector(f, own...), time.Minute)
	}
	gateway := append(slices.Clone(own), promql.Eq(metrics.LabelRole, metrics.GatewayRole))
	info := promql.Max(append([]string{metrics.LabelRuntime, metrics.LabelVersion}, metrics.ReplicaLabels...), promql.Or(
		lately(metrics.EngineInfo, own...), promql.Vector(metrics.EngineLastServed, own...), promql.Vector(metrics.EngineLeft, own...),
		lately(metrics.EngineInfo, gateway...)))
	for _, of := range []struct {
		x    promql.Expr
		take map[*[]string]string
	}{
		{info, map[*[]string]string{&r.Runtimes: metrics.LabelRuntime, &r.Versions: metrics.LabelVersion, &r.Engines: metrics.LabelServer}},
		{lately(metrics.EngineGPUInfo, own...), map[*[]string]string{&r.GPUs: metrics.LabelGPUUUID}},
		{lately(metrics.GPUDriverInfo), map[*[]string]string{&r.Drivers: metrics.LabelDriverVersion}},
	} {
		found, err := j.query(of.x)
		if err != nil {
			return r, err
		}
		for list, label := range of.take {
			*list = []string{}
			for _, s := range found {
				if value := s.Metric.Get(label); value != "" && !slices.Contains(*list, value) {
					*list = append(*list, value)
				}
			}
			slices.Sort(*list)
		}
	}
	started, err := j.query(promql.And(promql.Max(metrics.PageLabels, lately(metrics.EngineStartTime)), info,
		promql.On(metrics.PageLabels...)))
	if err != nil {
		return r, err
	}
	r.Started = []string{}
	for _, s := range started {
		r.Started = append(r.Started, s.Metric.Get(metrics.LabelServer)+" "+time.Unix(int64(s.F), 0).UTC().Format(time.RFC3339))
	}
	slices.Sort(r.Started)
	if err := j.settings(m, &r); err != nil {
		return r, err
	}
	tokens, err := j.query(promql.Sum(nil, promql.Increase(promql.CountOf(metrics.TimeToFirstToken, own...), time.Minute)))
	if err != nil || len(tokens) == 0 {
		return r, err
	}
	r.FirstTokens = math.Round(tokens[0].F)
	return r, nil
}
