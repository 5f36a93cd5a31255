package rules

// Former is an alert of an earlier release, with its replacement.
type Former struct {
	// Name is the former name of the alert.
	Name string
	// Now names the present alert or clue about the same fault. It is empty if only a dashboard shows the fault.
	Now string
}

// FormerAlerts lists the alerts of earlier releases by name.
func FormerAlerts() []Former {
	return []Former{
		{"LLMAbortsRising", "LLMClientsGiveUp"},
		{"LLMAdmissionStalled", "kv_awaited"},
		{"LLMAnswerChanged", ""},
		{"LLMBatchKnee", "batch_grew"},
		{"LLMColdStart", "cold_start"},
		{"LLMEngineHostBound", "host_bound"},
		{"LLMGPUCorrectedECC", "LLMGPUNeedsService"},
		{"LLMGPUCriticalXID", "LLMGPUFailed"},
		{"LLMGPUDriverDown", "LLMGPUUnread"},
		{"LLMGPUFabricUnhealthy", "LLMGPULinkFault"},
		{"LLMGPUHardwareThrottle", "LLMGPUSlowed"},
		{"LLMGPUHeldBack", "LLMGPUSlowed"},
		{"LLMGPULinkDegraded", "LLMGPULinkFault"},
		{"LLMGPULinkRecovers", "LLMGPULinkFault"},
		{"LLMGPULinkWears", "LLMGPULinkFault"},
		{"LLMGPULost", "LLMGPUFailed"},
		{"LLMGPUMemoryUnrepairable", "LLMGPUFailed"},
		{"LLMGPUMissing", "LLMGPUUnread"},
		{"LLMGPUPersistenceOff", "LLMGPUNeedsService"},
		{"LLMGPUPowerBrake", "LLMGPUSlowed"},
		{"LLMGPURecoveryAsked", "LLMGPUNeedsService"},
		{"LLMGPURepairPending", "LLMGPUNeedsService"},
		{"LLMGPURowRemapFailure", "LLMGPUFailed"},
		{"LLMGPURowRemapPending", "LLMGPUNeedsService"},
		{"LLMGPUSRAMThreshold", "LLMGPUFailed"},
		{"LLMGPUSwitchFailed", "LLMGPULinkFault"},
		{"LLMGPUThrottledUnderBurn", "gpu_throttled"},
		{"LLMGPUTicketXID", "LLMGPUNeedsService"},
		{"LLMGPUUncorrectableECC", "LLMGPUNeedsService"},
		{"LLMGatewayFailsRequests", "gateway_fails"},
		{"LLMKVPressure", "kv_full"},
		{"LLMLongPromptShift", "prompts_grew"},
		{"LLMModelLeftGPU", "LLMEngineMemoryLost"},
		{"LLMPreemptionThrash", "preemptions"},
		{"LLMPrefixCacheNoGain", ""},
		{"LLMQueueBuildUp", "queue_long"},
		{"LLMReplicaFailsRequests", "failing_replica"},
		{"LLMSpeculationNoGain", ""},
	}
}
