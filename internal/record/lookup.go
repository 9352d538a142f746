package record

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// A Lookup reads records of a store in the forms that several rooms need, regardless of rights.
type Lookup struct {
	Store Store
}

// One returns one record; Revision 0 if it doesn't exist.
func (s *Lookup) One(ctx context.Context, fields Fields, key Key) (Record, error) {
	records, err := s.Store.Get(ctx, fields, key)
	if err != nil {
		return Record{}, err
	}
	if len(records) != 1 {
		return Record{}, errors.New("the number of records that the store returned differs from the number of keys")
	}
	return records[0], nil
}

// RequireAll checks references as a commit does.
func (s *Lookup) RequireAll(ctx context.Context, keys []Key) error {
	if len(keys) == 0 {
		return nil
	}
	records, err := s.Store.Get(ctx, Fields{}, keys...)
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Revision == 0 || r.Deleting() {
			return Explain(&MissingError{Key: r.Key, Deleting: r.Revision != 0})
		}
	}
	return nil
}

// WithOrigin returns the deployment with an origin. Its revision is 0 if there is none.
func (s *Lookup) WithOrigin(ctx context.Context, origin string) (Record, error) {
	for r, err := range s.Store.List(ctx, Query{Kind: tko.KindDeployment, Scope: access.ScopeAll, Origin: origin, Limit: 1}) {
		return r, err
	}
	return Record{}, nil
}

// OriginHolder returns the deployment that has the origin of a deployment to be created
// again, or "": a placement may have made its child again since.
func (s *Lookup) OriginHolder(ctx context.Context, r Record) (string, error) {
	if r.Origin == "" {
		return "", nil
	}
	other, err := s.WithOrigin(ctx, r.Origin)
	return other.ID, err
}

// MetadataOf returns the metadata of sites or deployments by ID.
func (s *Lookup) MetadataOf(ctx context.Context, kind tko.Kind, ids []string) (map[string]map[string]string, error) {
	out := make(map[string]map[string]string, len(ids))
	err := s.EachOf(ctx, kind, ids, func(r Record) { out[r.ID] = r.Effective() })
	return out, err
}

// EachOf calls found with sites or deployments by ID, without packages, in the order of IDs.
func (s *Lookup) EachOf(ctx context.Context, kind tko.Kind, ids []string, found func(Record)) error {
	ids = slices.Sorted(slices.Values(ids))
	ids = slices.Compact(ids)
	for batch := range slices.Chunk(ids, RowsPage) {
		keys := make([]Key, 0, len(batch))
		for _, id := range batch {
			if id != "" {
				keys = append(keys, Key{Kind: kind, ID: id})
			}
		}
		if len(keys) == 0 {
			continue
		}
		records, err := s.Store.Get(ctx, Fields{}, keys...)
		if err != nil {
			return err
		}
		for _, r := range records {
			found(r)
		}
	}
	return nil
}

// Revisions are some revisions that were read, or aren't retained.
type Revisions map[AtRevision]Record

// RevisionsOf returns the wanted revisions that are retained; those that it leaves out are
// read by [Lookup.RevisionIn].
func (s *Lookup) RevisionsOf(ctx context.Context, fields Fields, wanted []AtRevision) (Revisions, error) {
	known := make(Revisions, len(wanted))
	if len(wanted) == 0 {
		return known, nil
	}
	records, err := s.Store.Revisions(ctx, fields, wanted...)
	for i, r := range records {
		known[wanted[i]] = r
	}
	return known, err
}

// RevisionIn returns a revision out of those that were read; another one is read now.
func (s *Lookup) RevisionIn(ctx context.Context, known Revisions, key Key, revision int64) (Record, error) {
	r, ok := known[AtRevision{Key: key, Revision: revision}]
	switch {
	case !ok:
		return s.Store.Revision(ctx, key, revision)
	case r.Revision == 0:
		return r, fmt.Errorf("%s %q at revision %d: %w", key.Kind, key.ID, revision, tko.ErrNotFound)
	}
	return r, nil
}

// PositionOf returns the position of a moment.
func (s *Lookup) PositionOf(ctx context.Context, asOf tko.AsOf) (int64, error) {
	if asOf.Position != 0 {
		return asOf.Position, nil
	}
	position, err := s.Store.PositionAt(ctx, asOf.Time)
	if err == nil && position == 0 {
		err = tko.Errorf(tko.ErrGone, "there was nothing at %s yet: use a later time", asOf.Time.Format(time.RFC3339))
	}
	return position, err
}

// AsOf returns the position as of which the reads of a context are; 0 is now.
func (s *Lookup) AsOf(ctx context.Context) (int64, error) {
	asOf := tko.AsOfOf(ctx)
	if asOf.IsZero() {
		return 0, nil
	}
	return s.PositionOf(ctx, asOf)
}

// OrAlone adds to an error because a state is no longer retained that policies retain that
// of single deployments.
func (s *Lookup) OrAlone(ctx context.Context, kind tko.Kind, gone error) error {
	if kind != tko.KindDeployment {
		return gone
	}
	size, err := s.Store.HistorySize(ctx)
	if err != nil || len(size.Longer) == 0 {
		return gone
	}
	var deployments int64
	for _, l := range size.Longer {
		deployments += l.Deployments
	}
	return fmt.Errorf("%w; policies retain older states of %d deployments, which can be read, compared and restored one by one: name the deployment's ID", gone, deployments)
}

// ListFault returns the error of a list of the store.
func (s *Lookup) ListFault(ctx context.Context, query Query, err error) error {
	if query.AsOf != 0 && errors.Is(err, tko.ErrGone) {
		return s.OrAlone(ctx, query.Kind, err)
	}
	return err
}

// RowsPage is the number of rows that are read at once.
const RowsPage = 1000

// Stream returns the sequence of the values that produce passes to yield, until yield returns
// false. The error of produce comes last.
func Stream[T any](produce func(yield func(T) bool) error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		more := true
		err := produce(func(value T) bool {
			more = yield(value, nil)
			return more
		})
		if err != nil && more {
			var none T
			yield(none, err)
		}
	}
}

// SelectedPage is the number of selected records that are read at once.
const SelectedPage = 2000
