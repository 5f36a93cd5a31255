package rulesim

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// TestColumnsSayWhatTheRuleManagerSays checks that rules over columns record the same values as Prometheus' own rule
// manager, step by step, if rules read themselves, later rules, the past and several series.
func TestColumnsSayWhatTheRuleManagerSays(t *testing.T) {
	names := []string{
		"plain", "ratio", "window", "counted", "mean", "least", "latest", "kept", "cut", "union", "labelled", "sum", "top",
		"self", "reads_later", "later", "grouped", "either", "since", "clock",
	}
	exprs := []string{
		"a", "a / on (l) b", "sum_over_time(a[4m] offset 90s)", "count_over_time(a[3m])", "avg_over_time(a[3m])", "min_over_time(a[5m])",
		"last_over_time(a[3m] offset 1m)",
		"a > 3 and on (l) b", "a unless on (l) (b > 4)", "b or a", `a{l="x"} * 2`, "sum by (m) (a)", "topk(1, a)",
		"a > 12 or (a > 4 and on (l) last_over_time(self[2m]))", "later or on (l) a", "clamp_max(clamp_min(a - 3, 1), 5)",
		"a * on (l) group_left (n) info", "max by (l) (a or b)",
		"((0 * a) + time()) unless last_over_time(since[3m])", "time() - min_over_time(since[10m])",
	}
	var file strings.Builder
	file.WriteString("groups:\n- name: g\n  rules:\n")
	for i, e := range exprs {
		fmt.Fprintf(&file, "  - {record: '%s', expr: '%s', labels: {r: '%d'}}\n", names[i], e, i)
	}
	s, err := New([]byte(file.String()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	const steps = 40
	series := map[string]map[string]string{
		"ax": {"l": "x", "m": "1"}, "ay": {"l": "y", "m": "1"}, "bx": {"l": "x"},
		"info": {"l": "x", "n": "one"},
	}
	values := func(name string, step int) float64 {
		switch {
		case name == "info", name == "ax" && step%7 < 5:
			return float64(step*3%17) + 1
		case name == "ay" && (step < 9 || step > 25), name == "bx" && step%11 != 3:
			return float64(step*5%13) + 1.5
		}
		return math.NaN()
	}
	c := NewColumns(Epoch, time.Minute, steps)
	for name, l := range series {
		column := make([]float64, steps)
		for step := range steps {
			column[step] = values(name, step)
		}
		c.Put(strings.TrimRight(name, "xy"), labels.FromMap(l), column)
	}
	p := parser.NewParser(parser.Options{})
	parsed := func(text string) parser.Expr {
		e, err := p.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	for i, e := range exprs {
		c.Record(names[i], map[string]string{"r": fmt.Sprint(i)}, parsed(e), 1)
	}
	for step := range steps {
		at := Epoch.Add(time.Duration(step) * time.Minute)
		if err := s.Scrape(at, func(_ time.Time, emit Emit) {
			for name, l := range series {
				if v := values(name, step); !math.IsNaN(v) {
					emit(withLabels(labels.FromMap(l), labels.FromStrings("__name__", strings.TrimRight(name, "xy"))), v)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.Eval(at); err != nil {
			t.Fatal(err)
		}
		for i, name := range names {
			recorded, err := s.Query(name, at)
			if err != nil {
				t.Fatal(err)
			}
			want, got := map[string]float64{}, map[string]float64{}
			for _, r := range recorded {
				want[labels.NewBuilder(r.Metric).Del("__name__").Labels().String()] = r.F
			}
			if _, err := c.Eval(parsed(name)); err != nil {
				t.Fatal(err)
			}
			for _, col := range c.series[name] {
				if v := col.values[step]; !math.IsNaN(v) {
					got[col.labels.String()] = v
				}
			}
			if len(got) != len(want) {
				t.Fatalf("step %d: %s = %s is %v in columns, the rule manager records %v", step, name, exprs[i], got, want)
			}
			for l, v := range want {
				if math.Abs(got[l]-v) > 1e-9 {
					t.Fatalf("step %d: %s = %s is %v in columns, the rule manager records %v", step, name, exprs[i], got, want)
				}
			}
		}
	}
}

// TestColumnsRefuse checks that columns refuse, and name, expressions that they cannot evaluate.
func TestColumnsRefuse(t *testing.T) {
	p := parser.NewParser(parser.Options{})
	for _, text := range []string{"rate(a[5m])", "quantile(0.5, a)", "a == bool 1", "-a", "absent(a)", "sum without (l) (a)", "a ^ 2"} {
		e, err := p.ParseExpr(text)
		if err != nil {
			t.Fatal(err)
		}
		c := NewColumns(Epoch, time.Minute, 1)
		c.Put("a", labels.EmptyLabels(), []float64{1})
		if _, err := c.Eval(e); err == nil || !strings.Contains(err.Error(), e.String()) {
			t.Errorf("%s: %v", text, err)
		}
	}
}
