package catalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// Awaited are the template and the site that a deployment names, or the template that a site
// names, and that don't exist yet, or that its owner may not see. Until they are there, the
// record doesn't refer to them.
// Transports that write entities in any order accept such references: see [Put.Defer].
type Awaited struct {
	Template string `json:"t,omitempty"`
	Site     string `json:"s,omitempty"`
	// Merge reports that the package is to be merged into that of the template, once it
	// exists: the deployment was never merged into one, or the site was given as a part.
	Merge bool `json:"m,omitempty"`
}

// isZero reports whether nothing is awaited.
func (a Awaited) isZero() bool { return a.Template == "" && a.Site == "" }

// String describes what is missing.
func (a Awaited) String() string {
	var missing []string
	for _, key := range references(a.Template, a.Site) {
		missing = append(missing, fmt.Sprintf("%s %q", key.Kind, key.ID))
	}
	verb := "doesn't"
	if len(missing) > 1 {
		verb = "don't"
	}
	return fmt.Sprintf("%s %s exist yet", strings.Join(missing, " and "), verb)
}

// Awaited returns what the record waits for.
func (r Record) Awaited() Awaited {
	if a := r.Metadata.orNone().Awaited; a != nil {
		return *a
	}
	return Awaited{}
}

// Wanted returns the IDs of the template and the site that the record names, also of those
// that it waits for.
func (r Record) Wanted() (template, site string) {
	template, site = r.Template, r.Site
	if a := r.Awaited(); a.Template != "" {
		template = a.Template
	}
	if a := r.Awaited(); a.Site != "" {
		site = a.Site
	}
	return template, site
}

// await sets what a record waits for. Its metadata must not be shared yet.
func (r *Record) await(a Awaited) {
	if r.Metadata == nil {
		r.Metadata = new(Metadata)
	}
	if r.Metadata.Awaited = nil; !a.isZero() {
		r.Metadata.Awaited = &a
	}
}

// sameAwaited reports whether two records wait for the same.
func sameAwaited(a, b Record) bool { return a.Awaited() == b.Awaited() }

// conditions returns the conditions that report what a record waits for. current are those that
// it has. Those of a site, which isn't prepared, are those of a prepared deployment.
func (a Awaited) conditions(kind tko.Kind, current []tko.Condition, prepared bool) []tko.Condition {
	const resolved = tko.ConditionResolvedRefs
	if a.isZero() {
		if tko.ConditionIs(current, resolved) != tko.ConditionFalse {
			return nil
		}
		now := []tko.Condition{{Type: resolved, Status: tko.ConditionTrue, Reason: tko.ReasonResolved}}
		if !prepared && tko.HasCondition(current, tko.ConditionPrepared, tko.ReasonWaitsForReferences) {
			now = append(now, tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "NotPrepared"})
		}
		return now
	}
	what := "it is"
	if a.Template != "" && a.Site != "" {
		what = "they are"
	}
	message := fmt.Sprintf("%s: the %s waits until %s registered", a, kind, what)
	now := []tko.Condition{{Type: resolved, Status: tko.ConditionFalse, Reason: tko.ReasonWaitsForReferences, Message: message}}
	if !prepared {
		now = append(now, tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: tko.ReasonWaitsForReferences, Message: message})
	}
	return now
}

// isThere reports whether a caller may refer to an entity. No entity can have an ID that isn't
// valid: it is there, so that using it reports the error.
func (s *core) isThere(ctx context.Context, kind tko.Kind, id string) (bool, error) {
	c, ok := callerOf(ctx)
	if !ok {
		return false, errNotEntered
	}
	if id == "" || CheckKey(Key{Kind: kind, ID: id}) != nil {
		return true, nil //nolint:nilerr // who uses it gets the error
	}
	_, err := s.getVisible(ctx, c, Fields{}, Key{Kind: kind, ID: id})
	if errors.Is(err, tko.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// deferNew takes references to what doesn't exist yet out of the Put of a new deployment, and
// returns them. A deployment that says it is prepared needs all that it refers to.
func (s *RecordWriter) deferNew(ctx context.Context, p *Put) (Awaited, error) {
	state, _, err := deploymentState(p.Package)
	if err != nil || !p.Defer || isTrue(state.Prepared) || isTrue(state.Approved) {
		return Awaited{}, err
	}
	given := func(field string, inPackage *string) string {
		if field == "" && inPackage != nil {
			return *inPackage
		}
		return field
	}
	template, site := given(p.Template, state.Template), given(p.Site, state.Site)
	var a Awaited
	isThere, err := s.isThere(ctx, tko.KindTemplate, template)
	if err == nil && !isThere {
		a.Template, a.Merge, p.Template = template, !p.Whole && p.MadeFrom == "", ""
	}
	if err == nil {
		isThere, err = s.isThere(ctx, tko.KindSite, site)
	}
	if err == nil && !isThere {
		a.Site, p.Site = site, ""
	}
	if err != nil || a.isZero() {
		return a, err
	}
	p.Package = p.Package.WithoutReferences(a.Template != "", a.Site != "")
	return a, nil
}

// resolve returns the template and the site that a changed deployment refers to, and those that
// it waits for. wanted are those that the caller names.
func (s *core) resolve(ctx context.Context, current Record, wanted attributes) (template, site string, a Awaited, err error) {
	was := current.Awaited()
	a.Merge = was.Merge
	template, a.Template, err = s.resolveOne(ctx, tko.KindTemplate, current.Template, was.Template, wanted.template, wanted.deferred)
	if err != nil {
		return "", "", Awaited{}, err
	}
	site, a.Site, err = s.resolveOne(ctx, tko.KindSite, current.Site, was.Site, wanted.site, wanted.deferred)
	return template, site, a, err
}

// resolveOne returns what a changed record refers to, and what it waits for. is and waits are
// those that it had, wants is the one that the caller names, who may name one that doesn't
// exist if deferred is true.
func (s *core) resolveOne(ctx context.Context, kind tko.Kind, is, waits, wants string, deferred bool) (now, awaited string, err error) {
	if !deferred && wants == is && waits != "" { // a caller who doesn't know what is awaited
		wants = waits
	}
	if wants == is || wants != waits && !deferred {
		return wants, "", nil
	}
	isThere, err := s.isThere(ctx, kind, wants)
	if err != nil || isThere {
		return wants, "", err
	}
	return is, wants, nil
}

// mergeInto merges the package of a draft that waited for its template into the template's,
// and returns the resources that were merged. A Deployment resource that says nothing is left
// out: that of the template stays.
func (d *draft) mergeInto(base krm.Package) (given krm.Package, err error) {
	given = d.pkg.WithoutDeploymentState()
	bare := krm.Package(nil).WithDeployment("", "", false, false)
	given = slices.DeleteFunc(slices.Clone(given), func(r krm.Resource) bool {
		return r.GVK() == krm.DeploymentGVK && reflect.DeepEqual(r, bare[0])
	})
	whole, err := startFrom(d.template, base, given)
	if err == nil {
		*d = d.withState(whole)
	}
	return given, err
}
