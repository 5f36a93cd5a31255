package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestMigrateCommand(t *testing.T) {
	write := func(name, text string) string {
		file := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	board := write("board.json",
		`{"title": "b", "panels": [{"title": "p", "targets": [{"expr": "DCGM_FI_DEV_GPU_TEMP{service=\"a\"}"}, {"expr": "vllm:current_qps"}]}]}`)
	whole := write("rules.yaml", "groups:\n- name: a\n  rules:\n  - alert: Hot\n    expr: DCGM_FI_DEV_GPU_TEMP{rack=\"1\"} > 85\n")
	for name, c := range map[string]struct {
		args         []string
		status       int
		out, err, on string
	}{
		"part": {
			[]string{board},
			migratedPart, `"expr": "llm_gpu_temperature_celsius{sensor=\"gpu\"}"`, "",
			"stays: panel p: vllm:current_qps",
		},
		"left out": {[]string{board}, migratedPart, "", "", `service="a" describes the old scrape`},
		"whole": {
			[]string{whole, "--label=rack=rack"},
			migrated, `llm_gpu_temperature_celsius{rack="1",sensor="gpu"} > 85`, "",
			"1 rewritten, 0 unchanged",
		},
		"dropped":   {[]string{whole, "--label=rack="}, migrated, `llm_gpu_temperature_celsius{sensor="gpu"} > 85`, "", ""},
		"no label":  {[]string{whole}, migratedPart, "DCGM_FI_DEV_GPU_TEMP", "", "--label=rack=NAME"},
		"bad label": {[]string{whole, "--label=rack"}, cannot, "", "write LABEL=NAME", ""},
		"no file":   {[]string{"/nowhere"}, cannot, "", "/nowhere", ""},
		"no rules":  {[]string{write("a.yaml", "a: 1\n")}, cannot, "", "no rule has an expression", ""},
	} {
		t.Run(name, func(t *testing.T) {
			var out, progress bytes.Buffer
			status, err := migrateCommand(t.Context(), c.args, &out, &progress)
			if status != c.status || !strings.Contains(out.String(), c.out) || !strings.Contains(progress.String(), c.on) {
				t.Errorf("status %d, %v\n%s\n%s", status, err, out.String(), progress.String())
			}
			if (c.err == "") != (err == nil) || err != nil && !strings.Contains(err.Error(), c.err) {
				t.Errorf("%v, want an error with %q", err, c.err)
			}
		})
	}
}
