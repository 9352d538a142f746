package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/gate"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

// by returns the context of an author.
func (w *world) by(who string) context.Context {
	return tko.WithAuthor(w.ctx, tko.Author{Who: who})
}

// A loop of single deletions, over two servers and a restart, removes as much as one
// request could.
func TestLoopOfDeletionsSharesOneCount(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why     string
		sites   int
		deleted int // at most, without consent
	}{
		"many": {"100 of 300 are free", 300, 100},
		"half": {"half of 40 is free", 40, 20},
		"few":  {"few are free, whatever they are of", 8, 8},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, catalog.Options{})
			w.sites("s", test.sites)
			deleted := 0
			var refused error
			for i := range test.sites {
				w.Service = catalog.New(w.store, w.validator, catalog.Options{}) // another server, or the same after a restart
				_, err := w.DeleteSite(w.by("ana"), tko.SiteID(fmt.Sprintf("s/%02d", i)))
				if err != nil {
					refused = err
					continue
				}
				deleted++
			}
			if deleted != test.deleted {
				t.Errorf("%d of %d were deleted, want %d: %s", deleted, test.sites, test.deleted, test.why)
			}
			if deleted < test.sites {
				wantError(t, refused, tko.ErrInvalid, fmt.Sprintf("after %d without consent", deleted), `by "ana" within 10 min`, "--confirm=1")
				left := tko.SiteID(fmt.Sprintf("s/%02d", test.sites-1))
				if _, err := w.DeleteSite(tko.WithConfirmation(w.by("ana"), 1), left); err != nil {
					t.Errorf("with consent: %v", err)
				}
				if _, err := w.DeleteSite(w.by("bob"), tko.SiteID(fmt.Sprintf("s/%02d", test.sites-2))); err != nil {
					t.Errorf("another author: %v", err)
				}
			}
		})
	}
}

func TestConcurrentWritersShareTheCount(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{ConfirmAbove: 25})
	w.sites("s", 100)
	other := catalog.New(w.store, w.validator, catalog.Options{ConfirmAbove: 25})
	var wait sync.WaitGroup
	for i, s := range []*catalog.Service{w.Service, other} {
		wait.Go(func() {
			for n := range 20 {
				_, err := s.DeleteSite(w.by("ana"), tko.SiteID(fmt.Sprintf("s/%02d", 50*i+n)))
				if err != nil && !errors.Is(err, tko.ErrInvalid) {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	if left := len(all(t, w.Sites(w.ctx, tko.SiteSelect{}, tko.ListOptions{}))); left != 75 {
		t.Errorf("%d sites are left of 100, want 75", left)
	}
}

// Half of a kind is half of what its caller sees: who sees few sites may not remove most of them,
// however many others have.
func TestShareOfAKindIsOfWhatItsCallerSees(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.sites("emea", 20)
	w.sites("apac", 100)
	w.bind("cert:ada", access.Editor, emea)
	remove := func(who, site string, n int) error {
		_, err := w.DeleteSite(w.as(who), tko.SiteID(fmt.Sprintf("%s/%02d", site, n)))
		return err
	}
	for n := range 10 {
		w.is("one of half of her sites", remove("cert:ada", "emea", n), nil)
	}
	wantError(t, remove("cert:ada", "emea", 10), tko.ErrInvalid, "more than 50 % of them", "--confirm=1")
	for n := range 11 {
		w.is("the same number by who sees all", remove("cert:root", "apac", n), nil)
	}
}

// The script of the issue: a purge of a pattern takes the network down, unasked.
func TestPurgeOfManyNeedsConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("nf/du:v1", "")
	w.template("nf/cu:v1", "")
	w.many(150, tko.NewDeployment{Template: "nf/du:v1"})
	w.many(400, tko.NewDeployment{Template: "nf/cu:v1"})
	purge := func(ctx context.Context) error {
		_, err := w.PurgeDeployments(ctx, tko.DeploymentSelect{Templates: []string{"nf/du:*"}}, false)
		return err
	}
	wantError(t, purge(w.ctx), tko.ErrInvalid, "delete 150 deployments", "more than 100 entities", "--confirm=150")
	wantError(t, purge(tko.WithConfirmation(w.ctx, 149)), tko.ErrInvalid, "149 were confirmed")
	wantError(t, purge(tko.WithConfirmation(w.ctx, 1000)), tko.ErrInvalid, "1000 were confirmed", "--confirm=150")
	if n := w.countDeployments(); n != 550 {
		t.Fatalf("%d deployments are left of 550", n)
	}
	// Fewer than half: a client that can't consent may, as before.
	if err := purge(tko.WithoutConsent(w.ctx)); err != nil {
		t.Errorf("a client of the original protocol: %v", err)
	}
	_, err := w.PurgeDeployments(tko.WithoutConsent(w.ctx), tko.DeploymentSelect{}, false)
	wantError(t, err, tko.ErrInvalid, "delete 400 deployments", "this client can't")
	if n := w.countDeployments(); n != 400 {
		t.Errorf("%d deployments are left of 400", n)
	}
	// The count moves a little between the plan and the confirmation.
	w.many(5, tko.NewDeployment{Template: "nf/du:v1"})
	if _, err := w.PurgeDeployments(tko.WithConfirmation(w.ctx, 430), tko.DeploymentSelect{}, false); err != nil {
		t.Errorf("a count that is a little above: %v", err)
	}
}

func TestDeletionOfATopologyNeedsConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	top := w.create(tko.NewDeployment{})
	w.many(668, tko.NewDeployment{Parent: top})
	w.many(2000, tko.NewDeployment{})
	_, err := w.DeleteDeployment(w.ctx, top)
	wantError(t, err, tko.ErrInvalid, "delete 669 deployments", "--confirm=669")
	if d, err := w.DeleteDeployment(tko.WithConfirmation(w.ctx, 669), top); err != nil || d.Count != 669 {
		t.Errorf("with consent: %+v, %v", d, err)
	}
}

// Deployments that lose their template or site count as if they were removed.
func TestDeletionOfWhatIsInUseNeedsConsent(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		del   func(ctx context.Context, w *world, dryRun bool) (tko.Deleted, error)
		reach int
	}{
		"a template": {func(ctx context.Context, w *world, dryRun bool) (tko.Deleted, error) {
			if dryRun {
				return w.PurgeTemplates(ctx, tko.TemplateSelect{IDs: []string{"t"}}, true)
			}
			return w.DeleteTemplate(ctx, "t")
		}, 152},
		"a site": {func(ctx context.Context, w *world, dryRun bool) (tko.Deleted, error) {
			if dryRun {
				return w.PurgeSites(ctx, tko.SiteSelect{IDs: []string{"s"}}, true)
			}
			return w.DeleteSite(ctx, "s")
		}, 151},
		"a purge of templates": {func(ctx context.Context, w *world, dryRun bool) (tko.Deleted, error) {
			return w.PurgeTemplates(ctx, tko.TemplateSelect{}, dryRun)
		}, 153},
		"a removal": {func(ctx context.Context, w *world, dryRun bool) (tko.Deleted, error) {
			return w.RemoveEntity(ctx, tko.KindTemplate, "t", dryRun)
		}, 152},
		"a removal of a collection": {func(ctx context.Context, w *world, dryRun bool) (tko.Deleted, error) {
			return w.RemoveRecords(ctx, tko.KindTemplate, []string{"t", "u"}, record.Requirement{}, dryRun)
		}, 153},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, catalog.Options{})
			w.template("t", "")
			w.template("u", "")
			if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Template: "t"}); err != nil {
				t.Fatal(err)
			}
			w.many(150, tko.NewDeployment{Template: "t", Site: "s"})
			w.many(1000, tko.NewDeployment{})
			would, err := test.del(w.ctx, w, true)
			if err != nil || would.Reach() != test.reach {
				t.Fatalf("dry run: %+v, %v, want a reach of %d", would, err, test.reach)
			}
			before := w.head()
			_, err = test.del(w.ctx, w, false)
			wantError(t, err, tko.ErrInvalid, "without template or site", fmt.Sprintf("--confirm=%d", test.reach))
			if w.head() != before {
				t.Error("what was refused has changed something")
			}
			if did, err := test.del(tko.WithConfirmation(w.ctx, test.reach), w, false); err != nil || did != would {
				t.Errorf("with consent: %+v, %v, want %+v", did, err, would)
			}
		})
	}
}

