package engine

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/config"
	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// TestGatewaysSaySoOnEverySeries checks that the role keeps the numbers of gateways out of sums over engines.
func TestGatewaysSaySoOnEverySeries(t *testing.T) {
	seen := map[metrics.Runtime]bool{}
	for _, name := range pages(t) {
		body, err := engineFormat.Sanitise([]byte(readPage(t, name)), name, "text/plain")
		if err != nil {
			continue
		}
		p, err := engineFormat.Parse(body, "text/plain", scrape.DefaultLimits)
		if err != nil {
			continue
		}
		for _, d := range recognised(t, p) {
			if d.Role != metrics.GatewayRole {
				continue
			}
			seen[d.Runtime] = true
			for _, sample := range page(t, name) {
				family := metrics.Lookup(sample.labels.Get(model.MetricNameLabel))
				if family != nil && family.HasLabel(metrics.LabelRole) && sample.labels.Get(metrics.LabelRole) != metrics.GatewayRole {
					t.Errorf("%s: %s has no role", name, sample.labels)
				}
			}
		}
	}
	for _, d := range builtin {
		if d.Role == metrics.GatewayRole && !seen[d.Runtime] {
			t.Errorf("no page is %s's", d.Runtime)
		}
	}
}

// TestGatewayLabelsAreBounded checks that each label whose values clients choose is bounded or has a closed set of
// values.
func TestGatewayLabelsAreBounded(t *testing.T) {
	for _, d := range builtin {
		if d.Role != metrics.GatewayRole {
			continue
		}
		carried := slices.Clone(d.Labels)
		for i := range d.Rows {
			carried = append(carried, d.Rows[i].Carry...)
		}
		for _, c := range carried {
			if kept[c.To] == 0 && c.Outcomes == nil && (c.Map == nil || c.Map("anything") == "anything") {
				t.Errorf("%s: %s becomes %s without a bound", d.Runtime, c.From, c.To)
			}
		}
	}
}

// TestHostileGatewayPage uses clients that make up models, teams, routes and statuses. The gateway still counts
// these requests, and a value that was kept stays, whatever comes before it on the next metrics page.
func TestHostileGatewayPage(t *testing.T) {
	const name = "litellm_proxy_total_requests_metric_total"
	series := func(of string, n int) string {
		return fmt.Sprintf("%s{requested_model=%q,team=%q,route=%q,status_code=%q} 1\n", name, of+fmt.Sprint("-model-", n),
			fmt.Sprint("team-", n), fmt.Sprintf("/%d/completions", n), fmt.Sprint(n))
	}
	var first, second strings.Builder
	first.WriteString("# TYPE " + name + " counter\n" + fmt.Sprintf("%s{requested_model=%q,status_code=\"200\"} 1\n", name,
		strings.Repeat("long", scrape.DefaultLimits.LabelValueBytes)))
	second.WriteString("# TYPE " + name + " counter\n")
	for n := range 2000 {
		first.WriteString(series("first", n))
		second.WriteString(series("new", n))
	}
	second.WriteString(first.String()[strings.Index(first.String(), "\n")+1:])

	e := serve(t, first.String())
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	before := parse(t, exposition(t, c))
	distinct := func(s samples, label string) map[string]bool {
		values := map[string]bool{}
		for _, sample := range s {
			values[sample.labels.Get(label)] = true
		}
		delete(values, "")
		return values
	}
	total := func(s samples) (sum float64) {
		for _, v := range s.get(t, `llm_engine_requests_total`) {
			sum += v
		}
		return sum
	}
	for label, most := range kept {
		if got := len(distinct(before, label)); got > most+1 {
			t.Errorf("%s has %d values, want at most %d and other", label, got, most)
		}
	}
	if got := len(distinct(before, metrics.LabelCode)); got > 501 {
		t.Errorf("%d statuses", got)
	}
	if got := total(before); got != 2001 {
		t.Errorf("%v requests, want all 2001", got)
	}
	before.want(t, `llm_gateway_responses_total{model_name="first-model-103",tenant="other",route="other",code="103"}`, 1)
	// no series shows the model as served
	before.want(t, `llm_gateway_responses_total{model_name="other",tenant="team-3",route="/3/completions",code="other"}`, 1)
	// the long name, and 200 to 399
	before.want(t, `llm_engine_requests_total{model_name="other",outcome="success"}`, 1+200)

	e.page = second.String()
	after := parse(t, exposition(t, c))
	for label := range kept {
		if got, want := distinct(after, label), distinct(before, label); len(got) != len(want) {
			t.Errorf("%s had %d values, and has %d", label, len(want), len(got))
		}
	}
	after.want(t, `llm_gateway_responses_total{model_name="first-model-103"}`, 1)
	if got := total(after); got != 4001 {
		t.Errorf("%v requests, want all 4001", got)
	}
}

