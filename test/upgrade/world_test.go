package upgrade

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/internal/schedule"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// limit bounds the wait for a condition.
const limit = 5 * time.Minute

const sites = 5

// object is the object that each site must have exactly once, as "KIND NAME", from
// its first deployment on.
const object = "Deployment upf"

// A world is a complete TKO with five sites, each with a git repository.
type world struct {
	t     *testing.T
	data  *client.Client // the user's client
	own   *client.Client // the controllers' client
	repos []string

	gate    gate
	prepare func() // stops the preparer

	mu    sync.Mutex
	ready map[string]bool  // sites that had the object
	wrong map[string]error // violations, by site
}

// A gate is a prepare plugin that waits until it is opened.
type gate struct {
	mu     sync.Mutex
	opened bool
}

func (g *gate) open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.opened = true
}

// Prepare implements the plugin.
func (g *gate) Prepare(_ context.Context, _ tko.Plugin, target krm.Identity, _ tko.DeploymentID, pkg krm.Package, _ ...func(string)) (bool, krm.Package, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.opened {
		return false, nil, nil
	}
	out := pkg.Clone()
	out.Find(target).SetPrepared()
	return true, out, nil
}

// noPlugins has no schedule plugins.
type noPlugins struct{}

func (noPlugins) Schedule(context.Context, tko.Plugin, krm.Identity, tko.Site, map[tko.DeploymentID]krm.Package, ...func(string)) error {
	return errors.New("there are no schedule plugins")
}

func siteID(i int) tko.SiteID { return tko.SiteID(fmt.Sprintf("north/edge-%d", i)) }

// newWorld starts one.
func newWorld(t *testing.T) *world {
	t.Helper()
	w := &world{t: t, ready: map[string]bool{}, wrong: map[string]error{}}
	store, err := sqlite.OpenMemory(t.Context())
	w.must(err)
	t.Cleanup(func() { _ = store.Close() })
	validator, err := validate.New(validate.Options{})
	w.must(err)
	service := catalog.New(store, validator, catalog.Options{MinBackoff: 20 * time.Millisecond, MaxBackoff: time.Second})
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
	connect := func() *client.Client {
		conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		w.must(err)
		t.Cleanup(func() { _ = conn.Close() })
		data, err := client.New(conn, client.Options{})
		w.must(err)
		return data
	}
	w.data, w.own = connect(), connect()
	dir := t.TempDir()
	for i := range sites {
		repo := filepath.Join(dir, fmt.Sprintf("edge-%d.git", i))
		w.repos = append(w.repos, repo)
		gittest.Run(t, dir, "init", "--quiet", "--bare", "--initial-branch=main", repo)
		_, err := w.data.RegisterSite(t.Context(), tko.Site{
			ID: siteID(i), Metadata: map[string]string{"region": "north"},
			Package: w.decode(fmt.Sprintf("{apiVersion: git.plugin.nephio.org/v1alpha1, kind: Repository, metadata: {name: repository}, spec: {url: %q}}", repo)),
		})
		w.must(err)
	}
	w.must(errOnly(w.data.RegisterPlugin(t.Context(), tko.Plugin{
		Type: tko.PluginPrepare, Name: "gate", Arguments: []string{"gate"}, Triggers: []krm.GVK{{Group: "gate.plugin.nephio.org", Version: "v1", Kind: "Gate"}},
	})))
	w.startPreparer()
	w.background(func(ctx context.Context) error {
		return schedule.New(w.own, noPlugins{}, schedule.Options{GitCache: filepath.Join(dir, "cache")}).Run(ctx)
	})
	w.background(w.watch)
	return w
}

func errOnly[T any](_ T, err error) error { return err }

func (w *world) must(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) decode(yaml string) krm.Package {
	w.t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(strings.ReplaceAll(yaml, "TOPOLOGY", "topology.nephio.org/v1alpha1")), krm.Limits{})
	w.must(err)
	return p
}

