package slo

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Maintenance declares an interval in which failures are expected and spend no budget.
type Maintenance struct {
	From Moment `yaml:"from"`
	To   Moment `yaml:"to"`
	// Reason describes the work.
	Reason string `yaml:"reason"`
	// Select restricts the maintenance to some engines. If empty, it applies to all engines.
	Select Selector `yaml:"select,omitempty"`
	// Objectives restricts the maintenance to some objectives, by name. If empty, it applies to all objectives.
	Objectives []string `yaml:"objectives,omitempty"`
}

// MaxMaintenance limits the length of an interval. If failures are expected for longer, the objective should change.
const MaxMaintenance = 7 * Day

// On reports whether the interval is in progress.
func (m Maintenance) On(now time.Time) bool { return !now.Before(m.From.Time) && now.Before(m.To.Time) }

// State returns "coming", "on" or "over".
func (m Maintenance) State(now time.Time) string {
	switch {
	case m.On(now):
		return "on"
	case now.Before(m.From.Time):
		return "coming"
	}
	return "over"
}

// Covers reports whether the interval applies to an objective.
func (m Maintenance) Covers(o Objective) bool {
	return len(m.Objectives) == 0 || slices.Contains(m.Objectives, o.Name)
}

// Moment is a point in time with its time zone.
type Moment struct{ time.Time }

// ParseMoment reads "2026-10-01T22:00:00Z" or "2026-10-02T00:00:00+02:00".
func ParseMoment(text string) (Moment, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return Moment{}, fmt.Errorf("%q is not a time: write it with its zone, as 2026-10-01T22:00:00Z", text)
	}
	return Moment{t}, nil
}

// String formats the moment in the form that ParseMoment reads.
func (m Moment) String() string { return m.Format(time.RFC3339) }

// UnmarshalYAML reads a moment from a string.
func (m *Moment) UnmarshalYAML(decode func(any) error) error {
	return decodeText(decode, ParseMoment, m)
}

// MarshalYAML writes the moment as String formats it.
func (m Moment) MarshalYAML() (any, error) { return m.String(), nil }

// CheckMaintenance checks intervals of maintenance against the objectives to which they may apply.
func CheckMaintenance(intervals []Maintenance, objectives []Objective, now time.Time) []Finding {
	c := checker{}
	for i, m := range intervals {
		at := fmt.Sprintf("maintenance[%d]", i)
		switch length := Duration(m.To.Sub(m.From.Time)); {
		case m.From.IsZero() || m.To.IsZero():
			c.fatal(at, "needs from and to")
		case length <= 0:
			c.fatal(at+".to", "is not after from")
		case length > MaxMaintenance:
			c.fatal(at+".to", "is more than %s after from: change the objective instead, or declare the parts", MaxMaintenance)
		case m.State(now) == "over":
			c.warn(at+".to", "is over and does nothing any more: remove it")
		}
		if strings.TrimSpace(m.Reason) == "" {
			c.fatal(at+".reason", "is missing: say what is done, for who reads why nothing was counted")
		}
		c.selector(at+".select", m.Select)
		for _, name := range m.Objectives {
			if !slices.ContainsFunc(objectives, func(o Objective) bool { return o.Name == name }) {
				c.fatal(at+".objectives", "there is no objective %q", name)
			}
		}
	}
	return c.found
}
