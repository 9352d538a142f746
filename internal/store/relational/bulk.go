package relational

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// Deleting what very many depend on goes in steps: each is a commit like any
// other, and changes as many records as can be changed in a short time.

const (
	// stepTime is how long a step should keep others from writing. Who comes
	// when one has begun may wait for it and for the next.
	stepTime = 30 * time.Millisecond
	// The number of records that a step changes: at least, in the first, at
	// most.
	minStep   = 64
	firstStep = 200
	maxStep   = catalog.MaxStep
)

// A pace is how many records a step changes.
type pace struct {
	mutex sync.Mutex
	size  int // 0: firstStep
}

func (p *pace) step() int {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.size == 0 {
		p.size = firstStep
	}
	return p.size
}

// took learns from a transaction that changed n records in steps.
func (p *pace) took(n int, d time.Duration) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	switch {
	case d > stepTime:
		p.size = int(float64(p.size) * max(0.25, float64(stepTime)/float64(d)))
	case n >= p.size/2:
		p.size = int(float64(p.size) * min(2, float64(stepTime)/float64(max(d, 1))))
	}
	p.size = min(max(p.size, minStep), maxStep)
}

// dependents are what is known of the records that depend on those that a call
// deletes.
type dependents struct {
	more     map[catalog.Key]bool // templates and sites to which more refer than were read
	whole    map[string]bool      // deployments that were read with all their descendants
	open     map[string]bool      // deployments some of whose descendants were read
	children map[string][]string
}

