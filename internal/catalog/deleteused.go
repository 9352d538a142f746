package catalog

import (
	"context"
	"fmt"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// allowRemoval is gate.AllowReach for the deletion of records, which counts as adds. Whatever the
// numbers, it needs consent if rollouts in progress change what loses its template or site:
// its rows would be superseded, also those of an undo.
func (s *Remover) allowRemoval(ctx context.Context, kind tko.Kind, first record.Key, keys []record.Key, adds map[record.Count]int) (most int, err error) {
	if most, err = s.gate.AllowReach(ctx, "delete", kind, first, adds); err != nil {
		return 0, err
	}
	if _, confirmed := tko.ConfirmationOf(ctx); confirmed || !tko.CanConsent(ctx) {
		return most, nil
	}
	rows, id, err := s.usedByRollouts(ctx, keys)
	if err != nil || rows == 0 {
		return most, err
	}
	total := 0
	for _, n := range adds {
		total += n
	}
	return 0, tko.Errorf(tko.ErrInvalid, "this would delete %s, %d of which rollout %q is changing: it could neither go on nor be undone there; nothing was changed; wait for it (tko rollout status %[3]s), or confirm %[4]d to proceed (--confirm=%[4]d)",
		gate.ReachText(kind, adds), rows, id, total)
}

// usedByRollouts returns the number of rows of rollouts in progress whose deployments refer to
// templates or sites, and one of these rollouts.
func (s *Remover) usedByRollouts(ctx context.Context, keys []record.Key) (rows int, rollout string, err error) {
	if len(keys) == 0 || keys[0].Kind != tko.KindTemplate && keys[0].Kind != tko.KindSite {
		return 0, "", nil
	}
	active, err := s.holds.ActiveRollouts(ctx)
	if err != nil || len(active) == 0 {
		return 0, "", err
	}
	refer, err := s.referringTo(ctx, keys)
	if err != nil || len(refer) == 0 {
		return 0, "", err
	}
	for _, st := range active {
		for after := ""; ; {
			page, err := s.store.RolloutRows(ctx, st.ID, st.Plan, after, record.RowsPage)
			if err != nil {
				return 0, "", fmt.Errorf("read the rows of rollout %q: %w", st.ID, err)
			}
			for i := range page {
				row := &page[i]
				if row.Progress != execute.Skipped && row.Progress != execute.Superseded && refer[string(row.Deployment)] {
					rows, rollout = rows+1, st.ID
				}
			}
			if len(page) < record.RowsPage {
				break
			}
			after = string(page[len(page)-1].Deployment)
		}
	}
	return rows, rollout, nil
}

// referringTo returns the deployments that refer to templates or sites.
func (s *Remover) referringTo(ctx context.Context, keys []record.Key) (map[string]bool, error) {
	refer := map[string]bool{}
	for batch := range slices.Chunk(keys, record.SelectedPage) {
		records, err := s.store.Get(ctx, record.Fields{Deployments: true, Scope: access.ScopeAll}, batch...)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			for _, id := range r.Deployments {
				refer[id] = true
			}
		}
	}
	return refer, nil
}
