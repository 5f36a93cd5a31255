package discovery

import (
	"context"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
)

// compareAgain is the pause before the metrics pages of one pod are compared again. They are compared again while a
// metrics page is left out, or while two metrics pages report too little for a comparison.
const compareAgain = time.Minute

// comparison holds the engines of a pod that were compared, and the time of the next comparison.
type comparison struct {
	of    string
	again time.Time // zero means not before the engines change
}

// tellApart keeps one place of each engine that answers at several places of its pod, or also at a configured target.
// Servers that forward requests to an engine answer like the engine. So do servers that join or repeat its metrics
// page. Idle engines that report nothing about their processes cannot be distinguished, so all of them stay. If one
// container of a pod has a GPU, engines in containers without a GPU are left out.
func (f *Finder) tellApart(ctx context.Context) {
	var configured []Place
	if f.options.Configured != nil {
		for _, target := range f.options.Configured() {
			configured = append(configured, Place{Target: target, rank: ofConfiguration})
		}
	}
	pods := map[string][]Place{}
	f.mu.Lock()
	now := time.Now()
	for _, p := range f.places {
		if state := f.verdicts[p.key()].state; !p.Declared && (state == Read || state == SameEngine) {
			pods[p.pod()] = append(pods[p.pod()], p)
		}
	}
	for pod := range f.compared {
		if pods[pod] == nil {
			delete(f.compared, pod)
		}
	}
	for pod, found := range pods {
		places := slices.Concat(configured, found)
		pods[pod] = places
		var of strings.Builder
		for _, p := range places {
			of.WriteString(p.key() + "\xff")
		}
		if was := f.compared[pod]; was.of == of.String() && (was.again.IsZero() || now.Before(was.again)) {
			delete(pods, pod)
			continue
		}
		f.compared[pod] = comparison{of: of.String()}
	}
	f.mu.Unlock()

	var wg sync.WaitGroup
	for pod, places := range pods {
		slices.SortStableFunc(places, func(a, b Place) int { return int(a.rank - b.rank) })
		wg.Go(func() { f.compare(ctx, pod, places) })
	}
	wg.Wait()
}

// compare reads the metrics pages of a pod's engines twice in the same order. Each metrics page is thus read between
// the two readings of every earlier metrics page.
func (f *Finder) compare(ctx context.Context, pod string, places []Place) {
	ctx, cancel := context.WithTimeout(ctx, 2*probeTimeout)
	defer cancel()
	var reads [2][]engine.Engine
	for i := range reads {
		if len(places) == 1 {
			break // there are no other places
		}
		for _, p := range places {
			p.Target.Labels = nil                  // these labels do not describe the program that answers
			e, _ := f.options.Probe(ctx, p.Target) // cannot fail, because the place was already a target
			reads[i] = append(reads[i], e)
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	again := false
	for i, p := range places {
		if p.rank == ofConfiguration {
			continue
		}
		v := verdict{state: Read}
		for j, kept := range places[:i] {
			if kept.rank == ofConfiguration && kept.Target.URL == p.Target.URL {
				break
			}
			if kept.rank != ofConfiguration && f.verdicts[kept.key()].state != Read {
				continue
			}
			other := kept.rank == ofEngine && p.rank != ofEngine
			switch engine.Compare(reads[0][j], reads[0][i], reads[1][j], other) { //nolint:exhaustive // a Different engine is read
			case engine.Same:
				v = verdict{state: SameEngine, why: "its engine is read at " + kept.Target.URL}
			case engine.Undecided:
				again = true
				if old := f.verdicts[p.key()]; !reads[0][i].IsEngine() || !reads[0][j].IsEngine() {
					v = old
				} else if other {
					v = verdict{
						state: SameEngine,
						why:   "its container has no GPU, and its metrics do not differ from those of the engine that is read at " + kept.Target.URL,
					}
				}
			}
			if v.state == SameEngine {
				break
			}
		}
		again = again || v.state == SameEngine
		f.settle(p, v)
	}
	if again {
		f.compared[pod] = comparison{f.compared[pod].of, time.Now().Add(compareAgain)}
	}
}
