package backtest_test

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/textparse"

	"github.com/llm-node-exporter/llm-node-exporter/backtest"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/live"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promapi"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// history is the storage of two Prometheus servers for an incident: one scrapes the exporter and evaluates the rules, and
// one scrapes the engines without any rules.
type history struct {
	*play.Play
	engines *rulesim.Sim
	end     time.Time
	fired   map[string][]time.Time // minutes by alert, model and objective
}

func subject(alert, name, objective string) string { return alert + " " + name + " " + objective }

// record plays an incident.
func record(t *testing.T, name string, seed uint64, change func(*incident.Incident)) *history {
	t.Helper()
	in, err := incident.Find(incident.Incidents(), name)
	if err != nil {
		t.Fatal(err)
	}
	if change != nil {
		change(&in)
	}
	var groups []rules.Group
	for _, g := range rules.Groups(rules.Options{}) {
		if slices.Contains([]string{
			"llm-slo-correction", "llm-slo-objective", "llm-slo-burn", "llm-slo-later", "llm-slo-budget",
			"llm-model",
		}, g.Name) {
			for i, a := range g.Alerts {
				bare := *a
				bare.Diagnosed, bare.Split = false, nil // queries of annotations
				g.Alerts[i] = &bare
			}
			groups = append(groups, g)
		}
	}
	h := &history{fired: map[string][]time.Time{}}
	if h.Play, err = play.New(in, play.Options{Seed: seed, Groups: groups, WithoutGPUs: true}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Play.Close() })
	if h.engines, err = rulesim.New(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.engines.Close() })
	end := h.Onset + in.Lasts
	h.end = h.World.At(end)
	if err := h.Through(t.Context(), 0, end, h.Faults(), func(at time.Duration) (failed error) {
		err := h.engines.Scrape(h.World.At(at), func(_ time.Time, emit rulesim.Emit) {
			for _, r := range h.World.Replicas {
				failed = cmp.Or(failed, scrape(r, emit))
			}
		})
		return cmp.Or(err, failed)
	}); err != nil {
		t.Fatal(err)
	}
	for _, e := range h.Evaluations {
		at := h.World.At(h.Onset + e.At)
		burns, err := h.Prometheus.Query(pages, at)
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range burns { // the page is about one objective of its model
			s := subject(rules.FastBurn.Name, b.Metric.Get(metrics.LabelModel), b.Metric.Get(metrics.LabelSLO))
			h.fired[s] = append(h.fired[s], at)
		}
		for _, a := range e.Firing {
			if a.Name == rules.FastBurn.Name {
				continue
			}
			s := subject(a.Name, a.Labels.Get(metrics.LabelModel), a.Labels.Get(metrics.LabelSLO))
			h.fired[s] = append(h.fired[s], at)
		}
	}
	return h
}

// pages queries the objectives that require a page.
const pages = `max by (model_name, slo) (model:llm_slo_pair_burn:rate and on (long, namespace, model_name, role, slo) model:llm_slo_burn_threshold:rate{severity="page"})`

// scrape emits the samples that Prometheus stores of an engine's metrics.
func scrape(r *world.Replica, emit rulesim.Emit) error {
	if r.Page() == nil {
		return nil
	}
	req, err := http.NewRequest(http.MethodGet, "http://"+r.Host+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := r.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	p := textparse.NewPromParser(body, labels.NewSymbolTable(), false)
	for {
		switch entry, err := p.Next(); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case entry == textparse.EntrySeries:
			_, _, v := p.Series()
			var l labels.Labels
			p.Labels(&l)
			b := labels.NewBuilder(l)
			b.Set("job", "engines").Set("instance", r.Host)
			for name, value := range r.Labels() {
				b.Set(name, value)
			}
			emit(b.Labels(), v)
		}
	}
}

