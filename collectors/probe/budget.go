package probe

import (
	"slices"
	"sync"
	"time"
)

// budget holds the cost of the last hour's requests, of one probe or of all probes of engines.
type budget struct {
	mu     sync.Mutex
	spent  []*charge
	probes int // number of probes that share the budget; 0 means one
}

// charge holds the cost of one request.
type charge struct {
	at     time.Time
	tokens int
}

// take charges a request in advance. If the tokens of the hour are not sufficient, it returns nil.
func (b *budget) take(tokens, perHour int) *charge {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.spent = slices.DeleteFunc(b.spent, func(c *charge) bool { return time.Since(c.at) >= time.Hour })
	sum := tokens
	for _, c := range b.spent {
		sum += c.tokens
	}
	if sum > perHour {
		return nil
	}
	b.spent = append(b.spent, &charge{time.Now(), tokens})
	return b.spent[len(b.spent)-1]
}

// settle replaces the advance charge by the actual cost.
func (b *budget) settle(c *charge, tokens int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c.at, c.tokens = time.Now(), tokens
}

// share sets the number of probes that share the budget.
func (b *budget) share(probes int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.probes = probes
}

// shared returns how many probes share the budget.
func (b *budget) shared() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return max(1, b.probes)
}
