package engine

import (
	"bytes"
	"strconv"
	"strings"
	"unsafe"
)

// A template holds a page that Prometheus' parser has accepted, with holes for its numbers. While an engine keeps
// emitting the same series, its next page is the template with other numbers: comparing bytes is enough then, and
// nothing has to be lexed again.
type template struct {
	lines []templateLine
	index map[string]int // line index by text; built when a page changes its order
	seen  []uint32       // by line: the last read that saw it
	reads uint32
}

type templateLine struct {
	text   string // a series up to its number, or a complete comment
	series int    // index of the series on the page; -1 for comments
}

// newTemplate cuts a page into a template. It returns nil if the numbers cannot be separated from the bytes around
// them: if lines end in timestamps or exemplars, or appear twice.
func newTemplate(body []byte, page *Page) *template {
	if page.timestamps || len(page.duplicates) > 0 || bytes.Contains(body, []byte("# EOF")) {
		return nil
	}
	t := &template{}
	series := 0
	for line := range strings.Lines(string(body)) {
		l := templateLine{text: line, series: -1}
		if !isComment(line) {
			l.text = line[:strings.LastIndexByte(line, ' ')+1]
			l.series = series
			series++
		}
		t.lines = append(t.lines, l)
	}
	if series != len(page.values) {
		return nil
	}
	t.seen = make([]uint32, len(t.lines))
	return t
}

func isComment(line string) bool { return line[0] == '#' || strings.TrimSpace(line) == "" }

// read passes the number of each series to store. It returns false as soon as the page turns out to differ in more
// than its numbers; whatever was stored until then must be read again.
func (t *template) read(body []byte, store func(series int, value float64)) bool {
	t.reads++
	met := 0
	for next := 0; len(body) > 0; next++ {
		if next >= len(t.lines) || !hasPrefix(body, t.lines[next].text) {
			var found bool
			if next, found = t.find(body); !found {
				return false
			}
		}
		line := &t.lines[next]
		body = body[len(line.text):]
		if line.series >= 0 {
			end := bytes.IndexByte(body, '\n')
			if end < 0 {
				return false
			}
			value, ok := parseNumber(body[:end])
			if !ok || t.seen[next] == t.reads {
				return false
			}
			store(line.series, value)
			body = body[end+1:]
		}
		if t.seen[next] != t.reads {
			t.seen[next] = t.reads
			met++
		}
	}
	return met == len(t.lines)
}

// find looks up the line that body starts with.
func (t *template) find(body []byte) (int, bool) {
	end := bytes.IndexByte(body, '\n')
	if end < 0 {
		return 0, false
	}
	line := unsafe.String(unsafe.SliceData(body), end+1)
	if !isComment(line) {
		line = line[:strings.LastIndexByte(line, ' ')+1]
	}
	if t.index == nil {
		t.index = make(map[string]int, len(t.lines))
		for i, l := range t.lines {
			t.index[l.text] = i
		}
	}
	i, ok := t.index[line]
	return i, ok
}

func hasPrefix(b []byte, prefix string) bool {
	return len(b) >= len(prefix) && string(b[:len(prefix)]) == prefix
}

// parseNumber accepts what Prometheus' parser accepts as a sample value.
func parseNumber(b []byte) (float64, bool) {
	s := unsafe.String(unsafe.SliceData(b), len(b))
	if strings.ContainsAny(s, "pP_ ") {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil
}
