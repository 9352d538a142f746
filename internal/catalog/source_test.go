package catalog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

func TestSourcesAndTargetStatesAreSavedOnlyWithTheClaimOfTheirOwnWork(t *testing.T) {
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
	save := func(name string) func(tko.WorkItem) error {
		return func(claim tko.WorkItem) error {
			_, err := w.SaveSource(w.ctx, tko.Source{Name: name, State: []byte("x")}, claim)
			return err
		}
	}
	saveState := func(site tko.SiteID, name string) func(tko.WorkItem) error {
		return func(claim tko.WorkItem) error {
			_, err := w.SaveTargetState(w.ctx, tko.TargetState{Site: site, Name: name, State: []byte("x")}, claim)
			return err
		}
	}
	for name, c := range map[string]struct {
		save  func(tko.WorkItem) error
		claim tko.WorkItem
		ok    bool
	}{
		"a source with its claim":             {save("repo"), claims[0], true},
		"a source with the claim of a site":   {save("repo"), claims[1], false},
		"a state with the claim of its site":  {saveState("lagos", "main"), claims[1], true},
		"a state with the claim of a source":  {saveState("lagos", "main"), claims[0], false},
		"a state with another site's claim":   {saveState("lag", "main"), claims[1], false},
		"a state without a name":              {saveState("lagos", ""), claims[1], false},
		"a state with a name of two lines":    {saveState("lagos", "a\nb"), claims[1], false},
		"a state with a name of 254 bytes":    {saveState("lagos", strings.Repeat("x", 254)), claims[1], false},
		"a state of a site without a name":    {saveState("", "main"), claims[1], false},
		"a state of a site that is not an ID": {saveState("la gos", "main"), claims[1], false},
	} {
		err := c.save(c.claim)
		if c.ok != (err == nil) || err != nil && !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%s: error %v, want success: %t, else an ErrInvalid", name, err, c.ok)
		}
	}
	all, err := w.Sources(w.ctx)
	if err != nil || len(all) != 1 || all[0].Name != "repo" {
		t.Errorf("listed: %v %v", all, err)
	}
	if s, err := w.TargetState(w.ctx, "lagos", "main"); err != nil || string(s.State) != "x" {
		t.Errorf("state of target main: %+v %v, want x", s, err)
	}
	if s, err := w.TargetState(w.ctx, "lagos", "other"); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("state of a target that saved none: %+v %v, want an ErrNotFound", s, err)
	}
	if _, err := w.TargetState(w.ctx, "lagos", ""); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("state of a target without a name: error %v, want an ErrInvalid", err)
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
