package relational

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/printable"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	fleetplan "github.com/tko-orchestrator/tko/internal/rollout/plan"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/form"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// A rolloutChange is a decided [record.RolloutWrite].
type rolloutChange struct {
	*record.RolloutWrite

	rows    []record.RolloutRow // with the revisions that were applied
	version int64               // that the change makes
}

// decideRollout adds the change of rollouts that belongs to a write.
func (g *group) decideRollout(w *record.Write) {
	if w.Rollout == nil {
		return
	}
	before, count := g.head.rollouts, len(g.rollouts)
	g.undo = append(g.undo, func() { g.head.rollouts, g.rollouts = before, g.rollouts[:count] })
	g.head.rollouts++
	c := rolloutChange{w.Rollout, nil, g.head.rollouts}
	c.rows = decide.RolloutRows(w.Rollout, func(id tko.DeploymentID) *record.Record {
		if now := g.state[record.Key{Kind: tko.KindDeployment, ID: string(id)}]; now != nil {
			return &now.Record
		}
		return nil
	})
	g.rollouts = append(g.rollouts, c)
}

var rolloutRowColumns = []Column{
	Text.As("rollout"),
	Int.As("plan"),
	Text.As("deployment"),
	Text.As("uid"),
	Int.As("revision"),
	Int.As("kind"),
	Int.As("wave"),
	Int.As("rank"),
	Bytes.As("before"),
	Bytes.As("after"),
	Int.As("grp"),
	Text.As("parent"),
	Text.As("site"),
	Text.As("progress"),
	Int.As("since"),
	Int.As("evaluated"),
	Int.As("credit"),
	Bool.As("counted"),
	Bool.As("broken"),
	Text.As("reason"),
	Int.As("applied"),
	Int.As("chain"),
	Int.As("target"),
	Text.As("doc"),
	Int.As("version"),
}

// rolloutRowNames are the columns that scanRolloutRow reads.
var rolloutRowNames = sqldb.Names(rolloutRowColumns[2:len(rolloutRowColumns)-1], "")

func rolloutRowValues(id string, number, version int64, r record.RolloutRow) ([]any, error) {
	doc, err := form.RolloutRowDoc(&r)
	if err != nil {
		return nil, err
	}
	return []any{
		id, number, string(r.Deployment), r.UID, r.Revision, int64(r.Kind), int64(r.Wave), int64(r.Rank),
		digestValue(record.Digest(r.Before)), digestValue(record.Digest(r.After)), int64(r.Group), r.Parent, r.Site, string(r.Progress), microsOrZero(r.Since), microsOrZero(r.Evaluated),
		int64(r.Credit), r.Counted, r.Broken, printable.Storable(r.Reason), r.Applied, r.Chain, r.Target, doc, version,
	}, nil
}

func microsOrZero(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return micros(t)
}

func momentOrZero(m int64) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return moment(m)
}

// scanRolloutRow reads the columns from deployment on.
func scanRolloutRow(from Row) (record.RolloutRow, error) {
	var r record.RolloutRow
	var id, progress, doc string
	var kind, wave, rank, group, since, evaluated, credit int64
	var before, after digest
	err := from.Scan(&id, &r.UID, &r.Revision, &kind, &wave, &rank, &before, &after, &group, &r.Parent, &r.Site, &progress, &since, &evaluated,
		&credit, &r.Counted, &r.Broken, &r.Reason, &r.Applied, &r.Chain, &r.Target, &doc)
	if err != nil {
		return r, err
	}
	r.Deployment, r.Kind, r.Wave, r.Rank = tko.DeploymentID(id), fleetplan.Kind(kind), int(wave), int(rank) //nolint:gosec // written as such
	r.Before, r.After, r.Group, r.Progress = fleetplan.Digest(before), fleetplan.Digest(after), int(group), execute.Progress(progress)
	r.Since, r.Evaluated, r.Credit = momentOrZero(since), momentOrZero(evaluated), time.Duration(credit)
	return r, form.ReadRolloutRowDoc(doc, &r)
}

var (
	putRolloutRows = sqldb.Upsert("rollout_row", 3, rolloutRowColumns...)
	putEvidence    = sqldb.Upsert("rollout_evidence", 2, Text.As("rollout"), Int.As("n"), Text.As("doc"))
	putRollouts    = sqldb.Upsert("rollout", 1, Text.As("id"), Bool.As("active"), Text.As("undoes"), Int.As("started"), Text.As("doc"))
	putFlights     = sqldb.Upsert("flight", 1, Text.As("deployment"), Text.As("rollout"), Text.As("site"), Text.As("doc"), Bool.As("apart"))
	deleteFlights  = sqldb.Delete("flight", Text.As("deployment"))
)

