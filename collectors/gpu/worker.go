package gpu

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

const reasonStuck = "stuck"

// errLate marks a cycle that ended after its deadline. Its values are older than the deadline allows, and are
// discarded.
var errLate = errors.New("the driver answered after the deadline")

// worker reads one GPU repeatedly. Only its own goroutine calls the driver. All other goroutines look at the last
// snapshot and at the duration of the current cycle. Therefore, a driver call that never returns affects only this GPU,
// and no second call waits behind it.
type worker struct {
	options *Options
	log     *slog.Logger
	device  device
	index   int
	known   Identity // identity before the first cycle
	sheet   sheet
	pace    *pace
	said    string // the last logged state

	onIdentity func(int, Identity)
	onXID      func(xid)

	last  atomic.Pointer[snapshot]
	since atomic.Pointer[time.Time] // start of the current cycle, or nil between cycles
}

func newWorker(c *Collector, index int, d device) *worker {
	known := c.identity(index)
	w := &worker{
		options:    &c.options,
		log:        c.options.Logger.With("gpu", known.Index),
		device:     d,
		index:      index,
		known:      known,
		pace:       c.options.newPace(),
		said:       "new",
		onIdentity: c.onIdentity,
		onXID:      c.onXID,
	}
	w.sheet.setIdentity(known)
	return w
}

// run reads until ctx ends.
func (w *worker) run(ctx context.Context) {
	defer w.device.Close()
	var readAt [tiers]time.Time
	pause, failures := time.NewTimer(0), 0
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		began := time.Now()
		due := fast
		for t := slow; t < tiers; t++ {
			if w.pace.due(t, began.Sub(readAt[t])) {
				due = t
			}
		}
		snap := w.cycle(began, due)
		w.report(snap)
		every := w.pace.every(fast)
		wait := max(every-snap.took, every/2)
		if snap.err == nil {
			failures = 0
			for t := range due + 1 {
				readAt[t] = began
			}
		} else {
			readAt = [tiers]time.Time{} // read everything again once the GPU is back
			failures++
			wait = backoff(w.options.Interval, failures)
		}
		pause.Reset(wait)
	}
}

// cycle runs one cycle and publishes its outcome.
func (w *worker) cycle(began time.Time, due tier) *snapshot {
	w.since.Store(&began)
	defer w.since.Store(nil)
	w.sheet.begin(due, w.pace.every(fast))
	err := w.read(began)
	snap := &snapshot{identity: w.sheet.identity, began: began, took: time.Since(began), instances: w.sheet.instances, err: err}
	if w.sheet.settled {
		w.pace.forget()
	}
	for t := range tiers {
		if t <= due {
			w.pace.took(t, w.sheet.driver[t])
		}
		snap.every[t] = w.pace.every(t)
	}
	if err == nil && snap.took > w.options.Deadline {
		snap.err = fmt.Errorf("%w of %s: see the kernel log for XID 119 or a hung task", errLate, w.options.Deadline)
	}
	previous := w.last.Load()
	if snap.err == nil {
		for t, r := range w.sheet.readings {
			snap.samples[t] = r.samples
		}
		snap.processes = w.sheet.processes
	} else if previous != nil && previous.identity == snap.identity {
		snap.samples[slow] = lasting(previous)
	}
	if snap.identity.UUID != "" && (previous == nil || previous.identity != snap.identity) {
		w.onIdentity(w.index, snap.identity)
	}
	w.last.Store(snap)
	for _, x := range w.sheet.xids {
		w.onXID(x)
	}
	return snap
}

// read prevents a bug in the reading of one GPU from ending the process.
func (w *worker) read(began time.Time) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("reading the GPU panicked, please report this bug: %v", p)
		}
	}()
	return w.device.Read(began, &w.sheet)
}

// report logs changes of state.
func (w *worker) report(snap *snapshot) {
	state, id := reasonFor(snap.err), snap.identity
	if state == w.said {
		return
	}
	w.said = state
	if snap.err != nil {
		w.log.Error("GPU is out of order; its series are withheld", "uuid", id.UUID, "pci", id.PCI, "err", snap.err)
	} else {
		w.log.Info("GPU is being read", "uuid", id.UUID, "pci", id.PCI)
	}
}

// health describes a GPU at any moment, without a call to the driver.
type health struct {
	*snapshot
	stuck bool
}

func (w *worker) health(now time.Time) (health, bool) {
	since := w.since.Load() // read before the snapshot, so that the snapshot of a cycle that just ended is seen
	h := health{w.last.Load(), since != nil && now.Sub(*since) > w.options.Deadline}
	if h.snapshot == nil && h.stuck {
		h.snapshot = &snapshot{identity: w.known, began: *since}
	}
	return h, h.snapshot != nil // false until the first cycle has ended
}

// reason returns why the GPU is not up, or an empty string if it is up.
func (h health) reason() string {
	if h.stuck {
		return reasonStuck
	}
	return reasonFor(h.err)
}

// emit puts the series of the GPU on the metrics page.
func (h health) emit(now time.Time, emit func(*metrics.Family, float64, ...string)) {
	id, reason := h.identity, h.reason()
	emit(metrics.GPUUp, metrics.Bool(reason == ""), id.UUID, id.Index, reason)
	emit(metrics.GPUCollectStuck, metrics.Bool(h.stuck), id.UUID, id.Index)
	if h.stuck || h.err == nil {
		emit(metrics.GPUSnapshotAge, now.Sub(h.began).Seconds(), id.UUID, id.Index)
	}
	if !h.stuck {
		emit(metrics.GPUCollectDuration, h.took.Seconds(), id.UUID, id.Index)
	}
	if reason == "" {
		for t, every := range h.every {
			emit(metrics.GPUReadInterval, every.Seconds(), id.UUID, id.Index, tierNames[t])
		}
	}
}

// lasts reports whether a family outlives the failure of its GPU. Such families have the GPU's identity, its position,
// or the last recovery that the driver requested.
func lasts(f *metrics.Family) bool {
	return f == metrics.GPUInfo || f == metrics.GPUPlatformInfo || f == metrics.GPURecoveryAction || f == metrics.GPURecoveryActionInfo
}

// lasting returns the series of a snapshot that outlive a failure.
func lasting(s *snapshot) (kept []metrics.Sample) {
	for _, part := range s.samples {
		for _, v := range part {
			if lasts(v.Family) {
				kept = append(kept, v)
			}
		}
	}
	return kept
}

// backoff doubles a pause with each consecutive failure, up to a minute.
func backoff(first time.Duration, failures int) time.Duration {
	return min(max(first, time.Second)<<min(failures-1, 6), max(time.Minute, first))
}
