package runbooks_test

import (
	"bytes"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/engine"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/runbooks"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Every alert has a runbook, and every runbook with the name of an alert has an alert.
func TestAlertsAndPagesBelongTogether(t *testing.T) {
	var alerts []string
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
		alerts = append(alerts, a.Name)
		if _, err := runbooks.Page(a.Name); err != nil {
			t.Errorf("write runbooks/%s.md: %v", a.Name, err)
		}
	}
	for _, name := range runbooks.Names() {
		if strings.HasPrefix(name, "LLM") && !slices.Contains(alerts, name) {
			t.Errorf("runbooks/%s.md: no such alert", name)
		}
	}
}

var (
	fence = regexp.MustCompile("(?s)```promql\n(.*?)```")
	link  = regexp.MustCompile(`\]\(([^)]+)\)`)
)

// Every runbook begins with its question, links only to runbooks, and queries only metrics and labels of the
// vocabulary. The runbook of an alert or a branch has the same parts in the same order, and at least two queries.
func TestPagesAreComplete(t *testing.T) {
	parts := []string{"What it means", "Is it real?", "Split", "Evidence", "Levers", "Verify", "Roll back"}
	for _, name := range runbooks.Names() {
		page, err := runbooks.Page(name)
		if err != nil {
			t.Fatal(err)
		}
		text := string(page)
		if q := runbooks.Question(page); !strings.HasSuffix(q, "?") {
			t.Errorf("%s: the first line must be the question it answers, not %q", name, q)
		}
		var got []string
		for line := range strings.Lines(text) {
			if h, ok := strings.CutPrefix(line, "## "); ok {
				got = append(got, strings.TrimSpace(h))
			}
		}
		diagnosis := strings.HasPrefix(name, "LLM") || strings.HasPrefix(name, "Branch")
		if diagnosis && !slices.Equal(got, parts) {
			t.Errorf("%s: parts %v, want %v", name, got, parts)
		}
		queries := fence.FindAllStringSubmatch(text, -1)
		if diagnosis && len(queries) < 2 {
			t.Errorf("%s: %d queries; a page shows how to look and how to verify", name, len(queries))
		}
		for _, q := range queries {
			if err := promql.Verify(q[1]); err != nil {
				t.Errorf("%s: %v", name, err)
				continue
			}
			if strings.Contains(q[1], "by (le)") {
				t.Errorf("%s: the bounds of two engines differ: sum by (le, runtime) in %s", name, q[1])
			}
			for _, f := range twice(t, q[1]) {
				t.Errorf("%s: a gateway would count %s again: add role!=\"gateway\"", name, f)
			}
		}
		for _, l := range link.FindAllStringSubmatch(text, -1) {
			if _, err := runbooks.Page(strings.TrimSuffix(l[1], ".md")); err != nil {
				t.Errorf("%s links to %s: %v", name, l[1], err)
			}
		}
	}
}

// part matches the suffix of a histogram's series.
var part = regexp.MustCompile(`_(bucket|sum|count)$`)

// twice lists the families that both engines and gateways report and that a query selects from both.
func twice(t *testing.T, query string) (families []string) {
	t.Helper()
	expr, err := promql.Parser.ParseExpr(query)
	if err != nil {
		t.Fatal(err)
	}
	parser.Inspect(expr, func(n parser.Node, _ []parser.Node) error {
		v, ok := n.(*parser.VectorSelector)
		if !ok || slices.ContainsFunc(v.LabelMatchers, func(m *labels.Matcher) bool {
			return m.Name == metrics.LabelRole || m.Name == metrics.LabelPod || m.Name == metrics.LabelServer
		}) {
			return nil
		}
		for _, d := range engine.Known() {
			if d.Role == metrics.GatewayRole && slices.ContainsFunc(d.Rows, func(r engine.Row) bool {
				return r.To.OfEngines() &&
					r.To.Name == part.ReplaceAllString(v.Name, "")
			}) {
				families = append(families, v.Name)
				return nil
			}
		}
		return nil
	})
	return families
}

