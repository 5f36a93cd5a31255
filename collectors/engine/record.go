package engine

import (
	"context"
	"encoding/json"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// identityAge is how long an engine's answers are valid if its metrics page does not show restarts.
const identityAge = 5 * time.Minute

// outdated reports whether the engine's identity should be requested again, although the metrics page shows no change
// of the engine.
func (t *target) outdated(known identified) bool {
	return !known.asked.IsZero() && t.plan != nil && t.plan.start == nil && time.Since(known.asked) > identityAge
}

// models lists the models of the metrics page whose settings are requested one by one.
func (d *Dialect) models(p *scrape.Page) []string {
	seen := map[string]bool{}
	for i := range d.Settings {
		if where := &d.Settings[i]; where.Model != "" && !strings.HasPrefix(where.From, "/") {
			for model := range p.LabelValues(where.From, where.Model) {
				seen[model] = model != ""
			}
		}
	}
	maps.DeleteFunc(seen, func(_ string, named bool) bool { return !named })
	all := slices.Sorted(maps.Keys(seen))
	return all[:min(len(all), mostShown)]
}

// unshown reports whether the metrics page has a model whose settings were not requested yet.
func (d *Dialect) unshown(p *scrape.Page, shown []string) bool {
	return slices.ContainsFunc(d.models(p), func(model string) bool { return !slices.Contains(shown, model) })
}

// show queries an endpoint about one model. The body of the request names the model.
func (t *target) show(ctx context.Context, path, model string, into any) error {
	body, err := json.Marshal(map[string]string{"model": model})
	if err != nil {
		return err
	}
	return t.DocumentAbout(ctx, path, body, into)
}

// runsImage records the image of the engine's container.
func (t *target) runsImage(image string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.image = image
}

// recorded holds the settings of the last scrape. If a setting changes, a new recorded replaces it.
type recorded struct {
	plan    *plan
	command []stated
	image   string
	sizes   []float64
	series  []string // of llm_engine_config_info
	of      []recordedModel
}

// recordedModel holds the settings with which a model runs.
type recordedModel struct {
	key    replicaKey
	labels []metrics.Label
	values map[metrics.Setting]string
}

// configure reports the settings and their changes for the engines of the metrics page.
func (t *target) configure(s *snapshot) {
	t.mu.Lock()
	command, image := t.command, t.image
	t.mu.Unlock()
	sizes := make([]float64, len(t.plan.sized))
	for i := range t.plan.sized {
		sizes[i] = t.plan.sized[i].value(t.plan, t.values)
	}
	equal := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
	if r := t.recorded; r == nil || r.plan != t.plan || r.image != image || !slices.Equal(r.command, command) ||
		!slices.EqualFunc(r.sizes, sizes, equal) {
		t.recorded = t.compose(command, image, sizes)
	}
	for _, series := range t.recorded.series {
		s.append(metrics.EngineConfig, series, 1)
	}
	var started time.Time
	if v := t.plan.start.value(t.values); v > 0 {
		started = time.UnixMilli(int64(v * 1000))
	}
	var series []string
	var all []Change
	var when []float64
	for i := range t.recorded.of {
		m := &t.recorded.of[i]
		for _, c := range t.config.Ledger.observe(m.key, m.values, started, t.config.Now()) {
			series = append(series, t.text(metrics.EngineConfigChanged.Name, metrics.Runtime(m.key.runtime), append(slices.Clone(m.labels),
				metrics.Label{Name: metrics.LabelSetting, Value: string(c.Setting)},
				metrics.Label{Name: metrics.LabelOld, Value: c.Old}, metrics.Label{Name: metrics.LabelNew, Value: c.New})...))
			all, when = append(all, c), append(when, float64(c.At.UnixMilli())/1000)
		}
	}
	t.mu.Lock()
	t.changed, t.changes, t.changeAt = series, all, when
	t.mu.Unlock()
	t.changesTo(s)
}

// changesTo adds the last known changes. It adds them even while the engine does not answer, because a change may
// prevent the engine from starting.
func (t *target) changesTo(s *snapshot) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for i, series := range t.changed {
		s.append(metrics.EngineConfigChanged, series, t.changeAt[i])
	}
}

