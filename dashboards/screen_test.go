package dashboards_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	drill "github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// screen is the text of the dashboards at a moment.
type screen struct {
	sim *rulesim.Sim
	at  time.Time
}

// rows returns the rows of a table as a person reads them on a screen of 1280 pixels: a text that is cut off ends
// with an ellipsis, and rows below the panel's edge are left out. Nil stands for an empty table.
func (s screen) rows(t *testing.T, b board, p panel) (read []map[string]string) {
	t.Helper()
	type row struct {
		labels map[string]string
		values map[string]float64
	}
	var all []*row
	for i, q := range p.Targets {
		value := "Value"
		if len(p.Targets) > 1 {
			value += " #" + q.RefID
		}
		for _, found := range s.ask(t, b, q.Expr) {
			labels := found.Metric.Map()
			joins := func(r *row) bool { // rows with the same labels are one
				for l, v := range labels {
					if r.labels[l] != v {
						return false
					}
				}
				return i > 0
			}
			at := slices.IndexFunc(all, joins)
			if at < 0 {
				all, at = append(all, &row{labels, map[string]float64{}}), len(all)
			}
			all[at].values[value] = found.F
		}
	}
	organized := p.Transformations[len(p.Transformations)-1].Options.(map[string]any)
	for _, tr := range p.Transformations {
		if tr.ID == "sortBy" {
			by := tr.Options.(map[string]any)["sort"].([]any)[0].(map[string]any)
			field := by["field"].(string)
			slices.SortStableFunc(all, func(x, y *row) int {
				c := cmp.Or(cmp.Compare(x.values[field], y.values[field]), strings.Compare(x.labels[field], y.labels[field]))
				if by["desc"] == true {
					return -c
				}
				return c
			})
		}
	}
	titles := organized["renameByName"].(map[string]any)
	room, free := float64(52*p.GridPos.W-8-18), 0.0
	for _, title := range titles {
		if p.overrides(t, "byName", title.(string))["custom.hidden"] == true {
			continue
		}
		if width, ok := p.overrides(t, "byName", title.(string))["custom.width"].(float64); ok {
			room -= width
		} else {
			free++
		}
	}
	height := float64(38*p.GridPos.H - 8 - 32 - 36) // below the title and the headings
	for _, r := range all {
		cells, tallest, lines := map[string]string{}, rowLines[p.Options.CellHeight], map[string]float64{}
		for field, of := range titles {
			title := of.(string)
			is := p.overrides(t, "byName", title)
			text := mapped(t, is["mappings"], r.labels[field])
			if v, ok := r.values[field]; ok {
				exact := strconv.FormatFloat(v, 'f', -1, 64)
				if text = mapped(t, is["mappings"], exact); text == exact {
					text = s.number(v, fmt.Sprint(is["unit"]))
				}
			}
			width, ok := is["custom.width"].(float64)
			if !ok {
				width = room / free
			}
			most := int((width - 16) / 7.2)
			switch {
			case is["custom.wrapText"] == true:
				takes := func(text string) float64 { return math.Ceil(6.5 * float64(len(text)) / (width - 16)) }
				// Grafana makes room for the label and not for its mapped text
				tallest, lines[title] = max(tallest, takes(r.labels[field])), takes(text)
				for _, word := range strings.FieldsFunc(text, func(r rune) bool { return r == ' ' || r == '-' }) { // Grafana does not break words
					if len(word) > most {
						text = strings.Replace(text, word, word[:most-1]+"…", 1)
					}
				}
			case len(text) > most:
				text = text[:most-1] + "…"
			}
			cells[title] = text
		}
		for title, n := range lines {
			if n > tallest {
				cells[title] += "…"
			}
		}
		if height -= max(36, 14+22*tallest); height < 0 && len(read) > 0 {
			break
		}
		read = append(read, cells)
	}
	return read
}

// rowLines is the least number of text lines in a row, by the height of its cells.
var rowLines = map[string]float64{"sm": 1, "lg": 2}

// whole checks that no text of a table is cut off.
func (s screen) whole(t *testing.T, b board, p panel) {
	t.Helper()
	for _, r := range s.rows(t, b, p) {
		for column, text := range r {
			if strings.Contains(text, "…") {
				t.Errorf("%s: %s cuts off %s: %s", b.Title, p.Title, column, text)
			}
		}
	}
}

