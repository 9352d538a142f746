package catalog_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/rights"
	"github.com/tko-orchestrator/tko/krm"
)

// newTenants returns a world with the sites emea/1 and apac/1, and the template "t", in
// which cert:ada edits emea/**.
func newTenants(t *testing.T, options catalog.Options) *world {
	t.Helper()
	options.CheckSource = func(tko.SourceDefinition) error { return nil }
	w := newGuarded(t, options)
	w.site("emea/1", "")
	w.site("apac/1", "")
	w.template("t", "")
	w.bind("cert:ada", access.Editor, emea)
	w.bind("cert:ada", access.Viewer, access.Scope{Kinds: []tko.Kind{tko.KindTemplate}})
	return w
}

func (w *world) createAs(ctx context.Context, request tko.NewDeployment) tko.DeploymentID {
	w.t.Helper()
	id, err := w.CreateDeployment(ctx, request)
	if err != nil {
		w.t.Fatal(err)
	}
	return id
}

func (w *world) ownerOf(id tko.DeploymentID) string {
	w.t.Helper()
	o, err := w.Owner(w.ctx, tko.KindDeployment, string(id))
	if err != nil {
		w.t.Fatal(err)
	}
	return o.String()
}

// A preparer of the original project calls from outside, without naming what it works for:
// its token and its parents name it.
func TestOriginalPreparerActsAsTheAuthorOfItsTokenAndOfItsParent(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	w.bind("cert:preparer", access.ControllerPrepare, access.Scope{})
	ctx := w.as("cert:preparer")
	of := w.createAs(w.as("cert:ada"), tko.NewDeployment{Site: "emea/1"})
	root := w.createAs(w.ctx, tko.NewDeployment{})

	change := func(id tko.DeploymentID, to string) error {
		t.Helper()
		m, err := w.StartModification(ctx, id)
		if err != nil {
			return err
		}
		_, _, err = w.EndModification(ctx, m.Token, m.Package.WithDeployment("", to, false, false))
		if err != nil {
			w.is("cancel", w.CancelModification(ctx, m.Token), nil)
		}
		return err
	}
	w.is("its token of a deployment of ada", change(of, "emea/1"), nil)
	w.is("to a site that ada may not see", change(of, "apac/1"), tko.ErrDenied)
	w.is("its token of a deployment of an administrator", change(root, "apac/1"), nil)
	for name, c := range map[string]struct {
		parent tko.DeploymentID
		site   tko.SiteID
		want   error
	}{
		"a child of ada":                    {of, "emea/1", nil},
		"a child of ada elsewhere":          {of, "apac/1", tko.ErrDenied},
		"a child of an administrator there": {root, "apac/1", nil},
		"a deployment without a parent":     {"", "emea/1", tko.ErrDenied},
	} {
		_, err := w.CreateDeployment(ctx, tko.NewDeployment{Parent: c.parent, Site: c.site})
		w.is(name, err, c.want)
	}
	_, err := w.RegisterSite(ctx, tko.Site{ID: "emea/2"})
	w.is("a site", err, tko.ErrDenied)
	_, err = w.DeleteDeployment(ctx, of)
	w.is("a deletion", err, tko.ErrDenied)
	if w.ownerOf(of) != "cert:ada" || w.ownerOf(root) != "cert:root" {
		t.Errorf("the owners are %s and %s", w.ownerOf(of), w.ownerOf(root))
	}
	if named := w.claiming(ctx, root); true { // a name isn't a right to others
		_, err = w.CommitDeployment(named, tko.DeploymentCommit{ID: of, Revision: w.deployment(of).Stamp.Revision, Package: pkg(t, thing("x", ""))})
		w.is("a deployment that isn't below the named one", err, tko.ErrDenied)
	}
	_, err = w.CreateDeployment(tko.WithActing(w.as("cert:ada"), tko.Acting{Kind: tko.KindDeployment, ID: string(root)}), tko.NewDeployment{Site: "apac/1"})
	w.is("a user who names a deployment of an administrator", err, tko.ErrDenied)
}

