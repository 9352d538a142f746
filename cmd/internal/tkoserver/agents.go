package tkoserver

import (
	"context"
	"io"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko/internal/agents"
	"github.com/tko-orchestrator/tko/internal/archive"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/logging"
	"github.com/tko-orchestrator/tko/internal/version"
)

// serveAgents serves the agents of sites that call home, until the APIs end.
func (s *server) serveAgents(apis context.Context, serving *errgroup.Group) error {
	if len(s.agents) == 0 {
		return nil
	}
	c := s.config
	authority, err := agents.ReadAuthority(c.Agents.CA, c.Agents.CAKey)
	if err != nil {
		return err
	}
	log := s.log.With("component", logging.API)
	secure, err := certs.NewServer(certs.Options{
		Cert: c.Identity.TLSCert, Key: c.Identity.TLSKey, ClientCA: c.Agents.CA, ClientAuth: certs.Request, Log: s.log.With("component", logging.Security),
	})
	if err != nil {
		return err
	}
	served := agents.New(s.service, authority, agents.Options{
		Validity: c.Agents.Certificate, Silence: c.Agents.Silence, Version: version.String(), Log: log,
		Observer: s.metrics.Agents(agents.ConnectionFirst, agents.ConnectionAgain, agents.ConnectionRefused, agents.ConnectionFenced),
	})
	api := served.GRPC(secure.Config("h2")) //nolint:contextcheck // each connection has a context of its own
	following, stop := context.WithCancel(context.WithoutCancel(apis))
	for _, l := range s.agents {
		serving.Go(func() error { return api.Serve(l) })
	}
	serving.Go(func() error { secure.Run(following); return nil })
	serving.Go(func() error { return served.Run(following) })
	serving.Go(func() error {
		defer stop()
		<-apis.Done()
		api.Stop() // agents connect again, to another server, or to this one when it is back
		return nil
	})
	log.InfoContext(apis, "serving agents", "addresses", addresses(s.agents))
	return nil
}

// agentsCACommand makes the authority of agents.
func agentsCACommand() *cobra.Command {
	return &cobra.Command{
		Use: "agents-ca FILE", Short: "Make the certificate authority of the agents of sites",
		Long: `Make the certificate authority of the agents of sites that call home: its certificate in FILE.crt, for
--agents-ca, and its key in FILE.key, for --agents-ca-key. Neither may exist. All servers of a store
have the same. It contacts no server.

To replace an authority, put the new certificate before the old one in the file of --agents-ca, and
remove the old one when all agents have renewed their certificates.`,
		Args: cobra.ExactArgs(1), Example: "  tko-server agents-ca agents",
		RunE: func(command *cobra.Command, args []string) error {
			cert, key, err := agents.NewAuthority(time.Now())
			if err != nil {
				return err
			}
			for _, file := range []struct {
				name string
				data []byte
			}{{args[0] + ".key", key}, {args[0] + ".crt", cert}} {
				if err := archive.NewFile(file.name, command.OutOrStdout(), func(w io.Writer) error {
					_, err := w.Write(file.data)
					return err
				}); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
