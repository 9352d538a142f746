package service

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/history"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	threeway "github.com/tko-orchestrator/tko/internal/rollout/merge"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
)

// RolloutPlans makes the plans of rollouts.
type RolloutPlans struct {
	*rolloutStore

	moments *history.Moments
	planner plan.Planner
}

// PlanWith sets what makes plans of rollouts. It is called once, before the first
// rollout is advanced.
func (s *RolloutPlans) PlanWith(p plan.Planner) { s.planner = p }

// A draftPlan is a plan that is being made: its rows without packages.
type draftPlan struct {
	rows []record.RolloutRow         // sorted by ID in the end
	keys map[tko.DeploymentID]string // of candidates for waves, where it isn't the ID

	checker *plan.Checker
	stager  *plan.Stager // nil: nothing is staged
}

// key returns the key of a row among the candidates for waves.
func (p *draftPlan) key(row *record.RolloutRow) string {
	if key, ok := p.keys[row.Deployment]; ok {
		return key
	}
	return string(row.Deployment)
}

// digestOfRows returns the digest of a plan. The rows must be sorted by ID.
func digestOfRows(rollout record.Digest, algorithm int, rows []record.RolloutRow) plan.Digest {
	return plan.DigestOf(plan.Digest(rollout), algorithm, len(rows), func(yield func(*plan.Row) bool) {
		for i := range rows {
			if !yield(&rows[i].Row) {
				return
			}
		}
	})
}

// makePlan plans a rollout, or what is left of it, and writes the plan.
func (s *RolloutPlans) makePlan(ctx context.Context, r record.Record, v record.RolloutView) error {
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
	as, err := s.rights.AsOwner(ctx, r) // the owner sees what the plan may change
	if err != nil {
		return err
	}
	p, groups, err := s.planRows(as, sp, v, left)
	if err != nil {
		return err
	}
	rows := p.rows
	if !left {
		if err := s.placeRows(ctx, sp, p); err != nil {
			return err
		}
	}
	kinds := map[string]int{}
	for i := range rows {
		kinds[rows[i].Kind.String()]++
		p.checker.Placed(tko.SiteID(rows[i].Site), rows[i].Wave)
	}
	var gone []tko.DeploymentID
	if !left {
		gone = vanished(v.Rows, rows)
	}
	st.Warnings, st.Unreported, st.Images = p.checker.Warnings(v.Now, gone), p.checker.Unreported(), nil
	if p.stager != nil {
		st.Images, _ = p.stager.Images()
		st.Warnings = append(st.Warnings, p.stager.Warnings()...)
	}
	if len(rows) > 0 { // the rollout itself is needed as it was planned
		rows[0].Pins = append(slices.Clip(rows[0].Pins), plan.Pin{Kind: tko.KindRollout, ID: r.ID, Revision: st.Spec})
	}
	digest := digestOfRows(r.Digest, threeway.Version, rows)
	doc, err := json.Marshal(groups)
	if err != nil {
		return err
	}
	if err := s.store.WriteRolloutPlan(ctx, st.ID, number, rows, doc); err != nil {
		return err
	}
	if left {
		st.Next, st.Left = number, digest
		st.Reason = execute.Reason{Code: "PlannedAgain", Message: "what is left was planned again: review the plan, then resume with its digest"}
	} else {
		st.State, st.Reason, st.Plan, st.Digest, st.Kinds, st.Planner = execute.Planned, execute.Reason{}, number, digest, kinds, threeway.Version
	}
	return s.saveRollout(ctx, r, v, st, record.RolloutWrite{})
}

// failPlan says why a rollout can't be planned, until it is changed or planned again.
func (s *RolloutPlans) failPlan(ctx context.Context, r record.Record, v record.RolloutView, cause error) error {
	st := v.State
	if st.State == execute.Paused {
		st.Next, st.Left = 0, plan.Digest{}
	} else {
		st.State, st.Spec = execute.Draft, r.Revision
	}
	st.Reason = execute.Reason{Code: "NotPlanned", Message: "it can't be planned: " + cause.Error()}
	return s.saveRollout(ctx, r, v, st, record.RolloutWrite{})
}

// holdPlan says why the rights of the owner of a rollout keep it from being planned. It is
// planned when they come back.
func (s *RolloutPlans) holdPlan(ctx context.Context, r record.Record, v record.RolloutView, cause error) error {
	st := v.State
	st.Reason = execute.Reason{Code: "Held", Message: "it is not planned yet: " + cause.Error()}
	if st.Reason == v.State.Reason {
		return nil
	}
	return s.saveRollout(ctx, r, v, st, record.RolloutWrite{})
}

