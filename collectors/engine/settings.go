package engine

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// A Told names a place where an engine reports one of its settings. The first place with the setting counts.
type Told struct {
	To metrics.Setting
	// From names a family of the metrics page or the path of a metadata endpoint. For a family, At is the label with the
	// value. For an endpoint, At is the place of the value in the JSON answer: a field, or nested fields joined by dots.
	From, At string
	// Model names the label of the family that holds the model, if a metrics page has several models.
	Model string
	// Unset is the value of the setting if the engine prints None or null. If None has no meaning, Unset is empty.
	Unset string
	// Hash replaces the value by its hash, because values such as templates are long.
	Hash bool
	// Map translates the value. Nil means no translation.
	Map func(string) string
}

// A Flag is an option of an engine's command line that holds a setting.
type Flag struct {
	To metrics.Setting
	// Names are the option's names, without leading dashes. Underscores are written as dashes.
	Names string // separated by spaces
	// Value is the meaning of an option without an argument.
	Value string
	// At is the field that holds the setting, if the argument is JSON.
	At string
}

// stated is a setting that an engine reported. Model is empty if the setting belongs to the whole engine.
type stated struct {
	model, value, source string
	to                   metrics.Setting
	why                  string // why the value is derived, not reported
}

// These are the reasons why a setting is not reported.
const (
	untold        = "the engine does not report it"
	unreadCommand = "only on the command line, which the exporter does not read here"
	unanswered    = "read from %s, which did not answer"

	fromCommand = "command line"
	fromPod     = "pod"

	unsetFlag    = "default" // the value of an option that is not on the command line
	unsetFlagWhy = "the option is not given"
)

// These limits apply to the values that an engine reports, because its metrics page and its answers are untrusted.
const (
	mostValueBytes = 128
	mostShown      = 16 // models whose settings are requested one by one
)

// unified gives values of the same meaning the same spelling, by setting.
var unified = map[metrics.Setting]map[string]string{
	metrics.SettingDtype: {
		"half": "float16", "fp16": "float16", "f16": "float16", "bf16": "bfloat16", "float": "float32",
		"fp32": "float32", "f32": "float32",
	},
}

// settle returns a value in its exported form. It is empty if the value has no meaning.
func (told *Told) settle(raw string) string {
	v := strings.TrimSpace(printable(raw))
	switch v {
	case "None", "null", "undefined", "":
		return told.Unset
	case "True", "False":
		v = strings.ToLower(v)
	}
	if told.Map != nil {
		v = told.Map(v)
	}
	if told.Hash {
		return hashed(v)
	}
	return presentable(told.To, v)
}

// presentable returns a value in its public form: in the common spelling, short, and without a secret.
func presentable(to metrics.Setting, v string) string {
	if to == metrics.SettingDtype {
		v = strings.TrimPrefix(strings.ToLower(v), "torch.")
	}
	v = cmp.Or(unified[to][v], v)
	if v = withoutCredentials(v); looksSecret(v) {
		return "redacted"
	}
	if len(v) > mostValueBytes {
		return hashed(v)
	}
	return v
}

// hashed returns the beginning of the SHA-256 of a text, or an empty string for an empty text.
func hashed(text string) string {
	if text == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(text))
	return "sha256:" + hex.EncodeToString(sum[:6])
}

