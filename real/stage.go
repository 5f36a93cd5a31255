package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

const (
	model   = "tiny"
	key     = "sk-play"
	healthy = 100 * time.Second // time of load for the rates of the past
	learnt  = 10                // metrics pages in this time
	quiet   = 75 * time.Second  // time of load with all programs running, before the fault
	settled = 16 * time.Minute  // time between a page and a second fault
)

// objectives returns the objectives of the plays. Three thresholds are longer than the defaults, because on one core of
// a CPU, the prompt of another request delays a token by more than 50 ms. With -slack, or on a slow machine, they are
// even longer.
func objectives() string {
	return fmt.Sprintf(`objectives:
  - {name: ttft, signal: ttft, threshold: %s, target: 99%%}
  - {name: itl, signal: itl, threshold: %s, target: 99%%}
  - {name: availability, signal: availability, target: 99.9%%}
  - {name: ttft_severe, signal: ttft, threshold: 10s, target: 99.9%%}
  - {name: itl_severe, signal: itl, threshold: 1s, target: 99.9%%}
`, time.Duration(slack*slow)*time.Second, time.Duration(slack*slow)*200*time.Millisecond)
}

// Stage has the running programs. Engines keep running from play to play. All other programs are restarted.
type Stage struct {
	*Programs
	port    int   // first port of the stage
	cores   []int // cores of the engines
	engines []*Engine
	folder  string           // folder of the play
	known   map[string]*Past // by load

	client      *Client
	flags       []string // flags of the engines
	ways        []*Way
	eyes        []*Way // Ways of the exporter
	weights     string // model files that engines start with; default: the usual files
	front       *front // kind of the gateway
	gateway     *Process
	limit       int        // timeout of LiteLLM's requests in seconds; default 120
	asksFor     string     // model that LiteLLM requests from engines; default: the usual model
	workers     []*Process // processes that the gateway brings
	probes      bool       // the exporter also reads the gateway
	exporter    *Process
	maintenance string // maintenance in the exporter's configuration
	prometheus  *Process
	manager     *Process
	past        *http.Server
	hook        *http.Server
	burners     []*Process
	loops       sync.WaitGroup // activity after the fault, which ends with the play
	asks        time.Duration  // when triage runs after the fault; default: with the page, or after 150 s
	mu          sync.Mutex
	sent        []Notification
}

// Engine is a real engine.
type Engine struct {
	*Process
	server *server
	port   int
	core   int
	flags  []string
	spent  bool          // a play has broken it
	takes  time.Duration // time to start
}

// adapters is the number of adapters of the model.
const adapters = 4

// adapter returns the name of an adapter.
func adapter(i int) string { return fmt.Sprintf("adapter-%d", i) }

func (e *Engine) url() string { return "http://" + local(e.port) }

// Notification is a notification from Alertmanager. Times are in seconds since the play began.
type Notification struct {
	At       float64 `json:"at"`
	Receiver string  `json:"receiver"`
	Status   string  `json:"status"`
	Alerts   []Alert `json:"alerts"`
}

// Alert is one alert of a notification.
type Alert struct {
	Status      string            `json:"status"`
	Labels      map[string]string `json:"labels"`
	Annotations map[string]string `json:"annotations"`
	StartsAt    time.Time         `json:"startsAt"`
	Began       float64           `json:"began"`
}

// news returns the notification's firing alerts that began at a time or later.
func (n Notification) news(from float64) (began []Alert) {
	for _, a := range n.Alerts {
		if a.Status == "firing" && a.Began >= from {
			began = append(began, a)
		}
	}
	return began
}

// serve starts an engine, or keeps a running engine with the same settings.
func (s *Stage) serve(ctx context.Context, i int, by *server, flags []string) error {
	if i < len(s.engines) && !s.engines[i].spent && s.engines[i].server == by && slices.Equal(s.engines[i].flags, flags) {
		return nil
	}
	for i >= len(s.engines) {
		s.engines = append(s.engines, &Engine{port: s.port + len(s.engines), core: s.cores[len(s.engines)%len(s.cores)]})
	}
	s.engines[i].stop()
	s.engines[i].server = by
	return s.boot(ctx, s.engines[i], flags)
}