// number writes a value as Grafana does, nearly.
func (s screen) number(v float64, unit string) string {
	switch {
	case unit == "dateTimeFromNow":
		return fmt.Sprintf("%.0f minutes ago", s.at.Sub(time.UnixMilli(int64(v))).Minutes())
	case strings.HasPrefix(unit, "suffix:"):
		return fmt.Sprintf("%.3g%s", v, strings.TrimPrefix(unit, "suffix:"))
	}
	return fmt.Sprintf("%.3g", v)
}

// mapped returns the text that represents a value.
func mapped(t *testing.T, mappings any, value string) string {
	t.Helper()
	raw, err := json.Marshal(mappings)
	if err != nil {
		t.Fatal(err)
	}
	var all []struct {
		Options map[string]struct{ Text string }
	}
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for _, m := range all {
		if says, ok := m.Options[value]; ok {
			return says.Text
		}
	}
	return value
}

// ask evaluates a query of a board at the moment.
func (s screen) ask(t *testing.T, b board, expr string) promql.Vector {
	t.Helper()
	v, err := s.sim.Query(b.substitute(t, expr), s.at)
	if err != nil {
		t.Fatalf("%s: %v", expr, err)
	}
	return v
}

// trueWithout maps the text of a panel without data to series that must not exist for the text to be true.
var trueWithout = map[string]string{
	"No alert is recorded as firing in this selection.":                                                       `ALERTS{alertstate="firing"}`,
	"Nothing is recorded here.":                                                                               `ALERTS{alertstate="firing"} or model:llm_engine_replicas:count`,
	"Nothing burns that is counted in this selection.":                                                        `model:llm_slo_burn:rate5m > 1`,
	"No event of this selection was counted in 5 minutes.":                                                    `model:llm_slo_burn:rate5m`,
	"No event of this selection was counted in an hour.":                                                      `model:llm_slo_burn:rate1h`,
	"No event of this selection was counted in the 1h before any point of this graph.":                        `model:llm_slo_burn:rate1h`,
	"No event is counted here.":                                                                               `rate(llm_slo_bad_events_total[5m])`,
	"The exporter sees no process of these engines on a GPU.":                                                 `llm_engine_cpu_wait_seconds_total`,
	"No latency objective counts here.":                                                                       `model:llm_engine_good_tokens:rate5m`,
	"No deploy, changed setting or restart is recorded in this range.":                                        `last_over_time({__name__=~"model:llm_engine_(changed:timestamp_seconds|started:last5m)"}[1h])`,
	"No replica is known to differ.":                                                                          `replica:llm_engine_skew:value`,
	"No engine restarts again and again, or none is read.":                                                    `page:llm_engine_restarts:last6h`,
	"No engine reports that a number is missing.":                                                             `llm_engine_metric_source_info{quality="missing"}`,
	"Nothing is reported to be wrong, or nothing is reported at all.":                                         `llm_engine_up == 0`,
	"No GPU reports that a feature is missing.":                                                               `llm_gpu_feature_supported == 0`,
	"No GPU has a condition, or none is read.":                                                                `llm_gpu_health > 0`,
	"No PCIe link is below what it can be, or none is read.":                                                  `llm_gpu_pcie_link_width{state="current"} < ignoring (state) llm_gpu_pcie_link_width{state="max"}`,
	"No XID was seen, or XIDs are not read.":                                                                  `llm_gpu_xid_errors_total > 0`,
	"No XID is recorded, and no ECC is known for these GPUs.":                                                 `model:llm_evidence:value{fact="xids"} or llm_gpu_ecc_errors_total{severity="uncorrected"} and on (gpu_uuid) llm_engine_gpu_info`,
	"No GPU reports ECC. No board here has it, it is off, or the exporter reads no GPU.":                      `llm_gpu_ecc_errors_total`,
	"No GPU reports this. It needs Hopper or newer.":                                                          `llm_gpu_memory_bandwidth_utilization_ratio`,
	"No GPU that is known to serve this model reports this. It needs Hopper or newer.":                        `llm_gpu_memory_bandwidth_utilization_ratio and on (gpu_uuid) llm_engine_gpu_info`,
	"No GPU that is known to serve this model reports this. See Exporter health.":                             `llm_gpu_clock_event_seconds_total and on (gpu_uuid) llm_engine_gpu_info`,
	"No GPU of this model reports it.":                                                                        `llm_gpu_clock_event_active and on (gpu_uuid) llm_engine_gpu_info`,
	"No engine's capacity is known at any point of this graph. llm_engine_capacity_known has the cause.":      `model:llm_capacity:requests_per_second`,
	"No exporter has the price of a GPU hour (gpu_hour_price in its configuration), or there were no tokens.": `(model:llm_engine_gpus:count and model:llm_engine_generation_tokens:rate5m > 0) and on () llm_gpu_hour_price`,
	"No tokens at any point of this graph, or no GPU reports its energy.":                                     `(model:llm_engine_gpus:count and model:llm_engine_generation_tokens:rate5m > 0) and on () llm_gpu_energy_joules_total`,
	"No tokens at any point of this graph, or no GPU is known to serve a model.":                              `model:llm_engine_gpus:count and model:llm_engine_generation_tokens:rate5m > 0`,
	"No engine is known to use these GPUs.":                                                                   `llm_engine_gpu_info`,
	"No gateway here reports this.":                                                                           metrics.GatewayRejections.Name,
	"No synthetic request is recorded here. Probes are off by default.":                                       `llm_probe_requests_total`,
	"No source of engines here reports a place.":                                                              `llm_discovery_places`,
	"Nothing here reports this.":                                                                              `llm_gpu_clock_event_active`,
	// one of the two is true
	"Nothing here reports this, or nothing happened. This does not mean zero.": ``,
}

