// Package kube reads Kubernetes' data about one node. From the API server, it reads the node's pods, and the devices
// that drivers of resource claims offer (cluster.go, slices.go). From the kubelet, it reads the devices of each
// container (kubelet.go). From the kubelet's log directories, it reads the names of pods (podlogs.go).
//
// The package writes nothing to the cluster. Package discovery finds the engines, and package ownership finds the GPU
// of a device. While a source does not answer, its last answer stays valid.
package kube

import "strings"

const longestName = 253 // bytes; Kubernetes' limit for any name

// PodName identifies a pod.
type PodName struct{ Namespace, Name string }

// label converts a name to a label value: it limits the length, and replaces invalid UTF-8.
func label(b []byte) string {
	return strings.ToValidUTF8(string(b[:min(len(b), longestName)]), "\uFFFD")
}
