package planner_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// A guarded world enforces rights. w.ctx is an administrator; cert:ada and cert:eve may
// change rollouts, and cert:ada what is at a/**; cert:bob may read both.
type guarded struct {
	*world

	ids map[tko.SiteID]tko.DeploymentID
}

func newGuarded(t *testing.T) *guarded {
	t.Helper()
	w := &guarded{newWorldWith(t, catalog.Options{Access: rights.Enforce}), map[tko.SiteID]tko.DeploymentID{}}
	if _, err := rights.InitAccess(t.Context(), w.counted.Store, "cert:root", "first", time.Time{}); err != nil {
		t.Fatal(err)
	}
	w.ctx = w.as("cert:root")
	for _, v := range []string{"v1", "v2"} {
		w.template("t:"+v, config("c", "version: "+v))
	}
	for _, site := range []tko.SiteID{"a/1", "a/2", "b/1"} {
		w.site(string(site), nil)
		id, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: "t:v1", Site: site, Prepared: true, Approved: true})
		if err != nil {
			t.Fatal(err)
		}
		w.ids[site] = id
	}
	kinds := func(kind tko.Kind) access.Scope { return access.Scope{Kinds: []tko.Kind{kind}} }
	w.bind("cert:ada", access.Editor, access.Scope{SiteID: "a/**"})
	for _, subject := range []string{"cert:ada", "cert:eve"} {
		w.bind(subject, access.Editor, kinds(tko.KindRollout))
		w.bind(subject, access.Viewer, kinds(tko.KindTemplate))
	}
	w.bind("cert:bob", access.Viewer, access.Scope{SiteID: "a/**"})
	w.bind("cert:bob", access.Viewer, kinds(tko.KindRollout))
	return w
}

func (w *guarded) as(subject string) context.Context {
	return identity.With(w.t.Context(), identity.Identity{Subject: subject, Authenticator: "certificate", From: "192.0.2.7:4711"})
}

func (w *guarded) bind(subject string, role access.Role, scope access.Scope) {
	w.t.Helper()
	if _, err := w.Bind(w.ctx, access.Binding{Subject: subject, Role: role, Scope: scope}); err != nil {
		w.t.Fatal(err)
	}
}

// advance is the rollout controller.
func (w *guarded) advance(id tko.RolloutID) {
	w.t.Helper()
	own := *w.world
	own.ctx = identity.With(w.t.Context(), identity.Controller(identity.RoleRollout))
	own.advance(id)
}

// planned registers an upgrade as a caller, and plans it.
func (w *guarded) planned(ctx context.Context) tko.RolloutStatus {
	const id = tko.RolloutID("r")
	w.t.Helper()
	if _, err := w.RegisterRollout(ctx, tko.Rollout{ID: id, Package: decode(w.t, "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {edits: [{upgrade: {to: \"t:v2\"}, select: {templateIdPatterns: [\"t:v1\"]}}]}\n")}); err != nil {
		w.t.Fatal(err)
	}
	w.advance(id)
	return w.status(id)
}

// rows returns the sites of the rows that a caller sees.
func (w *guarded) rows(ctx context.Context, id tko.RolloutID) (sites []string) {
	w.t.Helper()
	for row, err := range w.RolloutRows(ctx, tko.RolloutRows{ID: id}) {
		if err != nil {
			w.t.Fatal(err)
		}
		sites = append(sites, string(row.Site))
	}
	slices.Sort(sites)
	return sites
}

func (w *guarded) versions() string {
	w.t.Helper()
	var texts []string
	for _, site := range []tko.SiteID{"a/1", "a/2", "b/1"} {
		texts = append(texts, string(site)+" "+strings.TrimPrefix(string(w.deployment(w.ids[site]).Template), "t:"))
	}
	return strings.Join(texts, ", ")
}

