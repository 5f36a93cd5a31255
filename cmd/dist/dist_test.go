package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

func TestNumbers(t *testing.T) {
	for tag, want := range map[string]string{
		"v0.1.0": "0.1.0", "1.2.3": "1.2.3", "v1.2.3-rc.1": "1.2.3-rc.1", "v1.2.3-4-gabcdef0": "1.2.3-4-gabcdef0",
		"abcdef0": "0.0.0-gabcdef0", "v1": "0.0.0-gv1", "1234567-dirty": "0.0.0-g1234567-dirty",
	} {
		if got := numbers(tag); got != want {
			t.Errorf("numbers(%q) = %q, want %q", tag, got, want)
		}
	}
}

// aRelease returns a release whose binaries are placeholder bytes.
func aRelease(t *testing.T) (*release, []platform) {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, name := range programs {
		if err := os.WriteFile(dir+"/"+name, []byte("not a program"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	var platforms []platform
	for _, arch := range []string{"amd64", "arm64"} {
		libc := t.TempDir()
		for _, l := range append([]string{"ld-linux-x86-64.so.2", "ld-linux-aarch64.so.1"}, libraries...) {
			if err := os.WriteFile(libc+"/"+l, []byte(arch), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		platforms = append(platforms, platform{arch: arch, libc: libc, triplet: arch, loader: "lib64/ld-linux-x86-64.so.2", dir: dir})
	}
	return &release{
		root: root, out: t.TempDir(), tag: "v1.2.3", version: "1.2.3", commit: strings.Repeat("a", 40),
		time: time.Unix(1e9, 0).UTC(), registry: "registry.example/us",
	}, platforms
}

// TestChart checks that the packed chart installs the image of its release, and otherwise equals the chart.
func TestChart(t *testing.T) {
	r, _ := aRelease(t)
	image := v1.Hash{Algorithm: "sha256", Hex: strings.Repeat("b", 64)}
	files, meta, err := r.chart(image)
	if err != nil {
		t.Fatal(err)
	}
	var chart struct{ Version, AppVersion, Name string }
	if err := json.Unmarshal(meta, &chart); err != nil || chart.Version != "1.2.3" || chart.AppVersion != "1.2.3" || chart.Name != product {
		t.Errorf("%v: %s", err, meta)
	}
	changed := 0
	for _, f := range files {
		source, err := os.ReadFile(filepath.Join(r.root, "helm", f.path))
		if err != nil {
			t.Fatal(err)
		}
		if string(source) == string(f.content) {
			continue
		}
		changed++
		if f.path == product+"/values.yaml" {
			var values struct {
				Image struct{ Registry, Repository, Digest string }
			}
			if err := yaml.Unmarshal(f.content, &values); err != nil || values.Image.Registry != r.registry ||
				values.Image.Repository != imagePath || values.Image.Digest != image.String() {
				t.Errorf("%v: %+v", err, values)
			}
		}
	}
	if changed != 2 {
		t.Errorf("%d files are not those of the chart, want Chart.yaml and values.yaml", changed)
	}
}

// TestSameBytes builds the files that need no compiler twice.
func TestSameBytes(t *testing.T) {
	var first map[string]string
	for range 2 {
		r, platforms := aRelease(t)
		image, err := r.writeImage("image", platforms, r.image)
		if err != nil {
			t.Fatal(err)
		}
		chart, err := r.writeChart(image)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.writePackages(platforms); err != nil {
			t.Fatal(err)
		}
		if err := r.writeFiles(); err != nil {
			t.Fatal(err)
		}
		_, digests, err := r.digests()
		if err != nil {
			t.Fatal(err)
		}
		digests["image"], digests["chart"] = image.Hex, chart.Hex
		if first == nil {
			first = digests
		}
		for name, digest := range digests {
			if first[name] != digest {
				t.Errorf("%s differs", name)
			}
		}
	}
}

// TestDockerfile compares the image with that of the Dockerfile.
func TestDockerfile(t *testing.T) {
	r, platforms := aRelease(t)
	image, err := r.image(platforms[0])
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile("../../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	text := string(content)
	entry, err := json.Marshal(file.Config.Entrypoint)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"ENTRYPOINT " + string(entry), "USER " + file.Config.User, "for name in " + strings.Join(libraries, " ") + ";",
		"hosts: files dns", "nonroot:x:65532:65532::/:/",
	}
	for port := range file.Config.ExposedPorts {
		want = append(want, "EXPOSE "+strings.TrimSuffix(port, "/tcp"))
	}
	want = append(want, file.Config.Env[1:]...)
	for key, value := range file.Config.Labels {
		switch value {
		case r.tag:
			value = "$VERSION"
		case r.commit:
			value = "$REVISION"
		}
		want = append(want, key+`="`+value+`"`)
	}
	for _, line := range want {
		if strings.Count(text, line) != 1 {
			t.Errorf("the Dockerfile does not have once: %s", line)
		}
	}
	if n := strings.Count(text, "org.opencontainers.image."); n != len(file.Config.Labels) {
		t.Errorf("the Dockerfile has %d labels, the image %d", n, len(file.Config.Labels))
	}
}

// TestCompose checks that compose.yaml of a release starts the image of the release, with the ports of the image.
func TestCompose(t *testing.T) {
	r, platforms := aRelease(t)
	if err := r.writeFiles(); err != nil {
		t.Fatal(err)
	}
	content, err := os.ReadFile(r.out + "/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var compose struct {
		Services map[string]struct {
			Image          string
			Ports, Volumes []string
		}
		Configs map[string]struct{ Content string }
	}
	if err := yaml.Unmarshal(content, &compose); err != nil {
		t.Fatal(err)
	}
	if want := "${IMAGE:-registry.example/us/" + tryPath + ":1.2.3}"; compose.Services["try"].Image != want {
		t.Errorf("the image is %s, want %s", compose.Services["try"].Image, want)
	}
	if folder := compose.Services["grafana"].Volumes[0]; folder != "${DASHBOARDS:-.}:/dashboards:ro" {
		t.Errorf("the dashboards are at %s", folder)
	}
	if err := os.WriteFile(platforms[0].dir+"/drill", nil, 0o755); err != nil {
		t.Fatal(err)
	}
	image, err := r.tryImage(platforms[0])
	if err != nil {
		t.Fatal(err)
	}
	file, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range compose.Services["try"].Ports {
		if _, ok := file.Config.ExposedPorts[p[strings.LastIndex(p, ":")+1:]+"/tcp"]; !ok {
			t.Errorf("the image does not expose %s", p)
		}
	}
	var sources struct{ Datasources []struct{ URL string } }
	if err := yaml.Unmarshal([]byte(compose.Configs["datasource"].Content), &sources); err != nil || len(sources.Datasources) != 1 ||
		sources.Datasources[0].URL != "http://try:9090" {
		t.Errorf("%v: %+v", err, sources)
	}
}
