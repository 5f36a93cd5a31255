package dashboards

import "github.com/llm-node-exporter/llm-node-exporter/rules"

// object is a custom resource of Kubernetes, or a resource of Perses. Only a resource of Perses has a project, and it
// has no version.
type object struct {
	APIVersion string         `json:"apiVersion,omitempty"`
	Kind       string         `json:"kind"`
	Metadata   objectMetadata `json:"metadata"`
	Spec       any            `json:"spec"`
}

type objectMetadata struct {
	Name    string            `json:"name"`
	Project string            `json:"project,omitempty"`
	Labels  map[string]string `json:"labels,omitempty"`
}

// fields is a part of a resource whose schema depends on a plugin.
type fields = map[string]any

// RenderGrafanaResource writes a dashboard in the classic schema as the custom resource of Grafana's operator, with
// labels. The operator puts the dashboard into a folder of each Grafana that has the labels in grafanas.
func RenderGrafanaResource(b Board, style rules.Style, folder string, labels, grafanas map[string]string) ([]byte, error) {
	content, err := Render(b, style)
	if err != nil {
		return nil, err
	}
	return encode(object{
		APIVersion: "grafana.integreatly.org/v1beta1", Kind: "GrafanaDashboard",
		Metadata: objectMetadata{Name: string(b.UID), Labels: labels},
		Spec:     fields{"folder": folder, "instanceSelector": fields{"matchLabels": grafanas}, "json": string(content)},
	})
}
