package record

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/krm"
)

// A Store stores records. It doesn't merge, validate or interpret changes. Its
// methods may be called concurrently. Several stores, also in different
// processes, may share a database (PostgreSQL): they behave as one. Package
// storetest tests the contract that these comments state.
//
// Errors: tko.ErrNotFound, tko.ErrConflict, tko.ErrBusy and tko.ErrGone as
// documented; errors of the context; any other error is a fault of the database.
// After an error nothing has changed, unless the error states that the outcome
// is unknown.
type Store interface { //nolint:interfacebloat // of interfaces, one for each concern
	Reader
	Tallier
	Past
	Writer
	Tokens
	Queue
	Feed
	AccessRules
	AuditLog
	SubscriptionStates
	Reaches
	Rollouts
	RolloutSummaries
	Lifecycle
}

// A Lifecycle describes, cleans up and closes a store.
type Lifecycle interface {
	Collector
	Backups
	// Backend returns the kind of database and its version, for display. It
	// contains no secrets.
	Backend() string
	// Close closes the store. Calls in progress fail.
	Close() error
}

// A Key identifies a record.
type Key struct {
	Kind tko.Kind
	ID   string // "type|name" for plugins
}

// An AtRevision names a revision of an entity.
type AtRevision struct {
	Key
	Revision int64
}

// A Digest is the SHA-256 of an encoded package; zero if there is no package.
type Digest [32]byte

// A Record is a stored entity. The caller owns a record that a read returns,
// except for its Metadata and Package: these are shared and must not be
// changed.
type Record struct {
	Key
	UID      string // set by the catalog when the record is new; never changes
	Revision int64  // assigned by the store: 1, 2, …
	Position int64  // assigned by the store
	Created  time.Time
	Updated  time.Time
	Author   tko.Author

	Parent      string // deployments: ID of the parent, or ""
	Template    string // sites, deployments
	Site        string // deployments
	Prepared    bool
	Approved    bool
	Origin      string // unique within its kind, if not ""; never changes
	tko.Details        // templates, sites
	// Replaces are the deployments that this one replaces when it is both
	// prepared and approved. Revisions don't record them.
	Replaces []string
	// Replaced are the deployments that this one has replaced, the newest first. Revisions
	// don't record them.
	Replaced []string
	// Base is the revision of the template that a deployment was made from; 0
	// if it has no template, or if the revision was not recorded. Revisions
	// don't record it.
	Base int64

	Metadata *Metadata
	Digest   Digest
	Package  []byte // the encoded package; read only on request
	// Derivation is the digest of an encoded derivation.Record, which says what the
	// package was made from; zero if that isn't known. Derived is the record, of a
	// record to be written; the store retains it as long as a revision names it.
	Derivation Digest
	Derived    []byte
	// Owner is the digest of an encoded owner, for which controllers derive from the
	// revision, of deployments and rollouts; zero if it is that of the parent, or if there is
	// none. Owned is the encoded owner, of a record to be written; the store retains it as
	// long as a revision names it.
	Owner      Digest
	Owned      []byte
	Plugin     []byte                // plugins: the encoded plugin
	CRDs       bool                  // templates: the package contains custom resource definitions
	Conditions []tko.Condition       // sites, deployments, plugins
	Steps      []tko.PreparationStep // of the revision: written with it, and read by Revision only

	Deployments []string // templates, sites: sorted IDs of their deployments; read only on request
	Count       int      // templates, sites: number of their deployments; only lists read it, on request

	// Untriggered, of a site to be written, reports that no resource of its
	// package triggers scheduling, as of [Write.Epoch]. It isn't stored.
	Untriggered bool
}

// Deleting reports whether a deletion of the record has begun and is not
// complete.
func (r *Record) Deleting() bool {
	return tko.ConditionIs(r.Conditions, tko.ConditionDeleting) == tko.ConditionTrue
}