// empty checks that the text of a panel without data is true, and returns the text; it returns nothing for a panel with
// data.
func (s screen) empty(t *testing.T, b board, p panel) string {
	t.Helper()
	window, err := model.ParseDuration(strings.TrimPrefix(b.Time.From, "now-"))
	if err != nil {
		t.Fatal(err)
	}
	return s.emptyOver(t, b, p, time.Duration(window))
}

// emptyOver is like empty, over a range that a reader chose.
func (s screen) emptyOver(t *testing.T, b board, p panel, window time.Duration) string {
	t.Helper()
	if p.Type == "text" {
		return ""
	}
	drawn, step := s, interval(window, 52*p.GridPos.W-40)
	if p.Type == "timeseries" { // Grafana puts points at multiples of the time between them: the last is nearly that old at worst
		drawn.at = s.at.Add(-step)
	}
	said := p.Options.TextMode != "name" // a stat of names has no place for another text
	for _, q := range p.Targets {
		found, err := s.sim.Query(b.substituteEvery(t, q.Expr, window, step, rateOver(step)), drawn.at)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range found {
			said = true
			if p.Type != "state-timeline" && p.Options.TextMode != "name" || found.F != -1 {
				return ""
			}
		}
	}
	if !said {
		t.Errorf("%s: %s is blank", b.Title, p.Title)
	}
	says := p.FieldConfig.Defaults.NoValue
	without, reviewed := trueWithout[says]
	if !reviewed {
		without, reviewed = trueWithout[strings.Replace(says, " at any point of this graph", "", 1)]
	}
	if !reviewed {
		t.Errorf("%s: %s says %q: what must not be there for it to be true?", b.Title, p.Title, says)
	}
	if without != "" {
		at := s.at
		if strings.Contains(says, "any point of this graph") {
			at = drawn.at
		}
		there, err := s.sim.Query(without, at)
		if err != nil {
			t.Fatal(err)
		}
		if len(there) > 0 {
			t.Errorf("%s: %s says %q, and there is %s", b.Title, p.Title, says, there[0])
		}
	}
	return says
}

// TestNothingIsSaidOfNothing checks that, on an empty database under the rules, no panel has a number, and no text
// claims anything that is unknown.
func TestNothingIsSaidOfNothing(t *testing.T) {
	t.Parallel()
	file, err := rules.Encode(rules.NewFile(bareGroups(), rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	sim, err := rulesim.New(file)
	if err != nil {
		t.Fatal(err)
	}
	defer sim.Close()
	s := screen{sim, rulesim.Epoch.Add(3 * time.Minute)}
	if err := sim.Run(rulesim.Epoch, s.at, time.Minute, func(time.Time, rulesim.Emit) {}); err != nil {
		t.Fatal(err)
	}
	claim := regexp.MustCompile(`(?i)^(ok|all|every|100)|nothing burns\.|no restart`)
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			if p.Type == "text" {
				continue
			}
			says := s.empty(t, b, p)
			if says == "" || claim.MatchString(says) {
				t.Errorf("%s: %s says %q of nothing", b.Title, p.Title, says)
			}
		}
	}
}

