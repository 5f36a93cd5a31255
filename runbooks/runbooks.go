// Package runbooks has one runbook per alert, written for a person at three in the morning. Each runbook explains the
// alert, how to check whether it is real, where to look, what to do, and how to see whether this helped. Other runbooks
// cover branches of a diagnosis that have no alert, and procedures that many runbooks use. All runbooks are embedded,
// so the exporter that measured the problem can show them when nothing else answers.
package runbooks

import (
	"bytes"
	"cmp"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"html/template"
	"net"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/renderer"
	"github.com/yuin/goldmark/util"

	"github.com/llm-node-exporter/llm-node-exporter/internal/site"
)

//go:embed *.md
var pages embed.FS

// Names lists the runbooks, sorted. A runbook whose name begins with LLM belongs to the alert of that name. A
// runbook whose name begins with Branch belongs to a branch of a diagnosis that has no alert. The other runbooks
// are procedures.
func Names() []string {
	entries, err := pages.ReadDir(".")
	if err != nil {
		panic(err) // embedded at build time
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), ".md"))
	}
	slices.Sort(names)
	return names
}

// Page returns the Markdown of a runbook.
func Page(name string) ([]byte, error) {
	b, err := pages.ReadFile(name + ".md")
	if err != nil {
		return nil, fmt.Errorf("no runbook for %q; the index lists those that exist", name)
	}
	return b, nil
}

// Question returns the question that a runbook answers: its first bold line.
func Question(page []byte) string {
	for line := range strings.Lines(string(page)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "**") && strings.HasSuffix(line, "**") {
			return strings.Trim(line, "*")
		}
	}
	return ""
}

// LeversOf returns the section of a runbook about levers: the actions that help.
func LeversOf(page []byte) string {
	_, rest, _ := strings.Cut(string(page), "## Levers\n")
	text, _, _ := strings.Cut(rest, "\n## ")
	return strings.TrimSpace(text)
}

// Levers lists the levers of a runbook as plain text for a terminal. Commands are filled in with labels, and begin with
// "$ ".
func Levers(page []byte, labels map[string]string) []string {
	text := strings.ReplaceAll(LeversOf(Fill(page, harmlessLabels(query(labels)))), "**", "")
	text = namedLink.ReplaceAllStringFunc(text, func(link string) string {
		m := namedLink.FindStringSubmatch(link)
		if m[1] == m[2] {
			return m[1]
		}
		return m[1] + " (" + m[2] + ")"
	})
	text = commands.ReplaceAllStringFunc(text, func(block string) string {
		return strings.ReplaceAll("\n"+strings.TrimSpace(strings.Trim(strings.TrimPrefix(block, "```sh"), "`")), "\n", "\n\n$ ") + "\n\n"
	})
	var levers []string
	for _, one := range lever.Split("\n"+text, -1) {
		if one = strings.TrimSpace(one); one != "" {
			levers = append(levers, one)
		}
	}
	return levers
}

// soonest matches how soon the first lever of a runbook acts, and its first sentence.
var soonest = regexp.MustCompile(`(?m)^(?:\* )?\*\*([A-Z][^*]*)\*\*((?:[^.;\x60]|\.\S|\x60[^\x60]*\x60|\n)*)`)

// FirstLever returns the first lever of a runbook and how soon it acts, as one sentence: "at once: cap output
// tokens at the gateway".
func FirstLever(name string) string {
	page, err := Page(name)
	if err != nil {
		return ""
	}
	m := soonest.FindStringSubmatch(LeversOf(page))
	if m == nil {
		return ""
	}
	text := namedLink.ReplaceAllString(m[1]+m[2], "$1")
	text = strings.Join(strings.Fields(strings.NewReplacer("`", "", "\"", "").Replace(text)), " ")
	return strings.ToLower(text[:1]) + text[1:]
}

// Address returns the path of a runbook below the exporter's root, with labels for its commands as parameters.
func Address(name string, labels map[string]string) string {
	return strings.TrimSuffix("runbooks/"+name+"?"+harmlessLabels(query(labels)).Encode(), "?")
}

