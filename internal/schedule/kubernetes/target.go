package kubernetes

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/tko-orchestrator/tko"
	"github.com/tko-orchestrator/tko/internal/guard"
	"github.com/tko-orchestrator/tko/internal/leash"
	"github.com/tko-orchestrator/tko/internal/pause"
	"github.com/tko-orchestrator/tko/internal/schedule/fence"
	"github.com/tko-orchestrator/tko/internal/schedule/kubernetes/chart"
	"github.com/tko-orchestrator/tko/internal/schedule/report"
	"github.com/tko-orchestrator/tko/internal/schedule/trigger"
	"github.com/tko-orchestrator/tko/krm"
)

// Options are the settings of a Target. The zero value works.
type Options struct {
	Kubeconfigs    string        // folder of kubeconfigs; none if empty
	Management     string        // path of the management cluster's kubeconfig; none if empty
	Labelled       string        // selector of the labels of Secrets with kubeconfigs; none are read if empty
	LabelledIn     string        // path of the kubeconfig for them, in whose namespace they are; the cluster and namespace that this process runs in if empty
	InCluster      bool          // whether sites may use the cluster that this process runs in
	Proxies        []string      // URLs of proxies that kubeconfigs may name; none if empty
	Interval       time.Duration // between reconciliations without a change, give or take a tenth; 10 min if 0
	Timeout        time.Duration // limit of a request; 30 s if 0
	Parallel       int           // concurrent requests to a cluster; 8 if 0
	MaxConnections int           // limit of open connections; 1,000 if 0
	Idle           time.Duration // time after which an unused connection is closed; 2 min if 0
	Charts         string        // folder of Helm charts by path; none if empty
	Guard          *guard.Guard  // limits the addresses of charts and of clusters' proxies; no limits if nil
	Logins         string        // path of the file of credentials for chart repositories and registries; none if empty
	Leash          *leash.Leash  // what kubeconfigs may be used for; no declarations if nil
	ChartTimeout   time.Duration // limit of a chart's hook, and of an upgrade to become healthy; 5 min if 0
	RenderTimeout  time.Duration // limit of rendering a chart's templates; 30 s if 0
	Log            *slog.Logger  // nothing is logged if nil

	// Enqueue requests a reconciliation of a site whose objects may have changed
	// since the last one. It must return immediately. If it is nil, nothing is
	// watched.
	Enqueue func(tko.SiteID)
	// Watched is the number of sites to watch, the last changed ones first. 200 if 0,
	// none if negative.
	Watched int
}

// A Target applies deployments to the clusters of sites. It is safe for concurrent
// use.
type Target struct {
	trigger.Cluster

	options     Options
	connections *connections
	charts      *chart.Deployer
	watches     *watches
	hubs        *hubs
	probes      chan struct{} // has an element for each running reconciliation of a cluster that was unreachable
}

// maxProbes bounds the concurrent reconciliations of clusters that were unreachable,
// so that reachable ones don't wait for their time-outs.
const maxProbes = 16

// New returns a Target. The caller calls Close when it no longer needs it.
func New(o Options) *Target {
	if o.Kubeconfigs != "" {
		if absolute, err := filepath.Abs(o.Kubeconfigs); err == nil {
			o.Kubeconfigs = absolute
		}
	}
	o.Interval = cmp.Or(o.Interval, 10*time.Minute)
	o.Timeout = cmp.Or(o.Timeout, 30*time.Second)
	o.Parallel = cmp.Or(o.Parallel, 8)
	o.MaxConnections = cmp.Or(o.MaxConnections, 1000)
	o.Idle = cmp.Or(o.Idle, 2*time.Minute)
	o.ChartTimeout = cmp.Or(o.ChartTimeout, 5*time.Minute)
	o.Watched = cmp.Or(o.Watched, 200)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	open := &connections{options: o, entries: map[connectionKey]*cluster{}}
	return &Target{
		options: o, connections: open,
		charts: chart.NewDeployer(chart.Options{
			Folder: o.Charts, Logins: o.Logins, Guard: o.Guard, Limit: o.ChartTimeout, Request: o.Timeout, Render: o.RenderTimeout, Label: LabelDeployment, Keep: isRetained,
		}),
		watches: &watches{options: o, open: openMetadata, sites: map[watched]*siteWatch{}}, hubs: &hubs{options: o, connections: open, all: map[hubKey]*hub{}}, probes: make(chan struct{}, maxProbes),
	}
}

// Close ends all watches and closes the connections. Running reconciliations end
// first.
func (t *Target) Close() {
	t.watches.close()
	t.hubs.close()
	t.connections.close()
}

// Schedule applies deployments to the cluster of a trigger, which is a resource of
// the site's package, and removes other objects that were applied for the site. It
// leaves the objects of held deployments. Before that, it applies the site package's
// part for the management cluster. The report has the state of every deployment.
// ErrInvalid means that the package has to change; after any other error, a later
// call may succeed. Schedule is idempotent.
func (t *Target) Schedule(ctx context.Context, cluster krm.Resource, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Report, error) {
	s, err := trigger.Read(cluster)
	if err != nil {
		return report.Report{}, err
	}
	if away := tko.FindCondition(site.Stamp.Conditions, tko.ConditionHealthy); away != nil && away.Reason == trigger.ReasonUnreachable {
		select {
		case t.probes <- struct{}{}:
			defer func() { <-t.probes }()
		default: // report the same error as before
			return report.Report{Requeue: jittered(busyPause)}, errors.New(away.Message)
		}
	}
	rules, err := compileHealth(s.Health)
	if err != nil {
		return report.Report{}, err
	}
	infrastructure, err := t.reconcileManagement(ctx, s, rules, site)
	if ctx.Err() != nil {
		return report.Report{}, context.Cause(ctx)
	}
	r, deployErr := t.deploy(ctx, s, rules, site, deployments, held)
	if ctx.Err() != nil {
		return report.Report{}, context.Cause(ctx)
	}
	return combineReports(infrastructure, err, r, deployErr)
}

