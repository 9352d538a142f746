package tkoserver

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/identity"
)

// Limits of the lifetime of static tokens.
const (
	defaultTokenLife = 90 * 24 * time.Hour
	maxTokenLife     = 2 * 365 * 24 * time.Hour
)

// tokenCommand edits the file of static tokens. Servers read it again by
// themselves.
func tokenCommand() *cobra.Command {
	command := &cobra.Command{
		Use: "token", Short: "Manage the static tokens of --token-file",
		Long: `Static tokens are for clients that can get no others, such as scripts. A token file has their hashes, and
servers with --token-file read it again when it changes.`,
		Args: noArguments,
	}
	var file string
	command.PersistentFlags().StringVar(&file, "file", "", "token file (required)")
	_ = command.MarkPersistentFlagRequired("file") // the flag exists
	command.AddCommand(tokenAdd(&file), tokenRemove(&file), tokenList(&file))
	return command
}

func tokenAdd(file *string) *cobra.Command {
	var (
		groups  []string
		role    string
		life    time.Duration
		replace bool
	)
	command := &cobra.Command{
		Use: "add NAME", Short: "Make a token, and print it: it can't be shown again", Args: cobra.ExactArgs(1),
		Example: "  tko-server token add --file=tokens ci --groups=automation > ci.token\n  tko-server token add --file=tokens preparer-1 --role=preparer > preparer.token",
		RunE: func(command *cobra.Command, args []string) error {
			if life <= 0 || life > maxTokenLife {
				return tko.Errorf(tko.ErrInvalid, "--expires-in is %s: use more than 0 and at most %s", life, maxTokenLife)
			}
			token, err := authn.AddToken(*file, authn.Entry{Name: args[0], Expires: time.Now().Add(life), Groups: groups, Role: role}, replace)
			if err != nil {
				return err
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), token)
			return err
		},
	}
	flags := command.Flags()
	flags.StringSliceVar(&groups, "groups", nil, "groups of the token's holder")
	flags.StringVar(&role, "role", "", "for a controller in another process: its role, "+strings.Join(identity.Roles(), ", "))
	flags.DurationVar(&life, "expires-in", defaultTokenLife, "lifetime of the token")
	flags.BoolVar(&replace, "replace", false, "replace the token of that name, which ends at once")
	return command
}

func tokenRemove(file *string) *cobra.Command {
	return &cobra.Command{
		Use: "remove NAME", Short: "Remove a token: it ends at once", Args: cobra.ExactArgs(1), Example: "  tko-server token remove --file=tokens ci",
		RunE: func(_ *cobra.Command, args []string) error { return authn.RemoveToken(*file, args[0]) },
	}
}

func tokenList(file *string) *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the names of the tokens, and when they expire", Args: noArguments, Example: "  tko-server token list --file=tokens",
		RunE: func(command *cobra.Command, _ []string) error {
			entries, err := authn.Tokens(*file)
			if err != nil {
				return err
			}
			for _, e := range entries {
				more := ""
				if len(e.Groups) > 0 {
					more += " groups=" + strings.Join(e.Groups, ",")
				}
				if e.Role != "" {
					more += " role=" + e.Role
				}
				if time.Now().After(e.Expires) {
					more += " expired"
				}
				if _, err := fmt.Fprintf(command.OutOrStdout(), "%s %s%s\n", e.Name, e.Expires.Format(time.RFC3339), more); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
