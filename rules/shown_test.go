package rules_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// For each alert, the index of alerts names a test case in which it fires.
func TestEveryAlertIsShown(t *testing.T) {
	for _, name := range alertNames() {
		var file promtoolFile
		content, err := os.ReadFile(filepath.Join(alertTests, name+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(content, &file); err != nil {
			t.Fatal(err)
		}
		fires := false
		for _, test := range file.Tests {
			for _, c := range test.Checks {
				fires = fires || test.Name == rules.Shown(name) && c.Alert == name && len(c.Expect) > 0
			}
		}
		if !fires {
			t.Errorf("%s fires in no case %q: name one in rules/shown.go", name, rules.Shown(name))
		}
	}
}
