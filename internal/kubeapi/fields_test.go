package kubeapi

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/entitytest"
)

// Each field of each entity is in its object, or there is a reason.
func TestObjectsHaveEachFieldOfTheirEntity(t *testing.T) {
	t.Parallel()
	f := entitytest.NewForm(t, "the object of the Kubernetes API", entitytest.Exceptions{Reasons: map[string]string{}, Most: 0})
	entitytest.Compare(f, objectOf[tko.Template](t))
	entitytest.Compare(f, objectOf[tko.Site](t))
	entitytest.Compare(f, objectOf[tko.Deployment](t))
	entitytest.Compare(f, objectOf[tko.Plugin](t))
	entitytest.Compare(f, objectOf[tko.Rollout](t))
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
