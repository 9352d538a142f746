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

// FS returns a file system in which YAML and JSON files that were encrypted with
// SOPS are plain. Open decrypts them in memory. If there is no key for a file,
// Open returns an ErrDenied that names it. If others, which may be nil, returns
// true for the apiVersion of all documents of a file, the file stays encrypted
// instead. Files of other formats, and files that aren't encrypted, are unchanged.
func FS(fsys fs.FS, keys *Keys, others func(apiVersion string) bool) fs.FS {
	return plain{fsys, keys, others}
}

type plain struct {
	fs.FS
	keys   *Keys
	others func(apiVersion string) bool
}

// Open opens a file and decrypts it.
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

// ReadDir reads a folder. The sizes of encrypted files are those before
// decryption.
func (p plain) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(p.FS, name) }

// readable reports whether a file has an extension that can be decrypted.
func readable(name string) bool {
	switch strings.ToLower(path.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// opened is a decrypted file.
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

// foreign reports whether others returns true for all documents.
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
