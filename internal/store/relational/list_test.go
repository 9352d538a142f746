package relational_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/test/soak"
)

// A list has exactly the matches of its filters, in order, from its offset on, whatever
// access paths it follows, in one window or page by page.
func TestListsOfRandomFiltersHaveTheirMatches(t *testing.T) {
	t.Parallel()
	f := sharedFleet(t)
	random := rand.New(rand.NewPCG(21, 22))
	one := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	nonEmpty := 0
	rounds := soak.Rounds(t, 70, 200)
	for round := range rounds {
		q := everything(tko.KindDeployment)
		q.Metadata, q.SiteMetadata, q.TemplateMetadata = map[string]tko.Pattern{}, map[string]tko.Pattern{}, map[string]tko.Pattern{}
		for range 1 + random.IntN(3) {
			switch random.IntN(11) {
			case 0:
				q.IDs = append(q.IDs, pattern(t, one("0**", "012**", "**7", "01?5*", "00900")))
			case 1:
				q.Templates = append(q.Templates, pattern(t, one("nf/t07", "nf/t0*", "**3", "nf/**", "none")))
			case 2:
				q.Sites = append(q.Sites, pattern(t, one("r03/s003", "r03/*", "**7", "r1?/**", "r00/s0*")))
			case 3:
				q.Metadata["all"] = value(t, "x")
			case 4:
				q.Metadata["tenth"] = value(t, one("t3", "t*", "*3", "none"))
			case 5:
				q.Metadata[one("rare", "late")] = value(t, one("r1", "yes", "*"))
			case 6:
				q.Metadata["value"] = value(t, one("007", "0*", "*", "?1?", "6*"))
			case 7:
				q.SiteMetadata[one("half", "group", "one")] = value(t, one("h1", "g07", "g*", "yes", "*"))
			case 8:
				q.TemplateMetadata["vendor"] = value(t, one("v1", "*", "none"))
			case 9:
				q.Parent = one("00004", "00008", "none")
			default:
				column := []string{"prepared", "approved"}[random.IntN(2)]
				q.Is = map[string]bool{column: random.IntN(2) == 0}
			}
		}
		if random.IntN(4) == 0 {
			q.After = fmt.Sprintf("%05d", random.IntN(fleetDeployments))
		}
		want := f.matches(q)
		if len(want) > 0 {
			nonEmpty++
		}
		if got := listed(t, f.store, q); !slices.Equal(got, want) {
			t.Fatalf("round %d: %d rows, want %d: %+v\n%s", round, len(got), len(want), q, cmp.Diff(want, got))
		}
		page := q
		page.Offset, page.Limit = uint32(random.IntN(len(want)+5)), 1+random.IntN(70)
		from := min(int(page.Offset), len(want))
		if got, want := listed(t, f.store, page), want[from:min(from+page.Limit, len(want))]; !slices.Equal(got, want) {
			t.Fatalf("round %d: rows %v from offset %d, want %v: %+v", round, got, page.Offset, want, q)
		}
	}
	if nonEmpty < rounds/4 {
		t.Errorf("%d of the lists had rows", nonEmpty)
	}
}

// statements returns the statements of a list, as the database receives them.
func statements(t *testing.T, s *relational.Store, q record.Query) (list []string, rows int) {
	t.Helper()
	ctx := relational.WithStatementHook(t.Context(), func(_ relational.Tx, s relational.Statement) error {
		if !s.Idle() {
			list = append(list, s.SQL)
		}
		return nil
	})
	for _, err := range s.List(ctx, q) {
		if err != nil {
			t.Fatal(err)
		}
		rows++
	}
	return list, rows
}