// A deletion that is interrupted between two steps needs consent to its rest.
func TestRestOfAnInterruptedDeletionNeedsConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", "")
	w.many(450, tko.NewDeployment{Template: "t"})
	w.many(1000, tko.NewDeployment{})
	stop, commits := errors.New("stop"), 0
	cut := catalog.New(&cuttingStore{w.store, func([]record.Write) error {
		commits++
		if commits == 2 {
			return stop
		}
		return nil
	}}, w.validator, catalog.Options{})
	if _, err := cut.DeleteTemplate(tko.WithConfirmation(w.ctx, 451), "t"); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	_, err := w.DeleteTemplate(w.ctx, "t")
	wantError(t, err, tko.ErrInvalid, "--confirm=351")
	if _, err := w.DeleteTemplate(tko.WithConfirmation(w.ctx, 351), "t"); err != nil {
		t.Error(err)
	}
}

// children asks for n children of a parent, from a number on.
func (w *world) children(parent tko.DeploymentID, template tko.TemplateID, from, n int) error {
	request := tko.NewChildren{Parent: parent}
	for i := range n {
		request.Children = append(request.Children, tko.NewChild{Origin: fmt.Sprintf("%s %d", template, from+i), Template: template})
	}
	_, _, err := w.CreateChildren(w.by(identity.RolePreparer), request)
	return err
}

