// Package release compares each model before and after a change of its version or a setting. It queries a Prometheus
// that stores the exporter's series, with the rules' own expressions.
package release

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Ask answers an instant query at a given time.
type Ask func(ctx context.Context, query string, at time.Time) (engine.Vector, error)

// Options limit and configure a comparison.
type Options struct {
	// Now is the present time. Since is how far back to look for changes.
	Now   time.Time
	Since time.Duration
	// Window is the length of the two compared periods, before and after a change. Settle is the time to skip after a
	// change, while caches fill and kernels compile.
	Window, Settle time.Duration
	// Model and Namespace limit the models. Empty means all models.
	Model, Namespace string
}

// Verdict reports whether a model is worse than before.
type Verdict string

// These are the verdicts. The best comes first.
const (
	NoWorse Verdict = "no worse"
	Worse   Verdict = "worse"
	Unknown Verdict = "cannot tell"
)

// LeastWindow is the shortest window that allows a comparison.
const LeastWindow = 5 * time.Minute

// These are the limits of a comparison.
const (
	day          = 24 * time.Hour
	together     = 30 * time.Minute // changes of a model within this time are one rollout, as for drift
	leastReading = 100              // requests in a window
	sameLoad     = 0.2              // largest difference between loads that count as equal
)

// Change is a rollout. It has the changed settings on the replicas of a model, and how the model has performed since then.
type Change struct {
	Model     string    `json:"model"`
	Namespace string    `json:"namespace,omitempty"`
	Cluster   string    `json:"cluster,omitempty"`
	From      time.Time `json:"from"` // the first replica that changed, and the last
	To        time.Time `json:"to"`
	Settings  []Setting `json:"settings"`
	// Changed is the number of running Replicas that have changed. Back means that all settings are again as before the
	// previous rollout.
	Changed  int  `json:"changed"`
	Replicas int  `json:"replicas"`
	Back     bool `json:"back"`

	Verdict Verdict `json:"verdict"`
	// Why is the reason for the verdict, or names the missing data.
	Why []string `json:"why"`
	// Against is the basis of the comparison: the replicas' own past, or the other replicas.
	Against  string  `json:"against,omitempty"`
	Before   *Window `json:"before,omitempty"`
	After    *Window `json:"after,omitempty"`
	Compared []Row   `json:"compared"`
}

// Setting is a changed setting.
type Setting struct {
	Setting  metrics.Setting `json:"setting"`
	Old      string          `json:"old"`
	New      string          `json:"new"`
	Replicas int             `json:"replicas"`
}

// Window is a period in which a model is measured, with its load.
type Window struct {
	From time.Time `json:"from"`
	To   time.Time `json:"to"`
	// Load is in requests per second and replica.
	Load     float64 `json:"load"`
	Requests float64 `json:"requests"`

	replicas float64
}

// Row is one number before and after. A nil number means that the engines do not report it.
type Row struct {
	Measure string     `json:"measure"`
	Says    string     `json:"says"`
	Unit    rules.Unit `json:"unit"`
	Before  *float64   `json:"before"`
	After   *float64   `json:"after"`
	// Worse means that the number exceeds its limits. Judged means that the number has limits.
	Worse  bool `json:"worse"`
	Judged bool `json:"judged"`
}

// model identifies a model.
type model struct{ cluster, namespace, name string }

// event is a change of a setting of a replica.
type event struct {
	setting  metrics.Setting
	old, new string
	replica  string
	at       time.Time
}

// asker queries the values of one model.
type asker struct {
	Options
	ctx context.Context
	ask Ask
}

// Compare returns the changes of each model within Since, with a comparison for each. The newest change comes first.
func Compare(ctx context.Context, ask Ask, o Options) (all []Change, err error) {
	a := asker{o, ctx, ask}
	events, err := a.events()
	if err != nil {
		return nil, err
	}
	for m, of := range events {
		rollouts := rolled(of)
		for i, r := range rollouts {
			limits := [2]time.Time{r[0].at.Add(-day), o.Now}
			var last []event
			if i > 0 {
				last = rollouts[i-1]
				limits[0] = last[len(last)-1].at.Add(o.Settle)
			}
			if i+1 < len(rollouts) {
				limits[1] = rollouts[i+1][0].at
			}
			c, err := a.change(m, r, last, limits)
			if err != nil {
				return nil, err
			}
			all = append(all, c)
		}
	}
	slices.SortFunc(all, func(a, b Change) int {
		return cmp.Or(b.From.Compare(a.From), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Model, b.Model),
			cmp.Compare(a.Cluster, b.Cluster))
	})
	return all, nil
}

