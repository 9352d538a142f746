package e2e

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	diff "github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/store/postgres/pgtest"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// The data controller, the preparer, the meta-scheduler, the rollout controller and the
// database are killed with kill -9 at random moments of a rollout and of its undo, while
// it is planned included. With SQLite, the data controller is the process that has the
// database open. The outcome equals that of an undisturbed rollout, in the store and at
// the sites: each row is applied once, to the planned revision; rows whose deployments
// users edited after the plan are not applied; the undo returns the other deployments to
// what they were.
//
// Seeds choose the order of the kills, the progress of the rollout at which each of them
// happens, and the deployments that are edited. TKO_SOAK_ROUNDS requests more seeds and
// a larger fleet.
func TestRolloutSurvivesKills(t *testing.T) {
	for name := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seeds, n := 1, 20
			if rounds, sites := killPlan(t); rounds > 5 {
				seeds, n = rounds/2, sites/5
			}
			f := newFleet(t, name, n)
			want := f.rollOut("undisturbed", rand.New(rand.NewPCG(0, 0)), nil)
			for seed := range seeds {
				random := rand.New(rand.NewPCG(uint64(seed), 1))
				got := f.rollOut(tko.RolloutID(fmt.Sprintf("seed-%d", seed)), random, func(phase string, do func(k *killer)) {
					k := &killer{f: f, random: random, phase: phase}
					do(k)
				})
				if d := diff.Diff(want, got); d != "" {
					t.Fatalf("seed %d: the outcome differs (-undisturbed +killed):\n%s", seed, d)
				}
			}
			t.Logf("killed: %v", f.killed)
			for _, victim := range f.victims {
				if f.killed[victim+" in a rollout"] == 0 || f.killed[victim+" in an undo"] == 0 {
					t.Errorf("%s was not killed in a rollout and in an undo: %v", victim, f.killed)
				}
			}
		})
	}
}

const (
	killRollout = `
apiVersion: tko.nephio.org/v1alpha1
kind: Rollout
metadata: {name: r}
spec:
  edits:
  - {upgrade: {to: "smf:v2"}, select: {templateIdPatterns: ["smf:v1"]}}
  - {merge: [{apiVersion: v1, kind: ConfigMap, name: logging}], select: {metadataPatterns: {edit: merge}}}
  - {delete: {}, select: {metadataPatterns: {edit: delete}}}
  waves: [{name: canary, count: 2}, {name: rest}]
  limits: {concurrent: 2}
  health: {within: 1h, none: Accept}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: logging}
data: {level: debug}
`
	// This plugin makes a resource of another one, so that each upgrade is prepared again.
	copyPlugin = `
import json, sys
while header := sys.stdin.buffer.readline():
    _, number, length = header.split()
    package = [r for r in json.loads(sys.stdin.buffer.read(int(length)))["deploymentPackage"] if r["metadata"].get("name") != "made"]
    for r in package:
        if r["kind"] == "Kept":
            r["metadata"]["annotations"] = {"nephio.org/prepared": "true"}
        if r["metadata"].get("name") == "c":
            version = r["data"]["version"]
    package.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}, "data": {"of": version}})
    response = json.dumps({"prepared": True, "package": package}).encode()
    sys.stdout.buffer.write(b"tko-response %s %d\n" % (number, len(response)) + response)
    sys.stdout.buffer.flush()
`
)

// A fleet is deployments at sites whose target is a git repository, a process for each
// role, and a database.
type fleet struct {
	t          *testing.T
	client     *client.Client
	repository string
	victims    []string
	servers    map[string]*process.Server
	flags      map[string][]string
	database   *pgtest.Cluster // nil with SQLite
	killed     map[string]int
	edited     map[tko.DeploymentID]bool // by users between plan and start
	ids        []tko.DeploymentID
}

