package spanner

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// A commit writes the differences that it makes to the numbers of entities to the table tally_pending, without reading any number:
// a number that many commits change would make them wait for each other. They are added up regularly; a reader adds those that aren't
// yet, in its snapshot, so what it returns is exact.

const (
	maxClasses     = 5000 // that are read
	maxClassText   = 1000 // bytes; longer ones aren't distinguished
	maxFailureText = 400  // bytes of a type and reason that are stored as they are
	addUpBatch     = 2000 // differences that one transaction adds up
)

// unclear is the class of entities whose classes are too long.
const unclear = "?"

// tallyState is the row of the table state with the number of transactions that added up.
const tallyState = "tally"

func classText(c *record.Class) string {
	text, err := json.Marshal(c)
	if err != nil || len(text) > maxClassText {
		return unclear
	}
	return string(text)
}

// A failureRow is a row of the table failure, by which the oldest failure of each group is found.
type failureRow struct {
	kind, what string
	since      time.Time
	id         string
}

func failureText(typ, reason string) string {
	text := typ + "|" + reason
	if len(text) > maxFailureText {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	return text
}

// putTally puts the differences that the changes make.
func (t *transaction) putTally(m *mutations) {
	classes, failures := map[string]int64{}, map[failureRow]int{}
	add := func(r *record.Record, n int) {
		c, ok := record.ClassOf(r)
		if !ok {
			return
		}
		classes[classText(&c)] += int64(n)
		for i := range r.Conditions {
			if c := &r.Conditions[i]; record.CanFail(c) {
				failures[failureRow{string(r.Kind), failureText(c.Type, c.Reason), c.LastTransition.UTC().Round(0), r.ID}] += n
			}
		}
	}
	for _, c := range t.changes {
		if c.before != nil {
			add(c.before, -1)
		}
		if c.op != tko.OpDeleted {
			add(c.after, 1)
		}
	}
	for _, class := range slices.Sorted(maps.Keys(classes)) {
		if n := classes[class]; n != 0 { // the key is unique, as that of the first change is
			m.put("tally_pending", []string{"shard", "committed", "class", "n"}, t.first, spanner.CommitTimestamp, class, n)
		}
	}
	for f, n := range failures {
		switch {
		case n > 0:
			m.put("failure", []string{"shard", "kind", "what", "since", "id"}, shardOf(f.id), f.kind, f.what, f.since, f.id)
		case n < 0:
			m.remove("failure", spanner.Key{shardOf(f.id), f.kind, f.what, f.since, f.id})
		}
	}
}

// changedClass is the number of changes that the log and the revisions have.
const changedClass = "#changes"

// putChanged puts the difference that a transaction makes to the number of changes.
func putChanged(m *mutations, slot, n int64) {
	if n != 0 {
		m.put("tally_pending", []string{"shard", "committed", "class", "n"}, slot, spanner.CommitTimestamp, changedClass, n)
	}
}

// A pendingTally is a difference that isn't added up yet.
type pendingTally struct {
	shard     int64
	committed time.Time
	class     string
	n         int64
}

func readPendingTally(ctx context.Context, from reader) (list []pendingTally, err error) {
	statement := spanner.Statement{
		SQL:    "SELECT t.shard, t.committed, t.class, t.n FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s JOIN tally_pending AS t ON t.shard = s LIMIT @most",
		Params: map[string]any{"most": int64(addUpBatch)},
	}
	err = from.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var p pendingTally
		err := row.Columns(&p.shard, &p.committed, &p.class, &p.n)
		list = append(list, p)
		return err
	})
	return list, fault("read the numbers of entities", err)
}

// addUp adds up the differences.
func (s *Store) addUp(ctx context.Context) error {
	for {
		more, err := s.addUpSome(ctx)
		if err != nil || !more {
			return err
		}
	}
}

