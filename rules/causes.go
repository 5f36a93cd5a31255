package rules

// causeGroups are the causes, one group per branch, so that a slow or broken one does not hold up the
// others.
func causeGroups(opt Options) []Group {
	branches := []struct {
		branch Branch
		alerts []*Alert
	}{
		{Engine, []*Alert{ModelDown, EngineDown, EngineStalled, EngineCrashLoop, ColdStart}},
		{Queueing, queueingAlerts(opt)},
		{Prefill, []*Alert{LongPromptShift, PrefixHitCollapse}},
		{Decode, []*Alert{BatchKnee, SpeculationCollapse}},
		{Memory, memoryAlerts(opt)},
		{Behaviour, []*Alert{RunawayGeneration}},
		{Routing, []*Alert{ReplicaFailsRequests, ReplicaSkew}},
		{Release, []*Alert{ReleaseRegression}},
		{Hardware, hardwareAlerts(opt)},
		{Exporter, exporterAlerts(opt)},
	}
	var groups []Group
	for _, b := range branches {
		groups = append(groups, Group{Name: "llm-cause-" + string(b.branch), Interval: Interval, Alerts: b.alerts})
	}
	return groups
}
