package relational_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

func deploymentKey(id string) record.Key { return record.Key{Kind: tko.KindDeployment, ID: id} }

// written returns a write of a new record with a package of its own.
func written(kind tko.Kind, id string, change ...func(*record.Record)) record.Write {
	r := record.Record{Key: record.Key{Kind: kind, ID: id}, UID: "uid of " + id, Package: []byte("package of " + id), Metadata: &record.Metadata{}}
	r.Digest = sha256.Sum256(r.Package)
	for _, c := range change {
		c(&r)
	}
	return record.Write{Op: tko.OpWritten, Expect: record.Absent, Record: r}
}

// rewritten returns a write of the next revision of a record.
func rewritten(kind tko.Kind, id string, revision int64, change ...func(*record.Record)) record.Write {
	w := written(kind, id, change...)
	w.Expect = revision
	return w
}

func deleted(kind tko.Kind, id string) record.Write {
	return record.Write{Op: tko.OpDeleted, Expect: record.Any, Record: record.Record{Key: record.Key{Kind: kind, ID: id}}}
}

func under(parent string) func(*record.Record) { return func(r *record.Record) { r.Parent = parent } }

func at(site string) func(*record.Record) { return func(r *record.Record) { r.Site = site } }

func commit(t *testing.T, s *relational.Store, writes ...record.Write) []record.Outcome {
	t.Helper()
	outcomes, err := s.Commit(t.Context(), record.Ungated(writes...))
	if err != nil {
		t.Fatal(err)
	}
	return outcomes
}

// listed returns the IDs that a list has.
func listed(t *testing.T, s *relational.Store, q record.Query) []string {
	t.Helper()
	ids := []string{}
	for r, err := range s.List(t.Context(), q) {
		if err != nil {
			t.Fatalf("after %d rows: %v", len(ids), err)
		}
		ids = append(ids, r.ID)
	}
	return ids
}

func everything(kind tko.Kind) record.Query {
	return record.Query{Kind: kind, Scope: access.ScopeAll, Limit: -1}
}

func pattern(t *testing.T, text string) tko.Pattern {
	t.Helper()
	p, err := tko.ParsePattern(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func value(t *testing.T, text string) tko.Pattern {
	t.Helper()
	p, err := tko.ParseValuePattern(text)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// A fleet is records with metadata of every frequency, and what is known of them.
type fleet struct {
	store       *relational.Store
	database    *faulty
	records     map[tko.Kind]map[string]record.Record
	deployments []string // sorted
}

// The sizes of a fleet: its deployments are several ranges of a cursor.
const (
	fleetTemplates   = 12
	fleetSites       = 340
	fleetDeployments = 2600
)

// theFleet is the fleet of tests that only read.
var theFleet struct {
	sync.Mutex
	users int
	fleet *fleet
}

// sharedFleet returns a fleet that tests share. The test doesn't change it.
func sharedFleet(t *testing.T) *fleet {
	t.Helper()
	theFleet.Lock()
	defer theFleet.Unlock()
	if theFleet.fleet == nil {
		s, err := sqlite.OpenMemory(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		theFleet.fleet = fill(t, s)
	}
	theFleet.users++
	t.Cleanup(func() {
		theFleet.Lock()
		defer theFleet.Unlock()
		theFleet.users--
		if theFleet.users == 0 {
			if err := theFleet.fleet.store.Close(); err != nil {
				t.Error(err)
			}
			theFleet.fleet = nil
		}
	})
	return theFleet.fleet
}

// newFleet returns a fleet on a faulty database.
func newFleet(t *testing.T) *fleet {
	t.Helper()
	s, db := open(t)
	f := fill(t, s)
	f.database = db
	return f
}

// fill writes the records of a fleet. Each deployment has the tags of its number: all, tenth, rare,
// value (one of 700) and late (the last 200); odd ones inherit them from their template.
func fill(t *testing.T, s *relational.Store) *fleet {
	t.Helper()
	f := &fleet{store: s, records: map[tko.Kind]map[string]record.Record{tko.KindTemplate: {}, tko.KindSite: {}, tko.KindDeployment: {}}}
	random := rand.New(rand.NewPCG(11, 12))
	var writes []record.Write
	add := func(w record.Write) {
		w.Record.Revision = 1
		f.records[w.Record.Kind][w.Record.ID] = w.Record
		writes = append(writes, w)
	}
	tags := func(pairs ...string) *record.Metadata {
		m := &record.Metadata{Effective: map[string]string{}}
		for pair := range slices.Chunk(pairs, 2) {
			if pair[1] != "" {
				m.Effective[pair[0]] = pair[1]
			}
		}
		return m
	}
	for i := range fleetTemplates {
		add(written(tko.KindTemplate, fmt.Sprintf("nf/t%02d", i), func(r *record.Record) { r.Metadata = tags("vendor", fmt.Sprintf("v%d", i%3)) }))
	}
	for i := range fleetSites {
		add(written(tko.KindSite, fmt.Sprintf("r%02d/s%03d", i%17, i), func(r *record.Record) {
			r.Metadata = tags("half", fmt.Sprintf("h%d", i%2), "group", fmt.Sprintf("g%02d", i%34), "one", map[bool]string{i == 77: "yes"}[true])
		}))
	}
	for i := range fleetDeployments {
		id := fmt.Sprintf("%05d", i)
		add(written(tko.KindDeployment, id, func(r *record.Record) {
			r.Template = fmt.Sprintf("nf/t%02d", random.IntN(fleetTemplates))
			if n := random.IntN(fleetSites + 50); n < fleetSites {
				r.Site = fmt.Sprintf("r%02d/s%03d", n%17, n)
			}
			r.Prepared, r.Approved = i%500 != 0, random.IntN(3) > 0
			if i%4 == 3 {
				r.Parent = fmt.Sprintf("%05d", i/400*4)
			}
			late, rare := "", ""
			if i >= fleetDeployments-200 {
				late = "yes"
			}
			if i%900 == 0 {
				rare = fmt.Sprintf("r%d", i/900)
			}
			r.Metadata = tags("all", "x", "tenth", fmt.Sprintf("t%d", i%10), "value", fmt.Sprintf("%03d", random.IntN(700)), "late", late, "rare", rare)
			if i%2 == 1 {
				r.Metadata.Inherited = r.Metadata.Effective
			}
		}))
		f.deployments = append(f.deployments, id)
	}
	for batch := range slices.Chunk(writes, 500) {
		commit(t, s, batch...)
	}
	return f
}

// matches returns the sorted IDs of the deployments that match a query, without its window.
func (f *fleet) matches(q record.Query) []string {
	related := func(kind tko.Kind, id string, metadata map[string]tko.Pattern) bool {
		r, ok := f.records[kind][id]
		other := record.Query{Kind: kind, Scope: access.ScopeAll, Metadata: metadata}
		return len(metadata) == 0 || ok && other.Matches(r)
	}
	ids := []string{}
	for _, id := range f.deployments {
		r := f.records[tko.KindDeployment][id]
		if q.Matches(r) && related(tko.KindTemplate, r.Template, q.TemplateMetadata) && related(tko.KindSite, r.Site, q.SiteMetadata) {
			ids = append(ids, id)
		}
	}
	return ids
}

// indexes returns the indexes by which a statement reads, in their order.
func indexes(sql string) []string {
	var list []string
	for i, part := range strings.Split(sql, "INDEXED BY ") {
		if i > 0 {
			list = append(list, strings.FieldsFunc(part, func(r rune) bool { return r == ' ' || r == ')' })[0])
		}
	}
	return list
}