// claiming returns calls of a controller that works for a deployment, whose work it claims.
func (w *world) claiming(ctx context.Context, id tko.DeploymentID) context.Context {
	w.t.Helper()
	w.is("enqueue", w.store.EnqueueWork(w.ctx, tko.QueuePrepare, []string{string(id)}, false), nil)
	if _, err := w.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 100, Lease: time.Minute}); err != nil {
		w.t.Fatal(err)
	}
	claim, _, err := w.WorkClaim(ctx, tko.QueuePrepare, string(id))
	if err != nil {
		w.t.Fatal(err)
	}
	return tko.WithActing(ctx, tko.Acting{Kind: tko.KindDeployment, ID: string(id), Claim: claim})
}

// Controllers of other processes work for what they have claimed, and for nothing that they
// only name.
func TestControllerInAnotherProcessWorksOnlyForWhatItHasClaimed(t *testing.T) {
	t.Parallel()
	conditions := []tko.Condition{{Type: "X", Status: tko.ConditionTrue}}
	for name, test := range map[string]struct {
		as   func(w *world, of tko.DeploymentID) context.Context
		want error
	}{
		"a claim": {func(w *world, of tko.DeploymentID) context.Context { return w.claiming(w.as("cert:preparer"), of) }, nil},
		"a claim by a controller of the settings": {func(w *world, of tko.DeploymentID) context.Context {
			return w.claiming(identity.With(w.ctx, identity.Identity{Subject: identity.Own + identity.RolePreparer, Authenticator: "cert"}), of)
		}, nil},
		"a name": {func(w *world, of tko.DeploymentID) context.Context {
			return tko.WithActing(w.as("cert:preparer"), tko.Acting{Kind: tko.KindDeployment, ID: string(of)})
		}, tko.ErrDenied},
		"a name by a controller of the settings": {func(w *world, of tko.DeploymentID) context.Context {
			other := identity.With(w.ctx, identity.Identity{Subject: identity.Own + identity.RolePreparer, Authenticator: "cert"})
			return tko.WithActing(other, tko.Acting{Kind: tko.KindDeployment, ID: string(of)})
		}, tko.ErrDenied},
		"another claim": {func(w *world, of tko.DeploymentID) context.Context {
			ctx := w.claiming(w.as("cert:preparer"), of)
			return tko.WithActing(ctx, tko.Acting{Kind: tko.KindDeployment, ID: string(of), Claim: "other"})
		}, tko.ErrConflict},
		"the claim of other work": {func(w *world, of tko.DeploymentID) context.Context {
			ctx := w.claiming(w.as("cert:preparer"), w.createAs(w.ctx, tko.NewDeployment{}))
			acting, _ := tko.ActingOf(ctx)
			return tko.WithActing(ctx, tko.Acting{Kind: tko.KindDeployment, ID: string(of), Claim: acting.Claim + "x"})
		}, tko.ErrConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newTenants(t, catalog.Options{})
			w.bind("cert:preparer", access.ControllerPrepare, access.Scope{})
			of := w.createAs(w.as("cert:ada"), tko.NewDeployment{Site: "emea/1"})
			foreign := w.createAs(w.ctx, tko.NewDeployment{Site: "apac/1"})
			child := w.createAs(w.as("cert:ada"), tko.NewDeployment{Parent: of, Site: "emea/1"})
			ctx := test.as(w, of)
			key := func(id tko.DeploymentID) record.Key { return record.Key{Kind: tko.KindDeployment, ID: string(id)} }
			before, _ := w.Position(w.ctx)
			for _, err := range []error{
				w.SetConditions(ctx, tko.KindDeployment, string(foreign), conditions),
				errOf(w.PutConditions(ctx, key(foreign), conditions, nil, record.Requirement{}, false)),
				w.SetConditions(ctx, tko.KindSite, "emea/1", conditions),
			} {
				if err == nil {
					t.Error("it set conditions of what it doesn't work for")
				}
			}
			if after, err := w.Position(w.ctx); err != nil || after != before {
				t.Errorf("something has changed: %v", err)
			}
			w.is("its own conditions", w.SetConditions(ctx, tko.KindDeployment, string(of), conditions), test.want)
			_, err := w.DeleteDeployment(ctx, child)
			w.is("a child that is no longer wanted", err, test.want)
		})
	}
}

