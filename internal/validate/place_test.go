package validate

import (
	"testing"

	places "github.com/tko-orchestrator/tko/internal/schedule/place"
)

// The resources of each built-in target are checked when packages are written.
func TestEachKindOfPlacesIsChecked(t *testing.T) {
	t.Parallel()
	for _, k := range places.All {
		if ownChecks[k.GVK.Group+" "+k.GVK.Kind] == nil {
			t.Errorf("%s has no check", k.GVK)
		}
	}
}
