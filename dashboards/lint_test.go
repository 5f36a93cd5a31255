package dashboards_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// The rules of grafana/dashboard-linter 0.2.0, whose module cannot be used as a library.
//
// Excluded, for all dashboards: template-job-rule, template-instance-rule, target-job-rule and target-instance-rule.
// These rules want variables job and instance with .+ in every selector. Here the variable node replaces instance. A
// variable job would add nothing, because all metric names belong to one exporter. Recorded series have neither label,
// and .+ hides hosts that lack a label. TestEverySelectorObeysTheFilters is stricter about the existing variables.
func TestDashboardLinter(t *testing.T) {
	units := []string{
		"s", "suffix:s", "suffix:x", "percentunit", "short", "count:/s", "count:tok/s", "reqps", "bytes", "Bps", "hertz",
		"celsius", "watt", "joule", "currencyUSD", "none",
	}
	for _, b := range boards(t) {
		lint := func(rule, where string, ok bool) {
			if !ok {
				t.Errorf("%s: %s: %s", rule, b.Title, where)
			}
		}
		lint("uneditable-dashboard", "", b.Editable != nil && !*b.Editable)
		sources := 0
		for _, v := range b.Templating.List {
			switch v.Type {
			case "datasource":
				sources++
				lint("template-datasource-rule", v.Name, v.Name == "datasource" && v.Label == "Data source" && v.Query == "prometheus")
			case "query":
				lint("template-datasource-rule", v.Name, v.Datasource != nil && v.Datasource.UID == "$datasource")
				lint("template-label-promql-rule", v.Query, labelValues.MatchString(v.Query)) // parsed in TestQueriesUseTheVocabulary
				lint("template-on-time-change-reload-rule", v.Name, v.Refresh == 2)
				lint("multi, include all", v.Name, v.Multi && v.IncludeAll && v.AllValue == ".*" && v.Label != "")
			}
		}
		lint("template-datasource-rule", "one data source", sources == 1)
		for _, p := range b.flat() {
			if p.Type == "text" {
				continue
			}
			lint("panel-datasource-rule", p.Title, p.Datasource != nil && p.Datasource.UID == "$datasource")
			lint("panel-title-description-rule", p.Title, p.Title != "" && p.Description != "")
			lint("panel-units-rule", p.Title, slices.Contains(units, p.FieldConfig.Defaults.Unit))
			lint("panel-no-targets-rule", p.Title, len(p.Targets) > 0)
		}
		b.each(func(p panel, q target) {
			e, err := promql.Parser.ParseExpr(b.substitute(t, q.Expr))
			lint("target-promql-rule", p.Title, err == nil)
			if err != nil {
				return
			}
			parser.Inspect(e, func(n parser.Node, path []parser.Node) error {
				switch n := n.(type) {
				case *parser.Call:
					if n.Func.Name == "rate" || n.Func.Name == "irate" {
						lint("target-rate-interval-rule", p.Title+": "+q.Expr, strings.Count(q.Expr, n.Func.Name+"(") == strings.Count(q.Expr,
							"[$__rate_interval]"))
					}
				case *parser.VectorSelector:
					f := promql.Lookup(n.Name)
					if f == nil || f.Kind != metrics.Counter {
						return nil
					}
					// A table of totals shows everything ever seen; nothing is drawn over time.
					lint("target-counter-agg-rule", p.Title+": "+n.Name, p.Type == "table" || isRate(path))
				}
				return nil
			})
		})
	}
}

// isRate reports whether the selector below path is inside rate, irate or increase, or part of a difference: an hour's growth.
func isRate(path []parser.Node) bool {
	for _, n := range path {
		if d, ok := n.(*parser.BinaryExpr); ok && d.Op == parser.SUB {
			return true
		}
		if c, ok := n.(*parser.Call); ok && slices.Contains([]string{"rate", "irate", "increase"}, c.Func.Name) {
			return true
		}
	}
	return false
}

// A page leads to its cause in three clicks: every other dashboard is one click away from the incident dashboard,
// and back.
func TestThreeClicks(t *testing.T) {
	for _, b := range boards(t) {
		if !slices.Contains(b.Tags, "llm-node-exporter") || b.GraphTooltip != 1 || b.SchemaVersion < 36 || b.Refresh == "" {
			t.Errorf("%s lacks its tag, the shared crosshair, a schema that Grafana 10 loads, or a refresh", b.Title)
		}
		if len(b.Links) == 0 || !b.Links[0].IncludeVars || !b.Links[0].KeepTime {
			t.Errorf("%s does not lead to the others with time and filters", b.Title)
		}
	}
}
