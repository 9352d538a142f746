package field_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/entitytest"
	"github.com/tko-orchestrator/tko/internal/field"
	"github.com/tko-orchestrator/tko/krm"
)

// Each field that users write is in the spec of its manifest, and is read from there as it
// was written. The identity is the name of the manifest, and labels are the metadata.
func TestSpecsHaveEachFieldThatUsersWrite(t *testing.T) {
	t.Parallel()
	f := entitytest.NewForm(t, "the spec of a manifest", entitytest.Exceptions{Reasons: map[string]string{
		"Template.ID":         "the name of the manifest",
		"Site.ID":             "the name of the manifest",
		"Rollout.ID":          "the name of the manifest",
		"Template.Metadata":   "the labels of the manifest",
		"Site.Metadata":       "the labels of the manifest",
		"Deployment.Metadata": "the labels of the manifest",
		"Rollout.Metadata":    "the labels of the manifest",

		"Deployment.ID":               "TKO makes it",
		"Template.Deployments":        "made by deployments",
		"Template.DeploymentCount":    "made by deployments",
		"Site.Deployments":            "made by deployments",
		"Site.DeploymentCount":        "made by deployments",
		"Deployment.Prepared":         "TKO decides it",
		"Deployment.Approved":         "elsewhere it is approved again",
		"Deployment.Origin":           "TKO makes it",
		"Deployment.Replaces":         "preparers write it",
		"Deployment.Replaced":         "the store records it",
		"Deployment.TemplateRevision": "an annotation states it: see AnnotationMadeFrom",
		"Deployment.AwaitedTemplate":  "written as Template",
		"Site.AwaitedTemplate":        "written as Template",
		"Deployment.AwaitedSite":      "written as Site",
		"Rollout.State":               "TKO decides it",
		"Rollout.Reason":              "TKO decides it",
		"Stamp":                       "TKO writes it",
	}, Most: 24})
	entitytest.Compare(f, specOf(t, tko.KindTemplate, func(e tko.Template) tko.Put { return tko.Put{Details: e.Details, Package: e.Package} }))
	entitytest.Compare(f, specOf(t, tko.KindSite, func(e tko.Site) tko.Put { return tko.Put{Template: e.Template, Details: e.Details, Package: e.Package} }))
	entitytest.Compare(f, specOf(t, tko.KindDeployment, func(e tko.Deployment) tko.Put {
		return tko.Put{Parent: e.Parent, Template: e.Template, Site: e.Site, Package: e.Package}
	}))
	entitytest.Compare(f, specOf(t, tko.KindPlugin, func(e tko.Plugin) tko.Put {
		e.Stamp = tko.Stamp{}
		return tko.Put{Plugin: e}
	}))
	entitytest.Compare(f, specOf(t, tko.KindRollout, func(e tko.Rollout) tko.Put { return tko.Put{Package: e.Package} }))
}

// specOf returns the function that writes and reads the spec of entities.
func specOf[E any](t *testing.T, kind tko.Kind, put func(E) tko.Put) func(E) map[string]any {
	t.Helper()
	return func(e E) map[string]any {
		want := put(e)
		spec := field.Spec(kind, want)
		var got tko.Put
		if err := field.ReadSpec(kind, spec, &got); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s, -written +read:\n%s", kind, diff)
		}
		return spec
	}
}

// Each field of an entity has a name, unless it is in no row, and each that users write is a
// field of a Put.
func TestEachFieldHasAName(t *testing.T) {
	t.Parallel()
	f := entitytest.NewForm(t, "the row for programs", entitytest.Exceptions{Reasons: map[string]string{
		"Template.Package":         "get prints it",
		"Site.Package":             "get prints it",
		"Deployment.Package":       "get prints it",
		"Rollout.Package":          "get prints it",
		"Template.DeploymentCount": "the row has the IDs",
		"Site.DeploymentCount":     "the row has the IDs",
		"Stamp":                    "the command writes it in a form of its own",
	}, Most: 7})
	entitytest.Compare(f, func(e tko.Template) map[string]any { return field.Row(e) })
	entitytest.Compare(f, func(e tko.Site) map[string]any { return field.Row(e) })
	entitytest.Compare(f, func(e tko.Deployment) map[string]any { return field.Row(e) })
	entitytest.Compare(f, func(e tko.Plugin) map[string]any { return field.Row(e) })
	entitytest.Compare(f, func(e tko.Rollout) map[string]any { return field.Row(e) })
}

func TestWrongSpecsAreRefused(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		kind tko.Kind
		spec map[string]any
		want string
	}{
		"number":        {tko.KindSite, map[string]any{"templateId": 3}, "spec.templateId is not a string: quote it"},
		"list":          {tko.KindPlugin, map[string]any{"arguments": "x"}, "spec.arguments is not a list: begin each element with -"},
		"list of lists": {tko.KindPlugin, map[string]any{"arguments": []any{[]any{}}}, "spec.arguments[0] is not a string: quote it"},
		"map":           {tko.KindPlugin, map[string]any{"properties": []any{}}, "spec.properties is not a map: write its keys and values below it"},
		"trigger":       {tko.KindPlugin, map[string]any{"triggers": []any{map[string]any{"name": "x"}}}, "unknown field spec.triggers[0].name: use group, version and kind"},
		"package":       {tko.KindTemplate, map[string]any{"package": []any{}}, "spec.package is not a map: give it resources: […]"},
		"resource":      {tko.KindTemplate, map[string]any{"package": map[string]any{"resources": []any{"x"}}}, "spec.package.resources[0] is not a map: write a resource, with apiVersion and kind"},
	} {
		var p tko.Put
		if err := field.ReadSpec(test.kind, test.spec, &p); err == nil || err.Error() != test.want {
			t.Errorf("%s: the error is %v, want %s", name, err, test.want)
		}
	}
	var p tko.Put
	if err := field.ReadSpec(tko.KindTemplate, nil, &p); err != nil || p.Package != nil {
		t.Errorf("no spec: %v, %v", p.Package, err)
	}
	if got := field.Spec(tko.KindTemplate, tko.Put{Package: krm.Package{}}); len(got) != 1 {
		t.Errorf("an empty package: %v, want it in the spec", got)
	}
}
