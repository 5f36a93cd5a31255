package discovery

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// TestRealAPIServer runs discovery against kube-apiserver and etcd with the role that the chart binds.
// Both take minutes to build, so it runs where KUBE_APISERVER and ETCD name their binaries.
func TestRealAPIServer(t *testing.T) {
	apiserver, etcd := os.Getenv("KUBE_APISERVER"), os.Getenv("ETCD")
	if apiserver == "" || etcd == "" {
		t.Skip("KUBE_APISERVER and ETCD do not name binaries")
	}
	dir := t.TempDir()
	etcdAt, peerAt, at := freePort(t), freePort(t), freePort(t)
	background(t, etcd, "--data-dir="+dir+"/etcd", "--listen-client-urls=http://"+etcdAt, "--advertise-client-urls=http://"+etcdAt, "--listen-peer-urls=http://"+peerAt)
	write(t, dir+"/tokens", "admin,admin,1,system:masters\nexporter,system:serviceaccount:monitoring:gpu-llm-node-exporter,2,system:serviceaccounts\n")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	write(t, dir+"/key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	_, port, _ := net.SplitHostPort(at)
	serve := func() *exec.Cmd {
		return background(t, apiserver, "--etcd-servers=http://"+etcdAt, "--bind-address=127.0.0.1", "--secure-port="+port, "--cert-dir="+dir, "--token-auth-file="+dir+"/tokens",
			"--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount", "--service-cluster-ip-range=10.96.0.0/24",
			"--service-account-issuer=https://test", "--service-account-key-file="+dir+"/key", "--service-account-signing-key-file="+dir+"/key")
	}
	process := serve()
	config := func(token string) *rest.Config {
		return &rest.Config{Host: "https://" + at, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{Insecure: true}}
	}
	admin, err := dynamic.NewForConfig(config("admin"))
	if err != nil {
		t.Fatal(err)
	}
	create := func(group, resource, namespace, text string) {
		t.Helper()
		where := admin.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource})
		object := &unstructured.Unstructured{Object: parsePod(t, text)}
		var err error
		eventually(t, func() bool {
			_, err = where.Namespace(namespace).Create(t.Context(), object, metav1.CreateOptions{})
			return err == nil
		}, func() any { return err })
		if resource == "pods" {
			if _, err := where.Namespace(namespace).Patch(t.Context(), object.GetName(), "application/merge-patch+json", statusOf(t, object), metav1.PatchOptions{}, "status"); err != nil {
				t.Fatal(err)
			}
		}
	}
	create("", "namespaces", "", "apiVersion: v1\nkind: Namespace\nmetadata: {name: llm}\n")

	log := &lines{}
	cluster := reach(t, config("exporter"), log)
	e := find(t, cluster.Pods(), log)
	eventually(t, func() bool { return metric(t, e, `llm_exporter_discovery_up{reason="forbidden",source="pods"}`) == 0 }, func() any { return log })

	role, err := exec.Command("helm", "template", "gpu", "../../helm/llm-node-exporter", "--namespace", "monitoring", "--kube-version", "1.36.0", "-s", "templates/rbac.yaml").Output()
	if err != nil {
		t.Fatal(err)
	}
	documents := strings.Split(string(role), "\n---\n")
	create("rbac.authorization.k8s.io", "clusterroles", "", documents[0])
	create("rbac.authorization.k8s.io", "clusterrolebindings", "", documents[1])
	create("", "pods", "llm", declaredPod("a", "10.0.0.5"))
	create("", "pods", "llm", strings.Replace(declaredPod("elsewhere", "10.0.1.5"), "nodeName: n1", "nodeName: n2", 1))
	e.until(t, "llm/a/server 10.0.0.5:8000")
	create("", "pods", "llm", declaredPod("b", "10.0.0.6"))
	e.until(t, "llm/a/server 10.0.0.5:8000", "llm/b/server 10.0.0.6:8000")
	now := int64(0)
	if err := admin.Resource(schema.GroupVersionResource{Version: "v1", Resource: "pods"}).Namespace("llm").Delete(t.Context(), "a", metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
	e.until(t, "llm/b/server 10.0.0.6:8000")

	devices := cluster.Slices()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	go devices.Run(ctx)
	create("resource.k8s.io", "resourceslices", "", slicesOf("v1", "n1", migDevice))
	create("resource.k8s.io", "resourceslices", "", strings.ReplaceAll(slicesOf("v1", "n2", migDevice), "MIG-a", "MIG-b"))
	eventually(t, func() bool { return devices.UUID("gpu.nvidia.com", "n1", "gpu-0-mig-9-4-4") == "MIG-a" }, func() any { return log })
	if got := devices.UUID("gpu.nvidia.com", "n2", "gpu-0-mig-9-4-4"); got != "" {
		t.Errorf("a device of another node: %s", got)
	}

	process.Process.Kill()
	process.Wait()
	eventually(t, func() bool { return metric(t, e, `llm_exporter_discovery_up{reason="unreachable",source="pods"}`) == 0 }, func() any { return log })
	e.until(t, "llm/b/server 10.0.0.6:8000")
	serve()
	create("", "pods", "llm", declaredPod("c", "10.0.0.7"))
	e.until(t, "llm/b/server 10.0.0.6:8000", "llm/c/server 10.0.0.7:8000")
}

// statusOf is the part of a pod that creation leaves out.
func statusOf(t *testing.T, pod *unstructured.Unstructured) []byte {
	text, err := yaml.MarshalWithOptions(map[string]any{"status": pod.Object["status"]}, yaml.JSON())
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func background(t *testing.T, name string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), name, args...)
	out, err := os.Create(filepath.Join(t.TempDir(), filepath.Base(name)+".log"))
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(out.Name())
			t.Logf("%s:\n%s", name, text[max(0, len(text)-2000):])
		}
	})
	return cmd
}

func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

func write(t *testing.T, path, content string) {
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
