package discovery

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/internal/proc"
)

const (
	// processInterval is how often the processes are scanned.
	processInterval = 15 * time.Second
	// processMemory is how long a place stays after its process has ended. A dead engine thus appears as down, and an
	// engine that restarts keeps its series.
	processMemory = 15 * time.Minute
)

// Processes supplies places on a host without an orchestrator. The places are the listening ports of processes that use
// a GPU, and of their relatives. It finds only processes that the exporter may read: see package proc.
type Processes struct {
	procfs  string
	running func() []gpu.Process
	seen    map[string]sighting
}

type sighting struct {
	place Place
	last  time.Time
}

// NewProcesses returns the source. running returns the processes on the GPUs, as (*gpu.Collector).Processes does.
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

// look returns the current places, and places that disappeared recently.
func (p *Processes) look(running []gpu.Process, now time.Time) []Place {
	var listening map[netip.AddrPort][]string
	if len(running) > 0 { // without processes on GPUs, a scan of /proc is useless
		listening = listeners(proc.New(p.procfs), running)
	}
	for address, command := range listening {
		place := Place{Target: engine.TargetConfig{URL: "http://" + address.String()}}
		if sleeps(command) {
			place.LeaveAlone = sleepFlag + ": each scrape would keep the model loaded; name the engine with --engine.target to scrape it all the same"
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

// listeners returns the addresses on which processes on GPUs, or their relatives, listen. It also returns these
// processes' command lines. The addresses are those at which the exporter reaches the sockets. Ephemeral ports are left
// out, because nobody chose them. They serve internals of engines, such as NCCL, ZeroMQ or torch.distributed.
func listeners(scan *proc.Scan, running []gpu.Process) map[netip.AddrPort][]string {
	low, high := scan.EphemeralPorts()
	found := map[netip.AddrPort][]string{}
	seen := map[int]bool{}
	for _, p := range running {
		line := scan.Lineage(p.PID)
		if line == nil {
			continue // the process has ended, or is in another pid namespace
		}
		for _, pid := range scan.Family(line[len(line)-1]) {
			if seen[pid] {
				continue
			}
			seen[pid] = true
			for _, at := range scan.Listening(pid) {
				if address, ok := reach(scan, pid, at); ok && (at.Port() < low || at.Port() > high) {
					found[address] = scan.Command(pid)
				}
			}
		}
	}
	return found
}

// reach returns the address at which the exporter reaches a socket of another process.
func reach(scan *proc.Scan, pid int, at netip.AddrPort) (netip.AddrPort, bool) {
	here := scan.SharesNetwork(pid)
	address := at.Addr()
	switch {
	case !address.IsUnspecified():
		return at, here || !address.IsLoopback()
	case here:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port()), true
	}
	var others []netip.Addr
	for a := range scan.Addresses(pid) {
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			others = append(others, a)
		}
	}
	if others == nil {
		return at, false
	}
	first := slices.MinFunc(others, func(a, b netip.Addr) int { // IPv4 comes first
		return cmp.Or(cmp.Compare(a.BitLen(), b.BitLen()), a.Compare(b))
	})
	return netip.AddrPortFrom(first, at.Port()), true
}