// Metadata is an entity's metadata and its origins, and the data that
// transports attach to the entity. The store indexes Effective and Labels; it
// stores equal Metadata once.
type Metadata struct {
	Effective map[string]string `json:"e,omitempty"`
	Inherited map[string]string `json:"i,omitempty"` // from its template, when the record was written
	Passed    map[string]string `json:"p,omitempty"` // by the caller
	// Removed are the sorted keys of inherited or gathered metadata that a
	// caller removed.
	Removed []string `json:"r,omitempty"`
	// Labels are stored as they were written. Labels with a prefix
	// ("app.kubernetes.io/name") are not metadata; the others are other
	// spellings of metadata.
	Labels map[string]string `json:"l,omitempty"`
	// Attached is opaque data of a transport, as compact JSON. Only that
	// transport reads it, except for its annotations and owner references: see [catalog.Entities.Marks].
	Attached json.RawMessage `json:"a,omitempty"`
	// Applied is what managers named the last time, by manager.
	Applied map[string]AppliedSet `json:"m,omitempty"`
	// Awaited are references to what doesn't exist yet, of deployments and sites; nil if there are none.
	Awaited *Awaited `json:"w,omitempty"`
}

// Fields are the optional parts of a record that a read returns.
type Fields struct {
	Package     bool
	Deployments bool
	Counts      bool // lists only

	// Scope is what Deployments and Counts may show: only deployments within it.
	// The zero value shows none. Lists use the scope of their query.
	Scope access.View
}

// A RevisionReader reads records as of revisions.
type RevisionReader interface {
	// Revision returns a record as of a revision, with its package, without its
	// conditions and deployments. It returns ErrNotFound if the key or the
	// revision never existed, or if the revision is no longer retained.
	// Revisions of a deleted record are returned as long as they are retained.
	Revision(ctx context.Context, key Key, revision int64) (Record, error)
	// Revisions is Revision of several revisions, in their order, with packages only if the
	// fields say so. The record of one that Revision doesn't find has Revision 0.
	Revisions(ctx context.Context, fields Fields, wanted ...AtRevision) ([]Record, error)
}

// A Reader reads. Each call sees one consistent snapshot: a change is visible
// completely or not at all.
type Reader interface {
	// Get returns the records of keys, in the order of keys. The record of a
	// key that doesn't exist has Revision 0.
	Get(ctx context.Context, fields Fields, keys ...Key) ([]Record, error)
	RevisionReader
	// List returns the records that match query, sorted by ID byte by byte, all
	// from one snapshot, however long the caller takes and whatever is written
	// during that time. It holds at most a chunk of the result in memory.
	List(ctx context.Context, query Query) iter.Seq2[Record, error]
	// Descendants calls visit with the ID of each descendant of the deployments
	// ids, in no order, possibly more than once. It doesn't visit ids
	// themselves. visit must not use the store.
	Descendants(ctx context.Context, ids []string, visit func(id string)) error
	// Derivation returns the content of a [Record.Derivation] or [Record.Owner]. The caller must not
	// change it. Any error means that it isn't known.
	Derivation(ctx context.Context, digest Digest) ([]byte, error)
	// Epoch returns the position of the newest change to the entities that
	// packages are validated against: plugins, and templates with CRDs.
	Epoch(ctx context.Context) (int64, error)
}

// Past reads records as of a position of the log, as [Query.AsOf] does: as they were
// after the change at the position, deleted records included. The metadata and the
// deployments of templates and sites are as of the position, too. Conditions are those
// that have not changed since. Replaces is empty.
//
// A position before the oldest one that is retained is an ErrGone that names the
// oldest one. One beyond the newest is an ErrInvalid.
type Past interface {
	// GetAt is Get as of a position. Of deployments only, it also reads positions before
	// the oldest one, if the revisions of each have no gap since then: see
	// [Retention.Longer]. Otherwise the ErrGone names the oldest position of the deployment.
	GetAt(ctx context.Context, position int64, fields Fields, keys ...Key) ([]Record, error)
	// Past returns the oldest and the newest state that can be read. The time of
	// either is zero if it isn't known or if there are no changes.
	Past(ctx context.Context) (oldest, newest Moment, err error)
	// PositionAt returns the position of the newest change up to a time. If the time is
	// before the oldest one that is retained, it returns the position of the newest change
	// that is still there, or ErrGone if there is none.
	PositionAt(ctx context.Context, t time.Time) (int64, error)
	// HistorySize returns about what the log takes. It is cheap.
	HistorySize(ctx context.Context) (HistorySize, error)
	// History returns changes, newest first, without those of conditions. It returns
	// none up to the oldest position that is retained, except for those of a single record
	// (ID): of these, some may be missing there.
	History(ctx context.Context, q HistoryQuery) ([]tko.Change, error)
}

