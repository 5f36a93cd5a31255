package kube

import (
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// FuzzAnswer checks that the codec reads everything that the API's own types read from an answer. The codec reports
// damage as an error, or reads it as the types would.
func FuzzAnswer(f *testing.F) {
	p := &v1.PodResources{Name: "p", Namespace: "prod", CpuIds: []int64{1, 2}, Containers: []*v1.ContainerResources{{
		Name: "c",
		Devices: []*v1.ContainerDevices{{
			ResourceName: "nvidia.com/gpu", DeviceIds: []string{"GPU-a", "GPU-b"},
			Topology: &v1.TopologyInfo{Nodes: []*v1.NUMANode{{ID: 1}}},
		}},
		Memory: []*v1.ContainerMemory{{MemoryType: "hugepages-2Mi", Size: 1 << 30}},
		DynamicResources: []*v1.DynamicResource{{ClaimName: "gpus", ClaimNamespace: "prod", ClaimResources: []*v1.ClaimResource{{
			CdiDevices: []*v1.CDIDevice{{Name: "k8s.gpu.nvidia.com/device=gpu-0"}}, DriverName: "gpu.nvidia.com", PoolName: "node-1",
			DeviceName: "gpu-0",
		}}}},
	}}}
	whole, err := proto.Marshal(&v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{p, {Name: "q", Namespace: "prod"}, {}}})
	if err != nil {
		f.Fatal(err)
	}
	for n := range whole {
		f.Add(whole[:n])
		damaged := slices.Clone(whole)
		damaged[n] ^= 0x84
		f.Add(damaged)
	}
	f.Add(whole)
	f.Fuzz(func(t *testing.T, b []byte) {
		var reference v1.ListPodResourcesResponse
		var got answer
		gotErr := codec{}.Unmarshal(b, &got)
		if proto.Unmarshal(b, &reference) != nil {
			return // the codec may be more lenient: it skips unneeded parts
		}
		var want []Holding
		for _, p := range reference.PodResources {
			for _, c := range p.Containers {
				h := Holding{PodName: PodName{label([]byte(p.Namespace)), label([]byte(p.Name))}, Container: label([]byte(c.Name))}
				for _, d := range c.Devices {
					h.Resource = label([]byte(d.ResourceName))
					for _, id := range d.DeviceIds {
						h.ID = label([]byte(id))
						want = append(want, h)
					}
				}
				h.Claimed = true
				for _, d := range c.DynamicResources {
					for _, r := range d.ClaimResources {
						h.Resource, h.Pool, h.ID = label([]byte(r.DriverName)), label([]byte(r.PoolName)), label([]byte(r.DeviceName))
						want = append(want, h)
					}
				}
			}
		}
		if gotErr != nil || !slices.Equal(got.holdings, want) {
			t.Errorf("got %v, %v\nwant %v", got.holdings, gotErr, want)
		}
	})
}
