package spanner

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// Transactions write audit records without a number to the table audit_pending: a chain within them would be a
// row that all of them write. A sealer numbers and chains the records afterwards, in the order of their commits, and moves
// them to the table audit: regularly, one of the servers, and each reader before it reads. Until then the chain doesn't protect them.
//
// The sealer reads the pending records in a snapshot, which has all commits up to its time: a record that is committed later has a
// greater time. So the sealer doesn't lock what writers write; only the head of the chain.

const (
	sealBatch = 1000 // records of one transaction
	trimMost  = 10_000
	// auditBlock is the number of successive records whose keys have the same shard.
	auditBlock = 256
)

// The rows of the table state with the newest record of the chain, with the time of its commit, and the last one that was removed.
const (
	auditHead = "audit"
	auditBase = "audit_base"
)

func auditKey(seq int64) spanner.Key {
	return spanner.Key{shardOf(strconv.FormatInt(seq/auditBlock, 10)), seq}
}

// putAudit puts a record of a change, at the place of the change.
func putAudit(m *mutations, at place, r audit.Record) error {
	doc, err := r.Encode()
	if err != nil {
		return err
	}
	m.put("audit_pending", []string{"shard", "committed", "n", "doc"}, at.Slot, spanner.CommitTimestamp, at.N, doc)
	return nil
}

// putAudits puts records that aren't of changes. Their numbers are beyond those of changes, and random, so that transactions with the
// same time don't collide.
func putAudits(m *mutations, records []audit.Record) error {
	at := place{Slot: rand.Int64N(slots), N: perSlot + rand.Int64N(1<<40)<<20} //nolint:gosec // spreads writers
	for _, r := range records {
		if err := putAudit(m, at, r); err != nil {
			return err
		}
		at.N++
	}
	return nil
}

// Audit appends records to the audit log.
func (s *Store) Audit(ctx context.Context, records ...audit.Record) error {
	if len(records) == 0 {
		return ctx.Err()
	}
	return s.writeOnce(ctx, "write audit records", func(_ context.Context, _ *spanner.ReadWriteTransaction, m *mutations) error {
		return putAudits(m, records)
	})
}

// A pending is an audit record that isn't numbered yet.
type pending struct {
	at  place
	doc []byte
}

func (p *pending) key() spanner.Key { return spanner.Key{p.at.Slot, p.at.At, p.at.N} }

// record returns the record with its time, and its position if it is one of a change.
func (p *pending) record() (r audit.Record, err error) {
	err = json.Unmarshal(p.doc, &r)
	r.Time = p.at.At.UTC()
	if p.at.N < perSlot {
		r.Position = p.at.position()
	}
	return r, fault("decode an audit record", err)
}

// A chainEnd is the newest record of the chain, and the time of its commit.
type chainEnd struct {
	audit.Head

	committed time.Time
}

func readChainEnd(ctx context.Context, from reader, name string) (c chainEnd, err error) {
	c.committed = epochStart
	row, err := from.ReadRow(ctx, "state", spanner.Key{name}, []string{"value", "committed", "data"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return c, nil
	}
	var hash []byte
	if err == nil {
		err = row.Columns(&c.Seq, &c.committed, &hash)
	}
	copy(c.Hash[:], hash)
	return c, fault("read the end of the audit log", err)
}

func (c chainEnd) put(m *mutations, name string) {
	m.put("state", []string{"name", "value", "committed", "data"}, name, c.Seq, c.committed, c.Hash[:])
}

// readPending returns the oldest records that aren't numbered. It begins at the time of the newest one that is: removed rows before that
// would have to be skipped.
func readPending(ctx context.Context, from reader, after time.Time) (list []pending, err error) {
	statement := spanner.Statement{
		SQL: "SELECT a.shard, a.committed, a.n, a.doc FROM UNNEST(GENERATE_ARRAY(0, 127)) AS slot JOIN audit_pending AS a ON a.shard = slot " +
			"WHERE a.committed >= @after ORDER BY a.committed, a.shard, a.n LIMIT @most",
		Params: map[string]any{"after": after, "most": int64(sealBatch)},
	}
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var p pending
		err := row.Columns(&p.at.Slot, &p.at.At, &p.at.N, &p.doc)
		list = append(list, p)
		return err
	})
	return list, fault("read audit records", err)
}

