package relational

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// A pairKey identifies a metadata entry in the index: the value by its hash.
type pairKey struct {
	kind tko.Kind
	key  string
	hash [16]byte
}

// labelsOf returns the kind under which the index holds the labels of a kind's
// records.
func labelsOf(kind tko.Kind) tko.Kind { return kind + " label" }

func pairOf(kind tko.Kind, key, value string) pairKey {
	sum := sha256.Sum256([]byte(value))
	return pairKey{kind, key, [16]byte(sum[:16])}
}

// maxStart is the number of bytes of a value by which the index is ordered.
const maxStart = 256

// startOf cuts a value to the part that the index is ordered by.
func startOf(value string) string {
	if len(value) <= maxStart {
		return value
	}
	end := maxStart
	for !utf8.RuneStart(value[end]) {
		end--
	}
	return value[:end]
}

// flush returns the statements that write the changes decided since the last
// flush. It may read, and numbers new metadata.
func (g *group) flush(ctx context.Context, run runner) ([]Statement, error) {
	numbering, shared, err := g.numberMetadata(ctx, run)
	if err != nil {
		return nil, err
	}
	indexing, err := g.indexMetadata(ctx, run, shared)
	if err != nil {
		return nil, err
	}
	entities, err := g.entityStatements()
	if err != nil {
		return nil, err
	}
	changes, err := g.logStatements()
	if err != nil {
		return nil, err
	}
	blobs, err := g.blobStatements()
	if err != nil {
		return nil, err
	}
	audits, err := g.auditStatements()
	if err != nil {
		return nil, err
	}
	rollouts, err := g.rolloutStatements()
	if err != nil {
		return nil, err
	}
	statements := slices.Concat(g.tokenStatements(), numbering, indexing, blobs, entities, changes, g.workStatements(), audits, rollouts)
	if n := len(g.changes); n > 0 {
		g.last = g.changes[n-1].after.Key
	}
	g.recorded = g.recorded || len(g.audits) > 0
	g.rollouts, g.changes, g.audits, g.started, g.ended, g.dirty = nil, nil, nil, nil, nil, true
	clear(g.base)
	return statements, nil
}

// Very many deployments have the metadata of their template and nothing else.
// Such metadata has a negative number and is indexed once, by itself: the records
// that have it are found by its number. Other metadata is indexed by record,
// because it may be different for each record.

// isShared reports whether a record's metadata is indexed by itself.
func isShared(kind tko.Kind, m *catalog.Metadata) bool {
	return kind == tko.KindDeployment && len(m.Passed) == 0 && len(m.Labels) == 0 && len(m.Inherited) > 0 && maps.Equal(m.Effective, m.Inherited)
}

// digestOf returns the digest of encoded metadata. Shared and unshared metadata have
// different digests, even if they are equal.
func digestOf(text []byte, shared bool) catalog.Digest {
	if shared {
		text = append([]byte("shared "), text...)
	}
	return sha256.Sum256(text)
}

// numberMetadata sets the metadata numbers of the rows that were written. It returns
// the statements that write new metadata, and the new shared metadata by number.
func (g *group) numberMetadata(ctx context.Context, run runner) (statements []Statement, shared map[int64]*catalog.Metadata, err error) {
	type use struct {
		metadata *catalog.Metadata
		shared   bool
	}
	type doc struct {
		text string
		use
	}
	docs := map[catalog.Digest]doc{}
	digests := map[use]catalog.Digest{}
	known := map[catalog.Digest]int64{}
	read := Statement{
		SQL:     "SELECT m.id, m.digest FROM {rows} CROSS JOIN metaset m WHERE m.digest = r.digest",
		Columns: []Column{{"digest", Bytes}},
		Scan: func(from Row) error {
			var id int64
			var digest []byte
			err := from.Scan(&id, &digest)
			known[catalog.Digest(digest)] = id
			return err
		},
	}
	for _, c := range g.changes {
		m := c.after.Metadata
		if m == nil {
			continue
		}
		u := use{m, isShared(c.after.Kind, m)}
		if _, ok := digests[u]; ok {
			continue
		}
		text, err := json.Marshal(m)
		if err != nil {
			return nil, nil, fmt.Errorf("encode metadata: %w", err)
		}
		digest := digestOf(text, u.shared)
		digests[u] = digest
		if _, ok := docs[digest]; ok {
			continue
		}
		docs[digest] = doc{string(text), u}
		if id, ok := g.stored.metasets.Get(digest); ok {
			known[digest] = id
		} else {
			read.Rows = append(read.Rows, []any{digest[:]})
		}
	}
	if len(read.Rows) > 0 {
		if err := run(ctx, read); err != nil {
			return nil, nil, fault("read metadata", err)
		}
	}
	shared = map[int64]*catalog.Metadata{}
	write := Statement{
		SQL:     "INSERT INTO metaset (id, digest, doc) SELECT r.id, r.digest, r.doc FROM {rows} WHERE true",
		Columns: []Column{{"id", Int}, {"digest", Bytes}, {"doc", Text}},
	}
	for _, row := range read.Rows {
		digest := catalog.Digest(row[0].([]byte)) //nolint:forcetypeassert,errcheck // put there above
		if known[digest] == 0 {
			g.head.number++
			number := g.head.number
			if d := docs[digest]; d.shared {
				number = -number
				shared[number] = d.metadata
			}
			known[digest] = number
			write.Rows = append(write.Rows, []any{number, digest[:], docs[digest].text})
		}
		id, d := known[digest], docs[digest]
		g.cacheFills = append(g.cacheFills, func() {
			g.stored.metasets.Put(digest, id, 1)
			// The maps belong to the caller: the cache holds a copy.
			metadata := new(catalog.Metadata)
			if json.Unmarshal([]byte(d.text), metadata) == nil {
				g.store.metasets.Put(id, metadata, 3*len(d.text)+200)
			}
		})
	}
	for i := range g.changes {
		if after := &g.changes[i].after; after.Metadata != nil {
			after.metaset = known[digests[use{after.Metadata, isShared(after.Kind, after.Metadata)}]]
		}
	}
	for _, r := range g.state {
		if r != nil && r.Metadata != nil {
			r.metaset = known[digests[use{r.Metadata, isShared(r.Kind, r.Metadata)}]]
			r.Metadata = nil
		}
	}
	return []Statement{write}, shared, nil
}