// addUpSome adds up some differences. If another store was faster, it does nothing. more reports that there may be others.
func (s *Store) addUpSome(ctx context.Context) (more bool, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	before, err := readState(ctx, snapshot, tallyState)
	if err != nil {
		return false, err
	}
	list, err := readPendingTally(ctx, snapshot)
	if err != nil || len(list) == 0 {
		return false, err
	}
	sums := map[string]int64{}
	for _, p := range list {
		sums[p.class] += p.n
	}
	return true, s.write(ctx, "add up the numbers of entities", func(ctx context.Context, tx *spanner.ReadWriteTransaction, m *mutations) error {
		now, err := readState(ctx, tx, tallyState)
		if err != nil || now != before {
			return err // only those who add up remove differences: if none did, all are still there
		}
		var keys []spanner.Key
		for class := range sums {
			keys = append(keys, spanner.Key{class})
		}
		numbers := maps.Clone(sums)
		err = tx.Read(ctx, "tally", spanner.KeySetFromKeys(keys...), []string{"class", "n"}).Do(func(row *spanner.Row) error {
			var class string
			var n int64
			err := row.Columns(&class, &n)
			numbers[class] += n
			return err
		})
		if err != nil {
			return err
		}
		for _, class := range slices.Sorted(maps.Keys(numbers)) {
			if n := numbers[class]; n != 0 {
				m.put("tally", []string{"class", "n"}, class, n)
			} else {
				m.remove("tally", spanner.Key{class})
			}
		}
		for _, p := range list {
			m.remove("tally_pending", spanner.Key{p.shard, p.committed, p.class})
		}
		m.put("state", []string{"name", "value"}, tallyState, now+1)
		return nil
	})
}

// Tally returns the numbers of entities, all of one snapshot.
func (s *Store) Tally(ctx context.Context) (t record.Tally, ok bool, err error) {
	snapshot := s.client.ReadOnlyTransaction()
	defer snapshot.Close()
	if t.Position, err = s.newestOf(ctx, snapshot, 0); err != nil {
		return t, false, err
	}
	statement := spanner.Statement{
		SQL:    "SELECT t.class, SUM(t.n) FROM (SELECT class, n FROM tally UNION ALL SELECT class, n FROM tally_pending) AS t GROUP BY t.class HAVING SUM(t.n) != 0 LIMIT @most",
		Params: map[string]any{"most": int64(maxClasses + 2)},
	}
	ok = true
	err = snapshot.Query(ctx, statement).Do(func(row *spanner.Row) error {
		var class string
		var c record.Counted
		if err := row.Columns(&class, &c.Count); err != nil {
			return err
		}
		if class == changedClass {
			return nil
		}
		if class == unclear {
			ok = false
			return nil
		}
		err := json.Unmarshal([]byte(class), &c.Class)
		t.Classes = append(t.Classes, c)
		return err
	})
	if err != nil || !ok || len(t.Classes) > maxClasses {
		return record.Tally{}, false, fault("read the numbers of entities", err)
	}
	if t.Oldest, err = readOldestFailures(ctx, snapshot, t.Classes); err != nil {
		return record.Tally{}, false, err
	}
	return t, true, nil
}

// readOldestFailures returns the oldest failure of each group that classes have.
func readOldestFailures(ctx context.Context, from reader, classes []record.Counted) (list []record.OldestFailure, err error) {
	type group struct {
		kind        tko.Kind
		typ, reason string
	}
	groups := map[group]record.Key{}
	for _, class := range classes {
		for i := range class.Conditions {
			if c := &class.Conditions[i]; record.CanFail(c) {
				groups[group{class.Kind, c.Type, c.Reason}] = record.Key{}
			}
		}
	}
	var keys []record.Key
	for g := range groups {
		// The first one of each shard, and of these the first.
		statement := spanner.Statement{
			SQL: "SELECT f.id FROM UNNEST(GENERATE_ARRAY(0, 127)) AS s CROSS JOIN UNNEST(ARRAY(SELECT AS STRUCT x.since AS since, x.id AS id FROM failure AS x " +
				"WHERE x.shard = s AND x.kind = @kind AND x.what = @what ORDER BY x.since, x.id LIMIT 1)) AS f ORDER BY f.since, f.id LIMIT 1",
			Params: map[string]any{"kind": string(g.kind), "what": failureText(g.typ, g.reason)},
		}
		err := from.Query(ctx, statement).Do(func(row *spanner.Row) error {
			key := record.Key{Kind: g.kind}
			err := row.Column(0, &key.ID)
			groups[g] = key
			keys = append(keys, key)
			return err
		})
		if err != nil {
			return nil, fault("read the oldest failures", err)
		}
	}
	records, err := readRecords(ctx, from, keys)
	if err != nil {
		return nil, err
	}
	for g, key := range groups {
		r := records[key]
		if r == nil {
			return nil, errNoFailure
		}
		for _, c := range r.Conditions {
			if record.CanFail(&c) && c.Type == g.typ && c.Reason == g.reason {
				list = append(list, record.OldestFailure{Key: key, Condition: c})
				break
			}
		}
	}
	slices.SortFunc(list, func(a, b record.OldestFailure) int {
		return strings.Compare(string(a.Key.Kind)+" "+a.Key.ID, string(b.Key.Kind)+" "+b.Key.ID)
	})
	return list, nil
}

var errNoFailure = errors.New("an oldest failure is missing, although the numbers of entities have its group")
