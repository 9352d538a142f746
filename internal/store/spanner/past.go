package spanner

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A read of the past is one of the present, in one snapshot, except for the records that changed since: the log has their IDs, and
// the table revision their state. It needs no index of the past, and costs as much as what changed since.
//
// The state of a record as of a position is its newest revision up to the position, unless that one ended up to the position.

// afterPlace is the condition that a change is after a place, and upTo that a revision is up to it.
const (
	afterPlace = "c.committed >= @at AND (c.committed > @at OR c.shard > @slot OR c.shard = @slot AND c.n > @n)"
	upTo       = "x.committed <= @at AND (x.committed < @at OR x.slot < @slot OR x.slot = @slot AND x.n <= @n)"
)

func (p place) parameters() map[string]any {
	return map[string]any{"at": p.At, "slot": p.Slot, "n": p.N}
}

// The rows of the table state with the position up to which changes were collected, after which the log begins, and with the oldest
// position whose state can be read: a collector moves the second one first.
const (
	collectedState = "collected"
	pastState      = "past"
)

// A milestones has positions of the table state.
type milestones struct {
	collected int64
	past      record.Moment // the oldest state that can be read
	gone      int64         // the last restore
	restoring bool          // the store has an incomplete restore
}

// begin returns the position after which the log begins for readers that follow it.
func (m milestones) begin() int64 { return max(m.collected, m.gone) }

func readMilestones(ctx context.Context, from reader) (m milestones, err error) {
	keys := spanner.KeySetFromKeys(spanner.Key{collectedState}, spanner.Key{pastState}, spanner.Key{goneState}, spanner.Key{restoringState})
	err = from.Read(ctx, "state", keys, []string{"name", "committed", "slot", "n", "value"}).Do(func(row *spanner.Row) error {
		var name string
		var at spanner.NullTime
		var slot, n, value spanner.NullInt64
		err := row.Columns(&name, &at, &slot, &n, &value)
		position := place{at.Time, slot.Int64, n.Int64}.position()
		switch name {
		case collectedState:
			m.collected = position
		case pastState:
			m.past = record.Moment{Position: position, Time: at.Time.UTC()}
			if value.Valid {
				m.past.Time = timeOfMicros(value.Int64)
			}
		case goneState:
			m.gone = position
		case restoringState:
			m.restoring = true
		}
		return err
	})
	return m, fault("read the state of the log", err)
}

// momentOf returns the time of a position. Positions of restored changes may not tell it.
func (m milestones) momentOf(ctx context.Context, from reader, position int64) (record.Moment, error) {
	at := record.Moment{Position: position}
	switch {
	case position == 0:
		return at, nil
	case position >= m.gone:
		at.Time = placeOf(position).At
		return at, nil
	case position == m.past.Position:
		return m.past, nil
	}
	statement := spanner.Statement{
		SQL: "SELECT IFNULL(c.happened, c.committed) " + changesOf + "WHERE c.committed <= @at AND (c.committed < @at OR c.shard < @slot OR c.shard = @slot AND c.n <= @n) " +
			"ORDER BY c.committed DESC, c.shard DESC, c.n DESC LIMIT 1",
		Params: placeOf(position).parameters(),
	}
	err := from.Query(ctx, statement).Do(func(row *spanner.Row) error { return row.Column(0, &at.Time) })
	at.Time = inUTC(at.Time)
	return at, fault("read the time of a position", err)
}

func readCollected(ctx context.Context, from reader) (int64, error) {
	return readPlace(ctx, from, collectedState)
}

// readPlace returns the position that a row of the table state has; 0 if there is none.
func readPlace(ctx context.Context, from reader, name string) (int64, error) {
	row, err := from.ReadRow(ctx, "state", spanner.Key{name}, []string{"committed", "slot", "n"})
	if errors.Is(err, spanner.ErrRowNotFound) {
		return 0, nil
	}
	var at place
	if err == nil {
		err = row.Columns(&at.At, &at.Slot, &at.N)
	}
	if err != nil {
		return 0, fault("read the position "+name, err)
	}
	return at.position(), nil
}

