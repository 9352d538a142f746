package relational

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/decide"
)

var groupTime = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// groupOf returns a group that has read deployments at revision 3 and positions 11, 12, …,
// and a site "s" at position 5, with the head at position 20.
func groupOf(ids ...string) *group {
	g := newGroup(&Store{})
	g.now = groupTime
	g.head = head{position: 20, epoch: 4, access: 6, rollouts: 7}
	for i, id := range ids {
		g.addRow(&row{Record: record.Record{
			Key: record.Key{Kind: tko.KindDeployment, ID: id}, UID: "uid of " + id, Revision: 3, Position: int64(11 + i), Created: groupTime.Add(-time.Hour), Site: "s",
		}})
	}
	g.addRow(&row{Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: "s"}, Revision: 1, Position: 5}})
	return g
}

func groupWrite(op tko.Op, id string, change ...func(*record.Write)) record.Write {
	w := record.Write{Op: op, Expect: record.Any, Record: record.Record{Key: record.Key{Kind: tko.KindDeployment, ID: id}}}
	if op == tko.OpWritten {
		w.Expect = 3
	}
	for _, c := range change {
		c(&w)
	}
	return w
}

// Each condition of a write refuses it by itself, with the error that callers test for; the
// nearest value that is right doesn't.
func TestEachConditionOfAWriteIsChecked(t *testing.T) {
	t.Parallel()
	site, number := record.Key{Kind: tko.KindSite, ID: "s"}, func(n int64) *int64 { return &n }
	claim := tko.WorkItem{Queue: "q", Key: "k", Claim: "c"}
	var missing *record.MissingError
	var stale *record.StaleError
	tests := map[string]struct {
		why   string
		write record.Write
		group func(*group)
		want  error // nil: it is written
		as    any   // or a type of error
	}{
		"the revision":               {write: groupWrite(tko.OpWritten, "d")},
		"an older revision":          {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Expect = 2 }), want: tko.ErrConflict},
		"a newer revision":           {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Expect = 4 }), want: tko.ErrConflict},
		"a record that is there":     {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Expect = record.Absent }), want: tko.ErrConflict},
		"a record that isn't":        {write: groupWrite(tko.OpWritten, "new"), want: tko.ErrNotFound},
		"a new record":               {write: groupWrite(tko.OpWritten, "new", func(w *record.Write) { w.Expect = record.Absent })},
		"a condition of none":        {write: groupWrite(tko.OpStatus, "new"), want: tko.ErrNotFound},
		"the position":               {write: groupWrite(tko.OpStatus, "d", func(w *record.Write) { w.Position = 11 })},
		"another position":           {write: groupWrite(tko.OpStatus, "d", func(w *record.Write) { w.Position = 10 }), want: tko.ErrConflict},
		"the position of none":       {write: groupWrite(tko.OpDeleted, "new", func(w *record.Write) { w.Position = 10 }), want: tko.ErrConflict},
		"a required record":          {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Requires = []record.Key{site} })},
		"a missing required record":  {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Requires = []record.Key{site, {Kind: tko.KindSite, ID: "t"}} }), as: &missing},
		"a required one, deleting":   {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Requires = []record.Key{site} }), group: func(g *group) { deleting(g.state[site]) }, as: &missing},
		"the rules of access":        {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Access = number(6) })},
		"older rules of access":      {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Access = number(5) }), as: &stale},
		"the epoch":                  {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Epoch = number(4) })},
		"another epoch":              {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Epoch = number(3) }), as: &stale},
		"the rollouts":               {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Rollout = &record.RolloutWrite{Expect: 7} })},
		"other rollouts":             {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Rollout = &record.RolloutWrite{Expect: 6} }), as: &stale},
		"what was read":              {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.ReadSet = []record.Version{{Key: site, Position: 5}} })},
		"a change of what was read":  {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.ReadSet = []record.Version{{Key: site, Position: 4}} }), as: &stale},
		"a deletion of it":           {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.ReadSet = []record.Version{{Key: site, Position: 5}} }), group: func(g *group) { g.state[site] = nil }, as: &stale},
		"a claim":                    {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Claim = &claim }), group: func(g *group) { g.claims[claimOf(claim)] = true }},
		"a claim that ended":         {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Claim = &claim }), want: tko.ErrConflict},
		"the parent's revision":      {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Record.Parent, w.ParentRevision = "p", 3 })},
		"another one of the parent":  {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Record.Parent, w.ParentRevision = "p", 2 }), want: tko.ErrConflict},
		"a parent that isn't there":  {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Record.Parent, w.ParentRevision = "none", 3 }), want: tko.ErrConflict},
		"a parent, deleting":         {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Record.Parent, w.ParentRevision = "p", 3 }), group: func(g *group) { deleting(g.state[record.Key{Kind: tko.KindDeployment, ID: "p"}]) }, want: tko.ErrConflict},
		"a deployment that is held":  {write: groupWrite(tko.OpWritten, "d"), group: hold(1), want: tko.ErrBusy},
		"a condition of one held":    {write: groupWrite(tko.OpStatus, "d"), group: hold(1)},
		"a site of the same name":    {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Record.Kind, w.Expect = tko.KindSite, record.Absent }), group: hold(1)},
		"its token":                  {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Token = "token" }), group: hold(1)},
		"an unknown token":           {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Token = "other" }), group: hold(1), want: tko.ErrNotFound},
		"the token of another":       {write: groupWrite(tko.OpWritten, "p", func(w *record.Write) { w.Token = "token" }), group: hold(1), want: tko.ErrNotFound},
		"a token that just expires":  {write: groupWrite(tko.OpWritten, "d", func(w *record.Write) { w.Token = "token" }), group: hold(0), want: tko.ErrBusy},
		"a deletion of several":      {write: groupWrite(tko.OpDeleted, "d", func(w *record.Write) { w.DeleteLimit = new(int) }), as: new(*record.ExceededError)},
		"a single step with a child": {write: groupWrite(tko.OpDeleted, "p", func(w *record.Write) { w.SingleStep = true }), group: func(g *group) { g.state[record.Key{Kind: tko.KindDeployment, ID: "d"}].Parent = "p" }, want: tko.ErrConflict},
		"a child that isn't known":   {write: groupWrite(tko.OpDeleted, "p", func(w *record.Write) { w.SingleStep = true }), group: func(g *group) { g.children["p"] = []string{"unread"} }, want: tko.ErrConflict},
		"a child that left":          {write: groupWrite(tko.OpDeleted, "p", func(w *record.Write) { w.SingleStep = true }), group: func(g *group) { g.children["p"] = []string{"d"} }},
		"a single step of a site":    {write: groupWrite(tko.OpDeleted, "s", func(w *record.Write) { w.Record.Kind, w.SingleStep = tko.KindSite, true }), want: tko.ErrInvalid},
	}
	for name, test := range tests {
		g := groupOf("d", "p")
		if test.group != nil {
			test.group(g)
		}
		g.dependents = dependents{whole: map[string]bool{"d": true, "p": true}, children: map[string][]string{}}
		before := snapshotOf(g)
		outcomes, err := g.decideWrites([]record.Write{test.write})
		switch {
		case test.as != nil && !errors.As(err, test.as), test.want != nil && !errors.Is(err, test.want), test.want == nil && test.as == nil && err != nil:
			t.Errorf("%s: %v", name, err)
		case err != nil:
			if diff := cmp.Diff(before, snapshotOf(g)); diff != "" || outcomes != nil {
				t.Errorf("%s: the refused write left a trace: %s", name, diff)
			}
		case len(g.changes) != 1 || g.head.position != 21 || outcomes[0].Position != 21:
			t.Errorf("%s: changes %v, head %d, outcome %+v", name, g.changes, g.head.position, outcomes[0])
		}
	}
}

