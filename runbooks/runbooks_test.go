package runbooks_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
)

// Every alert has a page, and every page that is named like an alert has one.
func TestAlertsAndPagesBelongTogether(t *testing.T) {
	var alerts []string
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
		alerts = append(alerts, a.Name)
		if _, err := runbooks.Page(a.Name); err != nil {
			t.Errorf("write runbooks/%s.md: %v", a.Name, err)
		}
	}
	for _, name := range runbooks.Names() {
		if strings.HasPrefix(name, "LLM") && !slices.Contains(alerts, name) {
			t.Errorf("runbooks/%s.md: no such alert", name)
		}
	}
}

var (
	fence = regexp.MustCompile("(?s)```promql\n(.*?)```")
	link  = regexp.MustCompile(`\]\(([^)]+)\)`)
)

// Every page begins with its question, links only to pages, and queries only metrics and labels of the vocabulary. The
// page of an alert or a branch has the same parts in the same order, and at least two queries.
func TestPagesAreComplete(t *testing.T) {
	parts := []string{"What it means", "Is it real?", "Split", "Evidence", "Levers", "Verify", "Roll back"}
	for _, name := range runbooks.Names() {
		page, err := runbooks.Page(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(page)
		if q := runbooks.Question(page); !strings.HasSuffix(q, "?") {
			t.Errorf("%s: the first line must be the question it answers, not %q", name, q)
		}
		var got []string
		for line := range strings.Lines(text) {
			if h, ok := strings.CutPrefix(line, "## "); ok {
				got = append(got, strings.TrimSpace(h))
			}
		}
		diagnosis := strings.HasPrefix(name, "LLM") || strings.HasPrefix(name, "Branch")
		if diagnosis && !slices.Equal(got, parts) {
			t.Errorf("%s: parts %v, want %v", name, got, parts)
		}
		queries := fence.FindAllStringSubmatch(text, -1)
		if diagnosis && len(queries) < 2 {
			t.Errorf("%s: %d queries; a page shows how to look and how to verify", name, len(queries))
		}
		for _, q := range queries {
			if err := promql.Verify(q[1]); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			if _, err := runbooks.Page(strings.TrimSuffix(l[1], ".md")); err != nil {
				t.Errorf("%s links to %s: %v", name, l[1], err)
			}
		}
	}
}

// A page that belongs to no alert is reached from a page that does: nobody looks for it in an incident.
func TestPagesAreReached(t *testing.T) {
	linked := map[string]bool{}
	for _, name := range runbooks.Names() {
		page, err := runbooks.Page(name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(name, "LLM") {
			for _, l := range link.FindAllStringSubmatch(string(page), -1) {
				linked[strings.TrimSuffix(l[1], ".md")] = true
			}
		}
	}
	for _, name := range runbooks.Names() {
		if !strings.HasPrefix(name, "LLM") && !linked[name] {
			t.Errorf("runbooks/%s.md: no page of an alert links to it", name)
		}
	}
}

func TestHandler(t *testing.T) {
	server := httptest.NewServer(http.StripPrefix("/runbooks/", runbooks.Handler()))
	defer server.Close()
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/runbooks/":                  {200, `href="LLMGPULost.md"`},
		"/runbooks/LLMGPULost":        {200, "<h2>Is it real?</h2>"},
		"/runbooks/LLMGPULost.md":     {200, "<h1>LLMGPULost</h1>"},
		"/runbooks/LLMGPUCriticalXID": {200, "<table>"},
		"/runbooks/../go.mod":         {404, "No such runbook"},
		"/runbooks/Nothing":           {404, "No such runbook"},
	} {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body := new(strings.Builder)
		_ = resp.Write(body)
		resp.Body.Close()
		if resp.StatusCode != want.status || !strings.Contains(body.String(), want.text) {
			t.Errorf("%s: status %d, want %d with %q", path, resp.StatusCode, want.status, want.text)
		}
	}
}

// A page fills in the labels that its address has, passes them on, and takes no value that a shell would take apart.
func TestHandlerFillsIn(t *testing.T) {
	server := httptest.NewServer(http.StripPrefix("/runbooks/", runbooks.Handler()))
	defer server.Close()
	get := func(query string) string {
		resp, err := http.Get(server.URL + "/runbooks/" + query)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	down := get("LLMEngineDown?namespace=prod&pod=chat-0&model_name=org/model-7b&instance=node-3:9844")
	if !strings.Contains(down, "kubectl -n prod get pod chat-0") || strings.Contains(down, "$NS") || strings.Contains(down, "$POD") {
		t.Errorf("placeholders are left:\n%s", down)
	}
	xid := get("LLMGPUCriticalXID?instance=node-3:9844&gpu_uuid=GPU-1")
	for _, want := range []string{"kubectl cordon node-3 ", "$POD", `href="LLMGPULinkDegraded.md?gpu_uuid=GPU-1&amp;instance=node-3%3A9844"`} {
		if !strings.Contains(xid, want) {
			t.Errorf("the page lacks %q:\n%s", want, xid)
		}
	}
	for _, evil := range []string{"x;reboot", "$(reboot)", "`reboot`", "a b", "<script>", "-o", "x%0Areboot"} {
		if page := get("LLMEngineDown?namespace=prod&pod=" + strings.NewReplacer(";", "%3B", " ", "%20", "<", "%3C", ">", "%3E").Replace(evil)); !strings.Contains(page, "get pod $POD") {
			t.Errorf("pod=%s is taken", evil)
		}
	}
}
