package rules_test

import (
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

func TestMain(m *testing.M) {
	e2e.Main(m, "WithPromtool|WhenTheFormula|TotalOutage|CostsLittle|PeriodRatio|LessThanSloth|Downtime|Drift|FewRequests|TwoTiers|ClustersDo|ExportersMay|FleetPages|BelowBudget|OneBadRequest|TitlesShow|SinceThe|ManySlow|Disturbances|CounterReset|ExporterRestart|PageEnds|OnlyTheModel|ZeroAndAbsent|ProbesAre|Releases|Regression|ChangesAre|Scenarios|Bursts|Split|InOrder|Exhaustion|SmallNumbers|Usual|TestVerdict|Victoria|Week|BesideItsEngines|CorrectedPage|EnginesCountOnce|Inhibition|Muting|TestAlerts$|RollBack")
}
