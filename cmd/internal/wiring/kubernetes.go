package wiring

import (
	"context"
	"crypto/rand"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/config"
	"github.com/tko-orchestrator/tko/internal/plugin"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/puller"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/internal/sibling"
	"github.com/tko-orchestrator/tko/krm"
)

// The program of all that needs a client of Kubernetes.
const (
	Kubernetes        = "tko-kubernetes"
	KubernetesPurpose = "the Kubernetes API (--kubernetes), sites that are Kubernetes clusters, Flux sources (--flux-kubeconfig, --flux-in-cluster) and plugins in pods"
)

// KubernetesSettings are the settings of that program.
type KubernetesSettings struct {
	Config *config.Config // without secrets
	Worker string         // name of the server's worker
	Format string         // of the log; not auto, so that both programs write the same
	API    bool           // serve the Kubernetes API
	GitOps bool           // run the role gitops, which has Flux sources
}

// The names of inherited listeners.
const (
	ListenersAPI   = "kubernetes"
	ListenersHooks = "webhook"
)

// The methods of the program, and the methods of the server (EnqueueSites, CheckFence, LogLevels).
const (
	ClustersSchedule = "clusters.Schedule"
	ClustersCompare  = "clusters.Compare"
	ClustersLeave    = "clusters.Leave"
	ClustersClose    = "clusters.Close"
	ClustersObserve  = "clusters.Observe"
	ClustersStage    = "clusters.Stage"
	PodsRun          = "pods.Run"
	EventsRecord     = "events.Record"
	GitOpsRun        = "gitops.Run"
	MetricsEncode    = "metrics.Encode"
	EnqueueSites     = "sites.Enqueue"
	CheckFence       = "fence.Check"
	LogLevels        = "log.Levels"
)

// None is an empty request or response.
type None struct{}

type (
	// ScheduleRequest is the request of ClustersSchedule and ClustersCompare.
	ScheduleRequest struct {
		Trigger     krm.Resource
		Site        tko.Site
		Deployments []tko.Deployment
		Held        []tko.DeploymentID
		Fence       string // of the call, for CheckFence
	}
	// LeaveRequest is the request of ClustersLeave.
	LeaveRequest struct {
		Fence  string
		Former krm.Resource
		Now    []krm.Resource
		Site   tko.Site
	}
	// StageRequest is the request of ClustersStage.
	StageRequest struct {
		Fence   string
		Trigger krm.Resource
		Pull    tko.SiteStaging
	}
)

type (
	// ScheduleResponse is the response of ClustersSchedule. The report is valid also with an error.
	ScheduleResponse struct {
		Report report.Report
		Error  *sibling.Failure
	}
	// FenceResponse is the response of CheckFence.
	FenceResponse struct{ Error *sibling.Failure }
	// CompareResponse is the response of ClustersCompare. The differences are valid also with an error.
	CompareResponse struct {
		Found report.Differences
		Error *sibling.Failure
	}
	// LeaveResponse is the response of ClustersLeave.
	LeaveResponse struct {
		Outcome report.Outcome
		Again   time.Duration
		Error   *sibling.Failure
	}
	// StageResponse is the response of ClustersStage.
	StageResponse struct {
		Pull  tko.SiteStaging
		Error *sibling.Failure
	}
	// PodResponse is the response of PodsRun. Stderr is valid also with an error.
	PodResponse struct {
		Stdout []byte
		Stderr string
		Error  *sibling.Failure
	}
)

// Clusters are the target for Kubernetes clusters, which is in another program.
type Clusters struct {
	trigger.Cluster

	Program *sibling.Program

	mu      sync.Mutex
	enqueue func(...tko.SiteID)
	fences  map[string]context.Context // of the calls under way
}

// fenced makes the fence of a context available to the program for the duration of a call. It
// returns its name.
func (c *Clusters) fenced(ctx context.Context) (name string, end func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name = rand.Text()
	if c.fences == nil {
		c.fences = map[string]context.Context{}
	}
	c.fences[name] = ctx //nolint:fatcontext // the contexts of calls, by name
	return name, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.fences, name)
	}
}

// checkFence checks the fence of a call. A call that has ended may begin nothing.
func (c *Clusters) checkFence(_ context.Context, name string) (FenceResponse, error) {
	c.mu.Lock()
	ctx, ok := c.fences[name]
	c.mu.Unlock()
	if !ok {
		return FenceResponse{sibling.NewFailure(errors.New("the call has ended"))}, nil
	}
	return FenceResponse{sibling.NewFailure(fence.Check(ctx))}, nil //nolint:contextcheck // of the call that the fence belongs to
}

// Fence returns a context with the fence of a call, for the program.
func Fence(ctx context.Context, server *sibling.Peer, name string) context.Context {
	return fence.With(ctx, func(ctx context.Context) error {
		var out FenceResponse
		if err := sibling.Call(ctx, server, CheckFence, name, &out); err != nil {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return fence.NewError(err)
		}
		return fence.NewError(out.Error.Err())
	})
}

