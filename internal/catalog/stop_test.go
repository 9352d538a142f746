package catalog_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/grpcapi"
)

func (w *world) stopped(stop tko.Stop) tko.StopStatus {
	w.t.Helper()
	if stop.Reason == "" {
		stop.Reason = "storm"
	}
	status, err := w.Stop(w.ctx, stop)
	if err != nil {
		w.t.Fatal(err)
	}
	return status
}

func (w *world) resumed(id string) tko.StopStatus {
	w.t.Helper()
	status, err := w.Resume(w.ctx, tko.Release{ID: id})
	if err != nil {
		w.t.Fatal(err)
	}
	return status
}

func atSites(patterns ...string) tko.Stop { return tko.Stop{Sites: patterns} }

func TestStopOfNothingIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("a", "", "region", "north")
	id := w.create(tko.NewDeployment{Site: "a"})
	for what, stop := range map[string]tko.Stop{
		"without a selection":     {Reason: "x"},
		"of everything and sites": {All: true, Sites: []string{"a"}, Reason: "x"},
		"of sites and a topology": {Sites: []string{"a"}, Topology: id, Reason: "x"},
		"of no site":              {Sites: []string{"nowhere"}, Reason: "x"},
		"of metadata without one": {SiteMetadata: map[string]string{"region": "nroth"}, Reason: "x"},
		"without a reason":        {Sites: []string{"a"}, Reason: " "},
		"of a wrong pattern":      {Sites: []string{"[x"}, Reason: "x"},
		"of very many patterns":   {Sites: slices.Repeat([]string{"a"}, 200), Reason: "x"},
	} {
		if _, err := w.Stop(w.ctx, stop); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("a stop %s: %v", what, err)
		}
	}
	if _, err := w.Stop(w.ctx, tko.Stop{Topology: "nowhere", Reason: "x"}); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("a stop of a missing topology: %v", err)
	}
	if list, err := w.Stops(w.ctx); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestSecondStopOfASelectionIsTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{Audit: true})
	w.site("a", "")
	w.site("b", "")
	first := w.stopped(atSites("a", "b"))
	second := w.stopped(tko.Stop{Sites: []string{"b", "a"}, Reason: "still"})
	if second.Stop.ID != first.Stop.ID || second.Stop.Reason != "still" || !second.Stop.Created.Equal(first.Stop.Created) || second.SiteCount != 2 {
		t.Errorf("%+v after %+v", second, first)
	}
	if other := w.stopped(atSites("a")); other.Stop.ID == first.Stop.ID {
		t.Error("another selection has the same stop")
	}
	if list, err := w.Stops(w.ctx); err != nil || len(list) != 2 || list[0].Stop.ID != first.Stop.ID && list[1].Stop.ID != first.Stop.ID {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestResumeOfAnUnknownStopChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("a", "")
	stop := w.stopped(atSites("a")).Stop
	for range 2 {
		if _, err := w.Resume(w.ctx, tko.Release{ID: "missing"}); !errors.Is(err, tko.ErrNotFound) || !strings.Contains(err.Error(), "tko stop list") {
			t.Errorf("%v", err)
		}
	}
	if waits, err := w.Resume(w.ctx, tko.Release{ID: stop.ID, DryRun: true}); err != nil || waits.Stop.ID != stop.ID {
		t.Errorf("%+v, %v", waits, err)
	}
	w.resumed(stop.ID)
	if _, err := w.Resume(w.ctx, tko.Release{ID: stop.ID}); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("a second resume: %v", err)
	}
}

// A road is a way to change what is stopped: it is refused as long as the stop lasts.
type road func(w *world, f *stoppedFleet) error

// A stoppedFleet has a topology with children, all at one site.
type stoppedFleet struct {
	top, child, open tko.DeploymentID
	token            string
	at               int64 // position before the stop
}

