package catalog

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	ocispec "github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sync/errgroup"
	"oras.land/oras-go/v2/errdef"
	registry "oras.land/oras-go/v2/registry/remote"
	"oras.land/oras-go/v2/registry/remote/auth"
	"oras.land/oras-go/v2/registry/remote/errcode"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/artifacts"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/location"
)

const (
	maxLayer        = 64 << 20 // bytes
	maxTags         = 10_000   // of a repository
	maxRepositories = 10_000
	maxSignatures   = 100
	maxPayload      = 1 << 20 // bytes
)

const (
	signatureTag    = "dev.cosignproject.cosign/signature" // annotation
	unpackedByORAS  = "io.deis.oras.content.unpack"        // annotation
	annotationTitle = ocispec.AnnotationTitle
)

// accessoryTag matches tags of signatures, attestations and lists of contents.
var accessoryTag = regexp.MustCompile(`^sha256-[0-9a-f]{64}(\..*)?$`)

// NewOCI returns a Catalog of the artifacts in a registry: those of Flux and ORAS hold a
// package, and Helm's a chart. Files are stored below dir, "" for the system's temporary
// folder. The error is an ErrInvalid.
func NewOCI(s Settings, dir string, access remote.Access) (*Catalog, error) {
	if s.Helm != nil || s.PGPKeyFile != "" {
		return nil, tko.Errorf(tko.ErrInvalid, "catalog.oci, and helm or pgpKeyFile, are set: use one kind of catalog, and for registries cosignKeyFile")
	}
	u, err := url.Parse(s.OCI.URL)
	if err != nil || u.Scheme != "oci" || u.Host == "" || u.RawQuery != "" || u.Fragment != "" || strings.Contains(u.Path, ":") {
		return nil, tko.Errorf(tko.ErrInvalid, "catalog.oci.url is malformed: use oci://REGISTRY/PATH, without a tag")
	}
	plain := guard.IsLocal(u.Hostname()) && s.OCI.CAFile == ""
	scheme := "https"
	if plain {
		scheme = "http"
	}
	if err := s.OCI.Check(scheme + "://" + u.Host); err != nil || u.User != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "catalog.oci: %w", cmp.Or(err, errors.New("the URL contains credentials: put them into a file, and name that")))
	}
	o := &ociPublisher{settings: *s.OCI, access: access, dir: dir, keyFile: s.CosignKeyFile, plain: plain, repositories: map[string]string{}}
	base := strings.Trim(u.Path, "/")
	for _, name := range s.OCI.Repositories {
		o.repositories[strings.Trim(name, "/")] = u.Host + "/" + path.Join(base, name)
	}
	if len(s.OCI.Repositories) == 0 {
		o.repositories[path.Base(base)] = u.Host + "/" + base
	}
	if len(o.repositories) > maxRepositories {
		return nil, tko.Errorf(tko.ErrInvalid, "catalog.oci.repositories has %d elements: use at most %d", len(o.repositories), maxRepositories)
	}
	for name, reference := range o.repositories {
		r, err := registry.NewRepository(reference)
		if err != nil || r.Reference.Reference != "" || name == "" {
			return nil, tko.Errorf(tko.ErrInvalid, "catalog.oci: %q is not the name of a repository: use lower case, without a tag", reference)
		}
	}
	return newCatalog(s, o)
}

// An ociPublisher is a registry.
type ociPublisher struct {
	settings     OCISettings
	access       remote.Access
	dir          string
	keyFile      string
	plain        bool              // without TLS
	repositories map[string]string // references by the path of the package

	mu     sync.Mutex
	client *auth.Client // of the current look; its tokens are used again
}

// repository returns the repository of a package.
func (o *ociPublisher) repository(of string) (*registry.Repository, error) {
	r, err := registry.NewRepository(o.repositories[of])
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	r.PlainHTTP, r.Client = o.plain, o.client
	return r, nil
}

