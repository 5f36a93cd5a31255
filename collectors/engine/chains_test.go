package engine

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/common/config"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
)

// counts writes a metrics page of Triton's core: requests and waiting requests of models.
func counts(models map[string][2]int) string {
	success, pending := "# TYPE nv_inference_request_success counter\n", "# TYPE nv_inference_pending_request_count gauge\n"
	for model, n := range models {
		success += fmt.Sprintf("nv_inference_request_success{model=%q,version=\"1\"} %d\n", model, n[0])
		pending += fmt.Sprintf("nv_inference_pending_request_count{model=%q,version=\"1\"} %d\n", model, n[1])
	}
	return success + pending
}

// configured adds the configurations of models, as Triton answers them.
func (e *fakeEngine) configured(backends map[string]string, steps map[string][]string) {
	for model, backend := range backends {
		config := fmt.Sprintf(`{"name":%q,"platform":"","backend":%q,"version_policy":{"latest":{"num_versions":1}},"max_batch_size":8`,
			model, backend)
		if of := steps[model]; backend == "python" && of != nil { // as tensorrt_llm_bls
			config += fmt.Sprintf(`,"parameters":{"accumulate_tokens":{"string_value":"true"},"tensorrt_llm_model_name":{"string_value":%q}}`, of[0])
		} else if of != nil {
			var list []string
			for _, step := range of {
				list = append(list, fmt.Sprintf(`{"model_name":%q,"model_version":-1,"input_map":{"IN":"IN"},"output_map":{"OUT":"OUT"}}`, step))
			}
			config = strings.Replace(config, `"platform":""`, `"platform":"ensemble"`, 1) + `,"ensemble_scheduling":{"step":[` +
				strings.Join(list, ",") + `]}`
		}
		e.documents["/v2/models/"+model+"/config"] = config + "}"
	}
}

const (
	trtllmPage = "triton/trtllm-v0.18-ensemble.prom"
	good       = `llm_engine_requests_total{outcome="success",model_name=%q}`
)

var (
	trtllmModels = map[string]string{
		"ensemble": "", "preprocessing": "python", "postprocessing": "python", "tensorrt_llm": "tensorrtllm",
		"tensorrt_llm_bls": "python",
	}
	trtllmSteps = map[string][]string{"ensemble": {"preprocessing", "tensorrt_llm", "postprocessing"}, "tensorrt_llm_bls": {"tensorrt_llm"}}
)

func (s samples) wantGood(t testing.TB, models map[string]float64) {
	t.Helper()
	s.want(t, `llm_engine_requests_total{outcome="success"}`, func() (all []float64) {
		for _, n := range models {
			all = append(all, n)
		}
		return all
	}()...)
	for model, n := range models {
		s.want(t, fmt.Sprintf(good, model), n)
	}
}

// beside adds a model of the core to a metrics page.
func beside(page, model string, requests int) string {
	line := "# TYPE nv_inference_request_success counter\n"
	return strings.Replace(page, line, line+fmt.Sprintf("nv_inference_request_success{model=%q,version=\"1\"} %d\n", model, requests), 1)
}

