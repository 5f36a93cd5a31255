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
	"github.com/prometheus/common/route"
	"github.com/prometheus/prometheus/config"
	"github.com/prometheus/prometheus/promql/parser"
	"github.com/prometheus/prometheus/tsdb"
	"github.com/prometheus/prometheus/util/notifications"
	api "github.com/prometheus/prometheus/web/api/v1"
)

// handler serves Prometheus' HTTP API, read-only.
func (p *Prometheus) handler(address string) http.Handler {
	db := p.store.DB()
	v1 := api.NewAPI(
		p.store.Engine(), db, nil, nil, db,
		func(context.Context) api.ScrapePoolsRetriever { return p.targets },
		func(context.Context) api.TargetRetriever { return p.targets },
		func(context.Context) api.AlertmanagerRetriever { return noAlertmanager{} },
		func() config.Config { return *p.config },
		map[string]string{},
		api.GlobalURLOptions{ListenAddress: address, Host: address, Scheme: "http"},
		func(f http.HandlerFunc) http.HandlerFunc { return f }, // always ready
		stats{db}, "", false, // no administration
		false, 0, // no search
		slog.New(slog.DiscardHandler),
		func(context.Context) api.RulesRetriever { return p.rules },
		0, 0, 0, // no limits of remote read
		false,                        // no agent
		regexp.MustCompile(`^(?:)$`), // no CORS
		func() (api.RuntimeInfo, error) {
			return api.RuntimeInfo{}, errors.New("the drill's Prometheus says nothing of its process")
		},
		&api.PrometheusVersion{Version: version()},
		func() []notifications.Notification { return nil },
		func() (<-chan notifications.Notification, func(), bool) { return nil, func() {}, false },
		p.registry, p.registry, nil,
		false, remote.MessageTypes{}, false, false, false, // no writes
		false, 5*time.Minute, false, false, nil, nil, api.OpenAPIOptions{},
		parser.NewParser(parser.Options{}),
	)
	router := route.New()
	v1.Register(router.WithPrefix("/api/v1"))
	for _, path := range []string{"/-/healthy", "/-/ready"} {
		router.Get(path, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte("ok\n")) })
	}
	router.Get("/", func(w http.ResponseWriter, _ *http.Request) {
		w.Write([]byte("The drill's Prometheus: its HTTP API is under /api/v1/, for Grafana, promtool and curl. All numbers are invented.\n"))
	})
	return router
}

// version returns the release of the embedded Prometheus, by which clients choose which features to use. Release
// 3.15.0 is the Go module v0.315.0.
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

// noAlertmanager tells the API that alerts go to no server: the drill routes them itself.
type noAlertmanager struct{}

func (noAlertmanager) Alertmanagers() []*url.URL        { return nil }
func (noAlertmanager) DroppedAlertmanagers() []*url.URL { return nil }

// stats provides what the API reports about the storage.
type stats struct{ *tsdb.DB }

func (s stats) Stats(label string, limit int) (*tsdb.Stats, error) {
	return s.Head().Stats(label, limit), nil
}
func (s stats) WALReplayStatus() (tsdb.WALReplayStatus, error) { return tsdb.WALReplayStatus{}, nil }
func (s stats) BlockMetas() ([]tsdb.BlockMeta, error)          { return s.DB.BlockMetas(), nil }
