package main

import (
	"cmp"
	"debug/buildinfo"
	"debug/elf"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// These name the parts of the binary that belong to no third-party module.
const (
	tables   = "tables of functions, for stack traces and garbage collection"
	standard = "Go's standard library, C"
)

// why explains the purpose of each of the largest parts of the binary.
var why = map[string]string{
	tables:   "grows with the code; the linker cannot leave it out",
	standard: "HTTP, TLS, regular expressions and templates",

	"github.com/llm-node-exporter/llm-node-exporter": "dialects, rules for a triage, runbooks and examples",
	"github.com/prometheus/prometheus":               "the parser of pages; the query engine for `exporter triage` and `GET /verdict`",
	"k8s.io/apimachinery":                            "pods of the node, from the API server",
	"google.golang.org/protobuf":                     "the types of `client_golang`; the kubelet's answers",
	"github.com/gogo/protobuf":                       "comes with Prometheus' parser of pages, which reads protobuf, too",
	"github.com/NVIDIA/go-nvml":                      "the calls of NVML",
	"github.com/goccy/go-yaml":                       "the configuration, with errors that name line and column",
	"github.com/yuin/goldmark":                       "runbooks as HTML",
	"k8s.io/client-go":                               "credentials of the API server and watches",
	"go.yaml.in/yaml/v2":                             "the TLS settings of Prometheus' libraries",
	"golang.org/x/net":                               "HTTP/2, and names of hosts",
	"golang.org/x/text":                              "names of hosts in other scripts",
	"github.com/alecthomas/kingpin/v2":               "the command line",
	"github.com/prometheus/client_golang":            "the registry, and the client of a Prometheus for a triage",
}

// part is the code and data of one module in the binary.
type part struct {
	Name  string
	Bytes int64
	Why   string
}

// sizes lists the ten largest modules in the exporter. The largest comes first.
func sizes(dir string) ([]part, error) {
	binary := filepath.Join(dir, "exporter")
	if out, err := exec.Command("go", "build", "-o", binary, "./cmd/exporter").CombinedOutput(); err != nil { // includes the symbols
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return nil, err
	}
	modules := []string{info.Main.Path}
	for _, d := range info.Deps {
		modules = append(modules, d.Path)
	}
	file, err := elf.Open(binary)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	symbols, err := file.Symbols()
	if err != nil {
		return nil, err
	}
	total := map[string]int64{tables: int64(file.Section(".gopclntab").Size)}
	for _, s := range symbols {
		if int(s.Section) < len(file.Sections) && file.Sections[s.Section].Type == elf.SHT_PROGBITS { // zeros take no space in the file
			total[moduleOf(s.Name, modules)] += int64(s.Size)
		}
	}
	var parts []part
	for name, size := range total {
		parts = append(parts, part{name, size, why[name]})
	}
	slices.SortFunc(parts, func(a, b part) int { return cmp.Compare(b.Bytes, a.Bytes) })
	parts = parts[:min(10, len(parts))]
	for _, p := range parts {
		if p.Why == "" {
			return nil, fmt.Errorf("%s is now one of the ten largest parts of the binary, with %d kB: explain in bench/binary.go why it stays, "+
				"or remove it", p.Name, p.Bytes>>10)
		}
	}
	return parts, nil
}

// moduleOf returns the module that a symbol belongs to.
func moduleOf(symbol string, modules []string) string {
	of := ""
	for _, m := range modules {
		if strings.HasPrefix(strings.TrimLeft(strings.TrimPrefix(symbol, "type:"), "*"), m) && len(m) > len(of) {
			of = m
		}
	}
	return cmp.Or(of, standard)
}
