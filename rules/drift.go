package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// rollout is how long a rollout continues after its last step: the start of a replica, or the change of a setting.
const rollout = 30 * minute

// differing adds the labels in which replicas may differ on purpose. Prefill and decode engines differ, and so do
// engines of different kinds.
func differing(labels ...string) []string {
	return append(append(labels, metrics.LabelRuntime, metrics.LabelRole), modelLabels...)
}

// differs returns the replicas that differ from their model's other replicas while no rollout is in progress. At most
// half of the replicas have their setting, or their KV cache is a tenth larger or smaller than the median.
func differs() promql.Expr {
	config := promql.Vector(metrics.EngineConfig, promql.Ne(metrics.LabelQuality, string(metrics.Missing)),
		promql.Ne(metrics.LabelSetting, string(metrics.SettingKVCacheTokens)))
	holders := promql.CountBy(differing(metrics.LabelSetting, metrics.LabelValue), config)
	all := promql.CountBy(differing(metrics.LabelSetting), config)
	few := promql.Le(times(2, holders), all, promql.On(differing(metrics.LabelSetting)...).ManyToOne())
	minority := promql.And(config, few, promql.On(differing(metrics.LabelSetting, metrics.LabelValue)...))
	settings := promql.Call("label_replace", minority, promql.Str(metrics.LabelNew), promql.Str("$1"), promql.Str(metrics.LabelValue),
		promql.Str("(.*)"))

	capacity := promql.Sum(append([]string{metrics.LabelRuntime, metrics.LabelRole}, replicaLabels...), promql.Vector(metrics.KVCacheCapacity))
	apart := promql.Sub(promql.Div(capacity, promql.Quantile(0.5, differing(), capacity), promql.On(differing()...).ManyToOne()),
		promql.Num(1))
	sizes := labelled(above(promql.Call("abs", apart), 0.1), metrics.LabelSetting, string(metrics.SettingKVCacheTokens))

	named := append([]string{metrics.LabelSetting, metrics.LabelNew}, replicaLabels...)
	return promql.Unless(promql.Max(named, promql.Or(settings, sizes)), rollingOut(), promql.On(modelLabels...))
}

// skewSetting is the reason for replicas that run with another setting.
const skewSetting = "setting"

// rollingOut returns the models with a recent start of a replica or a recent change of a setting.
func rollingOut() promql.Expr {
	started := promql.And(promql.Max(replicaLabels, promql.Vector(metrics.EngineInfo)), younger(rollout), promql.On(pageLabels...))
	return promql.Or(promql.CountBy(modelLabels, started), promql.CountBy(modelLabels, changedWithin(rollout)))
}

// settingChange lists the labels of a change of a model's setting. The version is a setting, too.
var settingChange = append([]string{metrics.LabelSetting, metrics.LabelOld, metrics.LabelNew}, modelLabels...)

// lastChanges returns when each setting of each model last changed, for a day. Exporters report a change, or versions
// show a change, because a model runs a version that it did not run five minutes before. The record remains even if a
// restarted exporter has lost the change, or if engines have moved to other exporters. Measured values are left out.
func lastChanges() promql.Expr {
	told := promql.Vector(metrics.EngineConfigChanged, promql.Ne(metrics.LabelSetting, string(metrics.SettingKVCacheTokens)))
	recorded := promql.Over("last_over_time", promql.Vector(metrics.RecordedChanged), causeWindow)
	known := promql.Or(told, promql.Gt(recorded, promql.Sub(promql.Call("time"), promql.Num(hour.Seconds()))))
	version := promql.Call("label_replace", labelled(labelled(promql.Add(times(0, deployed()), promql.Call("time")), metrics.LabelSetting,
		string(metrics.SettingVersion)), metrics.LabelOld, "another"),
		promql.Str(metrics.LabelNew), promql.Str("$1"), promql.Str(metrics.LabelVersion), promql.Str("(.*)"))
	return promql.Max(settingChange, promql.Or(told,
		promql.Unless(version, known, promql.On(append([]string{metrics.LabelNew}, modelLabels...)...)),
		promql.Gt(recorded, promql.Sub(promql.Call("time"), promql.Num(day.Seconds())))))
}

// changedWithin returns when settings of each model changed, within a window.
func changedWithin(window time.Duration, m ...*promql.Matcher) promql.Expr {
	return promql.Gt(promql.Vector(metrics.RecordedChanged, m...), promql.Sub(promql.Call("time"), promql.Num(window.Seconds())))
}

// newest keeps the most recent changes of each model, up to a limit.
func newest(most int, changes promql.Expr) promql.Expr {
	return promql.TopK(most, modelLabels, changes)
}

// onReplicas returns the changes with the number of replicas that made them. The number is 0 if it is unknown.
func onReplicas(changes promql.Expr) promql.Expr {
	change := promql.On(settingChange...)
	return promql.OrOn(promql.And(promql.CountBy(settingChange, promql.Vector(metrics.EngineConfigChanged)), changes, change),
		times(0, changes), change)
}
