package catalog_test

import (
	"errors"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// The state that targets store for a site is written with the claim of the site's
// work, and is not listed as a GitOps source.
func TestSiteSourcesNeedTheClaimOfTheirSite(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	if err := w.EnqueueSources(w.ctx, []string{"repo"}, false, ""); err != nil {
		t.Fatal(err)
	}
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "lagos"}); err != nil {
		t.Fatal(err)
	}
	var claims []tko.WorkItem
	for _, queue := range []string{tko.QueueGitOps, tko.QueueSchedule} {
		items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: queue, Worker: "me", Max: 1, Lease: time.Minute})
		if err != nil || len(items) != 1 {
			t.Fatalf("claiming %s: %v %v", queue, items, err)
		}
		claims = append(claims, items[0])
	}
	mine, other := tko.SiteSource("lagos", "main"), tko.SiteSource("lag", "main")
	for _, c := range []struct {
		name  string
		claim tko.WorkItem
		ok    bool
	}{{"repo", claims[0], true}, {mine, claims[1], true}, {mine, claims[0], false}, {other, claims[1], false}, {"repo", claims[1], false}} {
		_, err := w.SaveSource(w.ctx, tko.Source{Name: c.name, State: []byte("x")}, c.claim)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("saving %q with a claim of %s %q: %v", c.name, c.claim.Queue, c.claim.Key, err)
		}
	}
	all, err := w.Sources(w.ctx)
	if err != nil || len(all) != 1 || all[0].Name != "repo" {
		t.Errorf("listed: %v %v", all, err)
	}
	if s, err := w.Source(w.ctx, mine); err != nil || string(s.State) != "x" {
		t.Errorf("read: %+v %v", s, err)
	}
}

func TestSitesAreEnqueued(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "lagos"}); err != nil {
		t.Fatal(err)
	}
	claim := func() []tko.WorkItem {
		t.Helper()
		items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueueSchedule, Worker: "me", Max: 2, Lease: time.Minute})
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			if err := w.FinishWork(w.ctx, []tko.FinishedWork{{Item: item, Outcome: tko.WorkLater, Retry: time.Hour}}); err != nil {
				t.Fatal(err)
			}
		}
		return items
	}
	if n := len(claim()); n != 1 {
		t.Fatalf("%d items of work for a new site", n)
	}
	if n := len(claim()); n != 0 {
		t.Fatalf("%d items of work that are due in an hour", n)
	}
	if err := w.EnqueueSites(w.ctx, []tko.SiteID{"lagos"}); err != nil {
		t.Fatal(err)
	}
	if items := claim(); len(items) != 1 || items[0].Key != "lagos" {
		t.Errorf("after a call there is the work %v", items)
	}
	if err := w.EnqueueSites(w.ctx, []tko.SiteID{"lagos", ""}); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("a call for a site without a name: %v", err)
	}
	if n := len(claim()); n != 0 {
		t.Errorf("a refused call made %d items of work", n)
	}
}
