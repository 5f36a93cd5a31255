package main

import (
	"encoding/json"
	"html/template"
	"net/http"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/internal/site"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// enginesPage shows people the engines as of the last scrape.
var enginesPage = template.Must(template.New("engines").Parse(`<h1>Engines</h1>
{{ if .Engines }}<div class="wide" tabindex="0" role="region" aria-label="Engines"><table><tr><th>address</th><th>pod</th><th>state</th><th>engine</th><th>version</th><th>model</th><th>what changed</th><th>what to do</th></tr>
{{ range .Engines }}<tr><td>{{ .Server }}</td><td>{{ template "pod" . }}</td><td>{{ .State }}</td><td>{{ .Runtime }}</td><td>{{ .Version }}</td><td>{{ .Model }}</td><td>{{ range .Changed }}{{ . }}<br>{{ end }}</td><td>{{ .Todo }}</td></tr>
{{ end }}</table></div>
{{ else }}<p>None are configured, and none were found: start with --engine.target=URL, or list targets in --config.file.</p>
{{ end }}{{ with .Problem }}<p class="look">Discovery fails; engines found before are still read: {{ . }}</p>
{{ end }}{{ if .Places }}<h2>Found but not read</h2>
<div class="wide" tabindex="0" role="region" aria-label="Found but not read"><table><tr><th>address</th><th>pod</th><th>state</th><th>why</th></tr>
{{ range .Places }}<tr><td>{{ .Server }}</td><td>{{ template "pod" . }}</td><td>{{ .State }}</td><td>{{ .Todo }}</td></tr>
{{ end }}</table></div>
{{ end }}{{ with .Maintenance }}<h2>Maintenance</h2>
<div class="wide" tabindex="0" role="region" aria-label="Maintenance"><table><tr><th>state</th><th>from</th><th>to</th><th>reason</th><th>engines</th><th>objectives</th></tr>
{{ range . }}<tr><td>{{ .State $.Now }}</td><td>{{ .From }}</td><td>{{ .To }}</td><td>{{ .Reason }}</td><td>{{ .Select }}</td><td>{{ range .Objectives }}{{ . }} {{ else }}all{{ end }}</td></tr>
{{ end }}</table></div>
{{ end }}<p>This is the state at the last scrape. llm_engine_metric_source_info shows what each engine reports and does not report.</p>
{{ define "pod" }}{{ if .Pod }}{{ .Namespace }}/{{ .Pod }} {{ .Container }}{{ end }}{{ end }}`))

// listed holds the content of /engines. The node page reads the fields with JSON names.
type listed struct {
	Engines []candidate `json:"engines"`
	Places  []candidate `json:"places"`  // places that were examined, but that have no engine to read
	Problem string      `json:"problem"` // why discovery does not work

	Maintenance []slo.Maintenance `json:"-"`
	Now         time.Time         `json:"-"`
}

// candidate is an engine, or a place that could have an engine. Server is the address of a metrics endpoint, with or
// without a scheme.
type candidate struct {
	Server    string `json:"server"`
	Namespace string `json:"namespace"`
	Pod       string `json:"pod"`
	Container string `json:"container"`
	State     string `json:"state"`
	Todo      string `json:"todo"`

	Runtime metrics.Runtime `json:"-"`
	Version string          `json:"-"`
	Model   string          `json:"-"`
	Changed []string        `json:"-"`
}

func (s *server) listed() listed {
	engines := s.engines.Load()
	page := listed{Engines: []candidate{}, Places: []candidate{}, Maintenance: engines.Maintenance(), Now: time.Now()}
	for _, e := range engines.Engines() {
		todo := e.Why()
		if todo == e.Reason {
			todo = engine.Remedy(e.State())
			if e.Detail != "" {
				todo = e.Detail + ". " + todo
			}
		}
		changed := make([]string, 0, len(e.Changes))
		for _, c := range e.Changes {
			changed = append(changed, c.String())
		}
		page.Engines = append(page.Engines, candidate{
			Changed: changed, Server: e.Server, Namespace: e.Namespace, Pod: e.Pod,
			Container: e.Container,
			State:     e.State(), Todo: todo, Runtime: e.Runtime, Version: e.Version, Model: e.Model,
		})
	}
	if s.finder == nil {
		return page
	}
	places, err := s.finder.Places()
	for _, p := range places {
		todo := p.Why
		if remedy := engine.Remedy(p.Why); remedy != "" {
			todo += ": " + remedy
		}
		page.Places = append(page.Places, candidate{
			Server: p.URL, Namespace: p.Namespace, Pod: p.Pod, Container: p.Container,
			State: string(p.State), Todo: todo,
		})
	}
	if err != nil {
		page.Problem = err.Error()
	}
	return page
}

// listEngines serves the list to people, and as JSON to the node page.
func (s *server) listEngines(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Vary", "Accept")
	page := s.listed()
	if r.Header.Get("Accept") == "application/json" {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(page) // the client has disconnected
		return
	}
	var body strings.Builder
	err := enginesPage.Execute(&body, page)
	if err == nil {
		err = site.Write(w, http.StatusOK, site.Page{Title: "Engines", Root: "./", Body: template.HTML(body.String())})
	}
	if err != nil {
		s.log.Debug("reader went away", "err", err)
	}
}
