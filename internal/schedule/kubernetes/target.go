package kubernetes

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/helm"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/krm"
)

// The reasons of conditions that this target gives.
const (
	ReasonApplied    = "Applied"          // the cluster has what the deployment says
	ReasonFailed     = "Failed"           // something isn't there; it is tried again
	ReasonInvalid    = "Invalid"          // something can't be there: a change of the package helps
	ReasonWaiting    = "Waiting"          // for something that is made elsewhere, or comes first
	ReasonDrifted    = "Drifted"          // somebody changed something, and it is left so
	ReasonRemoving   = "Removing"         // what is no longer wanted is on its way out
	ReasonApproval   = "WaitsForApproval" // more would be removed than the budget allows
	ReasonHealthy    = "Healthy"          // all objects are as they should
	ReasonInProgress = "InProgress"       // some aren't yet
	ReasonUnhealthy  = "Unhealthy"        // some have failed
	ReasonAway       = "Unreachable"      // the cluster doesn't answer
	ReasonUnknown    = "NotObserved"      // it can't be looked at: Scheduled says why
)

// Options are the settings of a Target. The zero value works.
type Options struct {
	Kubeconfigs    string        // folder that kubeconfigs are in; there are none if empty
	Management     string        // kubeconfig of the management cluster; there is none if empty
	InCluster      bool          // whether sites may be the cluster that we run in
	Proxies        []string      // URLs of proxies that kubeconfigs may name; none if empty
	Interval       time.Duration // look at a site again after that long, give or take a tenth; 10 min if 0
	Timeout        time.Duration // of one request; 30 s if 0
	Parallel       int           // requests to one cluster at once; 8 if 0
	MaxConnections int           // that are kept; 1,000 if 0
	Idle           time.Duration // after which a connection is closed; 2 min if 0
	Charts         string        // folder that Helm charts by path are in; there are none if empty
	Guard          *guard.Guard  // says where charts and proxies of clusters may be; everywhere if nil
	Logins         string        // file of credentials of chart repositories and registries; there are none if empty
	ChartTimeout   time.Duration // after which a hook of a chart, or an upgrade that doesn't become healthy, has failed; 5 min if 0
	RenderTimeout  time.Duration // of the templates of a chart; 30 s if 0
	Log            *slog.Logger  // nowhere if nil

	// Stir is told of sites whose objects somebody may have changed between two
	// looks: look at them, at any time. It mustn't wait. Nothing is watched if it
	// is nil.
	Stir func(tko.SiteID)
	// Watched is how many sites are watched at once: those that were changed
	// last. 200 if 0, none if negative.
	Watched int
}

// A Target applies what sites should run to their clusters. It is safe for
// concurrent use.
type Target struct {
	options     Options
	connections *connections
	charts      *helm.Store
	renderer    *helm.Renderer
	watches     *watches
	probes      chan struct{} // an element for each look at a cluster that was away
}

// maxProbes is how many clusters that were away are tried at once, so that
// those that are there don't wait for them.
const maxProbes = 16

