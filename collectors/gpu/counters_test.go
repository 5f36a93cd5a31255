//go:build linux && cgo

package gpu

import (
	"fmt"
	"regexp"
	"strconv"
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
		{"Falling below 32 bits is a wrap.", []uint64{3 * g, 4*g - 1, 1}, 4*g + 1},
		{"Two wraps.", []uint64{3 * g, 1 * g, 0}, 8 * g},
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

// value is the value of a series on a page.
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

// TestIntegratedCounters: what the driver does not count is integrated, never faster than time
// passes, and only while it is so.
func TestIntegratedCounters(t *testing.T) {
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
	// GPM says 100 and 200 MiB/s over the same windows.
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
