package probe

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/internal/httpclient"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Config describes one synthetic request that a probe repeats.
type Config struct {
	// Name sets the probe label. Default: the API.
	Name string `yaml:"name"`
	// Engines probes all targets and all discovered engines of the node, instead of one URL.
	Engines bool `yaml:"engines"`
	// URL has scheme, host and port, and the prefix of the API's paths.
	URL string `yaml:"url"`
	// API is the API of the requests: chat, completions, ollama, tgi or triton. Default: chat.
	API string `yaml:"api"`
	// Model is the name that clients use.
	Model string `yaml:"model"`
	// Interval is the mean time between two requests. Default: one minute.
	Interval model.Duration `yaml:"interval"`
	// Timeout is the time limit of one request. Default: 10 seconds.
	Timeout model.Duration `yaml:"timeout"`
	// PromptWords sets the length of the prompt in words. Default: the prompt is only the question.
	PromptWords int `yaml:"prompt_words"`
	// Nonce puts a random word at the start of each prompt, so that no prefix cache contains the prompt.
	Nonce bool `yaml:"nonce"`
	// MaxTokens limits the length of the answer. Default: 8.
	MaxTokens int `yaml:"max_tokens"`
	// TokensPerHour limits the tokens that all requests of an hour cost, to all engines together. Prompts count, too.
	// Default: 10,000.
	TokensPerHour int `yaml:"tokens_per_hour"`
	// Body has additional fields of the request, such as chat_template_kwargs. The value null removes a field.
	Body map[string]any `yaml:"body"`
	// Health is the path of a health endpoint to query before each request. Default: none.
	Health string `yaml:"health"`
	// HTTP has Prometheus' own client configuration: TLS, credentials from files, proxy. Targets with their own client
	// configuration use that configuration.
	HTTP config.HTTPClientConfig `yaml:"http_config"`
	// CredentialsFor selects the engines that get the credentials in HTTP. The selection is needed because discovery finds
	// any program that serves an engine's metrics.
	CredentialsFor *Recipients `yaml:"credentials_for"`
}

// Recipients selects the engines that get credentials. It selects by the engine's namespace in the API server, or by
// the labels in the configuration. An engine must match all given conditions. Requests to other engines have no
// credentials.
type Recipients struct {
	// Namespaces lists namespaces of pods.
	Namespaces []string `yaml:"namespaces"`
	// Labels selects labels of targets: pod, container, or labels that the configuration sets under targets.
	Labels map[string]string `yaml:"labels"`
	// InClear allows credentials for engines without TLS. Anyone on the network path can then read the credentials.
	InClear bool `yaml:"in_clear"`
}

// selects reports whether an engine gets the credentials.
func (r *Recipients) selects(o engine.Offer) bool {
	if len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, o.Namespace) {
		return false
	}
	for name, value := range r.Labels {
		if o.Labels[name] != value {
			return false
		}
	}
	return true
}

// These are the defaults of a configuration. MinInterval is a lower limit for users, because probes load the engine.
const (
	DefaultInterval = time.Minute
	defaultTimeout  = 10 * time.Second
	MinInterval     = 10 * time.Second
	confirmAfter    = 10 * time.Second
	defaultTokens   = 8
	maxPromptWords  = 100_000
	defaultBudget   = 10_000
)

// These are the parts of a prompt. The answer is always the same, and long enough for all requested tokens.
const (
	question = "Count from one to one hundred in words, separated by commas, and write nothing else."
	filler   = "the "
)

// Before the first answer, the size of the prompt is unknown. The prompt is then charged two tokens per word, and the
// tokens that a chat template adds.
const (
	tokensPerWord  = 2
	templateTokens = 64
)

// A Probe repeats one configured request. A Probe with Config.Engines sends no request itself, because the probes of
// engines are made from it.
type Probe struct {
	cfg       Config
	at        engine.Offer // of an engine of the node; for a configured URL, only its URL is set
	api       *api
	base      *url.URL
	client    *http.Client
	timeout   time.Duration
	interval  time.Duration
	userAgent string
	hurry     chan struct{} // triggers a request now
	state
}

// Compile checks configurations. Its errors are engine.ConfigErrors with the place and the remedy. interval is the
// default interval of probes.
func Compile(cfgs []Config, interval time.Duration, userAgent string) ([]*Probe, error) {
	var all []*Probe
	for i, cfg := range cfgs {
		path := fmt.Sprintf("probes[%d]", i)
		p, err := compile(path, cfg, interval, userAgent+" (synthetic probe)")
		if err != nil {
			return nil, err
		}
		if first := slices.IndexFunc(all, func(other *Probe) bool { return slices.Equal(other.labels(), p.labels()) }); first >= 0 {
			return nil, wrong(path+".name", "probes[%d] already has this name, model and server: give one of them another name", first)
		}
		all = append(all, p)
	}
	return all, nil
}

func wrong(path, format string, args ...any) error {
	return &engine.ConfigError{Path: path, Err: fmt.Errorf(format, args...)}
}

