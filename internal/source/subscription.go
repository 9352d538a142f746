package source

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// The limits of subscriptions.
const (
	maxSubscriptions    = 200
	maxAllSubscriptions = 1 << 20 // bytes
)

// A SubscriptionKeeper keeps what is reported to destinations outside of TKO.
type SubscriptionKeeper struct {
	shared

	changes Watched
}

// Watched shows the changes of entities as watchers see them.
type Watched interface {
	// Seen returns a change as the watcher sees it; Position 0 if it doesn't.
	Seen(ctx context.Context, w *rights.Watcher, c tko.Change) (tko.Change, error)
	// Before returns the properties of an entity before a change; nil if it didn't exist, or if
	// its revision is no longer retained.
	Before(ctx context.Context, c tko.Change) (*access.Attributes, error)
}

// RegisterSubscriptions registers subscriptions: all of them, or none. With dryRun nothing
// is changed. The caller owns what it changes: messages tell what it may read when they are
// sent.
func (s *SubscriptionKeeper) RegisterSubscriptions(ctx context.Context, all []tko.Subscription, dryRun bool) ([]tko.RegisteredSubscription, error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Subscribe)
	if err != nil {
		return nil, err
	}
	if len(all) == 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "there are no subscriptions: give manifests of the kind %s", tko.SubscriptionKind)
	}
	owns := rights.OwnerOf(c.Identity)
	wanted, err := s.checkSubscriptions(ctx, c, all, "", owns)
	if err != nil {
		return nil, err
	}
	decide := func(book *rights.Book) (subscribing, error) { return subscribe(book, wanted) }
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, err
	}
	if d, err := decide(book); err != nil || dryRun || len(d.Put) == 0 {
		return d.results, err
	}
	d, err := rights.ChangeRules(ctx, s.rights, c, decide)
	return d.results, err
}

// checkSubscriptions completes and checks subscriptions.
func (s *SubscriptionKeeper) checkSubscriptions(ctx context.Context, c *rights.Caller, all []tko.Subscription, parent string, owns record.Owner) (wanted []rights.StoredSubscription, err error) {
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, err
	}
	begin, begun, err := s.newest(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now().UTC().Truncate(time.Second)
	var wrong []error
	seen := map[string]bool{}
	for _, one := range all {
		d := rights.StoredSubscription{Subscription: one, Owns: owns}
		d.UID, d.Parent, d.By, d.Created, d.Updated = uuid.NewString(), parent, rights.Author(ctx), now, now
		d.Begin, d.BeginAudit = begin, begun
		var spec bytes.Buffer
		switch err := tko.CheckID("subscription name", d.Name); {
		case err != nil:
			wrong = append(wrong, err)
			continue
		case seen[d.Name]:
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "subscription %q is there twice: remove one", d.Name))
		case len(d.Spec) > maxDefinition:
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "subscription %q: its spec has %d bytes: use at most %d", d.Name, len(d.Spec), maxDefinition))
			continue
		case json.Compact(&spec, d.Spec) != nil:
			wrong = append(wrong, tko.Errorf(tko.ErrInvalid, "subscription %q: its spec is no JSON", d.Name))
			continue
		case s.settings.Notify == nil:
			return nil, tko.Errorf(tko.ErrInvalid, "this server sends no messages: register subscriptions at another one")
		}
		seen[d.Name], d.Spec = true, spec.Bytes()
		audits, err := s.settings.Notify.Check(d.Subscription)
		if err == nil && audits && s.settings.Access != rights.Off && !s.mayAudit(c, book, owns) {
			err = tko.Errorf(tko.ErrDenied, "subscription %q tells audit records, which %s may not read: ask an administrator for the role audit", d.Name, owns)
		}
		if err != nil {
			wrong = append(wrong, err)
		}
		wanted = append(wanted, d)
	}
	if len(wrong) > 0 {
		return nil, oneOf(wrong)
	}
	return wanted, s.permitSubscribedCredentials(ctx, c, book, wanted)
}

