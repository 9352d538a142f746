package spanner

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/backup"
)

const (
	// restoreMutations and restoreBytes are the sizes from which on a transaction of a restore is committed. One row may add as much as
	// the largest package has.
	restoreMutations = 10_000
	restoreBytes     = 8 << 20
	// restoreSites is the number of sites whose work one transaction holds.
	restoreSites = 500
	// restoreWait is how long a restore waits for the database's clock to pass the positions of the archive.
	restoreWait = 10 * time.Second
)

// The tables of the schema, except for that of facts about the store itself. Its servers may write the others while it is empty.
var (
	restoredTables = []string{
		"entity", "revision", "change", "reference", "pair", "origin", "work", "source", "target_state", "access_rule", "audit", "audit_sink", "subscription", "reach", "reach_part", "reach_site",
		"rollout", "rollout_plan", "rollout_row", "rollout_pin", "rollout_evidence", "flight", "failure", "longer", "content_use", "content_loose", "content", "sealing_key",
	}
	otherTables = []string{"modification", "token", "wake", "news", "audit_pending", "lease", "tally", "tally_pending", "hold", "restored_metadata"}
)

// CheckComplete returns an ErrInvalid if the store has an incomplete restore.
func (s *Store) CheckComplete(ctx context.Context) error {
	_, since, err := readRestoring(ctx, s.client.Single())
	if err == nil && since != "" {
		err = backup.Incomplete(since)
	}
	return err
}

// readRestoring returns who restores, and since when; nothing if there is no incomplete restore.
func readRestoring(ctx context.Context, from reader) (id, since string, err error) {
	row, err := from.ReadRow(ctx, "state", spanner.Key{restoringState}, []string{"data", "committed"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return "", "", nil
	}
	var holder []byte
	var at time.Time
	if err == nil {
		err = row.Columns(&holder, &at)
	}
	return string(holder), "begun " + at.UTC().Format(time.RFC3339), fault("read whether the store is complete", err)
}

// A restorer fills an empty store.
type restorer struct {
	store    *Store
	id       string    // names the restore: another one ends it
	now      time.Time // when it began
	metadata map[int64]*record.Metadata
	counted  map[string]int64 // changes by operation, as they were read
	examined int64            // position up to which the collector of the archive had examined changes
}

// Restore fills an empty store, or one with an incomplete restore, from an archive. The store must not be used by others meanwhile. If
// Restore fails or is interrupted after it has written something, the store is marked as incomplete, until a later Restore succeeds.
// Readers of the change log and of lists by position start anew. Work is held (see Holds), and the store commands no agents until it is
// promoted (see Promote).
func (s *Store) Restore(ctx context.Context, r io.Reader, o backup.Restore) (archive.Summary, error) {
	to := &restorer{store: s, id: rand.Text(), metadata: map[int64]*record.Metadata{}, counted: map[string]int64{}}
	summary, left, err := o.Read(r, backup.Schema, backup.Target{
		Begin: func(m archive.Manifest) error { return to.begin(ctx, m) },
		Put:   func(t archive.Table, rows [][]any) error { return to.put(ctx, t, rows) },
	})
	if err != nil {
		return summary, err
	}
	if err := to.check(ctx, summary, left); err != nil {
		return summary, err
	}
	return summary, to.end(ctx, summary, o)
}

// begin marks an empty store as incomplete, and empties one that is so marked.
func (r *restorer) begin(ctx context.Context, m archive.Manifest) error {
	var marked bool
	err := r.store.write(ctx, "begin the restore", func(ctx context.Context, tx *spanner.ReadWriteTransaction, mutations *mutations) error {
		id, _, err := readRestoring(ctx, tx)
		if err != nil || id == r.id { // an earlier try was committed
			return err
		}
		if r.now, err = readNow(ctx, tx); err != nil {
			return err
		}
		if m.Created.After(r.now) {
			return tko.Errorf(tko.ErrConflict, "the backup is of %s, and the clock of the database says %s: restore it after that time, or set the clock of the server that writes backups",
				m.Created.UTC().Format(time.RFC3339), r.now.Format(time.RFC3339))
		}
		marked = id != ""
		if !marked {
			used, err := isUsed(ctx, tx)
			if err == nil && used {
				err = backup.ErrNotEmpty
			}
			if err != nil {
				return err
			}
		}
		mutations.put("state", []string{"name", "committed", "data"}, restoringState, spanner.CommitTimestamp, []byte(r.id))
		for _, name := range []string{restoredState, fenceState, standbyState, goneState, collectedState, pastState, fewerState, "epoch", accessState, rolloutState, tallyState, auditHead, auditBase} {
			mutations.remove("state", spanner.Key{name})
		}
		return nil
	})
	if err != nil || !marked {
		return err
	}
	for _, table := range append(slices.Clip(restoredTables), otherTables...) {
		if err := r.store.deleteFrom(ctx, spanner.Statement{SQL: "DELETE FROM " + table + " WHERE true"}); err != nil {
			return fault("remove an incomplete restore", err)
		}
	}
	return nil
}

// deleteFrom removes rows in transactions that the database makes small.
func (s *Store) deleteFrom(ctx context.Context, statement spanner.Statement) error {
	leave, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer leave()
	_, err = s.client.PartitionedUpdate(ctx, statement)
	return err
}

// isUsed reports whether a store isn't empty.
func isUsed(ctx context.Context, from reader) (used bool, err error) {
	if version, err := readAccessVersion(ctx, from); err != nil || version != 0 {
		return true, err
	}
	for _, table := range append(slices.Clip(restoredTables), "audit_pending") {
		err := from.Query(ctx, spanner.Statement{SQL: "SELECT 1 FROM " + table + " LIMIT 1"}).Do(func(*spanner.Row) error {
			used = true
			return nil
		})
		if err != nil || used {
			return used, fault("read whether the store is empty", err)
		}
	}
	return false, nil
}

// commit writes what was put, unless another restore has begun. It may run again after it was committed.
func (r *restorer) commit(ctx context.Context, put *mutations) error {
	if len(put.list) == 0 {
		return ctx.Err()
	}
	return r.store.write(ctx, "restore", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		if err := r.owns(ctx, tx); err != nil {
			return err
		}
		m.list, m.count, m.bytes = put.list, put.count, put.bytes
		return nil
	})
}