// indexMetadata returns the statements that update the metadata index for the rows
// that were written, and add the new shared metadata.
func (g *group) indexMetadata(ctx context.Context, run runner, shared map[int64]*catalog.Metadata) ([]Statement, error) {
	type difference struct {
		key       catalog.Key
		old, next int64
	}
	var differences []difference
	sets := map[int64]*catalog.Metadata{}
	for i := range g.changes {
		if after := &g.changes[i].after; after.Metadata != nil {
			sets[after.metaset] = after.Metadata
		}
	}
	missing := map[int64]*catalog.Metadata{}
	for key, base := range g.base {
		d := difference{key: key}
		if base != nil {
			d.old = base.metaset
		}
		if next := g.state[key]; next != nil {
			d.next = next.metaset
		}
		if d.old == d.next {
			continue
		}
		differences = append(differences, d)
		for _, id := range []int64{d.old, d.next} {
			if id > 0 && sets[id] == nil {
				missing[id] = nil
			}
		}
	}
	if err := g.store.metadataOf(ctx, run, missing); err != nil {
		return nil, err
	}
	maps.Copy(sets, missing)
	g.sets = sets
	slices.SortFunc(differences, func(a, b difference) int { return compareKeys(a.key, b.key) })

	// indexed returns the index entries of a metaset: metadata and labels.
	indexed := func(kind tko.Kind, id int64) map[tko.Kind]map[string]string {
		if set := sets[id]; set != nil && id > 0 {
			return map[tko.Kind]map[string]string{kind: set.Effective, labelsOf(kind): set.Labels}
		}
		return nil
	}
	type entry struct {
		pair  pairKey
		value string
		of    any // an ID, or the number of a metaset
	}
	var added, removed, sharedEntries []entry
	for _, number := range slices.Sorted(maps.Keys(shared)) {
		for key, value := range shared[number].Effective {
			sharedEntries = append(sharedEntries, entry{pairOf(tko.KindDeployment, key, value), value, number})
		}
	}
	for _, d := range differences {
		before, after := indexed(d.key.Kind, d.old), indexed(d.key.Kind, d.next)
		for _, kind := range []tko.Kind{d.key.Kind, labelsOf(d.key.Kind)} {
			old, next := before[kind], after[kind]
			for key, value := range old {
				if now, ok := next[key]; !ok || now != value {
					removed = append(removed, entry{pairOf(kind, key, value), value, d.key.ID})
				}
			}
			for key, value := range next {
				if was, ok := old[key]; !ok || was != value {
					added = append(added, entry{pairOf(kind, key, value), value, d.key.ID})
				}
			}
		}
	}

	numbers := map[pairKey]int64{}
	values := map[pairKey]string{}
	read := Statement{
		// The start is compared so that the index by start finds few entries: a database
		// without statistics may prefer it to the one by hash.
		SQL: "SELECT p.id, p.kind, p.key, p.hash FROM {rows} CROSS JOIN pair p " +
			"WHERE p.kind = r.kind AND p.key = r.key AND p.hash = r.hash AND p.start = r.start",
		Columns: []Column{{"kind", Text}, {"key", Text}, {"hash", Bytes}, {"start", Text}},
		Scan: func(from Row) error {
			var id int64
			var kind, key string
			var hash []byte
			err := from.Scan(&id, &kind, &key, &hash)
			numbers[pairKey{tko.Kind(kind), key, [16]byte(hash)}] = id
			return err
		},
	}
	var unknown []pairKey
	for _, e := range slices.Concat(added, removed, sharedEntries) {
		if _, ok := values[e.pair]; ok {
			continue
		}
		values[e.pair] = e.value
		if id, ok := g.stored.pairs.Get(e.pair); ok {
			numbers[e.pair] = id
			continue
		}
		unknown = append(unknown, e.pair)
		read.Rows = append(read.Rows, []any{string(e.pair.kind), e.pair.key, e.pair.hash[:], startOf(e.value)})
	}
	if len(unknown) > 0 {
		if err := run(ctx, read); err != nil {
			return nil, fault("read metadata entries", err)
		}
	}
	dictionary := Statement{
		SQL: "INSERT INTO pair (id, kind, key, value, start, hash) " +
			"SELECT r.id, r.kind, r.key, r.value, r.start, r.hash FROM {rows} WHERE true",
		Columns: []Column{{"id", Int}, {"kind", Text}, {"key", Text}, {"value", Text}, {"start", Text}, {"hash", Bytes}},
	}
	for _, p := range unknown {
		if numbers[p] == 0 {
			g.head.number++
			numbers[p] = g.head.number
			dictionary.Rows = append(dictionary.Rows, []any{numbers[p], string(p.kind), p.key, values[p], startOf(values[p]), p.hash[:]})
		}
		id := numbers[p]
		g.cacheFills = append(g.cacheFills, func() { g.stored.pairs.Put(p, id, 1) })
	}
	rowsOf := func(entries []entry) [][]any {
		rows := make([][]any, len(entries))
		for i, e := range entries {
			rows[i] = []any{numbers[e.pair], e.of}
		}
		return rows
	}
	columns := []Column{{"pair", Int}, {"id", Text}}
	return []Statement{
		dictionary,
		{
			SQL:     "DELETE FROM entity_pair WHERE (pair, id) IN (SELECT r.pair, r.id FROM {rows})",
			Columns: columns, Rows: rowsOf(removed),
		},
		{
			SQL:     "INSERT INTO entity_pair (pair, id) SELECT r.pair, r.id FROM {rows} WHERE true",
			Columns: columns, Rows: rowsOf(added),
		},
		{
			SQL:     "INSERT INTO metaset_pair (pair, metaset) SELECT r.pair, r.metaset FROM {rows} WHERE true",
			Columns: []Column{{"pair", Int}, {"metaset", Int}}, Rows: rowsOf(sharedEntries),
		},
	}, nil
}

