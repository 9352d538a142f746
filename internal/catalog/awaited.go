package catalog

import (
	"context"
	"errors"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/content"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// references resolve which templates and sites entities refer to.
type references struct {
	rights *rights.Authorizer // tells what a caller may refer to
}

// isThere reports whether a caller may refer to an entity. No entity can have an ID that isn't
// valid: it is there, so that using it reports the error.
func (s *references) isThere(ctx context.Context, kind tko.Kind, id string) (bool, error) {
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
	state, _, err := content.StateOf(p.Package)
	if err != nil || !p.Defer || content.IsTrue(state.Prepared) || content.IsTrue(state.Approved) {
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
	isThere, err := s.references.isThere(ctx, tko.KindTemplate, template)
	if err == nil && !isThere {
		a.Template, a.Merge, p.Template = template, !p.Whole && p.MadeFrom == "", ""
	}
	if err == nil {
		isThere, err = s.references.isThere(ctx, tko.KindSite, site)
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
func (s *references) resolve(ctx context.Context, current record.Record, wanted attributes) (template, site string, a record.Awaited, err error) {
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
func (s *references) resolveOne(ctx context.Context, kind tko.Kind, is, waits, wants string, deferred bool) (now, awaited string, err error) {
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
