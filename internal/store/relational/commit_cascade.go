package relational

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// Deleting a record on which very many others depend takes several steps: each is a
// commit, and changes as many records as can be changed in a short time.

const (
	// stepTime is the target time for which a step blocks other writers. A writer waits
	// for one step at most, which may take several times longer when the database slows
	// down suddenly.
	stepTime = 20 * time.Millisecond
	// The number of records that a step changes: minimum, of the first step,
	// maximum.
	minStep   = 32
	firstStep = 100
	maxStep   = 2000
)

// MaxStep returns the maximum number of records that a step changes.
func (s *Store) MaxStep() int { return maxStep }

// A stepSizer adapts the number of records that a step changes. Only the committer uses
// it.
type stepSizer struct {
	size int // firstStep if 0
}

func (p *stepSizer) next() int {
	if p.size == 0 {
		p.size = firstStep
	}
	return p.size
}

// observe adapts the size after a transaction that changed n records in time d.
func (p *stepSizer) observe(n int, d time.Duration) {
	switch {
	case d > stepTime:
		p.size = int(float64(p.size) * max(0.25, float64(stepTime)/float64(d)))
	case n >= p.size/2:
		p.size = int(float64(p.size) * min(1.5, float64(stepTime)/float64(max(d, 1))))
	}
	p.size = min(max(p.size, minStep), maxStep)
}

// beginStep sets the number of records that a call may change.
func (g *group) beginStep(c *call) {
	for i := range c.writes {
		if sizer := g.store.stepSizers[c.writes[i].Record.Kind]; sizer != nil && c.writes[i].Op == tko.OpDeleted {
			g.step, g.stepSize = sizer, sizer.next()
			g.remaining = g.stepSize
			return
		}
	}
}

// A referrerStatement finds those of the records to delete that records of a kind refer
// to by a column.
type referrerStatement struct {
	statement Statement
	from      tko.Kind
	to        tko.Kind
}

// referrerStatements return the statements that find the records to delete on which
// other records depend. They count, because databases may read all records that refer to
// a record before they return the first.
func (g *group) referrerStatements() []*referrerStatement {
	var list []*referrerStatement
	for _, r := range []struct {
		from, to tko.Kind
		column   string
	}{
		{tko.KindDeployment, tko.KindDeployment, "parent"},
		{tko.KindDeployment, tko.KindSite, "site"},
		{tko.KindDeployment, tko.KindTemplate, "template"},
		{tko.KindSite, tko.KindTemplate, "template"},
	} {
		list = append(list, &referrerStatement{
			Statement{
				SQL: "SELECT r.i FROM {rows} WHERE (SELECT count(*) FROM (SELECT 1 FROM entity x WHERE x.kind = r.k AND x." + r.column +
					" = r.i AND x." + r.column + " <> '' LIMIT 1) AS found) > 0",
				Columns: keyColumns,
				Scan: func(from Row) error {
					key := record.Key{Kind: r.to}
					err := from.Scan(&key.ID)
					g.referred[key] = true
					return err
				},
			}, r.from, r.to,
		})
	}
	return list
}

func (r *referrerStatement) add(key record.Key) {
	if key.Kind == r.to {
		r.statement.Rows = append(r.statement.Rows, []any{string(r.from), key.ID})
	}
}

// hasDependents reports whether other records depend on one that a call deletes: in the
// database, or because of earlier calls or of writes of this one.
func (g *group) hasDependents(c *call) bool {
	deleted := map[record.Key]bool{}
	for i := range c.writes {
		if w := &c.writes[i]; w.Op == tko.OpDeleted && g.state[w.Record.Key] != nil {
			if g.referred[w.Record.Key] {
				return true
			}
			deleted[w.Record.Key] = true
		}
	}
	refers := func(r *record.Record) bool {
		return r.Parent != "" && deleted[record.Key{Kind: r.Kind, ID: r.Parent}] || r.Site != "" && deleted[record.Key{Kind: tko.KindSite, ID: r.Site}] ||
			r.Template != "" && deleted[record.Key{Kind: tko.KindTemplate, ID: r.Template}]
	}
	for i := range c.writes {
		if w := &c.writes[i]; w.Op == tko.OpWritten && refers(&w.Record) {
			return true
		}
	}
	for _, r := range g.state {
		if r != nil && refers(&r.Record) {
			return true
		}
	}
	return false
}

// independent returns the dependents of the records that a call deletes if there are
// none.
func independent(c *call) dependents {
	if !c.cascades {
		return dependents{}
	}
	d := dependents{whole: map[string]bool{}, children: map[string][]string{}}
	for i := range c.writes {
		if w := &c.writes[i]; w.Op == tko.OpDeleted {
			d.whole[w.Record.ID] = true
		}
	}
	return d
}

