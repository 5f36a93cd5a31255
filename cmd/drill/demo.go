package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/live"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
)

// demo plays incidents in real time and shows what happens.
type demo struct {
	exporter, listen, prometheus string
	onset                        time.Duration
	seed                         uint64
	out                          io.Writer
}

// lines reads typed lines.
func lines(in io.Reader) <-chan string {
	typed := make(chan string)
	go func() {
		for s := bufio.NewScanner(in); s.Scan(); {
			typed <- strings.TrimSpace(s.Text())
		}
	}()
	return typed
}

// run plays one incident. Whenever the user types the name of another incident, run plays that one. run returns when
// ctx is done.
func (d demo) run(ctx context.Context, name string, typed <-chan string) error {
	in, err := incident.Find(known(), name)
	for err == nil {
		var next *incident.Incident
		if next, err = d.play(ctx, in, typed); next == nil {
			break
		}
		in = *next
	}
	return err
}

// known returns all incidents, followed by a healthy node, which has no incident.
func known() []incident.Incident { return append(incident.All(), incident.Healthy()) }

// play starts a node with all programs around it. It returns the next incident that is typed, or nil when ctx is done.
func (d demo) play(ctx context.Context, in incident.Incident, typed <-chan string) (next *incident.Incident, err error) {
	queries, err := d.ports()
	if err != nil {
		return nil, err
	}
	defer queries.Close()
	dir, err := os.MkdirTemp("", "drill")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	node, err := live.NewNode(live.Options{
		Incident: in, Seed: d.seed, Exporter: d.exporter, Listen: d.listen, Prometheus: d.prometheus,
		Dir: dir, Log: os.Stderr,
	})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, node.Close()) }()
	d.introduce(node)
	if err := d.history(ctx, node); err != nil {
		return nil, ended(ctx, err)
	}

	running, stop := context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() { failed <- node.Run(running) }()
	defer func() {
		stop()
		err = errors.Join(err, <-failed)
	}()
	server, err := live.NewPrometheus(running, queries, node.Source(), dir)
	if err != nil {
		return nil, err
	}
	defer func() { _ = server.Close() }() // removes the server's folder, too
	onset := time.Now().Add(d.onset)
	node.Begin(onset)
	d.explain(in)
	// Compute the expected notifications after the first screen, because both need the processors.
	foreseen := make(chan score.Score, 1)
	finished := make(chan struct{})
	go func() {
		defer close(finished)
		foreseen <- d.foresee(running, in)
	}()
	defer func() {
		stop()
		<-finished
	}()
	screen := d.screen(running, in, node, server, onset)
	tick := time.Tick(time.Second)
	for {
		select {
		case <-ctx.Done():
			return nil, nil
		case err := <-failed:
			failed <- nil
			return nil, ended(ctx, err)
		case now := <-tick:
			if err := screen.update(ctx, now); err != nil {
				return nil, ended(ctx, err)
			}
		case s := <-foreseen:
			d.expect(in, s)
		case line := <-typed:
			if next := d.obey(line, screen.story, time.Now()); next != nil {
				return next, nil
			}
		}
	}
}

// screen returns the demo's screen.
func (d demo) screen(ctx context.Context, in incident.Incident, node *live.Node, server *live.Prometheus, onset time.Time) *screen {
	return &screen{out: d.out, node: node, server: server, onset: onset, story: &story{
		out: d.out, incident: in, onset: onset,
		lever: func() { node.Change(in.Lever.Do) }, heal: func() { node.Heal(undo) },
		ask: func(query string, at time.Time) (promql.Vector, error) { return server.QueryAt(ctx, query, at) },
	}}
}

// history plays the time before the incident in virtual time, and prints its progress.
func (d demo) history(ctx context.Context, node *live.Node) error {
	fmt.Fprint(d.out, "playing it in virtual time first ")
	started, quarter := time.Now(), 0.25
	err := node.History(ctx, func(share float64) {
		if share >= quarter {
			fmt.Fprintf(d.out, "%.0f%% ", 100*quarter)
			quarter += 0.25
		}
	})
	if err == nil {
		fmt.Fprintf(d.out, "took %.0f s\n", time.Since(started).Seconds())
	}
	return err
}

