package report

import (
	"encoding/csv"
	"os"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestPublishedMessagesAreShort checks every published message: eight lines and 600 characters together with the title,
// a title that Opsgenie does not cut, and no cut where to look first or what to do.
func TestPublishedMessagesAreShort(t *testing.T) {
	file, err := os.Open("../../docs/pages.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil || len(rows) < 50 {
		t.Fatalf("%d rows: %v", len(rows), err)
	}
	for _, row := range rows[1:] {
		lines, _ := strconv.Atoi(row[2])
		characters, _ := strconv.Atoi(row[3])
		if title := utf8.RuneCountInString(row[1]); lines < 3 || lines > 8 || characters < title || characters > 600 || title > 130 {
			t.Errorf("%s: %d lines, %d characters, %d in the title: %s", row[0], lines, characters, title, row[1])
		}
	}
	text, err := os.ReadFile("../../docs/pages.txt")
	if err != nil {
		t.Fatal(err)
	}
	diagnosed := 0
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "Look first at: ") || strings.HasPrefix(line, "Do first, ") {
			diagnosed++
			if strings.Contains(line, "…") {
				t.Errorf("cut: %s", line)
			}
		}
	}
	if diagnosed < 20 {
		t.Errorf("%d lines say where to look or what to do", diagnosed)
	}
}
