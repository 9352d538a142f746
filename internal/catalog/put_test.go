package catalog_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/krm"
)

func TestPutEntityWritesOnlyChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	pkg := func(value string) krm.Package {
		return krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "x"}, "data": map[string]any{"k": value}}}
	}
	put := func(p tko.Put, want tko.PutResult) tko.PutResult {
		t.Helper()
		got, err := w.PutEntity(w.ctx, p)
		if err != nil {
			t.Fatal(err)
		}
		if want.ID == "" {
			want.ID = got.ID
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("putting %+v: got %+v, want %+v", p, got, want)
		}
		return got
	}
	site := tko.Put{Kind: tko.KindSite, ID: "s", Metadata: map[string]string{"a": "1", "b": "2"}, Package: pkg("1")}
	try := func(p tko.Put) tko.Put {
		p.DryRun = true
		return p
	}
	put(try(site), tko.PutResult{ID: "s", Created: true, Changed: true})
	put(site, tko.PutResult{ID: "s", Revision: 1, Created: true, Changed: true})
	put(site, tko.PutResult{ID: "s", Revision: 1})
	put(try(site), tko.PutResult{ID: "s", Revision: 1})
	site.Metadata = map[string]string{"a": "1"}
	put(try(site), tko.PutResult{ID: "s", Revision: 1, Changed: true})
	put(site, tko.PutResult{ID: "s", Revision: 2, Changed: true})
	if s, err := w.Site(w.ctx, "s", 0); err != nil || len(s.Metadata) != 1 {
		t.Errorf("metadata %v, %v: want passed metadata that is missing to be removed", s.Metadata, err)
	}

	// There is one deployment for each origin.
	d := tko.Put{Kind: tko.KindDeployment, Origin: "fleet/one", Site: "s", Package: pkg("1")}
	put(try(d), tko.PutResult{Created: true, Changed: true})
	first := put(d, tko.PutResult{Revision: 1, Created: true, Changed: true})
	put(d, tko.PutResult{ID: first.ID, Revision: 1})
	d.Origin = "fleet/two"
	if second := put(d, tko.PutResult{Revision: 1, Created: true, Changed: true}); second.ID == first.ID {
		t.Error("another origin is the same deployment")
	}
	change := tko.Put{Kind: tko.KindDeployment, ID: first.ID, Package: pkg("2").WithDeployment("", "", false, false)}
	put(try(change), tko.PutResult{ID: first.ID, Revision: 1, Changed: true})
	put(change, tko.PutResult{ID: first.ID, Revision: 2, Changed: true})
	if got, err := w.Deployment(w.ctx, tko.DeploymentID(first.ID), 0); err != nil || got.Site != "" {
		t.Errorf("the deployment is %+v, %v", got, err)
	}

	wrong := map[string]tko.Put{
		"kind":                  {Kind: "thing", ID: "x"},
		"no origin":             {Kind: tko.KindDeployment},
		"origin of a site":      {Kind: tko.KindSite, ID: "s", Origin: "x"},
		"invalid":               {Kind: tko.KindSite, ID: "s", Package: krm.Package{{"apiVersion": "v1", "kind": "X", "spec": map[string]any{"invalid": true}}}, DryRun: true},
		"site that isn't there": {Kind: tko.KindDeployment, Origin: "y", Site: "nowhere", DryRun: true},
	}
	for name, p := range wrong {
		if _, err := w.PutEntity(w.ctx, p); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if would, err := w.RemoveEntity(w.ctx, tko.KindDeployment, first.ID, true); err != nil || would.Count != 1 {
		t.Errorf("removing would be %+v, %v", would, err)
	}
	if _, err := w.RemoveEntity(w.ctx, tko.KindDeployment, first.ID, false); err != nil {
		t.Error(err)
	}
	if _, err := w.RemoveEntity(w.ctx, tko.KindDeployment, first.ID, false); !errors.Is(err, tko.ErrNotFound) {
		t.Errorf("removing it again: %v", err)
	}
}

