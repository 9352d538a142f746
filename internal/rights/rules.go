package rights

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
)

// An AccessControl manages the rules of access, and reports what callers may do.
type AccessControl struct{ rights *Authorizer }

// AccessControl returns the part that manages the rules of access.
func (s *Authorizer) AccessControl() *AccessControl { return &AccessControl{s} }

// RevealsSecrets reports whether the caller of a context may see the values of
// Secrets in a record, for transports that encode records themselves.
func (s *AccessControl) RevealsSecrets(ctx context.Context, r record.Record) bool {
	c, err := s.rights.Caller(ctx)
	return err == nil && c.Reveals(r)
}

// Rights returns what the caller of a context may see now.
func (s *AccessControl) Rights(ctx context.Context) (Rights, error) { return s.Watcher(ctx) }

// ViewKey returns a text that is equal for callers who see the same now.
func (s *AccessControl) ViewKey(ctx context.Context) (string, error) {
	c, err := s.rights.Caller(ctx)
	if err != nil {
		return "", err
	}
	return c.View().Key(), nil
}

// Watcher returns what the caller of a context may see now.
func (s *AccessControl) Watcher(ctx context.Context) (*Watcher, error) {
	_, c, err := s.rights.Enter(ctx, tko.KindDeployment, access.Open)
	if err != nil {
		return nil, err
	}
	return &Watcher{authorizer: s.rights, caller: c, checked: time.Now()}, nil
}

// breakGlassTime is the duration of the rights that [AccessControl.BreakGlass] gives.
const breakGlassTime = time.Hour

// Bindings returns all bindings and policies. It needs the right bind; other callers
// get their own bindings, and no policies.
func (s *AccessControl) Bindings(ctx context.Context) (access.Rules, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Open)
	if err != nil {
		return access.Rules{}, err
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return access.Rules{}, err
	}
	if c.Grant.May(access.Bind, access.Attributes{}) || s.rights.settings.Access == Report {
		return book.Rules, nil
	}
	own := access.Rules{Version: book.Version}
	for _, b := range book.Bindings {
		if b.For(c.Identity.Subject, c.Identity.Groups, time.Now()) {
			own.Bindings = append(own.Bindings, b)
		}
	}
	return own, nil
}

// Bind adds a binding and returns it with its ID. One binds only rights and scopes
// that one holds.
func (s *AccessControl) Bind(ctx context.Context, b access.Binding) (access.Binding, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Bind)
	if err != nil {
		return access.Binding{}, err
	}
	if err := b.Check(); err != nil {
		return access.Binding{}, err
	}
	if strings.HasPrefix(b.Subject, identity.Own) && !strings.HasPrefix(b.Subject, identity.Own+"plugin:") || strings.HasPrefix(b.Group, identity.Own) {
		return access.Binding{}, tko.Errorf(tko.ErrInvalid, "the subject or group %q starts with %q: the rights of our own controllers are fixed", b.Subject+b.Group, identity.Own)
	}
	if !b.Expires.IsZero() && !b.Expires.After(time.Now()) {
		return access.Binding{}, tko.Errorf(tko.ErrInvalid, "the binding would expire at %s, which is over", b.Expires.Format(time.RFC3339))
	}
	if c.Identity.IsSetup() {
		if err := checkFirst(b); err != nil {
			return access.Binding{}, err
		}
	} else if err := c.Grant.MayBind(b); err != nil {
		if s.rights.Refuse(ctx, c, "", "", access.Bind) != nil {
			return access.Binding{}, err
		}
	}
	b.ID, b.By, b.Created = uuid.NewString(), Author(ctx), time.Now().UTC().Truncate(time.Second)
	_, err = ChangeRules(ctx, s.rights, c, func(book *Book) (change Change, err error) {
		if len(book.Bindings) >= access.MaxRules {
			return change, tko.Errorf(tko.ErrInvalid, "there are %d bindings, the maximum: remove some that are no longer used, or bind groups", len(book.Bindings))
		}
		same := 0
		for _, other := range book.Bindings {
			if other.Subject == b.Subject && other.Group == b.Group {
				same++
			}
		}
		if same >= access.MaxTerms {
			return change, tko.Errorf(tko.ErrInvalid, "%s has %d bindings: use at most %d, with wider scopes", b.Subject+b.Group, same, access.MaxTerms)
		}
		if c.Identity.IsSetup() {
			for _, other := range book.Bindings {
				if other.IsUnlimitedAdmin() {
					return change, tko.Errorf(tko.ErrDenied, "there is an administrator already: the one-time token is for the first one only")
				}
			}
			if len(book.setups) == 0 {
				return change, tko.Errorf(tko.ErrDenied, "the one-time token was used")
			}
			for hash := range book.setups {
				change.Erase(record.RuleSetup, hash)
			}
		}
		return change, change.Write(record.RuleBinding, b.ID, b, describeBinding("bound", b))
	})
	return b, err
}

