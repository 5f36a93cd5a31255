package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kingpin/v2"
	"github.com/prometheus/common/version"
	"go.yaml.in/yaml/v3"

	"github.com/llm-node-exporter/llm-node-exporter/doctor"
	"github.com/llm-node-exporter/llm-node-exporter/examples"
	"github.com/llm-node-exporter/llm-node-exporter/internal/httpclient"
)

// doctorOptions holds the flags of the command "doctor", including the server's flags.
type doctorOptions struct {
	exporter, exporterHTTP     string
	prometheus, prometheusHTTP string
	rules, output              string
	against, bundle            string
	server                     options
	here                       bool // no exporter is queried: the command reads this node, with the server's flags
}

// defaultExporter is the address of the exporter on this machine.
const defaultExporter = "http://127.0.0.1:9844"

// parseDoctorFlags reads the command line.
func parseDoctorFlags(args []string) (o doctorOptions, err error) {
	app := kingpin.New("exporter doctor",
		"Why is a series or a value missing? The command queries the exporter on this machine. With flags of the exporter, or if no exporter "+
			"runs, the command reads this node once as the exporter would, and sends no probe. Exit status: 0 nothing is wrong, "+
			"1 something is not measured, 2 alerts do not fire, 3 a check was not possible.")
	app.HelpFlag.Short('h')
	app.Flag("exporter", "Address of the exporter to check. Default: "+defaultExporter+".").PlaceHolder("URL").StringVar(&o.exporter)
	app.Flag("exporter-http-config",
		"File with TLS settings and credentials for the exporter, in the format of Prometheus' http_config.").PlaceHolder("FILE").
		StringVar(&o.exporterHTTP)
	app.Flag("prometheus", "Also check this Prometheus, which scrapes the exporters and evaluates the rules.").PlaceHolder("URL").
		StringVar(&o.prometheus)
	app.Flag("prometheus-http-config", "File with TLS settings and credentials for Prometheus, in the format of Prometheus' "+
		"http_config.").PlaceHolder("FILE").
		StringVar(&o.prometheusHTTP)
	app.Flag("rules", "Rule file that Prometheus should have loaded. Default: the rules of this version with default options.").
		PlaceHolder("FILE").StringVar(&o.rules)
	app.Flag("output", "text, or json for programs.").Default("text").EnumVar(&o.output, "text", "json")
	app.Flag("against", "Compare each GPU value with the output of nvidia-smi -q -x. Give nvidia-smi to run the program, or a FILE with "+
		"its output or a bundle. Exit status: 0 if all values are right, 1 if the exporter lacks some values, 2 if some are wrong.").
		PlaceHolder("nvidia-smi|FILE").StringVar(&o.against)
	app.Flag("bundle", "With --against, also write both outputs to this file, without names of hosts, pods and processes, for a bug "+
		"report or a test.").PlaceHolder("FILE").StringVar(&o.bundle)
	own := len(app.Model().Flags)
	o.server.addFlags(app)
	servers := map[string]bool{}
	for _, f := range app.Model().Flags[own:] {
		servers[f.Name] = true
	}
	given, err := app.ParseContext(args)
	if err == nil {
		for _, element := range given.Elements {
			f, ok := element.Clause.(*kingpin.FlagClause)
			o.here = o.here || ok && servers[f.Model().Name]
		}
		_, err = app.Parse(args)
	}
	switch {
	case err != nil:
		return o, fmt.Errorf("%w (see exporter doctor --help)", named(app, args, err))
	case o.bundle != "" && o.against == "":
		return o, errors.New("--bundle needs --against")
	case o.against != "" && (o.prometheus != "" || o.rules != ""):
		return o, errors.New("--against compares an exporter with nvidia-smi, without Prometheus: omit --prometheus and --rules")
	case o.here && o.exporter != "":
		return o, errors.New("--exporter checks a running exporter, and flags of the exporter check this node: give one or the other")
	}
	o.server = o.server.ofRole()
	return o, nil
}

