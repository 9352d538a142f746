package schedule

import (
	"context"
	"iter"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// A counted is a target that counts its calls.
type counted struct {
	calls   int
	applied []tko.Deployment
	held    []tko.DeploymentID
}

func (c *counted) Schedule(_ context.Context, _ krm.Resource, site tko.Site, applied []tko.Deployment, held []tko.DeploymentID) (report.Report, error) {
	c.calls++
	c.applied, c.held = applied, held
	r := report.Report{Kept: held, Deployments: map[tko.DeploymentID]report.State{}}
	for _, d := range applied {
		r.Deployments[d.ID] = report.State{Scheduled: report.Outcome{Status: tko.ConditionTrue, Reason: ReasonScheduled}}
		r.Attest(d.ID, d.Stamp.Revision)
	}
	r.AttestSite(site.Stamp.Revision)
	return r, nil
}

// A frozenData is a data controller with freezes.
type frozenData struct {
	Client

	freezes     []tko.Freeze
	sites       map[tko.SiteID]tko.Site
	deployments map[tko.DeploymentID]tko.Deployment
	plugins     []tko.Plugin
	writes      int
	apart       map[tko.SiteID]string
	stop        tko.SiteStop
	asked       int // for stops
}

func (d *frozenData) Freezes(context.Context) ([]tko.Freeze, error) { return d.freezes, nil }

func (d *frozenData) SiteHold(_ context.Context, id tko.SiteID) (string, error) {
	return d.apart[id], nil
}

func (d *frozenData) SiteStagings(context.Context, tko.SiteID) ([]tko.SiteStaging, error) {
	return nil, nil
}

func (d *frozenData) TargetState(context.Context, tko.SiteID, string) (tko.TargetState, error) {
	return tko.TargetState{}, tko.ErrNotFound
}

func (d *frozenData) SiteStop(context.Context, tko.SiteID) (tko.SiteStop, error) {
	d.asked++
	return d.stop, nil
}

func (d *frozenData) Site(_ context.Context, id tko.SiteID, _ int64) (tko.Site, error) {
	return d.sites[id], nil
}

func (d *frozenData) Plugins(context.Context, tko.PluginSelect, tko.ListOptions) iter.Seq2[tko.Plugin, error] {
	return func(yield func(tko.Plugin, error) bool) {
		for _, p := range d.plugins {
			if !yield(p, nil) {
				return
			}
		}
	}
}

func (d *frozenData) Deployments(context.Context, tko.DeploymentSelect, tko.ListOptions) iter.Seq2[tko.Deployment, error] {
	return func(yield func(tko.Deployment, error) bool) {
		for _, id := range slices.Sorted(maps.Keys(d.deployments)) {
			if !yield(d.deployments[id], nil) {
				return
			}
		}
	}
}

func (d *frozenData) SetConditions(_ context.Context, kind tko.Kind, id string, conditions []tko.Condition) error {
	d.writes++
	set := func(s *tko.Stamp) {
		for _, c := range conditions {
			s.Conditions = append(slices.DeleteFunc(slices.Clone(s.Conditions), func(old tko.Condition) bool { return old.Type == c.Type }), c)
		}
	}
	if kind == tko.KindSite {
		site := d.sites[tko.SiteID(id)]
		set(&site.Stamp)
		d.sites[site.ID] = site
		return nil
	}
	deployment := d.deployments[tko.DeploymentID(id)]
	set(&deployment.Stamp)
	d.deployments[deployment.ID] = deployment
	return nil
}

func TestFrozenSiteIsNotScheduledUntilTheFreezeEnds(t *testing.T) {
	gvk := krm.GVK{Group: "counted.plugin.nephio.org", Version: "v1", Kind: "Target"}
	trigger := krm.Resource{"apiVersion": gvk.APIVersion(), "kind": gvk.Kind, "metadata": map[string]any{"name": "t"}}
	settled := tko.Condition{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: ReasonScheduled, ObservedRevision: 3}
	data := &frozenData{
		freezes: []tko.Freeze{{ID: "f", SiteMetadata: map[string]string{"region": "n*"}, Until: time.Now().Add(time.Minute), Reason: "peak", By: tko.Author{Who: "ann"}}},
		sites:   map[tko.SiteID]tko.Site{"a": {ID: "a", Metadata: map[string]string{"region": "north"}, Package: krm.Package{trigger}, Stamp: tko.Stamp{Revision: 1}}},
		deployments: map[tko.DeploymentID]tko.Deployment{
			"runs":  {ID: "runs", Site: "a", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 3, Conditions: []tko.Condition{settled}}},
			"waits": {ID: "waits", Site: "a", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 4, Conditions: []tko.Condition{settled}}},
		},
	}
	one := &counted{}
	s := New(data, nil, Options{})
	s.targets = builtins(builtin{place.Kind{GVK: gvk, Name: "test", ReportsHealth: true}, one})
	for range 2 {
		r := s.Reconcile(t.Context(), "a")
		if r.Outcome != tko.WorkLater || r.Retry <= 0 || r.Retry > time.Minute || one.calls != 0 {
			t.Fatalf("%+v, %d calls", r, one.calls)
		}
	}
	if data.writes != 2 {
		t.Errorf("%d writes: the second reconciliation wrote the same conditions", data.writes)
	}
	frozen := tko.FindCondition(data.sites["a"].Stamp.Conditions, tko.ConditionFrozen)
	if frozen == nil || frozen.Status != tko.ConditionTrue || !strings.Contains(frozen.Message, `by "ann": peak`) {
		t.Errorf("the site's condition is %+v", frozen)
	}
	if c := tko.FindCondition(data.deployments["waits"].Stamp.Conditions, tko.ConditionScheduled); c.Status != tko.ConditionFalse || c.Reason != tko.ReasonFrozen || c.ObservedRevision != 4 {
		t.Errorf("the condition of the deployment that waits is %+v", c)
	}
	if c := tko.FindCondition(data.deployments["runs"].Stamp.Conditions, tko.ConditionScheduled); c.Status != tko.ConditionTrue {
		t.Errorf("the condition of the deployment that runs is %+v", c)
	}
	data.freezes[0].Until = time.Now().Add(-time.Second)
	s.Reconcile(t.Context(), "a")
	frozen = tko.FindCondition(data.sites["a"].Stamp.Conditions, tko.ConditionFrozen)
	if one.calls != 1 || frozen.Status != tko.ConditionFalse {
		t.Errorf("%d calls, %+v", one.calls, frozen)
	}
	if c := tko.FindCondition(data.deployments["waits"].Stamp.Conditions, tko.ConditionScheduled); c.Status != tko.ConditionTrue || c.ObservedRevision != 4 {
		t.Errorf("after the freeze the condition is %+v", c)
	}
}