// background runs a function until stop is called or the test ends.
func (w *world) background(run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(w.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	w.t.Cleanup(stop)
	return stop
}

func (w *world) startPreparer() {
	w.prepare = w.background(func(ctx context.Context) error {
		return prepare.New(w.own, &w.gate, prepare.Options{ReviewPause: 10 * time.Millisecond, Backoff: 20 * time.Millisecond, MaxBackoff: 200 * time.Millisecond}).Run(ctx)
	})
}

// placed returns what a site should run, from one snapshot, by site.
func (w *world) placed(ctx context.Context) (map[tko.SiteID][]tko.Deployment, error) {
	yes := true
	found := map[tko.SiteID][]tko.Deployment{}
	for d, err := range w.own.Deployments(ctx, tko.DeploymentSelect{Prepared: &yes, Approved: &yes, Sites: []string{"**"}}, tko.ListOptions{Packages: true}) {
		if err != nil {
			return nil, err
		}
		found[d.Site] = append(found[d.Site], d)
	}
	return found, nil
}

// count returns the number of deployments with the object.
func (w *world) count(deployments []tko.Deployment) int {
	n := 0
	for _, d := range deployments {
		if slices.ContainsFunc(d.Package, func(r krm.Resource) bool { return r.GVK().Kind+" "+r.Name() == object }) {
			n++
		}
	}
	return n
}

// watch reads continuously what each site should run. Once a site has the object, it
// must always have it exactly once.
func (w *world) watch(ctx context.Context) error {
	for ctx.Err() == nil {
		found, err := w.placed(ctx)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // the test has ended
		}
		if err != nil {
			return err
		}
		w.mu.Lock()
		for i := range sites {
			id := siteID(i)
			switch n := w.count(found[id]); {
			case n == 1:
				w.ready[string(id)] = true
			case n > 1 || w.ready[string(id)]:
				if w.wrong[string(id)] == nil {
					w.wrong[string(id)] = fmt.Errorf("site %q should run %d of %s: %v", id, n, object, ids(found[id]))
				}
			}
		}
		w.mu.Unlock()
		time.Sleep(time.Millisecond) // other goroutines need the processor
	}
	return nil
}

func ids(deployments []tko.Deployment) []string {
	var list []string
	for _, d := range deployments {
		list = append(list, fmt.Sprintf("%s of %s", d.ID, d.Template))
	}
	return list
}

// check reports violations, and checks each commit of each repository. want are the
// versions in the commits of each repository, in order.
func (w *world) check(want ...string) {
	w.t.Helper()
	w.mu.Lock()
	for _, err := range w.wrong {
		w.t.Error(err)
	}
	w.mu.Unlock()
	for i, repo := range w.repos {
		var images []string
		for commit := range strings.FieldsSeq(gittest.Run(w.t, repo, "rev-list", "--reverse", "main")) {
			n, image := w.in(repo, commit)
			if n > 1 || n == 0 && len(images) > 0 {
				w.t.Errorf("commit %s of site %d has %d of %s:\n%s", commit, i, n, object, gittest.Run(w.t, repo, "ls-tree", "-r", "--name-only", commit))
			}
			if n == 1 && (len(images) == 0 || images[len(images)-1] != image) {
				images = append(images, image)
			}
		}
		if !slices.Equal(images, want) {
			w.t.Errorf("site %d ran %v, one after the other; want %v", i, images, want)
		}
	}
}

// in returns the number of the object's occurrences in a commit, and the version of
// the last one.
func (w *world) in(repo, commit string) (n int, value string) {
	kind, name, _ := strings.Cut(object, " ")
	for file := range strings.FieldsSeq(gittest.Run(w.t, repo, "ls-tree", "-r", "--name-only", commit)) {
		if base := filepath.Base(file); strings.HasPrefix(base, kind+".") && strings.HasSuffix(base, "_"+name+".yaml") {
			n++
			for line := range strings.SplitSeq(gittest.Run(w.t, repo, "show", commit+":"+file), "\n") {
				if v, ok := strings.CutPrefix(strings.TrimSpace(line), "version: "); ok {
					value = v
				}
			}
		}
	}
	return n, value
}

// await waits until something holds.
func (w *world) await(what string, holds func() bool) {
	w.t.Helper()
	eventually.Within(w.t, limit, what, func() error {
		if !holds() {
			return errors.New(w.describe())
		}
		return nil
	})
}

