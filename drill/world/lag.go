package world

import (
	"cmp"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
)

// lagging is a request that the gateway still works on. It is forwarded to the replica at the request's arrival time.
type lagging struct {
	request *drill.Request
	to      *Replica
}

// forward passes a request from the gateway to a replica, after the gateway's lag.
func (w *World) forward(q *drill.Request, to *Replica) {
	if w.GatewayLag == 0 && len(w.lagging) == 0 {
		to.Engine.Offer(q)
		return
	}
	if !q.Hold(q.Arrival + w.GatewayLag) {
		w.truth.lose(to.identity())
		return
	}
	w.lagging = append(w.lagging, lagging{q, to})
	slices.SortStableFunc(w.lagging, func(a, b lagging) int { return cmp.Compare(a.request.Arrival, b.request.Arrival) })
}

// deliver gives the replicas the requests that leave the gateway before a time.
func (w *World) deliver(until time.Duration) {
	for len(w.lagging) > 0 && w.lagging[0].request.Arrival < until {
		w.lagging[0].to.Engine.Offer(w.lagging[0].request)
		w.lagging = w.lagging[1:]
	}
}