func errOf[T any](_ T, err error) error { return err }

func TestBoundControllerIsLimitedByItsOwnScopeToo(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	w.bind("cert:preparer", access.ControllerPrepare, emea)
	ctx := w.as("cert:preparer")
	in := w.createAs(w.ctx, tko.NewDeployment{Site: "emea/1"})
	out := w.createAs(w.ctx, tko.NewDeployment{Site: "apac/1"})
	_, err := w.CreateDeployment(ctx, tko.NewDeployment{Parent: in, Site: "emea/1"})
	w.is("within both", err, nil)
	_, err = w.CreateDeployment(ctx, tko.NewDeployment{Parent: in, Site: "apac/1"})
	w.is("out of its scope", err, tko.ErrDenied)
	_, err = w.Deployment(tko.WithActing(ctx, tko.Acting{Kind: tko.KindDeployment, ID: string(out)}), out, 0)
	w.is("reading what it names", err, tko.ErrNotFound)
}

func TestSourceActsAsItsOwner(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	w.bind("cert:ada", access.DefineRole, access.Scope{})
	register := func(ctx context.Context, name string) {
		t.Helper()
		if _, err := w.RegisterSources(ctx, []tko.SourceDefinition{{Kind: tko.SourceKinds[0], Name: name, Spec: []byte(`{}`)}}, false); err != nil {
			t.Fatal(err)
		}
	}
	register(w.as("cert:ada"), "of-ada")
	register(w.ctx, "of-root")
	controller := identity.With(t.Context(), identity.Controller(identity.RoleGitOps))
	put := func(source, origin string, site tko.SiteID) (string, error) {
		ctx := controller
		if source != "" {
			ctx = tko.WithActing(ctx, tko.Acting{Kind: tko.KindSource, ID: source})
		}
		r, err := w.PutEntity(ctx, tko.Put{Kind: tko.KindDeployment, Origin: origin, Site: site})
		return r.ID, err
	}
	owned := map[string]string{}
	for name, c := range map[string]struct {
		source string
		site   tko.SiteID
		want   error
		owner  string
	}{
		"what its owner may":                {"of-ada", "emea/1", nil, "cert:ada"},
		"what its owner may not":            {"of-ada", "apac/1", tko.ErrDenied, ""},
		"a source of another owner":         {"of-root", "apac/1", nil, "cert:root"},
		"a source of the server's settings": {"fleet", "apac/1", nil, "gitops:fleet"},
		"without a source":                  {"", "emea/1", tko.ErrDenied, ""},
	} {
		id, err := put(c.source, strings.ReplaceAll(name, " ", "-"), c.site)
		w.is(name, err, c.want)
		if err == nil && w.ownerOf(tko.DeploymentID(id)) != c.owner {
			t.Errorf("%s: the owner is %s, want %s", name, w.ownerOf(tko.DeploymentID(id)), c.owner)
		}
		owned[name] = id
	}
	ctx := tko.WithActing(controller, tko.Acting{Kind: tko.KindSource, ID: "of-ada"})
	_, err := w.DeleteDeployment(ctx, tko.DeploymentID(owned["a source of another owner"]))
	w.is("a removal of what its owner may not see", err, tko.ErrNotFound)
	if n := len(all(t, w.Sites(ctx, tko.SiteSelect{}, tko.ListOptions{}))); n != 1 {
		t.Errorf("the source sees %d sites, want the one of its owner", n)
	}

	w.template("secret", "apiVersion: v1\nkind: Secret\nmetadata: {name: s}\nstringData: {p: canary}\n")
	if made, err := w.Template(ctx, "secret", 0); err != nil || made.Package[0].Text("stringData", "p") != "canary" {
		t.Errorf("the source can't make deployments from a template with a Secret: %v (%v)", made.Package, err)
	}
	if read, err := w.Template(w.as("cert:ada"), "secret", 0); err != nil || read.Package[0].Text("stringData", "p") == "canary" {
		t.Errorf("its owner sees the Secret: %v", err)
	}

	w.bind("gitops:fleet", access.Editor, emea) // what is bound limits it
	_, err = put("fleet", "limited", "apac/1")
	w.is("a source of the settings that is bound to a scope", err, tko.ErrDenied)

	w.is("another owner", w.SetOwner(w.ctx, tko.KindSource, "of-ada", tko.Owner{Subject: "cert:root"}), nil)
	_, err = put("of-ada", "later", "apac/1")
	w.is("with another owner", err, nil)
	register(w.as("cert:ada"), "of-root")
	if o, err := w.Owner(w.ctx, tko.KindSource, "of-root"); err != nil || o.String() != "cert:root" {
		t.Errorf("a registration that changes nothing: the owner is %v (%v)", o, err)
	}
}

