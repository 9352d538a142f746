package catalog

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// Reasons of the ResolvedRefs condition of sites, if their template exists.
const (
	reasonUnresolvable = "Invalid" // the site would not be valid with it
	reasonSiteHeld     = "Held"    // the owner of the site lacks rights
)

// derivedSite derives and validates the site of a Put, which may name a template that doesn't
// exist yet.
func (s *RecordWriter) derivedSite(ctx context.Context, p Put, current record.Record, passed map[string]string) (record.Record, []record.Key, error) {
	template, awaited, err := s.references.resolveOne(ctx, tko.KindTemplate, current.Template, current.Awaited().Template, p.Template, p.Defer)
	if err != nil {
		return record.Record{}, nil, err
	}
	waits := record.Awaited{Template: awaited, Merge: awaited != "" && !p.Whole}
	site := tko.Site{ID: tko.SiteID(p.Key.ID), Template: tko.TemplateID(template), Details: p.Details, Metadata: passed, Package: p.Package}
	derive := s.registry.siteRecord
	if awaited != "" && template == "" {
		derive = s.registry.partialSite
	}
	rec, requires, err := derive(ctx, nil, site, p.Whole)
	if err == nil {
		rec.Await(waits)
	}
	return rec, requires, err
}

// siteConditions returns the conditions of a changed site.
func siteConditions(current, rec record.Record) []tko.Condition {
	now := condition.OfAwaited(rec.Awaited(), tko.KindSite, current.Conditions, true)
	return condition.Merge(warnedAfter(current, rec), now, current.Revision+1, time.Now())
}

// ResolveSite makes a site use the template that it waits for, if that exists: as the owner of
// the site, who wrote it, as if the owner registered it now. It reports whether the site still
// waits. If it can't use the template, its condition ResolvedRefs reports why.
func (s *RecordWriter) ResolveSite(ctx context.Context, id tko.SiteID) (waits bool, err error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Prepare)
	if err != nil {
		return false, err
	}
	key := record.Key{Kind: tko.KindSite, ID: string(id)}
	if record.CheckKey(key) != nil {
		return false, record.Missing(key)
	}
	current, err := s.rights.GetVisible(ctx, c, record.Fields{Package: true}, key)
	if err != nil || current.Awaited().Template == "" {
		return false, err
	}
	own, who, err := s.asSiteOwner(ctx, c, current)
	if err == nil {
		if waits, err = s.resolveSite(own, current); errors.Is(err, tko.ErrDenied) {
			err = fmt.Errorf("with the rights of %s, who named the template: %w", who, err)
		}
	}
	reason := reasonSiteHeld
	switch {
	case errors.Is(err, tko.ErrInvalid):
		reason = reasonUnresolvable
	case !errors.Is(err, tko.ErrDenied):
		return waits, err
	}
	now := []tko.Condition{{
		Type: tko.ConditionResolvedRefs, Status: tko.ConditionFalse, Reason: reason,
		Message: fmt.Sprintf("it can't use the template %q: %s", current.Awaited().Template, err), ObservedRevision: current.Revision,
	}}
	if is := tko.FindCondition(current.Conditions, tko.ConditionResolvedRefs); is != nil && is.Reason == reason && is.Message == now[0].Message {
		return true, nil
	}
	return true, s.statuses.setConditions(rights.WithAllRights(ctx, c), key, now, nil, record.Requirement{})
}

// resolveSite is ResolveSite in a context of the owner of the site.
func (s *RecordWriter) resolveSite(ctx context.Context, current record.Record) (waits bool, err error) {
	awaited := current.Awaited()
	isThere, err := s.references.isThere(ctx, tko.KindTemplate, awaited.Template)
	if err != nil || !isThere {
		return true, err
	}
	pkg, err := record.PackageOf(current)
	if err != nil {
		return true, err
	}
	_, _, err = s.PutRecord(ctx, Put{
		Key: current.Key, Template: awaited.Template, Metadata: current.Effective(), Labels: current.Labels(), Attached: current.Attached(),
		Details: current.Details, Package: pkg, Whole: !awaited.Merge, Defer: true, Require: record.Requirement{Revision: current.Revision},
	})
	return err != nil, err
}

// asSiteOwner returns a context in which the caller has the rights of the owner of a site that
// waits, and says why it changes it, and the owner.
func (s *RecordWriter) asSiteOwner(ctx context.Context, c *rights.Caller, site record.Record) (context.Context, record.Owner, error) {
	if by := tko.AuthorOf(ctx); by.Why == "" {
		ctx = tko.WithAuthor(ctx, tko.Author{Who: by.Who, Why: "what it waited for exists now"})
	}
	return s.rights.AsOwnerOfSite(ctx, c, site)
}
