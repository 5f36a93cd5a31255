package scrape

import (
	"fmt"
	"io/fs"
	"net"
	"net/url"
	"os"
	"syscall"
	"testing"
)

// TestOwnExhaustionHasItsReason checks that an exporter without a file or a port left reports nothing about the servers
// that it queries.
func TestOwnExhaustionHasItsReason(t *testing.T) {
	dial := func(err error) error {
		return &url.Error{Op: "Get", URL: "http://e", Err: &net.OpError{Op: "dial", Err: err}}
	}
	for err, want := range map[error]string{
		dial(os.NewSyscallError("socket", syscall.EMFILE)):                                      ExporterExhausted,
		dial(os.NewSyscallError("connect", syscall.EADDRNOTAVAIL)):                              ExporterExhausted,
		fmt.Errorf("token: %w", &fs.PathError{Op: "open", Path: "/token", Err: syscall.ENFILE}): ExporterExhausted,
		dial(os.NewSyscallError("connect", syscall.ECONNREFUSED)):                               Unreachable,
		fmt.Errorf("token: %w", &fs.PathError{Op: "open", Path: "/token", Err: syscall.ENOENT}): Unauthorized,
	} {
		if got := ReasonOf(err); got != want {
			t.Errorf("%v: %s, want %s", err, got, want)
		}
	}
}

// TestReasonsAreExplained checks that each reason has a meaning and, unless the caller adds it, a remedy.
func TestReasonsAreExplained(t *testing.T) {
	for _, reason := range []string{
		Unreachable, ConnectionClosed, NotHTTP, Timeout, TLSFailed, Unauthorized, HTTPStatus + "418",
		Truncated, NotMetrics, JSONMetrics, ParseError,
		LimitExceeded, ExporterExhausted,
	} {
		if Remedy(Reasons, reason) == "" {
			t.Errorf("%s has no line in Reasons of collectors/scrape/reason.go", reason)
		}
	}
}