// owns returns an error if another restore has begun, or ended.
func (r *restorer) owns(ctx context.Context, from reader) error {
	id, _, err := readRestoring(ctx, from)
	if err == nil && id != r.id {
		err = backup.ErrEnded
	}
	return err
}

// each puts rows, and commits them in transactions of bounded size.
func (r *restorer) each(ctx context.Context, n int, put func(m *mutations, i int) error) error {
	m := new(mutations)
	for i := range n {
		if err := put(m, i); err != nil {
			return err
		}
		if m.count >= restoreMutations || m.bytes >= restoreBytes {
			if err := r.commit(ctx, m); err != nil {
				return err
			}
			m = new(mutations)
		}
	}
	return r.commit(ctx, m)
}

// rowCounts are the tables whose rows are counted after a restore, and how.
var rowCounts = map[string]string{
	"entity":       "SELECT COUNT(*) FROM entity",
	"blob":         "SELECT COUNT(*) FROM content WHERE chunk = 0",
	"work":         "SELECT COUNT(*) FROM work",
	"source":       "SELECT COUNT(*) FROM source",
	"target_state": "SELECT COUNT(*) FROM target_state",
	"rollout":      "SELECT COUNT(*) FROM rollout",
	"rollout_row":  "SELECT COUNT(*) FROM rollout_row",
	"access_rule":  "SELECT COUNT(*) FROM access_rule",
	"audit":        "SELECT COUNT(*) FROM audit",
	"subscription": "SELECT COUNT(*) FROM subscription",
	"metaset":      "SELECT COUNT(*) FROM restored_metadata",
}

