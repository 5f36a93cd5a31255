package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// toldValues holds the settings that a replica runs with.
type toldValues = map[metrics.Setting]string

func key(pod string) replicaKey {
	return replicaKey{groupKey{"vllm", "prod", "llama", ""}, pod, "engine", pod + ":8000"}
}

// changesOf prints changes.
func changesOf(all []Change) string {
	var lines []string
	for _, c := range all {
		lines = append(lines, fmt.Sprintf("%s %s -> %s", c.Setting, c.Old, c.New))
	}
	return strings.Join(lines, ", ")
}

// TestLedger plays events of a model's replicas, as a scrape every 30 seconds shows them.
func TestLedger(t *testing.T) {
	const q, kv, version, image = metrics.SettingQuantization, metrics.SettingKVCacheTokens, metrics.SettingVersion, metrics.SettingImage
	begin := time.Unix(1_700_000_000, 0)
	type step struct {
		after   time.Duration
		pod     string
		started time.Duration // since the exporter; 0: unknown
		values  toldValues
		want    string // all last changes of the replica
	}
	old := -time.Hour
	for name, steps := range map[string][]step{
		"a change in place, and back": {
			{0, "a", old, toldValues{q: "none", kv: "1000"}, ""},
			{30 * time.Second, "a", old, toldValues{q: "none", kv: "1000"}, ""},
			{time.Hour, "a", time.Hour, toldValues{q: "fp8", kv: "1000"}, "quantization none -> fp8"},
			{2 * time.Hour, "a", 2 * time.Hour, toldValues{q: "none", kv: "1000"}, "quantization fp8 -> none"},
		},
		"a restart without a change: what is measured differs a little": {
			{0, "a", old, toldValues{q: "fp8", kv: "100000"}, ""},
			{time.Hour, "a", time.Hour, toldValues{q: "fp8", kv: "98000"}, ""},
			{2 * time.Hour, "a", 2 * time.Hour, toldValues{q: "fp8", kv: "96500"}, ""},
			{3 * time.Hour, "a", 3 * time.Hour, toldValues{q: "fp8", kv: "80000"}, "kv_cache_tokens 100000 -> 80000"},
		},
		"a KV cache that grows is no change, and ends what was lost": {
			{0, "a", old, toldValues{kv: "100000"}, ""},
			{time.Hour, "a", time.Hour, toldValues{kv: "60000"}, "kv_cache_tokens 100000 -> 60000"},
			{time.Hour, "b", time.Hour, toldValues{kv: "140000"}, ""},
			{2 * time.Hour, "a", 2 * time.Hour, toldValues{kv: "100000"}, ""},
			{3 * time.Hour, "a", 3 * time.Hour, toldValues{q: "fp8", kv: "150000"}, ""},
			{4 * time.Hour, "a", 4 * time.Hour, toldValues{q: "fp8", kv: "100000"}, "kv_cache_tokens 150000 -> 100000"},
		},
		"a setting explains the lost KV cache": {
			{0, "a", old, toldValues{q: "fp8", kv: "100000"}, ""},
			{time.Hour, "a", time.Hour, toldValues{q: "none", kv: "60000"}, "quantization fp8 -> none"},
			{3 * time.Hour, "a", 3 * time.Hour, toldValues{q: "none", kv: "40000"}, "quantization fp8 -> none, kv_cache_tokens 60000 -> 40000"},
		},
		"the digest of an image appears, then another one": {
			{0, "a", old, toldValues{image: "vllm:1"}, ""},
			{time.Minute, "a", old, toldValues{image: "vllm:1@sha256:aa"}, ""},
			{time.Hour, "a", time.Hour, toldValues{image: "vllm:1@sha256:bb"}, "image vllm:1@sha256:aa -> vllm:1@sha256:bb"},
		},
		"replicas that differed before the exporter came": {
			{0, "a", old, toldValues{q: "none"}, ""},
			{0, "b", old, toldValues{q: "fp8"}, ""},
			{0, "c", 0, toldValues{q: "awq"}, ""},
		},
		"a scale-up brings nothing new": {
			{0, "a", old, toldValues{q: "fp8", version: "1"}, ""},
			{time.Hour, "a", old, toldValues{q: "fp8", version: "1"}, ""},
			{time.Hour, "b", time.Hour, toldValues{q: "fp8", version: "1"}, ""},
		},
		"new pods replace the old ones, one after another": {
			{0, "a", old, toldValues{q: "none", version: "1"}, ""},
			{0, "b", old, toldValues{q: "none", version: "1"}, ""},
			{time.Hour, "b", old, toldValues{q: "none", version: "1"}, ""},
			{time.Hour, "c", time.Hour, toldValues{q: "fp8", version: "2"}, "version 1 -> 2, quantization none -> fp8"},
			{time.Hour + 30*time.Second, "c", time.Hour, toldValues{q: "fp8", version: "2"}, "version 1 -> 2, quantization none -> fp8"},
			{time.Hour + 5*time.Minute, "d", time.Hour, toldValues{q: "fp8", version: "2"}, "version 1 -> 2, quantization none -> fp8"},
			{2 * time.Hour, "c", time.Hour, toldValues{q: "fp8", version: "2"}, "version 1 -> 2, quantization none -> fp8"},
			{2 * time.Hour, "d", time.Hour, toldValues{q: "fp8", version: "2"}, "version 1 -> 2, quantization none -> fp8"},
			// a rollback
			{2*time.Hour + time.Minute, "e", 2 * time.Hour, toldValues{q: "none", version: "1"}, "version 2 -> 1, quantization fp8 -> none"},
		},
		"an endpoint that does not answer for a while": {
			{0, "a", old, toldValues{q: "fp8"}, ""},
			{time.Hour, "a", old, toldValues{}, ""},
			{2 * time.Hour, "a", old, toldValues{q: "fp8"}, ""},
			{3 * time.Hour, "a", old, toldValues{q: "fp8", version: "1"}, ""},
		},
		"an engine that does not say when it started, new after a while": {
			{0, "a", 0, toldValues{q: "none"}, ""},
			{time.Hour, "a", 0, toldValues{q: "none"}, ""},
			{time.Hour, "b", 0, toldValues{q: "fp8"}, "quantization none -> fp8"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l := NewLedger(begin)
			for i, s := range steps {
				var started time.Time
				if s.started != 0 {
					started = begin.Add(s.started)
				}
				if s.started > 0 {
					started = started.Add(time.Second)
				}
				if got := changesOf(l.observe(key(s.pod), s.values, started, begin.Add(s.after))); got != s.want {
					t.Errorf("step %d, %s: %q, want %q", i, s.pod, got, s.want)
				}
			}
		})
	}
}