// doctorCommand looks for missing series and broken settings, and writes its findings to out.
func doctorCommand(ctx context.Context, args []string, out, progress io.Writer) (status int, err error) {
	const failed = 3
	o, err := parseDoctorFlags(args)
	if err != nil {
		return failed, err
	}
	if o.against != "" {
		return o.compare(ctx, out, progress)
	}
	p := doctor.Picture{Version: version.Version}
	file := examples.Rules
	if o.rules != "" {
		if file, err = os.ReadFile(o.rules); err != nil {
			return failed, fmt.Errorf("--rules: %w", err)
		}
	}
	if p.Rules, err = doctor.ReadRules(file); err != nil {
		return failed, fmt.Errorf("%s: %w", cmp.Or(o.rules, "own rules"), err)
	}
	var findings []doctor.Finding
	if p.Exporter, findings, err = o.readExporter(ctx, progress); err != nil {
		return failed, err
	}
	if o.prometheus != "" {
		client, at, err := o.client("prometheus", o.prometheus, o.prometheusHTTP)
		if err != nil {
			return failed, err
		}
		if p.Prometheus, err = doctor.Ask(ctx, client, at); err != nil {
			findings = append(findings, doctor.Finding{
				Severity: doctor.Unseen, Subject: "Prometheus", Problem: err.Error(),
				Remedy: "--prometheus=URL, with --prometheus-http-config=FILE if it requires TLS or a password; curl -s " +
					at.JoinPath("api/v1/rules").String(),
			})
		}
	}
	report := doctor.Diagnose(p, findings...)
	if o.output == "json" {
		encoder := json.NewEncoder(out)
		encoder.SetIndent("", "  ")
		err = encoder.Encode(struct {
			Status int `json:"status"`
			doctor.Report
		}{report.Status(), report})
	} else {
		_, err = io.WriteString(out, written(report))
	}
	return report.Status(), err
}

// client returns the client for a server that a flag names.
func (o doctorOptions) client(flag, address, file string) (*http.Client, *url.URL, error) {
	settings, err := httpclient.Load(flag+"-http-config", file)
	if err != nil {
		return nil, nil, err
	}
	client, at, err := httpclient.To("", address, settings, nil)
	if err != nil {
		return nil, nil, fmt.Errorf("--%s: %w", flag, errors.Unwrap(err))
	}
	return client, at, nil
}

// readExporter queries an exporter. If o.here is set, it reads this node instead. It returns a finding for each failed
// reading.
func (o doctorOptions) readExporter(ctx context.Context, progress io.Writer) (*doctor.Reading, []doctor.Finding, error) {
	if !o.here {
		address := cmp.Or(o.exporter, defaultExporter)
		client, at, err := o.client("exporter", address, o.exporterHTTP)
		if err != nil {
			return nil, nil, err
		}
		reading, err := doctor.Read(ctx, client, at)
		switch {
		case err == nil:
			return reading, nil, nil
		case o.exporter != "" || o.prometheus != "" || !errors.Is(err, syscall.ECONNREFUSED):
			return nil, []doctor.Finding{{
				Severity: doctor.Unseen, Subject: "exporter", Problem: err.Error(),
				Remedy: "--exporter=http://HOST:9844, with --exporter-http-config=FILE if it requires TLS or a password; kubectl -n NS " +
					"port-forward POD 9844",
				Docs: "runbooks/LLMExporterDown.md",
			}}, nil
		}
		fmt.Fprintf(progress, "No exporter answers at %s.\n", address)
	}
	fmt.Fprintf(progress, "Reading this node for %s; no probe is sent.\n", settle)
	return readHere(ctx, o.server)
}

// thisNode names the source of a reading that comes from no exporter.
const thisNode = "this node"

// settle is the time that the collectors need to find GPUs, processes and pods.
const settle = 5 * time.Second