// A HistorySize says what the log takes. Bytes are 0 if the database can't tell.
type HistorySize struct {
	Changes, Bytes, DatabaseBytes int64
	Longer                        []LongerSize // by policy, sorted; without policies that retain nothing
}

// A HistoryQuery selects changes of a kind.
type HistoryQuery struct {
	Kind          tko.Kind
	ID            string // "": all
	After, Before int64  // positions between which changes are, both exclusive
	Limit         int    // maximum number of changes
}

// A Moment is a position of the log and the time of its change.
type Moment struct {
	Position int64
	Time     time.Time
}

// FlagColumns and TimeColumns are the columns of records that plain filters compare.
var (
	FlagColumns = map[string]func(*Record) bool{
		"prepared": func(r *Record) bool { return r.Prepared },
		"approved": func(r *Record) bool { return r.Approved },
	}
	TimeColumns = map[string]func(*Record) time.Time{
		"updated": func(r *Record) time.Time { return r.Updated },
	}
)

// A Query selects records of one kind.
type Query struct {
	Kind tko.Kind
	// Scope is mandatory: only records within it are selected, so the zero value
	// selects none. Filters by the template or site of records, and the deployments
	// of records, are limited to it, too.
	Scope access.View

	IDs              []tko.Pattern // all must match
	Templates        []tko.Pattern
	Sites            []tko.Pattern
	Metadata         map[string]tko.Pattern
	Labels           map[string]tko.Pattern // see Metadata.Labels
	Origin           string                 // "": not filtered
	TemplateMetadata map[string]tko.Pattern // of the record's template
	SiteMetadata     map[string]tko.Pattern // of the record's site
	Parent           string                 // "": not filtered
	// Is and Since select by plain columns (see [FlagColumns] and [TimeColumns]): by the value
	// of one that is true or false, and by the least value of a time.
	Is    map[string]bool
	Since map[string]time.Time
	// Outdated, if not nil, selects deployments by whether Base is less than
	// the revision of the template. If Base was not recorded, the creation time
	// of the deployment is compared with the time of the template's revision.
	Outdated   *bool
	Conditions []tko.ConditionSelect // all must match
	CRDs       bool                  // only templates whose packages contain custom resource definitions

	// AsOf, if not 0, is the position as of which records are selected and returned:
	// see [Past].
	AsOf int64

	After  string // only IDs greater than this
	Offset uint32 // number of matching records to skip, counted after After
	Limit  int    // maximum number of records; negative: no limit; 0: none

	Fields Fields
}

