package play

import (
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	amalert "github.com/prometheus/alertmanager/alert"
	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/inhibit"
	"github.com/prometheus/alertmanager/template"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Alertmanager runs Alertmanager in virtual time with the generated configuration. Parsing, the routing tree, its
// options, and the matchers of inhibition are Alertmanager's own code. Alertmanager's dispatcher and inhibitor follow
// the machine's clock, so this code replaces them. This code delays the first notification of a group, flushes groups
// at their interval, and compares labels that must be equal. It also decides whether a flush needs a notification.
// TestDispatcher compares it with Alertmanager's code. Alertmanager's own templates render the messages. Silences, mute
// times, clustering and delivery are not simulated.
type Alertmanager struct {
	words  *template.Template
	route  *dispatch.Route
	mutes  []*inhibit.InhibitRule
	active map[model.Fingerprint]alert
	groups map[string]*group
	log    map[string]entry // last notification, by group
	sent   []Notification   // not yet returned by Take
}

// alert is a firing alert in Alertmanager's data types.
type alert struct {
	labels, annotations model.LabelSet
	began               time.Time
}

// group holds the alerts of one route with equal values of its group labels. The group ends when it is empty.
type group struct {
	route  *dispatch.Route
	flush  time.Time
	alerts map[model.Fingerprint]member
}

// member is an alert of a group. The alert is firing, or has been resolved since the last flush.
type member struct {
	alert
	fires bool
	ended time.Time // when the alert stopped firing
}

// entry has what Alertmanager remembers of a group's last notification.
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
	Update   bool     // the receiver already has a message of the group with the same key, and pagers deduplicate by this key
	Split    string   // from its alerts
	Group    string   // the key that a pager would use
	// Labels holds the labels of the first firing alert.
	Labels model.LabelSet
	// Title and Text are the message for the receiver.
	Title, Text string

	data *template.Data // the data of Title and Text
}

// Message returns the title and the text, without an empty line at the end.
func (n Notification) Message() string { return strings.TrimSpace(n.Title + "\n" + n.Text) }

// Length returns the number of lines and characters of the message.
func (n Notification) Length() (lines, characters int) {
	text := n.Message()
	return 1 + strings.Count(text, "\n"), utf8.RuneCountInString(text)
}

// NewAlertmanager loads the configuration and the template generated for the alerts.
func NewAlertmanager(alerts []*rules.Alert, style rules.Style) (*Alertmanager, error) {
	words, err := template.New()
	if err != nil {
		return nil, err
	}
	words.ExternalURL = &url.URL{}
	if err := words.Parse(strings.NewReader(style.NotificationTemplate())); err != nil {
		return nil, err
	}
	content, err := rules.Encode(rules.NewAlertmanager(alerts, style))
	if err != nil {
		return nil, err
	}
	c, err := config.Load(string(content))
	if err != nil {
		return nil, err
	}
	a := &Alertmanager{words: words, route: dispatch.NewRoute(c.Route, nil), groups: map[string]*group{}, log: map[string]entry{}}
	for _, r := range c.InhibitRules {
		a.mutes = append(a.mutes, inhibit.NewInhibitRule(r))
	}
	return a, nil
}

// Receive updates the groups with the alerts that fire after an evaluation.
func (a *Alertmanager) Receive(now time.Time, firing []rulesim.Alert) error {
	if err := a.Run(now); err != nil {
		return err
	}
	before := a.active
	a.active = map[model.Fingerprint]alert{}
	for _, f := range firing {
		is := alert{set(f.Labels), set(f.Annotations), now}
		id := is.labels.Fingerprint()
		if was, ok := before[id]; ok {
			is.began = was.began
		}
		a.active[id] = is
	}
	for id, firing := range a.active {
		for _, r := range a.route.Match(firing.labels) {
			var key strings.Builder
			key.WriteString(r.ID())
			for _, name := range slices.Sorted(maps.Keys(r.RouteOpts.GroupBy)) {
				key.WriteString("\xff" + string(firing.labels[name]))
			}
			g := a.groups[key.String()]
			if g == nil {
				g = &group{route: r, flush: now.Add(r.RouteOpts.GroupWait), alerts: map[model.Fingerprint]member{}}
				a.groups[key.String()] = g
			}
			g.alerts[id] = member{alert: firing, fires: true}
		}
	}
	for _, g := range a.groups {
		for id, m := range g.alerts {
			if _, fires := a.active[id]; m.fires && !fires {
				m.fires, m.ended = false, now
			}
			g.alerts[id] = m
		}
	}
	return nil
}

