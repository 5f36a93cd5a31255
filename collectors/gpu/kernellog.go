package gpu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

const (
	kmsgRecordMax = 16 << 10         // larger than any kernel log record
	kmsgRetry     = time.Minute      // pause before the kernel log is opened again
	kmsgPoll      = time.Second / 10 // pause at the end of a log that is a plain file
)

var errKmsgOff = errors.New("switched off")

// mostGPUs limits the number of GPUs in a KernelLog. The largest nodes have 16 GPUs.
const mostGPUs = 128

// KernelLog follows the kernel log while Run runs, and counts the XIDs and SXids in it. Any goroutine may call its
// methods.
type KernelLog struct {
	logger       *slog.Logger
	path, procfs string
	xids         *xidLedger
	sxids        *sxidLedger

	mu    sync.Mutex
	err   error               // why the log is not read
	known map[string]Identity // GPUs by PCI address

	// Only Run uses these fields:
	last     uint64 // number of the last record
	followed bool   // whether all records of the start have been read
}

// NewKernelLog returns a KernelLog for a node whose GPUs are not read through NVML. A Collector creates its own KernelLog.
func NewKernelLog(o Options) *KernelLog { return newKernelLog(o.withDefaults()) }

func newKernelLog(o Options) *KernelLog {
	k := &KernelLog{
		logger: o.Logger, path: o.Kmsg, procfs: o.ProcFS,
		xids:  newXIDLedger(2*time.Second + o.longest()),
		sxids: newSXIDLedger(),
		err:   errStarting,
		known: make(map[string]Identity),
	}
	if o.Kmsg == "none" {
		k.err = errKmsgOff
	}
	return k
}

// Run follows the kernel log until ctx ends. Call it only once.
func (k *KernelLog) Run(ctx context.Context) {
	if k.path == "none" {
		return
	}
	for ctx.Err() == nil {
		err := k.follow(ctx)
		if ctx.Err() == nil {
			k.set(err)
			pause(ctx, nil, kmsgRetry)
		}
	}
}

// Up reports whether the kernel log is being read.
func (k *KernelLog) Up() bool { return k.state() == nil }

// state returns why the kernel log is not read. It returns nil while the log is read.
func (k *KernelLog) state() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.err
}

// Know sets the GPUs and their PCI addresses. Earlier addresses stay known, so that a failed GPU keeps its name.
func (k *KernelLog) Know(gpus ...Identity) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, id := range gpus {
		_, again := k.known[id.PCI]
		if id.PCI == "" || !again && len(k.known) >= mostGPUs {
			continue
		}
		k.known[id.PCI] = id
		if k.err == nil {
			k.xids.expect(id.PCI, xidKmsg)
		}
	}
}

// Collect serves the log's XIDs, with their catalogue, and its SXids. Unknown GPUs have only their PCI address. If
// counts is false, Collect serves only the times of XIDs.
func (k *KernelLog) Collect(ch chan<- prometheus.Metric, counts bool) {
	k.mu.Lock()
	gpus := maps.Clone(k.known)
	k.mu.Unlock()
	k.xids.collect(ch, gpus, counts)
	k.sxids.collect(ch)
}

// KmsgRemedy describes what to do while the kernel log cannot be read.
const KmsgRemedy = "mount /dev/kmsg and grant CAP_SYSLOG, in a container with privileged: true, or set the kernel log to none " +
	"(--gpu.kmsg=none)"

// set publishes whether the kernel log is being read, and logs changes.
func (k *KernelLog) set(err error) {
	k.mu.Lock()
	changed := kmsgReason(err) != kmsgReason(k.err)
	k.err = err
	for address := range k.known {
		if err == nil {
			k.xids.expect(address, xidKmsg)
		}
	}
	k.mu.Unlock()
	switch {
	case !changed:
	case err == nil:
		k.logger.Info("XIDs are read from the kernel log", "path", k.path)
	default:
		k.logger.Warn("XIDs are not read from the kernel log; no other source reports all of them",
			"err", err, "remedy", KmsgRemedy)
	}
}

// kmsgReason returns the value of the reason label for an error.
func kmsgReason(err error) string {
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errStarting):
		return "starting"
	case errors.Is(err, errKmsgOff):
		return "switched_off"
	case errors.Is(err, fs.ErrNotExist):
		return "not_found"
	case errors.Is(err, fs.ErrPermission):
		return "no_permission"
	default:
		return "error"
	}
}

// follow reads the kernel log until it fails or ctx ends. New records have a higher number than the last record at the
// start. Their time is the time of reading, because the kernel's time stamps drift by seconds after minutes and by
// hours after weeks. For records that exist at the start, the time stamps are used as an approximation.
func (k *KernelLog) follow(ctx context.Context) error {
	boot, err := bootTime(k.procfs)
	if err != nil {
		return err
	}
	began := time.Now()
	f, err := os.OpenFile(k.path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	k.set(nil)
	r := bufio.NewReaderSize(present{raw}, kmsgRecordMax)
	for {
		line, err := r.ReadString('\n')
		if seq, ok := kmsgSeq(line); ok {
			isNew := k.followed && seq > k.last
			if x, ok := parseKmsg(line); ok && isNew {
				k.onXID(x)
			} else if ok && !k.followed {
				k.xids.remember(x.pci, x.code, earlier(boot.Add(x.sinceBoot), began))
			}
			r, _ := parseRecord(line)
			if x, ok := parseSXID(r.message); ok && isNew {
				k.sxids.tell(x, time.Now())
			} else if ok && !k.followed {
				k.sxids.remember(x, earlier(boot.Add(r.sinceBoot), began))
			}
			k.last = max(k.last, seq)
		}
		switch {
		case err == nil:
		case errors.Is(err, syscall.EPIPE): // records were overwritten before this reading
		case errors.Is(err, io.EOF):
			k.followed = true
			if !pause(ctx, nil, kmsgPoll) {
				return ctx.Err()
			}
		default:
			return err
		}
	}
}

// onXID records a new XID from the kernel log.
func (k *KernelLog) onXID(x kmsgXID) {
	channel := xidKmsg
	if x.plain {
		channel = xidPlain
	}
	k.xids.tell(channel, x.xid, time.Now())
}

// present reads the current content of a log. io.EOF means that there are no more records now.
type present struct{ syscall.RawConn }

func (p present) Read(b []byte) (n int, err error) {
	failed := p.RawConn.Read(func(fd uintptr) bool {
		n, err = syscall.Read(int(fd), b)
		return true
	})
	switch {
	case failed != nil:
		return 0, failed
	case err == syscall.EAGAIN, err == syscall.EINTR, err == nil && n == 0:
		return 0, io.EOF
	}
	return max(n, 0), err
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// bootTime returns the time at which the kernel's clock was zero. Kernel log records have the time of this clock.
func bootTime(procfs string) (time.Time, error) {
	file := filepath.Join(procfs, "uptime")
	b, err := os.ReadFile(file)
	if err != nil {
		return time.Time{}, err
	}
	first, _, _ := strings.Cut(string(b), " ")
	up, err := time.ParseDuration(first + "s")
	if err != nil {
		return time.Time{}, fmt.Errorf("%s: want seconds first, got %q", file, b)
	}
	return time.Now().Add(-up), nil
}
