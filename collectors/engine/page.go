package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"
)

// Limits bound what a page may cost. An engine page is untrusted input.
type Limits struct {
	// BodyBytes is the maximum size of a page after decompression.
	BodyBytes int64
	// Series is the maximum number of series on a page, mapped or not.
	Series int
	// LabelValueBytes is the maximum length of a label value that is carried over.
	LabelValueBytes int
	// Memory is the maximum that the pages of all engines hold together, in bytes. 0: no limit.
	Memory int64
}

// DefaultLimits leave ample room for sixteen data-parallel ranks of vLLM (0.6 MB, 5,400 series) on fifty engines.
var DefaultLimits = Limits{BodyBytes: 16 << 20, Series: 50_000, LabelValueBytes: 1024, Memory: 320 << 20}

// maxSeriesBytes bounds the name and labels of one series, mapped or not. vLLM lists LoRA adapters in a label value,
// so the limit is far above any label that is carried over.
const maxSeriesBytes = 64 << 10

// A Page holds one scraped exposition, as far as recognising and mapping need it.
type Page struct {
	families   map[string][]*family
	prefixes   map[string]bool
	values     []float64   // by index of the series on the page
	timestamps bool        // some series has a timestamp
	duplicates []duplicate // series that appear twice on the page
	announced  []*family   // their types are declared, and they have no series yet
}

type duplicate struct {
	series        string
	first, second int // indices on the page
}

type family struct {
	name    string // as on the page, without histogram suffixes; separators as the engine writes them
	kind    Type   // "" if the page does not declare one
	samples []sample
}

type sample struct {
	index  int    // index of the series on the page
	suffix string // bucket, sum or count for histograms
	labels labels.Labels
}

// Has reports whether the page has a family of that name.
func (p *Page) Has(name string) bool { return len(p.families[familyKey(name)]) > 0 }

// HasPrefix reports whether the page has a family whose name starts with prefix, which must end at
// the first colon or underscore of the name: vllm:, sglang:, tgi_, nv_.
func (p *Page) HasPrefix(prefix string) bool { return p.prefixes[prefix] }

// LabelValues returns the distinct values of a label over all series of a family, "" for series without it.
func (p *Page) LabelValues(name, label string) map[string]bool {
	out := map[string]bool{}
	for _, f := range p.families[familyKey(name)] {
		for _, s := range f.samples {
			out[s.labels.Get(label)] = true
		}
	}
	return out
}

// find returns the family that a row reads. If only a family of another type is there, it returns that one for the
// caller to refuse.
func (p *Page) find(name string, is Type) *family {
	var best *family
	for _, f := range p.families[familyKey(name)] {
		switch {
		case f.name == name && f.kind == is:
			return f
		case best == nil, best.kind != is && (f.kind == is || f.kind == ""):
			best = f
		}
	}
	return best
}

// familyKey returns the name without _total: engines, proxies and Go imitations disagree about the suffix.
func familyKey(name string) string { return strings.TrimSuffix(name, "_total") }

// colon returns a Restore for an engine that ends its prefix with a colon, which Ray and OpenTelemetry rewrite to an
// underscore: ray_vllm_x and vllm_x become vllm:x. It leaves names alone that begin with one of except.
func colon(prefix string, except ...string) func(map[string]*family) {
	return func(byName map[string]*family) {
		for _, f := range byName {
			bare := strings.TrimPrefix(f.name, "ray_")
			rest, ok := strings.CutPrefix(bare, prefix)
			if ok && len(rest) > 1 && (rest[0] == '_' || rest[0] == ':') &&
				!slices.ContainsFunc(except, func(e string) bool { return strings.HasPrefix(bare, e) }) {
				f.name = prefix + ":" + rest[1:]
			}
		}
	}
}

// unusableError reports a page that was fetched but cannot be used. Reason is the value of the reason label.
type unusableError struct {
	Reason string
	Err    error
}

func (e *unusableError) Error() string { return e.Err.Error() }
func (e *unusableError) Unwrap() error { return e.Err }

func pageError(reason, format string, args ...any) error {
	return &unusableError{reason, fmt.Errorf(format, args...)}
}

