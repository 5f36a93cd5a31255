package act

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// These are names in the written objects. Only objects with this label, taints with this key and conditions of this
// type are ever changed.
const (
	ConditionType = "LLMGPUHealthy"
	TaintKey      = "llm-node-exporter/gpu-health"
	ownerLabel    = "llm-node-exporter/acts"
	sinceNote     = "llm-node-exporter/since"
	bootNote      = "llm-node-exporter/boot-id"
	reporter      = "llm-node-exporter"
)

// cluster reads and writes Kubernetes' objects.
type cluster struct {
	dynamic.Interface
	taintRules schema.GroupVersionResource // empty if the API server has no such version
}

func newCluster(config *rest.Config) (*cluster, error) {
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("the API server's address: %w", err)
	}
	return &cluster{Interface: client}, nil
}

func core(resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Version: "v1", Resource: resource}
}

// versioned lists the objects of a kind, in the newest version of the API server.
func (c *cluster) versioned(ctx context.Context, resource, selector string, versions ...string) (kind schema.GroupVersionResource,
	list []unstructured.Unstructured, err error,
) {
	for _, version := range versions {
		kind = schema.GroupVersionResource{Group: "resource.k8s.io", Version: version, Resource: resource}
		all, err := c.Resource(kind).List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err == nil {
			return kind, all.Items, nil
		}
		if !apierrors.IsNotFound(err) {
			return kind, nil, fmt.Errorf("list %s: %w", resource, err)
		}
	}
	return schema.GroupVersionResource{}, nil, nil
}

// exporter is a pod of the exporter on a node.
type exporter struct{ node, address string }

// exporters lists the exporters' running pods.
func (c *cluster) exporters(ctx context.Context, namespace, selector string) ([]exporter, error) {
	list, err := c.Resource(core("pods")).Namespace(namespace).List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list pods of %s: %w", namespace, err)
	}
	var all []exporter
	for _, p := range list.Items {
		node, _, _ := unstructured.NestedString(p.Object, "spec", "nodeName")
		ip, _, _ := unstructured.NestedString(p.Object, "status", "podIP")
		if node != "" && ip != "" && p.GetDeletionTimestamp() == nil {
			all = append(all, exporter{node, ip})
		}
	}
	return all, nil
}

// nodes returns the nodes by name.
func (c *cluster) nodes(ctx context.Context) (map[string]*unstructured.Unstructured, error) {
	list, err := c.Resource(core("nodes")).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("list nodes: %w", err)
	}
	all := map[string]*unstructured.Unstructured{}
	for i := range list.Items {
		all[list.Items[i].GetName()] = &list.Items[i]
	}
	return all, nil
}

// device names a GPU as the GPU's driver does in a ResourceSlice.
type device struct{ driver, pool, name string }

// devices returns the devices by node and GPU's UUID, because an exporter's verdict applies only to its own node.
func (c *cluster) devices(ctx context.Context) (map[string]device, error) {
	_, list, err := c.versioned(ctx, "resourceslices", "", "v1", "v1beta2", "v1beta1")
	all := map[string]device{}
	for _, s := range list {
		node, _, _ := unstructured.NestedString(s.Object, "spec", "nodeName")
		driver, _, _ := unstructured.NestedString(s.Object, "spec", "driver")
		pool, _, _ := unstructured.NestedString(s.Object, "spec", "pool", "name")
		devices, _, _ := unstructured.NestedSlice(s.Object, "spec", "devices")
		for _, d := range devices {
			fields, _ := d.(map[string]any)
			name, _ := fields["name"].(string)
			for _, path := range [][]string{{"attributes", "uuid", "string"}, {"basic", "attributes", "uuid", "string"}} {
				if uuid, ok, _ := unstructured.NestedString(fields, path...); ok {
					all[node+"/"+uuid] = device{driver, pool, name}
				}
			}
		}
	}
	return all, err
}

// rules returns the DeviceTaintRules of this program by device.
func (c *cluster) rules(ctx context.Context) (map[device]*unstructured.Unstructured, error) {
	kind, list, err := c.versioned(ctx, "devicetaintrules", ownerLabel, "v1", "v1beta2")
	c.taintRules = kind
	all := map[device]*unstructured.Unstructured{}
	for i := range list {
		selector, _, _ := unstructured.NestedStringMap(list[i].Object, "spec", "deviceSelector")
		all[device{selector["driver"], selector["pool"], selector["device"]}] = &list[i]
	}
	return all, err
}

