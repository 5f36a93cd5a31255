package main

import (
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

// text is the condition that the web page shows a text.
func text(s string) string { return fmt.Sprintf("document.body.innerText.includes(%q)", s) }

// openNode opens the node page, and waits until it has polled.
func openNode(t *testing.T, url string, args ...string) *e2e.Browser {
	t.Helper()
	b := e2e.NewBrowser(t, args...)
	b.View(1280, 800, "")
	b.Open(url)
	b.Until("the first poll", text("the page polls"))
	return b
}

// serving is an engine like vLLM whose metrics a test changes. While the metrics are empty, the engine answers 500.
func serving(t *testing.T) (page *atomic.Pointer[string], url string) {
	page = &atomic.Pointer[string]{}
	page.Store(new(string))
	e := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path != "/metrics":
			http.NotFound(w, r)
		case *page.Load() == "":
			http.Error(w, "dying", http.StatusInternalServerError)
		default:
			io.WriteString(w, *page.Load())
		}
	}))
	t.Cleanup(e.Close)
	return page, e.URL
}

// busy returns vLLM's metrics of a model after this many requests. Slow requests took 20 s to the first token, the
// others up to 0.1 s.
func busy(model string, running, waiting int, kv float64, requests, slow int) *string {
	l := fmt.Sprintf(`engine="0",model_name="%s"`, model)
	s := fmt.Sprintf("# TYPE vllm:num_requests_running gauge\nvllm:num_requests_running{%[1]s} %[2]d\n# TYPE vllm:num_requests_waiting "+
		"gauge\nvllm:num_requests_waiting{%[1]s} %[3]d\n"+
		"# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{%[1]s} %[4]g\n# TYPE vllm:time_to_first_token_seconds histogram\n",
		l, running, waiting, kv)
	for _, bound := range []string{"0.1", "0.25", "0.5", "1.0", "2.5", "5.0", "7.5", "10.0", "20.0", "+Inf"} {
		n := requests - slow
		if bound == "20.0" || bound == "+Inf" {
			n = requests
		}
		s += fmt.Sprintf("vllm:time_to_first_token_seconds_bucket{%s,le=\"%s\"} %d\n", l, bound, n)
	}
	s += fmt.Sprintf("vllm:time_to_first_token_seconds_count{%[1]s} %[2]d\nvllm:time_to_first_token_seconds_sum{%[1]s} %[2]d\n", l, requests)
	return &s
}

// TestNodePage follows an engine through a night. The engine does not answer, works, and becomes slow. Then the
// exporter stops, too.
func TestNodePage(t *testing.T) {
	t.Parallel()
	page, url := serving(t)
	e := start(t, "--engine.target="+url)
	b := openNode(t, e.url)
	for _, want := range []string{"1 thing is wrong", "not read: http_500", "shows the server's message", "No GPU is read."} {
		b.Until(want, text(want))
	}
	page.Store(busy("m", 3, 0, 0.5, 100, 50)) // the engine was slow before the page was opened
	for _, want := range []string{"Nothing stands out.", "50 %", "no requests yet"} {
		b.Until(want, text(want))
	}
	b.Until("nothing lately", text("none lately"))
	// 50 of 100 new requests are bad. 95 of 100 were faster than 19 s: 10 + (20-10)*(95-50)/50.
	page.Store(busy("m", 4, 7, 0.95, 200, 100))
	for _, want := range []string{
		"19 s", "KV cache full while requests wait", "50 % (50 of 100)",
		"50x: at the present rate, a full budget of 30 d is gone in 14 h", "since this page was opened", "burns its budget 50x too fast",
	} {
		b.Until(want, text(want))
	}
	b.Until("a runbook for the model", `document.querySelector('#problems a[href="runbooks/LLMErrorBudgetFastBurn?model_name=m&slo=ttft"]')`)
	// The present burn differs from an earlier one.
	b.Eval(`for (const s of spent) s.t -= 300e3; 1`)
	page.Store(busy("m", 4, 7, 0.95, 300, 200))
	for _, want := range []string{"75 % (150 of 200)", "75x: at the present rate, a full budget of 30 d is gone in 7 h"} {
		b.Until(want, text(want))
	}
	// A few bad events after good ones are a burn that has just begun.
	b.Eval(`for (const s of spent) s.t -= 300e3; 1`)
	page.Store(busy("m", 4, 7, 0.95, 400, 200))
	b.Until("good events", text("50 % (150 of 300)"))
	b.Eval(`for (const s of spent) s.t -= 100e3; 1`)
	page.Store(busy("m", 4, 7, 0.95, 404, 204))
	b.Until("few bad events", text("51x: at the present rate, a full budget of 30 d is gone in 7 h"))
	if drawn := b.Eval(`[...document.querySelectorAll(".spark path")].filter(p => p.getAttribute("d").includes("L")).length`); drawn == "0" {
		t.Error("nothing is drawn of what was polled")
	}
	if len(b.Complaints) > 0 {
		t.Errorf("the browser complains: %s", b.Complaints)
	}
	b.Eval(`fetch = () => Promise.reject(new Error("gone")); 1`)
	b.Until("it says that it is stale", text("The exporter does not answer; all below is from"))
}