// check compares the numbers of rows with those of the archive.
func (r *restorer) check(ctx context.Context, summary archive.Summary, left map[string]int64) error {
	snapshot := r.store.client.ReadOnlyTransaction()
	defer snapshot.Close()
	count := func(sql string) (n int64, err error) {
		err = snapshot.Query(ctx, spanner.Statement{SQL: sql}).Do(func(row *spanner.Row) error { return row.Column(0, &n) })
		return n, fault("count what was restored", err)
	}
	for name, sql := range rowCounts {
		got, err := count(sql)
		if err != nil {
			return err
		}
		if want := summary.Rows[name] - left[name]; got != want {
			return backup.OtherRows(name, got, want)
		}
	}
	revisions, err := count("SELECT COUNT(*) FROM revision")
	if err != nil {
		return err
	}
	if want := r.counted[string(tko.OpWritten)]; revisions != want {
		return backup.OtherRows("change", revisions, want)
	}
	entries, err := count("SELECT COUNT(*) FROM change")
	if err == nil && entries != summary.Rows["change"] {
		err = backup.OtherRows("change", entries, summary.Rows["change"])
	}
	return err
}

// end makes a restored store usable. All but the last transaction may run again.
func (r *restorer) end(ctx context.Context, summary archive.Summary, o backup.Restore) error {
	if err := r.trimLog(ctx); err != nil {
		return fault("remove old changes", err)
	}
	if err := r.holdSites(ctx); err != nil {
		return err
	}
	if err := r.countEntities(ctx); err != nil {
		return err
	}
	if err := r.store.deleteFrom(ctx, spanner.Statement{SQL: "DELETE FROM restored_metadata WHERE true"}); err != nil {
		return fault("end the restore", err)
	}
	m := summary.Manifest
	least := m.Position + backup.PositionsSkipped // clients may know later positions of the lost store than the archive
	for began := time.Now(); ; {
		now, err := readNow(ctx, r.store.client.Single())
		if err != nil {
			return err
		}
		if (place{At: now}).position() > least {
			break
		}
		if time.Since(began) > restoreWait {
			return tko.Errorf(tko.ErrConflict, "the positions of the backup reach until %s, and the clock of the database says %s: restore it after that time",
				placeOf(least).At.Format(time.RFC3339), now.Format(time.RFC3339))
		}
		if err := pause.For(ctx, schemaPause); err != nil {
			return err
		}
	}
	return r.store.write(ctx, "end the restore", func(ctx context.Context, tx *spanner.ReadWriteTransaction, mutations *mutations) error {
		id, _, err := readRestoring(ctx, tx)
		if err != nil || id == "" { // an earlier try was committed
			return err
		}
		if id != r.id {
			return backup.ErrEnded
		}
		now, err := readNow(ctx, tx)
		if err != nil {
			return err
		}
		rules := false
		if err := tx.Query(ctx, spanner.Statement{SQL: "SELECT 1 FROM access_rule LIMIT 1"}).Do(func(*spanner.Row) error {
			rules = true
			return nil
		}); err != nil {
			return fault("read the rules of access", err)
		}
		if !o.WithoutAccess || rules {
			mutations.put("state", []string{"name", "value"}, accessState, summary.Manifest.Access)
		}
		return putRestored(mutations, now, summary, o)
	})
}

// putRestored puts what a restored store begins with, apart from the version of its rules of access.
func putRestored(m *mutations, now time.Time, summary archive.Summary, o backup.Restore) error {
	manifest := summary.Manifest
	for _, name := range []string{goneState, "epoch"} { // of the commit: beyond all positions that clients may know
		m.put("state", []string{"name", "committed", "slot", "n"}, name, spanner.CommitTimestamp, int64(0), int64(0))
	}
	// Rows of rollouts keep their versions, so the version of rollouts is beyond them, too.
	m.put("state", []string{"name", "value"}, rolloutState, place{At: now}.position())
	end := chainEnd{audit.Head{Seq: manifest.Audited}, now}
	copy(end.Hash[:], manifest.Chain)
	doc, err := backup.Record(summary, o).Encode()
	if err != nil {
		return err
	}
	chained, err := chainPending(end, []pending{{place{At: now, N: perSlot}, doc}})
	if err != nil {
		return err
	}
	chained[0].put(m)
	chained[0].end.put(m, auditHead)
	for _, queue := range backup.HeldQueues() {
		m.put("hold", holdColumns, queue, "", tko.HoldAll)
	}
	if manifest.Fence != 0 {
		putFence(m, manifest.Fence)
	}
	m.remove("state", spanner.Key{restoringState})
	since := "since the restore of " + now.Format(time.RFC3339)
	m.list = append(m.list, spanner.InsertOrUpdate("state", []string{"name", "data"}, []any{standbyState, []byte(since)}))
	m.put("state", []string{"name", "data"}, restoredState, []byte(backup.Restored(now, summary)))
	putNews(m)
	return nil
}

