package ownership

import (
	"bufio"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/procfs"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
)

const tcpListen = "0A" // TCP_LISTEN of the kernel's include/net/tcp_states.h

// look holds one scan of /proc. Everything is read anew each time, because process ids are reused.
type look struct {
	root     string
	podLogs  string             // where the kubelet keeps pod logs
	pods     map[string]podName // by uid; nil before the first lookup
	fs       procfs.FS
	parents  map[int]int
	children map[int][]int
	names    map[int]string
	networks map[string]*network
	closed   map[int]bool // processes whose open files cannot be read
}

// network holds the contents of a network namespace.
type network struct {
	addresses map[netip.Addr]bool
	listening map[string]netip.AddrPort // by socket inode
}

func newLook(root string) *look {
	l := &look{
		root:     root,
		parents:  make(map[int]int),
		children: make(map[int][]int),
		names:    make(map[int]string),
		networks: make(map[string]*network),
		closed:   make(map[int]bool),
	}
	var err error
	if l.fs, err = procfs.NewFS(root); err != nil {
		return l
	}
	procs, err := l.fs.AllProcs()
	if err != nil {
		return l
	}
	for _, p := range procs {
		stat, err := p.Stat()
		if err != nil {
			continue // it has ended
		}
		l.parents[p.PID], l.names[p.PID] = stat.PPID, stat.Comm
		l.children[stat.PPID] = append(l.children[stat.PPID], p.PID)
	}
	return l
}

// strangers matches processes that start other processes without being part of them.
var strangers = regexp.MustCompile(`^(systemd.*|init|tini|dumb-init|docker-init|catatonit|s6-.*|runsv.*|supervisord|` +
	`containerd-shim.*|conmon|runc|crun|sh|bash|dash|ash|zsh|fish|busybox|sshd.*|login|sudo|su|cron|crond|tmux.*|screen|slurmstepd|raylet)$`)

// lineage returns a process and its ancestors, up to the first stranger.
func (l *look) lineage(pid int) []int {
	line := []int{pid}
	for {
		parent, known := l.parents[pid]
		if !known || parent <= 1 || strangers.MatchString(l.names[parent]) || len(line) > len(l.parents) {
			return line
		}
		line = append(line, parent)
		pid = parent
	}
}

// family returns a process and all its descendants.
func (l *look) family(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all) && len(all) <= len(l.parents); i++ { // reused ids may form a ring
		all = append(all, l.children[all[i]]...)
	}
	return all
}

// server identifies a process that listens where a target's page is.
type server struct{ pid, target int }

// owners finds for each process on a GPU the targets whose page one of its relatives serves. Of several relatives the
// closest counts: engines started by the same launcher are told apart by the ancestor that they do not share. If two
// are equally close, the owner stays unknown.
func (l *look) owners(ctx context.Context, targets []Target, running []gpu.Process) [][]int {
	owners := make([][]int, len(running))
	known := make(map[int][]server) // by eldest relative
	for i, p := range running {
		if _, alive := l.parents[p.PID]; !alive {
			continue // it has ended, or lives in another pid namespace
		}
		line := l.lineage(p.PID)
		eldest := line[len(line)-1]
		servers, ok := known[eldest]
		if !ok {
			servers = l.servers(ctx, targets, l.family(eldest))
			known[eldest] = servers
		}
		var closest []server
		best := len(line)
		for _, s := range servers {
			d := distance(line, l.lineage(s.pid))
			if d < best {
				best, closest = d, nil
			}
			if d == best {
				closest = append(closest, s)
			}
		}
		owners[i] = agreed(closest)
	}
	return owners
}

// agreed returns the targets of servers that belong together: one process may serve several pages, and several
// processes may serve the same page.
func agreed(servers []server) (targets []int) {
	for _, s := range servers {
		if s.pid != servers[0].pid && s.target != servers[0].target {
			return nil
		}
		targets = append(targets, s.target)
	}
	return targets
}

// distance returns the number of steps up a line to the first ancestor that it shares with another line.
func distance(line, other []int) int {
	for steps, pid := range line {
		for _, o := range other {
			if o == pid {
				return steps
			}
		}
	}
	return len(line)
}

// servers finds the processes that listen where a target's page is.
func (l *look) servers(ctx context.Context, targets []Target, pids []int) (found []server) {
	for _, pid := range pids {
		n, open := l.network(pid), l.sockets(pid)
		for i, t := range targets {
			if len(t.GPUs) > 0 {
				continue
			}
			for inode, at := range n.listening {
				if open[inode] && l.isAt(ctx, t.Server, at, n, pid) {
					found = append(found, server{pid, i})
					break
				}
			}
		}
	}
	return found
}

// isAt reports whether a page at host:port is served by a socket of a process.
func (l *look) isAt(ctx context.Context, page string, at netip.AddrPort, n *network, pid int) bool {
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
		if address.IsLoopback() && l.namespace(pid) == l.namespace(0) || !address.IsLoopback() && n.addresses[address] {
			return true
		}
	}
	return false
}