func TestBindingsThatOwnersNeedAreCounted(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	for range 3 {
		w.createAs(w.as("cert:ada"), tko.NewDeployment{Site: "emea/1"})
	}
	w.createAs(w.ctx, tko.NewDeployment{Site: "emea/1"})
	w.bind("cert:ada", access.DefineRole, access.Scope{})
	if _, err := w.RegisterSources(w.as("cert:ada"), []tko.SourceDefinition{{Kind: tko.SourceKinds[0], Name: "s", Spec: []byte(`{}`)}}, false); err != nil {
		t.Fatal(err)
	}
	rules, err := w.Bindings(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range rules.Bindings {
		want := tko.Owned{Deployments: 1}
		if b.Subject == "cert:ada" {
			want = tko.Owned{Deployments: 3, Sources: 1}
		}
		if n, err := w.CountOwned(w.ctx, b.ID); err != nil || n != want {
			t.Errorf("%s %s: %+v (%v), want %+v", b.Subject, b.Role, n, err, want)
		}
	}
	_, err = w.CountOwned(w.as("cert:ada"), rules.Bindings[0].ID)
	w.is("by an editor", err, tko.ErrDenied)
}

// A leaver owned a thousand deployments: who unbinds the subject sees what would be
// held, and confirms it, or names another owner before. Also a script does.
func TestUnbindingOfAnOwnerNeedsConsent(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	const n = 1000
	for range n {
		w.createAs(w.as("cert:ada"), tko.NewDeployment{Site: "emea/1"})
	}
	rules, err := w.Bindings(w.ctx)
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(rules.Bindings, func(b access.Binding) bool { return b.Subject == "cert:ada" })
	id := rules.Bindings[i].ID
	wantError(t, w.Unbind(w.ctx, id), tko.ErrInvalid, "1000 deployments", "tko access own", "--confirm=1000")
	wantError(t, w.Unbind(tko.WithConfirmation(w.ctx, n-1), id), tko.ErrInvalid, "999 were confirmed")
	wantError(t, w.Unbind(tko.WithConfirmation(w.ctx, 2*n), id), tko.ErrInvalid, "2000 were confirmed")

	// The same rights by another binding: nothing would be held.
	again := rules.Bindings[i]
	again.ID = ""
	again, err = w.Bind(w.ctx, again)
	w.is("bind again", err, nil)
	w.is("one of two", w.Unbind(w.ctx, again.ID), nil)
	w.is("with consent", w.Unbind(tko.WithConfirmation(w.ctx, n), id), nil)
	if left := len(all(t, w.Deployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{}))); left != n {
		t.Errorf("%d deployments are left of %d: a lost right deletes nothing", left, n)
	}
}

