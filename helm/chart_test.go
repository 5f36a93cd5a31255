// Package helm tests the chart: rendered by the real helm and read by what reads it in a cluster.
package helm

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

const chart = "llm-node-exporter"

// helm runs helm against a current Kubernetes and returns what it prints on either stream.
func helm(t *testing.T, args ...string) (string, error) {
	t.Helper()
	if _, err := exec.LookPath("helm"); err != nil {
		t.Skip("helm is not installed: go install helm.sh/helm/v3/cmd/helm@v3.22.0")
	}
	out, err := exec.Command("helm", append(args, "--kube-version", "1.34.0")...).CombinedOutput()
	return string(out), err
}

type object = map[string]any

// render returns the objects of the chart by kind; test pods are left out.
func render(t *testing.T, set ...string) map[string]object {
	t.Helper()
	args := []string{"template", "gpu", chart, "--namespace", "monitoring", "--skip-tests"}
	for _, s := range set {
		args = append(args, "--set-json", s)
	}
	out, err := helm(t, args...)
	if err != nil {
		t.Fatal(out)
	}
	objects := map[string]object{}
	d := yaml.NewDecoder(strings.NewReader(out))
	for {
		var o object
		if d.Decode(&o) != nil {
			return objects
		}
		if kind, ok := o["kind"].(string); ok {
			objects[kind] = o
		}
	}
}

// at walks into nested maps and lists; lists are entered at their first element.
func at(t *testing.T, o any, path ...string) any {
	t.Helper()
	for _, p := range path {
		if list, ok := o.([]any); ok && len(list) > 0 {
			o = list[0]
		}
		m, ok := o.(object)
		if !ok {
			t.Fatalf("nothing at %s of %s", p, strings.Join(path, "."))
		}
		o = m[p]
	}
	return o
}

var combinations = map[string][]string{
	"defaults":     nil,
	"host driver":  {`gpu.driver="host"`},
	"no GPU":       {`gpu.driver="none"`, `hostNetwork=true`},
	"ownership":    {`gpu.ownership=true`, `gpu.kmsg=true`},
	"protected":    {`webConfig={"existingSecret":"web","scheme":"https"}`, `secrets=["engine-token"]`, `networkPolicy={"enabled":true}`, `podMonitor.tlsConfig={"insecureSkipVerify":true}`},
	"no operator":  {`podMonitor.enabled=false`, `prometheusRule.enabled=false`, `serviceAccount={"create":false}`},
	"other names":  {`nameOverride="llm"`, `image={"digest":"sha256:` + strings.Repeat("0", 64) + `"}`, `commonLabels={"team":"infra"}`},
	"one engine":   {`config={"targets":[{"url":"http://127.0.0.1:8000"}]}`},
	"some alerts":  {`prometheusRule.alerts={"LLMColdStart":{"enabled":false}}`},
	"no probes":    {`probes=false`, `priorityClassName="system-node-critical"`},
	"only some":    {`networkPolicy={"enabled":true,"from":[{"podSelector":{"matchLabels":{"app":"prometheus"}}}]}`},
	"extra things": {`extraArgs=["--log.level=debug"]`, `extraEnv=[{"name":"TZ","value":"UTC"}]`, `imagePullSecrets=[{"name":"pull"}]`},
}

// Helm accepts every documented combination.
func TestCombinations(t *testing.T) {
	for name, set := range combinations {
		t.Run(name, func(t *testing.T) {
			args := []string{"lint", "--strict", chart}
			for _, s := range set {
				args = append(args, "--set-json", s)
			}
			if out, err := helm(t, args...); err != nil {
				t.Error(out)
			}
			args[0], args[1], args[2] = "template", "gpu", chart
			out, err := helm(t, args...)
			if err != nil {
				t.Fatal(out)
			}
			if strings.Contains(out, "token: ") || strings.Contains(out, "ClusterRole") {
				t.Error("the chart asks for permissions that it does not need")
			}
		})
	}
}

// What cannot work is refused where it is written.
func TestRefused(t *testing.T) {
	for set, want := range map[string]string{
		`gpu.driver="nvidia"`: "gpu/driver",
		`prots=9844`:          "prots",
		`prometheusRule.alerts={"LLMNoSuchAlert":{"enabled":false}}`: "prometheusRule.alerts.LLMNoSuchAlert",
		`config.target=[]`: "config",
	} {
		out, err := helm(t, "template", "gpu", chart, "--set-json", set)
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%s: %v, want an error that names %s:\n%.600s", set, err, want, out)
		}
	}
}