// ruleTaint returns the taint of a rule.
func ruleTaint(rule *unstructured.Unstructured) taint {
	fields, _, _ := unstructured.NestedMap(rule.Object, "spec", "taint")
	effect, _ := fields["effect"].(string)
	value, _ := fields["value"].(string)
	return taint{Effect(effect), value}
}

// setRule creates, changes or deletes the rule of a device, so that the device has the wanted taint.
func (c *cluster) setRule(ctx context.Context, d device, old *unstructured.Unstructured, want taint, boot string) error {
	rules := c.Resource(c.taintRules)
	if want.effect == NoTaint {
		if old == nil {
			return nil
		}
		uid := old.GetUID()
		err := rules.Delete(ctx, old.GetName(), metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
		if apierrors.IsNotFound(err) {
			err = nil
		}
		return err
	}
	rule := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": c.taintRules.GroupVersion().String(), "kind": "DeviceTaintRule",
		"metadata": map[string]any{
			"name":   "llm-node-exporter-" + digest(d.driver, d.pool, d.name),
			"labels": map[string]any{ownerLabel: "true"}, "annotations": notes(boot),
		},
		"spec": map[string]any{
			"deviceSelector": map[string]any{"driver": d.driver, "pool": d.pool, "device": d.name},
			"taint":          map[string]any{"key": TaintKey, "value": want.verdict, "effect": string(want.effect)},
		},
	}}
	if old == nil {
		_, err := rules.Create(ctx, rule, metav1.CreateOptions{})
		return err
	}
	rule.SetName(old.GetName())
	rule.SetResourceVersion(old.GetResourceVersion())
	_, err := rules.Update(ctx, rule, metav1.UpdateOptions{})
	return err
}

// notes returns the annotations of an object that was taken out of service. They have the time, and the node's boot at that time.
func notes(boot string) map[string]any {
	return map[string]any{sinceNote: time.Now().UTC().Format(time.RFC3339), bootNote: boot}
}

// digest returns a short name for a name of any length.
func digest(names ...string) string {
	return fmt.Sprintf("%x", sha256.Sum256([]byte(strings.Join(names, "\x00"))))[:16]
}

// nodeTaints returns the taints of a node that others set, and the taint of this program.
func nodeTaints(node *unstructured.Unstructured) (others []any, ours taint) {
	all, _, _ := unstructured.NestedSlice(node.Object, "spec", "taints")
	for _, one := range all {
		fields, _ := one.(map[string]any)
		if fields["key"] != TaintKey {
			others = append(others, one)
			continue
		}
		effect, _ := fields["effect"].(string)
		value, _ := fields["value"].(string)
		ours = taint{Effect(effect), value}
	}
	return others, ours
}

// setNodeTaint sets this program's taint on a node to the wanted taint. It fails if the node has changed since the
// reading. The next round then reads the node again.
func (c *cluster) setNodeTaint(ctx context.Context, node *unstructured.Unstructured, want taint, boot string) error {
	taints, _ := nodeTaints(node)
	if want.effect != NoTaint {
		taints = append(taints, map[string]any{"key": TaintKey, "value": want.verdict, "effect": string(want.effect)})
	}
	annotations := map[string]any{sinceNote: nil, bootNote: nil}
	if want.effect != NoTaint {
		annotations = notes(boot)
	}
	if taints == nil {
		taints = []any{}
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": node.GetResourceVersion(),
		"annotations":     annotations,
	}, "spec": map[string]any{"taints": taints}})
	if err != nil {
		return err
	}
	_, err = c.Resource(core("nodes")).Patch(ctx, node.GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
	return err
}

// condition is the condition of a node.
type condition struct{ status, reason, message string }

// heartbeat is how often an unchanged condition is written again.
const heartbeat = 5 * time.Minute

// setCondition writes the condition of a node if the condition has changed or is old.
func (c *cluster) setCondition(ctx context.Context, node *unstructured.Unstructured, want condition) error {
	now := time.Now().UTC()
	changed := now.Format(time.RFC3339)
	all, _, _ := unstructured.NestedSlice(node.Object, "status", "conditions")
	for _, one := range all {
		fields, _ := one.(map[string]any)
		if fields["type"] != ConditionType {
			continue
		}
		beat, _ := fields["lastHeartbeatTime"].(string)
		at, err := time.Parse(time.RFC3339, beat)
		if fields["status"] == want.status && fields["reason"] == want.reason && fields["message"] == want.message && err == nil &&
			now.Sub(at) < heartbeat {
			return nil
		}
		if before, ok := fields["lastTransitionTime"].(string); ok && fields["status"] == want.status {
			changed = before
		}
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"conditions": []any{map[string]any{
		"type":   ConditionType,
		"status": want.status, "reason": want.reason, "message": want.message,
		"lastHeartbeatTime": now.Format(time.RFC3339), "lastTransitionTime": changed,
	}}}})
	if err != nil {
		return err
	}
	_, err = c.Resource(core("nodes")).Patch(ctx, node.GetName(), types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}