func TestPluginRunSeesWhatItsAuthorSees(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	of := w.createAs(w.as("cert:ada"), tko.NewDeployment{Site: "emea/1"})
	run := identity.With(t.Context(), identity.OfPlugin(identity.Plugin{Type: "prepare", Name: "p", Kind: tko.KindDeployment, ID: string(of)}, time.Now().Add(time.Hour), "127.0.0.1:1"))
	_, err := w.Site(run, "emea/1", 0)
	w.is("what its author may read", err, nil)
	_, err = w.Site(run, "apac/1", 0)
	w.is("what its author may not read", err, tko.ErrNotFound)
	_, err = w.CreateDeployment(run, tko.NewDeployment{Parent: of, Site: "emea/1"})
	w.is("a child", err, nil)
	_, err = w.CreateDeployment(run, tko.NewDeployment{Parent: of, Site: "apac/1"})
	w.is("a child elsewhere", err, tko.ErrDenied)
	w.bind("tko:plugin:prepare/p", access.Viewer, access.Scope{SiteID: "apac/**"})
	_, err = w.Site(run, "apac/1", 0)
	w.is("what the plugin is bound", err, nil)
}

func TestRolloutFunctionsObeyTheRulesOfPlugins(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{CheckFunction: func(image string) error {
		if strings.Contains(image, "/elsewhere/") {
			return tko.Errorf(tko.ErrInvalid, "it is not below a folder of --plugin-programs")
		}
		return nil
	}})
	w.bind("cert:ada", access.Editor, access.Scope{Kinds: []tko.Kind{tko.KindRollout}})
	register := func(ctx context.Context, image string) error {
		yaml := "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {edits: [{function: {image: \"" + image + "\"}, select: {siteIdPatterns: [\"**\"]}}]}\n"
		_, err := w.RegisterRollout(ctx, tko.Rollout{ID: "r", Package: pkg(t, yaml)})
		if err == nil {
			_, err = w.PutEntity(ctx, tko.Put{Kind: tko.KindRollout, ID: "r2", Package: pkg(t, yaml)})
		}
		return err
	}
	for _, image := range []string{"exec:/elsewhere/id", "wasm:/elsewhere/f.wasm"} {
		err := register(w.ctx, image)
		wantError(t, err, tko.ErrInvalid, image, "--plugin-programs")
	}
	for _, image := range []string{"exec:/programs/id", "wasm:/programs/f.wasm"} {
		w.is("an administrator, "+image, register(w.ctx, image), nil)
		w.is("an editor, "+image, register(w.as("cert:ada"), image), tko.ErrDenied)
	}
	w.is("an editor, an image", register(w.as("cert:ada"), "ghcr.io/kptdev/krm-functions-catalog/set-annotations:v0.1.4"), nil)
}

func TestReportModeDerivesAsBeforeAndSaysWhatWouldStop(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{Access: rights.Report, Audit: true})
	w.site("apac/1", "")
	of := w.createAs(w.as("cert:ada"), tko.NewDeployment{})
	preparer := tko.WithActing(identity.With(t.Context(), identity.Controller(identity.RolePreparer)), tko.Acting{Kind: tko.KindDeployment, ID: string(of)})
	_, err := w.CreateDeployment(preparer, tko.NewDeployment{Parent: of, Site: "apac/1"})
	w.is("a child", err, nil)
	if n := len(all(t, w.Sites(preparer, tko.SiteSelect{}, tko.ListOptions{}))); n != 1 {
		t.Errorf("%d sites are listed", n)
	}
	var details []string
	for stored, err := range w.AuditRecords(w.as("cert:ada"), audit.Select{Decision: audit.Report}) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := stored.Record()
		if err != nil {
			t.Fatal(err)
		}
		details = append(details, r.Detail)
	}
	if !slices.ContainsFunc(details, func(d string) bool { return strings.Contains(d, string(of)) && strings.Contains(d, "held") }) {
		t.Errorf("the reports are %q", details)
	}
}

