// Package openslo imports the OpenSLO v1 objectives that our objectives can express. It refuses all other objectives
// and explains why, because a wrong objective would be worse than no objective.
package openslo

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// document has the fields that we read from any OpenSLO object.
type document struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       spec     `yaml:"spec"`
}

type metadata struct {
	Name   string            `yaml:"name"`
	Labels map[string]values `yaml:"labels"`
}

// values has the values of one label. OpenSLO accepts one or several values.
type values []string

// UnmarshalYAML reads a string or a list of strings.
func (v *values) UnmarshalYAML(decode func(any) error) error {
	var one string
	if decode(&one) == nil {
		*v = values{one}
		return nil
	}
	return decode((*[]string)(v))
}

// reference names another document, or contains it.
type reference struct {
	name   string
	inline *document
}

// UnmarshalYAML reads a name, a name under the key alertPolicyRef or conditionRef, or a document.
func (r *reference) UnmarshalYAML(decode func(any) error) error {
	if decode(&r.name) == nil && r.name != "" {
		return nil
	}
	var named struct {
		Policy    string `yaml:"alertPolicyRef"`
		Condition string `yaml:"conditionRef"`
	}
	if err := decode(&named); err != nil {
		return err
	}
	if r.name = cmp.Or(named.Policy, named.Condition); r.name != "" {
		return nil
	}
	r.inline = &document{}
	return decode(r.inline)
}

// documents holds the documents of a file by kind and name.
type documents map[[2]string]*document

// find returns the document that a reference names, or nil if the file lacks it.
func (d documents) find(kind string, r reference) *document {
	if r.inline != nil {
		return r.inline
	}
	return d[[2]string{kind, r.name}]
}

type spec struct {
	// These fields belong to an SLO.
	BudgetingMethod string      `yaml:"budgetingMethod"`
	IndicatorRef    string      `yaml:"indicatorRef"`
	Indicator       *document   `yaml:"indicator"`
	TimeWindow      []window    `yaml:"timeWindow"`
	Objectives      []objective `yaml:"objectives"`
	AlertPolicies   []reference `yaml:"alertPolicies"`
	// These fields belong to an AlertPolicy.
	Conditions []reference `yaml:"conditions"`
	// These fields belong to an AlertCondition.
	Severity string `yaml:"severity"`
	// These fields belong to an SLI.
	RatioMetric     *ratioMetric `yaml:"ratioMetric"`
	ThresholdMetric any          `yaml:"thresholdMetric"`
}

type window struct {
	Duration  string `yaml:"duration"`
	IsRolling bool   `yaml:"isRolling"`
}

type objective struct {
	Target        string `yaml:"target"`
	TargetPercent string `yaml:"targetPercent"`
	IndicatorRef  string `yaml:"indicatorRef"`
	Composite     string `yaml:"compositeWeight"`
}

type ratioMetric struct {
	Counter bool    `yaml:"counter"`
	Good    *metric `yaml:"good"`
	Bad     *metric `yaml:"bad"`
	Total   *metric `yaml:"total"`
	Raw     any     `yaml:"raw"`
}

type metric struct {
	MetricSource struct {
		Type string `yaml:"type"`
		Spec struct {
			Query string `yaml:"query"`
		} `yaml:"spec"`
	} `yaml:"metricSource"`
}

// RefusalError explains why an objective cannot be imported and what to do instead.
type RefusalError struct{ Name, Reason string }

// Error returns the objective's name, followed by the reason.
func (r *RefusalError) Error() string { return fmt.Sprintf("OpenSLO %q: %s", r.Name, r.Reason) }

func refuse(format string, args ...any) error { return fmt.Errorf(format, args...) }

// Import reads OpenSLO v1 documents, separated by "---", and returns the objectives that can be expressed. The error
// joins a RefusalError for each SLO that cannot be expressed.
func Import(content []byte) ([]slo.Objective, error) {
	others, slos := documents{}, []*document{}
	dec := yaml.NewDecoder(bytes.NewReader(content))
	for {
		var d document
		if err := dec.Decode(&d); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("OpenSLO: %w", err)
		}
		if d.Kind == "SLO" {
			slos = append(slos, &d)
		} else {
			others[[2]string{d.Kind, d.Metadata.Name}] = &d
		}
	}
	var all []slo.Objective
	var errs []error
	for _, d := range slos {
		objectives, err := convert(d, others)
		if err != nil {
			errs = append(errs, &RefusalError{d.Metadata.Name, err.Error()})
			continue
		}
		all = append(all, objectives...)
	}
	return all, errors.Join(errs...)
}

