package spanner

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

// RolloutEvidence returns evidence of a rollout after a number.
func (s *Store) RolloutEvidence(ctx context.Context, id string, after int64, limit int) ([]tko.RolloutEvidence, error) {
	all, err := readDocs[tko.RolloutEvidence](ctx, s.client.Single(), spanner.Statement{
		SQL:    "SELECT e.doc FROM rollout_evidence AS e WHERE e.shard = @shard AND e.rollout = @rollout AND e.n > @after ORDER BY e.n LIMIT @most",
		Params: map[string]any{"shard": shardOf(id), "rollout": id, "after": after, "most": int64(limit)},
	})
	return all, fault("read the evidence of a rollout", err)
}

// ReservedOrigins returns the origins of deleted children that can be created again.
func (s *Store) ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error) {
	reserved := map[string]tko.RolloutID{}
	statement := spanner.Statement{
		SQL: "SELECT r." + strings.Join(rolloutRowColumns, ", r.") + ", h.doc " +
			"FROM rollout_row@{FORCE_INDEX=rollout_row_removed, spanner_emulator.disable_query_null_filtered_index_check=true} AS r JOIN rollout AS h ON h.id = r.rollout " +
			"WHERE r.removed_shard = @shard AND r.removed_from = @parent",
		Params: map[string]any{"shard": shardOf(string(parent)), "parent": string(parent)},
	}
	err := s.client.Single().Query(ctx, statement).Do(func(row *spanner.Row) error {
		var doc []byte
		r, err := scanRolloutRow(row, &doc)
		if err != nil {
			return err
		}
		var h record.RolloutState
		if err := json.Unmarshal(doc, &h); err != nil {
			return err
		}
		if r.Applied > 0 && r.Origin != "" && h.State != execute.Undone {
			reserved[r.Origin] = tko.RolloutID(h.ID)
		}
		return nil
	})
	return reserved, fault("read the reserved origins", err)
}

// ApartFlights returns the deployments in flight of rollouts that keep sites apart.
func (s *Store) ApartFlights(ctx context.Context) ([]execute.Entry, error) {
	entries, err := readDocs[execute.Entry](ctx, s.client.Single(), spanner.Statement{SQL: "SELECT doc FROM flight WHERE apart ORDER BY deployment"})
	return entries, fault("read the deployments in flight", err)
}

// RolloutStates returns the states of rollouts.
func (s *Store) RolloutStates(ctx context.Context, ids ...string) (states []record.RolloutState, version int64, now time.Time, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	if version, err = readState(ctx, snapshot, rolloutState); err != nil {
		return nil, 0, now, err
	}
	if now, err = readNow(ctx, snapshot); err != nil {
		return nil, 0, now, err
	}
	statement := spanner.Statement{SQL: "SELECT doc FROM rollout WHERE active ORDER BY id"}
	if len(ids) > 0 {
		statement = spanner.Statement{SQL: "SELECT doc FROM rollout WHERE id IN UNNEST(@ids) ORDER BY id", Params: map[string]any{"ids": ids}}
	}
	states, err = readDocs[record.RolloutState](ctx, snapshot, statement)
	return states, version, now, fault("read the states of rollouts", err)
}

// A rolloutHead is the state of a rollout, with the version of all of them.
type rolloutHead struct {
	version int64
	now     time.Time
	state   record.RolloutState
	found   bool
}

func readRollout(ctx context.Context, from reader, id string) (h rolloutHead, err error) {
	if h.version, err = readState(ctx, from, rolloutState); err != nil {
		return h, err
	}
	if h.now, err = readNow(ctx, from); err != nil {
		return h, err
	}
	row, err := from.ReadRow(ctx, "rollout", spanner.Key{id}, []string{"doc"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return h, nil
	}
	var doc []byte
	if err == nil {
		err = row.Column(0, &doc)
	}
	if err == nil {
		h.found, err = true, json.Unmarshal(doc, &h.state)
	}
	return h, fault("read a rollout", err)
}

func planOf(state *record.RolloutState) planKey { return planKey{state.ID, state.Plan} }

// countRows counts the rows of the current plan.
func countRows(ctx context.Context, from reader, state *record.RolloutState) (counts []record.RolloutCount, err error) {
	statement := spanner.Statement{
		SQL: "SELECT r.wave, r.kind, r.progress, r.counted, COUNT(*), MIN(r.since), MAX(r.since) FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s " +
			"JOIN rollout_row AS r ON r.shard = s WHERE r.rollout = @rollout AND r.plan = @plan GROUP BY r.wave, r.kind, r.progress, r.counted",
		Params: planOf(state).parameters(),
	}
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var c record.RolloutCount
		var wave, kind, rows, first, last int64
		var progress string
		err := row.Columns(&wave, &kind, &progress, &c.Counted, &rows, &first, &last)
		c.First, c.Last = timeOfMicros(first), timeOfMicros(last)
		c.Wave, c.Kind, c.Progress, c.Rows = int(wave), plan.Kind(kind), execute.Progress(progress), int(rows) //nolint:gosec // written as such
		counts = append(counts, c)
		return err
	})
	return counts, fault("count the rows of a rollout", err)
}

