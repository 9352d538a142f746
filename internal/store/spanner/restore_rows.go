package spanner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/store/form"
)

// A saved is a row of an archive. A column that the archive lacks, or that is NULL, has the zero value.
type saved struct {
	columns map[string]int
	row     []any
	now     time.Time // when the restore began
}

func savedValue[T any](v saved, name string) (value T) {
	if i, ok := v.columns[name]; ok {
		value, _ = v.row[i].(T)
	}
	return value
}

func (v saved) text(name string) string      { return savedValue[string](v, name) }
func (v saved) number(name string) int64     { return savedValue[int64](v, name) }
func (v saved) flag(name string) bool        { return savedValue[bool](v, name) }
func (v saved) moment(name string) time.Time { return time.UnixMicro(v.number(name)).UTC() }

// bytes returns no nil: columns of bytes are not NULL.
func (v saved) bytes(name string) []byte {
	return append([]byte{}, savedValue[[]byte](v, name)...)
}

func (v saved) digest(name string) (d record.Digest) {
	copy(d[:], savedValue[[]byte](v, name))
	return d
}

func (v saved) words(name string) []string { return strings.Fields(v.text(name)) }

// put inserts rows of a table.
func (r *restorer) put(ctx context.Context, t archive.Table, rows [][]any) error {
	columns := map[string]int{}
	for i, c := range t.Columns {
		columns[c.Name] = i
	}
	of := func(i int) saved { return saved{columns, rows[i], r.now} }
	if one, ok := copiedTables[t.Name]; ok {
		return r.each(ctx, len(rows), func(m *mutations, i int) error { return one.put(m, of(i)) })
	}
	put := map[string]func(*mutations, saved) error{
		"blob": putBlob, "metaset": putMetaset, "rollout_plan": putPlan, "rollout_pin": putPin, "audit": restoreAudit, "audit_base": putAuditBase, "collector": r.putCollector, "entity": r.putEntity,
	}[t.Name]
	switch t.Name {
	case "pair", "entity_pair", "metaset_pair", "notifier": // they follow from the entities, or are of another time
		return nil
	case "change":
		return r.putChanges(ctx, len(rows), of)
	case "entity":
		if err := r.loadMetadata(ctx, len(rows), of); err != nil {
			return err
		}
	}
	if put == nil {
		return errors.New("the store has no such table: it isn't complete")
	}
	return r.each(ctx, len(rows), func(m *mutations, i int) error { return put(m, of(i)) })
}

// putBlob puts content. Whether a revision has it is found when old content is collected.
func putBlob(m *mutations, v saved) error {
	digest := v.digest("digest")
	putChunks(m, storedContent{digest, v.number("encoding"), v.number("size"), v.bytes("data")})
	m.put("content_loose", []string{"digest"}, digest[:])
	return nil
}

func metasetKey(id int64) spanner.Key { return spanner.Key{max(id, -id) % shards, id} }

func putMetaset(m *mutations, v saved) error {
	key := metasetKey(v.number("id"))
	m.put("restored_metadata", []string{"shard", "id", "doc"}, key[0], key[1], []byte(v.text("doc")))
	return nil
}

// loadMetadata reads the metadata of rows by their numbers, and forgets others.
func (r *restorer) loadMetadata(ctx context.Context, n int, of func(int) saved) error {
	needed := map[int64]*record.Metadata{}
	var keys []spanner.Key
	for i := range n {
		id := of(i).number("metaset")
		if _, ok := needed[id]; ok || id == 0 {
			continue
		}
		needed[id] = r.metadata[id]
		if needed[id] == nil {
			keys = append(keys, metasetKey(id))
		}
	}
	r.metadata = needed
	for part := range slices.Chunk(keys, restoreSites) {
		err := r.store.client.Single().Read(ctx, "restored_metadata", spanner.KeySetFromKeys(part...), []string{"id", "doc"}).Do(func(row *spanner.Row) error {
			var id int64
			var doc []byte
			if err := row.Columns(&id, &doc); err != nil {
				return err
			}
			m := new(record.Metadata)
			err := json.Unmarshal(doc, m)
			needed[id] = m
			return err
		})
		if err != nil {
			return fault("read restored metadata", err)
		}
	}
	for id, m := range needed {
		if m == nil {
			return tko.Errorf(tko.ErrInvalid, "the archive can't be used: it lacks the metadata %d", id)
		}
	}
	return nil
}

