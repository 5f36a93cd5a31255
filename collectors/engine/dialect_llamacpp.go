package engine

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// llamacpp reads the llama.cpp server. Its metrics page has no labels of its own and no histograms. Counters have six
// significant digits, so they move in steps of ten beyond a million tokens. The gauges of throughput are not read,
// because reading them resets them.
var llamacpp = Dialect{
	Runtime:   metrics.LlamaCpp,
	Source:    "llama.cpp tools/server/server-task.cpp and server.cpp, llama.cpp#13660, #26920",
	API:       "completions",
	Recognise: func(p *scrape.Page) bool { return p.HasPrefix("llamacpp:") },
	Restore:   colon("llamacpp"),
	Repair:    repairLlamaCpp,
	Compose:   llamaCppPage,
	Owner:     "llamacpp",
	Harmless:  "autoload=false", // without this, a router would load the model and evict another model
	Refusal: func(status int, kind, message string) string {
		switch {
		case status == http.StatusNotImplemented && kind == "not_supported_error":
			return reasonDisabled
		case status == http.StatusServiceUnavailable && strings.Contains(strings.ToLower(message), "loading"):
			return reasonLoading
		}
		return ""
	},
	Remedies: map[string]string{reasonDisabled: "llama.cpp: start with `--metrics`."},
	Labels:   []metrics.Carry{{From: "model", To: metrics.LabelModel}}, // metrics pages of a router, with the names of its models
	Server:   &Server{Lacks: "the decoding loop serves the metrics, so there are none while it hangs"},
	VersionHints: []VersionHint{
		{Name: "llamacpp:n_decode_total", Since: "b3678"},
		{Name: "llamacpp:n_past_max", Since: "b6189", Until: "b6889"},
		{Name: "llamacpp:n_tokens_max", Since: "b6890"},
	},
	Rows: []Row{
		{To: metrics.ModelsLoaded, From: "llamacpp:models", Is: scrape.Gauge, Absent: "not a router"},           // from its model list
		{To: metrics.Sleeping, From: "llamacpp:is_sleeping", Is: scrape.Gauge, Absent: "before it could sleep"}, // from /props
		{To: metrics.RequestsRunning, From: "llamacpp:requests_processing", Is: scrape.Gauge, Since: "b2258"},
		{To: metrics.RequestsWaiting, From: "llamacpp:requests_deferred", Is: scrape.Gauge, Since: "b2258"},
		{To: metrics.KVCacheUsage, From: "llamacpp:kv_cache_usage_ratio", Is: scrape.Gauge, Since: "b2258", Until: "b5440"},
		{
			To: metrics.PromptTokens, From: "llamacpp:prompt_tokens_cached_total", With: []string{"llamacpp:prompt_tokens_total"},
			Is: scrape.Counter, Since: "b10406",
			Fold: sum("llamacpp:prompt_tokens_cached_total", "llamacpp:prompt_tokens_total"), Quality: metrics.Derived,
			Why: "sum of processed and cached tokens",
		},
		{
			To: metrics.PromptTokens, From: "llamacpp:prompt_tokens_total", Is: scrape.Counter, Since: "b2258",
			Quality: metrics.Approximate, Why: "tokens served from the cache are not counted",
		},
		{
			To: metrics.GenerationTokens, From: "llamacpp:tokens_predicted_total", Is: scrape.Counter, Counted: metrics.CountedEnd, Since: "b2258",
			Stage:   metrics.StageNextToken,
			Quality: metrics.Approximate, Why: "counted when a request ends, so a rate needs a range longer than a request",
		},
		{To: metrics.EngineSteps, From: "llamacpp:n_decode_total", Is: scrape.Counter, Since: "b3678"},
		{
			To: metrics.PrefixCacheQueryTokens, From: "llamacpp:prompt_tokens_cached_total", With: []string{"llamacpp:prompt_tokens_total"},
			Is: scrape.Counter, Since: "b10406",
			Fold: sum("llamacpp:prompt_tokens_cached_total", "llamacpp:prompt_tokens_total"), Quality: metrics.Derived,
			Why: "sum of processed and cached tokens",
		},
		{To: metrics.PrefixCacheHitTokens, From: "llamacpp:prompt_tokens_cached_total", Is: scrape.Counter, Since: "b10406"},
		{To: metrics.SpecDecodeDraftTokens, From: "llamacpp:spec_decode_num_draft_tokens_total", Is: scrape.Counter, Since: "b10282"},
		{To: metrics.SpecDecodeAcceptedTokens, From: "llamacpp:spec_decode_num_accepted_tokens_total", Is: scrape.Counter, Since: "b10282"},
		{To: metrics.PromptTime, From: "llamacpp:prompt_seconds_total", Is: scrape.Counter, Since: "b2364"},
		{
			To: metrics.GenerationTime, From: "llamacpp:tokens_predicted_seconds_total", Is: scrape.Counter, Since: "b2364",
			Stage: metrics.StageNextToken,
		},
	},
	Settings: []Told{
		{To: metrics.SettingModel, From: "/props", At: "model_path"},
		{To: metrics.SettingVersion, From: "/props", At: "build_info"},
		{To: metrics.SettingQuantization, From: "/props", At: "model_ftype"}, // in recent builds
		{To: metrics.SettingTemplate, From: "/props", At: "chat_template", Hash: true},
		{To: metrics.SettingGeneration, From: "/props", At: "default_generation_settings.params", Hash: true},
	},
	Flags: []Flag{
		{To: metrics.SettingMaxBatchTokens, Names: "batch-size b"},
		{To: metrics.SettingKVCacheDtype, Names: "cache-type-k ctk"},
		{To: metrics.SettingSpeculation, Names: "model-draft md"},
		{To: metrics.SettingSpeculationTokens, Names: "draft-max draft draft-n"},
	},
	Untold: map[metrics.Setting]string{
		metrics.SettingRevision:  "only the name of the model's file is reported, not its contents",
		metrics.SettingTokenizer: "only the model's file contains it",
		metrics.SettingDtype:     "only the model's file contains it",
	},
	Endpoints: map[*metrics.Family]string{
		metrics.KVCacheCapacity: "/props", metrics.MaxModelLen: "/props",
		metrics.RequestsRunningLimit: "/props",
	},
	Missing: reasons(map[*metrics.Family]string{
		metrics.TimeToFirstToken:               "llama.cpp has no histograms",
		metrics.InterTokenLatency:              "llama.cpp has no histograms",
		metrics.TimePerOutputToken:             "llama.cpp has no histograms",
		metrics.RequestDuration:                "llama.cpp has no histograms",
		metrics.QueueTime:                      "llama.cpp has no histograms",
		metrics.PrefillTime:                    "llama.cpp has no histograms",
		metrics.DecodeTime:                     "llama.cpp has no histograms",
		metrics.RequestPromptTokens:            "llama.cpp has no histograms",
		metrics.RequestGenerationTokens:        "llama.cpp has no histograms",
		metrics.Requests:                       "requests are not counted",
		metrics.Preemptions:                    "llama.cpp does not preempt",
		metrics.ExternalPrefixCacheQueryTokens: "llama.cpp has none",
		metrics.ExternalPrefixCacheHitTokens:   "llama.cpp has none",
		metrics.BatchTokens:                    "llama.cpp has no histograms",
		metrics.RequestPreemptions:             "llama.cpp does not preempt",
		metrics.RequestsSwapped:                "llama.cpp does not preempt",
	}, lacks("llama.cpp has no separate prefill and decode engines", kvTransfers), lacks("llama.cpp has no tiers", kvTiers)),
	Identify: func(ctx context.Context, get Getter) (id Identity, err error) {
		var props struct {
			Build    string  `json:"build_info"`
			Slots    float64 `json:"total_slots"`
			Defaults struct {
				Context float64 `json:"n_ctx"`
			} `json:"default_generation_settings"`
		}
		err = errors.Join(id.askModels(ctx, get), get(ctx, "/props", &props))
		id.Version = props.Build
		id.number(metrics.MaxModelLen, props.Defaults.Context, "/props n_ctx")
		id.number(metrics.RequestsRunningLimit, props.Slots, "/props total_slots")
		if capacity := props.Defaults.Context * props.Slots; capacity > 0 {
			id.Numbers = append(id.Numbers, Number{
				metrics.KVCacheCapacity, capacity, "/props n_ctx, total_slots",
				metrics.Approximate, "context per slot times slots; a unified cache shares it",
			})
		}
		return id, err
	},
	Asleep: func(ctx context.Context, get Getter) bool {
		var props struct {
			IsSleeping bool `json:"is_sleeping"`
		}
		return get(ctx, "/props", &props) == nil && props.IsSleeping
	},
}

