package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"html"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/drill/live"
	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/internal/golden"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestPlays follows a person on call, who has only the notification, to the resolved message and the record. The
// exporter is real, and queries the Prometheus of the play, at the play's time. Every link in each notification and
// each visited web page is opened, and works. Every query has an answer, at once or after a click, so nobody pastes a
// query. No typed command still contains a placeholder of the alert. docs/plays.csv has the steps.
func TestPlays(t *testing.T) {
	rows := [][]string{{
		"play", "since the onset", "the reader", "where", "links", "dead links", "queries", "answered at once",
		"answered after a click", "pasted",
	}}
	for _, c := range []struct {
		incident string
		clicks   []string // from the runbook to the lever, by the links' texts
		part     string   // of the page, whose commands are typed
	}{
		{"wedged-engine", nil, "Levers"},
		{"kv-thrash", []string{"at the gateway"}, "envoy_ai, envoy"},
	} {
		r := newReader(t, c.incident)
		r.reads(r.page)
		r.now = r.page.At.Add(2 * time.Minute)
		r.click("Runbook", r.link(r.page, "Runbook"))
		runbook := r.address
		r.opensBoard(r.link(r.page, "Dashboard"))
		for _, text := range c.clicks {
			r.clicks(text)
		}
		r.now = r.onset.Add(r.play.Incident.Lever.At)
		r.types(c.part)
		r.now = r.over.At
		r.reads(r.over)
		r.click("Runbook", runbook)
		r.clicks("verify")
		r.clicks("record")
		rows = append(rows, r.rows...)
	}
	var table strings.Builder
	if err := csv.NewWriter(&table).WriteAll(rows); err != nil {
		t.Fatal(err)
	}
	golden.Compare(t, "../../docs/plays.csv", table.String())
}

// reader is the person on call.
type reader struct {
	*testing.T
	play       *play.Play
	page, over play.Notification
	onset, now time.Time
	exporter   *exporter
	address    string // of the page that is open
	body       string
	rows       [][]string
}

// newReader plays an incident whose lever is pulled, beside an exporter that may query the play's Prometheus.
func newReader(t *testing.T, name string) *reader {
	t.Helper()
	r := &reader{T: t}
	var ask http.Handler
	var one sync.Mutex
	prometheus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		one.Lock()
		defer one.Unlock()
		if err := request.ParseForm(); err != nil {
			t.Error(err)
		}
		request.Form.Set("time", strconv.FormatInt(r.now.Unix(), 10))
		ask.ServeHTTP(w, request)
	}))
	t.Cleanup(prometheus.Close)
	config := filepath.Join(t.TempDir(), "exporter.yml")
	if err := os.WriteFile(config, []byte("prometheus: {url: "+prometheus.URL+"}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r.exporter = start(t, "--discovery=none", "--config.file="+config)

	in, err := incident.Find(incident.Incidents(), name)
	if err != nil {
		t.Fatal(err)
	}
	in.History = time.Hour
	in.Faults = append(slices.Clone(in.Faults), in.Lever.Fault)
	in.Lasts = in.Lever.At + time.Hour
	style := rules.Style{RunbookURL: r.exporter.url + "/runbooks/{alert}{labels}"}
	if r.play, err = play.Run(in, play.Options{Seed: 1, Style: style}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.play.Close(); err != nil {
			t.Error(err)
		}
	})
	ask = live.Serve(r.play.Prometheus)
	r.onset = r.play.World.At(r.play.Onset)
	first := slices.IndexFunc(r.play.Sent, func(n play.Notification) bool { return slices.Contains(n.Alerts, in.Page.Name) })
	if first < 0 {
		t.Fatalf("%s: no page", name)
	}
	r.page = r.play.Sent[first]
	end := slices.IndexFunc(r.play.Sent, func(n play.Notification) bool { return n.Resolved && n.Group == r.page.Group })
	if end < 0 {
		t.Fatalf("%s: the lever does not end the page", name)
	}
	r.over = r.play.Sent[end]
	return r
}

