package selection

import (
	"context"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// A relation is the conditions on the template or site of the records.
type relation struct {
	plan     *Plan
	column   string
	kind     tko.Kind
	patterns []tko.Pattern
	metadata map[string]tko.Pattern

	keys []relatedKey
}

// A relatedKey is a key that the metadata of the related record must have.
type relatedKey struct {
	key     string
	pattern tko.Pattern
	pairs   []int64 // if more than maxPairs, not all of them
	count   int     // of related records; maxCounted+1 if more
}

func (r *relation) prepare(ctx context.Context) error {
	p := r.plan
	column := "e." + r.column
	exact := false
	r.patterns = slices.DeleteFunc(slices.Clone(r.patterns), func(pattern tko.Pattern) bool {
		if pattern.Exact() {
			p.column(r.column, pattern.Prefix())
			exact = true
		}
		return pattern.Exact()
	})
	if len(r.patterns) == 0 && len(r.metadata) == 0 {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(r.metadata)) {
		pairs, err := p.findPairs(ctx, r.kind, key, r.metadata[key], maxPairs)
		if err != nil {
			return err
		}
		if len(pairs) == 0 {
			p.empty = true
			return nil
		}
		r.keys = append(r.keys, relatedKey{key: key, pattern: r.metadata[key], pairs: pairs})
	}
	hidden := []Condition{plain(column + " <> ''")}
	for _, pattern := range r.patterns {
		hidden = append(hidden, matches(hide(column), pattern)...)
	}
	probed := true
	for _, k := range r.keys {
		hidden = append(hidden, has(k.pairs, column))
		probed = probed && len(k.pairs) <= maxProbed
	}
	if exact && probed { // no other access path is shorter
		p.filters = append(p.filters, filter{hidden: func(b *Builder) string { return b.all(hidden) }})
		return nil
	}
	few, complete, err := r.findFew(ctx)
	if err == nil && !complete && !probed {
		few, err = r.findAll(ctx)
		complete = true
	}
	switch {
	case err != nil:
		return err
	case !complete:
		p.filters = append(p.filters, filter{
			hidden: func(b *Builder) string { return b.all(hidden) },
			find: func(ctx context.Context) (*accessPaths, error) {
				list, err := r.findAll(ctx)
				return &accessPaths{column: r.column, texts: list}, err
			},
		})
	case len(few) == 0:
		p.empty = true
	case len(few) == 1:
		p.column(r.column, few[0])
	default:
		f := filter{hidden: oneOf(hide(column), few)}
		found := &accessPaths{column: r.column, texts: few}
		f.paths = found
		if len(few) > maxMerged {
			f.paths, f.find = nil, func(context.Context) (*accessPaths, error) { return found, nil }
		}
		p.filters = append(p.filters, f)
	}
	return nil
}

// findFew returns the IDs of the related records that fulfil all conditions, within
// the limits. complete is false if there may be more.
func (r *relation) findFew(ctx context.Context) (list []string, complete bool, err error) {
	if len(r.keys) == 0 {
		list, err = r.values(ctx, maxMerged+1)
		complete = len(list) <= maxMerged
		return r.filterByPattern(list), complete, err
	}
	if slices.ContainsFunc(r.keys, func(k relatedKey) bool { return len(k.pairs) > maxPairs }) {
		return nil, false, nil
	}
	if len(r.keys) > 1 {
		if err := r.count(ctx); err != nil {
			return nil, false, err
		}
	}
	slices.SortStableFunc(r.keys, func(a, b relatedKey) int { return a.count - b.count })
	b := &Builder{Dialect: r.plan.dialect}
	where := []Condition{among("x.pair", r.keys[0].pairs)}
	for _, k := range r.keys[1:] {
		where = append(where, has(k.pairs, "x.id"))
	}
	list, err = r.texts(ctx, "SELECT x.id FROM entity_pair x WHERE "+b.all(where)+" LIMIT "+b.Arg(int64(maxMerged+1)), b.Args)
	complete = len(list) <= maxMerged
	return r.filterByPattern(list), complete, err
}

// count counts how many related records have each key, up to maxCounted+1.
func (r *relation) count(ctx context.Context) error {
	statements := make([]sqldb.Statement, len(r.keys))
	for i := range r.keys {
		k := &r.keys[i]
		b := &Builder{Dialect: r.plan.dialect}
		statements[i] = sqldb.Statement{
			SQL: "SELECT count(*) FROM (SELECT 1 FROM entity_pair x WHERE " + among("x.pair", k.pairs)(b) +
				" LIMIT " + b.Arg(int64(maxCounted+1)) + ") AS found",
			Args: b.Args,
			Scan: func(from sqldb.Row) error { return from.Scan(&k.count) },
		}
	}
	return r.plan.run(ctx, statements...)
}

// findAll returns the IDs of all related records that fulfil all conditions.
func (r *relation) findAll(ctx context.Context) ([]string, error) {
	if len(r.keys) == 0 {
		list, err := r.values(ctx, -1)
		return r.filterByPattern(list), err
	}
	var found map[string]bool
	for _, k := range r.keys {
		b := &Builder{Dialect: r.plan.dialect}
		sql := "SELECT x.id FROM entity_pair x WHERE "
		where := []Condition{among("x.pair", k.pairs)}
		if len(k.pairs) > maxPairs {
			sql = "SELECT x.id FROM pair p JOIN entity_pair x ON x.pair = p.id WHERE "
			where = entries(r.kind, k.key, k.pattern)
		}
		list, err := r.texts(ctx, sql+b.all(where), b.Args)
		if err != nil {
			return nil, err
		}
		both := map[string]bool{}
		for _, id := range list {
			if found == nil || found[id] {
				both[id] = true
			}
		}
		found = both
	}
	return r.filterByPattern(slices.Sorted(maps.Keys(found))), nil
}

// table is the table of records, read by the index on the relation's column.
func (r *relation) table() string {
	return "entity e" + r.plan.dialect.ByIndex("entity_by_"+r.column)
}

// between returns conditions on the column: from limits it to the range that can
// match the patterns, to only to the end of that range.
func (r *relation) between() (from, to []Condition) {
	column := "e." + r.column
	low, high := bound{}, bound{}
	for _, pattern := range r.patterns {
		prefix := pattern.Prefix()
		low = low.greater(bound{id: prefix, inclusive: true, set: prefix != ""})
		high = high.less(bound{id: prefixEnd(prefix), set: prefixEnd(prefix) != ""})
	}
	to = []Condition{equals("e.kind", string(r.plan.query.Kind)), plain(column + " <> ''")}
	if high.set {
		to = append(to, func(b *Builder) string { return column + " < " + b.Arg(high.id) })
	}
	from = slices.Clip(to)
	if low.set {
		from = append(from, func(b *Builder) string { return column + " >= " + b.Arg(low.id) })
	}
	return from, to
}

// values returns the distinct values of the column in the range that can match the
// patterns. It skips from one value to the next.
func (r *relation) values(ctx context.Context, limit int) ([]string, error) {
	column := "e." + r.column
	b := &Builder{Dialect: r.plan.dialect}
	first, where := r.between()
	least := func(where []Condition) string {
		return "(SELECT " + column + " FROM " + r.table() + " WHERE " + b.all(where) + " ORDER BY " + column + " LIMIT 1)"
	}
	sql := "WITH RECURSIVE d (v) AS (SELECT " + least(first) + " UNION ALL SELECT " +
		least(append(slices.Clip(where), plain(column+" > d.v"))) + " FROM d WHERE d.v IS NOT NULL) SELECT d.v FROM d WHERE d.v IS NOT NULL"
	if limit >= 0 {
		sql += " LIMIT " + b.Arg(int64(limit))
	}
	return r.texts(ctx, sql, b.Args)
}

// filterByPattern removes the texts that don't match the patterns, and sorts the rest.
func (r *relation) filterByPattern(list []string) []string {
	for _, pattern := range r.patterns {
		match := matcher(pattern)
		list = slices.DeleteFunc(list, func(text string) bool { return !match(text) })
	}
	slices.Sort(list)
	return list
}

// texts runs a statement that reads one column.
func (r *relation) texts(ctx context.Context, sql string, args []any) (list []string, err error) {
	err = r.plan.run(ctx, sqldb.Statement{SQL: sql, Args: args, Scan: sqldb.Collect(&list)})
	return list, err
}
