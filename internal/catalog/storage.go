package catalog

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A [Service] combines parts with one purpose each. All of them embed a [core], whose layers
// build on each other: [storage] reads records, [validation] checks packages, [rights] checks
// callers, and core commits. A part that needs another one has it in a field. There are no
// cycles.

// storage reads the store.
type storage struct {
	store   record.Store
	options Options
	log     *slog.Logger
	ids     idSource
}

// get returns one record; Revision 0 if it doesn't exist.
func (s *storage) get(ctx context.Context, fields record.Fields, key record.Key) (record.Record, error) {
	records, err := s.store.Get(ctx, fields, key)
	if err != nil {
		return record.Record{}, err
	}
	if len(records) != 1 {
		return record.Record{}, errors.New("the number of records that the store returned differs from the number of keys")
	}
	return records[0], nil
}

// requireAll checks references as a commit does.
func (s *storage) requireAll(ctx context.Context, keys []record.Key) error {
	if len(keys) == 0 {
		return nil
	}
	records, err := s.store.Get(ctx, record.Fields{}, keys...)
	if err != nil {
		return err
	}
	for _, r := range records {
		if r.Revision == 0 || r.Deleting() {
			return explain(&record.MissingError{Key: r.Key, Deleting: r.Revision != 0})
		}
	}
	return nil
}

// withOrigin returns the deployment with an origin. Its revision is 0 if there is none.
func (s *storage) withOrigin(ctx context.Context, origin string) (record.Record, error) {
	for r, err := range s.store.List(ctx, record.Query{Kind: tko.KindDeployment, Scope: access.ScopeAll, Origin: origin, Limit: 1}) {
		return r, err
	}
	return record.Record{}, nil
}

// originHolder returns the deployment that has the origin of a deployment to be created
// again, or "": a placement may have made its child again since.
func (s *storage) originHolder(ctx context.Context, r record.Record) (string, error) {
	if r.Origin == "" {
		return "", nil
	}
	other, err := s.withOrigin(ctx, r.Origin)
	return other.ID, err
}

// metadataOf returns the metadata of sites or deployments by ID.
func (s *storage) metadataOf(ctx context.Context, kind tko.Kind, ids []string) (map[string]map[string]string, error) {
	slices.Sort(ids)
	ids = slices.Compact(ids)
	out := make(map[string]map[string]string, len(ids))
	for batch := range slices.Chunk(ids, rowsPage) {
		keys := make([]record.Key, 0, len(batch))
		for _, id := range batch {
			if id != "" {
				keys = append(keys, record.Key{Kind: kind, ID: id})
			}
		}
		if len(keys) == 0 {
			continue
		}
		records, err := s.store.Get(ctx, record.Fields{}, keys...)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			out[r.ID] = r.Effective()
		}
	}
	return out, nil
}

// revisions are some revisions that were read, or aren't retained.
type revisions map[record.AtRevision]record.Record

func (s *storage) revisionsOf(ctx context.Context, fields record.Fields, wanted []record.AtRevision) (revisions, error) {
	known := make(revisions, len(wanted))
	if len(wanted) == 0 {
		return known, nil
	}
	records, err := s.store.Revisions(ctx, fields, wanted...)
	for i, r := range records {
		known[wanted[i]] = r
	}
	return known, err
}

// revisionIn returns a revision out of those that were read; another one is read now.
func (s *storage) revisionIn(ctx context.Context, known revisions, key record.Key, revision int64) (record.Record, error) {
	r, ok := known[record.AtRevision{Key: key, Revision: revision}]
	switch {
	case !ok:
		return s.store.Revision(ctx, key, revision)
	case r.Revision == 0:
		return r, fmt.Errorf("%s %q at revision %d: %w", key.Kind, key.ID, revision, tko.ErrNotFound)
	}
	return r, nil
}

// positionOf returns the position of a moment.
func (s *storage) positionOf(ctx context.Context, asOf tko.AsOf) (int64, error) {
	if asOf.Position != 0 {
		return asOf.Position, nil
	}
	position, err := s.store.PositionAt(ctx, asOf.Time)
	if err == nil && position == 0 {
		err = tko.Errorf(tko.ErrGone, "there was nothing at %s yet: use a later time", asOf.Time.Format(time.RFC3339))
	}
	return position, err
}

// asOf returns the position as of which the reads of a context are; 0 is now.
func (s *storage) asOf(ctx context.Context) (int64, error) {
	asOf := tko.AsOfOf(ctx)
	if asOf.IsZero() {
		return 0, nil
	}
	return s.positionOf(ctx, asOf)
}

// orAlone adds to an error because a state is no longer retained that policies retain that
// of single deployments.
func (s *storage) orAlone(ctx context.Context, kind tko.Kind, gone error) error {
	if kind != tko.KindDeployment {
		return gone
	}
	size, err := s.store.HistorySize(ctx)
	if err != nil || len(size.Longer) == 0 {
		return gone
	}
	var deployments int64
	for _, l := range size.Longer {
		deployments += l.Deployments
	}
	return fmt.Errorf("%w; policies retain older states of %d deployments, which can be read, compared and restored one by one: name the deployment's ID", gone, deployments)
}

// listFault returns the error of a list of the store.
func (s *storage) listFault(ctx context.Context, query record.Query, err error) error {
	if query.AsOf != 0 && errors.Is(err, tko.ErrGone) {
		return s.orAlone(ctx, query.Kind, err)
	}
	return err
}
