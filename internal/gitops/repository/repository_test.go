package repository_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/gitops/repository"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
)

var git = gittest.Run

// hostile creates a repository with links, a submodule, two branches and a tag.
func hostile(t testing.TB) (dir string) {
	t.Helper()
	dir = t.TempDir()
	git(t, dir, "init", "-q", "-b", "main")
	gittest.Write(t, dir, map[string]string{"a.yaml": "a", "deep/er/b.yaml": "b", "big": strings.Repeat("x", 5000)})
	for link, to := range map[string]string{"passwd": "/etc/passwd", "deep/up": "../..", "inner": "a.yaml"} {
		if err := os.Symlink(to, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	git(t, dir, "add", "-A")
	git(t, dir, "commit", "-q", "-m", "1")
	git(t, dir, "update-index", "--add", "--cacheinfo", "160000,"+git(t, dir, "rev-parse", "HEAD")+",sub")
	git(t, dir, "commit", "-q", "-m", "2")
	git(t, dir, "tag", "-a", "v1", "-m", "v1")
	git(t, dir, "branch", "side")
	git(t, dir, "commit", "-q", "--allow-empty", "-m", "3")
	return dir
}

func files(t testing.TB, fsys fs.FS) []string {
	t.Helper()
	var names []string
	if err := fs.WalkDir(fsys, ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

func TestFetchReturnsFilesOfARevision(t *testing.T) {
	t.Parallel()
	dir := hostile(t)
	at := func(ref string) string { return "sha1:" + git(t, dir, "rev-parse", ref+"^{commit}") }
	tests := map[string]struct{ why, ref, want string }{
		"HEAD":    {"the default is HEAD", "", "main@" + at("main")},
		"branch":  {"a branch names its latest commit", "side", "side@" + at("side")},
		"tag":     {"an annotated tag names its commit", "v1", "v1@" + at("v1")},
		"whole":   {"a full reference name is also valid", "refs/heads/side", "side@" + at("side")},
		"commit":  {"a commit never moves", at("side")[5:], at("side")},
		"unknown": {"a missing reference is an error", "nothing", ""},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			work := t.TempDir()
			r, err := repository.New(repository.Options{URL: "file://" + dir, Ref: test.ref, Dir: work, Timeout: time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			revision, err := r.Revision(t.Context())
			if (err == nil) != (test.want != "") || revision != test.want {
				t.Fatalf("%s: got %q, %v, want %q", test.why, revision, err, test.want)
			}
			if err != nil {
				return
			}
			files1, err := r.Fetch(t.Context(), revision)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff([]string{"a.yaml", "big", "deep/er/b.yaml"}, files(t, files1)); diff != "" {
				t.Error("want the files without links and submodules: " + diff)
			}
			if err := files1.Close(); err != nil {
				t.Error(err)
			}
			if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestFetchRefusesRevisionsBeyondLimits(t *testing.T) {
	t.Parallel()
	dir := hostile(t)
	for name, limits := range map[string]tree.Limits{"bytes": {Bytes: 4000}, "files": {Files: 2}} {
		work := t.TempDir()
		r, err := repository.New(repository.Options{URL: "file://" + dir, Limits: limits, Dir: work})
		if err != nil {
			t.Fatal(err)
		}
		revision, err := r.Revision(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Fetch(t.Context(), revision); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), name) {
			t.Errorf("a tree beyond the limit of %s: the error is %v, want ErrInvalid with the limit", name, err)
		}
		if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
			t.Errorf("%s: left behind: %v, %v", name, left, err)
		}
	}
}

func TestNewRefusesInvalidOptions(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why     string
		options repository.Options
		bad     bool
	}{
		"https":           {"", repository.Options{URL: "https://host/x.git"}, false},
		"ssh":             {"", repository.Options{URL: "ssh://git@host/x.git"}, false},
		"scp":             {"", repository.Options{URL: "git@host:x.git"}, false},
		"password in URL": {"it would be shown in status, log and command line", repository.Options{URL: "https://u:p4ss@host/x"}, true},
		"token in URL":    {"a token in a URL would be shown, too", repository.Options{URL: "https://p4ss@host/x"}, true},
		"ssh password":    {"a password in a URL would be shown, too", repository.Options{URL: "ssh://u:p4ss@host/x"}, true},
		"ext":             {"git's ext:: runs commands", repository.Options{URL: "ext::sh -c p4ss"}, true},
		"path":            {"a local path may be a mistake", repository.Options{URL: "/x"}, true},
		"not a URL":       {"", repository.Options{URL: "https://p4ss\x7f"}, true},
		"two credentials": {"it is undefined which credentials are used", repository.Options{URL: "https://h/x", Credentials: repository.Credentials{TokenFile: "a", SSHKeyFile: "b", KnownHostsFile: "c"}}, true},
		"no known hosts":  {"a key must be used with known hosts only", repository.Options{URL: "ssh://h/x", Credentials: repository.Credentials{SSHKeyFile: "b"}}, true},
		"no user":         {"a password needs a user name", repository.Options{URL: "https://h/x", Credentials: repository.Credentials{PasswordFile: "b"}}, true},
	}
	for name, test := range tests {
		_, err := repository.New(test.options)
		if (err != nil) != test.bad || err != nil && (!errors.Is(err, tko.ErrInvalid) || strings.Contains(err.Error(), "p4ss")) {
			t.Errorf("%s: the error is %v, want one without the secret if invalid (%t): %s", name, err, test.bad, test.why)
		}
	}
}

func TestTreeHoldsOnlyRegularFilesWithinIt(t *testing.T) {
	t.Parallel()
	w, err := tree.Create(t.TempDir(), tree.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"../x", "/x", "a/../../x", "", ".", "a/.."} {
		if err := w.Add(name, strings.NewReader("x")); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("Add of %q returned %v, want ErrInvalid", name, err)
		}
	}
	if err := w.Add("a/b", strings.NewReader("x")); err != nil {
		t.Error(err)
	}
	if err := w.Add("a/b", strings.NewReader("y")); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("the second Add of a file returned %v, want ErrInvalid", err)
	}
	if err := w.Tree().Close(); err != nil {
		t.Error(err)
	}
}
