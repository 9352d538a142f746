package spanner

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"
	"google.golang.org/grpc/codes"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/store/backup"
	"github.com/tko-orchestrator/tko/internal/store/form"
	"github.com/tko-orchestrator/tko/internal/store/selection"
)

// Archives have the tables of the relational stores. What this store has in another form is converted: metadata, which records
// contain here, has numbers there, and an index; revisions and the log are one table. The numbers are made from digests, so
// that none has to be remembered.

// lastNumber is the greatest number of metadata in archives: the store that is restored goes on after it.
const lastNumber = 1 << 62

func numberOf(digest record.Digest) int64 {
	return int64(binary.BigEndian.Uint64(digest[:8])>>2) + 1 // 62 bits
}

// An archiver writes a snapshot.
type archiver struct {
	from    *spanner.ReadOnlyTransaction
	out     *archive.Writer
	columns int             // of the table that is being written
	chained []sealedPending // audit records that no sealer has moved yet
}

// Archive writes everything in the store, as of one snapshot, while writes go on. It holds a bounded number of rows in memory. The
// archive is complete only if Archive returns no error. The snapshot lasts as long as the database retains old versions.
func (s *Store) Archive(ctx context.Context, w io.Writer, program string) (archive.Summary, error) {
	a, manifest, err := s.beginArchive(ctx)
	if err != nil {
		return archive.Summary{}, err
	}
	defer a.from.Close()
	manifest.Program, manifest.Backend = program, s.Backend()
	if a.out, err = archive.NewWriter(w, manifest); err != nil {
		return archive.Summary{}, fault("back up", err)
	}
	for _, t := range backup.Tables() {
		if err := a.table(ctx, t.Table); err != nil {
			a.out.Abort()
			if spanner.ErrCode(err) == codes.FailedPrecondition {
				err = tko.Errorf(tko.ErrUnavailable, "the snapshot is older than the database retains: raise its version_retention_period (%w)", err)
			}
			return archive.Summary{}, fault("back up the table "+t.Name, err)
		}
	}
	summary, err := a.out.Close()
	return summary, fault("back up", err)
}

// Backup is Archive without the summary.
func (s *Store) Backup(ctx context.Context, w io.Writer, program string) error {
	_, err := s.Archive(ctx, w, program)
	return err
}

// beginArchive takes a snapshot. Audit records that were committed since the call has numbered all before are numbered in the archive only.
func (s *Store) beginArchive(ctx context.Context) (*archiver, archive.Manifest, error) {
	for {
		if err := s.CheckComplete(ctx); err != nil {
			return nil, archive.Manifest{}, err
		}
		if err := s.seal(ctx); err != nil {
			return nil, archive.Manifest{}, err
		}
		a := &archiver{from: s.client.ReadOnlyTransaction()}
		m, complete, err := s.readManifest(ctx, a)
		if err == nil && complete {
			return a, m, nil
		}
		a.from.Close()
		if err != nil {
			return nil, m, err
		}
	}
}

// readManifest describes a snapshot. complete is false if there are more new audit records than are held in memory.
func (s *Store) readManifest(ctx context.Context, a *archiver) (m archive.Manifest, complete bool, err error) {
	end, err := readChainEnd(ctx, a.from, auditHead)
	if err != nil {
		return m, false, err
	}
	list, err := readPending(ctx, a.from, end.committed)
	if err != nil || len(list) == sealBatch {
		return m, false, err
	}
	if a.chained, err = chainPending(end, list); err != nil {
		return m, false, err
	}
	if n := len(a.chained); n > 0 {
		end = a.chained[n-1].end
	}
	m.Schema, m.Number, m.Audited, m.Chain = backup.Schema, lastNumber, end.Seq, hashBytes(end.Head)
	if m.Created, err = readNow(ctx, a.from); err != nil {
		return m, false, err
	}
	if m.Position, err = s.newestOf(ctx, a.from, 0); err != nil {
		return m, false, err
	}
	if m.Epoch, err = readEpoch(ctx, a.from); err != nil {
		return m, false, err
	}
	if m.Access, err = readAccessVersion(ctx, a.from); err != nil {
		return m, false, err
	}
	fence, err := readFence(ctx, a.from)
	if err != nil {
		return m, false, err
	}
	m.Fence = fence.Epoch
	wrapped, _, err := readSealingKey(ctx, a.from)
	m.Sealed = wrapped != nil
	return m, true, err
}