// Past returns the oldest and the newest state that can be read.
func (s *Store) Past(ctx context.Context) (oldest, newest record.Moment, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	m, err := readMilestones(ctx, snapshot)
	if err != nil {
		return oldest, newest, err
	}
	head, err := s.newestOf(ctx, snapshot, 0)
	if err == nil {
		newest, err = m.momentOf(ctx, snapshot, head)
	}
	return m.past, newest, err
}

// PositionAt returns the position of the newest change up to a time.
func (s *Store) PositionAt(ctx context.Context, t time.Time) (int64, error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	m, err := readMilestones(ctx, snapshot)
	if err != nil {
		return 0, err
	}
	head, err := s.newestOf(ctx, snapshot, 0)
	gone := m.past.Position
	switch {
	case err != nil:
		return 0, err
	case head == 0 || !t.Before(placeOf(head).At):
		return head, nil
	case gone != 0 && t.Before(m.past.Time):
		return oldestRevision(ctx, snapshot, t, m.past)
	case m.gone != 0 && t.Before(placeOf(m.gone).At):
		position, err := restoredAt(ctx, snapshot, t, m.gone)
		return max(position, gone), err
	}
	position := max(gone, m.gone)
	err = logBackwards(ctx, snapshot, logRange{after: position, until: t.Add(time.Microsecond)}, func(c tko.Change) bool {
		position = max(position, c.Position)
		return false
	})
	return position, err
}

// restoredAt returns the position of the newest restored change up to a time.
func restoredAt(ctx context.Context, from reader, t time.Time, gone int64) (position int64, err error) {
	statement := spanner.Statement{
		SQL:    "SELECT c.shard, c.committed, c.n " + changesOf + "WHERE c.committed < @gone AND IFNULL(c.happened, c.committed) <= @until ORDER BY c.committed DESC, c.shard DESC, c.n DESC LIMIT 1",
		Params: map[string]any{"gone": placeOf(gone).At, "until": t},
	}
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var at place
		err := row.Columns(&at.Slot, &at.At, &at.N)
		position = at.position()
		return err
	})
	return position, fault("read the restored log", err)
}

// oldestRevision returns the position of the newest revision up to a time before the log begins.
func oldestRevision(ctx context.Context, from reader, t time.Time, oldest record.Moment) (position int64, err error) {
	statement := spanner.Statement{
		SQL:    "SELECT r.committed, r.slot, r.n FROM revision AS r WHERE r.updated <= @until ORDER BY r.committed DESC, r.slot DESC, r.n DESC LIMIT 1",
		Params: map[string]any{"until": t},
	}
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var at place
		err := row.Columns(&at.At, &at.Slot, &at.N)
		position = at.position()
		return err
	})
	if err == nil && position == 0 {
		err = tko.Errorf(tko.ErrGone, "the state as of %s is no longer retained: the oldest time is %s", t.Format(time.RFC3339Nano), oldest.Time.Format(time.RFC3339Nano))
	}
	return position, fault("read the oldest revisions", err)
}

// A logRange is a part of the log that is read from its end: after a position, and before a time.
type logRange struct {
	after int64
	until time.Time
	kind  tko.Kind // "": all
}

// logBackwards calls found with changes, newest first, until it returns false.
func logBackwards(ctx context.Context, from reader, r logRange, found func(tko.Change) bool) error {
	after := placeOf(r.after)
	until := r.until
	for window := firstWindow; until.After(after.At); window *= windowGrowth {
		begin := until.Add(-window)
		if begin.Before(after.At) {
			begin = after.At
		}
		statement := spanner.Statement{
			SQL: "SELECT " + changeColumns + " " + changesOf +
				"WHERE c.committed >= @begin AND c.committed < @until AND " + afterPlace + " AND (@kind = '' OR c.kind = @kind) ORDER BY c.committed DESC, c.shard DESC, c.n DESC",
			Params: after.parameters(),
		}
		statement.Params["begin"], statement.Params["until"], statement.Params["kind"] = begin, until, string(r.kind)
		err := from.Query(ctx, statement).Do(func(row *spanner.Row) error {
			c, err := scanChange(row)
			if err == nil && !found(c) {
				err = errEnough
			}
			return err
		})
		if errors.Is(err, errEnough) {
			return nil
		}
		if err != nil {
			return fault("read the log", err)
		}
		until = begin
		if begin.Equal(after.At) { // changes of that time are in the last window
			return nil
		}
	}
	return nil
}

