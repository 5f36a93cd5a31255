package incident

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

// alertmanager is Alertmanager with the generated configuration in virtual time. Parsing, the routing
// tree, its options and the matchers of inhibition are Alertmanager's own code. Its dispatcher and its
// inhibitor run on the machine's clock, so what they do with these is here: groups that wait and are
// flushed at their interval, the comparison of labels that must be equal, and the decision whether a
// flush is news. Silences, mute times, clustering and delivery are not simulated.
type alertmanager struct {
	route  *dispatch.Route
	mutes  []*inhibit.InhibitRule
	active map[model.Fingerprint]alert
	groups map[string]*group
	sent   []Notification
}

type alert struct {
	labels model.LabelSet
	split  string
}

// group is what one route has of alerts with the same values of its labels.
type group struct {
	key      string
	route    *dispatch.Route
	flush    time.Time
	alerts   map[model.Fingerprint]bool // firing, false when resolved since the last flush
	notified map[model.Fingerprint]bool // firing in the last notification
	sent     time.Time
}

// Notification is one message to a receiver.
type Notification struct {
	At       time.Time
	Receiver string
	Alerts   []string // that fire
	Resolved bool     // none fires any more
	Update   bool     // of a group that the receiver knows already: the pager's key is the group
	Split    string   // of the first alert
	Group    string   // what a pager would key on
}

func newAlertmanager(alerts []*rules.Alert) (*alertmanager, error) {
	content, err := rules.Encode(rules.NewAlertmanager(alerts, rules.Style{}))
	if err != nil {
		return nil, err
	}
	c, err := config.Load(string(content))
	if err != nil {
		return nil, err
	}
	a := &alertmanager{route: dispatch.NewRoute(c.Route, nil), groups: map[string]*group{}}
	for _, r := range c.InhibitRules {
		a.mutes = append(a.mutes, inhibit.NewInhibitRule(r))
	}
	return a, nil
}

// receive takes what fires after an evaluation.
func (a *alertmanager) receive(now time.Time, firing []rulesim.Alert) {
	a.run(now)
	a.active = map[model.Fingerprint]alert{}
	for _, f := range firing {
		set := model.LabelSet{}
		f.Labels.Range(func(l labels.Label) { set[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
		a.active[set.Fingerprint()] = alert{set, f.Annotations.Get("split")}
	}
	for id, alert := range a.active {
		for _, r := range a.route.Match(alert.labels) {
			key := r.ID()
			for _, name := range slices.Sorted(maps.Keys(r.RouteOpts.GroupBy)) {
				key += "\xff" + string(alert.labels[name])
			}
			g := a.groups[key]
			if g == nil {
				g = &group{key: key, route: r, flush: now.Add(r.RouteOpts.GroupWait), alerts: map[model.Fingerprint]bool{}}
				a.groups[key] = g
			}
			g.alerts[id] = true
		}
	}
	for _, g := range a.groups {
		for id := range g.alerts {
			_, g.alerts[id] = a.active[id]
		}
	}
}

// run flushes the groups that are due before a time.
func (a *alertmanager) run(now time.Time) {
	for _, key := range slices.Sorted(maps.Keys(a.groups)) {
		g := a.groups[key]
		for g.flush.Before(now) {
			a.notify(g)
			g.flush = g.flush.Add(g.route.RouteOpts.GroupInterval)
			maps.DeleteFunc(g.alerts, func(_ model.Fingerprint, firing bool) bool { return !firing })
		}
		if len(g.alerts) == 0 && len(g.notified) == 0 {
			delete(a.groups, key)
		}
	}
}

// notify sends what the last notification did not say.
func (a *alertmanager) notify(g *group) {
	firing := map[model.Fingerprint]bool{}
	news, resolved := false, false
	for id, fires := range g.alerts {
		switch {
		case fires && !a.muted(a.active[id].labels):
			firing[id] = true
			news = news || !g.notified[id]
		case !fires && g.notified[id]:
			resolved = true
		}
	}
	repeat := len(firing) > 0 && !g.flush.Before(g.sent.Add(g.route.RouteOpts.RepeatInterval))
	if !news && !resolved && !repeat {
		return
	}
	n := Notification{At: g.flush, Receiver: g.route.RouteOpts.Receiver, Resolved: len(firing) == 0, Update: len(g.notified) > 0, Group: g.key}
	for id := range firing {
		n.Alerts = append(n.Alerts, string(a.active[id].labels[model.AlertNameLabel]))
		n.Split = max(n.Split, a.active[id].split)
	}
	slices.Sort(n.Alerts)
	n.Alerts = slices.Compact(n.Alerts)
	a.sent = append(a.sent, n)
	g.notified, g.sent = firing, g.flush
}

// muted says whether another alert that fires makes this one quiet.
func (a *alertmanager) muted(target model.LabelSet) bool {
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

// pages are the notifications that wake somebody.
func (a *alertmanager) pages() []Notification { return a.to("llm-critical") }

func (a *alertmanager) to(receiver string) []Notification {
	var ns []Notification
	for _, n := range a.sent {
		if n.Receiver == receiver && !n.Resolved {
			ns = append(ns, n)
		}
	}
	return ns
}

// mentions says whether the split of a page names an alert.
func (n Notification) mentions(alert string) bool { return strings.Contains(n.Split, alert) }
