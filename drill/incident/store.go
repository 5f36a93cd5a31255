package incident

import (
	"errors"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Store plays an incident and returns Prometheus' storage as the incident left it, for queries, with the time of the
// onset. relabel applies the scrape's relabelling; nil keeps series as they are. The caller must close the storage.
func Store(in Incident, groups []rules.Group, seed uint64, relabel func(labels.Labels) labels.Labels) (*rulesim.Sim, time.Time, error) {
	p, err := newPlay(in, groups, seed)
	if err != nil {
		return nil, time.Time{}, err
	}
	if relabel != nil {
		p.exporter.tamper = func(l labels.Labels) (labels.Labels, bool) { return relabel(l), true }
	}
	if err := p.play(); err != nil {
		return nil, time.Time{}, errors.Join(err, p.sim.Close())
	}
	return p.sim, at(p.onset), nil
}
