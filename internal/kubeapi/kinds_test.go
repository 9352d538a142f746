package kubeapi

import "testing"

// Watchers share the objects of events, and encoding an object sets its kind: each watcher
// gets a copy, of each kind.
func TestEachWatcherGetsObjectsOfItsOwn(t *testing.T) {
	t.Parallel()
	for _, k := range kinds() {
		shared := k.newObject()
		shared.SetName("x")
		own := k.own(shared)
		if own == shared || own.GetName() != "x" {
			t.Errorf("%s: the object %q is shared, want a copy of %q", k.name, own.GetName(), "x")
		}
		own.GetObjectKind().SetGroupVersionKind(k.gvk())
		if kind := shared.GetObjectKind().GroupVersionKind().Kind; kind != "" {
			t.Errorf("%s: the shared object has the kind %q of the copy", k.name, kind)
		}
	}
}
