package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Controllers derive from entities as their owners: the callers who wrote the revisions.
// This file decides who that is. A call of a controller names what it works for
// ([tko.WithActing]), or changes one deployment, which names it. Then the call has the
// rights of the owner, as the rules of access are at the commit: lists, gets, views and
// writes need no checks of their own.

// ownerOf returns the owner of what a caller writes; zero if it isn't known who calls.
func ownerOf(i identity.Identity) record.Owner {
	switch {
	case i.IsZero(), i.Role() != "", i.Plugin != nil, i.IsSetup(), i.IsAnonymous() && !i.IsLocal():
		return record.Owner{}
	}
	o := record.Owner{Subject: i.Subject, Groups: slices.Clone(i.Groups), Delegated: i.Authenticator == identity.Delegated, Local: i.IsAnonymous()}
	if len(o.Groups) > 0 {
		o.Seen = time.Now().UTC().Truncate(24 * time.Hour)
	}
	return o
}

// sourceOwner is the prefix of the owners of what sources of the server's settings write.
const sourceOwner = "gitops:"

// hasOwner reports whether all records of a kind have owners: controllers derive from them.
func hasOwner(kind tko.Kind) bool { return kind == tko.KindDeployment || kind == tko.KindRollout }

// mayHaveOwner reports whether records of a kind may have owners: from a site, controllers
// derive while it waits for its template.
func mayHaveOwner(kind tko.Kind) bool { return hasOwner(kind) || kind == tko.KindSite }

// checkOwned returns an ErrInvalid if nothing is derived from a record, so that it has no owner.
func checkOwned(r record.Record) error {
	if r.Kind == tko.KindSite && r.Awaited().IsZero() {
		return tko.Errorf(tko.ErrInvalid, "site %q has no owner, because nothing is derived from it: only a site that waits for its template has one", r.ID)
	}
	return nil
}

// storedOwner returns the owner that a record has itself; zero if it has none.
func (s *validation) storedOwner(ctx context.Context, r record.Record) (o record.Owner, err error) {
	if r.Owner == (record.Digest{}) {
		return record.Owner{}, nil
	}
	doc := r.Owned
	if doc == nil {
		if doc, err = s.store.Derivation(ctx, r.Owner); err != nil {
			return record.Owner{}, fmt.Errorf("read the owner of %s %q: %w", r.Kind, r.ID, err)
		}
	}
	if err := json.Unmarshal(doc, &o); err != nil {
		return record.Owner{}, fmt.Errorf("read the owner of %s %q: %w", r.Kind, r.ID, err)
	}
	return o, nil
}

// ownerOfRecord returns the owner of a record: its own one, or that of its nearest ancestor
// that has one; zero if there is none.
func (s *validation) ownerOfRecord(ctx context.Context, r record.Record) (record.Owner, error) {
	for range maxAncestors {
		if r.Owner != (record.Digest{}) {
			return s.storedOwner(ctx, r)
		}
		if r.Kind != tko.KindDeployment || r.Parent == "" {
			return record.Owner{}, nil
		}
		above, err := s.get(ctx, record.Fields{}, record.DeploymentKey(tko.DeploymentID(r.Parent)))
		if err != nil {
			return record.Owner{}, err
		}
		if above.Revision == 0 {
			return record.Owner{}, nil
		}
		r = above
	}
	return record.Owner{}, tko.Errorf(tko.ErrDenied, "deployment %q has more than %d ancestors, so its owner isn't known", r.ID, maxAncestors)
}

