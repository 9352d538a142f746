package agent_test

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	gogit "github.com/go-git/go-git/v5"
	"github.com/go-git/go-git/v5/plumbing/object"
	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/agent"
	"github.com/tko-orchestrator/tko/internal/bundle"
	"github.com/tko-orchestrator/tko/krm"
)

// dieAt is the variable with the step at which the test program kills itself as an agent.
const dieAt = "TKO_TEST_AGENT_DIES_AT"

func TestMain(m *testing.M) {
	if os.Getenv(dieAt) != "" {
		os.Exit(agentThatDies())
	}
	os.Exit(m.Run())
}

// agentThatDies applies a bundle, and ends by SIGKILL at a step. Its arguments are those of apply.
func agentThatDies() int {
	a, err := agent.Open(os.Args[1], nil)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	n := 0
	a.OnStep(func(string) {
		n++
		if strconv.Itoa(n) == os.Getenv(dieAt) {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	})
	text, err := os.ReadFile(os.Args[4])
	if err != nil {
		return 1
	}
	key, err := bundle.ParsePublic(string(text))
	if err != nil {
		return 1
	}
	if _, err := apply(a, os.Args[2], os.Args[3], key); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func apply(a *agent.Agent, file, repository string, key ed25519.PublicKey) (agent.Outcome, error) {
	ctx := context.Background() // of a process of its own, too
	if _, err := a.Accept(ctx, file, []ed25519.PublicKey{key}, false); err != nil {
		return agent.Outcome{}, err
	}
	return a.Apply(ctx, []ed25519.PublicKey{key}, agent.Place{Repository: repository}, 0)
}

// A world is a site with an agent whose place is a repository.
type world struct {
	t          *testing.T
	dir        string
	state      string
	repository string
	key        ed25519.PrivateKey
	setup      agent.Setup
	serial     int64
}

func newWorld(t *testing.T) *world {
	t.Helper()
	key, _, err := bundle.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	w := &world{t: t, dir: dir, state: filepath.Join(dir, "state"), repository: filepath.Join(dir, "site.git"), key: key}
	if w.setup, err = agent.Init(w.state, "ships/7"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "pub"), []byte(bundle.PublicText(key)), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) public() ed25519.PublicKey {
	w.t.Helper()
	key, err := bundle.ParsePublic(bundle.PublicText(w.key))
	if err != nil {
		w.t.Fatal(err)
	}
	return key
}

func content(t *testing.T, revision int64, pkg ...krm.Resource) bundle.Content {
	t.Helper()
	c, err := bundle.NewContent(revision, pkg)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func cluster(spec map[string]any) krm.Resource {
	return krm.Resource{"apiVersion": "kubernetes.plugin.nephio.org/v1alpha1", "kind": "Cluster", "metadata": map[string]any{"name": "site"}, "spec": spec}
}

func configMap(name, value string) krm.Resource {
	return krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "default"}, "data": map[string]any{"value": value}}
}

func deployment(t *testing.T, id string, revision int64, value string) bundle.Row {
	t.Helper()
	return bundle.Row{Deployment: &bundle.Deployment{ID: tko.DeploymentID(id), UID: "u-" + id, Content: content(t, revision, configMap(id, value))}}
}

func kept(id string, revision int64) bundle.Row {
	return bundle.Row{Deployment: &bundle.Deployment{ID: tko.DeploymentID(id), UID: "u-" + id, Kept: true, Content: bundle.Content{Revision: revision}}}
}

// bundle writes a bundle of the site, newer than those before.
func (w *world) bundle(rows ...bundle.Row) string {
	w.t.Helper()
	w.serial++
	return w.bundleOf(bundle.Statement{Site: "ships/7", Serial: w.serial, Time: time.Now()}, bundle.Options{Key: w.key, Recipient: w.setup.Recipient}, rows...)
}

func (w *world) bundleOf(s bundle.Statement, o bundle.Options, rows ...bundle.Row) string {
	w.t.Helper()
	o.Type = bundle.TypeBundle
	site := bundle.Row{Site: &bundle.Site{ID: s.Site, UID: "u", Content: content(w.t, 1, cluster(map[string]any{"agent": map[string]any{}}))}}
	var b bytes.Buffer
	all := append([]bundle.Row{site}, rows...)
	_, err := bundle.Write(&b, s, o, iter.Seq2[bundle.Row, error](func(yield func(bundle.Row, error) bool) {
		for _, r := range all {
			if !yield(r, nil) {
				return
			}
		}
	}))
	if err != nil {
		w.t.Fatal(err)
	}
	file := filepath.Join(w.dir, fmt.Sprintf("%d-%d.bundle", s.Serial, time.Now().UnixNano()))
	if err := os.WriteFile(file, b.Bytes(), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return file
}

// try applies a bundle.
func (w *world) try(file string) (agent.Outcome, error) {
	w.t.Helper()
	a, err := agent.Open(w.state, nil)
	if err != nil {
		w.t.Fatal(err)
	}
	defer a.Close()
	return apply(a, file, w.repository, w.public())
}

func (w *world) apply(rows ...bundle.Row) agent.Outcome {
	w.t.Helper()
	o, err := w.try(w.bundle(rows...))
	if err != nil {
		w.t.Fatal(err)
	}
	return o
}

// files returns the values of the ConfigMaps that the repository has, and its number of commits.
func (w *world) files() (files []string, commits int) {
	w.t.Helper()
	repository, err := gogit.PlainOpen(w.repository)
	if errors.Is(err, gogit.ErrRepositoryNotExists) {
		return nil, 0
	}
	if err != nil {
		w.t.Fatal(err)
	}
	head, err := repository.Head()
	if err != nil {
		return nil, 0
	}
	commit, err := repository.CommitObject(head.Hash())
	if err != nil {
		w.t.Fatal(err)
	}
	tree, err := commit.Tree()
	if err != nil {
		w.t.Fatal(err)
	}
	err = tree.Files().ForEach(func(f *object.File) error {
		text, err := f.Contents()
		if err == nil && strings.Contains(text, "kind: ConfigMap") {
			_, value, _ := strings.Cut(text, "value: ")
			value, _, _ = strings.Cut(value, "\n")
			name := strings.TrimSuffix(filepath.Base(f.Name), ".yaml")
			files = append(files, name+"="+value)
		}
		return err
	})
	if err != nil {
		w.t.Fatal(err)
	}
	for err == nil {
		commits++
		commit, err = commit.Parent(0)
	}
	slices.Sort(files)
	return files, commits
}

func (w *world) values() string {
	w.t.Helper()
	files, _ := w.files()
	var all []string
	for _, f := range files {
		_, value, _ := strings.Cut(f, "=")
		all = append(all, value)
	}
	return strings.Join(all, " ")
}

func status(o agent.Outcome, id, condition string) string {
	for _, s := range o.States {
		for _, c := range s.Conditions {
			if s.ID == id && c.Type == condition {
				return fmt.Sprintf("%d %s", s.Revision, c.Status)
			}
		}
	}
	return ""
}

func TestBundlesAreAppliedAndPruned(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.apply(deployment(t, "a", 1, "a1"), deployment(t, "b", 1, "b1"))
	if got := w.values(); got != "a1 b1" || o.Scheduled != 2 || !o.Whole() {
		t.Fatalf("the site has %s: %+v", got, o)
	}
	if status(o, "a", tko.ConditionHealthy) == "1 True" {
		t.Error("a repository reports that a deployment is healthy")
	}
	o = w.apply(deployment(t, "b", 2, "b2"), deployment(t, "c", 1, "c1"))
	if got := w.values(); got != "b2 c1" || status(o, "b", tko.ConditionScheduled) != "2 True" {
		t.Errorf("the site has %s: %+v", got, o)
	}
	_, commits := w.files()
	w.apply(deployment(t, "b", 2, "b2"), deployment(t, "c", 1, "c1"))
	if _, again := w.files(); again != commits {
		t.Errorf("the same content again makes %d commits of %d", again, commits)
	}
}

func TestKeptDeploymentsStayAsTheyAre(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.apply(deployment(t, "a", 1, "a1"), deployment(t, "b", 1, "b1"))
	o := w.apply(kept("a", 2), deployment(t, "c", 1, "c1"))
	if got := w.values(); got != "a1 c1" || o.Kept != 1 || o.Deployments != 1 {
		t.Errorf("the site has %s: %+v", got, o)
	}
	if got := status(o, "a", tko.ConditionScheduled); got != "" {
		t.Errorf("the new revision of a kept deployment is reported as %s", got)
	}
}

func TestRefusedBundlesChangeNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	first := w.bundle(deployment(t, "a", 1, "a1"))
	if _, err := w.try(first); err != nil {
		t.Fatal(err)
	}
	w.apply(deployment(t, "a", 2, "a2"))
	other, _, err := bundle.NewKey()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(w.bundle(deployment(t, "a", 9, "a9")))
	if err != nil {
		t.Fatal(err)
	}
	truncated := filepath.Join(w.dir, "truncated")
	if err := os.WriteFile(truncated, text[:len(text)/2], 0o600); err != nil {
		t.Fatal(err)
	}
	bad := deployment(t, "a", 9, "a9")
	bad.Deployment.Digest = strings.Repeat("0", 64)
	pipe := filepath.Join(w.dir, "pipe")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		why, file string
		want      error
	}{
		"replayed":        {"an old bundle would bring back what was removed", first, tko.ErrConflict},
		"another site":    {"all bundles may be on one stick", w.bundleOf(bundle.Statement{Site: "ships/8", Serial: 99, Time: time.Now()}, bundle.Options{Key: w.key}, deployment(t, "a", 9, "a9")), tko.ErrDenied},
		"another key":     {"only trusted keys command the site", w.bundleOf(bundle.Statement{Site: "ships/7", Serial: 99, Time: time.Now()}, bundle.Options{Key: other}, deployment(t, "a", 9, "a9")), tko.ErrDenied},
		"truncated":       {"a stick was pulled too early", truncated, tko.ErrInvalid},
		"another digest":  {"all packages are checked before the first is applied", w.bundle(deployment(t, "0", 1, "x"), bad), tko.ErrInvalid},
		"not a file":      {"a device never ends", "/dev/zero", tko.ErrInvalid},
		"a pipe":          {"it would never end", pipe, tko.ErrInvalid},
		"missing":         {"a typo", filepath.Join(w.dir, "nowhere"), os.ErrNotExist},
		"older, same age": {"the position of the server didn't change", w.bundleOf(bundle.Statement{Site: "ships/7", Serial: 2, Time: time.Now().Add(-time.Hour)}, bundle.Options{Key: w.key}, deployment(t, "a", 9, "a9")), tko.ErrConflict},
	}
	for name, test := range tests {
		_, err := w.try(test.file)
		if !errors.Is(err, test.want) || w.values() != "a2" {
			t.Errorf("%s: got %v, want %v, and the site has %s: %s", name, err, test.want, w.values(), test.why)
		}
	}
	if left, err := filepath.Glob(filepath.Join(w.state, "*.new")); err != nil || len(left) > 0 {
		t.Errorf("refused bundles leave %q, %v", left, err)
	}
	a, err := agent.Open(w.state, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if o, err := a.Apply(t.Context(), []ed25519.PublicKey{w.public()}, agent.Place{Repository: w.repository}, 0); err != nil || status(o, "a", tko.ConditionScheduled) != "2 True" {
		t.Errorf("the former bundle is %+v, %v", o, err)
	}
	if _, err := a.Accept(t.Context(), first, []ed25519.PublicKey{w.public()}, true); err != nil {
		t.Errorf("an older bundle is refused although it is permitted: %v", err)
	}
}

func TestReportsAreNotWrittenThroughLinks(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	victim, report := filepath.Join(dir, "victim"), filepath.Join(dir, "stick.report")
	if err := os.WriteFile(victim, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{report, report + ".new"} {
		if err := os.Symlink(victim, link); err != nil {
			t.Fatal(err)
		}
	}
	if err := agent.Replace(report, func(w io.Writer) error { _, err := io.WriteString(w, "report"); return err }); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(victim); err != nil || string(text) != "precious" {
		t.Errorf("a link on the stick made the file %q, %v", text, err)
	}
	if text, err := os.ReadFile(report); err != nil || string(text) != "report" {
		t.Errorf("the report is %q, %v", text, err)
	}
}

func TestOnlyOneAgentWorksWithAFolder(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	a, err := agent.Open(w.state, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if _, err := agent.Open(w.state, nil); !errors.Is(err, tko.ErrBusy) {
		t.Errorf("got %v", err)
	}
}

func TestFolderIsOfOneSite(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	if again, err := agent.Init(w.state, "ships/7"); err != nil || again != w.setup {
		t.Errorf("again, it is %+v, %v", again, err)
	}
	if _, err := agent.Init(w.state, "ships/8"); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("the folder becomes that of another site: %v", err)
	}
	if _, err := agent.Open(filepath.Join(w.dir, "nowhere"), nil); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("got %v", err)
	}
}

func TestReportsAreSignedByTheAgent(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.apply(deployment(t, "a", 3, "a3"))
	a, err := agent.Open(w.state, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	var b bytes.Buffer
	if err := a.Report(&b, o, time.Now()); err != nil {
		t.Fatal(err)
	}
	key, err := bundle.ParsePublic(w.setup.Key)
	if err != nil {
		t.Fatal(err)
	}
	f, err := bundle.Open(bytes.NewReader(b.Bytes()), int64(b.Len()), bundle.TypeReport, key)
	if err != nil {
		t.Fatal(err)
	}
	var got []bundle.State
	for row, err := range f.Rows("") {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, *row.State)
	}
	if diff := cmp.Diff(o.States, got); diff != "" || f.Statement.Serial != w.serial || f.Statement.Bundle != o.Statement.Digest {
		t.Errorf("the report differs: %s%+v", diff, f.Statement)
	}
	if _, err := bundle.Open(bytes.NewReader(b.Bytes()), int64(b.Len()), bundle.TypeReport, w.public()); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("the key of bundles signs reports: %v", err)
	}
}

