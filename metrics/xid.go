package metrics

import "strconv"

// XIDSeverity is who must act on an XID, in the severity label of GPUXIDInfo.
type XIDSeverity string

// These are the severities. LLMGPUFailed fires for the first severity. LLMGPUNeedsService fires for XIDs that open a
// ticket, and for codes outside the catalogue. No alert fires for the last two severities.
const (
	XIDPage   XIDSeverity = "page"   // the GPU, its link or its node is failing: act now
	XIDTicket XIDSeverity = "ticket" // act at the next opportunity
	XIDApp    XIDSeverity = "app"    // caused by the application, which sees the error itself
	XIDInfo   XIDSeverity = "info"   // no action is needed: a test, a notice, or a detail of another XID or alert
)

// XID describes one entry of NVIDIA's catalogue of driver errors.
type XID struct {
	Code     int
	Severity XIDSeverity
	// Verdict is the verdict on a GPU that reported the XID. If the kernel log calls the XID nonfatal, the verdict
	// is at most Degraded.
	Verdict Verdict
	Meaning string
	Action  string
	// Products lists the products that can report the XID, from the catalogue. It is empty if the catalogue names no product.
	Products string
	// Driver is the first driver branch that has the code. It is empty for branch 515 and older, and if the open driver
	// does not show the code.
	Driver string
}

// Answer names the alert about the XID. It is empty if there is none.
func (x XID) Answer() string {
	return map[XIDSeverity]string{XIDPage: AnswerFailed, XIDTicket: AnswerService}[x.Severity]
}

// Asks reports whether people must act on the XID.
func (x XID) Asks() bool { return x.Severity == XIDPage || x.Severity == XIDTicket }

// Each of these names the products of a GPU generation and of all later generations, as the catalogue lists them.
const (
	ampere    = "A100, H100, B100, GB200"
	hopper    = "H100, B100, GB200"
	blackwell = "B100, GB200"
)

