package main

import (
	"github.com/prometheus/alertmanager/pkg/labels"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// alertmanagerConfig is the AlertmanagerConfig resource of the Prometheus operator.
type alertmanagerConfig struct {
	APIVersion string                 `yaml:"apiVersion"`
	Kind       string                 `yaml:"kind"`
	Metadata   metadata               `yaml:"metadata"`
	Spec       alertmanagerConfigSpec `yaml:"spec"`
}

type alertmanagerConfigSpec struct {
	Route        configRoute      `yaml:"route"`
	InhibitRules []configInhibit  `yaml:"inhibitRules"`
	Receivers    []rules.Receiver `yaml:"receivers"`
}

type configRoute struct {
	Receiver       string          `yaml:"receiver,omitempty"`
	Matchers       []configMatcher `yaml:"matchers,omitempty"`
	GroupBy        []string        `yaml:"groupBy,omitempty"`
	GroupWait      string          `yaml:"groupWait,omitempty"`
	GroupInterval  string          `yaml:"groupInterval,omitempty"`
	RepeatInterval string          `yaml:"repeatInterval,omitempty"`
	Routes         []configRoute   `yaml:"routes,omitempty"`
}

type configInhibit struct {
	SourceMatch []configMatcher `yaml:"sourceMatch"`
	TargetMatch []configMatcher `yaml:"targetMatch"`
	Equal       []string        `yaml:"equal"`
}

type configMatcher struct {
	Name  string `yaml:"name"`
	Value string `yaml:"value"`
	Type  string `yaml:"matchType"`
}

// alertmanagerConfig returns the content of alertmanager-route.yaml as the operator's custom resource.
func (i installation) alertmanagerConfig() ([]byte, error) {
	part := rules.NewAlertmanagerPart(i.alerts(), i.style)
	object := alertmanagerConfig{
		APIVersion: "monitoring.coreos.com/v1alpha1", Kind: "AlertmanagerConfig",
		Metadata: metadata{Name: i.name, Labels: i.metaLabels},
		Spec:     alertmanagerConfigSpec{Receivers: part.Receivers},
	}
	routes, err := configRoutes(part.Routes)
	if err != nil {
		return nil, err
	}
	object.Spec.Route = routes[0]
	for _, r := range part.Inhibit {
		source, err := configMatchers(r.Source)
		if err != nil {
			return nil, err
		}
		target, err := configMatchers(r.Target)
		if err != nil {
			return nil, err
		}
		object.Spec.InhibitRules = append(object.Spec.InhibitRules, configInhibit{source, target, r.Equal})
	}
	content, err := rules.Encode(object)
	return append([]byte(generatedYAML+
		"# The receivers are only names: add a pager and a ticket queue, and leave llm-null empty. The operator adds a matcher on\n"+
		"# the namespace, which alerts about nodes lack: the Alertmanager needs another alertmanagerConfigMatcherStrategy "+
		"(docs/operations.md).\n"), content...), err
}

func configRoutes(routes []rules.Route) ([]configRoute, error) {
	var all []configRoute
	for _, r := range routes {
		matchers, err := configMatchers(r.Matchers)
		if err != nil {
			return nil, err
		}
		below, err := configRoutes(r.Routes)
		if err != nil {
			return nil, err
		}
		all = append(all, configRoute{r.Receiver, matchers, r.GroupBy, r.GroupWait, r.GroupInterval, r.RepeatInterval, below})
	}
	return all, nil
}

func configMatchers(texts []string) ([]configMatcher, error) {
	var all []configMatcher
	for _, text := range texts {
		m, err := labels.ParseMatcher(text)
		if err != nil {
			return nil, err
		}
		all = append(all, configMatcher{m.Name, m.Value, m.Type.String()})
	}
	return all, nil
}
