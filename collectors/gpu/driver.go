package gpu

import (
	"errors"
	"fmt"
	"time"
)

// driver wraps an initialised driver library, which is NVML. A build without cgo has no library. Every method may block
// as long as the kernel driver does, so no method is called while metrics are served.
type driver interface {
	// Versions returns the versions of the driver and of NVML, and the CUDA level. Unknown versions are empty.
	Versions() versions
	// Count returns the number of GPUs, including lost ones.
	Count() (int, error)
	// Device prepares the GPU at an index. It does not call the driver.
	Device(index int) device
	// Shutdown releases every GPU. Calls made later fail without reaching the driver.
	Shutdown() error
}

// device reads one GPU. Only one goroutine uses it.
type device interface {
	// Read runs one cycle, and adds all due readings to the sheet. An error means that the GPU or the library is broken,
	// and that the sheet must not be served.
	Read(now time.Time, s *sheet) error
	// Close frees the driver's memory that Read allocated.
	Close()
}

type versions struct{ driver, nvml, cuda string }

// Identity names one GPU.
type Identity struct {
	UUID  string // GPU-…, empty until the GPU has answered once
	Index string // NVML index, in decimal
	Minor string // number in /dev/nvidia<minor>, in decimal; empty if the driver does not report it
	PCI   string // domain:bus:device.function in lower case, as in sysfs
}

// code holds an nvmlReturn_t.
type code int

// These codes influence decisions. Their values are those of nvmlReturn_t in nvml.h.
const (
	codeUninitialized    code = 1
	codeNotSupported     code = 3
	codeNoPermission     code = 4
	codeNotFound         code = 6
	codeDriverNotLoaded  code = 9
	codeTimeout          code = 10
	codeLibraryNotFound  code = 12
	codeFunctionNotFound code = 13
	codeOperatingSystem  code = 17
	codeVersionMismatch  code = 18
	codeUnknown          code = 999
)

// reach is the scope of an error.
type reach uint8

const (
	thisTime     reach = iota // only this call, and only this time
	forGood                   // this call on this GPU with this driver, which is not supported or not permitted
	wholeGPU                  // the GPU is lost
	wholeProcess              // the GPU, but only in this process
	wholeLibrary              // the library
)

