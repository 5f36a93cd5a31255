package engine

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// lines turns the entries of one quantity into output lines, one set for each combination of output labels.
func (c *compiler) lines(d *Dialect, to *metrics.Family, entries []entry) {
	if to == metrics.Requests {
		entries = c.refusals(entries)
		c.tallied = c.tallied || slices.ContainsFunc(d.Rows, func(r Row) bool { return r.To == to && (r.Tally != nil || r.refuses()) })
	}
	groups := map[[outLabels]string][]entry{}
	var order [][outLabels]string
	for _, e := range entries {
		if e.companion() {
			continue
		}
		if _, ok := groups[e.out]; !ok {
			order = append(order, e.out)
		}
		groups[e.out] = append(groups[e.out], e)
	}
	for _, e := range entries { // an info metric often lacks labels that other metrics have
		for _, out := range order {
			if e.companion() && agrees(e.out, out) {
				groups[out] = append(groups[out], e)
			}
		}
	}
	for _, out := range order {
		group := dropDetail(groups[out])
		switch {
		case group[0].row.Fold != nil:
			c.foldLine(to, out, group)
		case to.Kind == metrics.Histogram:
			c.histogramLines(d, to, out, group)
		default:
			c.sumLine(to, out, group, d.tallies(to, metrics.Outcome(out[outOutcome])))
		}
	}
	if to == metrics.Requests {
		c.noneFailed(d, order)
	}
}

// noneFailed adds zeros for failed and refused requests, if a row counts these requests. A server reports an outcome
// only from its first request on, and the increase of a series does not include the first value.
func (c *compiler) noneFailed(d *Dialect, shown [][outLabels]string) {
	if d.Role != metrics.GatewayRole && d.Role != metrics.FrontendRole && !c.countable.failures {
		return
	}
	for _, failed := range []struct {
		outcome metrics.Outcome
		status  string
	}{{metrics.OutcomeError, "500"}, {metrics.OutcomeRejected, "429"}} {
		if !slices.ContainsFunc(d.Rows, func(r Row) bool { return r.To == metrics.Requests && r.counts(failed.outcome, failed.status) }) {
			continue
		}
		for _, out := range shown {
			out[outOutcome], out[outDPRank] = string(failed.outcome), c.only(d, metrics.LabelDPRank, "") // series of the server have no rank
			if !slices.Contains(shown, out) {
				shown = append(shown, out)
				none := line{family: metrics.Requests, text: c.text(metrics.Requests.Name, out), recipe: &recipe{}}
				if d.tallies(metrics.Requests, failed.outcome) {
					none.terms = c.lasting(none.text, nil)
				}
				c.add(none)
			}
		}
	}
}

// counts reports whether a row counts requests with this outcome or HTTP status.
func (r *Row) counts(outcome metrics.Outcome, status string) bool {
	return r.Uncounted[outcome] == "" && slices.ContainsFunc(r.Set, func(l metrics.Label) bool { return l.Value == string(outcome) }) ||
		slices.ContainsFunc(r.Carry, func(carry metrics.Carry) bool {
			return carry.To == metrics.LabelOutcome && (carry.Apply(status) == string(outcome) ||
				slices.Contains(slices.Collect(maps.Values(carry.Outcomes)), outcome))
		})
}

// sumLine adds up a group. A lasting sum stays the same when its engine restarts, instead of falling.
func (c *compiler) sumLine(to *metrics.Family, out [outLabels]string, group []entry, lasts bool) {
	text := c.text(to.Name, out)
	named := slices.DeleteFunc(slices.Clone(group), func(e entry) bool { return e.madeUp })
	t, ofModels := terms(group), terms(named)
	for _, e := range group {
		if c.keys[e.sample.Index] == "" {
			c.keys[e.sample.Index] = fmt.Sprint(e.family, e.sample.Suffix, e.sample.Labels)
		}
	}
	l := line{family: to, text: text, terms: t, recipe: &recipe{
		scale: group[0].row.Scale, from: sourcesOf(group),
		isPool: c.served != nil && to.Kind == metrics.Counter && out[outModel] == otherValue, silent: neverCounted(group) != "",
	}}
	if shown := l; !lasts {
		c.add(l)
	} else {
		shown.recipe.lasts, shown.terms = t, c.lasting(text, t)
		c.add(shown)
		if len(named) == len(group) {
			ofModels = shown.terms
		} else {
			ofModels = c.lasting(text+" of models", ofModels)
		}
	}
	if len(named) > 0 { // a client may have made up a name, so such a name does not count as an engine
		c.works(to, out, group[0].row.Counted, l)
		c.loads(to, out, l)
	}
	if to.Kind != metrics.Counter {
		return
	}
	if stage := group[0].row.Stage; stage != "" {
		of := metrics.Label{Name: metrics.LabelStage, Value: stage}
		part := map[*metrics.Family]*metrics.Family{metrics.GenerationTime: metrics.StageTime, metrics.GenerationTokens: metrics.Stages}[to]
		l := line{family: part, text: c.text(part.Name, out, of), terms: t, recipe: &recipe{scale: group[0].row.Scale}}
		c.add(l)
		c.loads(part, out, l)
	}
	event, bad := slo.Judge(metrics.Outcome(out[outOutcome]))
	if event && !bad {
		c.serves(to, t)
	}
	c.countable.failures = c.countable.failures || bad
	if len(named) > 0 {
		c.countable.counters = append(c.countable.counters, counter{to, out, ofModels}) // objectives belong to models
	}
}

