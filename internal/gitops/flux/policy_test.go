package flux

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/tko-orchestrator/tko/internal/osm"
	"github.com/tko-orchestrator/tko/internal/prune"
)

// The policy for an OSM is that of the object, with the defaults of repositories.
func TestPolicyForOSMIsThatOfTheObject(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spec map[string]any
		want osm.Policy
	}{
		"defaults":        {map[string]any{}, osm.Policy{Budget: prune.Instances}},
		"prune of all":    {map[string]any{"prune": true}, osm.Policy{Prune: true, Budget: prune.Instances}},
		"prune of OSM":    {map[string]any{"prune": true, "osm": map[string]any{"prune": false}}, osm.Policy{Budget: prune.Instances}},
		"an empty budget": {map[string]any{"osm": map[string]any{"budget": map[string]any{}}}, osm.Policy{}},
		"all": {map[string]any{"osm": map[string]any{
			"prune": true, "broken": "Recreate", "replace": true, "noReset": true, "budget": map[string]any{"percent": int64(7), "instances": int64(3)},
		}}, osm.Policy{Prune: true, Broken: osm.BrokenRecreate, Replace: true, NoReset: true, Budget: prune.Budget{Percent: 7, Count: 3}}},
	} {
		o, err := readObject(&unstructured.Unstructured{Object: map[string]any{"spec": c.spec}})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(c.want, o.gitOpsSpec(reference{}).OSM.Policy); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
}
