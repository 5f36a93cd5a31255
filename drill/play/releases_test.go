package play

import (
	"encoding/csv"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// settled is the time of events in a play: the exporter has read all replicas a few times, and reads them next in 20
// seconds.
const settled = 6*time.Minute + 10*time.Second

// said holds the reports about settings, with the time of the first.
type said struct {
	changes, clues, drift []string
	first                 map[string]time.Duration // of each replica
}

func (s *said) say(to *[]string, what string, at time.Duration) {
	if !slices.Contains(*to, what) {
		*to = append(*to, what)
		s.first[what] = at
	}
}

// listen plays until a time and records the reports of the exporter and the rules.
func listen(t *testing.T, p *Play, faults []incident.Fault, until time.Duration) *said {
	t.Helper()
	s := &said{first: map[string]time.Duration{}}
	if err := p.Through(t.Context(), 0, until, faults, nil); err != nil {
		t.Fatal(err)
	}
	for now := time.Duration(0); now <= until; now += ScrapeInterval {
		for _, q := range []struct {
			query  string
			to     *[]string
			labels []string
		}{
			{"count by (setting, old, new) (" + metrics.EngineConfigChanged.Name + ")", &s.changes, []string{
				metrics.LabelSetting,
				metrics.LabelOld, metrics.LabelNew,
			}},
			{metrics.RecordedSuspect.Name + `{branch="release"}`, &s.clues, []string{metrics.LabelClue, metrics.LabelSetting, metrics.LabelNew}},
			{
				`ALERTS{alertname="` + rules.ReplicaSkew.Name + `",alertstate="firing",setting!=""}`, &s.drift,
				[]string{metrics.LabelPod, metrics.LabelSetting, metrics.LabelNew},
			},
		} {
			found, err := p.Prometheus.Query(q.query, p.World.At(now))
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range found {
				var words []string
				for _, l := range q.labels {
					if v := f.Metric.Get(l); v != "" {
						words = append(words, v)
					}
				}
				s.say(q.to, strings.Join(words, " "), now)
			}
		}
	}
	slices.Sort(s.changes)
	return s
}

// serving returns four replicas whose processes the exporter sees.
func serving(change func(f *world.Fleet)) incident.Incident {
	in, _ := incident.Find(incident.Incidents(), "bad-release")
	f := in.Fleet
	f.SeesProcesses, f.Profile.Image = true, "vllm/vllm-openai:v0.16.0"
	f.Profile.Arrivals = 1
	f.Profile.Options = []string{"--dtype", "bfloat16", "--chat-template", "/etc/chat.jinja", "--quantization", "awq", "--revision", "0e9e39f"}
	change(&f)
	return incident.Incident{Name: "release", Fleet: f}
}

// option replaces the argument of an option.
func option(p *drill.Profile, name, value string) {
	p.Options = slices.Clone(p.Options)
	p.Options[slices.Index(p.Options, name)+1] = value
}

func TestReleases(t *testing.T) {
	rows := [][]string{{"what happens", "said by the exporter", "said by the rules"}}
	start := func(t *testing.T, change func(f *world.Fleet)) *Play {
		p, err := New(serving(change), Options{Seed: 1, WithoutGPUs: true})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { p.Close() })
		return p
	}

	// One of four replicas has differed since yesterday. Nothing changed, but the replica is named.
	for _, c := range []struct {
		name, want string
		of         func(p *drill.Profile)
		all        func(p *drill.Profile)
	}{
		{"another dtype", "dtype float16", func(p *drill.Profile) { option(p, "--dtype", "float16") }, nil},
		{"another template", "template /etc/tools.jinja", func(p *drill.Profile) { option(p, "--chat-template", "/etc/tools.jinja") }, nil},
		{"a shorter longest sequence", "max_model_len 8192", func(p *drill.Profile) { p.MaxModelLen = 8192 }, nil},
		{"half of the KV cache", "kv_cache_tokens", func(p *drill.Profile) { p.Blocks = p.KVBlocks() / 2 }, nil},
		{"no speculation", "speculation default", func(p *drill.Profile) { p.Draft = 0 }, func(p *drill.Profile) {
			p.Draft, p.Acceptance = 3,
				0.7
		}},
		{"an older image", "image vllm/vllm-openai:v0.15.1", func(p *drill.Profile) { p.Image = "vllm/vllm-openai:v0.15.1" }, nil},
		{"another revision", "revision 892b3d7", func(p *drill.Profile) { option(p, "--revision", "892b3d7") }, nil},
		{"another quantisation", "quantization fp8", func(p *drill.Profile) { option(p, "--quantization", "fp8") }, nil},
	} {
		p := start(t, func(f *world.Fleet) {
			if c.all != nil {
				c.all(&f.Profile)
			}
			f.Each = func(replica int, p *drill.Profile) {
				if replica == 3 {
					c.of(p)
				}
			}
		})
		s := listen(t, p, nil, 6*time.Minute)
		named := p.World.Replicas[3].Pod + " " + c.want
		at, ok := s.first[named]
		if !ok || at > 5*time.Minute || len(s.changes) > 0 || len(s.clues) > 0 {
			t.Errorf("%s: said at %s: %t; drift %q, changes %q, clues %q", c.name, at, ok, s.drift, s.changes, s.clues)
		}
		rows = append(rows, []string{"one of four has " + c.name, "no change", fmt.Sprintf("ticket after %.0f s: %s", at.Seconds(), c.want)})
	}

	// The seconds count from the moment when the first changed engine answers.
	const loading = time.Minute
	upgrade := func(i int) func(w *world.World) {
		return func(w *world.World) {
			r := w.Replicas[i]
			r.Profile.Release, r.Profile.KVCacheDtype = "0.17.0", "fp8"
			r.Restart(loading)
		}
	}
	back := func(i int) func(w *world.World) {
		return func(w *world.World) {
			r := w.Replicas[i]
			r.Profile.Release, r.Profile.KVCacheDtype = "0.16.0", ""
			r.Restart(loading)
		}
	}
	oneByOne := func(do func(i int) func(*world.World), from time.Duration) (all []incident.Fault) {
		for i := range 4 {
			all = append(all, incident.Fault{At: from + time.Duration(i)*2*time.Minute, Do: do(i)})
		}
		return all
	}
	for _, c := range []struct {
		name    string
		faults  []incident.Fault
		answers time.Duration // the first changed engine
		absent  bool          // the fourth replica, until then
		until   time.Duration
		want    []string
		clues   []string
	}{
		{
			"a rollout of 0.17.0 with the KV cache in FP8, one replica after the other", oneByOne(upgrade, settled), settled + loading, false,
			settled + 14*time.Minute,
			[]string{"kv_cache_dtype auto fp8", "version 0.16.0 0.17.0"},
			[]string{
				"version_deployed version 0.17.0",
				"setting_changed kv_cache_dtype fp8",
			},
		},
		{
			"it is rolled back twenty minutes later", append(oneByOne(upgrade, settled), oneByOne(back, settled+20*time.Minute)...),
			settled + 20*time.Minute + loading, false, settled + 34*time.Minute,
			[]string{"kv_cache_dtype fp8 auto", "version 0.17.0 0.16.0"},
			[]string{
				"version_deployed version 0.16.0",
				"setting_changed kv_cache_dtype auto",
			},
		},
		{"one replica starts again with what it had", []incident.Fault{{
			At: settled,
			Do: func(w *world.World) { w.Replicas[2].Restart(loading) },
		}}, settled + loading, false, settled + 14*time.Minute, nil, nil},
		{
			"a replica more",
			[]incident.Fault{{At: settled, Do: func(w *world.World) { w.Replicas[3].Restart(loading) }}},
			settled + loading,
			true, settled + 14*time.Minute, nil, nil,
		},
	} {
		p := start(t, func(*world.Fleet) {})
		if c.absent {
			p.World.Replicas[3].Down, p.World.Replicas[3].Gone = true, true
		}
		s := listen(t, p, c.faults, c.until)
		if len(s.drift) > 0 {
			t.Errorf("%s: drift %q", c.name, s.drift)
		}
		var exporter, ruled []string
		after := func(what string, within time.Duration) string {
			at, ok := s.first[what]
			if late := at - c.answers; !ok || late > within {
				t.Errorf("%s: %q is said %s after the first engine answers: %t; changes %q, clues %q", c.name, what, late, ok, s.changes, s.clues)
			}
			return fmt.Sprintf("%.0f s", (s.first[what] - c.answers).Seconds())
		}
		for _, what := range c.want {
			words := strings.Fields(what)
			exporter = append(exporter, fmt.Sprintf("%s %s → %s after %s", words[0], words[1], words[2], after(what, ScrapeInterval)))
		}
		for _, what := range c.clues {
			words := strings.Fields(what)
			ruled = append(ruled, fmt.Sprintf("%s %s after %s", words[0], strings.Join(words[1:], " "),
				after(what, ScrapeInterval+rules.Interval)))
		}
		others := slices.DeleteFunc(slices.Clone(s.changes), func(what string) bool {
			return slices.Contains(c.want, what) || strings.HasPrefix(what, "kv_cache_tokens ") || strings.HasPrefix(c.name, "it is rolled back")
		})
		if len(others) > 0 || c.want == nil && len(s.clues) > 0 {
			t.Errorf("%s: also changes %q, clues %q", c.name, others, s.clues)
		}
		if c.want == nil {
			exporter, ruled = []string{"no change"}, []string{"nothing"}
		}
		rows = append(rows, []string{c.name, strings.Join(exporter, ", "), strings.Join(ruled, ", ") + ", no drift"})
	}

	var table strings.Builder
	if err := csv.NewWriter(&table).WriteAll(rows); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "../../docs/releases.csv", table.String())
}
