package rules

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Evidence is one line of an alert's split. Its query runs when the alert is evaluated. Without a result, the line is
// left out, because absent does not mean zero.
type Evidence struct {
	// Text precedes the result.
	Text string
	// Query may match the alert's own labels through same.
	Query promql.Expr
	// Show is the format of one result.
	Show Format
}

// Format is a Prometheus template that formats one query result. In the template, the dot is the result.
type Format string

// Brief makes a template print numbers with two significant digits, because a third digit changes no decision. It is
// used for all texts of alerts. If a pipe supplies the number, the rewritten function is still behind the pipe.
func Brief(template string) string {
	return humanized.ReplaceAllStringFunc(template, func(call string) string {
		m := humanized.FindStringSubmatch(call)
		if m[2] == "" || m[3] == " $n" { // the number is brief already
			return call
		}
		if m[1] != "" {
			return `| printf "%.1e" | ` + m[2]
		}
		return `printf "%.1e"` + m[3] + ` | ` + m[2]
	})
}

// humanized matches a call of a function that prints a number, including the pipe or the argument that supplies the
// number.
var humanized = regexp.MustCompile(`printf "%\.1e"[^|}]* \| humanize\w*|(\| )?\b(humanize(?:Percentage|Duration)?)\b( [$.]\w+)?`)

// small prints a number. It uses humanize only from 1 on, because humanize writes thousandths with an m, which looks
// like minutes.
const small = `{{ if lt .Value 1.0 }}{{ printf "%.2g" .Value }}{{ else }}{{ humanize .Value }}{{ end }}`

// These are the formats.
const (
	Number   Format = small
	Times    Format = small + "x"
	Percent  Format = `{{ .Value | humanizePercentage }}`
	Bytes    Format = `{{ humanize1024 .Value | reReplaceAll "(\\d\\d)\\.\\d+" "$1" | reReplaceAll "(\\.\\d)\\d+" "$1" }}B`
	Duration Format = `{{ .Value | humanizeDuration` + rounded + ` }}`
)

// LabelledBy returns a format that shows labels of a result. Unless value is empty, the result's value follows.
func LabelledBy(value Format, labels ...string) Format {
	var parts []string
	for _, l := range labels {
		parts = append(parts, "{{ .Labels."+l+" }}")
	}
	if value != "" {
		parts = append(parts, string(value))
	}
	return Format(strings.Join(parts, " "))
}

// same matches series that have the same values of these labels as the firing alert. "$label" stands for the alert's
// value. If the alert lacks a label, the series must also lack it.
func same(labels ...string) []*promql.Matcher {
	m := make([]*promql.Matcher, len(labels))
	for i, l := range labels {
		m[i] = promql.Eq(l, "$"+l)
	}
	return m
}

// sameModel matches the series of the alert's model.
func sameModel(more ...*promql.Matcher) []*promql.Matcher {
	return append(same(modelLabels...), more...)
}

var (
	selectors = regexp.MustCompile(`\{[^{}]*\}`)
	matchers  = regexp.MustCompile(`\w+(?:=~|!~|!=|=)"(?:[^"\\]|\\.)*"`)
	ownValue  = regexp.MustCompile(`"\$(\w+)"`)
	ownPlace  = regexp.MustCompile("\\(printf `[^`]*`(?: \\$labels\\.\\w+)+\\)")
)

