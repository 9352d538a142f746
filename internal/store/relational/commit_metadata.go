package relational

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/form"
	"github.com/tko-orchestrator/tko/internal/store/selection"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// numberMetadata sets the metadata numbers of the rows that were written. It returns
// the statements that write new metadata, and the new shared metadata by number.
func (g *group) numberMetadata(ctx context.Context, run sqldb.Runner) (statements []Statement, shared map[int64]*record.Metadata, err error) {
	type use struct {
		metadata *record.Metadata
		shared   bool
	}
	type doc struct {
		text string
		use
	}
	docs := map[record.Digest]doc{}
	digests := map[use]record.Digest{}
	known := map[record.Digest]int64{}
	read := Statement{
		SQL:     "SELECT m.id, m.digest FROM {rows} CROSS JOIN metaset m WHERE m.digest = r.digest",
		Columns: []Column{Bytes.As("digest")},
		Scan: func(from Row) error {
			var id int64
			var digest []byte
			err := from.Scan(&id, &digest)
			known[record.Digest(digest)] = id
			return err
		},
	}
	for _, c := range g.changes {
		m := c.after.Metadata
		if m == nil {
			continue
		}
		u := use{m, form.IsShared(c.after.Kind, m)}
		if _, ok := digests[u]; ok {
			continue
		}
		text, err := json.Marshal(m)
		if err != nil {
			return nil, nil, fmt.Errorf("encode metadata: %w", err)
		}
		digest := form.DigestOfMetadata(text, u.shared)
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
	shared = map[int64]*record.Metadata{}
	write := addMetasets
	for _, row := range read.Rows {
		digest := record.Digest(row[0].([]byte)) //nolint:forcetypeassert,errcheck // put there above
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
			metadata := new(record.Metadata)
			if json.Unmarshal([]byte(d.text), metadata) == nil {
				g.store.metasets.Put(id, metadata, 3*len(d.text)+200)
			}
		})
	}
	for i := range g.changes {
		if after := &g.changes[i].after; after.Metadata != nil {
			after.metaset = known[digests[use{after.Metadata, form.IsShared(after.Kind, after.Metadata)}]]
		}
	}
	for _, r := range g.state {
		if r != nil && r.Metadata != nil {
			r.metaset = known[digests[use{r.Metadata, form.IsShared(r.Kind, r.Metadata)}]]
			r.Metadata = nil
		}
	}
	return []Statement{write}, shared, nil
}

// indexMetadata returns the statements that update the metadata index for the rows
// that were written, and add the new shared metadata.
func (g *group) indexMetadata(ctx context.Context, run sqldb.Runner, shared map[int64]*record.Metadata) ([]Statement, error) {
	type difference struct {
		key       record.Key
		old, next int64
	}
	var differences []difference
	sets := map[int64]*record.Metadata{}
	for i := range g.changes {
		if after := &g.changes[i].after; after.Metadata != nil {
			sets[after.metaset] = after.Metadata
		}
	}
	missing := map[int64]*record.Metadata{}
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
			return map[tko.Kind]map[string]string{kind: set.Effective, selection.LabelsOf(kind): set.Labels}
		}
		return nil
	}
	type entry struct {
		pair  selection.PairKey
		value string
		of    any // an ID, or the number of a metaset
	}
	var added, removed, sharedEntries []entry
	for _, number := range slices.Sorted(maps.Keys(shared)) {
		for key, value := range shared[number].Effective {
			sharedEntries = append(sharedEntries, entry{selection.PairOf(tko.KindDeployment, key, value), value, number})
		}
	}
	for _, d := range differences {
		before, after := indexed(d.key.Kind, d.old), indexed(d.key.Kind, d.next)
		for _, kind := range []tko.Kind{d.key.Kind, selection.LabelsOf(d.key.Kind)} {
			old, next := before[kind], after[kind]
			for key, value := range old {
				if now, ok := next[key]; !ok || now != value {
					removed = append(removed, entry{selection.PairOf(kind, key, value), value, d.key.ID})
				}
			}
			for key, value := range next {
				if was, ok := old[key]; !ok || was != value {
					added = append(added, entry{selection.PairOf(kind, key, value), value, d.key.ID})
				}
			}
		}
	}

	numbers := map[selection.PairKey]int64{}
	values := map[selection.PairKey]string{}
	read := Statement{
		// The start is compared so that the index by start finds few entries: a database
		// without statistics may prefer it to the one by hash.
		SQL: "SELECT p.id, p.kind, p.key, p.hash FROM {rows} CROSS JOIN pair p " +
			"WHERE p.kind = r.kind AND p.key = r.key AND p.hash = r.hash AND p.start = r.start",
		Columns: []Column{Text.As("kind"), Text.As("key"), Bytes.As("hash"), Text.As("start")},
		Scan: func(from Row) error {
			var id int64
			var kind, key string
			var hash []byte
			err := from.Scan(&id, &kind, &key, &hash)
			numbers[selection.PairKey{Kind: tko.Kind(kind), Key: key, Hash: [16]byte(hash)}] = id
			return err
		},
	}
	var unknown []selection.PairKey
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
		read.Rows = append(read.Rows, []any{string(e.pair.Kind), e.pair.Key, e.pair.Hash[:], selection.StartOf(e.value)})
	}
	if len(unknown) > 0 {
		if err := run(ctx, read); err != nil {
			return nil, fault("read metadata entries", err)
		}
	}
	dictionary := addPairs
	for _, p := range unknown {
		if numbers[p] == 0 {
			g.head.number++
			numbers[p] = g.head.number
			dictionary.Rows = append(dictionary.Rows, []any{numbers[p], string(p.Kind), p.Key, values[p], selection.StartOf(values[p]), p.Hash[:]})
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
	return []Statement{
		dictionary, deleteEntityPairs.With(rowsOf(removed)), addEntityPairs.With(rowsOf(added)), addMetasetPairs.With(rowsOf(sharedEntries)),
	}, nil
}

var (
	addMetasets       = sqldb.Insert("metaset", Int.As("id"), Bytes.As("digest"), Text.As("doc"))
	addMetasetPairs   = sqldb.Insert("metaset_pair", Int.As("pair"), Int.As("metaset"))
	addPairs          = sqldb.Insert("pair", Int.As("id"), Text.As("kind"), Text.As("key"), Text.As("value"), Text.As("start"), Bytes.As("hash"))
	addEntityPairs    = sqldb.Insert("entity_pair", Int.As("pair"), Text.As("id"))
	deleteEntityPairs = sqldb.Delete("entity_pair", Int.As("pair"), Text.As("id"))
)
