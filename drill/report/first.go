package report

import _ "embed"

// FirstScore is the section of drill-scores.md about the first score with simulated engines that behave like real
// engines. It was measured once, with the rules of that day. Regeneration does not change it.
//
//go:embed first.md
var FirstScore string
