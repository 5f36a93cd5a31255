package main

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// The dashboards in the repository equal the code's output.
func TestDashboardsAreCurrent(t *testing.T) {
	if err := generate("..", true, installation{}.dashboards(chart+"dashboards/")); err != nil {
		t.Error(err)
	}
}

// TestDashboardsStaySmall checks that no dashboard has more panels, screens, queries or PromQL, or reads more, than
// before panels were merged, and that all dashboards together have at most 110 panels.
func TestDashboardsStaySmall(t *testing.T) {
	panels, were := 0, 0
	var left size // of the engine dashboard, which then included the optional parts
	for _, b := range dashboards.All(nil) {
		is, err := sizeOf(b)
		if err != nil {
			t.Fatal(err)
		}
		panels, were = panels+is.panels, were+formerly[b.UID].panels
		was := formerly[b.UID]
		switch b.UID {
		case rules.EngineDashboard:
			left = size{was.panels - is.panels, was.rows, was.queries - is.queries, was.bytes - is.bytes, was.samples - is.samples}
		case rules.OptionalDashboard:
			was = left
		default:
		}
		if is.panels > was.panels || is.rows > was.rows || is.queries > was.queries || is.bytes > was.bytes ||
			is.samples > was.samples || is.samples == 0 {
			t.Errorf("%s: %+v, was %+v", b.Title(), is, was)
		}
	}
	if b := dashboards.All(nil)[0]; b.UID != rules.IncidentDashboard {
		t.Errorf("the first board is %s", b.UID)
	} else if is, err := sizeOf(b); err != nil || is.rows > 2*aScreen {
		t.Errorf("open rows of the incident board are %d high, more than two screens (%v)", is.rows, err)
	}
	if panels > 110 || panels < 50 || were != 173 {
		t.Errorf("%d panels, were %d", panels, were)
	}
	if r := rows(t, boardsTable); len(r) != 1+len(formerly) || r[1][6] != "39" || r[1][7] != "5.7" || r[1][10] != "270022" {
		t.Errorf("docs/boards.csv says %v", r)
	}
}

// Every format includes the dashboards, with the labels and runbooks of the installation and with the variables that
// its alerts use in links.
func TestInstallationHasDashboards(t *testing.T) {
	for _, format := range []string{"prometheus", "operator", "victoriametrics", "mimir", "grafana"} {
		dir := render(t, "--format", format, "--label", "cluster=k8s_cluster", "--runbook-url", "https://wiki.example/{alert}")
		text := string(read(t, dir, "dashboards", string(rules.IncidentDashboard)+".json"))
		var board struct {
			UID        string
			Templating struct{ List []struct{ Name string } }
		}
		if err := json.Unmarshal([]byte(text), &board); err != nil {
			t.Fatal(err)
		}
		var variables []string
		for _, v := range board.Templating.List {
			variables = append(variables, v.Name)
		}
		if board.UID != string(rules.IncidentDashboard) || !slices.Contains(variables, "cluster") {
			t.Errorf("%s: dashboard %s with variables %v", format, board.UID, variables)
		}
		if !strings.Contains(text, `k8s_cluster=~\"$cluster\"`) || !strings.Contains(text, "https://wiki.example/BranchQueueing") {
			t.Errorf("%s: labels or runbooks are not those of the installation", format)
		}
	}
}

// The document about dashboards names every dashboard, and its table every panel.
func TestDashboardsPage(t *testing.T) {
	page, err := dashboardsPage()
	if err != nil {
		t.Fatal(err)
	}
	panels := map[string]bool{}
	for _, r := range rows(t, panelsTable)[1:] {
		panels[r[0]+" "+r[2]] = true
		if r[3] == "" {
			t.Errorf("docs/panels.csv, %s: %q does not say what the panel shows", r[0], r[2])
		}
	}
	for _, board := range dashboards.All(nil) {
		if want := "## " + boardName(board) + "\n\n`" + string(board.UID) + "` opens with the last "; !strings.Contains(string(page), want) {
			t.Errorf("docs/dashboards.md lacks %q", want)
		}
		for _, row := range board.Rows {
			for _, p := range row.Panels {
				if !panels[boardName(board)+" "+p.Title] {
					t.Errorf("docs/panels.csv lacks %s of %s", p.Title, boardName(board))
				}
			}
		}
	}
}

// --dashboards v2 writes the other schema, with the labels of the installation, and never over the files of the
// repository.
func TestDashboardsV2(t *testing.T) {
	dir := render(t, "--format", "prometheus", "--dashboards", "v2", "--label", "cluster=k8s_cluster")
	var resource struct {
		APIVersion string
		Metadata   struct{ Name string }
	}
	text := read(t, dir, "dashboards", string(rules.IncidentDashboard)+".json")
	if err := json.Unmarshal(text, &resource); err != nil {
		t.Fatal(err)
	}
	if resource.APIVersion != "dashboard.grafana.app/v2" || resource.Metadata.Name != string(rules.IncidentDashboard) ||
		!strings.Contains(string(text), `k8s_cluster=~\"$cluster\"`) {
		t.Errorf("%+v, or not the labels of the installation", resource)
	}
	if err := run([]string{"--dashboards", "v2", "--out", t.TempDir()}); err == nil || !strings.Contains(err.Error(), "--format") {
		t.Errorf("without --format: %v", err)
	}
}
