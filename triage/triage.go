// Package triage says where to look first, from two readings of a node a little apart. It evaluates the rules that a
// Prometheus records and alerts with, in Prometheus' own query engine, so that both come to the same verdict; without a
// Prometheus it knows no yesterday.
package triage

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/template"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Health says how a model does.
type Health string

// The states, the best first.
const (
	Healthy  Health = "healthy"
	Degraded Health = "degraded"
	Failing  Health = "failing"
	Unknown  Health = "unknown" // two readings could not tell
)

// Verdict says of one model how it does, and where to look first.
type Verdict struct {
	Model     string `json:"model"` // empty for an engine that never said what it serves
	Namespace string `json:"namespace,omitempty"`
	Cluster   string `json:"cluster,omitempty"`
	Health    Health `json:"health"`
	// Symptoms say which numbers are bad, or how they are where none is.
	Symptoms []string `json:"symptoms"`
	// Branch, Clue and Says name the first suspect; all are empty where nothing is suspicious.
	Branch rules.Branch `json:"branch"`
	Clue   string       `json:"clue,omitempty"`
	Says   string       `json:"says,omitempty"`
	Delays rules.Delays `json:"delays,omitempty"` // as of a suspect
	// Confidence is high where enough requests prove that users suffer, or where an alert that pages by itself would fire
	// and the readings are half a minute apart; low otherwise; none without a suspect.
	Confidence string     `json:"confidence"`
	Also       []Suspect  `json:"also"` // further suspects, in order
	Evidence   []Evidence `json:"evidence"`
	RuledOut   []RuledOut `json:"ruled_out"`
	// Levers hold what the runbook says to do, commands included, the soonest first.
	Levers []string `json:"levers"`
	// Runbook leads from an exporter's root to the page, with the commands filled in.
	Runbook string `json:"runbook,omitempty"`
	Record  Record `json:"record"`
}

// Suspect names evidence that is clear enough to look there.
type Suspect struct {
	Branch  rules.Branch `json:"branch"`
	Clue    string       `json:"clue"`
	Says    string       `json:"says"`
	Runbook string       `json:"runbook"`

	// Delays is empty where the suspect explains everything that is late.
	Delays rules.Delays `json:"delays,omitempty"`

	labels map[string]string
}

// Evidence holds a fact about the model. Before is its value of the day before or, without a Prometheus, since the engines
// started.
type Evidence struct {
	Fact   string     `json:"fact"`
	Says   string     `json:"says"`
	Of     string     `json:"of,omitempty"` // a replica, GPU or version
	Value  float64    `json:"value"`
	Unit   rules.Unit `json:"unit"`
	Shown  string     `json:"shown"`
	Before string     `json:"before,omitempty"`
}

// RuledOut names a branch that has no suspect, and why.
type RuledOut struct {
	Branch rules.Branch `json:"branch"`
	Why    string       `json:"why"`
}

// Record holds what to write into the incident's record before a restart erases it.
type Record struct {
	Model       string   `json:"model"`
	Runtimes    []string `json:"runtimes"`
	Versions    []string `json:"versions"`
	Engines     []string `json:"engines"`
	Started     []string `json:"started"` // engines, RFC 3339
	GPUs        []string `json:"gpus"`
	Drivers     []string `json:"drivers"`
	Route       string   `json:"route"`        // no metric knows it
	From        string   `json:"from"`         // first reading, RFC 3339
	To          string   `json:"to"`           // second reading
	FirstTokens float64  `json:"first_tokens"` // between the readings
}

// judge holds what all models share.
type judge struct {
	*evaluation
	before  Reading
	alerts  []*rules.Alert
	causes  map[*rules.Alert]engine.Vector
	records []rules.Record
}

// rate5m names the burn rate of the last minutes, of which the readings are a part.
var rate5m = metrics.Window(metrics.RecordedBurn, "5m")

