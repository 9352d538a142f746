package catalog

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/lru"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/trail"
	"github.com/tko-orchestrator/tko/krm"
)

// The rights of callers are enforced here, once for all transports: each method
// that a transport calls begins with [rights.enter], lists are limited to the
// scope of the caller by the store's query, single entities are checked by the
// same predicate, and each commit carries the version of the rules that permit it.

// rights checks what callers may do and see.
type rights struct {
	validation

	accessLock  lock
	accessRules *ruleBook // nil: not read yet
	claims      *lru.Cache[string, heldClaim]
	refusals    refusals
}

// An AccessMode is how rights are enforced.
type AccessMode string

// The modes.
const (
	AccessOff     AccessMode = "off"     // every caller may do everything
	AccessReport  AccessMode = "report"  // likewise, but what enforce would refuse is logged and audited
	AccessEnforce AccessMode = "enforce" // callers may do what bindings permit
)

// rulesAge is the maximum age of the cached rules of access for reads. Writes read
// the version of the rules in their transaction.
const rulesAge = time.Second

// maxCachedGrants is the maximum number of cached grants.
const maxCachedGrants = 10_000

// A caller is who calls, with its rights.
type caller struct {
	identity identity.Identity
	grant    *access.Grant
	verb     access.Verb // of the request, for the audit log
	// bound reports that the grant depends on the rules of access, so that commits
	// must check their version.
	bound bool
	// verified reports that the identity is the author of changes, whatever the
	// caller claims.
	verified  bool
	reporting bool         // what it may not do is reported, and done nevertheless
	root      string       // the deployment that a plugin works on: it may change its descendants
	author    record.Owner // of the deployment that a plugin works on
	// within is what the author of the deployment may do, to which a plugin's changes of its
	// descendants are limited; nil: they aren't.
	within *access.Grant
	acting *acting // what a controller works for; nil for others, and if it doesn't say so
	claims bool    // the controller must hold the claim of the work on that
	// unnamed is what a controller may write that doesn't say what it works for; nil for
	// others.
	unnamed *access.Grant
	// limit is what a client is bound to that acts as a controller; nil for others.
	limit *access.Grant
}

type callerKey struct{}

// callerOf returns the caller of a request that was entered.
func callerOf(ctx context.Context) (*caller, bool) {
	c, _ := ctx.Value(callerKey{}).(*caller)
	return c, c != nil
}

// enter begins a method: it returns a context with the caller and its rights. A
// caller who may use none of the verbs anywhere on entities of the kind is refused.
func (s *rights) enter(ctx context.Context, kind tko.Kind, verbs ...access.Verb) (context.Context, *caller, error) {
	c, err := s.caller(ctx)
	if err != nil {
		return ctx, nil, err
	}
	c.verb = verbs[0]
	ctx = context.WithValue(ctx, callerKey{}, c)
	if _, confirmed := tko.ConfirmationOf(ctx); confirmed && !mayConsent(ctx) {
		ctx = tko.WithConfirmation(ctx, 0)
	}
	if c.acting != nil && c.acting.held != "" && (kind == tko.KindTemplate || kind == tko.KindSite || verbs[0].Writes()) {
		return ctx, c, s.refuse(ctx, c, kind, "", verbs[0])
	}
	if err := s.checkClaim(ctx, c, verbs[0]); err != nil {
		return ctx, c, err
	}
	if (c.root != "" || c.acting != nil) && kind == tko.KindDeployment || slices.ContainsFunc(verbs, func(v access.Verb) bool { return c.grant.Somewhere(v, kind) }) {
		return ctx, c, nil
	}
	return ctx, c, s.refuse(ctx, c, kind, "", verbs[0])
}

// enterOperator begins a method that holds back or lets go what happens at sites. Users who
// may call them do that; controllers may call sites too, as owners who only read them, and
// are refused.
func (s *rights) enterOperator(ctx context.Context) (context.Context, *caller, error) {
	return s.enterUser(ctx, access.Call)
}

