package live

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/discovery/targetgroup"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/rules"
	"github.com/prometheus/prometheus/scrape"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	ours "github.com/llm-node-exporter/llm-node-exporter/rules"
)

// settings is the configuration of the embedded Prometheus. Frequent scrapes make changes visible quickly.
const settings = `global:
  scrape_interval: 5s
  scrape_timeout: 4s
  evaluation_interval: 1m
scrape_configs:
  - job_name: ` + ours.DefaultJob + `
`

// Prometheus scrapes the exporter of a node, evaluates the rules and answers queries over HTTP. All of this is
// Prometheus' own code.
type Prometheus struct {
	store    *rulesim.Sim
	config   *config.Config
	registry *prometheus.Registry
	targets  *scrape.Manager
	rules    *rules.Manager
	query    rules.QueryFunc
	boards   boards
	server   *http.Server
}

// Source holds the inputs of a Prometheus.
type Source struct {
	// Exporter is the address of the exporter. Instance is the instance label of the exporter's series.
	Exporter, Instance string
	// RuleFile has the rules in Prometheus' format. Style has the addresses to which these rules link.
	RuleFile []byte
	Style    ours.Style
	// Store has the storage, to which the exporter's samples are appended.
	Store *rulesim.Sim
}

// NewPrometheus scrapes an exporter and serves at l. It keeps its rule file in dir. The caller must close it before the
// store.
func NewPrometheus(ctx context.Context, l net.Listener, s Source, dir string) (*Prometheus, error) {
	quiet := slog.New(slog.DiscardHandler)
	p := &Prometheus{store: s.Store, registry: prometheus.NewRegistry()}
	p.boards = boards{store: p.store, style: s.Style, node: "http://" + s.Exporter + "/", all: dashboards.All(nil)}
	db := p.store.DB()
	p.query = rules.EngineQueryFunc(p.store.Engine(), db)
	var err error
	if p.config, err = config.Load(settings, quiet); err != nil {
		return nil, err
	}
	options := scrape.Options{DiscoveryReloadInterval: model.Duration(time.Second), DiscoveryReloadOnStartup: true}
	if p.targets, err = scrape.NewManager(&options, quiet, nil, db, nil, p.registry); err != nil {
		return nil, err
	}
	if err := p.targets.ApplyConfig(p.config); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "rules.yaml")
	if err := os.WriteFile(file, s.RuleFile, 0o600); err != nil {
		return nil, err
	}
	p.rules = rules.NewManager(&rules.ManagerOptions{
		Context: ctx, Appendable: db, Queryable: db, QueryFunc: p.query, Logger: quiet, Registerer: p.registry,
		NotifyFunc: func(context.Context, string, ...*rules.Alert) {}, // Alerts reports the alerts instead
		Parser:     parser.NewParser(parser.Options{}),
	})
	interval := time.Duration(p.config.GlobalConfig.EvaluationInterval)
	// An empty first update prevents the second update from restoring state, because there is none.
	for _, files := range [][]string{nil, {file}} {
		if err := p.rules.Update(interval, files, labels.EmptyLabels(), "", nil); err != nil {
			return nil, fmt.Errorf("the rules do not load: %w", err)
		}
	}
	groups := make(chan map[string][]*targetgroup.Group, 1)
	groups <- map[string][]*targetgroup.Group{ours.DefaultJob: {{
		Targets: []model.LabelSet{{model.AddressLabel: model.LabelValue(s.Exporter)}},
		Labels:  model.LabelSet{model.InstanceLabel: model.LabelValue(s.Instance)},
	}}}
	go func() { _ = p.targets.Run(groups) }() // ends with Stop
	go p.rules.Run()
	p.server = &http.Server{Handler: p.handler(l.Addr().String()), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = p.server.Serve(l) }() // ends with Close
	return p, nil
}

// Close ends scrapes, rules and queries.
func (p *Prometheus) Close() error {
	p.targets.Stop()
	p.rules.Stop()
	return p.server.Close()
}

// Query evaluates an expression now.
func (p *Prometheus) Query(ctx context.Context, expr string) (promql.Vector, error) {
	return p.query(ctx, expr, time.Now())
}

// QueryAt evaluates an expression at a time.
func (p *Prometheus) QueryAt(ctx context.Context, expr string, at time.Time) (promql.Vector, error) {
	return p.query(ctx, expr, at)
}

// Alerts lists firing and pending alerts, with their start and the time for which their condition must apply.
func (p *Prometheus) Alerts() (firing []rulesim.Alert, pending []string, err error) {
	for _, r := range p.rules.AlertingRules() {
		err = errors.Join(err, r.LastError())
		for _, a := range r.ActiveAlerts() {
			switch a.State {
			case rules.StateFiring:
				firing = append(firing, rulesim.Alert{Name: r.Name(), Labels: a.Labels, Annotations: a.Annotations, Value: a.Value})
			case rules.StatePending:
				pending = append(pending, fmt.Sprintf("%s %s of %s", r.Name(), model.Duration(time.Since(a.ActiveAt).Round(time.Second)),
					model.Duration(r.HoldDuration())))
			case rules.StateInactive, rules.StateUnknown: // resolved, or not evaluated yet
			}
		}
	}
	slices.SortFunc(firing, func(a, b rulesim.Alert) int { return labels.Compare(a.Labels, b.Labels) })
	slices.Sort(pending)
	return firing, slices.Compact(pending), err
}