// TestNodePageNoWorker checks that the node page does not call a frontend without a worker unread if its metrics
// are read.
func TestNodePageNoWorker(t *testing.T) {
	t.Parallel()
	b := openNode(t, start(t, "--engine.target="+servePage(t, "dynamo/frontend-v1.6.0-allkilled.prom")).url)
	for _, want := range []string{"no worker behind it: no_worker", "Check the workers"} {
		b.Until(want, text(want))
	}
	if b.Eval(`document.body.innerText.includes("not read: no_worker")`) == "true" {
		t.Error("it is called unread")
	}
}

// TestNodePageVerdict checks that, with a suspect, the node page begins with where to look first, why, and what to do.
func TestNodePageVerdict(t *testing.T) {
	t.Parallel()
	page, url := serving(t)
	page.Store(busy("m", 3, 7, 0.95, 100, 50))
	b := openNode(t, start(t, "--engine.target="+url).url)
	b.Until("the first suspect",
		`document.querySelector("#problems li").innerText.startsWith("Look first at: memory. The KV cache is 95% full and requests wait for room. Do first, at once: ")`)
	b.Until("its evidence", text("Waiting 7"))
	b.Until("its runbook, with its commands filled in",
		`document.querySelector("#problems li a").getAttribute("href").startsWith("runbooks/BranchKVPressure?model_name=m&server=")`)
	page.Store(busy("m", 3, 0, 0.5, 100, 50))
	b.Until("it goes with its reason", text("Nothing stands out."))
	if shown := b.Eval(`document.querySelectorAll("#problems li").length`); shown != "0" {
		t.Errorf("%s lines are left", shown)
	}
	if len(b.Complaints) > 0 {
		t.Errorf("the browser complains: %s", b.Complaints)
	}
}

// TestNodePagePolls checks that the node page polls no faster than its interval, however often it is hidden.
func TestNodePagePolls(t *testing.T) {
	t.Parallel()
	var scrapes atomic.Int32
	engine := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		scrapes.Add(1)
		io.WriteString(w, *busy("m", 1, 0, 0, 1, 0))
	}))
	defer engine.Close()
	b := openNode(t, start(t, "--engine.target="+engine.URL).url)
	before := scrapes.Load()
	b.Eval(`for (let i = 0; i < 50; i++) document.dispatchEvent(new Event("visibilitychange")); 1`)
	b.Eval(`Object.defineProperty(document, "hidden", {value: true, configurable: true}); document.dispatchEvent(new Event("visibilitychange")); 1`)
	time.Sleep(7 * time.Second)
	if n := scrapes.Load() - before; n > 0 {
		t.Errorf("%d scrapes while hidden", n)
	}
	b.Eval(`delete document.hidden; document.dispatchEvent(new Event("visibilitychange")); 1`)
	b.Until("it goes on", `document.querySelector(".spark path").getAttribute("d").includes("L")`)
}

