package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// document reads an answer of a metadata endpoint.
func document(t testing.TB, name string) string {
	b, err := os.ReadFile(filepath.Join("testdata/identity", name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// settingsOn returns the settings in an exposition, as setting=value, and the reasons for the missing ones.
func settingsOn(s samples) (told []string, missing map[string]string) {
	missing = map[string]string{}
	for _, one := range s {
		if one.labels.Get("__name__") != metrics.EngineConfig.Name {
			continue
		}
		if one.labels.Get(metrics.LabelQuality) == string(metrics.Missing) {
			missing[one.labels.Get(metrics.LabelSetting)] = one.labels.Get(metrics.LabelReason)
		} else {
			told = append(told, one.labels.Get(metrics.LabelSetting)+"="+one.labels.Get(metrics.LabelValue))
		}
	}
	slices.Sort(told)
	return told, missing
}

// TestSettingsOfEngines checks the settings that each engine reports on its metrics page and at its endpoints, and
// why the rest is missing.
func TestSettingsOfEngines(t *testing.T) {
	for _, c := range []struct {
		page      string
		documents map[string]string // by path, files
		want      string
		missing   map[metrics.Setting]string
	}{
		{
			"vllm/v0.32.0-healthy.prom",
			map[string]string{"/version": "vllm-version.json", "/v1/models": "vllm-models.json"},
			"gpu_memory_fraction=0.92 kv_block_size=128 kv_cache_dtype=auto kv_cache_tokens=* max_model_len=131072 " +
				"model=ibm-granite/granite-4.0-h-small prefix_caching=true version=",
			map[metrics.Setting]string{
				metrics.SettingQuantization: unreadCommand, metrics.SettingTemplate: unreadCommand,
				metrics.SettingImage: "no pod is known",
			},
		},
		{
			"tgi/v3.3.7-loaded.prom",
			map[string]string{"/info": "tgi-info.json"},
			"image=sha-24bb6c0 max_model_len=8192 max_queue=128 model=HuggingFaceH4/zephyr-7b-beta revision=892b3d7a7b1cf10c7a701c60881cd93df615734c " +
				"version=3.3.7",
			map[metrics.Setting]string{metrics.SettingDtype: "not in the answer of /info", metrics.SettingTemplate: untold},
		},
		{
			"tei/embed-loaded.prom",
			map[string]string{"/info": "tei-info.json"},
			"dtype=float16 image=sha-f1a39b2 max_batch_tokens=16384 max_model_len=8192 model=BAAI/bge-m3 " +
				"revision=5617a9f61b028005a4858fdac845db406aefb181 version=1.7.2",
			map[metrics.Setting]string{metrics.SettingSpeculation: noOutputTokens, metrics.SettingKVCacheDtype: noKVCache},
		},
		{
			"llamacpp/b10450-loaded.prom",
			map[string]string{"/props": "llamacpp-props-full.json", "/v1/models": "llamacpp-models.json"},
			"generation=sha256:* kv_cache_tokens=65536 max_model_len=8192 max_sequences=8 model=/models/gemma-3-4b-it-Q4_K_M.gguf " +
				"quantization=Q4_K - Medium template=sha256:* version=b10450-abc1234",
			map[metrics.Setting]string{metrics.SettingKVCacheDtype: unreadCommand},
		},
		{
			"sglang/v0.5.9-priority.prom",
			map[string]string{"/server_info": "sglang-server-info-full.json", "/v1/models": "sglang-models.json"},
			"chunked_prefill=8192 data_parallel=1 dtype=bfloat16 expert_parallel=1 generation=default gpu_memory_fraction=0.84 " +
				"kv_block_size=64 kv_cache_dtype=auto kv_cache_tokens=* " +
				"max_batch_tokens=16384 max_model_len=40960 max_sequences=* model=Qwen/Qwen3-32B pipeline_parallel=1 prefix_caching=true " +
				"quantization=fp8 revision=default speculation=EAGLE3 " +
				"speculation_tokens=4 template=default tensor_parallel=2 tokenizer=Qwen/Qwen3-32B version=0.5.9",
			map[metrics.Setting]string{metrics.SettingImage: "no pod is known"},
		},
		{
			"trtllm/v1.3.0-full.prom", nil,
			"dtype=bfloat16 gpu=* gpu_memory_fraction=0.9 kv_cache_tokens=* max_model_len=32768 max_sequences=256 " +
				"model=nvidia/nemotron-3-nano pipeline_parallel=1 quantization=none tensor_parallel=2",
			map[metrics.Setting]string{metrics.SettingMaxBatchTokens: unreadCommand},
		},
		{
			"lmdeploy/v0.14.0.prom", nil, "gpu_memory_fraction=0.8 kv_block_size=64 prefix_caching=true tensor_parallel=1",
			map[metrics.Setting]string{metrics.SettingDtype: unreadCommand},
		},
		{
			"nim/1.x.prom",
			map[string]string{"/v1/metadata": "nim-metadata.json"},
			"max_sequences=* model=ngc://nim/meta/llama-3.1-8b-instruct:hf-1d54af3-nim1.2 version=1.8.4",
			map[metrics.Setting]string{metrics.SettingDtype: untold},
		},
		{
			"ollama/0.12.6-one.json",
			map[string]string{"/api/show": "ollama-show.json", "/api/version": "ollama-version.json"},
			"generation=sha256:* max_model_len=* quantization=Q4_K_M revision=* template=sha256:* version=0.12.6",
			map[metrics.Setting]string{metrics.SettingTokenizer: "only the model's file contains it; the file's digest is the revision"},
		},
	} {
		t.Run(c.page, func(t *testing.T) {
			engine := serve(t, readPage(t, c.page))
			if strings.HasPrefix(c.page, "ollama/") {
				engine.path = "/api/ps"
			}
			for path, file := range c.documents {
				engine.documents[path] = document(t, file)
			}
			told, missing := settingsOn(parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: engine.URL}}))))
			want := slices.Sorted(slices.Values(settingPattern.FindAllString(c.want, -1)))
			if !slices.EqualFunc(told, want, func(got, want string) bool {
				begin, open := strings.CutSuffix(want, "*")
				return got == want || open && strings.HasPrefix(got, begin) && got != begin || strings.HasSuffix(want, "=") &&
					strings.HasPrefix(got, want)
			}) {
				t.Errorf("got  %q\nwant %q", told, want)
			}
			for setting, why := range c.missing {
				if missing[string(setting)] != why {
					t.Errorf("%s is missing because %q, want %q", setting, missing[string(setting)], why)
				}
			}
			for _, setting := range metrics.Settings {
				said := slices.ContainsFunc(told, func(s string) bool { return strings.HasPrefix(s, string(setting)+"=") })
				if (missing[string(setting)] != "") == said {
					t.Errorf("%s is told: %t, and missing because %q", setting, said, missing[string(setting)])
				}
			}
		})
	}
}

