package dashboards_test

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	drill "github.com/llm-node-exporter/llm-node-exporter/drill/play"
	query "github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// ranges lists the ranges over which a reader looks.
var ranges = []time.Duration{15 * time.Minute, time.Hour, 6 * time.Hour, 7 * 24 * time.Hour, 30 * 24 * time.Hour}

// overEveryRange checks the panels over every range, one by one and with each other.
func (s shown) overEveryRange(t *testing.T) {
	t.Helper()
	for _, b := range boards(t) {
		s.overRanges(t, b)
	}
	s.agree(t)
	s.burnsAgree(t)
}

// interval returns the time between two points of a graph that is so many pixels wide, as Grafana rounds it.
func interval(window time.Duration, pixels int) time.Duration {
	exact := max(window/time.Duration(pixels), drill.ScrapeInterval)
	for _, of := range [][2]time.Duration{
		{45 * time.Second, 30 * time.Second},
		{90 * time.Second, time.Minute},
		{210 * time.Second, 2 * time.Minute},
		{450 * time.Second, 5 * time.Minute},
		{750 * time.Second, 10 * time.Minute},
		{1050 * time.Second, 15 * time.Minute},
		{25 * time.Minute, 20 * time.Minute},
		{45 * time.Minute, 30 * time.Minute},
		{90 * time.Minute, time.Hour},
		{150 * time.Minute, 2 * time.Hour},
		{270 * time.Minute, 3 * time.Hour},
	} {
		if exact < of[0] {
			return of[1]
		}
	}
	return 6 * time.Hour
}

// rateOver returns the window of rates between such points.
func rateOver(step time.Duration) time.Duration {
	return max(step+drill.ScrapeInterval, 4*drill.ScrapeInterval)
}

