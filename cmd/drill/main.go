// Command drill runs simulated inference engines under the real exporter: as a demo in real time, or
// through incidents in virtual time, with a score of what a person would have been told. All numbers
// of engines and GPUs are invented; what reads them and alerts on them is real.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/alecthomas/kingpin/v2"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	app := kingpin.New("drill", "Simulated inference engines under the real exporter. All numbers are invented.")
	app.HelpFlag.Short('h')
	watch := app.Command("demo", "Run a node and its Prometheus on this machine, in real time, and show who would be woken.").Default()
	d := demo{out: os.Stdout}
	watch.Flag("exporter", "The exporter's binary.").Default(besideMe("exporter")).StringVar(&d.exporter)
	watch.Flag("listen", "Address of the exporter.").Default("127.0.0.1:9844").StringVar(&d.listen)
	watch.Flag("prometheus", "Address of the Prometheus, which is a data source for Grafana.").Default("127.0.0.1:9090").StringVar(&d.prometheus)
	watch.Flag("onset", "How long all is well before the incident.").Default("30s").DurationVar(&d.onset)
	watch.Flag("seed", "Seed of the arrivals.").Default("1").Uint64Var(&d.seed)
	happening := watch.Flag("incident", "What happens; list names the incidents.").Default(incident.Healthy().Name).String()
	duration := watch.Flag("for", "Stop after this long. 0 runs until Ctrl-C.").Default("0s").Duration()
	play := app.Command("run", "Play incidents in virtual time and score what a person would have been told.")
	name := play.Flag("incident", "Play one only; list names them.").String()
	seed := play.Flag("seed", "Seed of the arrivals.").Default("1").Uint64()
	output := play.Flag("output", "table, json or html, which has the plots.").Default("table").Enum("table", "json", "html")
	report := app.Command("report", "Play all incidents with several seeds and write what docs/ keeps of them.")
	dir := report.Flag("dir", "Folder to write to.").Default("docs").String()
	seeds := report.Flag("seeds", "How many seeds, from 1 on. The plots are of the first.").Default("5").Uint64()
	listing := app.Command("list", "List the incidents.")
	switch kingpin.MustParse(app.Parse(os.Args[1:])) {
	case play.FullCommand():
		end(run(*name, *seed, *output, os.Stdout, os.Stderr))
		return
	case report.FullCommand():
		end(writeReport(*dir, *seeds, os.Stderr))
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
	end(d.run(ctx, *happening, lines(os.Stdin)))
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