func convert(d *document, others documents) ([]slo.Objective, error) {
	s := d.Spec
	switch {
	case d.APIVersion != "openslo/v1":
		return nil, refuse("apiVersion %s: only openslo/v1 is understood", d.APIVersion)
	case s.BudgetingMethod != "Occurrences":
		return nil, refuse("budgetingMethod %s counts slices of time; here every event counts. Use Occurrences", s.BudgetingMethod)
	case len(s.TimeWindow) != 1 || !s.TimeWindow[0].IsRolling:
		return nil, refuse("budgets here roll; use one timeWindow with isRolling: true instead of a calendar")
	case len(s.Objectives) == 0:
		return nil, refuse("it has no objectives")
	}
	period, err := slo.ParseDuration(s.TimeWindow[0].Duration)
	if err != nil {
		return nil, err
	}
	indicator := others.find("SLI", reference{s.IndicatorRef, s.Indicator})
	if indicator == nil {
		return nil, refuse("indicatorRef %q is not among the documents", s.IndicatorRef)
	}
	template, err := events(indicator.Spec)
	if err != nil {
		return nil, err
	}
	template.Period = period
	template.Labels, template.Severity = owner(d.Metadata.Labels), others.severity(s)
	var all []slo.Objective
	for i, want := range s.Objectives {
		if want.Composite != "" || want.IndicatorRef != "" {
			return nil, refuse("objectives of composite SLOs have indicators of their own; write one SLO for each")
		}
		o := template
		o.Name = strings.ToLower(d.Metadata.Name)
		if len(s.Objectives) > 1 {
			o.Name += "-" + strconv.Itoa(i+1)
		}
		text := want.Target
		if want.TargetPercent != "" {
			text = want.TargetPercent + "%"
		}
		if o.Target, err = slo.ParseRatio(text); err != nil {
			return nil, err
		}
		all = append(all, o)
	}
	return all, slo.Fatal(slo.Check(all, slo.CheckOptions{}))
}

// owner returns the labels of an OpenSLO document that an objective of this project may have.
func owner(from map[string]values) map[string]string {
	labels := map[string]string{}
	for name, v := range from {
		if value := strings.Join(v, ","); slo.CheckLabel(name) == nil && value != "" {
			labels[name] = value
		}
	}
	return labels
}

// severity returns the highest severity of the alert policies. If a severity is none of OpenSLO's examples, or a policy
// is missing, it returns 0 for the default, which pages, because an unnecessary page is better than a missing page.
func (d documents) severity(s spec) (loudest slo.Severity) {
	for _, p := range s.AlertPolicies {
		policy := d.find("AlertPolicy", p)
		if policy == nil {
			return 0
		}
		for _, c := range policy.Spec.Conditions {
			condition := d.find("AlertCondition", c)
			switch {
			case condition == nil:
				return 0
			case condition.Spec.Severity == "page":
				return slo.Page
			case condition.Spec.Severity == "ticket":
				loudest = slo.Ticket
			default:
				return 0
			}
		}
	}
	return loudest
}

// events converts an indicator into an objective without name, target and period.
func events(s spec) (slo.Objective, error) {
	r := s.RatioMetric
	switch {
	case s.ThresholdMetric != nil:
		return slo.Objective{}, refuse("a thresholdMetric judges a number over time, not events; use a ratioMetric of good and total events")
	case r == nil || r.Raw != nil:
		return slo.Objective{}, refuse("the indicator needs a ratioMetric of good (or bad) and total events; a raw ratio cannot be counted")
	case !r.Counter:
		return slo.Objective{}, refuse("ratioMetric.counter is false: only counters can be added up over a budget")
	case r.Total == nil || (r.Good == nil) == (r.Bad == nil):
		return slo.Objective{}, refuse("the ratioMetric needs total and either good or bad")
	}
	total, err := read("total", r.Total)
	if err != nil {
		return slo.Objective{}, err
	}
	place, part := "good", r.Good
	if part == nil {
		place, part = "bad", r.Bad
	}
	counted, err := read(place, part)
	if err != nil {
		return slo.Objective{}, err
	}
	if !equalSelectors(total.selects, counted.selects) {
		return slo.Objective{}, refuse("%s and total select different engines", place)
	}
	if counted.family != total.family && (counted.bound != "" || total.histogram) {
		return slo.Objective{}, refuse("%s and total are of different histograms", place)
	}
	o := slo.Objective{Select: selector(total.selects)}
	if total.histogram {
		return latency(o, place, total, counted)
	}
	o.Signal = slo.Events
	o.Total = &slo.Counters{Metric: total.family.Name, Match: total.match}
	side := &slo.Counters{Metric: counted.family.Name, Match: counted.match}
	if place == "good" {
		o.Good = side
	} else {
		o.Bad = side
	}
	return o, nil
}

