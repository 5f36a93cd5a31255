package play

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/inhibit"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Alertmanager runs Alertmanager in virtual time with the generated configuration. Parsing, the routing tree, its
// options and the matchers of inhibition are Alertmanager's own code. Its dispatcher and inhibitor follow the
// machine's clock, so this code replaces what they do: groups that wait and are flushed at their interval, the
// comparison of labels that must be equal, and the decision whether a flush is news. TestDispatcher compares it with
// Alertmanager's. Silences, mute times, clustering and delivery are not simulated.
type Alertmanager struct {
	route  *dispatch.Route
	mutes  []*inhibit.InhibitRule
	active map[model.Fingerprint]alert
	groups map[string]*group
	log    map[string]entry // the last notification, by group
	sent   []Notification   // not taken yet
}

// alert holds what Alertmanager knows of a firing alert.
type alert struct {
	labels model.LabelSet
	split  string
}

// group holds the alerts of one route with equal values of its group labels. It ends when it is empty.
type group struct {
	route  *dispatch.Route
	flush  time.Time
	alerts map[model.Fingerprint]member
}

// member holds an alert of a group: firing, or resolved since the last flush.
type member struct {
	alert
	fires bool
}

// entry holds what Alertmanager remembers of a group's last notification.
type entry struct {
	firing, resolved map[model.Fingerprint]bool
	at               time.Time
}

// Notification describes one message to a receiver.
type Notification struct {
	At       time.Time
	Receiver string
	Alerts   []string // firing alerts
	Resolved bool     // no alert fires any more
	Update   bool     // the receiver knows the group already: pagers key on it
	Split    string   // from its alerts
	Group    string   // the key that a pager would use
}

// NewAlertmanager loads the configuration that is generated for alerts.
func NewAlertmanager(alerts []*rules.Alert) (*Alertmanager, error) {
	content, err := rules.Encode(rules.NewAlertmanager(alerts, rules.Style{}))
	if err != nil {
		return nil, err
	}
	c, err := config.Load(string(content))
	if err != nil {
		return nil, err
	}
	a := &Alertmanager{route: dispatch.NewRoute(c.Route, nil), groups: map[string]*group{}, log: map[string]entry{}}
	for _, r := range c.InhibitRules {
		a.mutes = append(a.mutes, inhibit.NewInhibitRule(r))
	}
	return a, nil
}

// Receive takes the alerts that fire after an evaluation.
func (a *Alertmanager) Receive(now time.Time, firing []rulesim.Alert) {
	a.Run(now)
	a.active = map[model.Fingerprint]alert{}
	for _, f := range firing {
		set := model.LabelSet{}
		f.Labels.Range(func(l labels.Label) { set[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
		a.active[set.Fingerprint()] = alert{set, f.Annotations.Get("split")}
	}
	for id, firing := range a.active {
		for _, r := range a.route.Match(firing.labels) {
			key := r.ID()
			for _, name := range slices.Sorted(maps.Keys(r.RouteOpts.GroupBy)) {
				key += "\xff" + string(firing.labels[name])
			}
			g := a.groups[key]
			if g == nil {
				g = &group{route: r, flush: now.Add(r.RouteOpts.GroupWait), alerts: map[model.Fingerprint]member{}}
				a.groups[key] = g
			}
			g.alerts[id] = member{firing, true}
		}
	}
	for _, g := range a.groups {
		for id, m := range g.alerts {
			_, m.fires = a.active[id]
			g.alerts[id] = m
		}
	}
}

// Run flushes the groups that are due before a time. A flush that is due at that very time waits for the alerts that
// the time brings.
func (a *Alertmanager) Run(now time.Time) {
	for _, key := range slices.Sorted(maps.Keys(a.groups)) {
		g := a.groups[key]
		for len(g.alerts) > 0 && g.flush.Before(now) {
			a.notify(key, g)
			g.flush = g.flush.Add(g.route.RouteOpts.GroupInterval)
			maps.DeleteFunc(g.alerts, func(_ model.Fingerprint, m member) bool { return !m.fires })
		}
		if len(g.alerts) == 0 {
			delete(a.groups, key)
		}
	}
}

// notify sends the group if it has news since the last notification (notify.DedupStage).
func (a *Alertmanager) notify(key string, g *group) {
	now := entry{map[model.Fingerprint]bool{}, map[model.Fingerprint]bool{}, g.flush}
	n := Notification{At: g.flush, Receiver: g.route.RouteOpts.Receiver, Group: key}
	var splits []string
	for id, m := range g.alerts {
		switch {
		case a.muted(m.labels):
		case m.fires:
			now.firing[id] = true
			n.Alerts = append(n.Alerts, string(m.labels[model.AlertNameLabel]))
			if m.split != "" {
				splits = append(splits, m.split)
			}
		default:
			now.resolved[id] = true
		}
	}
	before := a.log[key]
	news := !within(now.firing, before.firing)
	if len(now.firing) == 0 {
		news = len(before.firing) > 0 && len(now.resolved) > 0
	} else if !news {
		news = !within(now.resolved, before.resolved) || before.at.Before(g.flush.Add(-g.route.RouteOpts.RepeatInterval))
	}
	if !news {
		return
	}
	slices.Sort(n.Alerts)
	n.Alerts = slices.Compact(n.Alerts)
	slices.Sort(splits)
	n.Split = strings.Join(splits, "\n")
	n.Resolved, n.Update = len(now.firing) == 0, len(before.firing) > 0
	a.sent = append(a.sent, n)
	a.log[key] = now
}

// within reports whether all of a are in b.
func within(a, b map[model.Fingerprint]bool) bool {
	for id := range a {
		if !b[id] {
			return false
		}
	}
	return true
}

// muted reports whether another firing alert mutes this one.
func (a *Alertmanager) muted(target model.LabelSet) bool {
	for _, r := range a.mutes {
		if !r.TargetMatchers.Matches(target) {
			continue
		}
		both := r.SourceMatchers.Matches(target)
		for _, source := range a.active {
			if !r.SourceMatchers.Matches(source.labels) || both && r.TargetMatchers.Matches(source.labels) {
				continue
			}
			equal := true
			for name := range r.Equal {
				equal = equal && source.labels[name] == target[name]
			}
			if equal {
				return true
			}
		}
	}
	return false
}

// Take returns the notifications sent since it was last called.
func (a *Alertmanager) Take() []Notification {
	sent := a.sent
	a.sent = nil
	return sent
}
