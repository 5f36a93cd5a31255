package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"google.golang.org/grpc"
	v1 "k8s.io/kubelet/pkg/apis/podresources/v1"

	"github.com/llm-node-exporter/llm-node-exporter/internal/fakenvml"
)

type podResources struct {
	v1.UnimplementedPodResourcesListerServer
	answer *v1.ListPodResourcesResponse
}

func (p podResources) List(context.Context, *v1.ListPodResourcesRequest) (*v1.ListPodResourcesResponse, error) {
	return p.answer, nil
}

// TestPodsOnGPUs checks that the kubelet's devices map a MIG device and a GPU to metrics endpoints of engines.
func TestPodsOnGPUs(t *testing.T) {
	const mig = "MIG-00000000-0000-5000-8000-000000000004"
	container := func(resource, id string) []*v1.ContainerResources {
		return []*v1.ContainerResources{{Name: "vllm", Devices: []*v1.ContainerDevices{{ResourceName: resource, DeviceIds: []string{id}}}}}
	}
	server := grpc.NewServer()
	v1.RegisterPodResourcesListerServer(server, podResources{answer: &v1.ListPodResourcesResponse{PodResources: []*v1.PodResources{
		{Name: "small", Namespace: "prod", Containers: container("nvidia.com/mig-3g.40gb", mig)},
		{Name: "large", Namespace: "prod", Containers: container("nvidia.com/gpu", "GPU-00000000-0000-4000-8000-000000000001")},
	}}})
	socket := filepath.Join(t.TempDir(), "kubelet.sock")
	listener, err := net.Listen("unix", socket)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve(listener) }()
	t.Cleanup(server.Stop)

	small, large := vllm(t, "1"), vllm(t, "2")
	config := filepath.Join(t.TempDir(), "config.yml")
	content := "targets:\n"
	for pod, page := range map[string]string{"small": small.URL, "large": large.URL} {
		content += fmt.Sprintf("- url: %s\n  labels: {namespace: prod, pod: %s, container: vllm}\n", page, pod)
	}
	if err := os.WriteFile(config, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	n := startOnGPUs(t, 2, func(s *fakenvml.State) {
		if err := errors.Join(s.Set("0", "mig", "1 1"), s.Set("0/4", "uuid", mig, "gpu_instance", 2)); err != nil {
			t.Fatal(err)
		}
	}, "--config.file="+config, "--ownership.pod-resources="+socket)
	n.until(t, `llm_engine_up{runtime="vllm",namespace="prod",pod="large"`)
	n.until(t, `llm_engine_gpu_info{container="vllm",gpu="0"`)
	page := n.until(t, `llm_engine_gpu_info{container="vllm",gpu="1"`)
	for pod, want := range map[string][2]string{
		"small": {small.URL, `gpu="0",gpu_instance_id="2"`},
		"large": {large.URL, `gpu="1",gpu_uuid="`},
	} {
		found := false
		for line := range strings.Lines(page) {
			found = found || strings.HasPrefix(line, "llm_engine_gpu_info{") && strings.Contains(line, `source="pod_resources"`) &&
				strings.Contains(line, `pod="`+pod+`"`) && strings.Contains(line, `server="`+strings.TrimPrefix(want[0], "http://")+`"`) &&
				strings.Contains(line, want[1])
		}
		if !found {
			t.Errorf("no GPU with %s for pod %s on\n%s", want[1], pod, page)
		}
	}
	if !strings.Contains(page, `llm_exporter_pod_resources_up 1`) || strings.Contains(page, "unknown_devices{") {
		t.Error("the answer of the kubelet is not used up")
	}
}
