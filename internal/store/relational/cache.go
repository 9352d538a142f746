package relational

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// fillPackages sets the packages of records.
func (s *Store) fillPackages(ctx context.Context, run sqldb.Runner, records []*record.Record) error {
	missing := Statement{
		SQL:     "SELECT b.digest, b.encoding, b.size, b.data FROM {rows} CROSS JOIN blob b WHERE b.digest = r.digest",
		Columns: []Column{Bytes.As("digest")},
	}
	found := map[record.Digest][]byte{}
	for _, r := range records {
		if _, ok := found[r.Digest]; ok || r.Digest == (record.Digest{}) {
			continue
		}
		data, ok := s.blobs.Get(r.Digest)
		if !ok {
			missing.Rows = append(missing.Rows, []any{r.Digest[:]})
		}
		found[r.Digest] = data
	}
	missing.Scan = func(from Row) error {
		var key, stored []byte
		var encoding, size int
		if err := from.Scan(&key, &encoding, &size, &stored); err != nil {
			return err
		}
		data, err := s.decode(ctx, key, encoding, size, stored)
		if err != nil {
			return err
		}
		digest := record.Digest(key)
		found[digest] = data
		s.blobs.Put(digest, data, len(data)+100)
		return nil
	}
	if len(missing.Rows) > 0 {
		if err := run(ctx, missing); err != nil {
			return fault("read packages", err)
		}
	}
	for _, r := range records {
		r.Package = found[r.Digest]
		if r.Package == nil && r.Digest != (record.Digest{}) {
			return fmt.Errorf("the package %x of %s %q is missing from the database", r.Digest, r.Kind, r.ID)
		}
	}
	return nil
}

// metadataOf sets the metadata of all numbers in ids. It is an error if one is
// missing.
func (s *Store) metadataOf(ctx context.Context, run sqldb.Runner, ids map[int64]*record.Metadata) error {
	missing := Statement{
		SQL:     "SELECT m.id, m.doc FROM {rows} CROSS JOIN metaset m WHERE m.id = r.id",
		Columns: []Column{Int.As("id")},
	}
	for id := range ids {
		metadata, ok := s.metasets.Get(id)
		if !ok {
			missing.Rows = append(missing.Rows, []any{id})
			continue
		}
		ids[id] = metadata
	}
	missing.Scan = func(from Row) error {
		var id int64
		var doc string
		if err := from.Scan(&id, &doc); err != nil {
			return err
		}
		metadata := new(record.Metadata)
		if err := json.Unmarshal([]byte(doc), metadata); err != nil {
			return fmt.Errorf("metadata %d: %w", id, err)
		}
		ids[id] = metadata
		s.metasets.Put(id, metadata, 3*len(doc)+200)
		return nil
	}
	if len(missing.Rows) > 0 {
		if err := run(ctx, missing); err != nil {
			return fault("read metadata", err)
		}
	}
	for id, metadata := range ids {
		if metadata == nil {
			return fmt.Errorf("metadata %d is missing from the database", id)
		}
	}
	return nil
}

// fillMetadata sets the metadata of rows.
func (s *Store) fillMetadata(ctx context.Context, run sqldb.Runner, rows []row) error {
	ids := map[int64]*record.Metadata{}
	for i := range rows {
		if rows[i].Revision != 0 {
			ids[rows[i].metaset] = nil
		}
	}
	if err := s.metadataOf(ctx, run, ids); err != nil {
		return err
	}
	for i := range rows {
		if rows[i].Revision != 0 {
			rows[i].Metadata = ids[rows[i].metaset]
		}
	}
	return nil
}
