package e2e

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
	"github.com/tko-orchestrator/tko/test/process"
)

// hubs is the number of hubs of the placements: at each hub, a topology is placed
// that places children at the hub's sites.
const hubs = 4

// killPlan returns the numbers of rounds for each store and of sites. TKO_SOAK_ROUNDS
// requests more rounds with larger placements.
func killPlan(t *testing.T) (rounds, sites int) {
	t.Helper()
	text, ok := os.LookupEnv("TKO_SOAK_ROUNDS")
	if !ok {
		return 5, 60 // a round for each role or plugin that is killed
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n, 200
}

// Each role and the plugins are killed with kill -9 at random moments of a placement
// on 4 hubs, whose topologies place on many sites, again and again. The outcome
// equals that of an undisturbed placement: the same children, each exactly once,
// prepared by the same plugins, all scheduled at their sites. No process of a plugin
// is left.
func TestPlacementSurvivesKills(t *testing.T) {
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rounds, sites := killPlan(t)
			w := newWorld(t, store(t), sites)
			began := time.Now()
			topology := w.place(patient(t))
			took := time.Since(began)
			want := w.outcome(topology)
			if len(want) != sites+hubs {
				t.Fatalf("the undisturbed placement has %d children, want %d", len(want), sites+hubs)
			}
			w.remove()

			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d, undisturbed it takes %s", seed, took)
			random := rand.New(rand.NewPCG(seed, 0))
			victims := append(slices.Clone(w.roles), "plugin", "plugin's supervisor")
			killed := map[string]int{}
			for round := range rounds {
				victim := victims[round%len(victims)]
				// Plugins run only during a part of the placement: if none ran at the
				// chosen moment, the round is repeated.
				for moment := range 10 {
					delay := time.Duration(random.Int64N(int64(took) >> (moment / 2)))
					before := killed[victim]
					got := w.outcome(w.place(patient(t), func() {
						time.Sleep(delay) // the random moment
						killed[victim] += w.kill(victim)
					}))
					if diff := cmp.Diff(want, got); diff != "" {
						t.Fatalf("round %d, %s killed after %s: the outcome differs (-undisturbed +killed):\n%s", round, victim, delay, diff)
					}
					w.remove()
					if killed[victim] > before {
						break
					}
				}
			}
			t.Logf("killed: %v", killed)
			for i, victim := range victims {
				if n := (rounds + len(victims) - 1 - i) / len(victims); killed[victim] < n {
					t.Errorf("%s was killed %d times, want %d", victim, killed[victim], n)
				}
			}
			for _, server := range w.servers {
				server.Kill()
			}
			eventually.NoError(t, "the end of the plugins' processes", func() error {
				if left := w.pluginProcesses(); len(left) > 0 {
					return fmt.Errorf("processes are left: %v", left)
				}
				return nil
			})
		})
	}
}

// A world is a fleet of sites and a process for each role.
type world struct {
	t          *testing.T
	roles      []string
	flags      map[string][]string
	servers    map[string]*process.Server
	client     *client.Client
	sites      int // without the sites of the hubs
	repository string
	plugins    string // folder of the plugins' programs
}

func newWorld(t *testing.T, store string, sites int) *world {
	address := freeAddress(t)
	w := &world{
		t: t, sites: sites, roles: []string{"data", "preparer", "meta-scheduler"}, servers: map[string]*process.Server{},
		repository: filepath.Join(t.TempDir(), "sites.git"), plugins: t.TempDir(),
	}
	common := []string{"--confirm-above=1000000", "--confirm-above-percent=100", "--reach-created=0", "--reach-sites=0", "--reach-off-reason=a test", "--work-lease=2s", "--retry=100ms", "--retry-max=1s"}
	w.flags = map[string][]string{
		"data":           append([]string{"--roles=data", "--store=" + store, "--listen-grpc=" + address}, common...),
		"preparer":       append([]string{"--roles=preparer", "--data=" + address}, common...),
		"meta-scheduler": append([]string{"--roles=meta-scheduler", "--data=" + address, "--git-cache=" + t.TempDir(), "--git-local=" + filepath.Dir(w.repository)}, common...),
	}
	for _, role := range w.roles {
		w.start(role)
	}
	w.client = dial(t, address)
	w.register(patient(t))
	return w
}

func (w *world) start(role string) { w.servers[role] = process.StartServer(w.t, w.flags[role]...) }

// kill kills a role, which is started again, or a plugin's process, if one runs. It
// returns the number of killed processes.
func (w *world) kill(victim string) int {
	if slices.Contains(w.roles, victim) {
		w.servers[victim].Kill()
		w.start(victim)
		return 1
	}
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		for pid, supervisor := range w.pluginProcesses() {
			if supervisor == (victim != "plugin") && syscall.Kill(pid, syscall.SIGKILL) == nil {
				return 1
			}
		}
	}
	return 0
}

