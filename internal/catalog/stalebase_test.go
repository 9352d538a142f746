package catalog_test

import (
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
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
