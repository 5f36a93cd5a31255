package triage

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// gap explains why no value shows whether a fault exists. It has a reason in words (says), or names a family without a
// series of the model.
type gap struct {
	kind   gapKind
	says   string
	family string
}

// gapKind is what a missing value means for a clue that reads it.
type gapKind int

const (
	feature gapKind = iota // the engine has no feature that could fail this way
	number                 // a value is missing
	thing                  // no series of this kind is read, so the clue cannot apply, whatever its other values are
)

// These gaps are common to many families.
var (
	noGPU       = gap{kind: thing, says: "no GPU was read"}
	noGPUOf     = gap{kind: thing, says: "the model's GPU is unknown"}
	noProcesses = gap{kind: number, says: "what other processes do on the GPU is unknown"}
	noCPU       = gap{kind: number, says: "how long the engine waits for a CPU is unknown"}
	noGateway   = gap{kind: thing, says: "no gateway was read"}
	noProbe     = gap{kind: thing, says: "no synthetic requests are sent"}
	noEngine    = gap{kind: number, says: "no engine was read"}
	noSibling   = gap{kind: thing, says: "no other replica was read"}
	noRequest   = gap{kind: number, says: "no request came between the readings"}
	tooLittle   = gap{kind: number, says: "too few requests came between the readings"}
	noYesterday = gap{kind: number, says: "two readings cannot show it"}
	forgotten   = gap{kind: number, says: "Prometheus has not recorded the day before"}
	justStarted = gap{kind: thing, says: "an engine started in the last hour, and settings that it does not report may have changed"}
)

// features lists prefixes of families that engines have only while a feature is in use.
var features = []string{
	"llm_engine_kv_t", "llm_engine_spec_", "llm_engine_model_", "llm_engine_models_", "llm_engine_lora",
	"llm_engine_external_", "llm_engine_config_", "llm_gateway_",
}

// prover finds out whether the clues of a model would have shown a fault.
type prover struct {
	*judge
	model    subject
	traffic  traffic
	gpus     map[string]bool // GPUs of the model
	pages    map[string]bool // metrics endpoints of the model
	read     bool            // the metrics endpoint of an engine of the model is read
	visiting map[string]bool // recorded families whose rule is being examined now
}

func (j *judge) prover(m subject, t traffic) (*prover, error) {
	p := &prover{judge: j, model: m, traffic: t, gpus: map[string]bool{}, pages: map[string]bool{}, visiting: map[string]bool{}}
	for _, of := range []struct {
		x    promql.Expr
		into map[string]bool
		key  func(labels.Labels) string
	}{
		{promql.Vector(metrics.RecordedServedGPU, m.matchers()...), p.gpus, func(l labels.Labels) string { return l.Get(metrics.LabelGPUUUID) }},
		{promql.Vector(metrics.RecordedServed, m.matchers()...), p.pages, page},
	} {
		found, err := j.query(of.x)
		if err != nil {
			return nil, err
		}
		for _, s := range found {
			of.into[of.key(s.Metric)] = true
		}
	}
	up, err := j.query(promql.Equal(promql.Vector(metrics.EngineUp), promql.Num(1)))
	p.read = slices.ContainsFunc(up, func(s engine.Sample) bool { return p.pages[page(s.Metric)] })
	return p, err
}

// concerns reports whether a series is about the model.
func (p *prover) concerns(l labels.Labels) bool {
	switch {
	case l.Get(metrics.LabelModel) != "":
		return subjectOf(l) == p.model || l.Get(metrics.LabelNamespace) == "" && l.Get(metrics.LabelModel) == p.model.name
	case l.Get(metrics.LabelGPUUUID) != "":
		return p.gpus[l.Get(metrics.LabelGPUUUID)]
	case l.Get(metrics.LabelServer) != "" && l.Get(metrics.LabelRole) != metrics.GatewayRole:
		return p.pages[page(l)]
	}
	return true
}

// empty reports whether an expression has no result for the model.
func (p *prover) empty(x promql.Expr) (bool, error) {
	result, err := p.query(x)
	return !slices.ContainsFunc(result, func(s engine.Sample) bool { return p.concerns(s.Metric) }), err
}

