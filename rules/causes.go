package rules

import (
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// causeGroups returns the groups of cause alerts. There is one group per branch, so that a slow or broken group does
// not delay other groups.
func causeGroups(opt Options) []Group {
	branches := []struct {
		branch Branch
		alerts []*Alert
	}{
		{Engine, engineAlerts},
		{Queueing, queueingAlerts},
		{Prefill, prefillAlerts},
		{Decode, decodeAlerts},
		{Memory, memoryAlerts},
		{Behaviour, behaviourAlerts},
		{Routing, routingAlerts},
		{Release, releaseAlerts},
		{Hardware, hardwareAlerts()},
		{Exporter, exporterAlerts(opt)},
	}
	groups := []Group{stallGroup(), probeGroup()}
	for _, b := range branches {
		g := Group{Name: "llm-cause-" + string(b.branch), Interval: Interval, Alerts: b.alerts}
		switch b.branch {
		case Routing:
			g.Records = []Record{{Name: metrics.RecordedProbeTTFT, Expr: toClients()}}
		case Release:
			g.Records = []Record{
				slowerThanYesterday(),
				{Name: metrics.RecordedOldestStart, Expr: oldestStart()},
				{Name: metrics.RecordedLoad, Expr: load()},
			}
		case Hardware:
			g.Records = append(linkFaults(), Record{Name: metrics.RecordedFreeGPU, Expr: freed()},
				Record{Name: metrics.RecordedOnFailedGPU, Expr: onFailedGPU(opt.source().burning(RawWindow))})
		case Engine:
			g.Records = []Record{
				{Name: metrics.RecordedUp, Expr: engineUp()},
				{Name: metrics.RecordedRestarts, Expr: crashLoops()},
				{Name: metrics.RecordedServed, Expr: served()},
				{Name: metrics.RecordedDeleted, Expr: deleted()},
				{Name: metrics.RecordedModelUp, Expr: modelUp()},
				{Name: metrics.RecordedGateway, Expr: gateways()},
				{Name: metrics.RecordedSeen, Expr: seenWithinHour()},
				{Name: metrics.RecordedMissed, Expr: missed()},
				{Name: metrics.RecordedNodeUp, Expr: promql.Max([]string{metrics.LabelCluster, "node"},
					byNode(promql.Vector(metrics.Up, promql.NotRe("job", opt.Job))))},
				{Name: metrics.RecordedUnread, Expr: exporterGone(opt)},
				{Name: metrics.RecordedExpected, Expr: expected()},
				{Name: metrics.RecordedSuccessor, Expr: successorLoads()},
				{Name: metrics.RecordedVanished, Expr: vanished()},
			}
		default: // alerts without records
		}
		groups = append(groups, g)
	}
	return append(groups, linkHours())
}
