package triage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Past runs a query in a Prometheus that has recorded the node, because the two readings do not contain the past.
type Past func(ctx context.Context, query string, at time.Time) (engine.Vector, error)

// PastError reports that the past could not be queried.
type PastError struct{ Err error }

// Error implements error.
func (e *PastError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *PastError) Unwrap() error { return e.Err }

// present is how far a rule may look back if two readings are to be sufficient. A rule that looks back further compares
// with the past, which only a Prometheus has.
const present = 15 * time.Minute

// queries returns Prometheus' query engine, which is created at the first call. The limit of samples is high, because a
// query may read each series of a node many times.
var queries = sync.OnceValue(func() *engine.Engine {
	return engine.NewEngine(engine.EngineOpts{
		MaxSamples: 10_000_000, Timeout: time.Minute, LookbackDelta: 5 * time.Minute,
		Parser: promql.Parser,
	})
})

// evaluation evaluates rules over two readings.
type evaluation struct {
	ctx     context.Context
	memory  memory
	at      time.Time
	elapsed time.Duration
	past    Past
	asked   map[string]string        // by query: names of series that hold answers about the past
	recalls bool                     // the past has answered a query
	results map[string]engine.Vector // by query, when all rules are recorded
	aged    map[string]float64       // by metrics endpoint: age in seconds of the engines whose lifetime represents the past
	served  map[string]float64       // 1 for each metrics endpoint whose requests so far represent the past
	ratio   bool                     // the current expression is per request
}

func newEvaluation(ctx context.Context, before, after Reading, past Past) *evaluation {
	e := &evaluation{
		ctx: ctx, memory: remember(before, after), at: after.At, elapsed: after.At.Sub(before.At), past: past,
		asked: map[string]string{},
	}
	e.aged, e.served = e.memory.aged(before.At, e.elapsed)
	return e
}

// record evaluates recording rules in order and stores their results.
func (e *evaluation) record(records []rules.Record) error {
	for _, r := range records {
		result, err := e.recorded(r)
		if err != nil {
			return fmt.Errorf("%s: %w", cmp.Or(r.Labels[metrics.LabelClue], r.Labels[metrics.LabelFact], r.Name.Name), err)
		}
		for i := range result {
			b := labels.NewBuilder(result[i].Metric).Set(model.MetricNameLabel, r.Name.Name)
			for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
				b.Set(name, r.Labels[name])
			}
			result[i].Metric = b.Labels()
		}
		e.memory.add(e.at, result)
	}
	return nil
}

// recorded returns the result of a recording rule. If the rule reads only the past, the result is what the Prometheus
// has recorded. If it has recorded nothing, the rule is evaluated, because the Prometheus may still have the series
// that the rule reads. If a suspect, a fact about requests, or the share of requests without a first token has no
// result, the recorded result is also used, because the rule may need more requests than arrived between the readings.
func (e *evaluation) recorded(r rules.Record) (engine.Vector, error) {
	recorded := func() (engine.Vector, error) {
		m := make([]*labels.Matcher, 0, len(r.Labels))
		for _, name := range slices.Sorted(maps.Keys(r.Labels)) {
			m = append(m, promql.Eq(name, r.Labels[name]))
		}
		return e.ask(promql.Vector(r.Name, m...).String())
	}
	if e.past != nil && ofThePast(r.Expr) {
		if answer, err := recorded(); err != nil || len(answer) > 0 {
			return answer, err
		}
	}
	e.ratio = slices.Contains(perRequest, strings.TrimSuffix(r.Labels[metrics.LabelFact], rules.OfBefore))
	result, err := e.query(r.Expr)
	e.ratio = false
	if err == nil && len(result) == 0 && e.past != nil && (r.Name == metrics.RecordedSuspect || r.Name == metrics.RecordedWithoutToken ||
		slices.Contains(perRequest, r.Labels[metrics.LabelFact])) {
		return recorded()
	}
	return result, err
}

// perRequest names the facts about requests that got a token. If no such request came between the readings, the facts
// come from the Prometheus.
var perRequest = []string{"prompt_tokens", "output_tokens", "prefix_hits", "draft_tokens", "token_time"}

// ask queries the Prometheus.
func (e *evaluation) ask(query string) (engine.Vector, error) {
	answer, err := e.past(e.ctx, query, e.at)
	if err != nil {
		return nil, &PastError{err}
	}
	e.recalls = e.recalls || len(answer) > 0
	for i := range answer {
		answer[i].Metric = printable(answer[i].Metric)
	}
	return answer, nil
}

// query evaluates an expression at the time of the second reading.
func (e *evaluation) query(x promql.Expr) (engine.Vector, error) {
	text := x.String()
	if known, ok := e.results[text]; ok {
		return slices.Clone(known), nil
	}
	result, err := e.execute(text)
	if e.results != nil && err == nil {
		e.results[text] = slices.Clone(result)
	}
	return result, err
}

