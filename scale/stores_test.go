package scale

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// A store takes samples, and evaluates the rules of each tenant for one pager.
type store struct {
	programs []*program
	rulers   []*program // those that evaluate
	dies     []*program // programs that are killed in the incident
	write    func(tenant string) string
	// A ruler's counts about its rules: their seconds, their failures, and the evaluations that it missed.
	seconds, failures, missed string
}

// tenants returns the values of the label cluster, each with its own rules.
func tenants() []string {
	names := make([]string, *clusters)
	for i := range names {
		names[i] = fmt.Sprintf("c%d", i)
	}
	return names
}

// ruleFile writes the generated rules.
func ruleFile(t *testing.T, style rules.Style) string {
	t.Helper()
	content, err := rules.Encode(rules.NewFile(rules.Groups(rules.Options{}), style))
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// newPrometheus is the reference: one process that sees all tenants.
func newPrometheus(t *testing.T, p *pager) *store {
	config := filepath.Join(t.TempDir(), "prometheus.yml")
	text := fmt.Sprintf(`global: {evaluation_interval: 1m}
rule_files: ['%s']
alerting: {alertmanagers: [{static_configs: [{targets: ['%s']}]}]}
`,
		ruleFile(t, rules.Style{}), p.address)
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	address := free(t, 1)[0]
	server := start(t, "prometheus", address, mustBinary(t, "prometheus"), "--config.file="+config, "--storage.tsdb.path=data",
		"--web.listen-address="+address, "--web.enable-remote-write-receiver")
	server.ready(t, "/-/ready")
	return &store{
		programs: []*program{server}, rulers: []*program{server},
		write:    func(string) string { return "http://" + address + "/api/v1/write" },
		seconds:  "prometheus_rule_group_duration_seconds_sum",
		failures: "prometheus_rule_evaluation_failures_total", missed: "prometheus_rule_group_iterations_missed_total",
	}
}

// newVictoria is VictoriaMetrics' cluster: three vmstorage of which two keep each sample, and two vmalert for each tenant.
func newVictoria(t *testing.T, p *pager) *store {
	var storages, inserts, selects []string
	s := &store{
		seconds:  "vmalert_iteration_duration_seconds_sum",
		failures: "vmalert_alerting_rules_errors_total", missed: "vmalert_iteration_missed_total",
	}
	file := mustBinary(t, "vmstorage")
	for i := range 3 {
		a := free(t, 3)
		storages = append(storages, a[0])
		inserts, selects = append(inserts, a[1]), append(selects, a[2])
		s.programs = append(s.programs, start(t, fmt.Sprintf("vmstorage-%d", i), a[0], file, "-storageDataPath=data", "-httpListenAddr="+a[0],
			"-vminsertAddr="+a[1], "-vmselectAddr="+a[2]))
	}
	s.dies = s.programs[2:3]
	a := free(t, 2)
	s.programs = append(s.programs,
		start(t, "vminsert", a[0], mustBinary(t, "vminsert"), "-httpListenAddr="+a[0],
			"-storageNode="+strings.Join(inserts, ","), "-replicationFactor=2"),
		start(t, "vmselect", a[1], mustBinary(t, "vmselect"), "-httpListenAddr="+a[1],
			"-storageNode="+strings.Join(selects, ","), "-replicationFactor=2",
			"-dedup.minScrapeInterval=1ms", "-cacheDataPath=cache", "-search.latencyOffset="+latencyOffset.String()))
	for _, program := range s.programs {
		program.ready(t, "/health")
	}
	s.write = func(tenant string) string {
		return fmt.Sprintf("http://%s/insert/%s/prometheus/api/v1/write", a[0], strings.TrimPrefix(tenant, "c"))
	}
	file, content := mustBinary(t, "vmalert"), ruleFile(t, rules.Style{MetricsQL: true})
	for i := range tenants() {
		read, write := fmt.Sprintf("http://%s/select/%d/prometheus", a[1], i), fmt.Sprintf("http://%s/insert/%d/prometheus", a[0], i)
		for twin := range 2 {
			address := free(t, 1)[0]
			s.rulers = append(s.rulers, start(t, fmt.Sprintf("vmalert-%d-%d", i, twin), address, file, append([]string{
				"-httpListenAddr=" + address,
				"-rule=" + content, "-evaluationInterval=1m", "-rule.evalDelay=2s", "-remoteWrite.flushInterval=500ms",
				"-datasource.url=" + read, "-remoteRead.url=" + read, "-remoteWrite.url=" + write,
				"-notifier.url=http://" + p.address,
			}, strings.Fields(*vmalertFlags)...)...))
		}
		s.dies = append(s.dies, s.rulers[len(s.rulers)-2])
	}
	s.programs = append(s.programs, s.rulers...)
	return s
}

// newMimir is Mimir in microservices: a distributor, three ingesters that each keep every sample, a store-gateway, and two rulers that
// share the groups of all tenants.
func newMimir(t *testing.T, p *pager) *store {
	s := &store{
		seconds: "cortex_prometheus_rule_group_duration_seconds_sum", failures: "cortex_prometheus_rule_evaluation_failures_total",
		missed: "cortex_prometheus_rule_group_iterations_missed_total",
	}
	file, shared := mustBinary(t, "mimir"), t.TempDir()
	gossip := free(t, 1)[0]
	run := func(target, name string) *program {
		a := free(t, 3)
		if len(s.programs) == 0 {
			a[2] = gossip
		}
		args := []string{
			"-target=" + target, "-server.http-listen-address=" + host, "-server.http-listen-port=" + port(a[0]),
			"-server.grpc-listen-address=" + host, "-server.grpc-listen-port=" + port(a[1]),
			"-memberlist.bind-addr=" + host, "-memberlist.advertise-addr=" + host,
			"-memberlist.bind-port=" + port(a[2]), "-memberlist.advertise-port=" + port(a[2]), "-memberlist.join=" + gossip,
			"-blocks-storage.backend=filesystem", "-blocks-storage.filesystem.dir=" + shared + "/blocks",
			"-ruler-storage.backend=filesystem", "-ruler-storage.filesystem.dir=" + shared + "/rules",
			"-ruler.alertmanager-url=http://" + p.address, "-store-gateway.sharding-ring.replication-factor=1",
			"-usage-stats.enabled=false", "-log.level=warn",
			"-ruler.evaluation-delay-duration=10s", "-ruler.ring.heartbeat-period=5s", "-ruler.ring.heartbeat-timeout=15s",
			"-ruler.poll-interval=10s",
		} // until then, no ruler evaluates the groups of a killed ruler
		for _, ring := range []string{"distributor.ring", "ingester.ring", "ruler.ring", "store-gateway.sharding-ring"} {
			args = append(args, "-"+ring+".instance-addr="+host, "-"+ring+".instance-id="+name)
		}
		program := start(t, name, a[0], file, append(args, strings.Fields(*mimirFlags)...)...)
		s.programs = append(s.programs, program)
		return program
	}
	for i := range 3 {
		run("ingester", fmt.Sprintf("ingester-%d", i))
	}
	distributor := run("distributor", "distributor")
	run("store-gateway", "store-gateway")
	s.rulers = []*program{run("ruler", "ruler-0"), run("ruler", "ruler-1")}
	for _, program := range s.programs {
		program.ready(t, "/ready")
	}
	s.dies = []*program{s.programs[2], s.rulers[1]}
	s.write = func(string) string { return "http://" + distributor.address + "/api/v1/push" }
	for _, tenant := range tenants() {
		load(t, s.rulers[0].address, tenant)
	}
	return s
}

// load gives a tenant of Mimir its rules, group by group, as mimirtool does.
func load(t *testing.T, ruler, tenant string) {
	for _, group := range rules.NewFile(rules.Groups(rules.Options{}), rules.Style{}).Groups {
		body, err := rules.Encode(group)
		if err != nil {
			t.Fatal(err)
		}
		url := "http://" + ruler + "/prometheus/config/v1/rules/llm-node-exporter"
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, bytes.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("X-Scope-OrgID", tenant)
		client := http.Client{Timeout: 30 * time.Second}
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		var why bytes.Buffer
		_, _ = why.ReadFrom(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode/100 != 2 {
			t.Fatalf("%s refuses group %s: %s %s", ruler, group.Name, resp.Status, why.String())
		}
	}
}
