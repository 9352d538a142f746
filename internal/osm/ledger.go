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

// A ledger holds the state and saves it. Its elements are replaced, never changed, so
// that copies are cheap. Concurrent changes are saved together. It is safe for
// concurrent use.
type ledger struct {
	write   func(ctx context.Context, s State, changed []string) error
	writing sync.Mutex

	mu   sync.Mutex
	now  State
	next *entry
}

type entry struct {
	changed []string
	done    bool // guarded by the ledger's writing
	err     error
}

var errSave = fmt.Errorf("saving the state: %w", tko.ErrUnavailable)

func newLedger(s State, write func(ctx context.Context, s State, changed []string) error) *ledger {
	l := &ledger{write: write, now: State{
		Target: s.Target, Packages: maps.Clone(s.Packages), Instances: maps.Clone(s.Instances), Rollout: s.Rollout,
	}}
	if l.now.Packages == nil {
		l.now.Packages = map[string]PackageState{}
	}
	if l.now.Instances == nil {
		l.now.Instances = map[string]*InstanceState{}
	}
	return l
}

// state returns a copy of the current state. The caller must not change its
// instances.
func (l *ledger) state() State {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.copy()
}

func (l *ledger) copy() State {
	return State{Target: l.now.Target, Packages: maps.Clone(l.now.Packages), Instances: maps.Clone(l.now.Instances), Rollout: l.now.Rollout}
}

// setRollout records the upgrades in waves.
func (l *ledger) setRollout(ctx context.Context, r *RolloutState) error {
	l.mu.Lock()
	l.now.Rollout = r
	l.mu.Unlock()
	return l.save(ctx)
}

// instance returns the state of an instance, which the caller must not change; nil if
// there is none.
func (l *ledger) instance(name string) *InstanceState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now.Instances[name]
}

// pkg returns the state of a package.
func (l *ledger) pkg(key string) PackageState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.now.Packages[key]
}

// change changes an instance, without saving that.
func (l *ledger) change(name string, change func(*InstanceState)) {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := InstanceState{}
	if was := l.now.Instances[name]; was != nil {
		next = *was
	}
	next.KDUs = maps.Clone(next.KDUs)
	next.Operations = slices.Clone(next.Operations)
	if next.Pending != nil {
		p := *next.Pending
		next.Pending = &p
	}
	change(&next)
	l.now.Instances[name] = &next
}

// set changes an instance and saves that.
func (l *ledger) set(ctx context.Context, name string, change func(*InstanceState)) error {
	l.change(name, change)
	return l.save(ctx, InstanceKey(name))
}

// forget removes an instance from the state and saves that.
func (l *ledger) forget(ctx context.Context, name string) error {
	l.mu.Lock()
	delete(l.now.Instances, name)
	l.mu.Unlock()
	return l.save(ctx, InstanceKey(name))
}

// setPackage changes a package, or removes it from the state if p is nil, and saves
// that.
func (l *ledger) setPackage(ctx context.Context, key string, p *PackageState) error {
	l.mu.Lock()
	if p == nil {
		delete(l.now.Packages, key)
	} else {
		l.now.Packages[key] = *p
	}
	l.mu.Unlock()
	return l.save(ctx, key)
}

// refusedPackages returns the keys of packages that OSM refused.
func (l *ledger) refusedPackages() (keys []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for k, p := range l.now.Packages {
		if p.Failed != nil {
			keys = append(keys, k)
		}
	}
	return keys
}

// retryPackage removes the failure of a package. That is saved with the next change.
func (l *ledger) retryPackage(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.now.Packages[key]
	p.Failed = nil
	l.now.Packages[key] = p
}

// setTarget sets the target of the state and saves it, unless the recorded instances
// are in another OSM (foreign).
func (l *ledger) setTarget(ctx context.Context, target string, foreign bool) error {
	l.mu.Lock()
	if foreign || l.now.Target == target {
		l.mu.Unlock()
		return nil
	}
	l.now.Target = target
	l.mu.Unlock()
	return l.save(ctx)
}

// save saves the state with all changes so far, also if ctx has ended: what was done
// in OSM must be recorded.
func (l *ledger) save(ctx context.Context, changed ...string) error {
	if l.write == nil {
		return nil
	}
	l.mu.Lock()
	if l.next == nil {
		l.next = &entry{}
	}
	mine := l.next
	mine.changed = append(mine.changed, changed...)
	l.mu.Unlock()

	l.writing.Lock()
	defer l.writing.Unlock()
	if mine.done {
		return mine.err
	}
	l.mu.Lock()
	l.next = nil
	s := l.copy()
	l.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), saveTimeout)
	defer cancel()
	if err := l.write(ctx, s, mine.changed); err != nil {
		mine.err = fmt.Errorf("%w: %w", errSave, err)
	}
	mine.done = true
	return mine.err
}

// ended records an operation that ended.
func (s *InstanceState) ended(o OperationState) {
	s.Pending = nil
	s.Operations = append([]OperationState{o}, s.Operations...)
	if len(s.Operations) > maxHistory {
		s.Operations = s.Operations[:maxHistory]
	}
}

// fail records a failure.
func (s *InstanceState) fail(digest, message string, refused bool) {
	s.Failed = s.Failed.next(digest, message, refused)
}

// next returns the failure of a step after f, the last one, which may be nil.
func (f *Failure) next(digest, message string, refused bool) *Failure {
	n := Failure{Digest: digest, Message: message, Refused: refused, Count: 1, At: now().Truncate(time.Millisecond)}
	if f != nil && f.Digest == digest {
		n.Count = f.Count + 1
	}
	return &n
}

// left returns the time until the step is tried again. The pause is doubled each time,
// up to 64 times as long.
func (f *Failure) left(pause time.Duration, now time.Time) time.Duration {
	return f.At.Add(pause << min(f.Count-1, 6)).Sub(now)
}

// justNow is for how long a failure isn't tried again, although a user asks for it: webhooks ask,
// too, and may come in bursts.
const justNow = 10 * time.Second

// pauseLeft is left under a policy.
func (f *Failure) pauseLeft(p Policy, pause time.Duration, now time.Time) time.Duration {
	left := f.left(pause, now)
	if p.RetryNow && !f.Busy {
		return min(left, f.At.Add(min(justNow, pause)).Sub(now))
	}
	return left
}

// phase returns the phase of what failed, until it is tried again.
func (f *Failure) phase() string {
	if f.Refused {
		return PhaseStalled
	}
	return PhaseFailed
}
