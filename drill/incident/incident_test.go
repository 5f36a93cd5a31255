package incident_test

import (
	"crypto/sha256"
	"encoding/hex"
	"flag"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/report"
	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
)

var (
	all   = flag.Bool("all", false, "play every incident")
	seeds = flag.Uint64("seeds", 1, "with how many seeds")
	from  = flag.Uint64("from", 1, "first draw")
)

// fast lists the incidents that every run of the tests plays.
var fast = []string{"xid-79", "scale-from-zero"}

// TestIncidents plays incidents. Each incident must page the right receiver, in time, once, with its cause, and no
// other receiver. Alertmanager itself must send the same messages. The plots must equal the plots of the last play that
// a person has reviewed: testdata/plays.tsv has their hashes. After a change, "go test ./drill/incident -run
// TestIncidents/NAME -update" plays one incident again and stores its row.
func TestIncidents(t *testing.T) {
	var mu sync.Mutex
	var scores []score.Score
	t.Cleanup(func() {
		slices.SortStableFunc(scores, func(a, b score.Score) int { return int(a.Seed) - int(b.Seed) })
		_ = report.WriteTable(os.Stdout, scores)
	})
	for _, in := range incident.Incidents() {
		if !*all && !slices.Contains(fast, in.Name) && !strings.Contains(flag.Lookup("test.run").Value.String(), in.Name) {
			continue
		}
		t.Run(in.Name, func(t *testing.T) {
			t.Parallel()
			for seed := uint64(1); seed <= *seeds; seed++ {
				p, err := play.Run(in, play.Options{Seed: seed})
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				trace, err := report.New(p)
				if err != nil {
					t.Fatal(err)
				}
				for _, problem := range trace.Score.Problems {
					t.Errorf("seed %d: %s", seed, problem)
				}
				compare(t, p.Sent, p.Evaluations)
				var fresh strings.Builder
				if err := report.WriteHTML(&fresh, []report.Trace{trace}); err != nil {
					t.Fatal(err)
				}
				if seed == 1 {
					sum := sha256.Sum256([]byte(section(t, fresh.String(), in.Name)))
					golden.Row(t, "testdata/plays.tsv", in.Name, hex.EncodeToString(sum[:8]))
				}
				mu.Lock()
				scores = append(scores, trace.Score)
				mu.Unlock()
			}
		})
	}
}

// quick lists the public incident that every run plays: unreadable metrics.
var quick = []string{"frozen-scheduler"}

// TestPublic plays public incidents. No message comes later than people noticed the incident, and quiet incidents
// wake nobody.
func TestPublic(t *testing.T) {
	for _, in := range incident.Public() {
		if in.Report.Source == "" || in.Report.Said == "" || in.Report.Assumed == "" {
			t.Errorf("%s: say where it was published, its figures, and what the play assumes", in.Name)
		}
		if in.Report.Sign != "" {
			if err := promql.Verify(in.Report.Sign); err != nil {
				t.Errorf("%s: %v", in.Name, err)
			}
		}
		if !*all && !slices.Contains(quick, in.Name) {
			continue
		}
		t.Run(in.Name, func(t *testing.T) {
			t.Parallel()
			p, err := play.Run(in, play.Options{Seed: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			for _, problem := range score.New(p).Problems {
				t.Error(problem)
			}
		})
	}
}

// section returns the part of a report about an incident.
func section(t *testing.T, report, incident string) string {
	t.Helper()
	_, after, _ := strings.Cut(report, `<section id="`+incident+`">`)
	text, _, whole := strings.Cut(after, "</section>")
	if !whole {
		t.Errorf("the report lacks %s: see drill/report/html.go", incident)
	}
	return text
}