// settingPattern matches one setting with its value, which may have spaces.
var settingPattern = regexp.MustCompile(`[a-z_]+=(?:[^ ]| - )*`)

// TestEndpointsThatDoNotAnswer checks that a setting is missing because of its endpoint, and appears once the
// endpoint answers.
func TestEndpointsThatDoNotAnswer(t *testing.T) {
	engine := serve(t, readPage(t, "tgi/v3.3.7-loaded.prom"))
	c := collectorFor(t, []TargetConfig{{URL: engine.URL}})
	if _, missing := settingsOn(parse(t, exposition(t, c))); missing["revision"] != "read from /info, which did not answer" {
		t.Errorf("the revision is missing because %q", missing["revision"])
	}
	engine.documents["/info"] = document(t, "tgi-info.json")
	target := c.targets[0]
	id := target.identities[metrics.TGI]
	id.retry = time.Now().Add(-time.Second)
	target.identities[metrics.TGI] = id
	if told, _ := settingsOn(parse(t, exposition(t, c))); !slices.Contains(told, "model=HuggingFaceH4/zephyr-7b-beta") {
		t.Errorf("it is told later: %q", told)
	}
}

// TestVersionOfAnEndpointThatDoesNotAnswer checks that the engine is not blamed for a missing version if the
// version's endpoint does not answer.
func TestVersionOfAnEndpointThatDoesNotAnswer(t *testing.T) {
	for page, why := range map[string]string{
		"vllm/v0.32.0-healthy.prom":   "read from /version, which did not answer",
		"tgi/v3.3.7-loaded.prom":      "read from /info, which did not answer",
		"sglang/v0.5.9-priority.prom": "read from /server_info, which did not answer",
		"llamacpp/b10450-loaded.prom": "read from /props, which did not answer",
	} {
		engine := serve(t, readPage(t, page))
		if _, missing := settingsOn(parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: engine.URL}})))); missing["version"] != why {
			t.Errorf("%s: the version is missing because %q, want %q", page, missing["version"], why)
		}
	}
	engine := serve(t, readPage(t, "vllm/v0.32.0-healthy.prom"))
	engine.documents["/version"] = `{"release": "0.32.0"}`
	if _, missing := settingsOn(parse(t, exposition(t, collectorFor(t,
		[]TargetConfig{{URL: engine.URL}})))); missing["version"] != "not in the answer of /version" {
		t.Errorf("the version is missing because %q", missing["version"])
	}
}

