package main

import (
	"bytes"
	"context"
	"debug/elf"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e"
	"github.com/llm-node-exporter/llm-node-exporter/internal/e2e/kube"
)

// built is the release that make release-test has built, with its statement.
type built struct {
	release
	subjects map[string]string // SHA-256 by name
}

// theRelease skips a test without a built release, because a build takes minutes.
func theRelease(t *testing.T) built {
	t.Helper()
	dir := os.Getenv("RELEASE")
	if dir == "" {
		t.Skip("RELEASE does not name a release: make release-test")
	}
	var statement struct {
		Subject []struct {
			Name   string
			Digest map[string]string
		}
		Predicate struct {
			BuildDefinition struct {
				ExternalParameters   struct{ Version, Registry string }
				ResolvedDependencies []struct{ Digest map[string]string }
			}
		}
	}
	content, err := os.ReadFile(filepath.Join(dir, "provenance.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &statement); err != nil {
		t.Fatal(err)
	}
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	d := statement.Predicate.BuildDefinition
	b := built{release{
		root: root, out: dir, tag: d.ExternalParameters.Version, version: numbers(d.ExternalParameters.Version),
		registry: d.ExternalParameters.Registry,
		commit:   d.ResolvedDependencies[0].Digest["gitCommit"],
	}, map[string]string{}}
	for _, s := range statement.Subject {
		b.subjects[s.Name] = s.Digest["sha256"]
	}
	return b
}

// file returns the only file of a release whose name has this ending.
func (b built) file(t *testing.T, end string) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(b.out, "*"+end))
	if err != nil || len(found) != 1 {
		t.Fatalf("%s has %q that end with %s, %v", b.out, found, end, err)
	}
	return found[0]
}

// next builds the version after a release, for this machine, from the same sources under another name.
func (b built) next(t *testing.T) built {
	t.Helper()
	n := built{b.release, nil}
	n.tag, n.version, n.out, n.time = "v99.0.0", "99.0.0", t.TempDir(), time.Now()
	p, err := newPlatform(runtime.GOARCH)
	if err != nil {
		t.Fatal(err)
	}
	if err := n.compile(&p, t.TempDir()); err != nil {
		t.Fatal(err)
	}
	image, err := n.writeImage("image", []platform{p}, n.image)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.writeImage("try", []platform{p}, n.tryImage); err != nil {
		t.Fatal(err)
	}
	if _, err := n.writeChart(image); err != nil {
		t.Fatal(err)
	}
	if err := n.writePackages([]platform{p}); err != nil {
		t.Fatal(err)
	}
	n.subjects = map[string]string{b.registry + "/" + imagePath: image.Hex}
	return n
}

// publish pushes a release to a registry, as the workflow does.
func (b built) publish(t *testing.T, to string) {
	t.Helper()
	output(t, exec.Command("make", "-s", "-C", b.root, "publish", "REGISTRY="+to, "DIST="+b.out))
}

// serveRegistry serves an empty registry and returns its address.
func serveRegistry(t *testing.T) string {
	t.Helper()
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	return strings.TrimPrefix(server.URL, "http://")
}

