package runbooks

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Series is one series in the result of a query.
type Series struct {
	Labels map[string]string
	Value  float64
}

// Asker runs a PromQL query for the present time, and returns at most a given number of series.
type Asker func(ctx context.Context, query string, most int) ([]Series, error)

// shown is the number of series that a runbook shows of a result.
const shown = 20

// queries matches the queries of a runbook.
var queries = regexp.MustCompile("(?ms)^ *```promql\n(.*?)^ *```")

// answer is what a runbook shows below a query: a text, and the series of the result.
type answer struct {
	Says string   `json:"says"`
	Rows []result `json:"rows"`
}

// result is a series of an answer. Fills is a link to the same runbook with placeholders filled in from the series'
// labels. Names lists these labels.
type result struct {
	Value  string `json:"value"`
	Labels string `json:"labels"`
	Fills  string `json:"fills,omitempty"`
	Names  string `json:"names,omitempty"`
}

// serve runs one query of a runbook. number is its position, counted from 0. A client can choose only among the
// runbook's queries, and fill in labels.
func (ask Asker) serve(w http.ResponseWriter, r *http.Request, page []byte, number string, known url.Values) {
	all := queries.FindAllSubmatch(page, -1)
	n, err := strconv.Atoi(number)
	if err != nil || n < 0 || n >= len(all) {
		http.Error(w, fmt.Sprintf("the page has %d queries, numbered from 0", len(all)), http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_ = json.NewEncoder(w).Encode(ask.answer(r.Context(), string(Fill(all[n][1], known)), page, known)) // the reader has left
}

func (ask Asker) answer(ctx context.Context, query string, page []byte, known url.Values) (a answer) {
	if open := placeholder.FindString(query); open != "" {
		a.Says = "Not asked: fill in " + open + " first, by a result with that label or in the address, as in ?" + Labels[open[1:]] + "=VALUE."
		return a
	}
	series, err := ask(ctx, strings.TrimSpace(query), shown+1)
	switch {
	case err != nil:
		a.Says = "No answer: " + err.Error()
		return a
	case len(series) == 0:
		a.Says = "No series has this"
	case len(series) == 1:
		a.Says = "1 series"
	case len(series) > shown:
		a.Says = fmt.Sprintf("The first %d series", shown)
	default:
		a.Says = fmt.Sprintf("%d series", len(series))
	}
	a.Says += " at " + time.Now().UTC().Format("15:04:05 MST") + "."
	obvious := map[string]bool{"__name__": true} // the labels that all results share with the alert
	for label := range known {
		obvious[label] = !slices.ContainsFunc(series, func(s Series) bool { return s.Labels[label] != known.Get(label) })
	}
	for _, s := range series[:min(len(series), shown)] {
		a.Rows = append(a.Rows, s.result(page, known, obvious))
	}
	return a
}

func (s Series) result(page []byte, known url.Values, obvious map[string]bool) result {
	var named, fills []string
	for _, label := range slices.Sorted(maps.Keys(s.Labels)) {
		if !obvious[label] {
			named = append(named, fmt.Sprintf("%s=%q", label, s.Labels[label]))
		}
	}
	more := harmlessLabels(query(s.Labels))
	for _, name := range slices.Sorted(maps.Keys(Labels)) {
		if label := Labels[name]; !known.Has(label) && more.Has(label) && slices.Contains(placeholder.FindAllString(string(page), -1), "$"+name) {
			fills = append(fills, "$"+name)
		}
	}
	to := result{Value: strconv.FormatFloat(s.Value, 'g', 5, 64), Labels: strings.Join(named, ", ")}
	if len(fills) > 0 {
		maps.Copy(more, known)
		to.Fills, to.Names = "?"+more.Encode(), strings.Join(fills, ", ")
	}
	return to
}
