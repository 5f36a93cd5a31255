package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/release"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// capacityCommand reports how much more load the engines of a node can take before an objective breaks. The exit status
// is 0 if all capacities are known, 1 if a model gets more requests than it can serve, and 3 if the capacity of an
// engine is unknown.
func capacityCommand(ctx context.Context, args []string, out, _ io.Writer) (status int, err error) {
	var o triageOptions
	asked := false
	app := kingpin.New("exporter capacity",
		"Estimate how many requests per second the models on this node can serve within their objectives. Exit status: 0 there is room, 1 a "+
			"model is beyond its capacity, 3 a capacity is not known.")
	app.HelpFlag.Short('h')
	app.UsageWriter(out).Terminate(func(int) { asked = true })
	app.Flag("exporter", "Address of a running exporter.").Default("http://127.0.0.1:9844").PlaceHolder("URL").StringVar(&o.exporter)
	app.Flag("exporter.http-config",
		"File with TLS settings and credentials for the exporter, in the format of Prometheus' http_config.").PlaceHolder("FILE").
		StringVar(&o.httpConfig)
	if _, err := app.Parse(args); asked {
		return 0, nil
	} else if err != nil {
		return 3, fmt.Errorf("capacity: %w (see exporter capacity --help)", named(app, args, err))
	}
	read, err := o.page()
	if err != nil {
		return 3, err
	}
	page, err := read(ctx)
	if err != nil {
		return 3, err
	}
	models := capacities(page.Series)
	if len(models) == 0 {
		_, err := fmt.Fprintln(out, "No engine reports first tokens and the time between tokens, so there is no forecast.")
		return 3, err
	}
	for _, m := range models {
		status = max(status, m.status())
		if err := m.write(out); err != nil {
			return 3, err
		}
	}
	return status, nil
}

// nodeCapacity is the total capacity of a model's engines on a node, or of its engines in one role.
type nodeCapacity struct {
	name       string
	engines    int
	unknown    map[string]int // engines without known capacity, by reason
	objectives map[string]*objectiveCapacity
	could      map[string]float64 // requests per second, by lever
}

// objectiveCapacity is the load that the engines can take before an objective breaks.
type objectiveCapacity struct {
	requests map[string]float64 // per second, by kind
	tokens   float64            // per second
	used     float64            // the current load as a share of the capacity, for the engine with the largest share
	limits   []string
}

// capacities adds up the engines of each model.
func capacities(series promql.Vector) []*nodeCapacity {
	models := map[string]*nodeCapacity{}
	of := func(l labels.Labels) *nodeCapacity {
		name := strings.TrimPrefix(l.Get(metrics.LabelNamespace)+"/"+l.Get(metrics.LabelModel), "/")
		if role := l.Get(metrics.LabelRole); role != "" { // a request needs an engine of each role
			name += " (" + role + ")"
		}
		if models[name] == nil {
			models[name] = &nodeCapacity{
				name: name, unknown: map[string]int{}, objectives: map[string]*objectiveCapacity{},
				could: map[string]float64{},
			}
		}
		return models[name]
	}
	for _, s := range series {
		objective := func() *objectiveCapacity {
			m, name := of(s.Metric), s.Metric.Get(metrics.LabelSLO)
			if m.objectives[name] == nil {
				m.objectives[name] = &objectiveCapacity{requests: map[string]float64{}}
			}
			return m.objectives[name]
		}
		switch s.Metric.Get(model.MetricNameLabel) {
		case metrics.EngineCapacityKnown.Name:
			if of(s.Metric).engines++; s.F == 0 {
				of(s.Metric).unknown[s.Metric.Get(metrics.LabelReason)]++
			}
		case metrics.EngineCapacity.Name:
			objective().requests[s.Metric.Get(metrics.LabelKind)] += s.F
		case metrics.EngineCapacityTokens.Name:
			objective().tokens += s.F
		case metrics.EngineCapacityIf.Name:
			of(s.Metric).could[s.Metric.Get(metrics.LabelLever)] += s.F
		case metrics.EngineCapacityUsed.Name:
			objective().used = max(objective().used, s.F)
		case metrics.EngineCapacityLimit.Name:
			if limit := s.Metric.Get(metrics.LabelLimit); !slices.Contains(objective().limits, limit) {
				objective().limits = append(objective().limits, limit)
			}
		}
	}
	return slices.SortedFunc(maps.Values(models), func(a, b *nodeCapacity) int { return strings.Compare(a.name, b.name) })
}

// status returns the exit status for a model.
func (m *nodeCapacity) status() int {
	switch {
	case len(m.unknown) > 0:
		return 3
	case slices.ContainsFunc(m.tightest(), func(name string) bool { return m.objectives[name].used > 1 }):
		return 1
	}
	return 0
}

// tightest returns the objectives in the order in which they break.
func (m *nodeCapacity) tightest() []string {
	return slices.SortedFunc(maps.Keys(m.objectives), func(a, b string) int {
		return cmp.Or(cmp.Compare(m.objectives[b].used, m.objectives[a].used), strings.Compare(a, b))
	})
}

// whyUnknown explains each reason why the capacity of an engine is unknown.
var whyUnknown = map[string]string{
	"few_readings":  "the exporter has watched this engine for less than half an hour, or the engine had hardly any requests; try again later",
	"little_spread": "the load has hardly changed; try again after a busier or a quieter time",
	"no_fit":        "the duration of steps does not depend on the load as expected",
	"no_histograms": "the engine does not report histograms of first tokens and of the time between tokens",
}

// write prints the capacity of a model.
func (m *nodeCapacity) write(out io.Writer) error {
	known := m.engines
	for _, n := range m.unknown {
		known -= n
	}
	fmt.Fprintf(out, "%s: the capacity of %d of %d engines on this node is known\n", m.name, known, m.engines)
	for why, n := range m.unknown {
		fmt.Fprintf(out, "  %d unknown: %s\n", n, cmp.Or(whyUnknown[why], why))
	}
	if known == 0 {
		return nil
	}
	table := tabwriter.NewWriter(out, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "  objective\tbreaks at\tor between\ttokens\tload now\tbottleneck")
	for _, name := range m.tightest() {
		o := m.objectives[name]
		slices.Sort(o.limits)
		fmt.Fprintf(table, "  %s\t%s requests/s\t%s and %s\t%s/s\t%.0f%%\t%s\n", name, release.Shown(o.requests["expected"], rules.Decimal),
			release.Shown(o.requests["low"], rules.Decimal), release.Shown(o.requests["high"], rules.Decimal),
			release.Shown(o.tokens, rules.Decimal), 100*o.used, strings.Join(o.limits, ", "))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	now := m.objectives[m.tightest()[0]].requests["expected"]
	for _, lever := range slices.SortedFunc(maps.Keys(m.could), func(a, b string) int { return cmp.Compare(m.could[b], m.could[a]) }) {
		change := "no change"
		if share := m.could[lever]/now - 1; math.Abs(share) >= 0.05 {
			change = fmt.Sprintf("%+.0f%%", 100*share)
		}
		fmt.Fprintf(out, "  with %s: up to %s requests/s (%s)\n", strings.ReplaceAll(strings.ReplaceAll(lever, "kv", "KV"), "_", " "),
			release.Shown(m.could[lever], rules.Decimal), change)
	}
	return nil
}
