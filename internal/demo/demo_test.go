package demo_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/demo"
	"github.com/tko-orchestrator/tko/internal/gitclient/gittest"
)

// A fleet stands in for the client of a server.
type fleet struct {
	mu          sync.Mutex // of deployments, where a test changes them later
	sites       []tko.Site
	deployments []tko.Deployment
	templates   map[tko.TemplateID]tko.Template
	plugins     []tko.Plugin
	fail        string // name of the method that fails
}

var errServer = errors.New("the server is away")

func (f *fleet) failed(method string) error {
	if f.fail == method {
		return errServer
	}
	return nil
}

func (f *fleet) Sites(context.Context, tko.SiteSelect, tko.ListOptions) iter.Seq2[tko.Site, error] {
	return list(f.sites, f.failed("Sites"))
}

func (f *fleet) Deployments(_ context.Context, s tko.DeploymentSelect, _ tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	f.mu.Lock()
	defer f.mu.Unlock()
	selected := slices.DeleteFunc(slices.Clone(f.deployments), func(d tko.Deployment) bool {
		return len(s.Templates) > 0 && !slices.Contains(s.Templates, string(d.Template))
	})
	return list(selected, f.failed("Deployments"))
}

func list[T any](entities []T, err error) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, e := range entities {
			if !yield(e, nil) {
				return
			}
		}
		var none T
		if err != nil {
			yield(none, err)
		}
	}
}

func (f *fleet) CreateDeployment(_ context.Context, d tko.NewDeployment) (tko.DeploymentID, error) {
	if err := f.failed("CreateDeployment"); err != nil {
		return "", err
	}
	id := tko.DeploymentID(fmt.Sprintf("new-%d", len(f.deployments)))
	f.deployments = append(f.deployments, tko.Deployment{ID: id, Template: d.Template, Metadata: d.Metadata})
	return id, nil
}

func (f *fleet) RegisterTemplate(_ context.Context, t tko.Template) (int64, error) {
	if f.templates == nil {
		f.templates = map[tko.TemplateID]tko.Template{}
	}
	f.templates[t.ID] = t
	return 1, f.failed("RegisterTemplate")
}

func (f *fleet) RegisterSite(_ context.Context, s tko.Site) (int64, error) {
	f.sites = append(f.sites, s)
	return 1, f.failed("RegisterSite")
}

func (f *fleet) RegisterPlugin(_ context.Context, p tko.Plugin) (int64, error) {
	f.plugins = append(f.plugins, p)
	return 1, f.failed("RegisterPlugin")
}

// id returns an ID of a deployment, with the length that all have.
func id(name string) tko.DeploymentID {
	return tko.DeploymentID(name + strings.Repeat("0", 27-len(name)))
}

func scheduled(status string) tko.Stamp {
	return tko.Stamp{Conditions: []tko.Condition{{Type: tko.ConditionScheduled, Status: status, Reason: "R", Message: "m"}}}
}

// complete returns a fleet in which all is done: a topology, a function at each of two
// sites, and one that waits for approval.
func complete() *fleet {
	at := func(name string, site tko.SiteID) tko.Deployment {
		return tko.Deployment{ID: id(name), Parent: id("topology"), Template: "workload/upf:v1", Site: site, Prepared: true, Approved: true, Stamp: scheduled(tko.ConditionTrue)}
	}
	waiting := at("du", "west")
	waiting.Approved, waiting.Stamp = false, tko.Stamp{Conditions: []tko.Condition{{Type: tko.ConditionApproved, Status: tko.ConditionFalse}}}
	return &fleet{
		sites:       []tko.Site{{ID: "east", Metadata: map[string]string{"region": "e"}}, {ID: "west"}},
		deployments: []tko.Deployment{{ID: id("topology"), Template: "topology/a", Prepared: true, Approved: true}, at("east", "east"), at("west", "west"), waiting},
	}
}