// TestOwnLabelStandsForThePages checks a target whose own label has the name of a label that only gateways have.
func TestOwnLabelStandsForThePages(t *testing.T) {
	e := serve(t, readPage(t, "litellm/main-loaded.prom"))
	s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL, Labels: map[string]string{metrics.LabelTenant: "mine"}}})))
	s.want(t, `{__name__=~"llm_gateway_.+",tenant!="mine"}`)
	s.want(t, `llm_gateway_responses_total{model_name="qwen3-32b",code="200",route="/v1/chat/completions",tenant="mine"}`, 41203)
}

// TestMappedEngineInAMesh checks that a sidecar does not hide an engine, known or described in the configuration.
func TestMappedEngineInAMesh(t *testing.T) {
	mapping := Mapping{
		Engine: "mine", Recognise: "mine_running",
		Metrics: []MetricMapping{{To: metrics.RequestsRunning.Name, From: "mine_running", Type: scrape.Gauge}},
	}
	e := serve(t, "# TYPE mine_running gauge\nmine_running 3\n"+readPage(t, "envoy/gateway-loaded.prom"))
	s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}}, mapping)))
	s.want(t, `llm_engine_requests_running{runtime="mine"}`, 3)
	s.want(t, `{runtime="envoy"}`)
}

// TestMappingsDescribeEngines checks that a mapping to a quantity of gateways is refused, because it would be
// dropped silently.
func TestMappingsDescribeEngines(t *testing.T) {
	_, err := New(Config{Log: discard, Mappings: []Mapping{{
		Engine: "mine", Recognise: "mine_retries",
		Metrics: []MetricMapping{{To: metrics.GatewayRetries.Name, From: "mine_retries", Type: scrape.Counter}},
	}}})
	if err == nil || !strings.Contains(err.Error(), "is not a metric of the exporter") {
		t.Errorf("got %v", err)
	}
}

// TestIstioReadsOneSide checks that requests that a proxy received are read only if it sent no requests.
func TestIstioReadsOneSide(t *testing.T) {
	side := func(reporter, service, code string, n int) string {
		return fmt.Sprintf("istio_requests_total{reporter=%q,destination_service_name=%q,response_code=%q,response_flags=\"-\"} %d\n",
			reporter, service, code, n)
	}
	const declared = "# TYPE istio_requests_total counter\n"
	received := side("destination", "vllm", "200", 7)
	both := parse(t, mapped(t, declared+side("source", "store", "503", 3)+received))
	both.want(t, `llm_engine_requests_total{outcome="error"}`, 3)
	both.want(t, `llm_engine_requests_total{outcome="success"}`)
	both.want(t, `llm_gateway_responses_total{route="store",code="503"}`, 3)
	parse(t, mapped(t, declared+received)).want(t, `llm_gateway_responses_total{route="vllm",code="200"}`, 7)
}

// TestFirstFailureAtAGateway checks LiteLLM, which shows no failures before the first one. An increase must include
// that failure, too.
func TestFirstFailureAtAGateway(t *testing.T) {
	const success = "# TYPE litellm_proxy_total_requests_metric_total counter\n" +
		`litellm_proxy_total_requests_metric_total{requested_model="m",status_code="200"} 9` + "\n"
	before := parse(t, mapped(t, success))
	before.want(t, `llm_engine_requests_total{outcome="success"}`, 9)
	for outcome, status := range map[string]string{"error": "500", "rejected": "429"} {
		before.want(t, `llm_engine_requests_total{outcome="`+outcome+`"}`, 0)
		after := parse(t, mapped(t, success+`litellm_proxy_total_requests_metric_total{requested_model="m",status_code="`+status+`"} 1`+"\n"))
		after.want(t, `llm_engine_requests_total{outcome="`+outcome+`"}`, 1)
	}
}