// hashBytes returns the hash of a record of the audit log; empty before the first one.
func hashBytes(h audit.Head) []byte {
	if h.Seq == 0 {
		return []byte{}
	}
	return h.Hash[:]
}

// row writes a row of the table.
func (a *archiver) row(values ...any) error { return a.out.Row(values) }

func (a *archiver) table(ctx context.Context, t archive.Table) error {
	if err := a.out.Table(t); err != nil {
		return err
	}
	a.columns = len(t.Columns)
	if one, ok := copiedTables[t.Name]; ok {
		return a.copied(ctx, t.Name, one)
	}
	write := map[string]func(context.Context) error{
		"blob": a.blobs, "metaset": a.metasets, "entity": a.entities, "pair": a.pairs, "entity_pair": a.entityPairs, "metaset_pair": a.metasetPairs,
		"change": a.changes, "rollout_plan": a.plans, "rollout_pin": a.pins, "audit": a.audit, "notifier": a.notifier, "audit_base": a.auditBase, "collector": a.collector,
	}[t.Name]
	if write == nil {
		return errors.New("the store has no such table: it isn't complete")
	}
	return write(ctx)
}

func (a *archiver) copied(ctx context.Context, name string, t copiedTable) error {
	return a.from.Read(ctx, name, spanner.AllKeys(), t.columns).Do(func(row *spanner.Row) error {
		values, err := t.archived(row)
		if err == nil && len(values) != a.columns {
			err = errors.New("a row has other columns than its table")
		}
		if err != nil {
			return err
		}
		return a.out.Row(values)
	})
}

func (a *archiver) blobs(ctx context.Context) error {
	return readStored(ctx, a.from, spanner.AllKeys(), func(c storedContent) error {
		return a.row(c.digest[:], c.encoding, c.size, c.data)
	})
}

// A namedMetadata is metadata with its number in archives.
type namedMetadata struct {
	*record.Metadata

	number int64 // negative if it is shared
	digest record.Digest
	text   []byte
}

func nameMetadata(kind tko.Kind, m *record.Metadata) (n namedMetadata, err error) {
	if m == nil {
		return n, nil
	}
	n.Metadata = m
	if n.text, err = json.Marshal(m); err != nil {
		return n, fault("encode metadata", err)
	}
	shared := form.IsShared(kind, m)
	n.digest = form.DigestOfMetadata(n.text, shared)
	n.number = numberOf(n.digest)
	if shared {
		n.number = -n.number
	}
	return n, nil
}

// decoded reads a row of the table entity or revision, also as it is stored.
func decoded(row *spanner.Row, more ...any) (*record.Record, *doc, error) {
	var encoded []byte
	if err := row.ColumnByName("doc", &encoded); err != nil {
		return nil, nil, err
	}
	r, err := scanRow(row, more...)
	if err != nil {
		return nil, nil, err
	}
	var d doc
	err = json.Unmarshal(encoded, &d)
	return r, &d, err
}

// eachMetadata calls found with the metadata of all records, revisions and changes, often with the same.
func (a *archiver) eachMetadata(ctx context.Context, found func(namedMetadata) error) error {
	use := func(kind tko.Kind, m *record.Metadata) error {
		n, err := nameMetadata(kind, m)
		if err == nil && n.number != 0 {
			err = found(n)
		}
		return err
	}
	for _, table := range []string{"entity", "revision"} {
		err := a.from.Read(ctx, table, spanner.AllKeys(), rowColumns).Do(func(row *spanner.Row) error {
			r, _, err := decoded(row)
			if err != nil {
				return err
			}
			return use(r.Kind, r.Metadata)
		})
		if err != nil {
			return err
		}
	}
	statement := spanner.Statement{SQL: "SELECT c.kind, c.doc FROM change AS c WHERE c.doc IS NOT NULL"}
	return a.from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var kind string
		var encoded []byte
		if err := row.Columns(&kind, &encoded); err != nil {
			return err
		}
		var d changeDoc
		if err := json.Unmarshal(encoded, &d); err != nil {
			return err
		}
		return use(tko.Kind(kind), d.Metadata)
	})
}

