package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/krm"
)

// A Store keeps records and nothing more: no merging, no validation, no
// decision about what a change means. All of its methods may be called at the
// same time. Several stores may share a database (PostgreSQL), from several
// processes: they behave as one. What is promised here is what storetest
// checks.
//
// Errors: tko.ErrNotFound, tko.ErrConflict, tko.ErrBusy and tko.ErrGone as
// said; context errors; anything else is a fault of the database, and nothing
// was changed unless the error says that the outcome is unknown.
type Store interface {
	Reader
	Writer
	Tokens
	Queue
	Feed
	Lifecycle
}

// A Lifecycle is what a store is, what it forgets, and when it ends.
type Lifecycle interface {
	Collector
	// Backend names the kind of database and its version for people, without
	// secrets.
	Backend() string
	// Close ends everything. Calls under way fail.
	Close() error
}

// A Key names a record.
type Key struct {
	Kind tko.Kind
	ID   string // "type|name" for plugins
}

// A Digest is the SHA-256 of an encoded package; zero for none.
type Digest [32]byte

// A Record is an entity as the store keeps it. What a read answers belongs to
// the caller, except for Metadata and Package: those are shared and must not
// be changed.
type Record struct {
	Key
	UID      string // given by the catalog when the record is new; stays
	Revision int64  // assigned by the store: 1, 2, …
	Position int64  // assigned by the store
	Created  time.Time
	Updated  time.Time
	Author   tko.Author

	Parent   string // deployments: ID of the parent, or ""
	Template string // sites, deployments
	Site     string // deployments
	Prepared bool
	Approved bool
	Origin   string // unique within its kind, if not ""; never changes
	// Replaces are deployments that this one replaces once it is prepared and
	// approved. Not part of revisions.
	Replaces []string
	// Base is the revision of the template that a deployment was made from; 0 if
	// there is none, or it was not recorded. Not part of revisions.
	Base int64

	Metadata   *Metadata
	Digest     Digest
	Package    []byte          // the encoded package; read only if asked for
	Plugin     []byte          // plugins: the encoded plugin
	CRDs       bool            // templates: the package defines custom resources
	Conditions []tko.Condition // sites, deployments

	Deployments []string // templates, sites: sorted IDs of their deployments; read only if asked for
	Count       int      // templates, sites: how many there are; read only if a list is asked for it
}

// Leaving says that a deletion of the record has begun and isn't at its end.
func (r *Record) Leaving() bool {
	return slices.ContainsFunc(r.Conditions, func(c tko.Condition) bool {
		return c.Type == tko.ConditionDeleting && c.Status == tko.ConditionTrue
	})
}

// Metadata is an entity's metadata and where it came from, and what transports
// attach to it. The store indexes Effective and Labels; it keeps equal Metadata once.
type Metadata struct {
	Effective map[string]string `json:"e,omitempty"`
	Inherited map[string]string `json:"i,omitempty"` // from the template it is based on, at the time
	Passed    map[string]string `json:"p,omitempty"` // by the caller
	// Removed are the keys, sorted, of what the record would inherit or gather and
	// what a caller took away.
	Removed []string `json:"r,omitempty"`
	// Labels are those of Kubernetes that are kept as they were written: those with
	// a prefix ("app.kubernetes.io/name") are no metadata, the others spell metadata.
	Labels map[string]string `json:"l,omitempty"`
	// Attached is what a transport keeps with the record, as compact JSON that
	// nobody else reads.
	Attached json.RawMessage `json:"a,omitempty"`
}

// Fields says what a read answers beside what it must.
type Fields struct {
	Package     bool
	Deployments bool
	Counts      bool // lists only
}

// A Reader reads. Every call sees one consistent snapshot: all of a change or
// nothing of it.
type Reader interface {
	// Get answers the records of keys, in their order. The record of a key that
	// doesn't exist has Revision 0.
	Get(ctx context.Context, fields Fields, keys ...Key) ([]Record, error)
	// Revision answers a record as it was at a revision, with its package,
	// without its conditions and deployments. ErrNotFound if the key never
	// existed, or the revision never was or is no longer kept. Revisions of a
	// deleted record are answered as long as they are kept.
	Revision(ctx context.Context, key Key, revision int64) (Record, error)
	// List answers what matches, sorted by ID byte by byte, all from one
	// snapshot, however long the caller takes and whatever is written
	// meanwhile. It holds no more than a chunk of the result in memory.
	List(ctx context.Context, query Query) iter.Seq2[Record, error]
	// Descendants tells the IDs of all descendants of deployments, in no order,
	// some perhaps more than once, and none that was asked for. tell must not
	// use the store.
	Descendants(ctx context.Context, ids []string, tell func(id string)) error
	// Epoch is the position of the newest change to what packages are
	// validated against: plugins, and templates with CRDs.
	Epoch(ctx context.Context) (int64, error)
}

