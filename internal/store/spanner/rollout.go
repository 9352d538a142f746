package spanner

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
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

// rolloutState is the row of the table state with the version of the states, rows and flights of rollouts: executors read and
// write it with each of their commits, other writers don't.
const rolloutState = "rollouts"

// A rolloutChange is a change of rollouts, with the version that it makes.
type rolloutChange struct {
	*record.RolloutWrite

	version int64
}

// A rowDoc is the part of a row that no statement compares.
type rowDoc struct {
	record.RowDetails

	UID       string
	Revision  int64            `json:",omitempty"`
	Before    []byte           `json:",omitempty"`
	After     []byte           `json:",omitempty"`
	Group     int              `json:",omitempty"`
	Findings  []string         `json:",omitempty"`
	Unknown   []string         `json:",omitempty"`
	Edits     []byte           `json:",omitempty"`
	Root      tko.DeploymentID `json:",omitempty"`
	Parent    string           `json:",omitempty"`
	Evaluated int64            `json:",omitempty"`
	Credit    time.Duration    `json:",omitempty"`
	Broken    bool             `json:",omitempty"`
	Applied   int64            `json:",omitempty"`
	Chain     int64            `json:",omitempty"`
	Target    int64            `json:",omitempty"`
}

// rolloutRowColumns are the columns that scanRolloutRow reads.
var rolloutRowColumns = []string{"deployment", "kind", "wave", "rank", "site", "progress", "counted", "since", "reason", "doc"}

// selectRows selects rows of a rollout, in the order of no index.
var selectRows = "SELECT r." + strings.Join(rolloutRowColumns, ", r.") + " FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s JOIN rollout_row AS r ON r.shard = s WHERE r.rollout = @rollout AND r.plan = @plan"

func microsOf(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func timeOfMicros(m int64) time.Time {
	if m == 0 {
		return time.Time{}
	}
	return time.UnixMicro(m).UTC()
}

// A planKey identifies a plan of a rollout.
type planKey struct {
	rollout string
	number  int64
}

func (p planKey) parameters() map[string]any {
	return map[string]any{"rollout": p.rollout, "plan": p.number}
}

func putRolloutRow(m *mutations, of planKey, version int64, r *record.RolloutRow) error {
	doc, err := json.Marshal(rowDoc{
		RowDetails: r.RowDetails, UID: r.UID, Revision: r.Revision, Before: digestOf(r.Before), After: digestOf(r.After), Group: r.Group,
		Findings: r.Findings, Unknown: r.Unknown, Edits: r.Edits, Root: r.Root, Parent: r.Parent, Evaluated: microsOf(r.Evaluated), Credit: r.Credit,
		Broken: r.Broken, Applied: r.Applied, Chain: r.Chain, Target: r.Target,
	})
	if err != nil {
		return fault("encode a row of a rollout", err)
	}
	// The columns of the index are null, unless the row removes a child.
	var shard, from any = spanner.NullInt64{}, spanner.NullString{}
	if r.Kind == plan.Delete && r.Parent != "" {
		shard, from = shardOf(r.Parent), r.Parent
		m.count += 2 * removedIndex
	}
	id := string(r.Deployment)
	m.put("rollout_row", append([]string{"shard", "rollout", "plan", "version", "removed_shard", "removed_from"}, rolloutRowColumns...),
		shardOf(id), of.rollout, of.number, version, shard, from,
		id, int64(r.Kind), int64(r.Wave), int64(r.Rank), r.Site, string(r.Progress), r.Counted, microsOf(r.Since), strings.ToValidUTF8(r.Reason, "\uFFFD"), doc)
	return nil
}

// removedIndex is what an entry of the index of removed children adds to the mutations of a row.
const removedIndex = 6

func digestOf(d plan.Digest) []byte { return bytesOf(record.Digest(d)) }

func scanRolloutRow(row *spanner.Row, more ...any) (r record.RolloutRow, err error) {
	var id, progress string
	var kind, wave, rank, since int64
	var doc []byte
	if err := row.Columns(append([]any{&id, &kind, &wave, &rank, &r.Site, &progress, &r.Counted, &since, &r.Reason, &doc}, more...)...); err != nil {
		return r, err
	}
	var d rowDoc
	if err := json.Unmarshal(doc, &d); err != nil {
		return r, fault("decode a row of a rollout", err)
	}
	r.Deployment, r.Kind, r.Wave, r.Rank = tko.DeploymentID(id), plan.Kind(kind), int(wave), int(rank) //nolint:gosec // written as such
	r.Progress, r.Since = execute.Progress(progress), timeOfMicros(since)
	r.RowDetails, r.UID, r.Revision, r.Group, r.Findings, r.Unknown, r.Edits, r.Root = d.RowDetails, d.UID, d.Revision, d.Group, d.Findings, d.Unknown, d.Edits, d.Root
	copy(r.Before[:], d.Before)
	copy(r.After[:], d.After)
	r.Parent, r.Evaluated, r.Credit, r.Broken, r.Applied, r.Chain, r.Target = d.Parent, timeOfMicros(d.Evaluated), d.Credit, d.Broken, d.Applied, d.Chain, d.Target
	return r, nil
}

// readRolloutRows returns the rows that a condition selects, in an order.
func readRolloutRows(ctx context.Context, from reader, statement spanner.Statement) (rows []record.RolloutRow, err error) {
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		r, err := scanRolloutRow(row)
		rows = append(rows, r)
		return err
	})
	return rows, fault("read the rows of a rollout", err)
}

