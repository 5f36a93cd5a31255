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
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	kmsgRecordMax = 16 << 10         // larger than any record of the kernel log
	kmsgRetry     = time.Minute      // before the kernel log is opened again
	kmsgPoll      = time.Second / 10 // before a file that has ended is read again: a log in a plain file
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

// setKmsg publishes whether the kernel log is being read, and logs a change.
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
			"err", err, "remedy", "mount /dev/kmsg and grant CAP_SYSLOG, or set the kernel log to none")
	}
}

// kmsgReason is the value of the reason label for an error.
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

// followKmsg reads the kernel log until it fails or ctx ends.
func (c *Collector) followKmsg(ctx context.Context) error {
	boot, err := bootTime(c.options.ProcFS)
	if err != nil {
		return err
	}
	began := time.Now()
	f, err := os.Open(c.options.Kmsg)
	if err != nil {
		return err
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { f.Close() })()
	c.setKmsg(nil)
	r := bufio.NewReaderSize(f, kmsgRecordMax)
	for {
		line, err := r.ReadString('\n')
		if x, ok := parseKmsg(line); ok {
			c.onKmsg(x, boot.Add(x.sinceBoot), began)
		}
		switch {
		case err == nil:
		case errors.Is(err, syscall.EPIPE): // records were overwritten before they could be read
		case errors.Is(err, io.EOF):
			if !pause(ctx, nil, kmsgPoll) {
				return ctx.Err()
			}
		default:
			return err
		}
	}
}

// onKmsg takes down an XID of the kernel log. The log reaches back to before the exporter started:
// such an XID is not counted, or every restart of the exporter would count it again.
func (c *Collector) onKmsg(x kmsgXID, at, began time.Time) {
	switch {
	case at.Before(began):
		c.xids.remember(x.pci, x.code, at)
	case x.plain:
		c.xids.tell(xidPlain, x.pci, x.code, at)
	default:
		c.xids.tell(xidKmsg, x.pci, x.code, at)
	}
}

// bootTime is when the kernel's clock, that of kernel log records, was zero.
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

// kmsgXID is an XID in the kernel log.
type kmsgXID struct {
	sinceBoot time.Duration
	pci       string
	code      int
	plain     bool // told in words, without a number
}

// parseKmsg reads one record of /dev/kmsg: "6,1234,5678901,-;NVRM: Xid (PCI:0000:3b:00): 79, …".
// Only records of the kernel itself count; anybody may write others.
func parseKmsg(line string) (x kmsgXID, ok bool) {
	prefix, message, ok := strings.Cut(line, ";NVRM: ")
	if !ok {
		return x, false
	}
	numbers := strings.SplitN(prefix, ",", 4)
	if len(numbers) < 4 {
		return x, false
	}
	priority, err := strconv.ParseUint(numbers[0], 10, 32)
	if err != nil || priority >= 8 { // facility above 0: not the kernel
		return x, false
	}
	micros, err := strconv.ParseInt(numbers[2], 10, 53)
	if err != nil || micros < 0 {
		return x, false
	}
	x.sinceBoot = time.Duration(micros) * time.Microsecond

	if rest, found := strings.CutPrefix(message, "Xid ("); found {
		where, rest, _ := strings.Cut(rest, ")")
		address, _, _ := strings.Cut(where, " ") // "PCI:0000:3b:00 GPU-I:02" for a MIG instance
		rest, isXID := strings.CutPrefix(rest, ": ")
		digits, _, hasComma := strings.Cut(rest, ",")
		code, err := strconv.ParseUint(digits, 10, 16)
		x.code = int(code)
		x.pci, ok = canonicalPCI(address)
		return x, ok && isXID && hasComma && err == nil && code > 0
	}
	if rest, found := strings.CutPrefix(message, "GPU "); found && strings.Contains(rest, "GPU has fallen off the bus") {
		address, _, _ := strings.Cut(rest, ": ")
		x.code, x.plain = 79, true
		x.pci, ok = canonicalPCI(address)
		return x, ok
	}
	return x, false
}
