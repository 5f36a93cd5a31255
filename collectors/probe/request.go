package probe

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// atOnce is a very short time. If all messages with tokens arrive within it, a server has held them back, because no
// engine generates tokens that fast.
const atOnce = time.Millisecond

// result is the outcome of one request, as its client sees it. Times count from the start of the probe, by the
// monotonic clock. A time of 0 means that the event did not happen.
type result struct {
	outcome            metrics.ProbeOutcome
	connected          time.Duration
	phases             map[string]time.Duration
	firstByte          time.Duration
	token, visible     time.Duration // time of the first token and of the first visible token
	end                time.Duration // end of a complete answer
	messages           int
	arrivals           []arrival
	held               bool // all tokens arrived at once
	answer             [sha256.Size]byte
	prompt, completion int // from the usage in the answer; 0 without usage
}

// arrival is one read that returned tokens.
type arrival struct {
	at         time.Duration
	messages   int // messages with tokens
	completion int // tokens so far, if messages report tokens
}

// whole reports whether the answer is complete.
func (r *result) whole() bool { return r.end > 0 }

// gaps returns the seconds per token between messages. Messages of one read count as one message.
func (r *result) gaps() (seconds []float64) {
	all := 0
	for _, a := range r.arrivals {
		all += a.messages
	}
	for i := 1; i < len(r.arrivals); i++ {
		before, a := r.arrivals[i-1], r.arrivals[i]
		tokens := float64(a.messages) * float64(r.completion) / float64(all)
		if before.completion > 0 && a.completion > before.completion {
			tokens = float64(a.completion - before.completion)
		}
		if tokens > 0 {
			seconds = append(seconds, (a.at-before.at).Seconds()/tokens)
		}
	}
	return seconds
}

// trace records when a connection was opened. The transport's goroutines call its hooks, perhaps even after the answer.
type trace struct {
	now func() time.Duration

	mu                   sync.Mutex
	began, took          map[string]time.Duration
	connected, firstByte time.Duration
}

func (t *trace) begin(phase string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, begun := t.began[phase]; !begun { // several addresses may be tried at the same time
		t.began[phase] = t.now()
	}
}

func (t *trace) done(phase string, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, done := t.took[phase]; !done && err == nil {
		t.took[phase] = t.now() - t.began[phase]
	}
}

func (t *trace) note(instant *time.Duration) {
	t.mu.Lock()
	defer t.mu.Unlock()
	*instant = t.now()
}

func (t *trace) hooks() *httptrace.ClientTrace {
	return &httptrace.ClientTrace{
		DNSStart:             func(httptrace.DNSStartInfo) { t.begin("resolve") },
		DNSDone:              func(i httptrace.DNSDoneInfo) { t.done("resolve", i.Err) },
		ConnectStart:         func(string, string) { t.begin("connect") },
		ConnectDone:          func(_, _ string, err error) { t.done("connect", err) },
		TLSHandshakeStart:    func() { t.begin("tls") },
		TLSHandshakeDone:     func(_ tls.ConnectionState, err error) { t.done("tls", err) },
		GotConn:              func(httptrace.GotConnInfo) { t.note(&t.connected) },
		GotFirstResponseByte: func() { t.note(&t.firstByte) },
	}
}