// checkFirst returns ErrDenied if a binding is not that of a first administrator.
func checkFirst(b access.Binding) error {
	if !b.IsUnlimitedAdmin() || !identity.IsSubject(b.Subject) {
		return tko.Errorf(tko.ErrDenied, "the one-time token binds the first administrator only: the role admin, without a scope and without an end, to a subject as tko whoami shows it")
	}
	return nil
}

// A setupToken is a one-time token for the first administrator. Its ID is its hash.
type setupToken struct {
	Expires time.Time `json:"expires"`
}

// SetupToken returns when the one-time token with a hash ends. It returns ErrNotFound if
// there is none, or it was used.
func (s *AccessControl) SetupToken(ctx context.Context, hash string) (time.Time, error) {
	book, err := s.rights.RulesOf(ctx, Age)
	if err != nil {
		return time.Time{}, err
	}
	if t, ok := book.setups[hash]; ok {
		return t.Expires, nil
	}
	return time.Time{}, tko.Errorf(tko.ErrNotFound, "one-time token: not found")
}

// AddSetupToken stores the hash of a one-time token, with which one binds the first
// administrator, in place of earlier ones. It returns ErrConflict if there is an
// administrator. It is for the operator of the store, without a server.
func AddSetupToken(ctx context.Context, store record.Store, hash string, expires time.Time) error {
	return initialise(ctx, store, func(rules []record.AccessRule) (change Change, err error) {
		for _, r := range rules {
			if r.Kind == record.RuleSetup {
				change.Erase(record.RuleSetup, r.ID)
			}
		}
		return change, change.Write(record.RuleSetup, hash, setupToken{Expires: expires.UTC()},
			audit.Record{Kind: record.RuleSetup, Op: "initialised", Detail: "one-time token for the first administrator"})
	})
}

// initialise changes the rules of a store that has no administrator of everything.
func initialise(ctx context.Context, store record.Store, decide func([]record.AccessRule) (Change, error)) error {
	version, rules, err := store.Access(ctx)
	if err != nil {
		return err
	}
	if err := noAdministrator(rules); err != nil {
		return err
	}
	change, err := decide(rules)
	if err != nil {
		return err
	}
	for i := range change.Records {
		change.Records[i].Caller = audit.Caller{Subject: "process", Decision: audit.Allow}
	}
	_, err = store.ChangeAccess(ctx, version, change.Put, change.Remove, change.Records...)
	return err
}

// noAdministrator returns ErrConflict if there is an administrator of everything.
func noAdministrator(rules []record.AccessRule) error {
	for _, r := range rules {
		var b access.Binding
		if r.Kind != record.RuleBinding {
			continue
		}
		if err := json.Unmarshal(r.Doc, &b); err != nil {
			return fmt.Errorf("the stored binding %q can't be read: %w", r.ID, err)
		}
		if b.IsUnlimitedAdmin() {
			return tko.Errorf(tko.ErrConflict, "%s is administrator already: let it bind others (tko access bind), or use tko access break-glass", b.Subject)
		}
	}
	return nil
}

