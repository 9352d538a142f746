package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/krm"
)

func TestModificationReplacesThePackage(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{ModificationTime: time.Hour})
	w.template("t", thing("a", "")+facts("version: one"), "vendor", "t", "tier", "t")
	w.template("u", "", "vendor", "u")
	w.site("s", "")
	id := w.create(tko.NewDeployment{Template: "t", Metadata: map[string]string{"tier": "mine"}})
	m := w.start(id)
	if m.Deployment != id || m.Token == "" || time.Until(m.Expires) < time.Minute || named(m.Package, "a") == nil {
		t.Fatalf("%+v: want a token, for a while, and the package", m)
	}
	_, err := w.StartModification(w.ctx, id)
	wantError(t, err, tko.ErrBusy, string(id))
	_, err = w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: id, Revision: 1, Package: pkg(t, thing("mine", ""))})
	wantError(t, err, tko.ErrBusy, string(id))

	_, _, err = w.EndModification(w.ctx, m.Token, pkg(t, thing("a", "invalid: 1")))
	wantError(t, err, tko.ErrInvalid, "spec.invalid")
	_, _, err = w.EndModification(w.ctx, m.Token, pkg(t, state("siteId: nope", "")))
	wantError(t, err, tko.ErrInvalid, `site "nope"`)
	_, _, err = w.EndModification(w.ctx, m.Token, pkg(t, state("templateId: nope", "")))
	wantError(t, err, tko.ErrInvalid, `template "nope"`)
	_, _, err = w.EndModification(w.ctx, m.Token, pkg(t, thing("a", "picky: 1")+state("", isPrepared)))
	wantError(t, err, tko.ErrInvalid, "spec.required")
	if d := w.deployment(id); d.Stamp.Revision != 1 || !cmp.Equal(d.Package, m.Package) {
		t.Fatalf("%+v: a refused end changes nothing", d)
	}

	got, revision, err := w.EndModification(w.ctx, m.Token, pkg(t, thing("b", "")+facts("version: two")+state("templateId: u, siteId: s", isPrepared)))
	if err != nil || got != id || revision != 2 {
		t.Fatalf("%q at %d, %v: a refused end leaves the token good", got, revision, err)
	}
	d := w.deployment(id)
	if d.Template != "u" || d.Site != "s" || !d.Prepared || d.Approved || named(d.Package, "a") != nil {
		t.Errorf("%+v: want the state of the package", d)
	}
	want := map[string]string{"vendor": "u", "tier": "mine", "NF.version": "two"}
	if diff := cmp.Diff(want, d.Metadata); diff != "" {
		t.Errorf("gathered follows the package, inherited the template, passed stays and wins (-want +got):\n%s", diff)
	}
	if c := condition(d, tko.ConditionPrepared); c.Status != tko.ConditionTrue || c.ObservedRevision != 2 {
		t.Errorf("the condition is %+v: want it in step", c)
	}
	_, _, err = w.EndModification(w.ctx, m.Token, m.Package)
	wantError(t, err, tko.ErrNotFound, m.Token)

	m = w.start(id)
	if _, revision, err = w.EndModification(w.ctx, m.Token, pkg(t, thing("b", "")+state("", ""))); err != nil || revision != 3 {
		t.Fatalf("revision %d, %v", revision, err)
	}
	d = w.deployment(id)
	if d.Prepared || d.Template != "u" || d.Metadata["NF.version"] != "" || condition(d, tko.ConditionPrepared).Status != tko.ConditionFalse {
		t.Errorf("%+v: taking the annotation off makes it unprepared; what the package no longer holds is no longer gathered", d)
	}
}

func TestModificationWithoutAChangeWritesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	id := w.create(tko.NewDeployment{Merge: pkg(t, thing("a", ""))})
	for name, end := range map[string]func(m tko.Modification) error{
		"the same package": func(m tko.Modification) error { _, _, err := w.EndModification(w.ctx, m.Token, m.Package); return err },
		"without its Deployment resource": func(m tko.Modification) error {
			_, _, err := w.EndModification(w.ctx, m.Token, pkg(t, thing("a", "")))
			return err
		},
		"cancelled": func(m tko.Modification) error { return w.CancelModification(w.ctx, m.Token) },
	} {
		m := w.start(id)
		if err := end(m); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if d := w.deployment(id); d.Stamp.Revision != 1 {
			t.Errorf("%s: revision %d: nothing changed", name, d.Stamp.Revision)
		}
		wantError(t, w.CancelModification(w.ctx, m.Token), tko.ErrNotFound)
	}
	for _, token := range []string{"", "never given", "\xff\x00"} {
		_, _, err := w.EndModification(w.ctx, token, nil)
		wantError(t, err, tko.ErrNotFound)
		wantError(t, w.CancelModification(w.ctx, token), tko.ErrNotFound)
	}
	_, err := w.StartModification(w.ctx, unknownID)
	wantError(t, err, tko.ErrNotFound, unknownID)
}

func TestModificationTokenExpires(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{ModificationTime: time.Millisecond})
	id := w.create(tko.NewDeployment{})
	late := w.start(id)
	for deadline := time.Now().Add(time.Minute); ; {
		m, err := w.StartModification(w.ctx, id)
		if err == nil {
			wantError(t, func() error { _, _, err := w.EndModification(w.ctx, late.Token, pkg(t, thing("late", ""))); return err }(), tko.ErrBusy, "has expired")
			if m.Token == late.Token {
				t.Error("a new token must be new")
			}
			break
		}
		if !errors.Is(err, tko.ErrBusy) || time.Now().After(deadline) {
			t.Fatalf("%v: want the token to expire", err)
		}
	}
	if d := w.deployment(id); named(d.Package, "late") != nil {
		t.Error("a late end had an effect")
	}
}

func TestModificationEndsAfterItsSiteAndTemplateAreDeleted(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{ModificationTime: time.Hour})
	w.template("t", "")
	w.site("s", "")
	id := w.create(tko.NewDeployment{Template: "t", Site: "s"})
	m := w.start(id)
	if _, err := w.DeleteSite(w.ctx, "s"); err != nil {
		t.Fatal(err)
	}
	if _, err := w.DeleteTemplate(w.ctx, "t"); err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.EndModification(w.ctx, m.Token, append(m.Package, pkg(t, thing("new", ""))...)); err != nil {
		t.Fatalf("%v: want the modification to end although its site and template were deleted", err)
	}
	if d := w.deployment(id); d.Site != "" || d.Template != "" || named(d.Package, "new") == nil {
		t.Errorf("%+v: want the new package, without references to deleted entities", d)
	}
	m = w.start(id)
	if _, err := w.DeleteDeployment(w.ctx, id); err != nil {
		t.Fatal(err)
	}
	_, _, err := w.EndModification(w.ctx, m.Token, m.Package)
	wantError(t, err, tko.ErrNotFound)
}

func TestCommitRequiresTheRevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	id := w.create(tko.NewDeployment{Merge: pkg(t, thing("a", ""))})
	if err := w.SetConditions(w.ctx, tko.KindDeployment, string(id), []tko.Condition{{Type: "Healthy", Status: "True"}}); err != nil {
		t.Fatal(err)
	}
	failed := tko.Condition{Type: tko.ConditionPrepared, Status: tko.ConditionFalse, Reason: "PluginFailed", Message: "no"}
	revision, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: id, Revision: 1, Package: pkg(t, thing("a", "")), Conditions: []tko.Condition{failed}})
	if err != nil || revision != 1 {
		t.Fatalf("revision %d, %v: the same package is no new revision", revision, err)
	}
	first := w.deployment(id)
	if c := condition(first, tko.ConditionPrepared); c.Reason != "PluginFailed" || c.ObservedRevision != 1 || c.LastTransition.IsZero() {
		t.Errorf("%+v: want the condition set", c)
	}
	failed.Message = "still not"
	revision, err = w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: id, Revision: 1, Package: pkg(t, thing("b", "")), Conditions: []tko.Condition{failed}})
	if err != nil || revision != 2 {
		t.Fatalf("revision %d, %v: want 2", revision, err)
	}
	d := w.deployment(id)
	c := condition(d, tko.ConditionPrepared)
	if c.Message != "still not" || c.ObservedRevision != 2 || !c.LastTransition.Equal(condition(first, tko.ConditionPrepared).LastTransition) {
		t.Errorf("%+v: want the message of now, and the time since when it is so", c)
	}
	if condition(d, "Healthy").Status != "True" || named(d.Package, "b") == nil {
		t.Errorf("%+v: other conditions stay", d)
	}
	for name, test := range map[string]struct {
		commit tko.DeploymentCommit
		kind   error
	}{
		"a revision that is over":   {tko.DeploymentCommit{ID: id, Revision: 1}, tko.ErrConflict},
		"a revision yet to come":    {tko.DeploymentCommit{ID: id, Revision: 3}, tko.ErrConflict},
		"no revision":               {tko.DeploymentCommit{ID: id}, tko.ErrInvalid},
		"an unknown deployment":     {tko.DeploymentCommit{ID: unknownID, Revision: 1}, tko.ErrNotFound},
		"a status of its own":       {tko.DeploymentCommit{ID: id, Revision: 2, Conditions: []tko.Condition{{Type: "A", Status: "true"}}}, tko.ErrInvalid},
		"two Deployment resources":  {tko.DeploymentCommit{ID: id, Revision: 2, Package: krm.Package{deploymentResource(t, d.Package), {"apiVersion": "deployment.nephio.org/v1alpha1", "kind": "Deployment", "metadata": map[string]any{"name": "x"}}}}, tko.ErrInvalid},
		"an invalid package":        {tko.DeploymentCommit{ID: id, Revision: 2, Package: pkg(t, thing("a", "invalid: 1"))}, tko.ErrInvalid},
		"prepared, but not all set": {tko.DeploymentCommit{ID: id, Revision: 2, Package: pkg(t, thing("a", "picky: 1")+state("", isPrepared))}, tko.ErrInvalid},
	} {
		_, err := w.CommitDeployment(w.ctx, test.commit)
		if !errors.Is(err, test.kind) {
			t.Errorf("%s: %v, want %v", name, err, test.kind)
		}
	}
	if got := w.deployment(id); got.Stamp.Position != d.Stamp.Position {
		t.Error("a refused commit wrote something")
	}
	if _, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: id, Revision: 2, Package: pkg(t, thing("b", "")+state("", isPrepared+", "+isApproved))}); err != nil {
		t.Fatal(err)
	}
	if d := w.deployment(id); !d.Prepared || !d.Approved || condition(d, tko.ConditionPrepared).Status != tko.ConditionTrue {
		t.Errorf("%+v: want it prepared and approved, and no condition that contradicts it", d)
	}
}

func TestCommitRecordsItsStepsWithTheRevision(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	id := w.create(tko.NewDeployment{Merge: pkg(t, thing("a", ""))})
	steps := make([]tko.PreparationStep, 30)
	for i := range steps {
		steps[i] = tko.PreparationStep{Resource: fmt.Sprintf("v1 Thing %q", strconv.Itoa(i)), Plugin: "p", Iteration: 1, Took: time.Second, Notes: []string{"n"}}
	}
	if _, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: id, Revision: 1, Package: pkg(t, thing("b", "")), Steps: steps}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: id, Revision: 2, Package: pkg(t, thing("c", ""))}); err != nil {
		t.Fatal(err)
	}
	for revision, want := range map[int64][]tko.PreparationStep{0: nil, 1: nil, 2: steps[:20], 3: nil} {
		d, err := w.Deployment(w.ctx, id, revision)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, d.Stamp.Steps); diff != "" {
			t.Errorf("steps of revision %d (-want +got):\n%s", revision, diff)
		}
	}
}

