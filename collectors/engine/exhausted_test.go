package engine

import (
	"net"
	"net/http"
	"net/url"
	"syscall"
	"testing"
)

// TestOwnExhaustionHasItsReason checks that an exporter without a file or a port left reports nothing about its
// engines.
func TestOwnExhaustionHasItsReason(t *testing.T) {
	dial := &url.Error{Op: "Get", URL: "http://e", Err: &net.OpError{Op: "dial", Err: syscall.EMFILE}}
	c := collectorFor(t, []TargetConfig{{URL: "http://127.0.0.1:1", Transport: failing{dial}}})
	parse(t, exposition(t, c)).want(t, `llm_engine_up{reason="exporter_exhausted"}`, 0)
}

type failing struct{ error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.error }
