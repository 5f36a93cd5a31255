package metrics

// Scale converts a number of a source to the base unit of its family. Division keeps decimal bounds exact, so 300 ms
// become 0.3 s. Multiplication by a fraction would give 0.30000000000000004 s.
type Scale struct{ Mul, Div float64 }

// These are conversions of units that engines use.
var (
	Millis    = Scale{Div: 1e3}
	Micros    = Scale{Div: 1e6}
	Megabytes = Scale{Mul: 1e6}
)

// Apply converts a value.
func (s Scale) Apply(v float64) float64 {
	if s.Mul != 0 {
		v *= s.Mul
	}
	if s.Div != 0 {
		v /= s.Div
	}
	return v
}

// Carry describes a label mapping: it copies a label of the metrics page to a label of the vocabulary, through Map and
// Outcomes if they are set. Both are optional.
type Carry struct {
	From, To string
	Map      func(string) string
	Outcomes Outcomes
}

// Apply translates a label value of the metrics page into the vocabulary. It returns "" if the vocabulary has no such value.
func (carry Carry) Apply(v string) string {
	if carry.Map != nil && v != "" {
		v = carry.Map(v)
	}
	if carry.Outcomes != nil {
		v = string(carry.Outcomes[v])
	}
	return v
}

// Outcomes maps an engine's names for the ways in which requests end. A name that is not listed counts as unknown, and
// is reported.
type Outcomes map[string]Outcome
