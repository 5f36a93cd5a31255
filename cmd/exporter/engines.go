package main

import (
	"html/template"
	"net/http"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/discovery"
	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// enginesPage shows the engines to people, as of the last scrape.
var enginesPage = template.Must(template.New("engines").Funcs(template.FuncMap{"remedy": engine.Remedy}).Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Engines</title>
<style>
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; margin: 1rem }
table { border-collapse: collapse } td, th { border: 1px solid #8886; padding: .3rem .6rem; text-align: left; vertical-align: top }
</style></head><body>
<h1>Engines</h1>
{{ if .Engines }}<table><tr><th>page</th><th>pod</th><th>state</th><th>engine</th><th>version</th><th>model</th><th>what to do</th></tr>
{{ range .Engines }}<tr><td>{{ .Server }}</td><td>{{ if .Pod }}{{ .Namespace }}/{{ .Pod }} {{ .Container }}{{ end }}</td><td>{{ if .Reason }}{{ .Reason }}{{ else }}up{{ end }}</td><td>{{ .Runtime }}</td><td>{{ .Version }}</td><td>{{ .Model }}</td><td>{{ if eq .Why .Reason }}{{ with .Detail }}{{ . }}. {{ end }}{{ remedy .Reason }}{{ else }}{{ .Why }}{{ end }}</td></tr>
{{ end }}</table>
{{ else }}<p>None are configured, and none were found: start with --engine.target=URL, or list targets in --config.file.</p>
{{ end }}{{ with .Err }}<p>Discovery does not work, those found before stay: {{ . }}</p>
{{ end }}{{ if .Places }}<h2>Looked at, not read</h2>
<table><tr><th>address</th><th>pod</th><th>state</th><th>why</th></tr>
{{ range .Places }}<tr><td>{{ .URL }}</td><td>{{ if .Pod }}{{ .Namespace }}/{{ .Pod }} {{ .Container }}{{ end }}</td><td>{{ .State }}</td><td>{{ .Why }}{{ with remedy .Why }}: {{ . }}{{ end }}</td></tr>
{{ end }}</table>
{{ end }}{{ with .Maintenance }}<h2>Maintenance</h2>
<table><tr><th>state</th><th>from</th><th>to</th><th>reason</th><th>engines</th><th>objectives</th></tr>
{{ range . }}<tr><td>{{ .State $.Now }}</td><td>{{ .From }}</td><td>{{ .To }}</td><td>{{ .Reason }}</td><td>{{ .Select }}</td><td>{{ range .Objectives }}{{ . }} {{ else }}all{{ end }}</td></tr>
{{ end }}</table>
{{ end }}<p>As of the last scrape. What each engine says and what it does not: llm_engine_metric_source_info.</p>
</body></html>
`))

func (s *server) listEngines(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	var page struct {
		Engines []engine.Engine
		Places  []discovery.Seen
		Err     error

		Maintenance []slo.Maintenance
		Now         time.Time
	}
	engines := s.engines.Load()
	page.Engines, page.Maintenance, page.Now = engines.Engines(), engines.Maintenance(), time.Now()
	if s.finder != nil {
		page.Places, page.Err = s.finder.Places()
	}
	if err := enginesPage.Execute(w, page); err != nil {
		s.log.Debug("reader went away", "err", err)
	}
}
