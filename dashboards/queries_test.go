package dashboards_test

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// recordedWith returns the series that rules record, by name.
func recordedWith(opt rules.Options) map[string]bool {
	recorded := map[string]bool{}
	for _, g := range rules.Groups(opt) {
		for _, r := range g.Records {
			recorded[r.Name.Name] = true
		}
	}
	return recorded
}

// With other burn-rate windows, panels read those windows, and draw lines only for existing pairs.
func TestWindowsAreThoseOfTheRules(t *testing.T) {
	const h = slo.Duration(time.Hour)
	page := func(long slo.Duration) slo.WindowPair {
		return slo.WindowPair{Long: long, Short: long / 12, Spend: slo.One / 50, Severity: slo.Page}
	}
	ticket := slo.WindowPair{Long: 48 * h, Short: 4 * h, Spend: slo.One / 10, Severity: slo.Ticket}
	for name, pairs := range map[string][]slo.WindowPair{"defaults": nil, "one": {page(2 * h)}, "unsorted": {
		ticket, page(12 * h),
		page(3 * h),
	}, "many": {page(h), page(2 * h), page(3 * h), page(4 * h), page(5 * h), page(6 * h), ticket}} {
		recorded := recordedWith(rules.Options{WindowPairs: pairs})
		longs := map[string]bool{}
		if pairs == nil {
			longs = map[string]bool{"1h": true, "6h": true, "1d": true, "3d": true}
		}
		for _, p := range pairs {
			longs[p.Long.String()] = true
		}
		lines := 0
		for _, b := range boardsFor(t, pairs) {
			b.each(func(p panel, q target) {
				for _, s := range selectors(t, b.substitute(t, q.Expr)) {
					for _, m := range s {
						if m.Name == "__name__" && strings.Contains(m.Value, ":") && !recorded[m.Value] {
							t.Errorf("%s: %s: %s reads %s, which no rule records", name, b.Title, p.Title, m.Value)
						}
						if m.Name != metrics.LabelLong {
							continue
						}
						if lines++; !longs[m.Value] {
							t.Errorf("%s: %s: %s draws the line of %s, which is no pair's", name, b.Title, p.Title, m.Value)
						}
					}
				}
			})
		}
		if lines == 0 {
			t.Errorf("%s: no panel draws a line at which a pair fires", name)
		}
	}
}

// Every query, of panels, annotations and variables, parses, names series of the vocabulary and labels
// that they have, and reads only recorded series that a rule records.
func TestQueriesUseTheVocabulary(t *testing.T) {
	recorded := recordedWith(rules.Options{})
	for _, b := range boards(t) {
		b.all(func(what, expr string) {
			query := b.substitute(t, expr)
			if err := promql.Verify(query); err != nil {
				t.Errorf("%s: %s: %v", b.Title, what, err)
			}
			for _, name := range names(t, query) {
				if strings.Contains(name, ":") && !recorded[name] {
					t.Errorf("%s: %s reads %s, which no rule records", b.Title, what, name)
				}
			}
		})
	}
}

var labelValues = regexp.MustCompile(`^label_values\((.*), (\w+)\)$`)

// all calls f for every query of panels, annotations and variables.
func (b board) all(f func(what, expr string)) {
	b.each(func(p panel, q target) { f(p.Title+" "+q.RefID, q.Expr) })
	for _, a := range b.Annotations.List {
		if a.Expr != "" {
			f("annotation "+a.Name, a.Expr)
		}
	}
	for _, v := range b.Templating.List {
		if m := labelValues.FindStringSubmatch(v.Query); m != nil {
			f("variable "+v.Name, "count by ("+m[2]+") ("+m[1]+")")
		}
	}
}

func selectors(t testing.TB, query string) [][]*labels.Matcher {
	t.Helper()
	e, err := promql.Parser.ParseExpr(query)
	if err != nil {
		t.Errorf("%v in %s", err, query)
		return nil
	}
	return parser.ExtractSelectors(e)
}

func names(t testing.TB, query string) []string {
	t.Helper()
	var all []string
	for _, s := range selectors(t, query) {
		for _, m := range s {
			if m.Name == "__name__" {
				all = append(all, m.Value)
			}
		}
	}
	return all
}

