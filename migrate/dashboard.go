package migrate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// A Finding describes what became of the expression at one place in a file.
type Finding struct {
	// Place names the panel, the variable or the rule.
	Place string
	// From is the old expression, and To is the new one. They are equal if the expression was left unchanged.
	From, To string
	// Left explains why the expression was left unchanged. Left is empty if the expression was rewritten, or if it is
	// about other software.
	Left string
	// Notes name the values whose meaning has changed.
	Notes []string
}

// A File is a rewritten file.
type File struct {
	Text     []byte
	Findings []Finding
}

// node is a value of a JSON document, and its place in the text.
type node struct {
	start, end int64
	text       string // of a string
	isText     bool
	keys       []*node
	values     []*node // elements of an object, by key, or of an array
	object     bool
}

func (n *node) get(key string) *node {
	if n == nil {
		return nil
	}
	for i, k := range n.keys {
		if k.text == key {
			return n.values[i]
		}
	}
	return nil
}

func (n *node) string(key string) string {
	if v := n.get(key); v != nil {
		return v.text
	}
	return ""
}

// parseJSON reads a document with the places of its strings.
func parseJSON(body []byte) (*node, error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	n, err := parseValue(d, body)
	if err != nil {
		return nil, err
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("more data follows the end of the document")
	}
	return n, nil
}

func parseValue(d *json.Decoder, body []byte) (*node, error) {
	n := &node{start: d.InputOffset()}
	for n.start < int64(len(body)) && strings.IndexByte(" \t\r\n:,", body[n.start]) >= 0 {
		n.start++
	}
	token, err := d.Token()
	if err != nil {
		return nil, err
	}
	switch token := token.(type) {
	case string:
		n.text, n.isText = token, true
	case json.Delim:
		n.object = token == '{'
		for d.More() {
			if n.object {
				key, err := parseValue(d, body)
				if err != nil {
					return nil, err
				}
				n.keys = append(n.keys, key)
			}
			value, err := parseValue(d, body)
			if err != nil {
				return nil, err
			}
			n.values = append(n.values, value)
		}
		if _, err := d.Token(); err != nil {
			return nil, err
		}
	}
	n.end = d.InputOffset()
	return n, nil
}

// dashboard rewrites one dashboard.
type dashboard struct {
	Options
	body     []byte
	edits    []edit
	findings []Finding
}

type edit struct {
	at   *node
	text string
}

// Dashboard rewrites a Grafana dashboard of any schema whose queries are objects with an expr. All other content stays
// identical, byte for byte.
func Dashboard(body []byte, o Options) (File, error) {
	root, err := parseJSON(body)
	if err != nil {
		return File{}, fmt.Errorf("not JSON: %w", err)
	}
	o.Window = cmp.Or(o.Window, rateInterval)
	d := dashboard{Options: o, body: body}
	d.walk(root, nil, "")
	if len(d.findings) == 0 {
		return File{}, errors.New("no panel has a PromQL expression (expr)")
	}
	slices.SortStableFunc(d.edits, func(a, b edit) int { return cmp.Compare(a.at.start, b.at.start) })
	var out bytes.Buffer
	last := int64(0)
	for _, e := range d.edits {
		if e.at.start < last {
			continue
		}
		out.Write(body[last:e.at.start])
		var quoted bytes.Buffer
		encoder := json.NewEncoder(&quoted)
		encoder.SetEscapeHTML(false)
		_ = encoder.Encode(e.text) // a string
		out.Write(bytes.TrimSpace(quoted.Bytes()))
		last = e.at.end
	}
	out.Write(body[last:])
	return File{Text: out.Bytes(), Findings: d.findings}, nil
}

// walk looks for panels and variables in a node. panel is the nearest object around the node that has a title.
func (d *dashboard) walk(n, panel *node, key string) {
	if n.object {
		if n.get("title") != nil && n.get("title").isText {
			panel = n
		}
		if n.get("expr") != nil && n.get("expr").isText {
			return // the panel rewrites this object
		}
		if name := n.get("name"); name != nil && (key == "list" || n.string("kind") == "QueryVariable" || n.get("definition") != nil) {
			d.variable(n)
		}
		if panel == n {
			d.panel(n)
		}
	}
	for i, v := range n.values {
		of := key
		if n.object {
			of = n.keys[i].text
		}
		d.walk(v, panel, of)
	}
}

