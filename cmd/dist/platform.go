package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
)

// platform is a Linux architecture to build for. It also holds the results of the build.
type platform struct {
	arch     string
	compiler string // C compiler, needed because libdl opens NVML
	libc     string // folder of the libraries that the compiler links against
	triplet  string // Debian's name for the architecture, as in paths
	loader   string // path at which a program expects the dynamic loader
	dir      string // folder of the files that compile has written
}

// newPlatform returns the platform of an architecture. An architecture other than this machine's needs Debian's cross
// compiler.
func newPlatform(arch string) (platform, error) {
	p := map[string]platform{
		"amd64": {triplet: "x86_64-linux-gnu", compiler: "x86_64-linux-gnu-gcc", loader: "lib64/ld-linux-x86-64.so.2"},
		"arm64": {triplet: "aarch64-linux-gnu", compiler: "aarch64-linux-gnu-gcc", loader: "lib/ld-linux-aarch64.so.1"},
	}[arch]
	p.arch = arch
	if arch == runtime.GOARCH {
		p.compiler, p.libc = "gcc", "/lib/"+p.triplet
	} else {
		p.libc = "/usr/" + p.triplet + "/lib"
	}
	if _, err := exec.LookPath(p.compiler); err != nil {
		return p, fmt.Errorf("no %[1]s, which builds for %[2]s: apt-get install %[1]s libc6-dev-%[2]s-cross", p.compiler, arch)
	}
	return p, nil
}

// programs lists the commands of users: the exporter, and llm-rules, which renders rules and dashboards and evaluates a
// stored history.
var programs = []string{"exporter", "llm-rules"}

// program returns the path of a built binary.
func (p platform) program(name string) string { return filepath.Join(p.dir, name) }

// compile builds the programs. It also writes an archive of the users' programs, with licence, settings and bill of
// materials.
func (r *release) compile(p *platform, dir string) error {
	p.dir = dir
	build := exec.Command("make", "-s", "-C", r.root, "build", "COMMANDS=./cmd/exporter ./cmd/drill", "BIN="+dir+"/", "VERSION="+r.tag,
		"REVISION="+r.commit)
	build.Env = append(os.Environ(), "MAKEFLAGS=", "CGO_ENABLED=1", "GOOS=linux", "GOARCH="+p.arch, "CC="+p.compiler)
	build.Stdout, build.Stderr = os.Stderr, os.Stderr
	if err := build.Run(); err != nil {
		return fmt.Errorf("make build for %s: %w", p.arch, err)
	}
	base := fmt.Sprintf("%s-%s-linux-%s", product, r.version, p.arch)
	var files []file
	for _, name := range programs {
		parts := filepath.Join(r.out, fmt.Sprintf("%s-%s-%s-linux-%s.cdx.json", product, name, r.version, p.arch))
		if _, err := run(exec.Command("go", "tool", "cyclonedx-gomod", "bin", "-json", "-noserial", "-notimestamp", "-std", "-version",
			r.tag, "-output", parts, p.program(name))); err != nil {
			return err
		}
		files = append(files, file{path: base + "/" + name, from: p.program(name), mode: 0o755}, file{
			path: base + "/" + name + ".cdx.json",
			from: parts,
		})
	}
	for _, f := range []string{"LICENSE", "README.md", "docs/exporter.example.yml", "cmd/dist/package/llm-node-exporter.service"} {
		files = append(files, file{path: base + "/" + filepath.Base(f), from: filepath.Join(r.root, f)})
	}
	return r.writeArchive(base+".tar.gz", files)
}
