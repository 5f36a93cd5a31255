package discovery

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/ownership"
)

const (
	// processInterval is how often the processes are scanned.
	processInterval = 15 * time.Second
	// processMemory is how long a place is kept after its process has ended: a dead engine should be seen to be down,
	// and one that restarts keeps its series.
	processMemory = 15 * time.Minute
)

// Processes supplies places on a host without an orchestrator: the ports on which the processes that hold a GPU, or
// their relatives, listen. It sees what this process may see: see package ownership.
type Processes struct {
	procfs  string
	running func() []gpu.Process
	seen    map[string]sighting
}

type sighting struct {
	place Place
	last  time.Time
}

// NewProcesses returns the source. running returns the processes on the GPUs: (*gpu.Collector).Processes.
func NewProcesses(procfs string, running func() []gpu.Process) *Processes {
	return &Processes{procfs: procfs, running: running, seen: map[string]sighting{}}
}

// Name implements Source.
func (p *Processes) Name() string { return "processes" }

// Run implements Source.
func (p *Processes) Run(ctx context.Context, report func([]Place, error)) {
	for {
		wait := processInterval
		running := p.running()
		if running == nil {
			wait = time.Second // the GPUs have not answered yet
		}
		report(p.look(running, time.Now()), nil)
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
	}
}

// look returns the current places, and those that disappeared recently.
func (p *Processes) look(running []gpu.Process, now time.Time) []Place {
	var sockets []ownership.Socket
	if len(running) > 0 { // otherwise /proc need not be scanned
		sockets = ownership.Listening(p.procfs, running)
	}
	for _, s := range sockets {
		place := Place{Target: engine.TargetConfig{URL: "http://" + s.Address.String()}}
		if sleeps(s.Command) {
			place.LeaveAlone = sleepFlag + ": each scrape would keep the model loaded; name it with --engine.target to scrape it all the same"
		}
		p.seen[place.key()] = sighting{place, now}
	}
	var all []Place
	for key, s := range p.seen {
		if now.Sub(s.last) > processMemory {
			delete(p.seen, key)
			continue
		}
		all = append(all, s.place)
	}
	slices.SortFunc(all, func(a, b Place) int { return cmp.Compare(a.key(), b.key()) })
	return all
}
