package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"

	"github.com/llm-node-exporter/llm-node-exporter/internal/httpclient"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

// statuses maps the worst health of any model to the exit status of a triage. If the triage is impossible, the status
// is that of Unknown.
var statuses = map[triage.Health]int{triage.Healthy: 0, triage.Degraded: 1, triage.Failing: 2, triage.Unknown: 3}

// triageOptions holds the flags of exporter triage.
type triageOptions struct {
	engines                    []string
	configFile, exporter       string
	httpConfig                 string
	prometheus, prometheusHTTP string
	apart                      time.Duration
	model, namespace           string
	output                     string
}

func parseTriage(args []string, out io.Writer) (o triageOptions, asked bool, err error) {
	app := kingpin.New("exporter triage",
		"Compare two readings of this node, and report where to look first. Exit status: 0 healthy, 1 degraded, 2 failing, 3 unknown.")
	app.HelpFlag.Short('h')
	app.UsageWriter(out).Terminate(func(int) { asked = true })
	app.Flag("exporter", "Address of a running exporter.").Default("http://127.0.0.1:9844").PlaceHolder("URL").StringVar(&o.exporter)
	app.Flag("exporter.http-config",
		"File with TLS settings and credentials for the exporter, in the format of Prometheus' http_config.").PlaceHolder("FILE").
		StringVar(&o.httpConfig)
	app.Flag("engine", "Read this engine, as http://host:port, and this node's GPUs directly, without a running exporter. Repeatable.").
		PlaceHolder("URL").StringsVar(&o.engines)
	app.Flag("config.file", "Configuration file with the objectives for --engine. Default: the exporter's default objectives.").
		PlaceHolder("FILE").StringVar(&o.configFile)
	app.Flag("for", "Time between the readings, at least 5s.").Default("30s").DurationVar(&o.apart)
	app.Flag("prometheus", "Compare with the day before, from this Prometheus, which scrapes the exporter.").PlaceHolder("URL").
		StringVar(&o.prometheus)
	app.Flag("prometheus.http-config", "File with TLS settings and credentials for Prometheus.").PlaceHolder("FILE").
		StringVar(&o.prometheusHTTP)
	app.Flag("model", "Diagnose only this model.").PlaceHolder("NAME").StringVar(&o.model)
	app.Flag("namespace", "Diagnose only models in this namespace.").PlaceHolder("NAME").StringVar(&o.namespace)
	app.Flag("output", "text or json.").Default("text").EnumVar(&o.output, "text", "json")
	_, err = app.Parse(args)
	if asked {
		return o, true, nil
	}
	if err != nil {
		err = named(app, args, err)
	} else if o.apart < 5*time.Second {
		err = fmt.Errorf("--for=%s is too short: rates need 5s or more", o.apart)
	}
	return o, false, err
}

// triageCommand reads a node's metrics twice, and prints where to look first.
func triageCommand(ctx context.Context, args []string, out, progress io.Writer) (status int, err error) {
	could := statuses[triage.Unknown]
	o, asked, err := parseTriage(args, out)
	if asked {
		return 0, nil
	}
	if err != nil {
		return could, fmt.Errorf("triage: %w (see exporter triage --help)", err)
	}
	read, source, err := o.source(ctx, progress)
	if err != nil {
		return could, err
	}
	before, err := read(ctx)
	if why := noConnection(err); why != nil {
		_, address, _ := strings.Cut(o.exporter, "://")
		return could, errors.Join(err, o.write(out, []triage.Verdict{triage.Unanswered(address, why.Error())}))
	}
	if err != nil {
		return could, err
	}
	if err := wait(ctx, o.apart, source, progress); err != nil {
		return could, err
	}
	after, err := read(ctx)
	if err != nil {
		return could, err
	}
	var past triage.Past
	if o.prometheus != "" {
		if _, err := httpclient.Address("prometheus", o.prometheus, "prometheus.http-config"); err != nil {
			return could, err
		}
		client, err := client(o.prometheusHTTP, "prometheus.http-config")
		if err != nil {
			return could, err
		}
		past = triage.Prometheus(client, o.prometheus)
		scraped, err := triage.ScrapeLabels(ctx, after, past)
		if err != nil {
			return could, withoutPast(err)
		}
		if scraped.IsEmpty() {
			fmt.Fprintf(progress, "%s has no series of these engines, or several with the same names: triage compares only models with the day "+
				"before.\n", o.prometheus)
		}
		before, after = before.With(scraped), after.With(scraped)
	}
	verdicts, err := triage.Judge(ctx, before, after, past)
	if failed := (*triage.PastError)(nil); errors.As(err, &failed) {
		return could, withoutPast(failed)
	}
	if err != nil {
		return could, err
	}
	verdicts = slices.DeleteFunc(verdicts, func(v triage.Verdict) bool {
		return o.model != "" && v.Model != o.model || o.namespace != "" && v.Namespace != o.namespace
	})
	return statuses[triage.Worst(verdicts)], o.write(out, verdicts)
}