// compose joins all sources of settings. The metrics page and the endpoints come first, then the numbers of the metrics
// page, and then the command line and the pod. A source that shows only that an option is absent comes last.
func (t *target) compose(command []stated, image string, sizes []float64) *recorded {
	r := &recorded{plan: t.plan, command: command, image: image, sizes: sizes}
	for i := range t.plan.runs {
		run := &t.plan.runs[i]
		all := slices.Clone(run.settings)
		for j := range t.plan.sized {
			if one := &t.plan.sized[j]; one.runtime == string(run.dialect.Runtime) && !math.IsNaN(sizes[j]) && sizes[j] > 0 {
				model := one.model
				if model == run.out[outModel] {
					model = ""
				}
				all = append(all, stated{model: model, to: one.to, value: told(sizes[j]), source: t.plan.lines[one.lines[0]].family.Name})
			}
		}
		switch {
		case run.dialect.Runtime != t.plan.runtime:
		case command != nil:
			all = append(all, command...)
		default:
			all = append(all, run.dialect.given(fromPod, [][]string{t.from.Command})...)
		}
		if image != "" {
			all = append(all, stated{to: metrics.SettingImage, value: presentable(metrics.SettingImage, printable(image)), source: fromPod})
		}
		t.tell(r, run, all)
	}
	return r
}

// tell adds the settings of an engine, for each of its models.
func (t *target) tell(r *recorded, run *runs, all []stated) {
	models := []string{""}
	for _, s := range all {
		if s.model != "" && !slices.Contains(models, s.model) && len(models) <= mostShown {
			models = append(models, s.model)
		}
	}
	for _, model := range models {
		name := model
		if model == "" {
			name = run.out[outModel]
		}
		one := recordedModel{values: map[metrics.Setting]string{}, labels: []metrics.Label{
			{Name: metrics.LabelModel, Value: name},
			{Name: metrics.LabelRole, Value: run.out[outRole]},
		}}
		one.key = replicaKey{
			groupKey{string(run.dialect.Runtime), t.fixed[metrics.LabelNamespace], name, run.out[outRole]},
			t.fixed[metrics.LabelPod], t.fixed[metrics.LabelContainer], t.server,
		}
		for _, setting := range metrics.Settings {
			best := -1
			for i, s := range all {
				if s.to == setting && s.model == model && (best < 0 || all[best].why != "" && s.why == "") {
					best = i
				}
			}
			said := slices.ContainsFunc(all, func(s stated) bool { return s.to == setting })
			var value, source, why string
			quality := metrics.Missing
			switch {
			case best >= 0:
				value, source, quality, why = all[best].value, all[best].source, metrics.Native, all[best].why
				if why != "" {
					quality = metrics.Derived
				}
				one.values[setting] = value
			case model != "" || said: // already reported for the whole engine, or for one of its models
				continue
			default:
				why = run.dialect.whyUntold(setting, run.id)
			}
			labels := one.labels
			if quality == metrics.Missing { // independent of the model
				labels = nil
			}
			r.series = append(r.series, t.text(metrics.EngineConfig.Name, run.dialect.Runtime, append(slices.Clone(labels),
				metrics.Label{Name: metrics.LabelSetting, Value: string(setting)}, metrics.Label{Name: metrics.LabelValue, Value: value},
				metrics.Label{Name: metrics.LabelSource, Value: source}, metrics.Label{Name: metrics.LabelQuality, Value: string(quality)},
				metrics.Label{Name: metrics.LabelReason, Value: why})...))
		}
		r.of = append(r.of, one)
	}
}

// Commanded passes the command lines of an engine's process and of its parents to the collector. The process comes
// first. The collector keeps only the settings in these lines.
func (c *Collector) Commanded(server string, lines [][]string) {
	for _, t := range c.targets {
		t.mu.Lock()
		runtime := t.known.Runtime
		t.mu.Unlock()
		i := slices.IndexFunc(t.dialects, func(d *Dialect) bool { return d.Runtime == runtime })
		if t.server != server || i < 0 {
			continue
		}
		settings := t.dialects[i].ofCommand(lines)
		t.mu.Lock()
		t.command = settings
		t.mu.Unlock()
	}
}