// A Write is a change of one record.
type Write struct {
	Op tko.Op
	// Record is the complete new state for OpWritten (with Package and
	// Metadata; the store sets Updated, and Created of a new record), the key
	// and Conditions for OpStatus, or the key for OpDeleted. An OpStatus may have
	// Metadata, which may differ from those of the record only in Attached: they
	// become those of its newest revision.
	Record Record
	// Expect is the revision that the record must have: Absent for a record
	// that must not exist, Any for OpDeleted and OpStatus of any revision. If
	// the revision differs, the commit fails with ErrConflict; if the record
	// doesn't exist, with ErrNotFound, except for a deletion with Any, which
	// then does nothing.
	Expect int64
	// Position, if not 0, is the position that the record must have: not even
	// its conditions have changed since. Otherwise the commit fails with
	// ErrConflict.
	Position int64
	// If a new record has an Origin that another record of its kind has, the
	// write is skipped, and its Outcome describes the existing record.

	// KeepsOwner reports that the owner of the record is the one to be stored, whichever caller
	// writes it. It is for the catalog.
	KeepsOwner bool

	// Token is the modification token under which the record is written. The
	// commit ends it. It fails with ErrNotFound if the token is unknown, and
	// with ErrBusy if it has expired. OpWritten without a token of a deployment
	// for which a valid token exists fails with ErrBusy.
	Token string
	// Requires are the records that the record refers to. The commit fails with
	// a *MissingError, which names the first one that doesn't exist or is being
	// deleted.
	Requires []Key
	// SingleStep, of OpDeleted, requires that this commit completes the
	// deletion. Otherwise nothing is written, and the commit fails with
	// ErrConflict: other records depend on the record, and earlier writes of
	// this call neither move nor delete them.
	SingleStep bool
	// ParentRevision, if not 0, is the revision that the parent (Record.Parent)
	// must have. Otherwise, or if the parent is being deleted, the commit fails
	// with ErrConflict.
	ParentRevision int64
	// Epoch, if not nil, is the epoch (see Reader.Epoch) with whose rules the
	// record was validated. ReadSet are the versions of the records that it was
	// derived from. If the epoch or one of the records has changed, the commit
	// fails with a *StaleError.
	Epoch   *int64
	ReadSet []Version
	// Access, if not nil, is the version of the rules of access that permit the
	// write. If the rules have changed, the commit fails with a *StaleError.
	Access *int64
	// Audit, if not nil, is the caller in the audit records of the changes that
	// the write makes. If it is nil, the changes are not recorded.
	Audit *audit.Caller
	// Rollout, if not nil, changes rollouts in the same transaction.
	Rollout *RolloutWrite
	// Cause is the request that makes the change, for the work that the change
	// causes; "" if it isn't known.
	Cause string
	// Used, of a new record, reports that an earlier record may have had its ID.
	Used bool
	// Claim, if not nil, is a claim of work that the caller must still hold;
	// otherwise the commit fails with ErrConflict. While the commit is in
	// progress, no other worker can claim the item.
	Claim *tko.WorkItem
	// DeleteLimit, if not nil, is the maximum number of records, descendants
	// included, that this deletion and the earlier ones of the same call may
	// delete. If they would delete more, the commit fails with an
	// *ExceededError.
	DeleteLimit *int
}

// A Version is a record as of a position.
type Version struct {
	Key      Key
	Position int64
}

// A StaleError reports a stale read: a record, or the rules, that a write was
// derived from have changed. Derive it again from the current state.
type StaleError struct{ What string }

func (e *StaleError) Error() string { return e.What + " has changed meanwhile: try again" }

// Is reports true for ErrConflict.
func (e *StaleError) Is(target error) bool { return target == tko.ErrConflict }

// Values of Write.Expect.
const (
	Absent int64 = 0
	Any    int64 = -1
)

// A MissingError reports that a record that a write refers to doesn't exist or
// is being deleted.
type MissingError struct {
	Key      Key
	Deleting bool // a deletion of it has begun
}

func (e *MissingError) Error() string {
	if e.Deleting {
		return string(e.Key.Kind) + " " + e.Key.ID + " is being deleted"
	}
	return string(e.Key.Kind) + " " + e.Key.ID + " does not exist"
}

// Is reports true for ErrInvalid.
func (e *MissingError) Is(target error) bool { return target == tko.ErrInvalid }

// An Outcome is the result of a write.
type Outcome struct {
	Key      Key   // of the record; if its origin existed, of the existing record
	Revision int64 // the new one
	Position int64
	Existed  bool // OpWritten: a record of this origin existed, and nothing was written
	// Deleted, of OpDeleted, is the number of deleted records, this one included;
	// 0 if it didn't exist.
	Deleted     int
	Descendants int
	Dissociated int // OpDeleted: number of records whose reference to it was removed
	// More, of OpDeleted, reports that this was one step of the deletion and that
	// the record still exists. Commit again.
	More bool
}

// A Writer writes.
type Writer interface {
	// Commit applies writes in their order in one transaction, all or none, and
	// durably: after it returns, a crash loses nothing. Concurrent calls may
	// share a transaction; a call that fails doesn't fail the others. The keys
	// of one call must differ.
	//
	// With each change, Commit writes the record's revision, a change in the
	// log and the work items that [WorkFor] returns. It invalidates the tokens
	// of deleted deployments.
	//
	// Deleting a template or site removes the references of sites and
	// deployments to it, each as a change of its own. Deleting a deployment
	// deletes its descendants, children before their parents. The number of
	// these additional changes is limited, so that other writers aren't blocked
	// for long: while a deletion is incomplete, its Outcome has More, and the
	// caller commits it again. The last commit deletes the record itself, when
	// no other record refers to it. Between two commits of a deletion, some
	// references to the record are removed already, and the record is marked as
	// being deleted ([Record.Deleting]): no new record can refer to it. Any
	// later deletion of the record continues the interrupted one.
	//
	// The changes are counted as the [Reach] of the writes says, in the same
	// transaction. If they exceed a limit, nothing is written, and the commit fails with
	// a *ReachError.
	Commit(ctx context.Context, writes Gated) ([]Outcome, error)
	// MaxStep returns the maximum number of records that one commit changes in addition
	// to the records of its writes. A commit changes far fewer if they take long.
	MaxStep() int
}

