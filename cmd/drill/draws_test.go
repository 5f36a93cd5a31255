package main

import (
	"io"
	"testing"
)

// TestDraw plays a fixed seed in which users suffer and a page is sent.
func TestDraw(t *testing.T) {
	if s, err := playDraw(t.Context(), 4529, io.Discard); err != nil || s.Class != "all-refused" || !s.Incident || s.Pages != 1 ||
		!s.Page.Right {
		t.Errorf("got %+v, %v; want one page about routing", s, err)
	}
	// The seed draws a rollout that should be harmless, in which 7% of the requests fail.
	if s, err := playDraw(t.Context(), 4551, io.Discard); err != nil || s.Class != "quiet-release" || !s.Due || s.Incident || s.Pages != 1 {
		t.Errorf("got %+v, %v; want a page that was due", s, err)
	}
}
