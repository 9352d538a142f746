package validate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	celconfig "k8s.io/apiserver/pkg/apis/cel"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/krm"
)

// definitions are the CRDs that apply to a package.
type definitions struct {
	own        map[int]*definition // the package's own, by index of the resource
	packaged   map[groupKind][]*definition
	registered map[groupKind][]tko.CRD
	accepted   map[krm.Identity][]acceptedResource
	budget     *int64 // remaining cost of CEL rules
	rules      int    // number of rules in the package's CRDs, for complete validation
}

// rulesBudget is the cost limit of all CEL rules that are evaluated for one
// package: ten times the API server's limit for one resource.
const rulesBudget = 10 * celconfig.RuntimeCELCostBudget

type groupKind struct{ group, kind string }

// An acceptedResource is a resource of the stored revision of a package.
type acceptedResource struct {
	resource krm.Resource
	complete bool // whether the package was validated completely
}

// registered indexes the CRDs of the last Validation, because callers pass the
// same list many times.
type registered struct {
	mu    sync.Mutex
	list  []tko.CRD
	kinds map[groupKind][]tko.CRD
}

func (k *registered) byKind(list []tko.CRD) map[groupKind][]tko.CRD {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(list) == 0 {
		return nil
	}
	if len(list) == len(k.list) && &list[0] == &k.list[0] {
		return k.kinds
	}
	kinds := map[groupKind][]tko.CRD{}
	for _, c := range list {
		at := groupKind{c.Group, c.Kind}
		kinds[at] = append(kinds[at], c)
	}
	k.list, k.kinds = list, kinds
	return kinds
}

func (v *Validator) definitions(r tko.Validation) definitions {
	budget := v.budget
	d := definitions{budget: &budget, own: map[int]*definition{}, packaged: map[groupKind][]*definition{}, registered: v.known.byKind(r.CRDs)}
	for i, resource := range r.Package {
		if resource.GVK() == crdGVK {
			own := define(resource)
			d.own[i] = own
			for _, version := range own.versions {
				if r.Complete {
					n, _ := countRules(version.schema)
					d.rules += n
				}
			}
			at := groupKind{own.group, own.kind}
			d.packaged[at] = append(d.packaged[at], own)
		}
	}
	if len(r.Accepted) > 0 {
		d.accepted = map[krm.Identity][]acceptedResource{}
		for _, before := range r.Accepted {
			for _, resource := range before.Package {
				id := resource.Identity()
				d.accepted[id] = append(d.accepted[id], acceptedResource{resource, before.Complete})
			}
		}
	}
	return d
}

// checkOther checks a resource of a kind that is not TKO's own. A Kubernetes
// kind is checked by Kubernetes' schema. Other kinds are checked by the
// package's own CRDs, else by the registered CRDs (one of them must accept the
// resource), else by a schema location.
func (v *Validator) checkOther(ctx context.Context, f *findings, resource krm.Resource, id krm.Identity, known definitions, r tko.Validation) error {
	k, err := loadKubernetes()
	if err != nil {
		return err
	}
	if !k.has(id.GVK) {
		if known.rules > maxPackageRules {
			return nil // checkDefinition refuses the CRDs
		}
		defined := v.byOwn(ctx, f, resource, id, known, r.Complete)
		if len(known.packaged[groupKind{id.Group, id.Kind}]) == 0 { // CRDs of the package count alone, also for versions that they lack
			defined, err = v.byRegistered(ctx, f, resource, id, known, r.Complete)
		}
		if defined || err != nil {
			return err
		}
	}
	schema, err := v.library.schema(ctx, id.GVK, r.Complete)
	if err == nil && schema != nil {
		f.check(schema, resource)
	}
	return err
}

// byOwn checks a resource by the CRDs of its own package. It returns false if
// none of them defines the kind.
func (v *Validator) byOwn(ctx context.Context, f *findings, resource krm.Resource, id krm.Identity, known definitions, complete bool) (defined bool) {
	var refused []tko.Finding
	for _, d := range known.packaged[groupKind{id.Group, id.Kind}] {
		c, ok := v.version(d, id.Version, complete)
		if !ok {
			continue
		}
		found := c.check(ctx, resource, id, known.budget)
		if len(found) == 0 {
			return true
		}
		if !defined || len(found) < len(refused) {
			refused = found
		}
		defined = true
	}
	for _, one := range refused {
		f.add(one.Path, "%s", one.Reason)
	}
	return defined
}