func (w *guarded) start(ctx context.Context, id tko.RolloutID) error {
	w.t.Helper()
	_, err := w.RolloutDo(ctx, tko.RolloutCommand{ID: id, Verb: "start", Plan: w.status(id).Plan})
	return err
}

func (w *guarded) owner() string {
	w.t.Helper()
	o, err := w.Owner(w.ctx, tko.KindDeployment, string(w.ids["a/1"]))
	if err != nil {
		w.t.Fatal(err)
	}
	return o.String()
}

func TestRolloutIsPlannedAsItsOwner(t *testing.T) {
	t.Parallel()
	w := newGuarded(t)
	s := w.planned(w.as("cert:ada"))
	if got := w.rows(w.ctx, "r"); !slices.Equal(got, []string{"a/1", "a/2"}) {
		t.Fatalf("the plan has rows at %v, want those that its owner sees: %+v", got, s)
	}
	if err := w.start(w.ctx, "r"); err != nil { // an administrator lends it nothing
		t.Fatal(err)
	}
	w.advance("r")
	if got := w.versions(); got != "a/1 v2, a/2 v2, b/1 v1" {
		t.Error(got)
	}
}

func TestPlanShowsEachReaderWhatItMayRead(t *testing.T) {
	t.Parallel()
	w := newGuarded(t)
	w.planned(w.ctx)
	if got := w.rows(w.ctx, "r"); len(got) != 3 {
		t.Fatal(got)
	}
	bob := w.as("cert:bob")
	if got := w.rows(bob, "r"); !slices.Equal(got, []string{"a/1", "a/2"}) {
		t.Errorf("a reader of a/** sees rows at %v", got)
	}
	plan, err := w.RolloutPlan(bob, "r")
	if err != nil || plan.Kinds["Change"] != 2 || len(plan.Groups) != 1 || plan.Groups[0].Count != 2 || slices.Contains(plan.Groups[0].Examples, w.ids["b/1"]) {
		t.Errorf("the plan is %+v (%v)", plan, err)
	}
	all, err := w.RolloutPlan(w.ctx, "r")
	if err != nil || all.Kinds["Change"] != 3 || all.Groups[0].Count != 3 {
		t.Errorf("an administrator sees %+v (%v)", all, err)
	}
}

func TestRowsNeedTheRightsOfOwnerAndStarterWhenTheyAreApplied(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct{ owner, starter string }{
		"owner has lost them":   {"cert:ada", "cert:root"},
		"starter has lost them": {"cert:root", "cert:ada"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newGuarded(t)
			w.bind("cert:ada", access.Editor, access.Scope{SiteID: "b/**"})
			w.planned(w.as(test.owner))
			if err := w.start(w.as(test.starter), "r"); err != nil {
				t.Fatal(err)
			}
			rules, err := w.Bindings(w.ctx)
			if err != nil {
				t.Fatal(err)
			}
			for _, b := range rules.Bindings {
				if b.Subject == "cert:ada" && b.Scope.SiteID == "b/**" {
					if err := w.Unbind(tko.WithConfirmation(w.ctx, 50), b.ID); err != nil {
						t.Fatal(err)
					}
				}
			}
			w.advance("r")
			if got := w.versions(); !strings.HasSuffix(got, "b/1 v1") {
				t.Errorf("a row was applied without the right: %s", got)
			}
			if s := w.status("r"); s.State != "Paused" || !strings.Contains(s.Reason, "cert:ada") {
				t.Errorf("the rollout is %s: %s", s.State, s.Reason)
			}
		})
	}
}

