// Command drill runs simulated inference engines under the real exporter: as a demo in real time, or
// through incidents in virtual time, with a score of what a person would have been told. All numbers
// of engines and GPUs are invented; what reads them and alerts on them is real.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	dto "github.com/prometheus/client_model/go"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := kingpin.New("drill", "Simulated inference engines under the real exporter. All numbers are invented.")
	app.HelpFlag.Short('h')
	demo := app.Command("demo", "Start three engines and the exporter on this machine, and watch.").Default()
	exporter := demo.Flag("exporter", "The exporter's binary.").Default(besideMe("exporter")).String()
	listen := demo.Flag("listen", "Address of the exporter.").Default("127.0.0.1:9844").String()
	duration := demo.Flag("for", "Stop after this long. 0 runs until Ctrl-C.").Default("0s").Duration()
	play := app.Command("run", "Play incidents in virtual time and score what a person would have been told.")
	name := play.Flag("incident", "Play one only; list names them.").String()
	seed := play.Flag("seed", "Seed of the arrivals.").Default("1").Uint64()
	output := play.Flag("output", "table, json or html, which has the plots.").Default("table").Enum("table", "json", "html")
	listing := app.Command("list", "List the incidents.")
	switch kingpin.MustParse(app.Parse(os.Args[1:])) {
	case play.FullCommand():
		end(run(*name, *seed, *output, os.Stdout, os.Stderr))
		return
	case listing.FullCommand():
		end(list(os.Stdout))
		return
	}
	if *duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *duration)
		defer cancel()
	}
	end(runDemo(ctx, *exporter, *listen, os.Stdout))
}

func end(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "drill:", err)
		os.Exit(1)
	}
}

// besideMe is a program in the folder of this one.
func besideMe(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}

// engine is what a simulated engine is to the demo.
type engine interface {
	http.Handler
	drill.Observer
}

func runDemo(ctx context.Context, exporter, listen string, out io.Writer) error {
	if l, err := net.Listen("tcp", listen); err != nil {
		return fmt.Errorf("%s is not free: choose another address with --listen: %w", listen, err)
	} else {
		l.Close()
	}
	chat, code, small := drill.NewProfile("llama-3.1-8b-chat"), drill.NewProfile("qwen3-coder"), drill.NewProfile("mistral-small")
	code.PromptTokens, code.Arrivals, code.CacheHits = 2400, 4, 0.6
	small.Arrivals, small.MaxBatch, small.Failures = 5.5, 24, 0.01
	dir, err := os.MkdirTemp("", "drill")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	args := []string{"--web.listen-address=" + listen, "--log.level=error", "--config.file=" + filepath.Join(dir, "exporter.yml")}
	gpus, err := drill.NewGPUs(dir, 3)
	switch {
	case err == nil:
		args = append(args, "--gpu.nvml-library="+gpus.Library, "--gpu.kmsg=none", "--path.sysfs="+dir)
		go gpus.Run(ctx)
	case errors.Is(err, fakenvml.ErrNoCompiler):
		fmt.Fprintln(out, "no simulated GPUs:", err)
		args = append(args, "--no-collector.gpu")
	default:
		return err
	}
	config := "targets:\n"
	for i, e := range []struct {
		kind    string
		profile drill.Profile
		engine  engine
	}{
		{"vLLM", chat, drill.NewVLLM(chat)},
		{"TGI", small, drill.NewTGI(small)},
		{"TensorRT-LLM", code, drill.NewTRTLLM(code)},
	} {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		server := &http.Server{Handler: e.engine, ReadHeaderTimeout: time.Second}
		go func() { _ = server.Serve(l) }() // ends with Close
		defer server.Close()
		var observer drill.Observer = e.engine
		if gpus != nil {
			observer = gpus.Under(e.engine, i)
		}
		go e.profile.Run(ctx, uint64(i+1), observer)
		fmt.Fprintf(out, "simulated %-13s serving %-18s http://%s\n", e.kind, e.profile.Model, l.Addr())
		config += fmt.Sprintf("  - {url: 'http://%s', gpus: ['%d']}\n", l.Addr(), i)
	}
	if err := os.WriteFile(filepath.Join(dir, "exporter.yml"), []byte(config), 0o600); err != nil {
		return err
	}
	process := exec.CommandContext(ctx, exporter, args...)
	process.Stdout, process.Stderr = out, os.Stderr
	process.Cancel = func() error { return process.Process.Signal(syscall.SIGTERM) }
	process.WaitDelay = 5 * time.Second
	if err := process.Start(); err != nil {
		return fmt.Errorf("cannot start the exporter (make build makes it): %w", err)
	}
	exited := make(chan error, 1)
	go func() { exited <- process.Wait() }()

	fmt.Fprintf(out, `
exporter: http://%[1]s/         all numbers behind it are invented

  curl -s http://%[1]s/metrics | grep llm_engine_requests
  curl -s http://%[1]s/metrics | grep 'quality="approximate"'    what is not exactly what it seems
  curl -s http://%[1]s/metrics | grep 'quality="missing"'        what an engine does not say, and why
  curl -s http://%[1]s/metrics | grep llm_engine_gpu_info        which engine runs on which GPU

Ctrl-C ends it.
`, listen)
	tick := time.NewTicker(5 * time.Second)
	defer tick.Stop()
	for {
		select {
		case err := <-exited:
			if ctx.Err() != nil {
				return nil
			}
			return fmt.Errorf("the exporter ended: %w", errors.Join(err, errors.New("see its message above")))
		case <-tick.C:
			if err := show(ctx, listen, out); err != nil && ctx.Err() == nil {
				return err
			}
		}
	}
}