// RolloutSummary returns how far a rollout is.
func (s *Store) RolloutSummary(ctx context.Context, id string, examples int) (sum record.RolloutSummary, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	h, err := readRollout(ctx, snapshot, id)
	sum.Now, sum.State, sum.Found = h.now, h.state, h.found
	if err != nil || !h.found {
		return sum, err
	}
	if sum.Counts, err = countRows(ctx, snapshot, &h.state); err != nil {
		return sum, err
	}
	statement := spanner.Statement{
		SQL: selectRows + " AND (r.progress IN ('Failed', 'Stale', 'Superseded', 'Applied') OR r.kind IN UNNEST(@blocked)) " +
			"ORDER BY r.progress = 'Applied', r.wave, r.rank, r.deployment LIMIT @most",
		Params: planOf(&h.state).parameters(),
	}
	statement.Params["blocked"], statement.Params["most"] = decide.BlockedKinds, int64(examples)
	sum.Examples, err = readRolloutRows(ctx, snapshot, statement)
	return sum, err
}

// RolloutView returns what a rollout is evaluated from.
func (s *Store) RolloutView(ctx context.Context, id string, known record.RowsAt) (v record.RolloutView, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	v = record.RolloutView{Held: map[tko.DeploymentID]string{}, Unscheduled: map[string]bool{}}
	if err := readView(ctx, snapshot, id, &v); err != nil || !v.Found {
		return v, err
	}
	rows := spanner.Statement{SQL: selectRows + " ORDER BY r.wave, r.rank, r.deployment", Params: planOf(&v.State).parameters()}
	v.Changes = known.Set == v.State.Rows && known.Set > 0
	if v.Changes {
		rows.SQL, rows.Params["known"] = selectRows+" AND r.version > @known", known.Version
	}
	if v.Rows, err = readRolloutRows(ctx, snapshot, rows); err != nil {
		return v, err
	}
	if v.Flight, err = readDocs[execute.Entry](ctx, snapshot, spanner.Statement{SQL: "SELECT doc FROM flight ORDER BY deployment"}); err != nil {
		return v, fault("read the deployments in flight", err)
	}
	if err := readUnscheduled(ctx, snapshot, &v); err != nil {
		return v, err
	}
	return v, readHeld(ctx, snapshot, &v)
}

// readView reads the states that belong to a view.
func readView(ctx context.Context, from reader, id string, v *record.RolloutView) error {
	h, err := readRollout(ctx, from, id)
	v.Version, v.Now, v.State, v.Found = h.version, h.now, h.state, h.found
	if err != nil || !h.found {
		return err
	}
	v.Active, err = readDocs[record.RolloutState](ctx, from, spanner.Statement{
		SQL:    "SELECT doc FROM rollout WHERE active OR undoes = @id OR id = @undo ORDER BY id",
		Params: map[string]any{"id": h.state.ID, "undo": h.state.UndoneBy},
	})
	return fault("read the rollouts in progress", err)
}

// readUnscheduled finds the sites of deleted deployments in flight whose work of scheduling isn't done. An item that is due later,
// without a failure, only repeats the work.
func readUnscheduled(ctx context.Context, from reader, v *record.RolloutView) error {
	statement := spanner.Statement{
		SQL: "SELECT DISTINCT r.site FROM flight AS f JOIN rollout_row AS r ON r.shard = f.shard AND r.rollout = @rollout AND r.deployment = f.deployment AND r.plan = @plan " +
			"WHERE r.kind = @delete AND r.site != '' AND r.progress IN ('Applied', 'Soaking', 'Failed')",
		Params: planOf(&v.State).parameters(),
	}
	statement.Params["delete"] = int64(plan.Delete)
	var keys []itemKey
	err := from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var site string
		err := row.Column(0, &site)
		keys = append(keys, itemKey{tko.QueueSchedule, site})
		return err
	})
	if err != nil || len(keys) == 0 {
		return fault("read the sites of a rollout", err)
	}
	items, err := readItems(ctx, from, keys)
	if err != nil {
		return err
	}
	woken, err := readWoken(ctx, from, tko.QueueSchedule)
	for key, i := range items {
		if i.attempt > 0 || !i.dueAt(woken).After(v.Now) || i.leaseUntil.After(v.Now) {
			v.Unscheduled[key.key] = true
		}
	}
	return err
}