func describeBinding(verb string, b access.Binding) audit.Record {
	return audit.Record{Kind: record.RuleBinding, ID: b.ID, Op: verb, Detail: fmt.Sprintf("%s%s: %s in %s", b.Subject, b.Group, b.Role, b.Scope), Why: b.Reason}
}

func ruleOf(kind, id string, doc any) (record.AccessRule, error) {
	text, err := json.Marshal(doc)
	return record.AccessRule{Kind: kind, ID: id, Doc: text}, err
}

// Unbind removes a binding or a policy. The last binding that makes an administrator
// of everything for an unlimited time stays.
func (s *AccessControl) Unbind(ctx context.Context, id string) error {
	ctx, c, err := s.rights.Enter(ctx, "", access.Bind)
	if err != nil {
		return err
	}
	if err := s.rights.confirmUnbinding(ctx, id); err != nil {
		return err
	}
	_, err = ChangeRules(ctx, s.rights, c, func(book *Book) (change Change, err error) {
		admins := 0
		for _, b := range book.Bindings {
			if b.IsUnlimitedAdmin() {
				admins++
			}
		}
		for _, b := range book.Bindings {
			if b.ID != id {
				continue
			}
			if b.IsUnlimitedAdmin() && admins == 1 {
				return change, tko.Errorf(tko.ErrInvalid, "the binding %q makes the last administrator of everything: bind another one first", id)
			}
			if err := c.Grant.MayBind(b); err != nil {
				return change, err
			}
			change.Erase(record.RuleBinding, id)
			change.Records = []audit.Record{describeBinding("unbound", b)}
			return change, nil
		}
		for _, p := range book.Policies {
			if p.ID == id {
				if err := c.mayGovern(p); err != nil {
					return change, err
				}
				change.Erase(record.RulePolicy, id)
				change.Records = []audit.Record{describePolicy("removed", p)}
				return change, nil
			}
		}
		return change, tko.Errorf(tko.ErrNotFound, "binding or policy %.60q: not found", id)
	})
	return err
}

// AddPolicy adds a policy of approvals and returns it with its ID.
func (s *AccessControl) AddPolicy(ctx context.Context, p access.Policy) (access.Policy, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Bind)
	if err != nil {
		return access.Policy{}, err
	}
	if err := p.Check(); err != nil {
		return access.Policy{}, err
	}
	if err := c.mayGovern(p); err != nil {
		return access.Policy{}, err
	}
	p.ID, p.By, p.Created = uuid.NewString(), Author(ctx), time.Now().UTC().Truncate(time.Second)
	_, err = ChangeRules(ctx, s.rights, c, func(book *Book) (change Change, err error) {
		if len(book.Policies) >= access.MaxRules {
			return change, tko.Errorf(tko.ErrInvalid, "there are %d policies, the maximum: remove some", len(book.Policies))
		}
		return change, change.Write(record.RulePolicy, p.ID, p, describePolicy("added", p))
	})
	return p, err
}

// mayGovern returns ErrDenied if the caller may not bind approvers in the scope of a
// policy.
func (c *Caller) mayGovern(p access.Policy) error {
	return c.Grant.MayBind(access.Binding{Subject: c.Identity.Subject, Role: access.Approver, Scope: p.Scope})
}

func describePolicy(verb string, p access.Policy) audit.Record {
	return audit.Record{Kind: record.RulePolicy, ID: p.ID, Op: verb, Detail: fmt.Sprintf("%d approvers from %q in %s", p.Approvers, p.Groups, p.Scope), Why: p.Reason}
}

// CanI reports whether the caller may use a verb on an entity: one that exists, or
// could. With an empty ID, whether it may use the verb on some entity of the kind.
// The caller learns nothing about entities that it may not read.
func (s *AccessControl) CanI(ctx context.Context, verb access.Verb, kind tko.Kind, id string) (bool, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Open)
	if err != nil {
		return false, err
	}
	if !slices.Contains(access.AllVerbs(), verb) {
		return false, tko.Errorf(tko.ErrInvalid, "there is no verb %.40q: use one of %s", string(verb), verbNames())
	}
	if id == "" || !verb.Scoped() {
		return c.Grant.Somewhere(verb, kind), nil
	}
	key := record.Key{Kind: kind, ID: id}
	if err := record.CheckKey(key); err != nil {
		return false, err
	}
	r, err := s.rights.reader.One(ctx, record.Fields{}, key)
	if err != nil {
		return false, err
	}
	if !c.Sees(r) {
		r = record.Record{Key: key}
	}
	return c.Grant.May(verb, record.AttributesOf(r)), nil
}