// A refusal holds the errors that one registered CRD found.
type refusal struct {
	crd   tko.CRD
	used  *definition
	found []tko.Finding
}

// byRegistered checks a resource by the registered CRDs: it is valid if one of
// them accepts it. The CRD that accepted the last resource of the kind is tried
// first, so usually only one is needed; the result doesn't depend on the order. It
// returns false if none of them defines the kind.
func (v *Validator) byRegistered(ctx context.Context, f *findings, resource krm.Resource, id krm.Identity, known definitions, complete bool) (defined bool, err error) {
	crds := known.registered[groupKind{id.Group, id.Kind}]
	if last, ok := v.accepted.Get(id.GVK); ok {
		if i := slices.IndexFunc(crds, func(c tko.CRD) bool { return c.Digest == last }); i >= 0 {
			if ok, r := v.checkByCRD(ctx, crds[i], resource, id, known, complete); ok && len(r.found) == 0 {
				return true, nil
			}
		}
	}
	var refused []refusal
	for _, crd := range crds {
		if err := ctx.Err(); err != nil {
			return false, err
		}
		ok, one := v.checkByCRD(ctx, crd, resource, id, known, complete)
		if !ok {
			continue
		}
		if len(one.found) == 0 {
			v.accepted.Put(id.GVK, crd.Digest, 1)
			return true, nil
		}
		refused = append(refused, one)
	}
	if len(refused) == 0 {
		return false, nil
	}
	unknown := unknownToAll(refused)
	for i := range refused {
		refused[i].found = slices.DeleteFunc(refused[i].found, func(one tko.Finding) bool { return unknown[one.Path] && one.Reason == unknownProperty })
	}
	if len(unknown) > 0 {
		slices.SortStableFunc(refused, func(a, b refusal) int { return slices.Compare(a.crd.Templates, b.crd.Templates) })
		var asked []tko.TemplateID
		for _, r := range refused {
			asked = append(asked, r.crd.Templates...)
		}
		for _, path := range slices.Sorted(maps.Keys(unknown)) {
			f.warn(path, "unknown property: the CRDs of "+names(asked)+" don't have it")
		}
	}
	if err := v.dropOld(ctx, refused, id, known, complete); err != nil {
		return false, err
	}
	if !slices.ContainsFunc(refused, func(r refusal) bool { return len(r.found) == 0 }) {
		f.refuse(refused)
	}
	return true, nil
}

// unknownToAll returns the paths of the properties that no CRD knows. They are no errors: the
// resource may be written for a newer version of the definition. A property that one CRD knows
// remains an error of the others: otherwise, a CRD that lacks it would accept any value of it.
func unknownToAll(refused []refusal) map[string]bool {
	unknown := map[string]bool{}
	for _, r := range refused {
		for _, one := range r.found {
			if one.Reason != unknownProperty || unknown[one.Path] {
				continue
			}
			lacks := func(r refusal) bool { // it doesn't have the property, or one that holds it
				return slices.ContainsFunc(r.found, func(other tko.Finding) bool {
					rest, within := strings.CutPrefix(one.Path, other.Path)
					return other.Reason == unknownProperty && within && (rest == "" || rest[0] == '.' || rest[0] == '[')
				})
			}
			if !slices.ContainsFunc(refused, func(r refusal) bool { return !lacks(r) }) {
				unknown[one.Path] = true
			}
		}
	}
	return unknown
}

// dropOld drops the errors that an accepted resource has, too, if no CRD accepts that
// resource: it was stored when the CRDs were others. An error next to a CRD that accepts the
// earlier resource is new, whatever the other CRDs find.
func (v *Validator) dropOld(ctx context.Context, refused []refusal, id krm.Identity, known definitions, complete bool) error {
	old := make([][]tko.Finding, len(refused))
	for _, before := range known.accepted[id] {
		had := make([][]tko.Finding, len(refused))
		valid := false
		for i, r := range refused {
			if err := ctx.Err(); err != nil {
				return err
			}
			c, ok := v.version(r.used, id.Version, complete && before.complete)
			if !ok {
				continue
			}
			had[i] = c.check(ctx, before.resource, id, known.budget)
			if len(had[i]) == 0 {
				valid = true
				break
			}
		}
		if valid {
			continue
		}
		for i := range refused {
			old[i] = append(old[i], had[i]...)
		}
	}
	for i := range refused {
		refused[i].found = slices.DeleteFunc(refused[i].found, func(one tko.Finding) bool { return slices.Contains(old[i], one) })
	}
	return nil
}

