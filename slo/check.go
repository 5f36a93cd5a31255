package slo

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/big"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Finding is one remark about a configuration. Fatal findings prevent the configuration from loading. Other findings
// are warnings, for example that the exporter counts at another threshold.
type Finding struct {
	Objective string // empty if the finding does not concern a single objective
	Field     string
	Fatal     bool
	// Text explains what is wrong and what to do about it.
	Text string
}

// String returns the place of the finding, followed by its text.
func (f Finding) String() string {
	if f.Objective == "" {
		return f.Field + ": " + f.Text
	}
	return fmt.Sprintf("objective %q: %s: %s", f.Objective, f.Field, f.Text)
}

// CheckOptions describes the installation for which objectives are checked.
type CheckOptions struct {
	// WindowPairs lists the window pairs of the alerts. Default: DefaultWindowPairs.
	WindowPairs []WindowPair
	// Retention is how long Prometheus keeps samples. 0 means unknown.
	Retention Duration
	// Runtimes lists the engines in use. Advice about bucket bounds is limited to them. Default: all runtimes whose
	// histogram bounds are known.
	Runtimes []metrics.Runtime
}

// Check examines all objectives together. WithDefaults must be applied first.
func Check(objectives []Objective, opt CheckOptions) []Finding {
	if opt.WindowPairs == nil {
		opt.WindowPairs = DefaultWindowPairs()
	}
	var all []Finding
	seen := map[string]bool{}
	for i, o := range objectives {
		c := checker{o: o, opt: opt}
		if o.Name == "" {
			c.o.Name = fmt.Sprintf("#%d", i+1)
		}
		c.name(seen[o.Name])
		seen[o.Name] = true
		c.selector("select", c.o.Select)
		c.owner()
		if c.signal() && c.target() && c.period() {
			c.pairs()
			c.grid()
			c.absence()
		}
		all = append(all, c.found...)
	}
	return all
}

// Fatal joins the findings that prevent the configuration from loading. It returns nil without such findings.
func Fatal(findings []Finding) error {
	var errs []error
	for _, f := range findings {
		if f.Fatal {
			errs = append(errs, errors.New(f.String()))
		}
	}
	return errors.Join(errs...)
}

// step is the interval between recorded events.
const step = 5 * minute

// CheckWindowPairs checks window pairs that were given to the generator, without objectives.
func CheckWindowPairs(pairs []WindowPair) error {
	var errs []error
	for i, p := range pairs {
		at := fmt.Sprintf("window pair %s/%s", p.Long, p.Short)
		switch {
		case p.Short <= 0 || p.Short >= p.Long:
			errs = append(errs, fmt.Errorf("%s: the short window must be shorter than the long one, about a twelfth of it", at))
		case p.Short%step != 0 || p.Long%step != 0:
			errs = append(errs, fmt.Errorf("%s: windows are multiples of %s, the step in which events are recorded; a shorter window has fewer "+
				"than four scrapes if these are a minute apart", at, step))
		case p.Long > minPeriod():
			errs = append(errs, fmt.Errorf("%s: longer than the shortest period (%s): the alert would cover time outside the objective", at,
				minPeriod()))
		case p.Spend <= 0 || p.Spend >= One:
			errs = append(errs, fmt.Errorf("%s: spends %s of the budget; write more than 0%% and less than 100%%", at, p.Spend.Percent()))
		case p.Severity != Page && p.Severity != Ticket:
			errs = append(errs, fmt.Errorf("%s: a pair must either page or open a ticket", at))
		}
		for _, q := range pairs[:i] {
			if q.Long == p.Long {
				errs = append(errs, fmt.Errorf("%s: the long window %s is used twice; keep one", at, p.Long))
			}
		}
	}
	if !slices.ContainsFunc(pairs, func(p WindowPair) bool { return p.Severity == Page }) {
		errs = append(errs, errors.New("window pairs: no pair pages, so an outage would not page"))
	}
	return errors.Join(errs...)
}

type checker struct {
	o     Objective
	opt   CheckOptions
	found []Finding
}

func (c *checker) fatal(field, format string, args ...any) {
	c.found = append(c.found, Finding{c.o.Name, field, true, fmt.Sprintf(format, args...)})
}

func (c *checker) warn(field, format string, args ...any) {
	c.found = append(c.found, Finding{c.o.Name, field, false, fmt.Sprintf(format, args...)})
}

var validName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)

