package engine

import (
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/internal/configfile"
	"github.com/llm-node-exporter/llm-node-exporter/internal/httpclient"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Config describes a collector.
type Config struct {
	Targets  []TargetConfig
	Mappings []Mapping
	// Limits bound the cost of metrics pages. Default: scrape.DefaultLimits.
	Limits scrape.Limits
	// Objectives are counted on every engine that they select.
	Objectives []slo.Objective
	// Maintenance lists declared intervals, for the engines and objectives that they cover.
	Maintenance []slo.Maintenance
	// Probed returns the results of probes, for objectives to count. It may be nil.
	Probed func() []*Probed
	// Connections returns the number of connections of clients at a server's address. known is false if the number is
	// unknown. The function is (*ownership.Collector).Connections, or nil.
	Connections func(server string) (n int, known bool)
	// Computing returns the share of time in which the engine at a server's address runs kernels on its busiest GPU. known
	// is false if the share is unknown. The function is (*ownership.Collector).Computing, or nil.
	Computing func(server string) (share float64, known bool)
	// Now returns the current time, for maintenance. Default: time.Now.
	Now func() time.Time
	// Histograms controls how much of each histogram is exported, by metric. Default: the whole histogram.
	Histograms map[string]slo.Shape
	// Ledger keeps the settings with which engines ran. If it is nil, New makes a ledger that lasts as long as the collector.
	Ledger *Ledger
	// UserAgent names the exporter to the engines.
	UserAgent string
	Log       *slog.Logger
}

// settings holds the part of a Config that is needed to compile a plan.
type settings struct {
	Config
	shapes map[*metrics.Family]slo.Shape
	pages  *budget
	read   *atomic.Pointer[[]*target] // all targets
}

// TargetConfig describes one engine to read.
type TargetConfig struct {
	// URL has scheme, host and port. Without a path, the exporter discovers the path. It expects the engine's other paths at the same prefix.
	// Each request sends URL's query, and the server label and logs show the query, so it must not contain secrets.
	URL string `yaml:"url"`
	// Engine selects the dialect, by a runtime or by the engine of a mapping. If Engine is empty, the dialect is recognised.
	Engine string `yaml:"engine"`
	// Timeout limits the time of one scrape. The scraper's own timeout also applies.
	Timeout model.Duration `yaml:"timeout"`
	// Labels are added to every series. model_name, namespace, pod, container and role replace the labels of the metrics
	// page. All other labels belong to the user.
	Labels map[string]string `yaml:"labels"`
	// GPUs names the GPUs of the engine, by UUID or index, if they cannot be discovered.
	GPUs []string `yaml:"gpus"`
	// HTTP has Prometheus' own client configuration: TLS, credentials from files, proxy.
	HTTP config.HTTPClientConfig `yaml:"http_config"`
	// Image is the image of the engine's container, if its pod is known.
	Image string `yaml:"-"`
	// Command has the container's command and arguments from the pod's spec. It does not have those of the image.
	Command []string `yaml:"-"`
	// Transport, if set, replaces the network, so that simulated engines can answer in virtual time.
	Transport http.RoundTripper `yaml:"-"`
}

// DefaultTimeout limits a scrape of one engine if the configuration sets no timeout.
const DefaultTimeout = 5 * time.Second

// Mapping describes an unknown engine, or more metrics of a known engine.
type Mapping struct {
	// Engine sets the runtime label. If it names a known engine, the mapping's metrics take precedence over the engine's
	// own metrics.
	Engine string `yaml:"engine"`
	// Recognise names a metric that only this engine has. Known engines do not need Recognise.
	Recognise string `yaml:"recognise"`
	// Labels maps labels of the vocabulary to labels of the metrics page: model_name, dp_rank, role or replica.
	Labels map[string]string `yaml:"labels"`
	// Metrics maps sources to quantities.
	Metrics []MetricMapping `yaml:"metrics"`
}

// MetricMapping maps one source.
type MetricMapping struct {
	// To names a metric of the vocabulary, such as llm_engine_requests_running.
	To string `yaml:"to"`
	// From selects the source, in PromQL.
	From string `yaml:"from"`
	// Type holds the type that the source must have on the metrics page: counter, gauge or histogram.
	Type scrape.Type `yaml:"type"`
	// Scale converts to the base unit of To. For milliseconds, Scale is 0.001.
	Scale float64 `yaml:"scale"`
	// Outcome is the outcome of the counted requests, for llm_engine_requests_total.
	Outcome metrics.Outcome `yaml:"outcome"`
}

// A ConfigError names the place of a mistake in the configuration by a path such as targets[0].url. The loader uses
// this path to name the line.
type ConfigError = configfile.Error

func configErrorf(path, format string, args ...any) error {
	return configfile.Errorf(path, format, args...)
}

// pageLabels lists the labels that identify a series of an engine's metrics page. Users cannot set these labels.
var pageLabels = []string{
	metrics.LabelRuntime, metrics.LabelServer, metrics.LabelDPRank, metrics.LabelReplica, metrics.LabelOutcome,
	metrics.LabelReason,
	metrics.LabelMetric, metrics.LabelSource, metrics.LabelQuality, metrics.LabelVersion, metrics.LabelSLO, metrics.LabelThreshold,
	metrics.LabelKind,
	labels.BucketLabel, "job", "instance",
}

// fetcherFor returns the fetcher of one server's metrics pages. path is the target's place in the configuration.
func fetcherFor(path string, cfg TargetConfig, limits scrape.Limits, userAgent string) (f scrape.Fetcher, at *url.URL, err error) {
	client, u, err := httpclient.To(path, cfg.URL, cfg.HTTP, cfg.Transport)
	if err != nil {
		return f, nil, err
	}
	return scrape.NewFetcher(client, u, engineFormat, limits, userAgent), u, nil
}

func newTarget(path string, cfg TargetConfig, dialects []*Dialect, settings *settings) (*target, error) {
	f, u, err := fetcherFor(path, cfg, settings.Limits, settings.UserAgent)
	if err != nil {
		return nil, err
	}
	t := &target{
		Fetcher:   f,
		labelling: labelling{server: f.At.Server(), asks: printable(u.Query().Get(modelParameter)), fixed: map[string]string{}},
		url:       u.Redacted(),
		timeout:   time.Duration(cfg.Timeout),
		config:    settings,
		from:      cfg,
		image:     cfg.Image,
		dialects:  dialects,
		log:       settings.Log.With("target", u.Redacted()),
		run:       make(chan struct{}, 1),
		reason:    reasonPending,
	}
	if t.timeout == 0 {
		t.timeout = DefaultTimeout
	}
	if cfg.Engine != "" {
		i := slices.IndexFunc(dialects, func(d *Dialect) bool { return string(d.Runtime) == cfg.Engine })
		if i < 0 {
			return nil, configErrorf(path+".engine", "unknown engine %q: use one of %s, or an engine under mappings", cfg.Engine, runtimes(dialects))
		}
		t.dialects, t.pinned, t.known.Runtime = dialects[i:i+1], true, dialects[i].Runtime
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Labels)) {
		value := cfg.Labels[name]
		switch {
		case !model.LegacyValidation.IsValidLabelName(name) || strings.HasPrefix(name, "__"):
			return nil, configErrorf(path+".labels."+name, "%q is not a label name", name)
		case slices.Contains(pageLabels, name):
			return nil, configErrorf(path+".labels."+name, "%q is set by the exporter and cannot be set here", name)
		case slices.Contains(metrics.EngineLabels, name):
			t.fixed[name] = value
		default:
			t.extra = append(t.extra, metrics.Label{Name: name, Value: value})
		}
	}
	return t, nil
}