func verbNames() string {
	var names []string
	for _, v := range access.AllVerbs() {
		names = append(names, string(v))
	}
	return strings.Join(names, ", ")
}

// AccessMode returns how rights are enforced: off, report or enforce.
func (s *AccessControl) AccessMode() string { return string(s.rights.settings.Access) }

// MayImpersonate reports whether a caller may act under a name that it verified.
func (s *AccessControl) MayImpersonate(ctx context.Context, who identity.Identity) bool {
	c, err := s.rights.Caller(identity.With(withCaller(ctx, nil), who))
	return err == nil && s.rights.settings.Access != Off && c.Grant.May(access.Impersonate, access.Attributes{})
}

// Authorize checks a verb that a transport asks about itself, on some entity of a kind:
// for services other than those of the catalog.
func (s *AccessControl) Authorize(ctx context.Context, verb access.Verb, kind tko.Kind) error {
	_, _, err := s.rights.Enter(ctx, kind, verb)
	return err
}

// BreakGlass makes the caller an administrator for an hour. Only a process of the
// server's user or of root may, through the Unix socket of the server.
func (s *AccessControl) BreakGlass(ctx context.Context, why string) (access.Binding, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Open)
	if err != nil {
		return access.Binding{}, err
	}
	why = printable.Kept(strings.TrimSpace(why), 1000)
	if why == "" {
		return access.Binding{}, tko.Errorf(tko.ErrInvalid, "state why: it is recorded")
	}
	if c.Identity.Authenticator != "unix" || !slices.Contains(s.rights.settings.BreakGlass, c.Identity.Subject) {
		if err := s.rights.Refuse(ctx, c, "", "", access.Bind); err != nil {
			return access.Binding{}, tko.Errorf(tko.ErrDenied, "%s may not break glass: use the Unix socket of the server, as the user of the server or as root, on its machine", c.Identity.Subject)
		}
	}
	b := access.Binding{
		ID: uuid.NewString(), Subject: c.Identity.Subject, Role: access.Admin, Expires: time.Now().Add(breakGlassTime).UTC().Truncate(time.Second),
		Reason: why, By: Author(ctx), Created: time.Now().UTC().Truncate(time.Second),
	}
	_, err = ChangeRules(ctx, s.rights, c, func(*Book) (change Change, err error) {
		return change, change.Write(record.RuleBinding, b.ID, b, describeBinding("broke glass", b))
	})
	if err == nil {
		s.rights.log.WarnContext(ctx, "BREAK GLASS: a local user is administrator for an hour", "subject", b.Subject, "why", why, "until", b.Expires)
	}
	return b, err
}

// InitAccess makes the first administrator. It is for programs on the machine of the
// store, and refused once there is an administrator of everything.
func InitAccess(ctx context.Context, store record.Store, subject, why string, expires time.Time) (access.Binding, error) {
	b := access.Binding{
		ID: uuid.NewString(), Subject: subject, Role: access.Admin, Expires: expires, Reason: why,
		By: tko.Author{Who: "tko-server access init"}, Created: time.Now().UTC().Truncate(time.Second),
	}
	if err := b.Check(); err != nil {
		return b, err
	}
	if !identity.IsSubject(subject) {
		return b, tko.Errorf(tko.ErrInvalid, "the subject %q has no prefix of an authenticator, so no client can have it: use a subject as tko whoami shows it, such as oidc:ALIAS:SUB", subject)
	}
	return b, initialise(ctx, store, func([]record.AccessRule) (change Change, err error) {
		return change, change.Write(record.RuleBinding, b.ID, b, describeBinding("initialised", b))
	})
}

// ---- Four eyes ----