// ownerFor returns the owner of what a controller works for; zero if it has none.
func (s *rights) ownerFor(ctx context.Context, a tko.Acting) (record.Owner, error) {
	switch a.Kind {
	case tko.KindDeployment, tko.KindRollout:
		key := record.Key{Kind: a.Kind, ID: a.ID}
		if CheckKey(key) != nil {
			return record.Owner{}, nil //nolint:nilerr // there is no such record
		}
		r, err := s.get(ctx, record.Fields{}, key)
		if err != nil || r.Revision == 0 { // if it was deleted, nothing can be derived from it
			return record.Owner{}, err
		}
		return s.ownerOfRecord(ctx, r)
	case tko.KindSource, tko.KindSubscription, tko.KindTemplate, tko.KindSite, tko.KindPlugin:
	}
	book, err := s.rulesOf(ctx, rulesAge)
	if err != nil {
		return record.Owner{}, err
	}
	return book.ownerOfSource(a.ID), nil
}

// ownerOfSource returns the owner of a source; zero if it is registered and has none.
func (b *ruleBook) ownerOfSource(name string) record.Owner {
	d, registered := b.definition(name)
	if o, owned := b.owners[name]; owned {
		return o
	}
	if registered && d.Parent != "" { // a repository declares it
		return b.ownerOfSource(d.Parent) // which isn't declared itself
	}
	if registered {
		return record.Owner{}
	}
	return record.Owner{Subject: sourceOwner + name}
}

// ownerRule returns the rule that says who owns a registered source.
func ownerRule(source string, o record.Owner) (record.AccessRule, error) {
	return ruleOf(record.RuleOwner, source, o)
}

// eraseSource adds the definition of a source, which is to be removed, with its owner.
func (c *ruleChange) eraseSource(book *ruleBook, name string) {
	c.erase(record.RuleSource, name)
	if _, owned := book.owners[name]; owned {
		c.erase(record.RuleOwner, name)
	}
}

// setSourceOwner changes who owns a registered source.
func (s *Owners) setSourceOwner(ctx context.Context, c *caller, name string, o record.Owner) error {
	by := author(ctx)
	_, err := changeRules(ctx, &s.rights, c, func(book *ruleBook) (change ruleChange, err error) {
		if _, found := book.definition(name); !found {
			return change, tko.Errorf(tko.ErrNotFound, "source %q: not registered", name)
		}
		return change, change.write(record.RuleOwner, name, o, audit.Record{Kind: record.RuleSource, ID: name, Op: "owned", Detail: o.String(), Why: by.Why})
	})
	if err != nil {
		return err
	}
	return s.store.EnqueueWork(ctx, tko.QueueGitOps, []string{name}, false)
}

// An acting is what a controller works for, and as whom.
type acting struct {
	tko.Acting

	owner record.Owner // zero: it has none, and the controller acts with its own rights
	role  string       // of the owner: "the owner of", or "who started"
	held  string       // why the rights of the owner aren't known, or what it lost; "" if they are
}

// is reports whether a record is what the controller works for.
func (a *acting) is(r record.Record) bool { return a != nil && a.Kind == r.Kind && a.ID == r.ID }

// merges reports whether the controller makes packages from a record: a source from
// templates, which shows its owner no more than creating a deployment from them does.
func (a *acting) merges(r record.Record) bool {
	return a != nil && a.Kind == tko.KindSource && r.Kind == tko.KindTemplate
}

// holds reports whether a record is what the controller works for, or a child of it.
func (a *acting) holds(r record.Record) bool {
	return a.is(r) || a != nil && a.Kind == tko.KindDeployment && r.Kind == tko.KindDeployment && r.Parent == a.ID
}

// actingKinds are what controllers work for, by role: writes that name nothing are refused.
var actingKinds = map[string]tko.Kind{
	identity.RolePreparer: tko.KindDeployment,
	identity.RoleGitOps:   tko.KindSource,
	identity.RoleRollout:  tko.KindRollout,
}

// controllerRoles are the roles of bindings by role of controllers.
var controllerRoles = map[string]access.Role{
	identity.RolePreparer: access.ControllerPrepare,
	identity.RoleGitOps:   access.ControllerGitOps,
	identity.RoleRollout:  access.ControllerRollout,
}

