package main

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// event is a good or a bad event that an objective counts. at is when the user noticed it.
type event struct {
	at  float64
	bad bool
}

// events returns the events that an objective counts until a time, in order of time. A request that waits for its first
// token becomes bad when the threshold has passed, even if the request has not ended. A user who leaves early, or sends
// a request that no engine can serve, is not a bad event for availability.
func events(records []Record, o slo.Objective, until float64) []event {
	var all []event
	limit := o.Threshold.Std().Seconds()
	for _, r := range records {
		if r.Invalid {
			continue
		}
		switch o.Signal {
		case slo.TTFT:
			switch known := r.Sent + limit; {
			case r.First > 0 && r.First <= known:
				all = append(all, event{r.First, false})
			case r.First > 0 || r.Status < 400 && (r.End == 0 && until > known || r.End > known): // the user still waits, or has waited longer
				all = append(all, event{known, true})
			}
		case slo.ITL:
			for _, g := range r.gaps {
				all = append(all, event{g.at, g.length > limit})
			}
		case slo.Availability:
			if failed := r.Error != "" || r.Status >= 400; r.End > 0 && (failed || !r.Cancelled) {
				all = append(all, event{r.End, failed})
			}
		default: // no play has objectives on other signals
		}
	}
	all = slices.DeleteFunc(all, func(e event) bool { return e.at > until })
	slices.SortFunc(all, func(a, b event) int { return cmp.Compare(a.at, b.at) })
	return all
}

// Hurt describes how an objective's users suffered.
type Hurt struct {
	Objective string  `json:"objective"`
	Before    float64 `json:"bad_share_before"` // share of bad events before the fault
	During    float64 `json:"bad_share_during"` // share of bad events after the fault
	Events    int     `json:"events_during"`
	First     float64 `json:"first_bad_seconds"` // time of the first bad event since the fault; -1 if there is none
	Due       float64 `json:"due_seconds"`       // time since the fault at which a page was due; -1 if never
}

// hurt computes from the clients' records when a page was due, which is when both windows of a paging pair exceeded
// their threshold. It assumes that the hours before the play were as healthy as the play's first minutes.
func hurt(records []Record, o slo.Objective, fault, until float64) Hurt {
	h := Hurt{Objective: o.Name, First: -1, Due: -1}
	all := events(records, o, until)
	split, _ := slices.BinarySearchFunc(all, fault, func(e event, at float64) int { return cmp.Compare(e.at, at) })
	h.Before, h.During, h.Events = share(all[:split]), share(all[split:]), len(all)-split
	if i := slices.IndexFunc(all[split:], func(e event) bool { return e.bad }); i >= 0 {
		h.First = all[split+i].at - fault
	}
	rate := float64(split) / fault
	for _, p := range slo.DefaultWindowPairs() {
		if p.Severity != slo.Page {
			continue
		}
		for at := fault; at <= until; at++ {
			counts := func(ago, length time.Duration) (bad, events float64) {
				return window(all, at-ago.Seconds(), length.Seconds(), rate, h.Before)
			}
			if p.Holds(o, counts) {
				if h.Due < 0 || at-fault < h.Due {
					h.Due = at - fault
				}
				break
			}
		}
	}
	return h
}

// suffering returns the objectives whose budgets burned, until a time, at least half as fast as the slowest page
// requires. Such a burn would hide a later fault. It would also be part of the generated history.
func suffering(records []Record, until float64) (burned []string) {
	for _, o := range promises() {
		limit := math.Inf(1)
		for _, p := range slo.DefaultWindowPairs() {
			if pages, _ := p.Threshold(o).Float64(); p.Severity == slo.Page {
				limit = min(limit, pages)
			}
		}
		if bad := share(events(records, o, until)); bad > limit/2 {
			burned = append(burned, fmt.Sprintf("%s: %.1f%% bad before the fault", o.Name, 100*bad))
		}
	}
	return burned
}

// promises returns the objectives of the plays, parsed from the exporter's configuration.
func promises() []slo.Objective {
	var config struct{ Objectives []slo.Objective }
	if err := yaml.Unmarshal([]byte(objectives()), &config); err != nil {
		panic(err) // cannot fail, because the text is constant
	}
	for i, o := range config.Objectives {
		config.Objectives[i] = o.WithDefaults()
	}
	return config.Objectives
}

// window counts the bad events and all events in the seconds before a time. For the time before the play, it assumes
// the rate of events, and the share of bad events, of the healthy minutes.
func window(all []event, at, length, rate, before float64) (bad, events float64) {
	for _, e := range all {
		if e.at > at-length && e.at <= at {
			events++
			if e.bad {
				bad++
			}
		}
	}
	if more := min(length, length-at); more > 0 {
		events += more * rate
		bad += more * rate * before
	}
	return bad, events
}

// share returns the share of bad events.
func share(all []event) float64 {
	bad := 0
	for _, e := range all {
		if e.bad {
			bad++
		}
	}
	return float64(bad) / math.Max(float64(len(all)), 1)
}
