package discovery

import (
	"context"
	"strings"
	"testing"
)

// A MIG device as NVIDIA's driver for resource claims offers it, and in the shape of v1beta1.
const (
	migDevice    = `{name: gpu-0-mig-9-4-4, attributes: {type: {string: mig}, uuid: {string: MIG-a}, parentUUID: {string: GPU-a}, index: {int: 0}, driverVersion: {version: 570.0.0}}}`
	oldMIGDevice = `{name: gpu-0-mig-9-4-4, basic: {attributes: {type: {string: mig}, uuid: {string: MIG-a}}}}`
)

// slicesOf is a node's ResourceSlice. NVIDIA's driver names the pool by the node.
func slicesOf(version, node, device string) string {
	return "apiVersion: resource.k8s.io/" + version + "\nkind: ResourceSlice\nmetadata: {name: " + node + "-gpu}\nspec:\n  driver: gpu.nvidia.com\n" +
		"  nodeName: " + node + "\n  pool: {name: " + node + ", generation: 1, resourceSliceCount: 1}\n  devices:\n  - " + device + "\n"
}

// TestSlices finds the UUID of a device in whichever version of the API a cluster has.
func TestSlices(t *testing.T) {
	for version, device := range map[string]string{"v1": migDevice, "v1beta2": migDevice, "v1beta1": oldMIGDevice} {
		t.Run(version, func(t *testing.T) {
			c, log := newCluster(t), &lines{}
			c.slices, c.sliceVersion = slicesOf(version, "n1", device), version
			s := reach(t, c.config(), log).Slices()
			if got := s.UUID("gpu.nvidia.com", "n1", "gpu-0-mig-9-4-4"); got != "" {
				t.Errorf("%s before anything was read", got)
			}
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan struct{})
			go func() { s.Run(ctx); close(done) }()
			t.Cleanup(func() { cancel(); <-done })
			eventually(t, func() bool { return s.UUID("gpu.nvidia.com", "n1", "gpu-0-mig-9-4-4") == "MIG-a" }, func() any { return log })
			for _, other := range [][3]string{{"gpu.example.com", "n1", "gpu-0-mig-9-4-4"}, {"gpu.nvidia.com", "n2", "gpu-0-mig-9-4-4"}, {"gpu.nvidia.com", "n1", "gpu-0"}} {
				if got := s.UUID(other[0], other[1], other[2]); got != "" {
					t.Errorf("%v is %s", other, got)
				}
			}
		})
	}
}

// TestSlicesRefused: one line in the log, however often the API server refuses.
func TestSlicesRefused(t *testing.T) {
	c, log := newCluster(t), &lines{}
	c.refuse = true
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { reach(t, c.config(), log).Slices().Run(ctx); close(done) }()
	eventually(t, func() bool { return strings.Contains(log.String(), "ClusterRole") }, func() any { return log })
	cancel()
	<-done
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log)
	}
}
