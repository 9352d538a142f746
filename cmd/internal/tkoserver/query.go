package tkoserver

import (
	"encoding/json"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/gitops/database"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
)

// queryCommand returns the hidden command that runs a query of an inventory for tko
// inventory test, which has no drivers of databases. It reads the query from stdin, so
// that a password is in no argument, and writes the rows.
func queryCommand() *cobra.Command {
	return &cobra.Command{
		Use: remote.QueryCommand, Short: "Run the query of an inventory, for tko inventory", Args: noArguments, Hidden: true,
		RunE: func(command *cobra.Command, _ []string) error {
			var q remote.PlainQuery
			if err := json.NewDecoder(command.InOrStdin()).Decode(&q); err != nil {
				return tko.Errorf(tko.ErrInvalid, "read the query from stdin: %w", err)
			}
			rows, err := database.Query(command.Context(), q.Query())
			if err != nil {
				return err
			}
			_, err = fmt.Fprintf(command.OutOrStdout(), "%s", rows)
			return err
		},
	}
}
