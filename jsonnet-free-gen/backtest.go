package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/goccy/go-yaml"

	"github.com/llm-node-exporter/llm-node-exporter/backtest"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promapi"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// backtestObjectives runs the command "backtest".
func backtestObjectives(args []string, to, progress io.Writer) error {
	app := kingpin.New("llm-rules backtest",
		"Reports when objectives would have paged. The history in a Prometheus comes from the exporter or, if no exporter ran, from the engines.")
	app.HelpFlag.Short('h')
	b := backtest.Backtest{Progress: progress}
	app.Flag("prometheus", "Address of the Prometheus with the history, such as http://host:9090.").Required().StringVar(&b.URL)
	httpConfig := app.Flag("http-config",
		"File with credentials and TLS settings, in the format of Prometheus' HTTP client configuration.").PlaceHolder("FILE").ExistingFile()
	config := app.Flag("config", "Configuration file of the exporter, for its objectives. Default: the default objectives.").
		PlaceHolder("FILE").ExistingFile()
	since := app.Flag("since", "How far to go back, such as 30d.").Default("30d").String()
	at := app.Flag("at", "The end of the history, such as 2026-10-20T00:00:00Z. Default: now.").PlaceHolder("TIME").String()
	windows := app.Flag("window",
		"A pair of burn-rate windows, as for --format. Repeatable; replaces the four pairs of the SRE Workbook.").
		PlaceHolder("LONG/SHORT=SPEND:SEVERITY").Strings()
	source := app.Flag("source",
		"What to read: exporter (the exporter's counters), engines (the engines' own series) or auto (the exporter's counters if they exist).").
		Default(string(backtest.Auto)).Enum(string(backtest.Auto), string(backtest.Exporter), string(backtest.Engines))
	app.Flag("pages-per-month", "Acceptable number of pages per objective and model in 30 days, to recommend a target.").Default("2").
		Float64Var(&b.PagesPerMonth)
	app.Flag("thresholds", "How many bucket bounds to try on either side of a threshold.").Default("2").IntVar(&b.Neighbours)
	app.Flag("max-samples", "Maximum number of samples that one query may return. Lower this number if the server refuses queries.").
		Default("500000").IntVar(&b.MaxSamples)
	pause := app.Flag("pause", "Time between two queries. Queries never run at the same time.").Default("0s").Duration()
	cache := app.Flag("cache", "Folder to keep answers in, so that an interrupted backtest can continue.").PlaceHolder("FOLDER").String()
	format := app.Flag("format", "text, html (a self-contained file with plots) or json.").Default("text").Enum("text", "html", "json")
	if _, err := app.Parse(args); err != nil {
		return err
	}
	b.Source = backtest.Source(*source)
	var err error
	if b.Objectives, err = objectivesOf(*config); err != nil {
		return err
	}
	b.Pairs = slo.DefaultWindowPairs()
	if *windows != nil {
		if b.Pairs, err = windowPairs(*windows); err != nil {
			return err
		}
	}
	d, err := slo.ParseDuration(*since)
	if err != nil {
		return fmt.Errorf("--since: %w", err)
	}
	if d.Std() < time.Hour {
		return fmt.Errorf("--since %s: give at least 1h, the shortest long window", *since)
	}
	if b.Neighbours < 0 || b.MaxSamples < 1000 || b.PagesPerMonth < 0 {
		return errors.New("--thresholds and --pages-per-month cannot be negative, and --max-samples must be at least 1000")
	}
	b.To = time.Now()
	if *at != "" {
		m, err := slo.ParseMoment(*at)
		if err != nil {
			return fmt.Errorf("--at: %w", err)
		}
		if m.After(b.To) {
			return fmt.Errorf("--at %s is in the future", *at)
		}
		b.To = m.Time
	}
	b.From = b.To.Add(-d.Std())
	if b.API, err = promapi.Connect(b.URL, *httpConfig, backtest.Transport(*pause, *cache, progress)); err != nil {
		return err
	}
	r, err := b.Run(context.Background())
	if err != nil {
		return err
	}
	return r.Write(to, *format)
}

// objectivesOf reads the objectives of a configuration file of the exporter; without a file, it returns the defaults.
func objectivesOf(path string) ([]slo.Objective, error) {
	objectives := slo.Defaults()
	if path != "" {
		content, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		var file struct {
			Objectives []slo.Objective `yaml:"objectives"`
		}
		if err := yaml.NewDecoder(bytes.NewReader(content)).Decode(&file); err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("%s: %s",
				path, yaml.FormatError(err, false, false)) // without the nearby lines of the file, which may contain a secret
		}
		if objectives = file.Objectives; len(objectives) == 0 {
			return nil, fmt.Errorf("%s has no objectives: write some, or leave out --config for the defaults", path)
		}
	}
	for i := range objectives {
		objectives[i] = objectives[i].WithDefaults()
	}
	if err := slo.Fatal(slo.Check(objectives, slo.CheckOptions{})); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return objectives, nil
}
