package catalog_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// commitAgain commits a deployment unchanged, as the preparer does for one that waits.
func (w *world) commitAgain(id tko.DeploymentID) (tko.Deployment, error) {
	w.t.Helper()
	d, err := w.Deployment(w.ctx, id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	_, failed := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: id, Revision: d.Stamp.Revision, Package: d.Package})
	if d, err = w.Deployment(w.ctx, id, 0); err != nil {
		w.t.Fatal(err)
	}
	return d, failed
}

// A deployment that names a template and a site that don't exist yet is stored, waits, and is
// made from the template when it arrives, as if it had been there. The template's Deployment
// resource keeps its say.
func TestDeploymentWaitsForWhatItNames(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	put := tko.Put{
		Kind: tko.KindDeployment, Name: "early", Template: "late", Site: "later",
		Package: pkg(t, thing("own", "a: 1")), Metadata: map[string]string{"mine": "1"},
	}
	if _, err := w.PutEntity(w.ctx, put); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("without deferred references, the error is %v", err)
	}
	put.Defer = true
	r, err := w.PutEntity(w.ctx, put)
	if err != nil || !r.Created {
		t.Fatalf("got %+v, %v", r, err)
	}
	id := tko.DeploymentID(r.ID)
	d, err := w.commitAgain(id)
	if err != nil || d.Stamp.Revision != 1 || d.AwaitedTemplate != "late" || d.AwaitedSite != "later" || d.Template != "" || d.Site != "" {
		t.Fatalf("it is %+v, %v", d, err)
	}
	for _, typ := range []string{tko.ConditionResolvedRefs, tko.ConditionPrepared} {
		c := tko.FindCondition(d.Stamp.Conditions, typ)
		if c == nil || c.Status != tko.ConditionFalse || c.Reason != tko.ReasonWaitsForReferences || !strings.Contains(c.Message, `template "late" and site "later" don't exist yet`) {
			t.Errorf("%s is %+v", typ, c)
		}
	}

	w.template("late", state("", "nephio.org/approve: Manual")+thing("base", "b: 1"), "from", "template")
	if d, err = w.commitAgain(id); err != nil || d.Template != "late" || d.AwaitedTemplate != "" || d.AwaitedSite != "later" || d.TemplateRevision != 1 {
		t.Fatalf("with the template, it is %+v, %v", d, err)
	}
	if len(d.Package) != 3 || d.Metadata["from"] != "template" || d.Metadata["mine"] != "1" {
		t.Errorf("its package is %v, its metadata %v", d.Package, d.Metadata)
	}
	if own, err := d.Package.Deployment(); err != nil || own.Annotation("nephio.org/approve") != "Manual" {
		t.Errorf("its Deployment resource is %v, %v", own, err)
	}

	w.site("later", "")
	if d, err = w.commitAgain(id); err != nil || d.Site != "later" || d.AwaitedSite != "" {
		t.Fatalf("with the site, it is %+v, %v", d, err)
	}
	if c := tko.FindCondition(d.Stamp.Conditions, tko.ConditionResolvedRefs); c == nil || c.Status != tko.ConditionTrue {
		t.Errorf("ResolvedRefs is %+v", c)
	}
	// It is the deployment that a client gets who came after the template.
	same, err := w.Deployment(w.ctx, w.create(tko.NewDeployment{Template: "late", Site: "later", Merge: put.Package, Metadata: put.Metadata}), 0)
	if err != nil || len(same.Package) != len(d.Package) {
		t.Fatalf("%v, %v", same.Package, err)
	}
	for _, r := range same.Package {
		if got := d.Package.Find(r.Identity()); got == nil || !reflect.DeepEqual(got, r) {
			t.Errorf("%s is %v, want %v", r.Identity(), got, r)
		}
	}
}

// A template that makes a waiting deployment invalid is not used, and the error says why.
func TestWaitingDeploymentIsValidatedWhenItsTemplateArrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	early := tko.Put{Kind: tko.KindDeployment, Name: "early", Template: "late", Defer: true, Package: pkg(t, thing("one", "invalid: true"))}
	if _, err := w.PutEntity(w.ctx, early); !errors.Is(err, tko.ErrInvalid) {
		t.Fatalf("the given package is not validated: %v", err)
	}
	early.Package = pkg(t, thing("one", "a: 1"))
	r, err := w.PutEntity(w.ctx, early)
	if err != nil {
		t.Fatal(err)
	}
	w.template("late", thing("two", "b: 1"))
	w.validator.take()
	if d, err := w.commitAgain(tko.DeploymentID(r.ID)); err != nil || d.Template != "late" {
		t.Fatalf("%+v, %v", d, err)
	}
	if asked := w.validator.take(); len(asked) == 0 || len(asked[0].Package) != 3 {
		t.Errorf("the merged package was validated as %+v", asked)
	}
}

