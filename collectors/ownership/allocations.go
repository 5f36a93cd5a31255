package ownership

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
	"github.com/llm-node-exporter/llm-node-exporter/metrics"
)

// tenant identifies a container with processes on a GPU.
type tenant struct {
	place
	home
}

// allocation is a GPU, or a MIG instance, that a container was given. Several time slices of one GPU count as one
// allocation.
type allocation struct {
	place
	kube.PodName
	container, resource string
}

type allocations map[allocation]bool

// to returns the places that a target's container was given. If the container is unknown, it returns the places of the pod.
func (a allocations) to(t Target) map[place]bool {
	found := make(map[place]bool)
	for g := range a {
		if t.Pod != "" && g.PodName == (kube.PodName{Namespace: t.Namespace, Name: t.Pod}) && (t.Container == "" || t.Container == g.container) {
			found[g.place] = true
		}
	}
	return found
}

// series returns llm_gpu_allocation_info.
func (a allocations) series() (series []prometheus.Metric) {
	for g := range a {
		series = append(series, metrics.GPUAllocationInfo.Const(1, append(g.place.labels(), g.Namespace, g.Name, g.container, g.resource)...))
	}
	return series
}

// toldBy returns the allocations that another exporter's metrics page reports, for pods without an allocation from the
// kubelet. These allocations name no resource.
func (a allocations) toldBy(owners []gpu.Owner) allocations {
	known := make(map[kube.PodName]bool, len(a))
	for g := range a {
		known[g.PodName] = true
	}
	told := make(allocations)
	for _, o := range owners {
		if name := (kube.PodName{Namespace: o.Namespace, Name: o.Pod}); !known[name] {
			told[allocation{place{o.GPU.UUID, o.GPU.Index, o.InstanceID}, name, o.Container, ""}] = true
		}
	}
	return told
}

// others counts devices of a resource that are not GPUs of the node.
type others struct {
	count   int
	example string
}

// resolve finds the GPUs among the devices of containers. The kubelet gives a device to one pod at a time, but older
// kubelets still list ended pods. If two pods have the same device, only a pod with a process on the device counts. If
// neither pod has such a process, both count.
func resolve(holdings []kube.Holding, known devices, running map[tenant]*usage) (allocations, map[string]others) {
	type occupant struct {
		place
		kube.PodName
	}
	type device struct{ resource, id string }

	seen := make(map[occupant]bool, len(running))
	for t := range running {
		seen[occupant{t.place, t.pod}] = true
	}
	holders := make(map[device][]kube.PodName)
	for _, h := range holdings {
		if d := (device{h.Resource, h.ID}); !h.Claimed && !slices.Contains(holders[d], h.PodName) {
			holders[d] = append(holders[d], h.PodName)
		}
	}
	given, unknown := make(allocations), make(map[string]others)
	for _, h := range holdings {
		p, ok := known.find(h)
		if !ok {
			s := unknown[h.Resource]
			unknown[h.Resource] = others{s.count + 1, h.ID}
			continue
		}
		ended := !seen[occupant{p, h.PodName}] &&
			slices.ContainsFunc(holders[device{h.Resource, h.ID}], func(n kube.PodName) bool { return seen[occupant{p, n}] })
		if !ended {
			given[allocation{p, h.PodName, h.Container, h.Resource}] = true
		}
	}
	return given, unknown
}

// allocations returns the GPUs that the kubelet has allocated, and the series about this query. If settled is false,
// more GPUs may still appear, and an unknown device may belong to one of them.
func (c *Collector) allocations(gpus []gpu.Identity, running map[tenant]*usage, settled bool) (allocations, []prometheus.Metric) {
	var series []prometheus.Metric
	switch state := c.kubelet.State(); state {
	case "":
	case kube.StateUp:
		series = append(series, metrics.PodResourcesUp.Const(1, ""))
	default:
		series = append(series, metrics.PodResourcesUp.Const(0, state))
	}
	holdings, answered := c.kubelet.Holdings()
	if answered.IsZero() {
		return nil, series
	}
	series = append(series, metrics.PodResourcesTime.Const(float64(answered.UnixMilli())/1000))
	if len(gpus) == 0 {
		return nil, series // GPUs are not distinguishable from other devices yet
	}
	given, unknown := resolve(holdings, newDevices(gpus, c.options.Instances(), c.options.ClaimedUUID), running)
	series = append(series, given.series()...)
	for resource, s := range unknown {
		series = append(series, metrics.PodResourcesUnknown.Const(float64(s.count), resource))
		if settled && !c.strange[resource] {
			c.options.Logger.Info("pods have devices that match no GPU of this node",
				"resource", resource, "devices", s.count, "example", s.example)
			c.strange[resource] = true
		}
	}
	return given, series
}
