package catalog

import (
	"context"
	"errors"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
)

// The bounds of the states of targets.
const (
	maxTargetName  = 253
	maxTargetState = 64 << 20
)

// TargetState returns the state that a target of the meta-scheduler saved for
// a site. If there is none, the error is an ErrNotFound.
func (s *WorkQueue) TargetState(ctx context.Context, site tko.SiteID, name string) (tko.TargetState, error) {
	if err := checkTarget(site, name); err != nil {
		return tko.TargetState{}, err
	}
	ctx, _, err := s.enter(ctx, "", access.Schedule)
	if err != nil {
		return tko.TargetState{}, err
	}
	return s.store.TargetState(ctx, site, name)
}

// SaveTargetState writes the state of a target and returns its new version. The
// claim is that of the site's work, or of its comparison for [tko.ComparisonState]:
// ErrInvalid if it is of other work,
// ErrConflict if the caller no longer holds it. The site need not exist.
func (s *WorkQueue) SaveTargetState(ctx context.Context, state tko.TargetState, claim tko.WorkItem) (int64, error) {
	if err := errors.Join(checkTarget(state.Site, state.Name), checkItem(claim)); err != nil {
		return 0, err
	}
	ctx, _, err := s.enter(ctx, "", access.Schedule)
	if err != nil {
		return 0, err
	}
	queue, limit := tko.QueueSchedule, maxTargetState
	if state.Name == tko.ComparisonState {
		queue, limit = tko.QueueCompare, tko.MaxComparison
	}
	if claim.Queue != queue || claim.Key != string(state.Site) {
		return 0, tko.Errorf(tko.ErrInvalid, "the state of target %q of site %q is saved with a claim of %.40s %.40q: claim the work of the site",
			state.Name, state.Site, claim.Queue, claim.Key)
	}
	if len(state.State) > limit {
		return 0, tko.Errorf(tko.ErrInvalid, "the state of target %q of site %q has %d bytes: use at most %d", state.Name, state.Site, len(state.State), limit)
	}
	return s.store.SaveTargetState(ctx, state, claim)
}

func checkTarget(site tko.SiteID, name string) error {
	if err := tko.CheckID("the site of a target", string(site)); err != nil {
		return err
	}
	if name == "" || len(name) > maxTargetName || strings.ContainsFunc(name, func(c rune) bool { return c <= ' ' || c == 0x7f }) || !storable(name) {
		return tko.Errorf(tko.ErrInvalid, "target %.40q of site %q: use a name of 1 to %d visible characters", name, site, maxTargetName)
	}
	return nil
}
