package catalog_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// siteOf returns a site.
func (w *world) siteOf(id tko.SiteID) tko.Site {
	w.t.Helper()
	s, err := w.Site(w.ctx, id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// resolves resolves a site as a preparer does, and returns it.
func (w *world) resolves(ctx context.Context, id tko.SiteID, waits bool) tko.Site {
	w.t.Helper()
	if is, err := w.ResolveSite(ctx, id); is != waits || err != nil {
		w.t.Fatalf("site %s waits: %t, %v; want %t: %+v", id, is, err, waits, resolvedRefs(w.siteOf(id)))
	}
	return w.siteOf(id)
}

// resolvedRefs returns the condition ResolvedRefs of a site.
func resolvedRefs(s tko.Site) tko.Condition {
	if c := tko.FindCondition(s.Stamp.Conditions, tko.ConditionResolvedRefs); c != nil {
		return *c
	}
	return tko.Condition{}
}

// A site that names a template that doesn't exist yet is stored, waits, is due when the
// template arrives, and is then as if the template had been there.
func TestSiteWaitsForItsTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	put := tko.Put{Kind: tko.KindSite, ID: "early", Template: "late", Package: pkg(t, strings.Replace(thing("own", "picky: true"), "{name: own}", "{name: own, annotations: {nephio.org/merge: Override}}", 1)), Metadata: map[string]string{"mine": "1"}}
	if _, err := w.PutEntity(w.ctx, put); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("without deferred references, the error is %v", err)
	}
	put.Defer = true
	for _, want := range []string{"created", "unchanged"} {
		r, err := w.PutEntity(w.ctx, put)
		if err != nil || r.Created != (want == "created") || r.Revision != 1 {
			t.Fatalf("%s: %+v, %v", want, r, err)
		}
	}
	s := w.resolves(w.ctx, "early", true)
	if s.Stamp.Revision != 1 || s.AwaitedTemplate != "late" || s.Template != "" || len(s.Package) != 1 {
		t.Fatalf("it is %+v", s)
	}
	c := resolvedRefs(s)
	if c.Status != tko.ConditionFalse || c.Reason != tko.ReasonWaitsForReferences || c.Message != `template "late" doesn't exist yet: the site waits until it is registered` {
		t.Errorf("ResolvedRefs is %+v", c)
	}
	if tko.HasCondition(s.Stamp.Conditions, tko.ConditionPrepared, tko.ReasonWaitsForReferences) {
		t.Error("a site isn't prepared")
	}
	claim := tko.ClaimWork{Queue: tko.QueuePrepare, Worker: "me", Max: 10, Lease: time.Minute, Wait: 10 * time.Second}
	items, err := w.ClaimWork(w.ctx, claim)
	if err != nil || len(items) != 1 || items[0].Key != tko.SiteWork("early") {
		t.Fatalf("the work is %+v, %v", items, err)
	}
	if err := w.FinishWork(w.ctx, []tko.FinishedWork{{Item: items[0], Outcome: tko.WorkLater, Retry: time.Hour}}); err != nil {
		t.Fatal(err)
	}

	w.template("late", thing("own", "required: 1")+thing("base", "b: 1"), "from", "template")
	if items, err = w.ClaimWork(w.ctx, claim); err != nil || len(items) != 1 || items[0].Key != tko.SiteWork("early") {
		t.Fatalf("after the template, the work is %+v, %v", items, err)
	}
	s = w.resolves(w.ctx, "early", false)
	if s.Template != "late" || s.AwaitedTemplate != "" || s.Stamp.Why != "what it waited for exists now" || resolvedRefs(s).Status != tko.ConditionTrue {
		t.Fatalf("with the template, it is %+v", s)
	}
	put.ID, put.Defer = "after", false
	if _, err := w.PutEntity(w.ctx, put); err != nil {
		t.Fatal(err)
	}
	if same := w.siteOf("after"); !reflect.DeepEqual(same.Package, s.Package) || !reflect.DeepEqual(same.Metadata, s.Metadata) {
		t.Errorf("it is\n%v %v, and a site that came after its template\n%v %v", s.Package, s.Metadata, same.Package, same.Metadata)
	}
	put.ID = "early"
	if r, err := w.PutEntity(w.ctx, put); err != nil || r.Changed {
		t.Errorf("the same again: %+v, %v", r, err)
	}
	w.resolves(w.ctx, "early", false)
}

