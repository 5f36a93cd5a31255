package dashboards

import (
	"slices"
	"strings"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
)

const (
	// tag finds the dashboards of this project.
	tag = "llm-node-exporter"
	// eachAlert links to the runbook of the alert that was clicked.
	eachAlert = "${__field.labels.alertname}"
	// eachRunbook links to the runbook of the evidence that was clicked.
	eachRunbook = "${__data.fields.runbook}"
)

// boardLinks lead from every dashboard to every other, with time and filters.
func boardLinks(style rules.Style) []dashboard.DashboardLink {
	all, _, _ := strings.Cut(style.RunbookURL, "{alert}")
	return []dashboard.DashboardLink{
		{Title: "Dashboards", Type: dashboard.DashboardLinkTypeDashboards, Icon: "external link", Tags: []string{tag}, AsDropdown: true, IncludeVars: true, KeepTime: true},
		{Title: "Runbooks", Type: dashboard.DashboardLinkTypeLink, Icon: "doc", Tags: []string{}, Url: &all, TargetBlank: true},
	}
}

// dataLinks lead from a value to the runbook and to the next dashboard at the same time. What the value's
// labels say narrows the filters there; the other filters stay.
func dataLinks(b Board, p Panel, style rules.Style) []dashboard.DashboardLink {
	var links []dashboard.DashboardLink
	link := func(title, url string) {
		links = append(links, dashboard.DashboardLink{Title: title, Type: dashboard.DashboardLinkTypeLink, Url: &url, Tags: []string{}, TargetBlank: strings.HasPrefix(url, "http")})
	}
	if p.Runbook != "" {
		title := "Runbook of this alert"
		if p.Runbook == eachRunbook {
			title = "Runbook of this evidence"
		} else if p.Runbook != eachAlert {
			page, err := runbooks.Page(p.Runbook)
			if err != nil {
				panic("dashboards: " + p.Title + ": " + err.Error())
			}
			title = "Runbook: " + runbooks.Question(page)
		}
		link(title, strings.ReplaceAll(style.RunbookURL, "{alert}", p.Runbook))
	}
	if p.Next != "" {
		link("Go on: "+titles[p.Next], "/d/"+string(p.Next)+"?${__url_time_range}&${datasource:queryparam}"+narrowed(b, p, style))
	}
	return links
}

// narrowed are the filters of a dashboard as parameters, taken from the clicked series where all of the
// panel's series have the label for certain: what alerts are about differs, and a namespace or a cluster
// may be absent.
func narrowed(b Board, p Panel, style rules.Style) string {
	var url strings.Builder
	for _, v := range b.Variables {
		clicked := p.Kind != Table && p.Kind != Heatmap && p.Runbook != eachAlert &&
			v.label != metrics.LabelCluster && v.label != metrics.LabelNamespace
		for _, q := range p.Queries {
			clicked = clicked && slices.Contains(labelsOf(q.Expr), v.label)
		}
		if clicked {
			url.WriteString("&var-" + v.name + "=${__field.labels." + style.Label(v.label) + ":percentencode}")
		} else {
			url.WriteString("&${" + v.name + ":queryparam}")
		}
	}
	return url.String()
}