// What others change waits while a rollout is changing a site from which this one must be
// apart; a site without new revisions doesn't.
func TestSiteIsNotScheduledWhileARolloutKeepsItApart(t *testing.T) {
	gvk := krm.GVK{Group: "counted.plugin.nephio.org", Version: "v1", Kind: "Target"}
	trigger := krm.Resource{"apiVersion": gvk.APIVersion(), "kind": gvk.Kind, "metadata": map[string]any{"name": "t"}}
	data := &frozenData{
		apart:       map[tko.SiteID]string{"a": `rollout "r" is changing site "b"`},
		sites:       map[tko.SiteID]tko.Site{"a": {ID: "a", Package: krm.Package{trigger}, Stamp: tko.Stamp{Revision: 1}}},
		deployments: map[tko.DeploymentID]tko.Deployment{"waits": {ID: "waits", Site: "a", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 4}}},
	}
	one := &counted{}
	s := New(data, nil, Options{})
	s.targets = builtins(builtin{place.Kind{GVK: gvk, Name: "test", ReportsHealth: true}, one})
	for range 2 {
		if r := s.Reconcile(t.Context(), "a"); r.Outcome != tko.WorkLater || r.Retry != apartRetry || one.calls != 0 {
			t.Fatalf("%+v, %d calls", r, one.calls)
		}
	}
	if c := tko.FindCondition(data.deployments["waits"].Stamp.Conditions, tko.ConditionScheduled); c.Status != tko.ConditionFalse || c.Reason != tko.ReasonApart || !strings.Contains(c.Message, `it waits, because rollout "r" is changing site "b"`) || data.writes != 1 {
		t.Errorf("the condition of the deployment that waits is %+v, after %d writes", c, data.writes)
	}
	data.apart = nil
	s.Reconcile(t.Context(), "a")
	if c := tko.FindCondition(data.deployments["waits"].Stamp.Conditions, tko.ConditionScheduled); one.calls != 1 || c.Status != tko.ConditionTrue {
		t.Errorf("%d calls, %+v", one.calls, c)
	}
	data.apart = map[tko.SiteID]string{"a": "x"}
	if r := s.Reconcile(t.Context(), "a"); r.Outcome == tko.WorkLater && r.Retry == apartRetry || one.calls != 2 {
		t.Errorf("a site without new revisions is held: %+v, %d calls", r, one.calls)
	}
}

