package kube

import (
	"os"
	"strings"
)

// PodsByUID returns the pods that have logs on the node. The kubelet keeps the logs of a pod in a directory named
// <namespace>_<name>_<uid>. The result is empty if dir cannot be read.
func PodsByUID(dir string) map[string]PodName {
	pods := make(map[string]PodName)
	logs, _ := os.ReadDir(dir)
	for _, entry := range logs {
		if parts := strings.Split(entry.Name(), "_"); len(parts) == 3 {
			pods[parts[2]] = PodName{label([]byte(parts[0])), label([]byte(parts[1]))}
		}
	}
	return pods
}
