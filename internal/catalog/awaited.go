package catalog

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
)

// conditionsOfAwaited returns the conditions that report what a record waits for. current are those that
// it has. Those of a site, which isn't prepared, are those of a prepared deployment.
func conditionsOfAwaited(a record.Awaited, kind tko.Kind, current []tko.Condition, prepared bool) []tko.Condition {
	const resolved = tko.ConditionResolvedRefs
	if a.IsZero() {
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
	c, ok := rights.CallerOf(ctx)
	if !ok {
		return false, rights.ErrNotEntered
	}
	if id == "" || record.CheckKey(record.Key{Kind: kind, ID: id}) != nil {
		return true, nil //nolint:nilerr // who uses it gets the error
	}
	_, err := s.rights.GetVisible(ctx, c, record.Fields{}, record.Key{Kind: kind, ID: id})
	if errors.Is(err, tko.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}

// deferNew takes references to what doesn't exist yet out of the Put of a new deployment, and
// returns them. A deployment that says it is prepared needs all that it refers to.
func (s *RecordWriter) deferNew(ctx context.Context, p *Put) (record.Awaited, error) {
	state, _, err := deploymentState(p.Package)
	if err != nil || !p.Defer || isTrue(state.Prepared) || isTrue(state.Approved) {
		return record.Awaited{}, err
	}
	given := func(field string, inPackage *string) string {
		if field == "" && inPackage != nil {
			return *inPackage
		}
		return field
	}
	template, site := given(p.Template, state.Template), given(p.Site, state.Site)
	var a record.Awaited
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
	if err != nil || a.IsZero() {
		return a, err
	}
	p.Package = p.Package.WithoutReferences(a.Template != "", a.Site != "")
	return a, nil
}

// resolve returns the template and the site that a changed deployment refers to, and those that
// it waits for. wanted are those that the caller names.
func (s *core) resolve(ctx context.Context, current record.Record, wanted attributes) (template, site string, a record.Awaited, err error) {
	was := current.Awaited()
	a.Merge = was.Merge
	template, a.Template, err = s.resolveOne(ctx, tko.KindTemplate, current.Template, was.Template, wanted.template, wanted.deferred)
	if err != nil {
		return "", "", record.Awaited{}, err
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
