package schedule_test

import (
	"errors"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/schedule"
)

// Each attempt to apply a site is counted by the kind of its target and the result.
func TestAppliesAreCountedByTargetAndResult(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		why  string
		err  error
		want string
	}{
		"ok":      {why: "the plugin succeeded", want: "plugin ok"},
		"invalid": {why: "the package must change", err: tko.Errorf(tko.ErrInvalid, "no"), want: "plugin invalid"},
		"failed":  {why: "it is tried again", err: errors.New("away"), want: "plugin failed"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var got []string
			r := world([]tko.Site{site("lagos", trigger("x"), repository(filepath.Join(t.TempDir(), "repo")))}, []tko.Deployment{deployment("a", "lagos")}, plugin("p", edge))
			s := schedule.New(r, &runner{err: map[string]error{"p": test.err}}, schedule.Options{Applied: func(target, result string, _ time.Duration) { got = append(got, target+" "+result) }})
			defer s.Close()
			s.Reconcile(t.Context(), "lagos")
			slices.Sort(got)
			if diff := cmp.Diff([]string{"git ok", test.want}, got); diff != "" {
				t.Errorf("%s: %s", test.why, diff)
			}
		})
	}
}
