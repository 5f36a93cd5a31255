package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// process is a program under measurement.
type process struct {
	*exec.Cmd
	address string
	began   time.Time
}

// start starts a program and waits until it serves path.
func start(address, path string, command ...string) (*process, error) {
	p := &process{exec.Command(command[0], command[1:]...), address, time.Now()}
	var log bytes.Buffer
	p.Stderr = &log
	if err := p.Start(); err != nil {
		return nil, err
	}
	var err error
	for range 200 {
		if err = read(context.Background(), "http://"+address+path, &bytes.Buffer{}); err == nil {
			return p, nil
		}
		time.Sleep(100 * time.Millisecond)
	}
	p.stop()
	return nil, fmt.Errorf("%s does not answer: %w\n%s", command[0], err, log.String())
}

func (p *process) stop() {
	_ = p.Process.Kill()
	_ = p.Wait()
}

// cpu returns the CPU time that the process has used, with a resolution of nanoseconds.
func (p *process) cpu() (time.Duration, error) {
	var t unix.Timespec
	clock := int32(^p.Process.Pid<<3 | 2) // CPUCLOCK_SCHED of clock_getcpuclockid(3)
	err := unix.ClockGettime(clock, &t)
	return time.Duration(t.Nano()), err
}

// memory returns the resident and the anonymous memory of the process, in bytes.
func (p *process) memory() (resident, anonymous int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.Process.Pid))
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) == 3 {
			kilobytes, _ := strconv.ParseInt(f[1], 10, 64)
			switch f[0] {
			case "VmRSS:":
				resident = kilobytes << 10
			case "RssAnon:":
				anonymous = kilobytes << 10
			}
		}
	}
	return resident, anonymous, err
}

// allocations returns how many objects the process has allocated, according to its own metrics page.
func (p *process) allocations(path string) (float64, error) {
	var page bytes.Buffer
	if err := read(context.Background(), "http://"+p.address+path, &page); err != nil {
		return 0, err
	}
	for lines := bufio.NewScanner(&page); lines.Scan(); {
		if value, ok := strings.CutPrefix(lines.Text(), "go_memstats_mallocs_total "); ok {
			return strconv.ParseFloat(value, 64)
		}
	}
	return 0, fmt.Errorf("no go_memstats_mallocs_total at %s%s", p.address, path)
}

// read reads a metrics page into a buffer, and replaces the buffer's content. It requests gzip, as Prometheus does.
func read(ctx context.Context, url string, into *bytes.Buffer) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	into.Reset()
	if _, err = into.ReadFrom(response.Body); err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", url, response.Status)
	}
	return err
}

// freeAddress returns an unused address of this machine.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// firstLine returns the first line that a command prints.
func firstLine(command ...string) string {
	out, _ := exec.Command(command[0], command[1:]...).CombinedOutput()
	line, _, _ := strings.Cut(string(out), "\n")
	return strings.TrimSpace(line)
}

// discard accepts remote-write requests, and discards their samples.
func discard(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusNoContent)
}