// A topology waits until a user consents to the number of its children. One consent
// suffices for all of its calls, and for all levels below it.
func TestTopologyWaitsForConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{Reach: gate.ReachLimits{Created: 10}})
	for _, id := range []string{"top", "inner", "leaf"} {
		w.template(id, "")
	}
	top := w.create(tko.NewDeployment{Template: "top"})
	check := func(parent tko.DeploymentID, create int) error {
		_, _, err := w.CreateChildren(w.by(identity.RolePreparer), tko.NewChildren{Parent: parent, Create: create})
		return err
	}
	if err := check(top, 10); err != nil {
		t.Errorf("ten are free: %v", err)
	}
	if err := w.children(top, "inner", 0, 3); err != nil {
		t.Fatal(err)
	}
	var inner tko.DeploymentID
	for _, d := range all(t, w.Deployments(w.ctx, tko.DeploymentSelect{Parent: top}, tko.ListOptions{})) {
		inner = d.ID
	}
	wantError(t, w.children(inner, "leaf", 0, 8), tko.ErrInvalid, "8 deployments to create and 0 to remove wait for consent")
	if err := w.children(inner, "leaf", 0, 7); err != nil {
		t.Errorf("children of children count for the root: %v", err)
	}
	waits := check(inner, 40)
	wantError(t, waits, tko.ErrInvalid, "40 deployments to create", fmt.Sprintf("tko deployment approve %s --confirm=40", inner))
	if n := w.countDeployments(); n != 11 {
		t.Errorf("%d deployments, want 11", n)
	}

	// The preparer reports it, and a user consents.
	w.report(inner, waits)
	_, err := w.ApproveDeployment(w.by("ana"), inner)
	wantError(t, err, tko.ErrInvalid, "40 deployments to create", "--confirm=40")
	_, err = w.ApproveDeployment(tko.WithConfirmation(w.by("ana"), 39), inner)
	wantError(t, err, tko.ErrInvalid, "39 were confirmed")
	_, err = w.ApproveDeployment(tko.WithConfirmation(w.by("ana"), 400), inner)
	wantError(t, err, tko.ErrInvalid, "400 were confirmed")
	before := w.deployment(inner)
	if n, err := w.ApproveDeployment(tko.WithConfirmation(w.by("ana"), 40), inner); err != nil || n != 1 {
		t.Fatalf("%d, %v", n, err)
	}
	after := w.deployment(inner)
	if after.Stamp.Who != "ana" || !strings.Contains(after.Stamp.Why, "40 deployments to create") || after.Stamp.Revision != before.Stamp.Revision+1 || after.Approved != before.Approved {
		t.Errorf("the revision of the consent: %+v", after.Stamp)
	}
	if _, ok := tko.WaitingOf(after.Stamp.Conditions); ok {
		t.Error("it still waits")
	}
	if items := w.claim(tko.QueuePrepare, string(inner)); !items {
		t.Error("the consent doesn't make the work due")
	}
	if err := check(inner, 40); err != nil {
		t.Errorf("after the consent: %v", err)
	}
	for from := 7; from < 47; from += 20 {
		w.Service = catalog.New(w.store, w.validator, catalog.Options{Reach: gate.ReachLimits{Created: 10}})
		if err := w.children(inner, "leaf", from, 20); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, w.children(inner, "leaf", 47, 1), tko.ErrInvalid, "wait for consent")
	if err := w.children(inner, "leaf", 0, 20); err != nil {
		t.Errorf("children that exist are no change: %v", err)
	}
	other := w.create(tko.NewDeployment{Template: "top"})
	if err := w.children(other, "inner", 0, 10); err != nil {
		t.Errorf("another topology: %v", err)
	}
}

// report sets the condition that a preparer sets if it gets an error.
func (w *world) report(id tko.DeploymentID, err error) {
	w.t.Helper()
	c := tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: tko.ReasonWaitsForApproval, Message: err.Error()}
	if err := w.SetConditions(w.by(identity.RolePreparer), tko.KindDeployment, string(id), []tko.Condition{c}); err != nil {
		w.t.Fatal(err)
	}
}

// claim reports whether there is work for a key.
func (w *world) claim(queue, key string) bool {
	w.t.Helper()
	items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: queue, Worker: "w", Max: 100, Lease: time.Minute})
	if err != nil {
		w.t.Fatal(err)
	}
	for _, item := range items {
		if item.Key == key {
			return true
		}
	}
	return false
}

// A controller can't consent, whatever it confirms.
func TestControllersCantConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	top := w.create(tko.NewDeployment{})
	w.report(top, errors.New(tko.Waiting{Create: 2000}.String()))
	ctx := identity.With(tko.WithConfirmation(w.ctx, 2000), identity.Controller(identity.RolePreparer))
	_, err := w.ApproveDeployment(ctx, top)
	wantError(t, err, tko.ErrDenied, "no person")
}

