package gpu

import (
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// xidChannel names a channel through which the driver reports an XID.
type xidChannel uint8

const (
	xidNVML  xidChannel = iota // an event of the GPU's event set
	xidKmsg                    // "NVRM: Xid (PCI:…): 79, …" in the kernel log
	xidPlain                   // "NVRM: GPU …: GPU has fallen off the bus." in the kernel log
	xidChannels
)

// source returns the value of the source label.
func (c xidChannel) source() string {
	if c == xidNVML {
		return "nvml"
	}
	return "kmsg"
}

// xid holds an XID of a GPU, or of one of its MIG GPU instances.
type xid struct {
	pci      string
	code     int
	instance string // empty for the whole GPU
	nonfatal bool   // the driver reports that the GPU continues
}

// isXIDCode reports whether a number is the code of an XID. The number 0 means no XID, and 999 means an XID that NVML
// does not recognise.
func isXIDCode(code int) bool { return code > 0 && code != 999 }

// isNVLink5 reports whether an XID belongs to NVLink 5. Some XIDs of NVLink 5 are fatal and some are not.
func isNVLink5(code int) bool { return 144 <= code && code <= 150 }

// severity returns the severity that the catalogue assigns to an XID. A nonfatal XID never pages.
func (x xid) severity() metrics.XIDSeverity {
	for _, known := range metrics.XIDs {
		if known.Code == x.code && known.Severity == metrics.XIDPage && x.nonfatal {
			return metrics.XIDTicket
		} else if known.Code == x.code {
			return known.Severity
		}
	}
	return ""
}

// xidLedger counts XIDs. The driver may report one XID through several channels, but the XID is counted once.
type xidLedger struct {
	window  time.Duration // longest time between reports of the same XID by different channels
	catalog []metrics.Sample

	mu     sync.Mutex
	counts map[xidCount]*tally
	last   map[xidKey]*tally
	recent map[xidKey]*incidents
}

// xidKey identifies a code on a GPU. The GPU is identified by its PCI address, which is the only name in the kernel
// log, and the only name of a GPU that NVML has never seen.
type xidKey struct {
	pci  string
	code int
}

type xidCount struct {
	xidKey
	instance, severity, source string
}

// tally holds a series of the ledger, with the identity under which its GPU was last served.
type tally struct {
	value  float64
	gpu    Identity
	series *metrics.Series
}

// incidents holds the recent occurrences of one code on one GPU, in order. Every channel reports the occurrences in
// the same order, so next[channel] is the first occurrence that the channel has not reported yet.
type incidents struct {
	at   []time.Time
	next [xidChannels]int
}

func newXIDLedger(window time.Duration) *xidLedger {
	l := &xidLedger{
		window: window,
		counts: make(map[xidCount]*tally),
		last:   make(map[xidKey]*tally),
		recent: make(map[xidKey]*incidents),
	}
	for _, x := range metrics.XIDs {
		about := newSeries(metrics.GPUXIDInfo, strconv.Itoa(x.Code), string(x.Severity), x.Meaning, x.Action)
		l.catalog = append(l.catalog, metrics.Sample{Series: about, Value: 1})
	}
	return l
}

// expect creates counters at zero for codes that page or open a ticket, so that increase() sees the first event.
func (l *xidLedger) expect(pci string, channel xidChannel) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, x := range metrics.XIDs {
		if x.Asks() {
			l.count(xid{pci: pci, code: x.Code}, channel)
		}
	}
}

// count finds or creates the counter of an XID. The caller holds l.mu.
func (l *xidLedger) count(x xid, channel xidChannel) *tally {
	return findOrMake(l.counts, xidCount{xidKey{x.pci, x.code}, x.instance, string(x.severity()), channel.source()})
}

func findOrMake[K comparable, V any](m map[K]*V, key K) *V {
	v := m[key]
	if v == nil {
		v = new(V)
		m[key] = v
	}
	return v
}

// tell records that a channel has reported an XID that occurred at a given time. If another channel has already
// reported the XID, it is not counted again.
func (l *xidLedger) tell(channel xidChannel, x xid, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	key := xidKey{x.pci, x.code}
	l.seen(key, at)
	r := findOrMake(l.recent, key)
	r.forget(at.Add(-l.window))
	if r.next[channel] < len(r.at) {
		r.next[channel]++
		return
	}
	r.at = append(r.at, at)
	r.next[channel] = len(r.at)
	l.count(x, channel).value++
}

// remember records an XID from before the start of the exporter. The XID gets a time, and is not counted.
func (l *xidLedger) remember(pci string, code int, at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen(xidKey{pci, code}, at)
}

// seen moves the time of the last occurrence forward. The caller holds l.mu.
func (l *xidLedger) seen(key xidKey, at time.Time) {
	t := findOrMake(l.last, key)
	t.value = max(t.value, float64(at.UnixMilli())/1e3)
}

// forget drops the incidents before a time.
func (r *incidents) forget(before time.Time) {
	n := 0
	for n < len(r.at) && r.at[n].Before(before) {
		n++
	}
	r.at = r.at[n:]
	for c := range r.next {
		r.next[c] = max(0, r.next[c]-n)
	}
}

// collect serves the catalogue, the times and, if requested, the counters. known has the identities of GPUs by PCI
// address. Series of all other GPUs have only the address.
func (l *xidLedger) collect(ch chan<- prometheus.Metric, known map[string]Identity, counts bool) {
	for i := range l.catalog {
		ch <- &l.catalog[i]
	}
	l.mu.Lock()
	page := make([]metrics.Sample, 0, len(l.counts)+len(l.last))
	if counts {
		for key, t := range l.counts {
			page = append(page, t.as(metrics.GPUXIDErrors, known[key.pci], key.pci, key.instance, strconv.Itoa(key.code), key.severity, key.source))
		}
	}
	for key, t := range l.last {
		page = append(page, t.as(metrics.GPUXIDLastTimestamp, known[key.pci], key.pci, strconv.Itoa(key.code)))
	}
	l.mu.Unlock()
	for i := range page {
		ch <- &page[i]
	}
}

// as returns the current value of a tally.
func (t *tally) as(f *metrics.Family, gpu Identity, labels ...string) metrics.Sample {
	if t.series == nil || t.gpu != gpu {
		t.gpu, t.series = gpu, newSeries(f, append([]string{gpu.UUID, gpu.Index}, labels...)...)
	}
	return metrics.Sample{Series: t.series, Value: t.value}
}
