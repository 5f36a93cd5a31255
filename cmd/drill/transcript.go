package main

import (
	"bytes"
	"context"
	"os"
	"path/filepath"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/transcript"
)

// writeTranscripts writes a file for the named incident, or for each incident that has a lever.
func writeTranscripts(ctx context.Context, dir, name string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	incidents := incident.Incidents()
	if name != "" {
		in, err := incident.Find(incidents, name)
		if err != nil {
			return err
		}
		incidents = []incident.Incident{in}
	}
	for _, in := range incidents {
		if name == "" && in.Lever.Do == nil {
			continue
		}
		var text bytes.Buffer
		if err := transcript.Write(ctx, &text, in, 1); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, in.Name+".md"), text.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}
