package scale

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/klauspost/compress/snappy"
	"github.com/prometheus/prometheus/prompb"
)

// A writer sends samples of one tenant to one store, in order, until the store accepts them, as the queue of a
// Prometheus does.
type writer struct {
	url, tenant string
	queue       chan []byte
	sent, tries atomic.Int64 // accepted requests, and refused requests
	refused     atomic.Pointer[string]
	done        chan struct{}
}

func newWriter(t *testing.T, url, tenant string) *writer {
	w := &writer{url: url, tenant: tenant, queue: make(chan []byte, 10_000), done: make(chan struct{})}
	go w.run(t.Context().Done())
	return w
}

func (w *writer) run(stop <-chan struct{}) {
	defer close(w.done)
	for body := range w.queue {
		for !w.post(body) {
			select {
			case <-stop:
				return
			case <-time.After(500 * time.Millisecond):
			}
		}
		w.sent.Add(1)
	}
}

// post reports whether a request need not be repeated.
func (w *writer) post(body []byte) bool {
	req, err := http.NewRequest(http.MethodPost, w.url, bytes.NewReader(body))
	if err != nil {
		return true
	}
	req.Header.Set("Content-Encoding", "snappy")
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("X-Prometheus-Remote-Write-Version", "0.1.0")
	req.Header.Set("X-Scope-OrgID", w.tenant)
	client := http.Client{Timeout: 30 * time.Second}
	resp, err := client.Do(req)
	if err != nil {
		w.tries.Add(1)
		return false
	}
	defer resp.Body.Close()
	text, _ := io.ReadAll(resp.Body)
	switch {
	case resp.StatusCode/100 == 2:
		return true
	case resp.StatusCode/100 == 4 && resp.StatusCode != http.StatusTooManyRequests:
		why := fmt.Sprintf("%s: %s", resp.Status, text)
		w.refused.CompareAndSwap(nil, &why)
		return true
	}
	w.tries.Add(1)
	return false
}

// A generator scrapes a thirtieth of the models each second.
type generator struct {
	services []*service
	writers  map[string]*writer // by cluster
	samples  int64
}

// run scrapes until the end, and calls each second.
func (g *generator) run(t *testing.T, began time.Time, lasts time.Duration, each func(since time.Duration)) {
	slots := int(scrapeEvery / time.Second)
	var buffer []prompb.TimeSeries
	for second := range int(lasts / time.Second) {
		at := began.Add(time.Duration(second) * time.Second)
		time.Sleep(time.Until(at))
		each(time.Since(began))
		for cluster, w := range g.writers {
			buffer = buffer[:0]
			for i := second % slots; i < len(g.services); i += slots {
				if s := g.services[i]; s.cluster == cluster {
					buffer = s.scrape(second/slots, at, buffer)
				}
			}
			if len(buffer) == 0 {
				continue
			}
			g.samples += int64(len(buffer))
			raw, err := (&prompb.WriteRequest{Timeseries: buffer}).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			body := snappy.Encode(nil, raw)
			select {
			case w.queue <- body:
			default:
				t.Fatalf("%s takes no samples", w.url)
			}
		}
	}
}
