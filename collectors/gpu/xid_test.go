package gpu

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

func (l *xidLedger) values(t *testing.T) map[string]float64 {
	t.Helper()
	ch := make(chan prometheus.Metric, 1000)
	l.collect(ch, nil, true)
	close(ch)
	values := make(map[string]float64)
	for m := range ch {
		var out dto.Metric
		if err := m.Write(&out); err != nil {
			t.Fatal(err)
		}
		if out.Counter != nil {
			var key []string
			for _, l := range out.Label {
				if l.GetName() == metrics.LabelXID || l.GetName() == metrics.LabelSource {
					key = append(key, l.GetValue())
				}
			}
			values[strings.Join(key, " ")] += out.Counter.GetValue()
		}
	}
	return values
}

func TestLedgerCountsEachXIDOnce(t *testing.T) {
	type told struct {
		channel xidChannel
		code    int
		after   time.Duration
	}
	const s = time.Second
	for _, c := range []struct {
		name string
		told []told
		want map[string]float64
	}{
		{"Both sources tell: the first one counts.", []told{{xidKmsg, 79, 0}, {xidNVML, 79, s}}, map[string]float64{"kmsg 79": 1}},
		{"The other way round.", []told{{xidNVML, 79, 0}, {xidKmsg, 79, s}}, map[string]float64{"nvml 79": 1}},
		{"All three ways of telling.", []told{{xidKmsg, 79, 0}, {xidPlain, 79, 0}, {xidNVML, 79, s}}, map[string]float64{"kmsg 79": 1}},
		{"Words alone are an XID too.", []told{{xidPlain, 79, 0}}, map[string]float64{"kmsg 79": 1}},
		{
			"Two of the same code from one source are two.",
			[]told{{xidKmsg, 31, 0}, {xidKmsg, 31, 0}, {xidNVML, 31, s}, {xidNVML, 31, s}},
			map[string]float64{"kmsg 31": 2},
		},
		{
			"A source that misses one is not ahead.",
			[]told{{xidKmsg, 31, 0}, {xidKmsg, 31, 0}, {xidNVML, 31, s}, {xidKmsg, 31, s}},
			map[string]float64{"kmsg 31": 3},
		},
		{"Too far apart to be the same.", []told{{xidKmsg, 31, 0}, {xidNVML, 31, 9 * s}}, map[string]float64{"kmsg 31": 1, "nvml 31": 1}},
		{"Other codes are other XIDs.", []told{{xidKmsg, 48, 0}, {xidNVML, 63, 0}}, map[string]float64{"kmsg 48": 1, "nvml 63": 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, start := newXIDLedger(2*s), time.Unix(1_000_000, 0)
			for _, e := range c.told {
				l.tell(e.channel, xid{pci: "0000:3b:00.0", code: e.code}, start.Add(e.after))
			}
			if got := l.values(t); fmt.Sprint(got) != fmt.Sprint(c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

// TestSeverity checks that an XID that the driver calls nonfatal never pages, and that a code that the catalogue
// lacks has no severity.
func TestSeverity(t *testing.T) {
	for x, want := range map[xid]metrics.XIDSeverity{
		{code: 149}: metrics.XIDPage, {code: 149, nonfatal: true}: metrics.XIDTicket, {code: 63}: metrics.XIDTicket,
		{code: 31, nonfatal: true}: metrics.XIDApp, {code: 400}: "",
	} {
		if got := x.severity(); got != want {
			t.Errorf("%+v: got %q, want %q", x, got, want)
		}
	}
}

// TestLedgerForgets checks that the memory for matching does not grow with the number of XIDs.
func TestLedgerForgets(t *testing.T) {
	l, at := newXIDLedger(2*time.Second), time.Unix(1_000_000, 0)
	for range 100_000 {
		at = at.Add(10 * time.Millisecond)
		l.tell(xidNVML, xid{pci: "0000:3b:00.0", code: 45}, at)
	}
	if n := len(l.recent[xidKey{"0000:3b:00.0", 45}].at); n > 201 {
		t.Errorf("%d incidents are remembered", n)
	}
	if got := l.values(t)["nvml 45"]; got != 100_000 {
		t.Errorf("%v XIDs were counted", got)
	}
}

func TestCatalogueIsOrderedAndComplete(t *testing.T) {
	if !slices.IsSortedFunc(metrics.XIDs, func(a, b metrics.XID) int { return a.Code - b.Code }) {
		t.Error("the catalogue is not ordered by code")
	}
	for i, x := range metrics.XIDs {
		if x.Meaning == "" || x.Action == "" || x.Severity == "" {
			t.Errorf("XID %d lacks a meaning, an action or a severity", x.Code)
		}
		if !slices.Contains([]metrics.XIDSeverity{metrics.XIDPage, metrics.XIDTicket, metrics.XIDApp, metrics.XIDInfo}, x.Severity) ||
			x.Asks() && x.Code <= 172 && x.Products == "" {
			t.Errorf("XID %d has severity %q and products %q", x.Code, x.Severity, x.Products)
		}
		for code, since := range map[int]string{146: "555", 157: "570", 161: "570", 79: "", 175: "595"} {
			if x.Code == code && x.Driver != since {
				t.Errorf("XID %d is from driver %q, want %q", code, x.Driver, since)
			}
		}
		if i > 0 && metrics.XIDs[i-1].Code == x.Code {
			t.Errorf("XID %d is there twice", x.Code)
		}
	}
}