// repairLlamaCpp corrects two mistakes. It unpacks a metrics page that is one JSON string (b7090 to b7190), and writes
// NaN for -nan from printf (b3678 to b4732).
func repairLlamaCpp(body []byte) ([]byte, error) {
	if len(body) > 0 && body[0] == '"' {
		var text string
		if err := json.Unmarshal(body, &text); err != nil {
			return nil, scrape.Errorf(scrape.ParseError, "page starts like a JSON string but is not one: %w", err)
		}
		body = []byte(text)
	}
	if bytes.Contains(body, []byte(" -nan\n")) {
		body = bytes.ReplaceAll(body, []byte(" -nan\n"), []byte(" NaN\n"))
	}
	return body, nil
}

// llamaCppPage writes the metrics page of a server with its sleep state, or the metrics pages of all models that a
// router has loaded. It sends no request for an unloaded model, because the router would start that model. It sends no
// request to a sleeping server, because some builds would wake up. While a server sleeps, its counters do not change.
func llamaCppPage(ctx context.Context, c *Composer) ([]byte, error) {
	var list struct {
		Data []llamaCppModel `json:"data"`
	}
	if err := c.Document(ctx, "/v1/models", c.Model, &list); err != nil {
		return nil, err
	}
	if slices.ContainsFunc(list.Data, func(m llamaCppModel) bool { return m.Status.Value != "" }) {
		return llamaCppRouter(ctx, c, list.Data)
	}
	return llamaCppServer(ctx, c)
}