// Tokens are exclusive rights to modify deployments.
type Tokens interface {
	// StartModification stores a token that is valid for ttl, and returns the
	// deployment with its package, and the token's expiry. It returns
	// ErrNotFound if the deployment doesn't exist, and ErrBusy while another
	// token for it is valid; the error states when that one expires.
	StartModification(ctx context.Context, deployment, token string, ttl time.Duration) (Record, time.Time, error)
	// Modification returns the deployment of a token, with its package, as it
	// was when the token was issued, without its conditions and position, and as
	// it is now. It returns ErrNotFound if the token is unknown, and ErrBusy if
	// it has expired.
	Modification(ctx context.Context, token string) (start, current Record, err error)
	// CancelModification ends a token. Errors as for Modification.
	CancelModification(ctx context.Context, token string) error
	// Modifications returns the valid tokens, sorted by deployment, each with
	// the author of the context in which it was issued.
	Modifications(ctx context.Context) ([]tko.OpenModification, error)
	// BreakModification ends the token of a deployment, and returns its
	// description. It returns ErrNotFound if no token of the deployment is
	// valid.
	BreakModification(ctx context.Context, deployment string) (tko.OpenModification, error)
}

// A Queue stores work items and the GitOps sources that controllers work on.
// There is at most one item for each queue and key.
type Queue interface { //nolint:interfacebloat // its methods depend on each other
	Sources
	TargetStates
	// ClaimWork returns up to Max items that are due and not leased, oldest
	// first, without waiting. If there are none, it returns when the next one
	// will be due (zero: unknown).
	ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, time.Time, error)
	// RenewWork extends the leases that the caller still holds, and returns
	// their items.
	RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error)
	// WorkClaim returns the claim of an item, and when its lease ends. It
	// returns ErrNotFound if no worker has a lease on the item.
	WorkClaim(ctx context.Context, queue, key string) (claim string, until time.Time, err error)
	// WorkOf returns the items of a queue, sorted by key.
	WorkOf(ctx context.Context, queue string) ([]QueuedWork, error)
	// QueueStatistics returns the numbers of items of a queue, up to a limit.
	QueueStatistics(ctx context.Context, queue string) (tko.QueueStatistics, error)
	// FailingWork returns the items of a queue whose last attempt failed, at most a number
	// of them: those with the most failures, then sorted by key.
	FailingWork(ctx context.Context, queue string, most int) ([]tko.FailingWork, error)
	// FinishWork ends claims. It ignores claims that the caller no longer
	// holds. An item that was enqueued again after it was claimed stays, and is
	// due at once, or within [WakeDelay] if it failed. backoff returns the
	// delay of failed items that were not enqueued again.
	FinishWork(ctx context.Context, items []tko.FinishedWork, backoff func(attempt int) time.Duration) error
	// EnqueueWork enqueues an item for each key of a queue, due at once; if
	// missing is set, only for keys that have no item.
	EnqueueWork(ctx context.Context, queue string, keys []string, missing bool) error
}

// QueuedWork is an item of a queue.
type QueuedWork struct {
	Key string
	// Claimed and LeaseUntil are those of a claim whose lease has not ended, by this machine's
	// clock; zero if there is none.
	Claimed, LeaseUntil time.Time
}

// WorkSignals say when there is work.
type WorkSignals interface {
	// WorkSignal is [Feed.Signal] for the work of one queue: the channel is closed
	// once an item of the queue may have become due earlier than at the time of
	// the call, and not at each commit. Changes that make items due within
	// [WakeDelay] may close it later, but before then.
	WorkSignal(queue string) <-chan struct{}
}