// HistorySize returns how many changes there are. What they take isn't known.
func (s *Store) HistorySize(ctx context.Context) (size record.HistorySize, err error) {
	statement := spanner.Statement{
		SQL:    "SELECT SUM(t.n) FROM (SELECT class, n FROM tally UNION ALL SELECT class, n FROM tally_pending) AS t WHERE t.class = @class",
		Params: map[string]any{"class": changedClass},
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	var changes spanner.NullInt64
	if err := snapshot.Query(ctx, statement).Do(func(row *spanner.Row) error { return row.Column(0, &changes) }); err != nil {
		return size, fault("read the size of the history", err)
	}
	size.Changes = changes.Int64
	size.Longer, err = longerSizes(ctx, snapshot)
	return size, err
}

// History returns changes newest first, without those of conditions.
func (s *Store) History(ctx context.Context, q record.HistoryQuery) (changes []tko.Change, err error) {
	if q.Limit <= 0 {
		return nil, ctx.Err()
	}
	if !storable(record.Key{Kind: q.Kind, ID: q.ID}) {
		return nil, nil
	}
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	within := func(position int64) bool { return position > q.After && position < q.Before }
	if q.ID != "" {
		return historyOf(ctx, snapshot, q, within)
	}
	m, err := readMilestones(ctx, snapshot)
	if err != nil {
		return nil, err
	}
	head, err := s.newestOf(ctx, snapshot, 0)
	if err != nil {
		return nil, err
	}
	until := placeOf(min(head, q.Before)).At.Add(time.Microsecond)
	err = logBackwards(ctx, snapshot, logRange{max(m.past.Position, q.After), until, q.Kind}, func(c tko.Change) bool {
		if c.Op != tko.OpStatus && within(c.Position) {
			changes = append(changes, c)
		}
		return len(changes) < q.Limit
	})
	return changes, err
}

// historyOf returns the changes of a record: its revisions, and where they ended.
func historyOf(ctx context.Context, from reader, q record.HistoryQuery, within func(int64) bool) (changes []tko.Change, err error) {
	err = from.Read(ctx, "revision", spanner.Key{shardOf(q.ID), string(q.Kind), q.ID}.AsPrefix(), revisionColumns).Do(func(row *spanner.Row) error {
		r, err := scanRevision(row)
		if err != nil {
			return err
		}
		if r.ended != 0 && within(r.ended) {
			changes = append(changes, tko.Change{Position: r.ended, Kind: r.Kind, ID: r.ID, Op: tko.OpDeleted, Revision: r.Revision, Time: r.endedAt, Author: r.endedBy})
		}
		if within(r.Position) {
			changes = append(changes, tko.Change{Position: r.Position, Kind: r.Kind, ID: r.ID, Op: tko.OpWritten, Revision: r.Revision, Time: r.Updated, Author: r.Author})
		}
		if len(changes) >= q.Limit {
			return errEnough
		}
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fault("read the history", err)
	}
	slices.SortFunc(changes, func(a, b tko.Change) int { return cmp.Compare(b.Position, a.Position) })
	return changes[:min(len(changes), q.Limit)], nil
}

// A revision is a row of the table revision.
type revision struct {
	*record.Record
	ending
}

// An ending is the deletion of a record.
type ending struct {
	ended   int64 // position at which the record was deleted; 0: the revision isn't the last one of a record that was
	endedAt time.Time
	endedBy tko.Author
}

var revisionColumns = append(slices.Clone(rowColumns), "ended", "ended_slot", "ended_n", "ended_who", "ended_why", "ended_at")

// endColumns are those of revisionColumns that a revisionEnd reads.
const endColumns = "x.ended, x.ended_slot, x.ended_n, x.ended_who, x.ended_why, x.ended_at"

type revisionEnd struct {
	at, happened spanner.NullTime
	slot, n      spanner.NullInt64
	who, why     spanner.NullString
}

func (e *revisionEnd) columns() []any {
	return []any{&e.at, &e.slot, &e.n, &e.who, &e.why, &e.happened}
}

func (e *revisionEnd) ending() (end ending) {
	if !e.at.Valid {
		return end
	}
	end.ended, end.endedAt = place{e.at.Time, e.slot.Int64, e.n.Int64}.position(), e.at.Time.UTC()
	end.endedBy = tko.Author{Who: e.who.StringVal, Why: e.why.StringVal}
	if e.happened.Valid { // of a restored change
		end.endedAt = e.happened.Time.UTC()
	}
	return end
}

func scanRevision(row *spanner.Row) (revision, error) {
	var e revisionEnd
	r, err := scanRow(row, e.columns()...)
	return revision{r, e.ending()}, err
}

// A pastReader reads records as of a position, in one snapshot.
type pastReader struct {
	store    *Store
	from     *spanner.ReadOnlyTransaction
	position int64
	time     time.Time // of the position
	oldest   record.Moment
}

// pastIn begins to read as of a position in a snapshot. With an ErrGone, it returns a reader, too, which can't read everything.
func (s *Store) pastIn(ctx context.Context, snapshot *spanner.ReadOnlyTransaction, position int64) (*pastReader, error) {
	p := &pastReader{store: s, from: snapshot, position: position}
	m, err := readMilestones(ctx, p.from)
	if err != nil {
		return p, err
	}
	at, err := m.momentOf(ctx, p.from, position)
	if err != nil {
		return p, err
	}
	head, err := s.newestOf(ctx, p.from, 0)
	p.oldest, p.time = m.past, at.Time
	gone := m.past.Position
	switch {
	case err != nil:
	case position > head:
		err = tko.Errorf(tko.ErrInvalid, "the position %d is beyond the newest change, which is %d", position, head)
	case position < gone:
		err = tko.Errorf(tko.ErrGone, "the state as of position %d is no longer retained: the oldest position is %d%s", position, gone, timeOf(p.oldest))
	}
	return p, err
}

// timeOf returns the time of a moment as the end of a sentence; "" if it isn't known.
func timeOf(m record.Moment) string {
	if m.Time.IsZero() {
		return ""
	}
	return ", of " + m.Time.Format(time.RFC3339Nano)
}

// GetAt returns the records of keys as of a position.
func (s *Store) GetAt(ctx context.Context, position int64, fields record.Fields, keys ...record.Key) ([]record.Record, error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	p, err := s.pastIn(ctx, snapshot, position)
	others := func(key record.Key) bool { return key.Kind != tko.KindDeployment }
	var found map[record.Key]*record.Record
	switch {
	case errors.Is(err, tko.ErrGone) && len(keys) > 0 && !slices.ContainsFunc(keys, others):
		found, err = p.before(ctx, keys)
	case err == nil:
		found, err = p.records(ctx, keys, nil)
	}
	if err != nil {
		return nil, err
	}
	records := make([]record.Record, len(keys))
	for i, key := range keys {
		records[i].Key = key
		if r := found[key]; r != nil {
			records[i] = clone(r)
		}
	}
	if err := p.addDeployments(ctx, fields, records); err != nil {
		return nil, err
	}
	if fields.Package {
		err = s.addPackages(ctx, p.from, records)
	}
	return records, err
}

// records returns those of the records that existed at the position. current has records as they are now, or is nil.
func (p *pastReader) records(ctx context.Context, keys []record.Key, current map[record.Key]*record.Record) (map[record.Key]*record.Record, error) {
	if current == nil {
		var err error
		if current, err = readRecords(ctx, p.from, keys); err != nil {
			return nil, err
		}
	}
	found := make(map[record.Key]*record.Record, len(keys))
	var moved []record.Key
	for _, key := range keys {
		if now := current[key]; now != nil && now.Position <= p.position {
			found[key] = pastOf(now)
		} else if storable(key) {
			moved = append(moved, key)
		}
	}
	then, err := p.revisions(ctx, moved)
	if err != nil {
		return nil, err
	}
	for key, r := range then {
		if r.ended == 0 || r.ended > p.position {
			found[key] = p.withConditions(r.Record, current[key])
		}
	}
	return found, nil
}

// pastOf returns a record that hasn't changed since.
func pastOf(now *record.Record) *record.Record {
	r := *now
	r.Replaces, r.Replaced = nil, nil // which revisions don't record
	return &r
}

// withConditions sets the conditions of a revision: those of the record now that have not changed since.
func (p *pastReader) withConditions(r, now *record.Record) *record.Record {
	if now != nil && now.UID == r.UID {
		r.Conditions = slices.DeleteFunc(slices.Clone(now.Conditions), func(c tko.Condition) bool {
			return c.ObservedRevision > r.Revision || c.LastTransition.After(p.time)
		})
	}
	r.Steps = nil
	return r
}

// revisions returns the newest revision up to the position of each key.
func (p *pastReader) revisions(ctx context.Context, keys []record.Key) (map[record.Key]revision, error) {
	found := make(map[record.Key]revision, len(keys))
	if len(keys) == 0 {
		return found, nil
	}
	statement := spanner.Statement{
		SQL: "SELECT r.* FROM UNNEST(@keys) AS k CROSS JOIN UNNEST(ARRAY(SELECT AS STRUCT x.kind, x.id, x.revision, x.committed, x.slot, x.n, x.created, x.updated, x.doc, " +
			endColumns + " FROM revision AS x " +
			"WHERE x.shard = k.Shard AND x.kind = k.Kind AND x.id = k.ID AND " + upTo + " ORDER BY x.revision DESC LIMIT 1)) AS r",
		Params: placeOf(p.position).parameters(),
	}
	statement.Params["keys"] = parametersOf(keys)
	return found, fault("read revisions of the past", p.from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		r, err := scanRevision(row)
		if err == nil {
			found[r.Key] = r
		}
		return err
	}))
}

