package merge_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/tko-orchestrator/tko/internal/rollout/merge"
)

func TestPatchesLeadThereAndBack(t *testing.T) {
	t.Parallel()
	types := types(t)
	rapid.Check(t, func(t *rapid.T) {
		a, b := drawPackage(t), drawPackage(t)
		patch := merge.Patch(a, b, types)
		if left := merge.Differences(merge.Patched(a, patch, types, false), b, types); len(left) > 0 {
			t.Errorf("forward leaves %+v", left)
		}
		if left := merge.Differences(merge.Patched(b, patch, types, true), a, types); len(left) > 0 {
			t.Errorf("back leaves %+v", left)
		}
	})
}
