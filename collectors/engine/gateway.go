package engine

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// These reasons explain why gateways lack quantities. No row reads the quantity, or it appears only with some requests.
const (
	noSource = "a gateway reports only what it sees of requests"
	noStream = "no streamed request yet"
	noUsage  = "no answer has reported its usage yet"
)

// Concerns reports whether the dialect's servers can have a quantity. An engine or a frontend cannot have the
// quantities of gateways, unless a row reads them.
func (d *Dialect) Concerns(f *metrics.Family) bool {
	return IsQuantity(f) && (f.Owner != metrics.Gateway || d.Role == metrics.GatewayRole ||
		slices.ContainsFunc(d.Rows, func(r Row) bool { return r.To == f }))
}

// modelPaths matches the paths at which clients send requests to models. Requests for metrics, health or lists of
// models do not count, and administrative requests do not count. A metrics page may report no path at all.
const modelPaths = "|.*/(chat/completions|completions|responses(/[^/]+)?|interactions|messages|generate(_stream)?|embeddings|moderations|" +
	"rerank|score|classify|pooling|invocations|infer|(images|audio|videos)/.+|converse(-stream)?|invoke(-with-response-stream)?)/?|" +
	".*:(stream)?[gG]enerateContent"

// asks matches series whose label names a path at which clients send requests to models.
func asks(label string) []*labels.Matcher { return matching(labels.MatchRegexp, label, modelPaths) }

// engineFailures completes a row whose source counts all answers of a gateway. The row counts answers with an engine's
// status 5xx. It starts at zero, because a gateway's counters appear only with their first event.
func engineFailures(r Row, failed Count) Row {
	r.To, r.Is = metrics.GatewayEngineFailures, scrape.Counter
	r.Quality, r.Why = cmp.Or(r.Quality, metrics.Derived), cmp.Or(r.Why, "those of the answers that failed at an engine")
	r.Tally = &Tally{Of: []Count{failed}, Step: func(rose []float64) float64 { return rose[1] }}
	return r
}

// ownPage returns those dialects whose families on a metrics page belong to the page's own server, among the dialects
// that recognise the page. On a gateway's metrics page, the families of engines are copies. On an engine's metrics
// page, the families of a sidecar are not the engine's.
func ownPage(found []*Dialect) []*Dialect {
	gateway := func(d *Dialect) bool { return d.Role == metrics.GatewayRole }
	if i := slices.IndexFunc(found, func(d *Dialect) bool { return gateway(d) && !d.Sidecar }); i >= 0 {
		return found[i : i+1]
	}
	if engines := slices.DeleteFunc(slices.Clone(found), gateway); len(engines) > 0 {
		return engines
	}
	return found[:min(1, len(found))]
}

// otherValue replaces dropped values of a label.
const otherValue = "other"

// kept limits the number of values of each label on a metrics page. Clients or configurations choose these values.
var kept = map[string]int{metrics.LabelModel: 100, metrics.LabelRoute: 20, metrics.LabelTenant: 20, metrics.LabelPriority: 20, metrics.LabelLora: 20}

// bounded returns the value of a label that clients or configurations choose. It keeps the first values as long as the
// target is read, and replaces all later values by other. A value never moves between these groups, because that would
// look like a restart.
func (t *labelling) bounded(label, value string, maxBytes int) string {
	most, bound := kept[label]
	if !bound || value == "" || t.admitted[label][value] {
		return value
	}
	if len(t.admitted[label]) >= most || len(value) > maxBytes {
		return otherValue
	}
	if t.admitted == nil {
		t.admitted = map[string]map[string]bool{}
	}
	if t.admitted[label] == nil {
		t.admitted[label] = map[string]bool{}
	}
	t.admitted[label][value] = true
	return value
}

// Shown names a family whose label contains only models that the server serves through workers or deployments.
type Shown struct {
	Family, Label string
	Where         []*labels.Matcher
	All           bool // the family lists these models before their first request
}

