package artifacts

import (
	"context"
	"encoding/json"
	"errors"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/registry/remote"

	"github.com/tko-orchestrator/tko"
)

// MaxManifest is the most bytes of a manifest, which is what registries accept, too.
const MaxManifest = 4 << 20

// Media types of the layers of Helm charts.
const (
	ChartLayer       = "application/vnd.cncf.helm.chart.content.v1.tar+gzip"
	LegacyChartLayer = "application/tar+gzip"
)

// ErrOther means that a registry has something else at a tag or digest than one artifact.
var ErrOther = errors.New("it is not one artifact")

// Manifest reads the manifest at a tag or digest, and returns its descriptor, too. The error is an ErrOther and
// ErrInvalid, with the descriptor, if there is something else, such as an index of images; other errors are those of the
// registry's client.
func Manifest(ctx context.Context, from *remote.Repository, reference string) (at ocispec.Descriptor, m ocispec.Manifest, err error) {
	at, err = from.Resolve(ctx, reference)
	switch {
	case err != nil:
		return at, m, err
	case at.MediaType == ocispec.MediaTypeImageIndex || strings.Contains(at.MediaType, "manifest.list"):
		return at, m, tko.Errorf(tko.ErrInvalid, "%w, but an index of several images: publish one artifact, or name the digest of one", ErrOther)
	case at.Size > MaxManifest:
		return at, m, tko.Errorf(tko.ErrInvalid, "%w that can be read: its manifest has %d bytes, and at most %d are allowed", ErrOther, at.Size, MaxManifest)
	}
	text, err := content.FetchAll(ctx, from, at) // it verifies size and digest
	if err != nil {
		return at, m, err
	}
	if err := json.Unmarshal(text, &m); err != nil {
		return at, ocispec.Manifest{}, tko.Errorf(tko.ErrInvalid, "%w that can be read: its manifest: %w", ErrOther, err)
	}
	return at, m, nil
}

// Layer reads a layer of at most limit bytes, which are whole MiB. The error is an ErrInvalid if it is larger; others are those of the registry's
// client.
func Layer(ctx context.Context, from *remote.Repository, layer ocispec.Descriptor, limit int64) ([]byte, error) {
	if layer.Size > limit {
		return nil, tko.Errorf(tko.ErrInvalid, "it has a layer of %d bytes, which is larger than %d MiB", layer.Size, limit>>20)
	}
	return content.FetchAll(ctx, from.Blobs(), layer) // it verifies size and digest
}
