package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// compiler builds the plan of one metrics page.
type compiler struct {
	page     *scrape.Page
	target   *labelling
	config   *settings
	identity Identity
	plan     *plan
	written  map[string]bool // series that the output already has
	claimed  []claim         // quantities claimed by the dialects before the current one

	countable countable       // what objectives can count with the current dialect
	served    map[string]bool // models that a gateway or frontend serves; nil for engines
	working   []unit          // units of the current dialect
	sizings   []sizing        // units of the current dialect
	durations []unit          // units with the durations of their requests
	prompted  map[[outLabels]string]prompts
	tallied   bool           // some outcomes of requests may come from a tally
	behind    bool           // see Dialect.Behind
	keys      map[int]string // identifies a series of the metrics page, or a tally, by its position
}

// claim records that a dialect reports a quantity of a model. Several dialects may recognise one metrics page. Then
// only the first dialect that reports the quantity counts, because otherwise each request would count twice.
type claim struct {
	to    *metrics.Family
	model string // empty for an engine that names no model, and so may serve any model
	by    metrics.Runtime
}

// claimedBy returns the runtime that already reports a quantity of a model.
func (c *compiler) claimedBy(to *metrics.Family, model string) metrics.Runtime {
	for _, cl := range c.claimed {
		if cl.to == to && (cl.model == model || cl.model == "" || model == "") {
			return cl.by
		}
	}
	return ""
}

// labelling holds the labels that a target adds to every series of its metrics page.
type labelling struct {
	server string
	asks   string            // model that the target's address names
	fixed  map[string]string // vocabulary labels set by configuration or discovery; they override the metrics page
	extra  []metrics.Label   // the user's own labels

	admitted map[string]map[string]bool // values of bounded labels that are kept
	ready    bool                       // the frontend has reported a model as ready; if it reports none later, none is ready
}

// compile recognises the metrics page and builds its plan.
func compile(page *scrape.Page, dialects []*Dialect, to *labelling, identity func(*Dialect) Identity, config *settings) (*plan, error) {
	c := &compiler{page: page, target: to, config: config, written: map[string]bool{}, keys: map[int]string{}, plan: &plan{
		runtime: dialects[0].Runtime,
		role:    dialects[0].Role,
		used:    make([]bool, len(page.Values)),
		counter: make([]bool, len(page.Values)),
		series:  len(page.Values),
	}}
	c.behind = slices.ContainsFunc(dialects, func(d *Dialect) bool { return d.Behind })
	for _, d := range dialects {
		c.identity = identity(d)
		c.plan.identifiable = c.plan.identifiable || d.Identify != nil || d.Chains != nil
		if err := c.dialect(d); err != nil {
			return nil, err
		}
	}
	c.process()
	for _, source := range c.plan.unlisted {
		c.add(line{
			family: metrics.UnknownOutcome, recipe: &recipe{value: 1},
			text: to.text(metrics.UnknownOutcome.Name, c.plan.runtime, metrics.Label{Name: metrics.LabelSource, Value: source}),
		})
	}
	if err := c.checkDuplicates(); err != nil {
		return nil, err
	}
	c.plan.lines = slices.Clone(c.plan.lines) // drop the spare capacity
	slices.SortStableFunc(c.plan.lines, func(a, b line) int { return cmp.Compare(a.family.Index, b.family.Index) })
	c.plan.findSizes()
	return c.plan, nil
}

// entry is one source series with its output labels. Entries with the same output labels later form a group.
type entry struct {
	row    *Row
	family string
	sample scrape.Sample
	madeUp bool   // a client may have made up the name of the model
	model  string // model as written on the metrics page
	out    [outLabels]string
	split  string // labels that split the family, except replica labels and the total label
	total  string // value of the dialect's total label
	source int    // index in plan.sources
}

// outLabels is the number of metrics.EngineLabels and metrics.DetailLabels.
const outLabels = 18

var outNames = [outLabels]string(slices.Concat(metrics.EngineLabels, metrics.DetailLabels))

func outIndex(label string) int { return slices.Index(outNames[:], label) }

var (
	outRuntime = outIndex(metrics.LabelRuntime)
	outModel   = outIndex(metrics.LabelModel)
	outServer  = outIndex(metrics.LabelServer)
	outReplica = outIndex(metrics.LabelReplica)
	outOutcome = outIndex(metrics.LabelOutcome)
	outDPRank  = outIndex(metrics.LabelDPRank)
	outLora    = outIndex(metrics.LabelLora)
	outRole    = outIndex(metrics.LabelRole)

	outPod       = outIndex(metrics.LabelPod)
	outContainer = outIndex(metrics.LabelContainer)
)

