package validate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"text/template"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/krm"
)

// DefaultLocation is the schema location of the embedded schemas.
const DefaultLocation = "default"

const (
	standardLayout = "{{ .NormalizedKubernetesVersion }}-standalone{{ .StrictSuffix }}/{{ .ResourceKind }}{{ .KindSuffix }}.json"
	maxSchemaBytes = 16 << 20
	missingFor     = 5 * time.Minute // how long a missing schema is not looked up again
)

// A Fetch returns the content at an http or https URL, or fs.ErrNotExist if
// there is none.
type Fetch func(ctx context.Context, address string) ([]byte, error)

// A location is a place to look up schemas.
type location struct {
	text     string
	embedded bool
	template *template.Template
}

// parseLocations parses locations as Kubeconform does. Without any, it returns
// the embedded schemas.
func parseLocations(texts []string, fetch Fetch) ([]location, error) {
	if len(texts) == 0 {
		return []location{{text: DefaultLocation, embedded: true}}, nil
	}
	var all []location
	for _, text := range texts {
		if text == DefaultLocation {
			all = append(all, location{text: text, embedded: true})
			continue
		}
		if isRemote(text) && fetch == nil {
			return nil, tko.Errorf(tko.ErrInvalid, "schema location %q is remote: this program reads local schemas only", text)
		}
		full := text
		if !strings.HasSuffix(full, "json") {
			full += "/" + standardLayout
		}
		t, err := template.New("").Option("missingkey=error").Parse(full)
		if err == nil {
			err = t.Execute(io.Discard, variablesOf(krm.GVK{Version: "v1", Kind: "Pod"}, ""))
		}
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "schema location %q: %s", text, strings.TrimPrefix(err.Error(), "template: :"))
		}
		all = append(all, location{text: text, template: t})
	}
	return all, nil
}

func isRemote(location string) bool {
	return strings.HasPrefix(location, "http://") || strings.HasPrefix(location, "https://")
}

// variables are the variables of a location's template.
type variables struct {
	NormalizedKubernetesVersion string
	StrictSuffix                string
	ResourceKind                string
	ResourceAPIVersion          string
	Group                       string
	KindSuffix                  string
}

// variablesOf returns the same values as Kubeconform, including that Group is
// the version for resources of the core group.
func variablesOf(gvk krm.GVK, kubernetesVersion string) variables {
	parts := strings.Split(gvk.APIVersion(), "/")
	suffix := "-" + strings.ToLower(strings.Split(parts[0], ".")[0])
	if len(parts) > 1 {
		suffix += "-" + strings.ToLower(parts[1])
	}
	return variables{
		NormalizedKubernetesVersion: normalized(kubernetesVersion),
		StrictSuffix:                "-strict",
		ResourceKind:                strings.ToLower(gvk.Kind),
		ResourceAPIVersion:          parts[len(parts)-1],
		Group:                       parts[0],
		KindSuffix:                  suffix,
	}
}

func normalized(version string) string {
	switch {
	case version == "" || version == "master":
		return "master"
	case strings.HasPrefix(version, "v"):
		return version
	}
	return "v" + version
}

// safeName matches names that are safe in a path, because the author of a
// resource did not choose the location.
var safeName = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)

func isSafe(gvk krm.GVK) bool {
	unsafe := func(s string) bool { return len(s) > 253 || strings.Contains(s, "..") || !safeName.MatchString(s) }
	return !unsafe(gvk.Kind) && !unsafe(gvk.Version) && (gvk.Group == "" || !unsafe(gvk.Group))
}

// A library looks up schemas in locations and caches them, compiled.
type library struct {
	locations         []location
	kubernetesVersion string
	fetch             Fetch
	log               *slog.Logger
	compiled          *lru.Cache[schemaKey, *jsonschema.Schema]
	missing           *lru.Cache[krm.GVK, time.Time]
}

type schemaKey struct {
	gvk      krm.GVK
	complete bool
}

// schema returns the schema of a kind, or nil if there is none. An error means
// that the lookup failed.
func (l *library) schema(ctx context.Context, gvk krm.GVK, complete bool) (*jsonschema.Schema, error) {
	at := schemaKey{gvk, complete}
	if s, ok := l.compiled.Get(at); ok {
		return s, nil
	}
	if since, ok := l.missing.Get(gvk); ok && time.Since(since) < missingFor {
		return nil, nil
	}
	for _, place := range l.locations {
		s, err := l.read(ctx, place, gvk, complete)
		if err != nil {
			return nil, err
		}
		if s != nil {
			l.compiled.Put(at, s, 1)
			return s, nil
		}
	}
	l.missing.Put(gvk, time.Now(), 1)
	return nil, nil
}

func (l *library) read(ctx context.Context, place location, gvk krm.GVK, complete bool) (*jsonschema.Schema, error) {
	if place.embedded {
		k, err := loadKubernetes()
		if err != nil || !k.has(gvk) {
			return nil, err
		}
		standard, err := loadStandard[complete]()
		if err != nil {
			return nil, err
		}
		return standard.schema(k.Kinds[gvk.String()])
	}
	if !isSafe(gvk) {
		return nil, nil
	}
	var b strings.Builder
	if err := place.template.Execute(&b, variablesOf(gvk, l.kubernetesVersion)); err != nil {
		return nil, err
	}
	loader := &loader{ctx: ctx, fetch: l.fetch, remote: isRemote(place.text), complete: complete}
	address := b.String()
	if !loader.remote {
		absolute, err := filepath.Abs(strings.TrimPrefix(address, "file://"))
		if err != nil {
			return nil, err
		}
		address = (&url.URL{Scheme: "file", Path: filepath.ToSlash(absolute)}).String()
	}
	document, err := loader.Load(address)
	var broken *brokenError
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.As(err, &broken):
		l.log.WarnContext(ctx, "schema skipped", "schema", address, "err", err)
		return nil, nil
	case err != nil:
		return nil, tko.Errorf(tko.ErrBusy, "read the schema of %s: %w", gvk, err)
	}
	s, err := compile(address, document, loader)
	if err != nil {
		l.log.WarnContext(ctx, "schema skipped", "schema", address, "err", err)
		return nil, nil // as in Kubeconform, the next location is tried
	}
	return s, nil
}

// A brokenError reports a schema that exists but is not JSON.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return e.err.Error() }
func (e *brokenError) Unwrap() error { return e.err }

// A loader loads documents from one location, for one compilation.
type loader struct {
	ctx      context.Context //nolint:containedctx // the library's interface has none, and a loader is used for one call only
	fetch    Fetch
	remote   bool
	complete bool
}

var errForeign = errors.New("a schema may only refer to others of its own location")

// Load returns a document for complete or partial validation.
func (l *loader) Load(address string) (any, error) {
	data, err := l.bytes(address)
	if err != nil {
		return nil, err
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
	if err != nil {
		return nil, &brokenError{err}
	}
	if document == nil {
		return nil, &brokenError{errors.New("the schema is null")}
	}
	if !l.complete {
		document = relax(document)
	}
	return document, nil
}

func (l *loader) bytes(address string) ([]byte, error) {
	if isRemote(address) != l.remote {
		return nil, errForeign
	}
	if l.remote {
		return l.fetch(l.ctx, address)
	}
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "file" {
		return nil, errForeign
	}
	f, err := os.Open(filepath.FromSlash(u.Path))
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read
	data, err := io.ReadAll(io.LimitReader(f, maxSchemaBytes+1))
	if err == nil && len(data) > maxSchemaBytes {
		err = fmt.Errorf("%s has more than %d bytes", u.Path, maxSchemaBytes)
	}
	return data, err
}
