//go:build linux && cgo

package gpu

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

func TestOdometer(t *testing.T) {
	const g = 1 << 30
	for _, c := range []struct {
		name     string
		readings []uint64
		want     float64
	}{
		{"A counter that only rises is passed on.", []uint64{5, 7, 7, 40 * g}, 40 * g},
		{"Falling is a reset, from below 32 bits, too: FEC histories are cleared.", []uint64{3 * g, 7}, 3*g + 7},
		{"Two resets.", []uint64{3 * g, 1 * g, 0}, 4 * g},
		{"Falling from above 32 bits is a reset.", []uint64{5 * g, 2}, 5*g + 2},
	} {
		var o odometer
		for _, r := range c.readings {
			o.advance(r)
		}
		if o.total != c.want {
			t.Errorf("%s: got %v, want %v", c.name, o.total, c.want)
		}
	}
}

// TestNarrowOdometer checks that 32 bits are served if the link cannot wrap them unseen, that a late reading gives no
// distance, and that a counter beyond 32 bits has more bits.
func TestNarrowOdometer(t *testing.T) {
	const speed = 2e9 // bytes per second
	var o odometer
	for i, c := range []struct {
		raw   uint64
		after time.Duration
		ok    bool
		want  float64
	}{
		{1e9, time.Second, true, 1e9},
		{3e9, time.Second, true, 3e9},
		{4e9, 3 * time.Second, false, 3e9}, // may have wrapped
		{4.2e9, time.Second, true, 3.2e9},
		{100, time.Second, true, 3.2e9 + 1<<32 - 4.2e9 + 100},
		{5e9, time.Hour, true, 3.2e9 + 1<<32 - 4.2e9 + 5e9},
		{50, time.Second, true, 3.2e9 + 1<<32 - 4.2e9 + 5e9 + 50},
	} {
		if ok := o.advanceNarrow(c.raw, speed, c.after); ok != c.ok || o.total != c.want {
			t.Errorf("reading %d: got %v %v, want %v %v", i, o.total, ok, c.want, c.ok)
		}
	}
	var reset odometer
	for _, raw := range []uint64{1e9, 10} { // 3.3 GB within a second are more than 2
		reset.advanceNarrow(raw, speed, time.Second)
	}
	if reset.total != 1e9+10 {
		t.Errorf("a reset counts as %v", reset.total)
	}
	var fast odometer
	if fast.advanceNarrow(1, 32e9, time.Second) {
		t.Error("the first reading of a fast link is served")
	}
}