// The run of a plugin changes as much as the topology that it works on may, and can't confirm
// more: also not by itself. The error has the remedies that there are, and each of them works.
func TestPluginsCantConsent(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{Reach: gate.ReachLimits{Sites: 3, Rules: []access.Limit{{Limit: access.LimitSites, Most: 6, Author: "cert:ada"}}}})
	w.bind("cert:ada", access.Admin, access.Scope{})
	topology := func(owner string) (run context.Context, children []tko.DeploymentID) {
		top := w.createAs(w.as(owner), tko.NewDeployment{})
		for i := range 6 {
			site := tko.SiteID(fmt.Sprintf("%s/%d", strings.TrimPrefix(owner, "cert:"), i))
			w.site(string(site), "")
			children = append(children, w.createAs(w.as(owner), tko.NewDeployment{Parent: top, Site: site, Prepared: true, Approved: true}))
		}
		return identity.With(t.Context(), identity.OfPlugin(identity.Plugin{Type: "prepare", Name: "p", Kind: tko.KindDeployment, ID: string(top)}, time.Now().Add(time.Hour), "127.0.0.1:1")), children
	}
	remove := func(ctx context.Context, id tko.DeploymentID) error {
		_, err := w.DeleteDeployment(ctx, id)
		return err
	}
	run, children := topology("cert:root")
	for i := range 3 {
		w.is("as many as are free", remove(run, children[i]), nil)
	}
	other := func(ctx context.Context) error {
		_, err := w.RemoveEntity(ctx, tko.KindDeployment, string(children[3]), false)
		return err
	}
	for name, refused := range map[string]error{
		"a deletion": remove(run, children[3]), "a confirmed one": remove(tko.WithConfirmation(run, 5), children[3]),
		"a removal": other(run), "a confirmed removal": other(tko.WithConfirmation(run, 5)),
	} {
		wantError(t, refused, tko.ErrInvalid, "after 3 without consent", "a plugin can't consent", "--reach-limits")
		if tko.NeedsRollout(refused) || strings.Contains(refused.Error(), "--confirm") {
			t.Errorf("%s: %v: the plugin changes them, and no placement", name, refused)
		}
	}
	w.is("as a user", remove(w.as("cert:root"), children[3]), nil)
	run, children = topology("cert:ada")
	for _, id := range children {
		w.is("with the limit of the owner", remove(run, id), nil)
	}
}

// What a topology removes is counted for its root, in a day, and consent to it is given in
// the same way.
func TestRemovalsOfATopologyWaitForConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{ConfirmAbove: 5})
	w.template("leaf", "")
	w.many(100, tko.NewDeployment{})
	top := w.create(tko.NewDeployment{})
	if err := w.children(top, "leaf", 0, 20); err != nil {
		t.Fatal(err)
	}
	children := all(t, w.Deployments(w.ctx, tko.DeploymentSelect{Parent: top}, tko.ListOptions{}))
	preparer := w.by(identity.RolePreparer)
	for i := range 5 {
		if _, err := w.DeleteDeployment(preparer, children[i].ID); err != nil {
			t.Fatal(err)
		}
	}
	_, err := w.DeleteDeployment(preparer, children[5].ID)
	wantError(t, err, tko.ErrInvalid, "0 deployments to create and 1 to remove wait for consent")
	_, _, waits := w.CreateChildren(preparer, tko.NewChildren{Parent: top, Remove: 8})
	wantError(t, waits, tko.ErrInvalid, "8 to remove")
	w.report(top, waits)
	if _, err := w.ApproveDeployment(tko.WithConfirmation(w.by("ana"), 8), top); err != nil {
		t.Fatal(err)
	}
	for i := 5; i < 13; i++ {
		if _, err := w.DeleteDeployment(preparer, children[i].ID); err != nil {
			t.Errorf("%d with consent: %v", i, err)
		}
	}
	_, err = w.DeleteDeployment(preparer, children[13].ID)
	wantError(t, err, tko.ErrInvalid, "wait for consent")
	if _, err := w.DeleteDeployment(w.by("ana"), children[13].ID); err != nil {
		t.Errorf("a user has a count of her own: %v", err)
	}
}

// A topology that contains itself ends where it would begin anew.
func TestCyclesOfTopologiesAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	for _, id := range []string{"a", "b"} {
		w.template(id, "apiVersion: topology.nephio.org/v1alpha1\nkind: Placement\nmetadata: {name: p}\n")
	}
	w.template("plain", "")
	w.site("s", "")
	w.site("t", "")
	top := w.create(tko.NewDeployment{Template: "a"})
	child := func(parent tko.DeploymentID, template tko.TemplateID, site tko.SiteID, merge string) (tko.DeploymentID, error) {
		request := tko.NewChildren{Parent: parent, Children: []tko.NewChild{{Origin: "o" + string(template) + string(site) + merge, Template: template, Site: site}}}
		if merge != "" {
			request.Merge = pkg(t, thing(merge, ""))
		}
		ids, _, err := w.CreateChildren(w.ctx, request)
		if err != nil {
			return "", err
		}
		return ids[0], nil
	}
	_, err := child(top, "a", "", "")
	wantError(t, err, tko.ErrInvalid, "a cycle of topologies", fmt.Sprintf("a (deployment %s) → a again", top))
	_, err = w.CreateDeployment(w.ctx, tko.NewDeployment{Parent: top, Template: "a"})
	wantError(t, err, tko.ErrInvalid, "a cycle of topologies")
	_, err = child(top, "a", "s", "") // each of them would place the same at all sites
	wantError(t, err, tko.ErrInvalid, fmt.Sprintf(`a (deployment %s) → a again at site "s"`, top))
	b, err := child(top, "b", "s", "")
	if err != nil {
		t.Fatal(err)
	}
	_, err = child(b, "a", "", "")
	wantError(t, err, tko.ErrInvalid, fmt.Sprintf("a (deployment %s) → b (deployment %s) → a again", top, b))
	_, err = child(b, "b", "s", "")
	wantError(t, err, tko.ErrInvalid, `b again at site "s"`)
	plain, err := child(b, "plain", "", "")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := child(plain, "plain", "", ""); err != nil {
		t.Errorf("what creates no children is no cycle: %v", err)
	}
	for _, free := range [][2]string{{"t", ""}, {"s", "other"}} {
		if _, err := child(b, "b", tko.SiteID(free[0]), free[1]); err != nil {
			t.Errorf("another site, or other merged resources, are no cycle: %v", err)
		}
	}
}

