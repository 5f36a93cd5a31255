package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/promql/parser"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
)

// stage is the time after which a query certainly finds a value that vmalert has recorded.
const stage = 5 * time.Second

// Stages returns, by group, the first stage at which each rule can be evaluated. In stage 0 are the rules that read no
// record of another rule. In stage 1 are the rules that read only records of stage 0, and so on. A group's records come
// before its alerts.
//
// Prometheus evaluates the rules of a group one after the other, and each rule finds the records of earlier rules.
// vmalert writes a group's records only afterwards, so that each rule would read the record of another rule from the
// previous evaluation.
func Stages(groups []Group) map[string][]int {
	stages := map[string][]int{}
	recorded := map[string]int{} // stage of each record so far, by name; other records come from the evaluation before
	for _, g := range groups {
		at := make([]int, 0, len(g.Records)+len(g.Alerts))
		for _, r := range g.Records {
			s := after(recorded, r.Name.Name, r.Expr)
			recorded[r.Name.Name] = max(recorded[r.Name.Name], s)
			at = append(at, s)
		}
		for _, a := range g.Alerts {
			at = append(at, after(recorded, "", append(a.Asks(), a.Condition())...))
		}
		stages[g.Name] = at
	}
	return stages
}

// after returns the first stage at which all records that the expressions read exist. The rule's own record, and
// records that are read with an offset, are from earlier evaluations, so no stage has to wait for them.
func after(recorded map[string]int, itself string, all ...promql.Expr) (s int) {
	for _, e := range all {
		parser.Inspect(e, func(n parser.Node, _ []parser.Node) error {
			if v, ok := n.(*parser.VectorSelector); ok && v.Name != itself && v.OriginalOffset < Interval {
				if at, ok := recorded[v.Name]; ok {
					s = max(s, at+1)
				}
			}
			return nil
		})
	}
	return s
}

// staged splits a group by the stages of its rules.
func (g FileGroup) staged(stages []int) (parts []FileGroup) {
	for s := range slices.Max(stages) + 1 {
		part := FileGroup{Name: g.Name, Interval: g.Interval, EvalOffset: (time.Duration(s) * stage).String()}
		if s > 0 {
			part.Name += fmt.Sprintf("-%d", s)
		}
		for i, r := range g.Rules {
			if stages[i] == s {
				part.Rules = append(part.Rules, r)
			}
		}
		if part.Rules != nil {
			parts = append(parts, part)
		}
	}
	return parts
}
