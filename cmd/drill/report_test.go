package main

import (
	"io"
	"os"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
)

// TestReportIsFresh plays one incident again and compares its section of the kept report: a report that
// was not written again after a change of the model, the rules or the exporter is noticed.
func TestReportIsFresh(t *testing.T) {
	t.Parallel()
	kept, err := os.ReadFile("../../docs/drill.html")
	if err != nil {
		t.Fatalf("%v: run make drill-report", err)
	}
	const name = "row-remap-failure"
	in, err := incident.Find(incident.Incidents(), name)
	if err != nil {
		t.Fatal(err)
	}
	traces, err := record([]incident.Incident{in}, 1, 1, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	var fresh strings.Builder
	if err := incident.WriteHTML(&fresh, traces); err != nil {
		t.Fatal(err)
	}
	section := func(report string) string {
		_, after, _ := strings.Cut(report, `<section id="`+name+`">`)
		text, _, whole := strings.Cut(after, "</section>")
		if !whole {
			t.Fatalf("a report without %s", name)
		}
		return text
	}
	if section(string(kept)) != section(fresh.String()) {
		t.Errorf("docs/drill.html is not what the drill gives for %s: run make drill-report", name)
	}
	for _, in := range incident.Incidents() {
		if !strings.Contains(string(kept), `<section id="`+in.Name+`">`) {
			t.Errorf("docs/drill.html lacks %s: run make drill-report", in.Name)
		}
	}
}