// A Query selects records of one kind.
type Query struct {
	Kind tko.Kind

	IDs              []tko.Pattern // all must match
	Templates        []tko.Pattern
	Sites            []tko.Pattern
	Metadata         map[string]tko.Pattern
	Labels           map[string]tko.Pattern // see Metadata.Labels
	Origin           string                 // "" is no filter
	TemplateMetadata map[string]tko.Pattern // of the record's template
	SiteMetadata     map[string]tko.Pattern // of the record's site
	Parent           string                 // "" is no filter
	Prepared         *bool
	Approved         *bool
	// Outdated, if not nil, selects deployments by whether Base is less than the
	// revision of the template. If Base was not recorded, the time when the
	// deployment was created is compared with that of the template's revision.
	Outdated *bool
	CRDs     bool // only templates that define custom resources

	After  string // only IDs greater than this
	Offset uint32 // of what matches, after After
	Limit  int    // negative: none. 0: nothing

	Fields Fields
}

// A Write is one change of one record.
type Write struct {
	Op tko.Op
	// Record is the whole new state (OpWritten: with Package, Metadata; Created
	// of a new record and Updated are set by the store), or the key and
	// Conditions (OpStatus), or the key (OpDeleted).
	Record Record
	// Expect is the revision that the record must be at; Absent for a record that
	// must not be there; Any for either (OpDeleted, OpStatus). ErrConflict
	// otherwise, and ErrNotFound if it isn't there at all.
	Expect int64
	// Position, if not 0, is the one that the record must be at: nobody wrote
	// even its conditions since. ErrConflict otherwise.
	Position int64
	// Origin of a new record that exists already, on another ID: the write is
	// left out and its Outcome answers the one that is there.

	// Token is the modification token under which the record is written, and
	// which ends with it: ErrNotFound if it isn't known, ErrBusy if its time
	// has run out. Without one, OpWritten of a deployment that somebody holds a
	// token of is ErrBusy.
	Token string
	// Requires must exist, too, and not be leaving: their IDs are what the
	// record refers to. A *MissingError names the first that doesn't, or is.
	Requires []Key
	// Alone is of OpDeleted: the record goes in this commit, or nothing is
	// written. ErrConflict if others depend on it that this call doesn't move or
	// delete before.
	Alone bool
	// Parent's revision, if not 0: ErrConflict if the parent (Record.Parent)
	// is at another one, or leaving.
	ParentRevision int64
	// Epoch, if not nil, is the one as of which the record was validated, and
	// MadeFrom are records that it was made from, as they were. A *StaleError
	// says that one of them has moved on.
	Epoch    *int64
	MadeFrom []Version
	// Claim, if not nil, is of work that must still be the caller's: ErrConflict
	// if it isn't. As long as the commit goes on, nobody else claims it.
	Claim *tko.WorkItem
	// Most, if not nil, is how many records this deletion and those before it in
	// the same call of Commit may delete, at most, descendants included. An
	// *ExceededError if they would delete more.
	Most *int
}

// A Version is a record as it was.
type Version struct {
	Key      Key
	Position int64
}

// A StaleError says that what a record was made from has moved on: make it
// again from what is there now.
type StaleError struct{ What string }

func (e *StaleError) Error() string { return e.What + " has changed meanwhile: try again" }

// Is makes it an ErrConflict.
func (e *StaleError) Is(target error) bool { return target == tko.ErrConflict }

// Values of Write.Expect.
const (
	Absent int64 = 0
	Any    int64 = -1
)

// A MissingError says that a record that a write refers to doesn't exist, or
// is about to go.
type MissingError struct {
	Key     Key
	Leaving bool // a deletion of it has begun
}

func (e *MissingError) Error() string {
	if e.Leaving {
		return string(e.Key.Kind) + " " + e.Key.ID + " is being deleted"
	}
	return string(e.Key.Kind) + " " + e.Key.ID + " does not exist"
}

// Is makes it an ErrInvalid.
func (e *MissingError) Is(target error) bool { return target == tko.ErrInvalid }

// An Outcome is what a write came to.
type Outcome struct {
	Key      Key   // of the record; with an origin that exists, of the one that is there
	Revision int64 // the new one
	Position int64
	Existed  bool // OpWritten: a record of this origin existed, nothing was written
	// OpDeleted: the records that went, this one included; 0 if it wasn't there.
	Deleted     int
	Descendants int
	Dissociated int // OpDeleted: the records that referred to it and no longer do
	// OpDeleted: this was a step, and the record is still there. Commit again.
	More bool
}

