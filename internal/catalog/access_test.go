package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
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

// as returns the context of a caller.
func (w *world) as(subject string, groups ...string) context.Context {
	return identity.With(w.ctx, identity.Identity{Subject: subject, Groups: groups, Authenticator: "certificate", From: "192.0.2.7:4711"})
}

// newGuarded returns a world with enforced rights, in which w.ctx is an administrator.
func newGuarded(t *testing.T, options catalog.Options) *world {
	t.Helper()
	options.Access, options.Audit = rights.Enforce, true
	w := newWorld(t, options)
	if _, err := rights.InitAccess(t.Context(), w.store, "cert:root", "first", time.Time{}); err != nil {
		t.Fatal(err)
	}
	w.ctx = w.as("cert:root")
	return w
}

func (w *world) bind(subject string, role access.Role, scope access.Scope) access.Binding {
	w.t.Helper()
	b, err := w.Bind(w.ctx, access.Binding{Subject: subject, Role: role, Scope: scope})
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

func (w *world) is(what string, err, want error) {
	w.t.Helper()
	if want == nil && err != nil || want != nil && !errors.Is(err, want) {
		w.t.Errorf("%s: got %v, want %v", what, err, want)
	}
}

var emea = access.Scope{SiteID: "emea/**"}

func TestCallersWithoutRightsCanDoNothing(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.site("emea/1", "")
	for name, ctx := range map[string]context.Context{
		"without an identity": t.Context(), "without a binding": w.as("cert:eve"), "anonymous": identity.With(t.Context(), identity.Anonymous("127.0.0.1:1")),
		"of another authenticator": w.as("oidc:corp:root"), "with the group of an administrator's name": w.as("cert:eve", "cert:root"),
	} {
		_, err := w.RegisterSite(ctx, tko.Site{ID: "emea/2"})
		w.is(name+", register", err, tko.ErrDenied)
		_, err = w.Site(ctx, "emea/1", 0)
		w.is(name+", get", err, tko.ErrDenied)
		_, err = collect(w.Sites(ctx, tko.SiteSelect{}, tko.ListOptions{}))
		w.is(name+", list", err, tko.ErrDenied)
		_, err = w.Bind(ctx, access.Binding{Subject: "cert:eve", Role: access.Admin})
		w.is(name+", bind", err, tko.ErrDenied)
		_, err = w.ClaimWork(ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1, Lease: time.Minute})
		w.is(name+", claim", err, tko.ErrDenied)
		for _, err := range w.Watch(ctx, 0) {
			w.is(name+", watch", err, tko.ErrDenied)
		}
		_, err = w.About(ctx)
		w.is(name+", about", err, nil)
	}
	_, err := w.Site(identity.With(w.ctx, identity.Identity{Subject: "cert:root", Expires: time.Now().Add(-time.Second)}), "emea/1", 0)
	w.is("expired credentials", err, tko.ErrDenied)
}

func TestForbiddenReadsAreLikeMissingOnes(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.site("emea/1", "", "k", "v")
	w.site("apac/1", "")
	w.template("t", "")
	hidden := w.create(tko.NewDeployment{Site: "apac/1", Template: "t"})
	w.bind("cert:ada", access.Editor, emea)
	ada := w.as("cert:ada")
	ids := mustID(t)
	type pair struct{ forbidden, absent error }
	_, a := w.Site(ada, "apac/1", 0)
	_, b := w.Site(ada, "apac/2", 0)
	_, c := w.Site(ada, "apac/1", 1)
	_, d := w.Site(ada, "apac/2", 1)
	_, e := w.Deployment(ada, hidden, 0)
	_, f := w.Deployment(ada, ids, 0)
	_, g := w.DeleteDeployment(ada, hidden)
	_, h := w.DeleteDeployment(ada, ids)
	_, held := w.StartModification(w.ctx, hidden) // of which others don't learn
	w.is("start as an administrator", held, nil)
	_, i := w.StartModification(ada, hidden)
	_, j := w.StartModification(ada, ids)
	_, k := w.CreateDeployment(ada, tko.NewDeployment{Site: "apac/1"})
	_, l := w.CreateDeployment(ada, tko.NewDeployment{Site: "apac/2"})
	_, m := w.CreateDeployment(ada, tko.NewDeployment{Site: "emea/1", Parent: hidden})
	_, n := w.CreateDeployment(ada, tko.NewDeployment{Site: "emea/1", Parent: ids})
	_, o := w.CreateDeployment(ada, tko.NewDeployment{Site: "emea/1", Template: "t"})
	_, p := w.CreateDeployment(ada, tko.NewDeployment{Site: "emea/1", Template: "u"})
	_, q := w.RegisterSite(ada, tko.Site{ID: "apac/1"})
	_, r := w.RegisterSite(ada, tko.Site{ID: "apac/2"})
	_, s := w.DeleteSite(ada, "apac/1")
	_, u := w.DeleteSite(ada, "apac/2")
	for name, p := range map[string]pair{
		"get": {a, b}, "get a revision": {c, d}, "get a deployment": {e, f}, "delete": {g, h}, "modify": {i, j}, "create at a site": {k, l}, "create below": {m, n},
		"create from a template": {o, p}, "register": {q, r}, "delete a site": {s, u},
	} {
		if p.forbidden == nil || p.absent == nil {
			t.Errorf("%s: got %v for a forbidden one and %v for a missing one, want errors", name, p.forbidden, p.absent)
			continue
		}
		is, want := p.forbidden.Error(), p.absent.Error()
		for _, id := range []string{"apac/2", string(ids), `"u"`} {
			want = strings.ReplaceAll(want, id, map[string]string{"apac/2": "apac/1", string(ids): string(hidden), `"u"`: `"t"`}[id])
		}
		if is != want {
			t.Errorf("%s: a forbidden one differs from a missing one:\n%s\n%s", name, is, want)
		}
	}
}

func mustID(t *testing.T) tko.DeploymentID {
	t.Helper()
	other := newWorld(t, catalog.Options{})
	return other.create(tko.NewDeployment{})
}

