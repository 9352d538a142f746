package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/agent"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/pause"
)

// enrollAgain is the time until an agent without a certificate calls again; it grows to maxEnrollAgain,
// since many may wait for an approval at the same time.
const (
	enrollAgain    = 10 * time.Second
	maxEnrollAgain = time.Minute
)

// runFlags are the flags of tko-agent run.
type runFlags struct {
	placeFlags

	servers  []string
	again    time.Duration
	ca, name string
	token    string
	site     string
	interval time.Duration
	owner    string
}

func runCommand(folder *string, log *slog.Logger, level *slog.LevelVar) *cobra.Command {
	var flags runFlags
	cmd := &cobra.Command{
		Use: "run --server HOST:PORT --ca FILE --token-file FILE", Short: "Call a server, and apply what it says",
		Long: `Call a server, and apply what the site shall have, until the command is interrupted. The site is that of
the token, which tko site enroll made: with it, the agent gets a certificate, which it keeps in its
folder and renews by itself. The token is not needed again. With a token for several sites, the agent
names its own with --site, and waits until tko site approve.

With several --server, the first one is preferred: the others are called if it doesn't serve the agent,
which returns to it when it does again. The agent remembers the greatest fencing epoch of their stores,
and refuses those with a lower one, such as of a region that another one has replaced (tko-server
promote); tko-agent status says which.

Without a connection, the agent goes on with what the site shall have as of the last connection, and
corrects what others change. It connects again by itself.

The place is one of a cluster (--kubeconfig, or --in-cluster) and a bare repository of git on this
machine (--repository), which gets the same files as the repository of a site of a server.

The owner of the site has the last word: the file of --owner can refuse changes, freeze the site, or
set the times at which it may be changed. It need not exist.

The command can be interrupted or killed at any time: called again, it goes on.`,
		Example: "  tko-agent run --server tko.example.com:50060 --ca ca.crt --token-file site.token --in-cluster",
		Args:    exactly(0), ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, _ []string) error {
			level.Set(slog.LevelInfo)
			return flags.run(cmd.Context(), *folder, log)
		},
	}
	f := cmd.Flags()
	f.StringArrayVar(&flags.servers, "server", nil, "`address` of the server for agents (its --listen-agents); may be repeated, the preferred one first")
	f.DurationVar(&flags.again, "return", agent.DefaultReturn, "`time` after which an agent that is connected to another server asks the preferred one whether it serves the agent again; it is spread")
	f.StringVar(&flags.ca, "ca", "", "`file` of the authority of the server's certificate (default: those of the system)")
	f.StringVar(&flags.name, "server-name", "", "`name` in the server's certificate (default: that of --server); with several, that of all")
	f.StringVar(&flags.token, "token-file", "", "`file` of the token of tko site enroll; it is read when the agent has no valid certificate")
	f.StringVar(&flags.site, "site", "", "`ID` of the site that this agent is of, for a token for several sites (tko site enroll --sites): it waits until it is approved")
	f.DurationVar(&flags.interval, "interval", agent.DefaultInterval, "`time` between two corrections of what others have changed")
	f.StringVar(&flags.owner, "owner", "", "`file` with which the owner of the site holds back changes (default: owner.yaml in the folder of --state)")
	flags.flags(f)
	return cmd
}

func (f *runFlags) run(ctx context.Context, folder string, log *slog.Logger) error {
	if err := f.checkServers(); err != nil {
		return &usageError{err}
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
	var servers []agent.Server
	for _, address := range f.servers {
		servers = append(servers, agent.Server{Address: address, TLS: secure, TokenFile: f.token, Site: tko.SiteID(f.site)})
	}
	if f.site != "" {
		if err := tko.CheckID("site", f.site); err != nil {
			return &usageError{err}
		}
	}
	said, again := "", enrollAgain
	for {
		err := enroll(ctx, folder, servers)
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
		if text := err.Error(); text != said {
			log.WarnContext(ctx, "the agent can't be enrolled yet; trying again", "server", strings.Join(f.servers, " "), "err", err)
			said = text
		}
		if err := pause.For(ctx, pause.About(again, 0.5)); err != nil {
			return nil // the command was interrupted
		}
		again = min(again*3/2, maxEnrollAgain)
	}
	a, err := agent.Open(folder, log)
	if err != nil {
		return err
	}
	defer a.Close()
	return a.Run(ctx, f.place, agent.RunOptions{Server: servers[0], Others: servers[1:], Return: f.again, Interval: f.interval, Owner: f.owner})
}

// checkServers checks the addresses of the servers.
func (f *runFlags) checkServers() error {
	if len(f.servers) == 0 {
		return tko.Errorf(tko.ErrInvalid, "name the server with --server HOST:PORT")
	}
	for i, address := range f.servers {
		if _, _, err := net.SplitHostPort(address); err != nil {
			return tko.Errorf(tko.ErrInvalid, "name the server with --server HOST:PORT, not %q", address)
		}
		if slices.Contains(f.servers[:i], address) {
			return tko.Errorf(tko.ErrInvalid, "--server names %q twice: name each server once, the preferred one first", address)
		}
	}
	if f.again < time.Second {
		return tko.Errorf(tko.ErrInvalid, "--return is %s: use at least 1s", f.again)
	}
	return nil
}

// enroll enrolls the agent at the first of the servers that does it. If none does, and one can't be
// reached or has the agent wait, it returns an error after which to call again.
func enroll(ctx context.Context, folder string, servers []agent.Server) error {
	var failed error
	for _, s := range servers {
		err := agent.Enroll(ctx, folder, s, false)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if failed == nil || errors.Is(err, tko.ErrUnavailable) {
			failed = err
		}
	}
	return failed
}
