package catalog_test

import (
	"slices"
	"testing"

	"github.com/tko-orchestrator/tko"
)

// Templates of two versions of an operator define one kind: the first with an integer and a rule,
// the second without that property. A wrong type was refused for a new site, and accepted for one
// that had a valid value, depending on the order of the templates.
func TestEarlierValidValueDoesNotExcuseAWrongOne(t *testing.T) {
	t.Parallel()
	v1 := crdOf(`num: {type: integer, x-kubernetes-validations: [{rule: "self < 10", message: must be small}]}`)
	v2 := crdOf("other: {type: string}")
	for _, order := range [][]string{{"a", "b"}, {"b", "a"}} {
		for _, late := range []bool{false, true} {
			w := newJudgedWorld(t)
			register := func() {
				for _, id := range order {
					w.template("op/"+id, map[string]string{"a": v1, "b": v2}[id])
				}
			}
			if !late {
				register()
			}
			w.site("had", thing("t", "num: 5"))
			if late { // registering definitions changes nothing of that
				register()
			}
			for _, site := range []tko.SiteID{"had", "new"} {
				for spec, wants := range map[string]string{"num: text": "spec.num: must be an integer", "num: 50": "must be small", "other: 5": "spec.other"} {
					_, err := w.RegisterSite(w.ctx, tko.Site{ID: site, Package: pkg(t, thing("t", spec))})
					wantError(t, err, tko.ErrInvalid, wants, `"op/a"`, `"op/b"`)
				}
			}
			w.site("had", thing("t", "num: 6"))
			w.site("had", thing("t", "other: text"))
			w.site("new", thing("t", "num: 7"))
		}
	}
}

// A CRD in the template of one package doesn't rule a package that was written for a newer
// version: its unknown properties are warnings, in any order of registration.
func TestDefinitionsOfOthersDoNotRefuseNewerPackages(t *testing.T) {
	t.Parallel()
	templates := map[tko.TemplateID]string{"operator/v1": crdOf("size: {type: integer}"), "app/one": thing("one", "size: 5"), "app/newer": thing("newer", "size: 5, later: {x: 1}")}
	orders := [][]tko.TemplateID{{"operator/v1", "app/one", "app/newer"}, {"app/newer", "operator/v1", "app/one"}, {"app/one", "app/newer", "operator/v1"}}
	for _, order := range orders {
		w := newJudgedWorld(t)
		for _, id := range append(slices.Clone(order), order...) {
			w.template(string(id), templates[id])
		}
		for _, id := range []tko.TemplateID{"app/one", "app/newer"} {
			d, err := w.Deployment(w.ctx, w.create(tko.NewDeployment{Template: id, Prepared: true}), 0)
			if err != nil {
				t.Fatal(err)
			}
			if got, want := tko.ConditionIs(d.Stamp.Conditions, tko.ConditionKnownProperties), map[tko.TemplateID]string{"app/newer": tko.ConditionFalse}[id]; got != want {
				t.Errorf("%v: %s: KnownProperties is %q, want %q", order, id, got, want)
			}
		}
	}
}
