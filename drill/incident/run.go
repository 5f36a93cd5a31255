package incident

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// ScrapeInterval is how often the simulated Prometheus scrapes the exporter.
const ScrapeInterval = 30 * time.Second

// defaultHistory is long enough to give the comparisons with the day before some data: they leave out its last hour.
const defaultHistory = 2 * time.Hour

// Rules returns the generated rule groups, as the drill loads them.
func Rules() []rules.Group { return rules.Groups(rules.Options{}) }

// Run plays an incident under rule groups and scores the outcome.
func Run(in Incident, groups []rules.Group, seed uint64) (Score, error) {
	t, err := Record(in, groups, seed)
	return t.Score, err
}

// Record does what Run does, and also records what the incident looked like.
func Record(in Incident, groups []rules.Group, seed uint64) (Trace, error) {
	p, err := newPlay(in, groups, seed)
	if err != nil {
		return Trace{}, err
	}
	defer p.sim.Close()
	if err := p.play(); err != nil {
		return Trace{}, err
	}
	p.trace.Incident, p.trace.Score = in, p.score(seed)
	for _, name := range slices.Sorted(maps.Keys(p.firing)) {
		p.trace.Bars = append(p.trace.Bars, firings(name, p.firing[name], rules.Interval)...)
	}
	return p.trace, nil
}

// play holds a running incident.
type play struct {
	incident Incident
	onset    time.Duration
	world    *World
	exporter *exporter
	sim      *rulesim.Sim
	am       *alertmanager
	firing   map[string][]time.Duration // since the onset, by alert
	trace    Trace
}

func newPlay(in Incident, groups []rules.Group, seed uint64) (*play, error) {
	p := &play{incident: in, onset: cmp.Or(in.History, defaultHistory), firing: map[string][]time.Duration{}}
	p.world = newWorld(in.Fleet, rulesim.Epoch, seed, newTruth(in.Fleet.objectives()))
	file, err := rules.Encode(rules.NewFile(groups, rules.Style{}))
	if err != nil {
		return nil, err
	}
	if p.exporter, err = newExporter(p.world); err != nil {
		return nil, err
	}
	if p.am, err = newAlertmanager(rules.Alerts(groups)); err != nil {
		return nil, err
	}
	p.sim, err = rulesim.New(file)
	return p, err
}

// remember stores what Prometheus recorded on the days before.
func (p *play) remember() error {
	g := p.world.Replicas[0].GPU
	link := labelled(metrics.RecordedLinkErrors, []string{"", Instance, g.uuid, strconv.Itoa(g.index), firstLink})
	hours := 24 * len(p.incident.Replays)
	for h := range hours {
		then := p.world.epoch.Add(time.Duration(h-hours) * time.Hour)
		if err := p.sim.Append(then, func(emit rulesim.Emit) { emit(link, p.incident.Replays[h/24]) }); err != nil {
			return err
		}
	}
	return nil
}

func (p *play) play() error {
	if err := p.remember(); err != nil {
		return err
	}
	faults := slices.Clone(p.incident.Faults)
	slices.SortStableFunc(faults, func(a, b Fault) int { return cmp.Compare(a.At, b.At) })
	for t := time.Duration(0); t <= p.onset+p.incident.Lasts; t += ScrapeInterval {
		for len(faults) > 0 && p.onset+faults[0].At < t {
			p.world.Advance(p.onset + faults[0].At)
			faults[0].Do(p.world)
			faults = faults[1:]
		}
		if err := p.step(t); err != nil {
			return err
		}
		if t%rules.Interval != 0 {
			continue
		}
		firing := p.sim.Firing()
		p.am.receive(at(t), firing)
		for _, a := range firing {
			p.firing[a.Name] = append(p.firing[a.Name], t-p.onset)
		}
		if t >= p.onset-15*time.Minute {
			if err := p.trace.sample(p, t); err != nil {
				return err
			}
		}
	}
	p.am.run(at(p.onset + p.incident.Lasts + rules.Interval))
	return nil
}

// step lets time pass until a scrape, scrapes, and evaluates the rules that are due.
func (p *play) step(t time.Duration) error {
	p.world.Advance(t)
	now := p.world.epoch.Add(t)
	var failed error
	if err := p.sim.Scrape(now, func(_ time.Time, emit rulesim.Emit) { failed = p.exporter.scrape(emit) }); err != nil || failed != nil {
		return cmp.Or(err, failed)
	}
	return p.sim.Eval(now)
}
