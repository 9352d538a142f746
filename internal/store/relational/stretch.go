package relational

import (
	"context"
	"slices"
	"strings"
)

const (
	// The number of entries of an index in a stretch: few at first, so that a
	// wrong choice costs little.
	firstStretch = 500
	fullStretch  = 16_000
	deepStretch  = 100_000 // if much is left out
	// sureRounds is how many stretches are chosen anew, before the choice is kept
	// for as many.
	sureRounds = 8
	// patience is how many entries are looked at, if few of them are of use,
	// before ways are found that it takes long to find.
	patience = 5000
)

// A stretch is a part of the IDs, with the shortest way through it.
type stretch struct {
	way  *way // nil: through all of the kind
	by   int  // the filter whose way it is, or -1
	ids  []string
	many bool // it goes by ids
	end  bound
	last bool // nothing is behind it
}

// A walk goes through what matches, in the order of IDs.
type walk struct {
	*plan
	after bound // what is below was seen
	size  int   // of the next stretch
	now   *stretch

	rounds  int             // of choosing
	best    int             // the filter whose way was the best one
	looked  int             // at entries
	matched int             // of them
	merges  map[int]*merged // by filter
	found   bool
	deep    bool // so much is left out that the longest search is worth it
}

func newWalk(p *plan) *walk {
	return &walk{plan: p, after: p.low, size: firstStretch, merges: map[int]*merged{}}
}

// direct says that all there is to do is to go one way to its end.
func (p *plan) direct() (w *way, ok bool) {
	switch {
	case len(p.filters) == 0:
		return p.entities(""), true
	case len(p.filters) == 1 && p.filters[0].way != nil:
		return p.filters[0].way, true
	}
	return nil, false
}

// stretch answers where the walk is, and finds the next stretch if it is at
// the end of one; nil at the end of all.
func (w *walk) stretch(ctx context.Context) (*stretch, error) {
	if w.now != nil {
		return w.now, nil
	}
	if way, ok := w.direct(); ok {
		w.now = &stretch{way: way, by: len(w.filters) - 1, last: true}
		return w.now, nil
	}
	if !w.found && (w.deep || w.looked >= patience && w.matched < w.looked/32) {
		w.found = true
		for i := range w.filters {
			f := &w.filters[i]
			if f.find == nil {
				continue
			}
			var err error
			if f.ways, err = f.find(ctx); err != nil {
				return nil, err
			}
		}
		w.rounds = 0
	}
	candidates, statements := w.candidates()
	if err := w.run(ctx, statements...); err != nil {
		return nil, err
	}
	var best *stretch
	for _, c := range candidates {
		s := c.stretch()
		if best == nil || s.farther(best) {
			best = s
		}
	}
	w.rounds++
	w.best = best.by
	w.looked += w.size
	if best.many {
		w.looked += len(best.ids) - w.size
	}
	w.size = max(w.size, min(4*w.size, fullStretch))
	w.now = best
	return best, nil
}

// farther says whether a stretch leads farther than another with as many
// entries.
func (s *stretch) farther(other *stretch) bool {
	if s.last || other.last {
		return s.last && (!other.last || s.many && (!other.many || len(s.ids) < len(other.ids)))
	}
	return s.end.id > other.end.id
}

// A candidate is a stretch that may be gone.
type candidate interface{ stretch() *stretch }

// candidates are the ways that there are, and the statements that say how far
// they lead.
func (w *walk) candidates() (list []candidate, statements []Statement) {
	ready := false
	for i, f := range w.filters {
		ready = ready || f.find == nil && (f.way != nil || f.ways != nil)
		// To look at all ways every time would cost more than a wrong choice.
		if w.rounds > sureRounds && w.rounds%sureRounds != 0 && i != w.best {
			continue
		}
		switch {
		case f.way != nil:
			list = append(list, &single{s: stretch{way: f.way, by: i}})
		case f.ways != nil:
			if w.merges[i] == nil {
				w.merges[i] = &merged{ways: f.ways, by: i, known: make([]wayIDs, f.ways.count())}
			}
			list = append(list, w.merges[i])
		}
	}
	if len(list) == 0 || !ready && w.found && !w.deep && (w.best < 0 || w.rounds%sureRounds == 0) {
		list = append(list, &single{s: stretch{way: w.entities(""), by: -1}})
	}
	for _, c := range list {
		switch c := c.(type) {
		case *single:
			statements = append(statements, c.look(w))
		case *merged:
			statements = append(statements, c.look(w)...)
		}
	}
	return list, statements
}