// dependents are the records that depend on those that a call deletes, as far as
// they were read.
type dependents struct {
	more     map[record.Key]bool // templates and sites with more referring records than were read
	whole    map[string]bool     // deployments that were read with all their descendants
	open     map[string]bool     // deployments some of whose descendants were read
	children map[string][]string
}

// loadDependents reads the records that the deletions of a call change in addition to
// the deleted ones, within the size of the step. It first writes the changes that
// were decided before, so that the reads see them.
func (g *group) loadDependents(ctx context.Context, tx Tx, c *call) error {
	g.dependents = dependents{
		more: map[record.Key]bool{}, whole: map[string]bool{}, open: map[string]bool{}, children: map[string][]string{},
	}
	if len(g.changes) > 0 {
		statements, err := g.flush(ctx, tx.Run)
		if err != nil {
			return err
		}
		if err := tx.Run(ctx, statements...); err != nil {
			return err
		}
	}
	ids := map[tko.Kind][]string{}
	for i := range c.writes {
		if w := &c.writes[i]; w.Op == tko.OpDeleted && g.state[w.Record.Key] != nil {
			ids[w.Record.Kind] = append(ids[w.Record.Kind], w.Record.ID)
		}
	}
	remaining := max(0, g.remaining) // the last step may have exceeded its size by one
	err := g.loadReferrers(ctx, tx, tko.KindTemplate, ids[tko.KindTemplate], &remaining, tko.KindSite, tko.KindDeployment)
	if err == nil {
		err = g.loadReferrers(ctx, tx, tko.KindSite, ids[tko.KindSite], &remaining, tko.KindDeployment)
	}
	if err == nil && len(ids[tko.KindDeployment]) > 0 {
		err = g.loadDescendants(ctx, tx, ids[tko.KindDeployment], remaining/4, &remaining)
	}
	return fault("read what depends on what is deleted", err)
}

// loadReferrers reads records of some kinds that refer to templates or sites, at most
// *remaining.
func (g *group) loadReferrers(ctx context.Context, tx Tx, to tko.Kind, ids []string, remaining *int, kinds ...tko.Kind) error {
	for _, kind := range kinds {
		found := Statement{
			SQL: "SELECT r.i FROM {rows} WHERE EXISTS (SELECT 1 FROM entity x WHERE x.kind = r.k AND x." + string(to) +
				" = r.i AND x." + string(to) + " <> '')",
			Columns: keyColumns,
		}
		var referred []string
		found.Scan = sqldb.Collect(&referred)
		for _, id := range ids {
			found.Rows = append(found.Rows, []any{string(kind), id})
		}
		if err := tx.Run(ctx, found); err != nil {
			return err
		}
		for _, id := range referred {
			var rows []*row
			if *remaining > 0 {
				var err error
				if rows, err = g.readBy(ctx, tx, kind, string(to), id, *remaining+1); err != nil {
					return err
				}
			}
			if len(rows) > *remaining || len(rows) == 0 {
				rows = rows[:min(len(rows), *remaining)]
				g.dependents.more[record.Key{Kind: to, ID: id}] = true
			}
			g.addRows(rows)
			*remaining -= len(rows)
		}
	}
	return nil
}

// The statements below compare the kind of records with a column, not with a
// constant: with a constant, PostgreSQL may read all records of the kind, as long as
// it has no statistics of a new table.

// readBy reads records of a kind by a column that has an index, up to a limit.
// A subquery finds them by the index alone: otherwise, SQLite reads all records of
// the kind.
func (g *group) readBy(ctx context.Context, tx Tx, kind tko.Kind, column, value string, limit int) ([]*row, error) {
	var rows []*row
	err := tx.Run(ctx, Statement{
		SQL: "SELECT " + selectedEntity + " FROM (SELECT x.kind, x.id FROM entity x WHERE x.kind = $1 AND x." + column + " = $2 AND x." +
			column + " <> '' ORDER BY x.kind, x." + column + ", " + g.store.dialect.OrderByID("x", sqldb.Prefixed(column)) + " LIMIT $3) AS found CROSS JOIN entity e WHERE e.kind = found.kind AND e.id = found.id",
		Args: []any{string(kind), value, int64(limit)},
		Scan: scanInto(&rows, limit),
	})
	return rows, err
}

// wide reports whether one of some deployments has more children than a limit. It
// counts, because databases may read all children of a deployment before they return
// the first.
func (g *group) wide(ctx context.Context, tx Tx, ids []string, limit int) (wide bool, err error) {
	err = tx.Run(ctx, Statement{
		SQL:     "SELECT 1 FROM {rows} WHERE (SELECT count(*) FROM (SELECT 1 FROM entity x WHERE x.kind = r.k AND x.parent = r.i AND x.parent <> '' LIMIT $1) AS found) > $2",
		Args:    []any{int64(limit) + 1, int64(limit)},
		Columns: keyColumns, Rows: deploymentRows(ids),
		Scan: sqldb.Found(&wide),
	})
	return wide, err
}

