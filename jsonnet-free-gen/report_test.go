package main

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// history holds the records of a Prometheus, in the text from which promtool makes blocks.
type history struct{ strings.Builder }

// series writes samples from one time to another, the end left out.
func (h *history) series(f *metrics.Family, labels string, from, to time.Time, step time.Duration, value func(at time.Time) float64) {
	for at := from; at.Before(to); at = at.Add(step) {
		fmt.Fprintf(h, "%s{%s} %g %d\n", f.Name, labels, value(at), at.Unix())
	}
}

// Nine days of October 2025 were recorded.
var (
	firstDay  = time.Date(2025, 10, 23, 0, 0, 0, 0, time.UTC)
	worstDay  = time.Date(2025, 10, 27, 0, 0, 0, 0, time.UTC)
	nextMonth = time.Date(2025, 11, 1, 0, 0, 0, 0, time.UTC)
)

// recorded starts a Prometheus with that history.
func recorded(t *testing.T) string {
	t.Helper()
	program, promtool := e2e.Program(t, "prometheus", "prometheus"), e2e.Program(t, "promtool", "prometheus")
	var h history
	always := func(v float64) func(time.Time) float64 { return func(time.Time) float64 { return v } }
	const minute = time.Minute
	// A record covers the five minutes before its time.
	for model, left := range map[string]float64{"spent": -0.5, "a|b": 0.2, "fine": 0.9} {
		labels := fmt.Sprintf(`namespace="prod",model_name=%q,slo="ttft",period="30d"`, model)
		h.series(metrics.RecordedPeriodEvents5m, labels, firstDay.Add(5*minute), nextMonth.Add(minute), 5*minute, always(100))
		h.series(metrics.RecordedPeriodBadEvents5m, labels, firstDay.Add(5*minute), nextMonth.Add(minute), 5*minute, func(at time.Time) float64 {
			if at.After(worstDay) && !at.After(worstDay.Add(day)) {
				return 10
			}
			return 1
		})
		h.series(metrics.RecordedBudgetRemaining, labels, firstDay.Add(5*minute), nextMonth.Add(minute), 5*minute, always(left))
		identity := strings.TrimSuffix(labels, `,period="30d"`)
		budget := ""
		for _, name := range metrics.RecordedErrorBudget.Labels {
			for pair := range strings.SplitSeq(identity, ",") {
				if strings.HasPrefix(pair, name+"=") {
					budget += pair + ","
				}
			}
		}
		if model == "fine" || len(budget) > len(`slo="ttft",`) { // one series in total, or one for each model
			h.series(metrics.RecordedErrorBudget, strings.TrimSuffix(budget, ","), firstDay, nextMonth, 5*minute, always(0.01))
		}
	}
	// Two pages: one paused for three minutes, the other came back after an hour. A ticket does not count as a page.
	alert := func(more string, from, to time.Duration) {
		h.series(metrics.Alerts, `alertname="LLMErrorBudgetFastBurn",alertstate="firing",namespace="prod",model_name="spent",slo="ttft",`+more,
			worstDay.Add(from), worstDay.Add(to), minute, always(1))
	}
	alert(`severity="critical"`, 12*time.Hour, 12*time.Hour+10*minute)
	alert(`severity="critical"`, 12*time.Hour+13*minute, 12*time.Hour+30*minute)
	alert(`severity="critical"`, 13*time.Hour+30*minute, 14*time.Hour)
	alert(`severity="warning"`, 18*time.Hour, 19*time.Hour)
	// Two hours of maintenance at an event a second.
	engine := `runtime="vllm",namespace="prod",model_name="fine",server="e:1",slo="ttft"`
	h.series(metrics.SLOEvents, engine+`,threshold="0.5"`, worstDay.Add(-day), worstDay, minute,
		func(at time.Time) float64 { return at.Sub(firstDay).Seconds() })
	h.series(metrics.SLOMaintenance, engine, worstDay.Add(-12*time.Hour), worstDay.Add(-10*time.Hour), minute, always(1))

	dir := t.TempDir()
	file := func(name, content string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	data := filepath.Join(dir, "data")
	blocks := exec.Command(promtool, "tsdb", "create-blocks-from", "openmetrics", "--quiet", file("history", h.String()+"# EOF\n"), data)
	if out, err := blocks.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	address := e2e.Address(t)
	e2e.Start(t, program, "--config.file="+file("prometheus.yml", "global: {}\n"), "--storage.tsdb.path="+data,
		"--storage.tsdb.retention.time=100y", "--web.listen-address="+address)
	e2e.Answers(t, "http://"+address+"/-/ready")
	return "http://" + address
}

// row returns the line of a report about a model, its columns trimmed.
func row(t *testing.T, markdown, model string) []string {
	t.Helper()
	for line := range strings.Lines(markdown) {
		if strings.Contains(line, model) {
			cells := strings.Split(strings.ReplaceAll(strings.Trim(line, "|\n "), `\|`, "\x00"), "|")
			for i := range cells {
				cells[i] = strings.ReplaceAll(strings.TrimSpace(cells[i]), "\x00", "|")
			}
			return cells
		}
	}
	t.Fatalf("nothing about %s:\n%s", model, markdown)
	return nil
}

// TestBadReportFlags checks that wrong flags are reported before any query.
func TestBadReportFlags(t *testing.T) {
	for want, flag := range map[string]string{
		"must be one of md":   "--format=pdf",
		"--slow-below":        "--slow-below=little",
		"--freeze-below":      "--freeze-below=little",
		"can be renamed":      "--label=model_name=model",
		"is not a label name": "--label=namespace=exported-namespace",
		"--severity needs":    "--severity=",
		"does not exist":      "--http-config=no such file",
		"write it as 2026-10": "--month=October",
		"--at":                "--at=noon",
	} {
		if err := reportBudgets([]string{"--prometheus=http://127.0.0.1:1", flag}, &strings.Builder{}); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", flag, err, want)
		}
	}
}