func observe(t *testing.T, f *fleet) demo.Progress {
	t.Helper()
	p, err := demo.Observe(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestProgressCountsDeploymentsByState(t *testing.T) {
	t.Parallel()
	p := observe(t, complete())
	if got, want := p.String(), "4 deployments, 4 prepared, 2 of 2 scheduled at their sites, 1 waiting for approval"; got != want || !p.Done() {
		t.Errorf("%q (done: %t), want %q", got, p.Done(), want)
	}
	if len(p.Sites) != 2 || p.Sites[0].ID != "east" || p.Sites[0].Metadata["region"] != "e" || p.Sites[0].Scheduled != 1 || p.Sites[0].Waiting != 0 ||
		p.Sites[1].Scheduled != 1 || p.Sites[1].Waiting != 1 || len(p.Sites[1].Deployments) != 1 || p.Sites[1].Deployments[0].ID != id("west") {
		t.Errorf("sites: %+v", p.Sites)
	}
	if !maps.Equal(p.Parents, map[tko.DeploymentID]bool{id("topology"): true}) {
		t.Errorf("topologies: %v", p.Parents)
	}
	f := complete()
	f.deployments = f.deployments[:3]
	if got := observe(t, f).String(); strings.Contains(got, "waiting") {
		t.Errorf("%q, and nothing waits", got)
	}
	for _, method := range []string{"Sites", "Deployments"} {
		f.fail = method
		if _, err := demo.Observe(t.Context(), f); !errors.Is(err, errServer) {
			t.Errorf("%s fails, and the progress is observed: %v", method, err)
		}
	}
}

// Anything that is not as it should be at the end keeps the demo waiting, and is named.
func TestDemoIsNotDoneWhileWorkIsLeft(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		change func(*fleet)
		says   string // in the problems or the progress
	}{
		"nothing":             {func(f *fleet) { f.deployments = nil }, "0 deployments"},
		"not prepared":        {func(f *fleet) { f.deployments[1].Prepared = false }, "3 prepared, 1 of 1 scheduled"},
		"not scheduled":       {func(f *fleet) { f.deployments[1].Stamp = tko.Stamp{} }, "1 of 2 scheduled"},
		"not schedulable":     {func(f *fleet) { f.deployments[1].Stamp = scheduled(tko.ConditionFalse) }, "deployment " + string(id("east")) + " is not Scheduled: R: m"},
		"a problem of a site": {func(f *fleet) { f.sites[1].Stamp = scheduled(tko.ConditionFalse) }, "site west is not Scheduled: R: m"},
		"a problem, unprepared": {func(f *fleet) {
			f.deployments[0].Stamp.Conditions = []tko.Condition{{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "Invalid"}}
		}, "is not Prepared: Invalid"},
	}
	for name, test := range tests {
		f := complete()
		test.change(f)
		p := observe(t, f)
		if text := p.String() + "\n" + strings.Join(p.Problems, "\n"); p.Done() || !strings.Contains(text, test.says) {
			t.Errorf("%s: done %t, want that it isn't, with %q:\n%s", name, p.Done(), test.says, text)
		}
	}
	f := complete() // a plugin that was left out
	f.deployments[1].Stamp.Conditions = append(f.deployments[1].Stamp.Conditions, tko.Condition{Type: tko.ConditionHandled, Status: tko.ConditionFalse})
	if p := observe(t, f); !p.Done() || len(p.Problems) > 0 {
		t.Errorf("a resource without its plugin is a problem: %q", p.Problems)
	}
}

func TestFollowReportsEachChangeOnceUntilTheEnd(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := complete()
		last := f.deployments[2]
		f.deployments[2].Stamp = tko.Stamp{}
		step := func(d time.Duration, change func()) {
			time.AfterFunc(d, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				change()
			})
		}
		step(10*time.Second+1, func() { f.deployments[2].Stamp = scheduled(tko.ConditionFalse) })
		step(20*time.Second+1, func() { f.deployments[2] = last })
		var reports []string
		began := time.Now()
		p, err := demo.Follow(t.Context(), f, time.Second, func(p demo.Progress) { reports = append(reports, fmt.Sprintf("%d/%d", p.Scheduled, len(p.Problems))) })
		if err != nil || !p.Done() || time.Since(began) != 21*time.Second {
			t.Errorf("%v, done: %t, after %s", err, p.Done(), time.Since(began))
		}
		if diff := cmp.Diff([]string{"1/0", "1/1", "2/0"}, reports); diff != "" {
			t.Errorf("reports (-want +got):\n%s", diff)
		}
	})
}

// The reason why the demo ends is that of its time limit, with the last progress.
func TestFollowEndsWithItsTimeLimit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		late := errors.New("not done after 5m")
		ctx, cancel := context.WithTimeoutCause(t.Context(), 5*time.Minute, late)
		defer cancel()
		f := complete()
		f.deployments[1].Prepared = false
		if p, err := demo.Follow(ctx, f, 7*time.Minute/2, func(demo.Progress) {}); !errors.Is(err, late) || p.Deployments != 4 {
			t.Errorf("%v with %s, want the time limit and the last progress", err, p)
		}
		f.fail = "Sites" // the call in progress fails at the limit, too
		if _, err := demo.Follow(ctx, f, time.Second, func(demo.Progress) {}); !errors.Is(err, late) {
			t.Errorf("%v, want the time limit", err)
		}
		f = complete()
		f.fail = "Deployments"
		if _, err := demo.Follow(t.Context(), f, time.Second, func(demo.Progress) {}); !errors.Is(err, errServer) {
			t.Errorf("%v, want the error of the server", err)
		}
	})
}

