package discovery

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
)

func pods(t *testing.T, config *rest.Config, log *lines, namespaces ...string) *Pods {
	t.Helper()
	config.QPS = -1
	c, err := kube.NewCluster(config, "n1", slog.New(slog.NewTextHandler(log, nil)))
	if err != nil {
		t.Fatal(err)
	}
	return NewPods(c, "/proc", namespaces...)
}

// declaredPod is an engine that needs no probe: nothing listens at the addresses of these tests' pods.
func declaredPod(name, address string) string {
	return strings.Replace(running(name, gpuContainer, annotated("llm-node-exporter/port: '8000'")), "podIP: 10.0.0.5", "podIP: "+address, 1)
}

// TestPodsComeAndGo follows pods through the real client of the API.
func TestPodsComeAndGo(t *testing.T) {
	c, log := newCluster(t), &lines{}
	c.put(t, declaredPod("a", "10.0.0.5"))
	c.put(t, strings.Replace(declaredPod("elsewhere", "10.0.1.5"), "nodeName: n1", "nodeName: n2", 1))
	e := find(t, pods(t, c.config(), log), log)
	e.until(t, "llm/a/server 10.0.0.5:8000")
	eventually(t, c.watching, func() any { return "not watching" })

	c.put(t, declaredPod("b", "10.0.0.6"))
	e.until(t, "llm/a/server 10.0.0.5:8000", "llm/b/server 10.0.0.6:8000")
	c.put(t, declaredPod("a", "10.0.0.7")) // restarted with another address
	e.until(t, "llm/a/server 10.0.0.7:8000", "llm/b/server 10.0.0.6:8000")
	c.put(t, "apiVersion: v1\nkind: Pod\nmetadata: {name: odd, namespace: llm}\nspec: {nodeName: n1, containers: 7}\n")
	c.remove("llm/b")
	e.until(t, "llm/a/server 10.0.0.7:8000")
	eventually(t, func() bool { return strings.Contains(log.String(), "llm/odd") }, func() any { return log }) // cannot be read
}

// TestNamespaces checks that only the pods of these namespaces are requested, with one call for each.
func TestNamespaces(t *testing.T) {
	c, log := newCluster(t), &lines{}
	for i, namespace := range []string{"llm", "batch", "others"} {
		c.put(t, strings.Replace(declaredPod("a", fmt.Sprint("10.0.0.", i)), "namespace: llm", "namespace: "+namespace, 1))
	}
	e := find(t, pods(t, c.config(), log, "llm", "batch"), log)
	e.until(t, "llm/a/server 10.0.0.0:8000", "batch/a/server 10.0.0.1:8000")
}

// TestRefused checks that a missing permission shows in a metric, and in a message with the remedy.
func TestRefused(t *testing.T) {
	c, log := newCluster(t), &lines{}
	c.refuse = true
	e := find(t, pods(t, c.config(), log), log)
	eventually(t, func() bool { return metric(t, e, `llm_exporter_discovery_up{reason="forbidden",source="pods"}`) == 0 },
		func() any { return log })
	eventually(t, func() bool {
		return strings.Contains(log.String(), "ClusterRole") && strings.Contains(log.String(), "cannot list resource")
	}, func() any { return log })
	if _, err := e.Places(); err == nil || !strings.Contains(err.Error(), "ClusterRole") {
		t.Errorf("for a person: %v", err)
	}
	c.put(t, declaredPod("a", "10.0.0.5"))
	c.mu.Lock()
	c.refuse = false
	c.mu.Unlock()
	e.until(t, "llm/a/server 10.0.0.5:8000")
	if got := metric(t, e, `llm_exporter_discovery_up{reason="",source="pods"}`); got != 1 {
		t.Errorf("up is %v when the permission is there", got)
	}
}

// TestAPIServerDown checks that found engines stay, and that the state is shown.
func TestAPIServerDown(t *testing.T) {
	c, log := newCluster(t), &lines{}
	c.put(t, declaredPod("a", "10.0.0.5"))
	e := find(t, pods(t, c.config(), log), log)
	e.until(t, "llm/a/server 10.0.0.5:8000")
	eventually(t, c.watching, func() any { return "not watching" })
	c.CloseClientConnections()
	c.Listener.Close()
	eventually(t, func() bool { return metric(t, e, `llm_exporter_discovery_up{reason="unreachable",source="pods"}`) == 0 },
		func() any { return log })
	time.Sleep(100 * time.Millisecond)
	e.until(t, "llm/a/server 10.0.0.5:8000")
}