// note adds a step to the table.
func (r *reader) note(does, where string, counts ...int) {
	since := r.now.Sub(r.onset).Round(time.Second)
	row := []string{
		r.play.Incident.Name, fmt.Sprintf("%d:%02d", int(since.Minutes()), int(since.Seconds())%60), does,
		strings.ReplaceAll(where, r.exporter.url, "https://llm.example"),
	}
	for i := range 6 {
		text := ""
		if i < len(counts) {
			text = strconv.Itoa(counts[i])
		}
		row = append(row, text)
	}
	r.rows = append(r.rows, row)
}

var (
	address  = regexp.MustCompile(`https?://\S+`)
	href     = regexp.MustCompile(`<a href="([^"]*)"[^>]*>([^<]*)</a>`)
	block    = regexp.MustCompile(`(?s)<pre><code>(.*?)</code></pre>`)
	unfilled = regexp.MustCompile(`\$(NS|POD|SERVER|MODEL|NODE|INSTANCE|GPU_UUID)\b`)
)

// reads reads a message, and opens each of its links.
func (r *reader) reads(n play.Notification) {
	r.now = n.At
	links, dead := 0, 0
	for _, link := range address.FindAllString(n.Message(), -1) {
		links++
		if err := r.leads(link); err != nil {
			dead++
			r.Errorf("%s: %s of the message: %v", r.play.Incident.Name, link, err)
		}
	}
	r.note("reads "+n.Title, "the message", links, dead)
}

// link returns the link of a line of a message.
func (r *reader) link(n play.Notification, line string) string {
	_, rest, found := strings.Cut(n.Message(), "\n"+line+": ")
	link := address.FindString(rest)
	if !found || link == "" {
		r.Fatalf("the message has no link after %s:\n%s", line, n.Message())
	}
	return link
}

// get opens an address of the exporter.
func (r *reader) get(link string) (string, error) {
	response, err := http.Get(link)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("status %d: %.200s", response.StatusCode, body)
	}
	return string(body), err
}

// leads returns an error unless a link leads to a page that the exporter serves, with the named anchor, or to a
// dashboard.
func (r *reader) leads(link string) error {
	to, err := url.Parse(link)
	if err != nil {
		return err
	}
	if to.Host == "grafana.example" {
		return r.board(to)
	}
	body, err := r.get(link)
	if err == nil && to.Fragment != "" && !strings.Contains(body, `id="`+to.Fragment+`"`) {
		err = fmt.Errorf("no place %s", to.Fragment)
	}
	return err
}

// board returns an error unless an address opens a generated dashboard for the model of the page, half an hour before the onset.
func (r *reader) board(to *url.URL) error {
	i := slices.IndexFunc(dashboards.All(nil), func(b dashboards.Board) bool { return to.Path == "/d/"+string(b.UID) })
	if i < 0 {
		return fmt.Errorf("no dashboard %s", to.Path)
	}
	file, err := os.ReadFile("../../helm/llm-node-exporter/files/dashboards/" + strings.TrimPrefix(to.Path, "/d/") + ".json")
	if err != nil {
		return err
	}
	for key, values := range to.Query() {
		name, isVariable := strings.CutPrefix(key, "var-")
		switch {
		case isVariable && (!strings.Contains(string(file), `"name": "`+name+`"`) || values[0] != string(r.page.Labels["model_name"]) &&
			values[0] != string(r.page.Labels["namespace"])):
			return fmt.Errorf("%s=%s is nothing of the dashboard", key, values[0])
		case key == "from":
			from, err := strconv.ParseInt(values[0], 10, 64)
			if err != nil {
				return err
			}
			least := 25 * time.Minute
			if r.now.Equal(r.over.At) { // the last alerts to end need not be the first to fire
				least = 20 * time.Minute
			}
			if before := r.onset.Sub(time.UnixMilli(from)); before < least || before > 35*time.Minute {
				return fmt.Errorf("the dashboard opens %s before the onset", before)
			}
		}
	}
	return nil
}

// opensBoard clicks on the link to the dashboard.
func (r *reader) opensBoard(link string) {
	dead := 0
	if err := r.leads(link); err != nil {
		dead++
		r.Errorf("%s: %v", link, err)
	}
	r.note("clicks Dashboard", link, 1, dead)
}

