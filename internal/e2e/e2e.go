// Package e2e helps tests that run programs as separate processes.
package e2e

import (
	"bytes"
	"errors"
	"flag"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Program returns the path of a program that the distribution's package pkg installs. If the program is missing, the
// test is skipped, except in CI.
func Program(t *testing.T, name, pkg string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		missing := "no " + name + " on PATH: apt-get install " + pkg
		if os.Getenv("CI") != "" {
			t.Fatal(missing)
		}
		t.Skip(missing)
	}
	return path
}

// Build builds the command in a folder of this module, and returns the path of the binary. With -short, it skips the
// test.
func Build(t *testing.T, command string) string {
	t.Helper()
	notShort(t)
	binary := filepath.Join(t.TempDir(), filepath.Base(command)+"-under-test")
	if out, err := exec.Command("go", "build", "-o", binary, command).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return binary
}

// Start runs a program until the test ends. With -short, it skips the test. If the test fails, Start prints the end of
// the program's log.
func Start(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	notShort(t)
	var log Buffer
	process := exec.Command(name, args...)
	process.Stdout, process.Stderr = &log, &log
	process.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM} // for a test that is killed
	if err := process.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = process.Process.Signal(os.Interrupt)
		err := process.Wait()
		var exit *exec.ExitError
		if t.Failed() || err != nil && !errors.As(err, &exit) {
			text := log.String()
			t.Logf("%s: %v\n%s", name, err, text[max(0, len(text)-4000):])
		}
	})
	return process
}

// Address assigns ports below the ephemeral ports. Any connection could take an ephemeral port before the program under
// test listens on it.
const firstPort, ports = 20000, 12000

var handedOut atomic.Int64

// Address returns a free address of this machine, as host:port. It never returns the same address twice in a process.
func Address(t *testing.T) string {
	t.Helper()
	begin := os.Getpid() * 61 // different from the ports of tests in other processes
	for range ports {
		port := firstPort + (begin+int(handedOut.Add(1)))%ports
		if l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			defer l.Close()
			return l.Addr().String()
		}
	}
	t.Fatalf("no port from %d to %d is free", firstPort, firstPort+ports-1)
	return ""
}

// Answers waits until a URL answers with 200.
func Answers(t *testing.T, url string) {
	t.Helper()
	Until(t, url+" answers", func() bool {
		resp, err := http.Get(url)
		if err != nil {
			return false
		}
		resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
}

// Until waits until the condition is true. Only the test's deadline limits the time, because on a busy machine, the
// wait may be long.
func Until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for late := TooLate(t); !holds(); {
		select {
		case <-late:
			t.Fatalf("not within the time of the test: %s", what)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// TooLate returns a channel that receives a time shortly before the deadline of the test (go test -timeout). The test
// can then end its programs and report what it waited for.
func TooLate(t testing.TB) <-chan time.Time {
	whole, ok := t.(*testing.T)
	if !ok {
		return nil
	}
	deadline, ok := whole.Deadline()
	if !ok {
		return nil
	}
	left := time.Until(deadline)
	return time.After(left - min(left/10, 30*time.Second))
}

// Buffer is a bytes.Buffer that is safe for concurrent reads and writes.
type Buffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write implements io.Writer.
func (s *Buffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *Buffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

// Main is the TestMain of packages with slow tests. Short explains slow.
func Main(m *testing.M, slow string) {
	Short(slow)
	os.Exit(m.Run())
}

// Short makes -short leave out the tests whose names match a regular expression, such as plays and soak tests. The
// tests that -skip names are also left out.
func Short(slow string) {
	flag.Parse()
	if testing.Short() {
		if skipped := flag.Lookup("test.skip").Value.String(); skipped != "" {
			slow += "|" + skipped
		}
		if err := flag.Set("test.skip", slow); err != nil {
			panic(err)
		}
	}
}

// notShort skips a test that runs real programs, if -short is set.
func notShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("runs real programs: leave out -short")
	}
}
