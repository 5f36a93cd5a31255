// Package scrape fetches a server's metrics page and reads the Prometheus text format, within limits. The input is untrusted. The package
// imports nothing from this project, because both engines and other exporters are read through it.
//
//	Fetcher   requests metrics pages and documents of one server   fetch.go, address.go
//	Format    how writers deviate from the text format             page.go
//	Page      families and series of one metrics page              page.go
//	Template  a metrics page without its numbers, the fast path    template.go
//	Reader    reads one server with all of these                   reader.go
//	reasons   why a metrics page cannot be used                    reason.go
package scrape

import (
	"bytes"
	"errors"
	"io"
	"iter"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// A Format describes how the writers of some metrics pages deviate from the text format. The zero value describes the plain text format.
type Format struct {
	// Repair makes a body readable. It is called for every body.
	Repair func(body []byte) ([]byte, error)
	// Restore restores the names of families and labels that the server itself writes. It is called for every metrics
	// page.
	Restore func(byName map[string]*Family)
	// Refusal returns the reason for an answer other than 200, from the type and the message of the error in its JSON
	// body. It returns an empty string if the answer shows only the status.
	Refusal func(status int, kind, message string) (reason string)
	// Paths lists the paths, besides /metrics, at which these servers serve their metrics pages.
	Paths []string
}

// Limits limit the cost of a metrics page, because a metrics page is untrusted input.
type Limits struct {
	// BodyBytes is the maximum size of a metrics page after decompression.
	BodyBytes int64
	// Series is the maximum number of series on a metrics page, mapped or not.
	Series int
	// LabelValueBytes is the maximum length of a label value. Longer values are cut.
	LabelValueBytes int
	// Memory is the maximum memory for the metrics pages of all engines together, in bytes. 0 means no limit.
	Memory int64
}

// DefaultLimits leave ample room for sixteen data-parallel ranks of vLLM (0.6 MB, 5,400 series) on each of fifty engines.
var DefaultLimits = Limits{BodyBytes: 16 << 20, Series: 50_000, LabelValueBytes: 1024, Memory: 320 << 20}

// maxSeriesBytes limits the name and labels of one series, mapped or not. vLLM lists LoRA adapters in a label value, so
// the limit is far above the length of any mapped label.
const maxSeriesBytes = 64 << 10

// A Page is one scraped exposition, with all data that recognition and mapping need.
type Page struct {
	Families   map[string][]*Family // by FamilyKey
	Values     []float64            // by index of the series on the metrics page
	Duplicates []Duplicate
	prefixes   map[string]bool
	timestamps bool      // at least one series has a timestamp
	announced  []*Family // families that are declared but have no series yet
}

// A Duplicate is a series that a metrics page has twice.
type Duplicate struct {
	Series        string
	First, Second int // indices on the metrics page
}

// A Family holds the series of one name and one type.
type Family struct {
	Name    string // as on the metrics page, without histogram suffixes, but with the engine's own separators
	Kind    Type   // empty if the metrics page declares no type
	Samples []Sample
}

// A Sample is one series of a family. Its value is in Page.Values.
type Sample struct {
	Index  int    // index of the series on the metrics page
	Suffix string // bucket, sum or count for histograms
	Labels labels.Labels
}

// Type is the type of a family, as on # TYPE lines.
type Type string

// These are the types of the text format that are read.
const (
	Counter   Type = "counter"
	Gauge     Type = "gauge"
	Histogram Type = "histogram"
	Summary   Type = "summary"
)

// Has reports whether the metrics page has a family of that name.
func (p *Page) Has(name string) bool { return len(p.Families[FamilyKey(name)]) > 0 }

// HasPrefix reports whether the metrics page has a family whose name starts with prefix. The prefix must end at the
// first colon or underscore of the name, as in vllm:, sglang:, tgi_ and nv_.
func (p *Page) HasPrefix(prefix string) bool { return p.prefixes[prefix] }

// LabelValues returns the distinct values of a label over all series of a family. For series without the label, the value is "".
func (p *Page) LabelValues(name, label string) map[string]bool {
	out := map[string]bool{}
	for _, f := range p.Families[FamilyKey(name)] {
		for _, s := range f.Samples {
			out[s.Labels.Get(label)] = true
		}
	}
	return out
}

// Find returns the family of a name and a type. If there is only a family of another type, it returns that family, and
// the caller must refuse it.
func (p *Page) Find(name string, is Type) *Family {
	var best *Family
	for _, f := range p.Families[FamilyKey(name)] {
		switch {
		case f.Name == name && f.Kind == is:
			return f
		case best == nil, best.Kind != is && (f.Kind == is || f.Kind == ""):
			best = f
		}
	}
	return best
}

// FamilyKey returns the name without _total, because engines, proxies and Go imitations disagree about the suffix.
func FamilyKey(name string) string { return strings.TrimSuffix(name, "_total") }

// Sanitise prepares the body of an answer for Parse. It repairs known mistakes of engines, and refuses a body that was
// cut off or is not in the text format. path appears in messages.
func (f *Format) Sanitise(body []byte, path, contentType string) (_ []byte, err error) {
	if f.Repair != nil {
		if body, err = f.Repair(body); err != nil {
			return nil, err
		}
	}
	switch trimmed := bytes.TrimLeft(body, " \t\r\n"); {
	case strings.Contains(contentType, "protobuf"):
		return nil, Errorf(NotMetrics,
			"%s answers in protobuf (%s) although text was requested: switch the engine, or the proxy in front of it, to the text format",
			path, contentType)
	case len(trimmed) > 0 && trimmed[0] == '[':
		return nil, Errorf(JSONMetrics, "%s answers with a JSON list, not with metrics", path)
	case len(trimmed) > 0 && (trimmed[0] == '<' || trimmed[0] == '{' && contentType != "text/plain"):
		return nil, Errorf(NotMetrics, "%s answers with %s, not with metrics", path, contentType)
	}
	if !utf8.Valid(body) {
		return nil, Errorf(ParseError, "line %d: invalid UTF-8", invalidLine(body))
	}
	if len(body) > 0 && body[len(body)-1] != '\n' {
		return nil, Errorf(ParseError, "line %d: the answer is truncated, because it does not end with a line feed",
			1+bytes.Count(body, []byte("\n")))
	}
	return body, nil
}

func invalidLine(body []byte) int {
	line := 1
	for l := range bytes.Lines(body) {
		if !utf8.Valid(l) {
			break
		}
		line++
	}
	return line
}

// newParser picks the parser for a content type. Engines announce versions of the text format that no library accepts
// (vLLM: version=1.0.0), so everything except OpenMetrics is read as the text format.
func newParser(body []byte, contentType string, st *labels.SymbolTable) textparse.Parser {
	if strings.HasPrefix(contentType, "application/openmetrics-text") {
		return textparse.NewOpenMetricsParser(body, st)
	}
	return textparse.NewPromParser(body, st, false)
}

// Parse reads a whole body that Sanitise has returned. It is the slow path. If only the numbers have changed since the
// last metrics page, the page is read through a template instead. Errors have the reasons ParseError and LimitExceeded.
func (f *Format) Parse(body []byte, contentType string, limits Limits) (*Page, error) {
	page := &Page{Families: map[string][]*Family{}, prefixes: map[string]bool{}}
	var (
		seen   = map[string]int{} // by labels in the order of the metrics page
		key    []byte
		kinds  = map[string]Type{}
		byName = map[string]*Family{}
		parser = newParser(body, contentType, labels.NewSymbolTable())
	)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, Errorf(ParseError, "line %d: %w", errorLine(body, contentType), shorten(err))
		}
		switch entry { //nolint:exhaustive // all other entries are for people
		case textparse.EntryType:
			name, kind := parser.Type()
			if kind != model.MetricTypeUnknown {
				kinds[string(name)] = Type(kind)
			}
		case textparse.EntrySeries:
			raw, timestamp, value := parser.Series()
			s := Sample{Index: len(page.Values)}
			if err := checkSeries(raw, s.Index, limits); err != nil {
				return nil, err
			}
			page.Values = append(page.Values, value)
			page.timestamps = page.timestamps || timestamp != nil
			parser.Labels(&s.Labels)
			key = s.Labels.Bytes(key)
			if first, twice := seen[string(key)]; twice {
				page.Duplicates = append(page.Duplicates, Duplicate{string(raw), first, s.Index})
			}
			seen[string(key)] = s.Index
			name, suffix := splitName(s.Labels.Get(model.MetricNameLabel), kinds, s.Labels.Has(labels.BucketLabel))
			s.Suffix = suffix
			of := byName[name]
			if of == nil {
				of = &Family{Name: name, Kind: kinds[name]}
				if of.Kind == "" && suffix != "" {
					of.Kind = Histogram
				}
				byName[name] = of
			}
			of.Samples = append(of.Samples, s)
		}
	}
	for name, f := range byName {
		adoptSumAndCount(byName, name, f)
	}
	for name, kind := range kinds {
		if byName[name] == nil {
			byName[name] = &Family{Name: name, Kind: kind}
		}
	}
	if f.Restore != nil {
		f.Restore(byName)
	}
	for _, f := range byName {
		switch {
		case len(f.Samples) > 0:
			page.add(f)
		case f.Kind != "":
			page.announced = append(page.announced, f)
		}
	}
	return page, nil
}