// boot restarts an engine, and waits for it.
func (s *Stage) boot(ctx context.Context, e *Engine, flags []string) error {
	begin := time.Now()
	if err := s.restart(e, flags); err != nil {
		return err
	}
	err := e.answers(ctx, e.url()+"/health", 5*time.Minute)
	e.takes = time.Since(begin)
	return err
}

// crash kills an engine, and starts a loop that restarts the engine and kills it again after the time up.
func (s *Stage) crash(ctx context.Context, e *Engine, up time.Duration) error {
	s.loops.Go(func() {
		for e.signal(0, syscall.SIGKILL) == nil {
			<-e.ended
			if s.boot(ctx, e, e.flags) != nil || sleep(ctx, up) != nil {
				break
			}
		}
		e.spent = true
	})
	return nil
}

// restart restarts an engine, but does not wait for it.
func (s *Stage) restart(e *Engine, flags []string) (err error) {
	e.stop()
	e.flags, e.spent = flags, false
	env, command := e.server.command(s, e)
	log := filepath.Join(s.out, fmt.Sprintf("%s-%d.log", e.server.name, e.port))
	e.Process, err = start(log, env, s.taskset, append([]string{"-c", strconv.Itoa(e.core)}, command...)...)
	return err
}

// signal sends signals to the processes of an engine that compute. It sends one signal after the other, with a pause in
// between.
func (e *Engine) signal(apart time.Duration, signals ...syscall.Signal) error {
	core, err := e.named(e.server.computing[0])
	if err != nil {
		return err
	}
	var more []int
	for _, name := range e.server.computing[1:] {
		if pid, err := e.named(name); err == nil {
			more = append(more, pid)
		}
	}
	for i, s := range signals {
		if i > 0 {
			time.Sleep(apart)
		}
		if failed := syscall.Kill(core, s); failed != nil {
			return failed
		}
		for _, pid := range more {
			_ = syscall.Kill(pid, s) // ends with the core
		}
	}
	return nil
}

// entrance returns the URL to which clients send their requests: the gateway or, without a gateway, the first engine.
func (s *Stage) entrance() string {
	if s.gateway != nil {
		return "http://" + local(s.port+10)
	}
	return s.engines[0].url()
}

// warm fills the engines' prefix caches with the common beginnings of a load's prompts. It sends requests to each
// engine, and through the gateway. The first requests take seconds, and an engine that has run for a day would not have
// such waits.
func (s *Stage) warm(ctx context.Context, l Load, seed uint64) error {
	entrances := []string{s.entrance()}
	for _, e := range s.engines {
		entrances = append(entrances, e.url())
	}
	for _, entrance := range entrances {
		c := NewClient(entrance, key, seed)
		for group := range groups {
			body, record := c.request(l, group)
			c.send(body, record, 0, 0)
			if record.Error != "" {
				return fmt.Errorf("before the play: %s", record.Error)
			}
		}
	}
	return ctx.Err()
}

// measure returns the duration of a single request of a load, as a multiple of the duration on the machine of the first
// scores.
func (s *Stage) measure(ctx context.Context, l Load, seed uint64) int {
	c := NewClient(s.engines[0].url(), key, seed+1)
	var took, then time.Duration
	by := s.engines[0].server
	for group := range groups {
		body, record := c.request(l, group)
		begin := time.Now()
		c.send(body, record, 0, 0)
		took += time.Since(begin)
		then += time.Duration(l.Own)*by.token + time.Duration(record.Tokens)*by.step
	}
	if ctx.Err() != nil || then == 0 {
		return 1
	}
	return max(1, int(math.Round(float64(took)/float64(then))))
}