// rolloutStatements write the changes of rollouts, and enqueue the rollouts whose
// deployments in flight have changed.
func (g *group) rolloutStatements() ([]Statement, error) {
	var statements []Statement
	for _, c := range g.rollouts {
		if c.Replan != 0 {
			statements = append(statements,
				Statement{SQL: "DELETE FROM rollout_row WHERE rollout = $1 AND plan = $2 AND progress IN ('Waiting', 'Stale')", Args: []any{c.Rollout, c.Number}},
				Statement{SQL: "UPDATE rollout_row SET plan = $2 WHERE rollout = $1 AND plan = $3", Args: []any{c.Rollout, c.Number, c.Replan}},
			)
		}
		states := putRollouts
		for _, s := range c.States {
			if s.State == execute.Undone {
				statements = append(statements, g.releaseOrigins(s.ID))
			}
			doc, err := json.Marshal(s)
			if err != nil {
				return nil, fault("encode the state of a rollout", err)
			}
			states.Rows = append(states.Rows, []any{s.ID, s.Active(), s.Undoes, s.Started, printable.Storable(string(doc))})
		}
		if c.Skip != "" {
			statements = append(statements, Statement{
				SQL: "UPDATE rollout_row SET progress = 'Skipped', reason = $3, version = $4 " +
					"WHERE rollout = $1 AND plan = $2 AND kind IN (1, 2, 3) AND progress IN ('Waiting', 'Stale')",
				Args: []any{c.Rollout, c.Number, printable.Storable(c.Skip), c.version},
			})
		}
		var rows [][]any
		for _, r := range c.rows {
			values, err := rolloutRowValues(c.Rollout, c.Number, c.version, r)
			if err != nil {
				return nil, err
			}
			rows = append(rows, values)
		}
		flown := putFlights
		for _, e := range c.Flight {
			e.Now = nil
			doc, err := json.Marshal(e)
			if err != nil {
				return nil, fault("encode a deployment in flight", err)
			}
			flown.Rows = append(flown.Rows, []any{string(e.Deployment), e.Rollout, string(e.Site), string(doc), len(e.Apart) > 0})
		}
		statements = append(statements, states, putRolloutRows.With(rows), deleteFlights.With(sqldb.Single(c.Land)), flown)
		evidence, err := evidenceStatements(c)
		if err != nil {
			return nil, err
		}
		statements = append(statements, evidence...)
		for _, id := range c.Forget {
			statements = append(statements, g.releaseOrigins(id))
			statements = append(statements, Statement{SQL: "DELETE FROM rollout WHERE id = $1", Args: []any{id}})
			for _, table := range []string{"rollout_plan", "rollout_row", "rollout_pin", "rollout_evidence", "flight"} {
				statements = append(statements, Statement{SQL: "DELETE FROM " + table + " WHERE rollout = $1", Args: []any{id}})
			}
		}
		wake := Statement{SQL: enqueueSQL("'"+tko.QueueRollout+"', r.i", "''", "{rows}"), Args: []any{int64(0)}, Columns: []Column{Text.As("i")}}
		for _, id := range slices.Compact(slices.Sorted(slices.Values(c.Wake))) {
			wake.Rows = append(wake.Rows, []any{id})
			g.news.add(tko.QueueRollout)
		}
		statements = append(statements, wake)
		if len(c.Sites) > 0 {
			due := Statement{SQL: enqueueSQL("'"+tko.QueueSchedule+"', r.i", "''", "{rows}"), Args: []any{int64(0)}, Columns: []Column{Text.As("i")}}
			for _, id := range slices.Compact(slices.Sorted(slices.Values(c.Sites))) {
				due.Rows = append(due.Rows, []any{id})
			}
			statements = append(statements, due)
			g.news.add(tko.QueueSchedule)
		}
	}
	if g.head.rollouts == 0 {
		return statements, nil
	}
	moved := Statement{
		SQL: enqueueSQL("'"+tko.QueueRollout+"', f.rollout", "''", "(SELECT DISTINCT f.rollout FROM {rows} CROSS JOIN flight f WHERE f.deployment = r.i) f"), Args: []any{int64(0)},
		Columns: []Column{Text.As("i")},
	}
	seen := map[string]bool{}
	for _, c := range g.changes {
		if c.after.Kind == tko.KindDeployment && !seen[c.after.ID] {
			seen[c.after.ID] = true
			moved.Rows = append(moved.Rows, []any{c.after.ID})
		}
	}
	if len(moved.Rows) > 0 && len(g.rollouts) == 0 { // an executor evaluates its own changes anyway
		statements = append(statements, moved)
		g.news.addSoon(tko.QueueRollout)
	}
	return statements, nil
}