// pluginProcesses returns the processes of plugins, and whether each one is a
// supervisor.
func (w *world) pluginProcesses() map[int]bool {
	found := map[int]bool{}
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		w.t.Fatal(err)
	}
	for _, file := range files {
		text, _ := os.ReadFile(file) // the process may have ended
		if pid, err := strconv.Atoi(strings.Split(file, "/")[2]); err == nil && strings.Contains(string(text), w.plugins) {
			found[pid] = strings.HasPrefix(string(text), "tko-plugin-supervisor")
		}
	}
	return found
}

const (
	workloadPackage = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: plain}
---
apiVersion: kill.example/v1
kind: Kept
metadata: {name: kept}
`
	// Some resources are prepared by a plugin whose process serves one request.
	onceResource = `
---
apiVersion: workload.plugin.nephio.org/v1alpha1
kind: Namespace
metadata: {name: namespace}
spec: {namespace: placed}
`
	hubPackage = `
apiVersion: topology.nephio.org/v1alpha1
kind: Template
metadata: {name: workload}
spec: {templateId: "workload-%[1]d:v1"}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Sites
metadata: {name: all}
spec: {select: {metadata: {hub: "%[1]d"}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: merged}
---
apiVersion: kill.example/v1
kind: Kept
metadata: {name: kept}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: placement}
spec: {templates: [{template: workload, sites: [all], merge: [{apiVersion: v1, kind: ConfigMap, name: settings}]}]}
`
	hubResource = `
---
apiVersion: topology.nephio.org/v1alpha1
kind: Template
metadata: {name: hub-%[1]d}
spec: {templateId: "hub-%[1]d:v1"}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Site
metadata: {name: hub-%[1]d}
spec: {siteId: "hub/%[1]d"}
`
	// This plugin's process serves many requests.
	keptPlugin = `
import json, sys
while header := sys.stdin.buffer.readline():
    _, number, length = header.split()
    package = json.loads(sys.stdin.buffer.read(int(length)))["deploymentPackage"]
    for r in package:
        if r["kind"] == "Kept":
            r["metadata"]["annotations"] = {"nephio.org/prepared": "true"}
    package.append({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "made"}, "data": {"of": str(len(package))}})
    answer = json.dumps({"prepared": True, "package": package}).encode()
    sys.stdout.buffer.write(b"tko-response %s %d\n" % (number, len(answer)) + answer)
    sys.stdout.buffer.flush()
