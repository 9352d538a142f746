package osm

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
)

// book keeps the state. What is in it is never changed, only replaced, so that
// a copy is cheap. Changes that come at the same time are kept together.
type book struct {
	save func(ctx context.Context, s State, changed []string) error
	turn chan struct{} // held by who keeps

	mu   sync.Mutex
	now  State
	next *entry
}

type entry struct {
	changed []string
	done    bool // guarded by the turn
	err     error
}

var errKeep = fmt.Errorf("keeping the state: %w", tko.ErrUnavailable)

func newBook(s State, save func(ctx context.Context, s State, changed []string) error) *book {
	b := &book{save: save, turn: make(chan struct{}, 1), now: State{
		Target: s.Target, Packages: maps.Clone(s.Packages), Instances: maps.Clone(s.Instances),
	}}
	if b.now.Packages == nil {
		b.now.Packages = map[string]PackageState{}
	}
	if b.now.Instances == nil {
		b.now.Instances = map[string]*InstanceState{}
	}
	return b
}

// state is the state as it is now, for reading.
func (b *book) state() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.copy()
}

func (b *book) copy() State {
	return State{Target: b.now.Target, Packages: maps.Clone(b.now.Packages), Instances: maps.Clone(b.now.Instances)}
}

// instance is what is known of an instance; nil if nothing is.
func (b *book) instance(name string) *InstanceState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now.Instances[name]
}

// pkg is what is known of a package.
func (b *book) pkg(key string) PackageState {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.now.Packages[key]
}

// change changes an instance, without keeping that yet.
func (b *book) change(name string, change func(*InstanceState)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	next := InstanceState{}
	if was := b.now.Instances[name]; was != nil {
		next = *was
	}
	next.KDUs = maps.Clone(next.KDUs)
	next.Operations = slices.Clone(next.Operations)
	if next.Pending != nil {
		p := *next.Pending
		next.Pending = &p
	}
	change(&next)
	b.now.Instances[name] = &next
}

// set changes an instance and keeps that.
func (b *book) set(ctx context.Context, name string, change func(*InstanceState)) error {
	b.change(name, change)
	return b.keep(ctx, "instance/"+name)
}

// forget drops an instance and keeps that.
func (b *book) forget(ctx context.Context, name string) error {
	b.mu.Lock()
	delete(b.now.Instances, name)
	b.mu.Unlock()
	return b.keep(ctx, "instance/"+name)
}

// setPackage changes a package and keeps that; nil drops it.
func (b *book) setPackage(ctx context.Context, key string, p *PackageState) error {
	b.mu.Lock()
	if p == nil {
		delete(b.now.Packages, key)
	} else {
		b.now.Packages[key] = *p
	}
	b.mu.Unlock()
	return b.keep(ctx, key)
}

// refusedPackages are the keys of packages that were refused.
func (b *book) refusedPackages() (keys []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for k, p := range b.now.Packages {
		if p.Failed != nil {
			keys = append(keys, k)
		}
	}
	return keys
}

// retryPackage forgets that a package was refused. It is kept with the next
// change that is.
func (b *book) retryPackage(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.now.Packages[key]
	p.Failed = nil
	b.now.Packages[key] = p
}

// setTarget remembers which OSM this is about, unless what is known was in another.
func (b *book) setTarget(ctx context.Context, target string, foreign bool) error {
	b.mu.Lock()
	if foreign || b.now.Target == target {
		b.mu.Unlock()
		return nil
	}
	b.now.Target = target
	b.mu.Unlock()
	return b.keep(ctx)
}

// keep keeps the state with all changes until now. What was done must be kept
// even if we are to stop.
func (b *book) keep(ctx context.Context, changed ...string) error {
	if b.save == nil {
		return nil
	}
	b.mu.Lock()
	if b.next == nil {
		b.next = &entry{}
	}
	mine := b.next
	mine.changed = append(mine.changed, changed...)
	b.mu.Unlock()

	b.turn <- struct{}{}
	defer func() { <-b.turn }()
	if mine.done {
		return mine.err
	}
	b.mu.Lock()
	b.next = nil
	s := b.copy()
	b.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), keepTime)
	defer cancel()
	if err := b.save(ctx, s, mine.changed); err != nil {
		mine.err = fmt.Errorf("%w: %w", errKeep, err)
	}
	mine.done = true
	return mine.err
}

// ended notes how an operation ended.
func (s *InstanceState) ended(o OperationState) {
	s.Pending = nil
	s.Operations = append([]OperationState{o}, s.Operations...)
	if len(s.Operations) > maxHistory {
		s.Operations = s.Operations[:maxHistory]
	}
}

// fail notes that something didn't work.
func (s *InstanceState) fail(digest, message string, refused bool) {
	f := Failure{Digest: digest, Message: message, Refused: refused, Count: 1, At: time.Now().UTC().Truncate(time.Millisecond)}
	if s.Failed != nil && s.Failed.Digest == digest {
		f.Count = s.Failed.Count + 1
	}
	s.Failed = &f
}