// readDocs returns what the only column of each row of a query encodes.
func readDocs[T any](ctx context.Context, from reader, statement spanner.Statement) (list []T, err error) {
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var doc []byte
		var value T
		if err := row.Column(0, &doc); err != nil {
			return err
		}
		err := json.Unmarshal(doc, &value)
		list = append(list, value)
		return err
	})
	return list, err
}

// changeRollouts puts the changes of rollouts that belong to the writes, and enqueues the rollouts whose deployments in flight have changed.
func (t *transaction) changeRollouts(ctx context.Context, m *mutations) error {
	for i := range t.rollouts {
		if err := t.changeRollout(ctx, m, &t.rollouts[i]); err != nil {
			return err
		}
	}
	if len(t.rollouts) > 0 { // an executor evaluates its own changes anyway
		m.put("state", []string{"name", "value"}, rolloutState, t.versions.Rollouts)
		return nil
	}
	var keys []spanner.Key
	for _, c := range t.changes {
		if c.after.Kind == tko.KindDeployment {
			keys = append(keys, spanner.Key{shardOf(c.after.ID), c.after.ID})
		}
	}
	if len(keys) == 0 {
		return nil
	}
	return fault("read the deployments in flight", t.tx.Read(ctx, "flight", spanner.KeySetFromKeys(keys...), []string{"rollout"}).Do(func(row *spanner.Row) error {
		var id string
		err := row.Column(0, &id)
		t.request(tko.QueueRollout, id)
		return err
	}))
}

// request enqueues an item.
func (t *transaction) request(queue, key string) {
	if k := (itemKey{queue, key}); !slices.Contains(t.requests, k) {
		t.requests = append(t.requests, k)
	}
}

func (t *transaction) changeRollout(ctx context.Context, m *mutations, c *rolloutChange) error {
	of := planKey{c.Rollout, c.Number}
	if c.Replan != 0 {
		if err := t.replan(ctx, m, of, c.Replan); err != nil {
			return err
		}
	}
	for i := range c.States {
		s := &c.States[i]
		if s.State == execute.Undone {
			if err := t.releaseOrigins(ctx, s.ID); err != nil {
				return err
			}
		}
		doc, err := json.Marshal(s)
		if err != nil {
			return fault("encode the state of a rollout", err)
		}
		m.put("rollout", []string{"id", "active", "undoes", "doc"}, s.ID, s.Active(), s.Undoes, doc)
	}
	if c.Skip != "" {
		if err := t.skip(ctx, m, of, c); err != nil {
			return err
		}
	}
	rows := decide.RolloutRows(c.RolloutWrite, func(id tko.DeploymentID) *record.Record {
		return t.last(record.Key{Kind: tko.KindDeployment, ID: string(id)})
	})
	for i := range rows {
		if err := putRolloutRow(m, of, c.version, &rows[i]); err != nil {
			return err
		}
	}
	for _, id := range c.Land {
		m.remove("flight", spanner.Key{shardOf(id), id})
	}
	for _, e := range c.Flight {
		e.Now = nil
		doc, err := json.Marshal(e)
		if err != nil {
			return fault("encode a deployment in flight", err)
		}
		m.put("flight", []string{"shard", "deployment", "rollout", "apart", "doc"}, shardOf(string(e.Deployment)), string(e.Deployment), e.Rollout, len(e.Apart) > 0, doc)
	}
	if err := putEvidence(m, c.RolloutWrite); err != nil {
		return err
	}
	for _, id := range c.Forget {
		if err := t.forget(ctx, m, id); err != nil {
			return err
		}
	}
	for _, id := range c.Wake {
		t.request(tko.QueueRollout, id)
	}
	for _, id := range c.Sites {
		t.request(tko.QueueSchedule, id)
	}
	return nil
}

