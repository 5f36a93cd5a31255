package main

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Outcome is the result of a play. Times are in seconds since the fault. If there is a second fault, due and paged
// count from the second fault.
type Outcome struct {
	Play      string              `json:"play"`
	Says      string              `json:"says"`
	Commit    string              `json:"commit"`
	Begin     time.Time           `json:"begin"`
	End       time.Time           `json:"end"`
	Load      [2]string           `json:"load_average"`           // at the beginning and at the end
	Slow      int                 `json:"slow"`                   // duration of a request, relative to the machine of the first scores
	Fault     float64             `json:"fault_seconds"`          // since the beginning
	Then      float64             `json:"then_seconds,omitempty"` // time of the second fault, since the first
	Right     []rules.Branch      `json:"right"`
	Hurt      []Hurt              `json:"hurt"`
	Requests  map[string][]int    `json:"requests"` // number of requests by outcome, before and after the fault
	Due       float64             `json:"due_seconds"`
	Paged     float64             `json:"paged_seconds"` // -1 means never
	PagedBy   []string            `json:"paged_by"`
	PageSays  []string            `json:"page_says"` // first lines of the first page
	PageRight bool                `json:"page_right"`
	Triage    map[string]Said     `json:"triage"`          // alone, with Prometheus
	Rival     map[string][]string `json:"rival,omitempty"` // findings of vllm-doctor before the fault and with triage, from a page and from Prometheus
	Told      []Notification      `json:"told"`
	Healthy   []string            `json:"alerts_in_health,omitempty"` // alerts that were pending or fired before the fault
	Void      []string            `json:"void,omitempty"`             // why the play is void
}

// Said is the output of exporter triage.
type Said struct {
	At      float64         `json:"at"`
	First   string          `json:"first"`
	Right   bool            `json:"right"`
	Verdict json.RawMessage `json:"verdict"`
}

// firstLine returns the sentence in which a page or a triage names where to look first. If there is no such sentence,
// it returns the first line.
func firstLine(text string) string {
	i := max(0, strings.Index(text, "Look first at: "))
	line, _, _ := strings.Cut(text[i:], "\n")
	if wrapped, _, found := strings.Cut(text[i:], "confidence)"); found {
		line = wrapped + "confidence)"
	}
	return strings.Join(strings.Fields(line), " ")
}

// first returns the first page, sent at a time or later, with an alert that also began then or later.
func first(told []Notification, from float64) *Notification {
	i := slices.IndexFunc(told, func(n Notification) bool {
		return n.Receiver == "llm-critical" && n.At >= from && len(n.news(from)) > 0
	})
	if i < 0 {
		return nil
	}
	return &told[i]
}

// judge scores the play.
func (o *Outcome) judge(p Play, records []Record, told []Notification) {
	o.Told = told
	for i := range o.Told {
		o.Told[i].At -= o.Fault
		for j := range o.Told[i].Alerts {
			o.Told[i].Alerts[j].Began -= o.Fault
		}
	}
	until := 0.0
	for _, r := range records {
		until = max(until, r.Sent)
	}
	if o.Fault == 0 {
		return
	}
	o.Void = append(o.Void, suffering(records, o.Fault)...)
	for _, objective := range promises() {
		h := hurt(records, objective, o.Fault+o.Then, until)
		o.Hurt = append(o.Hurt, h)
		if h.Due >= 0 && (o.Due < 0 || h.Due < o.Due) {
			o.Due = h.Due
		}
	}
	for _, n := range told {
		if n.At < 0 && n.Receiver == "llm-critical" {
			o.Void = append(o.Void, "paged before the fault")
		}
	}
	o.Requests = ends(records, o.Fault)
	if page := first(o.Told, o.Then); page != nil {
		o.Paged = page.At - o.Then
		for _, a := range page.news(o.Then) {
			o.PagedBy = append(o.PagedBy, a.Labels["alertname"])
			says := firstLine(a.Annotations["split"])
			o.PageSays = append(o.PageSays, says)
			for _, b := range p.Right {
				o.PageRight = o.PageRight || strings.HasPrefix(says, "New: "+string(b)+".") ||
					strings.HasPrefix(says, "Look first at: "+string(b)+".") ||
					!strings.HasPrefix(says, "Look first at: ") && a.Labels["branch"] == string(b)
			}
		}
	}
}

// wrong reports whether the page did not name a right cause, was missing, or was sent without a reason. A void play is
// not wrong.
func (o *Outcome) wrong() bool {
	paged := o.Paged >= 0
	return o.Void == nil && (paged && !o.PageRight || !paged && o.Due >= 0 && o.Right != nil)
}

// ends counts requests by how they ended, before and after the fault.
func ends(records []Record, fault float64) map[string][]int {
	counts := map[string][]int{}
	for _, r := range records {
		end := strconv.Itoa(r.Status)
		switch {
		case r.End == 0:
			end = "under way"
		case r.Cancelled:
			end = "gave up"
		case r.Error != "" && r.Status == 200:
			end = "200, then an error"
		case r.Status == 0:
			end = "no answer"
		}
		if counts[end] == nil {
			counts[end] = make([]int, 2)
		}
		if r.Sent >= fault {
			counts[end][1]++
		} else {
			counts[end][0]++
		}
	}
	return counts
}

// row returns the play's line for the table in docs/real.md.
func (o *Outcome) row() string {
	span := func(seconds float64) string {
		if seconds < 0 {
			return "-"
		}
		whole := int(math.Round(seconds))
		return fmt.Sprintf("%d:%02d", whole/60, whole%60)
	}
	mark := func(right bool) string {
		switch {
		case o.Right == nil, o.Fault == 0:
			return ""
		case right:
			return "right: "
		default:
			return "wrong: "
		}
	}
	void := ""
	if len(o.Void) > 0 {
		void = "void: " + strings.Join(o.Void, "; ")
	}
	if len(o.Healthy) > 0 {
		void += " in health: " + strings.Join(o.Healthy, "; ")
	}
	slices.Sort(o.PageSays)
	pageMark := mark(o.PageRight)
	if o.Due < 0 && o.Paged < 0 { // no page was due, and none came
		pageMark = ""
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s%s %s | %s%s | %s%s | %s |", o.Play, o.Begin.Format("15:04"), span(o.Due), span(o.Paged),
		pageMark, strings.Join(slices.Compact(slices.Clone(o.PagedBy)), ", "), strings.Join(slices.Compact(o.PageSays), " / "),
		mark(o.Triage["alone"].Right), o.Triage["alone"].First, mark(o.Triage["prometheus"].Right), o.Triage["prometheus"].First, void)
}

// loadAverage returns the load of the machine.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	return strings.Join(strings.Fields(string(text))[:3], " ")
}

// write stores a value as JSON.
func write(file string, value any) error {
	text, err := json.MarshalIndent(value, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o600)
}