// ask runs a backtest against the storage.
func ask(t *testing.T, store *rulesim.Sim, change func(*backtest.Backtest)) (*backtest.Report, error) {
	t.Helper()
	server := httptest.NewServer(live.Serve(store))
	t.Cleanup(server.Close)
	var progress bytes.Buffer
	b := &backtest.Backtest{URL: server.URL, Source: backtest.Auto, Pairs: slo.DefaultWindowPairs(), MaxSamples: 500_000, Progress: &progress}
	b.Objectives = complete(slo.Defaults())
	change(b)
	var err error
	if b.API, err = promapi.Connect(server.URL, "", backtest.Transport(0, "", &progress)); err != nil {
		t.Fatal(err)
	}
	return b.Run(context.Background())
}

func complete(objectives []slo.Objective) (all []slo.Objective) {
	for _, o := range objectives {
		all = append(all, o.WithDefaults())
	}
	return all
}

// spans writes episodes as text.
func spans(all []backtest.Episode) (text string) {
	for _, e := range all {
		text += fmt.Sprintf("%s-%s ", e.From.UTC().Format("02T15:04"), e.To.UTC().Format("02T15:04"))
	}
	return text
}

// merged merges minutes into episodes.
func merged(minutes []time.Time) (all []backtest.Episode) {
	for _, at := range minutes {
		if n := len(all); n > 0 && at.Sub(all[n-1].To) <= 5*time.Minute {
			all[n-1].To = at
		} else {
			all = append(all, backtest.Episode{From: at, To: at})
		}
	}
	return all
}

// TestPagesAreThoseThatFired compares the pages to the minute, from the exporter's events and from the engines' metrics.
func TestPagesAreThoseThatFired(t *testing.T) {
	runtimes := map[string]metrics.Runtime{"vllm": metrics.VLLM, "sglang": metrics.SGLang, "tgi": metrics.TGI}
	for _, c := range []struct {
		incident string
		seed     uint64
		runtime  string
	}{
		{"traffic-burst", 1, "vllm"},
		{"traffic-burst", 2, "sglang"},
		{"traffic-burst", 3, "tgi"},
		{"rejections", 4, "sglang"},
		{"cold-start", 5, "vllm"},
	} {
		t.Run(fmt.Sprintf("%s/%s", c.incident, c.runtime), func(t *testing.T) {
			h := record(t, c.incident, c.seed, func(in *incident.Incident) { in.Fleet.Runtimes = []metrics.Runtime{runtimes[c.runtime]} })
			want := map[string]string{}
			for s, at := range h.fired {
				want[s] = spans(merged(at))
			}
			for source, store := range map[backtest.Source]*rulesim.Sim{backtest.Exporter: h.Prometheus, backtest.Engines: h.engines} {
				r, err := ask(t, store, func(b *backtest.Backtest) {
					b.From, b.To, b.Objectives = rulesim.Epoch, h.end, complete(h.Incident.Fleet.Configured())
				})
				if err != nil {
					t.Fatal(err)
				}
				if r.Reads != source {
					t.Errorf("reads %s, want %s", r.Reads, source)
				}
				got := map[string]string{}
				for _, row := range r.Rows {
					if c.incident == "traffic-burst" && c.runtime == "vllm" && source == backtest.Engines && row.Objective == "ttft" &&
						!strings.HasPrefix(row.Pages[0].Verdict, "queueing: ") {
						t.Errorf("of a queue it says %q", row.Pages[0].Verdict)
					}
					for alert, all := range map[*rules.Alert][]backtest.Episode{rules.FastBurn: row.Pages, rules.SlowBurn: row.Tickets} {
						if len(all) > 0 {
							name := row.Model
							if c.runtime == "tgi" && source == backtest.Engines { // its metrics name no model
								name = h.Incident.Fleet.Profile.Model
							}
							got[subject(alert.Name, name, row.Objective)] = spans(all)
						}
					}
				}
				if !maps.Equal(got, want) {
					t.Errorf("%s: backtest %v\nfired %v", source, got, want)
				}
				for _, n := range r.Notes {
					t.Log(source, n)
				}
			}
			t.Log(want)
		})
	}
}
