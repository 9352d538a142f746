package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/derivation"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
	threeway "github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/krm"
)

// validation validates packages against the rules that are in force.
type validation struct {
	reader record.Lookup
	store  record.Store

	validator Validator
	rules     ruleCache
}

// A Validator validates packages.
type Validator interface {
	// Validate returns nil for a valid package. For an invalid one it returns
	// an ErrInvalid: a *tko.InvalidPackageError with all findings. It doesn't
	// change the package and may be called concurrently.
	Validate(ctx context.Context, v tko.Validation) error
}

// A ruleSet is the set of rules that packages are validated against in addition
// to the validator's own, as of an epoch.
type ruleSet struct {
	epoch   int64
	crds    []tko.CRD
	plugins []tko.Plugin // of type validate
	// schedulers are the kinds of resources that trigger schedule plugins.
	schedulers map[krm.GVK]bool
	preparers  map[string]int64        // revisions of the prepare plugins, by name
	types      func() derivation.Types // how resources merge
}

// A ruleCache caches the newest ruleSet and the CRDs of templates, equal ones
// once.
type ruleCache struct {
	lock      pause.Mutex
	current   atomic.Pointer[ruleSet]
	templates map[string]templateCRDs
}

type templateCRDs struct {
	uid      string
	revision int64
	crds     []tko.CRD // without Templates
}

// crdsOf returns the CRDs of a package.
func crdsOf(pkg krm.Package) []krm.Resource {
	var crds []krm.Resource
	for _, r := range pkg {
		if tko.IsCRD(r.GVK()) {
			crds = append(crds, r)
		}
	}
	return crds
}

// An acceptedPackages function reads packages that were accepted earlier and
// that a package replaces or derives from. It is called only if CRDs of
// templates refuse the package.
type acceptedPackages func(ctx context.Context) ([]tko.AcceptedPackage, error)

// validate validates a package. seal distinguishes packages with the same
// digest. Findings of templates' CRDs that earlier packages have, too, are no
// errors: registering a template doesn't invalidate existing packages.
func (s *validation) validate(ctx context.Context, reads *readSet, c content.Content, complete bool, seal string, earlier acceptedPackages) error {
	rules, err := s.rulesFor(ctx, reads)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%x/%d/%t", c.Digest, rules.epoch, complete)
	if slices.ContainsFunc(rules.plugins, func(p tko.Plugin) bool { return p.Triggered(krm.DeploymentGVK) }) {
		key += "/" + seal // plugins see the state, which is not part of the digest
	}
	v := tko.Validation{
		Package:  c.Package,
		Complete: complete,
		CRDs:     rules.crds,
		Plugins:  rules.plugins,
		Key:      key,
	}
	if c.Warned != nil {
		v.Warn = func(all []tko.Finding) {
			*c.Warned = all
			for _, one := range all {
				tko.Warn(ctx, one.String())
			}
		}
	}
	err = s.validator.Validate(ctx, v)
	if invalid, ok := errors.AsType[*tko.InvalidPackageError](err); !ok || !invalid.ByTemplates {
		return err
	}
	accepted, readErr := earlier(ctx)
	if readErr != nil {
		return readErr
	}
	if len(accepted) == 0 {
		return err
	}
	v.Accepted, v.Key = accepted, ""
	return s.validator.Validate(ctx, v)
}

// withPackage returns a record with a package, which it validates. The package was made from
// the record's template, if it has one.
func (s *validation) withPackage(ctx context.Context, reads *readSet, r record.Record, pkg krm.Package, complete bool) (record.Record, error) {
	c, err := content.Of(pkg)
	if err == nil {
		err = s.validate(ctx, reads, c, complete, "", s.acceptedOf(r.Key, complete, r.Template))
	}
	r.Digest, r.Package = c.Digest, c.Encoded
	if err == nil && r.Kind == tko.KindSite {
		r.Conditions = condition.Merge(nil, c.Conditions(nil), 1, time.Now())
	}
	return r, err
}

// rulesFor returns the cached rules and adds their epoch to the read set; the
// current rules if reads is nil or of the store, or nothing is cached.
func (s *validation) rulesFor(ctx context.Context, reads *readSet) (*ruleSet, error) {
	if rules := s.rules.current.Load(); reads != nil && !reads.fromStore && rules != nil {
		reads.epoch = &rules.epoch
		return rules, nil
	}
	rules, err := s.currentRules(ctx)
	if err == nil && reads != nil && reads.fromStore {
		reads.epoch = &rules.epoch
	}
	return rules, err
}