func (c *compiler) dialect(d *Dialect) error {
	version := c.version(d)
	c.known(d)
	c.workers(d)
	defaults := c.defaults(d)
	ofSeries := maps.Clone(defaults) // series of the whole metrics page, such as HTTP answers, belong to the only rank
	ofSeries[metrics.LabelDPRank] = c.only(d, metrics.LabelDPRank, "")
	c.countable = countable{}
	models, spelled := map[string]bool{}, map[string]string{} // spelled has the names as on the metrics page
	var claims []claim
	as := asItself
	if d.Models != nil {
		as = d.Models(c.page, c.identity)
	}
	for to, rows := range quantities(d) {
		var a answer
		entries, other, err := c.entries(d, to, rows, &a, version, ofSeries, as)
		if err != nil {
			return err
		}
		of := map[string]bool{}
		for _, e := range entries {
			if e.madeUp {
				continue
			}
			of[e.out[outModel]] = true
			spelled[e.out[outModel]] = cmp.Or(spelled[e.out[outModel]], e.model)
		}
		maps.Copy(models, of)
		whole := c.whole(d, defaults)[outModel]
		switch other = cmp.Or(other, c.claimedBy(to, whole)); {
		case len(entries) > 0:
			c.silent(d, to, &a, entries[0].row)
			c.lines(d, to, entries)
			a.silent = c.silences(d, to, entries)
		case other != "":
			a.missing = c.info(d, to, "", metrics.Missing, "said by "+string(other)+" on the same page")
		default:
			c.missing(d, to, &a, rows, version, defaults)
			of[whole] = len(a.sources) > 0
		}
		for model, says := range of {
			if says {
				claims = append(claims, claim{to, model, d.Runtime})
			}
		}
		c.plan.answers = append(c.plan.answers, a)
	}
	c.claimed = append(c.claimed, claims...)
	if c.plan.units == nil {
		c.plan.units = c.units(d)
		c.plan.sizings = c.capacities(d)
	}
	c.objectives(d, defaults)
	c.working, c.durations, c.prompted, c.sizings = nil, nil, nil, nil
	if c.plan.whole[outRuntime] == "" {
		c.plan.whole = c.whole(d, defaults)
	}
	if d.Role == metrics.FrontendRole && len(models) > 1 {
		delete(models, "") // the empty name stands for failed requests that named no model
	}
	if len(models) == 0 {
		models[cmp.Or(c.target.fixed[metrics.LabelModel], defaults[metrics.LabelModel])] = true
	}
	serves := slices.Sorted(maps.Keys(models))
	c.record(d, defaults, serves)
	for _, m := range serves {
		role := cmp.Or(c.target.fixed[metrics.LabelRole], defaults[metrics.LabelRole])
		c.offer(d, m, cmp.Or(spelled[m], defaults[metrics.LabelModel], m), role)
		c.identify(d, m, cmp.Or(c.identity.Version, version.String()), role)
	}
	return nil
}

// defaults returns the model and the role of series that lack these labels.
func (c *compiler) defaults(d *Dialect) map[string]string {
	model := c.ownModel(d, cmp.Or(c.target.asks, c.identity.Model))
	if c.served != nil {
		model = c.target.bounded(metrics.LabelModel, model, c.config.Limits.LabelValueBytes)
	}
	return map[string]string{metrics.LabelModel: model, metrics.LabelRole: cmp.Or(d.Role, c.only(d, metrics.LabelRole, ""))}
}

// identify writes the info series of a model, and records the first model of the metrics page.
func (c *compiler) identify(d *Dialect, model, version, role string) {
	c.plan.model, c.plan.version = cmp.Or(c.plan.model, model), cmp.Or(c.plan.version, version)
	who := []metrics.Label{
		{Name: metrics.LabelModel, Value: model},
		{Name: metrics.LabelVersion, Value: version},
		{Name: metrics.LabelRole, Value: role},
	}
	info := c.target.text(metrics.EngineInfo.Name, d.Runtime, who...)
	c.addModel(d, model, info, c.target.text(metrics.EngineLastServed.Name, d.Runtime, who...))
}

// asItself makes each model count as itself.
func asItself(model string) string { return model }

