// Command dist builds all files of a release into one folder: binaries, packages, images, the chart, rules and
// dashboards, with bills of materials and provenance. make release runs it.
package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kingpin/v2"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/mod/semver"
)

const (
	product    = "llm-node-exporter"
	repository = "https://github.com/llm-node-exporter/llm-node-exporter"
	imagePath  = product
	tryPath    = product + "-try"
	chartPath  = "charts/" + product
)

// release describes the files to build and their sources.
type release struct {
	root, out string // the folders of the repository and of the release
	tag       string // version that the binary reports
	version   string // the same version without the v, for tools that require a number
	commit    string
	time      time.Time // time of the commit, which all files have
	registry  string    // the registry of the image and the chart
	builder   string    // person or system that builds
}

func main() {
	var r release
	var final string
	app := kingpin.New("dist", "Builds a release into a folder. Run it with: make release VERSION=v0.1.0")
	app.Flag("tag", "A tag, or another name for the commit.").Required().StringVar(&r.tag)
	app.Flag("registry", "The registry for the image and the chart, as HOST/OWNER.").Required().StringVar(&r.registry)
	app.Flag("builder", "URI that identifies the builder in the provenance.").Default("urn:" + product + ":local").StringVar(&r.builder)
	app.Flag("out", "Folder to write the release to. A release that is already in the folder is replaced.").Required().StringVar(&final)
	kingpin.MustParse(app.Parse(os.Args[1:]))
	if err := r.replace(final); err != nil {
		fmt.Fprintln(os.Stderr, "dist:", err)
		os.Exit(1)
	}
}

// replace builds a release in another folder, and then replaces the existing release.
func (r *release) replace(final string) error {
	entries, err := os.ReadDir(final)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if _, err := os.Stat(filepath.Join(final, sums)); err != nil && len(entries) > 0 {
		return fmt.Errorf("%s has files but no %s, so it is not a release: remove it yourself", final, sums)
	}
	r.out = final + ".new"
	if err := os.RemoveAll(r.out); err != nil {
		return err
	}
	if err := os.MkdirAll(r.out, 0o755); err != nil {
		return err
	}
	if err := r.build(); err != nil {
		return err
	}
	if err := os.RemoveAll(final); err != nil {
		return err
	}
	return os.Rename(r.out, final)
}

// build writes the release.
func (r *release) build() error {
	if err := r.describe(); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "dist")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	var platforms []platform
	for _, arch := range []string{"amd64", "arm64"} {
		p, err := newPlatform(arch)
		if err != nil {
			return err
		}
		if err := r.compile(&p, filepath.Join(work, arch)); err != nil {
			return err
		}
		platforms = append(platforms, p)
	}
	image, err := r.writeImage("image", platforms, r.image)
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	try, err := r.writeImage("try", platforms, r.tryImage)
	if err != nil {
		return fmt.Errorf("image to try: %w", err)
	}
	chart, err := r.writeChart(image)
	if err != nil {
		return fmt.Errorf("chart: %w", err)
	}
	if err := r.writePackages(platforms); err != nil {
		return fmt.Errorf("packages: %w", err)
	}
	if err := r.writeFiles(); err != nil {
		return err
	}
	if err := r.writeProvenance(map[string]v1.Hash{imagePath: image, tryPath: try, chartPath: chart}); err != nil {
		return fmt.Errorf("provenance: %w", err)
	}
	return r.writeSums()
}

// describe sets the fields of the release. It requires that the program runs in its own folder.
func (r *release) describe() (err error) {
	if r.root, err = filepath.Abs("../.."); err != nil {
		return err
	}
	changes, err := r.git("status", "--porcelain")
	if err != nil {
		return err
	}
	if changes != "" {
		return fmt.Errorf("a release is made of a commit, and these files are not in it:\n%s", changes)
	}
	if r.commit, err = r.git("rev-parse", "HEAD"); err != nil {
		return err
	}
	committed, err := r.git("log", "-1", "--format=%ct")
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseInt(committed, 10, 64)
	if err != nil {
		return err
	}
	r.time = time.Unix(seconds, 0).UTC()
	r.version = numbers(r.tag)
	return nil
}

func (r *release) git(args ...string) (string, error) {
	out, err := run(exec.Command("git", append([]string{"-C", r.root}, args...)...))
	return strings.TrimSpace(out), err
}

// numbers returns the semantic version in a tag, without the v. If the tag is not a version but, for example, a commit,
// it returns a version that is older than all others.
func numbers(tag string) string {
	if v := "v" + strings.TrimPrefix(tag, "v"); semver.IsValid(v) && strings.Count(v, ".") >= 2 {
		return v[1:]
	}
	return "0.0.0-" + strings.Map(func(c rune) rune {
		if strings.ContainsRune("0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ-", c) {
			return c
		}
		return '-'
	}, "g"+tag)
}

// run runs a program, and returns its output. An error contains the program's standard error.
func run(cmd *exec.Cmd) (string, error) {
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, exit.Stderr)
	}
	return string(out), err
}