// New makes a Target. Close it when it isn't needed any more.
func New(o Options) *Target {
	if o.Kubeconfigs != "" {
		if absolute, err := filepath.Abs(o.Kubeconfigs); err == nil {
			o.Kubeconfigs = absolute
		}
	}
	if o.Interval == 0 {
		o.Interval = 10 * time.Minute
	}
	if o.Timeout == 0 {
		o.Timeout = 30 * time.Second
	}
	if o.Parallel == 0 {
		o.Parallel = 8
	}
	if o.MaxConnections == 0 {
		o.MaxConnections = 1000
	}
	if o.Idle == 0 {
		o.Idle = 2 * time.Minute
	}
	if o.ChartTimeout == 0 {
		o.ChartTimeout = 5 * time.Minute
	}
	if o.Watched == 0 {
		o.Watched = 200
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return &Target{
		options: o, connections: &connections{options: o, entries: map[source]*cluster{}}, charts: helm.NewStore(helm.StoreOptions{Folder: o.Charts, Credentials: o.Logins, Guard: o.Guard}),
		renderer: helm.NewRenderer(helm.RendererOptions{Limit: o.RenderTimeout}),
		watches:  &watches{options: o, open: openMetadata, sites: map[watched]*siteWatch{}}, probes: make(chan struct{}, maxProbes),
	}
}

// Close ends all watches, and closes the connections. Looks that are under way
// end first.
func (t *Target) Close() {
	t.watches.close()
	t.connections.close()
}

// Schedule makes the cluster that a resource of the site's package names hold
// what these deployments say, and nothing more of what was applied for the
// site, except for what deployments that are held have there. Before that, it
// makes the management cluster hold what the site's package has for it. The
// report says how every deployment is. ErrInvalid says that a record has to change; any
// other error may go away without that. Doing it again changes nothing.
func (t *Target) Schedule(ctx context.Context, trigger krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Report, error) {
	s, err := readSpec(trigger)
	if err != nil {
		return report.Report{}, err
	}
	if away := conditionOf(site.Stamp, tko.ConditionHealthy); away != nil && away.Reason == ReasonAway {
		select {
		case t.probes <- struct{}{}:
			defer func() { <-t.probes }()
		default: // as it was said before
			return report.Report{Requeue: jittered(busyPause)}, errors.New(away.Message)
		}
	}
	infrastructure, err := t.provide(ctx, s, site)
	if ctx.Err() != nil {
		return report.Report{}, context.Cause(ctx)
	}
	r, deployErr := t.deploy(ctx, s, site, deployments, held)
	if ctx.Err() != nil {
		return report.Report{}, context.Cause(ctx)
	}
	return together(infrastructure, err, r, deployErr)
}

// Namespace is that of the namespaced resources of deployments that name none.
func (t *Target) Namespace(trigger krm.Resource) string {
	s, err := readSpec(trigger)
	if err != nil {
		return defaultNamespace
	}
	return s.Namespace
}

// deploy looks after the site's cluster.
func (t *Target) deploy(ctx context.Context, s spec, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Report, error) {
	conn, release, err := t.connections.get(ctx, s.Source)
	if err != nil {
		return t.unreached(ctx, site, deployments, err)
	}
	defer release()
	l := &look{target: t, conn: conn, spec: s, site: site, deployments: deployments, held: held}
	err = l.do(ctx)
	l.log(ctx)
	if err != nil {
		t.watches.forget(watched{site.ID, s.Source, s.Inventory})
		return t.unreached(ctx, site, deployments, err)
	}
	t.watches.follow(ctx, l)
	return l.report()
}

// unreached is the report of a look that came to no end: nobody knows how what
// is there does.
func (t *Target) unreached(ctx context.Context, site tko.Site, deployments []tko.Deployment, err error) (report.Report, error) {
	if ctx.Err() != nil || errors.Is(err, tko.ErrConflict) {
		return report.Report{}, err
	}
	r := report.Report{Deployments: map[tko.DeploymentID]report.State{}}
	v := report.Outcome{Status: tko.ConditionUnknown, Reason: ReasonUnknown}
	var wait *waitError
	switch {
	case isAway(err):
		err = fmt.Errorf("the cluster doesn't answer: %s", whyAway(err))
		v.Reason, r.Requeue = ReasonAway, t.again(site)
		t.options.Log.DebugContext(ctx, "cluster is away", "site", string(site.ID), "err", err)
	case errors.As(err, &wait):
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: ReasonWaiting, Message: err.Error()}
		r.Requeue = t.again(site)
	}
	v.Message = err.Error()
	if v.Reason == ReasonAway || conditionOf(site.Stamp, tko.ConditionHealthy) != nil {
		r.Site.Healthy = v
	}
	for _, d := range deployments {
		if conditionOf(d.Stamp, tko.ConditionHealthy) != nil {
			r.Deployments[d.ID] = report.State{Healthy: v}
		}
	}
	return r, err
}

// whyAway says why, in words that stay the same from one try to the next.
func whyAway(err error) string {
	var network net.Error
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var certificate x509.CertificateInvalidError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		return fmt.Sprintf("it is not able to (%d %s)", status.Status().Code, status.Status().Reason)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "it took too long"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &dns):
		return "there is no such host"
	case errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &certificate), strings.Contains(err.Error(), "x509: "):
		return "its certificate is not good"
	case errors.Is(err, errBroken), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "the connection broke"
	default:
		return "there is no way to it"
	}
}

// jittered spreads looks, so that sites that began together don't stay so.
func jittered(d time.Duration) time.Duration {
	return d - d/10 + time.Duration(rand.Int64N(int64(d/5)+1)) //nolint:gosec // jitter is no secret
}

const (
	soon      = time.Second
	busyPause = 5 * time.Second
)

// again is when to look at a site again that isn't as it should be yet: soon,
// and later the longer that lasts.
func (t *Target) again(site tko.Site) time.Duration {
	wait := soon
	for _, name := range []string{tko.ConditionHealthy, tko.ConditionScheduled} {
		if c := conditionOf(site.Stamp, name); c != nil && c.Status != tko.ConditionTrue {
			wait = max(wait, time.Since(c.LastTransition)/2)
		}
	}
	return min(wait, jittered(t.options.Interval))
}

func conditionOf(s tko.Stamp, name string) *tko.Condition {
	i := slices.IndexFunc(s.Conditions, func(c tko.Condition) bool { return c.Type == name })
	if i < 0 {
		return nil
	}
	return &s.Conditions[i]
}
