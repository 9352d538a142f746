package spanner

import (
	"context"
	"slices"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/form"
)

// placeOf returns where a change will be, without its time.
func (t *transaction) placeOf(change int) place {
	return place{Slot: t.first + int64(change/perSlot), N: int64(change % perSlot)}
}

// put puts the changes, and what they cause.
func (t *transaction) put(m *mutations) error {
	if len(t.changes) > maxChanges {
		return tko.Errorf(tko.ErrInvalid, "the commit has %d changes, more than %d: split it", len(t.changes), maxChanges)
	}
	t.first = firstSlot(len(t.changes), t.store.random)
	epoch := -1
	for i, c := range t.changes {
		at := t.placeOf(i)
		m.insert("change", []string{"shard", "committed", "n", "kind", "id", "op", "revision", "who", "why"},
			at.Slot, spanner.CommitTimestamp, at.N, string(c.after.Kind), c.after.ID, string(c.op), c.after.Revision, c.author.Who, c.author.Why)
		if err := t.putChange(m, c, at); err != nil {
			return err
		}
		if c.caller != nil {
			if err := putAudit(m, at, decide.AuditRecord(*c.caller, c.op, orNew(c.before), c.after)); err != nil {
				return err
			}
		}
		if decide.MovesEpoch(c.op, orNew(c.before), c.after) {
			epoch = i
		}
	}
	if epoch >= 0 {
		at := t.placeOf(epoch)
		m.put("state", []string{"name", "committed", "slot", "n"}, "epoch", spanner.CommitTimestamp, at.Slot, at.N)
	}
	t.putCounts(m)
	t.putTally(m)
	putChanged(m, t.first, int64(len(t.changes)))
	for _, token := range t.ended {
		token.remove(m)
	}
	for _, i := range t.items {
		i.put(m)
	}
	for _, queue := range t.woken {
		putWake(m, queue)
	}
	return m.check()
}

// putChange puts the record of a change, its references, its revision and its content.
func (t *transaction) putChange(m *mutations, c logged, at place) error {
	r := c.after
	if c.op == tko.OpDeleted {
		m.remove("entity", spanner.Key{shardOf(r.ID), string(r.Kind), r.ID})
		putReferences(m, c.before, nil)
		putPairs(m, c.before, nil)
		m.update("revision", []string{"shard", "kind", "id", "revision", "ended", "ended_slot", "ended_n", "ended_who", "ended_why"},
			shardOf(r.ID), string(r.Kind), r.ID, r.Revision, spanner.CommitTimestamp, at.Slot, at.N, c.author.Who, c.author.Why)
		if r.Origin != "" {
			m.remove("origin", spanner.Key{shardOf(r.Origin), string(r.Kind), r.Origin})
		}
		return nil
	}
	created, updated := r.Created, r.Updated
	if t.begun[r.Key] {
		created = spanner.CommitTimestamp
	}
	if t.wrote[r.Key] {
		updated = spanner.CommitTimestamp
	}
	if c.op == tko.OpWritten {
		putReferences(m, c.before, r)
		putPairs(m, c.before, r)
		if c.before == nil && r.Origin != "" {
			m.put("origin", []string{"shard", "kind", "origin", "id"}, shardOf(r.Origin), string(r.Kind), r.Origin, r.ID)
		}
	}
	entity, revision := *r, *r
	entity.Steps, revision.Conditions = nil, nil
	revision.Replaces, revision.Replaced = nil, nil
	encoded, err := encode(&entity)
	if err != nil {
		return err
	}
	key := []any{shardOf(r.ID), string(r.Kind), r.ID, r.Revision}
	m.put("entity", append([]string{"shard"}, rowColumns...), append(slices.Clip(key), spanner.CommitTimestamp, at.Slot, at.N, created, updated, encoded)...)
	if c.op == tko.OpStatus && r.Metadata == c.before.Metadata {
		return nil
	}
	if encoded, err = encode(&revision); err != nil {
		return err
	}
	if c.op == tko.OpStatus {
		m.update("revision", []string{"shard", "kind", "id", "revision", "doc"}, append(slices.Clip(key), encoded)...)
		return nil
	}
	m.put("revision", append([]string{"shard"}, rowColumns...), append(slices.Clip(key), spanner.CommitTimestamp, at.Slot, at.N, created, updated, encoded)...)
	for _, c := range []content{{r.Digest, r.Package}, {r.Derivation, r.Derived}, {r.Owner, r.Owned}} {
		if err := t.putContent(m, c); err != nil {
			return err
		}
		if c.digest != (record.Digest{}) {
			m.put("content_use", contentUseColumns, shardOf(r.ID), c.digest[:], string(r.Kind), r.ID, r.Revision)
		}
	}
	return nil
}

// contentUseColumns are those of the table content_use, which has a row for each content of each revision.
var contentUseColumns = []string{"shard", "digest", "kind", "id", "revision"}

// putContent puts content that the database may lack.
func (t *transaction) putContent(m *mutations, c content) error {
	if c.digest == (record.Digest{}) || c.data == nil {
		return nil
	}
	if t.stored[c.digest] || slices.ContainsFunc(t.contents, func(o content) bool { return o.digest == c.digest }) {
		return nil
	}
	t.contents = append(t.contents, content{c.digest, slices.Clone(c.data)})
	encoding, stored, err := form.Encode(t.store.sealer, c.digest, c.data)
	if err == nil {
		putChunks(m, storedContent{c.digest, int64(encoding), int64(len(c.data)), stored})
	}
	return err
}

// A storedContent is content as it is stored.
type storedContent struct {
	digest         record.Digest
	encoding, size int64
	data           []byte
}

func (c *storedContent) stored() form.Stored {
	return form.Stored{Digest: c.digest, Encoding: int(c.encoding), Size: int(c.size), Data: c.data}
}

// contentColumns are those of the table content, which has a row for each chunk.
var contentColumns = []string{"digest", "chunk", "encoding", "size", "data"}

// putChunks puts content, in chunks.
func putChunks(m *mutations, c storedContent) {
	for i := 0; i == 0 || i*chunkBytes < len(c.data); i++ {
		chunk := c.data[i*chunkBytes : min(len(c.data), (i+1)*chunkBytes)]
		m.put("content", contentColumns, c.digest[:], int64(i), c.encoding, c.size, append([]byte{}, chunk...))
	}
}

// readStored calls found with content as it is stored, in the order of digests.
func readStored(ctx context.Context, from reader, keys spanner.KeySet, found func(storedContent) error) error {
	var c storedContent
	begun := false
	err := from.Read(ctx, "content", keys, contentColumns).Do(func(row *spanner.Row) error {
		var digest, data []byte
		var chunk, encoding, size int64
		if err := row.Columns(&digest, &chunk, &encoding, &size, &data); err != nil {
			return err
		}
		if chunk == 0 {
			if begun {
				if err := found(c); err != nil {
					return err
				}
			}
			c, begun = storedContent{record.Digest(digest), encoding, size, []byte{}}, true
		}
		c.data = append(c.data, data...)
		return nil
	})
	if err == nil && begun {
		err = found(c)
	}
	return fault("read packages", err)
}
