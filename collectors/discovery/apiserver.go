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
)

// Cluster queries the API server about one node.
type Cluster struct {
	node   string
	log    *slog.Logger
	client dynamic.Interface
}

// InCluster returns the cluster in which the exporter's pod runs, with the pod's service account. The error names
// what is missing.
func InCluster(node string, log *slog.Logger) (*Cluster, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding pods needs a pod with a service account token: %w", err)
	}
	return NewCluster(config, node, log)
}

// NewCluster returns the cluster that config reaches. Its client also logs to klog, which is global to the process:
// main has to redirect it.
func NewCluster(config *rest.Config, node string, log *slog.Logger) (*Cluster, error) {
	if node == "" {
		return nil, errors.New("finding pods needs the name of this node: set --discovery.node, or NODE_NAME from spec.nodeName")
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	return &Cluster{node, log, client}, nil
}

// follow keeps a store in step with the objects of one kind on this node, in one namespace or in all, until ctx ends.
// called receives the result of each call that counts.
func (c *Cluster) follow(ctx context.Context, kind schema.GroupVersionResource, namespace string, store cache.ReflectorStore, called func(error)) {
	objects := c.client.Resource(kind).Namespace(namespace)
	ofThisNode := fields.OneTermEqualSelector("spec.nodeName", c.node).String()
	told := func(err error) {
		// A watch that has to start anew is normal.
		if !errors.Is(err, context.Canceled) && !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
			called(err)
		}
	}
	calls := &cache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			o.FieldSelector = ofThisNode
			list, err := objects.List(ctx, o)
			told(err)
			return list, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.FieldSelector = ofThisNode
			w, err := objects.Watch(ctx, o)
			if o.SendInitialEvents == nil || !apierrors.IsInvalid(err) { // an older API server: a list follows
				told(err)
			}
			return w, err
		},
	}
	cache.NewReflectorWithOptions(calls, &unstructured.Unstructured{}, store, cache.ReflectorOptions{Name: kind.Resource, TypeDescription: kind.Resource}).RunWithContext(ctx)
}

// Pods supplies the pods of the node as a Source. It needs the verbs list and watch on pods.
type Pods struct {
	*Cluster
	namespaces []string
}

// Pods returns the source of the node's pods in some namespaces; in all if none is named.
func (c *Cluster) Pods(namespaces ...string) *Pods {
	if namespaces == nil {
		namespaces = []string{metav1.NamespaceAll}
	}
	return &Pods{c, namespaces}
}

// Name implements Source.
func (p *Pods) Name() string { return "pods" }

// Run implements Source. While the API server does not answer, or refuses, the pods stay as they were.
func (p *Pods) Run(ctx context.Context, report func([]Place, error)) {
	var mu sync.Mutex
	stores, failed := make([]*store[pod], len(p.namespaces)), make([]error, len(p.namespaces))
	for i := range stores {
		stores[i] = newStore[pod](p.log)
	}
	publish := func() {
		mu.Lock()
		defer mu.Unlock()
		var all []*pod
		for i, s := range stores {
			if failed[i] != nil {
				report(nil, callError{failed[i]})
				return
			}
			all = append(all, s.all()...)
		}
		report(places(all, p.node, p.log), nil)
	}
	var wg sync.WaitGroup
	for i, namespace := range p.namespaces {
		stores[i].changed = publish
		wg.Go(func() {
			p.follow(ctx, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, namespace, stores[i], func(err error) {
				mu.Lock()
				failed[i] = err
				mu.Unlock()
				publish()
			})
		})
	}
	wg.Wait()
}

// callError reports a failed call to the API server.
type callError struct{ error }

// Unwrap returns the error of the call.
func (e callError) Unwrap() error { return e.error }

// Reason returns the value of the reason label of llm_exporter_discovery_up.
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
		return "the service account lacks a permission: install the chart with discovery on, or bind a ClusterRole that allows it, or a Role in each --discovery.namespace: " + e.error.Error()
	}
	var request *url.Error // whose address changes with each call
	if errors.As(e.error, &request) {
		return "the API server does not answer: " + request.Err.Error()
	}
	return e.error.Error()
}
