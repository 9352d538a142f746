package prepare_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"reflect"
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
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/prepare"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/internal/store/sqlite"
	"github.com/tko-orchestrator/tko/internal/validate"
	"github.com/tko-orchestrator/tko/krm"
)

// Two tenants share a server: cert:ada edits a/**, and b/** is of another one. No road of
// derivation may lead from a/** to b/**.

// tenants is a data controller that enforces rights, with its own preparer and GitOps
// controller on connections of their own.
type tenants struct {
	*catalog.Service
	t        *testing.T
	root     context.Context // an administrator
	preparer *client.Client
	gitops   *client.Client
	runner   *scripted
}

// A scripted runner is a plugin.
type scripted struct {
	do func(target krm.Identity, pkg krm.Package) krm.Package
}

func (r *scripted) Prepare(_ context.Context, _ tko.Plugin, target krm.Identity, _ tko.DeploymentID, pkg krm.Package, _ ...func(string)) (bool, krm.Package, error) {
	return true, r.do(target, pkg.Clone()), nil
}

// compiled is a service template that places b/leaf at b/1.
type compiled struct{}

func (compiled) Resources(context.Context, string) (krm.Package, error) {
	return krm.Decode(krm.YAML, []byte(topologyOf("templateId: b/leaf", "kind: Site\nmetadata: {name: s}\nspec: {siteId: b/1}")), krm.Limits{})
}

