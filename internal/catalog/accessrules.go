package catalog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// The kinds of stored rules of access.
const (
	ruleBinding  = "binding"
	rulePolicy   = "policy"
	ruleApproval = "approval"
	ruleSetup    = "setup"
)

// breakGlassTime is the duration of the rights that [Service.BreakGlass] gives.
const breakGlassTime = time.Hour

// Bindings returns all bindings and policies. It needs the right bind; other callers
// get their own bindings, and no policies.
func (s *Service) Bindings(ctx context.Context) (access.Rules, error) {
	ctx, c, err := s.enter(ctx, "", access.Open)
	if err != nil {
		return access.Rules{}, err
	}
	book, err := s.rulesOf(ctx, 0)
	if err != nil {
		return access.Rules{}, err
	}
	if c.grant.May(access.Bind, access.Attributes{}) || s.options.Access == AccessReport {
		return book.Rules, nil
	}
	own := access.Rules{Version: book.Version}
	for _, b := range book.Bindings {
		if b.For(c.identity.Subject, c.identity.Groups, time.Now()) {
			own.Bindings = append(own.Bindings, b)
		}
	}
	return own, nil
}

// Bind adds a binding and returns it with its ID. One binds only rights and scopes
// that one holds.
func (s *Service) Bind(ctx context.Context, b access.Binding) (access.Binding, error) {
	ctx, c, err := s.enter(ctx, "", access.Bind)
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
	if c.identity.IsSetup() {
		if err := checkFirst(b); err != nil {
			return access.Binding{}, err
		}
	} else if err := c.grant.MayBind(b); err != nil {
		if s.refuse(ctx, c, "", "", access.Bind) != nil {
			return access.Binding{}, err
		}
	}
	b.ID, b.By, b.Created = uuid.NewString(), author(ctx), time.Now().UTC().Truncate(time.Second)
	return b, s.changeAccess(ctx, c, func(book *ruleBook) (put, remove []AccessRule, err error) {
		if len(book.Bindings) >= access.MaxRules {
			return nil, nil, tko.Errorf(tko.ErrInvalid, "there are %d bindings, the maximum: remove some that are no longer used, or bind groups", len(book.Bindings))
		}
		same := 0
		for _, other := range book.Bindings {
			if other.Subject == b.Subject && other.Group == b.Group {
				same++
			}
		}
		if same >= access.MaxTerms {
			return nil, nil, tko.Errorf(tko.ErrInvalid, "%s has %d bindings: use at most %d, with wider scopes", b.Subject+b.Group, same, access.MaxTerms)
		}
		if c.identity.IsSetup() {
			for _, other := range book.Bindings {
				if other.IsUnlimitedAdmin() {
					return nil, nil, tko.Errorf(tko.ErrDenied, "there is an administrator already: the one-time token is for the first one only")
				}
			}
			if len(book.setups) == 0 {
				return nil, nil, tko.Errorf(tko.ErrDenied, "the one-time token was used")
			}
			for hash := range book.setups {
				remove = append(remove, AccessRule{Kind: ruleSetup, ID: hash})
			}
		}
		rule, err := ruleOf(ruleBinding, b.ID, b)
		return []AccessRule{rule}, remove, err
	}, describeBinding("bound", b))
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
func (s *Service) SetupToken(ctx context.Context, hash string) (time.Time, error) {
	book, err := s.rulesOf(ctx, rulesAge)
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
func AddSetupToken(ctx context.Context, store Store, hash string, expires time.Time) error {
	version, rules, err := store.Access(ctx)
	if err != nil {
		return err
	}
	if err := noAdministrator(rules); err != nil {
		return err
	}
	var remove []AccessRule
	for _, r := range rules {
		if r.Kind == ruleSetup {
			remove = append(remove, AccessRule{Kind: ruleSetup, ID: r.ID})
		}
	}
	rule, err := ruleOf(ruleSetup, hash, setupToken{Expires: expires.UTC()})
	if err != nil {
		return err
	}
	record := audit.Record{Kind: ruleSetup, Op: "initialised", Detail: "one-time token for the first administrator", Caller: audit.Caller{Subject: "process", Decision: audit.Allow}}
	_, err = store.ChangeAccess(ctx, version, []AccessRule{rule}, remove, record)
	return err
}

// noAdministrator returns ErrConflict if there is an administrator of everything.
func noAdministrator(rules []AccessRule) error {
	for _, r := range rules {
		var b access.Binding
		if r.Kind != ruleBinding {
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
	return audit.Record{Kind: ruleBinding, ID: b.ID, Op: verb, Detail: fmt.Sprintf("%s%s: %s in %s", b.Subject, b.Group, b.Role, b.Scope), Why: b.Reason}
}

func ruleOf(kind, id string, doc any) (AccessRule, error) {
	text, err := json.Marshal(doc)
	return AccessRule{Kind: kind, ID: id, Doc: text}, err
}

// Unbind removes a binding or a policy. The last binding that makes an administrator
// of everything for an unlimited time stays.
func (s *Service) Unbind(ctx context.Context, id string) error {
	ctx, c, err := s.enter(ctx, "", access.Bind)
	if err != nil {
		return err
	}
	record := audit.Record{ID: id, Op: "unbound"}
	return s.changeRules(ctx, c, func(book *ruleBook) (put, remove []AccessRule, err error) {
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
				return nil, nil, tko.Errorf(tko.ErrInvalid, "the binding %q makes the last administrator of everything: bind another one first", id)
			}
			if err := c.grant.MayBind(b); err != nil {
				return nil, nil, err
			}
			record = describeBinding("unbound", b)
			return nil, []AccessRule{{Kind: ruleBinding, ID: id}}, nil
		}
		for _, p := range book.Policies {
			if p.ID == id {
				if err := c.mayGovern(p); err != nil {
					return nil, nil, err
				}
				record = describePolicy("removed", p)
				return nil, []AccessRule{{Kind: rulePolicy, ID: id}}, nil
			}
		}
		return nil, nil, tko.Errorf(tko.ErrNotFound, "binding or policy %.60q: not found", id)
	}, func() []audit.Record { return []audit.Record{record} })
}

// AddPolicy adds a policy of approvals and returns it with its ID.
func (s *Service) AddPolicy(ctx context.Context, p access.Policy) (access.Policy, error) {
	ctx, c, err := s.enter(ctx, "", access.Bind)
	if err != nil {
		return access.Policy{}, err
	}
	if err := p.Check(); err != nil {
		return access.Policy{}, err
	}
	if err := c.mayGovern(p); err != nil {
		return access.Policy{}, err
	}
	p.ID, p.By, p.Created = uuid.NewString(), author(ctx), time.Now().UTC().Truncate(time.Second)
	return p, s.changeAccess(ctx, c, func(book *ruleBook) (put, remove []AccessRule, err error) {
		if len(book.Policies) >= access.MaxRules {
			return nil, nil, tko.Errorf(tko.ErrInvalid, "there are %d policies, the maximum: remove some", len(book.Policies))
		}
		rule, err := ruleOf(rulePolicy, p.ID, p)
		return []AccessRule{rule}, nil, err
	}, describePolicy("added", p))
}

// mayGovern returns ErrDenied if the caller may not bind approvers in the scope of a
// policy.
func (c *caller) mayGovern(p access.Policy) error {
	return c.grant.MayBind(access.Binding{Subject: c.identity.Subject, Role: access.Approver, Scope: p.Scope})
}

func describePolicy(verb string, p access.Policy) audit.Record {
	return audit.Record{Kind: rulePolicy, ID: p.ID, Op: verb, Detail: fmt.Sprintf("%d approvers from %q in %s", p.Approvers, p.Groups, p.Scope), Why: p.Reason}
}

// changeAccess changes the rules on the condition that they are those that decide
// read. records are audited.
func (s *Service) changeAccess(ctx context.Context, c *caller, decide func(*ruleBook) (put, remove []AccessRule, err error), record audit.Record) error {
	return s.changeRules(ctx, c, decide, func() []audit.Record { return []audit.Record{record} })
}

// changeRules is changeAccess with the audit records of what decide returned last.
func (s *Service) changeRules(ctx context.Context, c *caller, decide func(*ruleBook) (put, remove []AccessRule, err error), recordsOf func() []audit.Record) error {
	return retry(ctx, func() error {
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
		put, remove, err := decide(book)
		if err != nil {
			return final(err)
		}
		changed := recordsOf()
		for i := range changed {
			changed[i].Caller, changed[i].Decision = *c.auditCaller(ctx), audit.Allow
		}
		records := changed
		if !s.options.Audit {
			records = nil
		}
		if _, err := s.store.ChangeAccess(ctx, book.Version, put, remove, records...); err != nil {
			return err
		}
		for _, record := range changed {
			s.log.InfoContext(ctx, "rules of access changed", "kind", record.Kind, "id", record.ID, "op", record.Op, "detail", record.Detail, "who", author(ctx).Who)
		}
		_, err = s.rulesOf(ctx, 0)
		return err
	})
}

// CanI reports whether the caller may use a verb on an entity: one that exists, or
// could. With an empty ID, whether it may use the verb on some entity of the kind.
// The caller learns nothing about entities that it may not read.
func (s *Service) CanI(ctx context.Context, verb access.Verb, kind tko.Kind, id string) (bool, error) {
	ctx, c, err := s.enter(ctx, "", access.Open)
	if err != nil {
		return false, err
	}
	if !slices.Contains(access.AllVerbs(), verb) {
		return false, tko.Errorf(tko.ErrInvalid, "there is no verb %.40q: use one of %s", string(verb), verbNames())
	}
	if id == "" || !verb.Scoped() {
		return c.grant.Somewhere(verb, kind), nil
	}
	key := Key{Kind: kind, ID: id}
	if err := CheckKey(key); err != nil {
		return false, err
	}
	r, err := s.get(ctx, Fields{}, key)
	if err != nil {
		return false, err
	}
	if !c.sees(s, r) {
		r = Record{Key: key}
	}
	return c.grant.May(verb, AttributesOf(r)), nil
}

func verbNames() string {
	var names []string
	for _, v := range access.AllVerbs() {
		names = append(names, string(v))
	}
	return strings.Join(names, ", ")
}

// AccessMode returns how rights are enforced: off, report or enforce.
func (s *Service) AccessMode() string { return string(s.options.Access) }

// MayImpersonate reports whether a caller may act under a name that it verified.
func (s *Service) MayImpersonate(ctx context.Context, who identity.Identity) bool {
	c, err := s.caller(identity.With(context.WithValue(ctx, callerKey{}, (*caller)(nil)), who))
	return err == nil && s.options.Access != AccessOff && c.grant.May(access.Impersonate, access.Attributes{})
}

// Authorize checks a verb that a transport asks about itself, on some entity of a kind:
// for services other than those of the catalog.
func (s *Service) Authorize(ctx context.Context, verb access.Verb, kind tko.Kind) error {
	_, _, err := s.enter(ctx, kind, verb)
	return err
}

// BreakGlass makes the caller an administrator for an hour. Only a process of the
// server's user or of root may, through the Unix socket of the server.
func (s *Service) BreakGlass(ctx context.Context, why string) (access.Binding, error) {
	ctx, c, err := s.enter(ctx, "", access.Open)
	if err != nil {
		return access.Binding{}, err
	}
	if why = plainText(strings.TrimSpace(why), 1000); why == "" {
		return access.Binding{}, tko.Errorf(tko.ErrInvalid, "state why: it is recorded")
	}
	if c.identity.Authenticator != "unix" || !slices.Contains(s.options.BreakGlass, c.identity.Subject) {
		if err := s.refuse(ctx, c, "", "", access.Bind); err != nil {
			return access.Binding{}, tko.Errorf(tko.ErrDenied, "%s may not break glass: use the Unix socket of the server, as the user of the server or as root, on its machine", c.identity.Subject)
		}
	}
	b := access.Binding{
		ID: uuid.NewString(), Subject: c.identity.Subject, Role: access.Admin, Expires: time.Now().Add(breakGlassTime).UTC().Truncate(time.Second),
		Reason: why, By: author(ctx), Created: time.Now().UTC().Truncate(time.Second),
	}
	record := describeBinding("broke glass", b)
	err = s.changeAccess(ctx, c, func(*ruleBook) (put, remove []AccessRule, err error) {
		rule, err := ruleOf(ruleBinding, b.ID, b)
		return []AccessRule{rule}, nil, err
	}, record)
	if err == nil {
		s.log.WarnContext(ctx, "BREAK GLASS: a local user is administrator for an hour", "subject", b.Subject, "why", why, "until", b.Expires)
	}
	return b, err
}

// InitAccess makes the first administrator. It is for programs on the machine of the
// store, and refused once there is an administrator of everything.
func InitAccess(ctx context.Context, store Store, subject, why string, expires time.Time) (access.Binding, error) {
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
	version, rules, err := store.Access(ctx)
	if err != nil {
		return b, err
	}
	if err := noAdministrator(rules); err != nil {
		return b, err
	}
	rule, err := ruleOf(ruleBinding, b.ID, b)
	if err != nil {
		return b, err
	}
	record := describeBinding("initialised", b)
	record.Decision, record.Subject = audit.Allow, "process"
	_, err = store.ChangeAccess(ctx, version, []AccessRule{rule}, nil, record)
	return b, err
}

// ---- Four eyes ----

// A pendingApproval is the approvals of a deployment that needs more than it has.
type pendingApproval struct {
	Revision int64    `json:"revision"`
	Digest   string   `json:"digest"`
	Subjects []string `json:"subjects"`
}

// policiesFor returns the policies that govern the approval of a deployment. They
// need identities, so they are in force only if rights are enforced.
func (s *Service) policiesFor(ctx context.Context, r Record) ([]access.Policy, error) {
	if s.options.Access != AccessEnforce || r.Kind != tko.KindDeployment {
		return nil, nil
	}
	book, err := s.rulesOf(ctx, rulesAge)
	if err != nil {
		return nil, err
	}
	var policies []access.Policy
	for _, p := range book.Policies {
		if p.Covers(AttributesOf(r)) {
			policies = append(policies, p)
		}
	}
	return policies, nil
}

// waitsForApproval returns the Approved condition of a deployment that a policy
// governs.
func waitsForApproval() *tko.Condition {
	return &tko.Condition{
		Type: tko.ConditionApproved, Status: tko.ConditionFalse, Reason: reasonNotApproved,
		Message: "a policy asks for an explicit approval, by another person than those who changed the deployment: approve it",
	}
}

// permitApproval decides about a change, other than an explicit approval, that makes
// a deployment approved: under a policy, the deployment stays unapproved; otherwise
// the caller needs the right to approve, or is a controller.
func (s *Service) permitApproval(ctx context.Context, before Record, after *Record) error {
	if !after.Approved || before.Approved {
		return nil
	}
	c, ok := callerOf(ctx)
	if !ok {
		return errNotEntered
	}
	policies, err := s.policiesFor(ctx, *after)
	if err != nil {
		return err
	}
	if len(policies) > 0 {
		after.Approved = false
		if before.Revision == 0 {
			after.Conditions = mergeConditions(tko.WithoutCondition(after.Conditions, tko.ConditionApproved), []tko.Condition{*waitsForApproval()}, 1, time.Now())
		}
		return nil
	}
	if c.grant.IsAll() || c.grant.May(access.Commit, AttributesOf(*after)) {
		return nil
	}
	return s.permit(ctx, nil, after, access.Approve)
}

// permitBatch checks writes of records that exist.
func (s *Service) permitBatch(ctx context.Context, writes []Write, verb access.Verb) error {
	for i := range writes {
		if err := s.permit(ctx, &writes[i].Record, nil, verb); err != nil {
			return err
		}
	}
	return nil
}

// maxAuthors is the maximum number of revisions whose authors are compared with an
// approver.
const maxAuthors = 1000

// vote records the caller's approval of a deployment that a policy governs, and
// reports whether the deployment has enough of them, or needs none. It returns
// ErrDenied if the caller may not approve it: an author of a revision since the last
// approval, a controller, or a member of none of the policy's groups.
func (s *Service) vote(ctx context.Context, r Record, dryRun bool) (enough bool, err error) {
	policies, err := s.policiesFor(ctx, r)
	if err != nil || len(policies) == 0 {
		return true, err
	}
	c, _ := callerOf(ctx)
	subject := c.identity.Subject
	deny := func(format string, args ...any) error {
		reason := fmt.Sprintf(format, args...)
		record := c.record(ctx, r.Kind, r.ID, access.Approve, audit.Refuse, reason)
		s.refusals.add(ctx, record)
		return tko.Errorf(tko.ErrDenied, "deployment %q: %s", r.ID, reason)
	}
	if !isPerson(c.identity.Subject) || c.identity.Plugin != nil || c.identity.IsAnonymous() {
		return false, deny("a policy asks for an approval by a person, which %q is not", subject)
	}
	need := 0
	for _, p := range policies {
		need = max(need, p.Approvers)
		if len(p.Groups) > 0 && !slices.ContainsFunc(p.Groups, func(g string) bool { return slices.Contains(c.identity.Groups, g) }) {
			return false, deny("a policy asks for an approval by a member of %s", strings.Join(p.Groups, " or "))
		}
	}
	authors, err := s.authorsSinceApproval(ctx, r)
	if err != nil {
		return false, err
	}
	for _, a := range authors {
		if s.person(a) == s.person(subject) {
			return false, deny("a policy asks that who approves is not who changed it, and %s changed it since its last approval: ask another person", a)
		}
	}
	if need <= 1 || dryRun {
		return true, nil
	}
	vote := pendingApproval{Revision: r.Revision, Digest: fmt.Sprintf("%x", r.Digest)}
	err = s.changeAccess(ctx, c, func(book *ruleBook) (put, remove []AccessRule, err error) {
		if had, ok := book.approvals[r.ID]; ok && had.Revision == vote.Revision && had.Digest == vote.Digest {
			vote.Subjects = slices.Clone(had.Subjects)
		} else {
			vote.Subjects = nil
		}
		if !slices.ContainsFunc(vote.Subjects, func(other string) bool { return s.person(other) == s.person(subject) }) {
			vote.Subjects = append(vote.Subjects, subject)
		}
		rule, err := ruleOf(ruleApproval, r.ID, vote)
		return []AccessRule{rule}, nil, err
	}, audit.Record{Kind: ruleApproval, ID: r.ID, Op: "approved", Revision: r.Revision, After: vote.Digest, Site: r.Site})
	if err != nil {
		return false, err
	}
	return len(vote.Subjects) >= need, nil
}

// forgetVotes removes the approvals of a deployment that is approved. If that fails,
// they stay, and are void because the deployment has another revision.
func (s *Service) forgetVotes(ctx context.Context, id string) {
	if s.options.Access != AccessEnforce {
		return
	}
	book, err := s.rulesOf(ctx, rulesAge)
	if err != nil {
		return
	}
	if _, ok := book.approvals[id]; !ok {
		return
	}
	if _, err := s.store.ChangeAccess(ctx, book.Version, nil, []AccessRule{{Kind: ruleApproval, ID: id}}); err != nil {
		s.log.DebugContext(ctx, "can't remove the approvals of an approved deployment", "deployment", id, "err", err)
	}
}

// isPerson reports whether an author is a person, as far as the name shows: our own
// controllers and plugins are not.
func isPerson(who string) bool { return who != "" && !strings.HasPrefix(who, identity.Own) }

// person returns the name of the person that a subject is an identity of: the subject
// itself, unless Options.Persons has it.
func (s *Service) person(subject string) string {
	if name, ok := s.options.Persons[subject]; ok {
		return "person " + name
	}
	return subject
}

// authorsSinceApproval returns the persons who wrote revisions of a deployment since
// it was last approved, the revision of the template that it was made from since, or
// the registrations of the plugins that changed it since.
func (s *Service) authorsSinceApproval(ctx context.Context, r Record) ([]string, error) {
	var authors []string
	note := func(who string) {
		if isPerson(who) && !slices.Contains(authors, who) {
			authors = append(authors, who)
		}
	}
	approvedBase, plugins := int64(0), map[string]bool{}
	for revision := r.Revision; revision > 0 && r.Revision-revision < maxAuthors; revision-- {
		was, err := s.store.Revision(ctx, r.Key, revision)
		if errors.Is(err, tko.ErrNotFound) {
			break // no longer retained
		}
		if err != nil {
			return nil, err
		}
		if was.UID != r.UID {
			break // an earlier deployment of the same ID
		}
		if was.Approved {
			approvedBase = was.Base
			break
		}
		note(was.Author.Who)
		if id, ok := strings.CutPrefix(was.Author.Who, identity.Own+"plugin:"); ok {
			typ, name, _ := strings.Cut(id, "/")
			plugins[tko.PluginID(typ, name)] = true
		}
		for _, step := range was.Steps {
			if step.Plugin != "" {
				plugins[tko.PluginID(tko.PluginPrepare, step.Plugin)] = true
			}
		}
	}
	if r.Template != "" && r.Base != 0 && r.Base != approvedBase {
		was, err := s.store.Revision(ctx, Key{Kind: tko.KindTemplate, ID: r.Template}, r.Base)
		if err != nil && !errors.Is(err, tko.ErrNotFound) {
			return nil, err
		}
		note(was.Author.Who)
	}
	for id := range plugins {
		registered, err := s.get(ctx, Fields{}, Key{Kind: tko.KindPlugin, ID: id})
		if err != nil {
			return nil, err
		}
		note(registered.Author.Who)
	}
	return authors, nil
}
