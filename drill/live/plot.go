package live

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
)

// plot is a drawing of 1000 by 100 units, with the labels of its axes.
type plot struct {
	X, Y  []string
	Lines []drawnLine
	Cells []cell
}

// drawnLine is a line of a plot, with its row in the table below the plot.
type drawnLine struct {
	Name, Colour, Path, Last, Most string
	Limit                          bool
	last                           float64
}

// cell is a rectangle of a plot.
type cell struct {
	X, Y, Width, Height float64
	Colour              string
	Opacity             float64
}

// lines draws lines. The line that ends highest comes first. Limits are dashed and come last.
func lines(p dashboards.Panel, all []line, v view) *plot {
	var top float64
	most := make([]float64, len(all))
	for i, l := range all {
		for _, f := range l.Floats {
			most[i] = max(most[i], f.F)
		}
		if !l.limit {
			top = max(top, most[i])
		}
	}
	for i, l := range all { // a limit far above the lines would flatten the lines
		if l.limit && most[i] <= 3*top {
			top = max(top, most[i])
		}
	}
	top = cmp.Or(p.Max, nice(top))
	out := &plot{X: v.axis(), Y: []string{write(top, p.Unit), write(top/2, p.Unit), write(0, p.Unit)}}
	below := map[int64]float64{} // the height below a stacked line
	for i, l := range all {
		var path strings.Builder
		gone := int64(0)
		for _, f := range l.Floats {
			at := f.F
			if p.Stacked {
				below[f.T] += f.F
				at = below[f.T]
			}
			command := "L"
			if f.T > gone { // no line is drawn across a gap
				command = "M"
			}
			gone = f.T + 3*v.Step.Milliseconds()/2
			fmt.Fprintf(&path, "%s%.1f %.1f", command, v.x(f.T), 100-100*max(-0.02, min(at/top, 1.02)))
		}
		path.WriteString("h.1") // makes a single point visible
		out.Lines = append(out.Lines, drawnLine{
			Name: cmp.Or(l.name(), p.Title), Colour: cmp.Or(l.query.Colour(),
				dashboards.Palette[i%len(dashboards.Palette)]),
			Path: path.String(), Last: write(l.last(), p.Unit), Most: write(most[i], p.Unit), Limit: l.limit, last: l.last(),
		})
	}
	slices.SortStableFunc(out.Lines, func(a, b drawnLine) int {
		switch {
		case a.Limit == b.Limit:
			return cmp.Compare(b.last, a.last)
		case a.Limit:
			return 1
		}
		return -1
	})
	return out
}

// heatmap draws how many observations each bucket of a histogram has over time. The bucket with the lowest bound comes
// first.
func heatmap(p dashboards.Panel, all []line, v view) *plot {
	slices.SortFunc(all, func(a, b line) int { return cmp.Compare(bound(a), bound(b)) })
	counts, most := make([]map[int64]float64, len(all)), 0.0
	below := map[int64]float64{}
	for i, l := range all {
		counts[i] = map[int64]float64{}
		for _, f := range l.Floats {
			counts[i][f.T] = f.F - below[f.T]
			below[f.T] = f.F
			most = max(most, counts[i][f.T])
		}
	}
	height, width := 100/float64(len(all)), v.x(v.from.Add(v.Step).UnixMilli())
	out := &plot{X: v.axis()}
	for i := len(all) - 1; i >= 0; i -= max(1, (len(all)-1)/3) {
		out.Y = append(out.Y, write(bound(all[i]), p.Unit))
	}
	for i := range all {
		for at, n := range counts[i] {
			if n > 0 {
				out.Cells = append(out.Cells, cell{v.x(at), 100 - height*float64(i+1), width, height, dashboards.Palette[0], math.Sqrt(n / most)})
			}
		}
	}
	return out
}

// bound returns the upper bound of a bucket.
func bound(l line) float64 {
	v, err := strconv.ParseFloat(l.Metric.Get(model.BucketLabel), 64)
	if err != nil {
		return math.Inf(1)
	}
	return v
}