// TestModelsBesideAnLLM checks that a model unrelated to the LLM keeps its requests, and that each request to the
// LLM counts once.
func TestModelsBesideAnLLM(t *testing.T) {
	for _, c := range []struct {
		name, page, runtime string
		backends            map[string]string
		steps               map[string][]string
		want                map[string]float64
	}{
		{
			name: "TensorRT-LLM", page: trtllmPage, backends: map[string]string{"embed": "onnxruntime"},
			want: map[string]float64{"tensorrt_llm": 1204, "embed": 77},
		},
		{
			name: "ensemble of two others", page: trtllmPage, backends: map[string]string{"embed": "", "bert": "onnxruntime"},
			steps: map[string][]string{"embed": {"bert"}},
			want:  map[string]float64{"tensorrt_llm": 1204, "embed": 77},
		},
		{
			name: "Python that may be a part", page: trtllmPage, backends: map[string]string{"embed": "python"},
			want: map[string]float64{"tensorrt_llm": 1204},
		},
		{
			name: "vLLM", page: "triton/vllm-backend.prom", backends: map[string]string{"vllm_model": "vllm", "embed": "python"},
			want: map[string]float64{"vllm_model": 871, "embed": 77},
		},
		{
			name: "vLLM in an ensemble in one", page: "triton/vllm-backend.prom", backends: map[string]string{
				"vllm_model": "vllm", "inner": "",
				"embed": "",
			},
			steps: map[string][]string{"embed": {"inner"}, "inner": {"vllm_model"}}, want: map[string]float64{"vllm_model": 871},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			page := beside(readPage(t, c.page), "embed", 77)
			for model := range c.backends {
				if model == "bert" || model == "inner" {
					page = beside(page, model, 78)
				}
			}
			e := serve(t, page)
			if c.page == trtllmPage {
				e.configured(trtllmModels, trtllmSteps)
			}
			without := mapped(t, page)
			e.configured(c.backends, c.steps)
			s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))
			s.wantGood(t, c.want)
			if strings.Contains(without, `"embed"`) {
				t.Error("a model is there of which nobody knows what it calls")
			}
		})
	}
}

// TestEnsembles checks that a request counts under the ensemble that a client asks for, whatever its name is, and
// that requests that wait at its steps count as waiting for it.
func TestEnsembles(t *testing.T) {
	page := counts(map[string][2]int{
		"search": {100, 0}, "tokenize": {103, 2}, "bert": {101, 5}, "ensemble": {7, 0}, "shared": {110, 9},
		"ranker": {40, 1},
	})
	e := serve(t, page)
	e.configured(map[string]string{
		"search": "", "tokenize": "python", "bert": "onnxruntime", "ensemble": "", "shared": "onnxruntime",
		"ranker": "python",
	},
		map[string][]string{"search": {"tokenize", "bert", "shared"}, "ensemble": {"shared", "gone"}})
	c := collectorFor(t, []TargetConfig{{URL: e.URL}})
	s := parse(t, exposition(t, c))
	s.wantGood(t, map[string]float64{"search": 100, "ensemble": 7, "ranker": 40})
	for model, waiting := range map[string]float64{"search": 7, "ensemble": 0, "ranker": 1} {
		s.want(t, fmt.Sprintf(`llm_engine_requests_waiting{model_name=%q}`, model), waiting)
	}
	exposition(t, c)
	if n := e.asked("/v2/models/search/config"); n != 1 {
		t.Errorf("asked %d times", n)
	}
	e.documents["/v2/models/late/config"] = `{"name":"late","backend":"onnxruntime"}`
	e.show(beside(page, "late", 3))
	s = parse(t, exposition(t, c))
	s.want(t, fmt.Sprintf(good, "late"), 3)
	e.show(beside(beside(page, "late", 3), "unloading", 3)) // this query gets no answer; what is known about the other models stays
	s = parse(t, exposition(t, c))
	s.want(t, fmt.Sprintf(good, "search"), 100)
	s.want(t, fmt.Sprintf(good, "bert"))
}