// configure writes the exporter's configuration.
func (s *Stage) configure(engines []*Engine, gateway bool) (file string, err error) {
	var config strings.Builder
	config.WriteString(objectives() + s.maintenance + "targets:\n")
	for i, e := range engines {
		at := e.url()
		if s.eyes != nil {
			at = "http://" + s.eyes[i].listener.Addr().String()
		}
		config.WriteString("  - {url: '" + at + "'}\n")
	}
	if gateway {
		secret := filepath.Join(s.folder, "key")
		if err := os.WriteFile(secret, []byte(key), 0o600); err != nil {
			return "", err
		}
		with := fmt.Sprintf("http_config: {authorization: {credentials_file: %s}}", secret)
		fmt.Fprintf(&config, "  - {url: 'http://%s', %s}\n", local(s.front.page(s.port)), with)
		if s.probes {
			fmt.Fprintf(&config, "probes:\n  - {url: '%s', api: completions, model: %s, interval: 10s, tokens_per_hour: 1000000, %s}\n",
				s.entrance(), model, with)
		}
	}
	file = filepath.Join(s.folder, "exporter.yml")
	return file, os.WriteFile(file, []byte(config.String()), 0o600)
}

// watch starts the exporter, with a configuration for the current engines and gateway.
func (s *Stage) watch(ctx context.Context) error {
	file, err := s.configure(s.engines, s.gateway != nil)
	if err != nil {
		return err
	}
	s.exporter, err = start(filepath.Join(s.folder, "exporter.log"), nil, s.exporterPath,
		"--config.file="+file, "--discovery=none", "--no-collector.gpu", "--web.listen-address="+local(s.port+30))
	if err != nil {
		return err
	}
	return s.exporter.answers(ctx, "http://"+local(s.port+30)+"/metrics", time.Minute)
}

// learn reads metrics pages while the engines are healthy, and generates Prometheus' history from them. If an earlier play
// had the same load, learn uses the rates of that play.
func (s *Stage) learn(ctx context.Context) error {
	url := "http://" + local(s.port+30) + "/metrics"
	text, err := fetch(ctx, url)
	if err != nil {
		return err
	}
	pages, begin := []page{parsePage(text)}, time.Now()
	like := fmt.Sprintln(len(s.engines), s.gateway != nil, s.probes, s.flags, *s.client.load.Load())
	for s.known[like] == nil && time.Since(begin) < healthy {
		if err := sleep(ctx, healthy/learnt); err != nil {
			return err
		}
		if text, err = fetch(ctx, url); err != nil {
			return err
		}
		pages = append(pages, parsePage(text))
	}
	h := NewPast(url, parsePage(text), time.Now())
	if known := s.known[like]; known != nil {
		h.As(known)
	} else {
		h.Learn(pages[:len(pages)-1], time.Since(begin))
	}
	s.past = &http.Server{Addr: local(s.port + 31), Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = s.past.ListenAndServe() }()
	ruleFile, err := os.ReadFile(filepath.Join(s.rules, "rules.yaml"))
	if err != nil {
		return err
	}
	if err := h.Write(ctx, filepath.Join(s.folder, "data"), local(s.port+31), ruleFile); err != nil {
		return err
	}
	if burned := suffering(s.client.Records(), s.client.Now()); burned != nil {
		return errors.New(strings.Join(burned, "; "))
	}
	s.known[like] = h
	return nil
}

