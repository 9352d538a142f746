package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/agent"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// enrollAgain is the time until an agent without a certificate calls again.
const enrollAgain = 10 * time.Second

// runFlags are the flags of tko-agent run.
type runFlags struct {
	placeFlags

	server   string
	ca, name string
	token    string
	interval time.Duration
}

func runCommand(folder *string, log *slog.Logger, level *slog.LevelVar) *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use: "run --server HOST:PORT --ca FILE --token-file FILE", Short: "Call a server, and apply what it says",
		Long: `Call a server, and apply what the site shall have, until the command is interrupted. The site is that of
the token, which tko site enroll made: with it, the agent gets a certificate, which it keeps in its
folder and renews by itself. The token is not needed again.

Without a connection, the agent goes on with what the site shall have as of the last connection, and
corrects what others change. It connects again by itself.

The place is one of a cluster (--kubeconfig, or --in-cluster) and a bare repository of git on this
machine (--repository), which gets the same files as the repository of a site of a server.

The command can be interrupted or killed at any time: called again, it goes on.`,
		Example: "  tko-agent run --server tko.example.com:50060 --ca ca.crt --token-file site.token --in-cluster",
		Args:    exactly(0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level.Set(slog.LevelInfo)
			return flags.run(cmd.Context(), *folder, log)
		},
	}
	f := cmd.Flags()
	f.StringVar(&flags.server, "server", "", "`address` of the server for agents (its --listen-agents)")
	f.StringVar(&flags.ca, "ca", "", "`file` of the authority of the server's certificate (default: those of the system)")
	f.StringVar(&flags.name, "server-name", "", "`name` in the server's certificate (default: that of --server)")
	f.StringVar(&flags.token, "token-file", "", "`file` of the token of tko site enroll; it is read when the agent has no valid certificate")
	f.DurationVar(&flags.interval, "interval", agent.DefaultInterval, "`time` between two corrections of what others have changed")
	flags.flags(f)
	return cmd
}

func (f *runFlags) run(ctx context.Context, folder string, log *slog.Logger) error {
	if _, _, err := net.SplitHostPort(f.server); err != nil {
		return &usageError{tko.Errorf(tko.ErrInvalid, "name the server with --server HOST:PORT, not %q", f.server)}
	}
	if f.interval < time.Second {
		return &usageError{tko.Errorf(tko.ErrInvalid, "--interval is %s: use at least 1s", f.interval)}
	}
	if err := f.complete(log); err != nil {
		return err
	}
	secure, err := certs.Client(certs.ClientOptions{CA: f.ca, ServerName: f.name})
	if err != nil {
		return &usageError{err}
	}
	server := agent.Server{Address: f.server, TLS: secure, TokenFile: f.token}
	for {
		err := agent.Enroll(ctx, folder, server, false)
		if ctx.Err() != nil {
			return nil
		}
		if err == nil {
			break
		}
		if a, openErr := agent.Open(folder, log); openErr == nil { // it was enrolled before, and goes on without a connection
			log.WarnContext(ctx, "the agent has no valid certificate", "err", err)
			a.Close()
			break
		}
		if !errors.Is(err, tko.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
			return err
		}
		log.WarnContext(ctx, "the server can't be reached to enroll; trying again", "server", f.server, "err", err)
		if err := pause.For(ctx, pause.About(enrollAgain, 0.5)); err != nil {
			return nil // the command was interrupted
		}
	}
	a, err := agent.Open(folder, log)
	if err != nil {
		return err
	}
	defer a.Close()
	return a.Run(ctx, f.place, agent.RunOptions{Server: server, Interval: f.interval})
}
