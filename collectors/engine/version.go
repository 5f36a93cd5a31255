package engine

import (
	"cmp"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Version is an engine release. It compares releases in all known spellings: 0.10.2, v0.5.10.post1, 1.3.0rc9, b10406.
type Version struct {
	text  string
	parts []int // major, minor, patch, phase (dev -2, rc -1, release 0, post 1), number within the phase
}

var versionPattern = regexp.MustCompile(`^[vb]?(\d+)(?:\.(\d+|x))?(?:\.(\d+|x))?(?:[.-]?(dev|rc|post)\.?(\d+))?`)

var phases = map[string]int{"dev": -2, "rc": -1, "": 0, "post": 1}

// ParseVersion reads a version. ok is false if s contains none.
func ParseVersion(s string) (v Version, ok bool) {
	m := versionPattern.FindStringSubmatch(s)
	if m == nil {
		return Version{}, false
	}
	number := func(s string) int {
		if s == "x" { // in the bounds of a dialect, 0.11.x is the last release of a line
			return math.MaxInt32
		}
		n, _ := strconv.Atoi(s)
		return n
	}
	return Version{
		text:  strings.TrimPrefix(m[0], "v"),
		parts: []int{number(m[1]), number(m[2]), number(m[3]), phases[m[4]], number(m[5])},
	}, true
}

// String returns the version without a leading v or local suffix.
func (v Version) String() string { return v.text }

// Compare orders versions. The result is negative if v is older than w.
func (v Version) Compare(w Version) int {
	return slices.CompareFunc(v.parts, w.parts, cmp.Compare[int])
}

// bracket is the range of versions that a metrics page can come from. Both ends may be unknown.
type bracket struct {
	min, max       Version
	hasMin, hasMax bool
}

// admits reports whether the metrics page can come from version v.
func (b bracket) admits(v Version) bool {
	return !(b.hasMin && v.Compare(b.min) < 0) && !(b.hasMax && v.Compare(b.max) > 0)
}

func exactly(v Version) bracket { return bracket{v, v, true, true} }

// narrow restricts the bracket. The metrics page has a family that exists from since to until.
func (b *bracket) narrow(since, until string) {
	if v, ok := ParseVersion(since); ok && (!b.hasMin || v.Compare(b.min) > 0) {
		b.min, b.hasMin = v, true
	}
	if v, ok := ParseVersion(until); ok && (!b.hasMax || v.Compare(b.max) < 0) {
		b.max, b.hasMax = v, true
	}
}

// within reports whether every version of the bracket lies between since and until. Only then is the absence of a
// source a fault.
func (b bracket) within(since, until string) bool {
	if s, ok := ParseVersion(since); ok && (!b.hasMin || b.min.Compare(s) < 0) {
		return false
	}
	if u, ok := ParseVersion(until); ok && (!b.hasMax || b.max.Compare(u) > 0) {
		return false
	}
	return true
}

// overlaps reports whether some version of the bracket lies between since and until.
func (b bracket) overlaps(since, until string) bool {
	if s, ok := ParseVersion(since); ok && b.hasMax && b.max.Compare(s) < 0 {
		return false
	}
	if u, ok := ParseVersion(until); ok && b.hasMin && b.min.Compare(u) > 0 {
		return false
	}
	return true
}

// String returns the version, or a bracket such as ">=0.9.2 <=0.10.2". It is empty if nothing is known.
func (b bracket) String() string {
	switch {
	case b.hasMin && b.hasMax && b.min.Compare(b.max) == 0:
		return b.min.String()
	case b.hasMin && b.hasMax:
		return ">=" + b.min.String() + " <=" + b.max.String()
	case b.hasMin:
		return ">=" + b.min.String()
	case b.hasMax:
		return "<=" + b.max.String()
	}
	return ""
}
