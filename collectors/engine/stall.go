package engine

import (
	"math"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// These constants define the evidence that an engine makes no progress. A false alarm is worse than a short delay.
const (
	// traffic is the window over which the exporter learns the usual rate of answers, and how many files an idle engine keeps
	// open. parts is the number of parts of this window.
	traffic = time.Hour
	parts   = 12
	// unproven is how long an engine must make no progress before this counts as a stall, if few answers were due in that
	// time. A step that compiles kernels or computes a long prompt may take minutes.
	unproven = 5 * time.Minute
	// manyDue is how many answers must have been due during the time without progress to prove that there is work. Gauges
	// alone prove nothing. When clients cancel all running requests, vLLM reports these requests until its next step
	// (vllm#22545).
	manyDue = 20
	// someDue is how many answers must have been due before new connections count as requests.
	someDue = 3
	// newRequests and newFiles are the smallest increases in requests and open files since the last progress that prove
	// work. Smaller increases may come from a request that stays in the server's gauge although it has ended, or from a
	// log file and the connections of scrapers.
	newRequests, newFiles = 2, 4
	// connected is how many new connections prove a stall early. A quarter of the answers that were due is sufficient if
	// that is fewer.
	connected = 20
	// piling is how often the number of waiting requests must grow, while none runs, to prove that clients wait. The
	// number of requests whose clients have left does not grow.
	piling = 2
	// briefly is the longest time that a step may take. remembered is how long a standstill is reported after its end.
	briefly, remembered = 45 * time.Second, 5 * time.Minute
	// leavers is how many clients must give up, over a time of at least leaving, to prove that other clients wait.
	leavers, leaving = 2, time.Minute
	// settling is how long an answer may stay in the server after its last token.
	settling = 5 * time.Second
	// youth is how long an engine may load and compile after it starts or answers again.
	youth = 5 * time.Minute
	// brief is how long an engine that counts only ended requests may make no progress, if its traffic is dense. Dense
	// traffic means that manyDue answers are due in that time, and that requests take less than a third of it on average.
	// This also covers a batch whose requests begin and end together.
	brief = 2 * time.Minute
)

// sight holds the values of one reading of a unit. NaN marks a value that the metrics page does not report.
type sight struct {
	at       time.Time
	start    float64   // of the process, unix time
	moves    []float64 // by unit.moves
	good     float64   // answers that ended well
	bad      float64   // answers that ended badly
	load     float64   // requests that run or wait, according to the scheduler
	waits    float64   // waiting requests among them
	more     more
	held     float64  // requests in the server, or open files
	files    bool     // whether held counts open files
	answered float64  // good answers of the server
	request  duration // of requests that have ended
	queue    duration // their time in the queue and in prefill
	prefill  duration
	first    duration // until the first token
	asleep   bool
	young    bool // started, or came back, a short time ago
}

// duration holds the number of requests whose duration is known, and the sum of these durations in seconds.
type duration struct{ count, sum float64 }

// since returns the mean since an earlier reading, or 0 if no request was counted since then.
func (d duration) since(before duration) float64 {
	if d.count <= before.count {
		return 0
	}
	return (d.sum - before.sum) / (d.count - before.count)
}

// see reads the values of a unit from the metrics page.
func (t *target) see(u *unit, now time.Time) sight {
	add := func(lines []line) (v float64) {
		for i := range lines {
			if one := lines[i].eval(t.values); one > 0 && !math.IsInf(one, 0) {
				v += one
			}
		}
		return v
	}
	of := func(f *metrics.Family) duration { return duration{add(u.times[f].count), add(u.times[f].sum)} }
	r := sight{
		at: now, start: math.NaN(), held: math.NaN(), answered: math.NaN(), asleep: t.plan.sleeping(t.values),
		good: add(u.good), bad: add(u.bad), load: add(u.load), waits: add(u.waits),
		request: of(metrics.RequestDuration), queue: of(metrics.QueueTime), prefill: of(metrics.PrefillTime),
		first: of(metrics.TimeToFirstToken),
	}
	for i := range u.moves {
		r.moves = append(r.moves, u.moves[i].eval(t.values))
	}
	if t.plan.start != nil {
		r.start = t.plan.start.value(t.values)
	}
	r.young = now.Sub(t.back) < youth || now.Sub(time.UnixMilli(int64(1000*r.start))) < youth
	if h := u.held; h != nil {
		r.answered = addUp(h.answered, t.values)
		r.files = h.active == nil
		switch {
		case !r.files:
			r.held = addUp(h.active, t.values)
		case !h.connections:
			r.held = addUp(h.files, t.values)
		default:
			if n, known := t.config.Connections(t.server); known {
				r.held = float64(n)
			}
		}
	}
	return r
}

// past holds earlier readings of a unit.
type past struct {
	last  sight
	twice bool      // the unit has been read twice since it started
	seen  bool      // progress has been seen since then
	since time.Time // of the first reading

	moved   time.Time // when progress was last seen, or the time of the first reading
	busy    time.Time // since when requests ran or waited at every reading without progress
	more    time.Time // since when the server has had more requests than at the last progress
	piles   time.Time // since when more and more requests have waited while none runs
	grown   int       // number of readings since then at which more requests waited
	ended   time.Time // when an answer last ended badly without progress
	gaveUp  time.Time // when clients first gave up without progress; gives and givers are the last time and the number of clients
	gives   time.Time
	givers  float64
	least   float64   // minimum of the server's requests since the last progress
	lasting float64   // requests in the server at each of the last two readings, if neither showed progress
	pending float64   // open files in addition to the load at the last reading, if that reading showed progress
	worked  time.Time // when the unit last had work without progress
	certain time.Time // since when the unit has certainly made no progress; zero if it makes progress

	start
	numbers
	hour [parts]part
}

// start holds observations since the engine started.
type start struct {
	warmth
	unseen unseen
	stood  stood
}

// stood is the longest standstill of the last minutes that ended without a restart.
type stood struct {
	ended  time.Time
	lasted time.Duration
}

// part is a part of the last hour. Parts are numbered since 1970.
type part struct {
	number    int64
	good      float64 // answers
	ends      float64 // requests whose duration is known
	took      float64 // their durations, seconds
	low, high float64 // open files in addition to those of the load, while there was progress
	rest      bool    // low is known
	open      bool    // high is known
}

// observe keeps a reading, and adds conclusions from this and earlier readings to the snapshot.
func (t *target) observe(s *snapshot) {
	now, known := t.config.Now(), make(map[string]*past, len(t.plan.units))
	if t.gone || t.pasts == nil && t.plan.start == nil {
		t.back, t.gone = now, false
	}
	for i := range t.plan.units {
		u := &t.plan.units[i]
		p := t.pasts[u.progress]
		if p == nil {
			p = &past{}
		}
		known[u.progress] = p
		r := t.see(u, now)
		r.more = p.read(u, t.values)
		p.see(u, r)
	}
	t.pasts = known
	t.remembers(s, known)
}

// inside returns how many requests run in each engine. The keys are series of RequestsLost. An engine that has made no
// progress for a while may still report requests whose clients have left. Its number is 0, unless the engine has
// certainly stalled.
func (t *target) inside() map[string]float64 {
	all := map[string]float64{}
	for i := range t.plan.units {
		u := &t.plan.units[i]
		if series := u.series[metrics.RequestsLost]; series != "" {
			p := t.pasts[u.progress]
			if all[series] = max(0, p.last.load-p.last.waits); p.last.at.Sub(p.moved) > believed && p.stalled() == 0 {
				all[series] = 0
			}
		}
	}
	return all
}

// memories lists the families whose values are computed from several readings. A unit has a series of a family only if
// unit.series has the text of this series.
var memories = []struct {
	family *metrics.Family
	of     func(u *unit, p *past) (value float64, known bool)
}{
	{metrics.RequestsInFlight, func(u *unit, p *past) (float64, bool) { return p.inFlight(), u.held != nil && !math.IsNaN(p.last.held) }},
	{metrics.RequestsArrived, func(_ *unit, p *past) (float64, bool) { return p.arrivals.total, true }},
	{metrics.RequestBurst, func(_ *unit, p *past) (float64, bool) { return p.bursts.size() }},
	{metrics.PrefillComputedTokens, func(_ *unit, p *past) (float64, bool) { return p.prefilled.total, true }},
	{metrics.RequestsWithoutToken, func(_ *unit, p *past) (float64, bool) { return p.tokenless.ended, true }},
	{metrics.EngineUnscheduled, func(_ *unit, p *past) (float64, bool) { return p.unseen.seconds() }},
	{metrics.EngineCold, func(_ *unit, p *past) (float64, bool) { return metrics.Bool(p.cold(p.last)), !math.IsNaN(p.last.start) }},
	{metrics.EngineLastProgress, func(_ *unit, p *past) (float64, bool) { return float64(p.moved.UnixMilli()) / 1000, p.twice }},
	{metrics.EngineStalled, func(_ *unit, p *past) (float64, bool) { return p.stalled(), p.twice }},
	{metrics.EngineStandstill, func(_ *unit, p *past) (float64, bool) { return p.ended5m(), p.twice }},
	{metrics.EngineWithoutProgress, func(u *unit, p *past) (float64, bool) { return p.without(u), p.twice }},
}

// remembers adds conclusions from the readings of all units to the snapshot.
func (t *target) remembers(s *snapshot, known map[string]*past) {
	for _, m := range memories {
		found := false
		for i := range t.plan.units {
			u := &t.plan.units[i]
			if text := u.series[m.family]; text != "" {
				if v, ok := m.of(u, known[u.progress]); ok {
					s.append(m.family, text, v)
					found = true
				}
			}
		}
		if found && m.family == metrics.RequestsInFlight {
			s.append(metrics.MetricSourceInfo, t.plan.inFlight, 1)
		}
	}
}

// patience returns the longest time that a unit with work may need to show progress, or 0 if the unit never shows
// progress.
func (u *unit) patience() time.Duration {
	switch {
	case u.steps:
		return time.Minute
	case u.cache && (u.perStep || u.tokens):
		return 5 * time.Minute
	case u.perStep, !u.tokens && len(u.good) > 0:
		return 10 * time.Minute
	case u.tokens:
		return 30 * time.Minute
	}
	return 0
}

// patience returns the longest time that the unit may need to show progress, given the traffic of the last hour.
func (p *past) patience(u *unit, now time.Time) time.Duration {
	if u.steps || u.perStep || p.due(now, brief) < manyDue {
		return u.patience()
	}
	ends, took := 0.0, 0.0
	for _, h := range p.hour {
		ends, took = ends+h.ends, took+h.took
	}
	if took == 0 || took/ends >= brief.Seconds()/3 {
		return u.patience()
	}
	return brief
}

// see records a reading.
func (p *past) see(u *unit, r sight) {
	restarted := p.last.start != r.start && !math.IsNaN(p.last.start) && !math.IsNaN(r.start)
	moved := len(p.last.moves) != len(r.moves)
	for i := 0; !moved && !restarted && i < len(r.moves); i++ {
		counter, v, before := u.moves[i].family.Kind != metrics.Gauge, r.moves[i], p.last.moves[i]
		restarted = counter && u.moves[i].fold == nil && v < before
		moved = v > before || v < before && !counter
	}
	p.count(u, p.last, r, restarted)
	if moved || r.load == 0 { // an engine that stands still may show its arrivals later
		p.bursts.add(r.at, p.arrivals.total, r.load)
	}
	switch {
	case p.last.at.IsZero() || restarted:
		earlier := p.last.good
		if earlier > r.good { // the counter started again at zero
			earlier = 0
		}
		*p = past{
			numbers: p.numbers, since: r.at, moved: r.at, least: r.held, pending: math.NaN(),
			start: start{warmth: warmth{earlier: earlier}},
		}
	case moved:
		p.goesOn(r)
		p.learn(r)
		*p = past{
			hour: p.hour, start: p.start, numbers: p.numbers, since: p.since, moved: r.at, least: r.held, pending: p.pending,
			twice: true, seen: true,
		}
	default:
		p.twice, p.pending = true, math.NaN()
		p.stand(r)
		p.judge(u, r)
	}
	p.feel(p.last, r)
	p.unseen.add(r)
	if p.last = r; r.load > 0 && p.busy.IsZero() {
		p.busy = r.at
	}
}

// goesOn records a standstill that ends with the reading r, if requests were open during the standstill. They were open
// if the stall was certain, or if first tokens have taken longer since the last reading than the unit's gauges explain.
// Requests in the gauges may have arrived when the standstill began, and all other requests at the last reading. If all
// requests wait for admission, an engine has nothing to compute, so the standstill is not recorded.
func (p *past) goesOn(r sight) {
	still := p.last.at.Sub(p.moved)
	late := r.first.sum - p.last.first.sum - (r.first.count-p.last.first.count)*r.at.Sub(p.last.at).Seconds()
	certain := !p.certain.IsZero() || still >= briefly && !r.young && late > p.last.load*still.Seconds()
	admitted := p.last.load == 0 || p.last.waits < p.last.load
	if s := &p.stood; certain && admitted && (still > s.lasted || r.at.Sub(s.ended) > remembered) {
		*s = stood{r.at, still}
	}
}

// ended5m returns the duration of the longest standstill of the last five minutes in seconds, or 0.
func (p *past) ended5m() float64 {
	if p.last.at.Sub(p.stood.ended) > remembered {
		return 0
	}
	return p.stood.lasted.Seconds()
}

// learn learns the traffic, and the number of files that are open at rest, from a reading with progress.
func (p *past) learn(r sight) {
	now := partOf(&p.hour, r.at)
	now.good += max(0, r.good-p.last.good)
	now.ends += max(0, r.request.count-p.last.request.count)
	now.took += max(0, r.request.sum-p.last.request.sum)
	if !r.files || math.IsNaN(r.held) {
		return
	}
	beside := r.held - r.load
	if !now.open || beside > now.high {
		now.high, now.open = beside, true
	}
	low := p.pending // the engine has resumed, so the gauges were right
	if p.pending = beside; r.load == 0 {
		low = beside
	}
	if !math.IsNaN(low) && (!now.rest || low < now.low) {
		now.low, now.rest = low, true
	}
}

// stand records a reading without progress.
func (p *past) stand(r sight) {
	if r.load == 0 {
		p.busy = time.Time{}
	}
	switch {
	case r.waits == 0 || r.load > r.waits: // requests may still wait while a long step runs
		p.piles, p.grown = time.Time{}, 0
	case r.waits > p.last.waits:
		if p.grown++; p.piles.IsZero() {
			p.piles = r.at
		}
	}
	if r.bad > p.last.bad {
		p.ended = r.at
	}
	if n := p.left(r); n > 0 && p.last.at.Sub(p.moved) >= settling {
		p.givers, p.gives = p.givers+n, r.at
		if p.gaveUp.IsZero() {
			p.gaveUp = r.at
		}
	}
	p.lasting, p.least = min(p.last.held, r.held), min(p.least, r.held)
	least := float64(newRequests)
	if r.files {
		least = newFiles
	}
	switch {
	case !(p.above(r) >= least):
		p.more = time.Time{}
	case p.more.IsZero():
		p.more = r.at
	}
}

// left returns how many clients left since the last reading, during a standstill. If the server counts good answers,
// its counter also rises when a client leaves. Otherwise, left returns how many requests are gone that were in the
// server at both of the last two readings, because refused requests do not stay that long. A closed connection proves
// nothing, because it may belong to a health check.
func (p *past) left(r sight) float64 {
	switch {
	case !math.IsNaN(r.answered):
		return r.answered - p.last.answered
	case r.files:
		return 0
	}
	return p.lasting - r.held
}

// judge decides whether a unit that shows no progress certainly has work.
func (p *past) judge(u *unit, r sight) {
	d := p.patience(u, r.at)
	switch {
	case d == 0 || r.asleep:
		p.certain = time.Time{}
	case p.works(r) || p.above(r) >= 1:
		p.worked = r.at
	case p.certain.IsZero():
	case !p.leaves(r) && r.at.Sub(p.worked) > unproven: // there may be no client for a moment
		p.certain = time.Time{}
	}
	if p.certain.IsZero() && !r.young && d != 0 && !r.asleep {
		p.certain = p.began(u, r, d)
	}
}

// works reports whether the gauges show requests and no other source contradicts them.
func (p *past) works(r sight) bool { return !p.busy.IsZero() && !p.idle(r) }

// leaves reports whether clients have recently given up.
func (p *past) leaves(r sight) bool { return p.givers > 0 && r.at.Sub(p.gives) <= unproven }

// flee reports whether several clients have given up over some time. Some must have given up recently, and the number
// must be larger than the load in the gauges.
func (p *past) flee(r sight) bool {
	return p.leaves(r) && p.givers >= max(leavers, r.load+1) && p.gives.Sub(p.gaveUp) >= leaving
}

// queues reports whether more and more requests have waited for minutes while none runs.
func (p *past) queues(now time.Time) bool { return p.grown >= piling && now.Sub(p.piles) >= unproven }

// began returns when a unit with work certainly stopped making progress. Progress may take d to show. If nothing is
// certain, the result is zero. The evidence of work is tried in this order: requests in the gauges, a queue that grows
// while nothing runs, requests that only the server's connections show, and clients that give up.
func (p *past) began(u *unit, r sight, d time.Duration) time.Time {
	wait := p.wait(r, d)
	more := !p.more.IsZero() && (!r.files || p.givers > 0 || p.ofClients(r.at))
	stands := r.at.Sub(p.busy)
	owed := len(u.good) == 0 || p.due(r.at, stands) >= manyDue && r.load >= 2 // a single request may be the last request for hours
	switch works := p.works(r); {
	case works && stands >= d && (owed || r.at.Sub(p.ended) <= d/2):
		return p.busy
	case works && stands >= wait && (more || p.givers > r.load):
		return p.busy
	case works && p.queues(r.at):
		return p.piles
	case more && r.at.Sub(p.more) >= wait:
		return p.more
	case p.flee(r) && r.at.Sub(p.moved) >= wait:
		return p.gaveUp
	}
	return time.Time{}
}

// wait returns the time without progress that proves a stall if the gauges alone do not prove it: the time in which
// manyDue answers are due, but at least d. If fewer are due, or if there are few connections, it is unproven.
func (p *past) wait(r sight, d time.Duration) time.Duration {
	if r.files && p.above(r) < min(connected, p.due(r.at, d)/4) {
		return max(d, unproven)
	}
	if perMinute := p.due(r.at, time.Minute); manyDue < perMinute*unproven.Minutes() {
		return max(d, time.Duration(manyDue/perMinute*float64(time.Minute)))
	}
	return max(d, unproven)
}

// ofClients reports whether new connections are probably from clients. In the last hour, the engine must have answered
// often, and the connections must have come soon after the last progress.
func (p *past) ofClients(now time.Time) bool {
	silence := p.more.Sub(p.moved)
	return p.due(now, now.Sub(p.moved)) >= someDue && (silence <= 2*time.Minute || p.due(now, silence) <= manyDue)
}

// due returns how many answers are expected within some time, given the last hour. The beginning of a standstill is
// left out. Otherwise, an exporter that has just started would learn to expect few answers.
func (p *past) due(now time.Time, within time.Duration) float64 {
	if now.Sub(p.moved) <= unproven {
		now = p.moved
	}
	_, perSecond := answersIn(&p.hour, now, p.since)
	return perSecond * within.Seconds()
}

// partOf returns the part of the hour that a time belongs to, and begins that part if it is new.
func partOf(hour *[parts]part, at time.Time) *part {
	number := at.UnixNano() / int64(traffic/parts)
	p := &hour[number%parts]
	if p.number != number {
		*p = part{number: number}
	}
	return p
}

// answersIn returns the number of good answers in the last hour, and their rate per second. The rate is the mean since
// the oldest part of the hour with data or, if later, since the given time.
func answersIn(hour *[parts]part, now, since time.Time) (good, perSecond float64) {
	oldest := now
	for _, h := range hour {
		if from := time.Unix(0, h.number*int64(traffic/parts)); h.number > 0 && now.Sub(from) < traffic {
			good += h.good
			if from.Before(oldest) {
				oldest = from
			}
		}
	}
	if oldest.Before(since) {
		oldest = since
	}
	return good, good / max(now.Sub(oldest), time.Minute).Seconds()
}

// files returns the lower and the upper bound of the number of files that the server's process has open at rest.
func (p *past) files(now time.Time) (low, high float64) {
	low, high = math.Inf(-1), math.Inf(-1)
	for _, h := range p.hour {
		if now.Sub(time.Unix(0, h.number*int64(traffic/parts))) >= traffic {
			continue
		}
		if h.open {
			high = max(high, h.high)
		}
		if h.rest && (math.IsInf(low, -1) || h.low < low) {
			low = h.low
		}
	}
	return low, high
}

// above returns how many more requests are in the server now than at the last progress and at rest.
func (p *past) above(r sight) float64 {
	if !r.files {
		return r.held - p.least
	}
	_, high := p.files(r.at)
	return r.held - max(high, p.least)
}

// idle reports whether the server shows that there is no request, even if the gauges repeat old numbers.
func (p *past) idle(r sight) bool {
	if !r.files {
		return r.held == 0
	}
	low, _ := p.files(r.at)
	return r.held <= low
}

// inFlight returns the number of requests in the server.
func (p *past) inFlight() float64 {
	r := p.last
	if !r.files {
		return r.held
	}
	switch {
	case p.idle(r) && !p.moved.Equal(r.at):
		return 0
	case p.moved.Equal(r.at):
		return r.load
	}
	if above := p.above(r); above >= newFiles { // a smaller number may be connections that a gateway keeps open
		return max(r.load, above)
	}
	return r.load
}

// stalled returns for how many seconds the unit has certainly made no progress.
func (p *past) stalled() float64 {
	if p.certain.IsZero() {
		return 0
	}
	return p.last.at.Sub(p.certain).Seconds()
}

// without returns for how many seconds the unit has made no progress. It returns 0 if the unit may just be idle: if no
// requests are shown, and progress of the unit would not show at once.
func (p *past) without(u *unit) float64 {
	r, since := p.last, p.busy
	if r.load == 0 && p.seen && (u.steps || u.perStep) {
		since = p.moved
	}
	if stands := r.at.Sub(since); !since.IsZero() && !r.asleep && !r.young && stands >= p.patience(u, r.at) {
		return stands.Seconds()
	}
	return 0
}