// planRows makes the rows of a plan, in the order of IDs, and the groups of equal
// changes.
func (s *RolloutPlans) planRows(ctx context.Context, sp spec.Rollout, v record.RolloutView, left bool) (*draftPlan, []plan.Group, error) {
	types, err := threeway.Kubernetes()
	if err != nil {
		return nil, nil, err
	}
	grouper := plan.NewGrouper(types, threeway.NewMask())
	request := plan.Request{Rollout: v.State.ID, Spec: sp}
	before := map[tko.DeploymentID]record.RolloutRow{}
	if left {
		for _, row := range v.Rows {
			if row.Progress == execute.Waiting && row.Kind.Applies() || row.Progress == execute.Stale {
				before[row.Deployment] = row
			}
		}
		request.Only = func(id tko.DeploymentID) bool { _, ok := before[id]; return ok }
	}
	out := &draftPlan{keys: map[tko.DeploymentID]string{}}
	add := func(d plan.Draft) error {
		row := record.RolloutRow{Row: d.Row, Parent: string(d.Parent), Site: string(d.Site), Broken: d.Broken, Progress: execute.Waiting}
		row.Wave, row.Pins, row.Images = plan.NoWave, d.Pins, d.Images
		if d.Key != string(d.Deployment) {
			out.keys[d.Deployment] = d.Key
		}
		if left {
			row.Wave, row.Rank = before[d.Deployment].Wave, before[d.Deployment].Rank
		}
		if !d.Kind.Applies() {
			row.Progress, row.Wave, row.Rank = execute.Skipped, plan.NoWave, 0
		}
		was, is := DraftPackages(d)
		tokens := map[string]string{string(d.Deployment): "{deployment}"}
		if d.BeforeState != nil {
			row.Base = d.BeforeState.Deployment.TemplateRevision
			for _, id := range d.BeforeState.Deployment.Replaces {
				row.Replaces = append(row.Replaces, string(id))
			}
		}
		if to := d.Restored; to != nil {
			row.Target, row.Base, row.Replaces, row.Approves = to.Revision, to.Base, nil, to.Approves
		}
		if d.Kind == plan.Delete && d.BeforeState != nil {
			row.Origin = d.BeforeState.Deployment.Origin
		}
		for token, to := range map[string]string{string(d.Site): "{site}", string(d.Parent): "{parent}"} {
			if token != "" {
				tokens[token] = to
			}
		}
		if d.Kind != plan.Same {
			row.Group = grouper.Add(d.Row, was, is, tokens) + 1 // until the groups are known
		}
		out.rows = append(out.rows, row)
		return nil
	}
	out.checker = plan.NewChecker(sp)
	if sp.Stage != nil {
		out.stager = plan.NewStager()
	}
	sites := siteCheck{store: s.store, checker: out.checker, stager: out.stager, now: v.Now, next: add, findings: map[tko.SiteID]string{}, hinders: map[tko.SiteID]string{}}
	if err = s.drafts(ctx, request, func(d plan.Draft) error { return sites.add(ctx, d) }); err == nil {
		err = sites.flush(ctx)
	}
	if err == nil && !left { // what is left may be at the sites without a key
		err = out.checker.Check()
	}
	if err != nil {
		return nil, nil, err
	}
	groups, index := grouper.Finish()
	for i := range out.rows {
		if row := &out.rows[i]; row.Kind != plan.Same {
			row.Group = index[row.Group-1]
		}
	}
	slices.SortFunc(out.rows, func(a, b record.RolloutRow) int { return cmp.Compare(a.Deployment, b.Deployment) })
	return out, groups, nil
}