// act gives a controller the rights of the owner of what it works for.
func (s *rights) act(ctx context.Context, c *caller, role string, unnamed *access.Grant) error {
	kind, acts := actingKinds[role]
	if !acts {
		return nil
	}
	named, ok := tko.ActingOf(ctx)
	c.claims = ok && c.identity.Authenticator != identity.Process && !isCalled(ctx, named)
	if !ok || named.Kind != kind || c.claims && named.Claim == "" { // a name alone gives no rights
		c.unnamed = unnamed
		return nil
	}
	o, err := s.ownerFor(ctx, named)
	if err != nil {
		return err
	}
	return s.actAs(ctx, c, role, named, o)
}

// actAs gives a controller the rights of an owner.
func (s *rights) actAs(ctx context.Context, c *caller, role string, named tko.Acting, o record.Owner) error {
	c.acting, c.unnamed = &acting{Acting: named, owner: o, role: "the owner of"}, nil
	if c.identity.Role() == "" { // a client that is bound to the role, perhaps within a scope
		c.limit = c.grant
	}
	if role == identity.RolePreparer {
		c.grant = c.grant.Discarding()
	}
	if o.IsZero() {
		return nil
	}
	rules, err := s.rulesOf(ctx, rulesAge)
	if err != nil {
		return err
	}
	c.bound = s.options.Access == AccessEnforce
	own, unlimited, held := rules.ownerGrant(o, s.options)
	if unlimited {
		c.grant = c.grant.At(rules.Version)
		return nil
	}
	c.grant, c.acting.held = own.Acting(controllerRoles[role]), held
	if c.limit != nil {
		c.grant = c.grant.Within(c.limit)
	}
	return nil
}

// ownerGrant returns the rights of an owner. unlimited reports that it is a source of the
// server's settings that no binding limits: it may do what its controller may. held says
// why the owner's rights can't be known, or that it has none.
func (b *ruleBook) ownerGrant(o record.Owner, options Options) (g *access.Grant, unlimited bool, held string) {
	named := func(binding access.Binding) bool { return binding.Subject == o.Subject }
	if len(o.Subject) > len(sourceOwner) && o.Subject[:len(sourceOwner)] == sourceOwner && !slices.ContainsFunc(b.Bindings, named) {
		return nil, true, ""
	}
	who := o.Identity()
	g = b.grant(who, options.AccessAnonymous, options.AccessKubernetes)
	if !o.Seen.IsZero() && options.OwnerGroups > 0 && time.Since(o.Seen) > options.OwnerGroups+24*time.Hour {
		who.Groups = nil
		if without := b.grant(who, options.AccessAnonymous, options.AccessKubernetes); !without.Same(g) {
			return without, false, fmt.Sprintf("the groups of its owner %q are those of %s, and are kept for %s (--owner-groups): edit it again, or name an owner (tko access own)",
				o, o.Seen.Format(time.DateOnly), options.OwnerGroups)
		}
	}
	if g.IsNothing() {
		held = fmt.Sprintf("its owner %q has no rights any more: bind it to a role, or name another owner (tko access own)", o)
	}
	return g, false, held
}

// actFor returns a context whose call is for a deployment, unless the caller has named what
// it is for. Only calls of controllers depend on that.
func actFor(ctx context.Context, id tko.DeploymentID) context.Context {
	if _, named := tko.ActingOf(ctx); named || id == "" {
		return ctx
	}
	called := tko.Acting{Kind: tko.KindDeployment, ID: string(id)}
	return context.WithValue(tko.WithActing(ctx, called), calledKey{}, called)
}

type calledKey struct{}

// isCalled reports whether the call itself is about what a controller works for: a
// deployment that it commits, whose token it holds, or that it names as a parent.
func isCalled(ctx context.Context, named tko.Acting) bool {
	called, ok := ctx.Value(calledKey{}).(tko.Acting)
	return ok && called == named
}

// A heldClaim is a claim that its worker held at a time.
type heldClaim struct {
	claim string
	until time.Time // until when it isn't read again
}