// output runs a program that must not fail.
func output(t *testing.T, cmd *exec.Cmd) string {
	t.Helper()
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(cmd.Args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// TestComplete checks the folder: every file has its checksum and is a subject of the provenance, and nothing is
// missing.
func TestComplete(t *testing.T) {
	r := theRelease(t)
	check := exec.Command("sha256sum", "--check", "--quiet", sums)
	check.Dir = r.out
	output(t, check)
	names, digests, err := r.digests()
	if err != nil {
		t.Fatal(err)
	}
	size := int64(0)
	for _, n := range names {
		if n != sums && n != "provenance.json" && r.subjects[n] != digests[n] {
			t.Errorf("%s is no subject of the provenance", n)
		}
		info, err := os.Stat(filepath.Join(r.out, n))
		if err != nil {
			t.Fatal(err)
		}
		size += info.Size()
		t.Logf("%9d  %s", info.Size(), n)
	}
	t.Logf("%d files, %d MiB", len(names), size>>20)
	for _, want := range []string{
		"-linux-amd64.tar.gz", "-linux-arm64.tar.gz", "exporter-" + r.version + "-linux-amd64.cdx.json", "llm-rules-" + r.version +
			"-linux-arm64.cdx.json", "_amd64.deb", "_arm64.deb", ".x86_64.rpm", ".aarch64.rpm", r.version + ".tgz",
		"rules.yaml", "alertmanager-route.yaml", "llm-incident.json", "compose.yaml",
	} {
		r.file(t, want)
	}
	var board struct {
		Requires []struct{ ID string } `json:"__requires"`
		UID      string
	}
	content, err := os.ReadFile(filepath.Join(r.out, "llm-incident.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &board); err != nil || len(board.Requires) < 4 || board.UID != "llm-incident" {
		t.Errorf("llm-incident.json: %v, %+v", err, board)
	}
}

// TestReproducible builds the same commit again, in another folder without earlier builds, and compares all bytes.
func TestReproducible(t *testing.T) {
	r := theRelease(t)
	dir := t.TempDir()
	output(t, exec.Command("git", "clone", "--quiet", "--no-checkout", r.root, dir+"/elsewhere"))
	output(t, exec.Command("git", "-C", dir+"/elsewhere", "checkout", "--quiet", r.commit))
	t.Cleanup(func() { _ = exec.Command("chmod", "-R", "u+w", dir).Run() })
	again := exec.Command("make", "-s", "-C", dir+"/elsewhere", "release", "VERSION="+r.tag, "REGISTRY="+r.registry)
	again.Env = append(os.Environ(), "GOCACHE="+dir+"/cache")
	start := time.Now()
	output(t, again)
	t.Logf("built once more in %s", time.Since(start).Round(time.Second))
	output(t, exec.Command("diff", "--recursive", "--brief", r.out, dir+"/elsewhere/dist"))
}

// TestArm64 starts the image for arm64, with its libraries, on any machine.
func TestArm64(t *testing.T) {
	r := theRelease(t)
	qemu := e2e.Program(t, "qemu-aarch64-static", "qemu-user-static")
	at := serveRegistry(t)
	r.publish(t, at)
	root := unpack(t, at+"/"+imagePath+"@sha256:"+r.subjects[r.registry+"/"+imagePath], "arm64")
	if out := output(t, exec.Command(qemu, "-L", root, root+"/exporter", "--version")); !strings.Contains(out, r.tag) ||
		!strings.Contains(out, "linux/arm64") {
		t.Errorf("--version: %s", out)
	}
	listen := e2e.Address(t)
	e2e.Start(t, qemu, "-L", root, root+"/exporter", "--web.listen-address="+listen, "--engine.target="+serveEngine(t), "--discovery=none")
	hasEngine(t, "http://"+listen+"/metrics", http.DefaultClient)
}

// TestRunc starts the image as a container runtime does: as its user, with its entry point, on a file system that cannot be written.
func TestRunc(t *testing.T) {
	r := theRelease(t)
	c := r.start(t, imagePath, true, "--engine.target=http://127.0.0.1:8000", "--discovery=none")
	hasEngine(t, "http://127.0.0.1:9844/metrics", c)
}

// TestTryImage starts the image for trials, and sends the requests of a browser.
func TestTryImage(t *testing.T) {
	r := theRelease(t)
	c := r.start(t, tryPath, false, "--engine.target=http://127.0.0.1:8000", "--discovery=none")
	get := func(path string) string {
		resp, err := c.Get("http://127.0.0.1:9090" + path)
		if err != nil {
			return ""
		}
		defer resp.Body.Close()
		content, _ := io.ReadAll(resp.Body)
		return string(content)
	}
	e2e.Until(t, "Prometheus has the engine",
		func() bool { return strings.Contains(get("/api/v1/query?query=llm_engine_up==1"), `"runtime":"vllm"`) })
	if rules := get("/api/v1/rules"); !strings.Contains(rules, "LLMErrorBudgetFastBurn") || !strings.Contains(rules, "LLMModelDown") {
		t.Errorf("the rules are not loaded: %.500s", rules)
	}
	if board := get("/boards/llm-incident"); !strings.Contains(board, "LLM / Incident") {
		t.Errorf("no board: %.500s", board)
	}
	if promtool, err := exec.LookPath("promtool"); err == nil { // Debian's version, which is older than ours
		t.Log(output(t, exec.Command(promtool, "check", "rules", filepath.Join(r.out, "rules.yaml"))))
	}
}

// start runs an image of the release with runc until the test ends, with an engine in its network, and returns a client
// in the same network.
func (b built) start(t *testing.T, image string, readOnly bool, flags ...string) *http.Client {
	t.Helper()
	runc := e2e.Program(t, "runc", "runc")
	at := serveRegistry(t)
	b.publish(t, at)
	image = at + "/" + image + ":" + b.version
	file, err := pull(t, image, runtime.GOARCH).ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(strings.Split(file.Config.User, ":")[0])
	if err != nil || uid == 0 {
		t.Fatalf("the user is %q", file.Config.User)
	}
	bundle, root := t.TempDir(), unpack(t, image, runtime.GOARCH)
	spec := exec.Command(runc, "spec")
	spec.Dir = bundle
	output(t, spec)
	content, err := os.ReadFile(bundle + "/config.json")
	if err != nil {
		t.Fatal(err)
	}
	var config map[string]any
	if err := json.Unmarshal(content, &config); err != nil {
		t.Fatal(err)
	}
	process := config["process"].(map[string]any)
	process["terminal"], process["user"], process["env"] = false, map[string]any{"uid": uid, "gid": uid}, file.Config.Env
	process["args"] = append(slices.Clone(file.Config.Entrypoint), flags...)
	config["root"] = map[string]any{"path": root, "readonly": readOnly}
	if content, err = json.Marshal(config); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(bundle+"/config.json", content, 0o600); err != nil {
		t.Fatal(err)
	}
	id := "exporter-" + strconv.Itoa(os.Getpid()) + "-" + strings.ToLower(t.Name())
	e2e.Start(t, runc, "run", "--bundle", bundle, id)
	t.Cleanup(func() { _ = exec.Command(runc, "kill", id, "KILL").Run() })
	var state struct {
		Pid    int
		Status string
	}
	e2e.Until(t, "the container runs", func() bool {
		out, err := exec.Command(runc, "state", id).Output()
		return err == nil && json.Unmarshal(out, &state) == nil && state.Status == "running"
	})
	return engineInside(t, strconv.Itoa(state.Pid))
}

// engineInside serves an engine on port 8000 of a process' loopback until the test ends, and returns a client in that
// network.
func engineInside(t *testing.T, pid string) *http.Client {
	t.Helper()
	engine := exec.Command("nsenter", "--target", pid, "--net", "--", os.Args[0], "-test.run=^TestEngineInside$")
	engine.Env = append(os.Environ(), "SERVE_ENGINE=127.0.0.1:8000")
	if err := engine.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = engine.Process.Kill(); _ = engine.Wait() })
	return &http.Client{Transport: inContainer(pid)}
}

// pull returns an image of a registry for an architecture.
func pull(t *testing.T, image, arch string) v1.Image {
	t.Helper()
	ref, err := name.ParseReference(image)
	if err != nil {
		t.Fatal(err)
	}
	pulled, err := remote.Image(ref, remote.WithPlatform(v1.Platform{OS: "linux", Architecture: arch}))
	if err != nil {
		t.Fatal(err)
	}
	return pulled
}

// unpack pulls an image and returns the folder of its files.
func unpack(t *testing.T, image, arch string) string {
	t.Helper()
	dir := t.TempDir()
	files := mutate.Extract(pull(t, image, arch))
	defer files.Close()
	tar := exec.Command("tar", "-x", "-C", dir)
	tar.Stdin = files
	output(t, tar)
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

// enginePage is the metrics page of a vLLM that has answered requests.
func enginePage(t *testing.T) []byte {
	t.Helper()
	page, err := os.ReadFile("../../collectors/engine/testdata/pages/vllm/v0.32.0-healthy.prom")
	if err != nil {
		t.Fatal(err)
	}
	return page
}

// serveEngine serves the page of an engine and returns its address.
func serveEngine(t *testing.T) string {
	t.Helper()
	page := enginePage(t)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(page) }))
	t.Cleanup(server.Close)
	return server.URL
}

