package engine

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Values of the reason label of llm_engine_up.
const (
	reasonPending     = "pending" // never a label value: before the first scrape
	reasonUnreachable = "unreachable"
	reasonReset       = "connection_closed"
	reasonNotHTTP     = "not_http"
	reasonTimeout     = "timeout"
	reasonTLS         = "tls"
	reasonAuth        = "unauthorized"
	reasonStatus      = "http_" // followed by the status code
	reasonTruncated   = "truncated"
	reasonLoading     = "loading"
	reasonDisabled    = "metrics_disabled"
	reasonNotMetrics  = "not_metrics"
	reasonJSON        = "json_metrics"
	reasonParse       = "parse_error"
	reasonDuplicate   = "duplicate_series"
	reasonLimit       = "limit_exceeded"
	reasonEmpty       = "empty_page"
	reasonRouter      = "router"
	reasonNotEngine   = "not_an_engine"
	reasonUnknown     = "unknown_engine"
	reasonExhausted   = "exporter_exhausted"
)

// Reasons that come with the numbers of a page that is read.
const (
	NoWorker  = "no_worker"
	NotLoaded = "not_loaded" // with llm_engine_up 1
)

// Reasons explains every value of the reason label of llm_engine_up: what it means and what to do.
var Reasons = []struct{ Reason, Meaning, Remedy string }{
	{reasonUnreachable, "No connection: nothing listens there, or the name does not resolve.", "Is the engine running, and the target's host and port right? `curl -sv URL`"},
	{reasonExhausted, "The exporter itself has run out of files, ports or memory and cannot reach the engine.", "The exporter's log names the resource. Raise the limit of its process (`LimitNOFILE`, `ulimit -n`), or read fewer engines with it."},
	{reasonReset, "Something listens there and closed the connection without an answer.", "An engine that is dying, a proxy without it, or a port that wants TLS: `curl -sv URL`, then with https."},
	{reasonNotHTTP, "Something listens there and does not speak HTTP.", "Is the port right? `curl -sv URL`"},
	{reasonTimeout, "The engine did not send its whole page in time.", "A wedged or overloaded engine, or a timeout shorter than its answers: `curl -so /dev/null -w '%{time_total}\\n' URL`"},
	{reasonTLS, "The TLS handshake failed.", "Check `http_config.tls_config` of the target: CA, server name, client certificate."},
	{reasonAuth, "The engine wants credentials (401 or 403), or a file of them cannot be read.", "Set `http_config.authorization.credentials_file` of the target. The log names a file that cannot be read."},
	{reasonStatus + "NNN", "The engine answered with another HTTP status.", "`curl -i URL` shows its message. " + remedies(reasonStatus+"NNN")},
	{reasonTruncated, "The connection ended in the middle of the page.", "The engine or a proxy before it died while answering."},
	{reasonLoading, "The engine is still loading its model.", "Wait; if it lasts, see the engine's log."},
	{reasonDisabled, "The engine serves, but its metrics are switched off.", remedies(reasonDisabled)},
	{reasonNotMetrics, "The answer is a web page or another document.", "Is the path right, or does a login page stand before the engine?"},
	{reasonJSON, "The answer is a JSON list of iteration statistics, and reading would empty it.", remedies(reasonJSON)},
	{NoWorker, "The page is that of a frontend or an endpoint picker, and no worker is behind it: every request to it fails.", "Check its workers and how it finds them: its log names the last worker that left; its pool selects workers by label."},
	{NotLoaded, "The engine answers and `llm_engine_up` is 1, but the model is not loaded. The next request loads it.", "Nothing: a scrape never loads a model. If requests fail, look at the engine's log."},
	{reasonParse, "The page breaks the Prometheus text format.", "The log names the line. An engine bug, or a proxy that cuts pages."},
	{reasonDuplicate, "The page has one series twice, perhaps with different values.", "Two engines share one metrics directory, or a proxy joins their pages."},
	{reasonLimit, "The page is larger than the limits allow.", "If the engine is right, raise `limits` in the configuration."},
	{reasonEmpty, "The page has no series.", "Some engines are silent until the first request. Name the engine in the configuration to accept that."},
	{reasonRouter, "The page belongs to a router or gateway that is not read.", "Make the engines behind it the targets."},
	{reasonNotEngine, "The page belongs to a known server that is no engine: a sidecar, an exporter, a cache.", "Take it off the targets. The log and `/engines` name the server, and what to read instead."},
	{reasonUnknown, "The page is readable, but no known engine wrote it.", "Name the engine in the configuration, or describe it under `mappings`. " + remedies(reasonUnknown)},
}

// remedies joins what single engines need about a reason.
func remedies(reason string) string {
	var all []string
	for _, d := range builtin {
		if d.Remedies[reason] != "" {
			all = append(all, d.Remedies[reason])
		}
	}
	slices.Sort(all)
	return strings.Join(all, " ")
}

// Remedy returns what to do about a reason.
func Remedy(reason string) string {
	if strings.HasPrefix(reason, reasonStatus) {
		reason = reasonStatus + "NNN"
	}
	for _, r := range Reasons {
		if r.Reason == reason {
			return r.Meaning + " " + r.Remedy
		}
	}
	return ""
}

// statusError reports an answer with a status other than 200.
type statusError struct {
	code    int
	message string
}

func (e *statusError) Error() string {
	s := strconv.Itoa(e.code) + " " + http.StatusText(e.code)
	if e.message != "" {
		s += ": " + e.message
	}
	return s
}

// Exhausted reports whether an error is this process's own: it has no file, port or memory left to ask with.
func Exhausted(err error) bool {
	return slices.ContainsFunc([]syscall.Errno{syscall.EMFILE, syscall.ENFILE, syscall.EADDRNOTAVAIL, syscall.ENOBUFS, syscall.ENOMEM}, func(own syscall.Errno) bool {
		return errors.Is(err, own)
	})
}

// reasonOf returns the reason for a scrape error.
func reasonOf(err error) string {
	var (
		page    *unusableError
		status  *statusError
		certErr *tls.CertificateVerificationError
		unknown x509.UnknownAuthorityError
		record  tls.RecordHeaderError
		alert   tls.AlertError
		network net.Error
		file    *fs.PathError
	)
	switch {
	case Exhausted(err):
		return reasonExhausted
	case errors.As(err, &page):
		return page.Reason
	case errors.As(err, &status):
		if status.code == http.StatusUnauthorized || status.code == http.StatusForbidden {
			return reasonAuth
		}
		return reasonStatus + strconv.Itoa(status.code)
	case errors.As(err, &file):
		return reasonAuth
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled), errors.As(err, &network) && network.Timeout():
		return reasonTimeout
	case errors.As(err, &certErr), errors.As(err, &unknown), errors.As(err, &record), errors.As(err, &alert):
		return reasonTLS
	case errors.Is(err, io.ErrUnexpectedEOF):
		return reasonTruncated
	case strings.Contains(err.Error(), "malformed HTTP"): // net/http has no type for it
		return reasonNotHTTP
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE), errors.Is(err, io.EOF):
		return reasonReset
	}
	return reasonUnreachable
}