func newTenants(t *testing.T, options catalog.Options) *tenants {
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
	if options.Access == "" {
		options.Access = rights.Enforce
	}
	options.CheckSource = func(tko.SourceDefinition) error { return nil }
	service := catalog.New(store, validator, options)
	if _, err := rights.InitAccess(t.Context(), store, "cert:root", "first", time.Time{}); err != nil {
		t.Fatal(err)
	}
	w := &tenants{Service: service, t: t, runner: &scripted{}}
	w.root = w.as("cert:root")
	stopping := make(chan struct{})
	server := grpcapi.NewServer(service, grpcapi.Options{Stopping: stopping})
	var serving sync.WaitGroup
	connect := func(role string) *client.Client {
		listener := bufconn.Listen(1 << 20)
		serving.Go(func() { _ = server.Serve(grpcapi.ListenProcess(listener, role)) })
		conn, err := grpc.NewClient("passthrough:///"+role, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		c, err := client.New(conn, client.Options{})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	w.preparer, w.gitops = connect(identity.RolePreparer), connect(identity.RoleGitOps)
	t.Cleanup(func() {
		close(stopping)
		server.Stop()
		serving.Wait()
	})
	for _, tenant := range []string{"a", "b"} {
		w.template(tenant+"/empty", "", tenant)
		w.template(tenant+"/leaf", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: leaf}\ndata: {of: "+tenant+"}\n---\napiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: canary-"+tenant+"}\n", tenant)
		w.site(tenant+"/1", tenant)
	}
	w.bind(access.Scope{SiteID: "a/**"})
	w.bind(access.Scope{TemplateID: "a/**"})
	return w
}

func (w *tenants) as(subject string) context.Context {
	return identity.With(w.t.Context(), identity.Identity{Subject: subject, Authenticator: "certificate", From: "192.0.2.7:4711"})
}

func (w *tenants) bind(scope access.Scope) access.Binding {
	w.t.Helper()
	b, err := w.Bind(w.root, access.Binding{Subject: "cert:ada", Role: access.Editor, Scope: scope})
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *tenants) read(yaml string) krm.Package {
	w.t.Helper()
	p, err := krm.Decode(krm.YAML, []byte(yaml), krm.Limits{})
	if err != nil {
		w.t.Fatal(err)
	}
	return p
}

func (w *tenants) template(id, yaml, tenant string) {
	w.t.Helper()
	if _, err := w.RegisterTemplate(w.root, tko.Template{ID: tko.TemplateID(id), Package: w.read(yaml), Metadata: map[string]string{"tenant": tenant}}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *tenants) site(id, tenant string) {
	w.t.Helper()
	if _, err := w.RegisterSite(w.root, tko.Site{ID: tko.SiteID(id), Metadata: map[string]string{"tenant": tenant, "region": "north"}}); err != nil {
		w.t.Fatal(err)
	}
}

// deploy creates a deployment with a topology as a caller.
func (w *tenants) deploy(ctx context.Context, topology string) tko.DeploymentID {
	w.t.Helper()
	id, err := w.CreateDeployment(ctx, tko.NewDeployment{Template: "a/empty", Merge: w.read(topology)})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *tenants) newPreparer() *prepare.Preparer {
	return prepare.New(w.preparer, w.runner, prepare.Options{ReviewPause: time.Nanosecond, TOSCA: compiled{}})
}

// prepare prepares all deployments, as often as a nested topology needs.
func (w *tenants) prepare() {
	w.t.Helper()
	p := w.newPreparer()
	for range 4 {
		for _, d := range w.deployments() {
			p.Prepare(w.t.Context(), tko.WorkItem{Queue: tko.QueuePrepare, Key: string(d.ID)})
		}
	}
}

func (w *tenants) deployments() (all []tko.Deployment) {
	w.t.Helper()
	for d, err := range w.Deployments(w.root, tko.DeploymentSelect{}, tko.ListOptions{Packages: true}) {
		if err != nil {
			w.t.Fatal(err)
		}
		all = append(all, d)
	}
	return all
}

// reached returns what of b/** deployments have, and sites outside of a/** and b/**.
func (w *tenants) reached() (found []string) {
	w.t.Helper()
	for _, d := range w.deployments() {
		if strings.HasPrefix(string(d.Template), "b/") || strings.HasPrefix(string(d.Site), "b/") {
			found = append(found, fmt.Sprintf("%s at %s", d.Template, d.Site))
		}
		text, err := krm.Encode(krm.YAML, d.Package)
		if err != nil {
			w.t.Fatal(err)
		}
		if strings.Contains(string(text), "canary-b") {
			found = append(found, fmt.Sprintf("a Secret of b/** in %s at %s", d.Template, d.Site))
		}
	}
	for s, err := range w.Sites(w.root, tko.SiteSelect{}, tko.ListOptions{}) {
		if err != nil {
			w.t.Fatal(err)
		}
		if !strings.HasPrefix(string(s.ID), "a/") && !strings.HasPrefix(string(s.ID), "b/") {
			found = append(found, "a provisioned site")
		}
	}
	return found
}

func topologyOf(template, site string) string {
	return "apiVersion: topology.nephio.org/v1alpha1\nkind: Placement\nmetadata: {name: p}\nspec:\n  templates:\n  - {template: t, sites: [s]}\n---\n" +
		"apiVersion: topology.nephio.org/v1alpha1\nkind: Template\nmetadata: {name: t}\nspec: {" + template + "}\n---\n" +
		"apiVersion: topology.nephio.org/v1alpha1\n" + site + "\n"
}

const triggerOf = "apiVersion: x.plugin.nephio.org/v1\nkind: X\nmetadata: {name: x}\n"

// roads are the ways in which a deployment leads to others, or to sites.
var roads = map[string]struct {
	topology string
	plugin   func(target krm.Identity, pkg krm.Package) krm.Package
	before   func(w *tenants)
	after    func(w *tenants) // something that others do later
}{
	"child of a named template":    {topology: topologyOf("templateId: b/leaf", "kind: Site\nmetadata: {name: s}\nspec: {siteId: a/1}")},
	"child of a selected template": {topology: topologyOf("select: {metadata: {tenant: b}}", "kind: Site\nmetadata: {name: s}\nspec: {siteId: a/1}")},
	"child at a named site":        {topology: topologyOf("templateId: a/leaf", "kind: Site\nmetadata: {name: s}\nspec: {siteId: b/1}")},
	"child at a selected site":     {topology: topologyOf("templateId: a/leaf", "kind: Site\nmetadata: {name: s}\nspec: {select: {metadata: {tenant: b}}}")},
	"children at selected sites":   {topology: topologyOf("templateId: a/leaf", "kind: Sites\nmetadata: {name: s}\nspec: {select: {metadata: {region: north}}}")},
	"children at all sites":        {topology: topologyOf("templateId: a/leaf", "kind: Sites\nmetadata: {name: s}\nspec: {select: {all: true}}")},
	"child at a provisioned site":  {topology: topologyOf("templateId: a/leaf", "kind: Site\nmetadata: {name: s}\nspec: {provisionIfNotFound: true}")},
	"provisioned site of a template": {topology: topologyOf("templateId: a/leaf",
		"kind: Site\nmetadata: {name: s}\nspec: {provisionIfNotFound: true, provisionTemplateId: b/leaf}")},
	"site that comes later": {
		topology: strings.Replace(topologyOf("templateId: a/leaf", "kind: Sites\nmetadata: {name: s}\nspec: {select: {metadata: {region: north}}}"), "spec:\n  templates", "spec:\n  update: Apply\n  templates", 1),
		after:    func(w *tenants) { w.site("b/2", "b") },
	},
	"nested topology": {
		before: func(w *tenants) {
			w.template("a/nested", topologyOf("templateId: a/leaf", "kind: Sites\nmetadata: {name: s}\nspec: {select: {metadata: {region: north}}}"), "a")
		},
		topology: topologyOf("templateId: a/nested", "kind: Site\nmetadata: {name: s}\nspec: {siteId: a/1}"),
	},
	"merge of a Secret": {
		topology: strings.Replace(topologyOf("templateId: a/leaf", "kind: Site\nmetadata: {name: s}\nspec: {siteId: b/1}"), "sites: [s]}", "sites: [s], merge: [{apiVersion: v1, kind: Secret, name: own}]}", 1) +
			"---\napiVersion: v1\nkind: Secret\nmetadata: {name: own}\nstringData: {p: mine}\n",
	},
	"service template": {topology: "apiVersion: topology.nephio.org/v1alpha1\nkind: TOSCA\nmetadata: {name: t}\nspec: {url: \"file:/t.yaml\"}\n"},
	"output of a plugin that moves it to a site": {
		topology: triggerOf,
		plugin: func(target krm.Identity, pkg krm.Package) krm.Package {
			pkg.Find(target).SetPrepared()
			return pkg.WithDeployment("a/empty", "b/1", false, false)
		},
	},
	"output of a plugin that names a template": {
		topology: triggerOf,
		plugin: func(target krm.Identity, pkg krm.Package) krm.Package {
			pkg.Find(target).SetPrepared()
			return pkg.WithDeployment("b/leaf", "a/1", false, false)
		},
	},
	"output of a plugin with a topology": {
		topology: triggerOf,
		plugin: func(target krm.Identity, pkg krm.Package) krm.Package {
			pkg.Find(target).SetPrepared()
			more, err := krm.Decode(krm.YAML, []byte(topologyOf("templateId: b/leaf", "kind: Site\nmetadata: {name: s}\nspec: {siteId: b/1}")), krm.Limits{})
			if err != nil {
				panic(err)
			}
			return append(pkg, more...)
		},
	},
}

func TestDerivationDoesNotReachWhatItsAuthorMayNot(t *testing.T) {
	t.Parallel()
	for name, road := range roads {
		for who, limited := range map[string]bool{"cert:ada": true, "cert:root": false} {
			t.Run(name+" of "+who, func(t *testing.T) {
				t.Parallel()
				w := newTenants(t, catalog.Options{})
				w.runner.do = road.plugin
				if road.plugin != nil {
					if _, err := w.RegisterPlugin(w.root, tko.Plugin{Type: tko.PluginPrepare, Name: "x", Executor: tko.ExecutorCommand, Arguments: []string{"x"}, Triggers: []krm.GVK{krm.ParseGVK("x.plugin.nephio.org/v1", "X")}}); err != nil {
						t.Fatal(err)
					}
				}
				if road.before != nil {
					road.before(w)
				}
				w.deploy(w.as(who), road.topology)
				w.prepare()
				if road.after != nil {
					road.after(w)
					w.prepare()
				}
				found := w.reached()
				if limited && len(found) > 0 {
					t.Errorf("the derivation reaches %q", found)
				}
				if !limited && len(found) == 0 {
					t.Errorf("the road leads nowhere, so that the test shows nothing: %+v", w.deployments())
				}
			})
		}
	}
}

// condition returns the condition of a deployment, with its reason and message.
func (w *tenants) condition(id tko.DeploymentID, typ string) tko.Condition {
	w.t.Helper()
	d, err := w.Deployment(w.root, id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	c := tko.FindCondition(d.Stamp.Conditions, typ)
	if c == nil {
		return tko.Condition{}
	}
	return *c
}

func TestMissingAndForbiddenReferencesWaitAlike(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	const at = "kind: Site\nmetadata: {name: s}\nspec: {siteId: %s}"
	for name, pair := range map[string][2]string{
		"template": {topologyOf("templateId: b/leaf", fmt.Sprintf(at, "a/1")), topologyOf("templateId: b/none", fmt.Sprintf(at, "a/1"))},
		"site":     {topologyOf("templateId: a/leaf", fmt.Sprintf(at, "b/1")), topologyOf("templateId: a/leaf", fmt.Sprintf(at, "b/9"))},
		"selector": {topologyOf("select: {metadata: {tenant: b}}", fmt.Sprintf(at, "a/1")), topologyOf("select: {metadata: {tenant: c}}", fmt.Sprintf(at, "a/1"))},
	} {
		forbidden, missing := w.deploy(w.as("cert:ada"), pair[0]), w.deploy(w.as("cert:ada"), pair[1])
		w.prepare()
		a, b := w.condition(forbidden, tko.ConditionPrepared), w.condition(missing, tko.ConditionPrepared)
		text := strings.NewReplacer("b/none", "b/leaf", "b/9", "b/1", `"c"`, `"b"`).Replace(b.Message)
		if a.Status != tko.ConditionFalse || a.Reason != b.Reason || a.Message != text {
			t.Errorf("%s: a forbidden one differs from a missing one:\n%s: %s\n%s: %s", name, a.Reason, a.Message, b.Reason, b.Message)
		}
	}
}

func TestDerivationIsHeldWithoutTheRightsOfItsOwnerAndGoesOnWithThem(t *testing.T) {
	t.Parallel()
	apply := strings.Replace(topologyOf("templateId: a/leaf", "kind: Sites\nmetadata: {name: s}\nspec: {select: {metadata: {tenant: a}}}"), "spec:\n  templates", "spec:\n  update: Apply\n  budget: {delete: 100}\n  templates", 1)
	for name, lose := range map[string]func(w *tenants) (back func()){
		"bindings removed": func(w *tenants) func() {
			rules, err := w.Bindings(w.root)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, b := range rules.Bindings {
				if b.Subject == "cert:ada" {
					if err := w.Unbind(tko.WithConfirmation(w.root, 50), b.ID); err != nil {
						w.t.Fatal(err)
					}
				}
			}
			return func() {
				w.bind(access.Scope{SiteID: "a/**"})
				w.bind(access.Scope{TemplateID: "a/**"})
			}
		},
		"one of the scopes removed": func(w *tenants) func() { // the sites are out of sight, the children aren't
			rules, err := w.Bindings(w.root)
			if err != nil {
				w.t.Fatal(err)
			}
			for _, b := range rules.Bindings {
				if b.Subject == "cert:ada" && b.Scope.SiteID != "" {
					if err := w.Unbind(tko.WithConfirmation(w.root, 50), b.ID); err != nil {
						w.t.Fatal(err)
					}
				}
			}
			return func() { w.bind(access.Scope{SiteID: "a/**"}) }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTenants(t, catalog.Options{})
			w.site("a/2", "a")
			id := w.deploy(w.as("cert:ada"), apply)
			w.prepare()
			before := len(w.deployments())
			if before != 3 {
				t.Fatalf("%d deployments, want the topology and two children: %+v", before, w.condition(id, tko.ConditionPrepared))
			}
			back := lose(w)
			w.site("a/3", "a")
			w.prepare()
			if after := len(w.deployments()); after != before {
				t.Errorf("%d deployments without the rights, want %d as before", after, before)
			}
			if c := w.condition(id, tko.ConditionPlaced); c.Status != tko.ConditionFalse || c.Reason != prepare.ReasonHeld || !strings.Contains(c.Message, "cert:ada") {
				t.Errorf("the condition is %+v, want it held", c)
			}
			back()
			w.prepare()
			if after := len(w.deployments()); after != before+1 {
				t.Errorf("%d deployments with the rights, want one for the new site: %+v", after, w.condition(id, tko.ConditionPlaced))
			}
			if c := w.condition(id, tko.ConditionPlaced); c.Status != tko.ConditionTrue {
				t.Errorf("the condition is %+v, want it True", c)
			}
		})
	}
}

func TestUnownedDeploymentsDeriveAsBefore(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{Access: rights.Off})
	id := w.deploy(t.Context(), topologyOf("templateId: b/leaf", "kind: Sites\nmetadata: {name: s}\nspec: {select: {metadata: {region: north}}}"))
	w.prepare()
	if o, err := w.Owner(t.Context(), tko.KindDeployment, string(id)); err != nil || o.String() != tko.OwnerUnowned {
		t.Errorf("the owner is %v (%v)", o, err)
	}
	if len(w.deployments()) != 3 {
		t.Errorf("%d deployments, want the topology and two children", len(w.deployments()))
	}
}

func TestEditingMakesTheEditorTheOwnerAndDescendantsFollow(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	owner := func(id tko.DeploymentID) string {
		t.Helper()
		o, err := w.Owner(w.root, tko.KindDeployment, string(id))
		if err != nil {
			t.Fatal(err)
		}
		return o.String()
	}
	id := w.deploy(w.root, topologyOf("templateId: a/leaf", "kind: Site\nmetadata: {name: s}\nspec: {siteId: a/1}"))
	w.prepare()
	var child tko.Deployment
	for _, d := range w.deployments() {
		if d.Parent == id {
			child = d
		}
	}
	if owner(id) != "cert:root" || owner(child.ID) != "cert:root" || child.Stamp.Who != "preparer" {
		t.Fatalf("owners %s and %s, author %q", owner(id), owner(child.ID), child.Stamp.Who)
	}
	modify := func(ctx context.Context, change func(krm.Package) krm.Package) {
		t.Helper()
		m, err := w.StartModification(ctx, id)
		if err == nil {
			_, _, err = w.EndModification(ctx, m.Token, change(m.Package))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	modify(w.as("cert:ada"), func(pkg krm.Package) krm.Package { return pkg })
	if owner(id) != "cert:root" {
		t.Errorf("a modification that changes nothing made %s the owner", owner(id))
	}
	modify(w.as("cert:ada"), func(pkg krm.Package) krm.Package {
		return append(pkg, w.read("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: more}\n")...)
	})
	if owner(id) != "cert:ada" || owner(child.ID) != "cert:ada" {
		t.Errorf("after the edit, the owners are %s and %s", owner(id), owner(child.ID))
	}
	w.prepare()
	if _, err := w.ApproveDeployment(w.root, id); err != nil && !errors.Is(err, tko.ErrInvalid) {
		t.Fatal(err)
	}
	if owner(id) != "cert:ada" {
		t.Errorf("preparation, or an approval, made %s the owner", owner(id))
	}
	if err := w.SetOwner(w.as("cert:ada"), tko.KindDeployment, string(id), tko.Owner{Subject: "cert:root"}); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("an editor names another owner: %v", err)
	}
	if err := w.SetOwner(w.root, tko.KindDeployment, string(id), tko.Owner{Groups: []string{"oidc:corp:noc"}}); err != nil {
		t.Fatal(err)
	}
	if owner(id) != "group oidc:corp:noc" || owner(child.ID) != "group oidc:corp:noc" {
		t.Errorf("after the assignment, the owners are %s and %s", owner(id), owner(child.ID))
	}
}

// unnamed are all calls of the preparer: each is refused if it doesn't say what it is for,
// or shows nothing that can be changed by it.
var unnamed = map[string]struct {
	call    func(ctx context.Context, w *tenants, c *client.Client, id tko.DeploymentID) error
	want    error // without a name
	forEach error // as cert:ada, of what is of b/**
}{
	"About": {call: func(ctx context.Context, _ *tenants, c *client.Client, _ tko.DeploymentID) error {
		_, err := c.About(ctx)
		return err
	}},
	"Plugins": {call: func(ctx context.Context, _ *tenants, c *client.Client, _ tko.DeploymentID) error {
		return each(c.Plugins(ctx, tko.PluginSelect{}, tko.ListOptions{}))
	}},
	"Templates": {call: func(ctx context.Context, _ *tenants, c *client.Client, _ tko.DeploymentID) error {
		return none(ctx, c.Templates(ctx, tko.TemplateSelect{IDs: []string{"b/**"}}, tko.ListOptions{}))
	}},
	"Sites": {call: func(ctx context.Context, _ *tenants, c *client.Client, _ tko.DeploymentID) error {
		return none(ctx, c.Sites(ctx, tko.SiteSelect{IDs: []string{"b/**"}}, tko.ListOptions{}))
	}},
	"Deployments": {call: func(ctx context.Context, _ *tenants, c *client.Client, _ tko.DeploymentID) error {
		return none(ctx, c.Deployments(ctx, tko.DeploymentSelect{Sites: []string{"b/**"}}, tko.ListOptions{}))
	}},
	"Deployment": {forEach: tko.ErrNotFound, call: func(ctx context.Context, w *tenants, c *client.Client, _ tko.DeploymentID) error {
		_, err := c.Deployment(ctx, w.ofB(), 0)
		return err
	}},
	"CreateChildren": {forEach: tko.ErrDenied, call: func(ctx context.Context, _ *tenants, c *client.Client, id tko.DeploymentID) error { // names the parent
		_, _, err := c.CreateChildren(ctx, tko.NewChildren{Parent: id, Children: []tko.NewChild{{Origin: "x", Template: "b/leaf", Site: "b/1"}}})
		return err
	}, want: tko.ErrDenied},
	"ProvisionSite": {want: tko.ErrDenied, forEach: tko.ErrDenied, call: func(ctx context.Context, _ *tenants, c *client.Client, _ tko.DeploymentID) error {
		_, _, err := c.ProvisionSite(ctx, tko.NewSite{Origin: "o"})
		return err
	}},
	"ResolveSite": {forEach: tko.ErrNotFound, call: func(ctx context.Context, _ *tenants, c *client.Client, _ tko.DeploymentID) error { // as its owner, whatever the call is for
		_, err := c.ResolveSite(ctx, "b/1")
		return err
	}},
	"CommitDeployment": {want: tko.ErrInvalid, forEach: tko.ErrInvalid, call: func(ctx context.Context, w *tenants, c *client.Client, id tko.DeploymentID) error { // names it
		_, err := c.CommitDeployment(ctx, tko.DeploymentCommit{ID: id, Revision: 1, Package: w.read("").WithDeployment("a/empty", "b/1", false, false)})
		return err
	}},
	"DeleteDeployment": {want: tko.ErrDenied, forEach: tko.ErrNotFound, call: func(ctx context.Context, w *tenants, c *client.Client, _ tko.DeploymentID) error {
		_, err := c.DeleteDeployment(ctx, w.ofB())
		return err
	}},
	"DeleteDeploymentAt": {want: tko.ErrDenied, forEach: tko.ErrNotFound, call: func(ctx context.Context, w *tenants, c *client.Client, _ tko.DeploymentID) error {
		_, err := c.DeleteDeploymentAt(ctx, w.ofB(), 1)
		return err
	}},
	"SetConditions": {want: tko.ErrDenied, call: func(ctx context.Context, _ *tenants, c *client.Client, id tko.DeploymentID) error {
		return c.SetConditions(ctx, tko.KindDeployment, string(id), nil)
	}},
	"ReservedOrigins": {call: func(ctx context.Context, _ *tenants, c *client.Client, id tko.DeploymentID) error {
		_, err := c.ReservedOrigins(ctx, id)
		return err
	}},
	"ProposeRollout": {want: tko.ErrDenied, call: func(ctx context.Context, w *tenants, c *client.Client, _ tko.DeploymentID) error {
		_, err := c.ProposeRollout(ctx, "placement/x", w.read("apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {edits: [{delete: {}, select: {siteIdPatterns: [\"b/**\"]}}]}\n"))
		return err
	}},
	"ClaimWork": {call: func(ctx context.Context, _ *tenants, c *client.Client, _ tko.DeploymentID) error {
		_, err := c.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1, Lease: time.Minute})
		return err
	}},
	"RenewWork": {call: func(ctx context.Context, _ *tenants, c *client.Client, _ tko.DeploymentID) error {
		_, err := c.RenewWork(ctx, nil, time.Minute)
		return err
	}},
	"FinishWork": {call: func(ctx context.Context, _ *tenants, c *client.Client, _ tko.DeploymentID) error {
		return c.FinishWork(ctx, nil)
	}},
}