func deleting(r *row) {
	r.Conditions = []tko.Condition{{Type: tko.ConditionDeleting, Status: tko.ConditionTrue}}
}

// hold issues a token of the deployment "d", which expires in some microseconds.
func hold(microseconds int) func(*group) {
	const token = "token"
	return func(g *group) {
		expires := g.now.Add(time.Duration(microseconds) * time.Microsecond)
		g.tokens[token] = decide.Token{Deployment: "d", Revision: 3, Expires: expires}
		if microseconds > 0 {
			g.held["d"] = holder{token, tko.OpenModification{Deployment: "d", Expires: expires}}
		}
	}
}

// snapshotOf returns what decisions change in a group, as text.
func snapshotOf(g *group) map[string]string {
	state := map[string]string{}
	for key, r := range g.state {
		state[fmt.Sprintf("state of %s", key)] = "nil"
		if r != nil {
			state[fmt.Sprintf("state of %s", key)] = fmt.Sprintf("%+v", *r)
		}
	}
	for key := range g.base {
		state[fmt.Sprintf("base of %s", key)] = "is there"
	}
	for key, n := range g.newest {
		if n != 0 {
			state[fmt.Sprintf("newest of %s", key)] = strconv.FormatInt(n, 10)
		}
	}
	state["origins"], state["tokens"], state["held"] = fmt.Sprint(g.origins), fmt.Sprint(g.tokens), fmt.Sprint(g.held)
	state["head"], state["changes"], state["ended"] = fmt.Sprint(g.head), fmt.Sprint(g.changes), fmt.Sprint(g.ended)
	state["rollouts"] = strconv.Itoa(len(g.rollouts))
	return state
}