func compile(path string, cfg Config, interval time.Duration, userAgent string) (*Probe, error) {
	if cfg.Engines {
		if cfg.URL+cfg.Model+cfg.API != "" {
			return nil, wrong(path+".engines",
				"every engine gets requests at its own address for its own models: leave out url, model and api, or configure another probe")
		}
		if to := cfg.CredentialsFor; httpclient.HasCredentials(cfg.HTTP) && (to == nil || len(to.Namespaces)+len(to.Labels) == 0) {
			return nil, wrong(path+".credentials_for",
				"select the engines that get the credentials of http_config, by namespaces or labels, because discovery finds every server that "+
					"imitates an engine")
		}
		cfg.Name = cmp.Or(cfg.Name, "engines")
		return compileAt(path, cfg, engine.Offer{URL: "https://engine", API: "completions", Name: "model"}, interval, userAgent)
	}
	if cfg.CredentialsFor != nil {
		return nil, wrong(path+".credentials_for", "is only for engines: true; this probe sends its credentials to its url")
	}
	return compileAt(path, cfg, engine.Offer{URL: cfg.URL, API: cfg.API, Name: cfg.Model}, interval, userAgent)
}

// compileAt checks a configuration for one address and one model.
func compileAt(path string, cfg Config, at engine.Offer, interval time.Duration, userAgent string) (*Probe, error) {
	cfg.URL, cfg.API, cfg.Model = at.URL, cmp.Or(at.API, "chat"), at.Name
	if !reflect.DeepEqual(at.HTTP, config.HTTPClientConfig{}) {
		cfg.HTTP = at.HTTP
	}
	client, u, err := httpclient.To(path, cfg.URL, cfg.HTTP, nil)
	if err != nil {
		return nil, err
	}
	cfg.Name = cmp.Or(cfg.Name, cfg.API)
	cfg.PromptWords = cmp.Or(cfg.PromptWords, words(question))
	cfg.MaxTokens = cmp.Or(cfg.MaxTokens, defaultTokens)
	cfg.TokensPerHour = cmp.Or(cfg.TokensPerHour, defaultBudget)
	p := &Probe{
		at: at, hurry: make(chan struct{}, 1), cfg: cfg, api: apis[cfg.API], base: u, client: client, userAgent: userAgent,
		interval: cmp.Or(time.Duration(cfg.Interval), interval, DefaultInterval), timeout: cmp.Or(time.Duration(cfg.Timeout), defaultTimeout),
	}
	p.assumed, p.budget = cfg.PromptWords*tokensPerWord+templateTokens, &budget{}
	p.seen = &engine.Probed{Server: p.labels()[2], Model: p.labels()[1]}
	switch {
	case p.api == nil:
		return nil, wrong(path+".api", "no API %q: write one of %s", cfg.API, strings.Join(slices.Sorted(maps.Keys(apis)), ", "))
	case strings.HasSuffix(strings.TrimSuffix(u.Path, "/"), "/v1") || strings.HasSuffix(u.Path, p.api.path(cfg.Model)):
		return nil, wrong(path+".url", "leave out the API's own path, %s, because the exporter adds it", p.api.path(cfg.Model))
	case u.RawQuery != "" || u.Fragment != "":
		return nil, wrong(path+".url", "must have no query string: name the model under model")
	case cfg.Model == "":
		return nil, wrong(path+".model", "must be a name that clients use: curl %s/v1/models lists the names", strings.TrimSuffix(cfg.URL, "/"))
	case p.interval < MinInterval:
		return nil, wrong(path+".interval", "%s is too short for a probe: use at least %s", p.interval, MinInterval)
	case p.timeout < 0:
		return nil, wrong(path+".timeout", "must not be negative")
	case cfg.PromptWords < words(question) || cfg.PromptWords > maxPromptWords:
		return nil, wrong(path+".prompt_words", "must be from %d (the question alone) to %d", words(question), maxPromptWords)
	case cfg.MaxTokens < 1 || cfg.MaxTokens > 128:
		return nil, wrong(path+".max_tokens", "must be from 1 to 128, because a probe is not a load test")
	case p.cost() > cfg.TokensPerHour:
		return nil, wrong(path+".tokens_per_hour",
			"one request may cost %d tokens, more than %d: raise this limit, or lower prompt_words or max_tokens", p.cost(), cfg.TokensPerHour)
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.Body)) {
		if slices.Contains(own, name) {
			return nil, wrong(path+".body."+name, "the probe sets %s itself", name)
		}
	}
	if _, err := p.body(); err != nil {
		return nil, wrong(path+".body", "cannot be written as JSON: %w", err)
	}
	return p, nil
}

func words(s string) int { return len(strings.Fields(s)) }

// labels returns the values of metrics.ProbedLabels.
func (p *Probe) labels() []string {
	server, model := p.at.Server, p.at.Model
	if !p.cfg.Engines {
		server, model = p.base.Host+strings.TrimSuffix(p.base.Path, "/"), p.cfg.Model
	}
	return []string{p.cfg.Name, model, server, p.at.Namespace, p.at.Pod, p.at.Container}
}

// identity returns the labels with their names.
func (p *Probe) identity() prometheus.Labels {
	labels := prometheus.Labels{}
	for i, value := range p.labels() {
		labels[metrics.ProbedLabels[i]] = value
	}
	return labels
}

func (p *Probe) address(path string) string { return p.base.JoinPath(path).String() }

// body returns the request.
func (p *Probe) body() ([]byte, error) {
	prompt := strings.Repeat(filler, p.cfg.PromptWords-words(question)) + question
	if p.cfg.Nonce {
		prompt = rand.Text()[:8] + " " + prompt
	}
	body := p.api.body(p.cfg.Model, prompt, p.cfg.MaxTokens)
	for name, value := range p.cfg.Body {
		if body[name] = value; value == nil {
			delete(body, name)
		}
	}
	return json.Marshal(body)
}
