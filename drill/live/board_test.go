package live

import (
	"encoding/json"
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// played serves the dashboards of an incident that has just ended. broken replaces the query of a panel with a query
// that fails.
func played(t *testing.T, broken string) *httptest.Server {
	t.Helper()
	in, err := incident.Find(incident.Incidents(), "thermal-throttle")
	if err != nil {
		t.Fatal(err)
	}
	in.History, in.Lasts = 30*time.Minute, 25*time.Minute
	p, err := play.Run(in, play.Options{Seed: 1, Epoch: time.Now().Add(-in.Onset() - in.Lasts).Truncate(rules.Interval)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	all := dashboards.All(nil)
	for _, r := range all[0].Rows {
		for i := range r.Panels {
			if r.Panels[i].Title == broken {
				r.Panels[i].Queries = []dashboards.Query{{Expr: promql.Call("label_replace", promql.Vector(metrics.EngineUp), promql.Str("x"),
					promql.Str(""), promql.Str("pod"), promql.Str("("))}}
			}
		}
	}
	style := rules.Style{RunbookURL: "http://node.example/runbooks/{alert}{labels}"}
	s := httptest.NewServer(boards{store: p.Prometheus, style: style, node: "http://node.example/", all: all})
	t.Cleanup(s.Close)
	return s
}

// panel is the condition that the panel with a title has an element.
func panel(title, element string) string {
	return fmt.Sprintf(`document.querySelector('section[aria-label="%s"] %s')`, title, element)
}

// TestBoards checks that a browser alone shows an incident, adds new data, reports when no data comes, and loses only a
// panel that fails.
func TestBoards(t *testing.T) {
	s := played(t, "Preemptions")
	b := e2e.NewBrowser(t)
	b.View(1280, 800, "", "prefers-color-scheme", "dark")
	b.Open(s.URL + Boards + string(rules.IncidentDashboard) + "?range=1h")
	for what, condition := range map[string]string{
		"an alert with its runbook": panel("Firing alerts", `td a[href^="http://node.example/runbooks/LLM"]`),
		"evidence":                  panel("Where to look first", "tbody tr"),
		"a value that is bad":       panel("Burn rate now", ".stat.bad"),
		"an objective in words":     panel("Burn rate now", "") + `.textContent.includes("severe TTFT")`,
		"lines and a limit": panel("Inter-token latency, p95", "path:not(.limit):not(.across)") + "&&" +
			panel("Inter-token latency, p95", "path.limit"),
		"a state": panel("Throttling", `.states rect[fill="#D55E00"]`),
		"text":    panel("GPU", `a[href="http://node.example/runbooks/BranchThrottledGPU"]`),
		"what failed": panel("Preemptions", ".failed") + "&&" + panel("Preemptions", ".failed") +
			`.textContent.includes("invalid regular expression")`,
		"a neighbour of what failed":  panel("Prefix cache hits", "path:not(.across)"),
		"why a panel is empty":        panel("Memory bandwidth in use", "p.quiet"),
		"a way on, at the same range": panel("Queue share of TTFT", `a[href="llm-fleet?range=1h"]`),
	} {
		b.Until(what, condition)
	}
	b.Eval(`document.getElementById("state").textContent = "old"; again(); 1`)
	b.Until("it is drawn anew", `document.getElementById("state").textContent.startsWith("As of")`)
	for _, width := range []int{360, 1280} {
		b.View(width, 740, "")
		if wide := b.Eval(`document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide != "0" {
			t.Errorf("at %d pixels the page is %s pixels too wide", width, wide)
		}
	}
	if len(b.Complaints) > 0 {
		t.Errorf("the browser complains: %s", b.Complaints)
	}
	accessible(t, b)
	for _, board := range dashboards.All(nil)[1:] {
		b.Open(s.URL + Boards + string(board.UID))
		if drawn := b.Eval(`document.querySelectorAll(".plot path:not(.across)").length`); drawn == "0" {
			t.Errorf("%s has no line", board.Title())
		}
		if failed := b.Eval(`[...document.querySelectorAll(".failed")].map(e => e.textContent).join()`); failed != "" {
			t.Errorf("%s: %s", board.Title(), failed)
		}
		accessible(t, b)
	}
	s.Close()
	b.Eval("again(); 1")
	b.Until("it says that it is stale", `document.getElementById("state").textContent.startsWith("The demo does not answer; it was: As of")`)
}

// accessible checks the open web page with axe-core, in light and dark colours, if AXE names axe.min.js.
func accessible(t *testing.T, b *e2e.Browser) {
	t.Helper()
	file := os.Getenv("AXE")
	if file == "" {
		return
	}
	axe, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	b.Eval(string(axe) + ";1")
	for _, scheme := range []string{"light", "dark"} {
		b.View(1280, 740, "", "prefers-color-scheme", scheme)
		var found []struct {
			ID, Help string
			Nodes    []struct{ HTML, FailureSummary string }
		}
		if err := json.Unmarshal([]byte(b.Eval(`axe.run().then(r => JSON.stringify(r.violations))`)), &found); err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			t.Errorf("%s: %s: %s: %+v", scheme, f.ID, f.Help, f.Nodes[:min(len(f.Nodes), 2)])
		}
	}
}

// TestBoardAddresses checks that a wrong address is answered with the right ones.
func TestBoardAddresses(t *testing.T) {
	s := boards{all: dashboards.All(nil)}
	for address, says := range map[string]string{
		Boards + "nonsense":              Boards + "llm-incident",
		Boards + "llm-incident?range=2y": "15m, 1h, 6h, 1d",
	} {
		w := httptest.NewRecorder()
		s.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", address, nil))
		if w.Code < 400 || !strings.Contains(w.Body.String(), says) {
			t.Errorf("%s: %d %s", address, w.Code, w.Body)
		}
	}
}

// TestWrite checks that quantities are easy to read.
func TestWrite(t *testing.T) {
	for _, c := range []struct {
		value      float64
		unit, want string
	}{
		{0.0425, "s", "42.5 ms"},
		{0, "s", "0 s"},
		{67, "suffix:s", "1.12 min"},
		{0, "suffix:s", "0 s"},
		{34.2, "suffix:x", "34.2x"},
		{2e-6, "s", "2 µs"},
		{7200, "s", "2 h"},
		{0.125, "percentunit", "12.5 %"},
		{14395, "count:tok/s", "14.4k tok/s"},
		{3 << 30, "bytes", "3 GiB"},
		{1.98e9, "hertz", "1.98 GHz"},
		{71, "celsius", "71 °C"},
		{0.25, "currencyUSD", "$0.25"},
		{-1, "short", "-1"},
		{0.3, "count:/s", "0.3 /s"},
	} {
		if got := write(c.value, c.unit); got != c.want {
			t.Errorf("%v %s: %q, want %q", c.value, c.unit, got, c.want)
		}
	}
	for _, b := range dashboards.All(nil) { // every unit of a panel has a format
		for _, r := range b.Rows {
			for _, p := range r.Panels {
				_, known := units[p.Unit]
				if !known && p.Kind != dashboards.Text && p.Unit != "percentunit" && p.Unit != "currencyUSD" && !strings.HasPrefix(p.Unit, "count:") {
					t.Errorf("%s: the unit %q", p.Title, p.Unit)
				}
				if !slices.Contains([]uint32{4, 6, 8, 10, 12, 14, 16, 24}, p.Width) {
					t.Errorf("%s: board.css has no width %d", p.Title, p.Width)
				}
			}
		}
	}
}

// TestBoardPictures takes pictures of a running demo's incident board for people to judge; docs/incident.png is one of them.
func TestBoardPictures(t *testing.T) {
	url, dir := os.Getenv("BOARD"), os.Getenv("PICTURES")
	if url == "" || dir == "" {
		t.Skip("BOARD names no board, or PICTURES no folder")
	}
	b := e2e.NewBrowser(t)
	for _, p := range []struct {
		name          string
		width, height int
		scheme        string
		full          bool
	}{
		{"incident", 1280, 800, "dark", false},
		{"light", 1280, 800, "light", true},
		{"dark", 1280, 800, "dark", true},
		{"phone", 360, 740, "dark", true},
	} {
		b.View(p.width, p.height, "", "prefers-color-scheme", p.scheme)
		b.Open(url)
		b.Until("it is drawn", `document.querySelector(".plot path")`)
		if err := os.WriteFile(filepath.Join(dir, p.name+".png"), b.Screenshot(p.full), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