// A template with which a waiting site would not be valid isn't used, and the condition says
// why. It is tried again after each change of the site.
func TestWaitingSiteIsValidatedWhenItsTemplateArrives(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	early := tko.Put{Kind: tko.KindSite, ID: "early", Template: "late", Defer: true, Package: pkg(t, thing("one", "invalid: true"))}
	if _, err := w.PutEntity(w.ctx, early); !errors.Is(err, tko.ErrInvalid) {
		t.Fatalf("the given package is not validated: %v", err)
	}
	early.Package = pkg(t, thing("one", "a: 1"))
	if _, err := w.PutEntity(w.ctx, early); err != nil {
		t.Fatal(err)
	}
	w.template("late", thing("two", "picky: true"))
	for range 2 {
		s := w.resolves(w.ctx, "early", true)
		if c := resolvedRefs(s); s.Template != "" || s.Stamp.Revision != 1 || c.Reason != "Invalid" || !strings.Contains(c.Message, `template "late"`) || !strings.Contains(c.Message, "is required") {
			t.Fatalf("it is %+v", s)
		}
	}
	w.template("late", thing("two", "picky: true, required: 1"))
	if s := w.resolves(w.ctx, "early", false); s.Template != "late" || resolvedRefs(s).Status != tko.ConditionTrue {
		t.Errorf("it is %+v", s)
	}
}

// A waiting site can be changed, also to name another template or none, by clients of each
// transport. Clients who don't know of waiting don't end it. A whole package isn't merged.
func TestWaitingSiteCanBeChanged(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("there", thing("base", "b: 1"))
	put := func(p tko.Put) tko.Site {
		t.Helper()
		p.Kind, p.ID = tko.KindSite, "early"
		if p.Package == nil {
			p.Package = pkg(t, thing("own", "a: 1"))
		}
		if _, err := w.PutEntity(w.ctx, p); err != nil {
			t.Fatal(err)
		}
		return w.siteOf("early")
	}
	put(tko.Put{Template: "late", Defer: true})
	if s := put(tko.Put{Metadata: map[string]string{"a": "b"}}); s.AwaitedTemplate != "late" || s.Metadata["a"] != "b" {
		t.Errorf("a client who doesn't know of it makes it %+v", s)
	}
	w.site("early", thing("own", "a: 2"))
	if s := w.siteOf("early"); s.AwaitedTemplate != "late" || resolvedRefs(s).Status != tko.ConditionFalse {
		t.Errorf("a registration without a template makes it %+v", s)
	}
	if s := put(tko.Put{Template: "other", Defer: true}); s.AwaitedTemplate != "other" || !strings.Contains(resolvedRefs(s).Message, "other") {
		t.Errorf("with another template, it is %+v", s)
	}
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "early", Template: "there", Package: pkg(t, thing("own", "a: 1"))}); err != nil {
		t.Fatal(err)
	}
	if s := w.siteOf("early"); s.AwaitedTemplate != "" || s.Template != "there" || len(s.Package) != 2 || resolvedRefs(s).Status != tko.ConditionTrue {
		t.Errorf("registered with a template that exists, it is %+v", s)
	}
	if s := put(tko.Put{Template: "next", Defer: true}); s.Template != "there" || s.AwaitedTemplate != "next" {
		t.Errorf("it doesn't keep its template until the next one exists: %+v", s)
	}
	if s := put(tko.Put{Defer: true}); s.Template != "" || s.AwaitedTemplate != "" || resolvedRefs(s).Status != tko.ConditionTrue {
		t.Errorf("without a template, it is %+v", s)
	}
	put(tko.Put{Template: "late", Defer: true, Whole: true})
	w.template("late", thing("base", "b: 1"))
	if s := w.resolves(w.ctx, "early", false); s.Template != "late" || len(s.Package) != 1 {
		t.Errorf("a whole package is merged: %+v", s)
	}
}

