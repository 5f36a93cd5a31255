package discovery

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
)

// Pods is the source of the pods of one node. It watches them at the API server and needs the verbs
// list and watch on pods, nothing else.
type Pods struct {
	node string
	log  *slog.Logger
	pods dynamic.ResourceInterface

	mu     sync.Mutex
	known  map[string]*pod
	report func([]Place, error)
}

// InCluster returns the source for a pod of the cluster, with its service account. The error says what
// is missing.
func InCluster(node string, log *slog.Logger) (*Pods, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding pods needs a pod with a service account token: %w", err)
	}
	return NewPods(config, node, log)
}

// NewPods returns the source for a node of the cluster that config reaches.
func NewPods(config *rest.Config, node string, log *slog.Logger) (*Pods, error) {
	if node == "" {
		return nil, errors.New("finding pods needs the name of this node: set --discovery.node, or NODE_NAME from spec.nodeName")
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	klog.SetSlogLogger(slog.New(slog.DiscardHandler)) // what it has to say arrives as errors of the calls
	return &Pods{
		node: node, log: log, known: map[string]*pod{},
		pods: client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}),
	}, nil
}

// Name implements Source.
func (p *Pods) Name() string { return "pods" }

// Run implements Source. While the API server does not answer, or refuses, the pods stay as they were.
func (p *Pods) Run(ctx context.Context, report func([]Place, error)) {
	p.report = report
	ofThisNode := fields.OneTermEqualSelector("spec.nodeName", p.node).String()
	calls := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = ofThisNode
			list, err := p.pods.List(ctx, o)
			p.failed(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = ofThisNode
			w, err := p.pods.Watch(ctx, o)
			if o.SendInitialEvents == nil || !apierrors.IsInvalid(err) { // an older API server: a list follows
				p.failed(err)
			}
			return w, err
		},
	}
	cache.NewReflectorWithOptions(calls, &unstructured.Unstructured{}, p, cache.ReflectorOptions{Name: "pods", TypeDescription: "pods"}).RunWithContext(ctx)
}

// failed reports why a call failed. That a watch has to start anew is its normal course.
func (p *Pods) failed(err error) {
	if err != nil && !errors.Is(err, context.Canceled) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		p.report(nil, callError{err})
		return
	}
	if err == nil {
		p.publish()
	}
}

// callError is a call to the API server that failed.
type callError struct{ error }

// Unwrap returns what the call said.
func (e callError) Unwrap() error { return e.error }

// Reason is the value of the reason label of llm_exporter_discovery_up.
func (e callError) Reason() string {
	var status apierrors.APIStatus
	switch {
	case apierrors.IsForbidden(e.error), apierrors.IsUnauthorized(e.error):
		return "forbidden"
	case !errors.As(e.error, &status):
		return "unreachable"
	}
	return "error"
}

func (e callError) Error() string {
	if e.Reason() == "forbidden" {
		return "the service account may not list and watch pods: install the chart with discovery on, or bind a ClusterRole that allows it: " + e.error.Error()
	}
	var request *url.Error // whose address changes with each call
	if errors.As(e.error, &request) {
		return "the API server does not answer: " + request.Err.Error()
	}
	return e.error.Error()
}

// publish reports the places of all known pods.
func (p *Pods) publish() {
	p.mu.Lock()
	var all []*pod
	for _, one := range p.known {
		all = append(all, one)
	}
	p.mu.Unlock()
	p.report(places(all, p.node, p.log), nil)
}

// change stores or forgets pods, and reports what follows.
func (p *Pods) change(objects []any, apply func(name string, one *pod)) error {
	p.mu.Lock()
	for _, object := range objects {
		u, ok := object.(*unstructured.Unstructured)
		if !ok {
			continue
		}
		one, err := decode(u.Object)
		if err != nil {
			p.log.Warn("the API server sent a pod that cannot be read: it is left out", "pod", u.GetNamespace()+"/"+u.GetName(), "err", err)
			continue
		}
		apply(one.name(), one)
	}
	p.mu.Unlock()
	p.publish()
	return nil
}

// Add implements cache.ReflectorStore, as the following methods do.
func (p *Pods) Add(object any) error {
	return p.change([]any{object}, func(name string, one *pod) { p.known[name] = one })
}

// Update is a pod that changed.
func (p *Pods) Update(object any) error { return p.Add(object) }

// Delete is a pod that is gone.
func (p *Pods) Delete(object any) error {
	return p.change([]any{object}, func(name string, _ *pod) { delete(p.known, name) })
}

// Replace is the list of all pods.
func (p *Pods) Replace(objects []any, _ string) error {
	p.mu.Lock()
	p.known = map[string]*pod{}
	p.mu.Unlock()
	return p.change(objects, func(name string, one *pod) { p.known[name] = one })
}

// Resync has nothing to do.
func (p *Pods) Resync() error { return nil }
