package scale

import (
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// stage is how long what a rule records takes until vmalert has written it, and vmselect finds it.
const stage = 5 * time.Second

// word finds the names in a query.
var word = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)

// A stagedGroup is a group that vmalert evaluates at a time of its own in each interval.
type stagedGroup struct {
	Name       string           `yaml:"name"`
	Interval   string           `yaml:"interval"`
	EvalOffset string           `yaml:"eval_offset"`
	Rules      []rules.FileRule `yaml:"rules"`
}

// split tries what would help vmalert, which writes a record when the next rules of the group are already evaluated: they read that of the
// evaluation before. Here, rules that read no other's record are evaluated first, five seconds later those that read only these, and so
// on.
func split(f rules.File) (staged struct {
	Groups []stagedGroup `yaml:"groups"`
}) {
	stages := stagesOf(f)
	for i, g := range f.Groups {
		for s := range slices.Max(stages[i]) + 1 {
			part := stagedGroup{Name: fmt.Sprintf("%s-%d", g.Name, s), Interval: g.Interval, EvalOffset: (time.Duration(s) * stage).String()}
			for j, r := range g.Rules {
				if stages[i][j] == s {
					part.Rules = append(part.Rules, r)
				}
			}
			if part.Rules != nil {
				staged.Groups = append(staged.Groups, part)
			}
		}
	}
	return staged
}

// stagesOf returns the stage of each rule, by group and place.
func stagesOf(f rules.File) [][]int {
	stages := make([][]int, len(f.Groups))
	for i, g := range f.Groups {
		stages[i] = make([]int, len(g.Rules))
	}
	for again := true; again; { // until no rule has to wait longer
		again = false
		recorded := map[string]int{} // by name, as far as the order has come
		for i, g := range f.Groups {
			for j, r := range g.Rules {
				at := 0
				for _, name := range word.FindAllString(r.Expr, -1) {
					if s, ok := recorded[name]; ok && name != r.Record {
						at = max(at, s+1)
					}
				}
				again = again || at != stages[i][j]
				stages[i][j] = at
				if r.Record != "" {
					recorded[r.Record] = max(recorded[r.Record], at)
				}
			}
		}
	}
	return stages
}
