package relational

import (
	"context"
	"errors"
	"iter"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
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
	departedRecord = 1 << iota
	departedSite
	departedTemplate
	departedParent
	departedMetadata
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
	bits := int64(0)
	for _, column := range []struct {
		before, after string
		bit           int64
	}{
		{before.Site, after.Site, departedSite},
		{before.Template, after.Template, departedTemplate},
		{before.Parent, after.Parent, departedParent},
	} {
		if column.before != "" && column.before != column.after {
			bits |= column.bit
		}
	}
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
	of := func(r *row) *catalog.Metadata {
		if r.Metadata != nil {
			return r.Metadata
		}
		return g.sets[r.metaset]
	}
	old, next := of(before), of(after)
	if old == nil || next == nil {
		return true
	}
	for _, pair := range [][2]map[string]string{{old.Effective, next.Effective}, {old.Labels, next.Labels}} {
		for key, value := range pair[0] {
			if now, ok := pair[1][key]; !ok || now != value {
				return true
			}
		}
	}
	return false
}

// timeOf returns the time of a moment as the end of a sentence; "" if it isn't known.
func timeOf(m catalog.Moment) string {
	if m.Time.IsZero() {
		return ""
	}
	return ", of " + m.Time.Format(time.RFC3339Nano)
}

// Past returns the oldest and the newest state that can be read.
func (s *Store) Past(ctx context.Context) (oldest, newest catalog.Moment, err error) {
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
		if at = first; at == 0 {
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
func (s *Store) HistorySize(ctx context.Context) (size catalog.HistorySize, err error) {
	if err := s.run(ctx, Statement{SQL: s.dialect.HistorySize, Scan: func(from Row) error { return from.Scan(&size.Changes, &size.Bytes) }}); err != nil {
		return size, fault("read the size of the history", err)
	}
	if size.Longer, err = s.longerSizes(ctx, size); err != nil {
		return size, fault("read the size of the history", err)
	}
	size.DatabaseBytes, err = s.Size(ctx)
	return size, err
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
		var moment catalog.Moment
		if moment, _, err = p.store.Past(ctx); err == nil {
			err = tko.Errorf(tko.ErrGone, "the state as of position %d is no longer retained: the oldest position is %d%s", p.position, moment.Position, timeOf(moment))
		}
	}
	return at, err
}

// GetAt returns the records of keys as of a position.
func (s *Store) GetAt(ctx context.Context, position int64, fields catalog.Fields, keys ...catalog.Key) ([]catalog.Record, error) {
	others := func(key catalog.Key) bool { return key.Kind != tko.KindDeployment }
	p, err := s.newPastReader(ctx, position)
	if errors.Is(err, tko.ErrGone) && len(keys) > 0 && !slices.ContainsFunc(keys, others) {
		records, err := p.getBefore(ctx, fields, keys)
		return records, fault("read the past", err)
	}
	if err != nil {
		return nil, fault("read the past", err)
	}
	records := make([]catalog.Record, len(keys))
	byKind := map[tko.Kind][]string{}
	for i, key := range keys {
		records[i].Key = key
		if checkTexts("kind", string(key.Kind), "ID", key.ID) == nil {
			byKind[key.Kind] = append(byKind[key.Kind], key.ID)
		}
	}
	found := map[catalog.Key]catalog.Record{}
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
func (p *pastReader) records(ctx context.Context, view access.View, kind tko.Kind, ids []string, now map[string]catalog.Record) ([]catalog.Record, error) {
	current := make(map[string]catalog.Record, len(ids))
	var unread []catalog.Key
	for _, id := range ids {
		if r, ok := now[id]; ok {
			current[id] = r
		} else {
			unread = append(unread, catalog.Key{Kind: kind, ID: id})
		}
	}
	if len(unread) > 0 {
		read, err := p.store.Get(ctx, catalog.Fields{}, unread...)
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
			return r.Revision != 0 && !scope.Match(catalog.AttributesOf(r))
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
	records := make([]catalog.Record, 0, len(ids))
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
	columns := names(stateColumns, "c.") + ", c.base"
	statement := Statement{
		SQL:     "SELECT " + columns + " FROM {rows} CROSS JOIN change c WHERE c.position = (" + newest("x.position", "x") + ")",
		Args:    []any{string(kind), p.position},
		Columns: []Column{{"i", Text}},
		Rows:    ids,
	}
	if p.store.dialect.Lateral {
		statement.SQL = "SELECT " + columns + " FROM {rows} CROSS JOIN LATERAL (" + newest(names(stateColumns, "x.")+", x.base", "x") + ") AS c"
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
		Args: []any{string(kind), p.position}, Columns: []Column{{"i", Text}}, Rows: ids,
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
func (p *pastReader) complete(ctx context.Context, kind tko.Kind, fields catalog.Fields, records []catalog.Record) error {
	if hasDeployments(kind) && (fields.Deployments || fields.Counts) {
		if err := p.fillDeployments(ctx, kind, fields, records); err != nil {
			return err
		}
	}
	if !fields.Package {
		return nil
	}
	pointers := make([]*catalog.Record, len(records))
	for i := range records {
		pointers[i] = &records[i]
	}
	return p.store.fillPackages(ctx, p.store.run, pointers)
}

// fillDeployments sets the deployments of templates or sites, and their numbers, as of
// the position.
func (p *pastReader) fillDeployments(ctx context.Context, kind tko.Kind, fields catalog.Fields, records []catalog.Record) error {
	owners := make(map[string]*catalog.Record, len(records))
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
	for after, more := (bound{}), true; more; {
		ids, err := p.departures(ctx, tko.KindDeployment, bit, after, bound{}, fullChunk)
		if err != nil {
			return err
		}
		for _, id := range ids {
			candidates[id] = true
		}
		if more = len(ids) == fullChunk; more {
			after = bound{id: ids[len(ids)-1], set: true}
		}
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
			if r == nil || !scope.Match(catalog.AttributesOf(d)) {
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
		SQL: "SELECT e.id FROM {rows} CROSS JOIN entity e WHERE e.kind = 'deployment' AND e." + column + " = r.i AND e." + column + " <> ''",
		Scan: func(from Row) error {
			var id string
			err := from.Scan(&id)
			found[id] = true
			return err
		},
		Columns: []Column{{"i", Text}},
	}
	if limit >= 0 {
		statement.SQL += " LIMIT $1"
		statement.Args = []any{limit}
	}
	for _, v := range values {
		statement.Rows = append(statement.Rows, []any{v})
	}
	return statement
}

// departures returns the IDs of a range, sorted, whose records lost one of bits since
// the position, or were deleted.
func (p *pastReader) departures(ctx context.Context, kind tko.Kind, bits int64, after, end bound, limit int) (ids []string, err error) {
	b := &builder{dialect: &p.store.dialect}
	sql := "SELECT DISTINCT c.id FROM change c WHERE c.departed <> 0 AND c.op <> 'status' AND c.kind = " + b.arg(string(kind)) +
		" AND c.position > " + b.arg(p.position) + " AND (c.departed & " + b.arg(bits|departedRecord) + ") <> 0"
	if after.set {
		sql += " AND c.id" + orEqual(" >", after) + b.arg(after.id)
	}
	if end.set {
		sql += " AND c.id" + orEqual(" <", end) + b.arg(end.id)
	}
	err = p.store.run(ctx, Statement{
		SQL: sql + " ORDER BY c.id LIMIT " + b.arg(int64(limit)), Args: b.args,
		Scan: func(from Row) error {
			var id string
			err := from.Scan(&id)
			ids = append(ids, id)
			return err
		},
	})
	return ids, err
}

// maxMoved is the maximum number of deployments that are candidates of a list only
// because the metadata of their template or site has changed. If there are more, the
// list reads all deployments instead.
const maxMoved = 20_000

// A pastLister executes one query as of a position.
type pastLister struct {
	*pastReader

	query     catalog.Query // as the caller asked
	now       catalog.Query // selects among current records, in place of query
	bits      int64         // of departures that matter
	more      []string      // sorted IDs of further candidates
	sites     map[string]catalog.Record
	templates map[string]catalog.Record
}

// listAt lists the records that matched a query at its position.
func (s *Store) listAt(ctx context.Context, query catalog.Query, yield func(catalog.Record, error) bool) error {
	query.Fields.Scope = query.Scope
	p, err := s.newPastReader(ctx, query.AsOf)
	if err != nil {
		return err
	}
	l := &pastLister{pastReader: p, query: query}
	if err := l.prepare(ctx); err != nil {
		return err
	}
	return l.list(ctx, yield)
}

// prepare finds how candidates are found. Conditions whose loss isn't recorded are
// checked only on records as of the position.
func (l *pastLister) prepare(ctx context.Context) error {
	q := &l.query
	l.now = *q
	l.now.AsOf, l.now.Offset, l.now.Limit, l.now.Fields = 0, 0, -1, catalog.Fields{}
	l.now.Prepared, l.now.Approved, l.now.Outdated, l.now.CRDs = nil, nil, nil, false
	if len(q.Sites) > 0 || len(q.SiteMetadata) > 0 {
		l.bits |= departedSite
	}
	if len(q.Templates) > 0 || len(q.TemplateMetadata) > 0 {
		l.bits |= departedTemplate
	}
	if q.Parent != "" {
		l.bits |= departedParent
	}
	if len(q.Metadata)+len(q.Labels) > 0 {
		l.bits |= departedMetadata
	}
	if !q.Scope.IsAll() {
		l.bits |= departedSite | departedTemplate | departedMetadata
	}
	more := map[string]bool{}
	var err error
	if len(q.SiteMetadata) > 0 {
		if l.sites, err = l.related(ctx, tko.KindSite, q.SiteMetadata); err != nil {
			return err
		}
		if l.now.SiteMetadata, err = l.moved(ctx, tko.KindSite, l.sites, q.SiteMetadata, more); err != nil {
			return err
		}
	}
	if len(q.TemplateMetadata) > 0 || q.Outdated != nil {
		if l.templates, err = l.related(ctx, tko.KindTemplate, q.TemplateMetadata); err != nil {
			return err
		}
	}
	if len(q.TemplateMetadata) > 0 {
		if l.now.TemplateMetadata, err = l.moved(ctx, tko.KindTemplate, l.templates, q.TemplateMetadata, more); err != nil {
			return err
		}
	}
	l.more = slices.Sorted(maps.Keys(more))
	for len(l.more) > 0 && l.more[0] <= q.After {
		l.more = l.more[1:]
	}
	return nil
}

// related returns the templates or sites that had metadata at the position, with
// their revisions only.
func (l *pastLister) related(ctx context.Context, kind tko.Kind, metadata map[string]tko.Pattern) (map[string]catalog.Record, error) {
	found := map[string]catalog.Record{}
	query := catalog.Query{Kind: kind, Scope: l.query.Scope, Metadata: metadata, Limit: -1, AsOf: l.position}
	for r, err := range l.store.List(ctx, query) {
		if err != nil {
			return nil, err
		}
		found[r.ID] = catalog.Record{Revision: r.Revision, Updated: r.Updated}
	}
	return found, nil
}

// moved adds to more the current deployments of those templates or sites that had the
// metadata at the position and may not have it now. If they are too many, all
// deployments are candidates: then it returns no metadata to select by.
func (l *pastLister) moved(ctx context.Context, kind tko.Kind, then map[string]catalog.Record, metadata map[string]tko.Pattern, more map[string]bool) (map[string]tko.Pattern, error) {
	var left []string
	for after, next := (bound{}), true; next; {
		ids, err := l.departures(ctx, kind, departedMetadata, after, bound{}, fullChunk)
		if err != nil {
			return nil, err
		}
		for _, id := range ids {
			if _, ok := then[id]; ok {
				left = append(left, id)
			}
		}
		if next = len(ids) == fullChunk; next {
			after = bound{id: ids[len(ids)-1], set: true}
		}
	}
	for ids := range slices.Chunk(left, fullChunk) {
		if err := l.store.run(ctx, l.members(string(kind), ids, maxMoved+1, more)); err != nil {
			return nil, err
		}
		if len(more) > maxMoved {
			return nil, nil //nolint:nilnil // select by nothing
		}
	}
	return metadata, nil
}

// matches reports whether a record as of the position matches the query.
func (l *pastLister) matches(r *catalog.Record) bool {
	if !l.query.Matches(*r) {
		return false
	}
	if l.sites != nil {
		if _, ok := l.sites[r.Site]; !ok {
			return false
		}
	}
	if l.templates == nil {
		return true
	}
	t, ok := l.templates[r.Template]
	if l.query.Outdated == nil {
		return ok
	}
	outdated := ok && r.Base < t.Revision
	if ok && r.Base == 0 {
		outdated = t.Updated.After(r.Created)
	}
	return outdated == *l.query.Outdated && (ok || len(l.query.TemplateMetadata) == 0)
}

// list merges the candidates, chunk by chunk, and yields those that match.
func (l *pastLister) list(ctx context.Context, yield func(catalog.Record, error) bool) error {
	next, stop := iter.Pull2(l.store.List(ctx, l.now))
	defer stop()
	most := fullChunk
	if l.query.Fields.Package {
		most = packageChunk
	}
	after := bound{id: l.query.After, set: l.query.After != ""}
	skip, left := int(l.query.Offset), l.query.Limit
	var ahead []catalog.Record // read, and not yet listed
	for size, ended := firstChunk, false; ; size = min(4*size, most) {
		if err := ctx.Err(); err != nil {
			return err
		}
		for len(ahead) < size && !ended {
			r, err, ok := next()
			if err != nil {
				return err
			}
			if ended = !ok; ok {
				ahead = append(ahead, r)
			}
		}
		end := bound{}
		if !ended {
			end = bound{id: ahead[len(ahead)-1].ID, inclusive: true, set: true}
		}
		// After the current records were read, so that none is in neither.
		departed, err := l.departures(ctx, l.query.Kind, l.bits, after, end, size)
		if err != nil {
			return err
		}
		complete := len(departed) < size
		if !complete {
			end = bound{id: departed[len(departed)-1], inclusive: true, set: true}
		}
		ids, now := departed, map[string]catalog.Record{}
		for len(ahead) > 0 && (!end.set || ahead[0].ID <= end.id) {
			r := ahead[0]
			now[r.ID] = r
			if micros(r.Created) <= l.at { // an earlier record of the ID has departed
				ids = append(ids, r.ID)
			}
			ahead = ahead[1:]
		}
		for len(l.more) > 0 && (!end.set || l.more[0] <= end.id) {
			ids = append(ids, l.more[0])
			l.more = l.more[1:]
		}
		slices.Sort(ids)
		records, err := l.records(ctx, l.query.Scope, l.query.Kind, slices.Compact(ids), now)
		if err != nil {
			return err
		}
		records = slices.DeleteFunc(records, func(r catalog.Record) bool { return !l.matches(&r) })
		skipped := min(skip, len(records))
		skip -= skipped
		records = records[skipped:]
		if left >= 0 {
			records = records[:min(left, len(records))]
			left -= len(records)
		}
		if err := l.complete(ctx, l.query.Kind, l.query.Fields, records); err != nil {
			return err
		}
		if _, err := l.retained(ctx); err != nil {
			return err
		}
		for _, r := range records {
			if !yield(cloneRecord(r), nil) {
				return nil
			}
		}
		if left == 0 || ended && complete {
			return nil
		}
		after = end
		after.inclusive = false
	}
}

// History returns changes newest first, without those of conditions.
func (s *Store) History(ctx context.Context, q catalog.HistoryQuery) ([]tko.Change, error) {
	if q.Limit <= 0 {
		return nil, ctx.Err()
	}
	after := q.After
	if q.ID == "" {
		oldest, _, err := s.Past(ctx)
		if err != nil {
			return nil, err
		}
		after = max(after, oldest.Position)
	}
	var changes []tko.Change
	read := func(order string, where ...string) Statement {
		b := &builder{dialect: &s.dialect}
		sql := "SELECT c.position, c.kind, c.id, c.op, c.revision, c.updated, c.who, c.why FROM change c WHERE c.op <> 'status' AND c.position > " +
			b.arg(after) + " AND c.position < " + b.arg(q.Before) + " AND c.kind = " + b.arg(string(q.Kind))
		sql += strings.Join(where, "")
		if q.ID != "" {
			sql += " AND c.id = " + b.arg(q.ID)
		}
		return Statement{
			SQL: sql + " ORDER BY " + order + " DESC LIMIT " + b.arg(int64(q.Limit)), Args: b.args,
			Scan: func(from Row) error {
				var c tko.Change
				var kind, op string
				var at int64
				err := from.Scan(&c.Position, &kind, &c.ID, &op, &c.Revision, &at, &c.Author.Who, &c.Author.Why)
				c.Kind, c.Op, c.Time = tko.Kind(kind), tko.Op(op), moment(at)
				changes = append(changes, c)
				return err
			},
		}
	}
	var err error
	if q.ID == "" {
		err = s.run(ctx, read("c.position"))
	} else { // by one index each
		err = s.run(ctx, read("c.revision", " AND c.op = 'written'"), read("c.position", " AND c.op = 'deleted' AND c.departed <> 0"))
	}
	if err != nil {
		return nil, fault("read the history", err)
	}
	slices.SortFunc(changes, func(a, b tko.Change) int { return int(b.Position - a.Position) })
	return changes[:min(len(changes), q.Limit)], nil
}
