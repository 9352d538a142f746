// Package catalog makes templates from the packages of a git repository: a folder for
// each package, and a tag for each version. Start reading at [Catalog].
package catalog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/Masterminds/semver/v3"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/internal/location"
)

// Settings describe how a repository is read.
type Settings struct {
	// ID is the pattern of template IDs, with {path} or {name} and {tag}; {path}:{tag} if
	// empty.
	ID string `json:"id,omitempty"`
	// Tags are patterns of versions; all if empty. A version is the last part of a tag:
	// that of the tag networks/upf/v1 is v1, of the package networks/upf only.
	Tags []string `json:"tags,omitempty"`
	Keep int      `json:"keep,omitempty"` // number of the newest versions that are registered; 10 if 0
}

const (
	defaultKeep = 10
	maxKeep     = 1000
	maxPackages = 10_000 // of a version
)

// A Repository holds the packages.
type Repository interface {
	// Tags returns the commits of all tags, by their names.
	Tags(ctx context.Context) (map[string]string, error)
	// FetchTag returns the files of a tag at a commit. The caller closes them.
	FetchTag(ctx context.Context, tag, commit string) (*tree.Tree, error)
}

// A Catalog makes the manifests of templates. One goroutine at a time uses it.
type Catalog struct {
	settings   Settings
	folder     string
	repository Repository

	known     map[string][]manifest.Manifest // by tag and commit
	revision  string
	manifests []manifest.Manifest
	notes     []string
}

// New returns a Catalog of the packages in a folder, "" for all. The error is an
// ErrInvalid.
func New(s Settings, folder string, r Repository) (*Catalog, error) {
	s.ID = cmp.Or(s.ID, "{path}:{tag}")
	if !strings.Contains(s.ID, "{tag}") || !strings.Contains(s.ID, "{path}") && !strings.Contains(s.ID, "{name}") {
		return nil, tko.Errorf(tko.ErrInvalid, "catalog.id is %q: use a pattern with {tag}, and {path} or {name}, such as nephio/{path}:{tag}", s.ID)
	}
	for _, pattern := range s.Tags {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "catalog.tags: %q is no pattern: use one such as v*", pattern)
		}
	}
	if s.Keep == 0 {
		s.Keep = defaultKeep
	}
	if s.Keep < 1 || s.Keep > maxKeep {
		return nil, tko.Errorf(tko.ErrInvalid, "catalog.keep is %d: use 1 to %d", s.Keep, maxKeep)
	}
	if folder = path.Clean(strings.TrimPrefix(folder, "/")); !fs.ValidPath(folder) {
		return nil, tko.Errorf(tko.ErrInvalid, "path %q leads out of the repository", folder)
	}
	return &Catalog{settings: s, folder: folder, repository: r, known: map[string][]manifest.Manifest{}}, nil
}

// A version is a tag: of the package Of, or of all packages if that is "".
type version struct{ Tag, Commit, Of, Name string }

// Revision returns a digest of the versions. It reads the packages of versions that it
// doesn't know; of the others it needs the list of tags only.
func (c *Catalog) Revision(ctx context.Context) (string, error) {
	tags, err := c.repository.Tags(ctx)
	if err != nil {
		return "", err
	}
	versions := c.versions(tags)
	if len(versions) == 0 {
		return "", tko.Errorf(tko.ErrInvalid, "the repository has no tag that catalog.tags selects (%s): all templates stay", cmp.Or(strings.Join(c.settings.Tags, ", "), "*"))
	}
	sum, known := sha256.New(), map[string][]manifest.Manifest{}
	for _, v := range versions {
		key := v.Tag + " " + v.Commit
		fmt.Fprintln(sum, key)
		found, ok := c.known[key]
		if !ok {
			if found, err = c.read(ctx, v); err != nil {
				return "", fmt.Errorf("tag %q: %w", v.Tag, err)
			}
			c.known[key] = found // also if a later version fails
		}
		known[key] = found
	}
	revision := "tags@sha256:" + hex.EncodeToString(sum.Sum(nil))
	if revision == c.revision {
		return revision, nil
	}
	c.known = known
	c.manifests, c.notes = nil, nil
	first := map[string]manifest.Manifest{}
	for _, v := range versions {
		for _, m := range known[v.Tag+" "+v.Commit] {
			if other, twice := first[m.Name]; twice {
				c.notes = append(c.notes, fmt.Sprintf("template %q is that of %s, and not of %s: use {path} in catalog.id", m.Name, other.File, m.File))
				continue
			}
			first[m.Name] = m
		}
	}
	for _, id := range slices.Sorted(maps.Keys(first)) {
		c.manifests = append(c.manifests, first[id])
	}
	c.revision = revision
	return revision, nil
}