// If no alert or clue leads to a runbook, a runbook to which one leads must link to it, because nobody looks for a
// runbook in an incident.
func TestPagesAreReached(t *testing.T) {
	linked, led := map[string]bool{}, map[string]bool{}
	for _, c := range rules.Clues() {
		led[c.Runbook], linked[c.Runbook] = true, true
	}
	for _, name := range runbooks.Names() {
		page, err := runbooks.Page(name)
		if err != nil {
			t.Fatal(err)
		}
		if led[name] || strings.HasPrefix(name, "LLM") {
			for _, l := range link.FindAllStringSubmatch(string(page), -1) {
				linked[strings.TrimSuffix(l[1], ".md")] = true
			}
		}
	}
	for _, name := range runbooks.Names() {
		if !strings.HasPrefix(name, "LLM") && !linked[name] {
			t.Errorf("runbooks/%s.md: no page of an alert or a clue links to it", name)
		}
	}
}

// TestEachGatewayHasItsCommands checks that each gateway that is read, and Kong, has a part with the name that a query
// of the runbook gives it. The part has commands that refuse requests, shorten prompts and cap output, or names the
// missing commands. A part of gateways without any command names the place for these actions.
func TestEachGatewayHasItsCommands(t *testing.T) {
	page, err := runbooks.Page("Gateway")
	if err != nil {
		t.Fatal(err)
	}
	gateways := []metrics.Runtime{"kong"}
	for _, d := range engine.Known() {
		if d.Role == metrics.GatewayRole {
			gateways = append(gateways, d.Runtime)
		}
	}
	blocks := regexp.MustCompile("(?s)```sh\n.*?```")
	for _, gateway := range gateways {
		part := regexp.MustCompile(`(?ms)^## ([^\n]*, )?` + string(gateway) + `(,[^\n]*)?\n(.*?)(\n## |\z)`).FindStringSubmatch(string(page))
		if part == nil {
			t.Errorf("no part for %s", gateway)
			continue
		}
		commands := strings.Join(blocks.FindAllString(part[3], -1), "\n")
		says := blocks.ReplaceAllString(part[3], "")
		if strings.Contains(says, "in front of them") {
			continue
		}
		for what, needs := range map[string]struct{ command, cannot string }{
			"refuses requests": {`rpm_limit|"rateLimit"|http2MaxRequests|429|rate-limiting`, `^$`},
			"shortens prompts": {`char_count|requestBuffer|max_request_bytes|len\(body\)|request-size-limiting`, `^$`},
			"caps output":      {`max_tokens\b.*256`, `cannot cap output`},
		} {
			if !regexp.MustCompile(needs.command).MatchString(commands) && !regexp.MustCompile(needs.cannot).MatchString(says) {
				t.Errorf("%s: no command %s", gateway, what)
			}
		}
	}
	objects := 0
	for _, block := range regexp.MustCompile(`(?s)<<'?EOF'?\n(\{.*?)EOF|-p '(.*?)'|-d '(\{.*?\})`).FindAllStringSubmatch(string(page), -1) {
		var object any
		text := block[1] + strings.ReplaceAll(block[2]+block[3], "'", "")
		if err := yaml.Unmarshal([]byte(text), &object); err != nil || object == nil {
			t.Errorf("%v: %s", err, block[0])
		}
		objects++
	}
	if objects < 8 {
		t.Errorf("%d objects of commands were found", objects)
	}
	if strings.Contains(string(page), "Bearer sk-") {
		t.Error("a secret stands among the arguments")
	}
}