// enterUser begins a method about sites that only users call, and no controller.
func (s *rights) enterUser(ctx context.Context, verb access.Verb) (context.Context, *caller, error) {
	ctx, c, err := s.enter(ctx, tko.KindSite, verb)
	if err == nil && s.options.Access != AccessOff && (c.acting != nil || c.unnamed != nil || c.identity.Role() != "") {
		err = s.refuse(ctx, c, tko.KindSite, "", verb)
	}
	return ctx, c, err
}

// withAllRights returns a context in which a caller may do everything.
func withAllRights(ctx context.Context, c *caller) context.Context {
	own := *c
	own.grant, own.bound, own.unnamed = access.All, false, nil
	return context.WithValue(ctx, callerKey{}, &own)
}

// caller returns the caller of a context with its current rights.
func (s *rights) caller(ctx context.Context) (*caller, error) {
	if c, ok := callerOf(ctx); ok { // a method that another one calls
		again := *c
		return &again, nil
	}
	who, _ := identity.From(ctx)
	c := &caller{identity: who, grant: access.All, reporting: s.options.Access == AccessReport}
	if s.options.Access == AccessOff {
		return c, nil
	}
	c.verified = !who.IsZero()
	if who.Expired(time.Now()) {
		return nil, tko.Errorf(tko.ErrDenied, "the credentials of %q have expired: log in again", who.Subject)
	}
	if role := who.Role(); role != "" {
		c.grant, c.verified = ownGrants[role], tko.AuthorOf(ctx).Who == ""
		return c, s.act(ctx, c, role, nothing)
	}
	if who.IsSetup() {
		c.grant = access.GrantOfRight(access.Bind)
		return c, nil
	}
	rules, err := s.rulesOf(ctx, rulesAge)
	if err != nil {
		return nil, err
	}
	c.bound = s.options.Access == AccessEnforce
	if who.Plugin != nil && who.Plugin.Kind == tko.KindDeployment {
		c.root = who.Plugin.ID
	}
	c.grant = rules.grant(who, s.options.AccessAnonymous, s.options.AccessKubernetes)
	if c.grant.May(access.Impersonate, access.Attributes{}) && tko.AuthorOf(ctx).Who != "" {
		c.verified = false
	}
	if c.root != "" {
		return c, s.asAuthor(ctx, c, rules)
	}
	if role := rules.controller(ctx, who); role != "" {
		return c, s.act(ctx, c, role, rules.withoutControllers(who))
	}
	return c, nil
}

// nothing is what the server's own controllers may write that don't say what they work for.
var nothing = new(access.Grant)

// controller returns the role of a controller that a client is bound to, the one for what the
// call is made for if there are several; "" for other clients.
func (b *ruleBook) controller(ctx context.Context, who identity.Identity) (found string) {
	now := time.Now()
	named, _ := tko.ActingOf(ctx)
	for _, role := range slices.Sorted(maps.Keys(controllerRoles)) {
		bound := slices.ContainsFunc(b.Bindings, func(binding access.Binding) bool {
			return binding.Role == controllerRoles[role] && binding.For(who.Subject, who.Groups, now)
		})
		if bound && (found == "" || actingKinds[role] == named.Kind) {
			found = role
		}
	}
	return found
}

// withoutControllers returns the rights that a client has other than as a controller.
func (b *ruleBook) withoutControllers(who identity.Identity) *access.Grant {
	bindings := access.Without(b.Bindings, slices.Collect(maps.Values(controllerRoles))...)
	return access.Compile(b.Version, bindings, who.Subject, who.Groups, time.Now())
}

// isBound reports whether a client that acts as a controller is bound to a verb on a record.
func (c *caller) isBound(verb access.Verb, r record.Record) bool {
	return c.limit == nil || c.limit.May(verb, record.AttributesOf(r))
}

