package tkoserver

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/audit"
	"github.com/tko-orchestrator/tko/internal/authn"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/rights"
)

// localAdministrators returns the subjects that may break glass: the user of this
// process, and root.
func localAdministrators() []string {
	return []string{identity.Unix + strconv.Itoa(os.Getuid()), identity.Unix + "0"}
}

// logAccess logs how rights are enforced.
func (s *server) logAccess(ctx context.Context) {
	switch mode := s.config.AccessMode(); {
	case mode == string(rights.Report):
		s.log.WarnContext(ctx, "rights are reported and not enforced: every client has all rights (--access=report)")
	case mode == string(rights.Enforce):
		version, err := s.store.AccessVersion(ctx)
		if err == nil && version == 0 {
			s.log.WarnContext(ctx, "rights are enforced, and there is no administrator: run tko-server access init --store=... --admin=SUBJECT")
			return
		}
		s.log.InfoContext(ctx, "rights are enforced", "version", version)
	default:
		s.log.InfoContext(ctx, "rights are off: every client on this machine has all rights (--access)")
	}
	if role := s.config.Access.Anonymous; role != "" && s.config.AccessMode() != string(rights.Off) {
		s.log.WarnContext(ctx, "clients on this machine without credentials have a role (--access-anonymous)", "role", role)
	}
}

// keepAudit starts what maintains the audit log: checkpoints, exports, retention.
func (s *server) keepAudit(ctx context.Context, group *errgroup.Group) error {
	a := s.config.Access
	if !a.Audit {
		return nil
	}
	group.Go(func() error {
		return s.service.KeepAudit(ctx, a.AuditKeep, a.AuditInterval, func(head audit.Head) {
			s.log.InfoContext(ctx, "audit checkpoint", "seq", head.Seq, "hash", head.Hash.String())
		})
	})
	if a.AuditExport == "" {
		return nil
	}
	host := hostname()
	send := fileSink(a.AuditExport)
	for prefix, secure := range syslogs {
		address, ok := strings.CutPrefix(a.AuditExport, prefix)
		if !ok {
			continue
		}
		if _, _, err := net.SplitHostPort(address); err != nil {
			return tko.Errorf(tko.ErrInvalid, "--audit-export=%s: use %sHOST:PORT", a.AuditExport, prefix)
		}
		send = (&audit.Syslog{Address: address, Host: host, TLS: secure}).Send
	}
	group.Go(func() error { return s.service.ExportAudit(ctx, sinkName(a.AuditExport), a.AuditInterval, send) })
	return nil
}

// syslogs are the prefixes of the addresses of syslog servers, and TLS if they have it.
var syslogs = map[string]*tls.Config{"syslog:": nil, "syslog+tls:": {MinVersion: tls.VersionTLS12}}

// sinkKind returns the kind of a sink of the audit log, for metrics.
func sinkKind(export string) string {
	for prefix := range syslogs {
		if strings.HasPrefix(export, prefix) {
			return "syslog"
		}
	}
	return "file"
}

// sinkName returns the name of this server's sink of the audit log.
func sinkName(export string) string { return hostname() + " " + export }

// fileSink appends records to a file, as JSON lines with their hashes.
func fileSink(path string) func(context.Context, []audit.Stored) error {
	return func(_ context.Context, records []audit.Stored) error {
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) //nolint:gosec // the operator names the file
		if err != nil {
			return err
		}
		var text []byte
		for _, r := range records {
			text = append(append(text, r.Line()...), '\n')
		}
		_, err = f.Write(text)
		if err == nil {
			err = f.Sync()
		}
		if closeErr := f.Close(); err == nil {
			err = closeErr
		}
		return err
	}
}

// setupTime is the lifetime of the one-time token for the first administrator.
const setupTime = 15 * time.Minute

// accessCommand returns the commands on the rules of access that need the store, and
// no server.
func (p Program) accessCommand() *cobra.Command {
	group := &cobra.Command{Use: "access", Short: "Initialise the rights of clients", Args: noArguments, RunE: func(c *cobra.Command, _ []string) error { return c.Help() }}
	var store, admin, why string
	var readable bool
	initialise := &cobra.Command{
		Use: "init", Short: "Make the first administrator", Args: noArguments,
		Long: `Make the first administrator of everything, in the store. It is refused once there is one: from then on,
administrators bind others with tko access bind.

Without --admin, print a one-time token, which is valid for 15 minutes: its holder binds the first administrator
with tko access bind, and can do nothing else with it. A SQLite file must not be in use by a server.

The subject is the verified name of a client: cert:NAME, spiffe://..., oidc:ALIAS:SUB, k8s:NAME, token:NAME or unix:UID.
tko about --whoami, or the audit log of a refused request, shows the name of a client.`,
		Example: "  tko-server access init --store=postgres://tko@db/tko --admin=oidc:corp:248289761001\n" +
			"  TKO_TOKEN=$(tko-server access init --store=postgres://tko@db/tko) tko access bind oidc:corp:248289761001 admin",
		RunE: func(command *cobra.Command, _ []string) error {
			if store == "" {
				store = os.Getenv("TKO_STORE")
			}
			if store == "" {
				return tko.Errorf(tko.ErrInvalid, "name the store: --store=DSN, as the server has it")
			}
			settings := config.Flags(pflag.NewFlagSet("", pflag.ContinueOnError))
			if err := settings.Store.Set(store); err != nil {
				return err
			}
			settings.StoreReadable = readable
			settings.StoreWait = 10 * time.Second
			opened, err := p.openStore(command.Context(), settings, slog.New(slog.DiscardHandler))
			if err != nil {
				return err
			}
			defer func() { _ = opened.Close() }()
			if admin == "" {
				token, hash := authn.NewSetupToken()
				if err := rights.AddSetupToken(command.Context(), opened, hash, time.Now().Add(setupTime)); err != nil {
					return err
				}
				_, _ = fmt.Fprintln(command.OutOrStdout(), token)
				return nil
			}
			b, err := rights.InitAccess(command.Context(), opened, admin, why, time.Time{})
			if err != nil {
				return err
			}
			_, _ = fmt.Fprintf(command.OutOrStdout(), "%s is administrator of everything (binding %s)\n", b.Subject, b.ID)
			return nil
		},
	}
	initialise.Flags().StringVar(&store, "store", "", "store of the state, as for tko-server (default: TKO_STORE)")
	initialise.Flags().BoolVar(&readable, "store-readable", os.Getenv("TKO_STORE_READABLE") == "true", "open a SQLite file that other users of this machine may read")
	initialise.Flags().StringVar(&admin, "admin", "", "subject of the administrator; without it, a one-time token is printed")
	initialise.Flags().StringVar(&why, "reason", "first administrator", "reason that is recorded")
	group.AddCommand(initialise)
	return group
}
