// Package proc reads processes from procfs: their ancestry, the addresses on which they listen, and the containers in
// which they run.
//
// The package reads only data that this process may read. Processes in other pid namespaces are absent. Reading the
// open files of other users' processes needs CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH. Root has these capabilities unless
// a container drops them. Unreadable counts the processes that could not be read.
package proc

import (
	"iter"
	"maps"
	"regexp"
	"strings"
	"time"

	"github.com/prometheus/procfs"
)

// Scan is a snapshot of all processes. Each scan reads all data again, because process ids are reused.
type Scan struct {
	root     string
	fs       procfs.FS
	parents  map[int]int
	children map[int][]int
	names    map[int]string
	networks map[string]*network
	closed   map[int]bool // processes whose open files cannot be read
}

// New scans the processes of the procfs mounted at root. Without a procfs, Scan has no processes.
func New(root string) *Scan {
	s := &Scan{
		root:     root,
		parents:  make(map[int]int),
		children: make(map[int][]int),
		names:    make(map[int]string),
		networks: make(map[string]*network),
		closed:   make(map[int]bool),
	}
	var err error
	if s.fs, err = procfs.NewFS(root); err != nil {
		return s
	}
	procs, err := s.fs.AllProcs()
	if err != nil {
		return s
	}
	for _, p := range procs {
		stat, err := p.Stat()
		if err != nil {
			continue // the process has ended
		}
		s.parents[p.PID], s.names[p.PID] = stat.PPID, stat.Comm
		s.children[stat.PPID] = append(s.children[stat.PPID], p.PID)
	}
	return s
}

// Processes yields the ids of all processes.
func (s *Scan) Processes() iter.Seq[int] { return maps.Keys(s.parents) }

// strangers matches programs that merely start other programs, such as shells and supervisors.
var strangers = regexp.MustCompile(`^(systemd.*|init|tini|dumb-init|docker-init|catatonit|s6-.*|runsv.*|supervisord|` +
	`containerd-shim.*|conmon|runc|crun|sh|bash|dash|ash|zsh|fish|busybox|sshd.*|login|sudo|su|cron|crond|tmux.*|screen|slurmstepd|raylet)$`)

// Lineage returns a process and its ancestors. The oldest comes last. It ends before the first ancestor that merely
// starts other processes, such as a shell or a supervisor. It is empty if the process does not exist.
func (s *Scan) Lineage(pid int) []int {
	if _, alive := s.parents[pid]; !alive {
		return nil
	}
	line := []int{pid}
	for {
		parent, known := s.parents[pid]
		if !known || parent <= 1 || strangers.MatchString(s.names[parent]) || len(line) > len(s.parents) {
			return line
		}
		line = append(line, parent)
		pid = parent
	}
}

// Family returns a process and all its descendants.
func (s *Scan) Family(pid int) []int {
	all := []int{pid}
	for i := 0; i < len(all) && len(all) <= len(s.parents); i++ { // reused ids may form a ring
		all = append(all, s.children[all[i]]...)
	}
	return all
}

// Command returns the command line of a process, or nil if it is unreadable.
func (s *Scan) Command(pid int) []string {
	p, err := s.fs.Proc(pid)
	if err != nil {
		return nil
	}
	line, _ := p.CmdLine()
	return line
}

// Waited returns how long each thread of a process was ready to run but waited for a CPU, since the thread's start.
// Time in which a CPU limit holds threads back counts as well. If the kernel does not count this time, the result is
// empty.
func (s *Scan) Waited(pid int) map[int]time.Duration {
	threads, err := s.fs.AllThreads(pid)
	if err != nil {
		return nil
	}
	waited := make(map[int]time.Duration, len(threads))
	for _, thread := range threads {
		if of, err := thread.Schedstat(); err == nil && of.RunningNanoseconds > 0 {
			waited[thread.PID] = time.Duration(of.WaitingNanoseconds)
		}
	}
	return waited
}

var (
	containerID = regexp.MustCompile(`[0-9a-f]{64}`)
	podUID      = regexp.MustCompile(`pod([0-9a-f]{8}(?:[-_][0-9a-f]{4}){3}[-_][0-9a-f]{12}|[0-9a-f]{32})`)
)

// UnknownContainer is the container of a process that procfs does not show. The process is in another pid namespace, or
// has ended.
const UnknownContainer = "unknown"

// Container reads from a process' cgroup in which container the process runs: the id of the container, and the uid of
// the pod. Outside containers, both are empty. Outside Kubernetes, the uid is empty.
func (s *Scan) Container(pid int) (id, pod string) {
	p, err := s.fs.Proc(pid)
	if err != nil {
		return UnknownContainer, ""
	}
	groups, err := p.Cgroups()
	if err != nil {
		return UnknownContainer, ""
	}
	for _, g := range groups {
		if m := podUID.FindStringSubmatch(g.Path); m != nil {
			pod = strings.ReplaceAll(m[1], "_", "-")
		}
		if ids := containerID.FindAllString(g.Path, -1); ids != nil {
			return ids[len(ids)-1], pod // the innermost container
		}
	}
	return "", pod
}