// TestNodePageHostile checks that an engine's own names are text, in the node page and in links.
func TestNodePageHostile(t *testing.T) {
	t.Parallel()
	page, url := serving(t)
	const evil = `<img src=x onerror=alert(1)>\" } 7 \\ 'x`
	page.Store(busy(evil, 3, 1, 0.95, 100, 0))
	b := openNode(t, start(t, "--engine.target="+url).url)
	b.Until("the name as it stands", text(`<img src=x onerror=alert(1)>" } 7 \ 'x`))
	if n := b.Eval(`document.querySelectorAll("img").length`); n != "0" {
		t.Errorf("%s images", n)
	}
	if len(b.Complaints) > 0 {
		t.Errorf("the browser complains: %s", b.Complaints)
	}
	// The policy refuses unsafe code even if a later change of the script forgets to avoid it.
	if got := b.Eval(`(() => { try { document.body.innerHTML = "<b>x</b>"; return "taken" } catch (e) { return e.name } })()`); got != "TypeError" {
		t.Errorf("innerHTML is %s", got)
	}
}

// TestNodePageModels checks that each model of an engine has its own numbers, and that only the overloaded one is marked.
func TestNodePageModels(t *testing.T) {
	t.Parallel()
	page, url := serving(t)
	both := *busy("calm", 3, 0, 0.2, 100, 0)
	for line := range strings.Lines(*busy("pressed", 40, 7, 0.95, 100, 0)) {
		if !strings.HasPrefix(line, "#") {
			both += line
		}
	}
	page.Store(grouped(both))
	b := openNode(t, start(t, "--engine.target="+url).url)
	b.Until("two models on one card",
		`document.querySelectorAll("#engines .card").length === 1 && document.querySelectorAll("#engines h4:not([hidden])").length === 2`)
	b.Until("the numbers of each", `["calm 3 0 20 %", "pressed 40 7 95 %"].every((want, i) => {
		const [name, ...values] = document.querySelectorAll("#engines .card > div:has(h4)")[i].querySelectorAll("h4, dd > span");
		return [name, ...values.slice(0, 3)].map(e => e.textContent).join(" ") === want;
	})`)
	b.Until("the runbook for one of them",
		`document.querySelector('#problems a[href^="runbooks/BranchKVPressure?"]').href.includes("model_name=pressed")`)
	fits(t, b)
	page.Store(busy("calm", 5, 0, 0.2, 100, 0))
	b.Until("one is unloaded", `document.querySelectorAll("#engines h4").length === 1 && document.querySelector("#engines h4").hidden`)
	b.Until("the other goes on", `document.querySelector("#engines .spark path").getAttribute("d").includes("L")`)
	page.Store(new(string))
	b.Until("its numbers stay in place while it is down", text("not read: http_500"))
	if n := b.Eval(`document.querySelectorAll("#engines .numbers").length`); n != "1" {
		t.Errorf("%s lists of numbers", n)
	}
}

// grouped returns a metrics page with all series of a family together.
func grouped(page string) *string {
	families, order := map[string]string{}, []string{}
	for line := range strings.Lines(page) {
		name := strings.Fields(strings.NewReplacer("# TYPE ", "", "{", " ", "_bucket{", " ", "_sum{", " ", "_count{", " ").Replace(line))[0]
		if _, seen := families[name]; !seen {
			order = append(order, name)
		}
		families[name] += line
	}
	all := ""
	for _, name := range order {
		all += families[name]
	}
	return &all
}

