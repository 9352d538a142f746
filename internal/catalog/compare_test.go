package catalog_test

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/test/eventually"
)

func (w *world) scheduler() context.Context {
	return identity.With(w.ctx, identity.Controller(identity.RoleScheduler))
}

// takeComparison claims the request to compare a site.
func (w *world) takeComparison() tko.WorkItem {
	w.t.Helper()
	items, err := w.ClaimWork(w.scheduler(), tko.ClaimWork{Queue: tko.QueueCompare, Max: 1, Lease: time.Hour, Wait: time.Minute})
	if err != nil || len(items) != 1 {
		w.t.Fatalf("claimed %v: %v", items, err)
	}
	return items[0]
}

func (w *world) saveComparison(claim tko.WorkItem, objects ...string) {
	w.t.Helper()
	c := tko.SiteComparison{Site: tko.SiteID(claim.Key)}
	for _, o := range objects {
		id, object, _ := strings.Cut(o, " ")
		switch id {
		case "problem":
			c.Problems = append(c.Problems, object)
			continue
		case "unsearched":
			c.Unsearched = append(c.Unsearched, object)
			continue
		case "orphan":
			id, object, _ = strings.Cut(object, " ")
			c.Orphans = append(c.Orphans, tko.SiteChange{Verb: tko.SiteOrphan, Object: object, Deployment: tko.DeploymentID(id)})
			continue
		}
		c.Changes = append(c.Changes, tko.SiteChange{Verb: tko.SiteUpdate, Object: object, Deployment: tko.DeploymentID(id)})
	}
	text, err := json.Marshal(c)
	if err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.SaveTargetState(w.scheduler(), tko.TargetState{Site: c.Site, Name: tko.ComparisonState, State: text}, claim); err != nil {
		w.t.Fatal(err)
	}
	if err := w.FinishWork(w.scheduler(), []tko.FinishedWork{{Item: claim, Outcome: tko.WorkDone}}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) startComparison(ctx context.Context) <-chan []string {
	result := make(chan []string, 1)
	go func() {
		c, err := w.CompareSite(ctx, "lagos")
		if err != nil {
			result <- []string{err.Error()}
			return
		}
		all := []string{}
		for _, change := range c.Changes {
			all = append(all, change.Object)
		}
		if c.More > 0 {
			all = append(all, "more")
		}
		for _, change := range c.Orphans {
			all = append(all, "orphan "+change.Object)
		}
		if c.MoreOrphans > 0 {
			all = append(all, fmt.Sprintf("%d more orphans", c.MoreOrphans))
		}
		all = append(all, c.Problems...)
		all = append(all, c.Unsearched...)
		result <- all
	}()
	return result
}

// A claimCounter counts how often claims are read.
type claimCounter struct {
	record.Store

	n atomic.Int64
}

func (c *claimCounter) WorkClaim(ctx context.Context, queue, key string) (claim string, until time.Time, err error) {
	c.n.Add(1)
	return c.Store.WorkClaim(ctx, queue, key)
}

func TestComparisonIsMadeAfterTheRequest(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	looks := &claimCounter{Store: w.store}
	w.Service = catalog.New(looks, w.validator, catalog.Options{})
	w.site("lagos", "")
	first := w.startComparison(w.ctx)
	claim := w.takeComparison()
	second := w.startComparison(w.ctx) // while the first comparison runs, which may not see the newest change
	eventually.True(t, "the second request waits for the end of the first comparison", func() bool { return looks.n.Load() >= 3 })
	w.saveComparison(claim, "x one")
	if diff := cmp.Diff([]string{"one"}, <-first); diff != "" {
		t.Error(diff)
	}
	w.saveComparison(w.takeComparison(), "x two")
	if diff := cmp.Diff([]string{"two"}, <-second); diff != "" {
		t.Error(diff)
	}
	third := w.startComparison(w.ctx)
	w.saveComparison(w.takeComparison(), "x three")
	if diff := cmp.Diff([]string{"three"}, <-third); diff != "" {
		t.Error(diff)
	}
}

func TestComparisonWithoutMetaSchedulerSaysSo(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{CompareWait: time.Millisecond})
	_, err := w.CompareSite(w.ctx, "nowhere")
	w.is("a missing site", err, tko.ErrNotFound)
	w.site("lagos", "")
	_, err = w.CompareSite(w.ctx, "lagos")
	w.is("without a meta-scheduler", err, tko.ErrUnavailable)
	if err == nil || !strings.Contains(err.Error(), "no meta-scheduler compared it") {
		t.Errorf("got %v", err)
	}
	w.takeComparison()
	_, err = w.CompareSite(w.ctx, "lagos")
	if err == nil || !strings.Contains(err.Error(), "still comparing it") {
		t.Errorf("while it is compared: %v", err)
	}
}

func TestComparisonHidesDeploymentsThatTheCallerMayNotRead(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	w.site("lagos", "")
	w.template("ours/t", thing("t", ""))
	w.template("theirs/t", thing("t", ""))
	ours, theirs := w.create(tko.NewDeployment{Template: "ours/t", Site: "lagos"}), w.create(tko.NewDeployment{Template: "theirs/t", Site: "lagos"})
	w.bind("cert:ann", access.Viewer, access.Scope{SiteID: "lagos", TemplateID: "ours/**"})
	w.bind("cert:ann", access.Viewer, access.Scope{SiteID: "lagos", Kinds: []tko.Kind{tko.KindSite}})
	result := w.startComparison(w.as("cert:ann"))
	const hidden = "not everything was compared, for a reason that names deployments you may not read: ask a user who may read all deployments to compare the site"
	w.saveComparison(w.takeComparison(), string(ours)+" ours", string(theirs)+" theirs", " deleted",
		"orphan "+string(ours)+" ours", "orphan "+string(theirs)+" theirs", "orphan  other",
		"problem unreachable: time-out", "problem deployment \""+string(ours)+"\" has two resources", "problem deployment \""+string(theirs)+"\" has two resources",
		"problem reading "+string(theirs)+": no", "problem deployment \"x\" is away", "unsearched the secrets (forbidden)", "unsearched of "+string(theirs))
	if diff := cmp.Diff([]string{
		"ours", "more", "orphan ours", "2 more orphans", "unreachable: time-out", "deployment \"" + string(ours) + "\" has two resources", hidden, "the secrets (forbidden)", hidden,
	}, <-result); diff != "" {
		t.Error(diff)
	}
	_, err := w.CompareSite(w.as("cert:eve"), "lagos")
	w.is("a caller without rights", err, tko.ErrDenied)
}

func TestOnlyComparisonsAreSavedWithTheirClaims(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("lagos", "")
	result := w.startComparison(w.ctx)
	claim := w.takeComparison()
	_, err := w.SaveTargetState(w.ctx, tko.TargetState{Site: "lagos", Name: "x"}, claim)
	w.is("another state", err, tko.ErrInvalid)
	_, err = w.SaveTargetState(w.ctx, tko.TargetState{Site: "lagos", Name: tko.ComparisonState}, tko.WorkItem{Queue: tko.QueueSchedule, Key: "lagos", Claim: "x"})
	w.is("a claim of other work", err, tko.ErrInvalid)
	_, err = w.SaveTargetState(w.ctx, tko.TargetState{Site: "lagos", Name: tko.ComparisonState, State: make([]byte, tko.MaxComparison+1)}, claim)
	w.is("a long comparison", err, tko.ErrInvalid)
	w.saveComparison(claim)
	if got := <-result; len(got) > 0 {
		t.Errorf("got %q", got)
	}
}
