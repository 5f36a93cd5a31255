package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const own = "github.com/llm-node-exporter/llm-node-exporter/"

// house is the import table: each package of this module, its imports from this module, and the reason why it needs
// no more. Tests may import more.
var house = []struct{ of, imports, why string }{
	{"metrics", "", "the vocabulary: everybody says its names, so it knows nobody"},
	{"slo", "metrics", "objectives speak of metrics, and of nothing that measures them"},
	{"slo/openslo", "metrics slo", "another way to write objectives"},
	{"capacity", "", "arithmetic on numbers that its caller has: it runs in the node and on a laptop"},

	{"collectors/scrape", "", "strangers write what it reads: it can be read and fuzzed alone, and serves engines and GPUs alike"},
	{
		"collectors/engine", "capacity collectors/scrape internal/configfile internal/httpclient metrics slo",
		"an engine needs no GPU to be read",
	},
	{"collectors/gpu", "metrics", "a GPU needs no engine to be read, and NVML no network"},
	{
		"collectors/gpu/page", "collectors/gpu collectors/scrape internal/httpclient metrics",
		"never collectors/engine: a DCGM page is no engine's, and no dialect repairs it",
	},
	{"collectors/health", "metrics", "a verdict is made of series, whoever measured them"},
	{"collectors/genai", "metrics", "it renames what stands on our page"},
	{
		"collectors/ownership", "collectors/gpu internal/kube internal/proc metrics",
		"processes and pods on GPUs; which of them are engines is no concern of it",
	},
	{"collectors/discovery", "collectors/engine collectors/gpu internal/kube internal/proc metrics", "it finds engines by reading them"},
	{
		"collectors/probe", "collectors/engine collectors/scrape internal/httpclient metrics slo",
		"it asks what the engines offer, and counts beside them",
	},

	{"act", "collectors/health metrics", "it writes the verdicts, and makes none"},
	{
		"doctor", "collectors/engine collectors/gpu collectors/gpu/page internal/kube internal/promql metrics slo",
		"it explains what the collectors lack; rules are Prometheus' concern",
	},
	{"runbooks", "internal/site", "text"},
	{"rules", "internal/promql metrics runbooks slo", "rules read series, whoever writes them: never collectors"},
	{"triage", "internal/promql metrics rules runbooks slo", "the rules themselves over two readings: never collectors"},
	{"dashboards", "internal/promql metrics rules runbooks slo", "panels read what is exported or recorded: never collectors"},
	{"release", "internal/promql metrics rules", "it asks a Prometheus by the rules' expressions"},
	{
		"backtest", "collectors/engine internal/promapi internal/rulesim internal/site metrics rules slo",
		"stored pages are read by the dialects, and judged by the rules",
	},
	{
		"migrate", "collectors/engine collectors/gpu/page collectors/scrape internal/promql metrics",
		"other exporters' names are translated by the collectors' tables",
	},
	{"jsonnet-free-gen", "backtest collectors/engine collectors/health dashboards internal/promapi internal/promql metrics rules " +
		"runbooks slo slo/openslo", "it writes files from every table; the node never links it"},

	{"cmd/exporter/page", "internal/site slo", "it draws what it is given"},
	{"cmd/exporter", "act cmd/exporter/page collectors/discovery collectors/engine collectors/genai collectors/gpu collectors/gpu/page " +
		"collectors/health collectors/ownership" +
		" collectors/probe collectors/scrape doctor examples internal/configfile internal/httpclient internal/kube internal/promql " +
		"internal/site metrics migrate release rules runbooks slo triage", "only a command knows everybody"},

	{"drill", "metrics", "simulated engines write their own pages: they use no table of ours"},
	{"drill/world", "collectors/probe drill internal/fakenvml metrics slo", "a node in virtual time; nothing that judges it"},
	{"drill/incident", "drill drill/world metrics rules slo", "what happens, and which alerts must say so"},
	{"drill/play", "collectors/engine collectors/gpu/page collectors/health collectors/probe drill/incident drill/world internal/rulesim " +
		"metrics rules triage", "the real collectors and the real rules"},
	{"drill/draw", "drill drill/incident drill/play drill/world metrics rules", "incidents by chance"},
	{"drill/score", "drill/draw drill/incident drill/play metrics rules triage", "it judges plays, and changes none"},
	{"drill/report", "drill/incident drill/play drill/score metrics rules slo", "tables and plots of scores"},
	{"drill/transcript", "drill/incident drill/play metrics rules runbooks", "what a person on call sees"},
	{"drill/live", "dashboards drill/incident drill/play drill/world internal/fakenvml internal/rulesim internal/site metrics rules " +
		"runbooks slo", "the demo: built programs around a simulated node"},
	{"cmd/drill", "drill/draw drill/incident drill/live drill/play drill/report drill/score drill/transcript drill/world " +
		"internal/rulesim metrics rules slo", "the commands"},
	{"real", "internal/rulesim metrics rules slo triage", "real engines behind the built exporter: it links no collector"},

	{"examples", "", "generated files, some of which the exporter hands out"},
	{"internal/configfile", "", "errors with a line"},
	{"internal/fakenvml", "", "a driver for tests, drills and the demo"},
	{"internal/httpclient", "internal/configfile", "clients whose secrets come from files"},
	{"internal/kube", "", "the cluster, and the kubelet"},
	{"internal/proc", "", "procfs"},
	{"internal/promapi", "internal/httpclient", "questions to a Prometheus"},
	{"internal/promql", "metrics", "expressions from the vocabulary's identifiers"},
	{"internal/rulesim", "", "any rules over simulated time, not only ours"},
	{"internal/site", "", "the frame of every page for people"},
}

