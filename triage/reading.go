package triage

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql"
)

// Reading holds what an exporter served at a time.
type Reading struct {
	At     time.Time
	Series promql.Vector
}

// Parse reads an exporter's page in Prometheus' text format.
func Parse(page []byte, at time.Time) (Reading, error) {
	r := Reading{At: at}
	parser := textparse.NewPromParser(page, labels.NewSymbolTable(), false)
	for {
		switch entry, err := parser.Next(); {
		case errors.Is(err, io.EOF):
			return r, nil
		case err != nil:
			return r, fmt.Errorf("not a page of metrics: %w", err)
		case entry == textparse.EntrySeries:
			_, _, value := parser.Series()
			var series labels.Labels
			parser.Labels(&series)
			r.Series = append(r.Series, promql.Sample{Metric: printable(series), F: value})
		}
	}
}

// printable replaces what is not for print in label values: engines choose them, and a terminal would obey control
// characters.
func printable(series labels.Labels) labels.Labels {
	odd := func(r rune) bool { return !unicode.IsGraphic(r) }
	b := labels.NewBuilder(series)
	series.Range(func(l labels.Label) {
		if strings.ContainsFunc(l.Value, odd) {
			b.Set(l.Name, strings.Map(func(r rune) rune {
				if odd(r) {
					return unicode.ReplacementChar
				}
				return r
			}, l.Value))
		}
	})
	return b.Labels()
}
