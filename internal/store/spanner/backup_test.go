package spanner_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/backup"
	"github.com/tko-orchestrator/tko/internal/store/postgres"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/store/spanner"
	"github.com/tko-orchestrator/tko/internal/store/spanner/spannertest"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/store/storetest"
)

// archiver opens an empty store of a kind.
func archiver(t *testing.T, kind string) storetest.Archiver {
	t.Helper()
	var s interface {
		storetest.Archiver
		Close() error
	}
	var err error
	switch kind {
	case "sqlite":
		s, err = sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "store.db"), sqlite.Options{})
	case "postgres":
		s, err = postgres.Open(t.Context(), pgtest.DSN(t), postgres.Options{})
	default:
		return openAt(t, spannertest.Database(t))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestBackupIsRestoredIntoTheSameAndTheOtherDatabase(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"spanner", "spanner"}, {"spanner", "sqlite"}, {"sqlite", "spanner"}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			t.Parallel()
			storetest.Backups(t, archiver(t, pair[0]), archiver(t, pair[1]))
		})
	}
}

// Each row is the same after a restore into another kind of database, and after one more into the first.
func TestStoreMovesBetweenDatabases(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"sqlite", "sqlite"}, {"sqlite", "spanner"}, {"spanner", "sqlite"}, {"spanner", "spanner"}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			t.Parallel()
			storetest.Moves(t, archiver(t, pair[0]), archiver(t, pair[1]), archiver(t, pair[0]))
		})
	}
}

func TestStoreMovesBetweenServersOfDatabases(t *testing.T) {
	t.Parallel()
	for _, pair := range [][2]string{{"postgres", "spanner"}, {"spanner", "postgres"}} {
		t.Run(pair[0]+" to "+pair[1], func(t *testing.T) {
			t.Parallel()
			storetest.Moves(t, archiver(t, pair[0]), archiver(t, pair[1]), archiver(t, pair[0]))
		})
	}
}

func TestDamagedBackupIsRefused(t *testing.T) {
	t.Parallel()
	storetest.DamagedBackups(t, archiver(t, "sqlite"), archiver(t, "spanner"))
}

func TestOlderBackupKeepsSitesApart(t *testing.T) {
	t.Parallel()
	storetest.OlderBackups(t, archiver(t, "sqlite"), archiver(t, "spanner"))
}

func TestOnePromotedStoreCommandsAgents(t *testing.T) {
	t.Parallel()
	storetest.Fences(t, archiver(t, "spanner"), archiver(t, "sqlite"), archiver(t, "spanner"))
}

