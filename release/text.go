package release

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/rules"
)

// Shown returns a value in a form for people.
func Shown(v float64, u rules.Unit) string {
	switch u {
	case rules.Share:
		return fmt.Sprintf("%.3g%%", 100*v)
	case rules.Seconds:
		if v < 1 {
			return fmt.Sprintf("%.3gms", 1000*v)
		}
		return fmt.Sprintf("%.3gs", v)
	case rules.Count, rules.Decimal, rules.On, rules.Bare:
	}
	if v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return fmt.Sprintf("%.3g", v)
}

// Write writes changes as text.
func Write(out io.Writer, all []Change, o Options) error {
	var b strings.Builder
	if len(all) == 0 {
		fmt.Fprintf(&b, "The exporters report no change of a version or a setting within %s.\n", o.Since)
	}
	for i, c := range all {
		if i > 0 {
			b.WriteString("\n")
		}
		c.write(&b)
	}
	_, err := io.WriteString(out, b.String())
	return err
}

func (c Change) write(b *strings.Builder) {
	name := strings.TrimPrefix(strings.Join([]string{c.Cluster, c.Namespace, c.Model}, "/"), "/")
	fmt.Fprintf(b, "%s: %s\n", strings.TrimPrefix(name, "/"), strings.ToUpper(string(c.Verdict)))
	for _, s := range c.Settings {
		fmt.Fprintf(b, "  %s %s -> %s, replicas: %d\n", s.Setting, s.Old, s.New, s.Replicas)
	}
	when := c.From.UTC().Format("2006-01-02 15:04:05")
	if c.To.After(c.From) {
		when += " to " + clock(c.To)
	}
	how := ""
	switch {
	case c.Back:
		how = ", a rollback"
	case c.Replicas > 0:
		how = fmt.Sprintf(", %d of %d replicas", c.Changed, c.Replicas)
	}
	fmt.Fprintf(b, "  %s%s\n", when, how)
	for _, why := range c.Why {
		fmt.Fprintf(b, "  %s\n", why)
	}
	if len(c.Compared) == 0 {
		return
	}
	row := func(says, before, after, mark string) {
		b.WriteString(strings.TrimRight(fmt.Sprintf("  %-36s %-18s %-18s %s", says, before, after, mark), " ") + "\n")
	}
	fmt.Fprintf(b, "\n  Compared with %s\n", c.Against)
	row("", clock(c.Before.From)+"-"+clock(c.Before.To), clock(c.After.From)+"-"+clock(c.After.To), "")
	row("Requests per second and replica", Shown(c.Before.Load, rules.Decimal), Shown(c.After.Load, rules.Decimal), "")
	for _, r := range c.Compared {
		value := func(v *float64) string {
			if v == nil {
				return "not reported"
			}
			return Shown(*v, r.Unit)
		}
		mark := ""
		if r.Worse {
			mark = "worse"
		}
		row(r.Says, value(r.Before), value(r.After), mark)
	}
}