// TestGatewayPageThatCannotBeUsed checks that an unusable metrics page has the same states as an engine's, for
// example if an endpoint picker asks for a token.
func TestGatewayPageThatCannotBeUsed(t *testing.T) {
	for _, c := range []struct {
		page, reason string
		status       int
	}{
		{"Unauthorized", "unauthorized", http.StatusUnauthorized},
		{"Authentication Error", "unauthorized", http.StatusForbidden},
		{"upstream connect error", "http_503", http.StatusServiceUnavailable},
		{"", "empty_page", http.StatusOK},
		{"<html><body>Sign in</body></html>\n", "not_metrics", http.StatusOK},
		{"# TYPE litellm_in_flight_requests gauge\nlitellm_in_flight_requests oops\n", "parse_error", http.StatusOK},
	} {
		e := serve(t, c.page)
		e.status = c.status
		s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))
		s.want(t, `llm_engine_up{reason="`+c.reason+`"}`, 0)
		s.want(t, `{__name__=~"llm_(engine|gateway)_(requests|responses).+"}`)
	}
}

// TestEndpointPickerBehindTokenReview checks a picker whose controller-runtime checks each bearer token with the API
// server, over TLS. The kubelet renews the token's file while the exporter runs.
func TestEndpointPickerBehindTokenReview(t *testing.T) {
	valid := "first"
	picker := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Header.Get("Authorization") {
		case "Bearer " + valid:
			io.WriteString(w, readPage(t, "epp/v1.5.0-loaded.prom"))
		case "Bearer of-another-account":
			http.Error(w, "Authorization denied", http.StatusForbidden)
		default:
			http.Error(w, "Authentication failed", http.StatusUnauthorized)
		}
	}))
	defer picker.Close()
	dir := t.TempDir()
	token, ca := filepath.Join(dir, "token"), filepath.Join(dir, "ca.pem")
	writeCertificate(t, ca, picker)
	write := func(text string) {
		if err := os.WriteFile(token, []byte(text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("of-another-account")
	c := collectorFor(t, []TargetConfig{{URL: picker.URL, HTTP: config.HTTPClientConfig{
		Authorization: &config.Authorization{Type: "Bearer", CredentialsFile: token}, TLSConfig: config.TLSConfig{CAFile: ca},
	}}})
	refused := func() {
		t.Helper()
		s := parse(t, exposition(t, c))
		s.want(t, `llm_engine_up{reason="unauthorized"}`, 0)
		s.want(t, `llm_engine_requests_total`)
	}
	refused()
	for _, renewed := range []string{"first", "second"} {
		valid = renewed
		refused()
		write(renewed)
		s := parse(t, exposition(t, c))
		s.want(t, `llm_engine_up{runtime="epp"}`, 1)
		if len(s.get(t, `llm_engine_requests_total{role="gateway"}`)) == 0 {
			t.Error("nothing is read")
		}
	}
	if err := os.Remove(token); err != nil {
		t.Fatal(err)
	}
	s := parse(t, exposition(t, c))
	s.want(t, `llm_engine_up{reason="unauthorized"}`, 0)
}

// TestStateIsThatOfTheSeries checks that people read the state that an engine's series reports, even if the metrics
// page is read but no engine is behind it.
func TestStateIsThatOfTheSeries(t *testing.T) {
	for name, state := range map[string]string{
		"dynamo/frontend-v1.6.0-noworker.prom":  NoWorker,
		"dynamo/frontend-v1.6.0-allkilled.prom": NoWorker,
		"dynamo/frontend-v1.6.0-killed.prom":    "up",
		"epp/v1.5.0-no-pods.prom":               NoWorker,
		"llmd_router/v0.10.0-no-endpoints.prom": NoWorker,
		"llmd_router/v0.10.0-stale.prom":        "up",
	} {
		c := collectorFor(t, []TargetConfig{{URL: serve(t, readPage(t, name)).URL}})
		series := parse(t, exposition(t, c))
		e := c.Engines()[0]
		if e.State() != state || e.Reason != "" {
			t.Errorf("%s: state %q, reason %q, want %q", name, e.State(), e.Reason, state)
		}
		series.want(t, `llm_engine_up{reason="`+strings.TrimPrefix(e.State(), "up")+`"}`, metrics.Bool(state == "up"))
	}
}

// TestNoWorkerAfterARestart checks that an exporter that never saw the frontend's workers concludes from its
// metrics page that they are gone.
func TestNoWorkerAfterARestart(t *testing.T) {
	page(t, "dynamo/frontend-v1.6.0-allkilled.prom").want(t, `llm_engine_up`, 0)
	page(t, "dynamo/frontend-v1.6.0-allkilled.prom").want(t, `llm_engine_up{reason="no_worker"}`, 0)
	page(t, "dynamo/frontend-v1.6.0-killed.prom").want(t, `llm_engine_up{reason=""}`, 1) // one of several workers
	page(t, "dynamo/frontend-0.7.prom").want(t, `llm_engine_up{reason=""}`, 1)           // a release that never reports readiness
}

// TestGatewayWorkers checks that each worker of a router is counted once, by whether it may get requests.
func TestGatewayWorkers(t *testing.T) {
	for _, c := range []struct {
		page                    string
		usable, open, unhealthy []float64
	}{
		{"vllm_router/v0.1.17-load.prom", []float64{2}, []float64{0}, []float64{0}},
		{"vllm_router/v0.1.17-all500.prom", []float64{0}, []float64{2}, []float64{0}},
		{"smg/sglang-router-v0.3.2-load.prom", []float64{2}, []float64{0}, []float64{0}},
		{"smg/sglang-router-v0.3.2-hang.prom", []float64{0}, []float64{2}, []float64{0}},
	} {
		s := page(t, c.page)
		s.want(t, `llm_gateway_workers{reason=""}`, c.usable...)
		s.want(t, `llm_gateway_workers{reason="circuit_open"}`, c.open...)
		s.want(t, `llm_gateway_workers{reason="unhealthy"}`, c.unhealthy...)
	}
	open := readPage(t, "vllm_router/v0.1.17-all500.prom")
	for name, c := range map[string]struct {
		old, new                string
		usable, open, unhealthy []float64
	}{
		"half open": {
			`cb_state{worker="http://127.0.0.1:8211"} 1`, `cb_state{worker="http://127.0.0.1:8211"} 2`,
			[]float64{1},
			[]float64{1},
			[]float64{0},
		},
		"one fails its checks, too": {
			`health{worker="http://127.0.0.1:8211"} 1`, `health{worker="http://127.0.0.1:8211"} 0`,
			[]float64{0},
			[]float64{1},
			[]float64{1},
		},
		"one left, and still looks well": {`active_workers 2`, `active_workers 1`, nil, nil, nil},
	} {
		s := parse(t, mapped(t, strings.Replace(open, c.old, c.new, 1)))
		t.Log(name)
		s.want(t, `llm_gateway_workers{reason=""}`, c.usable...)
		s.want(t, `llm_gateway_workers{reason="circuit_open"}`, c.open...)
		s.want(t, `llm_gateway_workers{reason="unhealthy"}`, c.unhealthy...)
	}
	left := parse(t, mapped(t, strings.NewReplacer(`smg_worker_health{worker="http://127.0.0.1:8211"} 1`,
		`smg_worker_health{worker="http://127.0.0.1:8211"} -1`,
		`smg_worker_cb_state{worker="http://127.0.0.1:8211"} 0`, `smg_worker_cb_state{worker="http://127.0.0.1:8211"} -1`).
		Replace(readPage(t, "smg/sglang-router-v0.3.2-load.prom"))))
	left.want(t, `llm_gateway_workers{reason=""}`, 1)
	left.want(t, `llm_gateway_workers{reason="unhealthy"}`, 0)
}

// TestSeveralModelsOfSMG checks SMG, whose failures name no model. With several models, good answers are not
// counted by model, either: a model's budget of good answers alone would hide each failure, and failures alone
// would look like a model that always fails.
func TestSeveralModelsOfSMG(t *testing.T) {
	for _, c := range []struct{ name, pool, good string }{
		{"smg/sglang-router-v0.3.2-all500.prom", `smg_worker_pool_size{worker_type="regular",connection_mode="http",model="up"} 2`, "up"},
		{"smg/v1.9.0-loaded.prom", `smg_worker_pool_size{worker_type="regular",connection_mode="grpc",model="qwen3-8b"} 2`, "qwen3-8b"},
	} {
		alone := readPage(t, c.name)
		second := strings.Replace(alone, c.pool, c.pool+"\n"+strings.Replace(c.pool, c.good, "second", 1), 1)
		if second == alone {
			t.Fatalf("%s has no %s", c.name, c.pool)
		}
		one, two := parse(t, mapped(t, alone)), parse(t, mapped(t, second))
		if got, want := endsOf(two), endsOf(one); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: with a second model %v, want %v", c.name, got, want)
		}
		two.want(t, `llm_engine_requests_total{model_name=~".+"}`)
		if len(two.get(t, `llm_engine_metric_source_info{metric="llm_engine_requests_total",reason=~".*requests of several models are counted together, without a name.*"}`)) == 0 {
			t.Errorf("%s: nothing says why no model has requests", c.name)
		}
	}
}
