package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// These are label values of OpenCost's series, from its package pkg/inferencecost.
const (
	costAllocation = "allocation"
	costUsage      = "usage"
	costIdle       = "__idle__"
)

// generatedCounts is how many prompt tokens a generated token is worth, if the times of prefill and decode are unknown.
// The value is OpenCost's default.
const generatedCounts = 2.5

// costGroup records what models cost, with OpenCost's names and formulas, from the prices in the exporters'
// configuration. Without a price, it records only two ratios.
func costGroup(opt Options) Group {
	basis := func(b string) map[string]string { return map[string]string{metrics.LabelCostBasis: b} }
	g := Group{Name: "llm-cost", Interval: Interval, Records: []Record{
		{Name: metrics.RecordedGPUHour, Expr: priceOfGPU()},
		{Name: metrics.RecordedHourlyCost, Expr: promql.Or(promql.Sum(modelLabels, partOf(promql.Vector(metrics.RecordedGPUHour))),
			idlePrice()), Labels: basis(costAllocation)},
		{Name: metrics.RecordedHourlyCost, Expr: promql.Sum(modelLabels, partOf(worked())), Labels: basis(costUsage)},
		{Name: metrics.RecordedPromptTime, Expr: promptTime()},
		{Name: metrics.RecordedCacheSavings, Expr: promql.Div(promql.Sum(modelLabels,
			promql.Rate(promql.Vector(metrics.PrefixCacheHitTokens), pageWindow)),
			above(promql.Vector(metrics.RecordedPromptTokens), 0), promql.On(modelLabels...))},
	}}
	g.Records = append(g.Records, perMillion()...)
	if opt.Tier == Single { // this record reads series that shards do not record
		g.Records = append(g.Records, Record{Name: metrics.RecordedWastedCost, Expr: latePrice()})
	}
	return g
}

// priceOfGPU returns the price of each GPU per hour: the configured price of its product or, without one, the price for
// "*".
func priceOfGPU() promql.Expr {
	gpu := promql.Max(append([]string{metrics.LabelGPUName}, onGPULabels()...), promql.Vector(metrics.GPUInfo))
	price := func(labels []string, m *promql.Matcher) promql.Expr {
		return promql.Mul(gpu, promql.Max(labels, promql.Vector(metrics.GPUHourPrice, m)), promql.On(labels...).ManyToOne())
	}
	return promql.Max(onGPULabels(), promql.Or(
		price([]string{metrics.LabelCluster, metrics.LabelGPUName}, promql.Ne(metrics.LabelGPUName, "*")),
		price([]string{metrics.LabelCluster}, promql.Eq(metrics.LabelGPUName, "*"))))
}

// idlePrice returns the price of the GPUs on which no engine runs.
func idlePrice() promql.Expr {
	idle := promql.Sum([]string{metrics.LabelCluster}, promql.Unless(promql.Vector(metrics.RecordedGPUHour),
		promql.Vector(metrics.RecordedGPUShare), promql.On(onGPULabels()...)))
	return promql.Call("label_replace", idle, promql.Str(metrics.LabelModel), promql.Str(costIdle), promql.Str(""), promql.Str(""))
}

// worked returns the price of each GPU for the share of the last five minutes in which the GPU worked.
func worked() promql.Expr {
	return promql.Mul(promql.Vector(metrics.RecordedGPUHour),
		promql.Max(onGPULabels(), promql.Over("avg_over_time", promql.Vector(metrics.GPUUtilization), pageWindow)), promql.On(onGPULabels()...))
}

// latePrice returns the price of the tokens that missed a latency objective.
func latePrice() promql.Expr {
	late := promql.Sub(promql.Num(1), promql.Div(promql.Vector(metrics.RecordedGoodTokens),
		above(promql.Vector(metrics.RecordedGenerationTokens), 0), promql.On(modelLabels...)))
	return promql.Mul(promql.Max(modelLabels, promql.Vector(metrics.RecordedHourlyCost, promql.Eq(metrics.LabelCostBasis,
		costAllocation))), promql.Call("clamp_min", late, promql.Num(0)), promql.On(modelLabels...))
}

// promptTime returns the time of prefill as a share of the time of prefill and decode, if both are measured.
func promptTime() promql.Expr {
	spent := func(stage *promql.Matcher) promql.Expr {
		return promql.Sum(modelLabels, promql.Rate(promql.Vector(metrics.StageTime, stage, promql.NotRe(metrics.LabelRole,
			metrics.FrontendRole+"|"+metrics.GatewayRole)), pageWindow))
	}
	return above(below(promql.Div(spent(promql.Eq(metrics.LabelStage, "prefill")),
		spent(promql.Re(metrics.LabelStage, "prefill|decode"))), 1), 0)
}

// perMillion records the price of a million tokens: of all tokens, of prompt tokens, and of answer tokens. The price is
// divided between prompts and answers in proportion to the times of prefill and decode or, if these are unknown, to the
// weighted numbers of tokens (see generatedCounts).
func perMillion() []Record {
	const hourly = 1e6 / 3600
	perSecond := func(tokens promql.Expr) promql.Expr {
		return promql.Mul(promql.Num(hourly), promql.Div(promql.Vector(metrics.RecordedHourlyCost), above(tokens, 0),
			promql.On(modelLabels...).ManyToOne()))
	}
	prompts, answers, split := promql.Vector(metrics.RecordedPromptTokens), promql.Vector(metrics.RecordedGenerationTokens),
		promql.Vector(metrics.RecordedPromptTime)
	on := promql.On(modelLabels...)
	weighted := promql.Unless(promql.Add(prompts, promql.Mul(promql.Num(generatedCounts), answers)), split, on)
	record := func(phase, method string, e promql.Expr) Record {
		var l map[string]string
		if phase != "" {
			l = map[string]string{metrics.LabelPhase: phase, metrics.LabelAllocationMethod: method}
		}
		return Record{Name: metrics.RecordedCostPerMillion, Expr: e, Labels: l}
	}
	return []Record{
		record("", "", perSecond(promql.Add(prompts, answers))),
		record("prompt", "compute_time", promql.Mul(perSecond(prompts), split, on.ManyToOne())),
		record("generation", "compute_time", promql.Mul(perSecond(answers), promql.Sub(promql.Num(1), split), on.ManyToOne())),
		record("prompt", "multiplier", perSecond(weighted)),
		record("generation", "multiplier", promql.Mul(promql.Num(generatedCounts), perSecond(weighted))),
	}
}