// A waiting site gets its template with the rights of who named it: not with those of the
// preparer, and not with those of who wrote the site before.
func TestWaitingSiteActsAsItsOwner(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	bound := w.bind("cert:bob", access.Editor, emea)
	w.bind("cert:preparer", access.ControllerPrepare, access.Scope{})
	preparer := w.as("cert:preparer")
	put := func(who, template string) {
		t.Helper()
		if _, err := w.PutEntity(w.as(who), tko.Put{Kind: tko.KindSite, ID: "emea/9", Template: tko.TemplateID(template), Defer: true}); err != nil {
			t.Fatal(err)
		}
	}
	put("cert:bob", "t")
	_, err := w.ResolveSite(w.as("cert:bob"), "emea/9")
	w.is("resolving without the right of a preparer", err, tko.ErrDenied)
	if s := w.resolves(preparer, "emea/9", true); s.Template != "" || resolvedRefs(s).Reason != tko.ReasonWaitsForReferences {
		t.Errorf("a template that its owner may not see is used: %+v", s)
	}
	put("cert:ada", "new") // may see templates
	put("cert:bob", "t")   // with the same package
	if s := w.resolves(preparer, "emea/9", true); s.Template != "" {
		t.Errorf("bob got a template that only ada may see: %+v", s)
	}
	w.is("unbind", w.Unbind(tko.WithConfirmation(w.ctx, 1), bound.ID), nil)
	if s := w.resolves(preparer, "emea/9", true); s.Template != "" || resolvedRefs(s).Reason != "Held" || !strings.Contains(resolvedRefs(s).Message, "cert:bob") {
		t.Errorf("without rights of its owner, it is %+v", s)
	}
	put("cert:ada", "new")
	put("cert:ada", "t")
	if s := w.resolves(preparer, "emea/9", false); s.Template != "t" {
		t.Errorf("with the right, it is %+v", s)
	}
}

// A site that waits, and whose owner has left, gets its template with the rights of another
// owner. A site that waits for nothing has none. Unbinding counts the sites that would be held.
func TestWaitingSiteGetsAnotherOwner(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	bound := w.bind("cert:bob", access.Editor, emea)
	w.bind("cert:preparer", access.ControllerPrepare, access.Scope{})
	preparer := w.as("cert:preparer")
	if _, err := w.PutEntity(w.as("cert:bob"), tko.Put{Kind: tko.KindSite, ID: "emea/9", Template: "t", Defer: true}); err != nil {
		t.Fatal(err)
	}
	owner := func(want string) {
		t.Helper()
		if o, err := w.Owner(w.ctx, tko.KindSite, "emea/9"); err != nil || o.String() != want {
			t.Errorf("the owner is %s, %v; want %s", o, err, want)
		}
	}
	owner("cert:bob")
	if n, err := w.CountOwned(w.ctx, bound.ID); err != nil || n != (tko.Owned{Sites: 1}) || n.String() != "1 site" {
		t.Errorf("bob owns %+v (%s), %v", n, n, err)
	}
	wantError(t, w.Unbind(w.ctx, bound.ID), tko.ErrInvalid, "1 site", "--confirm=1")
	w.is("unbind", w.Unbind(tko.WithConfirmation(w.ctx, 1), bound.ID), nil)
	if s := w.resolves(preparer, "emea/9", true); !strings.Contains(resolvedRefs(s).Message, "tko access own site emea/9 SUBJECT") {
		t.Errorf("the condition names no way out: %+v", resolvedRefs(s))
	}

	w.is("by an editor", w.SetOwner(w.as("cert:ada"), tko.KindSite, "emea/9", tko.Owner{Subject: "cert:ada"}), tko.ErrDenied)
	owner("cert:bob")
	w.is("by an administrator", w.SetOwner(w.ctx, tko.KindSite, "emea/9", tko.Owner{Subject: "cert:ada"}), nil)
	owner("cert:ada")
	claim := tko.ClaimWork{Queue: tko.QueuePrepare, Worker: "me", Max: 10, Lease: time.Minute, Wait: 10 * time.Second}
	if items, err := w.ClaimWork(preparer, claim); err != nil || len(items) != 1 || items[0].Key != tko.SiteWork("emea/9") {
		t.Errorf("with another owner, the work is %+v, %v", items, err)
	}
	if s := w.resolves(preparer, "emea/9", false); s.Template != "t" || resolvedRefs(s).Status != tko.ConditionTrue {
		t.Errorf("with the rights of its new owner, it is %+v", s)
	}

	for _, site := range []string{"emea/9", "emea/1"} {
		_, err := w.Owner(w.ctx, tko.KindSite, site)
		wantError(t, err, tko.ErrInvalid, site, "waits for its template")
		wantError(t, w.SetOwner(w.ctx, tko.KindSite, site, tko.Owner{Subject: "cert:bob"}), tko.ErrInvalid, site, "waits for its template")
	}
	w.is("a site that there isn't", w.SetOwner(w.ctx, tko.KindSite, "emea/none", tko.Owner{Subject: "cert:bob"}), tko.ErrNotFound)
}