func TestConditionsKeepAttemptAndNextTry(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("s", "")
	next := time.Date(2026, 3, 4, 12, 0, 0, 0, time.FixedZone("", 3600))
	c := tko.Condition{Type: "A", Status: "False", Attempt: 1, NextTry: next}
	for _, change := range []func(){func() {}, func() { c.Attempt = 2 }, func() { c.NextTry = next.Add(time.Minute) }} {
		change()
		head := w.head()
		if err := w.SetConditions(w.ctx, tko.KindSite, "s", []tko.Condition{c}); err != nil {
			t.Fatal(err)
		}
		s, err := w.Site(w.ctx, "s", 0)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Stamp.Conditions[0]; got.Attempt != c.Attempt || !got.NextTry.Equal(c.NextTry) || w.head() == head {
			t.Errorf("%+v: want attempt %d, next try %s, and a change of the log", got, c.Attempt, c.NextTry)
		}
	}
	c.NextTry = c.NextTry.UTC()
	head := w.head()
	if err := w.SetConditions(w.ctx, tko.KindSite, "s", []tko.Condition{c}); err != nil || w.head() != head {
		t.Errorf("the same condition, with the time in another zone, was written again (%v)", err)
	}
	for _, refused := range []tko.Condition{{Type: "A", Status: "True", Attempt: -1}, {Type: "A", Status: "True", NextTry: next.AddDate(9000, 0, 0)}} {
		wantError(t, w.SetConditions(w.ctx, tko.KindSite, "s", []tko.Condition{refused}), tko.ErrInvalid, `"A"`)
	}
}

// A meta-scheduler that has read a site before its agent reported it doesn't overwrite the report.
func TestReportOfAnAgentStaysWhenALateMetaSchedulerSaysThatThereIsNone(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("s", "")
	report := tko.ReportedCondition(tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: "Applied", ObservedRevision: 1}, time.Now())
	for _, c := range []tko.Condition{report, {Type: tko.ConditionScheduled, Status: tko.ConditionUnknown, Reason: tko.ReasonByAgent, ObservedRevision: 1}} {
		if err := w.SetConditions(w.ctx, tko.KindSite, "s", []tko.Condition{c}); err != nil {
			t.Fatal(err)
		}
	}
	s, err := w.Site(w.ctx, "s", 0)
	if c := tko.FindCondition(s.Stamp.Conditions, tko.ConditionScheduled); err != nil || c == nil || c.Status != tko.ConditionTrue {
		t.Errorf("the condition is %+v, %v: want what the agent reported", c, err)
	}
}

// A meta-scheduler that has read a site before its agent was heard again doesn't overwrite what the agent reported then.
func TestReportOfAnAgentStaysWhenALateMetaSchedulerSaysThatItWasNotHeard(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("s", "")
	w.template("t", "")
	id := w.create(tko.NewDeployment{Template: "t", Site: "s"})
	now := time.Now()
	report := tko.AgentCondition(tko.Condition{Type: tko.ConditionHealthy, Status: tko.ConditionTrue, Reason: "Healthy"}, now)
	silent := tko.Condition{Type: tko.ConditionHealthy, Status: tko.ConditionUnknown, Reason: tko.ReasonNotHeard, Message: tko.NotHeardText("s", now)}
	away := tko.Condition{Type: tko.ConditionConnected, Status: tko.ConditionFalse, Reason: tko.ReasonNotHeard, Message: tko.NotHeardText("s", now)}
	set := func(kind tko.Kind, id string, c ...tko.Condition) {
		t.Helper()
		if err := w.SetConditions(w.ctx, kind, id, c); err != nil {
			t.Fatal(err)
		}
	}
	healthy := func(want, why string) {
		t.Helper()
		s, err := w.Site(w.ctx, "s", 0)
		d, dErr := w.Deployment(w.ctx, id, 0)
		if err := errors.Join(err, dErr); err != nil {
			t.Fatal(err)
		}
		for what, stamp := range map[string]tko.Stamp{"site": s.Stamp, "deployment": d.Stamp} {
			if got := tko.ConditionIs(stamp.Conditions, tko.ConditionHealthy); got != want {
				t.Errorf("the %s is %q, want %q: %s", what, got, want, why)
			}
		}
	}
	set(tko.KindSite, "s", report, tko.HeardCondition(now, now.Add(time.Hour)))
	set(tko.KindDeployment, string(id), report)
	set(tko.KindSite, "s", silent, away)
	set(tko.KindDeployment, string(id), silent)
	healthy(tko.ConditionTrue, "the agent is heard")
	if s, err := w.Site(w.ctx, "s", 0); err != nil || tko.ConditionIs(s.Stamp.Conditions, tko.ConditionConnected) != tko.ConditionTrue {
		t.Errorf("the site is %+v, %v: its agent is connected", s.Stamp.Conditions, err)
	}
	set(tko.KindSite, "s", tko.HeardCondition(now.Add(-time.Hour), now.Add(-time.Minute)))
	set(tko.KindSite, "s", silent, away)
	set(tko.KindDeployment, string(id), silent)
	healthy(tko.ConditionUnknown, "the agent was not heard")
}

