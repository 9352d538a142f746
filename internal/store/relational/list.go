package relational

import (
	"context"
	"iter"
	"maps"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// The number of rows that are read at once: few at first, so that the first
// one comes soon.
const (
	firstChunk = 32
	fullChunk  = 1000
)

const (
	// maxPairs is how many entries of the metadata index a pattern may match
	// for the index to be of use.
	maxPairs = 1000
	// maxSorted is how many records may be sorted for a list.
	maxSorted = 2000
	// maxProbed is how many entries of the metadata index may be tried for each
	// record.
	maxProbed = 4
)

// List answers what matches, sorted by ID.
func (s *Store) List(ctx context.Context, query catalog.Query) iter.Seq2[catalog.Record, error] {
	return func(yield func(catalog.Record, error) bool) {
		err := s.stream(ctx, yield, func(yield func(catalog.Record, error) bool) error { return s.list(ctx, query, yield) })
		if err != nil {
			yield(catalog.Record{}, fault("list", err))
		}
	}
}

func (s *Store) list(ctx context.Context, query catalog.Query, yield func(catalog.Record, error) bool) error {
	if err := checkQuery(&query); err != nil {
		return err
	}
	if query.Limit == 0 {
		return ctx.Err()
	}
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	// Most callers go before the end: a query that is cut off costs its
	// connection, and what was prepared on it. So the caller's going is noticed
	// between queries, which are short.
	caller := ctx
	ctx = context.WithoutCancel(ctx)
	p := &plan{store: s, dialect: &s.dialect, query: &query}
	if err := p.prepare(ctx, tx); err != nil || p.nothing {
		return err
	}
	after, including := query.After, false
	skip := int(query.Offset)
	if skip > 0 && p.rest == nil {
		start, ok, err := p.seek(ctx, tx, skip)
		if err != nil || !ok {
			return err
		}
		after, including, skip = start, true, 0
	}
	left, size := query.Limit, firstChunk
	for {
		if err := caller.Err(); err != nil {
			return err
		}
		if left > 0 && p.rest == nil {
			size = min(size, left)
		}
		rows, err := p.chunk(ctx, tx, after, including, size)
		if err != nil {
			return err
		}
		if len(rows) == 0 {
			return nil
		}
		last := len(rows) < size
		after, including = rows[len(rows)-1].ID, false
		if rows, err = p.fill(ctx, tx, rows, &skip); err != nil {
			return err
		}
		for i := range rows {
			if !yield(rows[i].Record, nil) {
				return nil
			}
			if left--; left == 0 {
				return nil
			}
		}
		if last {
			return nil
		}
		size = min(4*size, fullChunk)
	}
}

// begin begins a transaction that lists.
func (s *Store) begin(ctx context.Context) (tx Tx, err error) {
	err = s.retry(ctx, func() error {
		tx, err = s.db.Begin(ctx, List)
		return err
	})
	return tx, err
}

func checkQuery(q *catalog.Query) error {
	texts := []string{"kind", string(q.Kind), "parent", q.Parent, "ID to start after", q.After}
	for _, p := range slices.Concat(q.IDs, q.Templates, q.Sites) {
		texts = append(texts, "pattern", p.String())
	}
	for _, m := range []map[string]tko.Pattern{q.Metadata, q.TemplateMetadata, q.SiteMetadata} {
		for key, p := range m {
			texts = append(texts, "metadata key", key, "pattern", p.String())
		}
	}
	return checkTexts(texts...)
}

// A plan is how a query is answered.
type plan struct {
	store   *Store
	dialect *Dialect
	query   *catalog.Query

	nothing bool // nothing can match
	from    string
	id      string // the column to go by
	where   []string
	args    []any
	pair    int64        // the entry of the metadata index to go by, or 0
	rest    []restFilter // what isn't in where
}

// A restFilter is a metadata filter for which the index is of no use.
type restFilter struct {
	key   string
	match func(string) bool
}

func (p *plan) arg(value any) string {
	p.args = append(p.args, value)
	return parameter(len(p.args))
}

func (p *plan) add(condition string) { p.where = append(p.where, condition) }

func (p *plan) prepare(ctx context.Context, tx Tx) error {
	q := p.query
	p.from, p.id = "entity e", "e.id"
	p.add("e.kind = " + p.arg(string(q.Kind)))
	for _, pattern := range q.IDs {
		p.match("e.id", pattern)
	}
	for _, pattern := range q.Templates {
		p.match("e.template", pattern)
	}
	for _, pattern := range q.Sites {
		p.match("e.site", pattern)
	}
	if len(q.Templates) > 0 || len(q.TemplateMetadata) > 0 {
		p.add("e.template <> ''")
	}
	if len(q.Sites) > 0 || len(q.SiteMetadata) > 0 {
		p.add("e.site <> ''")
	}
	if q.Parent != "" {
		p.add("e.parent <> '' AND e.parent = " + p.arg(q.Parent))
	}
	p.flag("e.prepared", q.Prepared)
	p.flag("e.approved", q.Approved)
	if q.CRDs {
		p.add("e.crds")
	}
	if err := p.related(ctx, tx, "e.template", tko.KindTemplate, q.TemplateMetadata); err != nil || p.nothing {
		return err
	}
	if err := p.related(ctx, tx, "e.site", tko.KindSite, q.SiteMetadata); err != nil || p.nothing {
		return err
	}
	return p.metadata(ctx, tx)
}

func (p *plan) flag(column string, wanted *bool) {
	switch {
	case wanted == nil:
	case *wanted:
		p.add(column)
	default:
		p.add("NOT " + column)
	}
}

// match adds the condition that a column matches a pattern.
func (p *plan) match(column string, pattern tko.Pattern) {
	if pattern.Exact() {
		p.add(column + " = " + p.arg(pattern.Prefix()))
		return
	}
	p.within(column, pattern.Prefix())
	if !prefixOnly(pattern) {
		p.add(p.dialect.Regexp(column, p.arg(pattern.Regexp())))
	}
}

// within adds the condition that a column starts with a prefix.
func (p *plan) within(column, prefix string) {
	if prefix == "" {
		return
	}
	p.add(column + " >= " + p.arg(prefix))
	if end := next(prefix); end != "" {
		p.add(column + " < " + p.arg(end))
	}
}

// prefixOnly says that a pattern matches all that starts with its prefix.
func prefixOnly(p tko.Pattern) bool {
	return p.Regexp() == "(?s)^"+regexp.QuoteMeta(p.Prefix())+".*$"
}

// next is the least text that is greater than all that start with a prefix, or
// "" if there is none.
func next(prefix string) string {
	runes := []rune(prefix)
	for i := len(runes) - 1; i >= 0; i-- {
		switch c := runes[i] + 1; {
		case c > utf8.MaxRune:
			continue
		case c == 0xD800: // surrogates are no text
			runes[i] = 0xE000
		default:
			runes[i] = c
		}
		return string(runes[:i+1])
	}
	return ""
}

// related adds the condition that a column names a record with metadata.
func (p *plan) related(ctx context.Context, tx Tx, column string, kind tko.Kind, metadata map[string]tko.Pattern) error {
	if len(metadata) == 0 {
		return nil
	}
	var ids map[string]bool
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		sub := &plan{dialect: p.dialect}
		sub.value(kind, key, metadata[key])
		found := map[string]bool{}
		err := tx.Run(ctx, Statement{
			SQL:  "SELECT x.id FROM pair p JOIN entity_pair x ON x.pair = p.id WHERE " + strings.Join(sub.where, " AND "),
			Args: sub.args,
			Scan: func(from Row) error {
				var id string
				err := from.Scan(&id)
				if ids == nil || ids[id] {
					found[id] = true
				}
				return err
			},
		})
		if err != nil {
			return err
		}
		ids = found
	}
	if len(ids) == 0 {
		p.nothing = true
		return nil
	}
	list := slices.Sorted(maps.Keys(ids))
	if len(list) == 1 {
		p.add(column + " = " + p.arg(list[0]))
		return nil
	}
	p.add(p.dialect.In(column, p.arg(p.dialect.List(list))))
	return nil
}