// TestImports checks the whole import table, in both directions, and that the node's process does not link
// forbidden packages.
func TestImports(t *testing.T) {
	out, err := exec.Command("go", "list", "-f", `{{.ImportPath}}{{range .Imports}} {{.}}{{end}}`, "../../...").CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	found := map[string][]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Fields(strings.ReplaceAll(line, own, "./"))
		of := strings.TrimPrefix(f[0], "./")
		for _, i := range f[1:] {
			if ours, ok := strings.CutPrefix(i, "./"); ok {
				found[of] = append(found[of], ours)
			}
		}
		if _, listed := found[of]; !listed {
			found[of] = nil
		}
	}
	reach := map[string][]string{}
	for _, row := range house {
		want := strings.Fields(row.imports)
		got, there := found[row.of]
		delete(found, row.of)
		for _, i := range got {
			if !slices.Contains(want, i) {
				t.Errorf("%s imports %s. It should not: %s. If it must, write why into cmd/exporter/imports_test.go", row.of, i, row.why)
			}
		}
		for _, i := range want {
			if !slices.Contains(got, i) {
				t.Errorf("%s no longer imports %s: take it off its line in cmd/exporter/imports_test.go", row.of, i)
			}
			reach[row.of] = append(append(reach[row.of], i), reach[i]...)
		}
		if !there || row.why == "" {
			t.Errorf("%s: no such package, or no reason beside it in cmd/exporter/imports_test.go", row.of)
		}
	}
	for of := range found {
		if !testOnly(of) {
			t.Errorf("%s has no line in cmd/exporter/imports_test.go: write what it imports, and why no more", of)
		}
	}
	for _, of := range []string{"rules", "dashboards", "triage", "runbooks", "release"} {
		for _, i := range reach[of] {
			if strings.HasPrefix(i, "collectors/") {
				t.Errorf("%s reaches %s: what both need belongs into metrics, slo or capacity", of, i)
			}
		}
	}
	linkedWithout(t)
}

// testOnly reports whether only tests link a package of this module.
func testOnly(of string) bool {
	return slices.Contains([]string{"helm", "internal/e2e", "internal/e2e/kube", "internal/golden"}, of)
}

// linkedWithout checks that the node's process does not link forbidden packages, through any other package.
func linkedWithout(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	linked := strings.Fields(string(out))
	const prometheus = "github.com/prometheus/prometheus/"
	if !slices.Contains(linked, prometheus+"model/textparse") || !slices.Contains(linked, own+"collectors/scrape") {
		t.Fatal("the list of dependencies is not what this test expects")
	}
	for pkg, why := range map[string]string{
		prometheus + "tsdb":           "the node process stores nothing: a verdict keeps two readings in memory while it is made",
		prometheus + "scrape":         "the node process links no Prometheus server",
		prometheus + "rules":          "rules reach Prometheus as generated files",
		prometheus + "discovery":      "the node process links no Prometheus server",
		own + "dashboards":            "generated files reach the node, generator code does not",
		own + "drill":                 "the simulator is not part of the product",
		"k8s.io/client-go/kubernetes": "discovery talks to the API server without the whole client",
		"google.golang.org/grpc":      "the kubelet's one call goes through net/http: the usual client takes 4 MiB of memory",
		"testing":                     "test code is not part of the product",
	} {
		if slices.Contains(linked, pkg) {
			t.Errorf("%s is linked: %s", pkg, why)
		}
	}
}

// TestFilesAreListed checks that the package comment lists each file of the package once.
func TestFilesAreListed(t *testing.T) {
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	files = slices.DeleteFunc(files, func(f string) bool { return strings.HasSuffix(f, "_test.go") })
	main, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	comment, _, _ := strings.Cut(string(main), "\npackage main")
	listed := regexp.MustCompile(`[a-z]+\.go`).FindAllString(comment, -1)
	slices.Sort(listed)
	if !slices.Equal(listed, files) {
		t.Errorf("the comment in main.go lists %v, and the folder has %v", listed, files)
	}
}
