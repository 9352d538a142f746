package relational

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/form"
	"github.com/tko-orchestrator/tko/internal/store/sqldb"
)

// The table tally has the numbers of sites and deployments by their classes, and the table failure
// where the oldest failure of each group is found. Each commit adds the differences that it
// makes, in its own transaction, so reading them is exact and takes as long for a million
// entities as for ten.
//
// They are right as long as every commit adds to them. Programs of older schemas don't, and don't
// move head.tallied, so it differs from the position of the log from then on. Then, and after a
// restore, all entities are counted again, while servers write: beginTally empties both tables
// and makes head.tallied the position of the log, so that commits add to them from there. A
// snapshot after it has what the commits have added until then, and the entities as of the same
// moment: the difference is what endTally adds. Until then there is the fact stateTally.

// stateTally is the fact of the table state that the numbers are being counted, and since when.
const stateTally = "tally"

// Limits of the numbers.
const (
	maxClasses     = 5000 // that are read; an entity of a class of its own is counted by reading it
	maxClassText   = 1000 // bytes; longer ones aren't distinguished
	maxFailureText = 400  // bytes of a type and reason that are stored as they are
	maxZeros       = 1000 // classes without entities that stay
)

// unclear is the class of a kind's entities whose classes are too long.
const unclear = "?"

// classText encodes a class: the kind, a letter for the flags, and the conditions in the words of
// form.FormatConditions. Its meaning never changes: servers of several versions add to one number.
func classText(c record.Class) string {
	kind, flags := kindLetter(c.Kind), byte('@')
	for i, flag := range [...]bool{c.Prepared, c.Approved, c.AtSite, c.Outdated} {
		if flag {
			flags |= 1 << i
		}
	}
	b := []byte{kind, flags}
	for _, condition := range c.Conditions {
		b = form.AppendWord(b, condition.Type, "")
		b = form.AppendWord(b, condition.Status, "")
		b = form.AppendWord(b, condition.Reason, condition.Type)
	}
	if len(b) > maxClassText {
		return string(kind) + unclear
	}
	return string(b)
}

func kindLetter(kind tko.Kind) byte {
	if kind == tko.KindSite {
		return 's'
	}
	return 'd'
}

// parseClass decodes a class; ok is false if it isn't known.
func parseClass(text string) (c record.Class, ok bool) {
	if len(text) < 2 || text[1:] == unclear {
		return c, false
	}
	c.Kind = tko.KindDeployment
	if text[0] == kindLetter(tko.KindSite) {
		c.Kind = tko.KindSite
	}
	for i, flag := range [...]*bool{&c.Prepared, &c.Approved, &c.AtSite, &c.Outdated} {
		*flag = text[1]&(1<<i) != 0
	}
	p := form.Words{Rest: text[2:]}
	for p.Rest != "" && !p.Bad {
		condition := tko.Condition{Type: p.Word("")}
		condition.Status = p.Word("")
		condition.Reason = p.Word(condition.Type)
		c.Conditions = append(c.Conditions, condition)
	}
	return c, !p.Bad
}

// A failureRow is a row of the table failure.
type failureRow struct {
	kind, what string
	since      int64
	id         string
}

func (f failureRow) values() []any { return []any{f.kind, f.what, f.since, f.id} }

func compareFailures(a, b failureRow) int {
	return cmp.Or(strings.Compare(a.kind, b.kind), strings.Compare(a.what, b.what), cmp.Compare(a.since, b.since), strings.Compare(a.id, b.id))
}

// failureText returns the text of a group of failures.
func failureText(typ, reason string) string {
	text := typ + "|" + reason
	if len(text) > maxFailureText {
		sum := sha256.Sum256([]byte(text))
		return hex.EncodeToString(sum[:])
	}
	return text
}

// sinceOf returns the time of a condition as the table has it.
func sinceOf(c *tko.Condition) int64 {
	if t := c.LastTransition; !t.IsZero() && !t.Before(form.MinTransition) && !t.After(form.MaxTransition) {
		return t.UnixNano()
	}
	return 0
}