// The rules in the cluster are the generated ones, expression by expression.
func TestRulesAreTheGeneratedOnes(t *testing.T) {
	content, err := os.ReadFile(filepath.Join(chart, "files", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var want object
	if err := yaml.Unmarshal(content, &want); err != nil {
		t.Fatal(err)
	}
	if got := at(t, render(t)["PrometheusRule"], "spec", "groups"); !reflect.DeepEqual(got, want["groups"]) {
		t.Error("the rendered groups differ from files/rules.yaml")
	}
	changed := render(t, `prometheusRule.alerts={"LLMColdStart":{"enabled":false},"LLMKVPressure":{"severity":"notice"}}`)
	severities := map[string]string{}
	for _, g := range at(t, changed["PrometheusRule"], "spec", "groups").([]any) {
		for _, r := range at(t, g, "rules").([]any) {
			if name, ok := at(t, r, "alert").(string); ok {
				severities[name] = at(t, r, "labels", "severity").(string)
			}
		}
	}
	if _, there := severities["LLMColdStart"]; there || severities["LLMKVPressure"] != "notice" || len(severities) < 30 {
		t.Errorf("alerts after the changes: %v", severities)
	}
}

// The exporter itself accepts the rendered configuration and flags.
func TestExporterAcceptsTheConfiguration(t *testing.T) {
	objects := render(t, `config={"targets":[{"url":"http://127.0.0.1:8000","labels":{"model_name":"chat"}}],"objectives":[{"name":"ttft","signal":"ttft","threshold":"500ms","target":"99%"}],"limits":{"series":1000}}`, `gpu.driver="host"`)
	bin := filepath.Join(t.TempDir(), "exporter")
	build := exec.Command("go", "build", "-o", bin, "../cmd/exporter")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	file := filepath.Join(t.TempDir(), "exporter.yml")
	if err := os.WriteFile(file, []byte(at(t, objects["ConfigMap"], "data", "exporter.yml").(string)), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"--config.check"}
	for _, a := range at(t, objects["DaemonSet"], "spec", "template", "spec", "containers", "args").([]any) {
		arg := a.(string)
		if strings.HasPrefix(arg, "--config.file=") {
			arg = "--config.file=" + file
		}
		args = append(args, arg)
	}
	if out, err := exec.Command(bin, args...).CombinedOutput(); err != nil {
		t.Errorf("exporter %v: %v\n%s", args, err, out)
	}
}

// Each privilege comes with the feature that needs it, and not before.
func TestPrivileges(t *testing.T) {
	security := func(set ...string) (pod, container object) {
		spec := at(t, render(t, set...)["DaemonSet"], "spec", "template", "spec").(object)
		return spec, at(t, spec, "containers", "securityContext").(object)
	}
	pod, c := security()
	if pod["hostPID"] != nil || pod["hostNetwork"] != nil || c["privileged"] != nil || c["runAsNonRoot"] != true || at(t, c, "capabilities", "add") != nil {
		t.Errorf("defaults: %v", c)
	}
	if pod["automountServiceAccountToken"] != false || c["readOnlyRootFilesystem"] != true || c["allowPrivilegeEscalation"] != false {
		t.Errorf("defaults: %v", c)
	}
	pod, c = security(`gpu.ownership=true`)
	if pod["hostPID"] != true || !reflect.DeepEqual(at(t, c, "capabilities", "add"), []any{"SYS_PTRACE"}) {
		t.Errorf("ownership: %v", c)
	}
	if _, c = security(`gpu.kmsg=true`); !reflect.DeepEqual(at(t, c, "capabilities", "add"), []any{"SYSLOG"}) {
		t.Errorf("kmsg: %v", c)
	}
	if pod, c = security(`gpu.driver="host"`); c["privileged"] != true || pod["runtimeClassName"] != nil {
		t.Errorf("host driver: %v", c)
	}
}

// Two releases in one namespace share no name.
func TestTwoReleases(t *testing.T) {
	names := func(release string) []byte {
		out, err := helm(t, "template", release, chart, "--skip-tests")
		if err != nil {
			t.Fatal(out)
		}
		return []byte(out)
	}
	if a, b := names("a"), names("b"); bytes.Contains(b, []byte("name: a-llm")) || !bytes.Contains(a, []byte("name: a-llm-node-exporter")) {
		t.Error("objects do not carry the release's name")
	}
}
