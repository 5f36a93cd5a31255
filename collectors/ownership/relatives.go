package ownership

import (
	"context"
	"net"
	"net/netip"
	"slices"
	"strconv"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
	"github.com/llm-node-exporter/llm-node-exporter/internal/proc"
)

// look holds one scan of the processes.
type look struct {
	*proc.Scan
	podLogs string                  // the kubelet's directory of pod logs
	pods    map[string]kube.PodName // by uid; nil before the first lookup
	serving map[int]int             // by target: a process that serves the target's metrics page

	computing map[int][]int // by target: the target's processes on GPUs
}

// home describes where a process runs. Outside containers, all fields are empty. Outside Kubernetes, the pod is empty.
type home struct {
	pod       kube.PodName
	container string // id of the container, or proc.UnknownContainer
}

// home finds where a process runs.
func (l *look) home(pid int) home {
	container, uid := l.Container(pid)
	if uid != "" && l.pods == nil {
		l.pods = kube.PodsByUID(l.podLogs)
	}
	return home{l.pods[uid], container}
}

// server identifies a process that listens at a target's metrics endpoint.
type server struct{ pid, target int }

// owner lists the targets to which a process on a GPU belongs. The list is empty if the process belongs to no engine.
type owner struct {
	targets []int
	known   bool
}

// owners finds, for each process on a GPU, the targets whose metrics page a relative of the process serves. If several
// relatives serve metrics pages, the closest relative counts, because engines of one launcher share only some
// ancestors. If two relatives are equally close, the owner stays unknown.
func (l *look) owners(ctx context.Context, targets []Target, running []gpu.Process) []owner {
	owners := make([]owner, len(running))
	known := make(map[int][]server) // by eldest relative
	l.serving, l.computing = make(map[int]int), make(map[int][]int)
	for i, p := range running {
		line := l.Lineage(p.PID)
		if line == nil {
			continue // the process has ended, or is in another pid namespace
		}
		eldest := line[len(line)-1]
		servers, ok := known[eldest]
		if !ok {
			servers = l.servers(ctx, targets, l.Family(eldest))
			known[eldest] = servers
		}
		var closest []server
		best := len(line)
		for _, s := range servers {
			d := distance(line, l.Lineage(s.pid))
			if d < best {
				best, closest = d, nil
			}
			if d == best {
				closest = append(closest, s)
			}
		}
		owners[i].targets = agreed(closest)
		owners[i].known = len(owners[i].targets) > 0 || len(closest) == 0
		for _, target := range owners[i].targets {
			l.computing[target] = append(l.computing[target], p.PID)
		}
		for _, s := range closest {
			if len(owners[i].targets) > 0 && (l.serving[s.target] == 0 || s.pid < l.serving[s.target]) {
				l.serving[s.target] = s.pid
			}
		}
	}
	return owners
}

// commands returns the command lines of a process and of those ancestors that belong to the same engine. The process comes first.
func (l *look) commands(pid int) (lines [][]string) {
	for _, p := range l.Lineage(pid) {
		if line := l.Command(p); len(line) > 0 {
			lines = append(lines, line)
		}
	}
	return lines
}

// agreed returns the targets of the servers, or nil if a server shares neither its process nor its target with the first.
// One process may serve several metrics pages, and several processes may serve the same metrics page.
func agreed(servers []server) (targets []int) {
	for _, s := range servers {
		if s.pid != servers[0].pid && s.target != servers[0].target {
			return nil
		}
		targets = append(targets, s.target)
	}
	return targets
}

// distance returns the number of steps from the first process of a line to the first ancestor that is on both lines.
func distance(line, other []int) int {
	for steps, pid := range line {
		if slices.Contains(other, pid) {
			return steps
		}
	}
	return len(line)
}

// servers finds the processes that listen at a target's metrics endpoint.
func (l *look) servers(ctx context.Context, targets []Target, pids []int) (found []server) {
	for _, pid := range pids {
		listening := l.Listening(pid)
		for i, t := range targets {
			if len(t.GPUs) > 0 {
				continue
			}
			for _, at := range listening {
				if l.isAt(ctx, t.Server, at, pid) {
					found = append(found, server{pid, i})
					break
				}
			}
		}
	}
	return found
}

// isAt reports whether a socket of a process serves the metrics endpoint at host:port.
func (l *look) isAt(ctx context.Context, page string, at netip.AddrPort, pid int) bool {
	host, port, err := net.SplitHostPort(page)
	if err != nil || port != strconv.Itoa(int(at.Port())) {
		return false
	}
	names := []string{host}
	if host == "localhost" {
		names = []string{"127.0.0.1", "::1"}
	} else if _, err := netip.ParseAddr(host); err != nil {
		if names, err = net.DefaultResolver.LookupHost(ctx, host); err != nil {
			return false
		}
	}
	for _, name := range names {
		address, err := netip.ParseAddr(name)
		if err != nil {
			continue
		}
		address = address.Unmap().WithZone("")
		if !at.Addr().IsUnspecified() && at.Addr() != address {
			continue
		}
		if address.IsLoopback() && l.SharesNetwork(pid) || !address.IsLoopback() && l.Addresses(pid)[address] {
			return true
		}
	}
	return false
}
