package prune_test

import (
	"errors"
	"testing"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/prune"
)

func TestRemovalNeedsApprovalBeyondBothLimits(t *testing.T) {
	t.Parallel()
	tests := map[string]struct {
		budget       prune.Budget
		n, total     int
		both, either bool
	}{
		"nothing":              {prune.Budget{}, 0, 0, false, false},
		"no budget":            {prune.Budget{}, 1, 100, true, true},
		"few of few":           {prune.Default, 20, 20, false, true},
		"many of very many":    {prune.Default, 500, 1000, false, true},
		"many":                 {prune.Default, 501, 1000, true, true},
		"few of many":          {prune.Careful, 5, 100, false, false},
		"no limit of percents": {prune.Budget{Percent: 100}, 100, 100, false, true},
	}
	for name, test := range tests {
		if got := test.budget.Over(test.n, test.total); got != test.both {
			t.Errorf("%s: both limits: got %t", name, got)
		}
		if got := test.budget.OverEither(test.n, test.total); got != test.either {
			t.Errorf("%s: either limit: got %t", name, got)
		}
	}
}

func TestLimitsOfRemovalsAreChecked(t *testing.T) {
	t.Parallel()
	if b := prune.Default.With(nil, nil); b != prune.Default {
		t.Errorf("got %v without settings", b)
	}
	if b := prune.Default.With(new(0), new(7)); b != (prune.Budget{Count: 0, Percent: 7}) {
		t.Errorf("got %v", b)
	}
	for _, b := range []prune.Budget{{Count: -1}, {Percent: -1}, {Percent: 101}} {
		if err := b.Check("objects"); !errors.Is(err, tko.ErrInvalid) {
			t.Errorf("%v: got %v", b, err)
		}
	}
	if err := prune.Default.Check("objects"); err != nil {
		t.Error(err)
	}
	if got := prune.Careful.Text("sites"); got != "more than the budget allows (5 %, 20 sites)" {
		t.Errorf("got %q", got)
	}
}

func TestApprovalIsForOneRemoval(t *testing.T) {
	t.Parallel()
	seen := map[string]bool{}
	for _, lines := range [][]string{nil, {"a"}, {"a", "b"}, {"b", "a"}, {"ab"}} {
		key := prune.Key(lines)
		if seen[key] || len(key) != 16 || key != prune.Key(lines) {
			t.Errorf("%q: the key %q is not its own", lines, key)
		}
		seen[key] = true
	}
}
