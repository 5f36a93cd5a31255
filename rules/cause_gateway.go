package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// The causes of these alerts are at or before the gateway: it is down, or no requests reach the engines.
var (
	GatewayDown = &Alert{
		Name:      "LLMGatewayDown",
		Branch:    Routing,
		Expr:      ofGateways(notUp()),
		Severity:  slo.Ticket,
		For:       5 * minute,
		Scope:     []string{metrics.LabelServer},
		DependsOn: []Quiet{{ExporterFleetDown, []string{metrics.LabelCluster}}},
		Explains:  []*Alert{FastBurn, SlowBurn},
		Summary:   "Gateway " + theEngine + " is down",
		Description: "The gateway does not answer, or has no worker. If it is the only gateway of its models, no client reaches them. Until " +
			"the gateway answers again, the engines' counts are used for the objectives.",
		Split: []Evidence{
			{
				"Reason", promql.CountBy([]string{metrics.LabelReason}, promql.Vector(metrics.EngineUp, same(pageLabels...)...)),
				LabelledBy("", metrics.LabelReason),
			},
		},
		Dashboard: OptionalDashboard,
	}
	ModelUnreached = &Alert{
		Name:   "LLMModelUnreached",
		Branch: Routing,
		Expr: promql.Unless(promql.Or(promql.And(promql.Vector(metrics.RecordedAnswersMissing), promql.CountBy(modelLabels, silentGateways())),
			fellSilent()), above(promql.Sum(modelLabels, promql.Rate(promql.Vector(metrics.Requests,
			promql.Re(metrics.LabelOutcome, slo.FailedOutcomes+"|"+string(metrics.OutcomeAbort))), recentWindow)), 0)), // these have arrived, too
		Severity: slo.Page,
		For:      minute,
		Keep:     5 * minute,
		Scope:    []string{metrics.LabelModel},
		DependsOn: []Quiet{
			{ModelDown, modelLabels},
			{ModelStalled, modelLabels},
			{ProbeFailing, modelLabels},
			{ExporterFleetDown, []string{metrics.LabelCluster}},
		},
		Explains: []*Alert{FastBurn, SlowBurn},
		Replaces: true,
		Summary:  "No request arrives any more, while the engines are up and idle",
		Description: "The engines usually give {{ $value | humanize }} answers or more in two minutes, and now give none. " +
			"If an engine answers a request that you send, look at the path to it.",
		Split: []Evidence{{"Gateways that do not answer", promql.CountBy([]string{metrics.LabelInstance, metrics.LabelPod, metrics.LabelServer},
			silentGateways(sameModel()...)), foundEngine}},
		Dashboard: IncidentDashboard,
	}
)

// silence is how long a model that usually always has requests must get none from users before the alert pages.
const silence = 6 * minute

// neverSilent returns, for each model that always has requests, the number of users' first tokens in two minutes that
// it reached during 98% of the day that ended ten minutes ago. Numbers below four are left out, because a silence may
// then be chance. So are models with less than a day of data, because a broken path could not be distinguished from a
// client that has finished.
func neverSilent() promql.Expr {
	served := promql.Vector(usersServed(recentWindow))
	return promql.And(promql.Ge(promql.Sum(modelLabels, promql.QuantileOver(0.02, promql.Offset(served, 10*minute), day)), promql.Num(4)),
		promql.Sum(modelLabels, promql.Over("last_over_time", promql.Offset(served, day-hour), hour)))
}

// fellSilent returns neverSilent for each model whose engines were up but got no user's request for six minutes. If
// requests run or wait, there is no result, because the path works. Nor is there one if the requests may have moved to
// other models of the namespace: the models with at least 1.3 times as many requests as 45 minutes ago then have,
// together, more than half of this model's usual number. The page lasts as long as the silence, even after the silence
// has become a part of the reference day.
func fellSilent() promql.Expr {
	got := func(ago time.Duration) promql.Expr {
		return promql.Sum(modelLabels, promql.Over("avg_over_time", promql.Offset(promql.Vector(usersServed(recentWindow)), ago), silence))
	}
	up := promql.Equal(promql.Over("min_over_time", promql.Vector(metrics.RecordedModelUp), silence), promql.Num(1))
	work := promql.Or(above(promql.Vector(metrics.RecordedRunning), 0), above(promql.Vector(metrics.RecordedWaiting), 0))
	namespace := []string{metrics.LabelCluster, metrics.LabelNamespace}
	more := promql.Sum(namespace, promql.Unless(got(0), promql.Lt(got(0), times(1.3, got(45*minute)))))
	usual := promql.Vector(metrics.RecordedNeverSilent)
	moved := promql.Lt(usual, times(2, more), promql.On(namespace...).ManyToOne())
	paged := promql.And(promql.Over("last_over_time", usual, day), firing("LLMModelUnreached"), promql.On(modelLabels...))
	return promql.Unless(both(promql.Or(promql.Unless(usual, moved), paged), below(got(0), 0.5), up), work)
}

