package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/tko-orchestrator/tko/test/docs"
)

func TestDocumentedCommandsOfAgentsExist(t *testing.T) {
	t.Parallel()
	for _, c := range docs.CommandsOf(t, "tko-agent", 2) {
		var out bytes.Buffer
		if code := run(t.Context(), append(slices.Clone(c.Words), "--help"), &out, &out); code != 0 {
			t.Errorf("%s: exit code %d:\n%s", c, code, &out)
		} else if !strings.Contains(out.String(), "Usage:\n  tko-agent "+c.Words[0]) {
			t.Errorf("%s: there is no such command", c)
		}
	}
}
