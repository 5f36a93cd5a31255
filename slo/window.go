package slo

import (
	"math"
	"math/big"
	"time"
)

// Severity is the severity of an alert.
type Severity uint8

// The severities, from the most urgent.
const (
	Page   Severity = iota + 1 // wakes a person
	Ticket                     // is for working hours
	Info                       // gives context to a person who already investigates
	None                       // sends no alert
)

// String returns the severity as written in a configuration and in the severity label.
func (s Severity) String() string {
	return [...]string{"", "page", "ticket", "info", "none"}[s]
}

// WindowPair is a long and a short window. An alert fires if the long window has burnt the pair's share of the budget
// (Spend) and the short window also burns too fast. Therefore, the alert ends soon after the burn.
type WindowPair struct {
	Long, Short Duration
	Spend       Ratio
	Severity    Severity
}

// DefaultWindowPairs returns the window pairs of the SRE Workbook (chapter 5, table 5-8), with the 1d pair of its
// example rules. The burn rates are 14.4, 6, 3 and 1 over 30 days.
func DefaultWindowPairs() []WindowPair {
	return []WindowPair{
		{Long: hour, Short: 5 * minute, Spend: ratio("2%"), Severity: Page},
		{Long: 6 * hour, Short: 30 * minute, Spend: ratio("5%"), Severity: Page},
		{Long: Day, Short: 2 * hour, Spend: ratio("10%"), Severity: Ticket},
		{Long: 3 * Day, Short: 6 * hour, Spend: ratio("10%"), Severity: Ticket},
	}
}

// Slowest returns the pair of a severity with the longest short window.
func Slowest(pairs []WindowPair, of Severity) (slowest WindowPair) {
	for _, p := range pairs {
		if p.Severity == of && p.Short > slowest.Short {
			slowest = p
		}
	}
	return slowest
}

// MaxBadShare limits every threshold. If more than half of all events are bad, there is an outage, whatever the target.
// Without the limit, 14.4 times a budget of 10% would require 144% bad events, which cannot occur.
const MaxBadShare = One / 2

// MinBadEvents is the guard against low traffic. With fewer bad requests in the long window, no alert fires, so one
// slow request to a quiet model never pages.
const MinBadEvents = 5

// NowWindow is a window for the present burn rate. It is used if it has at least MinBad bad requests.
type NowWindow struct {
	Length Duration
	MinBad float64
}

// NowWindows lists the windows for the present burn rate. The shortest comes first. A window that is shorter than two
// scrapes has no result. If even the longest window has fewer than MinBad bad requests, it is unknown when a burn
// began.
var NowWindows = []NowWindow{{Duration(time.Minute), 10}, {Duration(2 * time.Minute), 10}, {Duration(5 * time.Minute), 3}}

// LeastSpend guards against low traffic. Before a pair alerts, the bad events must be at least this part of the pair's
// spend at the model's usual traffic. After a start from zero, twenty slow requests may be all the traffic, but they
// spend almost nothing of a month's budget.
const LeastSpend = 0.1

// WakeSpend replaces LeastSpend until five minutes after a model's first event within the long window. Until then, both
// windows have the same events, and a few requests that waited for the compilation of kernels may be a fifth of all
// requests. A real outage at the usual traffic spends this larger part within a minute. WakeSpend also applies in the
// first hour of a model or of an objective. The usual traffic is then unknown, so the traffic so far replaces it.
const WakeSpend = 0.5

// StayShare is the part of the slowest pair's threshold above which a firing alert continues. Even in a steady burn,
// one short window may by chance have half as many bad events as the next.
const StayShare = 0.5

// These constants define a sustained burn, which pages although the long window is still full of good events, for
// example from before throughput collapsed. A sustained burn is possible only for objectives with a budget below
// SustainedBudget. The short window of five minutes must burn faster than SustainedFactor times the pair's threshold.
// With a target of 99.9% over 30 days, this means that 4.3% of events are bad. In addition, the rate of bad events was
// already more than SustainedPart of the present rate SustainedFor ago, and more than SustainedPart of the bad events
// came in the last SustainedNow. Therefore, a stall of a minute that is over does not page.
const (
	SustainedBudget = One / 500
	SustainedFactor = 3
	SustainedPart   = 0.1
	SustainedFor    = 3 * time.Minute
	SustainedNow    = 2 * time.Minute
)

// FewBadEvents is the number of bad events in the long window below which bad events are rare. An alert then continues
// even if the short window has none, because rare events have gaps of that length.
const FewBadEvents = 20