func TestSetConditionsReplacesThemByType(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("s", "")
	set := func(c ...tko.Condition) error { return w.SetConditions(w.ctx, tko.KindSite, "s", c) }
	if err := set(tko.Condition{Type: "Healthy", Status: "True"}, tko.Condition{Type: "Scheduled", Status: "False"}); err != nil {
		t.Fatal(err)
	}
	head := w.head()
	if err := set(tko.Condition{Type: "Healthy", Status: "True", LastTransition: time.Unix(0, 0)}); err != nil {
		t.Fatal(err)
	}
	if w.head() != head {
		t.Error("the same condition was written again: an idle system does nothing")
	}
	s, err := w.Site(w.ctx, "s", 0)
	if err != nil || s.Stamp.Revision != 1 || len(s.Stamp.Conditions) != 2 || s.Stamp.Position != head {
		t.Errorf("%+v, %v: want two conditions on revision 1", s.Stamp, err)
	}
	w.site("s", thing("a", ""))
	if s, err = w.Site(w.ctx, "s", 0); err != nil || len(s.Stamp.Conditions) != 2 {
		t.Errorf("%+v, %v: conditions stay when the site is written", s.Stamp, err)
	}
	wantError(t, set(tko.Condition{Status: "True"}), tko.ErrInvalid, "type")
	wantError(t, set(tko.Condition{Type: "A", Status: "Maybe"}), tko.ErrInvalid, "Maybe")
	wantError(t, set(tko.Condition{Type: "A", Status: "True"}, tko.Condition{Type: "A", Status: "False"}), tko.ErrInvalid, "twice")
	wantError(t, w.SetConditions(w.ctx, tko.KindTemplate, "t", nil), tko.ErrInvalid, "template")
	wantError(t, w.SetConditions(w.ctx, tko.KindSite, "nope", nil), tko.ErrNotFound, "nope")
	wantError(t, w.SetConditions(w.ctx, tko.KindDeployment, unknownID, nil), tko.ErrNotFound, unknownID)
	many := make([]tko.Condition, 100)
	for i := range many {
		many[i] = tko.Condition{Type: fmt.Sprintf("C%d", i), Status: "True"}
	}
	wantError(t, set(many...), tko.ErrInvalid, "64")
}

func TestEarlierRevisionsCanBeRead(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("s", "")
	id := w.create(tko.NewDeployment{Site: "s", Merge: pkg(t, thing("a", ""))})
	if _, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: id, Revision: 1, Package: pkg(t, thing("b", "")+state(`siteId: ""`, ""))}); err != nil {
		t.Fatal(err)
	}
	old, err := w.Deployment(w.ctx, id, 1)
	if err != nil || old.Site != "s" || named(old.Package, "a") == nil || deploymentResource(t, old.Package).Text("spec", "siteId") != "s" {
		t.Errorf("%+v, %v: want it as it was", old, err)
	}
	_, err = w.Deployment(w.ctx, id, -1)
	wantError(t, err, tko.ErrInvalid, "-1")

	var ops []string
	for c, err := range w.Watch(w.ctx, 0, tko.KindDeployment) {
		if err != nil {
			t.Fatal(err)
		}
		ops = append(ops, fmt.Sprintf("%s %d", c.Op, c.Revision))
		if len(ops) == 2 {
			break
		}
	}
	if !slices.Equal(ops, []string{"written 1", "written 2"}) {
		t.Errorf("changes %v: want one for each revision", ops)
	}
}

