package health

import (
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// view holds the readings of one GPU, or of the parts that the GPUs of a node share.
type view struct {
	at      time.Time
	samples map[*metrics.Family][]*metrics.Sample
	died    bool    // an engine that ran on the GPU within the last minutes has stopped
	links   float64 // highest number of NVLinks that are up on any GPU of the node
}

func newView(at time.Time) *view {
	return &view{at: at, samples: map[*metrics.Family][]*metrics.Sample{}}
}

func (v *view) add(s *metrics.Sample) { v.samples[s.Family] = append(v.samples[s.Family], s) }

// label returns the value of a label of a sample.
func label(s *metrics.Sample, name string) string {
	if i := slices.Index(s.Family.Labels, name); i >= 0 {
		return s.Labels[i]
	}
	return ""
}

// of returns the series of a family with these label values. where alternates names and values.
func (v *view) of(f *metrics.Family, where ...string) []*metrics.Sample {
	var found []*metrics.Sample
	for _, s := range v.samples[f] {
		match := true
		for pair := range slices.Chunk(where, 2) {
			match = match && label(s, pair[0]) == pair[1]
		}
		if match {
			found = append(found, s)
		}
	}
	return found
}

// sum returns the sum of the matching series, and whether there are any.
func (v *view) sum(f *metrics.Family, where ...string) (float64, bool) {
	var sum float64
	all := v.of(f, where...)
	for _, s := range all {
		sum += s.Value
	}
	return sum, len(all) > 0
}

// sumUnless returns the sum of all series except those whose label has the given value.
func (v *view) sumUnless(f *metrics.Family, name, value string) (float64, bool) {
	all, ok := v.sum(f)
	not, _ := v.sum(f, name, value)
	return all - not, ok
}

// most returns the highest value of the matching series, and whether there are any.
func (v *view) most(f *metrics.Family, where ...string) (most float64, known bool) {
	for _, s := range v.of(f, where...) {
		if !known || s.Value > most {
			most, known = s.Value, true
		}
	}
	return most, known
}

// greatest returns the highest of several sums, one for each given value of a label.
func (v *view) greatest(f *metrics.Family, name string, values ...string) (most float64, known bool) {
	for _, value := range values {
		if sum, ok := v.sum(f, name, value); ok {
			most, known = max(most, sum), true
		}
	}
	return most, known
}