// show prints the exporter's view of the engines, one line each.
func show(ctx context.Context, listen string, out io.Writer) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+listen+"/metrics", nil)
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return fmt.Errorf("the exporter's page cannot be read: %w", err)
	}
	fmt.Fprintf(out, "\n%s\n", time.Now().Format(time.TimeOnly))
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "runtime\tmodel\trunning\twaiting\tKV\tbandwidth\tTTFT mean\tTPOT mean\tqueue mean\ttokens out\trequests")
	for _, m := range families[metrics.EngineInfo.Name].GetMetric() {
		runtime := label(m, metrics.LabelRuntime)
		get := func(f *metrics.Family, format string, value func(*dto.Metric) float64) string {
			total, found := 0.0, false
			for _, m := range families[f.Name].GetMetric() {
				if label(m, metrics.LabelRuntime) == runtime {
					total, found = total+value(m), true
				}
			}
			if !found {
				return "-"
			}
			return fmt.Sprintf(format, total)
		}
		gauge := func(m *dto.Metric) float64 { return m.GetGauge().GetValue() }
		count := func(m *dto.Metric) float64 { return m.GetCounter().GetValue() }
		mean := func(m *dto.Metric) float64 {
			return 1000 * m.GetHistogram().GetSampleSum() / float64(max(1, m.GetHistogram().GetSampleCount()))
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", runtime, label(m, metrics.LabelModel),
			get(metrics.RequestsRunning, "%.0f", gauge), get(metrics.RequestsWaiting, "%.0f", gauge), get(metrics.KVCacheUsage, "%.2f", gauge),
			bandwidth(families, runtime), get(metrics.TimeToFirstToken, "%.0f ms", mean), get(metrics.TimePerOutputToken, "%.1f ms", mean), get(metrics.QueueTime, "%.0f ms", mean),
			get(metrics.GenerationTokens, "%.0f", count), get(metrics.Requests, "%.0f", count))
	}
	return table.Flush()
}

// bandwidth is how much of its GPU's memory bandwidth an engine uses: the join that a person would
// write as llm_gpu_memory_bandwidth_utilization_ratio * on (gpu_uuid) llm_engine_gpu_info.
func bandwidth(families map[string]*dto.MetricFamily, runtime string) string {
	for _, owner := range families[metrics.EngineGPUInfo.Name].GetMetric() {
		for _, m := range families[metrics.GPUMemoryBandwidthUtilization.Name].GetMetric() {
			if label(owner, metrics.LabelRuntime) == runtime && label(m, metrics.LabelGPUUUID) == label(owner, metrics.LabelGPUUUID) {
				return fmt.Sprintf("%.0f%%", 100*m.GetGauge().GetValue())
			}
		}
	}
	return "-"
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}
