// Package play plays incidents in virtual time. It uses the exporter's own code, Prometheus' storage and rule manager
// with the generated rules, and Alertmanager's routing and inhibition.
package play

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// ScrapeInterval is the time between two scrapes of the exporter by the simulated Prometheus.
const ScrapeInterval = 30 * time.Second

// Rules returns the generated rule groups.
func Rules() []rules.Group { return rules.Groups(rules.Options{}) }

// Options describe how to play an incident.
type Options struct {
	// Seed determines the arrivals.
	Seed uint64
	// Groups holds the rules. Default: Rules().
	Groups []rules.Group
	// Style is the style of the rules and the messages. If it has no addresses, dashboards are at grafana.example and
	// runbooks at llm.example.
	Style rules.Style
	// Relabel changes the labels of each scraped series. If it returns no labels, the series is dropped. nil changes
	// nothing.
	Relabel func(labels.Labels) labels.Labels
	// DCGM makes the exporter read GPUs from a dcgm-exporter. It lists the fields in addition to dcgm-exporter's default
	// list. nil makes the exporter read NVML.
	DCGM []string
	// WithoutGPUs leaves out the series of GPUs.
	WithoutGPUs bool
	// Epoch is when the history begins. Default: rulesim.Epoch.
	Epoch time.Time
	// Scrape is the time between two scrapes. Default: ScrapeInterval.
	Scrape time.Duration
	// Native makes Prometheus convert the histograms of a scrape to native histograms. Default: never.
	Native func(at time.Time) bool
}

// Play is a running incident.
type Play struct {
	Incident incident.Incident
	Seed     uint64
	// Onset is when the incident begins, since the epoch of the world.
	Onset        time.Duration
	World        *world.World
	RuleFile     []byte
	Prometheus   *rulesim.Sim
	Alertmanager *Alertmanager
	// Evaluations has the alerts that fired, and Sent has their notifications. Both are in order of time.
	Evaluations []Evaluation
	Sent        []Notification

	exporter *exporter
	scrape   time.Duration
}

// Evaluation lists the alerts that fire after an evaluation of the rules.
type Evaluation struct {
	At     time.Duration // since the onset
	Firing []rulesim.Alert
}