// llamaCppModel is a model in the list of a server. In the list of a router, the model also has a status.
type llamaCppModel struct {
	ID      string   `json:"id"`
	Aliases []string `json:"aliases"`
	Status  struct {
		Value string `json:"value"`
	} `json:"status"`
}

// llamaCppRouter writes the metrics pages of a router's models.
func llamaCppRouter(ctx context.Context, c *Composer, models []llamaCppModel) (page []byte, err error) {
	known := false
	for _, m := range models {
		if m.Status.Value == "" || c.Model != "" && m.ID != c.Model && !slices.Contains(m.Aliases, c.Model) {
			continue
		}
		known = true
		of := metrics.Label{Name: "model", Value: cmp.Or(c.Model, m.ID)}
		switch m.Status.Value {
		case "loaded":
			body, err := c.Page(ctx, m.ID)
			if unloaded := (*scrape.StatusError)(nil); errors.As(err, &unloaded) && unloaded.Code == http.StatusBadRequest {
				continue // the model was unloaded after the list was written
			}
			if err != nil {
				return nil, err
			}
			page = append(llamaCppLines(page, body, of, false), llamaCppSays("is_sleeping", 0, of)...)
		case "sleeping":
			page = append(llamaCppLines(page, c.Last, of, true), llamaCppSays("is_sleeping", 1, of)...)
		default:
			continue
		}
		page = append(page, llamaCppSays("models", 1, of)...)
	}
	switch {
	case !known && c.Model != "":
		return nil, &scrape.StatusError{Code: http.StatusNotFound, Message: "the router has no model " + printable(c.Model)}
	case page == nil:
		return llamaCppSays("models", 0, metrics.Label{}), nil
	}
	return page, nil
}

// llamaCppServer writes the metrics page of a server of one model. Some builds do not report whether the server sleeps.
func llamaCppServer(ctx context.Context, c *Composer) ([]byte, error) {
	var props struct {
		IsSleeping *bool `json:"is_sleeping"`
	}
	untold := c.Document(ctx, "/props", c.Model, &props)
	if untold == nil && props.IsSleeping != nil && *props.IsSleeping {
		return append(llamaCppLines(nil, c.Last, metrics.Label{}, true), llamaCppSays("is_sleeping", 1, metrics.Label{})...), nil
	}
	body, err := c.Page(ctx, c.Model)
	if err != nil {
		return nil, err
	}
	page := slices.Clone(body)
	if untold == nil && props.IsSleeping != nil {
		page = append(page, llamaCppSays("is_sleeping", 0, metrics.Label{})...)
	}
	return page, nil
}

// llamaCppSays writes a gauge that llama.cpp reports at an endpoint other than its metrics page.
func llamaCppSays(name string, value float64, of metrics.Label) []byte {
	page := []byte("# TYPE llamacpp:" + name + " gauge\n")
	return metrics.AppendValue(metrics.AppendSeries(page, "llamacpp:"+name, of), value)
}

// llamaCppLines adds the lines of a metrics page, with a label if the label has a name. If sleeps is set, the page is
// the last page before the server slept, and its lines already have the label. llamaCppLines then adds only the
// counters with this label, and zeros for running and waiting requests.
func llamaCppLines(to, page []byte, of metrics.Label, sleeps bool) []byte {
	label := bytes.Trim(metrics.AppendSeries(nil, "", of), "{}")
	counters := map[string]bool{}
	for line := range bytes.Lines(page) {
		if kind, ok := bytes.CutPrefix(line, []byte("# TYPE ")); ok {
			name, is, _ := strings.Cut(string(bytes.TrimSpace(kind)), " ")
			counters[name] = is == string(scrape.Counter)
		}
		end := bytes.IndexAny(line, "{ ")
		if line[0] == '#' || end < 0 {
			if !bytes.HasPrefix(line, []byte("# HELP ")) {
				to = append(to, line...)
			}
			continue
		}
		name, rest := string(line[:end]), line[end:]
		if !sleeps {
			switch {
			case of.Name == "":
			case rest[0] == '{':
				rest = slices.Concat([]byte("{"), label, []byte(","), rest[1:])
			default:
				rest = slices.Concat([]byte("{"), label, []byte("}"), rest)
			}
			to = append(append(to, name...), rest...)
			continue
		}
		if of.Name != "" && !bytes.HasPrefix(rest, append([]byte("{"), label...)) {
			continue
		}
		switch {
		case counters[name]:
			to = append(to, line...)
		case name == "llamacpp:requests_processing" || name == "llamacpp:requests_deferred":
			to = append(append(to, line[:bytes.LastIndexByte(line, ' ')]...), " 0\n"...)
		}
	}
	return to
}
