package validate

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/krm"
)

// A PluginRunner runs plugins of type validate. Its error is the plugin's
// finding about the resource, or the reason why the plugin could not be run.
type PluginRunner interface {
	Validate(ctx context.Context, p tko.Plugin, target krm.Identity, pkg krm.Package, complete bool) error
	// Program returns a text that identifies the plugin's current code. It
	// changes when the plugin's program changes.
	Program(p tko.Plugin) string
}

// Options are the settings of a Validator. The zero value uses Kubernetes'
// embedded schemas and no plugins.
type Options struct {
	// SchemaLocations are searched in order. Each has Kubeconform's format:
	// "default" (the embedded schemas), a directory, or a template of a path or
	// of an http or https URL. If empty: "default".
	SchemaLocations []string
	// KubernetesVersion replaces NormalizedKubernetesVersion in the locations'
	// templates: "1.37.1", or "master". If empty: the version of the embedded
	// schemas, which have no other version.
	KubernetesVersion string
	Fetch             Fetch        // reads remote locations; nil refuses them
	Plugins           PluginRunner // runs plugins; if nil, every resource that triggers one is invalid
	PluginsAtOnce     int          // plugins that run concurrently for one package; 4 if zero
	CacheSize         int          // results in the cache; 4096 if zero, none if negative
	RulesCost         int64        // cost limit of CRDs' rules for one package, in the API server's units; 100,000,000 if zero
	Secrets           string       // check for secrets in packages: SecretsExact if empty
	Log               *slog.Logger // discards if nil
}

// A Validator validates packages. It is safe for concurrent use.
type Validator struct {
	library  library
	defined  *lru.Cache[definedKey, compiledVersion]
	decoded  *lru.Cache[[sha256.Size]byte, *definition]
	accepted *lru.Cache[krm.GVK, [sha256.Size]byte] // the registered CRD that accepted the last resource of the kind
	known    registered
	results  *lru.Cache[resultKey, error]
	plugins  PluginRunner
	atOnce   int
	budget   int64
	secrets  string
	log      *slog.Logger
}

type resultKey struct {
	key      string
	complete bool
	programs string // identifies the programs of the plugins that ran
}

// Sizes of caches of compiled schemas.
const (
	compiledSchemas = 2048
	missingSchemas  = 8192
	definedSchemas  = 512
	decodedCRDs     = 256
	acceptedKinds   = 4096
)

// New returns a validator, or an ErrInvalid if the options are wrong.
func New(o Options) (*Validator, error) {
	locations, err := parseLocations(o.SchemaLocations, o.Fetch)
	if err != nil {
		return nil, err
	}
	version, err := kubernetesVersion(o.KubernetesVersion, locations)
	if err != nil {
		return nil, err
	}
	log := o.Log
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	v := &Validator{
		library: library{
			locations:         locations,
			kubernetesVersion: version,
			fetch:             o.Fetch,
			log:               log,
			compiled:          lru.New[schemaKey, *jsonschema.Schema](compiledSchemas),
			missing:           lru.New[krm.GVK, time.Time](missingSchemas),
		},
		defined:  lru.New[definedKey, compiledVersion](definedSchemas),
		decoded:  lru.New[[sha256.Size]byte, *definition](decodedCRDs),
		accepted: lru.New[krm.GVK, [sha256.Size]byte](acceptedKinds),
		plugins:  o.Plugins,
		budget:   cmp.Or(o.RulesCost, rulesBudget),
		atOnce:   o.PluginsAtOnce,
		secrets:  cmp.Or(o.Secrets, SecretsExact),
		log:      log,
	}
	if v.atOnce <= 0 {
		v.atOnce = 4
	}
	switch {
	case o.CacheSize == 0:
		v.results = lru.New[resultKey, error](4096)
	case o.CacheSize > 0:
		v.results = lru.New[resultKey, error](o.CacheSize)
	}
	return v, nil
}

// kubernetesVersion returns an error if no location can have schemas of a
// version.
func kubernetesVersion(version string, locations []location) (string, error) {
	k, err := loadKubernetes()
	switch {
	case err != nil:
		return "", err
	case version == "":
		return k.Version, nil
	case slices.ContainsFunc(locations, func(l location) bool { return !l.embedded }) || minor(version) == minor(k.Version):
		return version, nil
	}
	return "", tko.Errorf(tko.ErrInvalid, "the schemas of Kubernetes %s are not embedded, only those of %s: name a schema location that has them", version, k.Version)
}