// withoutCredentials removes user, password and query from a URL.
func withoutCredentials(v string) string {
	if !strings.Contains(v, "://") {
		return v
	}
	u, err := url.Parse(v)
	if err != nil {
		return "redacted" // a password may be in any part of the text
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	return u.String()
}

// secretShape matches the tokens and keys of services, such as Hugging Face, OpenAI, GitHub, GitLab, Slack, AWS, NVIDIA
// and Google. The pattern also matches JSON web tokens and private keys.
var secretShape = regexp.MustCompile(`(?:^|[^A-Za-z0-9])(?:hf_[A-Za-z0-9]{8,}|sk-[A-Za-z0-9_-]{8,}|gh[opsru]_[A-Za-z0-9]{8,}|github_pat_\w{8,}|glpat-[\w-]{8,}|xox[a-z]-[\w-]{8,}|` +
	`A[KS]IA[A-Z0-9]{12,}|nvapi-[\w-]{8,}|AIza[\w-]{20,}|eyJ[\w-]{10,}|-----BEGIN)`)

// secretWord matches the name of a secret in a value such as key=value or JSON.
var secretWord = regexp.MustCompile(`(?i)(?:api[-_]?key|secret|passw|token|credential|bearer|authorization)[^=:]{0,12}["']?\s*[=:]`)

// dense matches texts that may be keys: many letters and digits without a break.
var dense = regexp.MustCompile(`[A-Za-z0-9+/=_]{32,}`)

// looksSecret reports whether a value has the shape of a secret. Commits and digests do not match, because they are
// hexadecimal.
func looksSecret(v string) bool {
	if secretShape.MatchString(v) || secretWord.MatchString(v) {
		return true
	}
	for _, run := range dense.FindAllString(v, -1) {
		for part := range strings.SplitSeq(run, "/") {
			for word := range strings.SplitSeq(part, "_") {
				if len(word) >= 32 && !hexadecimal(word) && strings.ContainsAny(word, "0123456789") &&
					strings.ToLower(word) != word && strings.ToUpper(word) != word {
					return true
				}
			}
		}
	}
	return false
}

func hexadecimal(s string) bool {
	return strings.Trim(s, "0123456789abcdef") == "" || strings.Trim(s, "0123456789ABCDEF") == ""
}

// told formats a value of a JSON document. Lists and objects are printed as JSON with sorted fields, to be hashed.
func told(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case bool:
		return strconv.FormatBool(v)
	case float64:
		if v == math.Trunc(v) && math.Abs(v) < 1e15 {
			return strconv.FormatInt(int64(v), 10)
		}
		return strconv.FormatFloat(v, 'g', 6, 64)
	}
	text, _ := json.Marshal(v) // no error: the value was JSON
	return string(text)
}