// XIDs lists the catalogue by code. It leaves out codes that the catalogue calls unused. Meanings, actions and products
// follow NVIDIA's XID catalogue (docs.nvidia.com/deploy/xid-errors, October 2025). Branches, and the codes above 172,
// follow nverror.h of NVIDIA/open-gpu-kernel-modules (515 to 595). This project chose the severities. An XID pages if
// the catalogue's immediate action is a reset, a restart or a hardware check. It also pages if there is no action yet
// and the name contains fatal or halt. The severity is app if the action is to restart the application. Otherwise it is
// ticket or info. XID 109 pages on purpose, because the catalogue requires a reset, although some device plugins ignore
// it. The project also chose the verdicts. The verdict is Reset if the immediate action is a reset or a restart, and
// Drain if the action is to inspect the GPU first. It is Degraded if the GPU works but needs service, and Healthy if
// the GPU is not at fault. For XID 154, which announces a recovery, LLMGPUNeedsService fires. Codes outside this list
// are also counted, and open a ticket, because their meaning is unknown.
var XIDs = []XID{
	{8, XIDApp, Healthy, "GPU stopped processing, channel idle timeout", "restart the application", ampere, ""},
	{11, XIDApp, Healthy, "invalid or corrupted push buffer", "restart the application", ampere, ""},
	{13, XIDApp, Healthy, "graphics engine exception", "restart the application; look for an illegal access in it", ampere, ""},
	{14, XIDInfo, Healthy, "test of the error path", "none", "", ""},
	{25, XIDApp, Healthy, "illegal push buffer", "restart the application", ampere, ""},
	{31, XIDApp, Healthy, "GPU memory page fault", "restart the application; look for an illegal access in it", ampere, ""},
	{32, XIDApp, Healthy, "invalid or corrupted push buffer", "restart the application", ampere, ""},
	{37, XIDInfo, Healthy, "driver firmware error, unknown method", "none; look at the application when it persists", ampere, ""},
	{38, XIDTicket, Degraded, "driver firmware watchdog timeout", "update the driver; ask NVIDIA when it persists", ampere, ""},
	{39, XIDApp, Healthy, "copy engine 0 exception", "restart the application", ampere, ""},
	{40, XIDApp, Healthy, "copy engine 1 exception", "restart the application", ampere, ""},
	{41, XIDApp, Healthy, "copy engine 2 exception", "restart the application", ampere, ""},
	{43, XIDApp, Healthy, "GPU stopped processing", "restart the application", ampere, ""},
	{44, XIDInfo, Healthy, "graphics engine fault during a context switch", "none; look at the XID beside it", ampere, ""},
	{45, XIDApp, Healthy, "preemptive cleanup, due to previous errors", "none; look at the XID before it", ampere, ""},
	{46, XIDPage, Reset, "GPU stopped processing, timeout", "reset the GPU", ampere, ""},
	{48, XIDPage, Drain, "double bit ECC error", "drain; if XID 63 or 64 follows, reset the GPU; if XID 94 follows, restart the engine", ampere, ""},
	{54, XIDPage, Drain, "auxiliary power is not connected", "check power cables and seating", "A100, H100, B100", ""},
	{60, XIDApp, Healthy, "security processor exception", "restart the application", ampere, ""},
	{62, XIDPage, Reset, "internal micro-controller halt", "reset the GPU", ampere, ""},
	{63, XIDTicket, Degraded, "row remapping or page retirement recorded", "reset the GPU at the next opportunity", ampere, ""},
	{64, XIDPage, Reset, "row remapping or page retirement failed", "reset the GPU; replace the board when it returns", ampere, ""},
	{66, XIDInfo, Healthy, "illegal access by the driver", "none; update the driver when it persists", ampere, ""},
	{67, XIDInfo, Healthy, "illegal access by the driver", "none; update the driver when it persists", ampere, ""},
	{68, XIDApp, Healthy, "video decoder 0 exception", "restart the application", ampere, ""},
	{69, XIDApp, Healthy, "graphics engine class error", "restart the application", ampere, ""},
	{70, XIDApp, Healthy, "copy engine 3 exception", "restart the application", ampere, ""},
	{71, XIDApp, Healthy, "copy engine 4 exception", "restart the application", ampere, ""},
	{72, XIDApp, Healthy, "copy engine 5 exception", "restart the application", ampere, ""},
	{74, XIDPage, Reset, "NVLink error", "check link, bridge and fabric; reset the GPU", "A100, H100", ""},
	{75, XIDApp, Healthy, "copy engine 6 exception", "restart the application", ampere, ""},
	{76, XIDApp, Healthy, "copy engine 7 exception", "restart the application", ampere, ""},
	{77, XIDApp, Healthy, "copy engine 8 exception", "restart the application", ampere, ""},
	{78, XIDTicket, Healthy, "vGPU did not start", "update driver and firmware of host and guest so that they fit", ampere, ""},
	{79, XIDPage, Reset, "GPU has fallen off the bus", "restart the machine; check PCIe, power and cooling", ampere, ""},
	{80, XIDApp, Healthy, "corrupted data sent to the GPU", "restart the application", "A100, H100", ""},
	{82, XIDApp, Healthy, "JPEG decoder 0 exception", "restart the application", ampere, ""},
	{83, XIDApp, Healthy, "video decoder 1 exception", "restart the application", ampere, ""},
	{84, XIDApp, Healthy, "video decoder 2 exception", "restart the application", ampere, ""},
	{85, XIDApp, Healthy, "copy engine 9 exception", "restart the application", ampere, ""},
	{86, XIDApp, Healthy, "optical flow engine 0 exception", "restart the application", ampere, ""},
	{88, XIDApp, Healthy, "video decoder 3 exception", "restart the application", ampere, ""},
	{89, XIDApp, Healthy, "video decoder 4 exception", "restart the application", ampere, ""},
	{92, XIDTicket, Degraded, "high rate of single bit ECC errors", "run field diagnostics when it persists", ampere, ""},
	{93, XIDTicket, Degraded, "InfoROM wear", "none now; plan a replacement", "A100", ""},
	{94, XIDTicket, Degraded, "contained memory error", "restart the application; reset the GPU at the next opportunity", ampere, ""},
	{95, XIDPage, Reset, "uncontained memory error", "reset the GPU now", ampere, ""},
	{96, XIDApp, Healthy, "video decoder 5 exception", "restart the application", hopper, "525"},
	{97, XIDApp, Healthy, "video decoder 6 exception", "restart the application", hopper, "525"},
	{98, XIDApp, Healthy, "video decoder 7 exception", "restart the application", hopper, "525"},
	{99, XIDApp, Healthy, "JPEG decoder 1 exception", "restart the application", hopper, "525"},
	{100, XIDApp, Healthy, "JPEG decoder 2 exception", "restart the application", hopper, "525"},
	{101, XIDApp, Healthy, "JPEG decoder 3 exception", "restart the application", hopper, "525"},
	{102, XIDApp, Healthy, "JPEG decoder 4 exception", "restart the application", hopper, "525"},
	{103, XIDApp, Healthy, "JPEG decoder 5 exception", "restart the application", hopper, "525"},
	{104, XIDApp, Healthy, "JPEG decoder 6 exception", "restart the application", hopper, "525"},
	{105, XIDApp, Healthy, "JPEG decoder 7 exception", "restart the application", hopper, "525"},
	{106, XIDInfo, Healthy, "test message of the management bus", "none", ampere, ""},
	{107, XIDInfo, Healthy, "silent test message of the management bus", "none", ampere, ""},
	{108, XIDTicket, Healthy, "NVLink remote translation error", "as for 137: look for an invalid remote access", ampere, "550"},
	{109, XIDPage, Reset, "context switch timeout", "reset the GPU", ampere, ""},
	{110, XIDPage, Reset, "security fault", "reset the GPU", hopper, "520"},
	{119, XIDPage, Reset, "GSP RPC timeout", "reset the GPU; power-cycle the node if the error returns", ampere, ""},
	{120, XIDPage, Reset, "GSP error", "reset the GPU; power-cycle the node if the error returns", ampere, ""},
	{121, XIDTicket, Degraded, "C2C link error", "run field diagnostics when it persists", "GB200", ""},
	{126, XIDApp, Healthy, "copy engine 10 exception", "restart the application", blackwell, "560"},
	{127, XIDApp, Healthy, "copy engine 11 exception", "restart the application", blackwell, "560"},
	{128, XIDApp, Healthy, "copy engine 12 exception", "restart the application", blackwell, "560"},
	{129, XIDApp, Healthy, "copy engine 13 exception", "restart the application", blackwell, "560"},
	{130, XIDApp, Healthy, "copy engine 14 exception", "restart the application", blackwell, "560"},
	{131, XIDApp, Healthy, "copy engine 15 exception", "restart the application", blackwell, "560"},
	{132, XIDApp, Healthy, "copy engine 16 exception", "restart the application", blackwell, "560"},
	{133, XIDApp, Healthy, "copy engine 17 exception", "restart the application", blackwell, "560"},
	{134, XIDApp, Healthy, "copy engine 18 exception", "restart the application", blackwell, "560"},
	{135, XIDApp, Healthy, "copy engine 19 exception", "restart the application", blackwell, "560"},
	{136, XIDPage, Reset, "NVLink training failed", "reset the GPU", "H100", "525"},
	{137, XIDTicket, Healthy, "NVLink privilege error", "none; look for an invalid remote access", ampere, "530"},
	{139, XIDApp, Healthy, "optical flow engine 1 exception", "restart the application", blackwell, "535"},
	{140, XIDPage, Reset, "unrecovered ECC error", "reset the GPU", ampere, "535"},
	{141, XIDInfo, Healthy, "CUDA fast path error", "none; ask NVIDIA when it persists", hopper, "550"},
	{142, XIDTicket, Degraded, "video encoder 3 error", "ask NVIDIA: its catalogue has no other action", "GB200", "570"},
	{143, XIDPage, Reset, "GPU initialisation error", "reset the GPU", hopper, "550"},
	{
		144, XIDPage, Reset, "NVLink 5 SAW error", "reset the GPU if the kernel log calls it fatal; it also names unit, link and status",
		blackwell, "550",
	},
	{
		145, XIDPage, Reset, "NVLink 5 RLW error", "reset the GPU if the kernel log calls it fatal; it also names unit, link and status",
		blackwell, "555",
	},
	{
		146, XIDPage, Reset, "NVLink 5 TLW error", "reset the GPU if the kernel log calls it fatal; it also names unit, link and status",
		blackwell, "555",
	},
	{
		147, XIDPage, Reset, "NVLink 5 TREX error", "reset the GPU if the kernel log calls it fatal; it also names unit, link and status",
		blackwell, "555",
	},
	{
		148, XIDPage, Reset, "NVLink 5 NVLPW_CTRL error",
		"reset the GPU if the kernel log calls it fatal; it also names unit, link and status", blackwell, "555",
	},
	{
		149, XIDPage, Reset, "NVLink 5 NETIR error", "reset the GPU if the kernel log calls it fatal; it also names unit, link and status",
		blackwell, "555",
	},
	{
		150, XIDPage, Reset, "NVLink 5 MSE error", "reset the GPU if the kernel log calls it fatal; it also names unit, link and status",
		blackwell, "555",
	},
	{151, XIDPage, Reset, "key rotation error", "restart the virtual machine", hopper, "555"},
	{152, XIDInfo, Healthy, "DLA memory management error", "none: no GPU for servers has the unit", "", "560"},
	{153, XIDInfo, Healthy, "DLA timeout", "none: no GPU for servers has the unit", "", "560"},
	{154, XIDInfo, Healthy, "recovery action changed", "do what llm_gpu_recovery_action says", ampere, "565"},
	{155, XIDPage, Reset, "NVLink software defined error", "reset the GPU", blackwell, "570"},
	{156, XIDPage, Reset, "resource retirement", "reset the GPU", hopper, "570"},
	{157, XIDTicket, Drain, "resource retirement failed", "run field diagnostics", hopper, "570"},
	{158, XIDPage, Reset, "fatal GPU timeout", "reset the GPU", ampere, "575"},
	{
		159, XIDTicket, Degraded, "error on the coherent link to the CPU",
		"reset the GPU if unified memory is in use; look at the XID beside it", blackwell, "575",
	},
	{160, XIDTicket, Degraded, "channel retirement", "reset the GPU at the next opportunity", blackwell, "570"},
	{161, XIDTicket, Drain, "channel retirement failed", "run field diagnostics", blackwell, "570"},
	{162, XIDInfo, Healthy, "power smoothing engaged again", "none", blackwell, "580"},
	{163, XIDInfo, Healthy, "power smoothing disengaged", "none", blackwell, "580"},
	{164, XIDTicket, Degraded, "power smoothing circuit near the end of its life", "plan a replacement", blackwell, "580"},
	{165, XIDTicket, Replace, "power smoothing circuit at the end of its life", "replace the board", blackwell, "580"},
	{
		166, XIDTicket, Healthy, "NVLink traffic before encryption was set up", "look at the configuration of confidential computing",
		blackwell, "580",
	},
	{167, XIDPage, Reset, "fatal PCIe timeout", "reset the GPU; check slot, riser and cabling", hopper, "580"},
	{168, XIDTicket, Degraded, "less GPU memory, errors in a protected region", "plan a replacement", ampere, "580"},
	{169, XIDPage, Reset, "security processor halt", "reset the GPU", hopper, "580"},
	{
		170, XIDTicket, Healthy, "unexpected NVLink interrupt in confidential computing",
		"look at the configuration of confidential computing", blackwell, "580",
	},
	{171, XIDTicket, Drain, "uncorrectable DRAM error, detail of 48", "as for 48", ampere, "580"},
	{172, XIDTicket, Drain, "uncorrectable SRAM error, detail of 48", "as for 48", ampere, "580"},
	{173, XIDPage, Reset, "fatal C2C link failure", "reset the GPU; restart the machine when it returns", "", "580"},
	{174, XIDInfo, Healthy, "process of a channel ended silently", "none", "", "590"},
	{175, XIDTicket, Degraded, "memory subsystem error", "look at the XIDs beside it; ask NVIDIA when it persists", "", "595"},
	{176, XIDTicket, Degraded, "many correctable PCIe errors", "check slot, riser and cabling", "", "595"},
}

// recoveryActions holds the names of nvmlDeviceGpuRecoveryAction_t.
var recoveryActions = []string{
	"none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset",
	"system_reboot",
}

// RecoveryAction names the action that the driver requests to bring a GPU back.
func RecoveryAction(action int) string {
	if 0 <= action && action < len(recoveryActions) {
		return recoveryActions[action]
	}
	return "unknown_" + strconv.Itoa(action)
}
