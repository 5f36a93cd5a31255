package main

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// Knee is the exporter's forecast of an engine's capacity, and the measured capacity.
type Knee struct {
	// Said is the forecast load, in requests per second, at which the first objective breaks. Low and High are the bounds
	// of its interval.
	Said, Low, High float64
	Objective       string
	Steps           []KneeStep
	// Held is the highest load at which all objectives were met. Broke is the lowest load at which an objective was
	// missed. 0 means that there was none.
	Held, Broke float64
}

// KneeStep holds the clients' results at one load.
type KneeStep struct {
	Asked, Sent float64 // requests per second
	Requests    int
	Late, Slow  float64 // shares of late first tokens and of late gaps
}

// findKnee lets the exporter observe a varying load below the knee, reads its forecast of the knee, and then raises the
// load up to the knee.
func findKnee(ctx context.Context, s *Stage) error {
	base := *s.client.load.Load()
	set := func(rate float64) {
		l := base
		l.Rate = rate
		s.client.Set(l)
	}
	for minute := range 33 {
		set(base.Rate * (1 + 0.6*math.Sin(2*math.Pi*float64(minute)/11)))
		if err := sleep(ctx, time.Minute); err != nil {
			return err
		}
	}
	k, err := s.forecast(ctx)
	if err != nil {
		return err
	}
	for _, share := range []float64{0.5, 0.7, 0.85, 0.95, 1.05, 1.2, 1.4} {
		set(share * k.Said)
		began := s.client.Now()
		if err := sleep(ctx, 2*time.Minute); err != nil {
			return err
		}
		step := s.saw(began+15, s.client.Now())
		step.Asked = share * k.Said
		k.Steps = append(k.Steps, step)
		switch broke := step.Late > 0.01 || step.Slow > 0.01; {
		case broke && k.Broke == 0:
			k.Broke = step.Sent
		case !broke && k.Broke == 0:
			k.Held = step.Sent
		}
		fmt.Printf("at %.2f requests per second %.1f%% of first tokens and %.1f%% of gaps are late\n", step.Sent, 100*step.Late, 100*step.Slow)
	}
	fmt.Printf("the exporter said %.2f (%.2f to %.2f, %s); %.2f held, %.2f broke\n", k.Said, k.Low, k.High, k.Objective, k.Held, k.Broke)
	return write(filepath.Join(s.folder, "knee.json"), k)
}

// forecast reads from the exporter's metrics page which objective breaks first, and at which load.
func (s *Stage) forecast(ctx context.Context) (k Knee, err error) {
	text, err := fetch(ctx, "http://"+local(s.port+31)+"/metrics")
	if err != nil {
		return k, err
	}
	_ = os.WriteFile(filepath.Join(s.folder, "forecast-exporter.prom"), []byte(text), 0o600)
	page, err := triage.Parse([]byte(text), time.Now())
	if err != nil {
		return k, err
	}
	said := map[string]map[string]float64{}
	for _, sample := range page.Series {
		if name, of := sample.Metric.Get("__name__"), sample.Metric.Get(metrics.LabelSLO); name == metrics.EngineCapacity.Name {
			if said[of] == nil {
				said[of] = map[string]float64{}
			}
			said[of][sample.Metric.Get(metrics.LabelKind)] = sample.F
		}
	}
	for of, one := range said {
		if expected := one["expected"]; k.Objective == "" || expected < k.Said {
			k.Said, k.Low, k.High, k.Objective = expected, one["low"], one["high"], of
		}
	}
	if k.Said <= 0 {
		return k, fmt.Errorf("the exporter reports no capacity: %v", said)
	}
	return k, nil
}

// saw returns the results of the requests that clients sent between two times.
func (s *Stage) saw(from, to float64) (step KneeStep) {
	gaps, late, slow := 0, 0, 0
	for _, r := range s.client.Records() {
		if r.Sent < from || r.Sent >= to {
			continue
		}
		step.Requests++
		if wait := r.First - r.Sent; r.First == 0 && to-r.Sent > limitFirst || r.First > 0 && wait > limitFirst {
			late++
		}
		gaps += max(0, r.Tokens-1)
		for _, g := range r.Late {
			if g[1] > limitGap {
				slow++
			}
		}
	}
	step.Sent = float64(step.Requests) / (to - from)
	step.Late, step.Slow = float64(late)/float64(max(1, step.Requests)), float64(slow)/float64(max(1, gaps))
	return step
}

// These are the thresholds of the objectives without slack, in seconds for the first token, and in milliseconds for
// gaps.
const (
	limitFirst = 1.0
	limitGap   = 200
)
