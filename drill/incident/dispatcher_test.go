package incident_test

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	amalert "github.com/prometheus/alertmanager/alert"
	"github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/dispatch"
	"github.com/prometheus/alertmanager/eventrecorder"
	"github.com/prometheus/alertmanager/featurecontrol"
	"github.com/prometheus/alertmanager/inhibit"
	"github.com/prometheus/alertmanager/marker"
	"github.com/prometheus/alertmanager/nflog"
	"github.com/prometheus/alertmanager/notify"
	"github.com/prometheus/alertmanager/provider/mem"
	"github.com/prometheus/alertmanager/silence"
	"github.com/prometheus/alertmanager/timeinterval"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/drill/play"
	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// TestDispatcherAtRandom compares the drill's Alertmanager with the genuine one, for random alerts that no incident would
// have.
func TestDispatcherAtRandom(t *testing.T) {
	t.Parallel()
	alerts := rules.Alerts(play.Rules())
	for seed := range uint64(10) {
		random := rand.New(rand.NewPCG(seed, 0))
		am, err := play.NewAlertmanager(alerts, rules.Style{})
		if err != nil {
			t.Fatal(err)
		}
		var possible []rulesim.Alert
		for _, a := range alerts {
			for _, gpu := range []string{"GPU-0", "GPU-1"} {
				possible = append(possible, rulesim.Alert{Name: a.Name, Labels: labels.FromStrings("alertname", a.Name, "severity",
					rules.Style{}.WithDefaults().Severities[a.Severity],
					"namespace", "prod", "model_name", "m", "slo", "ttft", "gpu_uuid", gpu, "pod", "p-"+gpu, "server", "s")})
			}
		}
		var fired []play.Evaluation
		firing, end := map[int]bool{}, 14*time.Hour
		for now := time.Duration(0); now < end; now += rules.Interval {
			for i := range possible {
				if random.IntN(120) == 0 { // every two hours on average, a firing alert stops, and a silent one begins in one case of three
					firing[i] = !firing[i] && random.IntN(3) == 0
				}
			}
			e := play.Evaluation{At: now}
			for i, a := range possible {
				if firing[i] {
					e.Firing = append(e.Firing, a)
				}
			}
			if err := am.Receive(rulesim.Epoch.Add(now), e.Firing); err != nil {
				t.Fatal(err)
			}
			fired = append(fired, e)
		}
		if err := am.Run(rulesim.Epoch.Add(end)); err != nil {
			t.Fatal(err)
		}
		compare(t, am.Take(), fired)
	}
}

