package ownership

import (
	"maps"
	"time"
)

// cpuWait adds up the time in which the threads of an engine were ready to run and waited for a CPU.
type cpuWait struct {
	seconds float64
	last    map[int]time.Duration // by thread: waiting time since the thread's start
}

// add adds the time that the threads waited since the last scan. The waiting time at the first scan does not count. If
// a later scan shows a new thread, the thread has started since the last scan.
func (w *cpuWait) add(now map[int]time.Duration) {
	for thread, waited := range now {
		if before := w.last[thread]; w.last != nil && waited > before {
			w.seconds += (waited - before).Seconds()
		}
	}
	w.last = now
}

// cpuWaits scans the threads of each engine on a GPU. These are the threads of the process that serves the engine's metrics, of this
// process' descendants, and of the engine's processes on GPUs. Engines with unreadable threads are left out.
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