func stoppedFleetOf(w *world) *stoppedFleet {
	w.template("t", thing("one", "n: 1"))
	w.site("s/1", thing("site", "n: 1"), "region", "north", "keep", "1")
	w.site("other", "")
	f := &stoppedFleet{top: w.create(tko.NewDeployment{Template: "t", Site: "s/1"})}
	f.child = w.create(tko.NewDeployment{Parent: f.top, Template: "t", Site: "s/1", Prepared: true})
	f.open = w.create(tko.NewDeployment{Parent: f.top, Template: "t", Site: "s/1"})
	f.at = w.head()
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "s/1", Package: pkg(w.t, thing("site", "n: 2")), Metadata: map[string]string{"region": "north"}}); err != nil {
		w.t.Fatal(err)
	}
	f.token = w.start(f.open).Token
	return f
}

// roads are the methods that change sites and deployments.
func roads() map[string]road {
	commit := func(w *world, f *stoppedFleet) tko.DeploymentCommit {
		d := w.deployment(f.child)
		return tko.DeploymentCommit{ID: f.child, Revision: d.Stamp.Revision, Package: pkg(w.t, thing("one", "n: 2"))}
	}
	return map[string]road{
		tkopb.Data_RegisterSite_FullMethodName: func(w *world, _ *stoppedFleet) error {
			_, err := w.RegisterSite(w.ctx, tko.Site{ID: "s/1", Package: pkg(w.t, thing("site", "n: 3")), Metadata: map[string]string{"region": "south"}})
			return err
		},
		tkopb.Data_DeleteSite_FullMethodName: func(w *world, _ *stoppedFleet) error { _, err := w.DeleteSite(w.ctx, "s/1"); return err },
		tkopb.Data_PurgeSites_FullMethodName: func(w *world, _ *stoppedFleet) error {
			_, err := w.PurgeSites(w.ctx, tko.SiteSelect{IDs: []string{"s/*"}}, false)
			return err
		},
		tkopb.Data_DeleteTemplate_FullMethodName: func(w *world, _ *stoppedFleet) error { _, err := w.DeleteTemplate(w.ctx, "t"); return err },
		tkopb.Data_PurgeTemplates_FullMethodName: func(w *world, _ *stoppedFleet) error {
			_, err := w.PurgeTemplates(w.ctx, tko.TemplateSelect{IDs: []string{"t"}}, false)
			return err
		},
		tkopb.Data_CreateDeployment_FullMethodName: func(w *world, _ *stoppedFleet) error {
			_, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: "t", Site: "s/1"})
			return err
		},
		tkopb.Data_DeleteDeployment_FullMethodName: func(w *world, f *stoppedFleet) error { _, err := w.DeleteDeployment(w.ctx, f.top); return err },
		tkopb.Data_PurgeDeployments_FullMethodName: func(w *world, f *stoppedFleet) error {
			_, err := w.PurgeDeployments(w.ctx, tko.DeploymentSelect{Parent: f.top}, false)
			return err
		},
		tkopb.Data_EndDeploymentModification_FullMethodName: func(w *world, f *stoppedFleet) error {
			_, _, err := w.EndModification(w.ctx, f.token, pkg(w.t, thing("one", "n: 2")))
			return err
		},
		tkopb.Data_ApproveDeployments_FullMethodName: func(w *world, f *stoppedFleet) error {
			_, err := w.ApproveDeployments(w.ctx, tko.DeploymentSelect{Parent: f.top}, false)
			return err
		},
		tkopb.Data_CommitDeployment_FullMethodName: func(w *world, f *stoppedFleet) error {
			_, err := w.CommitDeployment(w.ctx, commit(w, f))
			return err
		},
		tkopb.Data_CommitDeployments_FullMethodName: func(w *world, f *stoppedFleet) error {
			revisions, err := w.CommitDeployments(w.ctx, []tko.DeploymentCommit{commit(w, f)})
			if err == nil && revisions[0] == 0 { // committing it alone returns the reason
				_, err = w.CommitDeployment(w.ctx, commit(w, f))
			}
			return err
		},
		tkopb.Data_CreateChildren_FullMethodName: func(w *world, f *stoppedFleet) error {
			_, _, err := w.CreateChildren(w.ctx, tko.NewChildren{Parent: f.top, Children: []tko.NewChild{{Origin: "new", Template: "t", Site: "s/1"}}})
			return err
		},
		tkopb.Data_ProvisionSite_FullMethodName: func(w *world, _ *stoppedFleet) error {
			_, _, err := w.ProvisionSite(w.ctx, tko.NewSite{Origin: "o", Metadata: map[string]string{"region": "north"}})
			return err
		},
		tkopb.Data_PutEntity_FullMethodName: func(w *world, _ *stoppedFleet) error {
			_, err := w.PutEntity(w.ctx, tko.Put{Kind: tko.KindDeployment, Name: "put", Template: "t", Site: "s/1"})
			return err
		},
		tkopb.Data_RemoveEntity_FullMethodName: func(w *world, f *stoppedFleet) error {
			_, err := w.RemoveEntity(w.ctx, tko.KindDeployment, string(f.top), false)
			return err
		},
		tkopb.Past_RestorePast_FullMethodName: func(w *world, f *stoppedFleet) error {
			_, err := w.RestorePast(w.ctx, tko.RestoreRequest{Select: tko.PastSelect{Kind: tko.KindSite, ID: "s/1"}, AsOf: tko.AsOf{Position: f.at}})
			return err
		},
	}
}

