package report

import (
	"fmt"
	"html/template"
	"io"
	"strings"
)

// These are sizes of a picture in pixels: the rows of a title and of the names below it, and the gap between plots.
const titleHeight, namesHeight, gap = 22, 14, 5

// WriteSVG writes a trace as one picture: the bars of its alerts, and its plots.
func WriteSVG(out io.Writer, t Trace) error {
	across := barsWidth / width
	alerts := barHeight*len(t.alerts()) + timesHeight
	const row = titleHeight + namesHeight + height + timesHeight
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="system-ui, sans-serif" role="img" aria-label="%s">`+"\n<style>\n%ssvg { background: var(--back) } tspan { fill: currentColor }\n</style>\n",
		barsWidth, 2*titleHeight+alerts+(len(t.Plots)+across-1)/across*row, template.HTMLEscapeString(t.Incident.Name+": "+
			t.Incident.Story), style)
	fmt.Fprintf(&b, `<text class="name" x="4" y="15">%s, alerts. Simulated; minutes since the onset, the dashed line. Pages are red.</text>`+"\n"+`<g transform="translate(0 %d)">`,
		template.HTMLEscapeString(t.Incident.Name), titleHeight)
	alertBars(&b, t)
	b.WriteString("</g>\n")
	for i, p := range t.Plots {
		fmt.Fprintf(&b, `<g transform="translate(%d %d)"><text class="name" x="4" y="15">%s, up to %.4g</text><text x="4" y="28">`,
			i%across*(width+gap), 2*titleHeight+alerts+i/across*row, template.HTMLEscapeString(p.Title), p.top())
		for k, name := range p.names() {
			fmt.Fprintf(&b, `<tspan class="k%d">%s </tspan>`, k%8, template.HTMLEscapeString(name))
		}
		fmt.Fprintf(&b, `</text><g transform="translate(0 %d)">`, titleHeight+namesHeight)
		lines(&b, t, p)
		b.WriteString("</g></g>\n")
	}
	b.WriteString("</svg>\n")
	_, err := io.WriteString(out, b.String())
	return err
}
