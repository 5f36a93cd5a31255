package discovery

import (
	"context"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
)

// Pods supplies the pods of the node as a Source. The exporter needs permission to list and watch pods.
type Pods struct {
	cluster    *kube.Cluster
	namespaces []string
	sockets    sockets
	interval   time.Duration // pause between two readings of the sockets
	departed   departed

	mu     sync.Mutex
	stores []*kube.Store[pod] // while Run runs
}

// NewPods returns the source of the node's pods in the given namespaces. An empty list means all namespaces. If several
// pods name one port of the node, the processes of the pods in procfs show which pod listens there.
func NewPods(cluster *kube.Cluster, procfs string, namespaces ...string) *Pods {
	if namespaces == nil {
		namespaces = []string{metav1.NamespaceAll}
	}
	return &Pods{
		cluster: cluster, namespaces: namespaces, sockets: sockets{procfs: procfs}, interval: processInterval,
		departed: departed{pods: map[string]departure{}},
	}
}

// Name implements Source.
func (p *Pods) Name() string { return "pods" }

// Run implements Source. While the API server does not answer or refuses the request, the list of pods does not change.
func (p *Pods) Run(ctx context.Context, report func([]Place, error)) {
	var mu sync.Mutex
	stores, failed := make([]*kube.Store[pod], len(p.namespaces)), make([]error, len(p.namespaces))
	publish := func() {
		mu.Lock()
		defer mu.Unlock()
		var all []*pod
		for i, s := range stores {
			if failed[i] != nil {
				report(nil, failed[i])
				return
			}
			all = append(all, s.All()...)
		}
		report(places(all, p.cluster.Node, p.cluster.Log, &p.sockets), nil)
	}
	for i := range stores {
		stores[i] = kube.NewStore[pod](p.cluster.Log, publish)
	}
	p.mu.Lock()
	p.stores = stores
	p.mu.Unlock()
	var wg sync.WaitGroup
	for i, namespace := range p.namespaces {
		wg.Go(func() {
			p.cluster.Follow(ctx, schema.GroupVersionResource{Version: "v1", Resource: "pods"}, namespace, podStore{stores[i], &p.departed},
				func(err error) {
					mu.Lock()
					failed[i] = err
					mu.Unlock()
					publish()
				})
		})
	}
	wg.Go(func() { // sockets may start to listen while the pods stay the same
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(p.interval):
			}
			mu.Lock()
			contested := p.sockets.contested
			mu.Unlock()
			if contested {
				publish()
			}
		}
	})
	wg.Wait()
}