// committed makes a repository with the files on the branch main.
func committed(t *testing.T, files ...string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	content := map[string]string{}
	for _, f := range files {
		content[f] = "a: b\n"
	}
	gittest.Write(t, folder, content)
	gittest.Run(t, folder, "init", "--quiet", "--initial-branch=main")
	gittest.Run(t, folder, "add", ".")
	gittest.Run(t, folder, "commit", "--quiet", "--allow-empty", "--message=sites")
	return folder
}

// The demo's check fails if anything is missing or left, and names it.
func TestCheckNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	var c demo.Catalog
	c.Expect.Deployments, c.Expect.Sites, c.Expect.Files = 4, 2, []string{"Namespace.yaml"}
	east, west := "east/"+string(id("east"))+"/Namespace.yaml", "west/"+string(id("west"))+"/upf.yaml"
	all := []string{east, west, "README.md", "west/notes/a.yaml", "elsewhere/" + string(id("old")) + "/a.yaml"}
	good := committed(t, all...)
	if err := c.Check(observe(t, complete()), good); err != nil {
		t.Fatalf("all is there: %v", err)
	}
	nested := complete() // a topology of a site has children there, and no files
	nested.deployments[1].ID, nested.deployments[1].Parent = id("child"), id("east")
	nested.deployments = append(nested.deployments, tko.Deployment{ID: id("east"), Site: "east", Prepared: true, Approved: true, Stamp: scheduled(tko.ConditionTrue)})
	if err := c.Check(observe(t, nested), committed(t, "east/"+string(id("child"))+"/Namespace.yaml", west)); err != nil {
		t.Errorf("a topology of a site: %v", err)
	}
	tests := map[string]struct {
		change     func(*fleet)
		repository string
		says       string
	}{
		"a deployment":          {func(f *fleet) { f.deployments = f.deployments[:3] }, good, "4 deployments were expected, 3 are there"},
		"a site":                {func(f *fleet) { f.sites = f.sites[:1] }, good, "2 sites were expected, 1 are there"},
		"a file of a site":      {nil, committed(t, west, "Namespace.yaml"), "site east has nothing of deployment " + string(id("east"))},
		"at another site":       {nil, committed(t, "west/"+string(id("east"))+"/Namespace.yaml", west), "site east has nothing of deployment " + string(id("east"))},
		"an expected file":      {nil, committed(t, "east/"+string(id("east"))+"/a.yaml", west), "no file Namespace.yaml in"},
		"a deleted deployment":  {func(f *fleet) { f.deployments[1].ID = id("new") }, good, "site east still has " + east},
		"a withdrawn approval":  {func(f *fleet) { f.deployments[2].Approved = false }, good, "site west still has " + west},
		"the branch":            {nil, func() string { dir := committed(t, all...); gittest.Run(t, dir, "branch", "-m", "other"); return dir }(), "branch main of "},
		"the repository itself": {nil, filepath.Join(t.TempDir(), "sites.git"), "sites.git"},
	}
	for name, test := range tests {
		f := complete()
		if test.change != nil {
			test.change(f)
		}
		if err := c.Check(observe(t, f), test.repository); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s is missing or too much: %v, want %q", name, err, test.says)
		}
	}
	err := c.Check(observe(t, &fleet{}), committed(t))
	for _, want := range []string{"4 deployments", "2 sites", "no file Namespace.yaml"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want all differences, also %q", err, want)
		}
	}
}

// catalog writes a folder with a catalog.
func catalog(t *testing.T, text string, files map[string]string) (folder string) {
	t.Helper()
	folder = t.TempDir()
	gittest.Write(t, folder, map[string]string{"catalog.yaml": text})
	gittest.Write(t, folder, files)
	return folder
}

func TestCatalogIsReadWithItsVariables(t *testing.T) {
	t.Parallel()
	folder := catalog(t, `
plugins: [{type: prepare, name: p, arguments: ["${BIN}/p", "${CATALOG}/q", "${lower} $BIN"], triggers: ["g,v,K"]}]
templates: [{id: t, package: packages, metadata: {a: b}}, {id: empty}]
sites: [{id: s, template: t, package: packages/site.yaml}]`, map[string]string{
		"packages/site.yaml":  "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\ndata: {bin: \"${BIN}\"}\n",
		"packages/b/two.yaml": "apiVersion: v1\nkind: Secret\nmetadata: {name: b}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: c}\n",
		"packages/README.md":  "no YAML: [",
	})
	c, err := demo.Load(folder, map[string]string{"BIN": "/bin"})
	if err != nil {
		t.Fatal(err)
	}
	var f fleet
	if err := c.Register(t.Context(), &f, func(text string) { t.Error(text) }); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"/bin/p", folder + "/q", "${lower} $BIN"}, f.plugins[0].Arguments); diff != "" || f.plugins[0].Triggers[0].Kind != "K" {
		t.Errorf("plugin %+v (-want +got):\n%s", f.plugins[0], diff)
	}
	if p := f.templates["t"].Package; len(p) != 3 || len(f.templates["empty"].Package) != 0 || f.templates["t"].Metadata["a"] != "b" {
		t.Errorf("templates: %+v", f.templates)
	}
	if len(f.sites) != 1 || len(f.sites[0].Package) != 1 || f.sites[0].Template != "t" || !strings.Contains(fmt.Sprint(f.sites[0].Package), "/bin") {
		t.Errorf("sites: %+v", f.sites)
	}
}

