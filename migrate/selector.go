package migrate

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// selected is a rewritten selector, with the operations that turn its result into the result of the old selector.
type selected struct {
	*parser.VectorSelector
	of    *equal
	infos map[*metrics.Family]*joined
}

// joined describes the join with an info metric: conditions on its labels, and the labels to copy from it.
type joined struct {
	where []*labels.Matcher
	take  []string
}

// selector rewrites a selector. nil means that the selector is about other software.
func (r *rewriter) selector(v *parser.VectorSelector) (*selected, error) {
	if v.Name == "" {
		return nil, byPattern(v)
	}
	found, why := find(v.Name)
	if why != "" {
		return nil, fmt.Errorf("%s: %s", v.Name, why)
	}
	if len(found) == 0 {
		return nil, nil
	}
	e, err := choose(v, found)
	if err != nil {
		return nil, err
	}
	copied := *v
	out := &selected{VectorSelector: &copied, of: e, infos: map[*metrics.Family]*joined{}}
	copied.Name = e.to.Name + e.part
	copied.LabelMatchers = []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, model.MetricNameLabel, copied.Name)}
	narrowed := map[string]bool{}
	for _, m := range v.LabelMatchers {
		if m.Name == model.MetricNameLabel || slices.ContainsFunc(e.where, func(w *labels.Matcher) bool { return w.Name == m.Name }) {
			continue
		}
		if err := r.condition(out, m, narrowed); err != nil {
			return nil, err
		}
	}
	for _, m := range e.only {
		if !narrowed[m.Name] {
			copied.LabelMatchers = append(copied.LabelMatchers, m)
		}
	}
	for _, more := range e.differs {
		r.notes = append(r.notes, v.Name+": "+more)
	}
	if e.newer {
		r.notes = append(r.notes, fmt.Sprintf("%s: %s counts those with %s", v.Name, e.to.Name, e.where[0]))
	}
	r.take(out)
	return out, nil
}

// byPattern refuses a selector if its name is a pattern that matches old metrics.
func byPattern(v *parser.VectorSelector) error {
	for _, m := range v.LabelMatchers {
		if m.Name == model.MetricNameLabel && migratable(m.Value) {
			return fmt.Errorf("%s selects by a pattern of names", v)
		}
	}
	return nil
}

// take joins the info metrics for wanted labels that the family lacks.
func (r *rewriter) take(out *selected) {
	for _, name := range slices.Sorted(maps.Keys(r.wanted)) {
		to, ok := out.of.label(name)
		if !ok || !r.wanted[name] {
			continue
		}
		if info := out.of.info(to.name); info != nil && !r.hasOf[info] {
			out.info(info).take = append(out.info(info).take, to.name)
		}
	}
}

// choose picks the equal for the part of the old series that a selector selects. If several engines have the same equal
// for a name, these equals count as one.
func choose(v *parser.VectorSelector, found []equal) (*equal, error) {
	var best *equal
	for i := range found {
		e := found[i]
		if !e.fits(v) {
			continue
		}
		if best == nil {
			best = &e
			continue
		}
		if (!e.old || migratable(v.Name)) && e.sameAs(best) {
			both := strings.Split(best.only[0].Value, "|")
			if !slices.Contains(both, e.only[0].Value) {
				best.only = []*labels.Matcher{labels.MustNewMatcher(labels.MatchRegexp, metrics.LabelRuntime, best.only[0].Value+"|"+e.only[0].Value)}
			}
		}
	}
	if best == nil {
		return nil, fmt.Errorf("%s has an equivalent only where %s", v.Name, found[0].where[0])
	}
	return best, nil
}

// fits reports whether a selector selects the part of the old series that an equal represents.
func (e *equal) fits(v *parser.VectorSelector) bool {
	for _, w := range e.where {
		i := slices.IndexFunc(v.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == w.Name })
		if i < 0 && !e.newer || i >= 0 && (v.LabelMatchers[i].Type != labels.MatchEqual || !w.Matches(v.LabelMatchers[i].Value)) {
			return false
		}
	}
	return true
}

// sameAs reports whether two equals are the same except for their engine.
func (e *equal) sameAs(o *equal) bool {
	byEngine := func(e *equal) bool { return len(e.only) == 1 && e.only[0].Name == metrics.LabelRuntime }
	return e.to == o.to && e.part == o.part && e.unit == o.unit && len(o.where) == 0 &&
		byEngine(e) && byEngine(o) && e.only[0].Value != o.only[0].Value
}

