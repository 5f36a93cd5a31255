package rulesim

import (
	"time"

	"github.com/prometheus/prometheus/promql"
)

// Range evaluates an expression from one time to another, as for a graph. It also returns the number of samples read.
func (s *Sim) Range(expr string, from, to time.Time, step time.Duration) (promql.Matrix, int64, error) {
	q, err := s.engine.NewRangeQuery(s.ctx, s.db, nil, expr, from, to, step)
	if err != nil {
		return nil, 0, err
	}
	defer q.Close()
	res := q.Exec(s.ctx)
	if res.Err != nil {
		return nil, 0, res.Err
	}
	m, err := res.Matrix()
	if err != nil {
		return nil, 0, err
	}
	copied := make(promql.Matrix, len(m)) // the engine reuses its points
	for i, series := range m {
		copied[i] = promql.Series{Metric: series.Metric, Floats: append([]promql.FPoint(nil), series.Floats...)}
	}
	return copied, q.Stats().Samples.TotalSamples, nil
}
