package catalog

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/artifacts"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/krm"
)

const (
	maxIndex  = 64 << 20 // bytes of a repository's index
	maxChart  = 20 << 20 // bytes of a chart's archive
	maxSchema = 64 << 10 // bytes of the schema of a chart's values
	maxFiles  = 10_000   // of a chart
	maxOpened = 64 << 20 // bytes of a chart's files
)

// AnnotationSchema holds the JSON schema of the parameters of a HelmChart.
const AnnotationSchema = "tko.nephio.org/values-schema"

// NewHelm returns a Catalog of the charts of a Helm repository. The error is an
// ErrInvalid.
func NewHelm(s Settings, access remote.Access) (*Catalog, error) {
	if s.OCI != nil || s.CosignKeyFile != "" {
		return nil, tko.Errorf(tko.ErrInvalid, "catalog.helm, and oci or cosignKeyFile, are set: use one kind of catalog, and for Helm repositories pgpKeyFile")
	}
	for _, pattern := range s.Helm.Charts {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "catalog.helm.charts: %q is no pattern: use one such as web-*", pattern)
		}
	}
	if err := s.Helm.Check(s.Helm.URL); err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "catalog.helm: %w", err)
	}
	base := strings.TrimSuffix(s.Helm.URL, "/") + "/"
	return newCatalog(s, &helmPublisher{settings: *s.Helm, access: access, base: base, keyFile: s.PGPKeyFile})
}

// A helmPublisher is a Helm repository.
type helmPublisher struct {
	settings HelmSettings
	access   remote.Access
	base     string
	keyFile  string
}

func (h *helmPublisher) getter(ctx context.Context, limit int64) (*remote.Getter, error) {
	g, err := remote.New(ctx, h.base, h.settings.Credentials, h.access, "Bearer", limit)
	if err == nil {
		g.Anywhere() // indexes refer to archives elsewhere
	}
	return g, err
}

func (h *helmPublisher) versions(ctx context.Context) (all []version, problems []string, err error) {
	g, err := h.getter(ctx, maxIndex)
	if err != nil {
		return nil, nil, err
	}
	got, err := g.Get(ctx, h.base+"index.yaml", nil)
	if err != nil {
		return nil, nil, fmt.Errorf("index.yaml: %w", err)
	}
	index, err := artifacts.ParseIndex(got.Body)
	if err != nil {
		return nil, nil, err
	}
	for name, entries := range index {
		if len(h.settings.Charts) > 0 && !matches(h.settings.Charts, name) {
			continue
		}
		for _, e := range entries {
			digest := e.SHA256()
			at, err := e.Archive(h.base)
			if err != nil || e.Version == "" || len(digest) != 64 {
				problems = append(problems, fmt.Sprintf("%s:%s is left out: the index has no version, valid URL or SHA-256 digest of it", name, e.Version))
				continue
			}
			all = append(all, version{Of: name, Name: e.Version, Tag: e.Version, Digest: digest, at: at.String()})
		}
	}
	slices.Sort(problems)
	return all, problems, nil
}

func (*helmPublisher) resolve(_ context.Context, v version) (version, error) { return v, nil }

func (*helmPublisher) begin(context.Context, []version) (end func(), fits bool, err error) {
	return func() {}, true, nil
}

func (h *helmPublisher) read(ctx context.Context, v version) (all []published, problems []string, err error) {
	if !strings.HasPrefix(v.at, "https:") && !strings.HasPrefix(v.at, "http:") {
		return nil, nil, tko.Errorf(tko.ErrInvalid, "the index has a URL of it that is neither https nor http")
	}
	g, err := h.getter(ctx, maxChart)
	if err != nil {
		return nil, nil, err
	}
	got, err := g.Get(ctx, v.at, nil)
	if err != nil {
		return nil, nil, err
	}
	sum := sha256.Sum256(got.Body)
	if hex.EncodeToString(sum[:]) != v.Digest {
		return nil, nil, tko.Errorf(tko.ErrInvalid, "the archive has another digest than the index has: publish it again")
	}
	if h.keyFile != "" {
		keys, err := keysIn(h.keyFile)
		if err != nil {
			return nil, nil, err
		}
		signature, err := g.Get(ctx, v.at+".prov", nil)
		if errors.Is(err, tko.ErrNotFound) {
			return nil, nil, tko.Errorf(tko.ErrInvalid, "it isn't signed: the repository has no .prov file of it")
		}
		if err != nil {
			return nil, nil, err
		}
		if err := checkProvenance(signature.Body, v.Digest, keys); err != nil {
			return nil, nil, err
		}
	}
	chart, problem, err := chartOf(got.Body, v.Of, map[string]any{"chart": v.Of, "repository": strings.TrimSuffix(h.base, "/"), "version": v.Name})
	if err != nil {
		return nil, nil, err
	}
	if problem != "" {
		problems = append(problems, problem)
	}
	return []published{{v.Of, chart}}, problems, nil
}

// chartOf returns the package that installs a chart: a HelmChart with a spec, and the
// schema of its values. problem names what is left out.
func chartOf(archive []byte, name string, spec map[string]any) (_ krm.Package, problem string, err error) {
	schema, err := schemaOf(archive)
	if err != nil {
		return nil, "", err
	}
	metadata := map[string]any{"name": path.Base(name)}
	switch {
	case len(schema) > maxSchema:
		problem = fmt.Sprintf("the schema of its values is left out: it has %d bytes, and at most %d are kept", len(schema), maxSchema)
	case len(schema) > 0:
		metadata["annotations"] = map[string]any{AnnotationSchema: string(schema)}
	}
	data, err := json.Marshal(map[string]any{"apiVersion": "workload.nephio.org/v1alpha1", "kind": "HelmChart", "metadata": metadata, "spec": spec})
	if err != nil {
		return nil, "", err
	}
	p, err := krm.Decode(krm.YAML, data, krm.Limits{}) // YAML includes JSON
	return p, problem, err
}

// schemaOf returns the schema of a chart's values, in short form; nil if it has none.
// The error is an ErrInvalid if the archive isn't a chart.
func schemaOf(archive []byte) ([]byte, error) {
	invalid := func(err error) error { return tko.Errorf(tko.ErrInvalid, "it is not the archive of a chart: %w", err) }
	opened, err := gzip.NewReader(bytes.NewReader(archive))
	if err != nil {
		return nil, invalid(err)
	}
	files := tar.NewReader(io.LimitReader(opened, maxOpened))
	isChart := false
	var schema []byte
	for range maxFiles {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, invalid(err)
		}
		_, name, _ := strings.Cut(path.Clean(header.Name), "/")
		isChart = isChart || name == "Chart.yaml"
		if name != "values.schema.json" {
			continue
		}
		text, err := io.ReadAll(files)
		if err != nil {
			return nil, invalid(err)
		}
		var short bytes.Buffer
		if err := json.Compact(&short, text); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "values.schema.json: %w", err)
		}
		schema = short.Bytes()
	}
	if !isChart {
		return nil, invalid(errors.New("it has no Chart.yaml"))
	}
	return schema, nil
}
