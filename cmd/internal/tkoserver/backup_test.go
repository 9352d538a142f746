package tkoserver

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// command runs a command of the server, and returns its output.
func command(t *testing.T, want int, args ...string) string {
	t.Helper()
	var out eventually.Buffer
	if code := run(t.Context(), args, &out, &out); code != want {
		t.Fatalf("%v: exit code %d, want %d:\n%s", args, code, want, &out)
	}
	return out.String()
}

// dial returns a client of a server.
func dial(t *testing.T, s serving) *client.Client {
	t.Helper()
	c, err := client.Dial(client.Options{Address: s.GRPC[0]})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// A restored world is a server with a site in a git repository.
type backupWorld struct {
	*testing.T
	repository string
	folder     string
	log        *eventually.Buffer // of the server
}

func (w *backupWorld) serve(store string, args ...string) (*client.Client, func()) {
	w.Helper()
	served, stop := start(w.T, append([]string{
		"--roles=data,preparer,meta-scheduler", "--store=" + store, "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=", "--git-cache=" + filepath.Join(w.folder, "cache"), "--git-local=" + filepath.Dir(w.repository),
	}, args...)...)
	w.log = served.log
	return dial(w.T, served), stop
}

func (w *backupWorld) create(c *client.Client, name string) tko.DeploymentID {
	w.Helper()
	object := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name, "namespace": "ns"}}
	id, err := c.CreateDeployment(w.Context(), tko.NewDeployment{Site: "lagos", Prepared: true, Approved: true, Merge: krm.Package{object}})
	if err != nil {
		w.Fatal(err)
	}
	return id
}