// gaps returns the reasons why an empty result of an expression does not prove the absence of a fault. There are none
// if a fault would give the expression a result. If one operand of an operation such as "and" is certainly empty, so is
// the result, and there are no gaps, unless an operand is about a thing that is not read, such as a GPU.
func (p *prover) gaps(x promql.Expr) ([]gap, error) {
	switch x := x.(type) {
	case *parser.ParenExpr:
		return p.gaps(x.Expr)
	case *parser.AggregateExpr:
		return p.gaps(x.Expr)
	case *parser.UnaryExpr:
		return p.gaps(x.Expr)
	case *parser.MatrixSelector:
		return p.selected(x.VectorSelector.(*parser.VectorSelector), x.Range > present)
	case *parser.VectorSelector:
		return p.selected(x, false)
	case *parser.Call:
		return p.call(x)
	case *parser.BinaryExpr:
		return p.binary(x)
	}
	return nil, nil
}

// call returns the gaps of a function call. A window that is longer than present needs the past, with three exceptions:
// what a metrics endpoint last reported about itself, which the exporter remembers; XIDs, whose times the exporter has;
// and counters that are still 0.
func (p *prover) call(x *parser.Call) (all []gap, err error) {
	for _, arg := range x.Args {
		m, ok := arg.(*parser.MatrixSelector)
		if !ok {
			more, err := p.gaps(arg)
			if err != nil {
				return nil, err
			}
			all = append(all, more...)
			continue
		}
		s := m.VectorSelector.(*parser.VectorSelector)
		known := s.Name == metrics.GPUXIDErrors.Name || x.Func.Name == "increase" && p.neverRose(s) ||
			x.Func.Name == "last_over_time" && metrics.Lookup(s.Name) != nil && p.recordsOf(s) == nil
		more, err := p.selected(s, m.Range > present && !known)
		if err != nil {
			return nil, err
		}
		// If the engines are old enough, their lifetimes represent the past.
		if x.Func.Name == "rate" && s.OriginalOffset > present && p.past == nil && len(p.pages) > 0 && p.allAged() {
			more = slices.DeleteFunc(more, func(g gap) bool { return g == noYesterday })
		}
		all = append(all, more...)
	}
	return all, nil
}

// allAged reports whether the lifetime of each engine of the model represents the past.
func (p *prover) allAged() bool {
	for page := range p.pages {
		if p.aged[page] == 0 {
			return false
		}
	}
	return true
}

// neverRose reports whether a counter of the model is still 0. Then it has not risen in any window.
func (p *prover) neverRose(s *parser.VectorSelector) bool {
	for _, one := range p.memory[s.Name] {
		if p.concerns(one.labels) && matches(one.labels, s.LabelMatchers) && one.samples[len(one.samples)-1].F() != 0 {
			return false
		}
	}
	return true
}

// side describes an operand: its gaps, and whether its result is empty.
type side struct {
	gaps  []gap
	empty bool
}

// holds reports whether the side certainly has a result. lacks reports whether it certainly has none.
func (s side) holds() bool { return len(s.gaps) == 0 && !s.empty }
func (s side) lacks() bool { return len(s.gaps) == 0 && s.empty }

// binary returns the gaps of an operation with two operands.
func (p *prover) binary(x *parser.BinaryExpr) ([]gap, error) {
	if x.LHS.Type() == parser.ValueTypeScalar {
		return p.gaps(x.RHS)
	}
	var left, right side
	var err error
	if left.gaps, err = p.gaps(x.LHS); err != nil || x.RHS.Type() == parser.ValueTypeScalar {
		return left.gaps, err
	}
	if left.empty, err = p.empty(x.LHS); err != nil || x.Op == parser.LUNLESS {
		return left.gaps, err
	}
	if right.gaps, err = p.gaps(x.RHS); err != nil {
		return nil, err
	}
	both := slices.Concat(left.gaps, right.gaps)
	if x.Op != parser.LOR && slices.ContainsFunc(both, thing.is) {
		return slices.DeleteFunc(both, func(g gap) bool { return g.kind != thing }), nil
	}
	if right.empty, err = p.empty(x.RHS); err != nil {
		return nil, err
	}
	switch {
	case x.Op == parser.LOR:
		return eitherOf(left, right), nil
	case x.Op == parser.DIV && right.lacks():
		return append(left.gaps, p.nothingIn(x.RHS)), nil
	case left.lacks() || right.lacks():
		return nil, nil
	}
	return both, nil
}