func (e *evaluation) execute(query string) (engine.Vector, error) {
	own, err := promql.Parser.ParseExpr(query) // a copy to change
	if err != nil {
		return nil, err
	}
	if own, err = e.consult(own); err != nil {
		return nil, err
	}
	e.squeeze(own)
	q, err := queries().NewInstantQuery(e.ctx, e.memory, nil, own.String(), e.at)
	if err != nil {
		return nil, err
	}
	defer q.Close()
	result := q.Exec(e.ctx)
	if result.Err != nil {
		return nil, result.Err
	}
	v, err := result.Vector()
	return slices.Clone(v), err
}

// squeeze rewrites an expression so that it reads the two readings. Each window becomes the time between the readings
// plus a millisecond, because windows exclude their start. Each short offset points to the first reading. The rate of a
// counter in the past becomes its mean rate before the first reading, if that time is long enough for a fair
// comparison. A low quantile over a window becomes the smaller of the two values, because a quantile would be between
// them.
func (e *evaluation) squeeze(x promql.Expr) {
	parser.Inspect(x, func(n parser.Node, _ []parser.Node) error {
		switch n := n.(type) {
		case *parser.Call:
			if n.Func.Name == "quantile_over_time" {
				if q, ok := n.Args[0].(*parser.NumberLiteral); ok && q.Val < 0.5 {
					n.Func, n.Args = parser.MustGetFunction("min_over_time"), n.Args[1:]
				}
			}
			if n.Func.Name == "rate" {
				if s := n.Args[0].(*parser.MatrixSelector).VectorSelector.(*parser.VectorSelector); s.OriginalOffset > present {
					n.Func, s.OriginalOffset = parser.MustGetFunction("last_over_time"), e.elapsed
					e.ofLifetimes(s)
				}
			}
		case *parser.MatrixSelector:
			n.Range = e.elapsed + time.Millisecond
			if s := n.VectorSelector.(*parser.VectorSelector); s.OriginalOffset > 0 && s.OriginalOffset <= present {
				n.Range = time.Millisecond
			}
		case *parser.SubqueryExpr: // the readings have only the last moment of a subquery's window
			n.Range, n.Step = time.Millisecond, time.Millisecond
		case *parser.VectorSelector:
			if n.OriginalOffset > 0 && n.OriginalOffset <= present {
				n.OriginalOffset = e.elapsed
			}
		}
		return nil
	})
}

// These are minimum requirements for an engine's lifetime to represent the past: see aged.
const (
	longLife     = 30 * time.Minute
	fairRequests = 100
)

// lifetime is the prefix of the families that ofLifetimes creates. They have only the series of aged metrics endpoints.
const lifetime = "triage_lifetime_"

// ofLifetimes makes a selector read the mean rates since the engines started, of the engines whose lifetime represents
// the past.
func (e *evaluation) ofLifetimes(s *parser.VectorSelector) {
	name, ages := lifetime+s.Name, e.aged
	if e.ratio {
		name, ages = lifetime+"ratio_"+s.Name, e.served
	}
	counted := e.memory[s.Name]
	if f := metrics.Lookup(s.Name); f == metrics.PrefillComputedTokens {
		counted = e.memory.computed()
	} else if f != nil && f.SinceRead {
		counted = nil // the series is younger than its engine
	}
	if _, known := e.memory[name]; !known {
		e.memory[name] = map[uint64]*series{}
		for h, one := range counted {
			if age := ages[page(one.labels)]; age > 0 {
				mean := &series{labels: labels.NewBuilder(one.labels).Set(model.MetricNameLabel, name).Labels()}
				for _, s := range one.samples {
					mean.samples = append(mean.samples, sample{s.T(), s.F() / age})
				}
				e.memory[name][h] = mean
			}
		}
	}
	s.Name = name
	s.LabelMatchers = slices.DeleteFunc(slices.Clone(s.LabelMatchers), func(m *labels.Matcher) bool { return m.Name == model.MetricNameLabel })
	s.LabelMatchers = append(s.LabelMatchers, promql.Eq(model.MetricNameLabel, name))
}

// computed returns series of the uncached prompt tokens since the engines started.
func (m memory) computed() map[uint64]*series {
	all := make(map[uint64]*series)
	for h, prompts := range m[metrics.PromptTokens.Name] {
		own := &series{labels: prompts.labels, samples: slices.Clone(prompts.samples)}
		for _, hits := range m[metrics.PrefixCacheHitTokens.Name] {
			if len(hits.samples) == len(own.samples) && slices.Equal(engineOf(hits.labels), engineOf(own.labels)) {
				for i, s := range own.samples {
					own.samples[i] = sample{s.T(), s.F() - hits.samples[i].F()}
				}
			}
		}
		all[h] = own
	}
	return all
}

func engineOf(l labels.Labels) (values []string) {
	for _, name := range metrics.EngineLabels {
		values = append(values, l.Get(name))
	}
	return values
}