// trimLog removes the changes from the log that were examined in the store that the archive is of. Their revisions stay.
func (r *restorer) trimLog(ctx context.Context) error {
	if r.examined == 0 {
		return nil
	}
	return r.store.deleteFrom(ctx, spanner.Statement{
		SQL:    "DELETE FROM change WHERE committed < @at OR committed = @at AND (shard < @slot OR shard = @slot AND n <= @n)",
		Params: placeOf(r.examined).parameters(),
	})
}

// holdSites holds the work of each site, and enqueues those that were scheduled: targets may be newer than the store.
func (r *restorer) holdSites(ctx context.Context) error {
	for after := ""; ; {
		var sites []*record.Record
		statement := spanner.Statement{
			SQL:    "SELECT e.kind, e.id, e.revision, e.committed, e.slot, e.n, e.created, e.updated, e.doc FROM entity AS e WHERE e.kind = @kind AND e.id > @after ORDER BY e.id LIMIT @most",
			Params: map[string]any{"kind": string(tko.KindSite), "after": after, "most": int64(restoreSites)},
		}
		var keys []itemKey
		err := r.store.client.Single().Query(ctx, statement).Do(func(row *spanner.Row) error {
			site, err := scanRow(row)
			sites = append(sites, site)
			return err
		})
		if err != nil || len(sites) == 0 {
			return fault("read the sites", err)
		}
		for _, site := range sites {
			if len(site.Conditions) > 0 {
				keys = append(keys, itemKey{tko.QueueSchedule, site.ID})
			}
		}
		found, err := readItems(ctx, r.store.client.Single(), keys)
		if err != nil {
			return err
		}
		m := new(mutations)
		for _, site := range sites {
			m.put("hold", holdColumns, tko.QueueSchedule, site.ID, tko.HoldAll)
		}
		for _, key := range keys {
			if found[key] == nil {
				i := &item{itemKey: key, generation: 1, due: r.now, since: r.now}
				i.put(m)
			}
		}
		if err := r.commit(ctx, m); err != nil {
			return err
		}
		after = sites[len(sites)-1].ID
	}
}

// countEntities writes the numbers of entities, and of changes.
func (r *restorer) countEntities(ctx context.Context) error {
	snapshot := r.store.client.ReadOnlyTransaction()
	defer snapshot.Close()
	classes := map[string]int64{}
	err := snapshot.Read(ctx, "entity", spanner.AllKeys(), rowColumns).Do(func(row *spanner.Row) error {
		of, err := scanRow(row)
		if err != nil {
			return err
		}
		if c, ok := record.ClassOf(of); ok {
			classes[classText(&c)]++
		}
		return nil
	})
	if err != nil {
		return fault("count the entities", err)
	}
	var changes int64
	for _, sql := range []string{"SELECT COUNT(*) FROM revision", "SELECT COUNT(*) FROM change WHERE op != 'written'"} {
		err := snapshot.Query(ctx, spanner.Statement{SQL: sql}).Do(func(row *spanner.Row) error {
			var n int64
			err := row.Column(0, &n)
			changes += n
			return err
		})
		if err != nil {
			return fault("count the changes", err)
		}
	}
	if changes > 0 {
		classes[changedClass] = changes
	}
	var names []string
	for class := range classes {
		names = append(names, class)
	}
	return r.each(ctx, len(names), func(m *mutations, i int) error {
		m.put("tally", []string{"class", "n"}, names[i], classes[names[i]])
		return nil
	})
}
