package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/goccy/go-yaml"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// These are Helm's media types for a chart in a registry.
const (
	chartConfig  types.MediaType = "application/vnd.cncf.helm.config.v1+json"
	chartContent types.MediaType = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
)

// writeChart packs the chart like helm package, but every build results in the same bytes. The chart installs this
// release's image by the image's digest. writeChart writes the chart as a file and as an OCI layout, and returns the
// digest of the layout.
func (r *release) writeChart(image v1.Hash) (v1.Hash, error) {
	files, meta, err := r.chart(image)
	if err != nil {
		return v1.Hash{}, err
	}
	content, err := packed(files, r.time)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := r.write(fmt.Sprintf("%s-%s.tgz", product, r.version), content); err != nil {
		return v1.Hash{}, err
	}
	artefact, err := newArtefact(meta, static.NewLayer(content, chartContent), r.labels())
	if err != nil {
		return v1.Hash{}, err
	}
	to, err := layout.Write(filepath.Join(r.out, "chart"), empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := to.AppendImage(artefact, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version})); err != nil {
		return v1.Hash{}, err
	}
	return artefact.Digest()
}

// chart returns the files of the packed chart. It also returns the content of Chart.yaml as JSON, because Helm stores
// this JSON beside the chart in a registry.
func (r *release) chart(image v1.Hash) (files []file, meta []byte, err error) {
	root := filepath.Join(r.root, "helm", product)
	set := map[string][][2]string{
		"Chart.yaml": {{"version: 0.1.0", "version: " + r.version}, {"appVersion: 0.1.0", "appVersion: " + r.version}},
		"values.yaml": {
			{`  registry: ""`, "  registry: " + r.registry},
			{`  digest: ""`, "  digest: " + image.String()},
			{"  # -- Build the image with the Dockerfile, and push it to your registry\n", ""},
		},
	}
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		content, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		below, err := filepath.Rel(root, path)
		if err != nil {
			return err
		}
		text := string(content)
		for _, s := range set[below] {
			if strings.Count("\n"+text, "\n"+s[0]) != 1 {
				return fmt.Errorf("%s: %q must occur exactly once", path, s[0])
			}
			text = strings.TrimPrefix(strings.Replace("\n"+text, "\n"+s[0], "\n"+s[1], 1), "\n")
		}
		if below == "Chart.yaml" {
			if meta, err = yaml.YAMLToJSON([]byte(text)); err != nil {
				return err
			}
		}
		files = append(files, file{path: product + "/" + filepath.ToSlash(below), content: []byte(text)})
		return nil
	})
	if err == nil && meta == nil {
		err = errors.New(root + " has no Chart.yaml")
	}
	return files, meta, err
}

// artefact is an object in a registry that is not an image. It has one layer, and a configuration with its own media
// type.
type artefact struct {
	manifest, config []byte
	layer            v1.Layer
}

func newArtefact(config []byte, layer v1.Layer, annotations map[string]string) (v1.Image, error) {
	content, err := partial.Descriptor(layer)
	if err != nil {
		return nil, err
	}
	digest, size, err := v1.SHA256(bytes.NewReader(config))
	if err != nil {
		return nil, err
	}
	manifest, err := json.Marshal(v1.Manifest{
		SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Annotations: annotations,
		Config: v1.Descriptor{MediaType: chartConfig, Digest: digest, Size: size}, Layers: []v1.Descriptor{*content},
	})
	if err != nil {
		return nil, err
	}
	return partial.CompressedToImage(artefact{manifest, config, layer})
}

// MediaType implements partial.CompressedImageCore.
func (artefact) MediaType() (types.MediaType, error) { return types.OCIManifestSchema1, nil }

// RawManifest implements partial.CompressedImageCore.
func (a artefact) RawManifest() ([]byte, error) { return a.manifest, nil }

// RawConfigFile implements partial.CompressedImageCore.
func (a artefact) RawConfigFile() ([]byte, error) { return a.config, nil }

// LayerByDigest implements partial.CompressedImageCore.
func (a artefact) LayerByDigest(v1.Hash) (partial.CompressedLayer, error) { return a.layer, nil }
