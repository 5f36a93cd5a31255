package dashboards_test

import (
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

func TestMain(m *testing.M) {
	e2e.Main(m, "RenderIsStable|Drill|Calm|Undrilled|FirstScreen|Timelines|Fleets|YoungSeries|ChangesHappen|ARollout|ABurn|OnlyWhatBurns|TheWorst|AModelThat|SlowedGPUs|HealthyEngine|Nothing|PagesAreTheFirst|Suspects|ObjectivesAreCounted|QuantilesOfTwo|ChosenNodes|AtThree")
}
