package prepare_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// newSystem starts a real data controller and returns a client of it.
func newSystem(t testing.TB, o ...catalog.Options) *client.Client {
	t.Helper()
	store, err := sqlite.OpenMemory(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	validator, err := validate.New(validate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	options := catalog.Options{}
	if len(o) > 0 {
		options = o[0]
	}
	options.MinBackoff, options.MaxBackoff = 20*time.Millisecond, time.Second
	service := catalog.New(store, validator, options)
	stopping := make(chan struct{})
	server := grpcapi.NewServer(service, grpcapi.Options{Stopping: stopping})
	listener := bufconn.Listen(1 << 20)
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(listener) })
	t.Cleanup(func() {
		close(stopping)
		server.Stop()
		serving.Wait()
	})
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	data, err := client.New(conn, client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// run runs a preparer until the returned function is called.
func run(t testing.TB, data *client.Client, r prepare.Runner, o prepare.Options) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- prepare.New(data, r, o).Run(ctx) }()
	return func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

func register(t testing.TB, data *client.Client, templates, sites map[string]string) {
	t.Helper()
	for id, yaml := range templates {
		p, err := krm.Decode(krm.YAML, []byte(yaml), krm.Limits{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := data.RegisterTemplate(t.Context(), tko.Template{ID: tko.TemplateID(id), Package: p}); err != nil {
			t.Fatal(err)
		}
	}
	for id, region := range sites {
		if _, err := data.RegisterSite(t.Context(), tko.Site{ID: tko.SiteID(id), Metadata: map[string]string{"region": region}}); err != nil {
			t.Fatal(err)
		}
	}
}

const realTopology = `
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: placement}
spec:
  templates:
  - template: leaf
    sites: [new, all]
    merge: [{apiVersion: a.plugin.nephio.org/v1, kind: One, name: later}]
  - template: nested
    sites: [first]
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: leaf}, spec: {templateId: leaf}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: nested}, spec: {templateId: nested}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: new}, spec: {provisionIfNotFound: true}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Site, metadata: {name: first}, spec: {select: {metadata: {region: north}}}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: all}, spec: {select: {metadata: {region: north}}}}
---
{apiVersion: a.plugin.nephio.org/v1, kind: One, metadata: {name: later, annotations: {nephio.org/prepare: Postpone}}}
`

const realNested = `
apiVersion: topology.nephio.org/v1alpha1
kind: Placement
metadata: {name: placement}
spec: {templates: [{template: leaf, sites: [all]}]}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Template, metadata: {name: leaf}, spec: {templateId: leaf}}
---
{apiVersion: topology.nephio.org/v1alpha1, kind: Sites, metadata: {name: all}, spec: {select: {metadata: {region: north}}}}
`

const realLeaf = `{apiVersion: v1, kind: ConfigMap, metadata: {name: leaf}, data: {a: b}}`

// TestSystemPreparesDespiteInterruptions runs preparers that are stopped and
// started at random, also while a plugin runs.
func TestSystemPreparesDespiteInterruptions(t *testing.T) {
	data := newSystem(t)
	sites := map[string]string{}
	for i := range 40 {
		sites[fmt.Sprintf("site/%02d", i)] = "north"
	}
	register(t, data, map[string]string{"leaf": realLeaf, "nested": realNested}, sites)
	plugin := tko.Plugin{Type: tko.PluginPrepare, Name: "one", Executor: tko.ExecutorCommand, Arguments: []string{"one"}, Triggers: []krm.GVK{krm.ParseGVK("a.plugin.nephio.org/v1", "One")}}
	if _, err := data.RegisterPlugin(t.Context(), plugin); err != nil {
		t.Fatal(err)
	}
	id, err := data.CreateDeployment(t.Context(), tko.NewDeployment{Merge: pkg(t, realTopology)})
	if err != nil {
		t.Fatal(err)
	}
	const lease = 3 * time.Second // shorter leases end on slow machines while preparers work
	steady := run(t, data, runner{"one": marks}, prepare.Options{Worker: "steady", Concurrency: 2, Lease: lease})
	defer steady()
	deadline := time.Now().Add(3 * time.Minute)
	for round := 0; !allPrepared(t, data); round++ {
		if time.Now().After(deadline) {
			t.Fatalf("not everything was prepared in time: %v", unprepared(t, data))
		}
		if round < 20 {
			stop := run(t, data, runner{"one": marks}, prepare.Options{Worker: "flaky", Concurrency: 4, Grace: time.Millisecond, Lease: lease})
			time.Sleep(time.Duration(rand.IntN(30)) * time.Millisecond)
			stop()
		}
		time.Sleep(10 * time.Millisecond)
	}
	got := map[string]int{}
	for d, err := range data.Deployments(t.Context(), tko.DeploymentSelect{Parent: id}, tko.ListOptions{Packages: true}) {
		if err != nil {
			t.Fatal(err)
		}
		site := string(d.Site)
		if strings.HasPrefix(site, "provisioned/") {
			site = "provisioned"
		}
		got[fmt.Sprintf("%s at %s", d.Template, site)]++
		one := d.Package.Find(krm.Identity{GVK: plugin.Triggers[0], Name: "later"})
		if d.Template == "leaf" && (one == nil || !one.IsPrepared()) {
			t.Errorf("%s at %s: the postponed resource isn't prepared", d.Template, d.Site)
		}
		if !d.Approved {
			t.Errorf("%s at %s isn't approved", d.Template, d.Site)
		}
	}
	want := map[string]int{"nested at site/00": 1, "leaf at provisioned": 1}
	for site := range sites {
		want["leaf at "+site]++
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := count(t, data, tko.DeploymentSelect{}); n != 1+1+1+40+40 {
		t.Errorf("%d deployments in all", n)
	}
	if n := countSites(t, data, tko.SiteSelect{IDs: []string{"provisioned/*"}}); n != 1 {
		t.Errorf("%d provisioned sites", n)
	}
	checkConditions(t, data, id)
}

// A stamper runs plugins that write their first argument to the resource.
type stamper struct{}

func (stamper) Prepare(_ context.Context, p tko.Plugin, target krm.Identity, _ tko.DeploymentID, in krm.Package, _ ...func(string)) (bool, krm.Package, error) {
	out := in.Clone()
	out.Find(target).Set(p.Arguments[0], "spec", "by")
	out.Find(target).SetPrepared()
	return true, out, nil
}

// TestSystemUsesChangedPluginAtOnce registers new versions of a plugin between
// deployments that two preparers prepare: no earlier version may prepare one.
func TestSystemUsesChangedPluginAtOnce(t *testing.T) {
	data := newSystem(t)
	for range 2 {
		defer run(t, data, stamper{}, prepare.Options{Concurrency: 2})()
	}
	want := map[tko.DeploymentID]string{}
	deploy := func(by string) {
		for range 4 {
			id, err := data.CreateDeployment(t.Context(), tko.NewDeployment{Merge: pkg(t, "{apiVersion: PLUGIN, kind: One, metadata: {name: one}}")})
			if err != nil {
				t.Fatal(err)
			}
			want[id] = by
		}
	}
	for round := range 15 {
		p := tko.Plugin{Type: tko.PluginPrepare, Name: "p", Arguments: []string{strconv.Itoa(round)}, Triggers: []krm.GVK{krm.ParseGVK("a.plugin.nephio.org/v1", "One")}}
		if _, err := data.RegisterPlugin(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		deploy(p.Arguments[0])
		for id := range want {
			waitFor(t, data, id, tko.ConditionTrue) // so that no later version prepares it
		}
		if round%5 == 4 {
			if _, err := data.DeletePlugin(t.Context(), p.Type, p.Name); err != nil {
				t.Fatal(err)
			}
			deploy("")
			for id := range want {
				waitFor(t, data, id, tko.ConditionTrue)
			}
		}
	}
	for id, by := range want {
		d, err := data.Deployment(t.Context(), id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := d.Package[0].Text("spec", "by"); got != by {
			t.Errorf("%s was prepared by %q, and the plugin was %q before it was created", id, got, by)
		}
	}
}

func checkConditions(t *testing.T, data *client.Client, id tko.DeploymentID) {
	t.Helper()
	d, err := data.Deployment(t.Context(), id, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, typ := range []string{tko.ConditionPrepared, tko.ConditionApproved} {
		i := slices.IndexFunc(d.Stamp.Conditions, func(c tko.Condition) bool { return c.Type == typ })
		if i < 0 || d.Stamp.Conditions[i].Status != tko.ConditionTrue || d.Stamp.Conditions[i].ObservedRevision != d.Stamp.Revision {
			t.Errorf("at revision %d: %+v", d.Stamp.Revision, d.Stamp.Conditions)
		}
	}
	if n, _ := d.Package.Find(krm.Identity{GVK: krm.ParseGVK("topology.nephio.org/v1alpha1", "Placement"), Name: "placement"}).Get("status", "deployments"); n != int64(42) {
		t.Errorf("status.deployments is %v", n)
	}
}

func TestSystemReportsWhyNotPrepared(t *testing.T) {
	data := newSystem(t)
	tests := map[string]struct {
		why  string
		yaml string
		says string
		mend func() error
	}{
		"no such site": {
			why:  "the work becomes due when the site is registered",
			yaml: `{apiVersion: TOPOLOGY, kind: Site, metadata: {name: a}, spec: {siteId: typo}}`,
			says: `SiteMissing: topology.nephio.org/v1alpha1 Site "a": the site "typo" does not exist`,
			mend: func() error {
				_, err := data.RegisterSite(t.Context(), tko.Site{ID: "typo"})
				return err
			},
		},
		"incomplete": {
			why:  "prepared means completely valid",
			yaml: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web}, spec: {replicas: 1}}`,
			says: `Invalid: `,
		},
		"TOSCA": {
			why:  "what isn't built says so",
			yaml: `{apiVersion: TOPOLOGY, kind: TOSCA, metadata: {name: a}, spec: {url: "file:///a"}}`,
			says: `NotSupported: `,
		},
	}
	stop := run(t, data, runner{}, prepare.Options{})
	defer stop()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			id, err := data.CreateDeployment(t.Context(), tko.NewDeployment{Merge: pkg(t, test.yaml)})
			if err != nil {
				t.Fatal(err)
			}
			got := waitFor(t, data, id, tko.ConditionFalse)
			if says := got.Reason + ": " + got.Message; !strings.HasPrefix(says, test.says) {
				t.Errorf("%s: %s", test.why, says)
			}
			if test.mend == nil {
				return
			}
			if err := test.mend(); err != nil {
				t.Fatal(err)
			}
			waitFor(t, data, id, tko.ConditionTrue)
		})
	}
}

// waitFor waits until the deployment's Prepared condition has a status.
func waitFor(t *testing.T, data *client.Client, id tko.DeploymentID, status string) tko.Condition {
	t.Helper()
	var found tko.Condition
	eventually.NoError(t, fmt.Sprintf("the condition Prepared of %s is %s", id, status), func() error {
		d, err := data.Deployment(t.Context(), id, 0)
		if err != nil {
			return err
		}
		for _, c := range d.Stamp.Conditions {
			if c.Type == tko.ConditionPrepared && c.Status == status {
				found = c
				return nil
			}
		}
		return fmt.Errorf("conditions: %+v", d.Stamp.Conditions)
	})
	return found
}

func allPrepared(t testing.TB, data *client.Client) bool {
	t.Helper()
	return len(unprepared(t, data)) == 0
}

// unprepared returns the conditions of unprepared deployments.
func unprepared(t testing.TB, data *client.Client) map[tko.DeploymentID][]tko.Condition {
	t.Helper()
	no := false
	all := map[tko.DeploymentID][]tko.Condition{}
	for d, err := range data.Deployments(t.Context(), tko.DeploymentSelect{Prepared: &no}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		all[d.ID] = d.Stamp.Conditions
	}
	return all
}

func count(t testing.TB, data *client.Client, sel tko.DeploymentSelect) int {
	t.Helper()
	n := 0
	for _, err := range data.Deployments(t.Context(), sel, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

func countSites(t testing.TB, data *client.Client, sel tko.SiteSelect) int {
	t.Helper()
	n := 0
	for _, err := range data.Sites(t.Context(), sel, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	return n
}

// BenchmarkPlacement places a template at many sites and prepares the children.
func BenchmarkPlacement(b *testing.B) {
	const n = 10_000
	for b.Loop() {
		b.StopTimer()
		data := newSystem(b)
		sites := map[string]string{}
		for i := range n {
			sites[fmt.Sprintf("site/%05d", i)] = "north"
		}
		register(b, data, map[string]string{"leaf": realLeaf, "nested": realNested}, sites)
		b.StartTimer()
		started := time.Now()
		stop := run(b, data, runner{}, prepare.Options{})
		id, err := data.CreateDeployment(b.Context(), tko.NewDeployment{Template: "nested"})
		if err != nil {
			b.Fatal(err)
		}
		for {
			d, err := data.Deployment(b.Context(), id, 0)
			if err != nil {
				b.Fatal(err)
			}
			if d.Prepared {
				break
			}
			time.Sleep(10 * time.Millisecond)
		}
		placed := time.Since(started)
		one := 1
		no := false
		for left := true; left; {
			left = false
			for _, err := range data.Deployments(b.Context(), tko.DeploymentSelect{Prepared: &no}, tko.ListOptions{Window: tko.Window{Max: &one}}) {
				if err != nil {
					b.Fatal(err)
				}
				left = true
			}
			time.Sleep(10 * time.Millisecond)
		}
		b.ReportMetric(placed.Seconds(), "s/placed")
		b.ReportMetric(n/time.Since(started).Seconds(), "prepared/s")
		stop()
	}
}

// BenchmarkLatency measures the time from the creation of a plain deployment until it
// is prepared.
func BenchmarkLatency(b *testing.B) {
	data := newSystem(b)
	register(b, data, map[string]string{"leaf": realLeaf}, nil)
	stop := run(b, data, runner{}, prepare.Options{})
	defer stop()
	for b.Loop() {
		id, err := data.CreateDeployment(b.Context(), tko.NewDeployment{Template: "leaf"})
		if err != nil {
			b.Fatal(err)
		}
		for {
			d, err := data.Deployment(b.Context(), id, 0)
			if err != nil {
				b.Fatal(err)
			}
			if d.Prepared {
				break
			}
			time.Sleep(200 * time.Microsecond)
		}
	}
}