// Every filter has an effect: each selector of each panel obeys every variable of its dashboard whose label the series
// has.
func TestEverySelectorObeysTheFilters(t *testing.T) {
	for _, b := range boards(t) {
		b.each(func(p panel, q target) {
			query := dollar.ReplaceAllString(strings.NewReplacer("$__rate_interval", "5m", "$__range", "1h", "$__interval", "1m").
				Replace(q.Expr), "1$1")
			for _, s := range selectors(t, query) {
				name, matched := "", map[string]string{}
				for _, m := range s {
					matched[m.Name] = m.Value
					if m.Name == "__name__" {
						name = m.Value
					}
				}
				f := promql.Lookup(name)
				if f == nil {
					t.Errorf("%s: %s reads unknown %s", b.Title, p.Title, name)
					continue
				}
				if f.OfEngines() && f.HasLabel(metrics.LabelRole) && matched[metrics.LabelRole] != metrics.GatewayRole {
					t.Errorf("%s: %s reads %s of gateways, too", b.Title, p.Title, name)
				}
				for _, v := range b.Templating.List {
					m := labelValues.FindStringSubmatch(v.Query)
					if m == nil {
						continue
					}
					label := m[2]
					if !slices.Contains(f.Labels, label) && label != "cluster" && !(f.Exported() && label == "instance") {
						continue
					}
					if strings.TrimSuffix(matched[label], "|") != "1"+v.Name {
						t.Errorf("%s: %s reads %s without $%s", b.Title, p.Title, name, v.Name)
					}
				}
			}
		})
	}
}

// Dashboards over weeks read recorded series, alerts and the few series of objectives: never a bucket or a
// replica.
func TestLongRangesReadRecordedSeries(t *testing.T) {
	long := 0
	for _, b := range boards(t) {
		if !strings.HasSuffix(b.Time.From, "d") {
			continue
		}
		long++
		b.all(func(what, expr string) {
			if strings.HasPrefix(what, "variable ") {
				return // Grafana queries the index for these
			}
			for _, name := range names(t, b.substitute(t, expr)) {
				if f := promql.Lookup(name); (f == nil || f.Exported()) && !slices.Contains([]string{
					metrics.Alerts.Name, metrics.SLOInfo.Name,
					metrics.SLOThreshold.Name,
				}, name) {
					t.Errorf("%s: %s reads %s over %s", b.Title, what, name, b.Time.From)
				}
			}
		})
	}
	if long != 2 {
		t.Errorf("%d dashboards over weeks, expected objectives and fleet", long)
	}
}

// Quantiles come from added buckets; latencies are never averaged over replicas, ratios never added.
func TestAggregations(t *testing.T) {
	for _, b := range boards(t) {
		b.each(func(p panel, q target) {
			e, err := promql.Parser.ParseExpr(b.substitute(t, q.Expr))
			if err != nil {
				t.Error(err)
				return
			}
			parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
				a, ok := n.(*parser.AggregateExpr)
				if !ok {
					return nil
				}
				if a.Op == parser.AVG {
					t.Errorf("%s: %s averages: %s", b.Title, p.Title, a)
				}
				if v, ok := a.Expr.(*parser.VectorSelector); ok && a.Op == parser.SUM {
					if f := promql.Lookup(v.Name); f != nil && f.Aggregate != metrics.Sum {
						t.Errorf("%s: %s adds up %s, which is folded by %s", b.Title, p.Title, f.Name, f.Aggregate)
					}
				}
				return nil
			})
		})
	}
}

// Alerts open dashboards that exist and that have a variable for every label that the alert always has.
func TestAlertsLinkHere(t *testing.T) {
	byUID := map[string]board{}
	for _, b := range boards(t) {
		byUID[b.UID] = b
	}
	optional := map[string]bool{} // alerts whose panels are about parts that only some installations have
	for _, b := range dashboards.All(nil) {
		for _, r := range b.Rows {
			for _, p := range r.Panels {
				optional[p.Runbook] = optional[p.Runbook] || b.UID == rules.OptionalDashboard
			}
		}
	}
	linked := regexp.MustCompile(`with \$labels\.(\w+) }}&var-(\w+)=`)
	file := rules.NewFile(rules.Groups(rules.Options{}), rules.Style{DashboardURL: "https://grafana.example/d/{uid}"})
	scope := map[string][]string{}
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
		scope[a.Name] = a.Scope
	}
	n := 0
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			n++
			uid, _, _ := strings.Cut(strings.TrimPrefix(r.Annotations.DashboardURL, "https://grafana.example/d/"), "?")
			b, ok := byUID[uid]
			if !ok {
				t.Errorf("%s opens %s, which does not exist", r.Alert, uid)
				continue
			}
			if optional[r.Alert] && uid != string(rules.OptionalDashboard) && uid != string(rules.IncidentDashboard) {
				t.Errorf("%s opens %s, which does not have its panel", r.Alert, b.Title)
			}
			for _, m := range linked.FindAllStringSubmatch(r.Annotations.DashboardURL, -1) {
				has := slices.ContainsFunc(b.Templating.List, func(v variable) bool { return v.Name == m[2] })
				byGPU := uid == string(rules.GPUDashboard) && slices.Contains(scope[r.Alert], metrics.LabelGPUUUID) // narrower than a model
				if slices.Contains(scope[r.Alert], m[1]) && !has && !(byGPU && m[1] != metrics.LabelGPUUUID) {
					t.Errorf("%s opens %s with %s, which it does not know", r.Alert, b.Title, m[2])
				}
			}
		}
	}
	if n == 0 {
		t.Error("no alert has a link")
	}
}

