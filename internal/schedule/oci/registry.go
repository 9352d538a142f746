package oci

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"oras.land/oras-go/v2/content"
	"oras.land/oras-go/v2/errdef"
	"oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/artifacts"
	"github.com/tko-orchestrator/tko/internal/guard"
)

// errMoved means that another writer moved the tag since it was read.
var errMoved = errors.New("another writer moved the tag: it is tried again")

// A registryClient reads and writes one repository of a registry.
type registryClient struct{ *remote.Repository }

// connect returns a client for the repository of a site. It makes no request.
func (t *Target) connect(ctx context.Context, s spec, site tko.SiteID) (*registryClient, error) {
	transport, err := t.transport(s.CAFile)
	if err != nil {
		return nil, fmt.Errorf("spec.caFile: %w", err)
	}
	c := &auth.Client{Client: &http.Client{Transport: transport}, Cache: auth.NewCache(), ClientID: "tko-meta-scheduler"}
	login := auth.Credential{Username: s.Credentials.Username}
	for _, one := range []struct {
		field, name string
		to          *string
	}{
		{"passwordFile", s.Credentials.PasswordFile, &login.Password},
		{"tokenFile", s.Credentials.TokenFile, &login.AccessToken},
	} {
		if one.name == "" {
			continue
		}
		text, err := t.secrets.Read(ctx, one.name, s.URL, t.options.Leash.Site(site))
		if err != nil {
			return nil, fmt.Errorf("spec.credentials.%s: %w", one.field, err)
		}
		*one.to = strings.TrimSpace(string(text))
	}
	if login.Password != "" || login.AccessToken != "" {
		c.Credential = auth.StaticCredential(s.Reference.Host(), login)
	}
	return &registryClient{&remote.Repository{
		Client: c, Reference: s.Reference, PlainHTTP: s.Plain, MaxMetadataBytes: artifacts.MaxManifest,
	}}, nil
}

// transport returns a guarded transport that trusts the CAs in a file; those of the machine if
// there is none.
func (t *Target) transport(caFile string) (http.RoundTripper, error) {
	if caFile == "" {
		return t.options.Guard.Transport(), nil
	}
	pem, err := t.secrets.Folder.ReadPublic(caFile)
	if err != nil {
		return nil, err
	}
	return t.options.Guard.WithCA(pem)
}

// A tagged artifact is what the registry has at a tag or digest. The digest is empty if it has
// nothing; the inventory is nil if TKO didn't publish it.
type tagged struct {
	digest    string
	manifest  ocispec.Manifest
	inventory *inventory
}

// has reports whether the artifact is another one, apart from annotations.
func (t tagged) has(a artifact) bool {
	return t.inventory != nil && len(t.manifest.Layers) == 1 && content.Equal(t.manifest.Layers[0], a.layerAt) && content.Equal(t.manifest.Config, a.configAt)
}

// resolve returns the digest at a tag, "" if there is none.
func (c *registryClient) resolve(ctx context.Context, reference string) (string, error) {
	found, err := c.Resolve(ctx, reference)
	if errors.Is(err, errdef.ErrNotFound) {
		return "", nil
	}
	return string(found.Digest), explain(err)
}

// read reads the manifest and the inventory at a tag or digest.
func (c *registryClient) read(ctx context.Context, reference string) (t tagged, err error) {
	found, manifest, err := artifacts.Manifest(ctx, c.Repository, reference)
	if errors.Is(err, errdef.ErrNotFound) {
		return tagged{}, nil
	}
	if errors.Is(err, artifacts.ErrOther) {
		return tagged{digest: string(found.Digest)}, nil
	}
	if err != nil {
		return tagged{}, explain(err)
	}
	t = tagged{digest: string(found.Digest), manifest: manifest}
	if manifest.Annotations[siteAnnotation] == "" || manifest.Config.MediaType != configType || manifest.Config.Size > maxConfig {
		return t, nil
	}
	text, err := artifacts.Layer(ctx, c.Repository, manifest.Config, maxConfig)
	if err != nil {
		return tagged{}, explain(err)
	}
	var config configuration
	if json.Unmarshal(text, &config) == nil {
		t.inventory = config.TKO
	}
	return t, nil
}

// files reads the files of an artifact that TKO published.
func (c *registryClient) files(ctx context.Context, t tagged) (files, error) {
	if len(t.manifest.Layers) != 1 || t.manifest.Layers[0].Size > maxLayer {
		return nil, tko.Errorf(tko.ErrConflict, "the artifact at the tag doesn't have the layer that TKO published: remove the tag from the registry, so that it is published again")
	}
	layer, err := content.FetchAll(ctx, c.Blobs(), t.manifest.Layers[0])
	if err != nil {
		return nil, explain(err)
	}
	all, err := unpack(layer)
	if err != nil {
		return nil, tko.Errorf(tko.ErrConflict, "the layer of the artifact at the tag can't be read (%w): remove the tag from the registry, so that it is published again", err)
	}
	return all, nil
}

// upload pushes the blobs of an artifact that the registry doesn't have.
func (c *registryClient) upload(ctx context.Context, a artifact) error {
	for _, one := range []struct {
		at   ocispec.Descriptor
		data []byte
	}{{a.configAt, a.config}, {a.layerAt, a.layer}} {
		there, err := c.Blobs().Exists(ctx, one.at)
		if err == nil && !there {
			err = c.Blobs().Push(ctx, one.at, bytes.NewReader(one.data))
		}
		if err != nil && !errors.Is(err, errdef.ErrAlreadyExists) {
			return explain(err)
		}
	}
	return nil
}

// publish pushes the manifest of an artifact whose blobs are there, and moves the tag.
func (c *registryClient) publish(ctx context.Context, a artifact, tag string) error {
	return explain(c.Manifests().PushReference(ctx, a.manifestAt, bytes.NewReader(a.manifest), tag))
}

// explain gives errors of a registry a remedy, without the registry's text.
func explain(err error) error {
	if response, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		switch response.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return fmt.Errorf("the registry responded %s: check spec.credentials, and that they may push", guard.Status(response.StatusCode))
		}
		return guard.RegistryError(err)
	}
	if errors.Is(err, auth.ErrBasicCredentialNotFound) {
		return errors.New("the registry asks for credentials: name them in spec.credentials")
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		return failed.Err
	}
	return err
}
