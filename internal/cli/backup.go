package cli

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/api/tkopb"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/printable"
)

func (a *app) backupCommand() *cobra.Command {
	return &cobra.Command{
		Use: "backup FILE", Short: "Write everything in the store to an archive",
		Long: `Write everything in the store of the server to an archive, as of one moment, while others write:
entities with their history, conditions, plugins, rights, the audit log, GitOps sources and the
states of targets. FILE must not exist; - is the standard output.

It needs the right backup, and is recorded in the audit log: the archive has everything, also the
values of Secrets. Encrypted packages stay encrypted, and so do their keys; the key file of the
server isn't in the archive.

To restore an archive, stop the servers and use tko-server restore, on the machine of a server.
Check an archive with tko-server backup --verify.`,
		Example: "  tko backup tko-2026-01-31.backup",
		Args:    arguments(1, 1), ValidArgsFunction: fileNames,
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			size := &counter{}
			err := archive.NewFile(args[0], a.streams.Out, func(w io.Writer) error {
				size.to = w
				return s.explain(ctx, s.Admin().Backup(ctx, size))
			})
			if err == nil {
				a.notice("backed up %d bytes", size.n)
			}
			return err
		}),
	}
}

// A counter counts what is written.
type counter struct {
	to io.Writer
	n  int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.to.Write(p)
	c.n += int64(n)
	return n, err
}

const holdHelp = `Work that is held after a restore.

A restored store may be older than the sites: what was deployed since the backup is there, and
the store doesn't know it. So after a restore nothing is scheduled, prepared or synchronised
until it is released, in steps:

  1. tko hold list                          shows what is held
  2. tko hold release --queues              prepares, synchronises and sends again: the store changes,
                                            and no site does
  3. tko hold release 'emea/lagos'          applies what the store has to some sites; what the
                                            store doesn't have stays there
  4. tko hold release 'emea/lagos' --remove lets the sites be as the store has them: deployments
                                            that it doesn't have are removed

It needs the right backup. Sites are selected by patterns of their IDs; ** is all.`

func (a *app) holdCommand() *cobra.Command {
	cmd := group("hold", "Work that is held after a restore", a.holdList(), a.holdRelease())
	cmd.Long = holdHelp
	return cmd
}

var holdView = view[*tkopb.Hold]{
	id: func(h *tkopb.Hold) string { return h.GetQueue() + " " + h.GetKey() },
	row: func(h *tkopb.Hold) map[string]any {
		return map[string]any{"queue": h.GetQueue(), "key": h.GetKey(), "mode": h.GetMode()}
	},
	columns: []column[*tkopb.Hold]{
		{name: "QUEUE", text: (*tkopb.Hold).GetQueue},
		{name: "SITE", text: (*tkopb.Hold).GetKey},
		{name: "MODE", text: (*tkopb.Hold).GetMode},
	},
}

func (a *app) holdList() *cobra.Command {
	return &cobra.Command{
		Use: "list", Short: "List the work that is held",
		Long:    "List the work that is held: of a queue as a whole, or of sites. In the mode held, no worker\ngets it; in the mode keep, sites are reconciled, and nothing that the store doesn't have is removed.",
		Example: "  tko hold list -o yaml",
		RunE: a.run(func(ctx context.Context, s *session, _ []string) error {
			return list(ctx, s, holdView, nil, s.Admin().Holds)
		}),
	}
}

// confirmRemoval returns an error unless the user confirms that sites may lose what the
// store doesn't have.
func (a *app) confirmRemoval(sites, confirmed int) error {
	text := count(sites, "site", "sites")
	switch {
	case sites == 0 || tko.Consents(confirmed, sites):
	case confirmed != 0:
		return tko.Errorf(errUsage, "--confirm %d, and this is for %s: look at them (--dry-run), and confirm their number", confirmed, text)
	case !a.interactive:
		return tko.Errorf(errUsage, "nothing was released: with --remove, %s may lose what the store doesn't have: confirm it with --confirm %d", text, sites)
	case !a.ask("This lets %s lose what the store doesn't have. Continue?", text):
		return errNotConfirmed
	}
	return nil
}

func release(ctx context.Context, s *session, m *tkopb.ReleaseHolds) (*tkopb.ReleaseHoldsResponse, error) {
	return call(ctx, s, func(ctx context.Context) (*tkopb.ReleaseHoldsResponse, error) { return s.Admin().ReleaseHolds(ctx, m) })
}

func (a *app) holdRelease() *cobra.Command {
	var confirm int
	m := &tkopb.ReleaseHolds{}
	cmd := &cobra.Command{
		Use: "release [SITE-PATTERN...]", Short: "Release held work",
		Long:    holdHelp,
		Example: "  tko hold release --queues\n  tko hold release 'emea/**' --dry-run\n  tko hold release 'emea/**'\n  tko hold release 'emea/**' --remove",
		RunE: a.run(func(ctx context.Context, s *session, args []string) error {
			m.Sites = args
			if m.GetRemove() && !m.GetDryRun() {
				would, err := release(ctx, s, &tkopb.ReleaseHolds{Sites: args, Queues: m.GetQueues(), Remove: true, DryRun: true})
				if err != nil {
					return err
				}
				if err := a.confirmRemoval(len(would.GetSites()), confirm); err != nil {
					return err
				}
			}
			released, err := release(ctx, s, m)
			if err != nil {
				return err
			}
			for _, name := range released.GetQueues() {
				fmt.Fprintln(a.out, "queue", printable.Text(name))
			}
			for _, name := range released.GetSites() {
				fmt.Fprintln(a.out, printable.Text(name))
			}
			a.notice("%s %s and %s", either(m.GetDryRun(), "would release", "released"), count(len(released.GetQueues()), "queue", "queues"), count(len(released.GetSites()), "site", "sites"))
			return nil
		}),
	}
	cmd.Flags().BoolVar(&m.Queues, "queues", false, "preparing and GitOps sources, as a whole")
	cmd.Flags().BoolVar(&m.Remove, "remove", false, "also remove from sites what the store doesn't have")
	cmd.Flags().IntVar(&confirm, "confirm", 0, "`number` of sites that --remove is for, an upper bound: a lower one is refused, and one that is higher by more than a tenth and 100; needed without a terminal")
	dryRunFlag(cmd.Flags(), &m.DryRun)
	return cmd
}