// queryTemplate renders the query as a Prometheus template pipeline, which quotes label values at run time.
func queryTemplate(e promql.Expr) string {
	var args []string
	verb := func(arg string, kind byte) string {
		i := slices.Index(args, arg)
		if i < 0 {
			i, args = len(args), append(args, arg)
		}
		return fmt.Sprintf("%%[%d]%c", i+1, kind)
	}
	quoted := func(own string) string {
		return ownValue.ReplaceAllStringFunc(own, func(m string) string { return verb("$labels."+ownValue.FindStringSubmatch(m)[1], 'q') })
	}
	query := selectors.ReplaceAllStringFunc(e.String(), func(selector string) string {
		var own, other []string
		for _, m := range matchers.FindAllString(selector, -1) {
			if ownValue.MatchString(m) {
				own = append(own, m)
			} else {
				other = append(other, m)
			}
		}
		if len(own) < 2 {
			return quoted(selector)
		}
		var place strings.Builder
		place.WriteString("(printf `" + ownValue.ReplaceAllString(strings.Join(own, ","), "%q") + "`")
		for _, m := range own {
			place.WriteString(" $labels." + ownValue.FindStringSubmatch(m)[1])
		}
		return "{" + strings.Join(append([]string{verb(place.String()+")", 's')}, other...), ",") + "}"
	})
	if len(args) == 0 {
		return "query `" + query + "`"
	}
	return "printf `" + query + "` " + strings.Join(args, " ") + " | query"
}

// shared shortens a template: each selector that occurs more than once is assigned to a variable at the beginning of
// the template.
func shared(template string) string {
	for _, place := range ownPlace.FindAllString(template, -1) {
		if strings.Count(template, place) > 1 {
			name := fmt.Sprintf("$own%d", strings.Count(template, "{{ $own"))
			template = "{{ " + name + " := " + place[1:len(place)-1] + " }}" + strings.ReplaceAll(template, place, name)
		}
	}
	return template
}

// line renders one line of evidence. It shows the only result, or the three largest results and the number of all
// results.
func (e Evidence) line() string {
	if single(e.Query) {
		return fmt.Sprintf("{{ with %s }}%s: {{ with first . }}%s{{ end }}.\n{{ end }}", queryTemplate(e.Query), e.Text, e.Show)
	}
	return fmt.Sprintf("{{ with %s }}%s: {{ range $i, $r := . }}{{ if lt $i 3 }}{{ if $i }}, {{ end }}%s{{ end }}{{ end }}{{ if gt (len "+
		".) 3 }} … {{ len . }} in all{{ end }}.\n{{ end }}",
		queryTemplate(promql.Call("sort_desc", e.Query)), e.Text, e.Show)
}

// single reports whether a query has at most one result.
func single(e promql.Expr) bool {
	switch n := e.(type) {
	case *parser.BinaryExpr:
		return single(n.LHS)
	case *parser.AggregateExpr:
		return len(n.Grouping) == 0 && (n.Param == nil || n.Op == parser.TOPK && n.Param.String() == "1")
	}
	return false
}

// These windows are for rules about the present.
const (
	causeWindow = 10 * minute // long enough for a rate
	pageWindow  = 5 * minute  // no longer than the short window of the window pair that pages
)

// Unit sets how a page prints a recorded value.
type Unit string

// These are the units.
const (
	Count   Unit = "count"
	Decimal Unit = "decimal" // a small number
	Share   Unit = "ratio"   // 0 to 1
	Seconds Unit = "seconds"
	On      Unit = "on"   // a number of engines
	Bare    Unit = "none" // nothing, because the labels contain the fact
)

// rounded keeps the two largest units of a duration. It drops units that are zero, and also drops seconds from ten
// minutes on.
const rounded = ` | reReplaceAll "(\\d\\dm) .+| 0[hm] .+|( \\S+) .+| 0s$" "$1$2"`

// formattedFact is a template in which the dot is a recorded fact. It sets $v to the fact's value as text, in the
// fact's unit ($u).
const formattedFact = `{{ $n := printf "%.1e" .Value }}{{ $v := humanize $n }}{{ if lt .Value 10.0 }}{{ $v = printf "%.2g" .Value }}{{ end }}` +
	`{{ $u := .Labels.unit }}{{ if eq $u "ratio" }}{{ $v = humanizePercentage $n }}{{ else if eq $u "seconds" }}{{ $v = humanizeDuration $n` + rounded + ` }}` +
	`{{ else if eq $u "on" }}{{ $v = print "on " $v }}{{ if eq .Value 0.0 }}{{ $v = "" }}{{ end }}{{ end }}`

// FactText returns a Prometheus template that prints the value of a recorded fact in the fact's unit. The dot is the
// fact.
func FactText() string { return Brief(formattedFact + `{{ if ne $u "none" }}{{ $v }}{{ end }}`) }