// TestAHealthyEngineIsCalm checks that the dashboards claim nothing false about a healthy engine without GPUs on
// the day of installation: it did not start, nothing burns, no alert fires, and no panel about GPUs has data.
func TestAHealthyEngineIsCalm(t *testing.T) {
	t.Parallel()
	in := named(t, "thermal-throttle")
	in.Faults, in.History, in.Lasts, in.Fleet.Replicas = nil, 20*time.Minute, 5*time.Minute, 1
	played, err := drill.Run(in, drill.Options{Seed: 1, Groups: bareGroups(), Relabel: onHost, WithoutGPUs: true})
	if err != nil {
		t.Fatal(err)
	}
	defer played.Close()
	s := screen{played.Prometheus, played.World.At(played.Onset + in.Lasts)}
	said := map[string]string{}
	for _, b := range boards(t) {
		for _, p := range b.flat() {
			says := s.empty(t, b, p)
			said[p.Title] = says
			ofGPUs := len(p.Targets) > 0
			for _, q := range p.Targets {
				ofGPUs = ofGPUs && !slices.ContainsFunc(names(t, b.substitute(t, q.Expr)),
					func(n string) bool { return !strings.HasPrefix(n, "llm_gpu_") })
			}
			if ofGPUs && says == "" {
				t.Errorf("%s: %s shows GPUs", b.Title, p.Title)
			}
		}
	}
	engine := dashboards.All(nil)[2] // Grafana draws even an empty row, so parts that this engine lacks are on a separate dashboard
	for _, r := range engine.Rows {
		for _, p := range r.Panels {
			if lacks.MatchString(said[p.Title]) && p.Title != "Waiting by reason" { // which newer engines report
				t.Errorf("%s, %s: %s says %q", engine.Title(), r.Title, p.Title, said[p.Title])
			}
		}
	}
	for title, want := range map[string]string{
		"Where to look first": "Nothing burns that is counted in this selection.",
		"Firing alerts":       "No alert is recorded as firing in this selection.",
		"What changed":        "No deploy, changed setting or restart is recorded in this range.",
		"Needs a person":      "No GPU has a condition, or none is read.",
	} {
		if said[title] != want {
			t.Errorf("%s says %q, want %q", title, said[title], want)
		}
	}
}

// lacks matches the texts of panels about something that no installation here has.
var lacks = regexp.MustCompile(`^(Nothing here|No gateway|No synthetic)`)

// TestAtThreeInTheMorning plays the incidents that no panel names, public ones included, until three minutes after
// their alert, and looks over every range: TestDrill does so for the others. For an incident that neither pages nor
// opens a ticket, nothing is shown. Each run plays one incident in twelve, and -all plays all.
func TestAtThreeInTheMorning(t *testing.T) {
	t.Parallel()
	others := drilled(t)
	for i, in := range incident.All() {
		if slices.ContainsFunc(others, func(o incident.Incident) bool { return o.Name == in.Name }) {
			continue
		}
		if !*all && i%12 != 0 {
			continue
		}
		t.Run(in.Name, func(t *testing.T) {
			t.Parallel()
			o := drill.Options{Seed: 1, Groups: bareGroups(), Relabel: inCluster}
			if i%2 == 1 {
				o.Relabel = onHost
			}
			in.History = brief
			if in.Clue != "" { // which the page also names; an event at the start of the history is not a change an hour later
				o.Groups, in.History = rules.Groups(rules.Options{}), 75*time.Minute
			}
			tells := cmp.Or(in.Page, in.Cause)
			if tells == nil {
				in.Lasts = min(in.Lasts, 30*time.Minute)
			}
			p, err := drill.New(in, o)
			if err != nil {
				t.Fatal(err)
			}
			defer p.Close()
			onset := p.World.At(p.Onset)
			at := p.Onset + in.Lasts
			if err := p.Through(t.Context(), 0, at, p.Faults(), nil); err != nil {
				t.Fatal(err)
			}
			for _, e := range p.Evaluations {
				if tells != nil && e.At > 0 && slices.ContainsFunc(e.Firing, func(a rulesim.Alert) bool { return a.Name == tells.Name }) {
					at = min(at, p.Onset+e.At+3*time.Minute)
				}
			}
			s := shown{sim: p.Prometheus, from: onset.Add(-35 * time.Minute), onset: onset, to: p.World.At(at)}
			s.overEveryRange(t)
			if tells != nil {
				for _, n := range p.Alertmanager.Take() {
					if n.At.After(s.to) {
						continue
					}
					if m := lookFirstAt.FindStringSubmatch(n.Text); m != nil {
						s.says = append(s.says, n.Title+" "+m[1])
					}
				}
				s.atThree(t, in)
				return
			}
			b := boards(t)[0]
			for title, want := range map[string]string{
				"Firing alerts":       "No alert is recorded as firing in this selection.",
				"Where to look first": "Nothing burns that is counted in this selection.",
			} {
				panel := b.titled(title)
				if rows := (screen{s.sim, s.to}).rows(t, b, panel); len(rows) > 0 || panel.FieldConfig.Defaults.NoValue != want {
					t.Errorf("%s has %v, or says %q", title, rows, panel.FieldConfig.Defaults.NoValue)
				}
			}
		})
	}
}