// TestLedgerIsBounded checks an engine that reports other settings each time, and an engine that has another name
// each time.
func TestLedgerIsBounded(t *testing.T) {
	begin := time.Unix(1_700_000_000, 0)
	l := NewLedger(begin)
	seen := map[string]bool{}
	for i := range 3600 {
		now := begin.Add(time.Duration(i) * time.Second)
		seen[changesOf(l.observe(key("a"), toldValues{metrics.SettingModel: fmt.Sprint(i)}, time.Time{}, now))] = true
	}
	if len(seen) > mostChanges+1 {
		t.Errorf("%d different changes within an hour", len(seen))
	}
	for i := range 3 * mostReplicas {
		one := key(fmt.Sprint(i))
		one.model = one.pod
		l.observe(one, toldValues{metrics.SettingModel: "x"}, time.Time{}, begin.Add(time.Hour))
	}
	if n := l.known; n > mostReplicas {
		t.Errorf("%d replicas are remembered", n)
	}
	l.observe(key("last"), toldValues{}, time.Time{}, begin.Add(forgetAfter+2*time.Hour))
	if n := l.known; n != 1 {
		t.Errorf("%d replicas are remembered that nobody has seen for a day", n-1)
	}
}

// TestChangeWithinOneScrape checks that the next scrape reports an engine's restart with other settings, even while
// the engine is away afterwards, and after the configuration has been reloaded.
func TestChangeWithinOneScrape(t *testing.T) {
	page := readPage(t, "vllm/v0.32.0-healthy.prom")
	engine := serve(t, page)
	ledger := NewLedger(time.Now())
	c := collectorWith(t, Config{Targets: []TargetConfig{{URL: engine.URL}}, Ledger: ledger})
	parse(t, exposition(t, c)).want(t, `llm_engine_config_changed_timestamp_seconds`)
	engine.show(strings.Replace(page, `cache_dtype="auto"`, `cache_dtype="fp8"`, 1))
	before := float64(time.Now().UnixMilli()) / 1000
	changed := parse(t, exposition(t, c)).
		get(t, `llm_engine_config_changed_timestamp_seconds{setting="kv_cache_dtype",old="auto",new="fp8",runtime="vllm",model_name!=""}`)
	if len(changed) != 1 || changed[0] < before {
		t.Errorf("changed at %v, want a time from %v on", changed, before)
	}
	if e := c.Engines()[0]; len(e.Changes) != 1 || !strings.HasPrefix(e.Changes[0].String(), "kv_cache_dtype auto -> fp8 at ") {
		t.Errorf("%+v", e.Changes)
	}
	reloaded := collectorWith(t, Config{Targets: []TargetConfig{{URL: engine.URL}}, Ledger: ledger})
	parse(t, exposition(t, reloaded)).want(t, `llm_engine_config_changed_timestamp_seconds{setting="kv_cache_dtype"}`, changed[0])
	engine.Close()
	down := parse(t, exposition(t, reloaded))
	down.want(t, `llm_engine_up`, 0)
	down.want(t, `llm_engine_config_changed_timestamp_seconds{setting="kv_cache_dtype"}`, changed[0])
	down.want(t, `llm_engine_config_info`)
}

