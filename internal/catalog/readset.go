package catalog

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A readSet records the cached entities that a write was derived from. If it is
// nil, the write is derived from the store. The store refuses a write whose
// read set is stale, so a stale cache is never written.
type readSet struct {
	epoch     *int64
	versions  []record.Version
	fromStore bool // entities are read from the store, not from caches
	// rollouts, if not nil, is the version of the rollouts (see RolloutView.Version) that the
	// write was decided from. The write makes the next one.
	rollouts *int64
}

// tryOptimistic derives and commits a write from cached entities and, if that is
// refused, once more from the store: stale caches never cause an error.
func tryOptimistic(ctx context.Context, do func(*readSet) error) error {
	reads := new(readSet)
	err := do(reads)
	if !refused(err) || reads.epoch == nil && reads.versions == nil || ctx.Err() != nil {
		return err
	}
	return do(nil)
}

// tryChecked derives and commits a write as tryOptimistic does, but the commit also checks
// what was read from the store: if that has changed meanwhile, the write is derived again.
func tryChecked(ctx context.Context, do func(*readSet) error) error {
	reads := new(readSet)
	err := do(reads)
	if !refused(err) || reads.epoch == nil && reads.versions == nil || ctx.Err() != nil {
		return err
	}
	return record.Retry(ctx, func() error {
		err := do(&readSet{fromStore: true})
		if err != nil && !record.IsStale(err) {
			return record.Final(err)
		}
		return err
	})
}

// refused reports whether a write was refused for a reason that may be stale.
func refused(err error) bool {
	return errors.Is(err, tko.ErrInvalid) || errors.Is(err, tko.ErrConflict) || errors.Is(err, tko.ErrNotFound)
}

// write adds the read set to a write.
func (r *readSet) write(w record.Write) record.Write {
	if r != nil {
		w.Epoch, w.ReadSet = r.epoch, r.versions
		if r.rollouts != nil {
			w.Rollout = &record.RolloutWrite{Expect: *r.rollouts}
		}
	}
	return w
}

// A baseCache caches the templates that entities were made from most recently.
// When it is full, it is emptied.
type baseCache struct {
	mutex sync.Mutex
	bases map[string]cachedBase
	size  int
}

type cachedBase struct {
	base
	version record.Version
}

// maxCachedBases is the maximum size of the cached packages, in encoded bytes.
const maxCachedBases = 16 << 20

func (m *baseCache) get(id string, reads *readSet) (base, bool) {
	if reads == nil || reads.fromStore {
		return base{}, false
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	b, ok := m.bases[id]
	if ok && !slices.Contains(reads.versions, b.version) {
		reads.versions = append(reads.versions, b.version)
	}
	return b.base, ok
}

// put caches a template, unless a newer version is cached.
func (m *baseCache) put(r record.Record, b base) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	old, ok := m.bases[r.ID]
	if ok && old.version.Position >= r.Position {
		return
	}
	m.size += len(r.Package)
	if m.bases == nil || m.size > maxCachedBases {
		m.bases, m.size = map[string]cachedBase{}, len(r.Package)
	}
	m.bases[r.ID] = cachedBase{base: b, version: record.Version{Key: r.Key, Position: r.Position}}
}