// namespace identifies the network namespace of a process; for 0, that of the exporter.
func (l *look) namespace(pid int) string {
	who := "self"
	if pid != 0 {
		who = strconv.Itoa(pid)
	}
	name, _ := os.Readlink(filepath.Join(l.root, who, "ns/net"))
	return name
}

// sockets returns the inodes of the sockets that a process has open.
func (l *look) sockets(pid int) map[string]bool {
	inodes := make(map[string]bool)
	p, err := l.fs.Proc(pid)
	if err != nil {
		return inodes
	}
	files, err := p.FileDescriptorTargets()
	seen := slices.ContainsFunc(files, func(f string) bool { return f != "" })
	if errors.Is(err, fs.ErrPermission) || len(files) > 0 && !seen {
		l.closed[pid] = true
	}
	for _, f := range files {
		if inode, ok := strings.CutPrefix(f, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}

// network reads the network namespace of a process, each namespace once.
func (l *look) network(pid int) *network {
	name := l.namespace(pid)
	if n := l.networks[name]; n != nil {
		return n
	}
	dir := filepath.Join(l.root, strconv.Itoa(pid))
	n := &network{addresses: localAddresses(dir), listening: make(map[string]netip.AddrPort)}
	l.networks[name] = n
	for _, file := range []string{"net/tcp", "net/tcp6"} {
		text, _ := os.ReadFile(filepath.Join(dir, file))
		for line := range strings.Lines(string(text)) {
			if inode, at, ok := parseListening(line); ok {
				n.listening[inode] = at
			}
		}
	}
	return n
}

// parseListening reads a line of /proc/<pid>/net/tcp or tcp6 if it describes a listening socket: "sl local_address
// rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …". An address is printed as 32-bit words
// in the byte order of the machine.
func parseListening(line string) (inode string, at netip.AddrPort, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != tcpListen {
		return "", at, false
	}
	digits, portDigits, _ := strings.Cut(fields[1], ":")
	b, err := hex.DecodeString(digits)
	port, portErr := strconv.ParseUint(portDigits, 16, 16)
	if err != nil || portErr != nil || len(b)%4 != 0 {
		return "", at, false
	}
	for word := b; len(word) > 0; word = word[4:] {
		binary.NativeEndian.PutUint32(word, binary.BigEndian.Uint32(word))
	}
	address, ok := netip.AddrFromSlice(b)
	return fields[9], netip.AddrPortFrom(address.Unmap(), uint16(port)), ok
}

// localAddresses returns the addresses of a network namespace, as listed in /proc/<pid>/net.
func localAddresses(dir string) map[netip.Addr]bool {
	found := make(map[netip.Addr]bool)
	if f, err := os.Open(filepath.Join(dir, "net/fib_trie")); err == nil {
		defer f.Close()
		var last netip.Addr
		for s := bufio.NewScanner(f); s.Scan(); {
			line := strings.TrimSpace(s.Text())
			if leaf, ok := strings.CutPrefix(line, "|-- "); ok {
				last, _ = netip.ParseAddr(leaf)
			} else if strings.HasSuffix(line, "host LOCAL") && last.IsValid() {
				found[last] = true
			}
		}
	}
	text, _ := os.ReadFile(filepath.Join(dir, "net/if_inet6"))
	for line := range strings.Lines(string(text)) {
		digits, _, _ := strings.Cut(line, " ")
		if b, err := hex.DecodeString(digits); err == nil {
			if address, ok := netip.AddrFromSlice(b); ok {
				found[address] = true
			}
		}
	}
	return found
}

var (
	containerID = regexp.MustCompile(`[0-9a-f]{64}`)
	podUID      = regexp.MustCompile(`pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})`)
)

// home describes where a process runs. All fields are empty outside containers; the pod is empty outside Kubernetes.
type home struct {
	pod       podName
	container string // its id, or unknownContainer
}

// unknownContainer stands for the container of a process that /proc does not show: the process is in another pid
// namespace, or has ended.
const unknownContainer = "unknown"

// home finds where a process runs, from its cgroup.
func (l *look) home(pid int) (h home) {
	p, err := l.fs.Proc(pid)
	if err != nil {
		h.container = unknownContainer
		return h
	}
	groups, err := p.Cgroups()
	if err != nil {
		h.container = unknownContainer
	}
	for _, g := range groups {
		if m := podUID.FindStringSubmatch(g.Path); m != nil {
			h.pod = l.pod(strings.ReplaceAll(m[1], "_", "-"))
		}
		if ids := containerID.FindAllString(g.Path, -1); ids != nil {
			h.container = ids[len(ids)-1] // the innermost one
			return h
		}
	}
	return h
}

// pod returns the pod with a uid. The kubelet keeps its logs in a directory named <namespace>_<name>_<uid>.
func (l *look) pod(uid string) podName {
	if l.pods == nil {
		l.pods = make(map[string]podName)
		logs, _ := os.ReadDir(l.podLogs)
		for _, dir := range logs {
			if parts := strings.Split(dir.Name(), "_"); len(parts) == 3 {
				l.pods[parts[2]] = podName{label([]byte(parts[0])), label([]byte(parts[1]))}
			}
		}
	}
	return l.pods[uid]
}
