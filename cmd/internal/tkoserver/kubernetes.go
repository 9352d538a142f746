package tkoserver

import (
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/cmd/internal/wiring"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/gitops/database"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/kubeapi/remote"
	"github.com/tko-orchestrator/tko/internal/logging"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/sibling"
	"github.com/tko-orchestrator/tko/internal/work"
)

// prepareKubernetes makes the program tko-kubernetes. It must be called before
// anything may need it, and after the service is made, if there is one.
func (s *server) prepareKubernetes() {
	c := s.config
	settings := wiring.KubernetesSettings{
		Config: c, Worker: s.worker, Format: s.format, API: len(s.kube) > 0, GitOps: c.Has(config.RoleGitOps) && c.GitOps.FollowsFlux(),
	}
	o := sibling.Options{
		Name: wiring.Kubernetes, Purpose: wiring.KubernetesPurpose, Settings: settings, Required: settings.API || settings.GitOps,
		Files: map[string]sibling.Files{}, Methods: s.clusters.Methods(), Stdout: s.out.out, Stderr: s.out.err, Log: s.log.With("component", logging.Siblings),
	}
	o.Methods[wiring.LogLevels] = wiring.SendLevels(s.levels)
	if settings.API {
		o.Files[wiring.ListenersAPI] = files(s.kube)
		maps.Copy(o.Methods, remote.Methods(s.service, s.security.turns))
	}
	if settings.GitOps {
		o.Files[wiring.ListenersHooks] = files(s.hooks)
	}
	if s.inProcess != nil {
		o.Connect = s.forward
	}
	s.kubernetes = sibling.New(o)
	s.clusters.Program, s.pods.Program = s.kubernetes, s.kubernetes
}

// startKubernetes starts the program if the settings need it, and waits until it
// serves. Otherwise a site or a plugin starts it.
func (s *server) startKubernetes(ctx, apis context.Context, serving *errgroup.Group) error {
	serving.Go(func() error { return s.kubernetes.Run(apis) })
	if !s.kubernetes.Required() {
		return nil
	}
	_, err := s.kubernetes.Peer(ctx)
	return err
}

// files returns the files of listeners, which another process can inherit.
func files(listeners []net.Listener) sibling.Files {
	var all sibling.Files
	for _, l := range listeners {
		if f, ok := l.(*net.TCPListener); ok {
			all = append(all, f)
		}
	}
	return all
}

// forward connects another process to the data controller of this one, as this
// process's own controllers are connected.
func (s *server) forward(connection net.Conn) {
	inside, err := s.inProcess[identity.RoleGitOps].Dial()
	if err != nil {
		_ = connection.Close()
		return
	}
	var both sync.WaitGroup
	for _, pair := range [][2]net.Conn{{connection, inside}, {inside, connection}} {
		both.Go(func() {
			_, _ = io.Copy(pair[0], pair[1])
			_, _ = pair[0].Close(), pair[1].Close()
		})
	}
	both.Wait()
}

// events posts Kubernetes Events, if that is configured. One server per database
// does; if it ends, another one continues.
func (s *server) events(ctx context.Context, controllers *errgroup.Group) error {
	c := s.config
	if len(s.kube) == 0 || !c.KubernetesEvents || c.KubernetesTrustEverybody {
		return nil
	}
	loop := work.Loop{
		Client: s.service, Queue: tko.QueueEvents, Worker: s.worker, Concurrency: 1, Lease: c.WorkLease, Observer: s.metrics, Log: s.log.With("role", config.RoleData, "component", logging.KubernetesAPI),
		Do: func(claimed context.Context, _ tko.WorkItem) work.Result {
			following, stop := context.WithCancel(claimed)
			defer stop()
			defer context.AfterFunc(ctx, stop)()
			err := wiring.RunUntil(following, s.kubernetes, wiring.EventsRecord)
			if following.Err() != nil {
				return work.Result{Outcome: tko.WorkReleased}
			}
			return work.Result{Outcome: tko.WorkFailed, Err: err}
		},
	}
	if err := s.service.EnqueueEvents(ctx); err != nil {
		return err
	}
	controllers.Go(func() error { return loop.Run(ctx) })
	return nil
}

// gitOps starts the role gitops: here, or, with Flux sources, in the program
// tko-kubernetes.
func (s *server) gitOps(ctx context.Context, controllers *errgroup.Group, data *client.Client) error {
	c := s.config
	if c.GitOps.FollowsFlux() {
		controllers.Go(func() error { return s.runFlux(ctx) })
		return nil
	}
	engine, err := wiring.GitOps(c, wiring.Host{
		Data: data, Worker: s.worker, Observer: s.metrics, Databases: database.Query,
		Log: s.log.With("role", config.RoleGitOps, "component", logging.GitOps),
	})
	if err != nil {
		return err
	}
	controllers.Go(func() error { return engine.Run(ctx) })
	for _, l := range s.hooks {
		controllers.Go(func() error {
			return wiring.ServeHooks(ctx, &c.GitOps, s.security.listener(l, wiring.HTTPProtocol), engine, s.log)
		})
	}
	return nil
}

// fluxPause is the time before the role gitops runs again after its program ended.
const fluxPause = time.Second

// runFlux runs the role gitops in the other program until the context ends. It runs
// it again if the program ended.
func (s *server) runFlux(ctx context.Context) error {
	for {
		err := wiring.RunUntil(ctx, s.kubernetes, wiring.GitOpsRun)
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was asked to end
		}
		if !errors.Is(err, tko.ErrUnavailable) && s.kubernetes.Problem() == nil {
			return err
		}
		if pause.For(ctx, fluxPause) != nil {
			return nil //nolint:nilerr // ending the context is the way to stop
		}
	}
}
