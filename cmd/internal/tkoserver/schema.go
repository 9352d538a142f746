package tkoserver

import (
	"fmt"

	"github.com/spf13/cobra"
)

func (p Program) schemaCommand() *cobra.Command {
	where := p.store()
	var allow int64
	var ignoreRights bool
	command := &cobra.Command{
		Use: "schema", Short: "Show the schema of the store, or allow an older TKO to use it", Args: noArguments,
		Long: `Show the schema of the store, and which programs may use it. A store with an older schema is migrated, as by a server.

Servers of different versions may share a PostgreSQL database during an upgrade: the first new one migrates it, and the old
ones go on. An older TKO that checks this starts on a newer schema, too, if that is compatible. Others refuse it: those up to
schema 54, and those that don't know rollouts and freezes (before 70). To go back to one, allow it with --allow. Newer servers
may go on meanwhile; what only they know stays in the store.`,
		Example: "  tko-server schema --store=postgres://tko@db/tko\n  tko-server schema --store=postgres://tko@db/tko --allow=54",
		RunE: func(c *cobra.Command, _ []string) (err error) {
			store, err := openArchiver(c.Context(), where, false)
			if err != nil {
				return err
			}
			defer func() { _ = store.Close() }()
			versions, err := able[versioned](store, "be used by programs of several versions")
			if err != nil {
				return err
			}
			if allow > 0 {
				if err := versions.AllowOlder(c.Context(), allow, ignoreRights); err != nil {
					return err
				}
			}
			s, err := versions.Schema(c.Context())
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(c.OutOrStdout(), "schema: %d\nusable by programs of schema: %d and newer\n", s.Version, min(s.Compatible, s.Recorded))
			return nil
		},
	}
	storeFlag(command, &where, "store, as for tko-server")
	command.Flags().Int64Var(&allow, "allow", 0, "newest schema of an older TKO that may use the store")
	command.Flags().BoolVar(&ignoreRights, "ignore-rights", false, "allow it although that TKO ignores rights of clients")
	return command
}
