package main

import (
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// TestImage builds the Dockerfile without a container engine or a registry: buildah uses a Debian from mmdebstrap and
// this machine's Go. It takes minutes and needs root, so it runs only if IMAGE is set: IMAGE=1 go test ./cmd/exporter
// -run Image -timeout 30m -v.
func TestImage(t *testing.T) {
	if os.Getenv("IMAGE") == "" {
		t.Skip("minutes, as root: set IMAGE=1")
	}
	for _, program := range []string{"buildah", "mmdebstrap", "runc"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skipf("%s is not installed: apt-get install buildah mmdebstrap runc", program)
		}
	}
	dir := t.TempDir()
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Env = append(os.Environ(), "BUILDAH_ISOLATION=chroot", "STORAGE_DRIVER=vfs")
		var stdout, stderr strings.Builder
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, &stdout, &stderr)
		}
		return strings.TrimSpace(cmp.Or(stdout.String(), stderr.String())) // kingpin prints the version to the latter
	}
	buildah := func(args ...string) string {
		t.Helper()
		return run("buildah", append([]string{"--root", dir + "/storage", "--runroot", dir + "/run"}, args...)...)
	}
	debian := os.Getenv("IMAGE_DEBIAN") // a tar that an earlier run of mmdebstrap made
	if debian == "" {
		debian = dir + "/debian.tar"
		run("mmdebstrap", "--variant=minbase", "--include=gcc,libc6-dev,make,ca-certificates", "bookworm", debian)
	}
	base := buildah("from", "scratch")
	buildah("add", base, debian, "/")
	buildah("copy", base, run("go", "env", "GOROOT"), "/usr/local/go")
	buildah("copy", base, "/etc/ssl/certs/ca-certificates.crt",
		"/etc/ssl/certs/ca-certificates.crt") // the certificates that this machine trusts
	buildah("config", "--env", "PATH=/usr/local/go/bin:/usr/sbin:/usr/bin:/sbin:/bin", "--env", "GOPATH=/go", base)
	buildah("commit", "--rm", base, "golang")
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	arch := "--build-arg=TARGETARCH=" + runtime.GOARCH
	modules := filepath.Join(run("go", "env", "GOMODCACHE"), "cache", "download")
	buildah("build", "--pull-never", "--volume="+modules+":/modules:ro", "--build-arg=GO_IMAGE=localhost/golang", arch,
		"--build-arg=BUILDARCH="+runtime.GOARCH,
		"--build-arg=GOPROXY=file:///modules,"+run("go", "env", "GOPROXY"), "--build-arg=VERSION=1.2.3", "--tag", "exporter", root)

	container := buildah("from", "--pull-never", "localhost/exporter")
	mounted := buildah("mount", container)
	t.Cleanup(func() { buildah("umount", "--all"); buildah("rm", "--all") })
	var files []string
	size := int64(0)
	err = filepath.WalkDir(mounted, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		size += info.Size()
		files = append(files, filepath.Base(path))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(files)
	t.Logf("%d MiB: %s", size>>20, strings.Join(files, " "))
	if slices.Contains(files, "sh") || slices.Contains(files, "drill") || !slices.Contains(files, "ca-certificates.crt") || len(files) > 12 {
		t.Error("there is more in it than the exporter needs, or less")
	}
	if out := buildah("run", "--user", "65532", container, "--", "/exporter", "--version"); !strings.Contains(out, "version 1.2.3") {
		t.Errorf("--version: %s", out)
	}
	binding := exec.Command("go", "test", "../../collectors/gpu", "-run", "LazyBinding")
	binding.Env = append(os.Environ(), "EXPORTER_BINARY="+filepath.Join(mounted, "exporter"))
	if out, err := binding.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