// sanitise prepares the body of an answer for the parser: it repairs what engines are known to send, and refuses what
// is no page in the text format or was cut off.
func sanitise(body []byte, path, contentType string) (_ []byte, err error) {
	for _, d := range builtin {
		if d.Repair != nil {
			if body, err = d.Repair(body); err != nil {
				return nil, err
			}
		}
	}
	switch trimmed := bytes.TrimLeft(body, " \t\r\n"); {
	case strings.Contains(contentType, "protobuf"):
		return nil, pageError(reasonNotMetrics, "%s answers in protobuf (%s) though text was asked for: switch the engine or the proxy before it to the text format", path, contentType)
	case len(trimmed) > 0 && trimmed[0] == '[':
		return nil, pageError(reasonJSON, "%s answers with a JSON list, not with metrics", path)
	case len(trimmed) > 0 && (trimmed[0] == '<' || trimmed[0] == '{' && contentType != "text/plain"):
		return nil, pageError(reasonNotMetrics, "%s answers with %s, not with metrics", path, contentType)
	}
	if !utf8.Valid(body) {
		return nil, pageError(reasonParse, "line %d: invalid UTF-8", invalidLine(body))
	}
	if len(body) > 0 && body[len(body)-1] != '\n' {
		return nil, pageError(reasonParse, "line %d: page does not end with a line feed: truncated", 1+bytes.Count(body, []byte("\n")))
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

// newParser picks the parser for a content type. Engines announce text in versions that no library accepts (vLLM:
// version=1.0.0), so everything except OpenMetrics is read as the text format.
func newParser(body []byte, contentType string, st *labels.SymbolTable) textparse.Parser {
	if strings.HasPrefix(contentType, "application/openmetrics-text") {
		return textparse.NewOpenMetricsParser(body, st)
	}
	return textparse.NewPromParser(body, st, false)
}

// parsePage reads a whole sanitised body. It is the slow path: a page that differs from the last one only in its
// numbers is read through a template.
func parsePage(body []byte, contentType string, limits Limits) (*Page, error) {
	page := &Page{families: map[string][]*family{}, prefixes: map[string]bool{}}
	var (
		seen   = map[string]int{} // by labels in page order
		key    []byte
		kinds  = map[string]Type{}
		byName = map[string]*family{}
		parser = newParser(body, contentType, labels.NewSymbolTable())
	)
	for {
		entry, err := parser.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, pageError(reasonParse, "line %d: %w", errorLine(body, contentType), shorten(err))
		}
		switch entry {
		case textparse.EntryType:
			name, kind := parser.Type()
			if kind != model.MetricTypeUnknown {
				kinds[string(name)] = Type(kind)
			}
		case textparse.EntrySeries:
			raw, timestamp, value := parser.Series()
			s := sample{index: len(page.values)}
			if err := checkSeries(raw, s.index, limits); err != nil {
				return nil, err
			}
			page.values = append(page.values, value)
			page.timestamps = page.timestamps || timestamp != nil
			parser.Labels(&s.labels)
			key = s.labels.Bytes(key)
			if first, twice := seen[string(key)]; twice {
				page.duplicates = append(page.duplicates, duplicate{string(raw), first, s.index})
			}
			seen[string(key)] = s.index
			name, suffix := splitName(s.labels.Get(model.MetricNameLabel), kinds, s.labels.Has(labels.BucketLabel))
			s.suffix = suffix
			f := byName[name]
			if f == nil {
				f = &family{name: name, kind: kinds[name]}
				if f.kind == "" && suffix != "" {
					f.kind = Histogram
				}
				byName[name] = f
			}
			f.samples = append(f.samples, s)
		}
	}
	for name, f := range byName {
		adoptSumAndCount(byName, name, f)
	}
	for name, kind := range kinds {
		if byName[name] == nil {
			byName[name] = &family{name: name, kind: kind}
		}
	}
	for _, d := range builtin {
		if d.Restore != nil {
			d.Restore(byName)
		}
	}
	for _, f := range byName {
		switch {
		case len(f.samples) > 0:
			page.add(f)
		case f.kind != "":
			page.announced = append(page.announced, f)
		}
	}
	return page, nil
}

func (p *Page) add(f *family) {
	key := familyKey(f.name)
	p.families[key] = append(p.families[key], f)
	if i := strings.IndexAny(f.name, ":_"); i >= 0 {
		p.prefixes[f.name[:i+1]] = true
	}
}

// promised returns the page as far as it has no series yet: Python's client declares a family with labels when it is made, and
// writes a series with the first value.
func (p *Page) promised() *Page {
	page := &Page{families: map[string][]*family{}, prefixes: map[string]bool{}}
	for _, f := range p.announced {
		page.add(f)
	}
	return page
}

// adoptSumAndCount completes a histogram of a page that declares no types: its buckets were recognised by their le
// label, and its sum and count stand beside them as separate families.
func adoptSumAndCount(byName map[string]*family, name string, f *family) {
	if f.kind != Histogram {
		return
	}
	for _, suffix := range []string{"sum", "count"} {
		part := byName[name+"_"+suffix]
		if part == nil || part.kind != "" {
			continue
		}
		for _, s := range part.samples {
			s.suffix = suffix
			f.samples = append(f.samples, s)
		}
		part.samples = nil
	}
}

func checkSeries(raw []byte, n int, limits Limits) error {
	if n >= limits.Series {
		return pageError(reasonLimit, "more than %d series: raise limits.series if the engine is right", limits.Series)
	}
	if len(raw) > maxSeriesBytes {
		return pageError(reasonLimit, "series %.60q has %d bytes of labels, more than %d", raw, len(raw), maxSeriesBytes)
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

// errorLine finds the first line that the parser refuses. Only failed pages pay for it.
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

// shorten keeps a parser's message readable when it quotes a long line.
func shorten(err error) error {
	const most = 200
	if s := err.Error(); len(s) > most {
		return errors.New(strings.ToValidUTF8(s[:most], "") + "…")
	}
	return err
}
