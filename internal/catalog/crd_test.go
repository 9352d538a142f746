package catalog_test

import (
	"fmt"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/catalog"
	"github.com/tko-orchestrator/tko/internal/validate"
)

// crdOf returns a CRD of things whose spec has the given properties.
func crdOf(properties string) string {
	return `apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: things.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: things, kind: Thing}
  versions: [{name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {` + properties + `}}}}}}]
---
`
}

// newJudgedWorld returns a world that validates packages as servers do.
func newJudgedWorld(t *testing.T) *world {
	t.Helper()
	v, err := validate.New(validate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := openStore(t)
	return &world{Service: catalog.New(store, v, catalog.Options{}), t: t, ctx: t.Context(), store: store}
}

const number, text = "size: {type: integer}, note: {type: string}", "size: {type: string}, note: {type: string}"

// Templates of two versions of an operator can be registered at the same time, in
// any alphabetical order.
func TestTemplatesOfTwoOperatorVersionsLiveSideBySide(t *testing.T) {
	t.Parallel()
	w := newJudgedWorld(t)
	w.template("operator/a", crdOf(number))
	w.template("operator/b", crdOf(text))
	w.template("app/one", thing("one", "size: 5"))
	w.template("app/two", thing("two", "size: five"))
	w.site("s", thing("one", "size: 5")+thing("two", "size: five"))
	for _, id := range []tko.TemplateID{"app/one", "app/two"} {
		w.create(tko.NewDeployment{Template: id, Prepared: true})
	}
	_, err := w.RegisterTemplate(w.ctx, tko.Template{ID: "app/three", Package: pkg(t, thing("three", "size: true"))})
	wantError(t, err, tko.ErrInvalid, `"operator/a"`, `"operator/b"`, "spec.size")
}

// Entities that exist stay valid when a template with a CRD that refuses them is
// registered; new ones are validated against it.
func TestRegisteringATemplateInvalidatesNothing(t *testing.T) {
	t.Parallel()
	w := newJudgedWorld(t)
	five := thing("a", "size: five")
	w.template("app", five)
	w.site("s", five)
	id := w.create(tko.NewDeployment{Template: "app", Site: "s"})
	modify := func(prepared string, resources string) error {
		m := w.start(id)
		_, _, err := w.EndModification(w.ctx, m.Token, pkg(t, resources+state("templateId: app, siteId: s", prepared)))
		if err != nil {
			if err := w.CancelModification(w.ctx, m.Token); err != nil {
				t.Fatal(err)
			}
		}
		return err
	}
	if err := modify(isPrepared, five); err != nil {
		t.Fatal(err)
	}
	w.template("operator", crdOf(number))

	for name, err := range map[string]error{
		"another annotation":  modify(isPrepared, five+facts("changed: once")),
		"another field of it": modify(isPrepared, thing("a", "size: five, note: fine")),
	} {
		if err != nil {
			t.Errorf("the running deployment can't get %s: %v", name, err)
		}
	}
	if err := modify(`nephio.org/prepared: "false"`, five); err != nil {
		t.Errorf("the running deployment can't be prepared again: %v", err)
	}
	if err := modify(isPrepared, five+facts("changed: twice")); err != nil {
		t.Errorf("the running deployment can't be prepared again: %v", err)
	}
	w.template("app", five, "changed", "yes")
	w.site("s", five, "changed", "yes")
	child := w.create(tko.NewDeployment{Template: "app"})

	wantError(t, modify(isPrepared, five+thing("b", "size: five")), tko.ErrInvalid, "spec.size", `template "operator"`)
	_, err := w.RegisterSite(w.ctx, tko.Site{ID: "new", Package: pkg(t, five)})
	wantError(t, err, tko.ErrInvalid, "spec.size", `template "operator"`)
	m := w.start(child)
	if _, _, err := w.EndModification(w.ctx, m.Token, pkg(t, five+state("templateId: app", isPrepared))); err != nil {
		t.Errorf("a template that is registered can't be deployed any more: %v", err)
	}
	if _, err := w.RegisterSite(w.ctx, tko.Site{ID: "made", Template: "app"}); err != nil {
		t.Errorf("no site can be made from a template that is registered: %v", err)
	}
}

// The number of different definitions of a kind is limited, and equal ones
// count once.
func TestDefinitionsOfAKindAreBounded(t *testing.T) {
	t.Parallel()
	w := newWorld(t, catalog.Options{})
	w.each(500, func(i int) error {
		_, err := w.RegisterTemplate(w.ctx, tko.Template{ID: tko.TemplateID(fmt.Sprint("operator/", i)), Package: pkg(t, crdOf(fmt.Sprintf("p%d: {type: string}", i)))})
		return err
	})
	_, err := w.RegisterTemplate(w.ctx, tko.Template{ID: "operator/more", Package: pkg(t, crdOf("one: {type: string}"))})
	wantError(t, err, tko.ErrInvalid, "Thing in example.com", "501", "operator/more")
	w.template("operator/same", crdOf("p7: {type: string}"))
	w.template("operator/8", crdOf("another: {type: string}"))
	last := w.validator.take()
	if crds := last[len(last)-1].CRDs; len(crds) != 500 {
		t.Errorf("%d CRDs, want 500", len(crds))
	}
	if _, err := w.DeleteTemplate(w.ctx, "operator/9"); err != nil {
		t.Fatal(err)
	}
	w.template("operator/more", crdOf("one: {type: string}"))
}