// Run flushes the groups that are due before a time. A flush that is due exactly at this time waits until Receive has
// added the alerts of this time.
func (a *Alertmanager) Run(now time.Time) error {
	for _, key := range slices.Sorted(maps.Keys(a.groups)) {
		g := a.groups[key]
		for len(g.alerts) > 0 && g.flush.Before(now) {
			if err := a.notify(key, g); err != nil {
				return err
			}
			g.flush = g.flush.Add(g.route.RouteOpts.GroupInterval)
			maps.DeleteFunc(g.alerts, func(_ model.Fingerprint, m member) bool { return !m.fires })
		}
		if len(g.alerts) == 0 {
			delete(a.groups, key)
		}
	}
	return nil
}

// notify sends a notification about a group, if the group has changed enough since the last one (notify.DedupStage).
func (a *Alertmanager) notify(key string, g *group) error {
	now := entry{map[model.Fingerprint]bool{}, map[model.Fingerprint]bool{}, g.flush}
	n := Notification{At: g.flush, Receiver: g.route.RouteOpts.Receiver, Group: key}
	var splits []string
	var about []*amalert.Alert
	for id, m := range g.alerts {
		if a.muted(m.labels) {
			continue
		}
		about = append(about, &amalert.Alert{Alert: model.Alert{
			Labels: m.labels, Annotations: m.annotations, StartsAt: m.began.UTC(),
			EndsAt: m.ended.UTC(),
		}})
		if !m.fires {
			now.resolved[id] = true
			continue
		}
		now.firing[id] = true
		n.Alerts = append(n.Alerts, string(m.labels[model.AlertNameLabel]))
		if split := string(m.annotations["split"]); split != "" {
			splits = append(splits, split)
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
		return nil
	}
	slices.SortFunc(about, func(x, y *amalert.Alert) int { return strings.Compare(x.Labels.String(), y.Labels.String()) })
	data := a.words.Data(n.Receiver, nil, nil, "", about...)
	n.data = data
	var err error
	if n.Title, err = a.words.ExecuteTextString(`{{ template "llm.title" . }}`, data); err != nil {
		return err
	}
	if n.Text, err = a.words.ExecuteTextString(`{{ template "llm.text" . }}`, data); err != nil {
		return err
	}
	for _, is := range about {
		if n.Labels == nil && is.EndsAt.IsZero() {
			n.Labels = is.Labels
		}
	}
	slices.Sort(n.Alerts)
	n.Alerts = slices.Compact(n.Alerts)
	slices.Sort(splits)
	n.Split = strings.Join(splits, "\n")
	n.Resolved, n.Update = len(now.firing) == 0, len(before.firing) > 0
	a.sent = append(a.sent, n)
	a.log[key] = now
	return nil
}

// set converts labels to Alertmanager's type.
func set(l labels.Labels) model.LabelSet {
	s := model.LabelSet{}
	l.Range(func(l labels.Label) { s[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
	return s
}

// within reports whether b contains all alerts of a.
func within(a, b map[model.Fingerprint]bool) bool {
	for id := range a {
		if !b[id] {
			return false
		}
	}
	return true
}

// muted reports whether another firing alert mutes this alert.
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

// Take returns the notifications that were sent since the last call.
func (a *Alertmanager) Take() []Notification {
	sent := a.sent
	a.sent = nil
	return sent
}
