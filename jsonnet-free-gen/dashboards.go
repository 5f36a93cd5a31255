package main

import (
	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// dashboardFiles are the dashboards, one file each, as Grafana loads them from a folder.
func dashboardFiles(folder string, style rules.Style) []artifact {
	var all []artifact
	for _, b := range dashboards.All() {
		all = append(all, artifact{folder + string(b.UID) + ".json", func() ([]byte, error) { return dashboards.Render(b, style) }})
	}
	return all
}