// exempt are the methods that change something, and nothing that a stop holds.
var exempt = map[string]string{
	tkopb.Data_RegisterTemplate_FullMethodName:             "a template changes nothing that was made from it",
	tkopb.Data_RegisterPlugin_FullMethodName:               "plugins run when work is done, and that is held",
	tkopb.Data_DeletePlugin_FullMethodName:                 "likewise",
	tkopb.Data_PurgePlugins_FullMethodName:                 "likewise",
	tkopb.Data_StartDeploymentModification_FullMethodName:  "it only reserves: the end is refused",
	tkopb.Data_CancelDeploymentModification_FullMethodName: "it changes nothing",
	tkopb.Data_BreakModification_FullMethodName:            "it changes nothing",
	tkopb.Data_SetConditions_FullMethodName:                "reports of what was in flight",
	tkopb.Data_ClaimWork_FullMethodName:                    "see TestStoppedDeploymentsAreNotPrepared",
	tkopb.Data_RenewWork_FullMethodName:                    "of what is in flight",
	tkopb.Data_FinishWork_FullMethodName:                   "of what is in flight",
	tkopb.Data_CallSites_FullMethodName:                    "the work is held",
	tkopb.Data_CallSources_FullMethodName:                  "what sources write is refused",
	tkopb.Data_SaveSource_FullMethodName:                   "it has no site",
	tkopb.Data_ForgetSource_FullMethodName:                 "it has no site",
	tkopb.Data_SaveTargetState_FullMethodName:              "receipts of what was in flight",
	tkopb.Rollouts_RegisterRollout_FullMethodName:          "see TestRolloutsStandStillWhereTheyAreStopped, in the planner",
	tkopb.Rollouts_DeleteRollout_FullMethodName:            "it changes no deployment",
	tkopb.Rollouts_CommandRollout_FullMethodName:           "rows are held, see there",
	tkopb.Rollouts_AdvanceRollout_FullMethodName:           "rows are held, see there",
	tkopb.Rollouts_ProposeRollout_FullMethodName:           "rows are held, see there",
	tkopb.Rollouts_GetRolloutMeasurements_FullMethodName:   "it changes nothing",
	tkopb.Rollouts_GetRolloutTickets_FullMethodName:        "it changes nothing",
	tkopb.Rollouts_GetSiteStagings_FullMethodName:          "it changes nothing",
	tkopb.Rollouts_ReportSiteStaging_FullMethodName:        "it changes no deployment: rows are held, see there",
	tkopb.Rollouts_ReportRolloutTicket_FullMethodName:      "it changes no deployment: rows are held, see there",
	tkopb.Rollouts_ReportRolloutMeasurement_FullMethodName: "it changes no deployment: rows are held, see there",
	tkopb.Access_Bind_FullMethodName:                       "rights",
	tkopb.Access_Unbind_FullMethodName:                     "rights",
	tkopb.Access_AddPolicy_FullMethodName:                  "rights",
	tkopb.Access_SetOwner_FullMethodName:                   "rights",
	tkopb.Access_EnrollSite_FullMethodName:                 "rights",
	tkopb.Access_RevokeSite_FullMethodName:                 "rights",
	tkopb.Access_EnrollSites_FullMethodName:                "rights",
	tkopb.Access_ApproveAgent_FullMethodName:               "rights",
	tkopb.Access_ListWaitingAgents_FullMethodName:          "it reads",
	tkopb.Access_CountOwned_FullMethodName:                 "it reads",
	tkopb.Access_Freeze_FullMethodName:                     "it holds more",
	tkopb.Access_Unfreeze_FullMethodName:                   "a stop holds all the same",
	tkopb.Access_Stop_FullMethodName:                       "it holds more",
	tkopb.Access_Resume_FullMethodName:                     "ends the stop",
	tkopb.Access_RegisterSources_FullMethodName:            "what sources write is refused",
	tkopb.Access_DeleteSource_FullMethodName:               "what it removes is refused",
	tkopb.Access_DeclareSources_FullMethodName:             "what sources write is refused",
	tkopb.Access_RegisterSubscriptions_FullMethodName:      "messages change nothing at sites",
	tkopb.Access_DeleteSubscription_FullMethodName:         "messages change nothing at sites",
	tkopb.Access_TestSubscription_FullMethodName:           "messages change nothing at sites",
	tkopb.Access_RegisterViews_FullMethodName:              "views change nothing at sites",
	tkopb.Access_DeleteView_FullMethodName:                 "views change nothing at sites",
	tkopb.Admin_Backup_FullMethodName:                      "it reads",
	tkopb.Admin_ReleaseHolds_FullMethodName:                "a stop holds all the same",
	tkopb.Logs_SetLogLevels_FullMethodName:                 "no entity",
	tkopb.Why_CompareSite_FullMethodName:                   "it reads",
}

