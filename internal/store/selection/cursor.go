package selection

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

const (
	// The number of index entries in a range: few at first, so that a wrong choice
	// of path costs little.
	firstRangeSize = 500
	maxRangeSize   = 16_000
	deepRangeSize  = 100_000 // if a large offset is skipped
	// maxChecked is the maximum number of IDs of a listed range that one statement checks
	// for a page of fewer rows.
	maxChecked = 1000
	// settledRounds is the number of ranges for which all paths are compared. After
	// that, the choice holds for as many ranges before it is made again.
	settledRounds = 8
	// lookaheadLimit is the number of entries that are examined, if few of them
	// match, before expensive access paths are searched.
	lookaheadLimit = 5000
)

// An idRange is a range of IDs, with the shortest access path through it.
type idRange struct {
	path   *accessPath // nil if listed
	filter int         // index of the filter that the path belongs to, or -1
	ids    []string
	listed bool // the range is read by ids, not by path
	end    bound
	last   bool // no range follows
}

// A Cursor reads the records that match, in the order of IDs.
type Cursor struct {
	*Plan

	after   bound // IDs below were read
	size    int   // number of entries of the next range
	current *idRange

	rounds   int                  // number of ranges chosen
	best     int                  // index of the filter with the best path
	examined int                  // number of entries examined
	checked  int                  // number of IDs of a listed range to check next, while few match
	matched  int                  // number of examined entries that matched
	merges   map[int]*mergedPaths // by index of the filter
	searched bool                 // expensive paths were searched
	deep     bool                 // the offset is so large that any search for paths pays
}

// Cursor returns a cursor before the first record that matches.
func (p *Plan) Cursor() *Cursor {
	return &Cursor{Plan: p, after: p.low, size: firstRangeSize, merges: map[int]*mergedPaths{}}
}

// Seek moves the cursor after an ID.
func (c *Cursor) Seek(id string) { c.after = bound{id: id, set: true} }

// Passed returns the ID up to which the cursor has passed the records.
func (c *Cursor) Passed() string { return c.after.id }

// onlyPath returns the access path that leads to exactly the records that match, if
// there is one.
func (p *Plan) onlyPath() (path *accessPath, ok bool) {
	switch {
	case len(p.filters) == 0:
		return p.entityPath(""), true
	case len(p.filters) == 1 && p.filters[0].path != nil:
		return p.filters[0].path, true
	}
	return nil, false
}

// nextRange returns the current range, or chooses the next one if the current one
// has been read.
func (c *Cursor) nextRange(ctx context.Context) (*idRange, error) {
	if c.current != nil {
		return c.current, nil
	}
	if path, ok := c.onlyPath(); ok {
		c.current = &idRange{path: path, filter: len(c.filters) - 1, last: true}
		return c.current, nil
	}
	if !c.searched && (c.deep || c.examined >= lookaheadLimit && c.matched < c.examined/32) {
		c.searched = true
		for i := range c.filters {
			f := &c.filters[i]
			if f.find == nil {
				continue
			}
			var err error
			if f.paths, err = f.find(ctx); err != nil {
				return nil, err
			}
		}
		c.rounds = 0
	}
	candidates, statements := c.candidatePaths()
	if err := c.run(ctx, statements...); err != nil {
		return nil, err
	}
	var best *idRange
	for _, p := range candidates {
		r := p.idRange()
		if best == nil || r.farther(best) {
			best = r
		}
	}
	c.rounds++
	c.best = best.filter
	c.examined += c.size
	if best.listed {
		c.examined += len(best.ids) - c.size
	}
	c.size = max(c.size, min(4*c.size, maxRangeSize))
	c.current = best
	return best, nil
}

// farther reports whether a range leads farther than another one with as many
// entries.
func (r *idRange) farther(other *idRange) bool {
	if r.last || other.last {
		return r.last && (!other.last || r.listed && (!other.listed || len(r.ids) < len(other.ids)))
	}
	return r.end.id > other.end.id
}