// seal numbers and chains all records that were committed before the call.
func (s *Store) seal(ctx context.Context) error {
	for {
		more, err := s.sealSome(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// sealSome numbers and chains some records. If another sealer was faster, it does nothing. more reports that there may be others.
func (s *Store) sealSome(ctx context.Context) (more bool, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	before, err := readChainEnd(ctx, snapshot, auditHead)
	if err != nil {
		return false, err
	}
	list, err := readPending(ctx, snapshot, before.committed)
	if err != nil || len(list) == 0 {
		return false, err
	}
	return true, s.write(ctx, "number audit records", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		end, err := readChainEnd(ctx, tx, auditHead)
		if err != nil || end.Head != before.Head {
			return err // only sealers remove pending records: if the end hasn't moved, all are still there
		}
		chained, err := chainPending(end, list)
		if err != nil {
			return err
		}
		for i, r := range chained {
			r.put(m)
			end = r.end
			m.remove("audit_pending", list[i].key())
		}
		end.put(m, auditHead)
		return nil
	})
}

// auditColumns are those of the table audit after the shard.
var auditColumns = []string{"seq", "happened", "doc", "chain"}

// A sealedPending is an audit record of the chain, which is its end. Its committed is the time of the record.
type sealedPending struct {
	end  chainEnd
	text []byte
}

func (r *sealedPending) put(m *mutations) {
	key := auditKey(r.end.Seq)
	m.put("audit", append([]string{"shard"}, auditColumns...), key[0], key[1], r.end.committed, r.text, r.end.Hash[:])
}

// chainPending numbers and chains records after the end of the chain.
func chainPending(end chainEnd, list []pending) ([]sealedPending, error) {
	chained := make([]sealedPending, len(list))
	for i := range list {
		r, err := list[i].record()
		if err != nil {
			return nil, err
		}
		r.Seq = end.Seq + 1
		text, err := r.Encode()
		if err != nil {
			return nil, err
		}
		end = chainEnd{audit.Head{Seq: r.Seq, Hash: audit.Chain(end.Hash, text)}, list[i].at.At}
		chained[i] = sealedPending{end, text}
	}
	return chained, nil
}

// Audited returns audit records after a number.
func (s *Store) Audited(ctx context.Context, after int64, limit int) (records []audit.Stored, head, base audit.Head, err error) {
	if err := s.seal(ctx); err != nil {
		return nil, head, base, err
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	newest, oldest, err := readChain(ctx, snapshot)
	if err != nil {
		return nil, head, base, err
	}
	first := max(after, oldest.Seq) + 1
	err = readAudit(ctx, snapshot, first, min(newest.Seq, first+int64(limit)-1), func(r audit.Stored, _ time.Time) { records = append(records, r) })
	slices.SortFunc(records, func(a, b audit.Stored) int { return int(a.Seq - b.Seq) })
	return records, newest.Head, oldest.Head, err
}

// readChain returns the newest record of the chain, and the last one that was removed.
func readChain(ctx context.Context, from reader) (newest, oldest chainEnd, err error) {
	if newest, err = readChainEnd(ctx, from, auditHead); err == nil {
		oldest, err = readChainEnd(ctx, from, auditBase)
	}
	return newest, oldest, err
}

// readAudit calls found with the records of some numbers, in no order.
func readAudit(ctx context.Context, from reader, first, last int64, found func(r audit.Stored, at time.Time)) error {
	var ranges []spanner.KeySet
	for seq := first; seq <= last; {
		end := min(last, seq/auditBlock*auditBlock+auditBlock-1)
		ranges = append(ranges, spanner.KeyRange{Start: auditKey(seq), End: auditKey(end), Kind: spanner.ClosedClosed})
		seq = end + 1
	}
	if len(ranges) == 0 {
		return ctx.Err()
	}
	return fault("read audit records", from.Read(ctx, "audit", spanner.KeySets(ranges...), auditColumns).Do(func(row *spanner.Row) error {
		var r audit.Stored
		var at time.Time
		var hash []byte
		err := row.Columns(&r.Seq, &at, &r.Text, &hash)
		copy(r.Hash[:], hash)
		found(r, at)
		return err
	}))
}

// AuditedSince returns the number of the last audit record before a time. Times ascend with numbers.
func (s *Store) AuditedSince(ctx context.Context, since time.Time) (int64, error) {
	if err := s.seal(ctx); err != nil {
		return 0, err
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	newest, oldest, err := readChain(ctx, snapshot)
	low, high := oldest.Seq, newest.Seq
	for err == nil && low < high {
		middle := (low + high + 1) / 2
		var at time.Time
		err = readAudit(ctx, snapshot, middle, middle, func(_ audit.Stored, committed time.Time) { at = committed })
		if at.Before(since) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low, err
}

// TrimAudit removes old audit records. The newest one stays: it is the end of the chain.
func (s *Store) TrimAudit(ctx context.Context, before time.Time, limit int) (removed int, err error) {
	if err := s.seal(ctx); err != nil {
		return 0, err
	}
	err = s.writeOnce(ctx, "remove old audit records", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		removed = 0
		newest, oldest, err := readChain(ctx, tx)
		if err != nil {
			return err
		}
		times := map[int64]time.Time{}
		hashes := map[int64]audit.Hash{}
		last := min(newest.Seq-1, oldest.Seq+int64(min(limit, trimMost)))
		err = readAudit(ctx, tx, oldest.Seq+1, last, func(r audit.Stored, at time.Time) { times[r.Seq], hashes[r.Seq] = at, r.Hash })
		if err != nil {
			return err
		}
		for seq := oldest.Seq + 1; seq <= last && times[seq].Before(before); seq++ {
			m.remove("audit", auditKey(seq))
			oldest.Seq, oldest.Hash = seq, hashes[seq]
			removed++
		}
		if removed > 0 {
			oldest.put(m, auditBase)
		}
		return nil
	})
	return removed, err
}

// AuditSink returns the number of the last record that a sink has received.
func (s *Store) AuditSink(ctx context.Context, name string) (seq int64, err error) {
	if err := decide.CheckTexts("sink", name); err != nil {
		return 0, err
	}
	row, err := s.client.Single().ReadRow(ctx, "audit_sink", spanner.Key{name}, []string{"seq"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return 0, nil
	}
	if err == nil {
		err = row.Column(0, &seq)
	}
	return seq, fault("read the position of an audit sink", err)
}

// SaveAuditSink saves the number of the last record that a sink has received.
func (s *Store) SaveAuditSink(ctx context.Context, name string, seq int64) error {
	if err := decide.CheckTexts("sink", name); err != nil {
		return err
	}
	return s.write(ctx, "save the position of an audit sink", func(_ context.Context, _ *spanner.ReadWriteTransaction, m *mutations) error {
		m.put("audit_sink", []string{"name", "seq"}, name, seq)
		return nil
	})
}
