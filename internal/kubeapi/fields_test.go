package kubeapi

import (
	"encoding/json"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/entitytest"
)

// Each field of each entity is in its object, or there is a reason.
func TestObjectsHaveEachFieldOfTheirEntity(t *testing.T) {
	t.Parallel()
	reasons := map[string]string{
		"Stamp.Updated": "Kubernetes has no such field",
		"Stamp.Who":     "the audit log and tko explain have it",
		"Stamp.Why":     "the audit log and tko explain have it",
		"Stamp.Steps":   "only reads of one revision return them",
		"Stamp.LeftOut": "objects are never cut",
		"Site.Template": "the spec has the one that the site waits for in its place",
	}
	f := entitytest.NewForm(t, "the object of the Kubernetes API", entitytest.Exceptions{Reasons: reasons, Most: 6})
	entitytest.Compare(f, objectOf[tko.Site](t))
	entitytest.Compare(f, objectOf[tko.Deployment](t))
	entitytest.Compare(f, objectOf[tko.Rollout](t))
	reasons = maps.Clone(reasons)
	delete(reasons, "Site.Template")
	reasons["Stamp.Conditions"] = "the status of templates and plugins has none yet: tko template and plugin list do"
	f = entitytest.NewForm(t, "the object without conditions", entitytest.Exceptions{Reasons: reasons, Most: 6})
	entitytest.Compare(f, objectOf[tko.Template](t))
	entitytest.Compare(f, objectOf[tko.Plugin](t))
}

// The table in docs/kubernetes-api.md names the fields of the spec and the status of each
// kind, and no others.
func TestFieldsOfObjectsAreDocumented(t *testing.T) {
	t.Parallel()
	page, err := os.ReadFile("../../docs/kubernetes-api.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, k := range kinds() {
		row := regexp.MustCompile(`\n\| \[?` + k.name + `[^|]* \| (.*) \|(.*) \|\n`).FindSubmatch(page)
		if row == nil {
			t.Errorf("docs/kubernetes-api.md has no row with the fields of %s", k.name)
			continue
		}
		typ := reflect.TypeOf(k.newObject()).Elem()
		for i, part := range []string{"Spec", "Status"} {
			field, _ := typ.FieldByName(part)
			var got []string
			for _, name := range regexp.MustCompile("`([^`.]*)[^`]*`").FindAllSubmatch(row[i+1], -1) {
				got = append(got, string(name[1]))
			}
			slices.Sort(got)
			if want := entitytest.Names(field.Type); !slices.Equal(got, want) {
				t.Errorf("docs/kubernetes-api.md has the fields %v in the %s of a %s, want %v", got, part, k.name, want)
			}
		}
	}
}

// objectOf returns the function that writes entities of a kind as objects.
func objectOf[E any](t *testing.T) func(E) string {
	t.Helper()
	return func(e E) string {
		r := entitytest.Record(e)
		for i, c := range r.Conditions {
			if c.Attached != "" { // as this transport writes it
				r.Conditions[i].Attached = `[{"manager":"` + c.Attached + `","fieldsV1":{}}]`
			}
		}
		all := kinds()
		k := all[slices.IndexFunc(all, func(k *kind) bool { return k.kind == r.Kind })]
		o, err := k.object(r, view{whole: true, secrets: true})
		if err != nil {
			return err.Error() // without an ID
		}
		data, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
}
