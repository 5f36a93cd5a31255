package ownership

import (
	"cmp"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
)

// Socket describes where a process that belongs to a GPU listens.
type Socket struct {
	// Address is where the exporter reaches it.
	Address netip.AddrPort
	// Command is the command line of the listening process.
	Command []string
}

// Listening finds the sockets on which the processes that run on GPUs, or their relatives, listen. Ephemeral ports
// (net.ipv4.ip_local_port_range) are left out: nobody chose them, so they serve an engine's internals, such as NCCL,
// ZeroMQ or torch.distributed.
func Listening(procfs string, running []gpu.Process) []Socket {
	l := newLook(procfs)
	low, high := l.ephemeral()
	found := map[netip.AddrPort]Socket{}
	seen := map[int]bool{}
	for _, p := range running {
		if _, alive := l.parents[p.PID]; !alive {
			continue
		}
		line := l.lineage(p.PID)
		for _, pid := range l.family(line[len(line)-1]) {
			if seen[pid] {
				continue
			}
			seen[pid] = true
			n, open := l.network(pid), l.sockets(pid)
			for inode, at := range n.listening {
				if address, ok := l.reach(at, n, pid); ok && open[inode] && (at.Port() < low || at.Port() > high) {
					found[address] = Socket{address, l.command(pid)}
				}
			}
		}
	}
	var all []Socket
	for _, s := range found {
		all = append(all, s)
	}
	slices.SortFunc(all, func(a, b Socket) int { return a.Address.Compare(b.Address) })
	return all
}

// reach returns the address at which the exporter reaches a socket of another process.
func (l *look) reach(at netip.AddrPort, n *network, pid int) (netip.AddrPort, bool) {
	here := l.namespace(pid) == l.namespace(0)
	address := at.Addr()
	switch {
	case !address.IsUnspecified():
		return at, here || !address.IsLoopback()
	case here:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), at.Port()), true
	}
	var others []netip.Addr
	for a := range n.addresses {
		if !a.IsLoopback() && !a.IsLinkLocalUnicast() {
			others = append(others, a)
		}
	}
	if others == nil {
		return at, false
	}
	first := slices.MinFunc(others, func(a, b netip.Addr) int { // IPv4 first
		return cmp.Or(cmp.Compare(a.BitLen(), b.BitLen()), a.Compare(b))
	})
	return netip.AddrPortFrom(first, at.Port()), true
}

// ephemeral returns the range of ports that the kernel assigns.
func (l *look) ephemeral() (low, high uint16) {
	text, _ := os.ReadFile(filepath.Join(l.root, "sys/net/ipv4/ip_local_port_range"))
	fields := strings.Fields(string(text))
	if len(fields) != 2 {
		return 32768, 60999 // the kernel's default
	}
	from, _ := strconv.ParseUint(fields[0], 10, 16)
	to, _ := strconv.ParseUint(fields[1], 10, 16)
	return uint16(from), uint16(to)
}

func (l *look) command(pid int) []string {
	p, err := l.fs.Proc(pid)
	if err != nil {
		return nil
	}
	line, _ := p.CmdLine()
	return line
}