// connect reads the credentials.
func (o *ociPublisher) connect(ctx context.Context) error {
	transport, err := o.settings.Transport(o.access)
	if err != nil {
		return err
	}
	token, password, err := o.settings.Read(ctx, o.access, o.settings.URL)
	if err != nil {
		return err
	}
	c := &auth.Client{Client: &http.Client{Transport: transport}, Cache: auth.NewCache()}
	if token != "" || password != "" {
		for _, reference := range o.repositories {
			host, _, _ := strings.Cut(reference, "/")
			c.Credential = auth.StaticCredential(host, auth.Credential{Username: o.settings.Username, Password: string(password), AccessToken: string(token)})
			break // all of them are at one host
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	o.client = c
	return nil
}

func (o *ociPublisher) versions(ctx context.Context) (all []version, problems []string, err error) {
	if err := o.connect(ctx); err != nil {
		return nil, nil, err
	}
	var mu sync.Mutex
	group, listing := errgroup.WithContext(ctx)
	group.SetLimit(maxRequests)
	for of := range o.repositories {
		group.Go(func() error {
			tags, err := o.tags(listing, of)
			mu.Lock()
			defer mu.Unlock()
			if err != nil && left(err) {
				problems = append(problems, fmt.Sprintf("%s is left out: %v", of, err))
				return nil
			}
			for _, tag := range tags {
				all = append(all, version{Of: of, Name: tag, Tag: tag})
			}
			if err != nil {
				return fmt.Errorf("%s: %w", of, err)
			}
			return nil
		})
	}
	err = group.Wait()
	slices.Sort(problems)
	return all, problems, err
}

func (o *ociPublisher) tags(ctx context.Context, of string) (all []string, err error) {
	r, err := o.repository(of)
	if err != nil {
		return nil, err
	}
	err = r.Tags(ctx, "", func(tags []string) error {
		for _, tag := range tags {
			if !accessoryTag.MatchString(tag) {
				all = append(all, tag)
			}
		}
		if len(all) > maxTags {
			return tko.Errorf(tko.ErrInvalid, "it has more than %d tags", maxTags)
		}
		return nil
	})
	return all, explain(err)
}

// explain gives errors of a registry the kinds of TKO, without the registry's text.
func explain(err error) error {
	if err == nil {
		return nil
	}
	if response, ok := errors.AsType[*errcode.ErrorResponse](err); ok {
		switch response.StatusCode {
		case http.StatusUnauthorized, http.StatusForbidden:
			return tko.Errorf(tko.ErrDenied, "the registry responded %s: check the credentials and their rights", guard.Status(response.StatusCode))
		case http.StatusNotFound:
			return tko.Errorf(tko.ErrNotFound, "the registry doesn't have it")
		}
		return fmt.Errorf("the registry responded %s", guard.Status(response.StatusCode))
	}
	if errors.Is(err, errdef.ErrNotFound) {
		return tko.Errorf(tko.ErrNotFound, "the registry doesn't have it")
	}
	if failed, ok := errors.AsType[*url.Error](err); ok {
		err = failed.Err
	}
	return guard.RegistryError(err)
}

// resolve asks for the digest, because tags may be moved.
func (o *ociPublisher) resolve(ctx context.Context, v version) (version, error) {
	r, err := o.repository(v.Of)
	if err != nil {
		return v, err
	}
	found, err := r.Resolve(ctx, v.Tag)
	v.Digest = string(found.Digest)
	return v, explain(err)
}

func (*ociPublisher) begin(context.Context, []version) (end func(), fits bool, err error) {
	return func() {}, true, nil
}

func (o *ociPublisher) read(ctx context.Context, v version) (all []published, problems []string, err error) {
	r, err := o.repository(v.Of)
	if err != nil {
		return nil, nil, err
	}
	if o.keyFile != "" {
		if err := o.verify(ctx, r, v); err != nil {
			return nil, nil, err
		}
	}
	manifest, err := manifestAt(ctx, r, v.Digest)
	if err != nil {
		return nil, nil, err
	}
	if manifest.Config.MediaType == "" || len(manifest.Layers) == 0 {
		return nil, nil, tko.Errorf(tko.ErrInvalid, "it is not an artifact with one package: it has no layers")
	}
	for _, layer := range manifest.Layers {
		if layer.MediaType != artifacts.ChartLayer {
			continue
		}
		archive, err := blob(ctx, r, layer, maxChart)
		if err != nil {
			return nil, nil, err
		}
		chart, problem, err := chartOf(archive, v.Of, map[string]any{"chart": "oci://" + o.repositories[v.Of], "version": strings.ReplaceAll(v.Tag, "_", "+")})
		if err != nil {
			return nil, nil, err
		}
		if problem != "" {
			problems = append(problems, problem)
		}
		return []published{{v.Of, chart}}, problems, nil
	}
	w, err := tree.Create(o.dir, tree.Limits{})
	if err != nil {
		return nil, nil, err
	}
	defer func() { _ = w.Discard() }()
	for _, layer := range manifest.Layers {
		if err := unpack(ctx, r, layer, w); err != nil {
			return nil, nil, err
		}
	}
	found, err := location.Read(ctx, w.Tree().Dir(), location.Options{})
	if err != nil {
		return nil, nil, tko.Errorf(tko.ErrInvalid, "%s", shortened(err, w.Tree().Dir()))
	}
	return []published{{v.Of, found}}, nil, nil
}

func manifestAt(ctx context.Context, r *registry.Repository, reference string) (ocispec.Manifest, error) {
	_, m, err := artifacts.Manifest(ctx, r, reference)
	return m, explain(err)
}

func blob(ctx context.Context, r *registry.Repository, layer ocispec.Descriptor, limit int64) ([]byte, error) {
	data, err := artifacts.Layer(ctx, r, layer, limit)
	return data, explain(err)
}

// unpack adds the files of a layer.
func unpack(ctx context.Context, r *registry.Repository, layer ocispec.Descriptor, w *tree.Writer) error {
	data, err := blob(ctx, r, layer, maxLayer)
	if err != nil {
		return err
	}
	title := layer.Annotations[annotationTitle]
	archived := strings.HasSuffix(layer.MediaType, "tar+gzip") || strings.HasSuffix(layer.MediaType, "tar.gzip") || layer.Annotations[unpackedByORAS] == "true"
	if !archived {
		if title == "" {
			return tko.Errorf(tko.ErrInvalid, "its layer of type %.100q has no name: publish it with flux push artifact or oras push", layer.MediaType)
		}
		return w.Add(title, bytes.NewReader(data))
	}
	opened, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "a layer is not a compressed archive: %w", err)
	}
	for files := tar.NewReader(opened); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return tko.Errorf(tko.ErrInvalid, "a layer is not a complete archive: %w", err)
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		if err := w.Add(header.Name, files); err != nil {
			return err
		}
	}
}