func (c *checker) name(duplicate bool) {
	if !validName.MatchString(c.o.Name) {
		c.fatal("name", "write a name of lower-case letters, digits, - and _: it becomes the %s label", metrics.LabelSLO)
	}
	if duplicate {
		c.fatal("name", "is used twice; their events would be mixed. Give each objective a name of its own")
	}
}

// owner checks the labels that name the owner of the objective.
func (c *checker) owner() {
	for _, name := range slices.Sorted(maps.Keys(c.o.Labels)) {
		if err := CheckLabel(name); err != nil {
			c.fatal("labels."+name, "%v", err)
		} else if c.o.Labels[name] == "" {
			c.fatal("labels."+name, "has no value, which Prometheus takes for no label: write one or remove it")
		}
	}
	c.address("runbook", c.o.Runbook)
	c.address("dashboard", c.o.Dashboard)
}

// CheckLabel returns an error if name cannot be a label that users define.
func CheckLabel(name string) error {
	switch {
	case !model.LegacyValidation.IsValidLabelName(name) || strings.HasPrefix(name, "__"):
		return fmt.Errorf("%q is not a label name: use letters, digits and _, such as team", name)
	case metrics.IsLabel(name):
		return fmt.Errorf("%s is a label of the exporter's own series, and the two would collide: choose another name", name)
	}
	return nil
}

func (c *checker) address(field, text string) {
	if u, err := url.Parse(text); text != "" && (err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https") {
		c.fatal(field, "%q is no address: write it as https://host/path", text)
	}
}

// selector refuses an empty exclusion, because it would exclude every engine.
func (c *checker) selector(field string, s Selector) {
	if s.Not != nil && s.Not.empty() {
		c.fatal(field+".not", "is empty and excludes every engine: name what to leave out, such as model_name: [long-*]")
	}
}

func (c *checker) absence() {
	if c.o.MayBeAbsent && len(c.o.Select.Model)+len(c.o.Select.Namespace) == 0 {
		c.warn("may_be_absent", "holds for every model that the objective counts on: there is no page when one of them has no engine left. Name them "+
			"under select: model_name or namespace")
	}
}

func (c *checker) signal() bool {
	o, before := c.o, len(c.found)
	switch {
	case !slices.Contains(Signals(), o.Signal):
		c.fatal("signal", "%q is none of %s", o.Signal, join(Signals()))
	case o.Signal.Latency() && o.Threshold <= 0:
		c.fatal("threshold", "%s needs one, such as 500ms", o.Signal)
	case o.Signal != Availability && o.CountAborts:
		c.fatal("count_aborts", "belongs to availability; %s does not know how a request ended", o.Signal)
	case !o.Signal.Latency() && o.Threshold != 0:
		c.fatal("threshold", "%s counts outcomes and has no threshold; remove it", o.Signal)
	}
	if o.Signal != Events {
		if o.Total != nil || o.Good != nil || o.Bad != nil {
			c.fatal("total", "good, bad and total belong to signal %q; %s is counted by itself", Events, o.Signal)
		}
		return len(c.found) == before
	}
	if o.Total == nil || (o.Good == nil) == (o.Bad == nil) {
		c.fatal("total", "signal %q needs total and either good or bad", Events)
		return false
	}
	for field, s := range map[string]*Counters{"total": o.Total, "good": o.Good, "bad": o.Bad} {
		if s != nil {
			c.counters(field, *s)
		}
	}
	return len(c.found) == before
}

func (c *checker) counters(field string, s Counters) {
	f := metrics.Lookup(s.Metric)
	if f == nil || f.Kind != metrics.Counter || !f.HasLabel(metrics.LabelModel) {
		c.fatal(field, "%q is not a counter of an engine in the vocabulary; see docs/metrics.md for those that are", s.Metric)
		return
	}
	for _, label := range slices.Sorted(maps.Keys(s.Match)) {
		if !f.HasLabel(label) {
			c.fatal(field, "%s has no label %q; it has %s", s.Metric, label, join(f.Labels))
		}
	}
}

func (c *checker) target() bool {
	switch b := c.o.Budget(); {
	case c.o.Target <= 0:
		c.fatal("target", "is missing or 0%%, which promises nothing: write the share of events that must be good, such as 99%%")
	case b <= 0:
		c.fatal("target", "100%% leaves no error budget: every single bad event would page. Choose 99.9%% or, if you mean it, 99.99%%")
	case b > MaxBadShare:
		c.fatal("target", "%s allows more than half of all events to be bad, which alerts treat as an outage. Choose at least %s",
			c.o.Target.Percent(), (One - MaxBadShare).Percent())
	default:
		return true
	}
	return false
}

