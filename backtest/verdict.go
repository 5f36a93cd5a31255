package backtest

import (
	"context"
	"fmt"
	"slices"

	"github.com/prometheus/common/model"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promapi"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// verdicts adds to each page where it would have said to look first, as far as the rules had recorded it.
func (h *history) verdicts(ctx context.Context, rows []Row) error {
	for i := range rows {
		o, _ := h.objective(rows[i].Objective)
		for j := range rows[i].Pages {
			page := &rows[i].Pages[j]
			expr := fmt.Sprintf("%s{%s=%q,%s=%q}", metrics.RecordedSuspect.Name, metrics.LabelNamespace, rows[i].Namespace, metrics.LabelModel, rows[i].Model)
			value, _, _, err := h.API.Query(ctx, expr, page.From)
			if err := promapi.Explain(h.URL, expr, err); err != nil {
				return err
			}
			page.Verdict = verdict(value.(model.Vector), o.Signal)
		}
	}
	return nil
}

// verdict returns branch and clue of the first suspect that explains what an objective measures; "" if there is none.
func verdict(suspects model.Vector, of slo.Signal) string {
	delays := rules.FirstToken
	if of == slo.ITL || of == slo.ProbeITL {
		delays = rules.NextToken
	}
	suspects = slices.DeleteFunc(suspects, func(s *model.Sample) bool {
		d := rules.Delays(s.Metric[metrics.LabelDelays])
		return d != "" && d != delays
	})
	if len(suspects) == 0 {
		return ""
	}
	first := slices.MinFunc(suspects, func(a, b *model.Sample) int {
		return slices.Compare([]byte(a.Metric[metrics.LabelOrder]), []byte(b.Metric[metrics.LabelOrder]))
	})
	return fmt.Sprintf("%s: %s", first.Metric[metrics.LabelBranch], first.Metric[metrics.LabelClue])
}
