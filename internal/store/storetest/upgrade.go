package storetest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
)

// A Closer is a store that its caller closes.
type Closer interface {
	record.Store
	Close() error
}

// An OldDatabase is a database that a test can convert to the schema before shared
// metadata.
type OldDatabase struct {
	// Open opens the store on the database.
	Open func(t *testing.T) Closer
	// Run runs an SQL statement.
	Run func(t *testing.T, statement string)
	// Bytes returns the SQL expression that converts a text to bytes.
	Bytes func(text string) string
}

// UpgradeOldDatabase checks that a store reads the data of schema 30 after an upgrade.
// That schema indexed all metadata by record and stored conditions as JSON.
func UpgradeOldDatabase(t *testing.T, older OldDatabase) {
	t.Helper()
	s := older.Open(t)
	w := &world{T: t, store: s}
	w.commit(deployment("a", inherited("k", "1", "same", "x")), deployment("b", inherited("k", "1", "same", "x")), deployment("c", own("k", "1")))
	w.commit(site("s", own("k", "1")))
	w.ok(s.Close())
	for _, statement := range []string{
		"INSERT INTO entity_pair (pair, id) SELECT s.pair, e.id FROM metaset_pair s JOIN entity e ON e.metaset = s.metaset",
		"UPDATE entity SET metaset = -metaset WHERE metaset < 0",
		"UPDATE change SET metaset = -metaset WHERE metaset < 0",
		"UPDATE metaset SET id = -id, digest = " + older.Bytes("doc") + " WHERE id < 0",
		`UPDATE entity SET conditions = '[{"Type":"Healthy","Status":"True","LastTransition":"2026-01-02T03:04:05.000006Z","ObservedRevision":1}]' WHERE id = 'a'`,
		"DROP INDEX IF EXISTS entity_by_metaset",
		"DROP TABLE metaset_pair",
		"DROP TABLE source",
		"DROP TABLE target_state",
		"DROP TABLE sealing_key",
		"DROP TABLE rollout",
		"DROP TABLE rollout_plan",
		"DROP TABLE rollout_row",
		"DROP TABLE rollout_pin",
		"DROP TABLE rollout_evidence",
		"DROP TABLE flight",
		"DROP TABLE longer",
		"DROP TABLE reach",
		"DROP TABLE reach_part",
		"DROP TABLE reach_site",
		"ALTER TABLE head DROP COLUMN rollouts",
		"ALTER TABLE entity DROP COLUMN derivation",
		"ALTER TABLE change DROP COLUMN derivation",
		"ALTER TABLE entity DROP COLUMN owner",
		"ALTER TABLE change DROP COLUMN owner",
		"DROP INDEX IF EXISTS change_departed",
		"ALTER TABLE change DROP COLUMN departed",
		"ALTER TABLE change DROP COLUMN base",
		"ALTER TABLE collector DROP COLUMN past",
		"ALTER TABLE collector DROP COLUMN past_at",
		"DROP TABLE state",
		"DROP TABLE hold",
		"ALTER TABLE work DROP COLUMN cause",
		"ALTER TABLE work DROP COLUMN gathering",
		"DROP TABLE access_rule",
		"DROP TABLE audit",
		"DROP TABLE audit_base",
		"DROP TABLE audit_sink",
		"DROP TABLE subscription",
		"DROP TABLE notifier",
		"DROP TABLE tally",
		"DROP TABLE failure",
		"ALTER TABLE head DROP COLUMN tallied",
		"ALTER TABLE head DROP COLUMN access",
		"ALTER TABLE head DROP COLUMN audited",
		"ALTER TABLE head DROP COLUMN chain",
		"ALTER TABLE entity DROP COLUMN replaces",
		"ALTER TABLE entity DROP COLUMN replaced",
		"ALTER TABLE entity DROP COLUMN description",
		"ALTER TABLE change DROP COLUMN description",
		"ALTER TABLE entity DROP COLUMN base",
		"ALTER TABLE work DROP COLUMN since",
		"ALTER TABLE modification DROP COLUMN since",
		"ALTER TABLE modification DROP COLUMN who",
		"ALTER TABLE modification DROP COLUMN why",
		"ALTER TABLE change DROP COLUMN steps",
		`UPDATE change SET why = 'prepared v1 X "a" by TKO (iteration 1, 0s)' WHERE id = 'a'`,
		"DELETE FROM goose_db_version WHERE version_id > 30",
	} {
		older.Run(t, statement)
	}

	s = older.Open(t)
	w = &world{T: t, store: s}
	find := func(pairs ...string) string {
		return strings.Join(w.ids(record.Query{Kind: tko.KindDeployment, Metadata: values(pairs...), Limit: -1}), " ")
	}
	w.equal("after the upgrade", find("k", "1"), "a b c")
	w.equal("after the upgrade, two keys", find("k", "1", "same", "x"), "a b")
	healthy := []tko.Condition{{
		Type: tko.ConditionHealthy, Status: tko.ConditionTrue, LastTransition: time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC), ObservedRevision: 1,
	}}
	if diff := cmp.Diff(healthy, w.one(deploymentKey("a")).Conditions); diff != "" {
		w.Errorf("conditions (-want +got):\n%s", diff)
	}
	first, err := w.store.Revision(w.ctx(), deploymentKey("a"), 1)
	w.ok(err)
	w.equal("reason of a revision", first.Author.Why, `prepared v1 X "a" by TKO (iteration 1, 0s)`)
	w.equal("steps of a revision", first.Steps, []tko.PreparationStep(nil))
	w.commit(status(deploymentKey("b"), tko.Condition{Type: tko.ConditionHealthy}))
	for revision := range int64(2) { // to a new record, and to an existing one
		w.commit(deployment("a", expect(revision+1), inherited("k", "1", "same", "x")), deployment(fmt.Sprint("d", revision), inherited("k", "1", "same", "x")))
	}
	w.equal("with new deployments", find("k", "1"), "a b c d0 d1")
	w.collect(retain(1))
	w.equal("after a collection", find("k", "1", "same", "x"), "a b d0 d1")
	w.commit(deleted(deploymentKey("b")), deleted(deploymentKey("d1")))
	w.collect(retain(1))
	w.equal("after the last old deployment with shared metadata was deleted", find("k", "1", "same", "x"), "a d0")
	w.equal("metadata", w.one(deploymentKey("a")).Metadata.Effective, map[string]string{"k": "1", "same": "x"})
	w.waitForNumbers(nil)
	w.checkNumbers("of a database of schema 30")
	w.ok(s.Close())
}

