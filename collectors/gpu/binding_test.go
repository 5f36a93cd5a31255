//go:build linux && cgo

package gpu

import (
	"debug/elf"
	"os"
	"testing"
)

// TestLazyBinding checks that the functions of NVML are undefined symbols that are bound when they are first
// called. A binary linked with -z now, which is the default of some distributions' gcc, would bind them before NVML
// is loaded and die at start; it has to be linked with -extldflags=-Wl,-z,lazy. EXPORTER_BINARY names a binary to
// check beside this one.
func TestLazyBinding(t *testing.T) {
	binaries := []string{os.Args[0]}
	if b := os.Getenv("EXPORTER_BINARY"); b != "" {
		binaries = append(binaries, b)
	}
	for _, path := range binaries {
		f, err := elf.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		flags, err := f.DynValue(elf.DT_FLAGS)
		if err != nil {
			t.Fatal(err)
		}
		flags1, err := f.DynValue(elf.DT_FLAGS_1)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range flags {
			if elf.DynFlag(v)&elf.DF_BIND_NOW != 0 {
				t.Errorf("%s has BIND_NOW: link it with -extldflags=-Wl,-z,lazy", path)
			}
		}
		for _, v := range flags1 {
			if elf.DynFlag1(v)&elf.DF_1_NOW != 0 {
				t.Errorf("%s has NOW: link it with -extldflags=-Wl,-z,lazy", path)
			}
		}
		if symbols, err := f.ImportedSymbols(); err != nil || len(symbols) == 0 {
			t.Errorf("%s imports no symbols (%v): a static binary cannot load NVML", path, err)
		}
	}
}
