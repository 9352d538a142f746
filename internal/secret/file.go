package secret

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/leash"
)

// maxFile is the most bytes of a file with a secret.
const maxFile = 1 << 20

// A Folder has the files with secrets that packages may name. The author of a package
// chooses the name, so it must not lead to other files of the server.
type Folder struct {
	Kind  string // of the credentials in it: see package leash
	Path  string // "" for none
	Owner string // program that it belongs to, for errors, such as meta-scheduler
	Flag  string // setting of its path, for errors
}

// Locate returns the path of a file in the folder. The name is relative to the folder,
// or an absolute path in it. The error is an ErrInvalid if the name leads out of it.
func (f Folder) Locate(name string) (path string, err error) {
	folder, relative, err := f.resolve(name)
	return filepath.Join(folder, relative), err
}

func (f Folder) resolve(name string) (folder, relative string, err error) {
	if f.Path == "" {
		return "", "", fmt.Errorf("%q: this %s has no folder of secrets: configure %s", name, f.Owner, f.Flag)
	}
	if folder, err = filepath.Abs(f.Path); err != nil {
		return "", "", fmt.Errorf("%q: the folder of secrets can't be found: %w", name, err)
	}
	relative = name
	if filepath.IsAbs(name) {
		relative, err = filepath.Rel(folder, name)
	}
	if err != nil || !filepath.IsLocal(relative) {
		return "", "", tko.Errorf(tko.ErrInvalid, "%q is not in the %s's folder of secrets: use a path below the folder of %s", name, f.Owner, f.Flag)
	}
	return folder, filepath.Clean(relative), nil // the name that a grant has
}

// Credential returns the name of the credential in a file of the folder: see [Folder.Locate].
func (f Folder) Credential(name string) (string, error) {
	if leash.Reference(f.Kind, name) == name { // it isn't in the folder
		return name, nil
	}
	_, relative, err := f.resolve(name)
	return leash.Name(f.Kind, relative), err
}

// Read returns the content of a file in the folder, see [Folder.Locate], for which there is a
// grant. Links must not lead out of the folder. Other errors than ErrInvalid may be temporary:
// files of secrets may be created later. Errors don't contain the path of the folder.
func (f Folder) Read(name string, grant leash.Grant) ([]byte, error) {
	credential, err := f.Credential(name)
	if err == nil {
		err = grant.Check(credential)
	}
	if err != nil {
		return nil, err
	}
	return f.ReadPublic(name)
}

// ReadPublic is Read without a grant, for what is sent nowhere: certificates of CAs.
func (f Folder) ReadPublic(name string) ([]byte, error) {
	path, relative, err := f.resolve(name)
	if err != nil {
		return nil, err
	}
	folder, err := os.OpenRoot(path)
	if err != nil {
		return nil, fmt.Errorf("%q can't be read: the folder of secrets: %w", name, reason(err))
	}
	defer func() { _ = folder.Close() }()
	info, err := folder.Stat(relative)
	if err != nil {
		return nil, fmt.Errorf("%q can't be read: %w", name, reason(err))
	}
	if !info.Mode().IsRegular() { // a pipe would block
		return nil, fmt.Errorf("%q can't be read: it is not a file", name)
	}
	file, err := folder.Open(relative)
	if err != nil {
		return nil, fmt.Errorf("%q can't be read: %w", name, reason(err))
	}
	return read(file, name)
}

// ReadFile returns the content of a file, without the space around it, for which there is a
// grant under the name of a credential.
func ReadFile(path, credential string, grant leash.Grant) (string, error) {
	if err := grant.Check(credential); err != nil {
		return "", err
	}
	file, err := os.Open(path) //nolint:gosec // the operator names the file
	if err != nil {
		return "", err
	}
	data, err := read(file, path)
	return strings.TrimSpace(string(data)), err
}

// read reads and closes a file.
func read(file *os.File, name string) ([]byte, error) {
	defer func() { _ = file.Close() }()
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%q can't be read: %w", name, reason(err))
	case len(data) > maxFile:
		return nil, fmt.Errorf("%q is longer than %d bytes", name, maxFile)
	case strings.TrimSpace(string(data)) == "":
		return nil, fmt.Errorf("%q is empty", name)
	}
	return data, nil
}

// reason returns an error of a file without its path.
func reason(err error) error {
	if failed, ok := errors.AsType[*fs.PathError](err); ok {
		return failed.Err
	}
	return err
}