// TestLeversLeadToTheGatewaysCommands checks that a lever that refuses or caps at the gateway links to its commands.
func TestLeversLeadToTheGatewaysCommands(t *testing.T) {
	at := regexp.MustCompile(`(?i)\b(caps?|shed|refuse)\b[^;.|]*?(\[?at the gateway(\]\(Gateway\.md\))?)`)
	found := 0
	for _, name := range runbooks.Names() {
		page, err := runbooks.Page(name)
		if err != nil {
			t.Fatal(err)
		}
		text := runbooks.LeversOf(page)
		if name == "Stabilise" {
			text = string(page)
		}
		for _, m := range at.FindAllStringSubmatch(strings.Join(strings.Fields(text), " "), -1) {
			found++
			if m[3] == "" {
				t.Errorf("%s: %q has no link to Gateway.md", name, m[0])
			}
		}
	}
	if found < 10 {
		t.Errorf("%d levers at the gateway", found)
	}
}

// TestLeversThatDeletePodsHaveTheCommand checks that the runbook has the whole command, because nobody should compose
// it at night.
func TestLeversThatDeletePodsHaveTheCommand(t *testing.T) {
	found := 0
	for _, name := range runbooks.Names() {
		page, err := runbooks.Page(name)
		if err != nil {
			t.Fatal(err)
		}
		levers := runbooks.LeversOf(page)
		if !regexp.MustCompile(`(?i)delete (the|its) pod`).MatchString(levers) {
			continue
		}
		if found++; !strings.Contains(levers, "kubectl -n $NS delete pod $POD") {
			t.Errorf("%s: no command deletes the pod", name)
		}
	}
	if found < 6 {
		t.Errorf("%d levers delete a pod", found)
	}
}

