package main

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/alecthomas/units"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/probe"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/internal/configfile"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// Config is the content of the exporter's configuration file.
type Config struct {
	// Targets lists the engines to read.
	Targets []engine.TargetConfig `yaml:"targets"`
	// Mappings describe engines that the exporter does not support itself.
	Mappings []engine.Mapping `yaml:"mappings"`
	// Objectives are the service level objectives for the engines. Without the section, slo.Defaults apply on
	// nodes, and no objectives with --role=cluster. An empty list means none.
	Objectives []slo.Objective `yaml:"objectives"`
	// Maintenance lists declared intervals in which bad events spend no budget.
	Maintenance []slo.Maintenance `yaml:"maintenance"`
	// Retention is how long Prometheus keeps samples. The exporter only compares the objectives' periods with it.
	Retention slo.Duration `yaml:"retention"`
	// Histograms controls how much of each histogram is exported, by metric. Default: the whole histogram.
	Histograms map[string]slo.Shape `yaml:"histograms"`
	// GPUHourPrice has the price of a GPU hour, by the GPU's product name. The name * sets the price for all other GPUs.
	// Without the section, no cost is computed.
	GPUHourPrice map[string]float64 `yaml:"gpu_hour_price"`
	// Probes lists synthetic requests. Without the section, the exporter sends no probes.
	Probes []probe.Config `yaml:"probes"`
	// Prometheus is the server that answers the queries in the runbooks. Without the section, the exporter sends no
	// queries.
	Prometheus *PrometheusConfig `yaml:"prometheus"`
	// Limits limits the cost of reading one engine's metrics.
	Limits LimitsConfig `yaml:"limits"`
}

// LimitsConfig holds scrape.Limits in the units of the configuration file. Zero values select the defaults.
type LimitsConfig struct {
	// BodySize limits the size of an engine's metrics after decompression, such as 16MiB.
	BodySize units.Base2Bytes `yaml:"body_size"`
	// Series limits the number of series of an engine.
	Series int `yaml:"series"`
	// LabelValueLength limits the length of a label value in bytes. Longer values are cut.
	LabelValueLength int `yaml:"label_value_length"`
	// Memory limits the memory for the metrics of all engines together, such as 320MiB.
	Memory units.Base2Bytes `yaml:"memory"`
}

func (l LimitsConfig) limits() scrape.Limits {
	limits := scrape.DefaultLimits
	if l.BodySize > 0 {
		limits.BodyBytes = int64(l.BodySize)
	}
	if l.Series > 0 {
		limits.Series = l.Series
	}
	if l.LabelValueLength > 0 {
		limits.LabelValueBytes = l.LabelValueLength
	}
	if l.Memory > 0 {
		limits.Memory = int64(l.Memory)
	}
	return limits
}

// configOptions holds the flags of the configuration.
type configOptions struct {
	role      string
	file      string
	checkOnly bool
	targets   []string
	ledger    *engine.Ledger // kept when a reload replaces the collectors
}

func (o *configOptions) addFlags(app *kingpin.Application) {
	app.Flag("role", "What to read: node (the GPUs and engines of this node, and configured targets) or cluster (only configured "+
		"gateways, other targets and probes).").
		Default(roleNode).EnumVar(&o.role, roleNode, roleCluster)
	app.Flag("config.file", "Configuration file. SIGHUP reloads it.").PlaceHolder("FILE").StringVar(&o.file)
	app.Flag("config.check", "Check the configuration and exit.").BoolVar(&o.checkOnly)
	app.Flag("engine.target",
		"An engine to scrape, as http://host:port. Repeatable. The exporter detects the engine's kind and metrics path.").PlaceHolder("URL").
		StringsVar(&o.targets)
}

// probeOptions holds the flags of synthetic requests.
type probeOptions struct {
	engines       bool
	target, model string
	interval      time.Duration
}

func (o *probeOptions) addFlags(app *kingpin.Application, ofNode nodeFlags) {
	ofNode.Flag("probe.engines",
		"Send a small synthetic request from time to time to each model of the engines on this node, configured or discovered. Requests "+
			"cost tokens: see docs/operations.md.").
		BoolVar(&o.engines)
	app.Flag("probe.target", "Send a small synthetic request from time to time to this engine, given as http://host:port. Requests cost "+
		"tokens: see docs/operations.md.").
		PlaceHolder("URL").StringVar(&o.target)
	app.Flag("probe.model", "Model to request, by the name that clients use.").PlaceHolder("NAME").StringVar(&o.model)
	app.Flag("probe.interval", "Mean time between two synthetic requests; also the default for configured probes.").
		Default(probe.DefaultInterval.String()).DurationVar(&o.interval)
}

// configuration holds the collectors and settings that the file and the flags describe.
type configuration struct {
	engines *engine.Collector
	probes  []*probe.Probe
	ask     runbooks.Asker // nil without a Prometheus
	past    triage.Past    // nil without a Prometheus
	prices  map[string]float64
}

// seen has functions that report what other collectors observe of engines: the results of probes, the connections to
// servers, and how busy the engines' GPUs are.
type seen struct {
	probed      func() []*engine.Probed
	connections func(server string) (n int, known bool)
	computing   func(server string) (share float64, known bool)
}

