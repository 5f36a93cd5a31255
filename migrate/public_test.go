package migrate

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
)

const resultsFile = "../docs/migrate.csv"

// TestPublic rewrites public dashboards and rules, and compares their results before and after. MIGRATE names a
// folder with OWNER/NAME/PATH for each line of docs/migrate.csv; -update writes the results.
func TestPublic(t *testing.T) {
	folder := os.Getenv("MIGRATE")
	if folder == "" {
		t.Skip("MIGRATE names no folder with the files of docs/migrate.csv")
	}
	body, err := os.ReadFile(resultsFile)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(body))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	w := newWorld(t)
	var out strings.Builder
	writer := csv.NewWriter(&out)
	if err := writer.Write(rows[0]); err != nil {
		t.Fatal(err)
	}
	for _, row := range rows[1:] {
		repository, path, flags := row[0], row[2], row[4]
		o := Options{Labels: map[string]string{}}
		for flag := range strings.FieldsSeq(flags) {
			old, to, _ := strings.Cut(strings.TrimPrefix(flag, "--label="), "=")
			o.Labels[old] = to
		}
		text, err := os.ReadFile(filepath.Join(folder, repository, path))
		if err != nil {
			t.Fatal(err)
		}
		file, err := rewriteFile(path, text, o)
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		worst, order := map[string]verdict{}, []string{}
		for _, f := range file.Findings {
			if strings.HasPrefix(f.Place, "variable ") {
				continue
			}
			v := w.judge(t, f)
			t.Logf("verdict %d: %s %s: %s\n  %s %s %v", v, path, f.Place, f.From, f.To, f.Left, f.Notes)
			was, ok := worst[f.Place]
			if !ok {
				order = append(order, f.Place)
			}
			worst[f.Place] = max(was, v)
		}
		count := map[verdict]int{}
		for _, place := range order {
			count[worst[place]]++
		}
		if count[wrong] > 0 {
			t.Errorf("%s: %d panels are wrong", path, count[wrong])
		}
		n := func(v verdict) string { return strconv.Itoa(count[v]) }
		result := slices.Concat(row[:5], []string{
			strconv.Itoa(len(order)), n(right), n(renewed), n(differs), n(noSeries), n(left),
			n(silent), n(wrong), n(foreign),
		})
		if err := writer.Write(result); err != nil {
			t.Fatal(err)
		}
	}
	writer.Flush()
	golden.Compare(t, resultsFile, out.String())
}

func rewriteFile(path string, text []byte, o Options) (File, error) {
	if filepath.Ext(path) == ".json" {
		return Dashboard(text, o)
	}
	return Rules(text, o)
}