// MaxStep is how many records one commit changes beside those of its writes,
// at most: far fewer, if that takes long.
const MaxStep = 2000

// A Writer writes.
type Writer interface {
	// Commit applies writes in their order in one transaction, all or none,
	// durably: when it answers, a crash loses nothing. Calls at the same time
	// may share a transaction; one that fails doesn't fail the others. Keys of
	// one call must differ.
	//
	// With each change it writes the record's revision, a change in the log and
	// the work that [WorkFor] says. Tokens of what is deleted are no longer known.
	//
	// Deleting a template or site takes it from the sites and deployments that
	// refer to it, each a change of its own. Deleting a deployment deletes its
	// descendants, children before their parents. What that changes beside the
	// writes themselves is bounded, so that others can write meanwhile: a
	// deletion that is not at its end answers More, and is committed again
	// until it is. The record goes last, in a commit that leaves nothing that
	// refers to it. Between two commits of a deletion everything is as
	// if less had referred to the record, and the record says that it is
	// leaving ([Record.Leaving]): nothing new can refer to it. Whoever deletes it again
	// goes on where the last one stopped.
	Commit(ctx context.Context, writes ...Write) ([]Outcome, error)
}

// Tokens are the rights to modify deployments.
type Tokens interface {
	// StartModification gives a token for ttl. ErrNotFound without the
	// deployment, ErrBusy, which says until when at the latest, while another
	// token for it is good.
	StartModification(ctx context.Context, deployment, token string, ttl time.Duration) (Record, time.Time, error)
	// Modification answers what a token is for: the deployment as it was when
	// the token was given, with its package. ErrNotFound if it isn't known, ErrBusy if its
	// time has run out.
	Modification(ctx context.Context, token string) (Record, error)
	// CancelModification ends a token. Errors as Modification.
	CancelModification(ctx context.Context, token string) error
	// Modifications returns the tokens that are good, sorted by deployment, and
	// with the author of the context in which each was given.
	Modifications(ctx context.Context) ([]tko.OpenModification, error)
	// BreakModification ends the token of a deployment, and returns what it was.
	// ErrNotFound if none is good.
	BreakModification(ctx context.Context, deployment string) (tko.OpenModification, error)
}

// A Queue keeps work, and what is known of the sources that are worked on.
// Items of the same queue and key fall together.
type Queue interface {
	Sources
	// ClaimWork answers up to Max items that are due and that nobody holds a
	// lease of, oldest first, without waiting, and if there are none, when the
	// next will be due (zero: not known).
	ClaimWork(ctx context.Context, claim tko.ClaimWork) ([]tko.WorkItem, time.Time, error)
	// RenewWork extends the leases that still are the caller's, and answers
	// those items.
	RenewWork(ctx context.Context, items []tko.WorkItem, lease time.Duration) ([]tko.WorkItem, error)
	// FinishWork ends claims. Claims that are no longer the caller's are passed
	// over. An item that got new work since it was claimed stays, and is due at
	// once, or within [WakeDelay] if it failed. backoff says when a failed one
	// comes back that got none.
	FinishWork(ctx context.Context, items []tko.FinishedWork, backoff func(attempt int) time.Duration) error
	// EnqueueWork calls for work of a queue, due at once; only for keys that have
	// no item, if missing is set.
	EnqueueWork(ctx context.Context, queue string, keys []string, missing bool) error
}

// Sources keep what is known of the sources of GitOps.
type Sources interface {
	// Source answers one. ErrNotFound if it isn't there. It is Called unless its
	// work was finished since it was called for last, and isn't due again.
	Source(ctx context.Context, name string) (tko.Source, error)
	// Sources answers all, sorted by name, without their State.
	Sources(ctx context.Context) ([]tko.Source, error)
	// SaveSource writes a source but for Approved, whether or not it is there,
	// and answers its new version. ErrConflict if the claim isn't the caller's
	// any more.
	SaveSource(ctx context.Context, s tko.Source, claim tko.WorkItem) (version int64, err error)
	// ApproveSource sets Approved. ErrNotFound if the source isn't there.
	ApproveSource(ctx context.Context, name, digest string) error
	// ForgetSource removes a source, if it is there. Errors as SaveSource.
	ForgetSource(ctx context.Context, name string, claim tko.WorkItem) error
}