func TestSuspendedSiteIsNotScheduledUntilItResumes(t *testing.T) {
	gvk := krm.GVK{Group: "counted.plugin.nephio.org", Version: "v1", Kind: "Target"}
	trigger := krm.Resource{"apiVersion": gvk.APIVersion(), "kind": gvk.Kind, "metadata": map[string]any{"name": "t"}}
	suspend := func(value string) map[string]string { return map[string]string{tko.MetadataSuspend: value} }
	data := &frozenData{
		sites:       map[tko.SiteID]tko.Site{"a": {ID: "a", Metadata: suspend("true"), Package: krm.Package{trigger}, Stamp: tko.Stamp{Revision: 1}}},
		deployments: map[tko.DeploymentID]tko.Deployment{"waits": {ID: "waits", Site: "a", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 4}}},
	}
	one := &counted{}
	s := New(data, nil, Options{})
	s.targets = builtins(builtin{place.Kind{GVK: gvk, Name: "test", ReportsHealth: true}, one})
	for range 2 {
		if r := s.Reconcile(t.Context(), "a"); r.Outcome != tko.WorkLater || r.Retry != maxFrozen || one.calls != 0 {
			t.Fatalf("%+v, %d calls", r, one.calls)
		}
	}
	if data.writes != 2 {
		t.Errorf("%d writes: the second reconciliation wrote the same conditions", data.writes)
	}
	if c := tko.FindCondition(data.sites["a"].Stamp.Conditions, tko.ConditionFrozen); c == nil || c.Status != tko.ConditionTrue || c.Reason != tko.ReasonSuspended {
		t.Errorf("the site's condition is %+v", c)
	}
	if c := tko.FindCondition(data.deployments["waits"].Stamp.Conditions, tko.ConditionScheduled); c.Status != tko.ConditionFalse || c.Reason != tko.ReasonSuspended {
		t.Errorf("the condition of the deployment that waits is %+v", c)
	}
	site := data.sites["a"]
	site.Metadata = suspend("false")
	data.sites["a"] = site
	s.Reconcile(t.Context(), "a")
	if c := tko.FindCondition(data.sites["a"].Stamp.Conditions, tko.ConditionFrozen); one.calls != 1 || c.Status != tko.ConditionFalse {
		t.Errorf("%d calls, %+v", one.calls, c)
	}
}