// checkByCRD checks a resource by one registered CRD. It returns false if the CRD doesn't
// define the kind's version.
func (v *Validator) checkByCRD(ctx context.Context, crd tko.CRD, resource krm.Resource, id krm.Identity, known definitions, complete bool) (ok bool, r refusal) {
	d := v.decode(crd)
	if d == nil {
		return false, refusal{}
	}
	c, ok := v.version(d, id.Version, complete)
	if !ok {
		return false, refusal{}
	}
	return true, refusal{crd, d, c.check(ctx, resource, id, known.budget)}
}

// decode returns a registered CRD, or nil if its API version is not supported.
func (v *Validator) decode(crd tko.CRD) *definition {
	if d, ok := v.decoded.Get(crd.Digest); ok {
		return d
	}
	var d *definition
	if resource, err := crd.Resource(); err == nil && resource.GVK() == crdGVK {
		d = define(resource)
		d.digest = func() ([sha256.Size]byte, error) { return crd.Digest, nil }
	}
	v.decoded.Put(crd.Digest, d, 1)
	return d
}

// version returns the compiled version of a CRD. It returns false if the CRD
// does not have the version, or if it has errors, which are reported for the
// package that contains the CRD.
func (v *Validator) version(d *definition, name string, complete bool) (compiledVersion, bool) {
	for _, version := range d.versions {
		if version.name != name || version.schema == nil {
			continue
		}
		if c := v.compileVersion(d, version, complete); c.schema != nil {
			return c, true
		}
	}
	return compiledVersion{}, false
}

// check returns the errors that the schema finds, and, if these are at most unknown properties,
// those that the rules find.
func (c compiledVersion) check(ctx context.Context, resource krm.Resource, id krm.Identity, budget *int64) []tko.Finding {
	f := findings{partial: c.partial}
	f.next(id)
	f.check(c.schema, resource)
	// A property that the CRD doesn't know may be no error (see unknownToAll).
	if c.rules != nil && !slices.ContainsFunc(f.list, func(one tko.Finding) bool { return one.Reason != unknownProperty }) {
		c.rules.check(ctx, &f, resource, budget)
	}
	f.sort()
	return f.list
}

// Limits of the templates that a message names.
const (
	namedTemplates = 10
	maxTemplateID  = 100
)

// refuse adds the errors of the CRD that finds the fewest, and the names of the
// templates with refusing CRDs.
func (f *findings) refuse(refused []refusal) {
	slices.SortStableFunc(refused, func(a, b refusal) int { // the order of registration doesn't matter
		return cmp.Or(cmp.Compare(len(a.found), len(b.found)), slices.Compare(a.crd.Templates, b.crd.Templates), bytes.Compare(a.crd.Digest[:], b.crd.Digest[:]))
	})
	closest := refused[0]
	closestNames := names(closest.crd.Templates)
	var others []tko.TemplateID
	for _, r := range refused {
		if r.crd.Digest != closest.crd.Digest {
			others = append(others, r.crd.Templates...)
		}
	}
	suffix := ""
	if closestNames != "" {
		f.byTemplates = true
		suffix = " (by the CRD of " + closestNames
		if len(others) > 0 {
			suffix += "; refused by that of " + names(others) + ", too"
		}
		suffix += ")"
	}
	for _, one := range closest.found {
		f.addWhole(one.Path, one.Reason+suffix)
	}
}

// names returns `template "a"`, or `templates "a", "b" and 3 more`.
func names(templates []tko.TemplateID) string {
	if len(templates) == 0 {
		return ""
	}
	quoted := make([]string, 0, min(len(templates), namedTemplates))
	for _, id := range templates[:min(len(templates), namedTemplates)] {
		quoted = append(quoted, strconv.Quote(printable.Short(string(id), maxTemplateID)))
	}
	text := strings.Join(quoted, ", ")
	if more := len(templates) - namedTemplates; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	if len(templates) == 1 {
		return "template " + text
	}
	return "templates " + text
}
