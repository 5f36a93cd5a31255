package engine

import (
	"cmp"
	"context"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// A Dialect maps one engine's metrics page to the vocabulary. It is a table that people can compare with the engine's
// documentation. Every peculiarity of an engine is in the engine's own file, as a row or as a small function with a
// name beside the rows.
type Dialect struct {
	// Runtime is the value of the runtime label.
	Runtime metrics.Runtime
	// Source cites the sources of the table's facts.
	Source string
	// Paths lists the paths at which the engine may serve its metrics page, in the order to try. Nil means /metrics.
	Paths []string
	// Drains is set if each read of the engine's /metrics removes the data that it returns, so that other readers miss
	// this data. The exporter must not read such a /metrics.
	Drains *Drains
	// Repair makes an answer readable. It corrects mistakes of the engine, or turns an answer in JSON into a metrics page.
	// It is called for every answer.
	Repair func(body []byte) ([]byte, error)
	// Compose writes the metrics page of an engine if reading its /metrics has side effects, or if its /metrics covers
	// only one of several models: see Owner. For all other engines, Compose is nil.
	Compose func(ctx context.Context, c *Composer) ([]byte, error)
	// Owner is the value of owned_by in the model list (/v1/models) of engines whose metrics page is composed.
	Owner string
	// Harmless has the query parameters that the exporter adds to its requests to the engine, to prevent side effects.
	Harmless string
	// Restore renames families and labels to the engine's own names, if users, intermediaries or other releases have
	// changed them. Restore is called on every metrics page, before the metrics page is recognised.
	Restore func(byName map[string]*scrape.Family)
	// Refusal returns the reason label for an answer other than 200, from the type and the message of the error in its
	// JSON body. If the answer shows only the status, Refusal returns an empty string. It is called for every such answer.
	Refusal func(status int, kind, message string) (reason string)
	// Remedies describes what to do about a value of the reason label with this engine, by value.
	Remedies map[string]string
	// Costs describes the cost of setting a flag that an Absent asks for, by the text of the Absent. Operators thus see
	// the cost before they set the flag.
	Costs map[string]string
	// Recognise reports whether a metrics page is in this dialect.
	Recognise func(p *scrape.Page) bool
	// VersionHints derive a range of versions from the families on the engine's metrics page. They are used if no endpoint
	// reports the version.
	VersionHints []VersionHint
	// Labels has the label mappings that apply to all rows.
	Labels []metrics.Carry
	// API names the API through which clients request tokens, as in the configuration of probes. It is empty if the host
	// and port of the metrics page serve no such API.
	API string
	// Tokenless marks a server that generates no tokens. Objectives on the latency of tokens do not apply to such a server.
	Tokenless bool
	// Role sets the role label of every series of the metrics page, for servers that are not engines themselves.
	Role string
	// Sidecar marks a gateway whose metrics page includes the metrics of the servers beside it. Families of engines on a
	// sidecar's metrics page are read. On the metrics page of any other gateway, families of engines are copies.
	Sidecar bool
	// Replicas lists labels that distinguish copies of the same number, such as the pid of several API servers or the
	// tensor-parallel rank. If series differ only in these labels, the largest value counts. Any other label splits a
	// number into parts, so series with the same output labels are added up.
	Replicas []string
	// Total names a label that splits a family into parts. The series without this label has the total of all parts.
	Total string
	// Models is for servers that count the same request under several models. The function that it returns maps each model
	// to the model under which its requests count: itself, a model that calls it, or none. If Models is nil, each model
	// counts as itself.
	Models func(p *scrape.Page, id Identity) func(model string) (as string)
	// Behind means that requests come through a frontend. If the engine dies, the frontend counts its requests as failed
	// or sends them again, so they do not count as lost.
	Behind bool
	// Supplement marks a dialect that accompanies an engine's own dialect on the same metrics page. If the engine does not
	// report a quantity, the rows of the supplement are tried, under the engine's runtime.
	Supplement bool
	// Ready names a gauge of a frontend with a series for each model. The value is above 0 while the model has a worker.
	Ready string
	// ReadyBeside lists families that exist only in releases with Ready. If a metrics page has one of these families but
	// no series of Ready, there is no worker.
	ReadyBeside []string
	// Members names a family with a series for each worker, including workers that are not ready. If a metrics page has
	// such a series, there is a worker, whatever Ready shows.
	Members string
	// Serves lists the families of a gateway or frontend that name only served models: see known.
	Serves []Shown
	// Shared marks a server that works for several engines, although it is neither a gateway nor a frontend.
	Shared bool
	// TiersInHits means that the engine's hits of the prefix cache include hits in lower tiers of the KV cache and hits
	// through KV connectors.
	TiersInHits bool
	// Rows holds the table.
	Rows []Row
	// Server names the metrics of the HTTP server in front of the engine, which may show requests that the engine's own
	// gauges miss. If there are no such metrics, it has the reason. It is nil for gateways and caches, because their
	// stalls are not detected.
	Server *Server
	// Buckets names the option that sets the bounds of latency histograms. It is empty without such an option.
	Buckets string
	// Endpoints names the metadata endpoint of each quantity that is never on the metrics page. Identify reads these
	// quantities.
	Endpoints map[*metrics.Family]string
	// Settings names the places where the engine reports its settings. The most reliable place comes first. Flags names
	// the command-line options that have settings. Untold explains, by setting, why the engine does not report it, if the
	// reason is known.
	Settings []Told
	Flags    []Flag
	Untold   map[metrics.Setting]string
	// Missing explains, by quantity, why no version of the engine has a source for it. An entry is needed only if the
	// reason is better than the default: see Lacks.
	Missing map[*metrics.Family]string
	// Silent recognises from the result of Identify that the engine's metrics page is empty until the first request. It is
	// nil if the metrics page is never empty.
	Silent func(id Identity) bool
	// Identify requests the engine's identity from its metadata endpoints. It is nil if the engine has no such endpoint.
	Identify func(ctx context.Context, get Getter) (Identity, error)
	// Chained and Chains are for servers whose models call each other, and otherwise empty. Chained names a family whose
	// label model lists the models. Chains queries which models each model calls, and is called again when a new model
	// appears.
	Chained string
	Chains  func(ctx context.Context, get Getter, models []string) (map[string]Chain, error)
	// APIPorts maps the metrics port to the port for Chains, for engines whose metrics port does not answer these queries.
	APIPorts map[string]string
	// Asleep reports whether a request would wake the engine. It is nil if the metrics page reports this, or if the engine
	// never sleeps.
	Asleep func(ctx context.Context, get Getter) bool
	// Bystanders lists servers that accompany only this engine, in order of precedence.
	Bystanders []bystander
	// EngineTypes lists the values of the label by which llm-d and the Gateway API Inference Extension mark a pod's
	// engine.
	EngineTypes []string
}

// Drains describes an engine whose /metrics must not be read. The engine is recognised without reading it.
type Drains struct {
	// Owner is the value of owned_by in the engine's model list (/v1/models).
	Owner string
	// Instead explains where the metrics page is, or how to get a metrics page.
	Instead string
}

// colon returns a Restore for an engine whose prefix ends with a colon. Ray and OpenTelemetry replace the colon by an
// underscore. Restore turns ray_vllm_x and vllm_x into vllm:x. Names that begin with a prefix in except stay unchanged.
func colon(prefix string, except ...string) func(map[string]*scrape.Family) {
	return func(byName map[string]*scrape.Family) {
		for _, f := range byName {
			bare := strings.TrimPrefix(f.Name, "ray_")
			rest, ok := strings.CutPrefix(bare, prefix)
			if ok && len(rest) > 1 && (rest[0] == '_' || rest[0] == ':') &&
				!slices.ContainsFunc(except, func(e string) bool { return strings.HasPrefix(bare, e) }) {
				f.Name = prefix + ":" + rest[1:]
			}
		}
	}
}

// A Row maps one source of an engine to one quantity of the vocabulary.
//
// Rows with the same To are candidates. The first candidate on the metrics page is used, but a row with Plus adds its
// series to those of the rows above.
type Row struct {
	// To names the quantity.
	To *metrics.Family
	// From is the family's name on the metrics page. Counters have the suffix _total if the engine writes it, but both
	// spellings are accepted. Histograms have no suffix _bucket.
	From string
	// With names further families that Fold reads.
	With []string
	// Is names the type that From must have on the metrics page.
	Is scrape.Type
	// Where keeps only matching series.
	Where []*labels.Matcher
	// On restricts the row to metrics pages for which the function returns true, if Where and the versions are not
	// sufficient. Nil means all metrics pages.
	On func(p *scrape.Page) bool
	// Part reads only the sum or the count of a histogram or summary, to replace a counter that an engine lacks.
	Part Part
	// NoSum leaves out a histogram's sum that is not the sum of the observed values, because the mean would be wrong.
	NoSum bool
	// PerStep marks a histogram that observes each step of the batch once. Several requests may get a token from one step,
	// so objectives count the step once for each running request.
	PerStep bool
	// Scale converts to base units.
	Scale metrics.Scale
	// Carry holds label mappings of this source, which override the dialect's.
	Carry []metrics.Carry
	// Set holds labels that all series of the row get, such as the outcome of requests or the tier of a cache.
	Set []metrics.Label
	// Uncounted explains, by outcome, why the source has a series for the outcome but never increments it. As long as such
	// a series is zero, it is not served, unless another row counts the outcome, because its zero has no meaning.
	Uncounted map[metrics.Outcome]string
	// Upstream is the label that shows which server behind a gateway answered. Without this label, one server that refuses
	// all its requests cannot be distinguished from a few clients that send invalid requests.
	Upstream string
	// Plus makes the row add to the candidates above it. Without Plus, the row is another candidate.
	Plus bool
	// Failures describes when the source shows requests that the server failed or refused. Without a source that sets
	// Failures, availability is unknown, even if the metrics page counts successes.
	Failures Failures
	// Counted describes when the source counts: as tokens are generated, at the first token or at the end of a request.
	// Every row for generated tokens sets it.
	Counted metrics.Counted
	// Stage names a stage of requests, for an engine without histograms. The source then also yields the time or the count
	// of this stage.
	Stage string
	// Fold computes the value from all matching series of one engine, if renaming and aggregation are not sufficient.
	Fold func(in []Member) (value float64, ok bool)
	// Loras returns the LoRA adapters that a series' labels list. The row then has a series for each adapter.
	Loras func(labels.Labels) []string
	// Parts adds the series of a model's parts to the model's own series: see Dialect.Models.
	Parts bool
	// Tally combines several sources into one counter, if no single source counts the quantity.
	Tally *Tally
	// Since and Until are the first and the last version with the source. Empty means no limit. If several rows read one
	// source, these are the versions in which the source has the meaning of the row.
	Since, Until string
	// NoValue explains why Fold may return no number although the source exists.
	NoValue string
	// Absent explains why a version within these limits may still lack the source: a flag, or a feature without traffic.
	// If Absent is empty, an absent source is reported as an error.
	Absent string
	// Quality defaults to Native.
	Quality metrics.Quality
	// Why explains a quality other than Native.
	Why string
}

// Part names a part of a histogram or summary, by the suffix of its series.
type Part string

// These are the parts.
const (
	partSum   = "sum"
	partCount = "count"
)

// Failures describes when a source that counts failed requests appears on the metrics page.
type Failures uint8

const (
	// SinceFailure means that the source appears with the first failure. If the source is absent, there was no failure.
	SinceFailure Failures = iota + 1
	// SinceAnswer means that the source appears with the first answer of any kind. An absent source proves nothing.
	SinceAnswer
)

// speaks reports whether the metrics page belongs to a server of this dialect. A prefix alone does not prove an engine,
// because routers and exporters use the names of engines. Only the engine has the families in the rows.
func (d *Dialect) speaks(p *scrape.Page) bool {
	return d.Recognise(p) && (d.Role != "" || !slices.Contains(builtin, d) ||
		slices.ContainsFunc(d.Rows, func(r Row) bool { return p.Has(r.From) }))
}

func (r *Row) quality() metrics.Quality {
	if r.Quality == "" {
		return metrics.Native
	}
	return r.Quality
}

// outcome returns a Set for rows whose requests all have the same outcome.
func outcome(o metrics.Outcome) []metrics.Label {
	return []metrics.Label{{Name: metrics.LabelOutcome, Value: string(o)}}
}

// finishReasons lists the finish reasons of the OpenAI protocol, of vLLM and of TensorRT-LLM.
var finishReasons = metrics.Outcomes{
	"stop":       metrics.OutcomeStop,
	"length":     metrics.OutcomeLength,
	"abort":      metrics.OutcomeAbort,
	"cancelled":  metrics.OutcomeAbort,
	"error":      metrics.OutcomeError,
	"timeout":    metrics.OutcomeError,
	"repetition": metrics.OutcomeRepetition,
	"tool_calls": metrics.OutcomeStop,
}

// tier returns a Set for rows about one tier of the KV cache and, if given, one operation. A source that adds up all
// tiers has an empty tier.
func tier(t metrics.Tier, does ...metrics.Operation) (set []metrics.Label) {
	if t != "" {
		set = append(set, metrics.Label{Name: metrics.LabelTier, Value: string(t)})
	}
	for _, o := range does {
		set = append(set, metrics.Label{Name: metrics.LabelOperation, Value: string(o)})
	}
	return set
}

// waitsFor returns a Set for rows whose requests all wait for the same reason.
func waitsFor(reason string) []metrics.Label {
	return []metrics.Label{{Name: metrics.LabelReason, Value: reason}}
}

// is returns a matcher for series whose label has one of the values. The empty string stands for an absent label.
func is(label string, in ...string) []*labels.Matcher {
	for i, v := range in {
		in[i] = regexp.QuoteMeta(v)
	}
	return matching(labels.MatchRegexp, label, strings.Join(in, "|"))
}

func matching(how labels.MatchType, label, value string) []*labels.Matcher {
	return []*labels.Matcher{labels.MustNewMatcher(how, label, value)}
}

// matches reports whether a series satisfies every matcher.
func matches(ls labels.Labels, where []*labels.Matcher) bool {
	for _, m := range where {
		if !m.Matches(ls.Get(m.Name)) {
			return false
		}
	}
	return true
}

// values returns a Map for a fixed set of values. Any other value becomes other.
func values(m map[string]string, other string) func(string) string {
	return func(s string) string {
		if v, ok := m[s]; ok {
			return v
		}
		return other
	}
}

// VersionHint infers a range of versions from a metrics page: versions from Since to Until have the family Name. If
// Label or Lacks is set, the family must have, or must lack, this label.
type VersionHint struct{ Name, Label, Lacks, Since, Until string }

func (h VersionHint) on(p *scrape.Page) bool {
	if !p.Has(h.Name) {
		return false
	}
	if h.Label != "" {
		return !p.LabelValues(h.Name, h.Label)[""]
	}
	return h.Lacks == "" || p.LabelValues(h.Name, h.Lacks)[""]
}

// Member is a source series that Fold reads.
type Member struct {
	// Family is the family on the metrics page, as named in From or With.
	Family string
	// Suffix is bucket, sum or count for histograms.
	Suffix string
	Labels labels.Labels
	Value  float64
}

// Each of these groups has quantities that an engine either reports together or lacks together.
var (
	kvTransfers = []*metrics.Family{
		metrics.KVTransferTime, metrics.KVTransferSize, metrics.KVTransferFailures,
		metrics.KVTransferPostTime, metrics.KVTransfersExpired,
	}
	kvTiers = []*metrics.Family{
		metrics.KVTierQueryTokens, metrics.KVTierHitTokens, metrics.KVTierLookups, metrics.KVTierHits,
		metrics.KVTierTransferTokens, metrics.KVTierTransferBytes, metrics.KVTierTransferBlocks, metrics.KVTierTransferTime,
		metrics.KVTierFailures, metrics.KVTierRefused, metrics.KVTierEvicted, metrics.KVTierUsage, metrics.KVTierPinned,
		metrics.KVTierCapacityTokens, metrics.KVTierCapacityBytes,
	}
)

// Lacks explains why the engine has no source for a quantity that has no row.
func (d *Dialect) Lacks(f *metrics.Family) string { return cmp.Or(d.Missing[f], "not on the page") }

// buckets describes how a user makes an objective's threshold one of the engine's bucket bounds.
func (d *Dialect) buckets() string {
	if d.Buckets == "" {
		return "choose a threshold near a bound of the engine, or measure it by a probe"
	}
	return "start the engine with a bound near the threshold in " + d.Buckets + ", or choose one near a bound that it has"
}

// lacks returns the same reason for each of the quantities.
func lacks(why string, groups ...[]*metrics.Family) map[*metrics.Family]string {
	m := map[*metrics.Family]string{}
	for _, f := range slices.Concat(groups...) {
		m[f] = why
	}
	return m
}

// reasons merges sets of missing quantities. The first reason for a quantity takes precedence.
func reasons(of ...map[*metrics.Family]string) map[*metrics.Family]string {
	m := map[*metrics.Family]string{}
	for _, why := range slices.Backward(of) {
		maps.Copy(m, why)
	}
	return m
}

// others returns the same reason for every quantity that has no row, for services that are not engines.
func others(why string, rows []Row) map[*metrics.Family]string {
	m := map[*metrics.Family]string{}
	for _, f := range metrics.All() {
		if IsQuantity(f) && !slices.ContainsFunc(rows, func(r Row) bool { return r.To == f }) {
			m[f] = why
		}
	}
	return m
}

// product multiplies one value from each of two families, such as blocks and tokens per block.
func product(a, b string) func([]Member) (float64, bool) {
	return pairwise(a, b, func(x, y float64) float64 { return x * y })
}

// ratio divides one value of a by one value of b. It has no result while b is zero.
func ratio(a, b string) func([]Member) (float64, bool) {
	return pairwise(a, b, func(x, y float64) float64 {
		if y == 0 {
			return math.NaN()
		}
		return x / y
	})
}

// unlessZero returns a gauge's value unless the other gauge is zero. Engines set both gauges to zero before the values
// are known.
func unlessZero(gauge, other string) func([]Member) (float64, bool) {
	return func(in []Member) (float64, bool) {
		v, _ := largest(in, gauge)
		says, _ := largest(in, other)
		return v, says > 0
	}
}

func pairwise(a, b string, op func(x, y float64) float64) func([]Member) (float64, bool) {
	return func(in []Member) (float64, bool) {
		x, okX := largest(in, a)
		y, okY := largest(in, b)
		v := op(x, y)
		return v, okX && okY && !math.IsNaN(v)
	}
}

// sum adds up all members, which are counters that split one quantity. All families must be present.
func sum(families ...string) func([]Member) (float64, bool) {
	return func(in []Member) (total float64, ok bool) {
		for _, f := range families {
			if _, found := largest(in, f); !found {
				return 0, false
			}
		}
		for _, m := range in {
			total += m.Value
		}
		return total, true
	}
}

// sumOf adds up only those members of a row that belong to the given family.
func sumOf(family string) func([]Member) (float64, bool) {
	return func(in []Member) (total float64, ok bool) {
		for _, m := range in {
			if m.Family == family {
				total, ok = total+m.Value, true
			}
		}
		return total, ok
	}
}

// most returns the largest of a row's members. The members are workers that all count the same event.
func most(in []Member) (v float64, ok bool) {
	for _, m := range in {
		if !ok || m.Value > v {
			v, ok = m.Value, true
		}
	}
	return v, ok
}

// histogramSumOf returns the sum of the given histogram, for rows that read several histograms.
func histogramSumOf(family string) func([]Member) (float64, bool) {
	return func(in []Member) (total float64, ok bool) {
		return sumOf(family)(slices.DeleteFunc(slices.Clone(in), func(m Member) bool { return m.Suffix != partSum }))
	}
}

func largest(in []Member, family string) (v float64, ok bool) {
	for _, m := range in {
		if m.Family == family && (!ok || m.Value > v) {
			v, ok = m.Value, true
		}
	}
	return v, ok
}

// labelNumber returns the number in a label of an info metric, or 0.
func labelNumber(m Member, label string) float64 {
	v, err := strconv.ParseFloat(m.Labels.Get(label), 64)
	if err != nil || math.IsNaN(v) {
		return 0
	}
	return v
}

// labelProduct multiplies the numbers in a member's labels, and adds up the products of all members. It has no result
// if no member has these labels.
func labelProduct(names ...string) func([]Member) (float64, bool) {
	return func(in []Member) (total float64, ok bool) {
		for _, m := range in {
			v := 1.0
			for _, l := range names {
				v *= labelNumber(m, l)
			}
			total += v
		}
		return total, total > 0
	}
}