// readHeld reads the deployments of the plan that another active rollout holds.
func readHeld(ctx context.Context, from reader, v *record.RolloutView) error {
	holders := slices.DeleteFunc(slices.Clone(v.Active), func(h record.RolloutState) bool { return !h.Active() || !decide.Holds(&h, &v.State) })
	slices.SortStableFunc(holders, func(a, b record.RolloutState) int { return int(a.Started - b.Started) })
	for _, h := range holders { // the last one of several is the one in the view
		statement := spanner.Statement{
			SQL: "SELECT m.deployment FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s JOIN rollout_row AS m ON m.shard = s " +
				"JOIN rollout_row AS o ON o.shard = m.shard AND o.rollout = @holder AND o.deployment = m.deployment " +
				"WHERE m.rollout = @rollout AND m.plan = @plan AND m.kind IN UNNEST(@kinds) AND o.kind IN UNNEST(@kinds) AND o.progress IN UNNEST(@holding)",
			Params: planOf(&v.State).parameters(),
		}
		maps.Copy(statement.Params, map[string]any{"holder": h.ID, "kinds": decide.AppliedKinds, "holding": decide.HoldingProgress()})
		err := from.Query(ctx, statement).Do(func(row *spanner.Row) error {
			var id string
			err := row.Column(0, &id)
			v.Held[tko.DeploymentID(id)] = h.ID
			return err
		})
		if err != nil {
			return fault("read the rows of other rollouts", err)
		}
	}
	return nil
}

// RolloutCommandView returns what a command of a rollout is decided from.
func (s *Store) RolloutCommandView(ctx context.Context, id string, filter record.RowFilter) (v record.RolloutView, err error) {
	if err := decide.CheckTexts("deployment ID", string(filter.Deployment)); err != nil {
		return v, err
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	v = record.RolloutView{Held: map[tko.DeploymentID]string{}}
	if err := readView(ctx, snapshot, id, &v); err != nil || !v.Found {
		return v, err
	}
	if v.Counts, err = countRows(ctx, snapshot, &v.State); err != nil {
		return v, err
	}
	if filter.Stale || filter.Counted || filter.Blocked || filter.Deployment != "" {
		statement := spanner.Statement{
			SQL: selectRows + " AND (@stale AND r.progress = 'Stale' OR @counted AND r.counted OR @block AND r.kind IN UNNEST(@blocked) OR r.deployment = @deployment) " +
				"ORDER BY r.wave, r.rank, r.deployment",
			Params: planOf(&v.State).parameters(),
		}
		maps.Copy(statement.Params, map[string]any{
			"stale": filter.Stale, "counted": filter.Counted, "block": filter.Blocked, "blocked": decide.BlockedKinds, "deployment": string(filter.Deployment),
		})
		if v.Rows, err = readRolloutRows(ctx, snapshot, statement); err != nil {
			return v, err
		}
	}
	if filter.Held {
		err = readHeld(ctx, snapshot, &v)
	}
	return v, err
}

// RolloutRows returns rows of a plan.
func (s *Store) RolloutRows(ctx context.Context, id string, number int64, after string, limit int) ([]record.RolloutRow, error) {
	statement := spanner.Statement{SQL: selectRows + " AND r.deployment > @after ORDER BY r.deployment LIMIT @most", Params: planKey{id, number}.parameters()}
	statement.Params["after"], statement.Params["most"] = after, int64(limit)
	return readRolloutRows(ctx, s.client.Single(), statement)
}

// RolloutPlan returns the groups of a plan.
func (s *Store) RolloutPlan(ctx context.Context, id string, number int64) ([]byte, error) {
	groups := []byte{}
	err := s.client.Single().Read(ctx, "rollout_plan", spanner.Key{id, number}.AsPrefix(), []string{"data"}).Do(func(row *spanner.Row) error {
		var data []byte
		err := row.Column(0, &data)
		groups = append(groups, data...)
		return err
	})
	return groups, fault("read a plan", err)
}
