package drill

import (
	"slices"
	"time"
)

// swap is how long a step takes to load the weights of an adapter that has no slot yet. It is an assumption.
const swap = 15 * time.Millisecond

// admits reports whether a request may join the batch. Each adapter of the batch takes a slot. If no slot is left for a
// request's adapter, vLLM skips this request, and admits later ones (v1/core/sched/scheduler.py).
func (e *Engine) admits(r *Request) bool {
	if e.Adapters == 0 || r.Adapter == 0 {
		return true
	}
	asked := adaptersOf(e.running)
	return len(asked) < e.Adapters || slices.Contains(asked, r.Adapter)
}

// load loads the weights of a request's adapter into a slot, and returns how long that takes.
func (e *Engine) load(r *Request) time.Duration {
	if e.Adapters == 0 || r.Adapter == 0 || slices.Contains(e.loaded, r.Adapter) {
		return 0
	}
	if len(e.loaded) == e.Adapters {
		asked := adaptersOf(e.running)
		unused := slices.IndexFunc(e.loaded, func(a int) bool { return !slices.Contains(asked, a) })
		e.loaded = slices.Delete(e.loaded, unused, unused+1)
	}
	e.loaded = append(e.loaded, r.Adapter)
	return swap
}

// adaptersOf returns the numbers of the adapters that requests use, in ascending order.
func adaptersOf(requests []*Request) (all []int) {
	for _, r := range requests {
		if n, found := slices.BinarySearch(all, r.Adapter); r.Adapter > 0 && !found {
			all = slices.Insert(all, n, r.Adapter)
		}
	}
	return all
}