// A single is a candidate that goes one way.
type single struct {
	s    stretch
	ends bool // there are more entries than are wanted
}

// look asks for the last ID of the stretch.
func (c *single) look(w *walk) Statement {
	b := &builder{dialect: &w.store.dialect}
	return Statement{
		SQL: "SELECT " + c.s.way.id + " FROM " + c.s.way.table + " WHERE " + b.all(c.s.way.where) + w.bounds(b, c.s.way.id, w.high) +
			" ORDER BY " + c.s.way.id + " LIMIT 1 OFFSET " + b.arg(int64(w.size-1)),
		Args: b.args,
		Scan: func(from Row) error {
			c.ends = true
			return from.Scan(&c.s.end.id)
		},
	}
}

func (c *single) stretch() *stretch {
	s := c.s
	if s.last = !c.ends; !s.last {
		s.end.inclusive, s.end.set = true, true
	}
	return &s
}

// A merged is a candidate that goes many ways at once: by the first IDs of
// each, as far as all of them are known. What is known of a way is kept until
// the walk has passed it, so that the ways that come later aren't asked again
// and again.
type merged struct {
	ways  *ways
	by    int
	known []wayIDs
}

// wayIDs are the next IDs of a way.
type wayIDs struct {
	ids   []string
	asked int  // for how many
	fresh bool // by this look
	ended bool // there are no more
}

// look asks for the IDs of those ways of which little is known.
func (c *merged) look(w *walk) []Statement {
	var wanted []int
	for i := range c.known {
		k := &c.known[i]
		passed, found := slices.BinarySearch(k.ids, w.after.id)
		if found && !w.after.inclusive {
			passed++
		}
		if w.after.set {
			k.ids = k.ids[passed:]
		}
		if k.fresh = !k.ended && len(k.ids) <= k.asked/2; k.fresh {
			wanted = append(wanted, i)
		}
	}
	if len(wanted) == 0 {
		return nil
	}
	each := max(2, (w.size+len(wanted)-1)/len(wanted))
	var pairs, sets, texts [][]any
	for _, i := range wanted {
		c.known[i] = wayIDs{asked: each, fresh: true}
		switch shared := i - len(c.ways.pairs); {
		case c.ways.column != "":
			texts = append(texts, []any{int64(i), c.ways.texts[i]})
		case shared < 0:
			pairs = append(pairs, []any{int64(i), c.ways.pairs[i]})
		default:
			sets = append(sets, []any{int64(i), c.ways.sets[shared]})
		}
	}
	return slices.Concat(
		c.first(w, each, Column{"v", Int}, pairs, way{table: "entity_pair x", id: "x.id"}, "x.pair"),
		// Only deployments share metadata.
		c.first(w, each, Column{"v", Int}, sets, way{table: "entity e" + w.store.dialect.by("entity_by_metaset"), id: "e.id", where: []condition{plain("e.metaset < 0")}}, "e.metaset"),
		c.first(w, each, Column{"v", Text}, texts, *w.entities("entity_by_"+c.ways.column, plain("e."+c.ways.column+" <> ''")), "e."+c.ways.column),
	)
}

