package rights

import (
	"cmp"
	"context"
	"errors"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Credentials of the server are named by users: in packages of sites and templates, in
// plugins, and in sources. Who names one decides where it is sent. So a use that is new needs
// a declaration of the operator, or a caller with the right credential. Uses that were stored
// before go on.

// Lends reports whether the caller may use credentials without a declaration.
func (c *Caller) Lends() bool {
	grant := c.Grant
	if c.unnamed != nil {
		grant = c.unnamed
	}
	return grant.On(access.Credential, tko.KindSite).IsAll()
}

// usesOf returns how a record uses credentials.
func usesOf(r record.Record) ([]leash.Use, error) {
	switch r.Kind {
	case tko.KindSite, tko.KindTemplate:
		pkg, err := record.PackageOf(r)
		return leash.OfPackage(leash.By{Kind: r.Kind, ID: r.ID}, pkg), err
	case tko.KindRollout:
		pkg, err := record.PackageOf(r)
		return leash.OfRollout(r.ID, pkg), err
	case tko.KindPlugin:
		if len(r.Plugin) == 0 {
			return nil, nil
		}
		p, err := record.PluginOf(r)
		return leash.OfPlugin(p), err
	default:
		return nil, nil
	}
}

// PermitCredentials checks the uses of credentials of records that are written: they must be
// those of the record before, or of its template, or declared, unless the caller has the
// right to use credentials.
func (s *Authorizer) PermitCredentials(ctx context.Context, c *Caller, writes []record.Write) error {
	if s.settings.Access == Off || c.Lends() {
		return nil
	}
	for i := range writes {
		if writes[i].Op != tko.OpWritten {
			continue
		}
		r := writes[i].Record
		uses, err := usesOf(r)
		if err != nil {
			return err
		}
		uses = slices.DeleteFunc(uses, s.settings.Leash.Declares)
		for _, from := range []record.Key{r.Key, {Kind: tko.KindTemplate, ID: r.Template}} {
			if len(uses) == 0 || from.ID == "" {
				continue
			}
			before, err := s.reader.One(ctx, record.Fields{Package: true}, from)
			if err != nil && !errors.Is(err, tko.ErrNotFound) {
				return err
			}
			used, err := usesOf(before)
			if err != nil {
				return err
			}
			uses = Without(uses, used)
		}
		if err := s.RefuseUses(ctx, c, r.Kind, r.ID, uses); err != nil {
			return err
		}
	}
	return nil
}

// Without returns the uses of credentials that others don't make.
func Without(uses, others []leash.Use) []leash.Use {
	return slices.DeleteFunc(uses, func(u leash.Use) bool {
		return slices.ContainsFunc(others, func(o leash.Use) bool { return o.Credential == u.Credential && o.Host == u.Host })
	})
}

// RefuseUses returns the error for uses of credentials that the caller may not make; nil if
// there are none, and in report mode.
func (s *Authorizer) RefuseUses(ctx context.Context, c *Caller, kind tko.Kind, id string, uses []leash.Use) error {
	if len(uses) == 0 {
		return nil
	}
	if err := s.Refuse(ctx, c, tko.KindSite, "", access.Credential); err == nil {
		return nil
	}
	return tko.Errorf(tko.ErrDenied, "%s %q: the use of the credential %s is new, and not declared: %s; or a caller with the role credential writes it", kind, id, uses[0], leash.Remedy(uses[0]))
}

// maxCredentialUses is the most uses that CredentialUses returns.
const maxCredentialUses = 10_000

// CredentialUses returns how sites, templates, plugins, rollouts, subscriptions and registered sources use the
// credentials of the server, by credential, host and kind; with undeclared, only those that
// the operator did not declare. more reports that there are more. It needs the right inspect.
func (s *AccessControl) CredentialUses(ctx context.Context, undeclared bool) (all []tko.CredentialUse, more bool, err error) {
	ctx, _, err = s.rights.Enter(ctx, "", access.Inspect)
	if err != nil {
		return nil, false, err
	}
	found := map[tko.CredentialUse]int{} // places in all
	add := func(uses []leash.Use) {
		for _, u := range uses {
			one := tko.CredentialUse{Credential: u.Credential, Host: u.Host, Kind: u.By.Kind, Declared: s.rights.settings.Leash.Declares(u)}
			if undeclared && one.Declared {
				continue
			}
			i, has := found[one]
			if !has && len(all) == maxCredentialUses {
				more = true
				continue
			}
			if !has {
				i = len(all)
				found[one] = i
				one.Example = u.By.ID
				all = append(all, one)
			}
			all[i].Count++
		}
	}
	for _, kind := range []tko.Kind{tko.KindSite, tko.KindTemplate, tko.KindPlugin, tko.KindRollout} {
		for r, err := range s.rights.store.List(ctx, record.Query{Kind: kind, Scope: access.ScopeAll, Limit: -1, Fields: record.Fields{Package: kind != tko.KindPlugin}}) {
			if err != nil {
				return nil, false, err
			}
			uses, err := usesOf(r)
			if err != nil {
				return nil, false, err
			}
			add(uses)
		}
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, false, err
	}
	for _, d := range book.Sources {
		if s.rights.settings.SourceUses != nil {
			add(s.rights.settings.SourceUses(d))
		}
	}
	for _, d := range book.Subscriptions {
		if s.rights.settings.SubscriptionUses != nil {
			add(s.rights.settings.SubscriptionUses(d.Subscription))
		}
	}
	slices.SortFunc(all, func(a, b tko.CredentialUse) int {
		return cmp.Or(cmp.Compare(a.Credential, b.Credential), cmp.Compare(a.Host, b.Host), cmp.Compare(a.Kind, b.Kind))
	})
	return all, more, nil
}