func gatewayRole() *promql.Matcher { return promql.Eq(metrics.LabelRole, metrics.GatewayRole) }

// gateways returns each metrics endpoint of a gateway, including silent endpoints that last belonged to a gateway.
func gateways() promql.Expr {
	byPage := append([]string{metrics.LabelRole}, pageLabels...)
	return carried(metrics.RecordedGateway, promql.Max(byPage, promql.Vector(metrics.EngineInfo, gatewayRole())), gatewayRole())
}

// silentGateways returns each gateway that served a model within the hour and does not answer now.
func silentGateways(m ...*promql.Matcher) promql.Expr {
	before := promql.Over("last_over_time", promql.Vector(metrics.EngineInfo, append(m, gatewayRole())...), hour)
	return promql.And(promql.Max(replicaLabels, before), notUp(), promql.On(pageLabels...))
}

// ofGateways keeps the values of the metrics endpoints of gateways, and adds the role.
func ofGateways(perPage promql.Expr) promql.Expr {
	return promql.Mul(perPage, promql.Vector(metrics.RecordedGateway), promql.On(pageLabels...).ManyToOne(metrics.LabelRole))
}

// gatewayFailsAlone returns the share of a gateway's requests to a model that fail. The share must exceed 1%, and four
// times the share that fails at the model's engines. The engines' share comes from their own counts or, without these,
// from the gateway's. If a gateway does not report the model, or no engine does, the largest share of any engines in
// the gateway's namespace is used. For engines without requests, the share is 0.
func gatewayFailsAlone(window time.Duration) promql.Expr {
	perModel, namespace := promql.On(modelLabels...), []string{metrics.LabelCluster, metrics.LabelNamespace}
	fails := above(promql.Max(replicaLabels, promql.Vector(metrics.RecordedFailing, gatewayRole())), 0.01)
	idle := times(0, promql.CountBy(modelLabels, promql.Vector(metrics.EngineInfo)))
	unnamed := promql.Unless(promql.CountBy(modelLabels, promql.Vector(metrics.Requests, gatewayRole())),
		promql.Vector(metrics.RecordedServed), perModel)
	engines := promql.Or(promql.Or(promql.And(failing(modelLabels, window), idle), failedAtEngines(), idle),
		promql.Add(times(0, unnamed), promql.Max(namespace, promql.Or(now("failed"), idle)), promql.On(namespace...).ManyToOne()))
	return promql.Gt(fails, times(4, engines), perModel.ManyToOne())
}

// failedAtEngines returns the share of requests that failed at an engine, of those that reached the model's engines
// through a gateway, as the gateway counts them. It has no result for engines that count failures themselves, because a
// gateway may also count a wrong address as a failure of the engine.
func failedAtEngines() promql.Expr {
	failed := promql.Sum(modelLabels, promql.Rate(promql.Vector(metrics.GatewayEngineFailures), recentWindow))
	well := promql.Sum(modelLabels, promql.Rate(promql.Vector(metrics.Requests, gatewayRole(), promql.NotRe(metrics.LabelOutcome,
		slo.UncountedOutcomes+"|"+slo.FailedOutcomes)), recentWindow))
	own := promql.Vector(metrics.Requests, promql.Eq(metrics.LabelOutcome, string(metrics.OutcomeError)))
	return promql.Unless(promql.Div(failed, above(promql.Add(failed, promql.Or(well, times(0, failed))), 0)), own, promql.On(modelLabels...))
}

// ofGatewayRequests returns how often an event happens per request that ends at a model's gateways.
func ofGatewayRequests(f *metrics.Family) promql.Expr {
	return promql.Div(promql.Sum(modelLabels, promql.Rate(promql.Vector(f), pageWindow)),
		above(ended(modelLabels, pageWindow, gatewayRole()), 0))
}
