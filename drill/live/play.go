package live

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Play runs an incident in real time. The history before the incident is played in virtual time. The same world of
// replicas then continues with the machine's clock.
type Play struct {
	Incident incident.Incident

	past   *play.Play
	around surroundings
	mu     sync.Mutex       // guards the world
	faults []incident.Fault // faults that have not happened yet
	onset  time.Time        // zero: not set yet

	records int // number of records written to the kernel log so far
}

// surroundings has the addresses, files and settings that a Play uses.
type surroundings struct {
	// engines lists the addresses, host:port, that will serve the replicas' engines.
	engines []string
	// gpus is the node's NVML, with a GPU for each replica, or nil. kmsg is the file that replaces the kernel log. The
	// exporter reads XIDs from it.
	gpus *fakenvml.State
	kmsg string
	// prometheus is the address of the Prometheus that answers the queries of runbooks, or empty.
	prometheus string
	// style is the style of the rules.
	style rules.Style
}

// newPlay prepares an incident whose history ends now. The caller must close it.
func newPlay(in incident.Incident, seed uint64, around surroundings) (*Play, error) {
	past, err := play.New(in, play.Options{
		Seed: seed, Style: around.style, WithoutGPUs: around.gpus == nil, Epoch: time.Now().Add(-in.Onset()).Truncate(rules.Interval),
	})
	if err != nil {
		return nil, err
	}
	for i, r := range past.World.Replicas {
		r.Host = around.engines[i]
	}
	return &Play{Incident: in, past: past, around: around, faults: in.Ordered()}, nil
}

// Close removes the stored series.
func (p *Play) Close() error { return p.past.Close() }

// History plays the time up to the present, with the faults before the onset. It calls done with the share of the time
// that has been played.
func (p *Play) History(ctx context.Context, done func(share float64)) error {
	var before []incident.Fault
	for ; len(p.faults) > 0 && p.faults[0].At < 0; p.faults = p.faults[1:] {
		before = append(before, incident.Fault{At: p.past.Onset + p.faults[0].At, Do: p.faults[0].Do})
	}
	for from := time.Duration(0); ; { // time passes while this loop runs
		until := time.Since(p.past.World.At(0)).Truncate(play.ScrapeInterval)
		if until < from {
			return nil
		}
		if err := p.past.Through(ctx, from, until, before, func(at time.Duration) error {
			done(float64(at) / float64(until))
			return nil
		}); err != nil {
			return err
		}
		before = slices.DeleteFunc(before, func(f incident.Fault) bool { return f.At < until })
		from = until + play.ScrapeInterval
	}
}

// Begin sets the onset. No fault happens before this time.
func (p *Play) Begin(onset time.Time) { p.Change(func(*world.World) { p.onset = onset }) }

// Change changes the world now.
func (p *Play) Change(do func(*world.World)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	do(p.past.World)
}

// Heal prevents all further faults, and undoes past faults.
func (p *Play) Heal(undo func(*world.World)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = nil
	undo(p.past.World)
}

// Advance runs the world until a time. It also applies the faults that are due by then.
func (p *Play) Advance(now time.Time) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.past.World
	for !p.onset.IsZero() && len(p.faults) > 0 && !now.Before(p.onset.Add(p.faults[0].At)) {
		w.Advance(p.onset.Add(p.faults[0].At).Sub(w.At(0)))
		p.faults[0].Do(w)
		p.faults = p.faults[1:]
	}
	w.Advance(now.Sub(w.At(0)))
	if p.around.gpus == nil {
		return nil
	}
	for _, r := range w.Replicas {
		xids, err := r.GPU.Tell(p.around.gpus)
		if err != nil {
			return err
		}
		if err := p.log(r.GPU, xids); err != nil {
			return err
		}
	}
	return nil
}

// log writes XIDs to the kernel log as the driver does.
func (p *Play) log(g *world.GPU, xids []world.XID) error {
	if len(xids) == 0 {
		return nil
	}
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		return err
	}
	first, _, _ := strings.Cut(string(uptime), " ")
	seconds, err := strconv.ParseFloat(first, 64)
	if err != nil {
		return fmt.Errorf("/proc/uptime: %w", err)
	}
	f, err := os.OpenFile(p.around.kmsg, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	for _, x := range xids {
		p.records++
		if _, err := fmt.Fprintf(f, "4,%d,%.0f,-;NVRM: Xid (PCI:%s): %s\n", p.records, seconds*1e6, strings.TrimSuffix(world.PCI(g.Index),
			".0"), x); err != nil {
			return err
		}
	}
	return nil
}

// Engine returns the handler of a replica's HTTP server, or nil while the engine's port is closed.
func (p *Play) Engine(replica int) http.Handler {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.past.World.Replicas[replica].Page()
}

// Runtime returns the runtime of a replica.
func (p *Play) Runtime(replica int) metrics.Runtime { return p.past.World.Replicas[replica].Runtime }

// Objectives returns the objectives of the exporter's configuration.
func (p *Play) Objectives() []slo.Objective { return p.Incident.Fleet.Configured() }

// ExporterDown reports whether the world currently requires that the exporter is down.
func (p *Play) ExporterDown() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.past.World.ExporterDown
}

// Notify passes the alerts that fire at a time to Alertmanager, and returns Alertmanager's new messages.
func (p *Play) Notify(now time.Time, firing []rulesim.Alert) ([]play.Notification, error) {
	err := p.past.Alertmanager.Receive(now, firing)
	return p.past.Alertmanager.Take(), err
}

// Config returns the exporter's current configuration: the engines, their GPUs and the objectives.
func (p *Play) Config() ([]byte, error) {
	type target struct {
		URL    string            `yaml:"url"`
		Labels map[string]string `yaml:"labels"`
		GPUs   []string          `yaml:"gpus,omitempty"`
	}
	var config struct {
		Targets    []target           `yaml:"targets"`
		Objectives []slo.Objective    `yaml:"objectives,omitempty"`
		Price      map[string]float64 `yaml:"gpu_hour_price,omitempty"`
		Prometheus struct {
			URL string `yaml:"url"`
		} `yaml:"prometheus,omitempty"`
	}
	config.Prometheus.URL = p.around.prometheus
	if p.around.gpus != nil {
		config.Price = map[string]float64{"*": world.GPUHourPrice}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.past.World.Replicas {
		if r.Target() {
			config.Targets = append(config.Targets, target{URL: "http://" + r.Host, Labels: r.Labels()})
		}
		if !r.Gone && p.around.gpus != nil {
			t := &config.Targets[len(config.Targets)-1]
			t.GPUs = append(t.GPUs, strconv.Itoa(r.GPU.Index))
		}
	}
	if p.Incident.Fleet.Objectives != nil { // otherwise the exporter's defaults apply
		config.Objectives = p.Objectives()
	}
	return rules.Encode(config)
}