func TestListsCountsAndPurgesAreWithinScope(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.template("t", "")
	for i := range 12 {
		w.site(fmt.Sprintf("%s/%02d", []string{"emea", "apac"}[i%2], i), "", "n", strconv.Itoa(i%3))
		w.create(tko.NewDeployment{Template: "t", Site: tko.SiteID(fmt.Sprintf("%s/%02d", []string{"emea", "apac"}[i%2], i))})
	}
	w.bind("cert:ada", access.Operator, emea)
	w.bind("cert:ada", access.Viewer, access.Scope{Kinds: []tko.Kind{tko.KindTemplate}})
	ada := w.as("cert:ada")
	none := tko.ListOptions{Deployments: true, Counts: true, Packages: true}
	for name, sel := range map[string]tko.SiteSelect{"all": {}, "by ID": {IDs: []string{"**/0*"}}, "by metadata": {Metadata: map[string]string{"n": "*"}}, "elsewhere": {IDs: []string{"apac/**"}}} {
		everything := all(t, w.Sites(w.ctx, sel, none))
		want := slices.DeleteFunc(everything, func(s tko.Site) bool { return !strings.HasPrefix(string(s.ID), "emea/") })
		var got []tko.Site
		for offset := uint32(0); ; offset += 2 { // pages by offset: their union is the filtered truth
			two := 2
			page := all(t, w.Sites(ada, sel, tko.ListOptions{Window: tko.Window{Offset: offset, Max: &two}, Deployments: true}))
			got = append(got, page...)
			if len(page) < 2 {
				break
			}
		}
		if len(got) != len(want) {
			t.Fatalf("%s: got %d sites, want %d", name, len(got), len(want))
		}
		for i := range got {
			if got[i].ID != want[i].ID || len(got[i].Deployments) != 1 {
				t.Errorf("%s: got %+v, want %s with its deployment", name, got[i], want[i].ID)
			}
		}
	}
	template, err := w.Template(ada, "t", 0)
	w.is("template", err, nil)
	if len(template.Deployments) != 6 {
		t.Errorf("the template shows %d deployments, want the 6 within the scope", len(template.Deployments))
	}
	listed := all(t, w.Templates(ada, tko.TemplateSelect{}, none))
	if len(listed) != 1 || listed[0].DeploymentCount != 6 || len(listed[0].Deployments) != 6 {
		t.Errorf("the list shows %+v, want one template with 6 deployments", listed)
	}
	would, err := w.PurgeDeployments(ada, tko.DeploymentSelect{}, true)
	if err != nil || would.Count != 6 {
		t.Errorf("the purge would delete %v, %v, want 6", would, err)
	}
	_, err = w.PurgeTemplates(ada, tko.TemplateSelect{}, false)
	w.is("purge without the right", err, tko.ErrDenied)
	done, err := w.PurgeDeployments(ada, tko.DeploymentSelect{}, false)
	if err != nil || done.Count != 6 {
		t.Errorf("the purge deleted %v, %v, want 6", done, err)
	}
	if left := all(t, w.Deployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{})); len(left) != 6 {
		t.Errorf("%d deployments are left, want the 6 outside the scope", len(left))
	}
}

func TestWatchShowsEntitiesThatEnterAndLeaveTheScope(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.bind("cert:ada", access.Viewer, access.Scope{Metadata: map[string]string{"team": "a"}})
	w.site("s1", "", "team", "a")
	w.site("s2", "", "team", "b")
	w.site("s2", "", "team", "a") // enters
	w.site("s1", "", "team", "b") // leaves
	w.site("s1", "", "team", "c")
	conditions := []tko.Condition{{Type: "Healthy", Status: "True"}}
	w.is("conditions", w.SetConditions(identity.With(w.ctx, identity.Controller(identity.RoleScheduler)), tko.KindSite, "s1", conditions), nil)
	w.is("conditions", w.SetConditions(identity.With(w.ctx, identity.Controller(identity.RoleScheduler)), tko.KindSite, "s2", conditions), nil)
	if _, err := w.DeleteSite(w.ctx, "s1"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.DeleteSite(w.ctx, "s2"); err != nil {
		t.Fatal(err)
	}
	w.site("last", "", "team", "a")
	var got []string
	for c, err := range w.Watch(w.as("cert:ada"), 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(c.Op)+" "+c.ID+" by "+c.Author.Who)
		if c.ID == "last" {
			break
		}
	}
	want := []string{
		"written s1 by cert:root", "written s2 by cert:root", "deleted s1 by ", "status s2 by tko:meta-scheduler", "deleted s2 by cert:root", "written last by cert:root",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestWatchEndsWhenRightsAreRevoked(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	b := w.bind("cert:ada", access.Viewer, emea)
	ctx, cancel := context.WithTimeout(w.as("cert:ada"), time.Minute)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		for _, err := range w.Watch(ctx, -1) {
			if err != nil {
				ended <- err
			}
		}
		close(ended)
	}()
	w.is("unbind", w.Unbind(w.ctx, b.ID), nil)
	w.is("watch", <-ended, tko.ErrDenied)
}

// A list that takes long must not go on with rights that the caller no longer has.
func TestListsEndWhenRightsAreRevoked(t *testing.T) {
	t.Parallel()
	lists := map[string]func(ctx context.Context, w *world) iter.Seq[error]{
		"sites": func(ctx context.Context, w *world) iter.Seq[error] {
			return errorsOf(w.Sites(ctx, tko.SiteSelect{}, tko.ListOptions{}))
		},
		"records": func(ctx context.Context, w *world) iter.Seq[error] {
			position, err := w.Position(ctx)
			w.is("position", err, nil)
			return errorsOf(w.Records(ctx, record.Query{Kind: tko.KindSite, Limit: -1}, position))
		},
	}
	for name, list := range lists {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGuarded(t, catalog.Options{})
			for _, id := range []tko.SiteID{"emea/1", "emea/2"} {
				_, err := w.RegisterSite(w.ctx, tko.Site{ID: id})
				w.is("register", err, nil)
			}
			b := w.bind("cert:ada", access.Viewer, emea)
			n := 0
			for err := range list(w.as("cert:ada"), w) {
				n++
				if n == 2 {
					w.is("second site", err, tko.ErrDenied)
					break
				}
				w.is("first site", err, nil)
				w.is("unbind", w.Unbind(w.ctx, b.ID), nil)
				time.Sleep(time.Second) // rights are compared once in a second
			}
			if n != 2 {
				t.Errorf("the list ended after %d sites, without an error", n)
			}
		})
	}
}

