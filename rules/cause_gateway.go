package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Causes in the gateway before the engines: it is gone, or fails requests that the engines do not fail.
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
		Description: "It does not answer, or has no worker. If it is the only gateway of its models, nobody reaches them. Until the gateway " +
			"answers again, the engines' counts are used for the objectives.",
		Split: []Evidence{
			{
				"Reason", promql.CountBy([]string{metrics.LabelReason}, promql.Vector(metrics.EngineUp, same(pageLabels...)...)),
				LabelledBy("", metrics.LabelReason),
			},
		},
		Dashboard: EngineDashboard,
	}
	ModelUnreached = &Alert{
		Name:     "LLMModelUnreached",
		Branch:   Routing,
		Expr:     promql.And(promql.Vector(metrics.RecordedAnswersMissing), promql.CountBy(modelLabels, silentGateways())),
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
		Summary:  "Nobody reaches the model: its gateway does not answer, and its engines get no requests",
		Description: "Its engines are idle and healthy. The engines usually give {{ $value | humanize }} answers in two minutes, but now " +
			"give none. Send clients past the gateway, then read its log.",
		Split: []Evidence{{"Gateways that do not answer", promql.CountBy([]string{metrics.LabelInstance, metrics.LabelPod, metrics.LabelServer},
			silentGateways(sameModel()...)), foundEngine}},
		Dashboard: IncidentDashboard,
	}
)

func gatewayRole() *promql.Matcher { return promql.Eq(metrics.LabelRole, metrics.GatewayRole) }

// gateways returns each metrics endpoint that is a gateway's or, if it does not answer, was one when it last did.
func gateways() promql.Expr {
	byPage := append([]string{metrics.LabelRole}, pageLabels...)
	return carried(metrics.RecordedGateway, promql.Max(byPage, promql.Vector(metrics.EngineInfo, gatewayRole())), gatewayRole())
}

// silentGateways returns each gateway that served a model within the hour and does not answer now.
func silentGateways(m ...*promql.Matcher) promql.Expr {
	before := promql.Over("last_over_time", promql.Vector(metrics.EngineInfo, append(m, gatewayRole())...), hour)
	return promql.And(promql.Max(replicaLabels, before), notUp(), promql.On(pageLabels...))
}

// ofGateways keeps the gateways of a value per metrics endpoint, and adds their role.
func ofGateways(perPage promql.Expr) promql.Expr {
	return promql.Mul(perPage, promql.Vector(metrics.RecordedGateway), promql.On(pageLabels...).ManyToOne(metrics.LabelRole))
}

// gatewayFailsAlone returns the share of a gateway's requests to a model that fail, where it is more than one in a
// hundred and more than four times the share that the engines of the model fail. A gateway that names no model, or a
// model that no engine names, is compared with the engines of its namespace that fail most. Engines that no request
// reaches fail none.
func gatewayFailsAlone(window time.Duration) promql.Expr {
	perModel, namespace := promql.On(modelLabels...), []string{metrics.LabelCluster, metrics.LabelNamespace}
	fails := above(promql.Max(replicaLabels, promql.Vector(metrics.RecordedFailing, gatewayRole())), 0.01)
	idle := times(0, promql.CountBy(modelLabels, promql.Vector(metrics.EngineInfo)))
	unnamed := promql.Unless(promql.CountBy(modelLabels, promql.Vector(metrics.Requests, gatewayRole())),
		promql.Vector(metrics.RecordedServed), perModel)
	engines := promql.Or(promql.Or(promql.And(failing(modelLabels, window), idle), idle),
		promql.Add(times(0, unnamed), promql.Max(namespace, promql.Or(now("failed"), idle)), promql.On(namespace...).ManyToOne()))
	return promql.Gt(fails, times(4, engines), perModel.ManyToOne())
}

// ofGatewayRequests returns how often something happened per request that ended at a model's gateways.
func ofGatewayRequests(f *metrics.Family) promql.Expr {
	return promql.Div(promql.Sum(modelLabels, promql.Rate(promql.Vector(f), pageWindow)),
		above(ended(modelLabels, pageWindow, gatewayRole()), 0))
}