// evidenceStatements add the evidence of a change, and remove what is beyond the limit.
func evidenceStatements(c rolloutChange) ([]Statement, error) {
	if len(c.Evidence) == 0 {
		return nil, nil
	}
	put, last := putEvidence, int64(0)
	for _, e := range c.Evidence {
		doc, err := json.Marshal(e)
		if err != nil {
			return nil, fault("encode evidence of a rollout", err)
		}
		put.Rows, last = append(put.Rows, []any{c.Rollout, e.Number, printable.Storable(string(doc))}), max(last, e.Number)
	}
	return []Statement{put, {SQL: "DELETE FROM rollout_evidence WHERE rollout = $1 AND n <= $2", Args: []any{c.Rollout, last - record.MaxEvidence}}}, nil
}

// RolloutEvidence returns evidence of a rollout after a number.
func (s *Store) RolloutEvidence(ctx context.Context, id string, after int64, limit int) (all []tko.RolloutEvidence, err error) {
	err = s.read(ctx, func(tx Tx) error {
		all = nil
		return tx.Commit(ctx, Statement{
			SQL:  "SELECT doc FROM rollout_evidence WHERE rollout = $1 AND n > $2 ORDER BY n LIMIT $3",
			Args: []any{id, after, int64(limit)},
			Scan: func(from Row) error {
				var doc string
				if err := from.Scan(&doc); err != nil {
					return err
				}
				var e tko.RolloutEvidence
				if err := json.Unmarshal([]byte(doc), &e); err != nil {
					return fault("decode evidence of a rollout", err)
				}
				all = append(all, e)
				return nil
			},
		})
	})
	return all, fault("read the evidence of a rollout", err)
}

// deletedChildren selects the rows of children that a rollout deletes.
const deletedChildren = "r.kind = 3 AND r.parent <> ''"

// releaseOrigins enqueues the parents of the children that a rollout deleted: their
// placements may create them again.
func (g *group) releaseOrigins(rollout string) Statement {
	g.news.addSoon(tko.QueuePrepare)
	return Statement{
		// Parents are distinct before they are looked up, so that the planner begins with them. The index of the
		// deleted children of all rollouts is hidden from it.
		SQL: enqueueSQL("'"+tko.QueuePrepare+"', f.parent", "''", "(SELECT e.id AS parent FROM (SELECT DISTINCT r.parent FROM rollout_row r "+
			"WHERE r.rollout = $2 AND r.kind = 3 AND (r.parent || '') <> '') p JOIN entity e ON e.kind = 'deployment' AND e.id = p.parent) f"),
		Args: []any{int64(0), rollout},
	}
}

// ReservedOrigins returns the origins of deleted children that can be created again.
func (s *Store) ReservedOrigins(ctx context.Context, parent tko.DeploymentID) (map[string]tko.RolloutID, error) {
	reserved := map[string]tko.RolloutID{}
	err := s.run(ctx, Statement{
		SQL:  "SELECT r.doc, h.doc FROM rollout_row r JOIN rollout h ON h.id = r.rollout WHERE r.parent = $1 AND " + deletedChildren + " AND r.applied > 0",
		Args: []any{string(parent)},
		Scan: func(from Row) error {
			var row, rollout string
			if err := from.Scan(&row, &rollout); err != nil {
				return err
			}
			var d record.RolloutRow
			var h record.RolloutState
			if row == "" {
				return nil
			}
			if err := errors.Join(form.ReadRolloutRowDoc(row, &d), json.Unmarshal([]byte(rollout), &h)); err != nil {
				return err
			}
			if d.Origin != "" && h.State != execute.Undone {
				reserved[d.Origin] = tko.RolloutID(h.ID)
			}
			return nil
		},
	})
	return reserved, fault("read the reserved origins", err)
}

const rolloutDocs = "SELECT doc FROM rollout"

