package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

// llamaRouter answers as llama.cpp's router does (tools/server/server-models.cpp): unless autoload=false, it loads
// the model whose metrics page is requested, and then unloads another one.
type llamaRouter struct {
	mu                      sync.Mutex
	models                  map[string]string // status
	most                    int
	loads, evictions, wakes int
	page                    string
}

func (r *llamaRouter) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.mu.Lock()
	defer r.mu.Unlock()
	refuse := func(code int, message string) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"error":{"code":%d,"message":%q,"type":"invalid_request_error"}}`, code, message)
	}
	q := req.URL.Query()
	name := q.Get("model")
	switch {
	case req.URL.Path == "/v1/models":
		type model map[string]any
		var all []model
		for _, id := range []string{"a", "b", "c"} {
			all = append(all, model{"id": id, "aliases": []string{id + "-alias"}, "owned_by": "llamacpp", "status": model{"value": r.models[id]}})
		}
		_ = json.NewEncoder(w).Encode(model{"data": all})
		return
	case req.URL.Path == "/props" && name == "":
		io.WriteString(w, `{"role":"router","build_info":"b11669-Debian","default_generation_settings":{"n_ctx":0}}`)
		return
	case req.URL.Path != "/props" && req.URL.Path != "/metrics":
		http.NotFound(w, req)
		return
	case name == "":
		refuse(http.StatusBadRequest, "model name is missing from the request")
		return
	}
	name = strings.TrimSuffix(name, "-alias")
	switch status := r.models[name]; {
	case status == "":
		refuse(http.StatusBadRequest, "model '"+name+"' not found")
		return
	case status == "unloaded" && (q.Get("autoload") == "false" || q.Get("autoload") == "0"):
		refuse(http.StatusBadRequest, "model is not loaded")
		return
	case status == "unloaded":
		loaded := 0
		for _, s := range r.models {
			if s != "unloaded" {
				loaded++
			}
		}
		for other, s := range r.models {
			if s != "unloaded" && loaded >= r.most {
				r.models[other], loaded = "unloaded", loaded-1
				r.evictions++
			}
		}
		r.models[name] = "loaded"
		r.loads++
	case status == "sleeping" && req.URL.Path == "/metrics":
		r.models[name] = "loaded"
		r.wakes++
	}
	if req.URL.Path == "/props" {
		fmt.Fprintf(w, `{"build_info":"b11669-Debian","is_sleeping":%t,"total_slots":2,"default_generation_settings":{"n_ctx":256}}`,
			r.models[name] == "sleeping")
		return
	}
	io.WriteString(w, r.page)
}

// TestScrapesOfARouterChangeNothing uses three targets: two request models, one of these not loaded, and the third
// requests no model.
func TestScrapesOfARouterChangeNothing(t *testing.T) {
	r := &llamaRouter{
		models: map[string]string{"a": "loaded", "b": "unloaded", "c": "unloaded"}, most: 1,
		page: readPage(t, "llamacpp/b10450-loaded.prom"),
	}
	server := httptest.NewServer(r)
	defer server.Close()
	c := collectorWith(t, Config{Log: discard, Targets: []TargetConfig{
		{URL: server.URL + "/metrics?model=a"}, {URL: server.URL + "/metrics?model=b"}, {URL: server.URL},
	}})
	var s samples
	for range 350 {
		s = parse(t, exposition(t, c))
	}
	if r.loads+r.evictions+r.wakes > 0 {
		t.Errorf("1,050 scrapes: %d loads, %d evictions, %d wakes", r.loads, r.evictions, r.wakes)
	}
	s.want(t, `llm_engine_up{server="engine-0:80",reason=""}`, 1)
	s.want(t, `llm_engine_up{server="engine-1:80",reason="not_loaded"}`, 1)
	s.want(t, `llm_engine_models_loaded{server="engine-1:80",model_name="b"}`, 0)
	s.want(t, `llm_engine_requests_running{server="engine-1:80"}`)
	s.want(t, `llm_engine_up{server="engine-2:80",reason=""}`, 1)
	for _, server := range []string{"engine-0:80", "engine-2:80"} {
		s.want(t, `llm_engine_models_loaded{server="`+server+`",model_name="a"}`, 1)
		if len(s.get(t, `llm_engine_generation_tokens_total{server="`+server+`",model_name="a"}`)) != 1 {
			t.Errorf("%s: no tokens of a", server)
		}
		s.want(t, `llm_engine_generation_tokens_total{server="`+server+`",model_name!="a"}`)
	}
	// Asking who sleeps loads nothing, either.
	for _, o := range c.Offers() {
		c.Look(t.Context(), o)
	}
	if r.loads > 0 {
		t.Error("a look loads a model")
	}
	// What has loaded in the meantime is shown, under its own name.
	r.mu.Lock()
	r.models["b"], r.most = "loaded", 2
	r.mu.Unlock()
	s = parse(t, exposition(t, c))
	s.want(t, `llm_engine_models_loaded{server="engine-2:80"}`, 1, 1)
	s.want(t, `llm_engine_up{server="engine-1:80",reason=""}`, 1)
	if got := s.get(t, `llm_engine_generation_tokens_total{server="engine-2:80",model_name="b"}`); len(got) != 1 {
		t.Errorf("b has loaded: %v", got)
	}
}

// TestSleepingLlamaCpp checks that a sleeping server is not woken, and that its counts stay.
func TestSleepingLlamaCpp(t *testing.T) {
	r := &llamaRouter{
		models: map[string]string{"a": "loaded", "b": "unloaded", "c": "unloaded"}, most: 1,
		page: readPage(t, "llamacpp/b10450-loaded.prom"),
	}
	server := httptest.NewServer(r)
	defer server.Close()
	c := collectorFor(t, []TargetConfig{{URL: server.URL + "/metrics?model=a"}})
	awake := parse(t, exposition(t, c))
	awake.want(t, `llm_engine_sleeping`, 0)
	r.mu.Lock()
	r.models["a"] = "sleeping"
	r.mu.Unlock()
	for range 3 {
		s := parse(t, exposition(t, c))
		s.want(t, `llm_engine_up{reason=""}`, 1)
		s.want(t, `llm_engine_sleeping{model_name="a"}`, 1)
		s.want(t, `llm_engine_requests_running`, 0)
		s.want(t, `llm_engine_generation_tokens_total{model_name="a"}`, awake.get(t, `llm_engine_generation_tokens_total`)...)
	}
	s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: server.URL + "/metrics?model=a"}})))
	s.want(t, `llm_engine_sleeping{model_name="a"}`, 1) // an exporter that never saw the server awake
	if r.wakes > 0 {
		t.Errorf("%d wakes", r.wakes)
	}
}

// TestNoNameFromAListOfSeveral checks that no name is taken if a metrics page names no model and the server lists
// several.
func TestNoNameFromAListOfSeveral(t *testing.T) {
	for list, want := range map[string]string{
		`{"data":[{"id":"base","owned_by":"x"}]}`:                                             "base",
		`{"data":[{"id":"base","owned_by":"x"},{"id":"adapter","parent":"base"}]}`:            "base",
		`{"data":[{"id":"a","owned_by":"x"},{"id":"b","owned_by":"x"}]}`:                      "",
		`{"data":[{"id":"other","owned_by":"x"},{"id":"adapter","owned_by":"x"},{"id":"z"}]}`: "",
	} {
		var id Identity
		if err := id.askModels(t.Context(), func(_ context.Context, _ string, into any) error {
			return json.Unmarshal([]byte(list),
				into)
		}); err != nil || id.Model != want {
			t.Errorf("%s: %q, want %q: %v", list, id.Model, want, err)
		}
	}
	e := serve(t, readPage(t, "llamacpp/b10450-loaded.prom"))
	e.documents["/v1/models"] = `{"data":[{"id":"a"},{"id":"b"}]}`
	s := parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL}})))
	s.want(t, `llm_engine_requests_running{model_name!=""}`)
	s = parse(t, exposition(t, collectorFor(t, []TargetConfig{{URL: e.URL + "/metrics?model=b"}})))
	s.want(t, `llm_engine_requests_running{model_name!="b"}`)
	if len(s.get(t, `llm_engine_requests_running{model_name="b"}`)) != 1 {
		t.Error("the address names the model, the page does not")
	}
}

// TestRealRouter scrapes llama.cpp's own router a thousand times. LLAMA_SERVER or PATH leads to the program, and
// LLAMA_MODELS names a folder with at least two files of weights.
func TestRealRouter(t *testing.T) {
	program, folder := os.Getenv("LLAMA_SERVER"), os.Getenv("LLAMA_MODELS")
	if program == "" {
		program, _ = exec.LookPath("llama-server")
	}
	files, _ := filepath.Glob(filepath.Join(folder, "*.gguf"))
	if program == "" || folder == "" || len(files) < 2 {
		t.Skip("no llama-server, or LLAMA_MODELS is not set")
	}
	slices.Sort(files)
	first, second := strings.TrimSuffix(filepath.Base(files[0]), ".gguf"), strings.TrimSuffix(filepath.Base(files[1]), ".gguf")
	host, port, err := net.SplitHostPort(e2e.Address(t))
	if err != nil {
		t.Fatal(err)
	}
	url := "http://" + net.JoinHostPort(host, port)
	e2e.Start(t, program, "--models-dir", folder, "--models-max", "1", "--metrics", "--host", host, "--port", port, "-c", "256",
		"--sleep-idle-seconds", "10")
	e2e.Answers(t, url+"/health")
	resp, err := http.Get(url + "/metrics?model=" + first) // this loads it
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		t.Fatal(resp.Status)
	}
	c := collectorWith(t, Config{Log: discard, Targets: []TargetConfig{
		{URL: url + "/metrics?model=" + first}, {URL: url + "/metrics?model=" + second}, {URL: url},
	}})
	slept := false
	for range 334 {
		s := parse(t, exposition(t, c))
		s.want(t, `llm_engine_up{server="engine-0:80",reason=""}`, 1)
		s.want(t, `llm_engine_up{server="engine-1:80",reason="not_loaded"}`, 1)
		s.want(t, `llm_engine_models_loaded{server="engine-2:80"}`, 1)
		slept = slept || slices.Contains(s.get(t, `llm_engine_sleeping{server="engine-2:80"}`), 1)
		if t.Failed() {
			return
		}
	}
	for range 300 { // the model goes to sleep although its metrics are read
		if slept {
			return
		}
		s := parse(t, exposition(t, c))
		slept = slices.Contains(s.get(t, `llm_engine_sleeping{server="engine-2:80"}`), 1)
		time.Sleep(100 * time.Millisecond)
	}
	t.Error("its idle timer never ran out")
}