func (c *checker) period() bool {
	if !slices.Contains(Periods(), c.o.Period) {
		c.fatal("period", "%s has no recorded budget; choose one of %s", c.o.Period, join(Periods()))
		return false
	}
	if c.opt.Retention > 0 && c.o.Period > c.opt.Retention {
		c.warn("period", "%s is longer than Prometheus keeps samples (%s): the budget will silently be that of %s. Raise the retention or "+
			"shorten the period",
			c.o.Period, c.opt.Retention, c.opt.Retention)
	}
	return true
}

// pairs reports each window pair whose factor is limited for the objective, and why.
func (c *checker) pairs() {
	one := big.NewRat(1, 1)
	for _, p := range c.opt.WindowPairs {
		wanted, got := p.SpendFactor(c.o.Period), p.Factor(c.o)
		share := new(big.Rat).Mul(wanted, c.o.Budget().Rat())
		switch {
		case got.Cmp(wanted) > 0:
			c.warn("period", "%s of the budget in %s is a burn rate of %s over %s, inside the objective; the alert fires at 1 instead, when %s "+
				"of the budget is spent",
				p.Spend.Percent(), p.Long, decimalShort(wanted), c.o.Period, percent(p.Spent(c.o)))
		case got.Cmp(wanted) == 0:
		case share.Cmp(one) >= 0:
			c.warn("target", "a burn rate of %s (%s of the budget in %s) needs %s of all events bad and could never fire; the alert fires at "+
				"%s bad instead, when %s of the budget is spent",
				decimalShort(wanted), p.Spend.Percent(), p.Long, percent(share), MaxBadShare.Percent(), percent(p.Spent(c.o)))
		default:
			c.warn("target", "a burn rate of %s over %s needs %s of all events bad, which is late; the alert fires at %s bad instead, when %s "+
				"of the budget is spent",
				decimalShort(wanted), p.Long, percent(share), MaxBadShare.Percent(), percent(p.Spent(c.o)))
		}
	}
}

// grid reports at which bucket bound each runtime will count, if the threshold is not one of the runtime's bounds.
func (c *checker) grid() {
	if !c.o.Signal.Latency() {
		return
	}
	grids := Grids()
	best, asked, answered := math.Inf(1), 0, 0 // the lowest first bound, and the number of runtimes with a grid
	for _, runtime := range slices.Sorted(maps.Keys(grids)) {
		bounds := grids[runtime][c.o.Signal]
		if bounds == nil || len(c.opt.Runtimes) > 0 && !slices.Contains(c.opt.Runtimes, runtime) ||
			!c.o.Select.admits(runtime) {
			continue
		}
		threshold := c.o.Threshold.Std().Seconds()
		bound, ok := Snap(bounds, threshold)
		asked++
		best = min(best, bounds[0])
		if ok {
			answered++
		}
		switch {
		case !ok:
			c.warn("threshold", "%s cannot answer %s: its first bucket ends at %s s, so this objective counts nothing there. Use at least that",
				runtime, c.o.Threshold, FormatBound(bounds[0]))
		case threshold > bounds[len(bounds)-1]:
			c.warn("threshold", "%s on %s counts as %s s, its last bucket bound", c.o.Threshold, runtime, FormatBound(bound))
		case FormatBound(bound) != c.o.Threshold.Seconds():
			next := bounds[slices.Index(bounds, bound)+1]
			c.warn("threshold", "%s is not on the grid of %s: %s s is used there, stricter than written (nearest bounds %s and %s s). Choose "+
				"one of them to mean the same everywhere",
				c.o.Threshold, runtime, FormatBound(bound), FormatBound(bound), FormatBound(next))
		}
	}
	if asked > 0 && answered == 0 {
		c.fatal("threshold", "%s is below the first bucket of every engine it is for: it could count nothing. Use at least %s s",
			c.o.Threshold, FormatBound(best))
	}
}

func percent(r *big.Rat) string {
	return decimalShort(new(big.Rat).Mul(r, big.NewRat(100, 1))) + "%"
}

// decimalShort formats a number with at most three decimals, for people.
func decimalShort(r *big.Rat) string {
	return strings.TrimSuffix(strings.TrimRight(r.FloatString(3), "0"), ".")
}

func minPeriod() Duration { return slices.MinFunc(Periods(), cmp.Compare[Duration]) }

func join[T any](values []T) string {
	texts := make([]string, len(values))
	for i, v := range values {
		texts[i] = fmt.Sprint(v)
	}
	return strings.Join(texts, ", ")
}
