package osm

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"github.com/tko-orchestrator/tko"
)

// OSM 19 refuses to replace a package that instances use if the file of its descriptor
// changed, except for a few parts: see inUse. It accepts changes of other files in
// the archive, and it merges any descriptor into its own. So if no part that instances
// rely on (a KDU, a member) is removed from the descriptor, it is merged. Otherwise the
// package stays unchanged.

// inUse reports whether OSM refused to replace a package because instances use it. OSM
// has no code for that, only texts; the last text is its own failure if the
// descriptors differ in keys only.
func inUse(err error) bool {
	if errors.Is(err, errStored) {
		return true
	}
	response, ok := errors.AsType[*Error](err)
	if !ok || response.Status != http.StatusUnprocessableEntity && response.Status != http.StatusBadRequest {
		return false
	}
	return slices.ContainsFunc([]string{"Error in validating new descriptor", "cannot be modified", "Descriptor could not be processed", "has no attribute 'keys'"},
		func(text string) bool { return strings.Contains(response.Detail, text) })
}

// breaks returns an ErrInvalid if the descriptor lacks a part of OSM's that instances
// rely on. It names the part, and the changes that OSM accepts.
func (c content) breaks(kind Kind, there PackageRecord) error {
	what := lost(there.tree, c.tree)
	switch {
	case what == "":
		return nil
	case kind == KindVNF:
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

// predict returns the error with which OSM will refuse a change of a package; nil if
// no refusal is expected.
func (w *run) predict(s *packageStep) error {
	if s.Kind == KindVNF && s.there.Descriptor.SoftwareVersion != s.content.descriptor.SoftwareVersion || !w.uses(s.Package, "") {
		return nil
	}
	return s.content.breaks(s.Kind, s.there)
}

// retryPackages has packages sent again that were refused and that no instance
// uses any more when one of them has gone.
func (w *run) retryPackages(gone string) {
	for _, k := range w.ledger.refusedPackages() {
		kind, id, _ := strings.Cut(k, "/")
		if !w.uses(Package{Kind: Kind(kind), ID: id}, gone) {
			w.ledger.retryPackage(k)
			w.packagesLater = sooner(w.packagesLater, w.policy.Poll)
		}
	}
}

// uses reports whether a recorded instance other than except uses a package.
func (w *run) uses(p Package, except string) bool {
	for name, st := range w.ledger.state().Instances {
		if st.ID == "" || name == except {
			continue
		}
		if p.Kind == KindNS && st.NSD == p.ID {
			return true
		}
		if p.Kind == KindVNF && slices.Contains(w.local.contents[key(KindNS, st.NSD)].descriptor.References(), p.ID) {
			return true
		}
	}
	return false
}

// merge updates a package that instances use, and returns its new state. refused is
// the error of replacing it. The descriptor is merged first, because OSM checks it
// then. Changed files are sent with the descriptor's file of OSM, which OSM compares.
func (w *run) merge(ctx context.Context, s *packageStep, refused error) (*PackageState, error) {
	if problem := s.content.breaks(s.Kind, s.there); problem != nil {
		return nil, fmt.Errorf("%w (%w)", problem, refused)
	}
	keys := keysOf(s.content.tree)
	next := &PackageState{ID: s.id, Digest: s.content.digest, Keys: keys}
	old, unknown := w.stored(ctx, s)
	if unknown != nil && (fatal(unknown) || errors.Is(unknown, tko.ErrUnavailable)) {
		return nil, unknown
	}
	known := slices.Concat(w.ledger.pkg(s.key()).Keys, keysOf(old.tree))
	gone := slices.DeleteFunc(known, func(k string) bool { return slices.Contains(keys, k) })
	if err := w.mergeDescriptor(ctx, s, gone); err != nil {
		return nil, fmt.Errorf("%w; nor does it merge the descriptor: %w", refused, err)
	}
	if unknown != nil {
		next.Note = fmt.Sprintf("instances use it, so its descriptor was merged into OSM's. It isn't known whether OSM has its other files: %s", unknown)
		return next, nil
	}
	files := maps.Clone(s.content.files)
	delete(files, s.content.name)
	before := maps.Clone(old.files)
	delete(before, old.name)
	if sameFiles(before, files) {
		return next, nil
	}
	files[old.name] = old.files[old.name]
	data, err := archive(s.ID, files)
	if err != nil {
		return nil, err
	}
	if err := w.Client.UpdatePackage(ctx, s.Kind, s.id, Archive{Name: s.ID + ".tar.gz", Data: data}); err != nil {
		return nil, fmt.Errorf("replacing its files: %w", err)
	}
	if err := w.mergeDescriptor(ctx, s, gone); err != nil { // the archive has brought the old descriptor back
		return nil, fmt.Errorf("merging its descriptor: %w", err)
	}
	return next, nil
}

// mergeDescriptor merges the descriptor of a package into OSM's, and removes the keys
// gone, which are no longer desired.
func (w *run) mergeDescriptor(ctx context.Context, s *packageStep, gone []string) error {
	body := without(copyTree(s.content.tree), gone)
	err := w.Client.MergeDescriptor(ctx, s.Kind, s.id, body)
	if refusedAs(err, http.StatusUnprocessableEntity) && len(s.content.charts) > 0 {
		stripTree(body, s.content.charts)
		err = w.Client.MergeDescriptor(ctx, s.Kind, s.id, body)
	}
	return err
}

// stored returns the content of OSM's archive of a package.
func (w *run) stored(ctx context.Context, s *packageStep) (content, error) {
	data, err := w.Client.PackageContent(ctx, s.Kind, s.id)
	if err != nil {
		return content{}, err
	}
	c := content{}
	if c.files, err = unpack(data); err != nil {
		return content{}, fmt.Errorf("the archive that OSM has can't be read: %w", err)
	}
	if c.name, err = s.descriptorFile(c.files); err != nil {
		return content{}, err
	}
	_, c.descriptor, c.tree, err = parseDescriptor(c.files[c.name].data)
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
		if left -= int64(len(content)); left < 0 || len(files) == maxPackageFile {
			return nil, fmt.Errorf("it has more than %d MiB, or %d files", maxPackage>>20, maxPackageFile)
		}
		files[name] = file{data: content, executable: h.Mode&0o111 != 0}
	}
}

func sameFiles(a, b map[string]file) bool {
	return maps.EqualFunc(a, b, func(x, y file) bool { return x.executable == y.executable && bytes.Equal(x.data, y.data) })
}

var pointer = strings.NewReplacer("~", "~0", "/", "~1")

// keysOf returns the keys of a tree and of the maps in it: see [PackageState].
func keysOf(tree map[string]any) []string {
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
	walk("", tree)
	slices.Sort(all)
	return all
}

// without adds a nil for each of these keys to a tree, so that they are removed where
// the tree is merged. It returns the tree.
func without(tree map[string]any, keys []string) map[string]any {
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

func copyTree(tree map[string]any) map[string]any {
	c, _ := copyOf(tree).(map[string]any)
	return c
}

func copyOf(v any) any {
	switch t := v.(type) {
	case map[string]any:
		c := make(map[string]any, len(t))
		for name, inner := range t {
			c[name] = copyOf(inner)
		}
		return c
	case []any:
		c := make([]any, len(t))
		for i, inner := range t {
			c[i] = copyOf(inner)
		}
		return c
	default:
		return v
	}
}
