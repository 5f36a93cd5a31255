package backtest

import (
	"math"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// tileMinutes is the number of minutes between two records of a budget.
const tileMinutes = 5

// subject has the counts of one objective on one model, minute by minute. NaN means that there is no value.
type subject struct {
	key
	threshold               string                     // bucket bound of the engine that was read last
	events, bad             map[slo.Duration][]float64 // increase in the windows that read raw counters
	first, badFirst         []float64                  // events that new engines had counted before the first scrape
	tiles, badTiles         []float64                  // exact gain in five minutes, every five minutes
	counted, underWay       []bool                     // some engine is counted; maintenance is under way
	requests, requestsEnded []float64                  // of the model, per second, over six hours
}

// key identifies a subject.
type key struct {
	Cluster, Namespace, Model, Role, SLO string
}

func newSubject(k key, minutes int, raw []slo.Duration) *subject {
	s := &subject{
		key: k, events: map[slo.Duration][]float64{}, bad: map[slo.Duration][]float64{},
		first: nothing(minutes), badFirst: nothing(minutes), tiles: nothing(minutes), badTiles: nothing(minutes),
		counted: make([]bool, minutes), underWay: make([]bool, minutes),
	}
	for _, w := range raw {
		s.events[w], s.bad[w] = nothing(minutes), nothing(minutes)
	}
	return s
}

// labels returns the labels of every record of the subject.
func (s *subject) labels() labels.Labels {
	return with(with(with(with(with(labels.EmptyLabels(), metrics.LabelCluster, s.Cluster), metrics.LabelNamespace, s.Namespace),
		metrics.LabelModel, s.Model), metrics.LabelRole, s.Role), metrics.LabelSLO, s.SLO)
}

// corrected applies to the increases the corrections that the rules would record.
func (s *subject) corrected() {
	for _, part := range []struct {
		increases map[slo.Duration][]float64
		first     []float64
		tiles     []float64
	}{{s.events, s.first, s.tiles}, {s.bad, s.badFirst, s.badTiles}} {
		correction := slices.Clone(part.first)
		counted := part.increases[rules.RateWindow]
		for i := range correction {
			if s.maintained(i) && !math.IsNaN(counted[i]) {
				correction[i] = plus(correction[i], -counted[i]/tileMinutes)
			}
		}
		for w, all := range part.increases {
			sums := over(correction, int(w.Std()/time.Minute), 0)
			for i := range all {
				all[i] = plus(all[i], sums[i])
			}
		}
		sums := over(correction, tileMinutes, 0)
		for i := 0; i < len(sums); i += tileMinutes {
			part.tiles[i] = plus(part.tiles[i], sums[i])
		}
	}
}

// maintained reports whether the five-minute rates at a minute include maintenance.
func (s *subject) maintained(i int) bool {
	return slices.Contains(s.underWay[max(0, i-tileMinutes):i+1], true)
}

// over returns, for each minute, the sum of n consecutive values, of which the last is ago minutes earlier. If all n
// values are absent, so is the sum.
func over(values []float64, n, ago int) []float64 {
	sums := nothing(len(values))
	var total float64
	found := 0
	add := func(i int, sign int) {
		if i >= 0 && !math.IsNaN(values[i]) {
			total += float64(sign) * values[i]
			found += sign
		}
		if found == 0 {
			total = 0 // prevents rounding errors from adding up
		}
	}
	for i := range values {
		add(i-ago, 1)
		add(i-ago-n, -1)
		if found > 0 {
			sums[i] = total
		}
	}
	return sums
}

// judge evaluates the generated rules on the counts of a subject.
type judge struct {
	*subject
	columns *rulesim.Columns
}

// judge returns a judge whose rules read the subject's numbers instead of raw counters.
func (h *history) judge(s *subject, o slo.Objective) *judge {
	n := len(s.counted)
	j := &judge{s, rulesim.NewColumns(h.begin, rules.Interval, n)}
	own := s.labels()
	role := with(own, metrics.LabelSLO, "")
	for family, counted := range map[*metrics.Family]map[slo.Duration][]float64{metrics.SLOEvents: s.events, metrics.SLOBadEvents: s.bad} {
		for w, values := range counted {
			j.columns.Bind(rules.Counted(family, w), own, values)
		}
	}
	j.columns.Bind(rules.CountedTile(metrics.SLOEvents), own, s.tiles)
	j.columns.Bind(rules.CountedRequests(), role, s.requests)
	j.columns.Put(metrics.RecordedRequests.Name, with(role, metrics.LabelRole, ""), s.requestsEnded)
	j.columns.Put(metrics.RecordedMaintenance.Name, own, s.while(1, s.maintained))
	info := with(with(with(own, metrics.LabelSignal, string(o.Signal)), metrics.LabelPeriod, o.Period.String()), metrics.LabelSeverity,
		o.Severity.String())
	for _, g := range h.rules() {
		if g.Name == objectives {
			j.columns.Put(metrics.RecordedInfo.Name, info, s.while(1, s.isCounted))
			j.columns.Put(metrics.RecordedPeriod.Name, own, s.while(o.Period.Std().Seconds(), s.isCounted))
			j.aim(o)
		}
		for _, r := range g.Records {
			if !slices.Contains(configured, r.Name) {
				j.columns.Record(r.Name.Name, r.Labels, r.Expr, int(g.Interval/rules.Interval))
			}
		}
	}
	return j
}

// configured lists the records that come from the exporter's configuration. In a backtest, its own objectives replace
// them.
var configured = []*metrics.Family{metrics.RecordedInfo, metrics.RecordedPeriod, metrics.RecordedObjective}

// objectives is the name of the group with the records in configured.
const objectives = "llm-slo-objective"

// rules returns the groups that judge an objective, in the order in which they are evaluated.
func (h *history) rules() []rules.Group {
	if h.judging == nil {
		all := rules.Groups(rules.Options{WindowPairs: h.Pairs})
		for _, name := range []string{"llm-slo-budget", objectives, "llm-slo-burn", "llm-slo-later"} {
			h.judging = append(h.judging, all[slices.IndexFunc(all, func(g rules.Group) bool { return g.Name == name })])
		}
	}
	return h.judging
}

// aim sets the target of the objective.
func (j *judge) aim(o slo.Objective) {
	j.columns.Put(metrics.RecordedObjective.Name, j.labels(), j.while(o.Target.Float(), j.isCounted))
}

// fires reports, minute by minute, whether the objective requires an alert of a severity.
func (j *judge) fires(of slo.Severity) ([]bool, error) {
	burns, err := j.columns.Eval(rules.Asks(of))
	firing := make([]bool, len(j.counted))
	for _, burn := range burns {
		for i := range firing {
			firing[i] = firing[i] || !math.IsNaN(burn[i])
		}
	}
	return firing, err
}

func (s *subject) isCounted(i int) bool { return s.counted[i] }

// while returns a series with a constant value in the minutes for which holds returns true.
func (s *subject) while(value float64, holds func(i int) bool) []float64 {
	values := nothing(len(s.counted))
	for i := range values {
		if holds(i) {
			values[i] = value
		}
	}
	return values
}

// with adds a label, unless its value is empty.
func with(l labels.Labels, name, value string) labels.Labels {
	return labels.NewBuilder(l).Set(name, value).Labels()
}
