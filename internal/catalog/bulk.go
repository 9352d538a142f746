package catalog

import (
	"context"
	"errors"
	"hash/maphash"
	"iter"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Purges and approvals of selected records run in batches, each of them a
// commit, so that other writers aren't blocked. The selection is evaluated once,
// at the beginning, and its records are then read again page by page: records
// that are added later are not touched, no list stays open, and a selected
// record costs a few bytes of memory.

const (
	// purgeBatch is the maximum number of deletions in one call of Store.Commit,
	// which may complete fewer.
	purgeBatch = 500
	// maxFreezes is the maximum number of attempts to evaluate a selection.
	maxFreezes = 5
	// reportEvery is the interval at which a long operation logs its progress.
	reportEvery = 10 * time.Second
)

// A selection lists the selected records with IDs greater than after.
type selection func(after string) (iter.Seq2[record.Record, error], error)

// selected returns the selection of a query.
func selected(ctx context.Context, store record.Store, query record.Query) selection {
	return func(after string) (iter.Seq2[record.Record, error], error) {
		query := query
		query.After = after
		return store.List(ctx, query), nil
	}
}

// A frozen selection is the set of records that were selected at one time,
// stored as hashes of their IDs. The probability of a collision is about one in
// ten million for a million records.
type frozen struct {
	seed   maphash.Seed
	hashes []uint64 // sorted
}

// freeze evaluates the selection. If the database becomes unavailable during
// the evaluation, its snapshot is lost, and freeze starts again with another
// one.
func (list selection) freeze() (f frozen, err error) {
	for range maxFreezes {
		f, err = list.freezeOnce()
		if !errors.Is(err, tko.ErrUnavailable) || f.len() == 0 {
			break
		}
	}
	return f, err
}

// freezeOnce evaluates the selection once. With an error it returns the records
// that it found before.
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

// each calls do for each page of the records that were frozen and are still
// selected.
func (list selection) each(chosen frozen, do func(keys []record.Key) error) error {
	if chosen.len() == 0 {
		return nil
	}
	for after := ""; ; {
		records, err := list(after)
		if err != nil {
			return err
		}
		read := 0
		var keys []record.Key
		for r, err := range records {
			if read > 0 && errors.Is(err, tko.ErrUnavailable) { // the snapshot is lost: the next page has the rest
				read = record.SelectedPage
				break
			}
			if err != nil {
				return err
			}
			after = r.ID
			if chosen.has(chosen.hash(r.ID)) {
				keys = append(keys, r.Key)
			}
			read++
			if read == record.SelectedPage {
				break
			}
		}
		if len(keys) > 0 {
			if err := do(keys); err != nil {
				return err
			}
		}
		if read < record.SelectedPage {
			return nil
		}
	}
}