// oneOf returns errors as one: an ErrDenied if one is, and else an ErrInvalid.
func oneOf(wrong []error) error {
	if i := slices.IndexFunc(wrong, func(err error) bool { return errors.Is(err, tko.ErrDenied) }); i >= 0 {
		return wrong[i]
	}
	return tko.Errorf(tko.ErrInvalid, "%w", errors.Join(wrong...))
}

// mayAudit reports whether the owner of a subscription may read the audit log.
func (s *SubscriptionKeeper) mayAudit(c *rights.Caller, book *rights.Book, owns record.Owner) bool {
	if owns.IsZero() {
		return c.Grant.May(access.Audit, access.Attributes{})
	}
	own, unlimited, _ := s.rights.OwnerGrant(book, owns)
	return unlimited || own.May(access.Audit, access.Attributes{})
}

// permitSubscribedCredentials is [rights.Authorizer.PermitCredentials] for subscriptions.
func (s *SubscriptionKeeper) permitSubscribedCredentials(ctx context.Context, c *rights.Caller, book *rights.Book, wanted []rights.StoredSubscription) error {
	if s.settings.Access == rights.Off || c.Lends() {
		return nil
	}
	for _, d := range wanted {
		uses := slices.DeleteFunc(s.settings.Notify.Uses(d.Subscription), s.settings.Leash.Declares)
		if before, exists := subscriptionOf(book, d.Name); exists && len(uses) > 0 {
			uses = rights.Without(uses, s.settings.Notify.Uses(before.Subscription))
		}
		if err := s.rights.RefuseUses(ctx, c, tko.KindSubscription, d.Name, uses); err != nil {
			return err
		}
	}
	return nil
}

// subscriptionOf returns the subscription with a name.
func subscriptionOf(b *rights.Book, name string) (s rights.StoredSubscription, found bool) {
	i := slices.IndexFunc(b.Subscriptions, func(s rights.StoredSubscription) bool { return s.Name == name })
	if i < 0 {
		return s, false
	}
	return b.Subscriptions[i], true
}

// A subscribing is the decision about subscriptions that are registered.
type subscribing struct {
	rights.Change

	results []tko.RegisteredSubscription
}

// subscribe returns how subscriptions change the rules.
func subscribe(b *rights.Book, wanted []rights.StoredSubscription) (r subscribing, err error) {
	for _, d := range wanted {
		before, exists := subscriptionOf(b, d.Name)
		result := tko.RegisteredSubscription{Name: d.Name, Created: !exists, Changed: true}
		if exists {
			if before.Parent != d.Parent && (!before.Undeclared || d.Parent != "") {
				return r, tko.Errorf(tko.ErrConflict, "subscription %q: %s: use another name, or remove that one first", d.Name, declaredBy(before))
			}
			d.UID, d.Created, d.Begin, d.BeginAudit = before.UID, before.Created, before.Begin, before.BeginAudit // its cursor stays
			result.Changed = !d.Same(before.Subscription) || d.Owns.Key() != before.Owns.Key() || before.Undeclared
		}
		r.results = append(r.results, result)
		if !result.Changed {
			continue
		}
		rec := audit.Record{Kind: record.RuleSubscription, ID: d.Name, Op: "registered", Detail: printable.Short(fmt.Sprintf("as %s: %s", d.Owns, d.Spec), maxDetail), Why: d.By.Why}
		if err := r.Write(record.RuleSubscription, d.Name, d, rec); err != nil {
			return r, err
		}
	}
	return r, fitSubscriptions(b, r.Put)
}

// declaredBy returns who declared a subscription, for messages.
func declaredBy(s rights.StoredSubscription) string {
	if s.Parent != "" {
		return fmt.Sprintf("the repository of source %q declares it", s.Parent)
	}
	return s.By.Who + " registered it"
}

