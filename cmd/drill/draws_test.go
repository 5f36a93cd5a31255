package main

import (
	"io"
	"testing"
)

// TestDraw plays a fixed seed, whose users suffer and for which somebody is woken.
func TestDraw(t *testing.T) {
	if s, err := playDraw(t.Context(), 8, io.Discard); err != nil || s.Class != "gateway-fails" || !s.Incident || s.Pages != 1 || !s.Page.Right {
		t.Errorf("got %+v, %v; want one page about routing", s, err)
	}
}
