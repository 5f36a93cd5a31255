package engine

import (
	"iter"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// These limits apply to the data in a Ledger, because an engine may report any value, and new values each time.
const (
	mostReplicas    = 4096
	mostChanges     = 48              // changes of a replica in an hour: all settings, twice
	mostCounters    = 4096            // counters of a metrics endpoint, in addition to those of its last metrics page
	formerModels    = 64              // models of a metrics endpoint that are gone but whose lost requests are still reported
	forgetAfter     = 24 * time.Hour  // time since a replica or a metrics endpoint was last seen
	measuredApart   = 0.05            // difference between two measurements that does not count as a change
	changesTogether = 5 * time.Minute // time between a change and the changes that it explains
	startsTogether  = 5 * time.Minute // an engine without a start time does not count as new until this long after the exporter's start
	seenTogether    = 2 * time.Minute
	believed        = 5 * time.Minute // how long requests count as running without progress, or while counters of their process are missing
)

// Ledger keeps, as long as the exporter runs, the settings of each model's replicas and the changes of these settings. It also keeps the
// restarts of the process at each metrics endpoint, and the tallies of its metrics page. A nil Ledger keeps nothing.
type Ledger struct {
	mu       sync.Mutex
	since    time.Time
	swept    time.Time // when the ledger last dropped old entries
	replicas map[groupKey]map[replicaKey]*replica
	known    int               // number of replicas
	lives    map[string]*lives // by series of llm_engine_restarts_total

	tallying sync.Mutex          // guards tallies: while the configuration changes, two collectors read a metrics page
	tallies  map[string]*tallies // by the address of the metrics page
}

// NewLedger returns a ledger that begins now.
func NewLedger(now time.Time) *Ledger {
	return &Ledger{since: now, replicas: map[groupKey]map[replicaKey]*replica{}, lives: map[string]*lives{}, tallies: map[string]*tallies{}}
}

// tallies holds the tallies of a metrics page, by their keys.
type tallies struct {
	seen time.Time
	of   map[string]*tallied
}

// tally adds a reading to the tallies of its metrics page. The ledger keeps the tallies when the configuration changes.
func (l *Ledger) tally(page string, now time.Time, p *plan, values []float64) []float64 {
	if l == nil {
		return p.tally(now, values, map[string]*tallied{})
	}
	l.tallying.Lock()
	defer l.tallying.Unlock()
	if l.tallies[page] == nil {
		maps.DeleteFunc(l.tallies, func(_ string, t *tallies) bool { return now.Sub(t.seen) > forgetAfter })
		l.tallies[page] = &tallies{of: map[string]*tallied{}}
	}
	l.tallies[page].seen = now
	return p.tally(now, values, l.tallies[page].of)
}

// groupKey identifies replicas that should run with the same settings.
type groupKey struct{ runtime, namespace, model, role string }

type replicaKey struct {
	groupKey
	pod, container, server string
}

type replica struct {
	seen    time.Time
	values  map[metrics.Setting]string
	changes map[metrics.Setting]Change
	recent  []time.Time // changes of the last hour
}

// Change is a setting that an engine runs with since At.
type Change struct {
	Setting  metrics.Setting
	Old, New string
	At       time.Time
}

// String describes the change and its time in UTC.
func (c Change) String() string {
	return string(c.Setting) + " " + c.Old + " -> " + c.New + " at " + c.At.UTC().Format("2006-01-02 15:04:05")
}

// observe records the values with which a replica runs, and returns the replica's last change of each setting. started
// is the replica's start time, or zero if the start time is unknown.
func (l *Ledger) observe(key replicaKey, values map[metrics.Setting]string, started, now time.Time) []Change {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	r := l.replicas[key.groupKey][key]
	if r == nil {
		l.forget(now)
		if l.known >= mostReplicas {
			return nil
		}
		r = &replica{values: map[metrics.Setting]string{}, changes: map[metrics.Setting]Change{}}
		if l.replicas[key.groupKey] == nil {
			l.replicas[key.groupKey] = map[replicaKey]*replica{}
		}
		l.replicas[key.groupKey][key] = r
		l.known++
		if l.isNew(started, now) {
			for setting, value := range values {
				if c, differs := l.others(key, setting, value); differs {
					c.At = now
					r.change(c)
				}
			}
		}
	}
	r.seen = now
	for setting, value := range values {
		old, known := r.values[setting]
		if known && same(setting, old, value) && !(setting == metrics.SettingImage && len(value) > len(old)) {
			continue // the first measured value stays, so that small steps cannot add up to a large drift
		}
		switch {
		case !known || same(setting, old, value):
		case grew(setting, old, value):
			delete(r.changes, setting)
		case !r.change(Change{setting, old, value, now}):
			continue
		}
		r.values[setting] = value
	}
	all := make([]Change, 0, len(r.changes))
	for _, setting := range metrics.Settings {
		if c, ok := r.changes[setting]; ok && !r.explains(c) {
			all = append(all, c)
		}
	}
	return all
}

// isNew reports whether a new entry is a replica that started after the ledger began. A replica that does not report
// its start may have existed before.
func (l *Ledger) isNew(started, now time.Time) bool {
	if !started.IsZero() {
		return started.After(l.since)
	}
	return now.Sub(l.since) > startsTogether
}

// others returns how the value of a new replica differs from the values of those replicas of its model that were seen
// last. If one of these replicas has the same value, the replica's last change also applies to the new replica.
func (l *Ledger) others(key replicaKey, setting metrics.Setting, value string) (c Change, differs bool) {
	var last time.Time
	for _, r := range l.replicas[key.groupKey] {
		if _, known := r.values[setting]; known && r.seen.After(last) {
			last = r.seen
		}
	}
	for _, r := range l.replicas[key.groupKey] {
		v, known := r.values[setting]
		switch {
		case !known || last.Sub(r.seen) > seenTogether || grew(setting, v, value):
		case same(setting, v, value):
			c, differs = r.changes[setting]
			return c, differs
		case c.Old == "" || v < c.Old: // the first in order, so that the result is always the same
			c, differs = Change{Setting: setting, Old: v, New: value}, true
		}
	}
	return c, differs
}

// explains reports whether a setting that changed at about the same time explains a measured change.
func (r *replica) explains(c Change) bool {
	for setting, other := range r.changes {
		if c.Setting.Measured() && setting.SizesKVCache() && other.At.Sub(c.At).Abs() <= changesTogether {
			return true
		}
	}
	return false
}

// change records a change, unless there were too many recently.
func (r *replica) change(c Change) bool {
	r.recent = slices.DeleteFunc(r.recent, func(t time.Time) bool { return c.At.Sub(t) > time.Hour })
	if len(r.recent) >= mostChanges {
		return false
	}
	r.recent, r.changes[c.Setting] = append(r.recent, c.At), c
	return true
}

// lives describes the processes that wrote a metrics page one after the other.
type lives struct {
	seen     time.Time
	start    float64            // start of the last process in unix time; NaN if it has reported none
	counters map[string]float64 // counters of the last process by series, including series that are no longer on the metrics page
	restarts float64

	read   time.Time
	inside map[string]float64 // requests that ran when all counters of the process were last read, by series of RequestsLost
	whole  time.Time          // time of that reading
	lost   map[string]float64
}

// lived records what a reading of a metrics page shows about its process, and returns how often the process has
// restarted. Without a start time, a process is new if any counter has fallen. That counter may reappear long after the
// restart. Requests that ran inside a process are lost with the process. If the new process started well before the
// last reading, no request is lost, because two processes then share the address.
func (l *Ledger) lived(series string, start float64, counters iter.Seq2[string, float64], inside map[string]float64, now time.Time) float64 {
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.lives[series]
	if p == nil {
		l.forget(now)
		p = &lives{start: math.NaN(), counters: map[string]float64{}, lost: map[string]float64{}}
		l.lives[series] = p
	}
	restarted := false
	if math.IsNaN(start) || math.IsNaN(p.start) {
		for name, v := range counters {
			restarted = restarted || v < p.counters[name]
		}
	} else {
		restarted = start != p.start
	}
	if restarted {
		if math.IsNaN(start) || start > float64(p.read.Add(-startsTogether).Unix()) {
			for name, n := range p.inside {
				p.lost[name] += n
			}
		}
		p.restarts, p.start = p.restarts+1, math.NaN()
	}
	p.holds(counters, inside, restarted, now)
	if restarted || len(p.counters) > mostCounters {
		clear(p.counters)
	}
	if p.seen = now; !math.IsNaN(start) {
		p.start = start
	}
	maps.Insert(p.counters, counters)
	return p.restarts
}

// holds records how many requests run inside the process. For a while, it ignores a metrics page that lacks counters of
// the process, because such a page may come from the next process.
func (p *lives) holds(counters iter.Seq2[string, float64], inside map[string]float64, restarted bool, now time.Time) {
	present := 0
	for name := range counters {
		if _, known := p.counters[name]; known {
			present++
		}
	}
	if p.read = now; restarted || present == len(p.counters) || now.Sub(p.whole) > believed {
		p.inside, p.whole = inside, now
	}
	for name := range inside {
		p.lost[name] += 0
	}
	if len(p.lost) > len(inside)+formerModels {
		maps.DeleteFunc(p.lost, func(name string, _ float64) bool { _, here := inside[name]; return !here })
	}
}

// lost returns how many requests were lost with the processes at a metrics endpoint, by series of RequestsLost.
func (l *Ledger) lost(series string) map[string]float64 {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.lives[series]; p != nil {
		return maps.Clone(p.lost)
	}
	return nil
}

// restarts returns how often the process at a metrics endpoint has restarted by the last reading. Without a reading, known is false.
func (l *Ledger) restarts(series string, now time.Time) (n float64, known bool) {
	if l == nil {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.lives[series]
	if p == nil {
		return 0, false
	}
	p.seen = now
	return p.restarts, true
}

// forget drops the replicas and metrics endpoints that were last seen long ago.
func (l *Ledger) forget(now time.Time) {
	if now.Sub(l.swept) < time.Minute {
		return
	}
	maps.DeleteFunc(l.lives, func(_ string, p *lives) bool { return now.Sub(p.seen) > forgetAfter })
	l.swept, l.known = now, 0
	for group, replicas := range l.replicas {
		maps.DeleteFunc(replicas, func(_ replicaKey, r *replica) bool { return now.Sub(r.seen) > forgetAfter })
		if l.known += len(replicas); len(replicas) == 0 {
			delete(l.replicas, group)
		}
	}
}

// same reports whether two values of a setting mean the same.
func same(setting metrics.Setting, a, b string) bool {
	if setting == metrics.SettingImage { // the image's digest appears once the container runs
		nameA, digestA, _ := strings.Cut(a, "@")
		nameB, digestB, _ := strings.Cut(b, "@")
		return nameA == nameB && (digestA == digestB || digestA == "" || digestB == "")
	}
	if a == b || !setting.Measured() {
		return a == b
	}
	x, y, numbers := measured(a, b)
	return numbers && math.Abs(x-y) <= measuredApart*max(x, y)
}

// grew reports whether a measured value has grown by more than the difference between equal engines. More room for KV
// cache is a change that nobody has to undo.
func grew(setting metrics.Setting, old, now string) bool {
	x, y, numbers := measured(old, now)
	return setting.Measured() && numbers && y > x && !same(setting, old, now)
}

func measured(a, b string) (x, y float64, numbers bool) {
	x, errX := strconv.ParseFloat(a, 64)
	y, errY := strconv.ParseFloat(b, 64)
	return x, y, errX == nil && errY == nil
}