// Each method that changes something is a road that a stop closes, or changes nothing that it
// holds: a new method needs a place in one of the two lists.
func TestStopClosesEachRoad(t *testing.T) {
	t.Parallel()
	reads := []access.Verb{access.Read, access.Open, access.Inspect, access.Audit, access.Backup, access.Logs, access.Schedule, access.Source, access.Prepare}
	all := roads()
	for method, right := range grpcapi.Rights() {
		_, isRoad := all[method]
		_, isExempt := exempt[method]
		changes := slices.ContainsFunc(right.Verbs, func(v access.Verb) bool { return !slices.Contains(reads, v) })
		if changes && !isRoad && !isExempt {
			t.Errorf("%s: does a stop close this road?", method)
		}
	}
	ways := map[string]func(*stoppedFleet) tko.Stop{
		"everything": func(*stoppedFleet) tko.Stop { return tko.Stop{All: true} },
		"site":       func(*stoppedFleet) tko.Stop { return atSites("s/*") },
		"metadata":   func(*stoppedFleet) tko.Stop { return tko.Stop{SiteMetadata: map[string]string{"region": "n*"}} },
		"topology":   func(f *stoppedFleet) tko.Stop { return tko.Stop{Topology: f.top} },
	}
	ofSites := []string{ // changes that a stop of a topology, or of a site's ID, doesn't hold
		"topology " + tkopb.Data_RegisterSite_FullMethodName, "topology " + tkopb.Data_ProvisionSite_FullMethodName, "topology " + tkopb.Past_RestorePast_FullMethodName,
		"topology " + tkopb.Data_CreateDeployment_FullMethodName, "topology " + tkopb.Data_PutEntity_FullMethodName, "site " + tkopb.Data_ProvisionSite_FullMethodName,
	}
	for method, walk := range all {
		for way, stopOf := range ways {
			if slices.Contains(ofSites, way+" "+method) {
				continue
			}
			t.Run(way+method, func(t *testing.T) {
				t.Parallel()
				w := newWorld(t, catalog.Options{ModificationTime: time.Minute})
				f := stoppedFleetOf(w)
				stop := w.stopped(stopOf(f)).Stop
				head := w.head()
				if err := walk(w, f); !errors.Is(err, tko.ErrStopped) || !errors.Is(err, tko.ErrBusy) || !strings.Contains(err.Error(), "tko resume "+stop.ID) || !strings.Contains(err.Error(), "storm") {
					t.Fatalf("while it is stopped: %v", err)
				}
				if now := w.head(); now != head {
					t.Errorf("%d changes were made", now-head)
				}
				w.resumed(stop.ID)
				if err := walk(w, f); err != nil {
					t.Errorf("after the stop: %v", err)
				}
			})
		}
	}
}

