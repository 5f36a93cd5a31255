package engine

import (
	"bufio"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// fact is one line of testdata/facts.tsv, which is written from the engines' sources and not from
// the tables of this package.
type fact struct {
	engine, name, kind string
	labels, buckets    []string
	since, until       string
}

type facts []fact

func readFacts(t testing.TB) (all facts) {
	f, err := os.Open("testdata/facts.tsv")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		c := strings.Split(lines.Text(), "\t")
		if strings.HasPrefix(c[0], "#") || c[0] == "engine" {
			continue
		}
		if len(c) != 7 {
			t.Fatalf("facts.tsv: %d columns in %q", len(c), lines.Text())
		}
		all = append(all, fact{c[0], c[1], c[2], strings.Split(c[3], ","), strings.Split(c[4], ","), c[5], c[6]})
	}
	return all
}

// find returns the facts about a family that a dialect reads. Facts about a server also apply to its backends: triton
// for triton_vllm.
func (fs facts) find(d *Dialect, from string) (found facts) {
	for _, f := range fs {
		if strings.HasPrefix(string(d.Runtime)+"_", f.engine+"_") && scrape.FamilyKey(f.name) == scrape.FamilyKey(from) {
			found = append(found, f)
		}
	}
	return found
}

// sourcesOnPages lists the families of all metrics pages below testdata.
func sourcesOnPages(t testing.TB) map[string]bool {
	used := map[string]bool{}
	for _, name := range pages(t) {
		body, err := engineFormat.Sanitise([]byte(readPage(t, name)), name, "text/plain")
		if err != nil {
			continue
		}
		if p, err := engineFormat.Parse(body, "text/plain", scrape.DefaultLimits); err == nil {
			for key := range p.Families {
				used[key] = true
			}
		}
	}
	return used
}

// TestCatalogue checks every row of every dialect against the facts: the source exists with that name and type, has the
// labels that the row reads, and exists in the versions that the row claims.
func TestCatalogue(t *testing.T) {
	all := readFacts(t)
	for _, d := range builtin {
		for i := range d.Rows {
			r := &d.Rows[i]
			known := all.find(d, r.From)
			if known == nil {
				t.Errorf("testdata/facts.tsv: %s has no %s: add it from the engine's source", d.Runtime, r.From)
				continue
			}
			if !slices.ContainsFunc(known, func(f fact) bool { return f.kind == string(r.Is) || f.kind == "info" && r.Is == scrape.Gauge }) {
				t.Errorf("%s: %s is never a %s but a %s", d.Runtime, r.From, r.Is, known[0].kind)
			}
			for _, m := range r.Where {
				if !m.Matches("") && !known.haveLabel(m.Name, m.Value) {
					t.Errorf("%s: %s has no label %s with %s", d.Runtime, r.From, m.Name, m.Value)
				}
			}
			for _, c := range r.Carry {
				if c.From != "finish_reason" && !known.haveLabel(c.From, "") { // spelt so by imitations and early builds
					t.Errorf("%s: %s has no label %s", d.Runtime, r.From, c.From)
				}
			}
			for _, with := range r.With {
				if all.find(d, with) == nil {
					t.Errorf("testdata/facts.tsv: %s has no %s, read with %s: add it from the engine's source", d.Runtime, with, r.From)
				}
			}
			if r.To == nil || r.Fold == nil && r.Part == "" && r.To.Kind.String() != string(r.Is) {
				t.Errorf("%s: %s is a %s, %s is not", d.Runtime, r.From, r.Is, r.To.Name)
			}
			if since, ok := known.firstVersion(); ok && r.Since != "" && older(r.Since, since) {
				t.Errorf("%s: %s is claimed since %s, but exists since %s", d.Runtime, r.From, r.Since, since)
			}
			if until, ok := known.lastVersion(); ok && r.Until != "" && older(until, r.Until) {
				t.Errorf("%s: %s is claimed until %s, but exists until %s", d.Runtime, r.From, r.Until, until)
			}
			for j := range d.Rows[:i] {
				o := &d.Rows[j]
				plain := r.Fold == nil && o.Fold == nil
				if r.Plus && o.To == r.To && slices.Equal(r.Set, o.Set) && (!plain || r.Scale != o.Scale) {
					t.Errorf("%s: %s cannot be added to %s: both have to be plain and in one unit, or have other labels", d.Runtime, r.From, o.From)
				}
			}
			if q := r.quality(); q != metrics.Native && r.Why == "" {
				t.Errorf("%s: %s is %s without a reason", d.Runtime, r.From, q)
			}
		}
	}
}

