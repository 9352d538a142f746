package sqlite_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func TestSecondServerOnOneFileIsRefused(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	path := filepath.Join(folder, "store.db")
	exclusive := sqlite.Options{Exclusive: true}
	first, err := sqlite.Open(t.Context(), path, exclusive)
	if err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(folder, "link.db")
	if err := os.Symlink(path, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{path, link} {
		_, err = sqlite.Open(t.Context(), path, exclusive)
		if !errors.Is(err, tko.ErrBusy) || !strings.Contains(err.Error(), "store.db") || !strings.Contains(err.Error(), fmt.Sprint("process ", os.Getpid())) {
			t.Errorf("a second server on %s: %v, want an ErrBusy that names the file and the process", path, err)
		}
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := sqlite.Open(t.Context(), path, exclusive)
	if err != nil {
		t.Fatalf("after the first was closed: %v", err)
	}
	closed(t, again)
}

func TestFullDiskIsUnavailable(t *testing.T) {
	t.Parallel()
	s, err := sqlite.OpenSmall(t.Context(), filepath.Join(t.TempDir(), "store.db"), 100)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	keys := make([]string, 10_000)
	for i := range keys {
		keys[i] = fmt.Sprintf("%0200d", i)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	err = s.EnqueueWork(ctx, tko.QueueSchedule, keys, false)
	if !errors.Is(err, tko.ErrUnavailable) || !strings.Contains(err.Error(), "nothing was changed") {
		t.Errorf("error is %v, want an ErrUnavailable, as from a PostgreSQL with a full disk", err)
	}
	if err := s.EnqueueWork(t.Context(), tko.QueueSchedule, keys[:1], false); err != nil {
		t.Errorf("a write that still fits: %v", err)
	}
}

func TestWritesFailWhileFileIsRemoved(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "store.db")
	var log eventually.Buffer // the store's goroutines log, too
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{Log: slog.New(slog.NewTextHandler(&log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closed(t, s) })
	write := func(id string) error {
		_, err := s.Commit(t.Context(), record.Ungated(record.Write{Op: tko.OpWritten, Record: record.Record{Key: record.Key{Kind: tko.KindSite, ID: id}}}))
		return err
	}
	if err := write("a"); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path, path+".away"); err != nil {
		t.Fatal(err)
	}
	if err := write("b"); !errors.Is(err, tko.ErrUnavailable) || !strings.Contains(err.Error(), "removed or replaced") {
		t.Errorf("a write: %v, want an ErrUnavailable with the cause", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := write("c"); !errors.Is(err, tko.ErrUnavailable) {
		t.Errorf("a write with another file there: %v, want an ErrUnavailable", err)
	}
	if n := strings.Count(log.String(), "level=ERROR"); n != 1 || !strings.Contains(log.String(), path) {
		t.Errorf("the removal was logged %d times, want once, with the path:\n%s", n, log.String())
	}
	if err := os.Rename(path+".away", path); err != nil {
		t.Fatal(err)
	}
	if err := write("d"); err != nil {
		t.Errorf("after the file is back: %v", err)
	}
}

// Everything that rights protect is in the file: other users of the machine must not read it,
// whatever the umask is.
func TestOtherUsersCantReadTheStore(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	t.Cleanup(setUmask(0))
	s, err := sqlite.Open(t.Context(), path, sqlite.Options{Exclusive: true})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(path + "*")
	if err != nil || len(files) < 4 {
		t.Fatalf("the store has the files %v, %v", files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Mode().Perm()&^0o600 != 0 {
			t.Errorf("%s has the permissions %v, %v", file, info.Mode(), err)
		}
	}
	closed(t, s)
	for _, wide := range []struct {
		file string
		mode os.FileMode
	}{{path, 0o644}, {path, 0o640}, {path, 0o620}, {path + "-wal", 0o604}} {
		if err := errors.Join(os.WriteFile(path+"-wal", nil, 0o600), os.Chmod(path, 0o600), os.Chmod(wide.file, wide.mode)); err != nil {
			t.Fatal(err)
		}
		_, err := sqlite.Open(t.Context(), path, sqlite.Options{})
		if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), wide.file) || !strings.Contains(err.Error(), "chmod 600") || !strings.Contains(err.Error(), "--store-readable") {
			t.Errorf("%s with %v: %v, want a refusal with the file and the remedy", wide.file, wide.mode, err)
		}
		allowed, err := sqlite.Open(t.Context(), path, sqlite.Options{Readable: true})
		if err != nil {
			t.Fatalf("a file that others may read, allowed: %v", err)
		}
		closed(t, allowed)
	}
}
