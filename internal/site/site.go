// Package site gives the exporter's web pages the same layout, stylesheet and content security policy.
package site

import (
	"bytes"
	"crypto/sha256"
	_ "embed"
	"encoding/base64"
	"html/template"
	"io"
	"net/http"
)

// Page has the parts that differ between web pages.
type Page struct {
	Title string
	// Root is the relative path to the exporter's root, for example ../ from /runbooks/. It is relative because a proxy
	// may add a prefix. It is empty for a web page that is a single file.
	Root string
	// Body is the content of main. The caller must escape untrusted input in Body.
	Body template.HTML
	// Style is added after the common stylesheet, and may be empty.
	Style template.CSS
	// Script runs in the web page. It may be empty.
	Script template.JS
}

//go:embed style.css
var style template.CSS

// layout includes style and script in the web page, so that the web page loads nothing else.
var layout = template.Must(template.New("layout").Parse(`<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ .Title }}</title>
<link rel="icon" href="data:,">
<style>{{ .Style }}</style></head><body>
{{ with .Root }}<header><nav aria-label="Pages"><a href="{{ . }}">Node</a> <a href="{{ . }}engines">Engines</a> <a href="{{ . }}runbooks/">Runbooks</a></nav></header>
{{ end }}<main>
{{ .Body }}
</main>
{{ with .Script }}<script>{{ . }}</script>
{{ end }}</body></html>
`))

// Document writes a complete HTML document, for example to a file.
func (p Page) Document(to io.Writer) error {
	p.Style = style + p.Style
	return layout.Execute(to, p)
}

// Write sends a web page. The browser loads nothing from other places, runs only the web page's own script, and does
// not interpret text as HTML.
func Write(w http.ResponseWriter, status int, p Page) error {
	var page bytes.Buffer
	if err := p.Document(&page); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy",
		"default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src 'self'; img-src data:; "+
			"require-trusted-types-for 'script'; style-src "+hash(string(style+p.Style))+"; script-src "+hash(string(p.Script)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	_, err := page.WriteTo(w)
	return err
}

// hash returns the source expression of a Content-Security-Policy for a text in the web page.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
