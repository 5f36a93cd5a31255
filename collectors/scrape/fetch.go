package scrape

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"syscall"
	"time"
)

// accept requests the classic text format. If it also accepted OpenMetrics, Python's client would answer in that format
// and change names.
const accept = "text/plain;version=0.0.4;q=1,*/*;q=0.1"

// MaxDocumentBytes limits the size of JSON answers of metadata endpoints.
const MaxDocumentBytes = 1 << 20

// maxKeptBytes limits the buffer that is kept for the next metrics page, because one huge metrics page may have
// enlarged the buffer.
const maxKeptBytes = 4 << 20

// A Fetcher sends requests to one server. Only one goroutine may use it at a time.
type Fetcher struct {
	Client    *http.Client
	At        Address
	Format    Format
	UserAgent string
	maxBytes  int64
	buf       bytes.Buffer // body of the metrics page; reused
}

// NewFetcher returns a Fetcher for the server at an address. client must not follow redirects to other hosts: see httpclient.To.
func NewFetcher(client *http.Client, at *url.URL, format Format, limits Limits, userAgent string) Fetcher {
	return Fetcher{Client: client, At: newAddress(at, format.Paths), Format: format, UserAgent: userAgent, maxBytes: limits.BodyBytes}
}

// Forget drops the buffer that is kept for the next metrics page.
func (f *Fetcher) Forget() { f.buf = bytes.Buffer{} }

func (f *Fetcher) request(ctx context.Context, path, query, accept string) (*http.Response, error) {
	return f.send(ctx, http.MethodGet, path, query, accept, nil)
}

func (f *Fetcher) send(ctx context.Context, method, path, query, accept string, body []byte) (*http.Response, error) {
	u := f.At.Base.JoinPath(path)
	u.RawQuery = query
	req, err := http.NewRequestWithContext(ctx, method, u.String(), bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	req.Header.Set("Accept", accept)
	req.Header.Set("Accept-Encoding", "gzip")
	req.Header.Set("User-Agent", f.UserAgent)
	if deadline, ok := ctx.Deadline(); ok {
		req.Header.Set("X-Prometheus-Scrape-Timeout-Seconds", strconv.FormatFloat(time.Until(deadline).Seconds(), 'f', 3, 64))
	}
	return f.Client.Do(req)
}

// Page fetches the metrics page at a path. The body is valid until the next call. ReasonOf returns the reason for an error.
func (f *Fetcher) Page(ctx context.Context, path string) (body []byte, contentType string, err error) {
	return f.PageAt(ctx, path, f.At.Query)
}

// PageAt fetches a metrics page with the given query in place of the address's query.
func (f *Fetcher) PageAt(ctx context.Context, path, query string) (body []byte, contentType string, err error) {
	resp, err := f.request(ctx, path, query, accept)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, "", f.Format.refused(resp)
	}
	contentType, _, _ = mime.ParseMediaType(resp.Header.Get("Content-Type"))
	size := f.buf.Len() // size of the last metrics page
	if n := resp.ContentLength; 0 < n && n <= f.maxBytes && resp.Header.Get("Content-Encoding") == "" {
		size = int(n)
	}
	size = min(size, maxKeptBytes) + bytes.MinRead
	if f.buf.Reset(); f.buf.Cap() < size || f.buf.Cap() > size+size/8 {
		f.buf = *bytes.NewBuffer(make([]byte, 0, size+size/32)) // leaves room for longer numbers, so that the buffer need not double
	}
	switch err := readBounded(&f.buf, resp, f.maxBytes); {
	case errors.Is(err, syscall.ECONNRESET):
		return nil, "", Errorf(Truncated, "%s: %w in the middle of the answer", path, err)
	case err != nil:
		return nil, "", err
	}
	body = f.buf.Bytes()
	if n := len(body); n > 0 && body[n-1] != '\n' && framed(resp) {
		f.buf.WriteByte('\n') // completes the last line, because the answer is complete
		body = f.buf.Bytes()
	}
	body, err = f.Format.Sanitise(body, path, contentType)
	return body, contentType, err
}

// framed reports whether the end of an answer is marked. Otherwise a truncated answer could look complete.
func framed(resp *http.Response) bool {
	return resp.ContentLength >= 0 || slices.Contains(resp.TransferEncoding, "chunked") ||
		resp.Header.Get("Content-Encoding") == "gzip" || resp.ProtoMajor > 1
}

func readBounded(to *bytes.Buffer, resp *http.Response, limit int64) error {
	var from io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" {
		unzip, err := gzip.NewReader(from)
		if err != nil {
			return Errorf(ParseError, "the body is not valid gzip: %w", err)
		}
		from = unzip
	}
	n, err := to.ReadFrom(io.LimitReader(from, limit+1))
	switch {
	case n > limit:
		return Errorf(LimitExceeded, "the answer is larger than %d bytes: raise limits.body_size if this is normal", limit)
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader):
		return Errorf(ParseError, "the body is not valid gzip: %w", err)
	}
	return err
}

// refused turns an answer other than 200 into an error.
func (f *Format) refused(resp *http.Response) error {
	var said struct {
		Error struct {
			Message string `json:"message"`
			Type    string `json:"type"`
		} `json:"error"`
	}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 4096))
	_ = json.Unmarshal(body, &said) // without a JSON body, the status is sufficient
	status := resp.StatusCode
	if f.Refusal != nil {
		if reason := f.Refusal(status, said.Error.Type, said.Error.Message); reason != "" {
			return Errorf(reason, "%s", said.Error.Message)
		}
	}
	if status >= 300 && status < 400 {
		if to, err := resp.Location(); err == nil && to.Host == resp.Request.URL.Host && to.Scheme == resp.Request.URL.Scheme {
			return &StatusError{Code: status, Message: "redirects in a circle: " + to.Path}
		}
		return &StatusError{Code: status, Message: "redirects to another host or scheme: " + resp.Header.Get("Location")}
	}
	return &StatusError{Code: status, Message: said.Error.Message}
}

// Document fetches and decodes a JSON answer of a metadata endpoint.
func (f *Fetcher) Document(ctx context.Context, path string, into any) error {
	return f.DocumentAt(ctx, path, f.At.Query, into)
}

// DocumentAt fetches a document with the given query in place of the address's query.
func (f *Fetcher) DocumentAt(ctx context.Context, path, query string, into any) error {
	resp, err := f.request(ctx, path, query, "application/json")
	return decode(resp, err, path, into)
}

// DocumentAbout posts a question and decodes the JSON answer. The question must have no side effects on the server.
func (f *Fetcher) DocumentAbout(ctx context.Context, path string, question []byte, into any) error {
	resp, err := f.send(ctx, http.MethodPost, path, f.At.Query, "application/json", question)
	return decode(resp, err, path, into)
}

func decode(resp *http.Response, err error, path string, into any) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return &StatusError{Code: resp.StatusCode, Message: path}
	}
	var body bytes.Buffer
	if err := readBounded(&body, resp, MaxDocumentBytes); err != nil {
		return err
	}
	if err := json.Unmarshal(body.Bytes(), into); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}