// loadDependents reads what the deletions of a call change beside what they
// delete, as far as the step goes. What was decided before is written first,
// to be seen.
func (g *group) loadDependents(ctx context.Context, tx Tx, c *call) error {
	g.dependents = dependents{
		more: map[catalog.Key]bool{}, whole: map[string]bool{}, open: map[string]bool{}, children: map[string][]string{},
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
	left := max(0, g.left) // the last step may have gone one further
	err := g.loadReferrers(ctx, tx, tko.KindTemplate, ids[tko.KindTemplate], &left, tko.KindSite, tko.KindDeployment)
	if err == nil {
		err = g.loadReferrers(ctx, tx, tko.KindSite, ids[tko.KindSite], &left, tko.KindDeployment)
	}
	if err == nil && len(ids[tko.KindDeployment]) > 0 {
		err = g.loadBelow(ctx, tx, ids[tko.KindDeployment], left/4, &left)
	}
	return fault("read what depends on what is deleted", err)
}

// loadReferrers reads records of some kinds that refer to templates or sites,
// as many as are left.
func (g *group) loadReferrers(ctx context.Context, tx Tx, to tko.Kind, ids []string, left *int, kinds ...tko.Kind) error {
	for _, kind := range kinds {
		found := Statement{
			SQL: "SELECT r.i FROM {rows} WHERE EXISTS (SELECT 1 FROM entity x WHERE x.kind = r.k AND x." + string(to) +
				" = r.i AND x." + string(to) + " <> '')",
			Columns: []Column{{"k", Text}, {"i", Text}},
		}
		var referred []string
		found.Scan = func(from Row) error {
			var id string
			err := from.Scan(&id)
			referred = append(referred, id)
			return err
		}
		for _, id := range ids {
			found.Rows = append(found.Rows, []any{string(kind), id})
		}
		if err := tx.Run(ctx, found); err != nil {
			return err
		}
		for _, id := range referred {
			var rows []*row
			if *left > 0 {
				var err error
				if rows, err = g.readBy(ctx, tx, kind, string(to), id, *left+1); err != nil {
					return err
				}
			}
			if len(rows) > *left || len(rows) == 0 {
				rows = rows[:min(len(rows), *left)]
				g.dependents.more[catalog.Key{Kind: to, ID: id}] = true
			}
			g.learnAll(rows)
			*left -= len(rows)
		}
	}
	return nil
}

// The statements below say of what kind records are by a column of the table
// that they go by, not by a constant: PostgreSQL takes a constant for a good
// reason to go through all records of the kind, as long as it has no
// statistics of a young table.

// readBy reads records of a kind by a column that has an index, up to a limit.
// They are found by the index alone, and then read: SQLite goes through all
// records of the kind otherwise.
func (g *group) readBy(ctx context.Context, tx Tx, kind tko.Kind, column, value string, limit int) ([]*row, error) {
	var rows []*row
	err := tx.Run(ctx, Statement{
		SQL: "SELECT " + names(entityColumns, "e.") + " FROM (SELECT x.kind, x.id FROM entity x WHERE x.kind = $1 AND x." + column + " = $2 AND x." +
			column + " <> '' ORDER BY x.kind, x." + column + ", x.id LIMIT $3) AS found CROSS JOIN entity e WHERE e.kind = found.kind AND e.id = found.id",
		Args: []any{string(kind), value, int64(limit)},
		Scan: scanInto(&rows, limit),
	})
	return rows, err
}

// wide says whether one of some deployments has more children than a limit.
// Databases may find all children of a deployment before they answer the first.
func (g *group) wide(ctx context.Context, tx Tx, ids []string, limit int) (wide bool, err error) {
	err = tx.Run(ctx, Statement{
		SQL:     "SELECT 1 FROM {rows} WHERE (SELECT count(*) FROM (SELECT 1 FROM entity x WHERE x.kind = r.k AND x.parent = r.i AND x.parent <> '' LIMIT $1) AS found) > $2",
		Args:    []any{int64(limit) + 1, int64(limit)},
		Columns: treesColumns, Rows: treesRows(ids),
		Scan: func(from Row) error {
			wide = true
			return from.Scan(new(int64))
		},
	})
	return wide, err
}

// readTrees reads deployments and all their descendants, up to a limit.
func (g *group) readTrees(ctx context.Context, tx Tx, ids []string, limit int) ([]*row, error) {
	var rows []*row
	statement := Statement{
		SQL:     trees + "SELECT " + names(entityColumns, "e.") + " FROM d CROSS JOIN entity e WHERE e.kind = d.kind AND e.id = d.id LIMIT $1",
		Args:    []any{int64(limit)},
		Columns: treesColumns, Rows: treesRows(ids),
		Scan: scanInto(&rows, limit),
	}
	err := tx.Run(ctx, statement)
	if errors.Is(err, errEnough) {
		err = nil
	}
	return rows, err
}

// trees is a table d of deployments and their descendants.
const trees = "WITH RECURSIVE d (kind, id) AS (SELECT e.kind, e.id FROM {rows} CROSS JOIN entity e WHERE e.kind = r.k AND e.id = r.i UNION " +
	"SELECT e.kind, e.id FROM d CROSS JOIN entity e WHERE e.kind = d.kind AND e.parent = d.id AND e.parent <> '') "

var treesColumns = []Column{{"k", Text}, {"i", Text}}

func treesRows(ids []string) [][]any {
	rows := make([][]any, len(ids))
	for i, id := range ids {
		rows[i] = []any{string(tko.KindDeployment), id}
	}
	return rows
}

// errEnough ends a statement that a database runs once for each row, so that
// its limit isn't one of all.
var errEnough = errors.New("enough")

func scanInto(rows *[]*row, limit int) func(Row) error {
	return func(from Row) error {
		if len(*rows) >= limit {
			return errEnough
		}
		r := new(row)
		*rows = append(*rows, r)
		return r.scanEntity(from)
	}
}

// learnAll takes rows as the database has them. What is known already is as
// new.
func (g *group) learnAll(rows []*row) {
	for _, r := range rows {
		if _, ok := g.state[r.Key]; !ok {
			g.learn(r)
		}
	}
}

// loadBelow reads deployments and their descendants: all, or those of as many
// of them as fit into what is left. One that doesn't fit in alone is opened:
// those of its children that fit in are read. It gives up when little is left.
func (g *group) loadBelow(ctx context.Context, tx Tx, ids []string, little int, left *int) error {
	d := &g.dependents
	if *left <= little && len(d.whole) > 0 || *left <= 0 {
		return nil
	}
	wide, err := g.wide(ctx, tx, ids, *left)
	if err != nil {
		return err
	}
	var rows []*row
	if !wide {
		if rows, err = g.readTrees(ctx, tx, ids, *left+1); err != nil {
			return err
		}
	}
	if !wide && len(rows) <= *left {
		g.learnAll(rows)
		for _, r := range rows {
			d.whole[r.ID] = true
			d.children[r.Parent] = append(d.children[r.Parent], r.ID)
		}
		*left -= len(rows)
		return nil
	}
	if half := len(ids) / 2; half > 0 {
		if err := g.loadBelow(ctx, tx, ids[:half], little, left); err != nil {
			return err
		}
		return g.loadBelow(ctx, tx, ids[half:], little, left)
	}
	d.open[ids[0]] = true
	if r := g.state[catalog.Key{Kind: tko.KindDeployment, ID: ids[0]}]; r != nil && !r.Deleting() {
		*left--
	}
	rows, err = g.readBy(ctx, tx, tko.KindDeployment, "parent", ids[0], *left)
	if err != nil {
		return err
	}
	g.learnAll(rows)
	children := make([]string, len(rows))
	for i, r := range rows {
		children[i] = r.ID
	}
	d.children[ids[0]] = append(d.children[ids[0]], children...)
	if len(children) == 0 {
		return nil
	}
	return g.loadBelow(ctx, tx, children, little, left)
}

func (g *group) decideDelete(w *catalog.Write, current *row) catalog.Outcome {
	outcome := catalog.Outcome{Key: w.Record.Key}
	if current == nil {
		return outcome
	}
	switch current.Kind {
	case tko.KindTemplate:
		for _, r := range g.where(func(r *row) bool { return r.Template == current.ID }) {
			after := *r
			after.Template = ""
			g.dissociate(w, r, after)
			outcome.Dissociated++
		}
	case tko.KindSite:
		for _, r := range g.where(func(r *row) bool { return r.Site == current.ID }) {
			after := *r
			after.Site = ""
			after.Conditions = catalog.Orphaned(r.Conditions, current.ID, g.now, r.Revision+1)
			g.dissociate(w, r, after)
			outcome.Dissociated++
		}
	case tko.KindDeployment:
		for _, r := range g.below(current.ID) {
			switch {
			case g.dependents.whole[r.ID]:
				g.remove(w, r)
				outcome.Descendants++
			case g.dependents.open[r.ID]:
				g.markLeaving(w, r)
			}
		}
		if !g.dependents.whole[current.ID] {
			outcome.More = true
		}
	default: // nothing depends on plugins
	}
	outcome.Revision = current.Revision
	outcome.Deleted = outcome.Descendants
	outcome.More = outcome.More || g.dependents.more[current.Key] || g.left <= 0
	if outcome.More {
		if outcome.Dissociated > 0 || g.dependents.open[current.ID] {
			g.markLeaving(w, current)
		}
		return outcome
	}
	outcome.Position = g.remove(w, current)
	outcome.Deleted++
	return outcome
}

func (g *group) dissociate(w *catalog.Write, before *row, after row) {
	after.Revision++
	after.Updated = g.now
	after.Author = w.Record.Author
	g.left--
	g.change(tko.OpWritten, *before, after)
}

// markLeaving says on a record that its deletion has begun. Nothing new may
// refer to it from then on, so that the deletion comes to its end.
func (g *group) markLeaving(w *catalog.Write, before *row) {
	if before.Deleting() {
		return
	}
	after := *before
	after.Author = w.Record.Author
	after.Conditions = append(slices.DeleteFunc(slices.Clone(before.Conditions), func(c tko.Condition) bool {
		return c.Type == tko.ConditionDeleting
	}), tko.Condition{
		Type: tko.ConditionDeleting, Status: tko.ConditionTrue, Reason: "DeletionBegan", LastTransition: g.now, ObservedRevision: before.Revision,
		Message: "what depends on it goes first; if that was interrupted, delete it again",
	})
	g.left--
	g.change(tko.OpStatus, *before, after)
}

func (g *group) remove(w *catalog.Write, r *row) (position int64) {
	after := *r
	after.Author = w.Record.Author
	after.Updated = g.now
	for token, m := range g.tokens {
		if r.Kind == tko.KindDeployment && m.deployment == r.ID {
			g.endToken(token)
		}
	}
	newest, until := g.newest[r.Key], g.held[r.ID]
	g.undo = append(g.undo, func() { g.newest[r.Key], g.held[r.ID] = newest, until })
	delete(g.held, r.ID)
	g.newest[r.Key] = r.Revision
	g.left--
	return g.change(tko.OpDeleted, *r, after)
}

// where answers the rows for which a condition holds, in the order of IDs.
func (g *group) where(holds func(*row) bool) []*row {
	var found []*row
	for _, r := range g.state {
		if r != nil && holds(r) {
			found = append(found, r)
		}
	}
	slices.SortFunc(found, compareRows)
	return found
}

// below answers the deployments below one that are known, the deepest first.
func (g *group) below(id string) []*row {
	d := &g.dependents
	for _, c := range g.changes { // those of this call: it may have made some just now
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
				if r := g.state[catalog.Key{Kind: tko.KindDeployment, ID: child}]; r != nil && !seen[child] {
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

func compareKeys(a, b catalog.Key) int {
	if a.Kind != b.Kind {
		return compareText(string(a.Kind), string(b.Kind))
	}
	return compareText(a.ID, b.ID)
}

// Descendants calls tell with the IDs of the descendants of deployments: again
// if the connection is lost on the way.
func (s *Store) Descendants(ctx context.Context, ids []string, tell func(id string)) error {
	if len(ids) == 0 {
		return ctx.Err()
	}
	for _, id := range ids {
		if err := checkText("ID", id); err != nil {
			return err
		}
	}
	asked := make(map[string]bool, len(ids))
	for _, id := range ids {
		asked[id] = true
	}
	return s.retry(ctx, func() error {
		return fault("look for descendants", s.db.Run(ctx, Statement{
			SQL:     trees + "SELECT d.id FROM d",
			Columns: treesColumns, Rows: treesRows(ids),
			Scan: func(from Row) error {
				var id string
				err := from.Scan(&id)
				if err == nil && !asked[id] {
					tell(id)
				}
				return err
			},
		}))
	})
}
