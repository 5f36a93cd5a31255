package report

import _ "embed"

// FirstScore is the section of drill-scores.md about the first score with simulated engines that behave like real
// engines. The score was measured once, with the rules as they were then. Regeneration does not change it.
//
//go:embed first.md
var FirstScore string
