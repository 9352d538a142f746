package tkoserver

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/store/relational"
)

// promoteCommand makes a store the one that commands agents.
func (p Program) promoteCommand() *cobra.Command {
	where := p.store()
	var o relational.Promotion
	var fence bool
	command := &cobra.Command{
		Use: "promote", Short: "Let the agents of sites obey this store, and no copy of it", Args: cobra.NoArgs,
		Long: `Raise the fencing epoch of the store: agents that have connected to a server of it refuse the servers of all
stores with a lower epoch from then on, for good. Use it when a copy of the store takes over: one that a backup was
restored into in another region, or a replica of the database. It contacts no other region, and stops nothing there.

Agents that have not connected to this store yet obey the other one until they do: stop its servers if you can
reach them. To go back, restore a backup of this store there, and promote that one.

The store must not be used by servers if it is a SQLite file. With PostgreSQL, servers may run, and their agents
connect again. A restored store commands no agents before; the first release of a site (tko hold release) promotes
it, too. Without --fence-others, the command says what it would do, and changes nothing.`,
		Example: "  tko-server promote --store=postgres://tko@db.region-b/tko --reason='region A is lost' --fence-others",
		RunE: func(c *cobra.Command, _ []string) error {
			if o.After < 0 || len(o.Reason) > maxReason || strings.ContainsFunc(o.Reason, func(r rune) bool { return r < ' ' }) {
				return tko.Errorf(tko.ErrInvalid, "--after must not be negative, and --reason is one line of at most %d bytes", maxReason)
			}
			if limit := time.Now().AddDate(maxAhead, 0, 0); o.After > limit.UnixMicro() {
				return tko.Errorf(tko.ErrInvalid, "--after=%d is an epoch of more than %d years from now: copy it from the condition Connected of a site, or from the log of its agent", o.After, maxAhead)
			}
			store, err := openArchiver(c.Context(), where, true)
			if err != nil {
				return err
			}
			defer func() { _ = store.Close() }()
			before, err := store.Fence(c.Context())
			if err != nil {
				return err
			}
			if !fence {
				return tko.Errorf(tko.ErrInvalid, "nothing was changed: the fencing epoch of the store is %s. With --fence-others, it is raised, and agents that connect to this store refuse all others from then on, such as that of the other region: stop its servers first if you can", tko.EpochText(before.Epoch))
			}
			to, err := able[promoter](store, "be promoted")
			if err != nil {
				return err
			}
			after, err := to.Promote(c.Context(), o)
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "promoted: the fencing epoch was %s, and is %s\nAgents that connect to this store refuse all others with a lower epoch. Those that have not connected yet obey the other store: stop its servers.\n", tko.EpochText(before.Epoch), tko.EpochText(after.Epoch))
			return nil
		},
	}
	storeFlag(command, &where, "store, as for tko-server")
	command.Flags().Int64Var(&o.After, "after", 0, "`epoch` that agents have seen, as they report it: the new one is greater")
	command.Flags().StringVar(&o.Reason, "reason", "", "`text` for the audit log")
	command.Flags().BoolVar(&fence, "fence-others", false, "do it: agents refuse the other stores for good")
	return command
}

// The limits of a promotion.
const (
	maxReason = 500
	maxAhead  = 100 // years of an epoch
)
