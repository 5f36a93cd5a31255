package ownership

import (
	"regexp"
	"strings"

	"github.com/llm-node-exporter/llm-node-exporter/collectors/gpu"
	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
)

// draDriver is the name of NVIDIA's driver for resource claims.
const draDriver = "gpu.nvidia.com"

// devices finds the GPUs of the node and their MIG devices by the names that other programs use.
type devices struct {
	byUUID  map[string]place // in lower case
	byIndex map[string]place
	byMinor map[string]place
	// claimed returns the UUID of a device that a driver of resource claims offers.
	claimed func(driver, pool, device string) string
}

func newDevices(gpus []gpu.Identity, instances []gpu.Instance, claimed func(driver, pool, device string) string) devices {
	d := devices{make(map[string]place), make(map[string]place), make(map[string]place), claimed}
	for _, id := range gpus {
		p := place{id.UUID, id.Index, ""}
		d.byUUID[strings.ToLower(id.UUID)], d.byIndex[id.Index], d.byMinor[id.Minor] = p, p, p
	}
	for _, i := range instances {
		d.byUUID[strings.ToLower(i.UUID)] = place{i.GPU.UUID, i.GPU.Index, i.ID}
	}
	return d
}

var (
	minorID     = regexp.MustCompile(`^nvidia(\d+)(?:/gi(\d+))?$`)
	legacyMIGID = regexp.MustCompile(`^mig-(gpu-[^/]+)/(\d+)/\d+$`)
	draID       = regexp.MustCompile(`^gpu-(\d+)$`)
)

// find returns the place of a device. Resources may be renamed, so the device's id decides:
//
//	GPU-<uuid>, MIG-<uuid>    NVIDIA's device plugin
//	MIG-GPU-<uuid>/<gi>/<ci>  a MIG device under drivers before R470
//	nvidia0, nvidia0/gi1      GKE: the minor number, the GPU instance
//	…::2, …/vgpu2             one of several shares of any of these devices: time slicing, MPS
//	gpu-0, gpu-0-mig-9-4-4    NVIDIA's DRA driver
//	0                         the index
//
// Other hardware also has plain numbers, so plain numbers count only for resources of nvidia.com. The ResourceSlices of
// a DRA driver explain its names. Without ResourceSlices, a name such as gpu-0 may be an index or a minor number,
// depending on the driver's release. The name is used only if both numbers are the same.
func (d devices) find(h kube.Holding) (place, bool) {
	if h.Claimed && d.claimed != nil {
		if p, ok := d.byUUID[strings.ToLower(d.claimed(h.Resource, h.Pool, h.ID))]; ok {
			return p, true
		}
	}
	id, _, _ := strings.Cut(strings.ToLower(h.ID), "::")
	id, _, _ = strings.Cut(id, "/vgpu")
	if p, ok := d.byUUID[id]; ok {
		return p, true
	}
	if m := minorID.FindStringSubmatch(id); m != nil {
		p, ok := d.byMinor[m[1]]
		p.instance = m[2]
		return p, ok
	}
	if m := legacyMIGID.FindStringSubmatch(id); m != nil {
		p, ok := d.byUUID[m[1]]
		p.instance = m[2]
		return p, ok
	}
	if m := draID.FindStringSubmatch(id); m != nil && h.Resource == draDriver {
		p, ok := d.byIndex[m[1]]
		return p, ok && p == d.byMinor[m[1]]
	}
	p, ok := d.byIndex[id]
	return p, ok && strings.HasPrefix(h.Resource, "nvidia.com/")
}