func TestHandler(t *testing.T) {
	server := httptest.NewServer(http.StripPrefix("/runbooks/", runbooks.Handler("", nil)))
	defer server.Close()
	for path, want := range map[string]struct {
		status int
		text   string
	}{
		"/runbooks/":                {200, `href="LLMGPUFailed.md"`},
		"/runbooks/?":               {200, "<h2>Procedures</h2>"},
		"/runbooks/Stabilise":       {200, "<h1>Stabilise</h1>"},
		"/runbooks/LLMGPUFailed":    {200, "<h2>Is it real?</h2>"},
		"/runbooks/LLMGPUFailed.md": {200, "<h1>LLMGPUFailed</h1>"},
		"/runbooks/LLMGPULinkFault": {200, "<table>"},
		"/runbooks/../go.mod":       {404, "No such runbook"},
		"/runbooks/Nothing":         {404, "No such runbook"},
	} {
		resp, err := http.Get(server.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		body := new(strings.Builder)
		_ = resp.Write(body)
		resp.Body.Close()
		if resp.StatusCode != want.status || !strings.Contains(body.String(), want.text) {
			t.Errorf("%s: status %d, want %d with %q", path, resp.StatusCode, want.status, want.text)
		}
	}
}

// A query opens at the configured address, with the labels of the alert; in Explore's address it is part of JSON.
// Commands have no link, and without an address queries have none, either.
func TestQueriesOpen(t *testing.T) {
	for opener, want := range map[runbooks.Opener]string{
		"https://p.example/graph?g0.expr={query}":                                           `href="https://p.example/graph?g0.expr=time%28%29+-+llm_engine_start_time_seconds%7Bserver%3D%22a%3A8000%22%7D"`,
		`https://g.example/explore?panes=%7B"a":%7B"queries":[%7B"expr":"{json}"%7D]%7D%7D`: `%5C%22a%3A8000%5C%22`,
		"": "",
	} {
		server := httptest.NewServer(http.StripPrefix("/runbooks/", runbooks.Handler(opener, nil)))
		defer server.Close()
		page, err := http.Get(server.URL + "/runbooks/BranchHeldBackQueue?server=a:8000")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(page.Body)
		page.Body.Close()
		if err != nil {
			t.Fatal(err)
		}
		source, err := runbooks.Page("BranchHeldBackQueue")
		if err != nil {
			t.Fatal(err)
		}
		links := strings.Count(string(source), "```promql")
		if want == "" {
			links = 0
		}
		if n := strings.Count(string(body), "Run this query"); n != links || !strings.Contains(string(body), want) {
			t.Errorf("%q: %d links, want %d, among them %s:\n%s", opener, n, links, want, body)
		}
		if err := opener.Check(); err != nil {
			t.Errorf("%q: %v", opener, err)
		}
	}
	for _, opener := range []runbooks.Opener{
		"javascript:alert({query})", "https://p.example/graph", "p.example/{query}",
		"https://p.example/%zz{query}",
	} {
		if opener.Check() == nil {
			t.Errorf("%q passes", opener)
		}
	}
}

// A runbook fills in the labels of its address, passes them on, and accepts no value that a shell would split.
func TestHandlerFillsIn(t *testing.T) {
	server := httptest.NewServer(http.StripPrefix("/runbooks/", runbooks.Handler("", nil)))
	defer server.Close()
	get := func(query string) string {
		resp, err := http.Get(server.URL + "/runbooks/" + query)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		return string(body)
	}
	down := get("LLMEngineDown?namespace=prod&pod=chat-0&model_name=org/model-7b&instance=node-3:9844")
	if !strings.Contains(down, "kubectl -n prod get pod chat-0") || strings.Contains(down, "$NS") || strings.Contains(down, "$POD") {
		t.Errorf("placeholders are left:\n%s", down)
	}
	xid := get("LLMGPUFailed?instance=node-3:9844&gpu_uuid=GPU-1")
	for _, want := range []string{"kubectl cordon node-3\n", "$POD", `href="LLMGPULinkFault.md?gpu_uuid=GPU-1&amp;instance=node-3%3A9844"`} {
		if !strings.Contains(xid, want) {
			t.Errorf("the page lacks %q:\n%s", want, xid)
		}
	}
	if page := get("BranchQueueing?slo=ttft&model_name=m"); !strings.Contains(page,
		`href="LLMErrorBudgetFastBurn.md?model_name=m&amp;slo=ttft"`) {
		t.Errorf("nothing leads from the first suspect to the others:\n%s", page)
	}
	for _, evil := range []string{"x;reboot", "$(reboot)", "`reboot`", "a b", "<script>", "-o", "x%0Areboot"} {
		if page := get("LLMEngineDown?namespace=prod&pod=" + strings.NewReplacer(";", "%3B", " ", "%20", "<", "%3C", ">", "%3E").
			Replace(evil)); !strings.Contains(page, "get pod $POD") {
			t.Errorf("pod=%s is taken", evil)
		}
	}
}

// alertLabels returns the labels that each alert may have.
func alertLabels() map[string][]string {
	has := map[string][]string{}
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
		has[a.Name] = promql.Labels(a.Expr)
	}
	return has
}

// An alert links to its runbook with the labels that runbooks fill in and that the alert has in promtool's cases.
func TestAlertsFillTheirPagesIn(t *testing.T) {
	for _, g := range rules.NewFile(rules.Groups(rules.Options{}), rules.Style{}).Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			content, err := os.ReadFile("../rules/testdata/alerts/" + r.Alert + ".yaml")
			if err != nil {
				t.Fatal(err)
			}
			var cases struct {
				Tests []struct {
					Checks []struct {
						Name   string `yaml:"alertname"`
						Alerts []struct {
							Labels map[string]string `yaml:"exp_labels"`
						} `yaml:"exp_alerts"`
					} `yaml:"alert_rule_test"`
				}
			}
			if err := yaml.Unmarshal(content, &cases); err != nil {
				t.Fatal(err)
			}
			fires := map[string]bool{}
			for _, test := range cases.Tests {
				for _, check := range test.Checks {
					for _, a := range check.Alerts {
						for l := range a.Labels {
							fires[l] = fires[l] || check.Name == r.Alert
						}
					}
				}
			}
			u, err := url.Parse(r.Annotations.Plain.RunbookURL)
			if err != nil {
				t.Fatal(err)
			}
			for _, l := range runbooks.Labels {
				got := u.Query().Has(l)
				if l == metrics.LabelInstance && got { // most cases leave it out of their series
					continue
				}
				if got != fires[l] {
					t.Errorf("%s: the link to the runbook has %s: %v, the alert: %v", r.Alert, l, got, fires[l])
				}
			}
		}
	}
}