// readTrees reads deployments and all their descendants, up to a limit.
func (g *group) readTrees(ctx context.Context, tx Tx, ids []string, limit int) ([]*row, error) {
	var rows []*row
	statement := Statement{
		SQL:     trees + "SELECT " + selectedEntity + " FROM d CROSS JOIN entity e WHERE e.kind = d.kind AND e.id = d.id LIMIT $1",
		Args:    []any{int64(limit)},
		Columns: keyColumns, Rows: deploymentRows(ids),
		Scan: scanInto(&rows, limit),
	}
	err := tx.Run(ctx, statement)
	if errors.Is(err, errLimitReached) {
		err = nil
	}
	return rows, err
}

// trees is a table d of deployments and all their descendants.
const trees = "WITH RECURSIVE d (kind, id) AS (SELECT e.kind, e.id FROM {rows} CROSS JOIN entity e WHERE e.kind = r.k AND e.id = r.i UNION " +
	"SELECT e.kind, e.id FROM d CROSS JOIN entity e WHERE e.kind = d.kind AND e.parent = d.id AND e.parent <> '') "

// errLimitReached ends a statement that a database runs once for each row, so that
// its LIMIT doesn't limit the total.
var errLimitReached = errors.New("enough")

func scanInto(rows *[]*row, limit int) func(Row) error {
	return func(from Row) error {
		if len(*rows) >= limit {
			return errLimitReached
		}
		r := new(row)
		*rows = append(*rows, r)
		return r.scanEntity(from)
	}
}

// addRows adds rows as the database has them. Rows that are already known are
// newer and stay.
func (g *group) addRows(rows []*row) {
	for _, r := range rows {
		if _, ok := g.state[r.Key]; !ok {
			g.addRow(r)
		}
	}
}

// loadDescendants reads deployments and their descendants: all, or those of as many
// deployments as fit into *remaining. If a single deployment doesn't fit, it is
// opened: those of its children that fit are read. It stops when *remaining is at
// most little and a whole tree was read.
func (g *group) loadDescendants(ctx context.Context, tx Tx, ids []string, little int, remaining *int) error {
	d := &g.dependents
	if *remaining <= little && len(d.whole) > 0 || *remaining <= 0 {
		return nil
	}
	wide, err := g.wide(ctx, tx, ids, *remaining)
	if err != nil {
		return err
	}
	var rows []*row
	if !wide {
		if rows, err = g.readTrees(ctx, tx, ids, *remaining+1); err != nil {
			return err
		}
	}
	if !wide && len(rows) <= *remaining {
		g.addRows(rows)
		for _, r := range rows {
			d.whole[r.ID] = true
			d.children[r.Parent] = append(d.children[r.Parent], r.ID)
		}
		*remaining -= len(rows)
		return nil
	}
	if half := len(ids) / 2; half > 0 {
		if err := g.loadDescendants(ctx, tx, ids[:half], little, remaining); err != nil {
			return err
		}
		return g.loadDescendants(ctx, tx, ids[half:], little, remaining)
	}
	d.open[ids[0]] = true
	if r := g.state[record.Key{Kind: tko.KindDeployment, ID: ids[0]}]; r != nil && !r.Deleting() {
		*remaining--
	}
	rows, err = g.readBy(ctx, tx, tko.KindDeployment, "parent", ids[0], *remaining)
	if err != nil {
		return err
	}
	g.addRows(rows)
	children := make([]string, len(rows))
	for i, r := range rows {
		children[i] = r.ID
	}
	d.children[ids[0]] = append(d.children[ids[0]], children...)
	if len(children) == 0 {
		return nil
	}
	return g.loadDescendants(ctx, tx, children, little, remaining)
}

