//go:build linux && cgo

package gpu

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/dl"
	"github.com/NVIDIA/go-nvml/pkg/nvml"
)

const defaultLibrary = "libnvidia-ml.so.1"

// For these calls, go-nvml picks the newest version in the library.
const (
	callInit      = "nvmlInit_v2|nvmlInit"
	callCount     = "nvmlDeviceGetCount_v2|nvmlDeviceGetCount"
	callHandle    = "nvmlDeviceGetHandleByIndex_v2|nvmlDeviceGetHandleByIndex"
	callPCIInfo   = "nvmlDeviceGetPciInfo_v3|nvmlDeviceGetPciInfo_v2|nvmlDeviceGetPciInfo"
	callWait      = "nvmlEventSetWait_v2|nvmlEventSetWait"
	callProcesses = "nvmlDeviceGetComputeRunningProcesses_v3|nvmlDeviceGetComputeRunningProcesses_v2|nvmlDeviceGetComputeRunningProcesses"
	callMPS       = "nvmlDeviceGetMPSComputeRunningProcesses_v3|nvmlDeviceGetMPSComputeRunningProcesses_v2|nvmlDeviceGetMPSComputeRunningProcesses"
)

// library wraps NVML. The functions of NVML are undefined symbols of this binary, which are bound at their first call.
// If the driver lacks a function, calling it ends the process, and Go cannot prevent this. Therefore, every call goes
// through the method call, which looks up the symbol first.
type library struct {
	api     nvml.Interface
	so      *dl.DynamicLibrary // never closed, because a late call may still return into the library
	options Options
	symbols sync.Map // call → whether the library has it
	closed  atomic.Bool
	warned  sync.Map // features for which missing permission has been logged
}

// openDriver loads and initialises NVML.
func openDriver(o Options) (driver, error) {
	path := o.LibraryPath
	if path == "" {
		path = defaultLibrary
	}
	l := &library{
		api:     nvml.New(nvml.WithLibraryPath(path)),
		so:      dl.New(path, dl.RTLD_LAZY|dl.RTLD_GLOBAL),
		options: o,
	}
	if err := l.so.Open(); err != nil {
		return nil, fmt.Errorf("%w (%w)", &callError{"dlopen", codeLibraryNotFound}, err)
	}
	if err := l.call(callInit, l.api.Init); err != nil {
		return nil, err
	}
	return l, nil
}

// call makes a driver call if the library has its function. name is the C function, or several functions separated by
// |, of which one is sufficient.
func (l *library) call(name string, call func() nvml.Return) error {
	first, _, _ := strings.Cut(name, "|")
	if l.closed.Load() {
		return &callError{first, codeUninitialized}
	}
	if !l.has(name) {
		return &callError{first, codeFunctionNotFound}
	}
	began := time.Now()
	ret := call()
	l.options.spent.add(first, time.Since(began))
	if ret != nvml.SUCCESS {
		return &callError{first, code(ret)}
	}
	return nil
}

// has reports whether the library has one of the functions. Each function is looked up once.
func (l *library) has(name string) bool {
	if known, ok := l.symbols.Load(name); ok {
		return known.(bool)
	}
	found := false
	for symbol := range strings.SplitSeq(name, "|") {
		found = found || l.so.Lookup(symbol) == nil
	}
	l.symbols.Store(name, found)
	return found
}

func (l *library) Versions() (v versions) {
	ask := func(name string, get func() (string, nvml.Return)) (version string) {
		if l.call(name, func() (ret nvml.Return) { version, ret = get(); return ret }) != nil {
			return ""
		}
		return version
	}
	v.driver = ask("nvmlSystemGetDriverVersion", l.api.SystemGetDriverVersion)
	v.nvml = ask("nvmlSystemGetNVMLVersion", l.api.SystemGetNVMLVersion)
	v.cuda = ask("nvmlSystemGetCudaDriverVersion", func() (string, nvml.Return) {
		n, ret := l.api.SystemGetCudaDriverVersion()
		return fmt.Sprintf("%d.%d", n/1000, n%1000/10), ret
	})
	return v
}

func (l *library) Count() (n int, err error) {
	err = l.call(callCount, func() (ret nvml.Return) { n, ret = l.api.DeviceGetCount(); return ret })
	return n, err
}

func (l *library) Shutdown() error {
	err := l.call("nvmlShutdown", func() nvml.Return {
		l.closed.Store(true)
		return l.api.Shutdown()
	})
	l.closed.Store(true)
	return err
}

func (l *library) Device(index int) device { return newDevice(l, index) }
