package engine

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
)

// A Reader reads a page that is not an engine's, with the same deadline, limits and reasons as for engines' pages.
// Only one goroutine may use it at a time.
type Reader struct {
	fetcher
	limits  Limits
	timeout time.Duration
}

// NewReader builds a reader for the page of a target; only URL, Timeout, HTTP and Transport are used. path is the
// place of the target that a ConfigError names.
func NewReader(path string, cfg TargetConfig, limits Limits, userAgent string) (*Reader, error) {
	f, _, err := newFetcher(path, cfg, limits, userAgent)
	if err != nil {
		return nil, err
	}
	return &Reader{f, limits, cmp.Or(time.Duration(cfg.Timeout), DefaultTimeout)}, nil
}

// Server returns the host and port of the page, and its path if that is more specific.
func (r *Reader) Server() string { return r.at.server() }

// Read reads the page. ReasonOf returns the reason for its error.
func (r *Reader) Read(ctx context.Context) (*Page, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	body, contentType, err := r.page(ctx, cmp.Or(r.at.page, plainPath))
	if err != nil {
		return nil, err
	}
	return parsePage(body, contentType, r.limits)
}

// ReasonOf returns the reason why a page cannot be used, as in Reasons.
func ReasonOf(err error) string { return reasonOf(err) }

// PageError returns an error with a reason.
func PageError(reason, format string, args ...any) error { return pageError(reason, format, args...) }

// Limits returns the limits of the configuration.
func (c *Collector) Limits() Limits { return c.config.Limits }

// Series yields the series of the page with their names and values, in no particular order.
func (p *Page) Series() iter.Seq2[labels.Labels, float64] {
	return func(yield func(labels.Labels, float64) bool) {
		for _, families := range p.families {
			for _, f := range families {
				for _, s := range f.samples {
					if !yield(s.labels, p.values[s.index]) {
						return
					}
				}
			}
		}
	}
}

// Names lists the first three families of the page, without those about its process, for messages.
func (p *Page) Names() string {
	var names []string
	for _, key := range slices.Sorted(maps.Keys(p.families)) {
		if strings.HasPrefix(key, "python_") || strings.HasPrefix(key, "process_") || strings.HasPrefix(key, "go_") {
			continue
		}
		if len(names) == 3 {
			break
		}
		names = append(names, p.families[key][0].name)
	}
	return strings.Join(names, ", ")
}
