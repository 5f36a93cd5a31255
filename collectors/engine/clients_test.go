package engine

import (
	"encoding/csv"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// ends counts how requests ended, by outcome.
type ends map[metrics.Outcome]float64

// endsOf adds up the requests of an exposition.
func endsOf(s samples) ends {
	n := ends{}
	for _, sample := range s {
		if sample.labels.Get(model.MetricNameLabel) == metrics.Requests.Name && sample.value != 0 {
			n[metrics.Outcome(sample.labels.Get(metrics.LabelOutcome))] += sample.value
		}
	}
	return n
}

func total(t *testing.T, s samples, query string) (sum float64) {
	t.Helper()
	for _, v := range s.get(t, query) {
		sum += v
	}
	return sum
}

// TestEnds checks metrics pages with one kind of end of a request each.
func TestEnds(t *testing.T) {
	availability := []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")}
	for _, c := range []struct {
		series string
		want   metrics.Outcome // none: nobody's request
	}{
		// no worker is left, so 503 does not mean overload
		{`dynamo_frontend_requests_total{model="m",status="error",error_type="unavailable"}`, metrics.OutcomeError},
		{`dynamo_frontend_requests_total{model="m",status="error",error_type="overload"}`, metrics.OutcomeRejected},
		{`lmdeploy:request_success_total{model_name="m",engine="0",finished_reason="ResponseType.OUT_OF_MEMORY"}`, metrics.OutcomeError},
		{`lmdeploy:request_success_total{model_name="m",engine="0",finished_reason="ResponseType.NO_QUEUE"}`, metrics.OutcomeError},
		{`lmdeploy:request_success_total{model_name="m",engine="0",finished_reason="ResponseType.NOT_SUPPORTED"}`, metrics.OutcomeInvalid},
		{
			`lmdeploy:request_success_total{model_name="m",engine="0",finished_reason="ResponseType.PREFIX_CACHE_CONFLICT"}`,
			metrics.OutcomeInvalid,
		},
		{`lmdeploy:request_success_total{model_name="m",engine="0",finished_reason="ResponseType.NEW"}`, metrics.OutcomeUnknown},
		{
			`litellm_proxy_total_requests_metric_total{requested_model="m",route="/v1/chat/completions",status_code="529"}`,
			metrics.OutcomeRejected,
		},
		// the metric of failures is switched off
		{`litellm_proxy_total_requests_metric_total{requested_model="m",status_code="None"}`, metrics.OutcomeUnknown},
		{`litellm_proxy_total_requests_metric_total{route="/v1/models",status_code="401"}`, ""},
		{`litellm_proxy_total_requests_metric_total{requested_model="",route="None",status_code="200"}`, ""}, // its own health checks
		{`litellm_proxy_failed_requests_metric_total{requested_model="m",route="/v1/responses",exception_class="KeyError",exception_status="None"}`, metrics.OutcomeError},
		{`litellm_proxy_failed_requests_metric_total{requested_model="m",route="/v1/responses",exception_class="Exception",exception_status="None"}`, metrics.OutcomeUnknown},
		{`istio_requests_total{reporter="source",destination_service_name="m",response_code="529"}`, metrics.OutcomeRejected},
		{`ray_serve_num_http_requests_total{application="m",route="/v1",status_code="408"}`, metrics.OutcomeError},
		{`ray_serve_num_http_requests_total{application="m",route="/v1",status_code="503"}`, metrics.OutcomeRejected},
		{`ray_serve_num_http_requests_total{application="",route="/nowhere",status_code="404"}`, ""},
	} {
		name, _, _ := strings.Cut(c.series, "{")
		s := requestsOf(t, availability, fmt.Sprintf("# TYPE %s counter\n%s 7\n", name, c.series))
		want := ends{c.want: 7}
		if c.want == "" {
			want = ends{}
		}
		if got := endsOf(s); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("%s: %v, want %v", c.series, got, want)
		}
	}
}

// TestRaySumsAreNotKept checks that Ray's sums are not used: Ray adds up the middles of buckets, so two requests of
// 20 s sum to 70 s.
func TestRaySumsAreNotKept(t *testing.T) {
	s := page(t, "ray_serve/2.50-loaded.prom")
	s.want(t, `llm_engine_request_duration_seconds_sum`)
	s.want(t, `llm_engine_request_duration_seconds_count`, 3313)
}