// condition adds the equivalent of one matcher of the old selector to the new selector.
func (r *rewriter) condition(out *selected, m *labels.Matcher, narrowed map[string]bool) error {
	to, ok := out.of.label(m.Name)
	name, said := r.Labels[m.Name]
	switch {
	case ok:
	case said && name == "":
		return nil
	case said:
		to = mapped{name: name}
	case slices.Contains(workload, m.Name):
		out.info(metrics.GPUAllocationInfo).where = append(out.info(metrics.GPUAllocationInfo).where,
			labels.MustNewMatcher(m.Type, strings.TrimPrefix(m.Name, "exported_"), m.Value))
		return nil
	case m.Name == "job" && variable.MatchString(m.Value):
		to = mapped{name: m.Name}
	case slices.Contains(ofScrape[:4], m.Name) && !variable.MatchString(m.Value) && m.Type == labels.MatchEqual:
		r.notes = append(r.notes, fmt.Sprintf("%s describes the old scrape, and was left out", m))
		return nil
	default:
		return fmt.Errorf("label %s has no equivalent on %s: rename it with --label=%s=NAME, or drop it with --label=%s=", m.Name,
			out.of.to.Name, m.Name, m.Name)
	}
	if to.name == "" {
		return nil // the label's values repeat one number
	}
	converted, note, err := to.matcher(m)
	if err != nil {
		return err
	}
	if note != "" {
		r.notes = append(r.notes, note)
	}
	if info := out.of.info(to.name); info != nil {
		out.info(info).where = append(out.info(info).where, converted)
		return nil
	}
	if ok && !out.of.to.HasLabel(to.name) && out.of.to.Owner == metrics.GPU && !slices.Contains(promql.ScrapeLabels, to.name) {
		return fmt.Errorf("label %s has no equivalent on %s", m.Name, out.of.to.Name)
	}
	narrowed[to.name] = to.carry != nil
	out.LabelMatchers = append(out.LabelMatchers, converted)
	return nil
}

// workload lists the labels of the pod that uses a GPU. The other exporter has them without the prefix, which
// Prometheus adds if the scrape sets the same labels.
var workload = []string{"exported_namespace", "exported_pod", "exported_container"}

func (s *selected) info(f *metrics.Family) *joined {
	if s.infos[f] == nil {
		s.infos[f] = &joined{}
	}
	return s.infos[f]
}

// finish converts the result of a selector, or of a function over it, into the result of the old selector. Buckets keep
// their unit.
func (s *selected) finish(e parser.Expr) (parser.Expr, shape) {
	out := shape{of: []*equal{s.of}, defined: map[string]bool{}, extra: map[string]bool{}}
	for _, m := range s.of.only {
		if m.Name != metrics.LabelRuntime && m.Name != metrics.LabelGPUInstance {
			out.extra[m.Name] = true
		}
	}
	if len(s.of.over) > 0 {
		e = &parser.AggregateExpr{Op: parser.SUM, Expr: e, Grouping: s.of.over, Without: true}
	}
	for _, f := range []*metrics.Family{metrics.GPUInfo, metrics.GPUMIGInfo, metrics.GPUAllocationInfo} {
		j := s.infos[f]
		if j == nil {
			continue
		}
		on := []string{metrics.LabelGPUUUID}
		if f.HasLabel(metrics.LabelGPUInstance) && s.of.to.HasLabel(metrics.LabelGPUInstance) {
			on = append(on, metrics.LabelGPUInstance)
		}
		info := promql.Vector(f, j.where...)
		if len(j.take) > 0 {
			e = promql.Mul(e, info, promql.On(on...).ManyToOne(j.take...))
		} else {
			e = promql.And(e, info, promql.On(on...))
		}
	}
	if s.of.part == "_bucket" {
		out.le = s.of.unit
		return e, out
	}
	if s.of.part == "_count" {
		return e, out
	}
	return back(e, s.of.unit), out
}

// back undoes a conversion of units.
func back(e parser.Expr, unit metrics.Scale) parser.Expr {
	if unit.Mul != 0 && unit.Mul != 1 {
		e = promql.Div(e, promql.Num(unit.Mul))
	}
	if unit.Div != 0 && unit.Div != 1 {
		e = promql.Mul(e, promql.Num(unit.Div))
	}
	return e
}

func (r *rewriter) vector(v *parser.VectorSelector) (parser.Expr, shape, error) {
	if s, ok := r.recorded[v.Name]; ok {
		copied, err := s.conditions(v, r.Options)
		return copied, s, err
	}
	s, err := r.selector(v)
	if err != nil {
		return nil, shape{}, err
	}
	if s == nil {
		return v, shape{foreign: true}, nil
	}
	var e parser.Expr = s.VectorSelector
	if s.of.rate {
		window := r.Window
		if window == 0 {
			window = 5 * time.Minute
		}
		e = promql.Rate(s.VectorSelector, window)
		r.notes = append(r.notes, v.Name+" was the rate at one moment; this is the mean over a range")
	}
	out, of := s.finish(e)
	return out, of, nil
}
