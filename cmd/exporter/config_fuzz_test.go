package main

import (
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"
)

// FuzzConfig checks that any configuration is loaded, or refused with an error that names the file and the line.
func FuzzConfig(f *testing.F) {
	example, err := os.ReadFile("../../docs/exporter.example.yml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(string(example))
	f.Add("targets:\n  - url: http://e:8000\n    http_config: {basic_auth: {username: u, password: s3cret}}\n")
	f.Add("targets: [{url: 'http://u:s3cret@e'}]")
	f.Add("objectives: [{name: x, signal: ttft, threshold: -1s}]")
	f.Add("a: &a [*a]")
	f.Add("targets:\n- url: http://e:8000\n  http_config: {http_headers: {X-Tenant: {values: [a]}}}\n")
	f.Add("probes:\n- engines: true\n  http_config: {http_headers: {X-Tenant: {values: [a]}}, proxy_url: 'http://u:s3cret@h:p'}\n")
	f.Fuzz(func(t *testing.T, text string) {
		file := filepath.Join(t.TempDir(), "exporter.yml")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := loadConfig(configOptions{role: roleNode, file: file}, probeOptions{interval: time.Minute}, seen{},
			slog.New(slog.DiscardHandler))
		if err != nil && !regexp.MustCompile(regexp.QuoteMeta(file)+`:\d+: `).MatchString(err.Error()) {
			t.Errorf("%v", err)
		}
	})
}
