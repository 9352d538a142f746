package rights

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// The rights of callers are enforced here, once for all transports: each method
// that a transport calls begins with [Authorizer.Enter], lists are limited to the
// scope of the caller by the store's query, single entities are checked by the
// same predicate, and each commit carries the version of the rules that permit it.

// An Authorizer checks what callers may do and see, and reads and commits records for them.
type Authorizer struct {
	reader record.Lookup

	store    record.Store
	settings Settings
	log      *slog.Logger

	accessLock  pause.Mutex
	accessRules *Book       // nil: not read yet
	accessRead  time.Time   // when the store last said that they are the newest
	changing    pause.Mutex // is held by changes of the rules: those of one server don't conflict with each other
	claims      *lru.Cache[string, heldClaim]
	refusals    refusals
	// replacing commits writes, with what they require, unless a stop of the book holds them.
	replacing func(context.Context, *Book, []record.Write) ([]record.Outcome, error)
}

// New returns an Authorizer on a store. replacing commits writes, with what they require, and
// without those that a stop of the book holds; the caller's rights have been checked.
func New(store record.Store, settings Settings, replacing func(context.Context, *Book, []record.Write) ([]record.Outcome, error)) *Authorizer {
	return &Authorizer{
		reader: record.Lookup{Store: store}, store: store, settings: settings, log: settings.Log,
		claims:   lru.New[string, heldClaim](maxCachedClaims),
		refusals: refusals{refused: settings.Refused, store: store, enabled: settings.Audit, log: settings.Log}, replacing: replacing,
	}
}

// Enter begins a method: it returns a context with the caller and its rights. A
// caller who may use none of the verbs anywhere on entities of the kind is refused.
func (s *Authorizer) Enter(ctx context.Context, kind tko.Kind, verbs ...access.Verb) (context.Context, *Caller, error) {
	c, err := s.Caller(ctx)
	if err != nil {
		return ctx, nil, err
	}
	c.verb = verbs[0]
	ctx = withCaller(ctx, c)
	if _, confirmed := tko.ConfirmationOf(ctx); confirmed && !mayConsent(ctx) {
		ctx = tko.WithConfirmation(ctx, 0)
	}
	if c.acting != nil && c.acting.held != "" && (kind == tko.KindTemplate || kind == tko.KindSite || verbs[0].Writes()) {
		return ctx, c, s.Refuse(ctx, c, kind, "", verbs[0])
	}
	if err := s.checkClaim(ctx, c, verbs[0]); err != nil {
		return ctx, c, err
	}
	if (c.Root != "" || c.acting != nil) && kind == tko.KindDeployment || slices.ContainsFunc(verbs, func(v access.Verb) bool { return c.Grant.Somewhere(v, kind) }) {
		return ctx, c, nil
	}
	return ctx, c, s.Refuse(ctx, c, kind, "", verbs[0])
}

// EnterOperator begins a method that holds back or lets go what happens at sites. Users who
// may call them do that; controllers may call sites too, as owners who only read them, and
// are refused.
func (s *Authorizer) EnterOperator(ctx context.Context) (context.Context, *Caller, error) {
	return s.EnterUser(ctx, access.Call)
}

// EnterUser begins a method about sites that only users call, and no controller.
func (s *Authorizer) EnterUser(ctx context.Context, verb access.Verb) (context.Context, *Caller, error) {
	ctx, c, err := s.Enter(ctx, tko.KindSite, verb)
	if err == nil && s.settings.Access != Off && (c.acting != nil || c.unnamed != nil || c.Identity.Role() != "") {
		err = s.Refuse(ctx, c, tko.KindSite, "", verb)
	}
	return ctx, c, err
}

