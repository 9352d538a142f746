package tkoserver

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/record"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/internal/store/relational"
	"github.com/tko-orchestrator/tko/internal/version"
)

// A storeOf is the store of a command, and whether other users may read its file.
type storeOf struct {
	secret.Text

	readable bool
	program  Program
}

// store returns the store of commands that is not set yet.
func (p Program) store() storeOf { return storeOf{Text: "sqlite:tko.db", program: p} }

// config returns the settings with which the store is opened.
func (s storeOf) config() *config.Config {
	return &config.Config{Store: s.Text, StoreReadable: s.readable, StoreWait: time.Minute}
}

// storeFlag adds the flags of a command that opens the store. The command reads its flags
// from the environment, too.
func storeFlag(c *cobra.Command, where *storeOf, usage string) {
	c.Flags().Var(&where.Text, "store", usage)
	c.Flags().BoolVar(&where.readable, "store-readable", false, "open a SQLite file that other users of this machine may read")
	c.Flags().Lookup("store").DefValue = string(where.Text)
	c.PreRunE = func(c *cobra.Command, _ []string) error { return config.Load(c.Flags(), os.LookupEnv, "") }
}

// openArchiver opens a store, which may have an incomplete restore. A server may use a
// SQLite file meanwhile if exclusive is false.
func openArchiver(ctx context.Context, where storeOf, exclusive bool) (record.Store, error) {
	if path, ok := strings.CutPrefix(string(where.Text), "sqlite:"); ok && !exclusive {
		if _, err := os.Stat(path); err != nil {
			return nil, tko.Errorf(tko.ErrInvalid, "the store --store=%s can't be read: %w", where.Text, err)
		}
	}
	return where.program.openStoreAs(ctx, where.config(), slog.New(slog.DiscardHandler), exclusive)
}

func (p Program) backupCommand() *cobra.Command {
	where := p.store()
	var verify bool
	command := &cobra.Command{
		Use: "backup FILE", Short: "Write everything in the store to an archive, while servers run", Args: cobra.ExactArgs(1),
		Long: `Write everything in the store to an archive, as of one moment, while servers run: entities with their history,
conditions, plugins, rights, the audit log, GitOps sources and the states of targets. FILE must not exist; - is
the standard output. The archive doesn't depend on the database: what was backed up from SQLite can be restored
into PostgreSQL, and the other way round.

The archive has everything in the store, so it is as secret as the store. Packages that are encrypted stay encrypted
in it, and so are their keys: without the file of --encryption-key they are lost. Keep that file apart.

Clients with the right backup can do the same through a server: tko backup FILE.`,
		Example: "  tko-server backup --store=postgres://tko@db/tko tko-2026-01-31.backup\n  tko-server backup --verify tko-2026-01-31.backup",
		RunE: func(c *cobra.Command, args []string) error {
			if verify {
				return verifyArchive(c, args[0])
			}
			store, err := openArchiver(c.Context(), where, false)
			if err != nil {
				return err
			}
			defer func() { _ = store.Close() }()
			from, err := able[archiver](store, "be backed up")
			if err != nil {
				return err
			}
			var summary archive.Summary
			err = archive.NewFile(args[0], c.OutOrStdout(), func(w io.Writer) (err error) {
				summary, err = from.Archive(c.Context(), w, version.String())
				return err
			})
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "backed up %s\n", describe(summary))
			return nil
		},
	}
	storeFlag(command, &where, "store, as for tko-server")
	command.Flags().BoolVar(&verify, "verify", false, "check that FILE is a complete archive, without a store")
	return command
}

func describe(s archive.Summary) string {
	return fmt.Sprintf("%d rows as of position %d (%s), SHA-256 %s", s.Total(), s.Manifest.Position, s.Manifest.Created.Format(time.RFC3339), s.Digest)
}

func verifyArchive(c *cobra.Command, name string) error {
	file, err := openFile(c, name)
	if err != nil {
		return err
	}
	defer file.Close() //nolint:errcheck // it was only read
	summary, err := archive.Read(file, archive.Handlers{})
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	_, _ = fmt.Fprintf(c.ErrOrStderr(), "%s is complete: %s\n", name, describe(summary))
	return nil
}