// TestChainsOfStrangers checks that no request counts twice and nothing breaks without an answer about every model,
// with an invalid answer, or with models that call each other in a circle.
func TestChainsOfStrangers(t *testing.T) {
	plain := counts(map[string][2]int{"ensemble": {5, 0}, "a": {6, 0}, "b": {7, 0}})
	good := func(e *fakeEngine) {
		e.configured(map[string]string{"ensemble": "", "a": "python", "b": "onnxruntime"}, map[string][]string{"ensemble": {"a"}})
	}
	path := "/v2/models/b/config"
	for name, c := range map[string]struct {
		say  func(e *fakeEngine)
		want map[string]float64
	}{
		"all answer":   {good, map[string]float64{"ensemble": 5, "b": 7}},
		"one does not": {func(e *fakeEngine) { good(e); delete(e.documents, path) }, map[string]float64{"ensemble": 5}},
		"of another":   {func(e *fakeEngine) { good(e); e.documents[path] = `{"name":"a"}` }, map[string]float64{"ensemble": 5}},
		"empty":        {func(e *fakeEngine) { good(e); e.documents[path] = `{}` }, map[string]float64{"ensemble": 5}},
		"not JSON":     {func(e *fakeEngine) { good(e); e.documents[path] = `<html>` }, map[string]float64{"ensemble": 5}},
		"another type": {
			func(e *fakeEngine) { good(e); e.documents[path] = `{"name":"b","ensemble_scheduling":[1]}` },
			map[string]float64{"ensemble": 5},
		},
		"null": {func(e *fakeEngine) { good(e); e.documents[path] = `null` }, map[string]float64{"ensemble": 5}},
		"too large": {func(e *fakeEngine) {
			good(e)
			e.documents[path] = `{"name":"b"` + strings.Repeat(" ", scrape.MaxDocumentBytes) + "}"
		}, map[string]float64{"ensemble": 5}},
		"a circle": {func(e *fakeEngine) {
			good(e)
			e.documents[path] = strings.ReplaceAll(strings.Replace(e.documents["/v2/models/ensemble/config"], `"ensemble"`, `"b"`, 1),
				`"model_name":"a"`, `"model_name":"b"`)
		}, map[string]float64{"ensemble": 5}},
	} {
		e := serve(t, plain)
		c.say(e)
		t.Log(name)
		parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}}))).wantGood(t, c.want)
	}
	many := map[string][2]int{}
	for i := range mostChained + 1 {
		many[fmt.Sprint("m", i)] = [2]int{1, 0}
	}
	e := serve(t, counts(many))
	exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}}))
	if n := e.asked("/v2/models/m0/config"); n != 0 {
		t.Error("too many models are asked")
	}
	for _, odd := range []string{"", "..", ".", "../../shutdown", "a?b", "a#b", "%2e%2e", "a/b"} {
		e := serve(t, counts(map[string][2]int{odd: {1, 0}, "a": {2, 0}}))
		exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL, Engine: "triton"}}))
		for path := range e.requests {
			if path != "/metrics" && path != "/v2/models/a/config" {
				t.Errorf("a model called %q has %s asked", odd, path)
			}
		}
	}
}

// TestAPIPort checks that Triton's other port is queried, without the credentials of the metrics page, if the metrics
// page's port does not serve the path.
func TestAPIPort(t *testing.T) {
	page := beside(readPage(t, "triton/vllm-backend.prom"), "embed", 77)
	password := filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(password, []byte("secret"), 0o600); err != nil {
		t.Fatal(err)
	}
	var credentials string
	api := serve(t, "")
	api.configured(map[string]string{"vllm_model": "vllm", "embed": "onnxruntime"}, nil)
	inner := api.Config.Handler
	api.Config.Handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		credentials += r.Header.Get("Authorization")
		inner.ServeHTTP(w, r)
	})
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") == "" || r.URL.Path != "/metrics" {
			http.NotFound(w, r)
			return
		}
		io.WriteString(w, page)
	}))
	t.Cleanup(e.Close)
	port := func(url string) string { _, p, _ := net.SplitHostPort(strings.TrimPrefix(url, "http://")); return p }
	for at, want := range map[string]map[string]float64{port(api.URL): {"vllm_model": 871, "embed": 77}, "1": {"vllm_model": 871}} {
		d := tritonVLLM
		d.APIPorts = map[string]string{port(e.URL): at}
		target := TargetConfig{URL: e.URL}
		target.HTTP.BasicAuth = &config.BasicAuth{Username: "u", PasswordFile: password}
		c := collectorFor(t, []TargetConfig{target})
		c.targets[0].dialects = []*Dialect{&d}
		began := time.Now()
		parse(t, exposition(t, c)).wantGood(t, want)
		if took := time.Since(began); took > chainsTimeout {
			t.Errorf("took %s", took)
		}
	}
	if credentials != "" {
		t.Errorf("credentials went to another port: %s", credentials)
	}
	if tritonPorts["8002"] != "8000" {
		t.Error("Triton's API is at port 8000 and its page at 8002")
	}
}
