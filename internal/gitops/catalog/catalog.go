// Package catalog makes templates from packages that others publish: in git repositories,
// OCI registries and Helm repositories. Start reading at [Catalog].
package catalog

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/Masterminds/semver/v3"
	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/krm"
)

// Settings describe how a repository is read.
type Settings struct {
	// ID is the pattern of template IDs, with {path} or {name} and {tag}; {path}:{tag} if
	// empty.
	ID string `json:"id,omitempty"`
	// Tags are patterns of versions; all if empty. A version is the last part of a tag:
	// that of the tag networks/upf/v1 is v1, of the package networks/upf only.
	Tags []string `json:"tags,omitempty"`
	// Branches are patterns of branches of a git repository. If they are set, and Tags is
	// not, no tag is a version.
	Branches []string `json:"branches,omitempty"`
	Keep     int      `json:"keep,omitempty"` // number of the newest versions that are registered, of tags; 10 if 0

	// OCI or Helm, if one is not nil, is read in place of a git repository.
	OCI  *OCISettings  `json:"oci,omitempty"`
	Helm *HelmSettings `json:"helm,omitempty"`

	// Versions must be signed by the key, if it is set: tags in git, and charts in Helm
	// repositories, by a PGP key; artifacts in registries by a cosign key.
	PGPKeyFile    string `json:"pgpKeyFile,omitempty"`
	CosignKeyFile string `json:"cosignKeyFile,omitempty"`
}

// OCISettings select artifacts in a registry.
type OCISettings struct {
	URL          string   `json:"url"`                    // oci://REGISTRY/PATH
	Repositories []string `json:"repositories,omitempty"` // below the path; the path is the only one if empty
	remote.Credentials
}

// HelmSettings select charts in a repository with an index.
type HelmSettings struct {
	URL    string   `json:"url"`
	Charts []string `json:"charts,omitempty"` // patterns; all if empty
	remote.Credentials
}

const (
	defaultKeep = 10
	maxKeep     = 1000
	maxPackages = 10_000 // of a version
	maxBranches = 100
	shortDigest = 12 // characters of the digest in the version of a branch
)

// A publisher lists versions of packages, and reads them.
type publisher interface {
	// versions returns all versions of all packages. Problems of single packages are
	// for users.
	versions(ctx context.Context) (all []version, problems []string, err error)
	// resolve completes the version's digest, if versions doesn't know it.
	resolve(ctx context.Context, v version) (version, error)
	// begin prepares to read these versions, and no others before end is called. fits is false
	// if they are too large together: begin with fewer. One alone fits.
	begin(ctx context.Context, versions []version) (end func(), fits bool, err error)
	// read returns the packages of a version. A version whose error is an ErrInvalid, an
	// ErrDenied or an ErrNotFound is left out.
	read(ctx context.Context, v version) (packages []published, problems []string, err error)
}

// A version is one of a package, or of all packages of the publisher.
type version struct {
	Of     string // path of the package; "" for all packages
	Name   string // such as v1.2.0
	Tag    string // as the publisher names the version
	Digest string // of its content
	at     string // where the publisher has it
	moves  bool   // Name stands for one content after another, as that of a branch
}

func (v version) key() string { return v.Of + " " + v.Tag + " " + v.Digest }

// String names a version for users.
func (v version) String() string {
	if v.Of == "" || strings.HasPrefix(v.Tag, v.Of+"/") {
		return v.Tag
	}
	return v.Of + ":" + v.Tag
}

// published is a package of a version.
type published struct {
	path    string
	content krm.Package
}

// A Catalog makes the manifests of templates. One goroutine at a time uses it.
type Catalog struct {
	settings  Settings
	publisher publisher

	known     map[string]known // by key of the version
	keys      string           // digest of the keys of signatures, as they were read last
	revision  string
	manifests []manifest.Manifest
	notes     []string
}

// known is what a version became.
type known struct {
	manifests []manifest.Manifest
	problems  []string
	// A version that is left out is read again, because it may have been signed since.
	again time.Time     // when; zero: it isn't left out
	wait  time.Duration // from the last try to again
}

