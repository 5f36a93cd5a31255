// Package slo defines objectives as data: the target, the threshold and the period. It counts good and bad events on an
// engine's own histogram buckets, and computes error budgets and burn rates. Of this project, it imports only package
// metrics, so the exporter, the rules, the drill and the docs can all use its functions.
package slo

import (
	"cmp"
	"regexp"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Signal names the quantity that an objective measures.
type Signal string

// These are the signals. Latency signals are compared with a threshold. All other signals count events.
const (
	TTFT            Signal = "ttft"             // time to first token
	ITL             Signal = "itl"              // time between tokens; its events are tokens
	TPOT            Signal = "tpot"             // mean time per output token of a request
	RequestDuration Signal = "request_duration" // time to the last token
	QueueTime       Signal = "queue_time"       // time until first scheduled
	Availability    Signal = "availability"     // requests that the server neither refused nor failed
	Events          Signal = "events"           // total and good (or bad) counters of the vocabulary

	ProbeTTFT         Signal = "probe_ttft"         // time to first token, measured by the exporter's own probes
	ProbeITL          Signal = "probe_itl"          // mean time between tokens of a probe's request
	ProbeAvailability Signal = "probe_availability" // probes that got an answer
)

// Signals lists every signal, in the order of the documentation.
func Signals() []Signal {
	return []Signal{TTFT, ITL, TPOT, RequestDuration, QueueTime, Availability, Events, ProbeTTFT, ProbeITL, ProbeAvailability}
}

// Family returns the metric from which a signal is counted. It returns nil for Events, because the objective then names its metrics.
func (s Signal) Family() *metrics.Family {
	switch s {
	case TTFT:
		return metrics.TimeToFirstToken
	case ITL:
		return metrics.InterTokenLatency
	case TPOT:
		return metrics.TimePerOutputToken
	case RequestDuration:
		return metrics.RequestDuration
	case QueueTime:
		return metrics.QueueTime
	case Availability:
		return metrics.Requests
	case ProbeTTFT:
		return metrics.ProbeTimeToFirstToken
	case ProbeITL:
		return metrics.ProbeInterTokenLatency
	case ProbeAvailability:
		return metrics.ProbeRequests
	case Events:
	}
	return nil
}

// ByProbe returns the signal of probes that replaces this signal if an engine cannot count it. For a signal of probes,
// it returns the same signal. If probes cannot measure the signal, it returns "".
func (s Signal) ByProbe() Signal {
	switch s {
	case TTFT, ProbeTTFT:
		return ProbeTTFT
	case ITL, ProbeITL:
		return ProbeITL
	case Availability, ProbeAvailability:
		return ProbeAvailability
	case TPOT, RequestDuration, QueueTime, Events:
	}
	return ""
}

// OfProbes reports whether only probes count the signal.
func (s Signal) OfProbes() bool { return s != "" && s.ByProbe() == s }

// Substitute returns the metric from which a signal is counted on an engine that lacks the signal's own metric, and the
// reason that names this substitute. Without a substitute, the metric is nil. The mean time per token of a request
// replaces the time between tokens. The events are then requests, because a request that is slow on average is slow for
// the user. The time in the queue replaces the time to the first token, because a request that waits too long before
// its first step gets its first token even later.
func (s Signal) Substitute() (*metrics.Family, Reason) {
	switch s {
	case ITL:
		return metrics.TimePerOutputToken, MeanCounted
	case TTFT:
		return metrics.QueueTime, QueueCounted
	default:
		return nil, Counted
	}
}

// Latency reports whether the signal is compared with a threshold.
func (s Signal) Latency() bool {
	f := s.Family()
	return f != nil && f.Kind == metrics.Histogram
}

// Objective is one promise about a service. The zero value of every optional field selects its default.
type Objective struct {
	// Name is the value of the slo label. It is unique, and in lower case.
	Name string `yaml:"name"`
	// Signal names the quantity that the objective measures.
	Signal Signal `yaml:"signal"`
	// Threshold separates good latencies from bad latencies. It is rounded down to a bucket bound of the engine: see Snap.
	Threshold Duration `yaml:"threshold,omitempty"`
	// Target sets the share of events that must be good.
	Target Ratio `yaml:"target"`
	// Period sets the time over which the target must hold, one of Periods. Default: 30d.
	Period Duration `yaml:"period,omitempty"`
	// MayBeAbsent allows the models of the objective to have no engine. Without it, an alert pages if a model loses its
	// last engine within an hour after a request.
	MayBeAbsent bool `yaml:"may_be_absent,omitempty"`
	// Select restricts the objective to some engines. If empty, it selects all engines.
	Select Selector `yaml:"select,omitempty"`
	// CountAborts is for availability. It makes requests that the client gave up count as bad.
	CountAborts bool `yaml:"count_aborts,omitempty"`
	// Severity is the highest severity of the alerts on a burning budget. With Page, the default, the fast windows
	// page. With Ticket, the fast windows open tickets instead. With None, no alert fires.
	Severity Severity `yaml:"severity,omitempty"`
	// Labels are labels that users define, such as team. They are added to the objective's series, and to the alerts of
	// rules that were rendered with their names.
	Labels map[string]string `yaml:"labels,omitempty"`
	// Runbook and Dashboard are the user's own addresses, which alerts show in addition to the generated ones.
	Runbook   string `yaml:"runbook,omitempty"`
	Dashboard string `yaml:"dashboard,omitempty"`
	// Total, and either Good or Bad, define the events of signal "events".
	Total *Counters `yaml:"total,omitempty"`
	Good  *Counters `yaml:"good,omitempty"`
	Bad   *Counters `yaml:"bad,omitempty"`
	// Default marks an objective that comes from Defaults, and not from the user.
	Default bool `yaml:"-"`
}

// Periods returns the periods for which the generated rules record a budget. The list is fixed, so that the number of
// rules is constant.
func Periods() []Duration {
	return []Duration{7 * Day, 14 * Day, 28 * Day, 30 * Day, 60 * Day, 90 * Day}
}

// DefaultPeriod applies to an objective that names no period.
const DefaultPeriod = 30 * Day

// Defaults returns the objectives that apply if none are configured. The severe objectives cover the 1% of requests
// that the target of 99% ignores, which might otherwise wait for a minute.
func Defaults() []Objective {
	return []Objective{
		{Name: "ttft", Signal: TTFT, Threshold: duration("500ms"), Target: ratio("99%"), Period: DefaultPeriod, Default: true},
		{Name: "itl", Signal: ITL, Threshold: duration("50ms"), Target: ratio("99%"), Period: DefaultPeriod, Default: true},
		{Name: "availability", Signal: Availability, Target: ratio("99.9%"), Period: DefaultPeriod, Default: true},
		{Name: "ttft_severe", Signal: TTFT, Threshold: duration("10s"), Target: ratio("99.9%"), Period: DefaultPeriod, Default: true},
		{Name: "itl_severe", Signal: ITL, Threshold: duration("500ms"), Target: ratio("99.9%"), Period: DefaultPeriod, Default: true},
	}
}

// WithDefaults fills in the fields that the configuration left out.
func (o Objective) WithDefaults() Objective {
	if o.Period == 0 {
		o.Period = DefaultPeriod
	}
	if o.Severity == 0 {
		o.Severity = Page
	}
	return o
}

// Judge reports whether a request with this outcome counts for the objective, and whether it is bad. The objective must
// be on availability.
func (o Objective) Judge(outcome metrics.Outcome) (event, bad bool) {
	if o.CountAborts && outcome == metrics.OutcomeAbort {
		return true, true
	}
	return Judge(outcome)
}

// Miss describes a bad event in words, such as "requests fail" or "first tokens take longer than 10s".
func (o Objective) Miss() string {
	of := ""
	if o.Signal.OfProbes() {
		of = "synthetic "
	}
	switch o.Signal {
	case TTFT:
		return "first tokens take longer than " + o.Threshold.String()
	case ProbeTTFT:
		return "first tokens of synthetic requests take longer than " + o.Threshold.String()
	case ITL, ProbeITL:
		return "gaps between tokens exceed " + o.Threshold.String()
	case TPOT:
		return "answers take longer than " + o.Threshold.String() + " per token"
	case RequestDuration:
		return "requests take longer than " + o.Threshold.String()
	case QueueTime:
		return "requests wait longer than " + o.Threshold.String()
	case Availability, ProbeAvailability:
		if o.CountAborts {
			return of + "requests fail or are given up"
		}
		return of + "requests fail"
	case Events:
	}
	return "events of " + o.Name + " are bad"
}

// Words returns an objective's name as it appears in graphs, such as "severe TTFT". Only the names of the default
// latency objectives are replaced.
func Words(name string) string {
	if base, severe := strings.CutSuffix(name, "_severe"); base == string(TTFT) || base == string(ITL) {
		if severe {
			return "severe " + strings.ToUpper(base)
		}
		return strings.ToUpper(base)
	}
	return name
}

// Budget returns the share of events that may be bad.
func (o Objective) Budget() Ratio { return One - o.Target }

// Engine has the properties of an engine by which a Selector selects.
type Engine struct {
	Runtime   metrics.Runtime
	Model     string
	Namespace string
	Role      string
}

// Selector selects engines. All of its fields must match. A field matches if one of its values matches or if it is
// empty. "*" in a value stands for any characters.
type Selector struct {
	Model     []string          `yaml:"model_name,omitempty"`
	Namespace []string          `yaml:"namespace,omitempty"`
	Runtime   []metrics.Runtime `yaml:"runtime,omitempty"`
	Role      []string          `yaml:"role,omitempty"`
	// Not excludes the engines that it selects.
	Not *Selector `yaml:"not,omitempty"`
}

// Matches reports whether the selector selects the engine.
func (s Selector) Matches(e Engine) bool {
	return anyGlob(s.Model, e.Model) && anyGlob(s.Namespace, e.Namespace) && anyGlob(s.Role, e.Role) &&
		(len(s.Runtime) == 0 || slices.Contains(s.Runtime, e.Runtime)) &&
		(s.Not == nil || !s.Not.Matches(e))
}

// String formats the selector for people, as in "model_name=chat-*, not (runtime=tgi)".
func (s Selector) String() string {
	var parts []string
	add := func(name string, values []string) {
		if len(values) > 0 {
			parts = append(parts, name+"="+strings.Join(values, "|"))
		}
	}
	add(metrics.LabelModel, s.Model)
	add(metrics.LabelNamespace, s.Namespace)
	runtimes := make([]string, 0, len(s.Runtime))
	for _, r := range s.Runtime {
		runtimes = append(runtimes, string(r))
	}
	add(metrics.LabelRuntime, runtimes)
	add(metrics.LabelRole, s.Role)
	if s.Not != nil {
		parts = append(parts, "not ("+s.Not.String()+")")
	}
	return cmp.Or(strings.Join(parts, ", "), "all")
}

// empty reports whether the selector has no condition. It then selects every engine.
func (s Selector) empty() bool {
	return len(s.Model)+len(s.Namespace)+len(s.Runtime)+len(s.Role) == 0 && s.Not == nil
}

// admits reports whether the selector may select some engine of a runtime.
func (s Selector) admits(r metrics.Runtime) bool {
	return (Selector{Runtime: s.Runtime}).Matches(Engine{Runtime: r}) && (s.Not == nil || !s.Not.covers(r))
}

// covers reports whether the selector selects every engine of a runtime.
func (s Selector) covers(r metrics.Runtime) bool {
	return len(s.Model)+len(s.Namespace)+len(s.Role) == 0 && (len(s.Runtime) == 0 || slices.Contains(s.Runtime, r)) &&
		(s.Not == nil || !s.Not.admits(r))
}

func anyGlob(patterns []string, value string) bool {
	if len(patterns) == 0 {
		return true
	}
	return slices.ContainsFunc(patterns, func(p string) bool {
		expr := strings.ReplaceAll(regexp.QuoteMeta(p), `\*`, `.*`)
		return regexp.MustCompile(`^(?s:` + expr + `)$`).MatchString(value)
	})
}

// Counters selects series of one counter of the vocabulary by exact label values.
type Counters struct {
	Metric string              `yaml:"metric"`
	Match  map[string][]string `yaml:"match,omitempty"`
}

// Selects reports whether the counters include a series of f. label returns the value of a label of the series.
func (c Counters) Selects(f *metrics.Family, label func(name string) string) bool {
	if f.Name != c.Metric {
		return false
	}
	for name, values := range c.Match {
		if !slices.Contains(values, label(name)) {
			return false
		}
	}
	return true
}

func ratio(text string) Ratio       { return must(ParseRatio(text)) }
func duration(text string) Duration { return must(ParseDuration(text)) }

// must returns v, and panics if there is an error. It is only for constants of this package.
func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}
