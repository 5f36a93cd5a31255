package rules

import (
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// rollout is how long a rollout is under way after its last step: a replica that starts, or a setting that changes.
const rollout = 30 * minute

// differing labels what replicas of one model should have in common. Prefill and decode engines differ by design, and so do
// engines of two kinds.
func differing(labels ...string) []string {
	return append(append(labels, metrics.LabelRuntime, metrics.LabelRole), modelLabels...)
}

// differs returns the replicas that run with a setting that not even half of the replicas of their model have, or whose KV cache is a
// tenth larger or smaller than that of most, while no rollout is under way.
func differs() promql.Expr {
	config := promql.Vector(metrics.EngineConfig, promql.Ne(metrics.LabelQuality, string(metrics.Missing)),
		promql.Ne(metrics.LabelSetting, string(metrics.SettingKVCacheTokens)))
	holders := promql.CountBy(differing(metrics.LabelSetting, metrics.LabelValue), config)
	all := promql.CountBy(differing(metrics.LabelSetting), config)
	few := promql.Le(times(2, holders), all, promql.On(differing(metrics.LabelSetting)...).ManyToOne())
	minority := promql.And(config, few, promql.On(differing(metrics.LabelSetting, metrics.LabelValue)...))
	settings := promql.Call("label_replace", minority, promql.Str(metrics.LabelNew), promql.Str("$1"), promql.Str(metrics.LabelValue), promql.Str("(.*)"))

	capacity := promql.Sum(append([]string{metrics.LabelRuntime, metrics.LabelRole}, replicaLabels...), promql.Vector(metrics.KVCacheCapacity))
	apart := promql.Sub(promql.Div(capacity, promql.Quantile(0.5, differing(), capacity), promql.On(differing()...).ManyToOne()), promql.Num(1))
	sizes := labelled(above(promql.Call("abs", apart), 0.1), metrics.LabelSetting, string(metrics.SettingKVCacheTokens))

	named := append([]string{metrics.LabelSetting, metrics.LabelNew}, replicaLabels...)
	return promql.Unless(promql.Max(named, promql.Or(settings, sizes)), rollingOut(), promql.On(modelLabels...))
}

// skewSetting is the reason of replicas that run with another setting.
const skewSetting = "setting"

// rollingOut returns the models of which a replica started, or a setting changed, lately.
func rollingOut() promql.Expr {
	started := promql.And(promql.Max(replicaLabels, promql.Vector(metrics.EngineInfo)), younger(rollout), promql.On(pageLabels...))
	return promql.Or(promql.CountBy(modelLabels, started), promql.CountBy(modelLabels, changedWithin(rollout)))
}

// changedWithin returns the settings of engines that changed within a window, with the old and the new value.
func changedWithin(window time.Duration, m ...*promql.Matcher) promql.Expr {
	return below(promql.Sub(promql.Call("time"), promql.Vector(metrics.EngineConfigChanged, m...)), window.Seconds())
}

// settingChanges returns the newest settings of each model that changed within a window, at most so many, besides its version and what
// its engines measure, with the number of replicas that run with the new value.
func settingChanges(most int, window time.Duration, m ...*promql.Matcher) promql.Expr {
	age := changedWithin(window, append(m, promql.NotRe(metrics.LabelSetting, string(metrics.SettingVersion)+"|"+string(metrics.SettingKVCacheTokens)))...)
	return promql.And(promql.CountBy(settingChange, promql.Max(append(settingChange[:3:3], replicaLabels...), age)),
		promql.BottomK(most, modelLabels, promql.Min(settingChange, age)))
}

// versionChanges returns the newest version to which engines of each model changed within a window. An exporter sees the change with
// its next scrape. Where it does not tell settings, a version that is new counts.
func versionChanges(window time.Duration, m ...*promql.Matcher) promql.Expr {
	version := append([]string{metrics.LabelVersion}, modelLabels...)
	age := promql.Call("label_replace", changedWithin(window, append(m, promql.Eq(metrics.LabelSetting, string(metrics.SettingVersion)))...),
		promql.Str(metrics.LabelVersion), promql.Str("$1"), promql.Str(metrics.LabelNew), promql.Str("(.*)"))
	return promql.OrOn(promql.CountBy(version, promql.BottomK(1, modelLabels, promql.Min(version, age))), deployedWithin(window, m...), promql.On(modelLabels...))
}

// settingChange labels a change of a setting of a model, on however many replicas.
var settingChange = append([]string{metrics.LabelSetting, metrics.LabelOld, metrics.LabelNew}, modelLabels...)
