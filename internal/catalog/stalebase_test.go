package catalog_test

import (
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
)

func TestRegisteringASiteAgainTakesItsChangedTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("base", thing("a", "x: 1"))
	register := func() int64 {
		t.Helper()
		revision, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Template: "base", Package: pkg(t, thing("own", "z: 1"))})
		if err != nil {
			t.Fatal(err)
		}
		return revision
	}
	register()
	w.template("base", thing("a", "x: 2"))
	if got := register(); got != 2 {
		t.Errorf("revision %d: the site keeps the former package of its template", got)
	}
	if got := register(); got != 2 {
		t.Errorf("revision %d: nothing has changed since", got)
	}
}

// A changingStore calls before at the start of each commit.
type changingStore struct {
	record.Store

	before func()
}

func (s *changingStore) Commit(ctx context.Context, gated record.Gated) ([]record.Outcome, error) {
	if s.before != nil {
		s.before()
	}
	return s.Store.Commit(ctx, gated)
}

// The template changes between the derivation of a site and its commit, several times.
func TestSitesAreCommittedWithTheTemplateAsItIsThen(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	other := w.Service // registers templates as another process does
	store := &changingStore{Store: w.store}
	w.Service = catalog.New(store, w.validator, catalog.Options{})
	n := 0
	change := func() {
		n++
		if _, err := other.RegisterTemplate(w.ctx, tko.Template{ID: "base", Package: pkg(t, thing("a", fmt.Sprintf("x: %d", n)))}); err != nil {
			t.Error(err)
		}
	}
	for what, do := range map[string]func() (tko.SiteID, error){
		"provision": func() (tko.SiteID, error) {
			id, created, err := w.ProvisionSite(w.ctx, tko.NewSite{Origin: "one", Template: "base"})
			if !created {
				t.Error("the site isn't created")
			}
			return id, err
		},
		"register": func() (tko.SiteID, error) {
			_, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Template: "base"})
			return "s", err
		},
	} {
		change()
		times := 3
		store.before = func() {
			times--
			if times >= 0 {
				change()
			}
		}
		id, err := do()
		store.before = nil
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		site, err := w.Site(w.ctx, id, 0)
		if err != nil {
			t.Fatal(err)
		}
		if x, _ := site.Package[0].Get("spec", "x"); fmt.Sprint(x) != strconv.Itoa(n) {
			t.Errorf("%s: the site has x: %v, its template x: %d", what, x, n)
		}
	}
}