// entries returns the source series of a quantity. They come from the first source on the metrics page, and from
// sources that add to this source. If another dialect already reports the quantity, entries leaves out the series, and
// returns the other dialect as other.
func (c *compiler) entries(d *Dialect, to *metrics.Family, rows []*Row, a *answer, version bracket, defaults map[string]string,
	as func(string) string,
) (all []entry, other metrics.Runtime, err error) {
	shared, taken := map[string]int{}, map[int]bool{} // sources whose meaning depends on the version, and series that a tally reads
	for _, r := range rows {
		shared[r.From]++
	}
	for _, r := range rows {
		if len(a.sources) > 0 && !r.Plus || shared[r.From] > 1 && !version.overlaps(r.Since, r.Until) || r.On != nil && !r.On(c.page) {
			continue
		}
		if r.Failures == SinceFailure && version.overlaps(r.Since, r.Until) || r.Failures == SinceAnswer && c.page.Has(r.From) {
			c.countable.failures = true
		}
		found, err := c.collect(d, r, defaults, as, taken)
		if err != nil {
			return nil, "", err
		}
		found = slices.DeleteFunc(found, func(e entry) bool {
			by := c.claimedBy(to, e.out[outModel])
			other = cmp.Or(other, by)
			return by != ""
		})
		if len(found) == 0 {
			continue
		}
		source := c.source(a, c.info(d, to, r.From, r.quality(), r.Why, metrics.Label{Name: metrics.LabelCounted, Value: string(r.Counted)}))
		for i := range found {
			found[i].source = source
		}
		all = append(all, found...)
	}
	return all, other, nil
}

// quantities yields every quantity of the vocabulary, with the dialect's rows for this quantity.
func quantities(d *Dialect) func(func(*metrics.Family, []*Row) bool) {
	return func(yield func(*metrics.Family, []*Row) bool) {
		for _, f := range metrics.All() {
			if !d.Concerns(f) {
				continue
			}
			var rows []*Row
			for i := range d.Rows {
				if d.Rows[i].To == f {
					rows = append(rows, &d.Rows[i])
				}
			}
			if !yield(f, rows) {
				return
			}
		}
	}
}

// IsQuantity reports whether a family contains values of engines. All other families are the exporter's own reports.
func IsQuantity(f *metrics.Family) bool {
	return f.Owner == metrics.Engine || f.Owner == metrics.Gateway
}

// version returns the version range that the metrics page shows. If the engine reports a version in this range, version
// returns that version. Builds from source report the version 0.1.dev, so the metrics page takes precedence.
func (c *compiler) version(d *Dialect) bracket {
	var b bracket
	for _, h := range d.VersionHints {
		if h.on(c.page) {
			b.narrow(h.Since, h.Until)
		}
	}
	for reads, r := range lifetimes(d) {
		if f := c.page.Find(reads.from, reads.is); f != nil && (f.Kind == reads.is || f.Kind == "") {
			b.narrow(r.since, r.until)
		}
	}
	if b.hasMin && b.hasMax && b.min.Compare(b.max) > 0 { // the page imitates the engine: it has new names without new labels
		b.hasMax = false
	}
	if v, ok := ParseVersion(c.identity.Version); ok && b.admits(v) {
		return exactly(v)
	}
	return b
}

// A reading identifies the data that a row reads. A lifetime holds the versions that have this data.
type (
	reading struct {
		from string
		is   scrape.Type
	}
	lifetime struct{ since, until string }
)

// lifetimes merges the versions of all rows that read the same source.
func lifetimes(d *Dialect) map[reading]lifetime {
	out := map[reading]lifetime{}
	for i := range d.Rows {
		r := &d.Rows[i]
		key := reading{r.From, r.Is}
		l, known := out[key]
		if !known {
			l = lifetime{r.Since, r.Until}
		}
		if older(r.Since, l.since) {
			l.since = r.Since
		}
		if r.Until == "" || l.until != "" && older(l.until, r.Until) {
			l.until = r.Until
		}
		out[key] = l
	}
	return out
}

func older(a, b string) bool {
	v, _ := ParseVersion(a)
	w, ok := ParseVersion(b)
	return ok && v.Compare(w) < 0
}

