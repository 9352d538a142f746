package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// referencePage returns all commands of a program as one page, after an introduction. It leaves
// hidden commands out.
func referencePage(root *cobra.Command, introduction string) string {
	var b strings.Builder
	b.WriteString(introduction)
	fmt.Fprintf(&b, "\n| command | |\n|---|---|\n")
	walk(root, func(c *cobra.Command) {
		if runs(c) {
			fmt.Fprintf(&b, "| [`%s`](#%s) | %s |\n", c.CommandPath(), strings.ReplaceAll(c.CommandPath(), " ", "-"), escape(c.Short))
		}
	})
	fmt.Fprintf(&b, "\n## Flags of all commands\n\n")
	flagTable(&b, root.PersistentFlags())
	walk(root, func(c *cobra.Command) {
		if !runs(c) {
			return
		}
		fmt.Fprintf(&b, "\n## %s\n\n", c.CommandPath())
		use := strings.TrimPrefix(c.UseLine(), c.Root().Name()+" ")
		fmt.Fprintf(&b, "```text\n%s %s\n```\n\n", c.Root().Name(), use)
		text := c.Long
		if text == "" {
			text = c.Short + "."
		}
		fmt.Fprintf(&b, "%s\n", escape(text))
		if c.Example != "" {
			fmt.Fprintf(&b, "\n```sh\n%s\n```\n", unindent(c.Example))
		}
		if c.LocalNonPersistentFlags().HasAvailableFlags() {
			b.WriteString("\n")
			flagTable(&b, c.LocalNonPersistentFlags())
		}
	})
	return b.String()
}

// runs reports whether a command does something itself: a group of commands does not.
func runs(c *cobra.Command) bool {
	return c.HasParent() && (!c.HasAvailableSubCommands() || c.LocalNonPersistentFlags().HasAvailableFlags())
}

// walk calls f for a command and all commands below it, in the order of their names.
func walk(c *cobra.Command, f func(*cobra.Command)) {
	if c.Hidden {
		return
	}
	f(c)
	for _, below := range c.Commands() {
		walk(below, f)
	}
}

func flagTable(b *strings.Builder, flags *pflag.FlagSet) {
	b.WriteString("| flag | meaning |\n|---|---|\n")
	flags.VisitAll(func(f *pflag.Flag) {
		if f.Hidden || f.Name == "help" {
			return
		}
		name := "`--" + f.Name
		value, usage := pflag.UnquoteUsage(f)
		if value != "" {
			name += " " + value
		}
		name += "`"
		if f.Shorthand != "" {
			name = "`-" + f.Shorthand + "`, " + name
		}
		switch f.DefValue {
		case "", "false", "0", "0s", "[]":
		default:
			if !strings.Contains(usage, "(default") {
				usage += " (default " + f.DefValue + ")"
			}
		}
		fmt.Fprintf(b, "| %s | %s |\n", name, escape(usage))
	})
}

// escape returns a text that Markdown shows as it is.
func escape(text string) string {
	return strings.NewReplacer("|", `\|`, "<", `\<`, "*", `\*`, "_", `\_`, "[", `\[`).Replace(text)
}

// unindent removes the indentation of examples.
func unindent(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = strings.TrimPrefix(line, "  ")
	}
	return strings.Join(lines, "\n")
}
