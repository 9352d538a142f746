package relational

import (
	"context"
	"time"

	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// hashOf returns a stored hash; zero if there is none.
func hashOf(stored []byte) (h audit.Hash) {
	copy(h[:], stored)
	return h
}

// chainValue returns the hash of the newest audit record as a column.
func chainValue(h head) []byte {
	if h.audited == 0 {
		return []byte{}
	}
	return h.chain[:]
}

var addAudit = sqldb.Insert("audit", Int.As("seq"), Int.As("at"), Text.As("doc"), Bytes.As("hash"))

// auditStatements numbers and chains the audit records of the changes decided since
// the last flush, and returns the statement that writes them.
func (g *group) auditStatements() ([]Statement, error) {
	write := addAudit
	add := func(r audit.Record) error {
		r.Seq, r.Time = g.head.audited+1, g.now
		text, err := r.Encode()
		if err != nil {
			return err
		}
		hash := audit.Chain(g.head.chain, text)
		g.head.audited, g.head.chain = r.Seq, hash
		write.Rows = append(write.Rows, []any{r.Seq, micros(g.now), string(text), hash[:]})
		return nil
	}
	for i := range g.changes {
		if c := &g.changes[i]; c.caller != nil {
			r := decide.AuditRecord(*c.caller, c.op, &c.before.Record, &c.after.Record)
			r.Position = c.after.Position
			if err := add(r); err != nil {
				return nil, err
			}
		}
	}
	for _, r := range g.audits {
		if err := add(r); err != nil {
			return nil, err
		}
	}
	return []Statement{write}, nil
}

// Audit appends records to the audit log, in a transaction that commits share.
func (s *Store) Audit(ctx context.Context, records ...audit.Record) error {
	if len(records) == 0 {
		return ctx.Err()
	}
	return s.submit(ctx, &call{audits: records})
}

// Audited returns audit records after a number.
func (s *Store) Audited(ctx context.Context, after int64, limit int) (records []audit.Stored, head, base audit.Head, err error) {
	var headHash, baseHash []byte
	err = s.read(ctx, func(tx Tx) error {
		records = nil
		return tx.Commit(
			ctx,
			Statement{
				SQL:  "SELECT h.audited, h.chain, b.seq, b.hash FROM head h CROSS JOIN audit_base b WHERE h.one = 1 AND b.one = 1",
				Scan: func(from Row) error { return from.Scan(&head.Seq, &headHash, &base.Seq, &baseHash) },
			},
			Statement{
				SQL:  "SELECT seq, doc, hash FROM audit WHERE seq > $1 ORDER BY seq LIMIT $2",
				Args: []any{after, int64(limit)},
				Scan: func(from Row) error {
					var r audit.Stored
					var doc string
					var hash []byte
					err := from.Scan(&r.Seq, &doc, &hash)
					r.Text, r.Hash = []byte(doc), hashOf(hash)
					records = append(records, r)
					return err
				},
			},
		)
	})
	head.Hash, base.Hash = hashOf(headHash), hashOf(baseHash)
	return records, head, base, fault("read the audit log", err)
}

// AuditedSince returns the number of the last audit record before a time.
func (s *Store) AuditedSince(ctx context.Context, since time.Time) (int64, error) {
	// Times ascend with numbers, except after a clock was set back. So the number is
	// searched by halving, by the primary key.
	var low, high int64
	err := s.run(ctx, Statement{
		SQL:  "SELECT b.seq, h.audited FROM head h CROSS JOIN audit_base b WHERE h.one = 1 AND b.one = 1",
		Scan: func(from Row) error { return from.Scan(&low, &high) },
	})
	for err == nil && low < high {
		middle := (low + high + 1) / 2
		at := int64(0)
		err = s.run(ctx, Statement{
			SQL: "SELECT at FROM audit WHERE seq = $1", Args: []any{middle},
			Scan: func(from Row) error { return from.Scan(&at) },
		})
		if at != 0 && at < micros(since) {
			low = middle
		} else {
			high = middle - 1
		}
	}
	return low, fault("search the audit log", err)
}

// TrimAudit removes old audit records.
func (s *Store) TrimAudit(ctx context.Context, before time.Time, limit int) (removed int, err error) {
	err = s.write(ctx, func(tx Tx) ([]Statement, error) {
		removed = 0
		var last int64
		var hash []byte
		// The newest record stays: its hash is the head of the log.
		err := tx.Run(ctx, Statement{
			SQL: "SELECT a.seq, a.hash FROM (SELECT seq, at, hash FROM audit WHERE seq < (SELECT audited FROM head WHERE one = 1) ORDER BY seq LIMIT $2) a " +
				"WHERE a.at < $1 ORDER BY a.seq",
			Args: []any{micros(before), int64(limit)},
			Scan: func(from Row) error {
				removed++
				return from.Scan(&last, &hash)
			},
		})
		if err != nil || removed == 0 {
			return nil, err
		}
		return []Statement{
			{SQL: "DELETE FROM audit WHERE seq <= $1", Args: []any{last}},
			{SQL: "UPDATE audit_base SET seq = $1, hash = $2 WHERE one = 1 AND seq < $1", Args: []any{last, hash}},
		}, nil
	})
	return removed, fault("remove old audit records", err)
}

// AuditSink returns the number of the last record that a sink has received.
func (s *Store) AuditSink(ctx context.Context, name string) (seq int64, err error) {
	if err := decide.CheckTexts("sink", name); err != nil {
		return 0, err
	}
	err = s.run(ctx, Statement{
		SQL: "SELECT seq FROM audit_sink WHERE name = $1", Args: []any{name},
		Scan: func(from Row) error { return from.Scan(&seq) },
	})
	return seq, fault("read the position of an audit sink", err)
}

// SaveAuditSink saves the number of the last record that a sink has received.
func (s *Store) SaveAuditSink(ctx context.Context, name string, seq int64) error {
	if err := decide.CheckTexts("sink", name); err != nil {
		return err
	}
	err := s.write(ctx, func(Tx) ([]Statement, error) {
		return []Statement{{
			SQL:  "INSERT INTO audit_sink (name, seq) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET seq = excluded.seq",
			Args: []any{name, seq},
		}}, nil
	})
	return fault("save the position of an audit sink", err)
}
