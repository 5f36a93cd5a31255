package play

import (
	"slices"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"

	"github.com/llm-node-exporter/llm-node-exporter/internal/rulesim"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

func fires(name, severity string, more ...string) rulesim.Alert {
	return rulesim.Alert{Name: name, Labels: labels.FromStrings(append([]string{
		"alertname", name, "severity", severity, "namespace",
		"prod", "model_name", "m",
	}, more...)...)}
}

// to returns the notifications to a receiver with a firing alert.
func to(sent []Notification, receiver string) []Notification {
	return slices.DeleteFunc(slices.Clone(sent), func(n Notification) bool { return n.Receiver != receiver || n.Resolved })
}

// TestNotifications follows one incident through the generated configuration, minute by minute.
func TestNotifications(t *testing.T) {
	page := func(suspect string) rulesim.Alert {
		return fires("LLMErrorBudgetFastBurn", "critical", "slo", "ttft", "suspect", suspect)
	}
	slow := fires("LLMErrorBudgetSlowBurn", "warning", "slo", "ttft")
	cause := fires("LLMPrefixHitCollapse", "warning")
	am, err := NewAlertmanager(rules.Alerts(Rules()), rules.Style{})
	if err != nil {
		t.Fatal(err)
	}
	start := rulesim.Epoch
	for m := range 120 {
		var now []rulesim.Alert
		if m < 60 {
			now = append(now, page([]string{"queueing", "memory"}[min(m/3, 1)]), slow)
		}
		if m >= 2 && m < 60 {
			now = append(now, cause)
		}
		if err := am.Receive(start.Add(time.Duration(m)*time.Minute), now); err != nil {
			t.Fatal(err)
		}
	}
	want := []Notification{
		{At: start.Add(10 * time.Second), Receiver: "llm-critical", Alerts: []string{"LLMErrorBudgetFastBurn"}},
		// A wrong first line is corrected within a minute. The slow burn is muted under the fast one.
		{At: start.Add(3*time.Minute + 10*time.Second), Receiver: "llm-critical", Alerts: []string{"LLMErrorBudgetFastBurn"}, Update: true},
		{At: start.Add(5 * time.Minute), Receiver: "llm-warning", Alerts: []string{"LLMPrefixHitCollapse"}},
		{At: start.Add(60*time.Minute + 10*time.Second), Receiver: "llm-critical", Resolved: true, Update: true},
		{At: start.Add(65 * time.Minute), Receiver: "llm-warning", Resolved: true, Update: true},
	}
	var got []Notification
	for _, n := range am.Take() {
		if n.Receiver != "llm-null" {
			got = append(got, n)
		}
	}
	same := func(a, b Notification) bool {
		return a.At.Equal(b.At) && a.Receiver == b.Receiver && slices.Equal(a.Alerts, b.Alerts) && a.Resolved == b.Resolved &&
			a.Update == b.Update
	}
	byTime := func(a, b Notification) int { return a.At.Compare(b.At) }
	slices.SortFunc(got, byTime)
	slices.SortFunc(want, byTime)
	if !slices.EqualFunc(got, want, same) {
		t.Errorf("got\n%+v\nwant\n%+v", got, want)
	}
}

// A continuing page is repeated as configured, and no more often.
func TestRepeat(t *testing.T) {
	am, err := NewAlertmanager(rules.Alerts(Rules()), rules.Style{})
	if err != nil {
		t.Fatal(err)
	}
	for m := range 9 * 60 {
		if err := am.Receive(rulesim.Epoch.Add(time.Duration(m)*time.Minute), []rulesim.Alert{fires("LLMModelDown", "critical")}); err != nil {
			t.Fatal(err)
		}
	}
	if n := len(to(am.Take(), "llm-critical")); n != 3 {
		t.Errorf("%d pages in nine hours with a repetition every four", n)
	}
}

func onGPU(name, severity, uuid string, more ...string) rulesim.Alert {
	return rulesim.Alert{Name: name, Labels: labels.FromStrings(append([]string{
		"alertname", name, "severity", severity, "branch", "hardware",
		"instance", "node-1", "gpu_uuid", uuid,
	}, more...)...)}
}

// A node whose GPUs fail causes one page for all of its GPUs, for any driver message and any workload, even when models
// leave and burn.
func TestGPUsOfANodeAreOnePage(t *testing.T) {
	am, err := NewAlertmanager(rules.Alerts(Rules()), rules.Style{})
	if err != nil {
		t.Fatal(err)
	}
	for m := range 180 {
		var now []rulesim.Alert
		for _, uuid := range []string{"GPU-0", "GPU-1"} {
			if m < 3 {
				now = append(now, onGPU("LLMGPUFailed", "critical", uuid, "reason", "xid_79"))
			} else {
				now = append(now, onGPU("LLMGPUFailed", "critical", uuid, "reason", "lost"))
			}
			now = append(now, onGPU("LLMModelOnFailedGPU", "info", uuid, "namespace", "prod", "model_name", "m", "pod", "p-"+uuid, "server", "s"))
		}
		if m >= 5 {
			now = append(now, fires("LLMErrorBudgetFastBurn", "critical", "slo", "ttft"),
				fires("LLMEngineStalled", "critical", "pod", "p-GPU-0", "server", "s", "instance", "node-1"))
		}
		if err := am.Receive(rulesim.Epoch.Add(time.Duration(m)*time.Minute), now); err != nil {
			t.Fatal(err)
		}
	}
	opened := 0
	for _, n := range to(am.Take(), "llm-critical") {
		if !n.Update {
			opened++
		}
		if slices.Contains(n.Alerts, "LLMErrorBudgetFastBurn") || slices.Contains(n.Alerts, "LLMEngineStalled") {
			t.Errorf("%v paged for a GPU that failed", n.Alerts)
		}
	}
	if opened != 1 {
		t.Errorf("%d pages for the GPUs of a node, want 1", opened)
	}
}

// A GPU that failed does not also need service.
func TestFailedGPUOpensNoTicket(t *testing.T) {
	am, err := NewAlertmanager(rules.Alerts(Rules()), rules.Style{})
	if err != nil {
		t.Fatal(err)
	}
	for m := range 120 {
		if err := am.Receive(rulesim.Epoch.Add(time.Duration(m)*time.Minute),
			[]rulesim.Alert{
				onGPU("LLMGPUFailed", "critical", "GPU-0", "reason", "row_remap_failure"),
				onGPU("LLMGPUNeedsService", "warning", "GPU-0", "reason", "uncorrected_errors"), onGPU("LLMGPULinkFault", "warning", "GPU-0",
					"reason", "wears"),
			}); err != nil {
			t.Fatal(err)
		}
	}
	sent := am.Take()
	if pages := to(sent, "llm-critical"); len(pages) != 1 || !slices.Equal(pages[0].Alerts, []string{"LLMGPUFailed"}) {
		t.Errorf("pages %+v, want one", pages)
	}
	if tickets := to(sent, "llm-warning"); len(tickets) != 0 {
		t.Errorf("tickets beside the page: %+v", tickets)
	}
}

// A model whose only replicas are on the failed GPU is down for that reason, and the GPU's page represents it. A model
// with other replicas is down for another reason, so it pages.
func TestModelDownOnAFailedGPU(t *testing.T) {
	for _, elsewhere := range []bool{false, true} {
		am, err := NewAlertmanager(rules.Alerts(Rules()), rules.Style{})
		if err != nil {
			t.Fatal(err)
		}
		now := []rulesim.Alert{
			onGPU("LLMGPUFailed", "critical", "GPU-0"),
			onGPU("LLMModelOnFailedGPU", "info", "GPU-0", "namespace", "prod", "model_name", "m", "pod", "p", "server", "s"),
			fires("LLMModelDown", "critical", "branch", "engine"),
		}
		if !elsewhere {
			now = append(now, fires("LLMModelOnFailedGPU", "info", "branch", "hardware", "gpu_uuid", "GPU-0"))
		}
		for m := range 20 {
			if err := am.Receive(rulesim.Epoch.Add(time.Duration(m)*time.Minute), now); err != nil {
				t.Fatal(err)
			}
		}
		var paged []string
		for _, n := range to(am.Take(), "llm-critical") {
			paged = append(paged, n.Alerts...)
		}
		if slices.Contains(paged, "LLMModelDown") != elsewhere || !slices.Contains(paged, "LLMGPUFailed") {
			t.Errorf("replicas elsewhere: %t, paged %v", elsewhere, paged)
		}
	}
}
