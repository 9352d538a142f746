package relational

import (
	"context"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
	"github.com/tko-orchestrator/tko/internal/store/form"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// flush returns the statements that write the changes decided since the last
// flush. It may read, and numbers new metadata.
func (g *group) flush(ctx context.Context, run sqldb.Runner) ([]Statement, error) {
	numbering, shared, err := g.numberMetadata(ctx, run)
	if err != nil {
		return nil, err
	}
	indexing, err := g.indexMetadata(ctx, run, shared)
	if err != nil {
		return nil, err
	}
	statements := slices.Concat(g.tokenStatements(), numbering, indexing)
	for _, part := range [...]func() ([]Statement, error){g.blobStatements, g.entityStatements, g.tallyStatements, g.logStatements, g.workStatements, g.auditStatements, g.rolloutStatements, g.reachStatements} {
		more, err := part()
		if err != nil {
			return nil, err
		}
		statements = append(statements, more...)
	}
	if n := len(g.changes); n > 0 {
		g.last = g.changes[n-1].after.Key
	}
	g.recorded = g.recorded || len(g.audits) > 0
	g.rollouts, g.changes, g.audits, g.started, g.ended, g.dirty = nil, nil, nil, nil, nil, true
	clear(g.base)
	return statements, nil
}

// blobStatements write the packages that are not known to be stored.
func (g *group) blobStatements() ([]Statement, error) {
	statement := addBlobs
	for i := range g.changes {
		if g.changes[i].op != tko.OpWritten {
			continue
		}
		r := &g.changes[i].after
		for _, blob := range []struct {
			digest record.Digest
			data   []byte
		}{{r.Digest, r.Package}, {r.Derivation, r.Derived}, {r.Owner, r.Owned}} {
			row, err := g.blobRow(blob.digest, blob.data)
			if err != nil {
				return nil, err
			}
			if row != nil {
				statement.Rows = append(statement.Rows, row)
			}
		}
	}
	return []Statement{statement}, nil
}

// blobRow returns the row of a content; nil if it is known to be stored.
func (g *group) blobRow(digest record.Digest, content []byte) ([]any, error) {
	if content == nil || digest == (record.Digest{}) || g.written[digest] {
		return nil, nil
	}
	g.written[digest] = true
	if _, ok := g.stored.packages.Get(digest); ok {
		return nil, nil
	}
	encoding, data, err := g.store.encode(digest, content)
	if err != nil {
		return nil, err
	}
	own := slices.Clone(content)
	g.cacheFills = append(g.cacheFills, func() {
		g.stored.packages.Put(digest, struct{}{}, 1)
		g.store.blobs.Put(digest, own, len(own)+100)
	})
	return []any{digest[:], int64(encoding), int64(len(content)), data}, nil
}

func (g *group) entityStatements() ([]Statement, error) {
	remove, tokens, add, put := deleteEntities, deleteTokensOf, addEntities, putEntities
	for _, c := range g.changes {
		if c.op == tko.OpDeleted && c.after.Kind == tko.KindDeployment {
			tokens.Rows = append(tokens.Rows, []any{c.after.ID})
		}
	}
	for _, key := range slices.SortedFunc(maps.Keys(g.base), compareKeys) {
		r := g.state[key]
		if r == nil {
			remove.Rows = append(remove.Rows, []any{string(key.Kind), key.ID})
			continue
		}
		values, err := r.entityValues()
		if err != nil {
			return nil, err
		}
		if g.base[key] == nil {
			add.Rows = append(add.Rows, values)
		} else {
			put.Rows = append(put.Rows, values)
		}
		r.Package, r.Derived, r.Owned = nil, nil, nil
	}
	return []Statement{remove, tokens, add, put}, nil
}

var (
	addBlobs       = sqldb.InsertNew("blob", 1, Bytes.As("digest"), Int.As("encoding"), Int.As("size"), Bytes.As("data"))
	addEntities    = sqldb.Insert("entity", entityColumns...)
	putEntities    = sqldb.Upsert("entity", 2, entityColumns...)
	deleteEntities = sqldb.Delete("entity", Text.As("kind"), Text.As("id"))
	deleteTokensOf = sqldb.Delete("modification", Text.As("deployment"))
	addChanges     = sqldb.Insert("change", changeColumns...)
)

func (g *group) logStatements() ([]Statement, error) {
	statement := addChanges
	var noted []Statement
	for _, c := range g.changes {
		r := c.after
		r.Updated = g.now
		if c.op != tko.OpWritten { // the content of the record is in its revision
			metaset := int64(0)
			if c.op == tko.OpStatus && r.Metadata != nil {
				metaset = r.metaset // also here, so that the collection of unused metadata sees it
				noted = append(noted, noteMetadata(&r))
			}
			r = row{metaset: metaset, Record: record.Record{
				Key: r.Key, UID: r.UID, Revision: r.Revision, Position: r.Position, Created: r.Created, Updated: r.Updated, Author: r.Author,
			}}
		}
		steps, err := form.FormatSteps(r.Steps)
		if err != nil {
			return nil, err
		}
		statement.Rows = append(statement.Rows, append(r.values(), string(c.op), orNull(steps), g.departed(&c), r.Base))
	}
	return append([]Statement{statement}, noted...), nil
}

// noteMetadata returns the statement that sets the metadata of a record's newest revision in the
// log, so that they are retained as long as the revision.
func noteMetadata(r *row) Statement {
	return Statement{
		SQL:  "UPDATE change SET metaset = $1 WHERE kind = $2 AND id = $3 AND revision = $4 AND op = 'written'",
		Args: []any{r.metaset, string(r.Kind), r.ID, r.Revision},
	}
}

// fillCaches adds the content that was committed to the caches.
func (g *group) fillCaches() {
	for _, learned := range g.cacheFills {
		learned()
	}
}

// workStatements enqueue the work items that the changes cause.
func (g *group) workStatements() ([]Statement, error) {
	var works decide.Works
	for i := range g.changes {
		c := &g.changes[i]
		works.Add(c.op, c.before.Record, c.after.Record, c.cause)
	}
	requested := Statement{
		SQL: enqueue{"r.queue, r.key", "r.cause", "r.gathers", "{rows}"}.sql(
			"r.needed = 1 OR EXISTS (SELECT 1 FROM work w WHERE w.queue = r.queue AND w.key = r.key)"),
		Args: []any{int64(0)}, Columns: []Column{Text.As("queue"), Text.As("key"), Int.As("needed"), Text.As("cause"), Int.As("gathers")},
	}
	// One statement in the order of the keys, to avoid deadlocks: see lockItems.
	for _, item := range works.Items() {
		if item.Needed {
			g.news.add(item.Queue)
		}
		requested.Rows = append(requested.Rows, []any{item.Queue, item.Key, bit(item.Needed), item.Cause, bit(!item.Urgent)})
	}
	statements := []Statement{requested}
	soon := record.WakeDelay.Microseconds()
	for _, queue := range works.Woken() {
		g.news.addSoon(queue)
		statements = append(
			statements,
			Statement{
				SQL:  "INSERT INTO wake (queue, at) VALUES ($1, {now}) ON CONFLICT (queue) DO UPDATE SET at = excluded.at",
				Args: []any{queue},
			},
			Statement{
				SQL:  "UPDATE work SET due = {now} + $1, since = {now} WHERE queue = $2 AND due > (SELECT {now} + $1) AND lease_until <= (SELECT {now})",
				Args: []any{soon, queue},
			},
		)
	}
	if works.Everywhere {
		g.news.addSoon(tko.QueueSchedule)
		statements = append(statements, Statement{
			SQL:  enqueueSQL("'"+tko.QueueSchedule+"', e.id", "''", "entity e", "e.kind = 'site' ORDER BY e.id"),
			Args: []any{soon},
		})
	}
	return statements, nil
}

// enqueueSQL returns the statement that enqueues work items that are due $1
// microseconds from now. All times of work are the database's when the statement
// runs, because they are compared with those of claims. An item that is claimed is
// processed again when its claim ends. Of several causes, the newest one is kept.
func enqueueSQL(what, cause, from string, where ...string) string {
	return enqueue{what, cause, "0", from}.sql(where...)
}

// An enqueue is what [enqueueSQL] gets. Items for which gathers is 1 aren't due earlier than one that gathers.
type enqueue struct{ what, cause, gathers, from string }

func (e enqueue) sql(where ...string) string {
	condition := "true"
	if len(where) > 0 {
		condition = where[0]
	}
	return "INSERT INTO work (queue, key, generation, due, attempt, last_error, lease_until, claim, claimed, claimed_generation, since, cause, gathering) " +
		"SELECT " + e.what + ", 1, {now} + CAST($1 AS bigint), 0, '', 0, '', 0, 0, {now}, " + e.cause + ", " + e.gathers + " FROM " + e.from + " WHERE " + condition +
		" ON CONFLICT (queue, key) DO UPDATE SET generation = work.generation + 1, due = CASE " +
		"WHEN work.lease_until > {now} THEN work.due WHEN work.due < excluded.due OR work.gathering * excluded.gathering = 1 THEN work.due ELSE excluded.due END, since = CASE " +
		"WHEN work.lease_until > {now} THEN work.since WHEN work.due < excluded.due OR work.gathering * excluded.gathering = 1 THEN work.since ELSE excluded.since END, " +
		"gathering = work.gathering * excluded.gathering, " +
		"cause = CASE WHEN excluded.cause = '' THEN work.cause ELSE excluded.cause END"
}
