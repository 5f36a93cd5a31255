package score_test

import (
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/score"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// told holds the messages that a person received about an incident.
type told struct {
	by      []string // alerts of the first page
	verdict string   // where the page says to look first
	cause   string
	at      score.Span
}

// playFrom plays an incident with NVML's series, or with the series of a dcgm-exporter that exports additional fields.
func playFrom(t *testing.T, in incident.Incident, asked []string) told {
	t.Helper()
	p, err := play.Run(in, play.Options{Seed: 1, DCGM: asked})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	s := score.New(p)
	got := told{by: s.PagedBy, cause: s.Cause, at: s.Delay}
	for line := range strings.Lines(s.Split) {
		if strings.HasPrefix(line, "Look first at") {
			got.verdict = strings.TrimSpace(line)
		}
	}
	return got
}

// TestSameIncidentFromAPage checks that GPUs that heat up page the same person with the same text, whether the
// source is NVML or a dcgm-exporter with the fields about lowered clocks. With its default list, the page shows
// which clocks fell, not why.
func TestSameIncidentFromAPage(t *testing.T) {
	t.Parallel()
	in := small(t, "thermal-throttle")
	nvml, page, poor := playFrom(t, in, nil), playFrom(t, in, world.ThrottleFields), playFrom(t, in, []string{})
	t.Logf("NVML %+v", nvml)
	t.Logf("page %+v", page)
	t.Logf("page with the default list %+v", poor)
	if !slices.Contains(nvml.by, rules.FastBurn.Name) || nvml.cause != "gpu_throttled" || nvml.verdict == "" {
		t.Fatalf("with NVML: %+v", nvml)
	}
	share := regexp.MustCompile(`\d+%`) // its metrics are up to 30 seconds old
	if !slices.Equal(page.by, nvml.by) || share.ReplaceAllString(page.verdict, "") != share.ReplaceAllString(nvml.verdict, "") ||
		page.cause != nvml.cause || page.at != nvml.at {
		t.Errorf("from a page: %+v, want %+v", page, nvml)
	}
	if !slices.Equal(poor.by, nvml.by) || poor.cause != nvml.cause || !strings.Contains(poor.verdict, "All GPUs of the model") ||
		!strings.Contains(poor.verdict, "(low_clock)") {
		t.Errorf("from the default list: %+v", poor)
	}
}

// TestLostGPUFromAPage checks that a GPU that falls off the bus also loses its XID in the metrics. Its absence pages
// instead.
func TestLostGPUFromAPage(t *testing.T) {
	t.Parallel()
	in := small(t, "xid-79")
	in.Fleet.Replicas = 3
	nvml, page := playFrom(t, in, nil), playFrom(t, in, []string{})
	t.Logf("NVML %+v", nvml)
	t.Logf("page %+v", page)
	if !slices.Contains(nvml.by, rules.GPUFailed.Name) || !slices.Contains(page.by, rules.GPUFailed.Name) || page.at > nvml.at+
		score.Span(4*rules.Interval) {
		t.Errorf("from a page: %+v, with NVML: %+v", page, nvml)
	}
}