// ended ignores errors after ctx is done, because the end of the demo causes them.
func ended(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// ports checks that the addresses are free, and opens the address for queries.
func (d demo) ports() (net.Listener, error) {
	exporter, err := net.Listen("tcp", d.listen)
	if err != nil {
		return nil, fmt.Errorf("%s is not free for the exporter: choose another address with --listen: %w", d.listen, err)
	}
	exporter.Close()
	queries, err := net.Listen("tcp", d.prometheus)
	if err != nil {
		return nil, fmt.Errorf("%s is not free for Prometheus: choose another address with --prometheus: %w", d.prometheus, err)
	}
	return queries, nil
}

// obey executes a typed command. If the command is the name of an incident, obey returns this incident.
func (d demo) obey(line string, s *story, now time.Time) *incident.Incident {
	switch line {
	case "":
	case "list":
		_ = list(d.out) // fails only if the terminal is gone
	case "lever", "lever 1": // an incident has at most one lever
		s.pull(now)
	case incident.Healthy().Name:
		s.recover(now)
	default:
		in, err := incident.Find(known(), line)
		if err == nil {
			return &in
		}
		fmt.Fprintln(d.out, err)
	}
	return nil
}

func (d demo) introduce(n *live.Node) {
	in := n.Incident
	fmt.Fprintf(d.out, "\nhttp://%s/ shows the incident as somebody on call sees it.\nhttp://%s/ shows the node as it is now.\n\n",
		d.prometheus, d.listen)
	fmt.Fprintf(d.out, "%s: %s\nAll numbers of engines and GPUs are invented; what reads them and alerts on them is real.\n\n", in.Name,
		in.Story)
	for i, address := range n.Engines {
		fmt.Fprintf(d.out, "engine %d     http://%s/ %s serving %s\n", i, address, n.Runtime(i), in.Fleet.Profile.Model)
	}
	if n.WithoutGPUs != nil {
		fmt.Fprintln(d.out, "no GPUs, and no incidents of GPUs:", n.WithoutGPUs)
	}
	fmt.Fprintf(d.out, `Prometheus   http://%[2]s/ is a data source for Grafana; import helm/llm-node-exporter/files/dashboards/*.json

  curl -s http://%[1]s/metrics | grep llm_engine_requests
  promtool query instant http://%[2]s 'max by (slo) (model:llm_slo_burn:rate5m)'

`, d.listen, d.prometheus)
}

// foresee plays an incident in virtual time until ctx is done. The result shows which notifications to expect.
func (d demo) foresee(ctx context.Context, in incident.Incident) score.Score {
	if in.Faults == nil {
		return score.Score{}
	}
	p, err := play.RunUntil(ctx, in, play.Options{Seed: d.seed})
	if err != nil {
		if ctx.Err() == nil {
			fmt.Fprintln(d.out, err)
		}
		return score.Score{}
	}
	defer p.Close()
	return score.New(p)
}

// explain prints what will happen, and which commands may be typed.
func (d demo) explain(in incident.Incident) {
	if in.Faults == nil {
		fmt.Fprint(d.out, "Nothing will happen. Type the name of an incident and Enter, or list; Ctrl-C ends.\n\n")
		return
	}
	fmt.Fprintf(d.out, "The incident begins in %s. Type lever 1 and Enter to pull its lever, healthy to undo it, another name for "+
		"another incident, or list; Ctrl-C ends.\n\n", d.onset)
}

// expect prints the notifications to wait for.
func (d demo) expect(in incident.Incident, s score.Score) {
	if in.Faults == nil || s.Incident == "" {
		return
	}
	if s.PagedBy == nil {
		fmt.Fprint(d.out, "In virtual time it woke nobody")
	} else {
		fmt.Fprintf(d.out, "In virtual time it paged after %s (%s)", s.Delay, strings.Join(s.PagedBy, ", "))
	}
	if s.Cause != "" {
		fmt.Fprintf(d.out, "; its cause had a name after %s (%s)", s.CauseAt, s.Cause)
	}
	fmt.Fprint(d.out, ".\n")
}