// only looks up the value of a carried label, for series without this label. If all other series of the metrics page
// have the same value, only returns this value. If no series has a value, only returns the argument "otherwise". If
// there are several values, only returns an empty string.
func (c *compiler) only(d *Dialect, to, otherwise string) string {
	seen := map[string]bool{}
	for _, carry := range d.Labels {
		if carry.To != to {
			continue
		}
		for i := range d.Rows {
			for v := range c.page.LabelValues(d.Rows[i].From, carry.From) {
				if v = carry.Apply(printable(v)); v != "" && (to != metrics.LabelModel || c.isModel(v)) {
					seen[v] = true
				}
			}
		}
	}
	switch values := slices.Collect(maps.Keys(seen)); len(values) {
	case 0:
		return otherwise
	case 1:
		return values[0]
	}
	return ""
}

// mostUnlisted bounds how many unknown outcomes of a metrics page are reported.
const mostUnlisted = 20

// unlisted records an outcome of requests that is not listed, because the engine may be newer than this code. It
// returns the outcome to count these requests under.
func (c *compiler) unlisted(family string, l labels.Label) string {
	source := selector(family, l.Name, printable(l.Value))
	if len(l.Value) <= c.config.Limits.LabelValueBytes && len(c.plan.unlisted) < mostUnlisted && !slices.Contains(c.plan.unlisted, source) {
		c.plan.unlisted = append(c.plan.unlisted, source)
	}
	return string(metrics.OutcomeUnknown)
}

// selector returns a PromQL selector for the series of a family whose label has a value.
func selector(family, label, value string) string {
	return fmt.Sprintf("%s{%s=%q}", family, label, value)
}

// printable makes a name from an engine safe, because notifications and terminals show the name. It replaces control
// characters and characters that would change the surrounding text. It also replaces Unicode's replacement character,
// because PromQL refuses this character.
func printable(name string) string {
	return strings.Map(func(r rune) rune {
		if r == unicode.ReplacementChar || unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return '?'
		}
		return r
	}, name)
}

