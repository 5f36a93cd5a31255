package engine

import (
	"bytes"
	"slices"
	"sync"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
)

// seriesBytes estimates the memory of a series besides its text: labels, plan and output. For metrics pages of 36,000
// lines, the exporter used 0.7 kB per line, including the text.
const seriesBytes = 1 << 10

// budget limits the bytes that the metrics pages of all targets use together.
type budget struct {
	limit int64 // 0 means no limit

	mu   sync.Mutex
	held map[*target]int64
}

func newBudget(limit int64) *budget { return &budget{limit: limit, held: map[*target]int64{}} }

// take charges a metrics page to a target before the page is parsed. It fails if the other targets leave too little room.
func (b *budget) take(t *target, body []byte) error {
	cost := int64(len(body)) + seriesBytes*int64(min(bytes.Count(body, []byte("\n")), t.config.Limits.Series))
	b.mu.Lock()
	defer b.mu.Unlock()
	others := -b.held[t]
	for _, held := range b.held {
		others += held
	}
	if b.limit > 0 && others+cost > b.limit {
		return scrape.Errorf(scrape.LimitExceeded,
			"the metrics would take %d bytes, and the metrics of other engines take %d of the %d bytes allowed in total: raise limits.memory and "+
				"the memory limit of the process", cost, others, b.limit)
	}
	b.held[t] = cost
	return nil
}

// drop releases the budget of a target.
func (b *budget) drop(t *target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, t)
}

// keep releases the budget of all targets except the given targets.
func (b *budget) keep(targets []*target) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for t := range b.held {
		if !slices.Contains(targets, t) {
			delete(b.held, t)
		}
	}
}