// maxCachedClaims is the maximum number of cached claims.
const maxCachedClaims = 10_000

// actingQueues are the queues whose work is on what controllers work for.
var actingQueues = map[tko.Kind]string{
	tko.KindDeployment: tko.QueuePrepare,
	tko.KindSource:     tko.QueueGitOps,
	tko.KindRollout:    tko.QueueRollout,
}

// checkClaim returns an ErrConflict if a controller in another process would change something
// for what it names, and no longer holds the claim of the work on it.
func (s *rights) checkClaim(ctx context.Context, c *caller, verb access.Verb) error {
	if !c.claims || c.acting == nil || !changes(verb) {
		return nil
	}
	a := c.acting
	key := string(a.Kind) + "/" + a.ID
	if known, ok := s.claims.Get(key); ok && known.claim == a.Claim && time.Now().Before(known.until) {
		return nil
	}
	claim, until, err := s.store.WorkClaim(ctx, actingQueues[a.Kind], a.ID)
	switch {
	case errors.Is(err, tko.ErrNotFound), err == nil && claim != a.Claim:
		return tko.Errorf(tko.ErrConflict, "the work on %s %q is no longer claimed by the caller: claim it again", a.Kind, a.ID)
	case err != nil:
		return err
	}
	if soon := time.Now().Add(rulesAge); soon.Before(until) {
		until = soon
	}
	s.claims.Put(key, heldClaim{claim, until}, 1)
	return nil
}

// asAuthor gives the run of a plugin the rights of the owner of its deployment, in addition
// to what the plugin is bound. Without an owner, it keeps those that it has.
func (s *rights) asAuthor(ctx context.Context, c *caller, rules *ruleBook) error {
	o, err := s.ownerFor(ctx, tko.Acting{Kind: tko.KindDeployment, ID: c.root})
	if err != nil || o.IsZero() {
		return err
	}
	c.author = o
	own, unlimited, held := rules.ownerGrant(o, s.options)
	switch {
	case unlimited:
		return nil
	case held != "":
		return tko.Errorf(tko.ErrDenied, "deployment %q: %s", c.root, held)
	}
	c.within = own.Acting(access.Plugin)
	c.grant = access.Compile(rules.Version, rules.Bindings, c.identity.Subject, c.identity.Groups, time.Now()).AsPlugin(own)
	return nil
}

// stampOwner sets the owner of a record that is to be written. The caller who changes the
// content of a record owns it from then on. What a controller writes belongs to the owner of
// what it works for: children have the owner of their parent, which isn't stored again.
func (c *caller) stampOwner(w *record.Write) {
	r := &w.Record
	if w.Op != tko.OpWritten || w.KeepsOwner {
		return
	}
	if r.Kind == tko.KindSite {
		r.Own(c.ownerOfWaiting(*r))
		return
	}
	if !hasOwner(r.Kind) {
		return
	}
	created := w.Expect == record.Absent
	switch {
	case c.acting != nil:
		if c.acting.Kind == tko.KindDeployment && r.Kind == tko.KindDeployment {
			if created {
				r.Own(record.Owner{})
			}
			return
		}
		r.Own(c.acting.owner)
	case c.root != "":
		if created && r.Parent != "" {
			r.Own(record.Owner{})
		} else if created {
			r.Own(c.author)
		}
	default:
		if o := c.owner(); !o.IsZero() {
			r.Own(o)
		}
	}
}

// owner returns the owner of what the caller writes; zero if it isn't known who that is, as of
// an anonymous caller without rights.
func (c *caller) owner() record.Owner {
	o := ownerOf(c.identity)
	if o.Local && !c.bound {
		return record.Owner{}
	}
	return o
}

// ownerOfWaiting returns the owner of a site: nothing is derived from one that doesn't wait for
// its template, which has none.
func (c *caller) ownerOfWaiting(site record.Record) record.Owner {
	switch {
	case site.Awaited().IsZero():
		return record.Owner{}
	case c.acting != nil:
		return c.acting.owner
	case c.root != "":
		return c.author
	}
	return c.owner()
}

