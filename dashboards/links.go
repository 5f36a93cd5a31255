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
	// tag marks the dashboards of this project.
	tag = "llm-node-exporter"
	// eachAlert stands for the clicked alert in links to the alert's runbook. listedAlert stands for the alert of a
	// table's row, because the values of a row have no labels.
	eachAlert   = "${__field.labels.alertname}"
	listedAlert = "${__data.fields.alert}"
	// eachRunbook stands for the runbook in the clicked row of a table.
	eachRunbook = "${__data.fields.runbook}"
)

// boardLinks returns the links of every dashboard: to the other dashboards, with the same time range and filters, and
// to the runbooks.
func boardLinks(style rules.Style) []dashboard.DashboardLink {
	all := runbookIndex(style)
	return []dashboard.DashboardLink{
		{
			Title: "Dashboards", Type: dashboard.DashboardLinkTypeDashboards, Icon: "external link", Tags: []string{tag}, AsDropdown: true,
			IncludeVars: true, KeepTime: true,
		},
		{Title: "Runbooks", Type: dashboard.DashboardLinkTypeLink, Icon: "doc", Tags: []string{}, Url: &all, TargetBlank: true},
	}
}

// runbookIndex returns the address of all runbooks.
func runbookIndex(style rules.Style) string {
	all, _, _ := strings.Cut(style.RunbookURL, "{alert}")
	return all
}

// runbookTitle returns the text of the link to the panel's runbook. The text is the question that the runbook answers.
func (p Panel) runbookTitle() string {
	switch p.Runbook {
	case eachAlert, listedAlert:
		return "Runbook of this alert"
	case eachRunbook:
		return "Runbook of this evidence"
	}
	page, err := runbooks.Page(p.Runbook)
	if err != nil {
		panic("dashboards: " + p.Title + ": " + err.Error())
	}
	return "Runbook: " + runbooks.Question(page)
}

// dataLinks returns the links of a value: to its runbook, and to the next dashboard with the same time range. On that
// dashboard, labels of the value set some filters. All other filters stay.
func dataLinks(b Board, p Panel, style rules.Style) []dashboard.DashboardLink {
	var links []dashboard.DashboardLink
	link := func(title, url string) {
		links = append(links, dashboard.DashboardLink{
			Title: title, Type: dashboard.DashboardLinkTypeLink, Url: &url, Tags: []string{},
			TargetBlank: strings.HasPrefix(url, "http"),
		})
	}
	if p.Runbook != "" {
		link(p.runbookTitle(), style.Runbook(p.Runbook))
	}
	if p.Next != "" {
		link("Go on: "+titles[p.Next], "/d/"+string(p.Next)+"?${__url_time_range}&${datasource:queryparam}"+narrowed(b, p, style))
	}
	return links
}

// narrowed returns the filters of a dashboard as URL parameters. It takes a value from the clicked series only if all
// series of the panel certainly have the label. It never takes the namespace or the cluster, which may be absent, or
// values from panels of alerts, whose labels differ.
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
