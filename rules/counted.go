package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Counted returns the increase of an event counter per model and objective in a window, as the rules read it from raw
// counters. A program that counts events itself, such as a backtest, evaluates the rules with its own numbers in place
// of this expression.
func Counted(f *metrics.Family, window slo.Duration) promql.Expr { return source{}.events(f, window) }

// CountedTile returns the increase of an event counter in five minutes. Budgets add up these increases: see Counted.
func CountedTile(f *metrics.Family) promql.Expr { return source{}.tile(f) }

// CountedRequests returns the requests of a model in RequestWindow, by their first tokens: see Counted.
func CountedRequests() promql.Expr { return firstTokens(RequestWindow) }

// Asks returns the burn rates of the objectives for which some window pair requires an alert of a severity.
func Asks(severity slo.Severity) promql.Expr {
	asks := promql.Vector(metrics.RecordedBurnThreshold, promql.Eq(metrics.LabelSeverity, severity.String()))
	return promql.Max(modelSLO, promql.And(promql.Vector(metrics.RecordedPairBurn), asks,
		promql.On(append([]string{metrics.LabelLong}, modelSLO...)...)))
}
