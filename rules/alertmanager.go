package rules

import (
	"fmt"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// Alertmanager is a complete Alertmanager configuration. All alerts that are not ours go to a separate receiver.
type Alertmanager struct {
	Route     Route         `yaml:"route"`
	Inhibit   []InhibitRule `yaml:"inhibit_rules"`
	Receivers []Receiver    `yaml:"receivers"`
	Templates []string      `yaml:"templates"`
}

// AlertmanagerPart is the part that our alerts add to an existing Alertmanager configuration. It has a route to
// receivers that are named after severities, inhibition rules, and grouping that turns each incident into a single
// notification. It never matches other alerts.
type AlertmanagerPart struct {
	Routes    []Route       `yaml:"routes"`
	Inhibit   []InhibitRule `yaml:"inhibit_rules"`
	Receivers []Receiver    `yaml:"receivers"`
	Templates []string      `yaml:"templates"`
}

// Route sends alerts to a receiver.
type Route struct {
	Receiver       string   `yaml:"receiver,omitempty"` // if empty, the parent's receiver
	Matchers       []string `yaml:"matchers,omitempty"`
	GroupBy        []string `yaml:"group_by,omitempty"`
	GroupWait      string   `yaml:"group_wait,omitempty"`
	GroupInterval  string   `yaml:"group_interval,omitempty"`
	RepeatInterval string   `yaml:"repeat_interval,omitempty"`
	Routes         []Route  `yaml:"routes,omitempty"`
}

// InhibitRule mutes targets while a source fires with equal labels. A label that is missing on both sides counts as
// equal. Therefore, every rule also requires that the labels it needs are present.
type InhibitRule struct {
	Source []string `yaml:"source_matchers"`
	Target []string `yaml:"target_matchers"`
	Equal  []string `yaml:"equal"`
}

// Receiver names a destination of notifications. The user adds the settings.
type Receiver struct {
	Name string `yaml:"name"`
}

// These are the title and the text for receivers that people read.
const (
	title = `{{ template "llm.title" . }}`
	text  = `{{ template "llm.text" . }}`
)

// Receivers has an example receiver for each way to reach people, with the texts of the notification template. The
// examples read secrets from files.
const Receivers = `receivers:
  - name: slack
    slack_configs:
      - api_url_file: /etc/alertmanager/secrets/slack-url
        channel: '#llm-oncall'
        send_resolved: true
        color: '{{ if eq .Status "firing" }}danger{{ else }}good{{ end }}'
        title: '` + title + `'
        title_link: ''
        text: '` + text + `'
        fallback: '` + title + `'
  - name: pagerduty
    pagerduty_configs:
      - routing_key_file: /etc/alertmanager/secrets/pagerduty-key
        send_resolved: true
        description: '` + title + `'
        # Its phone app shows the details; without these, all labels and annotations stand there.
        details:
          firing: '` + text + `'
          resolved: ''
          num_firing: '{{ .Alerts.Firing | len }}'
          num_resolved: '{{ .Alerts.Resolved | len }}'
  - name: email
    email_configs:
      - to: llm-oncall@example.com
        from: alertmanager@example.com
        smarthost: smtp.example.com:587
        auth_username: alertmanager@example.com
        auth_password_file: /etc/alertmanager/secrets/smtp-password
        send_resolved: true
        headers:
          Subject: '` + title + `'
        html: ''
        text: '` + text + `'
  - name: teams
    msteamsv2_configs:
      - webhook_url_file: /etc/alertmanager/secrets/teams-url
        send_resolved: true
        title: '` + title + `'
        text: '` + text + `'
  - name: opsgenie
    opsgenie_configs:
      - api_key_file: /etc/alertmanager/secrets/opsgenie-key
        send_resolved: true
        message: '` + title + `' # cut after 130 characters
        description: '` + text + `'
        # A page that is corrected changes its text.
        update_alerts: true
  - name: webhook
    webhook_configs:
      - url_file: /etc/alertmanager/secrets/webhook-url
        send_resolved: true
        # Alertmanager 0.32 or later. Without it, your program gets the alerts as they are, and finds the parts of the text in their annotations.
        # Alertmanager reads what a template renders as YAML: the tab makes it text.
        payload:
          status: '{{ .Status }}'
          key: '{{ .GroupLabels.SortedPairs.Values | join "/" }}'
          title: '{{ "\t" }}` + title + `'
          text: '{{ "\t" }}` + text + `'
`

// TemplateFile names the file of the notification template.
const TemplateFile = "llm-node-exporter.tmpl"

// NewAlertmanager returns the configuration for an Alertmanager that has none yet.
func NewAlertmanager(alerts []*Alert, style Style) Alertmanager {
	const others = "default"
	p := NewAlertmanagerPart(alerts, style)
	return Alertmanager{Route{Receiver: others, Routes: p.Routes}, p.Inhibit, append([]Receiver{{others}}, p.Receivers...), p.Templates}
}

// NewAlertmanagerPart derives routes, receivers and inhibition from the alerts.
func NewAlertmanagerPart(alerts []*Alert, style Style) AlertmanagerPart {
	style = style.WithDefaults()
	severity := func(s slo.Severity) string {
		return fmt.Sprintf("%s=%q", style.Label(SeverityLabel), style.Severities[s])
	}
	group := []string{style.Label(metrics.LabelCluster), style.Label(metrics.LabelNamespace), metrics.LabelModel}
	// A node whose GPUs all fall off the bus is a single incident, whatever models these GPUs serve.
	byNode := []Route{{
		Matchers: []string{fmt.Sprintf("%s=%q", metrics.LabelBranch, Hardware)},
		GroupBy:  []string{style.Label(metrics.LabelCluster), style.Label(metrics.LabelInstance)},
	}}
	// A new fault gets its own page even during an incident, because an update of an old page wakes nobody.
	news := Route{
		Matchers: []string{fmt.Sprintf("alertname=%q", SecondFault.Name)},
		GroupBy:  append([]string{"alertname", metrics.LabelClue}, group...),
	}
	return AlertmanagerPart{
		Routes: []Route{{
			Receiver: "llm-" + style.Severities[slo.Ticket], Matchers: []string{`alertname=~"LLM.+"`}, GroupBy: group,
			Routes: []Route{
				// The first page of an incident goes out at once. Corrections and further alerts follow within a minute.
				{
					Receiver: "llm-" + style.Severities[slo.Page], Matchers: []string{severity(slo.Page)},
					GroupBy: group, GroupWait: "10s", GroupInterval: "1m", RepeatInterval: "4h", Routes: append([]Route{news}, byNode...),
				},
				{
					Receiver: "llm-" + style.Severities[slo.Ticket], Matchers: []string{severity(slo.Ticket)},
					GroupBy: group, GroupWait: "5m", GroupInterval: "30m", RepeatInterval: "24h", Routes: byNode,
				},
				// Informational alerts are not sent. They appear on dashboards and in the split of a page.
				{Receiver: "llm-null", Matchers: []string{severity(slo.Info)}},
			},
		}},
		Inhibit:   inhibit(alerts, style),
		Receivers: []Receiver{{"llm-" + style.Severities[slo.Page]}, {"llm-" + style.Severities[slo.Ticket]}, {"llm-null"}},
		Templates: []string{TemplateFile},
	}
}

// inhibit derives the inhibition rules from Alert.Replaces and Alert.DependsOn. There is one rule for each muting alert
// and set of labels. A cause that replaces a symptom mutes the symptom for the same model. An alert is muted while an
// alert that it depends on fires. There is no other muting.
func inhibit(alerts []*Alert, style Style) []InhibitRule {
	type muting struct {
		source string
		equal  string
	}
	targets := map[muting][]string{}
	equals := map[muting][]string{}
	var order []muting
	mute := func(source *Alert, target string, equal []string) {
		k := muting{source.Name, strings.Join(equal, ",")}
		if targets[k] == nil {
			order = append(order, k)
		}
		targets[k], equals[k] = append(targets[k], target), equal
	}
	for _, a := range alerts {
		if a.Replaces {
			for _, symptom := range a.Explains {
				mute(a, symptom.Name, modelLabels)
			}
		}
		for _, q := range a.DependsOn {
			mute(q.Under, a.Name, q.Equal)
		}
	}
	rules := make([]InhibitRule, 0, len(order))
	for _, k := range order {
		// The label cluster may be missing on both sides, if there is only one cluster. The labels then count as equal.
		var present []string
		for _, l := range equals[k] {
			if l != metrics.LabelCluster && l != metrics.LabelNamespace && l != metrics.LabelPod && l != metrics.LabelInstance {
				present = append(present, fmt.Sprintf("%s!=%q", style.Label(l), ""))
			}
		}
		slices.Sort(targets[k])
		r := InhibitRule{
			Source: append([]string{fmt.Sprintf("alertname=%q", k.source)}, present...),
			Target: append([]string{fmt.Sprintf("alertname=~%q", strings.Join(targets[k], "|"))}, present...),
		}
		for _, l := range equals[k] {
			r.Equal = append(r.Equal, style.Label(l))
		}
		rules = append(rules, r)
	}
	return rules
}

// NotificationTemplate returns a template that reads well on a phone. The title states what users feel, and since when.
// The text states where to look first, what to do first, what changed, and how much of the budget is left. For an alert
// without an objective, it states the meaning and the evidence instead. Two links follow, to the runbook and to the
// dashboard. The text has at most eight lines. Therefore, it has only the names of the incident's other alerts. If the
// message has more than 600 characters, these parts are dropped in order: what changed, the load, the model's own
// dashboard, and the labels in a local address. An address inside the cluster, or on the reader's own machine, becomes
// the command that opens it. The template uses only annotations and labels that all our alerts have. A resolved message
// omits the share of bad events, which is zero at the end, and links to the dashboard at the time of the incident.
// Names that come from engines are escaped, so that they become neither links nor mentions. A page does not resolve
// when it is corrected (see Style.labels). A GPU's alert does not resolve when its reason changes. The title of a
// resolved message is the title of the alert that fired first. A restart is shown only if nothing else changed.
func (s Style) NotificationTemplate() string { return s.renamed(notificationTemplate) }

const notificationTemplate = `{{ define "llm.plain" }}{{ . | reReplaceAll "<" "‹" | reReplaceAll ">" "›" | reReplaceAll "\\]\\(" "] (" }}{{ end }}

{{ define "llm.summary" }}{{ $is := "" }}{{ with .Labels.cluster }}{{ if not (match (printf "^%s/" .) $.Annotations.summary) }}{{ $is = print . "/" }}{{ end }}{{ end -}}
{{ $named := "^\\S+( at the [^:]+)?: " }}{{ with .Labels.model_name }}{{ $named = printf "%s|^\\S*%s( [^:]*)?: " $named (reReplaceAll "\\W" "." .) }}{{ end -}}
{{ if not (match $named .Annotations.summary) }}{{ with .Labels.namespace }}{{ $is = print $is . }}{{ if $.Labels.model_name }}{{ $is = print $is "/" }}{{ else }}{{ $is = print $is ": " }}{{ end }}{{ end }}{{ with .Labels.model_name }}{{ $is = print $is . ": " }}{{ end }}{{ end -}}
{{ $is = print $is .Annotations.summary }}{{ if eq .Status "resolved" }}{{ $is = $is | reReplaceAll ": \\S+% of (.+) \\(.+\\)$" ": $1" }}{{ end }}{{ template "llm.plain" $is }}{{ end }}

{{ define "llm.title" -}}
{{ $about := .Alerts.Firing }}{{ if eq .Status "resolved" }}Resolved: {{ $about = .Alerts.Resolved }}{{ end -}}
{{ $main := -1 }}{{ range $i, $a := $about }}{{ if and (lt $main 0) (match "^Look first" $a.Annotations.split) }}{{ $main = $i }}{{ end }}{{ end }}{{ if lt $main 0 }}{{ $main = 0 }}{{ end -}}
{{ if eq .Status "resolved" }}{{ $first := (index $about $main).StartsAt }}{{ range $i, $a := $about }}{{ if $a.StartsAt.Before $first }}{{ $main = $i }}{{ $first = $a.StartsAt }}{{ end }}{{ end }}{{ end -}}
{{ range $i, $a := $about }}{{ if eq $i $main }}{{ template "llm.summary" $a }}{{ if and (eq $a.Status "firing") (not (match "\\(in \\d+h, " $a.Annotations.summary)) }}, since {{ with $a.Annotations.since }}{{ . }}{{ else }}{{ $a.StartsAt.Format "15:04 MST" }}{{ end }}{{ end }}{{ end }}{{ end }}
{{- end }}

{{ define "llm.text" -}}
{{ $main := -1 }}{{ range $i, $a := .Alerts.Firing }}{{ if and (lt $main 0) (match "^Look first" $a.Annotations.split) }}{{ $main = $i }}{{ end }}{{ end }}{{ if lt $main 0 }}{{ $main = 0 }}{{ end -}}
{{ $name := "" }}{{ $where := "" }}{{ range $i, $a := .Alerts.Firing }}{{ if eq $i $main }}{{ $name = .Labels.alertname }}{{ if match " \\d+ in all\\.\n" .Annotations.split }}{{ $where = "." }}{{ end }}{{ end }}{{ end -}}
{{ if not $where }}{{ $rest := "." }}{{ range .Alerts.Firing }}{{ with .Labels }}{{ $at := or .pod .server .instance .model_name }}{{ if .gpu }}{{ $at = print "GPU " .gpu " on " .instance }}{{ end }}{{ if not (match (printf ", \\Q%s\\E(,|$)" $at) $where) }}{{ if match "(, .*){3}" $where }}{{ $rest = " …" }}{{ else }}{{ $where = print $where ", " $at }}{{ end }}{{ end }}{{ end }}{{ end }}{{ $where = print (reReplaceAll "^, " ": " $where) $rest }}{{ end -}}
{{ $more := "" }}{{ $also := "" }}{{ range .Alerts.Firing }}{{ if and (ne .Labels.alertname $name) (not (match (printf "\\b%s\\b" .Labels.alertname) $also)) }}{{ $also = printf "%s %s," $also .Labels.alertname }}{{ end }}{{ end -}}
{{ if gt (len .Alerts.Firing) 1 }}{{ if not $also }}{{ $more = print (len .Alerts.Firing) " alerts of this kind" $where "\n" }}{{ else if eq (len .Alerts.Firing) 2 }}{{ $more = print "Also:" ($also | reReplaceAll ",$" "") ".\n" }}{{ else }}{{ $more = print "Also:" ($also | reReplaceAll "^((?: \\S+){3}) .+" "$1 …") " " (len .Alerts.Firing) " alerts in all.\n" }}{{ end }}{{ end -}}
{{ range $i, $r := .Alerts.Resolved }}{{ $on := gt $i 2 }}{{ range $.Alerts.Firing }}{{ if and (or .Labels.suspect .Labels.gpu_uuid) (eq .Labels.alertname $r.Labels.alertname) (eq .Labels.gpu_uuid $r.Labels.gpu_uuid) }}{{ $on = true }}{{ end }}{{ end }}{{ if not $on -}}
{{ if and (eq $.Status "resolved") (eq (len $.Alerts.Resolved) 1) }}{{ $more = print "It began " (.StartsAt.Format "15:04 MST") " and ended " (.EndsAt.Format "15:04 MST") ".\n" }}{{ else }}{{ $more = print $more "Resolved " (.EndsAt.Format "15:04 MST") ": " .Labels.alertname ".\n" }}{{ end }}{{ end }}{{ end -}}
{{ range $i, $a := .Alerts.Firing }}{{ if eq $i $main -}}
{{ $lines := "1" }}{{ $head := "" }}{{ if match "\nDo first, |stands out yet" .Annotations.split }}{{ $lines = "5" }}{{ if gt (len $.Alerts.Firing) 1 }}{{ $lines = "4" }}{{ end }}{{ else }}{{ $head = print .Annotations.description "\n" }}{{ end -}}
{{ $links := print "Runbook: " (.Annotations.runbook_url | reReplaceAll "%3A" ":" | reReplaceAll "^(https?)://([^./]+)\\.([^./]+)\\.svc[^:/]*:(\\d+)/" "kubectl -n $3 port-forward svc/$2 $4, then $1://localhost:$4/" | reReplaceAll "^(https?://localhost:(\\d+)/)" "kubectl -n NAMESPACE port-forward ds/llm-node-exporter $2, then $1") "\n" }}{{ with .Annotations.dashboard_url }}{{ $links = print $links "Dashboard: " . "\n" }}{{ end -}}
{{ $named := "^\\S+( at the [^:]+)?: " }}{{ with .Labels.model_name }}{{ $named = printf "%s|^\\S*%s( [^:]*)?: " $named (reReplaceAll "\\W" "." .) }}{{ end }}{{ $title := print .Annotations.summary ", since 15:04 UTC" }}{{ if not (match $named $title) }}{{ $title = print .Labels.cluster "/" .Labels.namespace "/" .Labels.model_name ": " $title | reReplaceAll "^/+|/([/:])" "$1" }}{{ end -}}
{{ $split := .Annotations.split | reReplaceAll "(?m)^Changed: restarts in 6h \\d+; " "Changed: " | reReplaceAll " tokens per request (\\d)" " tokens $1" | reReplaceAll "(?m)^([^LD].{119}).+$" "$1…" | reReplaceAll "(?m)[;,][^;,\n]{0,40}…$" " …" | reReplaceAll "(?m) \\S+…$" " …" -}}
{{ $first := printf "^((?:.*\n){%s})(?s:.+)" $lines -}}
{{ range stringSlice "(?m)^Changed[^:]*: .*\n" "(?m)^(?:Load|Replicas needed): .*\n" "(?m)^Your dashboard: .*\n" "(?m)^Also: .*\n" }}{{ if match "^(?s:.{601})" (print $title $head ($split | reReplaceAll $first "$1") $links $more) }}{{ $split = $split | reReplaceAll . "" }}{{ $more = $more | reReplaceAll . "" }}{{ end }}{{ end -}}
{{ if match "^(?s:.{601})" (print $title $head ($split | reReplaceAll $first "$1") $links $more) }}{{ $links = $links | reReplaceAll "(//localhost:\\d+/[^?\\s]+)\\?\\S+" "$1" }}{{ end -}}
{{ if not (match "(?m)^Budget of " $split) }}{{ range stringSlice "(?m)^(Look first at: [a-z]+[.] .+[.]|[^L].+[.]) [A-Z][^.\n]*[.]$" "(?m)^(Look first at: [a-z]+[.] .+[.]|[^L].+[.]) [A-Z][^.\n]*[.]$" }}{{ if match "^(?s:.{601})" (print $title $head ($split | reReplaceAll $first "$1") $links $more) }}{{ $head = $head | reReplaceAll . "$1" }}{{ $split = $split | reReplaceAll . "$1" }}{{ end }}{{ end }}{{ range stringSlice "^((?s:.*\n)?)[^LD\n].*\n$" "^((?s:.*\n)?)[^LD\n].*\n$" "^((?s:.*\n)?)[^LD\n].*\n$" "^((?s:.*\n)?)[^LD\n].*\n$" }}{{ if match "^(?s:.{601})" (print $title $head ($split | reReplaceAll $first "$1") $links $more) }}{{ $split = $split | reReplaceAll $first "$1" | reReplaceAll . "$1" }}{{ end }}{{ end }}{{ end -}}
{{ template "llm.plain" (print $head ($split | reReplaceAll $first "$1")) }}{{ $links }}{{ end }}{{ end -}}
{{ template "llm.plain" $more }}{{ if eq .Status "resolved" }}{{ $main := index .Alerts.Resolved 0 }}{{ range .Alerts.Resolved }}{{ if .StartsAt.Before $main.StartsAt }}{{ $main = . }}{{ end }}{{ end -}}
{{ with $main.Annotations.dashboard_url }}Dashboard: {{ if $main.Annotations.since }}{{ . }}{{ else }}{{ reReplaceAll "\\bfrom=\\d+" (printf "from=%d" ($main.StartsAt.Add -1800000000000).UnixMilli) . }}{{ end }}{{ printf "&to=%d" ($main.EndsAt.Add 1800000000000).UnixMilli }}
{{ end }}{{ end }}
{{- end }}
`