// is reports whether a gap is of a kind.
func (k gapKind) is(g gap) bool { return g.kind == k }

// eitherOf returns the gaps of an "or". If one side certainly has a result, there are none. If one side is about a
// feature that the engine lacks, only the other side has gaps.
func eitherOf(left, right side) []gap {
	switch {
	case left.holds() || right.holds():
		return nil
	case slices.ContainsFunc(left.gaps, feature.is):
		return right.gaps
	case slices.ContainsFunc(right.gaps, feature.is):
		return left.gaps
	}
	return slices.Concat(left.gaps, right.gaps)
}

// nothingIn returns the gap of a division whose divisor (x) has no value.
func (p *prover) nothingIn(x promql.Expr) gap {
	why := tooLittle
	if p.traffic.came() == 0 {
		why = noRequest
	}
	parser.Inspect(x, func(n parser.Node, _ []parser.Node) error {
		if s, ok := n.(*parser.VectorSelector); ok {
			for _, r := range p.recordsOf(s) {
				if strings.HasSuffix(r.Labels[metrics.LabelFact], ofBefore) {
					why = p.unknownPast()
				}
			}
		}
		return nil
	})
	return why
}

func (p *prover) unknownPast() gap {
	if p.past == nil {
		return noYesterday
	}
	return forgotten
}

// recordsOf returns the rules that record the series that a selector reads.
func (p *prover) recordsOf(s *parser.VectorSelector) (found []rules.Record) {
	for _, r := range p.records {
		if r.Name.Name == s.Name && !slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool {
			value, set := r.Labels[m.Name]
			return set && !m.Matches(value)
		}) {
			found = append(found, r)
		}
	}
	return found
}

// asked narrows the expression of a rule to the stage, or the fact, that a selector of the rule's record selects.
func asked(x promql.Expr, by *parser.VectorSelector) promql.Expr {
	x = promql.Where(x)
	for _, m := range by.LabelMatchers {
		if m.Name != metrics.LabelStage && m.Name != metrics.LabelFact {
			continue
		}
		parser.Inspect(x, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok && promql.Lookup(s.Name).HasLabel(m.Name) {
				if wanted := alternatives(m, s); wanted != "" {
					s.LabelMatchers = append(s.LabelMatchers, promql.Either(m.Name, wanted))
				}
			}
			return nil
		})
	}
	return x
}

// alternatives returns those values of a matcher that a selector also admits. For a selector of the day before, it
// returns their names with the suffix.
func alternatives(m *labels.Matcher, s *parser.VectorSelector) string {
	var all []string
	for value := range strings.SplitSeq(m.Value, "|") {
		for _, name := range []string{value, value + ofBefore} {
			if !slices.ContainsFunc(s.LabelMatchers, func(own *labels.Matcher) bool { return own.Name == m.Name && !own.Matches(name) }) {
				all = append(all, name)
				break
			}
		}
	}
	return strings.Join(all, "|")
}

// selected returns the gaps of a selector. For a recorded series, these are the gaps of its rule. For any other family,
// there is a gap if the model has no series of it.
func (p *prover) selected(s *parser.VectorSelector, back bool) ([]gap, error) {
	if (back || s.OriginalOffset > present) && p.past == nil {
		return []gap{noYesterday}, nil
	}
	if recorded := p.recordsOf(s); recorded != nil && !p.visiting[s.Name] {
		return p.recorded(s, recorded)
	}
	gateway := slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool { return m.String() == rolesOfGateways })
	family := p.witness(strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(s.Name, "_sum"), "_count"), "_bucket"))
	f := metrics.Lookup(family)
	if f == nil {
		return nil, nil
	}
	if f.Kind == metrics.Histogram {
		family += "_count"
	}
	ofStage := func(stage string) bool {
		return !slices.ContainsFunc(s.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == metrics.LabelStage && !m.Matches(stage) })
	}
	if slices.Contains([]*metrics.Family{metrics.StageTime, metrics.StageTokens, metrics.Stages}, f) { // parts of another family
		f = metrics.All()[slices.IndexFunc(metrics.All(), func(h *metrics.Family) bool {
			stage, _ := h.Stage()
			return stage != "" &&
				ofStage(stage)
		})]
	}
	for _, one := range p.memory[family] {
		last := one.samples[len(one.samples)-1]
		there := ofStage(one.labels.Get(metrics.LabelStage)) && last.T() == p.at.UnixMilli() && !math.IsNaN(last.F()) &&
			(family != metrics.GPUXIDSourceUp.Name || last.F() > 0)
		if there && p.concerns(one.labels) && (one.labels.Get(metrics.LabelRole) == metrics.GatewayRole) == gateway {
			return nil, nil
		}
	}
	return []gap{p.missing(f.Name, gateway)}, nil
}

