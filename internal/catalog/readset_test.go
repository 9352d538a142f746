package catalog_test

import (
	"fmt"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// The caches of a service are stale when another service has written: the results
// must be the same as without caches.
func TestStaleCachesAreNeverWritten(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why     string
		before  func(w *world) // fills the cache
		change  func(w *world) // of another service
		then    func(w *world) error
		wantErr error
		want    func(w *world) string
		is      string
	}{
		"rewritten template": {
			why:    "a deployment is made from the current template",
			before: func(w *world) { w.template("t", thing("a", "x: old"), "k", "old") },
			change: func(w *world) { w.template("t", thing("a", "x: new"), "k", "new") },
			then: func(w *world) error {
				_, err := w.RegisterSite(w.ctx, tko.Site{ID: "mine", Template: "t"})
				return err
			},
			want: func(w *world) string { return spec(w, "mine") },
			is:   "new new",
		},
		"template that became valid": {
			why:    "a refusal because of a stale cache is repeated on the store",
			before: func(w *world) { w.template("t", thing("a", "picky: 1")) },
			change: func(w *world) { w.template("t", thing("a", "picky: 1, required: 1, x: good")) },
			then: func(w *world) error {
				_, err := w.RegisterSite(w.ctx, tko.Site{ID: "mine", Template: "t"})
				return err
			},
			want: func(w *world) string { return spec(w, "mine") },
			is:   "good ",
		},
		"deleted template": {
			why:    "the cached template was deleted",
			before: func(w *world) { w.template("t", thing("a", "x: 1")) },
			change: func(w *world) {
				if _, err := w.DeleteTemplate(w.ctx, "t"); err != nil {
					w.t.Fatal(err)
				}
			},
			then: func(w *world) error {
				_, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: "t"})
				return err
			},
			wantErr: tko.ErrInvalid,
		},
		"site that another service registered": {
			why:    "it is written as a change of the existing site",
			before: func(w *world) { w.template("t", thing("a", "x: 1")) },
			change: func(w *world) { w.site("mine", thing("a", "x: theirs")) },
			then: func(w *world) error {
				revision, err := w.RegisterSite(w.ctx, tko.Site{ID: "mine", Template: "t"})
				if err == nil && revision != 2 {
					w.t.Errorf("revision is %d, want 2", revision)
				}
				return err
			},
			want: func(w *world) string { return spec(w, "mine") },
			is:   "1 ",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			mine := newWorld(t, catalog.Options{})
			theirs := *mine
			theirs.Service = catalog.New(mine.store, mine.validator, catalog.Options{})
			test.before(&theirs)
			if _, err := mine.CreateDeployment(mine.ctx, tko.NewDeployment{Template: "t"}); err != nil {
				t.Fatal(err)
			}
			test.change(&theirs)
			if err := test.then(mine); test.wantErr != nil {
				wantError(t, err, test.wantErr)
				return
			} else if err != nil {
				t.Fatalf("%s: %v", test.why, err)
			}
			if got := test.want(mine); got != test.is {
				t.Errorf("%q, want %q: %s", got, test.is, test.why)
			}
		})
	}
}

// No write is based on the rules of an earlier epoch.
func TestRulesOfAnotherServerApply(t *testing.T) {
	t.Parallel()
	mine := newWorld(t, catalog.Options{})
	theirs := *mine
	theirs.Service = catalog.New(mine.store, mine.validator, catalog.Options{})
	mine.site("first", thing("a", ""))
	if _, err := theirs.RegisterPlugin(mine.ctx, tko.Plugin{Type: "validate", Name: "p", Arguments: []string{"p"}}); err != nil {
		t.Fatal(err)
	}
	mine.validator.take()
	mine.site("second", thing("b", ""))
	asked := mine.validator.take()
	if last := asked[len(asked)-1]; len(last.Plugins) != 1 {
		t.Errorf("the last of %d validations is with %d plugins: want the one that another service registered", len(asked), len(last.Plugins))
	}
	mine.site("third", thing("c", ""))
	if asked := mine.validator.take(); len(asked) != 1 || len(asked[0].Plugins) != 1 {
		t.Errorf("%d validations, want the cached rules to be used", len(asked))
	}
}

// spec returns the fields that a site has from its template.
func spec(w *world, id tko.SiteID) string {
	site, err := w.Site(w.ctx, id, 0)
	if err != nil {
		w.t.Fatal(err)
	}
	value, _ := site.Package[0].Get("spec", "x")
	return fmt.Sprint(value) + " " + site.Metadata["k"]
}