func TestTopologiesAreNestedWithinALimit(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{TopologyDepth: 3})
	w.template("t", "")
	parent := w.create(tko.NewDeployment{})
	for i := range 2 {
		parent = w.create(tko.NewDeployment{Parent: parent, Template: "t", Merge: pkg(t, thing(fmt.Sprint("level", i), ""))})
	}
	_, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Parent: parent})
	wantError(t, err, tko.ErrInvalid, "4 levels", "--topology-depth")
	wantError(t, w.children(parent, "t", 0, 1), tko.ErrInvalid, "4 levels")
}

// running makes deployments that run at a site each.
func (w *world) running(n int) []tko.DeploymentID {
	w.t.Helper()
	var ids []tko.DeploymentID
	for i := range n {
		site := fmt.Sprintf("edge/%02d", i)
		w.site(site, "")
		ids = append(ids, w.create(tko.NewDeployment{Site: tko.SiteID(site), Prepared: true, Approved: true}))
	}
	return ids
}

func (w *world) change(ctx context.Context, id tko.DeploymentID, value string) error {
	d := w.deployment(id)
	_, err := w.CommitDeployment(ctx, tko.DeploymentCommit{
		ID: id, Revision: d.Stamp.Revision, Package: append(slices.DeleteFunc(d.Package, func(r krm.Resource) bool { return r.GVK().Kind == "Thing" }), pkg(w.t, thing("x", "value: "+value))...),
	})
	return err
}

