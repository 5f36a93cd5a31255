package discovery

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/llm-node-exporter/llm-node-exporter/internal/kube"
)

// deployed is a ready pod of a Deployment as the API server sends it, with the differences in of.
func deployed(name string, of ...string) string {
	pod := strings.Replace(running(name, gpuContainer, "  uid: "+name+"-1\n  creationTimestamp: '"+time.Now().UTC().Add(-time.Minute).
		Format(time.RFC3339)+"'\n",
		"  ownerReferences: [{kind: ReplicaSet, name: vllm-6d9f, controller: true}]\n", labelled("pod-template-hash: 6d9f")),
		"podIP: 10.0.0.5", "conditions: [{type: Ready, status: 'True'}], containerStatuses: [{name: server, ready: true}], podIP: 10.0.0.5", 1)
	return strings.NewReplacer(of...).Replace(pod)
}

// Changes of such a pod.
var (
	going     = []string{"  uid: ", "  deletionTimestamp: '2026-01-01T00:00:00Z'\n  uid: "}
	disrupted = []string{"conditions: [", "conditions: [{type: DisruptionTarget, status: 'True', reason: EvictionByEvictionAPI}, "}
	evicted   = []string{"phase: Running", "phase: Failed, reason: Evicted"}
	unready   = []string{"ready: true", "ready: false", "status: 'True'", "status: 'False'"}
	grouped   = []string{"pod-template-hash: 6d9f", "leaderworkerset.sigs.k8s.io/name: vllm"}
	clustered = []string{"kind: ReplicaSet", "kind: RayCluster"}
	training  = []string{"nvidia.com/gpu: '2', ", ""}
)

func all(changes ...[]string) (together []string) {
	for _, c := range changes {
		together = append(together, c...)
	}
	return together
}

// TestDeletedOnPurpose checks that a ready pod that a person or its controller deletes counts as deleted on
// purpose. A pod that failed, was evicted or was not ready does not count, and the exporter reports nothing about
// other pods.
func TestDeletedOnPurpose(t *testing.T) {
	const unknown = -1
	for _, c := range []struct {
		name   string
		before []string
		after  []string
		want   float64
	}{
		{"deleted while it was ready", nil, going, 1},
		{"evicted through the API, preempted, or its node is tainted", nil, all(going, disrupted), 0},
		{"evicted by its kubelet", nil, evicted, 0},
		{"deleted because it was not ready", unready, all(unready, going), 0},
		{"its leader goes because a worker failed", grouped, all(grouped, going), unknown},
		{"an operator deletes it", clustered, all(clustered, going), unknown},
		{"it holds no GPU", training, all(training, going), unknown},
		{"it stays", nil, unready, unknown},
	} {
		t.Run(c.name, func(t *testing.T) {
			api, log := newCluster(t), &lines{}
			api.put(t, deployed("a", c.before...))
			source := pods(t, api.config(), log)
			e := find(t, source, log)
			eventually(t, api.watching, func() any { return "not watching" })
			api.put(t, deployed("a", c.after...))
			api.put(t, deployed("last", going...)) // all earlier events have arrived by then
			api.put(t, deployed("marker"))
			api.put(t, deployed("marker", going...))
			eventually(t, func() bool { return metric(t, e, departedSeries("marker")) == 1 }, func() any { return log })
			if got := metric(t, e, departedSeries("a")); got != c.want {
				t.Errorf("%v, want %v", got, c.want)
			}
			if metric(t, e, departedSeries("last")) != unknown {
				t.Error("a pod that was going when it was first seen is told of")
			}
			api.remove("llm/a")
			api.put(t, deployed("second"))
			api.put(t, deployed("second", going...))
			eventually(t, func() bool { return metric(t, e, departedSeries("second")) == 1 }, func() any { return log })
			if got := metric(t, e, departedSeries("a")); got != c.want {
				t.Errorf("%v when it is gone, want %v", got, c.want)
			}
		})
	}
}

func departedSeries(pod string) string {
	return fmt.Sprintf(`llm_exporter_pod_deleted_on_purpose{namespace="llm",pod=%q}`, pod)
}

// TestSuccessorOfDeleted checks that a deletion was not on purpose if the successor does not get ready, and that a
// pod that comes back is not gone.
func TestSuccessorOfDeleted(t *testing.T) {
	now := time.Now()
	decoded := func(text string) *pod {
		p, err := kube.Decode[pod](parsePod(t, text))
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	successor := func(name string, changes ...string) *pod {
		return decoded(deployed(name, append(changes, "vllm-6d9f", "vllm-77aa", "hash: 6d9f", "hash: 77aa", "uid: "+name+"-1",
			"uid: "+name+"-2")...))
	}
	of := kube.PodName{Namespace: "llm", Name: "a"}
	for _, c := range []struct {
		name      string
		successor *pod
		after     time.Duration
		want      bool
	}{
		{"it loads", successor("b", unready...), 10 * time.Minute, true},
		{"it is not ready after twenty minutes", successor("b", unready...), 20 * time.Minute, false},
		{"it is ready", successor("b"), 30 * time.Minute, true},
		{"under the old name it loads", successor("a", unready...), 10 * time.Minute, true},
		{"under the old name it is ready", successor("a"), 10 * time.Minute, false},
		{
			"another workload's is not ready", decoded(deployed("b", append([]string{"vllm-6d9f", "other-6d9f"}, unready...)...)),
			30 * time.Minute, true,
		},
	} {
		d := departed{pods: map[string]departure{}}
		d.note(decoded(deployed("a")), decoded(deployed("a", going...)))
		d.pods["llm/a"] = func(one departure) departure { one.at = now; return one }(d.pods["llm/a"])
		if got, told := d.list([]*pod{c.successor}, now.Add(c.after))[of]; got != c.want || !told {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
		if _, told := d.list(nil, now.Add(61*time.Minute))[of]; told {
			t.Errorf("%s: it is told after an hour", c.name)
		}
	}
	d := departed{pods: map[string]departure{}}
	for i := range 2 * maxDeparted {
		name := fmt.Sprint("p", i)
		d.note(decoded(deployed(name)), decoded(deployed(name, going...)))
	}
	if n := len(d.list(nil, now)); n != maxDeparted {
		t.Errorf("%d pods are told of, want %d", n, maxDeparted)
	}
}
