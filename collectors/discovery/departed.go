package discovery

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
)

const (
	// departedFor is how long a pod is reported after it is gone. maxDeparted limits the number of these pods.
	departedFor = time.Hour
	maxDeparted = 256
	// loadsFor is how long the successor of a deleted pod may take until it is ready. The rules wait just as long for an
	// engine that loads its model.
	loadsFor = 20 * time.Minute
)

// podStore keeps the pods in sync with the API server, and remembers deleted pods. It misses pods that were deleted
// while the exporter was not watching.
type podStore struct {
	*kube.Store[pod]
	departed *departed
}

// Update records when a pod begins to terminate.
func (s podStore) Update(object any) error {
	if p, before := s.both(object); p != nil && before != nil {
		s.departed.note(before, p)
	}
	return s.Store.Update(object)
}

// Delete records a pod that is deleted at once.
func (s podStore) Delete(object any) error {
	if p, before := s.both(object); p != nil && before != nil {
		s.departed.note(before, p)
	}
	return s.Store.Delete(object)
}

// both returns a pod from the API server, and the pod's previous state.
func (s podStore) both(object any) (now, before *pod) {
	now, err := kube.DecodeObject[pod](object)
	if err != nil {
		return nil, nil // the store guarantees this
	}
	for _, p := range s.All() {
		if p.name() == now.name() && p.Metadata.UID == now.Metadata.UID {
			before = p
		}
	}
	return now, before
}

// departed holds the pods that are gone or terminating.
type departed struct {
	mu   sync.Mutex
	pods map[string]departure // by namespace and name
}

type departure struct {
	kube.PodName
	uid, workload string
	onPurpose     bool
	at            time.Time
}

// note records a pod that begins to terminate. The pod's previous state decides whether it was deleted on purpose. If a
// pod's controller also deletes healthy pods when another pod fails, the pod is left out.
func (d *departed) note(before, now *pod) {
	failed := before.Status.Phase == "Running" && (now.Status.Phase == "Failed" || now.Status.Phase == "Succeeded")
	deleted := before.Metadata.DeletionTimestamp == "" && now.Metadata.DeletionTimestamp != ""
	if found, err := now.places(); err != nil || len(found) == 0 || before.Status.Phase != "Running" || !failed && !deleted || !now.kept() {
		return
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if old := d.pods[now.name()]; old.uid == now.Metadata.UID {
		return // the pod failed before or after its deletion
	}
	d.pods[now.name()] = departure{
		kube.PodName{Namespace: now.Metadata.Namespace, Name: now.Metadata.Name},
		now.Metadata.UID, now.workload(),
		!failed && before.healthy() && !now.disrupted(), time.Now(),
	}
	if len(d.pods) > maxDeparted {
		var oldest string
		for name, one := range d.pods {
			if oldest == "" || one.at.Before(d.pods[oldest].at) {
				oldest = name
			}
		}
		delete(d.pods, oldest)
	}
}

// list returns the pods that are gone or terminating, and whether each was deleted on purpose. If no successor on this
// node is ready in time, the deletion was not on purpose. If a pod exists again under its old name, the pod is not
// gone.
func (d *departed) list(there []*pod, now time.Time) map[kube.PodName]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := map[kube.PodName]bool{}
	for name, one := range d.pods {
		if now.Sub(one.at) > departedFor {
			delete(d.pods, name)
			continue
		}
		all[one.PodName] = one.onPurpose && !slices.ContainsFunc(there, func(p *pod) bool {
			if p.Metadata.UID == one.uid || p.workload() != one.workload {
				return false
			}
			created, err := time.Parse(time.RFC3339, p.Metadata.CreationTimestamp)
			late := err == nil && now.Sub(created) > loadsFor
			return !p.ready() && late || p.ready() && p.name() == name
		})
	}
	return all
}

// Departed returns pods that may have had an engine and are gone or terminating. The value is true if the pod was deleted on purpose.
func (p *Pods) Departed() map[kube.PodName]bool {
	p.mu.Lock()
	stores := p.stores
	p.mu.Unlock()
	var there []*pod
	for _, s := range stores {
		there = append(there, s.All()...)
	}
	return p.departed.list(there, time.Now())
}

// healthy reports whether all containers that may have an engine are ready.
func (p *pod) healthy() bool {
	ready := map[string]bool{}
	for _, c := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
		ready[c.Name] = c.Ready
	}
	return !slices.ContainsFunc(p.engines(), func(c *container) bool { return !ready[c.Name] })
}

// ready and disrupted report conditions of the pod. Kubernetes sets DisruptionTarget on a pod that ends because of an
// eviction, a preemption, a taint of its node or the loss of its node.
func (p *pod) ready() bool     { return p.condition("Ready") }
func (p *pod) disrupted() bool { return p.condition("DisruptionTarget") }

func (p *pod) condition(kind string) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == kind {
			return c.Status == "True"
		}
	}
	return false
}

// kept reports whether the pod's controller deletes healthy pods only when its own plan changes. A LeaderWorkerSet and
// operators of pod clusters also delete healthy pods when another pod of the group fails.
func (p *pod) kept() bool {
	if _, grouped := p.Metadata.Labels["leaderworkerset.sigs.k8s.io/name"]; grouped {
		return false
	}
	kind, _ := p.controller()
	return slices.Contains([]string{"", "ReplicaSet", "StatefulSet", "DaemonSet"}, kind)
}

// controller returns the kind and the name of the pod's controller. They are empty for a pod without a controller.
func (p *pod) controller() (kind, name string) {
	for _, o := range p.Metadata.OwnerReferences {
		if o.Controller {
			return o.Kind, o.Name
		}
	}
	return "", ""
}

// workload names the owner that a pod shares with its successors. For a Deployment, the name has no version hash.
func (p *pod) workload() string {
	kind, name := p.controller()
	if kind == "" {
		name = p.Metadata.Name
	}
	return strings.Join([]string{p.Metadata.Namespace, kind, strings.TrimSuffix(name, "-"+p.Metadata.Labels["pod-template-hash"])}, "/")
}