// Caller returns the caller of a context with its current rights.
func (s *Authorizer) Caller(ctx context.Context) (*Caller, error) {
	if c, ok := CallerOf(ctx); ok { // a method that another one calls
		again := *c
		return &again, nil
	}
	who, _ := identity.From(ctx)
	c := &Caller{Identity: who, Grant: access.All, reporting: s.settings.Access == Report}
	if s.settings.Access == Off {
		return c, nil
	}
	c.verified = !who.IsZero()
	if who.Expired(time.Now()) {
		return nil, tko.Errorf(tko.ErrDenied, "the credentials of %q have expired: log in again", who.Subject)
	}
	if role := who.Role(); role != "" {
		c.Grant, c.verified = controllerGrants[role], tko.AuthorOf(ctx).Who == ""
		return c, s.act(ctx, c, role, nothing)
	}
	if who.IsSetup() {
		c.Grant = access.GrantOfRight(access.Bind)
		return c, nil
	}
	rules, err := s.RulesOf(ctx, Age)
	if err != nil {
		return nil, err
	}
	c.Bound = s.settings.Access == Enforce
	if who.Plugin != nil && who.Plugin.Kind == tko.KindDeployment {
		c.Root = who.Plugin.ID
	}
	c.Grant = rules.grant(who, s.settings.AccessAnonymous, s.settings.AccessKubernetes)
	if c.Grant.May(access.Impersonate, access.Attributes{}) && tko.AuthorOf(ctx).Who != "" {
		c.verified = false
	}
	if c.Root != "" {
		return c, s.asAuthor(ctx, c, rules)
	}
	if role := rules.controller(ctx, who); role != "" {
		return c, s.act(ctx, c, role, rules.withoutControllers(who))
	}
	return c, nil
}

// Visible returns a record, or ErrNotFound with the same text if it doesn't exist or
// the caller may not read it.
func (s *Authorizer) Visible(c *Caller, r record.Record) error {
	if c.Sees(r) {
		return nil
	}
	return record.Missing(r.Key)
}

// GetVisible returns one record that the caller may read.
func (s *Authorizer) GetVisible(ctx context.Context, c *Caller, fields record.Fields, key record.Key) (record.Record, error) {
	r, err := s.reader.One(ctx, fields, key)
	if err == nil {
		err = s.Visible(c, r)
	}
	if err != nil {
		return record.Record{}, err
	}
	return r, nil
}

// Refuse returns the ErrDenied of a request, and logs and audits it. In report mode,
// it returns nil.
func (s *Authorizer) Refuse(ctx context.Context, c *Caller, kind tko.Kind, id string, verb access.Verb) error {
	what := string(kind)
	switch {
	case kind == "":
		what = "this"
	case id == "":
		what += "s"
	default:
		what += fmt.Sprintf(" %q", id)
	}
	who, remedy := c.Identity.Subject, "ask an administrator for a role that permits it (tko access can-i shows what you may)"
	if who == "" {
		who = "a caller without an identity"
	}
	text := fmt.Sprintf("%s may not %s %s", who, verb, what)
	switch {
	case c.unnamed != nil && changes(verb):
		text += " without naming the deployment, rollout or source that it works for"
		remedy = "make the call for one: as its children, with its modification token, or with the claim of its work (tko-for and tko-claim)"
	case c.acting != nil && c.acting.held != "":
		text, remedy = fmt.Sprintf("%s %q is held", c.acting.Kind, c.acting.ID), c.acting.held
	case c.acting != nil && !c.acting.owner.IsZero():
		text = fmt.Sprintf("%s, %s %s %q, may not %s %s", c.acting.owner, c.acting.role, c.acting.Kind, c.acting.ID, verb, what)
		remedy = fmt.Sprintf("give %s a role that permits it, or name another owner (tko access own)", c.acting.owner)
	}
	if s.settings.Access == Report {
		s.log.WarnContext(ctx, "access would be refused", "subject", who, "verb", verb, "kind", kind, "id", id)
		s.refusals.add(ctx, c.record(ctx, kind, id, verb, audit.Report, text))
		return nil
	}
	s.log.InfoContext(ctx, "access refused", "subject", who, "verb", verb, "kind", kind, "id", id)
	s.refusals.add(ctx, c.record(ctx, kind, id, verb, audit.Refuse, text))
	return tko.Errorf(tko.ErrDenied, "%s: %s", text, remedy)
}

