// Package page serves the node page, which shows the current state of the node's engines, GPUs and objectives. Every
// few seconds, the browser reads the exporter's metrics, compares them with the previous reading, and updates the page.
// The exporter stores nothing.
package page

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"html/template"
	"net/http"
	"os"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/internal/site"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

//go:embed node.html
var source string

//go:embed node.js
var script template.JS

var body = template.Must(template.New("node").Parse(source))

// Options hold the links of the node page.
type Options struct {
	MetricsPath string // path of the metrics endpoint
	Version     string // of the exporter
	Profiles    bool   // whether /debug/pprof/ is served
}

// Handler serves the node page.
func Handler(o Options) http.Handler {
	host, _ := os.Hostname() // in a container, this is the pod's name
	node, fastest := cmp.Or(os.Getenv("NODE_NAME"), host, "this node"), slo.DefaultWindowPairs()[0]
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		var b strings.Builder
		if err := body.Execute(&b, map[string]any{
			"Node": node, "Metrics": strings.TrimPrefix(o.MetricsPath, "/"), "Version": o.Version, "Profiles": o.Profiles,
			// Exhaustion is the burn rate at which the fastest pair of windows would page.
			"Exhaustion": fastest.Unit(), "LeastBad": slo.MinBadEvents, "Outage": slo.MaxBadShare.Float(),
			"Now": nowWindows(),
		}); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		// the client has disconnected
		_ = site.Write(w, http.StatusOK, site.Page{Title: node + ": LLM inference", Root: "./", Body: template.HTML(b.String()), Script: script})
	})
}

// nowWindows returns the windows that show the current burn, for the script. Each entry has the window's milliseconds
// and the number of bad events that the window needs.
func nowWindows() string {
	all := make([][]float64, 0, len(slo.NowWindows))
	for _, w := range slo.NowWindows {
		all = append(all, []float64{w.Length.Std().Seconds() * 1e3, w.MinBad})
	}
	text, _ := json.Marshal(all) // cannot fail, because all numbers are finite
	return string(text)
}
