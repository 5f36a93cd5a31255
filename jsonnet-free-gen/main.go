// Command jsonnet-free-gen renders everything that is generated in this repository: from the same Go
// identifiers that the exporter emits, and without a template language.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/alecthomas/kingpin/v2"
)

// artifact is one generated file.
type artifact struct {
	path   string // below --out, with forward slashes
	render func() ([]byte, error)
}

func main() {
	app := kingpin.New("jsonnet-free-gen", "Renders the generated files of this repository.")
	app.HelpFlag.Short('h')
	out := app.Flag("out", "Folder to write to.").Default(".").String()
	check := app.Flag("check", "Write nothing; fail when a file differs from what would be written.").Bool()
	kingpin.MustParse(app.Parse(os.Args[1:]))
	if err := generate(*out, *check, docs()); err != nil {
		fmt.Fprintln(os.Stderr, "jsonnet-free-gen:", err)
		os.Exit(1)
	}
}

// generate writes the artifacts below out, or with check only compares them with what is there.
func generate(out string, check bool, artifacts []artifact) error {
	var drifted []error
	for _, a := range artifacts {
		content, err := a.render()
		if err != nil {
			return fmt.Errorf("%s: %w", a.path, err)
		}
		path := filepath.Join(out, filepath.FromSlash(a.path))
		old, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		switch {
		case bytes.Equal(old, content) && err == nil:
		case check:
			drifted = append(drifted, fmt.Errorf("%s is not what the code says: run make generate and commit the result", a.path))
		default:
			if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
				return err
			}
			if err := os.WriteFile(path, content, 0o644); err != nil {
				return err
			}
		}
	}
	return errors.Join(drifted...)
}
