package triage

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// burn is an objective that burns. gateway means that gateways count it, and elsewhere that the engines meet it.
type burn struct {
	signal             slo.Signal
	gateway, elsewhere bool
	over               bool // the objective burned minutes ago, but the readings show that the burn is over
}

// goesOn reports whether an objective still burned between the readings.
func (b burn) goesOn() bool { return !b.over }

// explained reports whether the delays or failures of a suspect explain the burn, as in the rules. A burn that only
// gateways count is not due to a delay in the engines, and a delay at a gateway does not affect the objectives of
// engines.
func (b burn) explained(d rules.Delays, wait bool) bool {
	switch d {
	case "", rules.Failures:
	case rules.AtGateway:
		if !b.gateway && b.signal != slo.ProbeTTFT {
			return false
		}
	default:
		if b.elsewhere {
			return false
		}
	}
	return d.Explain(b.signal, wait)
}

// symptoms adds the symptoms that users notice. It returns the objectives that burn, the worst first. The list is nil
// if no objective had events, and empty if no objective burns. few lists the objectives of which a large share of
// events was bad, but too few events for a verdict.
func (j *judge) symptoms(m subject, v *Verdict) (burns, few []burn, err error) {
	burns, few, counted, err := j.burning(m, v)
	if err != nil {
		return nil, nil, err
	}
	late := func(one ...slo.Signal) bool {
		return slices.ContainsFunc(burns, func(b burn) bool { return b.goesOn() && slices.Contains(one, b.signal) })
	}
	switch first, next := late(slo.TTFT, slo.QueueTime, slo.ProbeTTFT), late(slo.ITL, slo.TPOT, slo.ProbeITL); {
	case counted < 0.5 && len(burns) == 0:
		burns = nil
		v.Symptoms = append(v.Symptoms, "No objective counted an event between the readings, so nothing shows what is too slow.")
	case len(burns) == 0 && v.Health == Healthy:
		v.Symptoms = append(v.Symptoms, "No objective burns its budget.")
	case first && next:
		share := promql.Vector(metrics.RecordedEvidence, append(m.matchers(), promql.Eq(metrics.LabelFact, rules.QueueShare))...)
		waiting, err := j.query(promql.Or(promql.Gt(share, promql.Num(0.5)), // a queue may be empty at the moments of both readings
			promql.Sum(nil, promql.Vector(metrics.RequestsWaiting, m.matchers()...))))
		if err != nil {
			return nil, nil, err
		}
		switch {
		case len(waiting) == 0: // frontends do not report queues
			v.Symptoms = append(v.Symptoms, "First and later tokens are late.")
		case slices.ContainsFunc(waiting, func(w engine.Sample) bool { return w.F > 0 }):
			v.Symptoms = append(v.Symptoms, "First and later tokens are late, and requests wait.")
		default:
			v.Symptoms = append(v.Symptoms, "First and later tokens are late, although no request waits.")
		}
	case next:
		v.Symptoms = append(v.Symptoms, "First tokens are on time and later tokens are late, so the delay is in decode.")
	case first:
		v.Symptoms = append(v.Symptoms, "First tokens are late and later tokens are on time, so the delay is before decode.")
	case late(slo.Availability, slo.ProbeAvailability):
		v.Symptoms = append(v.Symptoms, "Requests fail, but no objective for tokens burns.")
	}
	return burns, few, j.means(m, v)
}

// burning adds a symptom for each objective that burns, and returns these objectives, the worst first, and the number
// of users' events. If too few events are bad for a burn, but they are a large share of all events, a healthy model
// becomes Unknown.
func (j *judge) burning(m subject, v *Verdict) (burns, few []burn, counted float64, err error) {
	own := m.matchers()
	rates, err := j.query(promql.Vector(rate5m, own...))
	if err != nil {
		return nil, nil, 0, err
	}
	burns = []burn{}
	slices.SortStableFunc(rates, func(a, b engine.Sample) int { return cmp.Compare(b.F, a.F) })
	for _, r := range rates {
		name, role := r.Metric.Get(metrics.LabelSLO), r.Metric.Get(metrics.LabelRole)
		objective := append(slices.Clone(own), promql.Eq(metrics.LabelSLO, name), promql.Eq(metrics.LabelRole, role))
		s, err := j.spent(name, objective)
		if err != nil {
			return nil, nil, 0, err
		}
		if !s.signal.OfProbes() {
			counted += s.events
		}
		one := burn{s.signal, role == metrics.GatewayRole, role == metrics.GatewayRole && kept(rates, name), false}
		of := fmt.Sprintf("%.0f of %.0f %s", s.bad, s.events, cmp.Or(s.miss, "events are bad"))
		switch enough := s.bad >= slo.MinBadEvents-0.5; {
		case !enough && s.bad > 0.5 && s.bad > s.events/10:
			few = append(few, one)
			v.Symptoms = append(v.Symptoms, fmt.Sprintf("Objective %s: %s, too few to judge.", name+at(role), of))
			if v.Health == Healthy {
				v.Health = Unknown
			}
		case enough && r.F > 1:
			burns = append(burns, one)
			v.Symptoms = append(v.Symptoms, fmt.Sprintf("Objective %s burns %s times too fast: %s.", name+at(role), factor(r.F), of))
			v.suffers(s.pages > 0 && r.F > s.pages)
		case j.past != nil:
			burned, err := j.burned(objective)
			if err != nil {
				return nil, nil, 0, err
			}
			if burned > 0 {
				one.over = s.bad < 0.5 && burned*s.budget*s.events >= slo.MinBadEvents
				burns = append(burns, one)
				v.Symptoms = append(v.Symptoms,
					fmt.Sprintf("Objective %s burned %s times too fast over the last five minutes: %s between the readings.", name+at(role), factor(burned), of))
				v.suffers(false)
			}
		}
	}
	return burns, few, counted, nil
}