// clicks follows the first link of the open page that has a text.
func (r *reader) clicks(text string) {
	for _, m := range href.FindAllStringSubmatch(r.body, -1) {
		if html.UnescapeString(m[2]) == text {
			r.click(text, r.resolve(m[1]))
			return
		}
	}
	r.Fatalf("%s has no link %q", r.address, text)
}

// resolve returns the address of a link of the open page.
func (r *reader) resolve(link string) string {
	from, err := url.Parse(r.address)
	if err != nil {
		r.Fatal(err)
	}
	to, err := from.Parse(html.UnescapeString(link))
	if err != nil {
		r.Fatal(err)
	}
	return to.String()
}

// click opens a page, follows each of its links, and reads the answer of each of its queries.
func (r *reader) click(text, link string) {
	body, err := r.get(link)
	if err != nil {
		r.Fatalf("%s: %v", link, err)
	}
	r.address, r.body = link, body
	tried := map[string]bool{}
	dead := 0
	for _, m := range href.FindAllStringSubmatch(body, -1) {
		to := r.resolve(m[1])
		if tried[to] {
			continue
		}
		tried[to] = true
		if err := r.leads(to); err != nil {
			dead++
			r.Errorf("%s leads to %s: %v", link, to, err)
		}
	}
	answered, filled, pasted := r.asks()
	r.note("clicks "+text, link, len(tried), dead, answered+filled+pasted, answered, filled, pasted)
}

// answered is the text below a query.
type answered struct {
	Says string
	Rows []struct{ Fills string }
}

// asks reads the answers on the open page, and clicks on results that fill in the missing labels of a query.
func (r *reader) asks() (atOnce, afterClick, pasted int) {
	var fills []string
	var open []int
	for number := range strings.Count(r.body, `<div class="answer"`) {
		a := r.answer(r.address, number)
		for _, row := range a.Rows {
			if row.Fills != "" && !slices.Contains(fills, row.Fills) {
				fills = append(fills, row.Fills)
			}
		}
		if strings.HasPrefix(a.Says, "Not asked") {
			open = append(open, number)
		} else {
			atOnce++
		}
	}
	for _, number := range open {
		if slices.ContainsFunc(fills, func(link string) bool {
			return !strings.HasPrefix(r.answer(r.resolve(link), number).Says, "Not asked")
		}) {
			afterClick++
			continue
		}
		pasted++
		r.Errorf("%s: nothing fills in query %d", r.address, number)
	}
	return atOnce, afterClick, pasted
}

// answer requests the answer to a query as the page's script does.
func (r *reader) answer(link string, number int) (a answered) {
	of, err := url.Parse(link)
	if err != nil {
		r.Fatal(err)
	}
	of.Path = strings.TrimSuffix(of.Path, ".md") + "/" + strconv.Itoa(number)
	body, err := r.get(of.String())
	if err == nil {
		err = json.Unmarshal([]byte(body), &a)
	}
	if err != nil || strings.HasPrefix(a.Says, "No answer") {
		r.Errorf("query %d of %s: %v %s", number, link, err, a.Says)
	}
	return a
}

// types copies the last block of commands in a part of the open page.
func (r *reader) types(part string) {
	_, rest, found := strings.Cut(r.body, "<h2>"+part+"</h2>")
	if !found {
		r.Fatalf("%s has no part %s", r.address, part)
	}
	rest, _, _ = strings.Cut(rest, "<h2>")
	blocks := block.FindAllStringSubmatch(rest, -1)
	if blocks == nil {
		r.Fatalf("%s, %s: no command for %s", r.address, part, r.play.Incident.Lever.Says)
	}
	command := strings.TrimSpace(html.UnescapeString(blocks[len(blocks)-1][1]))
	if open := unfilled.FindString(command); open != "" {
		r.Errorf("%s is open in %s", open, command)
	}
	r.note("types "+command+" ("+r.play.Incident.Lever.Says+")", r.address)
}