// may reports whether the caller may use a verb on a record.
func (c *caller) may(verb access.Verb, r record.Record) bool {
	grant := c.grant
	if c.unnamed != nil && changes(verb) {
		grant = c.unnamed
	}
	return grant.May(verb, record.AttributesOf(r))
}

// ownGrants are the rights of our own controllers, by role.
var ownGrants = map[string]*access.Grant{
	identity.RoleServer:    access.All,
	identity.RolePreparer:  access.GrantOf(access.ControllerPrepare),
	identity.RoleScheduler: access.GrantOf(access.ControllerSchedule),
	identity.RoleGitOps:    access.GrantOf(access.ControllerGitOps),
	identity.RoleRollout:   access.GrantOf(access.ControllerRollout),
}

// A ruleBook is the rules of access at a version, with the grants compiled from
// them. It is safe for concurrent use.
type ruleBook struct {
	access.Rules

	approvals map[string]pendingApproval // by deployment
	setups    map[string]setupToken      // by hash
	// enrollments are those of the agents of sites, by ID.
	enrollments map[string]tko.AgentEnrollment
	holds       string // differs if stops or freezes do
	freezes     []tko.Freeze
	stops       []tko.Stop
	sources     []tko.SourceDefinition  // by name
	owners      map[string]record.Owner // of sources
	// subscriptions are sorted by name.
	subscriptions []subscription
	read          time.Time // used with the lock of the service

	grants *lru.Cache[string, *access.Grant] // by caller
}

// rulesOf returns the rules of access, at most as old as age.
func (s *rights) rulesOf(ctx context.Context, age time.Duration) (*ruleBook, error) {
	unlock, err := s.accessLock.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	book, now := s.accessRules, time.Now()
	if book != nil && age > 0 && now.Sub(book.read) < age {
		return book, nil
	}
	if book != nil {
		version, err := s.store.AccessVersion(ctx)
		if err != nil {
			return nil, err
		}
		if version == book.Version {
			book.read = now
			return book, nil
		}
	}
	version, stored, err := s.store.Access(ctx)
	if err != nil {
		return nil, err
	}
	book = &ruleBook{Rules: access.Rules{Version: version}, read: now, grants: lru.New[string, *access.Grant](maxCachedGrants), approvals: map[string]pendingApproval{}, setups: map[string]setupToken{}, owners: map[string]record.Owner{}, enrollments: map[string]tko.AgentEnrollment{}}
	holds := sha256.New()
	for _, r := range stored {
		if r.Kind == record.RuleStop || r.Kind == record.RuleFreeze {
			_, _ = holds.Write(r.Doc) // a hash doesn't fail
		}
		var err error
		switch r.Kind {
		case record.RuleBinding:
			book.Bindings, err = appendRule(book.Bindings, r)
		case record.RulePolicy:
			book.Policies, err = appendRule(book.Policies, r)
		case record.RuleFreeze:
			book.freezes, err = appendRule(book.freezes, r)
		case record.RuleStop:
			book.stops, err = appendRule(book.stops, r)
		case record.RuleApproval:
			err = mapRule(book.approvals, r)
		case record.RuleSource:
			book.sources, err = appendRule(book.sources, r)
		case record.RuleSubscription:
			book.subscriptions, err = appendRule(book.subscriptions, r)
		case record.RuleOwner:
			err = mapRule(book.owners, r)
		case record.RuleSetup:
			err = mapRule(book.setups, r)
		case record.RuleEnrollment:
			err = mapRule(book.enrollments, r)
		}
		if err != nil {
			return nil, fmt.Errorf("the stored %s %q can't be read: %w", r.Kind, r.ID, err)
		}
	}
	book.holds = hex.EncodeToString(holds.Sum(nil))
	s.accessRules = book
	return book, nil
}

// appendRule adds a stored rule to a list.
func appendRule[T any](list []T, r record.AccessRule) ([]T, error) {
	var rule T
	err := json.Unmarshal(r.Doc, &rule)
	return append(list, rule), err
}

