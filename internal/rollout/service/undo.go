package service

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/condition"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/rollout/spec"
	"github.com/tko-orchestrator/tko/krm"
)

// beginUndo commits that a rollout is undone from now on, and makes the rollout that
// undoes it.
func (s *RolloutRunner) beginUndo(ctx context.Context, r record.Record, v record.RolloutView, st record.RolloutState, skipped []execute.Row) error {
	by := rights.Author(ctx)
	st.Reason = execute.Reason{Code: "Undone", Message: "it is undone by " + by.Who}
	if by.Who == "" {
		st.Reason.Message = "it is undone"
	}
	v.State = st
	return s.undo(ctx, r, v, record.RolloutWrite{Rows: changedRows(v, skipped)})
}

// undo makes the rollout that undoes another one, and commits it together with a change of
// that one. v has the state and rows after the change.
func (s *RolloutRunner) undo(ctx context.Context, r record.Record, v record.RolloutView, change record.RolloutWrite) error {
	sp, err := s.specOf(ctx, r, v.State)
	if err != nil {
		return err
	}
	all, _ := executionRows(v)
	todo, left := execute.Undo(all, len(sp.Waves), v.State.Force)
	of := make(map[tko.DeploymentID]record.RolloutRow, len(v.Rows))
	for _, row := range v.Rows {
		of[row.Deployment] = row
	}
	var rows []record.RolloutRow
	conflict := func(e execute.Row, reason string) {
		was := of[e.Deployment]
		rows = append(rows, record.RolloutRow{
			Row:    plan.Row{Deployment: e.Deployment, UID: was.UID, Revision: was.Chain, Kind: plan.Conflict, Wave: plan.NoWave, Findings: []string{reason}},
			Parent: was.Parent, Site: was.Site, Progress: execute.Skipped, Reason: reason,
		})
	}
	for _, e := range left {
		conflict(e, e.Reason)
	}
	for batch := range slices.Chunk(todo, record.RowsPage) {
		keys := record.Keys(batch, func(e execute.Row) record.Key { return record.DeploymentKey(e.Deployment) })
		records, err := s.store.Get(ctx, record.Fields{}, keys...)
		if err != nil {
			return err
		}
		moves := make([]move, len(batch))
		for i, e := range batch {
			moves[i] = move{records[i], of[e.Deployment].Chain}
		}
		known, err := s.moved(ctx, moves)
		if err != nil {
			return err
		}
		for i, e := range batch {
			row, reason, err := s.undoRow(ctx, of[e.Deployment], e, records[i], v.State.Force, known)
			if err != nil {
				return err
			}
			if reason != "" {
				conflict(e, reason)
				continue
			}
			rows = append(rows, row)
		}
	}
	pkg, err := record.PackageOf(r)
	if err != nil {
		return err
	}
	id, err := s.undoID(ctx, v.State)
	if err != nil {
		return err
	}
	if pkg, err = undoPackage(id, pkg, v.State.ID); err != nil {
		return err
	}
	rec, err := s.unparsedRollout(ctx, tko.Rollout{ID: tko.RolloutID(id), Package: pkg})
	if err != nil {
		return err
	}
	rec.UID, rec.Author = record.NewUID(), rights.Author(ctx)
	if rec.Author.Why == "" {
		rec.Author.Why = fmt.Sprintf("undoes rollout %q", v.State.ID)
	}
	slices.SortFunc(rows, func(a, b record.RolloutRow) int { return strings.Compare(string(a.Deployment), string(b.Deployment)) })
	kinds := map[string]int{}
	for i := range rows {
		kinds[rows[i].Kind.String()]++
	}
	if err := s.store.WriteRolloutPlan(ctx, id, 1, rows, []byte("[]")); err != nil {
		return err
	}
	st := v.State
	st.UndoneBy = id
	undoing := record.RolloutState{
		ID: id, State: execute.Running, Family: st.Family, Undoes: st.ID, Started: st.Started, Time: v.Now, By: rights.Author(ctx), Plan: 1, Digest: digestOfRows(rec.Digest, 0, rows),
		Spec: 1, Kinds: kinds, AnyTime: st.AnyTime, Rows: v.Version + 1, Rule: st.Rule, Blind: st.Blind,
	}
	if undoing.By.Who == "" {
		undoing.By.Who = st.By.Who
	}
	rec.Conditions = condition.Merge(nil, conditionsOfRollout(undoing), 1, v.Now)
	change.States, change.Wake = append(change.States, undoing), append(change.Wake, id, st.ID)
	return s.saveRollout(ctx, r, v, st, change,
		record.Write{Op: tko.OpWritten, Record: rec, Expect: record.Absent})
}