// UpgradeOldTargetStates checks that a store reads the target states of schema 37 after
// an upgrade. In that schema they were GitOps sources with names of the form
// "site:SITE:NAME". Other sources are unchanged.
func UpgradeOldTargetStates(t *testing.T, older OldDatabase) {
	t.Helper()
	s := older.Open(t)
	w := &world{T: t, store: s}
	for _, name := range []string{"fleet", "site", "site:x", "Site:lagos:main"} {
		_, err := s.SaveSource(w.ctx(), tko.Source{Name: name, State: []byte(name)}, w.claimSource(time.Hour, name)[0])
		w.ok(err)
	}
	w.ok(s.Close())
	insert := "INSERT INTO source (name, version, updated, status, state, approved) VALUES ('%s', 7, 1767323045000006, " +
		older.Bytes("'{}'") + ", " + older.Bytes("'%s'") + ", '')"
	for _, statement := range []string{
		fmt.Sprintf(insert, "site:lagos:main", "first"),
		fmt.Sprintf(insert, "site:edge/cu:v1:site:main", "second"),
		"DROP TABLE target_state",
		"DROP TABLE sealing_key",
		"DROP INDEX IF EXISTS change_departed",
		"ALTER TABLE change DROP COLUMN departed",
		"ALTER TABLE change DROP COLUMN base",
		"ALTER TABLE collector DROP COLUMN past",
		"ALTER TABLE collector DROP COLUMN past_at",
		"DROP TABLE rollout",
		"DROP TABLE rollout_plan",
		"DROP TABLE rollout_row",
		"DROP TABLE rollout_pin",
		"DROP TABLE rollout_evidence",
		"DROP TABLE flight",
		"ALTER TABLE head DROP COLUMN rollouts",
		"DROP TABLE longer",
		"DROP TABLE reach",
		"DROP TABLE reach_part",
		"DROP TABLE reach_site",
		"ALTER TABLE entity DROP COLUMN replaced",
		"ALTER TABLE entity DROP COLUMN description",
		"ALTER TABLE change DROP COLUMN description",
		"ALTER TABLE entity DROP COLUMN derivation",
		"ALTER TABLE change DROP COLUMN derivation",
		"ALTER TABLE entity DROP COLUMN owner",
		"ALTER TABLE change DROP COLUMN owner",
		"DROP TABLE state",
		"DROP TABLE hold",
		"ALTER TABLE work DROP COLUMN cause",
		"ALTER TABLE work DROP COLUMN gathering",
		"DROP TABLE access_rule",
		"DROP TABLE audit",
		"DROP TABLE audit_base",
		"DROP TABLE audit_sink",
		"DROP TABLE subscription",
		"DROP TABLE notifier",
		"DROP TABLE tally",
		"DROP TABLE failure",
		"ALTER TABLE head DROP COLUMN tallied",
		"ALTER TABLE head DROP COLUMN access",
		"ALTER TABLE head DROP COLUMN audited",
		"ALTER TABLE head DROP COLUMN chain",
		"ALTER TABLE change DROP COLUMN steps",
		"DELETE FROM goose_db_version WHERE version_id > 37",
	} {
		older.Run(t, statement)
	}

	s = older.Open(t)
	w = &world{T: t, store: s}
	updated := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for _, want := range []tko.TargetState{
		{Site: "lagos", Name: "main", State: []byte("first"), Version: 7, Updated: updated},
		{Site: "edge/cu:v1:site", Name: "main", State: []byte("second"), Version: 7, Updated: updated},
	} {
		got, err := s.TargetState(w.ctx(), want.Site, want.Name)
		w.ok(err)
		w.equal("state", got, want)
	}
	version, err := s.SaveTargetState(w.ctx(), tko.TargetState{Site: "lagos", Name: "main"}, w.claimSite(time.Hour))
	w.ok(err)
	w.equal("version of the next save", version, int64(8))
	sources, err := s.Sources(w.ctx())
	w.ok(err)
	var names []string
	for _, source := range sources {
		names = append(names, source.Name)
	}
	w.equal("sources", names, []string{"Site:lagos:main", "fleet", "site", "site:x"})
	w.ok(s.Close())
}