// mapRule adds a stored rule to a map, under its ID.
func mapRule[T any](to map[string]T, r record.AccessRule) error {
	var rule T
	err := json.Unmarshal(r.Doc, &rule)
	to[r.ID] = rule
	return err
}

// grant returns the rights of a caller.
func (b *ruleBook) grant(who identity.Identity, anonymous, delegated access.Role) *access.Grant {
	key := who.Authenticator + "\x00" + who.Subject + "\x00" + strings.Join(who.Groups, "\x00")
	if who.IsAnonymous() {
		key = fmt.Sprintf("%s\x00%t", who.Subject, who.IsLocal())
	}
	now := time.Now()
	if g, ok := b.grants.Get(key); ok && (g.Until.IsZero() || now.Before(g.Until)) {
		return g
	}
	bindings := b.Bindings
	switch {
	case who.Plugin != nil:
		bindings = append(slices.Clip(bindings), access.Binding{Subject: who.Subject, Role: access.Viewer})
	case who.Authenticator == identity.Delegated && delegated != "":
		bindings = append(slices.Clip(bindings), access.Binding{Subject: who.Subject, Role: delegated})
	case who.IsAnonymous() && who.IsLocal() && anonymous != "":
		bindings = append(slices.Clip(bindings), access.Binding{Subject: who.Subject, Role: anonymous})
	}
	g := access.Compile(b.Version, bindings, who.Subject, who.Groups, now)
	b.grants.Put(key, g, 1)
	return g
}

// view returns what the caller may read.
func (c *caller) view() access.View {
	if c.reporting {
		return access.ScopeAll
	}
	return c.grant.View()
}

// scope returns the records of a kind that the caller may select for a verb; other
// kinds as it may read them.
func (c *caller) scope(verb access.Verb, kind tko.Kind) access.View {
	if c.reporting {
		return access.ScopeAll
	}
	return c.grant.View().With(kind, c.grant.On(verb, kind))
}

// sees reports whether the caller may read a record. It doesn't see a record that
// doesn't exist.
func (c *caller) sees(r record.Record) bool {
	return r.Revision != 0 && (c.grant.IsAll() || c.reporting || c.acting.is(r) && c.isBound(access.Read, r) || c.grant.May(access.Read, record.AttributesOf(r)))
}

// visible returns a record, or ErrNotFound with the same text if it doesn't exist or
// the caller may not read it.
func (s *rights) visible(c *caller, r record.Record) error {
	if c.sees(r) {
		return nil
	}
	return missing(r.Key)
}

// getVisible returns one record that the caller may read.
func (s *rights) getVisible(ctx context.Context, c *caller, fields record.Fields, key record.Key) (record.Record, error) {
	r, err := s.get(ctx, fields, key)
	if err == nil {
		err = s.visible(c, r)
	}
	if err != nil {
		return record.Record{}, err
	}
	return r, nil
}

// refuse returns the ErrDenied of a request, and logs and audits it. In report mode,
// it returns nil.
func (s *rights) refuse(ctx context.Context, c *caller, kind tko.Kind, id string, verb access.Verb) error {
	what := string(kind)
	switch {
	case kind == "":
		what = "this"
	case id == "":
		what += "s"
	default:
		what += fmt.Sprintf(" %q", id)
	}
	who, remedy := c.identity.Subject, "ask an administrator for a role that permits it (tko access can-i shows what you may)"
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
	if s.options.Access == AccessReport {
		s.log.WarnContext(ctx, "access would be refused", "subject", who, "verb", verb, "kind", kind, "id", id)
		s.refusals.add(ctx, c.record(ctx, kind, id, verb, audit.Report, text))
		return nil
	}
	s.log.InfoContext(ctx, "access refused", "subject", who, "verb", verb, "kind", kind, "id", id)
	s.refusals.add(ctx, c.record(ctx, kind, id, verb, audit.Refuse, text))
	return tko.Errorf(tko.ErrDenied, "%s: %s", text, remedy)
}