// newCatalog returns a Catalog of a publisher. The error is an ErrInvalid.
func newCatalog(s Settings, p publisher) (*Catalog, error) {
	s.ID = cmp.Or(s.ID, "{path}:{tag}")
	if !strings.Contains(s.ID, "{tag}") || !strings.Contains(s.ID, "{path}") && !strings.Contains(s.ID, "{name}") {
		return nil, tko.Errorf(tko.ErrInvalid, "catalog.id is %q: use a pattern with {tag}, and {path} or {name}, such as nephio/{path}:{tag}", s.ID)
	}
	for field, patterns := range map[string][]string{"tags": s.Tags, "branches": s.Branches} {
		for _, pattern := range patterns {
			if _, err := path.Match(pattern, ""); err != nil {
				return nil, tko.Errorf(tko.ErrInvalid, "catalog.%s: %q is no pattern: use one such as v*", field, pattern)
			}
		}
	}
	if _, isGit := p.(*gitPublisher); len(s.Branches) > 0 && !isGit {
		return nil, tko.Errorf(tko.ErrInvalid, "catalog.branches is a setting of git repositories: leave it out")
	}
	if s.Keep == 0 {
		s.Keep = defaultKeep
	}
	if s.Keep < 1 || s.Keep > maxKeep {
		return nil, tko.Errorf(tko.ErrInvalid, "catalog.keep is %d: use 1 to %d", s.Keep, maxKeep)
	}
	return &Catalog{settings: s, publisher: p, known: map[string]known{}}, nil
}

const (
	maxRequests = 8    // concurrent requests
	together    = 4000 // versions that are read at a time: each transfer begins with a list of all tags
	fewer       = 8    // of which these parts are tried, if they are too large
	maxProblems = 100  // that are shown

	// Versions that are left out are read again: so many at a time, after these times.
	maxAgain   = 100
	againFirst = time.Minute
	againMost  = time.Hour
)

// leftOut returns what a version is that is left out because of an error.
func leftOut(v version, err error) known {
	return known{problems: []string{fmt.Sprintf("%s is left out: %v", v, err)}, again: time.Now().Add(againFirst), wait: againFirst}
}

