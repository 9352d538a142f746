package catalog

import (
	"context"
	"iter"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// watchBatch is how many changes are read at once.
const watchBatch = 1000

// Watch answers the changes after a position, of the given kinds or of all, in
// their total order, and then those to come, until the context ends, whose
// error is the last thing answered. A negative position is the newest change
// at the time of the first step. Positions that are no longer kept are an
// ErrGone, and so are those beyond the newest change: they are of another
// database, or of this one before it was restored from a backup.
func (s *Service) Watch(ctx context.Context, after int64, kinds ...tko.Kind) iter.Seq2[tko.Change, error] {
	return func(yield func(tko.Change, error) bool) {
		if err := s.watch(ctx, after, kinds, yield); err != nil {
			yield(tko.Change{}, err)
		}
	}
}

// watch answers nil when yield wants no more.
func (s *Service) watch(ctx context.Context, after int64, kinds []tko.Kind, yield func(tko.Change, error) bool) error {
	for _, k := range kinds {
		if !slices.Contains([]tko.Kind{tko.KindTemplate, tko.KindSite, tko.KindDeployment, tko.KindPlugin}, k) {
			return tko.Errorf(tko.ErrInvalid, "there is no kind %.40q: use template, site, deployment or plugin", string(k))
		}
	}
	head, err := s.store.Head(ctx)
	switch {
	case err != nil:
		return err
	case after > head:
		return tko.Errorf(tko.ErrGone, "the position %d is beyond the newest change, which is %d: list again, and watch from there", after, head)
	case after < 0:
		after = head
	}
	for {
		changes, wait, err := s.recent.after(ctx, after)
		if err != nil {
			return err
		}
		for _, c := range changes {
			after = c.Position
			if len(kinds) > 0 && !slices.Contains(kinds, c.Kind) {
				continue
			}
			if !yield(c, nil) {
				return nil
			}
		}
		if len(changes) > 0 {
			continue
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-wait:
		}
	}
}
