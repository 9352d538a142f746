package sops

import (
	"bytes"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/tko-orchestrator/tko"
)

// FS answers a file system in which YAML and JSON files that were encrypted
// with SOPS are plain. They are decrypted when they are opened, in memory.
// Without a key for it, opening one is an ErrDenied that names it; but if
// others, not nil, says that all its documents are somebody else's, by their
// apiVersion, it stays encrypted. Encrypted files of other forms, and all that
// isn't encrypted, are as they were.
func FS(fsys fs.FS, keys *Keys, others func(apiVersion string) bool) fs.FS {
	return plain{fsys, keys, others}
}

type plain struct {
	fs.FS
	keys   *Keys
	others func(apiVersion string) bool
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
	if err != nil && p.foreign(data) {
		decrypted, err = data, nil
	}
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

// foreign says whether all documents are somebody else's.
func (p plain) foreign(data []byte) bool {
	documents, err := parse("", data)
	if err != nil || p.others == nil {
		return false
	}
	for _, d := range documents {
		i := slices.IndexFunc(d.Content, func(n *yaml.Node) bool { return n.Value == "apiVersion" })
		if i < 0 || i%2 != 0 || i+1 == len(d.Content) || form.MatchString(d.Content[i+1].Value) || !p.others(d.Content[i+1].Value) {
			return false
		}
	}
	return true
}