// at describes where an objective is counted, if this is a gateway or engines with a role.
func at(role string) string {
	switch role {
	case "":
		return ""
	case metrics.GatewayRole, metrics.FrontendRole:
		return " at the " + role
	}
	return " at the " + role + " engines"
}

// factor formats a burn rate.
func factor(burn float64) string {
	if burn < 10 {
		return fmt.Sprintf("%.1f", burn)
	}
	return fmt.Sprintf("%.0f", burn)
}

// kept reports whether the engines do not burn the budget of an objective.
func kept(rates engine.Vector, objective string) bool {
	return slices.ContainsFunc(rates, func(r engine.Sample) bool {
		return r.F <= 1 && r.Metric.Get(metrics.LabelRole) != metrics.GatewayRole && r.Metric.Get(metrics.LabelSLO) == objective
	})
}

// suffers lowers the health of a model whose budget burns, to Failing if fails is true. A failing model remains
// failing.
func (v *Verdict) suffers(fails bool) {
	if fails {
		v.Health = Failing
	} else if v.Health != Failing {
		v.Health = Degraded
	}
}

// spending has the number of events of an objective between the readings, and the burn rate at which the objective
// pages.
type spending struct {
	events, bad, pages float64
	budget             float64 // share of events that may be bad
	signal             slo.Signal
	miss               string // description of a bad event, in words
}

// spent returns the spending of an objective.
func (j *judge) spent(name string, objective []*labels.Matcher) (s spending, err error) {
	one := func(x promql.Expr) (value float64, l labels.Labels) {
		found, failed := j.query(x)
		err = cmp.Or(err, failed)
		if len(found) > 0 {
			value, l = found[0].F, found[0].Metric
		}
		return value, l
	}
	increase := func(f *metrics.Family) promql.Expr {
		return promql.Sum(nil, promql.Increase(promql.Vector(f, objective...), time.Minute))
	}
	long := promql.Eq(metrics.LabelLong, slo.DefaultWindowPairs()[0].Long.String())
	s.events, _ = one(increase(metrics.SLOEvents))
	s.bad, _ = one(increase(metrics.SLOBadEvents))
	s.pages, _ = one(promql.Vector(metrics.RecordedBurnThreshold, append(slices.Clip(objective), long)...))
	s.budget, _ = one(promql.Sub(promql.Num(1), promql.Max(nil, promql.Vector(metrics.SLOObjective, promql.Eq(metrics.LabelSLO, name)))))
	_, info := one(promql.Vector(metrics.RecordedInfo, objective...))
	s.signal, s.miss = slo.Signal(info.Get(metrics.LabelSignal)), info.Get(metrics.LabelBad)
	return s, err
}

// burned returns the burn rate of an objective over the last five minutes, as recorded by Prometheus, if it is above 1
// and more than a few events were bad. The readings, half a minute apart, may miss a fault that affects one request in
// ten.
func (j *judge) burned(objective []*labels.Matcher) (float64, error) {
	bad := promql.Mul(promql.Num((5 * time.Minute).Seconds()), promql.Vector(metrics.RecordedBadEventRate, objective...))
	answer, err := j.ask(promql.And(promql.Gt(promql.Vector(rate5m, objective...), promql.Num(1)),
		promql.Ge(bad, promql.Num(slo.MinBadEvents-0.5)),
		promql.On(metrics.ModelSLOLabels...)).String())
	if err != nil || len(answer) == 0 {
		return 0, err
	}
	return answer[0].F, nil
}

// means adds the mean times to the first and to the next token to the symptoms.
func (j *judge) means(m subject, v *Verdict) error {
	own := m.matchers()
	for _, mean := range []struct {
		says string
		of   *metrics.Family
	}{{"first token (TTFT)", metrics.TimeToFirstToken}, {"next token (ITL)", metrics.InterTokenLatency}} {
		rate := func(x promql.Expr) promql.Expr { return promql.Sum(nil, promql.Rate(x, time.Minute)) }
		took, err := j.query(promql.Div(rate(promql.SumOf(mean.of, own...)), promql.Gt(rate(promql.CountOf(mean.of, own...)), promql.Num(0))))
		if err != nil {
			return err
		}
		for _, t := range took {
			shown, err := j.expand(rules.FactText(), t, map[string]string{metrics.LabelUnit: string(rules.Seconds)})
			if err != nil {
				return err
			}
			v.Symptoms = append(v.Symptoms, fmt.Sprintf("Mean time to the %s: %s.", mean.says, shown))
		}
	}
	return nil
}
