//go:build !(linux && cgo)

package gpu

// openDriver reports that this build has no NVML.
func openDriver(Options) (driver, error) { return nil, errNoCgo }