func (c *caller) record(ctx context.Context, kind tko.Kind, id string, verb access.Verb, decision, detail string) audit.Record {
	r := audit.Record{Caller: *c.auditCaller(ctx), Kind: string(kind), ID: id, Detail: detail, Why: author(ctx).Why}
	r.Action, r.Decision = string(verb), decision
	return r
}

// auditCaller returns the caller as audit records have it.
func (c *caller) auditCaller(ctx context.Context) *audit.Caller {
	i := c.identity
	a := &audit.Caller{Subject: i.Subject, Authn: i.Authenticator, Claimed: i.Claimed, Source: i.From, Groups: i.Groups, Action: string(c.verb), Request: trail.Request(ctx), Access: c.grant.Version}
	if a.Subject == "" || i.IsAnonymous() {
		if who := tko.AuthorOf(ctx).Who; a.Claimed == "" && who != "" {
			a.Claimed = who
		}
	}
	return a
}

// permit checks that the caller may use one of the verbs on a record as it was
// and as it becomes. Either may be without Revision and ID: it doesn't exist. If the
// caller may not read the record as it was, the error is ErrNotFound.
func (s *rights) permit(ctx context.Context, before, after *record.Record, verbs ...access.Verb) error {
	c, ok := callerOf(ctx)
	if !ok {
		return errNotEntered
	}
	if c.grant.IsAll() {
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
		below, err := s.isBelow(ctx, c.root, r)
		if err != nil {
			return err
		}
		if c.within != nil && !slices.ContainsFunc(verbs, func(v access.Verb) bool { return c.within.May(v, record.AttributesOf(*r)) }) {
			below = false
		}
		if below && (verbs[0] == access.Update || verbs[0] == access.Create || verbs[0] == access.Commit || verbs[0] == access.Delete) {
			continue
		}
		if r == before && !c.sees(*before) {
			if err := s.refuse(ctx, c, r.Kind, r.ID, verbs[0]); err == nil {
				return nil // report mode
			}
			return missing(r.Key)
		}
		return s.refuse(ctx, c, r.Kind, r.ID, verbs[0])
	}
	return nil
}

// errNotEntered is a fault: a method of the catalog wrote or decided without a caller.
var errNotEntered = errors.New("a method of the catalog didn't establish the caller's rights")

// maxAncestors is the maximum number of ancestors that are read.
const maxAncestors = 64

