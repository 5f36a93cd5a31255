package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/alecthomas/kingpin/v2"

	"github.com/llm-node-exporter/llm-node-exporter/migrate"
)

// Exit statuses of exporter migrate.
const (
	migrated     = 0
	cannot       = 1
	migratedPart = 2
)

// migrateCommand rewrites a dashboard or a rule file to use this exporter's metrics.
func migrateCommand(_ context.Context, args []string, out, progress io.Writer) (status int, err error) {
	var (
		file  string
		given []string
		asked bool
	)
	app := kingpin.New("exporter migrate",
		"Rewrite a Grafana dashboard or a rule file, to use this exporter's metrics instead of metrics of engines, dcgm-exporter or "+
			"nvidia_gpu_exporter. The result goes to standard output. Unchanged queries and the reasons go to standard error. Exit status: "+
			"0 everything was rewritten, 2 a query was left unchanged, 1 the file cannot be read.")
	app.HelpFlag.Short('h')
	app.UsageWriter(out).Terminate(func(int) { asked = true })
	app.Arg("file", "A dashboard (JSON), or rules (YAML) of Prometheus or in a PrometheusRule. Use - for standard input.").Required().
		StringVar(&file)
	app.Flag("label", "New name for a label that your scrape adds, as in service=model_name. An empty name, as in "+
		"service=, removes conditions on the label. "+
		"Repeatable.").PlaceHolder("LABEL=NAME").StringsVar(&given)
	_, err = app.Parse(args)
	if asked {
		return migrated, nil
	}
	if err != nil {
		return cannot, fmt.Errorf("migrate: %w (see exporter migrate --help)", named(app, args, err))
	}
	o := migrate.Options{Labels: map[string]string{}}
	for _, g := range given {
		old, to, ok := strings.Cut(g, "=")
		if !ok || old == "" {
			return cannot, fmt.Errorf("--label=%s: write LABEL=NAME, or LABEL= to remove conditions on the label", g)
		}
		o.Labels[old] = to
	}
	result, err := migrateFile(file, o)
	if err != nil {
		return cannot, fmt.Errorf("migrate: %s: %w", file, err)
	}
	if _, err := out.Write(result.Text); err != nil {
		return cannot, err
	}
	return report(progress, result.Findings), nil
}

func migrateFile(file string, o migrate.Options) (migrate.File, error) {
	var body []byte
	var err error
	if file == "-" {
		body, err = io.ReadAll(os.Stdin)
	} else {
		body, err = os.ReadFile(file)
	}
	if err != nil {
		return migrate.File{}, err
	}
	if bytes.HasPrefix(bytes.TrimSpace(body), []byte("{")) {
		return migrate.Dashboard(body, o)
	}
	return migrate.Rules(body, o)
}

// report prints the queries that stay unchanged and the queries that change their meaning, and how many there are.
func report(to io.Writer, findings []migrate.Finding) (status int) {
	written, left := 0, 0
	said := map[string]bool{}
	for _, f := range findings {
		switch {
		case f.Left != "":
			left++
			fmt.Fprintf(to, "stays: %s: %s\n  %s\n", f.Place, f.Left, strings.Join(strings.Fields(f.From), " "))
		case f.To != f.From:
			written++
		}
		for _, n := range f.Notes {
			if said[n] {
				continue
			}
			said[n] = true
			fmt.Fprintf(to, "note: %s: %s\n", f.Place, n)
		}
	}
	fmt.Fprintf(to, "%d rewritten, %d unchanged, %d of other software\n", written, left, len(findings)-written-left)
	if left > 0 {
		return migratedPart
	}
	return migrated
}
