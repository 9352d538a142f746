package oci

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/opencontainers/image-spec/specs-go"
	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/artifacts"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
)

// The form of cosign's signatures: an artifact at a tag that the signed digest gives, with a layer
// for each signature.
const (
	signatureLayer      = "application/vnd.dev.cosign.simplesigning.v1+json"
	signatureAnnotation = "dev.cosignproject.cosign/signature"
	signedType          = "cosign container image signature"
)

// readKey reads a private key in PEM. Its errors don't contain it.
func readKey(text []byte) (*ecdsa.PrivateKey, error) {
	block, _ := pem.Decode(text)
	if block == nil {
		return nil, tko.Errorf(tko.ErrInvalid, "it holds no private key in PEM")
	}
	if strings.Contains(block.Type, "ENCRYPTED") {
		return nil, tko.Errorf(tko.ErrInvalid, "its private key has a password: write it without one, as PKCS #8")
	}
	if key, err := x509.ParseECPrivateKey(block.Bytes); err == nil {
		return key, nil
	}
	parsed, _ := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, tko.Errorf(tko.ErrInvalid, "it holds no ECDSA key: make one for the curve P-256, as cosign does")
	}
	return key, nil
}

// signingKey reads the key with which a site's artifacts are signed; nil if there is none.
func (t *Target) signingKey(ctx context.Context, s spec, site tko.SiteID) (key *ecdsa.PrivateKey, err error) {
	if s.Credentials.SigningKeyFile == "" {
		return nil, nil
	}
	text, err := t.secrets.Read(ctx, s.Credentials.SigningKeyFile, s.URL, t.options.Leash.Site(site))
	if err == nil {
		key, err = readKey([]byte(text))
	}
	if err != nil {
		return nil, fmt.Errorf("spec.credentials.signingKeyFile: %w", err)
	}
	return key, nil
}

// A payload is what cosign signs.
type payload struct {
	Critical struct {
		Identity struct {
			Reference string `json:"docker-reference"`
		} `json:"identity"`
		Image struct {
			Digest string `json:"docker-manifest-digest"`
		} `json:"image"`
		Type string `json:"type"`
	} `json:"critical"`
	Optional map[string]any `json:"optional"`
}

// signature returns the signature of a digest: the payload, and its layer. It is deterministic.
func signature(key *ecdsa.PrivateKey, repository, digest string) (text []byte, layer ocispec.Descriptor, err error) {
	var p payload
	p.Critical.Identity.Reference, p.Critical.Image.Digest, p.Critical.Type = repository, digest, signedType
	if text, err = json.Marshal(p); err != nil {
		return nil, layer, err
	}
	sum := sha256.Sum256(text)
	signed, err := key.Sign(nil, sum[:], crypto.SHA256) // without a source of random numbers, by RFC 6979
	if err != nil {
		return nil, layer, err
	}
	layer = content.NewDescriptorFromBytes(signatureLayer, text)
	layer.Annotations = map[string]string{signatureAnnotation: base64.StdEncoding.EncodeToString(signed)}
	return text, layer, nil
}

// sign signs an artifact, unless it is signed already or there is no key. Signatures of others stay.
func (d *delivery) sign(ctx context.Context, digest string) error {
	if d.key == nil {
		return nil
	}
	text, layer, err := signature(d.key, d.spec.Reference.Registry+"/"+d.spec.Reference.Repository, digest)
	if err != nil {
		return err
	}
	tag := strings.Replace(digest, ":", "-", 1) + ".sig"
	m, err := d.registry.signatures(ctx, tag)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(m.Layers, func(l ocispec.Descriptor) bool {
		return content.Equal(l, layer) && l.Annotations[signatureAnnotation] == layer.Annotations[signatureAnnotation]
	}) {
		return nil
	}
	if err := fence.Check(ctx); err != nil {
		return err
	}
	config := []byte("{}")
	m.Versioned, m.MediaType = specs.Versioned{SchemaVersion: 2}, ocispec.MediaTypeImageManifest
	m.Config, m.Layers = content.NewDescriptorFromBytes(ocispec.MediaTypeImageConfig, config), append(m.Layers, layer)
	a := artifact{config: config, configAt: m.Config, layer: text, layerAt: layer}
	if a.manifest, err = json.Marshal(m); err != nil {
		return err
	}
	a.manifestAt = content.NewDescriptorFromBytes(ocispec.MediaTypeImageManifest, a.manifest)
	if err := d.registry.upload(ctx, a); err != nil {
		return err
	}
	return d.registry.publish(ctx, a, tag)
}

// signatures reads the manifest of signatures at a tag; an empty one if there is none.
func (c *registryClient) signatures(ctx context.Context, tag string) (m ocispec.Manifest, err error) {
	_, m, err = artifacts.Manifest(ctx, c.Repository, tag)
	switch {
	case errors.Is(err, errdef.ErrNotFound):
		return ocispec.Manifest{}, nil
	case errors.Is(err, artifacts.ErrOther):
		return m, tko.Errorf(tko.ErrConflict, "the tag %q has no signatures as cosign makes them (%w): remove it from the registry", tag, err)
	}
	return m, explain(err)
}
