package helm

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"helm.sh/helm/v4/pkg/chart/loader/archive"
	"helm.sh/helm/v4/pkg/ignore"

	"github.com/tko-orchestrator/tko"
)

// maxFiles bounds the files of a chart in a folder.
const maxFiles = 10_000

// A tree is a chart from the folder, with the stamp of its files.
type tree struct {
	stamp string
	chart *Chart
}

// fromFolder reads a chart below the folder of charts: a folder or an archive. It
// reads the files again only if their names, sizes or times changed.
func (s *Store) fromFolder(r Reference) (*Chart, error) {
	root, err := s.openFolder()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	name := filepath.ToSlash(filepath.Clean(filepath.FromSlash(r.Chart)))
	files, stamp, err := walk(root, name)
	if err != nil {
		return nil, fmt.Errorf("spec.chart: %q in the folder of charts: %w", r.Chart, plainError(err))
	}
	s.mu.Lock()
	seen, ok := s.trees[name]
	s.mu.Unlock()
	if !ok || seen.stamp != stamp {
		seen = tree{stamp: stamp}
		if seen.chart, err = readTree(root, name, files); err != nil {
			return nil, fmt.Errorf("spec.chart: %q in the folder of charts: %w", r.Chart, plainError(err))
		}
		s.mu.Lock()
		if len(s.trees) >= maxFiles {
			clear(s.trees)
		}
		s.trees[name] = seen
		s.mu.Unlock()
	}
	return seen.chart, nil
}

// walk lists the files of a chart, and returns a stamp of their names, sizes and
// times. A path or link that leads out of the folder is an error of root.
func walk(root *os.Root, name string) (files []string, stamp string, err error) {
	hash := sha256.New()
	total := int64(0)
	add := func(file string, info fs.FileInfo) error {
		_, _ = fmt.Fprintf(hash, "%q %d %d\n", file, info.Size(), info.ModTime().UnixNano())
		files = append(files, file)
		total += info.Size()
		if total > maxUnpack || len(files) > maxFiles {
			return tko.Errorf(tko.ErrInvalid, "it is larger than %d MiB, or has more than %d files", maxUnpack>>20, maxFiles)
		}
		return nil
	}
	info, err := root.Stat(name)
	if err != nil {
		return nil, "", err
	}
	if !info.IsDir() {
		if !info.Mode().IsRegular() {
			return nil, "", tko.Errorf(tko.ErrInvalid, "it is neither a folder nor an archive")
		}
		err = add(name, info)
		return files, hex.EncodeToString(hash.Sum(nil)), err
	}
	err = fs.WalkDir(root.FS(), name, func(file string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := root.Stat(file) // follows links within the folder
		if err != nil {
			return err
		}
		if !info.Mode().IsRegular() {
			return tko.Errorf(tko.ErrInvalid, "%q in it is no plain file: links to folders are not followed", strings.TrimPrefix(file, name+"/"))
		}
		return add(file, info)
	})
	return files, hex.EncodeToString(hash.Sum(nil)), err
}

// readTree reads the files of a chart.
func readTree(root *os.Root, name string, files []string) (*Chart, error) {
	if len(files) == 1 && files[0] == name {
		data, err := readFile(root, name, maxArchive)
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		return &Chart{Digest: hex.EncodeToString(sum[:]), archive: data}, nil
	}
	rules := ignore.Empty()
	if data, err := readFile(root, path.Join(name, ignore.HelmIgnore), maxUnpack); err == nil {
		if rules, err = ignore.Parse(bytes.NewReader(data)); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "its %s can't be read: %s", ignore.HelmIgnore, err)
		}
	}
	rules.AddDefaults()
	c := &Chart{}
	hash := sha256.New()
	for _, file := range files {
		within := strings.TrimPrefix(file, name+"/")
		if name == "." {
			within = file
		}
		ignored, err := isIgnored(root, rules, name, within)
		if err != nil {
			return nil, err
		}
		if ignored {
			continue
		}
		data, err := readFile(root, file, maxUnpack)
		if err != nil {
			return nil, err
		}
		_, _ = fmt.Fprintf(hash, "%q %d\n", within, len(data))
		_, _ = hash.Write(data)
		c.files = append(c.files, &archive.BufferedFile{Name: within, Data: bytes.TrimPrefix(data, []byte("\xef\xbb\xbf"))})
	}
	c.Digest = hex.EncodeToString(hash.Sum(nil))
	return c, nil
}

// isIgnored returns whether the rules ignore a file or one of its folders.
func isIgnored(root *os.Root, rules *ignore.Rules, name, within string) (bool, error) {
	for at := within; at != "."; at = path.Dir(at) {
		info, err := root.Stat(path.Join(name, at))
		if err != nil {
			return false, err
		}
		if rules.Ignore(at, info) {
			return true, nil
		}
	}
	return false, nil
}

func readFile(root *os.Root, name string, limit int64) ([]byte, error) {
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	return readBounded(file, limit)
}

// plainError returns the cause of a file error, without the path on this machine.
func plainError(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}
