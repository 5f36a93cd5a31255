package helm

import (
	"encoding/json"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"
)

// Where the schemas come from: the API server's own description and the definitions of the operators and of KEDA, all
// files of Go modules, so that only the module proxy is used.
const (
	kubernetes = "k8s.io/kubernetes@v1.36.3"
	operator   = "github.com/prometheus-operator/prometheus-operator@v0.85.0"
	keda       = "github.com/kedacore/keda/v2@v2.18.1"
	grafana    = "github.com/grafana/grafana-operator/v5@v5.18.0"
	perses     = "github.com/perses/perses-operator@v0.3.2"
	gateways   = "sigs.k8s.io/gateway-api@v1.4.0"
)

// The API servers accept the objects of every combination, without unknown fields.
func TestSchemas(t *testing.T) {
	kubeconform, err := exec.LookPath("kubeconform")
	if err != nil {
		t.Skip("kubeconform is not installed: go install github.com/yannh/kubeconform/cmd/kubeconform@v0.8.0")
	}
	schemas := t.TempDir()
	writeBuiltIns(t, schemas)
	for _, file := range []string{"alertmanagerconfigs", "podmonitors", "prometheusrules", "scrapeconfigs", "servicemonitors"} {
		writeCustom(t, schemas, operator, filepath.Join("example", "prometheus-operator-crd", "monitoring.coreos.com_"+file+".yaml"))
	}
	writeCustom(t, schemas, keda, filepath.Join("config", "crd", "bases", "keda.sh_scaledobjects.yaml"))
	for _, file := range []string{"grafanaalertrulegroups", "grafanadashboards", "grafanafolders"} {
		writeCustom(t, schemas, grafana, filepath.Join("config", "crd", "bases", "grafana.integreatly.org_"+file+".yaml"))
	}
	writeCustom(t, schemas, gateways, filepath.Join("config", "crd", "standard", "gateway.networking.k8s.io_httproutes.yaml"))
	writeCustom(t, schemas, perses, filepath.Join("config", "crd", "bases", "perses.dev_persesdashboards.yaml"))
	manifests := map[string]string{}
	for _, name := range []string{"keda.yaml", "hpa.yaml"} {
		content, err := os.ReadFile(filepath.Join("..", "examples", "autoscaling", name))
		if err != nil {
			t.Fatal(err)
		}
		manifests[name] = string(content)
	}
	maps.Copy(manifests, resources(t, "grafana-operator", "grafana-operator"))
	maps.Copy(manifests, resources(t, "operator", "perses-operator"))
	for name, settings := range combinations {
		args := []string{"template", "gpu", chart}
		for _, s := range settings {
			args = append(args, "--set-json", s)
		}
		content, err := helm(t, args...)
		if err != nil {
			t.Fatal(content)
		}
		manifests[name] = content
	}
	misspelt := map[string]string{
		"hostPath:": "hostDir:", "honorLabels:": "honourLabels:", "targetMatch:": "targets:",
		"readOnlyRootFilesystem:": "readOnly:", "scaleTargetRef:": "scaleTarget:",
		"noDataState:": "noData:", "folderRef:": "folder-ref:", `"instanceSelector":`: `"instances":`, `"layouts":`: `"layout":`,
		`"renderVariables":`: `"variables":`,
	}
	folder, wrong := t.TempDir(), map[string]string{} // the replacement that breaks each file
	write := func(name, content string) string {
		file := filepath.Join(folder, strconv.Itoa(len(wrong))+" "+name+".yaml")
		wrong[file] = ""
		if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
		return file
	}
	for name, content := range manifests {
		write(name, content)
		for right, instead := range misspelt {
			if right == "honorLabels:" && strings.Contains(content, "VMPodScrape") { // which has no schema here
				continue
			}
			if broken := strings.ReplaceAll(content, right, instead); broken != content {
				wrong[write(name, broken)] = instead
			}
		}
	}
	refused := refusals(t, kubeconform, schemas, folder)
	for file, instead := range wrong {
		switch said := refused[file]; {
		case instead == "" && said != "":
			t.Errorf("%s: %s", filepath.Base(file), said)
		case instead != "" && said == "":
			t.Errorf("%s: the schemas accept %s", filepath.Base(file), instead)
		}
	}
}

