package main

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"sync"

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/client"
	"github.com/tko-orchestrator/tko/cmd/internal/wiring"
	"github.com/tko-orchestrator/tko/internal/certs"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/gitops"
	"github.com/tko-orchestrator/tko/internal/gitops/flux"
	"github.com/tko-orchestrator/tko/internal/identity"
	"github.com/tko-orchestrator/tko/internal/kubeapi"
	"github.com/tko-orchestrator/tko/internal/kubeapi/remote"
	"github.com/tko-orchestrator/tko/internal/logging"
	"github.com/tko-orchestrator/tko/internal/metrics"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/plugin/pod"
	kubetarget "github.com/tko-orchestrator/tko/internal/schedule/kubernetes"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/internal/sibling"
	"github.com/tko-orchestrator/tko/internal/trail"
)

// A host holds what the server asked for at the start, and makes the rest when it is
// first called.
type host struct {
	settings wiring.KubernetesSettings
	log      *slog.Logger
	metrics  *metrics.Metrics
	server   *sibling.Peer

	catalog *remote.Catalog
	api     *kubeapi.Server      // nil without the Kubernetes API
	cluster kubernetes.Interface // of Events; nil without them
	engine  *gitops.Controller   // nil without Flux sources
	flux    *flux.Controller
	hooks   []net.Listener
	certs   *certs.Server // of the listeners of hooks; nil without TLS
	fail    chan error    // receives errors that end the program

	newTarget func() *kubetarget.Target
	pods      *pod.Executor
	mu        sync.Mutex
	target    *kubetarget.Target // nil before the first call

	enqueued sync.WaitGroup
}

// newHost builds all that the settings ask for. ctx ends with the program.
func newHost(ctx context.Context, parent *sibling.Parent, settings wiring.KubernetesSettings, counted *metrics.Metrics, log *slog.Logger) (*host, error) {
	c := settings.Config
	h := &host{
		settings: settings, log: log, metrics: counted, server: parent.Peer, fail: make(chan error, 1),
		pods: pod.New(pod.Options{Kubeconfig: c.PluginKubeconfig}), catalog: remote.New(ctx, parent.Peer),
	}
	guards, err := wiring.NewGuards(c)
	if err != nil {
		return nil, err
	}
	h.newTarget = func() *kubetarget.Target { return h.targetOf(ctx, guards) }
	if settings.API {
		if err := h.newAPI(ctx, parent); err != nil {
			return nil, err
		}
	}
	if settings.GitOps {
		if err := h.newGitOps(parent, guards); err != nil {
			return nil, err
		}
	}
	return h, nil
}

// newAPI makes the Kubernetes API, and a client of the cluster that gets Events.
func (h *host) newAPI(ctx context.Context, parent *sibling.Parent) error {
	listeners, err := parent.Listeners(wiring.ListenersAPI)
	if err != nil {
		return err
	}
	c := h.settings.Config
	h.api, err = kubeapi.New(ctx, h.catalog, kubeapi.Options{
		Listeners: listeners, CertFile: c.KubernetesCert, KeyFile: c.KubernetesKey, Trusting: c.KubernetesTrustEverybody, Kubeconfig: c.KubernetesKubeconfig,
		Audit: kubeapi.Audit{
			PolicyFile: c.KubernetesAudit.Policy, LogPath: c.KubernetesAudit.Log,
			MaxAge: c.KubernetesAudit.MaxAge, MaxBackups: c.KubernetesAudit.MaxBackups, MaxSize: c.KubernetesAudit.MaxSize,
		},
		Watches:  kubeapi.WatchLimits{Rate: c.RequestsPerClient, User: c.StreamsPerClient, Total: c.Streams, Slow: c.SlowWatch},
		Observer: h.metrics.API("kubernetes", kubeapi.LimitNames()...),
		Log:      h.log.With("component", logging.KubernetesAPI), Tracer: trail.TracerOf(ctx),
	})
	if err != nil || !c.KubernetesEvents || c.KubernetesTrustEverybody {
		return err
	}
	h.cluster, err = kubeapi.Cluster(c.KubernetesKubeconfig)
	return err
}

