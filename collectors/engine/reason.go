package engine

import (
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
)

// Values of the reason label of llm_engine_up, beside those of package scrape.
const (
	reasonPending   = "pending" // never a label value: before the first scrape
	reasonLoading   = "loading"
	reasonDisabled  = "metrics_disabled"
	reasonDuplicate = "duplicate_series"
	reasonEmpty     = "empty_page"
	reasonRouter    = "router"
	reasonNotEngine = "not_an_engine"
	reasonUnknown   = "unknown_engine"
)

// Reasons that come with the numbers of a page that is read.
const (
	NoWorker  = "no_worker"
	NotLoaded = "not_loaded" // with llm_engine_up 1
)

// Reasons explains every value of the reason label of llm_engine_up: what it means and what to do.
var Reasons = func() []scrape.Explanation {
	all := slices.Concat(scrape.Reasons, []scrape.Explanation{
		{Reason: reasonLoading, Meaning: "The engine is still loading its model.", Remedy: "Wait; if it lasts, see the engine's log."},
		{Reason: reasonDisabled, Meaning: "The engine serves, but its metrics are switched off."},
		{Reason: NoWorker, Meaning: "The page is that of a frontend or an endpoint picker, and no worker is behind it: every request to it fails.",
			Remedy: "Check its workers and how it finds them: its log names the last worker that left; its pool selects workers by label."},
		{Reason: NotLoaded, Meaning: "The engine answers and `llm_engine_up` is 1, but the model is not loaded. The next request loads it.",
			Remedy: "Nothing: a scrape never loads a model. If requests fail, look at the engine's log."},
		{Reason: reasonDuplicate, Meaning: "The page has one series twice, perhaps with different values.",
			Remedy: "Two engines share one metrics directory, or a proxy joins their pages."},
		{Reason: reasonEmpty, Meaning: "The page has no series.",
			Remedy: "Some engines are silent until the first request. Name the engine in the configuration to accept that."},
		{Reason: reasonRouter, Meaning: "The page belongs to a router or gateway that is not read.", Remedy: "Make the engines behind it the targets."},
		{Reason: reasonNotEngine, Meaning: "The page belongs to a known server that is no engine: a sidecar, an exporter, a cache.",
			Remedy: "Take it off the targets. The log and `/engines` name the server, and what to read instead."},
		{Reason: reasonUnknown, Meaning: "The page is readable, but no known engine wrote it.",
			Remedy: "Name the engine in the configuration, or describe it under `mappings`."},
	})
	for i := range all {
		all[i].Remedy = strings.TrimSpace(all[i].Remedy + " " + remedies(all[i].Reason))
	}
	return all
}()

// remedies joins what single engines need about a reason.
func remedies(reason string) string {
	var all []string
	for _, d := range builtin {
		if d.Remedies[reason] != "" {
			all = append(all, d.Remedies[reason])
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Remedy returns what a reason of llm_engine_up means, and what to do about it; empty for what is none.
func Remedy(reason string) string { return scrape.Remedy(Reasons, reason) }
