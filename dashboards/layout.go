package dashboards

import (
	"hash/fnv"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// columns is the width of Grafana's grid.
const columns = 24

// place arranges panels from left to right, starting at y, and begins a new line if a panel does not fit, which the
// SDK's own layout does not do. All panels of a line get the height of the highest, except a tall panel at the end of
// the line. place also returns the y of the next row.
func place(panels []Panel, y uint32) ([]dashboard.GridPos, uint32) {
	var x, lineHeight uint32
	first := 0                        // first panel of the line
	room, until := uint32(columns), y // remaining width, and the y where the tall panel beside the lines ends
	at := make([]dashboard.GridPos, len(panels))
	for i, p := range panels {
		if x+p.Width > room {
			x, y, lineHeight, first = 0, y+lineHeight, 0, i
			if y >= until {
				room = columns
			}
		}
		at[i] = dashboard.GridPos{X: x, Y: y, W: p.Width, H: p.Height}
		if p.Tall {
			room, until = x, y+p.Height
			continue
		}
		x, lineHeight = x+p.Width, max(lineHeight, p.Height)
		for j := first; j <= i; j++ {
			at[j].H = lineHeight
		}
	}
	return at, max(y+lineHeight, until)
}

// id returns the id of a panel or row. It depends on the titles and not on the position, because bookmarks and links to
// single panels contain it.
func id(row, title string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(row + "\x00" + title))
	return h.Sum32()%1_000_000 + 1
}
