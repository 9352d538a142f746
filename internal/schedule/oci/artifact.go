package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"

	"github.com/tko-orchestrator/tko"
)

const (
	configType     = "application/vnd.cncf.flux.config.v1+json"
	siteAnnotation = "tko.nephio.org/site"
	maxConfig      = 16 << 20  // bytes
	maxLayer       = 64 << 20  // bytes, compressed
	maxFiles       = 256 << 20 // bytes of an archive
)

// An inventory is what TKO owns in an artifact.
type inventory struct {
	Site        tko.SiteID                 `json:"site"`
	Deployments map[tko.DeploymentID]entry `json:"deployments"`
}

// An entry is a deployment in an artifact.
type entry struct {
	Revision int64  `json:"revision"` // that last changed something
	Digest   string `json:"digest"`   // of its files
}

// A configuration is the configuration blob of an artifact: that of an image, with the inventory.
type configuration struct {
	Architecture string         `json:"architecture"`
	OS           string         `json:"os"`
	RootFS       ocispec.RootFS `json:"rootfs"`
	TKO          *inventory     `json:"tko.nephio.org"`
}

// emptyKustomization is the only file of an artifact without objects. Kustomize, and so Flux,
// refuses a folder without any file, and a kustomization.yaml without any field.
const (
	emptyKustomization = "kustomization.yaml"
	emptyContent       = `# This site has no objects.
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
generatorOptions: {disableNameSuffixHash: true}
`
)

// files are contents by their paths in the archive.
type files map[string][]byte

// below returns the paths in a folder, sorted.
func (f files) below(folder string) []string {
	var all []string
	for name := range f {
		if strings.HasPrefix(name, folder+"/") {
			all = append(all, name)
		}
	}
	slices.Sort(all)
	return all
}

// digest returns the digest of the files in a folder.
func (f files) digest(folder string) string {
	h := sha256.New()
	for _, name := range f.below(folder) {
		data := f[name]
		fmt.Fprintf(h, "%s %d\n", strings.TrimPrefix(name, folder), len(data))
		_, _ = h.Write(data) // it never fails
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil))
}

// An artifact is one that is complete, as blobs.
type artifact struct {
	manifest, config, layer       []byte
	manifestAt, configAt, layerAt ocispec.Descriptor
}

// build makes the artifact of files. It is deterministic.
func build(all files, i inventory, mediaType string, created time.Time) (a artifact, err error) {
	if len(all) == 0 {
		all = files{emptyKustomization: []byte(emptyContent)}
	}
	archive, err := pack(all)
	if err != nil {
		return a, err
	}
	if a.layer, err = compress(archive); err != nil {
		return a, err
	}
	if len(a.layer) > maxLayer {
		return a, tko.Errorf(tko.ErrInvalid, "the site has %d bytes of compressed files, and an artifact at most %d: put some of its deployments to another site", len(a.layer), maxLayer)
	}
	plain := content.NewDescriptorFromBytes("", archive).Digest
	c := configuration{RootFS: ocispec.RootFS{Type: "layers"}, TKO: &i}
	c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, plain)
	if a.config, err = json.Marshal(c); err != nil {
		return a, err
	}
	a.configAt, a.layerAt = content.NewDescriptorFromBytes(configType, a.config), content.NewDescriptorFromBytes(mediaType, a.layer)
	annotations := map[string]string{
		siteAnnotation:             string(i.Site),
		ocispec.AnnotationTitle:    "site " + string(i.Site),
		ocispec.AnnotationRevision: plain.String(),
	}
	if !created.IsZero() {
		annotations[ocispec.AnnotationCreated] = created.UTC().Format(time.RFC3339)
	}
	a.manifest, err = json.Marshal(ocispec.Manifest{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: ocispec.MediaTypeImageManifest,
		Config: a.configAt, Layers: []ocispec.Descriptor{a.layerAt}, Annotations: annotations,
	})
	a.manifestAt = content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, a.manifest)
	return a, err
}

// pack makes an archive of files and their folders, without times and owners.
func pack(all files) ([]byte, error) {
	folders := map[string]bool{}
	for name := range all {
		for folder := path.Dir(name); folder != "."; folder = path.Dir(folder) {
			folders[folder+"/"] = true
		}
	}
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(folders)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name, Mode: 0o755}); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, Size: int64(len(all[name]))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(all[name]); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return b.Bytes(), err
}

func compress(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	err := w.Close()
	return b.Bytes(), err
}

// unpack reads the files of a layer, without the one that marks that there is none.
func unpack(layer []byte) (files, error) {
	opened, err := gzip.NewReader(bytes.NewReader(layer))
	if err != nil {
		return nil, err
	}
	all, left := files{}, int64(maxFiles)
	for archive := tar.NewReader(io.LimitReader(opened, maxFiles)); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		left -= header.Size
		if left < 0 {
			return nil, fmt.Errorf("its files have more than %d bytes", maxFiles)
		}
		if all[path.Clean(header.Name)], err = io.ReadAll(archive); err != nil {
			return nil, err
		}
	}
	if string(all[emptyKustomization]) == emptyContent {
		delete(all, emptyKustomization)
	}
	return all, nil
}