// first asks for the first IDs of a way for each of some values of a column.
func (c *merged) first(w *walk, each int, value Column, rows [][]any, from way, column string) []Statement {
	if len(rows) == 0 {
		return nil
	}
	scan := func(from Row) error {
		var number int
		var id string
		err := from.Scan(&number, &id)
		c.known[number].ids = append(c.known[number].ids, id)
		return err
	}
	inner := func(b *builder, number, value string) string {
		where := append(slices.Clip(from.where), plain(column+" = "+value))
		return "SELECT " + number + " AS n, " + from.id + " AS id FROM " + from.table + " WHERE " + b.all(where) + w.bounds(b, from.id, w.high) +
			" ORDER BY " + from.id + " LIMIT " + b.arg(int64(each))
	}
	if w.store.dialect.Lateral {
		b := &builder{dialect: &w.store.dialect}
		return []Statement{{
			SQL:  "SELECT l.n, l.id FROM {rows} CROSS JOIN LATERAL (" + inner(b, "r.n", "r.v") + ") AS l",
			Args: b.args, Columns: []Column{{"n", Int}, value}, Rows: rows, Scan: scan,
		}}
	}
	statements := make([]Statement, len(rows))
	for i, row := range rows {
		b := &builder{dialect: &w.store.dialect}
		number := b.arg(row[0])
		statements[i] = Statement{SQL: inner(b, "CAST("+number+" AS bigint)", b.arg(row[1])), Args: b.args, Scan: scan}
	}
	return statements
}

func (c *merged) stretch() *stretch {
	s := &stretch{by: c.by, many: true, last: true}
	for i := range c.known {
		k := &c.known[i]
		if k.fresh {
			slices.Sort(k.ids)
			k.ended, k.fresh = len(k.ids) < k.asked, false
		}
		if k.ended {
			continue
		}
		// The ways that have more are known up to the last of their IDs.
		if last := k.ids[len(k.ids)-1]; s.last || last < s.end.id {
			s.last, s.end = false, bound{id: last, inclusive: true, set: true}
		}
	}
	for i := range c.known {
		ids := c.known[i].ids
		if !s.last {
			n, found := slices.BinarySearch(ids, s.end.id)
			if found {
				n++
			}
			ids = ids[:n]
		}
		s.ids = append(s.ids, ids...)
	}
	slices.Sort(s.ids)
	return s
}

// bounds is the condition that an ID lies between where the walk is and an
// end.
func (w *walk) bounds(b *builder, id string, end bound) string {
	var text strings.Builder
	if w.after.set {
		text.WriteString(" AND " + id + orEqual(" >", w.after) + b.arg(w.after.id))
	}
	if end.set {
		text.WriteString(" AND " + id + orEqual(" <", end) + b.arg(end.id))
	}
	return text.String()
}

func orEqual(comparison string, b bound) string {
	if b.inclusive {
		return comparison + "= "
	}
	return comparison + " "
}

// others are the conditions that records must fulfil beside that of the
// stretch's way.
func (w *walk) others(s *stretch) []condition {
	var list []condition
	for i, f := range w.filters {
		if i != s.by && f.hidden != nil {
			list = append(list, f.hidden)
		}
	}
	return list
}

// part is FROM and WHERE of a statement on what of a stretch matches.
func (w *walk) part(b *builder, s *stretch, columns bool) string {
	others := w.others(s)
	table, where := s.way.table, s.way.where
	if s.way.short && (columns || len(others) > 0) {
		table += " JOIN entity e ON e.kind = " + b.arg(string(w.query.Kind)) + " AND e.id = " + hide(s.way.id)
	}
	end := s.end
	if s.last {
		end = w.high
	}
	return " FROM " + table + " WHERE " + b.all(append(slices.Clip(where), others...)) + w.bounds(b, s.way.id, end)
}

// pick is the statement that reads columns of those of some IDs that match.
func (w *walk) pick(s *stretch, ids []string, columns string, scan func(Row) error) Statement {
	b := &builder{dialect: &w.store.dialect}
	// With a kind that is the same for all, the planner may go through all of
	// the kind, and look for each among the IDs.
	where := append([]condition{plain("e.kind = r.k AND e.id = r.i")}, w.others(s)...)
	statement := Statement{
		SQL:     "SELECT " + columns + " FROM {rows} CROSS JOIN entity e WHERE " + b.all(where) + " ORDER BY e.id",
		Args:    b.args,
		Columns: []Column{{"k", Text}, {"i", Text}},
		Rows:    make([][]any, len(ids)),
		Scan:    scan,
	}
	for i, id := range ids {
		statement.Rows[i] = []any{string(w.query.Kind), id}
	}
	return statement
}

