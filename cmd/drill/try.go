package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/live"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// try monitors real engines with the same programs as in a cluster: the exporter, a Prometheus with the rules, and the
// dashboards. It keeps its data only in memory.
type try struct {
	exporter           string
	listen, prometheus uint16
	flags              []string
	out                io.Writer
}

// run runs until ctx is done or the exporter ends.
func (y try) run(ctx context.Context) (err error) {
	queries, err := net.Listen("tcp", fmt.Sprintf(":%d", y.prometheus))
	if err != nil {
		return err
	}
	defer queries.Close()
	dir, err := os.MkdirTemp("", "try")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	page, server := fmt.Sprintf("127.0.0.1:%d", y.listen), fmt.Sprintf("127.0.0.1:%d", y.prometheus)
	style := rules.Style{RunbookURL: "http://" + page + "/runbooks/{alert}{labels}", DashboardURL: "http://" + server + live.Boards + "{uid}"}
	file, err := rules.Encode(rules.NewFile(rules.Groups(rules.Options{}), style))
	if err != nil {
		return err
	}
	store, err := rulesim.New()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	exporter := exec.Command(y.exporter, append([]string{
		fmt.Sprintf("--web.listen-address=:%d", y.listen), "--log.level=warn",
		"--web.runbook-query-url=http://" + server + live.QueryPath + "?g0.expr={query}",
	}, y.flags...)...)
	exporter.Stdout, exporter.Stderr = os.Stderr, os.Stderr
	exporter.SysProcAttr = live.Child()
	if err := exporter.Start(); err != nil {
		return err
	}
	exited := make(chan error, 1)
	go func() { exited <- cmp.Or(exporter.Wait(), errors.New("it reported no error")) }()
	running, stop := context.WithCancel(ctx)
	defer stop()
	p, err := live.NewPrometheus(running, queries, live.Source{
		Exporter: page, Instance: page, RuleFile: file, Style: style,
		Store: store,
	}, dir)
	if err != nil {
		return errors.Join(err, exporter.Process.Kill())
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	fmt.Fprintf(y.out, "http://%s/ shows dashboards, http://%s/ the engines now. Pages and tickets are printed here; objectives need "+
		"some minutes of requests.\n", server, page)
	for tick, known := time.NewTicker(5*time.Second), []string(nil); ; {
		select {
		case <-ctx.Done():
			return finish(exporter, exited)
		case err := <-exited:
			return fmt.Errorf("the exporter ended, see its message above: %w", err)
		case now := <-tick.C:
			firing, _, err := p.Alerts()
			if err != nil {
				return errors.Join(err, finish(exporter, exited))
			}
			known = y.tell(now, firing, known)
		}
	}
}

// tell prints the alerts that have begun or ended since the last call, and returns the names of the firing alerts.
func (y try) tell(now time.Time, firing []rulesim.Alert, known []string) (names []string) {
	for _, a := range firing {
		if severity := a.Labels.Get(rules.SeverityLabel); severity != "critical" && severity != "warning" {
			continue
		}
		names = append(names, fmt.Sprintf("%s %s %s", a.Labels.Get(rules.SeverityLabel), a.Name, a.Labels.Get(metrics.LabelModel)))
		if !slices.Contains(known, names[len(names)-1]) {
			fmt.Fprintf(y.out, "%s  %s  %s\n", now.Format(time.TimeOnly), names[len(names)-1], a.Annotations.Get("summary"))
		}
	}
	for _, name := range known {
		if !slices.Contains(names, name) {
			fmt.Fprintf(y.out, "%s  %s  has ended\n", now.Format(time.TimeOnly), name)
		}
	}
	return names
}

// finish ends the exporter's process and waits for it.
func finish(exporter *exec.Cmd, exited <-chan error) error {
	if err := exporter.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-exited:
		return nil
	case <-time.After(10 * time.Second):
		return exporter.Process.Kill()
	}
}
