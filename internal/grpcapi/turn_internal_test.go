package grpcapi

import (
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/access"
	"github.com/tko-orchestrator/tko/internal/turn"
)

// Each method that only reads takes turns, as its name says, or has a reason not to.
func TestMethodsThatReadTakeTurns(t *testing.T) {
	t.Parallel()
	weights := turnWeights()
	for method, right := range Rights() {
		name := method[strings.LastIndex(method, "/")+1:]
		if slices.ContainsFunc([]string{"get", "list", "count", "diff", "blame", "explain", "verify"}, func(p string) bool { return strings.HasPrefix(strings.ToLower(name), p) }) &&
			!slices.Contains(right.Verbs, access.Schedule) && !slices.Contains(right.Verbs, access.Prepare) && !slices.Contains(right.Verbs, access.Advance) && // of our own controllers
			!slices.Contains(right.Verbs, access.Backup) && !slices.Contains(right.Verbs, access.Logs) && !slices.Contains(right.Verbs, access.Bind) && // of administrators
			weights[method] == 0 {
			t.Errorf("%s reads, and takes no turn", method)
		}
		if slices.ContainsFunc(right.Verbs, func(v access.Verb) bool { return v.Writes() }) && weights[method] != 0 {
			t.Errorf("%s writes, and takes a turn", method)
		}
	}
	for method, right := range Rights() {
		if right.NoTurn != "" && (weights[method] != 0 || slices.ContainsFunc(right.Verbs, func(v access.Verb) bool { return !slices.Contains(readVerbs, v) })) {
			t.Errorf("%s has a reason to take no turn (%s), and needs none", method, right.NoTurn)
		}
		if right.Light && weights[method] != turn.Light {
			t.Errorf("%s is light, and has the weight %d", method, weights[method])
		}
	}
}
