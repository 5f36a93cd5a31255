package engine

import (
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/scrape"
)

// engineFormat lists the known deviations of all dialects' servers from the text format, because a metrics page is read
// before its server is known.
var engineFormat = scrape.Format{Repair: repairAll, Restore: restoreAll, Refusal: refusedBy, Paths: pagePaths}

// pagePaths lists the paths at which engines serve their metrics pages, without a slash at the end. plainPath comes last: see locate.
var pagePaths = func() (all []string) {
	for _, d := range builtin {
		for _, path := range d.Paths {
			if path = strings.TrimSuffix(path, "/"); path != scrape.PlainPath && !slices.Contains(all, path) {
				all = append(all, path)
			}
		}
	}
	return append(all, scrape.PlainPath)
}()

// repairAll corrects the known mistakes of all engines.
func repairAll(body []byte) (_ []byte, err error) {
	for _, d := range builtin {
		if d.Repair != nil {
			if body, err = d.Repair(body); err != nil {
				return nil, err
			}
		}
	}
	return body, nil
}

// restoreAll restores the names that an engine itself gives its families.
func restoreAll(byName map[string]*scrape.Family) {
	for _, d := range builtin {
		if d.Restore != nil {
			d.Restore(byName)
		}
	}
}

// refusedBy returns an engine's reason for an answer other than 200. It is empty if no engine has a reason.
func refusedBy(status int, kind, message string) string {
	for _, d := range builtin {
		if d.Refusal != nil {
			if reason := d.Refusal(status, kind, message); reason != "" {
				return reason
			}
		}
	}
	return ""
}