// haveLabel reports whether the family has a label, in any version. If facts list a label with its value, as for
// Triton, the pattern has to match the value.
func (fs facts) haveLabel(name, pattern string) bool {
	return slices.ContainsFunc(fs, func(f fact) bool {
		return slices.ContainsFunc(f.labels, func(l string) bool {
			label, value, hasValue := strings.Cut(strings.TrimSuffix(strings.Fields(l + " ")[0], "?"), "=")
			return label == name && (!hasValue || pattern == "" || slices.Contains(strings.Split(pattern, "|"), value))
		})
	})
}

// firstVersion is the earliest release that has the family, if the facts name an exact release.
func (fs facts) firstVersion() (string, bool) {
	first := ""
	for _, f := range fs {
		if _, ok := ParseVersion(f.since); !ok || strings.Contains(f.since, "≈") {
			return "", false
		}
		if first == "" || older(f.since, first) {
			first = f.since
		}
	}
	return first, first != ""
}

func (fs facts) lastVersion() (string, bool) {
	last := ""
	for _, f := range fs {
		if _, ok := ParseVersion(f.until); !ok || strings.Contains(f.until, "≈") {
			return "", false
		}
		if last == "" || older(last, f.until) {
			last = f.until
		}
	}
	return last, last != ""
}

// TestEveryLabelHasAPlace checks outLabels: a label of the vocabulary beyond it would be dropped silently.
func TestEveryLabelHasAPlace(t *testing.T) {
	if n := len(metrics.EngineLabels) + len(metrics.DetailLabels); n != outLabels {
		t.Errorf("outLabels in compile.go is %d, want %d", outLabels, n)
	}
}

// TestNothingIsMappedAndMissing requires a reason for a missing quantity only if the quantity has no row, and if
// there is more to explain than its absence from the metrics page.
func TestNothingIsMappedAndMissing(t *testing.T) {
	for _, d := range builtin {
		for to, rows := range quantities(d) {
			why, missing := d.Missing[to]
			if missing && (why == "" || why == (&Dialect{}).Lacks(to)) {
				t.Errorf("%s: no reason why %s is missing: %q", d.Runtime, to.Name, why)
			}
			if len(rows) > 0 && missing {
				t.Errorf("%s: %s is mapped and missing", d.Runtime, to.Name)
			}
		}
	}
}

// TestBucketsArePassedOnAsTheEngineHasThem compares the bounds from each metrics page with the bounds of the facts:
// the engine has every finite bound in some version.
func TestBucketsArePassedOnAsTheEngineHasThem(t *testing.T) {
	all := readFacts(t)
	checked := 0
	for _, name := range pages(t) {
		s := page(t, name)
		for _, d := range builtin {
			for i := range d.Rows {
				r := &d.Rows[i]
				if r.Is != scrape.Histogram || r.Fold != nil || r.Part != "" || len(s.get(t, `llm_engine_up{runtime="`+string(d.Runtime)+`"}`)) == 0 {
					continue
				}
				var bounds []float64
				formula := false // in some versions
				for _, f := range all.find(d, r.From) {
					for _, b := range f.buckets {
						v, err := strconv.ParseFloat(b, 64)
						formula = formula || err != nil && b != ""
						bounds = append(bounds, r.Scale.Apply(v))
					}
				}
				if formula || len(bounds) < 4 || len(s.get(t, `llm_engine_metric_source_info{metric="`+r.To.Name+`",source="`+r.From+`"}`)) == 0 {
					continue // the facts give the grid as a formula, or the metrics page has another source
				}
				for _, sample := range s {
					if sample.labels.Get("__name__") != r.To.Name+"_bucket" {
						continue
					}
					le, _ := strconv.ParseFloat(sample.labels.Get("le"), 64)
					near := func(b float64) bool { return math.Abs(b-le) <= 1e-5*b } // facts print six digits
					if checked++; !math.IsInf(le, 1) && !slices.ContainsFunc(bounds, near) {
						t.Errorf("%s: %s has a bucket %v that %s has not", name, r.To.Name, le, r.From)
					}
				}
			}
		}
	}
	if checked < 500 {
		t.Errorf("only %d buckets were compared", checked)
	}
}