// neverCounted explains why none of the sources in a group counts the group's outcome. It is empty if a source counts
// it.
func neverCounted(group []entry) (why string) {
	for _, e := range group {
		if why = e.row.Uncounted[metrics.Outcome(e.out[outOutcome])]; why == "" {
			break
		}
	}
	return why
}

// silences returns the outcomes of a quantity whose zero has no meaning on any engine of the metrics page.
func (c *compiler) silences(d *Dialect, to *metrics.Family, entries []entry) (all []silent) {
	by := map[string][]entry{}
	for _, e := range entries {
		by[e.out[outOutcome]] = append(by[e.out[outOutcome]], e)
	}
	for _, outcome := range slices.Sorted(maps.Keys(by)) {
		if why := neverCounted(by[outcome]); why != "" {
			e := by[outcome][0]
			source := e.row.From
			for _, carry := range e.row.Carry {
				if v := e.sample.Labels.Get(carry.From); v != "" && carry.To == metrics.LabelOutcome {
					source = selector(e.row.From, carry.From, v)
				}
			}
			all = append(all, silent{c.info(d, to, source, metrics.Missing, why), terms(by[outcome])})
		}
	}
	return all
}

// companion reports whether the entry comes from another family than the row's source.
func (e *entry) companion() bool { return e.family != e.row.From }

// agrees reports whether b has the same value for each label that is set in a.
func agrees(a, b [outLabels]string) bool {
	for i := range a {
		if a[i] != "" && a[i] != b[i] {
			return false
		}
	}
	return true
}

// dropDetail removes the entries of a breakdown, such as one per priority, if the total exists.
func dropDetail(group []entry) []entry {
	key := func(e entry) string {
		return e.family + "\xff" + e.sample.Suffix + "\xff" + e.sample.Labels.Get(labels.BucketLabel) + "\xff" + e.split
	}
	total := map[string]bool{}
	for _, e := range group {
		if e.total == "" {
			total[key(e)] = true
		}
	}
	return slices.DeleteFunc(group, func(e entry) bool { return e.total != "" && total[key(e)] })
}

// terms groups entries that repeat one number. These entries differ only in replica labels.
func terms(group []entry) []term {
	bySeries := map[string]int{}
	var out []term
	for _, e := range group {
		key := e.family + "\xff" + e.total + "\xff" + e.split
		i, ok := bySeries[key]
		if !ok {
			i = len(out)
			bySeries[key] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], e.sample.Index)
	}
	return out
}

func (c *compiler) foldLine(to *metrics.Family, out [outLabels]string, group []entry) {
	f := &fold{of: group[0].row.Fold}
	member := map[string]int{}
	for _, e := range group {
		key := e.family + "\xff" + e.sample.Suffix + "\xff" + e.sample.Labels.Get(labels.BucketLabel) + "\xff" + e.split
		i, ok := member[key]
		if !ok {
			i = len(f.members)
			member[key] = i
			f.members = append(f.members, Member{Family: e.family, Suffix: e.sample.Suffix, Labels: e.sample.Labels})
			f.terms = append(f.terms, nil)
		}
		f.terms[i] = append(f.terms[i], e.sample.Index)
	}
	l := line{family: to, text: c.text(to.Name, out), recipe: &recipe{fold: f, scale: group[0].row.Scale, from: sourcesOf(group)}}
	c.add(l)
	if !group[0].madeUp {
		c.works(to, out, group[0].row.Counted, l)
	}
}

// sourcesOf returns the indices of a group's sources in the plan.
func sourcesOf(group []entry) (places []int) {
	for _, e := range group {
		if !slices.Contains(places, e.source) {
			places = append(places, e.source)
		}
	}
	return places
}

// serves records terms that rise while the engine serves.
func (c *compiler) serves(to *metrics.Family, t []term) {
	switch to {
	case metrics.Requests, metrics.GenerationTokens, metrics.RequestDuration, metrics.RequestGenerationTokens, metrics.TimeToFirstToken:
		c.plan.served = append(c.plan.served, t...)
	}
}

