package gpu

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	kmsgRecordMax = 16 << 10         // larger than any kernel log record
	kmsgRetry     = time.Minute      // pause before the kernel log is opened again
	kmsgPoll      = time.Second / 10 // pause at the end of a log that is a plain file
)

var errKmsgOff = errors.New("switched off")

// watchKmsg follows the kernel log.
func (c *Collector) watchKmsg(ctx context.Context) {
	if c.options.Kmsg == "none" {
		c.setKmsg(errKmsgOff)
		return
	}
	for ctx.Err() == nil {
		err := c.followKmsg(ctx)
		if ctx.Err() == nil {
			c.setKmsg(err)
			pause(ctx, nil, kmsgRetry)
		}
	}
}

// KmsgRemedy says what to do while the kernel log cannot be read.
const KmsgRemedy = "mount /dev/kmsg and grant CAP_SYSLOG, in a container with privileged: true, or set the kernel log to none (--gpu.kmsg=none)"

// setKmsg publishes whether the kernel log is being read, and logs changes.
func (c *Collector) setKmsg(err error) {
	c.mu.Lock()
	changed := kmsgReason(err) != kmsgReason(c.kmsgErr)
	c.kmsgErr = err
	for _, id := range c.known {
		if err == nil {
			c.xids.expect(id.PCI, xidKmsg)
		}
	}
	c.mu.Unlock()
	switch {
	case !changed || errors.Is(err, errKmsgOff):
	case err == nil:
		c.options.Logger.Info("XIDs are read from the kernel log", "path", c.options.Kmsg)
	default:
		c.options.Logger.Warn("XIDs are not read from the kernel log; NVML does not tell of all of them",
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

// followKmsg reads the kernel log until it fails or ctx ends. A record is new if its number is above that of the last
// record present at the start, and its time is when it is read: the kernel's time stamps drift from every other
// clock, by seconds after minutes and by hours after weeks. For records present at the start, they serve as an
// approximation.
func (c *Collector) followKmsg(ctx context.Context) error {
	boot, err := bootTime(c.options.ProcFS)
	if err != nil {
		return err
	}
	began := time.Now()
	f, err := os.OpenFile(c.options.Kmsg, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	c.setKmsg(nil)
	r := bufio.NewReaderSize(present{raw}, kmsgRecordMax)
	for {
		line, err := r.ReadString('\n')
		if seq, ok := kmsgSeq(line); ok {
			isNew := c.kmsgFollowed && seq > c.kmsgLast
			if x, ok := parseKmsg(line); ok && isNew {
				c.onKmsg(x)
			} else if ok && !c.kmsgFollowed {
				c.xids.remember(x.pci, x.code, earlier(boot.Add(x.sinceBoot), began))
			}
			r, _ := parseRecord(line)
			if x, ok := parseSXID(r.message); ok && isNew {
				c.sxids.tell(x, time.Now())
			} else if ok && !c.kmsgFollowed {
				c.sxids.remember(x, earlier(boot.Add(r.sinceBoot), began))
			}
			c.kmsgLast = max(c.kmsgLast, seq)
		}
		switch {
		case err == nil:
		case errors.Is(err, syscall.EPIPE): // records were overwritten before they could be read
		case errors.Is(err, io.EOF):
			c.kmsgFollowed = true
			if !pause(ctx, nil, kmsgPoll) {
				return ctx.Err()
			}
		default:
			return err
		}
	}
}

// onKmsg records a new XID from the kernel log.
func (c *Collector) onKmsg(x kmsgXID) {
	channel := xidKmsg
	if x.plain {
		channel = xidPlain
	}
	c.xids.tell(channel, x.xid, time.Now())
}

// present reads what a log currently holds: io.EOF means that there is no more for now.
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

// bootTime returns when the kernel's clock, which stamps kernel log records, was zero.
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

// kmsgRecord holds a kernel log record that the kernel itself wrote; anybody may write others.
type kmsgRecord struct {
	seq       uint64
	sinceBoot time.Duration
	message   string
}

// kmsgXID holds an XID from the kernel log.
type kmsgXID struct {
	seq       uint64
	sinceBoot time.Duration
	xid
	plain bool // in words, without a number
}

// kmsgSeq returns the number of a record: "6,1234,5678901,-;…".
func kmsgSeq(line string) (uint64, bool) {
	numbers := strings.SplitN(line, ",", 3)
	if len(numbers) < 3 {
		return 0, false
	}
	seq, err := strconv.ParseUint(numbers[1], 10, 64)
	return seq, err == nil
}

// parseRecord reads one record of /dev/kmsg: "6,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, …".
func parseRecord(line string) (r kmsgRecord, ok bool) {
	prefix, message, _ := strings.Cut(line, ";")
	numbers := strings.SplitN(prefix, ",", 4)
	if len(numbers) < 4 {
		return r, false
	}
	priority, err := strconv.ParseUint(numbers[0], 10, 32)
	if err != nil || priority >= 8 { // facility above 0: not the kernel
		return r, false
	}
	seq, ok := kmsgSeq(line)
	micros, err := strconv.ParseInt(numbers[2], 10, 53)
	if !ok || err != nil || micros < 0 {
		return r, false
	}
	return kmsgRecord{seq, time.Duration(micros) * time.Microsecond, message}, true
}

// parseKmsg reads a record that reports an XID.
func parseKmsg(line string) (x kmsgXID, ok bool) {
	r, _ := parseRecord(line)
	message, ok := strings.CutPrefix(r.message, "NVRM: ")
	if !ok {
		return x, false
	}
	x.seq, x.sinceBoot = r.seq, r.sinceBoot
	if rest, found := strings.CutPrefix(message, "Xid ("); found {
		where, rest, _ := strings.Cut(rest, ")")
		address, part, _ := strings.Cut(where, " ") // "PCI:0000:3b:00 GPU-I:02" for a MIG instance
		if instance, isPart := strings.CutPrefix(part, "GPU-I:"); isPart {
			digits, _, _ := strings.Cut(instance, " ")
			n, err := strconv.ParseUint(digits, 10, 16)
			x.instance = known(strconv.FormatUint(n, 10), err)
		}
		rest, isXID := strings.CutPrefix(rest, ": ")
		digits, text, hasComma := strings.Cut(rest, ",")
		code, err := strconv.ParseUint(digits, 10, 16)
		x.code = int(code)
		x.nonfatal = saysNonfatal(x.code, text)
		x.pci, ok = CanonicalPCI(address)
		return x, ok && isXID && hasComma && err == nil && isXIDCode(x.code)
	}
	if rest, found := strings.CutPrefix(message, "GPU "); found && strings.Contains(rest, "GPU has fallen off the bus") {
		address, _, _ := strings.Cut(rest, ": ")
		x.code, x.plain = 79, true
		x.pci, ok = CanonicalPCI(address)
		return x, ok
	}
	return x, false
}

// nvlink5Fatal holds, by the prefix of a unit's name, the bits of its status that NVIDIA's catalogue answers with a reset
// (docs.nvidia.com/deploy/xid-errors, XID 144-150 decode). None: no status does. Units that are not listed say it in a word.
var nvlink5Fatal = []struct {
	unit string
	bits uint64
}{
	{"SAW_MVB", 0x12}, {"RLW_CTRL", 0}, {"RLW_REMAP", 0xc0}, {"RLW_RSPCOL", 0x2}, {"RLW_SRC_TRACK", 0x31}, {"RLW_TAGSTATE", 0x120002},
	{"TLW_", 0x4}, {"TREX", 0}, {"NVLPW", 0}, {"NETIR_BER_EVENT", 0},
}

// Reasons for which a link goes down on purpose, in bits 20 to 25 of the first number.
var nvlink5Down = []uint64{0x26, 0x28}

// saysNonfatal reports whether the GPU continues after an XID of NVLink 5: "RLW_REMAP Nonfatal XC0 i0 Link 13 (0x0409a082 0x00000080 …)".
// The numbers are the unit's information and its status. Without them, and for units whose status does not tell, the word counts.
func saysNonfatal(code int, text string) bool {
	words := strings.Fields(text)
	if !isNVLink5(code) || len(words) < 2 {
		return false
	}
	_, in, _ := strings.Cut(text, "(")
	numbers := strings.Fields(strings.TrimSuffix(in, ")"))
	if len(numbers) > 1 {
		info, errInfo := strconv.ParseUint(numbers[0], 0, 64)
		status, errStatus := strconv.ParseUint(strings.TrimSuffix(numbers[1], ")"), 0, 64)
		for _, u := range nvlink5Fatal {
			if errStatus == nil && strings.HasPrefix(words[0], u.unit) {
				return status&u.bits == 0
			}
		}
		switch {
		case errInfo == nil && strings.HasPrefix(words[0], "NETIR_LINK") && slices.Contains(nvlink5Down, info>>20&0x3f),
			errStatus == nil && strings.HasPrefix(words[0], "NETIR_MFDE") && status == 3:
			return true
		}
	}
	return words[1] == "Nonfatal"
}