// A tallying is numbers of entities and failures, or differences of them.
type tallying struct {
	classes  map[string]int64
	failures map[failureRow]int // 1: is there, -1: is no longer
}

func newTallying() *tallying {
	return &tallying{classes: map[string]int64{}, failures: map[failureRow]int{}}
}

// add adds a record n times: once, or -1 times to remove it.
func (t *tallying) add(r *record.Record, n int) {
	c, ok := record.ClassOf(r)
	if !ok {
		return
	}
	t.classes[classText(c)] += int64(n)
	t.addFailures(r, n)
}

// addFailures is add for the failures of a record alone.
func (t *tallying) addFailures(r *record.Record, n int) {
	for i := range r.Conditions {
		if c := &r.Conditions[i]; record.CanFail(c) {
			t.failures[failureRow{string(r.Kind), failureText(c.Type, c.Reason), sinceOf(c), r.ID}] += n
		}
	}
}

var (
	addTally = Statement{
		SQL: "INSERT INTO tally (class, n) SELECT r.class, r.n FROM {rows} WHERE true " +
			"ON CONFLICT (class) DO UPDATE SET n = tally.n + excluded.n",
		Columns: []Column{Text.As("class"), Int.As("n")},
	}
	failureColumns = []Column{Text.As("kind"), Text.As("what"), Int.As("since"), Text.As("id")}
	addFailures    = sqldb.InsertNew("failure", len(failureColumns), failureColumns...)
	removeFailures = sqldb.Delete("failure", failureColumns...)
)

// statements write the differences, in the order of the keys.
func (t *tallying) statements() []Statement {
	tally := addTally
	for _, class := range slices.Sorted(maps.Keys(t.classes)) {
		if n := t.classes[class]; n != 0 {
			tally.Rows = append(tally.Rows, []any{class, n})
		}
	}
	return append([]Statement{tally}, t.failureStatements()...)
}

func (t *tallying) failureStatements() []Statement {
	remove, add := removeFailures, addFailures
	for _, f := range slices.SortedFunc(maps.Keys(t.failures), compareFailures) {
		switch n := t.failures[f]; {
		case n > 0:
			add.Rows = append(add.Rows, f.values())
		case n < 0:
			remove.Rows = append(remove.Rows, f.values())
		}
	}
	return []Statement{remove, add}
}

// tallyStatements add what the changes since the last flush make different.
func (g *group) tallyStatements() ([]Statement, error) {
	t := newTallying()
	for key, before := range g.base {
		if before != nil {
			t.add(&before.Record, -1)
		}
		if after := g.state[key]; after != nil {
			t.add(&after.Record, 1)
		}
	}
	return t.statements(), nil
}

// tallied is the assignment of an UPDATE of the head that moves its position to an expression.
func tallied(position string) string {
	return "tallied = CASE WHEN tallied = position THEN CAST(" + position + " AS bigint) ELSE tallied END"
}

// Tally implements [record.Tallier].
func (s *Store) Tally(ctx context.Context) (t record.Tally, ok bool, err error) {
	var read tallyRead
	err = s.read(ctx, func(tx Tx) error {
		if err := read.classes(ctx, tx); err != nil || read.state != tallyComplete {
			return err
		}
		t = record.Tally{Position: read.position, Classes: read.counted}
		t.Oldest, err = oldestFailures(ctx, tx, t.Classes)
		return err
	})
	switch {
	case err != nil:
		return record.Tally{}, false, fault("read the numbers of entities", err)
	case read.state == tallyWrong:
		s.countInBackground()
	case read.zeros > maxZeros:
		err = s.dropZeros(ctx)
	}
	return t, read.state == tallyComplete, err
}

// The states of numbers that were read.
type tallyState int

const (
	tallyComplete tallyState = iota
	tallyUnclear             // some classes aren't distinguished, or there are too many
	tallyWrong               // they must be counted
)

