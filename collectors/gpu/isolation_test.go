//go:build linux && cgo

package gpu

import (
	"fmt"
	"io"
	"math/bits"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

// upLine is the line that shows whether a GPU of the H100 description is up.
func upLine(gpu int, reason string) string {
	return fmt.Sprintf("llm_gpu_up{gpu=\"%d\",gpu_uuid=\"GPU-00000000-0000-4000-8000-00000000000%d\",reason=%q} %d",
		gpu, gpu, reason, map[bool]int{true: 1}[reason == ""])
}

// seriesOf returns the lines of one GPU, without their values.
func seriesOf(page string, gpu int) []string {
	var lines []string
	for line := range strings.Lines(page) {
		if strings.Contains(line, fmt.Sprintf("gpu=%q", strconv.Itoa(gpu))) && !strings.HasPrefix(line, "llm_gpu_xid") {
			lines = append(lines, line[:strings.LastIndex(line, " ")])
		}
	}
	return lines
}

// TestOneOfEightHangs checks that the metrics page answers within a second, names the GPU that hangs, withholds its
// series and has all series of the other seven. When the call returns, the GPU is back.
func TestOneOfEightHangs(t *testing.T) {
	t.Parallel()
	const stuck, gpus = 3, 8
	n := newNode(t, gpus, fakeLibrary(t), fakenvml.H100)
	n.config.Deadline = 4 * time.Second
	n.start()
	var all []string
	for gpu := range gpus {
		all = append(all, upLine(gpu, ""), fmt.Sprintf("llm_gpu_sm_active_ratio{gpu=\"%d\"", gpu))
	}
	before := n.await(all...)

	n.must(n.Hang(stuck, 10*time.Minute))
	n.await(upLine(stuck, "stuck"), fmt.Sprintf(`llm_gpu_collect_stuck{gpu="%d",gpu_uuid="GPU-00000000-0000-4000-8000-00000000000%d"} 1`,
		stuck, stuck))
	var page string // each metrics page comes in time and is complete, unless the machine is busy
	e2e.Until(t, "a page within a second, with all series of the other GPUs, while one hangs", func() bool {
		began := time.Now()
		page = n.page()
		if time.Since(began) >= time.Second {
			return false
		}
		for gpu := range gpus {
			now := seriesOf(page, gpu)
			if gpu != stuck && slices.ContainsFunc(seriesOf(before, gpu), func(s string) bool { return !slices.Contains(now, s) }) {
				return false
			}
		}
		return true
	})
	if left := seriesOf(page, stuck); len(left) != 6 {
		t.Errorf("want up, stuck, age, name and recovery action of the GPU that hangs, got\n%s", strings.Join(left, "\n"))
	}
	if detached := post(t, n.url+"/-/detach?ttl=1m"); detached != http.StatusServiceUnavailable {
		t.Errorf("detach while a GPU hangs: want 503, got %d", detached)
	}

	n.must(n.Unhang(stuck))
	back := n.await(all...)
	if !slices.Equal(seriesOf(before, stuck), seriesOf(back, stuck)) {
		t.Errorf("the GPU that hung is not back as it was")
	}
	n.stop()
}

// TestHalfAreOutOfOrder checks eight GPUs: two hang in the driver, one answers every call with an unknown error, one is
// lost and one is counted late. Each faulty GPU has its own reason, the others have all their series, a metrics page
// comes at once, and calls that hang do not pile up.
func TestHalfAreOutOfOrder(t *testing.T) {
	t.Parallel()
	const late, gpus = 7, 8
	n := newNode(t, gpus, fakeLibrary(t), fakenvml.H100)
	n.config.Deadline = 2 * time.Second
	n.must(n.Set(fakenvml.System, "gpus", late))
	n.start()
	up := func(gpu int, reason string) []string {
		missing := fmt.Sprintf("llm_gpu_missing{pci_bus_id=\"0000:1%d:00.0\"} %d", gpu, map[bool]int{false: 1}[reason == ""])
		if reason == "" {
			return []string{upLine(gpu, ""), missing, fmt.Sprintf("llm_gpu_sm_active_ratio{gpu=\"%d\"", gpu)}
		}
		return []string{upLine(gpu, reason), missing}
	}
	all := []string{fmt.Sprintf("llm_gpu_missing{pci_bus_id=\"0000:1%d:00.0\"} 1", late)}
	for gpu := range late {
		all = append(all, up(gpu, "")...)
	}
	before := n.await(all...)
	if left := seriesOf(before, late); len(left) != 0 {
		t.Errorf("a GPU that the driver does not count yet has\n%s", strings.Join(left, "\n"))
	}

	n.must(n.Hang(1, 10*time.Minute))
	n.must(n.Hang(4, 10*time.Minute))
	n.must(n.Fail(2, int(codeUnknown)))
	n.must(n.Lose(5))
	n.must(n.Set(fakenvml.System, "gpus", gpus))
	states := []string{1: "stuck", 2: "unknown", 4: "stuck", 5: "gpu_is_lost", late: ""}
	var want []string
	for gpu, reason := range states {
		want = append(want, up(gpu, reason)...)
	}
	page := n.await(want...)
	t.Logf("GPUs and what is said of them:\n%s", strings.Join(want, "\n"))
	for gpu, reason := range states {
		if reason == "" && gpu != late && !slices.Equal(seriesOf(before, gpu), seriesOf(page, gpu)) {
			t.Errorf("GPU %d lost or gained series", gpu)
		}
	}
	if first, last := len(seriesOf(page, 0)), len(seriesOf(page, late)); first != last {
		t.Errorf("the late GPU has %d series, the first one %d", last, first)
	}

	threads := func() int {
		names, err := os.ReadDir(fmt.Sprintf("/proc/%d/task", n.cmd.Process.Pid))
		n.must(err)
		return len(names)
	}
	client := http.Client{Timeout: 5 * time.Second}
	routinesBefore, threadsBefore := get[int](n, "/goroutines"), threads()
	for range 30 { // some 40 cycles
		response, err := client.Get(n.url + "/metrics")
		n.must(err)
		_, err = io.Copy(io.Discard, response.Body)
		n.must(err)
		response.Body.Close()
		time.Sleep(n.config.Interval)
	}
	const slack = 8 // connections, and threads that the runtime starts at any time
	if routines := get[int](n, "/goroutines"); routines > routinesBefore+slack {
		t.Errorf("%d goroutines have become %d", routinesBefore, routines)
	}
	if now := threads(); now > threadsBefore+slack {
		t.Errorf("%d threads have become %d", threadsBefore, now)
	}

	n.must(n.Unhang(1))
	n.must(n.Unhang(4))
	n.must(n.Unset("2", "lost"))
	n.must(n.Unset("5", "lost"))
	n.await(append(all[1:], up(late, "")...)...)
	n.stop()
}

// TestProcessUtilization checks the work of processes on a GPU that is shared by time. The driver has no sample of
// an idle process, and none at all if all were idle; it cannot distinguish the processes that MPS lists.
func TestProcessUtilization(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.must(n.Set("0", "processes", "101:1024:-1 102:1024:-1", "process_utilization", "101:0:64:21 102:0:30:9"))
	n.start()
	is := func(what string, want ...string) {
		t.Helper()
		n.awaitThat(what, func(page string) bool {
			var got []string
			for _, p := range get[[]Process](n, "/processes") {
				said := fmt.Sprintf("%d %.2f %.2f", p.PID, p.SM, p.MemoryBusy)
				if !p.UtilizationKnown {
					said = fmt.Sprintf("%d unknown", p.PID)
				}
				got = append(got, said)
			}
			return slices.Equal(got, want) && strings.Contains(page, upLine(0, ""))
		})
	}
	is("both busy", "101 0.64 0.21", "102 0.30 0.09")
	n.must(n.Set("0", "process_utilization", "101:0:70:20 555:0:5:5"))
	is("one idle, another one not listed", "101 0.70 0.20", "102 0.00 0.00")
	n.must(n.Set("0", "process_utilization", "101:1:70:20 102:1:99:99"))
	is("old samples only", "101 0.00 0.00", "102 0.00 0.00")
	n.must(n.Set("0", "process_utilization", "101:9000000000000000:55:5 102:9000000000000000:5:5"))
	is("stamps of the future", "101 unknown", "102 unknown")
	n.must(n.Set("0", "process_utilization", "101:0:70:20 102:0:9:9"))
	is("a clock that was set back", "101 0.70 0.20", "102 0.09 0.09")
	n.must(n.Set("0", "process_utilization", "101:0:4000000000:20"))
	is("a value that cannot be", "101 unknown", "102 0.00 0.00")
	n.must(n.Set("0", "process_utilization", "101:0:70:20 102:0:9:9", "process_starting", 1))
	is("a process that starts between two calls", "101 unknown", "102 unknown")
	n.must(n.Unset("0", "process_starting"))
	is("and goes on", "101 0.70 0.20", "102 0.09 0.09")
	n.must(n.Set("0", "mps_processes", "103:1024:-1 104:1024:-1", "process_utilization", "101:0:70:20 104:0:1:1"))
	is("clients of MPS", "101 0.70 0.20", "102 0.00 0.00", "103 unknown", "104 0.01 0.01")
	n.must(n.Set("0", "process_utilization", "!3"))
	is("not supported", "101 unknown", "102 unknown", "103 unknown", "104 unknown")
	n.stop()
}

// TestNoMemoryOfItsOwn checks that a GPU that shares the memory of the CPU has no total, no use and no bandwidth,
// however the driver reports that.
func TestNoMemoryOfItsOwn(t *testing.T) {
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100, fakenvml.GB10)
	n.must(n.Set("0", "memory", "0 0 0", "bar1", "0 0", "bus_width", 0, "clock_max.memory", 8533))
	n.start()
	page := n.await(upLine(0, ""),
		`llm_gpu_feature_supported{feature="memory",gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000",reason="not_supported"} 0`)
	for line := range strings.Lines(page) {
		if strings.HasPrefix(line, "llm_gpu_memory_") && !strings.HasPrefix(line, "llm_gpu_memory_busy_ratio") ||
			strings.HasPrefix(line, "llm_gpu_bar1") {
			t.Error(line)
		}
	}
	n.stop()
}

