package relational

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/form"
	"github.com/tko-orchestrator/tko/internal/store/selection"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// This file reads records as of a position of the log.
//
// The record of a key as of a position is its newest revision up to the position,
// unless the record was deleted in between. A list as of a position has two sources
// of IDs: the records that match the query now, and the records that left an index
// since the position, because they were deleted or lost a value that queries select
// by. Each record that matched then is in one of them. So a list as of a position
// costs about as much as the same list now, and the indexes of the past cost writes
// nothing unless a record leaves one.

// The bits of the column departed: what a change took from its record.
const (
	departedRecord   = form.DepartedRecord
	departedSite     = form.DepartedSite
	departedTemplate = form.DepartedTemplate
	departedParent   = form.DepartedParent
	departedMetadata = form.DepartedMetadata
)

// departed returns what a change takes from its record.
func (g *group) departed(c *change) int64 {
	before, after := &c.before, &c.after
	switch {
	case c.op == tko.OpDeleted:
		return departedRecord
	case c.op != tko.OpWritten || before.Revision == 0:
		return 0
	}
	bits := form.Departed(&before.Record, &after.Record)
	if g.losesMetadata(before, after) {
		bits |= departedMetadata
	}
	return bits
}

// losesMetadata reports whether a value of metadata or labels before isn't there
// after. It may report so if the metadata before is not in memory.
func (g *group) losesMetadata(before, after *row) bool {
	if before.Metadata == nil && before.metaset == after.metaset {
		return false
	}
	of := func(r *row) *record.Metadata {
		if r.Metadata != nil {
			return r.Metadata
		}
		return g.sets[r.metaset]
	}
	old, next := of(before), of(after)
	if old == nil || next == nil {
		return true
	}
	return form.LosesMetadata(old, next)
}

// timeOf returns the time of a moment as the end of a sentence; "" if it isn't known.
func timeOf(m record.Moment) string {
	if m.Time.IsZero() {
		return ""
	}
	return ", of " + m.Time.Format(time.RFC3339Nano)
}

// Past returns the oldest and the newest state that can be read.
func (s *Store) Past(ctx context.Context) (oldest, newest record.Moment, err error) {
	var at, first, last int64
	err = s.run(ctx, Statement{
		SQL: "SELECT CASE WHEN k.past < k.position THEN k.position ELSE k.past END, CASE WHEN k.past < k.position THEN 0 ELSE k.past_at END, h.position, " +
			"COALESCE((SELECT c.updated FROM change c ORDER BY c.position DESC LIMIT 1), 0) FROM collector k CROSS JOIN head h WHERE k.one = 1 AND h.one = 1",
		Scan: func(from Row) error { return from.Scan(&oldest.Position, &at, &newest.Position, &last) },
	})
	if err == nil && oldest.Position > 0 && at == 0 {
		err = s.run(ctx, Statement{
			SQL:  "SELECT c.updated FROM change c WHERE c.position > $1 ORDER BY c.position LIMIT 1",
			Args: []any{oldest.Position},
			Scan: func(from Row) error { return from.Scan(&first) },
		})
		at = first
		if at == 0 {
			at = last
		}
	}
	if at != 0 {
		oldest.Time = moment(at)
	}
	if last != 0 {
		newest.Time = moment(last)
	}
	return oldest, newest, fault("read the range of the history", err)
}

// HistorySize returns about what the log takes.
func (s *Store) HistorySize(ctx context.Context) (size record.HistorySize, err error) {
	if err := s.run(ctx, Statement{SQL: s.dialect.HistorySize, Scan: func(from Row) error { return from.Scan(&size.Changes, &size.Bytes) }}); err != nil {
		return size, fault("read the size of the history", err)
	}
	if size.Longer, err = s.longerSizes(ctx, size); err != nil {
		return size, fault("read the size of the history", err)
	}
	size.DatabaseBytes, err = s.Size(ctx)
	return size, err
}