// Fact is evidence about a model.
type Fact struct {
	// Name is the value of the label fact.
	Name string
	// Unit sets how the value is printed.
	Unit Unit
	// Says is the text before the value.
	Says string
	// Query returns one value per model. A fact without a value is left out, because absent does not mean zero.
	Query promql.Expr
	// Before returns the same value for the day that ended an hour ago. It is recorded under the fact's name with the
	// suffix _before. Before may be nil.
	Before promql.Expr
}

// facts returns the recorded facts about a model, in the order of a diagnosis: deployments, where the time goes,
// differences from the day before, how late tokens are, and hardware. Facts that a release may change are recorded per
// version, so that they can be compared after the engines of the old version are gone.
func facts() []Fact {
	perModel := func(e promql.Expr) promql.Expr { return promql.Sum(modelLabels, e) }
	minutely := func(f *metrics.Family) promql.Expr {
		return above(promql.Mul(perModel(promql.Rate(promql.Vector(f), pageWindow)), promql.Num(60)), 0)
	}
	counted := func(counter, ended *metrics.Family, ago time.Duration) func(time.Duration) promql.Expr {
		return func(w time.Duration) promql.Expr {
			return perFirstToken(perModel(promql.Rate(promql.Offset(promql.Vector(counter, answersUsers), ago), w)), ended, w, ago)
		}
	}
	work := func(ago time.Duration) func(time.Duration) promql.Expr {
		return func(w time.Duration) promql.Expr {
			return perFirstToken(computed(w, ago), metrics.RequestPromptTokens, w, ago)
		}
	}
	served := promql.Max(replicaLabels, promql.Over("last_over_time", promql.Vector(metrics.EngineInfo), 6*hour))
	return []Fact{
		{"changes", On, "Changed in 6h", onReplicas(newest(3, changedWithin(6*hour))), nil},
		{"restarts", Count, "Restarts in 6h", above(promql.Sum(modelLabels, promql.Mul(served, restartsWithin(6*hour),
			promql.On(pageLabels...).ManyToOne())), 0), nil},

		{QueueShare, Share, "Queue share of TTFT (ended requests)", queueShare(), nil},
		{"arrivals", Decimal, "Requests per second", recently(arrivals), onAverage("arrivals")},
		{"burst", Decimal, "Requests that arrive together", bursts(), nil},
		{"computed", Decimal, "Tokens computed per second", computed(recentWindow, 0), onAverage("computed")},
		{"waiting", Count, "Waiting", perModel(promql.Vector(metrics.RequestsWaiting)), nil},
		{"running", Count, "Running per replica", batch(modelLabels, recentWindow, 0), batch(modelLabels, day, hour)},
		{"kv_usage", Share, "KV cache in use", promql.Max(modelLabels, promql.Vector(metrics.KVCacheUsage)), nil},

		{
			"prompt_tokens", Count, "Prompt tokens per request", meanOf(counted(metrics.PromptTokens, metrics.RequestPromptTokens, 0)),
			counted(metrics.PromptTokens, metrics.RequestPromptTokens, hour)(day),
		},
		{
			"output_tokens", Count, "Output tokens per request", meanOf(counted(metrics.GenerationTokens, metrics.RequestGenerationTokens, 0)),
			counted(metrics.GenerationTokens, metrics.RequestGenerationTokens, hour)(day),
		},
		{"work", Count, "Tokens computed per request", meanOf(work(0)), work(hour)(day)},
		{
			"prefix_hits", Share, "Prefix cache hits", meanOf(func(w time.Duration) promql.Expr { return hitRatio(modelLabels, w, 0) }),
			hitRatio(modelLabels, day, hour),
		},
		{
			"draft_tokens", Share, "Draft tokens accepted", meanOf(func(w time.Duration) promql.Expr { return accepted(modelLabels, w, 0) }),
			accepted(modelLabels, day, hour),
		},
		{"token_time", Seconds, "Time between tokens", promql.Sum(modelLabels, tokenTime()), meanBefore(metrics.InterTokenLatency,
			modelLabels, day, hour)},
		{"limited", Share, "Requests at the output limit", limited(pageWindow, 0), limited(day, hour)},
		{"aborted", Share, "Requests given up", aborted(modelLabels, pageWindow, 0), aborted(modelLabels, day, hour)},
		{"without_token", Share, "Requests that ended without a token", tokenless(modelLabels), nil},

		{"preemptions", Count, "Preemptions per minute", minutely(metrics.Preemptions), nil},
		{"kv_transfers_failed", Count, "KV transfers failed per minute", minutely(metrics.KVTransferFailures), nil},
		{"gateway_failed", Share, "Requests failed at the gateway", failing(modelLabels, pageWindow, gatewayRole()), nil},
		{"gateway_refused", Share, "Requests that the gateway refused", ofGatewayRequests(metrics.GatewayRejections), nil},
		{"gateway_retries", Decimal, "Gateway retries per request", ofGatewayRequests(metrics.GatewayRetries), nil},

		{"ttft_p95", Seconds, "TTFT p95", p95ByVersion(metrics.TimeToFirstToken), nil},
		{"itl_p95", Seconds, "ITL p95", p95ByVersion(metrics.InterTokenLatency), nil},
		{"failed", Share, "Requests failed", failedByVersion(), nil},
		{"slowest_replica", Seconds, "Slowest replica, mean TTFT", promql.TopK(1, modelLabels, mean(metrics.TimeToFirstToken, replicaLabels,
			pageWindow)), nil},

		{"gpus_throttled", Share, "Throttled GPUs (share of time)", servedBy(promql.Max(append(onGPULabels(), metrics.LabelReason),
			above(promql.Vector(metrics.RecordedSlowedGPU), 0.01)), metrics.LabelReason), nil},
		{"xids", Bare, "XIDs in the last hour", servedBy(promql.Sum(append(onGPULabels(), metrics.LabelXID),
			above(promql.Increase(promql.Vector(metrics.GPUXIDErrors), hour), 0)), metrics.LabelXID), nil},
	}
}