func TestSuspendedDeploymentStaysAsItIsUntilItResumes(t *testing.T) {
	gvk := krm.GVK{Group: "counted.plugin.nephio.org", Version: "v1", Kind: "Target"}
	trigger := krm.Resource{"apiVersion": gvk.APIVersion(), "kind": gvk.Kind, "metadata": map[string]any{"name": "t"}}
	suspended := map[string]string{tko.MetadataSuspend: "true"}
	was := tko.Stamp{Revision: 4, Conditions: []tko.Condition{{Type: tko.ConditionScheduled, Status: tko.ConditionTrue, Reason: ReasonScheduled, ObservedRevision: 3}}}
	data := &frozenData{
		sites: map[tko.SiteID]tko.Site{"a": {ID: "a", Package: krm.Package{trigger}, Stamp: tko.Stamp{Revision: 1}}},
		deployments: map[tko.DeploymentID]tko.Deployment{
			"changed":    {ID: "changed", Site: "a", Prepared: true, Approved: true, Metadata: suspended, Stamp: was},
			"other":      {ID: "other", Site: "a", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 2}},
			"unapproved": {ID: "unapproved", Site: "a", Prepared: true, Metadata: suspended, Stamp: was},
		},
	}
	one := &counted{}
	s := New(data, nil, Options{})
	s.targets = builtins(builtin{place.Kind{GVK: gvk, Name: "test", ReportsHealth: true}, one})
	for range 2 {
		if r := s.Reconcile(t.Context(), "a"); r.Outcome != tko.WorkDone || len(one.applied) != 1 || one.applied[0].ID != "other" || !slices.Equal(one.held, []tko.DeploymentID{"changed", "unapproved"}) {
			t.Fatalf("%+v, applied %+v, held %v", r, one.applied, one.held)
		}
	}
	// two of the deployment that is to change, one of each other, and one of the site
	if data.writes != 4 {
		t.Errorf("%d writes: the second reconciliation wrote the same conditions", data.writes)
	}
	for _, id := range []tko.DeploymentID{"changed", "unapproved"} {
		if c := tko.FindCondition(data.deployments[id].Stamp.Conditions, tko.ConditionFrozen); c == nil || c.Status != tko.ConditionTrue || c.Reason != tko.ReasonSuspended || !strings.Contains(c.Message, "tko deployment resume") {
			t.Errorf("the condition of %s is %+v", id, c)
		}
	}
	if c := tko.FindCondition(data.deployments["changed"].Stamp.Conditions, tko.ConditionScheduled); c.Status != tko.ConditionFalse || c.Reason != tko.ReasonSuspended {
		t.Errorf("the condition of the deployment that waits is %+v", c)
	}
	if c := tko.FindCondition(data.deployments["unapproved"].Stamp.Conditions, tko.ConditionScheduled); c.Status != tko.ConditionTrue || c.ObservedRevision != 3 {
		t.Errorf("the condition of the unapproved deployment, which still runs, is %+v", c)
	}
	if c := tko.FindCondition(data.deployments["other"].Stamp.Conditions, tko.ConditionScheduled); c == nil || c.Status != tko.ConditionTrue {
		t.Errorf("the condition of the other deployment is %+v", c)
	}
	for _, id := range []tko.DeploymentID{"changed", "unapproved"} {
		d := data.deployments[id]
		d.Metadata = nil
		data.deployments[id] = d
	}
	s.Reconcile(t.Context(), "a")
	if len(one.applied) != 2 || len(one.held) != 0 {
		t.Errorf("resumed: applied %+v, held %v", one.applied, one.held)
	}
	if d := data.deployments["changed"]; tko.FindCondition(d.Stamp.Conditions, tko.ConditionFrozen).Status != tko.ConditionFalse || tko.FindCondition(d.Stamp.Conditions, tko.ConditionScheduled).Status != tko.ConditionTrue {
		t.Errorf("resumed: %+v", d.Stamp.Conditions)
	}
}

func TestPluginIsNotRunIfItIsNotKnownWhatTheSiteHasOfASuspendedDeployment(t *testing.T) {
	gvk := krm.GVK{Group: "counted.plugin.nephio.org", Version: "v1", Kind: "Target"}
	stamp := tko.Stamp{Revision: 1, Conditions: []tko.Condition{{Type: tko.ConditionScheduled, Status: tko.ConditionFalse, Reason: tko.ReasonSuspended, ObservedRevision: 1}}}
	data := &frozenData{
		plugins:     []tko.Plugin{{Type: tko.PluginSchedule, Name: "p", Triggers: []krm.GVK{gvk}}},
		sites:       map[tko.SiteID]tko.Site{"a": {ID: "a", Package: krm.Package{{"apiVersion": gvk.APIVersion(), "kind": gvk.Kind, "metadata": map[string]any{"name": "t"}}}, Stamp: tko.Stamp{Revision: 1}}},
		deployments: map[tko.DeploymentID]tko.Deployment{"d": {ID: "d", Site: "a", Prepared: true, Approved: true, Metadata: map[string]string{tko.MetadataSuspend: "true"}, Stamp: stamp}},
	}
	s := New(data, nil, Options{}) // without a runner: a run would panic
	s.targets = nil
	if r := s.Reconcile(t.Context(), "a"); r.Outcome != tko.WorkDone {
		t.Errorf("%+v", r)
	}
	if c := tko.FindCondition(data.sites["a"].Stamp.Conditions, tko.ConditionScheduled); c == nil || c.Status != tko.ConditionFalse || c.Reason != tko.ReasonSuspended || !strings.Contains(c.Message, `deployment "d"`) {
		t.Errorf("the site's condition is %+v", c)
	}
}

