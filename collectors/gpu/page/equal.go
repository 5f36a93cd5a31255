package page

import (
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// An Equal maps a metric of another exporter to this exporter's metric, so that queries can be rewritten.
type Equal struct {
	// Name is the number's name on the metrics page.
	Name string
	// To is the family. Set has labels of its series.
	To  *metrics.Family
	Set []metrics.Label
	// Carry maps a label of the metrics page to a label of the series. It may be empty.
	Carry metrics.Carry
	// Row is the index in the table. Names with the same Row come from different releases.
	Row int
	// Unit converts the metrics page's number to the family's.
	Unit metrics.Scale
	// Rate marks a number that is the rate of the family, a counter.
	Rate bool
	// Latest marks a number that is the code of the latest event. The family counts such events.
	Latest bool
	// Not explains why the family's number differs, although it is computed from this number. It is empty if the numbers
	// are equal.
	Not string
}

// Equals returns the vocabulary's equivalents of dcgm-exporter's numbers, in the order of the table, under the names of
// all releases.
func Equals() []Equal { return dcgm.equals() }

// EqualLabels maps labels of dcgm-exporter's rows to labels of the vocabulary. These are labels of a GPU's series, of
// llm_gpu_info, of llm_gpu_mig_info or of llm_gpu_driver_info.
func EqualLabels() map[string]string { return dcgm.equalLabels() }

func (s *Source) equals() (all []Equal) {
	for i := range s.Rows {
		r := &s.Rows[i]
		old := Equal{
			Name: r.From.name, To: r.To, Set: r.Set, Carry: r.Carry, Row: i, Unit: r.From.unit, Rate: r.Is == rate,
			Latest: r.Is == latest, Not: r.not(),
		}
		all = append(all, old)
		if newer := old; r.From.renamed != "" {
			newer.Name = r.From.renamed
			if r.From.redefined {
				newer.Unit = plain
			}
			all = append(all, newer)
		}
	}
	return all
}

// not explains why the family of a row does not equal the metrics page's number.
func (r *Row) not() string {
	switch {
	case r.Only != nil:
		return "it is absent for GPUs that it says nothing about"
	case len(r.With) > 0:
		return "it is computed from several numbers"
	case r.Split != nil && r.By == metrics.LabelReason:
		return "the number is a mask of bits, and the family has a series for each of them"
	case r.Split != nil:
		return "the number is a code, and the family has a series for it"
	case r.Carry.Map != nil || r.Is == share:
		return "it does not count the same"
	}
	for _, v := range []float64{1, 2, 7} { // a fold may drop values that are not numbers, but it must not change numbers
		if r.Fold == nil {
			break
		}
		if folded, ok := r.Fold([]float64{v}); !ok || folded != v {
			return "it says only whether the number is above zero"
		}
	}
	return ""
}

func (s *Source) equalLabels() map[string]string {
	to := map[string]string{}
	for ours, theirs := range s.Labels {
		for _, name := range theirs {
			to[name] = ours
		}
	}
	for _, name := range []string{"UUID", "uuid"} {
		if s.UUID(labels.FromStrings(name, "GPU-1")) != "" {
			to[name] = metrics.LabelGPUUUID
		}
	}
	return to
}
