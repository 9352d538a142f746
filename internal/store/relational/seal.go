package relational

import (
	"context"
	"strconv"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/form"
)

// A Sealer encrypts packages.
type Sealer = form.Sealer

// Encrypt encrypts the packages that are written from now on. It is called
// before the store is used.
func (s *Store) Encrypt(sealer Sealer) { s.sealer = sealer }

// encode returns a package as it is stored.
func (s *Store) encode(digest record.Digest, data []byte) (encoding int, stored []byte, err error) {
	return form.Encode(s.sealer, digest, data)
}

// decode is the reverse of encode.
func (s *Store) decode(ctx context.Context, digest []byte, encoding, size int, stored []byte) ([]byte, error) {
	return form.Decode(ctx, s.sealer, form.Stored{Digest: record.Digest(digest), Encoding: encoding, Size: size, Data: stored})
}

// SealingKey returns the wrapped keys of encrypted packages, and their version;
// nil and 0 if there are none.
func (s *Store) SealingKey(ctx context.Context) (wrapped []byte, version int64, err error) {
	err = s.run(ctx, Statement{
		SQL:  "SELECT version, wrapped FROM sealing_key WHERE id = 1",
		Scan: func(from Row) error { return from.Scan(&version, &wrapped) },
	})
	return wrapped, version, fault("read the encryption keys", err)
}

// SaveSealingKey replaces the wrapped keys of a version, 0 if there are none.
// The error is an ErrConflict if there is another version.
func (s *Store) SaveSealingKey(ctx context.Context, wrapped []byte, version int64) error {
	saved := Statement{
		SQL: "INSERT INTO sealing_key (id, version, wrapped) SELECT 1, r.version, r.wrapped FROM {rows} WHERE true " +
			"ON CONFLICT (id) DO UPDATE SET version = excluded.version, wrapped = excluded.wrapped",
		Columns: []Column{Int.As("version"), Bytes.As("wrapped")}, Rows: [][]any{{version + 1, wrapped}},
	}
	return s.write(ctx, func(tx Tx) ([]Statement, error) {
		now, same := int64(0), false
		if err := tx.Run(ctx, Statement{
			SQL: "SELECT version, wrapped FROM sealing_key WHERE id = 1 {for update}",
			Scan: func(from Row) error {
				var stored []byte
				err := from.Scan(&now, &stored)
				same = string(stored) == string(wrapped)
				return err
			},
		}); err != nil {
			return nil, fault("read the encryption keys", err)
		}
		if same { // an earlier try was committed
			return nil, nil
		}
		if now != version {
			return nil, tko.Errorf(tko.ErrConflict, "the encryption keys were changed concurrently: try again")
		}
		return []Statement{saved}, nil
	})
}

// resealed is the number of packages that Reseal writes in one transaction.
const resealed = 100

// Reseal encrypts all packages with the current key, those that are not
// encrypted, too. It reports the number of packages after each step. It may be
// interrupted and run again.
func (s *Store) Reseal(ctx context.Context, progress func(done int)) error {
	after := []byte{}
	for done := 0; ; {
		rows, next, err := s.resealRows(ctx, after)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		update := Statement{
			SQL:     "UPDATE blob SET encoding = r.encoding, data = r.data FROM {rows} WHERE blob.digest = r.digest",
			Columns: []Column{Bytes.As("digest"), Int.As("encoding"), Bytes.As("data")}, Rows: rows,
		}
		if err := s.write(ctx, func(Tx) ([]Statement, error) { return []Statement{update}, nil }); err != nil {
			return fault("encrypt packages", err)
		}
		after = next
		done += len(rows)
		progress(done)
	}
}

// resealRows returns the next packages as they are to be stored.
func (s *Store) resealRows(ctx context.Context, after []byte) (rows [][]any, next []byte, err error) {
	err = s.run(ctx, Statement{
		SQL:  "SELECT digest, encoding, size, data FROM blob WHERE digest > $1 ORDER BY digest LIMIT " + strconv.Itoa(resealed),
		Args: []any{after},
		Scan: func(from Row) error {
			var digest, stored []byte
			var encoding, size int
			if err := from.Scan(&digest, &encoding, &size, &stored); err != nil {
				return err
			}
			data, err := s.decode(ctx, digest, encoding, size, stored)
			if err != nil {
				return err
			}
			if encoding, stored, err = s.encode(record.Digest(digest), data); err != nil {
				return err
			}
			rows = append(rows, []any{digest, int64(encoding), stored})
			next = digest
			return nil
		},
	})
	return rows, next, fault("read packages", err)
}