// A candidatePath is an access path, or several, that may be chosen.
type candidatePath interface {
	// probe appends the statements that read how far the path leads.
	probe(c *Cursor, statements []sqldb.Statement) []sqldb.Statement
	idRange() *idRange
}

// candidatePaths returns the paths to compare, and the statements that read how far
// they lead.
func (c *Cursor) candidatePaths() (list []candidatePath, statements []sqldb.Statement) {
	for i, f := range c.filters {
		// To compare all paths every time would cost more than a wrong choice.
		if c.rounds > settledRounds && c.rounds%settledRounds != 0 && i != c.best {
			continue
		}
		switch {
		case f.path != nil:
			list = append(list, &singlePath{r: idRange{path: f.path, filter: i}})
		case f.paths != nil:
			if c.merges[i] == nil {
				c.merges[i] = &mergedPaths{paths: f.paths, filter: i, read: make([]pathIDs, f.paths.count())}
			}
			list = append(list, c.merges[i])
		}
	}
	if len(list) == 0 {
		list = append(list, &singlePath{r: idRange{path: c.entityPath(""), filter: -1}})
	}
	for _, p := range list {
		statements = p.probe(c, statements)
	}
	return list, statements
}

// A singlePath is a candidate with one access path.
type singlePath struct {
	r    idRange
	more bool // the path has more entries than the range
}

// probe reads the last ID of the range.
func (p *singlePath) probe(c *Cursor, statements []sqldb.Statement) []sqldb.Statement {
	b := &Builder{Dialect: c.dialect}
	return append(statements, sqldb.Statement{
		SQL: "SELECT " + p.r.path.id + " FROM " + p.r.path.table + " WHERE " + b.all(p.r.path.where) + c.bounds(b, p.r.path, c.high) +
			" ORDER BY " + c.order(p.r.path) + " LIMIT 1 OFFSET " + b.Arg(int64(c.size-1)),
		Args: b.Args,
		Scan: func(from sqldb.Row) error {
			p.more = true
			return from.Scan(&p.r.end.id)
		},
	})
}

func (p *singlePath) idRange() *idRange {
	r := p.r
	r.last = !p.more
	if !r.last {
		r.end.inclusive, r.end.set = true, true
	}
	return &r
}

// A mergedPaths is a candidate that merges many access paths: the first IDs of each,
// up to an ID to which all of them have been read. IDs are retained until the cursor
// has passed them, so that paths with higher IDs are not read again and again.
type mergedPaths struct {
	paths  *accessPaths
	filter int
	read   []pathIDs
}

// pathIDs are the next IDs of an access path.
type pathIDs struct {
	ids   []string
	asked int  // number of IDs that were asked for
	fresh bool // read by the last probe
	ended bool // the path has no more IDs
}

// probe reads the IDs of those paths of which few IDs are left.
func (p *mergedPaths) probe(c *Cursor, statements []sqldb.Statement) []sqldb.Statement {
	var wanted []int
	for i := range p.read {
		k := &p.read[i]
		passed, found := slices.BinarySearch(k.ids, c.after.id)
		if found && !c.after.inclusive {
			passed++
		}
		if c.after.set {
			k.ids = k.ids[passed:]
		}
		k.fresh = !k.ended && len(k.ids) <= k.asked/2
		if k.fresh {
			wanted = append(wanted, i)
		}
	}
	if len(wanted) == 0 {
		return statements
	}
	each := max(2, (c.size+len(wanted)-1)/len(wanted))
	var pairs, sets, texts [][]any
	for _, i := range wanted {
		p.read[i] = pathIDs{asked: each, fresh: true}
		switch shared := i - len(p.paths.pairs); {
		case p.paths.column != "":
			texts = append(texts, []any{int64(i), p.paths.texts[i]})
		case shared < 0:
			pairs = append(pairs, []any{int64(i), p.paths.pairs[i]})
		default:
			sets = append(sets, []any{int64(i), p.paths.sets[shared]})
		}
	}
	add := func(of firsts) {
		if len(of.rows) > 0 {
			statements = append(statements, p.firstIDs(c, each, of)...)
		}
	}
	add(firsts{sqldb.Int.As("v"), pairs, accessPath{table: "entity_pair x", id: "x.id"}, "x.pair"})
	// Only deployments share metadata.
	shared := accessPath{table: "entity e" + c.dialect.ByIndex("entity_by_metaset"), id: "e.id", where: []Condition{plain("e.metaset < 0")}, prefixed: sqldb.Prefixed("metaset")}
	add(firsts{sqldb.Int.As("v"), sets, shared, "e.metaset"})
	add(firsts{sqldb.Text.As("v"), texts, *c.columnPath(p.paths.column), "e." + p.paths.column})
	return statements
}

