package migrate

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu/page"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// An equal describes the series in the vocabulary that correspond to the series of one old name.
type equal struct {
	to   *metrics.Family
	part string // part of a histogram: _bucket, _sum or _count
	// only selects the series of the family that correspond to old series. where selects these old series.
	only, where []*labels.Matcher
	// newer means that old releases of the engine have the name without the label in where. An old selector may then leave
	// out this label.
	newer bool
	unit  metrics.Scale
	// rate means that the old number is a rate. The family is the counter behind it.
	rate bool
	// over lists labels of the family that split a number for which there was only one old series.
	over []string
	// labels maps the labels of the old series.
	labels map[string]mapped
	// old marks a name that newer releases of the engine have removed.
	old bool
	// repeats lists old labels whose series all have the same number. The family has this number only once.
	repeats []string
	// differs describes how the family's meaning differs, for example which additional events it counts. not explains why
	// there is no equal. If not is set, the other fields have no meaning.
	differs []string
	not     string
}

// A mapped label describes the label of the vocabulary that replaces an old label. The name is empty if nothing
// replaces the old label, because its series only repeat a number.
type mapped struct {
	name  string
	carry *metrics.Carry
	// before is a prefix that values have only in the old series. after is a prefix that values have only in the
	// vocabulary.
	before, after string
}

// anyValue in a Set stands for any non-empty value.
const anyValue = "*"

// ofScrape lists labels that only describe how the old metrics page was scraped.
var ofScrape = []string{"job", "endpoint", "service", "prometheus", "container", "namespace", "pod"}

// table has the equals by old name, in the order in which they are tried.
var table = sync.OnceValue(func() map[string][]equal {
	all := map[string][]equal{}
	for _, d := range engine.Known() {
		for i := range d.Rows {
			ofRow(d, &d.Rows[i], func(name string, e equal) { all[name] = append(all[name], e) })
		}
	}
	gpus := mappedLabels(page.EqualLabels())
	gpus["device"] = mapped{name: metrics.LabelGPU, before: "nvidia"}
	for _, node := range []string{"Hostname", "hostname"} {
		gpus[node] = mapped{name: metrics.LabelInstance}
	}
	for _, e := range page.Equals() {
		q := ofGPU(e, gpus)
		for _, o := range page.Equals() {
			if o.Row < e.Row && o.To == e.To && o.Not == "" && fmt.Sprint(o.Set) == fmt.Sprint(e.Set) {
				q.differs = append(q.differs, fmt.Sprintf("%s comes from %s if that metric exists", e.To.Name, o.Name))
			}
		}
		all[e.Name] = append(all[e.Name], q)
	}
	of := mappedLabels(smiLabels)
	of["uuid"] = mapped{name: metrics.LabelGPUUUID, after: "GPU-"}
	for _, e := range smi() {
		all[e.Name] = append(all[e.Name], ofGPU(e, of))
	}
	return all
})

func mappedLabels(of map[string]string) map[string]mapped {
	to := map[string]mapped{metrics.LabelInstance: {name: metrics.LabelInstance}, metrics.LabelCluster: {name: metrics.LabelCluster}}
	for old, name := range of {
		to[old] = mapped{name: name}
	}
	return to
}

func ofGPU(e page.Equal, to map[string]mapped) equal {
	if e.Carry.From != "" {
		to = maps.Clone(to)
		to[e.Carry.From] = mapped{name: e.Carry.To, carry: &e.Carry}
	}
	q := equal{to: e.To, unit: e.Unit, rate: e.Rate, labels: to, not: e.Not}
	if e.Latest {
		q.not = "this is the code of the last error: " + e.To.Name + " counts each code, and " + metrics.GPUXIDLastTimestamp.Name +
			" has its time"
	}
	set := map[string]bool{}
	for _, l := range e.Set {
		set[l.Name] = true
		switch {
		case l.Name == metrics.LabelLocation && l.Value == "all": // NVML distinguishes them
			set[l.Name] = false
		case l.Value == anyValue:
			q.only = append(q.only, labels.MustNewMatcher(labels.MatchNotEqual, l.Name, ""))
		default:
			q.only = append(q.only, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value))
		}
	}
	for _, l := range e.To.Labels {
		_, mappedTo := old(to, l)
		if !set[l] && !mappedTo && e.To.Kind != metrics.Info && e.To.Aggregate == metrics.Sum {
			q.over = append(q.over, l)
		}
	}
	return q
}

// old returns the old name of a label.
func old(to map[string]mapped, label string) (string, bool) {
	for name, m := range to {
		if m.name == label {
			return name, true
		}
	}
	return "", false
}