// record starts Alertmanager and Prometheus with the generated configuration. The generated history is already in
// Prometheus' storage.
func (s *Stage) record(ctx context.Context) error {
	s.hook = &http.Server{Addr: local(s.port + 42), Handler: http.HandlerFunc(s.notified), ReadHeaderTimeout: time.Minute}
	go func() { _ = s.hook.ListenAndServe() }()
	text, err := os.ReadFile(filepath.Join(s.rules, "alertmanager.yaml"))
	if err != nil {
		return err
	}
	routing := string(text)
	for _, name := range []string{"default", "llm-critical", "llm-warning", "llm-null"} {
		hook := fmt.Sprintf("- name: %s\n  webhook_configs: [{url: 'http://%s/%[1]s'}]\n", name, s.hook.Addr)
		routing = strings.Replace(routing, "- name: "+name+"\n", hook, 1)
	}
	routing = strings.Replace(routing, "- llm-node-exporter.tmpl", "- "+filepath.Join(s.rules, "llm-node-exporter.tmpl"), 1)
	manager, settings := filepath.Join(s.folder, "alertmanager.yml"), filepath.Join(s.folder, "prometheus.yml")
	if err := os.WriteFile(manager, []byte(routing), 0o600); err != nil {
		return err
	}
	var engines strings.Builder
	if s.doctorPath != "" { // vllm-doctor queries the engines' own metrics
		for _, e := range s.engines {
			fmt.Fprintf(&engines, "  - {job_name: engine-%d, static_configs: [{targets: ['%s']}]}\n", e.port, local(e.port))
		}
	}
	content := fmt.Sprintf(`global: {scrape_interval: 30s, evaluation_interval: 1m}
rule_files: ['%s']
alerting: {alertmanagers: [{static_configs: [{targets: ['%s']}]}]}
scrape_configs:
  - {job_name: %s, static_configs: [{targets: ['%s']}]}
%s`, filepath.Join(s.rules, "rules.yaml"), local(s.port+41), rules.DefaultJob, local(s.port+31), &engines)
	if err := os.WriteFile(settings, []byte(content), 0o600); err != nil {
		return err
	}
	s.manager, err = start(filepath.Join(s.folder, "alertmanager.log"), nil, s.alertmanagerPath, "--config.file="+manager,
		"--storage.path="+filepath.Join(s.folder, "alertmanager"), "--web.listen-address="+local(s.port+41), "--cluster.listen-address=")
	if err != nil {
		return err
	}
	s.prometheus, err = start(filepath.Join(s.folder, "prometheus.log"), nil, s.prometheusPath, "--config.file="+settings,
		"--storage.tsdb.path="+filepath.Join(s.folder, "data"), "--storage.tsdb.retention.time=60d", "--web.listen-address="+local(s.port+40))
	if err != nil {
		return err
	}
	return errors.Join(s.manager.answers(ctx, "http://"+local(s.port+41)+"/-/ready", time.Minute),
		s.prometheus.answers(ctx, "http://"+local(s.port+40)+"/-/ready", time.Minute))
}

// notified handles the webhook requests in which Alertmanager sends notifications, and stores the notifications.
func (s *Stage) notified(w http.ResponseWriter, r *http.Request) {
	n := Notification{At: s.client.Now()}
	if err := json.NewDecoder(r.Body).Decode(&n); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	n.Receiver = strings.TrimPrefix(r.URL.Path, "/")
	for i, a := range n.Alerts {
		n.Alerts[i].Began = a.StartsAt.Sub(s.client.begin).Seconds()
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = append(s.sent, n)
}

// told returns the notifications that were sent so far.
func (s *Stage) told() []Notification {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Notification{}, s.sent...)
}

// triage runs the command exporter triage, and returns its verdict as JSON and as text.
func (s *Stage) triage(ctx context.Context, args ...string) (verdict json.RawMessage, text string) {
	ask := func(format string) []byte {
		args := append([]string{"triage", "--exporter=http://" + local(s.port+31), "--output=" + format}, args...)
		c := exec.CommandContext(ctx, s.exporterPath, args...)
		out, err := c.Output()
		if exit := (*exec.ExitError)(nil); len(out) == 0 && errors.As(err, &exit) {
			return exit.Stderr
		}
		return out
	}
	var wait sync.WaitGroup
	var read []byte
	wait.Go(func() { read = ask("text") })
	answer := ask("json")
	wait.Wait()
	if !json.Valid(answer) {
		answer, _ = json.Marshal(map[string]string{"error": string(answer)})
	}
	return answer, string(read)
}

// rival returns the findings of vllm-doctor about the first engine's metrics page, or about the series of all engines
// in Prometheus.
func (s *Stage) rival(ctx context.Context, args ...string) (findings []string) {
	c := exec.CommandContext(ctx, s.doctorPath, append([]string{"diagnose", "--output=json"}, args...)...)
	c.Dir = s.folder
	out, err := c.Output() // exits with an error if there are findings
	var answer struct {
		Checks []struct {
			Finding *struct{ Severity, Title, Summary string }
		}
	}
	if failed := json.Unmarshal(out, &answer); failed != nil {
		return []string{fmt.Sprintf("%s (%v)", out, errors.Join(err, failed))}
	}
	for _, check := range answer.Checks {
		if f := check.Finding; f != nil {
			findings = append(findings, fmt.Sprintf("%s: %s. %s", f.Severity, f.Title, f.Summary))
		}
	}
	return findings
}

