package fluxtest

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/go-git/go-git/v5/plumbing/format/gitignore"

	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
)

// A Repository is a git repository with one branch, main.
type Repository struct {
	t   testing.TB
	Dir string // the work tree
}

// NewRepository creates a Repository without commits.
func NewRepository(t testing.TB) *Repository {
	t.Helper()
	r := &Repository{t: t, Dir: t.TempDir()}
	r.git("init", "-q", "-b", "main")
	return r
}

// NewRepositoryWith creates a Repository with one commit.
func NewRepositoryWith(t testing.TB, files map[string]string) *Repository {
	t.Helper()
	r := NewRepository(t)
	r.Commit(files)
	return r
}

func (r *Repository) git(arguments ...string) []byte {
	r.t.Helper()
	var out, errs bytes.Buffer
	cmd := exec.Command("git", arguments...) //nolint:gosec,noctx // of tests
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.Dir, &out, &errs
	cmd.Env = append(os.Environ(), "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_SYSTEM=/dev/null",
		"GIT_AUTHOR_NAME=a", "GIT_AUTHOR_EMAIL=a@example.com", "GIT_COMMITTER_NAME=a", "GIT_COMMITTER_EMAIL=a@example.com")
	if err := cmd.Run(); err != nil {
		r.t.Fatalf("git %s: %v\n%s", strings.Join(arguments, " "), err, errs.String())
	}
	return out.Bytes()
}

// Commit writes files, removes those whose content is empty, and commits. It
// returns the commit's hash.
func (r *Repository) Commit(files map[string]string) string {
	r.t.Helper()
	gittest.Write(r.t, r.Dir, files)
	r.git("add", "-A")
	r.git("commit", "-q", "--allow-empty", "-m", "change")
	return r.Head()
}

// Head returns the hash of the newest commit.
func (r *Repository) Head() string {
	r.t.Helper()
	return strings.TrimSpace(string(r.git("rev-parse", "HEAD")))
}

// ignored are the files that source-controller leaves out, unless .sourceignore
// includes them. ignoredAlways are git's own files, which it always leaves out.
const (
	ignoredAlways = ".git/\n.gitignore\n.gitmodules\n.gitattributes\n"
	ignored       = `*.jpg
*.jpeg
*.gif
*.png
*.wmv
*.flv
*.tar.gz
*.zip
.github/
.circleci/
.travis.yml
.gitlab-ci.yml
appveyor.yml
.drone.yml
cloudbuild.yaml
codeship-services.yml
codeship-steps.yml
**/.goreleaser.yml
**/.sops.yaml
**/.flux.yaml
`
)

func patterns(text string) (all []gitignore.Pattern) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "#") {
			all = append(all, gitignore.ParsePattern(line, nil))
		}
	}
	return all
}

// Archive returns the artifact of a commit: a gzipped archive of directories and
// regular files, with fixed modes and times, so that it is reproducible.
func (r *Repository) Archive(commit string) []byte {
	r.t.Helper()
	wanted := ignored
	if own := r.git("ls-tree", commit, "--", ".sourceignore"); len(own) > 0 {
		wanted += string(r.git("show", commit+":.sourceignore"))
	}
	matcher := gitignore.NewMatcher(patterns(wanted + ignoredAlways))
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	w := tar.NewWriter(z)
	in := tar.NewReader(bytes.NewReader(r.git("archive", "--format=tar", commit)))
	for {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			r.t.Fatal(err)
		}
		folder := h.Typeflag == tar.TypeDir
		if h.Typeflag != tar.TypeReg && !folder || matcher.Match(strings.Split(strings.Trim(h.Name, "/"), "/"), folder) {
			continue
		}
		out := &tar.Header{Name: strings.Trim(h.Name, "/"), Typeflag: h.Typeflag, Size: h.Size, Mode: 0o600}
		switch {
		case folder:
			out.Mode = 0o750
		case h.Mode&0o100 != 0:
			out.Mode = 0o700
		}
		if err := w.WriteHeader(out); err != nil {
			r.t.Fatal(err)
		}
		if _, err := io.Copy(w, in); err != nil { //nolint:gosec // git archive made it
			r.t.Fatal(err)
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		r.t.Fatal(err)
	}
	return b.Bytes()
}
