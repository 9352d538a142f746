package sqlite_test

import (
	"database/sql"
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
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
	if _, err := s.ChangeAccess(t.Context(), 0, []catalog.AccessRule{{Kind: "binding", ID: "b", Doc: []byte("{}")}}, nil); err != nil {
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