// TestRoutersAreNoEngines checks that names that begin like an engine's name are not taken for the engine's.
func TestRoutersAreNoEngines(t *testing.T) {
	page(t, "vllm_router/v0.1.17-load.prom").want(t, `llm_engine_up{runtime="vllm_router"}`, 1)
	for _, name := range []string{
		"vllm_cost_total", "vllm:request_success:rate5m", "sglang_exporter_up", "lmdeploy_jobs",
		"llamacpp_swap_requests_total", "te_nant_requests_total",
	} {
		parse(t, mapped(t, "# TYPE "+name+" counter\n"+name+" 7\n")).want(t, `llm_engine_up{runtime=""}`, 0)
	}
}

// TestWholeAnswersAreNoFirstTokens checks Xinference, which observes an unstreamed answer as if all of it were its
// first token.
func TestWholeAnswersAreNoFirstTokens(t *testing.T) {
	const name = "xinference:time_to_first_token_seconds"
	series := func(stream, part string, n float64) string {
		return fmt.Sprintf("%s_%s{model_uid=\"m\",stream=%q} %v\n", name, part, stream, n)
	}
	page := "# TYPE " + name + " histogram\n"
	for stream, n := range map[string]float64{"true": 3, "false": 40} {
		page += fmt.Sprintf("%s_bucket{model_uid=\"m\",stream=%q,le=\"+Inf\"} %v\n", name, stream, n) + series(stream, "count", n) +
			series(stream, "sum", n)
	}
	parse(t, mapped(t, page)).want(t, `llm_engine_time_to_first_token_seconds_count`, 3)
}

// TestMadeUpNamesAreNoModels checks that a client's typo has no objective and no info series, and does not hide the
// model of a metrics page that names no model beside its answers.
func TestMadeUpNamesAreNoModels(t *testing.T) {
	availability := []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")}
	for _, c := range []struct{ page, model, typo string }{
		{"smg/sglang-router-v0.3.2-all500.prom", "up", "nosuchmodel"},
		{"litellm/v1.106.2-refused.prom", "solo", "other"}, // LiteLLM's own word for unknown models
		{"dynamo/frontend-v1.6.0-allkilled.prom", "Tiny/Mock", "unknown_model"},
	} {
		s := requestsOf(t, availability, readPage(t, c.page))
		s.want(t, `{model_name="`+c.typo+`",__name__!="llm_engine_requests_total",__name__!~"llm_gateway_.+|.+_(bucket|sum|count)"}`)
		s.want(t, `llm_engine_info{model_name="other"}`)
		s.want(t, `llm_slo_events_total{model_name="other"}`)
		s.want(t, `llm_slo_counted{model_name="`+c.model+`"}`, 1)
		if total(t, s, `llm_engine_requests_total{model_name="`+c.model+`",outcome!="success"}`) == 0 {
			t.Errorf("%s: no failure of %s", c.page, c.model)
		}
	}
}

// TestNameIsServedLater checks that a model whose first requests fail leaves the pool of names when a request ends
// well. The pool must not fall, because Prometheus would take that for a restart.
func TestNameIsServedLater(t *testing.T) {
	const page = `# TYPE litellm_proxy_total_requests_metric_total counter
litellm_proxy_total_requests_metric_total{requested_model="late",status_code="500"} 40
litellm_proxy_total_requests_metric_total{requested_model="typo",status_code="500"} 3
`
	e := serve(t, page)
	c := collectorWith(t, Config{
		Targets:    []TargetConfig{{URL: e.URL}},
		Objectives: []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")}, Log: discard,
	})
	s := parse(t, exposition(t, c))
	s.want(t, `llm_engine_requests_total{model_name="other",outcome="error"}`, 43)
	s.want(t, `llm_slo_events_total`)
	e.page = page + "litellm_proxy_total_requests_metric_total{requested_model=\"late\",status_code=\"200\"} 1\n"
	s = parse(t, exposition(t, c))
	s.want(t, `llm_engine_requests_total{model_name="other",outcome="error"}`, 43)
	s.want(t, `llm_engine_requests_total{model_name="late",outcome="error"}`, 40)
	s.want(t, `llm_slo_bad_events_total{model_name="late"}`, 40)
	e.page = strings.ReplaceAll(e.page, `"typo",status_code="500"} 3`, `"typo",status_code="500"} 5`)
	parse(t, exposition(t, c)).want(t, `llm_engine_requests_total{model_name="other",outcome="error"}`, 45)
}