// hasEngine waits until an exporter reads an engine, and returns its page.
func hasEngine(t *testing.T, url string, client *http.Client) (page string) {
	t.Helper()
	e2e.Until(t, url+" shows an engine", func() bool {
		resp, err := client.Get(url)
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		content, err := io.ReadAll(resp.Body)
		page = string(content)
		return err == nil && regexp.MustCompile(`(?m)^llm_engine_up\{.*\} 1$`).MatchString(page)
	})
	return page
}

// events are the counters of objectives.
func events(page string) string {
	found := regexp.MustCompile(`(?m)^llm_slo_(bad_)?events_total\{.*$`).FindAllString(page, -1)
	slices.Sort(found)
	return strings.Join(found, "\n")
}

const operator = "github.com/prometheus-operator/prometheus-operator@v0.85.0"

// TestHelm installs the release from a registry into an empty API server, upgrades it to a newer version, and rolls it
// back. Nothing runs pods; TestRunc runs their containers.
func TestHelm(t *testing.T) {
	r := theRelease(t)
	helm := e2e.Program(t, "helm", "helm")
	c := kube.Start(t, "monitoring:llm-llm-node-exporter")
	at := serveRegistry(t)
	r.publish(t, at)
	newer := r.next(t)
	newer.publish(t, at)

	module := exec.Command("go", "mod", "download", "-json", operator)
	module.Dir = t.TempDir() // outside of this module, whose go.sum does not list it
	var m struct{ Dir string }
	if err := json.Unmarshal([]byte(output(t, module)), &m); err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"podmonitors", "prometheusrules"} {
		content, err := os.ReadFile(m.Dir + "/example/prometheus-operator-crd/monitoring.coreos.com_" + kind + ".yaml")
		if err != nil {
			t.Fatal(err)
		}
		var definition map[string]any
		if err := yaml.Unmarshal(content, &definition); err != nil {
			t.Fatal(err)
		}
		c.Create(t, "apiextensions.k8s.io", "customresourcedefinitions", definition)
	}
	ca, err := os.ReadFile(c.CA)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.WriteFile(dir+"/kubeconfig",
		fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: test, contexts: [{name: test, context: {cluster: test, user: test}}],
clusters: [{name: test, cluster: {server: '%s', certificate-authority-data: %s}}], users: [{name: test, user: {token: %s}}]}`, c.URL,
			base64.StdEncoding.EncodeToString(ca), kube.Admin), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(dir+"/values.yaml", []byte("config: {objectives: [{name: ours, signal: ttft, threshold: 1s, target: 99%}]}\n"),
		0o600); err != nil {
		t.Fatal(err)
	}
	chart := []string{"oci://" + at + "/" + chartPath, "--plain-http", "--namespace", "monitoring", "--set", "image.registry=" + at}
	run := func(args ...string) {
		t.Helper()
		start := time.Now()
		cmd := exec.Command(helm, args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+dir+"/kubeconfig", "HELM_CACHE_HOME="+dir+"/cache", "HELM_CONFIG_HOME="+dir+"/config")
		output(t, cmd)
		t.Logf("%5.1f s  helm %s", time.Since(start).Seconds(), strings.Join(args, " "))
	}
	// has checks that a version is installed, with the objectives of the user.
	has := func(of built) {
		t.Helper()
		daemonSet, err := c.Objects("apps", "daemonsets", "monitoring").Get(t.Context(), "llm-llm-node-exporter", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := at + "/" + imagePath + "@sha256:" + of.subjects[r.registry+"/"+imagePath]
		if spec := fmt.Sprint(daemonSet.Object["spec"]); !strings.Contains(spec, "image:"+want+" ") {
			t.Errorf("the image is not %s:\n%s", want, spec)
		}
		if out := output(t, exec.Command("go", "tool", "crane", "manifest", want)); !strings.Contains(out, "manifests") {
			t.Errorf("the registry has no %s: %s", want, out)
		}
		config, err := c.Objects("", "configmaps", "monitoring").Get(t.Context(), "llm-llm-node-exporter", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(fmt.Sprint(config.Object["data"]), "name: ours") {
			t.Errorf("the objectives of the user are gone: %v", config.Object["data"])
		}
		rules, err := c.Objects("monitoring.coreos.com", "prometheusrules", "monitoring").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(rules.Items) == 0 {
			t.Errorf("no rules: %v", err)
		}
		boards, err := c.Objects("", "configmaps", "monitoring").List(t.Context(), metav1.ListOptions{LabelSelector: "grafana_dashboard=1"})
		if err != nil || len(boards.Items) != 7 {
			t.Errorf("%d dashboards, %v", len(boards.Items), err)
		}
	}
	start := time.Now()
	install := append([]string{"install", "llm"}, append(slices.Clone(chart), "--version", r.version, "--create-namespace", "--values",
		dir+"/values.yaml")...)
	e2e.Until(t, "definitions are served", func() bool {
		_, err := c.Objects("monitoring.coreos.com", "podmonitors", "").List(t.Context(), metav1.ListOptions{})
		_, other := c.Objects("monitoring.coreos.com", "prometheusrules", "").List(t.Context(), metav1.ListOptions{})
		return err == nil && other == nil
	})
	run(install...)
	has(r)
	t.Logf("installed from an empty API server in %s", time.Since(start).Round(time.Second))

	upgrade := append([]string{"upgrade", "llm"}, append(slices.Clone(chart), "--version", newer.version)...)
	run(append(upgrade, "--reuse-values")...)
	has(r) // docs/upgrade.md warns of this trap
	run(append(upgrade, "--reset-then-reuse-values")...)
	has(newer)
	run("rollback", "llm", "1", "--namespace", "monitoring")
	has(r)
	run("uninstall", "llm", "--namespace", "monitoring")
	left, err := c.Objects("", "configmaps", "monitoring").List(t.Context(), metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=" + product})
	if err != nil || len(left.Items) > 0 {
		t.Errorf("left behind: %v, %v", left.Items, err)
	}
}

// TestDebian installs the package on a fresh Debian with a running systemd, queries the service, installs a newer
// package and goes back. As root; DEBIAN names the tar that an earlier run of mmdebstrap made.
func TestDebian(t *testing.T) {
	r := theRelease(t)
	nspawn := e2e.Program(t, "systemd-nspawn", "systemd-container")
	newer := r.next(t)
	root := t.TempDir()
	debian := os.Getenv("DEBIAN")
	if debian == "" {
		debian = t.TempDir() + "/debian.tar"
		output(t, exec.Command(e2e.Program(t, "mmdebstrap", "mmdebstrap"), "--variant=minbase",
			"--include=systemd,systemd-sysv,dbus,ca-certificates", "bookworm", debian))
	}
	output(t, exec.Command("tar", "-x", "-C", root, "-f", debian))
	system := e2e.Start(t, nspawn, "--quiet", "--directory="+root, "--private-network", "--register=no", "--keep-unit",
		"--bind-ro="+r.out+":/release", "--bind-ro="+newer.out+":/newer", "--boot")
	var init string
	inside := func(args ...string) *exec.Cmd {
		return exec.Command("nsenter", append([]string{"--target", init, "--all", "--"}, args...)...)
	}
	e2e.Until(t, "systemd runs", func() bool {
		content, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%[1]d/children", system.Process.Pid))
		init = strings.TrimSpace(string(content))
		return init != "" && inside("systemctl", "is-system-running", "--wait").Run() == nil
	})
	client := engineInside(t, init)
	deb := func(folder string, of built) string {
		return "/" + folder + "/" + filepath.Base(of.file(t, runtime.GOARCH+".deb"))
	}
	output(t, inside("apt-get", "install", "--yes", deb("release", r)))
	if out := output(t, inside("systemctl", "is-enabled", product)); out != "enabled" {
		t.Errorf("the service is %s", out)
	}
	output(t, inside("systemd-analyze", "verify", "/usr/lib/systemd/system/"+product+".service"))
	exposure := output(t, inside("systemd-analyze", "security", "--no-pager", product))
	t.Log(exposure[strings.LastIndex(exposure, "\n")+1:])

	const settings = "targets: [{url: 'http://127.0.0.1:8000'}]\nobjectives: [{name: ours, signal: ttft, threshold: 500ms, target: 99%}]\n"
	if err := os.WriteFile(root+"/etc/"+product+"/exporter.yml", []byte(settings), 0o644); err != nil {
		t.Fatal(err)
	}
	output(t, inside(product, "--config.file=/etc/"+product+"/exporter.yml", "--config.check"))
	output(t, inside("systemctl", "reload", product))
	// runs checks that a version answers, with the user's settings and the same counters.
	var before string
	runs := func(of built) {
		t.Helper()
		page := ""
		e2e.Until(t, of.tag+" counts the objective", func() bool {
			page = hasEngine(t, "http://127.0.0.1:9844/metrics", client)
			return strings.Contains(page, `slo="ours"`) && strings.Contains(page, `version="`+of.tag+`"`)
		})
		if before == "" {
			before = events(page)
			t.Log(before)
		}
		if now := events(page); now == "" || now != before {
			t.Errorf("%s counts\n%s\nbefore:\n%s", of.tag, now, before)
		}
		if content, err := os.ReadFile(root + "/etc/" + product + "/exporter.yml"); err != nil || string(content) != settings {
			t.Errorf("the settings are now: %s, %v", content, err)
		}
	}
	runs(r)
	output(t, inside("apt-get", "install", "--yes", deb("newer", newer)))
	runs(newer)
	output(t, inside("apt-get", "install", "--yes", "--allow-downgrades", deb("release", r)))
	runs(r)
	output(t, inside("apt-get", "remove", "--yes", product))
	if inside("systemctl", "is-active", product).Run() == nil {
		t.Error("the service runs without its package")
	}
	output(t, inside("apt-get", "install", "--yes", deb("release", r)))
	runs(r)
	output(t, inside("systemctl", "disable", "--now", product))
	output(t, inside("apt-get", "install", "--yes", deb("newer", newer)))
	if inside("systemctl", "is-active", product).Run() == nil {
		t.Error("an upgrade starts a service that was switched off")
	}
	output(t, inside("apt-get", "purge", "--yes", product))
	if left := output(t, inside("find", "/etc", "/usr", "-name", product+"*")); left != "" {
		t.Errorf("left behind: %s", left)
	}
}

// TestEngineInside serves an engine in the network of another test's container.
func TestEngineInside(t *testing.T) {
	listen := os.Getenv("SERVE_ENGINE")
	if listen == "" {
		t.Skip("a part of other tests")
	}
	page := enginePage(t)
	t.Fatal(http.ListenAndServe(listen, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.Write(page) })))
}

// inContainer sends requests from the network of a process.
type inContainer string

// RoundTrip implements http.RoundTripper.
func (pid inContainer) RoundTrip(request *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(request.Context(), 10*time.Second)
	defer cancel()
	out, err := exec.CommandContext(ctx, "nsenter", "--target", string(pid), "--net", "--", "curl", "--silent", "--fail",
		request.URL.String()).Output()
	if err != nil {
		return nil, errors.Join(err, ctx.Err())
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(bytes.NewReader(out))}, nil
}

// TestRPM lets rpm check the packages, and unpacks one.
func TestRPM(t *testing.T) {
	r := theRelease(t)
	rpm := e2e.Program(t, "rpm", "rpm")
	for arch, machine := range map[string]elf.Machine{"x86_64": elf.EM_X86_64, "aarch64": elf.EM_AARCH64} {
		file := r.file(t, arch+".rpm")
		output(t, exec.Command(rpm, "--checksig", "--nosignature", file))
		if out := output(t, exec.Command(rpm, "--query", "--package", "--queryformat", "%{NAME} %{ARCH} %{OS}", file)); out != product+" "+
			arch+" linux" {
			t.Errorf("%s: %s", file, out)
		}
		root := t.TempDir()
		output(t, exec.Command(rpm, "--root", root, "--install", "--nodeps", "--noscripts", "--ignorearch", file))
		binary, err := elf.Open(root + "/usr/bin/" + product)
		if err != nil {
			t.Fatal(err)
		}
		if binary.Machine != machine {
			t.Errorf("%s has a binary for %s", file, binary.Machine)
		}
		binary.Close()
	}
}