func (a *archiver) metasets(ctx context.Context) error {
	return a.distinct(func(d *distinct) error {
		return a.eachMetadata(ctx, func(n namedMetadata) error {
			return d.add(max(n.number, -n.number), string(n.digest[:]), func() []any { return []any{n.number, n.digest[:], string(n.text)} })
		})
	})
}

// A pairUse is an entry of the index of metadata, with the record or the shared metadata that has it.
type pairUse struct {
	number int64
	kind   tko.Kind
	key    string
	value  string
	hash   [16]byte
}

func usesOf(kind tko.Kind, values map[string]string, found func(pairUse) error) error {
	for key, value := range values {
		p := selection.PairOf(kind, key, value)
		id, err := json.Marshal([]any{p.Kind, p.Key, p.Hash})
		if err == nil {
			err = found(pairUse{numberOf(form.DigestOfMetadata(id, false)), kind, key, value, p.Hash})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// eachEntityPair calls found with the entries of records whose metadata isn't shared.
func (a *archiver) eachEntityPair(ctx context.Context, found func(id string, p pairUse) error) error {
	return a.from.Read(ctx, "entity", spanner.AllKeys(), rowColumns).Do(func(row *spanner.Row) error {
		r, _, err := decoded(row)
		if err != nil || form.IsShared(r.Kind, r.Metadata) {
			return err
		}
		use := func(p pairUse) error { return found(r.ID, p) }
		if err := usesOf(r.Kind, r.Metadata.Effective, use); err != nil {
			return err
		}
		return usesOf(selection.LabelsOf(r.Kind), r.Metadata.Labels, use)
	})
}

// eachSharedPair calls found with the entries of metadata that is shared, often with the same.
func (a *archiver) eachSharedPair(ctx context.Context, found func(n namedMetadata, p pairUse) error) error {
	return a.eachMetadata(ctx, func(n namedMetadata) error {
		if n.number > 0 {
			return nil
		}
		return usesOf(tko.KindDeployment, n.Effective, func(p pairUse) error { return found(n, p) })
	})
}

func (a *archiver) pairs(ctx context.Context) error {
	return a.distinct(func(d *distinct) error {
		add := func(p pairUse) error {
			return d.add(p.number, string(p.kind)+" "+p.key+" "+string(p.hash[:]), func() []any {
				return []any{p.number, string(p.kind), p.key, p.value, selection.StartOf(p.value), p.hash[:]}
			})
		}
		if err := a.eachEntityPair(ctx, func(_ string, p pairUse) error { return add(p) }); err != nil {
			return err
		}
		return a.eachSharedPair(ctx, func(_ namedMetadata, p pairUse) error { return add(p) })
	})
}

func (a *archiver) entityPairs(ctx context.Context) error {
	return a.eachEntityPair(ctx, func(id string, p pairUse) error { return a.row(p.number, id) })
}

func (a *archiver) metasetPairs(ctx context.Context) error {
	return a.distinct(func(d *distinct) error {
		return a.eachMetadata(ctx, func(n namedMetadata) error {
			if n.number > 0 {
				return nil
			}
			var rows []any
			err := usesOf(tko.KindDeployment, n.Effective, func(p pairUse) error {
				rows = append(rows, p.number, n.number)
				return nil
			})
			if err != nil {
				return err
			}
			return d.add(-n.number, string(n.digest[:]), func() []any { return rows })
		})
	})
}

// stateValues returns the columns that the tables entity and change share.
func stateValues(r *record.Record, metaset int64) []any {
	values := []any{
		string(r.Kind), r.ID, r.UID, r.Revision, r.Position, r.Created.UnixMicro(), r.Updated.UnixMicro(), r.Parent, r.Template, r.Site, r.Prepared, r.Approved,
		textOrNil(r.Origin), digestOrNil(r.Digest), metaset, nil, r.CRDs, r.Author.Who, r.Author.Why, nil, digestOrNil(r.Owner),
	}
	if r.Plugin != nil {
		values[15] = r.Plugin
	}
	if r.Derivation != (record.Digest{}) {
		values[19] = form.DerivationOf(r.Derivation, r.Revision)
	}
	for _, f := range tko.DetailFields() {
		values = append(values, textOrNil(*f.In(&r.Details)))
	}
	return values
}

func textOrNil(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func digestOrNil(d record.Digest) any {
	if d == (record.Digest{}) {
		return nil
	}
	return d[:]
}

func (a *archiver) entities(ctx context.Context) error {
	return a.from.Read(ctx, "entity", spanner.AllKeys(), rowColumns).Do(func(row *spanner.Row) error {
		r, _, err := decoded(row)
		if err != nil {
			return err
		}
		n, err := nameMetadata(r.Kind, r.Metadata)
		if err != nil {
			return err
		}
		conditions, err := form.FormatConditions(r.Conditions)
		if err != nil {
			return err
		}
		return a.row(append(stateValues(r, n.number), textOrNil(conditions), textOrNil(strings.Join(r.Replaces, " ")), r.Base, textOrNil(strings.Join(r.Replaced, " ")))...)
	})
}

// A changeDoc is what a change of another store has that this one doesn't record.
type changeDoc struct {
	UID      string           `json:",omitempty"` // of a record whose revision isn't retained
	Created  int64            `json:",omitempty"`
	Metadata *record.Metadata `json:",omitempty"` // that a change of conditions attached
}

// changes writes revisions, where they ended, and the other changes of the log.
func (a *archiver) changes(ctx context.Context) error {
	var last *archivedRevision
	err := a.from.Read(ctx, "revision", spanner.AllKeys(), revisionColumns).Do(func(row *spanner.Row) error {
		r, err := readArchived(row)
		if err != nil {
			return err
		}
		if err := a.revision(last, r); err != nil {
			return err
		}
		last = r
		return nil
	})
	if err == nil {
		err = a.revision(last, nil)
	}
	if err != nil {
		return err
	}
	return a.log(ctx)
}

// An archivedRevision is a revision as it is written to an archive.
type archivedRevision struct {
	revision

	departed *int64
}

func readArchived(row *spanner.Row) (*archivedRevision, error) {
	var e revisionEnd
	r, d, err := decoded(row, e.columns()...)
	if err != nil {
		return nil, err
	}
	return &archivedRevision{revision{r, e.ending()}, d.Departed}, nil
}

// revision writes a revision, which comes after the one before it in its record, if that is retained; and the end of its record.
func (a *archiver) revision(r, before *archivedRevision) error {
	if r == nil {
		return nil
	}
	n, err := nameMetadata(r.Kind, r.Metadata)
	if err != nil {
		return err
	}
	steps, err := form.FormatSteps(r.Steps)
	if err != nil {
		return err
	}
	if err := a.row(append(stateValues(r.Record, n.number), string(tko.OpWritten), textOrNil(steps), r.departs(before), r.Base)...); err != nil {
		return err
	}
	if r.ended == 0 {
		return nil
	}
	end := &record.Record{Key: r.Key, UID: r.UID, Revision: r.Revision, Position: r.ended, Created: r.Created, Updated: r.endedAt, Author: r.endedBy}
	return a.row(append(stateValues(end, 0), string(tko.OpDeleted), nil, int64(form.DepartedRecord), int64(0))...)
}

// departs returns what the revision took from its record.
func (r *archivedRevision) departs(before *archivedRevision) int64 {
	switch {
	case r.departed != nil:
		return *r.departed
	case r.Revision == 1:
		return 0
	case before == nil || before.Key != r.Key || before.Revision != r.Revision-1:
		return form.DepartedUnknown
	case before.ended != 0: // the record was created again
		return 0
	}
	bits := form.Departed(before.Record, r.Record)
	if form.LosesMetadata(before.Metadata, r.Metadata) {
		bits |= form.DepartedMetadata
	}
	return bits
}

// logBatch is the number of changes whose revisions are read together.
const logBatch = 1000

// log writes the changes that aren't revisions, or their ends.
func (a *archiver) log(ctx context.Context) error {
	type entry struct {
		tko.Change
		changeDoc
	}
	var list []entry
	flush := func() error {
		revisions := map[record.AtRevision]*record.Record{}
		var keys []spanner.Key
		for _, e := range list {
			keys = append(keys, spanner.Key{shardOf(e.ID), string(e.Kind), e.ID, e.Revision})
		}
		if len(keys) == 0 {
			return nil
		}
		err := a.from.Read(ctx, "revision", spanner.KeySetFromKeys(keys...), rowColumns).Do(func(row *spanner.Row) error {
			r, err := scanRow(row)
			if err == nil {
				revisions[record.AtRevision{Key: r.Key, Revision: r.Revision}] = r
			}
			return err
		})
		if err != nil {
			return err
		}
		for _, e := range list {
			r := &record.Record{Key: record.Key{Kind: e.Kind, ID: e.ID}, UID: e.UID, Revision: e.Revision, Position: e.Position, Created: timeOfMicros(e.Created), Updated: e.Time, Author: e.Author}
			if of := revisions[record.AtRevision{Key: r.Key, Revision: r.Revision}]; of != nil {
				if e.Op == tko.OpDeleted {
					continue // with its revision
				}
				r.UID, r.Created = of.UID, of.Created
			}
			n, err := nameMetadata(r.Kind, e.Metadata)
			if err != nil {
				return err
			}
			departed := int64(0)
			if e.Op == tko.OpDeleted {
				departed = form.DepartedRecord
			}
			if err := a.row(append(stateValues(r, n.number), string(e.Op), nil, departed, int64(0))...); err != nil {
				return err
			}
		}
		list = list[:0]
		return nil
	}
	statement := spanner.Statement{
		SQL:    "SELECT " + changeColumns + ", c.doc FROM change AS c WHERE c.op != @written",
		Params: map[string]any{"written": string(tko.OpWritten)},
	}
	err := a.from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var e entry
		var encoded []byte
		var err error
		if e.Change, err = scanChange(row, &encoded); err != nil {
			return err
		}
		if encoded != nil {
			err = json.Unmarshal(encoded, &e.changeDoc)
		}
		list = append(list, e)
		if err == nil && len(list) == logBatch {
			err = flush()
		}
		return err
	})
	if err == nil {
		err = flush()
	}
	return err
}

func (a *archiver) plans(ctx context.Context) error {
	var of planKey
	var data []byte
	flush := func() error {
		if of.rollout == "" {
			return nil
		}
		return a.row(of.rollout, of.number, string(data))
	}
	err := a.from.Read(ctx, "rollout_plan", spanner.AllKeys(), []string{"rollout", "plan", "data"}).Do(func(row *spanner.Row) error {
		var next planKey
		var chunk []byte
		if err := row.Columns(&next.rollout, &next.number, &chunk); err != nil {
			return err
		}
		if next != of {
			if err := flush(); err != nil {
				return err
			}
			of, data = next, nil
		}
		data = append(data, chunk...)
		return nil
	})
	if err == nil {
		err = flush()
	}
	return err
}

// pins writes the revisions that plans of rollouts name. Those of the rows themselves follow from the rows, and pins of rollouts that were
// forgotten are removed later.
func (a *archiver) pins(ctx context.Context) error {
	statement := spanner.Statement{SQL: "SELECT p.rollout, p.kind, p.id, p.revision FROM rollout_pin AS p WHERE p.planned AND " +
		"(EXISTS(SELECT 1 FROM rollout AS r WHERE r.id = p.rollout) OR EXISTS(SELECT 1 FROM rollout_plan AS r WHERE r.rollout = p.rollout))"}
	return a.from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var rollout, kind, id string
		var revision int64
		if err := row.Columns(&rollout, &kind, &id, &revision); err != nil {
			return err
		}
		return a.row(rollout, kind, id, revision)
	})
}

