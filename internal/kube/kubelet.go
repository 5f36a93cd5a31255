package kube

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"connectrpc.com/connect"
)

const (
	answerLimit  = 16 << 20 // bytes, because gRPC's usual 4 MiB are too few for a dense node
	longestPause = 2 * time.Minute
)

// Kubelet queries the kubelet of the node for the devices of each container, through the pod-resources API. Only one
// goroutine may use it at a time.
type Kubelet struct {
	// Interval is the shortest pause between two queries.
	Interval time.Duration
	// Deadline is how long a query may take.
	Deadline time.Duration

	log    *slog.Logger
	socket string // empty means that the kubelet is not queried
	client *connect.Client[struct{}, answer]

	due      time.Time // time of the next query
	failures int       // consecutive failures
	state    string
	answer   *answer // last answer; nil before the first answer
	answered time.Time
}

// NewKubelet returns a client of the kubelet that listens on a socket. It makes no query if socket is empty.
func NewKubelet(log *slog.Logger, socket string, interval time.Duration) *Kubelet {
	k := &Kubelet{Interval: interval, Deadline: 3 * time.Second, log: log, socket: socket}
	k.connect()
	return k
}

// State returns the result of the last query: StateUp, or why the query failed. The result is empty before the first
// query.
func (k *Kubelet) State() string { return k.state }

// Holdings returns the devices in the last answer, and the time when this answer arrived. The time is zero before the
// first answer.
func (k *Kubelet) Holdings() ([]Holding, time.Time) {
	if k.answer == nil {
		return nil, time.Time{}
	}
	return k.answer.holdings, k.answered
}

// connect creates a client that keeps one connection. The client sends gRPC through net/http, which the binary contains
// anyway. The usual gRPC client would take 2 MiB of memory in every exporter, and 4 MiB while in use.
func (k *Kubelet) connect() {
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	transport := &http.Transport{
		Protocols:       protocols,
		IdleConnTimeout: 2 * longestPause, // closes the connections of an abandoned client
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", k.socket)
		},
	}
	k.client = connect.NewClient[struct{}, answer](&http.Client{Transport: transport}, "http://localhost/v1.PodResourcesLister/List",
		connect.WithGRPC(), connect.WithCodec(codec{}), connect.WithReadMaxBytes(answerLimit))
}

// StateUp is the state while the kubelet answers. Other states are socket_missing, permission_denied, and names of gRPC
// codes.
const StateUp = "up"

const (
	stateNoSocket     = "socket_missing"
	stateNoPermission = "permission_denied"
)

// Refresh queries the kubelet if a query is due. While the kubelet does not answer, queries become less frequent.
func (k *Kubelet) Refresh(ctx context.Context, now time.Time) {
	if k.socket == "" || now.Before(k.due) {
		return
	}
	k.due = now.Add(k.Interval)
	if k.state == "" && os.Getenv("KUBERNETES_SERVICE_HOST") == "" {
		if _, err := os.Stat(k.socket); errors.Is(err, fs.ErrNotExist) {
			return // outside Kubernetes, the exporter is not in a pod, and there is no kubelet
		}
	}
	ctx, cancel := context.WithTimeout(ctx, k.Deadline)
	defer cancel()
	response, err := k.client.CallUnary(ctx, connect.NewRequest(&struct{}{}))
	switch {
	case err == nil:
		k.answer, k.answered, k.failures = response.Msg, now, 0
	case !errors.Is(err, fs.ErrNotExist): // a missing socket does not need longer pauses
		k.failures++
		k.due = now.Add(max(k.Interval, min(k.Interval<<min(k.failures-1, 8), longestPause)))
		k.connect() // the socket may now lead to another kubelet
	}
	k.report(err)
}

// report records the result of a query and logs changes.
func (k *Kubelet) report(err error) {
	state := StateUp
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrNotExist):
		state = stateNoSocket
	case errors.Is(err, fs.ErrPermission):
		state = stateNoPermission
	default:
		state = connect.CodeOf(err).String()
	}
	if state == k.state {
		return
	}
	k.state = state
	if state == StateUp {
		k.log.Info("the kubelet reports which pod has which GPU", "socket", k.socket)
		return
	}
	k.log.Warn("the kubelet does not report which pod has which GPU; its last answer stays in use",
		"socket", k.socket, "reason", state, "err", err, "remedy", Remedy(state))
}

// Remedy returns what to do about a state of the kubelet. The result is empty if there is no remedy.
func Remedy(state string) string { return remedies[state] }

// remedies holds the remedy for each state that has one.
var remedies = map[string]string{
	stateNoSocket: "mount the host's directory of the socket, not the socket, which comes and goes; an empty " +
		"--ownership.pod-resources switches this off",
	stateNoPermission:                      "run the exporter as root or in the group of the socket",
	connect.CodeDeadlineExceeded.String():  "look at the kubelet: it is overloaded or hangs",
	connect.CodeResourceExhausted.String(): "the kubelet is asked too often by all its clients together, or the answer is above 16 MiB",
	connect.CodeUnavailable.String():       "look at the kubelet: it does not answer on its socket",
	connect.CodeUnimplemented.String():     "the kubelet lacks version 1 of the API, which came with Kubernetes 1.20",
}