func each[T any](list func(func(T, error) bool)) error {
	for _, err := range list {
		if err != nil {
			return err
		}
	}
	return nil
}

// none is an error if a list that is made for an author shows something.
func none[T any](ctx context.Context, list func(func(T, error) bool)) error {
	_, named := tko.ActingOf(ctx)
	n := 0
	for _, err := range list {
		if err != nil {
			return err
		}
		n++
	}
	if named && n > 0 {
		return fmt.Errorf("the list shows %d entities of b/**", n)
	}
	return nil
}

// ofB returns a deployment of b/**.
func (w *tenants) ofB() tko.DeploymentID {
	w.t.Helper()
	for _, d := range w.deployments() {
		if d.Site == "b/1" {
			return d.ID
		}
	}
	id, err := w.CreateDeployment(w.root, tko.NewDeployment{Template: "b/leaf", Site: "b/1"})
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func TestEachCallOfThePreparerIsForAnAuthorOrChangesNothing(t *testing.T) {
	t.Parallel()
	methods := map[string]bool{}
	for _, of := range []reflect.Type{reflect.TypeFor[prepare.Client]()} {
		for method := range of.Methods() {
			methods[method.Name] = true
		}
	}
	for _, name := range slices.Sorted(maps.Keys(methods)) {
		if _, ok := unnamed[name]; !ok {
			t.Errorf("the preparer calls %s, of which the test doesn't say what it may do without an author", name)
		}
	}
	for name, call := range unnamed {
		if !methods[name] {
			t.Errorf("the preparer doesn't call %s", name)
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTenants(t, catalog.Options{})
			id, b := w.deploy(w.as("cert:ada"), ""), w.ofB()
			is := func(what string, err, want error) {
				t.Helper()
				if !errors.Is(err, want) {
					t.Errorf("%s: %v, want %v", what, err, want)
				}
			}
			is("without a name", call.call(t.Context(), w, w.preparer, id), call.want)
			is("for a deployment of cert:ada", call.call(tko.WithActing(t.Context(), tko.Acting{Kind: tko.KindDeployment, ID: string(id)}), w, w.preparer, id), call.forEach)
			if len(w.deployments()) != 2 {
				t.Errorf("the calls created or deleted deployments")
			}
			if _, err := w.Deployment(w.root, b, 0); err != nil {
				t.Error(err)
			}
		})
	}
}
