package wiring

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/remote"
	"github.com/tko-orchestrator/tko/internal/gitops/sops"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
	"github.com/tko-orchestrator/tko/internal/secret"
	"github.com/tko-orchestrator/tko/internal/work"
)

// gitOpsSources returns the sources that the settings name.
func gitOpsSources(c *config.GitOps, access remote.Access) ([]gitops.Spec, error) {
	var all []gitops.Settings
	if c.Sources != "" {
		read, err := gitops.ReadSettings(c.Sources)
		if err != nil {
			return nil, err
		}
		all = read
	}
	rollout, err := gitops.ReadRollout(c.Rollout)
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "--git-rollout: %w", err)
	}
	for _, text := range c.Git {
		name, address, ok := strings.Cut(text, "=")
		if !ok || strings.ContainsAny(name, "/:@") {
			name, address = "", text
		}
		all = append(all, gitops.Settings{
			Name: name, Path: c.Path, Rollout: rollout, Interval: c.Interval.String(), Prune: &c.Prune,
			Budget: &gitops.BudgetSettings{Percent: c.BudgetPercent, Entities: c.BudgetEntities},
			Git: gitops.GitSettings{
				URL: address, Ref: c.Ref, Username: c.Username, PasswordFile: c.PasswordFile, TokenFile: c.TokenFile,
				SSHKeyFile: c.SSHKeyFile, KnownHostsFile: c.KnownHostsFile, CAFile: c.CAFile,
			},
		})
	}
	specs := make([]gitops.Spec, len(all))
	seen := map[string]bool{}
	for i, settings := range all {
		spec, err := settings.SpecWith(c.Dir, access)
		if err != nil {
			return nil, err
		}
		if seen[spec.Name] {
			return nil, tko.Errorf(tko.ErrInvalid, "two sources have the name %q: name them with --git NAME=URL", spec.Name)
		}
		seen[spec.Name] = true
		specs[i] = spec
	}
	return specs, nil
}

// Databases runs the queries of inventories.
type Databases func(ctx context.Context, q remote.Query) ([]byte, error)

// A Host is the program that runs a controller.
type Host struct {
	Data      *client.Client
	Worker    string // its name in leases
	Observer  work.Observer
	Log       *slog.Logger
	Databases Databases // nil: inventories can't be queries
}

// GitOps returns the controller of the role gitops.
func GitOps(all *config.Config, host Host) (*gitops.Controller, error) {
	c := &all.GitOps
	guards, err := NewGuards(all)
	if err != nil {
		return nil, err
	}
	access := remote.Access{Guard: guards.Remote, Leash: guards.Leash, Secrets: Secrets(all), HookKey: hookKey(c), Databases: host.Databases}
	specs, err := gitOpsSources(c, access)
	if err != nil {
		return nil, err
	}
	if _, err := sops.FileKeys(c.AgeKeys, c.PGPKeys); err != nil { // report problems at the start, not at the first encrypted file
		return nil, err
	}
	for i := range specs {
		if specs[i].From == nil {
			continue
		}
		specs[i].From = decrypting{Fetcher: specs[i].From, age: c.AgeKeys, pgp: c.PGPKeys}
	}
	tree.Sweep(c.Dir)
	return gitops.New(host.Data, gitops.Options{
		Worker: host.Worker, Sources: specs, Lease: all.WorkLease, Connections: c.Connections, Leash: guards.Leash, Log: host.Log, Observer: host.Observer,
		Registered: func(d tko.SourceDefinition) (gitops.Spec, error) {
			return gitops.DefinedSpec(d, c.Dir, gitops.Confined{Secrets: c.Secrets, Access: access})
		},
	}), nil
}

// decrypting opens revisions with encrypted files. The keys are in files that may
// change.
type decrypting struct {
	gitops.Fetcher
	age, pgp string
}

// Open returns a file system that decrypts files when they are read.
func (d decrypting) Open(_ context.Context, files *tree.Tree, _ string) (fs.FS, error) {
	keys, err := sops.FileKeys(d.age, d.pgp)
	if err != nil {
		return nil, err
	}
	return sops.FS(files, keys, gitops.Others), nil
}

// Certificates returns the TLS of all ports, which the caller reloads by its Run; nil
// without TLS.
func Certificates(c *config.Identity, log *slog.Logger) (*certs.Server, error) {
	if c.TLSCert == "" {
		return nil, nil //nolint:nilnil // there is no TLS
	}
	return certs.NewServer(certs.Options{
		Cert: c.TLSCert, Key: c.TLSKey, ClientCA: c.TLSClientCA, CRL: c.TLSCRL, ClientAuth: certs.ClientAuth(c.TLSClientAuth), Log: log,
	})
}

// HTTPProtocol is the protocol of the ports that serve HTTP.
const HTTPProtocol = "http/1.1"

// hookKey returns a function that reads the secret of webhooks.
func hookKey(c *config.GitOps) func() (secret.Text, error) {
	return func() (secret.Text, error) {
		if c.Webhook == "" {
			return "", tko.Errorf(tko.ErrInvalid, "the server has no webhooks: set --listen-webhook and --webhook-secret-file")
		}
		text, err := os.ReadFile(c.WebhookSecret)
		return secret.Text(strings.TrimSpace(string(text))), err
	}
}

// ServeHooks serves webhooks until the context ends.
func ServeHooks(ctx context.Context, c *config.GitOps, l net.Listener, controller *gitops.Controller, log *slog.Logger) error {
	handler := gitops.Hooks(hookKey(c), controller.Names, controller.Enqueue, log)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	return ServeHTTP(ctx, server, l)
}

// ServeHTTP serves until the context ends, or the server or the listener is closed.
func ServeHTTP(ctx context.Context, server *http.Server, l net.Listener) error {
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