// ofRow adds the equals of a row of an engine's dialect.
func ofRow(d *engine.Dialect, r *engine.Row, add func(name string, e equal)) {
	if r.Tally != nil {
		return // no single source is the counted quantity
	}
	e := equal{to: r.To, unit: r.Scale, labels: labelsOfRow(d, r), where: r.Where, old: r.Until != "", not: notOfRow(d, r)}
	e.only = []*labels.Matcher{labels.MustNewMatcher(labels.MatchEqual, metrics.LabelRuntime, string(d.Runtime))}
	for _, l := range r.Set {
		if _, open := values(r, l.Name); !open {
			e.only = append(e.only, labels.MustNewMatcher(labels.MatchEqual, l.Name, l.Value))
		}
	}
	e.repeats = slices.DeleteFunc(slices.Clone(d.Replicas), func(l string) bool { return l == "pid" }) // names of a few old releases
	e.newer = len(r.Where) > 0 && slices.ContainsFunc(d.Rows, func(o engine.Row) bool {
		return o.From == r.From && o.To == r.To && len(o.Where) > 0 &&
			!slices.ContainsFunc(o.Where, func(m *labels.Matcher) bool { return !m.Matches("") })
	})
	if e.not == "" {
		e.alone(d, r)
		if r.Fold != nil {
			e.differs = append(e.differs, r.To.Name+" is absent if the engine reports zero because it does not count")
		}
	}
	e.named(r, add)
}

// labelsOfRow maps the labels of a row's series. The keys are the names that the labels have in Prometheus.
func labelsOfRow(d *engine.Dialect, r *engine.Row) map[string]mapped {
	to := map[string]mapped{metrics.LabelInstance: {name: metrics.LabelServer}}
	for _, same := range []string{metrics.LabelNamespace, metrics.LabelPod, metrics.LabelContainer, metrics.LabelCluster} {
		to[same] = mapped{name: same}
	}
	for _, l := range d.Replicas {
		to[l] = mapped{}
	}
	for _, carries := range [][]metrics.Carry{d.Labels, r.Carry} {
		for i := range carries {
			to[carries[i].From] = mapped{name: carries[i].To, carry: &carries[i]}
		}
	}
	return to
}

// named adds the equal under each name that Prometheus may store the row's source under.
func (e equal) named(r *engine.Row, add func(name string, e equal)) {
	base := strings.TrimSuffix(r.From, "_total")
	switch {
	case r.Is == scrape.Histogram && r.Part == "" && r.To.Kind == metrics.Histogram:
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			e.part = part
			add(r.From+part, e)
		}
	case r.Part != "":
		add(r.From+"_"+string(r.Part), e)
	case r.Is == scrape.Counter:
		add(base+"_total", e)
		add(base, e)
	default:
		add(r.From, e)
	}
}

// notOfRow explains why the row's family differs from the number on the metrics page. If it does not differ, the result
// is empty.
func notOfRow(d *engine.Dialect, r *engine.Row) string {
	if len(r.With) > 0 {
		return "this is only one of the numbers from which " + r.To.Name + " is computed"
	}
	for _, v := range []float64{1, 2.5, 7} { // a fold may drop numbers, but it must not change numbers
		if r.Fold == nil {
			break
		}
		if folded, ok := r.Fold([]engine.Member{{Family: r.From, Value: v}}); !ok || folded != v {
			return r.To.Name + " is computed from its labels or bounds"
		}
	}
	extended := func(o engine.Row) bool { return o.From == r.From && o.To == r.To && o.Until == "" && len(o.With) > 0 }
	switch {
	case r.Until != "" && slices.ContainsFunc(d.Rows, extended):
		return r.To.Name + " includes more than this metric in newer releases"
	case d.Supplement:
		return r.To.Name + " combines this metric with what the engine itself reports"
	}
	return ""
}

// values returns the values that a label can have in a row's series. open means that the series have the label, but
// with values that only the metrics page determines.
func values(r *engine.Row, label string) (of []string, open bool) {
	for _, c := range r.Carry {
		if c.To == label {
			open = true
			for _, o := range c.Outcomes {
				of = append(of, string(o))
			}
		}
	}
	for _, l := range r.Set {
		if l.Name == label && !open { // a label of the metrics page replaces the value
			return []string{l.Value}, false
		}
	}
	slices.Sort(of)
	return slices.Compact(of), open && len(of) == 0
}

