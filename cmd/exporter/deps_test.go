package main

import (
	"os/exec"
	"strings"
	"testing"
)

// TestDependencies keeps out of the node process what has no business there.
func TestDependencies(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := map[string]bool{}
	for _, pkg := range strings.Fields(string(out)) {
		linked[pkg] = true
	}
	const prometheus, own = "github.com/prometheus/prometheus/", "github.com/llm-node-exporter/llm-node-exporter/"
	if !linked[prometheus+"model/textparse"] || !linked[own+"collectors/engine"] {
		t.Fatal("the list of dependencies is not what this test expects")
	}
	for pkg, why := range map[string]string{
		prometheus + "tsdb":           "the node process stores nothing: a verdict keeps two readings in memory while it is made",
		prometheus + "scrape":         "the node process links no Prometheus server",
		prometheus + "rules":          "rules reach Prometheus as generated files",
		prometheus + "discovery":      "the node process links no Prometheus server",
		own + "dashboards":            "generated files reach the node, generator code does not",
		own + "drill":                 "the simulator is not part of the product",
		"k8s.io/client-go/kubernetes": "discovery talks to the API server without the whole client",
		"google.golang.org/grpc":      "the kubelet's one call goes through net/http: the usual client takes 4 MiB of memory",
		"testing":                     "test code is not part of the product",
	} {
		if linked[pkg] {
			t.Errorf("%s is linked: %s", pkg, why)
		}
	}
}