// currentRules returns the rules of the store's epoch or a later one.
func (s *validation) currentRules(ctx context.Context) (*ruleSet, error) {
	epoch, err := s.store.Epoch(ctx)
	if err != nil {
		return nil, err
	}
	unlock, err := s.rules.lock.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if current := s.rules.current.Load(); current != nil && current.epoch >= epoch {
		return current, nil
	}
	rules := &ruleSet{epoch: epoch}
	if rules.crds, err = s.loadCRDs(ctx); err != nil {
		return nil, fmt.Errorf("read the custom resource definitions: %w", err)
	}
	if rules.plugins, err = s.loadPlugins(ctx, tko.PluginValidate); err != nil {
		return nil, fmt.Errorf("read the validate plugins: %w", err)
	}
	schedulers, err := s.loadPlugins(ctx, tko.PluginSchedule)
	if err != nil {
		return nil, fmt.Errorf("read the schedule plugins: %w", err)
	}
	rules.schedulers = map[krm.GVK]bool{}
	for _, p := range schedulers {
		for _, trigger := range p.Triggers {
			rules.schedulers[trigger] = true
		}
	}
	preparers, err := s.loadPlugins(ctx, tko.PluginPrepare)
	if err != nil {
		return nil, fmt.Errorf("read the prepare plugins: %w", err)
	}
	rules.preparers = map[string]int64{}
	for _, p := range preparers {
		rules.preparers[p.Name] = p.Stamp.Revision
	}
	rules.types = mergeTypes(rules.crds)
	s.rules.current.Store(rules)
	return rules, nil
}

// differ returns what packages are compared by: types, and a random key that masks
// confidential values.
func (s *validation) differ(ctx context.Context) (threeway.Types, []byte, error) {
	rules, err := s.rulesFor(ctx, new(readSet))
	if err != nil {
		return nil, nil, err
	}
	return rules.types(), threeway.NewMask(), nil
}

// isUntriggered reports whether no resource of a site's package triggers
// scheduling: a target of the meta-scheduler or a schedule plugin. It returns
// false if that isn't known as of the epoch of the read set, which the commit
// checks.
func (s *validation) isUntriggered(reads *readSet, pkg krm.Package) bool {
	rules := s.rules.current.Load()
	if reads == nil || reads.epoch == nil || rules == nil || rules.epoch != *reads.epoch {
		return false
	}
	return !slices.ContainsFunc(pkg, func(r krm.Resource) bool {
		gvk := r.GVK()
		return tko.IsPluginGroup(gvk.Group) || rules.schedulers[gvk]
	})
}

// loadCRDs returns the CRDs of all templates, equal ones once, in the order of
// the templates' IDs. It reads only the packages of templates that have changed
// since the last time.
func (s *validation) loadCRDs(ctx context.Context) ([]tko.CRD, error) {
	known := s.rules.templates
	now := map[string]templateCRDs{}
	var order, stale []string
	for r, err := range s.store.List(ctx, record.Query{Scope: access.ScopeAll, Kind: tko.KindTemplate, CRDs: true, Limit: -1}) {
		if err != nil {
			return nil, err
		}
		order = append(order, r.ID)
		if k, ok := known[r.ID]; ok && k.uid == r.UID && k.revision == r.Revision {
			now[r.ID] = k
		} else {
			stale = append(stale, r.ID)
		}
	}
	contents := map[record.Digest][]byte{}
	for _, t := range now {
		for _, crd := range t.crds {
			contents[crd.Digest] = crd.Content
		}
	}
	for _, id := range stale {
		t, err := s.readCRDs(ctx, id, contents)
		if err != nil {
			return nil, err
		}
		now[id] = t
	}
	s.rules.templates = now
	return distinct(order, now), nil
}

// readCRDs reads the CRDs of a template; none if it was deleted concurrently.
// Known contents are shared.
func (s *validation) readCRDs(ctx context.Context, id string, contents map[record.Digest][]byte) (templateCRDs, error) {
	r, err := s.reader.One(ctx, record.Fields{Package: true}, record.Key{Kind: tko.KindTemplate, ID: id})
	if err != nil || r.Revision == 0 {
		return templateCRDs{}, err
	}
	pkg, err := record.Decode(r)
	if err != nil {
		return templateCRDs{}, fmt.Errorf("template %q: %w", id, err)
	}
	t := templateCRDs{uid: r.UID, revision: r.Revision}
	for _, resource := range crdsOf(pkg) {
		crd, err := tko.NewCRD(resource)
		if err != nil {
			return templateCRDs{}, fmt.Errorf("template %q: %w", id, err)
		}
		if known, ok := contents[crd.Digest]; ok {
			crd.Content = known
		}
		contents[crd.Digest] = crd.Content
		t.crds = append(t.crds, crd)
	}
	return t, nil
}

