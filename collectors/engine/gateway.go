package engine

import (
	"cmp"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Reasons why gateways lack quantities: one that has no row, and those that only some requests bring.
const (
	noSource = "a gateway reports only what it sees of requests"
	noStream = "no streamed request yet"
	noUsage  = "no answer has said its usage yet"
)

// Concerns reports whether a quantity can be asked of the dialect's servers: what only gateways report is not missing
// on an engine's page.
func (d *Dialect) Concerns(f *metrics.Family) bool {
	return IsQuantity(f) && (f.Owner != metrics.Gateway || d.Role == metrics.GatewayRole)
}

// ownPage returns the dialects whose page it is, of those that recognise it. On a gateway's page, the families of engines
// are copies. On an engine's page, those of a sidecar are not the engine's.
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

// otherValue stands for the values of a label that are not kept.
const otherValue = "other"

// kept bounds the labels whose values clients or configurations choose: how many of each a page may have.
var kept = map[string]int{metrics.LabelModel: 100, metrics.LabelRoute: 20, metrics.LabelTenant: 20, metrics.LabelPriority: 20}

// bounded returns the value of a gateway's label. The first values are kept for as long as the target is read, and all
// later ones become other: a value never moves from one to the other, which would look like a restart.
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

// statusCode keeps HTTP statuses.
func statusCode(code string) string {
	if len(code) == 3 && code[0] >= '1' && code[0] <= '5' && isDigit(code[1]) && isDigit(code[2]) {
		return code
	}
	return otherValue
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// codeOutcome maps the status of any answer. Envoy writes 0 where the client left before there was one.
func codeOutcome(code string) string {
	switch {
	case statusCode(code) != otherValue && code[0] < '4':
		return string(metrics.OutcomeSuccess)
	case code == "0":
		return string(metrics.OutcomeAbort)
	}
	return httpOutcome(code)
}

// proxyOutcome is codeOutcome for proxies that admit everything: their 503 says that they reached no engine.
func proxyOutcome(code string) string {
	if code == "503" {
		return string(metrics.OutcomeError)
	}
	return codeOutcome(code)
}

// byStatus returns the rows of answers counted by status: how requests ended, and their codes. row holds what both share,
// carry what else splits the codes.
func byStatus(row Row, status string, outcome func(string) string, carry ...Carry) []Row {
	row.Is, row.Failures, row.Absent = cmp.Or(row.Is, Counter), SinceAnswer, noFinish
	requests, responses := row, row
	requests.To, requests.Carry = metrics.Requests, []Carry{{From: status, To: metrics.LabelOutcome, Map: outcome}}
	responses.To, responses.Carry = metrics.GatewayResponses, append(carry, Carry{From: status, To: metrics.LabelCode, Map: statusCode})
	return []Row{requests, responses}
}

// rejected returns a Set for rows whose requests were all refused for the same reason.
func rejected(why metrics.Rejection) []metrics.Label { return waitsFor(string(why)) }

// without returns a Map that drops the values by which a gateway says that it does not know.
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
