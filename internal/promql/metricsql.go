package promql

import "github.com/prometheus/prometheus/promql/parser"

// metricsQL maps Prometheus functions to MetricsQL functions with the same meaning. MetricsQL's own rate, increase and
// delta also read the sample before the window. Its increase may begin at zero, and its changes counts the appearance
// of a series as a change.
var metricsQL = map[string]string{
	"changes": "changes_prometheus", "delta": "delta_prometheus", "increase": "increase_prometheus", "rate": "rate_prometheus",
}

// MetricsQL returns e in the form that VictoriaMetrics 1.120 and newer understands. The result is for printing only,
// because Parser does not support its functions. e is not changed.
func MetricsQL(e Expr) Expr {
	copied := clone(e)
	parser.Inspect(copied, func(n parser.Node, _ []parser.Node) error {
		if c, ok := n.(*parser.Call); ok && metricsQL[c.Func.Name] != "" {
			f := *c.Func
			f.Name = metricsQL[f.Name]
			c.Func = &f
		}
		return nil
	})
	return copied
}
