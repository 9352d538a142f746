package agent

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/tko-orchestrator/tko"
)

// The files of an agent's folder.
const (
	setupFile   = "agent.json"
	keyFile     = "report.key"
	identity    = "bundle.key"
	bundleFile  = "bundle"
	stateFile   = "state.json"
	lockFile    = "lock"
	reserveFile = "reserve"
	draftSuffix = ".new"
)

// A folder is the folder of an agent. All its files are replaced by renames.
type folder struct {
	path string
	lock *os.File
	// step is called before each step; a test ends the process there.
	step func(name string)
}

// A folder is locked for a moment also while its status is read.
const (
	lockTries = 5
	lockPause = 20 * time.Millisecond
)

// openFolder opens a folder, and keeps other processes from it. ErrBusy if one has it.
func openFolder(path string) (*folder, error) {
	lock, err := os.OpenFile(filepath.Join(path, lockFile), os.O_RDWR|os.O_CREATE, 0o600) //nolint:gosec // the operator names the folder
	if errors.Is(err, fs.ErrNotExist) {
		return nil, tko.Errorf(tko.ErrNotFound, "the folder %s: not found: make it with tko-agent init", path)
	}
	if err != nil {
		return nil, err
	}
	for try := 0; ; try++ {
		if err = syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err == nil || try == lockTries {
			break
		}
		time.Sleep(lockPause)
	}
	if err != nil {
		_ = lock.Close()
		return nil, tko.Errorf(tko.ErrBusy, "another tko-agent works with the folder %s: wait until it ends", path)
	}
	return &folder{path: path, lock: lock, step: func(string) {}}, nil
}

// close unlocks the folder, also if a child that is being started has the file, too.
func (f *folder) close() {
	_ = syscall.Flock(int(f.lock.Fd()), syscall.LOCK_UN)
	_ = f.lock.Close()
}

func (f *folder) file(name string) string { return filepath.Join(f.path, name) }

// read returns a file's content; nil if there is none.
func (f *folder) read(name string) ([]byte, error) {
	data, err := os.ReadFile(f.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// draft writes a file that keep gives its name.
func (f *folder) draft(name string, write func(io.Writer) error) error {
	f.step("write " + name)
	return writeDraft(f.file(name), write)
}

// keep replaces a file by its draft.
func (f *folder) keep(name string) error {
	f.step("rename " + name)
	return keepDraft(f.file(name))
}

// replace replaces a file.
func (f *folder) replace(name string, data []byte) error {
	if err := f.draft(name, func(w io.Writer) error { _, err := w.Write(data); return err }); err != nil {
		return err
	}
	return f.keep(name)
}

// Replace writes a file as a whole: there is the former one, or the new one, at any time.
func Replace(path string, write func(io.Writer) error) error {
	if err := writeDraft(path, write); err != nil {
		return err
	}
	return keepDraft(path)
}

func writeDraft(path string, write func(io.Writer) error) (err error) {
	// What has the name, such as a link on a stick to a file of this machine, is not written to.
	if err := os.Remove(path + draftSuffix); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	draft, err := os.OpenFile(path+draftSuffix, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600) //nolint:gosec // the operator names the file
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = draft.Close()
			_ = os.Remove(draft.Name())
		}
	}()
	if err := write(draft); err != nil {
		return err
	}
	return errors.Join(draft.Sync(), draft.Close())
}

func keepDraft(path string) error {
	if err := os.Rename(path+draftSuffix, path); err != nil {
		return err
	}
	parent, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// reserve keeps space for the state that is written after the site has changed: on a full disk, it
// fails before. release frees the space.
func (f *folder) reserve(bytes int) error {
	err := f.replace(reserveFile, make([]byte, bytes))
	if err != nil {
		return fmt.Errorf("the disk has no space for the state of the agent, so nothing was applied: free at least %d KiB: %w", bytes>>10+1, err)
	}
	return nil
}

func (f *folder) release() { _ = os.Remove(f.file(reserveFile)) }