// Judge returns a verdict for each model of the second reading, or of the first where its engines are gone since. The
// models that suffer come first. past may be nil.
func Judge(ctx context.Context, before, after Reading, past Past) ([]Verdict, error) {
	before.At, after.At = before.At.Truncate(time.Millisecond), after.At.Truncate(time.Millisecond) // as the query engine does
	if !after.At.After(before.At) {
		return nil, fmt.Errorf("the second reading, of %s, must be later than the first, of %s", after.At, before.At)
	}
	j := &judge{evaluation: newEvaluation(ctx, dated(before, after), after, past), before: before, causes: map[*rules.Alert]engine.Vector{}}
	if err := j.evaluate(); err != nil {
		return nil, err
	}
	models, err := j.models()
	if err != nil {
		return nil, err
	}
	var verdicts []Verdict
	for _, m := range models {
		v, err := j.verdict(m)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m, err)
		}
		verdicts = append(verdicts, v)
	}
	order := []Health{Failing, Degraded, Unknown, Healthy}
	slices.SortStableFunc(verdicts, func(a, b Verdict) int {
		return cmp.Compare(slices.Index(order, a.Health), slices.Index(order, b.Health))
	})
	return verdicts, nil
}

// Worst returns how the model does that does worst; Unknown without a model.
func Worst(verdicts []Verdict) Health {
	if len(verdicts) == 0 {
		return Unknown
	}
	return verdicts[0].Health
}

// evaluate evaluates the rules that verdicts read: all about suspects and facts, the burn rates of the last minutes, and
// the alerts that page by themselves.
func (j *judge) evaluate() error {
	var records []rules.Record
	for _, g := range rules.Groups(rules.Options{}) {
		records = append(records, g.Records...)
		for _, a := range g.Alerts {
			if a == rules.EngineDown || a.Severity == slo.Page && a.Branch != rules.Symptom && a.Branch != rules.Exporter {
				j.alerts = append(j.alerts, a)
			}
		}
	}
	// Hardware first, as among clues. What only opens a ticket comes last.
	place := func(a *rules.Alert) int {
		return slices.Index([]bool{a.Branch == rules.Hardware, a.Severity == slo.Page, true}, true)
	}
	slices.SortStableFunc(j.alerts, func(a, b *rules.Alert) int { return cmp.Compare(place(a), place(b)) })
	// Other groups than that of suspects record what suspects read.
	slices.SortStableFunc(records, func(a, b rules.Record) int { return cmp.Compare(suspects(a), suspects(b)) })

	read := []promql.Expr{promql.Vector(metrics.RecordedSuspect), promql.Vector(metrics.RecordedEvidence), promql.Vector(rate5m),
		promql.Vector(metrics.RecordedBurnThreshold), promql.Vector(metrics.RecordedInfo), promql.Vector(metrics.RecordedServedGPU)}
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
	return nil
}

func suspects(r rules.Record) int {
	if r.Name == metrics.RecordedSuspect {
		return 1
	}
	return 0
}

// subject identifies a model.
type subject struct{ cluster, namespace, name string }

// String returns the model for an error.
func (s subject) String() string { return strings.TrimPrefix(s.namespace+"/"+s.name, "/") }

func subjectOf(l labels.Labels) subject {
	return subject{l.Get(metrics.LabelCluster), l.Get(metrics.LabelNamespace), l.Get(metrics.LabelModel)}
}

// matchers select the series of the model.
func (s subject) matchers() []*promql.Matcher {
	return []*promql.Matcher{promql.Eq(metrics.LabelCluster, s.cluster), promql.Eq(metrics.LabelNamespace, s.namespace), promql.Eq(metrics.LabelModel, s.name)}
}