// Sources store GitOps sources.
type Sources interface {
	// Source returns a source. It returns ErrNotFound if there is none. The
	// source is Enqueued unless its work was finished after it was enqueued
	// last, and isn't due again.
	Source(ctx context.Context, name string) (tko.Source, error)
	// Sources returns all sources, sorted by name, without their State.
	Sources(ctx context.Context) ([]tko.Source, error)
	// SaveSource creates or replaces a source, except for Approved, and returns
	// its new version. It returns ErrConflict if the caller no longer holds the
	// claim.
	SaveSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (version int64, err error)
	// ApproveSource sets Approved. It returns ErrNotFound if the source doesn't
	// exist.
	ApproveSource(ctx context.Context, name, digest string) error
	// ForgetSource removes a source, if it exists. Errors as for SaveSource.
	ForgetSource(ctx context.Context, name string, claim tko.WorkItem) error
}

// TargetStates hold the states that targets of the meta-scheduler save for
// sites.
type TargetStates interface {
	// TargetState returns one, which belongs to the caller. It returns ErrNotFound
	// if there is none.
	TargetState(ctx context.Context, site tko.SiteID, name string) (tko.TargetState, error)
	// SaveTargetState writes one, whether or not there is one, and returns its
	// new version, from 1. It returns ErrConflict if the caller no longer holds
	// the claim.
	SaveTargetState(ctx context.Context, s tko.TargetState, claim tko.WorkItem) (version int64, err error)
}

// A Feed reads the change log.
type Feed interface {
	WorkSignals
	// Changes returns up to limit changes after a position, in their order. All
	// servers see the same order, and no change ever appears before one that
	// was returned. It returns ErrGone if changes after the position are no
	// longer retained.
	Changes(ctx context.Context, after int64, limit int) ([]tko.Change, error)
	// Head returns the position of the newest change.
	Head(ctx context.Context) (int64, error)
	// BeforeNewest returns the position after which there are the newest n changes, or all that are retained if they are fewer: positions
	// ascend, but are not counts.
	BeforeNewest(ctx context.Context, n int) (int64, error)
	// Signal returns a channel that is closed once something may have been
	// committed, or work enqueued, since the call: at once if through this
	// store, soon if through another one, and sometimes without a reason. Call
	// it first, then read, then wait for the channel.
	Signal() <-chan struct{}
}

// An AccessRule is a stored binding, policy or pending approval, as JSON.
type AccessRule struct {
	Kind string // binding, policy, approval
	ID   string
	Doc  []byte
}

// AccessRules store the rules of access. Each change of them has a version.
type AccessRules interface {
	// AccessVersion returns the version of the rules; 0 if none was ever written.
	AccessVersion(ctx context.Context) (int64, error)
	// Access returns all rules, sorted by kind, then ID, and their version.
	Access(ctx context.Context) (version int64, rules []AccessRule, err error)
	// ChangeAccess writes and removes rules if they still have the version
	// expect, and returns the new version; otherwise it returns ErrConflict.
	// records are written to the audit log in the same transaction.
	ChangeAccess(ctx context.Context, expect int64, put, remove []AccessRule, records ...audit.Record) (version int64, err error)
}

// An AuditLog stores audit records in one order. Commit writes those of changes.
type AuditLog interface {
	// Audit appends records, and sets their numbers and times.
	Audit(ctx context.Context, records ...audit.Record) error
	// Audited returns up to limit records after a number, in their order, the
	// head of the log, and the last record that retention removed, all from one
	// snapshot.
	Audited(ctx context.Context, after int64, limit int) (records []audit.Stored, head, base audit.Head, err error)
	// AuditedSince returns the number of the last record before a time, 0 if
	// there is none.
	AuditedSince(ctx context.Context, since time.Time) (int64, error)
	// AuditSink returns the number of the last record that a sink has received;
	// of an unknown sink, 0. SaveAuditSink saves it.
	AuditSink(ctx context.Context, name string) (int64, error)
	SaveAuditSink(ctx context.Context, name string, seq int64) error
	// TrimAudit removes records that are older than a time, oldest first, at most
	// limit, and returns their number.
	TrimAudit(ctx context.Context, before time.Time, limit int) (int, error)
}