func query(labels map[string]string) url.Values {
	q := url.Values{}
	for name, value := range labels {
		q.Set(name, value)
	}
	return q
}

var (
	namedLink = regexp.MustCompile(`\[([^\]]+)\]\((\w+)\.md[^)]*\)`)
	commands  = regexp.MustCompile("(?s)```sh\n.*?```")
	lever     = regexp.MustCompile(`\n\* |\n\n`)
)

var markdown = goldmark.New(goldmark.WithExtensions(extension.Table))

// Opener is the address that opens a PromQL query in Prometheus or Grafana. {query} stands for the query, and {json}
// for the query within a JSON string. If empty, queries have no links.
type Opener string

// Check returns an error if the address cannot open a query.
func (o Opener) Check() error {
	address, err := url.Parse(o.of("up"))
	if err != nil {
		return err
	}
	if o != "" && (address.Scheme != "http" && address.Scheme != "https" || address.Host == "" || o.of("up") == string(o)) {
		return errors.New("want an address with {query} in it, as in https://prometheus.example/graph?g0.tab=1&g0.expr={query}")
	}
	return nil
}

// of returns the address that opens a query.
func (o Opener) of(query string) string {
	quoted, err := json.Marshal(query)
	if err != nil {
		panic(err) // a string
	}
	return strings.NewReplacer("{query}", url.QueryEscape(query), "{json}", url.QueryEscape(string(quoted[1:len(quoted)-1]))).
		Replace(string(o))
}

// blocks renders blocks of code. Below a query, it adds a link that opens the query, and space for the present result.
type blocks struct {
	opens   Opener
	answers bool
}

// RegisterFuncs makes goldmark render blocks of code with block.
func (b blocks) RegisterFuncs(r renderer.NodeRendererFuncRegisterer) {
	r.Register(ast.KindFencedCodeBlock, b.block)
}

func (b blocks) block(w util.BufWriter, source []byte, node ast.Node, entering bool) (ast.WalkStatus, error) {
	if !entering {
		return ast.WalkContinue, nil
	}
	text := string(node.Lines().Value(source))
	fmt.Fprintf(w, "<pre><code>%s</code></pre>\n", template.HTMLEscapeString(text))
	if string(node.(*ast.FencedCodeBlock).Language(source)) != "promql" {
		return ast.WalkContinue, nil
	}
	if b.opens != "" {
		fmt.Fprintf(w, "<p class=\"open\"><a href=\"%s\" target=\"_blank\" rel=\"noreferrer\">Run this query</a></p>\n",
			template.HTMLEscapeString(b.opens.of(strings.TrimSpace(text))))
	}
	if b.answers {
		fmt.Fprint(w, "<div class=\"answer\" role=\"status\"></div>\n")
	}
	return ast.WalkContinue, nil
}

//go:embed page.js
var script template.JS

// Handler serves the runbooks as HTML under the path at which it is mounted, which must end in a slash and be stripped:
// http.Handle("/runbooks/", http.StripPrefix("/runbooks/", runbooks.Handler("", nil))). Labels of the alert in the
// query, as in ?namespace=prod&pod=chat-0, fill the placeholders in the commands. One click opens a query or copies a
// block of code. With ask, the runbook shows the present result of each query.
func Handler(queries Opener, ask Asker) http.Handler {
	html := goldmark.New(goldmark.WithExtensions(extension.Table),
		goldmark.WithRendererOptions(renderer.WithNodeRenderers(util.Prioritized(blocks{queries, ask != nil}, 0))))
	write := func(w http.ResponseWriter, status int, title string, page []byte) {
		var body bytes.Buffer
		if err := html.Convert(page, &body); err != nil {
			http.Error(w, err.Error(), http.StatusInternalServerError)
			return
		}
		// the reader has left
		_ = site.Write(w, status, site.Page{
			Title: title, Root: "../", Body: template.HTML(`<div class="text">` + body.String() + "</div>"),
			Script: script,
		})
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		path, number, asked := strings.Cut(strings.Trim(r.URL.Path, "/"), "/")
		name := strings.TrimSuffix(path, ".md")
		if name == "" {
			write(w, http.StatusOK, "Runbooks", index())
			return
		}
		page, err := Page(name)
		if err != nil || asked && ask == nil {
			write(w, http.StatusNotFound, "No such runbook", []byte("# No such runbook\n\nThe [index](./) lists those that exist.\n"))
			return
		}
		known := harmlessLabels(r.URL.Query())
		if asked {
			ask.serve(w, r, page, number, known)
			return
		}
		if known.Has("slo") && !strings.HasPrefix(name, "LLMErrorBudget") {
			title, rest, _ := strings.Cut(string(page), "\n")
			page = []byte(title + "\n\nA page about an objective leads here, to its first suspect. If that does not fit, take the next row of " +
				"the [split](LLMErrorBudgetFastBurn.md) that is true.\n" + rest)
		}
		if len(known) > 0 { // and passed on
			page = pageLink.ReplaceAll(Fill(page, known), []byte("](${1}?"+known.Encode()+")"))
		}
		write(w, http.StatusOK, name, page)
	})
}

