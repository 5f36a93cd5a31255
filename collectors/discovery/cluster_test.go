package discovery

import (
	"context"
	"os/exec"
	"strings"
	"testing"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e/kube"
)

// TestRealAPIServer runs discovery against kube-apiserver and etcd with the role that the chart binds.
func TestRealAPIServer(t *testing.T) {
	c := kube.Start(t, "monitoring:gpu-llm-node-exporter")
	create := func(group, resource, text string) {
		t.Helper()
		c.Create(t, group, resource, parsePod(t, text))
	}
	create("", "namespaces", "apiVersion: v1\nkind: Namespace\nmetadata: {name: llm}\n")

	log := &lines{}
	source := pods(t, c.Config(kube.ServiceAccount), log)
	e := find(t, source, log)
	eventually(t, func() bool { return metric(t, e, `llm_exporter_discovery_up{reason="forbidden",source="pods"}`) == 0 },
		func() any { return log })

	role, err := exec.Command("helm", "template", "gpu", "../../helm/llm-node-exporter", "--namespace", "monitoring", "--kube-version",
		"1.36.0", "-s", "templates/rbac.yaml").Output()
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(role), "\n---\n")
	create("rbac.authorization.k8s.io", "clusterroles", documents[0])
	create("rbac.authorization.k8s.io", "clusterrolebindings", documents[1])
	create("", "pods", declaredPod("a", "10.0.0.5"))
	create("", "pods", strings.Replace(declaredPod("elsewhere", "10.0.1.5"), "nodeName: n1", "nodeName: n2", 1))
	e.until(t, "llm/a/server 10.0.0.5:8000")
	create("", "pods", declaredPod("b", "10.0.0.6"))
	e.until(t, "llm/a/server 10.0.0.5:8000", "llm/b/server 10.0.0.6:8000")
	c.Delete(t, "", "pods", "llm", "a")
	e.until(t, "llm/b/server 10.0.0.6:8000")

	devices := source.cluster.Slices()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go devices.Run(ctx)
	for node, uuid := range map[string]string{"n1": "MIG-a", "n2": "MIG-b"} {
		create("resource.k8s.io", "resourceslices", strings.NewReplacer("NODE", node, "UUID", uuid).
			Replace("apiVersion: resource.k8s.io/v1\nkind: ResourceSlice\n"+
				"metadata: {name: NODE-gpu}\nspec:\n  driver: gpu.nvidia.com\n  nodeName: NODE\n  pool: {name: NODE, generation: 1, "+
				"resourceSliceCount: 1}\n"+
				"  devices:\n  - {name: gpu-0-mig-9-4-4, attributes: {type: {string: mig}, uuid: {string: UUID}}}\n"))
	}
	eventually(t, func() bool { return devices.UUID("gpu.nvidia.com", "n1", "gpu-0-mig-9-4-4") == "MIG-a" }, func() any { return log })
	if got := devices.UUID("gpu.nvidia.com", "n2", "gpu-0-mig-9-4-4"); got != "" {
		t.Errorf("a device of another node: %s", got)
	}

	c.Server.Process.Kill()
	eventually(t, func() bool { return metric(t, e, `llm_exporter_discovery_up{reason="unreachable",source="pods"}`) == 0 },
		func() any { return log })
	e.until(t, "llm/b/server 10.0.0.6:8000")
	c.Serve(t)
	create("", "pods", declaredPod("c", "10.0.0.7"))
	e.until(t, "llm/b/server 10.0.0.6:8000", "llm/c/server 10.0.0.7:8000")
}

// TestRealAPIServerShapes checks that a real API server accepts the pods of each shape and adds its defaults, and that
// discovery reads the same pods.
func TestRealAPIServerShapes(t *testing.T) {
	c := kube.Start(t, "default:none")
	c.Create(t, "", "namespaces", parsePod(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: llm}\n"))
	for i, s := range shapes {
		t.Run(s.name, func(t *testing.T) {
			s.check(t, i, c.Config(kube.Admin), func(t *testing.T, text string) {
				pod := parsePod(t, text)
				spec := pod["spec"].(map[string]any)
				for _, list := range []string{"initContainers", "containers"} {
					containers, _ := spec[list].([]any)
					for _, container := range containers {
						container.(map[string]any)["image"] = "image" // no shape is recognised by this field
					}
				}
				c.Create(t, "", "pods", pod)
				meta := pod["metadata"].(map[string]any)
				t.Cleanup(func() { c.Delete(t, "", "pods", meta["namespace"].(string), meta["name"].(string)) })
			})
		})
	}
}