// value returns the value of a series on a metrics page.
func value(t *testing.T, page, series string) float64 {
	t.Helper()
	m := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(series) + ` (\S+)$`).FindStringSubmatch(page)
	if m == nil {
		t.Fatalf("no %s on\n%s", series, page)
	}
	v, err := strconv.ParseFloat(m[1], 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// TestIntegratedCounters checks that a state that the driver does not time is integrated only while it lasts, and
// never faster than time passes.
func TestIntegratedCounters(t *testing.T) {
	t.Parallel()
	n := newNode(t, 1, fakeLibrary(t), fakenvml.H100)
	n.must(n.Unset(fakenvml.All, "field.197", "field.198"))
	n.must(n.Set("0", "clock_events", 0x8)) // hw_slowdown, which no driver counts
	began := time.Now()
	n.start()
	const labels = `{gpu="0",gpu_uuid="GPU-00000000-0000-4000-8000-000000000000"`
	slowdown := `llm_gpu_clock_event_seconds_total` + labels + `,reason="hw_slowdown",source="sampled"}`
	idle := `llm_gpu_clock_event_seconds_total` + labels + `,reason="gpu_idle",source="sampled"}`
	sent, received := `llm_gpu_pcie_transmit_bytes_total`+labels+`}`, `llm_gpu_pcie_receive_bytes_total`+labels+`}`
	first := n.await(slowdown, sent)
	was := value(t, first, slowdown)
	page := n.awaitThat("a second of hw_slowdown", func(page string) bool { return value(t, page, slowdown) > was+1 })
	if v, most := value(t, page, slowdown), time.Since(began).Seconds(); v > most {
		t.Errorf("%v s of hw_slowdown in %v s", v, most)
	}
	if v := value(t, page, idle); v != 0 {
		t.Errorf("%v s of a reason that was never in force", v)
	}
	// GPM reports 100 and 200 MiB/s over the same windows.
	if tx, rx := value(t, page, sent), value(t, page, received); tx <= value(t, first, sent) || fmt.Sprintf("%.6f", rx/tx) != "2.000000" {
		t.Errorf("integrated %v bytes sent and %v received", tx, rx)
	}
	n.must(n.Set("0", "clock_events", 0))
	n.await(`llm_gpu_clock_event_active` + labels + `,reason="hw_slowdown"} 0`)
	stopped := value(t, n.page(), slowdown)
	n.must(n.Set("0", "temperature", 33))
	if v := value(t, n.await(`sensor="gpu"} 33`), slowdown); v != stopped {
		t.Errorf("hw_slowdown went on from %v to %v s after it had ended", stopped, v)
	}
	n.stop()
}

// TestPCIeTraffic checks that bytes over PCIe are right at any rate, or absent with the reason: the counters of the
// driver have 32 bits, which a current link wraps several times a second.
func TestPCIeTraffic(t *testing.T) {
	const unknown = "llm_gpu_feature_supported{feature=\"pcie_traffic\",gpu=\"0\",gpu_uuid=\"GPU-00000000-0000-4000-8000-0000000000a0\",reason=\"counter_wraps\"} 0"
	for _, c := range []struct {
		name       string
		from, uuid string
		generation int
		width      int
		rate       float64 // bytes per second
	}{
		{"Gen5With12GB", fakenvml.H100, "GPU-00000000-0000-4000-8000-000000000000", 5, 16, 12e9},
		{"Gen5With50GB", fakenvml.H100, "GPU-00000000-0000-4000-8000-000000000000", 5, 16, 50e9},
		{"Gen4WithoutGPM", fakenvml.A100, "", 4, 16, 25e9},
		{"SlowLinkWithoutGPM", fakenvml.A100, "GPU-00000000-0000-4000-8000-0000000000a0", 1, 8, 1.5e9},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			n := newNode(t, 1, fakeLibrary(t), c.from)
			n.must(n.Set("0", "pcie.max_generation", c.generation, "pcie.max_width", c.width,
				"field.83", "rate 1000", // a joule a second: the driver's own clock, read in the same cycle
				"field.197", fmt.Sprintf("u32 rate %.0f", c.rate), "field.198", fmt.Sprintf("u32 rate %.0f", c.rate/2),
				"gpm.20", c.rate/mebi, "gpm.21", c.rate/2/mebi))
			n.config.Interval = time.Second
			n.start()
			if c.uuid == "" {
				if page := n.await(unknown); strings.Contains(page, "llm_gpu_pcie_transmit_bytes_total") {
					t.Error("bytes are counted that nobody knows")
				}
				n.stop()
				return
			}
			sent := `llm_gpu_pcie_transmit_bytes_total{gpu="0",gpu_uuid="` + c.uuid + `"}`
			clock := strings.Replace(sent, "pcie_transmit_bytes", "energy_joules", 1)
			last := value(t, n.await(sent, clock), sent)
			read := func() (seconds, bytes float64) { // when the counter moves
				page := n.awaitThat("a new value", func(page string) bool { return value(t, page, sent) != last })
				last = value(t, page, sent)
				return value(t, page, clock), last
			}
			began, first := read()
			read()
			ended, second := read()
			if got := (second - first) / (ended - began); got < 0.9*c.rate || got > 1.1*c.rate {
				t.Errorf("%.2f GB/s read as %.2f", c.rate/1e9, got/1e9)
			}
			n.stop()
		})
	}
}