// page identifies an engine's metrics endpoint.
func page(l labels.Labels) string {
	var b strings.Builder
	for _, name := range metrics.PageLabels {
		b.WriteString(l.Get(name) + "\xff")
	}
	return b.String()
}

// aged returns the age of the engine at each metrics endpoint, if the engine's lifetime represents the past. By the
// given time, the engine must have run for thirty minutes and for ten times the time between the readings. It must have
// served a hundred requests, and as many as since then. served is 1 for each such endpoint. Values per request do not
// need the age. Therefore, served is also 1 for an engine that does not report its start, if it had served ten times as
// many requests as since then.
func (m memory) aged(at time.Time, elapsed time.Duration) (aged, served map[string]float64) {
	aged, served = map[string]float64{}, map[string]float64{}
	before, since := map[string]float64{}, map[string]float64{}
	for _, f := range []string{metrics.Stages.Name, metrics.Requests.Name} {
		counted := map[string]bool{}
		for _, s := range m[f] {
			if stage := s.labels.Get(metrics.LabelStage); stage != "" && stage != metrics.StageFirstToken {
				continue
			}
			p, first, last := page(s.labels), s.samples[0], s.samples[len(s.samples)-1]
			if first.T() == at.UnixMilli() && (counted[p] || before[p] == 0) {
				counted[p] = true
				before[p] += first.F()
				if last.F() > first.F() {
					since[p] += last.F() - first.F()
				}
			}
		}
	}
	for p, n := range before {
		if n >= max(fairRequests, 10*since[p]) {
			served[p] = 1
		}
	}
	for _, s := range m[metrics.EngineStartTime.Name] {
		lived := time.Duration(float64(at.UnixMilli())/1000-s.samples[0].F()) * time.Second
		p := page(s.labels)
		delete(served, p)
		if lived >= max(longLife, 10*elapsed) && before[p] >= max(fairRequests, since[p]) {
			aged[p], served[p] = lived.Seconds(), 1
		}
	}
	return aged, served
}

// consult adds results from the Prometheus to an expression. It queries the Prometheus for the largest parts of the
// expression that read only the past, and replaces each part by "result or part".
func (e *evaluation) consult(x promql.Expr) (promql.Expr, error) {
	if e.past == nil {
		return x, nil
	}
	if ofThePast(x) {
		query := x.String()
		name, known := e.asked[query]
		if !known {
			name = "triage_past_" + strconv.Itoa(len(e.asked))
			answer, err := e.ask(query)
			if err != nil {
				return nil, err
			}
			for i := range answer {
				answer[i].Metric = labels.NewBuilder(answer[i].Metric).Set(model.MetricNameLabel, name).Labels()
			}
			e.asked[query] = name
			e.memory.add(e.at, answer)
		}
		return &parser.ParenExpr{Expr: promql.Or(&parser.VectorSelector{Name: name}, x)}, nil
	}
	var err error
	each := func(parts ...*parser.Expr) {
		for _, p := range parts {
			if err == nil && *p != nil {
				*p, err = e.consult(*p)
			}
		}
	}
	switch x := x.(type) {
	case *parser.ParenExpr:
		each(&x.Expr)
	case *parser.UnaryExpr:
		each(&x.Expr)
	case *parser.AggregateExpr:
		each(&x.Expr)
	case *parser.BinaryExpr:
		each(&x.LHS, &x.RHS)
	case *parser.Call:
		for i := range x.Args {
			each(&x.Args[i])
		}
	}
	return x, err
}

// ofThePast reports whether an expression has selectors, and all of them look back further than present.
func ofThePast(x promql.Expr) bool {
	if x.Type() != parser.ValueTypeVector {
		return false
	}
	some, all := false, true
	parser.Inspect(x, func(n parser.Node, path []parser.Node) error {
		s, ok := n.(*parser.VectorSelector)
		if !ok {
			return nil
		}
		reach := s.OriginalOffset
		if len(path) > 0 {
			if m, ok := path[len(path)-1].(*parser.MatrixSelector); ok {
				reach += m.Range
			}
		}
		some, all = true, all && reach > present
		return nil
	})
	return some && all
}

// needed returns the records that the expressions read, directly or through other records, in their original order.
func needed(records []rules.Record, by ...promql.Expr) []rules.Record {
	read := map[string]bool{}
	reads := func(x promql.Expr) {
		parser.Inspect(x, func(n parser.Node, _ []parser.Node) error {
			if s, ok := n.(*parser.VectorSelector); ok {
				read[s.Name] = true
			}
			return nil
		})
	}
	for _, x := range by {
		reads(x)
	}
	for more := -1; more != len(read); {
		more = len(read)
		for _, r := range records {
			if read[r.Name.Name] {
				reads(r.Expr)
			}
		}
	}
	return slices.DeleteFunc(slices.Clone(records), func(r rules.Record) bool { return !read[r.Name.Name] })
}