// TestReport queries a real Prometheus, through a proxy that requires a password.
func TestReport(t *testing.T) {
	backend := recorded(t)
	to, err := url.Parse(backend)
	if err != nil {
		t.Fatal(err)
	}
	proxy := httputil.NewSingleHostReverseProxy(to)
	guarded := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if user, password, _ := r.BasicAuth(); user != "sre" || password != "s3cret" {
			http.Error(w, "who are you?", http.StatusUnauthorized)
			return
		}
		proxy.ServeHTTP(w, r)
	}))
	defer guarded.Close()
	dir := t.TempDir()
	for name, content := range map[string]string{"password": "s3cret", "http.yml": "basic_auth: {username: sre, password_file: password}\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(args ...string) (string, error) {
		var out strings.Builder
		err := reportBudgets(append([]string{"--prometheus=" + guarded.URL, "--http-config=" + filepath.Join(dir, "http.yml")}, args...), &out)
		return out.String(), err
	}

	got, err := ask("--month=2025-10")
	if err != nil {
		t.Fatal(err)
	}
	// Nine days of 288 tiles of 100 events each; one event of each tile is bad, ten on the worst day.
	worst := "2025-10-27: 2880 bad, 10%"
	for model, want := range map[string][]string{
		"`spent`": {"`prod`", "`spent`", "`ttft`", "99%", "98%", "259200", "5184", "150%", "-50%", "**freeze**", worst, "2", "0", "9 of 31 days"},
		"`a\\|b`": {"`prod`", "`a|b`", "`ttft`", "99%", "98%", "259200", "5184", "80%", "20%", "slow down", worst, "0", "0", "9 of 31 days"},
	} {
		if cells := row(t, got, model); fmt.Sprint(cells) != fmt.Sprint(want) {
			t.Errorf("%s:\n%q, want\n%q", model, cells, want)
		}
	}
	fine := row(t, got, "`fine`")
	if fine[9] != "ship" {
		t.Errorf("a budget that is nearly whole: %s", fine[9])
	}
	var excluded float64
	if _, err := fmt.Sscan(fine[12], &excluded); err != nil || excluded < 0.9*7200 || excluded > 1.1*7200 {
		t.Errorf("%s events were left out, want about 7200", fine[12])
	}
	if strings.Index(got, "`spent`") > strings.Index(got, "`fine`") || !strings.Contains(got, "October 2025") {
		t.Errorf("the worst does not come first:\n%s", got)
	}

	// A report up to a given time, over the objective's period, with another policy.
	if got, err = ask("--at=2025-10-28T00:00:00Z", "--freeze-below=50%", "--slow-below=95%"); err != nil {
		t.Fatal(err)
	}
	if cells := row(t, got, "`a\\|b`"); cells[9] != "**freeze**" || cells[13] != "5 of 30 days" || cells[5] != "144000" {
		t.Errorf("until a time: %q", cells)
	}
	if cells := row(t, got, "`fine`"); cells[9] != "slow down" {
		t.Errorf("until a time: %q", cells)
	}

	if got, err = ask("--month=2025-10", "--format=html"); err != nil || !strings.HasPrefix(got, "<!DOCTYPE html>") ||
		!strings.Contains(got, "<code>a|b</code>") || strings.Contains(got, "src=") {
		t.Errorf("%v\n%s", err, got)
	}

	// Errors name the remedy.
	if _, err := ask("--month=2025-01"); err == nil || !strings.Contains(err.Error(), "load the rules") {
		t.Errorf("a month without history: %v", err)
	}
	page := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("<html>hello</html>")) }))
	defer page.Close()
	for want, args := range map[string][]string{
		"give --http-config=FILE":     {"--prometheus=" + guarded.URL},
		"cannot reach http://":        {"--prometheus=http://127.0.0.1:1"},
		"address before /api/v1":      {"--prometheus=" + page.URL},
		"credentials do not belong":   {"--prometheus=http://u:p@h:1"},
		"write it as 2026-10":         {"--prometheus=" + backend, "--month=October"},
		"has not begun":               {"--prometheus=" + backend, "--month=2999-01"},
		"is in the future":            {"--prometheus=" + backend, "--at=2999-01-01T00:00:00Z"},
		"give either --month or --at": {"--prometheus=" + backend, "--at=2025-01-01T00:00:00Z", "--month=2025-01"},
		"--freeze-below: \"little\"":  {"--prometheus=" + backend, "--freeze-below=little"},
	} {
		err := reportBudgets(args, &strings.Builder{})
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "u:p@") {
			t.Errorf("%v: %v, want %q", args, err, want)
		}
	}
}