func errorsOf[T any](list iter.Seq2[T, error]) iter.Seq[error] {
	return func(yield func(error) bool) {
		for _, err := range list {
			if !yield(err) {
				return
			}
		}
	}
}

// A server may have the rights of a caller in its cache that another server has removed.
func TestRulesChangeOnlyWithTheRightsThatTheCallerHasNow(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	b := w.bind("cert:ada", access.Admin, access.Scope{})
	ada := w.as("cert:ada")
	other := catalog.New(w.store, w.validator, catalog.Options{Access: rights.Enforce, Audit: true})
	_, err := other.Bind(w.ctx, access.Binding{Subject: "cert:bob", Role: access.Viewer})
	w.is("another rule, elsewhere", err, nil)
	_, err = w.Bind(ada, access.Binding{Subject: "cert:cy", Role: access.Viewer, Scope: emea})
	w.is("bind with the same rights as before", err, nil)
	w.is("revoke elsewhere", other.Unbind(w.ctx, b.ID), nil)
	_, err = w.Bind(ada, access.Binding{Subject: "cert:eve", Role: access.Admin})
	w.is("bind with revoked rights", err, tko.ErrDenied)
	rules, err := other.Bindings(w.ctx)
	w.is("read the rules", err, nil)
	if slices.ContainsFunc(rules.Bindings, func(b access.Binding) bool { return b.Subject == "cert:eve" }) {
		t.Error("a caller without rights has bound another one")
	}
	var details []string
	for stored, err := range w.AuditRecords(w.ctx, audit.Select{Subject: "cert:ada", Kind: "binding"}) {
		w.is("read the audit log", err, nil)
		r, err := stored.Record()
		w.is("read a record", err, nil)
		details = append(details, r.Op+" "+r.Detail)
	}
	if want := []string{"bound cert:cy: viewer in site-id=emea/**"}; !slices.Equal(details, want) {
		t.Errorf("the audit log has %q, want %q", details, want)
	}
}

func TestNoWriteCommitsAfterItsRightsAreRevoked(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	b := w.bind("cert:ada", access.Editor, emea)
	ada := w.as("cert:ada")
	if _, err := w.RegisterSite(ada, tko.Site{ID: "emea/1"}); err != nil {
		t.Fatal(err)
	}
	// Another server revokes: this one has the rights in its cache.
	_, rules, err := w.store.Access(w.ctx)
	if err != nil || len(rules) == 0 {
		t.Fatal(err)
	}
	other := catalog.New(w.store, w.validator, catalog.Options{Access: rights.Enforce})
	w.is("revoked elsewhere", other.Unbind(w.ctx, b.ID), nil)
	_, err = w.RegisterSite(ada, tko.Site{ID: "emea/2"})
	if err == nil {
		t.Error("a write succeeded after its rights were revoked")
	}
	// Another binding doesn't disturb writers.
	w.bind("cert:bob", access.Editor, emea)
	if _, err := w.RegisterSite(w.as("cert:bob"), tko.Site{ID: "emea/3"}); err != nil {
		t.Error(err)
	}
	if _, err := other.Bind(w.ctx, access.Binding{Subject: "cert:cy", Role: access.Viewer}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RegisterSite(w.as("cert:bob"), tko.Site{ID: "emea/4"}); err != nil {
		t.Errorf("a binding of another subject failed a write: %v", err)
	}
}

func TestWritesDoNotEscapeFromAScope(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	team := func(name string) access.Scope { return access.Scope{Metadata: map[string]string{"team": name}} }
	w.site("a", "", "team", "a")
	w.site("b", "", "team", "b")
	w.bind("cert:ada", access.Editor, team("a"))
	ada := w.as("cert:ada")
	_, err := w.RegisterSite(ada, tko.Site{ID: "b", Metadata: map[string]string{"team": "a"}})
	w.is("take a site by its metadata", err, tko.ErrDenied)
	_, err = w.RegisterSite(ada, tko.Site{ID: "a", Metadata: map[string]string{"team": "b"}})
	w.is("give a site away", err, tko.ErrDenied)
	_, _, err = w.PutRecord(ada, catalog.Put{Key: record.Key{Kind: tko.KindSite, ID: "b"}, Metadata: map[string]string{"team": "a"}})
	w.is("take a site by a put", err, tko.ErrDenied)
	_, err = w.PutEntity(ada, tko.Put{Kind: tko.KindSite, ID: "b", Metadata: map[string]string{"team": "a"}})
	w.is("take a site by a put of an entity", err, tko.ErrDenied)
	if site, err := w.Site(w.ctx, "b", 0); err != nil || site.Metadata["team"] != "b" || site.Stamp.Revision != 1 {
		t.Errorf("the site is %+v, %v, want it unchanged", site, err)
	}

	w.bind("cert:bob", access.Editor, emea)
	w.site("emea/1", "")
	w.site("apac/1", "")
	bob := w.as("cert:bob")
	d, err := w.CreateDeployment(bob, tko.NewDeployment{Site: "emea/1"})
	w.is("create", err, nil)
	moved := func(site string) krm.Package { return pkg(t, state("siteId: "+site, "")) }
	_, err = w.CommitDeployment(bob, tko.DeploymentCommit{ID: d, Revision: 1, Package: moved("apac/1")})
	w.is("move out of the scope", err, tko.ErrDenied)
	foreign := w.create(tko.NewDeployment{Site: "apac/1"})
	_, err = w.CommitDeployment(bob, tko.DeploymentCommit{ID: foreign, Revision: 1, Package: moved("emea/1")})
	w.is("move into the scope", err, tko.ErrNotFound)
	_, _, err = w.CreateChildren(bob, tko.NewChildren{Parent: foreign, Children: []tko.NewChild{{Origin: "x", Site: "emea/1"}}})
	w.is("create a child of a foreign parent", err, tko.ErrInvalid)

	// Deleting a parent needs the right on all its descendants.
	parent, err := w.CreateDeployment(bob, tko.NewDeployment{Site: "emea/1"})
	w.is("create a parent", err, nil)
	w.create(tko.NewDeployment{Site: "apac/1", Parent: parent})
	_, err = w.DeleteDeployment(bob, parent)
	w.is("delete a parent with a foreign child", err, tko.ErrDenied)
	if err != nil && !strings.Contains(err.Error(), "1 of the descendants") {
		t.Errorf("got %v, want the number of descendants", err)
	}
	_, _, err = w.RemoveRecord(bob, record.Key{Kind: tko.KindDeployment, ID: string(parent)}, record.Requirement{}, true)
	w.is("count a parent with a foreign child", err, tko.ErrDenied)
	w.bind("cert:op", access.Operator, emea)
	_, err = w.PurgeDeployments(w.as("cert:op"), tko.DeploymentSelect{}, false)
	w.is("purge a parent with a foreign child", err, tko.ErrDenied)
	if left := all(t, w.Deployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{})); len(left) != 4 {
		t.Errorf("%d deployments are left, want all 4", len(left))
	}
}

