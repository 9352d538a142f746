package schedule

import (
	"reflect"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule/place"
)

// Each kind of places has a target, and each target what is known of its places.
func TestEachKindOfPlacesHasATarget(t *testing.T) {
	t.Parallel()
	s := New(nil, nil, Options{GitCache: t.TempDir(), Kubernetes: func(func(...tko.SiteID)) Clusters { return noClusters{} }})
	names := map[string]bool{}
	for _, k := range place.All {
		if got, ok := s.targets[k.GVK]; !ok || !reflect.DeepEqual(got.Kind, k) {
			t.Errorf("%s: %+v, want a target for %+v", k.GVK, got, k)
		}
		if k.Name == "" || names[k.Name] {
			t.Errorf("%s has the name %q, as another", k.GVK, k.Name)
		}
		names[k.Name] = true
	}
	if len(s.targets) != len(place.All) {
		t.Errorf("%d targets for %d kinds of places", len(s.targets), len(place.All))
	}
}

type noClusters struct{ Clusters }

func (noClusters) Close() {}