// A firsts has values of a column, and where the first IDs of each are read.
type firsts struct {
	value  sqldb.Column // the type of the values
	rows   [][]any      // the number of a value, and the value
	from   accessPath
	column string
}

// firstIDs returns the statements that read the first IDs for each value of a column.
func (p *mergedPaths) firstIDs(c *Cursor, each int, of firsts) []sqldb.Statement {
	from := of.from
	scan := func(row sqldb.Row) error {
		var number int
		var id string
		err := row.Scan(&number, &id)
		p.read[number].ids = append(p.read[number].ids, id)
		return err
	}
	inner := func(b *Builder, number, value string) string {
		where := append(slices.Clip(from.where), plain(of.column+" = "+value))
		return "SELECT " + number + " AS n, " + from.id + " AS id FROM " + from.table + " WHERE " + b.all(where) + c.bounds(b, &from, c.high) +
			" ORDER BY " + c.order(&from) + " LIMIT " + b.Arg(int64(each))
	}
	if c.dialect.Lateral {
		b := &Builder{Dialect: c.dialect}
		return []sqldb.Statement{{
			SQL:  "SELECT l.n, l.id FROM {rows} CROSS JOIN LATERAL (" + inner(b, "r.n", "r.v") + ") AS l",
			Args: b.Args, Columns: []sqldb.Column{sqldb.Int.As("n"), of.value}, Rows: of.rows, Scan: scan,
		}}
	}
	statements := make([]sqldb.Statement, len(of.rows))
	for i, row := range of.rows {
		b := &Builder{Dialect: c.dialect}
		number := b.Arg(row[0])
		statements[i] = sqldb.Statement{SQL: inner(b, "CAST("+number+" AS bigint)", b.Arg(row[1])), Args: b.Args, Scan: scan}
	}
	return statements
}

func (p *mergedPaths) idRange() *idRange {
	r := &idRange{filter: p.filter, listed: true, last: true}
	for i := range p.read {
		k := &p.read[i]
		if k.fresh {
			slices.Sort(k.ids)
			k.ended, k.fresh = len(k.ids) < k.asked, false
		}
		if k.ended {
			continue
		}
		// A path that has more IDs is read up to its last known ID.
		if last := k.ids[len(k.ids)-1]; r.last || last < r.end.id {
			r.last, r.end = false, bound{id: last, inclusive: true, set: true}
		}
	}
	for i := range p.read {
		ids := p.read[i].ids
		if !r.last {
			n, found := slices.BinarySearch(ids, r.end.id)
			if found {
				n++
			}
			ids = ids[:n]
		}
		r.ids = append(r.ids, ids...)
	}
	slices.Sort(r.ids)
	return r
}