// reader collects the families that queries read, directly or through recording rules.
type reader struct {
	recorded map[string]string // expressions by series
	seen     map[string]bool
	families map[*metrics.Family]bool
}

func newReader() reader {
	r := reader{map[string]string{}, map[string]bool{}, map[*metrics.Family]bool{}}
	for _, g := range rules.Groups(rules.Options{}) {
		for _, rec := range g.Records {
			r.recorded[rec.Name.Name] = rec.Expr.String()
		}
	}
	return r
}

func (r reader) add(t testing.TB, query string) {
	t.Helper()
	for _, name := range names(t, query) {
		if r.seen[name] {
			continue
		}
		r.seen[name], r.families[promql.Lookup(name)] = true, true
		if expr, ok := r.recorded[name]; ok {
			r.add(t, expr)
		}
	}
}

// The subject of an alert is visible: every number of the exporter that alerts read, directly or through recording
// rules, is on a dashboard, except numbers that only name something or only keep alerts quiet.
func TestAlertsHaveTheirEvidence(t *testing.T) {
	shown, asked := newReader(), newReader()
	for _, b := range boards(t) {
		b.each(func(_ panel, q target) { shown.add(t, b.substitute(t, q.Expr)) })
	}
	for _, a := range rules.Alerts(rules.Groups(rules.Options{})) {
		asked.add(t, a.Expr.String())
	}
	for f := range asked.families {
		quiets := f == metrics.SLOMayBeAbsent || f == metrics.PodDeletedOnPurpose || f == metrics.EngineLeft
		if f.Owner != metrics.Rules && !quiets && !shown.families[f] && f.Kind != metrics.Info {
			t.Errorf("alerts read %s, no panel does", f.Name)
		}
	}
}

// Panels per model read the recorded series of a whole fleet or, once a node or a runtime is chosen, the series of
// replicas, never both.
func TestChosenNodesAreReadFromReplicas(t *testing.T) {
	b := boards(t)[2]
	p := b.titled("Running and waiting")
	for _, c := range []struct {
		stored        *metrics.Family
		node, runtime string
		models        int
	}{
		{metrics.RecordedRunning, ".*", ".*", 3},
		{metrics.RecordedRunning, "node-0", ".*", 0},
		{metrics.RecordedRunning, ".*", "vllm", 0},
		{metrics.RequestsRunning, ".*", ".*", 0},
		{metrics.RequestsRunning, "node-0", ".*", 1},
		{
			metrics.RequestsRunning, "(node-0|node-2)",
			".*", 2,
		},
		{metrics.RequestsRunning, ".*", "vllm", 3},
		{metrics.RequestsRunning, "node-0", "vllm", 1},
		{
			metrics.RequestsRunning, "node-0",
			"sglang", 0,
		},
	} {
		sim := fleetOf(t, 3, 8, 10*time.Minute, func(f *metrics.Family) bool { return f == c.stored })
		b.choose(t, "node", c.node)
		b.choose(t, "runtime", c.runtime)
		v, err := sim.Query(b.substituteOver(t, p.Targets[0].Expr, 10*time.Minute, time.Minute), rulesim.Epoch.Add(10*time.Minute))
		if err != nil || len(v) != c.models {
			t.Errorf("%s, node %s, runtime %s: %d models, want %d (%v)", c.stored.Name, c.node, c.runtime, len(v), c.models, err)
		}
	}
}

