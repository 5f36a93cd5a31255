// Package live runs an incident of the drill in real time, over HTTP on this machine. The engines have their own ports,
// the GPUs are behind a fake NVML library, the exporter is a process, and a Prometheus is embedded. All numbers of
// engines and GPUs are invented.
package live

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// step is the interval at which the world catches up with the present.
const step = time.Second

// Node runs a simulated node: engines, GPUs and the exporter that reads them.
type Node struct {
	*Play
	// Engines lists the addresses of the engines, in the order of the replicas.
	Engines []string
	// WithoutGPUs explains why there are no GPUs. It is nil if there are GPUs.
	WithoutGPUs error

	options Options
	ports   []*port
	args    []string // the exporter's arguments
	config  []byte   // the exporter's configuration file
	exited  chan error
	process *exec.Cmd
}

// Options describe a node.
type Options struct {
	Incident incident.Incident
	Seed     uint64
	// Exporter is the exporter's binary. Listen is the address on which the exporter listens.
	Exporter, Listen string
	// Prometheus is the address that answers queries and shows the dashboards. Messages link to this address.
	Prometheus string
	// Dir is the folder for the node's files. It must be empty. The caller removes it.
	Dir string
	// Log receives the exporter's log.
	Log io.Writer
}

// NewNode opens the engines' ports and builds the GPUs. The caller must close it.
func NewNode(o Options) (*Node, error) {
	n := &Node{options: o, exited: make(chan error, 1)}
	listeners := make([]net.Listener, o.Incident.Fleet.Replicas)
	for i := range listeners {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() {
			if n.ports == nil {
				l.Close()
			}
		}()
		listeners[i] = l
		n.Engines = append(n.Engines, l.Addr().String())
	}
	n.args = []string{
		"--web.listen-address=" + o.Listen, "--log.level=error", "--config.file=" + n.file("exporter.yml"), "--discovery=none",
		"--web.runbook-query-url=http://" + o.Prometheus + QueryPath + "?g0.expr={query}",
	}
	gpus, err := n.gpus()
	switch {
	case errors.Is(err, fakenvml.ErrNoCompiler), errors.Is(err, fakenvml.ErrNoHeader):
		n.WithoutGPUs = err
		n.args = append(n.args, "--no-collector.gpu")
	case err != nil:
		return nil, err
	}
	n.Play, err = newPlay(o.Incident, o.Seed, surroundings{
		engines: n.Engines, gpus: gpus, kmsg: n.file("kmsg"), prometheus: "http://" + o.Prometheus,
		style: rules.Style{RunbookURL: "http://" + o.Listen + "/runbooks/{alert}{labels}", DashboardURL: "http://" + o.Prometheus + Boards +
			"{uid}"},
	})
	if err != nil {
		return nil, err
	}
	if err := n.configure(); err != nil {
		return nil, errors.Join(err, n.Play.Close())
	}
	for i, l := range listeners {
		n.ports = append(n.ports, newPort(l, func() http.Handler { return n.Engine(i) }))
	}
	return n, nil
}

// configure updates the exporter's configuration, because pods come and go.
func (n *Node) configure() error {
	config, err := n.Config()
	if err != nil || bytes.Equal(config, n.config) {
		return err
	}
	n.config = config
	if err := os.WriteFile(n.file("exporter.yml"), config, 0o600); err != nil || n.process == nil {
		return err
	}
	return n.process.Process.Signal(syscall.SIGHUP)
}

func (n *Node) file(name string) string { return filepath.Join(n.options.Dir, name) }

// gpus builds the fake NVML library, and the files in which a kernel would show the GPUs.
func (n *Node) gpus() (*fakenvml.State, error) {
	library, err := fakenvml.Build(n.options.Dir)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(n.file("kmsg"), nil, 0o600); err != nil {
		return nil, err
	}
	replicas := n.options.Incident.Fleet.Replicas
	for i := range replicas {
		device := filepath.Join(n.options.Dir, "sys/bus/pci/devices", world.PCI(i))
		if err := os.MkdirAll(device, 0o700); err != nil {
			return nil, err
		}
		for file, content := range map[string]string{"vendor": "0x10de\n", "class": "0x030200\n"} {
			if err := os.WriteFile(filepath.Join(device, file), []byte(content), 0o600); err != nil {
				return nil, err
			}
		}
	}
	n.args = append(n.args, "--gpu.nvml-library="+library, "--gpu.kmsg="+n.file("kmsg"), "--path.sysfs="+n.file("sys"))
	return world.NewNVML(library, replicas)
}