// Unit returns the length of the period, in seconds, for which SpendFactor would be 1.
func (p WindowPair) Unit() float64 {
	f, _ := new(big.Rat).Quo(p.Long.rat(), p.Spend.Rat()).Float64()
	return f
}

// SpendFactor returns the burn rate that spends the pair's share of the budget in its long window.
func (p WindowPair) SpendFactor(period Duration) *big.Rat {
	f := new(big.Rat).Mul(p.Spend.Rat(), period.rat())
	return f.Quo(f, p.Long.rat())
}

// Factor returns the burn rate above which the pair fires. It is SpendFactor, but at most the burn rate of MaxBadShare,
// and at least 1. Below 1, the pair would alert while the objective is met.
func (p WindowPair) Factor(o Objective) *big.Rat {
	f := p.SpendFactor(o.Period)
	if one := big.NewRat(1, 1); f.Cmp(one) < 0 {
		f = one
	}
	if limit := new(big.Rat).Quo(MaxBadShare.Rat(), o.Budget().Rat()); f.Cmp(limit) > 0 {
		f = limit
	}
	return f
}

// Threshold returns the share of bad events above which the pair fires.
func (p WindowPair) Threshold(o Objective) *big.Rat {
	return new(big.Rat).Mul(p.Factor(o), o.Budget().Rat())
}

// Spent returns the share of the period's budget that has burnt when the pair fires.
func (p WindowPair) Spent(o Objective) *big.Rat {
	s := new(big.Rat).Mul(p.Factor(o), p.Long.rat())
	return s.Quo(s, o.Period.rat())
}

// Sustains reports whether the pair also fires for a sustained burn: see SustainedFactor.
func (p WindowPair) Sustains() bool { return p.Short == 5*minute }

// sustains reports whether the pair also fires for a sustained burn of this objective.
func (p WindowPair) sustains(o Objective) bool {
	return p.Sustains() && o.Target > One-SustainedBudget
}

// Holds reports whether the pair's condition is met. count returns the bad events and all events in a window that ended
// some time ago.
func (p WindowPair) Holds(o Objective, count func(ago, window time.Duration) (bad, events float64)) bool {
	limit, _ := p.Threshold(o).Float64()
	bad, all := count(0, p.Long.Std())
	now, recent := count(0, p.Short.Std())
	long := bad > limit*all
	if p.sustains(o) && now > SustainedFactor*limit*recent {
		old, _ := count(SustainedFor, p.Short.Std())
		fresh, _ := count(0, SustainedNow)
		long = long || min(old, fresh) > SustainedPart*now
	}
	return bad >= MinBadEvents && long && now > limit*recent
}

// Load describes a constant incident: the share of bad events, and the traffic. The traffic is in requests even if the
// events are tokens, because the guard against low traffic counts requests.
type Load struct {
	BadShare          float64
	RequestsPerSecond float64
}

// Detection returns the time from the start of an incident until the pair's condition is first met, if no event was bad
// before, at the same traffic. fires is false if the condition is never met.
func (p WindowPair) Detection(o Objective, l Load) (d time.Duration, fires bool) {
	threshold, _ := p.Threshold(o).Float64()
	if l.BadShare <= threshold || l.RequestsPerSecond <= 0 {
		return 0, false
	}
	long := p.Long.Std().Seconds()
	guard := MinBadEvents / (l.BadShare * l.RequestsPerSecond)
	if guard > long {
		return 0, false
	}
	seconds := threshold * long / l.BadShare
	if p.sustains(o) && l.BadShare > SustainedFactor*threshold {
		seconds = min(seconds, max(SustainedFactor*threshold*p.Short.Std().Seconds()/l.BadShare, SustainedFor.Seconds()/(1-SustainedPart)))
	}
	return time.Duration(max(seconds, guard) * float64(time.Second)), true
}

// Detection returns the time until the first pair of the severity fires.
func Detection(pairs []WindowPair, severity Severity, o Objective, l Load) (d time.Duration, fires bool) {
	d = math.MaxInt64
	for _, p := range pairs {
		if t, ok := p.Detection(o, l); ok && p.Severity == severity {
			d, fires = min(d, t), true
		}
	}
	if !fires {
		d = 0
	}
	return d, fires
}

// Exhaustion returns the time until the remaining share of the budget is spent at a burn rate. At 14.4, the whole
// budget of 30 days lasts 50 hours. At 0, the time is infinite.
func Exhaustion(period Duration, remaining, burn float64) time.Duration {
	seconds := time.Duration(period).Seconds() * max(remaining, 0) / burn
	if !(seconds < math.MaxInt64/float64(time.Second)) {
		return math.MaxInt64
	}
	return time.Duration(seconds * float64(time.Second))
}
