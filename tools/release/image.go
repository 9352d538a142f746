package main

import (
	"bytes"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	containers "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// platformFiles are the programs of an architecture.
type platformFiles struct{ arch, bin string }

// tagAnnotation names an image in an index.
const tagAnnotation = "org.opencontainers.image.ref.name"

// image writes an archive of the OCI image layout, with an image for each
// architecture. The image has TKO's programs and the certificates of authorities
// (Mozilla's), and no shell or package manager.
func (r *release) image(to string, platforms []platformFiles) (err error) {
	work, err := os.MkdirTemp("", "tko-image-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	root := filepath.Join(work, "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		return err
	}
	var roots bytes.Buffer
	for c := range bundle.Roots() {
		if c.Constraint == nil {
			if err := pem.Encode(&roots, &pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate}); err != nil {
				return err
			}
		}
	}
	for name, text := range map[string]string{"ca.crt": roots.String(), "passwd": "tko:x:65532:65532:tko:/tmp:/none\n", "group": "tko:x:65532:\n"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	var index containers.ImageIndex = mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		image, err := r.platformImage(work, root, p)
		if err != nil {
			return err
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{Add: image, Descriptor: containers.Descriptor{Platform: &containers.Platform{OS: "linux", Architecture: p.arch}}})
	}
	folder := filepath.Join(work, "layout")
	outer := mutate.AppendManifests(mutate.IndexMediaType(empty.Index, types.OCIImageIndex),
		mutate.IndexAddendum{Add: index, Descriptor: containers.Descriptor{Annotations: map[string]string{tagAnnotation: r.version}}})
	if _, err := layout.Write(folder, outer); err != nil {
		return err
	}
	var all []file
	err = filepath.WalkDir(folder, func(name string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		relative, err := filepath.Rel(folder, name)
		all = append(all, file{path: "/" + relative, source: name, mode: 0o644})
		return err
	})
	if err != nil {
		return err
	}
	return create(to, func(w io.Writer) error { return r.archive(w, all) })
}

func (r *release) platformImage(work, root string, p platformFiles) (containers.Image, error) {
	layer := []file{
		{path: "/tmp", mode: 0o1777},
		{path: "/etc/passwd", source: filepath.Join(root, "passwd"), mode: 0o644},
		{path: "/etc/group", source: filepath.Join(root, "group"), mode: 0o644},
		{path: "/etc/ssl/certs/ca-certificates.crt", source: filepath.Join(root, "ca.crt"), mode: 0o644},
		{path: "/usr/share/doc/tko/LICENSE", source: filepath.Join(r.source, "LICENSE"), mode: 0o644},
		{path: "/usr/share/doc/tko/NOTICE", source: filepath.Join(r.source, "NOTICE"), mode: 0o644},
	}
	for _, name := range slices.Concat(clientPrograms, serverPrograms, agentPrograms) {
		layer = append(layer, file{path: "/bin/" + name, source: filepath.Join(p.bin, name), mode: 0o755})
	}
	path := filepath.Join(work, "layer-"+p.arch+".tar")
	if err := create(path, func(w io.Writer) error { return r.archive(w, layer) }); err != nil {
		return nil, err
	}
	content, err := tarball.LayerFromFile(path, tarball.WithMediaType(types.OCILayer))
	if err != nil {
		return nil, err
	}
	base := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err := mutate.Append(base, mutate.Addendum{Layer: content, History: containers.History{Created: containers.Time{Time: r.time}, CreatedBy: "make release"}})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = "linux", p.arch, containers.Time{Time: r.time}
	config.Config = containers.Config{
		User: "65532:65532", Entrypoint: []string{"/bin/tko-server"}, WorkingDir: "/",
		Env:          []string{"PATH=/bin", "HOME=/tmp", "XDG_CACHE_HOME=/tmp"},
		ExposedPorts: map[string]struct{}{"50050/tcp": {}, "50051/tcp": {}, "50052/tcp": {}, "50059/tcp": {}},
		Labels: map[string]string{
			"org.opencontainers.image.title": "tko-server", "org.opencontainers.image.version": r.version, "org.opencontainers.image.licenses": "Apache-2.0",
			"org.opencontainers.image.source": "https://github.com/tko-orchestrator/tko", "org.opencontainers.image.base.name": "scratch",
		},
	}
	return mutate.ConfigFile(image, config)
}