func latency(o slo.Objective, place string, total, counted series) (slo.Objective, error) {
	if place == "bad" || counted.bound == "" || counted.bound == "+Inf" || total.bound != "" && total.bound != "+Inf" {
		return o, refuse("a latency needs good = %s_bucket{le=\"...\"} and total = %s_count", total.family.Name, total.family.Name)
	}
	for _, s := range slo.Signals() {
		if s.Latency() && s.Family() == total.family {
			seconds, err := time.ParseDuration(counted.bound + "s")
			o.Signal, o.Threshold = s, slo.Duration(seconds)
			return o, err
		}
	}
	return o, refuse("%s is no latency that objectives can be about", total.family.Name)
}

// series describes the series that a query selects.
type series struct {
	family    *metrics.Family
	histogram bool
	bound     string              // value of le
	selects   map[string][]string // labels that select engines
	match     map[string][]string // other labels
}

// selecting lists the labels by which an objective selects engines.
var selecting = []string{metrics.LabelModel, metrics.LabelNamespace, metrics.LabelRuntime, metrics.LabelRole}

var promQL = parser.NewParser(parser.Options{})

// read parses a query: a selector of one of our metrics, which may be inside sum, rate and increase.
func read(place string, m *metric) (series, error) {
	query := m.MetricSource.Spec.Query
	if kind := m.MetricSource.Type; kind != "" && !strings.EqualFold(kind, "prometheus") {
		return series{}, refuse("%s: metric source %s: only Prometheus queries can be read", place, kind)
	}
	e, err := promQL.ParseExpr(query)
	if err != nil {
		return series{}, refuse("%s: %v", place, err)
	}
	v := unwrap(e)
	if v == nil {
		return series{}, refuse("%s: %s: only a selector inside sum, rate or increase can be counted by the exporter", place, query)
	}
	s := series{selects: map[string][]string{}, match: map[string][]string{}}
	if s.family = metrics.Lookup(v.Name); s.family == nil {
		for _, suffix := range []string{"_bucket", "_count"} {
			if base, ok := strings.CutSuffix(v.Name, suffix); ok {
				s.family, s.histogram = metrics.Lookup(base), true
			}
		}
	}
	if s.family == nil {
		return series{}, refuse("%s: %s is not in the vocabulary: name the normalised metric, see docs/metrics.md", place, v.Name)
	}
	for _, matcher := range v.LabelMatchers {
		values := strings.Split(matcher.Value, "|")
		switch {
		case matcher.Name == model.MetricNameLabel:
		case matcher.Type != labels.MatchEqual && (matcher.Type != labels.MatchRegexp || strings.ContainsAny(matcher.Value, `.*+?()[]{}^$\`)):
			return series{}, refuse("%s: %s: only equal values, or several joined by |, can be selected", place, matcher)
		case matcher.Name == "le":
			s.bound = matcher.Value
		case slices.Contains(selecting, matcher.Name):
			s.selects[matcher.Name] = values
		default:
			s.match[matcher.Name] = values
		}
	}
	return s, nil
}

// unwrap finds the selector inside sum, rate, increase and parentheses. It returns nil for any other expression.
func unwrap(e parser.Expr) *parser.VectorSelector {
	switch e := e.(type) {
	case *parser.VectorSelector:
		if e.OriginalOffset == 0 && e.Timestamp == nil {
			return e
		}
	case *parser.MatrixSelector:
		return unwrap(e.VectorSelector)
	case *parser.ParenExpr:
		return unwrap(e.Expr)
	case *parser.AggregateExpr:
		if e.Op == parser.SUM {
			return unwrap(e.Expr)
		}
	case *parser.Call:
		if e.Func.Name == "rate" || e.Func.Name == "increase" {
			return unwrap(e.Args[0])
		}
	}
	return nil
}

func selector(m map[string][]string) slo.Selector {
	s := slo.Selector{Model: m[metrics.LabelModel], Namespace: m[metrics.LabelNamespace], Role: m[metrics.LabelRole]}
	for _, r := range m[metrics.LabelRuntime] {
		s.Runtime = append(s.Runtime, metrics.Runtime(r))
	}
	return s
}

func equalSelectors(a, b map[string][]string) bool {
	return slices.EqualFunc(selecting, selecting, func(l, _ string) bool { return slices.Equal(a[l], b[l]) })
}
