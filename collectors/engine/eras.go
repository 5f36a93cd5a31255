package engine

import (
	"math"
	"slices"
	"strconv"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// An Era spans consecutive versions of an engine that have the same sources for every quantity.
type Era struct {
	// Since is the first version. It is empty if no row of the dialect names this version.
	Since string
	// Rows holds the sources of each quantity, in the order in which they are tried. A quantity without rows is not
	// reported.
	Rows map[*metrics.Family][]*Row
}

// Eras lists the eras of an engine, oldest first. Versions that report nothing are not part of any era.
func (d *Dialect) Eras() []Era {
	eras := []Era{d.era(Version{parts: []int{-1}})} // older than any version
	for _, since := range d.changes() {
		next := d.era(since)
		if last := eras[len(eras)-1]; !equalRows(last.Rows, next.Rows) {
			eras = append(eras, next)
		}
	}
	if len(eras) > 1 && len(eras[0].Rows) == 0 {
		eras = eras[1:]
	}
	return eras
}

// changes lists the versions in which a row of the dialect begins to apply or no longer applies.
func (d *Dialect) changes() (all []Version) {
	for i := range d.Rows {
		if v, ok := ParseVersion(d.Rows[i].Since); ok {
			all = append(all, v)
		}
		if v, ok := ParseVersion(d.Rows[i].Until); ok {
			all = append(all, v.next())
		}
	}
	slices.SortStableFunc(all, Version.Compare)
	return slices.CompactFunc(all, func(v, w Version) bool { return v.Compare(w) == 0 })
}

// era returns the rows that the dialect reads on the metrics page of one version.
func (d *Dialect) era(v Version) Era {
	e := Era{Since: v.text, Rows: map[*metrics.Family][]*Row{}}
	for to, rows := range quantities(d) {
		sure := false // the following rows apply only to metrics pages that lack a source of their version
		for _, r := range rows {
			if (r.Plus || !sure) && exactly(v).overlaps(r.Since, r.Until) {
				e.Rows[to] = append(e.Rows[to], r)
				sure = sure || r.Absent == "" && !r.Plus
			}
		}
	}
	return e
}

func equalRows(a, b map[*metrics.Family][]*Row) bool {
	for _, f := range metrics.All() {
		if !slices.Equal(a[f], b[f]) {
			return false
		}
	}
	return true
}

// next returns the earliest version after v: a patch release, or the first release after the line 0.11.x.
func (v Version) next() Version {
	part := func(i int) string { return strconv.Itoa(v.parts[i]) }
	up := func(i int) string { return strconv.Itoa(v.parts[i] + 1) }
	text := part(0) + "." + part(1) + "." + up(2)
	switch {
	case v.text[0] == 'b':
		text = "b" + up(0)
	case v.parts[1] == math.MaxInt32:
		text = up(0) + ".0.0"
	case v.parts[2] == math.MaxInt32:
		text = part(0) + "." + up(1) + ".0"
	case v.parts[3] == phases["rc"]:
		text = part(0) + "." + part(1) + "." + part(2) + "rc" + up(4)
	}
	next, _ := ParseVersion(text)
	return next
}
