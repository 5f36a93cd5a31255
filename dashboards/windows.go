package dashboards

import (
	"cmp"
	"slices"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// windows are the burn-rate windows that panels show. They are chosen from the windows of an installation's rules.
type windows struct {
	// fast is the pair that pages first, patient is the longest pair that pages, and slow is the longest of all pairs.
	fast, patient, slow slo.WindowPair
}

func windowsOf(pairs []slo.WindowPair) windows {
	if pairs == nil {
		pairs = slo.DefaultWindowPairs()
	}
	all := slices.SortedFunc(slices.Values(pairs), func(a, b slo.WindowPair) int { return cmp.Compare(a.Long, b.Long) })
	pages := slices.DeleteFunc(slices.Clone(all), func(p slo.WindowPair) bool { return p.Severity != slo.Page })
	return windows{pages[0], pages[len(pages)-1], all[len(all)-1]} // slo.CheckWindowPairs requires a pair that pages
}

// paging returns the windows whose burn rates show early that a page will come. The shortest comes first. The burn
// rates of five minutes and of an hour are recorded whatever the window pairs are.
func (w windows) paging() []string {
	all := []string{"5m", "1h"}
	for _, p := range []slo.WindowPair{w.fast, w.patient} {
		if long := p.Long.String(); !slices.Contains(all, long) {
			all = append(all, long)
		}
	}
	return all
}

// factor returns the burn rate at which a pair fires for an objective of the default period.
func factor(p slo.WindowPair) float64 {
	f, _ := p.SpendFactor(slo.DefaultPeriod).Float64()
	return max(1, f)
}

// firesAt returns a line at the burn rate above which a pair fires.
func (s scope) firesAt(p slo.WindowPair) Query {
	does := "pages"
	if p.Severity == slo.Ticket {
		does = "ticket"
	}
	return Query{promql.Max([]string{metrics.LabelSLO}, s.of(metrics.RecordedBurnThreshold,
		promql.Eq(metrics.LabelLong, p.Long.String()))), does + " for {{slo}}"}
}
