package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// changedAnHourAgo serves a Prometheus in which a model got a new version an hour ago. Since then its first tokens
// take this many times as long.
func changedAnHourAgo(t *testing.T, slower float64) (url string) {
	t.Helper()
	sim, err := rulesim.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sim.Close() })
	now := time.Now().Truncate(time.Minute)
	sum, count := 0.0, 0.0
	if err := sim.Run(now.Add(-2*time.Hour), now, time.Minute, func(at time.Time, emit rulesim.Emit) {
		show := func(name string, v float64, more ...string) {
			emit(labels.FromStrings(append(more, "__name__", name, metrics.LabelRuntime, "vllm", metrics.LabelModel, "m", metrics.LabelServer,
				"10.0.0.1:8000", "instance", "n1")...), v)
		}
		show(metrics.EngineInfo.Name, 1)
		each := 0.2
		if changed := now.Add(-time.Hour); !at.Before(changed) {
			each *= slower
			show(metrics.EngineConfigChanged.Name, float64(changed.Unix()), metrics.LabelSetting, "version", metrics.LabelOld, "1",
				metrics.LabelNew, "2")
		}
		sum, count = sum+60*each, count+60
		show(metrics.StageTime.Name, sum, metrics.LabelStage, metrics.StageFirstToken)
		show(metrics.Stages.Name, count, metrics.LabelStage, metrics.StageFirstToken)
	}); err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seconds, _ := strconv.ParseFloat(r.FormValue("time"), 64)
		found, err := sim.Query(r.FormValue("query"), time.UnixMilli(int64(1000*seconds)))
		if err != nil {
			http.Error(w, fmt.Sprintf(`{"error":%q}`, err), http.StatusBadRequest)
			return
		}
		type sample struct {
			Metric map[string]string `json:"metric"`
			Value  [2]any            `json:"value"`
		}
		result := []sample{}
		for _, s := range found {
			result = append(result, sample{s.Metric.Map(), [2]any{seconds, strconv.FormatFloat(s.F, 'g', -1, 64)}})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"status": "success", "data": map[string]any{"resultType": "vector", "result": result}})
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestRelease checks that the exit status is a gate.
func TestRelease(t *testing.T) {
	t.Parallel()
	slow, same := changedAnHourAgo(t, 2), changedAnHourAgo(t, 1)
	for _, c := range []struct {
		args   []string
		status int
		want   string
	}{
		{[]string{"--prometheus=" + slow}, 1, "m: WORSE\n  version 1 -> 2, replicas: 1\n"},
		{[]string{"--prometheus=" + same}, 0, "m: NO WORSE\n"},
		{[]string{"--prometheus=" + slow, "--model=another"}, 2, "no change of a version or a setting within 24h0m0s"},
		{[]string{"--prometheus=" + slow, "--since=30m"}, 2, "no change of a version or a setting within 30m0s"},
	} {
		var out bytes.Buffer
		status, err := releaseCommand(context.Background(), c.args, &out, io.Discard)
		if err != nil || status != c.status || !strings.Contains(out.String(), c.want) {
			t.Errorf("%q: status %d, %v:\n%s", c.args, status, err, &out)
		}
	}
	var out bytes.Buffer
	var got struct {
		Verdict string
		Changes []struct {
			Model    string
			Verdict  string
			Settings []struct{ Setting, Old, New string }
			Compared []struct {
				Measure       string
				Before, After float64
				Worse         bool
			}
		}
	}
	status, err := releaseCommand(context.Background(), []string{"--prometheus=" + slow, "--output=json"}, &out, io.Discard)
	if err == nil {
		err = json.Unmarshal(out.Bytes(), &got)
	}
	if err != nil || status != 1 || got.Verdict != "worse" || len(got.Changes) != 1 || got.Changes[0].Settings[0].New != "2" ||
		got.Changes[0].Compared[0].Measure != "ttft" || !got.Changes[0].Compared[0].Worse {
		t.Errorf("status %d, %v: %s", status, err, &out)
	}
}

// TestReleaseCannotLook checks that every obstacle is reported, and that no release passes in that case.
func TestReleaseCannotLook(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		args []string
		want string
	}{
		{nil, "--prometheus"},
		{[]string{"--prometheus=http://127.0.0.1:1"}, "--prometheus: "},
		{[]string{"--prometheus=prometheus:9090"}, "prometheus"},
		{[]string{"--prometheus=http://127.0.0.1:1", "--window=1m"}, "--window=1m0s is too short"},
		{[]string{"--prometheus=http://127.0.0.1:1", "--settle=-1m"}, "neither may be negative"},
	} {
		status, err := releaseCommand(context.Background(), c.args, io.Discard, io.Discard)
		if status != 2 || err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: status %d, %v", c.args, status, err)
		}
	}
}