// deploy reconciles the site's own cluster.
func (t *Target) deploy(ctx context.Context, s spec, rules healthRules, site tko.Site, deployments []tko.Deployment, held []tko.DeploymentID) (report.Report, error) {
	rc, release, err := t.connect(ctx, site.ID, s)
	if err != nil {
		return t.incompleteReport(ctx, site, deployments, err)
	}
	defer release()
	rc.health, rc.site, rc.deployments, rc.held = rules, site, deployments, held
	err = rc.run(ctx)
	rc.log(ctx)
	if err != nil {
		t.watches.forget(watched{site.ID, s.Kubeconfig, s.Inventory})
		return t.incompleteReport(ctx, site, deployments, err)
	}
	t.watches.follow(ctx, rc)
	return rc.report()
}

// connect makes a reconciliation with the connections that a spec asks for. The caller
// calls release when it no longer needs them.
func (t *Target) connect(ctx context.Context, site tko.SiteID, s spec) (rc *reconciliation, release func(), err error) {
	by := t.options.Leash.Site(site)
	own, releaseOwn, err := t.connections.get(ctx, by, s.Kubeconfig, trigger.Impersonation{})
	if err != nil {
		return nil, nil, err
	}
	if s.Impersonate.User == "" {
		return t.reconciliation(own, own, s), releaseOwn, nil
	}
	conn, releaseConn, err := t.connections.get(ctx, by, s.Kubeconfig, s.Impersonate)
	if err != nil {
		releaseOwn()
		return nil, nil, err
	}
	return t.reconciliation(conn, own, s), func() { releaseConn(); releaseOwn() }, nil
}

// reconciliation makes a reconciliation of objects over conn, with inventories over own.
func (t *Target) reconciliation(conn, own *cluster, s spec) *reconciliation {
	return &reconciliation{target: t, conn: conn, own: own, releases: t.charts.At(conn.host, conn.client.Transport), spec: s}
}

// incompleteReport reports a reconciliation that failed: the health of the objects is
// unknown.
func (t *Target) incompleteReport(ctx context.Context, site tko.Site, deployments []tko.Deployment, err error) (report.Report, error) {
	if ctx.Err() != nil || errors.Is(err, tko.ErrConflict) || fence.Is(err) {
		return report.Report{}, err
	}
	r := report.Report{Deployments: map[tko.DeploymentID]report.State{}}
	v := report.Outcome{Status: tko.ConditionUnknown, Reason: trigger.ReasonUnknown}
	var wait *waitError
	switch {
	case isUnreachable(err):
		err = fmt.Errorf("the cluster is unreachable: %s", unreachableReason(err))
		v.Reason, r.Requeue = trigger.ReasonUnreachable, t.retryAfter(site)
		t.options.Log.DebugContext(ctx, "cluster is unreachable", "site", string(site.ID), "err", err)
	case errors.As(err, &wait):
		r.Site.Scheduled = report.Outcome{Status: tko.ConditionFalse, Reason: trigger.ReasonWaiting, Message: err.Error()}
		r.Requeue = t.retryAfter(site)
	}
	v.Message = err.Error()
	if v.Reason == trigger.ReasonUnreachable || tko.FindCondition(site.Stamp.Conditions, tko.ConditionHealthy) != nil {
		r.Site.Healthy = v
	}
	for _, d := range deployments {
		if v.Reason == trigger.ReasonUnreachable || tko.FindCondition(d.Stamp.Conditions, tko.ConditionHealthy) != nil {
			r.Deployments[d.ID] = report.State{Healthy: v}
		}
	}
	return r, err
}

// unreachableReason returns the cause of an error in words that are the same for each
// attempt.
func unreachableReason(err error) string {
	var network net.Error
	var dns *net.DNSError
	var authority x509.UnknownAuthorityError
	var hostname x509.HostnameError
	var certificate x509.CertificateInvalidError
	var status apierrors.APIStatus
	switch {
	case errors.As(err, &status):
		return fmt.Sprintf("it can't process requests (%d %s)", status.Status().Code, status.Status().Reason)
	case errors.Is(err, context.DeadlineExceeded), errors.As(err, &network) && network.Timeout():
		return "time-out"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "connection refused"
	case errors.As(err, &dns):
		return "no such host"
	case errors.As(err, &authority), errors.As(err, &hostname), errors.As(err, &certificate), strings.Contains(err.Error(), "x509: "):
		return "its certificate is invalid"
	case errors.Is(err, errBroken), errors.Is(err, io.EOF), errors.Is(err, syscall.ECONNRESET), errors.Is(err, syscall.EPIPE):
		return "connection broken"
	default:
		return "network error"
	}
}

// jittered spreads reconciliations, so that those of sites that started together
// don't coincide.
func jittered(d time.Duration) time.Duration {
	return pause.About(d, 0.1)
}

const (
	soon      = time.Second
	busyPause = 5 * time.Second
)

// retryAfter returns the time until the next reconciliation of a site that has not
// reached its desired state: short at first, longer the longer it lasts.
func (t *Target) retryAfter(site tko.Site) time.Duration {
	wait := soon
	for _, name := range []string{tko.ConditionHealthy, tko.ConditionScheduled} {
		if c := tko.FindCondition(site.Stamp.Conditions, name); c != nil && c.Status != tko.ConditionTrue {
			wait = max(wait, time.Since(c.LastTransition)/2)
		}
	}
	return min(wait, jittered(t.options.Interval))
}
