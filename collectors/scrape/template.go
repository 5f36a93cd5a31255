package scrape

import (
	"bytes"
	"hash/maphash"
	"slices"
	"strconv"
	"strings"
	"unsafe"
)

// A Template is a metrics page that Prometheus' parser has accepted, with gaps in place of the numbers. As long as a
// server writes the same series, its next metrics page fits the template. Comparing hashes is then sufficient, and the
// page need not be parsed. The hashes have a random seed at each start, so a hostile server cannot construct colliding
// metrics pages.
type Template struct {
	lines []templateLine
	index map[uint64]int // line index by hash; built when the order of a metrics page changes
	seen  []uint32       // by line: the last read that contained the line
	reads uint32
}

// templateLine is a series up to its number, or a complete comment.
type templateLine struct {
	hash   uint64
	length int32
	series int32 // index of the series on the metrics page; -1 for comments
}

var seed = maphash.MakeSeed()

func newLine(text []byte, series int) templateLine {
	return templateLine{maphash.Bytes(seed, text), int32(len(text)), int32(series)}
}

// Loses reports whether another metrics page lacks any of those series of this page that are marked in some.
func (t *Template) Loses(other *Template, some []bool) bool {
	if t == nil || other == nil {
		return false
	}
	there := make(map[uint64]bool, len(other.lines))
	for _, l := range other.lines {
		there[l.hash] = true
	}
	return slices.ContainsFunc(t.lines, func(l templateLine) bool { return l.series >= 0 && some[l.series] && !there[l.hash] })
}

// begins reports whether a metrics page, or the rest of a metrics page, begins with the line.
func (l *templateLine) begins(body []byte) bool {
	return len(body) >= int(l.length) && maphash.Bytes(seed, body[:l.length]) == l.hash
}

// NewTemplate turns a metrics page into a template. It returns nil if the numbers cannot be separated from the bytes
// around them. This happens if lines end in timestamps or exemplars, or appear twice.
func NewTemplate(body []byte, page *Page) *Template {
	if page.timestamps || len(page.Duplicates) > 0 || bytes.Contains(body, []byte("# EOF")) {
		return nil
	}
	t := &Template{lines: make([]templateLine, 0, bytes.Count(body, []byte("\n")))}
	series := 0
	for line := range bytes.Lines(body) {
		if isComment(line) {
			t.lines = append(t.lines, newLine(line, -1))
			continue
		}
		t.lines = append(t.lines, newLine(untilNumber(line), series))
		series++
	}
	if series != len(page.Values) {
		return nil
	}
	t.seen = make([]uint32, len(t.lines))
	return t
}

func isComment(line []byte) bool { return line[0] == '#' || len(bytes.TrimSpace(line)) == 0 }

func untilNumber(line []byte) []byte { return line[:bytes.LastIndexByte(line, ' ')+1] }

// Read passes the number of each series to store. If the metrics page differs in more than its numbers, Read returns
// false. All values stored until then must be read again.
func (t *Template) Read(body []byte, store func(series int, value float64)) bool {
	t.reads++
	met := 0
	for next := 0; len(body) > 0; next++ {
		if next >= len(t.lines) || !t.lines[next].begins(body) {
			var found bool
			if next, found = t.find(body); !found {
				return false
			}
		}
		line := &t.lines[next]
		body = body[line.length:]
		if line.series >= 0 {
			end := bytes.IndexByte(body, '\n')
			if end < 0 {
				return false
			}
			value, ok := parseNumber(body[:end])
			if !ok || t.seen[next] == t.reads {
				return false
			}
			store(int(line.series), value)
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
func (t *Template) find(body []byte) (int, bool) {
	end := bytes.IndexByte(body, '\n')
	if end < 0 {
		return 0, false
	}
	line := body[:end+1]
	if !isComment(line) {
		line = untilNumber(line)
	}
	if t.index == nil {
		t.index = make(map[uint64]int, len(t.lines))
		for i, l := range t.lines {
			t.index[l.hash] = i
		}
	}
	i, ok := t.index[maphash.Bytes(seed, line)]
	return i, ok
}

// parseNumber accepts the sample values that Prometheus' parser accepts.
func parseNumber(b []byte) (float64, bool) {
	s := unsafe.String(unsafe.SliceData(b), len(b))
	if strings.ContainsAny(s, "pP_ ") {
		return 0, false
	}
	v, err := strconv.ParseFloat(s, 64)
	return v, err == nil
}
