package spanner

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/record"
)

// Values of any length are found by their beginning, and fit into a key.
func TestValuesOfPairsFitIntoKeys(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 500)
	for _, value := range []string{"", "short", strings.Repeat("x", maxPairValue), strings.Repeat("x", maxPairValue+1), long, "x" + long} {
		stored := pairValue(value)
		if len(stored) > maxPairValue+32 || !utf8.ValidString(stored) {
			t.Errorf("a value of %d bytes is stored as %q", len(value), stored)
		}
		if beginning := beginningOf(value, maxPairValue/2); !strings.HasPrefix(stored, beginning) || !utf8.ValidString(beginning) {
			t.Errorf("a value of %d bytes isn't found by its beginning %q", len(value), beginning)
		}
	}
	if pairValue(long+"a") == pairValue(long+"b") {
		t.Error("long values that differ at the end are one")
	}
}

func TestAccessPathsOfAQuery(t *testing.T) {
	t.Parallel()
	exact := func(text string) tko.Pattern {
		p, err := tko.ParseValuePattern(text)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	q := &record.Query{
		Kind: tko.KindDeployment, Parent: "p", Sites: []tko.Pattern{exact("s")}, Metadata: map[string]tko.Pattern{"a": exact("1"), "b": exact("2")},
		Labels: map[string]tko.Pattern{"x/y": exact("z")},
	}
	if got := len(pathsOf(q)); got != 5 {
		t.Errorf("%d access paths, want those of the parent, the site, two pairs and a label", got)
	}
	if got := len(pathsOf(&record.Query{Kind: tko.KindDeployment})); got != 0 {
		t.Errorf("%d access paths of a query that selects by nothing", got)
	}
}
