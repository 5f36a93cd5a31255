package engine

import (
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"syscall"
	"testing"
)

// TestOwnExhaustionHasItsReason: an exporter without a file or a port left says nothing about its engines.
func TestOwnExhaustionHasItsReason(t *testing.T) {
	dial := func(err error) error {
		return &url.Error{Op: "Get", URL: "http://e", Err: &net.OpError{Op: "dial", Err: err}}
	}
	for err, want := range map[error]string{
		dial(os.NewSyscallError("socket", syscall.EMFILE)):                                      reasonExhausted,
		dial(os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)):                              reasonExhausted,
		fmt.Errorf("token: %w", &fs.PathError{Op: "open", Path: "/token", Err: syscall.ENFILE}): reasonExhausted,
		dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)):                               reasonUnreachable,
		fmt.Errorf("token: %w", &fs.PathError{Op: "open", Path: "/token", Err: syscall.ENOENT}): reasonAuth,
	} {
		if got := reasonOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
	c := collectorFor(t, []TargetConfig{{URL: "http://127.0.0.1:1", Transport: failing{dial(syscall.EMFILE)}}})
	parse(t, exposition(t, c)).want(t, `llm_engine_up{reason="exporter_exhausted"}`, 0)
}

type failing struct{ error }

func (f failing) RoundTrip(*http.Request) (*http.Response, error) { return nil, f.error }