// TestNodePageHour checks that polled data are kept for an hour, and no longer.
func TestNodePageHour(t *testing.T) {
	t.Parallel()
	page, url := serving(t)
	page.Store(busy("m", 3, 0, 0.5, 100, 0))
	b := openNode(t, start(t, "--engine.target="+url).url)
	const kept = `[...document.querySelectorAll(".spark path")][0].getAttribute("d").match(/[ML][\d.]+/g).map(p => Number(p.slice(1)))`
	b.Until("two points", kept+`.length > 1`)
	b.Eval(`now = Date.now; Date.now = () => now() + 50 * 60e3; 1`)
	b.Until("a gap of fifty minutes", `(points => points[0] < 1 && points.at(-1) > 99)(`+kept+`)`)
	b.Eval(`Date.now = () => now() + 100 * 60e3; 1`)
	b.Until("half of it", `(points => points[0] > 10 && points.at(-1) > 99)(`+kept+`)`)
	b.Until("in words", text("the last 60 min"))
	b.Eval(`Date.now = () => now() + 200 * 60e3; 1`)
	b.Until("none of it", kept+`.every(x => x > 99)`)
}

// TestNodePageKeyboard checks that everything can be reached by keyboard alone, that the focus is visible, that Enter
// follows a link, and that a poll that rewrites the list of problems keeps the focus.
func TestNodePageKeyboard(t *testing.T) {
	t.Parallel()
	page, url := serving(t)
	page.Store(busy("m", 3, 9, 0.95, 100, 0))
	file := filepath.Join(t.TempDir(), "exporter.yml")
	if err := os.WriteFile(file, []byte("targets: [{url: "+url+", gpus: ['0', '1']}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startOnGPUs(t, 2, nil, "--config.file="+file, "--discovery=none")
	n.until(t, `llm_engine_gpu_info{`)
	b := openNode(t, n.url)
	b.Until("links to the GPUs", `document.querySelectorAll('a[href^="#gpu-"]').length === 2 && document.querySelector("#problems a")`)
	b.Eval(`controls = [...document.querySelectorAll("a[href], button, input, select, summary, [tabindex='0']")].filter(e => e.checkVisibility()); reached = new Set(); 1`)
	const here = `(e => e.textContent.trim() || e.getAttribute("aria-label") || e.tagName)(document.activeElement)`
	tabTo := func(what, condition string) {
		t.Helper()
		for range 100 {
			b.Press("Tab")
			if b.Eval(`reached.add(document.activeElement); Boolean(`+condition+`)`) == "true" {
				return
			}
			if b.Eval(`document.activeElement === document.body || getComputedStyle(document.activeElement).outlineStyle === "solid" && parseFloat(getComputedStyle(document.activeElement).outlineWidth) >= 2`) != "true" {
				t.Errorf("one does not see that the focus is on %s", b.Eval(here))
			}
		}
		t.Fatalf("Tab does not reach %s", what)
	}
	tabTo("everything", `controls.every(e => reached.has(e))`)
	tabTo("a GPU", `document.activeElement.getAttribute("href")?.startsWith("#gpu-")`)
	b.Eval(`wanted1 = document.activeElement.getAttribute("href").slice(1); 1`)
	b.Press("Enter")
	b.Until("the focus is on the GPU",
		`document.activeElement.id === wanted1 && getComputedStyle(document.activeElement).outlineStyle === "solid"`)
	tabTo("the runbook", `document.activeElement.getAttribute("href")?.startsWith("runbooks/BranchKVPressure")`)
	if err := n.Lose(1); err != nil {
		t.Fatal(err)
	}
	b.Until("another problem", text("does not answer: "))
	b.Until("the place is kept", `document.activeElement.getAttribute("href")?.startsWith("runbooks/BranchKVPressure")`)
	b.Press("Enter")
	b.Until("the runbook", `location.pathname === "/runbooks/BranchKVPressure"`)
}

// fits fails the test if the node page scrolls sideways on a phone or a large screen.
func fits(t *testing.T, b *e2e.Browser) {
	t.Helper()
	for _, width := range []int{360, 1280} {
		b.View(width, 740, "")
		if wide := b.Eval(`document.documentElement.scrollWidth - document.documentElement.clientWidth`); wide != "0" {
			t.Errorf("at %d pixels the page is %s pixels too wide", width, wide)
		}
	}
}

// TestNodePageSizes checks the node page with nothing, with much, and on a phone.
func TestNodePageSizes(t *testing.T) {
	t.Parallel()
	b := openNode(t, start(t).url)
	for _, want := range []string{"No engine and no GPU is read.", "none is configured", "No engine has reported"} {
		b.Until(want, text(want))
	}
	var args []string
	for i := range 50 {
		page, url := serving(t)
		page.Store(busy(fmt.Sprintf("organisation/a-model-with-a-long-name-%d", i), i, i, 0.5, 100, 0))
		args = append(args, "--engine.target="+url)
	}
	b.Open(start(t, args...).url)
	b.Until("50 engines", `document.querySelectorAll("#engines .card").length === 50`)
	fits(t, b)
	if took := b.Eval(`(() => { const start = performance.now(); connect(); return performance.now() - start < 500 })()`); took != "true" {
		t.Error("lines take half a second")
	}
}

// TestNodePageProtected checks that, over TLS, the node page polls with the user and password with which it was opened.
func TestNodePageProtected(t *testing.T) {
	t.Parallel()
	dir, server := t.TempDir(), httptest.NewTLSServer(nil)
	defer server.Close()
	key, err := x509.MarshalPKCS8PrivateKey(server.TLS.Certificates[0].PrivateKey)
	if err != nil {
		t.Fatal(err)
	}
	for name, content := range map[string][]byte{
		"cert.pem": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}),
		"key.pem":  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: key}),
		"web.yml":  []byte("tls_server_config: {cert_file: cert.pem, key_file: key.pem}\n" + passwords),
	} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	e := start(t, "--web.config.file="+filepath.Join(dir, "web.yml"), "--web.telemetry-path=/deep/metrics")
	openNode(t, strings.Replace(e.url, "http://", "https://prometheus:secret@", 1), "--ignore-certificate-errors").
		Until("it is read", text("No engine and no GPU is read."))
}