// New prepares an incident. The caller must close it.
func New(in incident.Incident, o Options) (*Play, error) {
	if o.Groups == nil {
		o.Groups = Rules()
	}
	if o.Epoch.IsZero() {
		o.Epoch = rulesim.Epoch
	}
	if o.Style.DashboardURL == "" {
		o.Style.DashboardURL = "https://grafana.example/d/{uid}"
	}
	if o.Style.RunbookURL == "" {
		o.Style.RunbookURL = "https://llm.example/runbooks/{alert}{labels}"
	}
	p := &Play{
		Incident: in, Seed: o.Seed, Onset: in.Onset(), scrape: cmp.Or(o.Scrape, ScrapeInterval),
		World: world.New(in.Fleet, o.Epoch, o.Seed),
	}
	var err error
	if p.RuleFile, err = rules.Encode(rules.NewFile(o.Groups, o.Style)); err != nil {
		return nil, err
	}
	if p.exporter, err = newExporter(p.World, o); err != nil {
		return nil, err
	}
	if p.Alertmanager, err = NewAlertmanager(rules.Alerts(o.Groups), o.Style); err != nil {
		return nil, err
	}
	if p.Prometheus, err = rulesim.New(p.RuleFile); err != nil {
		return nil, err
	}
	p.Prometheus.Native = o.Native
	if err := p.remember(); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// Close removes the stored series.
func (p *Play) Close() error { return p.Prometheus.Close() }

// remember stores the NVLink errors that Prometheus recorded on the days before the history.
func (p *Play) remember() error {
	g := p.World.Replicas[0].GPU
	link := labelled(metrics.RecordedLinkErrors, []string{"", Instance, g.UUID, strconv.Itoa(g.Index), world.FirstLink})
	hours := 24 * len(p.Incident.Replays)
	for h := range hours {
		then := p.World.At(time.Duration(h-hours) * time.Hour)
		if err := p.Prometheus.Append(then, func(emit rulesim.Emit) { emit(link, p.Incident.Replays[h/24]) }); err != nil {
			return err
		}
	}
	return nil
}

// Run plays an incident from its history to its end. The caller must close it.
func Run(in incident.Incident, o Options) (*Play, error) {
	return RunUntil(context.Background(), in, o)
}

// RunUntil is like Run, but fails when ctx is done.
func RunUntil(ctx context.Context, in incident.Incident, o Options) (*Play, error) {
	p, err := New(in, o)
	if err != nil {
		return nil, err
	}
	if err := p.run(ctx); err != nil {
		return nil, errors.Join(err, p.Close())
	}
	return p, nil
}

// run plays the history and the incident.
func (p *Play) run(ctx context.Context) error {
	p.World.Seen = p.Incident.Lived
	end := p.Onset + p.Incident.Lasts
	if err := p.Through(ctx, p.Incident.Lived, end, p.Faults(), nil); err != nil {
		return err
	}
	if err := p.Alertmanager.Run(p.World.At(end + rules.Interval)); err != nil {
		return err
	}
	p.Sent = p.Alertmanager.Take()
	return nil
}

// Faults lists the faults of the incident with their times since the epoch of the world.
func (p *Play) Faults() []incident.Fault {
	all := p.Incident.Ordered()
	for i := range all {
		all[i].At += p.Onset
	}
	return all
}

// Through plays from one time to another. Both times count from the epoch of the world, like the times of the faults.
// After each scrape, it calls the function each, unless this function is nil. Through evaluates the rules for many
// scrapes at once, which is many times faster than Step.
func (p *Play) Through(ctx context.Context, from, until time.Duration, faults []incident.Fault, each func(at time.Duration) error) error {
	firing := map[time.Time][]rulesim.Alert{}
	p.Prometheus.OnAlert = func(at time.Time, a rulesim.Alert) { firing[at] = append(firing[at], a) }
	defer func() { p.Prometheus.OnAlert = nil }()
	var ticks []time.Time
	every := min(p.scrape, ScrapeInterval)
	for t := from; t <= until; t += every {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for len(faults) > 0 && faults[0].At < t {
			p.World.Advance(max(0, faults[0].At))
			faults[0].Do(p.World)
			faults = faults[1:]
		}
		if err := p.read(t); err != nil {
			return err
		}
		if each != nil {
			if err := each(t); err != nil {
				return err
			}
		}
		if ticks = append(ticks, p.World.At(t)); len(ticks) < atOnce && t+every <= until {
			continue
		}
		if err := p.Prometheus.EvalAll(ticks); err != nil {
			return err
		}
		for _, at := range ticks {
			t := at.Sub(p.World.At(0))
			if t%rules.Interval != 0 {
				continue
			}
			if err := p.Alertmanager.Receive(at, firing[at]); err != nil {
				return err
			}
			p.Evaluations = append(p.Evaluations, Evaluation{t - p.Onset, firing[at]})
		}
		ticks = nil
		clear(firing)
	}
	return nil
}

// atOnce is the number of scrapes after which Through evaluates the rules.
const atOnce = 240

// Step advances the world to a time. It scrapes if a scrape is due, and evaluates the rules that are due.
func (p *Play) Step(t time.Duration) error {
	if err := p.read(t); err != nil {
		return err
	}
	return p.Prometheus.Eval(p.World.At(t))
}

// read advances the world to a time, and scrapes if a scrape is due.
func (p *Play) read(t time.Duration) error {
	p.World.Advance(t)
	if t%p.scrape != 0 {
		return nil
	}
	var failed error
	err := p.Prometheus.Scrape(p.World.At(t), func(_ time.Time, emit rulesim.Emit) { failed = p.exporter.scrape(emit) })
	return cmp.Or(err, failed)
}

// Also adds the GPU series of a real exporter's metrics page to every later scrape, if the world lacks them. Values
// that depend on the load follow the world's load. All other values stay as on the page.
func (p *Play) Also(page string) {
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "llm_gpu_") {
			p.exporter.also = append(p.exporter.also, strings.TrimSpace(line))
		}
	}
}

// Firing returns when each alert fired. Times count from the onset.
func (p *Play) Firing() map[string][]time.Duration {
	firing := map[string][]time.Duration{}
	for _, e := range p.Evaluations {
		for _, a := range e.Firing {
			firing[a.Name] = append(firing[a.Name], e.At)
		}
	}
	return firing
}