// The first day after an upgrade: what was written before owners were recorded, or without rights,
// derives as before with rights, until it is assigned. Then its owner's rights hold.
func TestDataWithoutOwnerDerivesAsBeforeUntilItIsAssigned(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	before := catalog.New(w.store, w.validator, catalog.Options{}) // without rights
	of, err := before.CreateDeployment(t.Context(), tko.NewDeployment{Site: "apac/1"})
	if err != nil || w.ownerOf(of) != tko.OwnerUnowned {
		t.Fatalf("%s, %v", w.ownerOf(of), err)
	}
	preparer := tko.WithActing(identity.With(t.Context(), identity.Controller(identity.RolePreparer)), tko.Acting{Kind: tko.KindDeployment, ID: string(of)})
	child := func(origin string) error {
		_, _, err := w.CreateChildren(preparer, tko.NewChildren{Parent: of, Children: []tko.NewChild{{Origin: origin, Site: "apac/1"}}})
		return err
	}
	w.is("a child of what has no owner", child("1"), nil)
	w.is("assign it", w.SetOwner(w.ctx, tko.KindDeployment, string(of), tko.Owner{Subject: "cert:ada"}), nil)
	w.is("a child at a site that its owner doesn't see", child("2"), tko.ErrDenied)
}

func TestOwnersAreRecordedOfVerifiedCallersOnly(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	for name, c := range map[string]struct {
		ctx  context.Context
		want string
	}{
		"no identity":         {t.Context(), tko.OwnerUnowned},
		"a claimed name":      {tko.WithAuthor(identity.With(t.Context(), identity.Anonymous("192.0.2.7:1")), tko.Author{Who: "cert:root"}), tko.OwnerUnowned},
		"anonymous, local":    {identity.With(t.Context(), identity.Anonymous("unix")), tko.OwnerUnowned},
		"a certificate":       {w.as("cert:ada", "cert:group"), "cert:ada"},
		"our own controllers": {identity.With(t.Context(), identity.Controller(identity.RoleServer)), tko.OwnerUnowned},
	} {
		if got := w.ownerOf(w.createAs(c.ctx, tko.NewDeployment{})); got != c.want {
			t.Errorf("%s: the owner is %s, want %s", name, got, c.want)
		}
	}
}

func TestOwnerOfRestoredRevisionAndOfOwnerlessChildren(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	of := w.createAs(w.as("cert:ada"), tko.NewDeployment{Site: "emea/1"})
	preparer := identity.With(t.Context(), identity.Controller(identity.RolePreparer))
	ids, _, err := w.CreateChildren(preparer, tko.NewChildren{Parent: of, Children: []tko.NewChild{{Origin: "x", Site: "emea/1"}}})
	if err != nil {
		t.Fatal(err)
	}
	if w.ownerOf(ids[0]) != "cert:ada" {
		t.Errorf("the owner of a child is %s", w.ownerOf(ids[0]))
	}
	_, err = w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: ids[0], Revision: 1, Package: pkg(t, thing("x", ""))})
	w.is("an edit of the child", err, nil)
	if w.ownerOf(ids[0]) != "cert:root" || w.ownerOf(of) != "cert:ada" {
		t.Errorf("after an edit of the child, the owners are %s and %s", w.ownerOf(ids[0]), w.ownerOf(of))
	}
	_, _, err = w.PutRecord(w.ctx, catalog.Put{Key: record.Key{Kind: tko.KindDeployment, ID: string(of)}, Site: "emea/1", Metadata: map[string]string{"a": "b"}, Package: mustResources(t, w, of)})
	w.is("a label", err, nil)
	if w.ownerOf(of) != "cert:ada" {
		t.Errorf("a label made %s the owner", w.ownerOf(of))
	}
	if err := w.SetOwner(w.ctx, tko.KindDeployment, string(of), tko.Owner{Subject: "ada"}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("an owner that is no subject: %v", err)
	}
}

func mustResources(t *testing.T, w *world, id tko.DeploymentID) krm.Package {
	t.Helper()
	r, err := w.Record(w.ctx, record.Fields{Package: true}, record.Key{Kind: tko.KindDeployment, ID: string(id)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := r.Resources()
	if err != nil {
		t.Fatal(err)
	}
	return p
}
