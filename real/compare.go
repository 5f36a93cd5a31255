package main

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// measured is a load that aiperf generates.
type measured struct {
	name  string
	flags []string
}

// These loads are for an engine with room for two requests at once. Each request takes half a second.
var measuredLoads = []measured{
	{"idle", []string{"--request-rate", "0.5", "--request-count", "40"}},
	{"near the limit", []string{"--request-rate", "3", "--request-count", "200"}},
	{"beyond the limit", []string{"--concurrency", "8", "--request-count", "200"}},
}

// compare runs aiperf against engines, and compares aiperf's report with what the exporter counted at the same time.
func (s *Stage) compare(ctx context.Context, servers []*server) error {
	out, err := os.Create(filepath.Join(s.out, "clients.csv"))
	if err != nil {
		return err
	}
	defer out.Close()
	rows := csv.NewWriter(out)
	_ = rows.Write([]string{"engine", "load", "value", "unit", "aiperf", "exporter", "verdict"})
	for _, by := range servers {
		s.folder = filepath.Join(s.out, "compare-"+by.name)
		if err := errors.Join(os.MkdirAll(s.folder, 0o755), s.serve(ctx, 0, by, by.usual)); err != nil {
			return err
		}
		if err := s.watch(ctx); err != nil {
			return err
		}
		for _, l := range append([]measured{{"warm-up", measuredLoads[0].flags}}, measuredLoads...) {
			compared, err := s.measureWith(ctx, l)
			if err != nil {
				return err
			}
			for _, c := range compared {
				if row := append([]string{by.name, l.name}, c...); l.name != "warm-up" {
					_ = rows.Write(row)
					fmt.Println(strings.Join(row, " | "))
				}
			}
		}
		s.exporter.stop()
		s.engines[0].stop()
	}
	rows.Flush()
	return rows.Error()
}

// report has those values of aiperf's report that are compared.
type report map[string]struct {
	Avg, P50, P95 float64
}

// readReport reads aiperf's report.
func readReport(file string) (report, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &all); err != nil {
		return nil, err
	}
	said := report{}
	for name, raw := range all {
		value := said[name]
		if json.Unmarshal(raw, &value) == nil {
			said[name] = value
		}
	}
	return said, nil
}

// measureWith runs aiperf with a load, and returns rows with the values of aiperf and of the exporter.
func (s *Stage) measureWith(ctx context.Context, l measured) (rows [][]string, err error) {
	read := func() (triage.Reading, error) {
		text, err := fetch(ctx, "http://"+local(s.port+30)+"/metrics")
		if err != nil {
			return triage.Reading{}, err
		}
		return triage.Parse([]byte(text), time.Now())
	}
	before, err := read()
	if err != nil {
		return nil, err
	}
	folder := filepath.Join(s.folder, strings.ReplaceAll(l.name, " ", "-"))
	args := append([]string{
		"profile", "--model", model, "--url", s.engines[0].url(), "--endpoint-type", "completions", "--streaming", "--tokenizer", s.model,
		"--isl", "64", "--osl", "40", "--extra-inputs", "ignore_eos:true", "--random-seed", "1", "--ui", "none", "--output-artifact-dir", folder,
	}, l.flags...)
	if said, err := exec.CommandContext(ctx, s.program("aiperf", "aiperf"), args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("aiperf: %w: %s", err, said[max(0, len(said)-500):])
	}
	if err := sleep(ctx, 5*time.Second); err != nil { // the engine counts its last steps meanwhile
		return nil, err
	}
	after, err := read()
	if err != nil {
		return nil, err
	}
	said, err := readReport(filepath.Join(folder, "profile_export_aiperf.json"))
	if err != nil {
		return nil, err
	}
	d := growth{before, after}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 4, 64) }
	count := func(name, of string, f *metrics.Family, m map[string]string) {
		ours, theirs := d.of(f.Name, m), said[of].Avg
		verdict := "equal"
		if math.Abs(ours-theirs) > 0.01 {
			verdict = "differs"
		}
		rows = append(rows, []string{name, "", fmt.Sprint(math.Round(theirs)), fmt.Sprint(math.Round(ours)), verdict})
	}
	count("answered requests", "completed_request_count", metrics.Requests, map[string]string{metrics.LabelOutcome: "stop|length|success"})
	count("prompt tokens", "total_usage_prompt_tokens", metrics.PromptTokens, nil)
	count("output tokens", "total_usage_completion_tokens", metrics.GenerationTokens, nil)
	for _, v := range []struct {
		name, of string
		f        *metrics.Family
	}{
		{"TTFT", "time_to_first_token", metrics.TimeToFirstToken},
		{"time between tokens", "inter_chunk_latency", metrics.InterTokenLatency},
		{"duration", "request_latency", metrics.RequestDuration},
	} {
		for q, theirs := range map[float64]float64{0.5: said[v.of].P50 / 1000, 0.95: said[v.of].P95 / 1000} {
			low, high, apart := d.bucket(v.f.Name, q, theirs)
			verdict := "same bucket"
			if apart > 0 {
				verdict = fmt.Sprintf("%d buckets apart", apart)
			}
			rows = append(rows, []string{fmt.Sprintf("%s, p%g", v.name, 100*q), "s", number(theirs), number(low) + " to " + number(high), verdict})
		}
	}
	slices.SortStableFunc(rows[3:], func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return rows, nil
}

const nameLabel = "__name__"

// growth has the exporter's metrics from before and after a load.
type growth struct{ before, after triage.Reading }

// of returns the total increase of a counter's series that have the wanted label values.
func (g growth) of(name string, wanted map[string]string) (sum float64) {
	for _, at := range []struct {
		page triage.Reading
		sign float64
	}{{g.before, -1}, {g.after, 1}} {
		for _, s := range at.page.Series {
			ok := s.Metric.Get(nameLabel) == name
			for l, values := range wanted {
				ok = ok && slices.Contains(strings.Split(values, "|"), s.Metric.Get(l))
			}
			if ok {
				sum += at.sign * s.F
			}
		}
	}
	return sum
}

// bucket returns the bounds of the histogram bucket that contains a quantile, and how many buckets a value is away from
// this bucket.
func (g growth) bucket(name string, q, value float64) (low, high float64, apart int) {
	counts := map[float64]float64{}
	for _, s := range g.after.Series {
		if s.Metric.Get(nameLabel) == name+"_bucket" {
			le, _ := strconv.ParseFloat(s.Metric.Get(labels.BucketLabel), 64)
			counts[le] = g.of(name+"_bucket", map[string]string{labels.BucketLabel: s.Metric.Get(labels.BucketLabel)})
		}
	}
	bounds := make([]float64, 0, len(counts))
	for le := range counts {
		bounds = append(bounds, le)
	}
	slices.Sort(bounds)
	if len(bounds) == 0 || counts[bounds[len(bounds)-1]] <= 0 { // nothing was counted
		return math.NaN(), math.NaN(), len(bounds) + 1
	}
	in := slices.IndexFunc(bounds, func(le float64) bool { return counts[le] >= q*counts[bounds[len(bounds)-1]] })
	at := slices.IndexFunc(bounds, func(le float64) bool { return value <= le })
	if in > 0 {
		low = bounds[in-1]
	}
	return low, bounds[in], int(math.Abs(float64(in - at)))
}