// TestCommandLines checks that only settings are taken from a command line. The lines hold secrets in each way in
// which people write them.
func TestCommandLines(t *testing.T) {
	const hidden = "hunter2hunter2"
	const token = "hf_" + "AbCdEfGhIjKlMnOpQrSt"
	for _, c := range []struct {
		name    string
		dialect *Dialect
		lines   [][]string
		want    string
	}{
		{
			"a usual one", &vllm,
			[][]string{{
				"python3", "/usr/bin/vllm", "serve", "m", "--quantization", "fp8", "--max-num-seqs=64", "-tp",
				"2", "--enable-chunked-prefill", "--dtype", "half",
				"--speculative-config", `{"method": "ngram", "num_speculative_tokens": 5}`,
			}},
			"chunked_prefill=true dtype=float16 max_sequences=64 quantization=fp8 speculation=ngram speculation_tokens=5 tensor_parallel=2",
		},
		{
			"underscores, a parent with the rest", &vllm,
			[][]string{{"vllm::worker"}, {
				"vllm", "serve", "--max_num_batched_tokens", "4096",
				"--no-enable-prefix-caching",
			}},
			"max_batch_tokens=4096 prefix_caching=false",
		},
		{"secrets by name", &vllm, [][]string{{
			"vllm", "--api-key", hidden, "--hf-token=" + hidden, "--ssl-keyfile-password", hidden,
			"--revision", "main",
		}}, "revision=main"},
		{
			"a secret that looks like an option", &vllm,
			[][]string{{"vllm", "--api-key", "--quantization=" + hidden, "--dtype", "bfloat16"}},
			"dtype=bfloat16",
		},
		{
			"secrets by shape", &vllm,
			[][]string{{"vllm", "--revision", token, "--tokenizer", "https://user:" + hidden + "@hub/tok?token=" +
				hidden, "--chat-template", "s3://k:" + hidden + "@b/t"}},
			"revision=redacted template=s3://b/t tokenizer=https://hub/tok",
		},
		{
			"secrets inside of JSON", &vllm,
			[][]string{{
				"vllm", "--override-generation-config", `{"api_key": "` + hidden + `"}`,
				"--speculative-config", `{"method": "sk-` + hidden + `"}`,
			}},
			"generation=redacted speculation=redacted",
		},
		{"JSON that is none", &vllm, [][]string{{"vllm", "--speculative-config", `{"method": "` + hidden}}, ""},
		{"nothing follows", &vllm, [][]string{{"vllm", "--dtype"}}, ""},
		{"a shell's line in one word", &vllm, [][]string{{"sh", "-c", "vllm serve m --api-key " + hidden + " --dtype half"}}, ""},
		{
			"too long, control characters", &vllm,
			[][]string{{"vllm", "--revision", strings.Repeat("x", 4000), "--dtype", "half\x1b[31m\n"}},
			"dtype=half?[31m? revision=sha256:*",
		},
		{
			"a launcher and its router", &tgi,
			[][]string{
				{"text-generation-router", "--tokenizer-name", "m"},
				{"text-generation-launcher", "--quantize", "awq", "--num-shard", "2", "--kv-cache-dtype", "fp8_e5m2"},
			},
			"kv_cache_dtype=fp8_e5m2 quantization=awq tensor_parallel=2",
		},
		{
			"short options", &llamacpp,
			[][]string{{"llama-server", "-m", "x.gguf", "-ctk", "q8_0", "-b", "512", "--api-key", hidden}},
			"kv_cache_dtype=q8_0 max_batch_tokens=512",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var told []string
			for _, s := range c.dialect.ofCommand(c.lines) {
				text := string(s.to) + "=" + s.value
				if strings.Contains(text+s.source+s.why, hidden) || strings.Contains(text, token) {
					t.Errorf("the secret is in %v", s)
				}
				if len(s.value) > mostValueBytes {
					t.Errorf("%d bytes: %v", len(s.value), s)
				}
				if s.value != unsetFlag {
					told = append(told, text)
				}
			}
			slices.Sort(told)
			want := strings.Fields(c.want)
			if !slices.EqualFunc(told, want, func(got, want string) bool {
				begin, open := strings.CutSuffix(want, "*")
				return got == want || open && strings.HasPrefix(got, begin)
			}) {
				t.Errorf("got %q, want %q", told, want)
			}
		})
	}
}