// value adds the conditions that an entry p of the metadata dictionary has a
// key and a value that matches.
func (p *plan) value(kind tko.Kind, key string, pattern tko.Pattern) {
	p.add("p.kind = " + p.arg(string(kind)))
	p.add("p.key = " + p.arg(key))
	if pattern.Exact() {
		hash := pairOf(kind, key, pattern.Prefix()).hash
		p.add("p.hash = " + p.arg(hash[:]))
		return
	}
	p.within("p.start", startOf(pattern.Prefix()))
	if !prefixOnly(pattern) || len(pattern.Prefix()) > maxStart {
		p.add(p.dialect.Regexp("p.value", p.arg(pattern.Regexp())))
	}
}

// metadata adds the conditions on the records' own metadata, and goes by the
// index of metadata if that is the shortest way.
func (p *plan) metadata(ctx context.Context, tx Tx) error {
	type filter struct {
		key     string
		pattern tko.Pattern
		pairs   []int64
		count   int // of records, up to maxSorted+1
	}
	var filters []filter
	for _, key := range slices.Sorted(maps.Keys(p.query.Metadata)) {
		pattern := p.query.Metadata[key]
		pairs, err := p.pairs(ctx, tx, key, pattern)
		switch {
		case err != nil:
			return err
		case len(pairs) == 0:
			p.nothing = true
			return nil
		case len(pairs) > maxPairs:
			p.rest = append(p.rest, restFilter{key, matcher(pattern)})
			continue
		}
		filters = append(filters, filter{key: key, pattern: pattern, pairs: pairs})
	}
	if len(filters) == 0 {
		return nil
	}
	best := 0
	for i := range filters {
		f := &filters[i]
		if len(filters) > 1 || len(f.pairs) > 1 {
			err := tx.Run(ctx, Statement{
				SQL:  "SELECT count(*) FROM (SELECT 1 FROM entity_pair x WHERE " + p.dialect.In("x.pair", "$1") + " LIMIT $2) AS found",
				Args: []any{p.dialect.Ints(f.pairs), int64(maxSorted + 1)},
				Scan: func(from Row) error { return from.Scan(&f.count) },
			})
			if err != nil {
				return err
			}
		}
		if f.count < filters[best].count || f.count == filters[best].count && len(f.pairs) < len(filters[best].pairs) {
			best = i
		}
	}
	for i, f := range filters {
		condition := "x.pair = "
		switch {
		case len(f.pairs) == 1 && i == best:
			p.pair = f.pairs[0]
			p.from, p.id = "entity_pair x JOIN entity e ON e.id = "+oneWay("x.id"), "x.id"
			p.add("x.pair = " + p.arg(p.pair))
			continue
		case i == best && f.count <= maxSorted:
			if err := p.among(ctx, tx, f.pairs); err != nil || p.nothing {
				return err
			}
			continue
		case len(f.pairs) > maxProbed:
			p.rest = append(p.rest, restFilter{f.key, matcher(f.pattern)})
			continue
		case len(f.pairs) == 1:
			condition += p.arg(f.pairs[0])
		default:
			condition = p.dialect.In("x.pair", p.arg(p.dialect.Ints(f.pairs)))
		}
		p.add("EXISTS (SELECT 1 FROM entity_pair x WHERE " + condition + " AND x.id = " + oneWay("e.id") + ")")
	}
	return nil
}