// panel rewrites the queries of a panel. In the rest of the panel, it renames the labels of these queries.
func (d *dashboard) panel(p *node) {
	var queries []*node
	var collect func(n *node)
	collect = func(n *node) {
		for _, v := range n.values {
			if v.object && v.get("title") != nil && v.get("title").isText {
				continue // a nested panel
			}
			if e := v.get("expr"); e != nil && e.isText && v.get("datasource").string("type") != "loki" {
				queries = append(queries, v)
				continue
			}
			collect(v)
		}
	}
	collect(p)
	place := "panel " + strings.TrimSpace(p.string("title"))
	var shapes shape
	whole := len(queries) > 0
	for _, q := range queries {
		text, legend := q.string("expr"), q.string("legendFormat")
		if strings.TrimSpace(text) == "" {
			continue
		}
		f := Finding{Place: place, From: text, To: text}
		e, err := d.rewrite(text, labelsOf(legend))
		switch {
		case err != nil:
			f.Left, whole = err.Error(), false
		case e.Changed:
			f.To, f.Notes = e.Text, e.Notes
			d.edits = append(d.edits, edit{q.get("expr"), e.Text})
			if to := e.legend(legend, d.Options); to != legend {
				d.edits = append(d.edits, edit{q.get("legendFormat"), to})
			}
			shapes = shapes.with(e.shape)
		}
		d.findings = append(d.findings, f)
	}
	if whole && len(shapes.of) > 0 {
		for _, key := range []string{"transformations", "fieldConfig"} {
			if t := p.get(key); t != nil {
				d.names(t, shapes)
			}
		}
	}
}

// field matches the name of a table column that shows a label. If Grafana joins tables, it may add a number to the
// name, as in "pod 1".
var field = regexp.MustCompile(`^(\w+)( \d+)?$`)

// names renames the table columns that show labels.
func (d *dashboard) names(n *node, s shape) {
	rename := func(n *node) {
		m := field.FindStringSubmatch(n.text)
		if m == nil || s.defined[m[1]] {
			return
		}
		for _, e := range s.of {
			if to, ok := e.label(m[1]); ok && to.name != "" && to.name != m[1] {
				d.edits = append(d.edits, edit{n, to.name + m[2]})
				return
			}
		}
	}
	for i, v := range n.values {
		if n.object && slices.Contains([]string{"excludeByName", "renameByName", "indexByName", "includeByName", "fields"}, n.keys[i].text) {
			for _, k := range v.keys {
				rename(k)
			}
		}
		if n.object && v.isText && (n.keys[i].text == "byField" || n.keys[i].text == "options" && n.string("id") == "byName" ||
			n.keys[i].text == "field") {
			rename(v)
			continue
		}
		d.names(v, s)
	}
}

var (
	labelValues = regexp.MustCompile(`(?s)^\s*label_values\(\s*(?:(.+?)\s*,)?\s*([A-Za-z_]\w*)\s*\)\s*$`)
	queryResult = regexp.MustCompile(`(?s)^\s*query_result\((.*)\)\s*$`)
)

// variable rewrites a template variable.
func (d *dashboard) variable(n *node) {
	place := "variable " + n.string("name")
	said := false
	var result shape
	try := func(at *node) {
		if at == nil || !at.isText || at.text == "" {
			return
		}
		f := Finding{Place: place, From: at.text, To: at.text}
		text, notes, err := d.values(at.text, &result)
		if err != nil {
			f.Left = err.Error()
		} else if text != at.text {
			f.To, f.Notes = text, notes
			d.edits = append(d.edits, edit{at, text})
		}
		if (err != nil || f.To != f.From) && !said {
			said = true
			d.findings = append(d.findings, f)
		}
	}
	if t := n.string("type"); t != "" && t != "query" {
		return
	}
	query := n.get("query")
	try(query)
	if query != nil && query.object {
		try(query.get("query"))
	}
	try(n.get("definition"))
	if at := n.get("regex"); at != nil && len(result.of) > 0 {
		text := inText.ReplaceAllStringFunc(at.text, func(was string) string {
			name := inText.FindStringSubmatch(was)[1]
			if to, err := result.label(name, d.Options); err == nil && to != "" {
				return to + "="
			}
			return was
		})
		if text != at.text {
			d.edits = append(d.edits, edit{at, text})
		}
	}
}