// event returns an event about a node. The name of the event contains the event's subject, so that the event is written once.
func event(namespace, node, reason, note string) *unstructured.Unstructured {
	const longest = 1000 // bytes, because Kubernetes allows 1024
	if len(note) > longest {
		note = strings.ToValidUTF8(note[:longest], "") + "…"
	}
	kind := "Warning"
	if reason == "GPULifted" {
		kind = "Normal"
	}
	now := time.Now().UTC()
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "events.k8s.io/v1", "kind": "Event",
		"metadata": map[string]any{
			"name":      "llm-node-exporter." + digest(node, reason, note, now.Format("2006-01-02T15:04")),
			"namespace": namespace,
		},
		"eventTime": now.Format("2006-01-02T15:04:05.000000Z07:00"), "type": kind, "reason": reason, "action": reason, "note": note,
		"reportingController": reporter, "reportingInstance": reporter,
		// The API server accepts events about a node only in the namespace default. Therefore, the event is about the lease,
		// and the node is related.
		"regarding": map[string]any{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "namespace": namespace, "name": leaseName},
		"related":   map[string]any{"apiVersion": "v1", "kind": "Node", "name": node},
	}}
}

// tell writes an event, unless the event exists already.
func (c *cluster) tell(ctx context.Context, event *unstructured.Unstructured) error {
	_, err := c.Resource(schema.GroupVersionResource{Group: "events.k8s.io", Version: "v1", Resource: "events"}).
		Namespace(event.GetNamespace()).Create(ctx, event, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		err = nil
	}
	return err
}

// leaseTime is how long a replica leads without renewing the lease.
const leaseTime = 30 * time.Second

// lead reports whether this replica may act. It may act if it has the lease, or has taken over the lease of a replica that ended.
func (c *cluster) lead(ctx context.Context, namespace, identity string) (bool, error) {
	leases := c.Resource(schema.GroupVersionResource{Group: "coordination.k8s.io", Version: "v1", Resource: "leases"}).Namespace(namespace)
	now := time.Now().UTC()
	spec := map[string]any{
		"holderIdentity": identity, "leaseDurationSeconds": int64(leaseTime.Seconds()),
		"renewTime": now.Format("2006-01-02T15:04:05.000000Z07:00"),
	}
	lease, err := leases.Get(ctx, leaseName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		lease = &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
			"metadata": map[string]any{"name": leaseName}, "spec": spec,
		}}
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	case err == nil:
		holder, _, _ := unstructured.NestedString(lease.Object, "spec", "holderIdentity")
		renewed, _, _ := unstructured.NestedString(lease.Object, "spec", "renewTime")
		at, parsed := time.Parse(time.RFC3339Nano, renewed)
		if holder != identity && parsed == nil && now.Sub(at) < leaseTime {
			return false, nil
		}
		lease.Object["spec"] = spec
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return false, nil // another replica was faster
	}
	return err == nil, err
}

const leaseName = "llm-node-exporter-acts"

// noted returns when an object was taken out of service, and the node's boot at that time.
func noted(o *unstructured.Unstructured) (since time.Time, boot string) {
	notes := o.GetAnnotations()
	since, err := time.Parse(time.RFC3339, notes[sinceNote])
	if err != nil { // if a person removed the note, the object counts as the oldest
		since = o.GetCreationTimestamp().Time
	}
	return since, notes[bootNote]
}

// again reports whether an error is temporary, for example because another writer was faster.
func again(err error) bool {
	return apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err) || errors.Is(err, context.Canceled)
}

// pool returns the pool of a node.
func pool(node *unstructured.Unstructured, labels []string) string {
	i := slices.IndexFunc(labels, func(name string) bool { return node.GetLabels()[name] != "" })
	if i < 0 {
		return ""
	}
	return node.GetLabels()[labels[i]]
}