// drafts makes the drafts of a plan.
func (s *RolloutPlans) drafts(ctx context.Context, request plan.Request, emit func(plan.Draft) error) error {
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
func (s *RolloutPlans) placeRows(ctx context.Context, sp spec.Rollout, p *draftPlan) error {
	rows := p.rows
	applied := map[tko.DeploymentID]int{}
	var sites []string
	for i := range rows {
		if rows[i].Kind.Applies() {
			applied[rows[i].Deployment] = i
			sites = append(sites, rows[i].Site)
		}
	}
	metadata, err := s.spreadValues(ctx, sp.Waves, sites)
	if err != nil {
		return err
	}
	leader := func(i int) int {
		if at, ok := applied[rows[i].Root]; ok && rows[i].Root != "" {
			return at
		}
		return i
	}
	var candidates []plan.Candidate
	var of []int
	for i := range rows {
		if rows[i].Kind.Applies() && leader(i) == i {
			candidates = append(candidates, plan.Candidate{Key: p.key(&rows[i]), Site: metadata[rows[i].Site]})
			of = append(of, i)
		}
	}
	places := map[int]plan.Place{}
	for n, p := range plan.Assign(sp.Waves, candidates) {
		places[of[n]] = p
	}
	depth := func(i int) int {
		n := 0
		if rows[i].Kind == plan.Create && rows[leader(i)].Kind == plan.Delete {
			n = rights.MaxAncestors // it takes the place of what is deleted
		}
		for at, ok := i, true; ok && n < 2*rights.MaxAncestors; n++ {
			at, ok = applied[tko.DeploymentID(rows[at].Parent)]
		}
		return n
	}
	var order []int
	for i := range rows {
		if rows[i].Kind.Applies() {
			order = append(order, i)
		}
	}
	slices.SortFunc(order, func(a, b int) int {
		pa, pb := places[leader(a)], places[leader(b)]
		da, db := depth(a), depth(b)
		if rows[a].Kind == plan.Delete && rows[b].Kind == plan.Delete {
			da, db = db, da
		}
		return cmp.Or(cmp.Compare(pa.Wave, pb.Wave), cmp.Compare(pa.Rank, pb.Rank), cmp.Compare(da, db), cmp.Compare(rows[a].Deployment, rows[b].Deployment))
	})
	for rank, i := range order {
		rows[i].Wave, rows[i].Rank = places[leader(i)].Wave, rank
	}
	return nil
}

// spreadValues returns the metadata of sites under the keys that waves are spread by; only
// these, since there may be very many sites.
func (s *RolloutPlans) spreadValues(ctx context.Context, waves []spec.Wave, sites []string) (map[string]map[string]string, error) {
	out := map[string]map[string]string{}
	if !slices.ContainsFunc(waves, func(w spec.Wave) bool { return w.Spread != "" }) {
		return out, nil
	}
	slices.Sort(sites)
	for batch := range slices.Chunk(slices.Compact(sites), record.RowsPage) {
		metadata, err := s.reader.MetadataOf(ctx, tko.KindSite, batch)
		if err != nil {
			return nil, err
		}
		for id, all := range metadata {
			values := map[string]string{}
			for _, w := range waves {
				if value, ok := all[w.Spread]; ok && w.Spread != "" {
					values[w.Spread] = value
				}
			}
			out[id] = values
		}
	}
	return out, nil
}

// siteBatch is the number of drafts whose sites are read at once. Drafts have packages.
const siteBatch = 100

// A siteCheck examines the sites of drafts: drafts become invalid at sites that lack what the
// rollout requires, or whose metadata names no time zone although a window of the rollout
// depends on it. It passes drafts on in their order.
type siteCheck struct {
	store   record.Store
	checker *plan.Checker
	stager  *plan.Stager // nil: nothing is staged
	now     time.Time
	next    func(plan.Draft) error

	pending  []plan.Draft
	findings map[tko.SiteID]string // of sites where something is wrong
	hinders  map[tko.SiteID]string // why nothing can be staged at a site; "": it can
}

func (c *siteCheck) add(ctx context.Context, d plan.Draft) error {
	c.pending = append(c.pending, d)
	if len(c.pending) < siteBatch {
		return nil
	}
	return c.flush(ctx)
}

// flush passes on the drafts that are left.
func (c *siteCheck) flush(ctx context.Context) error {
	if err := c.read(ctx); err != nil {
		return err
	}
	for _, d := range c.pending {
		finding := c.findings[d.Site]
		if finding == "" && d.Kind.Applies() && c.stager != nil {
			hinders, known := c.hinders[d.Site]
			if !known && d.Site != "" {
				hinders = "the sites don't exist"
			}
			d.Images, finding = c.stager.Row(d, place.Kubernetes.Takes, hinders)
		}
		if finding != "" && d.Kind.Applies() {
			d.Kind, d.After, d.AfterState, d.Unknown, d.Findings = plan.Invalid, plan.Digest{}, nil, nil, []string{finding}
		}
		if d.Kind.Applies() {
			c.checker.Row(d)
		}
		if err := c.next(d); err != nil {
			return err
		}
	}
	c.pending = c.pending[:0]
	return nil
}

// read gives the checker the sites of the pending drafts.
func (c *siteCheck) read(ctx context.Context) error {
	var ids []string
	for _, d := range c.pending {
		if d.Site != "" && !c.checker.Knows(d.Site) && !slices.Contains(ids, string(d.Site)) {
			ids = append(ids, string(d.Site))
		}
	}
	if len(ids) == 0 {
		return nil
	}
	records, err := c.store.Get(ctx, record.Fields{Package: c.stager != nil}, record.Keys(ids, func(id string) record.Key { return record.Key{Kind: tko.KindSite, ID: id} })...)
	if err != nil {
		return err
	}
	for i, id := range ids {
		if records[i].Revision == 0 {
			continue // it was deleted
		}
		_, away := tko.AgentAway(tko.SiteID(id), records[i].Conditions, c.now)
		if finding := c.checker.Site(tko.SiteID(id), plan.Site{Metadata: records[i].Effective(), Unreported: tko.ReportsNoHealth(records[i].Conditions), Away: away}); finding != "" {
			c.findings[tko.SiteID(id)] = finding
		}
		if c.stager != nil {
			pkg, err := record.PackageOf(records[i])
			if err != nil {
				return err
			}
			c.hinders[tko.SiteID(id)] = place.HindersStaging(pkg)
		}
	}
	return nil
}

// vanished returns the deployments that the former plan changes, and that rows, which are
// sorted by ID, don't have.
func vanished(former, rows []record.RolloutRow) []tko.DeploymentID {
	var gone []tko.DeploymentID
	for _, row := range former {
		if !row.Kind.Applies() || row.Kind == plan.Create {
			continue
		}
		_, found := slices.BinarySearchFunc(rows, row.Deployment, func(r record.RolloutRow, id tko.DeploymentID) int { return cmp.Compare(r.Deployment, id) })
		if !found {
			gone = append(gone, row.Deployment)
		}
	}
	slices.Sort(gone)
	return gone
}