// closed makes an error of a fence again of one that the program returned.
func closed(err error) error {
	if errors.Is(err, tko.ErrStopped) {
		return fence.NewError(err)
	}
	return err
}

// Enqueue sets the function that gets sites whose objects may have changed.
func (c *Clusters) Enqueue(to func(...tko.SiteID)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.enqueue = to
}

// Methods are the methods that the program calls.
func (c *Clusters) Methods() sibling.Endpoint {
	return sibling.Endpoint{CheckFence: sibling.Unary(c.checkFence), EnqueueSites: sibling.Unary(func(_ context.Context, ids []tko.SiteID) (None, error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		if c.enqueue != nil {
			c.enqueue(ids...)
		}
		return None{}, nil
	})}
}

// Schedule implements schedule.Clusters.
func (c *Clusters) Schedule(ctx context.Context, cluster krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Report, error) {
	if _, err := trigger.Read(cluster); err != nil { // a wrong resource needs no program
		return report.Report{}, err
	}
	name, end := c.fenced(ctx)
	defer end()
	var out ScheduleResponse
	err := call(ctx, c.Program, ClustersSchedule, ScheduleRequest{cluster, site, deployments, held, name}, &out)
	return out.Report, closed(errors.Join(err, out.Error.Err()))
}

// Compare returns what Schedule would change, and the orphans in the cluster.
func (c *Clusters) Compare(ctx context.Context, cluster krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Differences, error) {
	if _, err := trigger.Read(cluster); err != nil {
		return report.Differences{}, err
	}
	var out CompareResponse
	err := call(ctx, c.Program, ClustersCompare, ScheduleRequest{cluster, site, deployments, held, ""}, &out)
	return out.Found, errors.Join(err, out.Error.Err())
}

// Leave implements schedule.Clusters.
func (c *Clusters) Leave(ctx context.Context, former krm.Resource, now []krm.Resource, site tko.Site) (v report.Outcome, again time.Duration, err error) {
	name, end := c.fenced(ctx)
	defer end()
	var out LeaveResponse
	err = call(ctx, c.Program, ClustersLeave, LeaveRequest{name, former, now, site}, &out)
	return out.Outcome, out.Again, closed(errors.Join(err, out.Error.Err()))
}

// Observe implements schedule.Clusters.
func (c *Clusters) Observe(ctx context.Context, q puller.Question) (said puller.Report, err error) {
	err = call(ctx, c.Program, ClustersObserve, q, &said)
	return said, err
}

// Stage implements schedule.Clusters.
func (c *Clusters) Stage(ctx context.Context, cluster krm.Resource, p tko.SiteStaging) (tko.SiteStaging, error) {
	name, end := c.fenced(ctx)
	defer end()
	var out StageResponse
	err := call(ctx, c.Program, ClustersStage, StageRequest{name, cluster, p}, &out)
	if err = closed(errors.Join(err, out.Error.Err())); err != nil {
		return p, err
	}
	return out.Pull, nil
}

// closeLimit bounds the time to end watches and connections.
const closeLimit = 5 * time.Second

// Close implements schedule.Clusters.
func (c *Clusters) Close() {
	if c.Program.PID() == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	_ = call(ctx, c.Program, ClustersClose, None{}, nil) // if it has ended, nothing is open
}

// Pods run plugins in pods, in another program.
type Pods struct{ Program *sibling.Program }

// Run implements plugin.Pods.
func (p *Pods) Run(ctx context.Context, c plugin.PodCommand) (stdout []byte, stderr string, err error) {
	var out PodResponse
	err = call(ctx, p.Program, PodsRun, c, &out)
	return out.Stdout, out.Stderr, errors.Join(err, out.Error.Err())
}

func call(ctx context.Context, program *sibling.Program, method string, in, out any) error {
	peer, err := program.Peer(ctx)
	if err != nil {
		return err
	}
	return sibling.Call(ctx, peer, method, in, out)
}

// Metrics returns the metrics of the program, as text; nil if it doesn't run.
func Metrics(ctx context.Context, program *sibling.Program) (text []byte, err error) {
	peer := program.Running()
	if peer == nil {
		return nil, nil
	}
	err = sibling.Call(ctx, peer, MetricsEncode, None{}, &text)
	return text, err
}

// RunUntil runs a method of the program that ends when it is asked to. It returns
// after the method has.
func RunUntil(ctx context.Context, program *sibling.Program, method string) error {
	peer, err := program.Peer(ctx)
	if err != nil {
		return err
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	s, end, err := sibling.Open(running, peer, method)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = end() })()
	if err := s.Receive(nil); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

// Until returns a handler that runs a method until the caller asks it to end, or has
// ended.
func Until(run func(ctx context.Context) error) sibling.Handler {
	return func(ctx context.Context, s *sibling.Stream) error {
		ctx, stop := context.WithCancel(ctx)
		defer stop()
		go func() {
			_ = s.Receive(nil) // the end
			stop()
		}()
		return run(ctx)
	}
}