// oneWay hides a column from the planner, so that rows are looked up from it
// and never the other way around: which way is shorter is known here, while
// statistics know averages.
func oneWay(column string) string { return "(" + column + " || '')" }

// among adds the condition that the record has one of the entries of the
// metadata index, of which there are few.
func (p *plan) among(ctx context.Context, tx Tx, pairs []int64) error {
	ids := map[string]bool{}
	err := tx.Run(ctx, Statement{
		SQL:  "SELECT x.id FROM entity_pair x WHERE " + p.dialect.In("x.pair", "$1"),
		Args: []any{p.dialect.Ints(pairs)},
		Scan: func(from Row) error {
			var id string
			err := from.Scan(&id)
			ids[id] = true
			return err
		},
	})
	p.nothing = len(ids) == 0
	p.add(p.dialect.In("e.id", p.arg(p.dialect.List(slices.Sorted(maps.Keys(ids))))))
	return err
}

// pairs answers the entries of the metadata dictionary that match, or more
// than maxPairs.
func (p *plan) pairs(ctx context.Context, tx Tx, key string, pattern tko.Pattern) ([]int64, error) {
	if pattern.Exact() {
		if id, ok := p.store.pairs.get(pairOf(p.query.Kind, key, pattern.Prefix())); ok {
			return []int64{id}, nil
		}
	}
	sub := &plan{dialect: p.dialect}
	sub.value(p.query.Kind, key, pattern)
	var ids []int64
	err := tx.Run(ctx, Statement{
		SQL:  "SELECT p.id FROM pair p WHERE " + strings.Join(sub.where, " AND ") + " LIMIT " + sub.arg(int64(maxPairs+1)),
		Args: sub.args,
		Scan: func(from Row) error {
			var id int64
			err := from.Scan(&id)
			ids = append(ids, id)
			return err
		},
	})
	return ids, err
}