// The first page of a list follows the index with the fewest entries after the cursor, and
// needs few statements to find it.
func TestFirstPageFollowsTheShortestIndex(t *testing.T) {
	t.Parallel()
	f := sharedFleet(t)
	metadata := func(pairs ...string) map[string]tko.Pattern {
		m := map[string]tko.Pattern{}
		for pair := range slices.Chunk(pairs, 2) {
			m[pair[0]] = value(t, pair[1])
		}
		return m
	}
	tests := map[string]struct {
		why        string
		query      record.Query
		rows       int
		path       string // in the statement that reads the rows
		statements int    // all of them
	}{
		"all":                   {why: "the records in the order of the table", query: record.Query{}, rows: 20, path: "FROM entity e WHERE e.kind", statements: 1},
		"one site":              {why: "a filter with an index of its own", query: record.Query{Sites: []tko.Pattern{pattern(t, "r03/s003")}}, rows: 5, path: "INDEXED BY entity_by_site", statements: 1},
		"parent":                {why: "a filter with an index of its own", query: record.Query{Parent: "00008"}, rows: 20, path: "INDEXED BY entity_by_parent", statements: 1},
		"unprepared":            {why: "few are", query: record.Query{Is: map[string]bool{"prepared": false}}, rows: 6, path: "INDEXED BY entity_unprepared", statements: 1},
		"prepared":              {why: "most are: there is no index", query: record.Query{Is: map[string]bool{"prepared": true}}, rows: 20, path: "FROM entity e WHERE e.kind", statements: 2},
		"unapproved at a site":  {why: "more are unapproved than a range has", query: record.Query{Is: map[string]bool{"approved": false}, Sites: []tko.Pattern{pattern(t, "r03/s003")}}, path: "INDEXED BY entity_by_site", statements: 3},
		"at a site, with a tag": {why: "all have the tag", query: record.Query{Sites: []tko.Pattern{pattern(t, "r03/s003")}, Metadata: metadata("all", "x")}, rows: 5, path: "INDEXED BY entity_by_site", statements: 4},
		"tagged and unapproved": {why: "few have the tag", query: record.Query{Is: map[string]bool{"approved": false}, Metadata: metadata("rare", "*")}, path: "e.kind = r.k AND e.id = r.i", statements: 10},
		"metadata and parent":   {why: "all have the metadata", query: record.Query{Parent: "00008", Metadata: metadata("all", "x")}, rows: 20, path: "INDEXED BY entity_by_parent", statements: 4},
		"sites of a group":      {why: "the deployments of each site are merged", query: record.Query{SiteMetadata: metadata("group", "g07"), Is: map[string]bool{"approved": true}}, path: "e.kind = r.k AND e.id = r.i", statements: 21},
		"sites of half":         {why: "the deployments of each of 170 sites are merged", query: record.Query{SiteMetadata: metadata("half", "h1"), Is: map[string]bool{"prepared": false}}, path: "INDEXED BY entity_unprepared", statements: 174},
		"the only site":         {why: "it is the same as naming it", query: record.Query{SiteMetadata: metadata("one", "yes")}, path: "INDEXED BY entity_by_site", statements: 3},
		"template of a vendor":  {why: "each deployment has one of four templates", query: record.Query{TemplateMetadata: metadata("vendor", "v1")}, rows: 20, path: "e.kind = r.k AND e.id = r.i", statements: 7},
	}
	for name, test := range tests {
		q := test.query
		q.Kind, q.Scope, q.Limit = tko.KindDeployment, everything("").Scope, 20
		list, rows := statements(t, f.store, q)
		want := min(20, len(f.matches(q)))
		if rows != want || test.rows != 0 && rows != test.rows {
			t.Errorf("%s: %d rows, want %d and %d", name, rows, want, test.rows)
		}
		read := list[slices.IndexFunc(list, func(sql string) bool { return strings.Contains(sql, "SELECT e.kind, e.id, e.uid") })]
		if !strings.Contains(read, test.path) {
			t.Errorf("%s: %s, but the rows are read by\n%s", name, test.why, read)
		}
		if len(list) > test.statements {
			t.Errorf("%s: %d statements, want %d at most", name, len(list), test.statements)
		}
		t.Logf("%s: %d rows, %d statements, by %v", name, rows, len(list), indexes(read))
	}
}

// A list that finds no match in a long range reads ever longer ranges, so that the number of
// its statements grows much less than that of the records.
func TestListWithoutMatchesTakesFewStatements(t *testing.T) {
	t.Parallel()
	f := sharedFleet(t)
	q := everything(tko.KindDeployment)
	q.Templates, q.Sites = []tko.Pattern{pattern(t, "nf/t**")}, nil
	q.Is = map[string]bool{"approved": true}
	list, rows := statements(t, f.store, q)
	if want := len(f.matches(q)); rows != want {
		t.Errorf("%d rows, want %d", rows, want)
	}
	if limit := 80; len(list) > limit {
		t.Errorf("%d statements for %d rows, want %d at most", len(list), rows, limit)
	}
}

// A page that finds few matches among the IDs of several indexes checks ever more of them at
// once, and has no more rows than it asked for when there are many again.
func TestPageWithFewMatchesChecksManyIDsAtOnce(t *testing.T) {
	t.Parallel()
	f := sharedFleet(t)
	for ids, limit := range map[string]int{"**x": 17, "02**": 7, "**00": 17, "?2**": 17} {
		q := everything(tko.KindDeployment)
		q.Limit = 20
		q.TemplateMetadata = map[string]tko.Pattern{"vendor": value(t, "v1")}
		q.IDs = []tko.Pattern{pattern(t, ids)}
		list, rows := statements(t, f.store, q)
		if want := min(20, len(f.matches(q))); rows != want || len(list) > limit {
			t.Errorf("%s: %d rows in %d statements, want %d in %d at most", ids, rows, len(list), want, limit)
		}
		t.Logf("%s: %d rows, %d statements", ids, rows, len(list))
		q.Limit = -1
		for _, packages := range []bool{false, true} { // of which a chunk has few
			q.Fields.Package = packages
			if got, want := listed(t, f.store, q), f.matches(q); !slices.Equal(got, want) {
				t.Errorf("%s: %d rows, want %d", ids, len(got), len(want))
			}
		}
	}
}

