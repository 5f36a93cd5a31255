package main

import (
	"bytes"
	"encoding/json"
	"maps"
	"os/exec"
	"runtime"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/structpb"
)

// writeProvenance writes a SLSA statement, with the built files, the commit, the compilers and the builder. The
// statement is not signed here. The builder signs it later.
func (r *release) writeProvenance(pushed map[string]v1.Hash) error {
	names, digests, err := r.digests()
	if err != nil {
		return err
	}
	var subjects []*intoto.ResourceDescriptor
	for _, n := range names {
		subjects = append(subjects, &intoto.ResourceDescriptor{Name: n, Digest: map[string]string{"sha256": digests[n]}})
	}
	for _, p := range slices.Sorted(maps.Keys(pushed)) {
		subjects = append(subjects, &intoto.ResourceDescriptor{
			Name:   r.registry + "/" + p,
			Digest: map[string]string{pushed[p].Algorithm: pushed[p].Hex},
		})
	}
	parameters, err := structpb.NewStruct(map[string]any{"target": "make release", "version": r.tag, "registry": r.registry})
	if err != nil {
		return err
	}
	tools, err := r.tools()
	if err != nil {
		return err
	}
	provenance := &slsa.Provenance{
		BuildDefinition: &slsa.BuildDefinition{
			BuildType:            repository + "/blob/main/cmd/dist",
			ExternalParameters:   parameters,
			ResolvedDependencies: []*intoto.ResourceDescriptor{{Uri: "git+" + repository, Digest: map[string]string{"gitCommit": r.commit}}},
		},
		RunDetails: &slsa.RunDetails{Builder: &slsa.Builder{Id: r.builder, Version: tools}},
	}
	if err := provenance.Validate(); err != nil {
		return err
	}
	text, err := protojson.Marshal(provenance)
	if err != nil {
		return err
	}
	predicate := &structpb.Struct{}
	if err := protojson.Unmarshal(text, predicate); err != nil {
		return err
	}
	statement := &intoto.Statement{
		Type: intoto.StatementTypeUri, Subject: subjects, PredicateType: "https://slsa.dev/provenance/v1",
		Predicate: predicate,
	}
	if err := statement.Validate(); err != nil {
		return err
	}
	if text, err = protojson.Marshal(statement); err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil { // protojson's spaces vary from build to build
		return err
	}
	b.WriteByte('\n')
	return r.write("provenance.json", b.Bytes())
}

// tools lists the versions of the compilers and of the Debian packages in the image. With the same versions, a second
// build results in the same bytes.
func (r *release) tools() (map[string]string, error) {
	tools := map[string]string{"go": runtime.Version()}
	packages := []string{"ca-certificates"}
	for _, arch := range []string{"amd64", "arm64"} {
		p, err := newPlatform(arch)
		if err != nil {
			return nil, err
		}
		if arch == runtime.GOARCH {
			packages = append(packages, "libc6")
		} else {
			packages = append(packages, "libc6-"+arch+"-cross")
		}
		for tool, args := range map[string][]string{
			"gcc for " + arch: {p.compiler, "--version"},
			"ld for " + arch:  {strings.TrimSuffix(p.compiler, "gcc") + "ld", "--version"},
		} {
			out, err := run(exec.Command(args[0], args[1:]...))
			if err != nil {
				return nil, err
			}
			tools[tool], _, _ = strings.Cut(out, "\n")
		}
	}
	for _, p := range packages {
		version, err := run(exec.Command("dpkg-query", "--show", "--showformat=${Version}", p))
		if err != nil {
			return nil, err
		}
		tools[p] = version
	}
	return tools, nil
}