// ask sends one request and reads its answer. start is when the probe began.
func (p *Probe) ask(ctx context.Context, start time.Time) (r result, err error) {
	ctx, cancel := context.WithTimeout(ctx, p.timeout)
	defer cancel()
	defer p.client.CloseIdleConnections() // each probe opens its own connection
	now := func() time.Duration { return time.Since(start) }
	t := &trace{now: now, began: map[string]time.Duration{}, took: map[string]time.Duration{}}
	body, err := p.body()
	if err != nil {
		return r, err
	}
	req, err := http.NewRequestWithContext(httptrace.WithClientTrace(ctx, t.hooks()), http.MethodPost, p.address(p.api.path(p.cfg.Model)),
		bytes.NewReader(body))
	if err != nil {
		return r, err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Accept", "text/event-stream, application/x-ndjson, application/json;q=0.5")
	req.Header.Set("Accept-Encoding", "identity") // compression would hold messages back
	req.Header.Set("User-Agent", p.userAgent)
	resp, err := p.client.Do(req)
	if err == nil {
		defer resp.Body.Close()
		err = r.read(resp, p.api, p.cfg.MaxTokens, now)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	r.connected, r.firstByte, r.phases = t.connected, t.firstByte, t.took
	if r.outcome == "" {
		r.outcome = outcomeOf(err, resp != nil)
	}
	return r, err
}

// outcomeOf names the outcome of a request that ended with an error.
func outcomeOf(err error, answered bool) metrics.ProbeOutcome {
	var network net.Error
	switch {
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return metrics.ProbeTimeout
	case errors.Is(err, bufio.ErrTooLong), errors.Is(err, gzip.ErrHeader):
		return metrics.ProbeInvalid
	case answered:
		return metrics.ProbeTruncated
	}
	return metrics.ProbeRefused
}

var (
	errNotStreamed = errors.New("this is not an answer of the API: check api, and leave the API's own path out of url")
	errTooMuch     = errors.New("the answer has more tokens than requested")
	errInStream    = errors.New("the stream contains an error")
)

// read reads an answer. If it returns no outcome, the error describes the end of the answer.
func (r *result) read(resp *http.Response, api *api, maxTokens int, now func() time.Duration) error {
	errStatus := fmt.Errorf("the answer has status %q instead of 200", resp.Status)
	switch code := resp.StatusCode; {
	case code == http.StatusTooManyRequests:
		r.outcome = metrics.ProbeRateLimited
		return errStatus
	case code >= 500:
		r.outcome = metrics.ProbeServerError
		return errStatus
	case code >= 400:
		r.outcome = metrics.ProbeClientError
		return errStatus
	case code != http.StatusOK:
		r.outcome = metrics.ProbeInvalid
		return errStatus
	}
	var from io.Reader = resp.Body
	if resp.Header.Get("Content-Encoding") == "gzip" { // some servers compress although the request forbids this
		unzip, err := gzip.NewReader(from)
		if err != nil {
			return err
		}
		from = unzip
	}
	kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type"))
	if kind == "application/json" && !api.lines {
		return r.document(from, api, now)
	}
	err := r.stream(newMessages(from, api.lines, now), api, maxTokens)
	if errors.Is(err, io.EOF) && r.messages == 0 && kind != "text/event-stream" { // the answer comes from another kind of server
		r.outcome = metrics.ProbeInvalid
		return errNotStreamed
	}
	return err
}

// document reads a whole answer that was not streamed. It has no time of a first token.
func (r *result) document(from io.Reader, api *api, now func() time.Duration) error {
	body, err := io.ReadAll(io.LimitReader(from, maxAnswerBytes))
	if err != nil {
		return err
	}
	p, err := api.parse(body)
	switch {
	case err != nil:
		r.outcome = metrics.ProbeInvalid
		return errNotStreamed
	case p.failed:
		r.outcome = metrics.ProbeInStreamError
		return errInStream
	}
	r.held = true
	r.count(p)
	if !p.finished && !p.token() {
		r.outcome = metrics.ProbeInvalid
		return errNotStreamed
	}
	r.finish(now(), p.token(), p.visible, p.reasoning)
	return nil
}

func (r *result) stream(from *messages, api *api, maxTokens int) error {
	var visible, reasoning []byte
	tokens, finished := 0, false
	for {
		message, err := from.next()
		if err == nil && string(bytes.TrimSpace(message)) == "[DONE]" { // the server may keep the connection open
			err = io.EOF
		}
		switch {
		case errors.Is(err, io.EOF) && (finished || api.ends && r.messages > 0):
			r.finish(from.from.at, tokens > 0, string(visible), string(reasoning))
			return nil
		case err != nil:
			return err
		}
		p, err := api.parse(message)
		switch {
		case err != nil && !from.Scan(): // the answer was cut in the middle of a line
			return err
		case err != nil:
			r.outcome = metrics.ProbeInvalid
			return errNotStreamed
		case p.failed:
			r.outcome = metrics.ProbeInStreamError
			return errInStream
		}
		r.messages++
		r.count(p)
		finished = finished || p.finished
		if !p.token() {
			continue
		}
		if tokens++; tokens > 2*maxTokens+8 { // one token may arrive in two messages
			r.outcome = metrics.ProbeInvalid
			return errTooMuch
		}
		visible, reasoning = append(visible, p.visible...), append(reasoning, p.reasoning...)
		r.arrive(from.from.at, p)
	}
}

// count records the numbers of tokens that a message reports. It ignores impossible numbers.
func (r *result) count(p piece) {
	for _, n := range []struct {
		said int
		to   *int
	}{{p.prompt, &r.prompt}, {p.completion, &r.completion}} {
		if n.said <= 10*maxPromptWords {
			*n.to = max(*n.to, n.said)
		}
	}
}

// arrive records a message with tokens.
func (r *result) arrive(at time.Duration, p piece) {
	if r.token == 0 {
		r.token = at
	}
	if r.visible == 0 && (p.visible != "" || p.tool) {
		r.visible = at
	}
	if n := len(r.arrivals); n == 0 || r.arrivals[n-1].at != at {
		r.arrivals = append(r.arrivals, arrival{at: at})
	}
	last := &r.arrivals[len(r.arrivals)-1]
	last.messages++
	last.completion = max(last.completion, p.completion)
	if first := r.arrivals[0]; len(r.arrivals) > 1 || first.messages > 1 {
		r.held = last.at-first.at < atOnce
	}
}

// finish records the end of a complete answer.
func (r *result) finish(at time.Duration, tokens bool, visible, reasoning string) {
	r.end, r.outcome = at, metrics.ProbeOK
	if !tokens {
		r.outcome = metrics.ProbeEmpty
	}
	r.answer = sha256.Sum256([]byte(visible + "\x00" + reasoning))
}
