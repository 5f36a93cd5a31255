package probe

import (
	"slices"
	"time"
)

const (
	waitsNow    = 5 * time.Minute
	waitsBefore = time.Hour // before these minutes
	longer      = 5         // a first token that takes this many times as long as before waited for its turn,
	slower      = 2         // unless later tokens take this many times as long as before
)

// waits holds the complete answers to a probe in the last 65 minutes.
type waits []answer

// answer is when an answer ended, how long its first token took and the mean gap between its tokens, in seconds.
type answer struct {
	at         time.Time
	first, gap float64
}

// waited adds an answer and returns the mean time to the first token of the last minutes, in seconds. It also returns the value of
// metrics.ProbeQueueing, once answers of an earlier time are known.
func (w *waits) waited(now time.Time, first, gap float64) (recently, queueing float64, known bool) {
	*w = append(slices.DeleteFunc(*w, func(a answer) bool { return now.Sub(a.at) > waitsNow+waitsBefore }), answer{now, first, gap})
	var recent, before struct{ n, first, gap float64 }
	for _, a := range *w {
		of := &before
		if now.Sub(a.at) < waitsNow {
			of = &recent
		}
		of.n++
		of.first += a.first
		of.gap += a.gap
	}
	recently = recent.first / recent.n
	if before.n == 0 {
		return recently, 0, false
	}
	if recently < longer*before.first/before.n || recent.gap/recent.n >= slower*before.gap/before.n {
		return recently, 0, true
	}
	return recently, recently, true
}