// verify checks that a version is signed by the key. Signatures are artifacts of the same
// repository, with a tag made from the digest, as cosign stores them.
func (o *ociPublisher) verify(ctx context.Context, r *registry.Repository, v version) error {
	key, err := cosignKeyIn(o.keyFile)
	if err != nil {
		return err
	}
	signatures, err := manifestAt(ctx, r, strings.Replace(v.Digest, ":", "-", 1)+".sig")
	if errors.Is(err, tko.ErrNotFound) {
		return tko.Errorf(tko.ErrInvalid, "it isn't signed: the registry has no signature of %s", v.Digest)
	}
	if err != nil {
		return err
	}
	for _, layer := range signatures.Layers[:min(len(signatures.Layers), maxSignatures)] {
		payload, err := blob(ctx, r, layer, maxPayload)
		if err != nil {
			return err
		}
		if key.valid(payload, layer.Annotations[signatureTag], v.Digest) {
			return nil
		}
	}
	return tko.Errorf(tko.ErrInvalid, "none of its %d signatures is valid for cosignKeyFile", len(signatures.Layers))
}

// shortened returns an error's text without the temporary folder of the files, also if a
// library names it with its links resolved.
func shortened(err error, dir string) string {
	text := err.Error()
	real, _ := filepath.EvalSymlinks(dir)
	for _, dir := range []string{dir, real} {
		if dir != "" {
			text = strings.ReplaceAll(strings.ReplaceAll(text, dir+"/", ""), dir, "the package")
		}
	}
	return text
}
