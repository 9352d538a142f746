package validate

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A PluginRunner runs plugins of type validate. Its error says what a plugin
// has against the resource, or why it could not be run.
type PluginRunner interface {
	Validate(ctx context.Context, p tko.Plugin, target krm.Identity, pkg krm.Package, complete bool) error
}

// Options say how to validate. The zero value is Kubernetes' embedded schemas
// and no plugins.
type Options struct {
	// SchemaLocations is where schemas are looked for, one after the other, in
	// Kubeconform's format: "default" (the embedded schemas), a folder, a
	// template of a path, or of an http or https URL. None is "default".
	SchemaLocations []string
	// KubernetesVersion is what the locations' templates put in place of
	// NormalizedKubernetesVersion: "1.37.1", or "master" if empty. The embedded
	// schemas have one version only.
	KubernetesVersion string
	Fetch             Fetch        // reads remote locations; nil refuses them
	Plugins           PluginRunner // nil finds fault with everything that a plugin should see
	PluginsAtOnce     int          // that run for one package; 4 if zero
	CacheSize         int          // verdicts to remember; 4096 if zero, none if negative
	Log               *slog.Logger // where to report; nowhere if nil
}

// A Validator says what is wrong with packages. It is safe for concurrent use.
type Validator struct {
	library  library
	defined  *lru[definedKey, *jsonschema.Schema]
	verdicts *lru[verdictKey, error]
	plugins  PluginRunner
	atOnce   int
	log      *slog.Logger
}

type verdictKey struct {
	key      string
	complete bool
}

// Sizes of caches of compiled schemas.
const (
	compiledSchemas = 2048
	missingSchemas  = 8192
	definedSchemas  = 1024
)

// New makes a validator. What is wrong with the options is an ErrInvalid.
func New(o Options) (*Validator, error) {
	locations, err := parseLocations(o.SchemaLocations, o.Fetch)
	if err != nil {
		return nil, err
	}
	if err := checkVersion(o.KubernetesVersion, locations); err != nil {
		return nil, err
	}
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	v := &Validator{
		library: library{
			locations:         locations,
			kubernetesVersion: o.KubernetesVersion,
			fetch:             o.Fetch,
			log:               log,
			compiled:          newLRU[shelf, *jsonschema.Schema](compiledSchemas),
			missing:           newLRU[krm.GVK, time.Time](missingSchemas),
		},
		defined: newLRU[definedKey, *jsonschema.Schema](definedSchemas),
		plugins: o.Plugins,
		atOnce:  o.PluginsAtOnce,
		log:     log,
	}
	if v.atOnce <= 0 {
		v.atOnce = 4
	}
	switch {
	case o.CacheSize == 0:
		v.verdicts = newLRU[verdictKey, error](4096)
	case o.CacheSize > 0:
		v.verdicts = newLRU[verdictKey, error](o.CacheSize)
	}
	return v, nil
}

// checkVersion refuses a version that no location can answer for.
func checkVersion(version string, locations []location) error {
	if version == "" || slices.ContainsFunc(locations, func(l location) bool { return !l.embedded }) {
		return nil
	}
	k, err := loadKubernetes()
	if err != nil {
		return err
	}
	minor := func(v string) string {
		return strings.Join(strings.Split(normalized(v), ".")[:min(2, strings.Count(v, ".")+1)], ".")
	}
	if minor(version) == minor(k.Version) {
		return nil
	}
	return tko.Errorf(tko.ErrInvalid, "the schemas of Kubernetes %s are not embedded, only those of %s: name a schema location that has them", version, k.Version)
}

