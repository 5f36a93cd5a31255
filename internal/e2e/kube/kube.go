// Package kube runs a real API server for tests. It refuses the same requests as a user's cluster.
package kube

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net"
	"os"
	"os/exec"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
)

// These are bearer tokens that the cluster accepts.
const (
	Admin          = "admin"           // has all permissions
	ServiceAccount = "service-account" // has the permissions of the cluster's initial service account
)

// Cluster is kube-apiserver and etcd. No program schedules pods, runs pods, or creates the pods of a DaemonSet.
type Cluster struct {
	dynamic.Interface // as Admin
	URL               string
	CA                string    // file
	Server            *exec.Cmd // kube-apiserver
	args              []string
}

// Start runs a cluster until the test ends. Its programs take minutes to build. If KUBE_APISERVER and ETCD do not name
// them, the test is skipped. The service account is NAMESPACE:NAME. flags are additional flags of kube-apiserver.
func Start(t *testing.T, serviceAccount string, flags ...string) *Cluster {
	t.Helper()
	etcd := os.Getenv("ETCD")
	if etcd == "" || os.Getenv("KUBE_APISERVER") == "" {
		t.Skip("KUBE_APISERVER and ETCD do not name programs")
	}
	dir := t.TempDir()
	write := func(name, text string) {
		if err := os.WriteFile(dir+"/"+name, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	write("key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	write("tokens", fmt.Sprintf("%s,admin,1,system:masters\n%s,system:serviceaccount:%s,2,system:serviceaccounts\n", Admin,
		ServiceAccount, serviceAccount))
	store, at := "http://"+e2e.Address(t), e2e.Address(t)
	e2e.Start(t, etcd, "--data-dir="+dir+"/etcd", "--listen-client-urls="+store, "--advertise-client-urls="+store,
		"--listen-peer-urls=http://"+e2e.Address(t))
	_, port, _ := net.SplitHostPort(at)
	c := &Cluster{URL: "https://" + at, CA: dir + "/apiserver.crt", args: []string{
		"--etcd-servers=" + store, "--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + dir, "--token-auth-file=" + dir +
			"/tokens",
		"--authorization-mode=RBAC", "--allow-privileged", "--disable-admission-plugins=ServiceAccount",
		"--service-cluster-ip-range=10.96.0.0/24",
		"--service-account-issuer=https://test", "--service-account-key-file=" + dir + "/key", "--service-account-signing-key-file=" + dir +
			"/key",
	}}
	c.args = append(c.args, flags...)
	c.Serve(t)
	e2e.Until(t, "kube-apiserver has a certificate", func() bool { _, err := os.Stat(c.CA); return err == nil })
	if c.Interface, err = dynamic.NewForConfig(c.Config(Admin)); err != nil {
		t.Fatal(err)
	}
	return c
}

// Serve starts kube-apiserver, or restarts it after its process has ended.
func (c *Cluster) Serve(t *testing.T) {
	t.Helper()
	server := e2e.Start(t, os.Getenv("KUBE_APISERVER"), c.args...)
	t.Cleanup(func() { _ = server.Process.Kill() }) // for a graceful end, the process would wait a minute for its watches
	c.Server = server
}

// Config returns a client configuration for the cluster.
func (c *Cluster) Config(token string) *rest.Config {
	return &rest.Config{Host: c.URL, BearerToken: token, TLSClientConfig: rest.TLSClientConfig{CAFile: c.CA}}
}

// Objects returns the client for the objects of one kind in a namespace. The API version is v1.
func (c *Cluster) Objects(group, resource, namespace string) dynamic.ResourceInterface {
	return c.Resource(schema.GroupVersionResource{Group: group, Version: "v1", Resource: resource}).Namespace(namespace)
}

// Create creates an object as soon as the API server allows this. A pod or a node gets its status in a second call,
// because the API server ignores the status of a new object.
func (c *Cluster) Create(t *testing.T, group, resource string, object map[string]any) {
	t.Helper()
	u := &unstructured.Unstructured{Object: object}
	of := c.Objects(group, resource, u.GetNamespace())
	var err error
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		if _, err = of.Create(t.Context(), u, metav1.CreateOptions{}); err == nil {
			break
		} else if time.Now().After(deadline) {
			t.Fatal(err)
		}
	}
	if resource != "pods" && resource != "nodes" || object["status"] == nil {
		return
	}
	status, err := json.Marshal(map[string]any{"status": object["status"]})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := of.Patch(t.Context(), u.GetName(), types.MergePatchType, status, metav1.PatchOptions{}, "status"); err != nil {
		t.Fatal(err)
	}
}

// Delete deletes an object at once, even in a test's cleanup.
func (c *Cluster) Delete(t *testing.T, group, resource, namespace, name string) {
	t.Helper()
	now := int64(0)
	of := c.Objects(group, resource, namespace)
	if err := of.Delete(context.Background(), name, metav1.DeleteOptions{GracePeriodSeconds: &now}); err != nil {
		t.Fatal(err)
	}
}