// A call that is refused at its last write leaves no trace of the writes before it, whatever
// they are. The calls after it are decided as if it had not been.
func TestRefusedCallLeavesNoTrace(t *testing.T) {
	t.Parallel()
	random := rand.New(rand.NewPCG(41, 42))
	ids := []string{"d", "p", "c", "x", "y"}
	written := 0
	for round := range 3000 {
		g := groupOf("d", "p", "c")
		hold(1)(g)
		g.state[record.Key{Kind: tko.KindDeployment, ID: "c"}].Parent = "p"
		g.addRow(&row{Record: record.Record{Key: record.Key{Kind: tko.KindDeployment, ID: "o"}, Origin: "origin of o", Revision: 1, Position: 9}})
		g.dependents = dependents{whole: map[string]bool{"d": true, "p": true, "c": true}, children: map[string][]string{"p": {"c"}}, open: map[string]bool{}, more: map[record.Key]bool{}}
		one := func() record.Write {
			id := ids[random.IntN(len(ids))]
			w := groupWrite([]tko.Op{tko.OpWritten, tko.OpWritten, tko.OpStatus, tko.OpDeleted}[random.IntN(4)], id)
			r := g.state[w.Record.Key]
			switch {
			case w.Op == tko.OpWritten && r == nil:
				w.Expect, w.Record.Origin = record.Absent, []string{"", "origin of " + id, "origin of o"}[random.IntN(3)]
			case w.Op == tko.OpWritten:
				w.Expect = r.Revision
			}
			if id == "d" && w.Op == tko.OpWritten {
				w.Token = "token"
			}
			if random.IntN(4) == 0 {
				w.Rollout = &record.RolloutWrite{Expect: g.head.rollouts}
			}
			w.Record.CRDs = random.IntN(4) == 0
			return w
		}
		if _, err := g.decideWrites([]record.Write{one()}); err == nil {
			written++
		}
		before := snapshotOf(g)
		var writes []record.Write
		for range random.IntN(4) {
			writes = append(writes, one())
		}
		refused := groupWrite(tko.OpWritten, "none")
		if _, err := g.decideWrites(append(writes, refused)); err == nil {
			t.Fatalf("round %d: a write of a record that isn't there is not refused", round)
		}
		if diff := cmp.Diff(before, snapshotOf(g)); diff != "" {
			t.Fatalf("round %d: %d writes left a trace: %s", round, len(writes), diff)
		}
	}
	if written < 1000 {
		t.Errorf("%d calls wrote something", written)
	}
}