// A Feed tells what changed.
type Feed interface {
	// Changes answers up to limit changes after a position, in their order.
	// All servers see the same order, and nothing ever appears before what was
	// answered. ErrGone if changes after the position are no longer kept.
	Changes(ctx context.Context, after int64, limit int) ([]tko.Change, error)
	// Head is the position of the newest change.
	Head(ctx context.Context) (int64, error)
	// Signal answers a channel that is closed once something may have been
	// committed, or work come in, since the call: at once when it was done through this store,
	// soon when through another, and now and then for nothing. Take it before
	// you look, look, then wait for it.
	Signal() <-chan struct{}
}

// Retention is what is kept of the past.
type Retention struct {
	// Changes is how long all of the past is kept: every change in the log, and
	// every revision. 0: for ever.
	Changes time.Duration
	// Revisions is how many of a record's newest revisions are kept longer, for as
	// long as the record is there. 0: all.
	Revisions int
}

// Collected is what a collection removed.
type Collected struct {
	Changes   int  // entries of the log: revisions, conditions and deletions
	Packages  int  // that no revision has any more
	Metadata  int  // the same
	Pairs     int  // entries of the metadata index that no record has any more
	Tokens    int  // whose time ran out long ago
	Elsewhere bool // nothing was done, because another store on the database is collecting
}

// A Collector forgets the past.
type Collector interface {
	// Collect removes what need not be kept, in small transactions with pauses
	// between them, so that others hardly notice. The log stays complete after
	// some position: Changes after an older one is ErrGone. What a revision that
	// is kept needs stays: its package and metadata, whoever writes them at the
	// same time, through whatever store. So does what a good token is for. It
	// may be ended at any time: the next one goes on. Only one of the stores on a database does it at a time.
	Collect(ctx context.Context, keep Retention) (Collected, error)
}

// Work is an item that a change calls for.
type Work struct {
	Queue string
	Key   string
}

// Orphaned are the conditions of a deployment whose site is deleted, at a time
// and as of a revision: what ran there is left as it is, and nobody knows any
// more how it does. It answers the same conditions if nothing ran there.
func Orphaned(conditions []tko.Condition, site string, now time.Time, revision int64) []tko.Condition {
	scheduled := slices.IndexFunc(conditions, func(c tko.Condition) bool { return c.Type == tko.ConditionScheduled })
	if scheduled < 0 || conditions[scheduled].Reason == tko.ReasonUnscheduled {
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
		after[i].Message = fmt.Sprintf("site %q was deleted: what ran there was left as it was, and nobody looks after it", site)
	}
	return after
}

// WorkFor says what work a change of a record calls for: before is the record
// as it was (Revision 0: new), after as it is (Revision 0: deleted). It is a
// pure function, called by stores in the transaction of the change.
func WorkFor(before, after Record) []Work {
	switch kind := max(before.Kind, after.Kind); kind {
	case tko.KindSite:
		if after.Revision != 0 {
			return []Work{{Queue: tko.QueueSchedule, Key: after.ID}}
		}
	case tko.KindDeployment:
		return workForDeployment(before, after)
	case tko.KindTemplate, tko.KindPlugin:
	}
	return nil
}

func workForDeployment(before, after Record) []Work {
	var work []Work
	// Placements that are evaluated again are looked at when somebody approves
	// what they propose, and when they are changed.
	if after.Revision != 0 && (!after.Prepared || hasCondition(after, tko.ConditionPlaced)) {
		work = append(work, Work{Queue: tko.QueuePrepare, Key: after.ID})
	}
	wasThere, isThere := placed(before), placed(after)
	if wasThere != "" && wasThere != isThere {
		work = append(work, Work{Queue: tko.QueueSchedule, Key: wasThere})
	}
	if isThere != "" {
		work = append(work, Work{Queue: tko.QueueSchedule, Key: isThere})
	}
	return work
}

func hasCondition(r Record, typ string) bool {
	return slices.ContainsFunc(r.Conditions, func(c tko.Condition) bool { return c.Type == typ })
}

// placed is the site at which a deployment should run, or "".
func placed(r Record) string {
	if r.Revision != 0 && r.Prepared && r.Approved {
		return r.Site
	}
	return ""
}

// Wakes says what queues a change stirs up as a whole, because items that
// failed or wait in it may go better now: stores make the items of these
// queues due within [WakeDelay]. A schedule plugin also calls for a look at
// every site, which is the second result.
func Wakes(before, after Record) (queues []string, allSites bool) {
	switch max(before.Kind, after.Kind) {
	case tko.KindSite:
		return []string{tko.QueuePrepare}, false // by its metadata it may match now, or no longer
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
	case tko.KindDeployment:
	}
	return nil, false
}

// WakeDelay is how soon work is due that was stirred up (see [Wakes]): late
// enough for many changes in a row to be one stir.
const WakeDelay = time.Second

// StoredFormat is the encoding of packages in stores.
const StoredFormat = krm.CBOR
