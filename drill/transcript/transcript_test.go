package transcript_test

import (
	"bytes"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/transcript"
)

// The stored transcript equals today's play.
func TestTranscript(t *testing.T) {
	const path = "testdata/thermal-throttle.md"
	kept, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	incidents := incident.Incidents()
	i := slices.IndexFunc(incidents, func(in incident.Incident) bool { return in.Name == "thermal-throttle" })
	var now bytes.Buffer
	if err := transcript.Write(t.Context(), &now, incidents[i], 1); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(now.Bytes(), kept) {
		t.Errorf("%s shows another play: run make drill-plays", path)
	}
}

// docs/drill.md names all incidents with a lever, and no others.
func TestLevers(t *testing.T) {
	page, err := os.ReadFile("../../docs/drill.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "## From the page to the end")
	section, _, _ = strings.Cut(section, "\n## ")
	for _, in := range incident.Incidents() {
		if listed := strings.Contains(section, "`"+in.Name+"`"); listed != (in.Lever.Do != nil) {
			t.Errorf("%s: has a lever: %t, docs/drill.md names it among those that have one: %t", in.Name, in.Lever.Do != nil, listed)
		}
	}
}
