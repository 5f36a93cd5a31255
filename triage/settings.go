package triage

import (
	"fmt"
	"slices"
	"time"

	engine "github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// settings adds the settings of a model's engines, and the last changes of these settings, to the record. If engines
// have different values of a setting, the number of engines follows each value.
func (j *judge) settings(m subject, r *Record) error {
	r.Settings, r.Changed = []string{}, []string{}
	byReplica := append([]string{metrics.LabelSetting, metrics.LabelValue}, metrics.ReplicaLabels...)
	told := promql.Vector(metrics.EngineConfig, append(m.matchers(), promql.Ne(metrics.LabelQuality, string(metrics.Missing)))...)
	found, err := j.query(promql.CountBy([]string{metrics.LabelSetting, metrics.LabelValue}, promql.Max(byReplica, told)))
	if err != nil {
		return err
	}
	all := map[metrics.Setting]float64{}
	holders := map[string]float64{}
	for _, s := range found {
		setting := metrics.Setting(s.Metric.Get(metrics.LabelSetting))
		all[setting] += s.F
		holders[string(setting)+"\xff"+s.Metric.Get(metrics.LabelValue)] = s.F
	}
	for _, setting := range metrics.Settings {
		for _, s := range found {
			if s.Metric.Get(metrics.LabelSetting) != string(setting) {
				continue
			}
			text := string(setting) + " " + s.Metric.Get(metrics.LabelValue)
			if s.F < all[setting] {
				text += fmt.Sprintf(" on %.0f of %.0f", s.F, all[setting])
			}
			r.Settings = append(r.Settings, text)
		}
	}
	changed, err := j.query(promql.Min([]string{metrics.LabelSetting, metrics.LabelOld, metrics.LabelNew},
		promql.Vector(metrics.EngineConfigChanged, m.matchers()...)))
	if err != nil {
		return err
	}
	slices.SortFunc(changed, func(a, b engine.Sample) int { return int(b.F - a.F) })
	for _, c := range changed {
		setting, now := c.Metric.Get(metrics.LabelSetting), c.Metric.Get(metrics.LabelNew)
		text := fmt.Sprintf("%s %s -> %s at %s", setting, c.Metric.Get(metrics.LabelOld), now, time.Unix(int64(c.F), 0).UTC().
			Format(time.RFC3339))
		if n := all[metrics.Setting(setting)]; n > 0 {
			text += fmt.Sprintf(" on %.0f of %.0f replicas", holders[setting+"\xff"+now], n)
		}
		r.Changed = append(r.Changed, text)
	}
	return nil
}