// A commit that was decided before the stop, and arrives after it, is refused for each
// caller, through each server.
func TestStopHoldsFromItsCommitOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("one", "n: 1"))
	w.site("a", "")
	id := w.create(tko.NewDeployment{Template: "t", Site: "a"})
	if _, err := w.Stops(w.ctx); err != nil {
		t.Fatal(err)
	}
	second := catalog.New(w.store, w.validator, catalog.Options{}) // it doesn't hear of the stop
	if _, err := second.CreateDeployment(w.ctx, tko.NewDeployment{Template: "t", Site: "a"}); err != nil {
		t.Fatal(err)
	}
	stop := w.stopped(atSites("a")).Stop
	if _, err := second.CreateDeployment(w.ctx, tko.NewDeployment{Template: "t", Site: "a"}); !errors.Is(err, tko.ErrStopped) {
		t.Errorf("through another server: %v", err)
	}
	if _, err := second.DeleteDeployment(w.ctx, id); !errors.Is(err, tko.ErrStopped) {
		t.Errorf("through another server: %v", err)
	}
	w.resumed(stop.ID)
	if _, err := second.DeleteDeployment(w.ctx, id); err != nil { // its rules are older than the end of the stop
		t.Errorf("after the stop, through another server: %v", err)
	}
}

// The site of a stop by metadata can't leave it, and no site joins it.
func TestStoppedSitesStaySelected(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("a", "", "region", "north")
	w.site("b", "", "region", "south")
	w.stopped(tko.Stop{SiteMetadata: map[string]string{"region": "north"}})
	for site, region := range map[tko.SiteID]string{"a": "south", "b": "north", "c": "north"} {
		if _, err := w.RegisterSite(w.ctx, tko.Site{ID: site, Metadata: map[string]string{"region": region}}); !errors.Is(err, tko.ErrStopped) {
			t.Errorf("site %q to %s: %v", site, region, err)
		}
	}
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "c", Metadata: map[string]string{"region": "west"}}); err != nil {
		t.Errorf("another site: %v", err)
	}
}

// Of the children of a topology, those wait whose sites are stopped.
func TestChildrenAtOtherSitesAreCreated(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("one", "n: 1"))
	w.site("a", "")
	w.site("b", "")
	top := w.create(tko.NewDeployment{})
	stop := w.stopped(atSites("a")).Stop
	request := tko.NewChildren{Parent: top, Children: []tko.NewChild{{Origin: "1", Template: "t", Site: "a"}, {Origin: "2", Template: "t", Site: "b"}}}
	if _, _, err := w.CreateChildren(w.ctx, request); !errors.Is(err, tko.ErrStopped) || !strings.Contains(err.Error(), "1 of 2 children") {
		t.Errorf("%v", err)
	}
	sites := func() (at []string) {
		for _, d := range all(t, w.Deployments(w.ctx, tko.DeploymentSelect{Parent: top}, tko.ListOptions{})) {
			at = append(at, string(d.Site))
		}
		return at
	}
	if at := sites(); !slices.Equal(at, []string{"b"}) {
		t.Errorf("children are at %q", at)
	}
	w.resumed(stop.ID)
	if _, created, err := w.CreateChildren(w.ctx, request); err != nil || created != 1 || len(sites()) != 2 {
		t.Errorf("%d created, %v; children are at %q", created, err, sites())
	}
}

