package catalog_test

import (
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// A registration without a package, by mistake, doesn't empty the entity.
func TestRegistrationWithoutAPackageDoesNotEmptyAnEntity(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	keep := tko.WithPackageRequired(w.ctx)
	w.template("t", thing("of-t", "a: 1"))
	w.site("s", thing("connection", "a: 1"))
	w.site("empty", "")
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "based", Template: "t", Package: pkg(t, thing("own", "a: 1"))}); err != nil {
		t.Fatal(err)
	}
	before := w.head()
	_, err := w.RegisterTemplate(keep, tko.Template{ID: "t", Metadata: map[string]string{"a": "b"}})
	wantError(t, err, tko.ErrInvalid, `template "t" has a package`, "--empty")
	_, err = w.RegisterSite(keep, tko.Site{ID: "s", Metadata: map[string]string{"zone": "a"}})
	wantError(t, err, tko.ErrInvalid, `site "s" has a package`, "--empty")
	_, err = w.RegisterSite(keep, tko.Site{ID: "based", Template: "t"})
	wantError(t, err, tko.ErrInvalid, `site "based" has a package`, "--empty")
	if w.head() != before {
		t.Error("a refused registration changed something")
	}

	// The package is unchanged.
	for _, site := range []tko.Site{
		{ID: "new", Metadata: map[string]string{"zone": "a"}},
		{ID: "empty", Metadata: map[string]string{"zone": "a"}},
		{ID: "new-based", Template: "t"},
		{ID: "new-based", Template: "t", Metadata: map[string]string{"zone": "a"}},
		{ID: "s", Package: pkg(t, thing("connection", "a: 2"))},
	} {
		if _, err := w.RegisterSite(keep, site); err != nil {
			t.Errorf("site %q: %v", site.ID, err)
		}
	}
	// Clients that don't require a package may register an empty one.
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "s"}); err != nil {
		t.Error(err)
	}
	if s, err := w.Site(w.ctx, "s", 0); err != nil || len(s.Package) != 0 {
		t.Errorf("%v, %v", s.Package, err)
	}
}