// A restore is killed at each part of its commits, before or after the database has made it. The store is then empty, or says that it isn't
// complete, or has everything; a restore into what isn't complete begins anew.
func TestKilledRestoreBeginsAnew(t *testing.T) {
	t.Parallel()
	data := storetest.Filled(t, archiver(t, "sqlite"))
	for n, done := 1, false; !done; n += 1 + n/3 {
		database := spannertest.Database(t)
		killed, s := openSabotaged(t, database)
		ctx, kill := context.WithCancel(t.Context())
		commits := 0
		s.begin(func(_ int, method string) (codes.Code, bool) {
			if !strings.HasSuffix(method, "/Commit") {
				return codes.OK, false
			}
			commits++
			if commits < n {
				return codes.OK, false
			}
			kill()
			return codes.Canceled, n%2 == 0
		})
		_, err := killed.Restore(ctx, bytes.NewReader(data), backup.Restore{})
		s.end()
		done = commits < n
		if done != (err == nil) {
			t.Fatalf("killed at commit %d of %d: %v", n, commits, err)
		}
		kill()
		next := openAt(t, database)
		incomplete := next.CheckComplete(t.Context())
		head, err := next.Head(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if incomplete != nil && (head != 0 || !errors.Is(incomplete, tko.ErrInvalid)) {
			t.Errorf("killed at commit %d: the store isn't complete (%v), and is at position %d", n, incomplete, head)
		}
		if incomplete != nil && next.Backup(t.Context(), io.Discard, "v1") == nil {
			t.Errorf("killed at commit %d: the store isn't complete, and is backed up", n)
		}
		if head == 0 {
			if _, err := next.Restore(t.Context(), bytes.NewReader(data), backup.Restore{}); err != nil {
				t.Errorf("killed at commit %d: the restore doesn't begin anew: %v", n, err)
			}
		}
		storetest.HasAll(t, next, data)
	}
}

func TestTwoRestoresAtOnceAreNoMixture(t *testing.T) {
	t.Parallel()
	data := storetest.Filled(t, archiver(t, "sqlite"))
	database := spannertest.Database(t)
	errs := make(chan error, 2)
	for range 2 {
		s := openAt(t, database)
		go func() {
			_, err := s.Restore(t.Context(), bytes.NewReader(data), backup.Restore{})
			errs <- err
		}()
	}
	failed := 0
	for range 2 {
		if err := <-errs; err != nil {
			failed++
			if !errors.Is(err, tko.ErrConflict) && !errors.Is(err, tko.ErrInvalid) {
				t.Error(err)
			}
		}
	}
	s := openAt(t, database)
	switch complete := s.CheckComplete(t.Context()); {
	case failed == 0:
		t.Error("both restores succeeded")
	case failed == 2 && complete == nil:
		t.Error("both restores failed, and the store is complete")
	case complete == nil:
		storetest.HasAll(t, s, data)
	}
}

// A store that was written with keys keeps them, and its packages encrypted, in other databases.
func TestEncryptedStoreMoves(t *testing.T) {
	t.Parallel()
	sealer := reverser{}
	from, to := archiver(t, "spanner"), archiver(t, "sqlite")
	from.(*spanner.Store).Encrypt(sealer)
	data := storetest.Filled(t, from)
	if bytes.Contains(data, []byte("package of")) {
		t.Error("the archive has a package that isn't encrypted")
	}
	if _, err := to.Restore(t.Context(), bytes.NewReader(data), backup.Restore{}); err != nil {
		t.Fatal(err)
	}
	key := record.Key{Kind: tko.KindTemplate, ID: "cu"}
	if _, err := to.Get(t.Context(), record.Fields{Package: true}, key); !errors.Is(err, tko.ErrUnavailable) {
		t.Errorf("a package without the key: %v, want ErrUnavailable", err)
	}
	to.(*relational.Store).Encrypt(sealer)
	records, err := to.Get(t.Context(), record.Fields{Package: true}, key)
	if err != nil || string(records[0].Package) != "package of cu" {
		t.Errorf("the package is %q, %v", records[0].Package, err)
	}
}

// A reverser is a sealer that doesn't keep secrets.
type reverser struct{}

func (reverser) Seal(plain, identity []byte) ([]byte, error) {
	sealed := append(slices.Clone(plain), identity...)
	slices.Reverse(sealed)
	return sealed, nil
}

func (reverser) Open(_ context.Context, sealed, identity []byte) ([]byte, error) {
	plain := slices.Clone(sealed)
	slices.Reverse(plain)
	plain, ok := bytes.CutSuffix(plain, identity)
	if !ok {
		return nil, errors.New("another identity")
	}
	return plain, nil
}

func TestPackagesAreEncryptedWithANewKey(t *testing.T) {
	t.Parallel()
	database := spannertest.Database(t)
	s := openAt(t, database)
	w := site("s", record.Absent)
	w.Record.Package = bytes.Repeat([]byte("large "), 3<<20) // several chunks, if it isn't compressed
	for i := range w.Record.Package {
		w.Record.Package[i] = byte(i * i >> 7)
	}
	w.Record.Digest = sha256.Sum256(w.Record.Package)
	if _, err := s.Commit(t.Context(), record.Ungated(w)); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveSealingKey(t.Context(), []byte("one"), 0); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveSealingKey(t.Context(), []byte("two"), 0); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("another key of the same version: %v, want ErrConflict", err)
	}
	s.Encrypt(reverser{})
	done := 0
	if err := s.Reseal(t.Context(), func(n int) { done = n }); err != nil || done != 1 {
		t.Fatalf("%d packages were encrypted, %v", done, err)
	}
	read := func(s record.Store) ([]byte, error) {
		records, err := s.Get(t.Context(), record.Fields{Package: true}, w.Record.Key)
		return records[0].Package, err
	}
	without := openAt(t, database)
	if _, err := read(without); !errors.Is(err, tko.ErrUnavailable) {
		t.Errorf("an encrypted package without a key: %v, want ErrUnavailable", err)
	}
	with := openAt(t, database)
	with.Encrypt(reverser{})
	if got, err := read(with); err != nil || !bytes.Equal(got, w.Record.Package) {
		t.Errorf("%d bytes, %v, want %d", len(got), err, len(w.Record.Package))
	}
}
