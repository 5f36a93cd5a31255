package main

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// judging shares one judgement among all clients that request it at the same time.
type judging struct {
	mu  sync.Mutex
	now *judgement // nil between judgements
}

// judgement is one judgement in progress. The other fields are valid once done is closed.
type judgement struct {
	done     chan struct{}
	verdicts []triage.Verdict
	err      error
}

// judgeAfter is how long GET /verdict waits between its readings.
const judgeAfter = 10 * time.Second

// verdict reads the node twice, and answers with the verdicts on where to look first. Requests that arrive between the
// two readings get the same answer. Nothing is stored.
func (s *server) verdict(w http.ResponseWriter, r *http.Request) {
	j := s.judge()
	select {
	case <-j.done:
	case <-r.Context().Done():
		return
	}
	if j.err != nil {
		http.Error(w, j.err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = writeVerdicts(w, j.verdicts) // the client has disconnected
}

// judge returns the judgement in progress, or begins one.
func (s *server) judge() *judgement {
	s.judging.mu.Lock()
	defer s.judging.mu.Unlock()
	if s.judging.now != nil {
		return s.judging.now
	}
	j := &judgement{done: make(chan struct{})}
	s.judging.now = j
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), 6*judgeAfter) // lasts longer than the request, for other clients
		defer cancel()
		j.verdicts, j.err = s.readTwice(ctx)
		s.judging.mu.Lock()
		s.judging.now = nil
		s.judging.mu.Unlock()
		close(j.done)
	}()
	return j
}

func (s *server) readTwice(ctx context.Context) ([]triage.Verdict, error) {
	before, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	time.Sleep(judgeAfter)
	after, err := s.read(ctx)
	if err != nil {
		return nil, err
	}
	if past := *s.past.Load(); past != nil {
		verdicts, err := compare(ctx, before, after, past)
		if err == nil {
			return verdicts, nil
		}
		s.log.Warn("the verdict is not compared with the past: see prometheus in the configuration", "err", err)
	}
	return triage.Judge(ctx, before, after, nil)
}

// compare judges the two readings, in comparison with the past. It limits the time for queries about the past, so that
// enough time is left for a verdict without them.
func compare(ctx context.Context, before, after triage.Reading, past triage.Past) ([]triage.Verdict, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*judgeAfter)
	defer cancel()
	scraped, err := triage.ScrapeLabels(ctx, after, past)
	if err != nil {
		return nil, err
	}
	return triage.Judge(ctx, before.With(scraped), after.With(scraped), past)
}

// read reads the node's metrics as a scrape would.
func (s *server) read(ctx context.Context) (triage.Reading, error) {
	var page bytes.Buffer
	families, engines := s.gather(ctx)
	at := time.Now()
	if err := encode(&page, families, engines); err != nil {
		return triage.Reading{}, err
	}
	return triage.Parse(page.Bytes(), at)
}

// verdictOnGPUs reports whether each GPU is fit for use, according to the last judgement of their health. Programs that
// act on sick GPUs read this answer.
func (s *server) verdictOnGPUs(w http.ResponseWriter, _ *http.Request) {
	if s.health == nil {
		http.Error(w, "this exporter reads no GPUs, because its flags disable GPU metrics", http.StatusNotFound)
		return
	}
	node, ok := s.health.Node()
	if !ok {
		http.Error(w, "there is no verdict, because no GPU has been read so far", http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_ = json.NewEncoder(w).Encode(node) // the client has disconnected
}
