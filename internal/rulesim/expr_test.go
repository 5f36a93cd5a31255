package rulesim

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// At every evaluation, rules give the engine's result for the same text parsed again, before any series exists and after.
func TestRulesSayWhatTheEngineSays(t *testing.T) {
	exprs := []string{
		"a", "-a", "(a)", "a offset 1m", "a @ end()", "a + 1", "a + on () group_left b", "a > bool 2", "a and on () b", "a or b",
		"a unless on () b",
		"sum by (l) (a)", "topk(1, a)", "quantile(0.5, a)", "count_values(\"v\", a)", "rate(a[3m])", "max_over_time(rate(a[2m])[4m:1m])",
		"label_replace(a, \"m\", \"$1\", \"l\", \"(.*)\")", "histogram_quantile(0.5, a)", "a * (2 - 1)", `{__name__=~"a|b"}`,
		"absent(a)", "absent_over_time(a[2m])", "vector(1)", "vector(time())", "a or vector(1)", "scalar(a) + b", "b * scalar(a)",
		"a > scalar(b) or on () vector(7)", "minute()", "minute(c)",
		"count(a) or on () vector(0)", "c", "c or a", "absent(c)", "scalar(c)", "c or minute()",
		"a unless on () c", "c unless a", "a and on () c", "sum(c) or a", "(c) or -c or sum by (l) (a)", "a or c or on () b",
		"a * on () group_left () c", "a * on () group_left () (c or b)",
		"rate(c[3m]) or a", "max_over_time(rate(c[2m])[4m:1m]) or a", "max_over_time((c or a)[4m:1m])",
		"label_replace(c or a, \"m\", \"$1\", \"l\", \"(.*)\")",
		"absent(c) or a", "absent(c or a)", "a unless on () absent(c)", "late or a", "a unless late", "a + late", "scalar(late) + b",
		"a > scalar(c)", "-c", "1 - c or a",
	}
	var file strings.Builder
	file.WriteString("groups:\n- name: g\n  rules:\n")
	for i, e := range exprs {
		fmt.Fprintf(&file, "  - {record: 'r%d', expr: '%s'}\n", i, e)
	}
	s, err := New([]byte(file.String()))
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	for m := range 10 {
		at := Epoch.Add(time.Duration(m) * time.Minute)
		if err := s.Scrape(at, func(_ time.Time, emit Emit) {
			if m < 2 || m > 7 {
				return
			}
			for i, l := range []string{"x", "y"} {
				emit(labels.FromStrings("__name__", "a", "l", l), float64(m*(i+1)))
			}
			if m > 4 {
				emit(labels.FromStrings("__name__", "late", "l", "y"), float64(m))
			}
			emit(labels.FromStrings("__name__", "b"), float64(m))
		}); err != nil {
			t.Fatal(err)
		}
		if err := s.Eval(at); err != nil {
			t.Fatal(err)
		}
		for i, e := range exprs {
			want, err := s.Query(e+" # anew", at)
			if err != nil {
				t.Fatal(err)
			}
			got, err := s.Query(fmt.Sprintf("r%d # anew", i), at)
			if err != nil {
				t.Fatal(err)
			}
			found := map[string]float64{}
			for _, g := range got {
				found[labels.NewBuilder(g.Metric).Del("__name__").Labels().String()] = g.F
			}
			if len(got) != len(want) {
				t.Errorf("minute %d: %s recorded %v, the engine says %v", m, e, got, want)
			}
			for _, w := range want {
				if f, ok := found[labels.NewBuilder(w.Metric).Del("__name__").Labels().String()]; !ok || f != w.F &&
					!(math.IsNaN(f) && math.IsNaN(w.F)) {
					t.Errorf("minute %d: %s recorded %v, the engine says %v", m, e, got, want)
				}
			}
		}
	}
}