// alone restricts an equal to the events that the row itself counts. It notes the events that other rows add to the
// same series.
func (e *equal) alone(d *engine.Dialect, r *engine.Row) {
	without := map[string][]string{} // label values that belong to other rows
	outcomes := false
	for i := range d.Rows {
		o := &d.Rows[i]
		switch {
		case o == r || o.To != r.To || o.From == r.From && !o.Plus && !r.Plus:
		case !o.Plus && !r.Plus:
			e.beside(r, o)
		case o.Until != "" && r.Until == "": // the other row is for older releases
		default:
			apart, ofOutcomes := tell(r, o, without)
			outcomes = outcomes || ofOutcomes
			if !apart {
				e.differs = append(e.differs, fmt.Sprintf("%s also counts %s", r.To.Name, o.From))
			}
		}
	}
	if mine, _ := values(r, metrics.LabelOutcome); outcomes && len(mine) > 1 {
		e.only = append(e.only, labels.MustNewMatcher(labels.MatchRegexp, metrics.LabelOutcome, strings.Join(mine, "|")))
	}
	for l, others := range without {
		slices.Sort(others)
		others = slices.Compact(others)
		e.only = append(e.only, labels.MustNewMatcher(labels.MatchNotRegexp, l, strings.Join(others, "|")))
	}
}

// beside adapts an equal to another row that is an alternative source of the same quantity. A metrics page has only one
// of the two sources.
func (e *equal) beside(r, o *engine.Row) {
	if finer, _ := values(o, metrics.LabelOutcome); len(finer) > 1 && len(r.Set) == 1 && r.Set[0].Value == string(metrics.OutcomeSuccess) {
		e.wholes(finer)
	} else if o.Tally == nil && o.Part == r.Part {
		e.differs = append(e.differs, fmt.Sprintf("%s also includes engines that name this metric %s", r.To.Name, o.From))
	}
}

// tell reports whether labels distinguish the series of a row from those of another row that adds to the same quantity.
// outcomes means that this works only if the row is limited to its own label values. If the row takes a label's values
// from the metrics page, tell adds the other row's values to without.
func tell(r, o *engine.Row, without map[string][]string) (apart, outcomes bool) {
	for _, l := range metrics.DetailLabels {
		if !r.To.HasLabel(l) {
			continue
		}
		mine, open := values(r, l)
		theirs, openToo := values(o, l)
		switch {
		case len(mine) > 0 && len(theirs) > 0:
			if !slices.ContainsFunc(theirs, func(v string) bool { return slices.Contains(mine, v) }) {
				apart = true
				outcomes = outcomes || len(mine) > 1
			}
		case open && len(theirs) > 0:
			apart = true
			without[l] = append(without[l], theirs...)
		case openToo && len(mine) > 0:
			apart = true
		}
	}
	return apart, outcomes
}

// wholes extends an equal from the outcome "success" to all outcomes of requests that ended well. It is needed because
// the exporter prefers another source, which has finer outcomes.
func (e *equal) wholes(outcomes []string) {
	good := []string{string(metrics.OutcomeSuccess)}
	for _, o := range outcomes {
		if slices.Contains([]metrics.Outcome{metrics.OutcomeStop, metrics.OutcomeLength, metrics.OutcomeRepetition}, metrics.Outcome(o)) {
			good = append(good, o)
		}
	}
	e.only = append(e.only[:1:1], labels.MustNewMatcher(labels.MatchRegexp, metrics.LabelOutcome, strings.Join(good, "|")))
	e.over = []string{metrics.LabelOutcome}
}

