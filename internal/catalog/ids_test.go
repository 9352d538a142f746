package catalog

import (
	"testing"

	"github.com/tko-orchestrator/tko/internal/printable"
)

func TestIDsAscend(t *testing.T) {
	t.Parallel()
	var source idSource
	last := ""
	for range 200 {
		ids, err := source.next(50)
		if err != nil {
			t.Fatal(err)
		}
		for _, id := range ids {
			if len(id) != 27 || id <= last {
				t.Fatalf("%q after %q: IDs have 27 characters and sort in the order they were made", id, last)
			}
			last = id
		}
	}
}

func TestTextIsMadeStorable(t *testing.T) {
	t.Parallel()
	tests := map[string]struct{ in, want string }{
		"short":        {"as it is", "as it is"},
		"NUL":          {"a\x00b", "a\uFFFDb"},
		"invalid":      {"a\xffb", "a\uFFFDb"},
		"long":         {"0123456789abc", "0123456…"},
		"within runes": {"ääääää", "äää…"},
	}
	for name, test := range tests {
		if got := printable.Kept(test.in, 10); got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}
