package incident

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

func fires(name, severity string, more ...string) rulesim.Alert {
	return rulesim.Alert{Name: name, Labels: labels.FromStrings(append([]string{"alertname", name, "severity", severity, "namespace", "prod", "model_name", "m"}, more...)...)}
}

// TestNotifications follows one incident through the generated configuration, minute by minute.
func TestNotifications(t *testing.T) {
	ttft, itl := fires("LLMErrorBudgetFastBurn", "critical", "slo", "ttft"), fires("LLMErrorBudgetFastBurn", "critical", "slo", "itl")
	slow := fires("LLMErrorBudgetSlowBurn", "warning", "slo", "ttft")
	queue, knee := fires("LLMQueueBuildUp", "warning"), fires("LLMBatchKnee", "info")
	am, err := newAlertmanager(rules.Alerts(Rules()))
	if err != nil {
		t.Fatal(err)
	}
	start := rulesim.Epoch
	for m := range 120 {
		var now []rulesim.Alert
		if m < 60 {
			now = append(now, ttft, slow, knee)
		}
		if m >= 2 && m < 60 {
			now = append(now, itl, queue)
		}
		am.receive(start.Add(time.Duration(m)*time.Minute), now)
	}
	want := []Notification{
		{At: start.Add(10 * time.Second), Receiver: "llm-critical", Alerts: []string{"LLMErrorBudgetFastBurn"}},
		// What joins the page within minutes updates it; the slow burn is mute under the fast one.
		{At: start.Add(5*time.Minute + 10*time.Second), Receiver: "llm-critical", Alerts: []string{"LLMErrorBudgetFastBurn"}, Update: true},
		{At: start.Add(5 * time.Minute), Receiver: "llm-warning", Alerts: []string{"LLMQueueBuildUp"}},
		{At: start.Add(60*time.Minute + 10*time.Second), Receiver: "llm-critical", Resolved: true, Update: true},
		{At: start.Add(65 * time.Minute), Receiver: "llm-warning", Resolved: true, Update: true},
	}
	var got []Notification
	for _, n := range am.sent {
		if n.Receiver != "llm-null" {
			got = append(got, n)
		}
	}
	same := func(a, b Notification) bool {
		return a.At.Equal(b.At) && a.Receiver == b.Receiver && slices.Equal(a.Alerts, b.Alerts) && a.Resolved == b.Resolved && a.Update == b.Update
	}
	byTime := func(a, b Notification) int { return a.At.Compare(b.At) }
	slices.SortFunc(got, byTime)
	slices.SortFunc(want, byTime)
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// A page that goes on is repeated as the configuration says, and no more often.
func TestRepeat(t *testing.T) {
	am, err := newAlertmanager(rules.Alerts(Rules()))
	if err != nil {
		t.Fatal(err)
	}
	for m := range 9 * 60 {
		am.receive(rulesim.Epoch.Add(time.Duration(m)*time.Minute), []rulesim.Alert{fires("LLMModelDown", "critical")})
	}
	if n := len(am.pages()); n != 3 {
		t.Errorf("%d pages in nine hours with a repetition every four", n)
	}
}