// undoID returns an ID for the rollout that undoes another one.
func (s *RolloutRunner) undoID(ctx context.Context, st record.RolloutState) (string, error) {
	base := st.ID
	if len(base) > tko.MaxIDLength-20 {
		base = base[:tko.MaxIDLength-20]
	}
	for n := 1; ; n++ {
		id := base + "-undo"
		if n > 1 {
			id = fmt.Sprintf("%s-undo-%d", base, n)
		}
		id = strings.TrimSuffix(id, "/")
		r, err := s.reader.One(ctx, record.Fields{}, record.Key{Kind: tko.KindRollout, ID: id})
		if err != nil || r.Revision == 0 {
			return id, err
		}
	}
}

// undoRow returns the row that undoes another one; or why that must be left as it is.
func (s *RolloutRunner) undoRow(ctx context.Context, was record.RolloutRow, e execute.Row, now record.Record, force bool, known record.Revisions) (row record.RolloutRow, reason string, err error) {
	row = record.RolloutRow{
		Row:    plan.Row{Deployment: was.Deployment, UID: was.UID, Kind: e.Kind, Wave: e.Wave, Rank: e.Rank, Before: was.After, After: was.Before},
		Parent: was.Parent, Site: was.Site, Progress: execute.Waiting, Broken: e.Broken,
		RowDetails: record.RowDetails{Base: was.Base, Replaces: was.Replaces, Force: force},
	}
	if was.Kind != plan.Create {
		row.Target = was.Revision
	}
	switch {
	case was.Kind == plan.Delete:
		if now.Revision != 0 && !force {
			return row, "it was created again since", nil
		}
		row.UID = ""
		return row, "", nil
	case now.Revision == 0 && was.Kind == plan.Create:
		return row, "it was deleted since", nil
	case now.Revision == 0 && !force:
		return row, "it was deleted since", nil
	case now.Revision == 0:
		return row, "", nil
	}
	chain, by, err := s.follow(ctx, now, was.Chain, known)
	if err != nil {
		return row, "", err
	}
	row.Revision = chain
	if chain != now.Revision && !force {
		return row, fmt.Sprintf("it was changed by %q since (revision %d)", by.Who, chain+1), nil
	}
	return row, "", nil
}

// undoPackage returns the package of the rollout that undoes another one: its waves in
// reverse order without approvals, and its limits, health and windows.
func undoPackage(id string, of krm.Package, undoes string) (krm.Package, error) {
	for _, r := range of {
		if r.GVK() != spec.GVK {
			continue
		}
		was, _ := r["spec"].(map[string]any)
		next := map[string]any{"undoes": undoes}
		for _, key := range []string{"limits", "health", "windows"} {
			if v, ok := was[key]; ok {
				next[key] = v
			}
		}
		if health, ok := was["health"].(map[string]any); ok {
			health = maps.Clone(health)
			delete(health, "metrics") // an undo doesn't wait for them
			next["health"] = health
		}
		parsed, err := spec.Parse(of)
		if err != nil {
			return nil, err
		}
		var waves []any
		for _, w := range execute.UndoSpec(parsed).Waves {
			wave := map[string]any{"name": w.Name}
			if w.Count > 0 {
				wave["count"] = int64(w.Count)
			}
			if w.Percent > 0 {
				wave["percent"] = w.Percent
			}
			waves = append(waves, wave)
		}
		next["waves"] = waves
		if on, ok := was["onFailure"]; ok && on == string(spec.Continue) {
			next["onFailure"] = on
		}
		return krm.Package{{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": strings.ReplaceAll(id, "/", "-")}, "spec": next}}, nil
	}
	return nil, tko.Errorf(tko.ErrInvalid, "the package has no Rollout resource")
}