func TestStoppedDeploymentsAreNotPrepared(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("a", "")
	w.site("b", "")
	held, free := w.create(tko.NewDeployment{Site: "a"}), w.create(tko.NewDeployment{Site: "b"})
	claim := func() (keys []string) {
		items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueuePrepare, Max: 10, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			keys = append(keys, item.Key)
		}
		return keys
	}
	stop := w.stopped(atSites("a"))
	if stop.WaitingDeployments != 1 || stop.DeploymentCount != 1 {
		t.Errorf("%+v", stop)
	}
	if keys := claim(); !slices.Equal(keys, []string{string(free)}) {
		t.Errorf("a preparer gets %q, want %q", keys, free)
	}
	if c := tko.FindCondition(w.deployment(held).Stamp.Conditions, tko.ConditionPrepared); c == nil || c.Status != tko.ConditionFalse || c.Reason != tko.ReasonStopped || !strings.Contains(c.Message, "storm") {
		t.Errorf("the condition is %+v", c)
	}
	w.resumed(stop.Stop.ID)
	if keys := claim(); !slices.Equal(keys, []string{string(held)}) {
		t.Errorf("after the stop a preparer gets %q, want %q at once", keys, held)
	}
}

// What controllers began before is listed until their leases end.
func TestStopListsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("a", "")
	w.site("b", "")
	w.create(tko.NewDeployment{Site: "a"})
	w.create(tko.NewDeployment{Site: "b"})
	if err := w.EnqueueSites(w.ctx, []tko.SiteID{"a", "b"}); err != nil {
		t.Fatal(err)
	}
	var items []tko.WorkItem
	for _, queue := range []string{tko.QueuePrepare, tko.QueueSchedule} {
		claimed, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: queue, Max: 10, Lease: time.Minute})
		if err != nil || len(claimed) != 2 {
			t.Fatalf("%+v, %v", claimed, err)
		}
		items = append(items, claimed...)
	}
	status := w.stopped(atSites("a"))
	if status.InFlightCount != 2 || len(status.InFlight) != 2 || status.InFlight[0].Queue != tko.QueuePrepare || status.InFlight[1].Key != "a" || time.Until(status.InFlight[1].Until) < 30*time.Second {
		t.Errorf("%+v", status)
	}
	for _, item := range items {
		if err := w.FinishWork(w.ctx, []tko.FinishedWork{{Item: item, Outcome: tko.WorkDone}}); err != nil {
			t.Fatal(err)
		}
	}
	if list, err := w.Stops(w.ctx); err != nil || list[0].InFlightCount != 0 {
		t.Errorf("after the work: %+v, %v", list, err)
	}
}