func runtimes(dialects []*Dialect) string {
	names := make([]string, 0, len(dialects))
	for _, d := range dialects {
		names = append(names, string(d.Runtime))
	}
	return strings.Join(names, ", ")
}

// withMappings returns the known dialects and the user's mappings.
func withMappings(mappings []Mapping) ([]*Dialect, error) {
	dialects := slices.Clone(builtin)
	for i, m := range mappings {
		path := fmt.Sprintf("mappings[%d]", i)
		if !model.LegacyValidation.IsValidLabelName(m.Engine) {
			return nil, configErrorf(path+".engine", "an engine needs a name of letters, digits and underscores, such as my_engine")
		}
		known := slices.IndexFunc(dialects, func(d *Dialect) bool { return string(d.Runtime) == m.Engine })
		var d Dialect
		switch {
		case known >= 0:
			d = *dialects[known]
		case m.Recognise == "":
			return nil, configErrorf(path+".recognise", "name a metric that only %s has", m.Engine)
		default:
			d = Dialect{Runtime: metrics.Runtime(m.Engine), Source: "configuration"}
		}
		if m.Recognise != "" {
			d.Recognise = func(p *scrape.Page) bool { return p.Has(m.Recognise) }
		}
		rows, err := m.rows(path)
		if err != nil {
			return nil, err
		}
		d.Rows = append(rows, d.Rows...)
		for _, to := range slices.Sorted(maps.Keys(m.Labels)) {
			if to != metrics.LabelModel && to != metrics.LabelDPRank && to != metrics.LabelRole && to != metrics.LabelReplica {
				return nil, configErrorf(path+".labels."+to, "only model_name, dp_rank, role and replica can be read from metrics")
			}
			d.Labels = append([]metrics.Carry{{From: m.Labels[to], To: to}}, d.Labels...)
		}
		if known >= 0 {
			dialects[known] = &d
		} else {
			dialects = append(dialects, &d)
		}
	}
	return dialects, nil
}