// before returns deployments as of a position before the oldest one as of which everything can be read. A state is certain
// if the revisions have no gap after it: the collector removes them from the oldest one on, and rollouts and modifications may
// retain single ones.
func (p *pastReader) before(ctx context.Context, keys []record.Key) (map[record.Key]*record.Record, error) {
	current, err := readRecords(ctx, p.from, keys)
	if err != nil {
		return nil, err
	}
	then, err := p.revisions(ctx, keys)
	if err != nil {
		return nil, err
	}
	found := map[record.Key]*record.Record{}
	for _, key := range keys {
		if !storable(key) {
			continue
		}
		next, err := p.nextRevision(ctx, key)
		if err != nil {
			return nil, err
		}
		r, known := then[key]
		now := current[key]
		switch {
		case next.Record != nil && next.Revision == 1, known && r.ended != 0 && r.ended <= p.position:
			continue // it was created later, or deleted before
		case known && (r.ended != 0 || next.Record != nil && next.Revision == r.Revision+1 || next.Record == nil && now != nil && now.Revision == r.Revision):
			found[key] = p.withConditions(r.Record, now)
			continue
		}
		of, which := p.oldest, "the oldest position is"
		if next.Record != nil && next.Position < p.oldest.Position {
			of, which = record.Moment{Position: next.Position, Time: next.Updated}, "its oldest position is"
		}
		return nil, tko.Errorf(tko.ErrGone, "the state of deployment %q as of position %d is no longer retained: %s %d%s", key.ID, p.position, which, of.Position, timeOf(of))
	}
	return found, nil
}

// nextRevision returns the oldest revision of a record after the position; without a record if there is none.
func (p *pastReader) nextRevision(ctx context.Context, key record.Key) (r revision, err error) {
	statement := spanner.Statement{
		SQL: "SELECT x.kind, x.id, x.revision, x.committed, x.slot, x.n, x.created, x.updated, x.doc, " + endColumns + " " +
			"FROM revision AS x WHERE x.shard = @shard AND x.kind = @kind AND x.id = @id AND NOT (" + upTo + ") ORDER BY x.revision LIMIT 1",
		Params: placeOf(p.position).parameters(),
	}
	statement.Params["shard"], statement.Params["kind"], statement.Params["id"] = shardOf(key.ID), string(key.Kind), key.ID
	err = p.from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		r, err = scanRevision(row)
		return err
	})
	return r, fault("read revisions of the past", err)
}