// Validate answers nil if the package is valid. A *tko.InvalidPackageError
// holds everything that is wrong, in the order of the resources and of the
// paths in them; it may be shared, so don't change it. Any other error is a
// failure to find out. Plugins run if nothing else is wrong. A verdict with a
// Key is remembered, unless a plugin had a part in refusing.
func (v *Validator) Validate(ctx context.Context, r tko.Validation) error {
	key := verdictKey{r.Key, r.Complete}
	if r.Key != "" && v.verdicts != nil {
		if verdict, ok := v.verdicts.get(key); ok {
			return verdict
		}
	}
	verdict, err := v.inspect(ctx, r)
	if err != nil {
		return err
	}
	if verdict == nil {
		refused, err := v.runPlugins(ctx, r)
		if err != nil {
			return err
		}
		if refused != nil {
			return refused
		}
	}
	if r.Key != "" && v.verdicts != nil {
		v.verdicts.put(key, verdict)
	}
	return verdict
}

// inspect does all that needs no plugin.
func (v *Validator) inspect(ctx context.Context, r tko.Validation) (verdict, err error) {
	f := &findings{}
	f.next(krm.Identity{})
	known := newDefinitions(r)
	names := make(map[krm.Identity]bool, len(r.Package))
	for _, resource := range r.Package {
		names[resource.Identity()] = true
	}
	identity := identityFindings(r.Package)
	ownKinds, err := loadOwn[r.Complete]()
	if err != nil {
		return nil, err
	}
	for i, resource := range r.Package {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		id := resource.Identity()
		f.next(id)
		for _, e := range identity[i] {
			f.add(e.Path, "%s", e.Reason)
		}
		l := look{findings: f, resource: resource, complete: r.Complete, pkg: r.Package, names: names}
		l.annotations()
		l.own()
		if id.GVK == crdGVK {
			v.checkDefinition(f, resource, r.Complete)
		}
		schema := ownKinds.schema(id.GVK)
		if schema == nil {
			if schema, err = v.schema(ctx, id.GVK, known, r.Complete); err != nil {
				return nil, err
			}
		}
		if schema != nil {
			f.check(schema, resource)
		}
	}
	return f.err(), nil
}

// identityFindings are what a package says is wrong with its resources'
// identities, by the index of the resource.
func identityFindings(p krm.Package) map[int][]*krm.Error {
	found := map[int][]*krm.Error{}
	file := func(err error) {
		var several krm.Errors
		var one *krm.Error
		switch {
		case errors.As(err, &several):
		case errors.As(err, &one):
			several = krm.Errors{one}
		}
		for _, e := range several {
			i := max(e.Index-1, 0)
			found[i] = append(found[i], e)
		}
	}
	file(p.Check())
	_, err := p.Deployment()
	file(err)
	return found
}

// schema of a kind that is not TKO's own: Kubernetes' kinds are what
// Kubernetes says; the others what the package's CRDs say, or else the CRDs
// known beside it, or else a schema location.
func (v *Validator) schema(ctx context.Context, gvk krm.GVK, known definitions, complete bool) (*jsonschema.Schema, error) {
	k, err := loadKubernetes()
	if err != nil {
		return nil, err
	}
	if !k.has(gvk) {
		if schema := v.definedSchema(gvk, known, complete); schema != nil {
			return schema, nil
		}
	}
	return v.library.schema(ctx, gvk, complete)
}

// definitions are the CRDs at hand by group and kind, in order of precedence.
type definitions map[krm.GVK][]definition // the version is empty

func newDefinitions(r tko.Validation) definitions {
	d := definitions{}
	for _, list := range [][]krm.Resource{r.Package, r.CRDs} {
		for _, resource := range list {
			if resource.GVK() == crdGVK {
				found := define(resource)
				at := krm.GVK{Group: found.group, Kind: found.kind}
				d[at] = append(d[at], found)
			}
		}
	}
	return d
}

type definedKey struct {
	digest   [sha256.Size]byte
	version  string
	complete bool
}

// definedSchema is the first schema that CRDs have for a kind, or nil. CRDs
// whose schema is broken have none: the package that brings one is told so.
func (v *Validator) definedSchema(gvk krm.GVK, known definitions, complete bool) *jsonschema.Schema {
	for _, d := range known[krm.GVK{Group: gvk.Group, Kind: gvk.Kind}] {
		for _, version := range d.versions {
			if version.name != gvk.Version || version.schema == nil {
				continue
			}
			if s, issues, err := v.compileVersion(d, version, complete); s != nil && len(issues) == 0 && err == nil {
				return s
			}
		}
	}
	return nil
}