func TestModificationTokensAreBoundToTheirHolder(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	d := w.create(tko.NewDeployment{})
	w.bind("cert:ada", access.Editor, access.Scope{})
	w.bind("cert:bob", access.Editor, access.Scope{})
	m, err := w.StartModification(w.as("cert:ada"), d)
	w.is("start", err, nil)
	_, _, err = w.EndModification(w.as("cert:bob"), m.Token, m.Package)
	w.is("end with another's token", err, tko.ErrNotFound)
	w.is("cancel with another's token", w.CancelModification(w.as("cert:bob"), m.Token), tko.ErrNotFound)
	_, err = w.BreakModification(w.as("cert:bob"), d)
	w.is("break without the right", err, tko.ErrDenied)
	_, _, err = w.EndModification(w.as("cert:ada"), m.Token, pkg(t, thing("x", "")))
	w.is("end with one's own token", err, nil)
}

func TestApprovalNeedsItsRightHoweverItIsMade(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.site("emea/1", "")
	w.bind("cert:ada", access.Editor, emea)
	w.bind("cert:bob", access.Approver, emea)
	ada, bob := w.as("cert:ada"), w.as("cert:bob")
	d, err := w.CreateDeployment(ada, tko.NewDeployment{Site: "emea/1", Prepared: true})
	w.is("create", err, nil)
	approved := pkg(t, state("siteId: emea/1", isPrepared+", "+isApproved))
	_, err = w.CreateDeployment(ada, tko.NewDeployment{Site: "emea/1", Prepared: true, Approved: true})
	w.is("create an approved one", err, tko.ErrDenied)
	_, err = w.CommitDeployment(ada, tko.DeploymentCommit{ID: d, Revision: 1, Package: approved})
	w.is("approve by a package", err, tko.ErrDenied)
	m, err := w.StartModification(ada, d)
	w.is("start", err, nil)
	_, _, err = w.EndModification(ada, m.Token, approved)
	w.is("approve by a modification", err, tko.ErrDenied)
	w.is("cancel", w.CancelModification(ada, m.Token), nil)
	_, _, err = w.PutRecord(ada, catalog.Put{Key: record.Key{Kind: tko.KindDeployment, ID: string(d)}, Site: "emea/1", Package: approved})
	w.is("approve by a put", err, tko.ErrDenied)
	_, err = w.ApproveDeployment(ada, d)
	w.is("approve", err, tko.ErrDenied)
	_, err = w.ApproveDeployments(ada, tko.DeploymentSelect{}, false)
	w.is("approve a selection", err, tko.ErrDenied)
	_, err = w.PutApproval(ada, record.Key{Kind: tko.KindDeployment, ID: string(d)}, record.Requirement{}, false)
	w.is("approve by a subresource", err, tko.ErrDenied)
	_, err = w.CommitDeployment(bob, tko.DeploymentCommit{ID: d, Revision: 1, Package: approved})
	w.is("an approver edits", err, tko.ErrDenied)
	n, err := w.ApproveDeployment(bob, d)
	if n != 1 || err != nil {
		t.Errorf("an approver approved %d, %v, want 1", n, err)
	}
	// A controller approves automatically, unless a policy asks for a person.
	d, err = w.CreateDeployment(ada, tko.NewDeployment{Site: "emea/1", Prepared: true})
	w.is("create another", err, nil)
	_, err = w.CommitDeployment(identity.With(w.ctx, identity.Controller(identity.RolePreparer)), tko.DeploymentCommit{ID: d, Revision: 1, Package: approved})
	w.is("a controller approves", err, nil)
}

func TestWhoApprovesIsNotWhoChanged(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.site("emea/1", "")
	for _, name := range []string{"ada", "bob", "cy"} {
		w.bind("cert:"+name, access.Editor, access.Scope{})
		w.bind("cert:"+name, access.Approver, access.Scope{})
	}
	if _, err := w.AddPolicy(w.ctx, access.Policy{Scope: emea, Approvers: 1}); err != nil {
		t.Fatal(err)
	}
	ada, bob, cy := w.as("cert:ada"), w.as("cert:bob"), w.as("cert:cy")
	preparer := identity.With(w.ctx, identity.Controller(identity.RolePreparer))
	isNow := func(what string, d tko.DeploymentID, approved bool) int64 {
		t.Helper()
		is, err := w.Deployment(w.ctx, d, 0)
		if err != nil || is.Approved != approved {
			t.Errorf("%s: approved %t, %v, want %t", what, is.Approved, err, approved)
		}
		return is.Stamp.Revision
	}
	d, err := w.CreateDeployment(ada, tko.NewDeployment{Site: "emea/1", Prepared: true, Approved: true})
	w.is("create", err, nil)
	isNow("created as approved", d, false)
	_, err = w.ApproveDeployment(ada, d)
	w.is("one's own", err, tko.ErrDenied)
	_, err = w.ApproveDeployments(ada, tko.DeploymentSelect{}, false)
	w.is("one's own, by a selection", err, tko.ErrDenied)
	content := func(spec, annotations string) krm.Package {
		return pkg(t, state("siteId: emea/1", isPrepared+annotations)+thing("x", spec))
	}
	revision := isNow("not yet", d, false)
	_, err = w.CommitDeployment(preparer, tko.DeploymentCommit{ID: d, Revision: revision, Package: content("n: 1", ", "+isApproved)})
	w.is("a controller prepares", err, nil)
	isNow("approved by a controller", d, false)
	_, err = w.ApproveDeployment(identity.With(w.ctx, identity.Controller(identity.RoleGitOps)), d)
	w.is("a controller approves", err, tko.ErrDenied)
	n, err := w.ApproveDeployment(bob, d)
	if n != 1 || err != nil {
		t.Fatalf("another person approved %d, %v, want 1", n, err)
	}
	revision = isNow("approved by another person", d, true)

	// An edit voids the approval, and its author may not renew it.
	_, err = w.CommitDeployment(cy, tko.DeploymentCommit{ID: d, Revision: revision, Package: content("n: 2", ", "+isApproved)})
	w.is("edit", err, nil)
	isNow("edited after its approval", d, false)
	_, err = w.ApproveDeployment(cy, d)
	w.is("who edited", err, tko.ErrDenied)
	n, err = w.ApproveDeployment(ada, d) // didn't edit since
	if n != 1 || err != nil {
		t.Errorf("who edited before the last approval approved %d, %v, want 1", n, err)
	}

	// The template is a part of the change.
	_, err = w.RegisterTemplate(bob, tko.Template{ID: "t", Package: pkg(t, thing("x", ""))})
	w.is("template", err, nil)
	d, err = w.CreateDeployment(ada, tko.NewDeployment{Site: "emea/1", Template: "t", Prepared: true})
	w.is("create from the template", err, nil)
	_, err = w.ApproveDeployment(bob, d)
	w.is("who wrote the template", err, tko.ErrDenied)
}

