package cli

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
)

func TestDiffGroupsChangesByResource(t *testing.T) {
	t.Parallel()
	got := diffText([]tko.RolloutChange{
		{Resource: `v1 ConfigMap "a"`, Path: "data.x", Before: `"1"`, After: `"2"`},
		{Resource: `v1 ConfigMap "a"`, Path: "data.y", Before: "missing", After: `"2"`},
		{Resource: `v1 ConfigMap "b"`, Before: `{}`, After: "missing"},
	})
	want := `@@ v1 ConfigMap "a" @@
-data.x: "1"
+data.x: "2"
+data.y: "2"
@@ v1 ConfigMap "b" @@
-{}
`
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
