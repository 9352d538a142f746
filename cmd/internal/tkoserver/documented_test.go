package tkoserver

import (
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/docs"
	"github.com/tko-orchestrator/tko/test/eventually"
)

// Each command of tko-server, and of tko-server-spanner, in a block of the documentation exists, and has these flags.
func TestDocumentedCommandsExist(t *testing.T) {
	t.Parallel()
	for _, c := range slices.Concat(docs.CommandsOf(t, "tko-server", 15), docs.CommandsOf(t, "tko-server-spanner", 1)) {
		var out eventually.Buffer
		if code := run(t.Context(), append(slices.Clone(c.Words), "--help"), &out, &out); code != 0 {
			t.Errorf("%s: exit code %d:\n%s", c, code, &out)
		} else if !strings.HasPrefix(c.Words[0], "-") && !strings.Contains(out.String(), "Usage:\n  tko-server "+c.Words[0]) {
			t.Errorf("%s: there is no such command", c)
		}
	}
}

func TestHelpShowsNoEmptyDefaults(t *testing.T) {
	t.Parallel()
	docs.CheckHelp(t, 100, func(words []string) string {
		var out eventually.Buffer
		if code := run(t.Context(), append(slices.Clone(words), "--help"), &out, &out); code != 0 {
			t.Errorf("%q: exit code %d", words, code)
		}
		return out.String()
	})
}