func TestPolicyNeedsItsNumberOfApproversFromItsGroups(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.site("emea/1", "")
	for _, name := range []string{"ada", "bob", "cy", "eve"} {
		w.bind("cert:"+name, access.Approver, access.Scope{})
	}
	if _, err := w.AddPolicy(w.ctx, access.Policy{Scope: emea, Approvers: 2, Groups: []string{"noc"}}); err != nil {
		t.Fatal(err)
	}
	d := w.create(tko.NewDeployment{Site: "emea/1", Prepared: true})
	approve := func(name string, want int, wantErr error, groups ...string) {
		t.Helper()
		n, err := w.ApproveDeployment(w.as("cert:"+name, groups...), d)
		if n != want {
			t.Errorf("%s approved %d, want %d", name, n, want)
		}
		w.is(name, err, wantErr)
	}
	approve("eve", 0, tko.ErrDenied)
	approve("ada", 0, nil, "noc")
	approve("ada", 0, nil, "noc") // twice is once
	m, err := w.StartModification(w.ctx, d)
	w.is("start", err, nil)
	_, _, err = w.EndModification(w.ctx, m.Token, append(m.Package, pkg(t, thing("z", ""))...))
	w.is("edit", err, nil)
	approve("bob", 0, nil, "noc") // the edit voided ada's
	approve("cy", 1, nil, "noc")
}

func TestSecretsNeedARightOfTheirOwn(t *testing.T) {
	t.Parallel()
	const canary = "c2VjcmV0LWNhbmFyeQ=="
	secret := "apiVersion: v1\nkind: Secret\nmetadata: {name: s, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{\"apiVersion\":\"v1\",\"kind\":\"Secret\",\"data\":{\"k\":\"" + canary + "\"}}'}}\ndata: {k: " + canary + "}\n---\n"
	w := newGuarded(t, catalog.Options{})
	w.template("t", secret)
	w.site("emea/1", secret)
	d := w.create(tko.NewDeployment{Template: "t", Site: "emea/1"})
	w.bind("cert:ada", access.Editor, access.Scope{})
	w.bind("cert:bob", access.Editor, access.Scope{})
	w.bind("cert:bob", access.SecretRole, emea)
	moment := w.head()
	w.template("t", secret+thing("x", ""))
	w.site("emea/1", secret+thing("x", ""))
	_, _, err := w.EndModification(w.ctx, w.start(d).Token, append(w.deployment(d).Package, pkg(t, thing("later", ""))...))
	w.is("change", err, nil)
	see := func(ctx context.Context) map[string]krm.Package {
		former, _ := w.Site(ctx, "emea/1", 1)
		m, err := w.StartModification(ctx, d)
		w.is("start", err, nil)
		w.is("cancel", w.CancelModification(ctx, m.Token), nil)
		packages := tko.ListOptions{Packages: true}
		seen := map[string]krm.Package{"revision": former.Package, "modification": m.Package}
		read := func(ctx context.Context, when string) {
			template, _ := w.Template(ctx, "t", 0)
			site, _ := w.Site(ctx, "emea/1", 0)
			deployment, _ := w.Deployment(ctx, d, 0)
			maps.Copy(seen, map[string]krm.Package{
				"template" + when: template.Package, "site" + when: site.Package, "deployment" + when: deployment.Package,
				"templates" + when:   all(t, w.Templates(ctx, tko.TemplateSelect{}, packages))[0].Package,
				"sites" + when:       all(t, w.Sites(ctx, tko.SiteSelect{}, packages))[0].Package,
				"deployments" + when: all(t, w.Deployments(ctx, tko.DeploymentSelect{}, packages))[0].Package,
			})
			encodedSite, _ := w.EncodedSite(ctx, "emea/1", 0, record.StoredFormat)
			encoded, _ := w.EncodedDeployment(ctx, d, 0, record.StoredFormat)
			listed := all(t, w.EncodedDeployments(ctx, tko.DeploymentSelect{}, packages, record.StoredFormat))[0]
			for name, text := range map[string][]byte{"encoded site": encodedSite.Package, "encoded deployment": encoded.Package, "encoded deployments": listed.Package} {
				p, err := krm.Decode(record.StoredFormat, text, krm.Limits{})
				w.is(name, err, nil)
				seen[name+when] = p
			}
		}
		read(ctx, "")
		read(tko.WithAsOf(ctx, at(moment)), " as of a moment")
		return seen
	}
	shows := func(p krm.Package) bool {
		text, err := krm.Encode(krm.YAML, p)
		if err != nil || len(p) == 0 {
			t.Fatal("no package", err)
		}
		return strings.Contains(string(text), canary)
	}
	for name, p := range see(w.as("cert:ada")) {
		if shows(p) {
			t.Errorf("%s shows the value of a Secret to a caller without the right", name)
		}
	}
	for name, p := range see(w.as("cert:bob")) {
		if shows(p) == strings.Contains(name, "template") {
			t.Errorf("%s: shows %t to a caller with the right at sites of emea", name, shows(p))
		}
	}
	// What was read without the right is written back without loss.
	ada := w.as("cert:ada")
	site, err := w.Site(ada, "emea/1", 0)
	w.is("read", err, nil)
	_, err = w.RegisterSite(ada, tko.Site{ID: "emea/1", Package: append(site.Package, pkg(t, thing("z", ""))...)})
	w.is("write back", err, nil)
	m, err := w.StartModification(ada, d)
	w.is("start", err, nil)
	_, _, err = w.EndModification(ada, m.Token, append(m.Package, pkg(t, thing("z", ""))...))
	w.is("end", err, nil)
	for name, p := range see(w.ctx) {
		if !shows(p) {
			t.Errorf("%s lost the value of the Secret", name)
		}
	}
}

