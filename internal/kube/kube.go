// Package kube reads Kubernetes' data about one node: from the API server its pods and the devices that drivers of
// resource claims offer (cluster.go, slices.go), from the kubelet the devices of each container (kubelet.go), and from
// the kubelet's log directories the names of pods (podlogs.go).
//
// It only reports these facts, and writes nothing to the cluster. Package discovery finds the engines, and package
// ownership finds the GPU of a device. While a source does not answer, its last answer stays valid.
package kube

import "strings"

const longestName = 253 // bytes; the most that Kubernetes allows for any name

// PodName identifies a pod.
type PodName struct{ Namespace, Name string }

// label returns a name as a label value.
func label(b []byte) string {
	return strings.ToValidUTF8(string(b[:min(len(b), longestName)]), "\uFFFD")
}
