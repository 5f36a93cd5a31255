package scale

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// host is the address on which all programs listen.
const host = "127.0.0.1"

// A program is a running process of a store.
type program struct {
	name    string
	address string // of its HTTP server
	dir     string // folder in which it runs and keeps its data
	process *exec.Cmd
	ended   chan struct{}
}

// start runs a program in a folder of its own. The folder also holds the program's log.
func start(t *testing.T, name, address, file string, args ...string) *program {
	t.Helper()
	p := &program{name: name, address: address, dir: filepath.Join(root(t), name), ended: make(chan struct{})}
	p.process = exec.Command(file, args...)
	if err := os.MkdirAll(p.dir, 0o755); err != nil {
		t.Fatal(err)
	}
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	p.process.Dir, p.process.Stdout, p.process.Stderr = p.dir, log, log
	if err := p.process.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { _ = p.process.Wait(); close(p.ended) }()
	t.Cleanup(p.kill)
	return p
}

// root is the folder of all programs of a test; -keep names a folder that outlives the test.
func root(t *testing.T) string {
	if *keep != "" {
		return filepath.Join(*keep, t.Name())
	}
	if folders[t.Name()] == "" {
		folders[t.Name()] = t.TempDir()
	}
	return folders[t.Name()]
}

var folders = map[string]string{}

// kill ends a program at once, as when its node loses power.
func (p *program) kill() {
	_ = p.process.Process.Signal(syscall.SIGKILL)
	<-p.ended
}

// usage returns the cost of a program: seconds of CPU, and its peak resident memory.
func (p *program) usage() (cpu float64, peak string) {
	of := fmt.Sprintf("/proc/%d/", p.process.Process.Pid)
	stat, err := os.ReadFile(of + "stat")
	if err != nil {
		return 0, "it has ended"
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	for _, i := range []int{11, 12} { // utime and stime, counted from the state
		ticks, _ := strconv.ParseFloat(fields[i], 64)
		cpu += ticks / 100
	}
	status, _ := os.ReadFile(of + "status")
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			n, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(kb), " kB"))
			peak = fmt.Sprintf("%d MiB", n/1024)
		}
	}
	return cpu, peak
}

// ready waits until a path of a program answers 200.
func (p *program) ready(t *testing.T, path string) {
	t.Helper()
	var last string
	for until := time.Now().Add(2 * time.Minute); time.Now().Before(until); time.Sleep(200 * time.Millisecond) {
		select {
		case <-p.ended:
			t.Fatalf("%s has ended: %s", p.name, p.lastWords())
		default:
		}
		code, body := get("http://" + p.address + path)
		if code == http.StatusOK {
			return
		}
		last = body
	}
	t.Fatalf("%s is not ready: %s\n%s", p.name, last, p.lastWords())
}

func (p *program) lastWords() string {
	text, _ := os.ReadFile(filepath.Join(p.dir, "log"))
	return string(text[max(0, len(text)-2000):])
}

// sum adds up all series of a name that a program exports about itself.
func (p *program) sum(name string) (total float64) {
	_, body := get("http://" + p.address + "/metrics")
	for line := range strings.Lines(body) {
		rest, ok := strings.CutPrefix(line, name)
		if !ok || rest[0] != '{' && rest[0] != ' ' {
			continue
		}
		v, err := strconv.ParseFloat(strings.TrimSpace(line[strings.LastIndexByte(line, ' '):]), 64)
		if err == nil && v == v {
			total += v
		}
	}
	return total
}

func get(url string) (code int, body string) {
	client := http.Client{Timeout: 10 * time.Second}
	resp, err := client.Get(url)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(text)
}

// free returns addresses at which nothing listens. It keeps each address open until it has found all of them, so that
// they differ.
func free(t *testing.T, n int) []string {
	t.Helper()
	var all []string
	for range n {
		l, err := net.Listen("tcp", host+":0")
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		all = append(all, l.Addr().String())
	}
	return all
}

// port returns the port of an address.
func port(address string) string {
	_, p, _ := net.SplitHostPort(address)
	return p
}

// binary finds a program by the variable of its name in capitals, or in the path.
func binary(names ...string) (string, error) {
	variable := strings.ToUpper(names[0])
	if file := os.Getenv(variable); file != "" {
		return file, nil
	}
	for _, name := range names {
		if file, err := exec.LookPath(name); err == nil {
			return file, nil
		}
	}
	return "", fmt.Errorf("%s is not installed; the variable %s names it elsewhere", names[0], variable)
}

// mustBinary is binary for a program without which the test cannot run.
func mustBinary(t *testing.T, names ...string) string {
	t.Helper()
	file, err := binary(names...)
	if err != nil {
		t.Skip(err)
	}
	return file
}

// idleSeconds is the idle time of the machine's cores.
func idleSeconds() float64 {
	stat, err := os.ReadFile("/proc/stat")
	if err != nil {
		return 0
	}
	ticks, _ := strconv.ParseFloat(strings.Fields(string(stat))[4], 64)
	return ticks / 100
}