func (a *archiver) audit(ctx context.Context) error {
	err := a.from.Read(ctx, "audit", spanner.AllKeys(), auditColumns).Do(func(row *spanner.Row) error {
		var seq int64
		var at time.Time
		var text, hash []byte
		if err := row.Columns(&seq, &at, &text, &hash); err != nil {
			return err
		}
		return a.row(seq, at.UnixMicro(), string(text), hash)
	})
	for _, r := range a.chained {
		if err == nil {
			err = a.row(r.end.Seq, r.end.committed.UnixMicro(), string(r.text), r.end.Hash[:])
		}
	}
	return err
}

func (a *archiver) auditBase(ctx context.Context) error {
	base, err := readChainEnd(ctx, a.from, auditBase)
	if err != nil {
		return err
	}
	return a.row(int64(1), base.Seq, hashBytes(base.Head))
}

func (a *archiver) notifier(ctx context.Context) error {
	holder, until, err := readLease(ctx, a.from, notifierLease)
	if err != nil {
		return err
	}
	return a.row(int64(1), holder, microsOf(until))
}

func (a *archiver) collector(ctx context.Context) error {
	holder, until, err := readLease(ctx, a.from, collectedState)
	if err != nil {
		return err
	}
	m, err := readMilestones(ctx, a.from)
	if err != nil {
		return err
	}
	revisions, err := readState(ctx, a.from, fewerState)
	if err != nil {
		return err
	}
	loose := int64(0)
	statement := spanner.Statement{SQL: "SELECT COUNT(*) FROM content_loose"}
	if err := a.from.Query(ctx, statement).Do(func(row *spanner.Row) error { return row.Column(0, &loose) }); err != nil {
		return err
	}
	return a.row(int64(1), holder, microsOf(until), m.collected, revisions, loose, m.past.Position, microsOf(m.past.Time))
}