// isBelow reports whether a deployment is root or descends from it.
func (s *rights) isBelow(ctx context.Context, root string, r *record.Record) (bool, error) {
	if root == "" || r.Kind != tko.KindDeployment {
		return false, nil
	}
	id, parent := r.ID, r.Parent
	for range maxAncestors {
		if id == root || parent == root {
			return true, nil
		}
		if parent == "" {
			return false, nil
		}
		above, err := s.get(ctx, record.Fields{}, record.DeploymentKey(tko.DeploymentID(parent)))
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
func (s *rights) isWithin(ctx context.Context, c *caller, r *record.Record, verb access.Verb) (bool, error) {
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

// permitReferences checks that the caller may read the template and site that a record
// newly refers to, and change the parent of a new deployment. What it may not read
// is reported as missing.
func (s *rights) permitReferences(ctx context.Context, before, after *record.Record) error {
	c, ok := callerOf(ctx)
	if !ok {
		return errNotEntered
	}
	if c.grant.IsAll() || c.reporting {
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
		if !c.sees(r) {
			return explain(&record.MissingError{Key: r.Key})
		}
		if r.Kind == tko.KindDeployment {
			if err := s.permit(ctx, &r, nil, access.Update, access.Commit); err != nil {
				return err
			}
		}
	}
	return nil
}

// permitDeletion checks that the caller may delete a record and all its descendants.
func (s *rights) permitDeletion(ctx context.Context, verb access.Verb, keys ...record.Key) error {
	c, ok := callerOf(ctx)
	if !ok {
		return errNotEntered
	}
	if c.grant.IsAll() {
		return nil
	}
	var ids []string
	check := func(keys []record.Key, below bool) (refused int, err error) {
		for batch := range slices.Chunk(keys, selectedPage) {
			records, err := s.store.Get(ctx, record.Fields{}, batch...)
			if err != nil {
				return refused, err
			}
			for _, r := range records {
				if below && r.Revision != 0 {
					if within, err := s.isBelow(ctx, c.root, &r); err != nil {
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
				if err := s.permit(ctx, &r, nil, verb); err != nil {
					return refused, err
				}
				if lost, err := s.lostSight(ctx, c, r); err != nil {
					return refused, err
				} else if lost {
					if err := s.refuse(ctx, c, r.Kind, r.ID, verb); err != nil {
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
	if _, err := check(keys, false); err != nil || len(ids) == 0 || c.grant.On(verb, tko.KindDeployment).IsAll() {
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
	if err := s.refuse(ctx, c, keys[0].Kind, keys[0].ID, verb); err == nil {
		return nil
	}
	return tko.Errorf(tko.ErrDenied, "%s may not %s %d of the descendants: nothing was changed; ask an administrator for a role that permits it", c.identity.Subject, verb, refused)
}

// lostSight reports whether a controller that acts as an owner would delete a deployment
// whose site or template exists and isn't visible to the owner. It isn't unwanted: the owner
// has lost rights, which deletes nothing.
func (s *rights) lostSight(ctx context.Context, c *caller, r record.Record) (bool, error) {
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
	return slices.ContainsFunc(records, func(r record.Record) bool { return r.Revision != 0 && !c.sees(r) }), nil
}

// changeVerb returns the verb for changes of a kind: plugins run programs, so they
// have one of their own.
func changeVerb(kind tko.Kind, verb access.Verb) access.Verb {
	if kind == tko.KindPlugin {
		return access.Register
	}
	return verb
}

// permitWrite checks a write of a whole record: before has Revision 0 if it is new.
func (s *rights) permitWrite(ctx context.Context, before, after record.Record) error {
	if before.Revision == 0 {
		err := s.permit(ctx, nil, &after, changeVerb(after.Kind, access.Create))
		if err == nil {
			err = s.permitReferences(ctx, nil, &after)
		}
		return err
	}
	c, ok := callerOf(ctx)
	if !ok {
		return errNotEntered
	}
	err := s.permit(ctx, nil, &after, changeVerb(after.Kind, access.Update))
	if err == nil && !c.sees(before) { // the same error as for an ID at which the caller may not create
		return s.refuse(ctx, c, after.Kind, after.ID, changeVerb(after.Kind, access.Create))
	}
	if err == nil {
		err = s.permit(ctx, &before, nil, changeVerb(after.Kind, access.Update))
	}
	if err == nil {
		err = s.permitReferences(ctx, &before, &after)
	}
	return err
}

// reveals reports whether the caller may see the values of Secrets in a record.
func (c *caller) reveals(r record.Record) bool {
	return c.grant.IsAll() || c.reporting || (c.acting.holds(r) || c.acting.merges(r) && c.sees(r)) && c.isBound(access.Secret, r) || c.grant.May(access.Secret, record.AttributesOf(r))
}

// redact hides the values of Secrets in a package from callers without the right to
// see them.
func (s *rights) redact(c *caller, r record.Record, pkg krm.Package) krm.Package {
	if pkg == nil || !krm.MayHoldSecrets(r.Package) || c.reveals(r) {
		return pkg
	}
	return pkg.WithoutSecrets()
}

// restore replaces the redacted values of a package that a caller read without the
// right to see them by those of the package before.
func (s *rights) restore(ctx context.Context, before record.Record, pkg krm.Package) (krm.Package, error) {
	c, ok := callerOf(ctx)
	if !ok || before.Revision == 0 || !krm.MayHoldSecrets(before.Package) || c.reveals(before) {
		return pkg, nil
	}
	old, err := record.PackageOf(before)
	if err != nil {
		return nil, err
	}
	restored, _ := pkg.WithSecretsOf(old)
	return restored, nil
}

// reads begins a list.
func (s *rights) reads(ctx context.Context, kind tko.Kind) (context.Context, *Watcher, error) {
	ctx, c, err := s.enter(ctx, kind, access.Read)
	if err != nil {
		return ctx, nil, err
	}
	return ctx, &Watcher{rights: s, caller: c, checked: time.Now()}, nil
}

// restored is restore for the package of a record that is written as a whole.
func (s *rights) restored(ctx context.Context, key record.Key, pkg krm.Package) (krm.Package, error) {
	c, ok := callerOf(ctx)
	if !ok || c.grant.IsAll() || CheckKey(key) != nil {
		return pkg, nil //nolint:nilerr // the write reports the key
	}
	current, err := s.get(ctx, record.Fields{Package: true}, key)
	if err != nil || !c.sees(current) {
		return pkg, err
	}
	return s.restore(ctx, current, pkg)
}

// A ruleChange is a change of the rules of access, with its audit records.
type ruleChange struct {
	put, remove []record.AccessRule
	records     []audit.Record
}

// write adds a rule that is to be written, with its audit record.
func (c *ruleChange) write(kind, id string, doc any, rec audit.Record) error {
	rule, err := ruleOf(kind, id, doc)
	c.put, c.records = append(c.put, rule), append(c.records, rec)
	return err
}

// erase adds a rule that is to be removed.
func (c *ruleChange) erase(kind, id string) {
	c.remove = append(c.remove, record.AccessRule{Kind: kind, ID: id})
}

func (c ruleChange) change() ruleChange { return c }

// A decision has a change of the rules of access: a ruleChange, or what embeds one.
type decision interface{ change() ruleChange }

// changeRules changes the rules as decide says, on the condition that they are still those
// that it was given; otherwise it decides again. decide is a pure function.
func changeRules[D decision](ctx context.Context, s *rights, c *caller, decide func(*ruleBook) (D, error)) (decided D, err error) {
	err = retry(ctx, func() error {
		book, err := s.rulesOf(ctx, 0)
		if err != nil {
			return err
		}
		if c.bound && book.Version != c.grant.Version {
			if same, err := s.renew(ctx, c); err != nil {
				return err
			} else if !same && book.Version != c.grant.Version {
				return final(tko.Errorf(tko.ErrDenied, "the rights of %q have changed: try again", c.identity.Subject))
			}
		}
		if decided, err = decide(book); err != nil {
			return final(err)
		}
		change := decided.change()
		changed := slices.Clone(change.records)
		for i := range changed {
			changed[i].Caller, changed[i].Decision = *c.auditCaller(ctx), audit.Allow
		}
		records := changed
		if !s.options.Audit {
			records = nil
		}
		if _, err := s.store.ChangeAccess(ctx, book.Version, change.put, change.remove, records...); err != nil {
			return err
		}
		for _, rec := range changed {
			s.log.InfoContext(ctx, "rules of access changed", "kind", rec.Kind, "id", rec.ID, "op", rec.Op, "detail", rec.Detail, "who", author(ctx).Who)
		}
		_, err = s.rulesOf(ctx, 0)
		return err
	})
	return decided, err
}

// renew reads the caller's rights again, and reports whether their version is new and
// they permit the same.
func (s *rights) renew(ctx context.Context, c *caller) (same bool, err error) {
	if _, err := s.rulesOf(ctx, 0); err != nil {
		return false, err
	}
	now, err := s.caller(context.WithValue(ctx, callerKey{}, (*caller)(nil)))
	if err != nil {
		return false, err
	}
	if now.grant.Version == c.grant.Version || !now.grant.Same(c.grant) || (now.within == nil) != (c.within == nil) || c.within != nil && !now.within.Same(c.within) {
		return false, nil
	}
	c.grant, c.within, c.limit = now.grant, now.within, now.limit
	return true, nil
}
