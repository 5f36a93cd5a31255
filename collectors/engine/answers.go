package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
	"github.com/llm-node-exporter/llm-node-exporter/slo"
)

// This file reports where each quantity of a metrics page comes from. For missing quantities, it reports the reason.

// NeedsKey begins the reason of a quantity that is missing because its endpoint requires a key.
const NeedsKey = "needs the key of the engine's API for "

// untilServed lists the reasons that no longer apply once the engine serves.
var untilServed = []string{noRequest, noFinish, noDecode, noPrefill, notLoaded, noWorker}

const (
	noRequest = "no request yet"
	noFinish  = "no request has finished yet"
	noDecode  = "no request has been decoded yet"
	noPrefill = "no request has been prefilled yet"
	notLoaded = "the model is not loaded yet"
	noWorker  = "no worker has registered yet"

	nothingYet = "no such event yet"

	servedWithout = "not on the page, though the engine has served"
	absurdNumber  = "its number is negative or infinite"
)

// silent prepares the answer for a quantity whose sources are on the metrics page but give no number.
func (c *compiler) silent(d *Dialect, to *metrics.Family, a *answer, r *Row) {
	why := cmp.Or(r.NoValue, "its source gives no number yet")
	if c.config.shapes[to].Keep == slo.Drop {
		why = "dropped by the configuration"
	}
	a.missing = c.info(d, to, r.From, metrics.Missing, why)
	c.absurd(d, to, a, r.From)
}

// absurd prepares the answer for a source that gives an impossible number.
func (c *compiler) absurd(d *Dialect, to *metrics.Family, a *answer, source string) {
	a.absurd = c.info(d, to, source, metrics.Missing, absurdNumber)
	a.lacks, a.why = &absent{d.Runtime, to.Name, source}, absurdNumber
}

// missing explains why the metrics page has no source for a quantity. If one of the engine's endpoints reports the
// quantity, missing takes the number from there.
func (c *compiler) missing(d *Dialect, to *metrics.Family, a *answer, rows []*Row, version bracket, defaults map[string]string) {
	for _, n := range c.identity.Numbers {
		if n.To == to {
			source := c.source(a, c.info(d, to, n.Source, n.Quality, n.Why))
			c.absurd(d, to, a, n.Source)
			c.add(line{family: to, text: c.text(to.Name, c.whole(d, defaults)), recipe: &recipe{value: n.Value, from: []int{source}}})
			return
		}
	}
	because := func(source, why string) string { return c.info(d, to, source, metrics.Missing, why) }
	if path := d.Endpoints[to]; path != "" {
		a.missing = because("", "read from "+path+", which did not answer")
		if c.identity.Locked {
			a.missing = because("", NeedsKey+path)
		}
		return
	}
	if len(rows) == 0 {
		a.missing = because("", d.Lacks(to))
		return
	}
	reason := ""
	var expected *Row
	for _, r := range rows {
		f := c.page.Find(r.From, r.Is)
		switch {
		case f != nil && f.Kind != "" && f.Kind != r.Is && version.within(r.Since, r.Until):
			a.missing = because(r.From, fmt.Sprintf("source is a %s, not a %s", f.Kind, r.Is))
			a.lacks, a.why = &absent{d.Runtime, to.Name, r.From}, fmt.Sprintf("is a %s on the page, not a %s", f.Kind, r.Is)
			return
		case !version.overlaps(r.Since, r.Until):
		case r.Absent != "":
			reason = cmp.Or(reason, r.Absent)
		case version.within(r.Since, r.Until):
			expected = r
		}
	}
	switch {
	case slices.Contains(untilServed, reason):
		a.idle, a.missing = because("", reason), because("", servedWithout)
	case reason != "":
		a.missing = because("", reason)
	case expected != nil:
		a.idle = because(expected.From, "not on the page yet: the engine has served nothing")
		a.missing = because(expected.From, "expected in this version, not on the page")
		a.lacks, a.why = &absent{d.Runtime, to.Name, expected.From}, "not on the page"
	default:
		a.missing = because("", "only in versions "+ranges(rows))
	}
}

// ranges lists the version ranges of rows. It leaves out ranges that other ranges include.
func ranges(rows []*Row) string {
	spans := func(o, r *Row) bool {
		return !older(r.Since, o.Since) && (o.Until == "" || r.Until != "" && !older(o.Until, r.Until))
	}
	var all []string
	for i, r := range rows {
		wider := func(o *Row) bool { return spans(o, r) && (!spans(r, o) || slices.Index(rows, o) < i) }
		if !slices.ContainsFunc(rows, wider) {
			var bounds bracket
			bounds.narrow(r.Since, r.Until)
			all = append(all, bounds.String())
		}
	}
	return strings.Join(all, " or ")
}

// source adds a source to the plan and to an answer, and returns its index.
func (c *compiler) source(a *answer, text string) int {
	place := slices.IndexFunc(a.sources, func(i int) bool { return c.plan.sources[i].text == text })
	if place >= 0 {
		return a.sources[place]
	}
	c.plan.sources = append(c.plan.sources, source{text: text})
	a.sources = append(a.sources, len(c.plan.sources)-1)
	return len(c.plan.sources) - 1
}

// info renders a series that reports where a quantity comes from.
func (c *compiler) info(d *Dialect, to *metrics.Family, source string, q metrics.Quality, why string, more ...metrics.Label) string {
	return c.target.text(metrics.MetricSourceInfo.Name, d.Runtime, append([]metrics.Label{
		{Name: metrics.LabelMetric, Value: to.Name},
		{Name: metrics.LabelSource, Value: source},
		{Name: metrics.LabelQuality, Value: string(q)},
		{Name: metrics.LabelReason, Value: why},
	}, more...)...)
}