// splitDeclared splits what a repository declares into sources, subscriptions and views.
func splitDeclared(all []tko.SourceDefinition) (sources []tko.SourceDefinition, subscriptions []tko.Subscription, views []tko.SourceDefinition) {
	for _, d := range all {
		switch {
		case d.IsSubscription():
			subscriptions = append(subscriptions, tko.Subscription{Name: d.Name, Spec: d.Spec})
		case d.IsView():
			views = append(views, d)
		default:
			sources = append(sources, d)
		}
	}
	return sources, subscriptions, views
}

// declaredSubscriptions completes and checks the subscriptions that the repository of a source
// declares. The owner of the source owns them, and must have the right subscribe.
func (s *SubscriptionKeeper) declaredSubscriptions(ctx context.Context, c *rights.Caller, book *rights.Book, parent string, all []tko.Subscription) ([]rights.StoredSubscription, error) {
	if len(all) == 0 {
		return nil, nil
	}
	owns := book.OwnerOfSource(parent)
	if s.settings.Access == rights.Enforce {
		own, unlimited, _ := s.rights.OwnerGrant(book, owns)
		if !unlimited && !own.May(access.Subscribe, access.Attributes{}) {
			return nil, tko.Errorf(tko.ErrInvalid, "the repository of source %q declares subscriptions, which its owner %s may not: give it the role subscribe, or remove them", parent, owns)
		}
	}
	wanted, err := s.checkSubscriptions(ctx, c, all, parent, owns)
	if errors.Is(err, tko.ErrDenied) { // the revision is wrong, until it is changed
		err = tko.Errorf(tko.ErrInvalid, "%s", err.Error())
	}
	return wanted, err
}

// declareSubscriptions adds to a declaration the subscriptions of its repository. It returns
// the names of those that are no longer declared, and stay.
func declareSubscriptions(b *rights.Book, c *rights.Change, wanted []rights.StoredSubscription, in declaring) (kept []string, err error) {
	done, err := subscribe(b, wanted)
	if err != nil {
		return nil, err
	}
	c.Put, c.Records = append(c.Put, done.Put...), append(c.Records, done.Records...)
	for _, d := range b.Subscriptions {
		if d.Parent != in.request.Parent || slices.ContainsFunc(wanted, func(w rights.StoredSubscription) bool { return w.Name == d.Name }) {
			continue
		}
		rec := audit.Record{Kind: record.RuleSubscription, ID: d.Name, Op: "undeclared by " + in.request.Parent, Why: in.by.Why}
		if in.request.Prune {
			c.Erase(record.RuleSubscription, d.Name)
			c.Records = append(c.Records, rec)
			continue
		}
		kept = append(kept, tko.UndeclaredSubscription+d.Name)
		if d.Undeclared {
			continue
		}
		d.Undeclared = true
		if err := c.Write(record.RuleSubscription, d.Name, d, rec); err != nil {
			return nil, err
		}
	}
	return kept, nil
}

// fitSubscriptions returns an ErrInvalid if there would be too many subscriptions.
func fitSubscriptions(b *rights.Book, put []record.AccessRule) error {
	n, size := totalOf(record.RuleSubscription, put, b.Subscriptions, func(d rights.StoredSubscription) (string, []byte) { return d.Name, d.Spec })
	if n > maxSubscriptions || size > maxAllSubscriptions {
		return tko.Errorf(tko.ErrInvalid, "there would be %d subscriptions of %d bytes: use at most %d of %d bytes", n, size, maxSubscriptions, maxAllSubscriptions)
	}
	return nil
}

// Subscriptions returns the subscriptions by name, with their statuses. It needs the right
// inspect.
func (s *SubscriptionKeeper) Subscriptions(ctx context.Context) ([]tko.Subscription, error) {
	ctx, _, err := s.rights.Enter(ctx, "", access.Inspect)
	if err != nil {
		return nil, err
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return nil, err
	}
	states, err := s.store.Subscriptions(ctx)
	if err != nil {
		return nil, err
	}
	head, err := s.store.Head(ctx)
	if err != nil {
		return nil, err
	}
	holds, err := s.store.Holds(ctx)
	if err != nil {
		return nil, err
	}
	held := slices.ContainsFunc(holds, func(h tko.Hold) bool { return h.Queue == tko.QueueNotify })
	var all []tko.Subscription
	for _, d := range book.Subscriptions {
		one := publicSubscription(d)
		if s.settings.Notify != nil {
			i := slices.IndexFunc(states, func(state record.SubscriptionState) bool { return state.Name == d.Name })
			var doc []byte
			if i >= 0 {
				doc = states[i].Doc
			}
			one.Status = s.settings.Notify.Status(one, doc, head)
			if held {
				holdBack(&one.Status)
			}
		}
		all = append(all, one)
	}
	return all, nil
}

