package osm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko/internal/prune"
)

// A Pace has the instances of a revision upgraded in waves: a wave begins when all of the one
// before are as desired, and were so for the soak.
type Pace struct {
	Waves []PaceWave
	// Assign returns the wave of each of some instances.
	Assign     func(names []string) []int
	Open       func(now time.Time) bool // reports whether upgrades may begin now
	Concurrent int                      // upgrades in flight; no limit if 0
	Soak       time.Duration
	// Exceeded reports whether so many failures of so many instances stop the upgrades.
	Exceeded func(failed, instances int) bool
	// Undo has the upgrades recorded as to be undone when failures stop them. Then the caller
	// applies the revision before.
	Undo bool
	// Revision names the desired state. Restores says that it is the one before.
	Revision string
	Restores bool
}

// A PaceWave is a wave of a Pace.
type PaceWave struct {
	Name     string
	Approval bool // a user must approve it before it begins
}

// RolloutState records upgrades in waves.
type RolloutState struct {
	Revision string      `json:"revision,omitempty"`
	Key      string      `json:"key"` // of the desired instances
	Waves    []WaveState `json:"waves"`
	Wave     int         `json:"wave"`              // the current one; their number when all are done
	Since    *time.Time  `json:"since,omitempty"`   // when all instances of the wave were as desired
	Stopped  string      `json:"stopped,omitempty"` // why no further upgrade begins
	// Undo means that failures stopped the upgrades, and that the revision before is to be
	// restored.
	Undo bool `json:"undo,omitempty"`
	// Before are the digests that the instances had, by name.
	Before map[string]string `json:"before,omitempty"`
}

// WaveState is a wave of a RolloutState.
type WaveState struct {
	Name      string   `json:"name,omitempty"`
	Instances []string `json:"instances"`
	Approval  bool     `json:"approval,omitempty"` // it isn't approved yet
}

// of returns the number of the wave of an instance; false if it has none.
func (r *RolloutState) of(name string) (int, bool) {
	for i, wave := range r.Waves {
		if slices.Contains(wave.Instances, name) {
			return i, true
		}
	}
	return 0, false
}

// instances returns the instances of the waves up to a number, and of all.
func (r *RolloutState) instances(upTo int) (some []string, all int) {
	for i, wave := range r.Waves {
		all += len(wave.Instances)
		if i <= upTo {
			some = append(some, wave.Instances...)
		}
	}
	return some, all
}

// with returns a changed copy.
func (r RolloutState) with(change func(*RolloutState)) *RolloutState {
	r.Waves = slices.Clone(r.Waves)
	change(&r)
	return &r
}

// desiredKey returns the key of the desired instances.
func (s *situation) desiredKey() string {
	lines := make([]string, 0, len(s.wanted))
	for name, want := range s.wanted {
		lines = append(lines, name+"\x00"+want.digest)
	}
	slices.Sort(lines)
	sum := sha256.Sum256([]byte(strings.Join(lines, "\x01")))
	return hex.EncodeToString(sum[:16])
}

// pace lets only those upgrades begin that are in turn. The state records the waves before
// the first upgrade begins.
func (w *run) pace(ctx context.Context, all []decision, whole bool) error {
	w.soaking = 0
	r := w.ledger.state().Rollout
	if w.policy.Pace == nil {
		if r != nil {
			return w.ledger.setRollout(ctx, nil)
		}
		return nil
	}
	if key := w.desiredKey(); whole && (r == nil || r.Key != key) {
		r = w.newRollout(r, key, all)
		if r == nil {
			return nil
		}
		if err := w.ledger.setRollout(ctx, r); err != nil {
			return err
		}
	}
	if r == nil {
		return nil
	}
	r, err := w.advance(ctx, r, all)
	if err != nil {
		return err
	}
	return w.inTurn(ctx, r, all)
}

// newRollout returns the waves of the upgrades that are to be made; nil if there are none.
// What restores the instances of the rollout before is one wave.
func (w *run) newRollout(before *RolloutState, key string, all []decision) *RolloutState {
	p := w.policy.Pace
	var names []string
	digests := map[string]string{}
	for _, d := range all {
		st := w.ledger.instance(d.name)
		if d.verb == upgrade || st != nil && st.Pending != nil && st.Pending.Kind == Upgrade {
			names = append(names, d.name)
			digests[d.name] = st.Digest
		}
	}
	if len(names) == 0 && !p.Restores {
		return nil
	}
	slices.Sort(names)
	r := &RolloutState{Revision: p.Revision, Key: key, Undo: p.Restores, Before: digests}
	if p.Restores || w.reverts(before, names) {
		r.Waves = []WaveState{{Instances: names}}
		return r
	}
	for _, wave := range p.Waves {
		r.Waves = append(r.Waves, WaveState{Name: wave.Name, Approval: wave.Approval})
	}
	for i, wave := range p.Assign(names) {
		r.Waves[wave].Instances = append(r.Waves[wave].Instances, names[i])
	}
	r.Waves = slices.DeleteFunc(r.Waves, func(wave WaveState) bool { return len(wave.Instances) == 0 })
	return r
}