// longerSizes returns what policies retain.
func (s *Store) longerSizes(ctx context.Context, size record.HistorySize) (list []record.LongerSize, err error) {
	err = s.run(ctx, Statement{
		SQL: "SELECT policy, count(*), CAST(sum(changes) AS bigint) FROM longer GROUP BY policy ORDER BY policy",
		Scan: func(from Row) error {
			var l record.LongerSize
			err := from.Scan(&l.Policy, &l.Deployments, &l.Changes)
			if size.Changes > 0 {
				l.Bytes = int64(float64(l.Changes) * float64(size.Bytes) / float64(size.Changes))
			}
			list = append(list, l)
			return err
		},
	})
	return list, err
}

// PositionAt returns the position of the newest change up to a time. Times in the log
// never decrease.
func (s *Store) PositionAt(ctx context.Context, t time.Time) (int64, error) {
	oldest, newest, err := s.Past(ctx)
	switch at := micros(t); {
	case err != nil:
		return 0, err
	case t.Before(oldest.Time):
		position, err := s.search(ctx, 0, oldest.Position, at)
		if err != nil || position != 0 {
			return position, err
		}
		return 0, tko.Errorf(tko.ErrGone, "the state as of %s is no longer retained: the oldest time is %s", t.Format(time.RFC3339Nano), oldest.Time.Format(time.RFC3339Nano))
	case newest.Time.IsZero() || !t.Before(newest.Time):
		return newest.Position, nil
	default:
		return s.search(ctx, oldest.Position, newest.Position, at)
	}
}

// search returns the position of the newest change up to a time that is at least low and
// less than high.
func (s *Store) search(ctx context.Context, low, high, at int64) (int64, error) {
	for low+1 < high {
		middle := low + (high-low)/2
		position, updated := high, at+1
		if err := s.run(ctx, Statement{
			SQL:  "SELECT c.position, c.updated FROM change c WHERE c.position >= $1 AND c.position < $2 ORDER BY c.position LIMIT 1",
			Args: []any{middle, high},
			Scan: func(from Row) error { return from.Scan(&position, &updated) },
		}); err != nil {
			return 0, fault("search the log", err)
		}
		if updated > at {
			high = middle
		} else {
			low = position
		}
	}
	return low, nil
}

// A pastReader reads records as of a position.
type pastReader struct {
	store    *Store
	position int64
	at       int64 // time of the newest change up to position
}

// newPastReader returns a reader as of a position. With an ErrGone, it returns one, too,
// which can't read everything.
func (s *Store) newPastReader(ctx context.Context, position int64) (*pastReader, error) {
	p := &pastReader{store: s, position: position}
	at, err := p.retained(ctx)
	p.at = at
	return p, err
}

// retained returns the time of the newest change up to the position, or an ErrGone if the
// state is no longer retained. It is called after reads, too: what they read was complete
// if it still is.
func (p *pastReader) retained(ctx context.Context) (at int64, err error) {
	var oldest, head int64
	err = p.store.run(ctx, Statement{
		SQL: "SELECT CASE WHEN k.past < k.position THEN k.position ELSE k.past END, h.position, " +
			"COALESCE((SELECT c.updated FROM change c WHERE c.position <= $1 ORDER BY c.position DESC LIMIT 1), 0) " +
			"FROM collector k CROSS JOIN head h WHERE k.one = 1 AND h.one = 1",
		Args: []any{p.position},
		Scan: func(from Row) error { return from.Scan(&oldest, &head, &at) },
	})
	switch {
	case err != nil:
	case p.position > head:
		err = tko.Errorf(tko.ErrInvalid, "the position %d is beyond the newest change, which is %d", p.position, head)
	case p.position < oldest:
		var moment record.Moment
		if moment, _, err = p.store.Past(ctx); err == nil {
			err = tko.Errorf(tko.ErrGone, "the state as of position %d is no longer retained: the oldest position is %d%s", p.position, moment.Position, timeOf(moment))
		}
	}
	return at, err
}