// holdBack says that nothing is sent because the store was restored.
func holdBack(status *tko.SubscriptionStatus) {
	for i, c := range status.Conditions {
		if c.Type == tko.ConditionAccepted {
			status.Conditions[i].Status, status.Conditions[i].Reason = tko.ConditionFalse, tko.SubscriptionReasonRestored
			status.Conditions[i].Message = "the store was restored from a backup, so messages wait: the lost store may still send them; suspend what this one shall not send, then release it (tko hold release --queues)"
		}
	}
}

// publicSubscription returns a subscription with its owner.
func publicSubscription(s rights.StoredSubscription) tko.Subscription {
	one := s.Subscription
	one.Owner = s.Owns.Public()
	return one
}

// DeleteSubscription deletes a subscription that a user registered. What it has not told is
// never told.
func (s *SubscriptionKeeper) DeleteSubscription(ctx context.Context, name string) error {
	ctx, c, err := s.rights.Enter(ctx, "", access.Subscribe)
	if err != nil {
		return err
	}
	why := rights.Author(ctx).Why
	_, err = rights.ChangeRules(ctx, s.rights, c, func(book *rights.Book) (change rights.Change, err error) {
		d, found := subscriptionOf(book, name)
		switch {
		case !found:
			return change, tko.Errorf(tko.ErrNotFound, "subscription %q: not found", name)
		case d.Parent != "" && !d.Undeclared:
			return change, tko.Errorf(tko.ErrInvalid, "subscription %q: %s: remove its manifest there", name, declaredBy(d))
		}
		change.Erase(record.RuleSubscription, name)
		change.Records = []audit.Record{{Kind: record.RuleSubscription, ID: name, Op: "deleted", Why: why}}
		return change, nil
	})
	return err
}

// TestSubscription sends a test message to the destination of a subscription, now, and
// returns its ID.
func (s *SubscriptionKeeper) TestSubscription(ctx context.Context, name string) (id string, err error) {
	ctx, c, err := s.rights.Enter(ctx, "", access.Subscribe)
	if err != nil {
		return "", err
	}
	book, err := s.rights.RulesOf(ctx, 0)
	if err != nil {
		return "", err
	}
	d, found := subscriptionOf(book, name)
	switch {
	case !found:
		return "", tko.Errorf(tko.ErrNotFound, "subscription %q: not found", name)
	case s.settings.Notify == nil:
		return "", tko.Errorf(tko.ErrInvalid, "this server sends no messages: ask another one")
	}
	if s.settings.Audit {
		tested := audit.Record{Caller: *c.AuditCaller(ctx), Kind: record.RuleSubscription, ID: name, Op: "tested", Why: rights.Author(ctx).Why}
		tested.Decision = audit.Allow
		if err := s.store.Audit(ctx, tested); err != nil {
			return "", err
		}
	}
	return s.settings.Notify.Test(ctx, publicSubscription(d))
}

// A Messenger sends the messages of subscriptions, and knows their specs.
type Messenger interface {
	// Check returns an ErrInvalid if a subscription can't work, and whether it tells audit
	// records.
	Check(s tko.Subscription) (audits bool, err error)
	// Uses returns how a subscription uses credentials.
	Uses(s tko.Subscription) []leash.Use
	// Status returns how far a subscription is, from its stored state, which is nil if
	// there is none, at a head of the change log.
	Status(s tko.Subscription, doc []byte, head int64) tko.SubscriptionStatus
	// Test sends a test message and returns its ID.
	Test(ctx context.Context, s tko.Subscription) (id string, err error)
}