// models lists the models that the readings show, in order, and one without a name where only an engine that does not
// say what it serves is down.
func (j *judge) models() ([]subject, error) {
	seen := map[subject]bool{}
	shown, err := j.query(promql.Or(promql.Over("last_over_time", promql.Vector(metrics.EngineInfo), time.Minute), promql.Vector(metrics.RecordedServed)))
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
	if len(seen) == 0 && j.past != nil { // no engine is left here: what pages elsewhere is all there is to say
		for _, a := range j.alerts {
			if a.Severity != slo.Page {
				continue
			}
			firing, err := j.ask(promql.Vector(metrics.Alerts, promql.Eq("alertname", a.Name), promql.Eq("alertstate", "firing"), promql.Ne(metrics.LabelModel, "")).String())
			if err != nil {
				return nil, err
			}
			j.causes[a] = append(j.causes[a], firing...)
			for _, s := range firing {
				seen[subjectOf(s.Metric)] = true
			}
		}
	}
	return slices.SortedFunc(maps.Keys(seen), func(a, b subject) int {
		return cmp.Or(cmp.Compare(a.cluster, b.cluster), cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
	}), nil
}

// verdict judges a model.
func (j *judge) verdict(m subject) (Verdict, error) {
	v := Verdict{Model: m.name, Namespace: m.namespace, Cluster: m.cluster, Health: Healthy, Confidence: "none",
		Symptoms: []string{}, Also: []Suspect{}, Evidence: []Evidence{}, RuledOut: []RuledOut{}, Levers: []string{}}
	var err error
	if v.Record, err = j.keep(m); err != nil {
		return v, err
	}
	burns, err := j.symptoms(m, &v)
	if err != nil {
		return v, err
	}
	all, down, err := j.suspects(m)
	if err != nil {
		return v, err
	}
	all = slices.DeleteFunc(all, func(s Suspect) bool { return !explains(s.Delays, burns) })
	switch {
	case down || v.Health == Failing:
		v.Health = Failing
	case v.Health == Degraded || burns == nil && len(all) > 0:
		v.Health = Degraded
	case v.Record.FirstTokens == 0 && burns == nil:
		v.Health = Unknown
		v.Symptoms = append(v.Symptoms, "No first token came between the readings.")
	}
	if v.Evidence, err = j.evidence(m); err != nil {
		return v, err
	}
	if v.RuledOut, err = j.ruledOut(m, all); err != nil {
		return v, err
	}
	if len(all) == 0 {
		return v, nil
	}
	first := all[0]
	v.Branch, v.Clue, v.Says, v.Delays, v.Also = first.Branch, first.Clue, first.Says, first.Delays, all[1:]
	v.Confidence = "low"
	if down && j.elapsed >= rules.Interval/2 || len(burns) > 0 && v.Record.FirstTokens >= 20 {
		v.Confidence = "high"
	}
	page, err := runbooks.Page(first.Runbook)
	if err != nil {
		return v, err
	}
	v.Levers, v.Runbook = runbooks.Levers(page, first.labels), runbooks.Address(first.Runbook, first.labels)
	return v, nil
}

// explains reports whether a suspect explains something that burns: the time to the first token, that between tokens, or
// else. Where no objective counts, anything may be late; where none burns, nothing is.
func explains(delays rules.Delays, burns []slo.Signal) bool {
	return delays == "" || burns == nil || slices.ContainsFunc(burns, func(s slo.Signal) bool {
		return (delays == rules.NextToken) == (s == slo.ITL || s == slo.ProbeITL)
	})
}

// symptoms adds what users notice, and returns the signals whose objectives burn, the worst first: nil where no
// objective had events, empty where none burns.
func (j *judge) symptoms(m subject, v *Verdict) ([]slo.Signal, error) {
	own := m.matchers()
	rates, err := j.query(promql.Vector(rate5m, own...))
	if err != nil {
		return nil, err
	}
	var signals []slo.Signal
	if len(rates) > 0 {
		signals = []slo.Signal{}
	}
	slices.SortStableFunc(rates, func(a, b engine.Sample) int { return cmp.Compare(b.F, a.F) })
	pair := slo.DefaultWindowPairs()[0]
	for _, r := range rates {
		objective := append(slices.Clone(own), promql.Eq(metrics.LabelSLO, r.Metric.Get(metrics.LabelSLO)), promql.Eq(metrics.LabelRole, r.Metric.Get(metrics.LabelRole)))
		one := func(x promql.Expr) (value float64, l labels.Labels) {
			found, failed := j.query(x)
			err = cmp.Or(err, failed)
			if len(found) > 0 {
				value, l = found[0].F, found[0].Metric
			}
			return value, l
		}
		increase := func(f *metrics.Family) promql.Expr {
			return promql.Sum(nil, promql.Increase(promql.Vector(f, objective...), time.Minute))
		}
		events, _ := one(increase(metrics.SLOEvents))
		bad, _ := one(increase(metrics.SLOBadEvents))
		pages, _ := one(promql.Vector(metrics.RecordedBurnThreshold, append(objective, promql.Eq(metrics.LabelLong, pair.Long.String()))...))
		_, info := one(promql.Vector(metrics.RecordedInfo, objective...))
		if err != nil {
			return nil, err
		}
		if r.F <= 1 || bad < slo.MinBadEvents-0.5 {
			continue
		}
		signals = append(signals, slo.Signal(info.Get(metrics.LabelSignal)))
		v.Symptoms = append(v.Symptoms, fmt.Sprintf("Objective %s burns %.1f times too fast: %.0f of %.0f events (%s) were bad.",
			r.Metric.Get(metrics.LabelSLO), r.F, bad, events, cmp.Or(info.Get(metrics.LabelSignal), "signal unknown")))
		if pages > 0 && r.F > pages {
			v.Health = Failing
		} else if v.Health != Failing {
			v.Health = Degraded
		}
	}
	late := func(one ...slo.Signal) bool {
		return slices.ContainsFunc(signals, func(s slo.Signal) bool { return slices.Contains(one, s) })
	}
	switch first, next := late(slo.TTFT, slo.QueueTime, slo.ProbeTTFT), late(slo.ITL, slo.TPOT, slo.ProbeITL); {
	case len(rates) == 0:
		v.Symptoms = append(v.Symptoms, "No objective had an event between the readings: nothing says what is too slow.")
	case len(signals) == 0:
		v.Symptoms = append(v.Symptoms, "No objective burns its budget.")
	case first && next:
		waiting, err := j.query(promql.Gt(promql.Sum(nil, promql.Vector(metrics.RequestsWaiting, own...)), promql.Num(0)))
		if err != nil {
			return nil, err
		}
		if len(waiting) > 0 {
			v.Symptoms = append(v.Symptoms, "First and further tokens are late while requests wait: it comes with the load.")
		} else {
			v.Symptoms = append(v.Symptoms, "First and further tokens are late though no request waits: load alone does not explain it.")
		}
	case next:
		v.Symptoms = append(v.Symptoms, "Further tokens are late, first ones are not: the time goes in decode.")
	case first:
		v.Symptoms = append(v.Symptoms, "First tokens are late, further ones are not: the time goes before decode.")
	case late(slo.Availability, slo.ProbeAvailability):
		v.Symptoms = append(v.Symptoms, "Requests fail; those that succeed are in time.")
	}
	for _, mean := range []struct {
		says string
		of   *metrics.Family
	}{{"first token (TTFT)", metrics.TimeToFirstToken}, {"next token (ITL)", metrics.InterTokenLatency}} {
		rate := func(x promql.Expr) promql.Expr { return promql.Sum(nil, promql.Rate(x, time.Minute)) }
		took, err := j.query(promql.Div(rate(promql.SumOf(mean.of, own...)), promql.Gt(rate(promql.CountOf(mean.of, own...)), promql.Num(0))))
		if err != nil {
			return nil, err
		}
		for _, t := range took {
			shown, err := j.expand(rules.FactText(), t, map[string]string{metrics.LabelUnit: string(rules.Seconds)})
			if err != nil {
				return nil, err
			}
			v.Symptoms = append(v.Symptoms, fmt.Sprintf("Mean time to the %s: %s.", mean.says, shown))
		}
	}
	return signals, nil
}

// suspects returns what is suspicious about a model, in order, and whether that alone pages.
func (j *judge) suspects(m subject) (all []Suspect, pages bool, err error) {
	var late []Suspect
	gpus, err := j.query(promql.Vector(metrics.RecordedServedGPU, m.matchers()...))
	if err != nil {
		return nil, false, err
	}
	runsOn := func(uuid string) bool {
		return uuid != "" && slices.ContainsFunc(gpus, func(g engine.Sample) bool { return g.Metric.Get(metrics.LabelGPUUUID) == uuid })
	}
	for _, a := range j.alerts {
		for _, s := range j.causes[a] {
			if subjectOf(s.Metric) != m && (s.Metric.Get(metrics.LabelModel) != "" || !runsOn(s.Metric.Get(metrics.LabelGPUUUID))) {
				continue
			}
			says, err := j.expand("{{ $labels := .Labels }}{{ $value := .Value }}"+a.Summary, s, nil)
			if err != nil {
				return nil, false, err
			}
			suspect := Suspect{Branch: a.Branch, Clue: a.Name, Says: says, Runbook: a.Name, labels: j.place(m, s.Metric)}
			pages = pages || a.Severity == slo.Page
			if a.Severity == slo.Page && a != rules.ClientsGiveUp {
				all = append(all, suspect)
			} else { // a ticket, or what clients do: clues say why
				late = append(late, suspect)
			}
		}
	}
	clues, err := j.query(promql.Vector(metrics.RecordedSuspect, m.matchers()...))
	if err != nil {
		return nil, false, err
	}
	slices.SortStableFunc(clues, func(a, b engine.Sample) int {
		return cmp.Compare(a.Metric.Get(metrics.LabelOrder), b.Metric.Get(metrics.LabelOrder))
	})
	for _, c := range clues {
		says, err := j.expand(rules.SuspectText(), c, nil)
		if err != nil {
			return nil, false, err
		}
		all = append(all, Suspect{Branch: rules.Branch(c.Metric.Get(metrics.LabelBranch)), Clue: c.Metric.Get(metrics.LabelClue), Says: says,
			Runbook: c.Metric.Get(metrics.LabelRunbook), Delays: rules.Delays(c.Metric.Get(metrics.LabelDelays)), labels: j.place(m, c.Metric)})
	}
	return append(all, late...), pages, nil
}

// place returns the labels that fill a runbook's commands: those of the suspect and, where it can be one replica of the
// model only, of the replica. Of a GPU, that is the one on it.
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

// expand prints a sample as a template of the rules does, with more labels.
func (j *judge) expand(text string, s engine.Sample, more map[string]string) (string, error) {
	l := s.Metric.Map()
	maps.Copy(l, more)
	says, err := template.NewTemplateExpander(j.ctx, text, "triage", template.AlertTemplateData(l, nil, "", s), model.TimeFromUnixNano(j.at.UnixNano()), nil, nil, nil).Expand()
	if j.past == nil { // the engines' own counters stand for it
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
		for _, name := range []string{metrics.LabelPod, metrics.LabelServer, metrics.LabelGPUUUID, metrics.LabelReason, metrics.LabelXID, metrics.LabelVersion} {
			if value := l.Get(name); value != "" {
				of = append(of, value)
			}
		}
		all = append(all, Evidence{Fact: fact, Says: l.Get(metrics.LabelSays), Of: strings.Join(of, " "), Value: f.F, Unit: rules.Unit(l.Get(metrics.LabelUnit)), Shown: shown})
	}
	for i := range all {
		all[i].Before = before[all[i].Fact]
	}
	return all, nil
}

const noSign = "no sign of it"

// ruledOut lists the branches without a suspect, in order. Where a clue compares one number with a limit, that number
// says why; where what it reads is not there, nobody can tell.
func (j *judge) ruledOut(m subject, all []Suspect) ([]RuledOut, error) {
	why := map[rules.Branch][]string{}
	var order []rules.Branch
	for _, r := range j.records {
		branch := rules.Branch(r.Labels[metrics.LabelBranch])
		if r.Name != metrics.RecordedSuspect || slices.ContainsFunc(all, func(s Suspect) bool { return s.Branch == branch }) {
			continue
		}
		if !slices.Contains(order, branch) {
			order = append(order, branch)
		}
		if c, ok := r.Expr.(*parser.BinaryExpr); ok && c.Op.IsComparisonOperator() && c.RHS.Type() == parser.ValueTypeScalar {
			values, err := j.query(c.LHS)
			if err != nil {
				return nil, err
			}
			for _, value := range values {
				if subjectOf(value.Metric) != m {
					continue
				}
				says, err := j.expand(rules.SuspectText(), value, r.Labels)
				if err != nil {
					return nil, err
				}
				why[branch] = append(why[branch], says)
			}
		}
	}
	ruledOut := []RuledOut{}
	for _, b := range order {
		ruledOut = append(ruledOut, RuledOut{b, cmp.Or(strings.Join(why[b], "; "), noSign)})
	}
	return ruledOut, nil
}

// keep returns what belongs into the incident's record.
func (j *judge) keep(m subject) (Record, error) {
	r := Record{Model: m.String(), Route: "ask the gateway's log: no metric knows it", From: j.before.At.UTC().Format(time.RFC3339), To: j.at.UTC().Format(time.RFC3339)}
	own := m.matchers()
	lately := func(f *metrics.Family, own ...*promql.Matcher) promql.Expr {
		return promql.Over("last_over_time", promql.Vector(f, own...), time.Minute)
	}
	info := promql.Max(append([]string{metrics.LabelRuntime, metrics.LabelVersion}, metrics.ReplicaLabels...), lately(metrics.EngineInfo, own...))
	for _, of := range []struct {
		x    promql.Expr
		take map[*[]string]string
	}{
		{info, map[*[]string]string{&r.Runtimes: metrics.LabelRuntime, &r.Versions: metrics.LabelVersion, &r.Engines: metrics.LabelServer}},
		{lately(metrics.EngineGPUInfo, own...), map[*[]string]string{&r.GPUs: metrics.LabelGPUUUID}},
		{lately(metrics.GPUDriverInfo), map[*[]string]string{&r.Drivers: metrics.LabelDriverVersion}},
	} {
		found, err := j.query(of.x)
		if err != nil {
			return r, err
		}
		for list, label := range of.take {
			*list = []string{}
			for _, s := range found {
				if value := s.Metric.Get(label); value != "" && !slices.Contains(*list, value) {
					*list = append(*list, value)
				}
			}
			slices.Sort(*list)
		}
	}
	started, err := j.query(promql.And(promql.Max(metrics.PageLabels, lately(metrics.EngineStartTime)), info, promql.On(metrics.PageLabels...)))
	if err != nil {
		return r, err
	}
	r.Started = []string{}
	for _, s := range started {
		r.Started = append(r.Started, s.Metric.Get(metrics.LabelServer)+" "+time.Unix(int64(s.F), 0).UTC().Format(time.RFC3339))
	}
	slices.Sort(r.Started)
	tokens, err := j.query(promql.Sum(nil, promql.Increase(promql.CountOf(metrics.TimeToFirstToken, own...), time.Minute)))
	if err != nil || len(tokens) == 0 {
		return r, err
	}
	r.FirstTokens = math.Round(tokens[0].F)
	return r, nil
}