// minor returns "v1.37" for "1.37.1".
func minor(version string) string {
	parts := strings.Split(normalized(version), ".")
	return strings.Join(parts[:min(2, len(parts))], ".")
}

// Validate returns nil if the package is valid. A *tko.InvalidPackageError
// contains all errors, in the order of the resources and of their paths; it may
// be shared, so the caller must not change it. Any other error means that
// validation failed. Plugins run only if there are no other errors. The result
// for a Key is cached as long as the plugins' programs stay the same, except if
// a plugin refused. The caller must not change the CRDs of the Validation
// afterwards, because data read from them is cached.
func (v *Validator) Validate(ctx context.Context, r tko.Validation) error {
	key := resultKey{r.Key, r.Complete, v.programs(r)}
	if r.Key != "" && v.results != nil {
		if result, ok := v.results.Get(key); ok {
			return result
		}
	}
	result, warnings, err := v.inspect(ctx, r)
	if err != nil {
		return err
	}
	if result == nil {
		refused, err := v.runPlugins(ctx, r)
		if err != nil {
			return err
		}
		if refused != nil {
			return refused
		}
	}
	if len(warnings) > 0 {
		if result == nil && r.Warn != nil {
			r.Warn(warnings)
		}
		return result // a cached result has no warnings
	}
	if r.Key != "" && v.results != nil {
		v.results.Put(key, result, 1)
	}
	return result
}

// programs identifies the current programs of the plugins that a package
// triggers.
func (v *Validator) programs(r tko.Validation) string {
	if v.plugins == nil || len(r.Plugins) == 0 {
		return ""
	}
	kinds := make(map[krm.GVK]bool, len(r.Package))
	for _, resource := range r.Package {
		kinds[resource.GVK()] = true
	}
	var programs strings.Builder
	for _, p := range r.Plugins {
		if slices.ContainsFunc(p.Triggers, func(gvk krm.GVK) bool { return kinds[gvk] }) {
			programs.WriteString(v.plugins.Program(p))
			programs.WriteByte('\n')
		}
	}
	return programs.String()
}

// inspect runs all checks except plugins.
func (v *Validator) inspect(ctx context.Context, r tko.Validation) (result error, warnings []tko.Finding, err error) {
	f := &findings{partial: !r.Complete}
	f.next(krm.Identity{})
	known := v.definitions(r)
	names := make(map[krm.Identity]bool, len(r.Package))
	for _, resource := range r.Package {
		names[resource.Identity()] = true
	}
	identity := identityFindings(r.Package)
	ownKinds, err := loadOwn[r.Complete]()
	if err != nil {
		return nil, nil, err
	}
	for i, resource := range r.Package {
		if err := ctx.Err(); err != nil {
			return nil, nil, err
		}
		id := resource.Identity()
		f.next(id)
		for _, e := range identity[i] {
			f.add(e.Path, "%s", e.Reason)
		}
		l := inspection{findings: f, resource: resource, complete: r.Complete, pkg: r.Package, names: names}
		l.annotations()
		l.own()
		if _, err := resource.Items(); err != nil {
			f.add("items", "%s", err)
		}
		if d := known.own[i]; d != nil {
			if err := v.checkDefinition(ctx, f, d, known, r.Complete); err != nil {
				return nil, nil, err
			}
		}
		checkSecrets(f, resource, v.secrets)
		if schema := ownKinds.schema(id.GVK); schema != nil {
			f.check(schema, resource)
			continue
		}
		if err := v.checkOther(ctx, f, resource, id, known, r); err != nil {
			return nil, nil, err
		}
	}
	return f.err(), f.warnings, nil
}

// identityFindings returns the errors in the identities of a package's
// resources, by the index of the resource.
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

type definedKey struct {
	digest   [sha256.Size]byte
	version  string
	path     string
	complete bool
}

// A compiledVersion is the compiled version of a CRD: a schema and rules, or
// the errors in it.
type compiledVersion struct {
	schema *jsonschema.Schema
	rules  *rules // of complete validation; nil if there are none
	// partial reports whether it is for partial validation.
	partial bool
	issues  []issue
	err     error
}

