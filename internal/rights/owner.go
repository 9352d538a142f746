package rights

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

// OwnerOf returns the owner of what a caller writes; zero if it isn't known who calls.
func OwnerOf(i identity.Identity) record.Owner {
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

// SourceOwner is the prefix of the owners of what sources of the server's settings write.
const SourceOwner = "gitops:"

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
func (s *Authorizer) storedOwner(ctx context.Context, r record.Record) (o record.Owner, err error) {
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

// OwnerOfRecord returns the owner of a record: its own one, or that of its nearest ancestor
// that has one; zero if there is none.
func (s *Authorizer) OwnerOfRecord(ctx context.Context, r record.Record) (record.Owner, error) {
	for range MaxAncestors {
		if r.Owner != (record.Digest{}) {
			return s.storedOwner(ctx, r)
		}
		if r.Kind != tko.KindDeployment || r.Parent == "" {
			return record.Owner{}, nil
		}
		above, err := s.reader.One(ctx, record.Fields{}, record.DeploymentKey(tko.DeploymentID(r.Parent)))
		if err != nil {
			return record.Owner{}, err
		}
		if above.Revision == 0 {
			return record.Owner{}, nil
		}
		r = above
	}
	return record.Owner{}, tko.Errorf(tko.ErrDenied, "deployment %q has more than %d ancestors, so its owner isn't known", r.ID, MaxAncestors)
}

// OwnerFor returns the owner of what a controller works for; zero if it has none.
func (s *Authorizer) OwnerFor(ctx context.Context, a tko.Acting) (record.Owner, error) {
	switch a.Kind {
	case tko.KindDeployment, tko.KindRollout:
		key := record.Key{Kind: a.Kind, ID: a.ID}
		if record.CheckKey(key) != nil {
			return record.Owner{}, nil //nolint:nilerr // there is no such record
		}
		r, err := s.reader.One(ctx, record.Fields{}, key)
		if err != nil || r.Revision == 0 { // if it was deleted, nothing can be derived from it
			return record.Owner{}, err
		}
		return s.OwnerOfRecord(ctx, r)
	case tko.KindSource, tko.KindSubscription, tko.KindTemplate, tko.KindSite, tko.KindPlugin:
	}
	book, err := s.RulesOf(ctx, Age)
	if err != nil {
		return record.Owner{}, err
	}
	return book.OwnerOfSource(a.ID), nil
}

// OwnerOfSource returns the owner of a source; zero if it is registered and has none.
func (b *Book) OwnerOfSource(name string) record.Owner {
	d, registered := b.Definition(name)
	if o, owned := b.owners[name]; owned {
		return o
	}
	if registered && d.Parent != "" { // a repository declares it
		return b.OwnerOfSource(d.Parent) // which isn't declared itself
	}
	if registered {
		return record.Owner{}
	}
	return record.Owner{Subject: SourceOwner + name}
}

// OwnerRule returns the rule that says who owns a registered source.
func OwnerRule(source string, o record.Owner) (record.AccessRule, error) {
	return ruleOf(record.RuleOwner, source, o)
}

// EraseSource adds the definition of a source, which is to be removed, with its owner.
func (c *Change) EraseSource(book *Book, name string) {
	c.Erase(record.RuleSource, name)
	if _, owned := book.owners[name]; owned {
		c.Erase(record.RuleOwner, name)
	}
}

// setSourceOwner changes who owns a registered source.
func (s *Owners) setSourceOwner(ctx context.Context, c *Caller, name string, o record.Owner) error {
	by := Author(ctx)
	_, err := ChangeRules(ctx, s.rights, c, func(book *Book) (change Change, err error) {
		if _, found := book.Definition(name); !found {
			return change, tko.Errorf(tko.ErrNotFound, "source %q: not registered", name)
		}
		return change, change.Write(record.RuleOwner, name, o, audit.Record{Kind: record.RuleSource, ID: name, Op: "owned", Detail: o.String(), Why: by.Why})
	})
	if err != nil {
		return err
	}
	return s.rights.store.EnqueueWork(ctx, tko.QueueGitOps, []string{name}, false)
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
func (s *Authorizer) act(ctx context.Context, c *Caller, role string, unnamed *access.Grant) error {
	kind, acts := actingKinds[role]
	if !acts {
		return nil
	}
	named, ok := tko.ActingOf(ctx)
	c.claims = ok && c.Identity.Authenticator != identity.Process && !isCalled(ctx, named)
	if !ok || named.Kind != kind || c.claims && named.Claim == "" { // a name alone gives no rights
		c.unnamed = unnamed
		return nil
	}
	o, err := s.OwnerFor(ctx, named)
	if err != nil {
		return err
	}
	return s.actAs(ctx, c, role, named, o)
}

// actAs gives a controller the rights of an owner.
func (s *Authorizer) actAs(ctx context.Context, c *Caller, role string, named tko.Acting, o record.Owner) error {
	c.acting, c.unnamed = &acting{Acting: named, owner: o, role: "the owner of"}, nil
	if c.Identity.Role() == "" { // a client that is bound to the role, perhaps within a scope
		c.limit = c.Grant
	}
	if role == identity.RolePreparer {
		c.Grant = c.Grant.Discarding()
	}
	if o.IsZero() {
		return nil
	}
	rules, err := s.RulesOf(ctx, Age)
	if err != nil {
		return err
	}
	c.Bound = s.settings.Access == Enforce
	own, unlimited, held := s.OwnerGrant(rules, o)
	if unlimited {
		c.Grant = c.Grant.At(rules.Version)
		return nil
	}
	c.Grant, c.acting.held = own.Acting(controllerRoles[role]), held
	if c.limit != nil {
		c.Grant = c.Grant.Within(c.limit)
	}
	return nil
}

// OwnerGrant returns the rights of an owner. unlimited reports that it is a source of the
// server's settings that no binding limits: it may do what its controller may. held says
// why the owner's rights can't be known, or that it has none.
func (s *Authorizer) OwnerGrant(b *Book, o record.Owner) (g *access.Grant, unlimited bool, held string) {
	named := func(binding access.Binding) bool { return binding.Subject == o.Subject }
	if len(o.Subject) > len(SourceOwner) && o.Subject[:len(SourceOwner)] == SourceOwner && !slices.ContainsFunc(b.Bindings, named) {
		return nil, true, ""
	}
	who := o.Identity()
	g = b.grant(who, s.settings.AccessAnonymous, s.settings.AccessKubernetes)
	if !o.Seen.IsZero() && s.settings.OwnerGroups > 0 && time.Since(o.Seen) > s.settings.OwnerGroups+24*time.Hour {
		who.Groups = nil
		if without := b.grant(who, s.settings.AccessAnonymous, s.settings.AccessKubernetes); !without.Same(g) {
			return without, false, fmt.Sprintf("the groups of its owner %q are those of %s, and are kept for %s (--owner-groups): edit it again, or name an owner (tko access own)",
				o, o.Seen.Format(time.DateOnly), s.settings.OwnerGroups)
		}
	}
	if g.IsNothing() {
		held = fmt.Sprintf("its owner %q has no rights any more: bind it to a role, or name another owner (tko access own)", o)
	}
	return g, false, held
}

// ActFor returns a context whose call is for a deployment, unless the caller has named what
// it is for. Only calls of controllers depend on that.
func ActFor(ctx context.Context, id tko.DeploymentID) context.Context {
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
func (s *Authorizer) checkClaim(ctx context.Context, c *Caller, verb access.Verb) error {
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
	if soon := time.Now().Add(Age); soon.Before(until) {
		until = soon
	}
	s.claims.Put(key, heldClaim{claim, until}, 1)
	return nil
}

// asAuthor gives the run of a plugin the rights of the owner of its deployment, in addition
// to what the plugin is bound. Without an owner, it keeps those that it has.
func (s *Authorizer) asAuthor(ctx context.Context, c *Caller, rules *Book) error {
	o, err := s.OwnerFor(ctx, tko.Acting{Kind: tko.KindDeployment, ID: c.Root})
	if err != nil || o.IsZero() {
		return err
	}
	c.author = o
	own, unlimited, held := s.OwnerGrant(rules, o)
	switch {
	case unlimited:
		return nil
	case held != "":
		return tko.Errorf(tko.ErrDenied, "deployment %q: %s", c.Root, held)
	}
	c.within = own.Acting(access.Plugin)
	c.Grant = access.Compile(rules.Version, rules.Bindings, c.Identity.Subject, c.Identity.Groups, time.Now()).AsPlugin(own)
	return nil
}

// stampOwner sets the owner of a record that is to be written. The caller who changes the
// content of a record owns it from then on. What a controller writes belongs to the owner of
// what it works for: children have the owner of their parent, which isn't stored again.
func (c *Caller) stampOwner(w *record.Write) {
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
	case c.Root != "":
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
func (c *Caller) owner() record.Owner {
	o := OwnerOf(c.Identity)
	if o.Local && !c.Bound {
		return record.Owner{}
	}
	return o
}

// ownerOfWaiting returns the owner of a site: nothing is derived from one that doesn't wait for
// its template, which has none.
func (c *Caller) ownerOfWaiting(site record.Record) record.Owner {
	switch {
	case site.Awaited().IsZero():
		return record.Owner{}
	case c.acting != nil:
		return c.acting.owner
	case c.Root != "":
		return c.author
	}
	return c.owner()
}

// KeepsOwner reports whether a change of a record leaves what controllers derive from as it
// is: its package, template and site, and those that it waits for.
func KeepsOwner(before, after record.Record) bool {
	return before.Awaited() == after.Awaited() && before.Revision != 0 && before.Digest == after.Digest && before.Template == after.Template && before.Site == after.Site && before.Parent == after.Parent
}

// Owners says as whom controllers derive from entities.
type Owners struct{ rights *Authorizer }

// Owners returns the part that manages owners.
func (s *Authorizer) Owners() *Owners { return &Owners{s} }

// Owner returns the owner of a deployment, a rollout, a registered source, or a site that waits
// for its template.
func (s *Owners) Owner(ctx context.Context, kind tko.Kind, id string) (tko.Owner, error) {
	if kind != tko.KindSource && !mayHaveOwner(kind) {
		if _, _, err := s.rights.Enter(ctx, tko.KindDeployment, access.Read); err != nil {
			return tko.Owner{}, err
		}
	}
	if kind == tko.KindSource {
		ctx, _, err := s.rights.Enter(ctx, "", access.Inspect)
		if err != nil {
			return tko.Owner{}, err
		}
		book, err := s.rights.RulesOf(ctx, 0)
		if err != nil {
			return tko.Owner{}, err
		}
		if _, found := book.Definition(id); !found {
			return tko.Owner{}, tko.Errorf(tko.ErrNotFound, "source %q: not registered", id)
		}
		return book.OwnerOfSource(id).Public(), nil
	}
	key, err := ownedKey(kind, id)
	if err != nil {
		return tko.Owner{}, err
	}
	ctx, c, err := s.rights.Enter(ctx, kind, access.Read)
	if err != nil {
		return tko.Owner{}, err
	}
	r, err := s.rights.GetVisible(ctx, c, record.Fields{}, key)
	if err == nil {
		err = checkOwned(r)
	}
	if err != nil {
		return tko.Owner{}, err
	}
	o, err := s.rights.OwnerOfRecord(ctx, r)
	return o.Public(), err
}

func ownedKey(kind tko.Kind, id string) (record.Key, error) {
	key := record.Key{Kind: kind, ID: id}
	if !mayHaveOwner(kind) {
		return key, tko.Errorf(tko.ErrInvalid, "a %.40q has no owner: use deployment, rollout, source or site", string(kind))
	}
	if record.CheckKey(key) != nil {
		return key, record.Missing(key)
	}
	return key, nil
}

// SetOwner makes a subject, or a group, the owner of a deployment, a rollout, a registered
// source, or a site that waits for its template: of a deployment with its descendants, except
// for those that others have edited.
func (s *Owners) SetOwner(ctx context.Context, kind tko.Kind, id string, to tko.Owner) error {
	ctx, c, err := s.rights.Enter(ctx, "", access.Own)
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
	return record.Retry(ctx, func() error {
		r, err := s.rights.reader.One(ctx, record.Fields{Package: true}, key)
		if err != nil {
			return err
		}
		if err := s.rights.Visible(c, r); err != nil {
			return record.Final(err)
		}
		if err := checkOwned(r); err != nil {
			return record.Final(err)
		}
		r.Own(o)
		r.Author = Author(ctx)
		if r.Author.Why == "" {
			r.Author.Why = fmt.Sprintf("its owner is %s", o)
		}
		_, err = s.rights.Commit(ctx, record.Write{Op: tko.OpWritten, Record: r, Expect: r.Revision, Position: r.Position, KeepsOwner: true})
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
	ctx, _, err = s.rights.Enter(ctx, "", access.Bind)
	if err != nil {
		return n, err
	}
	return s.rights.countOwned(ctx, binding)
}

// countOwned is CountOwned for a caller that may bind.
func (s *Authorizer) countOwned(ctx context.Context, binding string) (n tko.Owned, err error) {
	book, err := s.RulesOf(ctx, 0)
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
	for _, d := range book.Sources {
		if gives(book.OwnerOfSource(d.Name)) {
			n.Sources++
		}
	}
	return n, nil
}

// confirmUnbinding returns an error if controllers would no longer derive from entities, because
// a binding gives their owners rights, and the caller didn't confirm their number.
func (s *Authorizer) confirmUnbinding(ctx context.Context, binding string) error {
	if s.settings.Access != Enforce {
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

// AsOwner returns a context in which the rollout controller sees what the owner of a
// rollout sees. Without an owner, the context is as it was. The error is an ErrDenied if the
// rights of the owner aren't known.
func (s *Authorizer) AsOwner(ctx context.Context, r record.Record) (context.Context, error) {
	o, err := s.OwnerOfRecord(ctx, r)
	if err != nil {
		return ctx, err
	}
	return s.As(ctx, r.ID, o, "the owner of")
}

// As returns a context in which the rollout controller has the rights of an owner, who is that of the
// rollout or another person; role says which, in errors: "the owner of".
func (s *Authorizer) As(ctx context.Context, rollout string, o record.Owner, role string) (context.Context, error) {
	c, ok := CallerOf(ctx)
	if !ok {
		return ctx, ErrNotEntered
	}
	if s.settings.Access == Off || o.IsZero() {
		return ctx, nil
	}
	own := *c
	if err := s.actAs(ctx, &own, identity.RoleRollout, tko.Acting{Kind: tko.KindRollout, ID: rollout}, o); err != nil {
		return ctx, err
	}
	own.acting.role = role
	if held := own.acting.held; held != "" && !own.reporting {
		return ctx, tko.Errorf(tko.ErrDenied, "rollout %q is held: %s", rollout, held)
	}
	return withCaller(ctx, &own), nil
}

// AsOwnerOfSite returns a context in which the caller has the rights of the owner of a site that waits, and
// the owner. It returns an ErrDenied if those aren't known.
func (s *Authorizer) AsOwnerOfSite(ctx context.Context, c *Caller, site record.Record) (context.Context, record.Owner, error) {
	o, err := s.OwnerOfRecord(ctx, site)
	if err != nil {
		return ctx, o, err
	}
	own := *c
	own.acting, own.unnamed, own.limit, own.claims = nil, nil, nil, false
	if s.settings.Access == Off {
		return withCaller(ctx, &own), o, nil
	}
	if o.IsZero() && !own.reporting {
		return ctx, o, tko.Errorf(tko.ErrDenied, "who named the template isn't known: name an owner (tko access own site %s SUBJECT)", site.ID)
	}
	book, err := s.RulesOf(ctx, Age)
	if err != nil {
		return ctx, o, err
	}
	own.Bound = s.settings.Access == Enforce
	grant, unlimited, held := s.OwnerGrant(book, o)
	switch {
	case unlimited: // a source of the server's settings
		own.Grant = controllerGrants[identity.RoleGitOps].At(book.Version)
	case held != "" && !own.reporting:
		return ctx, o, tko.Errorf(tko.ErrDenied, "its owner %s, who named the template, lacks rights: bind it to a role, or name another owner (tko access own site %s SUBJECT)", o, site.ID)
	default:
		own.Grant = grant
	}
	return withCaller(ctx, &own), o, nil
}

// AsOwnerOfSubscription returns a context in which the caller is the owner of a subscription, with the
// rights that it has now. It returns an ErrDenied if it has none.
func (s *Authorizer) AsOwnerOfSubscription(ctx context.Context, book *Book, d StoredSubscription) (context.Context, *Caller, error) {
	c := &Caller{Identity: d.Owns.Identity(), Grant: access.All, reporting: s.settings.Access == Report, verified: true}
	if s.settings.Access == Enforce {
		own, unlimited, held := s.OwnerGrant(book, d.Owns)
		switch {
		case d.Owns.IsZero():
			return ctx, nil, tko.Errorf(tko.ErrDenied, "subscription %q has no owner, because it was registered without rights: register it again", d.Name)
		case held != "":
			return ctx, nil, tko.Errorf(tko.ErrDenied, "subscription %q is held: %s", d.Name, held)
		case !unlimited:
			c.Grant, c.Bound = own, true
		}
	}
	return withCaller(identity.With(ctx, c.Identity), c), c, nil
}