// A tokenCounter counts the reads of modification tokens.
type tokenCounter struct {
	record.Store
	reads int
}

func (s *tokenCounter) Modification(ctx context.Context, token string) (start, current record.Record, err error) {
	s.reads++
	return s.Store.Modification(ctx, token)
}

// The end of a modification reads the deployment only if the cached one may be stale:
// the result is the same as without a cache.
func TestModificationEndsFromTheCachedOrTheCurrentDeployment(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why       string
		meanwhile func(w *world, id tko.DeploymentID)
		given     string
		reads     int
		revision  int64
		wantErr   error
	}{
		"unchanged": {
			why: "the commit checks that nothing has changed", meanwhile: func(*world, tko.DeploymentID) {},
			given: "x: 2", revision: 2,
		},
		"conditions set": {
			why: "new conditions must not be lost",
			meanwhile: func(w *world, id tko.DeploymentID) {
				if err := w.SetConditions(w.ctx, tko.KindDeployment, string(id), []tko.Condition{{Type: "Meanwhile", Status: tko.ConditionTrue}}); err != nil {
					w.t.Fatal(err)
				}
			},
			given: "x: 2", reads: 1, revision: 2,
		},
		"template deleted": {
			why: "the reference that was removed stays removed",
			meanwhile: func(w *world, _ tko.DeploymentID) {
				if _, err := w.DeleteTemplate(w.ctx, "t"); err != nil {
					w.t.Fatal(err)
				}
			},
			given: "x: 1", reads: 1, revision: 2,
		},
		"deployment deleted": {
			why: "its token is unknown",
			meanwhile: func(w *world, id tko.DeploymentID) {
				if _, err := w.DeleteDeployment(w.ctx, id); err != nil {
					w.t.Fatal(err)
				}
			},
			given: "x: 2", reads: 2, wantErr: tko.ErrNotFound,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			store := &tokenCounter{Store: openStore(t)}
			w := &world{Service: catalog.New(store, &validator{}, catalog.Options{}), t: t, ctx: t.Context(), store: store}
			w.template("t", thing("a", "x: 1"))
			id := w.create(tko.NewDeployment{Template: "t"})
			m := w.start(id)
			test.meanwhile(w, id)
			_, revision, err := w.EndModification(w.ctx, m.Token, pkg(t, thing("a", test.given)))
			wantError(t, err, test.wantErr)
			if revision != test.revision || store.reads != test.reads {
				t.Errorf("revision %d, %d reads, want %d, %d: %s", revision, store.reads, test.revision, test.reads, test.why)
			}
			if err != nil {
				return
			}
			d := w.deployment(id)
			if d.Stamp.Revision != test.revision || (name == "template deleted") != (d.Template == "") {
				t.Errorf("revision %d with the template %q: %s", d.Stamp.Revision, d.Template, test.why)
			}
			if found := slices.ContainsFunc(d.Stamp.Conditions, func(c tko.Condition) bool { return c.Type == "Meanwhile" }); found != (name == "conditions set") {
				t.Errorf("conditions are %v: %s", d.Stamp.Conditions, test.why)
			}
		})
	}
}

func TestClientsSetHowLongAModificationTakes(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{ModificationTime: time.Second})
	id := w.create(tko.NewDeployment{})
	for _, wrong := range []time.Duration{-time.Second, 0, time.Millisecond, tko.MaxModification + 1} {
		_, err := w.StartModification(tko.WithModificationTime(w.ctx, wrong), id)
		wantError(t, err, tko.ErrInvalid, "use 1s to 1h0m0s")
	}
	m, err := w.StartModification(tko.WithModificationTime(w.ctx, time.Hour), id)
	if err != nil || time.Until(m.Expires) < 50*time.Minute {
		t.Errorf("%v, %v", m.Expires, err)
	}
}