func (p *Page) add(f *Family) {
	key := FamilyKey(f.Name)
	p.Families[key] = append(p.Families[key], f)
	if i := strings.IndexAny(f.Name, ":_"); i >= 0 {
		p.prefixes[f.Name[:i+1]] = true
	}
}

// Promised returns the families that the metrics page declares but that have no series yet. Python's client declares a
// family with labels when the family is created, and writes a series with the first value.
func (p *Page) Promised() *Page {
	page := &Page{Families: map[string][]*Family{}, prefixes: map[string]bool{}}
	for _, f := range p.announced {
		page.add(f)
	}
	return page
}

// adoptSumAndCount completes a histogram of a metrics page that declares no types. The le label identifies the buckets,
// but sum and count appear as separate families.
func adoptSumAndCount(byName map[string]*Family, name string, f *Family) {
	if f.Kind != Histogram {
		return
	}
	for _, suffix := range []string{"sum", "count"} {
		part := byName[name+"_"+suffix]
		if part == nil || part.Kind != "" {
			continue
		}
		for _, s := range part.Samples {
			s.Suffix = suffix
			f.Samples = append(f.Samples, s)
		}
		part.Samples = nil
	}
}

func checkSeries(raw []byte, n int, limits Limits) error {
	if n >= limits.Series {
		return Errorf(LimitExceeded, "more than %d series: raise limits.series if this is normal", limits.Series)
	}
	if len(raw) > maxSeriesBytes {
		return Errorf(LimitExceeded, "series %.60q has %d bytes of labels, more than %d", raw, len(raw), maxSeriesBytes)
	}
	return nil
}

