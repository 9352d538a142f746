package faults

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// The checker finds each kind of fault in a history that is otherwise right.
func TestCheckerFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	site := func() *record {
		return &record{kind: tko.KindSite, id: "s", writes: []write{
			{tag: "a", outcome: acknowledged, revision: 1},
			{tag: "b", outcome: refused},
			{tag: "c", outcome: unknown},
			{tag: "d", outcome: acknowledged, revision: 3},
		}}
	}
	deployment := func() *record {
		r := site()
		r.kind, r.writes[3].revision = tko.KindDeployment, 4
		return r
	}
	removed := func() *record {
		r := site()
		r.writes = append(r.writes, write{tag: "e", outcome: acknowledged, deletes: true})
		return r
	}
	read := func(r *record, o observation) func() []string {
		return func() []string {
			return slices.DeleteFunc([]string{r.checkRead(o)}, func(s string) bool { return s == "" })
		}
	}
	history := func(r *record, tags ...string) func() []string {
		return func() []string { return r.checkHistory(tags) }
	}
	change := func(position, revision int64, op tko.Op) tko.Change {
		return tko.Change{Position: position, Kind: tko.KindSite, ID: "s", Op: op, Revision: revision}
	}
	feed := func(r *record, changes ...tko.Change) func() []string {
		return func() []string { return checkFeed(changes, []*record{r}) }
	}
	one, two, three := change(1, 1, tko.OpWritten), change(2, 2, tko.OpWritten), change(5, 3, tko.OpWritten)
	count := counter{map[string]outcome{"a": acknowledged, "b": refused, "c": unknown}}
	for name, test := range map[string]struct {
		check func() []string
		want  string // in what the checker finds; "" if nothing is wrong
	}{
		"a right read":                               {read(site(), observation{true, "d", 3}), ""},
		"a read of a write of unknown outcome":       {read(site(), observation{true, "c", 4}), ""},
		"a read of a lost entity":                    {read(site(), observation{}), "is lost"},
		"a read of a lost write":                     {read(site(), observation{true, "a", 1}), "acknowledged last"},
		"a read of a refused write":                  {read(site(), observation{true, "b", 4}), "acknowledged last"},
		"a read of a stale revision":                 {read(site(), observation{true, "d", 2}), "although revision 3"},
		"a read of half a write":                     {read(site(), observation{true, "d in the metadata and c in the package", 3}), "acknowledged last"},
		"a read of a deleted entity":                 {read(removed(), observation{true, "d", 3}), "is there again"},
		"a right read of a deleted entity":           {read(removed(), observation{}), ""},
		"a right history":                            {history(site(), "a", "c", "d"), ""},
		"a right history whose unknown write is not": {history(&record{kind: tko.KindSite, writes: []write{{tag: "a", outcome: acknowledged, revision: 1}, {tag: "c", outcome: unknown}}}, "a"), ""},
		"a history without an acknowledged write":    {history(site(), "a", "c"), `"d" was acknowledged, and is lost`},
		"a history with a refused write":             {history(site(), "a", "b", "d"), `"b" was refused`},
		"a history with a write twice":               {history(site(), "a", "c", "d", "d"), "written twice"},
		"a history with a write again":               {history(site(), "a", "c", "d", "c"), "is there again"},
		"a history with a write of another":          {history(site(), "a", "x", "d"), "never written"},
		"a history in another order":                 {history(site(), "c", "d", "a"), `"a" was acknowledged as revision 1, and is revision 3`},
		"a right history of a deployment":            {history(deployment(), "a", "a", "c", "d", "d"), ""},
		"a history in which a controller undid one":  {history(deployment(), "a", "c", "a", "d"), "is there again"},
		"a right feed":                               {feed(site(), one, two, three), ""},
		"a right feed of a deleted entity":           {feed(removed(), one, two, three, change(6, 0, tko.OpDeleted)), ""},
		"a feed with a change twice":                 {feed(site(), one, two, two, three), "position 2 after 2"},
		"a feed in another order":                    {feed(site(), two, one, three), "position 1 after 2"},
		"a feed without a change":                    {feed(site(), one, three), "has revision 3"},
		"a feed without the last change":             {feed(site(), one), "was written 1 times"},
		"a feed with a write too many":               {feed(site(), one, two, three, change(6, 4, tko.OpWritten)), "was written 4 times"},
		"a feed without a deletion":                  {feed(removed(), one, two, three), "was deleted 0 times"},
		"a feed with a deletion of another":          {feed(site(), one, two, three, change(6, 0, tko.OpDeleted)), "was deleted 1 times"},
		"a feed with a write after a deletion":       {feed(removed(), one, two, change(3, 0, tko.OpDeleted), three), "after its deletion"},
		"a follower who missed a change":             {func() []string { return differences("f", []tko.Change{one, two, three}, []tko.Change{one, three}) }, "has change 1"},
		"a follower who stopped":                     {func() []string { return differences("f", []tko.Change{one, two}, []tko.Change{one}) }, "ends before change 1"},
		"a follower who saw more":                    {func() []string { return differences("f", []tko.Change{one}, []tko.Change{one, two}) }, "has 2 changes"},
		"a right count":                              {func() []string { return count.check([]string{"a", "c"}) }, ""},
		"a count without an acknowledged increment":  {func() []string { return count.check([]string{"c"}) }, "acknowledged, and is lost"},
		"a count with an increment twice":            {func() []string { return count.check([]string{"a", "a"}) }, "applied twice"},
		"a count with a refused increment":           {func() []string { return count.check([]string{"a", "b"}) }, "refused, and was applied"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got := strings.Join(test.check(), "\n")
			if test.want == "" && got != "" || !strings.Contains(got, test.want) {
				t.Errorf("the checker found %q, want %q", got, test.want)
			}
		})
	}
}

// An error that states that nothing was changed is a promise; others of an unavailable
// server are none.
func TestOutcomeOfErrors(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]outcome{
		"the database is away, nothing was changed": refused,
		"whether the change was made is not known":  unknown,
		"connection reset by peer":                  unknown,
	} {
		if got := outcomeOf(fmt.Errorf("%s: %w", text, tko.ErrUnavailable)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got := outcomeOf(errors.New("a time limit")); got != unknown {
		t.Errorf("an error without a kind: %s", got)
	}
	if got := outcomeOf(tko.ErrConflict); got != refused {
		t.Errorf("a conflict: %s", got)
	}
}