// reverts reports whether upgrades restore what instances were before a rollout, which may be
// in progress.
func (w *run) reverts(before *RolloutState, names []string) bool {
	if before == nil {
		return false
	}
	for _, name := range names {
		if digest := before.Before[name]; digest == "" || digest != w.wanted[name].digest {
			return false
		}
	}
	return true
}

// phases returns the phases of instances: as decided, or as they were last.
func (w *run) phases(all []decision) func(name string) string {
	decided := map[string]decision{}
	for _, d := range all {
		decided[d.name] = d
	}
	return func(name string) string {
		d, ok := decided[name]
		switch {
		case w.wanted[name].digest == "": // a later revision removed it
			return PhaseReady
		case w.failedNow(name):
			return PhaseFailed
		case !ok:
			return w.statuses[name].Phase
		case d.verb == nothing:
			return d.phase
		}
		return PhaseProgressing
	}
}

// failedNow reports whether a step towards the desired state of an instance failed last.
func (w *run) failedNow(name string) bool {
	st := w.ledger.instance(name)
	return st != nil && st.Failed != nil && !st.Failed.Busy && st.Failed.Digest == w.wanted[name].digest
}

// advance begins the next waves, as far as possible.
func (w *run) advance(ctx context.Context, r *RolloutState, all []decision) (*RolloutState, error) {
	p, phase, t := w.policy.Pace, w.phases(all), now()
	next := r.with(func(*RolloutState) {})
	for next.Wave < len(next.Waves) {
		some, total := next.instances(next.Wave)
		var failed []string
		ready := true
		for _, name := range some {
			switch phase(name) {
			case PhaseReady, PhaseKept:
			case PhaseFailed, PhaseStalled:
				failed = append(failed, name)
			default:
				ready = false
			}
		}
		next.Stopped = ""
		if len(failed) > 0 && p.Exceeded(len(failed), total) {
			next.Stopped = fmt.Sprintf("%d of %d instances failed, such as %s", len(failed), total, failed[0])
			next.Undo, next.Since = next.Undo || p.Undo, nil
			break
		}
		if !ready {
			next.Since = nil
			break
		}
		if next.Since == nil {
			next.Since = &t
		}
		if left := p.Soak - t.Sub(*next.Since); left > 0 && next.Wave < len(next.Waves)-1 {
			w.soaking = left
			w.soon(left)
			break
		}
		next.Wave, next.Since = next.Wave+1, nil
	}
	if sameRollout(*r, *next) {
		return r, nil
	}
	return next, w.ledger.setRollout(ctx, next)
}

func sameRollout(a, b RolloutState) bool {
	since := a.Since == b.Since || a.Since != nil && b.Since != nil && a.Since.Equal(*b.Since)
	return since && a.Wave == b.Wave && a.Stopped == b.Stopped && a.Undo == b.Undo
}

// inTurn turns upgrades that aren't in turn into decisions to wait. Those of no wave repair
// what others changed, and go on.
func (w *run) inTurn(ctx context.Context, r *RolloutState, all []decision) error {
	inFlight := 0
	for _, st := range w.ledger.state().Instances {
		if st.Pending != nil {
			inFlight++
		}
	}
	for i := range all {
		d := &all[i]
		wave, planned := r.of(d.name)
		if d.verb != upgrade || !planned {
			continue
		}
		switch {
		case r.Stopped != "" && !w.failedNow(d.name):
			*d = d.wait("no further upgrade begins: " + r.Stopped)
		case !w.policy.Pace.Open(time.Now()):
			*d = d.wait("it waits for a window in which upgrades may begin")
		case wave > r.Wave:
			*d = d.wait(fmt.Sprintf("it waits for wave %d of %d", wave+1, len(r.Waves)))
		case wave == r.Wave && r.Waves[wave].Approval:
			approved, err := w.approveWave(ctx, r, wave)
			if err != nil {
				return err
			}
			if approved == nil {
				*d = d.wait(fmt.Sprintf("wave %d of %d waits for an approval", wave+1, len(r.Waves)))
				continue
			}
			r = approved
			inFlight++
		case w.policy.Pace.Concurrent > 0 && inFlight >= w.policy.Pace.Concurrent:
			*d = d.wait(fmt.Sprintf("it waits until fewer than %d instances are in an operation", w.policy.Pace.Concurrent))
		default:
			inFlight++
		}
	}
	return nil
}

// approveWave returns the rollout with an approved wave; nil if it isn't approved.
func (w *run) approveWave(ctx context.Context, r *RolloutState, wave int) (*RolloutState, error) {
	this := r.Waves[wave]
	a := &Approval{Key: prune.Key(append([]string{r.Key, strconv.Itoa(wave)}, this.Instances...)), Instances: this.Instances, Wave: wave + 1}
	if w.policy.Approve != a.Key {
		if w.approval == nil {
			w.approval = a
		}
		return nil, nil //nolint:nilnil // it isn't approved
	}
	next := r.with(func(r *RolloutState) { r.Waves[wave].Approval = false })
	return next, w.ledger.setRollout(ctx, next)
}