// stateOf returns the record of a row of the tables entity and change.
func (r *restorer) stateOf(v saved) (*record.Record, error) {
	of := &record.Record{
		Key: record.Key{Kind: tko.Kind(v.text("kind")), ID: v.text("id")}, UID: v.text("uid"), Revision: v.number("revision"), Position: v.number("position"),
		Created: v.moment("created"), Updated: v.moment("updated"), Parent: v.text("parent"), Template: v.text("template"), Site: v.text("site"),
		Prepared: v.flag("prepared"), Approved: v.flag("approved"), Origin: v.text("origin"), Digest: v.digest("digest"), CRDs: v.flag("crds"),
		Author: tko.Author{Who: v.text("who"), Why: v.text("why")}, Owner: v.digest("owner"), Base: v.number("base"), Metadata: r.metadata[v.number("metaset")],
	}
	if plugin := savedValue[[]byte](v, "plugin"); plugin != nil {
		of.Plugin = plugin
	}
	of.Derivation = form.ParseDerivation(savedValue[[]byte](v, "derivation"), of.Revision)
	for _, f := range tko.DetailFields() {
		*f.In(&of.Details) = v.text(f.Name)
	}
	if !storable(of.Key) {
		return nil, tko.Errorf(tko.ErrInvalid, "the archive can't be used: %.100q is no ID", of.ID)
	}
	return of, nil
}

// stateColumns returns the values of rowColumns, after the shard.
func stateColumns(of *record.Record, encoded []byte) []any {
	at := placeOf(of.Position)
	return []any{shardOf(of.ID), string(of.Kind), of.ID, of.Revision, at.At, at.Slot, at.N, of.Created, of.Updated, encoded}
}

func (r *restorer) putEntity(m *mutations, v saved) error {
	of, err := r.stateOf(v)
	if err != nil {
		return err
	}
	of.Replaces, of.Replaced = v.words("replaces"), v.words("replaced")
	if of.Conditions, err = form.ParseConditions(v.text("conditions")); err != nil {
		return fmt.Errorf("conditions of %s %q: %w", of.Kind, of.ID, err)
	}
	encoded, err := encode(of)
	if err != nil {
		return err
	}
	m.put("entity", append([]string{"shard"}, rowColumns...), stateColumns(of, encoded)...)
	putReferences(m, nil, of)
	putPairs(m, nil, of)
	if of.Origin != "" {
		m.put("origin", []string{"shard", "kind", "origin", "id"}, shardOf(of.Origin), string(of.Kind), of.Origin, of.ID)
	}
	if _, ok := record.ClassOf(of); !ok {
		return nil
	}
	for i := range of.Conditions {
		if c := &of.Conditions[i]; record.CanFail(c) {
			m.put("failure", []string{"shard", "kind", "what", "since", "id"}, shardOf(of.ID), string(of.Kind), failureText(c.Type, c.Reason), c.LastTransition.UTC().Round(0), of.ID)
		}
	}
	return nil
}

// putChanges puts rows of the table change: the log, revisions, and where they end. An end may be in the rows before its revision.
func (r *restorer) putChanges(ctx context.Context, n int, of func(int) saved) error {
	if err := r.loadMetadata(ctx, n, of); err != nil {
		return err
	}
	var ends []*record.Record
	err := r.each(ctx, n, func(m *mutations, i int) error {
		v := of(i)
		state, err := r.stateOf(v)
		if err != nil {
			return err
		}
		op := tko.Op(v.text("op"))
		r.counted[string(op)]++
		switch op {
		case tko.OpDeleted:
			ends = append(ends, state)
			return nil
		case tko.OpStatus:
		case tko.OpWritten:
			if err := putRevision(m, state, v); err != nil {
				return err
			}
		}
		return putLog(m, state, op, changeDoc{Metadata: attachedBy(op, state)})
	})
	if err == nil {
		err = r.putEnds(ctx, ends)
	}
	return err
}

// attachedBy returns the metadata of a change that isn't a revision.
func attachedBy(op tko.Op, r *record.Record) *record.Metadata {
	if op == tko.OpWritten {
		return nil
	}
	return r.Metadata
}

func putRevision(m *mutations, r *record.Record, v saved) error {
	var err error
	if r.Steps, err = form.ParseSteps(v.text("steps")); err != nil {
		return fmt.Errorf("steps of %s %q: %w", r.Kind, r.ID, err)
	}
	departed := v.number("departed")
	encoded, err := encodeRevision(r, &departed)
	if err != nil {
		return err
	}
	m.put("revision", append([]string{"shard"}, rowColumns...), stateColumns(r, encoded)...)
	for _, digest := range []record.Digest{r.Digest, r.Derivation, r.Owner} {
		if digest != (record.Digest{}) {
			m.put("content_use", contentUseColumns, shardOf(r.ID), digest[:], string(r.Kind), r.ID, r.Revision)
		}
	}
	return nil
}

func putLog(m *mutations, r *record.Record, op tko.Op, d changeDoc) error {
	at := placeOf(r.Position)
	happened := spanner.NullTime{Time: r.Updated, Valid: !r.Updated.Equal(at.At)}
	var encoded []byte
	if d != (changeDoc{}) {
		var err error
		if encoded, err = json.Marshal(d); err != nil {
			return fault("encode a change", err)
		}
	}
	m.put("change", []string{"shard", "committed", "n", "kind", "id", "op", "revision", "who", "why", "happened", "doc"},
		at.Slot, at.At, at.N, string(r.Kind), r.ID, string(op), r.Revision, r.Author.Who, r.Author.Why, happened, encoded)
	return nil
}

