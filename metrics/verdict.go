package metrics

// Verdict is the health verdict on a GPU or a node. A higher value is worse.
type Verdict int

// The verdicts.
const (
	Healthy  Verdict = iota // the GPU can be used
	Degraded                // the GPU works; prefer another GPU, and service this one when convenient
	Drain                   // start nothing new on the GPU; service it once it is empty
	Reset                   // work on the GPU fails or is at risk until the GPU or its node is reset
	Replace                 // a reset does not help; the board has to be replaced
)

// Verdicts lists the names of the verdicts, by value.
var Verdicts = []string{Healthy: "healthy", Degraded: "degraded", Drain: "drain", Reset: "reset", Replace: "replace"}

// String returns the name of the verdict.
func (v Verdict) String() string { return Verdicts[v] }

// MarshalText implements encoding.TextMarshaler.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler. An unknown name, such as a verdict of another version, is an
// error.
func (v *Verdict) UnmarshalText(text []byte) error {
	for i, name := range Verdicts {
		if name == string(text) {
			*v = Verdict(i)
			return nil
		}
	}
	return errUnknownVerdict(text)
}

type errUnknownVerdict string

// Error implements the interface error.
func (e errUnknownVerdict) Error() string { return "no verdict is called " + string(e) }

// UnlistedXID is the verdict on a GPU that reported an XID outside the catalogue.
const UnlistedXID = Degraded

// These are the names of the alerts about conditions of the verdict.
const (
	AnswerFailed  = "LLMGPUFailed"       // the GPU leaves service now
	AnswerService = "LLMGPUNeedsService" // the GPU needs repair, but not at once
	AnswerLink    = "LLMGPULinkFault"    // a link of the GPU is at fault
	AnswerSlowed  = "LLMGPUSlowed"       // the GPU's clocks are lowered, or it is busy without progress
	AnswerUnread  = "LLMGPUUnread"       // the GPU cannot be read
)

// These families have the verdict on GPUs, and its evidence.
var (
	GPUHealth = Judgement.gauge(Max, "llm_gpu_health",
		"Verdict on the GPU: 0 healthy, 1 degraded, 2 drain (start nothing new on it), 3 reset, 4 replace. The verdict is the worst of the "+
			"conditions in llm_gpu_health_condition_timestamp_seconds.",
		GPULabels, with(LabelPCIBusID)).experimental()
	GPUNodeHealth = Judgement.gauge(Max, "llm_gpu_node_health",
		"Verdict on the node: the worst verdict on its GPUs and on what they share, with the values of llm_gpu_health.").experimental()
	GPUHealthCondition = Judgement.gauge(Max, "llm_gpu_health_condition_timestamp_seconds",
		"When a condition that counts for the verdict began, unix time. verdict is the condition's own verdict, and alert names the alert "+
			"that responds to it. Without the labels of a GPU, the condition concerns what the node's GPUs share. docs/health.md lists the "+
			"conditions.",
		GPULabels, with(LabelPCIBusID, LabelCondition, LabelVerdict, LabelAlert, LabelMeaning, LabelAction)).experimental()
)
