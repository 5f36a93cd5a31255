package gpu

import (
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// sxid identifies a kind of error of one NVSwitch.
type sxid struct {
	pci      string
	code     int
	severity string // fatal or nonfatal
}

// sxidLedger counts the errors of NVSwitches. Only the kernel log reports them.
type sxidLedger struct {
	mu    sync.Mutex
	count map[sxid]float64
	last  map[sxid]float64 // Unix time
}

func newSXIDLedger() *sxidLedger {
	return &sxidLedger{count: make(map[sxid]float64), last: make(map[sxid]float64)}
}

// tell counts an error that occurred at a given time.
func (l *sxidLedger) tell(x sxid, at time.Time) { l.add(x, at, 1) }

// remember records an error from before the start of the exporter. The error gets a time, and its counter starts at
// zero for the next error.
func (l *sxidLedger) remember(x sxid, at time.Time) { l.add(x, at, 0) }

func (l *sxidLedger) add(x sxid, at time.Time, n float64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.count[x] += n
	l.last[x] = max(l.last[x], float64(at.UnixMilli())/1e3)
}

func (l *sxidLedger) collect(ch chan<- prometheus.Metric) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for x, n := range l.count {
		labels := []string{x.pci, strconv.Itoa(x.code), x.severity}
		ch <- metrics.GPUSXIDErrors.Const(n, labels...)
		ch <- metrics.GPUSXIDLastTimestamp.Const(l.last[x], labels...)
	}
}

// sxidSeverities maps the driver's words for the effect of an error.
var sxidSeverities = map[string]string{"Fatal": "fatal", "Non-fatal": "nonfatal"}

// parseSXID reads the kernel's report about an NVSwitch, such as "nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 28006,
// Non-fatal, Link 46 …". The driver writes two more lines about each error, with other words after the number.
func parseSXID(message string) (x sxid, ok bool) {
	rest, ok := strings.CutPrefix(message, "nvidia-nvswitch")
	if !ok {
		return x, false
	}
	where, what, _ := strings.Cut(strings.TrimLeft(rest, "0123456789"), "): ")
	address, ok := strings.CutPrefix(where, ": SXid (")
	if !ok {
		return x, false
	}
	parts := strings.SplitN(what, ", ", 3)
	if len(parts) < 3 {
		return x, false
	}
	code, err := strconv.ParseUint(parts[0], 10, 31)
	x.code, x.severity = int(code), sxidSeverities[parts[1]]
	x.pci, ok = CanonicalPCI(address)
	return x, ok && err == nil && code > 0 && x.severity != ""
}
