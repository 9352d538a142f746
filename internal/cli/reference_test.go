package cli

import (
	"os"
	"strings"
	"testing"
)

const referenceIntroduction = `# Commands

This page is generated from ` + "`tko --help`" + `. [The tko command](tko.md) explains what all commands have in common, and [Commands of
other tools](conventions.md) compares them with those of kubectl, gh, flux and terraform.
`

// The page in docs is generated: go test ./internal/cli -run Generated -update.
func TestGeneratedCommandsAreUpToDate(t *testing.T) {
	t.Parallel()
	const page = "../../docs/commands.md"
	want := referencePage(newApp(Streams{In: strings.NewReader(""), Out: &strings.Builder{}, Err: &strings.Builder{}}, nil).rootCommand(), referenceIntroduction)
	if *update {
		if err := os.WriteFile(page, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if got, err := os.ReadFile(page); err != nil || string(got) != want {
		t.Errorf("docs/commands.md is not up to date (%v): rewrite it with -update", err)
	}
	for _, must := range []string{"## tko deployment list", "`-w`, `--watch`", "## tko label"} {
		if !strings.Contains(want, must) {
			t.Errorf("the page has no %q", must)
		}
	}
}