// copiedTables are the tables whose rows are the same here and in archives, but for the forms of values and the column of the shard.
var copiedTables = map[string]copiedTable{
	"work": {
		columns: itemColumns,
		archived: func(row *spanner.Row) ([]any, error) {
			i, err := scanItem(row)
			return []any{
				i.queue, i.key, i.generation, i.due.UnixMicro(), i.attempt, i.lastError, claimMicros(i.leaseUntil), i.claim, claimMicros(i.claimed), i.seen, i.since.UnixMicro(), i.cause, bit(i.gathering),
			}, err
		},
		// Leases and delays are those of another time.
		put: func(m *mutations, v saved) error {
			i := item{itemKey: itemKey{v.text("queue"), v.text("key")}, generation: v.number("generation"), attempt: v.number("attempt"), lastError: v.text("last_error"), cause: v.text("cause"), gathering: v.number("gathering") != 0}
			i.due, i.since = v.now, v.now
			i.put(m)
			return nil
		},
	},
	"source": {
		columns: []string{"name", "version", "updated", "status", "state", "approved"},
		archived: func(row *spanner.Row) ([]any, error) {
			var s tko.Source
			var status []byte
			err := row.Columns(&s.Name, &s.Version, &s.Updated, &status, &s.State, &s.Approved)
			return []any{s.Name, s.Version, s.Updated.UnixMicro(), status, s.State, s.Approved}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("source", []string{"name", "version", "updated", "status", "state", "approved"},
				v.text("name"), v.number("version"), v.moment("updated"), v.bytes("status"), v.bytes("state"), v.text("approved"))
			return nil
		},
	},
	"target_state": {
		columns: []string{"site", "name", "version", "updated", "state"},
		archived: func(row *spanner.Row) ([]any, error) {
			var s tko.TargetState
			var site string
			err := row.Columns(&site, &s.Name, &s.Version, &s.Updated, &s.State)
			return []any{site, s.Name, s.Version, s.Updated.UnixMicro(), s.State}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("target_state", []string{"shard", "site", "name", "version", "updated", "state"},
				shardOf(v.text("site")), v.text("site"), v.text("name"), v.number("version"), v.moment("updated"), v.bytes("state"))
			return nil
		},
	},
	"rollout": {
		columns: []string{"doc"},
		archived: func(row *spanner.Row) ([]any, error) {
			var encoded []byte
			if err := row.Columns(&encoded); err != nil {
				return nil, err
			}
			var s record.RolloutState
			err := json.Unmarshal(encoded, &s)
			return []any{s.ID, s.Active(), s.Undoes, s.Started, printable.Storable(string(encoded))}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("rollout", []string{"id", "active", "undoes", "doc"}, v.text("id"), v.flag("active"), v.text("undoes"), []byte(v.text("doc")))
			return nil
		},
	},
	"rollout_row": {
		columns:  append(slices.Clone(rolloutRowColumns), "rollout", "plan", "version"),
		archived: archivedRolloutRow,
		put:      restoreRolloutRow,
	},
	"rollout_evidence": {
		columns: []string{"rollout", "n", "doc"},
		archived: func(row *spanner.Row) ([]any, error) {
			var rollout string
			var n int64
			var encoded []byte
			err := row.Columns(&rollout, &n, &encoded)
			return []any{rollout, n, printable.Storable(string(encoded))}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("rollout_evidence", []string{"shard", "rollout", "n", "doc"}, shardOf(v.text("rollout")), v.text("rollout"), v.number("n"), []byte(v.text("doc")))
			return nil
		},
	},
	"flight": {
		columns: []string{"deployment", "rollout", "apart", "doc"},
		archived: func(row *spanner.Row) ([]any, error) {
			var deployment, rollout string
			var apart bool
			var encoded []byte
			if err := row.Columns(&deployment, &rollout, &apart, &encoded); err != nil {
				return nil, err
			}
			var e execute.Entry
			err := json.Unmarshal(encoded, &e)
			return []any{deployment, rollout, string(e.Site), string(encoded), apart}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("flight", []string{"shard", "deployment", "rollout", "apart", "doc"}, shardOf(v.text("deployment")), v.text("deployment"), v.text("rollout"), v.flag("apart"), []byte(v.text("doc")))
			return nil
		},
	},
	"access_rule": {
		columns: []string{"kind", "id", "doc"},
		archived: func(row *spanner.Row) ([]any, error) {
			var kind, id, text string
			err := row.Columns(&kind, &id, &text)
			return []any{kind, id, text}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("access_rule", []string{"kind", "id", "doc"}, v.text("kind"), v.text("id"), v.text("doc"))
			return nil
		},
	},
	"audit_sink": {
		columns: []string{"name", "seq"},
		archived: func(row *spanner.Row) ([]any, error) {
			var name string
			var seq int64
			err := row.Columns(&name, &seq)
			return []any{name, seq}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("audit_sink", []string{"name", "seq"}, v.text("name"), v.number("seq"))
			return nil
		},
	},
	"subscription": {
		columns: []string{"name", "doc"},
		archived: func(row *spanner.Row) ([]any, error) {
			var name string
			var encoded []byte
			err := row.Columns(&name, &encoded)
			return []any{name, string(encoded)}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("subscription", []string{"name", "doc"}, v.text("name"), []byte(v.text("doc")))
			return nil
		},
	},
	"sealing_key": {
		columns: []string{"id", "version", "wrapped"},
		archived: func(row *spanner.Row) ([]any, error) {
			var id, version int64
			var wrapped []byte
			err := row.Columns(&id, &version, &wrapped)
			return []any{id, version, wrapped}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("sealing_key", []string{"id", "version", "wrapped"}, v.number("id"), v.number("version"), v.bytes("wrapped"))
			return nil
		},
	},
	"longer": {
		columns: []string{"id", "policy", "changes"},
		archived: func(row *spanner.Row) ([]any, error) {
			var id, policy string
			var changes spanner.NullInt64
			err := row.Columns(&id, &policy, &changes)
			return []any{id, policy, changes.Int64}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("longer", []string{"shard", "id", "policy", "changes"}, shardOf(v.text("id")), v.text("id"), v.text("policy"), v.number("changes"))
			return nil
		},
	},
	"reach": {
		columns: []string{"cause", "what", "used", "granted", "since", "updated"},
		archived: func(row *spanner.Row) ([]any, error) {
			var cause, what string
			var used, granted, since, updated int64
			err := row.Columns(&cause, &what, &used, &granted, &since, &updated)
			return []any{cause, what, used, granted, since, updated}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("reach", []string{"shard", "cause", "what", "used", "granted", "since", "updated"},
				shardOf(v.text("cause")), v.text("cause"), v.text("what"), v.number("n"), v.number("consent"), v.number("since"), v.number("updated"))
			return nil
		},
	},
	"reach_part": {
		columns: []string{"cause", "what", "part", "n", "consent", "updated"},
		archived: func(row *spanner.Row) ([]any, error) {
			var cause, what string
			var part, n, consent, updated int64
			err := row.Columns(&cause, &what, &part, &n, &consent, &updated)
			return []any{cause, what, part, n, consent, updated}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("reach_part", []string{"shard", "cause", "what", "part", "n", "consent", "updated"},
				shardOf(v.text("cause")), v.text("cause"), v.text("what"), v.number("part"), v.number("n"), v.number("consent"), v.number("updated"))
			return nil
		},
	},
	"reach_site": {
		columns: []string{"cause", "site", "updated"},
		archived: func(row *spanner.Row) ([]any, error) {
			var cause, site string
			var updated int64
			err := row.Columns(&cause, &site, &updated)
			return []any{cause, site, updated}, err
		},
		put: func(m *mutations, v saved) error {
			m.put("reach_site", []string{"shard", "cause", "site", "updated"}, shardOf(v.text("site")), v.text("cause"), v.text("site"), v.number("updated"))
			return nil
		},
	},
}