`
)

func parse(t *testing.T, text string) krm.Package {
	t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(text), krm.Limits{})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func (w *world) register(ctx context.Context) {
	w.t.Helper()
	templates := map[tko.TemplateID]string{"workload:v1": workloadPackage}
	var topology, placed []string
	for hub := range hubs {
		workload := workloadPackage
		if hub == 0 {
			workload += onceResource
		}
		templates[tko.TemplateID(fmt.Sprintf("workload-%d:v1", hub))] = workload
		templates[tko.TemplateID(fmt.Sprintf("hub-%d:v1", hub))] = fmt.Sprintf(hubPackage, hub)
		topology = append(topology, fmt.Sprintf(hubResource, hub))
		placed = append(placed, fmt.Sprintf("{template: hub-%[1]d, sites: [hub-%[1]d]}", hub))
	}
	templates["topology:v1"] = strings.Join(topology, "") + "---\n{apiVersion: topology.nephio.org/v1alpha1, kind: Placement, metadata: {name: placement}, spec: {templates: [" + strings.Join(placed, ", ") + "]}}\n"
	for id, text := range templates {
		if _, err := w.client.RegisterTemplate(ctx, tko.Template{ID: id, Package: parse(w.t, text)}); err != nil {
			w.t.Fatal(err)
		}
	}
	repository := parse(w.t, fmt.Sprintf("{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: repository}, spec: {url: %q}}", w.repository))
	var sites []tko.Site
	for hub := range hubs {
		sites = append(sites, tko.Site{ID: tko.SiteID(fmt.Sprintf("hub/%d", hub)), Package: repository})
	}
	for i := range w.sites {
		sites = append(sites, tko.Site{
			ID: tko.SiteID(fmt.Sprintf("fleet/site-%03d", i)), Package: repository, Metadata: map[string]string{"hub": strconv.Itoa(i % hubs)},
		})
	}
	for _, site := range sites {
		if _, err := w.client.RegisterSite(ctx, site); err != nil {
			w.t.Fatal(err)
		}
	}
	kept, once := filepath.Join(w.plugins, "kept.py"), filepath.Join(w.plugins, "namespace")
	if err := os.WriteFile(kept, []byte(keptPlugin), 0o600); err != nil {
		w.t.Fatal(err)
	}
	if out, err := exec.Command("go", "build", "-o", once, "github.com/tko-orchestrator/tko/examples/plugins/namespace").CombinedOutput(); err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	for _, p := range []tko.Plugin{
		{Name: "kept", Arguments: []string{kept}, Properties: map[string]string{tko.PropertyPersistent: "true"}, Triggers: []krm.GVK{{Group: "kill.example", Version: "v1", Kind: "Kept"}}},
		{Name: "once", Arguments: []string{once}, Triggers: []krm.GVK{{Group: "workload.plugin.nephio.org", Version: "v1alpha1", Kind: "Namespace"}}},
	} {
		p.Type = tko.PluginPrepare
		if _, err := w.client.RegisterPlugin(ctx, p); err != nil {
			w.t.Fatal(err)
		}
	}
}

// place creates a topology, calls disturb, and waits until all of its children are
// scheduled.
func (w *world) place(ctx context.Context, disturb ...func()) (topology tko.DeploymentID) {
	w.t.Helper()
	topology, err := w.client.CreateDeployment(ctx, tko.NewDeployment{Template: "topology:v1"})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, f := range disturb {
		f()
	}
	for {
		total, scheduled, problem := 0, 0, ""
		for d, err := range w.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{}) {
			if err != nil {
				w.t.Fatalf("%v; %d of %d scheduled; %s", err, scheduled, total, problem)
			}
			total++
			for _, c := range d.Stamp.Conditions {
				if c.Type == tko.ConditionScheduled && c.Status == tko.ConditionTrue {
					scheduled++
				}
				if c.Status == tko.ConditionFalse {
					problem = fmt.Sprint(d.ID, c)
				}
			}
		}
		if total == 1+hubs+w.sites && scheduled == hubs+w.sites {
			return topology
		}
		if total > 1+hubs+w.sites {
			w.t.Fatalf("%d deployments: some were created twice", total)
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("not done: %d deployments, %d scheduled; %s", total, scheduled, problem)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// outcome returns the result of a topology without its IDs: the text of the packages
// of all children, by site, and the same from the sites' repository.
func (w *world) outcome(topology tko.DeploymentID) map[string]string {
	w.t.Helper()
	ctx := patient(w.t)
	got := map[string]string{}
	ids, parents := map[string]string{}, map[tko.DeploymentID]tko.DeploymentID{}
	sites := map[tko.DeploymentID]tko.SiteID{topology: "the top"}
	for d, err := range w.client.Deployments(ctx, tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			w.t.Fatal(err)
		}
		if d.ID == topology {
			continue
		}
		text, err := krm.Encode(krm.YAML, d.Package)
		if err != nil {
			w.t.Fatal(err)
		}
		if _, twice := got[string(d.Site)]; twice {
			w.t.Errorf("site %s has two children", d.Site)
		}
		got[string(d.Site)] = fmt.Sprintf("template %s, prepared %t, approved %t\n%s", d.Template, d.Prepared, d.Approved, text)
		ids[string(d.ID)], parents[d.ID], sites[d.ID] = string(d.Site), d.Parent, d.Site
	}
	for id, parent := range parents {
		got[string(sites[id])] += fmt.Sprintf("below %s\n", sites[parent])
	}
	for _, file := range w.files() {
		for id, site := range ids {
			if strings.HasPrefix(file, site+"/"+id+"/") {
				got[site] += "\n" + strings.TrimPrefix(file, site+"/"+id)
				delete(ids, id)
			}
		}
	}
	if len(ids) > 0 {
		w.t.Errorf("not in the repository: %v", slices.Sorted(maps.Keys(ids)))
	}
	return got
}

func (w *world) files() []string {
	w.t.Helper()
	out, err := exec.Command("git", "--git-dir", w.repository, "ls-tree", "-r", "--name-only", "main").CombinedOutput()
	if err != nil {
		w.t.Fatalf("%v\n%s", err, out)
	}
	return strings.Fields(string(out))
}

// remove deletes all deployments, and waits until the sites' repository is empty.
func (w *world) remove() {
	w.t.Helper()
	ctx := patient(w.t)
	if _, err := w.client.PurgeDeployments(ctx, tko.DeploymentSelect{}, false); err != nil {
		w.t.Fatal(err)
	}
	for {
		files := w.files()
		if !slices.ContainsFunc(files, func(f string) bool { return strings.HasPrefix(f, "fleet/") && strings.HasSuffix(f, "settings.yaml") }) {
			return
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("the repository still has %d files, such as %s", len(files), files[0])
		case <-time.After(20 * time.Millisecond):
		}
	}
}