// rows compiles the mapping's metrics.
func (m Mapping) rows(path string) ([]Row, error) {
	promql := parser.NewParser(parser.Options{})
	var rows []Row
	for i, mm := range m.Metrics {
		path := fmt.Sprintf("%s.metrics[%d]", path, i)
		to := metrics.Lookup(mm.To)
		if to == nil || !new(Dialect).Concerns(to) {
			return nil, configErrorf(path+".to", "%q is not a metric of the exporter: docs/metrics.md lists them", mm.To)
		}
		matchers, err := promql.ParseMetricSelector(mm.From)
		if err != nil {
			return nil, configErrorf(path+".from", "not a PromQL selector: %w", err)
		}
		name := slices.IndexFunc(matchers, func(l *labels.Matcher) bool { return l.Name == model.MetricNameLabel })
		if name < 0 || matchers[name].Type != labels.MatchEqual {
			return nil, configErrorf(path+".from", "the selector must name one metric, as in name{label=\"value\"}")
		}
		if mm.Type != scrape.Counter && mm.Type != scrape.Gauge && mm.Type != scrape.Histogram {
			return nil, configErrorf(path+".type", "%q is not one of counter, gauge, histogram", mm.Type)
		}
		if mm.Type != scrape.Type(to.Kind.String()) {
			return nil, configErrorf(path+".type", "%s is a %s, so its source must have this type, not %s", to.Name, to.Kind, mm.Type)
		}
		if (mm.Outcome != "") != to.HasLabel(metrics.LabelOutcome) {
			return nil, configErrorf(path+".outcome", "only %s takes an outcome", metrics.Requests.Name)
		}
		from := matchers[name].Value
		row := Row{To: to, From: from, Is: mm.Type, Where: slices.Delete(matchers, name, name+1), Scale: metrics.Scale{Mul: mm.Scale}}
		if mm.Outcome != "" {
			row.Set, row.Plus = outcome(mm.Outcome), true
		}
		if mm.Scale < 0 {
			return nil, configErrorf(path+".scale", "must not be negative")
		}
		if inverse := 1 / mm.Scale; mm.Scale > 0 && inverse == float64(int64(inverse)) {
			row.Scale = metrics.Scale{Div: inverse} // keeps decimal bounds exact
		}
		rows = append(rows, row)
	}
	return rows, nil
}