func archivedRolloutRow(row *spanner.Row) ([]any, error) {
	var of planKey
	var version int64
	r, err := scanRolloutRow(row, &of.rollout, &of.number, &version)
	if err != nil {
		return nil, err
	}
	text, err := form.RolloutRowDoc(&r)
	return []any{
		of.rollout, of.number, string(r.Deployment), r.UID, r.Revision, int64(r.Kind), int64(r.Wave), int64(r.Rank), digestOrNil(record.Digest(r.Before)), digestOrNil(record.Digest(r.After)),
		int64(r.Group), r.Parent, r.Site, string(r.Progress), microsOf(r.Since), microsOf(r.Evaluated), int64(r.Credit), r.Counted, r.Broken, r.Reason, r.Applied, r.Chain, r.Target, text, version,
	}, err
}

// A copiedTable is a table whose rows are converted one by one.
type copiedTable struct {
	columns  []string
	archived func(row *spanner.Row) ([]any, error)
	put      func(m *mutations, v saved) error
}

// distinctBytes limits the memory in which distinct rows are collected.
const distinctBytes = 32 << 20

// distinct writes rows without duplicates in the order of their numbers: in as many passes as it takes to hold them in memory.
func (a *archiver) distinct(scan func(*distinct) error) error {
	for after := int64(0); ; {
		d := &distinct{after: after, limit: distinctBytes, rows: map[int64]distinctRow{}}
		if err := scan(d); err != nil {
			return err
		}
		for _, number := range d.numbers() {
			for values := range slices.Chunk(d.rows[number].values, a.columns) {
				if err := a.out.Row(values); err != nil {
					return err
				}
			}
			after = number
		}
		if !d.full {
			return nil
		}
	}
}

// errSameNumber is that two different metadata have one number: of a million, with a probability of one to ten millions.
var errSameNumber = errors.New("two different metadata have the same hash of 62 bits: change the value of one of them")

// claimMicros returns the time of a claim; 0 without one.
func claimMicros(t time.Time) int64 { return max(0, t.UnixMicro()) }
