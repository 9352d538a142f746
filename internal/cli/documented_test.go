package cli

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tko-orchestrator/tko/test/docs"
)

func documentedRoot() *cobra.Command {
	root := newApp(Streams{In: strings.NewReader(""), Out: io.Discard, Err: io.Discard}, nil).rootCommand()
	root.InitDefaultHelpFlag()
	root.InitDefaultVersionFlag()
	return root
}

// Each command of tko in a block of the documentation exists, and has these flags and so many arguments.
func TestDocumentedCommandsExist(t *testing.T) {
	t.Parallel()
	for _, c := range docs.CommandsOf(t, "tko", 150) {
		root := documentedRoot()
		cmd, rest, err := root.Find(joinStates(root, c.Words))
		if err == nil {
			cmd.InitDefaultHelpFlag()
			err = cmd.ParseFlags(rest)
		}
		if err == nil && !cmd.Flags().Changed("help") && !cmd.Flags().Changed("version") {
			if err = cmd.ValidateArgs(cmd.Flags().Args()); err == nil {
				err = cmd.ValidateRequiredFlags()
			}
			if err == nil && cmd.HasAvailableSubCommands() && len(cmd.Flags().Args()) > 0 {
				err = cmd.RunE(cmd, cmd.Flags().Args()) // a group refuses unknown commands
			}
		}
		if err != nil {
			t.Errorf("%s: %v", c, err)
		}
	}
}

// Each command that the text names in passing exists, with the flags that it names.
func TestMentionedCommandsExist(t *testing.T) {
	t.Parallel()
	found := docs.Mentioned(t, "tko")
	if len(found) < 100 {
		t.Errorf("the pages mention only %d commands", len(found))
	}
	for _, c := range found {
		root := documentedRoot()
		cmd, rest, err := root.Find(c.Words)
		if err != nil {
			t.Errorf("%s: %v", c, err)
			continue
		}
		cmd.InitDefaultHelpFlag()
		flags := cmd.Flags()
		flags.AddFlagSet(cmd.InheritedFlags())
		if cmd.HasAvailableSubCommands() && len(rest) > 0 && rest[0] != strings.ToUpper(rest[0]) && !strings.HasPrefix(rest[0], "-") {
			t.Errorf("%s: there is no such command", c)
		}
		for _, word := range rest {
			var flag *pflag.Flag
			name, _, _ := strings.Cut(word, "=")
			name = strings.TrimRight(name, ",.")
			switch {
			case strings.HasPrefix(name, "--"):
				flag = flags.Lookup(name[2:])
			case strings.HasPrefix(name, "-") && len(name) == 2:
				flag = flags.ShorthandLookup(name[1:])
			default:
				continue
			}
			if flag == nil {
				t.Errorf("%s: there is no flag %s", c, name)
			}
		}
	}
}

func TestHelpShowsNoEmptyDefaults(t *testing.T) {
	t.Parallel()
	docs.CheckHelp(t, 500, func(words []string) string {
		var out strings.Builder
		root := newApp(Streams{In: strings.NewReader(""), Out: &out, Err: &out}, nil).rootCommand()
		root.SetArgs(append(slices.Clone(words), "--help"))
		root.SetOut(&out)
		if err := root.Execute(); err != nil {
			t.Errorf("%q: %v", words, err)
		}
		return out.String()
	})
}
