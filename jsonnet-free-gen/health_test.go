package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/health"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Every condition that takes a GPU out of service, or keeps work off it, has an alert. The alert that a
// condition or an XID names exists, and fires for it.
func TestVerdictsAreAnswered(t *testing.T) {
	fires := func(alert string) bool {
		return slices.ContainsFunc(rules.Alerts(rules.Groups(rules.Options{})), func(a *rules.Alert) bool {
			return a.Name == alert && strings.Contains(a.Expr.String(), metrics.GPUHealthCondition.Name+`{alert="`+alert+`"}`)
		})
	}
	check := func(condition string, verdict metrics.Verdict, alert string) {
		if alert == "" && verdict >= metrics.Drain {
			t.Errorf("%s is a reason to %s, and no alert answers it", condition, verdict)
		}
		if alert != "" && !fires(alert) {
			t.Errorf("%s is answered by %s, which is no alert or does not read the verdict", condition, alert)
		}
	}
	for _, c := range health.Conditions {
		check(c.Name, c.Verdict, c.Alert)
	}
	for _, x := range metrics.XIDs {
		check("XID", x.Verdict, x.Answer())
	}
}
