package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/draw"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
)

// playDraws plays the worlds of a range of seeds, given as FROM-TO, and writes their scores. It plays one world per
// processor at a time. If there is only one world, playDraws also prints its notifications and triage.
func playDraws(ctx context.Context, seeds string, out, progress io.Writer) error {
	var from, to uint64
	if n, _ := fmt.Sscanf(seeds, "%d-%d", &from, &to); n != 2 || to < from {
		return fmt.Errorf("--seeds=%s: want FROM-TO, such as 1-100", seeds)
	}
	shown := io.Discard
	if from == to {
		shown = out
	}
	all, failed := make([]score.Drawn, to-from+1), make([]error, to-from+1)
	var wg sync.WaitGroup
	slots := make(chan struct{}, runtime.GOMAXPROCS(0))
	for i := range all {
		slots <- struct{}{}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		wg.Go(func() {
			defer func() { <-slots }()
			if all[i], failed[i] = playDraw(ctx, from+uint64(i), shown); failed[i] != nil {
				failed[i] = fmt.Errorf("seed %d: %w", from+uint64(i), failed[i])
			}
			fmt.Fprintf(progress, "%+v\n", all[i])
		})
	}
	wg.Wait()
	writeDraws(out, all)
	return errors.Join(failed...)
}

// playDraw plays the world of a seed, and prints the world's notifications and a triage.
func playDraw(ctx context.Context, seed uint64, shown io.Writer) (score.Drawn, error) {
	d := draw.New(seed)
	p, err := play.RunUntil(ctx, d.Incident, d.Options)
	if err != nil {
		return score.Drawn{}, err
	}
	defer p.Close()
	s, err := score.OfDrawn(d, p, shown)
	for _, n := range p.Sent {
		fmt.Fprintf(shown, "%s to %s, %s after the onset\n%s\n\n", n.At.Format(time.TimeOnly), n.Receiver, n.At.Sub(p.World.At(p.Onset)),
			n.Message())
	}
	return s, err
}

// writeDraws writes how many answers were right, by class and in total.
func writeDraws(out io.Writer, all []score.Drawn) {
	classes := map[string][]score.Drawn{}
	var incidents []score.Drawn
	var quiet, pages, tickets, mild, loud int
	var high, right int
	for _, s := range all {
		switch {
		case s.Incident:
			incidents = append(incidents, s)
			classes[s.Class] = append(classes[s.Class], s)
		case len(s.Want) == 0 && s.Due: // for example, a burst that was too large
			loud++
		case len(s.Want) == 0:
			quiet, pages, tickets = quiet+1, pages+s.Pages, tickets+s.Tickets
		default:
			mild++
		}
	}
	fmt.Fprint(out, "| class | page | triage with a Prometheus | triage with two readings |\n| --- | --- | --- | --- |\n")
	row := func(name string, some []score.Drawn) {
		fmt.Fprintf(out, "| %s |", name)
		for _, of := range []func(score.Drawn) score.Answer{
			func(s score.Drawn) score.Answer { return s.Page }, func(s score.Drawn) score.Answer { return s.WithPast },
			func(s score.Drawn) score.Answer { return s.Alone },
		} {
			yes, unsure := 0, 0
			for _, s := range some {
				if a := of(s); a.Right {
					yes++
				} else if a.Unsure {
					unsure++
				}
			}
			fmt.Fprintf(out, " %s, cannot tell %d |", interval(yes, len(some)), unsure)
		}
		fmt.Fprintln(out)
	}
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		row(class, classes[class])
	}
	row("all", incidents)
	var untold []uint64
	for _, s := range incidents {
		for _, a := range []score.Answer{s.WithPast, s.Alone} {
			if a.High {
				high++
				if a.Right {
					right++
				}
			}
		}
		if s.Pages+s.Tickets == 0 {
			untold = append(untold, s.Seed)
		}
	}
	fmt.Fprintf(out, "\nVerdicts of high confidence that are right: %s. Quiet worlds: %d, with %d pages and %d tickets. "+
		"Incidents reported to nobody, by seed: %v. Left out: %d faults that nobody suffered from, %d quiet worlds in which a page was due.\n",
		interval(right, high), quiet, pages, tickets, untold, mild, loud)
}

// interval formats a share, with its 95% confidence interval by Wilson's method.
func interval(yes, n int) string {
	if n == 0 {
		return "none"
	}
	const z = 1.96
	p, m := float64(yes)/float64(n), float64(n)
	middle := (p + z*z/(2*m)) / (1 + z*z/m)
	half := z / (1 + z*z/m) * math.Sqrt(p*(1-p)/m+z*z/(4*m*m))
	return fmt.Sprintf("%d of %d (%.0f to %.0f%%)", yes, n, 100*math.Max(0, middle-half), 100*math.Min(1, middle+half))
}
