package gitops_test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/gitops/catalog"
	"github.com/tko-orchestrator/tko/internal/gitops/manifest"
	"github.com/tko-orchestrator/tko/internal/gitops/repository"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/test/soak"
)

// bare is the folder of the repository that is served.
func (r *repo) bare() string { return filepath.Join(filepath.Dir(r.dir), "fleet.git") }

// open returns the repository as a source reads it.
func (r *repo) open(limits tree.Limits) *repository.Repository {
	r.t.Helper()
	opened, err := repository.New(repository.Options{URL: r.url, Dir: r.t.TempDir(), Limits: limits})
	if err != nil {
		r.t.Fatal(err)
	}
	return opened
}

// A catalog with 1,000 packages and 50 versions of each is read in few transfers, and an
// unchanged one by a single request. A new version of a package is read alone.
func TestCatalogOfManyPackagesIsReadInFewTransfers(t *testing.T) {
	t.Parallel()
	packages, versions := soak.Rounds(t, 250, 1000), 50
	r := newRepo(t)
	files := map[string]string{}
	commit := func(value string) string {
		for i := range packages {
			files[fmt.Sprintf("nf/p%04d/Kptfile", i)] = "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {name: p}\n"
			files[fmt.Sprintf("nf/p%04d/c.yaml", i)] = configMap(value + strconv.Itoa(i))
		}
		_, hash, _ := strings.Cut(r.push(files), "sha1:")
		return hash
	}
	old, newest := commit("old"), commit("new")
	var refs []string
	for i := range packages {
		for v := range versions {
			at := old
			if v == versions-1 {
				at = newest
			}
			refs = append(refs, fmt.Sprintf("%s refs/tags/nf/p%04d/v1.%d.0\n", at, i, v))
		}
	}
	slices.SortFunc(refs, func(a, b string) int { return strings.Compare(a[len(old):], b[len(old):]) })
	// In one file: git itself would write 50,000 files first.
	packed := "# pack-refs with: peeled fully-peeled sorted \n" + strings.Join(refs, "")
	if err := os.WriteFile(filepath.Join(r.bare(), "packed-refs"), []byte(packed), 0o600); err != nil {
		t.Fatal(err)
	}
	c, err := catalog.NewGit(catalog.Settings{ID: "{path}:{tag}", Keep: 1}, "nf", r.open(tree.Limits{}))
	if err != nil {
		t.Fatal(err)
	}
	read := func(what string, most int64) []manifest.Manifest {
		t.Helper()
		before := r.requests.Load()
		revision, err := c.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := r.requests.Load() - before; n > most {
			t.Errorf("%s: %d requests, want %d at most", what, n, most)
		}
		found, notes, err := c.Manifests(revision)
		if err != nil || len(notes) > 0 {
			t.Fatalf("%s: the notes are %q: %v", what, notes, err)
		}
		return found
	}
	found := read("a new catalog", 1+2*2) // the list, and two transfers of two requests
	if len(found) != packages || found[7].Name != "p0007:v1.49.0" || found[7].Put.Package[1].Text("data", "v") != "new7" {
		t.Fatalf("there are %d templates, the eighth is %q with %v", len(found), found[7].Name, found[7].Put.Package)
	}
	read("an unchanged catalog", 1)
	git(t, r.bare(), "update-ref", "refs/tags/nf/p0007/v2.0.0", old)
	found = read("one new version", 1+2)
	if found[7].Name != "p0007:v2.0.0" || found[7].Put.Package[1].Text("data", "v") != "old7" {
		t.Errorf("the eighth template is %q: want the new version", found[7].Name)
	}
}

// Tags that are too large together are fetched one by one. A version without the folder, or
// that is no commit, is left out and stops no others.
func TestCatalogFetchesLargeTagsAlone(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	r.tag("v0", map[string]string{"README": "x"})
	for i := range 8 {
		noise := make([]byte, 0, 300_000) // hardly compressible
		for n := range 30_000 {
			noise = fmt.Appendf(noise, "%x", uint32(n*n+i*7919)*2654435761)
		}
		r.tag(fmt.Sprintf("v%d", i+1), map[string]string{"nf/upf/c.yaml": configMap(strconv.Itoa(i)), "nf/upf/notes.txt": string(noise)})
	}
	git(t, r.dir, "tag", "tree", "HEAD^{tree}")
	git(t, r.dir, "push", "-q", "origin", "refs/tags/tree")
	c, err := catalog.NewGit(catalog.Settings{}, "nf", r.open(tree.Limits{Bytes: 300_000}))
	if err != nil {
		t.Fatal(err)
	}
	revision, err := c.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, notes, err := c.Manifests(revision)
	if err != nil || len(found) != 8 || found[0].Name != "upf:v1" {
		t.Errorf("there are the templates %v: %v", found, err)
	}
	text := strings.Join(notes, "\n")
	for _, want := range []string{`v0 is left out: it has no folder "nf"`, "tree is left out: it is the tag of a tree"} {
		if !strings.Contains(text, want) {
			t.Errorf("the notes are %q: want %q", text, want)
		}
	}
	if n := r.requests.Load(); n < 8*2 {
		t.Errorf("%d requests: the tags were not fetched alone, so that this test shows nothing", n)
	}
}

// A tag below the path of a package is a version of that package only, and packages within
// a package are parts of it.
func TestCatalogReadsTagsOfSinglePackages(t *testing.T) {
	t.Parallel()
	r := newRepo(t)
	kptfile := func(name string) string {
		return "apiVersion: kpt.dev/v1\nkind: Kptfile\nmetadata: {name: " + name + "}\n"
	}
	r.tag("core/upf/v1", map[string]string{
		"pkgs/core/upf/Kptfile": kptfile("upf"), "pkgs/core/upf/sub/Kptfile": kptfile("sub"), "pkgs/core/amf/Kptfile": kptfile("amf"), "pkgs/ran/Kptfile": kptfile("ran"),
	})
	for _, tag := range []string{"pkgs/core/amf/v2", "core/v3", "elsewhere/v4"} {
		git(t, r.dir, "tag", tag)
		git(t, r.dir, "push", "-q", "origin", "refs/tags/"+tag)
	}
	c, err := catalog.NewGit(catalog.Settings{}, "pkgs", r.open(tree.Limits{}))
	if err != nil {
		t.Fatal(err)
	}
	revision, err := c.Revision(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	found, notes, err := c.Manifests(revision)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range found {
		names = append(names, m.Name)
	}
	if got := strings.Join(names, " "); got != "core/amf:v2 core/upf:v1" || len(found[1].Put.Package) != 2 {
		t.Errorf("the templates are %s: want core/amf:v2, and core/upf:v1 with its part", got)
	}
	if text := strings.Join(notes, "\n"); !strings.Contains(text, `elsewhere/v4 is left out: it has no folder "pkgs/elsewhere"`) {
		t.Errorf("the notes are %q", text)
	}
}
