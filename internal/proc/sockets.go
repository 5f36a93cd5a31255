package proc

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// These are states of the kernel's include/net/tcp_states.h.
const (
	tcpEstablished = "01"
	tcpListen      = "0A"
)

// network has the addresses and the listening sockets of a network namespace.
type network struct {
	addresses map[netip.Addr]bool
	listening map[string]netip.AddrPort // by socket inode
}

// Listening returns the addresses at which a process listens for TCP connections, in no particular order. A socket
// belongs to each process that has opened it.
func (s *Scan) Listening(pid int) (all []netip.AddrPort) {
	open := s.sockets(pid)
	for inode, at := range s.network(pid).listening {
		if open[inode] {
			all = append(all, at)
		}
	}
	return all
}

// Addresses returns the addresses of the network namespace of a process.
func (s *Scan) Addresses(pid int) map[netip.Addr]bool { return s.network(pid).addresses }

// SharesNetwork reports whether a process is in the network namespace of the exporter.
func (s *Scan) SharesNetwork(pid int) bool {
	return s.namespace(strconv.Itoa(pid)) == s.namespace("self")
}

// Unreadable returns the number of processes whose open files Listening could not read.
func (s *Scan) Unreadable() int { return len(s.closed) }

// EphemeralPorts returns the range from which the kernel assigns ports. Both ends are included.
func (s *Scan) EphemeralPorts() (low, high uint16) {
	limits, err := s.fs.SysctlInts("net.ipv4.ip_local_port_range")
	if err != nil || len(limits) != 2 {
		return 32768, 60999 // the kernel's default
	}
	return uint16(limits[0]), uint16(limits[1])
}

// namespace returns the identity of a process' network namespace. The result is empty if the link in procfs is
// unreadable.
func (s *Scan) namespace(pid string) string {
	name, _ := os.Readlink(filepath.Join(s.root, pid, "ns/net"))
	return name
}

// sockets returns the inodes of the open sockets of a process.
func (s *Scan) sockets(pid int) map[string]bool {
	inodes := make(map[string]bool)
	p, err := s.fs.Proc(pid)
	if err != nil {
		return inodes
	}
	files, err := p.FileDescriptorTargets()
	seen := slices.ContainsFunc(files, func(f string) bool { return f != "" })
	if errors.Is(err, fs.ErrPermission) || len(files) > 0 && !seen {
		s.closed[pid] = true
	}
	for _, f := range files {
		if inode, ok := strings.CutPrefix(f, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	return inodes
}

// network reads the network namespace of a process. It reads each namespace once.
func (s *Scan) network(pid int) *network {
	id := strconv.Itoa(pid)
	name := s.namespace(id)
	if n := s.networks[name]; n != nil {
		return n
	}
	dir := filepath.Join(s.root, id)
	n := &network{addresses: localAddresses(dir), listening: make(map[string]netip.AddrPort)}
	s.networks[name] = n
	_ = eachSocket(dir, tcpListen, func(inode string, at netip.AddrPort) { n.listening[inode] = at })
	return n
}

// Connections returns the number of established connections at a port of the network namespace of a process. Every
// process in the same pid namespace may read the files under /proc/PID/net.
func Connections(root string, pid int, port uint16) (n int, err error) {
	err = eachSocket(filepath.Join(root, strconv.Itoa(pid)), tcpEstablished, func(_ string, at netip.AddrPort) {
		if at.Port() == port {
			n++
		}
	})
	return n, err
}

// eachSocket calls each for all sockets of a network namespace that are in the given state. Without IPv6, the file tcp6
// does not exist.
func eachSocket(dir, state string, each func(inode string, at netip.AddrPort)) (err error) {
	for _, file := range []string{"net/tcp6", "net/tcp"} {
		var text []byte
		text, err = os.ReadFile(filepath.Join(dir, file))
		for line := range strings.Lines(string(text)) {
			if inode, at, ok := parseSocket(line, state); ok {
				each(inode, at)
			}
		}
	}
	return err
}

// parseSocket reads a line of /proc/PID/net/tcp or tcp6, if the line describes a socket in the given state: "sl
// local_address rem_address st tx_queue:rx_queue tr:tm->when retrnsmt uid timeout inode …". An address is printed as
// 32-bit words in the byte order of the machine. The parser of package procfs is deprecated, and fails at the first
// unexpected line.
func parseSocket(line, state string) (inode string, at netip.AddrPort, ok bool) {
	fields := strings.Fields(line)
	if len(fields) < 10 || fields[3] != state {
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

// localAddresses returns the addresses of a network namespace, from /proc/PID/net.
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