// TestCommandReachesThePage checks that the command line supplies what the metrics page and the endpoints do not
// report, and that an option that is not given has its default.
func TestCommandReachesThePage(t *testing.T) {
	engine := serve(t, readPage(t, "vllm/v0.32.0-healthy.prom"))
	c := collectorFor(t, []TargetConfig{{URL: engine.URL}})
	exposition(t, c)
	c.Commanded("engine-0:80", [][]string{{"vllm", "serve", "m", "--quantization", "fp8", "--kv-cache-dtype", "fp8", "--api-key", "s3cr3t"}})
	page := parse(t, exposition(t, c))
	page.want(t, `llm_engine_config_info{setting="quantization",value="fp8",source="command line --quantization",quality="native"}`, 1)
	page.want(t, `llm_engine_config_info{setting="dtype",value="default",source="command line",quality="derived",reason="the option is not given"}`, 1)
	// The metrics page has precedence.
	page.want(t, `llm_engine_config_info{setting="kv_cache_dtype",value="auto",source="vllm:cache_config_info{cache_dtype}"}`, 1)
	if text := exposition(t, c); strings.Contains(text, "s3cr3t") {
		t.Error("the key is on the page")
	}
	page.want(t, `llm_engine_config_changed_timestamp_seconds`) // a newly learnt value is not a change
}

// TestHostileAnswers checks endpoints that answer anything. The output is bounded in number, size and characters,
// and contains no secret.
func TestHostileAnswers(t *testing.T) {
	long := strings.Repeat("A\\u0000\\u202e", 20_000)
	for _, answer := range []string{
		`{"version":"0.5.9","dtype":"` + long +
			`","api_key":"hunter2","model_path":"https://u:hunter2@h/m?key=hunter2","tokenizer_path":"sk-hunter2hunter2"}`,
		`{"version":"0.5.9","dtype":{"a":["hunter2 api_key=hunter2"]},"quantization":[[[[]]]],"tp_size":1e308,"dp_size":-1,"pp_size":"NaN"}`,
		`[]`, `null`, `"x"`, `{"dtype":`, strings.Repeat(`{"dtype":`, 20_000), `{"chat_template":"` + strings.Repeat("x",
			scrape.MaxDocumentBytes) + `"}`,
	} {
		engine := serve(t, readPage(t, "sglang/v0.5.9-priority.prom"))
		engine.documents["/server_info"] = answer
		text := exposition(t, collectorFor(t, []TargetConfig{{URL: engine.URL}}))
		if strings.Contains(text, "hunter2") {
			t.Errorf("a secret of %.60s is on the page", answer)
		}
		n := 0
		for _, one := range parse(t, text) {
			if one.labels.Get("__name__") != metrics.EngineConfig.Name {
				continue
			}
			n++
			if v := one.labels.Get(metrics.LabelValue); len(v) > mostValueBytes || v != printable(v) {
				t.Errorf("%d bytes of %.60q", len(v), v)
			}
		}
		if n != len(metrics.Settings) {
			t.Errorf("%d series, want one of each setting, for %.60s", n, answer)
		}
		parse(t, text).want(t, "llm_engine_up", 1)
	}
}

