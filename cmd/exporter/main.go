// Command exporter reads the GPUs of a node and the inference engines on it, and serves both in one vocabulary for
// Prometheus to scrape.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/promslog"
	promslogflag "github.com/prometheus/common/promslog/flag"
	"github.com/prometheus/common/version"
	"github.com/prometheus/exporter-toolkit/web"
	webflag "github.com/prometheus/exporter-toolkit/web/kingpinflag"
	"k8s.io/klog/v2"
)

func main() {
	// Collect garbage often: a node has little memory to spare for its exporter.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(30)
	}
	// Silence klog: the calls of the API server's client return its problems as errors.
	klog.SetSlogLogger(slog.New(slog.DiscardHandler))
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stderr)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "exporter:", err)
		os.Exit(1)
	}
}

// run executes the whole program: it returns when ctx is done or the exporter cannot go on.
func run(ctx context.Context, args []string, logTo io.Writer) error {
	app := kingpin.New("exporter", "Metrics of LLM inference engines and the GPUs under them, in one vocabulary.")
	app.HelpFlag.Short('h')
	app.Version(version.Print("llm-node-exporter"))
	var (
		configFile = app.Flag("config.file", "Configuration file. Read again on SIGHUP.").PlaceHolder("FILE").String()
		check      = app.Flag("config.check", "Check the configuration and exit.").Bool()
		targets    = app.Flag("engine.target", "An engine to read, as http://host:port. Repeatable. The exporter finds its metrics path and kind.").PlaceHolder("URL").Strings()
		options    serverOptions
		devices    gpuOptions
		finding    discoveryOptions
		probing    probeOptions
		logging    = &promslog.Config{Writer: logTo}
	)
	app.Flag("web.telemetry-path", "Path of the metrics.").Default("/metrics").StringVar(&options.metricsPath)
	app.Flag("web.max-requests", "Maximum number of concurrent scrapes; further ones get 503. 0 means no limit.").Default("40").IntVar(&options.maxRequests)
	app.Flag("web.enable-pprof", "Serve profiles under /debug/pprof/.").BoolVar(&options.pprof)
	app.Flag("web.enable-lifecycle", "Let anyone who reaches the port call POST /-/reload and POST /-/detach. Signals do the same: SIGHUP, SIGUSR1, SIGUSR2.").
		BoolVar(&options.lifecycle)
	devices.addFlags(app)
	finding.addFlags(app)
	probing.addFlags(app)
	webFlags := webflag.AddFlags(app, ":9844")
	promslogflag.AddFlags(app, logging)
	if _, err := app.Parse(args); err != nil {
		return fmt.Errorf("%w (see --help)", err)
	}
	log := promslog.New(logging)

	server, userAgent := newServer(options, log), "llm-node-exporter/"+version.Version
	server.load = func() (configuration, error) {
		return loadConfig(*configFile, *targets, probing, userAgent, log)
	}
	if err := server.reload(); err != nil {
		return err
	}
	if *check {
		log.Info("configuration is valid", "file", *configFile)
		return nil
	}

	cluster, err := finding.cluster(log)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	gpus, failed, err := server.startGPUs(ctx, devices, cluster, userAgent)
	if err != nil {
		return err
	}
	go server.probes.Run(ctx)
	server.startDiscovery(ctx, finding, cluster, devices.ProcFS, gpus)

	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	httpServer := &http.Server{Handler: server.handler(), ReadHeaderTimeout: 10 * time.Second}
	var fatal error
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-hangup:
				_ = server.reload() // the failure is logged and exported
				continue
			case fatal = <-failed:
			case <-ctx.Done():
			}
			grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			if err := httpServer.Shutdown(grace); err != nil {
				log.Warn("scrapes were cut off at shutdown", "err", err)
			}
			return
		}
	}()
	log.Info("starting", "version", version.Info(), "build", version.BuildContext())
	if err := web.ListenAndServe(httpServer, webFlags, log); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	<-stopped
	return fatal
}