// putEnds puts deletions: on the revisions that they end, if these are retained, and into the log.
func (r *restorer) putEnds(ctx context.Context, ends []*record.Record) error {
	retained := map[record.AtRevision]bool{}
	for part := range slices.Chunk(ends, restoreSites) {
		var keys []spanner.Key
		for _, e := range part {
			keys = append(keys, spanner.Key{shardOf(e.ID), string(e.Kind), e.ID, e.Revision})
		}
		err := r.store.client.Single().Read(ctx, "revision", spanner.KeySetFromKeys(keys...), []string{"kind", "id", "revision"}).Do(func(row *spanner.Row) error {
			var kind string
			var at record.AtRevision
			err := row.Columns(&kind, &at.ID, &at.Revision)
			at.Kind = tko.Kind(kind)
			retained[at] = true
			return err
		})
		if err != nil {
			return fault("read restored revisions", err)
		}
	}
	return r.each(ctx, len(ends), func(m *mutations, i int) error {
		e := ends[i]
		if !retained[record.AtRevision{Key: e.Key, Revision: e.Revision}] {
			return putLog(m, e, tko.OpDeleted, changeDoc{UID: e.UID, Created: e.Created.UnixMicro()})
		}
		at := placeOf(e.Position)
		m.update("revision", []string{"shard", "kind", "id", "revision", "ended", "ended_slot", "ended_n", "ended_who", "ended_why", "ended_at"},
			shardOf(e.ID), string(e.Kind), e.ID, e.Revision, at.At, at.Slot, at.N, e.Author.Who, e.Author.Why, e.Updated)
		return putLog(m, e, tko.OpDeleted, changeDoc{})
	})
}

func putPlan(m *mutations, v saved) error {
	data := []byte(v.text("doc"))
	for i := 0; i == 0 || i*chunkBytes < len(data); i++ {
		chunk := data[i*chunkBytes : min(len(data), (i+1)*chunkBytes)]
		m.put("rollout_plan", []string{"rollout", "plan", "chunk", "data"}, v.text("rollout"), v.number("plan"), int64(i), append([]byte{}, chunk...))
	}
	return nil
}

func putPin(m *mutations, v saved) error {
	putPlannedPin(m, v.text("rollout"), record.AtRevision{Key: record.Key{Kind: tko.Kind(v.text("kind")), ID: v.text("id")}, Revision: v.number("revision")})
	return nil
}

func restoreRolloutRow(m *mutations, v saved) error {
	r := record.RolloutRow{}
	r.Deployment, r.UID, r.Revision, r.Kind, r.Wave, r.Rank = tko.DeploymentID(v.text("deployment")), v.text("uid"), v.number("revision"), plan.Kind(v.number("kind")), int(v.number("wave")), int(v.number("rank")) //nolint:gosec // written as such
	r.Before, r.After, r.Group, r.Parent, r.Site = plan.Digest(v.digest("before")), plan.Digest(v.digest("after")), int(v.number("grp")), v.text("parent"), v.text("site")
	r.Progress, r.Since, r.Evaluated, r.Credit = execute.Progress(v.text("progress")), timeOfMicros(v.number("since")), timeOfMicros(v.number("evaluated")), time.Duration(v.number("credit"))
	r.Counted, r.Broken, r.Reason, r.Applied, r.Chain, r.Target = v.flag("counted"), v.flag("broken"), v.text("reason"), v.number("applied"), v.number("chain"), v.number("target")
	if err := form.ReadRolloutRowDoc(v.text("doc"), &r); err != nil {
		return err
	}
	return putRolloutRow(m, planKey{v.text("rollout"), v.number("plan")}, v.number("version"), &r)
}

func restoreAudit(m *mutations, v saved) error {
	key := auditKey(v.number("seq"))
	m.put("audit", append([]string{"shard"}, auditColumns...), key[0], key[1], v.moment("at"), []byte(v.text("doc")), v.bytes("hash"))
	return nil
}

func putAuditBase(m *mutations, v saved) error {
	end := chainEnd{audit.Head{Seq: v.number("seq")}, epochStart}
	copy(end.Hash[:], v.bytes("hash"))
	if end.Seq > 0 {
		end.put(m, auditBase)
	}
	return nil
}

// putCollector puts what the collector has examined. Its lease is one of another store.
func (r *restorer) putCollector(m *mutations, v saved) error {
	put := func(name string, position int64, more ...any) {
		at := placeOf(position)
		columns := []string{"name", "committed", "slot", "n", "value"}[:4+len(more)]
		m.put("state", columns, append([]any{name, at.At, at.Slot, at.N}, more...)...)
	}
	r.examined = v.number("position")
	if r.examined > 0 {
		put(collectedState, r.examined)
	}
	if past := max(v.number("past"), r.examined); past > 0 {
		if at := v.number("past_at"); at != 0 && past == v.number("past") {
			put(pastState, past, at)
		} else {
			put(pastState, past)
		}
	}
	if revisions := v.number("revisions"); revisions > 0 {
		m.put("state", []string{"name", "value"}, fewerState, revisions)
	}
	return nil
}