// TestSecretsByShape checks values with the shape of a secret, and values that only resemble one.
func TestSecretsByShape(t *testing.T) {
	for _, secret := range []string{
		"hf_AbCdEfGhIjKlMnOp", "sk-proj-abcdefgh12345", "ghp_0123456789abcdef", "AKIAIOSFODNN7EXAMPLE",
		"nvapi-abcdefgh-1234", "eyJhbGciOiJIUzI1NiJ9.e30",
		"-----BEGIN PRIVATE KEY-----", "x --api-key=abc", `{"password": "x"}`, "zX9kQ2mB7vL4nT8pR1sW6yC3fH5jD0gA", "path/glpat-abcdefgh1234",
	} {
		if !looksSecret(secret) {
			t.Errorf("%q is shown", secret)
		}
	}
	for _, plain := range []string{
		"fp8_e4m3", "meta-llama/Llama-3.1-8B-Instruct-AWQ-INT4", "892b3d7a7b1cf10c7a701c60881cd93df615734c",
		"/models/gemma-3-4b-it-Q4_K_M.gguf",
		"ngc://nim/meta/llama-3.1-8b-instruct:hf-1d54af3-nim1.2", "task-runner", "vllm/vllm-openai:v0.32.0@sha256:0123456789ab",
		"/root/.cache/huggingface/hub/models--Qwen--Qwen3-32B/snapshots/9216db5781bf21249d130ec9da846c4624c16137",
		"tokenizer.json", "Q4_K - Medium", "RedHatAI/Mistral-Small-3.2-24B-Instruct-2506-quantized.w8a8",
	} {
		if looksSecret(plain) || presentable(metrics.SettingModel, plain) != plain {
			t.Errorf("%q is not shown: %q", plain, presentable(metrics.SettingModel, plain))
		}
	}
}

// TestEnginesAreAskedAgain checks that an engine's settings are requested again after a while if its metrics page has
// no start time, which hides a restart between two scrapes. An engine that does not answer then keeps its earlier
// answers.
func TestEnginesAreAskedAgain(t *testing.T) {
	engine := serve(t, readPage(t, "tgi/v3.3.7-loaded.prom"))
	engine.documents["/info"] = document(t, "tgi-info.json")
	c := collectorFor(t, []TargetConfig{{URL: engine.URL}})
	exposition(t, c)
	exposition(t, c)
	if n := engine.asked("/info"); n != 1 {
		t.Errorf("asked %d times at once", n)
	}
	age := func() {
		id := c.targets[0].identities[metrics.TGI]
		id.asked = id.asked.Add(-identityAge - time.Second)
		c.targets[0].identities[metrics.TGI] = id
	}
	engine.documents["/info"] = strings.Replace(document(t, "tgi-info.json"), "892b3d7a", "aaaaaaaa", 1)
	age()
	page := parse(t, exposition(t, c))
	page.want(t, `llm_engine_config_info{setting="revision",value="aaaaaaaa7b1cf10c7a701c60881cd93df615734c"}`, 1)
	if at := page.get(t, `llm_engine_config_changed_timestamp_seconds{setting="revision",old=~"892b3d7a.*",new=~"aaaaaaaa.*"}`); len(at) != 1 || time.Since(time.UnixMilli(int64(1000*at[0]))) > time.Minute {
		t.Errorf("changed at %v", at)
	}
	delete(engine.documents, "/info")
	age()
	parse(t, exposition(t, c)).want(t, `llm_engine_config_info{setting="revision",value="aaaaaaaa7b1cf10c7a701c60881cd93df615734c"}`, 1)
	if n := engine.asked("/info"); n != 3 {
		t.Errorf("asked %d times, want 3", n)
	}
	exposition(t, c)
	if n := engine.asked("/info"); n != 3 {
		t.Errorf("an engine that does not answer is asked in each scrape: %d times", n)
	}
}

// TestShowHasTheModel checks that the exporter queries Ollama about each model by name.
func TestShowHasTheModel(t *testing.T) {
	var id Identity
	var asked []string
	id.shown = []string{"a:latest", "b:latest"}
	err := id.askSettings(context.Background(), &ollama, func(context.Context, string, any) error { return nil },
		func(_ context.Context, path, model string, into any) error {
			asked = append(asked, path+" "+model)
			return json.Unmarshal([]byte(fmt.Sprintf(`{"template": %q}`, "of "+model)), into)
		})
	if err != nil || len(asked) != 2 {
		t.Errorf("asked %q: %v", asked, err)
	}
	if len(id.settings) != 2 || id.settings[0].value == id.settings[1].value || id.settings[0].model != "a:latest" {
		t.Errorf("%+v", id.settings)
	}
}