// Status returns the worst of the verdicts on the newest change of each model. Models without a change have no verdict.
func Status(all []Change) Verdict {
	order := []Verdict{NoWorse, Unknown, Worse} // a certain worsening takes precedence over unknown
	status, seen := Verdict(""), map[model]bool{}
	for _, c := range all {
		m := model{c.Cluster, c.Namespace, c.Model}
		if !seen[m] && slices.Index(order, c.Verdict) > slices.Index(order, status) {
			status = c.Verdict
		}
		seen[m] = true
	}
	return cmp.Or(status, Unknown)
}

// events returns the changes that the exporters report, by model. It leaves out new values that an engine measured at
// its start.
func (a asker) events() (map[model][]event, error) {
	m := []*promql.Matcher{promql.Ne(metrics.LabelSetting, string(metrics.SettingKVCacheTokens))}
	for label, value := range map[string]string{metrics.LabelModel: a.Model, metrics.LabelNamespace: a.Namespace} {
		if value != "" {
			m = append(m, promql.Eq(label, value))
		}
	}
	changed := promql.Over("last_over_time", promql.Vector(metrics.EngineConfigChanged, m...), a.Since)
	found, err := a.ask(a.ctx, promql.Max(append([]string{metrics.LabelSetting, metrics.LabelOld, metrics.LabelNew},
		metrics.ReplicaLabels...), changed).String(), a.Now)
	if err != nil {
		return nil, err
	}
	all := map[model][]event{}
	for _, s := range found {
		at := time.UnixMilli(int64(1000 * s.F)).UTC()
		if of := (model{
			s.Metric.Get(metrics.LabelCluster), s.Metric.Get(metrics.LabelNamespace),
			s.Metric.Get(metrics.LabelModel),
		}); at.After(a.Now.Add(-a.Since)) {
			all[of] = append(all[of], event{
				metrics.Setting(s.Metric.Get(metrics.LabelSetting)), s.Metric.Get(metrics.LabelOld),
				s.Metric.Get(metrics.LabelNew), replicaOf(s.Metric), at,
			})
		}
	}
	return all, nil
}

func replicaOf(l labels.Labels) string {
	return l.Get(metrics.LabelPod) + "\xff" + l.Get(metrics.LabelServer) + "\xff" + l.Get(metrics.LabelInstance)
}

// rolled groups the changes of a model into rollouts.
func rolled(events []event) (all [][]event) {
	slices.SortFunc(events, func(a, b event) int {
		return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.setting, b.setting), cmp.Compare(a.replica, b.replica))
	})
	for i, e := range events {
		reverses := func(o event) bool { return o.setting == e.setting && o.new == e.old && o.old == e.new }
		// A reverted change is another rollout.
		if i == 0 || e.at.Sub(events[i-1].at) > together || slices.ContainsFunc(all[len(all)-1], reverses) {
			all = append(all, nil)
		}
		all[len(all)-1] = append(all[len(all)-1], e)
	}
	return all
}

// matchers select the series of the model.
func (m model) matchers() []*promql.Matcher {
	return []*promql.Matcher{
		promql.Eq(metrics.LabelCluster, m.cluster), promql.Eq(metrics.LabelNamespace, m.namespace),
		promql.Eq(metrics.LabelModel, m.name),
	}
}

// reverses reports whether each setting changed back to its value before the last change.
func (c Change) reverses(last []event) bool {
	return !slices.ContainsFunc(c.Settings, func(s Setting) bool {
		return !slices.ContainsFunc(last, func(e event) bool { return e.setting == s.Setting && e.old == s.New && e.new == s.Old })
	})
}