// Told returns what the notifier of this server reads and writes. It is for the server
// itself: no transport offers it.
func (s *SubscriptionKeeper) Told() *Told { return &Told{shared: s.shared, changes: s.changes} }

// Told reads what subscriptions tell, as their owners, and keeps how far they are.
type Told struct {
	shared

	changes Watched
}

// HoldNotifier takes or extends the lease of the server that sends messages.
func (t *Told) HoldNotifier(ctx context.Context, holder string, lease time.Duration) (bool, error) {
	return t.store.HoldNotifier(ctx, holder, lease)
}

// All returns all subscriptions, and the states of them, and of those that were deleted, by
// name.
func (t *Told) All(ctx context.Context) (all []tko.Subscription, states map[string][]byte, err error) {
	book, err := t.rights.RulesOf(ctx, rights.Age)
	if err != nil {
		return nil, nil, err
	}
	stored, err := t.store.Subscriptions(ctx)
	if err != nil {
		return nil, nil, err
	}
	states = map[string][]byte{}
	for _, one := range stored {
		states[one.Name] = one.Doc
	}
	for _, d := range book.Subscriptions {
		all = append(all, publicSubscription(d))
	}
	return all, states, nil
}

// Save saves the state of a subscription, or removes it if doc is nil. The error is an
// ErrConflict if another server has the lease.
func (t *Told) Save(ctx context.Context, holder, name string, doc []byte) error {
	return t.store.SaveSubscription(ctx, holder, record.SubscriptionState{Name: name, Doc: doc})
}

// newest returns the newest positions of the change log and of the audit log.
func (s *shared) newest(ctx context.Context) (position, audited int64, err error) {
	if position, err = s.store.Head(ctx); err != nil {
		return 0, 0, err
	}
	_, head, _, err := s.store.Audited(ctx, 1<<62, 1)
	return position, head.Seq, err
}

// Newest returns the newest positions of the change log and of the audit log.
func (t *Told) Newest(ctx context.Context) (position, audited int64, err error) {
	return t.newest(ctx)
}

// as returns the caller that reads for a subscription: its owner, with the rights that it has
// now. The error is an ErrDenied if it has none.
func (t *Told) as(ctx context.Context, name string) (context.Context, *rights.Caller, error) {
	book, err := t.rights.RulesOf(ctx, rights.Age)
	if err != nil {
		return ctx, nil, err
	}
	d, found := subscriptionOf(book, name)
	if !found {
		return ctx, nil, tko.Errorf(tko.ErrNotFound, "subscription %q: not found", name)
	}
	return t.rights.AsOwnerOfSubscription(ctx, book, d)
}

// Changes returns the changes of some kinds after a position and up to another one, at most
// limit, of which the owner of a subscription sees those that are returned.
func (t *Told) Changes(ctx context.Context, name string, after, upTo int64, limit int, kinds []tko.Kind) (page tko.SubscribedChanges, err error) {
	ctx, c, err := t.as(ctx, name)
	if err != nil {
		return page, err
	}
	if page.Head, err = t.store.Head(ctx); err != nil {
		return page, err
	}
	changes, err := t.store.Changes(ctx, after, limit)
	if errors.Is(err, tko.ErrGone) {
		if page.GoneTo, err = t.store.BeforeNewest(ctx, 1<<30); err != nil {
			return page, err
		}
		changes, err = t.store.Changes(ctx, page.GoneTo, limit)
	}
	if err != nil {
		return page, err
	}
	page.Position = max(after, page.GoneTo)
	w := t.rights.WatcherOf(c)
	for _, change := range changes {
		if change.Position > upTo { // there is none between
			page.Position = max(page.Position, upTo)
			break
		}
		page.Position, page.Time = change.Position, change.Time
		if !slices.Contains(kinds, change.Kind) {
			continue
		}
		if change, err = t.changes.Seen(ctx, w, change); err != nil {
			return page, err
		}
		if change.Position != 0 {
			page.Changes = append(page.Changes, tko.SubscribedChange{Change: change, Created: change.Op == tko.OpWritten && change.Revision == 1})
		}
	}
	return page, t.describe(ctx, c, page.Changes)
}