// ownModel returns the model of series without a model's name, if the metrics page has only one model. If a server
// works for several models, its metrics page must also show models without requests. Otherwise, the only name may be
// that of the first requested model.
func (c *compiler) ownModel(d *Dialect, otherwise string) string {
	if d.Role != metrics.GatewayRole && d.Role != metrics.FrontendRole && !d.Shared {
		return c.only(d, metrics.LabelModel, otherwise)
	}
	if !slices.ContainsFunc(d.Serves, func(s Shown) bool { return s.All && len(c.page.LabelValues(s.Family, s.Label)) > 0 }) {
		return otherwise
	}
	own := ""
	for name, served := range c.served {
		switch {
		case !served || name == "":
		case own != "":
			return ""
		default:
			own = name
		}
	}
	return own
}

// known finds the models that a gateway or frontend serves. These are the models that it reports as served, and the
// models of requests that ended well. Clients may have made up all other names, so these names have no objective, are
// never reported as missing, and count together as other. Once a name is known, it stays known as long as the target is
// read.
func (c *compiler) known(d *Dialect) {
	c.served = nil
	if d.Role != metrics.GatewayRole && d.Role != metrics.FrontendRole {
		return
	}
	all := map[string]bool{}
	for _, s := range d.Serves {
		for _, f := range c.page.Families[scrape.FamilyKey(s.Family)] {
			for _, sample := range f.Samples {
				if matches(sample.Labels, s.Where) {
					all[printable(sample.Labels.Get(s.Label))] = true
				}
			}
		}
	}
	well := map[string]float64{}
	for i := range d.Rows {
		r := &d.Rows[i]
		if !provesModel(r) || r.On != nil && !r.On(c.page) {
			continue
		}
		plain := *r
		plain.Tally = nil
		entries, _ := c.collect(d, &plain, nil, asItself, nil)
		for _, e := range entries {
			if event, bad := slo.Judge(metrics.Outcome(e.out[outOutcome])); r.To != metrics.Requests || event && !bad {
				well[e.model] += c.page.Values[e.sample.Index]
			}
		}
		if r.Tally == nil {
			continue
		}
		for _, of := range r.Tally.Of {
			others, _ := c.counts(d, r, of, nil)
			for _, e := range others {
				well[e.model] -= c.page.Values[e.sample.Index]
			}
		}
	}
	for name, n := range well {
		all[name] = all[name] || n > 0
	}
	maps.Copy(all, c.target.admitted[metrics.LabelModel])
	c.served = all
}

// addModel adds a model to the models of the metrics page. A frontend may have workers for some of its models only.
func (c *compiler) addModel(d *Dialect, model, info, last string) {
	one := servedModel{last: last, needs: d.Role == metrics.FrontendRole && c.plan.needsWorkers && model != ""}
	if f := c.page.Find(d.Ready, scrape.Gauge); one.needs && f != nil {
		for _, s := range f.Samples {
			if e, err := c.entry(d, &Row{From: d.Ready}, s, nil); err == nil && e.out[outModel] == model {
				one.workers = append(one.workers, s.Index)
			}
		}
	}
	c.plan.models = append(c.plan.models, one)
	switch {
	case !one.needs:
		c.add(line{family: metrics.EngineInfo, text: info, recipe: &recipe{value: 1}})
	case one.workers != nil:
		served := func(workers []Member) (float64, bool) { return 1, workers[0].Value > 0 }
		c.add(line{family: metrics.EngineInfo, text: info, recipe: &recipe{fold: &fold{
			of: served, members: make([]Member, 1),
			terms: []term{one.workers},
		}}})
	}
}

// servesOne reports whether the server serves at most one model, even if the metrics page does not yet name the model.
func (c *compiler) servesOne() bool {
	n := 0
	for _, served := range c.served {
		n += int(metrics.Bool(served))
	}
	return n <= 1
}