// TestAnotherAnswerIsDrawn checks that, of many probed addresses, only the address whose answer changed is drawn and
// named.
func TestAnotherAnswerIsDrawn(t *testing.T) {
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	if err := sim.Append(rulesim.Epoch, func(emit rulesim.Emit) {
		for i := range 20 {
			emit(labels.FromStrings(model.MetricNameLabel, metrics.ProbeAnswerMatches.Name, "instance", "n", metrics.LabelModel, "m",
				metrics.LabelServer, strconv.Itoa(i)), metrics.Bool(i != 17))
		}
	}); err != nil {
		t.Fatal(err)
	}
	for _, b := range boards(t) {
		b.each(func(p panel, q target) {
			if !strings.Contains(q.Expr, metrics.ProbeAnswerMatches.Name) {
				return
			}
			v, err := sim.Query(b.substitute(t, q.Expr), rulesim.Epoch)
			if err != nil || len(v) != 1 || v[0].Metric.Get(metrics.LabelServer) != "17" || v[0].F != 1 {
				t.Errorf("%s: %s draws %v (%v)", b.Title, p.Title, v, err)
			}
		})
	}
}

// grids lists the bounds of the buckets of two engines, one in two versions.
var grids = map[string][]string{
	"vllm 1": {"0.01", "0.025", "0.05", "10", "+Inf"}, "vllm 2": {"0.018", "0.028", "0.04", "80", "+Inf"},
	"tgi 1": {"0.0194", "0.0292", "0.0437", "120", "+Inf"},
}

// emitGrids emits all histograms of the engines: each of n observations is 0.022.
func emitGrids(n float64, emit rulesim.Emit) {
	for engine, bounds := range grids {
		runtime, version, _ := strings.Cut(engine, " ")
		l := labels.FromStrings(metrics.LabelRuntime, runtime, metrics.LabelNamespace, "prod", metrics.LabelModel, "m", metrics.LabelPod,
			engine, metrics.LabelServer, "s", "instance", "n", "job", rules.DefaultJob)
		emit(with(l, metrics.EngineInfo.Name, metrics.LabelVersion, version), 1)
		emit(with(l, metrics.Stages.Name, metrics.LabelStage, metrics.StageNextToken), n)
		emit(with(l, metrics.StageTime.Name, metrics.LabelStage, metrics.StageNextToken), 0.022*n)
		for _, h := range metrics.All() {
			for i, b := range bounds {
				if h.Kind == metrics.Histogram && h.OfEngines() {
					emit(with(l, h.Name+"_bucket", "le", b), n*metrics.Bool(i > 0))
				}
			}
		}
	}
}

// TestQuantilesOfTwoEngines checks that every panel with a quantile per model shows the value of all observations,
// within a bucket, even if an engine or a node is chosen, and that a heatmap has the bounds of one version.
func TestQuantilesOfTwoEngines(t *testing.T) {
	file, err := rules.Encode(rules.NewFile(bareGroups(), rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := rulesim.New(file)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	end := rulesim.Epoch.Add(20 * time.Minute)
	if err := sim.Run(rulesim.Epoch, end, time.Minute, func(at time.Time, emit rulesim.Emit) {
		emitGrids(at.Sub(rulesim.Epoch).Seconds(), emit)
	}); err != nil {
		t.Fatal(err)
	}
	for filter, value := range map[string]string{metrics.LabelModel: "m", "runtime": "vllm", "node": "n"} {
		told := 0
		for _, b := range boards(t) {
			if !slices.ContainsFunc(b.Templating.List, func(v variable) bool { return v.Name == filter }) {
				continue
			}
			b.choose(t, filter, value)
			b.each(func(p panel, q target) {
				if p.Type != "heatmap" && !strings.Contains(q.Expr, "histogram_quantile") {
					return
				}
				told++
				found, err := sim.Query(b.substitute(t, q.Expr), end.Add(-time.Minute))
				if err != nil {
					t.Fatal(err)
				}
				wrong := len(found) != 1
				if p.Type == "heatmap" {
					wrong = len(found) != len(grids["tgi 1"])
				} else {
					wrong = wrong || found[0].F < 0.01 || found[0].F > 0.05
				}
				if wrong {
					t.Errorf("%s: %s with %s=%s: %v", b.Title, p.Title, filter, value, found)
				}
			})
		}
		if told < 20 {
			t.Errorf("%d queries have quantiles or buckets", told)
		}
	}
}