// onAverage returns the mean of a recorded fact over the part of the day before in which it was recorded. A rate over
// the day would spread the work of a single hour over the whole day.
func onAverage(fact string) promql.Expr {
	return promql.Sum(modelLabels, promql.Over("avg_over_time", promql.Offset(evidenceOf(fact), hour), day))
}

// QueueShare names the fact about the queue's share of the time to the first token.
const QueueShare = "queue_share"

// OfBefore is the suffix of the label fact for facts about the day before.
const OfBefore = "_before"

// labels returns the labels of a fact that is recorded under this name at this position.
func (f Fact) labels(name, order string) map[string]string {
	return map[string]string{metrics.LabelFact: name, metrics.LabelOrder: order, metrics.LabelUnit: string(f.Unit), metrics.LabelSays: f.Says}
}

// dayBefore selects a fact of the day before, per model.
func dayBefore(fact string) promql.Expr {
	return promql.Sum(modelLabels, promql.Vector(metrics.RecordedEvidence, promql.Eq(metrics.LabelFact, fact)))
}

// compared lists the facts that clues compare with their usual values. They are in the same order as in facts().
var compared = []string{
	"arrivals", "burst", "computed", "running", "prompt_tokens", "output_tokens", "work", "prefix_hits", "draft_tokens", "token_time",
	"aborted",
}

// evidenceOf selects recorded facts.
func evidenceOf(names ...string) promql.Expr {
	return promql.Vector(metrics.RecordedEvidence, promql.Either(metrics.LabelFact, strings.Join(names, "|")))
}

// evidenceBefore selects the values of these facts on the day before.
func evidenceBefore(names ...string) promql.Expr {
	return evidenceOf("(" + strings.Join(names, "|") + ")" + OfBefore)
}

// yesterdays returns the facts of the day before, under the names of today's facts.
func yesterdays(names ...string) promql.Expr {
	return factRenamed(evidenceBefore(names...), "$1", "(.+)"+OfBefore)
}

