package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/osm/nbi"
	"github.com/tko-orchestrator/tko/krm"
)

// Breaks returns an ErrInvalid if the descriptor lacks a part of OSM's that instances
// rely on. It names the part, and the changes that OSM accepts.
func (c Content) Breaks(kind nbi.Kind, there nbi.PackageRecord) error {
	what := lost(there.Tree, c.tree)
	switch {
	case what == "":
		return nil
	case kind == nbi.KindVNF:
		return tko.Errorf(tko.ErrInvalid, "instances use it, and the %s left it. OSM accepts that with another software-version in the VNFD, or when no instance uses the package: until then keep it", what)
	default:
		return tko.Errorf(tko.ErrInvalid, "instances use it, and the %s left it. OSM accepts that when no instance uses the package: until then keep it, or give the changed NSD another id, in a package of its own, and move the instances to it", what)
	}
}

// parts are the names of elements of descriptors in messages.
var parts = map[string]string{"kdu": "KDU", "vdu": "VDU", "vnf-profile": "member"}

// free are the keys that OSM allows to change at any time.
var free = []string{
	"initial-config-primitive", "config-primitive", "terminate-config-primitive", "scaling-aspect", "healing-aspect", "alarm", "monitoring-parameter",
}

// lost returns the name of an element of a list, with an id or a name, that there has
// and next lacks; empty if there is none. A member of an NS with another VNF is
// another element.
func lost(there, next map[string]any) string {
	for _, name := range slices.Sorted(maps.Keys(there)) {
		if strings.HasPrefix(name, "_") || slices.Contains(free, name) {
			continue
		}
		switch was := there[name].(type) {
		case map[string]any:
			inner, _ := next[name].(map[string]any)
			if what := lost(was, inner); what != "" {
				return what
			}
		case []any:
			now, _ := next[name].([]any)
			for _, e := range was {
				element, _ := e.(map[string]any)
				id := identity(element)
				if id == "" {
					continue
				}
				i := slices.IndexFunc(now, func(e any) bool {
					other, _ := e.(map[string]any)
					return identity(other) == id
				})
				if i < 0 {
					return strings.TrimSpace(cmp.Or(parts[name], name) + " " + id)
				}
				other, _ := now[i].(map[string]any)
				if what := lost(element, other); what != "" {
					return what
				}
			}
		}
	}
	return ""
}

// identity returns the identity of an element in its list; empty if it has none.
func identity(element map[string]any) string {
	for _, name := range []string{"id", "name"} {
		v, ok := element[name]
		if !ok {
			continue
		}
		text := fmt.Sprintf("%q", fmt.Sprint(v))
		if vnfd, isMember := element["vnfd-id"].(string); isMember {
			text += fmt.Sprintf(" (VNFD %q)", vnfd)
		}
		return text
	}
	return ""
}

// Tree returns a copy of the descriptor to be merged into OSM's: with a nil for each of
// these keys, so that they are removed, and without the versions of charts if
// withoutVersions is true.
func (c Content) Tree(gone []string, withoutVersions bool) map[string]any {
	tree := Without(krm.Resource(c.tree).Clone(), gone)
	if withoutVersions {
		stripTree(tree, c.Charts)
	}
	return tree
}

// Refit returns the archive of a package with the files of c, but the descriptor's file
// of old, which OSM compares. changed is false if these are the files of old.
func (p Package) Refit(c, old Content) (a nbi.Archive, changed bool, err error) {
	files := maps.Clone(c.files)
	delete(files, c.name)
	before := maps.Clone(old.files)
	delete(before, old.name)
	if sameFiles(before, files) {
		return nbi.Archive{}, false, nil
	}
	files[old.name] = old.files[old.name]
	a, err = p.archive(files)
	return a, true, err
}

// Unpack reads an archive of a package. If its descriptor can't be read, neither can be
// the others of its parts.
func (p Package) Unpack(data []byte) (Content, error) {
	c := Content{}
	var err error
	if c.files, err = unpack(data); err != nil {
		return Content{}, fmt.Errorf("the archive that OSM has can't be read: %w", err)
	}
	c.Digest = digestOf(c.files)
	if c.name, err = p.descriptorFile(c.files); err != nil {
		return Content{}, err
	}
	_, c.Descriptor, c.tree, err = parseDescriptor(c.files[c.name].data)
	return c, err
}

// unpack reads the files of an archive, except checksums.txt. Names are relative to
// the folder in the archive.
func unpack(data []byte) (map[string]file, error) {
	zip, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		return nil, err
	}
	files := map[string]file{}
	left := int64(maxPackage)
	for r := tar.NewReader(zip); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return files, nil
		}
		if err != nil {
			return nil, err
		}
		_, name, ok := strings.Cut(path.Clean(h.Name), "/")
		if !ok || h.Typeflag != tar.TypeReg || name == checksums {
			continue
		}
		content, err := io.ReadAll(io.LimitReader(r, left+1))
		if err != nil {
			return nil, err
		}
		left -= int64(len(content))
		if left < 0 || len(files) == maxPackageFile {
			return nil, fmt.Errorf("it has more than %d MiB, or %d files", maxPackage>>20, maxPackageFile)
		}
		files[name] = file{data: content, executable: h.Mode&0o111 != 0}
	}
}

func sameFiles(a, b map[string]file) bool {
	return maps.EqualFunc(a, b, func(x, y file) bool { return x.executable == y.executable && bytes.Equal(x.data, y.data) })
}

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// Keys returns the keys of the descriptor, sorted. Those of a map in a map are
// "OUTER/INNER", escaped as in JSON pointers.
func (c Content) Keys() []string {
	var all []string
	var walk func(at string, m map[string]any)
	walk = func(at string, m map[string]any) {
		for name, v := range m {
			k := at + pointer.Replace(name)
			all = append(all, k)
			if inner, ok := v.(map[string]any); ok {
				walk(k+"/", inner)
			}
		}
	}
	walk("", c.tree)
	slices.Sort(all)
	return all
}

// Without adds a nil for each of these keys to a tree, so that they are removed where
// the tree is merged. It returns the tree.
func Without(tree map[string]any, keys []string) map[string]any {
	back := strings.NewReplacer("~1", "/", "~0", "~")
	for _, k := range keys {
		at := tree
		parts := strings.Split(k, "/")
		for i, part := range parts {
			name := back.Replace(part)
			if i == len(parts)-1 {
				at[name] = nil
				break
			}
			inner, isMap := at[name].(map[string]any)
			if _, there := at[name]; there && !isMap {
				break // another key or value takes its place
			}
			if inner == nil {
				inner = map[string]any{}
				at[name] = inner
			}
			at = inner
		}
	}
	return tree
}
