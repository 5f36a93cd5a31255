package metrics

import (
	"math"
	"strconv"
	"strings"
)

// These functions append the Prometheus text format to a buffer. Engines' metrics are written with them, because label strings do not
// change between scrapes. The labels are rendered once, and a scrape only appends numbers. client_golang's encoder would render the labels
// again.

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

// AppendSeries appends a name and its labels. It leaves out labels without a value, because in the Prometheus data
// model an empty label equals a missing label.
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