func factRenamed(e promql.Expr, to, from string) promql.Expr {
	return promql.Call("label_replace", e, promql.Str(metrics.LabelFact), promql.Str(to), promql.Str(metrics.LabelFact), promql.Str(from))
}

var perFact = append([]string{metrics.LabelFact}, modelLabels...)

// asUsual returns the usual values of the compared facts: the medians of the three hours that ended twenty minutes ago.
// That time ended well before a burn that pages, and is recent enough to be about the same work. A fact that was
// recorded for less than ten minutes of that time has its value of the day before. Without such a value, it has its
// median from twenty to ten minutes ago, if its first scrape was well before, because rates are too low in the minutes
// after it.
func asUsual() promql.Expr {
	before := func(ago, window time.Duration) promql.Expr {
		return promql.Sum(perFact, promql.QuantileOver(0.5, promql.Offset(evidenceOf(compared...), ago), window))
	}
	long := promql.And(before(20*minute, 3*hour), promql.Over("last_over_time", promql.Offset(evidenceOf(compared...), 30*minute),
		3*hour), promql.On(perFact...))
	settled := promql.And(before(10*minute, 10*minute), promql.Offset(evidenceOf(compared...), 16*minute), promql.On(perFact...))
	return promql.Or(long, promql.Sum(perFact, yesterdays(compared...)), settled)
}

func againstUsual() promql.Expr {
	return promql.Div(evidenceOf(compared...), above(promql.Vector(metrics.RecordedUsual), 0), promql.On(perFact...))
}

// evidenceGroups returns the groups that record facts about models for pages. Facts of the day before are evaluated
// less often, because they hardly change within minutes.
func evidenceGroups() []Group {
	now := []Record{
		{Name: metrics.RecordedChanged, Expr: lastChanges()},
		{Name: usersServed(recentWindow), Expr: servedNow()},
	}
	for _, window := range []time.Duration{minute, recentWindow, pageWindow} {
		now = append(now, Record{Name: meanIn(window), Expr: ratio(promql.Vector(metrics.StageTime), promql.Vector(metrics.Stages),
			perStage(modelLabels), window, 0)})
	}
	yesterday := Group{Name: "llm-yesterday", Interval: 4 * minute} // less than the five minutes in which an instant query finds a sample
	yesterday.Records = append(yesterday.Records, Record{Name: metrics.RecordedNeverSilent, Expr: neverSilent()})
	for i, f := range facts() {
		if f.Before != nil {
			yesterday.Records = append(yesterday.Records, Record{metrics.RecordedEvidence, f.Before, f.labels(f.Name+OfBefore, order(2*i))})
		}
		now = append(now, Record{metrics.RecordedEvidence, f.Query, f.labels(f.Name, order(2*i+1))})
		if f.Name == compared[len(compared)-1] {
			now = append(now, Record{Name: metrics.RecordedAgainst, Expr: againstUsual()})
		}
	}
	now = append(now, Record{Name: metrics.RecordedPrinted, Expr: printed()})
	usual := Group{Name: "llm-usual", Interval: Interval, Records: []Record{{Name: metrics.RecordedUsual, Expr: asUsual()}}}
	return append([]Group{yesterday, usual}, chunked("llm-evidence", Interval/2, slices.Collect(slices.Chunk(now, 1)))...)
}

// chunked distributes records among numbered groups of at most MaxRules records. Each unit stays together.
func chunked(name string, interval time.Duration, units [][]Record) (groups []Group) {
	for _, unit := range units {
		if n := len(groups); n == 0 || len(groups[n-1].Records)+len(unit) > MaxRules {
			groups = append(groups, Group{Name: fmt.Sprintf("%s-%d", name, n+1), Interval: interval})
		}
		last := &groups[len(groups)-1]
		last.Records = append(last.Records, unit...)
	}
	return groups
}