// resources returns the custom resources that the generator writes, by file.
func resources(t *testing.T, format, schema string) map[string]string {
	t.Helper()
	dir := t.TempDir()
	if out, err := exec.Command("go", "run", "../jsonnet-free-gen", "--format", format, "--dashboards", schema, "--out", dir).
		CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	files := map[string]string{}
	for _, pattern := range []string{"dashboards/*", "grafanaalertrulegroups.yaml", "prometheusrule.yaml"} {
		found, err := filepath.Glob(filepath.Join(dir, pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range found {
			content, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			files[schema+" "+filepath.Base(path)] = string(content)
		}
	}
	return files
}

// refusals runs kubeconform over a folder. It returns the reason for each refused file.
func refusals(t *testing.T, kubeconform, schemas, folder string) map[string]string {
	t.Helper()
	// Those of VictoriaMetrics' operator and of OpenShift are in no module that the proxy has.
	cmd := exec.Command(kubeconform, "-strict", "-skip", "VMPodScrape,VMRule,SecurityContextConstraints", "-schema-location",
		schemas+"/{{.ResourceKind}}.json", "-output", "json", folder)
	out, _ := cmd.Output() // the program fails if a file is refused
	var answer struct {
		Resources []struct{ Filename, Status, Msg string }
	}
	if err := json.Unmarshal(out, &answer); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	refused := map[string]string{}
	for _, r := range answer.Resources {
		if r.Status == "statusInvalid" || r.Status == "statusError" {
			refused[r.Filename] = r.Msg
		}
	}
	return refused
}

// moduleFile downloads a module, and reads a file of it in the module cache.
func moduleFile(t *testing.T, module, path string) []byte {
	t.Helper()
	cmd := exec.Command("go", "mod", "download", "-json", module)
	cmd.Dir = t.TempDir() // outside of this module, whose go.sum does not list it
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", module, err, out)
	}
	var m struct{ Dir string }
	if err := json.Unmarshal(out, &m); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(filepath.Join(m.Dir, path))
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// writeBuiltIns writes one schema for each built-in kind that the chart uses.
func writeBuiltIns(t *testing.T, dir string) {
	var api struct{ Definitions object }
	if err := json.Unmarshal(moduleFile(t, kubernetes, "api/openapi-spec/swagger.json"), &api); err != nil {
		t.Fatal(err)
	}
	for _, d := range api.Definitions {
		closeObjects(d)
	}
	api.Definitions["io.k8s.apimachinery.pkg.util.intstr.IntOrString"] = object{"type": []string{"string", "integer"}}
	for kind, name := range map[string]string{
		"serviceaccount": "io.k8s.api.core.v1.ServiceAccount", "configmap": "io.k8s.api.core.v1.ConfigMap", "pod": "io.k8s.api.core.v1.Pod",
		"daemonset": "io.k8s.api.apps.v1.DaemonSet", "deployment": "io.k8s.api.apps.v1.Deployment",
		"networkpolicy": "io.k8s.api.networking.v1.NetworkPolicy", "ingress": "io.k8s.api.networking.v1.Ingress",
		"horizontalpodautoscaler": "io.k8s.api.autoscaling.v2.HorizontalPodAutoscaler",
		"service":                 "io.k8s.api.core.v1.Service", "role": "io.k8s.api.rbac.v1.Role",
		"rolebinding": "io.k8s.api.rbac.v1.RoleBinding",
		"clusterrole": "io.k8s.api.rbac.v1.ClusterRole", "clusterrolebinding": "io.k8s.api.rbac.v1.ClusterRoleBinding",
	} {
		writeSchema(t, dir, kind, object{"$ref": "#/definitions/" + name, "definitions": api.Definitions})
	}
}

// writeCustom writes the schema of the newest version of a CustomResourceDefinition.
func writeCustom(t *testing.T, dir, module, path string) {
	var crd object
	if err := yaml.Unmarshal(moduleFile(t, module, path), &crd); err != nil {
		t.Fatal(err)
	}
	versions := at(t, crd, "spec", "versions").([]any)
	schema := at(t, versions[len(versions)-1], "schema", "openAPIV3Schema").(object)
	closeObjects(schema)
	writeSchema(t, dir, strings.ToLower(at(t, crd, "spec", "names", "kind").(string)), schema)
}

func writeSchema(t *testing.T, dir, kind string, schema object) {
	t.Helper()
	content, err := json.Marshal(schema)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, kind+".json"), content, 0o600); err != nil {
		t.Fatal(err)
	}
}

// closeObjects refuses fields that a schema does not list.
func closeObjects(schema any) {
	switch s := schema.(type) {
	case object:
		if _, named := s["properties"].(object); named && s["additionalProperties"] == nil && s["x-kubernetes-preserve-unknown-fields"] == nil {
			s["additionalProperties"] = false
		}
		for _, v := range s {
			closeObjects(v)
		}
	case []any:
		for _, v := range s {
			closeObjects(v)
		}
	}
}
