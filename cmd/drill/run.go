package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"text/tabwriter"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/report"
	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
)

// list prints the incidents.
func list(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "incident\twakes with\tcause\tstory")
	for _, in := range incident.All() {
		page := "-"
		if in.Page != nil {
			page = in.Page.Name
		}
		cause, _ := in.Names()
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", in.Name, page, cmp.Or(cause, "-"), in.Story)
	}
	return t.Flush()
}

// run plays incidents in virtual time and prints the scores. It plays all incidents, the public incidents, or one named
// incident. It fails when an incident has a problem.
func run(ctx context.Context, name string, public bool, seed uint64, output string, out, progress io.Writer) error {
	incidents := incident.All()
	if public {
		incidents = incident.Public()
	}
	if name != "" {
		in, err := incident.Find(incidents, name)
		if err != nil {
			return err
		}
		incidents = []incident.Incident{in}
	}
	traces, err := record(ctx, incidents, seed, 1, progress)
	if err != nil {
		return err
	}
	if err := write(output, traces, out); err != nil {
		return err
	}
	return judge(traces)
}

// record plays incidents with the given number of seeds, starting at the seed first. The traces of an incident are
// adjacent.
func record(ctx context.Context, incidents []incident.Incident, first, seeds uint64, progress io.Writer) ([]report.Trace, error) {
	return each(ctx, incidents, first, seeds, progress, func(in incident.Incident, seed uint64) (report.Trace,
		error,
	) {
		return trace(ctx, in, seed)
	})
}

// each plays incidents with the given number of seeds, one per processor at a time, and returns their results.
func each[T any](ctx context.Context, incidents []incident.Incident, first, seeds uint64, progress io.Writer,
	keep func(incident.Incident, uint64) (T, error),
) ([]T, error) {
	kept := make([]T, len(incidents)*int(seeds))
	failed := make([]error, len(kept))
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range kept {
		in, seed := incidents[i/int(seeds)], first+uint64(i)%seeds
		slots <- struct{}{}
		if ctx.Err() != nil {
			break
		}
		fmt.Fprintf(progress, "%d of %d: %s, seed %d\n", i+1, len(kept), in.Name, seed)
		wg.Go(func() {
			defer func() { <-slots }()
			kept[i], failed[i] = keep(in, seed)
		})
	}
	wg.Wait()
	return kept, errors.Join(errors.Join(failed...), ctx.Err())
}

// trace plays an incident, and returns the data that a report shows.
func trace(ctx context.Context, in incident.Incident, seed uint64) (report.Trace, error) {
	p, err := play.RunUntil(ctx, in, play.Options{Seed: seed})
	if err != nil {
		return report.Trace{}, err
	}
	defer p.Close()
	return report.New(p)
}

// judge returns an error if any incident has a problem.
func judge(traces []report.Trace) error {
	wrong := 0
	for _, t := range traces {
		wrong += min(1, len(t.Score.Problems))
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d incidents went wrong", wrong, len(traces))
	}
	return nil
}

func write(output string, traces []report.Trace, out io.Writer) error {
	switch output {
	case "html":
		return report.WriteHTML(out, traces)
	case "json":
		enc := json.NewEncoder(out)
		enc.SetIndent("", "  ")
		return enc.Encode(scores(traces))
	case "svg":
		if len(traces) != 1 {
			return errors.New("a plot shows one incident: name the incident with --incident")
		}
		return report.WriteSVG(out, traces[0])
	case "public":
		return report.WritePublic(out, traces)
	default:
		return report.WriteTable(out, scores(traces))
	}
}

func scores(traces []report.Trace) (all []score.Score) {
	for _, t := range traces {
		all = append(all, t.Score)
	}
	return all
}