// collect returns the source series of a row. For a tally, it returns only series that earlier tallies have not taken,
// unless the tally shares its series. Without series, collect returns no error, because the next candidate is tried.
func (c *compiler) collect(d *Dialect, r *Row, defaults map[string]string, as func(string) string, taken map[int]bool) ([]entry, error) {
	f := c.page.Find(r.From, r.Is)
	if f == nil || f.Kind != "" && f.Kind != r.Is {
		return nil, nil
	}
	var entries []entry
	add := func(f *scrape.Family, name string, where []*labels.Matcher) error {
		for _, s := range f.Samples {
			if matches(s.Labels, where) && (r.Part == "" || s.Suffix == string(r.Part)) {
				e, err := c.entry(d, r, s, defaults)
				if err != nil {
					return err
				}
				if e.family = name; e.countAs(as(e.model)) {
					entries = append(entries, c.perLora(e)...)
				}
			}
		}
		return nil
	}
	if err := add(f, r.From, r.Where); err != nil {
		return nil, err
	}
	if r.Tally != nil && !r.Tally.Splits {
		entries = slices.DeleteFunc(entries, func(e entry) bool { return taken[e.sample.Index] })
		for _, e := range entries {
			taken[e.sample.Index] = true
		}
	}
	switch {
	case len(entries) == 0:
		return nil, nil
	case r.Tally != nil:
		return c.tally(d, r, entries, defaults)
	}
	for _, name := range r.With {
		w := c.page.Find(name, r.Is)
		if w == nil {
			return nil, nil
		}
		if err := add(w, name, nil); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// perLora returns an entry for each adapter that a source series names. If the row has no Loras, perLora returns only
// the given entry.
func (c *compiler) perLora(e entry) (entries []entry) {
	if e.row.Loras == nil {
		return []entry{e}
	}
	for _, name := range e.row.Loras(e.sample.Labels) {
		e.out[outLora] = c.target.bounded(metrics.LabelLora, printable(name), c.config.Limits.LabelValueBytes)
		entries = append(entries, e)
	}
	return entries
}

// countAs makes a source series count for a model. It returns false if the series counts for no model. Only rows with
// Parts may add to another model.
func (e *entry) countAs(model string) bool {
	switch {
	case model == e.model:
	case model == "" || !e.row.Parts:
		return false
	case e.out[outModel] == e.model: // the configuration names no other model
		e.out[outModel] = printable(model)
	}
	return true
}

// entry sorts the labels of a source series into four groups: carried labels, replica labels, the total label, dropped labels.
func (c *compiler) entry(d *Dialect, r *Row, s scrape.Sample, defaults map[string]string) (entry, error) {
	e := entry{row: r, sample: s}
	e.out[outRuntime] = string(d.Runtime)
	e.out[outServer] = c.target.server
	for _, l := range r.Set {
		e.out[outIndex(l.Name)] = l.Value
	}
	var split strings.Builder
	var err error
	s.Labels.Range(func(l labels.Label) {
		if l.Name == model.MetricNameLabel || l.Name == labels.BucketLabel || slices.Contains(d.Replicas, l.Name) {
			return
		}
		if l.Name == d.Total {
			e.total = l.Value
			return
		}
		for _, carries := range [][]metrics.Carry{r.Carry, d.Labels} {
			if i := slices.IndexFunc(carries, func(ca metrics.Carry) bool { return ca.From == l.Name }); i >= 0 {
				err = cmp.Or(c.carry(d, &e, carries[i], l), err)
				break
			}
		}
		split.WriteString(l.Name + "\xff" + l.Value + "\xff")
	})
	e.split = split.String()
	if e.model = e.out[outModel]; c.served != nil && e.model != "" {
		e.madeUp = !c.isModel(e.model)
		e.out[outModel] = otherValue
		if !e.madeUp {
			e.out[outModel] = c.target.bounded(metrics.LabelModel, e.model, c.config.Limits.LabelValueBytes)
		}
	}
	for name, value := range defaults {
		if i := outIndex(name); e.out[i] == "" {
			e.out[i] = value
		}
	}
	for name, value := range c.target.fixed {
		e.out[outIndex(name)] = value
	}
	for _, l := range c.target.extra {
		if i := outIndex(l.Name); i >= 0 {
			e.out[i] = "" // a label of the user has this name
		}
	}
	return e, err
}

// carry writes a label of a source series under its name in the vocabulary. Clients choose the values of a gateway's
// labels, so their number is limited. An engine's values must not be too long.
func (c *compiler) carry(d *Dialect, e *entry, by metrics.Carry, l labels.Label) error {
	value, limit := by.Apply(printable(l.Value)), c.config.Limits.LabelValueBytes
	if d.Role == metrics.GatewayRole && by.To != metrics.LabelModel {
		value = c.target.bounded(by.To, value, limit)
	} else if d.Role != metrics.GatewayRole && len(l.Value) > limit {
		return scrape.Errorf(scrape.LimitExceeded,
			"label %s of %s has %d bytes, more than %d: raise limits.label_value_length if this is normal",
			l.Name, e.row.From, len(l.Value), limit)
	}
	if by.To == metrics.LabelOutcome && value == "" && l.Value != "" {
		value = c.unlisted(e.row.From, l)
	}
	if value != "" {
		e.out[outIndex(by.To)] = value
	}
	return nil
}

// text renders a series about the metrics page itself, labelled with metrics.TargetLabels.
func (t *labelling) text(name string, runtime metrics.Runtime, more ...metrics.Label) string {
	ls := []metrics.Label{
		{Name: metrics.LabelRuntime, Value: string(runtime)},
		{Name: metrics.LabelNamespace, Value: t.fixed[metrics.LabelNamespace]},
		{Name: metrics.LabelPod, Value: t.fixed[metrics.LabelPod]},
		{Name: metrics.LabelContainer, Value: t.fixed[metrics.LabelContainer]},
		{Name: metrics.LabelServer, Value: t.server},
	}
	return string(metrics.AppendSeries(nil, name, slices.Concat(ls, t.extra, more)...))
}

// process reads the start time and the CPU time of the engine's process from the standard process metrics. Python's
// client writes these metrics, except in multiprocess mode.
func (c *compiler) process() {
	own := func(name string, is scrape.Type) term {
		if f := c.page.Find(name, is); f != nil {
			if all := containers(c.page, f.Samples); len(all) == 1 {
				return term{all[0].Index}
			}
		}
		return nil
	}
	if start := own("process_start_time_seconds", scrape.Gauge); start != nil {
		c.plan.start = start
		c.add(line{
			family: metrics.EngineStartTime, text: c.target.text(metrics.EngineStartTime.Name, c.plan.runtime), terms: []term{start},
			recipe: plain,
		})
	}
	c.plan.cpu = own(cpuTime, scrape.Counter)
}

// checkDuplicates refuses a metrics page that has a mapped series twice, because either copy may be wrong.
func (c *compiler) checkDuplicates() error {
	for _, d := range c.page.Duplicates {
		if c.plan.used[d.First] || c.plan.used[d.Second] {
			return scrape.Errorf(reasonDuplicate, "series %.120s is on the metrics page twice", d.Series)
		}
	}
	return nil
}