// newGitOps makes the controllers of the role gitops.
func (h *host) newGitOps(parent *sibling.Parent, guards wiring.Guards) error {
	c := &h.settings.Config.GitOps
	log := h.log.With("role", config.RoleGitOps, "component", logging.GitOps)
	data, err := h.connect(parent.Data)
	if err != nil {
		return err
	}
	if h.engine, err = wiring.GitOps(h.settings.Config, wiring.Host{Data: data, Worker: h.settings.Worker, Observer: h.metrics, Log: log}); err != nil {
		return err
	}
	cluster, err := clientcmd.BuildConfigFromFlags("", c.FluxKubeconfig) // without a kubeconfig, the cluster that this runs in
	if err != nil {
		return tko.Errorf(tko.ErrInvalid, "the cluster of Flux: %w", err)
	}
	h.flux, err = flux.New(cluster, h.engine, flux.Options{
		Namespaces: c.FluxNamespaces, Worker: h.settings.Worker, OSMOps: c.FluxAsItIs, NoCrossNamespaceRefs: c.FluxNoCrossNamespaceRefs, EventsAddress: c.FluxEvents,
		Fetch: flux.FetchOptions{Dir: c.Dir, Host: c.FluxArtifacts, Guard: guards.Remote}, Log: log,
	})
	if err != nil {
		return err
	}
	if h.certs, err = wiring.Certificates(&h.settings.Config.Identity, log); err != nil {
		return err
	}
	hooks, err := parent.Listeners(wiring.ListenersHooks)
	for _, l := range hooks {
		if h.certs != nil {
			l = h.certs.Listener(l, wiring.HTTPProtocol)
		}
		h.hooks = append(h.hooks, l)
	}
	return err
}

// connect returns a client of the data controller for the role gitops: over the server's connection if
// there is one.
func (h *host) connect(connection net.Conn) (*client.Client, error) {
	if connection == nil {
		return wiring.Connect(h.settings.Config, identity.RoleGitOps, nil)
	}
	var once sync.Once
	return wiring.Connect(h.settings.Config, identity.RoleGitOps, func(context.Context) (c net.Conn, err error) {
		err = errors.New("the connection to the server is broken")
		once.Do(func() { c, err = connection, nil })
		if err != nil {
			h.failed(err) // the server starts this program again
		}
		return c, err
	})
}

func (h *host) failed(err error) {
	select {
	case h.fail <- err:
	default:
	}
}

// targetOf makes the target for clusters.
func (h *host) targetOf(ctx context.Context, guards wiring.Guards) *kubetarget.Target {
	c := h.settings.Config
	return kubetarget.New(kubetarget.Options{
		Kubeconfigs: c.Kubeconfigs, Labelled: c.KubeconfigSecrets, LabelledIn: c.KubeconfigSecretsIn, Management: c.ManagementKubeconfig, InCluster: c.AllowInCluster, Proxies: c.ClusterProxies, Interval: c.ClusterInterval,
		Charts: c.Charts, Logins: c.ChartCredentials, ChartTimeout: c.ChartTimeout, Guard: guards.Git, Leash: guards.Leash,
		Watched: wiring.LimitOr(c.ClusterWatches), Log: h.log.With("role", config.RoleMetaScheduler, "component", logging.MetaScheduler),
		Enqueue: func(id tko.SiteID) {
			h.enqueued.Go(func() { // the caller must not wait
				if err := sibling.Call(ctx, h.server, wiring.EnqueueSites, []tko.SiteID{id}, nil); err != nil && ctx.Err() == nil {
					h.log.WarnContext(ctx, "can't enqueue a site after an event", "site", string(id), "err", err)
				}
			})
		},
	})
}

func (h *host) clusters() *kubetarget.Target {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.target == nil {
		h.target = h.newTarget()
	}
	return h.target
}

