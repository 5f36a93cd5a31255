// Package fakenvml builds a libnvidia-ml.so.1 that needs no GPU, from C and NVIDIA's own header. Tests and
// demonstrations load it like the real library. The library reads its answers from a file beside it. State writes the
// file, even while the library is in use.
package fakenvml

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

//go:embed c/fake.c
var source []byte

// ErrNoCompiler means that no C compiler is available to build the library.
var ErrNoCompiler = errors.New("the fake NVML library needs a C compiler: install gcc")

// ErrNoHeader means that NVIDIA's header is not found. Only programs run from the sources of this module find it.
var ErrNoHeader = errors.New("the fake NVML library needs nvml.h, which the go command finds inside this repository")

var declaration = regexp.MustCompile(`DECLDIR\s+(nvml\w+)`)

// Build compiles the library into dir and returns its path. Functions in without are left out, as in an old driver.
// Functions of the header that the fake does not implement answer NVML_ERROR_NOT_SUPPORTED. Each library needs its own
// dir.
func Build(dir string, without ...string) (string, error) {
	compiler, err := exec.LookPath("gcc")
	if err != nil {
		return "", ErrNoCompiler
	}
	headers, err := headerDir()
	if err != nil {
		return "", err
	}
	header, err := os.ReadFile(filepath.Join(headers, "nvml.h"))
	if err != nil {
		return "", err
	}
	// This symbol is weak, so an implementation in fake.c takes precedence.
	var stubs bytes.Buffer
	for _, m := range declaration.FindAllSubmatch(header, -1) {
		fmt.Fprintf(&stubs, "__attribute__((weak)) int %s(void) { return 3; }\n", m[1])
	}
	hidden := ""
	if len(without) > 0 {
		hidden = "local: " + strings.Join(without, "; ") + ";"
	}
	files := map[string][]byte{
		"fake.c":    source,
		"stubs.c":   stubs.Bytes(),
		"exports.v": []byte("{ global: *; " + hidden + " };\n"),
	}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return "", err
		}
	}
	lib := filepath.Join(dir, "libnvidia-ml.so.1")
	cmd := exec.Command(compiler, "-shared", "-fPIC", "-O1", "-pthread", "-DNVML_NO_UNVERSIONED_FUNC_DEFS=1",
		"-Wno-deprecated-declarations", "-I"+headers, "-Wl,-soname,libnvidia-ml.so.1", "-Wl,--version-script=exports.v",
		"-o", lib, "fake.c", "stubs.c", "-ldl")
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("building the fake NVML library: %w\n%s", err, out)
	}
	return lib, nil
}

// headerDir returns the folder in which this module's go-nvml keeps NVIDIA's header.
func headerDir() (string, error) {
	out, err := exec.Command("go", "list", "-f", "{{.Dir}}", "github.com/NVIDIA/go-nvml/pkg/nvml").Output()
	if err != nil {
		return "", fmt.Errorf("%w: %w", ErrNoHeader, err)
	}
	return strings.TrimSpace(string(out)), nil
}