func (v *Validator) compileVersion(d definition, version definedVersion, complete bool) (*jsonschema.Schema, []issue, error) {
	digest, _, err := krm.DigestOf(krm.Package{d.resource})
	if err != nil {
		return nil, nil, err
	}
	key := definedKey{digest, version.name, complete}
	if s, ok := v.defined.get(key); ok {
		return s, nil, nil
	}
	k, err := loadKubernetes()
	if err != nil {
		return nil, nil, err
	}
	s, issues, err := compileStructural(version.name, version.schema, version.path, complete, k)
	if s != nil && err == nil && len(issues) == 0 {
		v.defined.put(key, s)
	}
	return s, issues, err
}

// checkDefinition finds what makes a CRD's schemas useless.
func (v *Validator) checkDefinition(f *findings, r krm.Resource, complete bool) {
	d := define(r)
	for _, version := range d.versions {
		if version.schema == nil {
			if complete {
				f.add(pathOf(map[string]any(r), version.path), "is required: every served version needs a schema")
			}
			continue
		}
		_, issues, err := v.compileVersion(d, version, complete)
		for _, i := range issues {
			f.add(pathOf(map[string]any(r), i.path), "%s", i.reason)
		}
		if err != nil && len(issues) == 0 {
			f.add(pathOf(map[string]any(r), version.path), "is no usable schema: %s", err)
		}
	}
}

// compileStructural compiles a schema as CRDs have it. There is a schema only
// if there are no issues.
func compileStructural(name string, schema any, path []string, complete bool, k *kubernetes) (*jsonschema.Schema, []issue, error) {
	c := structural{complete: complete}
	document := c.document(schema, path, k.document(objectMeta))
	if document == nil {
		return nil, []issue{{path, "must be a schema"}}, nil
	}
	if len(c.issues) > 0 {
		return nil, c.issues, nil
	}
	var final any = document
	if !complete {
		final = lift(document)
	}
	s, err := compile("tko:///"+safeURL.ReplaceAllString(name, "-")+".json", final, noLoader{}, crdFormats...)
	return s, nil, err
}

// runPlugins answers what plugins find wrong; an error is the context's.
func (v *Validator) runPlugins(ctx context.Context, r tko.Validation) (refused, err error) {
	type run struct {
		plugin tko.Plugin
		target krm.Identity
		err    error
	}
	var runs []*run
	for _, resource := range r.Package {
		for _, p := range r.Plugins {
			if p.Type == tko.PluginValidate && p.Triggered(resource.GVK()) {
				runs = append(runs, &run{plugin: p, target: resource.Identity()})
			}
		}
	}
	var group errgroup.Group
	group.SetLimit(v.atOnce)
	for _, one := range runs {
		group.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			one.err = errNoRunner
			if v.plugins != nil {
				one.err = v.plugins.Validate(ctx, one.plugin, one.target, r.Package, r.Complete)
			}
			return nil
		})
	}
	if err := errors.Join(group.Wait(), ctx.Err()); err != nil {
		return nil, err
	}
	var f findings
	for _, one := range runs {
		if one.err != nil {
			f.id = one.target
			f.addAgain("", pluginReason(one.plugin, one.target, one.err))
		}
	}
	f.begin = len(f.list)
	return f.err(), nil
}

var safeURL = regexp.MustCompile(`[^A-Za-z0-9.]+`)

var errNoRunner = errors.New("cannot run here: this program runs no plugins")

// pluginReason names the plugin once, and leaves the resource to the finding.
func pluginReason(p tko.Plugin, target krm.Identity, err error) string {
	name := fmt.Sprintf("plugin %q", p.ID())
	text := strings.Replace(err.Error(), " for "+target.String(), "", 1)
	if strings.HasPrefix(text, name) {
		return text
	}
	return name + ": " + text
}