// Labels maps each placeholder of a command, such as $NS, to a label of the alert.
var Labels = map[string]string{
	"NS": "namespace", "POD": "pod", "SERVER": "server", "MODEL": "model_name", "INSTANCE": "instance",
	"NODE":     "instance",
	"GPU_UUID": "gpu_uuid", "PCI_BUS_ID": "pci_bus_id", "LINK": "link", "SLO": "slo", "SOURCE": "source",
}

var (
	placeholder = regexp.MustCompile(`\$[A-Z_]+\b`)
	pageLink    = regexp.MustCompile(`\]\((\w+\.md)\)`)
	// harmless matches a value without characters that a shell interprets. Otherwise, a link to a runbook could put
	// other commands into the commands that a reader copies.
	harmless = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._:/-]*$`)
)

// longest is the maximum number of bytes of a value. It is not part of harmless, because counting them would make the
// compiled pattern need 230 kB.
const longest = 253

// harmlessLabels returns the labels of a query that fill in placeholders, without values that a shell would interpret.
func harmlessLabels(query url.Values) url.Values {
	known := url.Values{}
	for _, label := range Labels {
		if value := query.Get(label); len(value) <= longest && harmless.MatchString(value) {
			known.Set(label, value)
		}
	}
	return known
}

// Fill replaces those placeholders in a runbook whose labels are known.
func Fill(page []byte, known url.Values) []byte {
	return placeholder.ReplaceAllFunc(page, func(name []byte) []byte {
		value := known.Get(Labels[string(name[1:])])
		if host, _, err := net.SplitHostPort(value); err == nil && string(name) == "$NODE" {
			value = host // an instance may have the exporter's port
		}
		return []byte(cmp.Or(value, string(name)))
	})
}

// kinds lists the headings of the index, each with a prefix. A runbook is listed under the first heading whose prefix
// its name has.
var kinds = []struct{ heading, prefix string }{{"Alerts", "LLM"}, {"Branches without an alert", "Branch"}, {"Procedures", ""}}

// index returns a page that lists all runbooks by kind, with the questions that they answer.
func index() []byte {
	var b strings.Builder
	b.WriteString("# Runbooks\n\nIn the commands, `$NS`, `$POD`, `$SERVER`, `$MODEL` and `$NODE` are the labels namespace, pod, server, " +
		"model_name and instance of the alert. " +
		"A page fills in those that its address has: `LLMEngineDown?namespace=prod&pod=chat-0`.\n")
	names := Names()
	for _, kind := range kinds {
		fmt.Fprintf(&b, "\n## %s\n\n| page | question |\n|---|---|\n", kind.heading)
		names = slices.DeleteFunc(names, func(name string) bool {
			listed := strings.HasPrefix(name, kind.prefix)
			if listed {
				page, _ := Page(name)
				fmt.Fprintf(&b, "| [%s](%s.md) | %s |\n", name, name, Question(page))
			}
			return listed
		})
	}
	return []byte(b.String())
}

// HTML converts our own Markdown. It escapes raw HTML.
func HTML(page []byte) (template.HTML, error) {
	var body bytes.Buffer
	err := markdown.Convert(page, &body)
	return template.HTML(body.String()), err
}
