package spanner

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/form"
)

// A reader is a transaction that reads.
type reader interface {
	Read(ctx context.Context, table string, keys spanner.KeySet, columns []string) *spanner.RowIterator
	ReadRow(ctx context.Context, table string, key spanner.Key, columns []string) (*spanner.Row, error)
	Query(ctx context.Context, statement spanner.Statement) *spanner.RowIterator
}

// A parameter is a key in a query.
type parameter struct {
	Shard    int64
	Kind, ID string
	Revision int64
}

func parametersOf(keys []record.Key) []parameter {
	list := make([]parameter, len(keys))
	for i, key := range keys {
		list[i] = parameter{Shard: shardOf(key.ID), Kind: string(key.Kind), ID: key.ID}
	}
	return list
}

// storable reports whether a record with this key can exist.
func storable(key record.Key) bool {
	return record.Storable(key.ID) && record.Storable(string(key.Kind))
}

// Get returns the records of keys.
func (s *Store) Get(ctx context.Context, fields record.Fields, keys ...record.Key) ([]record.Record, error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	found, err := readRecords(ctx, snapshot, keys)
	if err != nil {
		return nil, err
	}
	records := make([]record.Record, len(keys))
	for i, key := range keys {
		if r := found[key]; r != nil {
			records[i] = clone(r)
		} else {
			records[i].Key = key
		}
	}
	err = addDeployments(ctx, snapshot, fields.Scope.Of(tko.KindDeployment), record.Fields{Deployments: fields.Deployments}, records)
	if err == nil && fields.Package {
		err = s.addPackages(ctx, snapshot, records)
	}
	return records, err
}

func readRecords(ctx context.Context, from reader, keys []record.Key) (map[record.Key]*record.Record, error) {
	found := make(map[record.Key]*record.Record, len(keys))
	var wanted []spanner.Key
	for _, key := range keys {
		if storable(key) {
			wanted = append(wanted, spanner.Key{shardOf(key.ID), string(key.Kind), key.ID})
		}
	}
	if len(wanted) == 0 {
		return found, ctx.Err()
	}
	err := from.Read(ctx, "entity", spanner.KeySetFromKeys(wanted...), rowColumns).Do(func(row *spanner.Row) error {
		r, err := scanRow(row)
		if err == nil {
			found[r.Key] = r
		}
		return err
	})
	return found, fault("read records", err)
}

// addPackages reads the packages of records.
func (s *Store) addPackages(ctx context.Context, from reader, records []record.Record) error {
	digests := map[record.Digest]bool{}
	for i := range records {
		if d := records[i].Digest; d != (record.Digest{}) {
			digests[d] = true
		}
	}
	contents, err := s.readContent(ctx, from, slices.Collect(maps.Keys(digests)))
	if err != nil {
		return err
	}
	for i := range records {
		if r := &records[i]; r.Digest != (record.Digest{}) {
			r.Package = contents[r.Digest]
			if r.Package == nil {
				return fmt.Errorf("the package of %s %q is missing", r.Kind, r.ID)
			}
		}
	}
	return nil
}

// readContent returns content by its digest. Content never changes, and isn't removed.
func (s *Store) readContent(ctx context.Context, from reader, digests []record.Digest) (map[record.Digest][]byte, error) {
	contents := make(map[record.Digest][]byte, len(digests))
	var wanted []spanner.KeySet
	for _, d := range digests {
		if data, ok := s.blobs.Get(d); ok {
			contents[d] = data
		} else {
			wanted = append(wanted, spanner.Key{d[:]}.AsPrefix())
		}
	}
	if len(wanted) == 0 {
		return contents, nil
	}
	err := readStored(ctx, from, spanner.KeySets(wanted...), func(c storedContent) error {
		data, err := form.Decode(ctx, s.sealer, c.stored())
		if err != nil {
			return err
		}
		contents[c.digest] = data
		s.blobs.Put(c.digest, data, len(data))
		return nil
	})
	return contents, err
}

