package catalog

import (
	"context"
	"iter"
	"slices"

	"github.com/tko-orchestrator/tko"
)

// watchBatch is the number of changes that are read at once.
const watchBatch = 1000

// Watch streams the changes after a position, of the given kinds or of all, in
// their total order, and then new ones, until the context ends; the context's
// error comes last. A negative position is that of the newest change at the
// first iteration. A position whose changes are no longer retained is an
// ErrGone. So is a position beyond the newest change: it belongs to another
// database, or to this one before it was restored from a backup.
func (s *Service) Watch(ctx context.Context, after int64, kinds ...tko.Kind) iter.Seq2[tko.Change, error] {
	return func(yield func(tko.Change, error) bool) {
		if err := s.watch(ctx, after, kinds, yield); err != nil {
			yield(tko.Change{}, err)
		}
	}
}

// watch returns nil when yield returns false.
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
		changes, wait, err := s.changes.after(ctx, after)
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