// recorded returns the gaps of the rules that record the series that a selector reads. If one of these rules has no
// gaps, there are none.
func (p *prover) recorded(s *parser.VectorSelector, by []rules.Record) (all []gap, err error) {
	p.visiting[s.Name] = true
	defer delete(p.visiting, s.Name)
	for _, r := range by {
		more, err := p.gaps(asked(r.Expr, s))
		if err != nil || len(more) == 0 {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// witness returns the family whose presence proves that the given family would show a fault. The given family's own
// series may begin only with an error, a condition or a change, so their absence proves nothing.
func (p *prover) witness(family string) string {
	switch family {
	case metrics.GPUXIDErrors.Name:
		if len(p.memory[metrics.GPUXIDSourceUp.Name]) > 0 {
			return metrics.GPUXIDSourceUp.Name
		}
		return metrics.GPUXIDInfo.Name
	case metrics.GPUHealthCondition.Name:
		return metrics.GPUHealth.Name
	case metrics.EngineConfigChanged.Name:
		return metrics.EngineConfig.Name
	}
	return family
}

var rolesOfGateways = promql.Eq(metrics.LabelRole, metrics.GatewayRole).String()

// missing returns the gap of a family without a series of the model.
func (p *prover) missing(family string, gateway bool) gap {
	switch {
	case gateway && p.readsGateway():
		return gap{kind: number, says: "no gateway reports " + family}
	case gateway:
		return noGateway
	case strings.HasPrefix(family, "llm_probe_"):
		return noProbe
	case strings.HasPrefix(family, "llm_gpu_") || strings.HasPrefix(family, "llm_engine_gpu_") || family == metrics.EngineCPUWait.Name:
		if len(p.memory[metrics.GPUUp.Name]) == 0 && len(p.memory[metrics.GPUInfo.Name]) == 0 {
			return noGPU
		}
		if len(p.gpus) == 0 {
			return noGPUOf
		}
		switch family {
		case metrics.EngineGPUOthers.Name:
			return noProcesses
		case metrics.EngineCPUWait.Name:
			return noCPU
		case metrics.GPUNVLinkErrors.Name, metrics.GPUVGPULicensed.Name: // other GPUs lack both families
			return gap{kind: feature}
		}
		return gap{kind: number, family: family}
	case p.read && slices.ContainsFunc(features, func(prefix string) bool { return strings.HasPrefix(family, prefix) }):
		return gap{kind: feature}
	}
	if !p.read {
		return noEngine
	}
	return gap{kind: number, family: family}
}

// readsGateway reports whether the exporter reads the metrics endpoint of a gateway that may belong to the model.
func (p *prover) readsGateway() bool {
	for _, one := range p.memory[metrics.EngineInfo.Name] {
		last := one.samples[len(one.samples)-1]
		if last.T() == p.at.UnixMilli() && one.labels.Get(metrics.LabelRole) == metrics.GatewayRole && p.concerns(one.labels) {
			return true
		}
	}
	return false
}

const noSign = "no sign of it"

// ruledOut divides the branches without a suspect. The result ruledOut has the branches in which values would have
// shown a fault. The result notSeen has the branches in which such values are missing. If a clue compares a single
// value with a limit, this value is stated as the reason why its branch is ruled out.
func (j *judge) ruledOut(m subject, t traffic, all []Suspect, replicas int) (ruledOut, notSeen []RuledOut, err error) {
	p, err := j.prover(m, t)
	if err != nil {
		return nil, nil, err
	}
	started, err := j.query(promql.Gt(promql.Vector(metrics.EngineStartTime), promql.Num(float64(j.at.Add(-time.Hour).Unix()))))
	if err != nil {
		return nil, nil, err
	}
	young := slices.ContainsFunc(started, func(s engine.Sample) bool { return p.pages[page(s.Metric)] })
	var order []rules.Branch
	shown := map[rules.Branch]*proof{}
	for _, r := range j.records {
		branch := rules.Branch(r.Labels[metrics.LabelBranch])
		if r.Name != metrics.RecordedSuspect || slices.ContainsFunc(all, func(s Suspect) bool { return s.Branch == branch }) {
			continue
		}
		if shown[branch] == nil {
			order, shown[branch] = append(order, branch), &proof{}
		}
		found, err := p.gaps(r.Expr)
		if err != nil {
			return nil, nil, err
		}
		if branch == rules.Routing && replicas < 2 && !slices.Contains(found, noGateway) && !strings.Contains(r.Expr.String(), rolesOfGateways) {
			found = []gap{noSibling}
		}
		if slices.ContainsFunc(found, feature.is) {
			continue
		}
		if branch == rules.Release && young {
			found = []gap{justStarted}
		}
		says, err := j.compared(m, r)
		if err != nil {
			return nil, nil, err
		}
		shown[branch].add(found, says)
	}
	ruledOut, notSeen = []RuledOut{}, []RuledOut{}
	for _, b := range order {
		if why, out := shown[b].says(); out {
			ruledOut = append(ruledOut, RuledOut{b, why})
		} else {
			notSeen = append(notSeen, RuledOut{b, why})
		}
	}
	return ruledOut, notSeen, nil
}

// proof has what the clues of a branch prove: the values that rule out the branch, or the gaps.
type proof struct {
	told bool // some clue explained the result
	why  []string
	gaps []gap
}

// add adds a clue. compares describes the values that the clue compares with a limit. If the clue has no gaps, these
// values are reasons why the branch is ruled out.
func (p *proof) add(gaps []gap, compares []string) {
	p.told = true
	for _, g := range gaps {
		if !slices.Contains(p.gaps, g) {
			p.gaps = append(p.gaps, g)
		}
	}
	if len(gaps) == 0 {
		p.why = append(p.why, compares...)
	}
}

// says describes the proof in words, and reports whether it rules out the branch.
func (p *proof) says() (why string, rulesOut bool) {
	switch {
	case p.gaps != nil:
		return reasons(p.gaps), false
	case p.told:
		return cmp.Or(strings.Join(p.why, "; "), noSign), true
	}
	return "no engine reports a metric that would show it", false
}

// reasons describes gaps in words.
func reasons(gaps []gap) string {
	var says, families []string
	unread := slices.Contains(gaps, noEngine) // this gap explains the most
	for _, g := range gaps {
		if unread && g.kind == number && g != noEngine || unread && g == noSibling {
			continue
		}
		if g.family != "" {
			families = append(families, g.family)
		} else {
			says = append(says, g.says)
		}
	}
	if families != nil {
		says = append(says, "nothing reports "+strings.Join(families, ", "))
	}
	return strings.Join(says, "; ")
}

// compared describes the value that a clue compares with a limit.
func (j *judge) compared(m subject, r rules.Record) (all []string, err error) {
	c, ok := r.Expr.(*parser.BinaryExpr)
	if !ok || !c.Op.IsComparisonOperator() || c.RHS.Type() != parser.ValueTypeScalar {
		return nil, nil
	}
	values, err := j.query(rules.Worded(c.LHS, r.Labels))
	for _, value := range values {
		if subjectOf(value.Metric) == m {
			all = append(all, value.Metric.Get(metrics.LabelSays))
		}
	}
	return all, err
}

// comparesWithPast reports whether a clue's rule, or a rule whose record it reads, looks back further than present.
func (j *judge) comparesWithPast(clue string) bool {
	p := &prover{judge: j}
	seen := map[string]bool{}
	var reads func(x promql.Expr) bool
	reads = func(x promql.Expr) (found bool) {
		parser.Inspect(x, func(n parser.Node, _ []parser.Node) error {
			s, ok := n.(*parser.VectorSelector)
			if !ok || found {
				return nil
			}
			found = s.OriginalOffset > present
			if key := fmt.Sprint(s); !seen[key] && s.Name != metrics.RecordedSuspect.Name {
				seen[key] = true
				for _, r := range p.recordsOf(s) {
					found = found || reads(r.Expr)
				}
			}
			return nil
		})
		return found
	}
	return slices.ContainsFunc(j.records, func(r rules.Record) bool {
		return r.Name == metrics.RecordedSuspect && r.Labels[metrics.LabelClue] == clue && reads(r.Expr)
	})
}