// several lists the values of an old label that share one value in the vocabulary. The result is empty if no values
// share one.
func (m mapped) several(old string) string {
	if m.carry == nil {
		return ""
	}
	byOutcome := map[string][]string{}
	for value, outcome := range m.carry.Outcomes {
		byOutcome[string(outcome)] = append(byOutcome[string(outcome)], value)
	}
	var all []string
	for outcome, of := range byOutcome {
		if slices.Sort(of); len(of) > 1 {
			all = append(all, fmt.Sprintf("%s %s is %s=%q", old, strings.Join(of, " or "), m.name, outcome))
		}
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// prefixes lists the prefixes that are typical of metrics from engines and from other exporters.
var prefixes = sync.OnceValue(func() []string {
	all := map[string]bool{"DCGM_FI_": true, "DCGM_EXP_": true, "nvidia_smi_": true}
	for _, d := range engine.Known() {
		for _, r := range d.Rows {
			if prefix, _, ok := strings.Cut(r.From, ":"); ok {
				all[prefix+":"] = true
			}
			if own := strings.ReplaceAll(string(d.Runtime), "-", "_") + "_"; strings.HasPrefix(r.From, own) {
				all[own] = true
			}
		}
	}
	names := make([]string, 0, len(all))
	for p := range all {
		names = append(names, p)
	}
	slices.Sort(names)
	return names
})

// migratable reports whether a name has one of these prefixes, so that it must be rewritten.
func migratable(name string) bool {
	return slices.ContainsFunc(prefixes(), func(p string) bool { return strings.HasPrefix(name, p) })
}

// find returns the equals of a name. If there are none, why explains this. why is empty for names of other software,
// because they stay unchanged.
func find(name string) (found []equal, why string) {
	all := table()[name]
	for _, e := range all {
		if e.not == "" {
			found = append(found, e)
		}
	}
	if len(found) == 0 && len(all) > 0 {
		return nil, all[0].not
	}
	slices.SortStableFunc(found, func(a, b equal) int { // if several engines use the name, current names come first
		switch {
		case a.old == b.old || migratable(name):
			return 0
		case a.old:
			return 1
		}
		return -1
	})
	if len(found) > 0 || !migratable(name) {
		return found, ""
	}
	for _, n := range smiNot {
		if strings.HasPrefix(name, n.prefix) {
			return nil, n.why
		}
	}
	for _, part := range []string{"", "_bucket", "_sum", "_count"} {
		base, ok := strings.CutSuffix(name, part)
		if _, why := engine.Ignored(base); ok && why != "" {
			return nil, "the exporter does not read this metric: " + why
		}
	}
	return nil, "no metric of the exporter has this number"
}

// label returns the new name of an old label.
func (e *equal) label(name string) (mapped, bool) {
	m, ok := e.labels[name]
	return m, ok
}

// info returns the info metric that has a label, if the series themselves lack the label. Otherwise, or if no info
// metric has the label, it returns nil.
func (e *equal) info(label string) *metrics.Family {
	if e.to.HasLabel(label) || slices.Contains([]string{metrics.LabelInstance, metrics.LabelCluster, "job"}, label) ||
		e.to.Owner != metrics.GPU {
		return nil
	}
	for _, f := range []*metrics.Family{metrics.GPUInfo, metrics.GPUMIGInfo} {
		if f.HasLabel(label) {
			return f
		}
	}
	return nil
}

// matcher converts a condition on an old label. If the new condition matches more values, note describes this.
func (m mapped) matcher(old *labels.Matcher) (converted *labels.Matcher, note string, err error) {
	value := old.Value
	switch {
	case m.carry != nil && (m.carry.Map != nil || m.carry.Outcomes != nil) && value != "" && !anything.MatchString(value):
		return m.carried(old)
	case m.before != "" && !variable.MatchString(value):
		value = strings.TrimPrefix(value, m.before)
	case m.after != "" && !variable.MatchString(value) && value != "" && !anything.MatchString(value):
		value = m.after + value
	}
	converted, err = labels.NewMatcher(old.Type, m.name, value)
	return converted, "", err
}

var (
	anything = regexp.MustCompile(`^\(?\.[*+]\)?$`)
	variable = regexp.MustCompile(`\$\w+|\$\{[^}]+\}|\[\[[^\]]+\]\]`)
)

// carried converts a condition on a label whose values have other names in the vocabulary.
func (m mapped) carried(old *labels.Matcher) (*labels.Matcher, string, error) {
	if variable.MatchString(old.Value) {
		return nil, "", fmt.Errorf("the values of %s have other names in %s: a variable cannot be translated", old.Name, m.name)
	}
	if m.carry.Outcomes == nil {
		if old.Type != labels.MatchEqual && old.Type != labels.MatchNotEqual {
			return nil, "", fmt.Errorf("the values of %s have other names in %s: write them one by one", old.Name, m.name)
		}
		to := m.carry.Map(old.Value)
		if to == "" {
			return nil, "", fmt.Errorf("%s=%q has no equivalent", old.Name, old.Value)
		}
		return labels.MustNewMatcher(old.Type, m.name, to), "", nil
	}
	positive := labels.MustNewMatcher(old.Type, old.Name, old.Value)
	if old.Type == labels.MatchNotEqual || old.Type == labels.MatchNotRegexp {
		positive, _ = positive.Inverse()
	}
	targets, also := map[string]bool{}, []string{}
	for value, outcome := range m.carry.Outcomes {
		if positive.Matches(value) {
			targets[string(outcome)] = true
		}
	}
	if len(targets) == 0 {
		return nil, "", fmt.Errorf("the engine has no value %s=%q", old.Name, old.Value)
	}
	for value, outcome := range m.carry.Outcomes {
		if targets[string(outcome)] && !positive.Matches(value) {
			also = append(also, value)
		}
	}
	names := make([]string, 0, len(targets))
	for t := range targets {
		names = append(names, t)
	}
	slices.Sort(names)
	slices.Sort(also)
	how := labels.MatchRegexp
	if len(names) == 1 {
		how = labels.MatchEqual
	}
	converted := labels.MustNewMatcher(how, m.name, strings.Join(names, "|"))
	if positive.Type != old.Type {
		converted, _ = converted.Inverse()
	}
	note := ""
	if len(also) > 0 {
		note = fmt.Sprintf("%s also stands for %s %s", converted, old.Name, strings.Join(also, ", "))
	}
	return converted, note, nil
}