// keepsOwner reports whether a change of a record leaves what controllers derive from as it
// is: its package, template and site, and those that it waits for.
func keepsOwner(before, after record.Record) bool {
	return before.Awaited() == after.Awaited() && before.Revision != 0 && before.Digest == after.Digest && before.Template == after.Template && before.Site == after.Site && before.Parent == after.Parent
}

// Owners says as whom controllers derive from entities.
type Owners struct{ *core }

// Owner returns the owner of a deployment, a rollout, a registered source, or a site that waits
// for its template.
func (s *Owners) Owner(ctx context.Context, kind tko.Kind, id string) (tko.Owner, error) {
	if kind != tko.KindSource && !mayHaveOwner(kind) {
		if _, _, err := s.enter(ctx, tko.KindDeployment, access.Read); err != nil {
			return tko.Owner{}, err
		}
	}
	if kind == tko.KindSource {
		ctx, _, err := s.enter(ctx, "", access.Inspect)
		if err != nil {
			return tko.Owner{}, err
		}
		book, err := s.rulesOf(ctx, 0)
		if err != nil {
			return tko.Owner{}, err
		}
		if _, found := book.definition(id); !found {
			return tko.Owner{}, tko.Errorf(tko.ErrNotFound, "source %q: not registered", id)
		}
		return book.ownerOfSource(id).Public(), nil
	}
	key, err := ownedKey(kind, id)
	if err != nil {
		return tko.Owner{}, err
	}
	ctx, c, err := s.enter(ctx, kind, access.Read)
	if err != nil {
		return tko.Owner{}, err
	}
	r, err := s.getVisible(ctx, c, record.Fields{}, key)
	if err == nil {
		err = checkOwned(r)
	}
	if err != nil {
		return tko.Owner{}, err
	}
	o, err := s.ownerOfRecord(ctx, r)
	return o.Public(), err
}

func ownedKey(kind tko.Kind, id string) (record.Key, error) {
	key := record.Key{Kind: kind, ID: id}
	if !mayHaveOwner(kind) {
		return key, tko.Errorf(tko.ErrInvalid, "a %.40q has no owner: use deployment, rollout, source or site", string(kind))
	}
	if CheckKey(key) != nil {
		return key, missing(key)
	}
	return key, nil
}

// SetOwner makes a subject, or a group, the owner of a deployment, a rollout, a registered
// source, or a site that waits for its template: of a deployment with its descendants, except
// for those that others have edited.
func (s *Owners) SetOwner(ctx context.Context, kind tko.Kind, id string, to tko.Owner) error {
	ctx, c, err := s.enter(ctx, "", access.Own)
	if err != nil {
		return err
	}
	if err := checkOwner(to); err != nil {
		return err
	}
	o := record.Owner{Subject: to.Subject, Groups: to.Groups}
	if kind == tko.KindSource {
		return s.setSourceOwner(ctx, c, id, o)
	}
	key, err := ownedKey(kind, id)
	if err != nil {
		return err
	}
	return retry(ctx, func() error {
		r, err := s.get(ctx, record.Fields{Package: true}, key)
		if err != nil {
			return err
		}
		if err := s.visible(c, r); err != nil {
			return final(err)
		}
		if err := checkOwned(r); err != nil {
			return final(err)
		}
		r.Own(o)
		r.Author = author(ctx)
		if r.Author.Why == "" {
			r.Author.Why = fmt.Sprintf("its owner is %s", o)
		}
		_, err = s.commit(ctx, record.Write{Op: tko.OpWritten, Record: r, Expect: r.Revision, Position: r.Position, KeepsOwner: true})
		return err
	})
}

