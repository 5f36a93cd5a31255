package live

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"runtime/debug"
	"strings"
	"time"

	"github.com/grafana/regexp"
	remote "github.com/prometheus/client_golang/exp/api/remote"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/storage"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/features"
	"github.com/prometheus/prometheus/util/notifications"
	api "github.com/prometheus/prometheus/web/api/v1"

	"github.com/llm-node-exporter/llm-node-exporter/dashboards"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
)

// Serve returns the read-only HTTP API of a Prometheus with the samples that a simulation stored.
func Serve(store *rulesim.Sim) http.Handler {
	return (&Prometheus{store: store, registry: prometheus.NewRegistry()}).handler("")
}

// handler serves Prometheus' HTTP API. It is read-only.
func (p *Prometheus) handler(address string) http.Handler {
	router := route.New()
	p.api(address).Register(router.WithPrefix("/api/v1"))
	for _, path := range []string{"/-/healthy", "/-/ready"} {
		router.Get(path, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	}
	router.Get(Boards+":uid", p.boards.ServeHTTP)
	router.Get(QueryPath, p.serveQuery)
	router.Get("/", http.RedirectHandler(Boards+string(dashboards.All(nil)[0].UID), http.StatusFound).ServeHTTP)
	return router
}

// api calls the constructor of Prometheus' API with named arguments, for readability. Prometheus' web package would be
// simpler to use, but it also serves web pages that its module lacks, and profiles of the drill.
func (p *Prometheus) api(address string) *api.API {
	db := p.store.DB()
	var ( // the API cannot write or administer
		appendable                                                               storage.Appendable
		appendableV2                                                             storage.AppendableV2
		remoteWrite, otlp, otlpDeltaToCumulative, otlpNativeDelta, startTimeZero bool
		acceptedMessages                                                         remote.MessageTypes
		admin                                                                    bool
		databaseDir                                                              string
	)
	var ( // disabled features, limits without effect, and defaults
		agent, search, typeAndUnitLabels, appendMetadata           bool
		maxSearch, remoteReadSamples, remoteReadsAtOnce, readFrame int
		statsRenderer                                              api.StatsRenderer
		overrideErrorCode                                          api.OverrideErrorCode
		featureRegistry                                            features.Collector
		openAPI                                                    api.OpenAPIOptions
	)
	const lookback = 5 * time.Minute
	var (
		scrapePools   = func(context.Context) api.ScrapePoolsRetriever { return p.targets }
		targets       = func(context.Context) api.TargetRetriever { return p.targets }
		alertmanagers = func(context.Context) api.AlertmanagerRetriever { return noAlertmanager{} }
		ruleGroups    = func(context.Context) api.RulesRetriever { return p.rules }
		configuration = func() config.Config { return *p.config }
		flags         = map[string]string{}
		urls          = api.GlobalURLOptions{ListenAddress: address, Host: address, Scheme: "http"}
		always        = func(f http.HandlerFunc) http.HandlerFunc { return f }
		corsOrigin    = regexp.MustCompile(`^(?:)$`) // matches no origin
		runtimeInfo   = func() (api.RuntimeInfo, error) {
			return api.RuntimeInfo{}, errors.New("the drill's Prometheus reports nothing about its process")
		}
		buildInfo = &api.PrometheusVersion{Version: version()}
		notes     = func() []notifications.Notification { return nil }
		subscribe = func() (<-chan notifications.Notification, func(), bool) { return nil, func() {}, false }
		logger    = slog.New(slog.DiscardHandler)
		promql    = parser.NewParser(parser.Options{})
	)
	return api.NewAPI(
		p.store.Engine(), db, appendable, appendableV2, db, scrapePools, targets, alertmanagers, configuration, flags, urls, always,
		stats{db}, databaseDir, admin, search, maxSearch, logger, ruleGroups, remoteReadSamples, remoteReadsAtOnce, readFrame,
		agent, corsOrigin, runtimeInfo, buildInfo, notes, subscribe, p.registry, p.registry, statsRenderer,
		remoteWrite, acceptedMessages, otlp, otlpDeltaToCumulative, otlpNativeDelta, startTimeZero,
		lookback, typeAndUnitLabels, appendMetadata, overrideErrorCode, featureRegistry, openAPI, promql,
	)
}

// version returns the release of the embedded Prometheus. The API reports it, because clients choose features by
// release. Release 3.15.0 is the Go module v0.315.0.
func version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, m := range info.Deps {
		if parts := strings.SplitN(m.Version, ".", 3); m.Path == "github.com/prometheus/prometheus" && len(parts) == 3 && len(parts[1]) == 3 {
			return parts[1][:1] + "." + strings.TrimPrefix(parts[1][1:], "0") + "." + parts[2]
		}
	}
	return ""
}

// noAlertmanager makes the API report that Prometheus sends alerts to no Alertmanager, because the drill itself routes
// alerts.
type noAlertmanager struct{}

func (noAlertmanager) Alertmanagers() []*url.URL        { return nil }
func (noAlertmanager) DroppedAlertmanagers() []*url.URL { return nil }

// stats provides the API's data about the storage.
type stats struct{ *tsdb.DB }

func (s stats) Stats(label string, limit int) (*tsdb.Stats, error) {
	return s.Head().Stats(label, limit), nil
}

func (s stats) WALReplayStatus() (tsdb.WALReplayStatus, error) { return tsdb.WALReplayStatus{}, nil }
func (s stats) BlockMetas() ([]tsdb.BlockMeta, error)          { return s.DB.BlockMetas(), nil }