// A SubscriptionState says how far the messages of a subscription are, as JSON.
type SubscriptionState struct {
	Name string
	Doc  []byte
}

// SubscriptionStates store how far the messages of subscriptions are.
type SubscriptionStates interface {
	// HoldNotifier takes the lease of the server that sends messages, or extends it, and
	// reports whether the holder has it. Only one has it at a time.
	HoldNotifier(ctx context.Context, holder string, lease time.Duration) (bool, error)
	// Subscriptions returns all states, sorted by name.
	Subscriptions(ctx context.Context) ([]SubscriptionState, error)
	// SaveSubscription writes one, whether or not there is one, or removes it, if it has
	// no Doc. It returns ErrConflict if the holder doesn't have the lease.
	SaveSubscription(ctx context.Context, holder string, state SubscriptionState) error
}

// Retention sets how much history is retained.
type Retention struct {
	// Changes is the retention time of the complete history: each change in the
	// log, and each revision. If 0, all are retained.
	Changes time.Duration
	// Revisions is the number of a record's newest revisions that are retained
	// longer than that, as long as the record exists. 0: all.
	Revisions int
	// Longer are the policies that retain the changes of deployments longer. Of several
	// that select a deployment, the longest counts. A deployment that was deleted has the
	// policy of its last revision.
	Longer []Longer
}

// Collected counts the data that a collection removed.
type Collected struct {
	Changes   int  // entries of the log: revisions, conditions and deletions
	Packages  int  // that no revision uses
	Metadata  int  // that no revision uses
	Pairs     int  // entries of the metadata index that no record uses
	Tokens    int  // that expired long ago
	Elsewhere bool // nothing was removed, because another store on the database is collecting
}

// A Collector removes history.
type Collector interface {
	// Collect removes data that retention doesn't cover, in small transactions with
	// pauses between them, so that it hardly slows other writers. The log stays
	// complete after some position: Changes after an older one returns ErrGone.
	// The package and metadata of a retained revision stay, also if a
	// concurrent writer on any store uses them again. So does the deployment of
	// a valid token. A collection may be interrupted at any time: the next one
	// continues it. Only one of the stores on a database collects at a time.
	Collect(ctx context.Context, retention Retention) (Collected, error)
}

// Backups write backups, and hold work, and the command of agents, after one was restored.
type Backups interface {
	// Backup writes everything in the store to an archive, as of one snapshot, while
	// others write. program is the version that the archive names. The archive is
	// complete only if Backup returns nil.
	Backup(ctx context.Context, w io.Writer, program string) error
	// Holds returns the work that is held, sorted by queue, then key.
	Holds(ctx context.Context) ([]tko.Hold, error)
	// ReleaseHolds removes those of the holds that exist, or sets their modes, and
	// makes their work due.
	// If sites are released in a store on standby, that promotes it.
	ReleaseHolds(ctx context.Context, holds []tko.Hold, mode string) error
	// Fence returns the fencing epoch, and whether the store is on standby.
	Fence(ctx context.Context) (tko.Fence, error)
}

// Work is a work item that a change requires.
type Work struct {
	Queue string
	Key   string
	// Again enqueues the item only if the queue has it already: the item may be
	// claimed by a worker that has read the record before the change.
	Again bool
	// MayWait doesn't make the item due earlier while it gathers: see [tko.FinishedWork].
	MayWait bool
}

// Orphaned returns the conditions of a deployment whose site was deleted at a
// time, as of a revision of the deployment: its objects were not removed, and
// their state is unknown from then on. It returns the same conditions if
// nothing was scheduled.
func Orphaned(conditions []tko.Condition, site string, now time.Time, revision int64) []tko.Condition {
	if scheduled := tko.FindCondition(conditions, tko.ConditionScheduled); scheduled == nil || scheduled.Reason == tko.ReasonUnscheduled {
		return conditions
	}
	after := slices.Clone(conditions)
	for i, c := range after {
		if c.Type != tko.ConditionScheduled && c.Type != tko.ConditionHealthy {
			continue
		}
		if c.Status != tko.ConditionUnknown {
			after[i].LastTransition = now
		}
		after[i].Status, after[i].Reason, after[i].ObservedRevision = tko.ConditionUnknown, tko.ReasonSiteDeleted, revision
		after[i].Message = fmt.Sprintf("site %q was deleted: its objects stay where they are, and TKO no longer manages them", site)
	}
	return after
}