// blobStatements write the packages that are not known to be stored.
func (g *group) blobStatements() ([]Statement, error) {
	statement := Statement{
		SQL: "INSERT INTO blob (digest, encoding, size, data) " +
			"SELECT r.digest, r.encoding, r.size, r.data FROM {rows} WHERE true ON CONFLICT (digest) DO NOTHING",
		Columns: []Column{{"digest", Bytes}, {"encoding", Int}, {"size", Int}, {"data", Bytes}},
	}
	for i := range g.changes {
		if g.changes[i].op != tko.OpWritten {
			continue
		}
		r := &g.changes[i].after
		for _, blob := range []struct {
			digest catalog.Digest
			data   []byte
		}{{r.Digest, r.Package}, {r.Derivation, r.Derived}} {
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
func (g *group) blobRow(digest catalog.Digest, content []byte) ([]any, error) {
	if content == nil || digest == (catalog.Digest{}) || g.written[digest] {
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
	remove := Statement{
		SQL:     "DELETE FROM entity WHERE (kind, id) IN (SELECT r.k, r.i FROM {rows})",
		Columns: []Column{{"k", Text}, {"i", Text}},
	}
	tokens := Statement{
		SQL:     "DELETE FROM modification WHERE deployment IN (SELECT r.i FROM {rows})",
		Columns: []Column{{"i", Text}},
	}
	add, put := Statement{SQL: addEntity, Columns: entityColumns}, Statement{SQL: putEntity, Columns: entityColumns}
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
		r.Package, r.Derived = nil, nil
	}
	return []Statement{remove, tokens, add, put}, nil
}

var (
	addEntity = "INSERT INTO entity (" + names(entityColumns, "") + ") SELECT " + names(entityColumns, "r.") + " FROM {rows} WHERE true"
	putEntity = addEntity + " ON CONFLICT (kind, id) DO UPDATE SET " + replaced(entityColumns[2:])
	addChange = "INSERT INTO change (" + names(changeColumns, "") + ") SELECT " + names(changeColumns, "r.") + " FROM {rows} WHERE true"
)

// replaced returns the SET clause of an upsert.
func replaced(columns []Column) string {
	var list []byte
	for i, c := range columns {
		if i > 0 {
			list = append(list, ", "...)
		}
		list = append(list, c.Name+" = excluded."+c.Name...)
	}
	return string(list)
}

func (g *group) logStatements() ([]Statement, error) {
	statement := Statement{SQL: addChange, Columns: changeColumns}
	for _, c := range g.changes {
		r := c.after
		r.Updated = g.now
		if c.op != tko.OpWritten { // the content of the record is in its revision
			r = row{Record: catalog.Record{
				Key: r.Key, UID: r.UID, Revision: r.Revision, Position: r.Position, Created: r.Created, Updated: r.Updated, Author: r.Author,
			}}
		}
		steps, err := formatSteps(r.Steps)
		if err != nil {
			return nil, err
		}
		statement.Rows = append(statement.Rows, append(r.values(), string(c.op), orNull(steps), g.departed(&c), r.Base))
	}
	return []Statement{statement}, nil
}

// fillCaches adds the content that was committed to the caches.
func (g *group) fillCaches() {
	for _, learned := range g.cacheFills {
		learned()
	}
}

// workStatements enqueue the work items that the changes cause.
func (g *group) workStatements() []Statement {
	type item struct{ queue, key string }
	enqueued := map[item]bool{} // false: only if the queue has the item
	causes := map[item]string{}
	wakes := map[string]bool{}
	everywhere := false
	for _, c := range g.changes {
		if c.op == tko.OpStatus {
			continue // otherwise controllers would enqueue their own work by reporting conditions
		}
		before, after := c.before.Record, c.after.Record
		if c.op == tko.OpDeleted {
			after = catalog.Record{}
		}
		for _, w := range catalog.WorkFor(before, after) {
			enqueued[item{w.Queue, w.Key}] = enqueued[item{w.Queue, w.Key}] || !w.Again
			if c.cause != "" {
				causes[item{w.Queue, w.Key}] = c.cause
			}
		}
		queues, allSites := catalog.QueuesToWake(before, after)
		for _, q := range queues {
			wakes[q] = true
		}
		everywhere = everywhere || allSites
	}
	enqueue := Statement{
		SQL: enqueueSQL("r.queue, r.key", "r.cause", "{rows}",
			"r.needed = 1 OR EXISTS (SELECT 1 FROM work w WHERE w.queue = r.queue AND w.key = r.key)"),
		Args: []any{int64(0)}, Columns: []Column{{"queue", Text}, {"key", Text}, {"needed", Int}, {"cause", Text}},
	}
	// One statement in the order of the keys, to avoid deadlocks: see lockItems.
	for _, w := range slices.SortedFunc(maps.Keys(enqueued), func(a, b item) int {
		return compareText(a.queue+" "+a.key, b.queue+" "+b.key)
	}) {
		needed := int64(0)
		if enqueued[w] {
			needed = 1
			g.news.add(w.queue)
		}
		enqueue.Rows = append(enqueue.Rows, []any{w.queue, w.key, needed, causes[w]})
	}
	statements := []Statement{enqueue}
	soon := catalog.WakeDelay.Microseconds()
	for _, queue := range slices.Sorted(maps.Keys(wakes)) {
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
	if everywhere {
		g.news.addSoon(tko.QueueSchedule)
		statements = append(statements, Statement{
			SQL:  enqueueSQL("'"+tko.QueueSchedule+"', e.id", "''", "entity e", "e.kind = 'site' ORDER BY e.id"),
			Args: []any{soon},
		})
	}
	return statements
}

// enqueueSQL returns the statement that enqueues work items that are due $1
// microseconds from now. All times of work are the database's when the statement
// runs, because they are compared with those of claims. An item that is claimed is
// processed again when its claim ends. Of several causes, the newest one is kept.
func enqueueSQL(what, cause, from string, where ...string) string {
	condition := "true"
	if len(where) > 0 {
		condition = where[0]
	}
	return "INSERT INTO work (queue, key, generation, due, attempt, last_error, lease_until, claim, claimed, claimed_generation, since, cause) " +
		"SELECT " + what + ", 1, {now} + CAST($1 AS bigint), 0, '', 0, '', 0, 0, {now}, " + cause + " FROM " + from + " WHERE " + condition +
		" ON CONFLICT (queue, key) DO UPDATE SET generation = work.generation + 1, due = CASE " +
		"WHEN work.lease_until > {now} THEN work.due WHEN work.due < excluded.due THEN work.due ELSE excluded.due END, since = CASE " +
		"WHEN work.lease_until > {now} THEN work.since WHEN work.due < excluded.due THEN work.since ELSE excluded.since END, " +
		"cause = CASE WHEN excluded.cause = '' THEN work.cause ELSE excluded.cause END"
}