// Permit checks that the caller may use one of the verbs on a record as it was
// and as it becomes. Either may be without Revision and ID: it doesn't exist. If the
// caller may not read the record as it was, the error is ErrNotFound.
func (s *Authorizer) Permit(ctx context.Context, before, after *record.Record, verbs ...access.Verb) error {
	c, ok := CallerOf(ctx)
	if !ok {
		return ErrNotEntered
	}
	if c.Grant.IsAll() {
		return nil
	}
	for _, r := range []*record.Record{before, after} {
		if r == nil {
			continue
		}
		if slices.ContainsFunc(verbs, func(v access.Verb) bool { return c.may(v, *r) }) {
			within, err := s.isWithin(ctx, c, r, verbs[0])
			if err != nil {
				return err
			}
			if within {
				continue
			}
		}
		below, err := s.isBelow(ctx, c.Root, r)
		if err != nil {
			return err
		}
		if c.within != nil && !slices.ContainsFunc(verbs, func(v access.Verb) bool { return c.within.May(v, record.AttributesOf(*r)) }) {
			below = false
		}
		if below && (verbs[0] == access.Update || verbs[0] == access.Create || verbs[0] == access.Commit || verbs[0] == access.Delete) {
			continue
		}
		if r == before && !c.Sees(*before) {
			if err := s.Refuse(ctx, c, r.Kind, r.ID, verbs[0]); err == nil {
				return nil // report mode
			}
			return record.Missing(r.Key)
		}
		return s.Refuse(ctx, c, r.Kind, r.ID, verbs[0])
	}
	return nil
}

// ErrNotEntered is a fault: a method of the catalog wrote or decided without a caller.
var ErrNotEntered = errors.New("a method of the catalog didn't establish the caller's rights")

// MaxAncestors is the maximum number of ancestors that are read.
const MaxAncestors = 64

// isBelow reports whether a deployment is root or descends from it.
func (s *Authorizer) isBelow(ctx context.Context, root string, r *record.Record) (bool, error) {
	if root == "" || r.Kind != tko.KindDeployment {
		return false, nil
	}
	id, parent := r.ID, r.Parent
	for range MaxAncestors {
		if id == root || parent == root {
			return true, nil
		}
		if parent == "" {
			return false, nil
		}
		above, err := s.reader.One(ctx, record.Fields{}, record.DeploymentKey(tko.DeploymentID(parent)))
		if err != nil {
			return false, err
		}
		id, parent = above.ID, above.Parent
	}
	return false, nil
}

// changes reports whether a verb changes entities that users own, or conditions on them.
func changes(verb access.Verb) bool { return verb.Writes() || verb == access.Condition }

// isWithin reports whether a write of a record is within what the caller works for: a
// controller that works for a deployment changes that and its descendants, and sets
// conditions on these only.
func (s *Authorizer) isWithin(ctx context.Context, c *Caller, r *record.Record, verb access.Verb) (bool, error) {
	switch {
	case c.acting == nil:
		return true, nil
	case verb == access.Condition && (c.acting.Kind != tko.KindDeployment || r.Kind != tko.KindDeployment): // of the other controllers and the server
		return false, nil
	case c.acting.Kind != tko.KindDeployment || r.Kind != tko.KindDeployment || !changes(verb):
		return true, nil
	}
	return s.isBelow(ctx, c.acting.ID, r)
}