// An author changes what runs at a few sites, and at more by a rollout or with consent.
func TestChangesAtManySitesNeedConsent(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	ids := w.running(14)
	for i := range 10 {
		for _, value := range []string{"1", "2"} { // one site counts once
			if err := w.change(w.by("ana"), ids[i], value); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantError(t, w.change(w.by("ana"), ids[10], "1"), tko.ErrInvalid, "running deployments at 1 site", "after 10 without consent", "use a rollout", "--confirm=1")
	if err := w.change(w.by("ana"), ids[3], "3"); err != nil {
		t.Errorf("a site that was changed already: %v", err)
	}
	if err := w.change(tko.WithConfirmation(w.by("ana"), 1), ids[11], "1"); err != nil {
		t.Errorf("with consent: %v", err)
	}
	if err := w.change(w.by("bob"), ids[10], "1"); err != nil {
		t.Errorf("another author: %v", err)
	}
	if err := w.change(tko.WithoutConsent(w.by("ana")), ids[12], "1"); err != nil {
		t.Errorf("a client of the original protocol, as before: %v", err)
	}
	if err := w.change(w.by(identity.RolePreparer), ids[13], "1"); err != nil {
		t.Errorf("a preparer: %v", err)
	}
}

// A schedule plugin that changes runs again at all sites with what triggers it: at many, that
// needs consent. A new one is registered as before.
func TestChangeOfASchedulePluginCountsItsSites(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	for i := range 14 {
		site := fmt.Sprintf("edge/%02d", i)
		w.site(site, "")
		d := tko.NewDeployment{Site: tko.SiteID(site), Prepared: true, Approved: true}
		if i < 12 {
			d.Merge = pkg(t, thing("x", ""))
		}
		w.create(d)
	}
	register := func(ctx context.Context, typ, argument string, kind string) error {
		gvk := pkg(t, thing("x", ""))[0].GVK()
		if kind != "" {
			gvk.Kind = kind
		}
		_, err := w.RegisterPlugin(ctx, tko.Plugin{Type: typ, Name: "p", Arguments: []string{argument}, Triggers: []krm.GVK{gvk}})
		return err
	}
	for _, typ := range []string{tko.PluginSchedule, tko.PluginPrepare} {
		if err := register(w.by("ana"), typ, "a", ""); err != nil {
			t.Fatalf("a new plugin: %v", err)
		}
	}
	if err := register(w.by("ana"), tko.PluginPrepare, "b", ""); err != nil {
		t.Errorf("a prepare plugin, which changes nothing that runs: %v", err)
	}
	if err := register(w.by("ana"), tko.PluginSchedule, "a", ""); err != nil {
		t.Errorf("the same again: %v", err)
	}
	wantError(t, register(w.by("ana"), tko.PluginSchedule, "b", ""), tko.ErrInvalid, "again for at least 12 sites", "--confirm=12")
	wantError(t, register(w.by("ana"), tko.PluginSchedule, "a", "Other"), tko.ErrInvalid, "again for at least 12 sites")
	wantError(t, register(tko.WithConfirmation(w.by("ana"), 11), tko.PluginSchedule, "b", ""), tko.ErrInvalid)
	if err := register(tko.WithConfirmation(w.by("ana"), 12), tko.PluginSchedule, "b", ""); err != nil {
		t.Errorf("with consent: %v", err)
	}
	if err := register(tko.WithConfirmation(w.by("ana"), 12), tko.PluginSchedule, "b", "Other"); err != nil {
		t.Fatal(err)
	}
	if err := register(w.by("ana"), tko.PluginSchedule, "c", "Other"); err != nil {
		t.Errorf("a plugin that nothing triggers: %v", err)
	}
}

// A client that only says that it is the preparer is no exception: what it changes that runs
// already is counted for the topology, as its author.
func TestClaimedPreparersAreCounted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	top := w.create(tko.NewDeployment{})
	var ids []tko.DeploymentID
	for i := range 12 {
		site := fmt.Sprintf("edge/%02d", i)
		w.site(site, "")
		ids = append(ids, w.create(tko.NewDeployment{Parent: top, Site: tko.SiteID(site), Prepared: true, Approved: true}))
	}
	claimed := w.by(identity.RolePreparer)
	for _, id := range ids[:10] {
		if err := w.change(claimed, id, "1"); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, w.change(claimed, ids[10], "1"), tko.ErrInvalid, "running deployments at 1 site", fmt.Sprintf("after 10 without consent for deployment %q", top))
	if err := w.change(identity.With(claimed, identity.Controller(identity.RolePreparer)), ids[10], "1"); err != nil {
		t.Errorf("the server's own preparer: %v", err)
	}
	fresh := w.create(tko.NewDeployment{Parent: top, Site: "edge/11"})
	if err := w.change(claimed, fresh, "1"); err != nil {
		t.Errorf("what doesn't run yet: %v", err)
	}
}

// The sites at which a topology removes or replaces what runs add up over its evaluations: beyond
// the limit a rollout makes the changes, unless a user has approved them.
func TestRemovalsAndReplacementsOfATopologyAddUp(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{Reach: gate.ReachLimits{Sites: 3, Rules: []access.Limit{{Limit: access.LimitSites, Most: 5, Author: "cert:ada"}}}})
	w.template("leaf", "")
	w.bind("cert:ada", access.Admin, access.Scope{})
	var placement krm.Resource = map[string]any{
		"apiVersion": "topology.nephio.org/v1alpha1", "kind": "Placement", "metadata": map[string]any{"name": "p"},
		"status": map[string]any{"proposal": map[string]any{"delete": map[string]any{"count": int64(2)}}},
	}
	top := w.createAs(w.as("cert:root"), tko.NewDeployment{Prepared: true, Merge: krm.Package{placement}})
	preparer := tko.WithActing(tko.WithAuthor(identity.With(w.ctx, identity.Controller(identity.RolePreparer)), tko.Author{Who: identity.RolePreparer}), tko.Acting{Kind: tko.KindDeployment, ID: string(top)})
	root := w.as("cert:root")
	var children []tko.DeploymentID
	for i := range 9 {
		site := tko.SiteID(fmt.Sprintf("edge/%02d", i))
		w.site(string(site), "")
		children = append(children, w.createAs(root, tko.NewDeployment{Parent: top, Site: site, Prepared: i != 8, Approved: i != 8}))
	}
	twin := w.createAs(root, tko.NewDeployment{Parent: top, Site: "edge/00", Prepared: true, Approved: true})
	remove := func(id tko.DeploymentID) error {
		_, err := w.DeleteDeployment(preparer, id)
		return err
	}
	replace := func(origin string, old ...tko.DeploymentID) error {
		site := w.deployment(children[3]).Site
		_, _, err := w.CreateChildren(preparer, tko.NewChildren{Parent: top, Children: []tko.NewChild{{Origin: origin, Template: "leaf", Site: site, Replaces: old}}})
		return err
	}
	for _, id := range append(slices.Clone(children[:3]), twin, children[8]) {
		w.is("one of three sites, the same one again, and what doesn't run", remove(id), nil)
	}
	refused := remove(children[3])
	wantError(t, refused, tko.ErrInvalid, "running deployments at 1 site", "after 3 without consent", tko.RolloutText)
	if !tko.NeedsRollout(refused) {
		t.Error("a preparer doesn't know that it needs a rollout")
	}
	wantError(t, replace("new", children[3]), tko.ErrInvalid, tko.RolloutText)
	w.is("a new child", replace("free"), nil)
	check := func(parent tko.DeploymentID, sites int) error {
		_, _, err := w.CreateChildren(preparer, tko.NewChildren{Parent: parent, Sites: sites})
		return err
	}
	w.is("as many as are free in all", check(top, 3), nil)
	wantError(t, check(top, 4), tko.ErrInvalid, tko.RolloutText)
	ada := w.createAs(w.as("cert:ada"), tko.NewDeployment{})
	w.is("as many as the owner may", check(ada, 5), nil)
	wantError(t, check(ada, 6), tko.ErrInvalid, tko.RolloutText)

	proposal := tko.Condition{Type: tko.ConditionPlaced, Status: tko.ConditionFalse, Reason: tko.ReasonChangeProposed, Message: "would delete 2"}
	w.is("propose", w.SetConditions(preparer, tko.KindDeployment, string(top), []tko.Condition{proposal}), nil)
	if _, err := w.ApproveDeployment(root, top); err != nil {
		t.Fatal(err)
	}
	w.is("approved", remove(children[3]), nil)
	w.is("approved, too", remove(children[4]), nil)
	wantError(t, remove(children[5]), tko.ErrInvalid, tko.RolloutText)
}