// keep stores the current metrics pages of the exporter and of the engines. The file names begin with moment.
func (s *Stage) keep(ctx context.Context, moment string) {
	ctx, stop := context.WithTimeout(ctx, 5*time.Second)
	defer stop()
	pages := map[string]string{"exporter": "http://" + local(s.port+31)}
	for i, e := range s.engines {
		pages["engine-"+strconv.Itoa(i)] = e.url()
	}
	var wait sync.WaitGroup
	for name, at := range pages {
		wait.Go(func() {
			text, err := fetch(ctx, at+"/metrics")
			if err != nil {
				text = "# " + err.Error() + "\n"
			}
			_ = os.WriteFile(filepath.Join(s.folder, moment+"-"+name+".prom"), []byte(text), 0o600)
		})
	}
	wait.Wait()
}

// keepClues stores what Prometheus has recorded since a minute before the fault: the clues, the facts behind the clues,
// and the alerts.
func (s *Stage) keepClues(ctx context.Context, fault float64) {
	query := url.Values{
		"query": {fmt.Sprintf(`{__name__=~"%s|%s|ALERTS"}`, metrics.RecordedSuspect.Name, metrics.RecordedEvidence.Name)},
		"start": {s.client.begin.Add(time.Duration((fault - 60) * float64(time.Second))).Format(time.RFC3339)},
		"end":   {time.Now().Format(time.RFC3339)},
		"step":  {"15"},
	}
	text, err := fetch(ctx, "http://"+local(s.port+40)+"/api/v1/query_range?"+query.Encode())
	if err != nil {
		text = err.Error()
	}
	_ = os.WriteFile(filepath.Join(s.folder, "clues.json"), []byte(text), 0o600)
}

// alerts returns the pending and the firing alerts of Prometheus. Pending alerts count, because some alerts fire only
// after an hour, and no play lasts that long.
func (s *Stage) alerts(ctx context.Context) (all []string) {
	text, err := fetch(ctx, "http://"+local(s.port+40)+"/api/v1/alerts")
	var answer struct {
		Data struct {
			Alerts []struct{ Labels map[string]string }
		}
	}
	if err = errors.Join(err, json.Unmarshal([]byte(text), &answer)); err != nil {
		return []string{err.Error()}
	}
	for _, a := range answer.Data.Alerts {
		all = append(all, fmt.Sprint(a.Labels))
	}
	return all
}

// burn takes CPU time away from an engine. It starts n processes that compute on the engine's core, each in its own
// session.
func (s *Stage) burn(e *Engine, n int) error {
	for range n {
		p, err := start(os.DevNull, nil, s.taskset, "-c", strconv.Itoa(e.core), "sh", "-c", "while :; do :; done")
		if err != nil {
			return err
		}
		s.burners = append(s.burners, p)
	}
	return nil
}

// clear stops all programs except the engines.
func (s *Stage) clear() {
	for _, p := range slices.Concat([]*Process{s.gateway, s.exporter, s.prometheus, s.manager}, s.burners, s.workers) {
		p.stop()
	}
	for _, h := range []*http.Server{s.past, s.hook} {
		if h != nil {
			_ = h.Close()
		}
	}
	for _, w := range slices.Concat(s.ways, s.eyes) {
		w.Close()
	}
	for _, e := range s.engines {
		_ = syscall.Kill(e.Process.Process.Pid, syscall.SIGCONT)
		if e.signal(0, syscall.SIGCONT) != nil {
			e.spent = true
		}
	}
	*s = Stage{Programs: s.Programs, folder: s.folder, client: s.client, port: s.port, cores: s.cores, engines: s.engines, known: s.known}
}
