//go:build linux && cgo

package gpu

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

var soak = flag.Duration("soak", 0, "how long TestSoak scrapes eight GPUs every second; 0 skips it")

// TestSoak checks that the process stays small and does not grow while eight GPUs with 18 NVLinks each, all of
// whose values change, are read and scraped every second.
func TestSoak(t *testing.T) {
	if *soak == 0 {
		t.Skip("takes minutes: give -soak 10m")
	}
	const limit = 30 << 10 // KiB
	n := newNode(t, 8, fakeLibrary(t), fakenvml.H100)
	n.config.Interval, n.config.Slow = time.Second, 10*time.Second
	eighteenLinks(n)
	n.start()
	n.await(`llm_gpu_sm_active_ratio{gpu="7"`)
	var resident []int
	var longest time.Duration
	size := 0
	for end := time.Now().Add(*soak); time.Now().Before(end); time.Sleep(time.Second) {
		for gpu := range 8 {
			n.must(n.Set(strconv.Itoa(gpu), "temperature", 40+rand.IntN(40), "gpm.10", 100*rand.Float64(), "clock.sm", 1000+rand.IntN(900),
				"field.83", time.Now().UnixMilli(), "field.74", time.Now().UnixNano()))
		}
		n.must(n.XID(rand.IntN(8), 31))
		began := time.Now()
		size = len(n.page())
		longest = max(longest, time.Since(began))
		resident = append(resident, residentKiB(t, n.cmd.Process.Pid))
	}
	n.stop()
	half := len(resident) / 2
	first, second := slices.Max(resident[:half]), slices.Max(resident[half:])
	t.Logf("%s: resident %d KiB at first, at most %d KiB in the first half and %d KiB in the second; page of %d bytes, slowest %s",
		*soak, resident[0], first, second, size, longest)
	if second > limit {
		t.Errorf("resident memory is above %d KiB", limit)
	}
	if second > first+first/10 {
		t.Errorf("resident memory grows")
	}
}

// eighteenLinks gives the GPUs the NVLinks of a real H100.
func eighteenLinks(n *node) {
	values := []any{"field.91", "u32 18"}
	for link := 2; link < 18; link++ {
		for _, field := range []int{161, 162, 163} {
			values = append(values, fmt.Sprintf("field.%d.%d", field, link), 0)
		}
		values = append(values, fmt.Sprintf("field.165.%d", link), "u32 1")
	}
	n.must(n.Set(fakenvml.All, values...))
}

func residentKiB(t *testing.T, pid int) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "VmRSS:" {
			kib, err := strconv.Atoi(f[1])
			if err != nil {
				t.Fatal(err)
			}
			return kib
		}
	}
	t.Fatal("no VmRSS")
	return 0
}
