package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/flux"
	"github.com/tko-orchestrator/tko/internal/gitops/tree"
)

// gitOpsSources are those that the settings name.
func gitOpsSources(c *config.GitOps) ([]gitops.Spec, error) {
	var all []gitops.Settings
	if c.Sources != "" {
		read, err := gitops.ReadSettings(c.Sources)
		if err != nil {
			return nil, err
		}
		all = read
	}
	for _, text := range c.Git {
		name, address, ok := strings.Cut(text, "=")
		if !ok || strings.ContainsAny(name, "/:@") {
			name, address = "", text
		}
		all = append(all, gitops.Settings{
			Name: name, Path: c.Path, Interval: c.Interval.String(), Prune: &c.Prune,
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
		spec, err := settings.Spec(c.Dir)
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

// gitOps is the role gitops; nil if it has nothing to do.
func (s *server) gitOps(data *client.Client, worker string) (*gitOpsRole, error) {
	c := &s.config.GitOps
	specs, err := gitOpsSources(c)
	if err != nil {
		return nil, err
	}
	log := s.log.With("role", config.RoleGitOps)
	watcher, err := fluxWatcher(c, data, log)
	if err != nil || len(specs) == 0 && watcher == nil {
		return nil, err
	}
	tree.Sweep(c.Dir)
	o := gitops.Options{Worker: worker, Sources: specs, Lease: s.config.WorkLease, Connections: c.Connections, Log: log}
	if watcher != nil {
		o.Changed = watcher.Changed
	}
	return &gitOpsRole{gitops.New(data, o), watcher}, nil
}

// A gitOpsRole is the controller, and who follows a cluster for it, if any does.
type gitOpsRole struct {
	*gitops.Controller
	watcher *flux.Watcher
}

// Run works until the context ends.
func (r *gitOpsRole) Run(ctx context.Context) error {
	running, ctx := errgroup.WithContext(ctx)
	running.Go(func() error { return r.Controller.Run(ctx) })
	if r.watcher != nil {
		running.Go(func() error { return r.watcher.Run(ctx, r.Controller) })
	}
	return running.Wait()
}

// fluxWatcher follows the cluster that the settings name; nil for none.
func fluxWatcher(c *config.GitOps, data *client.Client, log *slog.Logger) (*flux.Watcher, error) {
	var cluster *rest.Config
	var err error
	switch {
	case c.FluxKubeconfig != "":
		cluster, err = clientcmd.BuildConfigFromFlags("", c.FluxKubeconfig)
	case c.FluxInCluster:
		cluster, err = rest.InClusterConfig()
	default:
		return nil, nil
	}
	if err != nil {
		return nil, tko.Errorf(tko.ErrInvalid, "the cluster of Flux' sources: %w", err)
	}
	return flux.New(data, flux.Options{
		Config: cluster, Namespaces: c.FluxNamespaces, AsItIs: c.FluxAsItIs, Events: c.FluxEvents, Host: c.FluxArtifacts, Dir: c.Dir, Log: log,
	})
}

// serveHooks serves webhooks until the context ends.
func (s *server) serveHooks(ctx context.Context, l net.Listener, controller *gitOpsRole) error {
	secret := func() (config.Secret, error) {
		text, err := os.ReadFile(s.config.GitOps.WebhookSecret)
		return config.Secret(strings.TrimSpace(string(text))), err
	}
	handler := gitops.Hooks(secret, controller.Names, controller.Call, s.log)
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
