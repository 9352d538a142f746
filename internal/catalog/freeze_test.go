package catalog_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

func north(until time.Duration) tko.Freeze {
	return tko.Freeze{SiteMetadata: map[string]string{"region": "north"}, Until: time.Now().Add(until), Reason: "peak"}
}

func TestFreezeOfNothingOrEverythingIsRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("a", "", "region", "north")
	for what, f := range map[string]tko.Freeze{
		"without a selection": {Until: time.Now().Add(time.Hour), Reason: "x"},
		"of no site":          {SiteMetadata: map[string]string{"region": "nroth"}, Until: time.Now().Add(time.Hour), Reason: "x"},
		"without a reason":    {SiteMetadata: map[string]string{"region": "north"}, Until: time.Now().Add(time.Hour), Reason: " "},
		"without an end":      {SiteMetadata: map[string]string{"region": "north"}, Reason: "x"},
		"that is over":        {SiteMetadata: map[string]string{"region": "north"}, Until: time.Now().Add(-time.Hour), Reason: "x"},
		"for ever":            {SiteMetadata: map[string]string{"region": "north"}, Until: time.Now().Add(2 * tko.MaxFreeze), Reason: "x"},
		"of a wrong pattern":  {SiteMetadata: map[string]string{"region": "[x"}, Until: time.Now().Add(time.Hour), Reason: "x"},
	} {
		if _, err := w.Freeze(w.ctx, f); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("a freeze %s: %v", what, err)
		}
	}
	if list, err := w.Freezes(w.ctx); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestFreezeOfVeryManySitesMustBeConfirmed(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{ConfirmAbove: 2, ConfirmPercent: 50})
	for _, id := range []string{"a", "b", "c"} {
		w.site(id, "", "region", "north")
	}
	w.site("d", "", "region", "south")
	if _, err := w.Freeze(w.ctx, north(time.Hour)); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "freeze 3 of 4 sites") {
		t.Errorf("three of four sites: %v", err)
	}
	if _, err := w.Freeze(tko.WithConfirmation(w.ctx, 2), north(time.Hour)); !errors.Is(err, tko.ErrInvalid) {
		t.Errorf("with another count: %v", err)
	}
	if list, err := w.Freezes(w.ctx); err != nil || len(list) != 0 {
		t.Errorf("refused freezes froze: %+v, %v", list, err)
	}
	if _, err := w.Freeze(tko.WithConfirmation(w.ctx, 3), north(time.Hour)); err != nil {
		t.Errorf("confirmed: %v", err)
	}
}

func TestFreezeIsListedUntilItEnds(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("a", "", "region", "north")
	long, err := w.Freeze(tko.WithAuthor(w.ctx, tko.Author{Who: "ann"}), north(2*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	hour := north(time.Hour)
	hour.SiteMetadata["region"] = "n*" // another selection
	short, err := w.Freeze(w.ctx, hour)
	if err != nil {
		t.Fatal(err)
	}
	list, err := w.Freezes(w.ctx)
	if err != nil || len(list) != 2 || list[0].ID != short.ID || list[1].By.Who != "ann" || list[1].Reason != "peak" {
		t.Fatalf("%+v, %v", list, err)
	}
	if f, ok := tko.Frozen(list, map[string]string{"region": "north"}, time.Now()); !ok || f.ID != long.ID {
		t.Errorf("%+v holds the site, %t", f, ok)
	}
	if _, ok := tko.Frozen(list, map[string]string{"region": "north"}, time.Now().Add(3*time.Hour)); ok {
		t.Error("the freeze doesn't end by itself")
	}
	if _, ok := tko.Frozen(list, map[string]string{"region": "south"}, time.Now()); ok {
		t.Error("another site is frozen")
	}
	items, _, err := w.store.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueueSchedule, Max: 10, Lease: time.Minute})
	if err != nil || len(items) != 1 || items[0].Key != "a" {
		t.Errorf("the work of the frozen site isn't due, so that its conditions don't report the freeze: %+v, %v", items, err)
	}
	if err := w.Unfreeze(w.ctx, long.ID, "missing"); !errors.Is(err, tko.ErrNotFound) || !strings.Contains(err.Error(), "missing") {
		t.Errorf("%v", err)
	}
	if err := w.Unfreeze(w.ctx, short.ID); err != nil {
		t.Fatal(err)
	}
}

func TestSecondFreezeOfASelectionExtendsTheFirst(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{Audit: true})
	w.site("a", "", "region", "north")
	first, err := w.Freeze(tko.WithAuthor(w.ctx, tko.Author{Who: "ann"}), north(time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	longer := north(2 * time.Hour)
	longer.Reason = "longer"
	second, err := w.Freeze(tko.WithAuthor(w.ctx, tko.Author{Who: "bob"}), longer)
	if err != nil || second.ID != first.ID {
		t.Fatalf("froze %+v after %+v: %v", second, first, err)
	}
	if _, err := w.Freeze(w.ctx, north(time.Hour)); !errors.Is(err, tko.ErrConflict) || !strings.Contains(err.Error(), "tko unfreeze "+first.ID) {
		t.Errorf("a shorter freeze: %v", err)
	}
	list, err := w.Freezes(w.ctx)
	if err != nil || len(list) != 1 || list[0].Reason != "longer" || list[0].By.Who != "bob" || !list[0].Until.Equal(second.Until) || !list[0].Created.Equal(first.Created) || !list[0].Until.After(first.Until) {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestFreezesThatAreOverAreRemovedWithTheNextOne(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("lagos", "", "region", "north")
	w.site("abuja", "", "region", "south")
	over, err := w.Freeze(w.ctx, north(2*time.Second))
	w.is("freeze", err, nil)
	time.Sleep(time.Until(over.Until))
	next := north(time.Minute)
	next.SiteMetadata = map[string]string{"region": "south"}
	_, err = w.Freeze(w.ctx, next)
	w.is("freeze others", err, nil)
	_, rules, err := w.store.Access(w.ctx)
	w.is("read the rules", err, nil)
	if len(rules) != 1 || rules[0].ID == over.ID {
		t.Errorf("there are %d rules, want that of the second freeze", len(rules))
	}
}

func TestFreezeEndsAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := north(time.Minute)
		if !f.Selects(map[string]string{"region": "north"}) {
			t.Error("it doesn't select")
		}
		time.Sleep(time.Minute)
		if _, ok := tko.Frozen([]tko.Freeze{f}, map[string]string{"region": "north"}, time.Now()); ok {
			t.Error("it holds on")
		}
	})
}
