package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/manual"
	"github.com/tko-orchestrator/tko/internal/version"
)

const rootHelp = `TKO composes, validates and deploys software at very many sites, and watches it.
This command is the client of a TKO server; start one with tko-server.

Every flag can be set by an environment variable: TKO_ and the flag's name in
capitals, with _ for -. For example TKO_GRPC_ADDRESS.

Exit codes: 0 success, 1 failure, 2 invalid command or input, 3 not found,
4 conflict with the present state, 5 server unreachable, 6 denied,
7 changes found (with --exit-code), 9 not everything could be compared,
130 interrupted.`

func (a *app) rootCommand() *cobra.Command {
	root := group("tko", "Compose, validate and deploy software at very many sites")
	root.Long = rootHelp
	root.Example = `  tko template register upf:v1 --url ./upf
  tko deployment create upf:v1 --site lagos --wait
  tko deployment list --prepared=false -o wide`
	root.SilenceErrors, root.SilenceUsage = true, true
	root.CompletionOptions.DisableDefaultCmd = true
	root.PersistentPreRunE = func(cmd *cobra.Command, _ []string) error { return a.setup(cmd) }
	root.SetFlagErrorFunc(flagError)
	root.Version = version.String()
	root.SetVersionTemplate("tko {{.Version}}\n")
	a.globals.flags(root.PersistentFlags())
	root.SetHelpCommand(helpCommand(root))
	root.SetUsageTemplate(strings.Replace(root.UsageTemplate(), "Global Flags:\n{{.InheritedFlags.FlagUsages | trimTrailingWhitespaces}}", "Flags of all commands: see {{.Root.CommandPath}} help flags", 1))
	root.AddCommand(
		a.aboutCommand(), a.versionCommand(), a.statusCommand(), a.waitCommand(), a.eventsCommand(), a.applyCommand(), a.diffCommand(), a.patchCommand(), a.labelCommand(), a.setCommand(), a.explainCommand(),
		a.templateCommand(), a.siteCommand(), a.deploymentCommand(), a.rolloutCommand(), a.pluginCommand(), a.dashboardCommand(),
		a.historyCommand(), a.blameCommand(), a.restoreCommand(), a.retentionCommand(),
		a.accessCommand(), a.credentialCommand(), a.auditCommand(), a.freezeCommand(), a.unfreezeCommand(), a.stopCommand(), a.resumeCommand(), a.backupCommand(), a.holdCommand(), a.bundleCommand(), a.queueCommand(), a.exportCommand(), a.importCommand(), a.gitopsCommand(), a.inventoryCommand(), a.catalogCommand(), a.subscriptionCommand(), a.viewCommand(), a.logCommand(), a.kubeCommand(), a.completionCommand(),
		manual.Command("1"),
		a.contextCommand(), a.loginCommand(), a.logoutCommand(), a.whoamiCommand(),
	)
	completeArguments(root)
	a.completeMetadataFlags(root, tko.KindSite)
	complete(root, "format", fixed(formats...))
	complete(root, "colorize", fixed("true", "false", "force"))
	complete(root, "grpc-ip-stack", fixed("dual", "ipv6", "ipv4"))
	complete(root, "grpc-format", fixed("cbor", "yaml"))
	return root
}

// helpCommand returns the command that prints the help of another one.
func helpCommand(root *cobra.Command) *cobra.Command {
	return &cobra.Command{
		Use: "help [COMMAND]", Short: "Help about any command, or about the flags of all commands (tko help flags)",
		RunE: func(_ *cobra.Command, args []string) error {
			if len(args) == 1 && args[0] == "flags" {
				root.Printf("The flags of all commands:\n%s", root.PersistentFlags().FlagUsages())
				return nil
			}
			cmd, rest, err := root.Find(args)
			switch {
			case err != nil:
				return usageError(root, err)
			case len(rest) > 0:
				return unknownCommand(cmd, rest[0])
			}
			return cmd.Help()
		},
	}
}

// unknownCommand returns the error of a mistyped command, with the likely ones. rest are its
// arguments.
func unknownCommand(above *cobra.Command, name string, rest ...string) error {
	err := fmt.Errorf("unknown command %q", above.CommandPath()+" "+name)
	if above.SuggestionsMinimumDistance == 0 {
		above.SuggestionsMinimumDistance = 2
	}
	if meant := foreignCommand(above.Root(), append([]string{name}, rest...)); meant != "" && !above.HasParent() {
		err = fmt.Errorf("%w: did you mean %s?", err, meant)
	} else if similar := above.SuggestionsFor(name); len(similar) > 0 && foreignVerbs[name] == [2]string{} { // get isn't set
		err = fmt.Errorf("%w: did you mean %s?", err, strings.Join(similar, " or "))
	}
	return usageError(above, err)
}

// group returns a command that only holds other commands.
func group(use, short string, commands ...*cobra.Command) *cobra.Command {
	cmd := &cobra.Command{
		Use:   use,
		Short: short,
		Args:  cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return cmd.Help()
			}
			return unknownCommand(cmd, args[0], args[1:]...)
		},
	}
	cmd.AddCommand(commands...)
	return cmd
}

// completeArguments completes commands that don't state their arguments: those whose usage
// names none accept none, and arguments are no names of files.
func completeArguments(cmd *cobra.Command) {
	if cmd.Args == nil && !strings.Contains(cmd.Use, " ") {
		cmd.Args = arguments(0, 0)
	}
	if cmd.ValidArgsFunction == nil {
		cmd.ValidArgsFunction = cobra.NoFileCompletions
	}
	for _, below := range cmd.Commands() {
		completeArguments(below)
	}
}

// fileNames completes arguments that are names of files.
var fileNames = cobra.FixedCompletions(nil, cobra.ShellCompDirectiveDefault)

// arguments returns a check of the number of arguments; most is -1 for any number.
func arguments(least, most int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if len(args) >= least && (most < 0 || len(args) <= most) {
			return nil
		}
		var err error
		switch {
		case most == 0:
			err = fmt.Errorf("%s takes no arguments, but got %q", cmd.CommandPath(), args[0])
		case len(args) < least:
			err = fmt.Errorf("too few arguments: use %s", usage(cmd))
		default:
			err = fmt.Errorf("unexpected argument %q: use %s", args[most], usage(cmd))
		}
		return usageError(cmd, err)
	}
}

// usage returns a command with its arguments, as in its help.
func usage(cmd *cobra.Command) string { return cmd.Parent().CommandPath() + " " + cmd.Use }
