package helm

import (
	"context"
	"net"
	"slices"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/registry"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/artifacts"
)

const maxTags = 10_000

// fromRegistry fetches a chart from a registry: by digest, tag or version. It uses
// http for registries on this machine, and https for others.
func (s *Store) fromRegistry(ctx context.Context, r Reference) ([]byte, error) {
	reference, err := registry.ParseReference(r.oci())
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%q is not the name of a chart in a registry", "oci://"+r.oci())
	}
	at, err := remote.NewRepository(reference.Registry + "/" + reference.Repository)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "%q is not the name of a chart in a registry", "oci://"+r.oci())
	}
	credential, err := s.forRegistry(reference)
	if err != nil {
		return nil, err
	}
	at.Client = &auth.Client{Client: s.client, Cache: auth.NewCache(), ClientID: "tko-meta-scheduler", Credential: credential}
	at.PlainHTTP = isLoopback(reference.Host())
	at.MaxMetadataBytes = artifacts.MaxManifest
	tag := reference.Reference
	switch {
	case tag != "" && r.Version != "" && tag != tagOf(r.Version):
		return nil, tko.Errorf(tko.ErrInvalid, "spec.version: %q differs from the version in spec.chart: remove one of them", r.Version)
	case tag == "":
		if tag, err = chooseTag(ctx, at, r.Version); err != nil {
			return nil, err
		}
	}
	_, manifest, err := artifacts.Manifest(ctx, at, tag)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(manifest.Layers, func(d ocispec.Descriptor) bool {
		return d.MediaType == artifacts.ChartLayer || d.MediaType == artifacts.LegacyChartLayer
	})
	if i < 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "the registry has no Helm chart there")
	}
	return artifacts.Layer(ctx, at, manifest.Layers[i], maxArchive)
}

// tagOf returns a version as a tag: tags can't contain a plus sign.
func tagOf(version string) string { return strings.ReplaceAll(version, "+", "_") }

// chooseTag returns the tag of a version or range. An exact version needs no list of
// tags.
func chooseTag(ctx context.Context, at *remote.Repository, version string) (string, error) {
	if version != "" {
		if d, err := at.Resolve(ctx, tagOf(version)); err == nil {
			return d.Digest.String(), nil
		}
	}
	var versions []string
	err := at.Tags(ctx, "", func(tags []string) error {
		for _, tag := range tags {
			versions = append(versions, strings.ReplaceAll(tag, "_", "+"))
		}
		if len(versions) > maxTags {
			return tko.Errorf(tko.ErrInvalid, "the registry has more than %d versions of it: name one in spec.version", maxTags)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	i, err := choose(versions, version)
	if err != nil {
		return "", err
	}
	return tagOf(versions[i]), nil
}

func isLoopback(host string) bool {
	name, _, err := net.SplitHostPort(host)
	if err != nil {
		name = host
	}
	ip := net.ParseIP(strings.Trim(name, "[]"))
	return name == "localhost" || ip != nil && ip.IsLoopback()
}