// bounds returns the condition that an ID lies between the cursor and an end.
func (c *Cursor) bounds(b *Builder, path *accessPath, end bound) string {
	var text strings.Builder
	indexed := ""
	if path.prefixed {
		indexed = c.dialect.IndexedID("e")
	}
	compare := func(operator string, to bound) {
		text.WriteString(" AND " + path.id + orEqual(operator, to) + b.Arg(to.id))
		switch {
		case indexed == "":
		case c.query.Kind == tko.KindDeployment:
			text.WriteString(" AND " + indexed + operator + "= " + fmt.Sprintf("substr(CAST(%s AS text), 1, %d)", b.Arg(to.id), c.dialect.IDPrefix))
		default:
			text.WriteString(" AND " + indexed + operator + "= " + b.Arg(to.id))
		}
	}
	if c.after.set {
		compare(" >", c.after)
	}
	if end.set {
		compare(" <", end)
	}
	return text.String()
}

// order returns the ORDER BY list that follows an access path.
func (c *Cursor) order(path *accessPath) string {
	if path.prefixed {
		return c.dialect.OrderByID("e", true)
	}
	return path.id
}

// otherConditions returns the conditions on records except for that of the range's
// path.
func (c *Cursor) otherConditions(r *idRange) []Condition {
	var list []Condition
	for i, f := range c.filters {
		if i != r.filter && f.hidden != nil {
			list = append(list, f.hidden)
		}
	}
	return list
}

// fromWhere returns FROM and WHERE of a statement on the matches of a range.
func (c *Cursor) fromWhere(b *Builder, r *idRange, columns bool) string {
	others := c.otherConditions(r)
	table, where := r.path.table, r.path.where
	if r.path.idsOnly && (columns || len(others) > 0) {
		table += " JOIN entity e ON e.kind = " + b.Arg(string(c.query.Kind)) + " AND e.id = " + hide(r.path.id)
	}
	end := r.end
	if r.last {
		end = c.high
	}
	return " FROM " + table + " WHERE " + b.all(append(slices.Clip(where), others...)) + c.bounds(b, r.path, end)
}

// selectIDs returns the statement that reads columns of the matches among ids.
func (c *Cursor) selectIDs(r *idRange, ids []string, columns string, scan func(sqldb.Row) error) sqldb.Statement {
	b := &Builder{Dialect: c.dialect}
	// With a constant kind, the planner may read all records of the kind, and search
	// for each among the IDs. The same for an order that an index has.
	where := append([]Condition{plain("e.kind = r.k AND e.id = r.i")}, c.otherConditions(r)...)
	statement := sqldb.Statement{
		SQL:     "SELECT " + columns + " FROM {rows} CROSS JOIN entity e WHERE " + b.all(where) + " ORDER BY e.id || ''",
		Args:    b.Args,
		Columns: []sqldb.Column{sqldb.Text.As("k"), sqldb.Text.As("i")},
		Rows:    make([][]any, len(ids)),
		Scan:    scan,
	}
	for i, id := range ids {
		statement.Rows[i] = []any{string(c.query.Kind), id}
	}
	return statement
}

// Rows reads up to size of the next rows, and reports whether there may be more. scan
// reads the columns of a row of the table e, and returns its ID.
func (c *Cursor) Rows(ctx context.Context, size int, columns string, scan func(sqldb.Row) (id string, err error)) (more bool, err error) {
	r, err := c.nextRange(ctx)
	if err != nil {
		return false, err
	}
	before, last := c.matched, ""
	each := func(from sqldb.Row) (err error) {
		if c.matched-before == size { // of a range that is read by its IDs
			return nil
		}
		last, err = scan(from)
		c.matched++
		return err
	}
	if r.listed {
		ids := r.ids[:min(max(size, c.checked), len(r.ids))]
		if err := c.run(ctx, c.selectIDs(r, ids, columns, each)); err != nil {
			return false, err
		}
		switch found := c.matched - before; {
		case found == size && len(ids) > size:
			passed, _ := slices.BinarySearch(ids, last)
			ids, c.checked = ids[:passed+1], 0
		case found < len(ids)/8:
			c.checked = min(2*len(ids), maxChecked)
		default:
			c.checked = 0
		}
		r.ids = r.ids[len(ids):]
		if len(r.ids) == 0 {
			return c.advance(r), nil
		}
		c.Seek(ids[len(ids)-1])
		return true, nil
	}
	b := &Builder{Dialect: c.dialect}
	sql := c.fromWhere(b, r, true)
	err = c.run(ctx, sqldb.Statement{
		SQL:  "SELECT " + columns + sql + " ORDER BY " + c.order(r.path) + " LIMIT " + b.Arg(int64(size)),
		Args: b.Args,
		Scan: each,
	})
	if err != nil {
		return false, err
	}
	if c.matched-before < size {
		return c.advance(r), nil
	}
	c.Seek(last)
	return true, nil
}