// PermitReferences checks that the caller may read the template and site that a record
// newly refers to, and change the parent of a new deployment. What it may not read
// is reported as missing.
func (s *Authorizer) PermitReferences(ctx context.Context, before, after *record.Record) error {
	c, ok := CallerOf(ctx)
	if !ok {
		return ErrNotEntered
	}
	if c.Grant.IsAll() || c.reporting {
		return nil
	}
	var keys []record.Key
	if before == nil || before.Template != after.Template {
		keys = append(keys, record.References(after.Template, "")...)
	}
	if before == nil || before.Site != after.Site {
		keys = append(keys, record.References("", after.Site)...)
	}
	if before == nil && after.Parent != "" {
		keys = append(keys, record.DeploymentKey(tko.DeploymentID(after.Parent)))
	}
	if len(keys) == 0 {
		return nil
	}
	records, err := s.store.Get(ctx, record.Fields{}, keys...)
	if err != nil {
		return err
	}
	for _, r := range records {
		if !c.Sees(r) {
			return record.Explain(&record.MissingError{Key: r.Key})
		}
		if r.Kind == tko.KindDeployment {
			if err := s.Permit(ctx, &r, nil, access.Update, access.Commit); err != nil {
				return err
			}
		}
	}
	return nil
}

// PermitDeletion checks that the caller may delete a record and all its descendants.
func (s *Authorizer) PermitDeletion(ctx context.Context, verb access.Verb, keys ...record.Key) error {
	c, ok := CallerOf(ctx)
	if !ok {
		return ErrNotEntered
	}
	if c.Grant.IsAll() {
		return nil
	}
	var ids []string
	check := func(keys []record.Key, below bool) (refused int, err error) {
		for batch := range slices.Chunk(keys, record.SelectedPage) {
			records, err := s.store.Get(ctx, record.Fields{}, batch...)
			if err != nil {
				return refused, err
			}
			for _, r := range records {
				if below && r.Revision != 0 {
					if within, err := s.isBelow(ctx, c.Root, &r); err != nil {
						return refused, err
					} else if !within && !c.may(verb, r) || within && c.within != nil && !c.within.May(verb, record.AttributesOf(r)) {
						refused++
					} else if lost, err := s.lostSight(ctx, c, r); err != nil {
						return refused, err
					} else if lost {
						refused++
					}
					continue
				}
				if r.Revision == 0 && !below {
					continue
				}
				if err := s.Permit(ctx, &r, nil, verb); err != nil {
					return refused, err
				}
				if lost, err := s.lostSight(ctx, c, r); err != nil {
					return refused, err
				} else if lost {
					if err := s.Refuse(ctx, c, r.Kind, r.ID, verb); err != nil {
						return refused, err
					}
				}
				if r.Kind == tko.KindDeployment {
					ids = append(ids, r.ID)
				}
			}
		}
		return refused, nil
	}
	if _, err := check(keys, false); err != nil || len(ids) == 0 || c.Grant.On(verb, tko.KindDeployment).IsAll() {
		return err
	}
	var below []record.Key
	seen := map[string]bool{}
	err := s.store.Descendants(ctx, ids, func(id string) {
		if !seen[id] {
			seen[id] = true
			below = append(below, record.DeploymentKey(tko.DeploymentID(id)))
		}
	})
	if err != nil {
		return err
	}
	refused, err := check(below, true)
	if err != nil || refused == 0 {
		return err
	}
	if err := s.Refuse(ctx, c, keys[0].Kind, keys[0].ID, verb); err == nil {
		return nil
	}
	return tko.Errorf(tko.ErrDenied, "%s may not %s %d of the descendants: nothing was changed; ask an administrator for a role that permits it", c.Identity.Subject, verb, refused)
}

