package catalog

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	threeway "github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// PlanWith sets what makes plans of rollouts. It is called once, before the first
// rollout is advanced.
func (s *Service) PlanWith(p plan.Planner) { s.planner = p }

// planned is a draft of a plan without its packages.
type planned struct {
	row   RolloutRow
	key   string
	group int
}

// makePlan plans a rollout, or what is left of it, and writes the plan.
func (s *Service) makePlan(ctx context.Context, r Record, v RolloutView) error {
	st := v.State
	left := st.State == execute.Paused
	if !left {
		st.Spec, st.Approvals, st.Acknowledged = r.Revision, nil, nil
	}
	sp, err := s.specOf(ctx, r, st)
	if err != nil {
		return err
	}
	number := st.Plan + 1
	rows, groups, err := s.planRows(ctx, sp, v, left)
	if err != nil {
		return err
	}
	if !left {
		if err := s.placeRows(ctx, sp, rows); err != nil {
			return err
		}
	}
	p := plan.Plan{Rollout: plan.Digest(r.Digest), Algorithm: threeway.Version}
	out, kinds := make([]RolloutRow, len(rows)), map[string]int{}
	for i, one := range rows {
		out[i] = one.row
		p.Rows = append(p.Rows, one.row.Row)
		kinds[one.row.Kind.String()]++
	}
	if len(out) > 0 { // the rollout itself is needed as it was planned
		out[0].Pins = append(out[0].Pins, plan.Pin{Kind: tko.KindRollout, ID: r.ID, Revision: st.Spec})
	}
	p.Sort()
	doc, err := json.Marshal(groups)
	if err != nil {
		return err
	}
	if err := s.store.WriteRolloutPlan(ctx, st.ID, number, out, doc); err != nil {
		return err
	}
	if left {
		st.Next, st.Left = number, p.Digest()
		st.Reason = execute.Reason{Code: "PlannedAgain", Message: "what is left was planned again: review the plan, then resume with its digest"}
	} else {
		st.State, st.Reason, st.Plan, st.Digest, st.Kinds, st.Planner = execute.Planned, execute.Reason{}, number, p.Digest(), kinds, threeway.Version
	}
	return s.saveRollout(ctx, r, v, st, RolloutWrite{})
}

// failPlan says why a rollout can't be planned, until it is changed or planned again.
func (s *Service) failPlan(ctx context.Context, r Record, v RolloutView, cause error) error {
	st := v.State
	if st.State == execute.Paused {
		st.Next, st.Left = 0, plan.Digest{}
	} else {
		st.State, st.Spec = execute.Draft, r.Revision
	}
	st.Reason = execute.Reason{Code: "NotPlanned", Message: "it can't be planned: " + cause.Error()}
	return s.saveRollout(ctx, r, v, st, RolloutWrite{})
}

// planRows makes the rows of a plan, in the order of IDs, and the groups of equal
// changes.
func (s *Service) planRows(ctx context.Context, sp spec.Rollout, v RolloutView, left bool) ([]planned, []plan.Group, error) {
	types, err := threeway.Kubernetes()
	if err != nil {
		return nil, nil, err
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		return nil, nil, err
	}
	grouper := plan.NewGrouper(types, key)
	request := plan.Request{Rollout: v.State.ID, Spec: sp}
	before := map[tko.DeploymentID]RolloutRow{}
	if left {
		for _, row := range v.Rows {
			if row.Progress == execute.Waiting && row.Kind.Applies() || row.Progress == execute.Stale {
				before[row.Deployment] = row
			}
		}
		request.Only = func(id tko.DeploymentID) bool { _, ok := before[id]; return ok }
	}
	var rows []planned
	err = s.drafts(ctx, request, func(d plan.Draft) error {
		one := planned{key: d.Key, row: RolloutRow{Row: d.Row, Parent: string(d.Parent), Site: string(d.Site), Broken: d.Broken, Progress: execute.Waiting}}
		one.row.Wave, one.row.Pins = plan.NoWave, d.Pins
		if left {
			one.row.Wave, one.row.Rank = before[d.Deployment].Wave, before[d.Deployment].Rank
		}
		if !d.Kind.Applies() {
			one.row.Progress, one.row.Wave, one.row.Rank = execute.Skipped, plan.NoWave, 0
		}
		var b, a krm.Package
		tokens := map[string]string{string(d.Deployment): "{deployment}"}
		if d.BeforeState != nil {
			b = d.BeforeState.Deployment.Package
			one.row.Base = d.BeforeState.Deployment.TemplateRevision
			for _, id := range d.BeforeState.Deployment.Replaces {
				one.row.Replaces = append(one.row.Replaces, string(id))
			}
		}
		if to := d.Restored; to != nil {
			one.row.Target, one.row.Base, one.row.Replaces, one.row.Approves = to.Revision, to.Base, nil, to.Approves
		}
		if d.Kind == plan.Delete && d.BeforeState != nil {
			one.row.Origin = d.BeforeState.Deployment.Origin
		}
		if d.AfterState != nil {
			a = d.AfterState.Deployment.Package
		}
		for token, to := range map[string]string{string(d.Site): "{site}", string(d.Parent): "{parent}"} {
			if token != "" {
				tokens[token] = to
			}
		}
		if d.Kind != plan.Same {
			one.group = grouper.Add(d.Row, b, a, tokens) + 1
		}
		rows = append(rows, one)
		return nil
	})
	if err != nil {
		return nil, nil, err
	}
	groups, index := grouper.Finish()
	for i := range rows {
		if rows[i].group > 0 {
			rows[i].row.Group = index[rows[i].group-1]
		}
	}
	slices.SortFunc(rows, func(a, b planned) int { return cmp.Compare(a.row.Deployment, b.row.Deployment) })
	return rows, groups, nil
}

