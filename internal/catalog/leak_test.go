package catalog_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/record"
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

// Each road by which a package is written refuses the placeholder.
func TestPlaceholderIsRefusedOnEachRoad(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	placeholder := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}, "data": map[string]any{"password": krm.Redacted}}}
	plain := krm.Package{{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "c"}}}
	_, err := w.RegisterTemplate(w.ctx, tko.Template{ID: "t", Package: plain})
	w.is("register", err, nil)
	id, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: "t"})
	w.is("create", err, nil)
	put := func(kind tko.Kind, id string, manager string) func() error {
		return func() error {
			_, err := w.PutEntity(w.ctx, tko.Put{Kind: kind, ID: id, Manager: manager, Package: placeholder})
			return err
		}
	}
	rec := func(kind tko.Kind, id string) func() error {
		return func() error {
			_, _, err := w.PutRecord(w.ctx, catalog.Put{Key: record.Key{Kind: kind, ID: id}, Package: placeholder})
			return err
		}
	}
	rollout := krm.Package{{"apiVersion": "tko.nephio.org/v1alpha1", "kind": "Rollout", "metadata": map[string]any{"name": "r"}, "spec": map[string]any{
		"edits": []any{map[string]any{"merge": []any{map[string]any{"apiVersion": "v1", "kind": "ConfigMap", "name": "c"}}, "select": map[string]any{"siteIdPatterns": []any{"b/**"}}}},
	}}, placeholder[0]}
	for road, write := range map[string]func() error{
		"template": func() error {
			_, err := w.RegisterTemplate(w.ctx, tko.Template{ID: "u", Package: placeholder})
			return err
		},
		"site": func() error { _, err := w.RegisterSite(w.ctx, tko.Site{ID: "s", Package: placeholder}); return err },
		"deployment": func() error {
			_, err := w.CreateDeployment(w.ctx, tko.NewDeployment{Template: "t", Merge: placeholder})
			return err
		},
		"children": func() error {
			_, _, err := w.CreateChildren(w.ctx, tko.NewChildren{Parent: id, Merge: placeholder, Children: []tko.NewChild{{Origin: "o", Template: "t"}}})
			return err
		},
		"commit": func() error {
			_, err := w.CommitDeployment(w.ctx, tko.DeploymentCommit{ID: id, Revision: 1, Package: placeholder})
			return err
		},
		"modification": func() error {
			m, err := w.StartModification(w.ctx, id)
			if err != nil {
				return err
			}
			_, _, err = w.EndModification(w.ctx, m.Token, append(slices.Clip(m.Package), krm.Resource{"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "d"}, "data": map[string]any{"password": krm.Redacted}}))
			return errors.Join(err, w.CancelModification(w.ctx, m.Token))
		},
		"put of a template": put(tko.KindTemplate, "v", ""), "put of a site": put(tko.KindSite, "v", ""), "put of a deployment": put(tko.KindDeployment, string(id), ""),
		"overlay of a site": put(tko.KindSite, "v", "m"), "overlay of a template": put(tko.KindTemplate, "v", "m"),
		"record of a template": rec(tko.KindTemplate, "w"), "record of a site": rec(tko.KindSite, "w"), "record of a deployment": rec(tko.KindDeployment, string(id)),
		"new record of a deployment": rec(tko.KindDeployment, ""),
		"rollout": func() error {
			_, _, err := w.PutRecord(w.ctx, catalog.Put{Key: record.Key{Kind: tko.KindRollout, ID: "r"}, Package: rollout})
			return err
		},
	} {
		if err := write(); !errors.Is(err, tko.ErrInvalid) || !strings.Contains(err.Error(), "redacted") {
			t.Errorf("%s: %v, want a refusal", road, err)
		}
	}
}