// Who makes a waiting deployment name another template owns it from then on, also if nothing
// else of it changes: it gets nothing with the rights of who wrote it before.
func TestWaitingDeploymentBelongsToWhoNamesItsTemplate(t *testing.T) {
	t.Parallel()
	w := newTenants(t, catalog.Options{})
	w.bind("cert:bob", access.Editor, emea)
	put := func(who, template string, id tko.DeploymentID) tko.DeploymentID {
		t.Helper()
		p := tko.Put{Kind: tko.KindDeployment, ID: string(id), Template: tko.TemplateID(template), Site: "emea/1", Defer: true}
		if id == "" {
			p.Name = "early"
		} else {
			p.Package = w.deployment(id).Package
		}
		r, err := w.PutEntity(w.as(who), p)
		if err != nil {
			t.Fatal(err)
		}
		return tko.DeploymentID(r.ID)
	}
	id := put("cert:ada", "new", "")
	put("cert:bob", "t", id)
	if owner := w.ownerOf(id); owner != "cert:bob" {
		t.Errorf("its owner is %s", owner)
	}
	w.bind("cert:preparer", access.ControllerPrepare, access.Scope{})
	d := w.deployment(id)
	_, err := w.CommitDeployment(w.as("cert:preparer"), tko.DeploymentCommit{ID: id, Revision: d.Stamp.Revision, Package: d.Package})
	d = w.deployment(id)
	if err != nil || d.Template != "" || d.AwaitedTemplate != "t" {
		t.Errorf("it is %+v, %v", d, err)
	}
}

// A stop holds a site that waits.
func TestStoppedSiteKeepsWaiting(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	if _, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindSite, ID: "s/1", Template: "late", Defer: true}); err != nil {
		t.Fatal(err)
	}
	stop := w.stopped(tko.Stop{All: true}).Stop
	w.template("late", thing("base", "b: 1"))
	items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Worker: "me", Max: 10, Lease: time.Minute, Wait: 10 * time.Second})
	if err != nil || len(items) != 1 {
		t.Fatalf("the work is %+v, %v", items, err)
	}
	if _, err := w.ResolveSite(w.ctx, "s/1"); !errors.Is(err, tko.ErrStopped) {
		t.Errorf("while it is stopped: %v", err)
	}
	w.resumed(stop.ID)
	w.resolves(w.ctx, "s/1", false)
}