func TestSiteStopSaysWhatIsHeld(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("a", "", "region", "north")
	w.site("b", "")
	top := w.create(tko.NewDeployment{})
	mine := w.create(tko.NewDeployment{Parent: top, Site: "a"})
	w.create(tko.NewDeployment{Site: "a"})
	ask := func(id tko.SiteID) tko.SiteStop {
		held, err := w.SiteStop(w.ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		return held
	}
	if held := ask("a"); held.Any() {
		t.Errorf("without a stop: %+v", held)
	}
	stop := w.stopped(tko.Stop{Topology: top}).Stop
	if held := ask("a"); held.Whole || !slices.Equal(held.Held, []tko.DeploymentID{mine}) || !strings.Contains(held.Reason, "storm") {
		t.Errorf("a topology: %+v", held)
	}
	if held := ask("b"); held.Any() {
		t.Errorf("elsewhere: %+v", held)
	}
	w.resumed(stop.ID)
	stop = w.stopped(tko.Stop{SiteMetadata: map[string]string{"region": "north"}}).Stop
	if held := ask("a"); !held.Whole {
		t.Errorf("by metadata: %+v", held)
	}
	if held := ask("deleted"); !held.Whole {
		t.Errorf("a site that doesn't exist, and may have had the metadata: %+v", held)
	}
	if held := ask(""); held.Any() {
		t.Errorf("not everything is stopped: %+v", held)
	}
	w.resumed(stop.ID)
	w.stopped(tko.Stop{All: true})
	for _, id := range []tko.SiteID{"a", "deleted", ""} {
		if held := ask(id); !held.Whole {
			t.Errorf("of everything, site %q: %+v", id, held)
		}
	}
}

// A second server, or one that was killed and started again, finds the stops in the store.
func TestStopOutlivesTheServer(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("a", "")
	stop := w.stopped(atSites("a")).Stop
	again := catalog.New(w.store, w.validator, catalog.Options{})
	if _, err := again.CreateDeployment(w.ctx, tko.NewDeployment{Site: "a"}); !errors.Is(err, tko.ErrStopped) {
		t.Errorf("%v", err)
	}
	list, err := again.Stops(w.ctx)
	if err != nil || len(list) != 1 || list[0].Stop.ID != stop.ID || list[0].Stop.Reason != "storm" {
		t.Errorf("%+v, %v", list, err)
	}
	if _, err := again.Resume(w.ctx, tko.Release{ID: stop.ID}); err != nil {
		t.Fatal(err)
	}
	if _, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Site: "a"}); err != nil {
		t.Errorf("after the stop, through the first server: %v", err)
	}
}

// Writers that go on while an operator stops and resumes have no write between a stop and its
// end: the positions of the log show it.
func TestNoWriteIsBetweenAStopAndItsEnd(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("one", "n: 1"))
	w.site("a", "")
	ctx, end := context.WithCancel(w.ctx)
	defer end()
	done := make(chan error)
	for n := range 4 {
		writer := catalog.New(w.store, w.validator, catalog.Options{})
		go func() {
			for i := 0; ctx.Err() == nil; i++ {
				id, err := writer.CreateDeployment(w.ctx, tko.NewDeployment{Template: "t", Site: "a", Metadata: map[string]string{"n": fmt.Sprint(n, i)}}) //nolint:contextcheck // a call that has begun ends
				if err == nil && i%2 == 0 {
					_, err = writer.DeleteDeployment(w.ctx, id) //nolint:contextcheck // likewise
				}
				if err != nil && !errors.Is(err, tko.ErrStopped) {
					done <- err
					return
				}
			}
			done <- nil
		}()
	}
	for range 20 {
		stop := w.stopped(atSites("a")).Stop
		head := w.head()
		time.Sleep(time.Millisecond) // so that writers try
		if now := w.head(); now != head {
			t.Errorf("%d changes were made while the site was stopped", now-head)
		}
		w.resumed(stop.ID)
	}
	end()
	for range 4 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestStopNeedsTheRightOnEachSite(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.site("emea/1", "", "region", "north")
	w.site("apac/secret", "", "region", "north")
	w.template("t", thing("one", "n: 1"))
	top := w.create(tko.NewDeployment{Template: "t"})
	w.create(tko.NewDeployment{Parent: top, Site: "apac/secret", Template: "t"})
	w.bind("cert:op", access.Operator, emea)
	w.bind("cert:see", access.Viewer, access.Scope{})
	op := w.as("cert:op")
	for what, stop := range map[string]tko.Stop{
		"of everything":                 {All: true},
		"of a pattern with other sites": {Sites: []string{"*/*"}},
		"of metadata of other sites":    {SiteMetadata: map[string]string{"region": "north"}},
	} {
		stop.Reason = "x"
		if _, err := w.Stop(op, stop); !errors.Is(err, tko.ErrDenied) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := w.Stop(op, tko.Stop{Topology: top, Reason: "x"}); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("of a topology that it may not see: %v", err)
	}
	if _, err := w.Stop(w.as("cert:see"), tko.Stop{Sites: []string{"emea/1"}, Reason: "x"}); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("by a viewer: %v", err)
	}
	if _, err := w.Stop(op, tko.Stop{Sites: []string{"emea/*"}, Reason: "x"}); err != nil {
		t.Errorf("of its own sites: %v", err)
	}
	all := w.stopped(tko.Stop{All: true}).Stop
	if _, err := w.Resume(op, tko.Release{ID: all.ID}); !errors.Is(err, tko.ErrDenied) {
		t.Errorf("resume of what others stopped: %v", err)
	}
	list, err := w.Stops(op)
	if err != nil || len(list) != 2 || list[0].SiteCount > 1 || list[1].SiteCount > 1 {
		t.Errorf("an operator of emea counts foreign sites: %+v, %v", list, err)
	}
}