// compare sends the fired alerts to Alertmanager itself (its provider, dispatcher, inhibitor and notification pipeline)
// in virtual time. The notifications of Alertmanager's code must equal the drill's.
func compare(t *testing.T, drill []play.Notification, fired []play.Evaluation) {
	t.Helper()
	var delivered []play.Notification
	synctest.Test(t, func(t *testing.T) { delivered = deliver(t, fired) })
	if got, want := lines(drill), lines(delivered); !slices.Equal(got, want) {
		t.Errorf("the drill sends\n%s\nAlertmanager sends\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// lines returns notifications in order, to the second.
func lines(ns []play.Notification) (lines []string) {
	for _, n := range ns {
		lines = append(lines, fmt.Sprintf("%s %s %v resolved %t update %t", n.At.Format(time.DateTime), n.Receiver, n.Alerts, n.Resolved,
			n.Update))
	}
	slices.Sort(lines)
	return lines
}

// deliver sends firing alerts to a running Alertmanager, minute by minute, as Prometheus does.
func deliver(t *testing.T, fired []play.Evaluation) []play.Notification {
	began := time.Now()
	am := startAlertmanager(t, began)
	defer am.stop()
	firing := map[model.Fingerprint]*amalert.Alert{}
	for _, e := range fired {
		// Each evaluation comes a little earlier than the one before. So Alertmanager's own actions in that minute come
		// after it, as in the drill.
		now := e.At - fired[0].At
		early := time.Duration(now.Minutes()) * time.Millisecond
		time.Sleep(time.Until(began.Add(now + time.Second - early)))
		present := map[model.Fingerprint]bool{}
		for _, f := range e.Firing {
			a := &amalert.Alert{Alert: model.Alert{Labels: model.LabelSet{}, StartsAt: time.Now()}}
			f.Labels.Range(func(l labels.Label) { a.Labels[model.LabelName(l.Name)] = model.LabelValue(l.Value) })
			id := a.Fingerprint()
			if known := firing[id]; known != nil {
				a.StartsAt = known.StartsAt
			}
			a.EndsAt, a.UpdatedAt = time.Now().Add(4*rules.Interval), time.Now() // Prometheus: four times its resend delay
			firing[id], present[id] = a, true
		}
		var puts []*amalert.Alert
		for id, a := range firing {
			if !present[id] {
				ended := *a
				ended.EndsAt, ended.UpdatedAt = time.Now(), time.Now()
				a = &ended
				delete(firing, id)
			}
			puts = append(puts, a)
		}
		if err := am.alerts.Put(t.Context(), puts...); err != nil {
			t.Fatal(err)
		}
	}
	time.Sleep(rules.Interval)
	synctest.Wait()
	return am.sent
}

// genuine is an Alertmanager with the generated configuration, without its API, its cluster and its files.
type genuine struct {
	alerts *mem.Alerts
	stop   func()
	began  time.Time
	mu     sync.Mutex
	sent   []play.Notification
}

func startAlertmanager(t *testing.T, began time.Time) *genuine {
	t.Helper()
	content, err := rules.Encode(rules.NewAlertmanager(rules.Alerts(play.Rules()), rules.Style{}))
	if err != nil {
		t.Fatal(err)
	}
	c, err := config.Load(string(content))
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	log, registry, recorder := slog.New(slog.DiscardHandler), prometheus.NewRegistry(), eventrecorder.NopRecorder()
	alerts, err := mem.NewAlerts(t.Context(), 30*time.Minute, 0, nil, log, recorder, registry, nil)
	must(err)
	silences, err := silence.New(silence.Options{Metrics: registry})
	must(err)
	notified, err := nflog.New(nflog.Options{Metrics: registry, Retention: 120 * time.Hour, Logger: log})
	must(err)
	am := &genuine{alerts: alerts, began: began}
	receivers := map[string][]notify.Integration{}
	for _, r := range c.Receivers {
		receivers[r.Name] = []notify.Integration{notify.NewIntegration(am, am, "drill", 0, r.Name)}
	}
	inhibitor := inhibit.NewInhibitor(alerts, c.InhibitRules, log, recorder)
	groups := marker.NewGroupMarker()
	pipeline := notify.NewPipelineBuilder(registry, featurecontrol.NoopFlags{}, recorder).New(receivers, func() time.Duration { return 0 },
		inhibitor, silence.NewSilencer(silences, log, recorder), timeinterval.NewIntervener(nil), groups, notified, nil)
	wait := func(d time.Duration) time.Duration { return max(d, notify.MinTimeout) }
	dispatcher := dispatch.NewDispatcher(alerts, dispatch.NewRoute(c.Route, nil), pipeline, groups, wait, 30*time.Second, nil, log,
		recorder, nil, nil)
	go inhibitor.Run()
	go dispatcher.Run(began)
	inhibitor.WaitForLoading()
	dispatcher.WaitForLoading()
	am.stop = func() {
		dispatcher.Stop()
		inhibitor.Stop()
		alerts.Close()
	}
	return am
}

// SendResolved implements notify.ResolvedSender, with the default of webhooks and pagers.
func (*genuine) SendResolved() bool { return true }

// Notify implements notify.Notifier.
func (am *genuine) Notify(ctx context.Context, alerts ...*amalert.Alert) (retry bool, err error) {
	receiver, _ := notify.ReceiverName(ctx)
	reason, _ := notify.NotificationReason(ctx)
	n := play.Notification{
		At: rulesim.Epoch.Add(time.Since(am.began).Truncate(5 * time.Second)), Receiver: receiver, Resolved: true,
		Update: reason != notify.ReasonFirstNotification,
	}
	names := map[string]bool{}
	for _, a := range alerts {
		if !a.Resolved() {
			n.Resolved, names[a.Name()] = false, true
		}
	}
	n.Alerts = slices.Sorted(maps.Keys(names))
	am.mu.Lock()
	defer am.mu.Unlock()
	am.sent = append(am.sent, n)
	return false, nil
}