var (
	code      = regexp.MustCompile("(?ms)^```\\w*\n(.*?)^```$|`([^`\n]+)`")
	used      = regexp.MustCompile(`\$([A-Z_]+)\b`)
	assigned  = regexp.MustCompile(`(?m)^([A-Z_]+)=`)
	upperHost = regexp.MustCompile(`//[A-Z]`)
)

// A reader can fill in every placeholder: it is a label of the alert, or the runbook sets it by a command or names
// it in the text, as in `$POD`, before it is used. A runbook without an alert has the labels that all alerts that
// link to it share; a branch has the labels of a burn.
func TestPlaceholdersAreIntroduced(t *testing.T) {
	has := alertLabels()
	for _, name := range runbooks.Names() {
		page, err := runbooks.Page(name)
		if err != nil {
			t.Fatal(err)
		}
		reached := []string{name}
		if strings.HasPrefix(name, "Branch") {
			reached = []string{"LLMErrorBudgetFastBurn"}
		} else if !strings.HasPrefix(name, "LLM") {
			reached = nil
			for alert := range has {
				if from, _ := runbooks.Page(alert); strings.Contains(string(from), "]("+name+".md)") {
					reached = append(reached, alert)
				}
			}
		}
		known := map[string]bool{}
		for p, l := range runbooks.Labels {
			known[p] = len(reached) > 0 && !slices.ContainsFunc(reached, func(alert string) bool { return !slices.Contains(has[alert], l) })
		}
		for _, c := range code.FindAllStringSubmatch(string(page), -1) {
			text := c[1] + c[2]
			for _, m := range assigned.FindAllStringSubmatch(c[1], -1) {
				known[m[1]] = true
			}
			for _, m := range used.FindAllStringSubmatch(text, -1) {
				if c[2] == m[0] {
					known[m[1]] = true
				} else if !known[m[1]] {
					t.Errorf("%s: nothing above says what %s is in %q", name, m[0], text)
					known[m[1]] = true
				}
			}
			if upperHost.MatchString(text) {
				t.Errorf("%s: a host that nobody fills in: %q", name, text)
			}
		}
	}
}

