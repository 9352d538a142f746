package catalog

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
)

// Purges and approvals of what is selected go in batches, each a commit, so
// that others can write meanwhile. What is selected is decided once, at the
// beginning, and then read again page by page: so nothing that comes in later
// is touched, no list stays open, and memory is a few bytes for each record.

const (
	// selectedPage is how many selected records are read at once.
	selectedPage = 2000
	// purgeBatch is how many records are given to the store to delete at once.
	// It deletes as many of them as it may in one commit.
	purgeBatch = 500
	// maxFreezes is how often a selection is begun.
	maxFreezes = 5
	// reportEvery is how often a long operation says in the log how far it is.
	reportEvery = 10 * time.Second
)

// A selection lists what is selected after an ID.
type selection func(after string) (iter.Seq2[Record, error], error)

// selected is the selection of a query.
func (s *Service) selected(ctx context.Context, query Query) selection {
	return func(after string) (iter.Seq2[Record, error], error) {
		query := query
		query.After = after
		return s.store.List(ctx, query), nil
	}
}

// A frozen selection knows the records that were selected at one moment by
// their hashes. That two have the same is as good as impossible: one in ten
// million, with a million records.
type frozen struct {
	seed   maphash.Seed
	hashes []uint64 // sorted
}

// freeze decides what is selected. A database that goes away in the middle
// takes the moment with it: then it is decided at another.
func (list selection) freeze() (f frozen, err error) {
	for range maxFreezes {
		f, err = list.freezeOnce()
		if !errors.Is(err, tko.ErrUnavailable) || f.len() == 0 {
			break
		}
	}
	return f, err
}

// freezeOnce answers what it found even if that wasn't all.
func (list selection) freezeOnce() (frozen, error) {
	f := frozen{seed: maphash.MakeSeed()}
	records, err := list("")
	if err != nil {
		return f, err
	}
	for r, err := range records {
		if err != nil {
			return f, err
		}
		f.hashes = append(f.hashes, f.hash(r.ID))
	}
	slices.Sort(f.hashes)
	return f, nil
}

func (f *frozen) hash(id string) uint64 { return maphash.String(f.seed, id) }

func (f *frozen) has(hash uint64) bool {
	_, found := slices.BinarySearch(f.hashes, hash)
	return found
}

func (f *frozen) len() int { return len(f.hashes) }

// each goes through the pages of what was selected and still is.
func (list selection) each(chosen frozen, do func(keys []Key) error) error {
	if chosen.len() == 0 {
		return nil
	}
	for after := ""; ; {
		records, err := list(after)
		if err != nil {
			return err
		}
		read := 0
		var keys []Key
		for r, err := range records {
			if read > 0 && errors.Is(err, tko.ErrUnavailable) { // lost in the middle: the rest is the next page
				read = selectedPage
				break
			}
			if err != nil {
				return err
			}
			after = r.ID
			if chosen.has(chosen.hash(r.ID)) {
				keys = append(keys, r.Key)
			}
			if read++; read == selectedPage {
				break
			}
		}
		if len(keys) > 0 {
			if err := do(keys); err != nil {
				return err
			}
		}
		if read < selectedPage {
			return nil
		}
	}
}

// progress is what a deletion has done.
type progress struct {
	most                            int // records that may be deleted, in all
	kind                            tko.Kind
	count, descendants, dissociated int
	reported                        time.Time
}

func (p *progress) deleted(selected int) tko.Deleted {
	return tko.Deleted{Count: p.count, Descendants: max(0, p.count-selected)}
}

// interrupted says in an error what was done before it.
func (p *progress) interrupted(err error) error {
	switch {
	case p.count > 0:
		return fmt.Errorf("%d were deleted before this, the rest is there; the same again goes on, and if the count was confirmed, with that of the rest: %w", p.count, err)
	case p.dissociated > 0:
		return fmt.Errorf("it is still there, but %d no longer refer to it; the same again goes on: %w", p.dissociated, err)
	default:
		return err
	}
}

// deleteAll deletes records, step by step, until all are gone.
func (s *Service) deleteAll(ctx context.Context, keys []Key, done *progress) error {
	for len(keys) > 0 {
		writes := make([]Write, len(keys))
		for i, key := range keys {
			writes[i] = deletion(ctx, key)
		}
		more, err := s.deleteStep(ctx, writes, done)
		if err != nil {
			return err
		}
		keys = more
		s.report(ctx, done)
	}
	return nil
}

// deleteStep commits deletions once, within what may still be deleted, and
// returns the records that are still there.
func (s *Service) deleteStep(ctx context.Context, writes []Write, done *progress) (more []Key, err error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	left := max(0, done.most-done.count)
	for i := range writes {
		writes[i].DeleteLimit = &left
	}
	outcomes, err := s.commit(ctx, writes...)
	if err != nil {
		return nil, err
	}
	done.kind = writes[0].Record.Kind
	for _, o := range outcomes {
		done.count += o.Deleted
		done.descendants += o.Descendants
		done.dissociated += o.Dissociated
		if o.More {
			more = append(more, o.Key)
		}
	}
	return more, nil
}

// report says now and then how far a long deletion is.
func (s *Service) report(ctx context.Context, done *progress) {
	now := time.Now()
	if done.reported.IsZero() {
		done.reported = now
	}
	if now.Sub(done.reported) < reportEvery {
		return
	}
	done.reported = now
	s.log.InfoContext(ctx, "deleting", "kind", done.kind, "count", done.count, "dissociated", done.dissociated, "who", author(ctx).Who)
}