// printed returns the changes of each model that pages show: changed versions and settings (without these, restarts),
// and facts that have changed by half or more since the day before. Only the dashboard shows all other changes.
func printed() promql.Expr {
	shifts := []string{"prompt_tokens", "output_tokens", "prefix_hits", "draft_tokens", "aborted"}
	now, before := promql.Or(evidenceOf(shifts[:4]...), above(evidenceOf(shifts[4]), 0)), evidenceBefore(shifts...)
	ofFact := promql.On(perFact...)
	moved := above(promql.Call("abs", promql.Call("ln", promql.Div(now, yesterdays(shifts...), ofFact))), 0.4)
	return promql.Or(evidenceOf("changes"), promql.Unless(evidenceOf("restarts"), evidenceOf("changes"), promql.On(modelLabels...)),
		promql.And(now, moved, ofFact), promql.And(before, factRenamed(moved, "${1}"+OfBefore, "(.+)"), ofFact))
}

// changes renders the changes of the alert's model in one line, with at most three facts.
func changes(query string) string {
	return fmt.Sprintf(`{{ $c := "" }}{{ $was := "" }}{{ $next := "" }}{{ range sortByLabel %q (sortByLabel %q (%s)) }}{{ $new := ne .Labels.says $was }}`+
		`{{ if $new }}{{ $c = print $c "." }}{{ end }}{{ if lt (len $c) 4 }}%s{{ if $new }}{{ if $was }}; {{ else if not .Labels.setting }}Changed: {{ end }}{{ if .Labels.setting }}{{ .Labels.says }}:{{ else }}{{ toLower .Labels.says }}{{ end }}{{ else }}{{ $next }}{{ end }}`+
		`{{ if .Labels.setting }} {{ .Labels.setting }} {{ .Labels.old }} → {{ .Labels.new }}{{ end }}{{ with $v }} {{ . }}{{ end }}{{ $next = "," }}{{ if match "%s$" .Labels.fact }}{{ $next = " →" }}{{ end }}{{ end }}{{ $was = .Labels.says }}{{ end }}{{ if $was }}.`+"\n{{ end }}",
		metrics.LabelOrder, metrics.LabelSetting, query, formattedFact, OfBefore)
}

// changesQuery returns the changes that a page shows about its model.
func changesQuery() promql.Expr { return promql.Vector(metrics.RecordedPrinted, sameModel()...) }

// objectiveQueries returns the queries about the alert's objective: the remaining budget, the seconds until the budget
// is spent at the present rate, and the objective's links in the configuration.
func objectiveQueries() []promql.Expr {
	ofPeriod := func(f *metrics.Family, keep ...string) promql.Expr {
		return promql.Max(keep, promql.Over("last_over_time", promql.Vector(f, same(modelSLO...)...), budgetLookback))
	}
	link := func(label string) promql.Expr {
		return promql.Max([]string{label}, promql.Vector(metrics.RecordedInfo, append(same(modelSLO...), promql.Ne(label, ""))...))
	}
	return []promql.Expr{
		ofPeriod(metrics.RecordedBudgetRemaining, metrics.LabelPeriod), ofPeriod(metrics.RecordedExhaustion),
		link(metrics.LabelRunbook), link(metrics.LabelDashboard),
	}
}

// objective renders the remaining budget, the time until the budget is spent at the present rate, and the objective's
// own links.
func (s Style) objective() string {
	var asks []any
	for _, e := range objectiveQueries() {
		asks = append(asks, queryTemplate(s.query(e)))
	}
	return fmt.Sprintf(`{{ with %s }}{{ with first . }}Budget of {{ .Labels.period }}: {{ if le .Value 0.0 }}spent{{ else }}{{ humanizePercentage .Value }} left`+
		`{{ with %s }}{{ with first . }}{{ if lt .Value 1e6 }}, gone in {{ humanizeDuration .Value`+rounded+
		` }}{{ end }}{{ end }}{{ end }}{{ end }}.`+"\n{{ end }}{{ end }}"+
		"{{ range %s }}Your runbook: {{ .Labels.runbook }}\n{{ end }}{{ range %s }}Your dashboard: {{ .Labels.dashboard }}\n{{ end }}", asks...)
}