// scanDocs returns a Scan that appends what the only column of each row encodes.
func scanDocs[T any](list *[]T) func(Row) error {
	return func(from Row) error {
		var doc string
		if err := from.Scan(&doc); err != nil {
			return err
		}
		var value T
		err := json.Unmarshal([]byte(doc), &value)
		*list = append(*list, value)
		return err
	}
}

func scanRolloutRows(rows *[]record.RolloutRow) func(Row) error {
	return func(from Row) error {
		r, err := scanRolloutRow(from)
		*rows = append(*rows, r)
		return err
	}
}

func rolloutHead(version *int64, now *time.Time) Statement {
	return Statement{
		SQL: "SELECT rollouts, {now} FROM head WHERE one = 1",
		Scan: func(from Row) error {
			var at int64
			err := from.Scan(version, &at)
			*now = moment(at)
			return err
		},
	}
}

// ApartFlights returns the deployments in flight of rollouts that keep sites apart.
func (s *Store) ApartFlights(ctx context.Context) ([]execute.Entry, error) {
	var entries []execute.Entry
	err := s.run(ctx, Statement{SQL: "SELECT doc FROM flight WHERE apart ORDER BY deployment", Scan: scanDocs(&entries)})
	return entries, fault("read the deployments in flight", err)
}

// RolloutStates returns the states of rollouts.
func (s *Store) RolloutStates(ctx context.Context, ids ...string) (states []record.RolloutState, version int64, now time.Time, err error) {
	read := Statement{SQL: rolloutDocs + " WHERE active ORDER BY id"}
	if len(ids) > 0 {
		read = Statement{SQL: rolloutDocs + " WHERE " + s.dialect.In("id", "$1") + " ORDER BY id", Args: []any{s.dialect.List(ids)}}
	}
	read.Scan = scanDocs(&states)
	err = s.read(ctx, func(tx Tx) error {
		states = nil
		return tx.Commit(ctx, rolloutHead(&version, &now), read)
	})
	return states, version, now, fault("read the states of rollouts", err)
}

// readRollout reads the version of all rollouts, and the state of one.
func readRollout(ctx context.Context, tx Tx, id string, version *int64, now *time.Time) (state record.RolloutState, found bool, err error) {
	var own []record.RolloutState
	err = tx.Run(ctx, rolloutHead(version, now), Statement{SQL: rolloutDocs + " WHERE id = $1", Args: []any{id}, Scan: scanDocs(&own)})
	if err != nil || len(own) == 0 {
		return state, false, err
	}
	return own[0], true, nil
}

// countRows counts the rows of the current plan.
func countRows(state record.RolloutState, counts *[]record.RolloutCount) Statement {
	return Statement{
		SQL:  "SELECT wave, kind, progress, counted, count(*), min(since), max(since) FROM rollout_row WHERE rollout = $1 AND plan = $2 GROUP BY wave, kind, progress, counted",
		Args: []any{state.ID, state.Plan},
		Scan: func(from Row) error {
			var wave, kind, rows, first, last int64
			var progress string
			var c record.RolloutCount
			err := from.Scan(&wave, &kind, &progress, &c.Counted, &rows, &first, &last)
			c.First, c.Last = momentOrZero(first), momentOrZero(last)
			c.Wave, c.Kind, c.Progress, c.Rows = int(wave), fleetplan.Kind(kind), execute.Progress(progress), int(rows) //nolint:gosec // written as such
			*counts = append(*counts, c)
			return err
		},
	}
}

// RolloutSummary returns how far a rollout is.
func (s *Store) RolloutSummary(ctx context.Context, id string, examples int) (sum record.RolloutSummary, err error) {
	err = s.read(ctx, func(tx Tx) error {
		sum = record.RolloutSummary{}
		var version int64
		if sum.State, sum.Found, err = readRollout(ctx, tx, id, &version, &sum.Now); !sum.Found {
			return err
		}
		return tx.Commit(
			ctx,
			countRows(sum.State, &sum.Counts),
			Statement{
				SQL: "SELECT " + rolloutRowNames + " FROM rollout_row WHERE rollout = $1 AND plan = $2 " +
					"AND (progress IN ('Failed', 'Stale', 'Superseded', 'Applied') OR kind IN (4, 5)) ORDER BY (progress = 'Applied'), wave, rank, deployment LIMIT $3",
				Args: []any{id, sum.State.Plan, int64(examples)},
				Scan: scanRolloutRows(&sum.Examples),
			},
		)
	})
	return sum, fault("read the summary of a rollout", err)
}