// change compares the model before and after a rollout. Between the two limits, nothing else has changed.
func (a asker) change(m model, of, last []event, limits [2]time.Time) (Change, error) {
	c := Change{
		Model: m.name, Namespace: m.namespace, Cluster: m.cluster, From: of[0].at, To: of[len(of)-1].at,
		Settings: settings(of), Verdict: Unknown, Why: []string{}, Compared: []Row{},
	}
	c.Back = c.reverses(last)
	changed := map[string]bool{}
	for _, e := range of {
		changed[e.replica] = true
	}
	after := Window{From: c.To.Add(a.Settle), To: limits[1]}
	if longest := after.From.Add(a.Window); after.To.After(longest) {
		after.To = longest
	}
	if after.To.Sub(after.From) < LeastWindow {
		c.Why = append(c.Why, fmt.Sprintf("only %s have passed since the last replica changed; the comparison waits %s and then needs "+
			"at least %s", max(0, limits[1].Sub(c.To)).Round(time.Second), a.Settle, LeastWindow))
		return c, nil
	}
	own := m.matchers()
	live, err := a.ask(a.ctx, promql.Max(metrics.ReplicaLabels, promql.Vector(metrics.EngineInfo, own...)).String(), after.To)
	if err != nil {
		return c, err
	}
	servers := map[bool]map[string]bool{true: {}, false: {}}
	for _, s := range live {
		is := changed[replicaOf(s.Metric)]
		c.Replicas++
		if is {
			c.Changed++
		}
		servers[is][regexp.QuoteMeta(s.Metric.Get(metrics.LabelServer))] = true
	}
	if c.Changed == 0 {
		c.Why = append(c.Why, "none of the changed replicas is running")
		return c, nil
	}
	mine := own
	if c.Changed < c.Replicas {
		mine = append(slices.Clip(own), promql.Re(metrics.LabelServer, alternatives(servers[true])))
	}
	if err := a.load(&after, mine); err != nil {
		return c, err
	}
	c.After = &after
	theirs, before := own, Window{}
	if c.Changed < c.Replicas {
		c.Against = "the replicas that did not change, at the same time"
		theirs, before = append(slices.Clip(own), promql.Re(metrics.LabelServer, alternatives(servers[false]))),
			Window{From: after.From, To: after.To}
		err = a.load(&before, theirs)
	} else {
		c.Against = "before the change"
		var until time.Time
		if until, err = a.began(own, servers[true], c); err == nil {
			before, err = a.before(own, until, limits[0], after)
		}
	}
	if err != nil {
		return c, err
	}
	if before.To.IsZero() {
		c.Why = append(c.Why, fmt.Sprintf("less than %s passed between this change and the previous one", LeastWindow))
		return c, nil
	}
	c.Before = &before
	if err := a.compare(&c, theirs, mine); err != nil {
		return c, err
	}
	c.judge()
	return c, nil
}

// settings lists what a rollout changed, and on how many replicas.
func settings(of []event) (all []Setting) {
	counts := map[Setting]int{}
	for _, e := range of {
		counts[Setting{Setting: e.setting, Old: e.old, New: e.new}]++
	}
	for s, n := range counts {
		s.Replicas = n
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Setting) int {
		return cmp.Or(cmp.Compare(slices.Index(metrics.Settings, a.Setting), slices.Index(metrics.Settings, b.Setting)),
			cmp.Compare(a.Old, b.Old), cmp.Compare(a.New, b.New))
	})
	return all
}

func alternatives(of map[string]bool) string {
	return strings.Join(slices.Sorted(maps.Keys(of)), "|")
}

// began returns the last time at which the model was unchanged. This is one scrape before its first changed replica
// started. The change becomes visible only when that replica has loaded.
func (a asker) began(own []*promql.Matcher, servers map[string]bool, c Change) (time.Time, error) {
	pages := append([]*promql.Matcher{promql.Re(metrics.LabelServer, alternatives(servers))}, own[:2]...)
	started, err := a.value(promql.Min(nil, promql.Vector(metrics.EngineStartTime, pages...)), c.To)
	if err != nil {
		return c.From, err
	}
	began := c.From
	if started != nil {
		if at := time.UnixMilli(int64(1000 * *started)); at.Before(began) && began.Sub(at) < together {
			began = at
		}
	}
	return began.Add(-rules.Interval).UTC(), nil
}

// before returns the last window before a change in which the model had the same load as after the change. Without such
// a window, it returns the last window, or the existing part of that window.
func (a asker) before(own []*promql.Matcher, until, since time.Time, after Window) (Window, error) {
	length := after.To.Sub(after.From)
	var last Window
	for to := until; !to.Add(-LeastWindow).Before(since); to = to.Add(-length) {
		w := Window{From: to.Add(-length), To: to}
		if w.From.Before(since) {
			w.From = since
		}
		if err := a.load(&w, own); err != nil {
			return w, err
		}
		if to.Equal(until) {
			last = w
		}
		if w.Requests >= leastReading && math.Abs(after.Load/w.Load-1) <= sameLoad {
			return w, nil
		}
	}
	return last, nil
}