func (g *group) decideDelete(w *record.Write, current *row) record.Outcome {
	outcome := record.Outcome{Key: w.Record.Key}
	if current == nil {
		return outcome
	}
	switch current.Kind {
	case tko.KindTemplate:
		for _, r := range g.rowsWhere(func(r *row) bool { return r.Template == current.ID }) {
			after := *r
			after.Template = ""
			g.dissociate(w, r, after)
			outcome.Dissociated++
		}
	case tko.KindSite:
		for _, r := range g.rowsWhere(func(r *row) bool { return r.Site == current.ID }) {
			after := *r
			after.Site = ""
			after.Conditions = record.Orphaned(r.Conditions, current.ID, g.now, r.Revision+1)
			g.dissociate(w, r, after)
			outcome.Dissociated++
		}
	case tko.KindDeployment:
		for _, r := range g.descendantsOf(current.ID) {
			switch {
			case g.dependents.whole[r.ID]:
				g.remove(w, r)
				outcome.Descendants++
			case g.dependents.open[r.ID]:
				g.markDeleting(w, r)
			}
		}
		if !g.dependents.whole[current.ID] {
			outcome.More = true
		}
	default: // no record depends on plugins
	}
	outcome.Revision = current.Revision
	outcome.Deleted = outcome.Descendants
	outcome.More = outcome.More || g.dependents.more[current.Key] || g.remaining <= 0
	if outcome.More {
		if outcome.Dissociated > 0 || g.dependents.open[current.ID] {
			g.markDeleting(w, current)
		}
		return outcome
	}
	outcome.Position = g.remove(w, current)
	outcome.Deleted++
	return outcome
}

func (g *group) dissociate(w *record.Write, before *row, after row) {
	after.Revision++
	after.Updated = g.now
	after.Author = w.Record.Author
	g.remaining--
	g.change(tko.OpWritten, *before, after)
}

// markDeleting sets the Deleting condition of a record. From then on, no new record
// may refer to it, so that the deletion ends.
func (g *group) markDeleting(w *record.Write, before *row) {
	if before.Deleting() {
		return
	}
	after := *before
	after.Author = w.Record.Author
	decide.MarkDeleting(&after.Record, g.now)
	g.remaining--
	g.change(tko.OpStatus, *before, after)
}

func (g *group) remove(w *record.Write, r *row) (position int64) {
	after := *r
	after.Author = w.Record.Author
	after.Updated = g.now
	for token, m := range g.tokens {
		if r.Kind == tko.KindDeployment && m.Deployment == r.ID {
			g.endToken(token)
		}
	}
	newest := g.newest[r.Key]
	g.undo = append(g.undo, func() { g.newest[r.Key] = newest })
	if h, ok := g.held[r.ID]; ok && r.Kind == tko.KindDeployment {
		g.undo = append(g.undo, func() { g.held[r.ID] = h })
		delete(g.held, r.ID)
	}
	g.newest[r.Key] = r.Revision
	g.remaining--
	return g.change(tko.OpDeleted, *r, after)
}

// rowsWhere returns the rows for which a condition holds, in the order of IDs.
func (g *group) rowsWhere(holds func(*row) bool) []*row {
	var found []*row
	for _, r := range g.state {
		if r != nil && holds(r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, compareRows)
	return found
}

// descendantsOf returns the known descendants of a deployment, the deepest first.
func (g *group) descendantsOf(id string) []*row {
	d := &g.dependents
	for _, c := range g.changes { // the writes of this call may include new children
		if c.op == tko.OpWritten && c.before.Revision == 0 && c.after.Parent != "" && !d.whole[c.after.ID] {
			d.whole[c.after.ID] = true
			d.children[c.after.Parent] = append(d.children[c.after.Parent], c.after.ID)
		}
	}
	var found []*row
	seen := map[string]bool{id: true}
	for level := []string{id}; len(level) > 0; {
		var next []*row
		for _, parent := range level {
			for _, child := range d.children[parent] {
				if r := g.state[record.Key{Kind: tko.KindDeployment, ID: child}]; r != nil && !seen[child] {
					seen[child] = true
					next = append(next, r)
				}
			}
		}
		slices.SortFunc(next, compareRows)
		level = nil
		for _, r := range next {
			found, level = append(found, r), append(level, r.ID)
		}
	}
	slices.Reverse(found)
	return found
}

func compareRows(a, b *row) int { return compareKeys(a.Key, b.Key) }

func compareKeys(a, b record.Key) int {
	if a.Kind != b.Kind {
		return strings.Compare(string(a.Kind), string(b.Kind))
	}
	return strings.Compare(a.ID, b.ID)
}

// Descendants calls report with the IDs of the descendants of deployments. If the
// connection is lost, it calls report with the same IDs again.
func (s *Store) Descendants(ctx context.Context, ids []string, report func(id string)) error {
	if len(ids) == 0 {
		return ctx.Err()
	}
	for _, id := range ids {
		if err := decide.CheckTexts("ID", id); err != nil {
			return err
		}
	}
	asked := make(map[string]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	return s.retry(ctx, func() error {
		return fault("list descendants", s.db.Run(ctx, Statement{
			SQL:     trees + "SELECT d.id FROM d",
			Columns: keyColumns, Rows: deploymentRows(ids),
			Scan: func(from Row) error {
				var id string
				err := from.Scan(&id)
				if err == nil && !asked[id] {
					report(id)
				}
				return err
			},
		}))
	})
}
