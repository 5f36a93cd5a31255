package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/live"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/drill/world"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestPageEndToEnd passes an incident through separate processes: the built exporter, Debian's Prometheus with the
// generated rules, Debian's Alertmanager with the generated configuration, and a webhook. A GPU has a memory error and
// no spare row: one page arrives, and the ticket about the same error is inhibited. Once the board has been replaced,
// the page is resolved and the ticket goes out.
//
// In the generated files, the test changes only the intervals of evaluation and of groups, to seconds, and gives
// the receivers webhooks. The alerts that fire, their texts, routes, groups and inhibition do not depend on these
// changes.
func TestPageEndToEnd(t *testing.T) {
	t.Parallel()
	prometheus := e2e.Program(t, "prometheus", "prometheus")
	alertmanager := e2e.Program(t, "prometheus-alertmanager", "prometheus-alertmanager")
	e2e.Program(t, "gcc", "gcc") // for the fake NVML library
	in, err := incident.Find(incident.Incidents(), "row-remap-failure")
	if err != nil {
		t.Fatal(err)
	}
	in.History = time.Minute // nothing looks back further than the test
	exporter := e2e.Address(t)
	node, err := live.NewNode(live.Options{
		Incident: in, Seed: 1, Exporter: e2e.Build(t, "../exporter"), Listen: exporter,
		Prometheus: "127.0.0.1:9090", Dir: t.TempDir(), Log: t.Output(),
	})
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- node.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := node.Close(); err != nil {
			t.Error(err)
		}
	})

	hook := &webhook{}
	receiver := httptest.NewServer(hook)
	t.Cleanup(receiver.Close)
	am := "http://" + startAlertmanager(t, alertmanager, receiver.URL)
	prom := startPrometheus(t, prometheus, exporter, am)
	// The error must occur between two samples, because an increase needs an earlier sample.
	e2e.Until(t, "Prometheus knows of the GPUs and of the model on each", func() bool {
		known := fmt.Sprintf(`count by (gpu_uuid) (%s{model_name!=""} and on (gpu_uuid) %s and on (gpu_uuid) %s)`,
			metrics.EngineGPUInfo.Name, metrics.GPUECCErrors.Name, metrics.GPURowRemapFailure.Name)
		return len(query(t, prom, known)) == in.Fleet.Replicas
	})

	for _, f := range in.Faults {
		node.Change(f.Do)
	}
	const page, ticket = "LLMGPUFailed", "LLMGPUNeedsService"
	e2e.Until(t, "the page arrives", func() bool { return hook.about(page) != nil })
	e2e.Until(t, "the ticket is inhibited by the page", func() bool {
		return len(inhibitors(t, am, ticket)) == 1 && slices.Equal(inhibitors(t, am, ticket), fingerprints(t, am, page))
	})
	got := hook.about(page)[0]
	labels := got.Alerts[0].Labels
	if got.receiver != "/llm-critical" || got.Status != "firing" || labels[metrics.LabelGPU] != "2" ||
		!strings.Contains(got.Alerts[0].Annotations["split"], in.Fleet.Profile.Model) {
		t.Errorf("the page: %+v", got)
	}
	e2e.Answers(t, got.Alerts[0].Annotations["runbook_url"])
	time.Sleep(5 * time.Second) // several intervals of the ticket's group
	if early := hook.about(ticket); early != nil {
		t.Errorf("an inhibited ticket was sent: %+v", early)
	}

	node.Change(func(w *world.World) { w.Replicas[2].GPU.ECC, w.Replicas[2].GPU.RemapFailed = 0, false })
	e2e.Until(t, "the page is resolved", func() bool { return len(hook.about(page)) > 1 })
	e2e.Until(t, "the ticket goes out", func() bool { return hook.about(ticket) != nil })
	if all := hook.about(page); len(all) != 2 || all[1].Status != "resolved" || all[1].receiver != "/llm-critical" {
		t.Errorf("one page and its end were to be sent: %+v", all)
	}
	if n := hook.about(ticket)[0]; n.receiver != "/llm-warning" || n.Status != "firing" {
		t.Errorf("the ticket: %+v", n)
	}
	hook.mu.Lock()
	defer hook.mu.Unlock()
	for _, n := range hook.got {
		for _, a := range n.Alerts {
			if name := a.Labels["alertname"]; name != page && name != ticket {
				t.Errorf("%s was sent to %s as well", name, n.receiver)
			}
		}
	}
}

