package repository

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/object"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient"
)

// A files has the regular files of a commit as a file system. It knows their names, and reads a file
// from the objects of the session when it is opened: a catalog has tens of thousands of versions, and
// writing the files of each to a folder took most of the time. There is no library for it: go-git
// reads a commit as a work tree, which is a folder, or as a list of files.
type files struct {
	session *Session
	entries map[string]*entry // by path; "." is the root
	left    int64             // bytes that may be read
	most    int64
}

// An entry is a file, or a folder. It implements fs.DirEntry.
type entry struct {
	name  string // without its folder
	of    *files
	below []fs.DirEntry
	file  *gitclient.File // nil: a folder
}

func (e *entry) Name() string      { return e.name }
func (e *entry) IsDir() bool       { return e.file == nil }
func (e *entry) Type() fs.FileMode { return e.mode().Type() }
func (e *entry) mode() fs.FileMode {
	if e.IsDir() {
		return fs.ModeDir | 0o555
	}
	return 0o444
}

// Info returns the entry with its size, which the objects have.
func (e *entry) Info() (fs.FileInfo, error) {
	if e.IsDir() {
		return info{e, 0}, nil
	}
	e.of.session.mu.Lock()
	defer e.of.session.mu.Unlock()
	size, err := e.file.Size()
	return info{e, size}, err
}

// An info implements fs.FileInfo.
type info struct {
	*entry

	size int64
}

func (i info) Size() int64        { return i.size }
func (i info) Mode() fs.FileMode  { return i.mode() }
func (i info) ModTime() time.Time { return time.Time{} }
func (i info) Sys() any           { return nil }

// index returns the files of a commit, in a folder that may not exist; "" for all. The caller holds
// the mutex of the session.
func (s *Session) index(ctx context.Context, commit *object.Commit, folder string) (*files, error) {
	found, err := s.tree(commit, folder)
	if err != nil {
		return nil, err
	}
	limits := s.repository.options.Limits.OrDefault()
	all := &files{session: s, left: limits.Bytes, most: limits.Bytes}
	all.entries = map[string]*entry{".": {name: ".", of: all}}
	count := 0
	for f, err := range gitclient.Files(s.objects.Repository, found) {
		if err != nil {
			return nil, err
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		count++
		if count > limits.Files {
			return nil, tko.Errorf(tko.ErrInvalid, "the revision has more than %d files", limits.Files)
		}
		name := path.Join(folder, f.Name)
		if !fs.ValidPath(name) || path.Join(folder, f.Name) != strings.TrimPrefix(folder+"/"+f.Name, "/") {
			return nil, tko.Errorf(tko.ErrInvalid, "the file %.100q leads out of the revision", f.Name)
		}
		all.add(name, &entry{name: path.Base(name), of: all, file: &f})
	}
	for _, e := range all.entries {
		slices.SortFunc(e.below, func(a, b fs.DirEntry) int { return strings.Compare(a.Name(), b.Name()) })
	}
	return all, nil
}

// add adds an entry, and the folders that it is in. The first one of a name stays: git has none twice.
func (f *files) add(name string, e *entry) {
	for {
		if _, ok := f.entries[name]; ok {
			return
		}
		f.entries[name] = e
		folder := path.Dir(name)
		above, ok := f.entries[folder]
		if !ok {
			above = &entry{name: path.Base(folder), of: f}
		}
		above.below = append(above.below, e)
		if ok {
			return
		}
		name, e = folder, above
	}
}

// Open implements [fs.FS].
func (f *files) Open(name string) (fs.File, error) {
	e, err := f.find("open", name)
	if err != nil {
		return nil, err
	}
	if e.IsDir() {
		return &openFolder{entry: e, rest: e.below}, nil
	}
	content, err := f.read(name, e)
	if err != nil {
		return nil, err
	}
	return &openFile{bytes.NewReader(content), info{e, int64(len(content))}}, nil
}

// Stat implements [fs.StatFS], without reading the file.
func (f *files) Stat(name string) (fs.FileInfo, error) {
	e, err := f.find("stat", name)
	if err != nil {
		return nil, err
	}
	return e.Info()
}

// ReadDir implements [fs.ReadDirFS].
func (f *files) ReadDir(name string) ([]fs.DirEntry, error) {
	e, err := f.find("readdir", name)
	if err == nil && !e.IsDir() {
		err = &fs.PathError{Op: "readdir", Path: name, Err: errors.New("it is not a folder")}
	}
	if err != nil {
		return nil, err
	}
	return slices.Clone(e.below), nil
}

func (f *files) find(op, name string) (*entry, error) {
	if !fs.ValidPath(name) {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrInvalid}
	}
	e, ok := f.entries[name]
	if !ok {
		return nil, &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist}
	}
	return e, nil
}

// read reads a file. All that is read together is limited, as a revision in a folder is.
func (f *files) read(name string, e *entry) ([]byte, error) {
	f.session.mu.Lock()
	defer f.session.mu.Unlock()
	content, size, err := e.file.Open()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	defer func() { _ = content.Close() }()
	f.left -= size
	if f.left < 0 {
		return nil, tko.Errorf(tko.ErrInvalid, "the revision has more than %d bytes", f.most)
	}
	data := make([]byte, size)
	if _, err := io.ReadFull(content, data); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return data, nil
}

type openFile struct {
	*bytes.Reader

	info info
}

func (o *openFile) Stat() (fs.FileInfo, error) { return o.info, nil }
func (*openFile) Close() error                 { return nil }

type openFolder struct {
	entry *entry
	rest  []fs.DirEntry
}

func (o *openFolder) Stat() (fs.FileInfo, error) { return o.entry.Info() }
func (*openFolder) Close() error                 { return nil }

func (o *openFolder) Read([]byte) (int, error) {
	return 0, &fs.PathError{Op: "read", Path: o.entry.name, Err: errors.New("it is a folder")}
}

// ReadDir implements [fs.ReadDirFile].
func (o *openFolder) ReadDir(n int) ([]fs.DirEntry, error) {
	if n <= 0 {
		n = len(o.rest)
	} else if len(o.rest) == 0 {
		return nil, io.EOF
	}
	n = min(n, len(o.rest))
	some := o.rest[:n:n]
	o.rest = o.rest[n:]
	return some, nil
}
