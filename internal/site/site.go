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

// Page is what differs between two pages.
type Page struct {
	Title string
	// Root leads to the exporter's root, as ../ does from /runbooks/: there may be a path before it that only a proxy knows.
	// Empty for a page that is a file and has no others beside it.
	Root string
	// Body is the content of main. The caller must escape untrusted input.
	Body template.HTML
	// Style follows the stylesheet of all pages; none if empty.
	Style template.CSS
	// Script runs in the page; none if empty.
	Script template.JS
}

//go:embed style.css
var style template.CSS

// layout holds style and script in the page: it needs nothing else once it is there.
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

// Document writes a page as it is, for a file.
func (p Page) Document(to io.Writer) error {
	p.Style = style + p.Style
	return layout.Execute(to, p)
}

// Write sends a page. The browser loads nothing from elsewhere, runs only the page's own script, and refuses to turn
// text into HTML.
func Write(w http.ResponseWriter, status int, p Page) error {
	var page bytes.Buffer
	if err := p.Document(&page); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return err
	}
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; connect-src 'self'; img-src data:; "+
		"require-trusted-types-for 'script'; style-src "+hash(string(style+p.Style))+"; script-src "+hash(string(p.Script)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Referrer-Policy", "no-referrer")
	w.WriteHeader(status)
	_, err := page.WriteTo(w)
	return err
}

// hash returns what a Content-Security-Policy calls a text in the page.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return "'sha256-" + base64.StdEncoding.EncodeToString(sum[:]) + "'"
}