// notification is Alertmanager's message to a webhook.
type notification struct {
	receiver string // the path
	Status   string
	Alerts   []struct{ Labels, Annotations map[string]string }
}

// webhook keeps the notifications that it receives.
type webhook struct {
	mu  sync.Mutex
	got []notification
}

// ServeHTTP implements http.Handler.
func (h *webhook) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	n := notification{receiver: r.URL.Path}
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.got = append(h.got, n)
}

// about returns the notifications with an alert of a name.
func (h *webhook) about(alert string) (ns []notification) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, n := range h.got {
		for _, a := range n.Alerts {
			if a.Labels["alertname"] == alert {
				ns = append(ns, n)
				break
			}
		}
	}
	return ns
}

type managed struct {
	Fingerprint string
	Labels      map[string]string
	Status      struct{ InhibitedBy []string }
}

// alerts returns Alertmanager's alerts of a name.
func alerts(t *testing.T, am, name string) []managed {
	t.Helper()
	var all []managed
	get(t, am+"/api/v2/alerts", &all)
	return slices.DeleteFunc(all, func(a managed) bool { return a.Labels["alertname"] != name })
}

func fingerprints(t *testing.T, am, name string) (ids []string) {
	for _, a := range alerts(t, am, name) {
		ids = append(ids, a.Fingerprint)
	}
	return ids
}

func inhibitors(t *testing.T, am, name string) (ids []string) {
	for _, a := range alerts(t, am, name) {
		ids = append(ids, a.Status.InhibitedBy...)
	}
	return ids
}

func get(t *testing.T, url string, answer any) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(answer); err != nil {
		t.Fatalf("%s: %v", url, err)
	}
}

// startAlertmanager runs Alertmanager with the generated configuration; receivers post to paths of a
// URL that have their names.
func startAlertmanager(t *testing.T, binary, url string) string {
	t.Helper()
	config := rules.NewAlertmanager(rules.Alerts(play.Rules()), rules.Style{})
	ours := config.Route.Routes[0].Routes
	for i := range ours {
		ours[i].GroupWait, ours[i].GroupInterval = "1s", "2s"
	}
	content, err := rules.Encode(config)
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	for _, r := range config.Receivers {
		text = strings.Replace(text, "- name: "+r.Name+"\n", fmt.Sprintf("- name: %s\n  webhook_configs: [{url: '%s/%[1]s'}]\n", r.Name, url), 1)
	}
	dir := t.TempDir()
	writeFile(t, dir, rules.TemplateFile, rules.Style{}.NotificationTemplate())
	address := e2e.Address(t)
	e2e.Start(t, binary, "--config.file="+writeFile(t, dir, "alertmanager.yml", text), "--storage.path="+filepath.Join(dir, "data"),
		"--web.listen-address="+address, "--cluster.listen-address=")
	e2e.Answers(t, "http://"+address+"/-/ready")
	return address
}

// startPrometheus runs Prometheus with the generated rules.
func startPrometheus(t *testing.T, binary, exporter, am string) string {
	t.Helper()
	file := rules.NewFile(play.Rules(), rules.Style{RunbookURL: "http://" + exporter + "/runbooks/{alert}{labels}"})
	for i := range file.Groups {
		file.Groups[i].Interval = "2s"
		for r := range file.Groups[i].Rules {
			if rule := &file.Groups[i].Rules[r]; rule.Alert == rules.GPUNeedsService.Name {
				rule.For = "2s" // of five minutes
			}
		}
	}
	content, err := rules.Encode(file)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	writeFile(t, dir, "rules.yml", string(content))
	config := writeFile(t, dir, "prometheus.yml", `
global: {scrape_interval: 1s, scrape_timeout: 1s, evaluation_interval: 2s}
rule_files: [rules.yml]
alerting: {alertmanagers: [{static_configs: [{targets: ["`+strings.TrimPrefix(am, "http://")+`"]}]}]}
scrape_configs:
  - job_name: `+rules.DefaultJob+`
    static_configs: [{targets: ["`+exporter+`"]}]
`)
	address := e2e.Address(t)
	e2e.Start(t, binary, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address,
		"--log.level=warn")
	e2e.Answers(t, "http://"+address+"/-/ready")
	return address
}

func writeFile(t *testing.T, dir, name, content string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
