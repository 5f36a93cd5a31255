package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// libraries lists the system libraries that the image needs for the exporter and for NVML.
var libraries = []string{"libc.so.6", "libm.so.6", "libdl.so.2", "libpthread.so.0", "librt.so.1"}

// labels returns the labels of the image. They are the same as in the Dockerfile, from which a container engine builds
// the same image.
func (r *release) labels() map[string]string {
	const title = "org.opencontainers.image."
	return map[string]string{
		title + "title":         product,
		title + "description":   "Prometheus exporter for the nodes that run LLM inference",
		title + "licenses":      "Apache-2.0",
		title + "source":        repository,
		title + "documentation": repository + "/blob/main/README.md",
		title + "version":       r.tag,
		title + "revision":      r.commit,
	}
}

// writeImage writes an image of all platforms as an OCI layout into a folder, and returns its digest.
func (r *release) writeImage(folder string, platforms []platform, of func(platform) (v1.Image, error)) (v1.Hash, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		image, err := of(p)
		if err != nil {
			return v1.Hash{}, err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{
			OS:           "linux",
			Architecture: p.arch,
		}}})
	}
	index = mutate.Annotations(index, r.labels()).(v1.ImageIndex)
	to, err := layout.Write(filepath.Join(r.out, folder), empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	if err := to.AppendIndex(index, layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": r.version})); err != nil {
		return v1.Hash{}, err
	}
	return index.Digest()
}

// image builds the image of one platform: the programs, and the libraries that they link against.
func (r *release) image(p platform) (v1.Image, error) {
	trusted, err := certificates()
	if err != nil {
		return nil, err
	}
	var system []file
	for _, l := range libraries {
		system = append(system, file{path: "lib/" + p.triplet + "/" + l, from: filepath.Join(p.libc, l), mode: 0o755})
	}
	system = append(system,
		file{path: p.loader, from: filepath.Join(p.libc, filepath.Base(p.loader)), mode: 0o755},
		file{path: "etc/ssl/certs/ca-certificates.crt", content: trusted},
		file{path: "etc/nsswitch.conf", content: []byte("hosts: files dns\n")},
		file{path: "etc/passwd", content: []byte("nonroot:x:65532:65532::/:/\n")})
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	if image, err = r.layer(image, "glibc, certificates and a user", system); err != nil {
		return nil, err
	}
	for _, name := range programs {
		if image, err = r.layer(image, name, []file{{path: name, from: p.program(name), mode: 0o755}}); err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", p.arch, v1.Time{Time: r.time}
	config.Config = v1.Config{
		User: "65532:65532", Entrypoint: []string{"/exporter"}, ExposedPorts: map[string]struct{}{"9844/tcp": {}}, Labels: r.labels(),
		Env: []string{
			"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "NVIDIA_VISIBLE_DEVICES=all",
			"NVIDIA_DRIVER_CAPABILITIES=utility",
		},
	}
	return mutate.ConfigFile(image, config)
}

// certificates returns the CA certificates of Debian's package. It leaves out certificates that were added to this
// machine by hand.
func certificates() ([]byte, error) {
	files, err := filepath.Glob("/usr/share/ca-certificates/mozilla/*.crt")
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, errors.New("no certificates: apt-get install ca-certificates")
	}
	var all []byte
	for _, f := range files { // in the order of their names
		content, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		all = append(all, content...)
	}
	return all, nil
}

// tryImage builds the image for drill try. The program contains a Prometheus, the rules and the dashboards.
func (r *release) tryImage(p platform) (v1.Image, error) {
	image, err := r.image(p)
	if err != nil {
		return nil, err
	}
	if image, err = r.layer(image, "drill, and a place for its files", []file{
		{path: "tmp/", mode: 0o1777},
		{path: "drill", from: filepath.Join(p.dir, "drill"), mode: 0o755},
	}); err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.Config.Entrypoint = []string{"/drill", "try", "--"}
	config.Config.ExposedPorts["9090/tcp"] = struct{}{}
	return mutate.ConfigFile(image, config)
}

// layer adds files to an image.
func (r *release) layer(image v1.Image, made string, files []file) (v1.Image, error) {
	var b bytes.Buffer
	if err := archive(&b, files, r.time); err != nil {
		return nil, err
	}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Bytes())), nil },
		tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	return mutate.Append(image, mutate.Addendum{Layer: layer, History: v1.History{Created: v1.Time{Time: r.time}, CreatedBy: made}})
}
