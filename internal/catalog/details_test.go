package catalog_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
)

// detailed returns details with each text set.
func detailed(text string) (d tko.Details) {
	for _, f := range tko.DetailFields() {
		*f.In(&d) = text + " " + f.Name
	}
	return d
}

// details returns those of the template t and the site s, which a test keeps equal.
func (w *world) details() tko.Details {
	w.t.Helper()
	s, err := w.Site(w.ctx, "s", 0)
	if err != nil {
		w.t.Fatal(err)
	}
	t, err := w.Template(w.ctx, "t", 0)
	if err != nil {
		w.t.Fatal(err)
	}
	if s.Details != t.Details {
		w.t.Errorf("the site has %+v, the template %+v", s.Details, t.Details)
	}
	return s.Details
}

func (w *world) putBoth(p tko.Put) {
	w.t.Helper()
	for kind, id := range map[tko.Kind]string{tko.KindTemplate: "t", tko.KindSite: "s"} {
		p.Kind, p.ID = kind, id
		if _, err := w.PutEntity(w.ctx, p); err != nil {
			w.t.Fatal(err)
		}
	}
}

// Details are part of each revision: a registration and a Put write them, also if nothing else
// changes, and a client that doesn't know them leaves them as they are.
func TestDetailsArePartOfRevisions(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	first, second := detailed("first"), detailed("second")
	register := func(d tko.Details, keep bool) {
		t.Helper()
		ctx := w.ctx
		if keep {
			ctx = tko.WithDetailsKept(ctx)
		}
		if _, err := w.RegisterTemplate(ctx, tko.Template{ID: "t", Details: d}); err != nil {
			t.Fatal(err)
		}
		if _, err := w.RegisterSite(ctx, tko.Site{ID: "s", Details: d}); err != nil {
			t.Fatal(err)
		}
	}
	check := func(what string, want tko.Details, revision int64) {
		t.Helper()
		if got := w.details(); got != want {
			t.Errorf("%s: %+v, want %+v", what, got, want)
		}
		if s, _ := w.Site(w.ctx, "s", 0); s.Stamp.Revision != revision {
			t.Errorf("%s: revision %d, want %d", what, s.Stamp.Revision, revision)
		}
	}
	register(first, false)
	check("registered", first, 1)
	register(tko.Details{}, true)
	check("registered by a client that doesn't know details", first, 1)
	register(second, false)
	check("registered again", second, 2)
	if s, err := w.Site(w.ctx, "s", 1); err != nil || s.Details != first {
		t.Errorf("revision 1 has %+v, %v", s.Details, err)
	}
	w.putBoth(tko.Put{Details: first})
	check("put", first, 3)
	ctx := w.ctx
	w.ctx = tko.WithDetailsKept(ctx)
	w.putBoth(tko.Put{Metadata: map[string]string{"a": "b"}})
	check("put by a client that doesn't know details", first, 4)
	w.ctx = ctx
	w.putBoth(tko.Put{Metadata: map[string]string{"a": "b"}})
	check("put without", tko.Details{}, 5)
	then := w.head()
	w.putBoth(tko.Put{Details: second})
	restored, err := w.restore(tko.RestoreRequest{Select: tko.PastSelect{Kind: tko.KindSite, ID: "s"}, AsOf: at(then)})
	if err != nil {
		t.Fatal(err)
	}
	if s, _ := w.Site(w.ctx, "s", 0); s.Details != (tko.Details{}) {
		t.Errorf("restored %+v: %+v", restored, s.Details)
	}
}

// What a manager doesn't say about an entity stays; what it said and no longer says goes.
func TestApplyKeepsDetailsThatItDoesNotName(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.template("t", thing("a", "value: 1"))
	theirs, mine := detailed("theirs"), detailed("mine")
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Details: theirs}); err != nil {
		t.Fatal(err)
	}
	site := tko.Put{Kind: tko.KindSite, ID: "s", Metadata: map[string]string{"a": "b"}}
	of := func() tko.Details {
		s, err := w.Site(w.ctx, "s", 0)
		if err != nil {
			t.Fatal(err)
		}
		return s.Details
	}
	w.apply(site)
	if got := of(); got != theirs {
		t.Errorf("a manifest without details left %+v", got)
	}
	site.Details = mine
	changes := w.apply(site).Changes
	for _, f := range tko.DetailFields() {
		if !slices.ContainsFunc(changes, func(c string) bool { return strings.HasPrefix(c, "spec."+f.Name+": ") }) {
			t.Errorf("the changes are %q, without %s", changes, f.Name)
		}
	}
	if got := of(); got != mine {
		t.Errorf("a manifest with details left %+v", got)
	}
	site.Details = tko.Details{}
	w.apply(site)
	if got := of(); got != (tko.Details{}) {
		t.Errorf("a manifest that no longer has details left %+v", got)
	}
}

func TestLongAndBinaryDetailsAreRefused(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	for _, f := range tko.DetailFields() {
		for text, want := range map[string]string{strings.Repeat("x", 1025): "has 1025 bytes: use at most 1024", "a\x00b": "is not plain text", "\xff": "is not plain text"} {
			var d tko.Details
			*f.In(&d) = text
			_, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Details: d})
			wantError(t, err, tko.ErrInvalid, "the "+f.Name+` of site "s"`, want)
			_, err = w.RegisterTemplate(w.ctx, tko.Template{ID: "t", Details: d})
			wantError(t, err, tko.ErrInvalid, "the "+f.Name+` of template "t"`, want)
			_, err = w.PutEntity(w.ctx, tko.Put{Kind: tko.KindSite, ID: "s", Details: d})
			wantError(t, err, tko.ErrInvalid, want)
			_, _, err = w.ProvisionSite(w.ctx, tko.NewSite{Origin: "o", Details: d})
			wantError(t, err, tko.ErrInvalid, want)
		}
		var d tko.Details
		*f.In(&d) = strings.Repeat("x", 1024)
		if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Details: d}); err != nil {
			t.Error(err)
		}
	}
}
