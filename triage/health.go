package triage

import (
	"cmp"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	engine "github.com/prometheus/prometheus/promql"

	"github.com/llm-node-exporter/llm-node-exporter/internal/promql"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/rules"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// These constants define how much evidence proves that a model is healthy.
const (
	enoughRequests = 10              // requests between the readings; among fewer, by chance none may fail even if a third usually fail
	muchOf         = 1. / 3          // largest share of ended requests whose outcome does not show health
	settled        = 5 * time.Minute // from this age on, a process no longer crashes at its start
)

// answered matches the outcomes of requests that got a complete answer.
var answered = promql.Re(metrics.LabelOutcome, strings.Join([]string{
	string(metrics.OutcomeStop), string(metrics.OutcomeLength),
	string(metrics.OutcomeRepetition), string(metrics.OutcomeSuccess),
}, "|"))

// traffic has the numbers of a model's requests between the readings.
type traffic struct {
	first  float64 // first tokens at the engines
	probes float64 // synthetic requests that ended
	work   float64 // requests in the engines
	// ended counts requests by outcome, at the engines and at the gateways.
	ended, passed map[metrics.Outcome]float64
}

// enough is the smallest number of requests from which the lengths of prompts and answers, and the cached share of
// prompts, can be judged.
const enough = 8

// requests returns how many requests began or ended at the engines.
func (t traffic) requests() float64 {
	ended := 0.0
	for _, n := range t.ended {
		ended += n
	}
	return max(t.first, ended)
}

// sum adds up the results of an expression by the values of a label. Without a label, the key of the sum is "".
func (j *judge) sum(x promql.Expr, by ...string) (map[metrics.Outcome]float64, error) {
	found, err := j.query(promql.Sum(by, x))
	all := map[metrics.Outcome]float64{}
	for _, s := range found {
		label := ""
		if len(by) > 0 {
			label = s.Metric.Get(by[0])
		}
		all[metrics.Outcome(label)] += s.F
	}
	return all, err
}

func (j *judge) traffic(m subject) (t traffic, err error) {
	own := m.matchers()
	one := func(x promql.Expr) float64 {
		all, failed := j.sum(x)
		err = cmp.Or(err, failed)
		return all[""]
	}
	by := func(of ...*promql.Matcher) map[metrics.Outcome]float64 {
		all, failed := j.sum(promql.Increase(promql.Vector(metrics.Requests, append(of, own...)...), time.Minute), metrics.LabelOutcome)
		err = cmp.Or(err, failed)
		return all
	}
	t.first = one(promql.Increase(promql.CountOf(metrics.TimeToFirstToken, own...), time.Minute))
	asked := []*promql.Matcher{promql.Eq(metrics.LabelCluster, m.cluster), promql.Eq(metrics.LabelModel, m.name)} // in any namespace
	t.probes = one(promql.Increase(promql.Vector(metrics.ProbeRequests, asked...), time.Minute))
	t.work = one(held(m, 0))
	t.ended, t.passed = by(), by(promql.Eq(metrics.LabelRole, metrics.GatewayRole))
	return t, err
}

// served returns how many requests got a first token or ended well at the engines. If no engine is read, it returns how
// many ended well at the gateways.
func (t traffic) served() float64 {
	good := func(ended map[metrics.Outcome]float64) (n float64) {
		for outcome, count := range ended {
			if event, bad := slo.Judge(outcome); event && !bad {
				n += count
			}
		}
		return n
	}
	if len(t.ended) == 0 && t.first == 0 {
		return good(t.passed)
	}
	return max(t.first, good(t.ended))
}

// came returns how many requests arrived, according to the metric with the largest number.
func (t traffic) came() float64 {
	n := 0.
	for _, ended := range []map[metrics.Outcome]float64{t.ended, t.passed} {
		all := 0.
		for _, count := range ended {
			all += count
		}
		n = max(n, all)
	}
	return max(n, t.first)
}

// oddly describes outcomes that prove nothing about health.
var oddly = map[metrics.Outcome]string{
	metrics.OutcomeAbort:    "were given up by their clients",
	metrics.OutcomeInvalid:  "were refused as invalid",
	metrics.OutcomeRejected: "were rejected",
	metrics.OutcomeUnknown:  "ended with an unknown outcome",
}

// odd describes the outcomes that prove nothing about health, if too large a share of the requests has them.
func (t traffic) odd() (lines []string) {
	for _, at := range []struct {
		where string
		ended map[metrics.Outcome]float64
	}{{"", t.ended}, {" at the gateway", t.passed}} {
		all := 0.
		for _, n := range at.ended {
			all += n
		}
		for _, outcome := range slices.Sorted(maps.Keys(at.ended)) {
			says := oddly[outcome]
			if n := at.ended[outcome]; says != "" && all >= enoughRequests && n > muchOf*all {
				lines = append(lines, fmt.Sprintf("%.0f%% of the requests%s %s (%.0f of %.0f).", 100*n/all, at.where, says, n, all))
			}
		}
	}
	return lines
}

// dueRequests is how many requests would usually have arrived in the shortest silence that is not due to chance.
const dueRequests = 10

// doubts explains why the health of a model is uncertain, although no objective burns.
func (j *judge) doubts(m subject, t traffic) ([]string, error) {
	lines := t.odd()
	switch own := t.served() - t.probes; {
	case t.came() == 0 && t.work == 0:
		silence, err := j.silence(m)
		return append(lines, cmp.Or(silence, "Idle: no request came between the readings.")), err
	case t.first == 0 && t.served() == 0:
		lines = append(lines, "No request got a first token between the readings.")
	case t.probes > 0 && own < enoughRequests:
		lines = append(lines, fmt.Sprintf("%.0f of %.0f requests were synthetic, so too few came from users to prove health.",
			min(t.probes, t.served()), t.served()))
	case own < enoughRequests:
		lines = append(lines, fmt.Sprintf("Only %.0f requests were served between the readings, too few to prove health.", own))
	}
	age := promql.Sub(promql.Call("time"), promql.Max(metrics.PageLabels, promql.Vector(metrics.EngineStartTime)))
	young := promql.Lt(promql.Ge(age, promql.Num(0)), promql.Num(settled.Seconds()))
	found, err := j.query(promql.And(young, j.replicas(m), promql.On(metrics.PageLabels...)))
	if err != nil {
		return nil, err
	}
	restarted, err := j.query(promql.Gt(promql.Max(metrics.PageLabels, promql.Vector(metrics.EngineRestarts)), promql.Num(0)))
	for _, s := range found {
		again := "Two readings cannot show whether it restarts again and again"
		if i := slices.IndexFunc(restarted, func(r engine.Sample) bool { return page(r.Metric) == page(s.Metric) }); i >= 0 {
			again = fmt.Sprintf("That was restart %.0f since its exporter started", restarted[i].F)
		}
		lines = append(lines, fmt.Sprintf("%s started %s ago. %s.", where(s.Metric), seconds(s.F), again))
	}
	return lines, err
}

// silence describes that no request has arrived for longer than chance explains. It returns "" without a Prometheus
// that has recorded the usual rate. The text names several causes, because clients that have finished look the same as
// a broken path, or engines that hang before they count a request.
func (j *judge) silence(m subject) (string, error) {
	silent, err := j.query(promql.Sub(promql.Call("time"), promql.Max(nil, promql.Vector(metrics.EngineLastProgress, m.matchers()...))))
	if err != nil || len(silent) == 0 {
		return "", err
	}
	usual, err := j.query(promql.Vector(metrics.RecordedUsual, append(m.matchers(), promql.Eq(metrics.LabelFact, "arrivals"))...))
	if err != nil || len(usual) == 0 || usual[0].F*silent[0].F < dueRequests {
		return "", err
	}
	return fmt.Sprintf("No request came for %s, in which about %.0f usually come. Clients stopped, or nothing reaches the engines, "+
		"or they hang: send a request to each engine.", seconds(silent[0].F), usual[0].F*silent[0].F), nil
}

// health judges the health of a model from burns, suspects and missing evidence.
func (j *judge) health(m subject, v *Verdict, t traffic, burns []burn, all []Suspect) error {
	lines, dead, err := j.silent(m)
	if err != nil {
		return err
	}
	v.Symptoms = append(v.Symptoms, lines...)
	doubts, err := j.doubts(m, t)
	if err != nil {
		return err
	}
	unread := len(lines) > 0 && t.came() == 0 // the behaviour of the model is not visible
	if !unread && (burns == nil || v.Health == Healthy) {
		v.Symptoms = append(v.Symptoms, doubts...)
	} else {
		v.Symptoms = append(v.Symptoms, t.odd()...)
	}
	if err := j.blocked(m, v); err != nil {
		return err
	}
	v.dead = dead
	switch {
	case v.Health == Failing || dead || slices.ContainsFunc(all, func(s Suspect) bool { return s.pages }):
		v.Health = Failing
	case v.Health == Degraded || slices.ContainsFunc(all, func(s Suspect) bool { return s.harms || burns == nil && s.Clue != hasLeft }):
		v.Health = Degraded
	case burns == nil || len(doubts) > 0:
		v.Health = Unknown
	}
	return nil
}

// silence matches the reasons of a metrics endpoint that count as silent: its server does not answer, or fails.
var silence = regexp.MustCompile(`^(unreachable|connection_closed|timeout|truncated|http_5..)$`)

// blocked adds a symptom for the gateways that have workers but may not send requests to any of them.
func (j *judge) blocked(m subject, v *Verdict) error {
	by := append([]string{metrics.LabelModel, metrics.LabelRole, metrics.LabelRoute}, metrics.PageLabels...)
	none, err := j.query(promql.Equal(promql.Sum(by, promql.Vector(metrics.GatewayWorkers, promql.Eq(metrics.LabelReason, ""))),
		promql.Num(0)))
	if err != nil {
		return err
	}
	why, err := j.query(promql.Gt(promql.Sum(append(by, metrics.LabelReason), promql.Vector(metrics.GatewayWorkers,
		promql.Ne(metrics.LabelReason, ""))), promql.Num(0)))
	for _, s := range none {
		if subjectOf(s.Metric) != m || j.workerless(s.Metric) {
			continue
		}
		var says []string
		for _, w := range why {
			if page(w.Metric) == page(s.Metric) && w.Metric.Get(metrics.LabelRoute) == s.Metric.Get(metrics.LabelRoute) {
				says = append(says, fmt.Sprintf("%s %.0f", w.Metric.Get(metrics.LabelReason), w.F))
			}
		}
		line := "Gateway " + where(s.Metric) + " may send requests to none of its workers"
		if says != nil {
			line += ": " + strings.Join(says, ", ")
		}
		v.Symptoms = append(v.Symptoms, line+".")
	}
	return err
}

// noWorker is the reason of a readable metrics endpoint whose frontend or endpoint picker has no workers.
const noWorker = "no_worker"

// workerless reports whether the metrics endpoint of a series is readable and shows that there are no workers.
func (j *judge) workerless(of labels.Labels) bool {
	for _, s := range j.memory[metrics.EngineUp.Name] {
		last := s.samples[len(s.samples)-1]
		if last.T() == j.at.UnixMilli() && s.labels.Get(metrics.LabelReason) == noWorker &&
			s.labels.Get(metrics.LabelServer) == of.Get(metrics.LabelServer) && s.labels.Get(metrics.LabelPod) == of.Get(metrics.LabelPod) {
			return true
		}
	}
	return false
}

// silent names the metrics endpoints of a model that cannot be read, and the reasons. For engines and gateways that do
// not report their model, dead reports whether they certainly serve nobody, because no endpoint answers and no engine
// gives a first token.
func (j *judge) silent(m subject) (lines []string, dead bool, err error) {
	why := append([]string{metrics.LabelReason}, metrics.PageLabels...)
	found, err := j.query(promql.Equal(promql.Max(why, promql.Vector(metrics.EngineUp)), promql.Num(0)))
	if err != nil {
		return nil, false, err
	}
	of := slices.Concat(j.causes[rules.EngineDown], j.causes[rules.GatewayDown])
	if m.name != "" {
		if of, err = j.query(promql.Vector(metrics.RecordedServed, m.matchers()...)); err != nil {
			return nil, false, err
		}
	}
	dead = m.name == ""
	for _, s := range found {
		if !slices.ContainsFunc(of, func(o engine.Sample) bool { return page(o.Metric) == page(s.Metric) && subjectOf(o.Metric) == m }) {
			continue
		}
		if reason := s.Metric.Get(metrics.LabelReason); reason == noWorker {
			lines = append(lines, where(s.Metric)+" has no worker, so every request to it fails.")
		} else {
			lines = append(lines, fmt.Sprintf("The metrics endpoint of %s cannot be read: %s.", where(s.Metric), reason))
		}
		dead = dead && silence.MatchString(s.Metric.Get(metrics.LabelReason))
	}
	for _, s := range j.late {
		if slices.ContainsFunc(of, func(o engine.Sample) bool { return page(o.Metric) == page(s.Metric) }) {
			lines = append(lines, fmt.Sprintf("The metrics endpoint of %s was read too late once. Run triage again.", where(s.Metric)))
		}
	}
	lost, err := j.query(promql.And(promql.Equal(promql.Vector(metrics.RecordedServed, m.matchers()...), promql.Num(0)),
		promql.Equal(promql.Max(metrics.PageLabels, promql.Vector(metrics.EngineUp)), promql.Num(1)), promql.On(metrics.PageLabels...)))
	if err != nil {
		return nil, false, err
	}
	for _, s := range lost {
		lines = append(lines, where(s.Metric)+" has no worker of this model, so requests for the model are refused.")
	}
	if !dead || len(lines) == 0 {
		return lines, false, nil
	}
	others, err := j.query(promql.Or(
		promql.Vector(metrics.EngineInfo, append(m.matchers(), promql.Eq(metrics.LabelRole, metrics.GatewayRole))...),
		promql.Vector(metrics.EngineInfo, m.matchers()...),
		promql.Gt(promql.Sum(nil, promql.Increase(promql.CountOf(metrics.TimeToFirstToken), time.Minute)), promql.Num(0))))
	return lines, len(others) == 0, err
}

// confidence is high if the verdict would nearly always be right: the suspect measures the fault itself, or users'
// requests suffered and no other branch has an equally clear clue. If it is low, the second result may name another
// branch, and the value that distinguishes the two. An engine's fault may come from a release, and an engine may be
// gone because of its GPU, although no value shows this. Without the past, it is unknown why requests wait.
func (j *judge) confidence(all []Suspect, v Verdict, noticed bool) (confidence, or string) {
	first := all[0]
	instead := func(b rules.Branch) string {
		return fmt.Sprintf("The cause may be %s instead: compare %s", b, apart[b])
	}
	unknown := func(b rules.Branch) bool {
		return slices.ContainsFunc(v.NotSeen, func(r RuledOut) bool { return r.Branch == b })
	}
	switch {
	case v.dead && first.Branch == rules.Engine && unknown(rules.Hardware):
		return "low", "The cause may be hardware instead: read the kernel log for XIDs"
	case first.Clue == hasLeft && j.past == nil:
		return "low", "The model may run elsewhere: ask Prometheus, with --prometheus=URL"
	case (first.pages || v.dead || first.Clue == "gpu_failed") && j.elapsed >= rules.Interval/2:
		return "high", ""
	case first.isClue() && first.Branch == rules.Engine && unknown(rules.Release):
		return "low", instead(rules.Release)
	case first.Branch == rules.Queueing && !j.recalls:
		return "low", instead(rules.Engine)
	}
	if rival := j.rival(first, all[1:]); rival != "" {
		return "low", instead(rival)
	}
	if noticed && !(j.comparesWithPast(first.Clue) && !j.recalls) {
		return "high", ""
	}
	return "low", ""
}

// isClue reports whether a suspect only points to a branch. All other suspects measure the fault itself.
func (s Suspect) isClue() bool { return !s.harms && s.Branch != rules.Hardware }

// rival returns the branch of the first other suspect that is as clear as the first suspect, if some value
// distinguishes this branch (see apart). Without such a branch, it returns "".
func (j *judge) rival(first Suspect, others []Suspect) rules.Branch {
	compares := j.comparesWithPast(first.Clue)
	for _, s := range others {
		alike := first.isClue() && s.isClue() && s.Delays == first.Delays && j.comparesWithPast(s.Clue) == compares
		if alike && s.Branch != first.Branch && apart[s.Branch] != "" {
			return s.Branch
		}
	}
	return ""
}

// apart describes the comparison that distinguishes a branch from others with equally clear suspects. Queueing is
// missing, because faults in every branch cause queueing.
var apart = map[rules.Branch]string{
	rules.Release:   "these numbers with those before the last deployment or restart",
	rules.Engine:    "the time between tokens with the earlier time at as many running requests",
	rules.Routing:   "these numbers with those of the other replicas",
	rules.Memory:    "preemptions per request with those of the day before",
	rules.Prefill:   "prompt tokens per request, less those found in the prefix cache, with those of the day before",
	rules.Decode:    "the time between tokens with that of the day before",
	rules.Behaviour: "output tokens per request with those of the day before",
}

// replicas selects the engines that serve a model or served it last.
func (j *judge) replicas(m subject) promql.Expr {
	own := m.matchers()
	now := promql.Max(metrics.ReplicaLabels, promql.Vector(metrics.EngineInfo, own...))
	return promql.Or(promql.Vector(metrics.RecordedServed, own...), now)
}

// where names an engine in the same way as the rules.
func where(l labels.Labels) string {
	return cmp.Or(strings.TrimSpace(l.Get(metrics.LabelPod)+" "+l.Get(metrics.LabelServer)), "one engine")
}

func inHand(requests float64) string {
	if requests == 1 {
		return "1 request runs or waits"
	}
	return fmt.Sprintf("%.0f requests run or wait", requests)
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Truncate(time.Second).String()
}

// watched returns suspects that the two readings show but no rule records: engines that make no progress, and engines
// that have just started.
func (j *judge) watched(m subject, t traffic) (stuck, back []Suspect, err error) {
	ofPage := func(x promql.Expr) promql.Expr { return promql.Max(metrics.PageLabels, x) }
	is := func(x promql.Expr, n float64) promql.Expr { return promql.Equal(x, promql.Num(n)) }
	restarted := promql.Gt(ofPage(promql.Increase(promql.Vector(metrics.EngineRestarts), time.Minute)), promql.Num(0))
	loading := is(ofPage(promql.Vector(metrics.EngineUp, promql.Eq(metrics.LabelReason, "loading"))), 0)

	found, err := j.still(m)
	if err != nil {
		return nil, nil, err
	}
	suspect := func(of labels.Labels, clue, runbook, says string) Suspect {
		return Suspect{Branch: rules.Engine, Clue: clue, Runbook: runbook, Says: says, labels: j.place(m, of), harms: true}
	}
	for _, s := range found {
		lasts, certain, err := j.since(s.Metric)
		if err != nil {
			return nil, nil, err
		}
		one := suspect(s.Metric, noProgress, rules.EngineStalled.Name,
			fmt.Sprintf("%s has made no progress for %s while %s", where(s.Metric), seconds(lasts.Seconds()), inHand(s.F)))
		one.pages = certain
		stuck = append(stuck, one)
	}
	if n := t.ended[metrics.OutcomeAbort]; len(found) == 0 && n >= slo.MinBadEvents && t.first == 0 && t.served() == 0 {
		moved, err := j.query(moves(m))
		if err != nil {
			return nil, nil, err
		}
		generated, err := j.query(promql.Or(promql.Gt(promql.Increase(promql.Vector(metrics.GenerationTokens, m.matchers()...), time.Minute),
			promql.Num(0)),
			promql.And(j.replicas(m), atEnd(), promql.On(metrics.PageLabels...))))
		if err != nil {
			return nil, nil, err
		}
		says := fmt.Sprintf("No request got a token for %s, and clients gave up %.0f requests", seconds(j.elapsed.Seconds()), n)
		switch {
		case len(moved) == 0:
			stuck = append(stuck, suspect(labels.EmptyLabels(), noProgress, rules.EngineStalled.Name, says))
		case len(generated) == 0:
			one := suspect(labels.EmptyLabels(), "only_prompts", "BranchLongPrompts", says+", while the engines only process prompts")
			one.Branch = rules.Prefill
			stuck = append(stuck, one)
		}
	}
	for _, c := range []struct {
		clue, runbook string
		which         promql.Expr
		says          string
	}{
		{"restarted", rules.EngineCrashLoop.Name, restarted, "%s restarted between the readings"},
		{"loading", "BranchColdStart", loading, "%s is loading its model"},
	} {
		found, err := j.query(promql.And(j.replicas(m), c.which, promql.On(metrics.PageLabels...)))
		if err != nil {
			return nil, nil, err
		}
		for _, s := range found {
			back = append(back, suspect(s.Metric, c.clue, c.runbook, fmt.Sprintf(c.says, where(s.Metric))))
		}
	}
	gone, err := j.gone(m)
	if err != nil || len(gone) == 0 {
		return stuck, back, err
	}
	last := slices.MaxFunc(gone, func(a, b engine.Sample) int { return cmp.Compare(a.F, b.F) })
	says := fmt.Sprintf("No engine of the model is left here: %s was last read at %s", where(last.Metric),
		time.UnixMilli(int64(1000*last.F)).UTC().Format("15:04:05"))
	one := suspect(last.Metric, hasLeft, rules.ModelDown.Name, says)
	one.harms = false // a person may have stopped the engine
	return stuck, append(back, one), nil
}

// hasLeft names the clue of a model whose engines are no longer found.
const hasLeft = "left"

// left returns when each engine that is no longer found was last read. It leaves out engines whose pod was deleted on purpose.
func left(m ...*promql.Matcher) promql.Expr {
	onPurpose := promql.Equal(promql.Vector(metrics.PodDeletedOnPurpose), promql.Num(1))
	return promql.Unless(promql.Vector(metrics.EngineLeft, m...), onPurpose, promql.On(metrics.LabelNamespace, metrics.LabelPod))
}

// gone returns the engines of a model that are no longer found, if no exporter reads another engine of the model.
func (j *judge) gone(m subject) (engine.Vector, error) {
	found, err := j.query(promql.Unless(left(m.matchers()...), j.replicas(m), promql.On(metrics.LabelModel)))
	if err != nil || len(found) == 0 || j.past == nil {
		return found, err
	}
	elsewhere, err := j.ask(promql.Vector(metrics.EngineInfo, m.matchers()...).String())
	if len(elsewhere) > 0 {
		return nil, err
	}
	return found, err
}

// noProgress names the clue of an engine that makes no progress.
const noProgress = "no_progress"

// held returns how many requests each engine of a model had some time before the second reading. These are the requests
// in flight in the engine's server or, if their number is unknown, the running and waiting requests.
func held(m subject, ago time.Duration) promql.Expr {
	sum := func(f *metrics.Family) promql.Expr {
		x := promql.Vector(f, m.matchers()...)
		if ago > 0 {
			x = promql.Offset(x, ago)
		}
		return promql.Sum(metrics.ReplicaLabels, x)
	}
	running, waiting := sum(metrics.RequestsRunning), sum(metrics.RequestsWaiting)
	return promql.Or(sum(metrics.RequestsInFlight), promql.Add(running, waiting), running, waiting)
}

// moves returns each engine of a model with a sign of work between the readings: a step, a token, an answer, or a
// change in the KV cache.
func moves(m subject) promql.Expr {
	own := m.matchers()
	var all []promql.Expr
	for _, now := range []promql.Expr{
		promql.Vector(metrics.EngineSteps, own...), promql.Vector(metrics.GenerationTokens, own...),
		promql.Vector(metrics.PromptTokens, own...), promql.CountOf(metrics.TimeToFirstToken, own...),
		promql.Vector(metrics.KVCacheUsage, own...), promql.Vector(metrics.Requests, append(own, answered)...),
	} {
		all = append(all, promql.CountBy(metrics.ReplicaLabels, promql.Unless(now, promql.Equal(now, promql.Offset(now, time.Minute)))))
	}
	return promql.Or(all[0], all[1:]...)
}

// still returns the number of requests at each engine that makes no progress. Such an engine has requests in both
// readings, and reports a counter of steps or tokens that has not increased. Tokens that are counted only at the end of
// their request do not measure progress.
func (j *judge) still(m subject) (engine.Vector, error) {
	own, by := m.matchers(), metrics.ReplicaLabels
	counts := promql.Or(promql.CountBy(by, promql.Vector(metrics.EngineSteps, own...)),
		promql.Unless(promql.CountBy(by, promql.Vector(metrics.GenerationTokens, own...)), atEnd(), promql.On(metrics.PageLabels...)))
	some := func(x promql.Expr) promql.Expr { return promql.Gt(x, promql.Num(0)) }
	busy := promql.And(promql.And(some(held(m, 0)), some(held(m, time.Minute))), counts)
	return j.query(promql.Unless(busy, moves(m)))
}

// atEnd selects the metrics endpoints that count generated tokens only at the end of a request.
func atEnd() promql.Expr {
	return promql.Vector(metrics.MetricSourceInfo, promql.Eq(metrics.LabelMetric, metrics.GenerationTokens.Name),
		promql.Eq(metrics.LabelCounted, string(metrics.CountedEnd)))
}

// since returns how long an engine has made no progress, which is at least the time between the readings. certain is
// true if the exporter reports that the engine had work in that time.
func (j *judge) since(of labels.Labels) (lasts time.Duration, certain bool, err error) {
	own := make([]*promql.Matcher, 0, len(metrics.ReplicaLabels))
	for _, name := range metrics.ReplicaLabels {
		own = append(own, promql.Eq(name, of.Get(name)))
	}
	lasts = j.elapsed
	for i, x := range []promql.Expr{
		promql.Max(nil, promql.Vector(metrics.EngineStalled, own...)),
		promql.Sub(promql.Call("time"), promql.Max(nil, promql.Vector(metrics.EngineLastProgress, own...))),
	} {
		found, err := j.query(x)
		if err != nil {
			return 0, false, err
		}
		for _, s := range found {
			lasts = max(lasts, time.Duration(s.F*float64(time.Second)))
			certain = certain || i == 0 && s.F > 0
		}
	}
	return lasts, certain, nil
}
