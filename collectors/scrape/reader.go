package scrape

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"time"
)

// A Reader reads the metrics page of one server in the text format, without changes. Only one goroutine may use it at a time.
type Reader struct {
	from    Fetcher
	limits  Limits
	timeout time.Duration
}

// NewReader builds a reader for the metrics page at an address. client sends the requests. timeout limits the time of one reading.
func NewReader(client *http.Client, at *url.URL, timeout time.Duration, limits Limits, userAgent string) *Reader {
	return &Reader{NewFetcher(client, at, Format{}, limits, userAgent), limits, timeout}
}

// Server returns the host and port of the metrics page, with the prefix of its path and its query, if there are any.
func (r *Reader) Server() string { return r.from.At.Server() }

// Read reads the metrics page. ReasonOf returns the reason for its error.
func (r *Reader) Read(ctx context.Context) (*Page, error) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	body, contentType, err := r.from.Page(ctx, cmp.Or(r.from.At.Page, PlainPath))
	if err != nil {
		return nil, err
	}
	return r.from.Format.Parse(body, contentType, r.limits)
}
