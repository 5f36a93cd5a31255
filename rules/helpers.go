package rules

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

const (
	minute = time.Minute
	hour   = time.Hour
	day    = 24 * time.Hour

	// dayBack is the offset of a window of an hour that is centred on this time yesterday.
	dayBack = day - hour/2
)

// onGPULabels returns the labels that identify a GPU in a fleet.
func onGPULabels() []string { return []string{metrics.LabelCluster, metrics.LabelGPUUUID} }

// HarmfulReasons matches the reasons for lower clocks that slow inference down without an operator's intention. A
// software power cap is not one of them, because it is normal under heavy prefill.
const HarmfulReasons = "hw_slowdown|hw_thermal_slowdown|hw_power_brake_slowdown|sw_thermal_slowdown|processor_hot|socket_thermal|vr_thermal|hbm_thermal"

// mean returns the mean of a histogram's observations in a window. It has no result without observations.
func mean(h *metrics.Family, by []string, window time.Duration, m ...*promql.Matcher) promql.Expr {
	return meanBefore(h, by, window, 0, m...)
}

// meanBefore returns the mean of a histogram's observations in a window that ended some time ago.
func meanBefore(h *metrics.Family, by []string, window, ago time.Duration, m ...*promql.Matcher) promql.Expr {
	return ratio(promql.SumOf(h, m...), promql.CountOf(h, m...), by, window, ago)
}

// paced matches the two stages that end with a token: the first token, and each next token. ofStage matches any single
// stage.
func paced() *promql.Matcher {
	return promql.Re(metrics.LabelStage, metrics.StageFirstToken+"|"+metrics.StageNextToken)
}

func ofStage(stage string) *promql.Matcher { return promql.Eq(metrics.LabelStage, stage) }

// meanIn returns the recorded series of a model's mean times in a window, by stage.
func meanIn(window time.Duration) *metrics.Family {
	return metrics.Window(metrics.RecordedStageTime, slo.Duration(window).String())
}

// perStage adds the label stage to labels.
func perStage(labels []string) []string { return append([]string{metrics.LabelStage}, labels...) }

// queueShare returns the queue's share of the mean time to first token. While the queue grows, the two means cover
// different requests, so the share is limited to one.
func queueShare() promql.Expr {
	in := func(stage string) promql.Expr { return promql.Vector(meanIn(pageWindow), ofStage(stage)) }
	return promql.Call("clamp_max", promql.Div(in("queue"), in(metrics.StageFirstToken), promql.Ignoring(metrics.LabelStage)), promql.Num(1))
}

// ratio returns the increase of part divided by that of whole, in a window that ended some time ago. It has no result
// if whole did not increase.
func ratio(part, whole promql.Expr, by []string, window, ago time.Duration) promql.Expr {
	rate := func(e promql.Expr) promql.Expr {
		return promql.Sum(by, promql.Rate(promql.Offset(e, ago), window))
	}
	return promql.Div(rate(part), promql.Gt(rate(whole), promql.Num(0)))
}

// hitRatio returns the share of looked-up prompt tokens that were in the prefix cache.
func hitRatio(by []string, window, ago time.Duration, m ...*promql.Matcher) promql.Expr {
	return ratio(promql.Vector(metrics.PrefixCacheHitTokens, m...), promql.Vector(metrics.PrefixCacheQueryTokens, m...), by, window, ago)
}

// atLeast returns each model that served at least n requests of users in a window, so that no cause depends on a
// handful of requests. For the windows of most causes, these counts are recorded.
func atLeast(n float64, window time.Duration) promql.Expr {
	if slices.Contains(usersWindows, window) {
		return promql.Ge(promql.Vector(usersServed(window)), promql.Num(n))
	}
	return promql.Ge(servedIn(window), promql.Num(n))
}

// usersWindows lists the windows for which the requests of users are recorded. The shortest is recorded with the facts,
// which are evaluated twice a minute.
var usersWindows = []time.Duration{recentWindow, 30 * minute}

// servedIn returns how many requests of users got a first token in a window.
func servedIn(window time.Duration) promql.Expr {
	return times(window.Seconds(), ofUsers(promql.Rate(promql.CountOf(metrics.TimeToFirstToken), window), window, 0))
}

// servedNow returns how many requests of users got a first token in recentWindow, for engines that count first tokens.
// It reads no record of the same group, because under vmalert, every rule that reads this value would then be evaluated
// later.
func servedNow() promql.Expr {
	counted := promql.Rate(promql.CountOf(metrics.TimeToFirstToken), recentWindow)
	return times(recentWindow.Seconds(), promql.And(promql.Sum(modelLabels, promql.Or(counted, times(-1, probes(RateWindow.Std())))),
		promql.Sum(modelLabels, counted)))
}

// usersServed returns the recorded series of the requests of users in a window.
func usersServed(window time.Duration) *metrics.Family {
	return metrics.Window(metrics.RecordedUsersServed, slo.Duration(window).String())
}

// ofUsers subtracts the probes from a rate of requests per model, because engines also count requests that no user
// sent. Every answered probe is subtracted, because it ends at an engine of its model even if it was sent to a gateway.
func ofUsers(rate promql.Expr, window, ago time.Duration) promql.Expr {
	return promql.Sum(modelLabels, promql.Or(rate, times(-1, promql.Over("avg_over_time",
		promql.Offset(promql.Vector(metrics.RecordedProbes), ago), window))))
}

// above keeps values of e above a limit. below keeps values of e below a limit.
func above(e promql.Expr, limit float64) promql.Expr { return promql.Gt(e, promql.Num(limit)) }
func below(e promql.Expr, limit float64) promql.Expr { return promql.Lt(e, promql.Num(limit)) }

// times scales an expression.
func times(factor float64, e promql.Expr) promql.Expr { return promql.Mul(promql.Num(factor), e) }

// both joins expressions with "and" on equal labels.
func both(a promql.Expr, more ...promql.Expr) promql.Expr {
	for _, e := range more {
		a = promql.And(a, e)
	}
	return a
}

// labelled sets a label.
func labelled(e promql.Expr, name, value string) promql.Expr {
	return promql.Call("label_replace", e, promql.Str(name), promql.Str(value), promql.Str(""), promql.Str(""))
}