// TestDifferenceDoesNotFall checks an endpoint picker, which counts the end of an answer before it counts the
// answer as an error.
func TestDifferenceDoesNotFall(t *testing.T) {
	counts := func(ended, failed int) string {
		return fmt.Sprintf(`# TYPE inference_objective_request_duration_seconds histogram
inference_objective_request_duration_seconds_bucket{model_name="m",target_model_name="m",le="+Inf"} %d
inference_objective_request_duration_seconds_sum{model_name="m",target_model_name="m"} 9
inference_objective_request_duration_seconds_count{model_name="m",target_model_name="m"} %d
# TYPE inference_objective_request_total counter
inference_objective_request_total{model_name="m",target_model_name="m"} 100
# TYPE inference_objective_request_error_total counter
inference_objective_request_error_total{model_name="m",target_model_name="m",error_code="ModelServerError"} %d
`, ended, ended, failed)
	}
	e := serve(t, counts(60, 9))
	c := collectorWith(t, Config{
		Targets:    []TargetConfig{{URL: e.URL}},
		Objectives: []slo.Objective{objective(t, "availability", slo.Availability, "", "99.9%")}, Log: discard,
	})
	for _, step := range []struct {
		ended, failed int
		good, events  float64
	}{{60, 9, 51, 60}, {62, 9, 53, 62}, {62, 11, 53, 64}, {64, 11, 53, 64}, {67, 12, 55, 67}} {
		e.page = counts(step.ended, step.failed)
		s := parse(t, exposition(t, c))
		s.want(t, `llm_engine_requests_total{outcome="success"}`, step.good)
		s.want(t, `llm_slo_events_total`, step.events)
	}
}

// TestModelWithoutWorkers checks a frontend that has lost its last worker: it still answers, keeps its series about
// the model, and fails each request.
func TestModelWithoutWorkers(t *testing.T) {
	e := serve(t, readPage(t, "dynamo/frontend-v1.6.0-noworker.prom"))
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	for _, state := range []struct {
		page   string
		reason string
		up     float64
	}{
		{"dynamo/frontend-v1.6.0-noworker.prom", "no_worker", 0}, // no request has come yet, either
		{"dynamo/frontend-v1.6.0-migration.prom", "", 1},
		{"dynamo/frontend-v1.6.0-allkilled.prom", "no_worker", 0},
		{"dynamo/frontend-v1.6.0-migration.prom", "", 1},
	} {
		e.page = readPage(t, state.page)
		s := parse(t, exposition(t, c))
		s.want(t, `llm_engine_up{reason="`+state.reason+`",runtime="dynamo"}`, state.up)
		s.want(t, `llm_engine_up`, state.up)        // and no worker's series are read from it
		if strings.Contains(state.page, "killed") { // so that rules can name the model that is down
			s.want(t, `llm_engine_info`)
			if v := s.get(t, metrics.EngineLastServed.Name+`{model_name="Tiny/Mock"}`); len(v) != 1 {
				t.Errorf("last served at %v", v)
			}
		}
	}
	page(t, "dynamo/frontend-0.7.prom").want(t, `llm_engine_up`, 1) // does not report readiness
}

// TestRefusedBeforeItIsCounted checks a frontend that tells some clients that their request failed before it counts
// the request. The frontend counts each failure by its class.
func TestRefusedBeforeItIsCounted(t *testing.T) {
	s := page(t, "dynamo/frontend-v1.6.0-badreq.prom") // two misspelt models, four invalid requests, and three more that were not found
	s.want(t, `llm_engine_requests_total{model_name="other",outcome="invalid"}`, 2)
	s.want(t, `llm_engine_requests_total{model_name="Tiny/Mock",outcome="invalid"}`, 4)
	s.want(t, `llm_engine_requests_total{outcome="unknown"}`)

	counts := func(failed, counted string) string {
		return "# TYPE dynamo_frontend_model_ready gauge\ndynamo_frontend_model_ready{model=\"m\"} 1\n# TYPE dynamo_frontend_failures_total " +
			"counter\n" + failed +
			"# TYPE dynamo_frontend_requests_total counter\n" + counted
	}
	for _, c := range []struct {
		class, kind string
		want        ends
	}{
		{"Unavailable", "unavailable", ends{metrics.OutcomeError: 9}},
		{"CapacityExhausted", "overload", ends{metrics.OutcomeRejected: 9}},
		{"RateLimited", "overload", ends{metrics.OutcomeRejected: 9}},
		{"InvalidRequest", "validation", ends{metrics.OutcomeInvalid: 9}},
		{"PayloadTooLarge", "validation", ends{metrics.OutcomeInvalid: 9}},
		{"NotFound", "not_found", ends{metrics.OutcomeInvalid: 4}}, // look-ups are among the other five
		{"Internal", "internal", ends{metrics.OutcomeError: 4}},    // the request was accepted
	} {
		body := counts(fmt.Sprintf("dynamo_frontend_failures_total{class=%q,reason=\"r\"} 9\n", c.class),
			fmt.Sprintf("dynamo_frontend_requests_total{model=\"m\",endpoint=\"chat_completions\",request_type=\"stream\",status=\"error\",error_type=%q} 4\n", c.kind))
		if got := endsOf(parse(t, mapped(t, body))); fmt.Sprint(got) != fmt.Sprint(c.want) {
			t.Errorf("%s: %v, want %v", c.class, got, c.want)
		}
	}
}

