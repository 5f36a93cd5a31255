package world

import (
	"cmp"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// prefills reports whether a replica computes prompts for other replicas.
func (w *World) prefills(r *Replica) bool { return r.GPU.Index < w.Fleet.Prefills }

// passOn sends requests to decode engines if their prefill ended before a time. If there is no decode engine, the
// router lets them fail.
func (w *World) passOn(until time.Duration) {
	slices.SortStableFunc(w.passing, func(a, b *drill.Request) int { return cmp.Compare(a.Done, b.Done) })
	for len(w.passing) > 0 && w.passing[0].Done <= until {
		prefill := w.passing[0]
		w.passing = w.passing[1:]
		decoders := w.Replicas[w.Fleet.Prefills:]
		r := w.among(decoders[:cmp.Or(w.FavoursDecode, len(decoders))], &w.decodes)
		switch {
		case r == nil:
			w.truth.lose(w.Replicas[w.Fleet.Prefills].identity())
		case prefill.Then.Hold(prefill.Done):
			r.Engine.Offer(prefill.Then)
		}
	}
}

// prefilling implements drill.Observer for a prefill engine. Of a prefill, users notice only that it fails. All other
// events of a user's request come from the decode engine.
type prefilling struct {
	drill.Observer
	world *World
}

// Finished implements drill.Observer.
func (p *prefilling) Finished(r *drill.Request) {
	of := p.world.Replicas[0].identity()
	switch {
	case r.Then == nil: // a probe
	case r.Hung:
		p.world.truth.lose(of)
	case r.Rejected || r.Failed:
		w := watched{truth: p.world.truth, engine: of}
		w.count(slo.Availability, 1, func(slo.Objective) bool { return true })
	case !r.Aborted:
		p.world.passing = append(p.world.passing, r)
	}
	p.Observer.Finished(r)
}
