package main

import (
	"bytes"
	"encoding/json"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/triage"
)

const schemaFile = "../../docs/verdict.schema.json"

// apiSchema is the schema of GET /verdict in docs/api.md.
type apiSchema struct {
	*jsonschema.Schema
	text map[string]any
}

func verdictSchema(t *testing.T) apiSchema {
	t.Helper()
	body, err := os.ReadFile(schemaFile)
	if err != nil {
		t.Fatal(err)
	}
	s := apiSchema{}
	if err := json.Unmarshal(body, &s.text); err != nil {
		t.Fatal(err)
	}
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if err := c.AddResource(schemaFile, doc); err != nil {
		t.Fatal(err)
	}
	if s.Schema, err = c.Compile(schemaFile); err != nil {
		t.Fatal(err)
	}
	return s
}

// check fails unless the schema describes an answer.
func (s apiSchema) check(t *testing.T, answer string) {
	t.Helper()
	doc, err := jsonschema.UnmarshalJSON(strings.NewReader(answer))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Validate(doc); err != nil {
		t.Errorf("%v\n%s", err, answer)
	}
}

// TestVerdictSchema checks that answers about healthy, dead and missing engines match the schema.
func TestVerdictSchema(t *testing.T) {
	t.Parallel()
	s := verdictSchema(t)
	page, url := serving(t)
	page.Store(busy("m", 1, 0, 0.1, 100, 0))
	for name, flags := range map[string][]string{
		"well": {"--engine.target=" + url}, "dead": {"--engine.target=http://" + e2e.Address(t)}, "none": {"--discovery=none"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := start(t, flags...)
			e.get(t, "/metrics")
			s.check(t, e.get(t, "/verdict"))
			response, err := http.Post(e.url+"/verdict", "text/plain", nil)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != http.StatusMethodNotAllowed {
				t.Errorf("POST: status %d", response.StatusCode)
			}
		})
	}
}

// TestVerdictSchemaIsWhole checks that the schema describes all fields of an answer and no other, and requires the
// fields that are always present.
func TestVerdictSchemaIsWhole(t *testing.T) {
	s := verdictSchema(t)
	for name, of := range map[string]any{
		"verdict": triage.Verdict{}, "suspect": triage.Suspect{}, "evidence": triage.Evidence{}, "branch": triage.RuledOut{},
		"record": triage.Record{},
	} {
		def := s.text["$defs"].(map[string]any)[name].(map[string]any)
		properties, required := def["properties"].(map[string]any), map[string]bool{}
		for _, r := range def["required"].([]any) {
			required[r.(string)] = true
		}
		for field := range reflect.TypeOf(of).Fields() {
			tag := field.Tag.Get("json")
			if tag == "" {
				continue
			}
			field, optional := strings.CutSuffix(tag, ",omitempty")
			if properties[field] == nil || required[field] == optional {
				t.Errorf("%s: field %s is not in the schema, or is required there and may be absent, or the other way round", name, field)
			}
			delete(properties, field)
		}
		for field := range properties {
			t.Errorf("%s: no answer has the field %s", name, field)
		}
	}
}

// TestVerdictSchemaRefuses checks that an answer without a promised field, or with an unknown health, is refused.
func TestVerdictSchemaRefuses(t *testing.T) {
	s := verdictSchema(t)
	for _, answer := range []string{
		`{"health": "healthy"}`, `{"health": "fine", "verdicts": []}`,
		`{"health": "healthy", "verdicts": [{"model": "m"}]}`,
	} {
		doc, err := jsonschema.UnmarshalJSON(strings.NewReader(answer))
		if err != nil {
			t.Fatal(err)
		}
		if s.Validate(doc) == nil {
			t.Errorf("%s is accepted", answer)
		}
	}
}
