package spanner_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/store/spanner/spannertest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
	"github.com/tko-orchestrator/tko/test/soak"
)

const sites = 8

const (
	workPackage = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {version: %s}
`
	topologyPackage = `
apiVersion: topology.nephio.org/v1alpha1
kind: Template
metadata: {name: work}
spec: {templateId: "work:v1"}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Sites
metadata: {name: all}
spec: {select: {metadata: {fleet: "yes"}}}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: placement}
spec: {templates: [{template: work, sites: [all]}]}
`
	upgradePackage = `
apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: upgrade}
spec:
  edits: [{upgrade: {to: "work:v2"}, select: {templateIdPatterns: ["work:v1"]}}]
  waves: [{name: canary, count: 2}, {name: rest}]
  limits: {concurrent: 3}
  health: {within: 1h, none: Accept}
`
)

// A fleet is sites whose target is a git repository, and two servers with all roles on one database.
type fleet struct {
	t          *testing.T
	repository string
	flags      [2][]string
	servers    [2]*process.Server
	clients    [2]*client.Client
	seen       *watcher
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	f := &fleet{t: t, repository: filepath.Join(t.TempDir(), "sites.git")}
	store := "--store=spanner:" + spannertest.Database(t)
	for i := range f.servers { // together: one of them creates the schema
		address := freeAddress(t)
		f.flags[i] = []string{
			store, "--listen-grpc=" + address, "--target-git-cache=" + t.TempDir(), "--target-git-local=" + filepath.Dir(f.repository), "--work-lease=2s", "--retry=100ms", "--retry-max=1s",
			"--confirm-above=1000000", "--confirm-above-percent=100", "--reach-created=0", "--reach-sites=0", "--reach-off-reason=a test",
		}
		f.clients[i] = dial(t, address)
	}
	var starting sync.WaitGroup
	for i := range f.servers {
		starting.Go(func() { f.servers[i] = process.StartServer(t, f.flags[i]...) })
	}
	starting.Wait()
	if f.servers[0] == nil || f.servers[1] == nil {
		t.FailNow()
	}
	f.seen = f.watch(f.clients[1])
	return f
}

// kill ends a server with kill -9 at a random moment, and starts it again.
func (f *fleet) kill(i int) {
	f.t.Helper()
	time.Sleep(time.Duration(rand.Int64N(int64(300 * time.Millisecond)))) // the random moment
	f.servers[i].Kill()
	f.servers[i] = process.StartServer(f.t, f.flags[i]...)
}

// tko runs the command with a server, and returns its output.
func (f *fleet) tko(i int, args ...string) string {
	f.t.Helper()
	stdout, stderr, code := f.servers[i].CLI(args...)
	if code != 0 {
		f.t.Fatalf("tko %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// write writes a file, and returns its path.
func (f *fleet) write(name, text string) string {
	f.t.Helper()
	path := filepath.Join(f.t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		f.t.Fatal(err)
	}
	return path
}

func siteName(i int) string { return fmt.Sprintf("fleet/site-%d", i) }

// register registers everything with the first server, by the command.
func (f *fleet) register() {
	f.t.Helper()
	for _, v := range []string{"v1", "v2"} {
		f.tko(0, "template", "register", "work:"+v, "--url="+f.write("work.yaml", fmt.Sprintf(workPackage, v)))
	}
	f.tko(0, "template", "register", "topology:v1", "--url="+f.write("topology.yaml", topologyPackage))
	target := f.write("site.yaml", fmt.Sprintf("{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: repository}, spec: {url: %q}}", f.repository))
	for i := range sites {
		f.tko(0, "site", "register", siteName(i), "--metadata=fleet=yes", "--url="+target)
	}
	// What one server has acknowledged, the other one has.
	for i := range f.servers {
		if listed := f.tko(i, "site", "list", "--metadata=fleet=yes"); strings.Count(listed, "siteId: fleet/site-") != sites {
			f.t.Fatalf("server %d lists\n%s", i, listed)
		}
	}
}

// children returns the deployments with a site by their sites, without their IDs: template, state and package. It fails the test if a
// site has two.
func (f *fleet) children(i int) (map[string]string, []tko.DeploymentID, error) {
	found := map[string]string{}
	var ids []tko.DeploymentID
	for d, err := range f.clients[i].Deployments(patient(f.t), tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			return nil, nil, err
		}
		if d.Site == "" {
			continue
		}
		if _, twice := found[string(d.Site)]; twice {
			f.t.Fatalf("site %s has two children", d.Site)
		}
		at := slices.IndexFunc(d.Stamp.Conditions, func(c tko.Condition) bool {
			return c.Type == tko.ConditionScheduled && c.Status == tko.ConditionTrue && c.ObservedRevision == d.Stamp.Revision
		})
		if !d.Prepared || !d.Approved || at < 0 {
			return nil, nil, fmt.Errorf("deployment %s at %s isn't scheduled at revision %d: %+v", d.ID, d.Site, d.Stamp.Revision, d.Stamp.Conditions)
		}
		text, err := krm.Encode(krm.YAML, d.Package)
		if err != nil {
			return nil, nil, err
		}
		found[string(d.Site)] = fmt.Sprintf("%s\n%s", d.Template, text)
		ids = append(ids, d.ID)
	}
	return found, ids, nil
}

// settled waits until each site has one child, which is scheduled, and the repository has that. It returns the children.
func (f *fleet) settled(version string) (found map[string]string) {
	f.t.Helper()
	eventually.NoError(f.t, "the schedules of all children", func() (err error) {
		if found, _, err = f.children(0); err == nil && len(found) != sites {
			err = fmt.Errorf("%d sites have a child, want %d", len(found), sites)
		}
		return err
	})
	other, _, err := f.children(1)
	if err != nil {
		f.t.Fatal(err)
	}
	if d := cmp.Diff(found, other); d != "" {
		f.t.Fatalf("the servers differ:\n%s", d)
	}
	if got := f.git("grep", "-h", "-e", "version: "+version, "main"); strings.Count(got, "\n") != sites {
		f.t.Fatalf("the repository has\n%s\nwant version %s at %d sites", got, version, sites)
	}
	if files := f.git("ls-tree", "-r", "--name-only", "main"); strings.Count(files, "settings") != sites {
		f.t.Fatalf("the repository has the files\n%s", files)
	}
	return found
}

func (f *fleet) git(args ...string) string {
	f.t.Helper()
	out, err := exec.Command("git", append([]string{"--git-dir", f.repository}, args...)...).CombinedOutput()
	if err != nil {
		f.t.Fatalf("git %v: %v\n%s", args, err, out)
	}
	return string(out)
}

// A watcher follows the change log, also when its server is killed.
type watcher struct {
	mutex   sync.Mutex
	changes []tko.Change
}

func (f *fleet) watch(c *client.Client) *watcher {
	w := new(watcher)
	var ended sync.WaitGroup
	ctx := f.t.Context() // ends before the cleanups
	ended.Go(func() {
		for last := int64(0); ctx.Err() == nil; {
			for change, err := range c.Watch(ctx, last) {
				if err != nil {
					break // the server was killed
				}
				last = change.Position
				w.mutex.Lock()
				w.changes = append(w.changes, change)
				w.mutex.Unlock()
			}
		}
	})
	f.t.Cleanup(ended.Wait)
	return w
}

// check compares what the watcher saw with the history: the same revisions, each once, in ascending positions.
func (w *watcher) check(f *fleet) {
	f.t.Helper()
	type revision struct {
		key string
		n   int64
	}
	eventually.NoError(f.t, "the watcher has seen everything", func() error {
		w.mutex.Lock()
		defer w.mutex.Unlock()
		seen, last := map[revision]int{}, int64(0)
		for _, c := range w.changes {
			if c.Position <= last {
				f.t.Fatalf("position %d follows %d", c.Position, last)
			}
			last = c.Position
			if c.Op == tko.OpWritten {
				seen[revision{string(c.Kind) + " " + c.ID, c.Revision}]++
			}
		}
		for r, n := range seen {
			if n != 1 {
				f.t.Fatalf("the watcher saw revision %d of %s %d times", r.n, r.key, n)
			}
		}
		written := 0
		for _, kind := range []tko.Kind{tko.KindSite, tko.KindTemplate, tko.KindDeployment} {
			for e, err := range f.clients[0].HistoryOf(patient(f.t), tko.HistoryRequest{Select: tko.PastSelect{Kind: kind}}) {
				if err != nil {
					return err
				}
				if e.Op != tko.OpWritten {
					continue
				}
				written++
				if seen[revision{string(kind) + " " + e.ID, e.Revision}] == 0 {
					return fmt.Errorf("the watcher hasn't seen revision %d of %s %s", e.Revision, kind, e.ID)
				}
			}
		}
		if written < 3+sites {
			return fmt.Errorf("the history has %d revisions", written)
		}
		return nil
	})
}

// command repeats a command of a rollout until a server has done it: a kill may leave its result unknown.
func (f *fleet) command(i int, c tko.RolloutCommand) {
	f.t.Helper()
	eventually.NoError(f.t, "the command "+c.Verb, func() error {
		_, err := f.clients[i].RolloutDo(patient(f.t), c)
		if err != nil && !errors.Is(err, tko.ErrUnavailable) && !errors.Is(err, tko.ErrBusy) {
			f.t.Fatal(err)
		}
		return err
	})
}

// reach waits until a rollout is in a state.
func (f *fleet) reach(i int, id tko.RolloutID, state string) tko.RolloutStatus {
	f.t.Helper()
	var s tko.RolloutStatus
	eventually.NoError(f.t, fmt.Sprintf("rollout %s %s", id, state), func() (err error) {
		if s, err = f.clients[i].RolloutStatus(patient(f.t), id); err == nil && s.State != state {
			err = fmt.Errorf("it is %+v", s)
		}
		return err
	})
	return s
}

// A fleet is registered by the command, listed and watched on another server, placed, scheduled into git, upgraded by a rollout that
// is undone, and removed. One of two servers is killed in each step. The result is that of an undisturbed one.
func TestFleetOnSpannerSurvivesKills(t *testing.T) {
	f := newFleet(t)
	f.register()
	var want map[string]string
	for round := range soak.Rounds(t, 3, 20) { // the first one is undisturbed
		if _, err := f.clients[round%2].CreateDeployment(patient(t), tko.NewDeployment{Template: "topology:v1"}); err != nil {
			t.Fatal(err)
		}
		if round > 0 {
			f.kill(round % 2)
		}
		got := f.settled("v1")
		if want == nil {
			want = got
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Fatalf("round %d: the outcome differs (-undisturbed +killed):\n%s", round, d)
		}

		id := tko.RolloutID(fmt.Sprintf("upgrade-%d", round))
		if _, err := f.clients[0].RegisterRollout(patient(t), tko.Rollout{ID: id, Package: parse(t, upgradePackage)}); err != nil {
			t.Fatal(err)
		}
		plan := f.reach(0, id, "Planned").Plan
		f.command(0, tko.RolloutCommand{ID: id, Verb: "start", Plan: plan})
		if round > 0 {
			f.kill(1 - round%2)
		}
		f.reach(0, id, "Done")
		f.settled("v2")
		f.command(1, tko.RolloutCommand{ID: id, Verb: "undo"})
		if round > 0 {
			f.kill(round % 2)
		}
		f.reach(1, id, "Undone")
		undone := f.settled("v1")
		if d := cmp.Diff(want, undone); d != "" {
			t.Fatalf("round %d: the undone outcome differs (-before +undone):\n%s", round, d)
		}

		if _, err := f.clients[1].PurgeDeployments(patient(t), tko.DeploymentSelect{}, false); err != nil {
			t.Fatal(err)
		}
		eventually.NoError(t, "empty sites", func() error {
			if files := f.git("ls-tree", "-r", "--name-only", "main"); strings.Contains(files, "settings") {
				return fmt.Errorf("files are left:\n%s", files)
			}
			found, _, err := f.children(0)
			if err == nil && len(found) > 0 {
				err = fmt.Errorf("%d children are left", len(found))
			}
			return err
		})
	}
	f.seen.check(f)
}
