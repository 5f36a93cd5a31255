package configfile

import (
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"
)

type sample struct {
	Name  string            `yaml:"name"`
	Count int               `yaml:"count"`
	Ratio float64           `yaml:"ratio"`
	On    *bool             `yaml:"on"`
	List  []sample          `yaml:"list"`
	Map   map[string]string `yaml:"map"`
	Any   any               `yaml:"any"`
	Plain `yaml:",inline"`
	Wait  time.Time        `yaml:"-"`
	Rest  map[string][]int `yaml:",inline"`
}

// Plain has fields that are inlined beside its owner's.
type Plain struct {
	Unit string
}

// strict has no field that takes other names.
type strict struct {
	Name  string            `yaml:"name"`
	Ratio float64           `yaml:"ratio"`
	Count int               `yaml:"count"`
	On    *bool             `yaml:"on"`
	List  []strict          `yaml:"list"`
	Map   map[string]string `yaml:"map"`
	Any   any               `yaml:"any"`
}

// TestDecodesAsYAMLDoes compares with the library for every correct file.
func TestDecodesAsYAMLDoes(t *testing.T) {
	for _, text := range []string{
		"", "---\n", "name: a\ncount: 3\nratio: 1e-3\non: true\n", "name: 12\nmap: {a: 1, b: 2026-10-01T00:00:00Z}\nunit: s\n",
		"list:\n- &a {name: a, count: 1}\n- <<: *a\n  name: b\n- {<<: [*a, {unit: m}]}\n", "any: {a: [1, 2.5, null, {b: true}]}\n",
		"x: [1, 2]\ny: []\n", "name:\ncount: null\nlist: ~\n",
	} {
		var got, want sample
		f, err := Parse("f", []byte(text))
		if err == nil {
			err = f.Decode(&got)
		}
		if err != nil || yaml.Unmarshal([]byte(text), &want) != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %+v, %v, want %+v", text, got, err, want)
		}
	}
}

func TestMistakesHaveALineAndNoValue(t *testing.T) {
	bomb := "any: &x0 [s3cret, s3cret, s3cret, s3cret, s3cret, s3cret, s3cret, s3cret, s3cret, s3cret]\n"
	for i := range 8 {
		bomb += fmt.Sprintf("x%d: &x%d [%s*x%d]\n", i+1, i+1, strings.Repeat(fmt.Sprintf("*x%d, ", i), 9), i)
	}
	for text, want := range map[string]string{
		"name: a\nlist: [":                       "f:2: not YAML",
		"name: a\nnam: s3cret\n":                 `f:2: nam: unknown field "nam"`,
		"name: a\nlist:\n- count: s3cret\n":      "f:3: list[0].count: must be a whole number",
		"list:\n- ratio: [s3cret]\n":             "f:2: list[0].ratio: must be a number",
		"on: s3cret\n":                           "f:1: on: must be true or false",
		"name: {a: s3cret}\n":                    "f:1: name: must be text",
		"name: a\nmap: s3cret\n":                 "f:2: map: must be fields",
		"list: s3cret\n":                         "f:1: list: must be a list",
		"name: a\nname: s3cret\n":                "name: is given twice",
		"name: a\nany: &a [s3cret, *a]\n":        "f:2: any[1]: *a contains itself",
		"name: a\nany: &a {<<: *a}\n":            "f:2: any.<<: *a contains itself",
		"map:\n  <<: s3cret\n":                   "f:1: map.<<: must name fields",
		"any:\n  ? [s3cret]\n  : a\n":            "the name of a field must be text",
		"[s3cret]":                               "f:1: must be fields",
		"any: " + strings.Repeat("[", 1_000_000): "f:1: not YAML: exceeded max depth",
		bomb:                                     "aliases make the file too large",
	} {
		var into strict
		f, err := Parse("f", []byte(text))
		if err == nil {
			err = f.Decode(&into)
		}
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "f:") ||
			strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%.60q: %.200v, want %s", text, err, want)
		}
	}
	huge := filepath.Join(t.TempDir(), "huge")
	if err := os.WriteFile(huge, make([]byte, MaxBytes+1), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Read(huge); err == nil || !strings.Contains(err.Error(), "is it the right file?") {
		t.Errorf("%v", err)
	}
}