// GetAt returns the records of keys as of a position.
func (s *Store) GetAt(ctx context.Context, position int64, fields record.Fields, keys ...record.Key) ([]record.Record, error) {
	others := func(key record.Key) bool { return key.Kind != tko.KindDeployment }
	p, err := s.newPastReader(ctx, position)
	if errors.Is(err, tko.ErrGone) && len(keys) > 0 && !slices.ContainsFunc(keys, others) {
		records, err := p.getBefore(ctx, fields, keys)
		return records, fault("read the past", err)
	}
	if err != nil {
		return nil, fault("read the past", err)
	}
	records := make([]record.Record, len(keys))
	byKind := map[tko.Kind][]string{}
	for i, key := range keys {
		records[i].Key = key
		if decide.CheckTexts("kind", string(key.Kind), "ID", key.ID) == nil {
			byKind[key.Kind] = append(byKind[key.Kind], key.ID)
		}
	}
	found := map[record.Key]record.Record{}
	for kind, ids := range byKind {
		slices.Sort(ids)
		rows, err := p.records(ctx, access.ScopeAll, kind, slices.Compact(ids), nil)
		if err == nil {
			err = p.complete(ctx, kind, fields, rows)
		}
		if err != nil {
			return nil, fault("read the past", err)
		}
		for _, r := range rows {
			found[r.Key] = r
		}
	}
	if _, err := p.retained(ctx); err != nil {
		return nil, fault("read the past", err)
	}
	for i, key := range keys {
		if r, ok := found[key]; ok {
			records[i] = cloneRecord(r)
		}
	}
	return records, nil
}

// A tombstone is a deletion of a record after the position.
type tombstone struct {
	uid     string
	created int64
}

// records returns those of the records with the sorted IDs that existed at the
// position, in their order, with their metadata. It leaves out those that exist outside
// of a view now. now has current records by ID; the other ones are read.
func (p *pastReader) records(ctx context.Context, view access.View, kind tko.Kind, ids []string, now map[string]record.Record) ([]record.Record, error) {
	current := make(map[string]record.Record, len(ids))
	var unread []record.Key
	for _, id := range ids {
		if r, ok := now[id]; ok {
			current[id] = r
		} else {
			unread = append(unread, record.Key{Kind: kind, ID: id})
		}
	}
	if len(unread) > 0 {
		read, err := p.store.Get(ctx, record.Fields{}, unread...)
		if err != nil {
			return nil, err
		}
		for _, r := range read {
			current[r.ID] = r
		}
	}
	if scope := view.Of(kind); !scope.IsAll() {
		ids = slices.DeleteFunc(ids, func(id string) bool {
			r := current[id]
			return r.Revision != 0 && !scope.Match(record.AttributesOf(r))
		})
	}
	var moved [][]any
	for _, id := range ids {
		if r := current[id]; r.Revision == 0 || r.Position > p.position {
			moved = append(moved, []any{id})
		}
	}
	then, err := p.revisions(ctx, kind, moved)
	if err != nil {
		return nil, err
	}
	var unsure [][]any // not known to have existed
	for _, row := range moved {
		id, _ := row[0].(string)
		if r, ok := then[id]; ok && r.UID != current[id].UID || current[id].Revision == 0 {
			unsure = append(unsure, row)
		}
	}
	deleted, err := p.deletions(ctx, kind, unsure)
	if err != nil {
		return nil, err
	}
	records := make([]record.Record, 0, len(ids))
	for _, id := range ids {
		cur := current[id]
		if cur.Revision != 0 && cur.Position <= p.position {
			records = append(records, cur)
			continue
		}
		r, ok := then[id]
		if !ok {
			// The record was created after the position, or its revisions were
			// collected by a program that didn't retain them for reads of the past.
			older := cur.Revision != 0 && micros(cur.Created) < p.at
			for _, d := range deleted[id] {
				older = older || d.created < p.at
			}
			if older {
				return nil, tko.Errorf(tko.ErrGone, "the state of %s %q as of position %d is no longer retained: use a later time", kind, id, p.position)
			}
			continue
		}
		switch {
		case cur.UID == r.UID:
			r.Conditions = slices.DeleteFunc(slices.Clone(cur.Conditions), func(c tko.Condition) bool {
				return c.ObservedRevision > r.Revision || micros(c.LastTransition) > p.at
			})
		case !slices.ContainsFunc(deleted[id], func(d tombstone) bool { return d.uid == r.UID }):
			continue // deleted before the position
		}
		records = append(records, r.Record)
	}
	return records, nil
}

