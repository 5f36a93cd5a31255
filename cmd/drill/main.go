// Command drill runs simulated inference engines under the real exporter. It has a demo in real time. It also plays
// incidents in virtual time, and scores the notifications. All numbers of engines and GPUs are simulated. The exporter,
// the rules and Prometheus are real.
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
	watch := app.Command("demo", "Run a node and its Prometheus on this machine, in real time, and print its pages and tickets.").
		Default()
	d := demo{out: os.Stdout}
	watch.Flag("exporter", "Path of the exporter's binary.").Default(besideMe("exporter")).StringVar(&d.exporter)
	watch.Flag("listen", "Address that the exporter listens on.").Default("127.0.0.1:9844").StringVar(&d.listen)
	watch.Flag("prometheus", "Address that Prometheus listens on, for use as a data source in Grafana.").Default("127.0.0.1:9090").
		StringVar(&d.prometheus)
	watch.Flag("onset", "Time without faults before the incident.").Default("30s").DurationVar(&d.onset)
	watch.Flag("seed", "Seed of the arrivals.").Default("1").Uint64Var(&d.seed)
	happening := watch.Flag("incident", "The incident to play; \"drill list\" names them.").Default(incident.Healthy().Name).String()
	duration := watch.Flag("for", "Stop after this time. 0 runs until Ctrl-C.").Default("0s").Duration()
	play := app.Command("run", "Play incidents in virtual time and score the notifications.")
	name := play.Flag("incident", "Play only this incident; \"drill list\" names them.").String()
	seed := play.Flag("seed", "Seed of the arrivals.").Default("1").Uint64()
	public := play.Flag("public", "Play the public incidents only.").Bool()
	output := play.Flag("output",
		"table, json, html (with plots), svg (the plots of one incident) or public (a table for public incidents).").Default("table").
		Enum("table", "json", "html", "svg", "public")
	report := app.Command("report", "Play all incidents with several seeds and write the scores and plots that docs/ keeps.")
	dir := report.Flag("dir", "Folder to write to.").Default("docs").String()
	seeds := report.Flag("seeds", "Number of seeds, starting at 1. The plots show the first seed.").Default("5").Uint64()
	told := app.Command("transcript", "Play the incidents that have a lever and write what a person on call sees and types.")
	folder := told.Flag("dir", "Folder to write to.").Default("plays").String()
	only := told.Flag("incident", "Play only this incident.").String()
	drawing := app.Command("draws", "Play worlds drawn at random, and score whether page and triage name the cause.")
	drawn := drawing.Flag("seeds", "Range of seeds, each of which draws a world.").Default("1-30").String()
	watching := app.Command("try",
		"Run the exporter on your own engines, with a Prometheus, the rules and the dashboards. Nothing is simulated.")
	y := try{out: os.Stdout}
	watching.Flag("exporter", "Path of the exporter's binary.").Default(besideMe("exporter")).StringVar(&y.exporter)
	watching.Flag("listen", "Port that the exporter listens on.").Default("9844").Uint16Var(&y.listen)
	watching.Flag("prometheus", "Port that Prometheus listens on.").Default("9090").Uint16Var(&y.prometheus)
	watching.Arg("flags", "Flags of the exporter after --, such as --engine.target=http://127.0.0.1:8000.").Required().StringsVar(&y.flags)
	listing := app.Command("list", "List the incidents.")
	switch kingpin.MustParse(app.Parse(os.Args[1:])) {
	case play.FullCommand():
		end(run(ctx, *name, *public, *seed, *output, os.Stdout, os.Stderr))
		return
	case report.FullCommand():
		end(writeReport(ctx, *dir, *seeds, os.Stderr))
		return
	case told.FullCommand():
		end(writeTranscripts(ctx, *folder, *only))
		return
	case drawing.FullCommand():
		end(playDraws(ctx, *drawn, os.Stdout, os.Stderr))
		return
	case watching.FullCommand():
		end(y.run(ctx))
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

// besideMe returns the path of a program in the folder of the drill's own binary.
func besideMe(name string) string {
	self, err := os.Executable()
	if err != nil {
		return name
	}
	return filepath.Join(filepath.Dir(self), name)
}
