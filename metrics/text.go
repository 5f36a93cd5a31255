package metrics

import (
	"math"
	"strconv"
	"strings"
)

// The Prometheus text format, appended to a buffer. The engines' metrics pages are written this way and not through client_golang's
// encoder because their label strings do not change between scrapes: they are rendered once, and a scrape only appends numbers.

var (
	helpEscaper  = strings.NewReplacer(`\`, `\\`, "\n", `\n`)
	labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
)

// AppendHeader appends the # HELP and # TYPE lines of a family.
func AppendHeader(b []byte, f *Family) []byte {
	b = append(b, "# HELP "...)
	b = append(b, f.Name...)
	b = append(b, ' ')
	b = append(b, helpEscaper.Replace(f.Help)...)
	b = append(b, "\n# TYPE "...)
	b = append(b, f.Name...)
	b = append(b, ' ')
	b = append(b, f.Kind.String()...)
	return append(b, '\n')
}

// A Label holds the name and value of one label of a series.
type Label struct{ Name, Value string }

// AppendSeries appends a name and its labels. It leaves out labels without a value: in the Prometheus data model, an
// empty label and a missing one are the same.
func AppendSeries(b []byte, name string, labels ...Label) []byte {
	b = append(b, name...)
	sep := byte('{')
	for _, l := range labels {
		if l.Value == "" {
			continue
		}
		b = append(b, sep)
		b = append(b, l.Name...)
		b = append(b, `="`...)
		b = append(b, labelEscaper.Replace(l.Value)...)
		b = append(b, '"')
		sep = ','
	}
	if sep == ',' {
		b = append(b, '}')
	}
	return b
}

// AppendValue appends a space, a sample value and the end of the line.
func AppendValue(b []byte, v float64) []byte {
	b = append(b, ' ')
	if v == math.Trunc(v) && math.Abs(v) < 1e15 {
		b = strconv.AppendInt(b, int64(v), 10)
	} else {
		b = appendFloat(b, v)
	}
	return append(b, '\n')
}

func appendFloat(b []byte, v float64) []byte {
	switch {
	case math.IsInf(v, 1):
		return append(b, "+Inf"...)
	case math.IsInf(v, -1):
		return append(b, "-Inf"...)
	}
	return strconv.AppendFloat(b, v, 'g', -1, 64)
}

// FormatBound writes the bound of a histogram bucket as client_golang does: "1", "0.5", "+Inf".
func FormatBound(v float64) string { return string(appendFloat(nil, v)) }