func distinct(order []string, templates map[string]templateCRDs) []tko.CRD {
	var crds []tko.CRD
	at := map[record.Digest]int{}
	for _, id := range order {
		for _, crd := range templates[id].crds {
			i, ok := at[crd.Digest]
			if !ok {
				i = len(crds)
				at[crd.Digest] = i
				crds = append(crds, crd)
			}
			if ids := crds[i].Templates; len(ids) == 0 || ids[len(ids)-1] != tko.TemplateID(id) {
				crds[i].Templates = append(crds[i].Templates, tko.TemplateID(id))
			}
		}
	}
	return crds
}

// maxDefinitions is the maximum number of different definitions of one kind in
// all templates. Each resource of the kind may have to be checked against all
// of them.
const maxDefinitions = 500

// checkDefinitions refuses a template whose CRDs would exceed maxDefinitions.
func (s *validation) checkDefinitions(ctx context.Context, id tko.TemplateID, pkg krm.Package) error {
	brought := crdsOf(pkg)
	if len(brought) == 0 {
		return nil
	}
	rules, err := s.rulesFor(ctx, nil)
	if err != nil {
		return err
	}
	type groupKind struct{ group, kind string }
	different := map[groupKind]map[record.Digest]bool{}
	for _, resource := range brought {
		crd, err := tko.NewCRD(resource)
		if err != nil {
			return err
		}
		kind := groupKind{crd.Group, crd.Kind}
		if different[kind] == nil {
			different[kind] = map[record.Digest]bool{}
		}
		different[kind][crd.Digest] = true
	}
	for _, crd := range rules.crds {
		kind := groupKind{crd.Group, crd.Kind}
		if different[kind] != nil && (len(crd.Templates) != 1 || crd.Templates[0] != id) {
			different[kind][crd.Digest] = true
		}
	}
	for kind, digests := range different {
		if len(digests) > maxDefinitions {
			return tko.Errorf(tko.ErrInvalid, "template %q: with its CRD there would be %d different definitions of %s in %s among the templates: use at most %d, and delete unused templates",
				id, len(digests), kind.kind, kind.group, maxDefinitions)
		}
	}
	return nil
}

func (s *validation) loadPlugins(ctx context.Context, typ string) ([]tko.Plugin, error) {
	pattern, err := tko.ParsePattern(typ + "|**")
	if err != nil {
		return nil, err
	}
	var plugins []tko.Plugin
	for r, err := range s.store.List(ctx, record.Query{Scope: access.ScopeAll, Kind: tko.KindPlugin, IDs: []tko.Pattern{pattern}, Limit: -1}) {
		if err != nil {
			return nil, err
		}
		p, err := record.PluginOf(r)
		if err != nil {
			return nil, err
		}
		plugins = append(plugins, p)
	}
	return plugins, nil
}

// maxAcceptedRevisions is the maximum number of revisions of a deployment that
// are read to find the last prepared one.
const maxAcceptedRevisions = 50

// acceptedOf returns a reader of the stored package of a record and of the
// package of a template. complete states how the record was validated. Either
// may be missing.
func (s *validation) acceptedOf(key record.Key, complete bool, template string) acceptedPackages {
	return func(ctx context.Context) ([]tko.AcceptedPackage, error) {
		var accepted []tko.AcceptedPackage
		for _, one := range []struct {
			key      record.Key
			complete bool
		}{{key, complete}, {record.Key{Kind: tko.KindTemplate, ID: template}, false}} {
			if one.key.ID == "" {
				continue
			}
			r, err := s.reader.One(ctx, record.Fields{Package: true}, one.key)
			if err != nil {
				return nil, err
			}
			if r.Revision == 0 {
				continue
			}
			pkg, err := record.PackageOf(r)
			if err != nil {
				return nil, err
			}
			accepted = append(accepted, tko.AcceptedPackage{Package: pkg, Complete: one.complete})
		}
		return accepted, nil
	}
}

// acceptedOfDeployment returns a reader of the package of a deployment that is
// to change, of its template's package and, if the deployment isn't prepared,
// of its last prepared package, which its site runs.
func (s *validation) acceptedOfDeployment(start record.Record, template string) acceptedPackages {
	return func(ctx context.Context) ([]tko.AcceptedPackage, error) {
		accepted, err := s.acceptedOf(record.Key{}, false, template)(ctx)
		if err != nil {
			return nil, err
		}
		for r, n := start, 0; n < maxAcceptedRevisions; n++ {
			pkg, err := record.PackageOf(r)
			if err != nil {
				return nil, err
			}
			if n == 0 || r.Prepared {
				accepted = append(accepted, tko.AcceptedPackage{Package: pkg, Complete: r.Prepared})
			}
			if r.Prepared || r.Revision <= 1 {
				break
			}
			if r, err = s.store.Revision(ctx, start.Key, r.Revision-1); errors.Is(err, tko.ErrNotFound) || err == nil && r.UID != start.UID {
				break
			} else if err != nil {
				return nil, err
			}
		}
		return accepted, nil
	}
}
