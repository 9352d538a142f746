package relational

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Marks of a query, whatever was added in whatever order: they are sorted, bounded, and the
// best one is the last up to the offset. Where lists end at each multiple of a distance,
// none is farther than twice that.
func TestBestMarkIsTheLastUpToTheOffset(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(1, 1))
	for range 200 {
		var p offsetMarks
		added := map[int]string{}
		for range random.IntN(300) {
			n := 1 + random.IntN(20*markDistance)
			if added[n] == "" {
				added[n] = "id" + strconv.Itoa(n)
			}
			p.add(mark{n, "id" + strconv.Itoa(n)})
		}
		if !slices.IsSortedFunc(p.marks, func(a, b mark) int { return a.n - b.n }) {
			t.Fatalf("marks are not sorted: %v", p.marks)
		}
		for range 20 {
			offset := random.IntN(22 * markDistance)
			var want mark
			for _, m := range p.marks {
				if m.n <= offset {
					want = m
				}
			}
			if got := p.best(offset); got != want || got.n > 0 && got.id != added[got.n] {
				t.Fatalf("the best mark for %d is %v, want %v of %v", offset, got, want, p.marks)
			}
			for n := range added { // close marks are removed, but not whole ranges of them
				if n <= offset && n > p.best(offset).n+2*markDistance {
					t.Fatalf("the mark %d was removed: %d is the best for %d", n, p.best(offset).n, offset)
				}
			}
		}
	}
	var p offsetMarks
	for n := range 3 * maxMarks {
		p.add(mark{n * markDistance, ""})
	}
	if len(p.marks) != maxMarks || p.marks[maxMarks-1].n != (3*maxMarks-1)*markDistance {
		t.Errorf("%d marks up to %d", len(p.marks), p.marks[len(p.marks)-1].n)
	}
	if p.add(p.marks[5]); len(p.marks) != maxMarks {
		t.Error("a mark that is known is added")
	}
}

func TestMarksOfQueriesAreCachedAndNotShared(t *testing.T) {
	t.Parallel()
	var o offsetCache
	if o.get("none") != nil {
		t.Error("there are marks of an unknown query")
	}
	for i := range maxQueries {
		o.put(&offsetMarks{key: strconv.Itoa(i), position: 5})
	}
	o.get("0")
	o.put(&offsetMarks{key: "new", position: 5, marks: []mark{{1, "a"}}})
	if o.get("0") == nil || o.get("1") != nil || len(o.queries) != maxQueries {
		t.Errorf("of %d queries, not the least recently used one is removed", len(o.queries))
	}
	o.get("new").marks[0].id = "changed"
	o.get("new").add(mark{5000, "b"})
	if got := o.get("new").marks; len(got) != 1 || got[0].id != "a" {
		t.Errorf("a caller changed the cached marks: %v", got)
	}
	for position, want := range map[int64]int64{4: 5, 5: 5, 6: 6} {
		c := offsetCache{queries: []*offsetMarks{{key: "k", position: 5}}}
		c.put(&offsetMarks{key: "k", position: position})
		if got := c.get("k").position; got != want || len(c.queries) != 1 {
			t.Errorf("marks of position %d replace those of 5: position %d", position, got)
		}
	}
}

// A clock that is set back by more than a step is noticed, once, and so is the first time:
// what was before is not known. Time that goes on is not.
func TestClockThatIsSetBackIsNoticed(t *testing.T) {
	t.Parallel()
	step := clockStep.Microseconds()
	const began = 1_000_000_000
	for name, test := range map[string]struct {
		times   []int64
		rewound bool
		newest  int64
	}{
		"goes on":               {[]int64{began, began + 1, began + 5*step}, false, began + 5*step},
		"jitters":               {[]int64{began, began + 10, began + 3}, false, began + 10},
		"back by a step":        {[]int64{began + step, began}, false, began + step},
		"back by a little more": {[]int64{began + step + 1, began}, true, began},
		"back, and goes on":     {[]int64{began + 9*step, began, began + 1}, true, began + 1},
	} {
		c := newClock()
		c.observe(test.times[0])
		select {
		case <-c.rewound:
		default:
			t.Errorf("%s: the first time is not noticed", name)
		}
		for _, now := range test.times[1:] {
			c.observe(now)
		}
		if rewound := len(c.rewound) == 1; rewound != test.rewound || c.newest.Load() != test.newest {
			t.Errorf("%s: set back: %t, newest %d; want %t, %d", name, rewound, c.newest.Load(), test.rewound, test.newest)
		}
	}
}

