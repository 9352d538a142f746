package dashboard

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/bench"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/krm"
	"github.com/tko-orchestrator/tko/test/process"
)

func TestMain(m *testing.M) {
	process.Plain()
	code := m.Run()
	process.Clean()
	os.Exit(code)
}

// timeLimit bounds the steps in the browser. It is generous for busy machines.
const timeLimit = 30 * time.Minute

func config(name, text string) krm.Package {
	return krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": name}, "data": map[string]any{"text": text}}}
}

// facts are what the steps in the browser know of the data.
type facts struct {
	Before string `json:"before"` // a position before changes of the sites time/**
	Root   string `json:"root"`   // ID of a deployment with descendants
	Leaf   string `json:"leaf"`   // ID of one of them, three levels down
	Behind string `json:"behind"` // ID of a deployment whose site has an earlier revision
	Core   string `json:"core"`   // ID of a topology with many children, of which some fail
}

// fill registers sites, templates, deployments and a rollout.
func fill(t *testing.T, s *process.Server) (known facts) {
	t.Helper()
	c, err := client.Dial(client.Options{Address: s.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	ctx := t.Context()
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(16)
	site := func(id, region, tier string, more ...string) {
		metadata := map[string]string{"region": region, "tier": tier}
		for i := 1; i < len(more); i += 2 {
			metadata[more[i-1]] = more[i]
		}
		group.Go(func() error {
			_, err := c.RegisterSite(ctx, tko.Site{ID: tko.SiteID(id), Metadata: metadata, Package: config("site", id)})
			if err != nil || region != "north" || len(id)%3 == 0 && strings.HasSuffix(id, "7") { // some haven't reported yet
				return err
			}
			return c.SetConditions(ctx, tko.KindSite, id, []tko.Condition{
				{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: "Applied", ObservedRevision: 1}, {Type: tko.ConditionHealthy, Status: tko.ConditionTrue, Reason: "Healthy", ObservedRevision: 1},
			})
		})
	}
	const sites = 2500 // more pages than the dashboard holds
	for i := range sites {
		var place []string
		if i%50 == 0 { // along a line from south to north-east
			place = []string{"latitude", fmt.Sprintf("%.2f", 55+float64(i)/250), "longitude", fmt.Sprintf("%.2f", 10+float64(i)/200)}
		}
		site(fmt.Sprintf("north/edge-%d", i+1), "north", fmt.Sprintf("tier-%d", i%3), place...)
	}
	for i := range 120 {
		site(fmt.Sprintf("many/%d", i+1), "many", "tier-0")
	}
	for i := range 3 {
		site(fmt.Sprintf("gone/%d", i+1), "gone", "tier-0")
		site(fmt.Sprintf("south/edge-%d", i+1), "south", "tier-1")
	}
	for i := range 40 {
		site(fmt.Sprintf("west/edge-%d", i+1), "west", "tier-2")
	}
	for id, pkg := range map[string]krm.Package{
		"workload/smf:v1": config("smf", "v1"),
		"workload/upf:v1": config("upf", "v1"),
		"hostile/v1":      config("hostile", `<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>`),
		"topology/cu":     config("cu", "v1"), "leaf/upf": config("upf", "v1"), "leaf/smf": config("smf", "v1"), "leaf/pod": config("pod", "v1"), "leaf/disk": config("disk", "v1"),
		"topology/core": config("core", "v1"), "core/smf:v1": config("smf", "v1"), "core/upf:v1": config("upf", "v1"),
		"secret/v1": {{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}, "stringData": map[string]any{"password": "hunter2"}}},
	} {
		group.Go(func() error {
			_, err := c.RegisterTemplate(ctx, tko.Template{ID: tko.TemplateID(id), Package: pkg})
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	for i := range 40 {
		template := tko.TemplateID("workload/smf:v1")
		if i%2 == 1 {
			template = "workload/upf:v1"
		}
		d := tko.NewDeployment{Template: template, Site: tko.SiteID(fmt.Sprintf("north/edge-%d", i+1)), Prepared: i%4 < 2, Approved: i%8 == 0}
		if _, err := c.CreateDeployment(t.Context(), d); err != nil {
			t.Fatal(err)
		}
	}
	// It is approved in the dashboard. It is not of the rollout, whose canary waits for deployments that are not yet scheduled.
	if _, err := c.CreateDeployment(t.Context(), tko.NewDeployment{Template: "leaf/pod", Site: "north/edge-49", Prepared: true}); err != nil {
		t.Fatal(err)
	}
	known.Root, known.Leaf = descendants(t, c)
	known.Behind = behind(t, c)
	known.Core = core(t, c)
	troubles(t, c)
	rollout := krm.Package{
		{
			"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": "text-v2"},
			"spec": map[string]any{
				"edits": []any{map[string]any{
					"merge":  []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "extra"}},
					"select": map[string]any{"templateIdPatterns": []any{"workload/**"}},
				}},
				"waves": []any{map[string]any{"name": "canary", "count": int64(3)}, map[string]any{"name": "rest", "approval": "Required"}},
			},
		},
		config("extra", "v2")[0],
	}
	if _, err := c.RegisterRollout(t.Context(), tko.Rollout{ID: "text-v2", Package: rollout}); err != nil {
		t.Fatal(err)
	}
	return past(t, c, known)
}

// descendants creates a deployment with children to three levels, and returns its ID and
// that of a deployment of the last level.
func descendants(t *testing.T, c *client.Client) (root, leaf string) {
	t.Helper()
	create := func(template, parent string, site int) string {
		id, err := c.CreateDeployment(t.Context(), tko.NewDeployment{
			Template: tko.TemplateID(template), Parent: tko.DeploymentID(parent), Site: tko.SiteID(fmt.Sprintf("north/edge-%d", site)), Prepared: true, Approved: true,
		})
		if err != nil {
			t.Fatal(err)
		}
		return string(id)
	}
	root = create("topology/cu", "", 50)
	for i := range 60 {
		create("leaf/upf", root, 100+i)
	}
	middle := create("leaf/smf", root, 200)
	lower := create("leaf/pod", middle, 201)
	return root, create("leaf/disk", lower, 202)
}

// core creates a topology with 100 children of core/smf:v1, 60 in the north, of which 25 fail,
// and 40 in the west, and 100 of core/upf:v1 in the north. It returns its ID.
func core(t *testing.T, c *client.Client) string {
	t.Helper()
	children := make([]tko.NewChild, 200)
	for i := range children {
		child := tko.NewChild{Origin: strconv.Itoa(i), Template: "core/smf:v1", Site: tko.SiteID(fmt.Sprintf("north/edge-%d", 1001+i))}
		switch {
		case i >= 100:
			child.Template = "core/upf:v1"
		case i >= 60:
			child.Site = tko.SiteID(fmt.Sprintf("west/edge-%d", i-59))
		}
		children[i] = child
	}
	return topology(t, c, "topology/core", children, 25)
}

// topology creates a deployment with children, of which the first ones fail, and returns its ID.
func topology(t *testing.T, c *client.Client, template tko.TemplateID, children []tko.NewChild, failing int) string {
	t.Helper()
	root, err := c.CreateDeployment(t.Context(), tko.NewDeployment{Template: template, Prepared: true, Approved: true})
	if err != nil {
		t.Fatal(err)
	}
	group, ctx := errgroup.WithContext(t.Context())
	group.SetLimit(16)
	for batch := range slices.Chunk(children, 500) {
		merge := krm.Package(nil).WithDeployment("", "", true, true)
		ids, _, err := c.CreateChildren(tko.WithConfirmation(ctx, len(batch)), tko.NewChildren{Parent: root, Merge: merge, Children: batch})
		if err != nil {
			t.Fatal(err)
		}
		fail := ids[:min(failing, len(ids))]
		failing -= len(fail)
		for _, id := range fail {
			group.Go(func() error {
				return c.SetConditions(ctx, tko.KindDeployment, string(id), []tko.Condition{
					{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "PluginFailed", Message: `plugin "network/addresses": pool 10.1.0.0/16 is exhausted`},
				})
			})
		}
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	return string(root)
}

// behind creates a deployment that was changed after its first revision was applied.
func behind(t *testing.T, c *client.Client) string {
	t.Helper()
	ctx := t.Context()
	id, err := c.CreateDeployment(ctx, tko.NewDeployment{Template: "leaf/pod", Site: "north/edge-300", Prepared: true, Approved: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.SetConditions(ctx, tko.KindDeployment, string(id), []tko.Condition{{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: "Applied", ObservedRevision: 1}}); err != nil {
		t.Fatal(err)
	}
	m, err := c.StartModification(ctx, id)
	if err == nil {
		m.Package[0]["data"] = map[string]any{"text": "v2"}
		_, _, err = c.EndModification(ctx, m.Token, m.Package)
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(id)
}

// troubles creates deployments and sites that fail, for several reasons.
func troubles(t *testing.T, c *client.Client) {
	t.Helper()
	report := func(kind tko.Kind, id string, condition tko.Condition) {
		t.Helper()
		if err := c.SetConditions(t.Context(), kind, id, []tko.Condition{condition}); err != nil {
			t.Fatal(err)
		}
	}
	exhausted := tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "PluginFailed", Message: `plugin "network/addresses": pool 10.1.0.0/16 is exhausted`}
	silent := tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: "Failed", Message: "the cluster does not respond"}
	applied := tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: "Applied"}
	for i := range 6 {
		id, err := c.CreateDeployment(t.Context(), tko.NewDeployment{Template: "leaf/pod", Site: tko.SiteID(fmt.Sprintf("north/edge-%d", 310+i)), Prepared: i >= 4, Approved: true})
		if err != nil {
			t.Fatal(err)
		}
		trouble := exhausted
		if i >= 4 {
			trouble = silent
		}
		report(tko.KindDeployment, string(id), trouble)
	}
	for i := range 3 {
		report(tko.KindSite, fmt.Sprintf("south/edge-%d", i+1), []tko.Condition{silent, applied, applied}[i])
		report(tko.KindSite, fmt.Sprintf("gone/%d", i+1), applied)
	}
}

// past changes sites after a position.
func past(t *testing.T, c *client.Client, known facts) facts {
	t.Helper()
	register := func(id, text string) {
		if _, err := c.RegisterSite(t.Context(), tko.Site{ID: tko.SiteID(id), Metadata: map[string]string{"region": "time"}, Package: config("site", text)}); err != nil {
			t.Fatal(err)
		}
	}
	register("blamed/one", "first")
	register("blamed/one", "second")
	register("time/gone", "x")
	for _, id := range []string{"zz/..", "zz/.", "zz/../x", "zz//two", "zz/end/"} { // browsers change paths with such parts
		register(id, "x")
	}
	about, err := c.About(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	known.Before = strconv.FormatInt(about.Position, 10)
	if _, err := c.DeleteSite(t.Context(), "time/gone"); err != nil {
		t.Fatal(err)
	}
	register("time/one", "x")
	return known
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(string(out))
}

// secured starts a server that enforces rights, and returns it with the tokens of a
// viewer and an administrator.
func secured(t *testing.T) (s *process.Server, viewer, admin string) {
	t.Helper()
	dir := t.TempDir()
	tokens, store := filepath.Join(dir, "tokens"), "--store=sqlite:"+filepath.Join(dir, "tko.db")
	t.Setenv("TKO_ALLOW_ROOT", "true")
	program := process.Build(t, "tko-server")
	last := func(text string) string { return text[strings.LastIndexAny(text, " \n")+1:] }
	viewer = last(run(t, program, "token", "add", "--file="+tokens, "viewer"))
	admin = last(run(t, program, "token", "add", "--file="+tokens, "admin"))
	run(t, program, "access", "init", store, "--admin=token:admin")
	s = process.StartServer(t, "--roles=data,preparer", store, "--token-file="+tokens, "--access=enforce", "--plugin-programs=/")
	command := func(args ...string) {
		cmd := exec.CommandContext(t.Context(), process.Build(t, "tko"), args...)
		cmd.Env = append(append(os.Environ(), s.Env()...), "TKO_TOKEN="+admin)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("tko %s: %v\n%s", strings.Join(args, " "), err, out)
		}
	}
	command("access", "bind", "token:viewer", "viewer")
	command("site", "register", "one")
	good := filepath.Join(dir, "good.yaml")
	if err := os.WriteFile(good, []byte("{apiVersion: v1, kind: ConfigMap, metadata: {name: good}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	command("template", "register", "nf/good", "--url", good)
	greeter := filepath.Join(dir, "greeter.yaml")
	if err := os.WriteFile(greeter, []byte("{apiVersion: hello.plugin.example/v1, kind: Greeter, metadata: {name: greeter}}"), 0o600); err != nil {
		t.Fatal(err)
	}
	command("template", "register", "nf/bad", "--url", greeter)
	command("plugin", "register", "prepare", "greeter", "/bin/false", "--trigger", "hello.plugin.example,v1,Greeter")
	command("deployment", "create", "nf/good", "--site", "one")
	command("deployment", "create", "nf/bad", "--site", "one")
	return s, viewer, admin
}

// browse runs a program of web/ that looks at a server in the browser.
func browse(t *testing.T, s *process.Server, program string, environment ...string) error {
	t.Helper()
	process.Reads(t, "web", "test/setup")
	browser := run(t, filepath.Join("..", "setup", "web.sh"))
	browser = browser[strings.LastIndex(browser, "\n")+1:]
	var out bytes.Buffer
	cmd := exec.CommandContext(t.Context(), "node", filepath.Join("..", "..", "web", program))
	cmd.Env = append(append(append(os.Environ(), s.Env()...), "URL=http://"+s.Web, "BROWSER="+browser, "TKO="+process.Build(t, "tko")), environment...)
	cmd.Stdout, cmd.Stderr = &out, &out
	stop := time.AfterFunc(timeLimit, func() { _ = cmd.Process.Kill() })
	defer stop.Stop()
	err := cmd.Run()
	t.Logf("%s", &out)
	if err != nil {
		t.Errorf("the steps in the browser failed: %v", err)
	}
	return err
}

// TestDashboardInABrowser runs web/test/dashboard.mjs. With TKO_SCREENSHOTS=FOLDER the
// screenshots are written there, with TKO_IMAGES=yes those of the documentation to
// docs/images. With TKO_LIGHTHOUSE=yes, web/lighthouse measures the views instead.
func TestDashboardInABrowser(t *testing.T) {
	s := process.StartServer(t, "--roles=data,rollout", "--store=sqlite:"+filepath.Join(t.TempDir(), "tko.db"))
	known, err := json.Marshal(fill(t, s))
	if err != nil {
		t.Fatal(err)
	}
	if os.Getenv("TKO_LIGHTHOUSE") != "" {
		_ = browse(t, s, filepath.Join("lighthouse", "lighthouse.mjs"), "FACTS="+string(known))
		return
	}
	withRights, viewer, admin := secured(t)
	shots := os.Getenv("TKO_SCREENSHOTS")
	if shots == "" {
		shots = t.TempDir()
	}
	err = browse(t, s, filepath.Join("test", "dashboard.mjs"), "TOKEN_URL=http://"+withRights.Web, "SHOTS="+shots, "VIEWER="+viewer, "ADMIN="+admin, "FACTS="+string(known))
	if err != nil || os.Getenv("TKO_IMAGES") == "" {
		return
	}
	for shot, name := range map[string]string{"overview": "overview", "wall": "wall", "rollout-waves": "rollout", "blame": "blame", "delete": "delete", "matrix": "matrix", "graph": "graph", "map": "map", "deployment": "deployment", "changes": "changes", "views": "views", "rollout-plan": "rollout-plan"} {
		data, err := os.ReadFile(filepath.Join(shots, shot+"-light-1440.png"))
		if err == nil {
			err = os.WriteFile(filepath.Join("..", "..", "docs", "images", "dashboard-"+name+".png"), data, 0o644)
		}
		if err != nil {
			t.Error(err)
		}
	}
}

// TestALargeFleetInABrowser runs web/test/scale.mjs, which counts what is read and drawn.
// With TKO_DASHBOARD_DEPLOYMENTS=N it fills so many, at a site for each 50 of them or at
// TKO_DASHBOARD_SITES=N, and limits of time hold: the first page within 300 ms, a change and
// the picture of all sites within a second.
func TestALargeFleetInABrowser(t *testing.T) {
	fleet, measure := bench.Fleet{Seed: 1, Sites: 100, Deployments: 4000}, ""
	if text := os.Getenv("TKO_DASHBOARD_DEPLOYMENTS"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil {
			t.Fatalf("TKO_DASHBOARD_DEPLOYMENTS=%q is not a number", text)
		}
		fleet.Deployments, fleet.Sites, measure = n, max(1, n/50), "yes"
		if text := os.Getenv("TKO_DASHBOARD_SITES"); text != "" {
			if fleet.Sites, err = strconv.Atoi(text); err != nil {
				t.Fatalf("TKO_DASHBOARD_SITES=%q is not a number", text)
			}
		}
	}
	s := process.StartServer(t, "--roles=data", "--store=sqlite:"+filepath.Join(t.TempDir(), "tko.db"))
	c, err := client.Dial(client.Options{Address: s.GRPC})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := bench.Fill(t.Context(), c, fleet, bench.FillOptions{}); err != nil {
		t.Fatal(err)
	}
	children, failing := 2000, 100
	if measure != "" {
		children, failing = 20_000, 812
	}
	root := largeTopology(t, c, children, failing)
	_ = browse(t, s, filepath.Join("test", "scale.mjs"), "GRAPH="+root, "CHILDREN="+strconv.Itoa(children), "FAILING="+strconv.Itoa(failing), "DEPLOYMENTS="+strconv.Itoa(fleet.Deployments), "SITES="+strconv.Itoa(fleet.Sites), "MEASURE="+measure)
}

// largeTopology creates a topology with children of seven templates at the sites of a fleet, and
// returns its ID.
func largeTopology(t *testing.T, c *client.Client, n, failing int) string {
	t.Helper()
	templates := []tko.TemplateID{"large/topology", "large/amf:v3", "large/ausf:v1", "large/nrf:v2", "large/pcf:v1", "large/smf:v1", "large/udm:v1", "large/upf:v4"}
	for _, id := range templates {
		if _, err := c.RegisterTemplate(t.Context(), tko.Template{ID: id, Package: config("nf", string(id))}); err != nil {
			t.Fatal(err)
		}
	}
	var sites []tko.SiteID
	for s, err := range c.Sites(t.Context(), tko.SiteSelect{}, tko.ListOptions{}) {
		if err != nil {
			t.Fatal(err)
		}
		sites = append(sites, s.ID)
	}
	children := make([]tko.NewChild, n)
	for i := range children {
		template := templates[1+i%(len(templates)-1)]
		if i < failing {
			template = "large/smf:v1"
		}
		children[i] = tko.NewChild{Origin: strconv.Itoa(i), Template: template, Site: sites[i%len(sites)]}
	}
	return topology(t, c, templates[0], children, failing)
}

// files returns the contents of the files below a folder by their paths.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, name))
		all[name] = string(data)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestCommittedBundleIsBuiltFromItsSources(t *testing.T) {
	run(t, filepath.Join("..", "setup", "web.sh"))
	web, built := filepath.Join("..", "..", "web"), t.TempDir()
	run(t, "npm", "--prefix", web, "run", "build", "--", "--outDir", built, "--emptyOutDir")
	committed := files(t, filepath.Join(web, "dist"))
	for name, text := range files(t, built) {
		if committed[name] != text {
			t.Errorf("web/dist/%s is missing, or differs from what its sources give: run make web, and commit web/dist", name)
		}
		delete(committed, name)
	}
	for name := range committed {
		t.Errorf("web/dist/%s is no longer built: run make web, and commit web/dist", name)
	}
}
