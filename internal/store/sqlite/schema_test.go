package sqlite_test

import (
	"database/sql"
	"encoding/json"
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rollout/execute"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
)

func TestNewerSchemaIsUsedIfItIsCompatible(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	file(t, path).Close()
	tamper(t, path, "INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatalf("a newer schema that is compatible with this program: %v", err)
	}
	s.Close()
	tamper(t, path, "UPDATE state SET value = '9000' WHERE name = 'compatible'")
	if _, err := sqlite.Open(t.Context(), path, sqlite.Options{}); err == nil || !strings.Contains(err.Error(), "9000") || !strings.Contains(err.Error(), "use the newer TKO") {
		t.Errorf("a newer schema that isn't: %v, want an error that states which programs may use it", err)
	}
}

func TestOlderProgramIsAllowedAndTheNewerOneGoesOn(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Schema(t.Context())
	if err != nil || before.Version != before.Recorded {
		t.Fatalf("the schema is %+v, %v", before, err)
	}
	for _, version := range []int64{before.Version, 12} {
		if err := s.AllowOlder(t.Context(), version, false); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("allow schema %d: %v, want ErrInvalid", version, err)
		}
	}
	if _, err := s.ChangeAccess(t.Context(), 0, []record.AccessRule{{Kind: "binding", ID: "b", Doc: []byte("{}")}}, nil); err != nil {
		t.Fatal(err)
	}
	if err := s.AllowOlder(t.Context(), 49, false); !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), "--ignore-rights") {
		t.Errorf("allow a program that ignores rights: %v, want a refusal with the remedy", err)
	}
	if err := s.AllowOlder(t.Context(), 54, false); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for range 2 { // nothing is migrated again
		again, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		now, err := again.Schema(t.Context())
		if err != nil || now.Version != before.Version || now.Recorded != 54 {
			t.Errorf("the schema is %+v, %v; want version %d, and older programs to see 54", now, err, before.Version)
		}
		again.Close()
	}
	// Before a newer migration, goose's table must state all of them again.
	db, err := sql.Open("sqlite", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	exists := func(string) (bool, error) { return true, nil }
	schema, err := relational.ReadSchema(t.Context(), db, exists)
	if err == nil {
		err = schema.Rejoin(t.Context(), db, []int64{49, 54, before.Version})
	}
	if err == nil {
		schema, err = relational.ReadSchema(t.Context(), db, exists)
	}
	if err != nil || schema.Recorded != before.Version || schema.Version != before.Version {
		t.Errorf("the schema is %+v, %v; want version %d recorded", schema, err, before.Version)
	}
}

func TestProgramsThatBreakRolloutsAreAllowedOnlyIfThereAreNone(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	before, err := s.Schema(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := before.Check("the store", 56); err == nil {
		t.Error("a program that doesn't know rollouts may use the store")
	}
	rollout := func(state execute.State) {
		t.Helper()
		_, version, _, err := s.RolloutStates(t.Context())
		if err == nil {
			key := record.Key{Kind: tko.KindRollout, ID: "r"}
			_, err = s.Commit(t.Context(), record.Ungated(record.Write{
				Op: tko.OpWritten, Record: record.Record{Key: key, UID: "u"}, Expect: record.Any,
				Rollout: &record.RolloutWrite{Expect: version, States: []record.RolloutState{{ID: "r", Family: "r", State: state, Plan: 1}}},
			}))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	refused := func(what string) {
		t.Helper()
		if err := s.AllowOlder(t.Context(), 56, false); !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), what) {
			t.Errorf("allow an older program: %v, want a refusal that names %s", err, what)
		}
	}
	rollout(execute.Running)
	refused(`rollout "r"`)
	rollout(execute.Done)
	until := time.Now().Add(time.Hour)
	for i, f := range []tko.Freeze{{ID: "f", Until: until}, {ID: "f", Until: until.Add(-2 * time.Hour)}} {
		doc, err := json.Marshal(f)
		if err == nil {
			_, err = s.ChangeAccess(t.Context(), int64(i), []record.AccessRule{{Kind: "freeze", ID: "f", Doc: doc}}, nil)
		}
		if err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			refused(`freeze "f"`)
		}
	}
	stop := []record.AccessRule{{Kind: "stop", ID: "x", Doc: []byte(`{"ID":"x","All":true}`)}}
	if _, err := s.ChangeAccess(t.Context(), 2, stop, nil); err != nil {
		t.Fatal(err)
	}
	refused(`tko resume x`)
	if _, err := s.ChangeAccess(t.Context(), 3, nil, stop); err != nil {
		t.Fatal(err)
	}
	if err := s.AllowOlder(t.Context(), 56, false); err != nil {
		t.Fatal(err)
	}
	s.Close()
	for range 2 { // the present program goes on, and doesn't revoke it
		s, err = sqlite.Open(t.Context(), path, sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		now, err := s.Schema(t.Context())
		if err != nil || now.Version != before.Version {
			t.Errorf("the schema is %+v, %v", now, err)
		}
		if _, err := now.Check("the store", 56); err != nil {
			t.Errorf("the allowed program: %v", err)
		}
		s.Close()
	}
}

// A program that doesn't know derivations writes a revision and leaves the column.
func TestDerivationIsNotTakenForThatOfARevisionOfAnOlderProgram(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	s := file(t, path)
	key := record.Key{Kind: tko.KindDeployment, ID: "d"}
	r := record.Record{Key: key, UID: "u", Derived: []byte("made"), Derivation: record.Digest{1}}
	if _, err := s.Commit(t.Context(), record.Ungated(record.Write{Op: tko.OpWritten, Record: r, Expect: record.Absent})); err != nil {
		t.Fatal(err)
	}
	read := func() record.Digest {
		t.Helper()
		found, err := s.Get(t.Context(), record.Fields{}, key)
		if err != nil {
			t.Fatal(err)
		}
		return found[0].Derivation
	}
	if read() != (record.Digest{1}) {
		t.Error("the derivation isn't as it was written")
	}
	s.Close()
	tamper(t, path, "UPDATE entity SET revision = 2 WHERE id = 'd'")
	s = file(t, path)
	if read() != (record.Digest{}) {
		t.Error("a revision has the derivation of an earlier one")
	}
}