// workers finds the series that show whether a frontend or a gateway has workers. Without a worker, Dynamo's frontend
// leaves out the series that reports a model as ready, but keeps the model's other series. Before the first worker, the
// frontend names no model at all. Releases that report no readiness name the models of the registered workers.
func (c *compiler) workers(d *Dialect) {
	if d.Ready == "" {
		return
	}
	if f := c.page.Find(d.Ready, scrape.Gauge); f != nil && len(f.Samples) > 0 {
		c.target.ready = true
		for _, s := range f.Samples {
			c.plan.workers = append(c.plan.workers, s.Index)
		}
	}
	silent := d.Role == metrics.FrontendRole && (len(c.served) == 0 || slices.ContainsFunc(d.ReadyBeside, c.page.Has))
	c.plan.needsWorkers = (c.target.ready || silent) && (d.Members == "" || !c.page.Has(d.Members))
}

// provesModel reports whether the row's source shows that an engine has worked for a model.
func provesModel(r *Row) bool {
	switch r.To {
	case metrics.Requests, metrics.GenerationTokens, metrics.TimePerOutputToken, metrics.InterTokenLatency:
		return r.Fold == nil
	}
	return false
}

// isModel reports whether the server serves a model of this name. An engine serves every model on its metrics page.
func (c *compiler) isModel(model string) bool {
	if c.served == nil || c.served[model] {
		return true
	}
	c.plan.unproven = true
	return false
}

// statusCode returns an HTTP status unchanged. Anything else becomes "other".
func statusCode(code string) string {
	if len(code) == 3 && code[0] >= '1' && code[0] <= '5' && isDigit(code[1]) && isDigit(code[2]) {
		return code
	}
	return otherValue
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// codeOutcome maps the status of any answer to an outcome. Envoy writes 0 for a client that left before an answer.
func codeOutcome(code string) string {
	switch {
	case statusCode(code) != otherValue && code[0] < '4':
		return string(metrics.OutcomeSuccess)
	case code == "0":
		return string(metrics.OutcomeAbort)
	}
	return httpOutcome(code)
}

// proxyOutcome is codeOutcome for proxies that admit all requests. For such a proxy, status 503 means that it reached
// no engine.
func proxyOutcome(code string) string {
	if code == "503" {
		return string(metrics.OutcomeError)
	}
	return codeOutcome(code)
}

// timeoutIsOurs is codeOutcome for gateways whose status 408 means that no engine answered in time. These gateways are
// Ray Serve and LiteLLM (litellm.exceptions.Timeout).
func timeoutIsOurs(code string) string {
	if code == "408" {
		return string(metrics.OutcomeError)
	}
	return codeOutcome(code)
}

// byStatus returns the rows of answers that are counted by status: the outcomes of requests, and the status codes. row
// has the common part. carry has the other labels that split the codes.
func byStatus(row Row, status string, outcome func(string) string, carry ...metrics.Carry) []Row {
	row.Is, row.Failures, row.Absent = cmp.Or(row.Is, scrape.Counter), SinceAnswer, noFinish
	requests, responses := row, row
	requests.To, requests.Carry = metrics.Requests, []metrics.Carry{{From: status, To: metrics.LabelOutcome, Map: outcome}}
	responses.To, responses.Carry = metrics.GatewayResponses, append(slices.Clone(carry),
		metrics.Carry{From: status, To: metrics.LabelCode, Map: statusCode})
	return []Row{requests, responses}
}

// rejected returns a Set for rows whose requests were all refused for the same reason.
func rejected(why metrics.Rejection) []metrics.Label { return waitsFor(string(why)) }

// dropped is a Map that drops a label, because other sources of the same row lack the label.
func dropped(string) string { return "" }

// without returns a Map that drops the values that a gateway writes for unknown.
func without(unknown ...string) func(string) string {
	return func(s string) string {
		for _, u := range unknown {
			if strings.EqualFold(s, u) {
				return ""
			}
		}
		return s
	}
}