func matcher(pattern tko.Pattern) func(string) bool {
	if prefixOnly(pattern) {
		return func(text string) bool { return strings.HasPrefix(text, pattern.Prefix()) }
	}
	return regexp.MustCompile(pattern.Regexp()).MatchString
}

// seek answers the ID of the record that comes after a number of others.
func (p *plan) seek(ctx context.Context, tx Tx, skip int) (id string, ok bool, err error) {
	by := p
	if p.pair != 0 && len(p.where) == 2 { // nothing but the kind, which the entry is of, too
		by = &plan{from: "entity_pair x", id: "x.id", where: []string{"x.pair = $1"}, args: []any{p.pair}}
	}
	statement := by.statement(by.id, p.query.After, false, 1)
	statement.SQL += " OFFSET " + parameter(len(statement.Args)+1)
	statement.Args = append(statement.Args, int64(skip))
	statement.Scan = func(from Row) error {
		ok = true
		return from.Scan(&id)
	}
	err = tx.Run(ctx, statement)
	return id, ok, err
}

func (p *plan) statement(columns, after string, including bool, limit int) Statement {
	args := slices.Clone(p.args)
	where := strings.Join(p.where, " AND ")
	if after != "" || including {
		args = append(args, after)
		comparison := " > "
		if including {
			comparison = " >= "
		}
		where += " AND " + p.id + comparison + parameter(len(args))
	}
	args = append(args, int64(limit))
	return Statement{
		SQL:  "SELECT " + columns + " FROM " + p.from + " WHERE " + where + " ORDER BY " + p.id + " LIMIT " + parameter(len(args)),
		Args: args,
	}
}

// chunk reads the next rows.
func (p *plan) chunk(ctx context.Context, tx Tx, after string, including bool, size int) ([]row, error) {
	rows := make([]row, 0, size)
	statement := p.statement(names(entityColumns, "e."), after, including, size)
	statement.Scan = func(from Row) error {
		rows = append(rows, row{})
		return rows[len(rows)-1].scanEntity(from)
	}
	return rows, tx.Run(ctx, statement)
}

// fill gives rows what isn't in their table, and leaves out those that don't
// match, and the first skip.
func (p *plan) fill(ctx context.Context, tx Tx, rows []row, skip *int) ([]row, error) {
	s, fields := p.store, p.query.Fields
	if err := s.fillMetadata(ctx, tx.Run, rows); err != nil {
		return nil, err
	}
	if p.rest != nil {
		rows = slices.DeleteFunc(rows, func(r row) bool { return !p.matches(r.Metadata.Effective) })
		skipped := min(*skip, len(rows))
		*skip -= skipped
		rows = rows[skipped:]
	}
	if err := s.fillDeployments(ctx, tx.Run, fields, rows); err != nil {
		return nil, err
	}
	if !fields.Package {
		return rows, nil
	}
	records := make([]*catalog.Record, len(rows))
	for i := range rows {
		records[i] = &rows[i].Record
	}
	return rows, s.fillPackages(ctx, tx.Run, records)
}

func (p *plan) matches(effective map[string]string) bool {
	for _, f := range p.rest {
		if value, ok := effective[f.key]; !ok || !f.match(value) {
			return false
		}
	}
	return true
}