// Manifests returns the templates of the revision that Revision returned last, and notes.
func (c *Catalog) Manifests(revision string) ([]manifest.Manifest, []string, error) {
	if revision != c.revision {
		return nil, nil, fmt.Errorf("revision %s of the catalog was replaced: it is read again", revision)
	}
	return c.manifests, c.notes, nil
}

// versions returns the newest versions that the settings select, the newest first: by
// semantic version, others after them by name.
func (c *Catalog) versions(tags map[string]string) []version {
	byPackage := map[string][]version{}
	for tag, commit := range tags {
		of, name := path.Split(tag)
		matches := func(pattern string) bool { ok, err := path.Match(pattern, name); return ok && err == nil }
		if len(c.settings.Tags) > 0 && !slices.ContainsFunc(c.settings.Tags, matches) {
			continue
		}
		of = strings.Trim(of, "/")
		byPackage[of] = append(byPackage[of], version{Tag: tag, Commit: commit, Of: of, Name: name})
	}
	var all []version
	for _, of := range slices.Sorted(maps.Keys(byPackage)) {
		found := byPackage[of]
		slices.SortFunc(found, func(a, b version) int { return newer(a.Name, b.Name) })
		all = append(all, found[:min(len(found), c.settings.Keep)]...)
	}
	return all
}

// newer compares versions for sorting: the newest first.
func newer(a, b string) int {
	x, errX := semver.NewVersion(a)
	y, errY := semver.NewVersion(b)
	switch {
	case errX == nil && errY == nil:
		return cmp.Or(y.Compare(x), strings.Compare(b, a))
	case errX == nil:
		return -1
	case errY == nil:
		return 1
	}
	return strings.Compare(b, a)
}

// read reads the packages of a version.
func (c *Catalog) read(ctx context.Context, v version) ([]manifest.Manifest, error) {
	files, err := c.repository.FetchTag(ctx, v.Tag, v.Commit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = files.Close() }()
	folders, err := packages(files, c.folder)
	if err != nil {
		return nil, err
	}
	var all []manifest.Manifest
	for _, folder := range folders {
		if v.Of != "" && folder != v.Of && path.Join(c.folder, v.Of) != folder {
			continue
		}
		relative := folder
		if c.folder != "." {
			relative = strings.TrimPrefix(folder, c.folder+"/")
		}
		id := strings.NewReplacer("{path}", relative, "{name}", path.Base(folder), "{tag}", v.Name).Replace(c.settings.ID)
		at := v.Tag + ":" + folder
		if err := tko.CheckID("template ID", id); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "%s: %w", folder, err)
		}
		pkg, err := location.Read(ctx, filepath.Join(files.Dir(), filepath.FromSlash(folder)), location.Options{})
		if err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "%s: %w", folder, err)
		}
		m, err := manifest.Of(at, tko.Put{Kind: tko.KindTemplate, ID: id, Package: pkg})
		if err != nil {
			return nil, err
		}
		all = append(all, m)
	}
	return all, nil
}

// packages returns the folders of packages: those with a Kptfile, without those within
// them; or, if there is none, the folders directly below that have a YAML file.
func packages(files fs.FS, folder string) ([]string, error) {
	var kpt, plain []string
	err := fs.WalkDir(files, folder, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && name != folder && strings.HasPrefix(d.Name(), ".") {
			return fs.SkipDir
		}
		if !d.IsDir() {
			relative := strings.TrimPrefix(strings.TrimPrefix(name, folder), "/")
			first, _, below := strings.Cut(relative, "/")
			if ext := path.Ext(name); below && (ext == ".yaml" || ext == ".yml") && !slices.Contains(plain, path.Join(folder, first)) {
				plain = append(plain, path.Join(folder, first))
			}
			return nil
		}
		if _, err := fs.Stat(files, path.Join(name, "Kptfile")); err == nil && name != "." {
			kpt = append(kpt, name)
			return fs.SkipDir
		}
		if len(kpt)+len(plain) > maxPackages {
			return tko.Errorf(tko.ErrInvalid, "it has more than %d packages: set path to a folder with fewer", maxPackages)
		}
		return nil
	})
	if len(kpt) > 0 {
		return kpt, err
	}
	return plain, err
}