// A deployment that waits can be changed, also to name something else, and can be told to wait
// for nothing. Clients who don't know of waiting don't end it.
func TestWaitingDeploymentCanBeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("there", thing("base", "b: 1"))
	w.site("here", "")
	r, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindDeployment, Name: "early", Template: "late", Defer: true})
	if err != nil {
		t.Fatal(err)
	}
	id := tko.DeploymentID(r.ID)
	get := func() tko.Deployment {
		t.Helper()
		d, err := w.Deployment(w.ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	put := func(p tko.Put) {
		t.Helper()
		p.Kind, p.ID, p.Package = tko.KindDeployment, r.ID, get().Package
		if _, err := w.PutEntity(w.ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	put(tko.Put{Metadata: map[string]string{"a": "b"}})
	if d := get(); d.AwaitedTemplate != "late" || d.Metadata["a"] != "b" {
		t.Errorf("a client who doesn't know of it makes it %+v", d)
	}
	put(tko.Put{Template: "other", Site: "here", Defer: true})
	if d := get(); d.AwaitedTemplate != "other" || d.Site != "here" || d.AwaitedSite != "" {
		t.Errorf("with another template, it is %+v", d)
	}
	put(tko.Put{Template: "other", Site: "moved", Defer: true})
	if d := get(); d.Site != "here" || d.AwaitedSite != "moved" {
		t.Errorf("it doesn't stay at its site until the next one exists: %+v", d)
	}
	put(tko.Put{Template: "there", Site: "here", Defer: true})
	if d := get(); d.AwaitedTemplate != "" || d.Template != "there" || len(d.Package) != 2 || d.AwaitedSite != "" {
		t.Errorf("with a template that exists, it is %+v", d)
	}
	put(tko.Put{Template: "there", Defer: true})
	if d := get(); d.Site != "" || d.AwaitedSite != "" {
		t.Errorf("without a site, it is %+v", d)
	}
}

// A waiting deployment is work of the preparer, also if it is prepared: nothing has to remember
// it.
func TestWaitingDeploymentIsWork(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	r, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindDeployment, Name: "early", Site: "late", Defer: true})
	if err != nil {
		t.Fatal(err)
	}
	claimed := func() []tko.WorkItem {
		t.Helper()
		items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Worker: "me", Max: 10, Lease: 1e9})
		if err != nil {
			t.Fatal(err)
		}
		return items
	}
	items := claimed()
	if len(items) != 1 || items[0].Key != r.ID {
		t.Fatalf("the work is %+v", items)
	}
	if err := w.FinishWork(w.ctx, []tko.FinishedWork{{Item: items[0], Outcome: tko.WorkLater, Retry: 3600e9}}); err != nil {
		t.Fatal(err)
	}
	w.site("late", "")
	if d, err := w.commitAgain(tko.DeploymentID(r.ID)); err != nil || d.Site != "late" {
		t.Errorf("it is %+v, %v", d, err)
	}
}

// What the owner of a waiting deployment may not see waits like what doesn't exist. Who may
// only write at some sites may name one of them before it exists, and no other.
func TestWaitingDeploymentActsAsItsOwner(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	w.bind("cert:bob", access.Editor, emea)
	w.bind("cert:preparer", access.ControllerPrepare, access.Scope{})
	put := func(p tko.Put) (tko.DeploymentID, error) {
		p.Kind, p.Defer = tko.KindDeployment, true
		r, err := w.PutEntity(w.as("cert:bob"), p)
		return tko.DeploymentID(r.ID), err
	}
	prepare := func(id tko.DeploymentID) tko.Deployment {
		t.Helper()
		d, err := w.Deployment(w.ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.CommitDeployment(w.as("cert:preparer"), tko.DeploymentCommit{ID: id, Revision: d.Stamp.Revision, Package: d.Package}); err != nil {
			t.Fatal(err)
		}
		if d, err = w.Deployment(w.ctx, id, 0); err != nil {
			t.Fatal(err)
		}
		return d
	}
	_, err := put(tko.Put{Name: "foreign", Site: "apac/9"})
	w.is("a site elsewhere", err, tko.ErrDenied)
	id, err := put(tko.Put{Name: "early", Template: "t", Site: "emea/9"})
	if err != nil {
		t.Fatal(err)
	}
	w.site("emea/9", "")
	if d := prepare(id); d.Site != "emea/9" || d.Template != "" || d.AwaitedTemplate != "t" {
		t.Errorf("a template that its owner may not see is used: %+v", d)
	}
	w.bind("cert:bob", access.Viewer, access.Scope{Kinds: []tko.Kind{tko.KindTemplate}})
	if d := prepare(id); d.Template != "t" {
		t.Errorf("with the right, it is %+v", d)
	}
}

// A property that no template's CRD knows is a condition of sites and deployments, which ends with
// the property.
func TestUnknownPropertiesAreACondition(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	odd, known := thing("x", "odd: true"), thing("x", "a: 1")
	check := func(what string, conditions []tko.Condition, want string) {
		t.Helper()
		if got := tko.ConditionIs(conditions, tko.ConditionKnownProperties); got != want {
			t.Errorf("%s: KnownProperties is %q, want %q", what, got, want)
		}
	}
	siteIs := func(what, want string) {
		t.Helper()
		s, err := w.Site(w.ctx, "s", 0)
		if err != nil {
			t.Fatal(err)
		}
		check(what, s.Stamp.Conditions, want)
	}
	w.site("s", odd)
	siteIs("a site with it", tko.ConditionFalse)
	w.site("s", known)
	siteIs("without it", tko.ConditionTrue)
	if _, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindSite, ID: "s", Package: pkg(t, odd)}); err != nil {
		t.Fatal(err)
	}
	siteIs("again", tko.ConditionFalse)
	id := w.create(tko.NewDeployment{Merge: pkg(t, odd)})
	d, err := w.Deployment(w.ctx, id, 0)
	if err != nil {
		t.Fatal(err)
	}
	check("a deployment with it", d.Stamp.Conditions, tko.ConditionFalse)
	if _, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: id, Revision: 1, Package: pkg(t, known).WithDeployment("", "", false, false)}); err != nil {
		t.Fatal(err)
	}
	if d, err = w.Deployment(w.ctx, id, 0); err != nil {
		t.Fatal(err)
	}
	check("without it", d.Stamp.Conditions, tko.ConditionTrue)
}