func TestOneBindsOnlyWhatOneHolds(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	b := w.bind("cert:ada", access.Admin, access.Scope{})
	w.bind("cert:local", access.Admin, emea)
	_, err := w.Bind(w.as("cert:local"), access.Binding{Subject: "cert:local", Role: access.Admin})
	w.is("an administrator of a scope binds", err, tko.ErrDenied)
	_, err = w.Bind(w.ctx, access.Binding{Subject: "tko:preparer", Role: access.Admin})
	w.is("bind our own controller", err, tko.ErrInvalid)
	_, err = w.Bind(w.ctx, access.Binding{Subject: "cert:x", Group: "y", Role: access.Admin})
	w.is("subject and group", err, tko.ErrInvalid)
	_, err = w.Bind(w.ctx, access.Binding{Subject: "cert:x", Role: "root"})
	w.is("unknown role", err, tko.ErrInvalid)
	_, err = w.Bind(w.ctx, access.Binding{Subject: "cert:x", Role: access.Viewer, Scope: access.Scope{SiteID: "*a"}})
	w.is("a scope that is no range", err, tko.ErrInvalid)
	w.is("unbind", w.Unbind(w.ctx, b.ID), nil)
	rules, err := w.Bindings(w.ctx)
	w.is("list", err, nil)
	for _, b := range rules.Bindings {
		if b.IsUnlimitedAdmin() {
			w.is("unbind the last administrator", w.Unbind(w.ctx, b.ID), tko.ErrInvalid)
		}
	}
	if _, err := rights.InitAccess(t.Context(), w.store, "cert:again", "", time.Time{}); !errors.Is(err, tko.ErrConflict) {
		t.Errorf("a second initialisation: got %v, want a conflict", err)
	}
	many := 0
	for ; err == nil && many < 100; many++ {
		_, err = w.Bind(w.ctx, access.Binding{Subject: "cert:many", Role: access.Viewer, Scope: access.Scope{SiteID: fmt.Sprint(many, "/**")}})
	}
	if many != access.MaxTerms+1 {
		t.Errorf("%d bindings of one subject, want %d", many-1, access.MaxTerms)
	}
}

func TestBindingsExpire(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.site("emea/1", "")
	until := time.Now().Add(300 * time.Millisecond)
	if _, err := w.Bind(w.ctx, access.Binding{Subject: "cert:ada", Role: access.Viewer, Expires: until}); err != nil {
		t.Fatal(err)
	}
	_, err := w.Site(w.as("cert:ada"), "emea/1", 0)
	if time.Now().Before(until) {
		w.is("before", err, nil)
	}
	for time.Now().Before(until) {
		time.Sleep(time.Until(until))
	}
	_, err = w.Site(w.as("cert:ada"), "emea/1", 0)
	w.is("after", err, tko.ErrDenied)
}

func TestBreakGlassIsForLocalUsersOfTheServer(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{BreakGlass: []string{"unix:0"}})
	unix := func(subject, authenticator string) context.Context {
		return identity.With(t.Context(), identity.Identity{Subject: subject, Authenticator: authenticator, From: "unix"})
	}
	for name, ctx := range map[string]context.Context{"another user": unix("unix:1000", "unix"), "by a certificate": unix("unix:0", "certificate"), "an administrator": w.ctx} {
		_, err := w.BreakGlass(ctx, "because")
		w.is(name, err, tko.ErrDenied)
	}
	_, err := w.BreakGlass(unix("unix:0", "unix"), " ")
	w.is("without a reason", err, tko.ErrInvalid)
	b, err := w.BreakGlass(unix("unix:0", "unix"), "locked out")
	w.is("root", err, nil)
	if d := time.Until(b.Expires); d <= 0 || d > time.Hour {
		t.Errorf("the rights end in %v, want within an hour", d)
	}
	_, err = w.Bind(unix("unix:0", "unix"), access.Binding{Subject: "cert:new", Role: access.Admin})
	w.is("bind after it", err, nil)
}

func TestPluginChangesOnlyItsDeploymentAndDescendants(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.site("s", "")
	own := w.create(tko.NewDeployment{})
	child := w.create(tko.NewDeployment{Parent: own})
	below := w.create(tko.NewDeployment{Parent: child})
	other := w.create(tko.NewDeployment{})
	run := identity.With(t.Context(), identity.OfPlugin(identity.Plugin{Type: "prepare", Name: "p", Kind: tko.KindDeployment, ID: string(own)}, time.Now().Add(time.Hour), "127.0.0.1:1"))
	change := func(id tko.DeploymentID) error {
		_, err := w.CommitDeployment(run, tko.DeploymentCommit{ID: id, Revision: 1, Package: pkg(t, thing("x", ""))})
		return err
	}
	w.is("its own", change(own), nil)
	w.is("a child", change(child), nil)
	w.is("a descendant", change(below), nil)
	w.is("another", change(other), tko.ErrDenied)
	_, err := w.CreateDeployment(run, tko.NewDeployment{Parent: own})
	w.is("a new child", err, nil)
	_, err = w.CreateDeployment(run, tko.NewDeployment{})
	w.is("a new deployment", err, tko.ErrDenied)
	_, err = w.CreateDeployment(run, tko.NewDeployment{Parent: other})
	w.is("a child of another", err, tko.ErrDenied)
	_, err = w.RegisterSite(run, tko.Site{ID: "t"})
	w.is("a site", err, tko.ErrDenied)
	_, err = w.Site(run, "s", 0)
	w.is("read a site", err, nil)
	_, err = w.ClaimWork(run, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 1, Lease: time.Minute})
	w.is("claim", err, tko.ErrDenied)
	_, err = w.ApproveDeployment(run, own)
	w.is("approve", err, tko.ErrDenied)
	w.bind("tko:plugin:prepare/p", access.Plugin, access.Scope{})
	_, err = w.RegisterSite(run, tko.Site{ID: "t"})
	w.is("a site, as granted", err, nil)
}