// TestOneOfTwoModelsWithoutWorkers reads the metrics page of a Dynamo of two models. After the only worker of one
// model was stopped, its clients got 504 ten times, 503 five times and then 404. The metrics page is up, but the
// model is not served, whether it was served before or not.
func TestOneOfTwoModelsWithoutWorkers(t *testing.T) {
	e := serve(t, readPage(t, "dynamo/frontend-v1.6.0-two.prom"))
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	s := parse(t, exposition(t, c))
	s.want(t, `llm_engine_info{model_name="Tiny/A"}`, 1)
	s.want(t, metrics.EngineLastServed.Name)
	served := float64(time.Now().Unix())
	for range 2 {
		e.page = readPage(t, "dynamo/frontend-v1.6.0-two-lost.prom")
		s = parse(t, exposition(t, c))
		s.want(t, `llm_engine_up`, 1)
		s.want(t, `llm_engine_info{model_name="Tiny/B"}`, 1)
		s.want(t, `llm_engine_info`, 1)
		s.want(t, metrics.EngineLastServed.Name+`{model_name="Tiny/B"}`)
		if v := s.get(t, metrics.EngineLastServed.Name+`{model_name="Tiny/A"}`); len(v) != 1 || v[0] < served-1 || v[0] > served+60 {
			t.Errorf("last served at %v", v)
		}
		c = collectorFor(t, []TargetConfig{{URL: e.URL}}) // an exporter that starts now
	}
}

// TestWrongRequestsOfOldVLLM checks vLLM 0.18 to 0.25, which counts requests that it answers with 400 as 5xx, so the
// cause of a 5xx is unknown.
func TestWrongRequestsOfOldVLLM(t *testing.T) {
	const page = "# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{engine=\"0\",model_name=\"m\"} 0\n" +
		"# TYPE http_requests_total counter\nhttp_requests_total{handler=\"/v1/completions\",method=\"POST\",status=\"5xx\"} 7\n"
	for version, want := range map[string]metrics.Outcome{
		"0.17.1": metrics.OutcomeError, "0.18.1": metrics.OutcomeUnknown,
		"0.25.0": metrics.OutcomeUnknown, "0.32.0": metrics.OutcomeError,
	} {
		e := serve(t, page)
		e.documents["/version"] = `{"version":"` + version + `"}`
		if got := endsOf(parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))); fmt.Sprint(got) != fmt.Sprint(ends{want: 7}) {
			t.Errorf("%s: %v, want %s", version, got, want)
		}
	}
}

// TestTableOfFailures checks that each row of docs/failures.csv names a test that exists.
func TestTableOfFailures(t *testing.T) {
	table, err := os.Open("../../docs/failures.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer table.Close()
	rows, err := csv.NewReader(table).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	var tests strings.Builder
	for _, pattern := range []string{"*_test.go", "../../cmd/exporter/*_test.go"} {
		files, _ := filepath.Glob(pattern)
		for _, f := range files {
			code, err := os.ReadFile(f)
			if err != nil {
				t.Fatal(err)
			}
			tests.Write(code)
		}
	}
	for _, row := range rows[1:] {
		named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row[6], -1)
		if named == nil {
			t.Errorf("docs/failures.csv names no test of %s", row[0])
		}
		for _, name := range named {
			if !strings.Contains(tests.String(), "func "+name[1]+"(") {
				t.Errorf("no test is called %s: %s", name[1], row)
			}
		}
	}
	if len(rows) <= 20 {
		t.Errorf("%d rows", len(rows))
	}
}
