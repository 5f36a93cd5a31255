// Package triage names where to look first, from two readings of a node, taken a short time apart. It evaluates the
// generated rules in Prometheus' own query engine, so that it reaches the same verdict as a Prometheus with these
// rules. Without a Prometheus, it has no data from yesterday.
package triage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/template"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Health is the state of a model.
type Health string

// These are the states. The best comes first.
const (
	Healthy  Health = "healthy"
	Degraded Health = "degraded"
	Failing  Health = "failing"
	Unknown  Health = "unknown" // two readings are not sufficient for a verdict
)

// Verdict is the health of one model, with the place to look first.
type Verdict struct {
	Model     string `json:"model"` // empty for an engine or gateway that has not reported its model
	Namespace string `json:"namespace,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
	Health    Health `json:"health"`
	// Symptoms describes the bad values that users notice or, if no value is bad, all values.
	Symptoms []string `json:"symptoms"`
	// Branch, Clue and Says name the first suspect. They are empty without a suspect.
	Branch rules.Branch `json:"branch"`
	Clue   string       `json:"clue,omitempty"`
	Says   string       `json:"says,omitempty"`
	Delays rules.Delays `json:"delays,omitempty"` // as in Suspect
	// Confidence is high if enough requests show that users suffer. It is also high if an alert that pages by itself
	// would fire, and the readings are at least half a minute apart. Confidence is low if the first suspect comes from
	// a comparison with the engines' lifetime, or if another branch has an equally clear suspect. Without a suspect, it
	// is none.
	Confidence string `json:"confidence"`
	// Or names another possible branch, and the value that distinguishes the two branches.
	Or       string     `json:"or,omitempty"`
	Also     []Suspect  `json:"also"` // further suspects, in order
	Evidence []Evidence `json:"evidence"`
	RuledOut []RuledOut `json:"ruled_out"` // branches that values would have shown
	NotSeen  []RuledOut `json:"not_seen"`  // branches whose values are missing
	// Lever is the first of Levers as one sentence, as in an alert.
	Lever string `json:"lever"`
	// Levers lists the actions of the runbook, including commands. The fastest action comes first.
	Levers []string `json:"levers"`
	// Runbook is the path of the runbook on an exporter. The path's parameters fill in the commands of the runbook.
	Runbook string `json:"runbook,omitempty"`
	Record  Record `json:"record"`

	dead    bool // no metrics endpoint of the model answers
	recalls bool // a Prometheus has data of the day before
}

// Suspect names a place to look, with sufficiently strong evidence.
type Suspect struct {
	Branch  rules.Branch `json:"branch"`
	Clue    string       `json:"clue"`
	Says    string       `json:"says"`
	Runbook string       `json:"runbook"`

	// Delays is empty if the suspect explains all delays.
	Delays rules.Delays `json:"delays,omitempty"`

	labels       map[string]string
	pages, harms bool // the suspect pages by itself, or contradicts health
}

// Evidence is a fact about the model. Before is the fact's value on the day before. Without a Prometheus, it is the
// mean since the engines started, if they have run for long enough.
type Evidence struct {
	Fact   string     `json:"fact"`
	Says   string     `json:"says"`
	Of     string     `json:"of,omitempty"` // a replica, GPU or version
	Value  float64    `json:"value"`
	Unit   rules.Unit `json:"unit"`
	Shown  string     `json:"shown"`
	Before string     `json:"before,omitempty"`
}

// RuledOut names a branch without a suspect. It also states whether the branch is ruled out, and why.
type RuledOut struct {
	Branch rules.Branch `json:"branch"`
	Why    string       `json:"why"`
}

// Record has the values to note for the incident's record, because a restart would erase them.
type Record struct {
	Model       string   `json:"model"`
	Runtimes    []string `json:"runtimes"`
	Versions    []string `json:"versions"`
	Engines     []string `json:"engines"`
	Started     []string `json:"started"`  // start of each engine, RFC 3339
	Settings    []string `json:"settings"` // of the engines
	Changed     []string `json:"changed"`  // changed settings, the last change first
	GPUs        []string `json:"gpus"`
	Drivers     []string `json:"drivers"`
	Route       string   `json:"route"`        // how to find the value, because no metric has it
	From        string   `json:"from"`         // first reading, RFC 3339
	To          string   `json:"to"`           // second reading
	FirstTokens float64  `json:"first_tokens"` // between the readings
}

// judge holds the data that all models share.
type judge struct {
	*evaluation
	before  Reading
	alerts  []*rules.Alert
	causes  map[*rules.Alert]engine.Vector
	late    engine.Vector // metrics endpoints that timed out only in the second reading
	records []rules.Record
}

// rate5m names the burn rate of the last five minutes, which include the readings.
var rate5m = metrics.Window(metrics.RecordedBurn, "5m")

// Judge returns a verdict for each model of the second reading. If the engines of a model have gone since the first
// reading, it takes the model from the first reading. Models in the worst health come first. past may be nil. If past
// fails, the error is a PastError. If both readings are without metrics, the exporter does not answer: see Unanswered.
func Judge(ctx context.Context, before, after Reading, past Past) ([]Verdict, error) {
	before.At, after.At = before.At.Truncate(time.Millisecond), after.At.Truncate(time.Millisecond) // the query engine also has milliseconds
	if len(before.Series)+len(after.Series) == 0 && past == nil {
		return []Verdict{Unanswered("", "")}, nil
	}
	before, after, late := remembered(before, after)
	if !after.At.After(before.At) {
		return nil, fmt.Errorf("the second reading, of %s, must be later than the first, of %s", after.At, before.At)
	}
	j := &judge{
		evaluation: newEvaluation(ctx, dated(before, after), after, past), before: before, late: late,
		causes: map[*rules.Alert]engine.Vector{},
	}
	verdicts, err := j.verdicts()
	if failed := (*PastError)(nil); errors.As(err, &failed) { // people need not know which rule sent the query
		return nil, failed
	}
	if err != nil {
		return nil, err
	}
	order := []Health{Failing, Degraded, Unknown, Healthy}
	slices.SortStableFunc(verdicts, func(a, b Verdict) int {
		return cmp.Compare(slices.Index(order, a.Health), slices.Index(order, b.Health))
	})
	return verdicts, nil
}

// verdicts judges each model.
func (j *judge) verdicts() (all []Verdict, err error) {
	if err := j.evaluate(); err != nil {
		return nil, err
	}
	models, err := j.models()
	if err != nil {
		return nil, err
	}
	for _, m := range models {
		v, err := j.verdict(m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
		all = append(all, v)
	}
	return all, nil
}

// Worst returns the worst health of the models, or Unknown without a model.
func Worst(verdicts []Verdict) Health {
	if len(verdicts) == 0 {
		return Unknown
	}
	return verdicts[0].Health
}

// evaluate evaluates the rules that verdicts need: the rules about suspects and facts, the burn rates of the last
// minutes, and the alerts that page by themselves.
func (j *judge) evaluate() error {
	var records []rules.Record
	for _, g := range rules.Groups(rules.Options{}) {
		records = append(records, g.Records...)
		for _, a := range g.Alerts {
			down := a.Name == rules.EngineDown.Name || a.Name == rules.GatewayDown.Name
			if down || a.Severity == slo.Page && a.Branch != rules.Symptom && a.Branch != rules.Exporter {
				j.alerts = append(j.alerts, a)
			}
		}
	}
	// Hardware comes first, as in the clues. Alerts that only open a ticket come last.
	place := func(a *rules.Alert) int {
		return slices.Index([]bool{a.Branch == rules.Hardware, a.Severity == slo.Page, true}, true)
	}
	slices.SortStableFunc(j.alerts, func(a, b *rules.Alert) int { return cmp.Compare(place(a), place(b)) })
	// The records that suspects read must come before the records of suspects.
	slices.SortStableFunc(records, func(a, b rules.Record) int { return cmp.Compare(suspects(a), suspects(b)) })

	read := []promql.Expr{
		promql.Vector(metrics.RecordedSuspect), promql.Vector(metrics.RecordedSentence),
		promql.Vector(metrics.RecordedEvidence), promql.Vector(rate5m),
		promql.Vector(metrics.RecordedBurnThreshold), promql.Vector(metrics.RecordedInfo), promql.Vector(metrics.RecordedServedGPU),
	}
	for _, a := range j.alerts {
		read = append(read, a.Expr)
	}
	j.records = needed(records, read...)
	if err := j.record(j.records); err != nil {
		return err
	}
	for _, a := range j.alerts {
		holds, err := j.query(a.Expr)
		if err != nil {
			return fmt.Errorf("%s: %w", a.Name, err)
		}
		j.causes[a] = holds
	}
	j.results = map[string]engine.Vector{}
	return nil
}

func suspects(r rules.Record) int {
	return slices.Index([]*metrics.Family{metrics.RecordedSuspect, metrics.RecordedShown, metrics.RecordedSentence}, r.Name)
}

// subject identifies a model.
type subject struct{ cluster, namespace, name string }

// String returns the model's name for an error.
func (s subject) String() string { return strings.TrimPrefix(s.namespace+"/"+s.name, "/") }

func subjectOf(l labels.Labels) subject {
	return subject{l.Get(metrics.LabelCluster), l.Get(metrics.LabelNamespace), l.Get(metrics.LabelModel)}
}

// matchers select the series of the model.
func (s subject) matchers() []*promql.Matcher {
	return []*promql.Matcher{
		promql.Eq(metrics.LabelCluster, s.cluster), promql.Eq(metrics.LabelNamespace, s.namespace),
		promql.Eq(metrics.LabelModel, s.name),
	}
}

// models lists the models in the readings, in order: the models of engines, the models that only gateways report and
// for which requests were forwarded, and a model without a name. The model without a name stands for engines that do
// not report their model, and for gateways without any other model.
func (j *judge) models() ([]subject, error) {
	seen := map[subject]bool{}
	shown, err := j.query(promql.Or(promql.Over("last_over_time", promql.Vector(metrics.EngineInfo), time.Minute),
		promql.Vector(metrics.RecordedServed)))
	if err != nil {
		return nil, err
	}
	for _, s := range shown {
		seen[subjectOf(s.Metric)] = true
	}
	for _, s := range j.causes[rules.EngineDown] {
		if s.Metric.Get(metrics.LabelModel) == "" {
			seen[subjectOf(s.Metric)] = true
		}
	}
	if err := j.ofGateways(seen); err != nil {
		return nil, err
	}
	if len(seen) == 0 && j.past != nil { // no engine is left on the node, so only the pages that fire in Prometheus remain
		for _, a := range append(slices.Clone(j.alerts), rules.FastBurn) { // recorded clues explain a burn
			if a.Severity != slo.Page {
				continue
			}
			firing, err := j.ask(promql.Vector(metrics.Alerts, promql.Eq("alertname", a.Name), promql.Eq("alertstate", "firing"),
				promql.Ne(metrics.LabelModel, "")).String())
			if err != nil {
				return nil, err
			}
			j.causes[a] = append(j.causes[a], firing...)
			for _, s := range firing {
				seen[subjectOf(s.Metric)] = true
			}
		}
	}
	left, err := j.query(left())
	if err != nil {
		return nil, err
	}
	for _, s := range left {
		seen[subjectOf(s.Metric)] = true
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b subject) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	}), nil
}

// ofGateways adds the models that only gateways report. Models without a valid request are left out, because a client's
// misspelt name may look like a model.
func (j *judge) ofGateways(seen map[subject]bool) error {
	role := promql.Eq(metrics.LabelRole, metrics.GatewayRole)
	valid := promql.Vector(metrics.Requests, role, promql.Ne(metrics.LabelOutcome, string(metrics.OutcomeInvalid)))
	passed, err := j.query(promql.Gt(promql.Sum([]string{metrics.LabelCluster, metrics.LabelNamespace, metrics.LabelModel},
		promql.Increase(valid, time.Minute)), promql.Num(0)))
	if err != nil {
		return err
	}
	behind, err := j.query(promql.Over("last_over_time", promql.Vector(metrics.EngineInfo, role), time.Minute))
	if err != nil {
		return err
	}
	for _, s := range passed {
		seen[subjectOf(s.Metric)] = true
	}
	for _, down := range j.causes[rules.GatewayDown] {
		spoken := slices.ContainsFunc(behind, func(s engine.Sample) bool {
			return page(s.Metric) == page(down.Metric) && s.Metric.Get(metrics.LabelModel) != "" && seen[subjectOf(s.Metric)]
		})
		if !spoken {
			seen[subjectOf(down.Metric)] = true
		}
	}
	if len(seen) == 0 {
		for _, s := range behind {
			of := subjectOf(s.Metric)
			of.name = ""
			seen[of] = true
		}
	}
	return nil
}

// title returns the name of a model. For the model without a name, it returns the metrics endpoints behind which the
// model may be.
func (j *judge) title(m subject) (string, error) {
	if m.name != "" {
		return m.String(), nil
	}
	pages, err := j.query(promql.Over("last_over_time", promql.Vector(metrics.EngineInfo, promql.Re(metrics.LabelRole, ".*")), time.Minute))
	if err != nil {
		return "", err
	}
	var names []string
	for _, s := range slices.Concat(pages, j.causes[rules.EngineDown], j.causes[rules.GatewayDown]) {
		of := subjectOf(s.Metric)
		gateway := s.Metric.Get(metrics.LabelRole) == metrics.GatewayRole
		if of != m && !(gateway && of.cluster == m.cluster && of.namespace == m.namespace) {
			continue
		}
		name := where(s.Metric)
		if gateway {
			name = "gateway " + name
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return cmp.Or(strings.Join(names, ", "), "a model without a name"), nil
}

// verdict judges a model.
func (j *judge) verdict(m subject) (Verdict, error) {
	v := Verdict{
		Model: m.name, Namespace: m.namespace, Cluster: m.cluster, Health: Healthy, Confidence: "none", recalls: j.recalls,
		Symptoms: []string{}, Also: []Suspect{}, Levers: []string{},
	}
	var err error
	if v.Record, err = j.keep(m); err != nil {
		return v, err
	}
	burns, few, err := j.symptoms(m, &v)
	if err != nil {
		return v, err
	}
	t, err := j.traffic(m)
	if err != nil {
		return v, err
	}
	found, err := j.suspects(m, t)
	if err != nil {
		return v, err
	}
	all := explaining(found, burns, few)
	if err := j.health(m, &v, t, burns, all); err != nil {
		return v, err
	}
	if v.Evidence, err = j.evidence(m); err != nil {
		return v, err
	}
	if v.RuledOut, v.NotSeen, err = j.ruledOut(m, t, found, len(v.Record.Engines)); err != nil {
		return v, err
	}
	if len(all) == 0 || v.Health == Healthy {
		v.Also = append(v.Also, all...)
		return v, nil
	}
	first := all[0]
	v.Branch, v.Clue, v.Says, v.Delays, v.Also = first.Branch, first.Clue, first.Says, first.Delays, all[1:]
	v.Confidence, v.Or = j.confidence(all, v, slices.ContainsFunc(burns, burn.goesOn) && v.Record.FirstTokens >= 20)
	page, err := runbooks.Page(first.Runbook)
	if err != nil {
		return v, err
	}
	v.Lever, v.Levers = runbooks.FirstLever(first.Runbook), runbooks.Levers(page, first.labels)
	v.Runbook = runbooks.Address(first.Runbook, first.labels)
	return v, nil
}

// explaining keeps the suspects that explain a burn or, without a burn, the few bad events. The suspects of the worst
// burn come first, as in its alert. If no event was bad, it keeps all suspects. A gateway that is down is kept in any
// case, but comes last: it counts no requests, so no burn shows its outage.
func explaining(found []Suspect, burns, few []burn) []Suspect {
	if len(burns) == 0 {
		burns = few
	}
	if len(burns) == 0 {
		return slices.Clone(found)
	}
	var all []Suspect
	told := make([]bool, len(found))
	wait := slices.ContainsFunc(found, func(s Suspect) bool { return s.Clue == rules.QueueLong })
	for _, of := range [][]burn{burns[:1], burns} {
		for i, s := range found {
			if !told[i] && slices.ContainsFunc(of, func(b burn) bool { return b.explained(s.Delays, wait) }) {
				told[i], all = true, append(all, s)
			}
		}
	}
	for i, s := range found {
		if !told[i] && s.Clue == "gateway_down" {
			all = append(all, s)
		}
	}
	return all
}

// suspects returns the suspects of a model, in order: alerts that page by themselves, clues, and alerts that are
// consequences of other suspects. Engines that make no progress come right after the clues about hardware.
func (j *judge) suspects(m subject, t traffic) (all []Suspect, err error) {
	all, late, err := j.alerted(m)
	if err != nil {
		return nil, err
	}
	stalled := func(s Suspect) bool {
		return s.Runbook == rules.EngineStalled.Name || s.Runbook == rules.ModelStalled.Name
	}
	told := slices.ContainsFunc(all, stalled)
	still, back, err := j.watched(m, t)
	if err != nil {
		return nil, err
	}
	clues, err := j.query(promql.Vector(metrics.RecordedSentence, m.matchers()...))
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(clues, func(a, b engine.Sample) int {
		return cmp.Compare(a.Metric.Get(metrics.LabelOrder), b.Metric.Get(metrics.LabelOrder))
	})
	for _, c := range clues {
		if c.Metric.Get(metrics.LabelBranch) != string(rules.Hardware) && !told {
			all, told = append(all, still...), true
		}
		if c.Metric.Get(metrics.LabelRunbook) == rules.EngineStalled.Name && slices.ContainsFunc(all, stalled) { // already in the list
			continue
		}
		says := c.Metric.Get(metrics.LabelSays)
		if j.workerless(c.Metric) {
			says = strings.Replace(says, "stopped answering", "had no worker", 1)
		}
		clue := Suspect{
			Branch: rules.Branch(c.Metric.Get(metrics.LabelBranch)), Clue: c.Metric.Get(metrics.LabelClue), Says: says,
			Runbook: c.Metric.Get(metrics.LabelRunbook), Delays: rules.Delays(c.Metric.Get(metrics.LabelDelays)), labels: j.place(m, c.Metric),
		}
		if clue.Clue == "gpu_failed" { // this fault stops engines
			all = slices.Insert(all, 0, clue)
			continue
		}
		if (clue.Branch == rules.Prefill || clue.Branch == rules.Behaviour) && t.requests() < enough { // two long answers may be chance
			late = append(late, clue)
			continue
		}
		all = append(all, clue)
	}
	if !told {
		all = append(all, still...)
	}
	for _, a := range j.alerts {
		raised := func(s Suspect) bool {
			return s.Clue == a.Name && slices.ContainsFunc(all, func(by Suspect) bool {
				return a.IsExplainedBy(by.Clue, by.labels[metrics.LabelServer], s.labels[metrics.LabelServer])
			})
		}
		for i := slices.IndexFunc(all, raised); i >= 0; i = slices.IndexFunc(all, raised) {
			late, all = append(late, all[i]), slices.Delete(all, i, i+1)
		}
	}
	return slices.Concat(all, back, late), nil
}

// alerted returns the alerts about a model that would fire: those that page by themselves, and those that come late in
// a diagnosis (tickets, and alerts about the behaviour of clients).
func (j *judge) alerted(m subject) (pages, late []Suspect, err error) {
	gpus, err := j.query(promql.Vector(metrics.RecordedServedGPU, m.matchers()...))
	if err != nil {
		return nil, nil, err
	}
	runsOn := func(uuid string) bool {
		return uuid != "" && slices.ContainsFunc(gpus, func(g engine.Sample) bool { return g.Metric.Get(metrics.LabelGPUUUID) == uuid })
	}
	for _, a := range j.alerts {
		for _, s := range j.causes[a] {
			if subjectOf(s.Metric) != m && (s.Metric.Get(metrics.LabelModel) != "" || !runsOn(s.Metric.Get(metrics.LabelGPUUUID))) {
				continue
			}
			says, err := j.alertSays(a, m, s)
			if err != nil {
				return nil, nil, err
			}
			suspect := Suspect{
				Branch: a.Branch, Clue: a.Name, Says: says, Runbook: a.Name, labels: j.place(m, s.Metric),
				pages: a.Severity == slo.Page, harms: true,
			}
			if suspect.pages && a != rules.ClientsGiveUp {
				pages = append(pages, suspect)
			} else { // clues then give the reason
				late = append(late, suspect)
			}
		}
	}
	return pages, late, nil
}

// alertSays returns the text of an alert about a model. Where the alert makes a statement about all engines, the text
// limits it to those that were read on this node.
func (j *judge) alertSays(a *rules.Alert, m subject, s engine.Sample) (string, error) {
	says, err := j.expand("{{ $labels := .Labels }}{{ $value := .Value }}"+rules.Brief(a.Summary), s, nil)
	switch {
	case err != nil:
		return "", err
	case a.Name == rules.ModelDown.Name && s.F >= 0 && m.name == "":
		return "No engine that is read here serves, and none has reported its model", nil
	case a.Name == rules.ModelDown.Name && s.F >= 0:
		return says + ", among those that are read here", nil
	case a.Name == rules.EngineDown.Name && m.name == "" && j.workerless(s.Metric):
		return where(s.Metric) + " has no worker, and never reported its model", nil
	case a.Name == rules.EngineDown.Name && m.name == "":
		return where(s.Metric) + " does not answer, and never reported its model", nil
	}
	return says, nil
}

// place returns the labels that fill in the commands of a suspect's runbook. These are the suspect's own labels and, if
// the model has only one replica (on the suspect's GPU, if it has one), the labels of this replica.
func (j *judge) place(m subject, of labels.Labels) map[string]string {
	l := of.Map()
	info, own := metrics.EngineInfo, m.matchers()
	if gpu := of.Get(metrics.LabelGPUUUID); gpu != "" {
		info, own = metrics.EngineGPUInfo, append(own, promql.Eq(metrics.LabelGPUUUID, gpu))
	}
	replicas, err := j.query(promql.Max(metrics.ReplicaLabels, promql.Vector(info, own...)))
	if err == nil && len(replicas) == 1 {
		for name, value := range replicas[0].Metric.Map() {
			l[name] = cmp.Or(l[name], value)
		}
	}
	return l
}

// expand renders a template of the rules for a sample, with additional labels.
func (j *judge) expand(text string, s engine.Sample, more map[string]string) (string, error) {
	l := s.Metric.Map()
	maps.Copy(l, more)
	says, err := template.NewTemplateExpander(j.ctx, text, "triage", template.AlertTemplateData(l, nil, "", s),
		model.TimeFromUnixNano(j.at.UnixNano()), nil, nil, nil).Expand()
	if !j.recalls { // without the past, the engines' own counters are used
		says = strings.ReplaceAll(says, "the day before", "before")
	}
	return says, err
}

const ofBefore = "_before"

// evidence returns the facts about a model, in order.
func (j *judge) evidence(m subject) ([]Evidence, error) {
	facts, err := j.query(promql.Vector(metrics.RecordedEvidence, m.matchers()...))
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(facts, func(a, b engine.Sample) int {
		return cmp.Compare(a.Metric.Get(metrics.LabelOrder), b.Metric.Get(metrics.LabelOrder))
	})
	all, before := []Evidence{}, map[string]string{}
	for _, f := range facts {
		l := f.Metric
		shown, err := j.expand(rules.FactText(), f, nil)
		if err != nil {
			return nil, err
		}
		fact := l.Get(metrics.LabelFact)
		if now, ok := strings.CutSuffix(fact, ofBefore); ok {
			before[now] = shown
			continue
		}
		var of []string
		for _, name := range []string{
			metrics.LabelPod, metrics.LabelServer, metrics.LabelGPUUUID, metrics.LabelReason, metrics.LabelXID,
			metrics.LabelVersion,
		} {
			if value := l.Get(name); value != "" {
				of = append(of, value)
			}
		}
		if setting := l.Get(metrics.LabelSetting); setting != "" {
			of = append(of, setting, l.Get(metrics.LabelOld), "->", l.Get(metrics.LabelNew))
		}
		all = append(all, Evidence{
			Fact: fact, Says: l.Get(metrics.LabelSays), Of: strings.Join(of, " "), Value: f.F,
			Unit: rules.Unit(l.Get(metrics.LabelUnit)), Shown: shown,
		})
	}
	for i := range all {
		all[i].Before = before[all[i].Fact]
	}
	return all, nil
}
