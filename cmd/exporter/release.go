package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/llm-node-exporter/llm-node-exporter/internal/httpclient"
	"github.com/llm-node-exporter/llm-node-exporter/release"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// gates maps a verdict to the exit status. If the comparison is impossible, the status is that of Unknown.
var gates = map[release.Verdict]int{release.NoWorse: 0, release.Worse: 1, release.Unknown: 2}

// releaseOptions holds the flags of exporter release.
type releaseOptions struct {
	release.Options
	prometheus, httpConfig, output string
}

func parseRelease(args []string, out io.Writer) (o releaseOptions, asked bool, err error) {
	app := kingpin.New("exporter release",
		"Compare each model before and after a change of its version or settings. Exit status: 0 no "+
			"model is worse, 1 a model is worse, 2 unknown. Only the newest change of each model counts.")
	app.HelpFlag.Short('h')
	app.UsageWriter(out).Terminate(func(int) { asked = true })
	app.Flag("prometheus", "Address of the Prometheus that scrapes the exporters.").PlaceHolder("URL").Required().StringVar(&o.prometheus)
	app.Flag("prometheus.http-config",
		"File with TLS settings and credentials for Prometheus, in the format of Prometheus' http_config.").PlaceHolder("FILE").
		StringVar(&o.httpConfig)
	app.Flag("since", "How far back to look for changes.").Default("24h").DurationVar(&o.Since)
	app.Flag("window", "Length of the periods to compare, before and after a change.").Default("30m").DurationVar(&o.Window)
	app.Flag("settle", "Time to skip after a change, while caches fill and kernels compile.").Default("5m").DurationVar(&o.Settle)
	app.Flag("model", "Compare only this model.").PlaceHolder("NAME").StringVar(&o.Model)
	app.Flag("namespace", "Compare only models in this namespace.").PlaceHolder("NAME").StringVar(&o.Namespace)
	app.Flag("output", "text or json.").Default("text").EnumVar(&o.output, "text", "json")
	_, err = app.Parse(args)
	switch {
	case asked:
		return o, true, nil
	case err != nil:
		err = named(app, args, err)
	case o.Window < release.LeastWindow:
		err = fmt.Errorf("--window=%s is too short: at least %s", o.Window, release.LeastWindow)
	case o.Settle < 0 || o.Since <= 0:
		err = fmt.Errorf("--settle=%s, --since=%s: neither may be negative", o.Settle, o.Since)
	}
	return o, false, err
}

// releaseCommand compares each model before and after its last change.
func releaseCommand(ctx context.Context, args []string, out, _ io.Writer) (status int, err error) {
	could := gates[release.Unknown]
	o, asked, err := parseRelease(args, out)
	if asked {
		return 0, nil
	}
	if err != nil {
		return could, fmt.Errorf("release: %w (see exporter release --help)", err)
	}
	if _, err := httpclient.Address("prometheus", o.prometheus, "prometheus.http-config"); err != nil {
		return could, err
	}
	client, err := client(o.httpConfig, "prometheus.http-config")
	if err != nil {
		return could, err
	}
	o.Now = time.Now()
	changes, err := release.Compare(ctx, release.Ask(triage.Prometheus(client, o.prometheus)), o.Options)
	if err != nil {
		return could, fmt.Errorf("--prometheus: %w", err)
	}
	verdict := release.Status(changes)
	if o.output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		return gates[verdict], encoder.Encode(struct {
			Verdict release.Verdict  `json:"verdict"`
			Changes []release.Change `json:"changes"`
		}{verdict, append([]release.Change{}, changes...)})
	}
	return gates[verdict], release.Write(out, changes, o.Options)
}