func (c *compiler) histogramLines(d *Dialect, to *metrics.Family, out [outLabels]string, group []entry) {
	parts := map[string][]entry{}
	buckets := map[float64][]entry{}
	for _, e := range group {
		if e.sample.Suffix != "bucket" {
			parts[e.sample.Suffix] = append(parts[e.sample.Suffix], e)
		} else if bound, err := strconv.ParseFloat(e.sample.Labels.Get(labels.BucketLabel), 64); err == nil {
			buckets[bound] = append(buckets[bound], e)
		}
	}
	count := terms(parts["count"])
	if len(count) == 0 {
		count = terms(buckets[math.Inf(1)])
	}
	if len(count) == 0 {
		return
	}
	c.serves(to, count)
	if !group[0].madeUp {
		c.works(to, out, "", line{family: to, text: c.text(to.Name+"_count", out), terms: count, recipe: plain})
	}
	if to == metrics.TimeToFirstToken && group[0].row.Where != nil {
		c.begun(d, group[0].row, out)
	}
	scale, counts := group[0].row.Scale, &recipe{from: sourcesOf(group)}
	h := histogram{family: to, out: out, count: count, madeUp: group[0].madeUp, perStep: group[0].row.PerStep}
	for _, bound := range slices.Sorted(maps.Keys(buckets)) {
		in := terms(buckets[bound])
		if math.IsInf(bound, 1) || len(in) != len(count) { // a bound that some members lack has no sum
			continue
		}
		h.bounds = append(h.bounds, scale.Apply(bound))
		h.cumulative = append(h.cumulative, in)
	}
	c.countable.histograms = append(c.countable.histograms, h)
	total := terms(parts["sum"])
	if len(total) != len(count) || group[0].row.NoSum {
		total = nil
	}
	c.stage(to, out, count, total, scale)
	shape, used := c.config.shapes[to], c.used(d, h)
	if shape.Keep == slo.Drop {
		return
	}
	shared := strings.TrimSuffix(c.text(to.Name+"_bucket", out), "}")
	bucket := func(bound float64, in []term) {
		if math.IsInf(bound, 1) || shape.Keeps(bound, used) {
			c.add(line{family: to, text: shared, le: `,le="` + metrics.FormatBound(bound) + `"}`, terms: in, recipe: counts})
		}
	}
	for i, bound := range h.bounds {
		bucket(bound, h.cumulative[i])
	}
	bucket(math.Inf(1), count)
	if total != nil {
		sum := line{family: to, text: c.text(to.Name+"_sum", out), terms: total, recipe: &recipe{scale: scale, from: counts.from}}
		c.add(sum)
		c.lasts(to, out, line{family: to, terms: count, recipe: plain}, sum)
		if !h.madeUp {
			c.lags(to, out, h, sum)
		}
	}
	c.add(line{family: to, text: c.text(to.Name+"_count", out), terms: count, recipe: counts})
}

// stage adds the counters of a stage, which repeat the sum and the count of a histogram. If two histograms measure the same
// stage, stage uses the first histogram that has both sum and count.
func (c *compiler) stage(to *metrics.Family, out [outLabels]string, count, total []term, scale metrics.Scale) {
	stage, sum := to.Stage()
	if stage == "" || total == nil && stage == metrics.StageNextToken {
		return
	}
	of := metrics.Label{Name: metrics.LabelStage, Value: stage}
	if total != nil {
		c.add(line{family: sum, text: c.text(sum.Name, out, of), terms: total, recipe: &recipe{scale: scale}})
	}
	c.add(line{family: metrics.Stages, text: c.text(metrics.Stages.Name, out, of), terms: count, recipe: plain})
}

// add adds an output line, unless the output already has this series. A duplicate series would make the whole
// exposition invalid.
func (c *compiler) add(l line) {
	if c.written[l.series()] {
		return
	}
	c.written[l.series()] = true
	kind := l.family.Kind
	if l.family.Owner == metrics.Target { // the sum of a histogram may fall, because an engine may observe a negative value
		kind = metrics.Histogram
	}
	for _, t := range slices.Concat(l.terms, l.minus) {
		c.use(t, kind)
	}
	if l.fold != nil {
		for _, t := range l.fold.terms {
			c.use(t, kind)
		}
	}
	c.plan.lines = append(c.plan.lines, l)
}

func (c *compiler) use(t term, kind metrics.Kind) {
	for _, i := range t {
		c.plan.used[i] = true
		c.plan.counter[i] = c.plan.counter[i] || kind == metrics.Counter
	}
}

// whole returns the labels of the engine as a whole, without its ranks.
func (c *compiler) whole(d *Dialect, defaults map[string]string) (out [outLabels]string) {
	out[outRuntime], out[outServer] = string(d.Runtime), c.target.server
	for _, m := range []map[string]string{defaults, c.target.fixed} {
		for name, value := range m {
			out[outIndex(name)] = value
		}
	}
	return out
}

// text renders a series' name and labels.
func (c *compiler) text(name string, out [outLabels]string, more ...metrics.Label) string {
	return c.target.series(name, out, more...)
}

// series renders a series' name and labels, including the target's labels.
func (t *labelling) series(name string, out [outLabels]string, more ...metrics.Label) string {
	ls := make([]metrics.Label, 0, outLabels+len(t.extra)+len(more))
	for i, v := range out {
		ls = append(ls, metrics.Label{Name: outNames[i], Value: v})
	}
	ls = append(append(ls, t.extra...), more...)
	return string(metrics.AppendSeries(nil, name, ls...))
}