// A list whose connection is lost before its first row starts again, and the caller doesn't
// notice. After that, the error names the row after which to continue, and there the rest
// begins.
func TestLostListContinuesAfterItsLastRow(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	queries := map[string]record.Query{"all": {}, "by offset": {Offset: 1200}, "unapproved": {Is: map[string]bool{"approved": false}}, "metadata": {Metadata: map[string]tko.Pattern{"tenth": value(t, "t3")}}, "at once": {Limit: 20}}
	for name, q := range queries {
		q.Kind, q.Scope = tko.KindDeployment, everything("").Scope
		if q.Limit == 0 {
			q.Limit = -1
		}
		want := f.matches(q)
		want = want[q.Offset:]
		if q.Limit > 0 {
			want = want[:q.Limit]
		}
		invisible, continued := 0, 0
		for n := 1; ; n++ {
			f.database.arm(n, notSent)
			var got []string
			var err error
			for r, failure := range f.store.List(t.Context(), q) {
				if err = failure; err == nil {
					got = append(got, r.ID)
				}
			}
			failed := f.database.disarm()
			if failed == 0 {
				break
			}
			switch {
			case err == nil:
				invisible++
			case len(got) == 0 || !errors.Is(err, tko.ErrUnavailable) || !strings.Contains(err.Error(), fmt.Sprintf("continue after %q", got[len(got)-1])):
				t.Fatalf("%s, operation %d: after %d rows: %v", name, n, len(got), err)
			default:
				continued++
				rest := q
				rest.After, rest.Offset = got[len(got)-1], 0
				got = append(got, listed(t, f.store, rest)...)
			}
			if !slices.Equal(got, want) {
				t.Fatalf("%s, operation %d: (-want +got)\n%s", name, n, cmp.Diff(want, got))
			}
			if n > 5000 {
				t.Fatalf("%s: more than %d operations", name, n)
			}
		}
		if invisible < 2 || continued == 0 && q.Limit < 0 {
			t.Errorf("%s: %d lists started again, %d were continued", name, invisible, continued)
		}
	}
}

// skips returns whether a page at an offset was found without reading the matches before it.
func skips(t *testing.T, s *relational.Store, q record.Query, offset, limit int) (ids []string, counted bool) {
	t.Helper()
	q.Offset, q.Limit = uint32(offset), limit
	ctx := relational.WithStatementHook(t.Context(), func(_ relational.Tx, s relational.Statement) error {
		counted = counted || strings.Contains(s.SQL, "OFFSET") || strings.Contains(s.SQL, "count(*)")
		return nil
	})
	for r, err := range s.List(ctx, q) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	return ids, counted
}