func TestUndoNeedsNoRightsButThoseOfTheStart(t *testing.T) {
	t.Parallel()
	w := newGuarded(t)
	if err := w.SetOwner(w.ctx, tko.KindDeployment, string(w.ids["a/1"]), tko.Owner{Subject: "cert:ada"}); err != nil {
		t.Fatal(err)
	}
	w.planned(w.ctx)
	if err := w.start(w.ctx, "r"); err != nil {
		t.Fatal(err)
	}
	w.advance("r")
	if got := w.versions(); got != "a/1 v2, a/2 v2, b/1 v2" || w.owner() != "cert:root" {
		t.Fatalf("%s, the owner is %s", got, w.owner())
	}
	if _, err := w.RolloutDo(w.as("cert:bob"), tko.RolloutCommand{ID: "r", Verb: "undo"}); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("a viewer undoes it: %v", err)
	}
	if _, err := w.RolloutDo(w.as("cert:eve"), tko.RolloutCommand{ID: "r", Verb: "undo"}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		w.advance("r-undo")
		for _, id := range w.ids {
			w.settleOnce(id)
		}
	}
	if got := w.versions(); got != "a/1 v1, a/2 v1, b/1 v1" || w.owner() != "cert:ada" {
		t.Errorf("%s, the owner is %s, want it as it was", got, w.owner())
	}
}

// settleOnce reports that a deployment is healthy at its site.
func (w *guarded) settleOnce(id tko.DeploymentID) {
	w.t.Helper()
	own := *w.world
	own.ctx = identity.With(w.t.Context(), identity.Controller(identity.RoleScheduler))
	if err := own.settleOne(id); err != nil {
		w.t.Fatal(err)
	}
}

func TestHeldPlanIsMadeWhenTheRightsComeBack(t *testing.T) {
	t.Parallel()
	w := newGuarded(t)
	if _, err := w.RegisterRollout(w.ctx, tko.Rollout{ID: "r", Package: decode(t, "apiVersion: tko.nephio.org/v1alpha1\nkind: Rollout\nmetadata: {name: r}\nspec: {edits: [{delete: {}, select: {siteIdPatterns: [\"a/**\"]}}]}\n")}); err != nil {
		t.Fatal(err)
	}
	if err := w.SetOwner(w.ctx, tko.KindRollout, "r", tko.Owner{Subject: "cert:gone"}); err != nil {
		t.Fatal(err)
	}
	w.advance("r")
	if s := w.status("r"); s.State != "Planning" || !strings.Contains(s.Reason, "cert:gone") {
		t.Fatalf("the rollout is %s: %s", s.State, s.Reason)
	}
	if err := w.SetOwner(w.ctx, tko.KindRollout, "r", tko.Owner{Subject: "cert:ada"}); err != nil {
		t.Fatal(err)
	}
	w.advance("r")
	if s := w.status("r"); s.State != "Planned" || s.Kinds["Delete"] != 2 {
		t.Errorf("the rollout is %s: %s, %v", s.State, s.Reason, s.Kinds)
	}
}

// An approval without a ticket needs the right emergency in addition to that to approve: neither
// is enough, and no other role than admin has both.
func TestEmergencyNeedsARightOfItsOwn(t *testing.T) {
	t.Parallel()
	w := newGuarded(t)
	w.planned(w.as("cert:root"))
	rollouts := access.Scope{Kinds: []tko.Kind{tko.KindRollout}}
	for subject, granted := range map[string][]access.Role{
		"cert:approver": {access.Approver}, "cert:editor": {access.Editor, access.Approver}, "cert:operator": {access.Operator, access.Approver},
		"cert:emergency": {access.EmergencyRole, access.Viewer}, "cert:both": {access.EmergencyRole, access.Approver},
	} {
		for _, role := range granted {
			scope := rollouts
			if role == access.EmergencyRole || role == access.Operator {
				scope = access.Scope{}
			}
			w.bind(subject, role, scope)
		}
		ctx := tko.WithAuthor(w.as(subject), tko.Author{Why: "the ticket system is dead"})
		_, err := w.RolloutDo(ctx, tko.RolloutCommand{ID: "r", Verb: "approve", Emergency: true})
		if permitted := !errors.Is(err, tko.ErrDenied); permitted != (subject == "cert:both") {
			t.Errorf("%s: %v", subject, err)
		}
	}
}