func newFleet(t *testing.T, store string, n int) *fleet {
	t.Helper()
	address := freeAddress(t)
	f := &fleet{
		t: t, repository: filepath.Join(t.TempDir(), "sites.git"), victims: []string{"data", "preparer", "meta-scheduler", "rollout"},
		servers: map[string]*process.Server{}, killed: map[string]int{}, edited: map[tko.DeploymentID]bool{},
	}
	if store == "PostgreSQL" {
		f.database = pgtest.NewCluster(t)
		store, f.victims = f.database.DSN(), append(f.victims, "database")
	} else {
		store = stores[store](t)
	}
	common := []string{"--confirm-above=1000000", "--confirm-above-percent=100", "--reach-created=0", "--reach-sites=0", "--reach-off-reason=a test", "--work-lease=2s", "--retry=100ms", "--retry-max=1s"}
	f.flags = map[string][]string{
		"data":           append([]string{"--roles=data", "--store=" + store, "--listen-grpc=" + address}, common...),
		"preparer":       append([]string{"--roles=preparer", "--data=" + address}, common...),
		"meta-scheduler": append([]string{"--roles=meta-scheduler", "--data=" + address, "--git-cache=" + t.TempDir(), "--git-local=" + filepath.Dir(f.repository)}, common...),
		"rollout":        append([]string{"--roles=rollout", "--data=" + address}, common...),
	}
	for _, role := range f.victims[:4] {
		f.servers[role] = process.StartServer(t, f.flags[role]...)
	}
	f.client = dial(t, address)
	f.register(n)
	return f
}

func (f *fleet) register(n int) {
	f.t.Helper()
	ctx := patient(f.t)
	check := func(_ int64, err error) {
		f.t.Helper()
		if err != nil {
			f.t.Fatal(err)
		}
	}
	program := filepath.Join(f.t.TempDir(), "copy.py")
	if err := os.WriteFile(program, []byte(copyPlugin), 0o600); err != nil {
		f.t.Fatal(err)
	}
	check(f.client.RegisterPlugin(ctx, tko.Plugin{
		Type: tko.PluginPrepare, Name: "copy", Arguments: []string{program}, Properties: map[string]string{tko.PropertyPersistent: "true"},
		Triggers: []krm.GVK{{Group: "kill.example", Version: "v1", Kind: "Kept"}},
	}))
	for _, v := range []string{"v1", "v2"} {
		check(f.client.RegisterTemplate(ctx, tko.Template{ID: tko.TemplateID("smf:" + v), Package: parse(f.t,
			"{apiVersion: v1, kind: ConfigMap, metadata: {name: c}, data: {version: "+v+", other: x}}\n---\n{apiVersion: kill.example/v1, kind: Kept, metadata: {name: kept}}\n")}))
	}
	repository := parse(f.t, fmt.Sprintf("{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: repository}, spec: {url: %q}}", f.repository))
	for i := range n {
		site := tko.SiteID(fmt.Sprintf("site-%02d", i))
		check(f.client.RegisterSite(ctx, tko.Site{ID: site, Package: repository}))
		edit := []string{"none", "none", "none", "merge", "delete"}[i%5]
		id, err := f.client.CreateDeployment(ctx, tko.NewDeployment{Template: "smf:v1", Site: site, Metadata: map[string]string{"edit": edit}})
		check(0, err)
		f.ids = append(f.ids, id)
	}
	f.settle()
}

// rollOut starts a rollout, undoes it at its end, and checks both. It returns the
// outcome between them, of the deployments that users don't edit. disturb is called
// with the steps of which kills may be a part; nil: nothing is killed.
func (f *fleet) rollOut(id tko.RolloutID, random *rand.Rand, disturb func(phase string, do func(*killer))) (outcome map[string]string) {
	f.t.Helper()
	if disturb == nil {
		disturb = func(_ string, do func(*killer)) { do(nil) }
	}
	before := f.outcome()
	_, err := f.client.RegisterRollout(f.t.Context(), tko.Rollout{ID: id, Package: parse(f.t, killRollout)})
	if err != nil {
		f.t.Fatal(err)
	}
	disturb("plan", func(k *killer) {
		k.kill(random.IntN(len(f.victims)))
		f.reach(id, "Planned", nil)
	})
	edited := []tko.DeploymentID{f.ids[0], f.ids[1+random.IntN(2)]} // of those that are upgraded only
	for i, e := range edited {
		f.edit(e, fmt.Sprintf("%s-%d", id, i))
	}
	f.settle()
	for key, text := range f.outcome() {
		if slices.ContainsFunc(edited, func(e tko.DeploymentID) bool { return strings.Contains(key, string(e)) }) {
			before[key] = text
		}
	}

	disturb("rollout", func(k *killer) {
		s, err := f.client.RolloutStatus(f.t.Context(), id)
		if err != nil {
			f.t.Fatal(err)
		}
		f.do(tko.RolloutCommand{ID: id, Verb: "start", Plan: s.Plan})
		f.reach(id, "Done", k)
	})
	f.settle()
	f.checkRows(id, edited)
	during := f.outcome()

	disturb("undo", func(k *killer) {
		f.do(tko.RolloutCommand{ID: id, Verb: "undo"})
		f.reach(id, "Undone", k)
	})
	f.settle()
	f.checkRows(id+"-undo", edited)
	if d := diff.Diff(before, f.outcome()); d != "" {
		f.t.Fatalf("%s: the undone outcome differs (-before +undone):\n%s", id, d)
	}
	if diff.Equal(before, during) {
		f.t.Fatalf("%s changed nothing", id)
	}
	maps.DeleteFunc(during, func(key, _ string) bool {
		return slices.ContainsFunc(f.ids[:3], func(e tko.DeploymentID) bool { return strings.Contains(key, string(e)) })
	})
	return during
}