// A write continues what was decided before it in the same transaction: its record keeps what
// never changes, revisions are counted, and each change has the next position.
func TestWritesContinueTheDecisionsBeforeThem(t *testing.T) {
	t.Parallel()
	g := groupOf("d")
	g.newest[record.Key{Kind: tko.KindDeployment, ID: "again"}] = 8
	decided := func(writes ...record.Write) []record.Outcome {
		t.Helper()
		outcomes, err := g.decideWrites(writes)
		if err != nil {
			t.Fatal(err)
		}
		return outcomes
	}
	absent := func(w *record.Write) {
		w.Expect, w.Record.Origin, w.Record.UID = record.Absent, "of "+w.Record.ID, "new"
	}
	first := decided(groupWrite(tko.OpWritten, "new", absent), groupWrite(tko.OpWritten, "again", absent))
	if first[0].Revision != 1 || first[0].Position != 21 || first[1].Revision != 9 || first[1].Position != 22 {
		t.Errorf("new records are %+v", first)
	}
	same := decided(groupWrite(tko.OpWritten, "other", func(w *record.Write) { w.Expect, w.Record.Origin = record.Absent, "of new" }))
	if same[0].Key.ID != "new" || !same[0].Existed || same[0].Revision != 1 || len(g.changes) != 2 {
		t.Errorf("a record of a known origin is %+v", same)
	}
	changed := decided(groupWrite(tko.OpWritten, "d", func(w *record.Write) {
		w.Record.UID, w.Record.Origin, w.Record.Created, w.Record.Author = "other", "other", groupTime, tko.Author{Who: "me"}
	}))
	r := g.state[record.Key{Kind: tko.KindDeployment, ID: "d"}]
	if changed[0].Revision != 4 || r.UID != "uid of d" || r.Origin != "" || !r.Created.Equal(groupTime.Add(-time.Hour)) || !r.Updated.Equal(groupTime) {
		t.Errorf("the next revision is %+v: %+v", changed, r)
	}
	decided(groupWrite(tko.OpStatus, "d", func(w *record.Write) {
		w.Record.Author, w.Record.Conditions = tko.Author{Who: "other"}, []tko.Condition{{Type: "c"}}
	}))
	r = g.state[record.Key{Kind: tko.KindDeployment, ID: "d"}]
	if r.Author.Who != "me" || r.Revision != 4 || r.Position != 24 || len(r.Conditions) != 1 {
		t.Errorf("after a condition, the record is %+v", r)
	}
	if last := g.changes[3]; last.after.Author.Who != "other" {
		t.Errorf("the author of the condition is %+v", last.after.Author)
	}
	g.dependents = dependents{whole: map[string]bool{"new": true}}
	decided(groupWrite(tko.OpDeleted, "new"))
	if again := decided(groupWrite(tko.OpWritten, "new", absent)); again[0].Revision != 2 {
		t.Errorf("a record after a deletion is %+v", again)
	}
	var positions []int64
	for _, c := range g.changes {
		positions = append(positions, c.after.Position)
	}
	if want := []int64{21, 22, 23, 24, 25, 26}; !slices.Equal(positions, want) || g.head.position != 26 {
		t.Errorf("positions are %v, head %d", positions, g.head.position)
	}
	base := slices.Collect(maps.Keys(g.base))
	if len(base) != 3 || g.base[record.Key{Kind: tko.KindDeployment, ID: "d"}].Revision != 3 {
		t.Errorf("records as the database has them: %v", base)
	}
}

// The epoch moves with plugins and definitions, before or after the change, and not with
// conditions.
func TestEpochMovesWithPluginsAndDefinitions(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		before, after record.Record
		op            tko.Op
		moves         bool
	}{
		"a deployment":          {op: tko.OpWritten, after: record.Record{Key: record.Key{Kind: tko.KindDeployment}}},
		"a plugin":              {op: tko.OpWritten, after: record.Record{Key: record.Key{Kind: tko.KindPlugin}}, moves: true},
		"a deleted plugin":      {op: tko.OpDeleted, after: record.Record{Key: record.Key{Kind: tko.KindPlugin}}, moves: true},
		"a plugin's condition":  {op: tko.OpStatus, after: record.Record{Key: record.Key{Kind: tko.KindPlugin}}},
		"definitions":           {op: tko.OpWritten, after: record.Record{Key: record.Key{Kind: tko.KindTemplate}, CRDs: true}, moves: true},
		"definitions that left": {op: tko.OpWritten, before: record.Record{CRDs: true}, after: record.Record{Key: record.Key{Kind: tko.KindTemplate}}, moves: true},
	} {
		g := groupOf()
		g.change(test.op, row{Record: test.before}, row{Record: test.after})
		if moved := g.head.epoch == 21; moved != test.moves || !moved && g.head.epoch != 4 {
			t.Errorf("%s: the epoch is %d", name, g.head.epoch)
		}
	}
}

// The number of records of a step adapts to the time that steps take: within its bounds, and
// not by steps that had little to do.
func TestStepsAdaptToTheirTime(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		size, n int
		took    time.Duration
		want    int
	}{
		"on time":               {1000, 1000, stepTime, 1000},
		"twice as fast":         {1000, 1000, stepTime / 2, 1500},
		"a little faster":       {1000, 1000, stepTime * 10 / 11, 1100},
		"in no time":            {1000, 1000, 0, 1500},
		"fast, but with half":   {1000, 500, stepTime / 2, 1500},
		"fast, but with little": {1000, 499, stepTime / 2, 1000},
		"slow, with little":     {1000, 1, 2 * stepTime, 500},
		"slow":                  {1000, 1000, 2 * stepTime, 500},
		"very slow":             {1000, 1000, 100 * stepTime, 250},
		"at the least":          {minStep, minStep, 100 * stepTime, minStep},
		"at the most":           {maxStep, maxStep, 1, maxStep},
	} {
		p := stepSizer{size: test.size}
		if p.observe(test.n, test.took); p.size != test.want {
			t.Errorf("%s: after %d records in %s, %d becomes %d, want %d", name, test.n, test.took, test.size, p.size, test.want)
		}
	}
	if got := new(stepSizer).next(); got != firstStep {
		t.Errorf("the first step has %d records", got)
	}
}

