package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"text/template"
	"time"
)

//go:embed performance.md.tmpl
var text string

// report is the content of docs/performance.md.
type report struct {
	Machine  string
	Versions string
	VMAgent  bool
	File     int64 // bytes of the exporter's binary
	Tables   []table
	Slopes   []slope
}

// table holds the results on one node.
type table struct {
	Engines int
	What    string // what the engines are; empty if that is obvious
	Samples int
	results []result
}

// Rows writes the results, each CPU time also relative to the exporter's.
func (t table) Rows() string {
	var b strings.Builder
	for _, r := range t.results {
		latency := "|" // the program scrapes by itself
		if r.p99 > 0 {
			latency = milliseconds(r.p50) + " | " + milliseconds(r.p99)
		}
		fmt.Fprintf(&b, "| %s | %s | %.2f | %.0f | %.1f MiB | %.1f MiB | %s |\n", r.name, milliseconds(r.cpu),
			float64(r.cpu)/float64(t.results[0].cpu),
			r.allocations, mebibytes(r.resident), mebibytes(r.anonymous), latency)
	}
	return b.String()
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// write writes docs/performance.md.
func (r report) write(exporter, vmagent string) error {
	info, err := os.Stat(exporter)
	if err != nil {
		return err
	}
	r.File, r.VMAgent = info.Size(), vmagent != ""
	load, _ := os.ReadFile("/proc/loadavg")
	cpus, _ := os.ReadFile("/proc/cpuinfo")
	r.Machine = fmt.Sprintf("%s, %d cores, load %s at the end", after(string(cpus), "model name"),
		strings.Count(string(cpus), "\nprocessor")+1, strings.Fields(string(load))[0])
	r.Versions = firstLine(exporter, "--version") + "; " + firstLine("prometheus", "--version")
	if r.VMAgent {
		r.Versions += "; vmagent " + cmp.Or(firstLine(vmagent, "-version"), "of unknown version")
	}
	if build, ok := debug.ReadBuildInfo(); ok {
		r.Versions += "; " + build.GoVersion
		for _, d := range build.Deps {
			switch d.Path {
			case "github.com/VictoriaMetrics/VictoriaMetrics", "github.com/prometheus/common", "github.com/prometheus/prometheus":
				r.Versions += "; " + d.Path + " " + d.Version
			}
		}
	}
	t, err := template.New("").Funcs(template.FuncMap{"mib": func(bytes int64) string {
		return fmt.Sprintf("%.1f MiB",
			mebibytes(bytes))
	}}).Parse(text)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := t.Execute(&page, r); err != nil {
		return err
	}
	return os.WriteFile("docs/performance.md", page.Bytes(), 0o644)
}

// after returns the value after the colon of a line of /proc/cpuinfo.
func after(file, name string) string {
	for line := range strings.Lines(file) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}