// Columns are read from both drivers, NULL included; other types are errors, not data.
func TestColumnsAreReadFromBothDrivers(t *testing.T) {
	t.Parallel()
	want := record.Digest{1, 2, 3}
	for _, value := range []any{"a", []byte("a")} {
		column := text("before")
		if err := column.Scan(value); err != nil || column != "a" {
			t.Errorf("%T: %q, %v", value, column, err)
		}
	}
	column, hash, made := text("before"), digest(want), derivation{digest: digest(want), revision: 3}
	if err := errors.Join(column.Scan(nil), hash.Scan(nil), made.Scan(nil)); err != nil || column != "" || hash != (digest{}) || made != (derivation{}) {
		t.Errorf("NULL is %q, %v, %v (%v)", column, hash, made, err)
	}
	if err := hash.Scan(want[:]); err != nil || hash != digest(want) {
		t.Errorf("%v, %v", hash, err)
	}
	for _, scan := range []func(any) error{column.Scan, hash.Scan, made.Scan} {
		if err := scan(int64(5)); err == nil || !strings.Contains(err.Error(), "int64 where a") {
			t.Errorf("a number: %v", err)
		}
	}
	if err := hash.Scan("text"); err == nil {
		t.Error("a text is a digest")
	}
}

// A derivation is of one revision. Older programs leave that of an earlier revision.
func TestDerivationIsOfItsRevision(t *testing.T) {
	t.Parallel()
	want := record.Digest{9, 8, 7}
	value := derivationValue(want, 1<<40)
	var d derivation
	if err := d.Scan(value); err != nil || d.of(1<<40) != want || d.of(1<<40+1) != (record.Digest{}) || d.of(0) != (record.Digest{}) {
		t.Errorf("%+v, %v", d, err)
	}
	if want[3] != 0 || derivationValue(record.Digest{}, 5) != nil {
		t.Error("no digest has a derivation, or it was changed")
	}
	if err := d.Scan(want[:]); err != nil || d != (derivation{}) {
		t.Errorf("a digest without a revision: %+v, %v", d, err)
	}
}

func TestCopiesOfRecordsBelongToTheCaller(t *testing.T) {
	t.Parallel()
	of := func() record.Record {
		return record.Record{Plugin: []byte("p"), Conditions: []tko.Condition{{Type: "c"}}, Deployments: []string{"d"}, Replaces: []string{"r"}}
	}
	original := of()
	clone := cloneRecord(original)
	clone.Plugin[0], clone.Conditions[0].Type, clone.Deployments[0], clone.Replaces[0] = 'x', "x", "x", "x"
	if got, want := fmt.Sprint(original), fmt.Sprint(of()); got != want {
		t.Errorf("a caller changed %s to %s", want, got)
	}
}

// Only new records that nothing else depends on are committed without the lock of the log.
func TestOnlyPlainCreationsAreOptimistic(t *testing.T) {
	t.Parallel()
	created := func(change func(*record.Write)) *call {
		w := record.Write{Op: tko.OpWritten, Expect: record.Absent, Record: record.Record{}}
		if change != nil {
			change(&w)
		}
		return &call{writes: []record.Write{{Op: tko.OpWritten, Expect: record.Absent}, w}}
	}
	if !optimistic([]*call{created(nil), created(nil)}) {
		t.Error("creations are not optimistic")
	}
	if optimistic([]*call{created(nil), {}}) {
		t.Error("a call without writes, such as of a token, is optimistic")
	}
	for name, change := range map[string]func(*record.Write){
		"a deletion":            func(w *record.Write) { w.Op = tko.OpDeleted },
		"a condition":           func(w *record.Write) { w.Op = tko.OpStatus },
		"a change":              func(w *record.Write) { w.Expect = 3 },
		"any revision":          func(w *record.Write) { w.Expect = record.Any },
		"a modification":        func(w *record.Write) { w.Token = "t" },
		"a child with origin":   func(w *record.Write) { w.Record.Origin = "o" },
		"a revision of parents": func(w *record.Write) { w.ParentRevision = 1 },
		"an ID of a deletion":   func(w *record.Write) { w.Used = true },
	} {
		if optimistic([]*call{created(nil), created(change)}) {
			t.Errorf("%s is optimistic", name)
		}
	}
}

func TestTimesAreThoseOfMicroseconds(t *testing.T) {
	t.Parallel()
	a, b := time.Date(2026, 1, 2, 3, 4, 5, 678901234, time.FixedZone("x", 3600)), time.Date(1960, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, at := range []time.Time{a, b} {
		if got := moment(micros(at)); !got.Equal(at.Truncate(time.Microsecond)) || got.Location() != time.UTC {
			t.Errorf("%s is %s", at, got)
		}
	}
	if !later(a, b).Equal(a) || !later(b, a).Equal(a) || !later(a, a).Equal(a) {
		t.Error("the later time is the earlier one")
	}
}
