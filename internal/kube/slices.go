package kube

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// sliceVersions lists the versions of resource.k8s.io that have ResourceSlices, newest first.
var sliceVersions = []string{"v1", "v1beta2", "v1beta1"}

// sliceRetry is the time between queries if the cluster has no dynamic resource allocation.
const sliceRetry = 10 * time.Minute

// Slices has the devices that drivers of resource claims offer on the node. The kubelet reports the device of a
// container under the driver's name for it. Only a slice translates this name into NVML's UUID. Slices needs the verbs
// list and watch on resourceslices.
type Slices struct {
	cluster *Cluster
	slices  *Store[slice]

	mu    sync.Mutex
	state string // error of the last call, logged only when it changes
}

// slice has those fields of a ResourceSlice that the method UUID reads.
type slice struct {
	Spec struct {
		Driver string `json:"driver"`
		Pool   struct {
			Name string `json:"name"`
		} `json:"pool"`
		Devices []struct {
			Name       string     `json:"name"`
			Attributes attributes `json:"attributes"`
			Basic      struct {   // in versions before v1beta2
				Attributes attributes `json:"attributes"`
			} `json:"basic"`
		} `json:"devices"`
	} `json:"spec"`
}

type attributes map[string]struct {
	String string `json:"string"`
}

// Slices returns the devices of the node's resource drivers. The devices are known only while Run runs.
func (c *Cluster) Slices() *Slices {
	return &Slices{cluster: c, slices: NewStore[slice](c.Log, func() {})}
}

// UUID returns the UUID of a GPU or of a MIG device. The result is empty if the UUID is unknown.
func (s *Slices) UUID(driver, pool, device string) string {
	for _, one := range s.slices.All() {
		if one.Spec.Driver != driver || one.Spec.Pool.Name != pool {
			continue
		}
		for _, d := range one.Spec.Devices {
			if d.Name == device {
				return d.Attributes["uuid"].String + d.Basic.Attributes["uuid"].String // a device has only one of the two attributes
			}
		}
	}
	return ""
}

// Run follows the slices until ctx ends.
func (s *Slices) Run(ctx context.Context) {
	for ctx.Err() == nil {
		for _, version := range sliceVersions {
			s.runVersion(ctx, version)
		}
		select {
		case <-ctx.Done():
		case <-time.After(sliceRetry):
		}
	}
}

// runVersion follows the slices in one version of the API. It returns when ctx ends, or if the cluster lacks this
// version.
func (s *Slices) runVersion(ctx context.Context, version string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s.cluster.Follow(ctx, schema.GroupVersionResource{Group: "resource.k8s.io", Version: version, Resource: "resourceslices"},
		metav1.NamespaceAll, s.slices, func(err error) {
			if apierrors.IsNotFound(err) {
				cancel()
				return
			}
			s.note(err)
		})
}

// note logs the result of a call to the API server if it differs from the previous result.
func (s *Slices) note(err error) {
	state := "up"
	if failed, ok := errors.AsType[callError](err); ok {
		state = failed.Reason()
	}
	s.mu.Lock()
	was := s.state
	s.state = state
	s.mu.Unlock()
	if state != was && err != nil {
		s.cluster.Log.Warn("cannot read the devices of resource drivers; devices read before stay in use", "err", err)
	}
}