// methods are what the server calls.
func (h *host) methods() sibling.Endpoint {
	return sibling.Endpoint{
		wiring.ClustersSchedule: sibling.Unary(func(ctx context.Context, in wiring.ScheduleRequest) (out wiring.ScheduleResponse, err error) {
			out.Report, err = h.clusters().Schedule(wiring.Fence(ctx, h.server, in.Fence), in.Trigger, in.Site, in.Deployments, in.Held)
			out.Error = sibling.NewFailure(err)
			return out, nil
		}),
		wiring.ClustersCompare: sibling.Unary(func(ctx context.Context, in wiring.ScheduleRequest) (out wiring.CompareResponse, err error) {
			out.Found, err = h.clusters().Compare(ctx, in.Trigger, in.Site, in.Deployments, in.Held)
			out.Error = sibling.NewFailure(err)
			return out, nil
		}),
		wiring.ClustersLeave: sibling.Unary(func(ctx context.Context, in wiring.LeaveRequest) (out wiring.LeaveResponse, err error) {
			out.Outcome, out.Again, err = h.clusters().Leave(wiring.Fence(ctx, h.server, in.Fence), in.Former, in.Now, in.Site)
			out.Error = sibling.NewFailure(err)
			return out, nil
		}),
		wiring.ClustersObserve: sibling.Unary(func(ctx context.Context, in puller.Question) (puller.Report, error) {
			return h.clusters().Observe(ctx, in)
		}),
		wiring.ClustersStage: sibling.Unary(func(ctx context.Context, in wiring.StageRequest) (out wiring.StageResponse, err error) {
			out.Pull, err = h.clusters().Stage(wiring.Fence(ctx, h.server, in.Fence), in.Trigger, in.Pull)
			out.Error = sibling.NewFailure(err)
			return out, nil
		}),
		wiring.ClustersClose: sibling.Unary(func(context.Context, wiring.None) (wiring.None, error) {
			h.mu.Lock()
			t := h.target
			h.target = nil
			h.mu.Unlock()
			if t != nil {
				t.Close()
			}
			h.enqueued.Wait() // the server writes them before it stops
			return wiring.None{}, nil
		}),
		wiring.PodsRun: sibling.Unary(func(ctx context.Context, in plugin.PodCommand) (out wiring.PodResponse, err error) {
			out.Stdout, out.Stderr, err = h.pods.Run(ctx, in)
			out.Error = sibling.NewFailure(err)
			return out, nil
		}),
		wiring.EventsRecord: wiring.Until(func(ctx context.Context) error {
			if h.cluster == nil {
				return errors.New("there is no cluster for Events")
			}
			return kubeapi.NewRecorder(h.catalog, h.cluster.CoreV1().Events(kubeapi.EventNamespace), h.log.With("role", config.RoleData, "component", logging.KubernetesAPI)).Run(ctx)
		}),
		wiring.GitOpsRun: wiring.Until(h.runGitOps),
		wiring.MetricsEncode: sibling.Unary(func(context.Context, wiring.None) ([]byte, error) {
			return h.metrics.Encode()
		}),
	}
}

func (h *host) runGitOps(ctx context.Context) error {
	if h.engine == nil {
		return errors.New("there are no Flux sources")
	}
	all, ctx := errgroup.WithContext(ctx)
	all.Go(func() error { return h.engine.Run(ctx) })
	all.Go(func() error { return h.flux.Run(ctx) })
	if h.certs != nil && len(h.hooks) > 0 {
		all.Go(func() error {
			h.certs.Run(ctx)
			return nil
		})
	}
	for _, l := range h.hooks {
		all.Go(func() error { return wiring.ServeHooks(ctx, &h.settings.Config.GitOps, l, h.engine, h.log) })
	}
	return all.Wait()
}

// run serves until the context ends, and then ends all in order.
func (h *host) run(ctx context.Context, parent *sibling.Parent) error {
	serving, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	all, ended := errgroup.WithContext(ctx)
	if h.api != nil {
		all.Go(func() error { return h.api.Run(ended) })
	}
	all.Go(func() error {
		select {
		case err := <-h.fail:
			return err
		case <-ended.Done():
			return nil
		}
	})
	var calls sync.WaitGroup
	calls.Go(func() { _ = parent.Serve(serving, h.methods()) })
	err := all.Wait()
	stop()
	calls.Wait()
	if t := h.target; t != nil {
		t.Close()
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		return nil
	}
	return err
}
