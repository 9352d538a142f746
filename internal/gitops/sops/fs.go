package sops

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// FS answers a file system in which YAML and JSON files that were encrypted
// with SOPS are plain. They are decrypted when they are opened, in memory.
// Without keys, opening one is an ErrDenied that names it. Encrypted files of
// other forms, and all that isn't encrypted, are as they were.
func FS(fsys fs.FS, keys *Keys) fs.FS { return plain{fsys, keys} }

type plain struct {
	fs.FS
	keys *Keys
}

// Open opens a file, decrypted.
func (p plain) Open(name string) (fs.File, error) {
	file, err := p.FS.Open(name)
	if err != nil || !readable(name) {
		return file, err
	}
	info, err := file.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxFile {
		return file, err
	}
	data, err := io.ReadAll(io.LimitReader(file, maxFile+1))
	closeErr := file.Close()
	switch {
	case err != nil:
		return nil, err
	case closeErr != nil:
		return nil, closeErr
	case len(data) > maxFile:
		return nil, tko.Errorf(tko.ErrInvalid, "%s is longer than %d bytes", name, maxFile)
	}
	decrypted, err := Decrypt(name, data, p.keys)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return &opened{Reader: bytes.NewReader(decrypted), info: size{info, int64(len(decrypted))}}, nil
}

// ReadDir reads a folder. The sizes that it says are those of the encrypted
// files.
func (p plain) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(p.FS, name) }

// readable says whether it may be a file that we can decrypt.
func readable(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// opened is a plain file.
type opened struct {
	*bytes.Reader
	info fs.FileInfo
}

func (o *opened) Stat() (fs.FileInfo, error) { return o.info, nil }
func (*opened) Close() error                 { return nil }

type size struct {
	fs.FileInfo
	size int64
}

func (s size) Size() int64 { return s.size }