// Runbooks link the procedures around the diagnosis: how to stabilise, to record, to verify, to roll back and to
// escalate. Shared text is in procedures, to which the runbooks link where they apply.
func TestPagesHaveTheirParts(t *testing.T) {
	serving := func(a *rules.Alert) bool {
		return a.Branch != rules.Hardware && a.Branch != rules.Exporter && !strings.HasSuffix(a.Name, "NoGain") // nobody suffers
	}
	hardware := func(a *rules.Alert) bool {
		return a.Branch == rules.Hardware && a.Severity != slo.Info
	}
	named := func(names ...string) func(*rules.Alert) bool {
		return func(a *rules.Alert) bool { return slices.Contains(names, a.Name) }
	}
	for _, part := range []struct {
		what, before, needs string // a part is the text above a heading; needs is a regular expression
		on                  func(*rules.Alert) bool
	}{
		// nobody gets up
		{"how to stabilise, before the diagnosis", "## What it means", `\(Stabilise\.md\)`, func(a *rules.Alert) bool {
			return serving(a) &&
				a.Name != "LLMErrorBudgetSlowBurn"
		}},
		{"what to record, before the diagnosis", "## What it means", `\(Record\.md\)`, serving},
		{"when each lever acts", "## Verify", `\*\*(At once|In minutes|By restart|By deploy)\*\*`, serving},
		{"the whole verification", "## Roll back", `\(Verify\.md\)`, serving},
		{"whom to call", "", `\(Escalate\.md\)`, func(a *rules.Alert) bool { return serving(a) || hardware(a) || a.Severity == slo.Page }},
		{"how to roll back", "", `\(Rollback\.md\)`, func(a *rules.Alert) bool {
			page, _ := runbooks.Page(a.Name)
			return serving(a) && regexp.MustCompile(`(?i)\broll(s|ed)? (it )?back`).Match(bytes.ReplaceAll(page, []byte("## Roll back"), nil))
		}},
		{"both windows of the fast pairs", "## Split", `(?s)rate5m.*rate1h.*rate30m.*rate6h`, named("LLMErrorBudgetFastBurn")},
		{"both windows of the slow pairs", "## Split", `(?s)rate2h.*rate1d.*rate6h.*rate3d`, named("LLMErrorBudgetSlowBurn")},
		{"p50, p95 and p99 of what users wait for", "## Levers", `(?s)"p50".*"p95".*"p99"`, named("LLMErrorBudgetFastBurn")},
		{
			"the bad share of each replica for one objective", "## Levers",
			`by \(pod, server\) \(rate\(llm_slo_bad_events_total\{[^}]*slo="\$SLO"`, named("LLMErrorBudgetFastBurn"),
		},
	} {
		for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
			if !part.on(a) {
				continue
			}
			page, err := runbooks.Page(a.Name)
			if err != nil {
				t.Fatal(err)
			}
			text := string(page)
			if part.before != "" {
				text, _, _ = strings.Cut(text, part.before)
			}
			if !regexp.MustCompile(part.needs).MatchString(text) {
				t.Errorf("%s.md lacks %s (%s)", a.Name, part.what, part.needs)
			}
		}
	}
}