// revisions returns the newest revision up to the position of each ID, with its
// metadata.
func (p *pastReader) revisions(ctx context.Context, kind tko.Kind, ids [][]any) (map[string]row, error) {
	if len(ids) == 0 {
		return nil, nil //nolint:nilnil // there are none
	}
	newest := func(columns, table string) string {
		return "SELECT " + columns + " FROM change " + table + " WHERE " + table + ".kind = $1 AND " + table + ".id = r.i AND " + table +
			".op = 'written' AND " + table + ".position <= $2 ORDER BY " + table + ".revision DESC LIMIT 1"
	}
	columns := sqldb.Names(stateColumns, "c.") + ", c.base"
	statement := Statement{
		SQL:     "SELECT " + columns + " FROM {rows} CROSS JOIN change c WHERE c.position = (" + newest("x.position", "x") + ")",
		Args:    []any{string(kind), p.position},
		Columns: []Column{Text.As("i")},
		Rows:    ids,
	}
	if p.store.dialect.Lateral {
		statement.SQL = "SELECT " + columns + " FROM {rows} CROSS JOIN LATERAL (" + newest(sqldb.Names(stateColumns, "x.")+", x.base", "x") + ") AS c"
	}
	var rows []row
	var base int64
	scanner := newScanner(&base)
	statement.Scan = func(from Row) error {
		r, err := scanner.scan(from)
		r.Base = base
		rows = append(rows, r)
		return err
	}
	if err := p.store.run(ctx, statement); err != nil {
		return nil, err
	}
	if err := p.store.fillMetadata(ctx, p.store.run, rows); err != nil {
		return nil, err
	}
	found := make(map[string]row, len(rows))
	for _, r := range rows {
		found[r.ID] = r
	}
	return found, nil
}

// deletions returns the deletions of records after the position.
func (p *pastReader) deletions(ctx context.Context, kind tko.Kind, ids [][]any) (map[string][]tombstone, error) {
	found := map[string][]tombstone{}
	if len(ids) == 0 {
		return found, nil
	}
	err := p.store.run(ctx, Statement{
		SQL: "SELECT c.id, c.uid, c.created FROM {rows} CROSS JOIN change c WHERE c.kind = $1 AND c.id = r.i AND c.position > $2 " +
			"AND c.departed <> 0 AND c.op <> 'status' AND c.op = 'deleted'",
		Args: []any{string(kind), p.position}, Columns: []Column{Text.As("i")}, Rows: ids,
		Scan: func(from Row) error {
			var id string
			var t tombstone
			err := from.Scan(&id, &t.uid, &t.created)
			found[id] = append(found[id], t)
			return err
		},
	})
	return found, err
}

// complete adds the deployments and packages of records.
func (p *pastReader) complete(ctx context.Context, kind tko.Kind, fields record.Fields, records []record.Record) error {
	if hasDeployments(kind) && (fields.Deployments || fields.Counts) {
		if err := p.fillDeployments(ctx, kind, fields, records); err != nil {
			return err
		}
	}
	if !fields.Package {
		return nil
	}
	pointers := make([]*record.Record, len(records))
	for i := range records {
		pointers[i] = &records[i]
	}
	return p.store.fillPackages(ctx, p.store.run, pointers)
}