// do repeats a command until a server has done it: a kill may leave its result unknown.
func (f *fleet) do(c tko.RolloutCommand) {
	f.t.Helper()
	eventually.NoError(f.t, "the command "+c.Verb, func() error {
		_, err := f.client.RolloutDo(f.t.Context(), c)
		if err != nil && !errors.Is(err, tko.ErrUnavailable) && !errors.Is(err, tko.ErrBusy) {
			f.t.Fatal(err)
		}
		return err
	})
}

// edit changes a package as users do.
func (f *fleet) edit(id tko.DeploymentID, value string) {
	f.t.Helper()
	d, err := f.client.Deployment(f.t.Context(), id, 0)
	if err != nil {
		f.t.Fatal(err)
	}
	own := krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "own"}, "data": map[string]any{"value": value}}
	pkg := slices.DeleteFunc(d.Package, func(r krm.Resource) bool { return r.Identity() == own.Identity() })
	if _, err := f.client.CommitDeployment(f.t.Context(), tko.DeploymentCommit{ID: id, Revision: d.Stamp.Revision, Package: append(pkg, own)}); err != nil {
		f.t.Fatal(err)
	}
}

// reach waits until a rollout is in a state, and kills meanwhile. Rows whose deployments
// were edited pause the rollout; a user leaves them out.
func (f *fleet) reach(id tko.RolloutID, state string, k *killer) {
	f.t.Helper()
	eventually.NoError(f.t, fmt.Sprintf("rollout %s %s", id, state), func() error {
		s, err := f.client.RolloutStatus(f.t.Context(), id)
		if err != nil {
			return err
		}
		shown := s
		if s.UndoneBy != "" {
			if shown, err = f.client.RolloutStatus(f.t.Context(), s.UndoneBy); err != nil {
				return err
			}
		}
		if s.State == state {
			k.rest()
			return nil
		}
		k.progressed(shown)
		if s.State == "Paused" {
			f.do(tko.RolloutCommand{ID: id, Verb: "skip"})
			f.do(tko.RolloutCommand{ID: id, Verb: "resume", Plan: s.Plan})
		}
		return fmt.Errorf("it is %+v; %+v", s, shown)
	})
}

// checkRows checks that each row was applied once, to the planned revision, and that
// the history has one change for each of them, and none for the others.
func (f *fleet) checkRows(id tko.RolloutID, edited []tko.DeploymentID) {
	f.t.Helper()
	ctx, rows := f.t.Context(), 0
	for row, err := range f.client.RolloutRows(ctx, tko.RolloutRows{ID: id}) {
		if err != nil {
			f.t.Fatal(err)
		}
		rows++
		var revisions []int64
		for e, err := range f.client.HistoryOf(ctx, tko.HistoryRequest{Select: tko.PastSelect{Kind: tko.KindDeployment, ID: string(row.Deployment)}}) {
			if err != nil {
				f.t.Fatal(err)
			}
			if why := fmt.Sprintf("rollout %q", id); e.Author.Why == why || strings.HasPrefix(e.Author.Why, why+":") {
				revisions = append(revisions, e.Revision)
			}
		}
		switch {
		case slices.Contains(edited, row.Deployment):
			if row.Progress != "Skipped" || row.Applied != 0 || len(revisions) > 0 {
				f.t.Errorf("%s: %s was edited after the plan; its row is %+v, and the rollout wrote revisions %v", id, row.Deployment, row, revisions)
			}
		case row.Progress != "Healthy" || len(revisions) != 1 || row.Applied != revisions[0]:
			f.t.Errorf("%s: the row of %s is %+v, and the rollout wrote revisions %v", id, row.Deployment, row, revisions)
		case row.Kind == "Change" && row.Applied != row.Revision+1:
			f.t.Errorf("%s: %s was planned at revision %d and applied as revision %d", id, row.Deployment, row.Revision, row.Applied)
		}
	}
	if want := len(f.ids); rows != want && rows != want-len(edited) {
		f.t.Errorf("%s has %d rows, want %d", id, rows, want)
	}
}

