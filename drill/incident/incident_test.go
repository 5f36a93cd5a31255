package incident

import (
	"flag"
	"os"
	"slices"
	"sync"
	"testing"
)

var (
	all   = flag.Bool("all", false, "play every incident")
	seeds = flag.Uint64("seeds", 1, "with how many seeds")
)

// fast are the incidents that every run of the tests plays.
var fast = []string{"traffic-burst", "wedged-engine", "power-loss", "xid-79", "scale-from-zero", "harmless-burst"}

// TestIncidents plays incidents: each must wake whom it must, in time, once, with its cause, and
// nobody else.
func TestIncidents(t *testing.T) {
	var mu sync.Mutex
	var scores []Score
	t.Cleanup(func() {
		slices.SortStableFunc(scores, func(a, b Score) int { return int(a.Seed) - int(b.Seed) })
		_ = WriteTable(os.Stdout, scores)
	})
	for _, in := range Incidents() {
		if !*all && !slices.Contains(fast, in.Name) {
			continue
		}
		t.Run(in.Name, func(t *testing.T) {
			t.Parallel()
			for seed := range *seeds {
				s, err := Run(in, Rules(), seed+1)
				if err != nil {
					t.Fatal(err)
				}
				for _, p := range s.Problems {
					t.Errorf("seed %d: %s", s.Seed, p)
				}
				mu.Lock()
				scores = append(scores, s)
				mu.Unlock()
			}
		})
	}
}