// inText matches a label in the text of a series. The regular expression of a variable reads this text.
var inText = regexp.MustCompile(`\b(\w+)=`)

// values rewrites the query of a variable.
func (d *dashboard) values(text string, result *shape) (string, []string, error) {
	if m := queryResult.FindStringSubmatch(text); m != nil {
		e, err := d.rewrite(m[1], nil)
		if err != nil || !e.Changed {
			return text, nil, err
		}
		*result = e.shape
		return "query_result(" + e.Text + ")", e.Notes, nil
	}
	m := labelValues.FindStringSubmatch(text)
	if m == nil || m[1] == "" {
		return text, nil, nil
	}
	selector, notes, label, err := d.labelValues(m[1], m[2])
	if err != nil || selector == "" {
		return text, nil, err
	}
	return "label_values(" + selector + ", " + label + ")", notes, nil
}

// labelValues rewrites the selector of a label_values query. It also returns the new name of the label. The selector is
// empty if the old selector is about other software.
func (o Options) labelValues(text, label string) (selector string, notes []string, to string, err error) {
	plain, restore := withoutVariables(text)
	parsed, err := promql.Parser.ParseExpr(plain)
	if err != nil {
		return "", nil, "", fmt.Errorf("not valid PromQL: %w", err)
	}
	v, ok := parsed.(*parser.VectorSelector)
	if !ok {
		e, err := o.rewrite(text, []string{label})
		if err != nil || !e.Changed {
			return "", nil, "", err
		}
		to, err = e.shape.label(label, o)
		return e.Text, e.Notes, to, err
	}
	e, ok := witness(v.Name)
	if !ok {
		return "", nil, "", nil
	}
	to, err = shape{of: []*equal{&e}}.label(label, o)
	if err == nil && to == "" {
		err = fmt.Errorf("label %s has no equivalent", label)
	}
	if err != nil {
		return "", nil, "", err
	}
	r := rewriter{Options: o, wanted: map[string]bool{}}
	out := &selected{VectorSelector: &parser.VectorSelector{Name: e.to.Name + e.part}, of: &e, infos: map[*metrics.Family]*joined{}}
	for _, m := range v.LabelMatchers {
		if m.Name == model.MetricNameLabel || slices.ContainsFunc(e.where, func(w *labels.Matcher) bool { return w.Name == m.Name }) {
			continue
		}
		if err := r.condition(out, m, map[string]bool{}); err != nil {
			return "", nil, "", err
		}
	}
	if len(out.infos) > 0 {
		return "", nil, "", errors.New("the conditions use labels of several metrics")
	}
	for _, m := range e.only {
		if m.Name == metrics.LabelRuntime {
			out.LabelMatchers = append(out.LabelMatchers, m)
		}
	}
	return restore(out.String()), r.notes, to, nil
}

// witness returns an equal whose family has a series whenever the old name had one. The two values may differ.
func witness(name string) (equal, bool) {
	all := table()[name]
	if len(all) == 0 {
		if !migratable(name) {
			return equal{}, false
		}
		for _, prefix := range prefixes() {
			if !strings.HasPrefix(name, prefix) {
				continue
			}
			for other, equals := range table() {
				if strings.HasPrefix(other, prefix) && (len(all) == 0 || equals[0].to.Name < all[0].to.Name) {
					all = equals
				}
			}
		}
	}
	if len(all) == 0 {
		return equal{}, false
	}
	e := all[0]
	e.unit, e.part = metrics.Scale{}, ""
	if e.to.Owner == metrics.GPU {
		e.to = metrics.GPUInfo
		return e, true
	}
	e.to = metrics.EngineInfo
	if e.labels[metrics.LabelModel].name == "" {
		e.labels = cloneWith(e.labels, metrics.LabelModel)
	}
	return e, true
}

func cloneWith(of map[string]mapped, same string) map[string]mapped {
	out := map[string]mapped{same: {name: same}}
	maps.Copy(out, of)
	return out
}
