package slo

import (
	"fmt"
	"math/big"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/common/model"
)

// Ratio is a share between 0 and 1, in billionths. Every target that people write is exact, so 99.9% never becomes
// 0.9990000000000001 in a rule or in a text.
type Ratio int64

// One is the ratio 1, the share of all events.
const One Ratio = 1_000_000_000

// ParseRatio reads "99.9%", "99.9" or "0.999". A number above 1 is a percentage.
func ParseRatio(text string) (Ratio, error) {
	number, percent := strings.CutSuffix(strings.TrimSpace(text), "%")
	r, ok := new(big.Rat).SetString(strings.TrimSpace(number))
	if !ok || strings.ContainsAny(number, "/eEpPxX_") {
		return 0, fmt.Errorf("%q is not a share: write it as 99.9%% or 0.999", text)
	}
	if percent || r.Cmp(big.NewRat(1, 1)) > 0 {
		r.Quo(r, big.NewRat(100, 1))
	}
	r.Mul(r, big.NewRat(int64(One), 1))
	if !r.IsInt() || !r.Num().IsInt64() || r.Sign() < 0 || r.Num().Int64() > int64(One) {
		return 0, fmt.Errorf("%q is not a share between 0%% and 100%% with at most nine decimals", text)
	}
	return Ratio(r.Num().Int64()), nil
}

// String returns the ratio as an exact decimal, such as "0.999".
func (r Ratio) String() string { return decimal(r.Rat()) }

// Percent returns the ratio as a percentage, such as "99.9%".
func (r Ratio) Percent() string {
	return decimal(new(big.Rat).Mul(r.Rat(), big.NewRat(100, 1))) + "%"
}

// Rat returns the ratio as an exact rational.
func (r Ratio) Rat() *big.Rat { return big.NewRat(int64(r), int64(One)) }

// Float returns the nearest float64, which is also the result of parsing String.
func (r Ratio) Float() float64 { return float64(r) / float64(One) }

// UnmarshalYAML reads a ratio from a number or a string.
func (r *Ratio) UnmarshalYAML(decode func(any) error) error { return decodeText(decode, ParseRatio, r) }

// MarshalYAML writes the ratio as a percentage.
func (r Ratio) MarshalYAML() (any, error) { return r.Percent(), nil }

// decimal formats a rational without trailing zeros, rounded to nine decimals.
func decimal(r *big.Rat) string {
	s := r.FloatString(9)
	return strings.TrimSuffix(strings.TrimRight(s, "0"), ".")
}

// Duration is a length of time. It is printed as in PromQL, with whole days as days.
type Duration time.Duration

// Day lasts 24 hours.
const Day = 24 * hour

const (
	hour   = Duration(time.Hour)
	minute = Duration(time.Minute)
)

// ParseDuration reads "500ms", "1.5s", "30d" or "4w".
func ParseDuration(text string) (Duration, error) {
	if d, err := model.ParseDuration(text); err == nil {
		return Duration(d), nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 {
		return 0, fmt.Errorf("%q is not a duration: write it as 500ms, 1.5s or 30d", text)
	}
	return Duration(d), nil
}

// String returns the duration in the largest units that keep it exact, such as "30d", "1h30m" or "2.5s". Unlike
// Prometheus, it never turns days into weeks, so 28d stays 28d in names and labels.
func (d Duration) String() string {
	if d == 0 {
		return "0s"
	}
	var b strings.Builder
	for _, u := range []struct {
		name string
		size Duration
	}{{"d", Day}, {"h", hour}, {"m", minute}} {
		if n := d / u.size; n > 0 {
			b.WriteString(strconv.FormatInt(int64(n), 10) + u.name)
			d -= n * u.size
		}
	}
	switch {
	case d == 0:
	case d < Duration(time.Second) && d%Duration(time.Millisecond) == 0:
		b.WriteString(strconv.FormatInt(int64(d/Duration(time.Millisecond)), 10) + "ms")
	default:
		b.WriteString(d.Seconds() + "s")
	}
	return b.String()
}

// Std returns the duration as a time.Duration.
func (d Duration) Std() time.Duration { return time.Duration(d) }

// Seconds returns the duration in seconds as an exact decimal, such as "0.5".
func (d Duration) Seconds() string { return decimal(d.rat()) }

// rat returns the duration in seconds.
func (d Duration) rat() *big.Rat { return big.NewRat(int64(d), int64(time.Second)) }

// UnmarshalYAML reads a duration from a string.
func (d *Duration) UnmarshalYAML(decode func(any) error) error {
	return decodeText(decode, ParseDuration, d)
}

// MarshalYAML writes the duration as String formats it.
func (d Duration) MarshalYAML() (any, error) { return d.String(), nil }

// ParseSeverity reads the severity of an objective: page, ticket or none.
func ParseSeverity(text string) (Severity, error) {
	for _, s := range []Severity{Page, Ticket, None} {
		if s.String() == text {
			return s, nil
		}
	}
	return 0, fmt.Errorf("%q is not a severity of an objective: write page, ticket or none", text)
}

// UnmarshalYAML reads a severity from a string.
func (s *Severity) UnmarshalYAML(decode func(any) error) error {
	return decodeText(decode, ParseSeverity, s)
}

// MarshalYAML writes the severity as String formats it.
func (s Severity) MarshalYAML() (any, error) { return s.String(), nil }

func decodeText[T any](decode func(any) error, parse func(string) (T, error), to *T) error {
	var text string
	if err := decode(&text); err != nil {
		return err
	}
	v, err := parse(text)
	*to = v
	return err
}
