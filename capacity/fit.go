package capacity

import (
	"math"
	"slices"
)

// columns is the maximum number of coefficients of a fit.
const columns = 4

// regression fits y = c0*x0 + c1*x1 + ... by least squares. Older observations count less.
type regression struct {
	n, w, yy float64
	xy       [columns]float64
	xx       [columns][columns]float64
	x        [columns]float64
}

// add adds an observation with a weight.
func (r *regression) add(f, weight, y float64, x ...float64) {
	r.n, r.w, r.yy = f*r.n+1, f*r.w+weight, f*r.yy+weight*y*y
	for i := range columns {
		r.xy[i] = f*r.xy[i] + weight*x[i]*y
		r.x[i] = f*r.x[i] + weight*x[i]
		for j := range columns {
			r.xx[i][j] = f*r.xx[i][j] + weight*x[i]*x[j]
		}
	}
}

// scale multiplies all observations.
func (r *regression) scale(by float64) {
	r.yy *= by * by
	for i := range r.xy {
		r.xy[i] *= by
	}
}

// spread returns the standard deviation of a column as a share of its mean.
func (r *regression) spread(i int) float64 {
	mean := math.Abs(r.x[i] / r.w)
	if mean == 0 {
		return 0
	}
	return math.Sqrt(math.Max(0, r.xx[i][i]/r.w-mean*mean)) / mean
}

// line holds the coefficients of a fit, their covariance, and the standard deviation of the residuals.
type line struct {
	c    [columns]float64
	cov  [columns][columns]float64
	left float64
}

// shapes lists which coefficients a fit may have. Simple fits come first.
var shapes = [][columns]bool{
	{true},
	{true, false, true},
	{true, true},
	{true, true, true},
	{true, false, true, true},
	{true, true, false, true},
	{true, true, true, true},
}

// bend is the value of the last column. A step reads the weights anyway, so its first prompt tokens cost almost
// nothing, and each further token costs more. The divisor brings the column to the scale of the other columns.
func bend(prompt float64) float64 { return prompt * prompt / 1e4 }

// solve returns the fit in which only the first coefficient may be above zero, because more work makes no step faster.
func (r *regression) solve() (line, bool) {
	best, found := line{}, false
	for _, use := range shapes {
		l, ok := r.with(use)
		if !ok || l.c[0] <= 0 || slices.Max(l.c[1:]) > 0 {
			continue
		}
		if !found || l.left < best.left {
			best, found = l, true
		}
	}
	return best, found
}

// with fits only some of the columns.
func (r *regression) with(use [columns]bool) (l line, ok bool) {
	var at []int
	for i, u := range use {
		if u {
			at = append(at, i)
		}
	}
	n := len(at)
	m := make([][]float64, n)
	for i := range n {
		m[i] = make([]float64, 2*n)
		for j := range n {
			m[i][j] = r.xx[at[i]][at[j]]
		}
		m[i][n+i] = 1
	}
	if !invert(m, n) {
		return l, false
	}
	rss := r.yy
	for i := range n {
		for j := range n {
			l.c[at[i]] += m[i][n+j] * r.xy[at[j]]
		}
	}
	for i := range n {
		rss -= l.c[at[i]] * r.xy[at[i]]
	}
	free := r.n - float64(n)
	if free < 1 {
		return l, false
	}
	variance := math.Max(0, rss) / free // variance of an observation of weight 1
	l.left = math.Sqrt(math.Max(0, rss) / r.w)
	for i := range n {
		for j := range n {
			l.cov[at[i]][at[j]] = variance * m[i][n+j]
		}
	}
	return l, true
}

// invert takes a matrix with the identity as its right half. It turns the left half into the identity, and thus the right half into the
// inverse.
func invert(m [][]float64, n int) bool {
	for c := range n {
		p := c
		for i := c + 1; i < n; i++ {
			if math.Abs(m[i][c]) > math.Abs(m[p][c]) {
				p = i
			}
		}
		if math.Abs(m[p][c]) < 1e-12 {
			return false
		}
		m[c], m[p] = m[p], m[c]
		d := m[c][c]
		for j := range m[c] {
			m[c][j] /= d
		}
		for i := range n {
			if f := m[i][c]; i != c {
				for j := range m[i] {
					m[i][j] -= f * m[c][j]
				}
			}
		}
	}
	return true
}