// noConnection returns the reason if a connection to an address failed. It returns nil for other errors, such as an
// unknown certificate, because then a server answered.
func noConnection(err error) error {
	if failed := (*net.OpError)(nil); errors.As(err, &failed) && failed.Op == "dial" {
		return failed
	}
	if failed := (*url.Error)(nil); errors.As(err, &failed) && failed.Timeout() {
		return failed.Err
	}
	return nil
}

// write writes the verdicts in the form that the flags request.
func (o triageOptions) write(out io.Writer, verdicts []triage.Verdict) error {
	if o.output == "json" {
		return writeVerdicts(out, verdicts)
	}
	text := triage.Text{Color: terminal(out) && os.Getenv("NO_COLOR") == ""}
	if len(o.engines) == 0 && !(len(verdicts) == 1 && verdicts[0].Clue == triage.NoAnswer) {
		text.Root = strings.TrimSuffix(o.exporter, "/") + "/"
	}
	return text.Write(out, verdicts)
}

// withoutPast adds to an error of the Prometheus what to do without it.
func withoutPast(err error) error {
	return fmt.Errorf("--prometheus: %w: omit this flag to compare without the day before", err)
}

// writeVerdicts writes the verdicts. GET /verdict uses the same function.
func writeVerdicts(out io.Writer, verdicts []triage.Verdict) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(struct {
		Health   triage.Health    `json:"health"`
		Verdicts []triage.Verdict `json:"verdicts"`
	}{triage.Worst(verdicts), append([]triage.Verdict{}, verdicts...)})
}

// source returns the function that reads the node, and a name for what it reads.
func (o triageOptions) source(ctx context.Context, log io.Writer) (read func(context.Context) (triage.Reading, error), name string,
	err error,
) {
	if len(o.engines) == 0 {
		read, err := o.page()
		return read, o.exporter, err
	}
	args := []string{"--discovery=none", "--log.level=error"}
	for _, url := range o.engines {
		args = append(args, "--engine.target="+url)
	}
	if o.configFile != "" {
		args = append(args, "--config.file="+o.configFile)
	}
	own, err := parseFlags(args)
	if err != nil {
		return nil, "", err
	}
	own.log.Writer = log
	n, err := load(own)
	if err != nil {
		return nil, "", err
	}
	if _, err := n.start(ctx, own); err != nil {
		return nil, "", err
	}
	return (&server{node: n}).read, strings.Join(o.engines, ", "), nil
}

// page returns a function that reads the metrics page of a running exporter.
func (o triageOptions) page() (func(context.Context) (triage.Reading, error), error) {
	address, err := httpclient.Address("exporter", o.exporter, "exporter.http-config")
	if err != nil {
		return nil, err
	}
	if strings.Trim(address.Path, "/") == "" {
		address = address.JoinPath("metrics")
	}
	client, err := client(o.httpConfig, "exporter.http-config")
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (triage.Reading, error) {
		remedy := "start an exporter, give its address with --exporter=URL, or read engines directly with --engine=URL"
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, address.String(), nil)
		if err != nil {
			return triage.Reading{}, err
		}
		response, err := client.Do(r)
		if err != nil {
			return triage.Reading{}, fmt.Errorf("no exporter answers: %w: %s", err, remedy)
		}
		defer response.Body.Close()
		page, err := io.ReadAll(response.Body)
		if err == nil && response.StatusCode != http.StatusOK {
			err = fmt.Errorf("status %s", response.Status)
		}
		if err != nil {
			return triage.Reading{}, fmt.Errorf("%s: %w: %s", address, err, remedy)
		}
		reading, err := triage.Parse(page, time.Now())
		if err != nil {
			return reading, fmt.Errorf("%s: %w: %s", address, err, remedy)
		}
		return reading, nil
	}, nil
}

// client returns an HTTP client with the settings of a file, or with default settings if file is empty.
func client(file, flag string) (*http.Client, error) {
	settings, err := httpclient.Load(flag, file)
	if err != nil {
		return nil, err
	}
	c, err := httpclient.New("", settings)
	if err != nil {
		return nil, fmt.Errorf("--%s: %w", flag, err)
	}
	c.Timeout = 30 * time.Second
	return c, nil
}

// wait waits between the readings, and prints the remaining time.
func wait(ctx context.Context, apart time.Duration, source string, progress io.Writer) error {
	fmt.Fprintf(progress, "Read %s; reading again in %s", source, apart)
	if terminal(progress) {
		defer fmt.Fprint(progress, "\r\x1b[K")
	} else {
		fmt.Fprintln(progress)
	}
	end := time.After(apart)
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for left := apart; ; left -= time.Second {
		select {
		case <-ctx.Done():
			return fmt.Errorf("stopped before the second reading: %w", context.Cause(ctx))
		case <-end:
			return nil
		case <-tick.C:
			if terminal(progress) {
				fmt.Fprintf(progress, "\r\x1b[KRead %s; reading again in %s", source, max(left-time.Second, 0))
			}
		}
	}
}

// terminal reports whether a writer is a terminal.
func terminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}
