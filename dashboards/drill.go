package dashboards

// Drill describes the effects of the drill's incidents on a panel. Tests run the incidents and check the effects.
type Drill struct {
	// Moves lists the incidents that must change the panel after their onset.
	Moves []string
	// Still means that no other incident may change the panel, because the panel would then point to the wrong cause.
	// Only the incidents in May may, but need not, change it.
	Still bool
	May   []string
	// Excuse explains why no incident changes the panel, or gives data to all of its queries. Tests then use invented
	// series: see world_test.go.
	Excuse string
	// Steady means that the panel does not even change with the invented series.
	Steady bool
	// Drifts explains why the panel changes without a fault.
	Drifts string
}

func (p Panel) movesIn(incidents ...string) Panel { p.Drill.Moves = incidents; return p }

// stillElsewhere marks a panel that points to one cause. Apart from the incidents in Moves, only the incidents listed
// in but may change it.
func (p Panel) stillElsewhere(but ...string) Panel { p.Drill.Still, p.Drill.May = true, but; return p }

func (p Panel) notDrilled(why string) Panel { p.Drill.Excuse = why; return p }
func (p Panel) steady() Panel               { p.Drill.Steady = true; return p }
func (p Panel) drifts(why string) Panel     { p.Drill.Drifts = why; return p }

// These are reasons why a panel, or one of its lines, has no data or does not change in the drill.
const (
	noGPU       = "the drill's GPUs do not report it"
	noEngine    = "the drill's engines do not do it"
	noProcess   = "it is about the exporter's process, which the drill does not run"
	noClock     = "it takes real time, which does not pass in the drill"
	stays       = "it does not change in the drill"
	noYesterday = "the drill's history is shorter than a day"
	noneOfThem  = "the drill has no objective on it"
)