// TestHangWhileEnding checks that a GPU that hangs does not keep the process from ending.
func TestHangWhileEnding(t *testing.T) {
	t.Parallel()
	n := newNode(t, 2, fakeLibrary(t), fakenvml.H100)
	n.config.Deadline = time.Second
	n.start()
	n.await(upLine(0, ""), upLine(1, ""))
	n.must(n.Hang(1, time.Minute))
	n.await(upLine(1, "stuck"))
	n.stop()
}

// TestEventStorm checks that endless XIDs on one GPU are counted, and delay neither it nor the other.
func TestEventStorm(t *testing.T) {
	n := newNode(t, 2, fakeLibrary(t), fakenvml.H100).start()
	n.await(upLine(0, ""), upLine(1, ""))
	n.must(n.Set("0", "event_storm", 45))
	count := regexp.MustCompile(`llm_gpu_xid_errors_total\{gpu="0",.*source="nvml",xid="45"\} (\S+)`)
	n.awaitThat("10000 XIDs", func(page string) bool {
		m := count.FindStringSubmatch(page)
		if m == nil {
			return false
		}
		value, err := strconv.ParseFloat(m[1], 64)
		return err == nil && value > 10000
	})
	n.must(n.Set("0", "temperature", 77))
	n.must(n.Set("1", "temperature", 55))
	n.await(upLine(0, ""), upLine(1, ""),
		`llm_gpu_temperature_celsius{gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000",sensor="gpu"} 77`,
		`llm_gpu_temperature_celsius{gpu="1",gpu_uuid="GPU-00000000-0000-4000-8000-000000000001",sensor="gpu"} 55`)
	n.stop()
}

