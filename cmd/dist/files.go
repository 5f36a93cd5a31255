package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// sums is the file that lists all other files with their checksums, for sha256sum -c.
const sums = "SHA256SUMS"

// composed returns the replacer that turns the repository's compose.yaml into the release's compose.yaml. In a release,
// this file is in the folder of the dashboards.
func (r *release) composed() *strings.Replacer {
	return strings.NewReplacer("ghcr.io/llm-node-exporter/llm-node-exporter-try:0.1.0", r.registry+"/"+tryPath+":"+r.version,
		"../../helm/llm-node-exporter/files/dashboards", ".")
}

// writeFiles writes the rules and Alertmanager's files unchanged, the dashboards in the form for grafana.com, and
// compose.yaml.
func (r *release) writeFiles() error {
	rules, err := filepath.Glob(filepath.Join(r.root, "examples/prometheus/*"))
	if err != nil {
		return err
	}
	for _, f := range rules {
		content, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if err := r.write(filepath.Base(f), content); err != nil {
			return err
		}
	}
	compose, err := os.ReadFile(filepath.Join(r.root, "examples/try/compose.yaml"))
	if err != nil {
		return err
	}
	if err := r.write("compose.yaml", []byte(r.composed().Replace(string(compose)))); err != nil {
		return err
	}
	boards, err := filepath.Glob(filepath.Join(r.root, "helm", product, "files/dashboards/*.json"))
	if err != nil {
		return err
	}
	if len(rules) == 0 || len(boards) == 0 {
		return fmt.Errorf("%s has no rules or no dashboards", r.root)
	}
	for _, f := range boards {
		content, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if content, err = shared(content); err != nil {
			return fmt.Errorf("%s: %w", f, err)
		}
		if err := r.write(filepath.Base(f), content); err != nil {
			return err
		}
	}
	return nil
}

// shared adds to a dashboard the fields that Grafana's export for sharing has: the required versions of Grafana, panels
// and data source. The data source is a variable of the dashboard, so an import asks for no input.
func shared(board []byte) ([]byte, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(board, &fields); err != nil {
		return nil, err
	}
	type panel struct {
		Type   string
		Panels []struct{ Type string }
	}
	var panels []panel
	if err := json.Unmarshal(fields["panels"], &panels); err != nil {
		return nil, err
	}
	var kinds []string
	for _, p := range panels {
		kinds = append(kinds, p.Type)
		for _, below := range p.Panels {
			kinds = append(kinds, below.Type)
		}
	}
	slices.Sort(kinds)
	type requirement struct {
		Type    string `json:"type"`
		ID      string `json:"id"`
		Name    string `json:"name"`
		Version string `json:"version"`
	}
	requires := []requirement{{"grafana", "grafana", "Grafana", "10.0.0"}, {"datasource", "prometheus", "Prometheus", "1.0.0"}}
	for _, kind := range slices.Compact(kinds) {
		if kind != "row" {
			requires = append(requires, requirement{"panel", kind, kind, ""})
		}
	}
	added, err := json.Marshal(struct {
		Inputs   []struct{}     `json:"__inputs"`
		Elements map[string]any `json:"__elements"`
		Requires []requirement  `json:"__requires"`
	}{[]struct{}{}, map[string]any{}, requires})
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	joined := append(bytes.TrimSuffix(added, []byte("}")), ',')
	err = json.Indent(&out, append(joined, bytes.TrimPrefix(bytes.TrimSpace(board), []byte("{"))...), "", "  ")
	out.WriteByte('\n')
	return out.Bytes(), err
}

// digests returns the SHA-256 of each file of the release, in the order of their names. Layouts are left out, because
// files in a layout are named after their digests.
func (r *release) digests() (names []string, digests map[string]string, err error) {
	entries, err := os.ReadDir(r.out)
	if err != nil {
		return nil, nil, err
	}
	digests = map[string]string{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		content, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return nil, nil, err
		}
		digest := sha256.Sum256(content)
		names, digests[e.Name()] = append(names, e.Name()), hex.EncodeToString(digest[:])
	}
	return names, digests, nil
}

// writeSums writes the checksums of all files. It comes last: a folder without checksums is not a complete release.
func (r *release) writeSums() error {
	names, digests, err := r.digests()
	if err != nil {
		return err
	}
	var b bytes.Buffer
	for _, n := range names {
		fmt.Fprintf(&b, "%s  %s\n", digests[n], n)
	}
	return r.write(sums, b.Bytes())
}