func TestObjectOfASuspendedDeploymentIsNotTakenOver(t *testing.T) {
	object := func(value string) krm.Package {
		return krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "same"}, "data": map[string]any{"key": value}}}
	}
	p := decide(snapshot{deployments: []tko.Deployment{
		{ID: "new", Prepared: true, Approved: true, Package: object("2")},
		{ID: "suspended", Prepared: true, Approved: true, Package: object("1"), Metadata: map[string]string{tko.MetadataSuspend: "true"}},
	}}, nil)
	found := step{place: place.Git, target: pulledTarget{}}.contestOf(slices.Concat(p.deployments, p.suspended), nil)
	if apply, held := found.withhold(p.deployments); len(apply) != 0 || !slices.Equal(held, []tko.DeploymentID{"new"}) {
		t.Errorf("applied %+v, held %v: %v", apply, held, found)
	}
}

// A stopped site is not reconciled, and its conditions say why; no target is called, for repair
// or removal either.
func TestStoppedSiteIsNotScheduled(t *testing.T) {
	gvk := krm.GVK{Group: "counted.plugin.nephio.org", Version: "v1", Kind: "Target"}
	trigger := krm.Resource{"apiVersion": gvk.APIVersion(), "kind": gvk.Kind, "metadata": map[string]any{"name": "t"}}
	data := &frozenData{
		stop:        tko.SiteStop{Whole: true, Reason: "everything was stopped"},
		sites:       map[tko.SiteID]tko.Site{"a": {ID: "a", Package: krm.Package{trigger}, Stamp: tko.Stamp{Revision: 1}}},
		deployments: map[tko.DeploymentID]tko.Deployment{"waits": {ID: "waits", Site: "a", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 4}}},
	}
	one := &counted{}
	s := New(data, nil, Options{})
	s.targets = builtins(builtin{place.Kind{GVK: gvk, Name: "test", ReportsHealth: true}, one})
	if r := s.Reconcile(t.Context(), "a"); r.Outcome != tko.WorkLater || r.Retry <= 0 || one.calls != 0 {
		t.Fatalf("%+v, %d calls", r, one.calls)
	}
	frozen := tko.FindCondition(data.sites["a"].Stamp.Conditions, tko.ConditionFrozen)
	if frozen == nil || frozen.Status != tko.ConditionTrue || frozen.Reason != tko.ReasonStopped || frozen.Message != "everything was stopped" {
		t.Errorf("the site's condition is %+v", frozen)
	}
	if c := tko.FindCondition(data.deployments["waits"].Stamp.Conditions, tko.ConditionScheduled); c == nil || c.Status != tko.ConditionFalse || c.Reason != tko.ReasonStopped {
		t.Errorf("the condition of the deployment that waits is %+v", c)
	}
	data.stop = tko.SiteStop{}
	if s.Reconcile(t.Context(), "a"); one.calls != 1 {
		t.Error("it doesn't go on after the stop")
	}
	data.stop = tko.SiteStop{Held: []tko.DeploymentID{"waits"}, Reason: "topology"}
	s.Reconcile(t.Context(), "a")
	if one.calls != 2 || len(one.applied) != 0 || !slices.Contains(one.held, "waits") || !slices.Contains(one.held, tko.OtherDeployments) {
		t.Errorf("of a stopped topology %v is applied, and %v held", one.applied, one.held)
	}
}

// A stopping target is a target whose site is stopped, or frozen, while it works.
type stopping struct {
	halt  func()
	begun int
}