// settle waits until all deployments are prepared and scheduled at their sites, and the
// sites have nothing else.
func (f *fleet) settle() {
	f.t.Helper()
	eventually.NoError(f.t, "the schedules of all deployments", func() error {
		want := map[string]bool{}
		for d, err := range f.client.Deployments(f.t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
			if err != nil {
				return err
			}
			at := slices.IndexFunc(d.Stamp.Conditions, func(c tko.Condition) bool {
				return c.Type == tko.ConditionScheduled && c.Status == tko.ConditionTrue && c.ObservedRevision == d.Stamp.Revision
			})
			if !d.Prepared || !d.Approved || at < 0 {
				return fmt.Errorf("deployment %s isn't scheduled at revision %d: %+v", d.ID, d.Stamp.Revision, d.Stamp.Conditions)
			}
			want[string(d.Site)+"/"+string(d.ID)] = true
		}
		for path := range f.files() {
			if parts := strings.Split(path, "/"); !want[parts[0]+"/"+parts[1]] {
				return fmt.Errorf("file %s is left", path)
			}
		}
		return nil
	})
}

// outcome returns the packages of all deployments with their states, and the blobs of
// the sites' repository.
func (f *fleet) outcome() map[string]string {
	f.t.Helper()
	all := f.files()
	for d, err := range f.client.Deployments(f.t.Context(), tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			f.t.Fatal(err)
		}
		text, err := krm.Encode(krm.YAML, d.Package)
		if err != nil {
			f.t.Fatal(err)
		}
		all[string(d.ID)] = fmt.Sprint(d.Template, d.TemplateRevision, d.Site, d.Metadata, d.Prepared, d.Approved, d.Origin, "\n", string(text))
	}
	return all
}

func (f *fleet) files() map[string]string {
	f.t.Helper()
	out, err := exec.Command("git", "--git-dir", f.repository, "ls-tree", "-r", "main").CombinedOutput()
	if err != nil {
		f.t.Fatalf("%v\n%s", err, out)
	}
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		blob, path, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if !strings.HasSuffix(path, "/.tko") {
			files[path] = blob
		}
	}
	return files
}

// A killer kills each victim once, in an order and at a progress that are random.
// Methods of nil do nothing.
type killer struct {
	f      *fleet
	random *rand.Rand
	phase  string

	order   []int
	moments []int // of progress, in rows, one for each victim in order
}

// progressed kills the next victim if it is time.
func (k *killer) progressed(s tko.RolloutStatus) {
	if k == nil {
		return
	}
	if k.moments == nil {
		k.order = k.random.Perm(len(k.f.victims))
		for range k.order {
			k.moments = append(k.moments, k.random.IntN(len(k.f.ids)-5))
		}
		slices.Sort(k.moments)
	}
	changed := 0
	for _, w := range s.Waves {
		changed += w.Rows - w.Progress["Waiting"]
	}
	if len(k.order) > 0 && changed >= k.moments[0] {
		time.Sleep(time.Duration(k.random.Int64N(int64(30 * time.Millisecond)))) // the random moment
		k.kill(k.order[0])
		k.order, k.moments = k.order[1:], k.moments[1:]
	}
}

// rest kills those that are left at the end of a rollout that was fast.
func (k *killer) rest() {
	if k == nil {
		return
	}
	for _, victim := range k.order {
		k.kill(victim)
	}
	k.order = nil
}

func (k *killer) kill(victim int) {
	if k == nil {
		return
	}
	name := k.f.victims[victim]
	if name == "database" {
		k.f.database.Kill()
		k.f.database.Start()
	} else {
		k.f.servers[name].Kill()
		k.f.servers[name] = process.StartServer(k.f.t, k.f.flags[name]...)
	}
	k.f.killed[name+" in "+map[string]string{"plan": "a plan", "rollout": "a rollout", "undo": "an undo"}[k.phase]]++
}
