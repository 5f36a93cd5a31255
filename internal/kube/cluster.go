package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"

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
	// Node is the name of the node.
	Node string
	// Log receives one record per change of state.
	Log    *slog.Logger
	client dynamic.Interface
}

// InCluster returns the cluster in which the exporter runs. It uses the service account of the exporter's pod. The
// error names what is missing.
func InCluster(node string, log *slog.Logger) (*Cluster, error) {
	config, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("finding pods needs a pod with a service account token: %w", err)
	}
	return NewCluster(config, node, log)
}

// NewCluster returns the cluster that a client configuration describes. The client also logs to klog, which is global
// to the process, so main must redirect klog.
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

// Follow keeps a store up to date with the objects of one kind on this node until ctx ends. The objects are in one
// namespace, or in all. Follow needs the verbs list and watch. It calls called with nil when a list or watch succeeds,
// and with an error when one fails. The error has a method Reason, which returns one word for metrics.
func (c *Cluster) Follow(ctx context.Context, kind schema.GroupVersionResource, namespace string, store cache.ReflectorStore,
	called func(error),
) {
	objects := c.client.Resource(kind).Namespace(namespace)
	ofThisNode := fields.OneTermEqualSelector("spec.nodeName", c.Node).String()
	told := func(err error) {
		switch {
		case err == nil:
			called(nil)
		case !errors.Is(err, context.Canceled) && !apierrors.IsResourceExpired(err) &&
			!apierrors.IsGone(err): // a watch may have to restart
			called(callError{err})
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
			if o.SendInitialEvents == nil || !apierrors.IsInvalid(err) { // older API servers then answer a list
				told(err)
			}
			return w, err
		},
	}
	cache.NewReflectorWithOptions(calls, &unstructured.Unstructured{}, store, cache.ReflectorOptions{
		Name:            kind.Resource,
		TypeDescription: kind.Resource,
	}).RunWithContext(ctx)
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
		return "the service account lacks a permission: install the chart with discovery on, or bind a ClusterRole that allows it, or a " +
			"Role in each --discovery.namespace: " + e.error.Error()
	}
	if request, ok := errors.AsType[*url.Error](e.error); ok { // the address in the error changes with each call
		return "the API server does not answer: " + request.Err.Error()
	}
	return e.error.Error()
}