// readHere reads this node once, like an exporter with the same options.
func readHere(ctx context.Context, o options) (*doctor.Reading, []doctor.Finding, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	log := slog.New(slog.DiscardHandler) // the findings replace the log
	n, err := newNode(func(seen seen) (configuration, error) {
		c, err := loadConfig(o.config, o.probes, seen, log)
		c.probes = nil
		return c, err
	}, log)
	if err != nil {
		return nil, []doctor.Finding{{
			Severity: doctor.Broken, Subject: "configuration", Problem: err.Error(),
			Remedy: "an exporter does not start with this configuration: correct the line that the error names",
		}}, nil
	}
	findings := unreadable(o.config.file)
	if _, err := n.start(ctx, o); err != nil {
		return nil, append(findings, doctor.Finding{
			Severity: doctor.Broken, Subject: "exporter", Problem: err.Error(),
			Remedy: "an exporter does not start with these flags: correct the flag that the error names",
		}), nil
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, nil, err
	}
	web := &http.Server{
		Handler:           (&server{serverOptions: serverOptions{metricsPath: "/metrics"}, node: n}).handler(),
		ReadHeaderTimeout: time.Second,
	}
	go func() { _ = web.Serve(listener) }()
	defer func() { _ = web.Close() }()
	select {
	case <-ctx.Done():
		return nil, nil, ctx.Err()
	case <-time.After(settle):
	}
	reading, err := doctor.Read(ctx, http.DefaultClient, &url.URL{Scheme: "http", Host: listener.Addr().String()})
	if err != nil {
		return nil, nil, err
	}
	reading.Exporter = thisNode
	return reading, findings, nil
}

// unreadable returns a finding for each file that the configuration names, such as a key, and that cannot be read.
func unreadable(config string) []doctor.Finding {
	source, err := os.ReadFile(config)
	var root any
	if err != nil || yaml.Unmarshal(source, &root) != nil {
		return nil // there is no file, or newNode has reported the error
	}
	var findings []doctor.Finding
	var walk func(place string, value any)
	walk = func(place string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for _, key := range slices.Sorted(maps.Keys(v)) {
				walk(strings.TrimPrefix(place+"."+key, "."), v[key])
			}
		case []any:
			for i := range v {
				walk(fmt.Sprintf("%s[%d]", place, i), v[i])
			}
		case string:
			if !strings.HasSuffix(place, "_file") {
				return
			}
			f, err := os.Open(v)
			if err == nil {
				f.Close()
				return
			}
			findings = append(findings, doctor.Finding{
				Severity: doctor.Missing, Subject: place, Problem: err.Error(),
				Remedy: "mount the secret that has it (extraVolumes, or cluster.secrets in the chart), readable by the exporter's user",
				Docs:   "docs/operations.md#synthetic-requests",
			})
		}
	}
	walk("", root)
	return findings
}

// written formats a report as text for people, 80 columns wide. The problems come first, followed by the checks without
// a problem.
func written(r doctor.Report) string {
	var b strings.Builder
	for _, f := range r.Findings {
		text := f.Subject + ": " + f.Problem
		if len(f.Alerts) > 0 {
			text += ". Cannot fire: " + strings.Join(f.Alerts, ", ")
		}
		wrap(&b, fmt.Sprintf("%-9s", f.Severity), text)
		wrap(&b, "     do: ", f.Remedy)
		if f.Docs != "" {
			wrap(&b, "    see: ", f.Docs)
		}
	}
	if len(r.Findings) == 0 {
		b.WriteString("Nothing is wrong.\n")
	}
	for _, line := range r.Fine {
		wrap(&b, "ok       ", line)
	}
	return b.String()
}

// wrap writes a text after a prefix of nine columns. A word that is longer than a line gets its own line.
func wrap(b *strings.Builder, mark, text string) {
	const width = 80 - 9
	line := ""
	for word := range strings.FieldsSeq(text) {
		if line != "" && len([]rune(line))+1+len([]rune(word)) > width {
			b.WriteString(mark + line + "\n")
			mark, line = strings.Repeat(" ", 9), ""
		}
		line = strings.TrimPrefix(line+" "+word, " ")
	}
	b.WriteString(mark + line + "\n")
}