// checkOwner checks who is to be an owner. The error is an ErrInvalid.
func checkOwner(o tko.Owner) error {
	switch {
	case (o.Subject == "") == (len(o.Groups) == 0), len(o.Groups) > 1:
		return tko.Errorf(tko.ErrInvalid, "an owner is a subject or a group: give one of them")
	case o.Subject != "" && !identity.IsSubject(o.Subject):
		return tko.Errorf(tko.ErrInvalid, "the owner %.80q is no subject of a client: use one as tko whoami shows it, such as oidc:ISSUER:ID, or a group (--group)", o.Subject)
	}
	for _, g := range o.Groups {
		if len(g) > maxOwnerName || !record.Storable(g) {
			return tko.Errorf(tko.ErrInvalid, "the group %.80q is too long, or not plain text", g)
		}
	}
	return nil
}

const maxOwnerName = 512

// CountOwned counts the entities whose owners a binding gives rights that they have from no
// other one: what controllers derive from them may stop without it. An unknown binding gives none.
func (s *Owners) CountOwned(ctx context.Context, binding string) (n tko.Owned, err error) {
	ctx, _, err = s.enter(ctx, "", access.Bind)
	if err != nil {
		return n, err
	}
	return s.countOwned(ctx, binding)
}

// countOwned is CountOwned for a caller that may bind.
func (s *core) countOwned(ctx context.Context, binding string) (n tko.Owned, err error) {
	book, err := s.rulesOf(ctx, 0)
	if err != nil {
		return n, err
	}
	i := slices.IndexFunc(book.Bindings, func(b access.Binding) bool { return b.ID == binding })
	if i < 0 {
		return n, nil
	}
	now, others := time.Now(), slices.Delete(slices.Clone(book.Bindings), i, i+1)
	gives := func(o record.Owner) bool {
		if o.IsZero() || !book.Bindings[i].For(o.Subject, o.Groups, now) {
			return false
		}
		rights := func(bindings []access.Binding) *access.Grant {
			return access.Compile(book.Version, bindings, o.Subject, o.Groups, now)
		}
		return !rights(book.Bindings).Same(rights(others))
	}
	known := map[record.Digest]bool{} // few owners own many entities
	for _, kind := range []tko.Kind{tko.KindDeployment, tko.KindSite, tko.KindRollout} {
		for r, err := range s.store.List(ctx, record.Query{Kind: kind, Scope: access.ScopeAll, Limit: -1}) {
			if err != nil {
				return n, err
			}
			if r.Owner == (record.Digest{}) {
				continue
			}
			counts, read := known[r.Owner]
			if !read {
				o, err := s.storedOwner(ctx, r)
				if err != nil {
					return n, err
				}
				counts = gives(o)
				known[r.Owner] = counts
			}
			switch {
			case !counts:
			case kind == tko.KindRollout:
				n.Rollouts++
			case kind == tko.KindSite:
				n.Sites++
			default:
				n.Deployments++
			}
		}
	}
	for _, d := range book.sources {
		if gives(book.ownerOfSource(d.Name)) {
			n.Sources++
		}
	}
	return n, nil
}

// confirmUnbinding returns an error if controllers would no longer derive from entities, because
// a binding gives their owners rights, and the caller didn't confirm their number.
func (s *core) confirmUnbinding(ctx context.Context, binding string) error {
	if s.options.Access != AccessEnforce {
		return nil // derivation needs no rights
	}
	owned, err := s.countOwned(ctx, binding)
	if err != nil || owned.Count() == 0 {
		return err
	}
	confirmed, ok := tko.ConfirmationOf(ctx)
	if ok && tko.Consents(confirmed, owned.Count()) {
		return nil
	}
	but := ""
	if ok {
		but = fmt.Sprintf(", but %d were confirmed", confirmed)
	}
	return tko.Errorf(tko.ErrInvalid, "the owner of %s has rights by the binding %q%s: what is derived from them is held without it; nothing was changed; name another owner (tko access own), or confirm %d to proceed (--confirm=%[4]d)",
		owned, binding, but, owned.Count())
}
