package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// Prometheus is the state of a Prometheus and of the exporters that it scrapes.
type Prometheus struct {
	// Address is the address of the Prometheus, for people.
	Address       string
	now           time.Time
	groups        []ruleGroup
	loaded        Rules // rules of the groups that can be parsed
	targets       []target
	alertmanagers int
	undelivered   []string              // Alertmanagers that refuse alerts
	names         []string              // of the series of exporters
	info          map[string][]labelSet // series of the families in asked
	counted       []string              // objectives that count events somewhere
}

type labelSet = map[string]string

// asked lists the families whose labels show how Prometheus scrapes exporters.
var asked = []string{buildInfo, metrics.EngineUp.Name, metrics.EngineInfo.Name, metrics.GPUInfo.Name}

type ruleGroup struct {
	Name           string    `json:"name"`
	File           string    `json:"file"`
	Interval       float64   `json:"interval"`
	EvaluationTime float64   `json:"evaluationTime"`
	LastEvaluation time.Time `json:"lastEvaluation"`
	Rules          []struct {
		Type      string  `json:"type"`
		Name      string  `json:"name"`
		Query     string  `json:"query"`
		Duration  float64 `json:"duration"`
		Health    string  `json:"health"`
		LastError string  `json:"lastError"`
	} `json:"rules"`
}

type target struct {
	Labels             labelSet `json:"labels"`
	ScrapeURL          string   `json:"scrapeUrl"`
	Health             string   `json:"health"`
	LastError          string   `json:"lastError"`
	LastScrapeDuration float64  `json:"lastScrapeDuration"`
	ScrapeInterval     string   `json:"scrapeInterval"`
	ScrapeTimeout      string   `json:"scrapeTimeout"`
}

func (t target) key() [2]string { return [2]string{t.Labels["job"], t.Labels[metrics.LabelInstance]} }

// Ask queries a Prometheus.
func Ask(ctx context.Context, client *http.Client, at *url.URL) (*Prometheus, error) {
	p := &Prometheus{Address: at.Host, info: map[string][]labelSet{}}
	var (
		err    error
		rules  struct{ Groups []ruleGroup }
		active struct{ ActiveTargets []target }
		alerts struct{ ActiveAlertmanagers []struct{ URL string } }
	)
	ask := func(path string, query url.Values, into any) {
		if err == nil {
			err = askAPI(ctx, client, at, path, query, into)
		}
	}
	query := func(expr string) []labelSet {
		var answer struct {
			Result []struct{ Metric labelSet }
		}
		ask("query", url.Values{"query": {expr}}, &answer)
		all := make([]labelSet, 0, len(answer.Result))
		for _, r := range answer.Result {
			all = append(all, r.Metric)
		}
		return all
	}
	var clock struct{ Result []any }
	ask("query", url.Values{"query": {"time()"}}, &clock)
	ask("rules", nil, &rules)
	ask("targets", url.Values{"state": {"active"}}, &active)
	ask("alertmanagers", nil, &alerts)
	for _, name := range asked {
		p.info[name] = query(name)
	}
	for _, s := range query("count by (slo) (" + metrics.SLOCounted.Name + " == 1)") {
		p.counted = append(p.counted, s[metrics.LabelSLO])
	}
	for _, s := range query("sum by (alertmanager) (increase(prometheus_notifications_errors_total[15m])) > 0") {
		p.undelivered = append(p.undelivered, s["alertmanager"])
	}
	if err != nil {
		return nil, err
	}
	if p.now, err = sampleTime(clock.Result); err != nil {
		return nil, err
	}
	ask("label/__name__/values", url.Values{
		"match[]": {`{__name__=~"llm_.+"}`}, "start": {unix(p.now.Add(-5 * time.Minute))},
		"end": {unix(p.now)},
	}, &p.names)
	p.groups, p.loaded, p.targets, p.alertmanagers = rules.Groups, parsed(rules.Groups), active.ActiveTargets, len(alerts.ActiveAlertmanagers)
	return p, err
}

func unix(t time.Time) string { return strconv.FormatInt(t.Unix(), 10) }

func sampleTime(sample []any) (time.Time, error) {
	if len(sample) == 2 {
		if seconds, ok := sample[0].(float64); ok {
			return time.UnixMilli(int64(seconds * 1000)), nil
		}
	}
	return time.Time{}, errors.New("the answer to time() is not a number; check whether this is the address of a Prometheus")
}

// askAPI sends a request to Prometheus' HTTP API, and decodes the data in the answer.
func askAPI(ctx context.Context, client *http.Client, at *url.URL, path string, query url.Values, into any) error {
	u := at.JoinPath("api/v1", path)
	u.RawQuery = query.Encode()
	body, err := get(ctx, client, u.String(), "application/json")
	if err != nil {
		return err
	}
	defer body.Close()
	return json.NewDecoder(body).Decode(&struct{ Data any }{into})
}

// exporters returns the scrape targets that are exporters of this project, according to their job or their metrics
// page.
func (p Picture) exporters() []target {
	return slices.DeleteFunc(slices.Clone(p.Prometheus.targets), func(t target) bool {
		return !p.watches(t.Labels["job"]) && !p.Prometheus.isExporter(t)
	})
}

// isExporter reports whether Prometheus has an exporter's build information from a target.
func (p *Prometheus) isExporter(t target) bool {
	return slices.ContainsFunc(p.info[buildInfo], func(l labelSet) bool { return [2]string{l["job"], l[metrics.LabelInstance]} == t.key() })
}

// watches reports whether the rules cover exporters of a job. It uses the rules that Prometheus evaluates. If there are
// none, it uses the rules that Prometheus should evaluate.
func (p Picture) watches(job string) bool {
	if p.Prometheus.loaded.has(exporterDown) {
		return p.Prometheus.loaded.watches(job)
	}
	return p.Rules.watches(job)
}
