// Command exporter reads the GPUs and inference engines of a node. It serves their metrics to Prometheus under the same
// names for all engines. With --role=cluster it reads endpoints that belong to no node, such as gateways, and sends
// probes. It stores nothing. Only /verdict and triage evaluate rules, over two readings.
//
//	run        the whole program, from flags to shutdown      main.go, flags.go, memory.go
//	config     the configuration file and what it becomes     config.go
//	node       the collectors, reloads and signals            node.go, gpus.go, discovery.go, process.go, self.go, acting.go
//	server     routes, scrapes and web pages for people       server.go, connections.go, engines.go, verdict.go, answers.go, page/
//	commands   what runs instead of the server                capacity.go, doctor.go, against.go, migrate.go, release.go, triage.go
package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"
	"github.com/prometheus/common/version"
	"k8s.io/klog/v2"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
)

func main() {
	// Collect garbage often, because a node has little memory to spare for its exporter.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(20)
	}
	// Run on one core. A scrape takes milliseconds. With several cores, it would take longer to wake the cores than to do
	// the work on one.
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(1)
	}
	// Silence klog, because the API server's client also returns its problems as errors.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	status, err := dispatch(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "exporter:", err)
	}
	os.Exit(status)
}

// commands lists the commands. If the first argument names a command, the command runs instead of the server. A command
// writes its result to out, and reports its progress to progress.
var commands = map[string]func(ctx context.Context, args []string, out, progress io.Writer) (status int, err error){
	"capacity": capacityCommand,
	"doctor":   doctorCommand,
	"migrate":  migrateCommand,
	"release":  releaseCommand,
	"triage":   triageCommand,
}

// dispatch runs a command or the server, and returns the exit status.
func dispatch(ctx context.Context, args []string) (status int, err error) {
	if len(args) > 0 && commands[args[0]] != nil {
		return commands[args[0]](ctx, args[1:], os.Stdout, os.Stderr)
	}
	if err := run(ctx, args, os.Stderr); err != nil {
		return 1, err
	}
	return 0, nil
}

// These are the roles of an exporter.
const (
	roleNode    = "node"
	roleCluster = "cluster" // reads only the configured endpoints, and nothing else of the node
)

// options holds all flags.
type options struct {
	config    configOptions
	server    serverOptions
	gpus      gpuOptions
	discovery discoveryOptions
	probes    probeOptions
	act       actOptions
	log       promslog.Config
}

// parseFlags reads the command line.
func parseFlags(args []string) (o options, err error) {
	app := kingpin.New("exporter", "Metrics of LLM inference engines and their GPUs, under the same names for every engine.\n\n"+
		"exporter triage: where to look first in an incident? See exporter triage --help.\n"+
		"exporter capacity: how much more load can a model take? See exporter capacity --help.\n"+
		"exporter release: is a model worse since its version or a setting changed? See exporter release --help.\n"+
		"exporter doctor: why is a series or a value missing? See exporter doctor --help.\n"+
		"exporter migrate: rewrite dashboards and rules of other exporters. See exporter migrate --help.")
	app.HelpFlag.Short('h')
	app.Version(version.Print("llm-node-exporter"))
	o.addFlags(app)
	if _, err := app.Parse(args); err != nil {
		return o, fmt.Errorf("%w (see --help)", named(app, args, err))
	}
	o = o.ofRole()
	return o, o.check()
}

// addFlags adds the flags of the server.
func (o *options) addFlags(app *kingpin.Application) {
	o.config.addFlags(app)
	o.server.addFlags(app)
	ofNode := nodeFlags{app, &o.config.role}
	o.gpus.addFlags(ofNode)
	o.discovery.addFlags(ofNode)
	o.probes.addFlags(app, ofNode)
	o.act.addFlags(app)
	promslogflag.AddFlags(app, &o.log)
}

// ofRole returns the options that the role allows.
func (o options) ofRole() options {
	if o.config.role == roleCluster {
		o.gpus.enabled, o.discovery.source = false, "none"
	}
	return o
}

// nodeFlags adds flags about the node, which --role=cluster refuses.
type nodeFlags struct {
	*kingpin.Application
	role *string
}

// Flag adds a flag. Its action runs only if the command line has the flag.
func (f nodeFlags) Flag(name, help string) *kingpin.FlagClause {
	return f.Application.Flag(name, help).Action(func(*kingpin.ParseContext) error {
		if *f.role == roleCluster {
			return fmt.Errorf("--%s concerns a node, but --role=cluster reads nothing on its node: omit this flag, or run another exporter "+
				"with it on the node", name)
		}
		return nil
	})
}

// userAgent returns the exporter's name in requests.
func userAgent() string { return "llm-node-exporter/" + version.Version }

// load returns the node with its configuration loaded. Nothing is started yet.
func load(o options) (*node, error) {
	log := promslog.New(&o.log)
	o.config.ledger = engine.NewLedger(time.Now()) // kept across reloads
	return newNode(func(seen seen) (configuration, error) { return loadConfig(o.config, o.probes, seen, log) }, log)
}

// run executes the whole program. It returns when ctx ends or the exporter must stop.
func run(ctx context.Context, args []string, logTo io.Writer) error {
	o, err := parseFlags(args)
	if err != nil {
		return err
	}
	o.log.Writer = logTo
	n, err := load(o)
	if err != nil {
		return err
	}
	if o.config.checkOnly {
		n.log.Info("configuration is valid", "file", o.config.file)
		return nil
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed, err := n.start(ctx, o)
	if err == nil {
		err = startActing(ctx, o.act, n.log)
	}
	if err != nil {
		return err
	}
	letGo := func() {
		if err := unmapBinary(); err != nil {
			n.log.Debug("memory that only the start needed was not released", "err", err)
		}
	}
	letGo()
	time.AfterFunc(time.Minute, letGo) // later scrapes do not use the memory of the first scrape
	n.log.Info("starting", "version", version.Info(), "build", version.BuildContext())
	return serve(ctx, n, o.server, failed)
}
