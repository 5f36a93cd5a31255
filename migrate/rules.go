package migrate

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"

	"go.yaml.in/yaml/v3"
)

// Rules rewrites a rule file of Prometheus, or a PrometheusRule of the Prometheus operator. It keeps comments and the
// order of the rules.
func Rules(body []byte, o Options) (File, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(body))
	var out bytes.Buffer
	encoder := yaml.NewEncoder(&out)
	encoder.SetIndent(2)
	r := ruleFile{Options: o}
	r.recorded = map[string]shape{}
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return File{}, fmt.Errorf("not YAML: %w", err)
		}
		r.walk(&doc)
		if err := encoder.Encode(&doc); err != nil {
			return File{}, err
		}
	}
	if len(r.findings) == 0 {
		return File{}, errors.New("no rule has an expression (expr)")
	}
	return File{Text: out.Bytes(), Findings: r.findings}, encoder.Close()
}

type ruleFile struct {
	Options
	findings []Finding
}

func (r *ruleFile) walk(n *yaml.Node) {
	if n.Kind == yaml.MappingNode {
		fields := map[string]*yaml.Node{}
		for i := 0; i+1 < len(n.Content); i += 2 {
			fields[n.Content[i].Value] = n.Content[i+1]
		}
		if expr := fields["expr"]; expr != nil && (fields["alert"] != nil || fields["record"] != nil) {
			r.rule(expr, fields)
			return
		}
	}
	for _, c := range n.Content {
		r.walk(c)
	}
}

// templated matches a label in a template of an annotation.
var templated = regexp.MustCompile(`(\$labels|\.Labels)\.(\w+)`)

func (r *ruleFile) rule(expr *yaml.Node, fields map[string]*yaml.Node) {
	f := Finding{From: expr.Value, To: expr.Value}
	name := fields["record"]
	if f.Place = "record"; name == nil {
		name, f.Place = fields["alert"], "alert"
	}
	f.Place += " " + name.Value
	var shown []string
	texts := []*yaml.Node{fields["annotations"], fields["labels"]}
	for _, t := range texts {
		if t == nil {
			continue
		}
		for _, v := range t.Content {
			for _, m := range templated.FindAllStringSubmatch(v.Value, -1) {
				shown = append(shown, m[2])
			}
		}
	}
	e, err := r.rewrite(expr.Value, shown)
	switch {
	case err != nil:
		f.Left = err.Error()
	case e.Changed:
		f.To, f.Notes = e.Text, e.Notes
		expr.Value = e.Text
		for _, t := range texts {
			if t == nil {
				continue
			}
			for _, v := range t.Content {
				v.Value = templated.ReplaceAllStringFunc(v.Value, func(was string) string {
					m := templated.FindStringSubmatch(was)
					to, err := e.shape.label(m[2], r.Options)
					if err != nil || to == "" {
						return was
					}
					return m[1] + "." + to
				})
			}
		}
		if fields["record"] != nil {
			r.recorded[name.Value] = e.shape
		}
	}
	r.findings = append(r.findings, f)
}