// TestGoldenChanged checks how a change is exported, on a metrics page of its own.
func TestGoldenChanged(t *testing.T) {
	page := readPage(t, "trtllm/v1.3.0-full.prom")
	engine := serve(t, page)
	now := time.Date(2026, 11, 25, 12, 3, 0, 0, time.UTC)
	c := collectorWith(t, Config{
		Targets: []TargetConfig{{
			URL: engine.URL, Image: "registry.example/trtllm:1.3@sha256:0123456789ab",
			Labels: map[string]string{"namespace": "prod", "pod": "chat-0"},
		}},
		Now: func() time.Time { return now },
	})
	exposition(t, c)
	now = now.Add(30 * time.Second)
	engine.show(strings.NewReplacer(`quantization="none"`, `quantization="fp8"`, `dtype="bfloat16"`, `dtype="half"`).Replace(page))
	var kept strings.Builder
	for line := range strings.Lines(exposition(t, c)) {
		if strings.Contains(line, "llm_engine_config_") {
			kept.WriteString(line)
		}
	}
	golden.Compare(t, "testdata/changed.prom", kept.String())
}

// TestSettingsOfThePod checks that the pod's command line is known without the process, but the process takes
// precedence if it is read. Options that the pod does not give may be in the image, so no default is assumed for
// them.
func TestSettingsOfThePod(t *testing.T) {
	engine := serve(t, readPage(t, "vllm/v0.11.2.prom"))
	pod := TargetConfig{
		URL: engine.URL, Command: []string{
			"vllm", "serve", "m", "--dtype=float16", "--revision", "892b3d7", "--api-key",
			"hunter2", "--quantization=fp8",
		},
		Labels: map[string]string{"namespace": "prod", "pod": "chat-0"},
	}
	c := collectorWith(t, Config{Targets: []TargetConfig{pod}})
	page := exposition(t, c)
	s := parse(t, page)
	s.want(t, `llm_engine_config_info{setting="dtype",value="float16",source="pod --dtype",quality="native"}`, 1)
	s.want(t, `llm_engine_config_info{setting="revision",value="892b3d7",source="pod --revision"}`, 1)
	s.want(t, `llm_engine_config_info{setting="speculation",quality="missing"}`, 1)
	if strings.Contains(page, "hunter2") {
		t.Error("a secret is on the page")
	}
	c.Commanded(c.targets[0].server, [][]string{{"vllm", "serve", "m", "--dtype=bfloat16"}})
	s = parse(t, exposition(t, c))
	s.want(t, `llm_engine_config_info{setting="dtype",value="bfloat16",source="command line --dtype"}`, 1)
	s.want(t, `llm_engine_config_info{setting="quantization",value="default",source="command line"}`, 1)
}

// TestDigestIsNoOtherEngine checks that the digest of an image, which appears once the container runs, does not make
// the target another engine. The target keeps its counts.
func TestDigestIsNoOtherEngine(t *testing.T) {
	engine := serve(t, readPage(t, "vllm/v0.11.2.prom"))
	found := func(image string) []TargetConfig {
		return []TargetConfig{{URL: engine.URL, Image: image, Labels: map[string]string{"namespace": "prod", "pod": "chat-0"}}}
	}
	c, err := collectorWith(t, Config{}).With(found("vllm:1"))
	if err != nil {
		t.Fatal(err)
	}
	next, err := c.With(found("vllm:1@sha256:0123456789ab"))
	if err != nil || next.targets[0] != c.targets[0] {
		t.Fatalf("another target, %v", err)
	}
	if page := exposition(t, next); !strings.Contains(page, `value="vllm:1@sha256:0123456789ab"`) {
		t.Error("the image is told without its digest")
	}
}
