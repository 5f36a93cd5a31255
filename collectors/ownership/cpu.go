package ownership

import (
	"maps"
	"time"
)

// cpuWait adds up how long the threads of an engine were ready to run and waited for a CPU.
type cpuWait struct {
	seconds float64
	last    map[int]time.Duration // by thread, since its start
}

// add adds the time that the threads waited since the last scan. The first scan shows how long they had waited before,
// which does not count. A thread that is new at a later scan has started in between.
func (w *cpuWait) add(now map[int]time.Duration) {
	for thread, waited := range now {
		if before := w.last[thread]; w.last != nil && waited > before {
			w.seconds += (waited - before).Seconds()
		}
	}
	w.last = now
}

// cpuWaits scans the threads of each engine on a GPU: the threads of the process that serves its metrics, of that
// process' descendants, and of its processes on GPUs. An engine whose threads cannot be read is left out.
func (l *look) cpuWaits(targets []Target, known map[string]*cpuWait) map[string]*cpuWait {
	waits := make(map[string]*cpuWait, len(l.serving))
	for i, serving := range l.serving {
		threads := make(map[int]time.Duration)
		for _, pid := range l.Family(serving) {
			maps.Copy(threads, l.Waited(pid))
		}
		for _, pid := range l.computing[i] {
			maps.Copy(threads, l.Waited(pid))
		}
		if len(threads) == 0 {
			continue
		}
		w := known[targets[i].Server]
		if w == nil {
			w = new(cpuWait)
		}
		next := *w
		next.add(threads)
		waits[targets[i].Server] = &next
	}
	return waits
}