// maxSteps is more than an agent takes.
const maxSteps = 100

func TestKilledAgentGoesOnAtEachStep(t *testing.T) {
	t.Parallel()
	for n := 1; ; n++ {
		if n > maxSteps {
			t.Fatal("the agent doesn't end")
		}
		w := newWorld(t)
		w.apply(deployment(t, "a", 1, "a1"), deployment(t, "b", 1, "b1"))
		next := w.bundle(deployment(t, "a", 2, "a2"), deployment(t, "c", 1, "c1"))
		killed := exec.CommandContext(t.Context(), os.Args[0], w.state, next, w.repository, filepath.Join(w.dir, "pub"))
		killed.Env = append(os.Environ(), fmt.Sprintf("%s=%d", dieAt, n))
		out, err := killed.CombinedOutput()
		if err == nil {
			if n < 8 {
				t.Errorf("the agent has only %d steps", n-1)
			}
			return
		}
		if s, ok := killed.ProcessState.Sys().(syscall.WaitStatus); !ok || s.Signal() != syscall.SIGKILL {
			t.Fatalf("step %d: %v: %s", n, err, out)
		}
		if got := w.values(); got != "a1 b1" && got != "a2 c1" {
			t.Errorf("killed at step %d, the site has %s", n, got)
		}
		o, err := w.try(next)
		if got := w.values(); err != nil || got != "a2 c1" || status(o, "a", tko.ConditionScheduled) != "2 True" || status(o, "c", tko.ConditionScheduled) != "1 True" {
			t.Errorf("after a kill at step %d, the site has %s: %+v, %v", n, got, o, err)
		}
		if _, commits := w.files(); commits != 2 {
			t.Errorf("after a kill at step %d, there are %d commits", n, commits)
		}
	}
}

func TestFullDiskChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	small := filepath.Join(w.dir, "small")
	if err := os.Mkdir(small, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mount("tmpfs", small, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatalf("this test mounts a small disk, which needs root: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(small, 0) })
	w.state = filepath.Join(small, "state")
	var err error
	if w.setup, err = agent.Init(w.state, "ships/7"); err != nil {
		t.Fatal(err)
	}
	w.apply(deployment(t, "a", 1, "a1"))
	large := w.bundle(deployment(t, "a", 2, strings.Repeat("x", 400<<10)))
	little := w.bundle(deployment(t, "a", 3, "a3"))
	if _, err := w.try(large); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "nothing was changed") || w.values() != "a1" {
		t.Errorf("a bundle that doesn't fit: the site has %s, %v", w.values(), err)
	}
	filler := filepath.Join(small, "filler")
	fill(t, filler, 12<<10)
	if _, err := w.try(little); !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), "nothing was applied") || w.values() != "a1" {
		t.Errorf("a state that doesn't fit: the site has %s, %v", w.values(), err)
	}
	if err := os.Remove(filler); err != nil {
		t.Fatal(err)
	}
	if _, err := w.try(little); err != nil || w.values() != "a3" {
		t.Errorf("with space again, the site has %s, %v", w.values(), err)
	}
}

// fill fills a disk, except for some bytes.
func fill(t *testing.T, name string, except int64) {
	t.Helper()
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = f.Close() }()
	var n int64
	for err == nil {
		var more int
		more, err = f.Write(make([]byte, 4<<10))
		n += int64(more)
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	if err := f.Truncate(n - except); err != nil {
		t.Fatal(err)
	}
}