// A tallyRead is the numbers as they were read.
type tallyRead struct {
	state    tallyState
	position int64
	zeros    int
	counted  []record.Counted
}

// classes reads the numbers, and whether they are right.
func (r *tallyRead) classes(ctx context.Context, tx Tx) error {
	*r = tallyRead{}
	return tx.Run(ctx, Statement{
		SQL: "SELECT h.position, h.tallied, (SELECT count(*) FROM state WHERE name = '" + stateTally + "'), (SELECT count(*) FROM tally WHERE n = 0), t.class, t.n " +
			"FROM head h LEFT JOIN tally t ON t.n <> 0 WHERE h.one = 1 LIMIT $1",
		Args: []any{int64(maxClasses + 1)},
		Scan: func(from Row) error {
			var upTo, counting int64
			var class *string
			var n *int64
			if err := from.Scan(&r.position, &upTo, &counting, &r.zeros, &class, &n); err != nil {
				return err
			}
			switch {
			case upTo != r.position || counting > 0 || n != nil && *n < 0:
				r.state = tallyWrong
			case class == nil:
			case len(r.counted) == maxClasses:
				r.state = max(r.state, tallyUnclear)
			default:
				c, ok := parseClass(*class)
				if !ok {
					r.state = max(r.state, tallyUnclear)
				}
				r.counted = append(r.counted, record.Counted{Class: c, Count: *n})
			}
			return nil
		},
	})
}

// A failureGroup is what failures have in common.
type failureGroup struct {
	kind        tko.Kind
	typ, reason string
}

// oldestFailures returns the oldest failure of each group of failures that some classes have.
func oldestFailures(ctx context.Context, tx Tx, classes []record.Counted) (oldest []record.OldestFailure, err error) {
	seen := map[failureGroup]bool{}
	for i := range classes {
		for j := range classes[i].Conditions {
			c := &classes[i].Conditions[j]
			g := failureGroup{classes[i].Kind, c.Type, c.Reason}
			if !record.CanFail(c) || seen[g] {
				continue
			}
			seen[g] = true
			found, err := oldestFailure(ctx, tx, g)
			if err != nil {
				return nil, err
			}
			if found != nil {
				oldest = append(oldest, *found)
			}
		}
	}
	return oldest, nil
}

// oldestFailure returns the oldest failure of a group. If the entity doesn't have it, none is
// returned.
func oldestFailure(ctx context.Context, tx Tx, g failureGroup) (found *record.OldestFailure, err error) {
	err = tx.Run(ctx, Statement{
		SQL: "SELECT f.since, f.id, e.conditions FROM failure f LEFT JOIN entity e ON e.kind = f.kind AND e.id = f.id " +
			"WHERE f.kind = $1 AND f.what = $2 ORDER BY f.since, f.id LIMIT 1",
		Args: []any{string(g.kind), failureText(g.typ, g.reason)},
		Scan: func(from Row) error {
			var since int64
			var id string
			var conditions text
			if err := from.Scan(&since, &id, &conditions); err != nil {
				return err
			}
			all, err := form.ParseConditions(string(conditions))
			if c := tko.FindCondition(all, g.typ); c != nil && c.Status == tko.ConditionFalse && c.Reason == g.reason && sinceOf(c) == since {
				found = &record.OldestFailure{Key: record.Key{Kind: g.kind, ID: strings.Clone(id)}, Condition: *c}
			}
			return err
		},
	})
	return found, err
}

// dropZeros removes the classes without entities. It locks the head, as commits do, so that they
// don't wait for each other in two orders.
func (s *Store) dropZeros(ctx context.Context) error {
	return fault("remove classes without entities", s.write(ctx, func(tx Tx) ([]Statement, error) {
		err := tx.Run(ctx, s.lockHead(new(head), new(time.Time)))
		return []Statement{{SQL: "DELETE FROM tally WHERE n = 0"}}, err
	}))
}
