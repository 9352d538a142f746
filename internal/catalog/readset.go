package catalog

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/tko-orchestrator/tko"
)

// Grounds are what a write was derived from out of memory: nil to derive it
// from what the store has now. The store refuses the write if they no longer
// hold, so that memory can be wrong only until then.
type grounds struct {
	epoch    *int64
	madeFrom []Version
}

// onGrounds derives and commits something from memory, and if that is refused,
// from what is there: memory never refuses anything.
func onGrounds(ctx context.Context, do func(*grounds) error) error {
	on := new(grounds)
	err := do(on)
	refused := errors.Is(err, tko.ErrInvalid) || errors.Is(err, tko.ErrConflict) || errors.Is(err, tko.ErrNotFound)
	if !refused || on.epoch == nil && on.madeFrom == nil || ctx.Err() != nil {
		return err
	}
	return do(nil)
}

func isStale(err error) bool {
	_, ok := errors.AsType[*StaleError](err)
	return ok
}

// write puts the grounds on which a write rests into it.
func (g *grounds) write(w Write) Write {
	if g != nil {
		w.Epoch, w.ReadSet = g.epoch, g.madeFrom
	}
	return w
}

// A baseMemory keeps templates that were started from lately. When it is full
// it forgets all of them.
type baseMemory struct {
	mutex sync.Mutex
	bases map[string]rememberedBase
	size  int
}

type rememberedBase struct {
	base
	version Version
}

// maxBaseMemory is how many bytes of encoded packages are remembered.
const maxBaseMemory = 16 << 20

func (m *baseMemory) get(id string, on *grounds) (base, bool) {
	if on == nil {
		return base{}, false
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	b, ok := m.bases[id]
	if ok && !slices.Contains(on.madeFrom, b.version) {
		on.madeFrom = append(on.madeFrom, b.version)
	}
	return b.base, ok
}

// put remembers a template, unless a newer one is known.
func (m *baseMemory) put(r Record, b base) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	old, ok := m.bases[r.ID]
	if ok && old.version.Position >= r.Position {
		return
	}
	if m.size += len(r.Package); m.bases == nil || m.size > maxBaseMemory {
		m.bases, m.size = map[string]rememberedBase{}, len(r.Package)
	}
	m.bases[r.ID] = rememberedBase{base: b, version: Version{Key: r.Key, Position: r.Position}}
}
