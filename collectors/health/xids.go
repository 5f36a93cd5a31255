package health

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// These constants are how long an XID counts. The time is shorter if the driver could request a recovery but does not.
const (
	xidTold   = time.Hour      // the driver can request a recovery, and did not
	xidUntold = 24 * time.Hour // the driver is too old to request a recovery
	xidTicket = 6 * time.Hour  // the GPU continues
)

// xids holds the XIDs of a GPU.
type xids struct {
	counted map[xidSeries]float64
	open    map[int]*xidState
}

// xidSeries identifies a counter.
type xidSeries struct{ code, instance, severity, source string }

// xidState is the state of an XID that counts.
type xidState struct {
	verdict     metrics.Verdict
	answer      string // alert
	since, last time.Time
	asked       bool // the driver has requested a recovery since the XID
}

func newXIDs() xids { return xids{counted: map[xidSeries]float64{}, open: map[int]*xidState{}} }

// reset forgets all XIDs that a reset repairs.
func (x *xids) reset() { clear(x.open) }

// judge looks for new XIDs and removes expired ones. In the first judgement it also reads the times of
// earlier XIDs, which the kernel log reports.
func (x *xids) judge(v *view, at time.Time, first bool) {
	for _, s := range v.of(metrics.GPUXIDErrors) {
		key := xidSeries{
			label(s, metrics.LabelXID), label(s, metrics.LabelGPUInstance), label(s, metrics.LabelSeverity),
			label(s, metrics.LabelSource),
		}
		before, known := x.counted[key]
		x.counted[key] = s.Value
		if !known && first && key.source != "nvml" && key.source != "kmsg" {
			continue // the counter comes from another exporter, and may be weeks old
		}
		if code, err := strconv.Atoi(key.code); err == nil && s.Value > before {
			x.saw(code, key.severity, at, at)
		}
	}
	action, tells := v.most(metrics.GPURecoveryAction)
	if first && !(tells && action == 0) {
		x.remember(v, at)
	}
	for code, s := range x.open {
		s.asked = s.asked || action > 0
		quiet := xidUntold
		switch {
		case s.verdict <= metrics.Degraded:
			quiet = xidTicket
		case tells:
			quiet = xidTold
		}
		if action == 0 && (at.Sub(s.last) >= quiet || s.asked && tells) {
			delete(x.open, code)
		}
	}
}

// remember takes XIDs from before the start of the exporter. It is unknown whether an old XID of NVLink 5 was fatal, so
// it counts as nonfatal.
func (x *xids) remember(v *view, at time.Time) {
	for _, s := range v.of(metrics.GPUXIDLastTimestamp) {
		code, err := strconv.Atoi(label(s, metrics.LabelXID))
		if err != nil || x.open[code] != nil {
			continue
		}
		severity := ""
		if 144 <= code && code <= 150 {
			severity = string(metrics.XIDTicket)
		}
		when := time.UnixMilli(int64(s.Value * 1e3))
		x.saw(code, severity, when, at)
	}
}

// saw opens an XID, or renews it. XIDs that need no response do not count.
func (x *xids) saw(code int, severity string, when, at time.Time) {
	verdict, answer := xidVerdict(code, severity)
	if verdict == metrics.Healthy && answer == "" || when.After(at) {
		return
	}
	s := x.open[code]
	if s == nil {
		s = &xidState{since: when}
		x.open[code] = s
	}
	s.verdict, s.answer, s.last, s.asked = max(s.verdict, verdict), cmp.Or(answer, s.answer), when, false
}

// xidVerdict returns the verdict of the catalogue, and the alert. If the kernel log reports an XID as nonfatal, its
// severity is that of a ticket, because the link repaired itself and a dashboard shows the XID.
func xidVerdict(code int, severity string) (metrics.Verdict, string) {
	i := slices.IndexFunc(metrics.XIDs, func(x metrics.XID) bool { return x.Code == code })
	if i < 0 {
		return metrics.UnlistedXID, metrics.AnswerService
	}
	known := metrics.XIDs[i]
	if known.Severity == metrics.XIDPage && severity == string(metrics.XIDTicket) {
		return min(known.Verdict, metrics.Degraded), ""
	}
	return known.Verdict, known.Answer()
}

// findings lists the XIDs that count, by code.
func (x *xids) findings() (found []Finding) {
	for code, s := range x.open {
		f := Finding{
			Condition: "xid_" + strconv.Itoa(code), Verdict: s.verdict, Alert: s.answer, Since: s.since,
			Meaning: "an XID that the catalogue does not list", Action: "ask NVIDIA when it persists",
			Source: []string{metrics.GPUXIDErrors.Name},
		}
		if i := slices.IndexFunc(metrics.XIDs, func(x metrics.XID) bool { return x.Code == code }); i >= 0 {
			f.Meaning, f.Action = metrics.XIDs[i].Meaning, metrics.XIDs[i].Action
		}
		f.Meaning = fmt.Sprintf("%s (XID %d)", f.Meaning, code)
		found = append(found, f)
	}
	slices.SortFunc(found, func(a, b Finding) int { return a.Since.Compare(b.Since) })
	return found
}