// lookFirstAt finds the branch that a page names.
var lookFirstAt = regexp.MustCompile(`(?m)^Look first at: (\w+)\.`)

// atThree checks the first screen of the incident dashboard three minutes after the alert: it must show the model,
// the replica or the GPU and its node where one is at fault, the branch, the remedy and the time of the onset.
func (s shown) atThree(t *testing.T, in incident.Incident) {
	t.Helper()
	tells := cmp.Or(in.Page, in.Cause)
	fires, _, err := s.sim.Range(`sum(ALERTS{alertstate="firing",alertname="`+tells.Name+`"})`, s.onset, s.to, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if len(fires) == 0 {
		t.Fatalf("%s does not fire", tells.Name)
	}
	view := screen{s.sim, time.UnixMilli(fires[0].Floats[0].T).Add(3 * time.Minute)}
	b := boards(t)[0]
	table := func(title string) []map[string]string {
		return view.rows(t, b, b.titled(title))
	}
	listed := table("Firing alerts")
	alert := slices.IndexFunc(listed, func(r map[string]string) bool { return r["alert"] == tells.Name })
	if alert < 0 {
		t.Fatalf("%s is not among the alerts that are seen: %v", tells.Name, listed)
	}
	rows := table("Where to look first")
	if len(rows) == 0 {
		t.Fatal("no row says where to look first")
	}
	r := rows[0]
	r["since"] = cmp.Or(r["since"], listed[alert]["since"]) // an alert on a GPU or an engine does not name its model
	t.Logf("%v", r)
	name, branch := in.Names()
	for _, column := range []string{"model", "since", "branch", "evidence", "lever", "runbook", "burn"} {
		if r[column] == "" || strings.Contains(r[column], "…") {
			t.Errorf("%s is %q: %v", column, r[column], r)
		}
	}
	if r["burn"] != "no events" && !strings.Contains(r["what is bad"], " ") {
		t.Errorf("what is bad is no sentence, but %q: %v", r["what is bad"], r)
	}
	since, _ := strconv.ParseFloat(strings.Fields(r["since"] + " -")[0], 64)
	began := view.at.Sub(s.onset).Minutes()
	last := began
	for _, f := range in.Ordered() { // the fault may get worse in steps, and only the last steps identify it
		if since := began - f.At.Minutes(); since >= 0 {
			last = min(last, since)
		}
	}
	latest := last - 20
	if in.Page == nil { // the row has the time at which the ticket's condition began, which a slow fault meets hours later
		latest = min(latest, 3+tells.For.Minutes()-2)
	}
	if since > began+2 || since < latest || r["model"] != in.Fleet.Profile.Model {
		t.Errorf("since %s, and it began %.0f minutes ago with %s", r["since"], began, in.Fleet.Profile.Model)
	}
	another := slices.ContainsFunc(listed, func(a map[string]string) bool { // page that fires for the same cause may have another branch
		return a["severity"] == "critical" && strings.HasPrefix(r["evidence"], a["alert"]+" fires")
	})
	worse := s.says != nil // by now, another objective burns faster than the paged objective, and has its own suspect
	for _, says := range s.says {
		worse = worse && (!strings.Contains(says, r["what is bad"]) || strings.HasSuffix(says, " "+r["branch"]))
	}
	if branch != "" && r["branch"] != string(branch) && !another && !worse {
		t.Errorf("the branch of %s is %s: %v", name, branch, r)
	}
	local := in.Cause != nil && (slices.Contains(in.Cause.Scope, metrics.LabelServer) || slices.Contains(in.Cause.Scope, metrics.LabelGPUUUID))
	for _, c := range rules.Clues() {
		local = local || c.Name == in.Clue && placed.MatchString(c.Says)
	}
	if local && !place.MatchString(strings.ReplaceAll(r["evidence"], in.Fleet.Profile.Model+"-", "replica-")) {
		t.Errorf("no place is named: %v", r)
	}
}

// place matches a replica, its address, or a node.
var place = regexp.MustCompile(`replica-\d|10\.0\.0\.\d+:|gateway:\d|node-\d`)

// placed matches a place in the words of a clue.
var placed = regexp.MustCompile(`{(engine|gpu_uuid|instance)}`)
