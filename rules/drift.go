package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// rollout is for how long a rollout counts as in progress after its last step: the start of a replica, or the change of
// a setting.
const rollout = 30 * minute

// differing adds the labels of a group of replicas that should be equal: those of the model, the role and the runtime.
// Prefill and decode engines differ on purpose, and so do different runtimes.
func differing(labels ...string) []string {
	return append(append(labels, metrics.LabelRuntime, metrics.LabelRole), modelLabels...)
}

// differs returns the replicas that differ from their model's other replicas while no rollout is in progress. At most
// half of the replicas have the same value of a setting, or the KV cache is more than a tenth larger or smaller than
// the median.
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

// skewSetting is the reason of replicas that run with another setting than the others.
const skewSetting = "setting"

// rollingOut returns the models with a recent start of a replica or a recent change of a setting.
func rollingOut() promql.Expr {
	started := promql.And(promql.Max(replicaLabels, promql.Vector(metrics.EngineInfo)), younger(rollout), promql.On(pageLabels...))
	return promql.Or(promql.CountBy(modelLabels, started), promql.CountBy(modelLabels, changedWithin(rollout)))
}

// settingChange lists the labels of a change of a model's setting. The version is a setting, too.
var settingChange = append([]string{metrics.LabelSetting, metrics.LabelOld, metrics.LabelNew}, modelLabels...)

// lastChanges returns when each setting of each model last changed, within the last day. Either exporters report a
// change, or a model runs a version that it did not run five minutes before. The expression also reads its own record,
// in case a restarted exporter has lost the change, or engines have moved to other exporters. Settings that engines
// measure, such as the size of the KV cache, are left out.
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

// onReplicas returns, for each change, the number of replicas that made it, or 0 if it is unknown.
func onReplicas(changes promql.Expr) promql.Expr {
	change := promql.On(settingChange...)
	return promql.OrOn(promql.And(promql.CountBy(settingChange, promql.Vector(metrics.EngineConfigChanged)), changes, change),
		times(0, changes), change)
}