// UpgradeOldFlights checks that deployments in flight keep sites apart after an upgrade
// of a store whose column apart lacks values: of schema 60 to 81, or restored from a
// backup without it.
func UpgradeOldFlights(t *testing.T, older OldDatabase) {
	t.Helper()
	s := older.Open(t)
	w := &world{T: t, store: s}
	w.fillAll()
	view := w.view("r")
	other := execute.Entry{Deployment: "d2", Site: "oslo", Rollout: "r", Family: "r", Values: map[string]string{`"Apart":["`: `"Apart":["pair"]`}}
	w.commit(site("oslo", expect(2), changing(record.RolloutWrite{Expect: view.Version, States: []record.RolloutState{view.State}, Flight: []execute.Entry{other}})))
	want, err := s.ApartFlights(w.ctx())
	w.ok(err)
	w.equal("flights that keep sites apart", len(want), 1)
	w.ok(s.Close())
	older.Run(t, "UPDATE flight SET apart = (1 = 0)")
	older.Run(t, "DROP TABLE rollout_evidence")
	older.Run(t, "DROP TABLE reach_part")
	older.Run(t, "ALTER TABLE entity DROP COLUMN replaced")
	older.Run(t, "ALTER TABLE entity DROP COLUMN description")
	older.Run(t, "ALTER TABLE change DROP COLUMN description")
	older.Run(t, "DROP TABLE subscription")
	older.Run(t, "DROP TABLE notifier")
	older.Run(t, "ALTER TABLE work DROP COLUMN gathering")
	older.Run(t, "DROP TABLE tally")
	older.Run(t, "DROP TABLE failure")
	older.Run(t, "ALTER TABLE head DROP COLUMN tallied")
	older.Run(t, "DROP INDEX rollout_row_released")
	older.Run(t, "DELETE FROM goose_db_version WHERE version_id >= 90") // later migrations must be undone before
	s = older.Open(t)
	w = &world{T: t, store: s}
	got, err := s.ApartFlights(w.ctx())
	w.ok(err)
	w.equal("flights that keep sites apart, after the upgrade", got, want)
	w.ok(s.Close())
}