// Stops and freezes of sites that a caller may not see don't exist for it.
func TestForeignStopsAndFreezesAreNotListed(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.site("emea/1", "", "region", "north")
	w.site("apac/secret", "", "region", "south", "customer", "acme")
	w.bind("cert:see", access.Viewer, emea)
	stop := func(stop tko.Stop) {
		t.Helper()
		stop.Reason = "storm"
		_, err := w.Stop(w.as("cert:root"), stop)
		w.is("stop", err, nil)
	}
	top := w.createAs(w.as("cert:root"), tko.NewDeployment{Site: "apac/secret"})
	stop(tko.Stop{Sites: []string{"apac/secret"}})
	stop(tko.Stop{SiteMetadata: map[string]string{"customer": "acme"}})
	stop(tko.Stop{Topology: top})
	stop(tko.Stop{Sites: []string{"apac/secret", "emea/1"}})
	for _, metadata := range []map[string]string{{"customer": "acme"}, {"region": "north"}} {
		_, err := w.Freeze(w.as("cert:root"), tko.Freeze{SiteMetadata: metadata, Until: time.Now().Add(time.Hour), Reason: "peak"})
		w.is("freeze", err, nil)
	}
	see := w.as("cert:see")
	stops, err := w.Stops(see)
	if err != nil || len(stops) != 1 || !slices.Equal(stops[0].Stop.Sites, []string{"emea/1"}) {
		t.Errorf("a viewer of emea sees the stops %+v, %v", stops, err)
	}
	freezes, err := w.Freezes(see)
	if err != nil || len(freezes) != 1 || freezes[0].SiteMetadata["region"] != "north" {
		t.Errorf("a viewer of emea sees the freezes %+v, %v", freezes, err)
	}
	all, err := w.Stops(w.as("cert:root"))
	frozen, other := w.Freezes(w.as("cert:root"))
	if err != nil || other != nil || len(all) != 4 || len(frozen) != 2 {
		t.Errorf("an administrator sees %d stops, %v, and %d freezes, %v", len(all), err, len(frozen), other)
	}
}

// What would be deleted or orphaned with something elsewhere is held, too.
func TestDeletionsDontReachWhatIsStopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("one", "n: 1"))
	w.site("a", "")
	w.site("b", "")
	top := w.create(tko.NewDeployment{Site: "b"})
	middle := w.create(tko.NewDeployment{Parent: top, Site: "b"})
	w.create(tko.NewDeployment{Parent: middle, Site: "a", Template: "t"})
	stop := w.stopped(atSites("a")).Stop
	for what, err := range map[string]error{
		"the topology": func() error { _, err := w.DeleteDeployment(w.ctx, top); return err }(),
		"a part of it": func() error { _, err := w.DeleteDeployment(w.ctx, middle); return err }(),
		"the template": func() error { _, err := w.DeleteTemplate(w.ctx, "t"); return err }(),
	} {
		if !errors.Is(err, tko.ErrStopped) {
			t.Errorf("%s: %v", what, err)
		}
	}
	w.resumed(stop.ID)
	w.stopped(tko.Stop{Topology: middle})
	if _, err := w.DeleteSite(w.ctx, "b"); !errors.Is(err, tko.ErrStopped) {
		t.Errorf("a site of the topology: %v", err)
	}
	if n := len(all(t, w.Deployments(w.ctx, tko.DeploymentSelect{}, tko.ListOptions{}))); n != 3 {
		t.Errorf("%d deployments are left", n)
	}
}
