package transcript_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/transcript"
)

// What docs/plays keeps of an incident is what is played today, and each incident that has a lever is kept.
func TestTranscripts(t *testing.T) {
	const played = "thermal-throttle"
	for _, in := range incident.Incidents() {
		path := filepath.Join("..", "..", "docs", "plays", in.Name+".md")
		kept, err := os.ReadFile(path)
		if (err == nil) != (in.Lever.Do != nil) {
			t.Errorf("%s: has a lever: %t, and reading %s says: %v; run make drill-plays", in.Name, in.Lever.Do != nil, path, err)
		}
		if in.Name != played {
			continue
		}
		var now bytes.Buffer
		if err := transcript.Write(&now, in, 1); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(now.Bytes(), kept) {
			t.Errorf("%s shows another play: run make drill-plays", path)
		}
	}
}