// lostSight reports whether a controller that acts as an owner would delete a deployment
// whose site or template exists and isn't visible to the owner. It isn't unwanted: the owner
// has lost rights, which deletes nothing.
func (s *Authorizer) lostSight(ctx context.Context, c *Caller, r record.Record) (bool, error) {
	if c.acting == nil || c.acting.owner.IsZero() || r.Kind != tko.KindDeployment || c.reporting {
		return false, nil
	}
	keys := record.References(r.Template, r.Site)
	if len(keys) == 0 {
		return false, nil
	}
	records, err := s.store.Get(ctx, record.Fields{}, keys...)
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(records, func(r record.Record) bool { return r.Revision != 0 && !c.Sees(r) }), nil
}

// ChangeVerb returns the verb for changes of a kind: plugins run programs, so they
// have one of their own.
func ChangeVerb(kind tko.Kind, verb access.Verb) access.Verb {
	if kind == tko.KindPlugin {
		return access.Register
	}
	return verb
}

// PermitWrite checks a write of a whole record: before has Revision 0 if it is new.
func (s *Authorizer) PermitWrite(ctx context.Context, before, after record.Record) error {
	if before.Revision == 0 {
		err := s.Permit(ctx, nil, &after, ChangeVerb(after.Kind, access.Create))
		if err == nil {
			err = s.PermitReferences(ctx, nil, &after)
		}
		return err
	}
	c, ok := CallerOf(ctx)
	if !ok {
		return ErrNotEntered
	}
	err := s.Permit(ctx, nil, &after, ChangeVerb(after.Kind, access.Update))
	if err == nil && !c.Sees(before) { // the same error as for an ID at which the caller may not create
		return s.Refuse(ctx, c, after.Kind, after.ID, ChangeVerb(after.Kind, access.Create))
	}
	if err == nil {
		err = s.Permit(ctx, &before, nil, ChangeVerb(after.Kind, access.Update))
	}
	if err == nil {
		err = s.PermitReferences(ctx, &before, &after)
	}
	return err
}

// Redact hides the values of Secrets in a package from callers without the right to
// see them.
func (s *Authorizer) Redact(c *Caller, r record.Record, pkg krm.Package) krm.Package {
	if pkg == nil || !krm.MayHoldSecrets(r.Package) || c.Reveals(r) {
		return pkg
	}
	return pkg.WithoutSecrets()
}

// Restore replaces the redacted values of a package that a caller read without the
// right to see them by those of the package before.
func (s *Authorizer) Restore(ctx context.Context, before record.Record, pkg krm.Package) (krm.Package, error) {
	c, ok := CallerOf(ctx)
	if !ok || before.Revision == 0 || !krm.MayHoldSecrets(before.Package) || c.Reveals(before) {
		return pkg, nil
	}
	old, err := record.PackageOf(before)
	if err != nil {
		return nil, err
	}
	restored, _ := pkg.WithSecretsOf(old)
	return restored, nil
}

// Reads begins a list.
func (s *Authorizer) Reads(ctx context.Context, kind tko.Kind) (context.Context, *Watcher, error) {
	ctx, c, err := s.Enter(ctx, kind, access.Read)
	if err != nil {
		return ctx, nil, err
	}
	return ctx, &Watcher{authorizer: s, caller: c, checked: time.Now()}, nil
}

// Restored is [Authorizer.Restore] for the package of a record that is written as a whole.
func (s *Authorizer) Restored(ctx context.Context, key record.Key, pkg krm.Package) (krm.Package, error) {
	c, ok := CallerOf(ctx)
	if !ok || c.Grant.IsAll() || record.CheckKey(key) != nil {
		return pkg, nil //nolint:nilerr // the write reports the key
	}
	current, err := s.reader.One(ctx, record.Fields{Package: true}, key)
	if err != nil || !c.Sees(current) {
		return pkg, err
	}
	return s.Restore(ctx, current, pkg)
}

// RefuseApproval writes the audit record of an approval that a policy refused, for a reason.
func (s *Authorizer) RefuseApproval(ctx context.Context, c *Caller, r record.Record, reason string) {
	s.refusals.add(ctx, c.record(ctx, r.Kind, r.ID, access.Approve, audit.Refuse, reason))
}