// rows reads up to size of the next rows, and says whether there may be more.
func (w *walk) rows(ctx context.Context, size int) (rows []row, more bool, err error) {
	s, err := w.stretch(ctx)
	if err != nil {
		return nil, false, err
	}
	rows = make([]row, 0, size)
	columns, scanner := names(entityColumns, "e."), newEntityScanner()
	scan := func(from Row) error {
		r, err := scanner.scan(from)
		rows = append(rows, r)
		return err
	}
	if s.many {
		ids := s.ids[:min(size, len(s.ids))]
		if err := w.run(ctx, w.pick(s, ids, columns, scan)); err != nil {
			return nil, false, err
		}
		w.matched += len(rows)
		if s.ids = s.ids[len(ids):]; len(s.ids) == 0 {
			return rows, w.pass(s), nil
		}
		w.after = bound{id: ids[len(ids)-1], set: true}
		return rows, true, nil
	}
	b := &builder{dialect: &w.store.dialect}
	sql := w.part(b, s, true)
	err = w.run(ctx, Statement{
		SQL:  "SELECT " + columns + sql + " ORDER BY " + s.way.id + " LIMIT " + b.arg(int64(size)),
		Args: b.args,
		Scan: scan,
	})
	if err != nil {
		return nil, false, err
	}
	w.matched += len(rows)
	if len(rows) < size {
		return rows, w.pass(s), nil
	}
	w.after = bound{id: rows[len(rows)-1].ID, set: true}
	return rows, true, nil
}

// pass leaves a stretch, and says whether anything is behind it.
func (w *walk) pass(s *stretch) (more bool) {
	w.now = nil
	if s.last {
		return false
	}
	w.after = bound{id: s.end.id, set: true}
	return true
}

// skip passes over a number of matches, and says whether there were as many.
// It counts only what the database sees to.
func (w *walk) skip(ctx context.Context, number int) (ok bool, err error) {
	if w.deep = number > patience; w.deep {
		w.size = min(number, deepStretch)
	}
	for number > 0 {
		s, err := w.stretch(ctx)
		if err != nil {
			return false, err
		}
		count := number
		switch {
		case s.many:
			if err := w.sift(ctx, s); err != nil {
				return false, err
			}
			count = len(s.ids)
		case !s.last:
			if count, err = w.count(ctx, s); err != nil {
				return false, err
			}
		}
		switch {
		case count < number:
			number -= count
			if !w.pass(s) {
				return false, nil
			}
			continue
		case s.many:
			w.after = bound{id: s.ids[number-1], set: true}
			s.ids = s.ids[number:]
		default:
			id, found, err := w.nth(ctx, s, number)
			if err != nil || !found {
				return false, err
			}
			w.after = bound{id: id, set: true}
		}
		number = 0
	}
	return true, nil
}

// sift leaves those of a stretch's IDs that match.
func (w *walk) sift(ctx context.Context, s *stretch) error {
	if len(w.others(s)) == 0 {
		return nil
	}
	var ids []string
	err := w.run(ctx, w.pick(s, s.ids, "e.id", func(from Row) error {
		var id string
		err := from.Scan(&id)
		ids = append(ids, id)
		return err
	}))
	s.ids = ids
	return err
}

// count counts what of a stretch matches.
func (w *walk) count(ctx context.Context, s *stretch) (count int, err error) {
	b := &builder{dialect: &w.store.dialect}
	err = w.run(ctx, Statement{
		SQL:  "SELECT count(*)" + w.part(b, s, false),
		Args: b.args,
		Scan: func(from Row) error { return from.Scan(&count) },
	})
	return count, err
}

// nth answers the ID of a match of a stretch by its number, from 1 on.
func (w *walk) nth(ctx context.Context, s *stretch, number int) (id string, found bool, err error) {
	b := &builder{dialect: &w.store.dialect}
	sql := w.part(b, s, false)
	err = w.run(ctx, Statement{
		SQL:  "SELECT " + s.way.id + sql + " ORDER BY " + s.way.id + " LIMIT 1 OFFSET " + b.arg(int64(number-1)),
		Args: b.args,
		Scan: func(from Row) error {
			found = true
			return from.Scan(&id)
		},
	})
	return id, found, err
}
