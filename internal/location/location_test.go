package location_test

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/location"
	"github.com/tko-orchestrator/tko/krm"
)

func manifest(names ...string) string {
	var docs []string
	for _, name := range names {
		docs = append(docs, "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: "+name+"\n")
	}
	return strings.Join(docs, "---\n")
}

// tree holds the files that most tests read, in several forms.
var tree = map[string]string{
	"b.yaml":           manifest("b"),
	"a/one.yml":        manifest("one", "two"),
	"a/deep/three.yml": manifest("three"),
	"a/README.md":      "no: [yaml",
	".hidden/x.yaml":   "no: [yaml",
	".x.yaml":          "no: [yaml",
	"plain.txt":        manifest("plain"),
}

func names(p krm.Package) string {
	var all []string
	for _, r := range p {
		all = append(all, r.Name())
	}
	return strings.Join(all, " ")
}

func writeTree(t *testing.T, dir string, files map[string]string) string {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func tarOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if err := w.WriteHeader(&tar.Header{Name: name, Size: int64(len(files[name])), Mode: 0o600, Typeflag: tar.TypeReg}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func gzipOf(t *testing.T, data []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write(data); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func zipOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := zip.NewWriter(&b)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(f, files[name]); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// repository creates a git repository with the tree and a tag on its first branch, and
// another branch. It returns the commit of the tag.
func repository(t *testing.T, dir string, bare bool) (first plumbing.Hash) {
	t.Helper()
	work := dir
	if bare {
		work = t.TempDir()
	}
	r, err := git.PlainInit(work, false)
	if err != nil {
		t.Fatal(err)
	}
	first = commit(t, r, writeTree(t, work, tree))
	if _, err := r.CreateTag("v1", first, &git.CreateTagOptions{Message: "one", Tagger: author()}); err != nil {
		t.Fatal(err)
	}
	w, err := r.Worktree()
	if err != nil {
		t.Fatal(err)
	}
	head, err := r.Head()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Checkout(&git.CheckoutOptions{Branch: "refs/heads/feature/x", Create: true}); err != nil {
		t.Fatal(err)
	}
	commit(t, r, writeTree(t, work, map[string]string{"a/one.yml": manifest("changed")}))
	if err := w.Checkout(&git.CheckoutOptions{Branch: head.Name()}); err != nil {
		t.Fatal(err)
	}
	if bare {
		if _, err := git.PlainClone(dir, true, &git.CloneOptions{URL: work, Mirror: true}); err != nil {
			t.Fatal(err)
		}
	}
	return first
}

func author() *object.Signature {
	return &object.Signature{Name: "Ada", Email: "ada@example.com", When: time.Unix(1_700_000_000, 0)}
}

func commit(t *testing.T, r *git.Repository, _ string) plumbing.Hash {
	t.Helper()
	w, err := r.Worktree()
	if err != nil {
		t.Fatal(err)
	}
	if err := w.AddWithOptions(&git.AddOptions{All: true}); err != nil {
		t.Fatal(err)
	}
	hash, err := w.Commit("change", &git.CommitOptions{Author: author()})
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

func TestReadReturnsPackagesFromAllLocations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	writeTree(t, filepath.Join(dir, "tree"), tree)
	tarball := tarOf(t, tree)
	writeTree(t, dir, map[string]string{
		"x.tar": string(tarball), "x.tgz": string(gzipOf(t, tarball)), "x.zip": string(zipOf(t, tree)),
		"odd!name.yaml": manifest("odd"), "very!/odd.yaml": manifest("very"), "one.yaml.gz": string(gzipOf(t, []byte(manifest("zipped")))), "list.json": `[{"apiVersion":"v1","kind":"Pod","metadata":{"name":"j"}}]`,
	})
	repo := filepath.Join(dir, "repo.git")
	first := repository(t, repo, true)
	checkedOut := filepath.Join(dir, "checkout")
	repository(t, checkedOut, false)
	web := httptest.NewServer(http.FileServer(http.Dir(dir)))
	t.Cleanup(web.Close)

	all := "three one two b"
	tests := map[string]struct {
		location string
		want     string
	}{
		"a file":                           {dir + "/tree/b.yaml", "b"},
		"a file of any name":               {dir + "/tree/plain.txt", "plain"},
		"JSON":                             {dir + "/list.json", "j"},
		"a file with a ! in its name":      {dir + "/odd!name.yaml", "odd"},
		"a directory that ends with !":     {dir + "/very!/odd.yaml", "very"},
		"http with a !":                    {web.URL + "/odd!name.yaml", "odd"},
		"a file URL":                       {"file://" + dir + "/tree/b.yaml", "b"},
		"a directory":                      {dir + "/tree", all},
		"a directory URL":                  {"file://" + dir + "/tree/a", "three one two"},
		"a tar":                            {dir + "/x.tar", all},
		"a tar.gz":                         {dir + "/x.tgz", all},
		"a zip":                            {dir + "/x.zip", all},
		"a compressed file":                {dir + "/one.yaml.gz", "zipped"},
		"a directory in a tar.gz":          {dir + "/x.tgz!/a", "three one two"},
		"a directory with its slash":       {dir + "/x.tgz!/a/", "three one two"},
		"a file in a zip":                  {dir + "/x.zip!/a/one.yml", "one two"},
		"a file of any name in a tar":      {dir + "/x.tar!/plain.txt", "plain"},
		"a tar: location":                  {"tar:" + dir + "/x.tgz!a/deep", "three"},
		"a zip: location":                  {"zip:file://" + dir + "/x.zip!b.yaml", "b"},
		"http":                             {web.URL + "/tree/b.yaml", "b"},
		"http, an archive":                 {web.URL + "/x.tgz", all},
		"http, in an archive":              {web.URL + "/x.zip!/a/deep", "three"},
		"tar: and http":                    {"tar:" + web.URL + "/x.tar!a/one.yml", "one two"},
		"a bare repository":                {repo, all},
		"in a repository":                  {repo + "!/a", "three one two"},
		"a branch":                         {repo + "#feature/x", "three changed b"},
		"a tag":                            {repo + "#v1", all},
		"a commit":                         {repo + "#" + first.String(), all},
		"a branch, in it":                  {repo + "#feature/x!/a/one.yml", "changed"},
		"a branch after the path":          {"git:" + repo + "!a/one.yml#feature/x", "changed"},
		"a repository's URL":               {"file://" + repo, all},
		"a repository's URL and a query":   {"file://" + repo + "?ref=feature/x!/a/one.yml", "changed"},
		"git: and a file URL":              {"git:file://" + repo + "!/a/deep", "three"},
		"git: and a directory checked out": {"git:" + checkedOut + "#feature/x!/a/one.yml", "changed"},
		"a directory checked out":          {checkedOut, all},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pkg, err := location.Read(t.Context(), test.location, location.Options{})
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(test.want, names(pkg)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", test.location, diff)
			}
		})
	}
}

// Read fetches repositories over HTTP from the server program of git.
func TestReadRemoteRepository(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first := repository(t, filepath.Join(dir, "repo.git"), true)
	repository(t, filepath.Join(dir, "repo"), false)
	web := httptest.NewServer(gittest.Handler(t, dir, "GIT_CONFIG_COUNT=2", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*",
		"GIT_CONFIG_KEY_1=uploadpack.allowAnySHA1InWant", "GIT_CONFIG_VALUE_1=true"))
	t.Cleanup(web.Close)
	for at, want := range map[string]string{
		web.URL + "/repo.git":                         "three one two b",
		web.URL + "/repo.git!/a/deep":                 "three",
		web.URL + "/repo.git#feature/x":               "three changed b",
		web.URL + "/repo.git?ref=v1!/b.yaml":          "b",
		web.URL + "/repo.git#" + first.String():       "three one two b",
		"git:" + web.URL + "/repo/.git#v1!/a/one.yml": "one two",
		"git+" + web.URL + "/repo.git!/b.yaml":        "b",
	} {
		pkg, err := location.Read(t.Context(), at, location.Options{})
		if err != nil || names(pkg) != want {
			t.Errorf("%s is %q, %v; want %q", at, names(pkg), err, want)
		}
		pkg, err = location.Read(t.Context(), at, location.Options{Guard: guardOf(t, guard.Options{Addresses: []string{"127.0.0.0/8", "::1"}})})
		if err != nil || names(pkg) != want {
			t.Errorf("with a guard that allows the address, %s is %q, %v; want %q", at, names(pkg), err, want)
		}
		_, err = location.Read(t.Context(), at, location.Options{Guard: guardOf(t, guard.Options{})})
		if !errors.Is(err, tko.ErrDenied) {
			t.Errorf("with a guard that refuses the address, Read of %s returned %v, want ErrDenied", at, err)
		}
	}
	for at, want := range map[string]string{
		web.URL + "/repo.git#nowhere": `no branch, tag or commit "nowhere"`,
		web.URL + "/none.git":         "",
	} {
		if _, err := location.Read(t.Context(), at, location.Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Read of %s returned %v, want an error that contains %q", at, err, want)
		}
	}
	_, err := location.Read(t.Context(), web.URL+"/repo.git", location.Options{MaxBytes: 64})
	if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "too large: at most 512 bytes") {
		t.Errorf("Read of a repository that is too large returned %v, want ErrInvalid with the limit", err)
	}
}