// objects returns the names of the objects in the repository.
func (w *backupWorld) objects() string {
	w.Helper()
	var names []string
	for file := range strings.FieldsSeq(gittest.Run(w, w.repository, "ls-tree", "-r", "--name-only", "main")) {
		if _, name, ok := strings.Cut(file, "ConfigMap.v1_"); ok {
			names = append(names, strings.TrimSuffix(name, ".yaml"))
		}
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func (w *backupWorld) await(want string) {
	w.Helper()
	eventually.True(w, "the objects "+want, func() bool {
		return gittest.Run(w, w.repository, "for-each-ref") != "" && w.objects() == want
	})
}

// The store is restored from a backup that lacks what was deployed afterwards, into a
// database of the other kind.
func TestRestoredServerRemovesNothingFromSitesUntilReleased(t *testing.T) {
	w := &backupWorld{T: t, repository: filepath.Join(t.TempDir(), "sites.git"), folder: t.TempDir()}
	gittest.Run(t, "", "init", "--quiet", "--bare", "--initial-branch=main", w.repository)
	archive := filepath.Join(w.folder, "tko.backup")
	old := "sqlite:" + filepath.Join(w.folder, "old.db")
	c, stop := w.serve(old)
	repository := krm.Resource{"apiVersion": "git.plugin.nephio.org/v1alpha1", "kind": "Repository", "metadata": map[string]any{"name": "main"}, "spec": map[string]any{"url": w.repository}}
	if _, err := c.RegisterSite(t.Context(), tko.Site{ID: "lagos", Package: krm.Package{repository}}); err != nil {
		t.Fatal(err)
	}
	first := w.create(c, "first")
	w.await("first")
	noc := tko.Subscription{Name: "noc", Spec: []byte(`{"about": [{"of": "changes"}], "to": {"webhook": {"url": "https://hooks.example.com/noc", "secret": "env:HOOK_KEY"}}}`)}
	if _, err := c.RegisterSubscriptions(t.Context(), []tko.Subscription{noc}, false); err != nil {
		t.Fatal(err)
	}
	saved := tko.View{Name: "failing", Path: "/deployments", Query: "state=failing", Description: "What fails"}
	if _, err := c.RegisterViews(t.Context(), []tko.View{saved}, false); err != nil {
		t.Fatal(err)
	}
	views, err := c.Views(t.Context())
	if err != nil || len(views) != 1 || views[0].By.Who == "" || views[0].Created.IsZero() {
		t.Fatalf("%v, views: %+v", err, views)
	}

	var backup bytes.Buffer
	if err := c.Admin().Backup(t.Context(), &backup); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(archive, backup.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	w.create(c, "later")
	w.await("first later")
	position := lastPosition(t, c)
	// The command does the same next to a running server.
	other := filepath.Join(w.folder, "other.backup")
	command(t, 0, "backup", "--store="+old, other)
	if out := command(t, 2, "backup", "--store="+old, other); !strings.Contains(out, "exists") {
		t.Errorf("a second backup to the same file: %s", out)
	}
	stop()
	commits := gittest.Run(t, w.repository, "rev-list", "--count", "main")

	restored := pgtest.EmptyDSN(t)
	if err := os.WriteFile(other, backup.Bytes()[:backup.Len()/2], 0o600); err != nil {
		t.Fatal(err)
	}
	if out := command(t, 2, "restore", "--store="+restored, other); !strings.Contains(out, "truncated") {
		t.Errorf("a truncated archive: %s", out)
	}
	command(t, 0, "restore", "--store="+restored, "--access=backup", archive)
	if out := command(t, 1, "restore", "--store="+restored, "--access=backup", archive); !strings.Contains(out, "not empty") {
		t.Errorf("a second restore: %s", out)
	}

	c, _ = w.serve(restored)
	if !strings.Contains(w.log.String(), "until tko hold release") {
		t.Errorf("the log of the restored server does not say that sites wait:\n%s", w.log)
	}
	for _, err := range c.Watch(t.Context(), position) {
		if !errors.Is(err, tko.ErrGone) {
			t.Errorf("a watcher of the lost store: %v, want ErrGone", err)
		}
		break
	}
	second := w.create(c, "second") // users go on
	if err := c.EnqueueSites(t.Context(), []tko.SiteID{"lagos"}); err != nil {
		t.Fatal(err)
	}
	admin := c.Admin()
	held := 0
	for h, err := range admin.Holds(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		held++
		if h.GetMode() != tko.HoldAll {
			t.Errorf("%v after the restore, want it held", h)
		}
	}
	if held != 5 {
		t.Errorf("%d holds, want four queues and the site", held)
	}
	again, err := c.Views(t.Context())
	if diff := cmp.Diff(views, again); err != nil || diff != "" {
		t.Errorf("%v, the views of the restored server: %s", err, diff)
	}
	accepted := func() (reason, text string) {
		t.Helper()
		all, err := c.Subscriptions(t.Context())
		if err != nil || len(all) != 1 {
			t.Fatalf("%v, subscriptions: %+v", err, all)
		}
		a := tko.FindCondition(all[0].Status.Conditions, tko.ConditionAccepted)
		return a.Reason, a.Message
	}
	if reason, text := accepted(); reason != tko.SubscriptionReasonRestored || !strings.Contains(text, "tko hold release --queues") {
		t.Errorf("the subscription of the restored server: %s: %s", reason, text)
	}
	if _, err := admin.ReleaseHolds(t.Context(), &tkopb.ReleaseHolds{}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("a release of nothing: %v, want ErrInvalid", err)
	}
	if now := gittest.Run(t, w.repository, "rev-list", "--count", "main"); now != commits {
		t.Errorf("%s commits after the restore, want the %s before it", now, commits)
	}
	release := func(m *tkopb.ReleaseHolds) {
		t.Helper()
		for _, m.DryRun = range []bool{true, false} {
			if r, err := admin.ReleaseHolds(t.Context(), m); err != nil || !slices.Equal(r.GetSites(), []string{"lagos"}) {
				t.Fatalf("released %v, %v, want lagos", r, err)
			}
		}
	}
	release(&tkopb.ReleaseHolds{Sites: []string{"la*"}})
	w.await("first later second")
	eventually.True(t, "the condition that tells what stays", func() bool {
		site, err := c.Site(t.Context(), "lagos", 0)
		return err == nil && slices.ContainsFunc(site.Stamp.Conditions, func(c tko.Condition) bool { return strings.Contains(c.Message, "tko hold release") })
	})
	release(&tkopb.ReleaseHolds{Sites: []string{"lagos"}, Remove: true})
	w.await("first second")
	if reason, _ := accepted(); reason != tko.SubscriptionReasonRestored {
		t.Errorf("the release of a site releases messages: %s", reason)
	}
	if _, err := admin.ReleaseHolds(t.Context(), &tkopb.ReleaseHolds{Queues: true}); err != nil {
		t.Fatal(err)
	}
	if reason, text := accepted(); reason == tko.SubscriptionReasonRestored {
		t.Errorf("after the release of the queues: %s: %s", reason, text)
	}
	for id, revision := range map[tko.DeploymentID]int64{first: 1, second: 1} {
		if d, err := c.Deployment(t.Context(), id, revision); err != nil || d.Stamp.Revision < revision {
			t.Errorf("revision %d of %s: %v, %v", revision, id, d.Stamp, err)
		}
	}
}

func lastPosition(t *testing.T, c *client.Client) (last int64) {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	for change, err := range c.Watch(ctx, 0) {
		if err != nil {
			t.Fatal(err)
		}
		last = change.Position
		if change.Kind == tko.KindDeployment && change.Op == tko.OpWritten {
			return last
		}
	}
	return last
}

func TestEncryptedPackagesStayEncryptedInBackups(t *testing.T) {
	folder := t.TempDir()
	key, archive := filepath.Join(folder, "key"), filepath.Join(folder, "tko.backup")
	old, restored := "sqlite:"+filepath.Join(folder, "old.db"), "sqlite:"+filepath.Join(folder, "new.db")
	command(t, 0, "keys", "create", key)
	serve := []string{"--roles=data", "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=", "--access=enforce", "--access-anonymous=admin"}
	served, stop := start(t, append(serve, "--store="+old, "--encryption-key="+key)...)
	resource := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"x": "canary"}}
	if _, err := dial(t, served).RegisterTemplate(t.Context(), tko.Template{ID: "x", Package: krm.Package{resource}}); err != nil {
		t.Fatal(err)
	}
	stop()
	command(t, 0, "access", "init", "--store="+old, "--admin=token:root")
	command(t, 0, "backup", "--store="+old, archive)
	command(t, 0, "backup", "--verify", archive)
	if out := command(t, 2, "restore", "--store="+restored, archive); !strings.Contains(out, "--access=none") {
		t.Errorf("rights of a backup: %s", out)
	}
	if out := command(t, 0, "restore", "--store="+restored, "--access=none", archive); !strings.Contains(out, "--encryption-key") {
		t.Errorf("a restore of encrypted packages: %s", out)
	}
	command(t, 0, "access", "init", "--store="+restored, "--admin=token:root") // there is none
	if out := command(t, 2, append(serve, "--store="+restored)...); !strings.Contains(out, "--encryption-key") {
		t.Errorf("without the key: %s", out)
	}
	served, _ = start(t, append(serve, "--store="+restored, "--encryption-key="+key)...)
	if got, err := dial(t, served).Template(t.Context(), "x", 0); err != nil || got.Package[0].Text("data", "x") != "canary" {
		t.Errorf("the template is %v, %v", got, err)
	}
}

// The store, its backups, what is restored from them, and keys are for their user only,
// whatever the umask is. A key that every user may read protects nothing.
func TestFilesOfTheServerAreForItsUserOnly(t *testing.T) {
	before := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(before) })
	folder := t.TempDir()
	at := func(name string) string { return filepath.Join(folder, name) }
	command(t, 0, "keys", "create", at("key"))
	serve := []string{"--roles=data", "--listen-grpc=localhost:0", "--listen-web=", "--listen-log=", "--encryption-key=" + at("key")}
	_, stop := start(t, append(serve, "--store=sqlite:"+at("old.db"))...)
	stop()
	command(t, 0, "backup", "--store=sqlite:"+at("old.db"), at("backup"))
	command(t, 0, "restore", "--store=sqlite:"+at("new.db"), at("backup"))
	entries, err := os.ReadDir(folder)
	if err != nil || len(entries) < 4 {
		t.Fatalf("the files are %v, %v", entries, err)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm()&^0o600 != 0 {
			t.Errorf("%s has the permissions %v, %v", e.Name(), info.Mode(), err)
		}
	}
	for _, file := range []string{"old.db", "key"} {
		if err := os.Chmod(at(file), 0o644); err != nil {
			t.Fatal(err)
		}
		if out := command(t, 2, append(serve, "--store=sqlite:"+at("old.db"))...); !strings.Contains(out, "chmod") || !strings.Contains(out, at(file)) {
			t.Errorf("a readable %s: %s", file, out)
		}
		if err := os.Chmod(at(file), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
