package engine

import (
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
)

// These are values of the reason label of llm_engine_up, in addition to those of package scrape.
const (
	reasonPending   = "pending" // never a label value; used before the first scrape
	reasonLoading   = "loading"
	reasonDisabled  = "metrics_disabled"
	reasonDuplicate = "duplicate_series"
	reasonEmpty     = "empty_page"
	reasonRouter    = "router"
	reasonNotEngine = "not_an_engine"
	reasonUnknown   = "unknown_engine"
)

// These reasons appear although the metrics page is read and its numbers are served.
const (
	NoWorker  = "no_worker"
	NotLoaded = "not_loaded" // with llm_engine_up 1
)

// Reasons explains every value of the reason label of llm_engine_up: what it means and what to do.
var Reasons = func() []scrape.Explanation {
	all := slices.Concat(scrape.Reasons, []scrape.Explanation{
		{
			Reason: reasonLoading, Meaning: "The engine is still loading its model.",
			Remedy: "Wait. If this takes too long, read the engine's log.",
		},
		{Reason: reasonDisabled, Meaning: "The engine works, but its metrics are switched off."},
		{
			Reason: NoWorker, Meaning: "The metrics belong to a frontend or an endpoint picker that has no worker, so every request to it fails.",
			Remedy: "Check the workers and how the frontend finds them. The frontend's log names the last worker that left. " +
				"An endpoint picker selects workers by the labels of its pool.",
		},
		{
			Reason: NotLoaded, Meaning: "The engine answers and `llm_engine_up` is 1, but the model is not loaded. The next request loads it.",
			Remedy: "Do nothing: a scrape never loads a model. If requests fail, read the engine's log.",
		},
		{
			Reason: reasonDuplicate, Meaning: "The same series appears twice, perhaps with different values.",
			Remedy: "Two engines share one metrics directory, or a proxy joins the metrics of two engines.",
		},
		{
			Reason: reasonEmpty, Meaning: "The endpoint returned no series.",
			Remedy: "Some engines have no series until their first request. Name the engine in the configuration to accept this.",
		},
		{
			Reason: reasonRouter, Meaning: "The metrics belong to a router or gateway that the exporter does not read.",
			Remedy: "Configure the engines behind it as targets.",
		},
		{
			Reason: reasonNotEngine, Meaning: "The metrics belong to a known server that is not an engine: a sidecar, an exporter or a cache.",
			Remedy: "Remove this target. The log and `/engines` name the server, and what to read instead.",
		},
		{
			Reason: reasonUnknown, Meaning: "The metrics are readable, but the engine is not known.",
			Remedy: "Name the engine in the configuration, or describe it under `mappings`.",
		},
	})
	for i := range all {
		all[i].Remedy = strings.TrimSpace(all[i].Remedy + " " + remedies(all[i].Reason))
	}
	return all
}()

// remedies joins the remedies of single engines for a reason.
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

// Remedy returns what a reason of llm_engine_up means, and what to do about it. It is empty for an unknown reason.
func Remedy(reason string) string { return scrape.Remedy(Reasons, reason) }
