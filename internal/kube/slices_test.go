package kube

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	"k8s.io/client-go/rest"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

// A MIG device as NVIDIA's driver for resource claims offers it, and in the format of v1beta1.
const (
	migDevice    = `{name: gpu-0-mig-9-4-4, attributes: {type: {string: mig}, uuid: {string: MIG-a}, parentUUID: {string: GPU-a}, index: {int: 0}, driverVersion: {version: 570.0.0}}}`
	oldMIGDevice = `{name: gpu-0-mig-9-4-4, basic: {attributes: {type: {string: mig}, uuid: {string: MIG-a}}}}`
)

// offering is an API server with one version of the API for ResourceSlices, and a slice of node n1 that does not change.
// NVIDIA's driver names the pool after the node.
func offering(version, device string) http.HandlerFunc {
	slice := "apiVersion: resource.k8s.io/" + version + "\nkind: ResourceSlice\nmetadata: {name: n1-gpu}\nspec:\n  driver: gpu.nvidia.com\n" +
		"  nodeName: n1\n  pool: {name: n1, generation: 1, resourceSliceCount: 1}\n  devices:\n  - " + device + "\n"
	return func(w http.ResponseWriter, r *http.Request) {
		switch q := r.URL.Query(); {
		case r.URL.Path != "/apis/resource.k8s.io/"+version+"/resourceslices", q.Get("fieldSelector") != "spec.nodeName=n1":
			fail(w, http.StatusNotFound, "NotFound")
		case q.Get("sendInitialEvents") != "":
			fail(w, http.StatusUnprocessableEntity, "Invalid") // an older API server
		case q.Get("watch") == "true":
			w.(http.Flusher).Flush()
			<-r.Context().Done()
		default:
			var object map[string]any
			if err := yaml.Unmarshal([]byte(slice), &object); err != nil {
				panic(err)
			}
			w.Header().Set("Content-Type", "application/json")
			json.NewEncoder(w).Encode(map[string]any{
				"kind": "ResourceSliceList", "apiVersion": "resource.k8s.io/" + version,
				"metadata": map[string]any{"resourceVersion": "1"}, "items": []any{object},
			})
		}
	}
}

func fail(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(map[string]any{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "code": code})
}

// reach returns the cluster of an API server that runs until the test ends.
func reach(t *testing.T, api http.HandlerFunc, log *e2e.Buffer) *Cluster {
	t.Helper()
	server := httptest.NewServer(api)
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	c, err := NewCluster(&rest.Config{Host: server.URL, QPS: -1}, "n1", slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// follow runs the slices of a cluster until stop is called.
func follow(t *testing.T, c *Cluster) (s *Slices, stop func()) {
	s = c.Slices()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { s.Run(ctx); close(done) }()
	return s, func() { cancel(); <-done }
}

// TestSlices finds the UUID of a device in any version of the API.
func TestSlices(t *testing.T) {
	for version, device := range map[string]string{"v1": migDevice, "v1beta2": migDevice, "v1beta1": oldMIGDevice} {
		t.Run(version, func(t *testing.T) {
			c := reach(t, offering(version, device), &e2e.Buffer{})
			if got := c.Slices().UUID("gpu.nvidia.com", "n1", "gpu-0-mig-9-4-4"); got != "" {
				t.Errorf("%s before anything was read", got)
			}
			s, stop := follow(t, c)
			defer stop()
			e2e.Until(t, "the device has its UUID", func() bool {
				return s.UUID("gpu.nvidia.com", "n1",
					"gpu-0-mig-9-4-4") == "MIG-a"
			})
			for _, other := range [][3]string{
				{"gpu.example.com", "n1", "gpu-0-mig-9-4-4"},
				{"gpu.nvidia.com", "n2", "gpu-0-mig-9-4-4"},
				{"gpu.nvidia.com", "n1", "gpu-0"},
			} {
				if got := s.UUID(other[0], other[1], other[2]); got != "" {
					t.Errorf("%v is %s", other, got)
				}
			}
		})
	}
}

// TestSlicesRefused checks that the log gets one line, however often the API server refuses.
func TestSlicesRefused(t *testing.T) {
	log := &e2e.Buffer{}
	_, stop := follow(t, reach(t, func(w http.ResponseWriter, _ *http.Request) { fail(w, http.StatusForbidden, "Forbidden") }, log))
	e2e.Until(t, "a remedy is logged", func() bool { return strings.Contains(log.String(), "ClusterRole") })
	stop()
	if n := strings.Count(log.String(), "level=WARN"); n != 1 {
		t.Errorf("%d warnings:\n%s", n, log)
	}
}

// TestClustersBesideEachOther is for the race detector. A cluster changes nothing that another cluster reads.
func TestClustersBesideEachOther(t *testing.T) {
	api, log := offering("v1", migDevice), &e2e.Buffer{}
	first, stop := follow(t, reach(t, api, log))
	defer stop()
	reach(t, api, log)
	e2e.Until(t, "the device has its UUID", func() bool {
		return first.UUID("gpu.nvidia.com", "n1",
			"gpu-0-mig-9-4-4") == "MIG-a"
	})
}

func TestNoNodeName(t *testing.T) {
	if _, err := NewCluster(&rest.Config{}, "", nil); err == nil || !strings.Contains(err.Error(), "NODE_NAME") {
		t.Errorf("%v", err)
	}
	if _, err := InCluster("n1", nil); err == nil || !strings.Contains(err.Error(), "service account") {
		t.Errorf("outside a cluster: %v", err)
	}
}