// TestNodePageGPUs checks that engines are joined to their GPUs, and that heat, an XID and a lost GPU are prominent.
func TestNodePageGPUs(t *testing.T) {
	t.Parallel()
	page, url := serving(t)
	page.Store(busy("m", 3, 0, 0.5, 100, 0))
	file := filepath.Join(t.TempDir(), "exporter.yml")
	if err := os.WriteFile(file, []byte("targets: [{url: "+url+", gpus: ['0', '1']}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startOnGPUs(t, 3, nil, "--config.file="+file, "--discovery=none")
	n.until(t, `llm_engine_gpu_info{`)
	b := openNode(t, n.url)
	b.Until("two lines", `document.querySelectorAll("#lines path").length === 2`)
	b.Until("the join in words", text("runs on GPU 0, GPU 1"))
	b.Until("all is well", text("Nothing stands out."))
	if err := n.Lose(1); err != nil {
		t.Fatal(err)
	}
	if err := n.Set("0", "clock_events", 0x48); err != nil { // hw_slowdown, hw_thermal_slowdown
		t.Fatal(err)
	}
	b.Until("the lost GPU", text("does not answer: "))
	b.Until("the hot GPU", text("too hot: slowed down by its hardware"))
	b.Until("a loud line", `document.querySelector("#lines path.loud")`)
	fits(t, b)
}

// TestNodePageProbes checks that synthetic requests and their outcomes are shown if there are any.
func TestNodePageProbes(t *testing.T) {
	t.Parallel()
	engine := httptest.NewServer(http.NotFoundHandler())
	defer engine.Close()
	b := openNode(t, start(t, "--probe.target="+engine.URL, "--probe.model=m", "--probe.interval=10s").url)
	b.Until("how they ended", text("http 4xx"))
}

// TestRunbooksAreUsedByClicks checks that one click copies a block of code or opens a query, and that the policy of the
// web page lets its script run.
func TestRunbooksAreUsedByClicks(t *testing.T) {
	e := start(t, "--web.runbook-query-url=https://p.example/graph?g0.expr={query}")
	b := e2e.NewBrowser(t)
	b.View(1280, 800, "")
	b.Open(e.url + "/runbooks/LLMEngineDown?namespace=prod&pod=chat-0&server=a:8000")
	b.Until("a button for each block",
		`document.querySelectorAll("pre").length > 3 && document.querySelectorAll("pre + button").length == document.querySelectorAll("pre").length`)
	b.Eval(`navigator.clipboard.writeText = async text => { window.copied = text }; document.querySelector("pre + button").click()`)
	b.Until("the first block is copied",
		`document.querySelector("pre + button").textContent == "Copied" && window.copied == document.querySelector("pre").textContent`)
	if href := b.Eval(`document.querySelector(".open a").href`); !strings.HasPrefix(href, "https://p.example/graph?g0.expr=") {
		t.Errorf("the first query opens at %v", href)
	}
}

// TestNodePageAccessible checks the exporter's web pages with axe-core, in light and dark colours, on a screen and on a
// phone.
func TestNodePageAccessible(t *testing.T) {
	file := os.Getenv("AXE")
	if file == "" {
		t.Skip("AXE names no axe.min.js")
	}
	axe, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	page, engine := serving(t)
	page.Store(busy("m", 3, 9, 0.95, 100, 0))
	e := askingExporter(t, &pretended{says: func(w http.ResponseWriter, _ url.Values) { vector(w, 3) }}, "--engine.target="+engine,
		"--engine.target=http://127.0.0.1:1")
	b := openNode(t, e.url)
	for _, path := range []string{
		"/", "/engines", "/runbooks/", "/runbooks/LLMGPUFailed",
		"/runbooks/LLMErrorBudgetFastBurn?model_name=m&slo=ttft",
	} {
		for _, scheme := range []string{"light", "dark"} {
			for _, width := range []int{1280, 360} {
				b.View(width, 740, "", "prefers-color-scheme", scheme)
				b.Open(e.url + path)
				if path == "/" {
					b.Until("the first poll", text("the page polls"))
				}
				b.Until("answers", `![...document.querySelectorAll(".answer p")].some(p => p.textContent == "Asking …")`)
				b.Eval(string(axe) + ";1")
				var found []struct {
					ID, Help string
					Nodes    []struct{ HTML, FailureSummary string }
				}
				answer := b.Eval(`axe.run().then(r => JSON.stringify(r.violations))`)
				if err := json.Unmarshal([]byte(answer), &found); err != nil {
					t.Fatal(err)
				}
				for _, f := range found {
					t.Errorf("%s %s %d: %s: %s: %+v", path, scheme, width, f.ID, f.Help, f.Nodes)
				}
			}
		}
	}
}

// TestNodePagePictures takes pictures of a running exporter's node page for people to judge; docs/node.png is one of
// them.
func TestNodePagePictures(t *testing.T) {
	url, dir := os.Getenv("NODE"), os.Getenv("PICTURES")
	if url == "" || dir == "" {
		t.Skip("NODE names no exporter, or PICTURES no folder")
	}
	b := openNode(t, url)
	wait, err := time.ParseDuration(os.Getenv("WAIT"))
	if err == nil {
		time.Sleep(wait)
	}
	for _, p := range []struct {
		name          string
		width, height int
		media, scheme string
		full          bool
	}{
		{"node", 1280, 600, "", "light", false},
		{"light", 1280, 800, "", "light", true},
		{"dark", 1280, 800, "", "dark", true},
		{"phone", 360, 740, "", "light", true},
		{"phone-dark", 360, 740, "", "dark", false},
		{"print", 794, 1123, "print", "light", true},
	} {
		b.View(p.width, p.height, p.media, "prefers-color-scheme", p.scheme)
		time.Sleep(300 * time.Millisecond)
		if err := os.WriteFile(filepath.Join(dir, p.name+".png"), b.Screenshot(p.full), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
