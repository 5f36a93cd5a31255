package play

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	amconfig "github.com/prometheus/alertmanager/config"
	"github.com/prometheus/alertmanager/template"

	"github.com/llm-node-exporter/llm-node-exporter/drill/incident"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// fields returns the title and the text in the receivers of examples/prometheus, by receiver.
func fields(c *amconfig.Config) map[string][2]string {
	all := map[string][2]string{}
	for _, r := range c.Receivers {
		for _, s := range r.SlackConfigs {
			all[r.Name] = [2]string{s.Title, s.Text}
		}
		for _, s := range r.PagerdutyConfigs {
			text, _ := s.Details["firing"].(string)
			all[r.Name] = [2]string{s.Description, text}
		}
		for _, s := range r.EmailConfigs {
			if s.HTML != "" {
				text := "an HTML part would be shown in place of the text"
				all[r.Name] = [2]string{s.Headers["Subject"], text}
				continue
			}
			all[r.Name] = [2]string{s.Headers["Subject"], s.Text}
		}
		for _, s := range r.MSTeamsV2Configs {
			all[r.Name] = [2]string{s.Title, s.Text}
		}
		for _, s := range r.OpsGenieConfigs {
			all[r.Name] = [2]string{s.Message, s.Description}
		}
		for _, s := range r.WebhookConfigs {
			same := func(field string) (string, error) { return field, nil }
			copied, _ := template.DeepCopyWithTemplate(s.Payload, same) // its output has strings as keys
			payload, _ := copied.(map[string]any)
			rendered := [2]string{}
			rendered[0], _ = payload["title"].(string)
			rendered[1], _ = payload["text"].(string)
			all[r.Name] = rendered
		}
	}
	return all
}

// TestReceivers loads the example of receivers as Alertmanager does, and renders the messages of a play: the title and
// the text unchanged, within eight lines.
func TestReceivers(t *testing.T) {
	t.Parallel()
	example, err := os.ReadFile("../../examples/prometheus/receivers.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config, err := amconfig.Load("route: {receiver: slack}\n" + string(example))
	if err != nil {
		t.Fatal(err)
	}
	shows := fields(config)
	for _, name := range []string{"slack", "pagerduty", "email", "teams", "opsgenie", "webhook"} {
		if shows[name][0] == "" {
			t.Errorf("no receiver %s", name)
		}
	}
	am, sent := ended(t)
	for _, n := range sent {
		if n.Title == "" || !n.Resolved && !strings.Contains(n.Text, "\nRunbook: ") {
			t.Errorf("%s: %s", n.Receiver, n.Message())
		}
		render := func(field string) string {
			text, err := am.words.ExecuteTextString(field, n.data)
			if err != nil {
				t.Fatal(err)
			}
			return strings.TrimSpace(text)
		}
		for name, show := range shows {
			title, text := render(show[0]), render(show[1])
			if title != strings.TrimSpace(n.Title) || text != strings.TrimSpace(n.Text) || 1+strings.Count(title+"\n"+text, "\n") > 8 {
				t.Errorf("%s shows\n%s\n%s\nof\n%s", name, title, text, n.Message())
			}
			if len([]rune(title)) > 130 { // Opsgenie cuts longer texts
				t.Errorf("%s: a title of %d characters: %s", name, len([]rune(title)), title)
			}
		}
		payload, err := template.DeepCopyWithTemplate(config.Receivers[len(config.Receivers)-1].WebhookConfigs[0].Payload,
			func(s string) (string, error) { return am.words.ExecuteTextString(s, n.data) })
		is, _ := payload.(map[string]any)
		if title, text := fmt.Sprint(is["title"]), fmt.Sprint(is["text"]); err != nil ||
			strings.TrimSpace(title) != strings.TrimSpace(n.Title) || strings.TrimSpace(text) != strings.TrimSpace(n.Text) {
			t.Errorf("%v: the webhook gets %v", err, payload)
		}
	}
}

// ended plays an incident that ends, and returns the notifications about it to people.
func ended(t *testing.T) (*Alertmanager, []Notification) {
	t.Helper()
	in, err := incident.Find(incident.Incidents(), "black-hole")
	if err != nil {
		t.Fatal(err)
	}
	p, err := brief(in)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	// Every alert ends with the play.
	for m := range 10 {
		if err := p.Alertmanager.Receive(p.World.At(p.Onset+p.Incident.Lasts+time.Duration(m)*rules.Interval), nil); err != nil {
			t.Fatal(err)
		}
	}
	var people []Notification
	resolved := false
	for _, n := range append(p.Sent, p.Alertmanager.Take()...) {
		if n.Receiver != "llm-null" {
			people = append(people, n)
			resolved = resolved || n.Resolved
		}
	}
	if len(people) < 2 || !resolved {
		t.Fatalf("%d messages, resolved: %t", len(people), resolved)
	}
	return p.Alertmanager, people
}

// brief plays an incident until a page is due, after a history as long as the longest window of a fast pair.
func brief(in incident.Incident) (*Play, error) {
	in.History, in.Lasts = 65*time.Minute, 5*time.Minute
	return Run(in, Options{Seed: 1})
}