// WorkFor returns the work that a change of a record requires. before is the
// record before the change (Revision 0: new), after the record after it
// (Revision 0: deleted). It is a pure function, which stores call in the
// transaction of the change.
func WorkFor(before, after Record) []Work {
	switch kind := max(before.Kind, after.Kind); kind {
	case tko.KindSite:
		if after.Revision != 0 {
			work := []Work{{Queue: tko.QueueSchedule, Key: after.ID, Again: !needsScheduling(before, after)}}
			if !after.Awaited().IsZero() { // it is resolved when its template arrives (see QueuesToWake)
				work = append(work, Work{Queue: tko.QueuePrepare, Key: tko.SiteWork(tko.SiteID(after.ID))})
			}
			return work
		}
	case tko.KindDeployment:
		return workForDeployment(before, after)
	case tko.KindRollout:
		if after.Revision != 0 {
			return []Work{{Queue: tko.QueueRollout, Key: after.ID}}
		}
	case tko.KindTemplate, tko.KindPlugin, tko.KindSource, tko.KindSubscription:
	}
	return nil
}

// needsScheduling reports whether the change of a site may require a
// reconciliation by itself: a resource of its package may trigger scheduling, or
// the site has conditions, which may have to be updated. The first
// reconciliation that finds a trigger or a deployment sets conditions: a site
// without conditions and without an item of work has neither, unless the change
// adds a trigger.
func needsScheduling(before, after Record) bool {
	samePackage := before.Revision != 0 && before.Digest == after.Digest
	return len(before.Conditions) > 0 || !after.Untriggered && !samePackage
}

func workForDeployment(before, after Record) []Work {
	var work []Work
	// Deployments that wait for a template or site are reconciled when it arrives (see QueuesToWake).
	// Placements that are evaluated repeatedly are reconciled when a user approves
	// the change that they propose, and when they change.
	if after.Revision != 0 && (!after.Prepared || !after.Awaited().IsZero() || tko.HasCondition(after.Conditions, tko.ConditionPlaced)) {
		work = append(work, Work{Queue: tko.QueuePrepare, Key: after.ID})
	}
	wasThere, isThere := Placed(before), Placed(after)
	if wasThere != "" && wasThere != isThere {
		work = append(work, Work{Queue: tko.QueueSchedule, Key: wasThere})
	}
	if isThere != "" {
		work = append(work, Work{Queue: tko.QueueSchedule, Key: isThere, MayWait: true})
	}
	return work
}

// Placed returns the site at which a deployment should run, or "".
func Placed(r Record) string {
	if r.Revision != 0 && r.Prepared && r.Approved {
		return r.Site
	}
	return ""
}

// QueuesToWake returns the queues whose items a change may affect as a whole,
// because items that failed or wait in it may succeed now: stores make the
// items of these queues due within [WakeDelay]. allSites reports that each site
// needs a reconciliation, because a schedule plugin has changed.
func QueuesToWake(before, after Record) (queues []string, allSites bool) {
	switch max(before.Kind, after.Kind) {
	case tko.KindSite:
		return []string{tko.QueuePrepare}, false // selectors may match its new metadata, or no longer match it
	case tko.KindTemplate:
		if before.Revision == 0 {
			return []string{tko.QueuePrepare}, false
		}
	case tko.KindPlugin:
		id := max(before.ID, after.ID)
		switch typ, _, _ := tko.SplitPluginID(id); typ {
		case tko.PluginSchedule:
			return nil, true
		case tko.PluginPrepare, tko.PluginValidate:
			return []string{tko.QueuePrepare}, false
		}
	case tko.KindDeployment, tko.KindRollout, tko.KindSource, tko.KindSubscription:
	}
	return nil, false
}

// WakeDelay is the maximum delay after which the items of a woken queue are due
// (see [QueuesToWake]): long enough to combine many successive changes.
const WakeDelay = time.Second

// StoredFormat is the encoding of packages in stores.
const StoredFormat = krm.CBOR