// loadConfig reads the file, if there is one, and adds the targets and the probe of the command line. It builds all
// collectors of the configuration. Errors name the file, the line and the remedy.
func loadConfig(o configOptions, extraProbe probeOptions, seen seen, log *slog.Logger) (c configuration, err error) {
	var cfg Config
	var file *configfile.File
	if o.file != "" {
		if file, err = configfile.Read(o.file); err == nil {
			err = file.Decode(&cfg)
		}
		if err != nil {
			return c, fmt.Errorf("cannot read the configuration: %w", err)
		}
	}
	at := byFlag{file, len(cfg.Targets), len(cfg.Probes)}
	for _, url := range o.targets {
		cfg.Targets = append(cfg.Targets, engine.TargetConfig{URL: url})
	}
	switch p := extraProbe; {
	case (p.target == "") != (p.model == ""):
		return c, errors.New("--probe.target and --probe.model go together: give the engine to probe, and the model's name as clients use it")
	case p.target != "":
		cfg.Probes = append(cfg.Probes, probe.Config{URL: p.target, Model: p.model})
	}
	if extraProbe.engines {
		cfg.Probes = append(cfg.Probes, probe.Config{Engines: true})
	}
	if len(cfg.Probes) > 0 && extraProbe.interval < probe.MinInterval {
		return c, fmt.Errorf("--probe.interval: %s is too short: at least %s", extraProbe.interval, probe.MinInterval)
	}
	if cfg.Objectives == nil && o.role == roleNode {
		cfg.Objectives = slo.Defaults()
	}
	if err := checkObjectives(cfg, log); err != nil {
		return c, file.At(err)
	}
	if err := checkPrices(cfg.GPUHourPrice); err != nil {
		return c, file.At(err)
	}
	c.prices = cfg.GPUHourPrice
	c.engines, err = engine.New(engine.Config{
		Targets: cfg.Targets, Mappings: cfg.Mappings, Limits: cfg.Limits.limits(), Objectives: cfg.Objectives, Maintenance: cfg.Maintenance,
		Histograms: cfg.Histograms,
		Probed:     seen.probed, Connections: seen.connections, Computing: seen.computing,
		UserAgent: userAgent(), Log: log, Ledger: o.ledger,
	})
	if err == nil {
		c.probes, err = probe.Compile(cfg.Probes, extraProbe.interval, userAgent())
	}
	if err == nil {
		c.ask, err = cfg.Prometheus.asker()
	}
	if err == nil {
		c.past, err = cfg.Prometheus.past()
	}
	return c, at.name(err)
}

// byFlag separates errors in flags from errors in the file. In the lists of targets and of probes, entries from flags
// follow entries from the file.
type byFlag struct {
	file            *configfile.File
	targets, probes int // in the file
}

// name adds to an error the line in the file, or the flag, that caused it.
func (b byFlag) name(err error) error {
	if several, ok := err.(interface{ Unwrap() []error }); ok {
		all := slices.Clone(several.Unwrap())
		for i, one := range all {
			all[i] = b.name(one)
		}
		return errors.Join(all...)
	}
	if at, ok := errors.AsType[*configfile.Error](err); ok {
		var i int
		var field string
		if n, _ := fmt.Sscanf(at.Path, "targets[%d].%s", &i, &field); n > 0 && i >= b.targets {
			return fmt.Errorf("--engine.target: %w", at.Err)
		}
		if n, _ := fmt.Sscanf(at.Path, "probes[%d].%s", &i, &field); n > 0 && i >= b.probes {
			if field == "model" {
				return fmt.Errorf("--probe.model: %w", at.Err)
			}
			return fmt.Errorf("--probe.target: %w", at.Err)
		}
	}
	return b.file.At(err)
}

// checkPrices refuses invalid prices.
func checkPrices(prices map[string]float64) error {
	for _, name := range slices.Sorted(maps.Keys(prices)) {
		if p := prices[name]; !(p >= 0) || math.IsInf(p, 0) {
			return configfile.Errorf("gpu_hour_price."+name, "%v is not a price: write a number of at least 0", p)
		}
	}
	return nil
}

// checkObjectives completes the objectives, and refuses invalid objectives and invalid maintenance. It logs where the
// exporter will not do exactly what the configuration requests.
func checkObjectives(cfg Config, log *slog.Logger) error {
	for i := range cfg.Objectives {
		cfg.Objectives[i] = cfg.Objectives[i].WithDefaults()
	}
	var wrong []error
	findings := slo.Check(cfg.Objectives, slo.CheckOptions{Retention: cfg.Retention})
	findings = append(findings, slo.CheckMaintenance(cfg.Maintenance, cfg.Objectives, time.Now())...)
	for _, f := range findings {
		if !f.Fatal {
			log.Info("configuration", "note", f.String())
			continue
		}
		path := f.Field
		if i := slices.IndexFunc(cfg.Objectives, func(o slo.Objective) bool { return o.Name == f.Objective }); i >= 0 {
			path = fmt.Sprintf("objectives[%d].%s", i, f.Field)
		}
		wrong = append(wrong, configfile.Errorf(path, "%s", f.Text))
	}
	return errors.Join(wrong...)
}