// Run starts the exporter, and lets the world run until ctx is done or there is an error.
func (n *Node) Run(ctx context.Context) error {
	tick := time.NewTicker(step)
	defer tick.Stop()
	for {
		if err := n.follow(); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case err := <-n.exited:
			n.process = nil
			return fmt.Errorf("the exporter ended, see its message above: %w", err)
		case <-tick.C:
		}
	}
}

// History plays the time up to the present. The GPU series that the world lacks come from the metrics page of the real
// exporter, which History starts briefly.
func (n *Node) History(ctx context.Context, done func(share float64)) error {
	if n.WithoutGPUs == nil {
		page, err := n.page(ctx)
		if err != nil {
			return err
		}
		n.past.Also(page)
	}
	return n.Play.History(ctx, done)
}

// page starts the exporter, and returns the exporter's metrics page. Before that, it waits until the page covers one
// second of all GPUs and their processes.
func (n *Node) page(ctx context.Context) (string, error) {
	if err := n.start(); err != nil {
		return "", err
	}
	tick := time.NewTicker(step / 5)
	defer tick.Stop()
	for range 150 {
		select {
		case <-ctx.Done():
			return "", ctx.Err()
		case err := <-n.exited:
			n.process = nil
			return "", fmt.Errorf("the exporter ended, see its message above: %w", err)
		case <-tick.C:
		}
		page, err := get(ctx, "http://"+n.options.Listen+"/metrics")
		ofAll := func(f *metrics.Family) bool {
			return strings.Count(page, "\n"+f.Name+"{") == n.options.Incident.Fleet.Replicas
		}
		if err == nil && ofAll(metrics.GPUMemoryBandwidthUtilization) && ofAll(metrics.GPUContainerSMUtilization) {
			n.stop()
			return page, nil
		}
	}
	return "", errors.New("the exporter shows no GPUs within 30 s")
}

func get(ctx context.Context, url string) (string, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	page, err := io.ReadAll(answer.Body)
	return string(page), err
}

// follow updates the world, the ports and the exporter's process to the present.
func (n *Node) follow() error {
	if err := n.Advance(time.Now()); err != nil {
		return err
	}
	for _, p := range n.ports {
		if err := p.follow(); err != nil {
			return err
		}
	}
	if err := n.configure(); err != nil {
		return err
	}
	switch down := n.ExporterDown(); {
	case down && n.process != nil:
		n.stop()
	case !down && n.process == nil:
		return n.start()
	}
	return nil
}

func (n *Node) start() error {
	n.process = exec.Command(n.options.Exporter, n.args...)
	n.process.Stdout, n.process.Stderr = n.options.Log, n.options.Log
	n.process.SysProcAttr = Child()
	if err := n.process.Start(); err != nil {
		n.process = nil
		return fmt.Errorf("cannot start the exporter (make build makes it): %w", err)
	}
	go func(p *exec.Cmd) { n.exited <- cmp.Or(p.Wait(), errors.New("it reported no error")) }(n.process)
	return nil
}

// stop ends the exporter's process and waits for its exit.
func (n *Node) stop() {
	_ = n.process.Process.Signal(syscall.SIGTERM) // the process may have exited already
	select {
	case <-n.exited:
	case <-time.After(10 * time.Second):
		_ = n.process.Process.Kill()
		<-n.exited
	}
	n.process = nil
}

// Source returns the inputs of a Prometheus that monitors the node. Call it after History.
func (n *Node) Source() Source {
	return Source{
		Exporter: n.options.Listen, Instance: play.Instance, RuleFile: n.past.RuleFile, Style: n.around.style,
		Store: n.past.Prometheus,
	}
}

// Close stops the node. Call it only after Run has returned.
func (n *Node) Close() error {
	if n.process != nil {
		n.stop()
	}
	for _, p := range n.ports {
		p.close()
	}
	return n.Play.Close()
}