// drafts makes the drafts of a plan.
func (s *Service) drafts(ctx context.Context, request plan.Request, emit func(plan.Draft) error) error {
	switch {
	case request.Spec.Restore != nil:
		return s.restoreDrafts(ctx, request, emit)
	case s.planner == nil:
		return errors.New("this server has no planner")
	}
	return s.planner.Plan(ctx, request, emit)
}

// placeRows assigns waves and ranks. What is created or deleted with another deployment
// is in its wave: parents are created before their children, and deleted after them.
func (s *Service) placeRows(ctx context.Context, sp spec.Rollout, rows []planned) error {
	applied := map[tko.DeploymentID]int{}
	var sites []string
	for i, one := range rows {
		if one.row.Kind.Applies() {
			applied[one.row.Deployment] = i
			sites = append(sites, one.row.Site)
		}
	}
	metadata, err := s.siteMetadata(ctx, sites)
	if err != nil {
		return err
	}
	leader := func(i int) int {
		if at, ok := applied[rows[i].row.Root]; ok && rows[i].row.Root != "" {
			return at
		}
		return i
	}
	var candidates []plan.Candidate
	var of []int
	for i, one := range rows {
		if one.row.Kind.Applies() && leader(i) == i {
			candidates = append(candidates, plan.Candidate{Key: one.key, Site: metadata[one.row.Site]})
			of = append(of, i)
		}
	}
	places := map[int]plan.Place{}
	for n, p := range plan.Assign(sp.Waves, candidates) {
		places[of[n]] = p
	}
	depth := func(i int) int {
		n := 0
		if rows[i].row.Kind == plan.Create && rows[leader(i)].row.Kind == plan.Delete {
			n = maxAncestors // it takes the place of what is deleted
		}
		for at, ok := i, true; ok && n < 2*maxAncestors; n++ {
			at, ok = applied[tko.DeploymentID(rows[at].row.Parent)]
		}
		return n
	}
	var order []int
	for i, one := range rows {
		if one.row.Kind.Applies() {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		pa, pb := places[leader(a)], places[leader(b)]
		da, db := depth(a), depth(b)
		if rows[a].row.Kind == plan.Delete && rows[b].row.Kind == plan.Delete {
			da, db = db, da
		}
		return cmp.Or(cmp.Compare(pa.Wave, pb.Wave), cmp.Compare(pa.Rank, pb.Rank), cmp.Compare(da, db), cmp.Compare(rows[a].row.Deployment, rows[b].row.Deployment))
	})
	for rank, i := range order {
		rows[i].row.Wave, rows[i].row.Rank = places[leader(i)].Wave, rank
	}
	return nil
}

// siteMetadata returns the metadata of sites by ID.
func (s *Service) siteMetadata(ctx context.Context, sites []string) (map[string]map[string]string, error) {
	slices.Sort(sites)
	sites = slices.Compact(sites)
	out := make(map[string]map[string]string, len(sites))
	for batch := range slices.Chunk(sites, rowsPage) {
		keys := make([]Key, 0, len(batch))
		for _, id := range batch {
			if id != "" {
				keys = append(keys, Key{Kind: tko.KindSite, ID: id})
			}
		}
		if len(keys) == 0 {
			continue
		}
		records, err := s.store.Get(ctx, Fields{}, keys...)
		if err != nil {
			return nil, err
		}
		for _, r := range records {
			out[r.ID] = r.effective()
		}
	}
	return out, nil
}
