package rights

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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
)

// Age is the maximum age of the cached rules of access for reads. Writes read
// the version of the rules in their transaction.
const Age = time.Second

// maxCachedGrants is the maximum number of cached grants.
const maxCachedGrants = 10_000

// controller returns the role of a controller that a client is bound to, the one for what the
// call is made for if there are several; "" for other clients.
func (b *Book) controller(ctx context.Context, who identity.Identity) (found string) {
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
func (b *Book) withoutControllers(who identity.Identity) *access.Grant {
	bindings := access.Without(b.Bindings, slices.Collect(maps.Values(controllerRoles))...)
	return access.Compile(b.Version, bindings, who.Subject, who.Groups, time.Now())
}

// A Book is the rules of access at a version, with the grants compiled from
// them. It is safe for concurrent use.
type Book struct {
	access.Rules

	Approvals map[string]PendingApproval // by deployment
	setups    map[string]setupToken      // by hash
	// Enrollments are those of the agents of sites, by ID.
	Enrollments map[string]tko.AgentEnrollment
	Holds       string // differs if stops or freezes do
	Freezes     []tko.Freeze
	Stops       []tko.Stop
	Sources     []tko.SourceDefinition  // by name
	owners      map[string]record.Owner // of sources
	// Subscriptions are sorted by name.
	Subscriptions []StoredSubscription
	Views         []StoredView // by name

	grants *lru.Cache[string, *access.Grant] // by caller
}

// RulesOf returns the rules of access, at most as old as age.
func (s *Authorizer) RulesOf(ctx context.Context, age time.Duration) (*Book, error) {
	unlock, err := s.accessLock.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	book, now := s.accessRules, time.Now()
	if book != nil && age > 0 && now.Sub(s.accessRead) < age {
		return book, nil
	}
	if book != nil {
		version, err := s.store.AccessVersion(ctx)
		if err != nil {
			return nil, err
		}
		if version == book.Version {
			s.accessRead = now
			return book, nil
		}
	}
	version, stored, err := s.store.Access(ctx)
	if err != nil {
		return nil, err
	}
	book = &Book{Rules: access.Rules{Version: version}, grants: lru.New[string, *access.Grant](maxCachedGrants), Approvals: map[string]PendingApproval{}, setups: map[string]setupToken{}, owners: map[string]record.Owner{}, Enrollments: map[string]tko.AgentEnrollment{}}
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
			book.Freezes, err = appendRule(book.Freezes, r)
		case record.RuleStop:
			book.Stops, err = appendRule(book.Stops, r)
		case record.RuleApproval:
			err = mapRule(book.Approvals, r)
		case record.RuleSource:
			book.Sources, err = appendRule(book.Sources, r)
		case record.RuleSubscription:
			book.Subscriptions, err = appendRule(book.Subscriptions, r)
		case record.RuleView:
			book.Views, err = appendRule(book.Views, r)
		case record.RuleOwner:
			err = mapRule(book.owners, r)
		case record.RuleSetup:
			err = mapRule(book.setups, r)
		case record.RuleEnrollment:
			err = mapRule(book.Enrollments, r)
		}
		if err != nil {
			return nil, fmt.Errorf("the stored %s %q can't be read: %w", r.Kind, r.ID, err)
		}
	}
	book.Holds = hex.EncodeToString(holds.Sum(nil))
	s.accessRules, s.accessRead = book, now
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
func (b *Book) grant(who identity.Identity, anonymous, delegated access.Role) *access.Grant {
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

// A Change is a change of the rules of access, with its audit records.
type Change struct {
	Put, Remove []record.AccessRule
	Records     []audit.Record
}

// Write adds a rule that is to be written, with its audit record.
func (c *Change) Write(kind, id string, doc any, rec audit.Record) error {
	rule, err := ruleOf(kind, id, doc)
	c.Put, c.Records = append(c.Put, rule), append(c.Records, rec)
	return err
}

// Erase adds a rule that is to be removed.
func (c *Change) Erase(kind, id string) {
	c.Remove = append(c.Remove, record.AccessRule{Kind: kind, ID: id})
}

func (c Change) change() Change { return c }

// A decision has a change of the rules of access: a Change, or what embeds one.
type decision interface{ change() Change }

// ChangeRules changes the rules as decide says, on the condition that they are still those
// that it was given; otherwise it decides again. decide is a pure function.
func ChangeRules[D decision](ctx context.Context, s *Authorizer, c *Caller, decide func(*Book) (D, error)) (decided D, err error) {
	err = record.Retry(ctx, func() error {
		unlock, err := s.changing.Lock(ctx)
		if err != nil {
			return err
		}
		defer unlock()
		book, err := s.RulesOf(ctx, 0)
		if err != nil {
			return err
		}
		if c.Bound && book.Version != c.Grant.Version {
			if same, err := s.renew(ctx, c); err != nil {
				return err
			} else if !same && book.Version != c.Grant.Version {
				return record.Final(tko.Errorf(tko.ErrDenied, "the rights of %q have changed: try again", c.Identity.Subject))
			}
		}
		if decided, err = decide(book); err != nil {
			return record.Final(err)
		}
		change := decided.change()
		changed := slices.Clone(change.Records)
		for i := range changed {
			changed[i].Caller, changed[i].Decision = *c.AuditCaller(ctx), audit.Allow
		}
		records := changed
		if !s.settings.Audit {
			records = nil
		}
		version, err := s.store.ChangeAccess(ctx, book.Version, change.Put, change.Remove, records...)
		if err != nil {
			return err
		}
		for _, rec := range changed {
			s.log.InfoContext(ctx, "rules of access changed", "kind", rec.Kind, "id", rec.ID, "op", rec.Op, "detail", rec.Detail, "who", Author(ctx).Who)
		}
		if next := book.enrolled(change, version); next != nil {
			return s.adopt(ctx, next)
		}
		_, err = s.RulesOf(ctx, 0)
		return err
	})
	return decided, err
}

// enrolled returns the rules after a change of enrollments only, which made the version; nil for other
// changes. It spares reading all rules for each of many agents that are enrolled.
func (b *Book) enrolled(change Change, version int64) *Book {
	if version != b.Version+1 || slices.ContainsFunc(slices.Concat(change.Put, change.Remove), func(r record.AccessRule) bool { return r.Kind != record.RuleEnrollment }) {
		return nil
	}
	next := *b
	next.Version, next.Enrollments = version, maps.Clone(b.Enrollments)
	next.grants = lru.New[string, *access.Grant](maxCachedGrants) // they have a version
	for _, r := range change.Remove {
		delete(next.Enrollments, r.ID)
	}
	for _, r := range change.Put {
		if err := mapRule(next.Enrollments, r); err != nil {
			return nil
		}
	}
	return &next
}

// adopt makes rules the cached ones, unless newer ones were read meanwhile.
func (s *Authorizer) adopt(ctx context.Context, book *Book) error {
	unlock, err := s.accessLock.Lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if s.accessRules == nil || s.accessRules.Version < book.Version {
		s.accessRules, s.accessRead = book, time.Now()
	}
	return nil
}

// renew reads the caller's rights again, and reports whether their version is new and
// they permit the same.
func (s *Authorizer) renew(ctx context.Context, c *Caller) (same bool, err error) {
	if _, err := s.RulesOf(ctx, 0); err != nil {
		return false, err
	}
	now, err := s.Caller(withCaller(ctx, nil))
	if err != nil {
		return false, err
	}
	if now.Grant.Version == c.Grant.Version || !now.Grant.Same(c.Grant) || (now.within == nil) != (c.within == nil) || c.within != nil && !now.within.Same(c.within) {
		return false, nil
	}
	c.Grant, c.within, c.limit = now.Grant, now.within, now.limit
	return true, nil
}

// A PendingApproval is the approvals of a deployment that needs more than it has.
type PendingApproval struct {
	Revision int64    `json:"revision"`
	Digest   string   `json:"digest"`
	Subjects []string `json:"subjects"`
}

// A StoredSubscription is one as it is stored.
type StoredSubscription struct {
	tko.Subscription

	Owns record.Owner `json:"owner"`
	// Undeclared means that the repository of its parent declares it no longer.
	Undeclared bool `json:"undeclared,omitempty"`
}

// A StoredView is one as it is stored.
type StoredView struct {
	tko.View

	// Undeclared means that the repository of its parent declares it no longer.
	Undeclared bool `json:"undeclared,omitempty"`
}

// Definition returns the definition with a name.
func (b *Book) Definition(name string) (d tko.SourceDefinition, found bool) {
	i := slices.IndexFunc(b.Sources, func(d tko.SourceDefinition) bool { return d.Name == name })
	if i < 0 {
		return d, false
	}
	return b.Sources[i], true
}