func (c *stopping) Schedule(ctx context.Context, _ krm.Resource, _ tko.Site, applied []tko.Deployment, _ []tko.DeploymentID) (report.Report, error) {
	for range 3 {
		if err := fence.Check(ctx); err != nil {
			return report.Report{}, err
		}
		c.begun++
		c.halt()
		time.Sleep(fence.Age)
	}
	return report.Report{}, nil
}

// A stop, and a freeze, end a reconciliation before the next object, and nothing is reported as done.
func TestStopEndsAReconciliationBeforeTheNextObject(t *testing.T) {
	for name, halt := range map[string]func(*frozenData){
		"stop": func(d *frozenData) { d.stop = tko.SiteStop{Whole: true, Reason: "stopped"} },
		"freeze": func(d *frozenData) {
			d.freezes = []tko.Freeze{{SiteMetadata: map[string]string{"region": "south"}, Until: time.Now().Add(time.Hour)}}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			gvk := krm.GVK{Group: "counted.plugin.nephio.org", Version: "v1", Kind: "Target"}
			trigger := krm.Resource{"apiVersion": gvk.APIVersion(), "kind": gvk.Kind, "metadata": map[string]any{"name": "t"}}
			data := &frozenData{
				sites:       map[tko.SiteID]tko.Site{"a": {ID: "a", Metadata: map[string]string{"region": "south"}, Package: krm.Package{trigger, trigger}, Stamp: tko.Stamp{Revision: 1}}},
				deployments: map[tko.DeploymentID]tko.Deployment{"d": {ID: "d", Site: "a", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 4}}},
			}
			one := &stopping{halt: func() { halt(data) }}
			s := New(data, nil, Options{})
			s.targets = builtins(builtin{place.Kind{GVK: gvk, Name: "test", ReportsHealth: true}, one})
			if r := s.Reconcile(t.Context(), "a"); r.Outcome != tko.WorkReleased || one.begun != 1 {
				t.Errorf("%s: %+v after %d objects", name, r, one.begun)
			}
			if data.writes != 0 {
				t.Errorf("%s: %d conditions were written", name, data.writes)
			}
		})
	}
}

// Nothing is scheduled at a site whose first template doesn't exist yet: it may have the targets,
// or change them. A site that has a template, and waits for the next one, goes on.
func TestSiteThatWaitsForItsFirstTemplateIsNotScheduled(t *testing.T) {
	gvk := krm.GVK{Group: "counted.plugin.nephio.org", Version: "v1", Kind: "Target"}
	trigger := krm.Resource{"apiVersion": gvk.APIVersion(), "kind": gvk.Kind, "metadata": map[string]any{"name": "t"}}
	site := tko.Site{ID: "a", AwaitedTemplate: "late", Package: krm.Package{trigger}, Stamp: tko.Stamp{Revision: 1}}
	data := &frozenData{
		sites:       map[tko.SiteID]tko.Site{"a": site},
		deployments: map[tko.DeploymentID]tko.Deployment{"waits": {ID: "waits", Site: "a", Prepared: true, Approved: true, Stamp: tko.Stamp{Revision: 4}}},
	}
	one := &counted{}
	s := New(data, nil, Options{})
	s.targets = builtins(builtin{place.Kind{GVK: gvk, Name: "test", ReportsHealth: true}, one})
	if r := s.Reconcile(t.Context(), "a"); r.Outcome != tko.WorkLater || one.calls != 0 {
		t.Fatalf("%+v, %d calls", r, one.calls)
	}
	if c := tko.FindCondition(data.deployments["waits"].Stamp.Conditions, tko.ConditionScheduled); c.Status != tko.ConditionFalse || c.Reason != tko.ReasonWaitsForReferences || !strings.Contains(c.Message, `site "a" waits for its template "late"`) {
		t.Errorf("the condition of the deployment is %+v", c)
	}
	site.Template = "now"
	data.sites["a"] = site
	if s.Reconcile(t.Context(), "a"); one.calls != 1 {
		t.Errorf("a site that has a template was scheduled %d times", one.calls)
	}
}