// describe adds what is known about the entities of changes now.
func (t *Told) describe(ctx context.Context, c *rights.Caller, changes []tko.SubscribedChange) error {
	now := map[record.Key]record.Record{}
	var keys []record.Key
	add := func(key record.Key) {
		if _, ok := now[key]; !ok && key.ID != "" {
			now[key] = record.Record{}
			keys = append(keys, key)
		}
	}
	for _, change := range changes {
		add(record.Key{Kind: change.Kind, ID: change.ID})
	}
	get := func() error {
		records, err := t.store.Get(ctx, record.Fields{}, keys...)
		for _, r := range records {
			now[r.Key] = r
		}
		keys = nil
		return err
	}
	if err := get(); err != nil {
		return err
	}
	for _, r := range now {
		add(record.Key{Kind: tko.KindSite, ID: r.Site})
	}
	if err := get(); err != nil {
		return err
	}
	book, err := t.rights.RulesOf(ctx, rights.Age)
	if err != nil {
		return err
	}
	for i := range changes {
		change := &changes[i]
		r := now[record.Key{Kind: change.Kind, ID: change.ID}]
		switch {
		case c.Sees(r):
			change.Template, change.Site, change.Metadata, change.Conditions = tko.TemplateID(r.Template), tko.SiteID(r.Site), r.Effective(), r.Conditions
			change.Current = r.Position == change.Position
		case r.Revision == 0 && change.Op == tko.OpDeleted:
			b, err := t.changes.Before(ctx, change.Change)
			if err != nil {
				return err
			}
			if b != nil {
				change.Template, change.Site, change.Metadata = tko.TemplateID(b.Template), tko.SiteID(b.Site), b.Metadata
			}
		}
		at := change.Site
		if change.Kind == tko.KindSite {
			at = tko.SiteID(change.ID)
		}
		if site := now[record.Key{Kind: tko.KindSite, ID: string(at)}]; len(book.Freezes) > 0 && site.Revision != 0 {
			_, change.Frozen = tko.Frozen(book.Freezes, site.Effective(), time.Now())
		}
	}
	return nil
}

// Audited returns the audit records after a number and up to another one, at most limit. The
// error is an ErrDenied if the owner of the subscription may not read them.
func (t *Told) Audited(ctx context.Context, name string, after, upTo int64, limit int) (page tko.SubscribedRecords, err error) {
	ctx, c, err := t.as(ctx, name)
	if err != nil {
		return page, err
	}
	if !c.MayInGeneral(access.Audit) {
		return page, tko.Errorf(tko.ErrDenied, "subscription %q is held: its owner %s may not read the audit log any more: give it the role audit, or remove that filter", name, c.Identity.Subject)
	}
	stored, head, base, err := t.store.Audited(ctx, after, limit)
	if err != nil {
		return page, err
	}
	page.Seq, page.Head = after, head.Seq
	if base.Seq > after {
		page.GoneTo, page.Seq = base.Seq, base.Seq
	}
	for _, one := range stored {
		if one.Seq > upTo {
			break
		}
		page.Seq = one.Seq
		page.Records = append(page.Records, tko.SubscribedRecord{Seq: one.Seq, Text: one.Text})
	}
	return page, nil
}

// Sources returns the GitOps sources. The error is an ErrDenied if the owner of the
// subscription may not read them.
func (t *Told) Sources(ctx context.Context, name string) ([]tko.Source, error) {
	ctx, c, err := t.as(ctx, name)
	if err != nil {
		return nil, err
	}
	if !c.MayInGeneral(access.Inspect) {
		return nil, tko.Errorf(tko.ErrDenied, "subscription %q is held: its owner %s may not read sources: give it a role with the right inspect, or remove that filter", name, c.Identity.Subject)
	}
	return t.store.Sources(ctx)
}
