package scrape

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// These are the reasons why metrics cannot be read. They are values of the label reason of llm_engine_up and llm_gpu_source_up.
const (
	Unreachable       = "unreachable"
	ConnectionClosed  = "connection_closed"
	NotHTTP           = "not_http"
	Timeout           = "timeout"
	TLSFailed         = "tls"
	Unauthorized      = "unauthorized"
	HTTPStatus        = "http_"            // followed by the status code
	HTTPAny           = HTTPStatus + "NNN" // any of these statuses, in tables
	Truncated         = "truncated"
	NotMetrics        = "not_metrics"
	JSONMetrics       = "json_metrics"
	ParseError        = "parse_error"
	LimitExceeded     = "limit_exceeded"
	ExporterExhausted = "exporter_exhausted"
)

// An Explanation describes what a reason means and what to do about it.
type Explanation struct{ Reason, Meaning, Remedy string }

// Reasons explains the reasons above.
var Reasons = []Explanation{
	{
		Reason: Unreachable, Meaning: "No connection: nothing listens at this address, or the name does not resolve.",
		Remedy: "Is the server running, and does it listen on this host and port? `curl -sv URL`",
	},
	{
		Reason: ExporterExhausted, Meaning: "The exporter itself has run out of file descriptors, ports or memory, so it cannot connect to any engine.",
		Remedy: "The exporter's log names the resource. Raise the limit of its process (`LimitNOFILE`, `ulimit -n`), or let this exporter " +
			"read fewer engines.",
	},
	{
		Reason: ConnectionClosed, Meaning: "A server closed the connection without an answer.",
		Remedy: "The server may be shutting down, a proxy may have no server behind it, or the port may need TLS: try `curl -sv URL`, then " +
			"with https.",
	},
	{Reason: NotHTTP, Meaning: "The program at this port does not speak HTTP.", Remedy: "Is the port right? `curl -sv URL`"},
	{
		Reason: Timeout, Meaning: "The server did not send all its metrics in time.",
		Remedy: "The server hangs or is overloaded, or the timeout is too short: `curl -so /dev/null -w '%{time_total}\\n' URL`",
	},
	{Reason: TLSFailed, Meaning: "The TLS handshake failed.", Remedy: "Check `http_config.tls_config`: CA, server name, client certificate."},
	{
		Reason: Unauthorized, Meaning: "The server requires credentials (401 or 403), or the exporter cannot read a credentials file.",
		Remedy: "Set `http_config.authorization.credentials_file`. The log names an unreadable file.",
	},
	{Reason: HTTPAny, Meaning: "The server answered with another HTTP status.", Remedy: "`curl -i URL` shows the server's message."},
	{
		Reason: Truncated, Meaning: "The connection ended before all metrics were sent.",
		Remedy: "The server, or a proxy in front of it, died while it answered.",
	},
	{
		Reason: NotMetrics, Meaning: "The answer is a web page or another document, not metrics.",
		Remedy: "Is the path right? Does a proxy answer with a login page?",
	},
	{Reason: JSONMetrics, Meaning: "The answer is a JSON list, such as iteration statistics, which every reading would empty."},
	{
		Reason: ParseError, Meaning: "The metrics break the Prometheus text format.",
		Remedy: "The log names the line. The server has a bug, or a proxy cuts answers off.",
	},
	{
		Reason: LimitExceeded, Meaning: "The metrics are larger than the limits allow.",
		Remedy: "If this size is normal for the server, raise `limits` in the configuration.",
	},
}

// Remedy returns what a reason means and what to do about it. It is empty if the list of explanations lacks the reason.
func Remedy(all []Explanation, reason string) string {
	if strings.HasPrefix(reason, HTTPStatus) {
		reason = HTTPAny
	}
	for _, e := range all {
		if e.Reason == reason {
			return strings.TrimSpace(e.Meaning + " " + e.Remedy)
		}
	}
	return ""
}

// An Error reports a metrics page that was fetched, but that cannot or must not be used. Reason is one of the constants of
// this package, or a reason that the caller defines.
type Error struct {
	Reason string
	Err    error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Errorf returns an Error. format may wrap another error with %w.
func Errorf(reason, format string, args ...any) error {
	return &Error{reason, fmt.Errorf(format, args...)}
}

// A StatusError reports an answer with a status other than 200. Message is the reason that the server gave, or empty.
type StatusError struct {
	Code    int
	Message string
}

func (e *StatusError) Error() string {
	s := strconv.Itoa(e.Code) + " " + http.StatusText(e.Code)
	if e.Message != "" {
		s += ": " + e.Message
	}
	return s
}

// Exhausted reports whether an error comes from this process, because it has no file, port or memory left.
func Exhausted(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM},
		func(own syscall.Errno) bool {
			return errors.Is(err, own)
		})
}

// ReasonOf returns the reason of an error of this package.
func ReasonOf(err error) string {
	var (
		page    *Error
		status  *StatusError
		certErr *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		network net.Error
		file    *fs.PathError
	)
	switch {
	case Exhausted(err):
		return ExporterExhausted
	case errors.As(err, &page):
		return page.Reason
	case errors.As(err, &status):
		if status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden {
			return Unauthorized
		}
		return HTTPStatus + strconv.Itoa(status.Code)
	case errors.As(err, &file):
		return Unauthorized
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.As(err, &network) && network.Timeout():
		return Timeout
	case errors.As(err, &certErr), errors.As(err, &unknown), errors.As(err, &record), errors.As(err, &alert):
		return TLSFailed
	case errors.Is(err, io.ErrUnexpectedEOF):
		return Truncated
	case strings.Contains(err.Error(), "malformed HTTP"): // net/http has no type for this error
		return NotHTTP
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		return ConnectionClosed
	}
	return Unreachable
}