// Data of earlier versions has no counts: everything is as free as for a new author.
func TestLimitsThatAreOffLimitNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{ConfirmAbove: -1, ConfirmPercent: 100, Reach: gate.ReachLimits{Created: -1, Sites: -1}})
	w.template("t", "")
	top := w.create(tko.NewDeployment{})
	if err := w.children(top, "t", 0, 1500); err != nil {
		t.Error(err)
	}
	for i, id := range w.running(12) {
		if err := w.change(w.ctx, id, strconv.Itoa(i)); err != nil {
			t.Error(err)
		}
	}
	if _, err := w.PurgeDeployments(w.ctx, tko.DeploymentSelect{}, false); err != nil {
		t.Error(err)
	}
}

// New deployments of clients count nothing, and are committed as before.
func TestCreationIsFree(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{Reach: gate.ReachLimits{Created: 1, Sites: 1}})
	w.running(5)
	reached, err := w.store.Reached(w.ctx, "", time.Hour, 10)
	if err != nil || len(reached) != 0 {
		t.Errorf("%+v, %v: want no counts", reached, err)
	}
}

// The server counts what a source changes, in all of its revisions, whatever its controller
// decides.
func TestSourceChangesFewSitesWithoutARollout(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{Reach: gate.ReachLimits{Created: 3}})
	ids := w.running(13)
	source := func(why string) context.Context {
		return tko.WithAuthor(w.ctx, tko.Author{Who: "gitops:fleet", Why: why})
	}
	for i := range 10 {
		if err := w.change(source(fmt.Sprint("revision ", i)), ids[i], "1"); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, w.change(source("another"), ids[10], "1"), tko.ErrInvalid, "running deployments at 1 site", `after 10 without consent for source "fleet" within 10 min`, "makes a rollout")
	if err := w.change(source("another"), ids[0], "2"); err != nil {
		t.Errorf("a site that it has changed: %v", err)
	}
	if err := w.change(tko.WithAuthor(w.ctx, tko.Author{Who: "gitops:other"}), ids[10], "1"); err != nil {
		t.Errorf("another source: %v", err)
	}
	put := func(ctx context.Context, origin string) error {
		_, err := w.PutEntity(ctx, tko.Put{Kind: tko.KindDeployment, Origin: origin})
		return err
	}
	for i := range 3 {
		if err := put(source("r"), fmt.Sprint("fleet/", i)); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, put(source("r"), "fleet/3"), tko.ErrInvalid, "create 1 deployment", "asks for an approval")
	if err := put(source("r"), "fleet/0"); err != nil {
		t.Errorf("one that exists: %v", err)
	}
	if err := put(tko.WithConfirmation(source("r"), 1), "fleet/3"); err != nil {
		t.Errorf("with an approval: %v", err)
	}
}

// A site whose target changes is touched as a whole, if deployments run there: by a source as
// by an author. What else changes of a site isn't counted.
func TestSitesWithAnotherTargetAreReach(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{Reach: gate.ReachLimits{Sites: 3}})
	w.running(6)
	w.site("edge/empty", "")
	put := func(ctx context.Context, i int, url, other string) error {
		result, err := w.PutEntity(ctx, tko.Put{Kind: tko.KindSite, ID: fmt.Sprintf("edge/%02d", i), Package: pkg(t, fmt.Sprintf(
			"apiVersion: git.plugin.nephio.org/v1alpha1\nkind: Repository\nmetadata: {name: r}\nspec: {url: %q}\n---\n%s", url, thing("x", "value: "+other)))})
		if err == nil && result.ChangesTarget {
			t.Error("it isn't a dry run")
		}
		return err
	}
	source := tko.WithAuthor(w.ctx, tko.Author{Who: "gitops:fleet"})
	for i := range 3 {
		for _, url := range []string{"https://a", "https://b"} { // a site counts once
			if err := put(source, i, url, "1"); err != nil {
				t.Fatal(err)
			}
		}
	}
	wantError(t, put(source, 3, "https://a", "1"), tko.ErrInvalid, "at 1 site", `after 3 without consent for source "fleet"`, "asks for an approval")
	if err := put(source, 0, "https://b", "2"); err != nil {
		t.Errorf("a change of another resource: %v", err)
	}
	if err := put(tko.WithConfirmation(source, 1), 3, "https://a", "1"); err != nil {
		t.Errorf("with an approval: %v", err)
	}
	for i := range 3 {
		if err := put(w.by("ana"), i, "https://c", "1"); err != nil {
			t.Fatal(err)
		}
	}
	wantError(t, put(w.by("ana"), 4, "https://c", "1"), tko.ErrInvalid, "at 1 site", `by "ana"`, "--confirm=1")
	would, err := w.PutEntity(w.by("ana"), tko.Put{Kind: tko.KindSite, ID: "edge/04", DryRun: true, Package: pkg(t,
		"apiVersion: git.plugin.nephio.org/v1alpha1\nkind: Repository\nmetadata: {name: r}\nspec: {url: https://d}\n")})
	if err != nil || !would.ChangesTarget {
		t.Errorf("a dry run says %+v, %v", would, err)
	}
	if _, err := w.PutEntity(w.by("ana"), tko.Put{Kind: tko.KindSite, ID: "edge/empty", Package: pkg(t,
		"apiVersion: git.plugin.nephio.org/v1alpha1\nkind: Repository\nmetadata: {name: r}\nspec: {url: https://d}\n")}); err != nil {
		t.Errorf("a site without deployments: %v", err)
	}
}