// at returns the value at a path of a JSON document. The steps of a path are names of fields and indices of lists.
// there reports whether the value exists.
func at(document any, path string) (value any, there bool) {
	for step := range strings.SplitSeq(path, ".") {
		switch inside := document.(type) {
		case map[string]any:
			if document, there = inside[step]; !there {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(inside) {
				return nil, false
			}
			document = inside[i]
		default:
			return nil, false
		}
	}
	return document, true
}

// remembering returns a getter that requests each path once, because one answer may contain the identity and several
// settings.
func remembering(get Getter) Getter {
	type answer struct {
		body json.RawMessage
		err  error
	}
	known := map[string]answer{}
	return func(ctx context.Context, path string, into any) error {
		a, asked := known[path]
		if !asked {
			a.err = get(ctx, path, &a.body)
			known[path] = a
		}
		if a.err != nil {
			return a.err
		}
		return json.Unmarshal(a.body, into)
	}
}

// askSettings reads the settings that the engine's endpoints report. get must remember earlier answers.
func (id *Identity) askSettings(ctx context.Context, d *Dialect, get Getter, show func(ctx context.Context, path, model string,
	into any) error,
) (err error) {
	id.unanswered = map[string]bool{}
	for i := range d.Settings {
		where := &d.Settings[i]
		first := slices.IndexFunc(d.Settings, func(t Told) bool { return t.From == where.From })
		if !strings.HasPrefix(where.From, "/") || first < i {
			continue
		}
		of := []string{""}
		if where.Model != "" {
			of = id.shown
		}
		for _, model := range of {
			var document any
			var failed error
			if where.Model != "" {
				failed = show(ctx, where.From, model, &document)
			} else {
				failed = get(ctx, where.From, &document)
			}
			if failed != nil {
				id.unanswered[where.From] = true
				// Other releases lack this path.
				if none := (*scrape.StatusError)(nil); !errors.As(failed, &none) || none.Code != http.StatusNotFound {
					err = errors.Join(err, failed)
				}
				continue
			}
			for j := range d.Settings[i:] {
				if told := &d.Settings[i+j]; told.From == where.From {
					id.stateAt(told, model, document)
				}
			}
		}
	}
	return err
}

// stateAt adds the setting in a document, unless another source has reported this setting.
func (id *Identity) stateAt(where *Told, model string, document any) {
	v, there := at(document, where.At)
	if !there {
		return
	}
	value := where.settle(told(v))
	if value == "" || slices.ContainsFunc(id.settings, func(s stated) bool { return s.to == where.To && s.model == model }) {
		return
	}
	id.settings = append(id.settings, stated{model: model, to: where.To, value: value, source: where.From + " " + where.At})
}

// settingsOf returns the settings that the metrics page and the endpoints of an engine report. If several ranks report
// different values of a setting, settingsOf joins these values.
func (d *Dialect) settingsOf(p *scrape.Page, id Identity, names func(string) string) (all []stated) {
	add := func(s stated) {
		if !slices.ContainsFunc(all, func(o stated) bool { return o.to == s.to && o.model == s.model }) {
			all = append(all, s)
		}
	}
	for i := range d.Settings {
		where := &d.Settings[i]
		if strings.HasPrefix(where.From, "/") {
			continue
		}
		values := map[string][]string{} // by model
		for _, f := range p.Families[scrape.FamilyKey(where.From)] {
			for _, s := range f.Samples {
				model := ""
				if where.Model != "" {
					model = names(s.Labels.Get(where.Model))
				}
				value := ""
				if s.Labels.Has(where.At) {
					value = where.settle(s.Labels.Get(where.At))
				}
				if value != "" && !slices.Contains(values[model], value) && len(values) <= mostShown {
					values[model] = append(values[model], value)
				}
			}
		}
		for _, model := range slices.Sorted(maps.Keys(values)) {
			slices.Sort(values[model])
			add(stated{model: model, to: where.To, value: presentable(where.To, strings.Join(values[model], ",")), source: where.From + "{" +
				where.At + "}"})
		}
	}
	for _, s := range id.settings {
		add(s)
	}
	if version := (&Told{To: metrics.SettingVersion}).settle(id.Version); version != "" {
		add(stated{to: metrics.SettingVersion, value: version, source: "its version"})
	}
	return all
}

// whyUntold explains why an engine does not report a setting.
func (d *Dialect) whyUntold(to metrics.Setting, id Identity) string {
	for i := range d.Settings {
		if where := &d.Settings[i]; where.To == to {
			switch {
			case id.unanswered[where.From] && id.Locked:
				return NeedsKey + where.From
			case id.unanswered[where.From]:
				return strings.Replace(unanswered, "%s", where.From, 1)
			case strings.HasPrefix(where.From, "/"):
				return "not in the answer of " + where.From
			}
			return "not on the page: " + where.From + "{" + where.At + "}"
		}
	}
	if slices.ContainsFunc(d.Flags, func(f Flag) bool { return f.To == to }) {
		return unreadCommand
	}
	return d.Untells(to)
}

// Untells explains why an engine does not report a setting. Two settings have other sources: the release comes from the
// endpoints that name the engine, and the image comes from the engine's pod.
func (d *Dialect) Untells(to metrics.Setting) string {
	switch {
	case d.Untold[to] != "":
		return d.Untold[to]
	case to == metrics.SettingImage:
		return "no pod is known"
	}
	return untold
}

// SizeOf returns the quantity whose value is a setting, or nil.
func SizeOf(to metrics.Setting) *metrics.Family {
	for f, s := range sizes {
		if s == to {
			return f
		}
	}
	return nil
}

// ofCommand returns the settings on the command lines of a process and of its parents. The process comes first. For
// each option that is on none of the command lines, it returns that the option is not set.
func (d *Dialect) ofCommand(lines [][]string) (all []stated) {
	if len(lines) == 0 {
		return nil
	}
	all = d.given(fromCommand, lines)
	for i := range d.Flags {
		f := &d.Flags[i]
		if !slices.ContainsFunc(all, func(s stated) bool { return s.to == f.To }) {
			all = append(all, stated{to: f.To, value: unsetFlag, source: fromCommand, why: unsetFlagWhy})
		}
	}
	return all
}

// given returns the settings on command lines. For each setting, the first line that contains the setting counts.
// Options that are not among the engine's flags are dropped, because they may contain secrets.
func (d *Dialect) given(source string, lines [][]string) (all []stated) {
	tell := func(f *Flag, value string) {
		if f.At != "" {
			var document any
			if json.Unmarshal([]byte(value), &document) != nil {
				return
			}
			v, there := at(document, f.At)
			if value = told(v); !there {
				return
			}
		}
		where := Told{To: f.To}
		if value = where.settle(value); value != "" && !slices.ContainsFunc(all, func(s stated) bool { return s.to == f.To }) {
			all = append(all, stated{to: f.To, value: value, source: source + " " + d.spelt(f)})
		}
	}
	for _, line := range lines {
		for i := 0; i < len(line); i++ {
			name, value, given := option(line[i])
			flags := d.flagsOf(name)
			switch {
			case given:
			case len(flags) > 0 && flags[0].Value != "":
				value, given = flags[0].Value, true
			case len(flags) > 0 || secretName.MatchString(name): // the next argument may be a secret, so it is skipped
				if i++; i < len(line) {
					value, given = line[i], true
				}
			}
			for _, f := range flags {
				if given {
					tell(f, value)
				}
			}
		}
	}
	return all
}

// secretName matches the name of an option that takes a secret.
var secretName = regexp.MustCompile(`(?i)key|token|secret|passw|credential|auth`)

// option splits an argument of a command line: --name, --name=value or -n.
func option(argument string) (name, value string, given bool) {
	bare := strings.TrimLeft(argument, "-")
	if bare == argument || bare == "" || strings.ContainsAny(bare, " \n") && !strings.Contains(bare, "=") {
		return "", "", false
	}
	name, value, given = strings.Cut(bare, "=")
	return strings.ReplaceAll(name, "_", "-"), value, given
}

// flagsOf returns the flags whose values are in an option of this name.
func (d *Dialect) flagsOf(name string) (all []*Flag) {
	for i := range d.Flags {
		if slices.Contains(strings.Fields(d.Flags[i].Names), name) {
			all = append(all, &d.Flags[i])
		}
	}
	return all
}

// spelt returns a flag's first name as people write it.
func (d *Dialect) spelt(f *Flag) string {
	name := strings.Fields(f.Names)[0]
	if f.At != "" {
		return "--" + name + " " + f.At
	}
	return "--" + name
}

// sizes lists quantities that are also settings. Engines report these quantities in many ways, which the rows describe.
var sizes = map[*metrics.Family]metrics.Setting{
	metrics.MaxModelLen:          metrics.SettingMaxModelLen,
	metrics.KVCacheCapacity:      metrics.SettingKVCacheTokens,
	metrics.RequestsRunningLimit: metrics.SettingMaxSequences,
}

// sized is a setting whose value comes from lines of a plan.
type sized struct {
	to             metrics.Setting
	runtime, model string
	lines          []int
}

// value adds up the lines, or returns the largest line, depending on their family. It returns NaN if a line has no value.
func (s *sized) value(p *plan, values []float64) (total float64) {
	for _, i := range s.lines {
		switch v := p.lines[i].eval(values); {
		case math.IsNaN(v), !p.lines[i].family.Plausible(v):
			return math.NaN()
		case p.lines[i].family.Aggregate == metrics.Sum:
			total += v
		default:
			total = max(total, v)
		}
	}
	return total
}

// labelsOfSeries matches the runtime and the model among the labels of a rendered series.
var labelsOfSeries = regexp.MustCompile(`[{,](` + metrics.LabelRuntime + "|" + metrics.LabelModel + `)="((?:[^"\\]|\\.)*)"`)

// findSizes collects the lines of the plan that report settings.
func (p *plan) findSizes() {
	for i := range p.lines {
		to, ok := sizes[p.lines[i].family]
		if !ok || p.role == metrics.GatewayRole {
			continue
		}
		one := sized{to: to}
		for _, m := range labelsOfSeries.FindAllStringSubmatch(p.lines[i].text, -1) {
			if m[1] == metrics.LabelModel {
				one.model = m[2]
			} else {
				one.runtime = m[2]
			}
		}
		at := slices.IndexFunc(p.sized, func(s sized) bool { return s.to == to && s.model == one.model && s.runtime == one.runtime })
		if at < 0 {
			p.sized = append(p.sized, one)
			at = len(p.sized) - 1
		}
		p.sized[at].lines = append(p.sized[at].lines, i)
	}
}

// runs holds an engine of a metrics page, and the settings with which the engine runs.
type runs struct {
	dialect  *Dialect
	out      [outLabels]string // labels of the engine as a whole
	id       Identity
	settings []stated
}

// record adds the settings of an engine to the plan. Gateways and services for KV cache are left out, because they run no model.
func (c *compiler) record(d *Dialect, defaults map[string]string, models []string) {
	if d.Role != "" && d.Role != metrics.FrontendRole || d.Shared {
		return
	}
	out := c.whole(d, defaults)
	if len(models) == 1 && d.Chains == nil { // the metrics page names its only model
		out[outModel] = models[0]
	}
	c.plan.runs = append(c.plan.runs, runs{dialect: d, out: out, id: c.identity, settings: d.settingsOf(c.page, c.identity, asItself)})
}
