package spanner

import (
	"context"
	"encoding/json"
	"fmt"
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
	pin := func(kind tko.Kind, id string, revision int64) {
		m.put("rollout_pin", []string{"shard", "kind", "id", "revision", "rollout", "noted"}, shardOf(id), string(kind), id, revision, of.rollout, spanner.CommitTimestamp)
	}
	for _, p := range r.Pins {
		pinned := record.AtRevision{Key: record.Key{Kind: p.Kind, ID: p.ID}, Revision: p.Revision}
		putPlannedPin(m, of.rollout, pinned)
	}
	for _, revision := range []int64{r.Revision, r.Target} {
		if revision > 0 { // it is needed to apply the row, and to undo it
			pin(tko.KindDeployment, id, revision)
		}
	}
	m.put("rollout_row", append([]string{"shard", "rollout", "plan", "version", "removed_shard", "removed_from"}, rolloutRowColumns...),
		shardOf(id), of.rollout, of.number, version, shard, from,
		id, int64(r.Kind), int64(r.Wave), int64(r.Rank), r.Site, string(r.Progress), r.Counted, microsOf(r.Since), strings.ToValidUTF8(r.Reason, "\uFFFD"), doc)
	return nil
}

// putPlannedPin puts the pin of a revision that a plan names.
func putPlannedPin(m *mutations, rollout string, at record.AtRevision) {
	m.put("rollout_pin", []string{"shard", "kind", "id", "revision", "rollout", "noted", "planned"}, shardOf(at.ID), string(at.Kind), at.ID, at.Revision, rollout, spanner.CommitTimestamp, true)
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