// codes explains the return codes. They are all values of nvmlReturn_t in NVIDIA's nvml.h (13.4), and names and
// comments follow that file. An unlisted code concerns only this call. Whether a GPU is lost also depends on the calls
// that it still answers: see nvmlDevice.alive.
var codes = map[code]struct {
	reason string
	reach  reach
	remedy string
}{
	codeUninitialized:   {"uninitialized", wholeLibrary, "NVML was released while the exporter used it; the exporter initialises it again"},
	2:                   {"invalid_argument", forGood, "the driver does not know what was asked for; update the driver"},
	codeNotSupported:    {"not_supported", forGood, "this GPU model or its present mode does not offer this feature"},
	codeNoPermission:    {"no_permission", forGood, "run the exporter as root, or grant the container the GPU's device nodes"},
	5:                   {"already_initialized", thisTime, "no remedy: current drivers do not return this error"},
	codeNotFound:        {"not_found", forGood, "this GPU does not have this part or feature"},
	7:                   {"insufficient_size", thisTime, "the list grew while it was read; it is read again"},
	8:                   {"insufficient_power", wholeGPU, "connect the auxiliary power cables of the GPU"},
	codeDriverNotLoaded: {"driver_not_loaded", wholeLibrary, "load the NVIDIA kernel driver (modprobe nvidia)"},
	codeTimeout:         {"timeout", thisTime, "the driver was too slow; the exporter tries again"},
	11:                  {"irq_issue", wholeGPU, "the kernel has an interrupt problem with this GPU; see the kernel log"},
	codeLibraryNotFound: {
		"library_not_found", wholeLibrary,
		"install the NVIDIA driver, mount libnvidia-ml.so.1 into the container, or give its path",
	},
	codeFunctionNotFound: {"function_not_found", forGood, "the driver is too old for this call; update the driver"},
	14:                   {"corrupted_inforom", thisTime, "the InfoROM is corrupted; run field diagnostics"},
	15:                   {"gpu_is_lost", wholeGPU, "the GPU has fallen off the bus; drain the node and restart the machine"},
	16:                   {"reset_required", wholeGPU, "drain the GPU and reset it (nvidia-smi --gpu-reset)"},
	codeOperatingSystem: {
		"operating_system", wholeProcess,
		"the operating system or the container's cgroup blocks the GPU's device nodes; recreate the container, and see the kernel log",
	},
	codeVersionMismatch: {
		"lib_rm_version_mismatch", wholeLibrary,
		"the driver was updated while the exporter ran; restart the exporter, and reload the kernel module if that does not help",
	},
	19: {"in_use", thisTime, "the GPU is in use by another client"},
	20: {"memory", thisTime, "the node is out of memory"},
	21: {"no_data", thisTime, "the driver has no value yet; the exporter tries again"},
	22: {"vgpu_ecc_not_supported", forGood, "the virtual GPU does not offer this feature while ECC is on"},
	23: {"insufficient_resources", thisTime, "the driver ran out of a resource other than memory; the exporter tries again"},
	24: {"freq_not_supported", forGood, "this GPU does not support this clock frequency"},
	25: {"argument_version_mismatch", forGood, "the driver does not know this version of the call; update the driver"},
	26: {"deprecated", forGood, "the driver no longer supports this call"},
	27: {"not_ready", thisTime, "the GPU is not ready yet; the exporter tries again"},
	28: {"gpu_not_found", wholeGPU, "the driver has no such GPU any more; see the kernel log"},
	29: {"invalid_state", thisTime, "the GPU's present state has no such value; reset the GPU if that lasts"},
	30: {"reset_type_not_supported", forGood, "this GPU does not offer this type of reset"},
	codeUnknown: {
		"unknown", thisTime,
		"see the kernel log; in a container, systemd may have taken the GPU's device nodes away: recreate the container",
	},
}

// Remedy returns what to do about a reason of llm_gpu_nvml_up or llm_gpu_up. It is empty if nothing has to be done.
func Remedy(reason string) string {
	for _, c := range codes {
		if c.reason == reason {
			return c.remedy
		}
	}
	return ""
}

// callError reports a failed driver call.
type callError struct {
	call string
	code code
}

func (e *callError) Error() string {
	if c, ok := codes[e.code]; ok {
		return fmt.Sprintf("%s: %s (%d): %s", e.call, c.reason, e.code, c.remedy)
	}
	return fmt.Sprintf("%s: NVML error %d: see nvmlReturn_t in NVIDIA's nvml.h", e.call, e.code)
}

// errNoCgo replaces the driver in a build without cgo.
var errNoCgo = errors.New("this binary was built without cgo and cannot load NVML: use a release build, or build with CGO_ENABLED=1")

// errWraps explains why a 32-bit counter is not served. The counter may wrap between two readings.
var errWraps = errors.New("counter_wraps")

// reasonFor returns the value of the reason label for an error, or an empty string for nil.
func reasonFor(err error) string {
	var call *callError
	switch {
	case err == nil:
		return ""
	case errors.Is(err, errStarting), errors.Is(err, errDetached), errors.Is(err, errWraps):
		return err.Error()
	case errors.Is(err, errNoCgo):
		return "built_without_cgo"
	case errors.Is(err, errLate):
		return reasonStuck
	case !errors.As(err, &call):
		return "error"
	}
	if c, ok := codes[call.code]; ok {
		return c.reason
	}
	return fmt.Sprintf("nvml_error_%d", call.code)
}

// reachOf returns the scope of an error.
func reachOf(err error) reach {
	if call, ok := errors.AsType[*callError](err); ok {
		return codes[call.code].reach
	}
	return thisTime
}

// restartHeals reports whether a new process may be able to use the library after this process lost it. After a driver
// update, the old library stays mapped. After systemd has revoked device nodes, only a new container gets them back.
func restartHeals(err error) bool {
	var call *callError
	return errors.As(err, &call) && (call.code == codeVersionMismatch || call.code == codeOperatingSystem || call.code == codeUnknown)
}
