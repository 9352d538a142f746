package docs

import (
	"slices"
	"strings"
	"testing"
)

// CheckHelp calls help with the words of a command, starting with none, and of all commands below
// it that its help names, and reports flags with an empty default. help returns the help of a
// command. Fewer than least flags in total are an error.
func CheckHelp(t *testing.T, least int, help func(words []string) string) {
	t.Helper()
	flags := 0
	var check func(words []string)
	check = func(words []string) {
		t.Helper()
		below := false
		for line := range strings.Lines(help(words)) {
			line = strings.TrimRight(line, "\n")
			fields := strings.Fields(line)
			switch {
			case line == "Available Commands:":
				below = true
			case !strings.HasPrefix(line, "  ") || len(fields) == 0:
				below = false
			case below:
				check(append(slices.Clip(words), fields[0]))
			case strings.HasPrefix(fields[0], "-"):
				flags++
			}
			for _, empty := range []string{"(default )", "(default [])", `(default "")`, "(default <nil>)"} {
				if strings.Contains(line, empty) {
					t.Errorf("%s --help: %s", strings.Join(words, " "), strings.TrimSpace(line))
				}
			}
		}
	}
	check(nil)
	if flags < least {
		t.Errorf("the help of all commands has only %d flags, want at least %d", flags, least)
	}
}
