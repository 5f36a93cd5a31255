package metrics

import "strconv"

// XIDSeverity tells who must act on an XID, as in the severity label of GPUXIDInfo.
type XIDSeverity string

// The severities.
const (
	XIDPage   XIDSeverity = "page"   // the GPU, its link or its node is failing: act now
	XIDTicket XIDSeverity = "ticket" // act at the next opportunity
	XIDApp    XIDSeverity = "app"    // caused by the application, which sees the error itself
)

// XID describes one entry of NVIDIA's catalogue of driver errors.
type XID struct {
	Code     int
	Severity XIDSeverity
	Meaning  string
	Action   string
}

// XIDs lists the catalogue by code. Meanings and actions follow NVIDIA's XID catalogue
// (docs.nvidia.com/deploy/xid-errors, October 2025). Severities are ours: page if the catalogue's immediate action is
// a reset, a restart or a check of the hardware, app if it is to restart the application. 109 differs on purpose: the
// catalogue asks for a reset, so it pages, although some device plugins ignore it. Codes not listed here are counted
// all the same.
var XIDs = []XID{
	{13, XIDApp, "graphics engine exception", "restart the application; look for an illegal access in it"},
	{31, XIDApp, "GPU memory page fault", "restart the application; look for an illegal access in it"},
	{32, XIDApp, "invalid or corrupted push buffer", "restart the application"},
	{43, XIDApp, "GPU stopped processing", "restart the application"},
	{45, XIDApp, "preemptive cleanup, due to previous errors", "none; look at the XID before it"},
	{46, XIDPage, "GPU stopped processing, timeout", "reset the GPU"},
	{48, XIDPage, "double bit ECC error", "drain; reset when 63 or 64 follows, restart the application when 94 follows"},
	{54, XIDPage, "auxiliary power is not connected", "check power cables and seating"},
	{62, XIDPage, "internal micro-controller halt", "reset the GPU"},
	{63, XIDTicket, "row remapping or page retirement recorded", "reset the GPU at the next opportunity"},
	{64, XIDPage, "row remapping or page retirement failed", "reset the GPU; replace the board when it returns"},
	{68, XIDApp, "video processor exception", "restart the application"},
	{69, XIDApp, "graphics engine class error", "restart the application"},
	{72, XIDApp, "copy engine 6 exception", "restart the application"},
	{74, XIDPage, "NVLink error", "check link, bridge and fabric; reset the GPU"},
	{79, XIDPage, "GPU has fallen off the bus", "restart the machine; check PCIe, power and cooling"},
	{80, XIDApp, "corrupted data sent to the GPU", "restart the application"},
	{92, XIDTicket, "high rate of single bit ECC errors", "run field diagnostics when it persists"},
	{93, XIDTicket, "InfoROM wear", "none now; plan a replacement"},
	{94, XIDTicket, "contained memory error", "restart the application; reset the GPU at the next opportunity"},
	{95, XIDPage, "uncontained memory error", "reset the GPU now"},
	{109, XIDPage, "context switch timeout", "reset the GPU"},
	{110, XIDPage, "security fault", "reset the GPU"},
	{119, XIDPage, "GSP RPC timeout", "reset the GPU; power-cycle when it returns"},
	{120, XIDPage, "GSP error", "reset the GPU; power-cycle when it returns"},
	{121, XIDTicket, "C2C link error", "run field diagnostics when it persists"},
	{136, XIDPage, "NVLink training failed", "reset the GPU"},
	{137, XIDTicket, "NVLink privilege error", "none; look for an invalid remote access"},
	{140, XIDPage, "unrecovered ECC error", "reset the GPU"},
	{143, XIDPage, "GPU initialisation error", "reset the GPU"},
	{144, XIDPage, "NVLink 5 SAW error", "follow NVIDIA's NVLink 5 workflow"},
	{145, XIDPage, "NVLink 5 RLW error", "follow NVIDIA's NVLink 5 workflow"},
	{149, XIDPage, "NVLink 5 NETIR error", "follow NVIDIA's NVLink 5 workflow"},
	{150, XIDPage, "NVLink 5 MSE error", "follow NVIDIA's NVLink 5 workflow"},
	{151, XIDPage, "key rotation error", "restart the virtual machine"},
	{154, XIDTicket, "recovery action changed", "do what llm_gpu_recovery_action says"},
	{155, XIDPage, "NVLink software defined error", "reset the GPU"},
	{156, XIDPage, "resource retirement", "reset the GPU"},
	{157, XIDTicket, "resource retirement failed", "run field diagnostics"},
	{158, XIDPage, "fatal GPU timeout", "reset the GPU"},
	{160, XIDTicket, "channel retirement", "reset the GPU at the next opportunity"},
	{161, XIDTicket, "channel retirement failed", "run field diagnostics"},
	{171, XIDTicket, "uncorrectable DRAM error, detail of 48", "as for 48"},
	{172, XIDTicket, "uncorrectable SRAM error, detail of 48", "as for 48"},
}

// recoveryActions holds the names of nvmlDeviceGpuRecoveryAction_t.
var recoveryActions = []string{"none", "gpu_reset", "node_reboot", "drain_p2p", "drain_and_reset", "recover_imex_domain", "bus_reset", "system_reboot"}

// RecoveryAction names the action that the driver requests to bring a GPU back.
func RecoveryAction(action int) string {
	if 0 <= action && action < len(recoveryActions) {
		return recoveryActions[action]
	}
	return "unknown_" + strconv.Itoa(action)
}