// TestXIDOnceFromTwoSources checks that an XID that NVML and the kernel log report is counted once. The first paging
// XID of a GPU raises a counter that existed at zero. XIDs from before the start have a time and no count.
func TestXIDOnceFromTwoSources(t *testing.T) {
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.config.Kmsg = filepath.Join(t.TempDir(), "kmsg")
	uptime, err := os.ReadFile("/proc/uptime")
	if err != nil {
		t.Skip(err)
	}
	seconds, _, _ := strings.Cut(string(uptime), ".")
	now, err := strconv.Atoi(seconds)
	if err != nil {
		t.Fatal(err)
	}
	seq := 0
	log := func(at int, message string) {
		f, err := os.OpenFile(n.config.Kmsg, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		seq++
		fmt.Fprintf(f, "3,%d,%d,-;%s\n", seq, at*1_000_000, message)
	}
	log(1, "NVRM: Xid (PCI:0000:10:00): 62, pid=1, old news")
	n.start()
	labels := `{gpu="0",gpu_instance_id=%q,gpu_uuid="GPU-00000000-0000-4000-8000-000000000000",pci_bus_id="0000:10:00.0",severity=%q,source=%q,xid=%q}`
	is := func(instance, severity, source, xid string, value int) string {
		return fmt.Sprintf("llm_gpu_xid_errors_total"+labels+" %d", instance, severity, source, xid, value)
	}
	count := func(source, xid string, value int) string { return is("", "page", source, xid, value) }
	n.await(count("kmsg", "79", 0), count("nvml", "79", 0), count("kmsg", "62", 0), count("nvml", "62", 0),
		`llm_gpu_xid_last_timestamp_seconds{gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000",pci_bus_id="0000:10:00.0",xid="62"}`)

	log(now+1000, "NVRM: Xid (PCI:0000:10:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.")
	log(now+1000, "NVRM: GPU 0000:10:00.0: GPU has fallen off the bus.")
	n.await(count("kmsg", "79", 1))
	log(now+2000, "NVRM: Xid (PCI:0000:77:00): 79, pid=1, a GPU that NVML does not know")
	n.await(`llm_gpu_xid_errors_total{gpu="",gpu_instance_id="",gpu_uuid="",pci_bus_id="0000:77:00.0",severity="page",source="kmsg",xid="79"} 1`, count("kmsg", "79", 1))
	n.must(n.XID(0, 999)) // no XID
	n.must(n.XID(0, 0))
	n.must(n.XID(0, 149)) // the kernel log shows whether the XID is fatal
	n.must(n.XID(0, 31, 3))
	n.must(n.XID(0, 94))
	page := n.await(is("", "ticket", "nvml", "94", 1), is("3", "app", "nvml", "31", 1), is("", "ticket", "nvml", "63", 0),
		count("nvml", "79", 0), count("nvml", "62", 0), count("kmsg", "62", 0))
	for _, none := range []string{`xid="999"`, `xid="0"`, count("nvml", "149", 1)} {
		if strings.Contains(page, none) {
			t.Errorf("the page has %s", none)
		}
	}
	log(now, "NVRM: Xid (PCI:0000:10:00): 149, NETIR_LINK_EVT Nonfatal XC0 i0 Link 14 (0x026001c6 0x00000000)")
	n.await(is("", "ticket", "kmsg", "149", 1), count("kmsg", "149", 0))
	log(now, "NVRM: Xid (PCI:0000:10:00 GPU-I:02): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 14 (0x004001c6 0x00000000)")
	n.await(is("2", "page", "kmsg", "149", 1), is("", "ticket", "kmsg", "149", 1))
	n.stop()
}

// TestDetach checks that NVML is released before the answer, stays released for the time given, and is used again
// after it or on demand.
func TestDetach(t *testing.T) {
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100).start()
	n.await(upLine(0, ""))
	if got := post(t, n.url+"/-/detach?ttl=1h"); got != http.StatusOK {
		t.Fatalf("detach: %d", got)
	}
	calls := filepath.Join(filepath.Dir(n.config.Library), "calls")
	if b, err := os.ReadFile(calls); err != nil || !strings.Contains(string(b), "nvmlShutdown\n") {
		t.Errorf("detach answered before NVML was shut down (%v)", err)
	}
	if page := n.page(); !strings.Contains(page, `llm_gpu_nvml_up{reason="detached"} 0`) || len(seriesOf(page, 0)) != 0 {
		t.Errorf("detached, but the page says\n%s", page)
	}
	post(t, n.url+"/attach")
	n.await(upLine(0, ""))
	if got := post(t, n.url+"/-/detach?ttl=100ms"); got != http.StatusOK {
		t.Fatalf("detach: %d", got)
	}
	n.await(upLine(0, ""))

	if got := post(t, n.url+"/-/detach?ttl=forever"); got != http.StatusBadRequest {
		t.Errorf("a bad ttl: want 400, got %d", got)
	}
	response, err := http.Get(n.url + "/-/detach")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("GET: want 405, got %s", response.Status)
	}
	n.stop()
}

