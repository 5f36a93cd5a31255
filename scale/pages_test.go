package scale

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// A notification is Alertmanager's message to a webhook.
type notification struct {
	GroupKey string
	Status   string
	Alerts   []struct {
		Status   string
		Labels   map[string]string
		StartsAt time.Time
	}
}

// A page is an alert that has woken somebody.
type page struct {
	After  time.Duration // of the first notification, since samples began
	Rings  int           // how often the alert began to fire, as the person on call sees it
	Again  int           // how often a notification repeated the alert without news
	firing bool
}

// pager receives the messages of one Alertmanager.
type pager struct {
	address string // of the Alertmanager
	mu      sync.Mutex
	pages   map[string]*page  // by alert and model
	groups  map[string]string // the last message
	began   time.Time
}

// newPager starts an Alertmanager with the generated configuration.
func newPager(t *testing.T) *pager {
	p := &pager{address: free(t, 1)[0], pages: map[string]*page{}, groups: map[string]string{}}
	hook := httptest.NewServer(p)
	t.Cleanup(hook.Close)
	style := rules.Style{}.WithDefaults()
	config, err := rules.Encode(rules.NewAlertmanager(rules.Alerts(rules.Groups(rules.Options{})), style))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Replace(string(config), "- name: llm-critical\n", "- name: llm-critical\n  webhook_configs: [{url: '"+hook.URL+"'}]\n", 1)
	text = text[:strings.Index(text, "templates:")] // a webhook gets labels, not texts
	file := filepath.Join(t.TempDir(), "alertmanager.yml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	program := start(t, "alertmanager", p.address, mustBinary(t, "alertmanager", "prometheus-alertmanager"), "--config.file="+file,
		"--web.listen-address="+p.address, "--cluster.listen-address=", "--storage.path=data")
	program.ready(t, "/-/ready")
	return p
}

func (p *pager) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var n notification
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	var content, keys []string
	for _, a := range n.Alerts {
		key := fmt.Sprintf("%s/%s %s", a.Labels[metrics.LabelCluster], a.Labels[metrics.LabelModel], a.Labels["alertname"])
		content, keys = append(content, key+" "+a.Status), append(keys, key)
		if p.pages[key] == nil {
			p.pages[key] = &page{After: time.Since(p.began)}
		}
		known := p.pages[key]
		if a.Status == "firing" && !known.firing {
			known.Rings++
		}
		known.firing = a.Status == "firing"
	}
	slices.Sort(content)
	said := strings.Join(content, ", ")
	if n.Status == "firing" && p.groups[n.GroupKey] == said {
		for _, key := range keys {
			p.pages[key].Again++
		}
	}
	p.groups[n.GroupKey] = said
}

// watch counts from now on.
func (p *pager) watch(began time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.began = began
}

// heard returns all pages, and prints how long after the start they came.
func (p *pager) heard(t *testing.T) map[string]*page {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, key := range slices.Sorted(maps.Keys(p.pages)) {
		known := p.pages[key]
		t.Logf("page %-45s after %4.0f s, rang %d times, repeated %d times", key, known.After.Seconds(), known.Rings, known.Again)
	}
	return maps.Clone(p.pages)
}

// first returns the time of the first page for each model.
func first(pages map[string]*page) map[string]time.Duration {
	woken := map[string]time.Duration{}
	for key, p := range pages {
		model, _, _ := strings.Cut(key, " ")
		if at, ok := woken[model]; !ok || p.After < at {
			woken[model] = p.After
		}
	}
	return woken
}

// compare judges the pages of a store by the pages of one Prometheus. Only each model's first page counts: which of
// its alerts mutes another depends on which comes first.
func compare(t *testing.T, want, got map[string]*page) {
	for key, w := range want {
		switch g := got[key]; {
		case g == nil:
			t.Logf("%s: only one Prometheus paged", key)
		case g.Rings > w.Rings || g.Again > w.Again:
			t.Errorf("%s: rang %d times and was repeated %d times, of one Prometheus %d and %d times", key, g.Rings, g.Again, w.Rings, w.Again)
		}
	}
	for key := range got {
		if want[key] == nil {
			t.Logf("%s: only the store paged", key)
		}
	}
	var late []time.Duration
	over := 0
	reference, woken := first(want), first(got)
	for _, model := range slices.Sorted(maps.Keys(reference)) {
		at, ok := woken[model]
		if !ok {
			t.Errorf("%s: no page; one Prometheus paged after %s", model, reference[model].Round(time.Second))
			continue
		}
		by := (at - reference[model]).Round(time.Second)
		late = append(late, by)
		if by > rules.Interval {
			over++
		}
		if by > *latest {
			t.Errorf("%s: late by %s", model, by)
		}
	}
	for model, at := range woken {
		if _, ok := reference[model]; !ok {
			t.Errorf("%s: paged after %s; one Prometheus did not", model, at.Round(time.Second))
		}
	}
	if len(late) == 0 {
		t.Fatal("one Prometheus paged for nothing, or has not been asked: -run without it needs -reference")
	}
	slices.Sort(late)
	t.Logf("%d models of %d paged, with %d alerts of %d", len(woken), len(reference), len(got), len(want))
	t.Logf("later by %s at the earliest, %s at the median, %s at the latest; %d by more than an evaluation",
		late[0], late[len(late)/2], late[len(late)-1], over)
}