// A deletion of a template or site changes what refers to it, in the order of IDs, as far as
// it was read; it ends with the record only when nothing is left.
func TestDeletionDissociatesWhatWasRead(t *testing.T) {
	t.Parallel()
	site := record.Key{Kind: tko.KindSite, ID: "s"}
	for _, more := range []bool{false, true} {
		g := groupOf("b", "a", "c")
		g.state[record.Key{Kind: tko.KindDeployment, ID: "c"}].Site = "other"
		g.remaining = 10
		g.dependents = dependents{more: map[record.Key]bool{site: more}, open: map[string]bool{}}
		outcomes, err := g.decideWrites([]record.Write{{Op: tko.OpDeleted, Expect: record.Any, Record: record.Record{Key: site, Author: tko.Author{Who: "me"}}}})
		if err != nil {
			t.Fatal(err)
		}
		var changes []string
		for _, c := range g.changes {
			changes = append(changes, c.String())
		}
		want := []string{`21 written deployment "a"`, `22 written deployment "b"`, `23 deleted site "s"`}
		remaining, removed := 7, 1
		if more {
			want[2], removed = `23 status site "s"`, 0
		}
		if !reflect.DeepEqual(changes, want) || g.remaining != remaining {
			t.Errorf("more %t: changes %v, %d remain", more, changes, g.remaining)
		}
		if o := outcomes[0]; o.More != more || o.Deleted != removed || o.Dissociated != 2 || o.Revision != 1 {
			t.Errorf("more %t: outcome %+v", more, o)
		}
		a := g.state[record.Key{Kind: tko.KindDeployment, ID: "a"}]
		if a.Site != "" || a.Revision != 4 || a.Author.Who != "me" {
			t.Errorf("a deployment of the site is %+v", a)
		}
		if r := g.state[site]; more != (r != nil && r.Deleting()) {
			t.Errorf("more %t: the site is %+v", more, r)
		}
	}
}

// Descendants are deleted before their ancestors, those that were read as a whole; others are
// marked, so that no new record refers to them.
func TestDescendantsAreDeletedBeforeTheirAncestors(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		open string // read in part
		want []string
		more bool
	}{
		"whole": {"", []string{"deleted c2a", "deleted c1a", "deleted c1b", "deleted c2", "deleted c1", "deleted p"}, false},
		"open":  {"p", []string{"deleted c2a", "deleted c1a", "deleted c1b", "deleted c2", "deleted c1", "status p"}, true},
		"deep":  {"c1", []string{"deleted c2a", "deleted c1a", "deleted c1b", "deleted c2", "status c1", "status p"}, true},
	} {
		g := groupOf("p", "c1", "c2", "c1a", "c1b", "c2a", "other")
		d := dependents{whole: map[string]bool{}, open: map[string]bool{}, more: map[record.Key]bool{}, children: map[string][]string{"p": {"c2", "c1"}, "c1": {"c1b", "c1a"}, "c2": {"c2a"}}}
		for _, id := range []string{"p", "c1", "c2", "c1a", "c1b", "c2a"} {
			d.whole[id] = id != test.open && (test.open != "c1" || id != "p")
		}
		if test.open != "" {
			d.open[test.open], d.open["p"] = true, true
		}
		g.dependents, g.remaining = d, 100
		outcomes, err := g.decideWrites([]record.Write{groupWrite(tko.OpDeleted, "p")})
		if err != nil {
			t.Fatal(err)
		}
		var changes []string
		for _, c := range g.changes {
			changes = append(changes, fmt.Sprintf("%s %s", c.op, c.after.ID))
		}
		position := func(id string) int {
			return slices.IndexFunc(g.changes, func(c change) bool { return c.after.ID == id })
		}
		for child, parent := range map[string]string{"c1": "p", "c2": "p", "c1a": "c1", "c1b": "c1", "c2a": "c2"} {
			if position(child) > position(parent) {
				t.Errorf("%s: %s is changed after %s: %v", name, child, parent, changes)
			}
		}
		slices.Sort(changes)
		slices.Sort(test.want)
		if diff := cmp.Diff(test.want, changes); diff != "" {
			t.Errorf("%s: changes (-want +got)\n%s", name, diff)
		}
		if o := outcomes[0]; o.More != test.more || o.Deleted != len(test.want)-map[bool]int{true: 1}[test.more]-map[bool]int{true: 1}[test.open == "c1"] {
			t.Errorf("%s: outcome %+v", name, o)
		}
	}
}

func (g *group) decideWrites(writes []record.Write) ([]record.Outcome, error) {
	return g.decide(&call{writes: writes})
}