func post(t *testing.T, url string) int {
	t.Helper()
	response, err := http.Post(url, "", nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	_, _ = io.Copy(io.Discard, response.Body)
	return response.StatusCode
}

// TestDriverComesAndGoes checks that the exporter waits for a driver, and reports when the driver is replaced.
func TestDriverComesAndGoes(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.must(n.Set(fakenvml.System, "init", "!9"))
	n.start()
	n.await(`llm_gpu_nvml_up{reason="driver_not_loaded"} 0`)
	n.must(n.Unset(fakenvml.System, "init"))
	n.await(upLine(0, ""))
	n.replaceDriver()
	n.await(`llm_gpu_nvml_up{reason="lib_rm_version_mismatch"} 0`)
	n.stop()
	if said := strings.Count(n.stderr.String(), "NVML is down"); said != 2 {
		t.Errorf("want one record per change of state, got\n%s", n.stderr)
	}
}

// TestDriverReplaced checks that the process ends after the time given, because only a new one can load the new
// library. The metrics page ends with the process, so the test reads no metrics page once the driver is replaced.
func TestDriverReplaced(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.config.RestartAfterTime = time.Millisecond
	n.start()
	n.await(upLine(0, ""))
	n.replaceDriver()
	n.ends("lib_rm_version_mismatch")
}

// replaceDriver makes every call fail as it does once the installed driver differs from the loaded library.
func (n *node) replaceDriver() {
	n.t.Helper()
	n.must(n.Set(fakenvml.System, "init", "!18"))
	n.must(n.Set("0", "lost", 18))
}

// ends waits until the collector gives up, and requires that its last message names the reason.
func (n *node) ends(reason string) {
	n.t.Helper()
	select {
	case err := <-n.done:
		if err == nil || n.cmd.ProcessState.ExitCode() != 3 || !strings.Contains(n.stderr.String(), reason) {
			n.t.Errorf("want Run to return an error that names %s, got %v\n%s", reason, err, n.stderr)
		}
	case <-e2e.TooLate(n.t):
		n.t.Errorf("the process still runs\n%s", n.stderr)
	}
}

// TestProcesses checks that the processes are the ones that NVML lists, with memory only where it is known.
func TestProcesses(t *testing.T) {
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.must(n.Set("0", "processes", "101:1024:-1 102:-1:-1 0:5:-1", "mps_processes", "101:1024:-1 103:2048:-1", "process_utilization", "!3"))
	n.start()
	n.await(`llm_gpu_processes{gpu="0",gpu_instance_id="",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000"} 3`)
	got := get[[]Process](n, "/processes")
	gpu := Identity{UUID: "GPU-00000000-0000-4000-8000-000000000000", Index: "0", Minor: "0", PCI: "0000:10:00.0"}
	want := []Process{{PID: 101, GPU: gpu, Memory: 1024, MemoryKnown: true}, {PID: 102, GPU: gpu}, {
		PID: 103, GPU: gpu, Memory: 2048,
		MemoryKnown: true,
	}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	n.stop()
}

// TestInstances checks that the MIG devices are known with their GPU and its minor number, even while it is lost.
func TestInstances(t *testing.T) {
	n := newNode(t, 2, fakeLibrary(t), fakenvml.H100, fakenvml.MIG)
	n.must(n.Set("0", "minor", 3))
	n.start()
	n.await(`llm_gpu_mig_info{`, `llm_gpu_up{gpu="1"`)
	gpu := Identity{UUID: "GPU-00000000-0000-4000-8000-000000000000", Index: "0", Minor: "3", PCI: "0000:10:00.0"}
	want := []Instance{
		{gpu, "1", "MIG-00000000-0000-5000-8000-000000000001"},
		{gpu, "1", "MIG-00000000-0000-5000-8000-000000000002"},
		{gpu, "2", "MIG-00000000-0000-5000-8000-000000000004"},
	}
	if got := get[[]Instance](n, "/instances"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	n.must(n.Lose(0))
	n.await(`llm_gpu_up{gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000",reason="gpu_is_lost"} 0`)
	if got := get[[]Instance](n, "/instances"); !slices.Equal(got, want) {
		t.Errorf("of a lost GPU: got %v, want %v", got, want)
	}
	n.stop()
}

// TestNoCallWithoutItsSymbol checks that a function that the library lacks is never called, whichever it is. Every
// function that is used has a number. For each binary digit, one library lacks the functions that have it, and
// another one the functions without it. So for any two functions there is a library that has the first and lacks
// the second. A guard that checks the wrong function then ends the process.
func TestNoCallWithoutItsSymbol(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a dozen libraries")
	}
	used := make(map[string]bool)
	note := func(n *node) {
		calls, err := os.ReadFile(filepath.Join(filepath.Dir(n.config.Library), "calls"))
		if err != nil {
			t.Fatal(err)
		}
		for function := range strings.FieldsSeq(string(calls)) {
			used[function] = true
		}
	}
	// run demands only that the collector survives; what is left of the metrics page differs.
	run := func(t *testing.T, without ...string) *node {
		n := newNode(t, 2, fakeLibrary(t, without...), fakenvml.H100, fakenvml.MIG)
		n.must(n.Set("1", "fans", 1, "fan.0", 30))
		n.start()
		for _, gpu := range []string{"0", "1"} {
			n.awaitThat("GPU "+gpu, func(page string) bool { return strings.Contains(page, `llm_gpu_up{gpu="`+gpu) })
		}
		time.Sleep(500 * time.Millisecond) // a few more cycles; the test is sound without them
		n.stop()
		return n
	}
	note(run(t))
	note(run(t, oldDriver...))
	var functions []string
	for function := range used {
		if function != "nvmlInit_v2" && function != "nvmlShutdown" {
			functions = append(functions, function)
		}
	}
	slices.Sort(functions)
	if len(functions) < 40 {
		t.Fatalf("only %d functions are used: %v", len(functions), functions)
	}
	libraries := [][]string{functions} // and a library without any function
	for digit := range bits.Len(uint(len(functions))) {
		for value := range 2 {
			var without []string
			for i, function := range functions {
				vital := strings.Contains(function, "Handle") || strings.Contains(function, "Count_v2") ||
					strings.HasSuffix(function, "GetUUID") || strings.HasSuffix(function, "FieldValues")
				if (i+1)>>digit&1 == value && !vital {
					without = append(without, function)
				}
			}
			libraries = append(libraries, without)
		}
	}
	for i, without := range libraries {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			run(t, without...)
		})
	}
}