// A single runbook meets the requirements of operators: the order of an incident, and for each symptom the levers that
// help. A row's needs are regular expressions that the runbook matches one after another.
func TestPagesNameWhatOperatorsAskFor(t *testing.T) {
	for page, needs := range map[string][][]string{
		"LLMErrorBudgetFastBurn": {
			{
				`\(Stabilise\.md\)`, `## Is it real\?`, `Both windows`, `curl`, `## Split`, `hardware: a throttled`, `hardware: memory errors`,
				`roll back first`, `## Evidence`,
			},
			{`\*\*At once\*\*: shed`, `cap output`, `out of rotation`, `\*\*In minutes\*\*`, `\(Rollback\.md\)`, `\*\*By restart or deploy\*\*`},
		},
		"Stabilise": {
			{
				`## Shed\nShedding acts at once`, `429`, `## Cap\nA cap acts at once`, `restart`, `## Drain\nDraining acts within a minute`,
				`## Add\nAdding takes minutes`, `kubectl -n \$NS scale`, `patch hpa`, `KEDA`, `KServe`,
			},
		},
		"Record": {{
			`route:`, `model, version, runtime:`, `revision, adapter:`, `tokenizer and template:`, `image and flags:`,
			`generation settings:`, `prompt and output tokens`, `tenant:`,
			`release time:`, `changes made`, `setting, value, quality, reason\) \(llm_engine_config_info`,
		}},
		"Verify": {{
			`rate5m`, `rate1h`, `rate30m`, `rate6h`, `time_to_first_token`, `inter_token_latency`, `llm_probe_requests_total`,
			`## Goodput`, `offset 1d`,
			`requests_waiting`, `preemptions_total`, `Undo what`,
		}},
		"Rollback": {{
			`last good value`, `## The old release still runs`, `canaryTrafficPercent`, `## Git controls the deployment`,
			`git revert`, `argocd app sync`, `flux reconcile`,
			`rollout undo`, `rollout status`, `warm`, `examples/rollout/`,
		}},
		"ReleaseGate": {{
			`old and the new revision`, `llm_engine_config_info`, `golden prompts`, `safety`, `short, long and bursty`, `Stop if more than`,
			`\*\*At once\*\*`, `examples/rollout/`,
		}},
		"Escalate": {{
			`a lever did not help`, `## Tell users`, `Since HH:MM`, `## A hardware case`, `nvidia-bug-report`,
			`llm_gpu_remapped_rows`, `## It is over`,
		}},

		"BranchQueueing": {{
			`\*\*At once\*\*: shed`, `output cap`, `kubectl scale`, `KEDA`, `KServe`, `--max-num-seqs`,
			`scale on the queue or the burn`,
		}},
		"BranchLongPrompts": {{
			`\*\*At once\*\*: cap the prompt`, `route long prompts`, `--max-num-batched-tokens`, `--max-num-seqs`,
			`prefix caching on`, `separate prefill pool, if`, `GDRDMA`,
		}},
		"LLMPrefixHitCollapse": {{`affinity`, `template or tokenizer`, `turn the cache on`, `--disable-radix-cache`}},
		"BranchLargeBatch": {{
			`cap output`, `add replicas`, `--max-num-seqs`, `speculation on`, `quantise`, `--tensor-parallel-size`,
			`within the node`, `smaller model`, `separate decode`,
		}},
		"BranchFewHits":          {{`tenants`, `affinity`, `\*\*By restart\*\*`, `--no-enable-prefix-caching`}},
		"LLMSpeculationCollapse": {{`temperature`, `\*\*By restart\*\*`, `turn speculation off`, `a draft trained`}},
		"BranchKVPressure": {{
			`cap output`, `batch limit`, `--max-model-len`, `--kv-cache-dtype fp8`, `not above 0\.95`,
			`\*\*By deploy\*\*`, `pool for long contexts`,
		}},
		"BranchOutOfMemory":    {{`## Split`, `(?i)weights`, `95th percentile|p95`, `0\.85-0\.90`, `--kv-cache-dtype fp8`}},
		"BranchLowThroughput":  {{`## Split`, `batches`, `CPU`, `--enforce-eager`, `--tensor-parallel-size`}},
		"BranchIdleGPUs":       {{`router`, `rate limit`, `blocked replica`}},
		"BranchAdapterLatency": {{`few replicas`, `--max-loras`}},
		"LLMRunawayGeneration": {{`\*\*At once\*\*: set a hard output cap`, `stop tokens`}},
		"BranchWrongOutput":    {{`(?i)metrics`, `tokenizer`, `## Levers`, `put back what changed`}},
		"LLMReleaseRegression": {{
			`fact=~"ttft_p95\|itl_p95\|failed"`, `Roll back first`,
			`\*\*At once\*\*: shift traffic to the previous revision`, `rollout undo`, `canary stop by itself`,
		}},
		"BranchColdStart":       {{`keep one warm replica`, `readiness`, `scale earlier`}},
		"LLMKVTransferFailures": {{`## Levers`, `(?i)RDMA`}},

		"BranchThrottledGPU": {{`\*\*At once\*\*`, `\*\*In minutes\*\*`, `\(Escalate\.md\)`}},
		"LLMGPUNeedsService": {{`reset the GPU`, `\*\*In minutes\*\*`, `\(Escalate\.md\)`}},
		"LLMGPUFailed":       {{`\*\*In minutes\*\*`, `kubectl cordon`, `--gpu-reset`, `\(Escalate\.md\)`}},
	} {
		content, err := runbooks.Page(page)
		if err != nil {
			t.Error(err)
			continue
		}
		for _, row := range needs {
			rest := string(content)
			for _, need := range row {
				at := regexp.MustCompile(need).FindStringIndex(rest)
				if at == nil {
					t.Errorf("%s.md lacks %s, or it stands before what it must follow", page, need)
					break
				}
				rest = rest[at[1]:]
			}
		}
	}
}