// Writes with a claim are refused when the claim has ended, in each way to write,
// also between the commits of a deletion.
func TestWritesWithAnEndedClaimAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	if err := w.EnqueueSources(w.ctx, []string{"fleet"}, false, ""); err != nil {
		t.Fatal(err)
	}
	items, err := w.ClaimWork(w.ctx, tko.ClaimWork{Queue: tko.QueueGitOps, Worker: "me", Max: 1, Lease: time.Minute})
	if err != nil || len(items) != 1 {
		t.Fatalf("claimed %v, %v", items, err)
	}
	ctx := tko.WithClaim(w.ctx, items[0])
	if _, err := w.PutEntity(ctx, tko.Put{Kind: tko.KindTemplate, ID: "t"}); err != nil {
		t.Fatal(err)
	}
	if err := w.FinishWork(w.ctx, []tko.FinishedWork{{Item: items[0], Outcome: tko.WorkDone}}); err != nil {
		t.Fatal(err)
	}
	for what, do := range map[string]func() error{
		"put": func() error {
			_, err := w.PutEntity(ctx, tko.Put{Kind: tko.KindTemplate, ID: "t", Metadata: map[string]string{"a": "b"}})
			return err
		},
		"put a new one": func() error {
			_, err := w.PutEntity(ctx, tko.Put{Kind: tko.KindTemplate, ID: "new"})
			return err
		},
		"create": func() error {
			_, err := w.PutEntity(ctx, tko.Put{Kind: tko.KindDeployment, Origin: "o"})
			return err
		},
		"remove": func() error {
			_, err := w.RemoveEntity(ctx, tko.KindTemplate, "t", false)
			return err
		},
		"save": func() error {
			_, err := w.SaveSource(w.ctx, tko.Source{Name: "fleet"}, items[0])
			return err
		},
	} {
		if err := do(); !errors.Is(err, tko.ErrConflict) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if r, err := w.Template(w.ctx, "t", 0); err != nil || r.Stamp.Revision != 1 {
		t.Errorf("the template is at %d, %v", r.Stamp.Revision, err)
	}
}

// A name identifies one deployment: the second put with it finds the first one, and
// changes nothing.
func TestPutByNameFindsTheDeployment(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	put := tko.Put{Kind: tko.KindDeployment, Name: "web", DryRun: true}
	if r, err := w.PutEntity(w.ctx, put); err != nil || !r.Created {
		t.Fatalf("a dry run of a new name: %+v, error %v, want created", r, err)
	}
	put.DryRun = false
	first, err := w.PutEntity(w.ctx, put)
	if err != nil || !first.Created || first.ID == "" {
		t.Fatalf("a new name: %+v, error %v, want created", first, err)
	}
	for _, dryRun := range []bool{true, false} {
		put.DryRun = dryRun
		if r, err := w.PutEntity(w.ctx, put); err != nil || r.Created || r.Changed || r.ID != first.ID {
			t.Errorf("a known name, dry run %t: %+v, error %v, want deployment %s unchanged", dryRun, r, err, first.ID)
		}
	}
	for name, wrong := range map[string]tko.Put{
		"a site":    {Kind: tko.KindSite, ID: "lagos", Name: "web"},
		"an origin": {Kind: tko.KindDeployment, Name: "web", Origin: "o"},
		"no name":   {Kind: tko.KindDeployment, Name: "we b"},
	} {
		if _, err := w.PutEntity(w.ctx, wrong); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%s: error %v, want an ErrInvalid", name, err)
		}
	}
}

func TestPutOfAnotherRevisionChangesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.site("s", "", "a", "1")
	put := tko.Put{Kind: tko.KindSite, ID: "s", Metadata: map[string]string{"a": "2"}, Revision: 2}
	for _, dryRun := range []bool{true, false} {
		put.DryRun = dryRun
		_, err := w.PutEntity(w.ctx, put)
		wantError(t, err, tko.ErrConflict, `site "s" is at revision 1, not at 2`)
	}
	if s, err := w.Site(w.ctx, "s", 0); err != nil || s.Metadata["a"] != "1" {
		t.Errorf("%v, %v", s.Metadata, err)
	}
	put.Revision = 1
	if r, err := w.PutEntity(w.ctx, put); err != nil || r.Revision != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	put.ID, put.Revision = "deleted", 1
	_, err := w.PutEntity(w.ctx, put)
	wantError(t, err, tko.ErrNotFound, "deleted")
	put.Revision = -1
	_, err = w.PutEntity(w.ctx, put)
	wantError(t, err, tko.ErrInvalid, "-1")
}

func TestPutRemovesMetadataOfTheTemplate(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", "", "tier", "edge", "vendor", "v")
	w.site("s", "")
	put := tko.Put{Kind: tko.KindSite, ID: "s", Template: "t", RemoveMetadata: []string{"tier", "unknown"}}
	for range 2 {
		if _, err := w.PutEntity(w.ctx, put); err != nil {
			t.Fatal(err)
		}
		put.Metadata = map[string]string{"vendor": "v"}
	}
	if s, err := w.Site(w.ctx, "s", 0); err != nil || len(s.Metadata) != 1 || s.Metadata["vendor"] != "v" {
		t.Errorf("%v, %v", s.Metadata, err)
	}
}