// A page that continues the one before isn't counted from the beginning, as long as the log
// shows that no match before it came or went. It is exact in any case.
func TestPagesContinueEachOtherUntilMatchesBeforeThemChange(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	ids := map[string]bool{}
	var writes []record.Write
	for i := range 1000 {
		id := fmt.Sprintf("s%05d", 10*i)
		ids[id] = true
		writes = append(writes, written(tko.KindSite, id))
	}
	commit(t, s, writes...)
	all, some := everything(tko.KindSite), everything(tko.KindSite)
	some.IDs = []tko.Pattern{pattern(t, "s**")} // as far as the store knows, updates may add and remove matches
	const size = 20
	offset := 300
	// next reads the next page of both lists.
	next := func(what string, countsAll, countsSome bool) {
		t.Helper()
		for q, counts := range map[*record.Query]bool{&all: countsAll, &some: countsSome} {
			got, counted := skips(t, s, *q, offset, size)
			if want := slices.Sorted(maps.Keys(ids))[offset : offset+size]; !slices.Equal(got, want) {
				t.Fatalf("%s: page at %d: (-want +got)\n%s", what, offset, cmp.Diff(want, got))
			}
			if counted != counts {
				t.Errorf("%s: the matches before %d, with %d patterns, were counted: %t", what, offset, len(q.IDs), counted)
			}
		}
		offset += size
	}
	next("a page that no client reached", true, true)
	for range 5 {
		next("the next page", false, false)
	}
	commit(t, s, written(tko.KindTemplate, "t"), written(tko.KindDeployment, "d"))
	next("changes of other kinds", false, false)
	commit(t, s, written(tko.KindSite, "s09001"), deleted(tko.KindSite, "s09010"))
	ids["s09001"] = true
	delete(ids, "s09010")
	next("changes behind the page", false, false)
	commit(t, s, record.Write{Op: tko.OpStatus, Expect: record.Any, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: "s00000"}, Conditions: []tko.Condition{{Type: "c"}}}})
	next("a condition before the page", false, false)
	commit(t, s, rewritten(tko.KindSite, "s00050", 1))
	next("a revision before the page", false, true)
	next("the page after that", false, false)
	commit(t, s, written(tko.KindSite, "s02001"))
	ids["s02001"] = true
	next("a new match before the page", true, true)
	next("the page after that", false, false)
	commit(t, s, deleted(tko.KindSite, "s02001"))
	delete(ids, "s02001")
	next("a deleted match before the page", true, true)
	next("the page after that", false, false)
	// As many changes as are read at most, and one more.
	change := func(revision int64) {
		t.Helper()
		for i := 0; i < relational.MaxMissed; i += 1000 {
			var writes []record.Write
			for n := range 1000 {
				writes = append(writes, rewritten(tko.KindTemplate, fmt.Sprintf("t%05d", i+n), revision))
			}
			commit(t, s, writes...)
		}
	}
	change(record.Absent)
	next("as many changes as are read at most", false, false)
	change(1)
	commit(t, s, written(tko.KindTemplate, "one more"))
	next("more changes than are read", true, true)
}

// Offsets equal those of a model, whatever is written between pages of many queries.
func TestOffsetsEqualAModel(t *testing.T) {
	t.Parallel()
	s, _ := open(t)
	random := rand.New(rand.NewPCG(31, 32))
	revisions, sites := map[string]int64{}, map[string]string{}
	last := map[string]int64{} // of deleted ones
	query := func(n int) record.Query {
		q := everything(tko.KindDeployment)
		switch n {
		case 1:
			q.Sites = []tko.Pattern{pattern(t, "a")}
		case 2:
			q.IDs = []tko.Pattern{pattern(t, "d00*")}
		case 3:
			q.IDs, q.Sites = []tko.Pattern{pattern(t, "**1")}, []tko.Pattern{pattern(t, "b*")}
		}
		return q
	}
	for round := range soak.Rounds(t, 100, 300) {
		var writes []record.Write
		for i := range 1 + random.IntN(6) {
			id := fmt.Sprintf("d%03d", (random.IntN(200)*5+i)%1000)
			if slices.ContainsFunc(writes, func(w record.Write) bool { return w.Record.ID == id }) {
				continue
			}
			site := []string{"a", "b1", "b2"}[random.IntN(3)]
			switch {
			case revisions[id] == 0:
				w := written(tko.KindDeployment, id, at(site))
				w.Used = true
				writes = append(writes, w)
				revisions[id], sites[id] = last[id]+1, site
			case random.IntN(3) == 0:
				writes = append(writes, deleted(tko.KindDeployment, id))
				last[id] = revisions[id]
				delete(revisions, id)
			default:
				writes = append(writes, rewritten(tko.KindDeployment, id, revisions[id], at(site)))
				revisions[id]++
				sites[id] = site
			}
		}
		commit(t, s, writes...)
		for n := range 4 {
			q := query(n)
			want := []string{}
			for _, id := range slices.Sorted(maps.Keys(revisions)) {
				if q.Matches(record.Record{Key: deploymentKey(id), Site: sites[id]}) {
					want = append(want, id)
				}
			}
			q.Offset, q.Limit = uint32(random.IntN(len(want)/7+1)*7), 7
			from := min(int(q.Offset), len(want))
			if got, want := listed(t, s, q), want[from:min(from+7, len(want))]; !slices.Equal(got, want) {
				t.Fatalf("round %d, query %d: page at %d is %v, want %v", round, n, q.Offset, got, want)
			}
		}
	}
}

// A list ends with its context, between its statements.
func TestListEndsWithItsContext(t *testing.T) {
	t.Parallel()
	f := sharedFleet(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	rows := 0
	var last error
	for _, err := range f.store.List(ctx, everything(tko.KindDeployment)) {
		last = err
		if err != nil {
			break
		}
		rows++
		if rows == 10 {
			cancel()
		}
	}
	if !errors.Is(last, context.Canceled) || rows > 1200 {
		t.Errorf("after %d rows: %v", rows, last)
	}
	if got := listed(t, f.store, record.Query{Kind: tko.KindDeployment, Scope: everything("").Scope}); len(got) != 0 {
		t.Errorf("a list of no rows has %v", got)
	}
}
