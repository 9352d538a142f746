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
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/process"
)

// killedSites is how many sites the placements have that are disturbed.
const killedSites = 200

// killRounds are the rounds on each store. TKO_SOAK_ROUNDS says otherwise.
func killRounds(t *testing.T) int {
	t.Helper()
	text, ok := os.LookupEnv("TKO_SOAK_ROUNDS")
	if !ok {
		return 25
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// Each role is killed with kill -9 at random moments of a placement on 200
// sites, again and again. What comes out equals what an undisturbed placement
// comes to: the same children, none twice, none missing, all at their sites.
func TestKill(t *testing.T) {
	for name, store := range stores {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, store(t))
			want := w.outcome(w.place(patient(t)))
			if len(want) != killedSites {
				t.Fatalf("the undisturbed placement has %d children, want %d", len(want), killedSites)
			}
			w.remove()

			seed := uint64(time.Now().UnixNano())
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 0))
			for round := range killRounds(t) {
				victim := w.roles[round%len(w.roles)]
				delay := time.Duration(random.IntN(900)) * time.Millisecond
				got := w.outcome(w.place(patient(t), func() {
					time.Sleep(delay) // the random moment
					w.kill(victim)
				}))
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("round %d, %s killed after %s: the outcome differs (-undisturbed +killed):\n%s", round, victim, delay, diff)
				}
				w.remove()
			}
		})
	}
}

// A world is a fleet of sites with each role in a process of its own.
type world struct {
	t          *testing.T
	roles      []string
	flags      map[string][]string
	servers    map[string]*process.Server
	client     *client.Client
	repository string
}

func newWorld(t *testing.T, store string) *world {
	address := freeAddress(t)
	w := &world{
		t: t, roles: []string{"data", "preparer", "meta-scheduler"}, servers: map[string]*process.Server{},
		repository: filepath.Join(t.TempDir(), "sites.git"),
	}
	common := []string{"--work-lease=2s", "--retry=100ms", "--retry-max=1s"}
	w.flags = map[string][]string{
		"data":           append([]string{"--roles=data", "--store=" + store, "--listen-grpc=" + address}, common...),
		"preparer":       append([]string{"--roles=preparer", "--data=" + address}, common...),
		"meta-scheduler": append([]string{"--roles=meta-scheduler", "--data=" + address, "--git-cache=" + t.TempDir()}, common...),
	}
	for _, role := range w.roles {
		w.start(role)
	}
	w.client = dial(t, address)
	w.register(patient(t))
	return w
}

func (w *world) start(role string) { w.servers[role] = process.StartServer(w.t, w.flags[role]...) }

func (w *world) kill(role string) {
	w.servers[role].Kill()
	w.start(role)
}

const (
	workloadPackage = `
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: plain}
`
	topologyPackage = `
apiVersion: topology.nephio.org/v1alpha1
kind: Template
metadata: {name: workload}
spec: {templateId: "workload:v1"}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Sites
metadata: {name: all}
spec: {select: {metadata: {fleet: "*"}}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {mode: merged}
---
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: placement}
spec: {templates: [{template: workload, sites: [all], merge: [{apiVersion: v1, kind: ConfigMap, name: settings}]}]}
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
	for id, text := range map[tko.TemplateID]string{"workload:v1": workloadPackage, "topology:v1": topologyPackage} {
		if _, err := w.client.RegisterTemplate(ctx, tko.Template{ID: id, Package: parse(w.t, text)}); err != nil {
			w.t.Fatal(err)
		}
	}
	repository := fmt.Sprintf("{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: repository}, spec: {url: %q}}", w.repository)
	for i := range killedSites {
		site := tko.Site{
			ID: tko.SiteID(fmt.Sprintf("fleet/site-%03d", i)), Package: parse(w.t, repository),
			Metadata: map[string]string{"fleet": strconv.Itoa(i % 7)},
		}
		if _, err := w.client.RegisterSite(ctx, site); err != nil {
			w.t.Fatal(err)
		}
	}
}

// place creates a topology, lets the disturbance happen, and waits until all
// of its children are at their sites.
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
		if total == killedSites+1 && scheduled == killedSites {
			return topology
		}
		if total > killedSites+1 {
			w.t.Fatalf("%d deployments: some were created twice", total)
		}
		select {
		case <-ctx.Done():
			w.t.Fatalf("not done: %d deployments, %d scheduled; %s", total, scheduled, problem)
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// outcome is what a topology came to, without its IDs: the text of each
// child's package by site, and the same in the sites' repository.
func (w *world) outcome(topology tko.DeploymentID) map[string]string {
	w.t.Helper()
	ctx := patient(w.t)
	got := map[string]string{}
	ids := map[string]string{}
	for d, err := range w.client.Deployments(ctx, tko.DeploymentSelect{Parent: topology}, tko.ListOptions{Packages: true}) {
		if err != nil {
			w.t.Fatal(err)
		}
		text, err := krm.Encode(krm.YAML, d.Package)
		if err != nil {
			w.t.Fatal(err)
		}
		if _, twice := got[string(d.Site)]; twice {
			w.t.Errorf("site %s has two children", d.Site)
		}
		got[string(d.Site)] = fmt.Sprintf("template %s, prepared %t, approved %t\n%s", d.Template, d.Prepared, d.Approved, text)
		ids[string(d.ID)] = string(d.Site)
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

// remove deletes everything, and waits until the sites' repository followed.
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