// RolloutView returns what a rollout is evaluated from.
func (s *Store) RolloutView(ctx context.Context, id string, known record.RowsAt) (v record.RolloutView, err error) {
	err = s.read(ctx, func(tx Tx) error {
		v = record.RolloutView{Held: map[tko.DeploymentID]string{}, Unscheduled: map[string]bool{}}
		if v.State, v.Found, err = readRollout(ctx, tx, id, &v.Version, &v.Now); !v.Found {
			return err
		}
		rows := Statement{
			SQL:  "SELECT " + rolloutRowNames + " FROM rollout_row WHERE rollout = $1 AND plan = $2 ORDER BY wave, rank, deployment",
			Args: []any{id, v.State.Plan},
		}
		v.Changes = known.Set == v.State.Rows && known.Set > 0
		if v.Changes {
			rows.SQL = "SELECT " + rolloutRowNames + " FROM rollout_row WHERE rollout = $1 AND plan = $2 AND version > $3 AND version > 0"
			rows.Args = append(rows.Args, known.Version)
		}
		rows.Scan = scanRolloutRows(&v.Rows)
		return tx.Commit(
			ctx,
			rows,
			activeRollouts(&v),
			Statement{SQL: "SELECT doc FROM flight ORDER BY deployment", Scan: scanDocs(&v.Flight)},
			Statement{ // an item that is due later, without a failure, only repeats the work
				// Few are in flight. A subquery looks each of them up; a join may read all rows of the plan.
				SQL: "SELECT (SELECT r.site FROM rollout_row r WHERE r.rollout = $1 AND r.plan = $2 AND r.deployment = f.deployment AND r.kind = 3 AND r.site <> '' AND r.progress IN ('Applied', 'Soaking', 'Failed') " +
					"AND EXISTS (SELECT 1 FROM work w WHERE w.queue = '" + tko.QueueSchedule + "' AND w.key = r.site AND (w.attempt > 0 OR w.due <= {now} OR w.lease_until > {now}) LIMIT 1 OFFSET 0)) FROM flight f",
				Args: []any{id, v.State.Plan},
				Scan: func(from Row) error {
					var site *string
					err := from.Scan(&site)
					if site != nil {
						v.Unscheduled[*site] = true
					}
					return err
				},
			},
			s.heldRows(v.State, func(deployment, rollout string) { v.Held[tko.DeploymentID(deployment)] = rollout }),
		)
	})
	return v, fault("read a rollout", err)
}

// activeRollouts reads the states that belong to a view.
func activeRollouts(v *record.RolloutView) Statement {
	return Statement{SQL: rolloutDocs + " WHERE active OR undoes = $1 OR id = $2 ORDER BY id", Args: []any{v.State.ID, v.State.UndoneBy}, Scan: scanDocs(&v.Active)}
}

// RolloutCommandView returns what a command of a rollout is decided from.
func (s *Store) RolloutCommandView(ctx context.Context, id string, filter record.RowFilter) (v record.RolloutView, err error) {
	if err := decide.CheckTexts("deployment ID", string(filter.Deployment)); err != nil {
		return v, err
	}
	err = s.read(ctx, func(tx Tx) error {
		v = record.RolloutView{Held: map[tko.DeploymentID]string{}}
		if v.State, v.Found, err = readRollout(ctx, tx, id, &v.Version, &v.Now); !v.Found {
			return err
		}
		statements := []Statement{activeRollouts(&v), countRows(v.State, &v.Counts)}
		var where []string
		args := []any{id, v.State.Plan}
		for _, one := range []struct {
			selected  bool
			condition string
		}{
			{filter.Stale, "progress = 'Stale'"}, {filter.Counted, "counted"}, {filter.Blocked, "kind IN (4, 5)"}, {filter.Deployment != "", "deployment = $3"},
		} {
			if one.selected {
				where = append(where, one.condition)
			}
		}
		if filter.Deployment != "" {
			args = append(args, string(filter.Deployment))
		}
		if len(where) > 0 {
			statements = append(statements, Statement{
				SQL:  "SELECT " + rolloutRowNames + " FROM rollout_row WHERE rollout = $1 AND plan = $2 AND (" + strings.Join(where, " OR ") + ") ORDER BY wave, rank, deployment",
				Args: args,
				Scan: scanRolloutRows(&v.Rows),
			})
		}
		if filter.Held {
			statements = append(statements, s.heldRows(v.State, func(deployment, rollout string) { v.Held[tko.DeploymentID(deployment)] = rollout }))
		}
		return tx.Commit(ctx, statements...)
	})
	return v, fault("read a rollout", err)
}

