package dashboards_test

import (
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// visitor is a person on a dashboard, whose address has the dashboard, the chosen values and the time.
type visitor struct {
	sim     *rulesim.Sim
	address *url.URL
}

// board returns the dashboard as the visitor sees it.
func (v visitor) board(t *testing.T) board {
	t.Helper()
	all := boards(t)
	i := slices.IndexFunc(all, func(b board) bool { return "/d/"+b.UID == v.address.Path })
	if i < 0 {
		t.Fatalf("%s is no dashboard", v.address)
	}
	for _, x := range all[i].Templating.List {
		if chosen := v.address.Query().Get("var-" + x.Name); chosen != "" && chosen != "$__all" {
			all[i].choose(t, x.Name, chosen)
		}
	}
	return all[i]
}

var linkVariable = regexp.MustCompile(`\$\{([^}:]+)(:\w+)?\}`)

// click follows the link of the first line of a panel to the next dashboard, as Grafana fills it in, and returns
// the line's labels. All lines must match the chosen filters.
func (v *visitor) click(t *testing.T, title string, of map[string]string) labels.Labels {
	t.Helper()
	b := v.board(t)
	i := slices.IndexFunc(b.flat(), func(p panel) bool { return p.Title == title })
	if i < 0 {
		t.Fatalf("%s has no panel %s", b.Title, title)
	}
	p := b.flat()[i]
	lines, err := v.sim.Query(b.substitute(t, p.Targets[0].Expr), rulesim.Epoch.Add(10*time.Minute))
	if err != nil || len(lines) == 0 {
		t.Fatalf("%s, %s: %d lines, %v", v.address, title, len(lines), err)
	}
	for _, l := range lines {
		for label, value := range of {
			if l.Metric.Get(label) != value {
				t.Errorf("%s, %s: %s is not of %s", v.address, title, l.Metric, value)
			}
		}
	}
	clicked := lines[len(lines)-1].Metric
	for _, l := range p.FieldConfig.Defaults.Links {
		if !strings.HasPrefix(l.URL, "/d/") {
			continue
		}
		was := v.address.Query()
		to := linkVariable.ReplaceAllStringFunc(l.URL, func(m string) string {
			name := linkVariable.FindStringSubmatch(m)[1]
			if label, ok := strings.CutPrefix(name, "__field.labels."); ok {
				return url.QueryEscape(clicked.Get(label))
			}
			if name == "__url_time_range" {
				return url.Values{"from": was["from"], "to": was["to"]}.Encode()
			}
			chosen := was.Get("var-" + name)
			if chosen == "" {
				chosen = "$__all"
			}
			return url.Values{"var-" + name: {chosen}}.Encode()
		})
		if v.address, err = url.Parse(to); err != nil {
			t.Fatal(err)
		}
		return clicked
	}
	t.Fatalf("%s: %s leads nowhere", b.Title, title)
	return clicked
}

// From the fleet to a GPU in three clicks: each click narrows the view, and time, cluster and namespace stay.
func TestLinksLeadFromTheFleetToAGPU(t *testing.T) {
	read := []*metrics.Family{
		metrics.RecordedGenerationTokens, metrics.KVCacheUsage, metrics.GPUClockEventSeconds,
		metrics.RecordedServedGPU, metrics.GPUTemperature,
	}
	sim := fleetOf(t, 3, 8, 10*time.Minute, func(f *metrics.Family) bool { return slices.Contains(read, f) })
	const start = "from=now-2h&to=now-1h&var-datasource=P1&var-cluster=eu"
	address, err := url.Parse("/d/llm-fleet?" + start + "&var-namespace=prod")
	if err != nil {
		t.Fatal(err)
	}
	v := &visitor{sim, address}
	want := func(where string) {
		t.Helper()
		got, all := v.address.Query(), url.Values{}
		for name := range got {
			if got.Get(name) != "$__all" {
				all[name] = got[name]
			}
		}
		if got := v.address.Path + "?" + all.Encode(); got != where {
			t.Errorf("led to %s, want %s", got, where)
		}
	}
	query := func(more ...string) string {
		q, _ := url.ParseQuery(start)
		for i := 0; i < len(more); i += 2 {
			q.Set("var-"+more[i], more[i+1])
		}
		return q.Encode()
	}
	model := v.click(t, "Generated tokens", nil).Get("model_name")
	want("/d/llm-engine?" + query("namespace", "prod", "model_name", model))
	node := v.click(t, "KV cache in use", map[string]string{"model_name": model}).Get("instance")
	want("/d/llm-incident?" + query("namespace", "prod", "model_name", model, "node", node))
	gpu := v.click(t, "Time throttled", map[string]string{"instance": node}).Get("gpu_uuid")
	want("/d/llm-gpu?" + query("namespace", "prod", "model_name", model, "node", node, "gpu_uuid", gpu))
	v.click(t, "Temperature", map[string]string{"gpu_uuid": gpu})
}