// load reads the load of a window.
func (a asker) load(w *Window, m []*promql.Matcher) (err error) {
	load, err := a.value(rules.RequestRate(w.To.Sub(w.From), m...), w.To)
	if err != nil || load == nil {
		return err
	}
	replicas, err := a.value(promql.CountBy(nil, promql.Max(metrics.ReplicaLabels, promql.Vector(metrics.EngineInfo, m...))), w.To)
	if err != nil || replicas == nil {
		return err
	}
	w.Load, w.replicas = *load, *replicas
	w.Requests = math.Round(w.Load * w.replicas * w.To.Sub(w.From).Seconds())
	return nil
}

// value returns the only value of an expression, or nil.
func (a asker) value(x promql.Expr, at time.Time) (*float64, error) {
	found, err := a.ask(a.ctx, x.String(), at)
	if err != nil || len(found) == 0 || math.IsNaN(found[0].F) || math.IsInf(found[0].F, 0) {
		return nil, err
	}
	return &found[0].F, nil
}

// compare reads the values for the verdict on a release.
func (a asker) compare(c *Change, theirs, mine []*promql.Matcher) error {
	for _, measure := range rules.Measures() {
		row := Row{Measure: measure.Name, Says: measure.Says, Unit: measure.Unit}
		var err error
		if row.Before, err = a.value(measure.Query(c.Before.To.Sub(c.Before.From), theirs...), c.Before.To); err != nil {
			return err
		}
		if row.After, err = a.value(measure.Query(c.After.To.Sub(c.After.From), mine...), c.After.To); err != nil {
			return err
		}
		if row.Before != nil && row.After != nil {
			row.Judged = measure.Share > 0
			row.Worse = row.Judged && measure.Worse(*row.Before, *row.After)
		}
		if row.Before != nil || row.After != nil {
			c.Compared = append(c.Compared, row)
		}
	}
	return nil
}

// judge determines the verdict.
func (c *Change) judge() {
	for _, w := range []*Window{c.Before, c.After} {
		if w.Requests < leastReading {
			c.Why = append(c.Why, fmt.Sprintf("only %.0f requests from %s to %s; at least %d are needed", w.Requests, clock(w.From),
				clock(w.To), leastReading))
		}
	}
	if len(c.Why) > 0 {
		return
	}
	if !slices.ContainsFunc(c.Compared, func(r Row) bool { return r.Judged && (r.Measure == "ttft" || r.Measure == "itl") }) {
		c.Why = append(c.Why, "neither the time to first token nor the time between tokens is reported both before and after the change")
		return
	}
	more := c.After.Load/c.Before.Load - 1
	worse, doubtful := c.worse(more)
	different := fmt.Sprintf("the load differs by %+.0f%%: %.3g requests per second and replica before, %.3g after", 100*more,
		c.Before.Load, c.After.Load)
	switch {
	case len(worse) > 0:
		c.Verdict, c.Why = Worse, worse
		if math.Abs(more) > sameLoad {
			c.Why = append(c.Why, different)
		}
	case math.Abs(more) > sameLoad && (len(doubtful) > 0 || more < 0):
		c.Why = slices.Concat(doubtful, []string{different})
	default:
		c.Verdict = NoWorse
		if more > sameLoad {
			c.Why = append(c.Why, different+", and nothing is worse")
		}
	}
}

// worse describes the measures that have become worse. Those that a different load may explain are returned as
// doubtful.
func (c *Change) worse(more float64) (worse, doubtful []string) {
	loaded := map[string]bool{}
	for _, m := range rules.Measures() {
		loaded[m.Name] = m.Loaded
	}
	for _, r := range c.Compared {
		switch {
		case !r.Worse:
		case loaded[r.Measure] && more > sameLoad, r.Measure == "tokens" && more < -sameLoad:
			doubtful = append(doubtful, r.says())
		default:
			worse = append(worse, r.says())
		}
	}
	return worse, doubtful
}

func (r Row) says() string {
	return r.Says + " " + Shown(*r.Before, r.Unit) + " -> " + Shown(*r.After, r.Unit)
}

func clock(t time.Time) string { return t.UTC().Format("15:04:05") }
