package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

// pretended is a Prometheus with the answers of a test, which keeps the queries.
type pretended struct {
	says  func(w http.ResponseWriter, query url.Values)
	mu    sync.Mutex
	asked []string
}

func (p *pretended) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_ = r.ParseForm()
	p.mu.Lock()
	p.asked = append(p.asked, r.Method+" "+r.URL.Path+" "+r.Header.Get("Authorization")+" "+r.Form.Get("query"))
	p.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	p.says(w, r.Form)
}

// vector writes an answer with some series of a server.
func vector(w io.Writer, series int) {
	var all []string
	for i := range series {
		all = append(all, fmt.Sprintf(`{"metric":{"__name__":"x","model_name":"m","pod":"chat-%d","server":"<b>10.0.0.%d:8000"},"value":[1767576660,"%d"]}`, i, i, i))
	}
	fmt.Fprintf(w, `{"status":"success","data":{"resultType":"vector","result":[%s]}}`, strings.Join(all, ","))
}

// askingExporter starts an exporter that may query p.
func askingExporter(t *testing.T, p *pretended, args ...string) *exporter {
	t.Helper()
	server := httptest.NewServer(p)
	t.Cleanup(server.Close)
	dir := t.TempDir()
	token, file := filepath.Join(dir, "token"), filepath.Join(dir, "exporter.yml")
	config := "prometheus: {url: " + server.URL + "/tenant, http_config: {authorization: {credentials_file: " + token + "}}}\n"
	for name, text := range map[string]string{token: "s3cret", file: config} {
		if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return start(t, append(args, "--discovery=none", "--config.file="+file)...)
}

// TestRunbooksAnswer checks a configuration with a Prometheus. Each query of a runbook shows its present result, with the
// labels of the alert. A result fills in labels that the runbook lacks. Values from the Prometheus stay text.
func TestRunbooksAnswer(t *testing.T) {
	p := &pretended{says: func(w http.ResponseWriter, _ url.Values) { vector(w, 30) }}
	e := askingExporter(t, p)
	b := e2e.NewBrowser(t)
	b.View(1280, 800, "")
	b.Open(e.url + "/runbooks/BranchQueueing.md?model_name=m")
	b.Until("every query has an answer",
		`document.querySelectorAll(".answer").length == 5 && [...document.querySelectorAll(".answer p")].every(p => p.textContent.startsWith("The first 20 series at "))`)
	if rows := b.Eval(`document.querySelectorAll(".answer tr").length + " " + document.querySelector(".answer tr").textContent + " " + document.querySelectorAll(".answer b").length`); rows != `100 0pod="chat-0", server="<b>10.0.0.0:8000" 0` {
		t.Errorf("the rows are %s", rows)
	}
	p.mu.Lock()
	for _, asked := range p.asked {
		if !strings.HasPrefix(asked, "POST /tenant/api/v1/query Bearer s3cret ") || !strings.Contains(asked, `model_name="m"`) {
			t.Errorf("asked: %s", asked)
		}
	}
	if len(p.asked) != 5 {
		t.Errorf("asked: %q", p.asked)
	}
	p.asked = nil
	p.mu.Unlock()

	b.Open(e.url + "/runbooks/LLMErrorBudgetFastBurn?namespace=prod&model_name=m&slo=ttft")
	b.Until("a result fills in the pod", `[...document.querySelectorAll(".answer a")].some(a => a.textContent == "Fill in $POD")`)
	b.Eval(`document.querySelector(".answer a").click()`)
	b.Until("the command has the pod, the namespace and the model",
		`location.search == "?model_name=m&namespace=prod&pod=chat-0&slo=ttft" && document.readyState == "complete" && document.body.textContent.includes("kubectl -n prod logs chat-0")`)
	b.Until("the pod of the page is named beside others", `!!document.querySelector(".answer tr")?.textContent.includes('pod="chat-0"')`)
	b.Until("nothing is left to fill in",
		`[...document.querySelectorAll(".answer p")].every(p => p.textContent.startsWith("The first")) && !document.querySelector(".answer a")`)

	b.Open(e.url + "/runbooks/LLMEngineDown")
	b.Until("a query without its label is not asked",
		`[...document.querySelectorAll(".answer p")].some(p => p.textContent.startsWith("Not asked: fill in $SERVER first"))`)
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, asked := range p.asked {
		if strings.Contains(asked, "$") {
			t.Errorf("asked with a place that nobody filled in: %s", asked)
		}
	}
}

// TestAnswersAreBounded checks that readers can run only the queries of the runbooks, and that an answer costs
// little, however the Prometheus answers. Without a Prometheus nothing is queried. No answer or log contains the
// credentials.
func TestAnswersAreBounded(t *testing.T) {
	var running, most atomic.Int64
	p := &pretended{}
	e := askingExporter(t, p)
	get := func(path string) (int, string) {
		response, err := http.Get(e.url + "/runbooks/" + path)
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Error(err)
		}
		return response.StatusCode, string(body)
	}
	for name, c := range map[string]struct {
		says func(http.ResponseWriter, url.Values)
		want string
	}{
		"too much": {func(w http.ResponseWriter, _ url.Values) { vector(w, 20000) }, "No answer: "},
		"a mistake": {func(w http.ResponseWriter, _ url.Values) {
			w.WriteHeader(http.StatusBadRequest)
			fmt.Fprint(w, `{"status":"error","errorType":"bad_data","error":"parse error"}`)
		}, "parse error"},
		"nobody gets in": {
			func(w http.ResponseWriter, _ url.Values) { w.WriteHeader(http.StatusUnauthorized) },
			"see prometheus in the exporter's configuration: ",
		},
		"another host": {func(w http.ResponseWriter, _ url.Values) {
			w.Header().Set("Location", "http://other.invalid/")
			w.WriteHeader(http.StatusTemporaryRedirect)
		}, "No answer: "},
		"nothing": {func(w http.ResponseWriter, _ url.Values) { vector(w, 0) }, "No series has this at "},
		"a scalar": {func(w http.ResponseWriter, _ url.Values) {
			fmt.Fprint(w, `{"status":"success","data":{"resultType":"scalar","result":[1,"7"]}}`)
		}, `"value":"7"`},
	} {
		p.says = c.says
		if status, body := get("Verify/0?model_name=m"); status != http.StatusOK || !strings.Contains(body, c.want) ||
			strings.Contains(body, "s3cret") || strings.Contains(body, "other.invalid:") || len(body) > 4096 {
			t.Errorf("%s: %d %.300s", name, status, body)
		}
	}
	p.says = func(w http.ResponseWriter, query url.Values) {
		if query.Get("limit") != "21" || query.Get("timeout") != "5s" {
			t.Errorf("requests: %v", query)
		}
		for now := running.Add(1); ; {
			if before := most.Load(); now <= before || most.CompareAndSwap(before, now) {
				break
			}
		}
		vector(w, 1)
		running.Add(-1)
	}
	var readers sync.WaitGroup
	for range 40 {
		readers.Go(func() { get("Verify/0?model_name=m") })
	}
	readers.Wait()
	if most.Load() > askedAtOnce {
		t.Errorf("%d queries at once", most.Load())
	}
	p.mu.Lock()
	p.asked = nil
	p.mu.Unlock()
	for _, path := range []string{"Verify/99", "Verify/-1", "Verify/up", "Nothing/0", "Verify/0/1"} {
		if status, _ := get(path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
	if _, body := get(`Verify/0?model_name=m%22%7D`); !strings.Contains(body, "Not asked") || len(p.asked) > 0 {
		t.Errorf("a label that ends the string is asked: %s %q", body, p.asked)
	}
	if strings.Contains(e.log.String(), "s3cret") {
		t.Error("the log has the token")
	}
	e = start(t, "--discovery=none")
	if status, _ := get("Verify/0?model_name=m"); status != http.StatusNotFound {
		t.Errorf("without a Prometheus: %d", status)
	}
	if _, page := get("Verify"); strings.Contains(page, `class="answer"`) {
		t.Error("without a Prometheus there is a place for answers")
	}
}

// TestPrometheusOfRunbooksIsChecked checks that an error has the line and the remedy, and does not repeat a password.
func TestPrometheusOfRunbooksIsChecked(t *testing.T) {
	for config, want := range map[string]string{
		"prometheus:\n  url: prometheus:9090\n":                                                        ":2: prometheus.url: ",
		"prometheus:\n  url: http://u:s3cret@p:9090\n":                                                 ":2: prometheus.url: credentials",
		"prometheus:\n  url: http://p\n  http_config: {basic_auth: {username: u, password: s3cret}}\n": ":3: prometheus.http_config.basic_auth.password: ",
		"prometheus:\n  url: http://p\n  query: up\n":                                                  ":3: ",
	} {
		file := filepath.Join(t.TempDir(), "exporter.yml")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := run(t.Context(), []string{"--config.check", "--config.file=" + file}, io.Discard); err == nil ||
			!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v", config, err)
		}
	}
}

// TestVerdictComparesWithThePast checks that the verdict of the node asks the configured Prometheus about its models, and
// that an answer comes without the past while the Prometheus fails.
func TestVerdictComparesWithThePast(t *testing.T) {
	t.Parallel()
	page, engine := serving(t)
	page.Store(busy("m", 1, 0, 0.1, 100, 0))
	for name, says := range map[string]func(http.ResponseWriter, url.Values){
		"answers": func(w http.ResponseWriter, _ url.Values) { vector(w, 0) },
		"fails":   func(w http.ResponseWriter, _ url.Values) { http.Error(w, "down", http.StatusBadGateway) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := &pretended{says: says}
			e := askingExporter(t, p, "--engine.target="+engine)
			e.get(t, "/metrics")
			answer := e.get(t, "/verdict")
			if !strings.Contains(answer, `"model":"m"`) && !strings.Contains(answer, `"model": "m"`) {
				t.Errorf("no verdict on the model: %s", answer)
			}
			p.mu.Lock()
			defer p.mu.Unlock()
			if len(p.asked) == 0 || !strings.HasPrefix(p.asked[0], "POST /tenant/api/v1/query Bearer s3cret ") {
				t.Errorf("the Prometheus was asked %d times: %q", len(p.asked), p.asked)
			}
			if warned := strings.Contains(e.log.String(), "the verdict is not compared with the past"); warned != (name == "fails") {
				t.Errorf("the log: %s", e.log)
			}
		})
	}
}