// splitName separates the suffix of a histogram's sample from the family's name.
func splitName(name string, kinds map[string]Type, hasBucket bool) (family, suffix string) {
	if _, declared := kinds[name]; declared {
		return name, ""
	}
	i := strings.LastIndexByte(name, '_')
	if i < 0 {
		return name, ""
	}
	base, suffix := name[:i], name[i+1:]
	kind, declared := kinds[base]
	switch suffix {
	case "bucket":
		if kind == Histogram || !declared && hasBucket {
			return base, suffix
		}
	case "sum", "count":
		if kind == Histogram || kind == Summary {
			return base, suffix
		}
	case "total": // OpenMetrics declares counters without the suffix
		if kind == Counter {
			return base, ""
		}
	}
	return name, ""
}

// errorLine finds the first line that the parser refuses. It runs only if a metrics page cannot be parsed.
func errorLine(body []byte, contentType string) int {
	line, st := 0, labels.NewSymbolTable()
	for l := range bytes.Lines(body) {
		line++
		parser := newParser(bytes.Clone(l), contentType, st)
		if _, err := parser.Next(); err != nil && !errors.Is(err, io.EOF) {
			return line
		}
	}
	return line
}

// shorten keeps a parser's message readable if it quotes a long line.
func shorten(err error) error {
	const most = 200
	if s := err.Error(); len(s) > most {
		return errors.New(strings.ToValidUTF8(s[:most], "") + "…")
	}
	return err
}

// Series yields the series of the metrics page with their names and values, in no particular order.
func (p *Page) Series() iter.Seq2[labels.Labels, float64] {
	return func(yield func(labels.Labels, float64) bool) {
		for _, families := range p.Families {
			for _, f := range families {
				for _, s := range f.Samples {
					if !yield(s.Labels, p.Values[s.Index]) {
						return
					}
				}
			}
		}
	}
}

// Names lists the first three families of the metrics page for error messages. It leaves out families about the process.
func (p *Page) Names() string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(p.Families)) {
		if strings.HasPrefix(key, "python_") || strings.HasPrefix(key, "process_") || strings.HasPrefix(key, "go_") {
			continue
		}
		if len(names) == 3 {
			break
		}
		names = append(names, p.Families[key][0].Name)
	}
	return strings.Join(names, ", ")
}