func TestReportModeAllowsAndRecordsWhatWouldBeRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{Access: rights.Report, Audit: true})
	eve := w.as("cert:eve")
	_, err := w.RegisterSite(eve, tko.Site{ID: "s"})
	w.is("register", err, nil)
	_, err = w.Site(eve, "s", 0)
	w.is("get", err, nil)
	if n := len(all(t, w.Sites(eve, tko.SiteSelect{}, tko.ListOptions{}))); n != 1 {
		t.Errorf("listed %d sites, want 1", n)
	}
	reported := 0
	for stored, err := range w.AuditRecords(eve, audit.Select{Subject: "cert:eve", Decision: audit.Report}) {
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stored.Record(); err != nil {
			t.Fatal(err)
		}
		reported++
	}
	if reported < 3 {
		t.Errorf("%d reports, want one for each request", reported)
	}
}

func TestRefusalsAreRecordedAtALimitedRate(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	const attempts = 500
	for range attempts {
		_, err := w.RegisterSite(w.as("cert:eve"), tko.Site{ID: "emea/1"})
		w.is("register", err, tko.ErrDenied)
	}
	rows, counted := 0, 0
	for stored, err := range w.AuditRecords(w.ctx, audit.Select{Subject: "cert:eve", Decision: audit.Refuse}) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := stored.Record()
		if err != nil {
			t.Fatal(err)
		}
		if r.Source != "192.0.2.7:4711" || r.Action != "create" || r.Kind != "site" {
			t.Errorf("record %+v: want who, from where, and what", r)
		}
		rows++
		counted += max(r.Count, 1)
	}
	if counted != attempts || rows > attempts/2 {
		t.Errorf("%d refusals are recorded in %d rows, want all %d in few", counted, rows, attempts)
	}
	if _, _, err := w.VerifyAudit(w.ctx); err != nil {
		t.Error(err)
	}
	_, _, err := w.VerifyAudit(w.as("cert:eve"))
	w.is("verify without the right", err, tko.ErrDenied)
}

func TestChangesAreRecordedWithTheirCaller(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.bind("cert:ada", access.Editor, access.Scope{})
	ctx := tko.WithAuthor(w.as("cert:ada"), tko.Author{Who: "the president", Why: "because"})
	_, err := w.RegisterSite(ctx, tko.Site{ID: "s"})
	w.is("register", err, nil)
	site, err := w.Site(w.ctx, "s", 0)
	w.is("get", err, nil)
	if site.Stamp.Author != (tko.Author{Who: "cert:ada", Why: "because"}) {
		t.Errorf("the author is %+v, want the verified name", site.Stamp.Author)
	}
	n := 0
	for stored, err := range w.AuditRecords(w.ctx, audit.Select{Site: "s"}) {
		if err != nil {
			t.Fatal(err)
		}
		r, err := stored.Record()
		if err != nil {
			t.Fatal(err)
		}
		if r.Subject != "cert:ada" || r.Source != "192.0.2.7:4711" || r.Why != "because" || r.Decision != audit.Allow || r.Revision != 1 {
			t.Errorf("record %+v: want who, from where, why, and what", r)
		}
		n++
	}
	if n != 1 {
		t.Errorf("%d records of the site, want 1", n)
	}
}

// Audit records that an attacker changes behind the server's back are found: attackers
// edit rows, delete them, swap, insert and cut them, or rewrite the chain.
func TestTamperedAuditLogIsFound(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	for i := range 10 {
		w.site(fmt.Sprint("s", i), "")
	}
	stored, head, base, err := w.store.Audited(w.ctx, 0, 100)
	if err != nil || len(stored) < 10 {
		t.Fatal(len(stored), err)
	}
	edit := func(s audit.Stored, to string) audit.Stored {
		s.Text = []byte(strings.Replace(string(s.Text), "cert:root", to, 1))
		return s
	}
	rechain := func(log []audit.Stored) []audit.Stored {
		last := base.Hash
		for i := range log {
			log[i].Hash = audit.Chain(last, log[i].Text)
			last = log[i].Hash
		}
		return log
	}
	verify := func(log []audit.Stored, head audit.Head, checkpoints ...audit.Head) error {
		v := audit.NewVerifier(base, checkpoints...)
		for _, s := range log {
			if err := v.Next(s); err != nil {
				return err
			}
		}
		return v.End(head)
	}
	clone := func() []audit.Stored { return slices.Clone(stored) }
	edited, deleted, swapped, inserted := clone(), slices.Delete(clone(), 3, 4), clone(), slices.Insert(clone(), 3, stored[3])
	edited[3] = edit(edited[3], "cert:mallory")
	swapped[3], swapped[4] = swapped[4], swapped[3]
	rewritten := clone()
	rewritten[3] = edit(rewritten[3], "cert:mallory")
	rechain(rewritten)
	end := rewritten[len(rewritten)-1]
	checkpoint := audit.Head{Seq: stored[5].Seq, Hash: stored[5].Hash}
	if err := verify(stored, head, checkpoint); err != nil {
		t.Fatalf("the log itself: %v", err)
	}
	for name, err := range map[string]error{
		"edited": verify(edited, head), "deleted": verify(deleted, head), "swapped": verify(swapped, head), "inserted": verify(inserted, head),
		"cut": verify(stored[:len(stored)-2], head), "cut, with its head": verify(stored[:4], audit.Head{Seq: stored[3].Seq, Hash: stored[3].Hash}, checkpoint),
		"rewritten, with its head": verify(rewritten, audit.Head{Seq: end.Seq, Hash: end.Hash}, checkpoint),
	} {
		if broken := (*audit.BrokenError)(nil); !errors.As(err, &broken) {
			t.Errorf("%s: got %v, want the first bad record", name, err)
		}
	}
}