// heldRows reads the deployments of a plan that an active rollout of another family has,
// which started earlier (or at all, if this one has not started).
func (s *Store) heldRows(state record.RolloutState, found func(deployment, rollout string)) Statement {
	return Statement{
		SQL: "SELECT o.deployment, o.rollout, h.doc FROM rollout h CROSS JOIN rollout_row o CROSS JOIN rollout_row m " + // in this order: mostly there is no h
			"WHERE o.rollout = h.id AND m.deployment = o.deployment AND m.rollout = $1 AND m.plan = $2 AND m.kind IN (1, 2, 3) AND h.active AND h.id <> $1 AND h.started > 0 AND (h.started < $3 OR $3 = 0) AND o.kind IN (1, 2, 3) " +
			"AND o.progress IN ('Waiting', 'Applied', 'Soaking', 'Failed', 'Stale') ORDER BY o.deployment || '', h.started", // no index has the order: it would be read to its end
		Args: []any{state.ID, state.Plan, state.Started},
		Scan: func(from Row) error {
			var deployment, rollout, doc string
			if err := from.Scan(&deployment, &rollout, &doc); err != nil {
				return err
			}
			var h record.RolloutState
			if err := json.Unmarshal([]byte(doc), &h); err != nil {
				return err
			}
			if decide.Holds(&h, &state) {
				found(deployment, rollout)
			}
			return nil
		},
	}
}

// RolloutRows returns rows of a plan.
func (s *Store) RolloutRows(ctx context.Context, id string, number int64, after string, limit int) (rows []record.RolloutRow, err error) {
	err = s.read(ctx, func(tx Tx) error {
		rows = nil
		return tx.Commit(ctx, Statement{
			SQL:  "SELECT " + rolloutRowNames + " FROM rollout_row WHERE rollout = $1 AND plan = $2 AND deployment > $3 ORDER BY deployment LIMIT $4",
			Args: []any{id, number, after, int64(limit)},
			Scan: scanRolloutRows(&rows),
		})
	})
	return rows, fault("read the rows of a rollout", err)
}

// RolloutPlan returns the groups of a plan.
func (s *Store) RolloutPlan(ctx context.Context, id string, number int64) ([]byte, error) {
	var doc string
	err := s.run(ctx, Statement{
		SQL: "SELECT doc FROM rollout_plan WHERE rollout = $1 AND plan = $2", Args: []any{id, number},
		Scan: func(from Row) error { return from.Scan(&doc) },
	})
	return []byte(doc), fault("read a plan", err)
}

// planBatch is the number of rows of a plan that one transaction writes.
const planBatch = 1000

// WriteRolloutPlan replaces a plan that no state refers to.
func (s *Store) WriteRolloutPlan(ctx context.Context, id string, number int64, rows []record.RolloutRow, groups []byte) error {
	err := s.write(ctx, func(Tx) ([]Statement, error) {
		return []Statement{
			{SQL: "DELETE FROM rollout_row WHERE rollout = $1 AND plan = $2", Args: []any{id, number}},
			{SQL: "INSERT INTO rollout_plan (rollout, plan, doc) VALUES ($1, $2, $3) ON CONFLICT (rollout, plan) DO UPDATE SET doc = excluded.doc", Args: []any{id, number, string(groups)}},
		}, nil
	})
	for batch := range slices.Chunk(rows, planBatch) {
		if err != nil {
			break
		}
		var values, pins [][]any
		for _, r := range batch {
			row, encodeErr := rolloutRowValues(id, number, 0, r)
			if encodeErr != nil {
				return encodeErr
			}
			values = append(values, row)
			for _, p := range r.Pins {
				pins = append(pins, []any{id, string(p.Kind), p.ID, p.Revision})
			}
		}
		err = s.write(ctx, func(Tx) ([]Statement, error) {
			return []Statement{putRolloutRows.With(values), {
				SQL:     "INSERT INTO rollout_pin (rollout, kind, id, revision) SELECT DISTINCT r.o, r.k, r.i, r.v FROM {rows} WHERE true ON CONFLICT (rollout, kind, id, revision) DO NOTHING",
				Columns: []Column{Text.As("o"), Text.As("k"), Text.As("i"), Int.As("v")}, Rows: pins,
			}}, nil
		})
	}
	return fault("write a plan", err)
}
