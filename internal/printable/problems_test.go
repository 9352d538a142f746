package printable_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/internal/printable"
)

func TestProblemsAreBounded(t *testing.T) {
	t.Parallel()
	if err := printable.Problems([]error{nil, nil}); err != nil {
		t.Errorf("without problems: %v", err)
	}
	kind := errors.New("a kind")
	for n, lines := range map[int]int{1: 1, 20: 20, 21: 21, 400: 21} {
		var all []error
		for i := range n {
			all = append(all, nil, fmt.Errorf("problem %d: %w", i, kind))
		}
		err := printable.Problems(all)
		text := strings.Split(err.Error(), "\n")
		if len(text) != lines || text[0] != "problem 0: a kind" || !errors.Is(err, kind) {
			t.Errorf("of %d problems, %d lines are shown, want %d: %v", n, len(text), lines, err)
		}
		if want := fmt.Sprintf("and %d more like these", n-20); n > 20 && text[20] != want {
			t.Errorf("the last line of %d problems is %q, want %q", n, text[20], want)
		}
	}
}
