package main

import (
	"bytes"

	"github.com/goreleaser/nfpm/v2"
	_ "github.com/goreleaser/nfpm/v2/deb" // the package formats
	_ "github.com/goreleaser/nfpm/v2/rpm"
)

// writePackages writes a Debian and an RPM package for each platform. package/nfpm.yaml lists their contents.
func (r *release) writePackages(platforms []platform) error {
	for _, p := range platforms {
		for _, format := range []string{"deb", "rpm"} {
			if err := r.writePackage(p, format); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *release) writePackage(p platform, format string) error {
	values := map[string]string{"ARCH": p.arch, "VERSION": r.version, "EXPORTER": p.program("exporter"), "RULES": p.program("llm-rules")}
	config, err := nfpm.ParseFileWithEnvMapping("package/nfpm.yaml", func(key string) string { return values[key] })
	if err != nil {
		return err
	}
	info, err := config.Get(format)
	if err != nil {
		return err
	}
	info.MTime = r.time
	for _, c := range info.Contents {
		if c.FileInfo != nil {
			c.FileInfo.MTime = r.time
		}
	}
	info = nfpm.WithDefaults(info)
	if err := nfpm.PrepareForPackager(info, format); err != nil {
		return err
	}
	packager, err := nfpm.Get(format)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := packager.Package(info, &b); err != nil {
		return err
	}
	return r.write(packager.ConventionalFileName(info), b.Bytes())
}