// An operator limits an author, with its topologies, and a kind or a selection in addition.
func TestLimitsOfAuthorsKindsAndSelections(t *testing.T) {
	t.Parallel()
	rules := []access.Limit{
		{Limit: access.LimitSites, Most: 12, Author: "ci/**"},
		{Limit: access.LimitSites, Most: 0, Author: "**", Reason: "for others than ana"},
		{Limit: access.LimitSites, Most: 2, SiteID: "edge/0**"},
		{Limit: access.LimitRemoved, Most: 3, Kind: tko.KindSite},
		{Limit: access.LimitRemoved, Most: 0, Author: "ci/**", Reason: "it removes what it made"},
	}
	t.Run("an author may more", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, catalog.Options{Reach: gate.ReachLimits{Rules: rules[:1]}})
		ids := w.running(14)
		for i := range 14 {
			for who, most := range map[string]int{"ci/1": 12, "ana": 10} {
				err := w.change(w.by(who), ids[i], strconv.Itoa(i)+who)
				if (err == nil) != (i < most) {
					t.Errorf("%s at site %d: %v", who, i, err)
				}
			}
		}
	})
	t.Run("a selection in addition", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, catalog.Options{Reach: gate.ReachLimits{Rules: rules[:3]}})
		ids := w.running(14)
		at := map[string]int{}
		for i := range 14 {
			site := string(w.deployment(ids[i]).Site)
			err := w.change(w.by("bob"), ids[i], "1") // whose general limit is off
			if core := strings.HasPrefix(site, "edge/0"); (err == nil) != (!core || at["core"] < 2) {
				t.Errorf("at %s: %v", site, err)
			} else if core && err == nil {
				at["core"]++
			}
			if err != nil {
				wantError(t, err, tko.ErrInvalid, `the limit of sites for siteId "edge/0**"`, "more than 2 there", "--confirm=1")
			}
		}
		if at["core"] != 2 {
			t.Errorf("the sites are %v", at)
		}
		if err := w.change(tko.WithConfirmation(w.by("bob"), 1), ids[5], "1"); err != nil {
			t.Errorf("with consent: %v", err)
		}
	})
	t.Run("a kind in addition, and none for an author", func(t *testing.T) {
		t.Parallel()
		w := newWorld(t, catalog.Options{ConfirmAbove: 5, ConfirmPercent: 100, Reach: gate.ReachLimits{Rules: rules[3:]}})
		w.sites("s", 30)
		for i := range 30 {
			w.template(fmt.Sprintf("t/%02d", i), "")
		}
		for i := range 4 {
			_, err := w.DeleteSite(w.by("ana"), tko.SiteID(fmt.Sprintf("s/%02d", i)))
			if (err == nil) != (i < 3) {
				t.Errorf("site %d: %v", i, err)
			}
		}
		for i := range 8 {
			for who, most := range map[string]int{"ana": 2, "ci/1": 30} {
				_, err := w.DeleteTemplate(w.by(who), tko.TemplateID(fmt.Sprintf("t/%02d", 10*len(who)%20+i)))
				if (err == nil) != (i < most) {
					t.Errorf("%s, template %d: %v", who, i, err)
				}
			}
		}
	})
}

// What a topology derives is limited as its owner is.
func TestLimitsOfAnAuthorHoldForItsTopologies(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{Reach: gate.ReachLimits{Created: 3, Rules: []access.Limit{
		{Limit: access.LimitCreated, Most: 6, Author: "cert:ada"}, {Limit: access.LimitCreated, Most: 2, TemplateID: "few/**"},
	}}})
	w.template("t", "")
	w.template("few/t", "")
	w.site("s", "")
	w.bind("cert:ada", access.Editor, access.Scope{})
	create := func(who, template string) (n int) {
		t.Helper()
		parent := w.createAs(w.as(who), tko.NewDeployment{})
		preparer := tko.WithActing(identity.With(w.ctx, identity.Controller(identity.RolePreparer)), tko.Acting{Kind: tko.KindDeployment, ID: string(parent)})
		for i := range 8 {
			_, _, err := w.CreateChildren(preparer, tko.NewChildren{Parent: parent, Children: []tko.NewChild{{Origin: strconv.Itoa(i), Template: tko.TemplateID(template), Site: "s"}}})
			if err == nil {
				n++
			}
		}
		return n
	}
	if ada, root, few := create("cert:ada", "t"), create("cert:root", "t"), create("cert:ada", "few/t"); ada != 6 || root != 3 || few != 2 {
		t.Errorf("topologies created %d children for ada, %d for an administrator, and %d of a template with a limit of its own; want 6, 3, 2", ada, root, few)
	}
}
