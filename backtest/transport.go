package backtest

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"
)

// polite pauses before each request. If the server is busy, polite waits as long as the server asks, and repeats the
// request.
type polite struct {
	next     http.RoundTripper
	pause    time.Duration
	progress io.Writer
}

// attempts limits how often a request to a busy server is sent.
const attempts = 6

// RoundTrip implements http.RoundTripper.
func (p polite) RoundTrip(req *http.Request) (*http.Response, error) {
	wait := p.pause
	for n := 1; ; n++ {
		select {
		case <-req.Context().Done():
			return nil, req.Context().Err()
		case <-time.After(wait):
		}
		if n > 1 && req.GetBody != nil {
			body, err := req.GetBody()
			if err != nil {
				return nil, err
			}
			req = req.Clone(req.Context())
			req.Body = body
		}
		resp, err := p.next.RoundTrip(req)
		if err != nil || n == attempts || resp.StatusCode != http.StatusTooManyRequests && resp.StatusCode != http.StatusServiceUnavailable {
			return resp, err
		}
		if wait, err = retryAfter(resp.Header.Get("Retry-After"), n, time.Now()); err != nil {
			return resp, nil
		}
		fmt.Fprintf(p.progress, "%s answers %s: asking again in %s\n", req.URL.Host, resp.Status, wait)
		resp.Body.Close()
	}
}

// retryAfter returns how long to wait after the n-th refusal, from its Retry-After header. Without the header, each
// pause is twice as long as the one before.
func retryAfter(header string, n int, now time.Time) (time.Duration, error) {
	if header == "" {
		return time.Second << n, nil
	}
	if seconds, err := strconv.Atoi(header); err == nil && seconds >= 0 {
		return time.Duration(seconds) * time.Second, nil
	}
	at, err := http.ParseTime(header)
	return max(at.Sub(now), 0), err
}

// cached stores final answers in a folder, so that an interrupted backtest can continue.
type cached struct {
	next http.RoundTripper
	dir  string
}

// RoundTrip implements http.RoundTripper.
func (c cached) RoundTrip(req *http.Request) (*http.Response, error) {
	if c.dir == "" || req.Context().Value(settled{}) == nil {
		return c.next.RoundTrip(req)
	}
	var body []byte
	if req.GetBody != nil {
		r, err := req.GetBody()
		if err != nil {
			return nil, err
		}
		if body, err = io.ReadAll(r); err != nil {
			return nil, err
		}
	}
	sum := sha256.Sum256([]byte(req.URL.String() + "\n" + string(body)))
	path := filepath.Join(c.dir, hex.EncodeToString(sum[:])+".json.gz")
	switch content, err := read(path); {
	case err == nil:
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{}, Body: io.NopCloser(bytes.NewReader(content)), Request: req}, nil
	case !errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("%s: %w: remove it", path, err)
	}
	resp, err := c.next.RoundTrip(req)
	if err != nil || resp.StatusCode != http.StatusOK {
		return resp, err
	}
	content, err := io.ReadAll(resp.Body)
	resp.Body.Close()
	if err != nil {
		return nil, err
	}
	resp.Body = io.NopCloser(bytes.NewReader(content))
	if bytes.Contains(content, []byte(`"warnings":[`)) { // the server's next answer may be complete
		return resp, nil
	}
	return resp, write(path, content)
}

// settled is the context key of requests whose answers are final.
type settled struct{}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// write compresses content into a file. It writes the complete file or none.
func write(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return err
	}
	if _, err := z.Write(content); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	if err := os.WriteFile(path+".part", b.Bytes(), 0o600); err != nil {
		return err
	}
	return os.Rename(path+".part", path)
}