// Reject reports that a number of the rows that were read don't fulfil the residual
// filters.
func (c *Cursor) Reject(rows int) { c.matched -= rows }

// advance leaves a range, and reports whether there may be rows after it.
func (c *Cursor) advance(r *idRange) (more bool) {
	c.current = nil
	if r.last {
		return false
	}
	c.Seek(r.end.id)
	return true
}

// Skip skips a number of matches, and reports whether there were as many. Residual
// filters are not applied.
func (c *Cursor) Skip(ctx context.Context, number int) (ok bool, err error) {
	c.deep = number > lookaheadLimit
	if c.deep {
		c.size = min(number, deepRangeSize)
	}
	for number > 0 {
		r, err := c.nextRange(ctx)
		if err != nil {
			return false, err
		}
		count := number
		switch {
		case r.listed:
			if err := c.filterIDs(ctx, r); err != nil {
				return false, err
			}
			count = len(r.ids)
		case !r.last:
			if count, err = c.count(ctx, r); err != nil {
				return false, err
			}
		}
		switch {
		case count < number:
			number -= count
			if !c.advance(r) {
				return false, nil
			}
			continue
		case r.listed:
			c.Seek(r.ids[number-1])
			r.ids = r.ids[number:]
		default:
			id, found, err := c.nth(ctx, r, number)
			if err != nil || !found {
				return false, err
			}
			c.Seek(id)
		}
		number = 0
	}
	return true, nil
}

// filterIDs removes those of a range's IDs that don't match.
func (c *Cursor) filterIDs(ctx context.Context, r *idRange) error {
	if len(c.otherConditions(r)) == 0 {
		return nil
	}
	var ids []string
	err := c.run(ctx, c.selectIDs(r, r.ids, "e.id", sqldb.Collect(&ids)))
	r.ids = ids
	return err
}

// count returns the number of matches in a range.
func (c *Cursor) count(ctx context.Context, r *idRange) (count int, err error) {
	b := &Builder{Dialect: c.dialect}
	err = c.run(ctx, sqldb.Statement{
		// Ordered, so that the planner begins with the path: it estimates the hidden
		// conditions as matching next to nothing, and would begin with those.
		SQL:  "SELECT count(*) FROM (SELECT " + r.path.id + c.fromWhere(b, r, false) + " ORDER BY " + c.order(r.path) + ") AS found",
		Args: b.Args,
		Scan: func(from sqldb.Row) error { return from.Scan(&count) },
	})
	return count, err
}

// nth returns the ID of a match of a range by its number, from 1.
func (c *Cursor) nth(ctx context.Context, r *idRange, number int) (id string, found bool, err error) {
	b := &Builder{Dialect: c.dialect}
	sql := c.fromWhere(b, r, false)
	err = c.run(ctx, sqldb.Statement{
		SQL:  "SELECT " + r.path.id + sql + " ORDER BY " + c.order(r.path) + " LIMIT 1 OFFSET " + b.Arg(int64(number-1)),
		Args: b.Args,
		Scan: func(from sqldb.Row) error {
			found = true
			return from.Scan(&id)
		},
	})
	return id, found, err
}