func (v *Validator) compileVersion(d *definition, version definedVersion, complete bool) compiledVersion {
	digest, err := d.digest()
	if err != nil {
		return compiledVersion{err: err}
	}
	key := definedKey{digest, version.name, strings.Join(version.path, " "), complete}
	if c, ok := v.defined.Get(key); ok {
		return c
	}
	k, err := loadKubernetes()
	if err != nil {
		return compiledVersion{err: err}
	}
	c := compileStructural(version.name, version.schema, version.path, complete, k)
	c.partial = !complete
	if c.schema != nil && complete {
		var issues []issue
		c.rules, issues = compileRules(version.schema, version.path)
		if len(issues) > 0 {
			c = compiledVersion{issues: issues}
		}
	}
	v.defined.Put(key, c, 1)
	return c
}

// checkDefinition adds the errors that make a CRD's schemas unusable.
func (v *Validator) checkDefinition(ctx context.Context, f *findings, d *definition, known definitions, complete bool) error {
	root := map[string]any(d.resource)
	if known.rules > maxPackageRules {
		f.add("spec.versions", "can't be checked: the CRDs of this package have %d rules (%s) together; split the package into ones with at most %d", known.rules, rulesKey, maxPackageRules)
		return nil
	}
	for _, version := range d.versions {
		if err := ctx.Err(); err != nil {
			return err
		}
		if version.schema == nil {
			if complete {
				f.add(pathOf(root, version.path), "is required: every served version needs a schema")
			}
			continue
		}
		c := v.compileVersion(d, version, complete)
		for _, i := range c.issues {
			f.add(pathOf(root, i.path), "%s", i.reason)
		}
		if c.err != nil {
			f.add(pathOf(root, version.path), "is not a usable schema: %s", c.err)
		}
	}
	return nil
}

// compileStructural compiles the schema of a CRD's version.
func compileStructural(name string, schema any, path []string, complete bool, k *kubernetes) compiledVersion {
	c := structural{complete: complete}
	document := c.document(schema, path, k.document(objectMeta))
	if document == nil {
		return compiledVersion{issues: []issue{{path, "must be a schema"}}}
	}
	if len(c.issues) > 0 {
		return compiledVersion{issues: c.issues}
	}
	var final any = document
	if !complete {
		final = relax(document)
	}
	s, err := compile("tko:///"+safeURL.ReplaceAllString(name, "-")+".json", final, noLoader{}, crdFormats...)
	return compiledVersion{schema: s, err: err}
}

// slowFailure is the maximum duration of an ordinary failure of a plugin. A plugin
// that takes longer probably hangs: it does not run for the package's other resources.
const slowFailure = 5 * time.Second

// A run of a plugin for a resource.
type run struct {
	plugin  tko.Plugin
	target  krm.Identity
	hanging *atomic.Bool // whether the plugin probably hangs
	err     error
}

// runPlugins returns the errors that plugins find; err is an error of ctx.
func (v *Validator) runPlugins(ctx context.Context, r tko.Validation) (refused, err error) {
	runs := plan(r)
	var group errgroup.Group
	group.SetLimit(v.atOnce)
	for _, one := range runs {
		if ctx.Err() != nil {
			break
		}
		group.Go(func() error {
			v.run(ctx, one, r)
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

// plan returns the runs of plugins, in the order of the package.
func plan(r tko.Validation) []*run {
	hanging := make([]atomic.Bool, len(r.Plugins))
	var runs []*run
	for _, resource := range r.Package {
		for i, p := range r.Plugins {
			if p.Type == tko.PluginValidate && p.Triggered(resource.GVK()) {
				runs = append(runs, &run{plugin: p, target: resource.Identity(), hanging: &hanging[i]})
			}
		}
	}
	return runs
}

func (v *Validator) run(ctx context.Context, one *run, r tko.Validation) {
	switch {
	case v.plugins == nil:
		one.err = errNoRunner
	case one.hanging.Load():
		one.err = errHanging
	default:
		begin := time.Now()
		one.err = v.plugins.Validate(ctx, one.plugin, one.target, r.Package, r.Complete)
		if one.err != nil && time.Since(begin) > slowFailure {
			one.hanging.Store(true)
		}
	}
}

var errHanging = errors.New("did not run, because it failed slowly for another resource")

var safeURL = regexp.MustCompile(`[^A-Za-z0-9.]+`)

var errNoRunner = errors.New("can't run here: this program runs no plugins")

// pluginReason returns a plugin's error with the name of the plugin once, and
// without the resource, which the finding contains.
func pluginReason(p tko.Plugin, target krm.Identity, err error) string {
	name := fmt.Sprintf("plugin %q", p.ID())
	text := strings.Replace(err.Error(), " for "+target.String(), "", 1)
	if strings.HasPrefix(text, name) {
		return text
	}
	return name + ": " + text
}