// last returns a record after the writes, or as it was deleted by one of them.
func (t *transaction) last(key record.Key) *record.Record {
	if r := t.state[key]; r != nil {
		return r
	}
	if change, ok := t.placed[key]; ok {
		return t.changes[change].after
	}
	return nil
}

// skip puts the rows of a plan that wait or are stale as Skipped.
func (t *transaction) skip(ctx context.Context, m *mutations, of planKey, c *rolloutChange) error {
	statement := spanner.Statement{SQL: selectRows + " AND r.kind IN UNNEST(@kinds) AND r.progress IN UNNEST(@left)", Params: of.parameters()}
	statement.Params["kinds"], statement.Params["left"] = decide.AppliedKinds, decide.LeftProgress()
	rows, err := readRolloutRows(ctx, t.tx, statement)
	for i := range rows {
		id := string(rows[i].Deployment)
		m.update("rollout_row", []string{"shard", "rollout", "deployment", "plan", "version", "progress", "reason"},
			shardOf(id), of.rollout, id, of.number, c.version, string(execute.Skipped), strings.ToValidUTF8(c.Skip, "\uFFFD"))
	}
	return err
}

// replan replaces the rows of a plan that weren't applied by those of another one.
func (t *transaction) replan(ctx context.Context, m *mutations, of planKey, next int64) error {
	statement := spanner.Statement{SQL: selectRows + " AND r.progress IN UNNEST(@left)", Params: of.parameters()}
	statement.Params["left"] = decide.LeftProgress()
	left, err := readRolloutRows(ctx, t.tx, statement)
	if err != nil {
		return err
	}
	rows, err := readRolloutRows(ctx, t.tx, spanner.Statement{SQL: selectRows, Params: planKey{of.rollout, next}.parameters()})
	if err != nil {
		return err
	}
	for i := range left {
		id := string(left[i].Deployment)
		m.remove("rollout_row", spanner.Key{shardOf(id), of.rollout, id, of.number})
	}
	for i := range rows {
		id := string(rows[i].Deployment)
		m.remove("rollout_row", spanner.Key{shardOf(id), of.rollout, id, next})
		if err := putRolloutRow(m, of, 0, &rows[i]); err != nil {
			return err
		}
	}
	return nil
}

// releaseOrigins enqueues the parents of the children that a rollout deleted: their placements may create them again.
func (t *transaction) releaseOrigins(ctx context.Context, rollout string) error {
	statement := spanner.Statement{
		SQL:    "SELECT DISTINCT r.removed_from FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s JOIN rollout_row AS r ON r.shard = s WHERE r.rollout = @rollout AND r.removed_from IS NOT NULL",
		Params: map[string]any{"rollout": rollout},
	}
	var parents []record.Key
	err := t.tx.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var id string
		err := row.Column(0, &id)
		parents = append(parents, record.Key{Kind: tko.KindDeployment, ID: id})
		return err
	})
	if err == nil {
		err = t.loadRecords(ctx, parents)
	}
	for _, key := range parents {
		if t.state[key] != nil {
			t.request(tko.QueuePrepare, key.ID)
		}
	}
	return fault("read the children that a rollout deleted", err)
}

func putEvidence(m *mutations, c *record.RolloutWrite) error {
	last := int64(0)
	for _, e := range c.Evidence {
		doc, err := json.Marshal(e)
		if err != nil {
			return fault("encode evidence of a rollout", err)
		}
		m.put("rollout_evidence", []string{"shard", "rollout", "n", "doc"}, shardOf(c.Rollout), c.Rollout, e.Number, doc)
		last = max(last, e.Number)
	}
	if old := last - record.MaxEvidence; old > 0 {
		shard := shardOf(c.Rollout)
		m.removeRange("rollout_evidence", spanner.KeyRange{Start: spanner.Key{shard, c.Rollout}, End: spanner.Key{shard, c.Rollout, old}, Kind: spanner.ClosedClosed})
	}
	return nil
}