// fillDeployments sets the deployments of templates or sites, and their numbers, as of
// the position.
func (p *pastReader) fillDeployments(ctx context.Context, kind tko.Kind, fields record.Fields, records []record.Record) error {
	owners := make(map[string]*record.Record, len(records))
	owned := make([]string, len(records))
	for i := range records {
		r := &records[i]
		r.Deployments, r.Count = nil, 0
		owners[r.ID], owned[i] = r, r.ID
	}
	if len(records) == 0 {
		return nil
	}
	column, bit := string(kind), int64(departedSite)
	if kind == tko.KindTemplate {
		bit = departedTemplate
	}
	candidates := map[string]bool{}
	if err := p.store.run(ctx, p.members(column, owned, -1, candidates)); err != nil {
		return err
	}
	if err := p.allDepartures(ctx, tko.KindDeployment, bit, func(id string) { candidates[id] = true }); err != nil {
		return err
	}
	scope := fields.Scope.Of(tko.KindDeployment)
	for ids := range slices.Chunk(slices.Sorted(maps.Keys(candidates)), fullChunk) {
		deployments, err := p.records(ctx, fields.Scope, tko.KindDeployment, ids, nil)
		if err != nil {
			return err
		}
		for _, d := range deployments {
			owner := d.Site
			if kind == tko.KindTemplate {
				owner = d.Template
			}
			r := owners[owner]
			if r == nil || !scope.Match(record.AttributesOf(d)) {
				continue
			}
			r.Count++
			if fields.Deployments {
				r.Deployments = append(r.Deployments, d.ID)
			}
		}
	}
	return nil
}

// members returns the statement that adds to found the IDs of the deployments with one
// of the values of a column now; a negative limit is none.
func (p *pastReader) members(column string, values []string, limit int64, found map[string]bool) Statement {
	statement := Statement{
		SQL: "SELECT e.id FROM {rows} CROSS JOIN entity e WHERE e.kind = r.k AND e." + column + " = r.i AND e." + column + " <> ''",
		Scan: func(from Row) error {
			var id string
			err := from.Scan(&id)
			found[id] = true
			return err
		},
		Columns: keyColumns, Rows: deploymentRows(values),
	}
	if limit >= 0 {
		statement.SQL += " LIMIT $1"
		statement.Args = []any{limit}
	}
	return statement
}

// allDepartures calls found with the IDs whose records lost one of bits since the
// position, or were deleted.
func (p *pastReader) allDepartures(ctx context.Context, kind tko.Kind, bits int64, found func(id string)) error {
	for after := ""; ; {
		ids, err := p.departures(ctx, kind, bits, after, "", fullChunk)
		if err != nil {
			return err
		}
		for _, id := range ids {
			found(id)
		}
		if len(ids) < fullChunk {
			return nil
		}
		after = ids[len(ids)-1]
	}
}

// departures returns the IDs after one and up to another, sorted, whose records lost one
// of bits since the position, or were deleted. "" is no limit.
func (p *pastReader) departures(ctx context.Context, kind tko.Kind, bits int64, after, end string, limit int) (ids []string, err error) {
	b := &selection.Builder{Dialect: &p.store.dialect}
	sql := "SELECT DISTINCT c.id FROM change c WHERE c.departed <> 0 AND c.op <> 'status' AND c.kind = " + b.Arg(string(kind)) +
		" AND c.position > " + b.Arg(p.position) + " AND (c.departed & " + b.Arg(bits|departedRecord) + ") <> 0"
	if after != "" {
		sql += " AND c.id > " + b.Arg(after)
	}
	if end != "" {
		sql += " AND c.id <= " + b.Arg(end)
	}
	sql += " ORDER BY c.id LIMIT " + b.Arg(int64(limit))
	err = p.store.run(ctx, Statement{SQL: sql, Args: b.Args, Scan: sqldb.Collect(&ids)})
	return ids, err
}