func TestOfflineChecksOfRights(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.site("emea/1", "")
	w.site("apac/1", "")
	w.bind("cert:ada", access.Editor, emea)
	for _, c := range []struct {
		verb access.Verb
		kind tko.Kind
		id   string
		want bool
	}{
		{access.Update, tko.KindSite, "emea/1", true},
		{access.Update, tko.KindSite, "emea/new", true},
		{access.Update, tko.KindSite, "apac/1", false},
		{access.Update, tko.KindSite, "", true},
		{access.Approve, tko.KindDeployment, "", false},
		{access.Bind, "", "", false},
		{access.Read, tko.KindTemplate, "", false},
	} {
		may, err := w.CanI(w.as("cert:ada"), c.verb, c.kind, c.id)
		if err != nil || may != c.want {
			t.Errorf("%s %s %q: got %t, %v, want %t", c.verb, c.kind, c.id, may, err, c.want)
		}
	}
	_, err := w.CanI(w.as("cert:ada"), "fly", tko.KindSite, "")
	w.is("unknown verb", err, tko.ErrInvalid)
	rules, err := w.Bindings(w.as("cert:ada"))
	if err != nil || len(rules.Bindings) != 1 {
		t.Errorf("ada sees %d bindings, %v, want her own", len(rules.Bindings), err)
	}
}

func TestOldAuditRecordsAreRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kept := 0
		log := &auditFake{trim: func(before time.Time) int { kept++; return 0 }}
		s := catalog.New(log, nil, catalog.Options{Audit: true})
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		heads := 0
		if err := s.KeepAudit(ctx, time.Hour, time.Minute, func(audit.Head) { heads++ }); err != nil {
			t.Error(err)
		}
		if kept < 5 || heads != 1 {
			t.Errorf("trimmed %d times, %d checkpoints: want several, and one for one head", kept, heads)
		}
	})
}

type auditFake struct {
	record.Store

	trim func(time.Time) int
}

func (f *auditFake) Audit(context.Context, ...audit.Record) error { return nil }

func (f *auditFake) Audited(context.Context, int64, int) ([]audit.Stored, audit.Head, audit.Head, error) {
	return nil, audit.Head{Seq: 7}, audit.Head{}, nil
}

func (f *auditFake) TrimAudit(_ context.Context, before time.Time, _ int) (int, error) {
	return f.trim(before), nil
}

// The audit log names the removed rule: its kind, and what it allowed.
func TestRemovedRulesAreAuditedInFull(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	b, err := w.Bind(w.ctx, access.Binding{Subject: "cert:ada", Role: access.Viewer, Scope: emea, Reason: "on call"})
	w.is("bind", err, nil)
	p, err := w.AddPolicy(w.ctx, access.Policy{Approvers: 2, Scope: emea, Reason: "two of us"})
	w.is("add a policy", err, nil)
	w.is("unbind the binding", w.Unbind(w.ctx, b.ID), nil)
	w.is("unbind the policy", w.Unbind(w.ctx, p.ID), nil)
	for _, want := range []audit.Record{
		{Kind: "binding", ID: b.ID, Op: "unbound", Detail: "cert:ada: viewer in " + emea.String(), Why: "on call"},
		{Kind: "policy", ID: p.ID, Op: "removed", Detail: "2 approvers from [] in " + emea.String(), Why: "two of us"},
	} {
		var found []audit.Record
		for stored, err := range w.AuditRecords(w.ctx, audit.Select{Kind: want.Kind}) {
			if err != nil {
				t.Fatal(err)
			}
			r, err := stored.Record()
			if err != nil {
				t.Fatal(err)
			}
			if r.Op == want.Op {
				found = append(found, audit.Record{Kind: r.Kind, ID: r.ID, Op: r.Op, Detail: r.Detail, Why: r.Why})
			}
		}
		if len(found) != 1 || !reflect.DeepEqual(found[0], want) {
			t.Errorf("the audit log has %+v, want %+v", found, want)
		}
	}
}

// setLevels accepts all levels.
type setLevels struct{}

func (setLevels) All() []tko.LogLevel             { return nil }
func (setLevels) Set(string, time.Duration) error { return nil }

func TestActionsOfAdministratorsAreAudited(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{LogLevels: setLevels{}})
	ctx := tko.WithAuthor(w.ctx, tko.Author{Why: "a fault"})
	_, err := w.SetLogLevels(ctx, "store=debug", 0)
	w.is("set levels", err, nil)
	w.bind("cert:root", access.BackupRole, access.Scope{})
	w.is("back up", w.Backup(ctx, io.Discard), nil)
	var found []string
	for stored, err := range w.AuditRecords(w.ctx, audit.Select{Subject: "cert:root"}) {
		w.is("read the audit log", err, nil)
		r, err := stored.Record()
		w.is("read a record", err, nil)
		if r.Kind == "log" || r.Kind == "store" {
			found = append(found, strings.Join([]string{r.Kind, r.Op, r.Detail, r.Decision, r.Why}, "|"))
		}
	}
	if want := []string{"log|written|store=debug|allow|a fault", "store|backup||allow|"}; !slices.Equal(found, want) {
		t.Errorf("the audit log has %q, want %q", found, want)
	}
}

// A user who makes a bundle of a site reads its Secrets, and needs the rights of a meta-scheduler.
func TestBundlesAreRecorded(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	ctx := tko.WithAuthor(w.ctx, tko.Author{Why: "the ship is in port"})
	w.is("without the right", w.RecordBundle(ctx, "ships/7"), tko.ErrDenied)
	w.bind("cert:root", access.ControllerSchedule, access.Scope{})
	w.is("with the right", w.RecordBundle(ctx, "ships/7"), nil)
	w.is("of no site", w.RecordBundle(ctx, ""), tko.ErrInvalid)
	var found []string
	for stored, err := range w.AuditRecords(w.ctx, audit.Select{Subject: "cert:root", Site: "ships/7"}) {
		w.is("read the audit log", err, nil)
		r, err := stored.Record()
		w.is("read a record", err, nil)
		found = append(found, strings.Join([]string{r.Kind, r.ID, r.Op, r.Decision, r.Why}, "|"))
	}
	if want := []string{"site|ships/7|bundled|allow|the ship is in port"}; !slices.Equal(found, want) {
		t.Errorf("the audit log has %q, want %q", found, want)
	}
}