func guardOf(t *testing.T, o guard.Options) *guard.Guard {
	t.Helper()
	g, err := guard.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func TestReadRefusesInvalidLocations(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	escape := tarOf(t, map[string]string{"../../x.yaml": manifest("x")})
	link := func() []byte {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range []tar.Header{
			{Name: "link.yaml", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"},
			{Name: "hard.yaml", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"},
		} {
			if err := w.WriteHeader(&h); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		return b.Bytes()
	}()
	bomb := gzipOf(t, tarOf(t, map[string]string{"zeros.bin": strings.Repeat("\x00", 10<<20), "z.yaml": manifest("z")}))
	writeTree(t, dir, map[string]string{
		"escape.tar": string(escape), "link.tar": string(link), "bomb.tgz": string(bomb),
		"escape.zip": string(zipOf(t, map[string]string{"../x.yaml": manifest("x")})),
		"big.yaml":   strings.Repeat("# filler\n", 1<<17), "big.zip": string(zipOf(t, map[string]string{"big.yaml": strings.Repeat("# filler\n", 1<<17)})),
		"bad.tgz":     "\x1f\x8b\x08 this is none",
		"bad.zip":     "PK\x03\x04 this is none",
		"two/a.yaml":  manifest("same"),
		"two/b.yaml":  manifest("same"),
		"bad/a.yaml":  manifest("a"),
		"bad/b.yaml":  "a: [",
		"kind/a.yaml": "apiVersion: v1\nmetadata: {name: x}\n",
		"none/x.txt":  "",
		"fine.yaml":   manifest("fine"),
		"secret.txt":  manifest("secret"),
	})
	writeTree(t, dir, map[string]string{"out/a.yaml": manifest("a")})
	if err := os.Symlink(filepath.Join(dir, "secret.txt"), filepath.Join(dir, "out/link.yaml")); err != nil {
		t.Fatal(err)
	}
	repo := filepath.Join(dir, "repo.git")
	repository(t, repo, true)
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	withPassword := strings.Replace(web.URL, "http://", "http://ada:hush@", 1)

	tests := map[string]struct {
		location string
		want     string // in the error
		invalid  bool
	}{
		"nothing":                     {"", "is empty", true},
		"NUL":                         {"a\x00b", "NUL", true},
		"no such file":                {dir + "/nowhere.yaml", "nowhere.yaml: no such file", true},
		"no such scheme":              {"ftp://example.com/x.yaml", `the scheme "ftp"`, true},
		"another host's file":         {"file://elsewhere/x.yaml", "this machine", true},
		"a directory without YAML":    {dir + "/none", "no .yaml or .yml files", true},
		"a link that leads out":       {dir + "/out", "link.yaml", false},
		"the same twice":              {dir + "/two", `b.yaml: v1 ConfigMap "same" is also in a.yaml`, true},
		"the file is named":           {dir + "/bad", "/bad: b.yaml: ", true},
		"no kind":                     {dir + "/kind", "/kind: a.yaml: ", true},
		"too large":                   {dir + "/big.yaml", "too large: at most 1 MiB", true},
		"too large, zipped":           {dir + "/big.zip", "too large: at most 1 MiB", true},
		"a bomb":                      {dir + "/bomb.tgz", "too large: at most 8 MiB", true},
		"a tar that leads out":        {dir + "/escape.tar", "leads out", true},
		"a zip that leads out":        {dir + "/escape.zip", "leads out", true},
		"only links":                  {dir + "/link.tar", "no .yaml or .yml files", true},
		"a link is not followed":      {dir + "/link.tar!/link.yaml", `no "link.yaml"`, true},
		"a damaged tar.gz":            {dir + "/bad.tgz", "damaged", true},
		"a damaged zip":               {dir + "/bad.zip", "damaged", true},
		"a path in what is none":      {dir + "/fine.yaml!/x", "not an archive", true},
		"a path in a directory":       {dir + "/two!/a.yaml", "is a directory", true},
		"a path that leads out":       {dir + "/big.zip!/../x", "has a .. in it", true},
		"no such path":                {repo + "!/nowhere", `no "nowhere"`, true},
		"no such branch":              {repo + "#nowhere", `no branch, tag or commit "nowhere"`, true},
		"no such repository":          {dir + "/nowhere.git", "repository not found", true},
		"not a repository":            {"git:" + dir + "/two", "not a git repository", true},
		"http error":                  {web.URL + "/x.yaml", "404", false},
		"http, no password in errors": {withPassword + "/x.yaml", "ada:xxxxx@", false},
		"git over http error":         {withPassword + "/x.git", "ada:xxxxx@", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pkg, err := location.Read(t.Context(), test.location, location.Options{MaxBytes: 1 << 20})
			if err == nil {
				t.Fatalf("Read of %s returned %s, want an error", test.location, names(pkg))
			}
			if !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), "hush") {
				t.Errorf("the error is %q, want one that contains %q and no password", err, test.want)
			}
			if test.invalid != errors.Is(err, tko.ErrInvalid) {
				t.Errorf("whether %q is ErrInvalid: %t, want %t", err, !test.invalid, test.invalid)
			}
		})
	}
}

func TestLinksWithinADirectoryAreFollowed(t *testing.T) {
	t.Parallel()
	dir := writeTree(t, t.TempDir(), map[string]string{"..data/a.yaml": manifest("a")})
	if err := os.Symlink("..data/a.yaml", filepath.Join(dir, "a.yaml")); err != nil {
		t.Fatal(err)
	}
	pkg, err := location.Read(t.Context(), dir, location.Options{})
	if err != nil || names(pkg) != "a" {
		t.Errorf("a mounted ConfigMap, whose files are links, has the names %q, %v; want a", names(pkg), err)
	}
}

func TestReadStreamReturnsThePackage(t *testing.T) {
	t.Parallel()
	pkg, err := location.ReadStream(t.Context(), strings.NewReader(manifest("a", "b")), "stdin", location.Options{})
	if err != nil || names(pkg) != "a b" {
		t.Errorf("the names are %q, %v; want a b", names(pkg), err)
	}
	if _, err := location.ReadStream(t.Context(), strings.NewReader("a: ["), "stdin", location.Options{}); err == nil || !strings.HasPrefix(err.Error(), "stdin: ") {
		t.Errorf("the error is %v, want one that names stdin", err)
	}
	if _, err := location.ReadStream(t.Context(), strings.NewReader(strings.Repeat("#", 100)), "stdin", location.Options{MaxBytes: 99}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("the error is %v, want ErrInvalid", err)
	}
}

func TestReadStreamEndsWithItsContext(t *testing.T) {
	t.Parallel()
	never, w := io.Pipe()
	t.Cleanup(func() { _ = w.Close() })
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("enough"))
	if _, err := location.ReadStream(ctx, never, "stdin", location.Options{}); err == nil || !strings.Contains(err.Error(), "enough") {
		t.Errorf("the error is %v, want the cause of the context", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(manifest("a")))
	f.Add([]byte("PK\x03\x04"))
	f.Add([]byte("\x1f\x8b\x08"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		pkg, err := location.Read(t.Context(), path, location.Options{MaxBytes: 1 << 20})
		if err == nil {
			for _, r := range pkg {
				_ = fmt.Sprint(r.Identity())
			}
		}
	})
}

func TestReadFilesReturnsFilesByName(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, content := range map[string]string{"a.meta": "1", "b.yaml": "no: package", "c.txt": "2"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	got, err := location.ReadFiles(t.Context(), dir, location.Options{Takes: func(name string) bool { return !strings.HasSuffix(name, ".txt") }})
	want := map[string][]byte{"a.meta": []byte("1"), "b.yaml": []byte("no: package")}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
	got, err = location.ReadFiles(t.Context(), filepath.Join(dir, "c.txt"), location.Options{})
	if diff := cmp.Diff(map[string][]byte{"": []byte("2")}, got); diff != "" || err != nil {
		t.Errorf("%v: %s", err, diff)
	}
}

// A folder of a file system is read as a directory is.
func TestReadFSReadsAsADirectory(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"p/a.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}", "p/deep/b.yml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: b}}",
		"p/.hidden/c.yaml": "no: [", "p/notes.txt": "x", "other/d.yaml": "no: [", "broken/a.yaml": "no: [",
	} {
		if err := errors.Join(os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700), os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	want, err := location.Read(t.Context(), filepath.Join(dir, "p"), location.Options{})
	if err != nil || len(want) != 2 {
		t.Fatalf("%v, %v", want, err)
	}
	got, err := location.ReadFS(t.Context(), os.DirFS(dir), "p", location.Options{})
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for folder, says := range map[string]string{"broken": "broken: a.yaml", "none": "read none: ", "../p": "../p"} {
		if _, err := location.ReadFS(t.Context(), os.DirFS(dir), folder, location.Options{}); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", folder, err, says)
		}
	}
}