// Derivation returns the content of a digest.
func (s *Store) Derivation(ctx context.Context, digest record.Digest) ([]byte, error) {
	contents, err := s.readContent(ctx, s.client.Single(), []record.Digest{digest})
	if err == nil && contents[digest] == nil {
		err = fmt.Errorf("derivation %x: %w", digest[:], tko.ErrNotFound)
	}
	return contents[digest], err
}

// Epoch returns the position of the newest change to plugins and custom resource definitions.
func (s *Store) Epoch(ctx context.Context) (int64, error) { return readEpoch(ctx, s.client.Single()) }

func readEpoch(ctx context.Context, from reader) (int64, error) {
	return readPlace(ctx, from, "epoch")
}

// Revision returns a record as of a revision.
func (s *Store) Revision(ctx context.Context, key record.Key, revision int64) (record.Record, error) {
	notFound := fmt.Errorf("revision %d of %s %q: %w", revision, key.Kind, key.ID, tko.ErrNotFound)
	if !storable(key) {
		return record.Record{}, notFound
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	r, err := readRevision(ctx, snapshot, key, revision)
	if errors.Is(err, spanner.ErrRowNotFound) {
		return record.Record{}, notFound
	}
	if err != nil {
		return record.Record{}, err
	}
	records := []record.Record{*r}
	err = s.addPackages(ctx, snapshot, records)
	return records[0], err
}

func readRevision(ctx context.Context, from reader, key record.Key, revision int64) (*record.Record, error) {
	row, err := from.ReadRow(ctx, "revision", spanner.Key{shardOf(key.ID), string(key.Kind), key.ID, revision}, rowColumns)
	if err != nil {
		return nil, fault("read a revision", err)
	}
	r, err := scanRow(row)
	if err == nil {
		r.Base = 0 // which only reads of the past return
	}
	return r, err
}

// Revisions returns records as of revisions.
func (s *Store) Revisions(ctx context.Context, fields record.Fields, wanted ...record.AtRevision) ([]record.Record, error) {
	records := make([]record.Record, len(wanted))
	var keys []spanner.Key
	for i, w := range wanted {
		records[i].Key = w.Key
		if storable(w.Key) {
			keys = append(keys, spanner.Key{shardOf(w.ID), string(w.Kind), w.ID, w.Revision})
		}
	}
	if len(keys) == 0 {
		return records, ctx.Err()
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	found := map[record.AtRevision]*record.Record{}
	err := snapshot.Read(ctx, "revision", spanner.KeySetFromKeys(keys...), rowColumns).Do(func(row *spanner.Row) error {
		r, err := scanRow(row)
		if err == nil {
			r.Base = 0
			found[record.AtRevision{Key: r.Key, Revision: r.Revision}] = r
		}
		return err
	})
	if err != nil {
		return nil, fault("read revisions", err)
	}
	for i, w := range wanted {
		if r := found[w]; r != nil {
			records[i] = clone(r)
		}
	}
	if fields.Package {
		err = s.addPackages(ctx, snapshot, records)
	}
	return records, err
}

// An origin identifies a record of a kind.
type origin struct {
	kind tko.Kind
	name string
}

// readOrigins returns the IDs of the records of origins.
func readOrigins(ctx context.Context, from reader, origins []origin) (map[origin]string, error) {
	found := make(map[origin]string, len(origins))
	var wanted []spanner.Key
	for _, o := range origins {
		if record.Storable(o.name) {
			wanted = append(wanted, spanner.Key{shardOf(o.name), string(o.kind), o.name})
		}
	}
	if len(wanted) == 0 {
		return found, ctx.Err()
	}
	err := from.Read(ctx, "origin", spanner.KeySetFromKeys(wanted...), []string{"kind", "origin", "id"}).Do(func(row *spanner.Row) error {
		var kind, name, id string
		err := row.Columns(&kind, &name, &id)
		found[origin{tko.Kind(kind), name}] = id
		return err
	})
	return found, fault("read origins", err)
}

// readNow returns the database's time.
func readNow(ctx context.Context, from reader) (now time.Time, err error) {
	err = from.Query(ctx, spanner.Statement{SQL: "SELECT CURRENT_TIMESTAMP()"}).Do(func(row *spanner.Row) error { return row.Column(0, &now) })
	return now.UTC().Truncate(time.Microsecond), fault("read the time", err)
}
