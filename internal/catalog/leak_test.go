package catalog_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/krm"
)

// The refusal of a freeze that selects sites of others, too, named the first of them.
func TestRefusedFreezeNamesNoSiteThatTheCallerDoesntSee(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	for _, id := range []tko.SiteID{"apac/secret", "emea/1"} {
		_, err := w.RegisterSite(w.ctx, tko.Site{ID: id, Metadata: map[string]string{"tier": "1"}})
		w.is("register", err, nil)
	}
	w.bind("cert:ada", access.Editor, emea)
	w.bind("cert:ada", access.Operator, emea)
	f := tko.Freeze{SiteMetadata: map[string]string{"tier": "1"}, Until: time.Now().Add(time.Hour), Reason: "r"}
	if _, err := w.Freeze(w.as("cert:ada"), f); !errors.Is(err, tko.ErrDenied) || strings.Contains(err.Error(), "apac") || strings.Contains(err.Error(), "secret") {
		t.Errorf("the refusal is %v, want one that names no site of others", err)
	}
}

// The table of rights says inspect; a viewer of everything got the sources all the same.
func TestSourcesNeedTheRightInspect(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	everywhere := access.Scope{}
	w.bind("cert:vic", access.Viewer, everywhere)
	_, err := w.Sources(w.as("cert:vic"))
	w.is("list the sources as a viewer", err, tko.ErrDenied)
	_, err = w.Source(w.as("cert:vic"), "fleet")
	w.is("get a source as a viewer", err, tko.ErrDenied)
	w.bind("cert:vic", access.Operator, everywhere)
	_, err = w.Sources(w.as("cert:vic"))
	w.is("list the sources as an operator", err, nil)
}

// An editor who may not read Secrets gets a placeholder for their values. Moved to another
// resource by a patch, it was stored, and the value was lost.
func TestPlaceholderOfARedactedValueIsNeverStored(t *testing.T) {
	t.Parallel()
	w := newGuarded(t, catalog.Options{})
	secret := krm.Resource{"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "s"}, "stringData": map[string]any{"password": "hunter2"}}
	_, err := w.RegisterSite(w.ctx, tko.Site{ID: "emea/1", Package: krm.Package{secret}})
	w.is("register", err, nil)
	w.bind("cert:ada", access.Editor, emea)
	ada := w.as("cert:ada")
	site, err := w.Site(ada, "emea/1", 0)
	w.is("get", err, nil)
	value := site.Package[0].Text("stringData", "password")
	if value != krm.Redacted {
		t.Fatalf("an editor reads %q", value)
	}
	for name, r := range map[string]krm.Resource{
		"moved to a ConfigMap":   {"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"password": value}},
		"in a text":              {"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"config": "password: " + value}},
		"in a list":              {"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "items": []any{value}},
		"in an annotation":       {"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c", "annotations": map[string]any{"a": value}}},
		"in data of a ConfigMap": {"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "binaryData": map[string]any{"a": "W3JlZGFjdGVkIGJ5IFRLT10="}},
		"in another Secret":      {"apiVersion": "v1", "kind": "Secret", "metadata": map[string]any{"name": "t", "annotations": map[string]any{"a": value}}},
	} {
		_, err := w.RegisterSite(ada, tko.Site{ID: "emea/1", Package: krm.Package{site.Package[0], r}})
		if !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "redacted") {
			t.Errorf("%s: %v, want a refusal", name, err)
		}
	}
	_, err = w.RegisterSite(ada, tko.Site{ID: "emea/1", Metadata: map[string]string{"k": "v"}, Package: site.Package})
	w.is("write what was read", err, nil)
	site, err = w.Site(w.ctx, "emea/1", 0)
	w.is("get", err, nil)
	if got := site.Package[0].Text("stringData", "password"); got != "hunter2" {
		t.Errorf("the value is %q", got)
	}
}
