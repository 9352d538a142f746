package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync/atomic"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A Validator says whether packages are valid.
type Validator interface {
	// Validate answers nil for a valid package, and an error that is an
	// ErrInvalid for an invalid one: a *tko.InvalidPackageError with all that is
	// wrong. It doesn't change the package and may be called at the same time.
	Validate(ctx context.Context, v tko.Validation) error
}

// ruleSet is what packages are validated against beyond what the validator
// knows by itself, as of an epoch.
type ruleSet struct {
	epoch   int64
	crds    []krm.Resource
	plugins []tko.Plugin // of type validate
}

// A ruleCache keeps the newest ruleSet, and the CRDs of templates.
type ruleCache struct {
	lock      lock
	current   atomic.Pointer[ruleSet]
	templates map[string]templateCRDs
}

type templateCRDs struct {
	uid      string
	revision int64
	crds     []krm.Resource
}

var crdGroup, crdKind = "apiextensions.k8s.io", "CustomResourceDefinition"

func isCRD(gvk krm.GVK) bool { return gvk.Group == crdGroup && gvk.Kind == crdKind }

// crdsOf answers the CRDs of a package.
func crdsOf(pkg krm.Package) []krm.Resource {
	var crds []krm.Resource
	for _, r := range pkg {
		if isCRD(r.GVK()) {
			crds = append(crds, r)
		}
	}
	return crds
}

// validate has a package validated. digest is the one under which it is
// stored, and seal what tells packages of the same digest apart.
func (s *Service) validate(ctx context.Context, on *grounds, c content, complete bool, seal string) error {
	rules, err := s.rulesFor(ctx, on)
	if err != nil {
		return err
	}
	key := fmt.Sprintf("%x/%d/%t", c.digest, rules.epoch, complete)
	if slices.ContainsFunc(rules.plugins, func(p tko.Plugin) bool { return p.Triggered(krm.DeploymentGVK) }) {
		key += "/" + seal // plugins see what is not in the digest
	}
	return s.validator.Validate(ctx, tko.Validation{
		Package:  c.pkg,
		Complete: complete,
		CRDs:     rules.crds,
		Plugins:  rules.plugins,
		Key:      key,
	})
}

// rulesFor answers the rules that are remembered, if they may be the grounds of
// something, or else the current ones.
func (s *Service) rulesFor(ctx context.Context, on *grounds) (*ruleSet, error) {
	if rules := s.rules.current.Load(); on != nil && rules != nil {
		on.epoch = &rules.epoch
		return rules, nil
	}
	return s.currentRules(ctx)
}

// currentRules answers the rules of the store's epoch or a later one.
func (s *Service) currentRules(ctx context.Context) (*ruleSet, error) {
	epoch, err := s.store.Epoch(ctx)
	if err != nil {
		return nil, err
	}
	unlock, err := s.rules.lock.lock(ctx)
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
	if rules.plugins, err = s.loadValidatePlugins(ctx); err != nil {
		return nil, fmt.Errorf("read the validate plugins: %w", err)
	}
	s.rules.current.Store(rules)
	return rules, nil
}

// loadCRDs answers the CRDs of all templates, equal ones once, in the order of
// the templates' IDs. It reads the packages of those templates only that
// changed since the last time.
func (s *Service) loadCRDs(ctx context.Context) ([]krm.Resource, error) {
	known := s.rules.templates
	now := map[string]templateCRDs{}
	var order, stale []string
	for r, err := range s.store.List(ctx, Query{Kind: tko.KindTemplate, CRDs: true, Limit: -1}) {
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
	for _, id := range stale {
		r, err := s.get(ctx, Fields{Package: true}, Key{Kind: tko.KindTemplate, ID: id})
		if err != nil {
			return nil, err
		}
		if r.Revision == 0 {
			continue // deleted meanwhile
		}
		pkg, err := decode(r)
		if err != nil {
			return nil, fmt.Errorf("template %q: %w", id, err)
		}
		now[id] = templateCRDs{uid: r.UID, revision: r.Revision, crds: crdsOf(pkg)}
	}
	s.rules.templates = now
	return distinct(order, now)
}

func distinct(order []string, templates map[string]templateCRDs) ([]krm.Resource, error) {
	var crds []krm.Resource
	seen := map[Digest]bool{}
	for _, id := range order {
		for _, crd := range templates[id].crds {
			digest, _, err := krm.DigestOf(krm.Package{crd})
			if err != nil {
				return nil, err
			}
			if !seen[digest] {
				seen[digest] = true
				crds = append(crds, crd)
			}
		}
	}
	return crds, nil
}

func (s *Service) loadValidatePlugins(ctx context.Context) ([]tko.Plugin, error) {
	pattern, err := tko.ParsePattern(tko.PluginValidate + "|**")
	if err != nil {
		return nil, err
	}
	var plugins []tko.Plugin
	for r, err := range s.store.List(ctx, Query{Kind: tko.KindPlugin, IDs: []tko.Pattern{pattern}, Limit: -1}) {
		if err != nil {
			return nil, err
		}
		p, err := pluginOf(r)
		if err != nil {
			return nil, err
		}
		plugins = append(plugins, p)
	}
	return plugins, nil
}

// A storedPlugin is how plugins are encoded in records. What it says of JSON
// names is for ever.
type storedPlugin struct {
	Executor   string            `json:"executor"`
	Arguments  []string          `json:"arguments,omitempty"`
	Properties map[string]string `json:"properties,omitempty"`
	Triggers   []storedGVK       `json:"triggers,omitempty"`
}

type storedGVK struct {
	Group   string `json:"group"`
	Version string `json:"version"`
	Kind    string `json:"kind"`
}

func encodePlugin(p tko.Plugin) ([]byte, error) {
	stored := storedPlugin{Executor: p.Executor, Arguments: p.Arguments, Properties: p.Properties}
	for _, t := range p.Triggers {
		stored.Triggers = append(stored.Triggers, storedGVK(t))
	}
	return json.Marshal(stored)
}

// pluginOf is the plugin of a record.
func pluginOf(r Record) (tko.Plugin, error) {
	var stored storedPlugin
	if err := json.Unmarshal(r.Plugin, &stored); err != nil {
		return tko.Plugin{}, fmt.Errorf("read plugin %q: %w", r.ID, err)
	}
	p := tko.Plugin{Executor: stored.Executor, Arguments: stored.Arguments, Properties: stored.Properties, Stamp: r.stamp()}
	p.Type, p.Name, _ = tko.SplitPluginID(r.ID)
	for _, t := range stored.Triggers {
		p.Triggers = append(p.Triggers, krm.GVK(t))
	}
	return p, nil
}