// overRanges checks that a panel's results do not depend on the length of the range, except results about the range
// itself.
func (s shown) overRanges(t *testing.T, b board) {
	t.Helper()
	for _, p := range b.flat() {
		for _, window := range ranges {
			if p.Type == "timeseries" {
				(screen{s.sim, s.to}).emptyOver(t, b, p, window)
			}
			step := interval(window, 52*p.GridPos.W)
			at := func(expr string, rate time.Duration) promql.Vector {
				v, err := s.sim.Query(b.substituteEvery(t, expr, window, step, rate), s.to)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			for _, q := range p.Targets {
				switch {
				case p.Type == "state-timeline":
					s.nothingLost(t, b, p.Title, q.Expr, window, step)
				case q.Instant && !strings.Contains(q.Expr, "$__range"):
					if strings.Contains(q.Expr, "$__") {
						t.Errorf("%s: %s says what is now by a range: %s", b.Title, p.Title, q.Expr)
					}
				case q.Instant: // events within the range
					now, all := byLabels(at(q.Expr, 0)), byLabels(at(strings.ReplaceAll(q.Expr, "$__range", "2h"), 0))
					for name, when := range all {
						age := s.to.Sub(time.UnixMilli(int64(when)))
						if _, ok := now[name]; age < window-2*time.Minute != ok && age < window {
							t.Errorf("%s: %s over %s: %s, %s ago, is told: %t", b.Title, p.Title, window, name, age, ok)
						}
					}
				default:
					s.between(t, b, p, q, window, at(q.Expr, rateOver(step)), rateOver(step))
				}
			}
		}
	}
	for _, a := range b.Annotations.List[1:] {
		for _, window := range ranges {
			s.nothingLost(t, b, a.Name, a.Expr, window, interval(window, 1280))
		}
	}
}

// byLabels returns the values of a vector by its labels.
func byLabels(v promql.Vector) map[string]float64 {
	all := map[string]float64{}
	for _, s := range v {
		all[s.Metric.String()] = s.F
	}
	return all
}

// nothingLost checks that a longer range still shows everything that a timeline or a mark shows at its finest. The
// points may lie anywhere; here, one lies at the end. If a page is shorter than the time between two points, or
// begins again within it, its end may come with the next point.
func (s shown) nothingLost(t *testing.T, b board, title, expr string, window, step time.Duration) {
	t.Helper()
	last := func(from, to time.Time, step, rate time.Duration) map[string]int64 { // when each series last existed, in ms
		m, _, err := s.sim.Range(b.substituteEvery(t, expr, window, step, rate), from, to, step)
		if err != nil {
			t.Fatal(err)
		}
		all := map[string]int64{}
		for _, l := range m {
			all[l.Metric.String()] = l.Floats[len(l.Floats)-1].T
		}
		return all
	}
	from := s.to.Add(-min(window, s.to.Sub(s.from)))
	points := (s.to.Sub(from) + step - 1) / step
	drawn, fine := last(s.to.Add(-points*step), s.to, step, rateOver(step)), last(from, s.to, time.Minute, rateOver(drill.ScrapeInterval))
	for name, ended := range fine {
		begun, isEnd := fine[strings.Replace(name, `state="ends"`, `state="begins"`, 1)]
		isEnd = isEnd && strings.Contains(name, `state="ends"`)
		if _, ok := drawn[name]; !ok && !(isEnd && max(begun-ended, ended-begun) <= step.Milliseconds()) {
			t.Errorf("%s: %s over %s does not show %s", b.Title, title, window, name)
		}
	}
}

// between checks the last values of a graph. A count over a window must lie between the counts of the windows of half
// that length within it. Any other value must be unchanged. All existing lines must be drawn, up to the number of lines
// that a panel has.
func (s shown) between(t *testing.T, b board, p panel, q target, window time.Duration, drawn promql.Vector, rate time.Duration) {
	t.Helper()
	ungated := q.Expr
	most := math.MaxInt
	e, err := query.Parser.ParseExpr(b.substitute(t, q.Expr))
	if err != nil {
		t.Fatal(err)
	}
	if a, ok := e.(*parser.AggregateExpr); ok && a.Param != nil && p.Type == "timeseries" {
		most = 20 / len(p.Targets)
		ungated = strings.TrimSuffix(ungated[strings.Index(ungated, ", ")+2:], ")")
	}
	// n samples span n-1 of the intervals between them, so that halves meet and do not overlap
	span := rate - drill.ScrapeInterval
	half := max((span / 2).Truncate(drill.ScrapeInterval), drill.ScrapeInterval)
	apart, from := max(span/10, drill.ScrapeInterval), s.to
	if strings.Contains(q.Expr, "$__rate_interval") {
		from = s.to.Add(half - span)
	}
	m, _, err := s.sim.Range(b.substituteEvery(t, ungated, window, time.Minute, half+drill.ScrapeInterval), from, s.to, apart)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[string]promql.Series{}
	last := 0
	for _, l := range m {
		lines[l.Metric.String()] = l
		if l.Floats[len(l.Floats)-1].T == s.to.UnixMilli() {
			last++
		}
	}
	if len(drawn) < min(last, most) {
		t.Errorf("%s: %s over %s draws %d of %d lines", b.Title, p.Title, window, len(drawn), last)
	}
	for name, v := range byLabels(drawn) {
		within := lines[name].Floats
		lo, hi := band(within, func(int64) bool { return true })
		if math.IsNaN(v) || lo > hi {
			continue
		}
		if counts(e) && len(within) <= int(s.to.Sub(from)/apart) { // no event was counted where nothing was recorded
			lo /= float64(span / half)
		}
		if slack := 0.1*math.Abs(hi) + 1e-9; v < lo-slack || v > hi+slack {
			t.Errorf("%s: %s over %s is %g, between points %g to %g: %s", b.Title, p.Title, window, v, lo, hi, name)
		}
	}
}

// counts reports whether the value of an expression is a count per second, which a window of twice the length halves if
// no more events are recorded. A quantile, or a count divided by another, stays the same.
func counts(e parser.Expr) bool {
	switch e := e.(type) {
	case *parser.ParenExpr:
		return counts(e.Expr)
	case *parser.AggregateExpr:
		return counts(e.Expr)
	case *parser.BinaryExpr:
		if e.Op == parser.DIV || e.Op == parser.MUL {
			return counts(e.LHS) != counts(e.RHS)
		}
		return counts(e.LHS)
	case *parser.Call:
		return e.Func.Name == "rate" || e.Func.Name != "histogram_quantile" && slices.ContainsFunc(e.Args, counts)
	}
	return false
}

// told is the result of a query of a panel, or of every query of it together, folded over its lines.
type told struct {
	board, panel string
	query        int
	fold         func(lo, hi, sum float64) float64
}

const everyQuery = -1

func least(lo, _, _ float64) float64   { return lo }
func largest(_, hi, _ float64) float64 { return hi }
func total(_, _, sum float64) float64  { return sum }

// sameFacts lists the facts that several panels state.
var sameFacts = map[string][]told{
	"fastest burn": {{"llm-incident", "Burn rate now", everyQuery, largest}, {"llm-incident", "Burn rate by window", 0, largest}},
	"burn of an hour": {
		{"llm-incident", "Burn rate by window", 1, largest},
		{"llm-slo", "Fastest burn, 1 hour", 0, largest},
		{"llm-slo", "Burn rate, fast window", 0, largest},
	},
	"least budget": {
		{"llm-incident", "Budget left", 0, least},
		{"llm-slo", "Least budget left", 0, least},
		{"llm-slo", "Budget burn-down", 0, least},
	},
	"fullest KV cache":    {{"llm-incident", "KV cache in use, fullest replica", 0, largest}, {"llm-engine", "KV cache in use", 0, largest}},
	"first tokens":        {{"llm-incident", "Time to first token, p95", 0, largest}, {"llm-engine", "Time to first token", 1, largest}},
	"time between tokens": {{"llm-incident", "Inter-token latency, p95", 0, largest}, {"llm-engine", "Inter-token latency", 1, largest}},
	"preemptions":         {{"llm-incident", "Preemptions", 0, total}, {"llm-engine", "Preemptions", 0, total}},
	"waiting":             {{"llm-incident", "Waiting by replica", 0, total}, {"llm-engine", "Running and waiting", 1, total}},
	"generated tokens": {{"llm-engine", "Tokens", 0, total}, {"llm-engine", "Goodput", 1, total}, {
		"llm-fleet", "Generated tokens", 0,
		total,
	}},
	"alerts": {
		{"llm-incident", "Firing alerts", 0, nil},
		{"llm-incident", "Alerts over time", 0, nil},
		{"llm-slo", "Alerts", 0, nil},
	},
	"throttled GPUs": {{"llm-incident", "Throttling", 0, nil}, {"llm-gpu", "Clock events", 0, nil}},
}

// agree checks that all panels about the same fact agree, over any range, with the points and rates that Grafana uses for
// it.
func (s shown) agree(t *testing.T) {
	t.Helper()
	all := boards(t)
	for fact, panels := range sameFacts {
		for _, window := range ranges {
			var said []string
			for _, is := range panels {
				step, rate := time.Minute, 2*time.Minute // a longer step also shows alerts that have ended
				if is.fold != nil {
					step = interval(window, 700) // half of a screen
					rate = rateOver(step)
				}
				b := all[slices.IndexFunc(all, func(b board) bool { return b.UID == is.board })]
				p := b.titled(is.panel)
				queries := p.Targets
				if is.query != everyQuery {
					queries = queries[is.query : is.query+1]
				}
				var v promql.Vector
				for _, q := range queries {
					found, err := s.sim.Query(b.substituteEvery(t, q.Expr, window, step, rate), s.to)
					if err != nil {
						t.Fatal(err)
					}
					v = append(v, found...)
				}
				if is.fold == nil {
					names := map[string]bool{}
					for _, l := range v {
						names[cmp.Or(l.Metric.Get("alertname"), l.Metric.Get("gpu_uuid"))] = true
					}
					said = append(said, fmt.Sprint(slices.Sorted(maps.Keys(names))))
					continue
				}
				lo, hi, sum := math.Inf(1), math.Inf(-1), 0.0
				for _, l := range v {
					lo, hi, sum = min(lo, l.F), max(hi, l.F), sum+l.F
				}
				said = append(said, fmt.Sprintf("%.3g of %t", is.fold(lo, hi, sum), len(v) > 0))
			}
			if len(slices.Compact(said)) > 1 {
				t.Errorf("%s over %s: %q", fact, window, said)
			}
		}
	}
}

// burnsAgree checks that the table of burning models agrees with the graph beside it for each model: the fastest burn,
// the bad events in words only if there are any, "no events" if there is no line, and no row if nothing burns.
func (s shown) burnsAgree(t *testing.T) {
	t.Helper()
	view, b := screen{s.sim, s.to}, boards(t)[0]
	drawn := map[string]float64{}
	for _, l := range view.ask(t, b, b.titled("Burn rate by window").Targets[0].Expr) {
		of := l.Metric.Get(metrics.LabelNamespace) + " " + l.Metric.Get(metrics.LabelModel)
		drawn[of] = max(drawn[of], l.F)
	}
	for _, r := range view.rows(t, b, b.titled("Where to look first")) {
		of := r["namespace"] + " " + r["model"]
		burns, counted := drawn[of]
		delete(drawn, of)
		says, bad := "no events", ""
		switch {
		case counted && burns > 0:
			says, bad = view.number(burns, "suffix:x"), r["what is bad"]
		case counted:
			says, bad = "0x", "no event in 5 minutes"
		}
		if r["burn"] != says || r["what is bad"] != bad || burns > 0 && bad == "" {
			t.Errorf("the burn is %q and %q is bad, while the graph shows %g (%t): %v", r["burn"], r["what is bad"], burns, counted, r)
		}
	}
	for of, burns := range drawn {
		if burns > 1 {
			t.Errorf("%s burns at %g, and no row says so", of, burns)
		}
	}
}