// timeline draws a row for each series, in the colour of its state.
func timeline(p dashboards.Panel, all []line, v view) (rows []states) {
	width := v.x(v.from.Add(v.Step).UnixMilli())
	for _, l := range all {
		r := states{Name: l.name(), Now: "no longer"}
		for _, f := range l.Floats {
			c := cell{X: v.x(f.T), Width: width}
			for _, s := range p.States {
				if float64(s.Value) == f.F {
					c.Colour = s.Colour
				}
			}
			if c.Colour == "" { // no state
				continue
			}
			if n := len(r.Cells); n > 0 && r.Cells[n-1].Colour == c.Colour && r.Cells[n-1].X+r.Cells[n-1].Width > c.X-1 {
				r.Cells[n-1].Width = c.X + width - r.Cells[n-1].X
				continue
			}
			r.Cells = append(r.Cells, c)
		}
		if end := l.Floats[len(l.Floats)-1]; end.T > v.to.Add(-2*v.Step).UnixMilli() {
			r.Now = p.Empty
			for _, s := range p.States {
				if float64(s.Value) == end.F {
					r.Now = s.Name
				}
			}
		}
		rows = append(rows, r)
	}
	return rows
}

// axis returns the labels of a plot's time axis.
func (v view) axis() []string {
	return []string{v.from.Format("15:04"), v.from.Add(v.Range / 2).Format("15:04"), v.to.Format("15:04")}
}

// nice rounds up to 1, 2 or 5 times a power of ten, for the scale of an axis. For 0, it returns 1.
func nice(v float64) float64 {
	if v <= 0 {
		return 1
	}
	unit := math.Pow(10, math.Floor(math.Log10(v)))
	for _, n := range []float64{1, 2, 5} {
		if v <= n*unit {
			return n * unit
		}
	}
	return 10 * unit
}

// prefix names a multiple of a unit. It is used for values of at least from.
type prefix struct {
	from, of float64
	name     string
}

var (
	decimal = []prefix{{1e12, 1e12, "T"}, {1e9, 1e9, "G"}, {1e6, 1e6, "M"}, {1e3, 1e3, "k"}, {0, 1, ""}}
	binary  = []prefix{{1 << 40, 1 << 40, "Ti"}, {1 << 30, 1 << 30, "Gi"}, {1 << 20, 1 << 20, "Mi"}, {1 << 10, 1 << 10, "Ki"}, {0, 1, ""}}
	times   = []prefix{{86400, 86400, " d"}, {3600, 3600, " h"}, {60, 60, " min"}, {1, 1, " s"}, {1e-3, 1e-3, " ms"}, {0, 1e-6, " µs"}}
	// units maps names of units in Grafana to their prefixes and suffixes. If a suffix has no leading space, the prefix is
	// directly before it.
	units = map[string]struct {
		prefixes []prefix
		suffix   string
	}{
		"s": {times, ""}, "suffix:s": {times, ""}, "suffix:x": {nil, "x"}, "short": {decimal, ""}, "none": {decimal, ""},
		"reqps": {decimal, " req/s"}, "bytes": {binary, "B"},
		"Bps": {decimal, "B/s"}, "hertz": {decimal, "Hz"}, "celsius": {nil, " °C"}, "watt": {decimal, "W"}, "joule": {decimal, "J"},
	}
)

// write formats a quantity in one of Grafana's units, with three digits.
func write(v float64, unit string) string {
	u := units[unit]
	if suffix, found := strings.CutPrefix(unit, "count:"); found {
		u.prefixes, u.suffix = decimal, " "+suffix
	}
	switch {
	case unit == "percentunit":
		return digits(100*v) + " %"
	case unit == "currencyUSD":
		return "$" + digits(v)
	case unit == "suffix:x":
		return digits(v) + "x"
	case v == 0 && (unit == "s" || unit == "suffix:s"):
		return "0 s"
	}
	name := ""
	if i := slices.IndexFunc(u.prefixes, func(p prefix) bool { return math.Abs(v) >= p.from }); i >= 0 {
		v /= u.prefixes[i].of
		name = u.prefixes[i].name
	}
	if u.suffix != "" && u.suffix[0] != ' ' {
		name = " " + name
	}
	return digits(v) + name + u.suffix
}

func digits(v float64) string {
	if math.Abs(v) >= 100 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}