// TestLevers checks that a terminal gets no Markdown, but whole commands with the labels filled in.
func TestLevers(t *testing.T) {
	page := []byte("# X\n\n## Levers\n* **At once**: [roll back](Rollback.md), see\n  " +
		"[Stabilise](Stabilise.md).\n\nThen:\n```sh\nkubectl -n $NS delete pod $POD\nkubectl get pod $MODEL\n```\n\n## Verify\n")
	got := runbooks.Levers(page, map[string]string{"namespace": "prod", "pod": "p-0", "model_name": "$(reboot)"})
	want := []string{
		"At once: roll back (Rollback), see\n  Stabilise.", "Then:", "$ kubectl -n prod delete pod p-0",
		"$ kubectl get pod $MODEL",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}

// TestEveryXIDIsInARunbook checks that each code of the catalogue that pages or opens a ticket is in the table of
// the alert that responds to it.
func TestEveryXIDIsInARunbook(t *testing.T) {
	for severity, alert := range map[metrics.XIDSeverity]string{metrics.XIDPage: "LLMGPUFailed", metrics.XIDTicket: "LLMGPUNeedsService"} {
		text, err := os.ReadFile(alert + ".md")
		if err != nil {
			t.Fatal(err)
		}
		listed := map[string]bool{}
		for _, row := range regexp.MustCompile(`(?m)^\| ([0-9, ]+) \|`).FindAllStringSubmatch(string(text), -1) {
			for code := range strings.SplitSeq(row[1], ", ") {
				listed[code] = true
			}
		}
		for _, x := range metrics.XIDs {
			if listed[strconv.Itoa(x.Code)] != (x.Severity == severity) {
				t.Errorf("%s: XID %d (%s) is of severity %s, and the table has it: %t", alert, x.Code, x.Meaning, x.Severity,
					listed[strconv.Itoa(x.Code)])
			}
		}
	}
}

// durations maps the spellings of durations in runbooks.
var durations = map[string]time.Duration{
	"a minute": time.Minute, "two minutes": 2 * time.Minute, "three minutes": 3 * time.Minute,
	"five minutes": 5 * time.Minute,
	"ten minutes":  10 * time.Minute, "a quarter of an hour": 15 * time.Minute, "half an hour": 30 * time.Minute, "an hour": time.Hour,
}

// A runbook's time from a condition to its alert is the alert's own wait, a window of the alert or of a record that
// it reads, or both together.
func TestPagesSayHowLongAlertsWait(t *testing.T) {
	names := slices.Collect(maps.Keys(durations))
	says := regexp.MustCompile(`(?i)\bfor (` + strings.Join(names, "|") + `)\b`)
	window := regexp.MustCompile(`\[(\w+)[\]:]`)
	found := 0
	groups := rules.Groups(rules.Options{})
	for _, a := range rules.Alerts(groups) {
		page, err := runbooks.Page(a.Name)
		if err != nil {
			t.Fatal(err)
		}
		reads := a.Expr.String()
		for _, g := range groups {
			for _, r := range g.Records {
				if strings.Contains(a.Expr.String(), r.Name.Name) {
					reads += r.Expr.String()
				}
			}
		}
		_, meaning, _ := strings.Cut(string(page), "## What it means")
		meaning, _, _ = strings.Cut(meaning, "\n## ")
		for _, m := range says.FindAllStringSubmatch(meaning, -1) {
			said := durations[strings.ToLower(m[1])]
			right := said == a.For
			for _, w := range window.FindAllStringSubmatch(reads, -1) {
				d, err := model.ParseDuration(w[1])
				if err != nil {
					t.Fatal(err)
				}
				right = right || said == time.Duration(d) || said == time.Duration(d)+a.For
			}
			found++
			if !right {
				t.Errorf("%s: %q; the alert waits for %s", a.Name, m[0], a.For)
			}
		}
	}
	if found < 5 {
		t.Errorf("only %d pages say how long something lasted", found)
	}
}