func TestUnusableCatalogsAreRefused(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		text  string
		files map[string]string
		says  string
	}{
		"a variable":            {"plugins: [{name: \"${NONE}\"}]", nil, "uses ${NONE}, which is not set"},
		"a typo":                {"template: []", nil, "catalog.yaml"},
		"a trigger":             {"plugins: [{name: p, triggers: [\"g/v/K\"]}]", nil, `plugin "p": the trigger "g/v/K" is not group,version,kind`},
		"a package":             {"templates: [{id: t, package: none}]", nil, "none"},
		"a package of a site":   {"sites: [{id: s, package: none}]", nil, "none"},
		"variable of a package": {"templates: [{id: t, package: p}]", map[string]string{"p/a.yaml": "a: ${NONE}"}, "a.yaml uses ${NONE}"},
		"YAML of a package":     {"templates: [{id: t, package: p}]", map[string]string{"p/a.yaml": "a: ["}, "a.yaml"},
	}
	for name, test := range tests {
		c, err := demo.Load(catalog(t, test.text, test.files), nil)
		if err == nil {
			err = c.Register(t.Context(), &fleet{}, func(string) {})
		}
		if err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v, want %q", name, err, test.says)
		}
	}
	if _, err := demo.Load(t.TempDir(), nil); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder without a catalog: %v", err)
	}
}

func TestPluginsWithoutTheirNeedsAreLeftOut(t *testing.T) {
	t.Parallel()
	c, err := demo.Load(catalog(t, `plugins: [{name: a, needs: ["false", "x"]}, {name: b, needs: ["true"]}, {name: c, needs: [/none/program]}]`, nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	var f fleet
	var reports []string
	if err := c.Register(t.Context(), &f, func(text string) { reports = append(reports, text) }); err != nil {
		t.Fatal(err)
	}
	if len(f.plugins) != 1 || f.plugins[0].Name != "b" {
		t.Errorf("plugins: %+v", f.plugins)
	}
	if len(reports) != 2 || !strings.Contains(reports[0], "plugin a is left out: false x: exit status 1") || !strings.Contains(reports[1], "plugin c is left out: /none/program") {
		t.Errorf("reports: %q", reports)
	}
}

func TestErrorsOfTheServerNameTheEntity(t *testing.T) {
	t.Parallel()
	c, err := demo.Load(catalog(t, "plugins: [{type: prepare, name: p}]\ntemplates: [{id: t}]\nsites: [{id: s}]\ntopologies: [{template: t}]", nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	for method, entity := range map[string]string{"RegisterPlugin": "plugin", "RegisterTemplate": `template "t"`, "RegisterSite": `site "s"`} {
		err := c.Register(t.Context(), &fleet{fail: method}, func(string) {})
		if !errors.Is(err, errServer) || !strings.Contains(err.Error(), entity) {
			t.Errorf("%s: %v, want %s in the error", method, err, entity)
		}
	}
	for _, method := range []string{"CreateDeployment", "Deployments"} {
		if ids, err := c.Create(t.Context(), &fleet{fail: method}); !errors.Is(err, errServer) || len(ids) > 0 {
			t.Errorf("%s: %v, %v", method, ids, err)
		}
	}
}

// A second run of the demo creates no second topology; children of other topologies don't
// count.
func TestTopologiesAreCreatedOnce(t *testing.T) {
	t.Parallel()
	c, err := demo.Load(catalog(t, "topologies: [{template: a, metadata: {k: v}}, {template: b}]", nil), nil)
	if err != nil {
		t.Fatal(err)
	}
	f := fleet{deployments: []tko.Deployment{{ID: "child", Template: "a", Parent: "p"}, {ID: "old", Template: "b"}}}
	for range 2 {
		ids, err := c.Create(t.Context(), &f)
		if diff := cmp.Diff([]tko.DeploymentID{"new-2", "old"}, ids); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	}
	if len(f.deployments) != 3 || f.deployments[2].Metadata["k"] != "v" {
		t.Errorf("deployments: %+v", f.deployments)
	}
}
