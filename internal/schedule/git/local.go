package git

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/go-git/go-billy/v5/osfs"
	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/cache"
	"github.com/go-git/go-git/v5/plumbing/storer"
	"github.com/go-git/go-git/v5/storage/filesystem"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
	"github.com/tko-orchestrator/tko/internal/pause"
)

const (
	lockRetry = 20 * time.Millisecond
	lockWait  = 5 * time.Second
	// lockStale is the age of a lock whose process must have died: locks are held
	// only while a file is written.
	lockStale = 30 * time.Second
)

// local is a bare repository on this machine. It is changed in place, without the
// git program and without a clone.
type local struct {
	dir     string
	branch  plumbing.ReferenceName
	storage *filesystem.Storage
}

// openLocal opens a bare repository. If the folder is empty or missing, it creates one to
// write to; to read, it is as one without commits.
func openLocal(dir, branch string, write bool) (*local, error) {
	name := plumbing.NewBranchReferenceName(branch)
	entries, err := os.ReadDir(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) || err == nil && len(entries) == 0:
		if !write {
			break
		}
		if err := createBare(dir, name); err != nil {
			return nil, err
		}
	case err != nil:
		return nil, fmt.Errorf("opening the repository: %w", err)
	default:
		if _, err := os.Stat(filepath.Join(dir, ".git")); err == nil {
			return nil, tko.Errorf(tko.ErrConflict, "the repository %q has a working tree, whose branch can't be moved under it: name a bare repository", dir)
		}
		if !gitclient.IsBare(dir) {
			return nil, tko.Errorf(tko.ErrConflict, "the folder %q is neither empty nor a bare repository", dir)
		}
	}
	return &local{dir: dir, branch: name, storage: openStorage(dir)}, nil
}

func openStorage(dir string) *filesystem.Storage {
	return filesystem.NewStorage(osfs.New(dir), cache.NewObjectLRU(objectCache))
}

// createBare creates a repository in a temporary folder next to dir and renames it,
// so that no process sees an incomplete one. It succeeds also if another process
// has created the repository.
func createBare(dir string, branch plumbing.ReferenceName) error {
	if err := os.MkdirAll(filepath.Dir(dir), 0o750); err != nil {
		return fmt.Errorf("creating the repository: %w", err)
	}
	draft, err := os.MkdirTemp(filepath.Dir(dir), ".tko-new-*")
	if err != nil {
		return fmt.Errorf("creating the repository: %w", err)
	}
	defer func() { _ = os.RemoveAll(draft) }()
	options := &gogit.PlainInitOptions{InitOptions: gogit.InitOptions{DefaultBranch: branch}, Bare: true}
	if _, err := gogit.PlainInitWithOptions(draft, options); err != nil {
		return fmt.Errorf("creating the repository: %w", err)
	}
	if err := os.Chmod(draft, 0o755); err != nil { //nolint:gosec // as readable as git makes them
		return fmt.Errorf("creating the repository: %w", err)
	}
	if err := syscall.Rename(draft, dir); err != nil && !gitclient.IsBare(dir) { // os.Rename refuses to replace an empty folder
		return fmt.Errorf("creating the repository: %w", err)
	}
	return nil
}

func (l *local) objects() storer.EncodedObjectStorer { return l.storage }

func (l *local) close() { _ = l.storage.Close() }

func (l *local) tip(context.Context) (plumbing.Hash, error) {
	ref, err := storer.ResolveReference(l.storage, l.branch)
	if errors.Is(err, plumbing.ErrReferenceNotFound) {
		return plumbing.ZeroHash, nil
	}
	if err != nil {
		return plumbing.ZeroHash, fmt.Errorf("reading the branch: %w", err)
	}
	return ref.Hash(), nil
}

// move updates the branch as git does: it writes the new value into the branch's
// lock file and renames that to the branch's file. Other writers respect the lock.
func (l *local) move(ctx context.Context, from, to plumbing.Hash, added *staging) error {
	if err := added.store(func(plumbing.Hash) bool { return true }); err != nil {
		return err
	}
	path := filepath.Join(l.dir, filepath.FromSlash(l.branch.String()))
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("moving the branch: %w", err)
	}
	lock := path + ".lock"
	file, err := takeLock(ctx, lock)
	if err != nil {
		return err
	}
	held := true
	defer func() {
		_ = file.Close()
		if held {
			_ = os.Remove(lock)
		}
	}()
	now, err := l.tip(ctx)
	if err != nil {
		return err
	}
	if now != from {
		return errMoved
	}
	if _, err := file.WriteString(to.String() + "\n"); err != nil {
		return fmt.Errorf("moving the branch: %w", err)
	}
	if err := file.Sync(); err != nil {
		return fmt.Errorf("moving the branch: %w", err)
	}
	if err := os.Rename(lock, path); err != nil {
		return fmt.Errorf("moving the branch: %w", err)
	}
	held = false
	return nil
}

// takeLock creates a lock file. It waits while there is one, and removes a stale
// one.
func takeLock(ctx context.Context, lock string) (*os.File, error) {
	deadline := time.Now().Add(lockWait)
	for {
		file, err := os.OpenFile(lock, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644) //nolint:gosec // as readable as git makes them
		if err == nil {
			return file, nil
		}
		if !errors.Is(err, fs.ErrExist) {
			return nil, fmt.Errorf("locking the branch: %w", err)
		}
		if info, err := os.Stat(lock); err == nil && time.Since(info.ModTime()) > lockStale {
			_ = os.Remove(lock)
			continue
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("the branch is locked by %s", strings.TrimSpace(lock))
		}
		if err := pause.For(ctx, lockRetry); err != nil {
			return nil, err
		}
	}
}