// forget removes a rollout. Its pins are removed with old history: see [collection].
func (t *transaction) forget(ctx context.Context, m *mutations, id string) error {
	if err := t.releaseOrigins(ctx, id); err != nil {
		return err
	}
	m.remove("rollout", spanner.Key{id})
	m.removeRange("rollout_plan", spanner.Key{id}.AsPrefix())
	m.removeRange("rollout_evidence", spanner.Key{shardOf(id), id}.AsPrefix())
	for shard := range int64(shards) {
		m.removeRange("rollout_row", spanner.Key{shard, id}.AsPrefix())
	}
	statement := spanner.Statement{SQL: "SELECT f.shard, f.deployment FROM flight AS f WHERE f.rollout = @rollout", Params: map[string]any{"rollout": id}}
	return fault("read the deployments in flight", t.tx.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var shard int64
		var deployment string
		err := row.Columns(&shard, &deployment)
		m.remove("flight", spanner.Key{shard, deployment})
		return err
	}))
}

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

// planBatch is the number of rows of a plan that one transaction writes.
const planBatch = 1000

// WriteRolloutPlan replaces a plan that no state refers to.
func (s *Store) WriteRolloutPlan(ctx context.Context, id string, number int64, rows []record.RolloutRow, groups []byte) error {
	if err := decide.CheckTexts("rollout", id); err != nil {
		return err
	}
	if len(groups) > maxCommitBytes/2 {
		return tko.Errorf(tko.ErrInvalid, "the plan of rollout %q has %d bytes, and the limit is %d: use fewer groups", id, len(groups), maxCommitBytes/2)
	}
	of := planKey{id, number}
	if err := s.removePlan(ctx, of); err != nil {
		return err
	}
	err := s.write(ctx, "write a plan", func(_ context.Context, _ *spanner.ReadWriteTransaction, m *mutations) error {
		m.removeRange("rollout_plan", spanner.Key{id, number}.AsPrefix())
		for i := 0; i == 0 || i*chunkBytes < len(groups); i++ {
			chunk := groups[i*chunkBytes : min(len(groups), (i+1)*chunkBytes)]
			m.put("rollout_plan", []string{"rollout", "plan", "chunk", "data"}, id, number, int64(i), append([]byte{}, chunk...))
		}
		return nil
	})
	for batch := range slices.Chunk(rows, planBatch) {
		if err != nil {
			break
		}
		err = s.write(ctx, "write the rows of a plan", func(_ context.Context, _ *spanner.ReadWriteTransaction, m *mutations) error {
			for i := range batch {
				if err := putRolloutRow(m, of, 0, &batch[i]); err != nil {
					return fmt.Errorf("deployment %q: %w", batch[i].Deployment, err)
				}
				for _, p := range batch[i].Pins {
					m.put("rollout_pin", []string{"shard", "kind", "id", "revision", "rollout", "noted"}, shardOf(p.ID), string(p.Kind), p.ID, p.Revision, id, spanner.CommitTimestamp)
				}
			}
			return nil
		})
	}
	return err
}

// removePlan removes the rows of a plan, in batches.
func (s *Store) removePlan(ctx context.Context, of planKey) error {
	for {
		var keys []spanner.Key
		statement := spanner.Statement{
			SQL:    "SELECT r.shard, r.deployment FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s JOIN rollout_row AS r ON r.shard = s WHERE r.rollout = @rollout AND r.plan = @plan LIMIT @most",
			Params: of.parameters(),
		}
		statement.Params["most"] = int64(10 * planBatch)
		err := s.client.Single().Query(ctx, statement).Do(func(row *spanner.Row) error {
			var shard int64
			var id string
			err := row.Columns(&shard, &id)
			keys = append(keys, spanner.Key{shard, of.rollout, id, of.number})
			return err
		})
		if err != nil || len(keys) == 0 {
			return fault("read a plan", err)
		}
		err = s.write(ctx, "remove a plan", func(_ context.Context, _ *spanner.ReadWriteTransaction, m *mutations) error {
			for _, key := range keys {
				m.remove("rollout_row", key)
			}
			m.count += len(keys) * removedIndex
			return nil
		})
		if err != nil {
			return err
		}
	}
}