// describe describes all deployments for failure messages.
func (w *world) describe() string {
	var b strings.Builder
	for d, err := range w.data.Deployments(w.t.Context(), tko.DeploymentSelect{}, tko.ListOptions{}) {
		if err != nil {
			return err.Error()
		}
		fmt.Fprintf(&b, "%s under %q of %s at %q prepared %t approved %t replaces %v\n", d.ID, d.Parent, d.Template, d.Site, d.Prepared, d.Approved, d.Replaces)
		for _, c := range d.Stamp.Conditions {
			fmt.Fprintf(&b, "    %s %s %s: %s\n", c.Type, c.Status, c.Reason, c.Message)
		}
	}
	return b.String()
}

// everywhere waits until every repository has a version of the object.
func (w *world) everywhere(version string) {
	w.t.Helper()
	w.await("version "+version+" in every repository", func() bool {
		for _, repo := range w.repos {
			if _, err := os.Stat(filepath.Join(repo, "refs", "heads", "main")); err != nil {
				return false
			}
			if n, v := w.in(repo, gittest.Run(w.t, repo, "rev-parse", "main")); n != 1 || v != version {
				return false
			}
		}
		return true
	})
}

func (w *world) template(id, yaml string) {
	w.t.Helper()
	w.must(errOnly(w.data.RegisterTemplate(w.t.Context(), tko.Template{ID: tko.TemplateID(id), Package: w.decode(yaml)})))
}

func (w *world) deploy(yaml string) tko.DeploymentID {
	w.t.Helper()
	id, err := w.data.CreateDeployment(w.t.Context(), tko.NewDeployment{Merge: w.decode(yaml)})
	w.must(err)
	return id
}

// edit changes a deployment as a user does.
func (w *world) edit(id tko.DeploymentID, change func(krm.Package) krm.Package) {
	w.t.Helper()
	ctx := tko.WithAuthor(w.t.Context(), tko.Author{Who: "ann@laptop"})
	w.await("a modification of "+string(id), func() bool {
		m, err := w.data.StartModification(ctx, id)
		if errors.Is(err, tko.ErrBusy) {
			return false
		}
		w.must(err)
		_, _, err = w.data.EndModification(ctx, m.Token, change(m.Package))
		if errors.Is(err, tko.ErrConflict) || errors.Is(err, tko.ErrBusy) {
			return false
		}
		w.must(err)
		return true
	})
}

// use returns an edit that names another template in a Template resource.
func use(name, template string) func(krm.Package) krm.Package {
	return func(p krm.Package) krm.Package {
		p.Find(krm.Identity{GVK: krm.ParseGVK("topology.nephio.org/v1alpha1", "Template"), Name: name}).Set(template, "spec", "templateId")
		return p
	}
}

// condition returns a deployment's condition as "status reason: message".
func (w *world) condition(id tko.DeploymentID, typ string) string {
	w.t.Helper()
	d, err := w.data.Deployment(w.t.Context(), id, 0)
	w.must(err)
	for _, c := range d.Stamp.Conditions {
		if c.Type == typ {
			return fmt.Sprintf("%s %s: %s", c.Status, c.Reason, c.Message)
		}
	}
	return ""
}

func (w *world) awaitPlaced(id tko.DeploymentID, begins string) {
	w.t.Helper()
	w.await("Placed "+begins, func() bool { return strings.HasPrefix(w.condition(id, tko.ConditionPlaced), begins) })
}

// children returns the deployments below a deployment.
func (w *world) children(id tko.DeploymentID) []tko.Deployment {
	w.t.Helper()
	var all []tko.Deployment
	for d, err := range w.data.Deployments(w.t.Context(), tko.DeploymentSelect{Parent: id}, tko.ListOptions{}) {
		w.must(err)
		all = append(all, d)
	}
	return all
}

// templates returns the numbers of children by template.
func (w *world) templates(id tko.DeploymentID) map[string]int {
	count := map[string]int{}
	for _, d := range w.children(id) {
		count[string(d.Template)]++
	}
	return count
}