// keysDigest returns a digest of the files with the keys of signatures.
func (s Settings) keysDigest() string {
	sum := sha256.New()
	for _, file := range []string{s.PGPKeyFile, s.CosignKeyFile} {
		if file == "" {
			continue
		}
		data, err := os.ReadFile(file) //nolint:gosec // the operator names the file
		fmt.Fprintf(sum, "%t %q\n", err == nil, data)
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// dueAgain returns the versions that were left out, and are to be read again: those that
// have waited the longest, or all if the keys of signatures have changed, up to maxAgain.
func (c *Catalog) dueAgain(results []known) []int {
	keys := c.settings.keysDigest()
	changed := keys != c.keys
	c.keys = keys
	var due []int
	for i, r := range results {
		if r.again.IsZero() {
			continue
		}
		if changed {
			results[i].again, results[i].wait = time.Now(), 0 // also those that come later
		}
		if changed || !time.Now().Before(r.again) {
			due = append(due, i)
		}
	}
	slices.SortStableFunc(due, func(a, b int) int { return results[a].again.Compare(results[b].again) })
	return due[:min(len(due), maxAgain)]
}

// readAgain reads versions that were left out. If one can't be read, it stays left out.
func (c *Catalog) readAgain(ctx context.Context, versions []version, results []known) error {
	due := c.dueAgain(results)
	if len(due) == 0 {
		return nil
	}
	named := make([]version, len(due))
	for n, i := range due {
		named[n] = versions[i]
		before := results[i]
		before.wait = max(againFirst, min(2*before.wait, againMost))
		before.again = time.Now().Add(before.wait)
		results[i] = before
	}
	end, _, err := c.publisher.begin(ctx, named) // those that are too large together are read one by one
	if err != nil {
		return ctx.Err()
	}
	defer end()
	return concurrently(ctx, len(due), func(ctx context.Context, n int) error {
		i := due[n]
		found, err := c.read(ctx, versions[i])
		switch {
		case err == nil:
			results[i] = found
		case left(err):
			results[i].problems = leftOut(versions[i], err).problems
		}
		return ctx.Err()
	})
}

// left reports whether a version is left out because of an error, without stopping the
// others.
func left(err error) bool {
	return errors.Is(err, tko.ErrInvalid) || errors.Is(err, tko.ErrDenied) || errors.Is(err, tko.ErrNotFound)
}

// Revision returns a digest of the versions. It reads the packages of versions that it
// doesn't know; of the others it needs the lists of versions only. Versions that are
// invalid are left out, with a note.
func (c *Catalog) Revision(ctx context.Context) (string, error) {
	all, notes, err := c.publisher.versions(ctx)
	if err != nil {
		return "", err
	}
	versions := c.newest(all)
	if len(versions) == 0 {
		cause := errors.New(cmp.Or(strings.Join(notes, "; "), "it has no tag or branch that catalog.tags ("+cmp.Or(strings.Join(c.settings.Tags, ", "), "*")+") or catalog.branches ("+strings.Join(c.settings.Branches, ", ")+") selects"))
		return "", tko.Errorf(tko.ErrInvalid, "the catalog has no versions: %w: all templates stay", cause)
	}
	results, err := c.readAll(ctx, versions)
	if err != nil {
		return "", err
	}
	sum, current := sha256.New(), map[string]known{}
	for i, v := range versions {
		current[v.key()] = results[i]
		fmt.Fprintf(sum, "%q %q\n", v.key(), results[i].problems)
		notes = append(notes, results[i].problems...)
	}
	fmt.Fprintf(sum, "%q\n", notes)
	c.known = current
	revision := "tags@sha256:" + hex.EncodeToString(sum.Sum(nil))
	if revision == c.revision {
		return revision, nil
	}
	first := map[string]manifest.Manifest{}
	for i := range versions {
		for _, m := range results[i].manifests {
			if other, twice := first[m.Name]; twice {
				if other.Digest == m.Digest && packageIn(other) == packageIn(m) {
					continue // of a tag of the package and one of the whole tree, for example
				}
				notes = append(notes, fmt.Sprintf("template %q is that of %s, and not of %s: use {path} in catalog.id", m.Name, other.File, m.File))
				continue
			}
			first[m.Name] = m
		}
	}
	if more := len(notes) - maxProblems; more > 0 {
		notes = append(notes[:maxProblems:maxProblems], fmt.Sprintf("and %d more", more))
	}
	c.manifests, c.notes = nil, notes
	for _, id := range slices.Sorted(maps.Keys(first)) {
		c.manifests = append(c.manifests, first[id])
	}
	c.revision = revision
	return revision, nil
}

// readAll reads the versions that aren't known. It sets their digests.
func (c *Catalog) readAll(ctx context.Context, versions []version) ([]known, error) {
	results := make([]known, len(versions))
	leave := func(i int, err error) error {
		if err != nil && left(err) {
			results[i] = leftOut(versions[i], err)
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", versions[i], err)
		}
		return nil
	}
	isNew := make([]bool, len(versions))
	err := concurrently(ctx, len(versions), func(ctx context.Context, i int) error {
		v, err := c.publisher.resolve(ctx, versions[i])
		if err != nil {
			return leave(i, err)
		}
		versions[i] = v
		found, ok := c.known[v.key()]
		results[i], isNew[i] = found, !ok
		return nil
	})
	if err != nil {
		return nil, err
	}
	if err := c.readAgain(ctx, versions, results); err != nil {
		return nil, err
	}
	var unread []int
	for i := range versions {
		if isNew[i] {
			unread = append(unread, i)
		}
	}
	for size := together; len(unread) > 0; {
		part := unread[:min(size, len(unread))]
		named := make([]version, len(part))
		for n, i := range part {
			named[n] = versions[i]
		}
		end, fits, err := c.publisher.begin(ctx, named)
		if err != nil {
			return nil, err
		}
		if !fits {
			end()
			size = max(len(part)/fewer, 1)
			continue
		}
		unread = unread[len(part):]
		read := make([]bool, len(part))
		err = concurrently(ctx, len(part), func(ctx context.Context, n int) (err error) {
			i := part[n]
			found, err := c.read(ctx, versions[i])
			read[n] = err == nil
			if read[n] {
				results[i] = found
			}
			return leave(i, err)
		})
		end()
		for n, i := range part {
			if read[n] {
				c.known[versions[i].key()] = results[i] // also if another version fails
			}
		}
		if err != nil {
			return nil, err
		}
	}
	return results, nil
}

// concurrently calls a function for each index, until one returns an error.
func concurrently(ctx context.Context, n int, call func(ctx context.Context, i int) error) error {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(maxRequests)
	for i := range n {
		group.Go(func() error {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return call(ctx, i)
		})
	}
	return group.Wait()
}

// read reads a version, and makes the manifests of its packages.
func (c *Catalog) read(ctx context.Context, v version) (result known, err error) {
	packages, problems, err := c.publisher.read(ctx, v)
	if err != nil {
		return result, err
	}
	for _, problem := range problems {
		result.problems = append(result.problems, fmt.Sprintf("%s: %s", v, problem))
	}
	for _, p := range packages {
		name, err := v.nameOf(p.content)
		if err != nil {
			return result, err
		}
		id := strings.NewReplacer("{path}", p.path, "{name}", path.Base(p.path), "{tag}", name).Replace(c.settings.ID)
		err = tko.CheckID("template ID", id)
		var m manifest.Manifest
		if err == nil {
			m, err = manifest.Of(v.Tag+":"+p.path, tko.Put{Kind: tko.KindTemplate, ID: id, Package: p.content})
		}
		if err != nil {
			result.problems = append(result.problems, fmt.Sprintf("%s: %s is left out: %v", v, p.path, err))
			continue
		}
		result.manifests = append(result.manifests, m)
	}
	return result, nil
}

// packageIn returns the path of the package that a manifest was made of.
func packageIn(m manifest.Manifest) string {
	_, inside, _ := strings.Cut(m.File, ":")
	return inside
}

// nameOf returns the name of a package's version. If the version moves, the name has the
// digest of the content, so that other content is another version.
func (v version) nameOf(content krm.Package) (string, error) {
	if !v.moves {
		return v.Name, nil
	}
	digest, _, err := krm.DigestOf(content)
	return v.Name + "-" + hex.EncodeToString(digest[:])[:shortDigest], err
}

// matches reports whether a name matches one of some patterns.
func matches(patterns []string, name string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { ok, err := path.Match(pattern, name); return ok && err == nil })
}

// Manifests returns the templates of the revision that Revision returned last, and notes.
func (c *Catalog) Manifests(revision string) ([]manifest.Manifest, []string, error) {
	if revision != c.revision {
		return nil, nil, fmt.Errorf("revision %s of the catalog was replaced: it is read again", revision)
	}
	return c.manifests, c.notes, nil
}

// newest returns the versions that the settings select: of each package the newest ones, the
// newest first, by semantic version, others after them by name; and those that move.
func (c *Catalog) newest(all []version) []version {
	byPackage := map[string][]ranked{}
	var selected []version
	anyTag := len(c.settings.Tags)+len(c.settings.Branches) == 0
	for _, v := range all {
		switch {
		case v.moves:
			selected = append(selected, v)
		case anyTag || matches(c.settings.Tags, v.Name):
			of := ranked{version: v}
			of.rank, _ = semver.NewVersion(v.Name) // others come after the semantic ones
			byPackage[v.Of] = append(byPackage[v.Of], of)
		}
	}
	slices.SortFunc(selected, func(a, b version) int { return strings.Compare(a.Name, b.Name) })
	for _, of := range slices.Sorted(maps.Keys(byPackage)) {
		found := byPackage[of]
		slices.SortFunc(found, newer)
		for _, v := range found[:min(len(found), c.settings.Keep)] {
			selected = append(selected, v.version)
		}
	}
	return selected
}

// ranked is a version with its semantic version; nil if it has none.
type ranked struct {
	version
	rank *semver.Version
}

// newer compares versions for sorting: the newest first.
func newer(a, b ranked) int {
	switch {
	case a.rank != nil && b.rank != nil:
		return cmp.Or(b.rank.Compare(a.rank), strings.Compare(b.Name, a.Name))
	case a.rank != nil:
		return -1
	case b.rank != nil:
		return 1
	}
	return strings.Compare(b.Name, a.Name)
}