func openFile(c *cobra.Command, name string) (io.ReadCloser, error) {
	if name == "-" {
		return io.NopCloser(c.InOrStdin()), nil
	}
	return os.Open(name) //nolint:gosec // the operator names the file
}

func (p Program) restoreCommand() *cobra.Command {
	where := p.store()
	var rights string
	command := &cobra.Command{
		Use: "restore FILE", Short: "Fill an empty store from an archive", Args: cobra.ExactArgs(1),
		Long: `Fill an empty store from an archive of tko-server backup or tko backup. Stop all servers on the store before. The
archive is checked as a whole before anything is written. If the restore is interrupted, servers refuse the store,
and a second restore begins anew. FILE may be - for the standard input, which is checked while it is restored.

A backup has the rights of its time: people who have left since then have theirs again. So --access must be given if
there are any: "backup" restores them, "none" leaves out roles' bindings, policies and approvals (then run tko-server access
init). Freezes and registered GitOps sources are restored in both cases.

After a restore, clients that watch begin anew, and modification tokens are void. Sites may be newer than the store.
So nothing is scheduled, prepared or synchronised until an administrator releases it: see tko hold --help. Agents of
sites are refused until the store is promoted, by tko-server promote or the first release of a site. Start servers with the same --encryption-key as before if packages were encrypted.`,
		Example: "  tko-server restore --store=postgres://tko@db/tko --access=backup tko-2026-01-31.backup",
		RunE: func(c *cobra.Command, args []string) error {
			if rights != "" && rights != "backup" && rights != "none" {
				return tko.Errorf(tko.ErrInvalid, "--access=%s: use backup or none", rights)
			}
			if args[0] != "-" { // first, so that a damaged archive changes nothing
				if err := verifyArchive(c, args[0]); err != nil {
					return err
				}
			}
			file, err := openFile(c, args[0])
			if err != nil {
				return err
			}
			defer file.Close() //nolint:errcheck // it was only read
			store, err := openArchiver(c.Context(), where, true)
			if err != nil {
				return err
			}
			defer func() { _ = store.Close() }()
			to, err := able[archiver](store, "be restored")
			if err != nil {
				return err
			}
			summary, err := to.Restore(c.Context(), file, relational.Restore{
				WithoutAccess: rights == "none",
				Started: func(m archive.Manifest) error {
					if m.Access > 0 && rights == "" {
						return tko.Errorf(tko.ErrInvalid, "the archive has rights of clients, as of %s: give --access=backup to restore them, or --access=none to leave them out", m.Created.Format(time.RFC3339))
					}
					return nil
				},
			})
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(c.ErrOrStderr(), "restored %s\nNothing is scheduled, prepared or synchronised until it is released: start a server, then see tko hold list and tko hold release --help.\nAgents of sites are refused until tko-server promote, or the first release of a site: from then on they refuse the store that the backup is of.\n", describe(summary))
			if summary.Manifest.Sealed {
				_, _ = fmt.Fprintln(c.ErrOrStderr(), "Packages are encrypted: start servers with the --encryption-key of the store that was backed up (check it with tko-server keys check).")
			}
			return nil
		},
	}
	storeFlag(command, &where, "store, as for tko-server")
	command.Flags().StringVar(&rights, "access", "", "rights of clients: backup (as in the archive) or none (freezes and sources are restored all the same)")
	return command
}

// logHolds logs how much work is held after a restore, and whether agents are refused.
func (s *server) logHolds(ctx context.Context) {
	holds, err := s.store.Holds(ctx)
	if err != nil {
		s.log.WarnContext(ctx, "the work that is held after a restore can't be read", "err", err)
		return
	}
	held := 0
	for _, h := range holds {
		if h.Mode == tko.HoldAll {
			held++
		}
	}
	if held > 0 {
		s.log.WarnContext(ctx, "the store was restored: sites are not scheduled, or nothing is prepared or synchronised, until tko hold release (see tko hold list)", "held", held)
	}
	if f, err := s.store.Fence(ctx); err != nil {
		s.log.WarnContext(ctx, "the fencing epoch of the store can't be read", "err", err)
	} else if f.Standby && len(s.agents) > 0 {
		s.log.WarnContext(ctx, "the store was restored: agents are refused until it is promoted (tko-server promote), or a site is released (tko hold release)")
	}
}
