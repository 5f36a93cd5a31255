package main

import (
	"bytes"
	"cmp"
	_ "embed"
	"encoding/csv"
	"fmt"
	"os"
	"runtime/debug"
	"slices"
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
	What    string // description of the engines; empty if obvious
	Samples int
	results []result
}

// programs lists the programs that have a column in the table. For these programs, the table shows CPU time as a
// multiple of the exporter's.
var programs = []string{"exporter with 8 GPUs", "fetch-only", "vm-parser", "textparse", "expfmt", "Prometheus", "vmagent"}

// Row returns a row of the table: the exporter's CPU time, the relative CPU times of the other programs, and the memory
// of the two most common programs.
func (t table) Row() string {
	of := func(program string, format func(result) string) string {
		if i := slices.IndexFunc(t.results, func(r result) bool { return r.name == program }); i >= 0 {
			return format(t.results[i])
		}
		return ""
	}
	resident := func(r result) string { return fmt.Sprintf("%.0f MiB", mebibytes(r.resident)) }
	cells := []string{t.Name(), fmt.Sprint(t.Samples), of("exporter", func(r result) string { return milliseconds(r.cpu) })}
	for _, p := range programs {
		cells = append(cells, of(p, func(r result) string { return ratio(r, t.results[0]) }))
	}
	cells = append(cells, of("exporter", resident), of("Prometheus", resident))
	return "| " + strings.Join(cells, " | ") + " |"
}

// Name describes the engines that the programs read.
func (t table) Name() string {
	name := fmt.Sprintf("%d engines", t.Engines)
	if t.Engines == 1 {
		name = "1 engine"
	}
	if t.What != "" {
		name += ", " + t.What
	}
	return name
}

func ratio(of, to result) string { return fmt.Sprintf("%.2f", float64(of.cpu)/float64(to.cpu)) }

// writeAll writes all numbers, as CSV.
func writeAll(to string, tables []table) error {
	rows := [][]string{{
		"engines", "samples", "program", "CPU per scrape", "ratio to the exporter", "allocations", "resident", "anonymous", "p50", "p99",
	}}
	for _, t := range tables {
		for _, r := range t.results {
			row := []string{
				t.Name(), fmt.Sprint(t.Samples), r.name, milliseconds(r.cpu), ratio(r, t.results[0]), fmt.Sprintf("%.0f", r.allocations),
				mib(r.resident), mib(r.anonymous), "", "", // a program that scrapes by itself has no latency
			}
			if r.p99 > 0 {
				row[8], row[9] = milliseconds(r.p50), milliseconds(r.p99)
			}
			rows = append(rows, row)
		}
	}
	var b bytes.Buffer
	if err := csv.NewWriter(&b).WriteAll(rows); err != nil {
		return err
	}
	return os.WriteFile(to, b.Bytes(), 0o644)
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.2f ms", d.Seconds()*1000) }

func mib(bytes int64) string { return fmt.Sprintf("%.1f MiB", mebibytes(bytes)) }

func mebibytes(bytes int64) float64 { return float64(bytes) / (1 << 20) }

// write writes docs/performance.md and docs/performance.csv.
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
	t, err := template.New("").Funcs(template.FuncMap{"mib": mib}).Parse(text)
	if err != nil {
		return err
	}
	var page bytes.Buffer
	if err := t.Execute(&page, r); err != nil {
		return err
	}
	if err := writeAll("docs/performance.csv", r.Tables); err != nil {
		return err
	}
	return os.WriteFile("docs/performance.md", page.Bytes(), 0o644)
}

// after returns the value of a field in a file such as /proc/cpuinfo, in which a colon follows the name.
func after(file, name string) string {
	for line := range strings.Lines(file) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return "unknown processor"
}
